//! One command where it belongs: on the shard in hand, on several, on one after the other, or on none; or as a job, to
//! the queue of a shard that is held, to a thread of its own, or with keys to another server.

use std::sync::atomic::Ordering::Relaxed;

use super::batch::{self, Gathering, Plan, Route};
use super::turn::Turn;
use super::{Ran, Session};
use crate::command::Out;
use crate::command::context::{After, Awaited, Engines, Gather, Outbox, SessionCx, ShardPlace};
use crate::command::declaration::{Command, Flags, Run};
use crate::command::generic::migrate::Migration;
use crate::engine::Engine;
use crate::shard::execute::{self, ExecutionContext, Outcome};
use crate::shard::job::command::{CommandJob, Ended};
use crate::shard::job::{Job, Work};
use crate::telemetry::clock::Ticks;

/// Tries to get all shards of a command at once, before it travels.
pub(super) const TRIES_ALL: u32 = 8;

/// Spins between two tries: all tries together take a few µs, about as long as the other command holds the shards, and
/// far less than to queue, to be woken and to go on costs.
pub(super) const SPINS_ALL: u32 = 10;

/// Looks at a held shard by a command that visits it.
const SPINS_VISIT: u32 = 16;

/// Nanoseconds for which a command that goes from shard to shard keeps others of its thread waiting.
const VISITS_NS_MAX: u64 = 500_000;

impl Session {
    /// Runs a command, or sees to it that it is run.
    #[inline]
    pub(super) fn dispatch(
        &mut self,
        turn: &mut Turn<'_>,
        plan: &Plan,
        command: &'static Command,
    ) -> Ran {
        if self.pending.is_some() || command.flags.has(Flags::TRANSACTIONAL) {
            turn.release();
            if let Some(ran) = self.transact(turn, plan, command) {
                return ran;
            }
        }
        if let Route::Shard(shard) = plan.route {
            return self.on_shard(turn, plan, command, shard);
        }
        turn.release();
        match plan.route {
            Route::Script => self.on_script(turn, plan, command),
            Route::Session => self.on_session(turn, plan, command),
            Route::Each => self.on_each_shard(turn, plan, command),
            _ => self.on_several(turn, plan, command),
        }
    }

    #[inline]
    fn on_shard(
        &mut self,
        turn: &mut Turn<'_>,
        plan: &Plan,
        command: &'static Command,
        shard: u16,
    ) -> Ran {
        if plan.is_long && !command.flags.has(Flags::BLOCKING) {
            turn.release();
            return self.offload(turn, plan, command, &[shard]);
        }
        let (config, now) = (turn.config, turn.now);
        let Some((batch, engine)) = turn.hold(shard) else {
            return self.queue(turn, plan, command, &[shard]);
        };
        let mut view = self.view();
        let context = ExecutionContext {
            now,
            config,
            place: self.place(shard),
            blocker: Some(&self.connection.shared),
            may_offload: true,
        };
        let batch::Parts { args, out, .. } = batch.parts(plan);
        let engines = Engines::One(engine);
        let outcome = execute::run(command, engines, &mut view, context, &args, out);
        if engine.waiters.take_call() {
            // They go before whatever the client asks for next.
            turn.release();
        }
        self.connection.stamp = view.stamp;
        self.connection.position = view.position;
        view.tell_log(&self.connection.shared);
        self.ran(turn, plan, command, &[shard], outcome)
    }

    /// What an outcome means for the session.
    #[inline]
    fn ran(
        &mut self,
        turn: &mut Turn<'_>,
        plan: &Plan,
        command: &'static Command,
        wanted: &[u16],
        outcome: Outcome,
    ) -> Ran {
        match outcome {
            Outcome::Done { failed } => Ran::Answered { failed },
            Outcome::Refused => Ran::Refused,
            Outcome::Blocked(waiter) => Ran::Blocked(super::Blocked::On(waiter)),
            Outcome::Offload => {
                turn.release();
                self.offload(turn, plan, command, wanted)
            }
        }
    }

    /// All shards of the command at once: tried a few times, then the command travels.
    #[inline(never)]
    fn on_several(&mut self, turn: &mut Turn<'_>, plan: &Plan, command: &'static Command) -> Ran {
        let shards = &self.service.shards;
        let wanted = match plan.route {
            Route::Several(first, end) => turn.batch.listed_shards(first, end).to_vec(),
            _ => (0..shards.len() as u16).collect(),
        };
        if plan.is_long && !command.flags.has(Flags::BLOCKING) {
            return self.offload(turn, plan, command, &wanted);
        }
        for _ in 0..TRIES_ALL {
            let Some(mut all) = shards.try_take_all(&wanted) else {
                (0..SPINS_ALL).for_each(|_| std::hint::spin_loop());
                continue;
            };
            let mut view = self.view();
            let context = ExecutionContext {
                now: turn.now,
                config: turn.config,
                place: self.place(wanted[0]),
                blocker: Some(&self.connection.shared),
                may_offload: true,
            };
            let batch::Parts { args, out, .. } = turn.batch.parts(plan);
            let mut hands = all.hands();
            let engines: Vec<&mut Engine> = hands.iter().map(|(_, engine)| engine).collect();
            // All entries are fetched at once, so that the shards are held for one cache miss and not for many.
            for key in args.keys() {
                if let Some(db) = engines[usize::from(key.hand)].db(view.db) {
                    db.prefetch(key.hash);
                }
            }
            let engines = Engines::Many(engines);
            let outcome = execute::run(command, engines, &mut view, context, &args, out);
            drop(all);
            self.learn(&view);
            return self.ran(turn, plan, command, &wanted, outcome);
        }
        self.queue(turn, plan, command, &wanted)
    }

    /// Visits one shard after the other.
    #[inline(never)]
    fn on_each_shard(
        &mut self,
        turn: &mut Turn<'_>,
        plan: &Plan,
        command: &'static Command,
    ) -> Ran {
        let count = self.service.shards.len() as u16;
        let mut under_way = match (turn.batch.gathering.take(), command.run) {
            (Some(under_way), _) => under_way,
            (None, Run::Cursor(shard_of, ..)) => match shard_of(&turn.batch.args(plan), count) {
                Ok(next) => Gathering {
                    next,
                    ..Gathering::default()
                },
                Err(error) => {
                    turn.batch.out.error(error.text().as_bytes());
                    return Ran::Answered { failed: true };
                }
            },
            (None, _) => Gathering::default(),
        };
        let began = Ticks::now();
        while under_way.next < count && !under_way.gather.done {
            let spent_ns = Ticks::now().since_ns(began);
            if spent_ns > VISITS_NS_MAX {
                under_way.spent_ns += spent_ns;
                turn.batch.gathering = Some(under_way);
                return Ran::Later;
            }
            match self.visit(turn, plan, command, &mut under_way) {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    turn.batch.out.error(error.text().as_bytes());
                    return Ran::Answered { failed: true };
                }
                None => {
                    under_way.spent_ns += spent_ns;
                    return self.queue_visit(turn, plan, command, under_way);
                }
            }
        }
        turn.earlier_ns = under_way.spent_ns;
        let (Run::EachShard(_, merge) | Run::Cursor(_, _, merge)) = command.run else {
            unreachable!("routed shard by shard")
        };
        let batch::Parts { args, out, .. } = turn.batch.parts(plan);
        let result = merge(&args, under_way.gather, out);
        let failed = result.is_err();
        if let Err(error) = result {
            out.error(error.text().as_bytes());
        }
        Ran::Answered { failed }
    }

    /// One visit; none if the shard is held.
    fn visit(
        &mut self,
        turn: &mut Turn<'_>,
        plan: &Plan,
        command: &'static Command,
        under_way: &mut Gathering,
    ) -> Option<crate::command::declaration::CommandResult> {
        let shard = under_way.next;
        let mut held = self.service.shards.take_spinning(shard, SPINS_VISIT)?;
        let mut view = self.view();
        let context = ExecutionContext {
            now: turn.now,
            config: turn.config,
            place: self.place(shard),
            blocker: None,
            may_offload: false,
        };
        let (args, gather) = (turn.batch.args(plan), &mut under_way.gather);
        let engines = Engines::One(&mut held);
        let result = execute::run_part(command, engines, &mut view, context, &args, gather);
        drop(held);
        self.learn(&view);
        under_way.next += u16::from(under_way.gather.position == 0);
        Some(result)
    }

    fn queue_visit(
        &mut self,
        turn: &mut Turn<'_>,
        plan: &Plan,
        command: &'static Command,
        mut under_way: Gathering,
    ) -> Ran {
        let gather: Gather = std::mem::take(&mut under_way.gather);
        let shard = under_way.next;
        turn.batch.gathering = Some(under_way);
        let job = self.job(turn, plan, command, shard).visiting(gather);
        let job = Job::command(&[shard], job, self.service.executor());
        Ran::Queued(Job::send(job))
    }

    #[inline(never)]
    fn on_session(&mut self, turn: &mut Turn<'_>, plan: &Plan, command: &'static Command) -> Ran {
        let Run::Session(handler) = command.run else {
            unreachable!("routed to the session")
        };
        if command.flags.has(Flags::OTHERS_FIRST)
            && !std::mem::replace(&mut turn.batch.others_went, true)
        {
            return Ran::Later;
        }
        turn.batch.others_went = false;
        let batch::Parts {
            args, out, wakes, ..
        } = turn.batch.parts(plan);
        let mut cx = SessionCx {
            client: &mut self.connection,
            server: self.service.server(),
            config: turn.config,
            now: turn.now,
            command,
            after: After::Nothing,
            outbox: Outbox::Open(wakes),
        };
        let result = handler(&mut cx, &args, out);
        let after = cx.after;
        let failed = result.is_err();
        if let Err(error) = result {
            out.error(error.text().as_bytes());
        }
        out.set_protocol(self.connection.protocol);
        let shared = &self.connection.shared;
        shared.db.store(self.connection.db as u32, Relaxed);
        shared
            .resp
            .store(self.connection.protocol.version(), Relaxed);
        match after {
            _ if failed => Ran::Answered { failed },
            After::Migrate(migration) => self.migrate(turn, plan, command, migration),
            After::Await(awaited) => self.wait_for(turn, plan, command, &awaited),
            after => Ran::Then(after),
        }
    }

    /// A shard and how many there are.
    pub(super) fn place(&self, index: u16) -> ShardPlace {
        ShardPlace {
            index,
            count: self.service.shards.len() as u16,
        }
    }

    /// The command as a job.
    fn job(
        &self,
        turn: &Turn<'_>,
        plan: &Plan,
        command: &'static Command,
        shard: u16,
    ) -> CommandJob {
        let out = Out::new(self.connection.protocol);
        let (args, place) = (turn.batch.args(plan), self.place(shard));
        CommandJob::new(command, &args, self.view(), place, turn.config, out)
    }

    /// Hands the command to the queue of its first shard.
    #[cold]
    fn queue(
        &mut self,
        turn: &mut Turn<'_>,
        plan: &Plan,
        command: &'static Command,
        wanted: &[u16],
    ) -> Ran {
        let blocks = command.flags.has(Flags::BLOCKING);
        let blocker = blocks.then_some(&self.connection.shared);
        let job = self.job(turn, plan, command, wanted[0]);
        let job = Job::command(wanted, job.with_blocker(blocker), self.service.executor());
        Ran::Queued(Job::send(job))
    }

    /// Has a command that takes long run where nobody else waits for the thread.
    #[cold]
    #[inline(never)]
    fn offload(
        &mut self,
        turn: &mut Turn<'_>,
        plan: &Plan,
        command: &'static Command,
        wanted: &[u16],
    ) -> Ran {
        let job = self.job(turn, plan, command, wanted[0]);
        let job = Job::command(wanted, job, self.service.executor());
        Ran::Queued(Job::send_offloaded(job))
    }

    /// Waits for what others work on, as for the reply of a command that had to queue.
    #[cold]
    fn wait_for(
        &mut self,
        turn: &mut Turn<'_>,
        plan: &Plan,
        command: &'static Command,
        awaited: &Awaited,
    ) -> Ran {
        let job = self.job(turn, plan, command, 0);
        let mut job = Job::command(&[], job, self.service.executor());
        let ticket = Job::await_end(&mut job);
        let text = awaited.text;
        (awaited.begin)(Box::new(move |result| {
            if let Work::Command(reply) = &mut job.work {
                match (result, text) {
                    (Ok(()), Some(text)) => reply.out.simple(text),
                    (Ok(()), None) => reply.ended = Ended::Stop,
                    (Err(error), _) => {
                        reply.ended = Ended::Answered { failed: true };
                        reply.out.error(error.text().as_bytes());
                    }
                }
            }
            Job::answer(job);
        }));
        Ran::Queued(ticket)
    }

    /// Leaves the keys to whoever carries them, and waits for the reply as for that of a command that had to queue.
    #[cold]
    fn migrate(
        &mut self,
        turn: &mut Turn<'_>,
        plan: &Plan,
        command: &'static Command,
        migration: Box<Migration>,
    ) -> Ran {
        let Some(migrator) = self.service.migrator.get() else {
            return Ran::Then(After::Close);
        };
        let job = self.job(turn, plan, command, 0);
        let mut job = Job::command(&[], job, self.service.executor());
        let ticket = Job::await_end(&mut job);
        migrator.start(migration, job);
        Ran::Queued(ticket)
    }
}
