//! What commands, and telemetry, may ask of the half of replication that sends the stream.

use std::sync::Arc;
use std::task::Waker;

use crate::client::announced::Announced;
use crate::client::shared::Shared;
use crate::config::Config;

/// A full synchronization, or the rest of a stream that the replica has the beginning of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follow {
    /// Where the replica wants to go on: the id of the stream, and the offset of the first byte that it does not have.
    /// None: SYNC, of replicas that know neither.
    pub resume: Option<(Vec<u8>, i64)>,
    /// The snapshot goes through another connection, for which this one waits.
    pub awaits_rdb_channel: bool,
}

/// In whose words a replica and its primary agree that the snapshot goes through a connection of its own, while the
/// stream goes through the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// The dual channel of Valkey 8.
    Valkey,
    /// The rdb channel of Redis 8.
    Redis,
}

impl Words {
    /// What both sides can and want, if anything. A snapshot for that is never a file.
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

/// What a connection of a replica is for that has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// The stream.
    Main(Words),
    /// The snapshot.
    Rdb(Words),
}

/// How far the synchronization of a replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// The replica waits for a snapshot.
    Waits,
    /// The snapshot is being sent.
    Transfers,
    /// The stream is being sent, and the snapshot through another connection.
    Accompanies(Words),
    /// The replica has everything, and the stream follows.
    Online,
    /// The replica has the snapshot, which is all that it asked for.
    Transmitted,
}

impl ReplicaState {
    /// As INFO says.
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
    /// As CLIENT ID says.
    pub client_id: u64,
    /// Address of the replica, or the one that it wants to be known by.
    pub ip: String,
    /// The port on which it listens; 0 if it did not say.
    pub port: u16,
    /// What the connection is for, while the replica has two.
    pub channel: Option<Channel>,
    /// How far its synchronization is.
    pub state: ReplicaState,
    /// The offset up to which it has the stream, as it says.
    pub offset: u64,
    /// Seconds since it was last heard of.
    pub lag_s: u64,
    /// Bytes of the stream that were not sent to it.
    pub behind_bytes: u64,
}

/// The stream of this server, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamFacts {
    /// Id of the stream.
    pub id: String,
    /// The id of the stream that it goes on, and the first offset that is not part of that one.
    pub previous: Option<(String, u64)>,
    /// Offset of the newest byte.
    pub offset: u64,
    /// Whether the newest bytes are kept.
    pub is_kept: bool,
    /// Offset of the first of them.
    pub first: u64,
    /// How many there are.
    pub held_bytes: u64,
}

/// How many replicas have something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// In memory.
    pub received: u64,
    /// On their disks.
    pub synced: u64,
}

/// See the module.
pub trait Primary: Send + Sync {
    /// The stream as it is now.
    fn stream(&self) -> StreamFacts;
    /// Whether the stream can go on for a replica from an offset, of the stream with an id.
    fn goes_on(&self, client: &Arc<Shared>, id: &[u8], offset: i64) -> bool;
    /// How many replicas have the offset of their snapshot, and no connection for the stream as yet.
    fn awaited(&self) -> usize;
    /// All replicas, in the order in which they connected.
    fn replicas(&self) -> Vec<ReplicaFacts>;
    /// How many replicas have what was appended to the log before a position. The client is nudged when that may have
    /// changed.
    fn acknowledged(&self, position: u64, waiter: Option<&Arc<Shared>>) -> Acknowledged;
    /// Has a task woken when a replica has more than before, comes or goes.
    fn wake_at_acknowledgement(&self, waker: &Waker);
    /// Whether fewer replicas follow than writes ask for.
    fn lacks_replicas(&self, config: &Config) -> bool;
    /// Has replicas say at once whether they have what was written before a position of the log, or all that was
    /// written by now, unless they have been asked for it already.
    fn ask_for_acknowledgements(&self, written: Option<u64>);
    /// Puts a command into the stream that no client ran here (DEBUG REPLICATE); the position of the log behind it.
    fn replicate(&self, arguments: &[&[u8]]) -> u64;
    /// Replicas that do not have, as far as they said, all that was written.
    fn lagging(&self) -> Vec<ReplicaFacts>;
    /// Begins a stream that no replica knows (DEBUG CHANGE-REPL-ID).
    fn change_id(&self);
}
