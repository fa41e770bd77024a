//! Clients, and counts since the start.

use std::sync::atomic::Ordering::Relaxed;

use super::{Figure, FigureContext, count, decimal, shard_sum, stored, zero};
use basalt_commands::acl::Denied;

/// Returns the number of denials of a kind.
fn denied(source: &FigureContext<'_>, kind: Denied) -> u64 {
    source.service.users().figures.of(kind)
}

/// Returns the number of blessed keys in all databases.
fn blessed_keys(source: &FigureContext<'_>) -> u64 {
    let shards = source.service.all_published().iter();
    let dbs = shards.flat_map(|published| published.dbs.iter());
    dbs.map(|db| db.blessed_keys.get()).sum()
}

/// The section about clients.
pub(in crate::telemetry) static CLIENTS: &[Figure] = &[
    count("connected_clients", |s| s.snapshot.clients)
        .gauge("redis_connected_clients", "Number of connected clients."),
    count("cluster_connections", |s| {
        let cluster = s.service.cluster();
        cluster.map_or(0, |cluster| cluster.links().len() as u64)
    })
    .gauge(
        "redis_cluster_connections",
        "Number of cluster bus connections.",
    ),
    count("maxclients", |s| u64::from(s.config.maxclients)).gauge(
        "redis_config_maxclients",
        "Maximum number of clients (maxclients).",
    ),
    count("client_recent_max_input_buffer", |s| {
        s.snapshot.client_figures.input_max
    })
    .gauge(
        "redis_client_recent_max_input_buffer_bytes",
        "Largest unprocessed input of a client in bytes.",
    ),
    count("client_recent_max_output_buffer", |s| {
        s.snapshot.client_figures.output_max
    })
    .gauge(
        "redis_client_recent_max_output_buffer_bytes",
        "Largest unsent output of a client in bytes.",
    ),
    count("blocked_clients", |s| s.snapshot.client_figures.blocked)
        .gauge("redis_blocked_clients", "Number of blocked clients."),
    count("tracking_clients", |s| {
        s.snapshot.pubsub.tracking_clients as u64
    })
    .gauge(
        "redis_tracking_clients",
        "Clients that use client-side caching (CLIENT TRACKING).",
    ),
    count("maint_notification_clients", |s| {
        s.snapshot.pubsub.maintenance.clients as u64
    })
    .gauge(
        "basalt_maint_notification_clients",
        "Clients with maintenance notifications (CLIENT MAINT_NOTIFICATIONS).",
    ),
    count("pubsub_clients", |s| s.snapshot.client_figures.subscribed),
    count("watching_clients", |s| s.snapshot.client_figures.watching),
    zero("clients_in_timeout_table").gauge(
        "redis_clients_in_timeout_table",
        "Always 0: there is no table of client timeouts.",
    ),
    count("unauthenticated_clients", |s| {
        s.service.clients().unauthenticated() as u64
    })
    .gauge(
        "basalt_unauthenticated_clients",
        "Clients that have not authenticated yet.",
    ),
    count("unauthenticated_clients_closed", |s| {
        let closed = &s.service.clients().unauthenticated_closed;
        closed.load(Relaxed)
    })
    .counter(
        "basalt_unauthenticated_clients_closed_total",
        "Clients disconnected because they did not authenticate in time.",
    ),
    shard_sum("total_watched_keys", |shard| &shard.watched_keys),
    shard_sum("total_blocking_keys", |shard| &shard.waited_keys),
    shard_sum("total_blocking_keys_on_nokey", |shard| {
        &shard.waited_keys_when_gone
    }),
];

/// The section of counts since the start.
pub(in crate::telemetry) static STATS: &[Figure] = &[
    count("total_connections_received", |s| {
        s.snapshot.since_reset.accepted
    })
    .counter("redis_connections_received_total", "Accepted connections."),
    count("total_commands_processed", |s| s.snapshot.calls)
        .counter("redis_commands_processed_total", "Processed commands."),
    count("instantaneous_ops_per_sec", |s| {
        s.snapshot.rates.commands.round() as u64
    }),
    count("total_net_input_bytes", |s| s.snapshot.bytes_in)
        .counter("redis_net_input_bytes_total", "Bytes received."),
    count("total_net_output_bytes", |s| s.snapshot.bytes_out)
        .counter("redis_net_output_bytes_total", "Bytes sent."),
    stored("total_net_repl_input_bytes", |t| &t.replication.input_bytes).counter(
        "basalt_replication_received_bytes_total",
        "Replication bytes received from the primary and from replicas.",
    ),
    stored("total_net_repl_output_bytes", |t| &t.replication.sent_bytes).counter(
        "basalt_replication_sent_bytes_total",
        "Replication bytes sent to replicas.",
    ),
    stored("total_net_cluster_slot_import_bytes", |t| {
        &t.slot_moves.imports.bytes
    }),
    stored("total_net_cluster_slot_export_bytes", |t| {
        &t.slot_moves.exports.bytes
    }),
    decimal("instantaneous_input_kbps", |s| {
        s.snapshot.rates.bytes_in / 1_024.0
    })
    .gauge(
        "redis_instantaneous_input_kbps",
        "KiB received per second over the last 1.6 s.",
    ),
    decimal("instantaneous_output_kbps", |s| {
        s.snapshot.rates.bytes_out / 1_024.0
    })
    .gauge(
        "redis_instantaneous_output_kbps",
        "KiB sent per second over the last 1.6 s.",
    ),
    decimal("instantaneous_input_repl_kbps", |s| {
        s.snapshot.rates.replication_in / 1_024.0
    }),
    decimal("instantaneous_output_repl_kbps", |s| {
        s.snapshot.rates.replication_out / 1_024.0
    }),
    count("rejected_connections", |s| s.snapshot.since_reset.rejected)
        .counter("redis_rejected_connections_total", "Rejected connections."),
    stored("sync_full", |t| &t.replication.full_syncs).gauge(
        "redis_replica_resyncs_full",
        "Full resynchronizations with replicas.",
    ),
    stored("sync_partial_ok", |t| &t.replication.partial_syncs).gauge(
        "redis_replica_partial_resync_accepted",
        "Accepted partial resynchronizations.",
    ),
    stored("sync_partial_err", |t| &t.replication.partial_syncs_refused).gauge(
        "redis_replica_partial_resync_denied",
        "Refused partial resynchronizations.",
    ),
    count("expired_keys", |s| s.snapshot.counts.expired)
        .counter("redis_expired_keys_total", "Expired keys."),
    count("expired_subkeys", |s| s.snapshot.since_reset.expired_fields),
    // The field's name in Valkey; Redis has another.
    count("expired_fields", |s| s.snapshot.since_reset.expired_fields),
    decimal("expired_stale_perc", |_| 0.0).gauge(
        "redis_expired_stale_percentage",
        "Always 0: expired keys are found in order of their expiry time.",
    ),
    zero("expired_time_cap_reached_count").gauge(
        "redis_expired_time_cap_reached_total",
        "Always 0: the expiry cycle has no such time limit.",
    ),
    count("expire_cycle_cpu_milliseconds", |s| {
        s.snapshot.expire_ns / 1_000_000
    }),
    count("evicted_keys", |s| s.snapshot.counts.evicted)
        .counter("redis_evicted_keys_total", "Evicted keys."),
    count("blessed_keys", blessed_keys).gauge(
        "basalt_blessed_keys",
        "Keys that BLESS protects from eviction.",
    ),
    count("evicted_clients", |s| {
        s.snapshot.since_reset.evicted_clients
    }),
    count("evicted_scripts", |s| {
        s.snapshot.since_reset.evicted_scripts
    }),
    count("script_runs_on_one_shard", |s| s.snapshot.scripts.runs.one),
    count("script_runs_on_several_shards", |s| {
        s.snapshot.scripts.runs.several
    }),
    count("script_runs_on_all_shards", |s| s.snapshot.scripts.runs.all),
    count("transactions_on_one_shard", |s| {
        s.snapshot.scripts.transactions.one
    }),
    count("transactions_on_several_shards", |s| {
        s.snapshot.scripts.transactions.several
    }),
    count("transactions_on_all_shards", |s| {
        s.snapshot.scripts.transactions.all
    }),
    count("script_runs_apart", |s| s.snapshot.scripts.apart).counter(
        "basalt_script_apart_runs_total",
        "Scripts run on a thread of their own.",
    ),
    count("script_shards_extended", |s| s.snapshot.scripts.extended).counter(
        "basalt_script_shards_extended_total",
        "Shards that scripts acquired while running.",
    ),
    count("script_reruns", |s| s.snapshot.scripts.reruns).counter(
        "basalt_script_reruns_total",
        "Scripts that were rolled back and run again.",
    ),
    count("script_reruns_for_time", |s| s.snapshot.scripts.slow),
    count("total_eviction_exceeded_time", |s| {
        s.snapshot.eviction.exceeded_total_ms
    }),
    count("current_eviction_exceeded_time", |s| {
        s.snapshot.eviction.exceeded_ms
    }),
    count("keyspace_hits", |s| s.snapshot.counts.hits)
        .counter("redis_keyspace_hits_total", "Key lookups that found a key."),
    count("keyspace_misses", |s| s.snapshot.counts.misses).counter(
        "redis_keyspace_misses_total",
        "Key lookups that found no key.",
    ),
    count("pubsub_channels", |s| s.snapshot.pubsub.channels as u64).gauge(
        "redis_pubsub_channels",
        "Number of channels with subscribers.",
    ),
    count("pubsub_patterns", |s| s.snapshot.pubsub.patterns as u64)
        .gauge("redis_pubsub_patterns", "Number of subscribed patterns."),
    count("pubsubshard_channels", |s| {
        s.snapshot.pubsub.shard_channels as u64
    })
    .gauge(
        "redis_pubsubshard_channels",
        "Number of shard channels with subscribers.",
    ),
    zero("latest_fork_usec"),
    stored("total_forks", |t| &t.persistence.rdb.cuts),
    stored("migrate_cached_sockets", |t| &t.migrate_links).gauge(
        "redis_migrate_cached_sockets_total",
        "Connections cached by MIGRATE.",
    ),
    zero("slave_expires_tracked_keys").gauge(
        "redis_slave_expires_tracked_keys",
        "Always 0: such keys expire like all others.",
    ),
    stored("active_defrag_hits", |t| &t.defrag.moved).gauge(
        "redis_defrag_hits",
        "Allocations moved by active defragmentation.",
    ),
    stored("active_defrag_misses", |t| &t.defrag.left_alone).gauge(
        "redis_defrag_misses",
        "Allocations that active defragmentation did not need to move.",
    ),
    stored("active_defrag_key_hits", |t| &t.defrag.keys_moved).gauge(
        "redis_defrag_key_hits",
        "Keys whose values were moved by active defragmentation.",
    ),
    stored("active_defrag_key_misses", |t| &t.defrag.keys_left_alone).gauge(
        "redis_defrag_key_misses",
        "Keys that active defragmentation did not need to move.",
    ),
    count("total_active_defrag_time", |s| {
        s.telemetry.defrag.active_ns.load(Relaxed) / 1_000_000
    }),
    count("current_active_defrag_time", |s| {
        s.telemetry.defrag.current_ns.load(Relaxed) / 1_000_000
    }),
    count("tracking_total_keys", |s| s.snapshot.pubsub.tracked_keys).gauge(
        "redis_tracking_total_keys",
        "Keys tracked for client-side caching.",
    ),
    count("tracking_total_items", |s| s.snapshot.pubsub.tracked_items).gauge(
        "redis_tracking_total_items",
        "Tracked keys, summed over clients.",
    ),
    count("tracking_total_prefixes", |s| {
        s.snapshot.pubsub.tracking_prefixes as u64
    })
    .gauge(
        "redis_tracking_total_prefixes",
        "Prefixes tracked for client-side caching.",
    ),
    count("maint_notifications_sent", |s| {
        s.snapshot.pubsub.maintenance.sent
    })
    .counter(
        "basalt_maint_notifications_sent_total",
        "Maintenance notifications sent to clients.",
    ),
    count("maint_notifications_dropped", |s| {
        s.snapshot.pubsub.maintenance.dropped
    })
    .counter(
        "basalt_maint_notifications_dropped_total",
        "Maintenance notifications not sent to clients that did not read earlier pushes.",
    ),
    stored("unexpected_error_replies", |t| {
        &t.replication.unexpected_errors
    })
    .counter(
        "redis_unexpected_error_replies",
        "Errors of commands from the primary or the append-only file.",
    ),
    count("total_error_replies", |s| s.snapshot.error_count)
        .counter("redis_total_error_replies", "Number of error replies."),
    zero("dump_payload_sanitizations").counter(
        "redis_dump_payload_sanitizations",
        "Always 0: values in RESTORE are always fully checked.",
    ),
    count("overload_refused_commands", |s| {
        s.telemetry.overload.refused.load(Relaxed)
    })
    .counter(
        "basalt_overload_refused_total",
        "Commands refused because of overload (overload-p99).",
    ),
    decimal("overload_pressure", |s| s.telemetry.overload.pressure()).gauge(
        "basalt_overload_pressure",
        "Classes of commands refused because of overload, the dearest of three first.",
    ),
    count("overload_wait_p99_usec", |s| {
        s.telemetry.overload.wait_p99_us.load(Relaxed)
    }),
    count("eventloop_cycles", |s| {
        s.snapshot.reads + s.snapshot.since_reset.rounds.cron_rounds
    }),
    count("eventloop_duration_sum", |s| {
        s.snapshot.since_reset.rounds.busy_ns / 1_000
    }),
    count("eventloop_duration_cmd_sum", |s| {
        let commands = s.snapshot.commands.iter();
        commands.map(|command| command.duration_ns).sum::<u64>() / 1_000
    }),
    count("instantaneous_eventloop_cycles_per_sec", |s| {
        s.snapshot.rates.rounds.round() as u64
    }),
    count("instantaneous_eventloop_duration_usec", |s| {
        (s.snapshot.rates.round_ns / 1_000.0).round() as u64
    }),
    count("total_reads_processed", |s| s.snapshot.reads)
        .counter("redis_total_reads_processed", "Reads from client sockets."),
    count("total_writes_processed", |s| s.snapshot.writes)
        .counter("redis_total_writes_processed", "Writes to client sockets."),
    count("client_query_buffer_limit_disconnections", |s| {
        s.snapshot.since_reset.overfed
    }),
    count("client_output_buffer_limit_disconnections", |s| {
        s.snapshot.since_reset.clients_cut
    }),
    zero("io_threaded_reads_processed").counter(
        "redis_io_threaded_reads_processed",
        "Always 0: there are no separate I/O threads.",
    ),
    zero("io_threaded_writes_processed").counter(
        "redis_io_threaded_writes_processed",
        "Always 0: there are no separate I/O threads.",
    ),
    zero("io_threaded_total_prefetch_batches"),
    zero("io_threaded_total_prefetch_entries"),
    zero("reply_buffer_shrinks"),
    zero("reply_buffer_expands"),
    count("acl_access_denied_auth", |s| denied(s, Denied::Auth)).counter(
        "redis_acl_access_denied_auth_total",
        "Failed authentications.",
    ),
    count("acl_access_denied_cmd", |s| denied(s, Denied::Command)).counter(
        "redis_acl_access_denied_cmd_total",
        "Commands denied by the ACL rules of a user.",
    ),
    count("acl_access_denied_key", |s| denied(s, Denied::Key)).counter(
        "redis_acl_access_denied_key_total",
        "Commands denied because of a key.",
    ),
    count("acl_access_denied_channel", |s| denied(s, Denied::Channel)).counter(
        "redis_acl_access_denied_channel_total",
        "Commands denied because of a channel.",
    ),
    count("acl_access_denied_tls_cert", |s| {
        denied(s, Denied::Certificate)
    })
    .counter(
        "redis_acl_access_denied_tls_cert_total",
        "Clients denied because their certificate matches no enabled user.",
    ),
    count("acl_access_denied_db", |s| denied(s, Denied::Database)).counter(
        "redis_acl_access_denied_db_total",
        "Commands denied because of the database.",
    ),
];
