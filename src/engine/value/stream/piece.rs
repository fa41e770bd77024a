//! The pieces in which a stream is shown and saved.

use super::Facts;
use super::consumer::{Consumer, Pending};
use super::id::StreamId;
use super::node::Node;
use super::producers::{Producer, ProducerFacts};

/// A piece of a stream, in the order in which they are shown: nodes; facts; for each group its head, what is pending,
/// the count of its consumers; for each of these its head and what it owns; what the group was given back; of a stream
/// that knows producers what they have in common, each of them, and the end of them.
#[derive(Clone, Copy)]
pub enum StreamPiece<'a> {
    /// A node with its first ID.
    Node(StreamId, &'a Node),
    /// What the stream knew of itself, and how many groups follow.
    Facts(Facts, usize),
    /// A group.
    Group(&'a GroupHead),
    /// An entry pending in the group.
    Pending(StreamId, Pending),
    /// As many consumers of the group follow.
    Consumers(usize),
    /// A consumer of a group, which is named first.
    Consumer(&'a GroupHead, &'a ConsumerHead),
    /// An entry that the consumer owns, or that the group was given back.
    Owned(StreamId),
    /// As many entries follow that the group was given back, in the order in which it was.
    Returned(usize),
    /// What is known of producers together, and how many of them follow.
    Producers(ProducerFacts, usize),
    /// A producer with its name.
    Producer(&'a [u8], &'a Producer),
    /// All producers were shown.
    ProducersEnd(ProducerFacts),
}

/// What a group says of itself.
#[derive(Debug)]
pub struct GroupHead {
    /// Name of the group.
    pub name: Box<[u8]>,
    /// The last entry delivered.
    pub last_id: StreamId,
    /// Entries read.
    pub entries_read: i64,
    /// Entries pending.
    pub pending_count: usize,
}

/// What a consumer says of itself.
#[derive(Debug)]
pub struct ConsumerHead {
    /// Name of the consumer.
    pub name: Box<[u8]>,
    /// When it last asked for anything.
    pub seen_ms: i64,
    /// When it last got anything.
    pub active_ms: i64,
    /// Entries that it owns.
    pub pending_count: usize,
}

impl ConsumerHead {
    /// Of a consumer.
    pub fn of(consumer: &Consumer) -> ConsumerHead {
        ConsumerHead {
            name: consumer.name.clone(),
            seen_ms: consumer.seen_ms,
            active_ms: consumer.active_ms,
            pending_count: consumer.pending_count(),
        }
    }
}

/// What pieces are shown to.
pub type ShowPiece<'f> = dyn for<'a> FnMut(StreamPiece<'a>) + 'f;
