//! Values as the commands that recreate them: for append-only files that contain only commands.
//!
//! ```text
//! strings                SET
//! lists, sets, …         RPUSH, SADD, ZADD, HSET, a few elements each; deadlines of elements: HPEXPIREAT, SPEXPIREAT
//! streams                XADD, XSETID, XGROUP CREATE, XGROUP CREATECONSUMER, XCLAIM
//! documents              JSON.SET
//! sketches               RESTORE; also streams that no commands can recreate exactly, and those that track producers
//! deadline               PEXPIREAT at the end
//! ```
//!
//! The times when consumers of a stream were last seen are not preserved, as in redis-server.

use super::Form;
use super::frame;
use super::hash;
use super::pieces::{self, CollectionShape};
use super::set;
use super::writer::Writer;
use crate::fences::Fence;
use crate::marks::Marks;
use crate::note;
use crate::value::json::JsonRef;
use crate::value::list::ListRef;
use crate::value::sorted_set::SortedSet;
use crate::value::stream::consumer::Pending;
use crate::value::stream::group::ConsumerGroup;
use crate::value::stream::id::StreamId;
use crate::value::stream::piece::{ConsumerHead, StreamPiece};
use crate::value::stream::{StreamValue, stream_of};
use crate::value::{
    CollectionBody, CollectionPiece, DataType, ElementRef, Object, ObjectKind, Text,
};
use basalt_core::base::number::F64Buffer;
use basalt_core::structures::entry::{EntryRef, Value};
use basalt_core::structures::listpack::Listpack;
use basalt_core::structures::quicklist::{End, QuicklistNodeView};

/// Maximum number of elements in one command.
const ELEMENTS_MAX: u64 = 64;

/// Appends a complete command.
pub fn append(out: &mut Vec<u8>, arguments: &[&[u8]]) {
    count(out, b'*', arguments.len() as u64);
    for bytes in arguments {
        argument(out, bytes);
    }
}

/// Appends the start of a command: the number of all arguments, its name and key.
fn head(out: &mut Vec<u8>, arguments: u64, name: &[u8], key: &[u8]) {
    count(out, b'*', arguments);
    argument(out, name);
    argument(out, key);
}

fn count(out: &mut Vec<u8>, sign: u8, count: u64) {
    out.push(sign);
    out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn argument(out: &mut Vec<u8>, bytes: &[u8]) {
    count(out, b'$', bytes.len() as u64);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn integer(out: &mut Vec<u8>, value: impl itoa::Integer) {
    argument(out, itoa::Buffer::new().format(value).as_bytes());
}

fn id(out: &mut Vec<u8>, id: StreamId) {
    argument(out, id.text().as_bytes());
}

/// Appends a command.
pub fn command(out: &mut Vec<u8>, arguments: &[&[u8]]) {
    count(out, b'*', arguments.len() as u64);
    arguments.iter().for_each(|bytes| argument(out, bytes));
}

/// Appends the command that selects the database of the following keys.
pub fn select_db(out: &mut Vec<u8>, db: usize) {
    command(out, &[b"SELECT", itoa::Buffer::new().format(db).as_bytes()]);
}

/// Appends the commands that recreate an entry in its state at a time: expired elements are left out.
pub fn entry(out: &mut Vec<u8>, entry: EntryRef<'_, Object>, now_ms: u64) {
    let key = entry.key();
    match ObjectKind(entry.kind()).data_type() {
        DataType::String => {
            head(out, 3, b"SET", key);
            match Text::of(entry) {
                Some(text) => text.with_bytes(|bytes| argument(out, bytes)),
                None => unreachable!("the entry is a string"),
            }
        }
        DataType::List => {
            let Some(list) = ListRef::of(entry) else {
                unreachable!("the entry is a list")
            };
            let mut run = CommandSplitter::new(b"RPUSH", key, 1, list.len() as u64);
            list.visit(End::Front, 0, list.len(), |element| {
                run.next(out);
                element.with_bytes(|bytes| argument(out, bytes));
            });
        }
        DataType::Set => {
            let set = set::live(entry, now_ms);
            let mut run = CommandSplitter::new(b"SADD", key, 1, set.len() as u64);
            set.for_each(|member| {
                run.next(out);
                member.with_bytes(|bytes| argument(out, bytes));
            });
            if set.next_deadline().is_some() {
                set.for_each_with_deadline(|member, deadline| {
                    if let Some(at_ms) = deadline {
                        member.with_bytes(|member| member_deadline(out, key, member, at_ms));
                    }
                });
            }
        }
        DataType::SortedSet => {
            let set = SortedSet::of(entry);
            let mut run = CommandSplitter::new(b"ZADD", key, 2, set.len() as u64);
            for (member, score) in set.iter() {
                run.next(out);
                argument(out, F64Buffer::default().format(score));
                member.with_bytes(|bytes| argument(out, bytes));
            }
        }
        DataType::Hash => hash(out, entry, now_ms),
        DataType::Stream => match stream_of(entry).filter(|stream| can_be_made(stream)) {
            Some(value) => stream(out, key, value),
            None => restore(out, entry, now_ms),
        },
        DataType::Bloom
        | DataType::Cuckoo
        | DataType::CountMin
        | DataType::TopK
        | DataType::TDigest => restore(out, entry, now_ms),
        DataType::Json => command(out, &[b"JSON.SET", key, b"$", &JsonRef::of(entry).text()]),
    }
    deadline(out, key, entry.deadline());
}

/// Appends a note (a record that other servers ignore), see [`note`](mod@crate::note).
pub fn note(out: &mut Vec<u8>, words: &[&[u8]]) {
    command(out, &note::words(words));
}

/// Appends the notes that set a key's marks.
pub fn marks(out: &mut Vec<u8>, key: &[u8], marks: &Marks<'_>) {
    if marks.stale_ms > 0 {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(marks.stale_ms).as_bytes();
        note(out, &[b"LSTALE", key, digits]);
    }
    for tags in note::pieces(&marks.tags) {
        note(out, &[&[&b"TAG"[..], b"ADD", key], tags].concat());
    }
}

/// Appends the note that sets a lock's fence.
pub fn fence(out: &mut Vec<u8>, key: &[u8], fence: Fence) {
    let (number, owner) = fence.texts();
    note(out, &[b"FENCE", number.as_bytes(), key, owner.as_bytes()]);
}

/// Appends the note that blesses a key.
pub fn blessing(out: &mut Vec<u8>, key: &[u8]) {
    note(out, &[b"BLESS", b"SET", key, b"NO-EVICT"]);
}

/// Appends the note that makes a server issue fencing tokens larger than this one.
pub fn last_fence(out: &mut Vec<u8>, number: u64) {
    note(out, &[b"FENCE", number.to_string().as_bytes()]);
}

/// Appends the start of the command for a long string, up to the string itself; [`behind_text`] appends the rest.
pub fn before_text(out: &mut Vec<u8>, entry: EntryRef<'_, Object>, len: usize) {
    head(out, 3, b"SET", entry.key());
    count(out, b'$', len as u64);
}

/// Appends the rest of the command for a long string, see [`before_text`].
pub fn behind_text(out: &mut Vec<u8>, entry: EntryRef<'_, Object>) {
    out.extend_from_slice(b"\r\n");
    deadline(out, entry.key(), entry.deadline());
}

/// True if a large collection can be recreated in pieces.
pub fn takes_pieces(entry: EntryRef<'_, Object>) -> bool {
    let can_be = |stream: &StreamValue| {
        !stream.has_claimed_length() && stream.pending_count() == 0 && stream.producers().is_none()
    };
    match entry.value() {
        Value::Object(object) if object.body.pages() > 0 => false,
        _ => stream_of(entry).is_none_or(can_be),
    }
}

/// Appends the commands for a piece of a large collection, of which `written` elements were appended before. Returns
/// the number of elements in the piece.
pub fn piece(
    out: &mut Vec<u8>,
    key: &[u8],
    piece: &CollectionPiece<'_>,
    shape: &CollectionShape,
    written: u64,
) -> u64 {
    let left = shape.count.saturating_sub(written);
    match piece {
        CollectionPiece::Element(piece) => element(out, key, piece, shape, written),
        CollectionPiece::Node(node, count) => {
            let mut run = CommandSplitter::new(b"RPUSH", key, 1, left);
            run.in_command = written % ELEMENTS_MAX;
            match node {
                QuicklistNodeView::Packed(pack) => {
                    for element in Listpack::new(pack).iter() {
                        run.next(out);
                        element.with_bytes(|bytes| argument(out, bytes));
                    }
                }
                QuicklistNodeView::Plain(element) => {
                    run.next(out);
                    element.with_bytes(|bytes| argument(out, bytes));
                }
            }
            *count as u64
        }
        CollectionPiece::Stream(piece) => stream_piece(out, key, piece),
        CollectionPiece::Page(_) => unreachable!("no command adds a page"),
    }
}

/// Appends the commands that follow the last piece.
pub fn behind_pieces(out: &mut Vec<u8>, key: &[u8], shape: &CollectionShape) {
    deadline(out, key, shape.deadline);
}

fn element(
    out: &mut Vec<u8>,
    key: &[u8],
    piece: &ElementRef<'_>,
    shape: &CollectionShape,
    written: u64,
) -> u64 {
    if shape.leaves_out(piece) {
        return 0;
    }
    let left = shape.count.saturating_sub(written);
    let mut next = |name, arguments| {
        let mut run = CommandSplitter::new(name, key, arguments, left);
        run.in_command = written % ELEMENTS_MAX;
        run.next(out);
    };
    match shape.form {
        pieces::CollectionForm::SortedSet => {
            next(b"ZADD", 2);
            let score = f64::from_bits(piece.number);
            argument(out, F64Buffer::default().format(score));
            argument(out, piece.name);
        }
        pieces::CollectionForm::Hash => {
            next(b"HSET", 2);
            argument(out, piece.name);
            piece.value.with_bytes(|bytes| argument(out, bytes));
        }
        // One command per element, as a command with the field's deadline follows.
        pieces::CollectionForm::VolatileHash(_) => {
            head(out, 4, b"HSET", key);
            argument(out, piece.name);
            piece.value.with_bytes(|bytes| argument(out, bytes));
            if piece.number != u64::MAX {
                field_deadline(out, key, piece.name, piece.number);
            }
        }
        pieces::CollectionForm::VolatileSet => {
            head(out, 3, b"SADD", key);
            argument(out, piece.name);
            if piece.number != u64::MAX {
                member_deadline(out, key, piece.name, piece.number);
            }
        }
        pieces::CollectionForm::Set
        | pieces::CollectionForm::List(_)
        | pieces::CollectionForm::Stream(_)
        | pieces::CollectionForm::Sketch => {
            next(b"SADD", 1);
            argument(out, piece.name);
        }
    }
    1
}

/// Splits elements into commands of a few elements each.
struct CommandSplitter<'a> {
    name: &'static [u8],
    key: &'a [u8],
    /// Number of arguments per element.
    arguments: u64,
    left: u64,
    in_command: u64,
}

impl<'a> CommandSplitter<'a> {
    fn new(name: &'static [u8], key: &'a [u8], arguments: u64, left: u64) -> CommandSplitter<'a> {
        CommandSplitter {
            name,
            key,
            arguments,
            left,
            in_command: 0,
        }
    }

    /// Begins the next element, and a new command if necessary.
    fn next(&mut self, out: &mut Vec<u8>) {
        if self.in_command == 0 {
            let elements = self.left.min(ELEMENTS_MAX);
            head(out, 2 + elements * self.arguments, self.name, self.key);
        }
        self.in_command = (self.in_command + 1) % ELEMENTS_MAX;
        self.left = self.left.saturating_sub(1);
    }
}

fn deadline(out: &mut Vec<u8>, key: &[u8], at_ms: Option<u64>) {
    if let Some(at_ms) = at_ms {
        head(out, 3, b"PEXPIREAT", key);
        integer(out, at_ms);
    }
}

fn field_deadline(out: &mut Vec<u8>, key: &[u8], name: &[u8], at_ms: u64) {
    head(out, 6, b"HPEXPIREAT", key);
    integer(out, at_ms);
    argument(out, b"FIELDS");
    argument(out, b"1");
    argument(out, name);
}

fn member_deadline(out: &mut Vec<u8>, key: &[u8], name: &[u8], at_ms: u64) {
    head(out, 6, b"SPEXPIREAT", key);
    integer(out, at_ms);
    argument(out, b"MEMBERS");
    argument(out, b"1");
    argument(out, name);
}

fn hash(out: &mut Vec<u8>, entry: EntryRef<'_, Object>, now_ms: u64) {
    let key = entry.key();
    let hash = hash::live(entry, now_ms);
    let mut run = CommandSplitter::new(b"HSET", key, 2, hash.len() as u64);
    hash.for_each(|field| {
        run.next(out);
        field.name.with_bytes(|name| argument(out, name));
        field.value.with_bytes(|value| argument(out, value));
    });
    hash.for_each(|field| {
        if let Some(at_ms) = field.deadline {
            field
                .name
                .with_bytes(|name| field_deadline(out, key, name, at_ms));
        }
    });
}

/// True if commands can recreate a stream exactly: no deleted entry is pending, its length is the number of its
/// entries, and it tracks no producers, whose ids the producers' commands would count anew.
fn can_be_made(stream: &StreamValue) -> bool {
    let is_counted = stream.metadata_from_nodes().length == stream.metadata().length;
    let are_there = |group: &ConsumerGroup| {
        let mut pending = group.pending_between(StreamId::MIN, StreamId::MAX);
        pending.all(|(id, _)| stream.contains(id))
    };
    is_counted
        && stream.producers().is_none()
        && stream.groups.iter().all(|(_, group)| are_there(group))
}

fn stream(out: &mut Vec<u8>, key: &[u8], stream: &StreamValue) {
    for (master, node) in stream.nodes() {
        stream_piece(out, key, &StreamPiece::Node(master, node));
    }
    stream_piece(
        out,
        key,
        &StreamPiece::Metadata(stream.metadata(), stream.groups.len()),
    );
    for (name, group) in stream.groups.iter() {
        let head = group.head(name);
        stream_piece(out, key, &StreamPiece::Group(&head));
        for consumer in group.consumers() {
            let one = ConsumerHead::of(consumer);
            stream_piece(out, key, &StreamPiece::Consumer(&head, &one));
            for id in consumer.pending_ids() {
                if let Some(pending) = group.pending(id) {
                    claim(out, key, name, &consumer.name, id, pending);
                }
            }
        }
        for (id, pending) in group.returned() {
            give_back(out, key, name, id, pending);
        }
    }
}

/// Appends the commands for a piece of a stream without pending entries or producers. Returns the number of nodes in
/// the piece.
fn stream_piece(out: &mut Vec<u8>, key: &[u8], piece: &StreamPiece<'_>) -> u64 {
    match piece {
        StreamPiece::Node(master, node) => {
            for item in node.entries(*master) {
                head(out, 3 + 2 * item.field_count() as u64, b"XADD", key);
                id(out, item.id);
                for (name, value) in item.fields() {
                    name.with_bytes(|name| argument(out, name));
                    value.with_bytes(|value| argument(out, value));
                }
            }
            return 1;
        }
        StreamPiece::Metadata(metadata, _) => {
            if metadata.length == 0 {
                // A stream without entries is recreated by adding one entry and trimming it away.
                head(out, 7, b"XADD", key);
                for bytes in [&b"MAXLEN"[..], b"0", b"0-1", b"x", b"y"] {
                    argument(out, bytes);
                }
            }
            head(out, 7, b"XSETID", key);
            id(out, metadata.last_id);
            argument(out, b"ENTRIESADDED");
            integer(out, metadata.entries_added);
            argument(out, b"MAXDELETEDID");
            id(out, metadata.max_deleted_id);
        }
        StreamPiece::Group(group) => {
            command_head(out, 7, [b"XGROUP", b"CREATE", key, &group.name]);
            id(out, group.last_id);
            argument(out, b"ENTRIESREAD");
            integer(out, group.entries_read);
        }
        StreamPiece::Consumer(group, consumer) => {
            command_head(out, 5, [b"XGROUP", b"CREATECONSUMER", key, &group.name]);
            argument(out, &consumer.name);
        }
        StreamPiece::Pending(..)
        | StreamPiece::Consumers(_)
        | StreamPiece::Owned(_)
        | StreamPiece::Returned(_)
        | StreamPiece::Producers(..)
        | StreamPiece::Producer(..)
        | StreamPiece::ProducersEnd(_) => {}
    }
    0
}

fn give_back(out: &mut Vec<u8>, key: &[u8], group: &[u8], entry: StreamId, pending: Pending) {
    command_head(out, 10, [b"XNACK", key, group, b"FAIL"]);
    argument(out, b"IDS");
    argument(out, b"1");
    id(out, entry);
    argument(out, b"RETRYCOUNT");
    integer(out, pending.deliveries);
    argument(out, b"FORCE");
}

fn claim(
    out: &mut Vec<u8>,
    key: &[u8],
    group: &[u8],
    consumer: &[u8],
    entry: StreamId,
    pending: Pending,
) {
    command_head(out, 12, [b"XCLAIM", key, group, consumer]);
    argument(out, b"0");
    id(out, entry);
    argument(out, b"TIME");
    integer(out, pending.delivered_ms);
    argument(out, b"RETRYCOUNT");
    integer(out, pending.deliveries);
    argument(out, b"JUSTID");
    argument(out, b"FORCE");
}

fn command_head(out: &mut Vec<u8>, arguments: u64, first: [&[u8]; 4]) {
    count(out, b'*', arguments);
    for bytes in first {
        argument(out, bytes);
    }
}

fn restore(out: &mut Vec<u8>, entry: EntryRef<'_, Object>, now_ms: u64) {
    let mut writer = Writer::new(Form::Oldest, false);
    super::write(entry, now_ms, &mut writer);
    let (bytes, version) = writer.finish();
    command(
        out,
        &[b"RESTORE", entry.key(), b"0", &frame::seal(bytes, version)],
    );
}
