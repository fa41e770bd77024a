//! Metrics, slow log, latency, INFO, log lines and the HTTP endpoint.
//!
//! The data path counts in plain integers ([`counters`], and what shards publish); everything here reads them, and
//! never takes a shard's token.
//!
//! ```text
//! clock counters errors      written while commands run
//! slowlog latency sampler    kept by somebody who noticed, or by the cron
//! slow                       which commands took long, on their way there
//! process memory histogram   read from the system, the allocator, the buckets
//! hotkeys                    which keys take most commands, bytes and time
//! prefixes                   what keys with one prefix take and how they are used
//! rounds                     how often the loops went round
//! handshakes                 figures of TLS handshakes
//! persistence                figures of snapshots, the append-only file and loading
//! replication                figures of replication
//! slot_moves                 figures of slots that move between nodes
//! scrapes                    how often the metrics were asked for
//! curve                      what hit ratio other sizes of memory would have
//! history                    an hour of seconds and a day of minutes of what is published
//! observed snapshot          what is read of a server; all its figures of one moment, summed
//! holds                      how long shards were held, and what of that was the scheduler's doing
//! findings                   what stands out, and what mends it
//! info metrics               the snapshot as text: for INFO, for Prometheus
//! exporter log               the HTTP endpoint; lines for people
//! ```

pub mod clock;
pub mod counters;
pub mod errors;
pub mod event_loop;
pub mod exporter;
pub mod findings;
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
pub mod persistence;
pub mod prefixes;
pub mod process;
pub mod progress;
pub mod replication;
pub mod sampler;
pub mod scrapes;
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
use history::History;
use holds::Holds;
use hotkeys::HotKeys;
use latency::{Latency, Pass};
use observed::Observed;
use persistence::Persistence;
use prefixes::Prefixes;
use replication::Replication;
use sampler::{Sampler, Totals};
use scrapes::Scrapes;
use slot_moves::SlotMoves;
use slowlog::Slowlog;
use snapshot::Baseline;

/// What a server remembers of itself, for clients that ask.
#[derive(Debug)]
pub struct Telemetry {
    /// Unix time of the start, in milliseconds.
    pub started_ms: u64,
    /// Forty hexadecimal digits, new at each start.
    pub run_id: String,
    /// The program.
    pub executable: PathBuf,
    /// The configuration file.
    pub config_file: Option<PathBuf>,
    /// Threads that serve connections.
    pub thread_count: usize,
    /// HOTKEYS.
    pub hot_keys: HotKeys,
    /// INFO prefixes.
    pub prefixes: Prefixes,
    /// SLOWLOG.
    pub slowlog: Slowlog,
    /// Commands whose request was large.
    pub large_requests: Slowlog,
    /// Commands whose reply was large.
    pub large_replies: Slowlog,
    /// LATENCY.
    pub latency: Latency,
    /// Snapshots, the append-only file, loading.
    pub persistence: Persistence,
    /// Figures of replication.
    pub replication: Replication,
    /// Slots that move between nodes of a cluster.
    pub slot_moves: SlotMoves,
    /// The `instantaneous_*` figures.
    pub sampler: Sampler,
    /// The `eventloop_*` figures.
    pub rounds: Rounds,
    /// TLS handshakes.
    pub handshakes: Handshakes,
    /// Scrapes of the metrics.
    pub scrapes: Scrapes,
    /// What was before.
    pub history: History,
    /// What happened in the last minutes.
    pub recent: Recent,
    /// Shards that were held for long.
    pub holds: Holds,
    /// How often statistics were reset.
    pub resets: AtomicU64,
    used_at_start: u64,
    peak_used: AtomicU64,
    peak_at_s: AtomicU64,
    expire_ns: AtomicU64,
    evict_ns: AtomicU64,
    /// `activedefrag`.
    pub defrag: DefragFigures,
    /// Connections to other servers that MIGRATE keeps for its next call.
    pub migrate_links: AtomicU64,
    baseline: Mutex<Baseline>,
    ready: AtomicBool,
}

/// What `activedefrag` did.
#[derive(Debug, Default)]
pub struct DefragFigures {
    /// Percent of a core that it may use now; 0 when it rests.
    pub percent: AtomicU64,
    /// Allocations moved.
    pub moved: AtomicU64,
    /// Allocations left where they are.
    pub left_alone: AtomicU64,
    /// Keys of which something was moved.
    pub keys_moved: AtomicU64,
    /// Keys left as they are.
    pub keys_left_alone: AtomicU64,
    /// Time while it was at work, pauses included.
    pub active_ns: AtomicU64,
    /// Time at work since it began the last time, pauses included; 0 when it rests.
    pub current_ns: AtomicU64,
    /// Time that it took.
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
    /// Of a server that starts now.
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
            replication: Replication::default(),
            slot_moves: SlotMoves::default(),
            sampler: Sampler::default(),
            rounds: Rounds::default(),
            handshakes: Handshakes::default(),
            scrapes: Scrapes::default(),
            history: History::default(),
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
            baseline: Mutex::new(Baseline::default()),
            ready: AtomicBool::new(false),
        }
    }

    /// `hot-keys-sample`, `prefix-delimiter` and `prefix-depth`.
    pub fn configure_samples(&self, config: &Config) {
        self.hot_keys.configure(config.hot_keys_sample);
        let prefixes = &self.prefixes;
        prefixes.configure(&config.prefix_delimiter, config.prefix_depth);
    }

    /// What the cron does ten times a second: takes a reading for the rates and looks for a new peak of memory.
    pub fn tick(&self, now_ms: u64) {
        self.rounds.note_cron();
        let rounds = self.rounds.figures();
        let mut totals = Totals {
            replication_in: self.replication.input_bytes.load(Relaxed),
            replication_out: self.replication.sent_bytes.load(Relaxed),
            rounds: rounds.cron_rounds,
            busy_ns: rounds.busy_ns,
            ..Totals::default()
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

    /// What the cron does for who asks later how it was: the past, and what findings are about.
    pub fn look_back(&self, service: &dyn Observed, now_s: u64) {
        self.history.sample(service, now_s);
        self.recent.tick(service, now_s);
    }

    /// The highest use of memory so far, given the one of this moment.
    fn raise_peak(&self, used: u64) -> u64 {
        let before = self.peak_used.fetch_max(used, Relaxed);
        if used > before {
            self.peak_at_s.store(clock::unix_ms() / 1_000, Relaxed);
        }
        before.max(used)
    }

    /// The Unix time in seconds of that peak.
    fn peak_at_s(&self) -> u64 {
        self.peak_at_s.load(Relaxed)
    }

    /// A slice of background expiry, or of freeing what expired, that took so long.
    pub fn note_expire_slice(&self, config: &Config, pass: &mut Pass, now_ms: u64, spent_ns: u64) {
        self.expire_ns.fetch_add(spent_ns, Relaxed);
        let (began_s, spent_ms) = pass.add(now_ms, spent_ns);
        self.latency
            .note(config, latency::EXPIRE_CYCLE, began_s, spent_ms);
    }

    /// A slice of background eviction that took so long.
    pub fn note_evict_slice(&self, config: &Config, now_ms: u64, spent_ns: u64) {
        self.evict_ns.fetch_add(spent_ns, Relaxed);
        let spent_ms = spent_ns / 1_000_000;
        self.latency
            .note(config, latency::EVICTION_CYCLE, now_ms / 1_000, spent_ms);
    }

    /// What freeing the values took that such a slice evicted.
    pub fn note_evicted_freed(&self, config: &Config, now_ms: u64, spent_ns: u64) {
        let spent_ms = spent_ns / 1_000_000;
        self.latency
            .note(config, latency::EVICTION_DEL, now_ms / 1_000, spent_ms);
    }

    /// What was spent on moving values together, at once.
    pub fn note_defrag(&self, config: &Config, now_ms: u64, spent_ns: u64) {
        self.defrag.spent_ns.fetch_add(spent_ns, Relaxed);
        let spent_ms = spent_ns / 1_000_000;
        self.latency
            .note(config, latency::DEFRAG_CYCLE, now_ms / 1_000, spent_ms);
    }

    /// CONFIG RESETSTAT.
    pub fn reset_statistics(&self, service: &dyn Observed) {
        // Said first: what is read from now on may be of after it.
        self.resets.fetch_add(1, Relaxed);
        self.defrag.reset();
        counters::reset();
        errors::reset();
        self.replication.reset();
        self.slot_moves.reset();
        self.expire_ns.store(0, Relaxed);
        self.evict_ns.store(0, Relaxed);
        *self.baseline.lock() = Baseline::of(service);
    }

    /// Whether clients are accepted: `/ready`.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Relaxed)
    }

    /// To be said when the listeners are open, and when the server begins to stop.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Relaxed);
    }
}

/// Held by tests that read or reset what the whole process counts.
#[cfg(test)]
static COUNTING: Mutex<()> = Mutex::new(());
