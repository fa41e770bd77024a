//! The context of a unit's steps (its commands), and the results that remain for the session after a run.

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
use basalt_core::resp::reply::OpenAggregate;
use basalt_engine::Now;
use basalt_engine::effect::Publication;
use basalt_engine::record::Records;

/// The context of a unit besides its shards.
pub struct UnitContext<'a> {
    /// The connection, whose database a step may change.
    pub connection: &'a mut Connection,
    /// The server's functions that steps may call.
    pub server: &'static dyn Server,
    /// Scripts and functions.
    pub scripts: &'static Library,
    /// Limits and thresholds.
    pub config: &'a Arc<Config>,
    /// Limits and thresholds set by a step, in place of `config`.
    pub config_override: Option<Arc<Config>>,
    /// The current time.
    pub now: Now,
    /// Number of shards of the server.
    pub shard_count: u16,
    /// The permit, in a cluster.
    pub permit: Option<Permit>,
}

impl UnitContext<'_> {
    /// Returns the limits and thresholds as set by earlier steps.
    pub fn config(&self) -> &Arc<Config> {
        self.config_override.as_ref().unwrap_or(self.config)
    }

    /// Publishes the connection's database and protocol for CLIENT LIST.
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
    /// Index of the script among the steps of the unit.
    pub step: usize,
    /// Index of the database.
    pub db: usize,
    /// The command and its arguments.
    pub arguments: Vec<Vec<u8>>,
}

/// Results that only few units have.
#[derive(Default)]
pub struct UnitNotes {
    /// The error replies of steps, for the statistics.
    pub errors: Vec<Vec<u8>>,
    /// Failed steps with their error replies, if the unit is replayed, that is, had succeeded before, here or
    /// on another server.
    pub failed: Vec<(usize, Vec<u8>)>,
    /// Slow steps and slow calls of scripts, for the slow log and the latency monitor.
    pub slow: SlowNotes,
    /// Steps sampled for hot keys, with their nanoseconds and the bytes of their replies.
    pub sampled: Vec<(usize, u64, usize)>,
    /// Commands that scripts called, while there are MONITOR clients.
    pub script_calls: Vec<ScriptCall>,
    /// Steps that run after the shards are released, with the positions of their replies.
    pub postponed: Vec<(usize, OpenAggregate)>,
    /// Settings of the connection as before the first step that may have changed them, for a rollback.
    pub settings_before: Option<Settings>,
}

/// Results of a run besides its reply.
#[derive(Default)]
pub struct UnitOutcome {
    /// True if the commands were run: no watched key had changed.
    pub was_run: bool,
    /// True if the unit was not run, because memory is exhausted, a script is busy, or another node has the
    /// slot; the reply is the error.
    pub was_refused: bool,
    /// True if the unit was not run because a script keeps the unit's shards locked for too long (BUSY). The
    /// watched keys are still watched.
    pub was_turned_away: bool,
    /// The action that a step requests of the session.
    pub after: After,
    /// Messages to publish when the unit commits.
    pub publications: Vec<Publication>,
    /// Number of commands that ran, including those called by scripts.
    pub command_count: u64,
    /// Log records of the unit's commands without keys.
    pub records: Records,
    /// True if the unit is a script outside a transaction.
    pub is_lone: bool,
    /// The log position after the unit's records, if these were appended before the unit's end.
    pub log_position: Option<u64>,
    /// Deferred counts of the unit's commands, and of those called by scripts.
    pub tally: Tally,
    /// True while the unit may still be rolled back, so that its commands must not be counted yet.
    pub is_open: bool,
    /// The database of the first command.
    pub db: usize,
    /// Commands that selected another database: the index of the command, and the database, which later
    /// commands also use.
    pub selections: Vec<(usize, usize)>,
    /// Index of the running command in the unit.
    pub step: usize,
    /// True if a script outside a transaction replied with an error.
    pub failed: bool,
    /// True if the current command may ask to be offloaded as too slow, which rolls the unit back.
    pub may_offload: bool,
    /// True if the current command has asked to be offloaded, and did nothing.
    pub offloads: bool,
    /// Results that only few units have.
    pub notes: Option<Box<UnitNotes>>,
}

impl UnitOutcome {
    /// Returns the notes, creating them if they do not exist yet.
    #[cold]
    pub fn notes(&mut self) -> &mut UnitNotes {
        self.notes.get_or_insert_default()
    }

    /// Records the error reply of a postponed step.
    #[cold]
    pub fn note_failure(&mut self, step: usize, reply: Vec<u8>, has_run_before: bool) {
        let notes = self.notes();
        if has_run_before {
            notes.failed.push((step, reply.clone()));
        }
        notes.errors.push(reply);
    }

    /// Saves the connection's settings before a step that may change them, for a rollback.
    #[cold]
    pub fn keep_settings(&mut self, connection: &Connection) {
        let before = &mut self.notes().settings_before;
        before.get_or_insert_with(|| connection.shared.settings());
    }

    /// Counts the current step, which has run.
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

    /// Records the time of a slow step.
    #[inline]
    pub fn note_slow(&mut self, slow: Option<SlowStep>) {
        if let Some(step) = slow {
            self.notes().slow.note(step);
        }
    }

    /// Counts a command that a script called (the count takes effect when the unit commits), and records the
    /// command if it was slow.
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

    /// Returns whether a step is postponed until the shards are released; it is counted then, too.
    pub fn is_postponed(&self, step: usize) -> bool {
        let postponed = self.notes.iter().flat_map(|notes| &notes.postponed);
        postponed.last().is_some_and(|(last, _)| *last == step)
    }

    /// Adds the deferred counts to the thread's counters, when the unit has ended.
    pub fn close(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.tally.count(counters::local());
        }
    }
}
