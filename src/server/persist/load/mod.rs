//! Loading: values and commands into the shards, on all threads.
//!
//! ```text
//! progress  the LOADING state: its duration, progress, and what INFO reports of it
//! values    stretches of a snapshot into shards
//! framing   where the commands of an append-only file begin and end
//! commands  commands into shards
//! room      capacity in tables for the keys to come
//! aof       an append-only file: the leading snapshot, windows of commands for the threads
//! ```
//!
//! One thread finds where records begin and end; other threads, as many as serve connections, decode whole
//! stretches of consecutive records and insert them into shards, in any order, because a snapshot contains each
//! key only once.

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

use crate::persist::rdb::decode::{
    Decoder, NonKeyRecord, RdbDecodeLimits, RdbPart, RdbRecordBatch,
};
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

/// Maximum length of a library's source.
const SOURCE_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Maximum number of header fields read from a snapshot; it has about ten.
const FIELDS_MAX: usize = 64;

/// Aux fields returned to the caller of the loader; the others are only logged.
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

/// A loading error and its position.
#[derive(Debug)]
pub struct LoadError {
    /// Offset of the invalid record, or of the end of the data.
    pub offset: u64,
    /// The error itself.
    pub fault: Fault,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at offset {})", self.fault, self.offset)
    }
}

impl std::error::Error for LoadError {}

impl LoadError {
    /// Logs the error, in the words that tools look for in redis-server's log.
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

/// Treatment of keys that expired while in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Expired keys are dropped: no replica has them.
    LeftOut,
    /// Expired keys are loaded, because their deletion will arrive from a primary, or with later commands of
    /// the file.
    Loaded,
    /// Expired keys are loaded and counted: this server is about to send their deletion to its replicas.
    Told,
}

/// Rules for loading a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Treatment of expired keys.
    pub due: Due,
    /// Whether existing keys and function libraries are replaced; if not, they are an error.
    pub replaces: bool,
}

/// Statistics and contents of a loaded snapshot.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Version of the RDB format.
    pub version: u16,
    /// Number of keys loaded.
    pub keys: u64,
    /// Number of keys in the snapshot that had expired.
    pub expired: u64,
    /// Number of collections without elements, which old servers may have written.
    pub empty: u64,
    /// Number of values of unknown modules that were left out.
    pub of_modules: u64,
    /// Aux fields of interest to the caller.
    pub fields: BTreeMap<&'static str, String>,
    /// Bytes of the snapshot.
    pub bytes: u64,
    /// Bytes that were read beyond the end of the snapshot.
    pub rest: Vec<u8>,
    /// Sources of function libraries that were not loaded, because the snapshot was loaded into separate shards
    /// (`Loader::aside`).
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
        if self.of_modules > 0 {
            tracing::warn!(
                "Loading skipped {} values of modules that this server does not have (rdb-skip-unknown-modules)",
                self.of_modules
            );
        }
    }
}

/// Loader of data into the shards of a server.
pub struct Loader {
    service: &'static Service,
    /// Destination of the keys.
    shards: Arc<Shards>,
    /// Whether `shards` are separate from those that clients see, and will replace them once everything is
    /// loaded.
    is_aside: bool,
    /// Number of threads that decode a snapshot or run commands.
    threads: usize,
}

impl Loader {
    /// Creates a loader into the shards of this server.
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

    /// Redirects the loader to separate shards, as many as the server has, which clients do not see. Function
    /// libraries are only checked, and kept as sources.
    pub fn aside(self, shards: Arc<Shards>) -> Loader {
        Loader {
            shards,
            is_aside: true,
            ..self
        }
    }

    /// Sets the number of threads.
    pub fn with_threads(self, threads: usize) -> Loader {
        Loader { threads, ..self }
    }

    /// Returns whether a snapshot's header states the replication offset of its data.
    pub fn is_of_stream(&self, from: &mut dyn Read) -> bool {
        self.fields_of(from).contains_key(&b"repl-id"[..])
    }

    /// Returns the fields in the header of a snapshot, as far as they can be read.
    pub fn fields_of(&self, from: &mut dyn Read) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let config = self.service.config.load();
        let bounds = RdbDecodeLimits {
            databases: config.databases as usize,
            checks: false,
            now_ms: clock::unix_ms(),
        };
        let mut fields = BTreeMap::new();
        let Ok(mut decoder) = Decoder::new(from, Vec::new(), bounds) else {
            return fields;
        };
        while let Ok(RdbPart::NonKey(NonKeyRecord::Aux(name, value))) = decoder.read() {
            if fields.len() == FIELDS_MAX {
                break;
            }
            fields.insert(name, value);
        }
        fields
    }

    /// Loads a snapshot, whose first bytes were already read into `begun`. Data loaded before an error stays
    /// loaded. The calling thread must have no shard locked, and be prepared for scripts (`script::stack`), because it
    /// runs function libraries.
    pub fn rdb(
        &self,
        from: &mut dyn Read,
        begun: Vec<u8>,
        rules: Rules,
        progress: &mut Progress<'_>,
    ) -> Result<Loaded, LoadError> {
        let config = self.service.config.load_full();
        let now = clock::now();
        let bounds = RdbDecodeLimits {
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
        let mut running = SnapshotLoad {
            service: self.service,
            aside: self.is_aside.then(Functions::default),
            now,
            rules,
            workers,
            fences: Vec::new(),
            blessed: Vec::new(),
            slot_notes: Vec::new(),
            keys_max: progress.total_bytes() / ENTRY_BYTES_MIN,
            loaded: &mut loaded,
            progress,
        };
        let read = running.read(&mut decoder);
        let fences = mem::take(&mut running.fences);
        let blessed = mem::take(&mut running.blessed);
        let slot_notes = mem::take(&mut running.slot_notes);
        let ended = running.workers.end();
        self.note_fences(fences, now);
        self.note_blessed(blessed);
        let offset = decoder.record_offset();
        // An error in a key precedes, in the file, the error that ended the reading, so report it first.
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
        loaded.of_modules = tally.of_modules;
        loaded.bytes = decoder.consumed();
        loaded.rest = decoder.rest().to_vec();
        loaded.tell();
        let figures = &self.service.telemetry.persistence.loading;
        figures.keys_loaded.store(loaded.keys, Relaxed);
        figures.keys_expired.store(loaded.expired, Relaxed);
        figures
            .module_values_skipped
            .store(loaded.of_modules, Relaxed);
        Ok(loaded)
    }
}

impl Loader {
    /// Restores the fencing tokens of loaded locks.
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

impl Loader {
    /// Blesses loaded keys that were blessed.
    fn note_blessed(&self, blessed: Vec<(usize, Vec<u8>)>) {
        for (db, key) in blessed {
            let (routed, _) = self.service.router.routed_in_slot(0, &key);
            let mut engine = room::take(&self.shards, routed.shard);
            if db < engine.database_count() {
                engine.note_blessing(db, &key);
            }
        }
    }
}

/// Logs a fencing token that was skipped because it lies too far in the future of this server's clock.
fn skip_fence(number: u64) {
    tracing::warn!(
        "Skipped the lock fence {number} in the RDB file: it is more than a day ahead of this server's clock"
    );
}

/// Minimum bytes of a key in a file: capacity is reserved for no more keys than a file of its length can have,
/// whatever number the file claims.
const ENTRY_BYTES_MIN: u64 = 4;

/// A snapshot being loaded.
struct SnapshotLoad<'r, 'p> {
    service: &'static Service,
    /// Registry in which function libraries are only checked, if the snapshot is loaded into separate shards.
    aside: Option<Functions>,
    now: Now,
    rules: Rules,
    workers: Workers,
    /// Fencing tokens of locks, with the database and the key of each.
    fences: Vec<(usize, Vec<u8>, Fence)>,
    /// Blessed keys with their databases.
    blessed: Vec<(usize, Vec<u8>)>,
    /// Records of interrupted slot migrations, whose slots' keys may have to be removed.
    slot_notes: Vec<SlotNote>,
    /// Number of keys for which capacity may still be reserved.
    keys_max: u64,
    loaded: &'r mut Loaded,
    progress: &'r mut Progress<'p>,
}

impl SnapshotLoad<'_, '_> {
    fn read(&mut self, decoder: &mut Decoder<'_>) -> Result<(), Fault> {
        loop {
            match decoder.read()? {
                RdbPart::Entries(stretch) => self.hand_on(stretch)?,
                RdbPart::End(stretch) => {
                    self.hand_on(stretch)?;
                    self.progress.reached(decoder.consumed());
                    return Ok(());
                }
                RdbPart::NonKey(NonKeyRecord::Aux(name, value))
                    if name == encode::LOCK.as_bytes() =>
                {
                    if let Some((db, key, fence)) = encode::parse_fence(&value) {
                        self.fences.push((db, key.to_vec(), fence));
                    }
                }
                RdbPart::NonKey(NonKeyRecord::Aux(name, value))
                    if name == encode::BLESSED.as_bytes() =>
                {
                    if let Some((db, key)) = encode::parse_blessing(&value) {
                        self.blessed.push((db, key.to_vec()));
                    }
                }
                RdbPart::NonKey(NonKeyRecord::Aux(name, value)) => self.note_field(&name, &value),
                RdbPart::NonKey(NonKeyRecord::Slots(note)) => self.slot_notes.push(note),
                RdbPart::NonKey(NonKeyRecord::Function(raw)) => self.load_function(&raw)?,
                RdbPart::NonKey(NonKeyRecord::Module(_)) => tracing::warn!(
                    "Skipped auxiliary module data in the RDB file: modules are not supported"
                ),
                RdbPart::NonKey(NonKeyRecord::Sizes { db, keys, .. }) => {
                    let keys = keys.min(self.keys_max);
                    self.keys_max -= keys;
                    self.workers.make_room(db, keys as usize);
                }
            }
            self.progress.reached(decoder.consumed());
            if self.progress.must_stop() || self.workers.has_failed() {
                return Err(Fault::Stopped);
            }
        }
    }

    fn hand_on(&mut self, stretch: RdbRecordBatch) -> Result<(), Fault> {
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
