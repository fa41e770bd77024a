//! Sweeps of the shards: threads that serve no connection expire and evict keys, free garbage and keep the order of
//! eviction, in slices.
//!
//! One thread sweeps some three million expired keys a second, which is what sixteen threads may insert; so there are
//! more of them on a server with more threads, each with shards of its own.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::shard::execute::serve_waiters;
use crate::state::Service;
use crate::telemetry::clock::{self, Ticks};
use crate::telemetry::latency::Pass;
use basalt_core::alloc::deferred_free::{self, DeferredFrees};
use basalt_engine::Now;
use basalt_engine::{Doomed, Engine};

/// Number of the server's threads for each sweeper.
pub(super) const THREADS_PER_SWEEPER: usize = 16;

/// Interval of shard checks while some key has a deadline; far below the maximum delay of expiry that is
/// promised.
const TICK: Duration = Duration::from_millis(10);

/// Nanoseconds of uninterrupted work while only memory is being freed: no client waits for that, and clients
/// need the core.
const FREEING_NS: u64 = 2_000_000;

/// Pause after a tick's worth of slices while work is left, so that other threads get the core.
const BREATH: Duration = Duration::from_millis(1);

/// Maximum nanoseconds of a pause that count as part of a pass of expiry; the timer's resolution is a
/// millisecond.
const REST_NS_MAX: u64 = 2_000_000;

/// Maximum interval between shard checks.
const TICK_MAX: Duration = Duration::from_millis(50);

/// Number of hash table segments that are freed before the background checks the shards again.
const SEGMENTS_PER_SLICE: usize = 16;

/// Bytes returned to the allocator per slice, of allocations that were too large to be freed by the thread that
/// dropped them.
const DEFERRED_BYTES_PER_SLICE: usize = 16 * 1024 * 1024;

/// Wakes the sweepers for work that should not wait for the next tick.
static HURRY: Notify = Notify::const_new();

/// True if a sweeper has finished work since the threads' caches of freed memory were last emptied.
static HAS_FREED: AtomicBool = AtomicBool::new(false);

/// Makes the sweepers check the shards at once.
pub(super) fn hurry() {
    HURRY.notify_waiters();
    // One that is not waiting does not miss the call.
    HURRY.notify_one();
}

/// Returns true if a sweeper has finished work since the last call.
pub(super) fn take_has_freed() -> bool {
    HAS_FREED.swap(false, Relaxed)
}

/// Returns the sweepers that share the server's shards, at least one.
pub(super) fn sweepers(service: &Service) -> impl Iterator<Item = Sweeper> + use<> {
    let threads = service.telemetry.thread_count;
    let count = (threads / THREADS_PER_SWEEPER).clamp(1, service.all_published.len());
    (0..count).map(move |number| Sweeper {
        number,
        count,
        is_behind: false,
        garbage: GarbageQueue::default(),
        expiry: Pass::default(),
    })
}

/// One of `count` sweepers: it sweeps each shard whose number has the remainder `number` when divided by `count`.
pub(super) struct Sweeper {
    number: usize,
    count: usize,
    /// True if the last sweep left work.
    is_behind: bool,
    garbage: GarbageQueue,
    expiry: Pass,
}

impl Sweeper {
    /// Returns the sweeper's number, from 0.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Sweeps until the server stops.
    pub(super) async fn run(mut self, service: Arc<Service>, mut stopped: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = self.rest(&service) => {}
                _ = stopped.changed() => return,
            }
            let is_behind = self.sweep(&service).await;
            self.note(is_behind);
        }
    }

    /// Waits until some shard may have work.
    pub(super) async fn rest(&mut self, service: &Service) {
        let wait = match self.is_behind {
            true => BREATH,
            false => self.time_until_due(service),
        };
        let began = Ticks::now();
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = HURRY.notified() => {}
        }
        let rested_ns = Ticks::now().since_ns(began);
        self.expiry.rested(rested_ns.min(REST_NS_MAX));
    }

    /// Records whether work is left after a sweep.
    pub(super) fn note(&mut self, is_behind: bool) {
        if std::mem::replace(&mut self.is_behind, is_behind) && !is_behind {
            HAS_FREED.store(true, Relaxed);
        }
    }

    /// Returns the sweeper's shards, beginning with the shard after which an earlier sweep began.
    fn shards(&self, first: usize, len: usize) -> impl Iterator<Item = usize> + use<> {
        let (number, count) = (self.number, self.count);
        let own = (len - number).div_ceil(count);
        (0..own).map(move |step| number + (first.wrapping_add(step) % own) * count)
    }

    /// Returns the time until some shard has work. The result has a minimum, so that a sweeper does not only
    /// check, and a maximum, so that deadlines set meanwhile are met.
    fn time_until_due(&self, service: &Service) -> Duration {
        let now_ms = clock::unix_ms();
        if deferred_free::waiting_bytes() > 0 {
            return TICK;
        }
        let all = &service.all_published;
        let due_ms = self.shards(0, all.len()).map(|shard| {
            let published = &all[shard];
            match published.has_doomed() {
                true => now_ms,
                false => published.next_deadline_ms.get(),
            }
        });
        let left_ms = match service.budget.policy().evicts() && service.budget.is_close() {
            // Check at once: the memory of connections may grow while no command runs that would notice.
            true => 0,
            false => due_ms.min().unwrap_or(u64::MAX).saturating_sub(now_ms),
        };
        Duration::from_millis(left_ms).clamp(TICK, TICK_MAX)
    }

    /// Runs slices on all of the sweeper's shards that have work and are free, until none is left or a tick has passed.
    /// Returns true if some are left.
    pub(super) async fn sweep(&mut self, service: &Service) -> bool {
        let (started_ms, began) = (clock::unix_ms(), Ticks::now());
        loop {
            // Begin with another shard each time: the first shard that evicts may leave nothing to evict for the
            // others.
            let shards = self.shards(service.budget.next_asked(), service.all_published.len());
            let mut round = SweepRound::new(service, &mut self.garbage, &mut self.expiry);
            shards.for_each(|shard| round.visit(shard));
            let only_frees = round.only_frees;
            let more = round.end();
            let is_over = match only_frees {
                true => Ticks::now().since_ns(began) > FREEING_NS,
                false => clock::unix_ms() > started_ms + TICK.as_millis() as u64,
            };
            if !more || is_over {
                return more;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// State of one round: one slice on each shard that has work.
struct SweepRound<'a> {
    service: &'a Service,
    garbage: &'a mut GarbageQueue,
    expiry: &'a mut Pass,
    now: Now,
    may_expire: bool,
    /// Whether some work is left.
    more: bool,
    /// Whether some expired keys are left to delete.
    more_expires: bool,
    /// True unless a shard had keys to expire or to evict.
    only_frees: bool,
}

impl<'a> SweepRound<'a> {
    fn new(
        service: &'a Service,
        garbage: &'a mut GarbageQueue,
        expiry: &'a mut Pass,
    ) -> SweepRound<'a> {
        let now = clock::now();
        SweepRound {
            service,
            garbage,
            expiry,
            now,
            may_expire: service.active_expire.load(Relaxed)
                && !service.pause.rest.stops(now.unix_ms),
            more: false,
            more_expires: false,
            only_frees: true,
        }
    }

    /// Records the time spent on expired keys since `since`.
    fn note_expiry(&mut self, since: Ticks) {
        let spent_ns = Ticks::now().since_ns(since);
        let config = self.service.config.load();
        let telemetry = &self.service.telemetry;
        telemetry.note_expire_slice(&config, self.expiry, clock::unix_ms(), spent_ns);
    }

    /// Runs a slice on a shard if it has work and is free.
    fn visit(&mut self, shard: usize) {
        let (service, now) = (self.service, self.now);
        let (budget, published) = (&service.budget, &service.all_published[shard]);
        let expires = self.may_expire && published.next_deadline_ms.get() <= now.unix_ms;
        let in_debt = budget.limits_anything() && published.owes();
        let is_idle_order = !budget.limits_anything() && published.is_ordered();
        let must_switch = published.has_curve_to_switch();
        let is_idle = !expires && !in_debt && !is_idle_order && !must_switch;
        if is_idle && !published.has_doomed() && !self.garbage.owes(shard) {
            return;
        }
        self.only_frees &= !expires && !in_debt;
        let Some(mut engine) = service.shards.try_take(shard as u16) else {
            // Do not count eviction as work left: the thread that has locked the shard evicts for what it
            // inserts.
            self.more |= expires || published.has_doomed() || self.garbage.owes(shard);
            self.more_expires |= expires;
            return;
        };
        let taken = Ticks::now();
        if expires {
            // Take over earlier garbage first, to separate it from keys that expire now.
            self.garbage.visit(shard, &mut engine, false);
            let before = Ticks::now();
            self.more_expires |= engine.expire_slice(now);
            self.note_expiry(before);
            self.garbage.visit(shard, &mut engine, true);
        }
        if is_idle_order {
            engine.keep_order();
        }
        if in_debt {
            let before = Ticks::now();
            self.more |= engine.evict_slice(now);
            let spent_ns = Ticks::now().since_ns(before);
            let telemetry = &service.telemetry;
            telemetry.note_evict_slice(&service.config.load(), now.unix_ms, spent_ns);
        }
        engine.toggle_miss_ratio_curve(now);
        self.garbage.visit(shard, &mut engine, false);
        serve_waiters(&mut engine, now);
        let held_ns = Ticks::now().since_ns(taken);
        service.note_hold(shard as u16, held_ns);
        let before = Ticks::now();
        // Dropped values are freed when the shard is released.
        drop(engine);
        if expires {
            self.note_expiry(before);
        }
        if in_debt {
            let spent_ns = Ticks::now().since_ns(before);
            let telemetry = &service.telemetry;
            telemetry.note_evicted_freed(&service.config.load(), now.unix_ms, spent_ns);
        }
    }

    /// Frees some of the garbage. Returns true if work is left.
    fn end(mut self) -> bool {
        let (before, frees_expired) = (Ticks::now(), self.garbage.frees_expired());
        let more = self.more | self.garbage.free_some() | self.more_expires;
        if frees_expired {
            self.note_expiry(before);
        }
        if !self.more_expires && !self.garbage.has_expired() {
            self.expiry.end();
        }
        more
    }
}

/// Garbage, flushed databases and huge values, whose memory is being returned to the allocator.
#[derive(Default)]
struct GarbageQueue {
    doomed: Vec<ShardGarbage>,
    freed: Vec<ShardGarbage>,
    deferred: DeferredFrees,
}

struct ShardGarbage {
    /// The shard to whose memory the garbage is still charged.
    shard: usize,
    doomed: Doomed,
    /// Whether the garbage had expired, so that garbage it is part of a pass of expiry.
    has_expired: bool,
}

impl GarbageQueue {
    /// Whether garbage of a shard was freed that must be subtracted from the shard's memory.
    fn owes(&self, shard: usize) -> bool {
        self.freed.iter().any(|given| given.shard == shard)
    }

    /// Takes over the garbage of a locked shard, and subtracts freed garbage from the shard's memory.
    fn visit(&mut self, shard: usize, engine: &mut Engine, has_expired: bool) {
        if engine.published().has_doomed() {
            self.doomed.push(ShardGarbage {
                shard,
                doomed: engine.take_doomed(),
                has_expired,
            });
        }
        self.freed.retain_mut(|given| {
            if given.shard == shard {
                engine.settle(&mut given.doomed);
            }
            given.shard != shard
        });
    }

    /// Frees some garbage; no shard is locked. Returns true while garbage is left.
    fn free_some(&mut self) -> bool {
        if let Some(given) = self.doomed.last_mut()
            && !given.doomed.free_some(SEGMENTS_PER_SLICE)
        {
            self.freed.extend(self.doomed.pop());
        }
        let more = self.deferred.free_some(DEFERRED_BYTES_PER_SLICE);
        more || !self.doomed.is_empty() || !self.freed.is_empty()
    }

    /// Whether the garbage that is freed next had expired.
    fn frees_expired(&self) -> bool {
        self.doomed.last().is_some_and(|given| given.has_expired)
    }

    /// Whether any garbage left had expired.
    fn has_expired(&self) -> bool {
        self.doomed.iter().any(|given| given.has_expired)
    }
}
