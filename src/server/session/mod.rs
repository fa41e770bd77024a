//! A connection's state machine without I/O: requests in, replies and waits out.
//!
//! A [`Turn`] is one go over the requests of a batch, strictly in the order sent:
//!
//! ```text
//! batch       parsed requests, planned: command, keys, shards
//! prefetch    cache lines of their keys
//! admission   whether a command may run
//! dispatch    where it runs: on one shard, several, each, the session, or as a job in a queue
//! multi       MULTI, EXEC, WATCH: what is queued
//! unit        EXEC and scripts
//! slots       what follows when slots of a cluster change hands
//! postponed   commands of a transaction that run once its shards are let go
//! waiting     a request that waits for a key or for its time
//! accounting  what follows a command: counts, slow log, latency, hot keys, CLIENT REPLY
//! monitor     what MONITOR shows
//! ```
//!
//! A command whose shard is held is handed to that shard's queue, and the rest of the batch waits for it, so that no
//! client ever sees a connection's writes, or its own reads, out of order.

mod accounting;
mod admission;
pub mod batch;
mod dispatch;
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

use crate::shard::job::command::{CommandJob, Ended};
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
use multi::Pending;

use turn::Turn;
use waiting::Blocked;

/// What the connection's task does next.
pub enum Step {
    /// Everything in the batch ran.
    Done,
    /// Wait for this, then call [`Session::resume`].
    Wait(Arc<Ticket>),
    /// Wait until what others are to hear of this connection's commands is delivered, then call [`Session::run`] again.
    Deliver,
    /// Wait until the log has room, then call [`Session::run`] again.
    AwaitLog,
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
    /// Send what is in the output, then leave the connection to the task that serves replicas.
    Follow,
    /// Send what is in the output, then stop the server.
    Shutdown,
}

/// Bytes of output beyond which it is sent before the next command runs.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// Commands that may add to the log.
const LOGGED: Flags = Flags::WRITE.or(Flags::MAY_REPLICATE);

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
    blocked: Option<Box<Blocked>>,
    /// How long the request that waits ran so far.
    waited: Option<Box<Waited>>,
    /// What is watched and queued.
    pending: Option<Box<Pending>>,
}

/// How one plan ended.
enum Ran {
    /// With a reply.
    Answered {
        /// The reply is an error.
        failed: bool,
    },
    /// The command did not run after all: the refusal is written.
    Refused,
    /// The command is queued, and comes back on its ticket.
    Queued(Arc<Ticket>),
    /// The command waits.
    Blocked(Blocked),
    /// The command goes on when others have had their turn.
    Later,
    /// With a reply, and something for the session to do.
    Then(After),
}

/// Whether the turn goes on, or what the connection's task does instead.
type Flow = ControlFlow<Step>;

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

    /// A session that runs what was admitted once and written down: nothing is refused for want of rights, memory or
    /// replicas, nothing waits, and nothing is counted.
    pub fn replaying(connection: Connection, service: &'static Service) -> Session {
        Session::new(connection.of(Origin::File), service)
    }

    /// A session that runs what a primary has run and sends: the same, but that it counts.
    pub fn applying(connection: Connection, service: &'static Service) -> Session {
        Session::new(connection.of(Origin::Primary), service)
    }

    #[inline]
    fn replays(&self) -> bool {
        self.connection.origin.replays()
    }

    /// Whether what comes has run before, on another server or on this one.
    #[inline]
    fn has_run_before(&self) -> bool {
        self.connection.origin.has_run_before()
    }

    /// Whether what comes next is queued by a transaction.
    pub fn is_in_transaction(&self) -> bool {
        self.is_open()
    }

    /// What this session shares with all others.
    pub fn service(&self) -> &'static Service {
        self.service
    }

    fn view(&self) -> ClientView {
        ClientView::of(&self.connection)
    }

    /// The position before which all has to be delivered to others before replies leave; none if it is.
    #[inline]
    pub fn undelivered(&self) -> Option<u64> {
        let position = self.connection.position;
        (!self.service.pubsub.has_delivered(position)).then_some(position)
    }

    /// Runs the plans of a batch, in order, until all ran or one has to wait.
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
        // Subscribers that got messages are woken once for all of them.
        batch.outgoing.wake_all();
        // Before the replies: a client that has them is told nothing later that belongs before them.
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
        Step::Done
    }

    /// Runs one plan: gate, dispatch, account.
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
            // It was admitted when it began, and nothing holds it back.
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

    /// Puts what others have for a client that caches behind the reply that was just written, where it would stand if
    /// the requests had come one by one: what the client reads next is not void because of what it read, or changed,
    /// before.
    #[cold]
    fn take_mail(&self, turn: &mut Turn<'_>) -> Flow {
        // A request that waits may have its reply by now, and mail that knows of it.
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

    /// Lets a command wait that may run: for the end of a pause, for shards to pay what they owe, for others to hear
    /// what was done so far.
    #[inline]
    fn hold_back(&mut self, turn: &mut Turn<'_>, request: Request<'_>) -> Flow {
        if !self.replays() {
            self.hold_back_client(turn, request)?;
        }
        let service = self.service;
        // Commands that only read need not fetch the line that says whether writers must wait.
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

    /// What holds back the commands of clients, and not those that are replayed.
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
            // What the connection published before goes to the subscriptions that it has now.
            turn.release();
            return Break(Step::Deliver);
        }
        Continue(())
    }

    /// Until when a command is held back, by CLIENT PAUSE or because its keys move to another server.
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

    /// Whether a command that runs now has any of these flags, or may run one that has.
    #[cold]
    fn may_be(&self, command: &Command, flags: Flags) -> bool {
        let is_unit = is_exec(command) || matches!(command.run, Run::Script(_));
        (is_unit || command.flags.any(flags)) && !self.is_queueing(command)
    }

    /// Takes a job that was waited for; [`Session::run`] goes on behind it, unless another step comes first.
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
            _ => unreachable!("a connection awaits the command or unit that comes next"),
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
        let ended = std::mem::replace(&mut job.ended, Ended::Refused);
        let failed = match ended {
            Ended::Visited(gather, Ok(())) => {
                turn.batch.resume_visits(*gather);
                return Continue(());
            }
            Ended::Visited(_, failure) => {
                turn.batch.gathering = None;
                write_failure(failure, &mut job.out)
            }
            Ended::Blocked(waiter) => {
                let finished = Finished::new(mark, job.duration_ns, false);
                self.count(turn, request, &finished);
                self.begin_wait(job.duration_ns, false);
                self.blocked = Some(Box::new(Blocked::On(waiter)));
                return Continue(());
            }
            Ended::Refused => {
                turn.batch.out.append(&mut job.out);
                self.note_refused(turn, mark, request.command);
                return Continue(());
            }
            Ended::Stop => {
                let finished = Finished::new(mark, job.duration_ns, false);
                self.finish(turn, request, &finished);
                return Break(Step::Shutdown);
            }
            Ended::Answered { failed } => failed,
        };
        turn.batch.out.append(&mut job.out);
        let finished = Finished::new(mark, job.duration_ns, failed);
        self.finish(turn, request, &finished);
        Continue(())
    }

    /// Knows what a command that ran knows.
    #[inline]
    fn learn(&mut self, client: &ClientView) {
        let connection = &mut self.connection;
        connection.stamp = connection.stamp.max(client.stamp);
        connection.position = connection.position.max(client.position);
        client.tell_log(&connection.shared);
    }
}
