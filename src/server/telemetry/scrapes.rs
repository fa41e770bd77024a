//! How often `/metrics` was asked for, and how long it took to write.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module.
#[derive(Debug, Default)]
pub struct Scrapes {
    /// Pages that were written.
    pub count: AtomicU64,
    /// Nanoseconds that all of them took.
    pub total_ns: AtomicU64,
    /// Nanoseconds that the last one took.
    pub last_ns: AtomicU64,
}

impl Scrapes {
    /// Counts one.
    pub fn note(&self, spent_ns: u64) {
        self.count.fetch_add(1, Relaxed);
        self.total_ns.fetch_add(spent_ns, Relaxed);
        self.last_ns.store(spent_ns, Relaxed);
    }
}
