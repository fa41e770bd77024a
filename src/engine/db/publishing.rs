//! What a database is charged for and publishes, under the number that it has.

use std::sync::Arc;

use super::Db;
use crate::published::{Published, PublishedDb};
use crate::sizes::SizeOf;
use crate::value::Text;
use basalt_core::alloc::account;
use basalt_core::structures::table::Place;

impl Db {
    /// Runs a change and charges what it allocated or freed.
    pub(crate) fn charged<R>(&mut self, change: impl FnOnce(&mut Db) -> R) -> R {
        let before = account::charged_bytes();
        let result = change(self);
        self.add_used(account::charged_bytes() - before);
        result
    }

    /// Charges bytes to the database and its shard, or takes them back, when negative.
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

    /// How many keys there are, and hashes with deadlines of fields; see [`Db::publish_deadlines`] too.
    pub(super) fn publish(&self) {
        let db = &self.published.dbs[self.index];
        db.keys.set(self.table.len() as u64);
        db.field_volatile_keys.set(self.field_volatile_count as u64);
    }

    /// Takes this database out of what is published: another one will show itself in its place.
    pub(crate) fn hide(&mut self) {
        self.is_shown = false;
        // From now on it alone has them, and frees them with the rest.
        self.published_of_own().set_sizes(None);
        self.table.set_published(None);
    }

    /// SWAPDB: this database now has another number.
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
        let sizes = Arc::clone(&self.sizes);
        self.published_of_own().set_sizes(Some(sizes));
    }

    /// How many bytes a string has.
    pub(crate) fn text_len(&self, place: Place) -> usize {
        Text::of(self.at(place)).map_or(0, |text| text.len())
    }

    /// A string that had so many bytes may have others.
    pub(crate) fn note_resized_text(&self, before: usize, place: Place) {
        let before = Some(SizeOf::of_text(before));
        self.sizes.changed(before, SizeOf::of(self.at(place)));
    }

    /// Belongs to another shard from now on, under this number.
    pub(crate) fn join(&mut self, published: Arc<Published>, index: usize) {
        self.published = published;
        self.move_to(index);
    }
}
