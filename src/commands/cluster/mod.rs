//! Redis Cluster's bus as a pure state machine: one node's knowledge of the others, and its reactions.
//!
//! There is no socket, clock or file here, so that a simulation can run a thousand nodes in one thread. The driver
//! (`server/node`) passes in packets, ticks and commands together with the time, and carries out the outputs in
//! order: packets to send, links to open, state to save before later outputs leave, a primary to follow.
//!
//! ```text
//! assembly   new clusters that their nodes assemble themselves: plans, and what nodes tell of them
//! node_id    IDs of nodes and shards
//! slot_set   sets of hash slots
//! slot_note  slots whose keys may have to be deleted, in the log and in snapshots
//! flags      flags of nodes
//! kind       kinds of messages, by number and name
//! packet     one message of the bus as a value
//! machine    the state machine
//! map        slot ownership, as commands see it
//! route      whether this node serves a request, by the slot of its keys
//! change     changes that CLUSTER requests
//! down       the reason why a node does not serve
//! nodes_conf the file of the saved state, and CLUSTER NODES
//! output     outputs of the machine
//! saved      the state kept over a restart
//! settings   inputs from the configuration and the server
//! text       validation of texts from other nodes
//! wire       the encoding of packets
//! ```

pub mod assembly;
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
