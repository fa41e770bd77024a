//! The state that all threads of a server share: shards, clients, users, configuration, and the services set before the
//! first connection.
//!
//! ```text
//! this file   the state itself, and changes that involve several parts of it
//! debts       memory over the limit, paid before more is added
//! durability  writing the log to disk, and waiting for it
//! leasing     users and connections, as needed by leases
//! migration   MIGRATE, as requested by sessions
//! pause       CLIENT PAUSE, and keys being migrated to another server
//! ```

mod debts;
pub mod durability;
pub mod leasing;
pub mod migration;
pub mod pause;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::script::offload::OffloadPool;
use crate::shard::Shards;
use crate::shard::job::Executor;
use crate::shard::route::Router;
use crate::telemetry::Telemetry;
use crate::telemetry::holds::LONG_HOLD_NS;
use basalt_commands::acl::Users;
use basalt_commands::client::registry::Registry;
use basalt_commands::client::under_way::UnderWay;
use basalt_commands::command::error::CommandError;
use basalt_commands::command::host::Server;
use basalt_commands::command::host::cluster::{Cluster, SlotMap};
use basalt_commands::config::Config;
use basalt_commands::pubsub::PubSub;
use basalt_engine::Engine;
use basalt_engine::evict::budget::Budget;
use basalt_engine::fences::FenceSource;
use basalt_engine::hot_counts::HotCounts;
use basalt_engine::published::Published;
use basalt_engine::record::{Log, Records};
use durability::{Durability, ReplyHolds};
use migration::Migrator;
use pause::{Pause, Reason};

/// The shared state of a server; see the module.
pub struct Service {
    /// The shards.
    pub shards: Arc<Shards>,
    /// Statistics that the shards publish.
    pub all_published: Box<[Arc<Published>]>,
    /// The memory budget shared by the shards.
    pub budget: Arc<Budget>,
    /// Recent access counts of the hottest keys, read by the shards of these keys.
    pub hot_counts: Arc<HotCounts>,
    /// Source of fencing tokens.
    pub fence_source: Arc<FenceSource>,
    /// Maps a key to its shard.
    pub router: Router,
    /// The current configuration.
    pub config: ArcSwap<Config>,
    /// Locked while a configuration change is put in force. Transactions lock it while they have shards locked.
    pub changing_config: Mutex<()>,
    /// All connections.
    pub clients: Arc<Registry>,
    /// Subscriptions and their subscribers.
    pub pubsub: Arc<PubSub>,
    /// All users, with their counts of denials.
    pub users: Users,
    /// Pauses of commands, and keys that are being migrated.
    pub pause: Pause,
    /// Whether due keys are deleted in the background (DEBUG SET-ACTIVE-EXPIRE).
    pub active_expire: AtomicBool,
    /// Whether periodic work that no client waits for is paused (DEBUG PAUSE-CRON).
    pub cron_paused: AtomicBool,
    /// Statistics and logs of the server.
    pub telemetry: Telemetry,
    /// Scripts and functions.
    pub scripts: crate::script::library::Library,
    /// Whether scripts may call commands that are otherwise denied to them (DEBUG SET-DISABLE-DENY-SCRIPTS).
    pub script_calls_unbound: AtomicBool,
    /// Threads for long-running work.
    pub offload: OffloadPool,
    /// Commands in flight: running and queued by sessions.
    pub under_way: ArcSwap<UnderWay>,
    /// The server as command handlers see it.
    pub server: std::sync::OnceLock<Arc<dyn Server>>,
    /// The log of commands; set before the first connection, if there is one.
    pub log: std::sync::OnceLock<Arc<dyn Log>>,
    /// Locked while function libraries change, until the change is logged. Transactions lock it while they have
    /// shards locked.
    pub changing_libraries: Mutex<()>,
    /// Writes the log to disk; set before the first connection, if the server has an append-only file.
    pub durability: std::sync::OnceLock<Arc<dyn Durability>>,
    /// Reasons for which replies may have to wait before they are sent.
    pub reply_holds: ReplyHolds,
    /// Whether a snapshot has encoded much that its sink has not accepted: write commands then wait, because
    /// they may have to encode the entries that they change first.
    pub is_snapshot_behind: AtomicBool,
    /// The current TLS certificates and settings, used by new handshakes.
    pub tls: crate::tls::contexts::Live,
    /// The cluster that this server is a node of; set before the first connection, if there is one.
    pub cluster: std::sync::OnceLock<Box<dyn Cluster>>,
    /// Slot ownership in a cluster; set before the first connection, see [`Service::follow_map`].
    pub slots: std::sync::OnceLock<SlotMap>,
    /// Executes MIGRATE.
    pub migrator: std::sync::OnceLock<Box<dyn Migrator>>,
}

impl Service {
    /// Returns an executor of jobs on the shards.
    pub fn executor(&'static self) -> Executor {
        Executor {
            shards: &self.shards,
            offload: &self.offload,
            router: self.router,
        }
    }

    /// Records how long this thread has kept a shard locked.
    #[inline]
    pub fn note_hold(&self, shard: u16, hold_ns: u64) {
        if self.shards.note_hold_ns(shard, hold_ns) && hold_ns >= LONG_HOLD_NS {
            self.telemetry.holds.note(hold_ns);
        }
    }

    /// Returns the server; set before the first connection.
    pub fn server(&self) -> &dyn Server {
        &**self
            .server
            .get()
            .expect("the server is set before it listens")
    }

    /// Changes the configuration where no other state depends on the change.
    pub fn change_config(&self, change: impl FnOnce(&mut Config)) {
        let _one_at_a_time = self.changing_config.lock();
        let mut config = Config::clone(&self.config.load());
        change(&mut config);
        self.config.store(Arc::new(config));
    }

    /// Sets the log of commands. The caller must have all shards locked, or be the only thread that knows of
    /// them. [`Interest::set_listening`] sets whether anything is logged.
    ///
    /// [`Interest::set_listening`]: basalt_engine::effect::Interest::set_listening
    pub fn set_log(&self, log: &Arc<dyn Log>, engines: &mut [&mut Engine]) {
        self.log.get_or_init(|| Arc::clone(log));
        for engine in engines {
            engine.effects.set_log(Arc::clone(log));
        }
    }

    /// Waits for all commands in flight to end, so that none follows that was admitted before a pause or before
    /// the server announced loading. Errors if a script exceeds its time limit. Do not call on threads that
    /// serve connections.
    pub fn await_under_way(&self) -> Result<(), CommandError> {
        const LOOK: Duration = Duration::from_millis(20);
        let (ends, ended) = mpsc::channel::<()>();
        UnderWay::when_over(&self.under_way, move || drop(ends));
        // The channel is never sent to: the loop ends when the other end is dropped.
        while ended.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
            if let Some(text) = self.scripts.running.busy_text() {
                return Err(text.into());
            }
        }
        Ok(())
    }

    /// Ends a pause and wakes the commands waiting for it.
    pub fn end_pause(&self, reason: Reason) {
        self.pause.stop(reason);
        self.clients.nudge_all();
    }

    /// Appends records that belong to no shard. Returns the log position after them.
    pub fn log_records(&self, records: &mut Records, is_unit: bool) -> Option<u64> {
        if records.is_empty() {
            return None;
        }
        let is_atomic = is_unit && records.len() > 1;
        let position = self.log.get().map(|log| log.append(records, is_atomic));
        records.clear();
        position
    }
}
