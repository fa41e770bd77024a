//! Cluster mode and slot migrations.

use super::{Figure, FigureContext, count, stored};
use basalt_commands::command::host::cluster::MovesInProgress;
use basalt_commands::config::values::ClusterMode;

/// Returns the slot migrations in progress, outgoing and incoming.
pub(super) fn moves(source: &FigureContext<'_>) -> MovesInProgress {
    let cluster = source.service.cluster();
    cluster.map_or_else(MovesInProgress::default, |cluster| {
        cluster.moves_in_progress()
    })
}

/// The section about cluster mode.
pub(in crate::telemetry) static CLUSTER: &[Figure] = &[count("cluster_enabled", |s| {
    u64::from(s.config.cluster_enabled != ClusterMode::No)
})
.gauge(
    "redis_cluster_enabled",
    "1 if cluster mode is enabled, else 0.",
)];

/// Rows of the section `cluster` about slot migrations, shown if the cluster has other nodes.
pub(in crate::telemetry) static SLOT_MOVES: &[Figure] = &[
    count("slot_exports_in_progress", |s| moves(s).exports),
    stored("slot_exports_finished", |t| &t.slot_moves.exports.finished),
    stored("slot_exports_failed", |t| &t.slot_moves.exports.failed),
    stored("slot_exports_cancelled", |t| {
        &t.slot_moves.exports.cancelled
    }),
    stored("slot_exports_keys", |t| &t.slot_moves.exports.keys),
    stored("slot_exports_last_msec", |t| &t.slot_moves.exports.last_ms),
    stored("slot_exports_last_pause_usec", |t| {
        &t.slot_moves.exports.last_pause_us
    }),
    count("slot_imports_in_progress", |s| moves(s).imports),
    stored("slot_imports_finished", |t| &t.slot_moves.imports.finished),
    stored("slot_imports_failed", |t| &t.slot_moves.imports.failed),
    stored("slot_imports_cancelled", |t| {
        &t.slot_moves.imports.cancelled
    }),
    stored("slot_imports_keys", |t| &t.slot_moves.imports.keys),
    stored("slot_imports_last_msec", |t| &t.slot_moves.imports.last_ms),
];
