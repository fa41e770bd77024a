//! `src/server/shard/ownership` once more, compiled for loom: its `models` run here.
//!
//! Nothing but the path: whatever the models check is the server's own source.

/// The shard token.
#[path = "../../../src/server/shard/ownership/mod.rs"]
pub mod ownership;

/// The ring of records.
#[path = "../../../src/commands/pubsub/sequence.rs"]
pub mod sequence;

/// The ring of bytes.
#[path = "../../../src/core/structures/byte_ring.rs"]
pub mod byte_ring;

/// Copies that are read without a token.
#[path = "../../../src/core/structures/copies.rs"]
pub mod copies;
