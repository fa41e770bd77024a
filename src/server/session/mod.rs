//! A connection's state machine without I/O: requests in, replies and waits out.
//!
//! A [`Turn`] is one pass over the requests of a batch, strictly in the order received:
//!
//! ```text
//! batch       parsed requests, planned: command, keys, shards
//! prefetch    cache lines of their keys
//! admission   whether a command may run
//! dispatch    where it runs: on one shard, several, each, the session, or as a queued job
//! hot_copies  reads of hot keys, answered from copies without their shard
//! hot_keys    the hot keys of a thread, and the copies
//! multi       MULTI, EXEC, WATCH: the transaction queue
//! unit        EXEC and scripts
//! slots       changes of slot ownership in a cluster, and usage by slot
//! postponed   commands of a transaction that run after its shards are released
//! waiting     a request blocked on a key or a timeout
//! accounting  bookkeeping after a command: counts, slow log, latency, hot keys, CLIENT REPLY
//! handing_off the end of connections whose clients continue at another server
//! monitor     the feed of MONITOR
//! ```
//!
//! A command whose shard is locked is handed to that shard's queue, and the rest of the batch waits for it, so that no
//! client ever sees a connection's writes, or its own reads, out of order.

mod accounting;
mod admission;
pub mod batch;
mod dispatch;
mod handing_off;
mod hot_copies;
mod hot_keys;
mod monitor;
mod multi;
mod postponed;
mod prefetch;
mod slots;
mod turn;
mod unit;
mod waiting;

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::shard::job::command::{CommandJob, CommandJobOutcome};
use crate::shard::job::{Job, Ticket, Work};
use crate::state::Service;
use crate::sys::crash;
use accounting::{Finished, Waited};
use basalt_commands::client::connection::{Connection, Origin};
use basalt_commands::command::context::{After, ClientView};
use basalt_commands::command::declaration::{Command, Flags, Run};
use basalt_commands::command::error::write_failure;
use basalt_commands::command::transaction::is_exec;
use basalt_commands::config::Config;
use basalt_core::resp::request::Parser;
use basalt_engine::Now;
use batch::{Batch, Plan, Request};
use multi::MultiState;

use turn::Turn;
use waiting::Blocked;

/// The next action of the connection's task.
pub enum Step {
    /// All requests of the batch have run.
    Done,
    /// Wait for the job of this ticket, then call [`Session::resume`].
    Wait(Arc<Ticket>),
    /// Wait until messages to other clients caused by this connection are delivered, then call [`Session::run`] again.
    Deliver,
    /// Wait until the log has capacity, then call [`Session::run`] again.
    AwaitLog,
    /// Send the buffered output, then call [`Session::run`] again.
    Flush,
    /// Yield to other connections, then call [`Session::run`] again.
    Yield,
    /// The configuration has changed: call [`Session::run`] again with the new one.
    Configured,
    /// Send the buffered output, then close.
    Close,
    /// Wait until this Unix time (ms), or until woken, then call [`Session::run`] again.
    SleepUntil(u64),
    /// Send the buffered output, then hand the connection to the task that serves replicas.
    Follow,
    /// Send the buffered output, then stop the server.
    Shutdown,
}

/// Bytes of buffered output above which it is sent before the next command runs.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// Flags of commands that may append to the log.
const LOGGED: Flags = Flags::WRITE.or(Flags::MAY_REPLICATE);

/// State machine of one connection; see the module.
pub struct Session {
    /// The client state that commands read and change.
    pub connection: Connection,
    /// Progress in the last, incomplete request.
    pub parser: Parser,
    /// A static reference, because all cores would write to the cache line of a reference count.
    service: &'static Service,
    /// True if a refusal requires closing the connection.
    must_close: bool,
    /// The wait of the next request, if it has run, is blocked, and has no reply yet.
    blocked: Option<Box<Blocked>>,
    /// Run time so far of the blocked request.
    waited: Option<Box<Waited>>,
    /// Watched keys (WATCH) and queued commands (MULTI).
    pending: Option<Box<MultiState>>,
}

/// Outcome of running one plan.
enum Ran {
    /// A reply was written.
    Answered {
        /// The reply is an error.
        failed: bool,
    },
    /// The command was refused after admission; the error is written.
    Refused,
    /// The command is queued on a shard; its ticket reports completion.
    Queued(Arc<Ticket>),
    /// The command is blocked.
    Blocked(Blocked),
    /// The command continues after the thread has served other connections.
    Later,
    /// A reply was written, and the command requests an action of the session.
    Then(After),
}

/// Whether the turn continues, or breaks with the next step of the connection's task.
type Flow = ControlFlow<Step>;

impl Session {
    /// Creates the session of a new connection.
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

    /// Creates a session that replays logged commands: it refuses nothing for lack of permissions, memory or replicas,
    /// never blocks, and counts nothing.
    pub fn replaying(connection: Connection, service: &'static Service) -> Session {
        Session::new(connection.of(Origin::File), service)
    }

    /// Creates a session that applies the stream of a primary: as [`Session::replaying`], except that it counts
    /// commands.
    pub fn applying(connection: Connection, service: &'static Service) -> Session {
        Session::new(connection.of(Origin::Primary), service)
    }

    #[inline]
    fn replays(&self) -> bool {
        self.connection.origin.replays()
    }

    /// Returns whether incoming commands have already run, on another server or on this one.
    #[inline]
    fn has_run_before(&self) -> bool {
        self.connection.origin.has_run_before()
    }

    /// Returns whether subsequent commands are queued by a transaction.
    pub fn is_in_transaction(&self) -> bool {
        self.is_open()
    }

    /// Returns the state shared by all sessions.
    pub fn service(&self) -> &'static Service {
        self.service
    }

    fn view(&self) -> ClientView {
        ClientView::of(&self.connection)
    }

    /// Returns the position up to which messages to other clients must be delivered before this connection's
    /// replies are sent; `None` if they have been delivered.
    #[inline]
    pub fn undelivered(&self) -> Option<u64> {
        let position = self.connection.position;
        (!self.service.pubsub.has_delivered(position)).then_some(position)
    }

    /// Runs the plans of a batch, in order, until all have run or one has to wait.
    pub fn run(&mut self, batch: &mut Batch, config: &Arc<Config>, now: Now) -> Step {
        let mut turn = Turn::new(batch, config, now, self.service, self.has_run_before());
        turn.counters.note_turn(turn.batch.plans.len());
        let served = crash::serve(self.connection.id());
        let together = self.service.pubsub.together();
        let step = self.run_plans(&mut turn);
        drop(turn);
        self.service.pubsub.post_gathered(&mut batch.outgoing);
        drop(together);
        crash::serve(served);
        // Each subscriber that received messages is woken once for all of them.
        batch.outgoing.wake_all();
        // Settle debts before the replies are sent: evictions may cause messages, and a message that precedes a
        // reply must not reach the client after it.
        if self.service.budget.takes_settling() {
            self.service.settle_debts(now);
        }
        step
    }

    fn run_plans(&mut self, turn: &mut Turn<'_>) -> Step {
        while let Some(plan) = turn.plan() {
            if turn.batch.next >= turn.batch.prefetched {
                turn.release();
                prefetch::prefetch(turn.batch, self.service, self.connection.db);
            }
            if let Break(step) = self.run_plan(turn, &plan) {
                return step;
            }
        }
        match self.must_close {
            true => Step::Close,
            false => Step::Done,
        }
    }

    /// Runs one request: decides whether it must wait, dispatches it, and accounts for it.
    #[inline]
    fn run_plan(&mut self, turn: &mut Turn<'_>, plan: &Plan) -> Flow {
        if turn.batch.out.len_bytes() > OUTPUT_BYTES_MAX + turn.batch.unsent {
            return Break(Step::Flush);
        }
        let hears = self.connection.hears_between_replies();
        if turn.batch.outgoing.has_messages()
            && (hears || !plan.command.is_some_and(Command::publishes))
        {
            self.service.pubsub.post_gathered(&mut turn.batch.outgoing);
        }
        if hears {
            self.take_mail(turn)?;
        }
        let request = match Request::of(plan) {
            // A blocked request was already admitted, so no check and no delay applies.
            Some(request) if self.blocked.is_some() => {
                turn.release();
                return self.end_wait(turn, request);
            }
            Some(request) if turn.batch.gathering.is_some() => request,
            _ => {
                let Some(request) = self.admit(turn, plan) else {
                    turn.batch.next += 1;
                    return match self.must_close {
                        true => Break(Step::Close),
                        false => Continue(()),
                    };
                };
                let shared = &self.connection.shared;
                shared
                    .last_command
                    .store(request.command.id() as u16, Relaxed);
                self.hold_back(turn, request)?;
                request
            }
        };
        let mark = turn.batch.out.position();
        let ran = self.dispatch(turn, request);
        self.account(turn, request, mark, ran)
    }

    /// For a client with client-side caching, appends pending invalidation messages after the reply just
    /// written, as if the requests had arrived one by one. Otherwise a message caused by an earlier command
    /// could arrive after, and so invalidate, a later reply.
    #[cold]
    fn take_mail(&self, turn: &mut Turn<'_>) -> Flow {
        // A blocked request may already have its reply, which must precede the queued messages.
        if self.blocked.is_some() {
            return Continue(());
        }
        turn.release();
        self.service.pubsub.deliver_now();
        if self.undelivered().is_some() {
            return Break(Step::Deliver);
        }
        if let Some(mut mail) = self.connection.shared.take_mail() {
            turn.batch.out.append(&mut mail);
        }
        Continue(())
    }

    /// Delays an admitted command where needed: for the end of a pause, for shards to free the memory they owe, or for
    /// delivery of earlier messages to other clients.
    #[inline]
    fn hold_back(&mut self, turn: &mut Turn<'_>, request: Request<'_>) -> Flow {
        if !self.replays() {
            self.hold_back_client(turn, request)?;
        }
        let service = self.service;
        // Read-only commands skip this check, which would fetch another cache line.
        if !request.command.flags.has(Flags::READONLY)
            && service.must_writers_wait()
            && self.may_be(request.command, LOGGED)
        {
            turn.release();
            return Break(Step::AwaitLog);
        }
        if service.pubsub.is_crowded() {
            turn.release();
            if self.replays() {
                return Break(Step::Deliver);
            }
            service.pubsub.deliver_now();
            return Break(Step::Yield);
        }
        Continue(())
    }

    /// Applies the delays that concern clients only, not replayed commands.
    #[inline(always)]
    fn hold_back_client(&mut self, turn: &mut Turn<'_>, request: Request<'_>) -> Flow {
        let (service, flags) = (self.service, request.command.flags);
        if service.pause.is_on(turn.now.unix_ms)
            && let Some(until_ms) = self.paused_until(turn, request)
        {
            return Break(Step::SleepUntil(until_ms));
        }
        if service.budget.is_behind()
            && service.budget.holds_back(self.db())
            && self.may_be(request.command, Flags::DENYOOM.or(Flags::PAYS))
        {
            turn.release();
            if service.pay_debts(self.db(), turn.now) {
                return Break(match service.budget.is_freeing() {
                    true => Step::SleepUntil(turn.now.unix_ms + 1),
                    false => Step::Yield,
                });
            }
        }
        if flags.any(Flags::PUBSUB.or(Flags::SUBSCRIBER)) && self.undelivered().is_some() {
            // Deliver this connection's earlier messages before its subscriptions change.
            turn.release();
            return Break(Step::Deliver);
        }
        Continue(())
    }

    /// Returns the end of a command's delay, in Unix milliseconds: CLIENT PAUSE delays commands, and so does the
    /// handover of their slot to another node. `None` if the command is not delayed.
    #[cold]
    fn paused_until(&self, turn: &Turn<'_>, request: Request<'_>) -> Option<u64> {
        if self.is_queueing(request.command) {
            return None;
        }
        let queued = self.pending.as_ref().filter(|_| is_exec(request.command));
        let queued = queued.map(|pending| pending.transaction());
        let Service { pause, scripts, .. } = self.service;
        let args = turn.batch.args(request.plan);
        pause.holds(request.command, &args, queued, scripts, turn.now.unix_ms)
    }

    /// Returns whether a command has any of these flags, or may run commands that have (a script, or EXEC).
    #[cold]
    fn may_be(&self, command: &Command, flags: Flags) -> bool {
        let is_unit = is_exec(command) || matches!(command.run, Run::Script(_));
        (is_unit || command.flags.any(flags)) && !self.is_queueing(command)
    }

    /// Handles the completion of a queued job. Returns the next step of the connection's task, or `None` if the
    /// caller should continue with [`Session::run`].
    pub fn resume(
        &mut self,
        batch: &mut Batch,
        job: &mut Job,
        config: &Arc<Config>,
        now: Now,
    ) -> Option<Step> {
        let mut turn = Turn::new(batch, config, now, self.service, self.replays());
        let turn = &mut turn;
        let plan = turn.plan();
        let flow = match (&mut job.work, plan.as_ref().and_then(Request::of)) {
            (Work::Command(job), Some(request)) => self.resume_command(turn, request, job),
            (Work::Unit(job), Some(request)) => self.resume_unit(turn, request, job),
            _ => unreachable!("a connection waits only for its next command or unit"),
        };
        turn.batch.outgoing.wake_all();
        flow.break_value()
    }

    fn resume_command(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        job: &mut CommandJob,
    ) -> Flow {
        self.learn(&job.client);
        let mark = turn.batch.out.position();
        let ended = std::mem::replace(&mut job.ended, CommandJobOutcome::Refused);
        let failed = match ended {
            CommandJobOutcome::Visited(gather, Ok(())) => {
                turn.batch.resume_visits(*gather);
                return Continue(());
            }
            CommandJobOutcome::Visited(_, failure) => {
                turn.batch.gathering = None;
                write_failure(failure, &mut job.out)
            }
            CommandJobOutcome::Blocked(waiter) => {
                let finished = Finished::new(mark, job.duration_ns, false);
                self.count(turn, request, &finished);
                self.begin_wait(job.duration_ns, false);
                self.blocked = Some(Box::new(Blocked::On(waiter)));
                return Continue(());
            }
            CommandJobOutcome::Refused => {
                turn.batch.out.append(&mut job.out);
                self.note_refused(turn, mark, request.command);
                return Continue(());
            }
            CommandJobOutcome::Stop => {
                let finished = Finished::new(mark, job.duration_ns, false);
                self.finish(turn, request, &finished);
                return Break(Step::Shutdown);
            }
            CommandJobOutcome::Answered { failed } => failed,
        };
        turn.batch.out.append(&mut job.out);
        let finished = Finished::new(mark, job.duration_ns, failed);
        self.finish(turn, request, &finished);
        Continue(())
    }

    /// Copies the Lamport stamp and the log positions of a command that ran on another thread to this
    /// connection.
    #[inline]
    fn learn(&mut self, client: &ClientView) {
        let connection = &mut self.connection;
        connection.stamp = connection.stamp.max(client.stamp);
        connection.position = connection.position.max(client.position);
        client.tell_log(&connection.shared);
    }
}
