//! Loads the append-only file and turns it on and off.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::manifest::AofManifestFile;
use super::store::{Store, StoreError, name_of};
use super::{Aof, Inner, Phase};
use crate::persist::load::Loader;
use crate::persist::load::aof::AofError;
use crate::persist::load::fault::AofFault;
use crate::persist::load::progress::Progress;
use crate::persist::rdb::crc64;
use crate::persist::rdb::encode::{self, RdbEncodeOptions};
use crate::telemetry::clock::{self, Ticks};
use crate::telemetry::log;
use basalt_commands::config::Config;
use basalt_core::base::text::visible;
use basalt_engine::record::Audience;

/// Writes to the log and to the terminal why the server does not start.
macro_rules! refuse {
    ($($words:tt)*) => {
        log::refusal(&format!($($words)*))
    };
}

/// Outcome of loading at startup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AofLoadOutcome {
    /// There is no append-only file.
    Nothing,
    /// The append-only file has been loaded.
    Loaded,
    /// Loading was stopped.
    Stopped,
}

/// The append-only file cannot be loaded or appended to; the reason is in the log.
#[derive(Clone, Copy, Debug)]
pub struct Unusable;

impl Aof {
    /// Opens the existing append-only files. Converts the single file of servers before Redis 7 to the
    /// directory format.
    pub fn find(&self) -> Result<(), Unusable> {
        let config = self.service.config.load();
        let mut inner = self.inner.lock();
        let mut find = || -> Result<(), StoreError> {
            let mut store = self.open_store(&config)?;
            if store.upgrade(Path::new("."))? {
                tracing::info!(
                    "Successfully migrated an old-style AOF configuration ({}) into the AOF directory ({}).",
                    config.appendfilename,
                    config.appenddirname
                );
            }
            inner.store = Some(store);
            Ok(())
        };
        find().map_err(unusable)
    }

    /// True if there is no append-only file yet.
    pub fn is_fresh(&self) -> bool {
        // Any error in the manifest is reported later.
        let store = self.open_store(&self.service.config.load());
        store.is_ok_and(|store| store.is_fresh(Path::new(".")))
    }

    /// Turns the AOF on at once if there is nothing to load; returns whether that succeeded.
    pub fn start_fresh(self: &Arc<Self>) -> bool {
        self.is_fresh() && self.find().is_ok() && self.open(&mut self.inner.lock()).is_ok()
    }

    /// Loads the existing files at startup and starts appending commands: no client command runs in between. The
    /// calling thread is prepared for scripts and has no shard locked.
    pub fn start(self: &Arc<Self>, stop: &dyn Fn() -> bool) -> Result<AofLoadOutcome, Unusable> {
        let found = self.inner.lock().store.as_ref().map(open_files).transpose();
        let files = found?.unwrap_or_default();
        let mut progress = Progress::begin(self.service, total_bytes(&files), stop);
        let mut found = self.load(files, &mut progress);
        if matches!(found, Ok(AofLoadOutcome::Loaded | AofLoadOutcome::Nothing))
            && let Err(error) = self.open(&mut self.inner.lock())
        {
            found = Err(error);
        }
        if matches!(found, Err(_) | Ok(AofLoadOutcome::Stopped)) {
            progress.never_ends();
        }
        found
    }

    /// Begins the append-only file with the snapshot that the server has loaded in its absence: the snapshot
    /// becomes the base, and commands are appended from now on.
    pub fn start_with(self: &Arc<Self>, snapshot: &mut dyn Read) -> Result<(), Unusable> {
        self.find()?;
        let mut inner = self.inner.lock();
        let store = inner.store.as_mut().expect("it was looked for");
        store.begin_with(snapshot).map_err(|error| {
            refuse!("Can't begin the append only file with the snapshot: {error}");
            Unusable
        })?;
        self.open(&mut inner)
    }

    /// Runs DEBUG LOADAOF: loads the files of the manifest on the disk into shards that `empty` has emptied.
    /// Nothing is appended to the command log meanwhile. The calling thread is prepared for scripts.
    pub fn load_again(
        &self,
        stop: &dyn Fn() -> bool,
        empty: impl FnOnce(),
    ) -> Result<(), Unusable> {
        let files = self.find_again()?;
        let interest = self.service.pubsub.interest();
        let was_logging = interest.is_filing();
        interest.set_listening(Audience::FILE, false);
        let mut progress = Progress::begin(self.service, total_bytes(&files), stop);
        empty();
        let loaded = self.load(files, &mut progress);
        interest.set_listening(Audience::FILE, was_logging);
        drop(progress);
        loaded.map(|_| ())
    }

    /// Opens the files that the manifest on the disk names.
    fn find_again(&self) -> Result<Vec<AofLoadFile>, Unusable> {
        let mut inner = self.inner.lock();
        let mut find = || -> Result<(), StoreError> {
            match &mut inner.store {
                Some(store) => store.reload(),
                None => {
                    inner.store = Some(self.open_store(&self.service.config.load())?);
                    Ok(())
                }
            }
        };
        find().map_err(unusable)?;
        open_files(inner.store.as_ref().expect("opened above"))
    }

    /// Writes everything appended so far, without a sync, so that readers of the file see it. Returns an error if
    /// writing fails.
    pub fn write_all(&self) -> Result<(), Unusable> {
        let inner = self.inner.lock();
        let is_written = match (inner.phase, &inner.reader) {
            (Phase::On, Some(reader)) => self.write_out(reader),
            _ => true,
        };
        is_written.then_some(()).ok_or(Unusable)
    }

    fn load(
        &self,
        files: Vec<AofLoadFile>,
        progress: &mut Progress<'_>,
    ) -> Result<AofLoadOutcome, Unusable> {
        if files.is_empty() {
            return Ok(AofLoadOutcome::Nothing);
        }
        for mut file in files {
            let began = Ticks::now();
            let loaded = Loader::new(self.service).aof(&mut *file.from, progress);
            match loaded {
                Ok(_) => {
                    let spent_s = Ticks::now().since_ns(began) as f64 / 1e9;
                    tracing::info!(
                        "DB loaded from {} file {}: {spent_s:.3} seconds",
                        file.kind,
                        name_of(&file.part)
                    );
                }
                Err(AofError {
                    fault: AofFault::Stopped,
                    ..
                }) => return Ok(AofLoadOutcome::Stopped),
                Err(error) => self.cut_off(&file, &error)?,
            }
            progress.next_file();
        }
        Ok(AofLoadOutcome::Loaded)
    }

    /// Returns the absolute path of the manifest, for messages.
    fn shown_manifest(&self) -> String {
        let config = self.service.config.load();
        let (folder, name) = (&config.appenddirname, &config.appendfilename);
        let path = config.dir.join(format!("{folder}/{name}.manifest"));
        let path = std::path::absolute(&path).unwrap_or(path);
        visible(path.as_os_str().as_encoded_bytes())
    }

    /// Truncates a file that ends within a command or a transaction, if `aof-load-truncated` allows that.
    fn cut_off(&self, file: &AofLoadFile, error: &AofError) -> Result<(), Unusable> {
        let name = name_of(&file.part);
        let manifest = self.shown_manifest();
        match &error.fault {
            AofFault::Short | AofFault::Unfinished => {}
            AofFault::Snapshot(fault) => {
                refuse!("{fault} (at offset {})", error.offset);
                refuse!(
                    "Error reading the RDB preamble of the AOF file {name}, AOF loading aborted"
                );
                return Err(Unusable);
            }
            AofFault::Format => {
                refuse!(
                    "Bad file format reading the append only file {name} at offset {}: make a backup of your AOF file, \
                     then use `basalt check-aof --fix {manifest}`",
                    error.offset
                );
                return Err(Unusable);
            }
            fault => {
                refuse!("{fault} {name} at offset {}", error.offset);
                if let AofFault::Failed(_) = fault {
                    refuse!(
                        "Loading aborted because the data would differ from what was logged. To count and skip such \
                         commands, set the 'aof-load-errors' configuration option to continue and restart the server."
                    );
                }
                return Err(Unusable);
            }
        }
        // Never truncate a file that is being appended to.
        let is_appended_to = self.is_on.load(Relaxed);
        if !self.service.config.load().aof_load_truncated || !file.is_last || is_appended_to {
            if !file.is_last {
                refuse!("AOF file {name} is truncated, but it is not the last file");
            }
            refuse!(
                "Unexpected end of file reading the append only file {name}. You can: 1) Make a backup of your AOF file, \
                 then use `basalt check-aof --fix {manifest}`. 2) Alternatively you can set the \
                 'aof-load-truncated' configuration option to yes and restart the server."
            );
            return Err(Unusable);
        }
        tracing::warn!("!!! Warning: short read while loading the AOF file {name}!!!");
        tracing::warn!("AOF {name} loaded anyway because aof-load-truncated is enabled");
        tracing::warn!("Truncating the AOF {name} at offset {}", error.valid);
        let inner = self.inner.lock();
        let store = inner.store.as_ref();
        // A rewrite may have replaced the file meanwhile.
        let named = store.filter(|store| store.manifest().loaded().any(|part| *part == file.part));
        let cut = named.map_or(Ok(()), |store| store.truncate(&file.part, error.valid));
        cut.map_err(|error| {
            refuse!("Error truncating the AOF file {name}: {error}");
            Unusable
        })
    }

    /// Turns the AOF on at startup, after loading and before there are clients.
    fn open(self: &Arc<Self>, inner: &mut Inner) -> Result<(), Unusable> {
        let config = self.service.config.load();
        let empty = match config.aof_use_rdb_preamble {
            true => empty_base(&config),
            false => Vec::new(),
        };
        let store = inner.store.as_mut().expect("it was looked for");
        let opened = store.open_at_start(Some((&empty, config.aof_use_rdb_preamble)));
        let (file, len) = opened.map_err(|error| {
            refuse!(
                "Can't open or create the append-only dir {}: {error}",
                config.appenddirname
            );
            Unusable
        })?;
        self.writer.lock().open(file, len);
        self.listen(inner).map_err(|error| {
            refuse!("Can't start the threads of the append-only file: {error}");
            Unusable
        })?;
        inner.phase = Phase::On;
        self.figures().enabled.store(true, Relaxed);
        self.follow(inner);
        let bytes = self.measure(inner);
        self.figures().base_bytes.store(bytes, Relaxed);
        self.figures().current_bytes.store(bytes, Relaxed);
        // Remove replaced files that a crash left behind.
        self.delete_history(inner);
        self.service
            .pubsub
            .interest()
            .set_listening(Audience::FILE, true);
        Ok(())
    }

    /// Adds a log reader and starts the writer thread, which appends everything logged from now on.
    fn listen(self: &Arc<Self>, inner: &mut Inner) -> std::io::Result<()> {
        self.log.start()?;
        self.start_threads()?;
        let reader = self.log.add_reader(Audience::FILE);
        self.start_writer(&reader)?;
        inner.reader = Some(reader);
        Ok(())
    }

    /// Runs CONFIG SET appendonly yes: begins a rewrite; records after the rewrite's cut are appended.
    pub fn turn_on(self: &Arc<Self>) -> Result<(), Unusable> {
        let mut inner = self.inner.lock();
        if inner.phase != Phase::Off {
            return Ok(());
        }
        if let Err(error) = self.listen(&mut inner) {
            tracing::error!("Can't start the threads of the append-only file: {error}");
            return Err(Unusable);
        }
        inner.phase = Phase::Waiting;
        self.figures().enabled.store(true, Relaxed);
        self.figures().last_write_ok.store(true, Relaxed);
        if inner.is_rewriting {
            // A rewrite that began while the AOF was off writes only a base and has no marker in the log:
            // cancel it and begin another.
            self.cancel_rewrite(&inner);
            self.is_scheduled.store(true, Relaxed);
            return Ok(());
        }
        match self.begin(&mut inner) {
            super::RewriteOutcome::Failed => {
                tracing::warn!(
                    "Redis needs to enable the AOF but can't trigger a background AOF rewrite operation. Check the above \
                     logs for more info about the error."
                );
                self.stop(&mut inner);
                Err(Unusable)
            }
            _ => {
                tracing::info!(
                    "AOF was enabled: a background rewrite was scheduled to save the current data."
                );
                Ok(())
            }
        }
    }

    /// Runs CONFIG SET appendonly no: everything appended so far is on the disk when the function returns.
    pub fn turn_off(&self) {
        let mut inner = self.inner.lock();
        if inner.phase == Phase::Off {
            return;
        }
        self.cancel_rewrite(&inner);
        // Clear the flag first, so that clients waiting for a sync notice, as with redis-server.
        self.figures().enabled.store(false, Relaxed);
        if let (Phase::On, Some(reader)) = (inner.phase, &inner.reader) {
            self.settle(reader);
        }
        self.stop(&mut inner);
        drop(inner);
        self.await_rewrite();
    }

    /// Waits briefly for a cancelled rewrite to end, so that the next request for one succeeds.
    fn await_rewrite(&self) {
        const LOOKS: usize = 500;
        for _ in 0..LOOKS {
            if !self.is_rewriting() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn stop(&self, inner: &mut Inner) {
        self.service
            .pubsub
            .interest()
            .set_listening(Audience::FILE, false);
        if let Some(reader) = inner.reader.take() {
            self.log.remove_reader(&*reader);
        }
        self.writer.lock().close();
        inner.phase = Phase::Off;
        self.is_scheduled.store(false, Relaxed);
        self.is_failing.store(false, Relaxed);
        let figures = self.figures();
        figures.enabled.store(false, Relaxed);
        figures.last_write_ok.store(true, Relaxed);
        figures.rewrite_scheduled.store(false, Relaxed);
        self.follow(inner);
    }
}

/// Reports an error of the files to the log.
fn unusable(error: StoreError) -> Unusable {
    error.report();
    Unusable
}

/// A file to load. The open file stays readable even if it is renamed or removed, so no lock is held while
/// loading.
struct AofLoadFile {
    part: AofManifestFile,
    kind: &'static str,
    bytes: u64,
    /// Whether no later file has data, so that this file may end within a command.
    is_last: bool,
    from: Box<dyn Read + Send>,
}

/// Opens the files that a manifest lists, in loading order. Returns an error if one does not exist.
fn open_files(store: &Store) -> Result<Vec<AofLoadFile>, Unusable> {
    let open = |part: &AofManifestFile| {
        Ok(AofLoadFile {
            part: part.clone(),
            kind: match store.manifest().base.as_ref() == Some(part) {
                true => "base",
                false => "incr",
            },
            bytes: store.len_of(part)?,
            is_last: false,
            from: store.open_part(part)?,
        })
    };
    let opened: Result<Vec<AofLoadFile>, StoreError> =
        store.manifest().loaded().map(open).collect();
    let mut files = opened.map_err(unusable)?;
    // After a crash between creating a file and the first write to it, the file before it may be truncated.
    for file in files.iter_mut().rev() {
        file.is_last = true;
        if file.bytes > 0 {
            break;
        }
    }
    Ok(files)
}

fn total_bytes(files: &[AofLoadFile]) -> u64 {
    files.iter().map(|file| file.bytes).sum()
}

/// Returns the bytes of a base file without keys.
fn empty_base(config: &Config) -> Vec<u8> {
    let options = RdbEncodeOptions {
        version: basalt_engine::serial::V10,
        compress: config.rdbcompression.compresses_values(),
        checksum: config.rdbchecksum,
    };
    let mut bytes = Vec::new();
    let used = crate::telemetry::memory::used_bytes();
    let fields = encode::own_fields(clock::unix_ms(), used, true);
    encode::header(&mut bytes, &options, &fields);
    let mut end = Vec::new();
    encode::end(&mut end, None);
    let crc = options.checksum.then(|| {
        let crc = crc64::update(0, &bytes);
        crc64::update(crc, &end[..1])
    });
    encode::end(&mut bytes, crc);
    bytes
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::persist::files::Files;
    use crate::persist::files::simulated::Simulated;
    use crate::persist::oplog::OpLog;
    use crate::persist::snapshot::Snapshots;
    use crate::state::Service;
    use crate::state::durability::Durability;
    use crate::telemetry::Telemetry;
    use basalt_commands::command::testing::NoServer;

    /// Starts a server that finds these commands in its file and tries to load them.
    fn started(commands: &[u8]) -> (Arc<Aof>, Result<AofLoadOutcome, Unusable>) {
        let config = Arc::new(Config::default());
        let service = crate::start::build(Arc::clone(&config), 2, Telemetry::new(None, 2));
        let server = Arc::new(NoServer::default());
        assert!(service.server.set(server).is_ok(), "it is set once");
        let service: &'static Service = Box::leak(Box::new(service));
        let files = Simulated::new(Path::new(""));
        let directory = Path::new(&config.appenddirname);
        files.create_directory(directory).expect("a directory");
        for (name, bytes) in [
            (
                "manifest",
                &b"file appendonly.aof.1.incr.aof seq 1 type i\n"[..],
            ),
            ("1.incr.aof", commands),
        ] {
            let file = files.create(&directory.join(format!("appendonly.aof.{name}")));
            let file = file.expect("a file");
            file.write(&[IoSlice::new(bytes)]).expect("room");
        }
        let (log, snapshots) = (Arc::new(OpLog::default()), Snapshots::new(service));
        let aof = Aof::new(service, log, snapshots, Arc::new(files));
        aof.find().expect("a manifest");
        let found = aof.start(&|| false);
        (aof, found)
    }

    const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n";

    #[test]
    fn nobody_is_served_what_was_loaded_before_the_fault() {
        let is_loading = |aof: &Aof| {
            let loading = &aof.service.telemetry.persistence.loading;
            loading.is_loading.load(Relaxed)
        };
        let (aof, found) = started(SET);
        assert_eq!(found.expect("all is well"), AofLoadOutcome::Loaded);
        assert!(!is_loading(&aof));
        let (aof, found) = started(&[SET, &b"garbage\r\n"[..]].concat());
        assert!(found.is_err());
        assert!(is_loading(&aof), "until the server has ended");
    }

    #[test]
    fn at_the_end_no_reply_tells_of_what_is_not_on_the_disk() {
        let (aof, _) = started(SET);
        let later = aof.log.tail() + 1;
        assert!(!aof.must_wait(later), "everysec");
        aof.shut_down();
        assert!(aof.must_wait(later));
        aof.follow_config();
        assert!(aof.must_wait(later), "whatever changes meanwhile");
        assert!(!aof.must_wait(aof.synced.passed()));
    }
}
