//! IDs of nodes and shards.

use std::fmt;

/// Bytes of an ID.
pub const NODE_ID_BYTES: usize = 40;

/// The ID of a node or of a shard: forty random hexadecimal digits in lower case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId([u8; NODE_ID_BYTES]);

impl NodeId {
    /// Parses an ID; None if the text is not a valid ID.
    #[must_use]
    pub fn from_text(text: &[u8]) -> Option<NodeId> {
        let bytes = <[u8; NODE_ID_BYTES]>::try_from(text).ok()?;
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        bytes.iter().all(is_digit).then_some(NodeId(bytes))
    }

    /// Makes an ID from 20 random bytes.
    #[must_use]
    pub fn from_random(random: [u8; 20]) -> NodeId {
        let digit = |half: u8| b"0123456789abcdef"[usize::from(half & 15)];
        NodeId(std::array::from_fn(|at| {
            let byte = random[at / 2];
            digit(if at % 2 == 0 { byte >> 4 } else { byte })
        }))
    }

    /// Returns the digits as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; NODE_ID_BYTES] {
        &self.0
    }

    /// Returns the digits as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_str()[..8])
    }
}

#[cfg(test)]
mod tests {
    use super::NodeId;

    #[test]
    fn names_are_forty_hexadecimal_digits() {
        let name = NodeId::from_random([0xA7; 20]);
        assert_eq!(name.as_str(), "a7".repeat(20));
        assert_eq!(NodeId::from_text(name.as_bytes()), Some(name));
        assert_eq!(NodeId::from_text(&[b'a'; 39]), None);
        assert_eq!(NodeId::from_text(&[b'A'; 40]), None);
        assert_eq!(NodeId::from_text(&[0; 40]), None);
    }
}
