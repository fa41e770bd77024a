//! What a connection says of itself that is about to follow this server (REPLCONF).

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// The port on which the replica listens.
    pub port: u16,
    /// The address by which it wants to be known; empty: the one that it comes from.
    pub ip: String,
    /// The replica finds the end of a snapshot of unknown length by a mark (`capa eof`).
    pub takes_end_mark: bool,
    /// The replica can go on under another id (`capa psync2`).
    pub changes_ids: bool,
    /// The version of the server. Valkey says one since 8.0, redis-server none.
    pub version: String,
    /// The replica is of this server's kind (`capa basalt`), which reads all that it writes.
    pub is_basalt: bool,
    /// The replica wants a snapshot and no stream (`rdb-only`).
    pub wants_snapshot_only: bool,
    /// The replica can take the stream while the snapshot comes through another connection, as Valkey says it
    /// (`capa dual-channel`).
    pub takes_dual_channel: bool,
    /// As [`Announced::takes_dual_channel`], as Redis says it (`capa rdb-channel-repl`).
    pub takes_rdb_channel: bool,
    /// The connection is for the snapshot of a replica that has another one for the stream (`rdb-channel`).
    pub is_rdb_channel: bool,
    /// The client id of the replica's connection for the stream (`main-ch-client-id`).
    pub main_client: Option<u64>,
    /// The client id of the replica's connection for the snapshot (`set-rdb-client-id`).
    pub rdb_client: Option<u64>,
    /// The replica wants a snapshot without keys (`rdb-filter-only`).
    pub lacks_data: bool,
    /// The replica wants a snapshot without functions (`rdb-filter-only`).
    pub lacks_functions: bool,
}

impl Announced {
    /// Whether it wants a snapshot that others do not want.
    pub fn is_filtered(&self) -> bool {
        self.lacks_data || self.lacks_functions
    }

    /// Whether it is a Valkey that reads deadlines of fields of hashes, in its own form alone.
    pub fn reads_valkey_form(&self) -> bool {
        let major = self.version.split('.').next();
        let major = major.and_then(|digits| digits.parse::<u32>().ok());
        !self.is_basalt && major.is_some_and(|major| major >= 9)
    }
}
