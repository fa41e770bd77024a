//! Snapshots of the whole server. A snapshot captures the data at one moment, its cut. Threads called walkers
//! then encode the data of all shards while commands go on.
//!
//! ```text
//! outgoing     chunks encoded by shards, and the state of the running snapshot
//! walk         threads that process one shard after the other, a slice at a time, and pass chunks on
//! shared_core  how long they hold a core that others want
//! writer       passes chunks on to the sink, in their order
//! file         a sink: a file beside the old one, which it replaces in the end
//! packing      a sink that compresses what goes to another one
//! by_piece     large collections as commands, for migrating slots
//! saver        SAVE, BGSAVE, save points, the last save before the end
//! ```
//!
//! One snapshot at a time, and none while a large value is sent to another node in pieces
//! ([`Snapshots::hold_off`]). [`Snapshots::begin`] requests all shards at once; with all of them locked each is
//! cut (`engine::snapshot`), functions are captured, and components that depend on this moment are notified:
//! the rewrite of the append-only file and the replicas record their positions in the log. Then walkers save
//! shard after shard. A command that is about to change an entry not yet saved first saves the entry into the
//! same queue. After a snapshot was cancelled or its sink failed, nothing more is encoded, but the walkers
//! still visit all entries, because each entry has to be marked before the next cut.

pub mod by_piece;
pub mod file;
mod outgoing;
mod packing;
pub mod saver;
mod shared_core;
mod walk;
mod writer;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::persist::rdb::encode::RdbEncodeOptions;
use crate::persist::rdb::packed::Codec;
use crate::script::functions::Code;
use crate::script::offload::OffloadPool;
use crate::shard::job::task;
use crate::state::Service;
use crate::telemetry::memory;
use basalt_commands::cluster::slot_note::SlotNote;
use basalt_engine::fences::Fence;
use basalt_engine::serial::{V10, V12, VALKEY_VERSIONS};
use basalt_engine::snapshot::{DbAtCut, Outlet};
use basalt_engine::{Engine, Now};
use outgoing::SnapshotChunkQueue;
use writer::SnapshotWriter;

/// Destination of a snapshot, written in consecutive pieces.
pub trait Sink: Send {
    /// Writes the next piece.
    fn write(&mut self, chunk: Vec<u8>) -> io::Result<()>;

    /// Finishes the snapshot. If not `ok`, the data is incomplete and must be discarded.
    fn finish(self: Box<Self>, ok: bool) -> io::Result<()>;
}

/// Format of an append-only file's base (`aof-use-rdb-preamble`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseForm {
    /// A regular snapshot.
    Rdb,
    /// Commands that recreate the data.
    Commands,
}

/// Purpose of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// SAVE, or the last save before the server exits: callers may wait for it.
    Save,
    /// BGSAVE and save points.
    BackgroundSave,
    /// The base of the append-only file.
    AofBase(BaseForm),
    /// Full resynchronization of replicas, which may request only part of the contents.
    Replicas(Contents),
}

impl Purpose {
    /// Returns the RDB version that can represent the cut and that the snapshot's readers support.
    pub fn version(self, cut: &Cut) -> u16 {
        match self {
            _ if !cut.has_field_deadlines => V10,
            Purpose::Replicas(contents) if contents.for_valkey => *VALKEY_VERSIONS.start(),
            _ => V12,
        }
    }
}

/// Contents of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Whether to include keys.
    pub keys: bool,
    /// Whether to include function libraries.
    pub functions: bool,
    /// Whether deadlines of hash fields are written in the format of Valkey 9 instead of Redis 7.4.
    pub for_valkey: bool,
    /// The codec with which the snapshot is compressed as a whole, if any.
    pub codec: Option<Codec>,
}

impl Default for Contents {
    fn default() -> Contents {
        Contents {
            keys: true,
            functions: true,
            for_valkey: false,
            codec: None,
        }
    }
}

/// State captured while all shards are locked.
#[derive(Clone, Debug, Default)]
pub struct Cut {
    /// The moment that the snapshot captures.
    pub now: Now,
    /// Number of changes of the data so far (`dirty`).
    pub dirty: u64,
    /// Number of times all data were deleted.
    pub flushes: u64,
    /// Databases that are not empty, by index.
    pub dbs: Vec<DbAtCut>,
    /// Bytes in use by the process.
    pub used_bytes: u64,
    /// Whether any hash fields have deadlines.
    pub has_field_deadlines: bool,
    /// The last fencing token issued.
    pub last_fence: u64,
    /// Records of interrupted slot migrations, whose slots' keys may have to be removed.
    slot_notes: Vec<SlotNote>,
    /// Sources of the function libraries.
    functions: Vec<Code>,
    /// Header fields with the origin of the data, such as its replication id and offset.
    origin: Vec<(&'static str, String)>,
}

impl Cut {
    /// Returns the number of keys in all databases.
    pub fn keys(&self) -> u64 {
        self.dbs.iter().map(|db| db.keys).sum()
    }

    /// Returns the fencing tokens of all locks, with the database and the key of each.
    fn fences(&self) -> impl Iterator<Item = (usize, &[u8], Fence)> {
        self.dbs.iter().flat_map(|db| {
            let all = db.fences.iter().flat_map(|by_key| by_key.iter());
            all.map(|(key, fenced)| (db.number, &**key, fenced.fence))
        })
    }

    /// Returns all blessed keys, with their databases.
    fn blessed(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.dbs.iter().flat_map(|db| {
            let rows = db.blessed.iter().flat_map(|by_hash| by_hash.values());
            rows.flatten().map(|blessed| (db.number, &*blessed.key))
        })
    }
}

/// Additional header fields of a snapshot: computed after the cut, on a thread that may wait.
pub type Fields = Box<dyn FnOnce() -> Vec<(&'static str, String)> + Send>;

/// Source of the data, such as a replication stream, whose position a snapshot records.
pub trait SnapshotSource: Send + Sync {
    /// Waits until the data corresponds to a position of the stream, and keeps it so until the guard is
    /// dropped. Blocks, so threads that serve connections must not call it.
    fn hold(&self) -> tokio::sync::MutexGuard<'_, ()>;
    /// Captures the stream position of the data while all shards are locked.
    fn at_cut(&self) -> Fields;
}

/// Callback that runs with all shards locked, and never waits.
pub type AtCut = Box<dyn FnOnce(&Cut) + Send>;

/// Error: a snapshot is already running.
#[derive(Clone)]
pub struct Busy(pub Arc<Running>);

impl fmt::Debug for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Busy({:?})", self.0.purpose)
    }
}

/// Why a snapshot failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The snapshot was cancelled.
    Cancelled,
    /// The sink of the snapshot failed.
    Io(io::ErrorKind, String),
}

impl Failure {
    fn of(error: &io::Error) -> Failure {
        Failure::Io(error.kind(), error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Cancelled => write!(f, "cancelled"),
            Failure::Io(_, text) => write!(f, "{text}"),
        }
    }
}

/// Outcome of a snapshot: the cut, if it succeeded.
pub type SnapshotResult = Result<Arc<Cut>, Failure>;

type Callback = Box<dyn FnOnce() + Send>;
type EndCallback = Box<dyn FnOnce(&SnapshotResult) + Send>;

#[derive(Default)]
struct SnapshotState {
    is_cut: bool,
    ended: Option<SnapshotResult>,
    at_cut: Vec<Callback>,
    at_end: Vec<EndCallback>,
}

/// A running snapshot.
pub struct Running {
    /// Purpose of the snapshot.
    pub purpose: Purpose,
    outgoing: Arc<SnapshotChunkQueue>,
    /// Number of times that all data had been deleted before the cut.
    flushes_at_cut: AtomicU64,
    state: Mutex<SnapshotState>,
    ended: Condvar,
}

impl Running {
    /// True if all data were deleted after the cut, so that the snapshot is obsolete; `flushes` is the current
    /// number of such deletions.
    pub fn is_history(&self, flushes: u64) -> bool {
        self.flushes_at_cut.load(Relaxed) < flushes
    }

    /// Cancels the snapshot, unless it is done. The snapshot ends soon after.
    pub fn cancel(&self) {
        self.outgoing.cancel();
    }

    /// Waits until the snapshot has ended and its callbacks have run. Blocks, so threads that serve connections
    /// must not call it.
    pub fn wait(&self) -> SnapshotResult {
        let mut state = self.state.lock();
        loop {
            match &state.ended {
                Some(ended) => return ended.clone(),
                None => self.ended.wait(&mut state),
            }
        }
    }

    /// Waits up to `patience` for the snapshot to end; returns whether it has ended.
    pub fn wait_for(&self, patience: Duration) -> bool {
        let mut state = self.state.lock();
        if state.ended.is_none() {
            let _ = self.ended.wait_for(&mut state, patience);
        }
        state.ended.is_some()
    }

    /// Runs a callback when the cut has been made, immediately if that is the case already. No shard is locked
    /// during the callback.
    pub fn when_cut(&self, callback: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        match state.is_cut {
            false => state.at_cut.push(Box::new(callback)),
            true => {
                drop(state);
                callback();
            }
        }
    }

    /// Runs a callback when the snapshot ends, before the threads that wait for the end continue.
    pub fn when_ended(&self, callback: impl FnOnce(&SnapshotResult) + Send + 'static) {
        let mut state = self.state.lock();
        match state.ended.clone() {
            None => state.at_end.push(Box::new(callback)),
            Some(ended) => {
                drop(state);
                callback(&ended);
            }
        }
    }

    /// Returns the number of keys encoded so far.
    pub fn keys_saved(&self) -> u64 {
        self.outgoing.keys()
    }

    /// Returns the bytes of entries that were saved early because a command was about to change them.
    pub fn copied_bytes(&self) -> u64 {
        self.outgoing.copied_bytes()
    }

    /// Returns how many bytes the sink has taken, if commands that may write are waiting for the snapshot;
    /// otherwise `None`.
    pub fn held_up(&self) -> Option<u64> {
        self.outgoing
            .is_behind()
            .then(|| self.outgoing.taken_bytes())
    }

    /// Fails the snapshot for this reason, unless it is done.
    pub fn fail(&self, why: &'static str) {
        self.outgoing.fail(why);
    }

    /// Returns the number of encoded bytes that the sink has not taken yet.
    pub fn waiting_bytes(&self) -> u64 {
        self.outgoing.waiting_bytes() as u64
    }

    fn note_cut(&self) {
        let callbacks = {
            let mut state = self.state.lock();
            state.is_cut = true;
            std::mem::take(&mut state.at_cut)
        };
        callbacks.into_iter().for_each(|callback| callback());
    }

    fn note_end(&self, ended: &SnapshotResult) {
        loop {
            let mut state = self.state.lock();
            let callbacks = std::mem::take(&mut state.at_end);
            if callbacks.is_empty() {
                state.ended = Some(ended.clone());
                self.ended.notify_all();
                return;
            }
            drop(state);
            callbacks.into_iter().for_each(|callback| callback(ended));
        }
    }
}

/// Guard that prevents snapshots from starting; see [`Snapshots::hold_off`].
pub struct HeldOff<'a> {
    snapshots: &'a Snapshots,
    _held: MutexGuard<'a, ()>,
}

impl HeldOff<'_> {
    /// True if a snapshot waits for this guard.
    pub fn keeps_one_waiting(&self) -> bool {
        self.snapshots.held_off.load(Relaxed) > 0
    }
}

/// The snapshots of a server.
pub struct Snapshots {
    service: &'static Service,
    current: Mutex<Option<Arc<Running>>>,
    /// Locked from each cut to the end of its snapshot, and by slot migrations while they make shards save a
    /// collection in pieces.
    by_piece: Mutex<()>,
    /// Number of snapshots that wait for the lock `by_piece`.
    held_off: AtomicUsize,
    /// Set before the first snapshot, if the data has an origin.
    origin: OnceLock<Arc<dyn SnapshotSource>>,
    /// The snapshot threads. Never freed, because the threads' statistics are never freed either.
    threads: &'static OffloadPool,
}

impl Snapshots {
    /// Creates the snapshots of this server.
    pub fn new(service: &'static Service) -> Arc<Snapshots> {
        Arc::new(Snapshots {
            service,
            current: Mutex::new(None),
            by_piece: Mutex::new(()),
            held_off: AtomicUsize::new(0),
            origin: OnceLock::new(),
            threads: Box::leak(Box::default()),
        })
    }

    /// Sets the origin of the data.
    pub fn set_origin(&self, origin: Arc<dyn SnapshotSource>) {
        let is_first = self.origin.set(origin).is_ok();
        assert!(is_first, "the origin is set once");
    }

    /// Returns the running snapshot, if any.
    pub fn current(&self) -> Option<Arc<Running>> {
        self.current.lock().clone()
    }

    /// Returns a guard that keeps snapshots from making their cuts, or `None` if a snapshot is running or
    /// waiting. For callers that make shards save a large collection in pieces, only while they do so.
    pub fn hold_off(&self) -> Option<HeldOff<'_>> {
        if self.held_off.load(Relaxed) > 0 {
            return None;
        }
        let held = self.by_piece.try_lock()?;
        Some(HeldOff {
            snapshots: self,
            _held: held,
        })
    }

    /// Begins a snapshot; `at_cut` runs with all shards locked.
    pub fn begin(
        self: &Arc<Self>,
        purpose: Purpose,
        at_cut: AtCut,
        sink: Box<dyn Sink>,
    ) -> Result<Arc<Running>, Busy> {
        let config = self.service.config.load();
        let sink = match purpose.codec(&config) {
            Some(codec) => packing::pack(sink, codec, config.rdbchecksum),
            None => sink,
        };
        let running = {
            let mut current = self.current.lock();
            if let Some(running) = &*current {
                return Err(Busy(Arc::clone(running)));
            }
            let form = match purpose {
                Purpose::AofBase(form) => form,
                _ => BaseForm::Rdb,
            };
            let options = RdbEncodeOptions {
                version: V10,
                compress: purpose.compresses_strings(&config),
                checksum: config.rdbchecksum && form == BaseForm::Rdb,
            };
            let running = Arc::new(Running {
                purpose,
                outgoing: Arc::new(SnapshotChunkQueue::new(
                    self.service,
                    (form, options),
                    &config,
                )),
                flushes_at_cut: AtomicU64::new(u64::MAX),
                state: Mutex::default(),
                ended: Condvar::new(),
            });
            *current = Some(Arc::clone(&running));
            running
        };
        let (snapshots, begun) = (Arc::clone(self), Arc::clone(&running));
        self.threads
            .run(move || snapshots.conduct(&begun, at_cut, sink), false);
        Ok(running)
    }

    /// Runs a closure on one of the snapshot threads.
    pub fn run(&self, work: impl FnOnce() + Send + 'static) {
        self.threads.run(work, false);
    }

    /// Runs a snapshot from the cut to the end.
    fn conduct(&self, running: &Arc<Running>, at_cut: AtCut, sink: Box<dyn Sink>) {
        let figures = &self.service.telemetry.persistence.rdb;
        let config = self.service.config.load();
        self.held_off.fetch_add(1, Relaxed);
        let by_piece = self.by_piece.lock();
        self.held_off.fetch_sub(1, Relaxed);
        let held = self.origin.get().map(|origin| origin.hold());
        let (mut cut, origin) = self.cut(running, at_cut);
        drop(held);
        running.flushes_at_cut.store(cut.flushes, Relaxed);
        cut.origin = origin();
        let cut = Arc::new(cut);
        figures.keys_processed.store(0, Relaxed);
        figures.keys_total.store(cut.keys(), Relaxed);
        figures.cuts.fetch_add(1, Relaxed);
        running.note_cut();
        let writer = SnapshotWriter::new(Arc::clone(&running.outgoing), sink);
        writer.begin(&cut, running.purpose, config.aof_timestamp_enabled);
        self.walk(running, &writer);
        writer.follow(&cut);
        let ended = writer.end();
        figures.keys_processed.store(0, Relaxed);
        figures.keys_total.store(0, Relaxed);
        let last_copied_bytes = match running.purpose {
            Purpose::AofBase(_) => &self.service.telemetry.persistence.aof.last_copied_bytes,
            _ => &figures.last_copied_bytes,
        };
        last_copied_bytes.store(running.copied_bytes(), Relaxed);
        drop(by_piece);
        // Clear `current` first, because the end callbacks may begin the next snapshot.
        *self.current.lock() = None;
        running.note_end(&ended.map(|()| cut));
    }

    /// Makes the cut.
    fn cut(&self, running: &Running, at_cut: AtCut) -> (Cut, Fields) {
        let service = self.service;
        let outgoing = Arc::clone(&running.outgoing);
        let outlet: Arc<dyn Outlet> = Arc::clone(&outgoing) as _;
        let nowhere = || -> Fields { Box::new(Vec::new) };
        let result = Arc::new(Mutex::new((Cut::default(), nowhere())));
        let found = Arc::clone(&result);
        let used_bytes = memory::used_bytes();
        let mut at_cut = Some(at_cut);
        let origin = self.origin.get().cloned();
        let purpose = running.purpose;
        let contents = match purpose {
            Purpose::Replicas(contents) => contents,
            _ => Contents::default(),
        };
        run_on_all(service, move |engines, now| {
            let mut cut = Cut {
                now,
                used_bytes,
                flushes: flushes(service),
                last_fence: service.fence_source.last(),
                slot_notes: match service.cluster.get() {
                    Some(cluster) => cluster.slot_notes(),
                    None => Vec::new(),
                },
                functions: match contents.functions {
                    true => service.scripts.functions.codes(),
                    false => Vec::new(),
                },
                ..Cut::default()
            };
            outgoing.set_cut(now);
            if contents.keys {
                for engine in engines {
                    capture(engine, &outlet, &mut cut);
                }
            }
            cut.dbs.sort_unstable_by_key(|db| db.number);
            outgoing.set_version(purpose.version(&cut));
            if let Some(at_cut) = at_cut.take() {
                at_cut(&cut);
            }
            let origin = origin.as_ref().map(|origin| origin.at_cut());
            *found.lock() = (cut, origin.unwrap_or_else(nowhere));
        });
        std::mem::replace(&mut *result.lock(), (Cut::default(), nowhere()))
    }
}

/// Returns how many times all data were deleted since the start.
fn flushes(service: &Service) -> u64 {
    let shards = service.all_published.iter();
    shards.map(|shard| shard.flushes.get()).sum()
}

/// Runs a closure with all shards locked, and waits until it has run. Blocks, so threads that serve connections
/// must not call it.
pub fn run_on_all(service: &Service, work: impl FnMut(&mut [&mut Engine], Now) + Send + 'static) {
    walk::await_end(&task::send_to_all(&service.shards, work));
}

/// Makes the cut of one shard and adds its figures to `cut`.
fn capture(engine: &mut Engine, outlet: &Arc<dyn Outlet>, cut: &mut Cut) {
    let published = engine.published();
    cut.dirty += published.dirty.get();
    let fields = published.dbs.iter().map(|db| db.field_volatile_keys.get());
    cut.has_field_deadlines |= fields.sum::<u64>() > 0;
    for of_shard in engine.begin_snapshot(outlet) {
        let known = cut.dbs.iter_mut().find(|db| db.number == of_shard.number);
        match known {
            Some(db) => {
                db.keys += of_shard.keys;
                db.volatile_keys += of_shard.volatile_keys;
                db.fences.extend(of_shard.fences);
                db.blessed.extend(of_shard.blessed);
            }
            None => cut.dbs.push(of_shard),
        }
    }
}
