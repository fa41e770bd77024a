//! MAXCOUNT and MAXSIZE: limits of the reply over all streams together.

use crate::command::Args;
use crate::command::error::CommandError;
use basalt_core::base::number;
use basalt_engine::value::stream::node::StreamEntry;

/// The limits that remain; None: unlimited.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadBudget {
    pub(super) entries_left: Option<u64>,
    pub(super) bytes_left: Option<u64>,
    /// Whether an entry was returned already: the first one is returned regardless of its size.
    has_first: bool,
    is_reached: bool,
}

impl ReadBudget {
    /// Whether a limit is reached, so that nothing more is returned.
    pub(super) fn are_reached(&self) -> bool {
        self.is_reached || self.entries_left == Some(0)
    }

    /// Counts an entry if it is still within the limits. Returns whether it is.
    pub(super) fn admit(&mut self, item: &StreamEntry<'_>) -> bool {
        let texts = item.fields().flat_map(|(name, value)| [name, value]);
        let bytes: usize = match self.bytes_left {
            Some(_) => texts.map(|text| bulk_bytes(text.len())).sum(),
            None => 0,
        };
        self.admit_bytes(ENTRY_BYTES + bytes)
    }

    /// Like [`ReadBudget::admit`], for a pending entry that no longer exists in the stream.
    pub(super) fn admit_gone(&mut self) -> bool {
        self.admit_bytes(ENTRY_BYTES)
    }

    fn admit_bytes(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let fits = self.bytes_left.is_none_or(|left| bytes <= left);
        if self.are_reached() || !fits && self.has_first {
            self.is_reached = true;
            return false;
        }
        self.has_first = true;
        if let Some(left) = &mut self.bytes_left {
            *left = left.saturating_sub(bytes);
        }
        if let Some(left) = &mut self.entries_left {
            *left -= 1;
        }
        true
    }
}

/// Bytes of an entry in a reply, without its fields: two arrays, and an ID of usual length.
const ENTRY_BYTES: usize = 4 + 4 + 23;

/// Returns the bytes of a text in a reply.
fn bulk_bytes(len: usize) -> usize {
    let digits = len.checked_ilog10().unwrap_or(0) as usize + 1;
    len + digits + 5
}

/// Parses a limit, which must be positive.
pub(super) fn positive(args: &Args<'_>, at: usize) -> Result<u64, CommandError> {
    let value = number::parse_i64(args.get(at)).ok_or(CommandError::NotInteger)?;
    let value = u64::try_from(value).ok().filter(|value| *value > 0);
    value.ok_or("ERR value is out of range, must be positive".into())
}
