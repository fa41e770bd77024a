//! What the data path counts: plain figures per thread, summed when somebody asks.
//!
//! Each thread that runs commands has its own [`ThreadCounters`], written by it alone with relaxed loads and stores.
//! They are never freed, so that nothing counted is lost when a thread ends.

use std::cell::Cell;
use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::base::counter::Counter;
use crate::command::declaration::Command;
use crate::command::table::registry;
use crate::telemetry::hotkeys::Lists;

/// Latency buckets: bucket `i` holds durations up to 2^(i + 10) ns, the last one everything above.
pub const BUCKETS: usize = 32;

/// One command's figures.
#[derive(Debug, Default)]
pub struct CommandCounters {
    /// Runs.
    pub calls: Counter,
    /// Time of all runs.
    pub duration_ns: Counter,
    /// Refused before they ran.
    pub rejected: Counter,
    /// Ran and answered with an error.
    pub failed: Counter,
    histogram: OnceLock<Box<[Counter; BUCKETS]>>,
}

impl CommandCounters {
    /// Counts a run.
    #[inline]
    pub fn ran(&self, duration_ns: u64, failed: bool) {
        self.calls.add(1);
        self.duration_ns.add(duration_ns);
        self.failed.add(u64::from(failed));
        let bucket = (64 - (duration_ns >> 10).leading_zeros() as usize).min(BUCKETS - 1);
        self.histogram.get_or_init(Box::default)[bucket].add(1);
    }

    /// Runs by duration, if there were any.
    pub fn histogram(&self) -> Option<&[Counter; BUCKETS]> {
        self.histogram.get().map(|buckets| &**buckets)
    }

    /// CONFIG RESETSTAT.
    fn reset(&self) {
        for counter in [&self.calls, &self.duration_ns, &self.rejected, &self.failed] {
            counter.set(0);
        }
        for counter in self.histogram().into_iter().flatten() {
            counter.set(0);
        }
    }
}

/// One thread's figures.
#[derive(Debug)]
pub struct ThreadCounters {
    commands: Box<[CommandCounters]>,
    /// Commands before the next one that is looked at for hot keys.
    pub until_sample: Counter,
    /// What was seen of hot keys.
    pub hot: Mutex<Option<Lists>>,
    /// Bytes received.
    pub bytes_in: Counter,
    /// Bytes sent.
    pub bytes_out: Counter,
    /// Reads that found something.
    pub reads: Counter,
    /// Writes.
    pub writes: Counter,
    /// Most commands that were run between a read and the next.
    pub most_commands: Counter,
}

impl ThreadCounters {
    fn new() -> ThreadCounters {
        ThreadCounters {
            commands: registry()
                .all()
                .iter()
                .map(|_| CommandCounters::default())
                .collect(),
            until_sample: Counter::new(),
            hot: Mutex::new(None),
            bytes_in: Counter::new(),
            bytes_out: Counter::new(),
            reads: Counter::new(),
            writes: Counter::new(),
            most_commands: Counter::new(),
        }
    }

    /// So many commands are run before the next read.
    #[inline]
    pub fn note_turn(&self, commands: usize) {
        let commands = commands as u64;
        if commands > self.most_commands.get() {
            self.most_commands.set(commands);
        }
    }

    /// A command's figures.
    #[inline]
    pub fn command(&self, command: &Command) -> &CommandCounters {
        &self.commands[command.id()]
    }

    /// Whether the command that just ran is to be looked at for hot keys.
    #[inline]
    pub fn takes_sample(&self) -> bool {
        let left = self.until_sample.get();
        self.until_sample.set(left.wrapping_sub(1));
        left == 0
    }

    /// Time of all runs of all commands.
    pub fn duration_ns(&self) -> u64 {
        self.commands
            .iter()
            .map(|command| command.duration_ns.get())
            .sum()
    }

    /// Runs of all commands.
    pub fn calls(&self) -> u64 {
        self.commands
            .iter()
            .map(|command| command.calls.get())
            .sum()
    }

    /// The figures of the command with this id.
    pub fn command_by_id(&self, id: usize) -> &CommandCounters {
        &self.commands[id]
    }
}

static ALL: Mutex<Vec<&'static ThreadCounters>> = Mutex::new(Vec::new());

thread_local! {
    static LOCAL: Cell<Option<&'static ThreadCounters>> = const { Cell::new(None) };
}

/// The calling thread's figures.
#[inline]
pub fn local() -> &'static ThreadCounters {
    LOCAL.get().unwrap_or_else(register)
}

#[cold]
fn register() -> &'static ThreadCounters {
    let counters: &'static ThreadCounters = Box::leak(Box::new(ThreadCounters::new()));
    ALL.lock().push(counters);
    LOCAL.set(Some(counters));
    counters
}

/// The figures of all threads that ever counted.
pub fn all() -> Vec<&'static ThreadCounters> {
    ALL.lock().clone()
}

/// CONFIG RESETSTAT: zeroes everything. A thread that counts at this moment may keep its last addition.
pub fn reset() {
    for thread in all() {
        thread.commands.iter().for_each(CommandCounters::reset);
        for counter in [
            &thread.bytes_in,
            &thread.bytes_out,
            &thread.reads,
            &thread.writes,
            &thread.most_commands,
        ] {
            counter.set(0);
        }
    }
}
