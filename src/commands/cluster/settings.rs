//! Inputs of the state machine from the configuration and the server.

use super::Millis;

/// The directives that the state machine needs. The driver passes in new ones after CONFIG SET.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSettings {
    /// `cluster-node-timeout`, in milliseconds.
    pub node_timeout: Millis,
    /// `cluster-ping-interval`, in milliseconds; 0: half of the node timeout.
    pub ping_interval: Millis,
    /// `cluster-migration-barrier`: number of replicas that a primary must keep when one of its replicas moves to
    /// another primary.
    pub migration_barrier: u32,
    /// `cluster-allow-replica-migration`.
    pub allow_replica_migration: bool,
    /// `cluster-replica-validity-factor`: node timeouts that a replica may have been without its primary; 0: no
    /// limit.
    pub replica_validity_factor: u32,
    /// `cluster-replica-no-failover`.
    pub replica_no_failover: bool,
    /// `cluster-require-full-coverage`.
    pub require_full_coverage: bool,
    /// `cluster-blacklist-ttl`, in milliseconds: how long a forgotten node is not accepted again.
    pub forgotten_for: Millis,
    /// `cluster-manual-failover-timeout`, in milliseconds.
    pub manual_failover_timeout: Millis,
    /// `cluster-message-gossip-perc`: percentage of the nodes in the gossip of a ping.
    pub gossip_percent: u32,
    /// `repl-ping-replica-period`, in milliseconds.
    pub replica_ping_period: Millis,
    /// Address that the node announces; empty: other nodes use the source address that they see.
    pub announce_ip: String,
    /// Plain port for clients, announced or actual; 0: none.
    pub port: u16,
    /// TLS port for clients, announced or actual; 0: none.
    pub tls_port: u16,
    /// Port of the bus, announced or actual.
    pub bus_port: u16,
    /// Whether the bus uses TLS, so that its packets contain the TLS port first.
    pub tls_cluster: bool,
    /// Whether replicas connect over TLS.
    pub tls_replication: bool,
    /// `cluster-announce-hostname`.
    pub hostname: String,
    /// `cluster-announce-human-nodename`.
    pub human_name: String,
    /// `cluster-size`: number of primaries of a cluster that assembles itself; 0: this node takes no part in one.
    pub cluster_size: u32,
    /// `cluster-replicas`: number of replicas of each primary then.
    pub cluster_replicas: u32,
    /// `availability-zone`; empty if it is not set, or cannot be announced.
    pub zone: String,
}

/// The current state of the rest of the server, as the state machine needs it.
pub trait Local {
    /// Returns this server's offset in the replication stream.
    fn offset(&self) -> u64;
    /// Returns the number of keys of a slot, in the first database.
    fn keys_in_slot(&self, slot: u16) -> u64;
    /// Whether there is a key in any database.
    fn has_keys(&self) -> bool;
    /// Returns the state of the replication link to the primary; None if this server is not a replica.
    fn primary_link(&self) -> Option<PrimaryLink>;
}

/// State of a replica's link to its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrimaryLink {
    /// Whether the link is up.
    pub is_up: bool,
    /// Milliseconds since the primary was last heard from over the link, or since the link broke.
    pub silent_ms: Millis,
}
