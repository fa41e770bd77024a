//! Requests that block on a key: BLPOP, XREAD BLOCK and the like.
//!
//! A handler that finds no data asks to wait. While the shards are still locked, a `BlockedRequest` of the request is
//! put in the queues of the keys. A command that changes such a key serves the key's queue when it ends, before
//! it releases the shard: it runs the blocked request again, with those keys whose shards are locked, and
//! passes the reply to the connection. A request that needs more shards than are locked ([`Wait::needs_all`])
//! is sent to all of them as soon as these are released (`job::task::WaiterDispatcher`), and meanwhile keeps
//! its position: the waiters after it in the queue wait for it. A request that was being served on one shard
//! and found no data there, while its key on another shard changed, is handled in the same way.
//!
//! Serving, the timeout, CLIENT UNBLOCK and a disconnect race on one word of the connection ([`Shared::change_wait`]),
//! with one winner.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Wake, Waker};

use parking_lot::Mutex;

use super::handler::{self, ExecutionContext};
use super::ownership::ShardList;
use super::permit::{self, Permit, Redirect};
use super::route as shards;
use basalt_commands::client::shared::{Shared, Unblocked, WaitNumber, WaitState};
use basalt_commands::cluster::route::{self, Refusal};
use basalt_commands::command::acl::check;
use basalt_commands::command::args::RoutedKey;
use basalt_commands::command::context::{ClientView, Engines, NOT_HELD, ShardPlace, Wait};
use basalt_commands::command::declaration::{Command, Flags};
use basalt_commands::command::owned::OwnedArgs;
use basalt_commands::command::{Args, Out};
use basalt_commands::config::Config;
use basalt_core::resp::reply::Protocol;
use basalt_engine::waiting::{self, Held, Place, WaitCondition, Waiting};
use basalt_engine::{Engine, Key, Now, engine_of};

/// Number of waiters created so far.
static WAITERS: AtomicU64 = AtomicU64::new(0);

/// A blocked request, which waits in the queues of its keys.
pub struct BlockedRequest {
    id: u64,
    connection: Arc<Shared>,
    number: WaitNumber,
    pub(super) command: &'static Command,
    args: OwnedArgs,
    pub(super) client: ClientView,
    pub(super) config: Arc<Config>,
    place: ShardPlace,
    wait: Wait,
    /// In a cluster, the permit with which the request was admitted.
    permit: Option<Permit>,
    reply: Mutex<Option<Served>>,
    protocol: Protocol,
    /// Memory in bytes, charged to its connection for as long as the waiter exists.
    memory_bytes: usize,
}

/// Bytes that an entry in a key's queue takes in the shard, besides the key's name; an alarm of the key takes
/// less.
const WAITING_BYTES: usize = 160;

/// The reply of a blocked request.
pub struct Served {
    /// The output that contains the reply.
    pub out: Out,
    /// The client's view after the run, with the Lamport stamp of the latest change that the reply reflects.
    pub client: ClientView,
    /// True if the user's ACL rules no longer allow the request: the reply is yet to be written.
    pub is_denied: bool,
    /// True if the reply is an error.
    pub failed: bool,
}

/// Outcome of an attempt to serve a blocked request.
enum Try {
    /// The request has its reply, or is no longer blocked.
    Over,
    /// The keys have no data for the request yet.
    NotYet,
    /// The request is being sent to all its shards, or will be; no request after it in the queue may be served
    /// before it.
    Called,
}

impl waiting::Waiter for BlockedRequest {
    fn id(&self) -> u64 {
        self.id
    }

    fn is_waiting(&self) -> bool {
        matches!(
            self.state(),
            WaitState::Blocked | WaitState::Serving | WaitState::Missed | WaitState::Called
        )
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl BlockedRequest {
    /// Creates the waiter of a request, with a copy of its arguments.
    pub(super) fn new(
        connection: &Arc<Shared>,
        command: &'static Command,
        args: &Args<'_>,
        (client, protocol): (ClientView, Protocol),
        context: ExecutionContext<'_>,
        wait: Wait,
    ) -> Arc<BlockedRequest> {
        let mut owned = OwnedArgs::default();
        for (at, argument) in args.contents(0).enumerate() {
            let rewritten = wait.rewritten.iter().find(|(index, _)| *index == at);
            owned.push(rewritten.map_or(argument, |(_, bytes)| bytes[..].into()));
        }
        owned.route(args.keys());
        let mut waiter = BlockedRequest {
            id: WAITERS.fetch_add(1, Relaxed),
            connection: Arc::clone(connection),
            number: connection.block(),
            command,
            args: owned,
            client,
            config: Arc::clone(context.config),
            place: context.place,
            wait,
            permit: context.permit.copied(),
            reply: Mutex::new(None),
            protocol,
            memory_bytes: 0,
        };
        let names = waiter.awaited().iter().map(|key| waiter.key(key).len());
        let copies = 1 + usize::from(waiter.wait.looks_again);
        let places: usize = names.map(|len| copies * (len + WAITING_BYTES)).sum();
        waiter.memory_bytes = size_of::<BlockedRequest>() + waiter.args.memory_bytes() + places;
        connection.hold(waiter.memory_bytes);
        Arc::new(waiter)
    }

    /// Returns the command of the request.
    pub fn command(&self) -> &'static Command {
        self.command
    }

    /// Returns the conditions of the wait, such as its timeout.
    pub fn wait(&self) -> &Wait {
        &self.wait
    }

    /// Returns the error reply of a request whose key belongs to another node by now, or is being migrated, or that
    /// waits while the cluster is down.
    pub fn redirection(&self, config: &Config) -> Option<String> {
        let permit = self.permit?;
        let slot = permit.slot.first()?;
        let routes = permit.map.load();
        let refusal = route::while_waiting(&routes.map, slot, permit.routing);
        let refusal = refusal.unwrap_or_else(|| match routes.map.migrating.get(&slot) {
            Some(&target) => Refusal::Ask(slot, target),
            // If the slot has returned to this node meanwhile, the error makes the client retry here.
            None => Refusal::Moved(slot, routes.map.owners[usize::from(slot)]),
        });
        Some(routes.refusal_text(refusal, permit.routing, config))
    }

    /// Returns the blocked connection.
    #[cfg(test)]
    pub fn connection(&self) -> &Arc<Shared> {
        &self.connection
    }

    /// Returns the state of the wait.
    pub fn state(&self) -> WaitState {
        self.connection.wait_state_of(self.number)
    }

    /// Takes the reply, if the request was served.
    pub fn take_reply(&self) -> Option<Served> {
        self.reply.lock().take()
    }

    /// Returns the shards in whose queues the waiter may be.
    pub fn shards(&self) -> ShardList {
        shards::shards_of(self.args.keys())
    }

    /// Returns the keys in whose queues the waiter is.
    fn awaited(&self) -> &[RoutedKey] {
        let keys = self.args.keys();
        debug_assert!(keys.is_sorted_by_key(|key| key.argument));
        match self.wait.needs_all {
            true => &keys[..1],
            false => keys,
        }
    }

    fn key(&self, routed: &RoutedKey) -> &[u8] {
        self.args.args().get(routed.argument as usize)
    }

    /// Adds the waiter to the queues of its keys. All shards must be locked.
    pub(super) fn register(self: &Arc<Self>, engines: &mut [&mut Engine]) {
        let interest = WaitCondition {
            data_type: self.wait.data_type,
            when_gone: self.wait.when_gone,
            when_loaded: self.wait.when_loaded,
            in_turn: self.wait.in_turn,
        };
        for routed in self.awaited() {
            if let Some(engine) = engine_of(engines, routed.shard) {
                let waiter: Arc<dyn waiting::Waiter> = Arc::clone(self) as _;
                let waiting = Waiting { waiter, interest };
                engine
                    .waiters
                    .add(self.client.db, self.key(routed), waiting);
            }
        }
    }

    /// Serves a waiter that was sent to all its shards, all of which are locked.
    pub fn answer_call(self: &Arc<Self>, engines: &mut [&mut Engine], now: Now) {
        if self.state() == WaitState::Called {
            self.serve(engines, now);
        }
        if !waiting::Waiter::is_waiting(&**self) {
            return self.leave(engines);
        }
        // The keys have no data after all. The waiter keeps its position, and the waiters that were held up
        // after it are served.
        for routed in self.awaited() {
            if let Some(engine) = engine_of(engines, routed.shard) {
                engine.waiters.wake(self.client.db, self.key(routed));
            }
        }
    }

    /// Removes the waiter from the queues of those keys whose shards are locked.
    pub fn leave(&self, engines: &mut [&mut Engine]) {
        for routed in self.awaited() {
            if let Some(engine) = engine_of(engines, routed.shard) {
                self.leave_queue(engine, routed);
            }
        }
    }

    fn leave_queue(&self, engine: &mut Engine, routed: &RoutedKey) {
        let (db, key) = (self.client.db, self.key(routed));
        if engine.waiters.remove(db, key, self.id) {
            // The waiter may have held up the waiters after it in the queue.
            engine.waiters.wake(db, key);
        }
    }

    fn change(&self, from: WaitState, to: WaitState) -> bool {
        self.connection.change_wait(self.number, from, to)
    }

    /// Marks the waiter as being served, unless another thread is serving it or it is no longer blocked.
    fn begin_serving(&self) -> Result<(), Try> {
        use WaitState::{Blocked, Called, Missed, Serving};
        loop {
            // A waiter that is about to be sent to its shards may be served by any thread that has locked all
            // of them.
            if self.change(Blocked, Serving) || self.change(Called, Serving) {
                return Ok(());
            }
            // A thread on another shard is serving the waiter. If it finds no data there, the waiter is sent to
            // all its shards, including this one.
            if self.change(Serving, Missed) || self.state() == Missed {
                return Err(Try::Called);
            }
            if !matches!(self.state(), Blocked | Called | Serving) {
                return Err(Try::Over);
            }
        }
    }

    /// Ends an attempt to serve that found no data.
    fn end_serving(self: &Arc<Self>, engines: &mut [&mut Engine]) -> Try {
        if self.change(WaitState::Serving, WaitState::Blocked) {
            return Try::NotYet;
        }
        // A key of the waiter on another shard has changed meanwhile.
        self.change(WaitState::Missed, WaitState::Called);
        self.call(engines);
        Try::Called
    }

    /// Runs the request again with the locked engines.
    fn serve(self: &Arc<Self>, engines: &mut [&mut Engine], now: Now) -> Try {
        let mut keys = self.args.keys().to_vec();
        for key in &mut keys {
            key.engine_index = index_of(engines, key.shard);
        }
        let lacks_some = keys.iter().any(|key| key.engine_index == NOT_HELD);
        if self.wait.needs_all && lacks_some {
            if self.state() == WaitState::Called {
                return Try::Called;
            }
            if !self.change(WaitState::Blocked, WaitState::Called) {
                return Try::Over;
            }
            self.call(engines);
            return Try::Called;
        }
        let args = self.args.args_with(&keys);
        if self.has_gone(engines, args, now) {
            let wake = self
                .connection
                .unblock_later(self.number, Unblocked::Redirected);
            engines[0].deferred.wakes.extend(wake);
            return Try::Over;
        }
        if let Err(instead) = self.begin_serving() {
            return instead;
        }
        if self.connection.is_checked() && self.is_denied(&args) {
            self.end_with(Served {
                out: Out::new(self.protocol),
                client: self.client,
                failed: true,
                is_denied: true,
            });
            if let Some(waker) = self.connection.nudge_later() {
                engines[0].deferred.wakes.push(waker);
            }
            return Try::Over;
        }
        let mut out = Out::new(self.protocol);
        let mut client = self.client;
        let context = ExecutionContext {
            now,
            config: &self.config,
            place: self.place,
            blocker: None,
            may_offload: false,
            permit: None,
        };
        let (failed, is_answered) = {
            let mut cx =
                handler::begin(self.command, Engines::of(engines), &client, context, &args);
            cx.allow_blocking();
            cx.note_waited();
            let failed = handler::answer(self.command, &mut cx, &args, &mut out);
            (failed, cx.take_wait().is_none())
        };
        if !is_answered {
            return self.end_serving(engines);
        }
        handler::append_records(self.command, engines, &mut client);
        for engine in engines.iter_mut() {
            handler::learn(engine, &mut client);
            if self.command.flags.has(Flags::DENYOOM) {
                engine.pay(now, keys.len());
            }
        }
        self.end_with(Served {
            out,
            client,
            failed,
            is_denied: false,
        });
        if let Some(waker) = self.connection.nudge_later() {
            engines[0].deferred.wakes.push(waker);
        }
        Try::Over
    }

    /// Returns whether the request's keys have moved to another node with a migrating slot, so that the other
    /// node serves the request now.
    fn has_gone(&self, engines: &mut [&mut Engine], args: Args<'_>, now: Now) -> bool {
        let at = (self.client.db, now);
        let look = || permit::presence(engines, std::iter::once(args), at);
        let asked = self
            .permit
            .map(|permit| permit.still_valid(&self.config, look));
        let Some(Err(Redirect { refusal, .. })) = asked else {
            return false;
        };
        matches!(refusal, Refusal::Ask(..))
    }

    /// Returns whether the user's ACL rules, which may have changed, no longer allow the request.
    #[cold]
    fn is_denied(&self, args: &Args<'_>) -> bool {
        let user = self.connection.user();
        user.is_some_and(|user| {
            check::refused(&user.user(), self.command, args, self.client.db).is_some()
        })
    }

    fn end_with(&self, served: Served) {
        *self.reply.lock() = Some(served);
        // A change on another shard does not matter any more, because the request is served.
        let _ = self.change(WaitState::Serving, WaitState::Served)
            || self.change(WaitState::Missed, WaitState::Served);
    }

    /// Schedules the request to be sent to all its shards, after the shards locked now are released.
    fn call(self: &Arc<Self>, engines: &mut [&mut Engine]) {
        let engine = &mut engines[0];
        if let Some(caller) = engine.waiters.caller.clone() {
            let waiter = Arc::clone(self);
            let call = Arc::new(WaiterWaker { waiter, caller });
            engine.deferred.wakes.push(Waker::from(call));
            engine.waiters.note_call();
        }
    }
}

impl Drop for BlockedRequest {
    fn drop(&mut self) {
        self.connection.release(self.memory_bytes);
    }
}

/// A waiter that the current thread will send to all the waiter's shards after it has released its own.
struct WaiterWaker {
    waiter: Arc<BlockedRequest>,
    caller: Arc<dyn waiting::Dispatcher>,
}

impl Wake for WaiterWaker {
    fn wake(self: Arc<Self>) {
        self.caller.call(Arc::clone(&self.waiter) as _);
    }
}

/// Ends the waits for keys of this shard whose slots belong to another node now, or all waits if the cluster is
/// down: the clients get an error reply.
pub fn end_redirected(engine: &mut Engine) {
    let mut all: Vec<Arc<dyn waiting::Waiter>> = Vec::new();
    engine
        .waiters
        .each(|_, waiting| all.push(Arc::clone(&waiting.waiter)));
    for waiter in all {
        let Ok(waiter) = waiter.into_any().downcast::<BlockedRequest>() else {
            unreachable!("only this module makes waiters")
        };
        if let Some(permit) = waiter.permit
            && let Some(slot) = permit.slot.first()
            && route::while_waiting(&permit.map.load().map, slot, permit.routing).is_some()
        {
            let wake = waiter
                .connection
                .unblock_later(waiter.number, Unblocked::Redirected);
            engine.deferred.wakes.extend(wake);
        }
    }
}

/// Serves the waiters of keys that changed in these shards, and of keys that serving them changes in turn.
#[cold]
#[inline(never)]
pub(super) fn serve(engines: &mut [&mut Engine], now: Now) {
    loop {
        let mut any = false;
        for index in 0..engines.len() {
            let ready = engines[index].waiters.take_ready();
            any |= !ready.is_empty();
            for place in ready {
                serve_key(engines, index, &place, now);
            }
        }
        if !any {
            return;
        }
    }
}

fn serve_key(engines: &mut [&mut Engine], index: usize, place: &Place, now: Now) {
    let mut behind = None;
    let mut turn_is_over = false;
    // The key's type, remembered until a request is served that could change it.
    let mut held = None;
    loop {
        let engine = &mut *engines[index];
        let Some(waiting) = engine.waiters.next(place, behind).cloned() else {
            return;
        };
        let id = waiting.waiter.id();
        if !waiting.waiter.is_waiting() {
            engine.waiters.remove(place.0, &place.1, id);
            continue;
        }
        if turn_is_over && waiting.interest.in_turn {
            if engine.waiters.are_all_in_turn(place) {
                return;
            }
            behind = Some(id);
            continue;
        }
        let held_now = *held.get_or_insert_with(|| held_by(engine, place, now));
        if !waiting.interest.is_met_by(held_now) {
            if held_now.is_loading() && engine.waiters.all_when_loaded(place) {
                return;
            }
            behind = Some(id);
            continue;
        }
        let Ok(waiter) = Arc::clone(&waiting.waiter)
            .into_any()
            .downcast::<BlockedRequest>()
        else {
            unreachable!("only this module makes waiters")
        };
        held = None;
        match waiter.serve(engines, now) {
            Try::Over => {
                waiter.leave(engines);
                engines[index].waiters.remove(place.0, &place.1, id);
            }
            Try::NotYet => {
                behind = Some(id);
                turn_is_over |= waiting.interest.in_turn;
            }
            Try::Called => return,
        }
    }
}

/// Returns a key's data type, and whether a client is loading it.
fn held_by(engine: &mut Engine, place: &Place, now: Now) -> Held {
    let key = Key::new(&place.1, engine.seed());
    let mut keyspace = engine.keyspace(place.0, now).untouched();
    let found = keyspace.find_write(&key);
    let data_type = found.map(|found| keyspace.kind(found).data_type());
    Held {
        data_type,
        is_leased: engine.waiters.is_leased(place, now),
    }
}

fn index_of(engines: &[&mut Engine], shard: u16) -> u16 {
    let index = engines.iter().position(|engine| engine.shard == shard);
    index.map_or(NOT_HELD, |index| index as u16)
}
