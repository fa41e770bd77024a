//! Writes the parts of a snapshot: each function appends one record. The caller is responsible for their order and
//! the checksum.

use super::opcode;
use crate::telemetry::info::REDIS_VERSION;
use basalt_commands::cluster::slot_note::SlotNote;
use basalt_core::structures::block::SharedBlock;
use basalt_core::structures::entry::EntryRef;
use basalt_engine::fences::Fence;
use basalt_engine::marks::Marks;
use basalt_engine::restored_access::Access;
use basalt_engine::serial::pieces::CollectionShape;
use basalt_engine::serial::writer::Writer;
use basalt_engine::serial::{self, Form, V10, VALKEY_VERSIONS};
use basalt_engine::value::{CollectionPiece, Object};

/// Options of writing a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct RdbEncodeOptions {
    /// Version of the format: 10 is readable from Redis 7.0, 11 from Redis 7.2; 12 supports everything that
    /// this server stores; 80 is that of Valkey 9.
    pub version: u16,
    /// Whether to compress strings if that makes them shorter (`rdbcompression`).
    pub compress: bool,
    /// Whether to write a checksum at the end (`rdbchecksum`).
    pub checksum: bool,
}

impl RdbEncodeOptions {
    fn form(&self) -> Form {
        Form::of_version(self.version)
    }
}

/// Writes the signature, and the aux fields.
pub fn header(out: &mut Vec<u8>, options: &RdbEncodeOptions, aux: &[(&str, String)]) {
    let magic = match VALKEY_VERSIONS.contains(&options.version) {
        true => format!("VALKEY{:03}", options.version),
        false => format!("REDIS{:04}", options.version),
    };
    out.extend_from_slice(magic.as_bytes());
    for (name, value) in aux {
        with_writer(out, options, |writer| {
            writer.byte(opcode::AUX);
            writer.string(name.as_bytes());
            writer.string(value.as_bytes());
        });
    }
}

/// Returns the aux fields that servers write: version, creation time, memory in use, and whether it is the base
/// of an append-only file. The aux fields about replication, if any, come after these.
pub fn own_fields(now_ms: u64, used_bytes: u64, is_aof_base: bool) -> Vec<(&'static str, String)> {
    vec![
        ("redis-ver", REDIS_VERSION.to_owned()),
        ("redis-bits", usize::BITS.to_string()),
        ("ctime", (now_ms / 1000).to_string()),
        ("used-mem", used_bytes.to_string()),
        ("aof-base", u8::from(is_aof_base).to_string()),
    ]
}

/// Name of the field with the last fencing token issued for a lock.
pub const LAST_FENCE: &str = "basalt-fence";

/// Name of the fields with the fencing token of a lock: the lock's database, the token, the digest of the
/// lock's owner, and the lock's key, separated by spaces.
pub const LOCK: &str = "basalt-lock";

/// Writes the fencing token of a lock, as a field that other servers skip.
pub fn fence(out: &mut Vec<u8>, db: usize, key: &[u8], fence: Fence) {
    append(out, |writer| {
        let (number, owner) = fence.texts();
        let mut value = format!("{db} {number} {owner} ").into_bytes();
        value.extend_from_slice(key);
        writer.byte(opcode::AUX);
        writer.string(LOCK.as_bytes());
        writer.string(&value);
    });
}

/// Parses the value of a `LOCK` field into the database, the key and the fencing token.
pub fn parse_fence(value: &[u8]) -> Option<(usize, &[u8], Fence)> {
    let mut parts = value.splitn(4, |byte| *byte == b' ');
    let db = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
    let fence = Fence::parse(parts.next()?, parts.next()?)?;
    Some((db, parts.next()?, fence))
}

/// Name of the fields with a blessed key: its database and the key, separated by a space.
pub const BLESSED: &str = "basalt-blessed";

/// Writes that a key is blessed, as a field that other servers skip.
pub fn blessing(out: &mut Vec<u8>, db: usize, key: &[u8]) {
    append(out, |writer| {
        let mut value = format!("{db} ").into_bytes();
        value.extend_from_slice(key);
        writer.byte(opcode::AUX);
        writer.string(BLESSED.as_bytes());
        writer.string(&value);
    });
}

/// Parses the value of a `BLESSED` field into the database and the key.
pub fn parse_blessing(value: &[u8]) -> Option<(usize, &[u8])> {
    let mut parts = value.splitn(2, |byte| *byte == b' ');
    let db = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
    Some((db, parts.next()?))
}

/// Name of the aux fields that contain a [`SlotNote`].
pub const SLOTS: &str = "basalt-slots";

/// Writes a record of an interrupted slot migration, whose slots' keys may have to be removed, as an aux field
/// that other servers skip.
pub fn slot_note(out: &mut Vec<u8>, note: &SlotNote) {
    append(out, |writer| {
        writer.byte(opcode::AUX);
        writer.string(SLOTS.as_bytes());
        writer.string(&note.text());
    });
}

/// Writes a function library.
pub fn function(out: &mut Vec<u8>, source: &[u8], options: &RdbEncodeOptions) {
    with_writer(out, options, |writer| {
        writer.byte(opcode::FUNCTION);
        writer.string(source);
    });
}

/// Selects the database of the keys that follow.
pub fn select_db(out: &mut Vec<u8>, db: usize) {
    append(out, |writer| {
        writer.byte(opcode::SELECT_DB);
        writer.length(db as u64);
    });
}

/// Writes how many keys follow in this database, and how many of them have a deadline. Readers reserve capacity for
/// them but do not rely on it.
pub fn resize_db(out: &mut Vec<u8>, keys: u64, expires: u64) {
    append(out, |writer| {
        writer.byte(opcode::RESIZE_DB);
        writer.length(keys);
        writer.length(expires);
    });
}

/// Writes a key as of a moment, with its access data if the eviction policy needs them. Returns the lowest RDB
/// version that supports the entry. If it is above the header's version, older servers refuse this key's type.
pub fn entry(
    out: &mut Vec<u8>,
    entry: EntryRef<'_, Object>,
    used: Option<Access>,
    now_ms: u64,
    options: &RdbEncodeOptions,
) -> u16 {
    with_writer(out, options, |writer| {
        if let Some(at_ms) = entry.deadline() {
            writer.byte(opcode::DEADLINE_MS);
            writer.millis(at_ms);
        }
        match used {
            Some(Access::LastAt(at_ms)) => {
                writer.byte(opcode::IDLE);
                writer.length(now_ms.saturating_sub(at_ms) / 1000);
            }
            Some(Access::Frequency(frequency)) => {
                writer.byte(opcode::FREQUENCY);
                writer.byte(frequency);
            }
            None => {}
        }
        writer.key(entry.key());
        serial::write(entry, now_ms, writer);
    })
}

/// Writes the basalt-only metadata of the next key in an auxiliary field, which other servers skip.
pub fn marks(out: &mut Vec<u8>, marks: &Marks<'_>, options: &RdbEncodeOptions) {
    let mut value = marks.stale_ms.to_le_bytes().to_vec();
    for tag in &marks.tags {
        value.extend_from_slice(&(tag.len() as u32).to_le_bytes());
        value.extend_from_slice(tag);
    }
    with_writer(out, options, |writer| {
        writer.byte(opcode::AUX);
        writer.string(super::MARKS);
        writer.string(&value);
    });
}

/// Writes a key of type string without its value, which the caller appends with [`text_or_length`].
pub fn entry_without_text(
    out: &mut Vec<u8>,
    entry: EntryRef<'_, Object>,
    options: &RdbEncodeOptions,
) {
    with_writer(out, options, |writer| {
        if let Some(at_ms) = entry.deadline() {
            writer.byte(opcode::DEADLINE_MS);
            writer.millis(at_ms);
        }
        // The writer has already written the type byte of strings.
        writer.key(entry.key());
    });
}

/// Writes the beginning of a key with a large collection; [`piece`] appends its pieces.
pub fn begin_large(
    out: &mut Vec<u8>,
    entry: EntryRef<'_, Object>,
    now_ms: u64,
    options: &RdbEncodeOptions,
) -> CollectionShape {
    let mut writer = Writer::behind(std::mem::take(out), options.form(), options.compress);
    if let Some(at_ms) = entry.deadline() {
        writer.byte(opcode::DEADLINE_MS);
        writer.millis(at_ms);
    }
    writer.key(entry.key());
    let shape = CollectionShape::begin(entry, now_ms, &mut writer);
    (*out, _) = writer.finish();
    shape
}

/// Writes a piece of a large collection; returns the piece's number of elements, as [`CollectionShape::count`] counts
/// them. Long strings are not written but added to `blocks`, with their positions in `out`; see
/// [`text_or_length`].
pub fn piece(
    out: &mut Vec<u8>,
    blocks: &mut Vec<(usize, SharedBlock)>,
    piece: &CollectionPiece<'_>,
    shape: &CollectionShape,
    options: &RdbEncodeOptions,
) -> u64 {
    let writer = Writer::behind(std::mem::take(out), options.form(), options.compress);
    let mut writer = writer.share();
    let count = shape.piece(piece, &mut writer);
    blocks.append(&mut writer.take_shared());
    (*out, _) = writer.finish();
    count
}

/// Writes the part after the last piece of a large collection.
pub fn end_large(out: &mut Vec<u8>, shape: &CollectionShape, options: &RdbEncodeOptions) {
    let mut writer = Writer::behind(std::mem::take(out), options.form(), options.compress);
    shape.end(&mut writer);
    (*out, _) = writer.finish();
}

/// Writes a string compressed, if that makes it shorter, and returns true. Otherwise writes only its length and
/// returns false; the caller then appends the string.
pub fn text_or_length(out: &mut Vec<u8>, text: &[u8], compress: bool) -> bool {
    let options = RdbEncodeOptions {
        version: V10,
        compress,
        checksum: false,
    };
    let mut is_whole = true;
    with_writer(out, &options, |writer| {
        is_whole = writer.long_string(text);
    });
    is_whole
}

/// Writes the end of a snapshot: the opcode and the checksum. `crc` covers everything before and the opcode
/// (see [`END`]); `None` for no checksum.
pub fn end(out: &mut Vec<u8>, crc: Option<u64>) {
    out.extend_from_slice(END);
    out.extend_from_slice(&crc.unwrap_or(0).to_le_bytes());
}

/// The last byte that the checksum covers.
pub const END: &[u8] = &[opcode::END];

fn append(out: &mut Vec<u8>, write: impl FnOnce(&mut Writer)) {
    let options = RdbEncodeOptions {
        version: V10,
        compress: false,
        checksum: false,
    };
    with_writer(out, &options, write);
}

/// Runs `write` on a writer that appends to `out`; returns the lowest RDB version that supports what it wrote.
fn with_writer(
    out: &mut Vec<u8>,
    options: &RdbEncodeOptions,
    write: impl FnOnce(&mut Writer),
) -> u16 {
    let mut writer = Writer::behind(std::mem::take(out), options.form(), options.compress);
    write(&mut writer);
    let (bytes, version) = writer.finish();
    *out = bytes;
    version
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_core::base::checksum;
    use basalt_engine::value::string_entry;

    /// `SET k v PXAT 1893456000000` in database 3 of redis-server 7.0.15, without aux fields: byte for byte.
    #[test]
    fn a_small_file_is_that_of_redis() {
        let options = RdbEncodeOptions {
            version: V10,
            compress: true,
            checksum: true,
        };
        let mut out = Vec::new();
        header(&mut out, &options, &[]);
        select_db(&mut out, 3);
        resize_db(&mut out, 1, 1);
        let value = string_entry(b"k", b"v", Some(1_893_456_000_000));
        entry(&mut out, value.view(), None, 0, &options);
        let crc = checksum::update(checksum::crc64(&out), END);
        end(&mut out, Some(crc));
        let expected =
            b"REDIS0010\xfe\x03\xfb\x01\x01\xfc\x00\xb4\xc5\xda\xb8\x01\x00\x00\x00\x01k\x01v\xff";
        let (body, sum) = out.split_at(out.len() - 8);
        assert_eq!(body, expected);
        assert_eq!(sum, checksum::crc64(body).to_le_bytes());
    }

    #[test]
    fn fences_are_fields_that_are_read_as_they_were_written() {
        let (key, told) = (
            b"a key\r\n \xff",
            Fence::of(1_700_000_000_000_000, b"owner"),
        );
        let mut out = Vec::new();
        fence(&mut out, 15, key, told);
        assert_eq!(out[..13], *b"\xfa\x0bbasalt-lock");
        assert_eq!(parse_fence(&out[14..]), Some((15, &key[..], told)));
        for broken in [
            &b""[..],
            b"1",
            b"x 1 0123456789abcdef k",
            b"1 k",
            b"1 1 k",
            b"1 1 0123456789abcdef",
        ] {
            assert_eq!(parse_fence(broken), None);
        }
    }

    #[test]
    fn blessings_are_fields_that_are_read_as_they_were_written() {
        let mut out = Vec::new();
        blessing(&mut out, 15, b"a key\r\n \xff");
        assert_eq!(out[..16], *b"\xfa\x0ebasalt-blessed");
        assert_eq!(
            parse_blessing(&out[17..]),
            Some((15, &b"a key\r\n \xff"[..]))
        );
        for broken in [&b""[..], b"1", b"x k", b" k", b"-1 k"] {
            assert_eq!(parse_blessing(broken), None);
        }
    }

    #[test]
    fn what_is_known_of_a_keys_use_stands_before_it() {
        let options = RdbEncodeOptions {
            version: V10,
            compress: true,
            checksum: true,
        };
        let value = string_entry(b"k", b"12", None);
        let mut out = Vec::new();
        let used = Some(Access::LastAt(1_000));
        let version = entry(&mut out, value.view(), used, 6_500, &options);
        assert_eq!(
            (out.as_slice(), version),
            (&b"\xf8\x05\x00\x01k\xc0\x0c"[..], V10)
        );
        out.clear();
        entry(
            &mut out,
            value.view(),
            Some(Access::Frequency(7)),
            0,
            &options,
        );
        assert_eq!(out, b"\xf9\x07\x00\x01k\xc0\x0c");
    }
}
