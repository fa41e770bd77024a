//! The commands contained in [notes](basalt_engine::note) of the log, which other kinds of servers ignore.

use super::cluster::moves;
use super::declaration::Command;
use super::{bless, lease, lock, tag};

/// Commands that occur only in notes, each with the command whose permission is required if the note comes over a
/// client's connection, as when slots are moved to this server.
pub(super) static OWN: &[(&Command, &Command)] = &[
    (&lock::FENCE, &lock::LOCK),
    (&moves::NOTE, &moves::SYNCSLOTS),
];

/// Returns the command in a note of `count` words, each of which can be read with `word`; None if it is unknown.
pub fn find<'a>(count: usize, word: impl Fn(usize) -> &'a [u8]) -> Option<&'static Command> {
    match word(0) {
        b"FENCE" => Some(&lock::FENCE),
        b"SLOTS" => Some(&moves::NOTE),
        b"LSTALE" => Some(&lease::LSTALE),
        b"TAG" | b"BLESS" if count > 1 => {
            let noted = match word(0) {
                b"TAG" => tag::NOTED,
                _ => bless::NOTED,
            };
            let mut rows = noted.iter().copied();
            rows.find(|row| row.name.as_bytes().eq_ignore_ascii_case(word(1)))
        }
        _ => None,
    }
}
