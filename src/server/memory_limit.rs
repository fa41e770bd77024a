//! The limit of memory: what it leaves for data, and which keys go when it is reached.

use std::sync::atomic::Ordering::Relaxed;

use crate::config::Config;
use crate::config::values::MaxmemoryPolicy;
use crate::engine::evict::Policy;
use crate::session::service::Service;
use crate::telemetry::memory;

/// Finds out what the server itself takes: what is neither data nor clients', and does not wait for the disk, for
/// replicas or for a snapshot. It is little, but with a small limit it counts whether a command is refused some 100 KiB
/// too late. All of it counts at once only if that `is_settled`.
fn measure_base(service: &Service, is_settled: bool) {
    // What is freed of flushed databases is still on the account of their shards.
    if service.budget.is_freeing() {
        return;
    }
    let not_counted = memory::not_counted(service, &service.telemetry).total();
    let clients = service.clients.all();
    let clients: usize = clients.iter().map(|client| client.memory_bytes()).sum();
    // Last, as what waits for somebody comes and goes: what is gone by now is not taken for the server's own.
    let taken = service.budget.beside_data_bytes();
    let base = taken - clients as i64 - not_counted.cast_signed();
    service.budget.set_base(base, is_settled);
}

/// Looks again what the server itself takes.
pub(super) fn follow_base(service: &Service) {
    measure_base(service, false);
}

/// Has shards keep to the limit of memory, from their next commands on. A replica leaves eviction to its primary,
/// unless it is told otherwise.
pub(super) fn set(service: &Service, config: &Config) {
    let policy = match config.maxmemory_policy {
        MaxmemoryPolicy::Noeviction => Policy::NoEviction,
        MaxmemoryPolicy::AllkeysLru => Policy::AllkeysLru,
        MaxmemoryPolicy::AllkeysLfu => Policy::AllkeysLfu,
        MaxmemoryPolicy::AllkeysRandom => Policy::AllkeysRandom,
        MaxmemoryPolicy::VolatileLru => Policy::VolatileLru,
        MaxmemoryPolicy::VolatileLfu => Policy::VolatileLfu,
        MaxmemoryPolicy::VolatileRandom => Policy::VolatileRandom,
        MaxmemoryPolicy::VolatileTtl => Policy::VolatileTtl,
    };
    let is_replica = service.telemetry.replication.is_replica.load(Relaxed);
    let limit = match is_replica && config.replica_ignore_maxmemory {
        true => 0,
        false => config.maxmemory,
    };
    if let Some(durability) = service.durability.get() {
        durability.follow_limit(config.maxmemory);
    }
    // What is free from now on depends on it.
    measure_base(service, true);
    let size_rule = config.maxmemory_size_rule;
    service.budget.configure(limit, policy, size_rule);
}
