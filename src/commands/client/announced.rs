//! Properties that a connection announces before it follows this server (REPLCONF).

use crate::cluster::node_id::NodeId;

/// Properties announced by a replica, see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// The port on which the replica listens.
    pub port: u16,
    /// The address that the replica announces; empty: the address that it connects from.
    pub ip: String,
    /// The replica recognizes the end of a snapshot of unknown length by a marker (`capa eof`).
    pub takes_end_mark: bool,
    /// The replica can continue under another stream ID (`capa psync2`).
    pub changes_ids: bool,
    /// The version of the replica. Valkey announces its version since 8.0, redis-server does not.
    pub version: String,
    /// The replica is a basalt server (`capa basalt`), which can read everything that this one writes.
    pub is_basalt: bool,
    /// The replica reads snapshots that are compressed with LZ4 (`capa lz4`, or `basalt-lz4`).
    pub takes_lz4: bool,
    /// The replica reads snapshots that are compressed with Zstandard (`capa zstd`, or `basalt-zstd`).
    pub takes_zstd: bool,
    /// The ID of the replica's node in the cluster (`set-cluster-node-id`).
    pub node: Option<NodeId>,
    /// The replica wants a snapshot and no stream (`rdb-only`).
    pub wants_snapshot_only: bool,
    /// The replica can receive the stream while the snapshot is sent over another connection, with Valkey's protocol
    /// (`capa dual-channel`).
    pub takes_dual_channel: bool,
    /// Like [`Announced::takes_dual_channel`], with Redis's protocol (`capa rdb-channel-repl`).
    pub takes_rdb_channel: bool,
    /// The connection is for the snapshot of a replica that has another connection for the stream (`rdb-channel`).
    pub is_rdb_channel: bool,
    /// The ID of the replica's connection for the stream (`main-ch-client-id`).
    pub main_client: Option<u64>,
    /// The ID of the replica's connection for the snapshot (`set-rdb-client-id`).
    pub rdb_client: Option<u64>,
    /// The replica wants a snapshot without keys (`rdb-filter-only`).
    pub lacks_data: bool,
    /// The replica wants a snapshot without functions (`rdb-filter-only`).
    pub lacks_functions: bool,
}

impl Announced {
    /// Whether the replica wants a snapshot with only a part of the data.
    pub fn is_filtered(&self) -> bool {
        self.lacks_data || self.lacks_functions
    }

    /// Whether the replica is a Valkey server that reads deadlines of hash fields, but only in Valkey's own format.
    pub fn reads_valkey_form(&self) -> bool {
        !self.is_basalt && self.is_valkey_9()
    }

    /// Whether the replica knows `CLUSTER FAILOVER FORCE REPLICAID`.
    pub fn knows_replica_id(&self) -> bool {
        self.is_basalt || self.is_valkey_9()
    }

    fn is_valkey_9(&self) -> bool {
        let major = self.version.split('.').next();
        let major = major.and_then(|digits| digits.parse::<u32>().ok());
        major.is_some_and(|major| major >= 9)
    }
}
