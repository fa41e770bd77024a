//! Sets whose members have deadlines, member by member.
//!
//! ```text
//! 7   MODULE_2   name and version, as of sketches | ( 2 | 1 + deadline or 0 | 5 | string ) … | 0
//! ```
//!
//! No format of Redis before 8.12 has such deadlines, and that of 8.12 is not documented; this server writes them as
//! a module value, which tools that read snapshot files can skip.

use super::pages::{self, OPCODE_STRING};
use super::types;
use super::writer::Writer;

/// The name of the format.
const NAME: &str = "set-lapse";

/// Opcode: a number follows.
pub(super) const OPCODE_UINT: u64 = 2;

/// Returns the module number that identifies the format.
pub(super) fn number() -> u64 {
    pages::number_named(NAME)
}

/// Writes the head of a set; its members follow one by one.
pub(super) fn begin(writer: &mut Writer) {
    writer.kind(types::MODULE_2);
    writer.length(number());
}

/// Writes a member and its deadline.
pub(super) fn member(member: &[u8], deadline: Option<u64>, writer: &mut Writer) {
    writer.length(OPCODE_UINT);
    writer.length(deadline.map_or(0, |at_ms| at_ms + 1));
    writer.length(OPCODE_STRING);
    writer.string(member);
}
