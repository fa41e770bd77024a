//! Figures of clients' TLS handshakes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::tls::handshake::REASONS;

/// Figures of TLS handshakes.
#[derive(Debug, Default)]
pub struct Handshakes {
    /// Handshakes of clients that succeeded.
    pub done: AtomicU64,
    /// Failed handshakes, by the reasons in [`REASONS`].
    pub failed: [AtomicU64; REASONS.len()],
    /// Number of connections whose TLS handshake has not begun.
    pub waiting: AtomicU64,
    /// Number of TLS handshakes in progress.
    pub under_way: AtomicU64,
}

impl Handshakes {
    /// Returns the number of failures by reason name.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.failed.iter().map(|count| count.load(Relaxed));
        REASONS.into_iter().zip(counts)
    }
}
