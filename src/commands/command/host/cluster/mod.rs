//! The interface of commands to the cluster that this server is a node of, and the slot map that routing uses.
//!
//! [`Cluster`] is the slow half, whose calls may take locks. [`SlotMap`] is what each request reads: one bit per slot
//! says that this node serves it without further checks ([`Routes::is_plain`]); everything else is decided by
//! [`route::decide`](crate::cluster::route::decide).

use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};

use arc_swap::{ArcSwap, Guard};

use crate::client::shared::Shared;
use crate::cluster::Millis;
use crate::cluster::change::ClusterChange;
use crate::cluster::kind::{KINDS, Kind};
use crate::cluster::map::{ClusterMap, NodeView};
use crate::cluster::node_id::NodeId;
use crate::cluster::route::{DownPolicy, Refusal, RoutingFlags, SlotOf};
use crate::cluster::slot_note::SlotNote;
use crate::cluster::slot_set::SlotSet;
use crate::command::host::Awaited;
use crate::config::Config;
use crate::config::values::EndpointType;

/// The cluster, as the CLUSTER commands reach it; the composition root implements it.
pub trait Cluster: Send + Sync {
    /// Returns the cluster map that requests are routed by.
    fn map(&self) -> Arc<ClusterMap>;
    /// Like [`Cluster::map`], with the current times of pings and pongs, links, offsets and failures.
    fn view(&self) -> ClusterMap;
    /// Changes the cluster, on a thread that may wait for the disk. The result is the text of the reply, such as
    /// `OK`, or the whole text of an error, such as `ERR Slot 1 is already busy`. No shard may be locked.
    fn change(&self, change: ClusterChange) -> Awaited;
    /// Sends a message that was published here to all other nodes, or (`is_shard`) only to those of this shard.
    fn publish(&self, channel: &[u8], payload: &[u8], is_shard: bool);
    /// Returns the reason why nodes.conf cannot be written, if so.
    fn unsaved(&self) -> Option<String>;
    /// Reports that the bus is late ([`SlotMap::is_late`]): the cluster checks whether this process was stopped,
    /// before anything is decided by a map that may be out of date. No shard may be locked.
    fn wake(&self);
    /// Returns the traffic over the bus so far.
    fn traffic(&self) -> Traffic;
    /// Returns the links to other nodes.
    fn links(&self) -> Vec<LinkView>;
    /// DEBUG CLUSTERLINK KILL: closes links to a node. Returns whether the node is known.
    fn kill_links(&self, node: NodeId, which: LinkDirection) -> bool;
    /// DEBUG DROP-CLUSTER-PACKET-FILTER: drops incoming packets of this type; None: drops no more packets.
    fn drop_packets(&self, kind: Option<u16>);
    /// DEBUG CLOSE-CLUSTER-LINK-ON-PACKET-DROP: whether a dropped packet closes the link that it came over.
    fn close_links_on_drop(&self, closes: bool);
    /// CLUSTER MIGRATESLOTS: starts to move slots of this node to other nodes. The error is the whole text of the error
    /// reply.
    fn move_slots(&self, moves: Vec<(SlotSet, NodeId)>) -> Result<(), String>;
    /// CLUSTER CANCELSLOTMIGRATIONS: cancels all moves of slots from this node. Returns whether there were any.
    fn cancel_moves(&self) -> bool;
    /// Asks the owner of these slots to move them to this node. Returns the name of the task, or the whole text of the
    /// error reply. The move begins later.
    fn import_slots(&self, source: NodeId, slots: SlotSet) -> Result<NodeId, String>;
    /// Cancels the move of this name in CLUSTER MIGRATION, or all moves from and to this node. Returns the number of
    /// cancelled moves.
    fn cancel_tasks(&self, id: Option<&[u8]>) -> usize;
    /// Returns the moves as [`Cluster::moves`] does, with their names in CLUSTER MIGRATION, and the moves to this
    /// node that were requested and have not begun.
    fn slot_tasks(&self) -> Vec<SlotTask>;
    /// Returns the moves from and to this node that are in progress, and the last ones that have ended, the latest
    /// first.
    fn moves(&self) -> Vec<SlotMove>;
    /// Returns the number of moves in progress, and the bytes of their buffers.
    fn moves_in_progress(&self) -> MovesInProgress;
    /// CLUSTER SYNCSLOTS: handles a step of a node that moves slots to this node over a client's connection. The error
    /// is the whole text of the error reply. No shard may be locked: the last step transfers the slots, which waits for
    /// the disk.
    fn handle_move_step(&self, client: &Arc<Shared>, step: MoveStep) -> Result<MoveAnswer, String>;
    /// Handles a note, from the log or a primary, that keys of slots are being moved to or from the server that wrote
    /// the note. Unless a later note says that the move is over, these keys are deleted once this server is a primary
    /// that does not own the slots.
    fn replay_note(&self, note: SlotNote);
    /// Handles a note, from the log or a primary, that the move of this name is over.
    fn replay_over(&self, name: NodeId);
    /// Returns the notes of moves that are not over, for a snapshot. Locks no shard.
    fn slot_notes(&self) -> Vec<SlotNote>;
    /// Replaces the notes by those of a snapshot that was loaded in place of all data.
    fn load_slot_notes(&self, notes: Vec<SlotNote>);
    /// Handles a failed command of a node that moves slots to this node, with its error reply: the move ends.
    fn import_failed(&self, client: &Shared, reply: &[u8]);
    /// Handles the end of the connection of a node that moves slots to this node. Keys received for slots that this
    /// node does not own are deleted.
    fn import_ended(&self, client: &Shared);
}

/// A step (word of CLUSTER SYNCSLOTS) of a node that moves slots to this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveStep {
    /// A move begins over this connection.
    Establish {
        /// The node that owns the slots.
        source: NodeId,
        /// Name of the move.
        name: NodeId,
        /// The slots to be moved.
        slots: SlotSet,
    },
    /// The other node is alive.
    Ack,
    /// All keys have been sent; changes to them follow.
    SnapshotEnd,
    /// Writes are paused, and all changes have been sent.
    Paused,
    /// The slots may be taken over by this node.
    Granted,
}

impl MoveStep {
    /// Returns the word as sent.
    pub fn name(&self) -> &'static str {
        match self {
            MoveStep::Establish { .. } => "ESTABLISH",
            MoveStep::Ack => "ACK",
            MoveStep::SnapshotEnd => "SNAPSHOT-EOF",
            MoveStep::Paused => "PAUSED",
            MoveStep::Granted => "FAILOVER-GRANTED",
        }
    }
}

/// The reply to a [`MoveStep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveAnswer {
    /// `OK`.
    Agreed,
    /// The reply is `CLUSTER SYNCSLOTS` with this word.
    Word(&'static str),
    /// No reply: the move has ended, and the connection is closed.
    Done,
}

/// A move of slots, as CLUSTER GETSLOTMIGRATIONS shows it. Times are in Unix seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotMove {
    /// Name of the move.
    pub name: NodeId,
    /// Whether the slots leave this node.
    pub is_export: bool,
    /// The slots to be moved.
    pub slots: SlotSet,
    /// The node that had the slots.
    pub source: NodeId,
    /// The node that receives the slots.
    pub target: NodeId,
    /// When the move began.
    pub created_s: u64,
    /// When its state last changed.
    pub updated_s: u64,
    /// When the other node was last heard from.
    pub acked_s: u64,
    /// Progress of the move, in Valkey's words.
    pub state: &'static str,
    /// The reason why the move failed; empty if it did not.
    pub message: String,
    /// Bytes of changes not sent yet.
    pub waiting_bytes: u64,
    /// Milliseconds for which writes were paused during the handover, 0 if not known.
    pub paused_ms: u64,
}

/// A move of slots, as CLUSTER MIGRATION shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotTask {
    /// Name of the task: that of the move, unless this node has requested the move itself.
    pub id: NodeId,
    /// The move and its progress.
    pub of: SlotMove,
}

/// Moves of slots that are under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovesInProgress {
    /// Moves from this node, including those that wait for their turn.
    pub exports: u64,
    /// Moves to this node.
    pub imports: u64,
    /// Bytes buffered to be sent.
    pub export_buffer_bytes: u64,
    /// Bytes used by connections over which slots arrive.
    pub import_buffer_bytes: u64,
}

/// Kinds of messages, as the bus numbers them and CLUSTER INFO names them.
pub const MESSAGE_KINDS: [&str; KINDS] = Kind::NAMES;

/// Traffic over the bus since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages sent, by [`MESSAGE_KINDS`].
    pub sent: [u64; MESSAGE_KINDS.len()],
    /// Messages received, by [`MESSAGE_KINDS`].
    pub received: [u64; MESSAGE_KINDS.len()],
    /// Bytes sent over the bus.
    pub bytes_sent: u64,
    /// Bytes received over the bus.
    pub bytes_received: u64,
    /// Links that were closed because their send queues were too long.
    pub links_over_limit: u64,
    /// Bytes of the buffers of all links.
    pub link_buffer_bytes: u64,
}

impl Traffic {
    /// Sums up the messages of all kinds.
    #[must_use]
    pub fn sum(counts: &[u64; MESSAGE_KINDS.len()]) -> u64 {
        counts.iter().sum()
    }
}

/// The direction in which a link was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkDirection {
    /// Opened by this node.
    To,
    /// Opened by the other node.
    From,
    /// Opened by either node.
    Any,
}

/// A link to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkView {
    /// Direction: [`LinkDirection::To`] or [`LinkDirection::From`].
    pub direction: LinkDirection,
    /// ID of the node at the other end.
    pub node: NodeId,
    /// Time when it was opened, in Unix milliseconds.
    pub created: Millis,
    /// Whether the link is open for reading.
    pub reads: bool,
    /// Whether data are waiting to be sent.
    pub writes: bool,
    /// Capacity of the send buffer, in bytes.
    pub send_buffer_allocated: u64,
    /// Bytes of the send buffer that are in use.
    pub send_buffer_used: u64,
}

/// A cluster map, prepared for routing requests.
pub struct Routes {
    /// The cluster map.
    pub map: Arc<ClusterMap>,
    /// Slots that this node serves without further checks: it owns them, they are not being moved, and the cluster is
    /// up.
    plain: SlotSet,
    /// The version of the map; each one is larger than those before.
    pub version: u64,
}

impl Routes {
    fn new(map: Arc<ClusterMap>, version: u64) -> Routes {
        let is_plain = |slot: &u16| {
            map.is_up
                && map.owners[usize::from(*slot)] == map.myself
                && !map.migrating.contains_key(slot)
                && !map.importing.contains_key(slot)
        };
        let plain = map.me().slots.iter().filter(is_plain).collect();
        Routes {
            map,
            plain,
            version,
        }
    }

    /// Whether a request with keys of this slot only, or without keys, runs here without further checks.
    #[inline]
    pub fn is_plain(&self, slot: SlotOf) -> bool {
        slot.is_none() || self.plain.contains_at(slot.index())
    }

    /// Returns the error reply, without the leading `-`, to a client that must send its request to another node.
    #[must_use]
    pub fn refusal_text(&self, refusal: Refusal, routing: RoutingFlags, config: &Config) -> String {
        let endpoint_type = config.cluster_preferred_endpoint_type;
        let (word, slot, node) = match refusal {
            Refusal::Moved(slot, node) => ("MOVED", slot, node),
            Refusal::Ask(slot, node) => ("ASK", slot, node),
            other => return text_of(other).to_owned(),
        };
        let node = &self.map.nodes[usize::from(node)];
        // Clients that must not learn an endpoint continue with the address that they have.
        let place = endpoint(node, endpoint_type).unwrap_or("");
        let port = node.client_port(routing.any(RoutingFlags::TLS));
        format!("{word} {slot} {place}:{port}")
    }
}

fn text_of(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::CrossSlot => "CROSSSLOT Keys in request don't hash to the same slot",
        Refusal::TryAgain => "TRYAGAIN Multiple keys request during rehashing of slot",
        Refusal::Down => "CLUSTERDOWN The cluster is down",
        Refusal::DownForWrites => "CLUSTERDOWN The cluster is down and only accepts read commands",
        Refusal::Unbound => "CLUSTERDOWN Hash slot not served",
        Refusal::Moved(..) => "MOVED",
        Refusal::Ask(..) => "ASK",
    }
}

/// Returns which requests are served while the cluster is down.
pub fn down_policy(config: &Config) -> DownPolicy {
    DownPolicy {
        reads: config.cluster_allow_reads_when_down,
        channels: config.cluster_allow_pubsubshard_when_down,
    }
}

/// Returns the host of a node that clients are given to connect to; None: clients use the address that they already
/// know.
pub fn endpoint(node: &NodeView, wanted: EndpointType) -> Option<&str> {
    match wanted {
        EndpointType::Ip => Some(&node.ip),
        EndpointType::Hostname if node.hostname.is_empty() => Some("?"),
        EndpointType::Hostname => Some(&node.hostname),
        EndpointType::UnknownEndpoint => None,
    }
}

/// The current map, for routing requests.
///
/// A request is routed by one version of the map and may run a little later. Under the shard's lock the version is
/// checked again ([`SlotMap::version`], a relaxed load): a change of the map is followed by a pass through each
/// shard, so that every thread that locks the shard from then on sees the new version.
pub struct SlotMap {
    routes: ArcSwap<Routes>,
    version: AtomicU64,
    /// Unix milliseconds by which the bus will have checked the other nodes again, unless this process is stopped.
    looks_by_ms: AtomicU64,
}

impl SlotMap {
    /// Creates a slot map with the first cluster map.
    pub fn new(map: Arc<ClusterMap>) -> SlotMap {
        SlotMap {
            routes: ArcSwap::from_pointee(Routes::new(map, 1)),
            version: AtomicU64::new(1),
            looks_by_ms: AtomicU64::new(u64::MAX),
        }
    }

    /// Whether the bus has not checked the other nodes for longer than the node timeout, so that they may have
    /// promoted another node in place of this one.
    #[inline]
    pub fn is_late(&self, now_ms: u64) -> bool {
        now_ms > self.looks_by_ms.load(Relaxed)
    }

    /// Records that the bus has checked the other nodes, and will check them again before this time.
    pub fn note_look(&self, next_by_ms: u64) {
        self.looks_by_ms.store(next_by_ms, Relaxed);
    }

    /// Returns the current map.
    #[inline]
    pub fn load(&self) -> Guard<Arc<Routes>> {
        self.routes.load()
    }

    /// Returns the current map, as a reference to keep.
    pub fn load_full(&self) -> Arc<Routes> {
        self.routes.load_full()
    }

    /// Returns the version of the current map.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    /// Replaces the map. There is one caller at a time.
    pub fn store(&self, map: Arc<ClusterMap>) {
        let version = self.version() + 1;
        self.routes.store(Arc::new(Routes::new(map, version)));
        // Stored after the map: a reader of the new version finds this map, or a later one.
        self.version.store(version, Release);
    }
}

#[cfg(test)]
pub(crate) mod tests;
