//! Replication: the stream of writes to replicas, and from a primary.
//!
//! ```text
//! backlog   the stream of this server, its newest bytes, and where in them each replica is
//! history   the replication ids: of the stream, and of the one that it goes on
//! ```
//!
//! The backlog holds one stream of bytes with offsets. On a primary the log's sequencer feeds it; on a replica the link to
//! the primary does, with the bytes as they came, so that offsets agree down a chain. Whoever sends to a replica takes
//! references into it: ten replicas keep no more memory than one.

pub mod backlog;
pub mod history;
