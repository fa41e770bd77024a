//! Carries out the effects of the cluster state machine on the rest of the server: changes of the role, pauses
//! of writes, deletion of keys, delivery of messages, and the slot map.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;
use tokio::sync::oneshot;

use super::{Bus, LOOK_AGAIN};
use crate::shard::job::{Job, task};
use crate::state::pause::Reason;
use crate::telemetry::clock;
use basalt_commands::client::under_way::UnderWay;
use basalt_commands::cluster::Millis;
use basalt_commands::cluster::map::ClusterMap;
use basalt_commands::cluster::node_id::NodeId;
use basalt_commands::cluster::packet::Message;
use basalt_commands::cluster::slot_note::SlotNote;
use basalt_commands::cluster::slot_set::SlotSet;
use basalt_commands::command::host::replica::Replica;
use basalt_commands::pubsub::Posting;
use basalt_engine::record::{self, Audience, Head, Records};
use basalt_engine::{Engine, Now};

/// Number of keys of a slot owned by another node that are deleted together.
const DELETED_TOGETHER: usize = 64;

/// An effect on the rest of the server.
pub(super) enum NodeEffect {
    Follow(String, u16),
    Lead,
    Pause(Millis),
    Unpause,
    FlushAll,
    DeleteKeys(SlotSet),
    Deliver(Message, bool),
    Publish(Arc<ClusterMap>),
    /// Deletes the data of unfinished slot migrations to this node's former primary.
    DeleteUnfinished,
}

/// Work that waits until this server's promotion to primary is complete.
#[derive(Default)]
pub(super) struct DeferredPrimaryWork {
    /// The slot map to publish after the promotion.
    map: Option<Arc<ClusterMap>>,
    /// Whether to delete all data after the promotion.
    flushes: bool,
}

impl Bus {
    /// Carries out one effect.
    pub(super) fn carry_out_one(&'static self, effect: NodeEffect) {
        match effect {
            NodeEffect::Follow(ip, port) => self.change_role(Some((ip, port)), || ()),
            NodeEffect::Lead => {
                // The slot map that directs commands to this node is published only after the promotion, when
                // they can be run.
                self.leading.fetch_add(1, Relaxed);
                self.change_role(None, move || self.leads());
            }
            NodeEffect::Pause(until) => self.hold_writes(until),
            NodeEffect::Unpause => {
                self.core.lock().is_landing = false;
                self.service.pubsub.end_failover(clock::unix_ms());
                self.service.end_pause(Reason::Failover);
            }
            NodeEffect::FlushAll => {
                let mut held = self.held.lock();
                match self.leading.load(Relaxed) {
                    // During a promotion, the stream of the former primary has to end first.
                    1.. => held.flushes = true,
                    0 => self.flush(),
                }
            }
            NodeEffect::DeleteKeys(slots) => self.delete_keys(slots),
            NodeEffect::Deliver(message, is_shard) => self.deliver(&message, is_shard),
            NodeEffect::DeleteUnfinished => {
                self.runtime.spawn(self.delete_unfinished());
            }
            NodeEffect::Publish(map) => {
                let mut held = self.held.lock();
                if self.leading.load(Relaxed) > 0 {
                    held.map = Some(map);
                    return;
                }
                drop(held);
                let before = self.map();
                self.service.follow_map(Arc::clone(&map));
                self.tell_demotion(&before, &map);
            }
        }
    }

    fn change_role(
        &'static self,
        target: Option<(String, u16)>,
        then: impl FnOnce() + Send + 'static,
    ) {
        match self.replication.replica.follow(target) {
            Ok(change) => (change.begin)(Box::new(move |_| then())),
            Err(error) => {
                tracing::warn!("Can't change the role as required by the cluster: {error:?}");
                then();
            }
        }
    }

    /// Completes the promotion to a primary.
    fn leads(&'static self) {
        // Locking the core ensures that the thread that queued the promotion has queued the new slot map, too.
        let core = self.core.lock();
        let mut held = self.held.lock();
        if self.leading.fetch_sub(1, Relaxed) == 1 {
            let DeferredPrimaryWork { map, flushes } = std::mem::take(&mut *held);
            if flushes {
                self.flush();
            }
            if let Some(map) = map {
                self.effects.queue(NodeEffect::Publish(map));
            }
            // Queue this after the slot map, which states that this node is a primary and which slots it does
            // not own.
            self.effects.queue(NodeEffect::DeleteUnfinished);
        }
        drop(held);
        drop(core);
        self.carry_out();
    }

    /// Pauses writes until the time `until`. When all commands already admitted have taken effect, passes the
    /// stream offset after them to the state machine, for the replica that takes over.
    fn hold_writes(&'static self, until: Millis) {
        let now_ms = clock::unix_ms();
        let left_ms = until.saturating_sub(self.now());
        let until_ms = now_ms.saturating_add(left_ms);
        self.service.pubsub.begin_failover(Some(left_ms), now_ms);
        let pause = &self.service.pause;
        pause.start(Reason::Failover, until_ms, true, now_ms);
        let (say, over) = oneshot::channel();
        UnderWay::when_over(&self.service.under_way, || drop(say));
        self.runtime.spawn(async move {
            // The sender is dropped without sending a value, which completes `over` with an error.
            let _: Result<(), _> = over.await;
            self.call(|core, now, here| {
                core.is_landing = false;
                core.machine.tick(now, here);
            });
        });
    }

    fn deliver(&self, message: &Message, is_shard: bool) {
        let Message { channel, payload } = message;
        let mut wakes = Vec::new();
        let posting = &mut Posting::new(0, &mut wakes);
        self.service
            .pubsub
            .publish(is_shard, channel, payload, posting);
        wakes.into_iter().for_each(Waker::wake);
    }

    /// Deletes all data and all function libraries, and logs that for replicas and the append-only file.
    fn flush(&'static self) {
        let service = self.service;
        self.runtime.spawn(async move {
            let ticket = task::send_to_all(&service.shards, |engines, _| {
                for engine in &mut *engines {
                    let removed = engine.flush_all() as u64;
                    engine.published().lazyfreed.add(removed);
                }
                let head = Head {
                    stamp: 0,
                    db: record::ANY_DB,
                    audience: Audience::default(),
                };
                let mut records = Records::default();
                records.push_bytes(head, &[b"FLUSHALL"]);
                record::append(engines, &mut records, false);
            });
            poll_fn(|cx| ticket.poll(cx).map(drop)).await;
            service.scripts.functions.flush(&mut || None);
        });
    }

    /// Deletes the keys of slots, a few at a time, so that commands run in between. A slot that this node owns
    /// when its turn comes is left alone. While the deletion runs, none of the slots can be migrated to this
    /// node.
    pub(super) fn delete_keys(&'static self, slots: SlotSet) {
        self.runtime.spawn(self.deletion(slots, None));
    }

    /// Returns a future that deletes keys as [`Bus::delete_keys`] does; the deletion is registered before this
    /// function returns. If `of` names a failed migration, the log already has a record of its beginning, and
    /// gets one of its end.
    pub(super) fn deletion(
        &'static self,
        slots: SlotSet,
        of: Option<NodeId>,
    ) -> impl Future<Output = ()> + Send + 'static {
        self.moves.begin_deleting(&slots);
        async move {
            let config = self.service.config.load_full();
            let mut deletion = SlotDeletion {
                bus: self,
                name: of.unwrap_or_else(|| NodeId::from_random(rand::random())),
                slots: &slots,
                is_noted: of.is_some(),
            };
            for slot in slots.iter() {
                for db in 0..config.databases as usize {
                    let unlinks = config.lazyfree_lazy_server_del;
                    self.delete_keys_of(slot, db, unlinks, &mut deletion).await;
                }
            }
            if deletion.is_noted {
                self.await_records(&slots).await;
            }
            // Log the end before the slots may be migrated to this node again: the log must not have the
            // beginning of a migration before the end of an earlier one of the same slots.
            self.note_over(deletion.name, false);
            for name in self.moves.takers(&slots) {
                self.note_over(name, true);
            }
            self.moves.end_deleting(&slots);
        }
    }

    /// Waits until the log has the deletions in these slots, by locking each of their shards once: a thread
    /// appends its records before it releases the shard.
    async fn await_records(&self, slots: &SlotSet) {
        for shard in self.shards_of(slots) {
            let ticket = task::send(&self.service.shards, &[shard], |_, _| {});
            poll_fn(|cx| ticket.poll(cx).map(drop)).await;
        }
    }

    /// Returns the shards of these slots.
    pub(super) fn shards_of(&self, slots: &SlotSet) -> BTreeSet<u16> {
        let shards = slots
            .iter()
            .map(|slot| self.service.router.shard_of_slot(slot));
        shards.collect()
    }

    async fn delete_keys_of(
        &self,
        slot: u16,
        db: usize,
        unlinks: bool,
        deletion: &mut SlotDeletion<'_>,
    ) {
        let shard = self.service.router.shard_of_slot(slot);
        let published = &self.service.all_published[usize::from(shard)];
        while published.has_keys_in_slot(slot) {
            // While writes are paused for a failover, nothing may be appended to the replication stream.
            while self.service.pause.holds_stream(clock::unix_ms()) {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            deletion.note();
            let (say, deleted) = oneshot::channel();
            let mut say = Some(say);
            let routes = self.service.slots.get();
            let work = move |engines: &mut [&mut Engine], _: Now| {
                let stays = |map: &ClusterMap| {
                    map.owners[usize::from(slot)] == map.myself || !map.me().is_primary()
                };
                if routes.is_some_and(|routes| stays(&routes.load().map)) {
                    return;
                }
                let each = engines.iter_mut();
                let deleted =
                    each.map(|engine| engine.delete_of_slot(db, slot, DELETED_TOGETHER, unlinks));
                let deleted: usize = deleted.sum();
                if let Some(say) = say.take() {
                    let _ = say.send(deleted);
                }
            };
            self.service.shards.submit(Job::task(&[shard], work));
            if !deleted.await.is_ok_and(|count| count >= DELETED_TOGETHER) {
                return;
            }
        }
    }
}

/// A running deletion. Its record in the log makes the next start of this node, or the node that replaces it,
/// delete the remaining keys.
struct SlotDeletion<'a> {
    bus: &'static Bus,
    name: NodeId,
    slots: &'a SlotSet,
    is_noted: bool,
}

impl SlotDeletion<'_> {
    /// Records the deletion in the log, if not done yet.
    fn note(&mut self) {
        if !std::mem::replace(&mut self.is_noted, true) {
            self.bus.note(SlotNote {
                name: self.name,
                is_coming: false,
                slots: self.slots.clone(),
            });
        }
    }
}
