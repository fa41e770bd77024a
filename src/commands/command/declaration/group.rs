//! The groups of commands.

use super::Categories;

/// The group that documentation and default ACL categories use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Redis's own")]
pub enum Group {
    Generic,
    String,
    List,
    Set,
    SortedSet,
    Hash,
    PubSub,
    Transactions,
    Connection,
    Server,
    Scripting,
    HyperLogLog,
    Cluster,
    Sentinel,
    Geo,
    Stream,
    Bitmap,
    Bloom,
    Cuckoo,
    CountMin,
    TopK,
    TDigest,
    Json,
    Lock,
}

impl Group {
    /// Returns the name in COMMAND DOCS.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Hash => "hash",
            Group::PubSub => "pubsub",
            Group::Transactions => "transactions",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Scripting => "scripting",
            Group::HyperLogLog => "hyperloglog",
            Group::Cluster => "cluster",
            Group::Sentinel => "sentinel",
            Group::Geo => "geo",
            Group::Stream => "stream",
            Group::Bitmap => "bitmap",
            Group::Bloom => "bf",
            Group::Cuckoo => "cf",
            Group::CountMin => "cms",
            Group::TopK => "topk",
            Group::TDigest => "tdigest",
            Group::Json => "json",
            Group::Lock => "lock",
        }
    }

    /// Returns the ACL category of the group's commands, unless a row names others.
    pub(super) fn categories(self) -> Categories {
        match self {
            Group::Generic => Categories::KEYSPACE,
            Group::String => Categories::STRING,
            Group::List => Categories::LIST,
            Group::Set => Categories::SET,
            Group::SortedSet => Categories::SORTEDSET,
            Group::Hash => Categories::HASH,
            Group::Transactions => Categories::TRANSACTION,
            Group::Connection => Categories::CONNECTION,
            Group::Scripting => Categories::SCRIPTING,
            Group::HyperLogLog => Categories::HYPERLOGLOG,
            Group::Geo => Categories::GEO,
            Group::Stream => Categories::STREAM,
            Group::Bitmap => Categories::BITMAP,
            // Each command sets this category by its flag of the same name.
            Group::PubSub => Categories::NONE,
            Group::Bloom => Categories::BLOOM,
            Group::Cuckoo => Categories::CUCKOO,
            Group::CountMin => Categories::CMS,
            Group::TopK => Categories::TOPK,
            Group::TDigest => Categories::TDIGEST,
            Group::Json => Categories::JSON,
            Group::Lock => Categories::LOCK,
            Group::Server | Group::Cluster | Group::Sentinel => Categories::NONE,
        }
    }
}
