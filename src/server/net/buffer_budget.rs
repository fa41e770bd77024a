//! Buffers that connections keep between two requests, within a budget shared by all.
//!
//! A recently active connection keeps its buffer for the next request, as long as the kept buffers of all fit the
//! caches of the cores; the background reclaims it after two idle seconds, when Redis resizes query buffers, too.
//! Beyond that a connection uses the buffers of its thread (`pool`) and keeps nothing that it does not need, however
//! active it is. Beyond the budget an announced length reserves no memory before its bytes arrive.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes that all connections together may keep.
const BUDGET_BYTES: usize = 64 * 1024 * 1024;

/// Bytes for each thread that connections may keep without need.
const KEPT_BYTES_PER_THREAD: usize = 512 * 1024;

/// Maximum memory reserved for an argument of which only the length is known.
pub const CLAIM_BYTES_MAX: usize = 1024 * 1024;

/// A buffer larger than this is shrunk to its initial size after a turn (one pass over received requests) that
/// needed only a quarter of it.
pub const LARGE_BYTES: usize = 32 * 1024;

static RESERVED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes that all connections together may keep without need.
static KEPT_BYTES_MAX: AtomicUsize = AtomicUsize::new(KEPT_BYTES_PER_THREAD);

/// Sets the number of threads that serve connections.
pub fn set_thread_count(threads: usize) {
    KEPT_BYTES_MAX.store(threads * KEPT_BYTES_PER_THREAD, Relaxed);
}

/// Whether any connection keeps a buffer.
pub fn is_any() -> bool {
    RESERVED_BYTES.load(Relaxed) > 0
}

/// One connection's share of the budget.
#[derive(Debug, Default)]
pub struct Reservation(usize);

impl Reservation {
    /// Changes the reservation to `bytes`. Returns false, without effect, if the budget does not allow it.
    pub fn resize(&mut self, bytes: usize) -> bool {
        self.resize_within(bytes, BUDGET_BYTES)
    }

    /// Changes the reservation to `bytes` for a buffer that the connection does not need between two requests.
    /// Returns false, without effect, if so many bytes may not be kept.
    pub fn resize_to_keep(&mut self, bytes: usize) -> bool {
        self.resize_within(bytes, KEPT_BYTES_MAX.load(Relaxed))
    }

    fn resize_within(&mut self, bytes: usize, limit: usize) -> bool {
        // In the common case, do not write to the shared counter.
        if bytes == self.0 {
            return true;
        }
        if bytes < self.0 {
            RESERVED_BYTES.fetch_sub(self.0 - bytes, Relaxed);
        } else {
            let more = bytes - self.0;
            let added = RESERVED_BYTES.fetch_update(Relaxed, Relaxed, |reserved| {
                (reserved + more <= limit).then_some(reserved + more)
            });
            if added.is_err() {
                return false;
            }
        }
        self.0 = bytes;
        true
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_more_than_is_left_and_what_is_given_back_is_there_again() {
        let mut greedy = Reservation::default();
        assert!(!greedy.resize(BUDGET_BYTES + 1));
        assert!(greedy.resize(BUDGET_BYTES / 2) && is_any());
        let mut other = Reservation::default();
        assert!(!other.resize(BUDGET_BYTES / 2 + 1));
        drop(greedy);
        assert!(other.resize(BUDGET_BYTES / 2 + 1));
        assert!(other.resize(0));
    }
}
