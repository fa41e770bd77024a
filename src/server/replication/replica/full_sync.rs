//! Full synchronization: the snapshot from a primary is written to a file and then loaded in place of all data,
//! or loaded into the shards as it arrives, or loaded into separate shards that then replace the old ones
//! (`repl-diskless-load`).

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use super::framing::{Framing, SnapshotFraming};
use super::role::on_all;
use super::wire::Wire;
use crate::net::client::{Timeout, within};
use crate::persist::files::disk::Disk;
use crate::persist::load::progress::Progress;
use crate::persist::load::{Due, LoadError, Loaded, Loader, Rules};
use crate::persist::rdb::decode::{Decoder, RdbDecodeLimits, RdbPart};
use crate::persist::rdb::fault::Fault;
use crate::persist::snapshot::Sink;
use crate::persist::snapshot::file::FileSink;
use crate::script::stack;
use crate::shard::Shards;
use crate::state::Service;
use crate::telemetry::clock;
use crate::telemetry::progress::{Meter, Metered};
use basalt_commands::command::host::scripts::TextBound;
use basalt_commands::config::values::ClusterMode;
use basalt_engine::Engine;

/// Maximum number of pieces queued for the consuming thread.
const WAITING_PIECES: usize = 8;

/// Interval between keepalives to a primary while loading.
pub(super) const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// Expired keys are loaded, too, because the primary will send their deletion.
const RULES: Rules = Rules {
    due: Due::Loaded,
    replaces: false,
};

/// Consumer of an arriving snapshot, on its own thread.
pub(super) struct Intake<R> {
    pieces: mpsc::Sender<Vec<u8>>,
    is_whole: Arc<AtomicBool>,
    done: oneshot::Receiver<R>,
}

impl<R: Send + 'static> Intake<R> {
    fn start(work: impl FnOnce(FullSyncReader) -> R + Send + 'static) -> io::Result<Intake<R>> {
        let (pieces, coming) = mpsc::channel(WAITING_PIECES);
        let (say, done) = oneshot::channel();
        let is_whole = Arc::<AtomicBool>::default();
        let pieces_there = FullSyncReader {
            coming,
            is_whole: Arc::clone(&is_whole),
            piece: Vec::new(),
            at: 0,
        };
        stack::spawn("basalt-sync".to_owned(), move || {
            let _ = say.send(work(pieces_there));
        })
        .map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Intake {
            pieces,
            is_whole,
            done,
        })
    }

    /// Passes the next piece to the consumer; returns false if the consumer accepts no more.
    async fn put(&self, piece: Vec<u8>) -> bool {
        self.pieces.send(piece).await.is_ok()
    }

    /// Ends the input, complete or not, and returns the consumer's result.
    async fn end(self, is_whole: bool) -> io::Result<R> {
        self.is_whole.store(is_whole, Relaxed);
        drop(self.pieces);
        let gone = |_| io::Error::other("the thread that receives the snapshot has ended");
        self.done.await.map_err(gone)
    }
}

/// Reader of a snapshot for its consuming thread, which ends when the input ends.
struct FullSyncReader {
    coming: mpsc::Receiver<Vec<u8>>,
    /// Set to true before the input ends, if the snapshot is complete.
    is_whole: Arc<AtomicBool>,
    piece: Vec<u8>,
    at: usize,
}

impl Read for FullSyncReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() {
            self.piece = self.coming.blocking_recv().unwrap_or_default();
            self.at = 0;
        }
        let count = (self.piece.len() - self.at).min(buffer.len());
        buffer[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// Passes a snapshot from the wire to its consumer, unless stopped. Returns the consumer's result, and an error
/// if the snapshot did not arrive completely. `note` is called with the bytes received so far.
pub(super) async fn receive<R: Send + 'static>(
    wire: &mut Wire,
    extent: SnapshotFraming,
    intake: Intake<R>,
    mut stopped: watch::Receiver<bool>,
    timeout: Timeout<'_>,
    mut note: impl FnMut(u64),
) -> io::Result<(R, io::Result<()>)> {
    let mut framing = Framing::new(extent);
    let came = loop {
        let taken = framing.take(&wire.client.input);
        if taken.own > 0 {
            let piece = match taken.own == wire.client.input.len() {
                true => std::mem::take(&mut wire.client.input),
                false => wire.client.input.drain(..taken.own).collect(),
            };
            if !intake.put(piece).await {
                break Err(io::Error::other("the snapshot is no longer wanted"));
            }
        }
        note(framing.taken());
        if taken.is_end {
            wire.client.input.drain(..taken.mark);
            break Ok(());
        }
        let filled = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => Err(io::Error::other("stopped")),
            filled = within(timeout, wire.fill()) => filled,
        };
        if let Err(error) = filled {
            break Err(error);
        }
    };
    let result = intake.end(came.is_ok()).await?;
    Ok((result, came))
}

/// Writes a snapshot to a file, which replaces the existing one once everything is written and synced. An
/// incomplete file is removed.
pub(super) fn to_file(path: PathBuf) -> io::Result<Intake<io::Result<()>>> {
    let (seconds, id) = (clock::unix_ms() / 1000, std::process::id());
    let name = format!("temp-{seconds}.{id}.rdb");
    Intake::start(move |mut pieces| {
        let mut sink = FileSink::beside(Arc::new(Disk), path, &name, true);
        let mut written = Ok(());
        while let (Ok(()), Some(piece)) = (&written, pieces.coming.blocking_recv()) {
            written = sink.write(piece);
        }
        let is_whole = pieces.is_whole.load(Relaxed);
        let finished = Box::new(sink).finish(written.is_ok() && is_whole);
        written.and(finished)
    })
}

/// Loads a snapshot into empty shards as it arrives.
pub(super) fn to_shards(
    service: &'static Service,
    length: Option<u64>,
    stopped: watch::Receiver<bool>,
) -> io::Result<Intake<Result<Loaded, LoadError>>> {
    Intake::start(move |mut pieces| {
        let must_stop = || *stopped.borrow();
        let mut progress = Progress::begin(service, length.unwrap_or(0), &must_stop);
        Loader::new(service).rdb(&mut pieces, Vec::new(), RULES, &mut progress)
    })
}

/// Separate shards with data that no client sees yet.
pub(super) struct StagedDataset {
    shards: Arc<Shards>,
}

impl StagedDataset {
    /// Creates empty shards, as many as the server has.
    pub(super) fn new(service: &'static Service) -> StagedDataset {
        let config = service.config.load();
        let seed = service.router.seed();
        let shard_count = service.router.shard_count();
        let engines = (0..shard_count).map(|shard| {
            let mut engine = Engine::new(config.databases as usize, seed, 0);
            engine.shard = shard;
            if config.cluster_enabled != ClusterMode::No {
                engine.keep_slots(shard_count);
            }
            engine
        });
        StagedDataset {
            shards: Arc::new(Shards::new(engines.collect())),
        }
    }

    /// Loads a snapshot into these shards as it arrives. Clients see the old data meanwhile if `is_served`.
    pub(super) fn intake(
        &self,
        service: &'static Service,
        length: Option<u64>,
        stopped: watch::Receiver<bool>,
        is_served: bool,
    ) -> io::Result<Intake<Result<Loaded, LoadError>>> {
        let shards = Arc::clone(&self.shards);
        Intake::start(move |mut pieces| {
            let must_stop = || *stopped.borrow();
            let length = length.unwrap_or(0);
            let mut progress = Progress::begin_aside(service, length, &must_stop, is_served);
            let loader = Loader::new(service).aside(shards);
            loader.rdb(&mut pieces, Vec::new(), RULES, &mut progress)
        })
    }

    /// Replaces all data and libraries by the loaded ones, atomically.
    pub(super) async fn replace_all(self, service: &'static Service, libraries: Vec<Vec<u8>>) {
        let seed = service.router.seed();
        let all = 0..self.shards.len() as u16;
        // No other thread knows of these shards any more.
        let held = all.filter_map(|shard| self.shards.try_take(shard));
        let mut loaded: Vec<Engine> = held
            .map(|mut engine| std::mem::replace(&mut *engine, Engine::new(0, seed, 0)))
            .collect();
        on_all(service, move |engines, _| {
            for (engine, aside) in engines.iter_mut().zip(&mut loaded) {
                let removed = engine.replace_data(aside);
                engine.published().lazyfreed.add(removed as u64);
            }
            let functions = &service.scripts.functions;
            functions.flush(&mut || None);
            for source in &libraries {
                if let Err(error) = functions.load(source, true, TextBound::Lifted, &mut || None) {
                    tracing::error!("Can't load a function library again: {}", error.text());
                }
            }
        })
        .await;
    }
}

/// Checks a snapshot file without loading it: errors are found before the old data is removed.
pub(super) async fn check(service: &'static Service, path: &Path) -> Result<(), LoadError> {
    let path = path.to_owned();
    let checked = tokio::task::spawn_blocking(move || check_file(service, &path)).await;
    checked.unwrap_or_else(|error| Err(unreadable(io::Error::other(error))))
}

fn check_file(service: &'static Service, path: &Path) -> Result<(), LoadError> {
    let config = service.config.load();
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (bytes, file) = opened.map_err(unreadable)?;
    let meter = Meter::in_log("MASTER <-> REPLICA sync, checking", bytes);
    let mut file = Metered::new(file, meter);
    let bounds = RdbDecodeLimits {
        databases: config.databases as usize,
        checks: config.rdbchecksum,
        now_ms: clock::unix_ms(),
    };
    let at = |fault| LoadError { offset: 0, fault };
    let mut decoder = Decoder::new(&mut file, Vec::new(), bounds).map_err(at)?;
    loop {
        match decoder.read() {
            Ok(RdbPart::Entries(stretch)) => decoder.give_back(stretch),
            Ok(RdbPart::NonKey(_)) => {}
            Ok(RdbPart::End(_)) => return Ok(()),
            Err(fault) => {
                return Err(LoadError {
                    offset: decoder.offset(),
                    fault,
                });
            }
        }
    }
}

pub(super) fn unreadable(error: io::Error) -> LoadError {
    LoadError {
        offset: 0,
        fault: Fault::Read(error),
    }
}

/// Loads a snapshot from a file into empty shards, on its own thread. Ends early when stopped.
pub(super) async fn load(
    service: &'static Service,
    path: &Path,
    stopped: watch::Receiver<bool>,
) -> Result<Loaded, LoadError> {
    let (say, done) = oneshot::channel();
    let path = path.to_owned();
    let spawned = stack::spawn("basalt-sync".to_owned(), move || {
        let must_stop = || *stopped.borrow();
        let _ = say.send(load_file(service, &path, &must_stop));
    });
    spawned.map_err(|error| unreadable(io::Error::other(error.to_string())))?;
    let gone = |_| unreadable(io::Error::other("the loading thread has ended"));
    done.await.map_err(gone)?
}

fn load_file(
    service: &'static Service,
    path: &Path,
    must_stop: &dyn Fn() -> bool,
) -> Result<Loaded, LoadError> {
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (bytes, mut file) = opened.map_err(unreadable)?;
    let mut progress = Progress::begin(service, bytes, must_stop);
    Loader::new(service).rdb(&mut file, Vec::new(), RULES, &mut progress)
}
