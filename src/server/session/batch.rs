//! The requests of one turn, planned: looked up, checked, their keys hashed and their shards named.
//!
//! A batch is scratch: it is taken from a pool when a connection has input and given back when it was idle for some
//! time, so that an idle connection keeps no buffers.

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
use basalt_core::resp::reply::Out;
use basalt_core::resp::request::{Frame, Parser, Requests, Span};
use basalt_core::structures::block::LONG_BYTES_MIN;
use basalt_engine::note;

/// Which shards a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// One.
    Shard(u16),
    /// Several: a range of [`Batch::shards`].
    Several(u32, u32),
    /// All at once.
    All,
    /// One after the other.
    Each,
    /// Shards that a script needs.
    Script,
    /// None.
    Session,
    /// The request is refused: no such command, or wrong arguments.
    Refused,
}

/// One request, planned.
#[derive(Clone, Copy)]
pub struct Plan {
    /// The command; `None` when there is no such.
    pub command: Option<&'static Command>,
    /// Where it runs.
    pub route: Route,
    /// Arguments of the request.
    pub request: Frame,
    /// Whether it has so many arguments, or so long ones, that to run it takes long.
    pub is_long: bool,
    /// Whether all that its admission has to look at is the command, and in a cluster whose the slot is: it runs on
    /// shards.
    pub is_plain: bool,
    /// The slot of its keys, where there is a cluster; otherwise it may be any.
    pub slot: SlotOf,
    keys_first: u32,
    keys_end: u32,
}

/// A request that names a command: what planning found out about it.
#[derive(Clone, Copy)]
pub struct Request<'p> {
    /// Its arguments, its slot and where it runs.
    pub plan: &'p Plan,
    /// Its row in the table of commands.
    pub command: &'static Command,
}

impl<'p> Request<'p> {
    /// The request of a plan, unless it names no command.
    pub fn of(plan: &'p Plan) -> Option<Request<'p>> {
        let command = plan.command?;
        Some(Request { plan, command })
    }
}

/// See the module.
#[derive(Default)]
pub struct Batch {
    /// Bytes received; those before `start` are consumed.
    pub input: Vec<u8>,
    start: usize,
    /// The most that `input` held since the batch was last put aside.
    pub peak: u32,
    /// The requests in `input`.
    pub requests: Requests,
    /// The plans of `requests`.
    pub plans: Vec<Plan>,
    /// Replies not yet sent.
    pub out: Out,
    /// What others had for the client, and is to stand behind the next reply.
    pub late: Out,
    /// Bytes of `out` left unsent by the last write.
    pub unsent: usize,
    /// What goes to others in this turn.
    pub outgoing: Outgoing,
    /// The next plan to run.
    pub next: usize,
    /// The first plan that was not prefetched yet.
    pub prefetched: usize,
    /// The next request, on its way from shard to shard.
    pub gathering: Option<Gathering>,
    /// What a client asks for that follows this server from here on.
    pub follow: Option<Box<Follow>>,
    /// The next request has let others go first.
    pub others_went: bool,
    /// A command of an append-only file has answered with an error, and nothing behind it is to be run.
    pub failed: Option<Box<Failed>>,
    keys: Vec<RoutedKey>,
    shards: Vec<u16>,
}

/// A command that ran without an error when it was logged, and has answered with one now.
#[derive(Debug)]
pub struct Failed {
    /// Name of the command.
    pub command: &'static str,
    /// The error that it has answered with.
    pub reply: String,
}

/// A command on its way from shard to shard.
#[derive(Default)]
pub struct Gathering {
    /// What earlier visits gathered.
    pub gather: Gather,
    /// The shard that it visits next.
    pub next: u16,
    /// How many shards there are.
    pub count: u16,
    /// Nanoseconds that it ran so far.
    pub spent_ns: u64,
}

impl Gathering {
    /// Goes on behind a visit.
    pub fn advance(&mut self) {
        self.next += u16::from(self.gather.position == 0);
        if self.gather.goes_around {
            self.next %= self.count;
        }
    }
}

/// What a run of one planned request borrows of its batch.
pub struct Parts<'b> {
    /// Arguments of the request.
    pub args: Args<'b>,
    /// Where its reply goes.
    pub out: &'b mut Out,
    /// What goes to others.
    pub outgoing: &'b mut Outgoing,
    /// The list that [`Route::Several`] is a range of.
    pub shards: &'b [u16],
}

/// Whether a request may have so many arguments, or so long ones, that they have to be looked at one by one.
#[inline]
fn may_be_long(requests: &Requests, spans: &[Span], request: Frame) -> bool {
    // Of a line, whose arguments lie elsewhere, the difference says nothing; but a line is short.
    let end = request.end as usize;
    let start = spans.first().and_then(|span| span.start()).unwrap_or(end);
    spans.len() > COUNT_HERE_MAX
        || end.saturating_sub(start) > BYTES_HERE_MAX
        || !requests.arena.blocks.is_empty()
}

/// Buffers come and go with these. In a size class with the tasks of connections they would leave those in sparse
/// slabs.
const _: () = assert!(size_of::<Batch>() <= 640);

impl Batch {
    /// About how many bytes have come and are not put aside: no request has more.
    #[inline]
    pub fn received_bytes(&self) -> usize {
        // What stands in front of an argument that is a block takes less than this.
        const HEAD_BYTES: usize = 32;
        let blocks = self.requests.arena.blocks.iter();
        self.input.len() + blocks.map(|block| block.len() + HEAD_BYTES).sum::<usize>()
    }

    /// The shards that [`Route::Several`] ranges over.
    pub fn listed_shards(&self, first: u32, end: u32) -> &[u16] {
        &self.shards[first as usize..end as usize]
    }

    /// The arguments of a planned request.
    #[inline]
    pub fn args(&self, plan: &Plan) -> Args<'_> {
        Args::new(
            &self.input[self.start..],
            &self.requests.arena,
            self.requests.spans_of(plan.request),
            self.keys(plan),
        )
    }

    /// The arguments of a planned request together with what a run of it writes to.
    #[inline]
    pub fn parts(&mut self, plan: &Plan) -> Parts<'_> {
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
        Parts {
            args: Args::new(&input[*start..], &requests.arena, spans, keys),
            out,
            outgoing,
            shards,
        }
    }

    /// A visit of the request that goes from shard to shard is over.
    pub fn resume_visits(&mut self, gather: Gather) {
        if let Some(gathering) = &mut self.gathering {
            gathering.gather = gather;
            gathering.advance();
        }
    }

    /// Whether the request behind the one that runs publishes a message.
    pub fn next_publishes(&self) -> bool {
        let next = self.plans.get(self.next + 1);
        next.and_then(|plan| plan.command)
            .is_some_and(Command::publishes)
    }

    /// What the input takes, with long arguments that left it, and with what is known of the requests in it.
    pub fn input_memory_bytes(&self) -> usize {
        let requests = &self.requests;
        self.input.capacity()
            + requests.arena.memory_bytes()
            + requests.spans.capacity() * size_of::<Span>()
            + self.keys.capacity() * size_of::<RoutedKey>()
    }

    /// Moves what was received of a long argument that is not complete to a block, with room for `more` bytes, see
    /// [`Parser::begin_block`]. No request may be under way.
    pub fn begin_block(&mut self, parser: &mut Parser, more: usize) {
        debug_assert!(self.plans.is_empty(), "all requests ran");
        parser.begin_block(&mut self.input, self.start, LONG_BYTES_MIN, more);
    }

    /// Moves what has been received since of that argument to its block.
    pub fn fill_block(&mut self, parser: &mut Parser) {
        parser.fill_block(&mut self.input, self.start);
    }

    /// The keys that a plan routes.
    pub fn keys(&self, plan: &Plan) -> &[RoutedKey] {
        &self.keys[plan.keys_first as usize..plan.keys_end as usize]
    }

    /// The bytes that are not consumed yet.
    pub fn pending(&self) -> &[u8] {
        &self.input[self.start..]
    }

    /// What the parser reads, and where it puts the requests.
    pub fn parsing(&mut self) -> (&[u8], &mut Requests) {
        (&self.input[self.start..], &mut self.requests)
    }

    /// Forgets everything, wherever a connection ended, for the next one.
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

    /// The first plan is the next one to run, and nothing is prefetched.
    pub fn rewind(&mut self) {
        self.next = 0;
        self.prefetched = 0;
    }

    /// Forgets all requests and plans, and the bytes they stood in.
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
            // What is moved is never more than what was consumed, so a long pipeline is not moved over and over.
            self.input.drain(..self.start);
            self.start = 0;
        }
    }

    /// Forgets the requests that ran, and the bytes they stood in; those behind them are to be read anew.
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

    /// Plans every request of the batch, which another server has sent, or this one has written down: notes are the
    /// commands that they hold.
    pub fn plan_sent_on(&mut self, router: &Router) {
        self.plan(router);
        for index in 0..self.plans.len() {
            let command = self.plans[index].command;
            if command.is_some_and(|row| row.flags.has(Flags::HOLDS_NOTES)) {
                self.plan_note(index, router);
            }
        }
    }

    /// Plans a request of a command that may hold notes anew, if it is one: as the command that it holds.
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

    /// Adds a request that another batch has planned, whose arguments all lie in that one's input.
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

    /// Plans a request as this command, whatever its name.
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

/// Adds the keys of a request that runs with their shards in hand; their slot, where there is a cluster.
fn find_keys<'a>(
    command: &Command,
    router: &Router,
    count: usize,
    argument: impl Fn(usize) -> &'a [u8] + Copy,
    keys: &mut Vec<RoutedKey>,
) -> SlotOf {
    let mut all = SlotOf::NONE;
    if matches!(command.run, Run::Keys(_) | Run::Script(_)) {
        // A count of keys that is wrong leaves the command without keys; its handler says what is wrong.
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

/// The shards of some keys: where there are several they are added to the list, and each key learns its place among
/// them.
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
