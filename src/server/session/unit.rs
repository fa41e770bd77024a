//! EVAL, its variants and EXEC. Such a unit runs at once if the shards that it declares are free. It becomes a
//! job if it has to wait for shards, to restart after a rollback, or to run on a separate thread.

use std::ops::ControlFlow::Continue;
use std::sync::Arc;

use super::accounting::{Finished, follow};
use super::batch::{self, Request};
use super::dispatch::{SPINS_ALL, TRIES_ALL};
use super::turn::Turn;
use super::{Flow, Ran, Session};
use crate::script::footprint::{self, Advice};
use crate::shard::Shards;
use crate::shard::job::Job;
use crate::shard::job::unit::UnitJob;
use crate::shard::ownership::extend::ExtendableGuard;
use crate::shard::route::Router;
use crate::shard::unit::ExecutionUnit;
use crate::shard::unit::context::{UnitContext, UnitOutcome};
use crate::shard::unit::plan::UnitPlan;
use crate::shard::unit::transaction::{Transaction, run_lone};
use crate::state::Service;
use crate::telemetry::errors;
use basalt_commands::client::connection::Connection;
use basalt_commands::command::Out;
use basalt_commands::command::context::After;
use basalt_commands::command::declaration::Run;
use basalt_commands::config::Config;
use basalt_engine::{Engine, Now};

impl Session {
    /// Runs a script.
    #[inline(never)]
    pub(super) fn on_script(&mut self, turn: &mut Turn<'_>, request: Request<'_>) -> Ran {
        let Run::Script(verb) = request.command.run else {
            unreachable!("routed as a script")
        };
        let service = self.service;
        let router = service.router;
        let permit = self.permit(turn, request);
        let batch::BatchParts { args, out, .. } = turn.batch.parts(request.plan);
        let named = args.keys().iter().map(|key| key.shard);
        let tag = footprint::tag_of(&args);
        let mut unit_plan = match service.scripts.footprints.advice(tag, &args) {
            None => UnitPlan::with(named),
            Some(advice) => advised(&advice, named, router),
        };
        unit_plan.tag = Some(tag);
        if let Some(mut guard) = take(&service.shards, &unit_plan) {
            let cx = UnitContext {
                permit,
                ..context(&mut self.connection, service, (turn.config, turn.now))
            };
            let mut held = guard.tokens();
            let unit = ExecutionUnit::inline(&mut held, router);
            let done = run_lone(
                (request.command, verb),
                &args,
                unit,
                cx,
                (out, &mut unit_plan),
            );
            drop(guard);
            if let Some(outcome) = done {
                let ran = self.end_script(turn, request, &outcome);
                return if outcome.was_refused {
                    Ran::Refused
                } else {
                    ran
                };
            }
        }
        let mut transaction = Transaction::lone(request.command, &turn.batch.args(request.plan));
        transaction.permit = permit;
        self.queue_unit(turn, transaction, unit_plan)
    }

    /// Completes a script, apart from its reply: MONITOR output, statistics and the slow log. No shard may be
    /// locked.
    fn end_script(&self, turn: &mut Turn<'_>, request: Request<'_>, outcome: &UnitOutcome) -> Ran {
        if turn.is_monitored {
            self.show_script(turn, request, outcome);
        }
        self.connection.shared.count_commands(outcome.command_count);
        if let Some(notes) = &outcome.notes {
            notes.errors.iter().for_each(|text| errors::note(text));
            self.slow(turn.config, turn.now).tell_calls(&notes.slow, 0);
        }
        Ran::Answered {
            failed: outcome.failed,
        }
    }

    /// Runs a transaction.
    pub(super) fn run_transaction(&mut self, turn: &mut Turn<'_>, transaction: Transaction) -> Ran {
        let service = self.service;
        let router = service.router;
        let mut plan = transaction.plan(router.shard_count());
        if let Some(mut guard) = take(&service.shards, &plan) {
            let cx = UnitContext {
                permit: transaction.permit,
                ..context(&mut self.connection, service, (turn.config, turn.now))
            };
            let mut held = guard.tokens();
            let unit = ExecutionUnit::inline(&mut held, router);
            let done = transaction.run(unit, cx, &mut turn.batch.out, &mut plan);
            drop(guard);
            if let Some(outcome) = done {
                return self.end_transaction(turn, &transaction, outcome, None);
            }
        }
        self.queue_unit(turn, transaction, plan)
    }

    /// Completes a transaction, apart from its reply: statistics, messages and log positions. No shard may be
    /// locked.
    fn end_transaction(
        &mut self,
        turn: &mut Turn<'_>,
        transaction: &Transaction,
        mut outcome: UnitOutcome,
        out: Option<&mut Out>,
    ) -> Ran {
        if outcome.was_run {
            self.show_transaction(transaction, &outcome, &mut turn.batch.outgoing.wakes);
        }
        let places = self.run_postponed(transaction, &mut outcome, &mut turn.batch.outgoing);
        if !places.is_empty() {
            out.unwrap_or(&mut turn.batch.out).fill(places);
        }
        let config_override = matches!(outcome.after, After::Configured);
        if config_override {
            self.service.server().follow_config();
        }
        let config_override = config_override.then(|| self.service.config.load_full());
        let config = config_override.as_ref().unwrap_or(turn.config);
        self.connection.shared.count_commands(outcome.command_count);
        self.tell_steps(transaction, &outcome, config, turn.now);
        if self.has_run_before() {
            self.steps_failed(turn, transaction, &outcome);
        }
        match outcome.was_refused {
            true => Ran::Refused,
            false => Ran::Then(outcome.after),
        }
    }

    #[cold]
    fn queue_unit(&mut self, turn: &mut Turn<'_>, transaction: Transaction, plan: UnitPlan) -> Ran {
        let service = self.service;
        let job = UnitJob {
            transaction,
            connection: self.connection.clone(),
            server: service.server(),
            scripts: &service.scripts,
            config: Arc::clone(turn.config),
            plan,
            out: Out::new(self.connection.protocol),
            outcome: UnitOutcome::default(),
            duration_ns: 0,
            #[cfg(test)]
            now: None,
        };
        Ran::Queued(Job::send(
            Job::unit(job, service.executor()),
            &turn.under_way,
        ))
    }

    /// Continues the session after its queued unit has run.
    pub(super) fn resume_unit(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        job: &mut UnitJob,
    ) -> Flow {
        self.connection = job.connection.clone();
        let outcome = std::mem::take(&mut job.outcome);
        if outcome.was_turned_away {
            self.unwatch(job.transaction.watched.clone());
        }
        let mark = turn.batch.out.position();
        let (failed, is_refused) = (outcome.failed, outcome.was_refused);
        let UnitJob {
            transaction, out, ..
        } = job;
        let ran = match transaction.is_lone() {
            true => self.end_script(turn, request, &outcome),
            false => self.end_transaction(turn, transaction, outcome, Some(out)),
        };
        (turn.transaction_slot, _) = transaction.slot();
        turn.batch.out.append(out);
        turn.batch.out.set_protocol(self.connection.protocol);
        if is_refused {
            self.note_refused(turn, mark, request.command);
            return Continue(());
        }
        let mut finished = Finished::new(mark, job.duration_ns, failed);
        if let Ran::Then(After::Configured) = ran {
            finished.config_override = Some(self.service.config.load_full());
        }
        self.finish(turn, request, &finished);
        match ran {
            Ran::Then(after) => follow(turn, after),
            _ => Continue(()),
        }
    }
}

/// Returns the context of a unit that runs on its connection's thread.
fn context<'c>(
    connection: &'c mut Connection,
    service: &'static Service,
    (config, now): (&'c Arc<Config>, Now),
) -> UnitContext<'c> {
    UnitContext {
        connection,
        server: service.server(),
        scripts: &service.scripts,
        config,
        config_override: None,
        now,
        shard_count: service.router.shard_count(),
        permit: None,
    }
}

/// Returns the plan of a script of which earlier runs have shown that it needs more than its declared shards.
#[cold]
fn advised(advice: &Advice, named: impl Iterator<Item = u16>, router: Router) -> UnitPlan {
    let plan = match advice.is_wide {
        true => UnitPlan::with(0..router.shard_count()),
        false => {
            let foreseen = advice.keys.iter().map(|key| router.route(key).1);
            UnitPlan::with(named.chain(foreseen))
        }
    };
    plan.offloaded_if(advice.is_slow)
}

/// Tries a few times to lock the initial shards of a unit on this thread; returns `None` if that fails or the
/// unit must run on a separate thread.
fn take<'s>(shards: &'s Shards, plan: &UnitPlan) -> Option<ExtendableGuard<'s, Engine, Job>> {
    if plan.is_offloaded {
        return None;
    }
    for _ in 0..TRIES_ALL {
        if let Some(guard) = shards.try_take_all(&plan.shards) {
            return Some(guard);
        }
        (0..SPINS_ALL).for_each(|_| std::hint::spin_loop());
    }
    None
}
