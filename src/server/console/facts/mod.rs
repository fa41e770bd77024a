//! Facts: lists shown in addition to INFO's figures, with the names that the viewer may see.
//!
//! Names come from clients and may be anything: this module turns them into plain text ([`name`]), which pages
//! and JSON then escape for their own format.

pub(super) mod clients;
pub(super) mod cluster;
pub(super) mod contents;
pub(super) mod databases;
pub(super) mod keys;
pub(super) mod prefixes;
pub(super) mod replication;
pub(super) mod settings;
pub(super) mod slow;

use basalt_core::base::text::visible_within;

/// Maximum length of a name in characters, including its escapes.
const NAME_CHARS_MAX: usize = 128;

/// Placeholder for a name that the viewer may not see.
pub(super) const HIDDEN: &str = "(hidden)";

/// Formats a name as a line of text: non-text and invisible characters are escaped, and long names are truncated.
pub(super) fn name(bytes: &[u8]) -> String {
    visible_within(bytes, NAME_CHARS_MAX)
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
        for byte in [b'k', 0xff, 0x1b] {
            let long = name(&[byte; 10_000]);
            let count = long.chars().count();
            assert!(count <= NAME_CHARS_MAX + 1 && long.ends_with('…'), "{long}");
        }
    }
}
