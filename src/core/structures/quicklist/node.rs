//! One node of a quicklist: packed elements, compressed packed elements, or one large element.
//!
//! ```text
//! packed      [free][listpack][free]     start and end delimit the listpack
//! compressed  [lzf]                  end is the uncompressed length of the listpack
//! plain       [element], which is a block of its own if it is long, so that replies share it
//! ```
//!
//! A listpack is contiguous and begins with a header, so adding an element at its front would move all bytes after
//! the header. With free space on both sides only the few bytes of the header move, and either end costs the same.
//! The space is kept on the side of the last insertion, and [`QuicklistNode::seal`] frees it. A node knows nothing of
//! its neighbors.

use crate::alloc::account::size_class;
use std::ops::{Deref, DerefMut};

use crate::structures::block::{Content, Kept, LONG_BYTES_MIN, SharedBlock};
use crate::structures::item::Item;
use crate::structures::listpack::{self, Listpack, ListpackMut};
use crate::structures::lzf;
use crate::structures::prefetch;
use crate::structures::splice::Splice;

use super::End;

/// A node, see the module.
pub(super) struct QuicklistNode {
    memory: QuicklistNodeMemory,
    start: u32,
    end: u32,
    count: u32,
    form: QuicklistNodeForm,
}

const _: () = assert!(size_of::<QuicklistNode>() == 32);

/// The memory of a node's bytes.
enum QuicklistNodeMemory {
    Own(Box<[u8]>),
    /// The block of a long element, for a plain node only.
    Long(Kept),
}

impl QuicklistNodeMemory {
    /// Creates the memory of one element: its block if it is long and in one, otherwise a copy.
    fn plain(element: Content<'_>) -> QuicklistNodeMemory {
        match element.len() >= LONG_BYTES_MIN {
            true => QuicklistNodeMemory::Long(Kept::new(element)),
            false => QuicklistNodeMemory::Own(element.bytes().into()),
        }
    }
}

impl Deref for QuicklistNodeMemory {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            QuicklistNodeMemory::Own(bytes) => bytes,
            QuicklistNodeMemory::Long(block) => block,
        }
    }
}

impl DerefMut for QuicklistNodeMemory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            QuicklistNodeMemory::Own(bytes) => bytes,
            QuicklistNodeMemory::Long(_) => unreachable!("a plain node is replaced, never changed"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuicklistNodeForm {
    Packed,
    Compressed,
    Plain,
}

/// Minimum bytes of a listpack that is compressed.
const COMPRESSED_FROM_BYTES: usize = 48;
/// Minimum bytes that compression must save.
const COMPRESSION_SAVES_BYTES_MIN: usize = 8;

impl QuicklistNode {
    /// Creates a node without elements; the free space is on the side where insertions are expected.
    pub(super) fn empty(end: End, room_bytes: usize) -> QuicklistNode {
        let capacity = size_class(listpack::EMPTY.len() + room_bytes);
        let mut memory = zeros(capacity);
        let start = match end {
            End::Front => capacity - listpack::EMPTY.len(),
            End::Back => 0,
        };
        memory[start..start + listpack::EMPTY.len()].copy_from_slice(&listpack::EMPTY);
        QuicklistNode {
            memory,
            start: start as u32,
            end: (start + listpack::EMPTY.len()) as u32,
            count: 0,
            form: QuicklistNodeForm::Packed,
        }
    }

    /// Creates a node with a copy of a listpack.
    pub(super) fn packed(pack: Listpack<'_>) -> QuicklistNode {
        let bytes = pack.bytes();
        let mut memory = zeros(size_class(bytes.len()));
        memory[..bytes.len()].copy_from_slice(bytes);
        QuicklistNode {
            memory,
            start: 0,
            end: bytes.len() as u32,
            count: pack.len() as u32,
            form: QuicklistNodeForm::Packed,
        }
    }

    /// Creates a node with one large element.
    pub(super) fn plain(element: Content<'_>) -> QuicklistNode {
        QuicklistNode {
            memory: QuicklistNodeMemory::plain(element),
            start: 0,
            end: 0,
            count: 1,
            form: QuicklistNodeForm::Plain,
        }
    }

    /// Prefetches one end of the node's contents.
    pub(super) fn prefetch(&self, end: End) {
        let bytes = &self.memory[..(self.end as usize).min(self.memory.len())];
        match end {
            End::Front => prefetch::line_of(&bytes[(self.start as usize).min(bytes.len())..]),
            End::Back => prefetch::end_of(bytes),
        }
    }

    /// Returns the address of the node's memory.
    pub(super) fn address(&self) -> usize {
        self.memory.as_ptr().addr()
    }

    /// Returns the node's parts: the bytes of its listpack, compressed or not, or of its one element; its counts; its
    /// form.
    pub(super) fn parts(&self) -> (&[u8], u64, u8) {
        let (bytes, len) = match self.form {
            QuicklistNodeForm::Packed => (self.bytes(), 0),
            QuicklistNodeForm::Compressed => (&*self.memory, self.end),
            QuicklistNodeForm::Plain => (&*self.memory, 0),
        };
        let counts = u64::from(self.count) << 32 | u64::from(len);
        (bytes, counts, self.form as u8)
    }

    /// Creates a node from such parts.
    pub(super) fn of_parts(bytes: &[u8], counts: u64, form: u8) -> QuicklistNode {
        let (form, room, end) = match form {
            0 => (
                QuicklistNodeForm::Packed,
                size_class(bytes.len()),
                bytes.len() as u32,
            ),
            1 => (QuicklistNodeForm::Compressed, bytes.len(), counts as u32),
            _ => (QuicklistNodeForm::Plain, bytes.len(), 0),
        };
        let memory = match form {
            QuicklistNodeForm::Plain => QuicklistNodeMemory::plain(bytes.into()),
            _ => {
                let mut memory = zeros(room);
                memory[..bytes.len()].copy_from_slice(bytes);
                memory
            }
        };
        QuicklistNode {
            memory,
            start: 0,
            end,
            count: (counts >> 32) as u32,
            form,
        }
    }

    /// Moves the bytes to newly allocated memory.
    pub(super) fn relocate(&mut self) {
        // Blocks of long elements are too large for slabs.
        if let QuicklistNodeMemory::Own(bytes) = &mut self.memory {
            *bytes = bytes.clone();
        }
    }

    /// Returns the number of elements.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count as usize
    }

    /// Returns the uncompressed length of the listpack, or the length of the one element.
    #[inline]
    pub(super) fn len_bytes(&self) -> usize {
        match self.form {
            QuicklistNodeForm::Packed => (self.end - self.start) as usize,
            QuicklistNodeForm::Compressed => self.end as usize,
            QuicklistNodeForm::Plain => self.memory.len(),
        }
    }

    /// True if the node is a single element outside of a listpack.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.form == QuicklistNodeForm::Plain
    }

    /// True if the node must be decompressed before it can be changed.
    #[inline]
    pub(super) fn is_compressed(&self) -> bool {
        self.form == QuicklistNodeForm::Compressed
    }

    /// Returns the one element of a plain node.
    pub(super) fn as_plain(&self) -> Option<Item<'_>> {
        self.is_plain().then(|| match &self.memory {
            QuicklistNodeMemory::Own(bytes) => Item::bytes(bytes),
            QuicklistNodeMemory::Long(block) => Item::Block(block),
        })
    }

    /// Returns the listpack in place, if it is neither compressed nor plain.
    #[inline]
    pub(super) fn as_listpack(&self) -> Option<Listpack<'_>> {
        (self.form == QuicklistNodeForm::Packed).then(|| Listpack::new(self.bytes()))
    }

    /// Decompresses the listpack of a compressed node.
    pub(super) fn unpacked(&self) -> Vec<u8> {
        lzf::decompress(&self.memory, self.end as usize)
            .expect("compressed here, from that many bytes")
    }

    /// Passes the listpack to `read`, decompressed if necessary; must not be called for a plain node.
    pub(super) fn with_pack<R>(&self, read: impl FnOnce(Listpack<'_>) -> R) -> R {
        match self.form {
            QuicklistNodeForm::Packed => read(Listpack::new(self.bytes())),
            QuicklistNodeForm::Compressed => read(Listpack::new(&self.unpacked())),
            QuicklistNodeForm::Plain => unreachable!("asked before: a plain node has no pack"),
        }
    }

    /// Adds an element at an end.
    #[inline]
    pub(super) fn push(&mut self, end: End, element: &[u8]) {
        let mut pack = ListpackMut::new(self);
        match end {
            End::Front => pack.push_front(element),
            End::Back => pack.push_back(element),
        }
        self.count += 1;
    }

    /// Removes the element at an end. A node with one element is only marked empty, and must be dropped.
    #[inline]
    pub(super) fn pop<R>(&mut self, end: End, take: impl FnOnce(Item<'_>) -> R) -> R {
        if let Some(element) = self.as_plain() {
            let result = take(element);
            self.count = 0;
            return result;
        }
        let pack = Listpack::new(self.bytes());
        let at = match end {
            End::Front => pack.first(),
            End::Back => pack.last(),
        };
        let at = at.expect("a node is never empty");
        let result = take(pack.get(at).into());
        if self.count > 1 {
            ListpackMut::new(self).remove(at);
        }
        self.count -= 1;
        result
    }

    /// Inserts an element before the one at an index.
    pub(super) fn insert(&mut self, index: usize, element: &[u8]) {
        let pack = Listpack::new(self.bytes());
        match pack.nth(index as isize) {
            Some(at) => {
                ListpackMut::new(self).insert_before(at, element);
                self.count += 1;
            }
            None => self.push(End::Back, element),
        }
    }

    /// Replaces the element at an index.
    pub(super) fn replace(&mut self, index: usize, element: &[u8]) {
        let at = Listpack::new(self.bytes()).nth(index as isize);
        ListpackMut::new(self).replace(at.expect("the index is within"), element);
    }

    /// Removes `count` elements, starting at an index.
    pub(super) fn remove_range(&mut self, first: usize, count: usize) {
        let at = Listpack::new(self.bytes()).nth(first as isize);
        ListpackMut::new(self).remove_range(at.expect("the index is within"), count);
        self.count -= count as u32;
    }

    /// Splits the node before an element. Returns the second part.
    pub(super) fn split(&mut self, index: usize) -> QuicklistNode {
        let mut second = QuicklistNode::packed(Listpack::new(self.bytes()));
        second.remove_range(0, index);
        second.seal();
        self.remove_range(index, self.count() - index);
        self.seal();
        second
    }

    /// Appends the elements of another node; neither node may be plain or compressed.
    pub(super) fn absorb(&mut self, other: &QuicklistNode) {
        ListpackMut::new(self).push_back_pack(Listpack::new(other.bytes()));
        self.count += other.count;
        self.seal();
    }

    /// Removes the elements at these indexes, which must be ascending.
    pub(super) fn remove_each(&mut self, indices: &[usize]) {
        if let [index] = *indices {
            self.remove_range(index, 1);
            return;
        }
        let mut rest = QuicklistNode::empty(End::Back, self.len_bytes());
        let count = indices.len() as u32;
        let mut indices = indices.iter().copied().peekable();
        let mut pack = ListpackMut::new(&mut rest);
        for (index, element) in Listpack::new(self.bytes()).iter().enumerate() {
            if indices.next_if_eq(&index).is_none() {
                pack.push_back_element(element);
            }
        }
        rest.count = self.count - count;
        *self = rest;
    }

    /// Frees unused space.
    pub(super) fn seal(&mut self) {
        if self.form != QuicklistNodeForm::Packed
            || size_class(self.bytes().len()) >= self.memory.len()
        {
            return;
        }
        self.move_to(size_class(self.bytes().len()));
    }

    /// Calls [`QuicklistNode::seal`] if there is much unused space.
    pub(super) fn seal_if_loose(&mut self) {
        let len = self.bytes().len();
        if size_class(len + len / 4) < self.memory.len() {
            self.seal();
        }
    }

    fn move_to(&mut self, capacity: usize) {
        let bytes = self.bytes();
        let mut memory = zeros(capacity);
        memory[..bytes.len()].copy_from_slice(bytes);
        (self.start, self.end) = (0, bytes.len() as u32);
        self.memory = memory;
    }

    /// Compresses the listpack if that saves enough memory.
    pub(super) fn compress(&mut self) {
        let bytes = match self.form {
            QuicklistNodeForm::Packed => self.bytes(),
            _ => return,
        };
        if bytes.len() < COMPRESSED_FROM_BYTES {
            return;
        }
        match lzf::compress(bytes) {
            Some(small) if small.len() + COMPRESSION_SAVES_BYTES_MIN < bytes.len() => {
                (self.start, self.end) = (0, bytes.len() as u32);
                self.memory = QuicklistNodeMemory::Own(small.into_boxed_slice());
                self.form = QuicklistNodeForm::Compressed;
            }
            _ => self.seal(),
        }
    }

    /// Decompresses a compressed listpack.
    pub(super) fn decompress(&mut self) {
        if !self.is_compressed() {
            return;
        }
        let bytes = self.unpacked();
        (self.start, self.end) = (0, bytes.len() as u32);
        self.memory = QuicklistNodeMemory::Own(bytes.into_boxed_slice());
        self.form = QuicklistNodeForm::Packed;
    }

    /// Returns a copy without unused space.
    pub(super) fn duplicate(&self) -> QuicklistNode {
        match self.form {
            QuicklistNodeForm::Packed => QuicklistNode::packed(Listpack::new(self.bytes())),
            QuicklistNodeForm::Plain => QuicklistNode::plain(Content::from(&*self.memory)),
            QuicklistNodeForm::Compressed => QuicklistNode {
                memory: QuicklistNodeMemory::Own((*self.memory).into()),
                ..*self
            },
        }
    }

    /// Returns a copy without unused space, which shares a long element.
    pub(super) fn share(&self) -> QuicklistNode {
        match &self.memory {
            QuicklistNodeMemory::Long(block) => QuicklistNode {
                memory: QuicklistNodeMemory::Long(Kept::adopt(SharedBlock::clone(block))),
                ..*self
            },
            QuicklistNodeMemory::Own(_) => self.duplicate(),
        }
    }

    /// Returns the approximate bytes that [`QuicklistNode::share`] copies.
    pub(super) fn copied_bytes(&self) -> usize {
        let bytes = match &self.memory {
            QuicklistNodeMemory::Own(bytes) => bytes.len(),
            QuicklistNodeMemory::Long(_) => 0,
        };
        size_of::<QuicklistNode>() + bytes
    }

    /// Returns the node with a copy of its element if that is shared.
    pub(super) fn without_sharing(self) -> QuicklistNode {
        match &self.memory {
            QuicklistNodeMemory::Long(block) if !block.is_unique() => self.duplicate(),
            _ => self,
        }
    }

    /// Takes the contents, leaving a node that only keeps the number of elements, and must be dropped.
    pub(super) fn take(&mut self) -> QuicklistNode {
        let hollow = QuicklistNode {
            memory: QuicklistNodeMemory::Own(Box::default()),
            start: 0,
            end: 0,
            count: self.count,
            form: QuicklistNodeForm::Packed,
        };
        std::mem::replace(self, hollow)
    }

    /// Returns the bytes allocated for its elements.
    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        match &self.memory {
            QuicklistNodeMemory::Own(bytes) => size_class(bytes.len()),
            QuicklistNodeMemory::Long(block) => block.memory_bytes(),
        }
    }

    /// Makes space on a side that has none: by moving to the other side of the memory, or to larger memory.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, at: usize, removed: usize, inserted: usize, end: End) {
        let (start, len) = (self.start as usize, self.bytes().len());
        let head = start..start + at;
        let tail = start + at + removed..start + len;
        let new_len = len - removed + inserted;
        let place = |capacity: usize| match end {
            End::Front => capacity - new_len,
            End::Back => 0,
        };
        let new_start = if new_len <= self.memory.len() {
            let new_start = place(self.memory.len());
            let new_tail = new_start + at + inserted;
            // The first move must not overwrite the other part. If the head moves to the right, the tail does too.
            if new_start > start {
                self.memory.copy_within(tail, new_tail);
                self.memory.copy_within(head, new_start);
            } else {
                self.memory.copy_within(head, new_start);
                self.memory.copy_within(tail, new_tail);
            }
            new_start
        } else {
            let capacity = new_len.max((self.memory.len() + 1).next_power_of_two());
            let mut memory = zeros(size_class(capacity));
            let new_start = place(memory.len());
            let new_tail = new_start + at + inserted;
            memory[new_start..new_start + at].copy_from_slice(&self.memory[head]);
            memory[new_tail..new_start + new_len].copy_from_slice(&self.memory[tail]);
            self.memory = memory;
            new_start
        };
        self.start = new_start as u32;
        self.end = u32::try_from(new_start + new_len).expect("nodes are far smaller");
    }
}

fn zeros(len: usize) -> QuicklistNodeMemory {
    QuicklistNodeMemory::Own(vec![0; len].into_boxed_slice())
}

/// For packed nodes only.
impl Splice for QuicklistNode {
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.memory[self.start as usize..self.end as usize]
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start as usize..self.end as usize]
    }

    #[inline]
    fn splice(&mut self, at: usize, removed: usize, inserted: usize) -> &mut [u8] {
        let (start, end) = (self.start as usize, self.end as usize);
        let len = end - start;
        assert!(at + removed <= len, "the removed bytes are there");
        let after = len - at - removed;
        let (head, tail) = (start..start + at, end - after..end);
        // The shorter part moves.
        if at < after {
            if start + removed >= inserted {
                let new_start = start + removed - inserted;
                self.memory.copy_within(head, new_start);
                self.start = new_start as u32;
            } else {
                self.make_room(at, removed, inserted, End::Front);
            }
        } else {
            let new_tail = start + at + inserted;
            if new_tail + after <= self.memory.len() {
                self.memory.copy_within(tail, new_tail);
                self.end = (new_tail + after) as u32;
            } else {
                self.make_room(at, removed, inserted, End::Back);
            }
        }
        let at = self.start as usize + at;
        &mut self.memory[at..at + inserted]
    }
}
