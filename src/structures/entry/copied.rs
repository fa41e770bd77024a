//! Entries of which the long part was copied ahead.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use crate::structures::ahead::{self, Plan};
use crate::structures::entry::{CALLER_FLAGS, Entry, FORM_BYTES, FORM_OBJECT, Shape};

/// Of a handle.
const HANDLE_BYTES: usize = 8;

impl<O> Entry<O> {
    /// Where [`Entry::bytes`] keeps the longer one of a key and a value, without a deadline.
    #[must_use]
    pub fn plan(key_len: usize, value_len: usize) -> Plan {
        let shape = Shape::new(FORM_BYTES, key_len, value_len, false);
        match key_len > value_len {
            true => shape.plan(shape.key_at()),
            false => shape.plan(shape.value_at()),
        }
    }

    /// Where an entry keeps a long key, whatever its value is: what else is in an entry seldom makes a difference to the
    /// size class.
    #[must_use]
    pub fn plan_key(key_len: usize) -> Plan {
        let shape = Shape::new(FORM_OBJECT, key_len, HANDLE_BYTES, false);
        shape.plan(shape.key_at())
    }

    /// An entry with bytes for a value, if a copy of the longer part was made ahead.
    #[cold]
    #[inline(never)]
    pub(super) fn taken_ahead(
        kind: u8,
        key: &[u8],
        value: &[u8],
        deadline: Option<u64>,
    ) -> Option<Self> {
        let shape = Shape::new(FORM_BYTES, key.len(), value.len(), deadline.is_some());
        let (key_at, value_at) = (shape.key_at(), shape.value_at());
        let (address, rest, rest_at) = match key.len() > value.len() {
            true => (ahead::take(key, shape.plan(key_at))?, value, value_at),
            false => (ahead::take(value, shape.plan(value_at))?, key, key_at),
        };
        let mut entry = Entry {
            address,
            _owns: PhantomData,
        };
        // SAFETY: all within memory of the shape's size, which is ours; the longer part is there already.
        unsafe {
            entry.write_header(kind, 0, shape);
            let rest_to = address.add(rest_at).as_ptr();
            ptr::copy_nonoverlapping(rest.as_ptr(), rest_to, rest.len());
        }
        entry.write_deadline(deadline);
        Some(entry)
    }

    /// As [`Entry::set_bytes`], if a copy was made ahead.
    #[cold]
    #[inline(never)]
    pub(super) fn set_bytes_ahead(&mut self, value: &[u8]) -> bool {
        let view = self.view();
        let [kind, flags, ..] = view.header();
        let (key, deadline) = (view.key(), view.deadline());
        let Some(mut entry) = Self::taken_ahead(kind, key, value, deadline) else {
            return false;
        };
        entry.set_flag(flags & CALLER_FLAGS, true);
        *self = entry;
        true
    }
}

/// Memory for an entry of this shape in which the key lies already, if it was copied ahead.
#[cold]
#[inline(never)]
pub(super) fn key_ahead(key: &[u8], shape: Shape) -> Option<NonNull<u8>> {
    ahead::take(key, shape.plan(shape.key_at()))
}

impl Shape {
    fn plan(self, at: usize) -> Plan {
        Plan {
            layout: self.layout(),
            at,
        }
    }
}
