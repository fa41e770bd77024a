//! Snapshots in the file `dbfilename`: SAVE, BGSAVE, save points, FLUSHALL, and the last save at shutdown.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::file::FileSink;
use super::{AtCut, Busy, Cut, Failure, Purpose, Running, SnapshotResult, Snapshots, flushes};
use crate::persist::files::Files;
use crate::state::Service;
use crate::telemetry::clock;
use crate::telemetry::persistence::WriteRefusal;
use basalt_commands::config::Config;
use basalt_core::base::lossless;

/// Delay in seconds of automatic saves after a failed one.
const RETRY_S: u64 = 5;

/// Maximum delay in seconds before a failed save is retried while writes are refused.
const RETRY_S_MAX: u64 = 60;

/// Maximum time that write commands wait for a snapshot that makes no progress.
const STALLED_MAX: Duration = Duration::from_secs(5);

/// Outcome of a request for a background snapshot.
#[derive(Clone)]
pub enum BgsaveOutcome {
    /// The snapshot has begun.
    Runs(Arc<Running>),
    /// The snapshot will run when the snapshot in progress is done.
    Scheduled,
}

/// Returns the absolute path of the file, independent of later changes of the working directory.
pub fn path(config: &Config) -> PathBuf {
    let name = lossless::path_of(&config.dbfilename);
    let path: PathBuf = config.dir.join(name);
    std::path::absolute(&path).unwrap_or(path)
}

/// Records that a snapshot has been written to the file.
pub fn note_saved(service: &Service, files: &dyn Files, path: &Path, cut: &Cut) {
    let figures = &service.telemetry.persistence.rdb;
    figures.dirty_at_save.store(cut.dirty, Relaxed);
    figures.last_save_s.store(clock::unix_ms() / 1_000, Relaxed);
    figures.last_ok.store(true, Relaxed);
    figures.saves.fetch_add(1, Relaxed);
    let spent_ms = clock::unix_ms().saturating_sub(cut.now.unix_ms).max(1);
    let per_s = cut.keys().saturating_mul(1_000) / spent_ms;
    figures.last_keys_per_s.store(per_s, Relaxed);
    let bytes = files.len(path).ok().flatten();
    figures.last_bytes.store(bytes.unwrap_or(0), Relaxed);
    tracing::info!("DB saved on disk");
}

/// Records that a background snapshot could not be written to the file. A cancelled snapshot has not failed.
pub fn note_failed(service: &Service, failure: &Failure) {
    if !matches!(failure, Failure::Cancelled) {
        let figures = &service.telemetry.persistence.rdb;
        figures.last_ok.store(false, Relaxed);
    }
}

/// Saver of snapshots to the file `dbfilename`: on request, at save points, and at shutdown.
pub struct Saver {
    service: &'static Service,
    snapshots: Arc<Snapshots>,
    files: Arc<dyn Files>,
    is_scheduled: AtomicBool,
    /// Unix second when a background save was last begun.
    tried_s: AtomicU64,
    /// Number of consecutive failed background saves.
    failures: AtomicU64,
    /// Number of deletions of all data (FLUSHALL) handled by `Saver::note_flushes`.
    flushes_seen: AtomicU64,
    /// If write commands wait for a snapshot: how many bytes the sink had taken at its last progress, and when
    /// that was seen.
    stalled: Mutex<Option<(u64, Instant)>>,
}

impl Saver {
    /// Creates the saver of this server, with these files.
    pub fn new(snapshots: &Arc<Snapshots>, files: Arc<dyn Files>) -> Arc<Saver> {
        Arc::new(Saver {
            service: snapshots.service,
            snapshots: Arc::clone(snapshots),
            files,
            is_scheduled: AtomicBool::new(false),
            tried_s: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            flushes_seen: AtomicU64::new(0),
            stalled: Mutex::new(None),
        })
    }

    /// Returns the running snapshot, if it is one to the file `dbfilename`.
    pub fn running(&self) -> Option<Arc<Running>> {
        let current = self.snapshots.current();
        current.filter(|running| matches!(running.purpose, Purpose::Save | Purpose::BackgroundSave))
    }

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        path(&self.service.config.load())
    }

    fn sink(&self, config: &Config) -> Box<FileSink> {
        let path = path(config);
        let files = Arc::clone(&self.files);
        Box::new(FileSink::new(
            files,
            path,
            config.rdb_save_incremental_fsync,
        ))
    }

    /// Begins a snapshot to the file.
    fn begin(self: &Arc<Self>, purpose: Purpose) -> Result<Arc<Running>, Busy> {
        let config = self.service.config.load_full();
        let at_cut: AtCut = Box::new(|_| {});
        let running = self.snapshots.begin(purpose, at_cut, self.sink(&config))?;
        let figures = &self.service.telemetry.persistence.rdb;
        let began_s = clock::unix_ms() / 1_000;
        if purpose == Purpose::BackgroundSave {
            self.tried_s.store(began_s, Relaxed);
            figures.in_progress.store(true, Relaxed);
            figures.began_s.store(began_s, Relaxed);
            tracing::info!("Background saving started by pid {}", std::process::id());
        }
        let saver = Arc::downgrade(self);
        running.when_ended(move |ended| {
            if let Some(saver) = saver.upgrade() {
                saver.note_end(purpose, ended, began_s);
            }
        });
        Ok(running)
    }

    fn note_end(&self, purpose: Purpose, ended: &SnapshotResult, began_s: u64) {
        let figures = &self.service.telemetry.persistence.rdb;
        let now_s = clock::unix_ms() / 1_000;
        let is_background = purpose == Purpose::BackgroundSave;
        if let Ok(cut) = ended {
            note_saved(self.service, &*self.files, &self.path(), cut);
            self.failures.store(0, Relaxed);
        }
        if !is_background {
            return;
        }
        match ended {
            Ok(_) => tracing::info!("Background saving terminated with success"),
            // Log a cancelled save in Redis's words; as in Redis, it does not count as an error.
            Err(Failure::Cancelled) => tracing::warn!("Background saving terminated by signal 10"),
            Err(failure) => {
                note_failed(self.service, failure);
                self.failures.fetch_add(1, Relaxed);
                tracing::warn!("Background saving error: {failure}");
            }
        }
        let spent_s = now_s.saturating_sub(began_s).cast_signed();
        figures.last_duration_s.store(spent_s, Relaxed);
        figures.began_s.store(0, Relaxed);
        figures.in_progress.store(false, SeqCst);
    }

    /// Runs BGSAVE. With `may_wait`, schedules the save if another kind of snapshot is running. The error
    /// contains the running snapshot.
    pub fn in_background(self: &Arc<Self>, may_wait: bool) -> Result<BgsaveOutcome, Busy> {
        match self.begin(Purpose::BackgroundSave) {
            Ok(running) => Ok(BgsaveOutcome::Runs(running)),
            Err(Busy(running)) => {
                let is_save = matches!(running.purpose, Purpose::Save | Purpose::BackgroundSave);
                if is_save || !may_wait {
                    return Err(Busy(running));
                }
                self.is_scheduled.store(true, SeqCst);
                Ok(BgsaveOutcome::Scheduled)
            }
        }
    }

    /// Schedules a save for when no other snapshot is running.
    pub fn schedule(&self) {
        self.is_scheduled.store(true, SeqCst);
    }

    /// Runs SAVE. Blocks until a running snapshot has ended (with `cancels`, that snapshot is cancelled) and
    /// until this one is done.
    pub fn save(self: &Arc<Self>, cancels: bool) -> Result<(), Failure> {
        loop {
            match self.begin(Purpose::Save) {
                Ok(running) => return running.wait().map(|_| ()),
                Err(Busy(other)) => {
                    if cancels {
                        other.cancel();
                    }
                    // The outcome of the other snapshot does not matter here.
                    let _ = other.wait();
                }
            }
        }
    }

    /// Runs a closure on a thread that may wait.
    pub fn run(&self, work: impl FnOnce() + Send + 'static) {
        self.snapshots.run(work);
    }

    /// Checks whether a save is due; never waits. Called a few times per second.
    pub fn tick(self: &Arc<Self>, now_s: u64) {
        let service = self.service;
        let persistence = &service.telemetry.persistence;
        if persistence.loading.is_loading.load(Relaxed) {
            return;
        }
        let dirty = service.all_published.iter().map(|shard| shard.dirty.get());
        let dirty = dirty.sum();
        let config = service.config.load();
        if self.note_flushes() {
            let saver = Arc::clone(self);
            // Any error was already logged.
            self.run(move || drop(saver.save(false)));
        }
        let figures = &persistence.rdb;
        let current = self.snapshots.current();
        let of_current = |figure: fn(&Running) -> u64| current.as_deref().map_or(0, figure);
        for (told, figure) in [
            (&figures.keys_processed, of_current(Running::keys_saved)),
            (&figures.waiting_bytes, of_current(Running::waiting_bytes)),
            (&figures.copied_bytes, of_current(Running::copied_bytes)),
        ] {
            told.store(figure, Relaxed);
        }
        if let Some(running) = current {
            return self.look_for_stall(&running);
        }
        let changes = persistence.changes_since_save(dirty);
        let since_s = now_s.saturating_sub(figures.last_save_s.load(Relaxed));
        let waited_s = now_s.saturating_sub(self.tried_s.load(Relaxed));
        let may_try = figures.last_ok.load(Relaxed) || waited_s > RETRY_S;
        let is_due = |seconds: u64, count: u64| changes >= count && since_s > seconds && may_try;
        let mut points = config.save.iter();
        if let Some(point) = points.find(|point| is_due(point.seconds, point.changes)) {
            let (changes, seconds) = (point.changes, point.seconds);
            tracing::info!("{changes} changes in {seconds} seconds. Saving...");
            let _ = self.in_background(false);
        } else if persistence.refusal(&config) == Some(WriteRefusal::Snapshot)
            && waited_s > self.retry_s()
        {
            // Retry here, because refused writes make no changes and so never reach a save point.
            tracing::info!("The last snapshot failed and writes are refused. Saving again...");
            let _ = self.in_background(false);
        } else if may_try
            && self.is_scheduled.swap(false, SeqCst)
            && self.in_background(false).is_err()
        {
            self.is_scheduled.store(true, SeqCst);
        }
    }

    /// Returns the seconds before a failed save is retried because writes are refused without it. The delay
    /// doubles with each failure, because a save may write much data before it finds the disk full.
    fn retry_s(&self) -> u64 {
        let failures = self.failures.load(Relaxed).clamp(1, 8);
        (RETRY_S << (failures - 1)).min(RETRY_S_MAX)
    }

    /// Fails a snapshot if its sink has made no progress for `STALLED_MAX` while write commands waited for
    /// it.
    fn look_for_stall(&self, running: &Running) {
        let mut stalled = self.stalled.lock();
        let Some(taken_bytes) = running.held_up() else {
            *stalled = None;
            return;
        };
        match *stalled {
            Some((before, since)) if before == taken_bytes => {
                if since.elapsed() >= STALLED_MAX {
                    *stalled = None;
                    tracing::warn!(
                        "The snapshot is cancelled: writes waited for it for {} seconds, and it made no progress",
                        STALLED_MAX.as_secs()
                    );
                    running.fail("no progress while writes waited for it");
                }
            }
            _ => *stalled = Some((taken_bytes, Instant::now())),
        }
    }

    /// Checks whether all data were deleted since the last check. If so, a running background save or snapshot
    /// for replicas is obsolete and is cancelled; the replicas will retry. Returns whether the empty state must
    /// be saved.
    pub fn note_flushes(&self) -> bool {
        let flushes = flushes(self.service);
        let current = self.snapshots.current();
        if let Some(running) = current
            && matches!(
                running.purpose,
                Purpose::BackgroundSave | Purpose::Replicas(_)
            )
            && running.is_history(flushes)
        {
            running.cancel();
        }
        let is_new = self.flushes_seen.swap(flushes, SeqCst) != flushes;
        is_new && !self.service.config.load().save.is_empty()
    }
}
