//! Background work: each shard's worker, the sweeps of shards, samples of figures, timeouts of clients.

mod clients;
mod sweep;

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;

use tokio::sync::watch;

use super::defrag::Defragging;
use super::memory_limit;
use super::runtime::{Runtimes, Spawner};
use super::saving::SaveCoordinator;
use crate::persist::aof::Aof;
use crate::replication::confirmation::Confirmations;
use crate::script::{self, stack};
use crate::shard::execute::serve_waiters;
use crate::state::Service;
use crate::sys::huge_pages;
use crate::telemetry::clock::{self, Ticks};
use crate::telemetry::memory::{self, Decay, set_decay};
use basalt_commands::command::generic::object::is_lfu;
use basalt_core::alloc::deferred_free;
use clients::{close_idle_clients, collect_idle_buffers, cut_slow_clients};
use sweep::{Sweeper, hurry};

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

/// Spawns tasks, two per runtime, that wake the runtime's tasks waiting for the disk and for replicas.
pub(super) fn start_relays(
    aof: &Arc<Aof>,
    confirmations: &Arc<Confirmations>,
    runtimes: &Runtimes,
) {
    let handles = runtimes.handles();
    aof.set_relays(handles.len());
    confirmations.gate().set_relays(handles.len());
    for (number, handle) in handles.into_iter().enumerate() {
        handle.spawn(Arc::clone(aof).relay(number));
        let confirmations = Arc::clone(confirmations);
        handle.spawn(async move {
            poll_fn(|cx| confirmations.gate().poll_relay(number, cx)).await;
        });
    }
}

/// Starts the background thread, and one more for each further [`sweep::THREADS_PER_SWEEPER`] threads of the server,
/// which end when the server stops.
pub(super) fn start(
    service: &Arc<Service>,
    spawner: Spawner,
    saving: Arc<SaveCoordinator>,
    stopped: &watch::Receiver<bool>,
) -> Vec<JoinHandle<()>> {
    deferred_free::begin();
    let mut sweepers = sweep::sweepers(service);
    let first = sweepers.next().expect("there is at least one");
    let (shared, stop) = (Arc::clone(service), stopped.clone());
    let background = spawn("basalt-background".to_owned(), move || {
        run(shared, first, spawner, saving, stop)
    });
    let others = sweepers.map(|sweeper| {
        let (shared, stop) = (Arc::clone(service), stopped.clone());
        let name = format!("basalt-sweeper-{}", sweeper.number());
        spawn(name, move || sweeper.run(shared, stop))
    });
    std::iter::once(background).chain(others).collect()
}

/// Starts a thread that does a future's work.
fn spawn<F: Future<Output = ()>>(
    name: String,
    work: impl FnOnce() -> F + Send + 'static,
) -> JoinHandle<()> {
    // The thread locks shards, so it may have to run scripts that are queued for a shard.
    stack::spawn(name, move || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("the system has room for a runtime")
            .block_on(work());
    })
    .expect("the system has room for a background thread")
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
    mut sweeper: Sweeper,
    spawner: Spawner,
    saving: Arc<SaveCoordinator>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut departures = script::departures();
    let mut defragging = Defragging::default();
    let (mut ticked_ms, mut looked_ms, mut measured_ms) = (0, 0, 0);
    let mut balancer = spawner.loops().balancer();
    let mut lacks_huge_pages = !service.config.load().disable_thp;
    loop {
        tokio::select! {
            () = sweeper.rest(&service) => {}
            _ = stopped.changed() => return,
        }
        let began = Ticks::now();
        let budget = &service.budget;
        let now_ms = clock::unix_ms();
        budget.go_on(now_ms, service.pubsub.figures().tracking_clients > 0);
        budget.note_exceeded(now_ms);
        let mut is_behind = sweeper.sweep(&service).await;
        is_behind |= limit_tracked(&service);
        is_behind |= defragging.go_on(&service, &spawner, clock::now());
        sweeper.note(is_behind);
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
            if sweep::take_has_freed() {
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
