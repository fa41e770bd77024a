//! Fieldsets: names of fields that a connection has registered by HIMPORT PREPARE, so that its HIMPORT SETs send only
//! the values.
//!
//! The session, and each step of a transaction, looks up a fieldset before any shard is locked (`command::prepared`):
//! commands on keys know nothing of connections. Fieldsets registered in a transaction disappear if it is rolled
//! back, as the connection's initial state is restored; scripts have fieldsets of their own, which end with them.

use std::collections::HashMap;
use std::sync::Arc;

use super::shared::Shared;

/// Approximate bytes of a name, or of a fieldset, in addition to its text.
const ENTRY_BYTES: usize = 64;

/// Names of fields, in the order in which hashes are built from them: shorter ones first, as in Redis.
pub struct Fieldset(Vec<(Box<[u8]>, usize)>);

impl Fieldset {
    /// Creates a fieldset of these names; None if a name is repeated.
    pub fn new<'n>(names: impl Iterator<Item = &'n [u8]>) -> Option<Fieldset> {
        let mut fields: Vec<(Box<[u8]>, usize)> = names
            .enumerate()
            .map(|(position, name)| (name.into(), position))
            .collect();
        fields.sort_unstable_by(|(one, _), (two, _)| (one.len(), one).cmp(&(two.len(), two)));
        let is_unique = fields.windows(2).all(|pair| pair[0].0 != pair[1].0);
        is_unique.then_some(Fieldset(fields))
    }

    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Always false: HIMPORT PREPARE requires a name.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names, and for each of them the position of its value among the values that are sent.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = (&[u8], usize)> + Clone {
        self.0.iter().map(|(name, position)| (&**name, *position))
    }

    fn memory_bytes(&self) -> usize {
        let names = self.0.iter().map(|(name, _)| name.len() + ENTRY_BYTES);
        names.sum()
    }
}

/// The fieldsets of a connection, or of a script, by their names. Their memory is charged to the client.
pub struct Fieldsets {
    sets: HashMap<Box<[u8]>, Arc<Fieldset>>,
    bytes: usize,
    shared: Arc<Shared>,
}

impl Fieldsets {
    /// Creates an empty set.
    pub fn new(shared: &Arc<Shared>) -> Fieldsets {
        Fieldsets {
            sets: HashMap::new(),
            bytes: 0,
            shared: Arc::clone(shared),
        }
    }

    /// Returns the fieldset of this name; None if there is none.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<Fieldset>> {
        self.sets.get(name)
    }

    /// Returns the number of fieldsets.
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Whether there are no fieldsets.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Registers a fieldset, replacing one of the same name.
    pub fn put(&mut self, name: &[u8], fieldset: Fieldset) {
        self.remove(name);
        self.count(bytes_of(name, &fieldset) as isize);
        self.sets.insert(name.into(), Arc::new(fieldset));
    }

    /// Removes a fieldset; false if there is none of this name.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let Some(fieldset) = self.sets.remove(name) else {
            return false;
        };
        self.count(-(bytes_of(name, &fieldset) as isize));
        true
    }

    fn count(&mut self, difference: isize) {
        self.bytes = self.bytes.wrapping_add_signed(difference);
        match difference {
            0.. => self.shared.hold(difference.unsigned_abs()),
            _ => self.shared.release(difference.unsigned_abs()),
        }
    }
}

fn bytes_of(name: &[u8], fieldset: &Fieldset) -> usize {
    name.len() + ENTRY_BYTES + fieldset.memory_bytes()
}

impl Clone for Fieldsets {
    fn clone(&self) -> Fieldsets {
        self.shared.hold(self.bytes);
        Fieldsets {
            sets: self.sets.clone(),
            bytes: self.bytes,
            shared: Arc::clone(&self.shared),
        }
    }
}

impl Drop for Fieldsets {
    fn drop(&mut self) {
        self.shared.release(self.bytes);
    }
}
