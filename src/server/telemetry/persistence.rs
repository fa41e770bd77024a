//! Persistence figures, written by saving, loading and the append-only file, and read by INFO and the metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::telemetry::gate::{Gate, GateReason};
use crate::telemetry::progress::WorkProgress;
use basalt_commands::config::Config;

/// Figures of snapshots, the append-only file and loading. Times of day are Unix seconds.
#[derive(Debug)]
pub struct Persistence {
    /// Figures of snapshots.
    pub rdb: RdbFigures,
    /// Figures of the append-only file.
    pub aof: AofFigures,
    /// Figures of loading.
    pub loading: LoadingFigures,
    /// Figures of the command log, as of a moment ago.
    pub log: CommandLogFigures,
    /// Number of times that write commands waited for slower consumers.
    pub writer_waits: WriterWaits,
}

/// Figures of the command log.
#[derive(Debug, Default)]
pub struct CommandLogFigures {
    /// Number of records appended to the log.
    pub records: AtomicU64,
    /// Bytes of the resulting replication stream.
    pub bytes: AtomicU64,
    /// Used bytes of its ring.
    pub used_bytes: AtomicU64,
    /// Size of its ring in bytes; 0 until the first reader.
    pub ring_bytes: AtomicU64,
}

/// Number of times that write commands waited before locking shards, because too much was buffered for a slower
/// consumer.
#[derive(Debug, Default)]
pub struct WriterWaits {
    /// Number of all waits.
    pub all: AtomicU64,
    /// Waits for the append-only file.
    pub for_disk: AtomicU64,
    /// Waits for a replica.
    pub for_replica: AtomicU64,
    /// Waits for a snapshot's file or replicas.
    pub for_snapshot: AtomicU64,
}

/// Figures of snapshots.
#[derive(Debug, Default)]
pub struct RdbFigures {
    /// The change counter (`dirty`) at the moment that the last successful snapshot captured.
    pub dirty_at_save: AtomicU64,
    /// Whether a background snapshot to a file is running.
    pub in_progress: AtomicBool,
    /// Unix second when the last successful snapshot ended.
    pub last_save_s: AtomicU64,
    /// Whether the last background snapshot succeeded.
    pub last_ok: AtomicBool,
    /// Duration of the last background snapshot in seconds; -1 before the first.
    pub last_duration_s: AtomicI64,
    /// When the running snapshot began; 0 for none.
    pub began_s: AtomicU64,
    /// Snapshots written to files.
    pub saves: AtomicU64,
    /// Keys written by the running snapshot.
    pub keys_processed: AtomicU64,
    /// Keys that the running snapshot will write.
    pub keys_total: AtomicU64,
    /// Bytes of the running snapshot that wait to be written.
    pub waiting_bytes: AtomicU64,
    /// Bytes of entries that the running snapshot saved early because a command was about to change them.
    pub copied_bytes: AtomicU64,
    /// Bytes of entries that the last file snapshot saved early because a command was about to change them.
    pub last_copied_bytes: AtomicU64,
    /// Snapshots begun: for snapshot files, for base files of the append-only file, or for replicas.
    pub cuts: AtomicU64,
    /// Keys per second of the last successful snapshot.
    pub last_keys_per_s: AtomicU64,
    /// Bytes of the last successful snapshot.
    pub last_bytes: AtomicU64,
}

/// Figures of the append-only file.
#[derive(Debug, Default)]
pub struct AofFigures {
    /// Whether writes are appended.
    pub enabled: AtomicBool,
    /// Whether a rewrite is running.
    pub rewrite_in_progress: AtomicBool,
    /// Whether a rewrite will begin when the running snapshot is done.
    pub rewrite_scheduled: AtomicBool,
    /// Duration of the last rewrite in seconds; -1 before the first.
    pub last_rewrite_s: AtomicI64,
    /// When the running rewrite began; 0 for none.
    pub rewrite_began_s: AtomicU64,
    /// Whether the last rewrite succeeded.
    pub last_rewrite_ok: AtomicBool,
    /// Bytes of entries that the last rewrite saved early because a command was about to change them.
    pub last_copied_bytes: AtomicU64,
    /// Number of successful rewrites of the append-only file.
    pub rewrites: AtomicU64,
    /// Number of consecutive failed rewrites.
    pub rewrite_failures: AtomicU64,
    /// Whether the last write and the last sync succeeded.
    pub last_write_ok: AtomicBool,
    /// Bytes of all files in the manifest.
    pub current_bytes: AtomicU64,
    /// Bytes of these files after the last rewrite or at the start.
    pub base_bytes: AtomicU64,
    /// Bytes that wait to be written.
    pub buffer_bytes: AtomicU64,
    /// Number of syncs in progress.
    pub pending_fsync: AtomicU64,
    /// Writes that proceeded while the previous sync was still in progress.
    pub delayed_fsync: AtomicU64,
    /// Error number of the last failed write or sync.
    pub last_errno: AtomicI32,
    /// Durations of syncs.
    pub fsync: Durations,
}

/// Upper bounds of the duration buckets, in microseconds.
pub const DURATION_BOUNDS_US: [u64; 10] = [
    50, 100, 250, 500, 1_000, 2_500, 10_000, 50_000, 250_000, 1_000_000,
];

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Durations {
    /// Counts by bucket; the last bucket has no upper bound.
    pub counts: [AtomicU64; DURATION_BOUNDS_US.len() + 1],
    /// Total of all durations, in microseconds.
    pub total_us: AtomicU64,
}

impl Durations {
    /// Adds a duration to the histogram.
    pub fn note(&self, spent: Duration) {
        let us = spent.as_micros() as u64;
        let class = DURATION_BOUNDS_US.partition_point(|bound| *bound < us);
        self.counts[class].fetch_add(1, Relaxed);
        self.total_us.fetch_add(us, Relaxed);
    }
}

/// Figures of loading.
#[derive(Debug, Default)]
pub struct LoadingFigures {
    /// Whether the server is loading and replies with LOADING.
    pub is_loading: AtomicBool,
    /// The bit by which admission of commands learns that the server loads.
    pub gate: Gate,
    /// Whether clients are served while loading, with the loaded data replacing all data at the end.
    pub is_aside: AtomicBool,
    /// Unix second when loading began.
    pub began_s: AtomicU64,
    /// Total bytes of the files to load.
    pub total_bytes: AtomicU64,
    /// Bytes of these files loaded so far.
    pub loaded_bytes: AtomicU64,
    /// Memory use of the server that wrote the snapshot being loaded, if recorded there.
    pub snapshot_used_memory: AtomicU64,
    /// Expired keys in the last loaded snapshot.
    pub keys_expired: AtomicU64,
    /// Values of unknown modules that the last load left out.
    pub module_values_skipped: AtomicU64,
    /// Keys in the last loaded snapshot.
    pub keys_loaded: AtomicU64,
}

impl LoadingFigures {
    /// Marks the server as loading, just before loading begins.
    pub fn announce(&self) {
        self.set_loading(true);
    }

    /// Begins to reply with LOADING, or ends it.
    pub fn set_loading(&self, is_loading: bool) {
        self.is_loading.store(is_loading, Relaxed);
        self.gate.set(GateReason::Loading, is_loading);
    }

    /// Returns the progress at `now_ms`, in Unix milliseconds.
    pub fn share(&self, now_ms: u64) -> WorkProgress {
        let began_ms = self.began_s.load(Relaxed) * 1_000;
        WorkProgress {
            done_bytes: self.loaded_bytes.load(Relaxed),
            total_bytes: self.total_bytes.load(Relaxed),
            spent: Duration::from_millis(now_ms.saturating_sub(began_ms)),
        }
    }

    /// Clears the loading state after `LoadingFigures::announce`, if no load follows.
    pub fn end(&self) {
        self.set_loading(false);
    }
}

impl Persistence {
    /// Creates the figures of a server that started at this Unix second.
    pub fn new(started_s: u64) -> Persistence {
        Persistence {
            rdb: RdbFigures {
                last_save_s: AtomicU64::new(started_s),
                last_ok: AtomicBool::new(true),
                last_duration_s: AtomicI64::new(-1),
                ..RdbFigures::default()
            },
            aof: AofFigures {
                last_rewrite_s: AtomicI64::new(-1),
                last_rewrite_ok: AtomicBool::new(true),
                last_write_ok: AtomicBool::new(true),
                ..AofFigures::default()
            },
            loading: LoadingFigures::default(),
            log: CommandLogFigures::default(),
            writer_waits: WriterWaits::default(),
        }
    }

    /// Returns the error for writes, if they are refused because saving failed and the configuration demands it.
    #[inline]
    pub fn unsaved_text(&self, config: &Config) -> Option<&'static str> {
        match self.rdb.last_ok.load(Relaxed) && self.aof.last_write_ok.load(Relaxed) {
            true => None,
            false => self.refusal(config).map(WriteRefusal::text),
        }
    }

    /// Returns why writes are refused, if they are. A failed snapshot takes precedence, as in Redis.
    #[cold]
    pub fn refusal(&self, config: &Config) -> Option<WriteRefusal> {
        let stops = config.stop_writes_on_bgsave_error && !config.save.is_empty();
        if stops && !self.rdb.last_ok.load(Relaxed) {
            return Some(WriteRefusal::Snapshot);
        }
        match self.aof.last_write_ok.load(Relaxed) {
            true => None,
            false => Some(WriteRefusal::Log(self.aof.last_errno.load(Relaxed))),
        }
    }

    /// Returns the changes since the last successful snapshot, given the change counter `dirty`.
    pub fn changes_since_save(&self, dirty: u64) -> u64 {
        dirty.saturating_sub(self.rdb.dirty_at_save.load(Relaxed))
    }
}

/// Returns the text for an error number. The texts are leaked, as there are few.
fn unwritten_text(errno: i32) -> &'static str {
    static TEXTS: parking_lot::Mutex<BTreeMap<i32, &'static str>> =
        parking_lot::Mutex::new(BTreeMap::new());
    TEXTS.lock().entry(errno).or_insert_with(|| {
        let error = std::io::Error::from_raw_os_error(errno).to_string();
        let why = error.split(" (os error").next().unwrap_or_default();
        Box::leak(format!("MISCONF Errors writing to the AOF file: {why}").into_boxed_str())
    })
}

/// Why clients' writes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRefusal {
    /// The last background snapshot failed (`stop-writes-on-bgsave-error`).
    Snapshot,
    /// Writing or syncing the append-only file failed with this OS error.
    Log(i32),
}

impl WriteRefusal {
    /// Returns the error for clients: Redis's wording, which tools recognize, followed by details of this server.
    #[cold]
    pub fn text(self) -> &'static str {
        match self {
            WriteRefusal::Snapshot => {
                "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands \
                 that may modify the data set are disabled, because this instance is configured to report errors during \
                 writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for \
                 details about the RDB error. The last BGSAVE failed: it is tried again by itself, and at once by BGSAVE."
            }
            WriteRefusal::Log(errno) => unwritten_text(errno),
        }
    }
}

/// Returns the seconds since `began_s`, or -1 if nothing is in progress.
pub fn seconds_since(began_s: &AtomicU64, now_s: u64) -> i64 {
    match began_s.load(Relaxed) {
        0 => -1,
        began_s => now_s.saturating_sub(began_s).cast_signed(),
    }
}
