//! Validation of texts from other nodes: a text is accepted if nodes.conf and replies can contain it without being
//! misread.

/// Maximum bytes of a host name.
const HOSTNAME_BYTES_MAX: usize = 255;
/// Maximum bytes of a human-readable name of another node.
const HUMAN_NAME_BYTES_MAX: usize = 1024;

/// Whether a text may be an address: it has only letters, digits and the other characters of IPv4 and IPv6 addresses
/// and of host names.
#[must_use]
pub fn is_address(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".:%-_".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

/// Whether a text may be an announced host name; an empty one means none.
#[must_use]
pub fn is_hostname(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    text.len() <= HOSTNAME_BYTES_MAX && text.bytes().all(is_part)
}

/// Whether a text may be a human-readable name; an empty one means none. Commas, equals signs, quotes and white space
/// end a field of nodes.conf; Redis refuses the other characters that are refused here.
#[must_use]
pub fn is_human_name(text: &str) -> bool {
    const REFUSED: &str = "!#$%&()*+:;<>?@[]^{|}~,=\"'\\";
    let is_part =
        |char: char| !REFUSED.contains(char) && !char.is_whitespace() && !char.is_control();
    text.len() <= HUMAN_NAME_BYTES_MAX && text.chars().all(is_part)
}
