//! What all sessions of a server share.

use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::pause::{Pause, Reason};
use crate::acl::Users;
use crate::client::registry::Registry;
use crate::client::under_way::UnderWay;
use crate::command::error::CommandError;
use crate::command::host::Server;
use crate::command::host::cluster::{Cluster, SlotMap};
use crate::command::host::migration::Migration;
use crate::config::Config;
use crate::engine::evict::budget::Budget;
use crate::engine::fences::FenceSource;
use crate::engine::hot_counts::HotCounts;
use crate::engine::published::Published;
use crate::engine::record::{Log, Records};
use crate::engine::{Engine, Now};
use crate::pubsub::PubSub;
use crate::script::offload::OffloadPool;
use crate::shard::QueuedJob;
use crate::shard::Shards;
use crate::shard::execute::serve_waiters;
use crate::shard::job::{Executor, Job};
use crate::shard::ownership::ShardGuard;
use crate::shard::route::Router;
use crate::telemetry::Telemetry;
use crate::telemetry::clock::Ticks;

/// See the module.
pub struct Service {
    /// The shards.
    pub shards: Arc<Shards>,
    /// What they publish.
    pub all_published: Box<[Arc<Published>]>,
    /// The memory that they share.
    pub budget: Arc<Budget>,
    /// How often the hottest keys were used of late, for the shards that have them.
    pub hot_counts: Arc<HotCounts>,
    /// Where the fences of locks come from.
    pub fence_source: Arc<FenceSource>,
    /// Who owns a key.
    pub router: Router,
    /// The configuration as it is now.
    pub config: ArcSwap<Config>,
    /// Held for the moment in which a change of the configuration is put in force. Transactions take it with shards in
    /// hand.
    pub changing_config: Mutex<()>,
    /// All connections.
    pub clients: Registry,
    /// Who is subscribed to what.
    pub pubsub: Arc<PubSub>,
    /// All users, and what they were refused.
    pub users: Users,
    /// What holds commands back.
    pub pause: Pause,
    /// Whether due keys are deleted in the background (DEBUG SET-ACTIVE-EXPIRE).
    pub active_expire: AtomicBool,
    /// Whether periodic work that no client waits for rests (DEBUG PAUSE-CRON).
    pub cron_paused: AtomicBool,
    /// What the server remembers of itself.
    pub telemetry: Telemetry,
    /// Scripts and functions.
    pub scripts: crate::script::library::Library,
    /// Whether scripts may call what is not meant for them (DEBUG SET-DISABLE-DENY-SCRIPTS).
    pub script_calls_unbound: AtomicBool,
    /// Threads for what takes long.
    pub offload: OffloadPool,
    /// What sessions run, and have queued.
    pub under_way: ArcSwap<UnderWay>,
    /// What handlers may ask of the server.
    pub server: std::sync::OnceLock<Arc<dyn Server>>,
    /// The log of commands; set before the first connection, if there is one.
    pub log: std::sync::OnceLock<Arc<dyn Log>>,
    /// Held while libraries of functions change and until that is logged. Transactions take it with shards in hand.
    pub changing_libraries: Mutex<()>,
    /// Who brings the log to the disk; set before the first connection, if there is somebody.
    pub durability: std::sync::OnceLock<Arc<dyn Durability>>,
    /// A snapshot has encoded much that its sink has not taken: commands that may write wait, as they may have to save
    /// what they change.
    pub is_snapshot_behind: AtomicBool,
    /// What TLS handshakes begin with.
    pub tls: crate::tls::contexts::Live,
    /// The cluster that this server is a node of; set before the first connection, if there is one.
    pub cluster: std::sync::OnceLock<Box<dyn Cluster>>,
    /// Whose which slot is, in a cluster; set before the first connection, see [`Service::follow_map`].
    pub slots: std::sync::OnceLock<SlotMap>,
    /// Who carries MIGRATE out.
    pub migrator: std::sync::OnceLock<Box<dyn Migrator>>,
}

/// Brings the log to the disk. Positions are those of [`Log::append`].
pub trait Durability: Send + Sync {
    /// Whether commands that may write should wait before they take shards.
    fn is_crowded(&self) -> bool;
    /// Ready when they need not any more.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()>;
    /// Has commands that wait for room look again.
    fn look_again(&self);
    /// The limit of memory is another one: what may wait follows it.
    fn follow_limit(&self, maxmemory: u64);
    /// What lies in memory until the disk has it, and the log's own room.
    fn held_bytes(&self) -> u64;
    /// Whether replies that know of what is before a position have to wait for the disk.
    fn must_wait(&self, position: u64) -> bool;
    /// Ready when they need not any more.
    fn poll_synced(&self, position: u64, cx: &mut Context<'_>) -> Poll<()>;
}

/// Carries keys to other servers.
pub trait Migrator: Send + Sync {
    /// Begins a migration. Its reply goes into the message, which is given back in the end.
    fn start(&self, migration: Box<Migration>, reply: QueuedJob);
}

impl Service {
    /// Where jobs run.
    pub fn executor(&'static self) -> Executor {
        Executor {
            shards: &self.shards,
            offload: &self.offload,
            router: self.router,
        }
    }

    /// The server; set before the first connection.
    pub fn server(&self) -> &dyn Server {
        &**self
            .server
            .get()
            .expect("the server is set before it listens")
    }

    /// Changes the configuration where nothing but the configuration follows from that.
    pub fn change_config(&self, change: impl FnOnce(&mut Config)) {
        let _one_at_a_time = self.changing_config.lock();
        let mut config = Config::clone(&self.config.load());
        change(&mut config);
        self.config.store(Arc::new(config));
    }

    /// Who brings what is logged to the disk.
    #[inline]
    fn durability(&self) -> Option<&dyn Durability> {
        let durability = self.durability.get().filter(|_| self.pubsub.is_logging());
        durability.map(|durability| &**durability)
    }

    /// Whether commands that may write should wait before they take shards.
    #[inline]
    pub fn must_writers_wait(&self) -> bool {
        self.is_snapshot_behind.load(Relaxed)
            || self.durability().is_some_and(Durability::is_crowded)
    }

    /// Ready when they need not wait any more.
    pub fn poll_writers_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.durability.get() {
            Some(durability) => durability.poll_room(cx),
            None => Poll::Ready(()),
        }
    }

    /// Says whether a snapshot is behind.
    #[cold]
    pub fn set_snapshot_behind(&self, is_behind: bool) {
        self.is_snapshot_behind.store(is_behind, SeqCst);
        if !is_behind && let Some(durability) = self.durability.get() {
            durability.look_again();
        }
    }

    /// Whether replies that know of what is before a position have to wait for the disk.
    #[inline]
    pub fn must_sync(&self, position: u64) -> bool {
        let durability = self.durability();
        durability.is_some_and(|durability| durability.must_wait(position))
    }

    /// Has commands logged. All shards are in hand, or no other thread knows of them yet; whether anything is logged is
    /// what [`Interest::set_listening`] says.
    ///
    /// [`Interest::set_listening`]: crate::engine::effect::Interest::set_listening
    pub fn set_log(&self, log: &Arc<dyn Log>, engines: &mut [&mut Engine]) {
        self.log.get_or_init(|| Arc::clone(log));
        for engine in engines {
            engine.effects.set_log(Arc::clone(log));
        }
    }

    /// Waits until all has ended that began before, so that nothing follows any more which was let in before a pause or
    /// before the server said that it loads; an error, if a script runs for too long to be waited for. Not for threads
    /// that serve connections.
    pub fn await_under_way(&self) -> Result<(), CommandError> {
        const LOOK: Duration = Duration::from_millis(20);
        let (ends, ended) = mpsc::channel::<()>();
        UnderWay::when_over(&self.under_way, move || drop(ends));
        // No thread sends: it ends when the other end is dropped.
        while ended.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
            if let Some(text) = self.scripts.running.busy_text() {
                return Err(text.into());
            }
        }
        Ok(())
    }

    /// Ends a pause, and has the commands that wait for that go on.
    pub fn end_pause(&self, reason: Reason) {
        self.pause.stop(reason);
        self.clients.nudge_all();
    }

    /// Appends what commands leave that belong to no shard; the position behind it.
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

/// How long a thread that is about to add to debts has shards pay before others of its thread go on.
const DEBTS_NS_MAX: u64 = 250_000;

impl Service {
    /// Has all shards pay what they owe, but for those that somebody holds. No shard may be in hand.
    #[cold]
    pub fn settle_debts(&self, now: Now) {
        /// A shard with nothing to give up has others pay, who may have had their turn.
        const ROUNDS: usize = 4;
        for _ in 0..ROUNDS {
            self.budget.assess();
            let mut all = self.all_published.iter();
            if !all.any(|published| published.owes()) {
                return;
            }
            self.ask_all(1, now, u64::MAX);
        }
    }

    /// Has shards pay for a moment, for somebody who is about to add to what they owe, by adding to a database; whether
    /// that is still too much, and can be paid. No shard may be in hand.
    #[cold]
    #[inline(never)]
    pub fn pay_debts(&self, db: usize, now: Now) -> bool {
        self.budget.assess();
        // A shard with nothing to give up asks others, who may have had their turn.
        let has_paid = self.ask_all(2, now, DEBTS_NS_MAX);
        // What was flushed is on its way out, and waited for.
        match has_paid || self.budget.is_freeing() {
            true => self.budget.note_debts(),
            false => self.budget.give_up_debts(),
        }
        self.budget.holds_back(db)
    }

    /// Asks all shards that owe to pay, in some rounds, or until some have paid and so many nanoseconds are over;
    /// whether some have. That none can pay is known only when all were asked.
    fn ask_all(&self, rounds: usize, now: Now, ns_max: u64) -> bool {
        let began = Ticks::now();
        let (first, count) = (self.budget.next_asked(), self.all_published.len());
        let mut has_paid = false;
        for step in 0..rounds * count {
            // Who pays first may leave nothing to pay for the others.
            let shard = first.wrapping_add(step) % count;
            let published = &self.all_published[shard];
            if published.owes()
                && let Some(engine) = self.shards.try_take(shard as u16)
            {
                let before = published.used_bytes();
                self.settle_debt(engine, now);
                has_paid |= published.used_bytes() < before;
            }
            if has_paid && Ticks::now().since_ns(began) > ns_max {
                break;
            }
        }
        has_paid
    }

    fn settle_debt(&self, mut engine: ShardGuard<'_, Engine, Job>, now: Now) {
        let began = Ticks::now();
        engine.evict_slice(now);
        let evicted = Ticks::now();
        serve_waiters(&mut engine, now);
        let freeing = Ticks::now();
        // What was evicted is freed when the shard is let go.
        drop(engine);
        let freed = Ticks::now();
        let config = self.config.load();
        let spent_ns = evicted.since_ns(began);
        self.telemetry
            .note_evict_slice(&config, now.unix_ms, spent_ns);
        let spent_ns = freed.since_ns(freeing);
        self.telemetry
            .note_evicted_freed(&config, now.unix_ms, spent_ns);
    }
}
