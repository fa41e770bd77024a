//! One database of one shard: the hash table of keys and the timer wheel of deadlines.

mod blessings;
mod copies;
mod deadlines;
pub(super) mod eviction;
mod fences;
mod publishing;
mod slots;
pub(super) mod tags;

use std::sync::Arc;

use super::Key;
use super::blessed::Blessed;
use super::evict::order::{HELD_BIT, Order, VOLATILE_BIT, size_class, with_class};
use super::fences::Fences;
use super::largest::{LARGE_BYTES_MIN, Largest, may_be_large};
use super::own_deadlines::OwnDeadlines;
use super::published::Published;
use super::restored_access::RestoredAccess;
use super::sizes::{SizeOf, Sizes};
use super::snapshot::DatabaseProgress;
use super::snapshot::large::LargeCollectionSave;
use super::undo::log::{Image, KeyBeforeImage, Sharing, UndoImages, copy};
use super::value::lapse::next_element_deadline;
use super::value::object::{entry_bytes, note_entry_bytes, under_way};
use super::value::undone::{take_journal, undo};
use super::value::{CollectionBody, Journal, Object, Part, Trash};
use basalt_core::alloc::account;
use basalt_core::base::hash::HashSeed;
use basalt_core::structures::copies::CopiedKeys;
use basalt_core::structures::entry::{Entry, EntryRef, Value};
use basalt_core::structures::quicklist::End;
use basalt_core::structures::table::{EntrySlot, Table};
use basalt_core::structures::wheel::Wheel;

pub use copies::{Seen, TextCopy};
use deadlines::{Deadlines, Sweep};
pub(super) use deadlines::{expired_from, next_due};
use slots::SlotKeys;
use tags::Tags;

/// A database of a shard, see the module. Mutations charge what they allocate to the shard.
pub struct Db {
    index: usize,
    pub(super) table: Table<Entry<Object>>,
    pub(super) wheel: Wheel,
    /// Deadlines that clients set on this replica; the primary may not know of them.
    pub(super) own_deadlines: Option<Box<OwnDeadlines>>,
    sweep: Option<Sweep>,
    seed: HashSeed,
    deadlines: Deadlines,
    /// Hashes with field deadlines.
    field_volatile_count: usize,
    /// Hashes with more expired fields than one slice deletes.
    pub(super) partly_expired_hashes: Vec<u64>,
    pub(super) restored_access: RestoredAccess,
    pub(super) largest: Largest,
    /// The order in which keys arrived, while memory is limited and the policy needs it.
    pub(super) order: Option<Box<Order>>,
    published: Arc<Published>,
    pub(super) sizes: Arc<Sizes>,
    /// Bytes of this database, which are charged to the shard too.
    used_bytes: i64,
    /// True if this database is the one published under its number, and not one being freed or assembled.
    is_shown: bool,
    /// Flags of the work to do before an entry changes ([`KEEPS_IMAGES`], [`IS_SAVING`] and [`HAS_COPIES`]) and when an
    /// entry is added or removed ([`IS_BY_SLOT`]), combined so that usually one test is enough.
    hooks: u8,
    log: Option<Box<UndoImages>>,
    saving: Option<Box<DatabaseProgress>>,
    /// In a cluster: the keys of each slot.
    by_slot: Option<Box<SlotKeys>>,
    /// Fences of the locks among the keys.
    fences: Fences,
    /// The keys that BLESS protects from eviction ([`HAS_BLESSED`]).
    blessed: Blessed,
    /// The tags of keys, if any has one.
    tags: Option<Box<Tags>>,
    /// The keys whose values threads have copied, if there are any ([`HAS_COPIES`]).
    copied: Option<Box<CopiedKeys>>,
}

/// A transaction or script may have to be rolled back: changes record pre-images.
const KEEPS_IMAGES: u8 = 1;
/// Entries may have to be saved for a snapshot, see [`super::snapshot`].
const IS_SAVING: u8 = 2;
/// Keys are indexed by slot.
const IS_BY_SLOT: u8 = 4;
/// Some keys are locks with fences.
const HAS_FENCES: u8 = 8;
/// Threads have copied some values.
const HAS_COPIES: u8 = 16;
/// Some keys are blessed.
const HAS_BLESSED: u8 = 32;
/// Some keys are protected from eviction, or may come to be.
const HAS_PINS: u8 = HAS_FENCES | HAS_BLESSED;
/// Some hook must run before an entry is changed in place.
const WANTS_CHANGES: u8 = KEEPS_IMAGES | IS_SAVING | HAS_COPIES;
/// Some hook must run before an entry is replaced or removed.
const WANTS_REMOVALS: u8 = IS_SAVING | HAS_COPIES;

impl Db {
    pub(super) fn new(index: usize, seed: HashSeed, published: Arc<Published>, now_ms: u64) -> Db {
        let directory = Arc::clone(&published.dbs[index].directory);
        let sizes = Arc::<Sizes>::default();
        published.dbs[index].set_sizes(Some(Arc::clone(&sizes)));
        Db {
            index,
            table: Table::with_published(seed, directory),
            wheel: Wheel::new(now_ms),
            own_deadlines: None,
            sweep: None,
            seed,
            deadlines: Deadlines::new(now_ms),
            field_volatile_count: 0,
            partly_expired_hashes: Vec::new(),
            restored_access: RestoredAccess::default(),
            largest: Largest::default(),
            order: None,
            published,
            sizes,
            used_bytes: 0,
            is_shown: true,
            hooks: 0,
            log: None,
            saving: None,
            by_slot: None,
            fences: Fences::default(),
            blessed: Blessed::default(),
            tags: None,
            copied: None,
        }
    }

    /// Starts recording images for undo.
    pub(super) fn keep_images(&mut self) {
        self.hooks |= KEEPS_IMAGES;
    }

    /// Stops recording images and returns them, oldest first.
    pub(super) fn take_images(&mut self) -> Vec<Image> {
        self.hooks &= !KEEPS_IMAGES;
        self.log
            .take()
            .map_or_else(Vec::new, |mut log| log.drain().collect())
    }

    /// Stops recording images and returns their log, if there is any.
    #[inline]
    pub(super) fn take_log(&mut self) -> Option<Box<UndoImages>> {
        self.hooks &= !KEEPS_IMAGES;
        self.log.take()
    }

    fn log(&mut self) -> &mut UndoImages {
        self.log.get_or_insert_with(UndoImages::in_kept_room)
    }

    /// Runs the hooks (undo image, snapshot) that must precede a change made in place to the value at `place`.
    #[inline]
    pub(super) fn save(&mut self, place: EntrySlot, sharing: Sharing) {
        if self.hooks & WANTS_CHANGES != 0 {
            self.save_slowly(place, sharing);
        }
    }

    #[cold]
    fn save_slowly(&mut self, place: EntrySlot, sharing: Sharing) {
        self.end_copies(place);
        if self.is_saving() {
            self.save_unsaved(place);
        }
        if self.keeps_images() {
            self.save_copy(place, sharing);
        }
    }

    fn save_copy(&mut self, place: EntrySlot, sharing: Sharing) {
        let hash = self.seed.hash(self.table.at(place).key());
        let _ = self.log();
        let Db { table, log, .. } = self;
        let (entry, Some(log)) = (table.at(place), log) else {
            return;
        };
        if !log.has_value(hash, entry.key()) {
            let was_moved = false;
            let entry = copy(entry, sharing);
            log.keep(hash, KeyBeforeImage::Present { entry, was_moved });
        }
    }

    /// Runs the hooks that must precede the replacement or removal of the entry at `place`; its undo image is recorded
    /// afterwards ([`Db::discard`]).
    #[cold]
    fn save_removed(&mut self, place: EntrySlot) {
        self.end_copies(place);
        if self.is_saving() {
            self.save_unsaved(place);
        }
    }

    /// Runs the hooks that must precede an edit of the value at `place`. Returns the state to pass to [`end_edit`].
    #[cold]
    #[inline(never)]
    fn begin_edit(&mut self, place: EntrySlot) -> Option<EditState> {
        self.end_copies(place);
        let mut is_followed = false;
        if self.is_saving() {
            self.save_unsaved(place);
            is_followed =
                under_way(self.table.at(place)).is_some_and(LargeCollectionSave::follows_changes);
        }
        let image = match self.keeps_images() {
            true => self.begin_image(place),
            false => None,
        };
        if !is_followed {
            return image.map(|(at, _)| EditState {
                image: Some(at),
                from: None,
            });
        }
        // If there is an image, its journal already records changes, after those of earlier edits.
        if image.is_none()
            && let Some(object) = self.table.edit(place).object_mut()
        {
            object.body.keep_changes(None);
        }
        Some(EditState {
            image: image.map(|(at, _)| at),
            from: Some(image.map_or(0, |(_, bytes)| bytes)),
        })
    }

    /// Begins to record an image for undo. A collection that can records its own undo journal; then returns the index
    /// of its image and the bytes of journal recorded so far.
    fn begin_image(&mut self, place: EntrySlot) -> Option<(usize, usize)> {
        let hash = self.seed.hash(self.table.at(place).key());
        let _ = self.log();
        let Db { table, log, .. } = self;
        let (mut entry, Some(log)) = (table.edit(place), log) else {
            return None;
        };
        if log.has_value(hash, entry.view().key()) {
            return None;
        }
        let view = entry.view();
        if let Value::Object(object) = view.value()
            && object.body.copied_bytes(Part::Any).is_some()
        {
            let (at, journal) = match log.take_journal(hash, view.key()) {
                Some(found) => found,
                None => {
                    let (key, deadline) =
                        (account::uncharged(|| view.key().into()), view.deadline());
                    let before = KeyBeforeImage::Changed {
                        key,
                        deadline,
                        words: account::uncharged(|| view.words().collect()),
                        journal: None,
                    };
                    (log.keep(hash, before), None)
                }
            };
            let bytes = journal.as_ref().map_or(0, Journal::bytes);
            if let Some(object) = entry.object_mut() {
                object.body.keep_changes(journal);
            }
            return Some((at, bytes));
        }
        let was_moved = false;
        let entry = copy(view, Sharing::Forbidden);
        log.keep(hash, KeyBeforeImage::Present { entry, was_moved });
        None
    }

    #[cold]
    fn save_deadline(&mut self, place: EntrySlot, hash: u64) {
        self.end_copies(place);
        if self.is_saving() {
            self.save_unsaved(place);
        }
        if !self.keeps_images() {
            return;
        }
        let _ = self.log();
        let Db { table, log, .. } = self;
        let (entry, Some(log)) = (table.at(place), log) else {
            return;
        };
        if !log.has_deadline(hash, entry.key()) {
            let key = account::uncharged(|| entry.key().into());
            log.keep(hash, KeyBeforeImage::Deadline(key, entry.deadline()));
        }
    }

    #[cold]
    fn save_absence(&mut self, hash: u64, key: &[u8]) {
        let log = self.log();
        if !log.has_value(hash, key) {
            let key = account::uncharged(|| key.into());
            log.keep(hash, KeyBeforeImage::Absent(key));
        }
    }

    /// True if the state of a key before its change is recorded already.
    pub(super) fn has_image(&self, key: &Key<'_>) -> bool {
        let log = self.log.as_deref();
        log.is_some_and(|log| log.has_value(key.hash, key.bytes))
    }

    /// Returns the bytes recorded so far in the undo journal of the collection under a key.
    pub(super) fn journal_bytes(&self, key: &Key<'_>) -> usize {
        let log = self.log.as_deref();
        log.map_or(0, |log| log.journal_bytes(key.hash, key.bytes))
    }

    /// Returns the part of a removed entry that must be freed: None if the entry is kept for undo.
    fn discard(&mut self, hash: u64, entry: Entry<Object>) -> Option<Trash> {
        if self.keeps_images() && !self.log().has_value(hash, entry.view().key()) {
            // The entry moves from the shard's account to the undo log, which is charged to no account.
            self.add_used(-(entry_bytes(entry.view()) as i64));
            let was_moved = true;
            self.log()
                .keep(hash, KeyBeforeImage::Present { entry, was_moved });
            return None;
        }
        Trash::from_entry(entry)
    }

    /// Restores the previous state of a key. No images are recorded meanwhile. Returns the replaced entry, which is
    /// no longer charged to this shard.
    pub(super) fn restore(&mut self, image: Image) -> Option<Entry<Object>> {
        let Image { hash, before } = image;
        debug_assert!(!self.keeps_images());
        let found = self.table.find(hash, before.key());
        if let KeyBeforeImage::Changed {
            deadline,
            words,
            journal,
            ..
        } = before
        {
            if let Some(place) = found {
                self.set_words(place, &words);
                if let Some(journal) = &journal {
                    self.edit(place, |entry| undo(entry, journal));
                }
                self.charged(|db| db.set_deadline(place, hash, deadline));
            }
            return None;
        }
        // The image itself must not be freed inside `charged`, as the shard was never charged for it.
        let mut kept = None;
        let gone = self.charged(|db| match (before, found) {
            (absent @ KeyBeforeImage::Absent(_), found) => {
                kept = Some(absent);
                found.map(|place| db.remove_entry(place))
            }
            (KeyBeforeImage::Present { entry, .. }, found) => {
                db.add_used(entry_bytes(entry.view()) as i64);
                let is_under_way = under_way(entry.view()).is_some();
                let (place, gone) = match found {
                    Some(place) => (place, Some(db.replace_entry(place, hash, entry))),
                    None => (db.insert(hash, entry), None),
                };
                if is_under_way {
                    db.note_under_way(place);
                }
                gone
            }
            (KeyBeforeImage::Deadline(key, deadline), found) => {
                kept = Some(KeyBeforeImage::Absent(key));
                if let Some(place) = found {
                    db.set_deadline(place, hash, deadline);
                }
                None
            }
            (KeyBeforeImage::Changed { .. }, _) => None,
        });
        drop(kept);
        if let Some(entry) = &gone {
            self.add_used(-(entry_bytes(entry.view()) as i64));
        }
        gone
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the hash key of the table.
    pub(super) fn seed(&self) -> HashSeed {
        self.seed
    }

    /// True if a transaction or script is running whose changes to this database may be undone.
    #[inline]
    pub(super) fn keeps_images(&self) -> bool {
        self.hooks & KEEPS_IMAGES != 0
    }

    /// True if a snapshot is in progress that includes this database.
    #[inline]
    pub(super) fn is_saving(&self) -> bool {
        self.hooks & IS_SAVING != 0
    }

    /// Sets or clears this database's progress in a snapshot. Returns the previous progress.
    pub(super) fn set_saving(
        &mut self,
        saving: Option<Box<DatabaseProgress>>,
    ) -> Option<Box<DatabaseProgress>> {
        match saving {
            Some(_) => self.hooks |= IS_SAVING,
            None => self.hooks &= !IS_SAVING,
        }
        std::mem::replace(&mut self.saving, saving)
    }

    /// Returns the number of the database.
    pub(super) fn number(&self) -> usize {
        self.index
    }

    /// Returns the table and the progress in a snapshot.
    pub(super) fn table_and_saving(
        &mut self,
    ) -> (&mut Table<Entry<Object>>, Option<&mut DatabaseProgress>) {
        (&mut self.table, self.saving.as_deref_mut())
    }

    /// Returns the number of keys with a deadline.
    pub fn volatile_count(&self) -> usize {
        self.deadlines.count()
    }

    /// Returns the table, for walks.
    pub fn table(&self) -> &Table<Entry<Object>> {
        &self.table
    }

    /// Prefetches the possible entry of a key with this hash, or the memory needed to insert it; reads none of it.
    pub fn prefetch(&self, hash: u64) {
        if !self.table.prefetch_matches(hash)
            && let Some(order) = &self.order
        {
            order.prefetch_new(hash);
        }
    }

    /// Prefetches the memory read at one end of the list under a key.
    pub fn prefetch_end(&self, key: &Key<'_>, end: End) {
        if let Some(object) = self.object(key) {
            object.body.prefetch_end(end);
        }
    }

    /// Prefetches the position of an element of the collection under a key. `is_in_use` tells that the preceding
    /// command works on the collection too.
    pub fn prefetch_element(&self, key: &Key<'_>, name: &[u8], is_in_use: bool) {
        if let Some(object) = self.object(key) {
            object.body.prefetch_element(name, is_in_use);
        }
    }

    /// Returns the object under a key, if there is one.
    #[inline]
    fn object(&self, key: &Key<'_>) -> Option<&Object> {
        match self.table.get(key.hash, key.bytes)?.value() {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    pub(super) fn find(&self, key: &Key<'_>) -> Option<EntrySlot> {
        self.table.find(key.hash, key.bytes)
    }

    pub(super) fn at(&self, place: EntrySlot) -> EntryRef<'_, Object> {
        self.table.at(place)
    }

    /// Reserves capacity for `keys` keys, if the table is empty.
    pub(super) fn reserve(&mut self, keys: usize) {
        self.charged(|db| db.table.reserve_all(keys));
    }

    /// Resizes the table for `keys` keys, or for the existing keys if there are more of them.
    pub(super) fn refit(&mut self, keys: usize) {
        self.charged(|db| db.table.refit(keys));
    }

    pub(super) fn insert(&mut self, hash: u64, entry: Entry<Object>) -> EntrySlot {
        if self.hooks & (KEEPS_IMAGES | IS_BY_SLOT) != 0 {
            self.note_entering(hash, entry.view().key());
        }
        let deadline = entry.view().deadline();
        let field_deadline = next_element_deadline(entry.view());
        let class = match self.order {
            Some(_) => self.class_of(entry.view()),
            None => 0,
        };
        let may_be_large = may_be_large(entry.view());
        let has_words = entry.view().has_words();
        self.sizes.came(SizeOf::of(entry.view()));
        let place = self.table.insert_new(hash, entry);
        if has_words {
            let ids = Db::ids_of(self.at(place));
            self.note_tagged(hash, &ids);
        }
        if may_be_large {
            self.note_large(hash, place);
        }
        let mut bits = 0;
        if let Some(deadline_ms) = deadline {
            self.count_deadline(None, deadline);
            self.arm(hash, expired_from(deadline_ms));
            bits = VOLATILE_BIT;
        }
        if let Some(order) = &mut self.order {
            bits = order.note_new(hash, bits, class, &self.published);
            self.table.set_bits(place, bits);
            self.settle_queue();
        } else if bits != 0 {
            self.table.set_bits(place, bits);
        }
        self.move_field_deadline(hash, None, field_deadline);
        self.publish();
        place
    }

    /// Replaces the entry at `place`. Returns the part of the old one that must be freed.
    pub(super) fn replace(
        &mut self,
        place: EntrySlot,
        hash: u64,
        entry: Entry<Object>,
    ) -> Option<Trash> {
        let old = self.replace_entry(place, hash, entry);
        self.discard(hash, old)
    }

    fn replace_entry(
        &mut self,
        place: EntrySlot,
        hash: u64,
        entry: Entry<Object>,
    ) -> Entry<Object> {
        if self.hooks & WANTS_REMOVALS != 0 {
            self.save_removed(place);
        }
        let deadline = entry.view().deadline();
        let field_deadline = next_element_deadline(entry.view());
        if self.order.is_some() {
            self.reclass(place, self.class_of(entry.view()));
        }
        let is_large = may_be_large(entry.view());
        if entry.view().has_words() {
            let ids = Db::ids_of(entry.view());
            self.note_tagged(hash, &ids);
        }
        let size = SizeOf::of(entry.view());
        let old = self.table.replace(place, entry);
        self.sizes.changed(SizeOf::of(old.view()), size);
        if self.hooks & HAS_PINS != 0 {
            self.settle_replaced(old.view().key(), place);
        }
        if old.view().has_words() {
            let ids = Db::ids_of(old.view());
            self.note_untagged(hash, &ids);
        }
        if self.is_saving() {
            self.forget_under_way(old.view());
        }
        if may_be_large(old.view()) {
            self.forget_large(old.view());
        }
        if is_large {
            self.note_large(hash, place);
        }
        let before = old.view().deadline();
        self.move_field_deadline(hash, next_element_deadline(old.view()), field_deadline);
        if before.is_none() && deadline.is_none() {
            return old;
        }
        self.count_deadline(before, deadline);
        self.mark_volatile(place, hash, deadline.is_some());
        if let Some(deadline_ms) = deadline {
            // Repeated SET … EX must not pile up items: the old one fires first and arms itself again.
            if before.is_none_or(|old_ms| deadline_ms < old_ms) {
                self.arm(hash, expired_from(deadline_ms));
            }
        }
        old
    }

    /// Deletes the entry at `place`. Returns the part of it that must be freed.
    pub(super) fn delete(&mut self, place: EntrySlot) -> Option<Trash> {
        let entry = self.remove_entry(place);
        let hash = match self.keeps_images() {
            true => self.seed.hash(entry.view().key()),
            false => 0,
        };
        self.discard(hash, entry)
    }

    /// Removes and returns the entry at `place`, to be stored elsewhere.
    pub(super) fn take(&mut self, place: EntrySlot) -> Entry<Object> {
        self.save(place, Sharing::Forbidden);
        self.remove_entry(place)
    }

    fn remove_entry(&mut self, place: EntrySlot) -> Entry<Object> {
        if self.hooks & WANTS_REMOVALS != 0 {
            self.save_removed(place);
        }
        self.note_departing(place);
        let old = self.table.remove(place);
        self.sizes.went(SizeOf::of(old.view()));
        if self.hooks & (IS_SAVING | IS_BY_SLOT | HAS_PINS) != 0 {
            self.note_left(old.view());
        }
        if old.view().has_words() {
            let (hash, ids) = (self.hash_of(old.view()), Db::ids_of(old.view()));
            self.note_untagged(hash, &ids);
        }
        if may_be_large(old.view()) {
            self.forget_large(old.view());
        }
        if !self.restored_access.is_empty() {
            self.restored_access
                .forget(self.seed.hash(old.view().key()));
        }
        self.count_deadline(old.view().deadline(), None);
        self.field_volatile_count -= usize::from(next_element_deadline(old.view()).is_some());
        self.publish();
        old
    }

    /// Edits an entry's value: charges what the change allocates, records an object's size, and keeps the field
    /// deadlines up to date.
    pub(super) fn edit<R>(
        &mut self,
        place: EntrySlot,
        change: impl FnOnce(&mut Entry<Object>) -> R,
    ) -> R {
        let image = match self.hooks & WANTS_CHANGES {
            0 => None,
            _ => self.begin_edit(place),
        };
        self.charged(|db| {
            let mut entry = db.table.edit(place);
            let bytes_before = entry_bytes(entry.view()) as i64;
            let deadline_before = next_element_deadline(entry.view());
            let size_before = SizeOf::of(entry.view());
            let reading = account::charged_bytes();
            let result = change(&mut entry);
            if let Some(kept) = image {
                end_edit(&mut entry, kept, db.log.as_deref_mut());
            }
            let added = account::charged_bytes() - reading;
            let bytes_after = bytes_before + added;
            note_entry_bytes(&mut entry, bytes_after);
            db.sizes.changed(size_before, SizeOf::of(entry.view()));
            let bytes = match db.order.is_some() && added != 0 {
                true => entry_bytes(entry.view()),
                false => 0,
            };
            let deadline = next_element_deadline(entry.view());
            if deadline != deadline_before {
                let hash = db.seed.hash(entry.view().key());
                drop(entry);
                db.move_field_deadline(hash, deadline_before, deadline);
            } else {
                drop(entry);
            }
            if bytes_before.max(bytes_after) >= LARGE_BYTES_MIN as i64 {
                db.note_resized(place, bytes_before as u64, bytes_after.max(0) as u64);
            }
            if bytes != 0 {
                db.reclass(place, db.class_of_bytes(bytes));
            }
            if db.hooks & HAS_FENCES != 0 && db.table.bits(place) & HELD_BIT != 0 {
                db.settle_hold(place);
            }
            result
        })
    }

    /// Returns the bucket of an entry's size relative to the average, see [`super::evict::order`].
    fn class_of(&self, entry: EntryRef<'_, Object>) -> u8 {
        self.class_of_bytes(entry_bytes(entry))
    }

    fn class_of_bytes(&self, bytes: usize) -> u8 {
        size_class(bytes, self.published.used_bytes(), self.table.len())
    }

    /// Updates the stored size bucket of a changed entry, if eviction uses it; `class` is the bucket before the
    /// change.
    fn reclass(&mut self, place: EntrySlot, class: u8) {
        if self.order.as_ref().is_some_and(|order| order.is_by_size()) {
            let bits = self.table.bits(place);
            self.table.set_bits(place, with_class(bits, class));
        }
    }

    pub(super) fn hash_of(&self, entry: EntryRef<'_, Object>) -> u64 {
        self.seed.hash(entry.key())
    }

    /// Frees up to `segments` segments of the table. Returns false once nothing is left.
    pub(super) fn drain_some(&mut self, segments: usize) -> bool {
        self.wheel = Wheel::new(0);
        self.own_deadlines = None;
        self.sweep = None;
        self.order = None;
        self.by_slot = None;
        self.fences.forget();
        self.blessed.forget();
        self.tags = None;
        self.table.drain_some(segments)
    }
}

/// State kept while a collection is edited.
struct EditState {
    /// Index of the undo image that the changes belong to.
    image: Option<usize>,
    /// Set while the collection is being saved in pieces: the offset in the journal at which this edit's changes
    /// begin.
    from: Option<usize>,
}

/// Moves the undo journal of an edit that began with [`Db::begin_edit`] to the undo log, the snapshot, or both.
#[cold]
#[inline(never)]
fn end_edit(entry: &mut Entry<Object>, kept: EditState, log: Option<&mut UndoImages>) {
    let journal = take_journal(entry);
    debug_assert!(
        journal.is_some(),
        "an edit leaves the collection where it is"
    );
    if let (Some(from), Some(journal)) = (kept.from, &journal)
        && let Some(object) = entry.object_mut()
        && let Some(large) = &mut object.saving
    {
        account::uncharged(|| large.note(&object.body, journal, from));
    }
    match (kept.image, log) {
        (Some(at), Some(log)) => log.put_journal(at, journal),
        _ => account::uncharged(|| drop(journal)),
    }
}
