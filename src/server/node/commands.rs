//! The interface of the cluster bus for commands.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::saving::Proof;
use super::{Bus, NO_KIND};
use crate::telemetry::log;
use basalt_commands::client::shared::Shared;
use basalt_commands::cluster::change::ClusterChange;
use basalt_commands::cluster::map::ClusterMap;
use basalt_commands::cluster::node_id::NodeId;
use basalt_commands::cluster::output::LinkId;
use basalt_commands::cluster::packet::Message;
use basalt_commands::cluster::slot_note::SlotNote;
use basalt_commands::cluster::slot_set::SlotSet;
use basalt_commands::command::error::CommandError;
use basalt_commands::command::host::cluster::{
    Cluster, LinkDirection, LinkView, MoveAnswer, MoveStep, MovesInProgress, SlotMove, SlotTask,
    Traffic,
};
use basalt_commands::command::host::{Awaited, Done, Told};

impl Bus {
    /// Makes a change of the cluster state, and waits until it has taken effect in this server and, except for
    /// SETSLOT, nodes.conf is synced.
    ///
    /// SETSLOT is sent once or twice for each slot of a reshard, and redis-cli waits for each. The epoch in
    /// which a node takes its first slot is synced before the reply OK, as all promises to other nodes are;
    /// later changes in that epoch are synced within a tenth of a second. A node that crashes meanwhile leaves
    /// a slot open that `redis-cli --cluster fix` closes.
    pub(super) fn change_now(&'static self, change: ClusterChange) -> Result<String, String> {
        let is_set_slot = matches!(change, ClusterChange::SetSlot { .. });
        if let ClusterChange::SetSlot { slot, .. } = change {
            if let Some(error) = self.refuses_by_hand(slot) {
                return Err(error);
            }
            self.await_deletion(slot)?;
        }
        let unsaved = |why| format!("ERR error saving the cluster node config: {why}");
        // A change that cannot be saved in nodes.conf must not be made: other nodes would learn of it when the
        // disk has space again, after they have continued without this node. Atomically migrated slots are then
        // lost to the source, so before these changes the file is always test-written.
        let saver = &self.saver;
        saver.prove(self.wanted_proof(&change)).map_err(unsaved)?;
        let (answer, request) = self.call(|core, now, here| {
            let before = saver.last();
            let answer = core.machine.change(change, now, here);
            self.drain(core);
            let has_changed = saver.last() > before;
            let is_awaited = match is_set_slot {
                true => core.machine.is_promising(),
                false => has_changed,
            };
            (answer, (has_changed, is_awaited.then(|| saver.ask_now())))
        });
        match (&answer, request) {
            (Ok(_), (_, Some(request))) => saver.wait(request).map_err(unsaved)?,
            (Ok(_), (true, None)) => saver.wait_kept().map_err(unsaved)?,
            _ => {}
        }
        let place = self.effects.last();
        self.carry_out();
        self.effects.wait(place);
        answer
    }

    /// Returns the proof that a change requires beforehand that nodes.conf can be written.
    fn wanted_proof(&self, change: &ClusterChange) -> Proof {
        match change {
            ClusterChange::TakeSlots { .. } | ClusterChange::SaveConfig => Proof::New,
            ClusterChange::SetSlot { slot, to }
                if !self.core.lock().machine.takes_epoch(*slot, *to) =>
            {
                Proof::NoFailure
            }
            _ => Proof::Recent,
        }
    }
}

/// The cluster as seen by commands.
impl Cluster for &'static Bus {
    fn map(&self) -> Arc<ClusterMap> {
        Bus::map(self)
    }

    fn view(&self) -> ClusterMap {
        let mut map = ClusterMap::clone(&Bus::map(self));
        self.core.lock().machine.refresh(&mut map);
        map
    }

    fn change(&self, change: ClusterChange) -> Awaited {
        let bus = *self;
        let begin = move |done: Done| {
            let change = change.clone();
            bus.runtime
                .spawn_blocking(move || done(bus.change_now(change).map_err(CommandError::from)));
        };
        Awaited {
            begin: Arc::new(begin),
            told: Told::ByWork,
        }
    }

    fn unsaved(&self) -> Option<String> {
        self.core.lock().unsaved.clone()
    }

    fn publish(&self, channel: &[u8], payload: &[u8], is_shard: bool) {
        let message = Message {
            channel: channel.to_vec(),
            payload: payload.to_vec(),
        };
        if !self.outbox.put(message, is_shard) {
            log::warn_seldom(
                "cluster-bus-outbox",
                format_args!(
                    "A published message is not sent to other nodes: too many messages are waiting for the cluster \
                     bus"
                ),
            );
        }
    }

    fn wake(&self) {
        let (stopped_after, place) = self.call(|core, now, here| {
            core.machine.wake(now, here);
            self.drain(core);
            (core.machine.stopped_after(), self.effects.last())
        });
        self.note_look(stopped_after);
        self.effects.wait(place);
    }

    fn traffic(&self) -> Traffic {
        let core = self.core.lock();
        let (sent, received) = core.machine.all_messages();
        let memory = core
            .links
            .all()
            .map(|(_, figures)| (figures.memory_bytes + figures.begun_bytes) as u64);
        Traffic {
            sent,
            received,
            bytes_sent: self.volume.sent.load(Relaxed),
            bytes_received: self.volume.received.load(Relaxed),
            links_over_limit: self.over_limit.load(Relaxed),
            link_buffer_bytes: memory.sum(),
        }
    }

    fn links(&self) -> Vec<LinkView> {
        let core = self.core.lock();
        let views = core.links.all().filter_map(|(id, figures)| {
            let (node, is_inbound, created) = core.machine.link(id)?;
            Some(LinkView {
                direction: match is_inbound {
                    true => LinkDirection::From,
                    false => LinkDirection::To,
                },
                node: node?,
                created,
                reads: figures.is_open,
                writes: figures.has_waiting,
                send_buffer_allocated: figures.memory_bytes as u64,
                send_buffer_used: figures.memory_bytes as u64,
            })
        });
        views.collect()
    }

    fn kill_links(&self, node: NodeId, which: LinkDirection) -> bool {
        let bus = *self;
        bus.call(|core, _, _| {
            if core.machine.map().find(node.as_bytes()).is_none() {
                return false;
            }
            let links: Vec<LinkId> = core.links.all().map(|(id, _)| id).collect();
            for id in links {
                let Some((Some(other), is_inbound, _)) = core.machine.link(id) else {
                    continue;
                };
                let is_meant = match which {
                    LinkDirection::Any => true,
                    LinkDirection::From => is_inbound,
                    LinkDirection::To => !is_inbound,
                };
                if other == node && is_meant {
                    core.links.close(id);
                    core.machine.closed(id);
                }
            }
            true
        })
    }

    fn drop_packets(&self, kind: Option<u16>) {
        self.dropped_kind
            .store(kind.map_or(NO_KIND, u64::from), Relaxed);
    }

    fn close_links_on_drop(&self, closes: bool) {
        self.closes_on_drop.store(closes, Relaxed);
    }

    fn move_slots(&self, moves: Vec<(SlotSet, NodeId)>) -> Result<(), String> {
        self.begin_moves(moves)
    }

    fn cancel_moves(&self) -> bool {
        self.moves.cancel()
    }

    fn import_slots(&self, source: NodeId, slots: SlotSet) -> Result<NodeId, String> {
        self.ask_for(source, slots)
    }

    fn cancel_tasks(&self, id: Option<&[u8]>) -> usize {
        Bus::cancel_tasks(self, id)
    }

    fn slot_tasks(&self) -> Vec<SlotTask> {
        Bus::slot_tasks(self)
    }

    fn moves(&self) -> Vec<SlotMove> {
        self.moves.views()
    }

    fn moves_in_progress(&self) -> MovesInProgress {
        self.moves.in_progress()
    }

    fn handle_move_step(&self, client: &Arc<Shared>, step: MoveStep) -> Result<MoveAnswer, String> {
        Bus::handle_move_step(self, client, step)
    }

    fn replay_note(&self, note: SlotNote) {
        Bus::replay_note(self, note);
    }

    fn replay_over(&self, name: NodeId) {
        Bus::replay_over(self, name);
    }

    fn slot_notes(&self) -> Vec<SlotNote> {
        self.moves.notes()
    }

    fn load_slot_notes(&self, notes: Vec<SlotNote>) {
        // Ignore the notes of a snapshot that a running primary reloads (DEBUG RELOAD): its own are newer.
        let is_running = self.core.lock().has_ticked && Bus::map(self).me().is_primary();
        if !is_running {
            self.moves.replace_notes(notes);
        }
    }

    fn import_failed(&self, client: &Shared, reply: &[u8]) {
        self.moves.fail_import(client, reply);
    }

    fn import_ended(&self, client: &Shared) {
        self.end_import(client);
    }
}
