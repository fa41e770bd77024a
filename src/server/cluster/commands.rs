//! What commands may ask of the bus.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Bus, Core, NO_KIND};
use crate::client::shared::Shared;
use crate::cluster::change::Change;
use crate::cluster::map::ClusterMap;
use crate::cluster::node_id::NodeId;
use crate::cluster::output::LinkId;
use crate::cluster::packet::Message;
use crate::cluster::slot_set::SlotSet;
use crate::command::error::CommandError;
use crate::command::host::cluster::{
    Cluster, LinkDirection, LinkView, MoveAnswer, MoveWord, MovesInProgress, SlotMove, SlotTask,
    Traffic,
};
use crate::command::host::{Awaited, Done, Told};
use crate::telemetry::log;

impl Bus {
    /// Makes a change and waits until it is on the disk and felt everywhere.
    pub(super) fn change_now(&'static self, change: Change) -> Result<String, String> {
        if let Change::SetSlot { slot, .. } = change {
            if let Some(error) = self.refuses_by_hand(slot) {
                return Err(error);
            }
            self.await_deletion(slot)?;
        }
        let unsaved = |core: &Core| {
            let why = core.unsaved.as_ref();
            why.map(|why| format!("ERR error saving the cluster node config: {why}"))
        };
        let (answer, place) = self.call(|core, now, here| {
            // What could not be kept must not come about either: other nodes would hear of it once there is room, after
            // they have gone on without this one.
            self.save(core);
            if let Some(error) = unsaved(core) {
                return (Err(error), self.effects.last());
            }
            let answer = core.machine.change(change, now, here);
            self.drain(core);
            let answer = match unsaved(core) {
                Some(error) if answer.is_ok() => Err(error),
                _ => answer,
            };
            (answer, self.effects.last())
        });
        self.effects.wait(place);
        answer
    }
}

/// What commands see of the bus.
impl Cluster for &'static Bus {
    fn map(&self) -> Arc<ClusterMap> {
        Bus::map(self)
    }

    fn view(&self) -> ClusterMap {
        let mut map = ClusterMap::clone(&Bus::map(self));
        self.core.lock().machine.refresh(&mut map);
        map
    }

    fn change(&self, change: Change) -> Awaited {
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

    fn publish(&self, channel: &[u8], payload: &[u8], is_shard: bool) {
        let message = Message {
            channel: channel.to_vec(),
            payload: payload.to_vec(),
        };
        if !self.outbox.put(message, is_shard) {
            log::warn_seldom(
                "cluster-bus-outbox",
                format_args!(
                    "A published message does not go to other nodes: too many wait for the cluster bus"
                ),
            );
        }
    }

    fn traffic(&self) -> Traffic {
        let core = self.core.lock();
        let (sent, received) = core.machine.all_messages();
        let memory = core
            .links
            .all()
            .map(|(_, figures)| figures.memory_bytes as u64);
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

    fn hear_move(&self, client: &Arc<Shared>, word: MoveWord) -> Result<MoveAnswer, String> {
        self.hear(client, word)
    }

    fn replay_move(&self, name: NodeId, slots: Option<SlotSet>) {
        self.moves.note_unfinished(name, slots);
    }

    fn import_failed(&self, client: &Shared, reply: &[u8]) {
        self.moves.fail_import(client, reply);
    }

    fn import_ended(&self, client: &Shared) {
        self.end_import(client);
    }
}
