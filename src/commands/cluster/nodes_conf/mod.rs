//! nodes.conf, the file with the state that a node keeps over a restart, in the format of Redis 7.2, and the lines of
//! CLUSTER NODES, which are the same except for fields that are not shown to clients.
//!
//! ```text
//! id ip:port@bus,hostname,tls-port=0,nodename=n,shard-id=s flags primary ping pong epoch link slots
//! vars currentEpoch 3 lastVoteEpoch 0
//! ```
//!
//! A variable `assembly` follows if the cluster has assembled itself (`cluster-size`).
//!
//! Slots are numbers and ranges; in the line of the node itself `[100->-id]` is a slot that is leaving and
//! `[100-<-id]` one that is arriving. Clients are not shown the fields with an equals sign. Files of older servers
//! can be read too: they lack these fields, or the host name, or the port of the bus.
//!
//! ```text
//! line   a node as a line
//! read   parses a file to the saved state
//! write  formats the saved state for the file, and the lines of CLUSTER NODES
//! ```

mod line;
pub mod read;
pub mod write;

#[cfg(test)]
mod tests;
