//! Which texts of other nodes are taken: those that nodes.conf and replies can hold without being misread.

/// Bytes of the longest host name.
const HOSTNAME_BYTES_MAX: usize = 255;
/// Bytes of the longest name for people that is taken from another node.
const HUMAN_NAME_BYTES_MAX: usize = 1024;

/// Whether a text may be an address: letters, digits and what stands in addresses of either family and in host names.
#[must_use]
pub fn is_address(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".:%-_".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

/// Whether a text may be an announced host name; an empty one says that there is none.
#[must_use]
pub fn is_hostname(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    text.len() <= HOSTNAME_BYTES_MAX && text.bytes().all(is_part)
}

/// Whether a text may be a name for people; an empty one says that there is none. Commas, equals signs, quotes and
/// white space end a field of nodes.conf; Redis takes none of the others either that are not taken here.
#[must_use]
pub fn is_human_name(text: &str) -> bool {
    const REFUSED: &str = "!#$%&()*+:;<>?@[]^{|}~,=\"'\\";
    let is_part =
        |char: char| !REFUSED.contains(char) && !char.is_whitespace() && !char.is_control();
    text.len() <= HUMAN_NAME_BYTES_MAX && text.chars().all(is_part)
}
