//! What the steps of a unit run with, and what they leave to be done.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::script::library::Library;
use crate::shard::permit::Permit;
use crate::telemetry::counters::{self, Spent, Tally};
use crate::telemetry::slow::{SlowNotes, SlowStep};
use basalt_commands::client::connection::Connection;
use basalt_commands::client::shared::Settings;
use basalt_commands::command::Args;
use basalt_commands::command::context::After;
use basalt_commands::command::declaration::Command;
use basalt_commands::command::host::Server;
use basalt_commands::config::Config;
use basalt_core::resp::reply::Mark;
use basalt_engine::Now;
use basalt_engine::effect::Publication;
use basalt_engine::record::Records;

/// What a unit runs with besides its shards.
pub struct UnitContext<'a> {
    /// The connection, whose database a step may change.
    pub connection: &'a mut Connection,
    /// What steps may ask of the server.
    pub server: &'static dyn Server,
    /// Scripts and functions.
    pub scripts: &'static Library,
    /// Limits and thresholds.
    pub config: &'a Arc<Config>,
    /// Limits and thresholds that a step has set in place of them.
    pub config_override: Option<Arc<Config>>,
    /// The moment.
    pub now: Now,
    /// Shards of the server.
    pub shard_count: u16,
    /// How it was admitted, in a cluster.
    pub permit: Option<Permit>,
}

impl UnitContext<'_> {
    /// Limits and thresholds as the steps before have left them.
    pub fn config(&self) -> &Arc<Config> {
        self.config_override.as_ref().unwrap_or(self.config)
    }

    /// Lets CLIENT LIST see what steps made of the connection.
    pub fn publish(&self) {
        let Connection {
            shared,
            db,
            protocol,
            ..
        } = &*self.connection;
        shared.db.store(*db as u32, Relaxed);
        shared.resp.store(protocol.version(), Relaxed);
    }
}

/// A command that a script called, for MONITOR.
pub struct ScriptCall {
    /// The number of the script among the steps of the unit.
    pub step: usize,
    /// The database.
    pub db: usize,
    /// What was called.
    pub arguments: Vec<Vec<u8>>,
}

/// What few units leave to be done.
#[derive(Default)]
pub struct UnitNotes {
    /// The error replies of steps, for the statistics.
    pub errors: Vec<Vec<u8>>,
    /// Steps that answered with an error, and which, where another server has run the unit, or this one before.
    pub failed: Vec<(usize, Vec<u8>)>,
    /// What took long for the slow log or the latency monitor.
    pub slow: SlowNotes,
    /// The steps that are sampled for hot keys, with their nanoseconds and the bytes of their replies.
    pub sampled: Vec<(usize, u64, usize)>,
    /// What scripts called, while there are monitors.
    pub script_calls: Vec<ScriptCall>,
    /// Steps that run when the shards are let go, with the places of their replies.
    pub postponed: Vec<(usize, Mark)>,
    /// What the connection had set before a step that may have changed it.
    pub settings_before: Option<Settings>,
}

/// What a run leaves to be done besides its reply.
#[derive(Default)]
pub struct UnitOutcome {
    /// Whether the commands were run at all: no watched key had changed.
    pub was_run: bool,
    /// The unit was not run, for want of memory or because a script is busy; the reply says so.
    pub was_refused: bool,
    /// A script held its shards for too long. What it watched is watched still.
    pub was_turned_away: bool,
    /// What a step wants the session to do.
    pub after: After,
    /// What is to be published when the unit commits.
    pub publications: Vec<Publication>,
    /// Commands that ran, with those that scripts called.
    pub command_count: u64,
    /// What its commands without keys leave in the log.
    pub records: Records,
    /// The unit is a script that no transaction runs.
    pub is_lone: bool,
    /// The position in the log behind what it did, if that was appended before its end.
    pub log_position: Option<u64>,
    /// What is yet to be counted of the unit's commands, and of those that its scripts called.
    pub tally: Tally,
    /// The unit may be rolled back yet, so that nothing of it is counted.
    pub is_open: bool,
    /// The database that the first command ran in.
    pub db: usize,
    /// The commands that chose another database, and which: it is that of the following ones, too.
    pub selections: Vec<(usize, usize)>,
    /// The number of the command that is running.
    pub step: usize,
    /// A script that is no transaction's answered with an error.
    pub failed: bool,
    /// The command under way may say that it takes too long here, and has the unit rolled back and offloaded.
    pub may_offload: bool,
    /// The command under way has said so, and did nothing.
    pub offloads: bool,
    /// What most units have none of.
    pub notes: Option<Box<UnitNotes>>,
}

impl UnitOutcome {
    /// The notes, made if there are none.
    #[cold]
    pub fn notes(&mut self) -> &mut UnitNotes {
        self.notes.get_or_insert_default()
    }

    /// A step that was postponed has answered with an error.
    #[cold]
    pub fn note_failure(&mut self, step: usize, reply: Vec<u8>, has_run_before: bool) {
        let notes = self.notes();
        if has_run_before {
            notes.failed.push((step, reply.clone()));
        }
        notes.errors.push(reply);
    }

    /// Keeps what a step is about to change of what the connection has set for itself, which is rolled back with the
    /// unit.
    #[cold]
    pub fn keep_settings(&mut self, connection: &Connection) {
        let before = &mut self.notes().settings_before;
        before.get_or_insert_with(|| connection.shared.settings());
    }

    /// Counts the step under way, which has run.
    pub fn note(&mut self, command: &'static Command, spent: Spent, cx: &UnitContext<'_>) {
        let duration_ns = spent.duration_ns;
        self.command_count += 1;
        match self.is_open {
            true => self.tally.ran(command, spent),
            false => counters::local()
                .command(command)
                .ran(duration_ns, spent.failed),
        }
        self.note_slow(SlowStep::of(
            self.step,
            duration_ns,
            (cx.config(), cx.server),
        ));
    }

    /// Keeps the time of a step that took long.
    #[inline]
    pub fn note_slow(&mut self, slow: Option<SlowStep>) {
        if let Some(step) = slow {
            self.notes().slow.note(step);
        }
    }

    /// Counts a command that a script called, once the unit is done, and keeps its time as that of a step.
    #[inline]
    pub fn note_call(
        &mut self,
        command: &'static Command,
        args: &Args<'_>,
        spent: Spent,
        cx: &UnitContext<'_>,
    ) {
        self.command_count += 1;
        self.tally.ran(command, spent);
        let config = cx.config();
        if let Some(slow) = SlowStep::of(self.step, spent.duration_ns, (config, cx.server)) {
            let notes = &mut self.notes().slow;
            notes.note_call(command, args, slow, config);
        }
    }

    /// Whether a step runs, and counts, when the shards are let go.
    pub fn is_postponed(&self, step: usize) -> bool {
        let postponed = self.notes.iter().flat_map(|notes| &notes.postponed);
        postponed.last().is_some_and(|(last, _)| *last == step)
    }

    /// The unit is done: what was put off is counted.
    pub fn close(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.tally.count(counters::local());
        }
    }
}
