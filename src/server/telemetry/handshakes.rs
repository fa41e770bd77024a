//! Figures of TLS handshakes of clients.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::tls::handshake::REASONS;

/// See the module.
#[derive(Debug, Default)]
pub struct Handshakes {
    /// Handshakes that came to a connection.
    pub done: AtomicU64,
    /// Handshakes that did not, by the reasons in [`REASONS`].
    pub failed: [AtomicU64; REASONS.len()],
    /// Handshakes that are not over.
    pub under_way: AtomicU64,
}

impl Handshakes {
    /// How many failed, with the name of each reason.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.failed.iter().map(|count| count.load(Relaxed));
        REASONS.into_iter().zip(counts)
    }
}
