//! A snapshot that the primary has announced.

use super::framing::Extent;

/// The way that a snapshot takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    File,
    Straight,
    /// Clients see the old data meanwhile, or hear that the server loads.
    Aside {
        is_served: bool,
    },
}

/// A snapshot that comes, or lies in a file.
pub(super) struct Coming {
    pub(super) id: String,
    pub(super) offset: u64,
    /// The database that the stream has selected there, if the primary said so.
    pub(super) db: Option<usize>,
    pub(super) extent: Extent,
    pub(super) way: Way,
}
