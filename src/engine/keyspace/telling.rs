//! Additional notifications about a change: which hash fields changed, and that a value was replaced as a whole.

use super::Keyspace;
use crate::Key;
use crate::effect::Event;
use crate::value::DataType;
use basalt_core::structures::table::EntrySlot;

impl Keyspace<'_> {
    /// Records that a client tried to delete a missing key: a client that is loading the key must not store data that
    /// it read before.
    #[inline]
    pub fn missed_deletion(&mut self, key: &[u8]) {
        self.engine.waiters.key_changed(self.db, key);
    }

    /// Records that fields of a hash changed.
    #[inline]
    pub fn wrote_fields<'n>(
        &mut self,
        key: &[u8],
        event: Event,
        names: impl IntoIterator<Item = &'n [u8]>,
    ) {
        self.wrote(key, event);
        let effects = &mut self.engine.effects;
        if effects.interest().wants_elements() {
            effects.noticed_elements(self.db, key, event, names);
        }
    }

    /// True if the names passed to [`Keyspace::wrote_fields`] are wanted.
    pub fn wants_fields(&self) -> bool {
        self.engine.effects.interest().wants_elements()
    }

    /// Records that the value of an existing key is about to be replaced as a whole by one of this type; the
    /// replacement is recorded next.
    #[inline]
    pub fn overwrites(&mut self, key: &Key<'_>, found: Option<EntrySlot>, data_type: DataType) {
        if let Some(place) = found
            && self.engine.effects.interest().wants_replacements()
        {
            self.note_overwritten(key, place, data_type);
        }
    }

    /// Notifies interested clients that a key's value, if any, is deleted and replaced: the key counts as new, as
    /// if it had not existed before.
    #[inline]
    pub fn replaces(&mut self, key: &Key<'_>, found: Option<EntrySlot>, data_type: DataType) {
        if found.is_some() {
            self.engine.effects.noticed(self.db, key.bytes, Event::NEW);
        }
        self.overwrites(key, found, data_type);
    }

    #[cold]
    #[inline(never)]
    fn note_overwritten(&mut self, key: &Key<'_>, place: EntrySlot, data_type: DataType) {
        let before = self.kind(place).data_type();
        let effects = &mut self.engine.effects;
        effects.noticed(self.db, key.bytes, Event::OVERWRITTEN);
        if before != data_type {
            effects.noticed(self.db, key.bytes, Event::TYPE_CHANGED);
        }
    }
}
