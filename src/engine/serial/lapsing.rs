//! Sets of which members have deadlines, member by member.
//!
//! ```text
//! 7   MODULE_2   name and version, as of sketches | ( 2 | 1 + deadline or 0 | 5 | string ) … | 0
//! ```
//!
//! No form of Redis before 8.12 has such deadlines, and that of 8.12 is not documented; the value of a module can be
//! passed by whatever reads files.

use super::pages::{self, STRING};
use super::types;
use super::writer::Writer;

/// The name of the form.
const NAME: &str = "set-lapse";

/// A number follows.
pub(super) const NUMBER: u64 = 2;

/// The number that stands for the form.
pub(super) fn number() -> u64 {
    pages::number_named(NAME)
}

/// Writes the beginning of a set of which the members follow, one by one.
pub(super) fn begin(writer: &mut Writer) {
    writer.kind(types::MODULE_2);
    writer.length(number());
}

/// Writes a member.
pub(super) fn member(member: &[u8], deadline: Option<u64>, writer: &mut Writer) {
    writer.length(NUMBER);
    writer.length(deadline.map_or(0, |at_ms| at_ms + 1));
    writer.length(STRING);
    writer.string(member);
}
