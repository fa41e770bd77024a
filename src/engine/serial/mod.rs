//! Serialization of values: the object format of Redis's snapshots, shared by DUMP and RESTORE.
//!
//! ```text
//! value     type u8 | body
//! length    00xxxxxx · 01xxxxxx xxxxxxxx · 0x80 u32 · 0x81 u64                       big-endian
//! string    length | bytes · 0xc0 i8 · 0xc1 i16 · 0xc2 i32 · 0xc3 length length | compressed bytes
//! ```
//!
//! [`write()`] chooses the oldest form that can represent a value, so that any server from 7.0 on can read it,
//! unless the lossless form is requested. [`read`] accepts all forms written by servers up to 7.4, and those of
//! Redis 8 and Valkey 9 whose types exist here. A value's name, its deadline and the frame of DUMP are handled
//! elsewhere.
//!
//! Input is untrusted: every length is checked against the remaining bytes before memory is allocated for it,
//! packed structures are checked byte by byte, duplicate members are rejected, and so is everything that a command
//! could not have made. Nothing here recurses, and nothing panics on any input.

pub mod commands;
pub mod frame;
mod hash;
mod json;
mod lapsing;
mod list;
mod nodes;
mod packed;
mod pages;
pub mod pieces;
pub mod reader;
mod set;
pub mod sketch;
mod sorted_set;
pub mod stream;
mod valkey;
pub mod writer;

use super::value::{self, object::note_entry_bytes};
use super::value::{DataType, Object, ObjectKind, Text, string_entry};
use basalt_core::alloc::account;
use basalt_core::structures::entry::{Entry, EntryRef};
use basalt_core::structures::quicklist;
use reader::Reader;
use writer::Writer;

pub use json::has_written_documents;
pub use pages::module_of;

/// The format version that every server from 7.0 on can read.
pub const V10: u16 = 10;
/// Format version of 7.2: sets of a few members of any kind are one listpack.
pub const V11: u16 = 11;
/// Format version of 7.4: hash fields may have deadlines.
pub const V12: u16 = 12;
/// The newest readable format version of Redis, that of 8.10.
pub const REDIS_VERSION_MAX: u16 = 16;
/// The readable format versions of Valkey: its own format begins with the first of these, which is also written for
/// Valkey replicas.
pub const VALKEY_VERSIONS: std::ops::RangeInclusive<u16> = 80..=81;

/// The form in which values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The oldest form that can represent the value, as far as commands of servers of that age could see it.
    Oldest,
    /// The form of servers of 7.2: small sets as listpacks, and activity times of stream consumers. Deadlines of hash
    /// fields are written all the same.
    Newer,
    /// The lossless form, for values that this server reads back.
    Whole,
    /// Like [`Form::Newer`], but deadlines of fields are written in the form of Valkey 9.
    Valkey,
}

impl Form {
    /// Returns the form to write for a reader of a version of the format.
    pub fn of_version(version: u16) -> Form {
        match version {
            ..=V10 => Form::Oldest,
            V11 => Form::Newer,
            version if VALKEY_VERSIONS.contains(&version) => Form::Valkey,
            _ => Form::Whole,
        }
    }
}

/// Error: the bytes are no valid value. The reason is for the log; clients get the same reply whatever the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl Malformed {
    const SHORT: Malformed = Malformed("fewer bytes than claimed");
    /// A string claims to be longer than the reader allows.
    pub const BEYOND_LIMIT: Malformed = Malformed("a string longer than the limit");
    /// A value of a module, or of a version of it, that does not exist here.
    pub const MODULE: Malformed = Malformed("a value of an unavailable module");
    const NAN: Malformed = Malformed("a score that is not a number");
    const TWICE: Malformed = Malformed("the same member twice");
    /// A collection has no elements, as may occur in files of old servers.
    pub const EMPTY: Malformed = Malformed("a collection without elements");
    const PACK: Malformed = Malformed("a malformed compact encoding");
    const GROUP: Malformed = Malformed("a compact encoding with an incomplete group of elements");
    const EARLY: Malformed = Malformed("a time out of range");
    const ORDER: Malformed = Malformed("members out of order");
}

/// Type bytes of values.
pub mod types {
    /// A string.
    pub const STRING: u8 = 0;
    /// A list, element by element.
    pub const LIST: u8 = 1;
    /// A set, member by member.
    pub const SET: u8 = 2;
    /// A sorted set with scores as text.
    pub const ZSET: u8 = 3;
    /// A hash, pair by pair.
    pub const HASH: u8 = 4;
    /// A sorted set with binary scores.
    pub const ZSET_2: u8 = 5;
    /// A module value from before 4.0, whose end only the module can find.
    pub const MODULE: u8 = 6;
    /// A value of a module.
    pub const MODULE_2: u8 = 7;
    /// A hash as a zipmap.
    pub const HASH_ZIPMAP: u8 = 9;
    /// A list as a ziplist.
    pub const LIST_ZIPLIST: u8 = 10;
    /// A set as an intset.
    pub const SET_INTSET: u8 = 11;
    /// A sorted set as a ziplist.
    pub const ZSET_ZIPLIST: u8 = 12;
    /// A hash as a ziplist.
    pub const HASH_ZIPLIST: u8 = 13;
    /// A list of ziplists.
    pub const LIST_QUICKLIST: u8 = 14;
    /// A stream, in the form from before 7.0.
    pub const STREAM_LISTPACKS: u8 = 15;
    /// A hash as a listpack.
    pub const HASH_LISTPACK: u8 = 16;
    /// A sorted set as a listpack.
    pub const ZSET_LISTPACK: u8 = 17;
    /// A list of listpacks.
    pub const LIST_QUICKLIST_2: u8 = 18;
    /// A stream of 7.0.
    pub const STREAM_LISTPACKS_2: u8 = 19;
    /// A set as a listpack.
    pub const SET_LISTPACK: u8 = 20;
    /// A stream of 7.2.
    pub const STREAM_LISTPACKS_3: u8 = 21;
    /// A hash with deadlines, as written by a release candidate of 7.4.
    pub const HASH_METADATA_RC: u8 = 22;
    /// A small hash with deadlines, as written by a release candidate of 7.4.
    pub const HASH_LISTPACK_EX_RC: u8 = 23;
    /// A hash with deadlines.
    pub const HASH_METADATA: u8 = 24;
    /// A small hash with deadlines.
    pub const HASH_LISTPACK_EX: u8 = 25;
    /// A stream of Redis 8.6, which may track producers.
    pub const STREAM_LISTPACKS_4: u8 = 26;
    /// A stream of Redis 8.8, to whose groups entries may have been returned.
    pub const STREAM_LISTPACKS_5: u8 = 27;
    /// An array of Redis 8.8.
    pub const ARRAY: u8 = 28;
    /// A small hash of Redis 8.10: a listpack of values whose field names are stored separately.
    pub const HASH_TEMPLATE_LISTPACK: u8 = 29;
    /// A small hash whose fields were written earlier, once for many hashes.
    pub const HASH_TEMPLATE_LISTPACK_REF: u8 = 30;
    /// A hash of Redis 8.10.
    pub const HASH_TEMPLATE_ARRAY: u8 = 31;
    /// A hash whose fields were written earlier, once for many hashes.
    pub const HASH_TEMPLATE_ARRAY_REF: u8 = 32;
    /// A rate limiter of Redis 8, in builds that have it.
    pub const GCRA: u8 = 33;
    /// A hash with deadlines of Valkey 9, with the number that release candidates of Redis 7.4 had.
    pub const VALKEY_HASH_2: u8 = HASH_METADATA_RC;
}

/// Returns the name of an RDB type in messages about corrupt values, in the words that tools search logs for.
pub fn rdb_type_name(rdb_type: u8) -> &'static str {
    match rdb_type {
        types::HASH_ZIPMAP => "Zipmap",
        types::LIST_ZIPLIST => "List ziplist",
        types::SET_INTSET => "Intset",
        types::ZSET_ZIPLIST => "Zset ziplist",
        types::HASH_ZIPLIST => "Hash ziplist",
        types::LIST_QUICKLIST => "Quicklist ziplist",
        types::LIST_QUICKLIST_2 => "Quicklist listpack",
        types::HASH_LISTPACK | types::HASH_LISTPACK_EX | types::HASH_LISTPACK_EX_RC => {
            "Hash listpack"
        }
        types::ZSET_LISTPACK => "Zset listpack",
        types::SET_LISTPACK => "Set listpack",
        types::STREAM_LISTPACKS
        | types::STREAM_LISTPACKS_2
        | types::STREAM_LISTPACKS_3
        | types::STREAM_LISTPACKS_4
        | types::STREAM_LISTPACKS_5 => "Stream listpack",
        types::HASH_TEMPLATE_LISTPACK
        | types::HASH_TEMPLATE_LISTPACK_REF
        | types::HASH_TEMPLATE_ARRAY
        | types::HASH_TEMPLATE_ARRAY_REF => "Hash template",
        _ => "Value",
    }
}

/// First bytes of lengths and strings.
mod form {
    pub(super) const LENGTH_14: u8 = 0x40;
    pub(super) const LENGTH_32: u8 = 0x80;
    pub(super) const LENGTH_64: u8 = 0x81;
    pub(super) const INT_8: u8 = 0xc0;
    pub(super) const INT_16: u8 = 0xc1;
    pub(super) const INT_32: u8 = 0xc2;
    pub(super) const LZF: u8 = 0xc3;
}

/// The limits for reading values: the thresholds of encodings, from the configuration.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Maximum length of a string.
    pub string_bytes_max: usize,
    /// Limits of list nodes.
    pub list: quicklist::QuicklistLimits,
    /// Limits of small sets.
    pub set: value::set::SetLimits,
    /// Limits of small sorted sets.
    pub sorted_set: value::sorted_set::SortedSetLimits,
    /// Limits of small hashes.
    pub hash: value::hash::HashRules,
}

/// Maximum elements that are added one by one to a small collection, which is searched for each of them. Larger
/// collections begin in the large encoding, unless they come as a listpack: with very high thresholds the searches
/// would take forever.
const SEARCHED_MAX: usize = 4096;

/// Writes an entry's value after its type byte, in its state at a time: expired elements are left out.
pub fn write(entry: EntryRef<'_, Object>, now_ms: u64, writer: &mut Writer) {
    match ObjectKind(entry.kind()).data_type() {
        DataType::String => {
            writer.kind(types::STRING);
            match Text::of(entry) {
                Some(Text::Integer(number)) => writer.integer(number),
                Some(text) => text.with_bytes(|bytes| writer.string(bytes)),
                None => unreachable!("the entry is a string"),
            }
        }
        DataType::List => list::write(entry, writer),
        DataType::Set => set::write(entry, now_ms, writer),
        DataType::SortedSet => sorted_set::write(entry, writer),
        DataType::Hash => hash::write(entry, now_ms, writer),
        DataType::Stream => stream::write(entry, writer),
        DataType::Bloom
        | DataType::Cuckoo
        | DataType::CountMin
        | DataType::TopK
        | DataType::TDigest => sketch::write(entry, writer),
        DataType::Json => json::write(entry, writer),
    }
}

/// Reads a value, from its type byte to its last byte, into an entry whose size is recorded.
pub fn read(
    key: &[u8],
    deadline: Option<u64>,
    reader: &mut Reader<'_>,
    limits: &Limits,
) -> Result<Entry<Object>, Malformed> {
    let rdb_type = reader.byte()?;
    read_as(rdb_type, key, deadline, reader, limits)
}

/// Reads a value whose type byte has been read already, as in snapshots, where the key follows the type.
pub fn read_as(
    rdb_type: u8,
    key: &[u8],
    deadline: Option<u64>,
    reader: &mut Reader<'_>,
    limits: &Limits,
) -> Result<Entry<Object>, Malformed> {
    let before = account::charged_bytes();
    let mut entry = read_value(rdb_type, key, reader, limits)?;
    entry.set_deadline(deadline);
    note_entry_bytes(&mut entry, account::charged_bytes() - before);
    Ok(entry)
}

fn read_value(
    rdb_type: u8,
    key: &[u8],
    reader: &mut Reader<'_>,
    limits: &Limits,
) -> Result<Entry<Object>, Malformed> {
    match rdb_type {
        types::STRING => Ok(string_entry(key, &reader.string()?, None)),
        types::LIST | types::LIST_ZIPLIST | types::LIST_QUICKLIST | types::LIST_QUICKLIST_2 => {
            list::read(rdb_type, key, reader, &limits.list)
        }
        types::SET | types::SET_INTSET | types::SET_LISTPACK => {
            set::read(rdb_type, key, reader, &limits.set)
        }
        types::ZSET | types::ZSET_2 | types::ZSET_ZIPLIST | types::ZSET_LISTPACK => {
            sorted_set::read(rdb_type, key, reader, &limits.sorted_set)
        }
        types::HASH
        | types::HASH_ZIPMAP
        | types::HASH_ZIPLIST
        | types::HASH_LISTPACK
        | types::HASH_METADATA_RC
        | types::HASH_LISTPACK_EX_RC
        | types::HASH_METADATA
        | types::HASH_LISTPACK_EX => hash::read(rdb_type, key, reader, &limits.hash),
        types::HASH_TEMPLATE_LISTPACK
        | types::HASH_TEMPLATE_LISTPACK_REF
        | types::HASH_TEMPLATE_ARRAY
        | types::HASH_TEMPLATE_ARRAY_REF => {
            hash::read_template(rdb_type, key, reader, &limits.hash)
        }
        types::STREAM_LISTPACKS
        | types::STREAM_LISTPACKS_2
        | types::STREAM_LISTPACKS_3
        | types::STREAM_LISTPACKS_4
        | types::STREAM_LISTPACKS_5 => stream::read(rdb_type, key, reader),
        types::MODULE_2 => match reader.length()? {
            number if number == lapsing::number() => set::read_lapsing(key, reader, &limits.set),
            number if json::is_document(number) => json::read(number, key, reader),
            number => sketch::read(number, key, reader),
        },
        _ => Err(Malformed("a value of an unknown type")),
    }
}
