//! The accounting and the published state of a database, under its number.

use std::sync::Arc;

use super::Db;
use crate::published::{Published, PublishedDb};
use crate::sizes::SizeOf;
use crate::value::Text;
use basalt_core::alloc::account;
use basalt_core::structures::table::EntrySlot;

impl Db {
    /// Runs a change and charges what it allocated or freed.
    pub(crate) fn charged<R>(&mut self, change: impl FnOnce(&mut Db) -> R) -> R {
        let before = account::charged_bytes();
        let result = change(self);
        self.add_used(account::charged_bytes() - before);
        result
    }

    /// Charges bytes to the database and its shard, or credits them if negative.
    #[inline]
    pub(crate) fn add_used(&mut self, bytes: i64) {
        if bytes != 0 {
            self.used_bytes += bytes;
            self.published.add_used(bytes);
            if self.is_shown {
                self.published_of_own().set_used(self.used_bytes);
            }
        }
    }

    pub(crate) fn published_of_own(&self) -> &PublishedDb {
        &self.published.dbs[self.index]
    }

    /// Publishes the number of keys and of hashes with field deadlines; see [`Db::publish_deadlines`] too.
    pub(super) fn publish(&self) {
        let db = &self.published.dbs[self.index];
        db.keys.set(self.table.len() as u64);
        db.field_volatile_keys.set(self.field_volatile_count as u64);
    }

    /// Stops publishing this database: another one will be published in its place.
    pub(crate) fn hide(&mut self) {
        self.is_shown = false;
        self.end_all_copies();
        // From now on only this database refers to the size histograms, and frees them with the rest of its memory.
        self.published_of_own().set_sizes(None);
        self.table.set_published(None);
    }

    /// Gives this database another number (SWAPDB).
    pub(crate) fn move_to(&mut self, index: usize) {
        self.index = index;
        self.is_shown = true;
        self.table
            .set_published(Some(Arc::clone(&self.published.dbs[index].directory)));
        self.publish_all_largest();
        self.publish_slots();
        self.publish();
        self.published_of_own().set_used(self.used_bytes);
        self.publish_deadlines();
        self.publish_held();
        self.publish_blessed();
        let sizes = Arc::clone(&self.sizes);
        self.published_of_own().set_sizes(Some(sizes));
    }

    /// Returns the length of a string in bytes.
    pub(crate) fn text_len(&self, place: EntrySlot) -> usize {
        Text::of(self.at(place)).map_or(0, |text| text.len())
    }

    /// Updates the size histogram after the length of a string may have changed from `before` bytes.
    pub(crate) fn note_resized_text(&self, before: usize, place: EntrySlot) {
        let before = Some(SizeOf::of_text(before));
        self.sizes.changed(before, SizeOf::of(self.at(place)));
    }

    /// Moves this database to another shard, under this number.
    pub(crate) fn join(&mut self, published: Arc<Published>, index: usize) {
        self.published = published;
        self.move_to(index);
    }
}
