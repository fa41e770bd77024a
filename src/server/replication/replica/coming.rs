//! A snapshot that the primary has announced.

use super::framing::SnapshotFraming;

/// The way a snapshot is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    File,
    Straight,
    /// Loaded into separate shards beside the old data. Meanwhile clients see the old data if `is_served`;
    /// otherwise they get LOADING.
    Aside {
        is_served: bool,
    },
}

/// Position of a snapshot in the replication stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SnapshotPosition {
    /// The stream's id.
    pub(super) id: String,
    pub(super) offset: u64,
    /// The database selected in the stream at that offset, if the primary states it.
    pub(super) db: Option<usize>,
}

/// A snapshot that is arriving, or has been written to a file.
pub(super) struct AnnouncedSnapshot {
    pub(super) position: SnapshotPosition,
    pub(super) extent: SnapshotFraming,
    pub(super) way: Way,
}
