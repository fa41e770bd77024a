//! One command where it belongs: on the shard in hand, on several, on one after the other, or on none.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::batch::{self, Batch, Plan, Route};
use super::{Ran, SPINS, SPINS_ALL, Session, TRIES_ALL, TURN_NS_MAX, release};
use crate::command::Out;
use crate::command::context::{After, Engines, Gather, Outbox, SessionCx, ShardPlace};
use crate::command::declaration::{Command, Flags, Run};
use crate::command::error::CommandError;
use crate::config::Config;
use crate::engine::{Engine, Now};
use crate::shard::Shards;
use crate::shard::execute::{self, Outcome, Scene};
use crate::shard::message::{Message, Parts};
use crate::shard::ownership::Held;
use crate::telemetry::clock::Ticks;

impl Session {
    #[expect(
        clippy::too_many_arguments,
        reason = "the hot path hands on what it holds"
    )]
    #[inline]
    pub(super) fn on_shard<'s>(
        &mut self,
        batch: &mut Batch,
        plan: &Plan,
        command: &'static Command,
        shard: u16,
        held: &mut Option<(u16, Held<'s, Engine, Message>)>,
        shards: &'s Shards,
        config: &Arc<Config>,
        now: Now,
    ) -> Ran {
        if plan.is_long && !command.flags.has(Flags::BLOCKING) {
            release(held, batch);
            return self.send_apart(batch, plan, command, &[shard], config, now);
        }
        if held.as_ref().is_none_or(|(number, _)| *number != shard) {
            release(held, batch);
            match shards.take_spinning(shard, SPINS) {
                Some(taken) => *held = Some((shard, taken)),
                None => return self.queue(batch, plan, command, &[shard], shards, config, now),
            }
        }
        let Some((_, engine)) = held else {
            unreachable!("taken above")
        };
        let mut view = self.view();
        let scene = Scene {
            now,
            config,
            place: ShardPlace {
                index: shard,
                count: shards.len() as u16,
            },
            blocker: Some(&self.connection.shared),
            may_leave: true,
        };
        let batch::Parts { args, out, .. } = batch.parts(plan);
        let outcome = execute::run(command, Engines::One(engine), &mut view, scene, &args, out);
        self.connection.stamp = view.stamp;
        if engine.waiters.take_call() {
            // They go before whatever the client asks for next.
            release(held, batch);
        }
        if let Outcome::Leaves = outcome {
            release(held, batch);
            return self.send_apart(batch, plan, command, &[shard], config, now);
        }
        Ran::of(outcome)
    }

    /// All shards of the command at once: tried a few times, then the command travels.
    #[inline(never)]
    pub(super) fn on_several(
        &mut self,
        batch: &mut Batch,
        plan: &Plan,
        command: &'static Command,
        shards: &Shards,
        config: &Arc<Config>,
        now: Now,
    ) -> Ran {
        let view = self.view();
        let every: Vec<u16>;
        let batch::Parts {
            args,
            out,
            deferred,
            shards: listed,
        } = batch.parts(plan);
        let wanted = match plan.route {
            Route::Several(first, end) => &listed[first as usize..end as usize],
            _ => {
                every = (0..shards.len() as u16).collect();
                &every
            }
        };
        if plan.is_long && !command.flags.has(Flags::BLOCKING) {
            let wanted = wanted.to_vec();
            return self.send_apart(batch, plan, command, &wanted, config, now);
        }
        for _ in 0..TRIES_ALL {
            let Some(mut all) = shards.try_take_all(wanted) else {
                (0..SPINS_ALL).for_each(|_| std::hint::spin_loop());
                continue;
            };
            let mut view = view;
            let place = ShardPlace {
                index: wanted[0],
                count: shards.len() as u16,
            };
            let scene = Scene {
                now,
                config,
                place,
                blocker: Some(&self.connection.shared),
                may_leave: true,
            };
            let mut hands = all.hands();
            let outcome = {
                let engines: Vec<&mut Engine> = hands.iter().map(|(_, engine)| engine).collect();
                // All entries are fetched at once, so that the shards are held for one cache miss and not for many.
                for key in args.keys() {
                    if let Some(db) = engines[usize::from(key.hand)].db(view.db) {
                        db.prefetch(key.hash);
                    }
                }
                let engines = Engines::Many(engines);
                execute::run(command, engines, &mut view, scene, &args, out)
            };
            for (_, engine) in hands.iter() {
                deferred.append(&mut engine.deferred);
            }
            drop(all);
            deferred.settle();
            self.connection.stamp = view.stamp;
            if let Outcome::Leaves = outcome {
                let wanted = wanted.to_vec();
                return self.send_apart(batch, plan, command, &wanted, config, now);
            }
            return Ran::of(outcome);
        }
        let wanted = wanted.to_vec();
        self.queue(batch, plan, command, &wanted, shards, config, now)
    }

    #[inline(never)]
    pub(super) fn on_each_shard(
        &mut self,
        batch: &mut Batch,
        plan: &Plan,
        command: &'static Command,
        shards: &Shards,
        config: &Arc<Config>,
        now: Now,
    ) -> Ran {
        let count = shards.len() as u16;
        let (mut gather, mut next) = match (batch.gather.take(), command.run) {
            (Some(under_way), _) => under_way,
            (None, Run::Cursor(shard_of, ..)) => match shard_of(&batch.args(plan), count) {
                Ok(first) => (Gather::default(), first),
                Err(error) => {
                    batch.out.error(error.text().as_bytes());
                    return Ran::Yes { failed: true };
                }
            },
            (None, _) => Default::default(),
        };
        let scene = |index| Scene {
            now,
            config,
            place: ShardPlace { index, count },
            blocker: None,
            may_leave: false,
        };
        let began = Ticks::now();
        while next < count && !gather.done {
            let spent_ns = Ticks::now().since_ns(began);
            if spent_ns > TURN_NS_MAX {
                batch.gather = Some((gather, next));
                batch.gather_ns += spent_ns;
                return Ran::Later;
            }
            let Some(mut held) = shards.take_spinning(next, SPINS) else {
                batch.gather = Some((Gather::default(), next));
                batch.gather_ns += spent_ns;
                let out = Out::new(self.connection.protocol);
                let args = batch.args(plan);
                let (message, ticket) = Message::new(Parts {
                    shards: &[next],
                    place: ShardPlace { index: next, count },
                    gather: Some(gather),
                    ..Parts::new(command, &args, self.view(), now, config, out)
                });
                shards.submit(message);
                return Ran::Queued(ticket);
            };
            let mut view = self.view();
            let args = batch.args(plan);
            let visit = execute::run_part(
                command,
                Engines::One(&mut held),
                &mut view,
                scene(next),
                &args,
                &mut gather,
            );
            batch.deferred.append(&mut held.deferred);
            drop(held);
            batch.deferred.settle();
            self.connection.stamp = view.stamp;
            if let Err(error) = visit {
                batch.out.error(error.text().as_bytes());
                return Ran::Yes { failed: true };
            }
            next += u16::from(gather.position == 0);
        }
        let (Run::EachShard(_, merge) | Run::Cursor(_, _, merge)) = command.run else {
            unreachable!("routed shard by shard")
        };
        let batch::Parts { args, out, .. } = batch.parts(plan);
        let result = merge(&args, gather, out);
        let failed = result.is_err();
        if let Err(error) = result {
            out.error(error.text().as_bytes());
        }
        Ran::Yes { failed }
    }

    /// Whether nothing may be added that belongs to no shard (FUNCTION LOAD).
    #[cold]
    fn is_out_of_memory(&self) -> bool {
        let budget = &self.service.budget;
        budget.assess();
        budget.is_limited() && budget.free_bytes() < 0
    }

    #[inline(never)]
    pub(super) fn on_session(
        &mut self,
        batch: &mut Batch,
        plan: &Plan,
        command: &'static Command,
        config: &Arc<Config>,
        now: Now,
    ) -> Ran {
        let Run::Session(handler) = command.run else {
            unreachable!("routed to the session")
        };
        if let Some(text) = self.busy_with_script(command) {
            batch.out.error(text);
            return Ran::Yes { failed: true };
        }
        if command.flags.has(Flags::DENYOOM) && self.is_out_of_memory() {
            let text = CommandError::OutOfMemory.text();
            batch.out.error(text.as_bytes());
            return Ran::Yes { failed: true };
        }
        let batch::Parts {
            args,
            out,
            deferred,
            ..
        } = batch.parts(plan);
        let mut cx = SessionCx {
            client: &mut self.connection,
            server: self.service.server(),
            config,
            now,
            command,
            after: After::Nothing,
            outbox: Outbox::Open(&mut deferred.wakes),
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
            _ if failed => Ran::Yes { failed },
            After::Migrate(migration) => self.migrate(batch, plan, command, migration, config, now),
            after => Ran::Then(after),
        }
    }
}
