//! What one thread knows of hot keys: lists of those that it saw most, see [`hotkeys`](super::hotkeys).

use super::prefixes::uses::Uses;
use basalt_core::structures::space_saving::SpaceSaving;

/// Places of the list by commands that is always kept, in each thread: whatever has more than this part of all uses is
/// in it.
const PLACES_BY_COMMANDS: usize = 256;

/// Places of the list by bytes.
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
    /// How many commands come before the next sample, on average one less than the interval.
    pub(super) fn next(&mut self, interval: u64) -> u64 {
        self.draw ^= self.draw << 13;
        self.draw ^= self.draw >> 7;
        self.draw ^= self.draw << 17;
        (self.draw >> 11) % (2 * interval - 1)
    }
}

/// What a thread saw during a session.
#[derive(Debug)]
pub(super) struct SessionLists {
    pub(super) number: u64,
    pub(super) by_ns: Option<SpaceSaving>,
    pub(super) by_bytes: Option<SpaceSaving>,
}
