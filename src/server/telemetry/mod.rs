//! Metrics, slow log, latency, INFO, log lines and the HTTP endpoint.
//!
//! The data path only increments plain integers ([`counters`], and what shards publish). Everything here reads them
//! and never takes a shard's token.
//!
//! ```text
//! clock counters errors      written while commands run
//! slowlog latency sampler    recorded by the thread that noticed, or by the cron
//! slow                       slow commands on their way to the logs
//! process memory histogram   read from the system, the allocator, the buckets
//! hotkeys                    the keys with the most commands, bytes and time
//! prefix_uses                uses of prefixes, as one thread samples them
//! prefixes                   memory and usage of keys by their prefix
//! event_loop                 iterations and busy time of the event loops
//! overload gate              how long requests wait, and what is refused then; the reasons to refuse as one word
//! handshakes                 figures of TLS handshakes
//! persistence                figures of snapshots, the append-only file and loading
//! replication                replication figures
//! slot_moves                 figures of slots that are migrating between nodes
//! sizes                      sizes of requests and replies by command
//! scrapes                    how often the metrics were requested
//! miss_ratio                 the estimated hit ratio at other memory sizes
//! history                    an hour of seconds and a day of minutes of the published figures
//! observed snapshot          what telemetry reads from a server; all its figures at one moment, summed
//! holds                      how long shards were locked, and how much of that the scheduler caused
//! findings                   diagnoses and their fixes
//! figures                    the table of figures: what INFO and Prometheus call each one, and how it is read
//! info metrics               the figures as text: for INFO, for Prometheus
//! exporter log               the HTTP endpoint; lines for people
//! ```

pub mod clock;
pub mod counters;
pub mod errors;
pub mod event_loop;
pub mod exporter;
mod figures;
pub mod findings;
pub mod gate;
pub mod handshakes;
pub mod histogram;
pub mod history;
pub mod holds;
mod hot_lists;
pub mod hotkeys;
pub mod info;
pub mod latency;
pub mod log;
pub mod memory;
pub mod metrics;
pub mod miss_ratio;
pub mod observed;
pub mod overload;
pub mod persistence;
pub mod prefix_uses;
pub mod prefixes;
pub mod process;
pub mod progress;
pub mod replication;
pub mod sampler;
pub mod scrapes;
pub mod sizes;
pub mod slot_moves;
pub mod slow;
pub mod slowlog;
pub mod snapshot;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use basalt_commands::config::Config;
use basalt_core::base::random;
use event_loop::Rounds;
use findings::recent::Recent;
use handshakes::Handshakes;
use history::MetricsHistory;
use holds::Holds;
use hotkeys::HotKeys;
use latency::{Latency, Pass};
use observed::Observed;
use overload::Overload;
use persistence::Persistence;
use prefixes::Prefixes;
use replication::ReplicationMetrics;
use sampler::{Sampler, SamplerTotals};
use scrapes::Scrapes;
use slot_moves::SlotMoves;
use slowlog::Slowlog;
use snapshot::ResettableSums;

/// A server's telemetry about itself, for clients that query it.
#[derive(Debug)]
pub struct Telemetry {
    /// Unix time of the start, in milliseconds.
    pub started_ms: u64,
    /// Forty random hexadecimal digits, regenerated at each start.
    pub run_id: String,
    /// Path of the server's executable.
    pub executable: PathBuf,
    /// Path of the configuration file, if any.
    pub config_file: Option<PathBuf>,
    /// Threads that serve connections.
    pub thread_count: usize,
    /// Sampled hot keys (HOTKEYS).
    pub hot_keys: HotKeys,
    /// State of INFO prefixes.
    pub prefixes: Prefixes,
    /// Slow commands: SLOWLOG.
    pub slowlog: Slowlog,
    /// Commands whose request was large.
    pub large_requests: Slowlog,
    /// Commands whose reply was large.
    pub large_replies: Slowlog,
    /// Latency events: LATENCY.
    pub latency: Latency,
    /// Figures of snapshots, the append-only file and loading.
    pub persistence: Persistence,
    /// Replication figures.
    pub replication: ReplicationMetrics,
    /// Figures of slots that are migrating between cluster nodes.
    pub slot_moves: SlotMoves,
    /// The `instantaneous_*` figures.
    pub sampler: Sampler,
    /// The `eventloop_*` figures.
    pub rounds: Rounds,
    /// Figures of TLS handshakes.
    pub handshakes: Handshakes,
    /// Protection against overload.
    pub overload: Overload,
    /// Scrapes of the metrics.
    pub scrapes: Scrapes,
    /// History of figures: an hour of seconds and a day of minutes.
    pub history: MetricsHistory,
    /// Events of the last minutes.
    pub recent: Recent,
    /// Shards that were locked for long.
    pub holds: Holds,
    /// Number of resets of the statistics.
    pub resets: AtomicU64,
    used_at_start: u64,
    peak_used: AtomicU64,
    peak_at_s: AtomicU64,
    expire_ns: AtomicU64,
    evict_ns: AtomicU64,
    /// Figures of `activedefrag`.
    pub defrag: DefragFigures,
    /// Connections to other servers that MIGRATE keeps open for its next use.
    pub migrate_links: AtomicU64,
    baseline: Mutex<ResettableSums>,
    ready: AtomicBool,
}

/// Figures of `activedefrag`.
#[derive(Debug, Default)]
pub struct DefragFigures {
    /// Percent of a core that defragmentation may use now; 0 while idle.
    pub percent: AtomicU64,
    /// Number of allocations moved.
    pub moved: AtomicU64,
    /// Allocations examined but not moved.
    pub left_alone: AtomicU64,
    /// Keys with at least one moved allocation.
    pub keys_moved: AtomicU64,
    /// Keys without a moved allocation.
    pub keys_left_alone: AtomicU64,
    /// Nanoseconds during which defragmentation was active, pauses included.
    pub active_ns: AtomicU64,
    /// Nanoseconds since the current run began, pauses included; 0 while idle.
    pub current_ns: AtomicU64,
    /// Nanoseconds that defragmentation ran, pauses excluded.
    pub spent_ns: AtomicU64,
}

impl DefragFigures {
    fn reset(&self) {
        let sums = [&self.moved, &self.left_alone, &self.keys_moved];
        let others = [&self.keys_left_alone, &self.active_ns, &self.spent_ns];
        for sum in sums.into_iter().chain(others) {
            sum.store(0, Relaxed);
        }
    }
}

impl Telemetry {
    /// Creates the telemetry of a server that starts now.
    pub fn new(config_file: Option<PathBuf>, thread_count: usize) -> Telemetry {
        let used = memory::used_bytes();
        Telemetry {
            started_ms: clock::unix_ms(),
            run_id: random::hex_from_system(40),
            executable: std::env::current_exe().unwrap_or_default(),
            config_file,
            thread_count,
            hot_keys: HotKeys::default(),
            prefixes: Prefixes::default(),
            slowlog: Slowlog::default(),
            large_requests: Slowlog::default(),
            large_replies: Slowlog::default(),
            latency: Latency::default(),
            persistence: Persistence::new(clock::unix_ms() / 1_000),
            replication: ReplicationMetrics::default(),
            slot_moves: SlotMoves::default(),
            sampler: Sampler::default(),
            rounds: Rounds::default(),
            handshakes: Handshakes::default(),
            overload: Overload::default(),
            scrapes: Scrapes::default(),
            history: MetricsHistory::default(),
            recent: Recent::default(),
            holds: Holds::default(),
            resets: AtomicU64::new(0),
            used_at_start: used,
            peak_used: AtomicU64::new(used),
            peak_at_s: AtomicU64::new(clock::unix_ms() / 1_000),
            expire_ns: AtomicU64::new(0),
            evict_ns: AtomicU64::new(0),
            defrag: DefragFigures::default(),
            migrate_links: AtomicU64::new(0),
            baseline: Mutex::new(ResettableSums::default()),
            ready: AtomicBool::new(false),
        }
    }

    /// Applies `hot-keys-sample`, `prefix-delimiter` and `prefix-depth`.
    pub fn configure_samples(&self, config: &Config) {
        self.hot_keys.configure(config.hot_keys_sample);
        let prefixes = &self.prefixes;
        prefixes.configure(&config.prefix_delimiter, config.prefix_depth);
    }

    /// Runs ten times a second in the cron: samples the totals for the rates and updates the memory peak.
    pub fn tick(&self, now_ms: u64) {
        self.rounds.note_cron();
        let rounds = self.rounds.figures();
        let mut totals = SamplerTotals {
            replication_in: self.replication.input_bytes.load(Relaxed),
            replication_out: self.replication.sent_bytes.load(Relaxed),
            rounds: rounds.cron_rounds,
            busy_ns: rounds.busy_ns,
            ..SamplerTotals::default()
        };
        for thread in counters::all() {
            totals.rounds += thread.reads.get();
            totals.commands += thread.calls();
            totals.bytes_in += thread.bytes_in.get();
            totals.bytes_out += thread.bytes_out.get();
        }
        self.sampler.tick(now_ms, totals);
        self.hot_keys.tick(now_ms);
        self.prefixes.tick(now_ms);
        self.raise_peak(memory::used_bytes());
    }

    /// Runs in the cron: records the history, and the recent events that findings are based on.
    pub fn look_back(&self, service: &dyn Observed, now_s: u64) {
        self.history.sample(service, now_s);
        self.recent.tick(service, now_s);
    }

    /// Raises the memory peak to `used` if that is higher, and returns the peak.
    fn raise_peak(&self, used: u64) -> u64 {
        let before = self.peak_used.fetch_max(used, Relaxed);
        if used > before {
            self.peak_at_s.store(clock::unix_ms() / 1_000, Relaxed);
        }
        before.max(used)
    }

    /// Returns the Unix time of the memory peak, in seconds.
    fn peak_at_s(&self) -> u64 {
        self.peak_at_s.load(Relaxed)
    }

    /// Records a slice of background expiry, or of freeing expired values, that took `spent_ns`.
    pub fn note_expire_slice(&self, config: &Config, pass: &mut Pass, now_ms: u64, spent_ns: u64) {
        self.expire_ns.fetch_add(spent_ns, Relaxed);
        let (began_s, spent_ms) = pass.add(now_ms, spent_ns);
        self.latency
            .note(config, latency::EXPIRE_CYCLE, began_s, spent_ms);
    }

    /// Records a slice of background eviction that took `spent_ns`.
    pub fn note_evict_slice(&self, config: &Config, now_ms: u64, spent_ns: u64) {
        self.evict_ns.fetch_add(spent_ns, Relaxed);
        let spent_ms = spent_ns / 1_000_000;
        self.latency
            .note(config, latency::EVICTION_CYCLE, now_ms / 1_000, spent_ms);
    }

    /// Records the time spent freeing the values that a slice of background eviction removed.
    pub fn note_evicted_freed(&self, config: &Config, now_ms: u64, spent_ns: u64) {
        let spent_ms = spent_ns / 1_000_000;
        self.latency
            .note(config, latency::EVICTION_DEL, now_ms / 1_000, spent_ms);
    }

    /// Records one uninterrupted stretch of `spent_ns` of defragmentation.
    pub fn note_defrag(&self, config: &Config, now_ms: u64, spent_ns: u64) {
        self.defrag.spent_ns.fetch_add(spent_ns, Relaxed);
        let spent_ms = spent_ns / 1_000_000;
        self.latency
            .note(config, latency::DEFRAG_CYCLE, now_ms / 1_000, spent_ms);
    }

    /// Resets the statistics: CONFIG RESETSTAT.
    pub fn reset_statistics(&self, service: &dyn Observed) {
        // Increment first: figures read from here on may already be post-reset.
        self.resets.fetch_add(1, Relaxed);
        self.defrag.reset();
        counters::reset();
        errors::reset();
        self.replication.reset();
        self.slot_moves.reset();
        self.expire_ns.store(0, Relaxed);
        self.evict_ns.store(0, Relaxed);
        *self.baseline.lock() = ResettableSums::of(service);
    }

    /// Whether clients are accepted, as reported by `/ready`.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Relaxed)
    }

    /// Sets readiness: true once the listeners are open, false when shutdown begins.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Relaxed);
    }
}

/// Locked by tests that read or reset process-wide counters.
#[cfg(test)]
static COUNTING: Mutex<()> = Mutex::new(());
