//! The limit of memory: what it leaves for data, and which keys go when it is reached.

use std::sync::atomic::Ordering::Relaxed;

use crate::config::Config;
use crate::config::values::MaxmemoryPolicy;
use crate::engine::evict::Policy;
use crate::session::service::Service;

/// Finds out what the server takes beside data and clients. It is little, but with a small limit it counts whether a
/// command is refused some 100 KiB too late, or because of somebody's buffers.
pub(super) fn measure_base(service: &Service) {
    // What is freed of flushed databases is still on the account of their shards.
    if service.budget.is_freeing() {
        return;
    }
    let taken = service.budget.elsewhere_bytes();
    let clients = service.clients.all();
    let clients: usize = clients.iter().map(|client| client.memory_bytes()).sum();
    service.budget.set_base((taken - clients as i64).max(0));
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
    // What is free from now on depends on it.
    measure_base(service);
    let size_rule = config.maxmemory_size_rule;
    service.budget.configure(limit, policy, size_rule);
}
