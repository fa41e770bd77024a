//! A hash tag for each slot, with which a text that is not a key can be routed to the node of that slot.

use std::sync::LazyLock;

use super::hash::{SLOTS, crc16};

/// The text between the braces.
pub type Tag = [u8; 3];

const SYMBOLS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The tags by slot. Some 200,000 short hashes, a few milliseconds, are computed when the first tag is requested.
static TAGS: LazyLock<Box<[Tag]>> = LazyLock::new(|| {
    let mut tags: Vec<Option<Tag>> = vec![None; usize::from(SLOTS)];
    for &first in SYMBOLS {
        for &second in SYMBOLS {
            for &third in SYMBOLS {
                let tag = [first, second, third];
                tags[usize::from(crc16(&tag) & (SLOTS - 1))].get_or_insert(tag);
            }
        }
    }
    let all: Option<Box<[Tag]>> = tags.into_iter().collect();
    all.expect("three letters are enough, see the test")
});

/// Returns the tag of a slot.
#[must_use]
pub fn of(slot: u16) -> Tag {
    TAGS[usize::from(slot)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash::slot;

    #[test]
    fn each_slot_has_a_tag() {
        for number in 0..SLOTS {
            let tag = of(number);
            assert_eq!(slot(&[b"0-{", &tag[..], b"}-0"].concat()), number);
        }
        assert_eq!(&of(0), b"06S");
    }
}
