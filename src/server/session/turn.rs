//! One go over the requests of a batch: what it works on, the shard that it has in hand, and the time that it takes.

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
use basalt_engine::slot_usage::Usage;
use basalt_engine::{Engine, Key, Now};

/// Looks at a held shard before the command queues: about 150 ns.
const SPINS: u32 = 16;

/// A shard's lines take as long from another core as one or two commands.
const COMMANDS_AHEAD: usize = 2;

/// Nanoseconds of a command that are worth counting against the turn: a turn has not that many commands.
const STEP_NS_NOTED: u64 = 10_000;

/// Nanoseconds for which a pipeline of slow commands keeps others of its thread waiting. What a turn publishes is
/// delivered together, and each subscriber woken once for it: with a quarter of this, publishing to 1,000 subscribers
/// cost three times as much.
const SLOW_NS_PER_TURN: u64 = 2_000_000;

/// Nanoseconds of a hold that are worth comparing with the longest of its shard.
const HOLD_NOTED_NS: u64 = 2_000;

/// A shard in hand.
pub(super) type HeldShard = ShardGuard<'static, Engine, Job>;

/// Whose which slot is, by the map of the moment when a turn began.
pub(super) struct TurnRoutes {
    /// The maps of all times.
    pub map: &'static SlotMap,
    /// The one of that moment.
    pub then: Guard<Arc<Routes>>,
}

impl TurnRoutes {
    fn load(map: &'static SlotMap) -> TurnRoutes {
        TurnRoutes {
            map,
            then: map.load(),
        }
    }

    /// Whether a request for this slot still runs here without further questions. Its shard is in hand.
    #[inline]
    pub(super) fn are_settled(&self, slot: SlotOf) -> bool {
        self.then.is_plain(slot) && self.map.version() == self.then.version
    }
}

/// What a command on one shard works on.
pub(super) struct InHand<'h> {
    /// The requests, and their replies.
    pub batch: &'h mut Batch,
    /// The shard.
    pub engine: &'h mut Engine,
    /// As [`Turn::routes`].
    pub routes: Option<&'h TurnRoutes>,
}

/// See the module.
pub(super) struct Turn<'t> {
    /// The requests, and their replies.
    pub batch: &'t mut Batch,
    /// The configuration for all of them.
    pub config: &'t Arc<Config>,
    /// The moment for all of them.
    pub now: Now,
    /// What this thread counts.
    pub counters: &'static ThreadCounters,
    /// Whose which slot is, in a cluster, for all of them, if that matters to them.
    pub routes: Option<TurnRoutes>,
    /// Whether there are monitors.
    pub is_monitored: bool,
    /// Whether what requests take is counted for the slots of their keys.
    pub counts_slots: bool,
    /// Either of these: one look for most commands.
    pub is_observed: bool,
    /// The slot of the keys of the transaction that runs.
    pub transaction_slot: SlotOf,
    /// A command with so many bytes of reply may belong into the logs of large requests and replies: each command,
    /// where a request may be large enough.
    pub large_from_bytes: usize,
    service: &'static Service,
    /// The shard of the last command, kept for the next one.
    held: Option<(u16, HeldShard)>,
    /// When the last command ended.
    before: Ticks,
    /// The shard that the last commands ran on, and for how long.
    holding: Option<u16>,
    hold_ns: u64,
    /// Nanoseconds of slow commands so far.
    spent_ns: u64,
    /// Nanoseconds that the command under way ran in earlier turns.
    pub earlier_ns: u64,
    /// The period in which it began: who waits for its end learns of that when no shard is in hand any more.
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
        // What a primary or a file has, and slots on their way to here, is run whatever node has the slots by now.
        let slots = service.slots.get().filter(|_| !has_run_before);
        if slots.is_some_and(|slots| slots.is_late(now.unix_ms)) {
            service.wake_cluster();
        }
        let counts_slots = slots.is_some() && config.cluster_slot_stats_enabled;
        let is_monitored = service.pubsub.is_monitored();
        Turn {
            // No request has more bytes than all that have come together, which a turn does not change.
            large_from_bytes: match slowlog::is_large_request(config, batch.received_bytes()) {
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

    /// The next plan.
    #[inline]
    pub(super) fn plan(&self) -> Option<Plan> {
        self.batch.plans.get(self.batch.next).copied()
    }

    /// Takes a shard, unless it is in hand already; none if it stays held by others. What a command a little later
    /// writes of its shard is on its way meanwhile.
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

    /// Whether a key is there, if its shard is in hand still.
    pub(super) fn is_there(&self, db: usize, routed: &RoutedKey, key: &Key<'_>) -> Option<bool> {
        let held = self.held.as_ref();
        let (_, engine) = held.filter(|(number, _)| *number == routed.shard)?;
        Some(engine.is_there(db, key, self.now))
    }

    /// Counts what a request took for the slot of its keys: here if its shard is in hand still, else as a task of the
    /// shard's.
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

    /// Lets go of the shard in hand.
    #[inline]
    pub(super) fn release(&mut self) {
        self.held = None;
    }

    /// Nanoseconds since the last command ended.
    #[inline]
    pub(super) fn lap_ns(&mut self) -> u64 {
        let after = Ticks::now();
        after.since_ns(std::mem::replace(&mut self.before, after))
    }

    /// Notes for how long a shard was held by commands that ran one after the other.
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

    /// Whether the turn has taken so long that others of its thread go first.
    #[inline]
    pub(super) fn is_long(&mut self, duration_ns: u64) -> bool {
        if duration_ns <= STEP_NS_NOTED {
            return false;
        }
        self.spent_ns += duration_ns;
        self.spent_ns > SLOW_NS_PER_TURN && self.batch.next < self.batch.plans.len()
    }
}
