//! Hashes whose fields have deadlines, in the form of Valkey 9.
//!
//! ```text
//! 22  HASH_2    count | ( field | value | deadline i64, -1 none ) …
//! ```

use super::reader::Reader;
use super::writer::Writer;
use super::{Malformed, VALKEY_VERSIONS, types};
use basalt_core::structures::entry::DEADLINE_MAX;

/// Writes the head; the fields follow.
pub(super) fn begin_hash(fields: u64, writer: &mut Writer) {
    writer.needs(*VALKEY_VERSIONS.start());
    writer.kind(types::VALKEY_HASH_2);
    writer.length(fields);
}

/// Writes the deadline that follows a field and its value.
pub(super) fn deadline(deadline: Option<u64>, writer: &mut Writer) {
    writer.millis(deadline.unwrap_or(u64::MAX));
}

/// Reads a deadline. Valkey allows later ones than this server, which are limited to the latest one.
pub(super) fn read_deadline(reader: &mut Reader<'_>) -> Result<Option<u64>, Malformed> {
    match reader.millis()?.cast_signed() {
        -1 => Ok(None),
        at_ms @ 1.. => Ok(Some(at_ms.cast_unsigned().min(DEADLINE_MAX))),
        _ => Err(Malformed("an expiry time out of range")),
    }
}
