//! Stand-in until the timer wheel lands: the same interface over an ordered map.

use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct Wheel {
    items: BTreeMap<u64, Vec<u64>>,
}

impl Wheel {
    /// Fires `item` at `deadline_ms`.
    pub fn arm(&mut self, deadline_ms: u64, item: u64) {
        self.items.entry(deadline_ms).or_default().push(item);
    }

    /// Fires at most `budget` due items; true while more are due.
    pub fn advance(&mut self, now_ms: u64, mut budget: usize, mut fire: impl FnMut(u64)) -> bool {
        while let Some(mut entry) = self.items.first_entry() {
            if *entry.key() > now_ms {
                return false;
            }
            if budget == 0 {
                return true;
            }
            match entry.get_mut().pop() {
                Some(item) => {
                    fire(item);
                    budget -= 1;
                }
                None => drop(entry.remove()),
            }
        }
        false
    }

    /// No item is due before.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.items.keys().next().copied()
    }

    /// Whether nothing is armed.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.items.clear();
    }
}
