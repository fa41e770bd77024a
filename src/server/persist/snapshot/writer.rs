//! Writes the encoded chunks to the sink in an order that readers understand: a long string directly after its
//! prefix (type, key, length), and nothing between the parts of a large collection.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;

use super::outgoing::SnapshotChunkQueue;
use super::{BaseForm, Cut, Failure, Purpose, Sink};
use crate::persist::rdb::crc64;
use crate::persist::rdb::encode;
use basalt_core::structures::block::SharedBlock;
use basalt_engine::note;
use basalt_engine::serial::commands;
use basalt_engine::snapshot::Chunk;

/// Maximum bytes per write to the sink.
const PIECE_BYTES: usize = 256 * 1024;

/// Writer of chunks to the sink, which also computes the checksum.
pub(super) struct SnapshotWriter {
    outgoing: Arc<SnapshotChunkQueue>,
    checksum: bool,
    compress: bool,
    output: Mutex<SnapshotOutput>,
    /// Locked by the thread that takes chunks and writes them, so that other walkers need not wait for the
    /// sink.
    passing: Mutex<()>,
    /// Locked by the thread that writes parts of large collections, so that the parts stay in order.
    in_order: Mutex<InOrder>,
}

struct SnapshotOutput {
    sink: Option<Box<dyn Sink>>,
    crc: u64,
    failure: Option<Failure>,
    /// Whether a large collection is partly written, so that other data has to wait.
    is_inside: bool,
    /// Data that waits until the large collection is complete.
    held: Vec<Vec<u8>>,
}

/// The large collection being written, and parts of other large collections that wait until it is complete.
#[derive(Default)]
struct InOrder {
    open: Option<u64>,
    held: VecDeque<Chunk>,
}

impl SnapshotWriter {
    pub(super) fn new(
        outgoing: Arc<SnapshotChunkQueue>,
        sink: Box<dyn Sink>,
    ) -> Arc<SnapshotWriter> {
        let options = outgoing.options();
        Arc::new(SnapshotWriter {
            outgoing,
            checksum: options.checksum,
            compress: options.compress,
            output: Mutex::new(SnapshotOutput {
                sink: Some(sink),
                crc: 0,
                failure: None,
                is_inside: false,
                held: Vec::new(),
            }),
            passing: Mutex::default(),
            in_order: Mutex::default(),
        })
    }

    /// Writes the header: everything before the keys.
    pub(super) fn begin(&self, cut: &Cut, purpose: Purpose, is_time_noted: bool) {
        if self.outgoing.is_over() {
            return;
        }
        if self.outgoing.form() == BaseForm::Commands {
            return self.begin_commands(cut, is_time_noted);
        }
        let options = self.outgoing.options();
        let is_aof_base = matches!(purpose, Purpose::AofBase(_));
        let mut out = Vec::new();
        let mut fields = encode::own_fields(cut.now.unix_ms, cut.used_bytes, is_aof_base);
        if !is_aof_base {
            fields.extend(cut.origin.iter().cloned());
        }
        if cut.last_fence > 0 {
            fields.push((encode::LAST_FENCE, cut.last_fence.to_string()));
        }
        encode::header(&mut out, &options, &fields);
        for (db, key, fence) in cut.fences() {
            encode::fence(&mut out, db, key, fence);
        }
        for (db, key) in cut.blessed() {
            encode::blessing(&mut out, db, key);
        }
        for note in &cut.slot_notes {
            encode::slot_note(&mut out, note);
        }
        for code in &cut.functions {
            encode::function(&mut out, code.as_bytes(), &options);
        }
        for db in &cut.dbs {
            encode::select_db(&mut out, db.number);
            encode::resize_db(&mut out, db.keys, db.volatile_keys);
        }
        self.write(out);
    }

    fn begin_commands(&self, cut: &Cut, is_time_noted: bool) {
        let mut out = Vec::new();
        if is_time_noted {
            let now_s = cut.now.unix_ms / 1000;
            out.extend_from_slice(format!("#TS:{now_s}\r\n").as_bytes());
        }
        for code in &cut.functions {
            commands::command(&mut out, &[b"FUNCTION", b"LOAD", code.as_bytes()]);
        }
        self.write(out);
    }

    /// Writes the records that come after the keys.
    pub(super) fn follow(&self, cut: &Cut) {
        if self.outgoing.is_over() || self.outgoing.form() != BaseForm::Commands {
            return;
        }
        let mut out = Vec::new();
        if cut.last_fence > 0 {
            commands::last_fence(&mut out, cut.last_fence);
        }
        for note in &cut.slot_notes {
            let words = note.words();
            let words = words.iter().map(Vec::as_slice);
            let all: Vec<&[u8]> = std::iter::once(b"SLOTS".as_slice()).chain(words).collect();
            commands::command(&mut out, &note::words(&all));
        }
        for (db, key, fence) in cut.fences() {
            commands::select_db(&mut out, db);
            commands::fence(&mut out, key, fence);
        }
        for (db, key) in cut.blessed() {
            commands::select_db(&mut out, db);
            commands::blessing(&mut out, key);
        }
        self.write(out);
    }

    /// Writes queued chunks, unless another thread is doing so and few bytes are waiting.
    pub(super) fn pass_on(&self) {
        let passing = self.passing.try_lock();
        if passing.is_some() || self.outgoing.waiting_bytes() > self.outgoing.passing_bytes_max() {
            self.pass_on_all();
        }
    }

    /// Writes all chunks queued by now, except those that another thread is already writing.
    pub(super) fn pass_on_all(&self) {
        while let Some(chunk) = self.outgoing.pop() {
            if !self.outgoing.is_over() {
                self.pass_on_chunk(chunk);
            }
        }
        while self.outgoing.has_parts()
            && let Some(mut in_order) = self.in_order.try_lock()
        {
            while let Some(part) = self.outgoing.pop_part() {
                if !self.outgoing.is_over() {
                    in_order.held.push_back(part);
                    self.pass_on_parts(&mut in_order);
                }
            }
        }
    }

    /// Writes the queued parts of large collections that are next in order.
    fn pass_on_parts(&self, in_order: &mut InOrder) {
        let mut at = 0;
        while let Some(stream) = in_order.held.get(at).and_then(|part| part.stream) {
            if in_order.open.is_some_and(|open| open != stream.id) {
                at += 1;
                continue;
            }
            in_order.open = Some(stream.id);
            let Some(part) = in_order.held.remove(at) else {
                return;
            };
            self.output.lock().is_inside = true;
            let (parts, rest) = self.parted(part);
            self.write_all_inside(parts, rest);
            if stream.is_last {
                in_order.open = None;
                self.leave();
                at = 0;
            }
        }
    }

    /// Writes a chunk. Nothing may come between its parts, because the data after a long string does not select
    /// the database again.
    fn pass_on_chunk(&self, chunk: Chunk) {
        let (parts, mut before) = self.parted(chunk);
        if parts.is_empty() {
            return self.write(before);
        }
        let in_order = self.in_order.lock();
        if in_order.open.is_some() {
            // The chunk must not come between the parts of a large collection either, so it is kept until that
            // is complete.
            let mut whole = Vec::new();
            for (mut bytes, block) in parts {
                whole.append(&mut bytes);
                whole.extend_from_slice(&block);
            }
            whole.append(&mut before);
            return self.write(whole);
        }
        self.output.lock().is_inside = true;
        self.write_all_inside(parts, before);
        self.leave();
        drop(in_order);
    }

    /// Splits a chunk at its long strings that stay uncompressed. Returns each of them with the data before it,
    /// and the data after the last one.
    fn parted(&self, chunk: Chunk) -> (Vec<(Vec<u8>, SharedBlock)>, Vec<u8>) {
        let Chunk { bytes, blocks, .. } = chunk;
        let (mut rest, mut at) = (bytes, 0);
        let (mut before, mut parts) = (Vec::new(), Vec::new());
        for (position, block) in blocks {
            let behind = rest.split_off(position - at);
            at = position;
            before.append(&mut mem::replace(&mut rest, behind));
            if !self.takes_in(&mut before, &block) {
                parts.push((mem::take(&mut before), block));
            }
        }
        match before.is_empty() {
            true => before = rest,
            false => before.append(&mut rest),
        }
        (parts, before)
    }

    fn write_all_inside(&self, parts: Vec<(Vec<u8>, SharedBlock)>, rest: Vec<u8>) {
        for (bytes, block) in parts {
            self.write_inside(bytes);
            block
                .chunks(PIECE_BYTES)
                .for_each(|piece| self.write_inside(piece.to_vec()));
        }
        self.write_inside(rest);
    }

    /// Appends a long string in compressed form and returns true, if that is shorter. Otherwise appends only
    /// its length and returns false.
    fn takes_in(&self, before: &mut Vec<u8>, block: &SharedBlock) -> bool {
        match self.outgoing.form() {
            BaseForm::Rdb => encode::text_or_length(before, block, self.compress),
            BaseForm::Commands => false,
        }
    }

    /// Writes data that may stand between any other records.
    fn write(&self, bytes: Vec<u8>) {
        let mut output = self.output.lock();
        match output.is_inside {
            true => output.held.push(bytes),
            false => self.put(&mut output, bytes),
        }
    }

    /// Writes data that must directly follow the data last written.
    fn write_inside(&self, bytes: Vec<u8>) {
        self.put(&mut self.output.lock(), bytes);
    }

    /// Ends a sequence of data that must stay together, and writes the data that waited for its end.
    fn leave(&self) {
        let mut output = self.output.lock();
        output.is_inside = false;
        for bytes in mem::take(&mut output.held) {
            self.put(&mut output, bytes);
        }
    }

    fn put(&self, output: &mut SnapshotOutput, bytes: Vec<u8>) {
        let SnapshotOutput {
            sink: Some(sink),
            failure: None,
            ..
        } = output
        else {
            return;
        };
        if bytes.is_empty() {
            return;
        }
        if self.checksum {
            output.crc = crc64::update(output.crc, &bytes);
        }
        let written = sink.write(bytes);
        if let Err(error) = written {
            output.failure = Some(Failure::of(&error));
            self.outgoing.give_up();
        }
    }

    /// Writes the end of the snapshot, and makes the sink keep the data, or discard it after a failure.
    pub(super) fn end(&self) -> Result<(), Failure> {
        if !self.outgoing.is_over() && self.outgoing.form() == BaseForm::Rdb {
            let crc = self.output.lock().crc;
            let crc = self.checksum.then(|| crc64::update(crc, encode::END));
            let mut out = Vec::new();
            encode::end(&mut out, crc);
            // The checksum does not cover this data, so write it without summing.
            self.write(out);
        }
        let (sink, failure) = {
            let mut output = self.output.lock();
            (output.sink.take(), output.failure.take())
        };
        let broken = self.outgoing.broken();
        let broken = broken.map(|why| Failure::Io(io::ErrorKind::Other, why.to_owned()));
        let failure = failure
            .or(broken)
            .or(self.outgoing.is_cancelled().then_some(Failure::Cancelled));
        let finished = sink.map_or(Ok(()), |sink| sink.finish(failure.is_none()));
        match (failure, finished) {
            (Some(failure), _) => Err(failure),
            (None, finished) => finished.map_err(|error: io::Error| Failure::of(&error)),
        }
    }
}
