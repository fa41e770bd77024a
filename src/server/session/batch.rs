//! The requests that a connection processes in one pass (a turn), each with a plan: the command is looked up
//! and its number of arguments checked, keys are hashed, shards determined.
//!
//! A batch is scratch space: it is taken from a pool when a connection has input and returned after some idle time, so
//! that an idle connection keeps no buffers.

use std::task::Waker;

use crate::shard::permit;
use crate::shard::route::{self, Router};
use basalt_commands::cluster::route::SlotOf;
use basalt_commands::command::args::{Args, BYTES_HERE_MAX, COUNT_HERE_MAX, RoutedKey};
use basalt_commands::command::context::Gather;
use basalt_commands::command::declaration::{Command, Flags, Run};
use basalt_commands::command::host::primary::Follow;
use basalt_commands::command::keys;
use basalt_commands::command::notes;
use basalt_commands::command::registry::{registry, resolve};
use basalt_commands::pubsub::outgoing::Outgoing;
use basalt_core::alloc::account::size_class;
use basalt_core::resp::reply::Out;
use basalt_core::resp::request::{Frame, Parser, Requests, Span};
use basalt_core::structures::block::LONG_BYTES_MIN;
use basalt_engine::note;

/// The shards that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// One shard, by its index.
    Shard(u16),
    /// Several shards: a range of [`Batch::shards`].
    Several(u32, u32),
    /// All shards at once.
    All,
    /// All shards, visited one after the other, never two at once.
    Each,
    /// The shards that a script declares.
    Script,
    /// No shard: the command concerns only the session or the server.
    Session,
    /// The request is refused: unknown command, or wrong number of arguments.
    Refused,
}

/// The plan of one request.
#[derive(Clone, Copy)]
pub struct Plan {
    /// The command; `None` if unknown.
    pub command: Option<&'static Command>,
    /// The shards on which the command runs.
    pub route: Route,
    /// The position of the request's arguments in the batch.
    pub request: Frame,
    /// True if the request has so many or such long arguments that running it takes long.
    pub is_long: bool,
    /// True if admission depends only on the command and, in a cluster, on the slot's owner; it then runs on shards.
    pub is_plain: bool,
    /// In a cluster, the slot of the request's keys; without a cluster meaningless.
    pub slot: SlotOf,
    keys_first: u32,
    keys_end: u32,
}

/// A planned request with a known command.
#[derive(Clone, Copy)]
pub struct Request<'p> {
    /// The plan: arguments, slot and route.
    pub plan: &'p Plan,
    /// The entry in the command table.
    pub command: &'static Command,
}

impl<'p> Request<'p> {
    /// Returns the request of a plan, or `None` if its command is unknown.
    pub fn of(plan: &'p Plan) -> Option<Request<'p>> {
        let command = plan.command?;
        Some(Request { plan, command })
    }
}

/// Buffers of one turn; see the module.
#[derive(Default)]
pub struct Batch {
    /// Bytes received; those before `start` are consumed.
    pub input: Vec<u8>,
    start: usize,
    /// Largest length of `input`, in bytes, since the batch was last taken from the pool.
    pub peak: u32,
    /// The requests in `input`.
    pub requests: Requests,
    /// The plans of `requests`.
    pub plans: Vec<Plan>,
    /// Replies not yet sent.
    pub out: Out,
    /// RESP3 push messages for the client, to be sent after the next reply.
    pub late: Out,
    /// Bytes of `out` left unsent by the last write.
    pub unsent: usize,
    /// Messages to other clients, and wakeups of their tasks, that this turn has caused.
    pub outgoing: Outgoing,
    /// Index of the next plan to run.
    pub next: usize,
    /// Index of the first plan whose keys are not yet prefetched.
    pub prefetched: usize,
    /// Progress of the next request, if it visits all shards one after the other (`Route::Each`).
    pub gathering: Option<Gathering>,
    /// The request of a client that becomes a replica of this server.
    pub follow: Option<Box<Follow>>,
    /// True if the connection has already yielded to others before the next request.
    pub others_went: bool,
    /// The first command of an append-only file that failed; nothing is run after it.
    pub failed: Option<Box<Failed>>,
    keys: Vec<RoutedKey>,
    shards: Vec<u16>,
}

/// A command that failed when it was replayed, although it had succeeded when it was logged.
#[derive(Debug)]
pub struct Failed {
    /// Name of the command.
    pub command: &'static str,
    /// The error reply.
    pub reply: String,
}

/// Progress of a command that visits shard after shard.
#[derive(Default)]
pub struct Gathering {
    /// Results of earlier visits.
    pub gather: Gather,
    /// Index of the next shard to visit.
    pub next: u16,
    /// Number of shards.
    pub count: u16,
    /// Run time so far, in nanoseconds.
    pub spent_ns: u64,
}

impl Gathering {
    /// Moves on to the next shard after a visit.
    pub fn advance(&mut self) {
        self.next += u16::from(self.gather.position == 0);
        if self.gather.goes_around {
            self.next %= self.count;
        }
    }
}

/// The parts of a batch that running one request borrows.
pub struct BatchParts<'b> {
    /// Arguments of the request.
    pub args: Args<'b>,
    /// The output for its reply.
    pub out: &'b mut Out,
    /// Messages to other clients, and wakeups of their tasks.
    pub outgoing: &'b mut Outgoing,
    /// The list of shards that [`Route::Several`] refers to by a range.
    pub shards: &'b [u16],
}

/// Returns whether a request may have so many or such long arguments that they must be examined one by one.
#[inline]
fn may_be_long(requests: &Requests, spans: &[Span], request: Frame) -> bool {
    // For an inline command, whose arguments lie elsewhere, the difference is meaningless; but such a line is short.
    let end = request.end as usize;
    let start = spans.first().and_then(|span| span.start()).unwrap_or(end);
    spans.len() > COUNT_HERE_MAX
        || end.saturating_sub(start) > BYTES_HERE_MAX
        || !requests.arena.blocks.is_empty()
}

/// Batches are allocated and freed often. If they shared an allocator size class with the connections' tasks,
/// freed batches would leave slabs with few tasks each.
const _: () = assert!(size_of::<Batch>() <= 640);

impl Batch {
    /// Returns roughly how many bytes of input the batch contains, long arguments included: an upper bound for
    /// the size of each request.
    #[inline]
    pub fn received_bytes(&self) -> usize {
        // Upper bound for the protocol header of an argument stored as a block.
        const HEAD_BYTES: usize = 32;
        let blocks = self.requests.arena.blocks.iter();
        self.input.len() + blocks.map(|block| block.len() + HEAD_BYTES).sum::<usize>()
    }

    /// Returns the shards of a [`Route::Several`] range.
    pub fn listed_shards(&self, first: u32, end: u32) -> &[u16] {
        &self.shards[first as usize..end as usize]
    }

    /// Returns the arguments of a planned request.
    #[inline]
    pub fn args(&self, plan: &Plan) -> Args<'_> {
        Args::new(
            &self.input[self.start..],
            &self.requests.arena,
            self.requests.spans_of(plan.request),
            self.keys(plan),
        )
    }

    /// Returns the arguments of a planned request and the outputs that running the request writes to.
    #[inline]
    pub fn parts(&mut self, plan: &Plan) -> BatchParts<'_> {
        let Batch {
            input,
            start,
            requests,
            keys,
            out,
            outgoing,
            shards,
            ..
        } = self;
        let keys = &keys[plan.keys_first as usize..plan.keys_end as usize];
        let spans = requests.spans_of(plan.request);
        BatchParts {
            args: Args::new(&input[*start..], &requests.arena, spans, keys),
            out,
            outgoing,
            shards,
        }
    }

    /// Records a finished visit of a request that visits shards one after the other; `gather` has the results
    /// so far.
    pub fn resume_visits(&mut self, gather: Gather) {
        if let Some(gathering) = &mut self.gathering {
            gathering.gather = gather;
            gathering.advance();
        }
    }

    /// Returns whether the request after the running one publishes a message.
    pub fn next_publishes(&self) -> bool {
        let next = self.plans.get(self.next + 1);
        next.and_then(|plan| plan.command)
            .is_some_and(Command::publishes)
    }

    /// Returns the memory of the input in bytes, including long arguments moved out of it and the parsed requests.
    pub fn input_memory_bytes(&self) -> usize {
        let requests = &self.requests;
        self.input.capacity()
            + requests.arena.memory_bytes()
            + requests.spans.capacity() * size_of::<Span>()
            + self.keys.capacity() * size_of::<RoutedKey>()
    }

    /// Moves the received part of an incomplete long argument to a block with capacity for `more` bytes, see
    /// [`Parser::begin_block`]. No request may be in flight.
    pub fn begin_block(&mut self, parser: &mut Parser, more: usize) {
        debug_assert!(self.plans.is_empty(), "all requests ran");
        parser.begin_block(&mut self.input, self.start, LONG_BYTES_MIN, more);
    }

    /// Moves the bytes that have since been received for the long argument to its block.
    pub fn fill_block(&mut self, parser: &mut Parser) {
        parser.fill_block(&mut self.input, self.start);
    }

    /// Returns the keys by which a plan is routed.
    pub fn keys(&self, plan: &Plan) -> &[RoutedKey] {
        &self.keys[plan.keys_first as usize..plan.keys_end as usize]
    }

    /// Returns the bytes that are not yet consumed.
    pub fn pending(&self) -> &[u8] {
        &self.input[self.start..]
    }

    /// Returns the parser's input and its destination for requests.
    pub fn parsing(&mut self) -> (&[u8], &mut Requests) {
        (&self.input[self.start..], &mut self.requests)
    }

    /// Returns the memory of an empty batch in its box, in bytes as the allocator counts them.
    pub fn memory_bytes(&self) -> usize {
        let lists = size_class(self.plans.capacity() * size_of::<Plan>())
            + size_class(self.keys.capacity() * size_of::<RoutedKey>())
            + size_class(self.shards.capacity() * size_of::<u16>())
            + size_class(self.outgoing.wakes.capacity() * size_of::<Waker>());
        let buffers = size_class(self.input.capacity())
            + size_class(self.out.memory_bytes())
            + size_class(self.late.memory_bytes());
        let requests = size_class(self.requests.memory_bytes());
        size_class(size_of::<Self>()) + buffers + requests + lists
    }

    /// Clears the batch for the next connection, in whatever state the last one ended.
    pub fn reset(&mut self) {
        self.input.clear();
        self.start = 0;
        self.consume(0);
        self.gathering = None;
        self.follow = None;
        self.unsent = 0;
        self.others_went = false;
        self.failed = None;
        self.out.clear();
        self.late.clear();
        self.outgoing.wake_all();
    }

    /// Makes the first plan the next one to run, with no keys prefetched.
    pub fn rewind(&mut self) {
        self.next = 0;
        self.prefetched = 0;
    }

    /// Removes all requests and plans, and `consumed` bytes of input.
    pub fn consume(&mut self, consumed: usize) {
        self.requests.clear();
        self.plans.clear();
        self.keys.clear();
        self.shards.clear();
        self.rewind();
        self.start += consumed;
        if self.start == self.input.len() {
            self.input.clear();
            self.start = 0;
        } else if self.start >= self.input.len() / 2 {
            // At most as many bytes are moved as were consumed, so a long pipeline is not moved repeatedly.
            self.input.drain(..self.start);
            self.start = 0;
        }
    }

    /// Removes the requests that ran, and their bytes. The remaining requests will be parsed again.
    pub fn consume_run(&mut self) {
        let last = self
            .next
            .checked_sub(1)
            .and_then(|last| self.plans.get(last));
        self.consume(last.map_or(0, |plan| plan.request.end as usize));
    }

    /// Plans every request of the batch.
    pub fn plan(&mut self, router: &Router) {
        for index in 0..self.requests.requests.len() {
            let request = self.requests.requests[index];
            let plan = self.plan_one(request, router);
            self.plans.push(plan);
        }
    }

    /// Plans every request of a batch sent by another server or written by this one: a message of a slot
    /// migration (a "note") is planned as the command that it contains.
    pub fn plan_sent_on(&mut self, router: &Router) {
        self.plan(router);
        for index in 0..self.plans.len() {
            let command = self.plans[index].command;
            if command.is_some_and(|row| row.flags.has(Flags::HOLDS_NOTES)) {
                self.plan_note(index, router);
            }
        }
    }

    /// Plans a request that is a note (a message of a slot migration) again, as the command that it contains;
    /// returns `None` if the request is not a note.
    #[cold]
    pub fn plan_note(&mut self, index: usize, router: &Router) -> Option<Plan> {
        let request = self.plans[index].request;
        let args = self.args(&self.plans[index]);
        if !note::is_note(args.len(), |at| args.get(at)) {
            return None;
        }
        let head = note::HEAD.len();
        let command = notes::find(args.len() - head, |at| args.get(head + at));
        let held = Frame {
            first: request.first + head as u32,
            count: request.count - head as u32,
            ..request
        };
        let plan = self.plan_as(command, held, router);
        self.plans[index] = plan;
        Some(plan)
    }

    /// Adds a copy of a request that another batch has planned and whose arguments all lie in that batch's
    /// input.
    pub fn adopt(&mut self, from: &Batch, plan: &Plan) {
        let input = from.pending();
        let spans = from.requests.spans_of(plan.request);
        let start = spans[0].start().expect("an argument in the input");
        let moved = self.input.len();
        self.input
            .extend_from_slice(&input[start..plan.request.end as usize]);
        let at = |span: &Span| span.start().expect("as above") - start + moved;
        let first = self.requests.spans.len() as u32;
        let spans = spans
            .iter()
            .map(|span| Span::in_buffer(at(span), span.len()));
        self.requests.spans.extend(spans);
        let end = self.input.len() as u32;
        let request = Frame {
            first,
            end,
            ..plan.request
        };
        let (keys_first, shards_first) = (self.keys.len() as u32, self.shards.len() as u32);
        self.keys.extend_from_slice(from.keys(plan));
        let route = match plan.route {
            Route::Several(first, end) => {
                self.shards
                    .extend_from_slice(from.listed_shards(first, end));
                Route::Several(shards_first, self.shards.len() as u32)
            }
            route => route,
        };
        self.requests.requests.push(request);
        self.plans.push(Plan {
            route,
            request,
            keys_first,
            keys_end: self.keys.len() as u32,
            ..*plan
        });
    }

    #[inline]
    fn plan_one(&mut self, request: Frame, router: &Router) -> Plan {
        let spans = self.requests.spans_of(request);
        let argument =
            |index: usize| spans[index].bytes(&self.input[self.start..], &self.requests.arena);
        let command =
            registry()
                .find(argument(0))
                .map(|command| match command.children().is_empty() {
                    true => command,
                    false => resolve(command, (spans.len() > 1).then(|| argument(1))),
                });
        self.plan_as(command, request, router)
    }

    /// Plans a request as the given command, regardless of its name.
    #[inline(always)]
    fn plan_as(
        &mut self,
        command: Option<&'static Command>,
        request: Frame,
        router: &Router,
    ) -> Plan {
        let Batch {
            input,
            start,
            requests,
            keys,
            shards,
            ..
        } = self;
        let spans = requests.spans_of(request);
        let argument = |index: usize| spans[index].bytes(&input[*start..], &requests.arena);
        let count = spans.len();
        let keys_first = keys.len() as u32;
        let mut plan = Plan {
            command,
            route: Route::Refused,
            request,
            is_long: false,
            is_plain: true,
            slot: SlotOf::NONE,
            keys_first,
            keys_end: keys_first,
        };
        let Some(command) = plan.command else {
            return plan;
        };
        if !command.accepts(count) {
            return plan;
        }
        if may_be_long(requests, spans, request) {
            let args = Args::new(&input[*start..], &requests.arena, spans, &[]);
            plan.is_long = args.are_long(|at| command.keeps(at));
        }
        if matches!(command.run, Run::Keys(_))
            && !command.may_need_all_shards()
            && let Some(at) = keys::only(command, count, argument)
            && at < count
        {
            let (key, slot) = router.routed_in_slot(at, argument(at));
            keys.push(key);
            plan.slot = slot;
            plan.keys_end += 1;
            plan.route = Route::Shard(key.shard);
            return plan;
        }
        plan.slot = find_keys(command, router, count, argument, keys);
        let named = &mut keys[keys_first as usize..];
        plan.route = match command.run {
            Run::Session(_) | Run::Transaction(_) => {
                plan.is_plain = false;
                Route::Session
            }
            Run::Container(_) => Route::Refused,
            Run::AllShards(_) => Route::All,
            Run::EachShard(..) | Run::Cursor(..) => Route::Each,
            Run::Script(_) => Route::Script,
            Run::Keys(_) => {
                let args = Args::new(&input[*start..], &requests.arena, spans, &[]);
                match command.needs_all_shards(&args) {
                    true => {
                        named
                            .iter_mut()
                            .for_each(|key| key.engine_index = key.shard);
                        Route::All
                    }
                    false => route_of(named, shards),
                }
            }
        };
        plan.keys_end = keys.len() as u32;
        plan
    }
}

/// Appends the keys of a request that runs with its shards locked; returns their slot in a cluster.
fn find_keys<'a>(
    command: &Command,
    router: &Router,
    count: usize,
    argument: impl Fn(usize) -> &'a [u8] + Copy,
    keys: &mut Vec<RoutedKey>,
) -> SlotOf {
    let mut all = SlotOf::NONE;
    if matches!(command.run, Run::Keys(_) | Run::Script(_)) {
        // An invalid key count leaves the command without keys; its handler reports the error.
        let _ = keys::positions(command, count, argument, |at, _| {
            let (key, slot) = router.routed_in_slot(at, argument(at));
            keys.push(key);
            if router.is_node() {
                all = all.with(slot);
            }
        });
    } else if router.is_node() && !command.keys.is_empty() {
        return permit::slot_of_names(command, count, argument);
    }
    all
}

/// Returns the route of the keys. If there are several shards, they are appended to `shards`, and each key gets
/// the index of its shard among them.
fn route_of(keys: &mut [RoutedKey], shards: &mut Vec<u16>) -> Route {
    let several = match keys {
        [] => return Route::Shard(0),
        [key] => return Route::Shard(key.shard),
        several => several,
    };
    let first = shards.len();
    shards.extend(several.iter().map(|key| key.shard));
    shards[first..].sort_unstable();
    let mut kept = first;
    for at in first + 1..shards.len() {
        if shards[at] != shards[kept] {
            kept += 1;
            shards[kept] = shards[at];
        }
    }
    shards.truncate(kept + 1);
    if let [shard] = shards[first..] {
        shards.truncate(first);
        return Route::Shard(shard);
    }
    route::set_engine_indices(several, &shards[first..]);
    Route::Several(first as u32, shards.len() as u32)
}
