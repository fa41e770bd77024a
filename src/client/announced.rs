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
    /// The version of the server.
    pub version: String,
    /// The replica wants a snapshot and no stream (`rdb-only`).
    pub wants_snapshot_only: bool,
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
}
