//! A place of a thread in which something borrowed is lent to code further down the stack that can not be handed it.
//!
//! Callbacks of a foreign interpreter must be `'static`, yet they work on what their caller's caller borrows. The caller
//! lends it ([`Lending::lend`]) for the length of one call; a callback borrows it for the length of one closure
//! ([`Lending::borrow`]). Nothing is ever reachable twice: while it is borrowed, the place is empty.
//!
//! ```text
//! lend(&mut host, || interpreter.run())      // the place holds a pointer to `host` until `run` is over
//!                    └─ borrow(|host| …)     // takes the pointer out, and puts it back afterwards
//! ```

#![expect(
    unsafe_code,
    reason = "a borrow is passed on behind the back of a frame that can not carry it"
)]

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The family of types that a [`Lending`] lends: one type for each lifetime of what it borrows itself.
pub trait Lent: 'static {
    /// Usually `dyn Trait + 'a`.
    type With<'a>: ?Sized + 'a;
}

/// See the module. Meant for a `thread_local!`; it is neither `Send` nor `Sync`.
pub struct Lending<L: Lent> {
    pointer: Cell<Option<NonNull<L::With<'static>>>>,
    _stays: PhantomData<*mut ()>,
}

impl<L: Lent> Default for Lending<L> {
    fn default() -> Self {
        Lending::new()
    }
}

impl<L: Lent> Lending<L> {
    /// An empty place.
    pub const fn new() -> Lending<L> {
        Lending {
            pointer: Cell::new(None),
            _stays: PhantomData,
        }
    }

    /// Lends `value` to whatever borrows it from here while `run` runs. What was lent before is hidden meanwhile.
    pub fn lend<'a, R>(&self, value: &mut L::With<'a>, run: impl FnOnce() -> R) -> R {
        let pointer: NonNull<L::With<'a>> = NonNull::from(value);
        // SAFETY: both types are pointers to one type that differ in a lifetime only, hence of one size and layout. The
        // longer lifetime is a lie that nobody can use: `borrow` hands the value to closures that must work for any
        // lifetime, and `Restore` takes the pointer out before the true one ends.
        let pointer = unsafe {
            std::mem::transmute_copy::<NonNull<L::With<'a>>, NonNull<L::With<'static>>>(&pointer)
        };
        let _restore = Restore {
            place: self,
            before: self.pointer.replace(Some(pointer)),
        };
        run()
    }

    /// Borrows what is lent; nothing if nothing is, or if it is borrowed already.
    pub fn borrow<R>(&self, run: impl for<'a> FnOnce(&mut L::With<'a>) -> R) -> Option<R> {
        let mut pointer = self.pointer.take()?;
        let _restore = Restore {
            place: self,
            before: Some(pointer),
        };
        // SAFETY: the pointer was made from a `&mut` by `lend`, whose frame is still there, as it would have taken the
        // pointer out; nobody else can reach the value meanwhile, as the `&mut` is blocked by `lend` and the place is
        // empty. `run` works for any lifetime and so can keep nothing of it.
        let value = unsafe { pointer.as_mut() };
        Some(run(value))
    }

    /// Whether something is lent and not borrowed.
    pub fn is_lent(&self) -> bool {
        let pointer = self.pointer.take();
        self.pointer.set(pointer);
        pointer.is_some()
    }
}

/// Puts back what was in the place, also when a panic passes.
struct Restore<'p, L: Lent> {
    place: &'p Lending<L>,
    before: Option<NonNull<L::With<'static>>>,
}

impl<L: Lent> Drop for Restore<'_, L> {
    fn drop(&mut self) {
        self.place.pointer.set(self.before);
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

    impl Lent for Counts {
        type With<'a> = dyn Count + 'a;
    }

    #[test]
    fn what_is_lent_is_reached_from_further_down_and_not_afterwards() {
        let place = Lending::<Counts>::new();
        assert!(place.borrow(|count| count.more()).is_none());
        let mut number = 0;
        {
            let mut borrowing = Borrowing(&mut number);
            place.lend(&mut borrowing, || {
                assert_eq!(place.borrow(|count| count.more()), Some(1));
                assert_eq!(place.borrow(|count| count.more()), Some(2));
                assert!(place.is_lent());
            });
        }
        assert!(!place.is_lent());
        assert_eq!(number, 2);
    }

    #[test]
    fn nothing_is_reached_twice_at_once() {
        let place = Lending::<Counts>::new();
        let mut number = 0;
        place.lend(&mut Borrowing(&mut number), || {
            place.borrow(|count| {
                assert!(place.borrow(|other| other.more()).is_none());
                count.more();
            });
            assert_eq!(place.borrow(|count| count.more()), Some(2));
        });
    }

    #[test]
    fn a_second_loan_hides_the_first_until_it_ends() {
        let place = Lending::<Counts>::new();
        let (mut one, mut other) = (10, 20);
        place.lend(&mut Borrowing(&mut one), || {
            place.lend(&mut Borrowing(&mut other), || {
                assert_eq!(place.borrow(|count| count.more()), Some(21));
            });
            assert_eq!(place.borrow(|count| count.more()), Some(11));
        });
    }

    #[test]
    fn a_panic_ends_the_loan() {
        let place = Lending::<Counts>::new();
        let mut number = 0;
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            place.lend(&mut Borrowing(&mut number), || panic!("out"));
        }));
        assert!(result.is_err());
        assert!(!place.is_lent());
    }
}
