//! Copies of strings that threads read without the shard's token, see [`copies`](basalt_core::structures::copies).

use std::sync::Arc;

use super::{Db, HAS_COPIES, next_due};
use crate::value::Text;
use crate::{Engine, Key, Now};
use basalt_core::alloc::account;
use basalt_core::structures::copies::Validity;
use basalt_core::structures::table::EntrySlot;

/// A copy of a string.
#[derive(Debug)]
pub struct TextCopy {
    /// The string.
    pub bytes: Box<[u8]>,
    /// The Unix time in milliseconds from which on the key may have expired; `u64::MAX` if it has no deadline.
    pub until_ms: u64,
    /// Whether the copy is still equal to the value.
    pub validity: Arc<Validity>,
    /// The positions that a reply with the copy reflects.
    pub seen: Seen,
}

/// The positions that the replies of a shard reflect at some time, see [`Effects`](crate::effect::Effects).
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// The stamp of the last effect.
    pub stamp: u64,
    /// The position up to which messages to other clients must be delivered first.
    pub position: u64,
    /// The position of the log that must be on disk first, where replies wait for that.
    pub log_position: u64,
}

impl Db {
    /// Copies the string under a key. Returns None unless there is a string of at most `bytes_max` bytes, with no marks
    /// (a stale window or tags) that would have to be compared at each read.
    fn copy_text(&mut self, key: &Key<'_>, bytes_max: usize) -> Option<TextCopy> {
        let entry = self.table.get(key.hash, key.bytes)?;
        let text = Text::of(entry)?;
        if entry.has_words() || text.len() > bytes_max {
            return None;
        }
        let until_ms = next_due(entry).unwrap_or(u64::MAX);
        account::uncharged(|| {
            let bytes = text.to_vec().into();
            self.hooks |= HAS_COPIES;
            Some(TextCopy {
                bytes,
                until_ms,
                validity: self.copied.get_or_insert_default().copied(key.hash),
                seen: Seen::default(),
            })
        })
    }

    /// Ends the copies of the entry at `place`, which is about to change.
    #[inline]
    pub(super) fn end_copies(&mut self, place: EntrySlot) {
        if self.hooks & HAS_COPIES != 0 {
            self.end_copies_slowly(place);
        }
    }

    fn end_copies_slowly(&mut self, place: EntrySlot) {
        let Some(copied) = &mut self.copied else {
            return;
        };
        if !copied.may_have(self.table.hash_byte(place)) {
            return;
        }
        let hash = self.seed.hash(self.table.at(place).key());
        account::uncharged(|| copied.end(hash));
        if copied.is_empty() {
            self.end_all_copies();
        }
    }

    /// Ends all copies: the database is about to be hidden.
    pub(super) fn end_all_copies(&mut self) {
        self.hooks &= !HAS_COPIES;
        account::uncharged(|| self.copied = None);
    }
}

impl Engine {
    /// Copies the string under a key, see [`TextCopy`], unless it is longer than `bytes_max` bytes.
    pub fn copy_text(
        &mut self,
        db: usize,
        key: &Key<'_>,
        bytes_max: usize,
        now: Now,
    ) -> Option<TextCopy> {
        let mut copy = self.db_mut(db)?.copy_text(key, bytes_max)?;
        copy.seen = Seen {
            stamp: self.effects.stamp(),
            position: self.effects.position(),
            log_position: self.effects.log_position(),
        };
        (now.unix_ms < copy.until_ms).then_some(copy)
    }
}
