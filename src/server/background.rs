//! What goes on beside the commands: each shard's worker, the slices of expiry and of freeing, timeouts, signals.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::runtime::Runtimes;
use crate::session::service::Service;
use crate::telemetry::clock::{self, Ticks};

/// How often shards are looked at while some key has a deadline: far below the lag that is promised.
const TICK: Duration = Duration::from_millis(10);

/// Pause between two ticks' worth of slices while work is left: others get the core, but the work goes on.
const BREATH: Duration = Duration::from_millis(1);

/// Ticks between the looks when nothing has a deadline, and between the slower duties.
const SLOW_TICKS: u32 = 10;

/// Segments freed while a token is held once.
const SEGMENTS_PER_SLICE: usize = 16;

/// Spawns a worker task for each shard: it takes over when a holder met more than its bound.
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

/// Starts the background thread; it ends when the server stops.
pub(super) fn start(service: Arc<Service>, stopped: watch::Receiver<bool>) -> JoinHandle<()> {
    std::thread::Builder::new()
        .name("basalt-background".to_owned())
        .spawn(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("the system has room for a runtime")
                .block_on(run(service, stopped));
        })
        .expect("the system has room for the background thread")
}

async fn run(service: Arc<Service>, mut stopped: watch::Receiver<bool>) {
    let mut count = 0u32;
    let mut is_behind = false;
    loop {
        let idle = service
            .boards
            .iter()
            .all(|board| board.next_deadline_ms.get() == u64::MAX && !board.has_doomed());
        let wait = match (is_behind, idle) {
            (true, _) => BREATH,
            (false, true) => TICK * SLOW_TICKS,
            (false, false) => TICK,
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = stopped.changed() => return,
        }
        let step = if idle { SLOW_TICKS } else { 1 };
        count = count.wrapping_add(step);
        is_behind = slices(&service).await;
        if count % SLOW_TICKS < step {
            service.telemetry.tick(clock::unix_ms());
        }
        if count % (10 * SLOW_TICKS) < SLOW_TICKS {
            close_idle_clients(&service);
        }
    }
}

/// Runs slices on all shards that have work, taking only those that are free, until none is left or a tick passed;
/// true when some are left.
async fn slices(service: &Service) -> bool {
    let started_ms = clock::unix_ms();
    loop {
        let now = clock::now();
        let mut more = false;
        for (shard, board) in service.boards.iter().enumerate() {
            let due = board.next_deadline_ms.get() <= now.unix_ms;
            if !due && !board.has_doomed() {
                continue;
            }
            let Some(mut engine) = service.shards.try_take(shard as u16) else {
                more = true;
                continue;
            };
            let taken = Ticks::now();
            if due && service.active_expire.load(Relaxed) {
                more |= engine.expire_slice(now);
                let spent_ns = Ticks::now().since_ns(taken);
                service
                    .telemetry
                    .note_expire_slice(&service.config.load(), now.unix_ms, spent_ns);
            }
            if board.has_doomed() {
                more |= engine.free_slice(SEGMENTS_PER_SLICE);
            }
            let trash = std::mem::take(&mut engine.trash);
            service
                .shards
                .note_hold_ns(shard as u16, Ticks::now().since_ns(taken));
            drop(engine);
            drop(trash);
        }
        if !more || clock::unix_ms() > started_ms + TICK.as_millis() as u64 {
            return more;
        }
        tokio::task::yield_now().await;
    }
}

/// `timeout`: closes clients that sent nothing for so long.
fn close_idle_clients(service: &Service) {
    let timeout_s = u64::from(service.config.load().timeout);
    if timeout_s == 0 {
        return;
    }
    let now_ms = clock::unix_ms();
    for client in service.clients.all() {
        let idle_ms = now_ms.saturating_sub(client.active_ms.load(Relaxed));
        if idle_ms > timeout_s * 1_000 && !client.is_blocked() {
            client.kill();
        }
    }
}

/// Ends when SIGTERM or SIGINT comes, or a client asks for a shutdown.
pub(super) async fn until_stopped(stop: watch::Sender<bool>, mut stopped: watch::Receiver<bool>) {
    let mut terminate = signal(SignalKind::terminate()).expect("SIGTERM can be listened for");
    let mut interrupt = signal(SignalKind::interrupt()).expect("SIGINT can be listened for");
    tokio::select! {
        _ = terminate.recv() => tracing::warn!("Received SIGTERM scheduling shutdown..."),
        _ = interrupt.recv() => tracing::warn!("Received SIGINT scheduling shutdown..."),
        _ = stopped.wait_for(|stopped| *stopped) => tracing::warn!("User requested shutdown..."),
    }
    let _ = stop.send(true);
}
