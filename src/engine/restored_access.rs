//! Access data that RESTORE supplied for some keys, for OBJECT IDLETIME and FREQ.
//!
//! The table's access bits hold how often a key was used recently, not when. The other server's data is kept beside
//! them until the key is first used here, which changes its access bits. Only a limited number of keys is remembered,
//! which bounds the memory when a dataset is imported.

use std::collections::HashMap;

/// Access data of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Time of the last use, in Unix milliseconds.
    LastAt(u64),
    /// Frequency of use, on the scale of Redis.
    Frequency(u8),
}

impl Access {
    /// Returns the access bits to set for the key, below their maximum, so that the next use changes them.
    pub(super) fn bits(self) -> u8 {
        const OFTEN: u8 = 10;
        match self {
            Access::LastAt(_) | Access::Frequency(0) => 0,
            Access::Frequency(1..OFTEN) => 1,
            Access::Frequency(_) => 2,
        }
    }
}

/// Maximum number of remembered keys in a database of a shard; beyond it all are dropped.
const KEYS_MAX: usize = 1024;

/// Access data by the hash of the key.
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

    /// Returns the access data of a key with these access bits, unless it was used since.
    pub(super) fn of(&self, hash: u64, bits: u8) -> Option<Access> {
        self.0
            .get(&hash)
            .copied()
            .filter(|access| access.bits() == bits)
    }
}
