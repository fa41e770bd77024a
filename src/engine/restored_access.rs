//! What RESTORE said of the access to some keys, for OBJECT IDLETIME and FREQ to answer.
//!
//! The table's access bits hold how often a key was used of late, not when. What another server knew is kept beside
//! them until the key is used here for the first time: then the bits are no longer those that it came with. Only some
//! keys are remembered, so that a dataset that moves in costs no more than these.

use std::collections::HashMap;

/// What was said of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// When it was used last, in Unix milliseconds.
    LastAt(u64),
    /// How often it was used, on the scale of Redis.
    Frequency(u8),
}

impl Access {
    /// What the access bits show for it, less than their most, so that the next use changes them.
    pub(super) fn bits(self) -> u8 {
        const OFTEN: u8 = 10;
        match self {
            Access::LastAt(_) | Access::Frequency(0) => 0,
            Access::Frequency(1..OFTEN) => 1,
            Access::Frequency(_) => 2,
        }
    }
}

/// Keys to remember in a database of a shard; beyond, all are forgotten.
const KEYS_MAX: usize = 1024;

/// By hash of the key.
#[derive(Debug, Default)]
pub(super) struct RestoredAccess(HashMap<u64, Access>);

impl RestoredAccess {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn note(&mut self, hash: u64, access: Access) {
        if self.0.len() == KEYS_MAX {
            self.0.clear();
        }
        self.0.insert(hash, access);
    }

    pub(super) fn forget(&mut self, hash: u64) {
        self.0.remove(&hash);
    }

    /// What was said of a key whose access bits are these, unless it was used since.
    pub(super) fn of(&self, hash: u64, bits: u8) -> Option<Access> {
        self.0
            .get(&hash)
            .copied()
            .filter(|access| access.bits() == bits)
    }
}
