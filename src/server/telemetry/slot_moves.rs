//! Figures of atomic slot migrations between nodes, shown by INFO and the metrics and written by the migration.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Figures of slot migrations.
#[derive(Debug, Default)]
pub struct SlotMoves {
    /// Migrations from this node.
    pub exports: Moved,
    /// Migrations to this node.
    pub imports: Moved,
}

/// Migrations in one direction.
#[derive(Debug, Default)]
pub struct Moved {
    /// Migrations after which the other node owned the slots.
    pub finished: AtomicU64,
    /// Number of failed migrations.
    pub failed: AtomicU64,
    /// Migrations that were cancelled here.
    pub cancelled: AtomicU64,
    /// Keys: for exports, those sent, each counted once per migration; for imports, those of finished migrations.
    pub keys: AtomicU64,
    /// Bytes over the migrations' connections: keys, their changes, and the nodes' messages.
    pub bytes: AtomicU64,
    /// Duration of the last finished migration, in milliseconds.
    pub last_ms: AtomicU64,
    /// Duration in microseconds for which the last handover paused writes to its slots.
    pub last_pause_us: AtomicU64,
}

impl SlotMoves {
    /// Resets the statistics: CONFIG RESETSTAT.
    pub fn reset(&self) {
        for moved in [&self.exports, &self.imports] {
            for counter in [
                &moved.finished,
                &moved.failed,
                &moved.cancelled,
                &moved.keys,
                &moved.bytes,
            ] {
                counter.store(0, Relaxed);
            }
        }
    }
}
