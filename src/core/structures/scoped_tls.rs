//! A scoped thread-local: gives access to a borrowed value to code further down the stack to which the value cannot
//! be passed.
//!
//! Callbacks of a foreign interpreter must be `'static`, yet they work on borrows of their caller's caller. The
//! caller sets the value ([`ScopedTls::set`]) for the duration of one call; a callback gets it for the duration of
//! one closure ([`ScopedTls::with`]). There is never a second access to the value: while a closure has it, the
//! thread-local is empty.
//!
//! ```text
//! set(&mut host, || interpreter.run())     // holds a pointer to `host` until `run` is over
//!                   └─ with(|host| …)      // takes the pointer out, and puts it back afterwards
//! ```

#![expect(
    unsafe_code,
    reason = "a borrow is passed on behind the back of a frame that can not carry it"
)]

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The family of types that a [`ScopedTls`] holds: one type for each lifetime of its own borrows.
pub trait Scoped: 'static {
    /// The type for one lifetime, usually `dyn Trait + 'a`.
    type With<'a>: ?Sized + 'a;
}

/// A scoped thread-local, see the module. Meant for a `thread_local!`; it is neither `Send` nor `Sync`.
pub struct ScopedTls<S: Scoped> {
    pointer: Cell<Option<NonNull<S::With<'static>>>>,
    _stays: PhantomData<*mut ()>,
}

impl<S: Scoped> Default for ScopedTls<S> {
    fn default() -> Self {
        ScopedTls::new()
    }
}

impl<S: Scoped> ScopedTls<S> {
    /// Creates a thread-local without a value.
    pub const fn new() -> ScopedTls<S> {
        ScopedTls {
            pointer: Cell::new(None),
            _stays: PhantomData,
        }
    }

    /// Runs `run` with `value` set. A value set before is hidden meanwhile.
    pub fn set<'a, R>(&self, value: &mut S::With<'a>, run: impl FnOnce() -> R) -> R {
        let pointer: NonNull<S::With<'a>> = NonNull::from(value);
        // SAFETY: both types are pointers to one type that differ in a lifetime only, hence of one size and layout.
        // No caller can use the false longer lifetime: `with` passes the value to closures that must work for any
        // lifetime, and `ScopedTlsGuard` takes the pointer out before the true one ends.
        let pointer = unsafe {
            std::mem::transmute_copy::<NonNull<S::With<'a>>, NonNull<S::With<'static>>>(&pointer)
        };
        let _restore = ScopedTlsGuard {
            scoped: self,
            before: self.pointer.replace(Some(pointer)),
        };
        run()
    }

    /// Passes the value that is set to `run`. Returns None if no value is set, or if a closure has it already.
    pub fn with<R>(&self, run: impl for<'a> FnOnce(&mut S::With<'a>) -> R) -> Option<R> {
        let mut pointer = self.pointer.take()?;
        let _restore = ScopedTlsGuard {
            scoped: self,
            before: Some(pointer),
        };
        // SAFETY: the pointer was made from a `&mut` by `set`, whose frame still exists, as it would have taken the
        // pointer out; no other code can reach the value meanwhile, as the `&mut` is blocked by `set` and the cell
        // is empty. `run` works for any lifetime and so can keep no reference to it.
        let value = unsafe { pointer.as_mut() };
        Some(run(value))
    }

    /// True if a value is set, and no closure has it.
    pub fn is_set(&self) -> bool {
        let pointer = self.pointer.take();
        self.pointer.set(pointer);
        pointer.is_some()
    }
}

/// Restores the previous value when dropped, also if `run` panics.
struct ScopedTlsGuard<'p, S: Scoped> {
    scoped: &'p ScopedTls<S>,
    before: Option<NonNull<S::With<'static>>>,
}

impl<S: Scoped> Drop for ScopedTlsGuard<'_, S> {
    fn drop(&mut self) {
        self.scoped.pointer.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    trait Count {
        fn more(&mut self) -> u32;
    }

    struct Borrowing<'a>(&'a mut u32);

    impl Count for Borrowing<'_> {
        fn more(&mut self) -> u32 {
            *self.0 += 1;
            *self.0
        }
    }

    struct Counts;

    impl Scoped for Counts {
        type With<'a> = dyn Count + 'a;
    }

    #[test]
    fn what_is_set_is_reached_from_further_down_and_not_afterwards() {
        let scoped = ScopedTls::<Counts>::new();
        assert!(scoped.with(|count| count.more()).is_none());
        let mut number = 0;
        {
            let mut borrowing = Borrowing(&mut number);
            scoped.set(&mut borrowing, || {
                assert_eq!(scoped.with(|count| count.more()), Some(1));
                assert_eq!(scoped.with(|count| count.more()), Some(2));
                assert!(scoped.is_set());
            });
        }
        assert!(!scoped.is_set());
        assert_eq!(number, 2);
    }

    #[test]
    fn nothing_is_reached_twice_at_once() {
        let scoped = ScopedTls::<Counts>::new();
        let mut number = 0;
        scoped.set(&mut Borrowing(&mut number), || {
            scoped.with(|count| {
                assert!(scoped.with(|other| other.more()).is_none());
                count.more();
            });
            assert_eq!(scoped.with(|count| count.more()), Some(2));
        });
    }

    #[test]
    fn a_second_value_hides_the_first_until_its_call_is_over() {
        let scoped = ScopedTls::<Counts>::new();
        let (mut one, mut other) = (10, 20);
        scoped.set(&mut Borrowing(&mut one), || {
            scoped.set(&mut Borrowing(&mut other), || {
                assert_eq!(scoped.with(|count| count.more()), Some(21));
            });
            assert_eq!(scoped.with(|count| count.more()), Some(11));
        });
    }

    #[test]
    fn a_panic_takes_the_value_out() {
        let scoped = ScopedTls::<Counts>::new();
        let mut number = 0;
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            scoped.set(&mut Borrowing(&mut number), || panic!("out"));
        }));
        assert!(result.is_err());
        assert!(!scoped.is_set());
    }
}
