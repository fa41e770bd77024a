//! What an entry says of its key beside the value and the deadline: for how long it counts as stale before its time is
//! over, and which tags it has.
//!
//! ```text
//! words of an entry    stale window in milliseconds, 0: none | number of a tag | …
//! ```
//!
//! Most keys have no words, and pay nothing. Numbers of tags mean something in their database alone
//! ([`db::tags`](super::db)): an entry that goes elsewhere leaves them behind, and gets others by their names. An edit
//! of a value keeps both, and so does a new deadline; what overwrites the value takes them away.

use smallvec::SmallVec;

use super::Now;
use super::value::Object;
use basalt_core::structures::entry::EntryRef;
use basalt_core::structures::entry::words::WORDS_MAX;

/// Most tags of a key: one word is the stale window.
pub const TAGS_MAX: usize = WORDS_MAX - 1;

/// Bytes of a tag at most.
pub const TAG_BYTES_MAX: usize = 4096;

/// For how long before its end a key counts as stale, in milliseconds; 0 if it never does.
#[inline]
pub fn stale_ms(entry: EntryRef<'_, Object>) -> u32 {
    match entry.has_words() {
        true => entry.words().next().unwrap_or(0),
        false => 0,
    }
}

/// The numbers of an entry's tags.
pub(crate) fn tag_ids(entry: EntryRef<'_, Object>) -> impl Iterator<Item = u32> {
    entry.words().skip(1)
}

/// Whether a key is past its fresh time.
pub fn is_stale(entry: EntryRef<'_, Object>, now: Now) -> bool {
    let window_ms = u64::from(stale_ms(entry));
    let at_ms = entry.deadline().filter(|_| window_ms > 0);
    at_ms.is_some_and(|at_ms| now.unix_ms > at_ms.saturating_sub(window_ms))
}

/// An entry's marks as others know them.
#[derive(Clone, Debug, Default)]
pub struct Marks<'a> {
    /// See [`stale_ms`].
    pub stale_ms: u32,
    /// Names of tags.
    pub tags: SmallVec<[&'a [u8]; 4]>,
}

impl Marks<'_> {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.stale_ms == 0 && self.tags.is_empty()
    }
}
