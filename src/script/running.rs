//! What runs on a thread of its own because it takes long: what SCRIPT KILL, FUNCTION KILL and FUNCTION STATS see.
//!
//! Knows no shard. A script that ends in time never comes here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::command::error::CommandError;
use crate::command::script::{Kind, RunningView};
use crate::telemetry::clock::Ticks;

/// What others are told while a script is past its time.
pub const BUSY_SCRIPT: &str =
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

/// The same of a function.
pub const BUSY_FUNCTION: &str =
    "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.";

const NOT_BUSY: &str = "NOTBUSY No scripts in execution right now.";

const UNKILLABLE: &str = "UNKILLABLE Sorry the script already executed write commands against the dataset. You can \
     either wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.";

/// One script that runs, as others see it.
pub struct Unit {
    /// What it is.
    pub kind: Kind,
    name: String,
    command: Vec<Vec<u8>>,
    since: Ticks,
    has_written: AtomicBool,
    is_killed: AtomicBool,
    is_busy: AtomicBool,
}

impl Unit {
    /// It has changed data: it must not be killed any more.
    pub fn note_write(&self) {
        self.has_written.store(true, Relaxed);
    }

    /// Whether somebody has killed it.
    pub fn is_killed(&self) -> bool {
        self.is_killed.load(Relaxed)
    }

    /// What others are told.
    pub fn busy_text(&self) -> &'static str {
        match self.kind {
            Kind::Script => BUSY_SCRIPT,
            Kind::Function => BUSY_FUNCTION,
        }
    }
}

/// What was unusual about the runs of scripts, since the start. Raised from any thread; how many shards they took is
/// counted by thread (`telemetry::counters`).
#[derive(Debug, Default)]
pub struct Runs {
    /// Shards that were got on the way.
    pub extended: AtomicU64,
    /// Undone and run again.
    pub reruns: AtomicU64,
    /// Those of them because of their time.
    pub slow: AtomicU64,
    /// Runs on threads of their own.
    pub apart: AtomicU64,
}

/// See the module.
#[derive(Default)]
pub struct Running {
    units: Mutex<Vec<Arc<Unit>>>,
    busy: AtomicUsize,
}

impl Running {
    /// A script begins on a thread of its own.
    pub fn begin(&self, kind: Kind, command: Vec<Vec<u8>>) -> Arc<Unit> {
        let name = command
            .get(1)
            .map(|name| String::from_utf8_lossy(name).into_owned());
        let unit = Arc::new(Unit {
            kind,
            name: name.unwrap_or_default(),
            command,
            since: Ticks::now(),
            has_written: AtomicBool::new(false),
            is_killed: AtomicBool::new(false),
            is_busy: AtomicBool::new(false),
        });
        self.units.lock().push(Arc::clone(&unit));
        unit
    }

    /// It is past its time; true if nobody had said so.
    pub fn note_busy(&self, unit: &Unit) -> bool {
        let is_new = !unit.is_busy.swap(true, Relaxed);
        if is_new {
            self.busy.fetch_add(1, Relaxed);
        }
        is_new
    }

    /// It is over.
    pub fn end(&self, unit: &Arc<Unit>) {
        self.units.lock().retain(|other| !Arc::ptr_eq(other, unit));
        if unit.is_busy.load(Relaxed) {
            self.busy.fetch_sub(1, Relaxed);
        }
    }

    /// Whether any script is past its time.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.busy.load(Relaxed) > 0
    }

    /// What others are told because of the script that is past its time.
    #[cold]
    pub fn busy_text(&self) -> Option<&'static str> {
        let units = self.units.lock();
        let unit = units.iter().find(|unit| unit.is_busy.load(Relaxed));
        unit.map(|unit| unit.busy_text())
    }

    /// Ends the script, or the function, that has run for longest and has changed nothing yet.
    pub fn kill(&self, what: Kind) -> Result<(), CommandError> {
        let units = self.units.lock();
        let Some(first) = units.first() else {
            return Err(NOT_BUSY.into());
        };
        let mut mine = units.iter().filter(|unit| unit.kind == what).peekable();
        if mine.peek().is_none() {
            return Err(first.busy_text().into());
        }
        let unit = mine.find(|unit| !unit.has_written.load(Relaxed) && !unit.is_killed());
        match unit {
            Some(unit) => {
                unit.is_killed.store(true, Relaxed);
                Ok(())
            }
            None => Err(UNKILLABLE.into()),
        }
    }

    /// The function that has run for longest.
    pub fn function(&self) -> Option<RunningView> {
        let units = self.units.lock();
        let unit = units.iter().find(|unit| unit.kind == Kind::Function)?;
        Some(RunningView {
            name: unit.name.clone(),
            command: unit.command.clone(),
            duration_ms: Ticks::now().since_ns(unit.since) / 1_000_000,
        })
    }
}
