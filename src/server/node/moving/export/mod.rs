//! Export of slots to another node.
//!
//! ```text
//! connect ▸ ESTABLISH ▸ the keys slice by slice, and changes to them ▸ SNAPSHOT-EOF ▸ changes
//!         ◀ REQUEST-PAUSE ▸ pause writes, let running ones finish ▸ the remaining changes ▸ PAUSED
//!         ◀ REQUEST-FAILOVER ▸ FAILOVER-GRANTED ▸ wait until the target owns the slots
//! ```
//!
//! A slice, a few keys of a slot, is encoded with its shard locked and leaves a marker in the log;
//! [`super::filter`] explains why that suffices. A large collection begins with a slice that captures its state
//! at that time, and its parts are encoded in later slices; log records after the marker wait until the parts
//! are sent. Snapshots encode large collections by the same mechanism, which only one user can have at a time:
//! a snapshot waits until the parts are sent, and a large collection waits until a snapshot has ended.
//!
//! Until the slots are granted, any failure ends the migration and the slots stay with this node. After the
//! grant, the target may take the slots at any time, so writes stay paused until the target has taken them, or
//! certainly will not.

mod link;

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Builder;

use super::super::{Bus, links};
use super::filter::{self, DatabaseKey, MigrationLogFilter, Reached};
use super::has_all;
use super::job::{MigrationState, SlotMigration};
use super::pieces::MigrationSendQueue;
use crate::net::client::{Client, is_malformed};
use crate::persist::oplog::{OpLog, OpLogItem, OpLogReader};
use crate::persist::snapshot::HeldOff;
use crate::persist::snapshot::by_piece::LargeCollectionEncoder;
use crate::shard::job::task;
use crate::state::pause::Reason;
use crate::telemetry::clock;
use basalt_commands::cluster::slot_note::SlotNote;
use basalt_commands::config::Config;
use basalt_engine::record::{self, Audience, Records};
use basalt_engine::serial::commands;
use basalt_engine::snapshot::alone::{self, KeyWriteProgress};
use basalt_engine::snapshot::{Chunk, Outlet};
use basalt_engine::{Engine, Now};

/// Approximate bytes of keys taken while a shard is locked: some 100 µs.
const SLICE_BYTES: usize = 32 * 1024;

/// Number of steps, of some hundred elements each, by which a large collection is encoded per lock of its
/// shard.
const STEPS: usize = 2;

/// Delay before a large collection that waits for the end of a snapshot is tried again.
const SNAPSHOT_LOOK: Duration = Duration::from_millis(20);

/// Number of torn keys that are sent again together.
const MENDED_TOGETHER: usize = 64;

/// Maximum bytes of the names of torn keys, which have to be sent again.
const TORN_BYTES_MAX: usize = 64 << 20;

/// Interval between checks for data to send or to receive.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Maximum pause of writes for a hand-over, in milliseconds: as for a manual failover.
const PAUSE_MS: u64 = 5_000;

/// Maximum time for which the target may delete its old keys of the slots before it accepts the migration.
const DELETING: Duration = Duration::from_secs(60);

/// First marker number of migrations; other markers have far lower numbers.
const FIRST_MARK: u64 = 1 << 63;

const LOST: &str = "Connection lost to target. Check CLUSTER GETSLOTMIGRATIONS on the target node for more information.";
const NOT_OWNED: &str = "Slots are no longer owned by myself.";

/// Why an export ended without success.
enum ExportFailure {
    Cancelled,
    Failed(String),
}

impl From<&str> for ExportFailure {
    fn from(why: &str) -> ExportFailure {
        ExportFailure::Failed(why.to_owned())
    }
}

impl From<io::Error> for ExportFailure {
    fn from(error: io::Error) -> ExportFailure {
        match error.kind() {
            io::ErrorKind::TimedOut => "Timed out after too long with no interaction".into(),
            _ if is_malformed(&error) => ExportFailure::Failed(error.to_string()),
            _ => LOST.into(),
        }
    }
}

/// Runs a migration on this thread.
pub(super) fn carry(bus: &'static Bus, job: &Arc<SlotMigration>) {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            job.end(
                MigrationState::Failed,
                format!("Can't create the runtime: {error}"),
            );
            return;
        }
    };
    let pubsub = &bus.service.pubsub;
    let mut is_told = false;
    let ended = runtime.block_on(async {
        let mut export = Export::open(bus, job).await?;
        is_told = true;
        pubsub.tell_slots_migrating(&job.slots.listed(), clock::unix_ms());
        let ended = export.run().await;
        export.close().await;
        ended
    });
    let was_granted = job.state() == MigrationState::Granted;
    match ended {
        Ok(()) => job.end(MigrationState::Done, ""),
        Err(ExportFailure::Cancelled) => job.end(MigrationState::Cancelled, ""),
        Err(ExportFailure::Failed(why)) => job.end(MigrationState::Failed, why),
    };
    match job.state() {
        MigrationState::Done => bus.tell_moved(&job.slots, &bus.map()),
        _ if is_told => pubsub.tell_slots_stay(clock::unix_ms()),
        _ => {}
    }
    // If a deletion of the slots' keys is running, it records the end itself.
    if was_granted && !bus.moves.is_deleting(&job.slots) {
        bus.note_over(job.name, false);
    }
    job.waiting_bytes.store(0, Relaxed);
    job.buffer_bytes.store(0, Relaxed);
}

/// An encoded slice that waits for its marker in the log.
struct Slice {
    mark: u64,
    /// The database of its keys.
    db: usize,
    chunk: Chunk,
    /// The shard of a large collection that begins with this slice, if any.
    large: Option<u16>,
    kind: SliceKind,
}

enum SliceKind {
    /// Keys of a slot, and the position where the iteration over the slot continues; `None` at its end.
    Walked(u16, Option<Reached>),
    /// Torn keys that are sent again.
    Mended(Vec<DatabaseKey>),
    /// No keys; the marker only ensures that all records before it have arrived.
    Nothing,
}

struct Export {
    bus: &'static Bus,
    job: Arc<SlotMigration>,
    client: Client,
    /// Received messages that are not processed yet.
    heard: Vec<String>,
    log: Arc<OpLog>,
    reader: Arc<OpLogReader>,
    filter: MigrationLogFilter,
    /// Log records taken since the last marker, not yet filtered.
    taken: Vec<u8>,
    /// The slice whose marker has not arrived yet.
    awaited: Option<Slice>,
    out: MigrationSendQueue,
    /// Log records to be sent after the parts of a large collection.
    later: MigrationSendQueue,
    /// The shard of the large collection being sent, from the marker of its first slice to its end.
    open_shard_of_collection: Option<u16>,
    larges: Arc<LargeCollectionEncoder>,
    /// Guard against snapshots, while a large collection is being sent, or may begin with the current slice.
    held_off: Option<HeldOff<'static>>,
    open_shard: Option<u16>,
    next_mark: u64,
    patience: Duration,
    last_sent_at: Instant,
    heard_at: Instant,
    /// When the pause of writes began; `None` if writes are not paused.
    holds_since: Option<Instant>,
    /// End of the pause of writes, in Unix milliseconds.
    held_until_ms: u64,
}

impl Export {
    /// Connects, and negotiates the migration with the target.
    async fn open(bus: &'static Bus, job: &Arc<SlotMigration>) -> Result<Export, ExportFailure> {
        job.begin();
        let config = bus.service.config.load_full();
        let map = bus.map();
        let Some(node) = map.find(job.target.as_bytes()) else {
            return Err("The target node is no longer known.".into());
        };
        let port = node.client_port(config.tls_cluster);
        let patience = Duration::from_secs(u64::from(config.repl_timeout));
        let connecting = links::open(bus, &node.ip, port);
        let connected = link::unless_cancelled(job, patience, connecting).await?;
        let client = connected.map_err(|_| "Unable to connect to target node")?;
        let log = Arc::clone(&bus.replication.log);
        log.start().map_err(|error| {
            ExportFailure::Failed(format!("Can't start the replication log: {error}"))
        })?;
        let reader = log.add_reader(Audience::BOTH.or(Audience::MOVES));
        // A slow target ends the migration instead of making clients' writes wait.
        reader.set_holding_back(false);
        let now = Instant::now();
        let mut export = Export {
            bus,
            job: Arc::clone(job),
            client,
            heard: Vec::new(),
            log,
            reader,
            filter: MigrationLogFilter::new(bus.service.router, job.slots.clone()),
            taken: Vec::new(),
            awaited: None,
            out: MigrationSendQueue::default(),
            later: MigrationSendQueue::default(),
            open_shard_of_collection: None,
            larges: Arc::default(),
            held_off: None,
            open_shard: None,
            next_mark: FIRST_MARK,
            patience,
            last_sent_at: now,
            heard_at: now,
            holds_since: None,
            held_until_ms: 0,
        };
        match export.introduce(&config).await {
            Ok(()) => Ok(export),
            Err(ended) => {
                export.close().await;
                Err(ended)
            }
        }
    }

    async fn introduce(&mut self, config: &Config) -> Result<(), ExportFailure> {
        self.job
            .advance(&[MigrationState::Connecting], MigrationState::Introducing);
        let signs_in = config.sign_in(|words| commands::command(self.out.text(), words));
        if signs_in.is_some() {
            self.send().await?;
            self.reply().await?.map_err(|text| {
                ExportFailure::Failed(format!("Failed to AUTH to target node: {text}"))
            })?;
        }
        let began = Instant::now();
        loop {
            let words = self.job.words();
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            commands::command(self.out.text(), &words);
            self.send().await?;
            match self.reply().await? {
                Ok(_) => break,
                Err(text) if text.starts_with("TRYAGAIN") && began.elapsed() < DELETING => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    self.check()?;
                }
                Err(text) => {
                    let why = format!("Target node replied with error: {text}");
                    return Err(ExportFailure::Failed(why));
                }
            }
        }
        self.job
            .advance(&[MigrationState::Introducing], MigrationState::Established);
        Ok(())
    }

    /// Ends the pause of writes, removes the log reader, and releases everything else that affects other
    /// threads.
    async fn close(&mut self) {
        if let Some(shard) = self.open_shard.take() {
            self.larges.give_up();
            while self.save_some(shard).await {}
        }
        self.held_off = None;
        self.log.remove_reader(&*self.reader);
        let interest = self.bus.service.pubsub.interest();
        interest.set_listening(Audience::MOVES, false);
        if let Some(since) = self.holds_since {
            self.bus.service.end_pause(Reason::SlotMove);
            let held_us = since.elapsed().as_micros() as u64;
            self.job.figures.last_pause_us.store(held_us, Relaxed);
        }
    }

    async fn run(&mut self) -> Result<(), ExportFailure> {
        self.say("ACK").await?;
        // Set this before the first slice: a shard must log for migrations when its first slice is taken.
        let interest = self.bus.service.pubsub.interest();
        interest.set_listening(Audience::MOVES, true);
        self.job
            .advance(&[MigrationState::Established], MigrationState::Walking);
        let slots: Vec<u16> = self.job.slots.iter().collect();
        for slot in slots {
            let mut next = Some(Reached::default());
            while let Some(at) = next {
                let (slice, waits) = self.walk(slot, at).await;
                let SliceKind::Walked(_, behind) = slice.kind else {
                    unreachable!("it was walked")
                };
                self.follow_until(slice).await?;
                if waits {
                    tokio::time::sleep(SNAPSHOT_LOOK).await;
                }
                next = behind;
            }
        }
        self.mend().await?;
        self.say("SNAPSHOT-EOF").await?;
        self.job
            .advance(&[MigrationState::Walking], MigrationState::Following);
        self.await_word("REQUEST-PAUSE").await?;
        self.await_calm().await?;
        // Delete most keys of invalidated tags before writes are paused.
        self.delete_invalidated().await;
        self.hold_writes().await?;
        self.say("PAUSED").await?;
        self.await_word("REQUEST-FAILOVER").await?;
        self.check()?;
        let held_until_ms = self.held_until_ms;
        self.hold_on();
        self.look_whether_held(held_until_ms)?;
        self.job
            .advance(&[MigrationState::Paused], MigrationState::Granted);
        self.grant().await
    }

    /// Sends log records until little is left to send.
    async fn await_calm(&mut self) -> Result<(), ExportFailure> {
        loop {
            let limit = self
                .bus
                .service
                .config
                .load()
                .slot_migration_max_failover_repl_bytes;
            let waiting = self.reader.waiting_bytes();
            self.follow().await?;
            self.mend().await?;
            if limit < 0 || waiting <= limit.cast_unsigned().max(SLICE_BYTES as u64) {
                return Ok(());
            }
        }
    }

    /// Pauses writes, lets running ones finish, and sends their records.
    async fn hold_writes(&mut self) -> Result<(), ExportFailure> {
        self.holds_since = Some(Instant::now());
        self.hold_on();
        self.job
            .advance(&[MigrationState::Following], MigrationState::Paused);
        if let Err(error) = self.bus.service.await_under_way() {
            return Err(ExportFailure::Failed(error.text().into_owned()));
        }
        self.delete_invalidated().await;
        let slice = Slice {
            mark: self.mark(),
            db: 0,
            chunk: Chunk::default(),
            large: None,
            kind: SliceKind::Nothing,
        };
        self.log.mark(Audience::MOVES, slice.mark);
        self.follow_until(slice).await?;
        self.mend().await?;
        self.tell_last_fence();
        Ok(())
    }

    /// Deletes the keys of invalidated tags that still exist. Each deletion is logged, and so reaches the
    /// target. The invalidation of the tags itself is not sent, because keys of other slots at the target may
    /// have the same tags.
    async fn delete_invalidated(&self) {
        let router = self.bus.service.router;
        let shards: BTreeSet<u16> = self
            .job
            .slots
            .iter()
            .map(|slot| router.shard_of_slot(slot))
            .collect();
        for shard in shards {
            let is_more = Arc::new(AtomicBool::new(true));
            while is_more.load(Relaxed) {
                let result = Arc::clone(&is_more);
                let work = move |engines: &mut [&mut Engine], _: Now| {
                    for engine in &mut *engines {
                        result.store(engine.free_invalidated(), Relaxed);
                    }
                    record::append(engines, &mut Records::default(), false);
                };
                let ticket = task::send(&self.bus.service.shards, &[shard], work);
                poll_fn(|cx| ticket.poll(cx).map(drop)).await;
            }
        }
    }

    /// Sends this node's last fencing token, so that the target only issues larger ones, also for locks that
    /// were already released here.
    fn tell_last_fence(&mut self) {
        let last = self.bus.service.fence_source.last();
        if last > 0 {
            commands::last_fence(self.out.text(), last);
        }
    }

    /// Extends the pause of writes.
    fn hold_on(&mut self) {
        let now_ms = clock::unix_ms();
        self.held_until_ms = now_ms + PAUSE_MS;
        let pause = &self.bus.service.pause;
        pause.hold_slots(&self.job.slots, self.held_until_ms, now_ms);
    }

    /// Returns an error if the pause of writes has ended. Then a paused write may have run without being sent, so the
    /// target must not get the slots.
    fn look_whether_held(&self, until_ms: u64) -> Result<(), ExportFailure> {
        match self.holds_since.is_some() && clock::unix_ms() >= until_ms {
            true => Err("Writes have been paused for too long".into()),
            false => Ok(()),
        }
    }

    /// Grants the slots and waits until the target has taken them. A target that has not taken them after a
    /// while cannot take them any more.
    async fn grant(&mut self) -> Result<(), ExportFailure> {
        // If this node ends before it deletes the keys of the granted slots, they are deleted when it restarts.
        self.bus.note(SlotNote {
            name: self.job.name,
            is_coming: false,
            slots: self.job.slots.clone(),
        });
        commands::command(
            self.out.text(),
            &[b"CLUSTER", b"SYNCSLOTS", b"FAILOVER-GRANTED"],
        );
        // The target may have received the message even if this fails.
        let sent = self.send().await;
        let patience = (self.bus.node_timeout() * 2).max(Duration::from_millis(PAUSE_MS));
        let began = Instant::now();
        while began.elapsed() < patience {
            let map = self.bus.service.slots.get().map(|slots| slots.load_full());
            if let Some(routes) = map {
                let map = &routes.map;
                if has_all(map, self.job.target, &self.job.slots) {
                    return Ok(());
                }
                if !has_all(map, self.job.source, &self.job.slots) {
                    return Err(NOT_OWNED.into());
                }
            }
            self.hold_on();
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        sent?;
        Err("Timed out waiting for the target node to take over the slots".into())
    }

    fn mark(&mut self) -> u64 {
        self.next_mark += 1;
        self.next_mark
    }

    /// Encodes the next keys of a slot as a slice; also returns whether the large collection after them has to
    /// wait for a snapshot.
    async fn walk(&mut self, slot: u16, at: Reached) -> (Slice, bool) {
        let shard = self.bus.service.router.shard_of_slot(slot);
        let take = move |engine: &mut Engine,
                         (out, larges): (&mut Chunk, alone::Larges<'_>),
                         now: Now| {
            let (mut db, mut position) = at;
            loop {
                let into = (&mut *out, larges);
                let place = (db, slot);
                let written = engine.write_slot(place, position, SLICE_BYTES, into, now.unix_ms);
                let behind = match written.next {
                    0 if !written.waits => {
                        (db + 1 < engine.database_count()).then_some((db + 1, 0))
                    }
                    next => Some((db, next)),
                };
                match behind {
                    // No keys were found: try the next position.
                    Some(next) if written.keys == 0 && !written.waits => (db, position) = next,
                    _ => return (written, (db, behind)),
                }
            }
        };
        let (mark, chunk, written, (db, next)) = self.slice(shard, take).await;
        self.job.figures.keys.fetch_add(written.keys, Relaxed);
        let slice = Slice {
            mark,
            db,
            chunk,
            large: written.has_begun.then_some(shard),
            kind: SliceKind::Walked(slot, next),
        };
        (slice, written.waits)
    }

    /// Encodes data of a shard while the shard is locked, and sets a marker in the log.
    async fn slice<T: Default + Send + 'static>(
        &mut self,
        shard: u16,
        take: impl Fn(&mut Engine, (&mut Chunk, alone::Larges<'_>), Now) -> (KeyWriteProgress, T)
        + Send
        + 'static,
    ) -> (u64, Chunk, KeyWriteProgress, T) {
        let mark = self.mark();
        self.held_off = self.bus.replication.primary.snapshots().hold_off();
        // While writes are paused, do not make large collections wait for a snapshot.
        let (is_free, is_paused) = (self.held_off.is_some(), self.holds_since.is_some());
        let larges = Arc::clone(&self.larges);
        let outlet: Arc<dyn Outlet> = Arc::clone(&self.larges) as _;
        let found = Arc::new(Mutex::new((
            Chunk::default(),
            KeyWriteProgress::default(),
            T::default(),
        )));
        let (into, log) = (Arc::clone(&found), Arc::clone(&self.log));
        let work = move |engines: &mut [&mut Engine], now: Now| {
            let (chunk, written, result) = &mut *into.lock();
            larges.set_now(now.unix_ms);
            let how = match (is_free, is_paused) {
                (true, _) => alone::Larges::ByPiece(&outlet),
                (false, false) => alone::Larges::Wait,
                (false, true) => alone::Larges::Whole,
            };
            for engine in engines {
                (*written, *result) = take(engine, (chunk, how), now);
            }
            log.mark(Audience::MOVES, mark);
        };
        let ticket = task::send(&self.bus.service.shards, &[shard], work);
        poll_fn(|cx| ticket.poll(cx).map(drop)).await;
        let (chunk, written, result) = std::mem::take(&mut *found.lock());
        match written.has_begun {
            true => self.open_shard = Some(shard),
            false => self.held_off = None,
        }
        (mark, chunk, written, result)
    }

    /// Sends torn keys ([`super::filter`]) again.
    async fn mend(&mut self) -> Result<(), ExportFailure> {
        loop {
            let mut torn = self.filter.torn(MENDED_TOGETHER);
            let Some((db, first)) = torn.first() else {
                return Ok(());
            };
            let db = *db;
            let (_, shard) = self.bus.service.router.route(first);
            let keys: Vec<Vec<u8>> = torn.iter().map(|(_, key)| key.clone()).collect();
            let take =
                move |engine: &mut Engine, into: (&mut Chunk, alone::Larges<'_>), now: Now| {
                    (engine.write_keys(db, &keys, into, now.unix_ms), ())
                };
            let (mark, chunk, written, ()) = self.slice(shard, take).await;
            torn.truncate(written.next as usize);
            let slice = Slice {
                mark,
                db,
                chunk,
                large: written.has_begun.then_some(shard),
                kind: SliceKind::Mended(torn),
            };
            self.follow_until(slice).await?;
            if written.waits {
                tokio::time::sleep(SNAPSHOT_LOOK).await;
            }
        }
    }

    /// Sends log records up to a slice's marker, then the slice, then all other available data.
    async fn follow_until(&mut self, slice: Slice) -> Result<(), ExportFailure> {
        self.awaited = Some(slice);
        loop {
            self.take_log()?;
            self.exchange().await?;
            if self.awaited.is_none() {
                break;
            }
            // The marker has not arrived because another thread is still appending before it.
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        match self.open_shard_of_collection {
            Some(shard) => self.send_large(shard).await,
            None => Ok(()),
        }
    }

    /// Sends the parts of a large collection, and then the log records that arrived meanwhile.
    async fn send_large(&mut self, shard: u16) -> Result<(), ExportFailure> {
        loop {
            let more = self.save_some(shard).await;
            while let Some(part) = self.larges.take() {
                self.out.put(part);
            }
            if let Some(why) = self.larges.broken() {
                return Err(why.into());
            }
            self.take_log()?;
            self.exchange().await?;
            if !more {
                break;
            }
        }
        self.larges.note_end();
        self.open_shard = None;
        self.held_off = None;
        self.open_shard_of_collection = None;
        self.out.append(std::mem::take(&mut self.later));
        self.exchange().await
    }

    /// Encodes more of a shard's large collection; returns whether more is left.
    async fn save_some(&self, shard: u16) -> bool {
        let is_more = Arc::new(AtomicBool::new(false));
        let result = Arc::clone(&is_more);
        let work = move |engines: &mut [&mut Engine], _: Now| {
            for engine in engines {
                let mut steps = 0;
                let more = engine.save_slice(&mut || {
                    steps += 1;
                    steps < STEPS
                });
                result.store(more, Relaxed);
            }
        };
        let ticket = task::send(&self.bus.service.shards, &[shard], work);
        poll_fn(|cx| ticket.poll(cx).map(drop)).await;
        is_more.load(Relaxed)
    }

    /// Sends available log records.
    async fn follow(&mut self) -> Result<(), ExportFailure> {
        self.take_log()?;
        self.exchange().await
    }

    fn take_log(&mut self) -> Result<(), ExportFailure> {
        self.log.hand_out();
        while let Some(stretch) = self.reader.take(Duration::ZERO) {
            for item in stretch.items {
                match item {
                    OpLogItem::Bytes(bytes, _) => self.taken.extend_from_slice(&bytes),
                    OpLogItem::Mark(number, _) => {
                        self.pass()?;
                        let is_it = |slice: &mut Slice| slice.mark == number;
                        if let Some(slice) = self.awaited.take_if(is_it) {
                            self.put(slice);
                        }
                    }
                }
            }
            self.reader.set_held(0);
            self.pass()?;
        }
        Ok(())
    }

    /// Queues a slice when its marker has arrived.
    fn put(&mut self, slice: Slice) {
        if !slice.chunk.is_empty() || slice.large.is_some() {
            self.filter.select(slice.db, self.out.text());
            self.out.put(slice.chunk);
        }
        self.open_shard_of_collection = slice.large;
        match slice.kind {
            SliceKind::Walked(slot, next) => self.filter.note_walked(slot, next),
            SliceKind::Mended(keys) => self.filter.note_mended(&keys),
            SliceKind::Nothing => {}
        }
    }

    /// Filters the data taken from the log.
    fn pass(&mut self) -> Result<(), ExportFailure> {
        if self.taken.is_empty() {
            return Ok(());
        }
        let into = match self.open_shard_of_collection {
            None => &mut self.out,
            Some(_) => &mut self.later,
        };
        let passed = self.filter.pass(&self.taken, into.text());
        self.taken.clear();
        if self.taken.capacity() > 1 << 20 {
            self.taken = Vec::new();
        }
        match passed {
            Err(filter::Flushed) => Err("Data was flushed".into()),
            Ok(()) if self.filter.torn_bytes() > TORN_BYTES_MAX => {
                Err("Too many keys are written by multi-key commands".into())
            }
            Ok(()) => Ok(()),
        }
    }
}
