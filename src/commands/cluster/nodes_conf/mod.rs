//! The file that a node keeps over a restart, nodes.conf in Redis 7.2's form, and the lines of CLUSTER NODES, which are
//! the same but for what clients are not shown.
//!
//! ```text
//! id ip:port@bus,hostname,tls-port=0,nodename=n,shard-id=s flags primary ping pong epoch link slots
//! vars currentEpoch 3 lastVoteEpoch 0
//! ```
//!
//! Slots are numbers and ranges; in the line of the node itself `[100->-id]` goes and `[100-<-id]` comes. Clients are
//! not shown the names with an equals sign. Files of older servers are read too: these have no such names, or no host
//! name, or no port of the bus.
//!
//! ```text
//! line   a node as its line
//! read   a file to what was saved
//! write  what was saved to a file; CLUSTER NODES
//! ```

mod line;
pub mod read;
pub mod write;

#[cfg(test)]
mod tests;
