//! A ring buffer to which many threads append records, and from which one thread at a time takes them, in the order
//! of their positions.
//!
//! A producer reserves the position of its records by one `fetch_add`, copies them, and stores the header of the
//! first record last. The consumer proceeds as long as headers are not zero: it zeroes what it has taken, and only
//! then releases the space, so that memory which is reserved and not filled yet reads as zero.
//!
//! ```text
//!  frame = header (length, kind, never zero) | tag | bytes, up to a multiple of 16
//!  … | wiped, free | finished | reserved, header zero | finished | wiped, free …
//!                  ^ head                                        ^ tail
//! ```
//!
//! Frames are multiples of 16 bytes and so is the ring: a header never crosses the ring's end. Data may, and is then
//! returned as two pieces. Large data is passed by reference: the frame then holds a box.
//!
//! Only a producer that finds no space waits, and only for the consumer; producers check [`ByteRing::is_crowded`]
//! before they acquire anything that others wait for. Records appended together become visible together.
//!
//! Fields that producers only read are on other cache lines than fields that producers and the consumer write.
//! Whether the ring is crowded is checked before each write, and so is stored in a flag that changes seldom.

#![expect(
    unsafe_code,
    reason = "places belong to those who drew them, and what they hold is published by its header"
)]

use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crossbeam::utils::CachePadded;

use self::memory::{AtomicBool, AtomicU64, Memory, Wait};

/// Bytes of a record's header, before its data.
const HEADER_BYTES: usize = 16;

/// Maximum bytes of a record's data; longer data is passed by reference.
pub const BYTES_MAX: usize = u32::MAX as usize >> 1;

const KIND_BYTES: u64 = 1 << 32;
const KIND_BOX: u64 = 2 << 32;
/// Marks the last record of an append.
const LAST: u64 = 4 << 32;

#[cfg(not(loom))]
mod memory {
    //! The bytes of a ring.

    use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
    use std::ptr::{self, NonNull};
    use std::sync::atomic::Ordering::{Acquire, Release};
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU64};

    /// Yields to other threads while a producer waits for space.
    pub(super) use crossbeam::utils::Backoff as Wait;

    pub(super) struct Memory {
        start: NonNull<u8>,
        len: usize,
    }

    // SAFETY: positions are written by the producers that reserved them and read by the consumer, one after the
    // other.
    unsafe impl Send for Memory {}
    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    impl Memory {
        pub(super) fn new(len: usize) -> Memory {
            let layout = Self::layout(len);
            // SAFETY: the length is not zero. Zeroed by the system: no page is touched before it is used.
            let Some(start) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
                handle_alloc_error(layout)
            };
            Memory { start, len }
        }

        fn layout(len: usize) -> Layout {
            Layout::from_size_align(len, 64).expect("a ring of a sane size")
        }

        pub(super) fn len(&self) -> usize {
            self.len
        }

        fn header(&self, at: usize) -> &AtomicU64 {
            debug_assert!(at < self.len && at.is_multiple_of(16));
            // SAFETY: the header is aligned and within the memory; head and tail order it before or after any
            // non-atomic access to these bytes.
            unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) }
        }

        /// Returns the header at a position, and acquires all writes before its store.
        pub(super) fn load_header(&self, at: usize) -> u64 {
            self.header(at).load(Acquire)
        }

        /// Publishes a record by storing its header.
        pub(super) fn store_header(&self, at: usize, header: u64) {
            self.header(at).store(header, Release);
        }

        /// # Safety
        /// Only the caller uses these bytes, which end before the ring does.
        pub(super) unsafe fn write(&self, at: usize, bytes: &[u8]) {
            debug_assert!(at + bytes.len() <= self.len);
            // SAFETY: the range is within the memory; the caller promises that no other thread uses it.
            unsafe {
                ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len())
            };
        }

        /// # Safety
        /// No thread writes these bytes while the slice is used; they end before the ring does.
        pub(super) unsafe fn read(&self, at: usize, len: usize) -> &[u8] {
            debug_assert!(at + len <= self.len);
            // SAFETY: the range is within the memory, which was zeroed when allocated; the caller promises that no
            // thread writes it meanwhile.
            unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(at), len) }
        }

        /// # Safety
        /// Only the caller uses these bytes, which end before the ring does.
        pub(super) unsafe fn wipe(&self, at: usize, len: usize) {
            debug_assert!(at + len <= self.len);
            // SAFETY: the range is within the memory; the caller promises that no other thread uses it.
            unsafe { ptr::write_bytes(self.start.as_ptr().add(at), 0, len) };
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: the memory was allocated with this layout.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) };
        }
    }
}

#[cfg(loom)]
mod memory {
    //! The memory of a ring in a form that loom can check: each word once as a header, once as bytes.

    use loom::cell::UnsafeCell;
    use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64};

    pub(super) struct Wait;

    impl Wait {
        pub(super) fn new() -> Wait {
            Wait
        }

        pub(super) fn snooze(&self) {
            loom::thread::yield_now();
        }
    }

    pub(super) struct Memory {
        headers: Vec<AtomicU64>,
        words: Vec<UnsafeCell<[u8; 8]>>,
        /// The result of the last read.
        read: UnsafeCell<Vec<Vec<u8>>>,
    }

    // SAFETY: loom checks the cells.
    unsafe impl Send for Memory {}
    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    impl Memory {
        pub(super) fn new(len: usize) -> Memory {
            Memory {
                headers: (0..len / 16).map(|_| AtomicU64::new(0)).collect(),
                words: (0..len / 8).map(|_| UnsafeCell::new([0; 8])).collect(),
                read: UnsafeCell::new(Vec::new()),
            }
        }

        pub(super) fn len(&self) -> usize {
            self.words.len() * 8
        }

        pub(super) fn load_header(&self, at: usize) -> u64 {
            self.headers[at / 16].load(Acquire)
        }

        pub(super) fn store_header(&self, at: usize, header: u64) {
            self.headers[at / 16].store(header, Release);
        }

        /// # Safety
        /// Only the caller uses these bytes, which end before the ring does; loom fails if that is not so.
        pub(super) unsafe fn write(&self, at: usize, bytes: &[u8]) {
            for (offset, byte) in bytes.iter().enumerate() {
                let at = at + offset;
                // SAFETY: loom fails if another thread uses it.
                self.words[at / 8].with_mut(|word| unsafe { (*word)[at % 8] = *byte });
            }
        }

        /// # Safety
        /// No thread writes these bytes, which end before the ring does; loom fails if that is not so.
        pub(super) unsafe fn read(&self, at: usize, len: usize) -> &[u8] {
            let bytes: Vec<u8> = (at..at + len)
                // SAFETY: loom fails if another thread writes it.
                .map(|at| self.words[at / 8].with(|word| unsafe { (*word)[at % 8] }))
                .collect();
            // SAFETY: only the consumer reads; the texts stay at their addresses until the memory is freed.
            self.read.with_mut(|kept| unsafe {
                (*kept).push(bytes);
                let last = (*kept).last().expect("just pushed");
                std::slice::from_raw_parts(last.as_ptr(), last.len())
            })
        }

        /// # Safety
        /// Only the caller uses these bytes, which end before the ring does; loom fails if that is not so.
        pub(super) unsafe fn wipe(&self, at: usize, len: usize) {
            for at in (at..at + len).step_by(8) {
                if at.is_multiple_of(16) {
                    self.headers[at / 16].store(0, Relaxed);
                }
                // SAFETY: loom fails if another thread uses it.
                self.words[at / 8].with_mut(|word| unsafe { *word = [0; 8] });
            }
        }
    }
}

/// A record to append: a tag chosen by the caller, and the contents.
pub enum RingRecord<'a, T> {
    /// Bytes, which are copied; at most [`BYTES_MAX`].
    Bytes(u64, &'a [u8]),
    /// A reference to large data.
    Boxed(u64, Box<T>),
}

/// A record as passed to the consumer.
pub enum Taken<'a, T> {
    /// The tag and the bytes, in two pieces if they cross the ring's end.
    Bytes(u64, &'a [u8], &'a [u8]),
    /// The tag and the box.
    Boxed(u64, Box<T>),
}

/// A ring buffer of records, see the module.
pub struct ByteRing<T> {
    memory: Memory,
    /// Number of bytes reserved so far.
    tail: CachePadded<AtomicU64>,
    /// Number of bytes taken so far. Written only by the consumer.
    head: CachePadded<AtomicU64>,
    is_taking: CachePadded<AtomicBool>,
    /// Set by producers before they publish a record, cleared by the consumer, which takes that record later.
    is_crowded: CachePadded<AtomicBool>,
    boxes: PhantomData<T>,
}

// SAFETY: boxes go from producers to the consumer, each to one owner.
unsafe impl<T: Send> Sync for ByteRing<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for ByteRing<T> {}

/// Returns the bytes that a record with `len` bytes of data takes in the ring.
pub const fn frame_bytes(len: usize) -> u64 {
    (HEADER_BYTES + len).next_multiple_of(HEADER_BYTES) as u64
}

impl<T: Send> ByteRing<T> {
    /// Creates a ring of `bytes` bytes, a power of two.
    pub fn new(bytes: usize) -> ByteRing<T> {
        assert!(bytes.is_power_of_two() && bytes >= 2 * HEADER_BYTES);
        ByteRing {
            memory: Memory::new(bytes),
            tail: CachePadded::new(AtomicU64::new(0)),
            head: CachePadded::new(AtomicU64::new(0)),
            is_taking: CachePadded::new(AtomicBool::new(false)),
            is_crowded: CachePadded::new(AtomicBool::new(false)),
            boxes: PhantomData,
        }
    }

    /// Returns the size of the ring in bytes.
    pub fn capacity(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Returns the bytes reserved so far: the position after the last record.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail.load(SeqCst)
    }

    /// Returns the bytes taken so far.
    #[inline]
    pub fn head(&self) -> u64 {
        self.head.load(Acquire)
    }

    /// Returns the bytes that are reserved and not taken.
    pub fn len_bytes(&self) -> u64 {
        let head = self.head.load(Relaxed);
        self.tail.load(Relaxed).saturating_sub(head)
    }

    /// True if three quarters are used and producers should hold back, as last seen by one of them or the consumer.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.is_crowded.load(Relaxed)
    }

    /// Returns the number of used bytes at which the ring counts as crowded.
    fn crowded_from_bytes(&self) -> u64 {
        self.capacity() / 4 * 3 + 1
    }

    fn place(&self, position: u64) -> usize {
        (position & (self.capacity() - 1)) as usize
    }

    /// Returns the total bytes of records, to be passed to [`ByteRing::append`].
    pub fn bytes_for(records: &[RingRecord<'_, T>]) -> u64 {
        let one = |record: &RingRecord<'_, T>| match record {
            RingRecord::Bytes(_, bytes) => frame_bytes(bytes.len()),
            RingRecord::Boxed(..) => frame_bytes(size_of::<usize>()),
        };
        records.iter().map(one).sum()
    }

    /// Appends records in one piece, of at most half the ring in total. Returns the position after them. Waits for
    /// the consumer if there is no space.
    pub fn append<'a>(&self, bytes: u64, records: impl Iterator<Item = RingRecord<'a, T>>) -> u64
    where
        T: 'a,
    {
        assert!(
            bytes > 0 && bytes <= self.capacity() / 2,
            "no place for {bytes} bytes"
        );
        // SeqCst: a consumer that goes to sleep on an empty ring announces that before it reads the tail. So either
        // it sees this addition, or this thread sees the announcement.
        let start = self.tail.fetch_add(bytes, SeqCst);
        let end = start + bytes;
        // Acquire: the memory was wiped before it was released.
        let mut head = self.head.load(Acquire);
        if end - head >= self.crowded_from_bytes() {
            self.is_crowded.store(true, Relaxed);
        }
        let wait = Wait::new();
        while end - head > self.capacity() {
            wait.snooze();
            head = self.head.load(Acquire);
        }
        let mut at = start;
        let mut first = 0;
        for record in records {
            let header;
            let mut inside = at + HEADER_BYTES as u64;
            let tag = match record {
                RingRecord::Bytes(tag, bytes) => {
                    self.copy((inside, end), bytes);
                    inside += bytes.len() as u64;
                    header = KIND_BYTES | bytes.len() as u64;
                    tag
                }
                RingRecord::Boxed(tag, boxed) => {
                    let address = Box::into_raw(boxed).expose_provenance();
                    self.copy((inside, end), &address.to_ne_bytes());
                    inside += size_of::<usize>() as u64;
                    header = KIND_BOX | size_of::<usize>() as u64;
                    tag
                }
            };
            self.copy((at + 8, end), &tag.to_ne_bytes());
            let next = inside.next_multiple_of(HEADER_BYTES as u64);
            let header = if next == end { header | LAST } else { header };
            match at == start {
                true => first = header,
                false => self.memory.store_header(self.place(at), header),
            }
            at = next;
        }
        assert_eq!(at, end, "fewer records than room was drawn for");
        self.memory.store_header(self.place(start), first);
        end
    }

    /// Copies bytes to a position reserved by the caller, up to `end`, where there is space.
    fn copy(&self, (position, end): (u64, u64), bytes: &[u8]) {
        assert!(
            bytes.len() as u64 <= end.saturating_sub(position),
            "more records than room was drawn for"
        );
        let at = self.place(position);
        let (here, there) = bytes.split_at(bytes.len().min(self.memory.len() - at));
        // SAFETY: the position belongs to the caller until it stores the first header, and its end was just
        // checked.
        unsafe {
            self.memory.write(at, here);
            self.memory.write(0, there);
        }
    }

    /// Passes finished records from the front to `take`, each with the position after it, until about `bytes_max`
    /// bytes are taken. Returns the number of bytes. All records of one append are taken together. Takes nothing
    /// while another thread is taking records.
    pub fn take(&self, bytes_max: u64, take: impl FnMut(Taken<'_, T>, u64)) -> u64 {
        // Acquire and Release: the consumer sees the state left by the previous one.
        if self.is_taking.swap(true, Acquire) {
            return 0;
        }
        // SAFETY: only one thread at a time reaches this.
        let taken = unsafe { self.take_some(bytes_max, take) };
        self.is_taking.store(false, Release);
        taken
    }

    /// # Safety
    /// Only one thread at a time calls this.
    unsafe fn take_some(&self, bytes_max: u64, mut take: impl FnMut(Taken<'_, T>, u64)) -> u64 {
        let start = self.head.load(Relaxed);
        // Positions beyond a whole turn of the ring coincide with those being taken now, which are not zeroed yet.
        let tail = self.tail.load(Relaxed).min(start + self.capacity());
        let mut at = start;
        while at < tail {
            let header = self.memory.load_header(self.place(at));
            if header == 0 {
                break;
            }
            let len = (header & u64::from(u32::MAX)) as usize;
            let end = at + frame_bytes(len);
            let mut tag = [0; 8];
            // SAFETY: according to its header the record is finished: its producer writes no more, and others write
            // only after the head has passed.
            let (tagged, (here, there)) = unsafe {
                (
                    self.pieces(at + 8, 8).0,
                    self.pieces(at + HEADER_BYTES as u64, len),
                )
            };
            tag.copy_from_slice(tagged);
            let tag = u64::from_ne_bytes(tag);
            if header & KIND_BOX == 0 {
                take(Taken::Bytes(tag, here, there), end);
            } else {
                let mut address = [0; size_of::<usize>()];
                address.copy_from_slice(here);
                let address = usize::from_ne_bytes(address);
                // SAFETY: `append` has stored this box; it is taken only once, because the bytes are then zeroed.
                let boxed =
                    unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut(address)) };
                take(Taken::Boxed(tag, boxed), end);
            }
            at = end;
            if header & LAST != 0 && at - start >= bytes_max {
                break;
            }
        }
        self.give_back(start, at);
        at - start
    }

    /// # Safety
    /// No thread writes these bytes meanwhile.
    unsafe fn pieces(&self, position: u64, len: usize) -> (&[u8], &[u8]) {
        let at = self.place(position);
        let here = len.min(self.memory.len() - at);
        // SAFETY: the caller promises that no thread writes these bytes meanwhile; either part ends before the ring
        // does.
        unsafe { (self.memory.read(at, here), self.memory.read(0, len - here)) }
    }

    /// Zeroes the taken bytes, and releases them to producers.
    fn give_back(&self, start: u64, end: u64) {
        if start == end {
            return;
        }
        let (at, len) = (self.place(start), (end - start) as usize);
        let here = len.min(self.memory.len() - at);
        // SAFETY: the records are finished and taken; no other thread uses their bytes before the head has passed.
        unsafe {
            self.memory.wipe(at, here);
            self.memory.wipe(0, len - here);
        }
        // Release pairs with the Acquire of `append`.
        self.head.store(end, Release);
        if self.is_crowded.load(Relaxed) && self.len_bytes() < self.crowded_from_bytes() {
            self.is_crowded.store(false, Relaxed);
        }
    }
}

impl<T> Drop for ByteRing<T> {
    fn drop(&mut self) {
        // Frees boxes that the consumer did not take. An unfinished record ends the loop, and is leaked.
        let mut at = self.head.load(Relaxed);
        let tail = self.tail.load(Relaxed);
        let capacity = self.memory.len() as u64;
        while at < tail {
            let place = (at & (capacity - 1)) as usize;
            let header = self.memory.load_header(place);
            if header == 0 {
                break;
            }
            if header & KIND_BOX != 0 {
                let inside = ((at + HEADER_BYTES as u64) & (capacity - 1)) as usize;
                const LEN: usize = size_of::<usize>();
                let mut address = [0; LEN];
                // SAFETY: no other thread uses the ring, and `append` has stored this box.
                unsafe {
                    address.copy_from_slice(self.memory.read(inside, LEN));
                    let address = usize::from_ne_bytes(address);
                    drop(Box::<T>::from_raw(std::ptr::with_exposed_provenance_mut(
                        address,
                    )));
                }
            }
            at += frame_bytes((header & u64::from(u32::MAX)) as usize);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn put(ring: &ByteRing<String>, tag: u64, bytes: &[u8]) -> u64 {
        let record = || RingRecord::Bytes(tag, bytes);
        ring.append(ByteRing::bytes_for(&[record()]), std::iter::once(record()))
    }

    fn take_all(ring: &ByteRing<String>) -> Vec<(u64, String)> {
        let mut taken = Vec::new();
        ring.take(u64::MAX, |record, _| match record {
            Taken::Bytes(tag, here, there) => {
                let text = [here, there].concat();
                taken.push((tag, String::from_utf8(text).expect("text")));
            }
            Taken::Boxed(tag, text) => taken.push((tag, *text)),
        });
        taken
    }

    #[test]
    fn records_come_out_as_they_went_in_also_across_the_end() {
        let ring = ByteRing::new(256);
        let mut positions = Vec::new();
        for number in 0..100_u64 {
            let text = "x".repeat((number * 7 % 90) as usize);
            positions.push(put(&ring, number, text.as_bytes()));
            assert_eq!(take_all(&ring), [(number, text)]);
        }
        assert!(positions.is_sorted() && ring.len_bytes() == 0);
        assert_eq!(ring.head(), ring.tail());
    }

    #[test]
    fn records_of_one_append_are_seen_together_and_boxes_are_handed_over() {
        let ring = ByteRing::new(1024);
        let records = || {
            let boxed = Box::new("large".to_owned());
            [
                RingRecord::Bytes(1, b"SET a 1"),
                RingRecord::Boxed(2, boxed),
                RingRecord::Bytes(3, &[]),
            ]
        };
        let bytes = ByteRing::bytes_for(&records());
        assert_eq!(bytes, 32 + 32 + 16);
        ring.append(bytes, records().into_iter());
        let expected = [(1, "SET a 1"), (2, "large"), (3, "")];
        let taken = take_all(&ring);
        assert!(
            taken
                .iter()
                .map(|(tag, text)| (*tag, &text[..]))
                .eq(expected)
        );
        // Records of one append are taken together, however few bytes are requested.
        ring.append(bytes, records().into_iter());
        ring.append(bytes, records().into_iter());
        let mut ends = Vec::new();
        assert_eq!(ring.take(1, |_, end| ends.push(end)), bytes);
        assert_eq!(ends, [bytes + 32, bytes + 64, bytes + 80]);
        assert_eq!(take_all(&ring).len(), 3);
        // Records that are never taken are freed with the ring.
        ring.append(bytes, records().into_iter());
    }

    #[test]
    fn three_quarters_are_crowded() {
        let ring = ByteRing::new(256);
        for _ in 0..6 {
            put(&ring, 0, &[b'x'; 16]);
        }
        assert!(!ring.is_crowded());
        put(&ring, 0, b"");
        assert!(ring.is_crowded());
        assert_eq!(take_all(&ring).len(), 7);
        assert!(!ring.is_crowded());
    }

    #[test]
    fn many_threads_append_and_one_takes_each_record_once_and_in_order() {
        const THREADS: u64 = 3;
        let each = if cfg!(miri) { 40 } else { 20_000 };
        let ring = Arc::new(ByteRing::new(512));
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let ring = Arc::clone(&ring);
                std::thread::spawn(move || {
                    for number in 0..each {
                        let text = format!("{thread}:{number}");
                        match number % 5 {
                            0 => {
                                let boxed = RingRecord::Boxed(thread, Box::new(text));
                                ring.append(frame_bytes(8), std::iter::once(boxed))
                            }
                            _ => put(&ring, thread, text.as_bytes()),
                        };
                    }
                })
            })
            .collect();
        let mut seen = vec![0; THREADS as usize];
        while seen.iter().sum::<u64>() < THREADS * each {
            for (thread, text) in take_all(&ring) {
                assert_eq!(text, format!("{thread}:{}", seen[thread as usize]));
                seen[thread as usize] += 1;
            }
            std::thread::yield_now();
        }
        for thread in threads {
            thread.join().expect("it is well");
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::sync::Arc;

    use loom::thread;

    use super::*;

    fn put(ring: &ByteRing<u64>, mark: u64) {
        match mark % 2 {
            0 => {
                let boxed = RingRecord::Boxed(mark, Box::new(mark));
                ring.append(frame_bytes(8), std::iter::once(boxed))
            }
            _ => {
                let text = [mark as u8; 3];
                ring.append(
                    frame_bytes(3),
                    std::iter::once(RingRecord::Bytes(mark, &text)),
                )
            }
        };
    }

    /// Some threads append and one takes: each record must arrive once, whole, and in its thread's order. The ring
    /// has space for two records.
    fn explore(firsts: &'static [u64], each: u64, preemptions: Option<usize>) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = preemptions;
        builder.max_branches = 10_000;
        builder.check(move || {
            let ring = Arc::new(ByteRing::<u64>::new(64));
            let threads: Vec<_> = firsts
                .iter()
                .map(|&first| {
                    let ring = Arc::clone(&ring);
                    thread::spawn(move || (0..each).for_each(|number| put(&ring, first + number)))
                })
                .collect();
            let mut seen = Vec::new();
            while (seen.len() as u64) < firsts.len() as u64 * each {
                let taken = ring.take(u64::MAX, |record, _| match record {
                    Taken::Bytes(tag, here, there) => {
                        assert_eq!([here, there].concat(), [tag as u8; 3]);
                        seen.push(tag);
                    }
                    Taken::Boxed(tag, mark) => {
                        assert_eq!(*mark, tag);
                        seen.push(tag);
                    }
                });
                if taken == 0 {
                    thread::yield_now();
                }
            }
            for thread in threads {
                thread.join().expect("it is well");
            }
            for first in firsts {
                let of_one = seen.iter().filter(|mark| **mark / 10 == first / 10);
                let of_one: Vec<_> = of_one.collect();
                assert!(of_one.len() as u64 == each && of_one.is_sorted());
            }
        });
    }

    #[test]
    fn two_threads_exhaustive() {
        explore(&[10, 20], 1, None);
    }

    #[test]
    fn a_thread_that_goes_round_the_ring_2() {
        explore(&[10], 4, Some(2));
    }

    #[test]
    fn two_threads_that_go_round_the_ring_1() {
        explore(&[10, 20], 2, Some(1));
    }
}
