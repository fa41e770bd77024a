//! Strings: GET, SET and the commands that edit them.
//!
//! ```text
//! get          GET GETEX GETDEL GETRANGE SUBSTR STRLEN
//! set          SET SETNX SETEX PSETEX GETSET
//! edit         APPEND SETRANGE
//! counter      INCR DECR INCRBY DECRBY
//! float        INCRBYFLOAT
//! many         MGET MSET MSETNX MSETEX
//! conditional  DELEX DELIFEQ DIGEST, and the comparisons of SET
//! lcs          LCS
//! ```
//!
//! The representation of a string (an integer, bytes, a shared block) is internal to the engine; handlers see
//! [`Text`]. The encodings that OBJECT ENCODING reports are Redis's: int and embstr as written, raw once edited.

mod conditional;
mod counter;
pub(super) mod edit;
mod float;
mod get;
mod lcs;
mod many;
mod set;
#[cfg(test)]
mod tests;

use super::Out;
use super::declaration::Command;
use super::error::CommandError;
use basalt_engine::value::Text;

pub(super) static TABLE: &[&Command] = &[
    &edit::APPEND,
    &counter::DECR,
    &counter::DECRBY,
    &conditional::DELEX,
    &conditional::DELIFEQ,
    &conditional::DIGEST,
    &get::GET,
    &get::GETDEL,
    &get::GETEX,
    &get::GETRANGE,
    &set::GETSET,
    &counter::INCR,
    &counter::INCRBY,
    &float::INCRBYFLOAT,
    &lcs::LCS,
    &many::MGET,
    &many::MSET,
    &many::MSETEX,
    &many::MSETNX,
    &set::PSETEX,
    &set::SET,
    &set::SETEX,
    &set::SETNX,
    &edit::SETRANGE,
    &get::STRLEN,
    &get::SUBSTR,
];

/// Replies with a string value; a large one is shared, not copied.
#[inline]
pub(super) fn reply_text(text: Text<'_>, out: &mut Out) {
    match text {
        Text::Integer(number) => out.bulk_integer(number),
        Text::Bytes(bytes) => out.bulk(bytes),
        Text::Block(block) => out.bulk_shared(block.clone().into_bytes()),
    }
}

/// Returns the length of a string after it grows; an error if it would be longer than `proto-max-bulk-len` allows.
pub(super) fn grown_len(before: usize, more: usize, limit: u64) -> Result<usize, CommandError> {
    before
        .checked_add(more)
        .filter(|total| *total as u64 <= limit)
        .ok_or(CommandError::StringTooLong)
}
