//! The commands, and what they depend on: ACL users, configuration, client state, pub/sub, and the cluster as this node
//! sees it.

#![forbid(unsafe_code)]

pub mod acl;
pub mod client;
pub mod cluster;
pub mod command;
pub mod config;
pub mod pubsub;
