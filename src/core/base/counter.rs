//! A counter that one writer at a time may add to without a locked instruction, and anyone may read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter at zero.
    pub const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// Adds; the caller is the only writer at this moment.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Sets the figure.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// The figure.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
