//! What the machine wants done. The driver does it in order. What has to wait for the file is not among it: the machine
//! holds it back until the driver says that the file is safe.

use std::sync::Arc;

use super::Millis;
use super::packet::{Message, Packet};
use super::slot_set::SlotSet;

/// A connection of the bus, in either direction, by a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// See the module.
#[derive(Clone, Debug)]
pub enum Output {
    /// Opens a link; `opened` or `closed` is to follow.
    Connect {
        /// What to call it.
        link: LinkId,
        /// Address to connect to, a number.
        ip: String,
        /// Port of the bus there.
        bus_port: u16,
    },
    /// Closes a link; `closed` need not follow.
    Close(LinkId),
    /// Sends a packet. One for a link that is not open is dropped.
    Send(LinkId, Arc<Packet>),
    /// Makes what `saved` says safe on disk, as soon as the disk can, and then calls `safe` with this number or a
    /// greater one that `promised` had when `saved` was asked.
    Save(u64),
    /// Makes what `saved` says safe on disk before long; nothing waits for it.
    SaveSoon,
    /// Has this server follow a primary.
    Follow {
        /// Address of the primary.
        ip: String,
        /// Port for clients there: the TLS port if replication uses TLS.
        port: u16,
    },
    /// Has this server be a primary.
    Lead,
    /// Has writes of clients wait until a time: a manual failover is under way.
    Pause(Millis),
    /// Lets writes go on.
    Unpause,
    /// Deletes all keys, in the background if possible: the node was reset.
    FlushAll,
    /// Deletes the keys of slots that another node owns now.
    DeleteKeys(SlotSet),
    /// Hands a message to subscribers here.
    Deliver {
        /// What was published.
        message: Message,
        /// Whether it is for subscribers of shard channels.
        is_shard: bool,
    },
    /// Has commands see the map as it is now.
    Publish,
    /// A line of the log.
    Log(Level, String),
    /// One that another node can cause as often as it likes: of this kind, some are left out.
    LogSeldom(&'static str, Level, String),
}

/// How much a line of the log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For developers.
    Debug,
    /// For operators who look closely.
    Verbose,
    /// In the course of things.
    Notice,
    /// Somebody should look.
    Warning,
}
