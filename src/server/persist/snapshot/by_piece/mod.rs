//! Encodes large collections piece by piece as commands that recreate them, for slot migrations.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use basalt_core::structures::entry::EntryRef;
use basalt_engine::marks::Marks;
use basalt_engine::serial::commands;
use basalt_engine::serial::pieces::CollectionShape;
use basalt_engine::snapshot::{Chunk, CollectionProgress, Outlet};
use basalt_engine::value::{CollectionPiece, Object};

/// Encoder of large collections in pieces, as commands, with a queue of encoded parts.
#[derive(Default)]
pub struct LargeCollectionEncoder {
    given: Mutex<ChunkQueue>,
    streams: AtomicU64,
    now_ms: AtomicU64,
    /// Bytes of parts that were encoded early because a command was about to change the collection.
    copied_bytes: AtomicU64,
    is_over: AtomicBool,
    broken: Mutex<Option<&'static str>>,
}

#[derive(Default)]
struct ChunkQueue {
    chunks: VecDeque<Chunk>,
    /// The collection of which some parts were taken, but not the last one, if any.
    open: Option<u64>,
}

impl LargeCollectionEncoder {
    /// Sets the time, in Unix milliseconds, as of which collections begun from now on are encoded: it decides
    /// which elements have expired.
    pub fn set_now(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Relaxed);
    }

    /// Takes the next part from the queue. All parts of a collection come before the first part of another
    /// collection.
    pub fn take(&self) -> Option<Chunk> {
        let ChunkQueue { chunks, open } = &mut *self.given.lock();
        let is_next = |chunk: &Chunk| {
            let id = chunk.stream.map(|stream| stream.id);
            open.is_none() || id == *open
        };
        let chunk = chunks.iter().position(is_next).map(|at| chunks.remove(at));
        let chunk = chunk.flatten()?;
        *open = chunk
            .stream
            .filter(|stream| !stream.is_last)
            .map(|stream| stream.id);
        Some(chunk)
    }

    /// Returns the memory of the queued parts and of the parts encoded early, in bytes.
    pub fn held_bytes(&self) -> u64 {
        let given = self.given.lock();
        let waiting = given
            .chunks
            .iter()
            .map(|chunk| chunk.bytes.capacity() as u64);
        waiting.sum::<u64>() + self.copied_bytes.load(Relaxed)
    }

    /// Resets the copied bytes: the collection has been sent and its copies were freed.
    pub fn note_end(&self) {
        self.copied_bytes.store(0, Relaxed);
    }

    /// Stops encoding, because the remaining parts are not needed.
    pub fn give_up(&self) {
        self.is_over.store(true, Relaxed);
    }

    /// Returns why the encoded parts are unusable; `None` if they are usable.
    pub fn broken(&self) -> Option<&'static str> {
        *self.broken.lock()
    }
}

impl Outlet for LargeCollectionEncoder {
    fn encode(&self, entry: EntryRef<'_, Object>, _: &Marks<'_>, chunk: &mut Chunk) {
        chunk.push_commands(entry, self.now_ms.load(Relaxed));
    }

    fn takes_pieces(&self, entry: EntryRef<'_, Object>) -> bool {
        commands::takes_pieces(entry)
    }

    fn begin_large(
        &self,
        entry: EntryRef<'_, Object>,
        _: &Marks<'_>,
        _: &mut Chunk,
    ) -> CollectionShape {
        CollectionShape::of(entry, self.now_ms.load(Relaxed))
    }

    fn encode_piece(
        &self,
        piece: &CollectionPiece<'_>,
        at: &CollectionProgress<'_>,
        chunk: &mut Chunk,
    ) -> u64 {
        commands::piece(&mut chunk.bytes, at.key, piece, at.shape, at.written)
    }

    fn end_large(&self, at: &CollectionProgress<'_>, chunk: &mut Chunk) {
        commands::behind_pieces(&mut chunk.bytes, at.key, at.shape);
    }

    fn begin_stream(&self) -> u64 {
        self.streams.fetch_add(1, Relaxed)
    }

    fn end_stream(&self) {}

    fn give(&self, chunk: Chunk) {
        self.given.lock().chunks.push_back(chunk);
    }

    fn note_copied(&self, bytes: usize) {
        self.copied_bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn fail(&self, why: &'static str) {
        *self.broken.lock() = Some(why);
        self.give_up();
    }

    fn is_given_up(&self) -> bool {
        self.is_over.load(Relaxed)
    }
}

#[cfg(test)]
mod tests;
