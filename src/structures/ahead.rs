//! What is done with long bytes ahead, before anybody holds the structure that they are for: copies in the memory in which
//! it will keep them, and their hashes.
//!
//! Whoever stores 200 MiB takes fresh memory for them, which the system has to give page by page, and fills it: some 0.2 s
//! for which the others would wait. So where a structure is going to keep a copy is planned first ([`Plan`]: a layout,
//! and where in it the bytes begin), the copies are made ([`Ahead::add`]), and while the structure changes they are lent to
//! it ([`Ahead::lend`]): what takes fresh memory for long bytes asks for the piece that has them already. Nothing has to
//! be handed through the calls between, and a plan that turns out wrong costs what it cost before. In the same way a table
//! that is about to hash long bytes asks whether that was done ([`Ahead::hash`]): 200 MiB take 0.15 s.
//!
//! Invariants: a piece was allocated with its plan's layout and belongs to nobody else; its bytes from the plan's place
//! on are a copy of its source. Bytes that were hashed do not change as long as the hash is lent. As a piece counts as freed until somebody takes it, who takes it is charged as for fresh memory.

#![expect(unsafe_code, reason = "memory that changes owners with its contents")]

use std::alloc::{self, Layout};
use std::cell::Cell;
use std::ptr::{self, NonNull};

use super::{account, murmur};
use crate::base::hash::Seed;

/// Shorter bytes are copied where they are needed: that takes a microsecond.
pub const BYTES_MIN: usize = 16 * 1024;

/// Where a structure is going to keep a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Of the memory.
    pub(super) layout: Layout,
    /// Where in it the bytes begin.
    pub(super) at: usize,
}

struct Piece {
    /// Address and length of what it is a copy of.
    source: (usize, usize),
    plan: Plan,
    memory: NonNull<u8>,
}

/// A hash function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// That of tables.
    Keyed(Seed),
    /// That of sketches: MurmurHash64A under this seed.
    Murmur(u64),
}

impl Function {
    #[inline]
    fn compute(self, bytes: &[u8]) -> u64 {
        match self {
            Function::Keyed(seed) => seed.hash(bytes),
            Function::Murmur(seed) => murmur::compute(bytes, seed),
        }
    }
}

struct Hashed {
    /// Address and length of the bytes.
    source: (usize, usize),
    function: Function,
    hash: u64,
}

/// See the module.
#[derive(Default)]
pub struct Ahead {
    pieces: Vec<Piece>,
    hashes: Vec<Hashed>,
}

// SAFETY: the pieces are plain bytes which belong to it; all else are numbers.
unsafe impl Send for Ahead {}

thread_local! {
    /// What is lent to the structures that change on this thread.
    static LENT: Cell<Ahead> = const { Cell::new(Ahead { pieces: Vec::new(), hashes: Vec::new() }) };
    static IS_LENT: Cell<bool> = const { Cell::new(false) };
}

impl Ahead {
    /// Makes a copy, unless the bytes are short. They must neither move nor change until they have been stored.
    pub fn add(&mut self, bytes: &[u8], plan: Plan) {
        let Plan { layout, at } = plan;
        assert!(
            at + bytes.len() <= layout.size(),
            "the plan has room for them"
        );
        if bytes.len() < BYTES_MIN {
            return;
        }
        // SAFETY: the size is not zero.
        let Some(memory) = NonNull::new(unsafe { alloc::alloc(layout) }) else {
            // Whoever stores them will say so, if there is none then either.
            return;
        };
        // SAFETY: within fresh memory.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), memory.add(at).as_ptr(), bytes.len()) };
        account::lay_aside(layout);
        self.pieces.push(Piece {
            source: source(bytes),
            plan,
            memory,
        });
    }

    /// Hashes bytes, unless they are short. They must neither move nor change as long as this is lent.
    pub fn hash(&mut self, bytes: &[u8], function: Function) {
        if bytes.len() >= BYTES_MIN {
            self.hashes.push(Hashed {
                source: source(bytes),
                function,
                hash: function.compute(bytes),
            });
        }
    }

    /// Whether there are neither copies nor hashes.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.hashes.is_empty()
    }

    /// Runs something that stores the bytes; what it does not take stays.
    pub fn lend<R>(&mut self, run: impl FnOnce() -> R) -> R {
        if self.is_empty() {
            return run();
        }
        let before = LENT.replace(std::mem::take(self));
        debug_assert!(before.is_empty(), "lent once at a time");
        IS_LENT.set(true);
        let result = run();
        IS_LENT.set(false);
        *self = LENT.replace(before);
        result
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        for piece in self.pieces.drain(..) {
            account::take_over(piece.plan.layout);
            // SAFETY: allocated with this layout, and nobody took it.
            unsafe { alloc::dealloc(piece.memory.as_ptr(), piece.plan.layout) };
        }
    }
}

/// Memory of a plan's layout in which a copy of `bytes` lies at the plan's place, if it was made ahead. The rest of it
/// holds anything. The caller owns it.
#[inline]
pub(super) fn take(bytes: &[u8], plan: Plan) -> Option<NonNull<u8>> {
    if bytes.len() < BYTES_MIN || !IS_LENT.get() {
        return None;
    }
    take_lent(bytes, plan)
}

#[cold]
#[inline(never)]
fn take_lent(bytes: &[u8], plan: Plan) -> Option<NonNull<u8>> {
    let mut lent = LENT.take();
    let source = source(bytes);
    let mut pieces = lent.pieces.iter();
    let found = pieces.position(|piece| piece.source == source && piece.plan == plan);
    let memory = found.map(|at| lent.pieces.swap_remove(at).memory);
    LENT.set(lent);
    if memory.is_some() {
        account::take_over(plan.layout);
    }
    memory
}

/// The hash of bytes, which may have been found ahead.
#[inline]
pub(super) fn hash(bytes: &[u8], function: Function) -> u64 {
    match bytes.len() >= BYTES_MIN {
        true => hash_long(bytes, function),
        false => function.compute(bytes),
    }
}

#[cold]
#[inline(never)]
fn hash_long(bytes: &[u8], function: Function) -> u64 {
    if IS_LENT.get() {
        let lent = LENT.take();
        let source = source(bytes);
        let mut hashes = lent.hashes.iter();
        let found = hashes.find(|hashed| hashed.source == source && hashed.function == function);
        let known = found.map(|hashed| hashed.hash);
        LENT.set(lent);
        if let Some(hash) = known {
            return hash;
        }
    }
    function.compute(bytes)
}

fn source(bytes: &[u8]) -> (usize, usize) {
    (bytes.as_ptr().addr(), bytes.len())
}

#[cfg(all(test, not(any(loom, asan))))]
mod tests {
    use super::*;
    use crate::structures::account::thread_bytes;

    fn plan(len: usize, at: usize) -> Plan {
        let layout = Layout::from_size_align(account::size_class(at + len), 8);
        Plan {
            layout: layout.expect("small"),
            at,
        }
    }

    /// Frees what was taken.
    fn free(memory: NonNull<u8>, plan: Plan) {
        // SAFETY: taken with this plan, hence allocated with its layout.
        unsafe { alloc::dealloc(memory.as_ptr(), plan.layout) };
    }

    #[test]
    fn a_copy_is_taken_once_by_who_stores_the_same_bytes_as_planned() {
        let bytes = vec![7_u8; BYTES_MIN];
        let twin = bytes.clone();
        let plan_12 = plan(bytes.len(), 12);
        let mut ahead = Ahead::default();
        ahead.add(&bytes, plan_12);
        assert_eq!(take(&bytes, plan_12), None, "not lent yet");
        ahead.lend(|| {
            assert_eq!(take(&twin, plan_12), None, "these lie elsewhere");
            assert_eq!(take(&bytes[1..], plan_12), None);
            assert_eq!(take(&bytes, plan(bytes.len(), 24)), None);
            let memory = take(&bytes, plan_12).expect("made ahead");
            // SAFETY: a copy of so many bytes lies there.
            let copy = unsafe { std::slice::from_raw_parts(memory.add(12).as_ptr(), bytes.len()) };
            assert_eq!(copy, bytes);
            assert_eq!(take(&bytes, plan_12), None, "taken already");
            free(memory, plan_12);
        });
        assert!(ahead.is_empty());
    }

    #[test]
    fn who_takes_a_copy_is_charged_for_it_and_nobody_else() {
        let bytes = vec![7_u8; 5 * BYTES_MIN];
        let plan = plan(bytes.len(), 0);
        let mut ahead = Ahead::default();
        ahead.pieces.reserve(2);
        let room = account::size_class(ahead.pieces.capacity() * size_of::<Piece>()) as i64;
        let before = thread_bytes();
        ahead.add(&bytes, plan);
        ahead.add(&bytes, plan);
        assert_eq!(thread_bytes(), before);
        let memory = ahead.lend(|| {
            let memory = take(&bytes, plan).expect("made ahead");
            assert_eq!(thread_bytes() - before, plan.layout.size() as i64);
            memory
        });
        free(memory, plan);
        assert_eq!(thread_bytes(), before);
        drop(ahead);
        assert_eq!(thread_bytes(), before - room, "what was not taken is freed");
    }

    #[test]
    fn short_bytes_are_neither_copied_nor_hashed() {
        let bytes = vec![7_u8; BYTES_MIN - 1];
        let mut ahead = Ahead::default();
        ahead.add(&bytes, plan(bytes.len(), 0));
        ahead.hash(&bytes, Function::Murmur(1));
        assert!(ahead.is_empty());
    }

    #[test]
    fn a_hash_is_of_these_bytes_where_they_lie_and_of_its_function() {
        let keyed = |k1| Function::Keyed(Seed { k0: 1, k1 });
        let functions = [keyed(2), keyed(3), Function::Murmur(2), Function::Murmur(3)];
        let [one, others @ ..] = functions;
        let bytes = vec![7_u8; BYTES_MIN + 1];
        let mut ahead = Ahead::default();
        ahead.hash(&bytes, one);
        // What was not found by looking at the bytes can be told from what was.
        ahead.hashes[0].hash ^= 1;
        assert_eq!(hash(&bytes, one), one.compute(&bytes), "not lent yet");
        ahead.lend(|| {
            for _ in 0..2 {
                assert_eq!(hash(&bytes, one), one.compute(&bytes) ^ 1);
            }
            for other in others {
                assert_eq!(hash(&bytes, other), other.compute(&bytes));
            }
            assert_eq!(hash(&bytes[1..], one), one.compute(&bytes[1..]));
            assert_eq!(hash(&bytes.clone(), one), one.compute(&bytes));
        });
        assert_eq!(hash(&bytes, one), one.compute(&bytes), "not lent any more");
    }
}
