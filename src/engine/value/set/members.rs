//! The members of a large set: a table of members, each with an optional deadline.

use crate::value::deadlines::is_live;
use crate::value::deadlines::table::{ElementTable, ElementValue};
use basalt_core::base::random::Random;
use basalt_core::structures::block::Content;
use basalt_core::structures::entry::{Entry, EntryRef};
use basalt_core::structures::item::Item;

/// The members of a large set.
pub type Members = ElementTable<()>;

impl ElementValue for () {
    const EXISTS: bool = false;

    fn of(_: EntryRef<'_, ()>) -> Item<'_> {
        Item::bytes(&[])
    }

    #[inline]
    fn record(member: &[u8], _: Content<'_>, deadline: Option<u64>) -> Entry<()> {
        Entry::bytes(0, member, b"", deadline)
    }

    fn set(_: &mut Entry<()>, _: Content<'_>) {}
}

impl Members {
    /// True if `member` is an unexpired member.
    #[inline]
    pub fn contains(&self, member: &[u8], now_ms: u64) -> bool {
        self.get(member, now_ms).is_some()
    }

    /// Adds a member, unless it exists already. An expired member counts as absent: it is added again, without its
    /// deadline. Returns whether the member was added.
    #[inline]
    pub fn insert(&mut self, member: &[u8], now_ms: u64) -> bool {
        let hash = self.records.hash(member);
        match self.records.find(hash, member) {
            Some(place) if is_live(self.records.at(place), now_ms) => false,
            Some(place) => {
                self.keep(place);
                self.deadlines.change(&mut self.records, place, hash, None);
                true
            }
            None => {
                self.keep_absence(member);
                let record = <()>::record(member, b"".into(), None);
                self.records.insert_new(hash, record);
                true
            }
        }
    }

    /// Removes a member, if it exists. An expired member stays until its expiry is logged. Returns whether it was
    /// removed.
    #[inline]
    pub fn remove(&mut self, member: &[u8], now_ms: u64) -> bool {
        let place = self.records.find(self.records.hash(member), member);
        let place = place.filter(|place| is_live(self.records.at(*place), now_ms));
        if let Some(place) = place {
            self.take(place);
        }
        place.is_some()
    }

    /// Removes a random member, and passes it to `f`.
    pub fn take_random(&mut self, random: &mut Random, now_ms: u64, f: impl FnOnce(&[u8])) {
        if let Some(place) = self.random_place(random, now_ms) {
            f(self.take(place).view().key());
        }
    }
}
