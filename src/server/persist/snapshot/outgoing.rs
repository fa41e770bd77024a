//! Data that shards encode for a snapshot: the queue of chunks between them and the sink.

use std::sync::atomic::{
    AtomicBool, AtomicU16, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crossbeam::queue::SegQueue;
use parking_lot::Mutex;

use super::BaseForm;
use crate::persist::rdb::encode::{self, RdbEncodeOptions};
use crate::state::Service;
use basalt_commands::config::Config;
use basalt_core::structures::entry::{EntryRef, Value};
use basalt_engine::Now;
use basalt_engine::marks::Marks;
use basalt_engine::serial::commands;
use basalt_engine::serial::pieces::CollectionShape;
use basalt_engine::snapshot::{Chunk, CollectionProgress, Outlet};
use basalt_engine::value::{CollectionPiece, Object};

/// Minimum and maximum encoded bytes waiting before commands that may write have to wait; between these bounds,
/// an eighth of `maxmemory`, because this memory comes on top of the data.
const WAITING_BYTES: (u64, u64) = (8 << 20, 256 << 20);

/// Maximum bytes waiting for the sink while one walker writes to it. Above this, other walkers stop encoding
/// and wait to write, too.
const PASSING_BYTES_MAX: usize = 8 << 20;

/// Returns the maximum waiting bytes for this `maxmemory`; 0 means no limit.
pub(super) fn waiting_bytes_max(maxmemory: u64) -> usize {
    let (least, most) = WAITING_BYTES;
    match maxmemory {
        0 => most as usize,
        limit => (limit / 8).clamp(least, most) as usize,
    }
}

/// Queue of encoded chunks between shards and the sink, and state of the running snapshot.
pub(super) struct SnapshotChunkQueue {
    service: &'static Service,
    /// Commands that may write have to wait if more encoded bytes than this are waiting for the sink.
    waiting_bytes_max: usize,
    form: BaseForm,
    options: RdbEncodeOptions,
    /// RDB version, set after the cut.
    version: AtomicU16,
    cut_ms: AtomicU64,
    is_over: AtomicBool,
    is_cancelled: AtomicBool,
    /// Queued chunks. The queue is unbounded, because the threads that fill it have locked a shard and must not
    /// wait; it never contains more than the data at the cut.
    chunks: SegQueue<Chunk>,
    /// Parts of large collections, which must reach the sink in this order.
    parts: SegQueue<Chunk>,
    streams: AtomicU64,
    /// Number of unfinished large collections.
    open_streams: AtomicUsize,
    /// Why the encoded data is unusable; `None` if it is usable.
    broken: Mutex<Option<&'static str>>,
    waiting_bytes: AtomicUsize,
    keys: AtomicU64,
    copied_bytes: AtomicU64,
    taken_bytes: AtomicU64,
    /// The setting `rdb-key-save-delay`, as of the snapshot's beginning.
    delay_us: i32,
}

impl SnapshotChunkQueue {
    pub(super) fn new(
        service: &'static Service,
        (form, options): (BaseForm, RdbEncodeOptions),
        config: &Config,
    ) -> SnapshotChunkQueue {
        SnapshotChunkQueue {
            service,
            waiting_bytes_max: waiting_bytes_max(config.maxmemory),
            form,
            version: AtomicU16::new(options.version),
            options,
            cut_ms: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            is_cancelled: AtomicBool::new(false),
            chunks: SegQueue::new(),
            parts: SegQueue::new(),
            streams: AtomicU64::new(0),
            open_streams: AtomicUsize::new(0),
            broken: Mutex::new(None),
            waiting_bytes: AtomicUsize::new(0),
            keys: AtomicU64::new(0),
            copied_bytes: AtomicU64::new(0),
            taken_bytes: AtomicU64::new(0),
            delay_us: config.rdb_key_save_delay,
        }
    }

    /// Returns the maximum bytes waiting for the sink while only one walker writes to it (`PASSING_BYTES_MAX`
    /// or less).
    pub(super) fn passing_bytes_max(&self) -> usize {
        PASSING_BYTES_MAX.min(self.waiting_bytes_max / 4)
    }

    /// Returns the bytes passed to the sink so far; the sink may still be writing the last piece.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.taken_bytes.load(Relaxed)
    }

    /// True if commands that may write wait for the snapshot.
    pub(super) fn is_behind(&self) -> bool {
        self.service.is_snapshot_behind.load(Relaxed)
    }

    /// Wakes the commands that wait for the snapshot, if few enough bytes are waiting now.
    fn note_room(&self) {
        if self.is_behind() {
            self.service.set_snapshot_behind(false);
        }
    }

    /// Sets the time of the cut, with all shards locked.
    pub(super) fn set_cut(&self, now: Now) {
        self.cut_ms.store(now.unix_ms, Relaxed);
    }

    pub(super) fn cut_ms(&self) -> u64 {
        self.cut_ms.load(Relaxed)
    }

    /// Sets the RDB version that can represent the cut.
    pub(super) fn set_version(&self, version: u16) {
        self.version.store(version, Relaxed);
    }

    pub(super) fn options(&self) -> RdbEncodeOptions {
        RdbEncodeOptions {
            version: self.version.load(Relaxed),
            ..self.options
        }
    }

    pub(super) fn form(&self) -> BaseForm {
        self.form
    }

    fn select_db(&self, chunk: &mut Chunk) {
        match self.form {
            BaseForm::Rdb => encode::select_db(&mut chunk.bytes, chunk.db),
            BaseForm::Commands => commands::select_db(&mut chunk.bytes, chunk.db),
        }
    }

    pub(super) fn delay_us(&self) -> i32 {
        self.delay_us
    }

    pub(super) fn cancel(&self) {
        self.is_cancelled.store(true, Relaxed);
        self.give_up();
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Relaxed)
    }

    /// Stops encoding, because the remaining data is not needed.
    pub(super) fn give_up(&self) {
        self.is_over.store(true, Release);
        self.note_room();
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Acquire)
    }

    /// Returns the number of keys encoded so far.
    pub(super) fn keys(&self) -> u64 {
        self.keys.load(Relaxed)
    }

    /// Returns the bytes of entries saved early because a command was about to change them.
    pub(super) fn copied_bytes(&self) -> u64 {
        self.copied_bytes.load(Relaxed)
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes.load(Relaxed)
    }

    /// Takes the next chunk from the queue.
    pub(super) fn pop(&self) -> Option<Chunk> {
        self.popped(self.chunks.pop())
    }

    /// Takes the next part of a large collection. Only one thread may do this at a time.
    pub(super) fn pop_part(&self) -> Option<Chunk> {
        self.popped(self.parts.pop())
    }

    pub(super) fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// True if large collections are unfinished, in any shard.
    pub(super) fn has_open_streams(&self) -> bool {
        self.open_streams.load(Acquire) > 0
    }

    /// Returns why the encoded data is unusable; `None` if it is usable.
    pub(super) fn broken(&self) -> Option<&'static str> {
        *self.broken.lock()
    }

    fn popped(&self, chunk: Option<Chunk>) -> Option<Chunk> {
        let chunk = chunk?;
        let bytes = chunk.len_bytes();
        let waiting_bytes = self.waiting_bytes.fetch_sub(bytes, Relaxed) - bytes;
        self.taken_bytes.fetch_add(bytes as u64, Relaxed);
        if waiting_bytes < self.waiting_bytes_max / 2 {
            self.note_room();
        }
        Some(chunk)
    }
}

impl Drop for SnapshotChunkQueue {
    /// Wakes the commands that wait for the sink, even if some data was never written.
    fn drop(&mut self) {
        self.note_room();
    }
}

impl Outlet for SnapshotChunkQueue {
    fn encode(&self, entry: EntryRef<'_, Object>, marks: &Marks<'_>, chunk: &mut Chunk) {
        let (options, now_ms) = (self.options(), self.cut_ms());
        if chunk.is_empty() {
            self.select_db(chunk);
        }
        if self.form == BaseForm::Rdb && !marks.is_empty() {
            encode::marks(&mut chunk.bytes, marks, &options);
        }
        if self.form == BaseForm::Commands {
            chunk.push_commands(entry, now_ms);
            commands::marks(&mut chunk.bytes, entry.key(), marks);
        } else if let Value::Block(block) = entry.value() {
            encode::entry_without_text(&mut chunk.bytes, entry, &options);
            chunk.push_block(block);
        } else {
            encode::entry(&mut chunk.bytes, entry, None, now_ms, &options);
        }
        if self.delay_us != 0 {
            self.keys.fetch_add(1, Relaxed);
        }
    }

    fn give(&self, mut chunk: Chunk) {
        chunk.shrink();
        if self.delay_us == 0 {
            self.keys.fetch_add(chunk.keys, Relaxed);
        }
        let bytes = chunk.len_bytes();
        let waiting_bytes = self.waiting_bytes.fetch_add(bytes, Relaxed) + bytes;
        match chunk.stream {
            Some(_) => self.parts.push(chunk),
            None => self.chunks.push(chunk),
        }
        if waiting_bytes > self.waiting_bytes_max && !self.is_over() && !self.is_behind() {
            self.service.set_snapshot_behind(true);
            if self.is_over() {
                self.note_room();
            }
        }
    }

    fn takes_pieces(&self, entry: EntryRef<'_, Object>) -> bool {
        // A key with metadata is encoded as a whole, because the commands that set the metadata must follow all
        // commands that create the key.
        let is_marked = entry.has_words();
        self.form == BaseForm::Rdb || !is_marked && commands::takes_pieces(entry)
    }

    fn begin_large(
        &self,
        entry: EntryRef<'_, Object>,
        marks: &Marks<'_>,
        chunk: &mut Chunk,
    ) -> CollectionShape {
        self.select_db(chunk);
        if self.delay_us != 0 {
            self.keys.fetch_add(1, Relaxed);
        }
        if self.form == BaseForm::Commands {
            return CollectionShape::of(entry, self.cut_ms());
        }
        if !marks.is_empty() {
            encode::marks(&mut chunk.bytes, marks, &self.options());
        }
        encode::begin_large(&mut chunk.bytes, entry, self.cut_ms(), &self.options())
    }

    fn encode_piece(
        &self,
        piece: &CollectionPiece<'_>,
        at: &CollectionProgress<'_>,
        chunk: &mut Chunk,
    ) -> u64 {
        match self.form {
            BaseForm::Rdb => {
                let mut blocks = Vec::new();
                let (out, options) = (&mut chunk.bytes, self.options());
                let count = encode::piece(out, &mut blocks, piece, at.shape, &options);
                for (position, block) in blocks {
                    chunk.put_block(position, block);
                }
                count
            }
            BaseForm::Commands => {
                commands::piece(&mut chunk.bytes, at.key, piece, at.shape, at.written)
            }
        }
    }

    fn end_large(&self, at: &CollectionProgress<'_>, chunk: &mut Chunk) {
        match self.form {
            BaseForm::Rdb => encode::end_large(&mut chunk.bytes, at.shape, &self.options()),
            BaseForm::Commands => commands::behind_pieces(&mut chunk.bytes, at.key, at.shape),
        }
    }

    fn begin_stream(&self) -> u64 {
        self.open_streams.fetch_add(1, Relaxed);
        self.streams.fetch_add(1, Relaxed)
    }

    fn end_stream(&self) {
        self.open_streams.fetch_sub(1, Release);
    }

    fn note_copied(&self, bytes: usize) {
        self.copied_bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn fail(&self, why: &'static str) {
        // No thread holds this lock for more than a moment.
        *self.broken.lock() = Some(why);
        self.give_up();
    }

    fn is_given_up(&self) -> bool {
        self.is_over()
    }
}
