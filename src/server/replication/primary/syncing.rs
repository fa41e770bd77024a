//! Full synchronizations: replicas wait in one queue, and those that can share a snapshot get one together.
//!
//! With all shards locked the snapshot is cut and a marker is set in the stream ([`Stream::cut`]); when the marker
//! arrives, each replica gets a cursor after it, so that nothing is missing between the snapshot and the stream.
//!
//! [`Stream::cut`]: crate::replication::stream::ReplicationStream::cut

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use bytes::Bytes;
use parking_lot::Mutex;

use super::Primary;
use super::peer::ConnectedReplica;
use super::transfer::{SnapshotTransfer, TransferReader};
use crate::persist::rdb::packed::Codec;
use crate::persist::snapshot::file::FileSink;
use crate::persist::snapshot::saver;
use crate::persist::snapshot::{AtCut, Busy, Contents, Purpose, Sink, SnapshotResult};
use crate::replication::backlog::Cursor;
use crate::replication::history::random_id;
use crate::replication::stream::Source;
use crate::telemetry::clock;
use basalt_commands::config::Config;
use basalt_commands::config::values::ReplCompression;

/// Bytes of a file read at a time.
const PIECE_BYTES: usize = 256 << 10;

/// The data that a replica receives in a full synchronization.
pub(super) struct Joined {
    /// The id of the stream.
    pub id: String,
    /// The offset of the snapshot.
    pub offset: u64,
    /// The database selected in the stream at that offset, if known.
    pub db: Option<usize>,
    /// The snapshot, in its wire format.
    pub reader: TransferReader,
    /// Cursor of the stream after the snapshot.
    pub cursor: Cursor,
    /// Whether the snapshot ends with a marker, so that the replica has to confirm that it has loaded the
    /// snapshot.
    pub ends_with_mark: bool,
    /// RDB version of the snapshot.
    pub version: u16,
}

/// An entry of the queue.
#[derive(Default)]
pub(super) struct SyncQueueEntry {
    joined: Mutex<Option<Joined>>,
    waker: AtomicWaker,
}

impl SyncQueueEntry {
    /// Completes when the snapshot begins.
    pub(super) fn poll_joined(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        match self.joined.lock().is_some() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    pub(super) fn take(&self) -> Option<Joined> {
        self.joined.lock().take()
    }

    fn put(&self, joined: Joined) {
        *self.joined.lock() = Some(joined);
        self.waker.wake();
    }
}

struct WaitingReplica {
    place: Arc<SyncQueueEntry>,
    peer: Arc<ConnectedReplica>,
    since_ms: u64,
}

/// A snapshot that further replicas may join: it goes to a file, and is not complete yet.
struct Joinable {
    contents: Contents,
    transfer: Arc<SnapshotTransfer>,
    id: String,
    offset: u64,
    db: Option<usize>,
    version: u16,
}

#[derive(Default)]
struct SyncQueueState {
    waiting: Vec<WaitingReplica>,
    is_running: bool,
    joinable: Option<Joinable>,
}

/// The queue of replicas that wait for a snapshot.
#[derive(Default)]
pub(super) struct SyncQueue {
    state: Mutex<SyncQueueState>,
}

fn contents_for(peer: &ConnectedReplica, config: &Config) -> Contents {
    let announced = &peer.announced;
    Contents {
        keys: !announced.lacks_data,
        functions: !announced.lacks_functions,
        for_valkey: announced.reads_valkey_form(),
        codec: match config.repl_compression {
            _ if !config.repl_diskless_sync || !announced.takes_end_mark => None,
            ReplCompression::Zstd if announced.takes_zstd => Some(Codec::Zstd),
            ReplCompression::Zstd | ReplCompression::Lz4 if announced.takes_lz4 => Some(Codec::Lz4),
            _ => None,
        },
    }
}

impl SyncQueue {
    /// True if a replica waits for a snapshot, or is getting one.
    pub(super) fn is_busy(&self) -> bool {
        let state = self.state.lock();
        state.is_running || !state.waiting.is_empty()
    }
}

impl Primary {
    /// Adds a replica to the queue for a snapshot, or lets it join a running snapshot.
    pub(super) fn queue(self: &Arc<Self>, peer: &Arc<ConnectedReplica>) -> Arc<SyncQueueEntry> {
        let place = Arc::<SyncQueueEntry>::default();
        let mut state = self.syncing.state.lock();
        if let Some(open) = &state.joinable
            && open.contents == contents_for(peer, &self.service.config.load())
            && open.id == self.stream.facts().id
            && let Some(reader) = open.transfer.late_reader()
            && let Some(cursor) = self.stream.backlog.cursor(open.offset + 1)
        {
            place.put(Joined {
                id: open.id.clone(),
                offset: open.offset,
                db: open.db,
                reader,
                cursor,
                ends_with_mark: false,
                version: open.version,
            });
            tracing::info!("Waiting for end of BGSAVE for SYNC");
            return place;
        }
        state.waiting.push(WaitingReplica {
            place: Arc::clone(&place),
            peer: Arc::clone(peer),
            since_ms: clock::unix_ms(),
        });
        drop(state);
        self.begin_if_due();
        place
    }

    /// Begins a snapshot for the waiting replicas, if it is due (`repl-diskless-sync-delay`) and none is
    /// running.
    pub(super) fn begin_if_due(self: &Arc<Self>) {
        let mut state = self.syncing.state.lock();
        state
            .waiting
            .retain(|waiting| Arc::strong_count(&waiting.place) > 1);
        if state.is_running || self.snapshots.current().is_some() {
            return;
        }
        let Some(first) = state.waiting.first() else {
            return;
        };
        let config = self.service.config.load();
        let contents = contents_for(&first.peer, &config);
        let group = |waiting: &WaitingReplica| contents_for(&waiting.peer, &config) == contents;
        let members = || state.waiting.iter().filter(|waiting| group(waiting));
        let take_mark = members().all(|waiting| waiting.peer.announced.takes_end_mark);
        let is_diskless =
            (config.repl_diskless_sync || contents != Contents::default()) && take_mark;
        if is_diskless {
            let waited_ms =
                members().map(|waiting| clock::unix_ms().saturating_sub(waiting.since_ms));
            let longest_ms = waited_ms.max().unwrap_or(0);
            let most = config.repl_diskless_sync_max_replicas as usize;
            let is_full = most > 0 && members().count() >= most;
            if !is_full && longest_ms < u64::from(config.repl_diskless_sync_delay) * 1_000 {
                return;
            }
        }
        let (members, others) = std::mem::take(&mut state.waiting)
            .into_iter()
            .partition(group);
        state.waiting = others;
        state.is_running = true;
        drop(state);
        let primary = Arc::clone(self);
        self.runtime
            .spawn(async move { primary.sync(members, contents, is_diskless) });
    }

    /// Begins a snapshot for some replicas.
    fn sync(self: &Arc<Self>, members: Vec<WaitingReplica>, contents: Contents, is_diskless: bool) {
        let target = if is_diskless {
            "replicas sockets"
        } else {
            "disk"
        };
        tracing::info!("Starting BGSAVE for SYNC with target: {target}");
        if let Err(error) = self.stream.start() {
            tracing::warn!("Can't start the replication log: {error}");
            return self.put_back(members);
        }
        let transfer = Arc::<SnapshotTransfer>::default();
        let mark = is_diskless.then(random_id);
        // Create the readers before the first byte is written, because data that all readers have read is
        // dropped.
        let readers: Vec<TransferReader> = members.iter().map(|_| transfer.reader()).collect();
        let members = Arc::new(Mutex::new(Some((members, readers))));
        let purpose = Purpose::Replicas(contents);
        let at_cut: AtCut = {
            let (primary, members) = (Arc::clone(self), Arc::clone(&members));
            let transfer = Arc::clone(&transfer);
            Box::new(move |cut| {
                let Some((members, readers)) = members.lock().take() else {
                    return;
                };
                let version = purpose.version(cut);
                let stream = Arc::clone(&primary.stream);
                stream.cut(Box::new(move |offset| {
                    let joinable = (!is_diskless).then_some((contents, transfer));
                    let members = members.into_iter().zip(readers);
                    primary.begun(offset, version, members, joinable);
                }));
            })
        };
        let file = (!is_diskless).then(|| saver::path(&self.service.config.load()));
        let sink: Box<dyn Sink> = match mark {
            Some(mark) => Box::new(SocketSink {
                transfer: Arc::clone(&transfer),
                mark: Bytes::from(mark),
                has_begun: false,
            }),
            None => Box::new(self.file_sink(&transfer, file.clone().unwrap_or_default())),
        };
        let running = match self.snapshots.begin(purpose, at_cut, sink) {
            Ok(running) => running,
            Err(Busy(_)) => {
                if let Some((members, _)) = members.lock().take() {
                    self.put_back(members);
                }
                return;
            }
        };
        tracing::info!(
            "Background RDB transfer started by pid {}",
            std::process::id()
        );
        // With save points configured, the file is useful even if all replicas leave, so do not cancel the
        // snapshot then.
        if is_diskless || self.service.config.load().save.is_empty() {
            transfer.set_running(Arc::clone(&running));
        }
        let figures = &self.service.telemetry.persistence.rdb;
        figures.in_progress.store(true, Relaxed);
        let began_s = clock::unix_ms() / 1_000;
        figures.began_s.store(began_s, Relaxed);
        let primary = Arc::clone(self);
        running.when_ended(move |ended| primary.ended(ended, began_s, file.as_deref()));
    }

    /// Finishes a snapshot for replicas; a file also counts as a save.
    fn ended(self: &Arc<Self>, ended: &SnapshotResult, began_s: u64, file: Option<&Path>) {
        let figures = &self.service.telemetry.persistence.rdb;
        figures.in_progress.store(false, Relaxed);
        figures.began_s.store(0, Relaxed);
        let spent_s = (clock::unix_ms() / 1_000).saturating_sub(began_s);
        figures
            .last_duration_s
            .store(spent_s.cast_signed(), Relaxed);
        match ended {
            Ok(cut) => {
                if let Some(path) = file {
                    saver::note_saved(self.service, &*self.files, path, cut);
                }
                tracing::info!("Background RDB transfer terminated with success");
            }
            Err(failure) => {
                if file.is_some() {
                    saver::note_failed(self.service, failure);
                }
                tracing::warn!("Background transfer error: {failure}");
            }
        }
        self.syncing.state.lock().is_running = false;
        self.begin_if_due();
    }

    /// Returns replicas to the queue.
    fn put_back(&self, mut members: Vec<WaitingReplica>) {
        let mut state = self.syncing.state.lock();
        state.is_running = false;
        members.append(&mut state.waiting);
        state.waiting = members;
    }

    /// Handles the marker of a cut: gives each replica a cursor after it, which keeps the stream until the
    /// replica has read it.
    fn begun(
        &self,
        offset: u64,
        version: u16,
        members: impl Iterator<Item = (WaitingReplica, TransferReader)>,
        joinable: Option<(Contents, Arc<SnapshotTransfer>)>,
    ) {
        let id = self.stream.facts().id;
        // A stream fed by the log begins with SELECT after a marker.
        let is_fed_by_link = self.stream.source() == Source::Link;
        let db = is_fed_by_link.then(|| self.stream.db());
        for (waiting, reader) in members {
            let Some(cursor) = self.stream.backlog.cursor(offset + 1) else {
                // The stream was reset meanwhile: the replica waits for the next snapshot.
                self.syncing.state.lock().waiting.push(waiting);
                continue;
            };
            waiting.place.put(Joined {
                id: id.clone(),
                offset,
                db,
                reader,
                cursor,
                ends_with_mark: joinable.is_none(),
                version,
            });
        }
        if let Some((contents, transfer)) = joinable {
            self.syncing.state.lock().joinable = Some(Joinable {
                contents,
                transfer,
                id,
                offset,
                db,
                version,
            });
        }
    }

    fn file_sink(self: &Arc<Self>, transfer: &Arc<SnapshotTransfer>, path: PathBuf) -> ThroughFile {
        let config = self.service.config.load();
        let is_incremental = config.rdb_save_incremental_fsync;
        ThroughFile {
            primary: Arc::clone(self),
            file: Some(FileSink::new(
                Arc::clone(&self.files),
                path.clone(),
                is_incremental,
            )),
            path,
            transfer: Arc::clone(transfer),
        }
    }

    /// Stops further replicas from joining the snapshot that goes to a file.
    fn close_joinable(&self) {
        self.syncing.state.lock().joinable = None;
    }
}

/// A snapshot sent directly to the replicas, between two markers.
struct SocketSink {
    transfer: Arc<SnapshotTransfer>,
    mark: Bytes,
    has_begun: bool,
}

impl SocketSink {
    fn begin(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Ok(());
        }
        let head = [b"$EOF:".as_slice(), &self.mark, b"\r\n"].concat();
        self.transfer.write(Bytes::from(head))
    }
}

impl Sink for SocketSink {
    fn write(&mut self, chunk: Vec<u8>) -> io::Result<()> {
        self.begin()?;
        self.transfer.write(Bytes::from(chunk))
    }

    fn finish(mut self: Box<Self>, ok: bool) -> io::Result<()> {
        let ended = match ok {
            true => self
                .begin()
                .and_then(|()| self.transfer.write(self.mark.clone())),
            false => Ok(()),
        };
        let left = self.transfer.readers();
        tracing::info!("Diskless rdb transfer, done reading from pipe, {left} replicas still up");
        self.transfer.end(ok && ended.is_ok());
        ended
    }
}

/// A snapshot to a file, which is then sent to the replicas.
struct ThroughFile {
    primary: Arc<Primary>,
    file: Option<FileSink>,
    path: PathBuf,
    transfer: Arc<SnapshotTransfer>,
}

impl Sink for ThroughFile {
    fn write(&mut self, chunk: Vec<u8>) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.write(chunk),
            None => Ok(()),
        }
    }

    fn finish(mut self: Box<Self>, ok: bool) -> io::Result<()> {
        self.primary.close_joinable();
        let file = self.file.take().map(Box::new);
        let kept = file.map_or(Ok(()), |file| file.finish(ok));
        if !ok || kept.is_err() {
            self.transfer.end(false);
            return kept;
        }
        let ThroughFile {
            primary,
            path,
            transfer,
            ..
        } = *self;
        // Open the file while no other snapshot can replace it.
        let opened = primary.files.open(&path).and_then(|file| {
            let len = primary.files.len(&path)?.unwrap_or(0);
            Ok((file, len))
        });
        let snapshots = Arc::clone(&primary.snapshots);
        snapshots.run(move || {
            if transfer.readers() > 0 {
                let sent = opened.and_then(|(file, len)| send_file(file, len, &transfer));
                if let Err(error) = &sent {
                    tracing::warn!("Can't send the snapshot to replicas: {error}");
                }
                transfer.end(sent.is_ok());
            }
            let config = primary.config();
            if config.rdb_del_sync_files && config.save.is_empty() && !config.appendonly {
                tracing::info!(
                    "Removing the RDB file used to feed replicas in a persistence-less instance"
                );
                // The file may have been removed already.
                let _ = primary.files.remove(&path);
            }
        });
        kept
    }
}

fn send_file(
    mut file: Box<dyn Read + Send>,
    len: u64,
    transfer: &SnapshotTransfer,
) -> io::Result<()> {
    transfer.write(Bytes::from(format!("${len}\r\n")))?;
    let mut left = len;
    while left > 0 {
        let mut piece = vec![0; PIECE_BYTES.min(left as usize)];
        file.read_exact(&mut piece)?;
        left -= piece.len() as u64;
        transfer.write(Bytes::from(piece))?;
    }
    Ok(())
}
