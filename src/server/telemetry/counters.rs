//! Counters of the data path: plain integers per thread, summed when they are read.
//!
//! Each thread that runs commands has its own [`ThreadCounters`], which only it writes, with relaxed loads and
//! stores. They are never freed, so that counts survive the end of their thread.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::telemetry::hot_lists::Lists;
use crate::telemetry::sizes::{self, CommandSizes, ThreadSizes};
use basalt_commands::command::declaration::Command;
use basalt_commands::command::registry::registry;
use basalt_core::base::counter::Counter;
use basalt_core::structures::copies::Validity;

/// Number of latency buckets: bucket `i` holds durations up to 2^(i + 10) ns, the last one everything above.
pub const BUCKETS: usize = 32;

#[inline]
fn bucket_of(duration_ns: u64) -> usize {
    (64 - (duration_ns >> 10).leading_zeros() as usize).min(BUCKETS - 1)
}

/// Duration and outcome of one run of a command.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// Duration of the run.
    pub duration_ns: u64,
    /// Whether the command returned an error.
    pub failed: bool,
}

/// Kinds of units. A unit is a transaction (MULTI … EXEC) or a script, which locks all its shards at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitKind {
    /// EVAL, EVALSHA or FCALL outside a transaction.
    Script,
    /// EXEC, with or without scripts.
    Transaction,
}

/// The number of shards that a unit had locked when it finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockExtent {
    /// At most one shard.
    One,
    /// More than one, but not all.
    Several,
    /// All, of more than one.
    All,
}

impl LockExtent {
    /// Returns the extent of a unit that has locked `in_hand` of `count` shards.
    pub fn of(in_hand: usize, count: u16) -> LockExtent {
        match in_hand {
            0 | 1 => LockExtent::One,
            all if all >= usize::from(count) => LockExtent::All,
            _ => LockExtent::Several,
        }
    }
}

/// Number of finished units, by the number of shards that they had locked ([`LockExtent`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extents {
    /// Runs on at most one shard.
    pub one: u64,
    /// Runs on several, but not all, shards.
    pub several: u64,
    /// Runs on all shards.
    pub all: u64,
}

/// Command runs that a [`Tally`] keeps individually before it aggregates them by command.
const RUNS_MAX: usize = 4_096;

/// Command counts of a unit, which are added to the thread's counters when the unit commits and discarded if it
/// is rolled back. The tally's memory is bounded by a few hundred bytes per distinct command.
#[derive(Default)]
pub struct Tally {
    runs: Vec<(&'static Command, Spent)>,
    /// Runs beyond `RUNS_MAX`, aggregated by command; only long units have any.
    sums: Option<BTreeMap<usize, Box<CommandTotals>>>,
}

/// Largest capacity, in runs, of a buffer that a thread keeps for reuse.
const SPARE_MAX: usize = 64;

thread_local! {
    /// A reusable buffer for the runs of a unit.
    static SPARE: Cell<Vec<(&'static Command, Spent)>> = const { Cell::new(Vec::new()) };
}

/// Aggregated runs of one command.
#[derive(Debug, Default)]
struct CommandTotals {
    calls: u64,
    duration_ns: u64,
    failed: u64,
    rejected: u64,
    histogram: [u64; BUCKETS],
}

impl Tally {
    /// Records one run of a command.
    #[inline]
    pub fn ran(&mut self, command: &'static Command, spent: Spent) {
        if self.runs.capacity() == 0 {
            self.runs = SPARE.take();
        }
        if self.runs.len() == RUNS_MAX {
            self.sum_up();
        }
        self.runs.push((command, spent));
    }

    /// Records a command that was refused before it ran.
    pub fn rejected(&mut self, command: &'static Command) {
        self.sum_of(command).rejected += 1;
    }

    fn sum_of(&mut self, command: &'static Command) -> &mut CommandTotals {
        let sums = self.sums.get_or_insert_default();
        sums.entry(command.id()).or_default()
    }

    #[cold]
    fn sum_up(&mut self) {
        for (command, spent) in std::mem::take(&mut self.runs) {
            let sum = self.sum_of(command);
            sum.calls += 1;
            sum.duration_ns += spent.duration_ns;
            sum.failed += u64::from(spent.failed);
            sum.histogram[bucket_of(spent.duration_ns)] += 1;
        }
    }

    /// Adds all recorded counts to the thread's counters.
    pub fn count(&mut self, counters: &ThreadCounters) {
        for (command, spent) in self.runs.drain(..) {
            counters
                .command(command)
                .ran(spent.duration_ns, spent.failed);
        }
        if (1..=SPARE_MAX).contains(&self.runs.capacity()) {
            SPARE.set(std::mem::take(&mut self.runs));
        }
        if self.sums.is_some() {
            self.count_sums(counters);
        }
    }

    #[cold]
    fn count_sums(&mut self, counters: &ThreadCounters) {
        for (id, sum) in self.sums.take().into_iter().flatten() {
            counters.command_by_id(id).add(&sum);
        }
    }
}

/// One command's counters.
#[derive(Debug, Default)]
pub struct CommandCounters {
    /// Number of runs (INFO commandstats: `calls`).
    pub calls: Counter,
    /// Total time of all runs.
    pub duration_ns: Counter,
    /// Calls refused before running.
    pub rejected: Counter,
    /// Runs that returned an error.
    pub failed: Counter,
    histogram: OnceLock<Box<[Counter; BUCKETS]>>,
}

impl CommandCounters {
    /// Counts one run of the command.
    #[inline]
    pub fn ran(&self, duration_ns: u64, failed: bool) {
        self.calls.add(1);
        self.duration_ns.add(duration_ns);
        self.failed.add(u64::from(failed));
        self.histogram.get_or_init(Box::default)[bucket_of(duration_ns)].add(1);
    }

    fn add(&self, sum: &CommandTotals) {
        self.calls.add(sum.calls);
        self.duration_ns.add(sum.duration_ns);
        self.failed.add(sum.failed);
        self.rejected.add(sum.rejected);
        let buckets = self.histogram.get_or_init(Box::default);
        for (bucket, count) in buckets.iter().zip(sum.histogram) {
            bucket.add(count);
        }
    }

    /// Returns the number of runs per duration bucket, or `None` if the command never ran.
    pub fn histogram(&self) -> Option<&[Counter; BUCKETS]> {
        self.histogram.get().map(|buckets| &**buckets)
    }

    /// Resets the counters: CONFIG RESETSTAT.
    fn reset(&self) {
        for counter in [&self.calls, &self.duration_ns, &self.rejected, &self.failed] {
            counter.set(0);
        }
        for counter in self.histogram().into_iter().flatten() {
            counter.set(0);
        }
    }
}

/// A thread's copy of a hot key's string, for figures.
#[derive(Debug)]
pub struct PublishedCopy {
    /// Database of the key.
    pub db: usize,
    /// Name of the key.
    pub name: Box<[u8]>,
    /// Length of the string in bytes.
    pub len: usize,
    /// Whether the copy is still equal to the value.
    pub validity: Arc<Validity>,
}

/// Figures of a thread's copies of hot keys' strings.
#[derive(Debug, Default)]
pub struct HotCopyCounters {
    /// Number of hot keys of the thread.
    pub keys: Counter,
    /// The copies, also those that a change has ended since.
    pub copies: Mutex<Vec<PublishedCopy>>,
    /// Reads answered from copies, by database.
    reads: Mutex<BTreeMap<usize, &'static Counter>>,
}

impl HotCopyCounters {
    /// Returns the counter of a database's reads that are answered from copies.
    pub fn reads_of(&self, db: usize) -> &'static Counter {
        let mut reads = self.reads.lock();
        reads.entry(db).or_insert_with(|| Box::leak(Box::default()))
    }

    /// Calls `visit` with each copy that is still current.
    pub fn each_copy(&self, visit: impl FnMut(&PublishedCopy)) {
        let copies = self.copies.lock();
        let current = copies.iter().filter(|copy| copy.validity.is_current());
        current.for_each(visit);
    }

    /// Calls `visit` with each database and its reads that were answered from copies.
    pub fn each_read(&self, mut visit: impl FnMut(usize, u64)) {
        let reads = self.reads.lock();
        reads.iter().for_each(|(db, reads)| visit(*db, reads.get()));
    }
}

/// One thread's counters.
#[derive(Debug, Default)]
pub struct ThreadCounters {
    commands: Box<[CommandCounters]>,
    /// Commands before the next one that is sampled for hot keys.
    pub until_sample: Counter,
    /// The thread's hot-key lists.
    pub hot: Mutex<Option<Lists>>,
    /// Bytes received over connections.
    pub bytes_in: Counter,
    /// Bytes sent over connections.
    pub bytes_out: Counter,
    /// Socket reads that returned data.
    pub reads: Counter,
    /// Number of socket writes.
    pub writes: Counter,
    /// The largest number of commands that a connection ran between two socket reads.
    pub most_commands: Counter,
    /// Bytes of the buffers that the thread keeps for its connections.
    pub pooled_bytes: Counter,
    /// Hot keys with copies of this thread's own.
    pub hot_copies: HotCopyCounters,
    /// Sizes of requests and replies, with `size-tracking`.
    pub sizes: ThreadSizes,
    /// Units by [`UnitKind`] and [`LockExtent`].
    units: [[Counter; 3]; 2],
}

impl ThreadCounters {
    fn new() -> ThreadCounters {
        // Sampling starts with a countdown that is drawn before the first command
        // ([`HotKeys::prepare`](super::hotkeys::HotKeys::prepare)). Otherwise that command would stand for many
        // that were never run.
        let until_sample = Counter::new();
        until_sample.set(u64::MAX);
        ThreadCounters {
            commands: registry()
                .all()
                .iter()
                .map(|_| CommandCounters::default())
                .collect(),
            until_sample,
            ..ThreadCounters::default()
        }
    }

    /// Records the number of commands that a connection ran between two socket reads.
    #[inline]
    pub fn note_turn(&self, commands: usize) {
        let commands = commands as u64;
        if commands > self.most_commands.get() {
            self.most_commands.set(commands);
        }
    }

    /// Returns a command's counters.
    #[inline]
    pub fn command(&self, command: &Command) -> &CommandCounters {
        &self.commands[command.id()]
    }

    /// Counts a committed unit.
    #[inline]
    pub fn ran_unit(&self, kind: UnitKind, extent: LockExtent) {
        self.units[kind as usize][extent as usize].add(1);
    }

    /// Advances the countdown; true if the command that just ran is to be sampled for hot keys.
    #[inline]
    pub fn takes_sample(&self) -> bool {
        let left = self.until_sample.get();
        self.until_sample.set(left.wrapping_sub(1));
        left == 0
    }

    /// Returns the total time of all commands.
    pub fn duration_ns(&self) -> u64 {
        self.commands
            .iter()
            .map(|command| command.duration_ns.get())
            .sum()
    }

    /// Returns the number of commands run.
    pub fn calls(&self) -> u64 {
        self.commands
            .iter()
            .map(|command| command.calls.get())
            .sum()
    }

    /// Returns the counters of the command with this id.
    pub fn command_by_id(&self, id: usize) -> &CommandCounters {
        &self.commands[id]
    }
}

static ALL: Mutex<Vec<&'static ThreadCounters>> = Mutex::new(Vec::new());

thread_local! {
    static LOCAL: Cell<Option<&'static ThreadCounters>> = const { Cell::new(None) };
}

/// Returns the calling thread's counters.
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

/// Returns the counters of all threads that ever counted.
pub fn all() -> Vec<&'static ThreadCounters> {
    ALL.lock().clone()
}

/// Returns the units of a kind, summed over all threads.
pub fn units(kind: UnitKind) -> Extents {
    let mut extents = Extents::default();
    for thread in all() {
        let [one, several, all] = &thread.units[kind as usize];
        extents.one += one.get();
        extents.several += several.get();
        extents.all += all.get();
    }
    extents
}

/// Returns the sizes of the requests and replies of all commands that were counted, summed over all threads.
pub fn sizes() -> Vec<CommandSizes> {
    let threads = all();
    sizes::sums(threads.iter().map(|thread| &thread.sizes))
}

/// Zeroes all counters: CONFIG RESETSTAT. A thread that counts at this moment may keep its last increment.
pub fn reset() {
    for thread in all() {
        thread.commands.iter().for_each(CommandCounters::reset);
        thread.sizes.reset();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_counts_everything_once_and_only_when_it_is_told_to() {
        let counters = ThreadCounters::new();
        let find = |name: &str| registry().find(name.as_bytes()).expect("a command");
        let (get, set) = (find("get"), find("set"));
        let mut tally = Tally::default();
        let many = RUNS_MAX as u64 * 2 + 10;
        for number in 0..many {
            let spent = Spent {
                duration_ns: 2_000,
                failed: number % 2 == 0,
            };
            tally.ran(get, spent);
        }
        tally.rejected(set);
        assert!(tally.runs.len() <= RUNS_MAX, "it does not grow without end");
        assert_eq!((counters.calls(), counters.duration_ns()), (0, 0));
        tally.count(&counters);
        tally.count(&counters);
        let figures = counters.command(get);
        assert_eq!(
            (figures.calls.get(), figures.failed.get()),
            (many, many / 2)
        );
        assert_eq!(figures.duration_ns.get(), many * 2_000);
        let histogram = figures.histogram().expect("it ran");
        assert_eq!(histogram[bucket_of(2_000)].get(), many);
        let figures = counters.command(set);
        assert_eq!((figures.calls.get(), figures.rejected.get()), (0, 1));
    }

    #[test]
    fn a_unit_is_counted_by_the_part_of_the_shards_that_it_took() {
        for (in_hand, count, expected) in [
            (0, 8, LockExtent::One),
            (1, 8, LockExtent::One),
            (2, 8, LockExtent::Several),
            (8, 8, LockExtent::All),
            (1, 1, LockExtent::One),
        ] {
            assert_eq!(LockExtent::of(in_hand, count), expected);
        }
    }
}
