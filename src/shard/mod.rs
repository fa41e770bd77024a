//! The token of each shard, and how commands meet shards.

pub mod ownership;
