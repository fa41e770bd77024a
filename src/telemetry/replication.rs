//! What replication says of itself: figures that INFO, the metrics and admission read, written where replication runs.

use std::sync::atomic::{AtomicBool, AtomicU64};

/// Figures of replication.
#[derive(Debug, Default)]
pub struct Replication {
    /// Whether this server follows a primary.
    pub is_replica: AtomicBool,
    /// Whether the link to the primary is up: its stream is applied as it comes.
    pub is_link_up: AtomicBool,
    /// Replicas that were heard of within `min-replicas-max-lag` seconds.
    pub good_replicas: AtomicU64,
    /// Full resynchronizations that replicas asked for.
    pub full_syncs: AtomicU64,
    /// Partial resynchronizations that were granted.
    pub partial_syncs: AtomicU64,
    /// Partial resynchronizations that were refused.
    pub partial_syncs_refused: AtomicU64,
}
