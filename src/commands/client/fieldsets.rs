//! Fieldsets: names of fields that a connection has put down by HIMPORT PREPARE, so that its HIMPORT SETs send the
//! values alone.
//!
//! The session, and each step of a unit, looks a fieldset up before any shard is in hand (`command::prepared`):
//! commands on keys know nothing of connections. What a transaction puts down goes again if that is rolled back, as the
//! connection that it began with is put back; scripts have fieldsets of their own, and leave none.

use std::collections::HashMap;
use std::sync::Arc;

use super::shared::Shared;

/// About what a name, or a fieldset, takes beside its bytes.
const ENTRY_BYTES: usize = 64;

/// Names of fields, in the order in which hashes are made of them: shorter ones first, as Redis has it.
pub struct Fieldset(Vec<(Box<[u8]>, usize)>);

impl Fieldset {
    /// A fieldset of these names; none if one of them comes twice.
    pub fn new<'n>(names: impl Iterator<Item = &'n [u8]>) -> Option<Fieldset> {
        let mut fields: Vec<(Box<[u8]>, usize)> = names
            .enumerate()
            .map(|(position, name)| (name.into(), position))
            .collect();
        fields.sort_unstable_by(|(one, _), (two, _)| (one.len(), one).cmp(&(two.len(), two)));
        let is_unique = fields.windows(2).all(|pair| pair[0].0 != pair[1].0);
        is_unique.then_some(Fieldset(fields))
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never true: HIMPORT PREPARE wants a name.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names, and for each the position of its value among those that are sent.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = (&[u8], usize)> + Clone {
        self.0.iter().map(|(name, position)| (&**name, *position))
    }

    fn memory_bytes(&self) -> usize {
        let names = self.0.iter().map(|(name, _)| name.len() + ENTRY_BYTES);
        names.sum()
    }
}

/// The fieldsets of a connection, or of a script, by their names. What they take counts as the client's.
pub struct Fieldsets {
    sets: HashMap<Box<[u8]>, Arc<Fieldset>>,
    bytes: usize,
    shared: Arc<Shared>,
}

impl Fieldsets {
    /// None yet.
    pub fn new(shared: &Arc<Shared>) -> Fieldsets {
        Fieldsets {
            sets: HashMap::new(),
            bytes: 0,
            shared: Arc::clone(shared),
        }
    }

    /// The fieldset of a name.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<Fieldset>> {
        self.sets.get(name)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Puts a fieldset down, in place of one of the same name.
    pub fn put(&mut self, name: &[u8], fieldset: Fieldset) {
        self.remove(name);
        self.count(bytes_of(name, &fieldset) as isize);
        self.sets.insert(name.into(), Arc::new(fieldset));
    }

    /// Forgets a fieldset; false if there is none of this name.
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
