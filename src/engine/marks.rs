//! Marks of an entry, beside its value and deadline: how long before its expiry it counts as stale, and its tags.
//! They are stored as 32-bit *words* of the entry.
//!
//! ```text
//! words of an entry    stale window in milliseconds, 0: none | number of a tag | …
//! ```
//!
//! Most keys have no words and no overhead. Tag numbers are local to a database ([`db::tags`](super::db)): an entry
//! that moves elsewhere leaves them behind, and gets new ones by name. Edits of a value and new deadlines keep the
//! marks; overwriting the value removes them.

use smallvec::SmallVec;

use super::Now;
use super::value::Object;
use basalt_core::structures::entry::EntryRef;
use basalt_core::structures::entry::words::WORDS_MAX;

/// Maximum number of tags of a key: one of the entry's words is the stale window.
pub const TAGS_MAX: usize = WORDS_MAX - 1;

/// Maximum length of a tag in bytes.
pub const TAG_BYTES_MAX: usize = 4096;

/// Returns how long before its expiry a key counts as stale, in milliseconds; 0 if it never does.
#[inline]
pub fn stale_ms(entry: EntryRef<'_, Object>) -> u32 {
    match entry.has_words() {
        true => entry.words().next().unwrap_or(0),
        false => 0,
    }
}

/// Returns the numbers of an entry's tags, which are valid in its database only.
pub(crate) fn tag_ids(entry: EntryRef<'_, Object>) -> impl Iterator<Item = u32> {
    entry.words().skip(1)
}

/// True if a key is within its stale window.
pub fn is_stale(entry: EntryRef<'_, Object>, now: Now) -> bool {
    let window_ms = u64::from(stale_ms(entry));
    let at_ms = entry.deadline().filter(|_| window_ms > 0);
    at_ms.is_some_and(|at_ms| now.unix_ms > at_ms.saturating_sub(window_ms))
}

/// An entry's marks in portable form, with tags by name.
#[derive(Clone, Debug, Default)]
pub struct Marks<'a> {
    /// The stale window in milliseconds, see [`stale_ms`].
    pub stale_ms: u32,
    /// Names of the key's tags.
    pub tags: SmallVec<[&'a [u8]; 4]>,
}

impl Marks<'_> {
    /// True if there are no marks.
    pub fn is_empty(&self) -> bool {
        self.stale_ms == 0 && self.tags.is_empty()
    }
}
