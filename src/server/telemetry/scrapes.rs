//! The number of requests for `/metrics`, and the time taken to write its pages.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Figures of metrics scrapes.
#[derive(Debug, Default)]
pub struct Scrapes {
    /// Number of pages written.
    pub count: AtomicU64,
    /// Nanoseconds taken by all of them.
    pub total_ns: AtomicU64,
    /// Nanoseconds taken by the last one.
    pub last_ns: AtomicU64,
}

impl Scrapes {
    /// Counts a scrape that took `spent_ns` nanoseconds.
    pub fn note(&self, spent_ns: u64) {
        self.count.fetch_add(1, Relaxed);
        self.total_ns.fetch_add(spent_ns, Relaxed);
        self.last_ns.store(spent_ns, Relaxed);
    }
}
