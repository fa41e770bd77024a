//! Copies of values that threads read without the lock under which the values change.
//!
//! A copy that a thread makes under the lock comes with a [`Validity`]. A change, removal or hiding of the value, under
//! the same lock, ends that validity first, once and for good; the next copy gets a new one. A reader whose copy is
//! current has therefore read before the change: to see the new value takes the lock, or a message of a thread that has
//! had the lock since, and either finds the validity ended.
//!
//! A step that holds several locks ends all validities before it releases the first lock. Then no reader sees a part of
//! the step.

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Release};

#[cfg(loom)]
use loom::sync::{Arc, atomic::AtomicBool};
#[cfg(not(loom))]
use std::sync::{Arc, atomic::AtomicBool};

/// Whether copies of a value are still equal to it. On a cache line of its own: threads read it all the time, and it
/// is written once.
#[repr(align(64))]
pub struct Validity {
    has_ended: AtomicBool,
}

impl Validity {
    fn new() -> Validity {
        Validity {
            has_ended: AtomicBool::new(false),
        }
    }

    /// True if the value has not changed since it was copied.
    #[inline]
    #[must_use]
    pub fn is_current(&self) -> bool {
        !self.has_ended.load(Acquire)
    }

    fn end(&self) {
        self.has_ended.store(true, Release);
    }
}

impl fmt::Debug for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (f.debug_struct("Validity")
            .field("is_current", &self.is_current()))
        .finish()
    }
}

/// The keys of a table whose values have copies. All calls need the table's lock.
#[derive(Debug, Default)]
pub struct CopiedKeys {
    /// A bit for each value that six bits of the keys' hashes have.
    filter: u64,
    keys: Vec<(u64, Arc<Validity>)>,
}

impl CopiedKeys {
    /// Returns the validity of a new copy of the value under the key with this hash. All current copies share it.
    pub fn copied(&mut self, hash: u64) -> Arc<Validity> {
        if let Some((_, validity)) = self.keys.iter().find(|(known, _)| *known == hash) {
            return Arc::clone(validity);
        }
        // Copies that their threads have dropped need nothing to be told.
        self.keys
            .retain(|(_, validity)| Arc::strong_count(validity) > 1);
        let validity = Arc::new(Validity::new());
        self.keys.push((hash, Arc::clone(&validity)));
        self.settle();
        validity
    }

    /// True if a key may have copies, when only the second lowest byte of its hash is known.
    #[inline]
    #[must_use]
    pub fn may_have(&self, hash_byte: u8) -> bool {
        self.filter & bit_of(hash_byte) != 0
    }

    /// Ends the copies of the value under the key with this hash, which is about to change.
    pub fn end(&mut self, hash: u64) {
        self.keys.retain(|(known, validity)| {
            if *known == hash {
                validity.end();
            }
            *known != hash
        });
        self.settle();
    }

    /// Ends all copies.
    pub fn end_all(&mut self) {
        self.keys.drain(..).for_each(|(_, validity)| validity.end());
        self.settle();
    }

    /// True if no value has copies.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn settle(&mut self) {
        let bits = self.keys.iter().map(|(hash, _)| bit_of((hash >> 8) as u8));
        self.filter = bits.fold(0, |all, bit| all | bit);
    }
}

impl Drop for CopiedKeys {
    /// Values that are gone with their table are not current.
    fn drop(&mut self) {
        self.end_all();
    }
}

fn bit_of(hash_byte: u8) -> u64 {
    1 << (hash_byte & 63)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn copies_of_a_value_end_together_and_only_with_it() {
        let mut keys = CopiedKeys::default();
        assert!(keys.is_empty() && (0..=255).all(|byte| !keys.may_have(byte)));
        let (one, other, third) = (
            keys.copied(0x0100),
            keys.copied(0x0100),
            keys.copied(0x0200),
        );
        assert!(keys.may_have(1) && keys.may_have(2) && !keys.may_have(3));
        keys.end(0x0100);
        assert!(!one.is_current() && !other.is_current() && third.is_current());
        assert!(!keys.may_have(1) && keys.may_have(2));
        let again = keys.copied(0x0100);
        assert!(again.is_current() && !one.is_current());
        keys.end_all();
        assert!(keys.is_empty() && !again.is_current() && !third.is_current());
    }

    #[test]
    fn what_has_no_copy_any_more_is_forgotten_and_what_is_dropped_is_not_current() {
        let mut keys = CopiedKeys::default();
        drop(keys.copied(0x0100));
        let kept = keys.copied(0x0200);
        assert!(!keys.may_have(1) && keys.may_have(2));
        drop(keys);
        assert!(!kept.is_current());
    }
}

/// Models of readers and writers for loom: all orders of their steps.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Mutex;
    use loom::thread;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A table with one value.
    #[derive(Default)]
    struct Value {
        number: u8,
        copies: CopiedKeys,
    }

    /// When a writer ends the copies of what it changes.
    #[derive(Clone, Copy)]
    enum Ends {
        BeforeRelease,
        AfterRelease,
        Never,
    }

    const HASH: u64 = 7;

    /// Two values, each with a lock of its own, and copies of both from the start. A writer changes both as one step.
    /// A reader reads the second and then the first value, by its copy while it is current, and must not see the new
    /// value of the second beside the old one of the first.
    fn no_part_is_seen(ends: Ends) {
        loom::model(move || {
            let values = Arc::new([Mutex::new(Value::default()), Mutex::new(Value::default())]);
            let copies = [0, 1].map(|at: usize| {
                let mut value = values[at].lock().expect("no panic");
                (value.number, value.copies.copied(HASH))
            });
            let writing = Arc::clone(&values);
            let writer = thread::spawn(move || {
                let mut first = writing[0].lock().expect("no panic");
                let mut second = writing[1].lock().expect("no panic");
                if let Ends::BeforeRelease = ends {
                    first.copies.end(HASH);
                    second.copies.end(HASH);
                }
                (first.number, second.number) = (1, 1);
                drop(second);
                drop(first);
                if let Ends::AfterRelease = ends {
                    for value in writing.iter().rev() {
                        value.lock().expect("no panic").copies.end(HASH);
                    }
                }
            });
            let read = |at: usize| match &copies[at] {
                (number, validity) if validity.is_current() => *number,
                _ => values[at].lock().expect("no panic").number,
            };
            let (second, first) = (read(1), read(0));
            assert!(first >= second, "a part was seen");
            writer.join().expect("it ends");
            let now = [read(0), read(1)];
            assert_eq!(now, [1, 1], "the change was told of");
        });
    }

    /// True if some order of the steps of a model fails.
    fn fails(model: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(model)).is_err()
    }

    #[test]
    fn a_current_copy_is_read_before_the_change() {
        no_part_is_seen(Ends::BeforeRelease);
    }

    #[test]
    fn copies_that_end_after_the_release_or_never_are_found_out() {
        assert!(fails(|| no_part_is_seen(Ends::AfterRelease)));
        assert!(fails(|| no_part_is_seen(Ends::Never)));
    }

    /// Copies made while the value changes are of the old value and ended, or of the new one and current.
    #[test]
    fn a_copy_made_beside_a_change_is_current_only_if_it_is_new() {
        loom::model(|| {
            let value = Arc::new(Mutex::new(Value::default()));
            let writing = Arc::clone(&value);
            let writer = thread::spawn(move || {
                let mut value = writing.lock().expect("no panic");
                value.copies.end(HASH);
                value.number = 1;
            });
            let (number, validity) = {
                let mut value = value.lock().expect("no panic");
                (value.number, value.copies.copied(HASH))
            };
            writer.join().expect("it ends");
            assert_eq!(validity.is_current(), number == 1);
        });
    }
}
