//! Runs one command on the shards that it needs: one, several at once, all one after the other, or none. If a
//! shard is locked by another thread, the command becomes a job in that shard's queue. Slow commands run on
//! separate threads, MIGRATE on the migration thread.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::batch::{self, Gathering, Request, Route};
use super::turn::{InHand, Turn};
use super::{Ran, Session};
use crate::shard::QueuedJob;
use crate::shard::execute::{self, ExecutionOutcome};
use crate::shard::handler::ExecutionContext;
use crate::shard::job::command::{CommandJob, CommandJobOutcome};
use crate::shard::job::{Job, Ticket, Work};
use crate::telemetry::clock::Ticks;
use crate::telemetry::overload;
use basalt_commands::client::connection::Origin;
use basalt_commands::cluster::route::RoutingFlags;
use basalt_commands::command::Out;
use basalt_commands::command::context::{After, Engines, Gather, Outbox, SessionCx, ShardPlace};
use basalt_commands::command::declaration::{Flags, Run};
use basalt_commands::command::error::{CommandError, NO_FIELDSET, write_failure};
use basalt_commands::command::host::migration::Migration;
use basalt_commands::command::host::{Awaited, Told};
use basalt_commands::command::prepared::Prepared;
use basalt_commands::config::Config;
use basalt_engine::Now;

/// Flags of commands that change the session's own state, or depend on who the client is.
const OF_THE_SESSION: Flags = Flags::TRANSACTIONAL
    .or(Flags::NAMES_FIELDSET)
    .or(Flags::HOLDS_NOTES);

/// Attempts to lock all shards of a command at once, before it is queued.
pub(super) const TRIES_ALL: u32 = 8;

/// Spins between two attempts. All attempts together take a few µs: about as long as another command keeps the
/// shards locked, and far less than queueing the command and waking its task.
pub(super) const SPINS_ALL: u32 = 10;

/// Attempts on a locked shard by a command that visits it.
const SPINS_VISIT: u32 = 16;

/// Nanoseconds for which a command that visits shards one after the other may keep other connections of its
/// thread waiting.
const VISITS_NS_MAX: u64 = 500_000;

impl Session {
    /// Runs a command, or queues it. Inlined into the loop over requests, which all commands pass: a call costs 25
    /// instructions each.
    #[inline(always)]
    pub(super) fn dispatch(&mut self, turn: &mut Turn<'_>, request: Request<'_>) -> Ran {
        if (self.pending.is_some() || request.command.flags.any(OF_THE_SESSION))
            && let Some(ran) = self.dispatch_here(turn, request)
        {
            return ran;
        }
        if let Route::Shard(shard) = request.plan.route {
            return match turn.counters.hot_copies.keys.get() {
                0 => self.on_shard(turn, request, shard, None),
                _ => self.on_hot_shard(turn, request, shard),
            };
        }
        turn.release();
        match request.plan.route {
            Route::Script => self.on_script(turn, request),
            Route::Session => self.on_session(turn, request),
            Route::Each => self.on_each_shard(turn, request),
            _ => self.on_several(turn, request),
        }
    }

    /// Runs a command that concerns the session's own state; returns `None` for any other command.
    #[cold]
    fn dispatch_here(&mut self, turn: &mut Turn<'_>, request: Request<'_>) -> Option<Ran> {
        let flags = request.command.flags;
        if flags.has(Flags::HOLDS_NOTES)
            && self.has_run_before()
            && let Some(ran) = self.dispatch_note(turn)
        {
            return Some(ran);
        }
        if self.pending.is_some() || flags.has(Flags::TRANSACTIONAL) {
            turn.release();
            if let Some(ran) = self.transact(turn, request) {
                return Some(ran);
            }
        }
        let shard = match request.plan.route {
            Route::Shard(shard) if flags.has(Flags::NAMES_FIELDSET) => shard,
            _ => return None,
        };
        Some(match self.fieldset(turn, request) {
            Some(fieldset) => self.on_shard_apart(turn, request, shard, Some(&fieldset)),
            None => fail(turn, NO_FIELDSET.into()),
        })
    }

    /// Runs the command inside the next request, if the request is a note: a message of a node that migrates
    /// slots to this one.
    #[cold]
    #[inline(never)]
    fn dispatch_note(&mut self, turn: &mut Turn<'_>) -> Option<Ran> {
        let plan = turn
            .batch
            .plan_note(turn.batch.next, &self.service.router)?;
        turn.release();
        let known = plan.command.filter(|_| plan.route != Route::Refused);
        let Some(command) = known else {
            self.spoil_transaction();
            return Some(fail(turn, "ERR unknown note of a server".into()));
        };
        let request = Request {
            plan: &plan,
            command,
        };
        Some(match self.judge_note(turn, request) {
            Ok(()) => self.dispatch(turn, request),
            Err(error) => {
                self.spoil_transaction();
                fail(turn, error)
            }
        })
    }

    /// Returns the fieldset (prepared field names of HIMPORT) that a request names, if any.
    fn fieldset(&self, turn: &Turn<'_>, request: Request<'_>) -> Option<Prepared> {
        let args = turn.batch.args(request.plan);
        self.connection
            .fieldset(args.get(3))
            .map(Prepared::Fieldset)
    }

    /// Runs a command as [`Session::on_shard`] does, outside of the loop over requests.
    #[inline(never)]
    pub(super) fn on_shard_apart(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        shard: u16,
        prepared: Option<&Prepared>,
    ) -> Ran {
        self.on_shard(turn, request, shard, prepared)
    }

    /// Runs a command on one shard. Inlined where most commands pass, and once more in
    /// [`Session::on_shard_apart`].
    #[inline(always)]
    fn on_shard(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        shard: u16,
        prepared: Option<&Prepared>,
    ) -> Ran {
        if request.plan.is_long && !request.command.flags.has(Flags::BLOCKING) {
            turn.release();
            return self.queue(turn, request, (&[shard], true));
        }
        let (config, now) = (turn.config, turn.now);
        let Some(InHand {
            batch,
            engine,
            routes,
        }) = turn.hold(shard)
        else {
            return self.queue(turn, request, (&[shard], false));
        };
        let mut view = self.view();
        // A command that blocks keeps the permit, which is checked again when the command is served.
        let permit = match routes {
            Some(routes)
                if request.command.flags.has(Flags::BLOCKING)
                    || !routes.are_settled(request.plan.slot) =>
            {
                let at = (request.plan.slot, RoutingFlags::default());
                Some(self.permit_for(routes, request.command, at))
            }
            _ => None,
        };
        let context = ExecutionContext {
            permit: permit.as_ref(),
            ..self.context((config, now), shard)
        };
        let batch::BatchParts { args, out, .. } = batch.parts(request.plan);
        let args = args.with_prepared(prepared);
        let engines = Engines::One(engine);
        let outcome = execute::run(request.command, engines, &mut view, context, &args, out);
        if engine.waiters.take_call() {
            // Release the shard, so that waiting clients are served before this client's next request.
            turn.release();
        }
        self.learn(&view);
        self.ran(turn, request, &[shard], outcome)
    }

    /// Translates the outcome of a run into the session's terms.
    #[inline]
    fn ran(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        wanted: &[u16],
        outcome: ExecutionOutcome,
    ) -> Ran {
        match outcome {
            ExecutionOutcome::Done { failed } => Ran::Answered { failed },
            ExecutionOutcome::Refused => Ran::Refused,
            ExecutionOutcome::Blocked(waiter) => Ran::Blocked(super::Blocked::On(waiter)),
            ExecutionOutcome::Offload => {
                turn.release();
                self.queue(turn, request, (wanted, true))
            }
        }
    }

    /// Locks all shards of a command at once and runs it. After a few failed attempts the command is queued
    /// instead.
    #[inline(never)]
    fn on_several(&mut self, turn: &mut Turn<'_>, request: Request<'_>) -> Ran {
        let shards = &self.service.shards;
        let wanted = match request.plan.route {
            Route::Several(first, end) => turn.batch.listed_shards(first, end).to_vec(),
            _ => (0..shards.len() as u16).collect(),
        };
        if request.plan.is_long && !request.command.flags.has(Flags::BLOCKING) {
            return self.queue(turn, request, (&wanted, true));
        }
        let mark = turn.batch.out.position();
        for _ in 0..TRIES_ALL {
            let Some(mut all) = shards.try_take_all(&wanted) else {
                (0..SPINS_ALL).for_each(|_| std::hint::spin_loop());
                continue;
            };
            let mut view = self.view();
            let permit = self.permit(turn, request);
            let context = ExecutionContext {
                permit: permit.as_ref(),
                ..self.context((turn.config, turn.now), wanted[0])
            };
            let batch::BatchParts { args, out, .. } = turn.batch.parts(request.plan);
            let mut engines = all.engines();
            let engines = engines.all();
            // All entries are prefetched at once, so that the shards stay locked for one cache miss and not for many.
            for key in args.keys() {
                if let Some(db) = engines[usize::from(key.engine_index)].db(view.db) {
                    db.prefetch(key.hash);
                }
            }
            let engines = Engines::Many(engines);
            let outcome = execute::run(request.command, engines, &mut view, context, &args, out);
            drop(all);
            self.learn(&view);
            // A replayed command does not wait for the save: the background task makes sure that it happens.
            let has_emptied = matches!(outcome, ExecutionOutcome::Done { failed: false })
                && request.command.flags.has(Flags::EMPTIES)
                && !self.replays();
            if has_emptied && let Some(awaited) = self.service.server().save_emptied() {
                // The reply is sent once the emptied data set is saved.
                turn.batch.out.truncate(mark);
                return self.wait_for(turn, request, &awaited);
            }
            return self.ran(turn, request, &wanted, outcome);
        }
        self.queue(turn, request, (&wanted, false))
    }

    /// Runs a command that visits all shards, one after the other.
    #[inline(never)]
    fn on_each_shard(&mut self, turn: &mut Turn<'_>, request: Request<'_>) -> Ran {
        let count = self.service.shards.len() as u16;
        let mut under_way = match turn.batch.gathering.take() {
            Some(under_way) => under_way,
            None => {
                let first = match request.command.run {
                    Run::Cursor(shard_of, ..) => shard_of(&turn.batch.args(request.plan), count),
                    _ => Ok(0),
                };
                let next = match first {
                    Ok(next) => next,
                    Err(error) => return fail(turn, error),
                };
                let routes = turn.routes.as_ref();
                let routes = routes.map(|routes| Arc::clone(&routes.then));
                Gathering {
                    next,
                    count,
                    gather: Gather {
                        routes,
                        ..Gather::default()
                    },
                    ..Gathering::default()
                }
            }
        };
        let began = Ticks::now();
        while under_way.next < count && !under_way.gather.done {
            let spent_ns = Ticks::now().since_ns(began);
            if spent_ns > VISITS_NS_MAX {
                under_way.spent_ns += spent_ns;
                turn.batch.gathering = Some(under_way);
                return Ran::Later;
            }
            match self.visit(turn, request, &mut under_way) {
                Some(Ok(())) => {}
                Some(Err(error)) => return fail(turn, error),
                None => {
                    under_way.spent_ns += spent_ns;
                    return self.queue_visit(turn, request, under_way);
                }
            }
        }
        turn.earlier_ns = under_way.spent_ns;
        let (Run::EachShard(_, merge) | Run::Cursor(_, _, merge)) = request.command.run else {
            unreachable!("routed shard by shard")
        };
        let batch::BatchParts { args, out, .. } = turn.batch.parts(request.plan);
        let failed = write_failure(merge(&args, under_way.gather, out), out);
        Ran::Answered { failed }
    }

    /// Visits one shard; returns `None` if another thread keeps the shard locked.
    fn visit(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        under_way: &mut Gathering,
    ) -> Option<basalt_commands::command::declaration::CommandResult> {
        let shard = under_way.next;
        let mut held = self.service.shards.take_spinning(shard, SPINS_VISIT)?;
        let mut view = self.view();
        let context = ExecutionContext {
            blocker: None,
            may_offload: false,
            ..self.context((turn.config, turn.now), shard)
        };
        let (args, gather) = (turn.batch.args(request.plan), &mut under_way.gather);
        let engines = Engines::One(&mut held);
        let result = execute::run_part(request.command, engines, &mut view, context, &args, gather);
        drop(held);
        self.learn(&view);
        under_way.advance();
        Some(result)
    }

    fn queue_visit(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        mut under_way: Gathering,
    ) -> Ran {
        let gather: Gather = std::mem::take(&mut under_way.gather);
        let shard = under_way.next;
        turn.batch.gathering = Some(under_way);
        let job = self.job(turn, request, shard).visiting(gather);
        Ran::Queued(Job::send(self.queued(&[shard], job), &turn.under_way))
    }

    #[inline(never)]
    fn on_session(&mut self, turn: &mut Turn<'_>, request: Request<'_>) -> Ran {
        let Run::Session(handler) = request.command.run else {
            unreachable!("routed to the session")
        };
        if request.command.flags.has(Flags::OTHERS_FIRST)
            && !std::mem::replace(&mut turn.batch.others_went, true)
        {
            return Ran::Later;
        }
        turn.batch.others_went = false;
        turn.batch.outgoing.more_follow =
            request.command.publishes() && turn.batch.next_publishes();
        let batch::BatchParts {
            args,
            out,
            outgoing,
            ..
        } = turn.batch.parts(request.plan);
        let mut cx = SessionCx {
            client: &mut self.connection,
            server: self.service.server(),
            config: turn.config,
            now: turn.now,
            command: request.command,
            after: After::Nothing,
            outbox: Outbox::Open(outgoing),
        };
        let result = handler(&mut cx, &args, out);
        let after = cx.after;
        let failed = write_failure(result, out);
        out.set_protocol(self.connection.protocol);
        let shared = &self.connection.shared;
        shared.db.store(self.connection.db as u32, Relaxed);
        shared
            .resp
            .store(self.connection.protocol.version(), Relaxed);
        match after {
            _ if failed => Ran::Answered { failed },
            After::Migrate(migration) => self.migrate(turn, request, migration),
            // A snapshot waits for the primary's link to become idle, so the link must not wait for work that
            // may need a snapshot.
            After::Await(_) if self.connection.origin == Origin::Primary => Ran::Then(After::Close),
            After::Await(awaited) => self.wait_for(turn, request, &awaited),
            after => Ran::Then(after),
        }
    }

    /// Returns the context of a command that may block, and may be offloaded.
    #[inline]
    fn context<'c>(
        &'c self,
        (config, now): (&'c Arc<Config>, Now),
        shard: u16,
    ) -> ExecutionContext<'c> {
        ExecutionContext {
            now,
            config,
            place: self.place(shard),
            blocker: Some(&self.connection.shared),
            may_offload: true,
            permit: None,
        }
    }

    /// Returns the place of a shard: its index, and the number of shards.
    pub(super) fn place(&self, index: u16) -> ShardPlace {
        ShardPlace {
            index,
            count: self.service.shards.len() as u16,
        }
    }

    /// Creates a job of the command.
    fn job(&self, turn: &Turn<'_>, request: Request<'_>, shard: u16) -> CommandJob {
        let out = Out::new(self.connection.protocol);
        let (args, place) = (turn.batch.args(request.plan), self.place(shard));
        let job = CommandJob::new(request.command, &args, self.view(), place, turn.config, out);
        match request.command.flags.has(Flags::NAMES_FIELDSET) {
            true => job.with_prepared(self.fieldset(turn, request)),
            false => job,
        }
    }

    fn queued(&self, wanted: &[u16], job: CommandJob) -> QueuedJob {
        Job::command(wanted, job, self.service.executor())
    }

    /// Creates a job whose reply another thread writes, and the ticket on which this connection awaits it.
    fn awaited(&self, turn: &Turn<'_>, request: Request<'_>) -> (QueuedJob, Arc<Ticket>) {
        let mut job = self.queued(&[], self.job(turn, request, 0));
        let ticket = Job::await_end(&mut job);
        (job, ticket)
    }

    /// Puts the command in the queue of its first shard; with `is_offloaded` it runs on a separate thread.
    #[cold]
    #[inline(never)]
    fn queue(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        (wanted, is_offloaded): (&[u16], bool),
    ) -> Ran {
        let overload = &self.service.telemetry.overload;
        if is_offloaded
            && overload.is_refusing()
            && !self.has_run_before()
            && overload.refuses_long()
        {
            turn.batch.out.error(overload::TEXT.as_bytes());
            return Ran::Refused;
        }
        let blocks = request.command.flags.has(Flags::BLOCKING);
        let blocker = blocks.then_some(&self.connection.shared);
        let job = self.job(turn, request, wanted[0]);
        let job = job
            .with_blocker(blocker)
            .admitted(self.permit(turn, request));
        let mut queued = self.queued(wanted, job);
        queued.is_offloaded = is_offloaded;
        Ran::Queued(Job::send(queued, &turn.under_way))
    }

    /// Waits for asynchronous work, as for the reply of a queued command.
    #[cold]
    fn wait_for(&mut self, turn: &mut Turn<'_>, request: Request<'_>, awaited: &Awaited) -> Ran {
        let (mut job, ticket) = self.awaited(turn, request);
        let told = awaited.told;
        let shared = Arc::clone(&self.connection.shared);
        // Shutdown may take long, so mark this client as waiting for it.
        shared.set_sleeping(told == Told::Nothing);
        (awaited.begin)(Box::new(move |result| {
            shared.set_sleeping(false);
            if let Work::Command(reply) = &mut job.work {
                match (result, told) {
                    (Ok(_), Told::Text(text)) => reply.out.simple(text),
                    (Ok(text), Told::ByWork) => reply.out.simple(text),
                    (Ok(_), Told::Nothing) => reply.ended = CommandJobOutcome::Stop,
                    (Err(error), _) => {
                        reply.ended = CommandJobOutcome::Answered { failed: true };
                        reply.out.error(error.text().as_bytes());
                    }
                }
            }
            Job::answer(job);
        }));
        Ran::Queued(ticket)
    }

    /// Passes the keys of MIGRATE to the migration thread, and waits for the reply as for that of a queued
    /// command.
    #[cold]
    fn migrate(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        migration: Box<Migration>,
    ) -> Ran {
        let Some(migrator) = self.service.migrator.get() else {
            return Ran::Then(After::Close);
        };
        let (job, ticket) = self.awaited(turn, request);
        migrator.start(migration, job);
        Ran::Queued(ticket)
    }
}

#[cold]
fn fail(turn: &mut Turn<'_>, error: CommandError) -> Ran {
    let failed = write_failure(Err(error), &mut turn.batch.out);
    Ran::Answered { failed }
}
