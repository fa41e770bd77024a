//! Walkers: threads that save shard after shard, a slice at a time, and pass what was encoded on to the sink.
//!
//! A slice holds one shard for at most some 100 µs, and for a quarter of that where other threads want the walker's
//! core: then clients wait for the slice and not only for the shard. Summing and writing go on without any. Where a
//! shard stays held by others the walker queues for it, as commands do, so that it comes to its turn.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::Mutex;

use super::outgoing::Outgoing;
use super::{BaseForm, Cut, Failure, Purpose, Running, Sink, Snapshots};
use crate::engine::Engine;
use crate::engine::serial::commands;
use crate::engine::snapshot::Chunk;
use crate::persist::rdb::crc64;
use crate::persist::rdb::encode;
use crate::session::service::Service;
use crate::shard::job::Ticket;
use crate::shard::job::task;
use crate::structures::block::Block;
use crate::telemetry::clock::Ticks;
use crate::telemetry::process;

/// How long a shard is held at once, by a walker that has a core for itself and by one that shares it. Slices that are
/// shorter still have the snapshot take much longer where others keep the core busy: they get as much of it between two
/// slices however long these are.
const SLICE_NS: u64 = 100_000;
const SLICE_SHARED_NS: u64 = 25_000;

/// What it takes at least to offer the core to others if one of them takes it.
const OFFER_TAKEN_NS: u64 = 3_000;

/// Offers one after the other that no thread took, from which on a walker has its core for itself. A thread that serves
/// connections may be idle at a few of them and busy at the next.
const OFFERS_LEFT: u32 = 64;

/// From here on an offer is long: other processes may have taken it, which never rest.
const OFFER_LONG_NS: u64 = 1_000_000;

/// Of what other processes took of an offer the walker gets back this part before the next one: or it would run for one
/// slice in some milliseconds, and a snapshot take minutes. What the server's own threads took was offered to them.
const FOREIGN_SHARE: u64 = 4;

/// Looks at a held shard before its turn is given to the next one.
const SPINS: u32 = 32;

/// Shards found held one after the other before the walker queues for one.
const REFUSALS_MAX: usize = 16;

/// Walkers of a snapshot in the background, at most.
const WALKERS_MAX: usize = 4;

/// What a piece has at most that goes to the sink.
const PIECE_BYTES: usize = 256 * 1024;

/// What may wait for the sink while one walker passes on, until others stop to help.
const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How often a delay looks whether the snapshot is still wanted.
const DELAY_LOOK: Duration = Duration::from_millis(5);

impl Snapshots {
    /// Saves all shards, with as many threads as the machine can spare.
    pub(super) fn walk(&self, running: &Running, writer: &Arc<Writer>) {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let others = match running.purpose {
            Purpose::Save => cores - 1,
            _ => (cores / 2).saturating_sub(1),
        };
        let others = others.min(WALKERS_MAX - 1);
        let walk = Arc::new(Walk {
            service: self.service,
            outgoing: Arc::clone(&running.outgoing),
            writer: Arc::clone(writer),
            left: Mutex::new(Left {
                shards: (0..self.service.shards.len() as u16).collect(),
                in_hand: 0,
            }),
        });
        let (ends, ended) = mpsc::channel::<()>();
        for _ in 0..others {
            let (walk, ends) = (Arc::clone(&walk), ends.clone());
            self.run(move || {
                walk.run();
                drop(ends);
            });
        }
        walk.run();
        drop(ends);
        // No thread sends: this ends when all others are gone.
        let _ = ended.recv();
        writer.pass_on_all();
    }
}

/// Whether a shard is to be saved further.
enum GoesOn {
    Next,
    Later,
    No,
}

/// What the walkers of one snapshot share.
struct Walk {
    service: &'static Service,
    outgoing: Arc<Outgoing>,
    writer: Arc<Writer>,
    left: Mutex<Left>,
}

struct Left {
    /// Shards that no thread saves at the moment.
    shards: VecDeque<u16>,
    /// Walkers that save one.
    in_hand: usize,
}

impl Walk {
    /// The next shard.
    fn next(&self) -> Option<u16> {
        let mut left = self.left.lock();
        if left.shards.is_empty() && left.in_hand == 0 && self.outgoing.has_open_streams() {
            // A large collection went to a shard that was through.
            left.shards.extend(0..self.service.shards.len() as u16);
        }
        let shard = left.shards.pop_front()?;
        left.in_hand += 1;
        Some(shard)
    }

    /// A walker is done with a shard for now.
    fn put_back(&self, shard: u16, goes_on: GoesOn) {
        let mut left = self.left.lock();
        left.in_hand -= 1;
        match goes_on {
            GoesOn::Next => left.shards.push_front(shard),
            GoesOn::Later => left.shards.push_back(shard),
            GoesOn::No => {}
        }
    }

    /// Saves until no shard is left.
    fn run(&self) {
        let mut refusals = 0;
        let mut core = Core::default();
        loop {
            self.writer.pass_on();
            let Some(shard) = self.next() else {
                return;
            };
            let before = self.outgoing.keys();
            let taken = Ticks::now();
            let more = match self.service.shards.take_spinning(shard, SPINS) {
                Some(mut engine) => {
                    refusals = 0;
                    let began = Ticks::now();
                    let more = slice(&mut engine, &self.outgoing, (began, core.slice_ns()));
                    let spent_ns = Ticks::now().since_ns(began);
                    self.service.shards.note_hold_ns(shard, spent_ns);
                    more
                }
                None => {
                    refusals += 1;
                    if refusals < REFUSALS_MAX {
                        self.put_back(shard, GoesOn::Later);
                        thread::yield_now();
                        continue;
                    }
                    refusals = 0;
                    self.slice_in_turn(shard, core.slice_ns())
                }
            };
            self.put_back(
                shard,
                match more {
                    true => GoesOn::Next,
                    false => GoesOn::No,
                },
            );
            self.delay(self.outgoing.keys() - before);
            core.offer(Ticks::now().since_ns(taken));
        }
    }

    /// A slice of a shard that others keep busy, in the queue of which it takes its turn.
    #[cold]
    fn slice_in_turn(&self, shard: u16, slice_ns: u64) -> bool {
        let more = Arc::new(AtomicBool::new(true));
        let (outgoing, result) = (Arc::clone(&self.outgoing), Arc::clone(&more));
        let ticket = task::send(&self.service.shards, &[shard], move |engines, _| {
            for engine in engines {
                let time = (Ticks::now(), slice_ns);
                result.store(slice(engine, &outgoing, time), Relaxed);
            }
        });
        await_end(&ticket);
        more.load(Relaxed)
    }

    /// `rdb-key-save-delay`, for tests: negative delays are fractions of a microsecond. Taking the delay away ends
    /// those under way too.
    fn delay(&self, keys: u64) {
        let delay_us = self.outgoing.delay_us();
        if delay_us == 0 || keys == 0 {
            return;
        }
        let mut left = match u64::try_from(delay_us) {
            Ok(delay_us) => Duration::from_micros(delay_us.saturating_mul(keys)),
            Err(_) => Duration::from_micros(keys / u64::from(delay_us.unsigned_abs())),
        };
        let is_delayed = || self.service.config.load().rdb_key_save_delay != 0;
        while !left.is_zero() && !self.outgoing.is_over() && is_delayed() {
            let step = left.min(DELAY_LOOK);
            thread::sleep(step);
            left -= step;
        }
    }
}

/// The core that a walker runs on.
#[derive(Default)]
struct Core {
    /// Offers that have to be left from now on before it counts as the walker's own.
    offers_left: u32,
    /// The last offer was long.
    was_long: bool,
    /// For how long the walker goes on without another offer.
    credit_ns: u64,
}

impl Core {
    /// How long a slice may be.
    fn slice_ns(&self) -> u64 {
        match self.offers_left {
            0 => SLICE_NS,
            _ => SLICE_SHARED_NS,
        }
    }

    /// Offers it, after a slice that took so long, to threads that wait for it, so that a walker that the system lets
    /// run only when others rest is not stopped with a shard in hand.
    fn offer(&mut self, spent_ns: u64) {
        self.credit_ns = self.credit_ns.saturating_sub(spent_ns);
        if self.credit_ns > 0 {
            return;
        }
        // The look costs too much to be taken each time.
        let own_before = self.was_long.then(process::cpu_ns);
        let offered = Ticks::now();
        thread::yield_now();
        let taken_ns = Ticks::now().since_ns(offered);
        let own_ns = own_before.map(|before| process::cpu_ns().saturating_sub(before));
        self.note(taken_ns, own_ns.unwrap_or(taken_ns));
    }

    /// An offer took so long, of which the server's threads ran for so much.
    fn note(&mut self, taken_ns: u64, own_ns: u64) {
        self.offers_left = match taken_ns < OFFER_TAKEN_NS {
            true => self.offers_left.saturating_sub(1),
            false => OFFERS_LEFT,
        };
        self.was_long = taken_ns >= OFFER_LONG_NS;
        self.credit_ns = match self.was_long {
            true => taken_ns.saturating_sub(own_ns) / FOREIGN_SHARE,
            false => 0,
        };
    }
}

/// Saves some of a shard, for so long; true while something is left.
fn slice(engine: &mut Engine, outgoing: &Outgoing, (began, slice_ns): (Ticks, u64)) -> bool {
    let is_delayed = outgoing.delay_us() != 0;
    engine.save_slice(&mut || !is_delayed && Ticks::now().since_ns(began) < slice_ns)
}

/// Passes chunks on to the sink, and sums them.
pub(super) struct Writer {
    outgoing: Arc<Outgoing>,
    checksum: bool,
    compress: bool,
    output: Mutex<Output>,
    /// Held by the thread that passes on what there is, so that others need not wait for the sink.
    passing: Mutex<()>,
    /// Held by the thread that passes on parts of large collections, so that they stay in their order.
    in_order: Mutex<InOrder>,
}

struct Output {
    sink: Option<Box<dyn Sink>>,
    crc: u64,
    failure: Option<Failure>,
    /// Between two parts of a large collection there is room for nothing else.
    is_inside: bool,
    /// What waits for the end of it.
    held: Vec<Vec<u8>>,
}

/// Which large collection is being written, and parts of others that wait for its end.
#[derive(Default)]
struct InOrder {
    open: Option<u64>,
    held: VecDeque<Chunk>,
}

impl Writer {
    pub(super) fn new(outgoing: Arc<Outgoing>, sink: Box<dyn Sink>) -> Arc<Writer> {
        let options = outgoing.options();
        Arc::new(Writer {
            outgoing,
            checksum: options.checksum,
            compress: options.compress,
            output: Mutex::new(Output {
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

    /// Writes what comes before the keys.
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
        encode::header(&mut out, &options, &fields);
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

    /// Passes on what is there, unless another thread does and it is little enough to wait for that one.
    fn pass_on(&self) {
        let passing = self.passing.try_lock();
        if passing.is_some() || self.outgoing.waiting_bytes() > WAITING_BYTES_MAX {
            self.pass_on_all();
        }
    }

    /// Passes on all that is there by now, but for what another thread passes on.
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

    /// Passes on those parts that are next.
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

    /// Passes on a chunk. Nothing comes between its parts, as what stands behind a long string does not say again in
    /// which database it is.
    fn pass_on_chunk(&self, chunk: Chunk) {
        let (parts, mut before) = self.parted(chunk);
        if parts.is_empty() {
            return self.write(before);
        }
        let in_order = self.in_order.lock();
        if in_order.open.is_some() {
            // Nor may it come between others, for the end of which it has to wait.
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

    /// The parts of a chunk: long strings that were not compressed, with what stands before each, and what is behind.
    fn parted(&self, chunk: Chunk) -> (Vec<(Vec<u8>, Block)>, Vec<u8>) {
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

    fn write_all_inside(&self, parts: Vec<(Vec<u8>, Block)>, rest: Vec<u8>) {
        for (bytes, block) in parts {
            self.write_inside(bytes);
            block
                .chunks(PIECE_BYTES)
                .for_each(|piece| self.write_inside(piece.to_vec()));
        }
        self.write_inside(rest);
    }

    /// Appends a long string, if it is compressed; else what stands before it.
    fn takes_in(&self, before: &mut Vec<u8>, block: &Block) -> bool {
        match self.outgoing.form() {
            BaseForm::Rdb => encode::text_or_length(before, block, self.compress),
            BaseForm::Commands => false,
        }
    }

    /// Writes bytes that stand for themselves.
    fn write(&self, bytes: Vec<u8>) {
        let mut output = self.output.lock();
        match output.is_inside {
            true => output.held.push(bytes),
            false => self.put(&mut output, bytes),
        }
    }

    /// Writes bytes that belong behind the last ones.
    fn write_inside(&self, bytes: Vec<u8>) {
        self.put(&mut self.output.lock(), bytes);
    }

    /// What belonged together is written.
    fn leave(&self) {
        let mut output = self.output.lock();
        output.is_inside = false;
        for bytes in mem::take(&mut output.held) {
            self.put(&mut output, bytes);
        }
    }

    fn put(&self, output: &mut Output, bytes: Vec<u8>) {
        let Output {
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

    /// Writes the end, and has the sink keep what was written, or not.
    pub(super) fn end(&self) -> Result<(), Failure> {
        if !self.outgoing.is_over() && self.outgoing.form() == BaseForm::Rdb {
            let crc = self.output.lock().crc;
            let crc = self.checksum.then(|| crc64::update(crc, encode::END));
            let mut out = Vec::new();
            encode::end(&mut out, crc);
            // What is behind the checksum is not summed any more.
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

/// Waits for the end of a job. The calling thread has no shard, and serves no connection.
pub(super) fn await_end(ticket: &Ticket) {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    while ticket.poll(&mut Context::from_waker(&waker)).is_pending() {
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Instant;

    use super::*;
    use crate::command::testing::NoServer;
    use crate::config::Config;
    use crate::persist::load::Loader;
    use crate::persist::load::progress::Progress;
    use crate::telemetry::Telemetry;

    const KEYS: u64 = 20_000;
    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn what_other_processes_take_of_an_offer_is_given_back_in_part() {
        const SLICE: u64 = 100_000;
        let mut core = Core::default();
        let taken_ns = OFFER_LONG_NS + 10 * FOREIGN_SHARE * SLICE;
        core.note(taken_ns, taken_ns);
        assert_eq!((core.credit_ns, core.slice_ns()), (0, SLICE_SHARED_NS));
        core.note(taken_ns, OFFER_LONG_NS);
        for left in (1..10).rev() {
            core.offer(SLICE);
            assert_eq!(core.credit_ns, left * SLICE, "no offer was made");
        }
        (0..OFFERS_LEFT).for_each(|_| core.note(0, 0));
        assert_eq!((core.credit_ns, core.slice_ns()), (0, SLICE_NS));
    }

    /// Takes the first piece with keys only once all are encoded, or when that takes too long.
    struct Slow {
        snapshots: Arc<Snapshots>,
        keys_seen: Arc<AtomicU64>,
    }

    impl Sink for Slow {
        fn write(&mut self, chunk: Vec<u8>) -> io::Result<()> {
            const HEADER_BYTES_MAX: usize = 1024;
            if chunk.len() > HEADER_BYTES_MAX && self.keys_seen.load(Relaxed) == 0 {
                let running = self.snapshots.current().expect("it is under way");
                let began = Instant::now();
                while running.keys_saved() < KEYS && began.elapsed() < PATIENCE {
                    thread::yield_now();
                }
                self.keys_seen.store(running.keys_saved(), Relaxed);
            }
            Ok(())
        }

        fn finish(self: Box<Self>, _ok: bool) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn walkers_go_on_while_one_of_them_waits_for_the_sink() {
        if thread::available_parallelism().map_or(1, usize::from) < 2 {
            // There is one walker.
            return;
        }
        let config = Arc::new(Config::default());
        let service = crate::server::build(config, 8, Telemetry::new(None, 2));
        let is_first = service.server.set(Arc::new(NoServer::default())).is_ok();
        assert!(is_first, "it is set once");
        let service: &'static Service = Box::leak(Box::new(service));
        let set =
            |key| format!("*3\r\n$3\r\nSET\r\n$6\r\n{key:06}\r\n$5\r\nvalue\r\n").into_bytes();
        let file: Vec<u8> = (0..KEYS).flat_map(set).collect();
        let go_on = || false;
        let mut progress = Progress::begin(service, 0, &go_on);
        let loaded = Loader::new(service).aof(&mut &file[..], &mut progress);
        loaded.expect("commands");
        drop(progress);
        let snapshots = Snapshots::new(service);
        let keys_seen = Arc::new(AtomicU64::new(0));
        let sink = Slow {
            snapshots: Arc::clone(&snapshots),
            keys_seen: Arc::clone(&keys_seen),
        };
        let running = snapshots.begin(Purpose::Save, Box::new(|_| ()), Box::new(sink));
        running.expect("no other").wait().expect("all is saved");
        assert_eq!(keys_seen.load(Relaxed), KEYS);
    }
}
