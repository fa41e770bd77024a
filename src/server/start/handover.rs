//! Hands the slots of a cluster's primary over to a replica before the server stops (SHUTDOWN FAILOVER), so that
//! clients are redirected instead of waiting until the other nodes notice that the primary is gone.
//!
//! Writes are paused, and a replica that has acknowledged everything is told over the replication stream to take over:
//! `CLUSTER FAILOVER FORCE REPLICAID id`, as Valkey 9 does it; the other replicas ignore the command. This node votes
//! and answers until its own cluster map says that it has no slots any more.

use std::time::Duration;

use crate::state::Service;
use crate::telemetry::clock;
use basalt_commands::cluster::flags::NodeFlags;
use basalt_commands::cluster::map::{ClusterMap, NodeView};
use basalt_commands::cluster::node_id::NodeId;
use basalt_commands::command::host::primary::{ReplicaFacts, ReplicaState};

/// Interval of checks whether the replica has taken over.
const LOOK: Duration = Duration::from_millis(5);

/// Whether this server is a primary that serves slots of a cluster.
pub(super) fn serves_slots(service: &Service) -> bool {
    let map = service.cluster.get().map(|cluster| cluster.map());
    map.is_some_and(|map| map.me().is_primary() && !map.me().slots.is_empty())
}

/// The outcome of [`hand_over`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handover {
    /// A replica has taken over.
    Done,
    /// No replica can take over.
    Impossible,
    /// A replica was asked and has not taken over in time; it may still do so.
    Pending,
}

/// Hands this node's slots over to a replica, while the caller has paused writes and no write is under way. Waits for
/// `cluster-manual-failover-timeout` at most.
pub(super) fn hand_over(service: &Service) -> Handover {
    let timeout_ms = service.config.load().cluster_manual_failover_timeout;
    let until_ms = clock::unix_ms() + u64::from(timeout_ms);
    let Some(heir) = await_heir(service, until_ms) else {
        tracing::warn!(
            "No replica can take over at this shutdown: none is in sync and knows REPLICAID"
        );
        return Handover::Impossible;
    };
    tracing::info!("Handing over to replica {heir} before shutting down");
    let id = heir.to_string();
    let words: [&[u8]; 5] = [
        b"CLUSTER",
        b"FAILOVER",
        b"FORCE",
        b"REPLICAID",
        id.as_bytes(),
    ];
    service.server().primary().replicate(&words);
    while serves_slots(service) {
        if clock::unix_ms() >= until_ms {
            tracing::warn!("Replica {heir} has not taken over within {timeout_ms} ms");
            return Handover::Pending;
        }
        std::thread::sleep(LOOK);
    }
    tracing::info!("Replica {heir} has taken over");
    Handover::Done
}

/// The search for a replica that may take over.
enum Heir {
    Found(NodeId),
    /// A replica has everything, but the cluster map does not show yet that it follows this node: one of both has just
    /// changed its role.
    Expected,
    Missing,
}

/// Returns a replica that has acknowledged everything and may be promoted. Waits for one that is expected.
fn await_heir(service: &Service, until_ms: u64) -> Option<NodeId> {
    loop {
        match heir(service) {
            Heir::Found(id) => return Some(id),
            Heir::Expected if clock::unix_ms() < until_ms => std::thread::sleep(LOOK),
            Heir::Expected | Heir::Missing => return None,
        }
    }
}

fn heir(service: &Service) -> Heir {
    let Some(cluster) = service.cluster.get() else {
        return Heir::Missing;
    };
    let primary = service.server().primary();
    let lagging = primary.lagging();
    let mut replicas = primary.replicas();
    replicas.retain(|replica| {
        let is_lagging = lagging
            .iter()
            .any(|other| other.client_id == replica.client_id);
        replica.state == ReplicaState::Online && replica.knows_replica_id && !is_lagging
    });
    // Not the published map: what it says of links and flags is as old as the last change of slots or roles.
    let map = cluster.view();
    let found = replicas.iter().find_map(|replica| node_of(replica, &map));
    let is_shown = |id: NodeId| {
        let mut nodes = map.nodes.iter();
        nodes.any(|node| node.id == id && node.primary == Some(map.myself))
    };
    let mut ids = replicas.iter().filter_map(|replica| replica.node);
    match found {
        Some(id) => Heir::Found(id),
        None if ids.any(|id| !is_shown(id)) => Heir::Expected,
        None => Heir::Missing,
    }
}

/// Returns the node of a connected replica, if it follows this node and may be promoted. A replica that introduced
/// itself before this node knew its ID is found by its port, and by its address if several have that port.
fn node_of(replica: &ReplicaFacts, map: &ClusterMap) -> Option<NodeId> {
    let may_lead = |node: &&NodeView| {
        let is_it = match replica.node {
            Some(id) => node.id == id,
            None => [node.port, node.tls_port].contains(&replica.port),
        };
        let is_mine = node.primary == Some(map.myself) && node.is_linked;
        is_it && is_mine && !node.flags.any(NodeFlags::NO_FAILOVER)
    };
    let nodes: Vec<&NodeView> = map.nodes.iter().filter(may_lead).collect();
    let found = match nodes.as_slice() {
        [only] => Some(only),
        several => several.iter().find(|node| node.ip == replica.ip),
    };
    found.map(|node| node.id)
}
