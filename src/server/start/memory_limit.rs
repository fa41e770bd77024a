//! The memory limit: how much of it is available for data, and which keys are evicted when it is reached.

use std::sync::atomic::Ordering::Relaxed;

use crate::script;
use crate::state::Service;
use crate::telemetry::memory;
use basalt_commands::config::Config;
use basalt_commands::config::values::MaxmemoryPolicy;
use basalt_engine::evict::Policy;

/// Measures the bytes of the server itself, that is, all but data, clients, scripts and output buffered for the
/// disk, replicas or a snapshot; also returns whether anything is buffered. These bytes are few, but with a
/// small limit, an outdated figure would refuse commands some 100 KiB too late.
fn measure_base(service: &Service) -> (i64, bool) {
    let not_counted = || memory::not_counted(service, &service.telemetry).total();
    let before = not_counted();
    let clients = service.clients.all();
    let clients: usize = clients.iter().map(|client| client.memory_bytes()).sum();
    let clients = clients as u64 + service.pubsub.tracked_count().bytes();
    // Exclude interpreters and script texts, which have their own limits and cause no eviction.
    let scripts = script::memory_figures().total + service.scripts.text_bytes();
    let taken = service.budget.bytes_outside_shards();
    // Buffered output fluctuates by some MiB, for instance when this thread just lost its core. Take the larger
    // figure, so that output which was flushed or added meanwhile is not counted as the server's own, which would
    // cause eviction.
    let not_counted = before.max(not_counted());
    let named = clients + scripts as u64 + not_counted;
    let base = taken - named.cast_signed();
    (base, not_counted > 0)
}

/// Measures the server's own memory again, unless already freed memory of flushed databases is still charged to
/// shards.
pub(super) fn follow_base(service: &Service) {
    if !service.budget.is_freeing() {
        let (base, is_waiting) = measure_base(service);
        service.budget.set_base(base, is_waiting);
    }
}

/// Applies the memory limit and the databases' shares to the shards, from their next commands on. A replica leaves
/// eviction to its primary, unless configured otherwise.
pub(super) fn set(service: &Service, config: &Config) {
    let policy = match config.maxmemory_policy {
        MaxmemoryPolicy::Noeviction => Policy::NoEviction,
        // With `allkeys-lrm`, reads do not update access times (`ShardCx::new`), so the least recently used
        // keys are the least recently modified ones.
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
