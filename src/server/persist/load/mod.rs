//! Loading: values and commands into the shards, on all threads.
//!
//! ```text
//! progress  LOADING: from when to when, how far, what INFO says of it
//! values    stretches of a snapshot into shards
//! framing   where the commands of an append-only file begin and end
//! commands  commands into shards
//! room      room in tables for the keys that are about to come
//! aof       an append-only file: the snapshot at its beginning, windows of commands for the threads
//! ```
//!
//! One thread finds where records begin and end; whole stretches of them are decoded and put into shards by as many
//! threads as serve connections, in any order, as a snapshot has each key once.

pub mod aof;
mod commands;
pub mod fault;
mod framing;
pub mod progress;
mod room;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::persist::rdb::decode::{Aside, Bounds, Decoder, Next, Stretch};
use crate::persist::rdb::encode;
use crate::persist::rdb::fault::Fault;
use crate::script::functions::Functions;
use crate::shard::Shards;
use crate::state::Service;
use crate::telemetry::clock;
use basalt_commands::cluster::slot_note::SlotNote;
use basalt_commands::command::host::scripts::TextBound;
use basalt_core::base::lossless;
use basalt_engine::Now;
use basalt_engine::fences::Fence;
use basalt_engine::serial::reader::Reader;
use progress::Progress;
use values::Workers;

/// The longest source of a library that is taken.
const SOURCE_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Fields of a snapshot's head that are read: it has about ten.
const FIELDS_MAX: usize = 64;

/// Aux fields that are handed to the caller of the loader; of the others the log tells.
const FIELDS_KEPT: &[&str] = &[
    "redis-ver",
    "valkey-ver",
    "ctime",
    "used-mem",
    "aof-base",
    "repl-stream-db",
    "repl-id",
    "repl-offset",
];

/// Why something was not loaded, and where.
#[derive(Debug)]
pub struct LoadError {
    /// Bytes from the beginning to the record that is broken, or to where the bytes end.
    pub offset: u64,
    /// What is wrong.
    pub fault: Fault,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at offset {})", self.fault, self.offset)
    }
}

impl std::error::Error for LoadError {}

impl LoadError {
    /// Tells the log, in the words that tools look for in redis-server's.
    pub fn report(&self) {
        let (offset, fault) = (self.offset, &self.fault);
        match fault {
            Fault::Stopped => return,
            Fault::Signature(_) | Fault::Version(_) | Fault::Valkey(_) => {
                return tracing::error!("{fault}");
            }
            Fault::Database(_) => {
                tracing::error!(
                    "FATAL: Data file was created with a Redis server configured to handle more databases. {fault}."
                );
                return;
            }
            Fault::Short | Fault::Read(_) => {
                tracing::error!("Short read loading DB. Unrecoverable error, aborting now.");
            }
            Fault::Checksum { expected, found } => tracing::error!(
                "Wrong RDB checksum expected: ({expected:x}) but got ({found:x}). Aborting now."
            ),
            _ => {}
        }
        tracing::error!("Internal error in RDB reading offset {offset} -> {fault}");
        tracing::error!("--- RDB ERROR DETECTED ---");
        tracing::error!("[offset {offset}] {fault}");
        tracing::error!("Terminating server after rdb file reading failure.");
    }
}

/// What becomes of keys whose time has come while they were in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Due keys are left out: no other server has them.
    LeftOut,
    /// Due keys are loaded, as somebody else says when they go: a primary, or commands that follow.
    Loaded,
    /// Due keys are loaded and counted: this server is about to say to its replicas that they go.
    Told,
}

/// How a snapshot is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// What becomes of keys whose time has come.
    pub due: Due,
    /// A key that is there already is replaced, and so is a library of functions; otherwise that is an error.
    pub replaces: bool,
}

/// What a snapshot had.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The version of the format.
    pub version: u16,
    /// Keys that were loaded.
    pub keys: u64,
    /// Keys whose time had come.
    pub expired: u64,
    /// Collections without elements, as old servers may have written them.
    pub empty: u64,
    /// Aux fields that somebody may want to know.
    pub fields: BTreeMap<&'static str, String>,
    /// Bytes of the snapshot.
    pub bytes: u64,
    /// What was read behind its end.
    pub rest: Vec<u8>,
    /// Sources of the libraries of functions that were not loaded, because the snapshot was loaded aside.
    pub libraries: Vec<Vec<u8>>,
}

impl Loaded {
    fn tell(&self) {
        let Loaded {
            keys,
            expired,
            empty,
            ..
        } = self;
        match empty {
            0 => tracing::info!("Done loading RDB, keys loaded: {keys}, keys expired: {expired}."),
            _ => tracing::info!(
                "Done loading RDB, keys loaded: {keys}, keys expired: {expired}, empty keys skipped: {empty}."
            ),
        }
    }
}

/// Loads into the shards of a server.
pub struct Loader {
    service: &'static Service,
    /// Where the keys go.
    shards: Arc<Shards>,
    /// The shards are seen by no client yet: what is loaded takes the place of all other data in the end.
    is_aside: bool,
    /// How many threads decode, or run commands.
    threads: usize,
}

impl Loader {
    /// Into the shards of this one.
    pub fn new(service: &'static Service) -> Loader {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = service.config.load().thread_count(cores).min(cores);
        Loader {
            service,
            shards: Arc::clone(&service.shards),
            is_aside: false,
            threads,
        }
    }

    /// Into other shards, as many as the server has, which no client sees. Libraries of functions are only checked, and
    /// kept as texts.
    pub fn aside(self, shards: Arc<Shards>) -> Loader {
        Loader {
            shards,
            is_aside: true,
            ..self
        }
    }

    /// The loader on this many threads.
    pub fn with_threads(self, threads: usize) -> Loader {
        Loader { threads, ..self }
    }

    /// Whether a snapshot says, before its first key, where its data stand in the stream of replication.
    pub fn is_of_stream(&self, from: &mut dyn Read) -> bool {
        self.fields_of(from).contains_key(&b"repl-id"[..])
    }

    /// The fields at the head of a snapshot, as far as they can be read.
    pub fn fields_of(&self, from: &mut dyn Read) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let config = self.service.config.load();
        let bounds = Bounds {
            databases: config.databases as usize,
            checks: false,
            now_ms: clock::unix_ms(),
        };
        let mut fields = BTreeMap::new();
        let Ok(mut decoder) = Decoder::new(from, Vec::new(), bounds) else {
            return fields;
        };
        while let Ok(Next::Aside(Aside::Aux(name, value))) = decoder.read() {
            if fields.len() == FIELDS_MAX {
                break;
            }
            fields.insert(name, value);
        }
        fields
    }

    /// Loads a snapshot, of which `begun` was read already. What was loaded before an error stays. The calling thread
    /// must hold no shard, and be made for scripts (`script::stack`), because libraries of functions are run on it.
    pub fn rdb(
        &self,
        from: &mut dyn Read,
        begun: Vec<u8>,
        rules: Rules,
        progress: &mut Progress<'_>,
    ) -> Result<Loaded, LoadError> {
        let config = self.service.config.load_full();
        let now = clock::now();
        let bounds = Bounds {
            databases: config.databases as usize,
            checks: config.rdbchecksum,
            now_ms: now.unix_ms,
        };
        let mut decoder =
            Decoder::new(from, begun, bounds).map_err(|fault| LoadError { offset: 0, fault })?;
        let workers = Workers::start(self, &config, now, rules);
        let mut loaded = Loaded {
            version: decoder.version(),
            ..Loaded::default()
        };
        let mut running = Running {
            service: self.service,
            aside: self.is_aside.then(Functions::default),
            now,
            rules,
            workers,
            fences: Vec::new(),
            slot_notes: Vec::new(),
            keys_max: progress.total_bytes() / ENTRY_BYTES_MIN,
            loaded: &mut loaded,
            progress,
        };
        let read = running.read(&mut decoder);
        let fences = mem::take(&mut running.fences);
        let slot_notes = mem::take(&mut running.slot_notes);
        let ended = running.workers.end();
        self.note_fences(fences, now);
        let offset = decoder.record_offset();
        // What was found in keys comes before whatever stopped the reading behind them.
        let (tally, error) = ended;
        if let Some(error) = error {
            return Err(error);
        }
        read.map_err(|fault| LoadError {
            offset: match fault {
                Fault::Short | Fault::Read(_) => decoder.offset(),
                _ => offset,
            },
            fault,
        })?;
        if let Some(cluster) = self.service.cluster.get() {
            cluster.load_slot_notes(slot_notes);
        }
        loaded.keys = tally.keys;
        loaded.expired = tally.expired;
        loaded.empty = tally.empty;
        loaded.bytes = decoder.offset();
        loaded.rest = decoder.rest().to_vec();
        loaded.tell();
        let figures = &self.service.telemetry.persistence.loading;
        figures.keys_loaded.store(loaded.keys, Relaxed);
        figures.keys_expired.store(loaded.expired, Relaxed);
        Ok(loaded)
    }
}

impl Loader {
    /// Gives locks that are there now their fences.
    fn note_fences(&self, fences: Vec<(usize, Vec<u8>, Fence)>, now: Now) {
        for (db, key, fence) in fences {
            let (routed, _) = self.service.router.routed_in_slot(0, &key);
            let mut engine = room::take(&self.shards, routed.shard);
            if db < engine.database_count() && engine.note_fence(db, &key, fence, now).is_err() {
                skip_fence(fence.number);
            }
        }
    }
}

/// A file tells a fence that no server has drawn by this clock.
fn skip_fence(number: u64) {
    tracing::warn!(
        "The RDB file has the fence {number} of a lock, which is more than a day ahead of this server's clock: skipped"
    );
}

/// Bytes that a key takes in a file at least: room is made for no more keys than it can have, whatever it says.
const ENTRY_BYTES_MIN: u64 = 4;

/// One snapshot while it is loaded.
struct Running<'r, 'p> {
    service: &'static Service,
    /// Where libraries of functions are tried that are not loaded.
    aside: Option<Functions>,
    now: Now,
    rules: Rules,
    workers: Workers,
    /// Of locks, with the database and the key of each.
    fences: Vec<(usize, Vec<u8>, Fence)>,
    /// Slots whose keys may have to go.
    slot_notes: Vec<SlotNote>,
    /// The most keys that room is still made for.
    keys_max: u64,
    loaded: &'r mut Loaded,
    progress: &'r mut Progress<'p>,
}

impl Running<'_, '_> {
    fn read(&mut self, decoder: &mut Decoder<'_>) -> Result<(), Fault> {
        loop {
            match decoder.read()? {
                Next::Entries(stretch) => self.hand_on(stretch)?,
                Next::End(stretch) => {
                    self.hand_on(stretch)?;
                    self.progress.reached(decoder.offset());
                    return Ok(());
                }
                Next::Aside(Aside::Aux(name, value)) if name == encode::LOCK.as_bytes() => {
                    if let Some((db, key, fence)) = encode::parse_fence(&value) {
                        self.fences.push((db, key.to_vec(), fence));
                    }
                }
                Next::Aside(Aside::Aux(name, value)) => self.note_field(&name, &value),
                Next::Aside(Aside::Slots(note)) => self.slot_notes.push(note),
                Next::Aside(Aside::Function(raw)) => self.load_function(&raw)?,
                Next::Aside(Aside::Module(_)) => tracing::warn!(
                    "The RDB file has data of a module beside keys, which nobody here needs: skipped"
                ),
                Next::Aside(Aside::Sizes { db, keys, .. }) => {
                    let keys = keys.min(self.keys_max);
                    self.keys_max -= keys;
                    self.workers.make_room(db, keys as usize);
                }
            }
            self.progress.reached(decoder.offset());
            if self.progress.must_stop() || self.workers.has_failed() {
                return Err(Fault::Stopped);
            }
        }
    }

    fn hand_on(&mut self, stretch: Stretch) -> Result<(), Fault> {
        if !self.progress.delay(stretch.entries.len()) {
            return Err(Fault::Stopped);
        }
        self.progress.note_keys(stretch.entries.len());
        self.workers.hand_on(stretch);
        Ok(())
    }

    fn note_field(&mut self, name: &[u8], value: &[u8]) {
        let (name, value) = (lossless::text_of(name), lossless::text_of(value));
        let number = || value.parse::<u64>().unwrap_or(0);
        match name.as_ref() {
            "redis-ver" | "valkey-ver" => {
                tracing::info!("Loading RDB produced by version {value}");
            }
            "ctime" => {
                let age_s = (self.now.unix_ms / 1000).saturating_sub(number());
                tracing::info!("RDB age {age_s} seconds");
            }
            "used-mem" => {
                let figures = &self.service.telemetry.persistence.loading;
                figures.snapshot_used_memory.store(number(), Relaxed);
                tracing::info!(
                    "RDB memory usage when created {:.2} Mb",
                    number() as f64 / (1024.0 * 1024.0)
                );
            }
            encode::LAST_FENCE => {
                if self.service.fence_source.raise(number(), self.now).is_err() {
                    skip_fence(number());
                }
            }
            "aof-base" | "aof-preamble" if number() != 0 => tracing::info!("RDB is base AOF"),
            name if name.starts_with('%') => tracing::info!("RDB '{name}': {value}"),
            _ => tracing::trace!("RDB field '{name}': {value}"),
        }
        if let Some(kept) = FIELDS_KEPT.iter().find(|kept| **kept == name) {
            self.loaded.fields.insert(kept, value.into_owned());
        }
    }

    fn load_function(&mut self, raw: &[u8]) -> Result<(), Fault> {
        let mut reader = Reader::new(raw, SOURCE_BYTES_MAX);
        let source = reader
            .string()
            .map_err(|error| Fault::Function(error.0.to_owned()))?;
        let functions = match &self.aside {
            Some(tried) => tried,
            None => &self.service.scripts.functions,
        };
        match functions.load(&source, self.rules.replaces, TextBound::Lifted, &mut || {
            None
        }) {
            Ok(_) if self.aside.is_some() => {
                self.loaded.libraries.push(source.into_owned());
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(error) => Err(Fault::Function(error.text().into_owned())),
        }
    }
}
