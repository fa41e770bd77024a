//! What is told of changes beside the change itself: which fields of a hash it was, and that a value was replaced.

use super::Keyspace;
use crate::Key;
use crate::effect::Event;
use crate::value::DataType;
use basalt_core::structures::table::Place;

impl Keyspace<'_> {
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

    /// Whether [`Keyspace::wrote_fields`] wants to know the names.
    pub fn wants_fields(&self) -> bool {
        self.engine.effects.interest().wants_elements()
    }

    /// The value of a key that was found is about to be replaced as a whole by one of this type; that is recorded next.
    #[inline]
    pub fn overwrites(&mut self, key: &Key<'_>, found: Option<Place>, data_type: DataType) {
        if let Some(place) = found
            && self.engine.effects.interest().wants_replacements()
        {
            self.note_overwritten(key, place, data_type);
        }
    }

    /// Tells the clients that want to know that a key's value is deleted and another one put in its place, where that
    /// is so: the key is a new one, as if it had not been there before.
    #[inline]
    pub fn replaces(&mut self, key: &Key<'_>, found: Option<Place>, data_type: DataType) {
        if found.is_some() {
            self.engine.effects.noticed(self.db, key.bytes, Event::NEW);
        }
        self.overwrites(key, found, data_type);
    }

    #[cold]
    #[inline(never)]
    fn note_overwritten(&mut self, key: &Key<'_>, place: Place, data_type: DataType) {
        let before = self.kind(place).data_type();
        let effects = &mut self.engine.effects;
        effects.noticed(self.db, key.bytes, Event::OVERWRITTEN);
        if before != data_type {
            effects.noticed(self.db, key.bytes, Event::TYPE_CHANGED);
        }
    }
}
