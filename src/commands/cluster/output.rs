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
    /// Opens a link. The driver must then call `opened` or `closed`.
    Connect {
        /// ID of the link.
        link: LinkId,
        /// Numeric address to connect to.
        ip: String,
        /// Port of the other node's bus.
        bus_port: u16,
    },
    /// Closes a link. The driver need not call `closed`.
    Close(LinkId),
    /// Sends a packet on a link; dropped if the link is not open.
    Send(LinkId, Arc<Packet>),
    /// Saves the current `saved` state safely on disk, as soon as possible. Then the driver must call `safe` with
    /// this number, or with a greater one that `promised` returned when `saved` was called.
    Save(u64),
    /// Saves the current `saved` state safely on disk soon; nothing waits for it.
    SaveSoon,
    /// Makes this server follow a primary.
    Follow {
        /// Address of the primary.
        ip: String,
        /// Port for clients of the primary: its TLS port if replication uses TLS.
        port: u16,
    },
    /// Makes this server a primary.
    Lead,
    /// Pauses writes of clients until a time: a manual failover is in progress.
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
        /// Whether the message is for subscribers of shard channels.
        is_shard: bool,
    },
    /// Makes the current map visible to commands.
    Publish,
    /// Writes a line to the log.
    Log(Level, String),
    /// Writes a log line that another node can cause any number of times: lines of each kind are rate-limited.
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
    /// Events that an operator should look into.
    Warning,
}
