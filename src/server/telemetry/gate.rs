//! Reasons to refuse commands that would run at other times, as one word that each request reads.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The reasons; see the module.
#[derive(Debug, Default)]
pub struct Gate(AtomicU8);

/// One reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GateReason {
    /// Data are being loaded.
    Loading = 1,
    /// The server is overloaded.
    Overload = 2,
}

impl Gate {
    /// Whether there is no reason to refuse anything.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    /// Adds a reason, or takes it away.
    pub fn set(&self, reason: GateReason, is_given: bool) {
        match is_given {
            true => self.0.fetch_or(reason as u8, Relaxed),
            false => self.0.fetch_and(!(reason as u8), Relaxed),
        };
    }

    /// Whether this reason is given.
    pub fn has(&self, reason: GateReason) -> bool {
        self.0.load(Relaxed) & reason as u8 != 0
    }
}
