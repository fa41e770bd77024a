//! One thread's lists of the hottest keys that it saw; see [`hotkeys`](super::hotkeys).

use super::prefix_uses::Uses;
use basalt_core::structures::space_saving::SpaceSaving;

/// Slots of each thread's list by commands, which is always kept: a key with more than 1/256 of all uses is
/// guaranteed to be in it.
const PLACES_BY_COMMANDS: usize = 256;

/// Slots of the list by bytes.
const PLACES_BY_BYTES: usize = 64;

/// One thread's lists.
#[derive(Debug)]
pub struct Lists {
    pub(super) by_commands: SpaceSaving,
    pub(super) by_bytes: SpaceSaving,
    pub(super) by_prefix: Uses,
    pub(super) session: Option<SessionLists>,
    draw: u64,
}

impl Default for Lists {
    fn default() -> Lists {
        Lists {
            by_commands: SpaceSaving::new(PLACES_BY_COMMANDS),
            by_bytes: SpaceSaving::new(PLACES_BY_BYTES),
            by_prefix: Uses::default(),
            session: None,
            draw: rand::random::<u64>() | 1,
        }
    }
}

impl Lists {
    /// Returns the number of commands before the next sample, on average one less than the interval.
    pub(super) fn next(&mut self, interval: u64) -> u64 {
        self.draw ^= self.draw << 13;
        self.draw ^= self.draw >> 7;
        self.draw ^= self.draw << 17;
        (self.draw >> 11) % (2 * interval - 1)
    }
}

/// A thread's lists during a session.
#[derive(Debug)]
pub(super) struct SessionLists {
    pub(super) number: u64,
    pub(super) by_ns: Option<SpaceSaving>,
    pub(super) by_bytes: Option<SpaceSaving>,
}
