//! A connection's state machine without I/O: requests in, replies and waits out.
//!
//! [`batch`] plans the requests of one turn, [`admit`] decides whether a command may run, this file runs them strictly
//! in the order sent, [`places`] each where it belongs. A command whose shard is held is handed to that shard's queue, and
//! the rest of the batch waits for it, so that nobody ever sees a connection's writes, or its own reads, out of order.

pub mod admit;
pub mod batch;
mod blocked;
pub mod look;
mod monitored;
mod noted;
pub mod pause;
mod places;
mod script;
mod sending;
pub mod service;
mod transaction;

use std::sync::Arc;

use crate::client::connection::{Connection, ReplyMode};
use crate::command::Out;
use crate::command::context::{After, ClientView};
use crate::command::declaration::{Command, Flags, Run, TransactionVerb};
use crate::command::transaction::is_watch;
use crate::config::Config;
use crate::engine::{Engine, Now};
use crate::resp::reply::Position;
use crate::resp::request::Parser;
use crate::shard::Shards;
use crate::shard::execute::Outcome;
use crate::shard::message::{Message, Ticket};
use crate::shard::ownership::Held;
use crate::shard::ownership::parcel::Parcel;
use crate::telemetry::clock::Ticks;
use crate::telemetry::{counters, errors, latency, slowlog};
use batch::{Batch, Plan, Route};
use blocked::{Blocked, Going};
use noted::Waited;
use service::Service;
use transaction::Pending;

/// What the connection's task does next.
pub enum Step {
    /// Everything in the batch ran.
    Done,
    /// Wait for this, then call [`Session::resume`].
    Wait(Arc<Ticket>),
    /// Send what is in the output, then call [`Session::run`] again.
    Flush,
    /// Let other connections go on, then call [`Session::run`] again.
    Yield,
    /// The configuration has changed: call [`Session::run`] again with the new one.
    Configured,
    /// Send what is in the output, then close.
    Close,
    /// Run on at this Unix time (ms), or when woken.
    SleepUntil(u64),
    /// Send what is in the output, then stop the server.
    Shutdown,
}

/// How often a held shard is looked at again before the command queues: about 150 ns.
const SPINS: u32 = 16;

/// How often all shards of a command are tried at once before the command travels.
const TRIES_ALL: u32 = 8;

/// Spins between two tries: all tries together take a few µs, about as long as the other command holds the shards, and
/// far less than to queue, to be woken and to go on costs.
const SPINS_ALL: u32 = 10;

/// A command that takes less than this is not worth counting against the turn: a turn has not that many.
const STEP_NS_NOTED: u64 = 10_000;

/// How long a command that goes from shard to shard keeps others of its thread waiting.
const TURN_NS_MAX: u64 = 500_000;

/// How long a pipeline of slow commands does. What a turn publishes is delivered together, and each subscriber woken
/// once for it: with a quarter of this, publishing to 1,000 subscribers cost three times as much.
const SLOW_NS_PER_TURN: u64 = 2_000_000;

/// Holds of a shard that are longer than this are worth comparing with its longest.
const HOLD_NOTED_NS: u64 = 2_000;

/// Output beyond this is sent before the next command runs.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// See the module.
pub struct Session {
    /// What commands see and change.
    pub connection: Connection,
    /// Where the last request that is not complete yet stands.
    pub parser: Parser,
    /// Lives as long as the process: a count of references here would be one line that all cores write to.
    service: &'static Service,
    /// Whether a request was refused in a way that ends the connection.
    must_close: bool,
    /// What the next request waits for, if it ran already and has no reply yet.
    blocked: Option<Blocked>,
    /// How long it ran so far.
    waited: Option<Box<Waited>>,
    /// What is watched and queued.
    pending: Option<Box<Pending>>,
}

/// How one plan ended.
enum Ran {
    Yes {
        failed: bool,
    },
    /// It did not run after all: the refusal is written.
    Refused,
    Queued(Arc<Ticket>),
    Blocked(Blocked),
    /// It goes on when others have had their turn.
    Later,
    Then(After),
}

impl Ran {
    fn of(outcome: Outcome) -> Ran {
        match outcome {
            Outcome::Done { failed } => Ran::Yes { failed },
            Outcome::Refused => Ran::Refused,
            Outcome::Blocked(waiter) => Ran::Blocked(Blocked::On(waiter)),
            Outcome::Leaves => unreachable!("asked before"),
        }
    }
}

impl Session {
    /// A session of a fresh connection.
    pub fn new(connection: Connection, service: &'static Service) -> Session {
        Session {
            connection,
            parser: Parser::default(),
            service,
            must_close: false,
            blocked: None,
            waited: None,
            pending: None,
        }
    }

    /// What this session shares with all others.
    pub fn service(&self) -> &'static Service {
        self.service
    }

    fn view(&self) -> ClientView {
        ClientView::of(&self.connection)
    }

    /// Until when a command is held back, by CLIENT PAUSE or because its keys move to another server.
    #[cold]
    fn held_back(&self, batch: &Batch, plan: &Plan, command: &Command, now: Now) -> Option<u64> {
        if self.is_queueing(command) {
            return None;
        }
        let is_exec = matches!(command.run, Run::Transaction(TransactionVerb::Exec));
        let queued = self.pending.as_ref().filter(|_| is_exec);
        let queued = queued.map(|pending| pending.transaction());
        let Service { pause, scripts, .. } = self.service;
        pause.holds(command, &batch.args(plan), queued, scripts, now.unix_ms)
    }

    /// Whether a command that runs now may add to what shards take.
    #[cold]
    fn may_grow(&self, command: &Command) -> bool {
        let is_exec = matches!(command.run, Run::Transaction(TransactionVerb::Exec));
        let is_unit = is_exec || matches!(command.run, Run::Script(_));
        (is_unit || command.flags.has(Flags::DENYOOM))
            && self.blocked.is_none()
            && !self.is_queueing(command)
    }

    /// Runs the plans of a batch, in order, until all ran or one has to wait.
    pub fn run(&mut self, batch: &mut Batch, config: &Arc<Config>, now: Now) -> Step {
        let step = self.run_plans(batch, config, now);
        // Subscribers that got messages are woken once for all of them.
        batch.deferred.settle();
        // Before the replies: whoever has them is told nothing later that belongs before them.
        if std::mem::take(&mut batch.deferred.others_owe) | self.service.budget.takes_settling() {
            self.service.settle_debts(now);
        }
        step
    }

    /// Puts what others have for a client that caches behind the reply that was just written, where it would stand if the
    /// requests had come one by one: what the client reads next is not void because of what it read, or changed, before.
    #[cold]
    fn take_mail(&self, batch: &mut Batch, held: &mut Option<(u16, Held<'_, Engine, Message>)>) {
        // A request that waits may have its reply by now, and mail that knows of it.
        if self.blocked.is_some() {
            return;
        }
        release(held, batch);
        if let Some(mut mail) = self.connection.shared.take_mail() {
            batch.out.append(&mut mail);
        }
    }

    fn run_plans(&mut self, batch: &mut Batch, config: &Arc<Config>, now: Now) -> Step {
        let service = self.service;
        let shards: &Shards = &service.shards;
        let counters = counters::local();
        let is_monitored = service.pubsub.is_monitored();
        service.telemetry.hot_keys.prepare(counters);
        counters.note_turn(batch.plans.len());
        let mut held: Option<(u16, Held<'_, Engine, Message>)> = None;
        let mut before = Ticks::now();
        let mut holding = None;
        let (mut hold_ns, mut spent_ns) = (0, 0);
        while batch.next < batch.plans.len() {
            if batch.out.len_bytes() > OUTPUT_BYTES_MAX + batch.unsent {
                release(&mut held, batch);
                return Step::Flush;
            }
            if self.connection.hears_between_replies() {
                self.take_mail(batch, &mut held);
            }
            let plan = batch.plans[batch.next];
            let Some(command) = self.admit(batch, &plan, config, now) else {
                batch.next += 1;
                if self.must_close {
                    release(&mut held, batch);
                    return Step::Close;
                }
                continue;
            };
            let is_unusual = self.pending.is_some() || command.flags.has(Flags::TRANSACTIONAL);
            if service.pause.is_on(now.unix_ms)
                && let Some(until_ms) = self.held_back(batch, &plan, command, now)
            {
                release(&mut held, batch);
                return Step::SleepUntil(until_ms);
            }
            if service.budget.is_behind() && self.may_grow(command) {
                release(&mut held, batch);
                if service.pay_debts(now) {
                    return match service.budget.is_freeing() {
                        true => Step::SleepUntil(now.unix_ms + 1),
                        false => Step::Yield,
                    };
                }
            }
            if self.blocked.is_some() {
                release(&mut held, batch);
                match self.end_wait(batch, &plan, command, config, now) {
                    Some(step) => return step,
                    None => continue,
                }
            }
            let mark = batch.out.position();
            let mut earlier_ns = 0;
            let special = if is_unusual {
                release(&mut held, batch);
                self.transact(batch, &plan, command, config, now)
            } else {
                None
            };
            let ran = match (special, plan.route) {
                (Some(ran), _) => ran,
                (None, Route::Shard(shard)) => {
                    self.on_shard(batch, &plan, command, shard, &mut held, shards, config, now)
                }
                (None, route) => {
                    release(&mut held, batch);
                    match route {
                        Route::Script => self.on_script(batch, &plan, command, config, now),
                        Route::Session
                            if command.flags.has(Flags::OTHERS_FIRST)
                                && !std::mem::replace(&mut batch.others_went, true) =>
                        {
                            Ran::Later
                        }
                        Route::Session => {
                            batch.others_went = false;
                            self.on_session(batch, &plan, command, config, now)
                        }
                        Route::Each => {
                            let ran =
                                self.on_each_shard(batch, &plan, command, shards, config, now);
                            earlier_ns = match ran {
                                Ran::Queued(_) | Ran::Later => 0,
                                _ => std::mem::take(&mut batch.gather_ns),
                            };
                            ran
                        }
                        _ => self.on_several(batch, &plan, command, shards, config, now),
                    }
                }
            };
            let failed = match ran {
                Ran::Queued(ticket) => {
                    release(&mut held, batch);
                    return Step::Wait(ticket);
                }
                Ran::Later => return Step::Yield,
                Ran::Yes { failed } => failed,
                Ran::Refused => {
                    release(&mut held, batch);
                    self.note_refused(batch, mark, command);
                    continue;
                }
                Ran::Then(_) | Ran::Blocked(_) => false,
            };
            let after = Ticks::now();
            let duration_ns = after.since_ns(before) + earlier_ns;
            before = after;
            // What is queued counts when it is run; what the wait is a part of counts when it is over.
            let is_queued = is_unusual && !failed && self.is_queueing(command);
            let counts_later = matches!(&ran, Ran::Then(After::Block(block)) if block.holds);
            if !is_queued && !counts_later {
                counters.command(command).ran(duration_ns, failed);
            }
            // Its keys count when it is run.
            if !is_queued && counters.takes_sample() {
                self.note_chosen(batch, &plan, duration_ns, mark);
            }
            let in_hand = match plan.route {
                Route::Several(first, _) => batch.listed_shard(first),
                Route::All => Some(0),
                _ => held.as_ref().map(|(shard, _)| *shard),
            };
            hold_ns = if in_hand == holding { hold_ns } else { 0 } + duration_ns;
            holding = in_hand;
            if hold_ns > HOLD_NOTED_NS
                && let Some(shard) = holding
            {
                shards.note_hold_ns(shard, hold_ns);
            }
            if failed
                || slowlog::is_slow(config, duration_ns)
                || latency::is_slow(config, duration_ns)
            {
                // What follows takes a lock, which nobody should wait for with a token in hand.
                release(&mut held, batch);
            }
            // Scripts note their errors themselves.
            if failed && !matches!(command.run, Run::Script(_)) {
                errors::note(batch.out.since(mark));
            }
            match ran {
                Ran::Then(After::Block(block)) => self.begin_wait(duration_ns, block.holds),
                Ran::Blocked(_) => self.begin_wait(duration_ns, false),
                Ran::Then(After::Configured) => {
                    let config = self.service.config.load_full();
                    self.note(batch, &plan, command, &config, now, duration_ns);
                }
                _ if is_queued => {}
                _ => self.note(batch, &plan, command, config, now, duration_ns),
            }
            if is_monitored && !is_queued {
                release(&mut held, batch);
                self.show(batch, &plan, command);
            }
            // A request that waits stays the next one until it is answered.
            let ran = match ran {
                Ran::Then(After::Block(block)) => {
                    self.connection.shared.block();
                    self.blocked = Some(Blocked::For(block));
                    continue;
                }
                Ran::Blocked(blocked) => {
                    self.blocked = Some(blocked);
                    continue;
                }
                ran => ran,
            };
            if is_unusual && is_watch(command) && matches!(ran, Ran::Yes { failed: false }) {
                self.note_watched(batch, &plan);
            }
            if command.flags.has(Flags::SUBSCRIBER) && command.flags.has(Flags::PUBSUB) {
                // Confirmations are no replies: they come even to those who want none.
                let end = batch.out.position();
                self.apply_reply_mode(&mut batch.out, end);
            } else {
                self.apply_reply_mode(&mut batch.out, mark);
            }
            if self.connection.is_caching {
                self.end_caching(command);
            }
            batch.next += 1;
            if let Ran::Then(after) = ran {
                match after {
                    After::Nothing | After::Block(_) | After::Migrate(_) => {}
                    After::Configured => {
                        release(&mut held, batch);
                        return Step::Configured;
                    }
                    After::Close => return Step::Close,
                    After::Shutdown => return Step::Shutdown,
                }
            }
            if duration_ns > STEP_NS_NOTED {
                spent_ns += duration_ns;
                if spent_ns > SLOW_NS_PER_TURN && batch.next < batch.plans.len() {
                    release(&mut held, batch);
                    return Step::Yield;
                }
            }
        }
        release(&mut held, batch);
        Step::Done
    }

    /// Goes on with the request that waits: nothing if it is answered, else what its connection does.
    #[cold]
    fn end_wait(
        &mut self,
        batch: &mut Batch,
        plan: &Plan,
        command: &'static Command,
        config: &Arc<Config>,
        now: Now,
    ) -> Option<Step> {
        let blocked = self.blocked.take()?;
        match self.go_on(batch, blocked, now) {
            Going::Answered { failed } => {
                self.note_waited(batch, plan, command, config, now, failed);
                self.end_caching(command);
                batch.next += 1;
                None
            }
            Going::Waits(until_ms) => Some(Step::SleepUntil(until_ms)),
        }
    }

    /// Takes the reply of a message that was waited for; [`Session::run`] goes on behind it, unless another step comes
    /// first.
    pub fn resume(
        &mut self,
        batch: &mut Batch,
        mut message: Box<Parcel<Message>>,
        config: &Arc<Config>,
        now: Now,
    ) -> Option<Step> {
        self.connection.stamp = self.connection.stamp.max(message.client.stamp);
        if message.leaves {
            return Some(Step::Wait(Message::send_apart(
                message,
                self.service.ground_apart(),
            )));
        }
        if let Some((gather, result)) = message.gather.take() {
            match (result, &mut batch.gather) {
                (Ok(()), Some((kept, next))) => {
                    *next += u16::from(gather.position == 0);
                    *kept = gather;
                    return None;
                }
                (Err(error), kept) => {
                    *kept = None;
                    message.out.error(error.text().as_bytes());
                }
                (Ok(()), None) => unreachable!("a visit belongs to a command under way"),
            }
        }
        if let Some(waiter) = message.blocked.take() {
            counters::local()
                .command(waiter.command())
                .ran(message.duration_ns, false);
            self.begin_wait(message.duration_ns, false);
            self.blocked = Some(Blocked::On(waiter));
            return None;
        }
        let mut step = None;
        if let Some(run) = message.transaction.take() {
            self.connection = run.connection;
            let aftermath = run.aftermath;
            if aftermath.was_turned_away {
                self.unwatch(run.transaction.watched.clone(), now);
            }
            message.refused |= aftermath.was_refused;
            let rest = (&mut message.out, &mut batch.deferred);
            let ran = self.after_exec(&run.transaction, aftermath, rest, config, now);
            batch.deferred.settle();
            step = match ran {
                Ran::Then(After::Close) => Some(Step::Close),
                Ran::Then(After::Shutdown) => Some(Step::Shutdown),
                _ => None,
            };
        }
        let mark = batch.out.position();
        batch.out.append(&mut message.out);
        batch.out.set_protocol(self.connection.protocol);
        let plan = batch.plans[batch.next];
        if let (true, Some(command)) = (message.refused, plan.command) {
            self.note_refused(batch, mark, command);
            return step;
        }
        if let Some(command) = plan.command {
            if is_watch(command) && !message.failed {
                self.note_watched(batch, &plan);
            }
            let duration_ns = message.duration_ns;
            let counters = counters::local();
            counters.command(command).ran(duration_ns, message.failed);
            self.service.telemetry.hot_keys.prepare(counters);
            if counters.takes_sample() {
                self.note_chosen(batch, &plan, duration_ns, mark);
            }
            self.note(batch, &plan, command, config, now, duration_ns);
            if self.service.pubsub.is_monitored() {
                self.show(batch, &plan, command);
                batch.deferred.settle();
            }
            self.end_caching(command);
        }
        let is_script = plan
            .command
            .is_some_and(|command| matches!(command.run, Run::Script(_)));
        if batch.out.since(mark).first() == Some(&b'-') && !is_script {
            errors::note(batch.out.since(mark));
        }
        self.apply_reply_mode(&mut batch.out, mark);
        batch.next += 1;
        step
    }

    /// CLIENT CACHING speaks of the next command, or of the next transaction.
    #[cold]
    fn end_caching(&mut self, command: &Command) {
        if self.connection.is_caching
            && !self.is_open()
            && !command.full_name.starts_with("client|")
        {
            let tracking = self.connection.tracking;
            self.connection.set_tracking(tracking, false);
        }
    }

    /// Lets the command that the countdown chose count for its keys, and begins the next countdown.
    #[cold]
    #[inline(never)]
    fn note_chosen(&self, batch: &Batch, plan: &Plan, duration_ns: u64, mark: Position) {
        self.service
            .telemetry
            .hot_keys
            .count_anew(counters::local());
        self.note_hot(&batch.args(plan), duration_ns, batch.out.len_since(mark));
    }

    /// CLIENT REPLY OFF and SKIP: takes the reply that was just written out again.
    #[inline]
    fn apply_reply_mode(&mut self, out: &mut Out, mark: Position) {
        match self.connection.reply_mode {
            ReplyMode::On => {}
            ReplyMode::Off => out.truncate(mark),
            ReplyMode::SkipThis => {
                out.truncate(mark);
                self.connection.reply_mode = ReplyMode::On;
            }
            ReplyMode::SkipNext => {
                out.truncate(mark);
                self.connection.reply_mode = ReplyMode::SkipThis;
            }
        }
    }
}

/// Lets a token go, then frees what was too large to be freed under it.
#[inline]
fn release(held: &mut Option<(u16, Held<'_, Engine, Message>)>, batch: &mut Batch) {
    if let Some((_, mut engine)) = held.take() {
        if engine.deferred.is_empty() {
            return;
        }
        batch.deferred.append(&mut engine.deferred);
        drop(engine);
        batch.deferred.settle();
    }
}
