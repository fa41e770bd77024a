//! Strings as handlers read and write them: integers, bytes in the entry, or a shared block.

use super::{DataType, Object, ObjectKind};
use basalt_core::structures::block::SharedBlock;
use basalt_core::structures::entry::{Entry, EntryRef, Value};

/// Maximum bytes of a string reported as `embstr`.
pub const EMBSTR_BYTES_MAX: usize = 44;

/// Strings of at least this length are stored in a shared block, which replies and snapshots reference without
/// copying.
pub const BLOCK_BYTES_MIN: usize = 16 * 1024;

/// A string value as a handler reads it.
#[derive(Clone, Copy)]
pub enum Text<'a> {
    /// Stored as an integer.
    Integer(i64),
    /// Stored inside the entry.
    Bytes(&'a [u8]),
    /// Stored in a shared block.
    Block(&'a SharedBlock),
}

impl<'a> Text<'a> {
    /// Returns the string in an entry; `None` for a collection.
    pub fn of(entry: EntryRef<'a, Object>) -> Option<Text<'a>> {
        Some(match entry.value() {
            Value::Integer(number) => Text::Integer(number),
            Value::Bytes(bytes) if ObjectKind(entry.kind()).data_type() == DataType::String => {
                Text::Bytes(bytes)
            }
            Value::Bytes(_) => return None,
            Value::Block(block) => Text::Block(block),
            Value::Object(_) => return None,
        })
    }

    /// Returns the length of the text in bytes.
    pub fn len(&self) -> usize {
        match self {
            Text::Integer(number) => {
                let digits = number.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 1;
                digits + usize::from(*number < 0)
            }
            Text::Bytes(bytes) => bytes.len(),
            Text::Block(block) => block.len(),
        }
    }

    /// True if the text is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the integer of which the text is the canonical form, if any.
    #[inline]
    pub fn integer(&self) -> Option<i64> {
        match self {
            Text::Integer(number) => Some(*number),
            Text::Bytes(bytes) => basalt_core::base::number::parse_i64(bytes),
            Text::Block(_) => None,
        }
    }

    /// Passes the text to `read` as bytes.
    pub fn with_bytes<R>(&self, read: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Text::Integer(number) => read(itoa::Buffer::new().format(*number).as_bytes()),
            Text::Bytes(bytes) => read(bytes),
            Text::Block(block) => read(block),
        }
    }

    /// Returns the text as owned bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.with_bytes(<[u8]>::to_vec)
    }
}

/// Creates a string entry in the encoding that Redis would choose.
pub fn string_entry(key: &[u8], value: &[u8], deadline: Option<u64>) -> Entry<Object> {
    if value.len() <= 20
        && let Some(number) = basalt_core::base::number::parse_i64(value)
    {
        return Entry::integer(ObjectKind::INT.0, key, number, deadline);
    }
    if value.len() <= EMBSTR_BYTES_MAX {
        Entry::bytes(ObjectKind::EMBSTR.0, key, value, deadline)
    } else {
        raw_entry(key, value, deadline)
    }
}

/// Creates a string entry that reports `raw` whatever its length.
pub fn raw_entry(key: &[u8], value: &[u8], deadline: Option<u64>) -> Entry<Object> {
    if value.len() < BLOCK_BYTES_MIN {
        Entry::bytes(ObjectKind::RAW.0, key, value, deadline)
    } else {
        Entry::block(ObjectKind::RAW.0, key, SharedBlock::new(value), deadline)
    }
}

/// True if a value is a string inside its entry, with nothing else in the entry, so that it can be overwritten in
/// place.
#[inline]
pub fn is_inline_text(entry: EntryRef<'_, Object>) -> bool {
    ObjectKind(entry.kind()).data_type() == DataType::String
        && !entry.has_words()
        && matches!(entry.value(), Value::Integer(_) | Value::Bytes(_))
}

/// Overwrites an inline string with another one, shorter than a block, in the encoding that Redis would choose.
#[inline(always)]
pub fn overwrite_text(entry: &mut Entry<Object>, value: &[u8]) {
    if value.len() <= 20
        && let Some(number) = basalt_core::base::number::parse_i64(value)
    {
        entry.set_kind(ObjectKind::INT.0);
        entry.set_integer(number);
        return;
    }
    let kind = if value.len() <= EMBSTR_BYTES_MAX {
        ObjectKind::EMBSTR
    } else {
        ObjectKind::RAW
    };
    entry.set_kind(kind.0);
    entry.set_bytes(value);
}

/// Gives a string whose block is shared a block of its own. Returns the old block; None if there was none to replace.
pub fn unshare_text(entry: &mut Entry<Object>) -> Option<SharedBlock> {
    let block = entry.block_mut().filter(|block| !block.is_unique())?;
    let copy = SharedBlock::new(block);
    Some(std::mem::replace(block, copy))
}

/// Returns a string's bytes for writing, extended with zeros to at least `len_min`: it reports `raw` from now on.
///
/// Growth is amortized: inside the entry by the allocator's size classes, in a block by doubling.
pub fn writable_text(entry: &mut Entry<Object>, len_min: usize) -> &mut [u8] {
    entry.set_kind(ObjectKind::RAW.0);
    if let Value::Integer(number) = entry.view().value() {
        entry.set_bytes(itoa::Buffer::new().format(number).as_bytes());
    }
    if let Value::Bytes(bytes) = entry.view().value()
        && bytes.len() < len_min
    {
        if len_min < BLOCK_BYTES_MIN {
            entry.resize_bytes(len_min);
        } else {
            // A new string may never grow again.
            let mut block = match bytes.is_empty() {
                true => SharedBlock::with_capacity(len_min),
                false => SharedBlock::new(bytes),
            };
            block.resize(len_min);
            entry.set_block(block);
        }
    }
    // Two steps, because the compiler does not yet accept a borrow that is returned from one arm only.
    if entry.block_mut().is_some() {
        let block = entry.block_mut().expect("asked above");
        if block.len() < len_min {
            block.resize(len_min);
        }
        return block.make_mut();
    }
    entry.bytes_mut().expect("a string is bytes or a block")
}
