//! Walkers: threads that save shard after shard, a slice at a time, and pass the encoded data on to the sink.
//!
//! A slice holds one shard for at most some 100 µs, or a quarter of that if other threads compete for the
//! walker's core, because clients then wait for the core as well as for the shard. Checksums are computed and
//! data is written while no shard is locked. If other threads keep a shard locked, the walker queues for it, as
//! commands do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::Mutex;

use super::outgoing::SnapshotChunkQueue;
use super::shared_core::SharedCore;
use super::writer::SnapshotWriter;
use super::{Purpose, Running, Snapshots};
use crate::shard::job::Ticket;
use crate::shard::job::task;
use crate::state::Service;
use crate::telemetry::clock::Ticks;
use basalt_engine::Engine;

/// Number of attempts to lock a shard before the walker moves on to the next shard.
const SPINS: u32 = 32;

/// Number of consecutive shards found locked after which the walker queues for a shard.
const REFUSALS_MAX: usize = 16;

/// Maximum number of walkers of a background snapshot.
const WALKERS_MAX: usize = 4;

/// Interval at which a `rdb-key-save-delay` sleep checks whether the snapshot was cancelled.
const DELAY_LOOK: Duration = Duration::from_millis(5);

impl Snapshots {
    /// Saves all shards with several walkers, as many as the machine has cores for, and returns when all are
    /// done.
    pub(super) fn walk(&self, running: &Running, writer: &Arc<SnapshotWriter>) {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let others = match running.purpose {
            Purpose::Save => cores - 1,
            _ => (cores / 2).saturating_sub(1),
        };
        let others = others.min(WALKERS_MAX - 1);
        let walk = Arc::new(SnapshotWalk {
            service: self.service,
            cores,
            outgoing: Arc::clone(&running.outgoing),
            writer: Arc::clone(writer),
            left: Mutex::new(RemainingShards {
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
        // No thread sends anything: the call returns when all other walkers have dropped their senders.
        let _ = ended.recv();
        writer.pass_on_all();
    }
}

/// Whether a shard needs further slices.
enum Requeue {
    Next,
    Later,
    No,
}

/// State shared by the walkers of a snapshot.
struct SnapshotWalk {
    service: &'static Service,
    /// Number of cores available to the server's threads.
    cores: usize,
    outgoing: Arc<SnapshotChunkQueue>,
    writer: Arc<SnapshotWriter>,
    left: Mutex<RemainingShards>,
}

struct RemainingShards {
    /// Unfinished shards that no walker is saving at the moment.
    shards: VecDeque<u16>,
    /// Number of shards that walkers are saving at the moment.
    in_hand: usize,
}

impl SnapshotWalk {
    /// Takes the next shard to save a slice of; `None` if none is left.
    fn next(&self) -> Option<u16> {
        let mut left = self.left.lock();
        if left.shards.is_empty() && left.in_hand == 0 && self.outgoing.has_open_streams() {
            // A large collection was moved (SWAPDB, RENAME) to a shard that was already done: visit all shards
            // again.
            left.shards.extend(0..self.service.shards.len() as u16);
        }
        let shard = left.shards.pop_front()?;
        left.in_hand += 1;
        Some(shard)
    }

    /// Puts a shard back after a slice, unless it is done.
    fn put_back(&self, shard: u16, requeue: Requeue) {
        let mut left = self.left.lock();
        left.in_hand -= 1;
        match requeue {
            Requeue::Next => left.shards.push_front(shard),
            Requeue::Later => left.shards.push_back(shard),
            Requeue::No => {}
        }
    }

    /// Saves slices of shards until no shard is left.
    fn run(&self) {
        let mut refusals = 0;
        let mut core = SharedCore::new(self.cores);
        loop {
            self.writer.pass_on();
            let Some(shard) = self.next() else {
                return;
            };
            let before = self.outgoing.keys();
            let more = match self.service.shards.take_spinning(shard, SPINS) {
                Some(mut engine) => {
                    refusals = 0;
                    let began = Ticks::now();
                    let more = slice(&mut engine, &self.outgoing, began, core.slice_ns());
                    let spent_ns = Ticks::now().since_ns(began);
                    self.service.note_hold(shard, spent_ns);
                    more
                }
                None => {
                    refusals += 1;
                    if refusals < REFUSALS_MAX {
                        self.put_back(shard, Requeue::Later);
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
                    true => Requeue::Next,
                    false => Requeue::No,
                },
            );
            self.delay(self.outgoing.keys() - before);
            core.offer();
        }
    }

    /// Saves a slice of a shard that other threads keep locked, by queueing for the shard. Returns true if
    /// something is left.
    #[cold]
    fn slice_in_turn(&self, shard: u16, slice_ns: u64) -> bool {
        let more = Arc::new(AtomicBool::new(true));
        let (outgoing, result) = (Arc::clone(&self.outgoing), Arc::clone(&more));
        let ticket = task::send(&self.service.shards, &[shard], move |engines, _| {
            for engine in engines {
                let more = slice(engine, &outgoing, Ticks::now(), slice_ns);
                result.store(more, Relaxed);
            }
        });
        await_end(&ticket);
        more.load(Relaxed)
    }

    /// Sleeps as `rdb-key-save-delay` demands, for tests: that number of microseconds per key or, if negative,
    /// one microsecond per that number of keys. Setting it to 0 also ends sleeps in progress.
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

/// Saves part of a shard within a time slice; returns true while something is left.
fn slice(engine: &mut Engine, outgoing: &SnapshotChunkQueue, began: Ticks, slice_ns: u64) -> bool {
    let is_delayed = outgoing.delay_us() != 0;
    engine.save_slice(&mut || !is_delayed && Ticks::now().since_ns(began) < slice_ns)
}

/// Waits until a job is done. The calling thread must have no shard locked and serve no connections.
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
    use std::io;
    use std::sync::atomic::AtomicU64;
    use std::time::Instant;

    use super::super::Sink;
    use super::*;
    use crate::persist::load::Loader;
    use crate::persist::load::progress::Progress;
    use crate::telemetry::Telemetry;
    use basalt_commands::command::testing::NoServer;
    use basalt_commands::config::Config;

    const KEYS: u64 = 20_000;
    const PATIENCE: Duration = Duration::from_secs(20);

    /// A sink that accepts the first piece with keys only after all keys were encoded, or after a timeout.
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
            // A single core has only one walker, so there is nothing to test.
            return;
        }
        let config = Arc::new(Config::default());
        let service = crate::start::build(config, 8, Telemetry::new(None, 2));
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
