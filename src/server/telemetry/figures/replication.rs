//! The primary, the replicas, and the stream, which Sentinel and client libraries read to find the primary.

use std::sync::atomic::Ordering::Relaxed;

use super::{Figure, FigureContext, count, flag, shown, signed, text};
use basalt_commands::command::host::primary::{ReplicaFacts, ReplicaState};
use basalt_commands::command::host::replica::Upstream;

/// The role, and the primary being followed.
pub(in crate::telemetry) static ROLE: &[Figure] = &[
    text("role", |s| shown(s.snapshot.replication.role())),
    text("master_host", |s| shown(&upstream(s)?.host)),
    text("master_port", |s| shown(upstream(s)?.port)),
];

/// The number of replicas.
pub(in crate::telemetry) static REPLICAS: &[Figure] = &[
    count("connected_slaves", |s| {
        s.snapshot.replication.replicas.len() as u64
    })
    .gauge("redis_connected_slaves", "Number of connected replicas."),
    text("min_slaves_good_slaves", |s| {
        s.config.wants_good_replicas().then(|| good(s).to_string())
    }),
    count("sync_replicas", |s| {
        s.telemetry.replication.sync_replicas.load(Relaxed)
    })
    .gauge(
        "basalt_sync_replicas",
        "Replicas that count for min-sync-replicas.",
    ),
    flag("sync_replicas_overdue", |t| {
        &t.replication.is_confirmation_overdue
    })
    .gauge(
        "basalt_sync_replicas_overdue",
        "1 if replicas did not confirm a write in time and have not since (min-sync-replicas), else 0.",
    ),
    count("unconfirmed_replies", |s| {
        s.telemetry.replication.unconfirmed_replies.load(Relaxed)
    })
    .counter(
        "basalt_unconfirmed_replies_total",
        "Batches of replies that became NOREPLICAS errors because replicas did not confirm in time.",
    ),
];

/// The stream, and which replicas may resume it.
pub(in crate::telemetry) static STREAM: &[Figure] = &[
    text("replicas_waiting_psync", |s| {
        let awaited = s.snapshot.replication.awaited;
        let is_dual = s.config.dual_channel_replication_enabled;
        is_dual.then(|| awaited.to_string())
    }),
    text("master_failover_state", |s| {
        shown(s.snapshot.replication.failover_state)
    }),
    text("master_replid", |s| {
        shown(&s.snapshot.replication.stream.id)
    }),
    text("master_replid2", |s| match previous(s) {
        Some((id, _)) => shown(id),
        None => Some("0".repeat(40)),
    }),
    count("master_repl_offset", |s| {
        s.snapshot.replication.stream.offset
    })
    .gauge("redis_master_repl_offset", "Replication offset."),
    signed("second_repl_offset", |s| {
        previous(s).map_or(-1, |(_, until)| until.cast_signed())
    })
    .gauge(
        "redis_second_repl_offset",
        "Offset up to which the second replication ID is valid.",
    ),
    count("repl_backlog_active", |s| {
        u64::from(s.snapshot.replication.stream.is_kept)
    })
    .gauge(
        "redis_repl_backlog_is_active",
        "1 if the replication backlog is active, else 0.",
    ),
    count("repl_backlog_size", |s| s.config.repl_backlog_size).gauge(
        "redis_replication_backlog_bytes",
        "Size of the replication backlog in bytes.",
    ),
    count("repl_backlog_first_byte_offset", |s| {
        kept(s, s.snapshot.replication.stream.first)
    }),
    count("repl_backlog_histlen", |s| {
        kept(s, s.snapshot.replication.stream.held_bytes)
    }),
];

fn upstream<'s>(source: &'s FigureContext<'_>) -> Option<&'s Upstream> {
    source.snapshot.replication.upstream.as_ref()
}

/// Returns the id of the previous stream, and the offset where it ended.
fn previous<'s>(source: &'s FigureContext<'_>) -> Option<&'s (String, u64)> {
    source.snapshot.replication.stream.previous.as_ref()
}

/// Returns a figure of the backlog, zero if it is disabled.
fn kept(source: &FigureContext<'_>, figure: u64) -> u64 {
    match source.snapshot.replication.stream.is_kept {
        true => figure,
        false => 0,
    }
}

/// Returns the number of replicas that count for `min-replicas-to-write`.
fn good(source: &FigureContext<'_>) -> usize {
    let max_s = u64::from(source.config.min_replicas_max_lag);
    let is_good =
        |replica: &&ReplicaFacts| replica.state == ReplicaState::Online && replica.lag_s <= max_s;
    let replicas = source.snapshot.replication.replicas.iter();
    replicas.filter(is_good).count()
}
