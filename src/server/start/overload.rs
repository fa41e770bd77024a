//! Sends the probes that measure how long requests wait (`overload-p99`), and tells admission when it is too long.

use std::time::Duration;

use super::runtime::Runtimes;
use crate::net::event_loops::{EventLoop, EventLoops};
use crate::shard::job::Job;
use crate::state::Service;
use crate::telemetry::gate::GateReason;
use crate::telemetry::overload::PERIOD_MS;

/// Time between two probes to a thread.
const PROBE_MS: u64 = 5;

/// Time after which the configuration is read again while nothing is measured.
const REST: Duration = Duration::from_secs(1);

/// Starts to watch for overload.
pub(super) fn begin(service: &'static Service, runtimes: &Runtimes) {
    let loops = runtimes.spawner().loops();
    runtimes.main().spawn(watch(service, loops));
}

async fn watch(service: &'static Service, loops: EventLoops) {
    let overload = &service.telemetry.overload;
    let gate = &service.telemetry.persistence.loading.gate;
    let shard_count = service.shards.len() as u64;
    loop {
        let limit_ms = u64::from(service.config.load().overload_p99);
        if limit_ms == 0 {
            gate.set(GateReason::Overload, false);
            overload.end();
            tokio::time::sleep(REST).await;
            continue;
        }
        for _ in 0..PERIOD_MS / PROBE_MS {
            for event_loop in loops.all() {
                let number = overload.send_probe();
                probe(service, event_loop, number, (number % shard_count) as u16);
            }
            tokio::time::sleep(Duration::from_millis(PROBE_MS)).await;
        }
        overload.evaluate(limit_ms);
        gate.set(GateReason::Overload, overload.is_refusing());
    }
}

/// Sends a probe the way of a request: to a thread, and there to a shard.
fn probe(service: &'static Service, event_loop: &'static EventLoop, number: u64, shard: u16) {
    event_loop.runtime().spawn(async move {
        // A request is noticed when the thread next looks at its sockets.
        tokio::task::yield_now().await;
        service.shards.submit(Job::task(&[shard], move |_, _| {
            service.telemetry.overload.probe_arrived(number);
        }));
    });
}
