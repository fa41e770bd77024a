//! One order for records of many threads: a ring whose slots are allocated by one `fetch_add`.
//!
//! A producer allocates a slot and puts its record there; the order of slots is the order in which records are
//! consumed. There is one consumer at a time: consuming is a role that any thread takes by [`Sequence::consume`] if
//! no other thread has it. A thread that finds the role taken sets a flag, and the consumer checks once more before
//! it gives up the role, so that a record is consumed by its own producer or by the current consumer. No producer
//! waits for another one: a record after a slot that is allocated and not filled yet is consumed by the producer that
//! fills that slot.
//!
//! ```text
//! slots    … | consumed | filled | allocated | filled | free …
//!                       ^ head                        ^ tail
//! ```
//!
//! The module knows neither the contents of records nor the effect of consuming them. Waiting until a position is
//! passed (all records before it consumed) is for tasks ([`Sequence::poll_passed`]).
//!
//! Limits: a producer that finds the ring full consumes records itself, which terminates as the oldest missing record
//! always has a slot; producers should check [`Sequence::is_crowded`] before they take locks that others wait for.

use std::task::{Context, Poll, Waker};

use crossbeam::queue::SegQueue;
use crossbeam::utils::CachePadded;

use self::sync::{AtomicBool, AtomicU8, AtomicU64, Cell, fence, spin_loop};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

#[cfg(not(loom))]
mod sync {
    pub(super) use crossbeam::atomic::AtomicCell as Cell;
    pub(super) use std::hint::spin_loop;
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, fence};
}

#[cfg(loom)]
mod sync {
    pub(super) use loom::hint::spin_loop;
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, fence};

    /// The cell of a slot, in a form that loom can check.
    pub(super) struct Cell<T>(loom::sync::Mutex<T>);

    impl<T: Default> Cell<T> {
        pub(super) fn new(value: T) -> Cell<T> {
            Cell(loom::sync::Mutex::new(value))
        }

        pub(super) fn store(&self, value: T) {
            *self.0.lock().expect("no panic under it") = value;
        }

        pub(super) fn take(&self) -> T {
            std::mem::take(&mut *self.0.lock().expect("no panic under it"))
        }
    }
}

/// Number of slots in the ring.
#[cfg(not(loom))]
const PLACES: u64 = 4 * 1024;

#[cfg(loom)]
const PLACES: u64 = 2;

/// Maximum number of records consumed by one call, as the consuming thread has a client of its own to serve.
const CONSUMED_MAX: u64 = 128;

/// State of the consumer's role: no thread has it.
const FREE: u8 = 0;
const TAKEN: u8 = 1;
/// State: a thread has the role, and another one has tried to take it meanwhile.
const AGAIN: u8 = 2;

/// The result of a call of [`Sequence::consume`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// No record is left that could be consumed, or another thread is consuming.
    Nothing,
    /// Records are left, as the call has reached its limit. Another call must continue.
    Some,
}

type RingSlots<T> = Box<[Cell<Option<Box<T>>>]>;

/// A consumer of records, which may combine several of them.
pub trait Consumer<T> {
    /// Takes the next record.
    fn take(&mut self, record: Box<T>);

    /// Completes the records taken so far: they count as consumed from then on.
    fn complete(&mut self) {}
}

impl<T, F: FnMut(Box<T>)> Consumer<T> for F {
    fn take(&mut self, record: Box<T>) {
        self(record);
    }
}

/// A sequence of records, see the module.
pub struct Sequence<T> {
    /// The ring, created with the first record, so that a server without subscribers has none.
    places: std::sync::OnceLock<RingSlots<T>>,
    /// Number of slots allocated so far.
    tail: CachePadded<AtomicU64>,
    /// Number of records consumed so far.
    head: CachePadded<AtomicU64>,
    role: AtomicU8,
    has_waiters: AtomicBool,
    waiters: SegQueue<Waker>,
}

impl<T> Default for Sequence<T> {
    fn default() -> Sequence<T> {
        Sequence {
            places: std::sync::OnceLock::new(),
            tail: CachePadded::new(AtomicU64::new(0)),
            head: CachePadded::new(AtomicU64::new(0)),
            role: AtomicU8::new(FREE),
            has_waiters: AtomicBool::new(false),
            waiters: SegQueue::new(),
        }
    }
}

impl<T> Sequence<T> {
    fn place(&self, number: u64) -> &Cell<Option<Box<T>>> {
        let places = self
            .places
            .get_or_init(|| (0..PLACES).map(|_| Cell::new(None)).collect());
        &places[(number % PLACES) as usize]
    }

    /// Appends a record. Returns the position after it, which is passed once it is consumed. `consume` is called if
    /// no slot is free: it must call [`Sequence::consume`].
    pub fn append(&self, record: Box<T>, consume: impl Fn()) -> u64 {
        // Relaxed suffices: the slot's cell publishes the record.
        let number = self.tail.fetch_add(1, Relaxed);
        while number - self.head.load(Acquire) >= PLACES {
            consume();
            spin_loop();
        }
        self.place(number).store(Some(record));
        number + 1
    }

    /// Whether so many records are pending that producers should wait before they append more.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        let head = self.head.load(Relaxed);
        self.tail.load(Relaxed).saturating_sub(head) > PLACES / 4 * 3
    }

    /// Whether all records before this position are consumed.
    #[inline]
    pub fn has_passed(&self, position: u64) -> bool {
        self.head.load(Acquire) >= position
    }

    /// Returns the number of records not consumed yet, including slots that are allocated and not filled.
    pub fn len(&self) -> u64 {
        let head = self.head.load(Relaxed);
        self.tail.load(Relaxed).saturating_sub(head)
    }

    /// Whether all records have been consumed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Passes records to a consumer, in order, up to a limit. If another thread is consuming, only asks that thread
    /// to check again.
    pub fn consume(&self, mut consumer: impl Consumer<T>) -> Left {
        if self.places.get().is_none() {
            return Left::Nothing;
        }
        // Release and acquire: the thread that has the role sees the records of threads that tried to take it
        // meanwhile.
        if self.role.swap(AGAIN, AcqRel) != FREE {
            return Left::Nothing;
        }
        let mut consumed = 0;
        loop {
            self.role.swap(TAKEN, AcqRel);
            // Only the consumer writes this.
            let mut head = self.head.load(Relaxed);
            while consumed < CONSUMED_MAX
                && let Some(record) = self.place(head).take()
            {
                consumer.take(record);
                head += 1;
                consumed += 1;
            }
            consumer.complete();
            // Release pairs with the Acquire of `append` and `has_passed`: the cells are empty, and the effects of
            // consuming are visible.
            self.head.store(head, Release);
            let is_over = consumed >= CONSUMED_MAX;
            let freed = match is_over {
                true => {
                    self.role.store(FREE, Release);
                    true
                }
                false => self
                    .role
                    .compare_exchange(TAKEN, FREE, AcqRel, Acquire)
                    .is_ok(),
            };
            if freed {
                // Tasks that wait check again themselves: two of them must not wake each other endlessly.
                if consumed > 0 {
                    self.wake_waiters();
                }
                return match is_over {
                    true => Left::Some,
                    false => Left::Nothing,
                };
            }
        }
    }

    fn wake_waiters(&self) {
        // Pairs with the fence of `poll_passed`: either that function sees the new head, or this one sees the waiting
        // task.
        fence(SeqCst);
        if self.has_waiters.load(Relaxed) {
            self.has_waiters.store(false, Relaxed);
            while let Some(waker) = self.waiters.pop() {
                waker.wake();
            }
        }
    }

    /// Becomes ready once all records before the position are consumed; otherwise the task is woken when more records
    /// are.
    pub fn poll_passed(&self, position: u64, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_passed(position) {
            return Poll::Ready(());
        }
        self.waiters.push(cx.waker().clone());
        self.has_waiters.store(true, Relaxed);
        fence(SeqCst);
        match self.has_passed(position) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn records_are_consumed_once_and_in_the_order_of_their_places() {
        const THREADS: u64 = 4;
        let each = if cfg!(miri) { 50 } else { 20_000 };
        let sequence = Arc::new(Sequence::default());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let consume = {
            let (sequence, seen) = (Arc::clone(&sequence), Arc::clone(&seen));
            move || {
                while sequence.consume(|record: Box<(u64, u64)>| seen.lock().push(*record))
                    == Left::Some
                {}
            }
        };
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (sequence, consume) = (Arc::clone(&sequence), consume.clone());
                std::thread::spawn(move || {
                    for number in 0..each {
                        sequence.append(Box::new((thread, number)), &consume);
                        consume();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("it is well");
        }
        assert!(
            sequence.is_empty(),
            "the last to come has consumed the rest"
        );
        let seen = seen.lock();
        assert_eq!(seen.len() as u64, THREADS * each);
        for thread in 0..THREADS {
            let numbers = seen.iter().filter(|(of, _)| *of == thread);
            assert!(numbers.map(|(_, number)| *number).eq(0..each));
        }
    }

    #[test]
    fn a_full_ring_is_emptied_by_who_appends() {
        let sequence = Sequence::default();
        let sum = AtomicU64::new(0);
        let consume = || {
            sequence.consume(|record: Box<u64>| {
                sum.fetch_add(*record, Relaxed);
            });
        };
        for number in 0..PLACES + 1 {
            assert_eq!(sequence.append(Box::new(number), consume), number + 1);
        }
        assert!(sequence.has_passed(1) && !sequence.has_passed(PLACES + 1));
        while sequence.consume(|record: Box<u64>| {
            sum.fetch_add(*record, Relaxed);
        }) == Left::Some
        {}
        assert_eq!(sum.load(Relaxed), (0..PLACES + 1).sum::<u64>());
    }

    #[test]
    fn a_task_is_woken_when_its_position_is_passed() {
        let sequence = Sequence::default();
        let position = sequence.append(Box::new(()), || ());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(sequence.poll_passed(position, &mut cx).is_pending());
        assert_eq!(sequence.consume(drop), Left::Nothing);
        assert!(sequence.poll_passed(position, &mut cx).is_ready());
        assert!(sequence.waiters.is_empty());
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::sync::Arc;

    use loom::sync::Mutex;
    use loom::thread;

    use super::*;

    fn work(thread: u64, each: u64, sequence: &Sequence<u64>, seen: &Mutex<Vec<u64>>) {
        for number in 0..each {
            let consume = || {
                sequence.consume(|record: Box<u64>| seen.lock().expect("well").push(*record));
            };
            sequence.append(Box::new(thread * 10 + number), || {
                consume();
                thread::yield_now();
            });
            consume();
        }
    }

    /// Each thread appends and then consumes: everything is consumed when both are done, in each thread's order.
    fn explore(each: u64, preemptions: Option<usize>) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = preemptions;
        builder.check(move || {
            let sequence = Arc::new(Sequence::<u64>::default());
            let seen = Arc::new(Mutex::new(Vec::new()));
            let other = {
                let (sequence, seen) = (Arc::clone(&sequence), Arc::clone(&seen));
                thread::spawn(move || work(1, each, &sequence, &seen))
            };
            work(2, each, &sequence, &seen);
            other.join().expect("it is well");
            let seen = seen.lock().expect("well");
            assert_eq!(seen.len() as u64, 2 * each, "all is consumed");
            for thread in [1, 2] {
                let of_one: Vec<_> = seen.iter().filter(|mark| **mark / 10 == thread).collect();
                assert!(of_one.is_sorted());
            }
        });
    }

    #[test]
    fn the_last_to_come_leaves_nothing_exhaustive() {
        explore(1, None);
    }

    #[test]
    fn two_records_each_3() {
        explore(2, Some(3));
    }
}
