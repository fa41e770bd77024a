//! What Redis does not have: shards, leases, locks, the miss-ratio curve.

use super::{Figure, count, decimal, ratio, shard_sum, shown, text};

/// Shards, their locks, eviction and expiry.
pub(in crate::telemetry) static SHARDS: &[Figure] = &[
    count("shards", |s| s.service.all_published().len() as u64)
        .gauge("basalt_shards", "Number of shards."),
    count("threads", |s| s.telemetry.thread_count as u64)
        .gauge("basalt_threads", "Threads that serve connections."),
    count("connections_moved", |s| {
        s.telemetry.rounds.connections_moved()
    })
    .counter(
        "basalt_connections_moved_total",
        "Connections moved from a busy thread to a less busy one.",
    ),
    count("hot_key_copies", |s| s.snapshot.hot_copies.copies).gauge(
        "basalt_hot_key_copies",
        "Copies of hot keys' values that threads keep for themselves.",
    ),
    count("hot_key_copy_bytes", |s| s.snapshot.hot_copies.bytes).gauge(
        "basalt_hot_key_copy_bytes",
        "Total length of the copies of hot keys' values.",
    ),
    count("hot_key_copy_reads", |s| s.snapshot.since_reset.copy_reads).counter(
        "basalt_hot_key_copy_reads_total",
        "Reads answered from copies of hot keys' values; they are keyspace hits too.",
    ),
    count("takes", |s| s.snapshot.tokens().takes),
    count("takes_found_held", |s| s.snapshot.tokens().takes_found_held),
    text("takes_found_held_perc", |s| {
        let token = s.snapshot.tokens();
        let tries = token.takes + token.takes_found_held;
        shown(format_args!(
            "{:.4}%",
            100.0 * ratio(token.takes_found_held, tries)
        ))
    }),
    count("commands_queued", |s| s.snapshot.tokens().queued),
    count("multi_shard_operations", |s| {
        s.snapshot.tokens().multi_shard_runs
    }),
    count("handovers", |s| s.snapshot.tokens().handed_over),
    count("worker_handovers", |s| s.snapshot.tokens().worker_handovers),
    text("longest_hold_usec", |s| {
        let longest_ns = s.snapshot.tokens().longest_hold_ns;
        shown(format_args!("{:.3}", longest_ns as f64 / 1_000.0))
    }),
    count("evicted_from_small_queue", |s| {
        s.snapshot.eviction.from_small
    }),
    count("evicted_from_main", |s| s.snapshot.eviction.from_main),
    count("evicted_otherwise", |s| s.snapshot.eviction.otherwise),
    count("eviction_promotions", |s| s.snapshot.eviction.promoted).counter(
        "basalt_eviction_promotions_total",
        "Keys promoted from the queue of new keys because they were used again.",
    ),
    count("eviction_ghost_hits", |s| s.snapshot.eviction.ghost_hits).counter(
        "basalt_eviction_ghost_hits_total",
        "Keys written again soon after their eviction.",
    ),
    count("eviction_debt_bytes", |s| s.snapshot.eviction.debt_bytes).gauge(
        "basalt_eviction_debt_bytes",
        "Bytes over the memory limit that are still to be evicted.",
    ),
    decimal("expiry_lag_p50_ms", |s| s.snapshot.lag_percentile_ms(50.0)),
    decimal("expiry_lag_p99_ms", |s| s.snapshot.lag_percentile_ms(99.0)),
    count("expiry_lag_max_ms", |s| s.snapshot.lag_max_ms),
];

/// Leases for loading missing keys, and tags.
pub(in crate::telemetry) static LEASES: &[Figure] = &[
    shard_sum("leases_in_force", |shard| &shard.leases.in_force)
        .gauge("basalt_leases_in_force", "Active leases."),
    shard_sum("leases_waiting", |shard| &shard.leases.waiting).gauge(
        "basalt_leases_waiting_clients",
        "Clients waiting for a key that another client loads.",
    ),
    shard_sum("leases_given", |shard| &shard.leases.given).counter(
        "basalt_leases_given_total",
        "Leases granted to clients that load a key.",
    ),
    shard_sum("leases_filled", |shard| &shard.leases.filled)
        .counter("basalt_leases_filled_total", "Leases filled with a value."),
    shard_sum("leases_dropped", |shard| &shard.leases.dropped).counter(
        "basalt_leases_dropped_total",
        "Leases dropped by their client.",
    ),
    shard_sum("leases_void_by_time", |shard| &shard.leases.void_by_time).counter(
        "basalt_leases_void_by_time_total",
        "Leases that expired before they were filled.",
    ),
    shard_sum("leases_void_by_change", |shard| {
        &shard.leases.void_by_change
    })
    .counter(
        "basalt_leases_void_by_change_total",
        "Leases that became void because their key changed.",
    ),
    shard_sum("leases_fills_refused", |shard| &shard.leases.fills_refused).counter(
        "basalt_leases_fills_refused_total",
        "Values that LFILL rejected because their token was void.",
    ),
    shard_sum("leases_stale_served", |shard| &shard.leases.stale_served)
        .counter("basalt_leases_stale_served_total", "Stale values served."),
    shard_sum("tags_invalidated", |shard| &shard.tags.invalidated).counter(
        "basalt_tags_invalidated_total",
        "Tags invalidated, counted in each shard that had keys with them.",
    ),
    shard_sum("tags_keys_invalidated", |shard| {
        &shard.tags.keys_invalidated
    })
    .counter(
        "basalt_tags_invalidated_keys_total",
        "Keys deleted by the invalidation of a tag.",
    ),
];

/// Locks, rate limits and queues of due work.
pub(in crate::telemetry) static LOCKS: &[Figure] = &[
    shard_sum("locks_taken", |shard| &shard.locks.taken)
        .counter("basalt_locks_taken_total", "Acquired locks."),
    shard_sum("locks_handed_over", |shard| &shard.locks.handed_over).counter(
        "basalt_locks_handed_over_total",
        "Locks acquired after waiting.",
    ),
    shard_sum("locks_retaken", |shard| &shard.locks.retaken).counter(
        "basalt_locks_retaken_total",
        "Locks acquired again by their owner.",
    ),
    shard_sum("locks_released", |shard| &shard.locks.released).counter(
        "basalt_locks_released_total",
        "Locks released by their owner.",
    ),
    shard_sum("throttle_let_through", |shard| &shard.rates.let_through).counter(
        "basalt_throttle_let_through_total",
        "Requests allowed by CL.THROTTLE.",
    ),
    shard_sum("throttle_limited", |shard| &shard.rates.limited).counter(
        "basalt_throttle_limited_total",
        "Requests limited by CL.THROTTLE.",
    ),
    shard_sum("due_members_taken", |shard| &shard.rates.due_taken).counter(
        "basalt_due_members_taken_total",
        "Due members removed from delay queues.",
    ),
];

/// The miss-ratio curve, except for the hit ratios.
pub(in crate::telemetry) static CURVE: &[Figure] = &[
    count("miss_ratio_curve", |s| u64::from(s.snapshot.curve.is_kept)),
    count("curve_memory", |s| s.snapshot.curve.memory_bytes),
    count("curve_reads", |s| s.snapshot.curve.reads).gauge(
        "basalt_curve_reads",
        "Lookups used for the miss-ratio curve; older ones count for less.",
    ),
    count("curve_samples", |s| s.snapshot.curve.samples).gauge(
        "basalt_curve_samples",
        "Keys sampled for the miss-ratio curve.",
    ),
    count("curve_keys_estimated", |s| {
        s.snapshot.curve.represented_keys
    }),
];
