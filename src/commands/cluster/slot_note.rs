//! Slots whose keys may have to be deleted on this server, as recorded in the log and in snapshots until that is
//! decided: a server that was killed meanwhile, or a replica that is promoted, deletes the keys of slots that it does
//! not own.
//!
//! ```text
//! COMING name slot|first-last …    keys arrive by an unfinished move: they stay if the slots do
//! GOING name slot|first-last …     the slots belong to another node, or are about to: remaining keys are deleted
//! OVER name                        the end of either
//! ```

use super::node_id::NodeId;
use super::slot_set::SlotSet;
use basalt_core::base::hash::SLOTS;
use basalt_core::base::number;

/// Slots whose keys may have to be deleted, see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotNote {
    /// Name of the slot migration, or of the deletion.
    pub name: NodeId,
    /// Whether the keys are arriving, rather than leaving.
    pub is_coming: bool,
    /// The slots whose keys may have to be deleted.
    pub slots: SlotSet,
}

impl SlotNote {
    /// Returns the arguments of the note.
    #[must_use]
    pub fn words(&self) -> Vec<Vec<u8>> {
        let kind: &[u8] = if self.is_coming { b"COMING" } else { b"GOING" };
        let mut words = vec![kind.to_vec(), self.name.as_bytes().to_vec()];
        let ranges = self.slots.ranges();
        words.extend(ranges.map(|(first, last)| match first == last {
            true => first.to_string().into_bytes(),
            false => format!("{first}-{last}").into_bytes(),
        }));
        words
    }

    /// Returns the arguments separated by spaces.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        self.words().join(&b' ')
    }

    /// Parses a note from its arguments; None if they are invalid.
    pub fn parse<'w>(mut words: impl Iterator<Item = &'w [u8]>) -> Option<SlotNote> {
        let is_coming = match words.next()? {
            b"COMING" => true,
            b"GOING" => false,
            _ => return None,
        };
        let name = NodeId::from_text(words.next()?)?;
        let mut slots = SlotSet::default();
        for word in words {
            let slot = |digits| number::parse_u64(digits).and_then(|slot| u16::try_from(slot).ok());
            let (first, last) = match word.iter().position(|byte| *byte == b'-') {
                Some(dash) => (slot(&word[..dash])?, slot(&word[dash + 1..])?),
                None => (slot(word)?, slot(word)?),
            };
            if last >= SLOTS {
                return None;
            }
            (first..=last).for_each(|slot| {
                slots.insert(slot);
            });
        }
        Some(SlotNote {
            name,
            is_coming,
            slots,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &[u8]) -> Option<SlotNote> {
        SlotNote::parse(text.split(|byte| *byte == b' '))
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_nothing_else_is() {
        for is_coming in [true, false] {
            let note = SlotNote {
                name: NodeId::from_random([7; 20]),
                is_coming,
                slots: (5..9).chain([16383]).collect(),
            };
            assert_eq!(parsed(&note.text()), Some(note));
        }
        // An aux field of a snapshot must be able to hold the longest note.
        let longest = SlotNote {
            name: NodeId::from_random([7; 20]),
            is_coming: true,
            slots: (0..16384).step_by(2).collect(),
        };
        assert!(longest.text().len() < 64 * 1024);
        let name = "07".repeat(20);
        for wrong in [
            "COMING".to_owned(),
            "COMING short 1-2".to_owned(),
            format!("STAYING {name} 1-2"),
            format!("COMING {name} 1-16384"),
            format!("COMING {name} a-b"),
        ] {
            assert_eq!(parsed(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
