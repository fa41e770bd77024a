//! Buffers that connections keep between two requests, out of a budget that all share.
//!
//! A connection that was active of late keeps its buffer, so that the next request finds it; the background asks for it
//! back after two idle seconds, as Redis resizes query buffers then. Beyond the budget a connection keeps nothing
//! that it does not need, however active it is, and a claimed length is room for nothing before its bytes come.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What all connections together may keep.
const BUDGET_BYTES: usize = 64 * 1024 * 1024;

/// The most room that is made for an argument of which nothing but the length is known.
pub const CLAIM_BYTES_MAX: usize = 1024 * 1024;

/// A buffer that is larger than this gets its first size again once a turn needed a quarter of it only.
pub const LARGE_BYTES: usize = 32 * 1024;

static RESERVED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Whether any connection keeps anything.
pub fn is_any() -> bool {
    RESERVED_BYTES.load(Relaxed) > 0
}

/// One connection's part of the budget.
#[derive(Debug, Default)]
pub struct Reservation(usize);

impl Reservation {
    /// Asks for another size; false, and as before, if the budget does not allow it.
    pub fn resize(&mut self, bytes: usize) -> bool {
        // The usual case writes nothing that other connections read.
        if bytes == self.0 {
            return true;
        }
        if bytes < self.0 {
            RESERVED_BYTES.fetch_sub(self.0 - bytes, Relaxed);
        } else {
            let more = bytes - self.0;
            let added = RESERVED_BYTES.fetch_update(Relaxed, Relaxed, |reserved| {
                (reserved + more <= BUDGET_BYTES).then_some(reserved + more)
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
