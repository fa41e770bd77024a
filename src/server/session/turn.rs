//! A turn: one pass over the requests of a connection's batch. Its state, the shard that it keeps locked, and
//! its time budget.

use std::sync::Arc;

use arc_swap::Guard;

use super::batch::{Batch, Plan, Route};
use super::prefetch::fetch_shard;
use crate::shard::job::Job;
use crate::shard::ownership::ShardGuard;
use crate::state::Service;
use crate::telemetry::clock::Ticks;
use crate::telemetry::counters::{self, ThreadCounters};
use crate::telemetry::slowlog;
use basalt_commands::client::under_way::UnderWay;
use basalt_commands::cluster::route::SlotOf;
use basalt_commands::command::args::RoutedKey;
use basalt_commands::command::host::cluster::{Routes, SlotMap};
use basalt_commands::config::Config;
use basalt_engine::db::TextCopy;
use basalt_engine::slot_usage::Usage;
use basalt_engine::{Engine, Key, Now};

/// Attempts on a locked shard before the command queues: about 150 ns.
const SPINS: u32 = 16;

/// Number of commands ahead whose shard is prefetched: fetching a shard's cache lines from another core takes
/// as long as one or two commands.
const COMMANDS_AHEAD: usize = 2;

/// Minimum duration of a command, in nanoseconds, that counts against the turn's time budget: shorter commands
/// cannot add up to much.
const STEP_NS_NOTED: u64 = 10_000;

/// Nanoseconds for which a pipeline of slow commands may keep other connections of its thread waiting. All messages of
/// a turn are delivered together, and each subscriber is woken once for them: with a quarter of this, publishing to
/// 1,000 subscribers cost three times as much.
const SLOW_NS_PER_TURN: u64 = 2_000_000;

/// Minimum time, in nanoseconds, that a shard was locked for it to be compared with the shard's maximum.
const HOLD_NOTED_NS: u64 = 2_000;

/// A locked shard.
pub(super) type HeldShard = ShardGuard<'static, Engine, Job>;

/// Slot ownership as of the start of the batch.
pub(super) struct TurnRoutes {
    /// The current slot map, which may have changed since.
    pub map: &'static SlotMap,
    /// The routes as of the start of the batch.
    pub then: Guard<Arc<Routes>>,
}

impl TurnRoutes {
    fn load(map: &'static SlotMap) -> TurnRoutes {
        TurnRoutes {
            map,
            then: map.load(),
        }
    }

    /// Returns whether a request for this slot certainly still runs on this node, so that no further checks are
    /// needed. The slot's shard must be locked, or the request have been answered from a copy of the key's value.
    #[inline]
    pub(super) fn are_settled(&self, slot: SlotOf) -> bool {
        self.then.is_plain(slot) && self.map.version() == self.then.version
    }
}

/// The state that a command on one locked shard works on.
pub(super) struct InHand<'h> {
    /// The requests, and their replies.
    pub batch: &'h mut Batch,
    /// The engine of the locked shard.
    pub engine: &'h mut Engine,
    /// Slot ownership as of the start of the batch, in a cluster ([`Turn::routes`]).
    pub routes: Option<&'h TurnRoutes>,
}

/// State of one turn; see the module.
pub(super) struct Turn<'t> {
    /// The requests, and their replies.
    pub batch: &'t mut Batch,
    /// The configuration for the whole turn.
    pub config: &'t Arc<Config>,
    /// The time for the whole turn.
    pub now: Now,
    /// Counters of this thread.
    pub counters: &'static ThreadCounters,
    /// Slot ownership, in a cluster, unless the commands have run before.
    pub routes: Option<TurnRoutes>,
    /// True if there are MONITOR clients.
    pub is_monitored: bool,
    /// True if resource usage is counted per slot.
    pub counts_slots: bool,
    /// True if `is_monitored` or `counts_slots`, so that most commands need only one check.
    pub is_observed: bool,
    /// The slot of the running transaction's keys.
    pub transaction_slot: SlotOf,
    /// Reply size in bytes from which a command may belong in the logs of large requests and replies; 0 if a request
    /// may be large enough, or if all sizes are counted.
    pub large_from_bytes: usize,
    service: &'static Service,
    /// The shard of the last command, kept for the next one.
    held: Option<(u16, HeldShard)>,
    /// When the last command ended.
    before: Ticks,
    /// The shard that the last commands ran on, and (`hold_ns`) their total time in nanoseconds.
    holding: Option<u16>,
    hold_ns: u64,
    /// Total nanoseconds of slow commands so far.
    spent_ns: u64,
    /// Nanoseconds for which the current command ran in earlier turns.
    pub earlier_ns: u64,
    /// The grace period in which the turn began. Tasks that wait for all turns of a period to end are notified
    /// when this turn has released its shards.
    pub under_way: Guard<Arc<UnderWay>>,
}

impl<'t> Turn<'t> {
    pub(super) fn new(
        batch: &'t mut Batch,
        config: &'t Arc<Config>,
        now: Now,
        service: &'static Service,
        has_run_before: bool,
    ) -> Turn<'t> {
        let counters = counters::local();
        service.telemetry.hot_keys.prepare(counters);
        // Replicated, loaded and imported commands run regardless of which node owns their slots now.
        let slots = service.slots.get().filter(|_| !has_run_before);
        if slots.is_some_and(|slots| slots.is_late(now.unix_ms)) {
            service.wake_cluster();
        }
        let counts_slots = slots.is_some() && config.cluster_slot_stats_enabled;
        let is_monitored = service.pubsub.is_monitored();
        Turn {
            // No request is larger than all received bytes, and no bytes are received during a turn.
            large_from_bytes: match batch.received_bytes() >= config.noted_request_bytes {
                true => 0,
                false => slowlog::large_reply_bytes(config),
            },
            batch,
            config,
            now,
            counters,
            routes: slots.map(TurnRoutes::load),
            is_monitored,
            counts_slots,
            is_observed: is_monitored || counts_slots,
            transaction_slot: SlotOf::NONE,
            service,
            held: None,
            before: Ticks::now(),
            holding: None,
            hold_ns: 0,
            spent_ns: 0,
            earlier_ns: 0,
            under_way: service.under_way.load(),
        }
    }

    /// Returns the next plan.
    #[inline]
    pub(super) fn plan(&self) -> Option<Plan> {
        self.batch.plans.get(self.batch.next).copied()
    }

    /// Locks a shard, unless it is locked already; returns `None` if another thread keeps it locked. When it
    /// locks a shard, it also prefetches the cache lines of the shard that a command shortly after this one
    /// will lock.
    #[inline]
    pub(super) fn hold(&mut self, shard: u16) -> Option<InHand<'_>> {
        if self
            .held
            .as_ref()
            .is_none_or(|(number, _)| *number != shard)
        {
            self.release();
            let later = self.batch.plans.get(self.batch.next + COMMANDS_AHEAD);
            if let Some(Route::Shard(later)) = later.map(|plan| plan.route)
                && later != shard
            {
                fetch_shard(self.service, later);
            }
            self.held = Some((shard, self.service.shards.take_spinning(shard, SPINS)?));
        }
        let (_, engine) = self.held.as_mut()?;
        Some(InHand {
            batch: self.batch,
            engine,
            routes: self.routes.as_ref(),
        })
    }

    /// Returns whether a key exists, or `None` if this turn no longer has the key's shard locked.
    pub(super) fn is_there(&self, db: usize, routed: &RoutedKey, key: &Key<'_>) -> Option<bool> {
        let held = self.held.as_ref();
        let (_, engine) = held.filter(|(number, _)| *number == routed.shard)?;
        Some(engine.is_there(db, key, self.now))
    }

    /// Copies the string under the key of a request, unless it is longer than `bytes_max` bytes. Returns `None` also if
    /// this turn no longer has the key's shard locked.
    pub(super) fn copy_text(
        &mut self,
        plan: &Plan,
        db: usize,
        bytes_max: usize,
    ) -> Option<TextCopy> {
        let args = self.batch.args(plan);
        let routed = args.keys().first()?;
        let (_, engine) = (self.held.as_mut()).filter(|(number, _)| *number == routed.shard)?;
        engine.copy_text(db, &args.key_of(routed), bytes_max, self.now)
    }

    /// Counts a request's resource usage for its slot: directly if the shard is still locked, otherwise by a task of
    /// the shard.
    pub(super) fn count_slot(&mut self, slot: u16, usage: Usage) {
        let shard = slot & (self.service.shards.len() as u16 - 1);
        match &mut self.held {
            Some((held, engine)) if *held == shard => engine.count_slot(slot, usage),
            _ => {
                self.release();
                self.service
                    .shards
                    .submit(Job::task(&[shard], move |engines, _| {
                        for engine in engines {
                            engine.count_slot(slot, usage);
                        }
                    }));
            }
        }
    }

    /// Releases the locked shard.
    #[inline]
    pub(super) fn release(&mut self) {
        self.held = None;
    }

    /// Returns the nanoseconds since the last call, that is, since the last command ended.
    #[inline]
    pub(super) fn lap_ns(&mut self) -> u64 {
        let after = Ticks::now();
        after.since_ns(std::mem::replace(&mut self.before, after))
    }

    /// Records how long consecutive commands held a shard locked.
    #[inline]
    pub(super) fn note_hold(&mut self, route: Route, duration_ns: u64) {
        let in_hand = match route {
            Route::Several(first, end) => self.batch.listed_shards(first, end).first().copied(),
            Route::All => Some(0),
            _ => self.held.as_ref().map(|(shard, _)| *shard),
        };
        let hold_ns = if in_hand == self.holding {
            self.hold_ns
        } else {
            0
        };
        self.hold_ns = hold_ns + duration_ns;
        self.holding = in_hand;
        if self.hold_ns > HOLD_NOTED_NS
            && let Some(shard) = in_hand
        {
            self.service.note_hold(shard, self.hold_ns);
        }
    }

    /// Adds a command's run time to the turn. Returns whether the turn has taken so long that it must yield to
    /// other connections of its thread.
    #[inline]
    pub(super) fn is_long(&mut self, duration_ns: u64) -> bool {
        if duration_ns <= STEP_NS_NOTED {
            return false;
        }
        self.spent_ns += duration_ns;
        self.spent_ns > SLOW_NS_PER_TURN && self.batch.next < self.batch.plans.len()
    }
}
