//! The implementation of `command::host::Server` and its parts: the server's functions that commands may call.

mod debugging;
mod diagnostics;
mod persistence;
mod settings;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use super::listening::Listening;
use super::oom_score::OomScore;
use super::saving::SaveCoordinator;
use super::shutdown::Shutdown;
use super::title::Title;
use super::users;
use crate::node::Bus;
use crate::persist::aof::Aof;
use crate::replication::Replication;
use crate::state::Service;
use crate::state::pause::Reason;
use crate::telemetry::clock;
use basalt_commands::acl::{User, Users};
use basalt_commands::client::registry::Registry;
use basalt_commands::client::under_way::UnderWay;
use basalt_commands::command::error::CommandError;
use basalt_commands::command::host::cluster::Cluster;
use basalt_commands::command::host::primary::HostPrimary;
use basalt_commands::command::host::replica::Replica;
use basalt_commands::command::host::scripts::{LogChange, Scripts};
use basalt_commands::command::host::{Awaited, DryRun, Server, Told};
use basalt_commands::pubsub::PubSub;
use basalt_engine::record::Records;

/// The host of commands; see the module. Its locks are acquired in field order. While any of these locks is
/// held, no shard may be locked or released: a thread that releases a shard runs the commands queued for it,
/// and one of them may be a transaction with CONFIG SET.
pub(super) struct ServerHost {
    service: Arc<Service>,
    aof: Arc<Aof>,
    replication: Arc<Replication>,
    /// Path of the configuration file, if any.
    pub(super) file: Option<PathBuf>,
    /// The open sockets.
    pub(super) listening: Listening,
    /// The title of the process, which `ps` shows.
    pub(super) title: Title,
    /// The shutdown that a signal requested, if any.
    pub(super) shutdown: Shutdown,
    pub(super) oom_score: OomScore,
    /// Snapshots requested by commands and by shutdown.
    pub(super) saving: Arc<SaveCoordinator>,
    /// Locked while a configuration change, or the rewrite of the configuration file, makes system calls; never
    /// locked by a transaction.
    asking: Mutex<()>,
    /// Whether the memory limit has changed since it was last applied to the allocator and the background.
    limit_changed: AtomicBool,
    /// Locked while the memory limit is applied.
    following: Mutex<()>,
    /// The cluster bus, if this server is a cluster node.
    bus: OnceLock<&'static Bus>,
}

impl ServerHost {
    pub(super) fn new(
        service: Arc<Service>,
        aof: Arc<Aof>,
        replication: Arc<Replication>,
        file: Option<PathBuf>,
        listening: Listening,
        title: Title,
        saving: Arc<SaveCoordinator>,
    ) -> ServerHost {
        ServerHost {
            service,
            aof,
            replication,
            file,
            listening,
            title,
            shutdown: Shutdown::default(),
            oom_score: OomScore::of_process(),
            saving,
            asking: Mutex::new(()),
            limit_changed: AtomicBool::new(false),
            following: Mutex::new(()),
            bus: OnceLock::new(),
        }
    }

    /// Sets the bus of the cluster that this server is a node of.
    pub(super) fn joined(&self, bus: &'static Bus) {
        assert!(self.bus.set(bus).is_ok(), "there is one cluster");
    }

    /// Announces to the cluster, if this server is a node of one, that it is about to end.
    pub(super) fn leave_cluster(&self) {
        if let Some(bus) = self.bus.get() {
            bus.leave(self.saving.announces_end());
        }
    }

    /// Returns the interval between rounds of background work; `None` while the work is paused.
    pub(super) fn round(&self) -> Option<Duration> {
        let is_paused = self.service.cron_paused.load(Relaxed);
        let hz = self.service.config.load().hz;
        (!is_paused).then(|| Duration::from_secs(1) / hz.max(1))
    }
}

impl Server for ServerHost {
    fn clients(&self) -> &Registry {
        &self.service.clients
    }

    fn users(&self) -> &Users {
        &self.service.users
    }

    fn run_id(&self) -> &str {
        &self.service.telemetry.run_id
    }

    fn dry_run(&self, user: &User, request: &[Vec<u8>], db: usize) -> DryRun {
        users::dry_run(user, request, db)
    }

    fn pubsub(&self) -> &PubSub {
        &self.service.pubsub
    }

    fn primary(&self) -> &dyn HostPrimary {
        &*self.replication.primary
    }

    fn replica(&self) -> &'static dyn Replica {
        self.replication.replica
    }

    fn cluster(&self) -> Option<&dyn Cluster> {
        self.service.cluster.get().map(|cluster| &**cluster)
    }

    fn is_replica(&self) -> bool {
        self.service.telemetry.replication.is_replica.load(Relaxed)
    }

    fn lacks_primary(&self) -> bool {
        let figures = &self.service.telemetry.replication;
        figures.is_replica.load(Relaxed) && !figures.is_link_up.load(Relaxed)
    }

    fn pause(&self, until_ms: u64, writes_only: bool) -> Awaited {
        let now_ms = clock::unix_ms();
        let pause = &self.service.pause;
        pause.start(Reason::Client, until_ms, writes_only, now_ms);
        let service = Arc::clone(&self.service);
        Awaited {
            begin: Arc::new(move |done| {
                UnderWay::when_over(&service.under_way, || done(Ok(String::new())));
            }),
            told: Told::Text("OK"),
        }
    }

    fn sleep(&self, until_ms: u64) {
        let now_ms = clock::unix_ms();
        let pause = &self.service.pause;
        pause.start(Reason::Sleep, until_ms, false, now_ms);
    }

    fn unpause(&self) {
        self.service.end_pause(Reason::Client);
    }

    fn unix_us(&self) -> u64 {
        clock::unix_us()
    }

    fn log_records(&self, records: &mut Records, is_unit: bool) -> Option<u64> {
        self.service.log_records(records, is_unit)
    }

    fn change_libraries(
        &self,
        records: &mut Records,
        change: &mut dyn FnMut(&dyn Scripts, LogChange<'_>) -> Result<(), CommandError>,
    ) -> Result<Option<u64>, CommandError> {
        // Serialize changes of function libraries, so that their log records are in order.
        let _one_by_one = self.service.changing_libraries.lock();
        let mut position = None;
        change(&self.service.scripts, &mut || {
            position = self.service.log_records(records, false);
            position
        })?;
        Ok(position)
    }

    fn shard_count(&self) -> usize {
        self.service.shards.len()
    }

    fn scripts(&self) -> &dyn Scripts {
        &self.service.scripts
    }
}
