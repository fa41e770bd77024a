//! Writes lengths, strings and numbers in the form that snapshots and DUMP share. Knows no value and no frame.

use super::{Form, V10, form};
use basalt_core::base::number;
use basalt_core::structures::block::Block;
use basalt_core::structures::item::Item;
use basalt_core::structures::listpack::Element;
use basalt_core::structures::lzf;

/// Shorter strings do not shrink.
const COMPRESSED_BYTES_MIN: usize = 21;

/// Longest text of an integer of 32 bits.
const PACKED_TEXT_BYTES_MAX: usize = 11;

/// Bytes under way. It also learns which version of the format a reader must know.
pub struct Writer {
    bytes: Vec<u8>,
    version: u16,
    compresses: bool,
    form: Form,
    /// Where the type of the value that comes next is to stand, if its place was left before its key.
    kind_at: Option<usize>,
    /// Long strings that are shared instead of written, if somebody takes them: each belongs before the byte at its
    /// position, behind its length.
    shared: Option<Vec<(usize, Block)>>,
}

impl Writer {
    /// Nothing yet.
    pub fn new(form: Form, compresses: bool) -> Writer {
        Writer {
            bytes: Vec::new(),
            version: V10,
            compresses,
            form,
            kind_at: None,
            shared: None,
        }
    }

    /// From now on long strings of their own are not written but handed out by [`Writer::take_shared`].
    pub fn share(mut self) -> Writer {
        self.shared = Some(Vec::new());
        self
    }

    /// Strings that were shared instead of written, with their positions.
    pub fn take_shared(&mut self) -> Vec<(usize, Block)> {
        self.shared.take().unwrap_or_default()
    }

    /// Goes on behind bytes that were written before.
    pub fn behind(bytes: Vec<u8>, form: Form, compresses: bool) -> Writer {
        Writer {
            bytes,
            ..Writer::new(form, compresses)
        }
    }

    /// What was written, and the lowest version that can carry it.
    pub fn finish(self) -> (Vec<u8>, u16) {
        (self.bytes, self.version)
    }

    /// What has been written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets what was written, but keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.version = V10;
    }

    /// Which forms to choose.
    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// What follows is known from this version on.
    pub(super) fn needs(&mut self, version: u16) {
        self.version = self.version.max(version);
    }

    /// A byte.
    pub fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// Leaves a place for the type of the value that comes next, and writes its key: snapshots have both before the
    /// value.
    pub fn key(&mut self, key: &[u8]) {
        self.kind_at = Some(self.bytes.len());
        self.bytes.push(0);
        self.string(key);
    }

    /// The type of a value.
    pub(super) fn kind(&mut self, kind: u8) {
        match self.kind_at.take() {
            Some(at) => self.bytes[at] = kind,
            None => self.bytes.push(kind),
        }
    }

    /// Bytes as they are.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A length, or any number that is small more often than not.
    pub fn length(&mut self, length: u64) {
        match length {
            0..=0x3f => self.bytes.push(length as u8),
            0x40..=0x3fff => {
                let bytes = (length as u16 | u16::from(form::LENGTH_14) << 8).to_be_bytes();
                self.bytes.extend_from_slice(&bytes);
            }
            0x4000..=0xffff_ffff => {
                self.bytes.push(form::LENGTH_32);
                self.bytes.extend_from_slice(&(length as u32).to_be_bytes());
            }
            _ => {
                self.bytes.push(form::LENGTH_64);
                self.bytes.extend_from_slice(&length.to_be_bytes());
            }
        }
    }

    /// A string: as an integer if it is one of 32 bits, else compressed if that helps, else as it is.
    pub fn string(&mut self, text: &[u8]) {
        if text.len() <= PACKED_TEXT_BYTES_MAX
            && let Some(number) = number::parse_i64(text)
            && self.small_integer(number)
        {
            return;
        }
        if self.compresses
            && text.len() >= COMPRESSED_BYTES_MIN
            && let Some(packed) = lzf::compress(text)
        {
            self.compressed(&packed, text.len());
            return;
        }
        self.length(text.len() as u64);
        self.bytes.extend_from_slice(text);
    }

    /// A long string compressed, if that helps; or its length alone, and the answer is false.
    pub fn long_string(&mut self, text: &[u8]) -> bool {
        if self.compresses
            && let Some(packed) = lzf::compress(text)
        {
            self.compressed(&packed, text.len());
            return true;
        }
        self.length(text.len() as u64);
        false
    }

    /// A string that is compressed already, and its length when it is not.
    pub(super) fn compressed(&mut self, packed: &[u8], length: usize) {
        self.bytes.push(form::LZF);
        self.length(packed.len() as u64);
        self.length(length as u64);
        self.bytes.extend_from_slice(packed);
    }

    /// A string that is an integer.
    pub fn integer(&mut self, number: i64) {
        if !self.small_integer(number) {
            let mut digits = itoa::Buffer::new();
            let text = digits.format(number).as_bytes();
            self.length(text.len() as u64);
            self.bytes.extend_from_slice(text);
        }
    }

    /// A string that comes out of a packed structure.
    pub(super) fn element(&mut self, element: Element<'_>) {
        match element {
            Element::Integer(number) => self.integer(number),
            Element::Bytes(bytes) => self.string(bytes),
        }
    }

    /// A string that comes out of any collection.
    pub(super) fn item(&mut self, item: Item<'_>) {
        match item {
            Item::Element(element) => self.element(element),
            Item::Block(block) => match &mut self.shared {
                Some(shared) => shared.push((self.bytes.len(), block.clone())),
                None => self.string(block),
            },
        }
    }

    fn small_integer(&mut self, number: i64) -> bool {
        let bytes = number.to_le_bytes();
        let (code, count) = match number {
            -0x80..=0x7f => (form::INT_8, 1),
            -0x8000..=0x7fff => (form::INT_16, 2),
            -0x8000_0000..=0x7fff_ffff => (form::INT_32, 4),
            _ => return false,
        };
        self.bytes.push(code);
        self.bytes.extend_from_slice(&bytes[..count]);
        true
    }

    /// A double, bit by bit.
    pub(super) fn double(&mut self, number: f64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    /// A time in Unix milliseconds.
    pub fn millis(&mut self, unix_ms: u64) {
        self.bytes.extend_from_slice(&unix_ms.to_le_bytes());
    }
}
