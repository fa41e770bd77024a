//! The pieces in which a stream is passed to a snapshot.

use super::StreamMetadata;
use super::consumer::{Pending, StreamConsumer};
use super::id::StreamId;
use super::node::Node;
use super::producers::{Producer, ProducerFacts};

/// A piece of a stream, in order of delivery: nodes; metadata; for each group its head, its pending entries, the
/// number of its consumers; for each consumer its head and the entries that it owns; the entries returned to the
/// group; if the stream tracks producers, their common facts, each producer, and an end marker.
#[derive(Clone, Copy)]
pub enum StreamPiece<'a> {
    /// A node with its first ID.
    Node(StreamId, &'a Node),
    /// The metadata of the stream, and the number of groups that follow.
    Metadata(StreamMetadata, usize),
    /// The metadata of a group; its other pieces follow.
    Group(&'a GroupHead),
    /// An entry pending in the group.
    Pending(StreamId, Pending),
    /// The number of the group's consumers, which follow.
    Consumers(usize),
    /// A consumer, with its group first.
    Consumer(&'a GroupHead, &'a ConsumerHead),
    /// The ID of an entry that the consumer owns, or that was returned to the group.
    Owned(StreamId),
    /// The number of following entries that were returned to the group, in the order of their return.
    Returned(usize),
    /// The facts common to all producers, and the number of producers that follow.
    Producers(ProducerFacts, usize),
    /// A producer with its name.
    Producer(&'a [u8], &'a Producer),
    /// The end of the producers.
    ProducersEnd(ProducerFacts),
}

/// The metadata of a group.
#[derive(Debug)]
pub struct GroupHead {
    /// Name of the group.
    pub name: Box<[u8]>,
    /// The ID of the last delivered entry.
    pub last_id: StreamId,
    /// Number of entries read, or `UNKNOWN_READ`.
    pub entries_read: i64,
    /// Number of pending entries.
    pub pending_count: usize,
}

/// The metadata of a consumer.
#[derive(Debug)]
pub struct ConsumerHead {
    /// Name of the consumer.
    pub name: Box<[u8]>,
    /// Time of its last request, in Unix milliseconds.
    pub seen_ms: i64,
    /// Time of its last successful delivery, in Unix milliseconds; -1 before the first.
    pub active_ms: i64,
    /// Number of pending entries that the consumer owns.
    pub pending_count: usize,
}

impl ConsumerHead {
    /// Returns the metadata of a consumer.
    pub fn of(consumer: &StreamConsumer) -> ConsumerHead {
        ConsumerHead {
            name: consumer.name.clone(),
            seen_ms: consumer.seen_ms,
            active_ms: consumer.active_ms,
            pending_count: consumer.pending_count(),
        }
    }
}

/// A callback that receives pieces.
pub type ShowPiece<'f> = dyn for<'a> FnMut(StreamPiece<'a>) + 'f;
