//! A database of one shard at the time of one command: the interface through which handlers look keys up and change
//! them.
//!
//! Every lookup first deletes the key if it has expired, so handlers never see an expired key. Mutations charge the
//! shard's memory; recording an effect is left to the handler, which knows the event's name.

pub mod blessings;
mod documents;
mod marks;
mod telling;
mod walk;

use super::db::next_due;
use super::effect::Event;
use super::expire::{FIELDS_PER_LOOKUP, is_over};
use super::largest::may_be_large;
use super::restored_access::Access;
use super::undo::log::Sharing;
use super::value::object::{detached, entry_bytes, note_entry_bytes, under_way};
use super::value::{
    BLOCK_BYTES_MIN, DataType, EMBSTR_BYTES_MAX, Object, ObjectKind, Text, is_inline_text,
    overwrite_text, raw_entry, string_entry, unshare_text, writable_text,
};
use super::{Engine, Key, Now};
use basalt_core::structures::block::{Content, SharedBlock};
use basalt_core::structures::entry::{Entry, EntryRef, Value};
use basalt_core::structures::table::EntrySlot;
use marks::{KeptMarks, inherit, without_tags};

/// Error: the key holds another type than the command works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

/// The treatment of a key's deadline when its value is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// Removes the deadline.
    Clear,
    /// Keeps the deadline.
    Keep,
    /// Sets a deadline, as Unix time in milliseconds.
    At(u64),
}

/// The access bits that hold the number of uses.
const USE_BITS: u8 = 3;

/// A database at one time, see the module.
pub struct Keyspace<'e> {
    engine: &'e mut Engine,
    db: usize,
    now: Now,
    touches: bool,
}

impl<'e> Keyspace<'e> {
    pub(super) fn new(engine: &'e mut Engine, db: usize, now: Now) -> Keyspace<'e> {
        Keyspace {
            engine,
            db,
            now,
            touches: true,
        }
    }

    /// Returns the keyspace in a mode that leaves no traces in the access bits (CLIENT NO-TOUCH, OBJECT, TYPE …).
    pub fn untouched(mut self) -> Keyspace<'e> {
        self.touches = false;
        self
    }

    /// Returns the time of the command.
    pub fn now(&self) -> Now {
        self.now
    }

    /// True if a deadline to be set has passed already, so that the key is deleted at once. Never true during
    /// loading, as later records may remove the deadline, nor on a replica, where the primary decides about deletion.
    pub fn is_past(&self, deadline_ms: u64) -> bool {
        let rest = &self.engine.rest;
        deadline_ms <= self.now.unix_ms && !rest.is_loading() && !rest.follows()
    }

    /// Returns the time up to which elements with deadlines are expired: 0 while data are loaded, as later records
    /// may remove a deadline again, and 0 for commands of a primary.
    #[inline]
    pub fn elements_due_ms(&self) -> u64 {
        let engine = &self.engine;
        match engine.rest.shows_all(engine.effects.client()) {
            true => 0,
            false => self.now.unix_ms,
        }
    }

    /// Returns the number of the database.
    pub fn db_index(&self) -> usize {
        self.db
    }

    /// Returns the shard.
    pub fn engine(&mut self) -> &mut Engine {
        self.engine
    }

    fn find(&mut self, key: &Key<'_>) -> Option<EntrySlot> {
        let db = self.engine.dbs[self.db].as_deref_mut()?;
        let mut found = db.table.find_mut(key.hash, key.bytes)?;
        let place = found.place();
        if found.view().has_words() {
            return self.find_marked(key, place);
        }
        if let Some(due_ms) = next_due(found.view())
            && due_ms <= self.now.unix_ms
        {
            return self.expire(place);
        }
        if self.touches {
            found.touch();
            self.engine.published.used_at_ms.set(self.now.unix_ms);
        }
        Some(place)
    }

    /// Finds a key whether or not it has expired, for DEBUG; nothing is deleted or counted.
    pub fn find_as_it_lies(&self, key: &Key<'_>) -> Option<EntrySlot> {
        self.engine.dbs[self.db].as_deref()?.find(key)
    }

    /// Completes [`Keyspace::find`] for a key with a stale window or tags.
    #[cold]
    #[inline(never)]
    fn find_marked(&mut self, key: &Key<'_>, place: EntrySlot) -> Option<EntrySlot> {
        if self.is_invalidated(place) {
            return self.drop_invalidated(place);
        }
        let now_ms = self.now.unix_ms;
        if next_due(self.entry(place)).is_some_and(|due_ms| due_ms <= now_ms) {
            return self.expire(place);
        }
        if self.touches {
            let db = self.engine.dbs[self.db].as_deref_mut()?;
            db.table.find_mut(key.hash, key.bytes)?.touch();
            self.engine.published.used_at_ms.set(now_ms);
        }
        Some(place)
    }

    /// Deletes a key with an invalidated tag, and returns None. On a replica, a command that only reads leaves the
    /// deletion to the background.
    #[cold]
    fn drop_invalidated(&mut self, place: EntrySlot) -> Option<EntrySlot> {
        let engine = &*self.engine;
        if !(engine.rest.holds(self.now.unix_ms) && engine.effects.only_reads()) {
            self.engine.delete_invalidated(self.db, place);
        }
        None
    }

    /// Deletes the expired part of the entry at `place`, or a bounded number of its expired elements. Returns the
    /// place if anything unexpired is left. While expiry is suspended, a command that only reads deletes nothing.
    #[cold]
    fn expire(&mut self, place: EntrySlot) -> Option<EntrySlot> {
        let now_ms = self.now.unix_ms;
        let engine = &*self.engine;
        let (rest, effects) = (&engine.rest, &engine.effects);
        if rest.shows_all(effects.client()) {
            return Some(place);
        }
        if rest.holds(now_ms) && effects.only_reads() {
            if is_over(self.entry(place), now_ms) {
                return None;
            }
            // Some elements of the entry have expired and are hidden from readers.
            if rest.follows() {
                return Some(place);
            }
        }
        let gone = self
            .engine
            .expire_due(self.db, place, self.now, FIELDS_PER_LOOKUP);
        (!gone).then_some(place)
    }

    /// Looks up a key for a command that reads the key; counts a hit or a miss.
    pub fn find_read(&mut self, key: &Key<'_>) -> Option<EntrySlot> {
        let place = self.find_unnoticed(key);
        if place.is_none() {
            let db = self.db;
            self.engine.effects.noticed(db, key.bytes, Event::MISS);
        }
        place
    }

    /// Looks up a key and counts a hit or a miss; a miss raises no event (OBJECT).
    pub fn find_unnoticed(&mut self, key: &Key<'_>) -> Option<EntrySlot> {
        let place = self.find(key);
        self.engine.note_look_ups(self.db);
        let published = &self.engine.published;
        let look_ups = published.look_ups(self.db);
        if place.is_some() {
            look_ups.hits.add(1)
        } else {
            look_ups.misses.add(1);
        }
        if published.follows(key.hash) && self.touches {
            let bytes = place.map(|place| self.memory_bytes(place));
            self.engine.followed_was_read(bytes, key, self.now);
        }
        place
    }

    /// Looks up a key for a command that may change the key.
    pub fn find_write(&mut self, key: &Key<'_>) -> Option<EntrySlot> {
        let place = self.find(key);
        if let Some(place) = place
            && self.engine.published.follows(key.hash)
            && self.touches
        {
            let bytes = self.memory_bytes(place);
            self.engine.followed_was_written(bytes, key, self.now);
        }
        place
    }

    /// Returns the entry at `place`.
    pub fn entry(&self, place: EntrySlot) -> EntryRef<'_, Object> {
        self.engine.dbs[self.db]
            .as_deref()
            .expect("a place implies a database")
            .at(place)
    }

    /// Returns the bytes of the entry at `place`, with its share of the table.
    pub fn memory_bytes(&self, place: EntrySlot) -> usize {
        const TABLE_BYTES_PER_KEY: usize = 12;
        entry_bytes(self.entry(place)) + TABLE_BYTES_PER_KEY
    }

    /// Returns type and encoding of the entry at `place`.
    pub fn kind(&self, place: EntrySlot) -> ObjectKind {
        ObjectKind(self.entry(place).kind())
    }

    /// Returns the string at `place`.
    pub fn text(&self, place: EntrySlot) -> Result<Text<'_>, WrongType> {
        Text::of(self.entry(place)).ok_or(WrongType)
    }

    /// Returns the length in bytes of a string that was looked up; 0 if the key does not exist.
    #[inline]
    pub fn text_len(&self, found: Option<EntrySlot>) -> Result<usize, WrongType> {
        match found {
            Some(place) => Ok(self.text(place)?.len()),
            None => Ok(0),
        }
    }

    /// Looks up a string for reading; None if the key does not exist.
    pub fn read_text(&mut self, key: &Key<'_>) -> Result<Option<Text<'_>>, WrongType> {
        match self.find_read(key) {
            Some(place) => self.text(place).map(Some),
            None => Ok(None),
        }
    }

    /// Looks up a string that is about to change; None if the key does not exist.
    pub fn find_text(&mut self, key: &Key<'_>) -> Result<Option<EntrySlot>, WrongType> {
        self.find_typed(key, DataType::String)
    }

    /// Looks up a value of one type for a command that reads it.
    pub fn read_typed(
        &mut self,
        key: &Key<'_>,
        data_type: DataType,
    ) -> Result<Option<EntrySlot>, WrongType> {
        let found = self.find_read(key);
        self.check_type(found, data_type)
    }

    /// Looks up a value of one type that is about to change.
    pub fn find_typed(
        &mut self,
        key: &Key<'_>,
        data_type: DataType,
    ) -> Result<Option<EntrySlot>, WrongType> {
        let found = self.find_write(key);
        self.check_type(found, data_type)
    }

    fn check_type(
        &self,
        found: Option<EntrySlot>,
        data_type: DataType,
    ) -> Result<Option<EntrySlot>, WrongType> {
        match found {
            Some(place) if self.kind(place).data_type() != data_type => Err(WrongType),
            found => Ok(found),
        }
    }

    /// Edits an entry's value; allocations are charged to the shard, and an object's size is recorded. Anything
    /// that leaves `change` with memory of its own, above all a reply, must be allocated under [`account::uncharged`],
    /// or the shard would be charged for it forever.
    ///
    /// [`account::uncharged`]: basalt_core::alloc::account::uncharged
    pub fn edit<R>(&mut self, place: EntrySlot, change: impl FnOnce(&mut Entry<Object>) -> R) -> R {
        self.engine
            .db_mut(self.db)
            .expect("a place implies a database")
            .edit(place, change)
    }

    /// Stores a new entry under a key that a lookup has just not found.
    pub fn create(&mut self, key: &Key<'_>, make: impl FnOnce() -> Entry<Object>) -> EntrySlot {
        let db = self.engine.db_or_create(self.db, self.now);
        let place = db.charged(|db| {
            let reading = basalt_core::alloc::account::charged_bytes();
            let mut entry = make();
            let added = basalt_core::alloc::account::charged_bytes() - reading;
            note_entry_bytes(&mut entry, added);
            db.insert(key.hash, entry)
        });
        self.note_new(key);
        place
    }

    /// Notifies interested clients that a key is new, with the event `new`.
    #[inline]
    fn note_new(&mut self, key: &Key<'_>) {
        self.engine.published.used_at_ms.set(self.now.unix_ms);
        self.engine.effects.noticed(self.db, key.bytes, Event::NEW);
        if self.engine.published.follows(key.hash) {
            self.follow_new(key);
        }
    }

    #[cold]
    #[inline(never)]
    fn follow_new(&mut self, key: &Key<'_>) {
        let found = self.engine.db(self.db).and_then(|db| db.find(key));
        if let Some(place) = found {
            let bytes = self.memory_bytes(place);
            self.engine.followed_was_written(bytes, key, self.now);
        }
    }

    /// Stores a string under a key, in the encoding that Redis would choose, replacing whatever is there. `found`
    /// is the result of a lookup of this key just before.
    pub fn put_text<'v>(
        &mut self,
        key: &Key<'_>,
        found: Option<EntrySlot>,
        value: impl Into<Content<'v>>,
        deadline: Deadline,
    ) {
        let value: Content<'_> = value.into();
        if let Some(place) = found
            && value.len() < BLOCK_BYTES_MIN
            && is_inline_text(self.entry(place))
        {
            let db = self
                .engine
                .db_mut(self.db)
                .expect("a place implies a database");
            db.save(place, Sharing::Forbidden);
            db.charged(|db| {
                let mut entry = db.table.edit(place);
                let len_before = Text::of(entry.view()).map_or(0, |text| text.len());
                overwrite_text(&mut entry, &value);
                drop(entry);
                db.sizes.text_changed(len_before, value.len());
                match deadline {
                    Deadline::Keep => {}
                    Deadline::Clear => db.set_deadline(place, key.hash, None),
                    Deadline::At(at_ms) => db.set_deadline(place, key.hash, Some(at_ms)),
                }
            });
            self.note_deadline(key, deadline);
            return;
        }
        if let Some(block) = value.block()
            && value.len() >= BLOCK_BYTES_MIN
        {
            return self.put_block(key, found, block, deadline);
        }
        self.put_with(key, found, deadline, |deadline| {
            string_entry(key.bytes, &value, deadline)
        });
    }

    /// Stores a long string in the block that it was received in; the block is not charged to any shard yet.
    #[cold]
    #[inline(never)]
    fn put_block(
        &mut self,
        key: &Key<'_>,
        found: Option<EntrySlot>,
        value: &SharedBlock,
        deadline: Deadline,
    ) {
        let kept = match (deadline, found) {
            (Deadline::Clear, _) | (Deadline::Keep, None) => None,
            (Deadline::At(at_ms), _) => Some(at_ms),
            (Deadline::Keep, Some(place)) => self.entry(place).deadline(),
        };
        let entry = detached(|| {
            let mut entry = Entry::block(ObjectKind::RAW.0, key.bytes, value.clone(), kept);
            if deadline == Deadline::Keep
                && let Some(place) = found
                && self.entry(place).has_words()
            {
                inherit(self.entry(place), &mut entry, KeptMarks::Window);
            }
            entry
        });
        self.put_detached(key, found, entry);
    }

    /// Stores an integer under a key that holds a string or nothing; the deadline stays.
    #[inline]
    pub fn put_integer(&mut self, key: &Key<'_>, found: Option<EntrySlot>, value: i64) {
        match found {
            Some(place) => self.edit(place, |entry| {
                entry.set_kind(ObjectKind::INT.0);
                entry.set_integer(value);
            }),
            None => self.put_with(key, None, Deadline::Clear, |deadline| {
                Entry::integer(ObjectKind::INT.0, key.bytes, value, deadline)
            }),
        }
    }

    /// Stores a short string that reports `embstr` or `raw` even if it is an integer; the deadline stays.
    pub fn put_bytes(&mut self, key: &Key<'_>, found: Option<EntrySlot>, value: &[u8]) {
        let kind = if value.len() <= EMBSTR_BYTES_MAX {
            ObjectKind::EMBSTR
        } else {
            ObjectKind::RAW
        };
        self.put_keeping(key, found, Deadline::Keep, KeptMarks::All, |deadline| {
            Entry::bytes(kind.0, key.bytes, value, deadline)
        });
    }

    /// Changes a string's bytes in place, after extending it with zeros to at least `len_min` bytes. A missing key
    /// counts as an empty string, and the result reports the encoding `raw`. The deadline stays.
    pub fn edit_text<R>(
        &mut self,
        key: &Key<'_>,
        found: Option<EntrySlot>,
        len_min: usize,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let db = self.engine.db_or_create(self.db, self.now);
        let empty = || Entry::bytes(ObjectKind::RAW.0, key.bytes, b"", None);
        let (result, shared) = db.charged(|db| {
            let place = found.unwrap_or_else(|| db.insert(key.hash, empty()));
            // The undo image may share the value's block, which the next lines unshare.
            db.save(place, Sharing::Allowed);
            let len_before = db.text_len(place);
            let mut entry = db.table.edit(place);
            let shared = unshare_text(&mut entry);
            let result = change(writable_text(&mut entry, len_min));
            drop(entry);
            db.note_resized_text(len_before, place);
            if may_be_large(db.at(place)) {
                db.note_large(key.hash, place);
            }
            (result, shared)
        });
        if found.is_none() {
            self.note_new(key);
        }
        if let Some(block) = shared {
            // The last other owner of the old block frees it: the block is no longer charged to this shard.
            self.add_used(-(block.memory_bytes() as i64));
        }
        result
    }

    /// Returns the string under a key that was just looked up; nothing is counted or touched.
    pub fn peek_text(&self, key: &Key<'_>) -> Option<Text<'_>> {
        let db = self.engine.db(self.db)?;
        Text::of(db.at(db.find(key)?))
    }

    /// Stores a string that reports `raw`, as commands that edit strings do.
    pub fn put_raw(
        &mut self,
        key: &Key<'_>,
        found: Option<EntrySlot>,
        value: &[u8],
        deadline: Deadline,
    ) {
        self.put_with(key, found, deadline, |deadline| {
            raw_entry(key.bytes, value, deadline)
        });
    }

    /// Stores an entry made elsewhere (RENAME, COPY, MOVE, RESTORE) that already has its key and deadline.
    pub fn put_entry(&mut self, key: &Key<'_>, found: Option<EntrySlot>, entry: Entry<Object>) {
        let deadline = entry
            .view()
            .deadline()
            .map_or(Deadline::Clear, Deadline::At);
        self.put_with(key, found, deadline, move |_| entry);
    }

    /// Stores an entry that replaces another one or creates the key, see [`Keyspace::put_keeping`].
    fn put_with(
        &mut self,
        key: &Key<'_>,
        found: Option<EntrySlot>,
        deadline: Deadline,
        make: impl FnOnce(Option<u64>) -> Entry<Object>,
    ) {
        self.put_keeping(key, found, deadline, KeptMarks::Window, make);
    }

    /// Stores an entry under a key. `marks` tells which marks the key keeps if its deadline is kept.
    fn put_keeping(
        &mut self,
        key: &Key<'_>,
        found: Option<EntrySlot>,
        deadline: Deadline,
        marks: KeptMarks,
        make: impl FnOnce(Option<u64>) -> Entry<Object>,
    ) {
        let db = self.engine.db_or_create(self.db, self.now);
        let trash = db.charged(|db| {
            let kept = match (deadline, found) {
                (Deadline::Clear, _) | (Deadline::Keep, None) => None,
                (Deadline::At(at_ms), _) => Some(at_ms),
                (Deadline::Keep, Some(place)) => db.at(place).deadline(),
            };
            let mut entry = make(kept);
            if deadline == Deadline::Keep
                && let Some(place) = found
                && db.at(place).has_words()
            {
                inherit(db.at(place), &mut entry, marks);
            }
            match found {
                Some(place) => db.replace(place, key.hash, entry),
                None => {
                    db.insert(key.hash, entry);
                    None
                }
            }
        });
        if found.is_none() {
            self.note_new(key);
        }
        self.note_deadline(key, deadline);
        self.engine.discard(self.db, trash);
    }

    /// Records that a client may have set a deadline, for which a replica is responsible itself.
    #[inline]
    fn note_deadline(&mut self, key: &Key<'_>, deadline: Deadline) {
        if let Deadline::At(at_ms) = deadline
            && self.engine.rest.follows()
        {
            self.engine
                .note_own_deadline(self.db, key.hash, at_ms, self.now);
        }
    }

    /// Sets or removes the deadline of a key.
    pub fn set_deadline(&mut self, key: &Key<'_>, place: EntrySlot, deadline: Option<u64>) {
        let db = self
            .engine
            .db_mut(self.db)
            .expect("a place implies a database");
        db.charged(|db| db.set_deadline(place, key.hash, deadline));
        self.note_deadline(key, deadline.map_or(Deadline::Clear, Deadline::At));
    }

    /// Deletes the entry at a place; no event is recorded.
    pub fn delete(&mut self, place: EntrySlot) {
        self.engine.leaves(self.db, place);
        let db = self
            .engine
            .db_mut(self.db)
            .expect("a place implies a database");
        let trash = db.charged(|db| db.delete(place));
        self.engine.discard(self.db, trash);
    }

    /// Removes and returns the entry at `place`, to be stored elsewhere; the entry's memory is no longer charged
    /// here, and [`Keyspace::adopt`] charges it to the shard that gets it. Its tags stay with the database: see
    /// [`Keyspace::tags`].
    pub fn take(&mut self, place: EntrySlot) -> Entry<Object> {
        self.engine.leaves(self.db, place);
        let db = self
            .engine
            .db_mut(self.db)
            .expect("a place implies a database");
        let entry = db.charged(|db| {
            let mut entry = db.take(place);
            if entry.view().has_words() {
                without_tags(&mut entry);
            }
            entry
        });
        self.add_used(-(entry_bytes(entry.view()) as i64));
        entry
    }

    /// Charges bytes to the database and the shard, or credits them if negative.
    fn add_used(&mut self, bytes: i64) {
        self.engine.db_or_create(self.db, self.now).add_used(bytes);
    }

    /// Returns a copy of the entry at `place`, with key and deadline, for [`Keyspace::adopt`]; charged to no shard yet.
    pub fn duplicate(&self, place: EntrySlot) -> Entry<Object> {
        let entry = self.entry(place);
        let (kind, key, deadline) = (entry.kind(), entry.key(), entry.deadline());
        let copy = match entry.value() {
            Value::Integer(number) => Entry::integer(kind, key, number, deadline),
            Value::Bytes(bytes) => Entry::bytes(kind, key, bytes, deadline),
            // A shared block would be charged to both entries and freed once.
            Value::Block(block) => Entry::block(kind, key, SharedBlock::new(block), deadline),
            Value::Object(object) => Entry::object(kind, key, object.duplicate(), deadline),
        };
        self.complete_copy(place, copy)
    }

    /// Returns how often the entry at `place` was used since eviction last aged it: 0 to 3.
    pub fn uses(&self, place: EntrySlot) -> u8 {
        let db = self.engine.db(self.db).expect("a place implies a database");
        db.table().bits(place) & USE_BITS
    }

    /// Returns the recent uses of a key as estimated by the server's samples; 0 if unknown.
    pub fn sampled_uses(&self, key: &Key<'_>) -> u64 {
        self.engine.hot_counts.of(key.hash)
    }

    /// Returns a lower bound of a key's idle time in milliseconds: the time since any key of its shard was used. The
    /// access bits hold the number of uses, but no time.
    pub fn idle_ms_min(&self) -> u64 {
        self.now
            .unix_ms
            .saturating_sub(self.engine.published.used_at_ms.get())
    }

    /// Keeps the access data (idle time or frequency) of a key from another server, until the key is used here.
    pub fn restore_access(&mut self, key: &Key<'_>, access: Access) {
        let Some(db) = self.engine.db_mut(self.db) else {
            return;
        };
        if let Some(place) = db.find(key) {
            db.charged(|db| {
                let bits = db.table.bits(place) & !USE_BITS | access.bits();
                db.table.set_bits(place, bits);
                db.restored_access.note(key.hash, access);
            });
        }
    }

    /// Returns the access data stored by [`Keyspace::restore_access`], if the key has not been used since.
    pub fn restored_access(&self, key: &Key<'_>, place: EntrySlot) -> Option<Access> {
        let db = self.engine.db(self.db)?;
        db.restored_access
            .of(key.hash, db.table.bits(place) & USE_BITS)
    }

    /// Stores an entry from [`Keyspace::take`] or [`Keyspace::duplicate`], perhaps under another key or in another
    /// shard. Eviction treats the key as new, also where it replaces another.
    pub fn adopt(&mut self, key: &Key<'_>, found: Option<EntrySlot>, entry: Entry<Object>) {
        self.put_detached(key, found, entry);
        if let (Some(place), Some(db)) = (found, self.engine.db_mut(self.db)) {
            db.charged(|db| db.renew(place, key.hash));
        }
    }

    /// Stores an entry that is not charged to any shard yet.
    fn put_detached(&mut self, key: &Key<'_>, found: Option<EntrySlot>, entry: Entry<Object>) {
        self.add_used(entry_bytes(entry.view()) as i64);
        let entry = if entry.view().key() == key.bytes {
            entry
        } else {
            let before = basalt_core::alloc::account::charged_bytes();
            let entry = entry.with_key(key.bytes);
            self.add_used(basalt_core::alloc::account::charged_bytes() - before);
            entry
        };
        let is_under_way = under_way(entry.view()).is_some();
        self.put_entry(key, found, entry);
        if is_under_way
            && let Some(db) = self.engine.db_mut(self.db)
            && let Some(place) = db.find(key)
        {
            db.note_under_way(place);
        }
    }

    /// Deletes a collection that a change has left with expired elements only.
    pub fn delete_over(&mut self, place: EntrySlot) {
        self.engine.log_left_due(self.db, place, self.now);
        self.delete(place);
    }

    /// Deletes a collection that the most recently recorded change has emptied, and records that it is gone.
    pub fn delete_emptied(&mut self, key: &Key<'_>, place: EntrySlot) {
        self.delete(place);
        self.followed(key.bytes, Event::DEL);
    }

    /// Records an event for a key as a part of a change that is counted elsewhere.
    pub fn followed(&mut self, key: &[u8], event: Event) {
        self.engine.effects.followed(self.db, key, event);
        self.key_changed(key);
    }

    /// Records that a key changed.
    pub fn wrote(&mut self, key: &[u8], event: Event) {
        self.engine.effects.wrote(self.db, key, event);
        self.engine.published.dirty.add(1);
        self.key_changed(key);
    }

    /// Records a change to a key's metadata only, such as the read state of a stream's groups. The data stay the same,
    /// so, as in Redis, clients that watch or cache the key are not notified.
    pub fn wrote_metadata(&mut self, key: &[u8], event: Event) {
        self.engine.published.dirty.add(1);
        self.note_metadata(key, event);
    }

    /// Like [`Keyspace::wrote_metadata`], but does not count as a change for snapshots: a pending entry's redelivery.
    pub fn note_metadata(&mut self, key: &[u8], event: Event) {
        self.engine.effects.wrote_metadata(self.db, key, event);
        self.engine.waiters.key_changed(self.db, key);
        let stamp = self.engine.effects.stamp();
        self.engine.watches.key_touched(self.db, key, stamp);
    }

    /// Notifies the clients that wait for a key or watch it.
    fn key_changed(&mut self, key: &[u8]) {
        self.engine.waiters.key_changed(self.db, key);
        let stamp = self.engine.effects.stamp();
        self.engine.watches.key_changed(self.db, key, stamp);
    }

    /// Returns the number of keys in this database.
    pub fn len(&self) -> usize {
        self.engine.db(self.db).map_or(0, super::db::Db::len)
    }

    /// True if this database holds no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of keys in a hash slot, including expired ones not deleted yet, without reading them.
    /// Only where keys are kept by slot, see [`Engine::keep_slots`]; 0 if another shard owns the slot.
    pub fn keys_in_slot(&self, slot: u16) -> u64 {
        match self.engine.has_slot(slot) {
            true => (self.engine.db(self.db)).map_or(0, |db| db.keys_in_slot(slot)),
            false => 0,
        }
    }

    /// Returns the number of keys visible to clients: keys of slots that are being imported do not count.
    pub fn shown_len(&self) -> usize {
        let coming = self.engine.coming.iter();
        let hidden: u64 = coming.map(|slot| self.keys_in_slot(*slot)).sum();
        self.len().saturating_sub(hidden as usize)
    }

    /// Visits `budget` keys of a hash slot, or slightly more, starting at a position. Returns the next position, 0 at
    /// the end: a walk begins with 0, and any number is a valid position. Expired keys are included, as in Redis.
    ///
    /// Keys come in the order of their [short hashes](super::short_hash), whatever happens to the table meanwhile:
    /// a key that exists from the first call to the last is visited exactly once. Of other slots' keys only those
    /// are read that share a short hash with a key of this slot, one in some millions.
    pub fn walk_slot(
        &self,
        slot: u16,
        position: u64,
        budget: usize,
        visit: impl FnMut(EntryRef<'_, Object>),
    ) -> u64 {
        match self.engine.has_slot(slot) {
            true => (self.engine.db(self.db))
                .map_or(0, |db| db.walk_slot(slot, position, budget, visit)),
            false => 0,
        }
    }
}
