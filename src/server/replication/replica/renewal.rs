//! Replaces all data by a primary's snapshot, in one of three ways. They differ in what remains of the old data
//! if the snapshot is incomplete.
//!
//! ```text
//! by a file    received, checked ▸ old data removed ▸ loaded
//! straight     old data removed ▸ loaded as it arrives
//! aside        loaded aside as it arrives ▸ replaces the old data atomically
//! ```

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::interval;

use super::coming::{AnnouncedSnapshot, SnapshotPosition, Way};
use super::framing::SnapshotFraming;
use super::full_sync::{self, SIGN_OF_LIFE, StagedDataset};
use super::link::{ReplicaLinkError, UpstreamLink};
use super::role;
use super::wire::Wire;
use crate::net::client::Timeout;
use crate::persist::load::{LoadError, Loaded};
use crate::telemetry::progress::Meter;
use basalt_commands::config::Config;
use basalt_commands::config::values::DisklessLoad;
use basalt_core::base::lossless;

impl UpstreamLink<'_> {
    fn way(&self, config: &Config, id: &str) -> Way {
        let service = self.follower.service;
        let all = service.all_published.iter();
        let is_empty = || {
            let mut dbs = all.flat_map(|shard| shard.dbs.iter());
            dbs.all(|db| db.keys.get() == 0)
        };
        match config.repl_diskless_load {
            // Clients may see the old data meanwhile if it is of the same stream, so merely outdated.
            DisklessLoad::Swapdb => Way::Aside {
                is_served: self.follower.stream.facts().id == id,
            },
            DisklessLoad::FlushBeforeLoad => Way::Straight,
            DisklessLoad::OnEmptyDb if is_empty() => Way::Straight,
            DisklessLoad::OnEmptyDb | DisklessLoad::Disabled => Way::File,
        }
    }

    /// Waits until a snapshot begins or, if it goes to a file, until it is written. The future may be dropped
    /// at any moment.
    pub(super) async fn receive(
        &self,
        wire: &mut Wire,
        position: SnapshotPosition,
        timeout: Timeout<'_>,
        config: &Config,
    ) -> Result<AnnouncedSnapshot, ReplicaLinkError> {
        let follower = self.follower;
        follower.begin_transfer();
        let line = wire
            .line(timeout)
            .await
            .map_err(ReplicaLinkError::Transfer)?;
        follower.note_input(line.len());
        if line.first() == Some(&b'-') {
            let text = lossless::text_of(&line[1..]).into_owned();
            return Err(ReplicaLinkError::Aborted(text));
        }
        let Some(extent) = SnapshotFraming::of_line(&line) else {
            return Err(ReplicaLinkError::NoSnapshot(
                lossless::text_of(&line).into_owned(),
            ));
        };
        let way = self.way(config, &position.id);
        let to = match way {
            Way::File => "disk",
            _ => "parser",
        };
        match extent.length() {
            Some(bytes) => tracing::info!(
                "MASTER <-> REPLICA sync: receiving {bytes} bytes from master to {to}"
            ),
            None => tracing::info!(
                "MASTER <-> REPLICA sync: receiving streamed RDB from master with EOF to {to}"
            ),
        }
        follower.note_length(extent.length());
        if way == Way::File {
            let path = lossless::path_of(&config.dbfilename);
            let intake = full_sync::to_file(path.clone()).map_err(ReplicaLinkError::Transfer)?;
            let stopped = self.stopped.clone();
            let extent = extent.clone();
            let what = "MASTER <-> REPLICA sync, receiving";
            let mut meter = Meter::in_log(what, extent.length().unwrap_or(0));
            let (written, came) =
                full_sync::receive(wire, extent, intake, stopped, timeout, |bytes| {
                    follower.note_received(bytes);
                    meter.reached(bytes);
                })
                .await
                .map_err(ReplicaLinkError::Transfer)?;
            drop(meter);
            written.map_err(ReplicaLinkError::Transfer)?;
            came.map_err(ReplicaLinkError::Transfer)?;
            let checked = full_sync::check(follower.service, &path).await;
            checked.map_err(|error| unloadable(&error, "disk"))?;
        }
        Ok(AnnouncedSnapshot {
            position,
            extent,
            way,
        })
    }

    /// Replaces all data by a snapshot, unless stopped. The future must not be dropped midway.
    pub(super) async fn renew(
        &self,
        wire: &mut Wire,
        coming: AnnouncedSnapshot,
        stopped: watch::Receiver<bool>,
    ) -> Result<(), ReplicaLinkError> {
        let config = self.config();
        let AnnouncedSnapshot {
            position,
            extent,
            way,
        } = coming;
        let renewed = match way {
            Way::File => self.renew_from_file(wire, stopped, &config).await,
            Way::Straight => self.renew_straight(wire, stopped, extent, &config).await,
            Way::Aside { is_served } => {
                self.renew_staged(wire, stopped, extent, is_served, &config)
                    .await
            }
        };
        if let Ok(loaded) = &renewed {
            let said = loaded.fields.get("repl-stream-db");
            let said = said.and_then(|db| db.parse::<usize>().ok());
            let db = position.db.or(said);
            let db = db.filter(|db| *db < config.databases as usize);
            self.follower.adopt(&position.id, position.offset, db);
            tracing::info!("MASTER <-> REPLICA sync: Finished with success");
        }
        self.restart_aof(&config).await;
        match renewed {
            Err(_) if *self.stopped.borrow() => Err(ReplicaLinkError::Stopped),
            renewed => renewed.map(drop),
        }
    }

    /// Detaches from the stream and turns the append-only file off: from here on, the data matches neither of
    /// them.
    async fn leave_stream(&self, config: &Config) {
        self.follower.detach();
        if config.appendonly {
            let aof = Arc::clone(&self.follower.aof);
            let _ = tokio::task::spawn_blocking(move || aof.turn_off()).await;
        }
    }

    /// Starts the append-only file with the current data. If that fails, the reason is in the log.
    async fn restart_aof(&self, config: &Config) {
        if config.appendonly {
            let aof = Arc::clone(&self.follower.aof);
            let _ = tokio::task::spawn_blocking(move || aof.turn_on()).await;
        }
    }

    async fn flush(&self) {
        let service = self.follower.service;
        service.telemetry.persistence.loading.announce();
        tracing::info!("MASTER <-> REPLICA sync: Flushing old data");
        role::empty(service).await;
        tracing::info!("MASTER <-> REPLICA sync: Loading DB in memory");
    }

    async fn renew_from_file(
        &self,
        wire: &mut Wire,
        stopped: watch::Receiver<bool>,
        config: &Config,
    ) -> Result<Loaded, ReplicaLinkError> {
        let service = self.follower.service;
        let path: PathBuf = lossless::path_of(&config.dbfilename);
        self.leave_stream(config).await;
        self.flush().await;
        let loaded = {
            let mut loading = std::pin::pin!(full_sync::load(service, &path, stopped));
            let mut signs = interval(SIGN_OF_LIFE);
            loop {
                tokio::select! {
                    loaded = &mut loading => break loaded,
                    _ = signs.tick() => wire.send_soon(b"\n"),
                }
            }
        };
        if config.rdb_del_sync_files && config.save.is_empty() && !config.appendonly {
            let _ = std::fs::remove_file(&path);
        }
        self.or_nothing(loaded, "disk").await
    }

    async fn renew_straight(
        &self,
        wire: &mut Wire,
        stopped: watch::Receiver<bool>,
        extent: SnapshotFraming,
        config: &Config,
    ) -> Result<Loaded, ReplicaLinkError> {
        self.leave_stream(config).await;
        self.flush().await;
        let service = self.follower.service;
        let intake = full_sync::to_shards(service, extent.length(), stopped.clone());
        let loaded = self.take_in(wire, stopped, extent, intake).await;
        self.or_nothing(loaded, "socket").await
    }

    async fn renew_staged(
        &self,
        wire: &mut Wire,
        stopped: watch::Receiver<bool>,
        extent: SnapshotFraming,
        is_served: bool,
        config: &Config,
    ) -> Result<Loaded, ReplicaLinkError> {
        let service = self.follower.service;
        tracing::info!("MASTER <-> REPLICA sync: Loading DB in memory");
        let aside = StagedDataset::new(service);
        let intake = aside.intake(service, extent.length(), stopped.clone(), is_served);
        let mut loaded = match self.take_in(wire, stopped, extent, intake).await {
            Ok(loaded) => loaded,
            Err(error) => {
                tracing::info!("MASTER <-> REPLICA sync: Discarding temporary DB in background");
                return Err(unloadable(&error, "socket"));
            }
        };
        self.leave_stream(config).await;
        tracing::info!("MASTER <-> REPLICA sync: Swapping active DB with loaded DB");
        let libraries = std::mem::take(&mut loaded.libraries);
        aside.replace_all(service, libraries).await;
        tracing::info!("MASTER <-> REPLICA sync: Discarding old DB in background");
        Ok(loaded)
    }

    /// Loads a snapshot as it arrives.
    async fn take_in(
        &self,
        wire: &mut Wire,
        stopped: watch::Receiver<bool>,
        extent: SnapshotFraming,
        intake: io::Result<full_sync::Intake<Result<Loaded, LoadError>>>,
    ) -> Result<Loaded, LoadError> {
        let follower = self.follower;
        let timeout = &move || follower.timeout();
        let intake = intake.map_err(full_sync::unreadable)?;
        let received = full_sync::receive(wire, extent, intake, stopped, timeout, |bytes| {
            follower.note_received(bytes);
        });
        let (loaded, came) = received.await.map_err(full_sync::unreadable)?;
        // Also check the transfer: a snapshot may load without an error although it did not arrive completely.
        loaded.and_then(|loaded| came.map(|()| loaded).map_err(full_sync::unreadable))
    }

    /// Removes all data after an incomplete load.
    async fn or_nothing(
        &self,
        loaded: Result<Loaded, LoadError>,
        from: &str,
    ) -> Result<Loaded, ReplicaLinkError> {
        let service = self.follower.service;
        match loaded {
            Ok(loaded) => Ok(loaded),
            Err(error) => {
                role::empty(service).await;
                service.telemetry.persistence.loading.end();
                Err(unloadable(&error, from))
            }
        }
    }
}

fn unloadable(error: &LoadError, from: &str) -> ReplicaLinkError {
    error.report();
    ReplicaLinkError::Unloadable(from.to_owned())
}
