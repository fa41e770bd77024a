//! A connected replica, as seen by its primary.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use super::pair::Seat;
use crate::telemetry::clock;
use basalt_commands::client::announced::Announced;
use basalt_commands::client::shared::Shared;
use basalt_commands::command::host::primary::{ReplicaChannel, ReplicaFacts, ReplicaState, Words};

const STATES: [ReplicaState; 6] = [
    ReplicaState::Waits,
    ReplicaState::Transfers,
    ReplicaState::Accompanies(Words::Valkey),
    ReplicaState::Accompanies(Words::Redis),
    ReplicaState::Online,
    ReplicaState::Transmitted,
];

/// State of a connected replica.
pub(super) struct ConnectedReplica {
    /// The shared state of the replica's connection.
    pub shared: Arc<Shared>,
    /// Properties that the replica announced (REPLCONF).
    pub announced: Announced,
    /// Whether the replica never sends acknowledgements, because it used SYNC.
    pub is_mute: bool,
    /// The connection's role, if it is one of a replica's two connections.
    pub seat: Option<Seat>,
    state: AtomicU8,
    acknowledged: AtomicU64,
    synced: AtomicU64,
    /// Whether the replica has acknowledged anything, and so has loaded its snapshot.
    has_acknowledged: AtomicBool,
    heard_ms: AtomicU64,
    behind_bytes: AtomicU64,
}

impl ConnectedReplica {
    pub(super) fn new(shared: &Arc<Shared>, is_mute: bool, seat: Option<Seat>) -> ConnectedReplica {
        ConnectedReplica {
            shared: Arc::clone(shared),
            announced: shared.announced(),
            is_mute,
            seat,
            state: AtomicU8::new(0),
            acknowledged: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            has_acknowledged: AtomicBool::new(false),
            heard_ms: AtomicU64::new(clock::unix_ms()),
            behind_bytes: AtomicU64::new(0),
        }
    }

    /// Returns the IP address that the replica announced, or that of the connection.
    pub(super) fn ip(&self) -> &str {
        if !self.announced.ip.is_empty() {
            return &self.announced.ip;
        }
        let address = &*self.shared.address;
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Returns the name of the replica (address and port), for messages.
    pub(super) fn name(&self) -> String {
        match self.announced.port {
            0 => format!("{}:<unknown-replica-port>", self.ip()),
            port => format!("{}:{port}", self.ip()),
        }
    }

    pub(super) fn state(&self) -> ReplicaState {
        STATES[usize::from(self.state.load(Relaxed))]
    }

    pub(super) fn set_state(&self, state: ReplicaState) {
        let at = STATES.iter().position(|known| *known == state);
        self.state.store(at.unwrap_or(0) as u8, Relaxed);
    }

    /// Returns the role of the connection, if the replica has two connections.
    pub(super) fn channel(&self) -> Option<ReplicaChannel> {
        let seat = self.seat.as_ref().filter(|_| !self.is_online());
        seat.map(|seat| seat.channel)
    }

    /// True if the connection only gets a snapshot, and the stream goes to another connection or is not wanted.
    pub(super) fn is_for_snapshot(&self) -> bool {
        self.announced.wants_snapshot_only || self.seat.as_ref().is_some_and(Seat::is_rdb)
    }

    pub(super) fn is_online(&self) -> bool {
        self.state() == ReplicaState::Online
    }

    /// True if the replica follows the stream and has acknowledged some of it.
    pub(super) fn is_in_sync(&self) -> bool {
        self.is_online() && self.has_acknowledged.load(Relaxed)
    }

    /// Records that the replica has sent something.
    pub(super) fn note_heard(&self) {
        let now_ms = clock::unix_ms();
        self.heard_ms.store(now_ms, Relaxed);
        self.shared.active_ms.store(now_ms, Relaxed);
    }

    /// Returns the milliseconds since the replica last sent something.
    pub(super) fn silent_ms(&self) -> u64 {
        clock::unix_ms().saturating_sub(self.heard_ms.load(Relaxed))
    }

    /// Records the replica's acknowledged offsets, received and synced to disk; returns whether one of them has
    /// advanced, or is the first.
    pub(super) fn acknowledge(&self, received: u64, synced: Option<u64>) -> bool {
        let mut is_more = self.acknowledged.fetch_max(received, Relaxed) < received;
        is_more |= !self.has_acknowledged.swap(true, Relaxed);
        if let Some(synced) = synced {
            is_more |= self.synced.fetch_max(synced, Relaxed) < synced;
        }
        is_more
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Relaxed)
    }

    pub(super) fn synced(&self) -> u64 {
        self.synced.load(Relaxed)
    }

    /// Sets how many bytes of the stream are waiting to be sent to the replica.
    pub(super) fn note_behind(&self, bytes: u64) {
        self.behind_bytes.store(bytes, Relaxed);
        self.shared.output_bytes.store(bytes as usize, Relaxed);
    }

    pub(super) fn facts(&self) -> ReplicaFacts {
        let lag_s = match self.state() {
            ReplicaState::Online if !self.is_mute => self.silent_ms() / 1_000,
            _ => 0,
        };
        ReplicaFacts {
            client_id: self.shared.id,
            ip: self.ip().to_owned(),
            port: self.announced.port,
            channel: self.channel(),
            state: self.state(),
            offset: self.acknowledged(),
            lag_s,
            behind_bytes: self.behind_bytes.load(Relaxed),
            knows_replica_id: self.announced.knows_replica_id(),
            node: self.announced.node,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_has_never_shrinks_and_its_name_is_what_it_wants_to_be_known_by() {
        let shared = Shared::new(1, "[::1]:5000".into(), "[::1]:6379".into(), 0, false, 0);
        let shared = Arc::new(shared);
        let peer = ConnectedReplica::new(&shared, false, None);
        assert_eq!((peer.ip(), peer.state()), ("::1", ReplicaState::Waits));
        assert!(peer.acknowledge(10, None) && !peer.acknowledge(9, None));
        assert!(peer.acknowledge(10, Some(7)) && peer.synced() == 7);
        peer.set_state(ReplicaState::Online);
        assert!(peer.is_online() && peer.acknowledged() == 10);
        let said = Announced {
            ip: "a.host".into(),
            port: 7000,
            ..Announced::default()
        };
        shared.set_labels(|labels| labels.announced = Some(Box::new(said)));
        assert_eq!(
            ConnectedReplica::new(&shared, true, None).name(),
            "a.host:7000"
        );
    }
}
