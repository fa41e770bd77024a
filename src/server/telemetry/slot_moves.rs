//! What was moved of slots from node to node in one piece: figures that INFO and the metrics show, written where slots
//! move.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module.
#[derive(Debug, Default)]
pub struct SlotMoves {
    /// From here.
    pub exports: Moved,
    /// To here.
    pub imports: Moved,
}

/// Moves in one direction.
#[derive(Debug, Default)]
pub struct Moved {
    /// Moves after which the slots were the other node's.
    pub finished: AtomicU64,
    /// Moves that failed.
    pub failed: AtomicU64,
    /// Moves that were cancelled here.
    pub cancelled: AtomicU64,
    /// Keys: from here, those that were sent, each once a move; to here, those of moves that are finished.
    pub keys: AtomicU64,
    /// Bytes over the connections of moves: keys, changes of them, and what the nodes say to each other.
    pub bytes: AtomicU64,
    /// How long the last move took that is finished, in milliseconds.
    pub last_ms: AtomicU64,
    /// How long writes to slots were last held back for a hand-over, in microseconds.
    pub last_pause_us: AtomicU64,
}

impl SlotMoves {
    /// CONFIG RESETSTAT.
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
