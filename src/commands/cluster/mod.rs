//! Redis Cluster's bus as a pure state machine: what one node knows of the others, and what it does about it.
//!
//! There is no socket, clock or file here, so that a simulation runs a thousand nodes in one thread. The driver
//! (`server/node`) hands in packets, ticks and commands together with the time, and carries out in order what comes
//! out: packets to send, links to open, state to save before what follows leaves, a primary to follow.
//!
//! ```text
//! node_id    names of nodes and shards
//! slot_set   sets of hash slots
//! slot_note  slots whose keys may have to go, in the log and in snapshots
//! flags      what nodes say of each other
//! kind       which messages there are, by number and name
//! packet     one message of the bus as a value
//! machine    the machine
//! map        who owns which slot, as commands see it
//! route      whether this node serves a request, by the slot of its keys
//! change     what CLUSTER asks for
//! down       why a node does not serve
//! nodes_conf the file of what is kept over a restart, and CLUSTER NODES
//! output     what the machine wants done
//! saved      what is kept over a restart
//! settings   what the configuration and the server tell the machine
//! text       which texts of other nodes are taken
//! wire       the bytes of packets
//! ```

pub mod change;
pub mod down;
pub mod flags;
pub mod kind;
pub mod machine;
pub mod map;
pub mod node_id;
pub mod nodes_conf;
pub mod output;
pub mod packet;
pub mod route;
pub mod saved;
pub mod settings;
pub mod slot_note;
pub mod slot_set;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod wire;

/// Milliseconds since the Unix epoch, or since the start of a simulation.
pub type Millis = u64;
