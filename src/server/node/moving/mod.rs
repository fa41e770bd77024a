//! Atomic slot migration to and from other nodes: the source serves the slots until everything is transferred;
//! from then on the target does. The protocol is that of Valkey 9.
//!
//! ```text
//! asked    imports requested by this node
//! job      one migration, and its progress
//! export   outgoing slots: on one thread, one migration after the other
//! filter   selects the log records sent with them
//! pieces   data to be sent
//! ```
//!
//! Imports have no thread: the source is a client whose commands run although this node does not own the slots,
//! and to whose `CLUSTER SYNCSLOTS` commands this node replies with the next step that the source must take.

mod asked;
mod export;
mod filter;
mod job;
mod pieces;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use self::asked::ImportRequest;
use self::job::{MigrationState, SlotMigration};
use super::{Bus, LOOK_AGAIN};
use crate::script::stack;
use crate::shard::job::Job as ShardJob;
use basalt_commands::client::shared::Shared;
use basalt_commands::cluster::change::ClusterChange;
use basalt_commands::cluster::map::ClusterMap;
use basalt_commands::cluster::node_id::NodeId;
use basalt_commands::cluster::slot_note::SlotNote;
use basalt_commands::cluster::slot_set::SlotSet;
use basalt_commands::command::host::cluster::{MoveAnswer, MoveStep, MovesInProgress, SlotMove};
use basalt_engine::Engine;
use basalt_engine::note;
use basalt_engine::record::{self, Audience, Head, Records};

/// Maximum migrations in progress, in both directions: each is checked ten times a second.
const UNDER_WAY_MAX: usize = 1024;

const FLUSHED: &str = "Data was flushed";

const BEING_DELETED: &str = "TRYAGAIN Keys of these slots are being deleted";

/// Maximum time that SETSLOT waits for the end of a deletion.
const DELETION_WAITS: Duration = Duration::from_secs(60);

/// Milliseconds after which a grant of slots is no longer accepted: the source resumes writes after five
/// seconds, and must know the new owner by then.
const GRANT_MS_MAX: u64 = 4_000;

/// Spins on a locked shard, of some tens of nanoseconds each, before the source of an import is told to retry.
const SPINS: u32 = 20_000;

const DISAGREES: &str = "ERR Target node does not agree about current slot ownership";

/// All migrations of this node in progress, and the last ones that have ended.
#[derive(Default)]
pub(super) struct Moves {
    /// Migrations in progress and recently ended, the latest first.
    jobs: Mutex<VecDeque<Arc<SlotMigration>>>,
    /// Imports requested by this node, the latest first.
    asked: Mutex<VecDeque<Arc<ImportRequest>>>,
    /// Exports that have not begun.
    queue: Mutex<MigrationQueue>,
    /// Open notes, by migration. A note is a log record that keys of some slots are being imported or removed.
    /// A note is open until its end is recorded in the log of this server or of its primary.
    notes: Mutex<BTreeMap<NodeId, SlotNote>>,
    /// Slots whose keys are being deleted, as this node no longer owns them.
    deleting: Mutex<Vec<SlotSet>>,
}

#[derive(Default)]
struct MigrationQueue {
    waiting: VecDeque<Arc<SlotMigration>>,
    /// Whether a thread is running the queued exports.
    is_served: bool,
}

impl Moves {
    pub(super) fn views(&self) -> Vec<SlotMove> {
        self.jobs.lock().iter().map(|job| job.view()).collect()
    }

    /// Returns the number of migrations in progress, and their memory.
    pub(super) fn in_progress(&self) -> MovesInProgress {
        let mut all = MovesInProgress::default();
        for job in self.under_way() {
            match &job.client {
                None => {
                    all.exports += 1;
                    all.export_buffer_bytes += job.buffer_bytes.load(Relaxed);
                }
                Some(client) => {
                    all.imports += 1;
                    all.import_buffer_bytes += client.memory_bytes() as u64;
                }
            }
        }
        all
    }

    fn under_way(&self) -> Vec<Arc<SlotMigration>> {
        let jobs = self.jobs.lock();
        let under_way = jobs.iter().filter(|job| !job.state().is_over());
        under_way.cloned().collect()
    }

    /// Adds a migration, unless there are too many.
    fn add(&self, job: &Arc<SlotMigration>) -> Result<(), String> {
        if self.under_way().len() >= UNDER_WAY_MAX {
            return Err("ERR Too many slot migrations are in progress".to_owned());
        }
        self.jobs.lock().push_front(Arc::clone(job));
        Ok(())
    }

    /// Removes ended migrations except for the latest `kept`.
    fn trim(&self, kept: usize) {
        let mut left = kept;
        self.jobs.lock().retain(|job| {
            let stays = !job.state().is_over() || left > 0;
            left -= usize::from(job.state().is_over() && stays);
            stays
        });
    }

    /// Returns the migration over a client's connection.
    fn of_client(&self, client: &Shared) -> Option<Arc<SlotMigration>> {
        let is_its =
            |job: &&Arc<SlotMigration>| job.client.as_ref().is_some_and(|one| one.id == client.id);
        self.jobs.lock().iter().find(is_its).cloned()
    }

    /// Cancels all exports; returns whether any was running.
    pub(super) fn cancel(&self) -> bool {
        let mut exports = self.under_way();
        exports.retain(|job| job.is_export());
        for job in &exports {
            job.cancel();
        }
        for job in self.queue.lock().waiting.drain(..) {
            job.end(MigrationState::Cancelled, "");
        }
        !exports.is_empty()
    }

    /// Fails an import because one of its commands has failed.
    pub(super) fn fail_import(&self, client: &Shared, reply: &[u8]) {
        let Some(job) = self.of_client(client) else {
            return;
        };
        let reply = String::from_utf8_lossy(reply);
        let reply = reply.trim_start_matches('-').trim_end();
        let why = match reply {
            FLUSHED => FLUSHED.to_owned(),
            _ if reply.starts_with("OOM") => {
                "Ran out of memory (OOM) during slot import".to_owned()
            }
            _ => format!("A command failed during slot import: {reply}"),
        };
        fail(&job, why);
    }

    /// Returns the open notes.
    pub(super) fn notes(&self) -> Vec<SlotNote> {
        self.notes.lock().values().cloned().collect()
    }

    /// Replaces the notes by those of a snapshot.
    pub(super) fn replace_notes(&self, notes: Vec<SlotNote>) {
        let named = notes.into_iter().map(|note| (note.name, note));
        *self.notes.lock() = named.take(UNDER_WAY_MAX).collect();
    }

    /// True if the log has the beginning of an import of some of these slots, but not its end.
    fn awaits_end(&self, slots: &SlotSet) -> bool {
        let notes = self.notes.lock();
        let mut coming = notes.values().filter(|note| note.is_coming);
        coming.any(|note| meet(&note.slots, slots))
    }

    pub(super) fn begin_deleting(&self, slots: &SlotSet) {
        self.deleting.lock().push(slots.clone());
    }

    pub(super) fn end_deleting(&self, slots: &SlotSet) {
        let mut deleting = self.deleting.lock();
        if let Some(at) = deleting.iter().position(|other| other == slots) {
            deleting.swap_remove(at);
        }
    }

    /// Returns the names of migrations that have taken some of these slots to another node.
    pub(super) fn takers(&self, slots: &SlotSet) -> Vec<NodeId> {
        let jobs = self.jobs.lock();
        let is_taker = |job: &&Arc<SlotMigration>| {
            let is_over = matches!(job.state(), MigrationState::Granted | MigrationState::Done);
            job.is_export() && is_over && meet(&job.slots, slots)
        };
        jobs.iter().filter(is_taker).map(|job| job.name).collect()
    }

    fn is_deleting(&self, slots: &SlotSet) -> bool {
        self.deleting.lock().iter().any(|other| meet(other, slots))
    }
}

fn meet(one: &SlotSet, other: &SlotSet) -> bool {
    one.iter().any(|slot| other.contains(slot))
}

/// Fails an import, and closes its connection.
fn fail(job: &SlotMigration, why: impl Into<String>) {
    job.end(MigrationState::Failed, why);
    if let Some(client) = &job.client {
        client.kill();
    }
}

/// Returns the log record for a note with these arguments.
fn with_head(words: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let head = note::words(&[b"SLOTS"]).into_iter().map(<[u8]>::to_vec);
    head.chain(words).collect()
}

/// True if a node owns all of these slots.
fn has_all(map: &ClusterMap, node: NodeId, slots: &SlotSet) -> bool {
    let has = |slot| map.owner(slot).is_some_and(|owner| owner.id == node);
    slots.iter().all(has)
}

impl Bus {
    /// See [`Cluster::move_slots`](basalt_commands::command::host::cluster::Cluster::move_slots).
    pub(super) fn begin_moves(&'static self, moves: Vec<(SlotSet, NodeId)>) -> Result<(), String> {
        let map = self.map();
        let me = map.me().id;
        let under_way = self.moves.under_way();
        for slot in moves.iter().flat_map(|(slots, _)| slots.iter()) {
            if under_way.iter().any(|job| job.slots.contains(slot)) {
                return Err(format!("ERR I am already migrating slot {slot}."));
            }
            if map.migrating.contains_key(&slot) || map.importing.contains_key(&slot) {
                return Err(format!(
                    "ERR Slot {slot} is already being migrated by CLUSTER SETSLOT."
                ));
            }
        }
        for (slots, _) in &moves {
            let mut owners = slots
                .iter()
                .map(|slot| map.owner(slot).map(|owner| owner.id));
            let first = owners.next().flatten();
            if !owners.all(|owner| owner == first) {
                return Err("ERR Requested slots span multiple shards".to_owned());
            }
            if first != Some(me) || !map.me().is_primary() {
                return Err("ERR Slots are not served by this node.".to_owned());
            }
        }
        let figures = &self.service.telemetry.slot_moves;
        for (slots, target) in moves {
            let name = NodeId::from_random(rand::random());
            let job = SlotMigration::new(name, slots, me, target, None, figures);
            self.moves.add(&job)?;
            tracing::info!(
                "Slot migration {name} of slots {} to node {target} started",
                job.ranges()
            );
            self.moves.queue.lock().waiting.push_back(job);
        }
        self.serve_queue()
    }

    /// Starts a thread that runs the queued exports, unless one is running.
    fn serve_queue(&'static self) -> Result<(), String> {
        let mut queue = self.moves.queue.lock();
        if queue.is_served {
            return Ok(());
        }
        // This thread locks shards, so it may have to run scripts that are queued for a shard.
        let started = stack::spawn("basalt-slots".to_owned(), move || {
            loop {
                let mut queue = self.moves.queue.lock();
                let Some(job) = queue.waiting.pop_front() else {
                    queue.is_served = false;
                    return;
                };
                drop(queue);
                export::carry(self, &job);
            }
        });
        match started {
            Ok(_) => queue.is_served = true,
            Err(error) => {
                let why = format!("ERR Can't create the slot migration thread: {error}");
                for job in queue.waiting.drain(..) {
                    job.end(MigrationState::Failed, why.clone());
                }
                return Err(why);
            }
        }
        Ok(())
    }

    /// Returns why CLUSTER SETSLOT may not change a slot, if it is being migrated.
    pub(super) fn refuses_by_hand(&self, slot: u16) -> Option<String> {
        let under_way = self.moves.under_way();
        let job = under_way.iter().find(|job| job.slots.contains(slot))?;
        let direction = if job.is_export() { "export" } else { "import" };
        Some(format!("ERR Slot {direction} in progress."))
    }

    /// Waits for a running deletion of the slot's keys to finish; returns an error after `DELETION_WAITS`. If the slot
    /// changed hands meanwhile, the deletion could delete new keys, or skip the slot and leave old keys behind.
    pub(super) fn await_deletion(&self, slot: u16) -> Result<(), String> {
        let slots: SlotSet = [slot].into_iter().collect();
        let until = Instant::now() + DELETION_WAITS;
        while self.moves.is_deleting(&slots) {
            if Instant::now() > until {
                return Err(BEING_DELETED.to_owned());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// See [`Cluster::handle_move_step`](basalt_commands::command::host::cluster::Cluster::handle_move_step).
    pub(super) fn handle_move_step(
        &'static self,
        client: &Arc<Shared>,
        step: MoveStep,
    ) -> Result<MoveAnswer, String> {
        if let MoveStep::Establish {
            source,
            name,
            slots,
        } = step
        {
            return self.establish(client, source, name, slots);
        }
        let Some(job) = self.moves.of_client(client) else {
            return Err(format!(
                "ERR CLUSTER SYNCSLOTS {} should only be used by slot migration clients",
                step.name()
            ));
        };
        let silent_ms = job.silent_ms();
        job.note_heard();
        if job.emptied != self.emptied() {
            return Err(FLUSHED.to_owned());
        }
        if matches!(step, MoveStep::Granted) && silent_ms > GRANT_MS_MAX {
            fail(&job, "The slots were granted too late.");
            return Err("ERR The slots were granted too late".to_owned());
        }
        let (from, to, answer) = match step {
            MoveStep::Ack => {
                job.advance(
                    &[MigrationState::AwaitingAck],
                    MigrationState::ReceivingKeys,
                );
                return Ok(MoveAnswer::Word("ACK"));
            }
            MoveStep::SnapshotEnd => (
                MigrationState::ReceivingKeys,
                MigrationState::AwaitingPaused,
                MoveAnswer::Word("REQUEST-PAUSE"),
            ),
            MoveStep::Paused => (
                MigrationState::AwaitingPaused,
                MigrationState::AskingForSlots,
                MoveAnswer::Word("REQUEST-FAILOVER"),
            ),
            MoveStep::Granted | MoveStep::Establish { .. } => (
                MigrationState::AskingForSlots,
                MigrationState::Granted,
                MoveAnswer::Done,
            ),
        };
        // A source may skip the message ACK.
        if !job.advance(&[from, MigrationState::AwaitingAck], to) {
            return Err(
                "ERR The slot migration is not in the right state for this command".to_owned(),
            );
        }
        if to == MigrationState::Granted {
            self.take(&job)?;
        }
        Ok(answer)
    }

    /// Schedules a task for each shard that runs a closure for each of its slots, with the shard locked.
    fn with_each(&self, slots: &SlotSet, work: impl Fn(&mut Engine, u16) + Clone + Send + 'static) {
        for shard in 0..self.service.router.shard_count() {
            let is_its = |slot: &u16| self.service.router.shard_of_slot(*slot) == shard;
            let own: Vec<u16> = slots.iter().filter(is_its).collect();
            if own.is_empty() {
                continue;
            }
            let work = work.clone();
            self.service
                .shards
                .submit(ShardJob::task(&[shard], move |engines, _| {
                    for engine in engines {
                        own.iter().for_each(|slot| work(engine, *slot));
                    }
                }));
        }
    }

    /// Sets whether the keys of slots are being imported, so that clients do not see them.
    fn set_coming(&self, slots: &SlotSet, is_coming: bool) {
        self.with_each(slots, move |engine, slot| {
            engine.set_coming(slot, is_coming)
        });
    }

    /// Counts the keys of slots that were imported completely.
    fn count_keys(&self, job: &SlotMigration) {
        let counter = &job.figures.keys;
        self.with_each(&job.slots, move |engine, slot| {
            counter.fetch_add(engine.keys_in_slot(slot), Relaxed);
        });
    }

    /// Returns how many times databases were emptied, summed over all shards.
    fn emptied(&self) -> u64 {
        let all = self.service.all_published.iter();
        all.map(|published| published.emptied.get()).sum()
    }

    /// Takes ownership of completely imported slots.
    fn take(&'static self, job: &Arc<SlotMigration>) -> Result<(), String> {
        let change = ClusterChange::TakeSlots {
            slots: job.slots.clone(),
            from: job.source,
        };
        let taken = self.change_now(change);
        match taken {
            Ok(_) => {
                job.end(MigrationState::Done, "");
                self.note_over(job.name, true);
                self.count_keys(job);
                self.set_coming(&job.slots, false);
            }
            Err(ref why) => {
                job.end(MigrationState::Failed, why.clone());
            }
        }
        taken.map(drop)
    }

    /// Handles a node's request to migrate slots to this node (ESTABLISH).
    fn establish(
        &'static self,
        client: &Arc<Shared>,
        source: NodeId,
        name: NodeId,
        slots: SlotSet,
    ) -> Result<MoveAnswer, String> {
        let map = self.map();
        if source == map.me().id {
            return Err("ERR Source node is target node itself".to_owned());
        }
        if !map.me().is_primary() || slots.is_empty() || !has_all(&map, source, &slots) {
            return Err(DISAGREES.to_owned());
        }
        if self.moves.of_client(client).is_some() {
            return Err("ERR This connection already imports slots".to_owned());
        }
        let under_way = self.moves.under_way();
        for slot in slots.iter() {
            if under_way.iter().any(|job| job.slots.contains(slot)) {
                return Err(format!("ERR I am already importing slot {slot}."));
            }
            if map.importing.contains_key(&slot) {
                return Err(format!(
                    "ERR Slot {slot} is already being migrated by CLUSTER SETSLOT."
                ));
            }
        }
        let has_keys = |slot: u16| {
            let shard = usize::from(self.service.router.shard_of_slot(slot));
            self.service.all_published[shard].has_keys_in_slot(slot)
        };
        let is_deleting = self.moves.is_deleting(&slots) || self.moves.awaits_end(&slots);
        if is_deleting || slots.iter().any(has_keys) {
            // Delete old keys of the slots first: they would mix with the imported keys.
            if !is_deleting {
                self.delete_keys(slots);
            }
            return Err(BEING_DELETED.to_owned());
        }
        if !self.has_logged_deletions(&slots) {
            return Err(BEING_DELETED.to_owned());
        }
        let job = SlotMigration::new(
            name,
            slots,
            source,
            map.me().id,
            Some((Arc::clone(client), self.emptied())),
            &self.service.telemetry.slot_moves,
        );
        self.moves.add(&job)?;
        self.moves.note_begun(&job);
        self.note(SlotNote {
            name: job.name,
            is_coming: true,
            slots: job.slots.clone(),
        });
        self.set_coming(&job.slots, true);
        tracing::info!(
            "Slot migration {name} of slots {} from node {source} started",
            job.ranges()
        );
        Ok(MoveAnswer::Agreed)
    }

    /// See [`Cluster::import_ended`](basalt_commands::command::host::cluster::Cluster::import_ended).
    pub(super) fn end_import(&'static self, client: &Shared) {
        let Some(job) = self.moves.of_client(client) else {
            return;
        };
        job.end(
            MigrationState::Failed,
            "Connection lost to source. Check CLUSTER GETSLOTMIGRATIONS on the source node for more information.",
        );
        if job.state() != MigrationState::Done {
            let deletion = self.deletion(job.slots.clone(), Some(job.name));
            self.runtime.spawn(async move {
                deletion.await;
                self.set_coming(&job.slots, false);
            });
        }
    }

    /// Returns whether the log has all deletions made so far in these slots, by trying to lock their shards: a
    /// thread appends its records before it releases the shard. A replica running Valkey crashes if slots are
    /// imported while it has keys of them.
    fn has_logged_deletions(&self, slots: &SlotSet) -> bool {
        self.shards_of(slots).into_iter().all(|shard| {
            let held = self.service.shards.take_spinning(shard, SPINS);
            held.is_some()
        })
    }

    /// Records, for the append-only file and the replicas, that keys of slots are being imported or removed: if
    /// this node ends before that is complete, the next start or the replica that takes over deletes the keys
    /// of slots that it does not own. A note is logged only once, because replicas running Valkey get it, too,
    /// and expect the slots to be empty at that moment; snapshots repeat the note until its end.
    pub(super) fn note(&self, note: SlotNote) {
        if !self.map().me().is_primary() {
            return;
        }
        let words = match note.is_coming {
            true => job::establish(self.source_of(&note), note.name, &note.slots),
            false => with_head(note.words()),
        };
        // Insert the note before it is logged, so that a snapshot at this moment includes it in any case.
        self.moves.notes.lock().insert(note.name, note);
        self.log_words(&words, Audience::BOTH);
    }

    /// Returns the node from which slots are imported.
    fn source_of(&self, note: &SlotNote) -> NodeId {
        let map = self.map();
        let first = note.slots.iter().next();
        let owner = first.and_then(|slot| map.owner(slot));
        owner.map_or(map.me().id, |owner| owner.id)
    }

    /// Logs the end of a migration, if its beginning was logged; `has_come` tells whether the slots now belong
    /// to this node.
    pub(super) fn note_over(&self, name: NodeId, has_come: bool) {
        if !self.map().me().is_primary() {
            // On a replica, the primary logs the end.
            return;
        }
        let Some(note) = self.moves.notes.lock().remove(&name) else {
            return;
        };
        let words = match note.is_coming {
            true => job::finish(name, has_come),
            false => with_head(vec![b"OVER".to_vec(), name.as_bytes().to_vec()]),
        };
        self.log_words(&words, Audience::BOTH);
    }

    /// See [`Cluster::replay_note`](basalt_commands::command::host::cluster::Cluster::replay_note).
    pub(super) fn replay_note(&self, note: SlotNote) {
        let mut notes = self.moves.notes.lock();
        // Limit the number, because an untrusted primary may make up names.
        if notes.len() >= UNDER_WAY_MAX {
            return;
        }
        let words = with_head(note.words());
        notes.insert(note.name, note);
        drop(notes);
        self.log_for_own_file(&words);
    }

    /// See [`Cluster::replay_over`](basalt_commands::command::host::cluster::Cluster::replay_over).
    pub(super) fn replay_over(&self, name: NodeId) {
        if self.moves.notes.lock().remove(&name).is_some() {
            let words = with_head(vec![b"OVER".to_vec(), name.as_bytes().to_vec()]);
            self.log_for_own_file(&words);
        }
    }

    /// Logs the primary's notes for this server's append-only file; this server's replicas get the primary's
    /// original records.
    fn log_for_own_file(&self, words: &[Vec<u8>]) {
        if !self.map().me().is_primary() {
            self.log_words(words, Audience::FILE);
        }
    }

    fn log_words(&self, words: &[Vec<u8>], audience: Audience) {
        if !self.service.pubsub.interest().is_logging() {
            return;
        }
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let head = Head {
            stamp: 0,
            db: record::ANY_DB,
            audience,
        };
        let mut records = Records::default();
        records.push_bytes(head, &words);
        self.service.log_records(&mut records, false);
    }

    /// Deletes the data of migrations that were unfinished when this server, or its former primary, ended.
    pub(super) async fn delete_unfinished(&'static self) {
        let map = self.map();
        if !map.me().is_primary() {
            return;
        }
        for note in self.moves.notes() {
            let is_others = |slot: &u16| map.owners[usize::from(*slot)] != map.myself;
            let others: SlotSet = note.slots.iter().filter(is_others).collect();
            let has_come = others.is_empty();
            if !has_come {
                let name = note.name;
                tracing::warn!(
                    "Slot migration {name} was not finished: the keys received so far are deleted"
                );
                self.deletion(others, Some(name)).await;
            }
            self.note_over(note.name, has_come);
        }
    }

    /// Ends imports that have become invalid, for example because the source is silent, and removes old entries
    /// of ended migrations.
    pub(super) fn look_at_moves(&'static self) {
        let config = self.service.config.load_full();
        let map = self.map();
        for job in self.moves.under_way() {
            if job.count_received() {
                // Do not count the source as silent: one large value may take long to receive.
                job.note_heard();
            }
            if job.is_export() || job.state() == MigrationState::Granted {
                continue;
            }
            if !map.me().is_primary() || !has_all(&map, job.source, &job.slots) {
                fail(&job, "Slots are no longer owned by source node.");
            } else if job.emptied != self.emptied() {
                fail(&job, FLUSHED);
            } else if job.silent_ms() > u64::from(config.repl_timeout) * 1000 {
                fail(&job, "Timed out after too long with no interaction");
            }
        }
        self.moves
            .trim(config.cluster_slot_migration_log_max_len as usize);
    }
}
