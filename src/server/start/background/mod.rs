//! Background work: each shard's worker, slices of expiry and of freeing, timeouts.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::defrag::Defragging;
use super::memory_limit;
use super::runtime::{Runtimes, Spawner};
use super::saving::SaveCoordinator;
use crate::net::buffer_budget;
use crate::persist::aof::Aof;
use crate::script::{self, stack};
use crate::shard::execute::serve_waiters;
use crate::state::Service;
use crate::sys::huge_pages;
use crate::telemetry::clock::{self, Ticks};
use crate::telemetry::latency::Pass;
use crate::telemetry::memory::{self, Decay, set_decay};
use basalt_commands::client::shared::Peer;
use basalt_commands::client::shared::mailbox::{Mailbox, OutputBound};
use basalt_commands::command::generic::object::is_lfu;
use basalt_core::alloc::deferred_free::{self, DeferredFrees};
use basalt_engine::Now;
use basalt_engine::{Doomed, Engine};

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

/// Maximum number of tracked keys (CLIENT TRACKING) that a shard drops per visit.
const LAPSED_PER_VISIT: usize = 128;

/// Interval in milliseconds at which figures are sampled.
const SAMPLE_MS: u64 = 100;

/// Interval in milliseconds of checks for idle clients and of the server's own memory.
const LOOK_MS: u64 = 1_000;

/// Interval in milliseconds of checks of the server's own memory if the memory limit is enforced exactly.
const EXACT_LOOK_MS: u64 = 10;

/// Bytes of memory in use from which huge pages are enabled. They save a large process many TLB misses, but may
/// take a small process more memory than its data.
const HUGE_PAGES_FROM_BYTES: u64 = 64 * 1024 * 1024;

/// Number of hash table segments that are freed before the background checks the shards again.
const SEGMENTS_PER_SLICE: usize = 16;

/// Bytes returned to the allocator per slice, of allocations that were too large to be freed by the thread that
/// dropped them.
const DEFERRED_BYTES_PER_SLICE: usize = 16 * 1024 * 1024;

/// Wakes the background for work that should not wait for the next tick.
static HURRY: Notify = Notify::const_new();

/// Makes the background check the shards at once.
pub(super) fn hurry() {
    HURRY.notify_one();
}

/// Applies a changed memory limit to the allocator and the shards.
pub(super) fn follow_limit(service: &Service) {
    set_decay(match service.config.load().maxmemory {
        0 => Decay::Slow,
        _ => Decay::Soon,
    });
    hurry();
}

/// Makes shards drop some tracked keys in excess of `tracking-table-max-keys` or of the bytes allowed for them.
/// Returns true if there are still too many. The caller must not hold a shard.
pub(super) fn limit_tracked(service: &Service) -> bool {
    let keys_max = service.config.load().tracking_table_max_keys;
    let tracked = service.pubsub.tracked_count();
    if !tracked.exceeds(keys_max) {
        return false;
    }
    for shard in 0..service.shards.len() as u16 {
        let Some(mut engine) = service.shards.try_take(shard) else {
            continue;
        };
        engine.limit_tracked(keys_max, LAPSED_PER_VISIT);
        serve_waiters(&mut engine, clock::now());
    }
    tracked.exceeds(keys_max)
}

/// Spawns a worker task for each shard, which runs the shard's queue when a thread has run its maximum of
/// queued messages.
pub(super) fn start_workers(service: &Arc<Service>, runtimes: &Runtimes) {
    for shard in 0..service.shards.len() as u16 {
        let shards = Arc::clone(&service.shards);
        runtimes.spawner().spawn(async move {
            loop {
                poll_fn(|cx| shards.poll_worker(shard, cx.waker())).await;
                tokio::task::yield_now().await;
            }
        });
    }
}

/// Spawns the task that delivers the messages that threads left in the queue when they had delivered their
/// maximum number.
pub(super) fn start_delivery(service: &Arc<Service>, runtimes: &Runtimes) {
    let pubsub = Arc::clone(&service.pubsub);
    runtimes.spawner().spawn(async move {
        loop {
            poll_fn(|cx| pubsub.poll_rest(cx)).await;
            tokio::task::yield_now().await;
        }
    });
}

/// Spawns one task per runtime that wakes the runtime's tasks waiting for the disk.
pub(super) fn start_relays(aof: &Arc<Aof>, runtimes: &Runtimes) {
    let handles = runtimes.handles();
    aof.set_relays(handles.len());
    for (number, handle) in handles.into_iter().enumerate() {
        handle.spawn(Arc::clone(aof).relay(number));
    }
}

/// Starts the background thread, which ends when the server stops.
pub(super) fn start(
    service: Arc<Service>,
    spawner: Spawner,
    saving: Arc<SaveCoordinator>,
    stopped: watch::Receiver<bool>,
) -> JoinHandle<()> {
    // This thread locks shards, so it may have to run scripts that are queued for a shard.
    stack::spawn("basalt-background".to_owned(), move || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("the system has room for a runtime")
            .block_on(run(service, spawner, saving, stopped));
    })
    .expect("the system has room for the background thread")
}

/// Allows huge pages once enough memory is used. Returns false while it is too early.
fn allow_huge_pages() -> bool {
    let is_large = memory::used_bytes() >= HUGE_PAGES_FROM_BYTES;
    if is_large && !huge_pages::allow(true) {
        tracing::warn!("This kernel cannot enable huge pages per process");
    }
    is_large
}

async fn run(
    service: Arc<Service>,
    spawner: Spawner,
    saving: Arc<SaveCoordinator>,
    mut stopped: watch::Receiver<bool>,
) {
    deferred_free::begin();
    let mut is_behind = false;
    // Whether the last slice left garbage to free.
    let mut has_freed = false;
    let mut departures = script::departures();
    let mut freeing = GarbageQueue::default();
    let mut expiry = Pass::default();
    let mut defragging = Defragging::default();
    let (mut ticked_ms, mut looked_ms, mut measured_ms) = (0, 0, 0);
    let mut balancer = spawner.loops().balancer();
    let mut lacks_huge_pages = !service.config.load().disable_thp;
    loop {
        let wait = if is_behind {
            BREATH
        } else {
            time_until_due(&service)
        };
        let rests = Ticks::now();
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = HURRY.notified() => {}
            _ = stopped.changed() => return,
        }
        let began = Ticks::now();
        expiry.rested(began.since_ns(rests).min(REST_NS_MAX));
        let was_behind = is_behind;
        is_behind = slices(&service, &mut freeing, &mut expiry).await;
        is_behind |= limit_tracked(&service);
        is_behind |= defragging.go_on(&service, &spawner, clock::now());
        has_freed |= was_behind && !is_behind;
        let now_ms = clock::unix_ms();
        let base_ms = match service.budget.is_exact() {
            true => EXACT_LOOK_MS,
            false => LOOK_MS,
        };
        if service.budget.is_limited() && now_ms.abs_diff(measured_ms) >= base_ms {
            measured_ms = now_ms;
            memory_limit::follow_base(&service);
        }
        if now_ms.abs_diff(ticked_ms) >= SAMPLE_MS {
            ticked_ms = now_ms;
            service.telemetry.tick(now_ms);
            service.telemetry.look_back(&*service, now_ms / 1_000);
            saving.tick();
            if let Some(balancer) = &mut balancer {
                balancer.tick();
            }
            lacks_huge_pages = lacks_huge_pages && !allow_huge_pages();
        }
        if now_ms.abs_diff(looked_ms) >= LOOK_MS {
            looked_ms = now_ms;
            if std::mem::take(&mut has_freed) {
                spawner.empty_caches();
            }
            if std::mem::replace(&mut departures, script::departures()) != departures {
                service.offload.rest_again();
                spawner.rest_again();
                script::rest();
            }
            if is_lfu(service.config.load().maxmemory_policy) {
                let counts = service.telemetry.hot_keys.counts();
                service.hot_counts.replace(counts);
            }
            close_idle_clients(&service);
            cut_slow_clients(&service);
            if !service.cron_paused.load(Relaxed) {
                collect_idle_buffers(&service);
            }
        }
        let spent_ns = Ticks::now().since_ns(began);
        service.telemetry.rounds.note_background(spent_ns);
    }
}

/// Returns the time until some shard has work. The result has a minimum, so that the background does not only
/// check, and a maximum, so that deadlines set meanwhile are met.
fn time_until_due(service: &Service) -> Duration {
    let now_ms = clock::unix_ms();
    if deferred_free::waiting_bytes() > 0 {
        return TICK;
    }
    let due_ms = service
        .all_published
        .iter()
        .map(|published| match published.has_doomed() {
            true => now_ms,
            false => published.next_deadline_ms.get(),
        });
    let left_ms = match service.budget.policy().evicts() && service.budget.is_close() {
        // Check at once: the memory of connections may grow while no command runs that would notice.
        true => 0,
        false => due_ms.min().unwrap_or(u64::MAX).saturating_sub(now_ms),
    };
    Duration::from_millis(left_ms).clamp(TICK, TICK_MAX)
}

/// Runs slices on all shards that have work and are free, until none is left or a tick has passed. Returns true if
/// some are left.
async fn slices(service: &Service, freeing: &mut GarbageQueue, expiry: &mut Pass) -> bool {
    let (started_ms, began) = (clock::unix_ms(), Ticks::now());
    let budget = &service.budget;
    budget.go_on(started_ms, service.pubsub.figures().tracking_clients > 0);
    budget.note_exceeded(started_ms);
    loop {
        let mut round = BackgroundRound::new(service, freeing, expiry);
        // Begin with another shard each time: the first shard that evicts may leave nothing to evict for the
        // others.
        let first = budget.next_asked();
        for step in 0..service.all_published.len() {
            round.visit(first.wrapping_add(step) % service.all_published.len());
        }
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

/// State of one round: one slice on each shard that has work.
struct BackgroundRound<'a> {
    service: &'a Service,
    freeing: &'a mut GarbageQueue,
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

impl<'a> BackgroundRound<'a> {
    fn new(
        service: &'a Service,
        freeing: &'a mut GarbageQueue,
        expiry: &'a mut Pass,
    ) -> BackgroundRound<'a> {
        let now = clock::now();
        BackgroundRound {
            service,
            freeing,
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
        if is_idle && !published.has_doomed() && !self.freeing.owes(shard) {
            return;
        }
        self.only_frees &= !expires && !in_debt;
        let Some(mut engine) = service.shards.try_take(shard as u16) else {
            // Do not count eviction as work left: the thread that has locked the shard evicts for what it
            // inserts.
            self.more |= expires || published.has_doomed() || self.freeing.owes(shard);
            self.more_expires |= expires;
            return;
        };
        let taken = Ticks::now();
        if expires {
            // Take over earlier garbage first, to separate it from keys that expire now.
            self.freeing.visit(shard, &mut engine, false);
            let before = Ticks::now();
            self.more_expires |= engine.expire_slice(now);
            self.note_expiry(before);
            self.freeing.visit(shard, &mut engine, true);
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
        self.freeing.visit(shard, &mut engine, false);
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
        let (before, frees_expired) = (Ticks::now(), self.freeing.frees_expired());
        let more = self.more | self.freeing.free_some() | self.more_expires;
        if frees_expired {
            self.note_expiry(before);
        }
        if !self.more_expires && !self.freeing.has_expired() {
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
    /// Whether the garbage had expired, so that freeing it is part of a pass of expiry.
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

/// Milliseconds for which a connection keeps its buffer after its last request.
const BUFFER_KEPT_MS: u64 = 2_000;

/// Spare buffer capacity below which a connection is not woken.
const BUFFER_ROOM_BYTES_MAX: usize = 8 * 1024;

/// Makes connections return buffers that they have not used recently.
fn collect_idle_buffers(service: &Service) {
    if !buffer_budget::is_any() {
        return;
    }
    let now_ms = clock::unix_ms();
    for client in service.clients.all() {
        let idle_ms = now_ms.saturating_sub(client.active_ms.load(Relaxed));
        let bytes = client.buffer_bytes.load(Relaxed);
        let has_room = bytes > client.query_bytes.load(Relaxed) + BUFFER_ROOM_BYTES_MAX;
        if has_room && idle_ms >= BUFFER_KEPT_MS {
            client.request_buffer();
        }
    }
}

/// Closes clients that have sent nothing for `timeout` seconds.
fn close_idle_clients(service: &Service) {
    close_unauthenticated(service);
    let timeout_s = u64::from(service.config.load().timeout);
    if timeout_s == 0 {
        return;
    }
    let now_ms = clock::unix_ms();
    for client in service.clients.all() {
        let idle_ms = now_ms.saturating_sub(client.active_ms.load(Relaxed));
        // Skip clients that wait for data or messages: they send nothing.
        let is_waiting = client.is_blocked()
            || client.subscriptions() > 0
            || client.is_monitor()
            || client.peer() != Peer::Client;
        if idle_ms > timeout_s * 1_000 && !is_waiting {
            client.kill();
        }
    }
}

/// Closes clients that have not authenticated within `auth-timeout` seconds.
fn close_unauthenticated(service: &Service) {
    let timeout_s = u64::from(service.config.load().auth_timeout);
    if timeout_s == 0 || service.clients.unauthenticated() == 0 {
        return;
    }
    let now_ms = clock::unix_ms();
    let mut closed = 0;
    for client in service.clients.all() {
        let age_ms = now_ms.saturating_sub(client.created_ms);
        if client.is_unauthenticated() && age_ms > timeout_s * 1_000 {
            service.clients.kill(&client);
            closed += 1;
        }
    }
    if closed > 0 {
        let counter = &service.clients.unauthenticated_closed;
        counter.fetch_add(closed as u64, Relaxed);
        super::accept::note_closed(closed);
    }
}

/// Enforces the soft limits of `client-output-buffer-limit`: closes clients that have exceeded the soft limit
/// for too long.
fn cut_slow_clients(service: &Service) {
    let now_ms = clock::unix_ms();
    let limit = service.config.load().client_output_buffer_limit.normal;
    let normal = OutputBound {
        hard_bytes: limit.hard_bytes,
        soft_bytes: limit.soft_bytes,
        soft_ms: limit.soft_seconds.saturating_mul(1_000),
    };
    let clients = service.clients.all().into_iter();
    // The output of replicas is checked by their senders.
    for client in clients.filter(|client| client.peer() == Peer::Client) {
        let unsent = client.output_bytes.load(Relaxed);
        let waiting = client.mailbox().map_or(0, Mailbox::bytes);
        if unsent + waiting > 0 {
            let bound = match client.subscriptions() + waiting {
                // Without subscriptions, the output consists of the client's own replies, to which the limit
                // for Pub/Sub does not apply.
                0 => normal,
                _ => service.pubsub.bound_of(&client),
            };
            client.check_output(bound, now_ms);
        }
    }
}
