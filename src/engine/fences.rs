//! Fencing tokens: numbers that grow with each change of a lock's owner, see `command::lock`.
//!
//! A lock is an ordinary hash, so that clients of other libraries can take and read it, and its fencing token
//! cannot be stored inside. It is kept beside the table of keys for as long as the key exists: an entry that leaves
//! the table or is replaced takes its token along ([`Db`]). As any command may edit the hash, a token is also bound
//! to the owner that it was issued to: a lock that changed its owner by plain commands has none.
//!
//! All shards draw from one [`FenceSource`], so a token belongs to one lock only, and tokens keep growing when a
//! lock is renamed, moved to another database or taken again in another shard.
//!
//! Tokens in force go into snapshots as aux fields and into the log as notes ([`note`], records that other servers
//! ignore). Servers without fencing skip the aux fields and the notes. Slots that migrate to another node take along
//! the tokens of their locks and, at the end, the last one issued by this server, as the other node's clock may be
//! behind.
//!
//! Tokens issued by other servers are bounded: one that is more than a day ahead of this server's clock is rejected,
//! or a single bad token would use up the range of tokens.
//!
//! [`Db`]: super::db::Db
//! [`note`]: super::note
//!
//! The interface for command handlers is in [`super::locks`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Now;
use basalt_core::alloc::account;
use basalt_core::base::hash::digest;
use basalt_core::base::{maps, number};

/// The largest fencing token: replies send it as a signed number.
const FENCE_MAX: u64 = i64::MAX as u64;

/// Maximum distance of another server's token ahead of this server's clock, in microseconds: one day.
const AHEAD_US_MAX: u64 = 24 * 60 * 60 * 1_000_000;

/// Source of a server's fencing tokens.
#[derive(Debug, Default)]
pub struct FenceSource(AtomicU64);

impl FenceSource {
    /// Returns a token that is larger than all earlier ones and at least the clock in microseconds: so a server that
    /// lost its last token continues above that token, unless it issued more than one per microsecond or its clock
    /// was set back.
    pub fn next(&self, now: Now) -> u64 {
        let clock_us = clock_us(now);
        let after = |last: u64| Some(last.saturating_add(1).max(clock_us).min(FENCE_MAX));
        let last = self.0.fetch_update(Relaxed, Relaxed, after);
        let last = last.unwrap_or_else(|last| last);
        after(last).unwrap_or(last)
    }

    /// Raises the counter so that all later tokens are larger than `fence`, which another server or an earlier run of
    /// this one has issued. Returns an error if it is too far ahead.
    pub fn raise(&self, fence: u64, now: Now) -> Result<(), TooFar> {
        let most = clock_us(now).saturating_add(AHEAD_US_MAX);
        if fence > most.min(FENCE_MAX - 1) {
            return Err(TooFar);
        }
        self.0.fetch_max(fence, Relaxed);
        Ok(())
    }

    /// Returns the last token issued or seen, 0 if there was none yet.
    pub fn last(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

fn clock_us(now: Now) -> u64 {
    now.unix_ms.saturating_mul(1_000)
}

/// A fencing token and the owner that it was issued to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The fencing token's number.
    pub number: u64,
    /// Digest of the owner's name.
    pub owner: u64,
}

impl Fence {
    /// Creates a fence from a token and the name of its owner.
    pub fn of(number: u64, owner: &[u8]) -> Fence {
        let owner = digest(owner);
        Fence { number, owner }
    }

    /// Returns the number and the owner's digest as text, as servers exchange them.
    pub fn texts(self) -> (String, String) {
        (self.number.to_string(), format!("{:016x}", self.owner))
    }

    /// Parses the two texts of [`Fence::texts`].
    pub fn parse(number: &[u8], owner: &[u8]) -> Option<Fence> {
        let number = number::parse_u64(number)?;
        let is_digit = |byte: &u8| byte.is_ascii_hexdigit();
        let owner = std::str::from_utf8(owner).ok();
        let owner =
            owner.filter(|text| text.len() == 16 && text.bytes().all(|byte| is_digit(&byte)))?;
        let owner = u64::from_str_radix(owner, 16).ok()?;
        Some(Fence { number, owner })
    }

    /// True if the token was issued to this owner.
    pub fn is_of(&self, owner: &[u8]) -> bool {
        self.owner == digest(owner)
    }
}

/// Error of [`FenceSource::raise`]: the token is too far ahead to have been issued by a server of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFar;

/// The fencing token of a lock, with the lock's size if it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// The token and its owner.
    pub fence: Fence,
    /// Bytes of the lock while it is held and must not be evicted; 0 otherwise.
    held_bytes: u32,
}

/// The fences of a database by lock key.
pub type ByKey = HashMap<Box<[u8]>, Fenced>;

/// The fences of one database of a shard.
///
/// Invariant: each fence belongs to a key that is in the table.
#[derive(Debug, Default)]
pub(super) struct Fences {
    /// Shared with a snapshot that has not yet written the fences: the first change after its cut makes a copy.
    by_key: Arc<ByKey>,
    /// Previous fences, for undo: one entry per change since the current attempt began.
    before: Option<Vec<FenceChange>>,
    /// Number of locks that are held.
    held_keys: usize,
    held_bytes: usize,
}

/// A key and its previous fence.
pub(super) type FenceChange = (Box<[u8]>, Option<Fenced>);

impl Fences {
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(super) fn of(&self, key: &[u8]) -> Option<Fence> {
        self.by_key.get(key).map(|fenced| fenced.fence)
    }

    /// Returns all fences as they are now, for a snapshot.
    pub(super) fn at_cut(&self) -> Arc<ByKey> {
        Arc::clone(&self.by_key)
    }

    /// Returns the fences for modification. A map that a snapshot still reads is freed on the snapshot's thread, so
    /// the shard must not be charged for the copy.
    fn own(&mut self) -> &mut ByKey {
        if Arc::get_mut(&mut self.by_key).is_none() {
            account::uncharged(|| self.by_key = Arc::new((*self.by_key).clone()));
        }
        Arc::make_mut(&mut self.by_key)
    }

    pub(super) fn put(&mut self, key: &[u8], fence: Fence) {
        let held_bytes = self.by_key.get(key).map_or(0, |fenced| fenced.held_bytes);
        let before = self.own().insert(key.into(), Fenced { fence, held_bytes });
        self.note(key, before);
    }

    /// True if the key is a lock that must not be evicted.
    pub(super) fn is_held(&self, key: &[u8]) -> bool {
        let fenced = self.by_key.get(key);
        fenced.is_some_and(|fenced| fenced.held_bytes != 0)
    }

    /// Records that the key exists and, as a held lock, takes `bytes`; 0 if it may be evicted. Returns whether the
    /// key is a lock, that is, has a fence.
    pub(super) fn hold(&mut self, key: &[u8], bytes: usize) -> bool {
        let held_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let Some(before) = self.by_key.get(key).copied() else {
            return false;
        };
        if before.held_bytes != held_bytes {
            self.count_held(before.held_bytes, held_bytes);
            if let Some(fenced) = self.own().get_mut(key) {
                fenced.held_bytes = held_bytes;
            }
            if (before.held_bytes == 0) != (held_bytes == 0) {
                self.note(key, Some(before));
            }
        }
        held_bytes != 0
    }

    fn count_held(&mut self, before: u32, after: u32) {
        self.held_keys = self.held_keys - usize::from(before != 0) + usize::from(after != 0);
        self.held_bytes = self.held_bytes - before as usize + after as usize;
    }

    /// Returns the number of locks that must not be evicted.
    pub(super) fn held_keys(&self) -> usize {
        self.held_keys
    }

    /// Returns the bytes of locks that must not be evicted.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Removes the fence of a lock that no longer exists.
    pub(super) fn remove(&mut self, key: &[u8]) {
        if !self.by_key.contains_key(key) {
            return;
        }
        let by_key = self.own();
        let before = by_key.remove(key);
        maps::shrink(by_key);
        self.count_held(before.map_or(0, |fenced| fenced.held_bytes), 0);
        self.note(key, before);
    }

    fn note(&mut self, key: &[u8], before: Option<Fenced>) {
        if let Some(all) = &mut self.before {
            account::uncharged(|| all.push((key.into(), before)));
        }
    }

    /// Starts recording changes for undo.
    pub(super) fn keep_changes(&mut self) {
        self.before.get_or_insert_default();
    }

    /// Stops recording changes.
    pub(super) fn forget_changes(&mut self) {
        account::uncharged(|| self.before = None);
    }

    /// Drops all fences, as the database is emptied, maybe by the attempt whose changes are recorded.
    pub(super) fn forget(&mut self) {
        self.forget_changes();
        if !self.by_key.is_empty() {
            self.own();
            self.by_key = Arc::default();
            (self.held_keys, self.held_bytes) = (0, 0);
        }
    }

    /// Reverts to the fences at the time when recording began and returns the changes. The caller must
    /// [set](Fences::hold) the bytes of each key that is held again.
    pub(super) fn undo(&mut self) -> Vec<FenceChange> {
        let before = self.before.take().unwrap_or_default();
        for (key, fenced) in before.iter().rev() {
            let gone = match fenced {
                Some(fenced) => self.own().insert(key.clone(), *fenced),
                None => self.own().remove(key),
            };
            let held = |fenced: Option<Fenced>| fenced.map_or(0, |fenced| fenced.held_bytes);
            self.count_held(held(gone), held(*fenced));
        }
        before
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
        assert_eq!(source.raise(9_000, at(7)), Ok(()));
        assert_eq!(source.raise(8_000, at(7)), Ok(()));
        assert_eq!((source.next(at(7)), source.last()), (9_001, 9_001));
    }

    #[test]
    fn a_fence_that_is_a_day_ahead_of_the_clock_is_not_taken_over() {
        const NOW: Now = Now {
            unix_ms: 1_700_000_000_000,
        };
        let most = NOW.unix_ms * 1_000 + AHEAD_US_MAX;
        let source = FenceSource::default();
        for fence in [most + 1, FENCE_MAX - 1, FENCE_MAX, FENCE_MAX + 1, u64::MAX] {
            assert_eq!(source.raise(fence, NOW), Err(TooFar), "{fence}");
        }
        assert_eq!((source.last(), source.raise(most, NOW)), (0, Ok(())));
        assert_eq!(source.next(NOW), most + 1);
        // Even a clock at the end of time makes no token negative for a client.
        let end_of_time = Now { unix_ms: u64::MAX };
        assert_eq!(source.raise(FENCE_MAX, end_of_time), Err(TooFar));
        let drawn = source.next(end_of_time);
        assert_eq!(i64::try_from(drawn), Ok(i64::MAX));
    }

    #[test]
    fn a_fence_is_read_as_it_was_written_and_nothing_else_is_one() {
        let fence = Fence::of(1_700_000_000_000_000, b"me");
        let (number, owner) = fence.texts();
        assert_eq!(
            Fence::parse(number.as_bytes(), owner.as_bytes()),
            Some(fence)
        );
        for (number, owner) in [
            ("", "0123456789abcdef"),
            ("-1", "0123456789abcdef"),
            ("1 ", "0123456789abcdef"),
            ("18446744073709551616", "0123456789abcdef"),
            ("1", ""),
            ("1", "123456789abcdef"),
            ("1", "+123456789abcdef"),
            ("1", "0123456789abcdefg"),
        ] {
            assert_eq!(Fence::parse(number.as_bytes(), owner.as_bytes()), None);
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
