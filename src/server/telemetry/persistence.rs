//! What persistence says of itself: figures that INFO and the metrics read, written where saving, loading and the
//! append-only file run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::telemetry::progress::Share;
use basalt_commands::config::Config;

/// Figures of snapshots, of the append-only file and of loading. Times of day are Unix seconds.
#[derive(Debug)]
pub struct Persistence {
    /// Figures of snapshots.
    pub rdb: RdbFigures,
    /// Figures of the append-only file.
    pub aof: AofFigures,
    /// Figures of loading.
    pub loading: LoadingFigures,
    /// Figures of the log, as they were a moment ago.
    pub log: LogFigures,
    /// Times that writers waited.
    pub writer_waits: WriterWaits,
}

/// Figures of the log of commands.
#[derive(Debug, Default)]
pub struct LogFigures {
    /// Records appended.
    pub records: AtomicU64,
    /// Bytes of the stream that they became.
    pub bytes: AtomicU64,
    /// Bytes of its ring that are taken up.
    pub used_bytes: AtomicU64,
    /// Bytes of its ring; 0 until a reader has listened.
    pub ring_bytes: AtomicU64,
}

/// Times that commands which may write waited before they took shards, because too much lay in memory for somebody
/// slower than they are.
#[derive(Debug, Default)]
pub struct WriterWaits {
    /// All.
    pub all: AtomicU64,
    /// For the append-only file.
    pub for_disk: AtomicU64,
    /// For a replica.
    pub for_replica: AtomicU64,
    /// For a snapshot's file or replicas.
    pub for_snapshot: AtomicU64,
}

/// Figures of snapshots.
#[derive(Debug)]
pub struct RdbFigures {
    /// Changes that were counted when the last good snapshot was cut.
    pub dirty_at_save: AtomicU64,
    /// Whether a snapshot goes to a file in the background.
    pub in_progress: AtomicBool,
    /// When the last good snapshot ended.
    pub last_save_s: AtomicU64,
    /// Whether the last snapshot in the background went well.
    pub last_ok: AtomicBool,
    /// Seconds that the last snapshot in the background took; -1 before the first.
    pub last_duration_s: AtomicI64,
    /// When the snapshot under way began; 0 for none.
    pub began_s: AtomicU64,
    /// Snapshots written to files.
    pub saves: AtomicU64,
    /// Keys written by the snapshot under way.
    pub keys_processed: AtomicU64,
    /// Keys that the snapshot under way will write.
    pub keys_total: AtomicU64,
    /// Bytes of the snapshot under way that wait to be written.
    pub waiting_bytes: AtomicU64,
    /// Bytes of entries that the snapshot under way saved out of turn, as they were about to change.
    pub copied_bytes: AtomicU64,
    /// Bytes of entries that the last snapshot in a file saved out of turn.
    pub last_copied_bytes: AtomicU64,
    /// Snapshots begun, be they for files, for bases of the append-only file or for replicas.
    pub cuts: AtomicU64,
    /// Keys per second of the last good snapshot.
    pub last_keys_per_s: AtomicU64,
    /// Bytes of the last good snapshot.
    pub last_bytes: AtomicU64,
}

/// Figures of the append-only file.
#[derive(Debug)]
pub struct AofFigures {
    /// Whether writes are appended.
    pub enabled: AtomicBool,
    /// Whether a rewrite runs.
    pub rewrite_in_progress: AtomicBool,
    /// Whether a rewrite begins when the snapshot under way is done.
    pub rewrite_scheduled: AtomicBool,
    /// Seconds that the last rewrite took; -1 before the first.
    pub last_rewrite_s: AtomicI64,
    /// When the rewrite under way began; 0 for none.
    pub rewrite_began_s: AtomicU64,
    /// Whether the last rewrite went well.
    pub last_rewrite_ok: AtomicBool,
    /// Bytes of entries that the last rewrite saved out of turn, as they were about to change.
    pub last_copied_bytes: AtomicU64,
    /// Rewrites.
    pub rewrites: AtomicU64,
    /// Rewrites that failed one after the other.
    pub rewrite_failures: AtomicU64,
    /// Whether the last write and the last sync went well.
    pub last_write_ok: AtomicBool,
    /// Bytes of all files of the manifest.
    pub current_bytes: AtomicU64,
    /// Bytes of them after the last rewrite or at the start.
    pub base_bytes: AtomicU64,
    /// Bytes that wait to be written.
    pub buffer_bytes: AtomicU64,
    /// Syncs under way.
    pub pending_fsync: AtomicU64,
    /// Writes that went on while the sync before them was not done yet.
    pub delayed_fsync: AtomicU64,
    /// Number of the error of the last write or sync that failed.
    pub last_errno: AtomicI32,
    /// How long syncs took.
    pub fsync: Durations,
}

/// Upper bounds of the classes that durations are counted in, in microseconds.
pub const DURATION_BOUNDS_US: [u64; 10] = [
    50, 100, 250, 500, 1_000, 2_500, 10_000, 50_000, 250_000, 1_000_000,
];

/// How long something took, each time that it was done.
#[derive(Debug, Default)]
pub struct Durations {
    /// Times within each bound, and beyond the last.
    pub counts: [AtomicU64; DURATION_BOUNDS_US.len() + 1],
    /// Microseconds in all.
    pub total_us: AtomicU64,
}

impl Durations {
    /// Counts one.
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
    /// Whether the server loads, and answers LOADING.
    pub is_loading: AtomicBool,
    /// What is loaded takes the place of all data once it is there; until then clients are served.
    pub is_aside: AtomicBool,
    /// When it began.
    pub began_s: AtomicU64,
    /// Bytes to load.
    pub total_bytes: AtomicU64,
    /// Bytes loaded.
    pub loaded_bytes: AtomicU64,
    /// What the server took in memory that wrote the snapshot which is loaded, as far as it says that.
    pub snapshot_used_memory: AtomicU64,
    /// Keys that had expired in the last snapshot that was loaded.
    pub keys_expired: AtomicU64,
    /// Keys of the last snapshot that was loaded.
    pub keys_loaded: AtomicU64,
}

impl LoadingFigures {
    /// Loading is about to begin.
    pub fn announce(&self) {
        self.is_loading.store(true, Relaxed);
    }

    /// How far it is at a moment, in Unix milliseconds.
    pub fn share(&self, now_ms: u64) -> Share {
        let began_ms = self.began_s.load(Relaxed) * 1_000;
        Share {
            done_bytes: self.loaded_bytes.load(Relaxed),
            total_bytes: self.total_bytes.load(Relaxed),
            spent: Duration::from_millis(now_ms.saturating_sub(began_ms)),
        }
    }

    /// Loading that was announced does not come about.
    pub fn end(&self) {
        self.is_loading.store(false, Relaxed);
    }
}

impl Persistence {
    /// Of a server that started at this Unix second.
    pub fn new(started_s: u64) -> Persistence {
        Persistence {
            rdb: RdbFigures {
                dirty_at_save: AtomicU64::new(0),
                in_progress: AtomicBool::new(false),
                last_save_s: AtomicU64::new(started_s),
                last_ok: AtomicBool::new(true),
                last_duration_s: AtomicI64::new(-1),
                began_s: AtomicU64::new(0),
                saves: AtomicU64::new(0),
                keys_processed: AtomicU64::new(0),
                keys_total: AtomicU64::new(0),
                waiting_bytes: AtomicU64::new(0),
                copied_bytes: AtomicU64::new(0),
                last_copied_bytes: AtomicU64::new(0),
                cuts: AtomicU64::new(0),
                last_keys_per_s: AtomicU64::new(0),
                last_bytes: AtomicU64::new(0),
            },
            aof: AofFigures {
                enabled: AtomicBool::new(false),
                rewrite_in_progress: AtomicBool::new(false),
                rewrite_scheduled: AtomicBool::new(false),
                last_rewrite_s: AtomicI64::new(-1),
                rewrite_began_s: AtomicU64::new(0),
                last_rewrite_ok: AtomicBool::new(true),
                last_copied_bytes: AtomicU64::new(0),
                rewrites: AtomicU64::new(0),
                rewrite_failures: AtomicU64::new(0),
                last_write_ok: AtomicBool::new(true),
                current_bytes: AtomicU64::new(0),
                base_bytes: AtomicU64::new(0),
                buffer_bytes: AtomicU64::new(0),
                pending_fsync: AtomicU64::new(0),
                delayed_fsync: AtomicU64::new(0),
                last_errno: AtomicI32::new(0),
                fsync: Durations::default(),
            },
            loading: LoadingFigures::default(),
            log: LogFigures::default(),
            writer_waits: WriterWaits::default(),
        }
    }

    /// Why writes are refused, if they are: nothing could be saved of late, and the configuration says to stop then.
    #[inline]
    pub fn unsaved_text(&self, config: &Config) -> Option<&'static str> {
        match self.rdb.last_ok.load(Relaxed) && self.aof.last_write_ok.load(Relaxed) {
            true => None,
            false => self.refusal(config).map(Refusal::text),
        }
    }

    /// The cause for which writes are refused, if they are; a snapshot goes first, as in Redis.
    #[cold]
    pub fn refusal(&self, config: &Config) -> Option<Refusal> {
        let stops = config.stop_writes_on_bgsave_error && !config.save.is_empty();
        if stops && !self.rdb.last_ok.load(Relaxed) {
            return Some(Refusal::Snapshot);
        }
        match self.aof.last_write_ok.load(Relaxed) {
            true => None,
            false => Some(Refusal::Log(self.aof.last_errno.load(Relaxed))),
        }
    }

    /// Changes since the last good snapshot, of so many in all.
    pub fn changes_since_save(&self, dirty: u64) -> u64 {
        dirty.saturating_sub(self.rdb.dirty_at_save.load(Relaxed))
    }
}

/// One text for each number of an error, kept for ever, as there are not many.
fn unwritten_text(errno: i32) -> &'static str {
    static TEXTS: parking_lot::Mutex<BTreeMap<i32, &'static str>> =
        parking_lot::Mutex::new(BTreeMap::new());
    TEXTS.lock().entry(errno).or_insert_with(|| {
        let error = std::io::Error::from_raw_os_error(errno).to_string();
        let why = error.split(" (os error").next().unwrap_or_default();
        Box::leak(format!("MISCONF Errors writing to the AOF file: {why}").into_boxed_str())
    })
}

/// A cause for which clients' writes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The last snapshot in the background failed (`stop-writes-on-bgsave-error`).
    Snapshot,
    /// The append-only file could not be written, or not be synced, with this error of the system.
    Log(i32),
}

impl Refusal {
    /// The error that clients get: Redis's words, by which tools know it, and what follows here.
    #[cold]
    pub fn text(self) -> &'static str {
        match self {
            Refusal::Snapshot => {
                "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands \
                 that may modify the data set are disabled, because this instance is configured to report errors during \
                 writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for \
                 details about the RDB error. The last BGSAVE failed: it is tried again by itself, and at once by BGSAVE."
            }
            Refusal::Log(errno) => unwritten_text(errno),
        }
    }
}

/// Seconds since something began, -1 if nothing is under way.
pub fn seconds_since(began_s: &AtomicU64, now_s: u64) -> i64 {
    match began_s.load(Relaxed) {
        0 => -1,
        began_s => now_s.saturating_sub(began_s).cast_signed(),
    }
}
