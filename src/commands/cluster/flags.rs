//! Flags of nodes, in sixteen bits as used by the bus and nodes.conf.

use std::fmt;

use basalt_core::bit_set;

bit_set! {
    /// Flags of a node. The values are those of the bus.
    #[derive(Default, Hash)]
    pub struct NodeFlags(pub u16) {
        /// The node is a primary: it owns slots, or could.
        PRIMARY;
        /// The node is a replica.
        REPLICA;
        /// The node has not replied to this one for the node timeout (PFAIL).
        MAYBE_FAILED;
        /// The node has not replied to the majority of primaries (FAIL).
        FAILED;
        /// The node is this one.
        MYSELF;
        /// The node's ID is not known yet: it has a temporary one until it replies.
        HANDSHAKE;
        /// The node's address is unknown.
        NO_ADDRESS;
        /// The first packet to the node is a MEET, so that it accepts this node.
        MEET;
        /// The primary may be given a replica of another primary that has several.
        MIGRATE_TO;
        /// The replica does not stand for election when its primary fails.
        NO_FAILOVER;
        /// The node supports extensions of pings.
        EXTENSIONS;
    }
}

impl NodeFlags {
    /// Sets all of these flags.
    pub fn set(&mut self, flags: NodeFlags) {
        *self = self.or(flags);
    }

    /// Clears all of these flags.
    pub fn clear(&mut self, flags: NodeFlags) {
        *self = self.without(flags);
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
