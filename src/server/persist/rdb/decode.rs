//! Reads a snapshot record by record: finds where each record begins and ends, and decodes data other than
//! keys. Values stay undecoded bytes; `engine::serial` decodes them, on any thread.
//!
//! The input is untrusted: memory for a claimed length is allocated only as the bytes arrive.

use std::io::Read;
use std::sync::Arc;

use super::encode::SLOTS;
use super::fault::Fault;
use super::source::{RdbInput, STRETCH_BYTES};
use super::{MARKS, opcode};
use basalt_commands::cluster::node_id::NodeId;
use basalt_commands::cluster::slot_note::SlotNote;
use basalt_commands::cluster::slot_set::SlotSet;
use basalt_core::base::hash;
use basalt_engine::restored_access::Access;
use basalt_engine::serial::reader::{DecodeContext, Reader};
use basalt_engine::serial::{Malformed, REDIS_VERSION_MAX, VALKEY_VERSIONS, types};

/// Longer names and values of aux fields are not kept.
const AUX_BYTES_MAX: usize = 64 * 1024;

/// Maximum entries of a stretch: with the decoded values they fit a core's cache.
const STRETCH_ENTRIES: usize = 2_048;

/// A key with its value, undecoded, by its position in a stretch.
#[derive(Clone, Copy, Debug)]
pub struct RawEntry {
    /// Index of the database.
    pub db: usize,
    /// Expiry deadline in Unix milliseconds, if any.
    pub deadline: Option<u64>,
    /// Access time or frequency, if recorded.
    pub used: Option<Access>,
    /// Offset in the stretch of the entry's type byte; key and value follow.
    pub at: usize,
    /// Offset in the stretch after the entry's last byte.
    pub end: usize,
    /// Range in the stretch of the key's metadata that only this server knows (`MARKS`), as an
    /// RDB string.
    pub marks: Option<(usize, usize)>,
}

/// Consecutive records of a snapshot, decoded together on one thread.
#[derive(Debug, Default)]
pub struct RdbRecordBatch {
    /// Bytes of the records.
    pub bytes: Vec<u8>,
    /// The keys among the records.
    pub entries: Vec<RawEntry>,
    /// Offset in the snapshot of the stretch's first byte.
    pub offset: u64,
    /// Context for decoding: the flavor of the saving server (Redis or Valkey), and the hash templates that
    /// values refer to.
    pub origin: Arc<DecodeContext>,
}

impl RdbRecordBatch {
    /// Returns the error for a value that cannot be decoded: a module that does not exist here is named.
    pub fn fault(&self, raw: &RawEntry, key: Vec<u8>, error: Malformed) -> Fault {
        let rdb_type = self.bytes[raw.at];
        if error == Malformed::MODULE {
            let mut reader = Reader::new(&self.bytes[raw.at + 1..raw.end], usize::MAX);
            if let (Ok(_), Ok(number)) = (reader.string(), reader.length()) {
                return Fault::Module { key, number };
            }
        }
        let why = error.0;
        Fault::Value { key, rdb_type, why }
    }
}

/// A record that is not a key.
#[derive(Debug)]
pub enum NonKeyRecord {
    /// An aux field: its name and its value.
    Aux(Vec<u8>, Vec<u8>),
    /// The source of a function library, as an RDB string.
    Function(Vec<u8>),
    /// Number of keys that follow in a database, and of those with a deadline.
    Sizes {
        /// Index of the database.
        db: usize,
        /// Number of keys.
        keys: u64,
        /// Number of keys with a deadline.
        expires: u64,
    },
    /// An interrupted slot migration of the saving server, whose slots' keys may have to be removed.
    Slots(SlotNote),
    /// Data of a module outside of keys, which this server ignores: the module's number.
    Module(u64),
}

/// The next part of a snapshot.
#[derive(Debug)]
pub enum RdbPart {
    /// A full stretch of records with keys.
    Entries(RdbRecordBatch),
    /// A record that is not a key.
    NonKey(NonKeyRecord),
    /// The end of the snapshot, with the last stretch before it.
    End(RdbRecordBatch),
}

/// A decoder that reads a snapshot record by record.
pub struct Decoder<'s> {
    source: RdbInput<'s>,
    version: u16,
    origin: Arc<DecodeContext>,
    databases: usize,
    checks: bool,
    now_ms: u64,
    db: usize,
    deadline: Option<u64>,
    used: Option<Access>,
    marks: Option<(usize, usize)>,
    entries: Vec<RawEntry>,
    /// Offset in the snapshot of the record being read.
    record: u64,
    /// Whether the snapshot ended with a checksum.
    is_summed: bool,
}

/// Limits for a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct RdbDecodeLimits {
    /// Number of databases of this server.
    pub databases: usize,
    /// Whether to verify the checksum.
    pub checks: bool,
    /// Current time in Unix milliseconds, for times that a snapshot stores relative to now.
    pub now_ms: u64,
}

impl<'s> Decoder<'s> {
    /// Creates a decoder and reads the signature. `begun` contains the first bytes of the snapshot, which were
    /// already read from `from`.
    pub fn new(
        from: &'s mut dyn Read,
        begun: Vec<u8>,
        bounds: RdbDecodeLimits,
    ) -> Result<Decoder<'s>, Fault> {
        let mut source = RdbInput::new(from, begun)?;
        let is_packed = source.is_packed();
        let first: [u8; 9] = source.array()?;
        let version = version_of(&first)?;
        Ok(Decoder {
            source,
            version,
            origin: Arc::new(DecodeContext {
                is_valkey: VALKEY_VERSIONS.contains(&version),
                ..DecodeContext::default()
            }),
            databases: bounds.databases,
            // A compressed snapshot has checksums in its frame.
            checks: bounds.checks && !is_packed,
            now_ms: bounds.now_ms,
            db: 0,
            deadline: None,
            used: None,
            marks: None,
            entries: Vec::new(),
            record: 0,
            is_summed: false,
        })
    }

    /// Returns the version of the format.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Returns the number of bytes read.
    pub fn offset(&self) -> u64 {
        self.source.offset()
    }

    /// Returns the number of bytes of the file read: fewer than [`Decoder::offset`] if it is compressed.
    pub fn consumed(&self) -> u64 {
        self.source.consumed()
    }

    /// Returns the offset of the last record read or, after an error, of the invalid record.
    pub fn record_offset(&self) -> u64 {
        self.record
    }

    /// True if the snapshot ended with a checksum.
    pub fn is_summed(&self) -> bool {
        self.is_summed
    }

    /// Returns the bytes read beyond the end of the snapshot.
    pub fn rest(&self) -> &[u8] {
        self.source.rest()
    }

    /// Takes back a stretch's memory for reuse.
    pub fn give_back(&mut self, stretch: RdbRecordBatch) {
        self.source.give_back(stretch.bytes);
    }

    /// Reads the next part of the snapshot.
    pub fn read(&mut self) -> Result<RdbPart, Fault> {
        loop {
            let is_full =
                self.source.at() >= STRETCH_BYTES || self.entries.len() >= STRETCH_ENTRIES;
            let is_between = self.deadline.is_none() && self.used.is_none() && self.marks.is_none();
            if is_full && is_between {
                return Ok(RdbPart::Entries(self.stretch()));
            }
            self.record = self.source.offset();
            if let Some(next) = self.record()? {
                return Ok(next);
            }
        }
    }

    fn stretch(&mut self) -> RdbRecordBatch {
        let offset = self.source.offset() - self.source.at() as u64;
        RdbRecordBatch {
            bytes: self.source.take(),
            entries: std::mem::take(&mut self.entries),
            offset,
            origin: Arc::clone(&self.origin),
        }
    }

    /// Reads one record. A key is added to the current stretch, and `None` is returned for it and for
    /// attributes of the next key.
    fn record(&mut self) -> Result<Option<RdbPart>, Fault> {
        let at = self.source.at();
        let code = self.source.byte()?;
        if self.note(code)? {
            return Ok(None);
        }
        let aside = match code {
            opcode::RESIZE_DB => NonKeyRecord::Sizes {
                db: self.db,
                keys: self.length()?,
                expires: self.length()?,
            },
            opcode::AUX => match self.aux()? {
                Some(aside) => aside,
                None => return Ok(None),
            },
            opcode::FUNCTION => self.function()?,
            opcode::FUNCTION_PRE_GA => {
                return Err(Fault::Function(
                    "Pre-release function format not supported.".to_owned(),
                ));
            }
            opcode::MODULE_AUX => {
                let module = self.length()?;
                self.skip_module()?;
                NonKeyRecord::Module(module)
            }
            opcode::TEMPLATE if !self.origin.is_valkey => {
                self.template()?;
                return Ok(None);
            }
            opcode::KEY_METADATA if self.origin.is_valkey => {
                NonKeyRecord::Slots(self.slots_coming()?)
            }
            opcode::KEY_METADATA => {
                if self.length()? > 0 {
                    return Err(Fault::Form(
                        "Module metadata of a key; the module is not available",
                    ));
                }
                return Ok(None);
            }
            opcode::END => {
                self.check_sum()?;
                self.source.check_end()?;
                return Ok(Some(RdbPart::End(self.stretch())));
            }
            kind => {
                let key_at = self.source.at();
                self.skip_string()?;
                self.skip_value(kind).map_err(|fault| match fault {
                    Fault::Foreign { what, .. } => Fault::Foreign {
                        key: key_of(self.source.since(key_at)),
                        what,
                    },
                    fault => fault,
                })?;
                self.entries.push(RawEntry {
                    db: self.db,
                    deadline: self.deadline.take(),
                    used: self.used.take(),
                    at,
                    end: self.source.at(),
                    marks: self.marks.take(),
                });
                return Ok(None);
            }
        };
        Ok(Some(RdbPart::NonKey(aside)))
    }

    /// Reads the slots that were migrating to the saving server: the migration's name, and the slot ranges.
    fn slots_coming(&mut self) -> Result<SlotNote, Fault> {
        const WRONG: Fault = Fault::Form("Invalid slot migration data");
        let name = NodeId::from_text(&self.kept_string()?).ok_or(WRONG)?;
        let mut slots = SlotSet::default();
        for _ in 0..self.length()? {
            let (first, last) = (self.length()?, self.length()?);
            if first > last || last >= u64::from(hash::SLOTS) {
                return Err(WRONG);
            }
            (first as u16..=last as u16).for_each(|slot| {
                slots.insert(slot);
            });
        }
        Ok(SlotNote {
            name,
            is_coming: true,
            slots,
        })
    }

    /// Reads the source of a library.
    fn function(&mut self) -> Result<NonKeyRecord, Fault> {
        let from = self.source.at();
        self.skip_string()?;
        Ok(NonKeyRecord::Function(self.source.since(from).to_vec()))
    }

    /// Reads an aux field. Returns `None` for a field with metadata of the next key, which is remembered for
    /// that key.
    fn aux(&mut self) -> Result<Option<NonKeyRecord>, Fault> {
        let name = self.kept_string()?;
        if name != MARKS {
            let value = self.kept_string()?;
            if name == SLOTS.as_bytes()
                && let Some(note) = SlotNote::parse(value.split(|byte| *byte == b' '))
            {
                return Ok(Some(NonKeyRecord::Slots(note)));
            }
            return Ok(Some(NonKeyRecord::Aux(name, value)));
        }
        let from = self.source.at();
        self.skip_string()?;
        self.marks = Some((from, self.source.at()));
        Ok(None)
    }

    /// Reads a record with opcode `code` that sets an attribute of the next key, or selects the database;
    /// returns false for other opcodes.
    fn note(&mut self, code: u8) -> Result<bool, Fault> {
        match code {
            opcode::DEADLINE_S => {
                let seconds = i32::from_le_bytes(self.source.array()?);
                self.deadline = Some(u64::try_from(seconds).unwrap_or(0) * 1000);
            }
            opcode::DEADLINE_MS => {
                let at_ms = i64::from_le_bytes(self.source.array()?);
                // Treat deadlines before the Unix epoch as the epoch.
                self.deadline = match at_ms {
                    -1 => None,
                    at_ms => Some(u64::try_from(at_ms).unwrap_or(0)),
                };
            }
            opcode::IDLE => {
                let idle_ms = self.length()?.saturating_mul(1000);
                self.used = Some(Access::LastAt(self.now_ms.saturating_sub(idle_ms)));
            }
            opcode::FREQUENCY => {
                self.used = Some(Access::Frequency(self.source.byte()?));
            }
            opcode::SELECT_DB => {
                let db = self.length()?;
                let known = usize::try_from(db).ok().filter(|db| *db < self.databases);
                self.db = known.ok_or(Fault::Database(db))?;
            }
            opcode::SLOT_INFO => {
                for _ in 0..3 {
                    self.length()?;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads a template: field names that later hashes share.
    fn template(&mut self) -> Result<(), Fault> {
        let number = self.length()?;
        let mut fields = Vec::new();
        for _ in 0..self.length()? {
            let from = self.source.at();
            self.skip_string()?;
            fields.push(key_of(self.source.since(from)).into_boxed_slice());
        }
        let origin = Arc::make_mut(&mut self.origin);
        match origin.templates.insert(number, fields) {
            None => Ok(()),
            Some(_) => Err(Fault::Form("Duplicate number of a field template")),
        }
    }

    /// Verifies the checksum at the end, which snapshots have since version 5.
    fn check_sum(&mut self) -> Result<(), Fault> {
        if self.version < 5 {
            return Ok(());
        }
        let found = if self.checks { self.source.crc() } else { 0 };
        let expected = u64::from_le_bytes(self.source.array()?);
        // 0 means that the file was saved without a checksum.
        self.is_summed = expected != 0;
        if self.checks && expected != 0 && expected != found {
            return Err(Fault::Checksum { expected, found });
        }
        Ok(())
    }

    /// Reads the start of a string or a length: its length, or the code of a special encoding.
    #[inline]
    fn head(&mut self) -> Result<Result<u64, u8>, Fault> {
        let first = self.source.byte()?;
        Ok(match first {
            0x00..=0x3f => Ok(u64::from(first)),
            0x40..=0x7f => {
                let low = self.source.byte()?;
                Ok(u64::from(first & 0x3f) << 8 | u64::from(low))
            }
            0x80 => Ok(u64::from(u32::from_be_bytes(self.source.array()?))),
            0x81 => Ok(u64::from_be_bytes(self.source.array()?)),
            0xc0.. => Err(first),
            _ => return Err(Fault::Form("A length in an unknown format")),
        })
    }

    #[inline]
    fn length(&mut self) -> Result<u64, Fault> {
        self.head()?
            .map_err(|_| Fault::Form("A string instead of a length"))
    }

    #[inline]
    fn skip_string(&mut self) -> Result<(), Fault> {
        match self.head()? {
            Ok(length) => self.source.skip(length),
            Err(0xc0) => self.source.skip(1),
            Err(0xc1) => self.source.skip(2),
            Err(0xc2) => self.source.skip(4),
            Err(0xc3) => {
                let packed = self.length()?;
                self.length()?;
                self.source.skip(packed)
            }
            Err(_) => Err(Fault::Form("A string in an unknown format")),
        }
    }

    /// Reads a string and returns it; empty if it is longer than `AUX_BYTES_MAX`.
    fn kept_string(&mut self) -> Result<Vec<u8>, Fault> {
        let from = self.source.at();
        self.skip_string()?;
        let raw = self.source.since(from);
        let mut reader = Reader::new(raw, AUX_BYTES_MAX);
        Ok(reader
            .string()
            .map(|text| text.into_owned())
            .unwrap_or_default())
    }

    fn skip_strings(&mut self, count: u64) -> Result<(), Fault> {
        for _ in 0..count {
            self.skip_string()?;
        }
        Ok(())
    }

    /// Skips a value of the type `kind`.
    fn skip_value(&mut self, kind: u8) -> Result<(), Fault> {
        match kind {
            types::STRING
            | types::HASH_ZIPMAP
            | types::LIST_ZIPLIST
            | types::SET_INTSET
            | types::ZSET_ZIPLIST
            | types::HASH_ZIPLIST
            | types::HASH_LISTPACK
            | types::ZSET_LISTPACK
            | types::SET_LISTPACK
            | types::HASH_LISTPACK_EX_RC => self.skip_string(),
            types::HASH_LISTPACK_EX => {
                self.source.skip(8)?;
                self.skip_string()
            }
            types::LIST | types::SET | types::LIST_QUICKLIST => {
                let count = self.length()?;
                self.skip_strings(count)
            }
            types::HASH => {
                let count = self.length()?;
                for _ in 0..count {
                    self.skip_strings(2)?;
                }
                Ok(())
            }
            types::ZSET | types::ZSET_2 => {
                for _ in 0..self.length()? {
                    self.skip_string()?;
                    let bytes = match kind {
                        types::ZSET_2 => 8,
                        _ => match self.source.byte()? {
                            253.. => 0,
                            bytes => u64::from(bytes),
                        },
                    };
                    self.source.skip(bytes)?;
                }
                Ok(())
            }
            types::LIST_QUICKLIST_2 => {
                for _ in 0..self.length()? {
                    self.length()?;
                    self.skip_string()?;
                }
                Ok(())
            }
            types::VALKEY_HASH_2 if self.origin.is_valkey => {
                for _ in 0..self.length()? {
                    self.skip_strings(2)?;
                    self.source.skip(8)?;
                }
                Ok(())
            }
            types::HASH_TEMPLATE_LISTPACK
            | types::HASH_TEMPLATE_LISTPACK_REF
            | types::HASH_TEMPLATE_ARRAY
            | types::HASH_TEMPLATE_ARRAY_REF
            | types::HASH_METADATA
            | types::HASH_METADATA_RC => self.skip_hash(kind),
            types::STREAM_LISTPACKS
            | types::STREAM_LISTPACKS_2
            | types::STREAM_LISTPACKS_3
            | types::STREAM_LISTPACKS_4
            | types::STREAM_LISTPACKS_5 => self.skip_stream(kind),
            types::MODULE => Err(foreign("a module value from before Redis 4")),
            types::ARRAY => Err(foreign("an array of Redis 8.8")),
            types::GCRA => Err(foreign("a rate limiter (GCRA) of Redis 8")),
            types::MODULE_2 => {
                self.length()?;
                self.skip_module()
            }
            kind => Err(Fault::Opcode(kind)),
        }
    }

    /// Skips a hash of Redis 7.4 and later.
    fn skip_hash(&mut self, kind: u8) -> Result<(), Fault> {
        match kind {
            types::HASH_TEMPLATE_LISTPACK => {
                let count = self.length()?;
                self.skip_strings(count)?;
                self.skip_string()
            }
            types::HASH_TEMPLATE_LISTPACK_REF => self.skip_string(),
            types::HASH_TEMPLATE_ARRAY => {
                let count = self.length()?;
                self.skip_strings(count)?;
                self.skip_strings(count)
            }
            types::HASH_TEMPLATE_ARRAY_REF => {
                let number = self.length()?;
                let fields = self.origin.templates.get(&number).map(Vec::len);
                let fields = fields.ok_or(Fault::Form("Missing field template"))?;
                self.skip_strings(fields as u64)
            }
            types::HASH_METADATA | types::HASH_METADATA_RC => {
                if kind == types::HASH_METADATA {
                    self.source.skip(8)?;
                }
                for _ in 0..self.length()? {
                    self.length()?;
                    self.skip_strings(2)?;
                }
                Ok(())
            }
            kind => Err(Fault::Opcode(kind)),
        }
    }

    fn skip_stream(&mut self, kind: u8) -> Result<(), Fault> {
        for _ in 0..self.length()? {
            self.skip_strings(2)?;
        }
        let is_old = kind == types::STREAM_LISTPACKS;
        for _ in 0..if is_old { 3 } else { 8 } {
            self.length()?;
        }
        for _ in 0..self.length()? {
            self.skip_string()?;
            for _ in 0..if is_old { 2 } else { 3 } {
                self.length()?;
            }
            for _ in 0..self.length()? {
                self.source.skip(24)?;
                self.length()?;
            }
            for _ in 0..self.length()? {
                self.skip_string()?;
                let has_activity = kind >= types::STREAM_LISTPACKS_3;
                self.source.skip(if has_activity { 16 } else { 8 })?;
                for _ in 0..self.length()? {
                    self.source.skip(16)?;
                }
            }
            if kind == types::STREAM_LISTPACKS_5 {
                for _ in 0..self.length()? {
                    self.source.skip(16)?;
                }
            }
        }
        if matches!(kind, types::STREAM_LISTPACKS_4 | types::STREAM_LISTPACKS_5) {
            self.length()?;
            self.length()?;
            for _ in 0..self.length()? {
                self.skip_string()?;
                for _ in 0..self.length()? {
                    self.skip_string()?;
                    self.length()?;
                    self.length()?;
                }
            }
            self.length()?;
            self.length()?;
        }
        Ok(())
    }

    /// Skips a module's data: tagged pieces up to an end marker.
    fn skip_module(&mut self) -> Result<(), Fault> {
        loop {
            match self.length()? {
                0 => return Ok(()),
                1 | 2 => {
                    self.length()?;
                }
                3 => self.source.skip(4)?,
                4 => self.source.skip(8)?,
                5 => self.skip_string()?,
                _ => {
                    return Err(Fault::Form("Unknown opcode in a module value"));
                }
            }
        }
    }
}

/// Returns the error for a value of an unsupported type; the caller fills in the key.
fn foreign(what: &'static str) -> Fault {
    let key = Vec::new();
    Fault::Foreign { key, what }
}

/// Reads the string at the beginning of some bytes.
fn key_of(raw: &[u8]) -> Vec<u8> {
    let key = Reader::new(raw, raw.len().max(AUX_BYTES_MAX)).string();
    key.map(|key| key.into_owned()).unwrap_or_default()
}

/// Parses the RDB version from the signature.
fn version_of(first: &[u8; 9]) -> Result<u16, Fault> {
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u32>().ok();
    let known = |version: u32| u16::try_from(version).ok();
    if let Some(digits) = first.strip_prefix(b"VALKEY") {
        let version = number(digits).ok_or(Fault::Signature(*first))?;
        let known = known(version).filter(|version| VALKEY_VERSIONS.contains(version));
        return known.ok_or(Fault::Valkey(version));
    }
    let digits = first
        .strip_prefix(b"REDIS")
        .ok_or(Fault::Signature(*first))?;
    let version = number(digits).ok_or(Fault::Signature(*first))?;
    let known = known(version).filter(|version| (1..=REDIS_VERSION_MAX).contains(version));
    known.ok_or(Fault::Version(version))
}
