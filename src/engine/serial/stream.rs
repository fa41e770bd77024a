//! Streams: nodes of packed entries, then metadata, then consumer groups.
//!
//! ```text
//! 15  LISTPACKS      nodes | length | last id | groups
//! 19  LISTPACKS_2    … | length | last id | first id | greatest deleted id | added | groups
//! 21  LISTPACKS_3    as 19, and consumers have the time when they were active
//! 26  LISTPACKS_4    as 21 | producers
//! 27  LISTPACKS_5    as 26, and behind its consumers a group has the entries that were returned to it: count | id …
//!
//! nodes       count | ( string with the master id | string with a listpack ) …
//! id          two lengths; in strings and in pending lists 16 bytes big-endian
//! groups      count | ( name | last id | read (from 19 on) | pending | consumers ) …
//! pending     count | ( id | delivery time u64 | deliveries ) …
//! consumers   count | ( name | seen u64 | active u64 (from 21 on) | count | id … ) …
//! producers   seconds that ids are remembered | ids of each | count | ( name | count | ( id | entry's id ) … ) … |
//!             ids added | duplicate ids
//! ```
//!
//! A stream that tracks no producers is written in the form older than producers, unless entries were returned to a
//! group.
//!
//! A pending entry is in its group's list with its times and counts, and in exactly one other list: that of a
//! consumer, or that of the entries returned to the group.

use std::collections::{BTreeMap, BTreeSet};

use super::reader::Reader;
use super::writer::Writer;
use super::{Form, Malformed, V10, V11, V12, types};
use crate::value::Object;
use crate::value::stream::consumer::{ConsumerId, NEVER, Pending};
use crate::value::stream::group::{ConsumerGroup, UNKNOWN_READ};
use crate::value::stream::id::StreamId;
use crate::value::stream::node::Node;
use crate::value::stream::piece::{ConsumerHead, StreamPiece};
use crate::value::stream::producers::{ProducerFacts, ProducerLimits};
use crate::value::stream::{StreamValue, stream_entry, stream_of};
use basalt_core::structures::entry::{Entry, EntryRef};
use basalt_core::structures::listpack::Listpack;

/// Writes a stream after its type byte.
pub(super) fn write(entry: EntryRef<'_, Object>, writer: &mut Writer) {
    let Some(stream) = stream_of(entry) else {
        unreachable!("the entry is a stream");
    };
    let has = StreamFeatures::of(stream);
    kind(has, writer);
    let nodes = stream.nodes();
    writer.length(nodes.len() as u64);
    let mut piece = |one: &StreamPiece<'_>| piece(one, has, writer);
    for (master, node) in nodes {
        piece(&StreamPiece::Node(master, node));
    }
    piece(&StreamPiece::Metadata(
        stream.metadata(),
        stream.groups.len(),
    ));
    for (name, group) in stream.groups.iter() {
        let head = group.head(name);
        piece(&StreamPiece::Group(&head));
        for (id, pending) in group.pending_between(StreamId::MIN, StreamId::MAX) {
            piece(&StreamPiece::Pending(id, pending));
        }
        let consumers = group.consumers();
        piece(&StreamPiece::Consumers(consumers.len()));
        for consumer in consumers {
            let one = ConsumerHead::of(consumer);
            piece(&StreamPiece::Consumer(&head, &one));
            for id in consumer.pending_ids() {
                piece(&StreamPiece::Owned(id));
            }
        }
        piece(&StreamPiece::Returned(group.returned_count()));
        for (id, _) in group.returned() {
            piece(&StreamPiece::Owned(id));
        }
    }
    if let Some(producers) = stream.producers() {
        let facts = producers.facts();
        piece(&StreamPiece::Producers(facts, producers.iter().len()));
        for (name, producer) in producers.iter() {
            piece(&StreamPiece::Producer(name, producer));
        }
        piece(&StreamPiece::ProducersEnd(facts));
    }
    end(has, writer);
}

/// The features that determine the form in which a stream is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamFeatures {
    /// True if the stream tracks producers.
    producers: bool,
    /// True if entries were returned to a group.
    returned: bool,
}

impl StreamFeatures {
    pub(super) fn of(stream: &StreamValue) -> StreamFeatures {
        let mut groups = stream.groups.iter();
        StreamFeatures {
            producers: stream.producers().is_some(),
            returned: groups.any(|(_, group)| group.returned_count() > 0),
        }
    }

    fn activity(self, writer: &Writer) -> bool {
        self.producers || self.returned || writer.form() != Form::Oldest
    }
}

/// Writes the type byte.
pub(super) fn kind(has: StreamFeatures, writer: &mut Writer) {
    let (version, kind) = match has {
        StreamFeatures { returned: true, .. } => (V12, types::STREAM_LISTPACKS_5),
        StreamFeatures {
            producers: true, ..
        } => (V12, types::STREAM_LISTPACKS_4),
        _ if has.activity(writer) => (V11, types::STREAM_LISTPACKS_3),
        _ => (V10, types::STREAM_LISTPACKS_2),
    };
    writer.needs(version);
    writer.kind(kind);
}

/// Writes what follows the last piece: an empty producer section, if the form has one and the stream tracks none.
pub(super) fn end(has: StreamFeatures, writer: &mut Writer) {
    if has.returned && !has.producers {
        let facts = ProducerFacts::under(ProducerLimits::USUAL);
        piece(&StreamPiece::Producers(facts, 0), has, writer);
        piece(&StreamPiece::ProducersEnd(facts), has, writer);
    }
}

/// Writes a piece. Returns its number of nodes.
pub(super) fn piece(piece: &StreamPiece<'_>, has: StreamFeatures, writer: &mut Writer) -> u64 {
    match piece {
        StreamPiece::Node(master, node) => {
            writer.string(&raw_id(*master));
            writer.string(node.bytes());
            return 1;
        }
        StreamPiece::Metadata(metadata, groups) => {
            writer.length(metadata.length);
            write_id(metadata.last_id, writer);
            write_id(metadata.first_id, writer);
            write_id(metadata.max_deleted_id, writer);
            writer.length(metadata.entries_added);
            writer.length(*groups as u64);
        }
        StreamPiece::Group(group) => {
            writer.string(&group.name);
            write_id(group.last_id, writer);
            writer.length(group.entries_read as u64);
            writer.length(group.pending_count as u64);
        }
        StreamPiece::Pending(id, pending) => {
            writer.raw(&raw_id(*id));
            writer.millis(pending.shown_ms() as u64);
            writer.length(pending.deliveries);
        }
        StreamPiece::Consumers(count) => writer.length(*count as u64),
        StreamPiece::Consumer(_, consumer) => {
            writer.string(&consumer.name);
            writer.millis(consumer.seen_ms as u64);
            if has.activity(writer) {
                writer.millis(consumer.active_ms as u64);
            }
            writer.length(consumer.pending_count as u64);
        }
        StreamPiece::Owned(id) => writer.raw(&raw_id(*id)),
        StreamPiece::Returned(count) => {
            if has.returned {
                writer.length(*count as u64);
            }
        }
        StreamPiece::Producers(facts, count) => {
            writer.length(facts.rules.seconds);
            writer.length(facts.rules.each_max);
            writer.length(*count as u64);
        }
        StreamPiece::Producer(name, producer) => {
            writer.string(name);
            writer.length(producer.len() as u64);
            for (id, entry) in producer.iter() {
                writer.string(id);
                write_id(entry, writer);
            }
        }
        StreamPiece::ProducersEnd(facts) => {
            writer.length(facts.added);
            writer.length(facts.duplicates);
        }
    }
    0
}

/// Reads a stream of any form.
pub(super) fn read(
    rdb_type: u8,
    key: &[u8],
    reader: &mut Reader<'_>,
) -> Result<Entry<Object>, Malformed> {
    let mut stream = StreamValue::default();
    for _ in 0..reader.count(2)? {
        let master = id_of(&reader.string()?)?;
        let bytes = reader.string()?;
        let is_empty = Listpack::check(&bytes)
            .and_then(|pack| pack.iter().next()?.integer())
            .is_none_or(|live| live <= 0);
        let node = Node::check(bytes.into_owned(), master).filter(|_| !is_empty);
        let node = node.ok_or(Malformed("a malformed stream node"))?;
        if !stream.push_node(master, node) {
            return Err(Malformed::ORDER);
        }
    }
    read_facts(rdb_type, reader, &mut stream)?;
    for _ in 0..reader.count(5)? {
        let name = reader.string()?;
        if stream.groups.get(&name).is_some() {
            return Err(Malformed("duplicate consumer group"));
        }
        let group = read_group(rdb_type, reader, &stream)?;
        stream.groups.insert(&name, group);
    }
    if matches!(
        rdb_type,
        types::STREAM_LISTPACKS_4 | types::STREAM_LISTPACKS_5
    ) {
        read_producers(reader, &mut stream)?;
    }
    Ok(stream_entry(key, stream))
}

/// Reads the producer records of a stream; stores none if they are the defaults that Redis writes for every stream.
fn read_producers(reader: &mut Reader<'_>, stream: &mut StreamValue) -> Result<(), Malformed> {
    let rules = ProducerLimits {
        seconds: reader.length()?,
        each_max: reader.length()?,
    };
    if !ProducerLimits::SECONDS.contains(&rules.seconds)
        || !ProducerLimits::EACH_MAX.contains(&rules.each_max)
    {
        return Err(Malformed("producers with invalid limits"));
    }
    let mut facts = ProducerFacts::under(rules);
    stream.restore_producers(Some(facts));
    let count = reader.count(2)?;
    for _ in 0..count {
        let name = reader.string()?;
        let ids = reader.count(3)?;
        if ids as u64 > rules.each_max {
            return Err(Malformed("a producer with more IDs than the limit"));
        }
        for _ in 0..ids {
            let id = reader.string()?;
            let entry = read_id(reader)?;
            if !stream.restore_id(&name, &id, entry) {
                return Err(Malformed("a duplicate ID of a producer"));
            }
        }
    }
    (facts.added, facts.duplicates) = (reader.length()?, reader.length()?);
    let is_usual =
        count == 0 && facts.added == 0 && facts.duplicates == 0 && rules == ProducerLimits::USUAL;
    stream.restore_producers((!is_usual).then_some(facts));
    Ok(())
}

/// Reads the metadata. Servers store a length separately from the entries, and in some files it differs from the
/// number of entries: XLEN returns the stored length, as on those servers.
fn read_facts(
    rdb_type: u8,
    reader: &mut Reader<'_>,
    stream: &mut StreamValue,
) -> Result<(), Malformed> {
    let mut metadata = stream.metadata_from_nodes();
    let (length, last_id) = (reader.length()?, read_id(reader)?);
    let is_behind = stream.last_written_id().is_none_or(|last| last <= last_id);
    if !is_behind {
        return Err(Malformed("a stream whose last entry is after its last ID"));
    }
    if i64::try_from(length).is_err() {
        return Err(Malformed("a stream with an impossible number of entries"));
    }
    if metadata.length != length {
        stream.note_claimed_length();
    }
    metadata.length = length;
    metadata.last_id = last_id;
    metadata.entries_added = length;
    if rdb_type != types::STREAM_LISTPACKS {
        // The first ID is not stored here: it follows from the entries.
        read_id(reader)?;
        metadata.max_deleted_id = read_id(reader)?;
        metadata.entries_added = reader.length()?;
        // Commands limit this count to the range of signed numbers.
        if i64::try_from(metadata.entries_added).is_err() {
            return Err(Malformed(
                "a stream with an impossible number of added entries",
            ));
        }
    }
    stream.set_metadata(metadata);
    Ok(())
}

fn read_group(
    rdb_type: u8,
    reader: &mut Reader<'_>,
    stream: &StreamValue,
) -> Result<ConsumerGroup, Malformed> {
    let last_id = read_id(reader)?;
    let read = if rdb_type == types::STREAM_LISTPACKS {
        stream.metadata().entries_before(last_id)
    } else {
        i64::try_from(reader.length()?).ok()
    };
    let mut group = ConsumerGroup::new(last_id, read.unwrap_or(UNKNOWN_READ));
    // A pending entry occurs twice: its times and counts first, its owner later.
    let mut figures = BTreeMap::new();
    for _ in 0..reader.count(25)? {
        let id = id_of(&reader.array::<16>()?)?;
        let (delivered_ms, deliveries) = (reader.millis()? as i64, reader.length()?);
        if delivered_ms < 0 {
            return Err(Malformed::EARLY);
        }
        if figures.insert(id, (delivered_ms, deliveries)).is_some() {
            return Err(Malformed("a duplicate pending entry"));
        }
    }
    let mut owned = BTreeSet::new();
    for _ in 0..reader.count(9)? {
        let name = reader.string()?;
        if group.find_consumer(&name).is_some() {
            return Err(Malformed("Duplicate stream consumer detected"));
        }
        let seen_ms = reader.millis()? as i64;
        let consumer: ConsumerId = group.add_consumer(&name, seen_ms);
        group.consumer_mut(consumer).active_ms = if rdb_type >= types::STREAM_LISTPACKS_3 {
            reader.millis()? as i64
        } else {
            // The last-seen time is the best available estimate.
            seen_ms
        };
        let active_ms = group.consumer(consumer).active_ms;
        if seen_ms < 0 || active_ms < NEVER {
            return Err(Malformed::EARLY);
        }
        for _ in 0..reader.count(16)? {
            let id = id_of(&reader.array::<16>()?)?;
            let Some((delivered_ms, deliveries)) = figures.get(&id).copied() else {
                return Err(Malformed(
                    "a pending entry of a consumer that is not pending in its group",
                ));
            };
            if !owned.insert(id) {
                return Err(Malformed("a pending entry of two consumers"));
            }
            group.set_pending(
                id,
                Pending {
                    delivered_ms,
                    deliveries,
                    consumer,
                },
            );
        }
    }
    if rdb_type == types::STREAM_LISTPACKS_5 {
        for _ in 0..reader.count(16)? {
            let id = id_of(&reader.array::<16>()?)?;
            let Some((_, deliveries)) = figures.get(&id).copied() else {
                return Err(Malformed("a returned entry that is not pending"));
            };
            if !owned.insert(id) {
                return Err(Malformed("a returned entry that belongs to a consumer"));
            }
            group.give_back(id, deliveries);
        }
    }
    if owned.len() != figures.len() {
        return Err(Malformed("a pending entry without a consumer"));
    }
    Ok(group)
}

fn write_id(id: StreamId, writer: &mut Writer) {
    writer.length(id.ms);
    writer.length(id.seq);
}

fn read_id(reader: &mut Reader<'_>) -> Result<StreamId, Malformed> {
    Ok(StreamId::new(reader.length()?, reader.length()?))
}

/// Returns an ID as one number, big-endian.
fn raw_id(id: StreamId) -> [u8; 16] {
    (u128::from(id.ms) << 64 | u128::from(id.seq)).to_be_bytes()
}

fn id_of(bytes: &[u8]) -> Result<StreamId, Malformed> {
    let whole: [u8; 16] = bytes
        .try_into()
        .map_err(|_| Malformed("an ID of the wrong length"))?;
    let whole = u128::from_be_bytes(whole);
    Ok(StreamId::new((whole >> 64) as u64, whole as u64))
}
