//! The commands of basalt, and what they are judged by: users, directives, the cluster as this node sees it.

#![forbid(unsafe_code)]

pub mod acl;
pub mod client;
pub mod cluster;
pub mod command;
pub mod config;
pub mod pubsub;
