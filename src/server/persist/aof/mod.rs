//! The append-only file: Redis 7's directory of files, written from the log.
//!
//! ```text
//! manifest  the list of files                    check    the tool that checks and repairs them
//! store     changes to that list, such that a crash leaves either the old or the new state
//! writer    appends whole records to the current file
//! threads   the writer's thread, and the one that syncs each second
//! gathering delays a sync so that it covers more of the waiting clients
//! rewrite   replaces files by a snapshot: on request, automatically, after a failure, when the AOF is turned on
//! start     loading, turning the AOF on and off
//! ```
//!
//! The records come from the command log ("the log", [`crate::persist::oplog`]); the writer thread takes them
//! at its own pace. With `appendfsync always`, replies wait for the disk but threads do not: a session calls
//! [`Durability::must_wait`] before its replies are sent.
//!
//! Failures: a failed write is retried, and writing clients get MISCONF meanwhile. After a failed sync the
//! contents of the disk are unknown, and no later sync reveals them: nothing more is written after the lost
//! bytes, and clients get MISCONF until a rewrite into new files, which begins automatically, is on the disk.
//! With `always` the server exits, as redis-server does.
//!
//! Lock order: [`Inner`], then writer or policy. None of them may be held while locking a shard. [`Inner`] is
//! held while files change, so no thread that serves connections waits for it, except for CONFIG SET
//! appendonly.

pub mod check;
mod gathering;
pub mod manifest;
mod rewrite;
pub mod start;
pub mod store;
#[cfg(test)]
mod tests;
mod threads;
pub mod writer;

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Instant;

use parking_lot::Mutex;

use crate::persist::files::Files;
use crate::persist::oplog::{BackpressureSource, Bounds, Gate, OpLog, OpLogReader};
use crate::persist::snapshot::{Running, Snapshots};
use crate::state::Service;
use crate::state::durability::Durability;
use crate::telemetry::persistence::AofFigures;
use basalt_commands::client::shared::Shared;
use basalt_commands::config::Config;
use basalt_commands::config::values::Appendfsync;
use basalt_core::base::lossless;
use gathering::GroupCommitDelay;
use rewrite::RewriteBackoff;
use store::{Store, StoreError};
use writer::AofWriter;

pub use rewrite::RewriteOutcome;

/// Whether the append-only file (AOF) is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The AOF is off: writes are not appended.
    Off,
    /// The AOF is being turned on: a first rewrite is writing the current dataset, and appended writes count
    /// once it is done.
    Waiting,
    /// The AOF is on: writes are appended.
    On,
}

struct Inner {
    phase: Phase,
    store: Option<Store>,
    reader: Option<Arc<OpLogReader>>,
    /// The snapshot of the running rewrite, if any.
    running: Option<Arc<Running>>,
    /// True while a rewrite begins, runs or ends.
    is_rewriting: bool,
    limiter: RewriteBackoff,
    last_mark: u64,
}

/// Settings that determine whether replies wait for the disk, and whether replaced files are removed.
struct AofPolicy {
    /// The log reader whose records are appended; `None` while the AOF is off.
    reader: Option<Arc<OpLogReader>>,
    /// The server is shutting down: no reply reveals data that is not on the disk, whatever `appendfsync` says.
    is_ending: bool,
    /// `aof-disable-auto-gc`, as last applied.
    keeps_history: bool,
}

/// The append-only file of a server: its state, its writer, and its rewrites.
pub struct Aof {
    service: &'static Service,
    log: Arc<OpLog>,
    snapshots: Arc<Snapshots>,
    files: Arc<dyn Files>,
    inner: Mutex<Inner>,
    writer: Mutex<AofWriter>,
    /// Log position before which everything is synced to the disk, and the tasks that wait for it.
    synced: Gate,
    gathering: Mutex<GroupCommitDelay>,
    policy: Mutex<AofPolicy>,
    /// Whether writes are appended; only then is `synced` meaningful.
    is_on: AtomicBool,
    is_scheduled: AtomicBool,
    /// Total bytes of the manifest's files except the one being appended to.
    parts_bytes: AtomicU64,
    /// Whether the last write failed and is being retried.
    is_failing: AtomicBool,
    /// DEBUG AOF-FLUSH-SLEEP, in microseconds.
    flush_sleep_us: AtomicU64,
    threads: Mutex<bool>,
    last_try: Mutex<Option<Instant>>,
}

impl Aof {
    /// Creates the append-only file of this server, turned off.
    pub fn new(
        service: &'static Service,
        log: Arc<OpLog>,
        snapshots: Arc<Snapshots>,
        files: Arc<dyn Files>,
    ) -> Arc<Aof> {
        log.set_bounds(Bounds::for_limit(service.config.load().maxmemory));
        Arc::new(Aof {
            service,
            log,
            snapshots,
            files,
            inner: Mutex::new(Inner {
                phase: Phase::Off,
                store: None,
                reader: None,
                running: None,
                is_rewriting: false,
                limiter: RewriteBackoff::default(),
                last_mark: 0,
            }),
            writer: Mutex::default(),
            synced: Gate::default(),
            gathering: Mutex::default(),
            policy: Mutex::new(AofPolicy {
                reader: None,
                is_ending: false,
                keeps_history: service.config.load().aof_disable_auto_gc,
            }),
            is_on: AtomicBool::new(false),
            is_scheduled: AtomicBool::new(false),
            parts_bytes: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
            flush_sleep_us: AtomicU64::new(0),
            threads: Mutex::new(false),
            last_try: Mutex::new(None),
        })
    }

    fn figures(&self) -> &'static AofFigures {
        &self.service.telemetry.persistence.aof
    }

    fn open_store(&self, config: &Config) -> Result<Store, StoreError> {
        let directory: PathBuf = lossless::path_of(&config.appenddirname);
        let name = lossless::bytes_of(&config.appendfilename).into_owned();
        Store::open(Arc::clone(&self.files), directory, name)
    }

    /// Sets the number of relays, one per runtime, that wake the tasks waiting for the disk.
    pub fn set_relays(&self, count: usize) {
        self.synced.set_relays(count);
    }

    /// Runs the relay of a runtime; must be polled on that runtime.
    pub async fn relay(self: Arc<Aof>, number: usize) -> Infallible {
        std::future::poll_fn(|cx| self.synced.poll_relay(number, cx)).await
    }

    /// Applies a change of `appendfsync` and of `aof-disable-auto-gc`; never waits for a disk.
    pub fn follow_config(self: &Arc<Self>) {
        let keeps_history = self.service.config.load().aof_disable_auto_gc;
        let kept_history = {
            let mut policy = self.policy.lock();
            self.apply(&policy);
            std::mem::replace(&mut policy.keeps_history, keeps_history)
        };
        if kept_history && !keeps_history {
            let aof = Arc::clone(self);
            self.snapshots
                .run(move || aof.delete_history(&mut aof.inner.lock()));
        }
    }

    /// Applies a change of `inner.phase` or of the settings.
    fn follow(&self, inner: &Inner) {
        let mut policy = self.policy.lock();
        let is_on = inner.phase == Phase::On;
        policy.reader = inner.reader.as_ref().filter(|_| is_on).cloned();
        self.apply(&policy);
    }

    fn apply(&self, policy: &AofPolicy) {
        let is_always = self.service.config.load().appendfsync == Appendfsync::Always;
        let waits = (is_always || policy.is_ending) && policy.reader.is_some();
        self.is_on.store(policy.reader.is_some(), Relaxed);
        // Clients are served until the process ends: if a client's reply did not see this, its command was appended
        // before it was set, so the final sync covers it.
        self.service.reply_holds.set_disk(waits);
        self.log.set_urgent(waits);
        // Let waiting clients check again whether they must wait.
        self.synced.open();
        if waits && let Some(reader) = &policy.reader {
            reader.nudge();
        }
    }

    /// Sets the delay of DEBUG AOF-FLUSH-SLEEP, in microseconds.
    pub fn set_flush_sleep(&self, us: u64) {
        self.flush_sleep_us.store(us, Relaxed);
    }

    /// Returns whether everything before a log position is on the disk, including data from before the log
    /// existed; `None` if the AOF is off. `waiter` is woken when the result may have changed.
    pub fn is_synced(&self, position: u64, waiter: Option<&Arc<Shared>>) -> Option<bool> {
        let is_synced = || match self.figures().enabled.load(Relaxed) {
            true => Some(self.is_on.load(Relaxed) && self.synced.passed() >= position),
            false => None,
        };
        if let Some(waiter) = waiter {
            let waker = waiter.nudging();
            let mut cx = Context::from_waker(&waker);
            let _ = self.synced.poll_next(&mut cx, || false);
        }
        is_synced()
    }

    /// Returns the position after everything that was appended to the log.
    pub fn log_position(&self) -> u64 {
        self.log.tail()
    }

    /// Counts a write command that waits before it locks shards, by the consumer that it waits for.
    fn note_wait(&self) {
        let waits = &self.service.telemetry.persistence.writer_waits;
        waits.all.fetch_add(1, Relaxed);
        let whom = match self.log.awaited() {
            Some(BackpressureSource::Disk) => &waits.for_disk,
            Some(BackpressureSource::Replica) => &waits.for_replica,
            None => &waits.for_snapshot,
            Some(BackpressureSource::Log) => return,
        };
        whom.fetch_add(1, Relaxed);
    }

    /// Records a failed write or sync, so that writing clients get an error.
    fn note_failure(&self, error: &io::Error) {
        let figures = self.figures();
        figures
            .last_errno
            .store(error.raw_os_error().unwrap_or(5), Relaxed);
        figures.last_write_ok.store(false, Relaxed);
    }

    fn note_recovery(&self) {
        if !self.figures().last_write_ok.swap(true, Relaxed) {
            tracing::warn!("AOF write error looks solved. The server can write again.");
        }
    }

    /// Handles a possible loss of written data: stops writing to the file, and schedules a rewrite, which
    /// restores a complete file.
    fn lose(&self, writer: &mut AofWriter, error: &io::Error) {
        self.note_failure(error);
        writer.hold();
        self.is_scheduled.store(true, Relaxed);
    }

    /// Measures the manifest's files. Stores the bytes of those that are not appended to, and returns the total
    /// bytes of all.
    fn measure(&self, inner: &Inner) -> u64 {
        let Some(store) = &inner.store else { return 0 };
        let parts = store.manifest().loaded();
        let all: u64 = parts.filter_map(|part| store.len_of(part).ok()).sum();
        let own = self.writer.lock().file_bytes();
        self.parts_bytes.store(all.saturating_sub(own), Relaxed);
        all
    }
}

impl Durability for Aof {
    fn is_crowded(&self) -> bool {
        // After a failed write, writing clients get MISCONF and do not wait.
        self.log.is_crowded() && self.figures().last_write_ok.load(Relaxed)
    }

    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.service.must_writers_wait() {
            self.note_wait();
        }
        self.log.poll_room(cx, || !self.service.must_writers_wait())
    }

    fn look_again(&self) {
        self.log.look_again();
    }

    fn follow_limit(&self, maxmemory: u64) {
        self.log.set_bounds(Bounds::for_limit(maxmemory));
    }

    fn held_bytes(&self) -> u64 {
        let reader = self.policy.lock().reader.clone();
        self.log.ring_taken_bytes() + reader.map_or(0, |reader| reader.behind_bytes())
    }

    fn must_wait(&self, position: u64) -> bool {
        // Read after the append of the command that the reply confirms; see `shut_down`.
        self.service.reply_holds.wait_for_disk() && self.synced.passed() < position
    }

    fn poll_synced(&self, position: u64, cx: &mut Context<'_>) -> Poll<()> {
        match self.must_wait(position) {
            true => self
                .synced
                .poll_until(position, cx, || !self.must_wait(position)),
            false => Poll::Ready(()),
        }
    }
}
