//! What the server begins with: its data are loaded while clients can connect already, and hear LOADING.

use std::fs::File;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{oneshot, watch};

use super::announce;
use super::supervision::Supervision;
use crate::base::lossless;
use crate::config::Config;
use crate::persist::aof::Aof;
use crate::persist::aof::start::{Found, Unusable};
use crate::persist::load::progress::Progress;
use crate::persist::load::{Due, LoadError, Loader, Rules};
use crate::persist::rdb::fault::Fault;
use crate::replication::replica::Follower;
use crate::script::stack;
use crate::session::service::Service;
use crate::telemetry::clock::Ticks;
use crate::telemetry::log;

/// Loads what is there, and says so.
pub(super) struct Start {
    service: &'static Service,
    config: Arc<Config>,
    stopped: watch::Receiver<bool>,
    aof: Arc<Aof>,
    supervision: Arc<Supervision>,
    follower: &'static Follower,
    /// Commands are appended already, as there is nothing to load.
    is_open: bool,
    /// The file to load, if there is one.
    file: Option<PathBuf>,
}

impl Start {
    /// Looks what is there. If something is, clients hear LOADING from now on.
    pub(super) fn new(
        service: &'static Service,
        (aof, supervision): (Arc<Aof>, Arc<Supervision>),
        follower: &'static Follower,
        config: Arc<Config>,
        stopped: watch::Receiver<bool>,
    ) -> Start {
        if config.appendonly {
            let is_open = aof.start_fresh();
            if !is_open {
                // Until commands are appended: no client's is to be missing.
                service.telemetry.persistence.loading.announce();
            }
            return Start {
                is_open,
                service,
                config,
                stopped,
                aof,
                supervision,
                follower,
                file: None,
            };
        }
        let file = lossless::path_of(&config.dbfilename);
        // What can not be looked at is for the loading to report.
        let is_there = !matches!(
            file.symlink_metadata(),
            Err(error) if error.kind() == io::ErrorKind::NotFound
        );
        if is_there {
            service.telemetry.persistence.loading.announce();
        }
        Start {
            is_open: false,
            service,
            config,
            stopped,
            aof,
            supervision,
            follower,
            file: is_there.then_some(file),
        }
    }

    /// Loads on a thread of its own; ends if that fails, and never otherwise.
    pub(super) fn begin(self) -> impl Future<Output = ()> {
        let (done, loaded) = oneshot::channel();
        if self.is_open || (self.file.is_none() && !self.config.appendonly) {
            self.ready();
            let _ = done.send(true);
        } else {
            // If there is no thread the log says so, and `done` goes without a word.
            let _ = stack::spawn("basalt-loading".to_owned(), move || {
                let _ = done.send(self.load());
            });
        }
        async move {
            if loaded.await.unwrap_or(false) {
                std::future::pending::<()>().await;
            }
        }
    }

    fn ready(&self) {
        announce::ready(&self.config);
        self.service.telemetry.set_ready(true);
        self.follower.loaded();
        self.supervision.ready(self.service);
    }

    /// Whether the data are there, or the end of the server makes them needless; otherwise the log says why not.
    fn load(&self) -> bool {
        if self.config.appendonly {
            return self.load_aof();
        }
        let Some(path) = &self.file else {
            return true;
        };
        let began = Ticks::now();
        match self.load_snapshot(path) {
            Ok(()) => {
                let spent_s = Ticks::now().since_ns(began) as f64 / 1e9;
                tracing::info!("DB loaded from disk: {spent_s:.3} seconds");
                self.ready();
                true
            }
            Err(LoadError {
                fault: Fault::Stopped,
                ..
            }) => true,
            Err(error) => {
                error.report();
                log::refusal("Fatal error loading the DB, check server logs. Exiting.");
                false
            }
        }
    }

    /// The append-only file, to which commands are appended from then on.
    fn load_aof(&self) -> bool {
        let began = Ticks::now();
        if self.aof.find().is_err() {
            return false;
        }
        match self.aof.start(&|| *self.stopped.borrow()) {
            Ok(Found::Stopped) => return true,
            Ok(found) => {
                let spent_s = Ticks::now().since_ns(began) as f64 / 1e9;
                if found == Found::Loaded {
                    tracing::info!("DB loaded from append only file: {spent_s:.3} seconds");
                }
            }
            Err(Unusable) => return false,
        }
        self.ready();
        true
    }

    fn load_snapshot(&self, path: &Path) -> Result<(), LoadError> {
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
        // Replicas that go on with this server's stream have them too, and learn from it when they go.
        let is_of_stream = loader.is_of_stream(&mut file);
        std::io::Seek::rewind(&mut file).map_err(|error| LoadError {
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
        match loader.rdb(&mut file, Vec::new(), rules, &mut progress) {
            Ok(loaded) => {
                self.follower.restored(&loaded.fields);
                Ok(())
            }
            Err(error) => {
                progress.never_ends();
                Err(error)
            }
        }
    }
}
