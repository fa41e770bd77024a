//! Fences: numbers that grow with each change of the owner of a lock, see `command::lock`.
//!
//! A lock is an ordinary hash, so that clients of other libraries can take and read it, and its fence has no place in
//! there. It lies beside the table of keys, as long as the key is there: an entry that leaves the table, or is
//! replaced, takes its fence along ([`Db`]). As any command may edit the hash, a fence is also bound to the owner that
//! it was drawn for: a lock that came to another owner by plain commands has none.
//!
//! All shards draw from one [`FenceSource`], so a fence belongs to one lock only, and goes on to grow where a lock is
//! renamed, moved to another database or taken again in another shard.
//!
//! The fences that are in force go into snapshots as aux fields, and into the log as a record that changes nothing
//! elsewhere ([`FenceNote`]). Servers that know nothing of fences skip both. Slots that go to another node take along
//! the fences of their locks and, at the end, the last one that this server has drawn: the other node's clock may be
//! behind.
//!
//! [`Db`]: super::db::Db
//!
//! What handlers ask is in [`super::locks`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Now;
use crate::alloc::account;
use crate::base::hash::digest;
use crate::base::{maps, number};

/// Where the fences of a server come from.
#[derive(Debug, Default)]
pub struct FenceSource(AtomicU64);

impl FenceSource {
    /// A fence larger than all before, and at least the clock in microseconds: a server that lost what it had drawn
    /// last goes on above it, unless it drew more than one each microsecond or its clock was set back.
    pub fn next(&self, now: Now) -> u64 {
        let clock_us = now.unix_ms.saturating_mul(1_000);
        let after = |last: u64| Some(last.saturating_add(1).max(clock_us));
        let last = self.0.fetch_update(Relaxed, Relaxed, after);
        let last = last.unwrap_or_else(|last| last);
        after(last).unwrap_or(last)
    }

    /// All fences from now on are larger than this one.
    pub fn raise(&self, fence: u64) {
        self.0.fetch_max(fence, Relaxed);
    }

    /// The last one, 0 if there was none yet.
    pub fn last(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A fence, and the owner that it was drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The number.
    pub number: u64,
    /// Digest of the owner's name.
    pub owner: u64,
}

impl Fence {
    /// The digest of no owner: the fence is the last one that was drawn, and no lock's.
    pub const NOBODY: u64 = 0;

    /// A fence of an owner.
    pub fn of(number: u64, owner: &[u8]) -> Fence {
        let owner = digest(owner);
        Fence { number, owner }
    }

    /// Whether it was drawn for this owner.
    pub fn is_of(&self, owner: &[u8]) -> bool {
        self.owner == digest(owner)
    }
}

/// What servers tell each other of a fence, as a text: `basalt:fence:NUMBER:OWNER`, the digest of the owner in
/// hexadecimal. In the log it is the name of a field that a hash is said to lose and never had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceNote(pub Fence);

impl FenceNote {
    /// Tells of the last fence that was drawn, whatever lock it was for.
    pub fn of_last(number: u64) -> FenceNote {
        FenceNote(Fence {
            number,
            owner: Fence::NOBODY,
        })
    }
}

const NOTE: &[u8] = b"basalt:fence:";

impl FenceNote {
    /// The text.
    pub fn text(&self) -> String {
        let Fence { number, owner } = self.0;
        format!("basalt:fence:{number}:{owner:016x}")
    }

    /// The fence that a text tells of, if it is such a text.
    pub fn parse(text: &[u8]) -> Option<FenceNote> {
        let rest = text.strip_prefix(NOTE)?;
        let colon = memchr::memchr(b':', rest)?;
        let number = u64::try_from(number::parse_i64(&rest[..colon])?).ok()?;
        let owner = std::str::from_utf8(&rest[colon + 1..]).ok()?;
        let owner = u64::from_str_radix(owner, 16).ok()?;
        Some(FenceNote(Fence { number, owner }))
    }
}

/// The fences of a database by the keys of their locks.
pub type ByKey = HashMap<Box<[u8]>, Fence>;

/// The fences of one database of a shard.
///
/// Invariant: each is of a key that is in the table.
#[derive(Debug, Default)]
pub(super) struct Fences {
    /// Shared with a snapshot that has yet to write them: the first change behind its cut makes a copy.
    by_key: Arc<ByKey>,
    /// What the fences were before the attempt that is on, each once it changed.
    before: Option<Vec<Change>>,
}

/// A key, and the fence that it had.
type Change = (Box<[u8]>, Option<Fence>);

impl Fences {
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(super) fn of(&self, key: &[u8]) -> Option<Fence> {
        self.by_key.get(key).copied()
    }

    /// All of them as they are now.
    pub(super) fn at_cut(&self) -> Arc<ByKey> {
        Arc::clone(&self.by_key)
    }

    /// Fences to change. What a snapshot still reads is freed on its thread, so that the shard must not pay for a copy.
    fn own(&mut self) -> &mut ByKey {
        if Arc::get_mut(&mut self.by_key).is_none() {
            account::apart(|| self.by_key = Arc::new((*self.by_key).clone()));
        }
        Arc::make_mut(&mut self.by_key)
    }

    pub(super) fn put(&mut self, key: &[u8], fence: Fence) {
        let before = self.own().insert(key.into(), fence);
        self.note(key, before);
    }

    /// The lock is not there any more.
    pub(super) fn remove(&mut self, key: &[u8]) {
        if !self.by_key.contains_key(key) {
            return;
        }
        let by_key = self.own();
        let before = by_key.remove(key);
        maps::shrink(by_key);
        self.note(key, before);
    }

    fn note(&mut self, key: &[u8], before: Option<Fence>) {
        if let Some(all) = &mut self.before {
            account::apart(|| all.push((key.into(), before)));
        }
    }

    /// From now on changes can be undone.
    pub(super) fn keep_changes(&mut self) {
        self.before.get_or_insert_default();
    }

    /// No more.
    pub(super) fn forget_changes(&mut self) {
        account::apart(|| self.before = None);
    }

    /// The database is emptied, maybe by the attempt whose changes are kept.
    pub(super) fn forget(&mut self) {
        self.forget_changes();
        if !self.by_key.is_empty() {
            self.own();
            self.by_key = Arc::default();
        }
    }

    /// Goes back to where changes began to be kept.
    pub(super) fn undo(&mut self) {
        let Some(before) = self.before.take().filter(|before| !before.is_empty()) else {
            return;
        };
        let by_key = self.own();
        for (key, fence) in before.iter().rev() {
            match fence {
                Some(fence) => by_key.insert(key.clone(), *fence),
                None => by_key.remove(key),
            };
        }
        account::apart(|| drop(before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_grow_by_one_and_with_the_clock() {
        let source = FenceSource::default();
        let at = |unix_ms| Now { unix_ms };
        assert_eq!(source.next(at(5)), 5_000);
        assert_eq!(source.next(at(5)), 5_001);
        assert_eq!(source.next(at(4)), 5_002, "the clock was set back");
        assert_eq!(source.next(at(7)), 7_000);
        source.raise(9_000);
        source.raise(8_000);
        assert_eq!((source.next(at(7)), source.last()), (9_001, 9_001));
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_nothing_else_is_one() {
        let note = FenceNote(Fence::of(1_700_000_000_000_000, b"me"));
        assert_eq!(FenceNote::parse(note.text().as_bytes()), Some(note));
        for text in [
            &b""[..],
            b"basalt:fence:",
            b"basalt:fence:1",
            b"basalt:fence:-1:00",
            b"basalt:fence:1:xyz",
            b"basalt:fence:1:11112222333344445",
            b"other",
        ] {
            assert_eq!(FenceNote::parse(text), None);
        }
    }

    #[test]
    fn what_changed_can_be_undone_and_a_cut_stays_as_it_is() {
        let mut fences = Fences::default();
        let [one, two, three] = [1, 2, 3].map(|number| Fence::of(number, b"owner"));
        fences.put(b"a", one);
        fences.put(b"b", two);
        let cut = fences.at_cut();
        fences.keep_changes();
        fences.remove(b"a");
        fences.put(b"a", three);
        fences.put(b"c", three);
        fences.remove(b"b");
        fences.undo();
        let now = [b"a", b"b", b"c"].map(|key| fences.of(key));
        assert_eq!(now, [Some(one), Some(two), None]);
        fences.remove(b"a");
        fences.remove(b"b");
        assert!(fences.is_empty());
        assert_eq!(cut.len(), 2);
    }
}
