//! Binds the protocol to the engine: one declaration a command, one file a family.
//!
//! No sockets, no threads, no clock: handlers get what they need in a context and answer into an output.

pub mod admission;
pub mod args;
pub mod bitmap;
pub mod client;
pub mod cluster;
pub mod connection;
pub mod context;
pub mod database;
pub mod debug;
pub mod declaration;
pub mod element;
pub mod error;
pub mod generic;
pub mod geo;
pub mod hash;
pub mod hyperloglog;
pub mod introspect;
pub mod keys;
pub mod list;
pub mod logging;
pub mod options;
pub mod owned;
pub mod prepared;
pub mod probabilistic;
pub mod pubsub;
pub mod scan;
pub mod script;
pub mod server;
pub mod set;
pub mod sorted_set;
pub mod stream;
pub mod string;
pub mod syntax;
pub mod table;
#[cfg(test)]
pub(crate) mod testing;
pub mod transaction;

pub use crate::resp::reply::Out;
pub use args::Args;
