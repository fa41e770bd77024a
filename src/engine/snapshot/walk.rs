//! The cut of databases and shards, the walk in slices, and saving entries that are about to change: see
//! [`snapshot`](super).

use std::collections::VecDeque;
use std::sync::Arc;

use super::{DatabaseProgress, DbAtCut, LOOK_BYTES, Outlet, STEP_SLOTS};
use crate::Engine;
use crate::db::Db;
use crate::db::tags::marks_at_cut;
use crate::value::list::settle_late;
use crate::value::object::{entry_bytes, under_way};
use crate::value::{Object, Trash};
use basalt_core::alloc::account;
use basalt_core::structures::entry::EntryRef;
use basalt_core::structures::table::EntrySlot;

impl Db {
    /// Makes the cut: the current contents are to be saved, and passed to this outlet.
    fn begin_saving(&mut self, number: usize, outlet: Arc<dyn Outlet>) {
        debug_assert!(!self.is_saving(), "one snapshot at a time");
        self.table.flip_parity();
        self.cut_tags();
        let saving = account::uncharged(|| Box::new(DatabaseProgress::new(number, outlet)));
        self.set_saving(Some(saving));
    }

    /// Saves the entry at `place`, which is about to be changed or removed, unless it has been saved already.
    #[cold]
    #[inline(never)]
    pub(crate) fn save_unsaved(&mut self, place: EntrySlot) {
        if self.table.saved(place) {
            return;
        }
        let (table, saving, tags) = self.saving_parts();
        if let Some(saving) = saving
            && let Some(marks) = account::uncharged(|| marks_at_cut(tags, table.at(place)))
        {
            match saving.is_by_piece(table.at(place)) {
                true => saving.begin(&mut table.edit(place), &marks),
                false => {
                    let entry = table.at(place);
                    saving.outlet.note_copied(entry_bytes(entry));
                    saving.encode(entry, &marks);
                }
            }
            account::uncharged(|| drop(marks));
        }
        table.mark_saved(place);
    }

    /// True if removing the entry at `place` would free no memory now, because a part of it is yet to be saved.
    #[inline]
    pub(crate) fn is_kept_by_snapshot(&mut self, place: EntrySlot) -> bool {
        self.is_saving() && self.is_unsaved_large(place)
    }

    #[cold]
    fn is_unsaved_large(&mut self, place: EntrySlot) -> bool {
        let is_saved = self.table.saved(place);
        let (table, saving) = self.table_and_saving();
        let entry = table.at(place);
        under_way(entry).is_some()
            || !is_saved && saving.is_some_and(|saving| saving.is_by_piece(entry))
    }

    /// Continues with collections that are saved in pieces. Returns true while anything is left.
    fn save_larges(&mut self, goes_on: &mut dyn FnMut() -> bool) -> bool {
        loop {
            let (table, Some(saving)) = self.table_and_saving() else {
                return false;
            };
            if saving.larges.is_empty() {
                return false;
            }
            let open = saving.open.take();
            let next = || account::uncharged(|| saving.larges.first().cloned());
            let Some(key) = open.or_else(next) else {
                return false;
            };
            let Some(place) = table.find(table.hash(&key), &key) else {
                debug_assert!(
                    false,
                    "a large collection that is removed is forgotten here first"
                );
                saving.forget(&key);
                continue;
            };
            let more = self.charged(|db| {
                let mut entry = db.table.edit(place);
                let object = entry.object_mut();
                object.is_some_and(|object| object.save_some(goes_on))
            });
            let (_, Some(saving)) = self.table_and_saving() else {
                return false;
            };
            if more {
                saving.open = Some(key);
                return true;
            }
            saving.forget(&key);
            account::uncharged(|| drop(key));
            self.edit(place, settle_late);
            if !goes_on() {
                return true;
            }
        }
    }

    /// Records that an entry whose save is in progress has left the table, so that the save no longer looks it up
    /// there.
    #[cold]
    #[inline(never)]
    pub(crate) fn forget_under_way(&mut self, entry: EntryRef<'_, Object>) {
        if under_way(entry).is_some()
            && let Some(saving) = self.table_and_saving().1
        {
            saving.forget(entry.key());
        }
    }

    /// Records a new entry: if the save of its collection is in progress, the save continues in this database.
    pub(crate) fn note_under_way(&mut self, place: EntrySlot) {
        let entry = self.at(place);
        let Some(large) = under_way(entry) else {
            return;
        };
        let (key, outlet) = account::uncharged(|| {
            let key: Box<[u8]> = entry.key().into();
            (key, Arc::clone(large.outlet()))
        });
        if !self.is_saving() {
            let mut saving =
                account::uncharged(|| Box::new(DatabaseProgress::new(self.number(), outlet)));
            // The database was not part of the cut: it has no entries of its own to save.
            saving.is_walked = true;
            self.set_saving(Some(saving));
        }
        if let Some(saving) = self.table_and_saving().1 {
            account::uncharged(|| saving.larges.insert(key));
        }
    }

    /// Continues the walk. Returns true while it is not at its end. `goes_on` is called every few entries.
    fn save_slice(&mut self, goes_on: &mut dyn FnMut() -> bool) -> bool {
        let mut places = smallvec::SmallVec::<[EntrySlot; 4 * STEP_SLOTS]>::new();
        loop {
            if self.save_larges(goes_on) {
                return true;
            }
            let (table, Some(saving), tags) = self.saving_parts() else {
                return false;
            };
            if saving.is_walked {
                return false;
            }
            places.clear();
            let next = table.walk(saving.cursor, STEP_SLOTS, |place, _, is_saved| {
                if !is_saved {
                    places.push(place);
                }
            });
            if !saving.outlet.is_given_up() {
                places.iter().for_each(|&place| table.prefetch_entry(place));
            }
            let mut looked_at_bytes = saving.encoded_bytes;
            for (index, &place) in places.iter().enumerate() {
                if let Some(marks) = account::uncharged(|| marks_at_cut(tags, table.at(place))) {
                    match saving.is_by_piece(table.at(place)) {
                        true => saving.begin(&mut table.edit(place), &marks),
                        false => saving.encode(table.at(place), &marks),
                    }
                    account::uncharged(|| drop(marks));
                }
                table.mark_saved(place);
                if saving.encoded_bytes - looked_at_bytes > LOOK_BYTES && index + 1 < places.len() {
                    looked_at_bytes = saving.encoded_bytes;
                    if !goes_on() {
                        // The walk visits this position again, and recognizes entries that have been saved.
                        return true;
                    }
                }
            }
            saving.cursor = next;
            saving.is_walked = next == 0;
            if !goes_on() {
                return true;
            }
        }
    }

    /// Ends the save, as every entry has been saved.
    fn end_saving(&mut self) {
        account::uncharged(|| {
            if let Some(saving) = self.set_saving(None) {
                debug_assert!(saving.larges.is_empty());
                let DatabaseProgress { outlet, chunk, .. } = *saving;
                if chunk.keys > 0 && !outlet.is_given_up() {
                    outlet.give(chunk);
                }
            }
        });
    }

    /// Ends the save of a database without keys, which is removed: it has nothing left to save.
    pub(crate) fn end_saving_of_nothing(&mut self) {
        debug_assert!(self.is_empty());
        if self.is_saving() {
            self.end_saving();
        }
    }
}

impl Engine {
    /// Makes the cut: the shard's current contents are to be saved, by [`Engine::save_slice`] and by commands that
    /// change them. Returns the databases that are not empty.
    pub fn begin_snapshot(&mut self, outlet: &Arc<dyn Outlet>) -> Vec<DbAtCut> {
        debug_assert!(!self.is_in_attempt() && !self.is_in_snapshot());
        let mut captured = Vec::new();
        for (number, db) in self.dbs[..self.dbs_end].iter_mut().enumerate() {
            let Some(db) = db.as_deref_mut().filter(|db| !db.is_empty()) else {
                continue;
            };
            db.begin_saving(number, Arc::clone(outlet));
            captured.push(DbAtCut {
                number,
                keys: db.len() as u64,
                volatile_keys: db.volatile_count() as u64,
                fences: db.fences_at_cut().into_iter().collect(),
                blessed: db.blessed_at_cut().into_iter().collect(),
            });
        }
        captured
    }

    /// True if anything of the last cut is still to be saved.
    pub fn is_in_snapshot(&self) -> bool {
        let mut dbs = self.dbs[..self.dbs_end].iter().flatten();
        !self.left_unsaved.is_empty()
            || !self.flushed_unsaved.is_empty()
            || dbs.any(|db| db.is_saving())
    }

    /// Continues saving. Returns true while anything is left. `goes_on` is called every few entries to check the
    /// time, and at least a few entries are saved.
    pub fn save_slice(&mut self, goes_on: &mut dyn FnMut() -> bool) -> bool {
        // Deleted collections come first, because their memory is freed then.
        while let Some(trash) = self.left_unsaved.front_mut() {
            if trash.save_some(goes_on) {
                return true;
            }
            if let Some(trash) = self.left_unsaved.pop_front() {
                self.keep_trash(trash);
            }
            if self.left_unsaved.is_empty() {
                account::uncharged(|| self.left_unsaved = VecDeque::new());
            }
            if !goes_on() {
                return self.is_in_snapshot();
            }
        }
        while let Some(mut db) = self.flushed_unsaved.pop() {
            let more = self.save_some_of(&mut db, goes_on);
            match more {
                true => self.flushed_unsaved.push(db),
                false => self.doom(db),
            }
            if more {
                return true;
            }
            if self.flushed_unsaved.is_empty() {
                self.flushed_unsaved = Vec::new();
            }
            if !goes_on() {
                return self.is_in_snapshot();
            }
        }
        for index in 0..self.dbs_end {
            let Some(mut db) = self.dbs[index].take_if(|db| db.is_saving()) else {
                continue;
            };
            let more = self.save_some_of(&mut db, goes_on);
            self.dbs[index] = Some(db);
            if more {
                return true;
            }
            if !goes_on() {
                return self.is_in_snapshot();
            }
        }
        false
    }

    /// Continues with one database. Returns true while anything is left.
    fn save_some_of(&mut self, db: &mut Db, goes_on: &mut dyn FnMut() -> bool) -> bool {
        let more = db.save_slice(goes_on);
        if !more {
            db.end_saving();
        }
        more
    }

    /// Keeps a collection that was deleted or replaced until it is saved.
    pub(crate) fn keep_left(&mut self, trash: Trash) {
        account::uncharged(|| match trash.is_partly_saved() {
            // Partly saved collections go first: other collections must not come between their parts.
            true => self.left_unsaved.push_front(trash),
            false => self.left_unsaved.push_back(trash),
        });
    }

    /// Keeps a released database until the snapshot has saved it.
    pub(crate) fn keep_unsaved(&mut self, db: Box<Db>) {
        account::uncharged(|| self.flushed_unsaved.push(db));
    }
}
