//! Units that run on their own thread because they take long, for SCRIPT KILL, FUNCTION KILL, FUNCTION STATS and
//! SCRIPT STATS.
//!
//! Knows no shards. A script that ends in time never gets here. Whether a script may be killed, was killed, or has
//! changed data is one atomic word of its [`RunningUnit`]: if a kill and a first write race, one wins and the other one is
//! notified.

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

/// Values of [`RunningUnit::standing`]: it changes from the first to one of the others, and stays there.
const UNWRITTEN: u8 = 0;
const WROTE: u8 = 1;
const KILLED: u8 = 2;
const ROLLED_BACK: u8 = 3;

/// A script, or a transaction that runs no script at the moment, as seen by others.
pub struct RunningUnit {
    /// Kind of the unit.
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
    /// Must be called before each command that may change data; returns whether it may run. It may not after a
    /// successful kill; after the first such command, the script can no longer be killed.
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

    /// Must be called before the run is rolled back to restart; returns whether it may. After a successful kill it
    /// may not, and the script ends; later kills do not find it.
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

    /// Kills the unit because it was killed in a run that was rolled back.
    pub fn kill_again(&self) {
        self.standing.store(KILLED, Relaxed);
    }

    /// Logs that the unit takes long, in the words that tools look for; once for each script.
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
    /// Another kill was faster; the unit is about to end.
    Before,
    /// The unit has changed data and cannot be killed.
    No,
}

/// Counters of unusual script runs since the start. Incremented by any thread; the number of shards they used is
/// counted per thread (`telemetry::counters`).
#[derive(Debug, Default)]
pub struct Runs {
    /// Shards locked on the way.
    pub extended: AtomicU64,
    /// Rollbacks with another run.
    pub reruns: AtomicU64,
    /// Reruns because of the time that the unit took.
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

    /// Notes that a unit exceeds its time; returns true for the first note.
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

    /// True if any unit exceeds its time.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.busy.load(Relaxed) > 0
    }

    /// Returns the error for other clients about a unit that exceeds its time.
    #[cold]
    pub fn busy_text(&self) -> Option<&'static str> {
        let units = self.units.lock();
        let unit = units.iter().find(|unit| unit.is_busy.load(Relaxed));
        unit.map(|unit| unit.busy_text())
    }

    fn all(&self) -> Vec<Arc<RunningUnit>> {
        self.units.lock().clone()
    }

    /// Kills all scripts, or all functions, that have changed nothing yet. Errs if there are none.
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
        // Redis first checks for writes, and then the kind.
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
mod tests {
    use super::*;
    use basalt_commands::command::registry::registry;

    fn begin(running: &RunningUnits, words: &[&str], client: u64) -> Arc<RunningUnit> {
        let command = registry().find(words[0].as_bytes()).expect("a command");
        let arguments = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        running.begin(command, arguments, client)
    }

    fn text(result: Result<(), CommandError>) -> String {
        match result {
            Ok(()) => "OK".to_owned(),
            Err(error) => error
                .text()
                .into_owned()
                .split(' ')
                .next()
                .unwrap_or("")
                .to_owned(),
        }
    }

    #[test]
    fn a_kill_ends_all_scripts_that_have_changed_nothing() {
        let running = RunningUnits::default();
        assert_eq!(text(running.kill(ExecutionKind::Script)), "NOTBUSY");
        let scripts: Vec<_> = (1..4)
            .map(|client| begin(&running, &["eval", "while true do end", "0"], client))
            .collect();
        let function = begin(&running, &["fcall", "f", "0"], 9);
        assert!(scripts[1].note_write() && scripts[1].note_write());
        assert_eq!(text(running.kill(ExecutionKind::Script)), "OK");
        let killed: Vec<bool> = scripts.iter().map(|unit| unit.is_killed()).collect();
        assert_eq!(killed, [true, false, true]);
        assert!(!function.is_killed());
        assert!(!scripts[0].note_write() && scripts[1].note_write());
        // The killed scripts are about to end.
        assert_eq!(text(running.kill(ExecutionKind::Script)), "OK");
        running.end(&scripts[0]);
        running.end(&scripts[2]);
        // The one that is left has written; Redis would name the function then.
        assert_eq!(text(running.kill(ExecutionKind::Script)), "BUSY");
        assert_eq!(text(running.kill(ExecutionKind::Function)), "OK");
        running.end(&function);
        assert_eq!(text(running.kill(ExecutionKind::Script)), "UNKILLABLE");
        assert_eq!(text(running.kill(ExecutionKind::Function)), "UNKILLABLE");
        running.end(&scripts[1]);
        assert_eq!(text(running.kill(ExecutionKind::Script)), "NOTBUSY");
    }

    #[test]
    fn of_a_kill_and_a_first_write_that_meet_one_wins() {
        for _ in 0..if cfg!(miri) { 5 } else { 2_000 } {
            let running = RunningUnits::default();
            let unit = begin(&running, &["eval", "x", "0"], 1);
            let (wrote, killed) = std::thread::scope(|scope| {
                let writer = scope.spawn(|| unit.note_write());
                let killed = text(running.kill(ExecutionKind::Script)) == "OK";
                (writer.join().expect("no panic"), killed)
            });
            assert_ne!(wrote, killed, "one of both");
            assert_eq!(unit.is_killed(), killed);
        }
    }

    #[test]
    fn a_kill_holds_for_a_run_that_was_about_to_be_rolled_back() {
        let running = RunningUnits::default();
        let unit = begin(&running, &["eval", "x", "0"], 1);
        assert_eq!(text(running.kill(ExecutionKind::Script)), "OK");
        assert!(!unit.note_rollback(), "it would run again");
        running.end(&unit);
        let unit = begin(&running, &["eval", "x", "0"], 1);
        assert!(unit.note_rollback());
        assert_eq!(text(running.kill(ExecutionKind::Script)), "NOTBUSY");
        assert!(!unit.is_killed());
        // Earlier writes are rolled back with the rest.
        let unit = begin(&running, &["eval", "x", "0"], 1);
        assert!(unit.note_write() && unit.note_rollback());
    }

    #[test]
    fn a_transaction_is_shown_and_busy_and_can_not_be_killed() {
        let running = RunningUnits::default();
        let unit = begin(&running, &["exec"], 7);
        unit.set_shards(&[1, 2]);
        assert!(running.note_busy(&unit) && !running.note_busy(&unit));
        assert_eq!(running.busy_text(), Some(BUSY_SCRIPT));
        for what in [ExecutionKind::Script, ExecutionKind::Function] {
            assert_eq!(text(running.kill(what)), "UNKILLABLE");
        }
        assert!(unit.note_write());
        let views = running.views();
        let [view] = views.as_slice() else {
            panic!("one runs: {views:?}");
        };
        assert_eq!((view.kind, view.client), (ExecutionKind::Transaction, 7));
        assert_eq!(
            (&view.shards[..], &view.name[..]),
            (&[1, 2][..], &b"exec"[..])
        );
        running.end(&unit);
        assert!(!running.is_busy() && running.views().is_empty());
    }

    #[test]
    fn a_script_is_named_by_its_sha1_and_a_function_by_its_name() {
        let running = RunningUnits::default();
        let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        let upper = sha.to_ascii_uppercase();
        for words in [
            ["eval", "return 1", "0"],
            ["eval_ro", "return 1", "0"],
            ["evalsha", &upper, "0"],
            ["fcall", "Count", "0"],
        ] {
            begin(&running, &words, 1);
        }
        let views = running.views();
        let names: Vec<_> = views.iter().map(|view| &view.name[..]).collect();
        let sha = sha.as_bytes();
        assert_eq!(names, [sha, sha, sha, b"Count"]);
        let function = running.function().expect("one runs");
        assert_eq!((&*function.name, function.command.len()), ("Count", 3));
    }
}
