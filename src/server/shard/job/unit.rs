//! A unit that queues: a transaction or a script, with the connection that it works on.

use std::sync::Arc;

use super::Next;
use crate::script::library::Library;
use crate::shard::HeldShards;
use crate::shard::route::Router;
use crate::shard::unit::Unit;
use crate::shard::unit::context::{UnitContext, UnitOutcome};
use crate::shard::unit::plan::UnitPlan;
use crate::shard::unit::transaction::Transaction;
use crate::telemetry::clock::{self, Ticks};
use basalt_commands::client::connection::Connection;
use basalt_commands::command::Out;
use basalt_commands::command::host::Server;
use basalt_commands::command::transaction::exec_abort;
use basalt_commands::config::Config;

/// See the module.
pub struct UnitJob {
    /// What is queued in it.
    pub transaction: Transaction,
    /// The connection, which waits meanwhile.
    pub connection: Connection,
    /// What steps may ask of the server.
    pub server: &'static dyn Server,
    /// Scripts and functions.
    pub scripts: &'static Library,
    /// Limits and thresholds.
    pub config: Arc<Config>,
    /// How it runs next.
    pub plan: UnitPlan,
    /// The reply.
    pub out: Out,
    /// What it left to be done.
    pub outcome: UnitOutcome,
    /// How long it ran, in nanoseconds, without the wait for its shards.
    pub duration_ns: u64,
    /// The moment, where a simulation says which.
    #[cfg(test)]
    pub now: Option<basalt_engine::Now>,
}

impl UnitJob {
    /// Runs it with its shards in hand, at the moment when it has them.
    pub(super) fn run(
        &mut self,
        held: &mut HeldShards<'_>,
        router: Router,
        is_offloaded: bool,
    ) -> Next {
        let started = Ticks::now();
        let running = &self.scripts.running;
        let unit = match is_offloaded {
            true => Unit::offloaded(held, router, &self.plan, running),
            false => Unit::inline(held, router),
        };
        let now = clock::now();
        #[cfg(test)]
        let now = self.now.unwrap_or(now);
        let context = UnitContext {
            connection: &mut self.connection,
            server: self.server,
            scripts: self.scripts,
            config: &self.config,
            config_override: None,
            now,
            shard_count: router.shard_count(),
            permit: self.transaction.permit,
        };
        let outcome = self
            .transaction
            .run(unit, context, &mut self.out, &mut self.plan);
        self.duration_ns += Ticks::now().since_ns(started);
        match outcome {
            Some(outcome) => {
                self.outcome = outcome;
                Next::Answer
            }
            None => Next::Again,
        }
    }

    /// Answers that a script is busy.
    pub(super) fn turn_away(&mut self, text: &'static str) {
        self.outcome.was_turned_away = true;
        self.outcome.was_refused = true;
        match self.transaction.is_lone() {
            true => self.out.error(text),
            false => self.out.error(exec_abort(text.as_bytes())),
        }
    }
}
