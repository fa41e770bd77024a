//! Flags of nodes, in sixteen bits as used by the bus and nodes.conf.

use std::fmt;

/// Flags of a node. The values are those of the bus.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct NodeFlags(pub u16);

impl NodeFlags {
    /// No flag.
    pub const NONE: NodeFlags = NodeFlags(0);
    /// The node is a primary: it owns slots, or could.
    pub const PRIMARY: NodeFlags = NodeFlags(1);
    /// The node is a replica.
    pub const REPLICA: NodeFlags = NodeFlags(2);
    /// The node has not replied to this one for the node timeout (PFAIL).
    pub const MAYBE_FAILED: NodeFlags = NodeFlags(4);
    /// The node has not replied to the majority of primaries (FAIL).
    pub const FAILED: NodeFlags = NodeFlags(8);
    /// The node is this one.
    pub const MYSELF: NodeFlags = NodeFlags(16);
    /// The node's ID is not known yet: it has a temporary one until it replies.
    pub const HANDSHAKE: NodeFlags = NodeFlags(32);
    /// The node's address is unknown.
    pub const NO_ADDRESS: NodeFlags = NodeFlags(64);
    /// The first packet to the node is a MEET, so that it accepts this node.
    pub const MEET: NodeFlags = NodeFlags(128);
    /// The primary may be given a replica of another primary that has several.
    pub const MIGRATE_TO: NodeFlags = NodeFlags(256);
    /// The replica does not stand for election when its primary fails.
    pub const NO_FAILOVER: NodeFlags = NodeFlags(512);
    /// The node supports extensions of pings.
    pub const EXTENSIONS: NodeFlags = NodeFlags(1024);

    /// Returns the union of two sets.
    #[must_use]
    pub const fn or(self, other: NodeFlags) -> NodeFlags {
        NodeFlags(self.0 | other.0)
    }

    /// Returns these flags except `other`.
    #[must_use]
    pub const fn without(self, other: NodeFlags) -> NodeFlags {
        NodeFlags(self.0 & !other.0)
    }

    /// Whether any of these flags is set.
    #[must_use]
    pub const fn any(self, of: NodeFlags) -> bool {
        self.0 & of.0 != 0
    }

    /// Sets all of these flags.
    pub fn set(&mut self, flags: NodeFlags) {
        *self = self.or(flags);
    }

    /// Clears all of these flags.
    pub fn clear(&mut self, flags: NodeFlags) {
        *self = self.without(flags);
    }

    /// Sets or clears flags.
    pub fn put(&mut self, flags: NodeFlags, is_set: bool) {
        if is_set {
            self.set(flags)
        } else {
            self.clear(flags)
        }
    }

    /// Flags and their words in CLUSTER NODES and nodes.conf, in the order used there.
    const WORDS: [(NodeFlags, &'static str); 8] = [
        (NodeFlags::MYSELF, "myself"),
        (NodeFlags::PRIMARY, "master"),
        (NodeFlags::REPLICA, "slave"),
        (NodeFlags::MAYBE_FAILED, "fail?"),
        (NodeFlags::FAILED, "fail"),
        (NodeFlags::HANDSHAKE, "handshake"),
        (NodeFlags::NO_ADDRESS, "noaddr"),
        (NodeFlags::NO_FAILOVER, "nofailover"),
    ];

    /// Returns the flag that a word of nodes.conf names; no flag for `noflags`, None for an unknown word.
    #[must_use]
    pub fn from_word(word: &[u8]) -> Option<NodeFlags> {
        let mut words = NodeFlags::WORDS.iter();
        let found = words.find(|(_, name)| name.as_bytes() == word);
        found
            .map(|(flag, _)| *flag)
            .or((word == b"noflags").then_some(NodeFlags::NONE))
    }
}

impl fmt::Display for NodeFlags {
    /// Formats flags as in CLUSTER NODES: words with commas, or `noflags`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut written = false;
        for (flag, word) in NodeFlags::WORDS {
            if self.any(flag) {
                if written {
                    f.write_str(",")?;
                }
                f.write_str(word)?;
                written = true;
            }
        }
        if written {
            Ok(())
        } else {
            f.write_str("noflags")
        }
    }
}

impl fmt::Debug for NodeFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::NodeFlags;

    #[test]
    fn flags_have_the_words_of_nodes_conf() {
        let flags = NodeFlags::PRIMARY.or(NodeFlags::MYSELF).or(NodeFlags::MEET);
        assert_eq!(flags.to_string(), "myself,master");
        assert_eq!(NodeFlags::MEET.to_string(), "noflags");
        assert_eq!(
            NodeFlags::from_word(b"fail?"),
            Some(NodeFlags::MAYBE_FAILED)
        );
        assert_eq!(NodeFlags::from_word(b"noflags"), Some(NodeFlags::NONE));
        assert_eq!(NodeFlags::from_word(b"leader"), None);
    }
}
