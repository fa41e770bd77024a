//! Startup loading: the data are loaded while clients can already connect and get LOADING errors.

use std::fs::File;
use std::future::Future;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use super::announce;
use super::put_aside::put_aside;
use super::supervision::Supervision;
use crate::persist::aof::Aof;
use crate::persist::aof::start::{AofLoadOutcome, Unusable};
use crate::persist::load::progress::Progress;
use crate::persist::load::{Due, LoadError, Loader, Rules};
use crate::persist::rdb::fault::Fault;
use crate::replication::replica::PrimaryFollower;
use crate::script::stack;
use crate::state::Service;
use crate::sys::daemon::DaemonNotifier;
use crate::telemetry::clock::{self, Ticks};
use crate::telemetry::log;
use basalt_commands::config::Config;
use basalt_core::base::lossless;
use basalt_core::base::text::visible;

/// Loader of existing data at startup, which logs the result.
pub(super) struct StartupLoader {
    service: &'static Service,
    config: Arc<Config>,
    stopped: watch::Receiver<bool>,
    aof: Arc<Aof>,
    supervision: Arc<Supervision>,
    follower: &'static PrimaryFollower,
    /// Whether commands are already being appended, because there is nothing to load.
    is_open: bool,
    /// The file to load, if there is one.
    file: Option<PathBuf>,
    /// The channel to the process that daemonized this one.
    word: Arc<Mutex<Option<DaemonNotifier>>>,
}

/// Maximum time that the process which daemonized the server waits for loading.
const LONG: Duration = Duration::from_secs(10);

/// Prints on the terminal that a daemonized server is still loading, without errors so far.
fn say_that_it_takes_long(service: &Service, logfile: &str) {
    let loading = &service.telemetry.persistence.loading;
    let share = loading.share(clock::unix_ms());
    let log = match logfile {
        "" => "INFO persistence".to_owned(),
        file => visible(file.as_bytes()),
    };
    eprintln!(
        "Loading continues in the background: {share}. Clients get the error LOADING until it is done; see {log} for \
         the progress."
    );
}

impl StartupLoader {
    /// Determines which file to load. If there is one, clients get LOADING errors from now on.
    pub(super) fn new(
        service: &'static Service,
        aof: Arc<Aof>,
        supervision: Arc<Supervision>,
        follower: &'static PrimaryFollower,
        config: Arc<Config>,
        stopped: watch::Receiver<bool>,
    ) -> StartupLoader {
        let file = lossless::path_of(&config.dbfilename);
        // If the file cannot be examined, assume that it exists; loading then reports the error.
        let is_there = !matches!(
            file.symlink_metadata(),
            Err(error) if error.kind() == io::ErrorKind::NotFound
        );
        // A snapshot without an append-only file is meant to be loaded: it was put there to be restored, or
        // appendonly was no until now.
        let is_loaded = is_there && (!config.appendonly || aof.is_fresh());
        if is_there && !is_loaded {
            put_aside(service, &file);
        }
        let starts_fresh = config.appendonly && !is_loaded;
        let is_open = starts_fresh && aof.start_fresh();
        // An append-only file that could not be started misses no command, because clients get LOADING errors until
        // commands are appended to it.
        let must_wait = match starts_fresh {
            true => !is_open,
            false => is_there,
        };
        if must_wait {
            service.telemetry.persistence.loading.announce();
        }
        StartupLoader {
            service,
            config,
            stopped,
            aof,
            supervision,
            follower,
            is_open,
            file: (is_there && !starts_fresh).then_some(file),
            word: Arc::default(),
        }
    }

    /// Loads on a separate thread; the future completes only if that fails. The process that daemonized the server
    /// is notified through `word` once all is loaded, or once it is clear that this takes long.
    pub(super) fn begin(mut self, word: Option<DaemonNotifier>) -> impl Future<Output = ()> {
        let (done, loaded) = oneshot::channel();
        let word = Arc::new(Mutex::new(word));
        self.word = Arc::clone(&word);
        let service = self.service;
        let logfile = self.config.logfile.clone();
        if self.is_open || (self.file.is_none() && !self.config.appendonly) {
            self.ready();
            let _ = done.send(true);
        } else {
            // If the thread cannot be created, that is logged, and `done` is dropped without a value.
            let _ = stack::spawn("basalt-loading".to_owned(), move || {
                let _ = done.send(self.load());
            });
        }
        async move {
            let has_loaded = async {
                tokio::pin!(loaded);
                if let Ok(loaded) = tokio::time::timeout(LONG, &mut loaded).await {
                    return loaded;
                }
                if let Some(word) = word.lock().take() {
                    say_that_it_takes_long(service, &logfile);
                    word.say();
                }
                loaded.await
            };
            if has_loaded.await.unwrap_or(false) {
                std::future::pending::<()>().await;
            }
        }
    }

    fn ready(&self) {
        if let Some(word) = self.word.lock().take() {
            word.say();
        }
        announce::ready(&self.config);
        self.service.telemetry.set_ready(true);
        self.follower.loaded();
        self.supervision.ready(self.service);
    }

    /// Returns true if the data was loaded, or if loading was stopped because the server is stopping; otherwise
    /// the reason was logged.
    fn load(&self) -> bool {
        let Some(path) = &self.file else {
            return self.load_aof();
        };
        let began = Ticks::now();
        match self.load_snapshot(path) {
            Ok(Ok(())) => {
                let spent_s = Ticks::now().since_ns(began) as f64 / 1e9;
                tracing::info!("DB loaded from disk: {spent_s:.3} seconds");
                self.ready();
                true
            }
            Ok(Err(Unusable)) => false,
            Err(LoadError {
                fault: Fault::Stopped,
                ..
            }) => true,
            Err(error) => {
                error.report();
                log::refusal(&format!("Can't load {}: {error}", path.display()));
                log::refusal("Fatal error loading the DB, check server logs. Exiting.");
                false
            }
        }
    }

    /// Loads the append-only file, to which commands are appended from then on.
    fn load_aof(&self) -> bool {
        let began = Ticks::now();
        if self.aof.find().is_err() {
            return false;
        }
        match self.aof.start(&|| *self.stopped.borrow()) {
            Ok(AofLoadOutcome::Stopped) => return true,
            Ok(found) => {
                let spent_s = Ticks::now().since_ns(began) as f64 / 1e9;
                if found == AofLoadOutcome::Loaded {
                    tracing::info!("DB loaded from append only file: {spent_s:.3} seconds");
                }
            }
            Err(Unusable) => return false,
        }
        self.ready();
        true
    }

    /// Loads a snapshot. With `appendonly`, this happens only if no append-only file exists; the new one then
    /// begins with this snapshot.
    fn load_snapshot(&self, path: &Path) -> Result<Result<(), Unusable>, LoadError> {
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (bytes, mut file) = opened.map_err(|error| {
            let path = path.display();
            tracing::error!("Fatal error: can't open the RDB file {path} for reading: {error}");
            LoadError {
                offset: 0,
                fault: Fault::Read(error),
            }
        })?;
        let loader = Loader::new(self.service);
        // Load expired keys if replicas may resume this server's stream: they have these keys, too, and need
        // their deletions in the stream.
        let is_of_stream = loader.is_of_stream(&mut file);
        file.rewind().map_err(|error| LoadError {
            offset: 0,
            fault: Fault::Read(error),
        })?;
        let must_stop = || *self.stopped.borrow();
        let mut progress = Progress::begin(self.service, bytes, &must_stop);
        let rules = Rules {
            due: match (self.service.pause.rest.follows(), is_of_stream) {
                (true, _) => Due::Loaded,
                (false, true) => Due::Told,
                (false, false) => Due::LeftOut,
            },
            replaces: false,
        };
        let loaded = match loader.rdb(&mut file, Vec::new(), rules, &mut progress) {
            Ok(loaded) => loaded,
            Err(error) => {
                progress.never_ends();
                return Err(error);
            }
        };
        // Start the append-only file while clients still get LOADING errors, so that it misses no command.
        let begun = match self.config.appendonly {
            true => self.begin_log(path, file, loaded.bytes),
            false => Ok(()),
        };
        match begun {
            Ok(()) => self.follower.restored(&loaded.fields),
            Err(Unusable) => progress.never_ends(),
        }
        Ok(begun)
    }

    /// Starts the append-only file with a snapshot of `bytes` bytes.
    fn begin_log(&self, path: &Path, mut file: File, bytes: u64) -> Result<(), Unusable> {
        let path = path.display();
        if let Err(error) = file.rewind() {
            tracing::error!("Can't read {path} a second time: {error}");
            return Err(Unusable);
        }
        self.aof.start_with(&mut file.take(bytes))?;
        tracing::warn!(
            "No append only file was found, so {path} was loaded and copied as the base of a new append only file. \
             {path} is kept until the next save."
        );
        Ok(())
    }
}
