//! The interface of commands and telemetry to the part of replication that sends the stream to replicas.

use std::sync::Arc;
use std::task::Waker;

use crate::client::announced::Announced;
use crate::client::shared::Shared;
use crate::cluster::node_id::NodeId;
use crate::config::Config;

/// A request to follow this server's stream: by a full synchronization, or by continuing a stream that the replica
/// has received in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follow {
    /// The position to continue from: the ID of the stream, and the offset of the first byte that the replica lacks.
    /// None for SYNC, as the replica knows neither.
    pub resume: Option<(Vec<u8>, i64)>,
    /// Whether the snapshot is sent over another connection, which this one waits for.
    pub awaits_rdb_channel: bool,
}

/// The protocol by which a replica and its primary agree to send the snapshot over a separate connection, while the
/// stream is sent over the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// The dual channel of Valkey 8.
    Valkey,
    /// The rdb channel of Redis 8.
    Redis,
}

impl Words {
    /// Returns the protocol that both sides support and want; None for a single connection. With such a protocol, the
    /// snapshot is sent directly and never from a file.
    pub fn agreed(config: &Config, announced: &Announced) -> Option<Words> {
        let may = config.repl_diskless_sync
            && announced.rdb_client.is_none()
            && !announced.wants_snapshot_only;
        if may && config.repl_rdb_channel && announced.takes_rdb_channel {
            return Some(Words::Redis);
        }
        let is_dual = config.dual_channel_replication_enabled && announced.takes_dual_channel;
        (may && is_dual).then_some(Words::Valkey)
    }
}

/// The purpose of one of a replica's two connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaChannel {
    /// The connection over which the stream is sent.
    Main(Words),
    /// The connection over which the snapshot is sent.
    Rdb(Words),
}

/// The progress of a replica's synchronization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// The replica waits for a snapshot.
    Waits,
    /// The snapshot is being sent.
    Transfers,
    /// The stream is being sent, while the snapshot is being sent over another connection.
    Accompanies(Words),
    /// The replica has all data, and receives the stream.
    Online,
    /// The snapshot, which is all that the replica requested, has been sent.
    Transmitted,
}

impl ReplicaState {
    /// Returns the name in INFO.
    pub fn name(self) -> &'static str {
        match self {
            ReplicaState::Waits => "wait_bgsave",
            ReplicaState::Transfers => "send_bulk",
            ReplicaState::Accompanies(Words::Valkey) => "bg_transfer",
            ReplicaState::Accompanies(Words::Redis) => "send_bulk_and_stream",
            ReplicaState::Online => "online",
            ReplicaState::Transmitted => "rdb_transmitted",
        }
    }
}

/// A replica as its primary knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaFacts {
    /// The ID, as CLIENT ID returns it.
    pub client_id: u64,
    /// Address of the replica, or the one that it announced.
    pub ip: String,
    /// The port on which the replica listens; 0 if it did not announce one.
    pub port: u16,
    /// The purpose of the connection, while the replica has two.
    pub channel: Option<ReplicaChannel>,
    /// The progress of the replica's synchronization.
    pub state: ReplicaState,
    /// The offset up to which the replica has acknowledged the stream.
    pub offset: u64,
    /// Seconds since the replica was last heard from.
    pub lag_s: u64,
    /// Bytes of the stream not yet sent to the replica.
    pub behind_bytes: u64,
    /// Whether the replica knows `CLUSTER FAILOVER FORCE REPLICAID`, because it is a basalt or Valkey 9.
    pub knows_replica_id: bool,
    /// The ID of the replica's node in the cluster, if it announced one.
    pub node: Option<NodeId>,
}

/// The state of this server's stream at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamFacts {
    /// ID of the stream.
    pub id: String,
    /// The ID of the previous stream, which this one continues, and the first offset that is not part of the previous
    /// one.
    pub previous: Option<(String, u64)>,
    /// Offset of the newest byte.
    pub offset: u64,
    /// Whether the newest bytes of the stream are kept for replicas that reconnect (the backlog).
    pub is_kept: bool,
    /// Offset of the first kept byte.
    pub first: u64,
    /// Number of kept bytes.
    pub held_bytes: u64,
}

/// Number of replicas that have acknowledged a position of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// Replicas that have received the position.
    pub received: u64,
    /// Replicas that have synced the position to disk.
    pub synced: u64,
}

/// The part of replication that sends the stream, see the module.
pub trait HostPrimary: Send + Sync {
    /// Returns the current state of the stream.
    fn stream(&self) -> StreamFacts;
    /// Whether the stream with this ID can continue for a replica at an offset.
    fn goes_on(&self, client: &Arc<Shared>, id: &[u8], offset: i64) -> bool;
    /// Returns the number of replicas whose snapshot has an offset, and that have not opened the connection for the
    /// stream yet.
    fn awaited(&self) -> usize;
    /// Returns all replicas, in the order in which they connected.
    fn replicas(&self) -> Vec<ReplicaFacts>;
    /// Counts the replicas that have acknowledged what was appended to the log before a position. The waiting client
    /// is woken when that may have changed.
    fn acknowledged(&self, position: u64, waiter: Option<&Arc<Shared>>) -> Acknowledged;
    /// Registers a task to be woken when a replica acknowledges more, connects or disconnects.
    fn wake_at_acknowledgement(&self, waker: &Waker);
    /// Whether fewer replicas are connected than `min-replicas-to-write` demands.
    fn lacks_replicas(&self, config: &Config) -> bool;
    /// Asks replicas to acknowledge at once what was written before a position of the log (None: all that has been
    /// written so far), unless they have already been asked.
    fn ask_for_acknowledgements(&self, written: Option<u64>);
    /// Appends to the stream a command that no client ran here (DEBUG REPLICATE); returns the log position after it.
    fn replicate(&self, arguments: &[&[u8]]) -> u64;
    /// Returns the replicas that have not acknowledged everything written.
    fn lagging(&self) -> Vec<ReplicaFacts>;
    /// Starts a stream that no replica knows (DEBUG CHANGE-REPL-ID).
    fn change_id(&self);
}
