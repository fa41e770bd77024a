//! The limit of memory: what it leaves for data, and which keys go when it is reached.

use std::sync::atomic::Ordering::Relaxed;

use crate::script;
use crate::state::Service;
use crate::telemetry::memory;
use basalt_commands::config::Config;
use basalt_commands::config::values::MaxmemoryPolicy;
use basalt_engine::evict::Policy;

/// Bytes of the server itself: neither data, nor clients', nor scripts', nor waiting for the disk, for replicas or for
/// a snapshot; and whether anything waits. It is little, but with a small limit it counts
/// whether a command is refused some 100 KiB too late.
fn measure_base(service: &Service) -> (i64, bool) {
    let not_counted = || memory::not_counted(service, &service.telemetry).total();
    let before = not_counted();
    let clients = service.clients.all();
    let clients: usize = clients.iter().map(|client| client.memory_bytes()).sum();
    let clients = clients as u64 + service.pubsub.tracked_count().bytes();
    // Interpreters and texts have bounds of their own, and make no data go.
    let scripts = script::memory_figures().total + service.scripts.text_bytes();
    let taken = service.budget.beside_data_bytes();
    // What waits for somebody comes and goes, some MiB where this thread just lost its core. The larger figure: neither
    // what is gone by now nor what came meanwhile is taken for the server's own, which would make data go.
    let not_counted = before.max(not_counted());
    let named = clients + scripts as u64 + not_counted;
    let base = taken - named.cast_signed();
    (base, not_counted > 0)
}

/// Looks again what the server itself takes, unless what is freed of flushed databases is still on the account of their
/// shards.
pub(super) fn follow_base(service: &Service) {
    if !service.budget.is_freeing() {
        let (base, is_waiting) = measure_base(service);
        service.budget.set_base(base, is_waiting);
    }
}

/// Has shards keep to the limit of memory, and to databases' shares, from their next commands on. A replica leaves
/// eviction to its primary, unless it is told otherwise.
pub(super) fn set(service: &Service, config: &Config) {
    let policy = match config.maxmemory_policy {
        MaxmemoryPolicy::Noeviction => Policy::NoEviction,
        // Where reads do not count (`ShardCx::new`), the least recently used keys are the least recently changed.
        MaxmemoryPolicy::AllkeysLru | MaxmemoryPolicy::AllkeysLrm => Policy::AllkeysLru,
        MaxmemoryPolicy::AllkeysLfu => Policy::AllkeysLfu,
        MaxmemoryPolicy::AllkeysRandom => Policy::AllkeysRandom,
        MaxmemoryPolicy::VolatileLru | MaxmemoryPolicy::VolatileLrm => Policy::VolatileLru,
        MaxmemoryPolicy::VolatileLfu => Policy::VolatileLfu,
        MaxmemoryPolicy::VolatileRandom => Policy::VolatileRandom,
        MaxmemoryPolicy::VolatileTtl => Policy::VolatileTtl,
    };
    let is_replica = service.telemetry.replication.is_replica.load(Relaxed);
    let leaves_eviction = is_replica && config.replica_ignore_maxmemory;
    let limit = match leaves_eviction {
        true => 0,
        false => config.maxmemory,
    };
    if let Some(durability) = service.durability.get() {
        durability.follow_limit(config.maxmemory);
    }
    service.scripts.limit_texts(config.maxmemory);
    let budget = &service.budget;
    budget.bound_clients(config.client_bytes_evicting());
    if !budget.is_freeing() {
        let (base, is_waiting) = measure_base(service);
        budget.set_base_at_limit(base, is_waiting, limit);
    }
    budget.configure(limit, policy, config.maxmemory_size_rule);
    let shares = config.maxmemory_db.iter();
    let shares = shares.map(|share| (share.db, share.bytes_of(config.maxmemory)));
    budget.share_out(&match leaves_eviction {
        true => Vec::new(),
        false => shares.collect::<Vec<_>>(),
    });
}
