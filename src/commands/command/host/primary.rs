//! The interface of commands and telemetry to the half of replication that sends the stream.

use std::sync::Arc;
use std::task::Waker;

use crate::client::announced::Announced;
use crate::client::shared::Shared;
use crate::config::Config;

/// A full synchronization, or the continuation of a stream whose beginning the replica has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follow {
    /// Position to continue from: the ID of the stream, and the offset of the first byte that the replica lacks.
    /// None: SYNC, of replicas that know neither.
    pub resume: Option<(Vec<u8>, i64)>,
    /// The snapshot is sent over another connection, for which this one waits.
    pub awaits_rdb_channel: bool,
}

/// The protocol in which a replica and its primary agree that the snapshot is sent over a connection of its own,
/// while the stream is sent over the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// The dual channel of Valkey 8.
    Valkey,
    /// The rdb channel of Redis 8.
    Redis,
}

impl Words {
    /// Returns the protocol that both sides support and want, if any. A snapshot for it is never a file.
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
    /// The stream.
    Main(Words),
    /// The snapshot.
    Rdb(Words),
}

/// The progress of a replica's synchronization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// The replica waits for a snapshot.
    Waits,
    /// The snapshot is being sent.
    Transfers,
    /// The stream is being sent, and the snapshot over another connection.
    Accompanies(Words),
    /// The replica has everything, and receives the stream.
    Online,
    /// The replica has the snapshot, which is all that it requested.
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
    /// The port on which it listens; 0 if it did not announce one.
    pub port: u16,
    /// The purpose of the connection, while the replica has two.
    pub channel: Option<ReplicaChannel>,
    /// The progress of its synchronization.
    pub state: ReplicaState,
    /// The offset up to which it has acknowledged the stream.
    pub offset: u64,
    /// Seconds since it was last heard from.
    pub lag_s: u64,
    /// Bytes of the stream not yet sent to it.
    pub behind_bytes: u64,
}

/// The state of this server's stream at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamFacts {
    /// ID of the stream.
    pub id: String,
    /// The ID of the stream that it continues, and the first offset that is not part of that one.
    pub previous: Option<(String, u64)>,
    /// Offset of the newest byte.
    pub offset: u64,
    /// Whether the newest bytes are kept.
    pub is_kept: bool,
    /// Offset of the first kept byte.
    pub first: u64,
    /// Number of kept bytes.
    pub held_bytes: u64,
}

/// Number of replicas that have acknowledged something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// In memory.
    pub received: u64,
    /// On their disks.
    pub synced: u64,
}

/// The half of replication that sends the stream, see the module.
pub trait HostPrimary: Send + Sync {
    /// Returns the current state of the stream.
    fn stream(&self) -> StreamFacts;
    /// Whether the stream can continue for a replica from an offset, of the stream with this ID.
    fn goes_on(&self, client: &Arc<Shared>, id: &[u8], offset: i64) -> bool;
    /// Returns the number of replicas that have the offset of their snapshot, and no connection for the stream yet.
    fn awaited(&self) -> usize;
    /// Returns all replicas, in the order in which they connected.
    fn replicas(&self) -> Vec<ReplicaFacts>;
    /// Counts the replicas that have what was appended to the log before a position. The client is nudged when that
    /// may have changed.
    fn acknowledged(&self, position: u64, waiter: Option<&Arc<Shared>>) -> Acknowledged;
    /// Registers a task to be woken when a replica acknowledges more, connects or disconnects.
    fn wake_at_acknowledgement(&self, waker: &Waker);
    /// Whether fewer replicas are connected than writes demand.
    fn lacks_replicas(&self, config: &Config) -> bool;
    /// Asks replicas to acknowledge at once what was written before a position of the log, or all that has been
    /// written so far, unless they have already been asked.
    fn ask_for_acknowledgements(&self, written: Option<u64>);
    /// Appends to the stream a command that no client ran here (DEBUG REPLICATE); returns the log position after it.
    fn replicate(&self, arguments: &[&[u8]]) -> u64;
    /// Returns the replicas that have not acknowledged everything written.
    fn lagging(&self) -> Vec<ReplicaFacts>;
    /// Starts a stream that no replica knows (DEBUG CHANGE-REPL-ID).
    fn change_id(&self);
}
