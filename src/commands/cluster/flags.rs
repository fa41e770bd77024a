//! What nodes say of each other, in sixteen bits as the bus and nodes.conf have them.

use std::fmt;

/// Flags of a node. The numbers are those of the bus.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct NodeFlags(pub u16);

impl NodeFlags {
    /// None.
    pub const NONE: NodeFlags = NodeFlags(0);
    /// The node owns slots, or could.
    pub const PRIMARY: NodeFlags = NodeFlags(1);
    /// The node follows a primary.
    pub const REPLICA: NodeFlags = NodeFlags(2);
    /// The node did not answer this one for the node timeout.
    pub const MAYBE_FAILED: NodeFlags = NodeFlags(4);
    /// The majority of primaries has not.
    pub const FAILED: NodeFlags = NodeFlags(8);
    /// The node is this one.
    pub const MYSELF: NodeFlags = NodeFlags(16);
    /// The name of the node is not known yet: it has one of our own making until it answers.
    pub const HANDSHAKE: NodeFlags = NodeFlags(32);
    /// There is no address of the node.
    pub const NO_ADDRESS: NodeFlags = NodeFlags(64);
    /// The first packet to it is a MEET, so that it takes this node in.
    pub const MEET: NodeFlags = NodeFlags(128);
    /// A primary that may be given a replica of another one.
    pub const MIGRATE_TO: NodeFlags = NodeFlags(256);
    /// A replica that does not want to be voted for.
    pub const NO_FAILOVER: NodeFlags = NodeFlags(512);
    /// The node understands extensions of pings.
    pub const EXTENSIONS: NodeFlags = NodeFlags(1024);

    /// Both.
    #[must_use]
    pub const fn or(self, other: NodeFlags) -> NodeFlags {
        NodeFlags(self.0 | other.0)
    }

    /// Flags but for others.
    #[must_use]
    pub const fn without(self, other: NodeFlags) -> NodeFlags {
        NodeFlags(self.0 & !other.0)
    }

    /// Whether any of these flags is set.
    #[must_use]
    pub const fn any(self, of: NodeFlags) -> bool {
        self.0 & of.0 != 0
    }

    /// Sets flags.
    pub fn set(&mut self, flags: NodeFlags) {
        *self = self.or(flags);
    }

    /// Clears flags.
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

    /// Flags by the words of CLUSTER NODES and nodes.conf, in their order there.
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

    /// The flag of a word of nodes.conf; `noflags` is none.
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
    /// As CLUSTER NODES has them: words with commas, or `noflags`.
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
