//! A queued unit: a transaction or a script, with the connection that it works on.

use std::sync::Arc;

use super::Next;
use crate::script::library::Library;
use crate::shard::HeldShards;
use crate::shard::route::Router;
use crate::shard::unit::ExecutionUnit;
use crate::shard::unit::context::{UnitContext, UnitOutcome};
use crate::shard::unit::plan::UnitPlan;
use crate::shard::unit::transaction::Transaction;
use crate::telemetry::clock::{self, Ticks};
use basalt_commands::client::connection::Connection;
use basalt_commands::command::Out;
use basalt_commands::command::host::Server;
use basalt_commands::command::transaction::exec_abort;
use basalt_commands::config::Config;

/// A queued unit; see the module.
pub struct UnitJob {
    /// The queued commands.
    pub transaction: Transaction,
    /// The connection, which waits for the unit.
    pub connection: Connection,
    /// The server's functions that commands of the unit may call.
    pub server: &'static dyn Server,
    /// Scripts and functions.
    pub scripts: &'static Library,
    /// Limits and thresholds.
    pub config: Arc<Config>,
    /// The plan of the next run.
    pub plan: UnitPlan,
    /// The reply.
    pub out: Out,
    /// Results besides the reply, which the session processes after the run.
    pub outcome: UnitOutcome,
    /// Run time in nanoseconds, excluding the wait for shards.
    pub duration_ns: u64,
    /// The current time, if a simulation sets it.
    #[cfg(test)]
    pub now: Option<basalt_engine::Now>,
}

impl UnitJob {
    /// Runs the unit with its shards locked, at the present time.
    pub(super) fn run(
        &mut self,
        held: &mut HeldShards<'_>,
        router: Router,
        is_offloaded: bool,
    ) -> Next {
        let started = Ticks::now();
        let running = &self.scripts.running;
        let unit = match is_offloaded {
            true => ExecutionUnit::offloaded(held, router, &self.plan, running),
            false => ExecutionUnit::inline(held, router),
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

    /// Makes BUSY (`text`) the reply, because a script keeps the shards locked.
    pub(super) fn turn_away(&mut self, text: &'static str) {
        self.outcome.was_turned_away = true;
        self.outcome.was_refused = true;
        match self.transaction.is_lone() {
            true => self.out.error(text),
            false => self.out.error(exec_abort(text.as_bytes())),
        }
    }
}
