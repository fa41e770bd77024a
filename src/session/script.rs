//! EVAL and its kin, and EXEC of transactions with scripts: a unit that begins with the shards that it names, here and
//! now if these are free, and goes on as a message if it has to wait, to run again, or to run on a thread of its own.

use std::sync::Arc;

use super::batch::{self, Batch, Plan};
use super::{Ran, SPINS_ALL, Session, TRIES_ALL};
use crate::command::Out;
use crate::command::context::ShardPlace;
use crate::command::declaration::{Command, Run};
use crate::config::Config;
use crate::engine::{Engine, Now};
use crate::script::footprint::{self, Advice};
use crate::shard::Shards;
use crate::shard::attempt::Attempt;
use crate::shard::attempt::terms::Terms;
use crate::shard::message::{Message, Parts, TransactionRun, UnitRun};
use crate::shard::ownership::reach::Grip;
use crate::shard::route::Router;
use crate::shard::transaction::{Aftermath, Stage, Transaction, run_lone};

impl Session {
    /// Runs a script.
    #[inline(never)]
    pub(super) fn on_script(
        &mut self,
        batch: &mut Batch,
        plan: &Plan,
        command: &'static Command,
        config: &Arc<Config>,
        now: Now,
    ) -> Ran {
        let service = self.service;
        let (shards, router) = (&service.shards, service.router);
        let Run::Script(verb) = command.run else {
            unreachable!("routed as a script")
        };
        let batch::Parts {
            args,
            out,
            deferred,
            ..
        } = batch.parts(plan);
        let named = args.keys().iter().map(|key| key.shard);
        let tag = footprint::tag_of(&args);
        let mut terms = match service.scripts.footprints.advice(tag, &args) {
            None => Terms::with_all(named),
            Some(advice) => advised(&advice, named, router),
        };
        terms.tag = Some(tag);
        if !terms.is_apart
            && let Some(mut grip) = take(shards, &terms)
        {
            let mut stage = Stage {
                connection: &mut self.connection,
                server: service.server(),
                scripts: &service.scripts,
                config,
                renewed: None,
                now,
                shard_count: router.shard_count(),
            };
            let mut reach = grip.reach();
            let attempt = Attempt::inline(&mut reach, router);
            let rest = (&mut terms, &mut *deferred);
            let done = run_lone((command, verb), &args, attempt, &mut stage, out, rest);
            drop(grip);
            deferred.settle();
            if let Some(mut aftermath) = done {
                if service.pubsub.is_monitored() {
                    self.show_script(batch, plan, command, &aftermath);
                }
                if !aftermath.publications.kept.is_empty() {
                    let publications = std::mem::take(&mut aftermath.publications);
                    let wakes = &mut batch.deferred.wakes;
                    publications.finish(&service.pubsub, Vec::new(), &mut batch.out, wakes);
                }
                let failed = aftermath.failed;
                Self::after_unit(aftermath);
                terms.end();
                return Ran::Yes { failed };
            }
        }
        self.queue_script(batch, plan, (command, terms), config, now)
    }

    #[cold]
    fn queue_script(
        &mut self,
        batch: &mut Batch,
        plan: &Plan,
        (command, terms): (&'static Command, Terms),
        config: &Arc<Config>,
        now: Now,
    ) -> Ran {
        let transaction = Transaction::lone(command, &batch.args(plan));
        self.queue_unit(batch, plan, (command, transaction, terms), config, now)
    }

    /// Runs a transaction with scripts.
    #[cold]
    pub(super) fn exec_unit(
        &mut self,
        batch: &mut Batch,
        plan: &Plan,
        (command, transaction): (&'static Command, Transaction),
        config: &Arc<Config>,
        now: Now,
    ) -> Ran {
        let service = self.service;
        let (shards, router) = (&service.shards, service.router);
        let mut terms = transaction.terms(router.shard_count());
        if !terms.is_apart
            && let Some(mut grip) = take(shards, &terms)
        {
            let stage = Stage {
                connection: &mut self.connection,
                server: service.server(),
                scripts: &service.scripts,
                config,
                renewed: None,
                now,
                shard_count: router.shard_count(),
            };
            let mut reach = grip.reach();
            let attempt = Attempt::inline(&mut reach, router);
            let Batch { out, deferred, .. } = batch;
            let done = transaction.attempt(attempt, stage, out, &mut terms, deferred);
            drop(grip);
            deferred.settle();
            if let Some(aftermath) = done {
                return self.after_exec(&transaction, aftermath, (out, deferred), config, now);
            }
        }
        self.queue_unit(batch, plan, (command, transaction, terms), config, now)
    }

    fn queue_unit(
        &mut self,
        batch: &mut Batch,
        plan: &Plan,
        (command, transaction, terms): (&'static Command, Transaction, Terms),
        config: &Arc<Config>,
        now: Now,
    ) -> Ran {
        let service = self.service;
        let (message, ticket) = Message::new(Parts {
            shards: &[],
            place: ShardPlace {
                index: 0,
                count: service.shards.len() as u16,
            },
            command,
            args: &batch.args(plan),
            client: self.view(),
            now,
            config,
            out: Out::new(self.connection.protocol),
            gather: None,
            blocker: None,
            transaction: Some(Box::new(TransactionRun {
                transaction,
                connection: self.connection.clone(),
                server: service.server(),
                scripts: &service.scripts,
                aftermath: Aftermath::default(),
                unit: Some(UnitRun::new(service.ground(), terms)),
            })),
        });
        Message::send_unit(message);
        Ran::Queued(ticket)
    }

    /// Why a command that needs no shard is not run now: a script is past its time. What needs shards goes on, unless
    /// the script has them.
    #[inline]
    pub(super) fn busy_with_script(&self, command: &Command) -> Option<&'static str> {
        let running = &self.service.scripts.running;
        if !running.is_busy()
            || command
                .flags
                .has(crate::command::declaration::Flags::ALLOW_BUSY)
        {
            return None;
        }
        running.busy_text()
    }
}

/// The terms of a script that is known to need more than the shards that it names.
#[cold]
fn advised(advice: &Advice, named: impl Iterator<Item = u16>, router: Router) -> Terms {
    let terms = match advice.is_wide {
        true => Terms::with((0..router.shard_count()).collect()),
        false => {
            let foreseen = advice.keys.iter().map(|key| router.route(key).1);
            Terms::with_all(named.chain(foreseen))
        }
    };
    terms.apart_if(advice.is_slow)
}

/// Takes the shards that a unit begins with, in a few tries.
fn take<'s>(shards: &'s Shards, terms: &Terms) -> Option<Grip<'s, Engine, Message>> {
    for _ in 0..TRIES_ALL {
        if let Some(grip) = shards.try_grip(&terms.shards) {
            return Some(grip);
        }
        (0..SPINS_ALL).for_each(|_| std::hint::spin_loop());
    }
    None
}
