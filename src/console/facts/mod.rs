//! What is shown beside the figures of INFO: lists, with names where the viewer may see them.
//!
//! Names come from clients and may be anything: here they become plain text ([`name`]), and a page, or JSON, escapes
//! them once more for itself.

pub(super) mod clients;
pub(super) mod cluster;
pub(super) mod contents;
pub(super) mod databases;
pub(super) mod keys;
pub(super) mod replication;
pub(super) mod settings;
pub(super) mod slow;

use crate::base::text::visible;

/// Bytes of a name that are shown.
const NAME_BYTES_MAX: usize = 128;

/// What stands in place of a name that the viewer may not see.
pub(super) const HIDDEN: &str = "(hidden)";

/// A name as a line of text: what is no text, or would not be seen, is escaped, and what is long is cut.
pub(super) fn name(bytes: &[u8]) -> String {
    let mut shown = visible(&bytes[..bytes.len().min(NAME_BYTES_MAX)]);
    if bytes.len() > NAME_BYTES_MAX {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_short_line_of_plain_text() {
        assert_eq!(name(b"user:1"), "user:1");
        assert_eq!(name("größe <b>".as_bytes()), "größe <b>");
        assert_eq!(name(b"\x00\xff\n"), "\\u{0}\\xff\\n");
        assert_eq!(
            name("a\u{202e}b\u{1b}[2J".as_bytes()),
            "a\\u{202e}b\\u{1b}[2J"
        );
        let long = name(&[b'k'; 10_000]);
        assert_eq!(
            (long.chars().count(), long.ends_with('…')),
            (NAME_BYTES_MAX + 1, true)
        );
        // Cut within a character.
        assert!(name("ä".repeat(100).as_bytes()).starts_with("ää"));
        assert!(name(&[b"k".repeat(127), "ä".into()].concat()).ends_with("\\xc3…"));
    }
}
