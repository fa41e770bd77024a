//! Registry of the units (scripts and transactions) that run on their own thread because they take long, for
//! SCRIPT KILL, FUNCTION KILL, FUNCTION STATS and SCRIPT STATS.
//!
//! This module knows no shards. A script that ends in time is never registered. Whether a script may be killed,
//! was killed, or has changed data is one atomic word of its [`RunningUnit`]: if a kill and a first write race, one of
//! them wins and the other learns of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::sha::{hex, sha1};
use crate::telemetry::clock::Ticks;
use basalt_commands::command::declaration::{Command, Run, ScriptVerb};
use basalt_commands::command::error::CommandError;
use basalt_commands::command::host::scripts::{
    ExecutionKind, FunctionRun, RunView, ScriptKillState,
};

/// Error for other clients while a script, or a transaction without one, exceeds its time.
pub const BUSY_SCRIPT: &str =
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

/// Error for other clients while a function exceeds its time.
pub const BUSY_FUNCTION: &str =
    "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.";

const NOT_BUSY: &str = "NOTBUSY No scripts in execution right now.";

const UNKILLABLE: &str = "UNKILLABLE Sorry the script already executed write commands against the dataset. You can \
     either wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.";

/// Values of [`RunningUnit::standing`]: it changes from `UNWRITTEN` to one of the other values, and keeps that.
const UNWRITTEN: u8 = 0;
const WROTE: u8 = 1;
const KILLED: u8 = 2;
const ROLLED_BACK: u8 = 3;

/// A script, or a transaction that runs no script at the moment, as seen by other threads.
pub struct RunningUnit {
    /// Kind of the unit: script or function.
    pub kind: ExecutionKind,
    command: &'static Command,
    arguments: Vec<Vec<u8>>,
    client: u64,
    since: Ticks,
    shards: Mutex<Vec<u16>>,
    standing: AtomicU8,
    is_busy: AtomicBool,
}

impl RunningUnit {
    /// Must be called before each command that may change data; returns whether the command may run. It may not
    /// run after a successful kill. After the first such command, the script can no longer be killed.
    #[must_use = "a script that was killed must not write"]
    #[inline]
    pub fn note_write(&self) -> bool {
        match self
            .standing
            .compare_exchange(UNWRITTEN, WROTE, Relaxed, Relaxed)
        {
            Ok(_) => true,
            Err(standing) => standing != KILLED,
        }
    }

    /// True after a successful kill, so that the script has to end.
    pub fn is_killed(&self) -> bool {
        self.standing.load(Relaxed) == KILLED
    }

    /// Must be called before the unit is rolled back to run again; returns whether it may run again. After a
    /// successful kill it may not, and the script ends. Later kills do not apply to this run.
    #[must_use = "a script that was killed must not begin anew"]
    pub fn note_rollback(&self) -> bool {
        let standing = &self.standing;
        match standing.compare_exchange(UNWRITTEN, ROLLED_BACK, Relaxed, Relaxed) {
            Ok(_) => true,
            Err(standing) => standing != KILLED,
        }
    }

    /// Sets which shards are locked, in ascending order.
    pub fn set_shards(&self, shards: &[u16]) {
        let mut known = self.shards.lock();
        known.clear();
        known.extend_from_slice(shards);
    }

    /// Returns the error for other clients.
    pub fn busy_text(&self) -> &'static str {
        match self.kind {
            ExecutionKind::Script | ExecutionKind::Transaction => BUSY_SCRIPT,
            ExecutionKind::Function => BUSY_FUNCTION,
        }
    }

    /// Kills the unit, unless it has changed data; returns the outcome.
    fn kill(&self) -> Killed {
        if self.kind == ExecutionKind::Transaction {
            return Killed::No;
        }
        match self
            .standing
            .compare_exchange(UNWRITTEN, KILLED, Relaxed, Relaxed)
        {
            Ok(_) => Killed::Now,
            Err(KILLED) => Killed::Before,
            Err(_) => Killed::No,
        }
    }

    /// Kills the unit in a rerun, because it was killed in an earlier run that was rolled back.
    pub fn kill_again(&self) {
        self.standing.store(KILLED, Relaxed);
    }

    /// Logs that the unit takes long, in the words that tools look for; only once for each script.
    fn log_slow(&self) {
        let stop = match self.kind {
            ExecutionKind::Script => "SCRIPT KILL",
            ExecutionKind::Function => "FUNCTION KILL",
            ExecutionKind::Transaction => return,
        };
        tracing::warn!(
            "Slow script detected: still in execution after {} milliseconds. {stop} can stop it. Script name: {}",
            self.duration_ms(),
            String::from_utf8_lossy(&self.name())
        );
    }

    fn duration_ms(&self) -> u64 {
        Ticks::now().since_ns(self.since) / 1_000_000
    }

    /// Returns the function, the SHA-1 of the script, or the command's name.
    fn name(&self) -> Vec<u8> {
        let named = self.arguments.get(1).map_or(&[][..], Vec::as_slice);
        match self.command.run {
            Run::Script(ScriptVerb::Eval | ScriptVerb::EvalRo) => hex(&sha1(named)).to_vec(),
            Run::Script(ScriptVerb::EvalSha | ScriptVerb::EvalShaRo) => named.to_ascii_lowercase(),
            Run::Script(ScriptVerb::Fcall | ScriptVerb::FcallRo) => named.to_vec(),
            _ => self.command.full_name.as_bytes().to_vec(),
        }
    }

    fn view(&self) -> RunView {
        RunView {
            kind: self.kind,
            name: self.name(),
            client: self.client,
            duration_ms: self.duration_ms(),
            shards: self.shards.lock().clone(),
            standing: match (self.kind, self.standing.load(Relaxed)) {
                (ExecutionKind::Transaction, _) | (_, WROTE) => ScriptKillState::Wrote,
                (_, KILLED) => ScriptKillState::Killed,
                _ => ScriptKillState::Killable,
            },
        }
    }
}

/// Effect of a kill on one unit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Killed {
    Now,
    /// The unit was already killed before, and is about to end.
    Before,
    /// The unit has changed data and cannot be killed.
    No,
}

/// Counters of script runs that needed more shards, were repeated or slow, since the start. Any thread
/// increments them. Runs by the number of shards are counted per thread instead (`telemetry::counters`).
#[derive(Debug, Default)]
pub struct Runs {
    /// Shards that scripts locked while running.
    pub extended: AtomicU64,
    /// Rollbacks after which the unit ran again.
    pub reruns: AtomicU64,
    /// Rollbacks because the unit took too long.
    pub slow: AtomicU64,
    /// Runs on their own thread.
    pub apart: AtomicU64,
}

/// The units that run on their own threads.
#[derive(Default)]
pub struct RunningUnits {
    units: Mutex<Vec<Arc<RunningUnit>>>,
    busy: AtomicUsize,
}

impl RunningUnits {
    /// Registers a script or transaction of a client that begins on its own thread.
    pub fn begin(
        &self,
        command: &'static Command,
        arguments: Vec<Vec<u8>>,
        client: u64,
    ) -> Arc<RunningUnit> {
        let unit = Arc::new(RunningUnit {
            kind: ExecutionKind::of(command),
            command,
            arguments,
            client,
            since: Ticks::now(),
            shards: Mutex::default(),
            standing: AtomicU8::new(UNWRITTEN),
            is_busy: AtomicBool::new(false),
        });
        self.units.lock().push(Arc::clone(&unit));
        unit
    }

    /// Records that a unit exceeds its time limit; returns true if this was not recorded before.
    pub fn note_busy(&self, unit: &RunningUnit) -> bool {
        let is_new = !unit.is_busy.swap(true, Relaxed);
        if is_new {
            self.busy.fetch_add(1, Relaxed);
            unit.log_slow();
        }
        is_new
    }

    /// Removes a finished unit.
    pub fn end(&self, unit: &Arc<RunningUnit>) {
        self.units.lock().retain(|other| !Arc::ptr_eq(other, unit));
        if unit.is_busy.load(Relaxed) {
            self.busy.fetch_sub(1, Relaxed);
        }
    }

    /// True if any unit exceeds its time limit.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.busy.load(Relaxed) > 0
    }

    /// Returns the error for other clients if a unit exceeds its time limit; otherwise `None`.
    #[cold]
    pub fn busy_text(&self) -> Option<&'static str> {
        let units = self.units.lock();
        let unit = units.iter().find(|unit| unit.is_busy.load(Relaxed));
        unit.map(|unit| unit.busy_text())
    }

    fn all(&self) -> Vec<Arc<RunningUnit>> {
        self.units.lock().clone()
    }

    /// Kills all scripts, or all functions, that have not changed data yet. Returns an error if no such unit runs.
    pub fn kill(&self, what: ExecutionKind) -> Result<(), CommandError> {
        let mut units = self.all();
        units.retain(|unit| unit.standing.load(Relaxed) != ROLLED_BACK);
        if units.is_empty() {
            return Err(NOT_BUSY.into());
        }
        let mut ends_any = false;
        for unit in units.iter().filter(|unit| unit.kind == what) {
            let killed = unit.kill();
            ends_any |= killed != Killed::No;
            if killed == Killed::Now {
                note_killed(&unit.view());
            }
        }
        if ends_any {
            return Ok(());
        }
        // In the order of Redis's checks: first for writes, then for the kind.
        let is_killable = |unit: &&Arc<RunningUnit>| unit.view().standing != ScriptKillState::Wrote;
        match units.iter().find(is_killable) {
            Some(other) if other.kind != what => Err(other.busy_text().into()),
            _ => Err(UNKILLABLE.into()),
        }
    }

    /// Returns the function that has run for longest.
    pub fn function(&self) -> Option<FunctionRun> {
        let units = self.all();
        let unit = units
            .iter()
            .find(|unit| unit.kind == ExecutionKind::Function)?;
        Some(FunctionRun {
            name: String::from_utf8_lossy(&unit.name()).into_owned(),
            command: unit.arguments.clone(),
            duration_ms: unit.duration_ms(),
        })
    }

    /// Returns all units, in the order in which they began.
    pub fn views(&self) -> Vec<RunView> {
        self.all().iter().map(|unit| unit.view()).collect()
    }
}

#[cold]
fn note_killed(view: &RunView) {
    tracing::warn!(
        "Killed the {} {} of client {} after {} ms",
        view.kind.name(),
        String::from_utf8_lossy(&view.name),
        view.client,
        view.duration_ms
    );
}

#[cfg(test)]
mod tests;
