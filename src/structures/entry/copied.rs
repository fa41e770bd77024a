//! Entries of which the key was copied ahead.

use std::ptr::NonNull;

use crate::structures::ahead::{self, Plan};
use crate::structures::entry::{Entry, FORM_OBJECT, Shape};

/// Of a handle.
const HANDLE_BYTES: usize = 8;

impl<O> Entry<O> {
    /// Where an entry keeps a long key, whatever its value is: what else is in an entry seldom makes a difference to the
    /// size class.
    #[must_use]
    pub fn plan_key(key_len: usize) -> Plan {
        let shape = Shape::new(FORM_OBJECT, key_len, HANDLE_BYTES, false);
        shape.plan(shape.key_at())
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
