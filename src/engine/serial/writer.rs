//! Writes lengths, strings and numbers in the form shared by snapshots and DUMP. Knows nothing of values and frames.

use super::{Form, V10, form};
use basalt_core::base::number;
use basalt_core::structures::block::SharedBlock;
use basalt_core::structures::item::Item;
use basalt_core::structures::listpack::Element;
use basalt_core::structures::lzf;

/// Minimum length of strings that can be compressed.
const COMPRESSED_BYTES_MIN: usize = 21;

/// Maximum text length of an integer of 32 bits.
const PACKED_TEXT_BYTES_MAX: usize = 11;

/// An output buffer. It also tracks the version of the format that a reader must support.
pub struct Writer {
    bytes: Vec<u8>,
    version: u16,
    compresses: bool,
    form: Form,
    /// Position reserved for the type byte of the next value, if the type precedes the key, as in snapshots.
    kind_at: Option<usize>,
    /// Long strings that are shared instead of copied, if enabled: each belongs before the byte at its position,
    /// where its length has been written already.
    shared: Option<Vec<(usize, SharedBlock)>>,
}

impl Writer {
    /// Creates an empty writer.
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

    /// Makes the writer share long strings that are blocks: [`Writer::take_shared`] returns them.
    pub fn share(mut self) -> Writer {
        self.shared = Some(Vec::new());
        self
    }

    /// Returns the strings that were shared instead of written, with their positions.
    pub fn take_shared(&mut self) -> Vec<(usize, SharedBlock)> {
        self.shared.take().unwrap_or_default()
    }

    /// Creates a writer that appends to existing bytes.
    pub fn behind(bytes: Vec<u8>, form: Form, compresses: bool) -> Writer {
        Writer {
            bytes,
            ..Writer::new(form, compresses)
        }
    }

    /// Returns the written bytes, and the lowest format version that can represent them.
    pub fn finish(self) -> (Vec<u8>, u16) {
        (self.bytes, self.version)
    }

    /// Returns the bytes written so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all written bytes, but keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.version = V10;
    }

    /// Returns the form in which values are written.
    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// Raises the format version that a reader must support to at least this one.
    pub(super) fn needs(&mut self, version: u16) {
        self.version = self.version.max(version);
    }

    /// Writes a byte.
    pub fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// Reserves the position for the type byte of the next value, and writes its key: in snapshots both precede the
    /// value.
    pub fn key(&mut self, key: &[u8]) {
        self.kind_at = Some(self.bytes.len());
        self.bytes.push(0);
        self.string(key);
    }

    /// Writes the type of a value.
    pub(super) fn kind(&mut self, kind: u8) {
        match self.kind_at.take() {
            Some(at) => self.bytes[at] = kind,
            None => self.bytes.push(kind),
        }
    }

    /// Writes bytes unchanged.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Writes a length, or any number that is usually small.
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

    /// Writes a string: as an integer if it is the text of a 32-bit integer, else compressed if that makes it
    /// shorter, else unchanged.
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

    /// Writes a long string compressed, if that makes it shorter, and returns true; otherwise writes only its length
    /// and returns false.
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

    /// Writes a string that is already compressed, with its uncompressed length.
    pub(super) fn compressed(&mut self, packed: &[u8], length: usize) {
        self.bytes.push(form::LZF);
        self.length(packed.len() as u64);
        self.length(length as u64);
        self.bytes.extend_from_slice(packed);
    }

    /// Writes a string that is an integer.
    pub fn integer(&mut self, number: i64) {
        if !self.small_integer(number) {
            let mut digits = itoa::Buffer::new();
            let text = digits.format(number).as_bytes();
            self.length(text.len() as u64);
            self.bytes.extend_from_slice(text);
        }
    }

    /// Writes a string from a packed structure.
    pub(super) fn element(&mut self, element: Element<'_>) {
        match element {
            Element::Integer(number) => self.integer(number),
            Element::Bytes(bytes) => self.string(bytes),
        }
    }

    /// Writes a string from any collection.
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

    /// Writes a binary double.
    pub(super) fn double(&mut self, number: f64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    /// Writes a time in Unix milliseconds.
    pub fn millis(&mut self, unix_ms: u64) {
        self.bytes.extend_from_slice(&unix_ms.to_le_bytes());
    }
}
