//! Actions that the cluster state machine asks its driver (the code with sockets and disk) to carry out, in order. The
//! machine holds back actions that depend on nodes.conf until the driver reports that it is safely on disk.

use std::sync::Arc;

use super::Millis;
use super::packet::{Message, Packet};
use super::slot_set::SlotSet;

/// The ID of a connection of the bus, in either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// An action for the driver, see the module.
#[derive(Clone, Debug)]
pub enum Output {
    /// Opens a link; `opened` or `closed` is to follow.
    Connect {
        /// ID of the link.
        link: LinkId,
        /// Numeric address to connect to.
        ip: String,
        /// Port of the bus there.
        bus_port: u16,
    },
    /// Closes a link; `closed` need not follow.
    Close(LinkId),
    /// Sends a packet. One for a link that is not open is dropped.
    Send(LinkId, Arc<Packet>),
    /// Saves the current `saved` state safely on disk, as soon as possible, and then calls `safe` with this number or
    /// a greater one that `promised` returned when `saved` was called.
    Save(u64),
    /// Saves the current `saved` state safely on disk soon; nothing waits for it.
    SaveSoon,
    /// Makes this server follow a primary.
    Follow {
        /// Address of the primary.
        ip: String,
        /// Port for clients there: the TLS port if replication uses TLS.
        port: u16,
    },
    /// Makes this server a primary.
    Lead,
    /// Pauses writes of clients until a time: a manual failover is under way.
    Pause(Millis),
    /// Ends the pause of writes.
    Unpause,
    /// Deletes all keys, in the background if possible: the node was reset.
    FlushAll,
    /// Deletes the keys of slots that another node owns now.
    DeleteKeys(SlotSet),
    /// Delivers a message to local subscribers.
    Deliver {
        /// The published message.
        message: Message,
        /// Whether it is for subscribers of shard channels.
        is_shard: bool,
    },
    /// Makes the current map visible to commands.
    Publish,
    /// Writes a line to the log.
    Log(Level, String),
    /// Writes a line that another node can cause any number of times: some of each kind are left out.
    LogSeldom(&'static str, Level, String),
}

/// The importance of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For developers.
    Debug,
    /// For operators who look closely.
    Verbose,
    /// Normal events.
    Notice,
    /// An operator should look at it.
    Warning,
}
