//! The server as commands see it, and its parts that have rows of their own; implemented by the composition root, so
//! that `command` depends on no telemetry, sockets or threads.
//!
//! ```text
//! this file    [`Server`], which combines all of these, and the result of work that others do
//! cluster      the cluster that this server is a node of, and slot ownership
//! debugging    switches of the DEBUG command
//! diagnostics  INFO, the slow log, latency, hot keys, memory
//! migration    keys that move to another server
//! persistence  snapshots, the append-only file, the shutdown of the server
//! primary      the half of replication that sends the stream
//! replica      the half that follows a primary
//! scripts      scripts and functions
//! settings     the configuration, and the files of configuration and users
//! ```
//!
//! No part of this module depends on a handler or its context.

pub mod cluster;
mod debugging;
mod diagnostics;
pub mod migration;
mod persistence;
pub mod primary;
pub mod replica;
pub mod scripts;
mod settings;

use std::sync::Arc;

pub use debugging::Debugging;
pub use diagnostics::{
    CommandLog, Diagnostics, HotKeysReport, HotKeysRequest, HotKeysTop, LatencyEvent, MemoryReport,
    SlowlogEntry, SlowlogMoment,
};
pub use persistence::{Exit, HostPersistence, Reload};
pub use settings::HostSettings;

use self::cluster::Cluster;
use self::primary::HostPrimary;
use self::replica::Replica;
use self::scripts::{LogChange, Scripts};
use super::error::CommandError;
use crate::acl::{User, Users};
use crate::client::registry::Registry;
use crate::pubsub::PubSub;
use basalt_engine::record::Records;

/// The result of ACL DRYRUN: whether a user may run a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DryRun {
    /// There is no such command.
    NoCommand,
    /// The named command takes another number of arguments.
    WrongArity(&'static str),
    /// The user may not run the request; with the error.
    Refused(String),
    /// The user may run the request.
    Allowed,
}

/// The server as session handlers see it; the composition root implements it.
pub trait Server: Diagnostics + HostPersistence + HostSettings + Debugging + Send + Sync {
    /// Returns the registry of connections.
    fn clients(&self) -> &Registry;
    /// Returns all users, and the log of denials.
    fn users(&self) -> &Users;
    /// Returns 40 random hexadecimal digits, new at each start.
    fn run_id(&self) -> &str;
    /// Checks whether a user may run a request.
    fn dry_run(&self, user: &User, request: &[Vec<u8>], db: usize) -> DryRun;
    /// Returns the registry of subscriptions.
    fn pubsub(&self) -> &PubSub;
    /// Returns the part of replication that sends the stream to replicas.
    fn primary(&self) -> &dyn HostPrimary;
    /// Returns the part of replication that follows a primary.
    fn replica(&self) -> &'static dyn Replica;
    /// Returns the cluster that this server is a node of, with `cluster-enabled yes`.
    fn cluster(&self) -> Option<&dyn Cluster>;
    /// Whether this server follows a primary.
    fn is_replica(&self) -> bool;
    /// Whether this server follows a primary whose stream it does not receive.
    fn lacks_primary(&self) -> bool;
    /// CLIENT PAUSE: pauses all clients (or only their writes) until a Unix time in milliseconds. The result is ready
    /// when every command that was in progress has taken effect.
    fn pause(&self, until_ms: u64, writes_only: bool) -> Awaited;
    /// CLIENT UNPAUSE: ends the pause of clients.
    fn unpause(&self);
    /// DEBUG SLEEP: pauses all clients until a Unix time in milliseconds.
    fn sleep(&self, until_ms: u64);
    /// Returns the current time in microseconds since the epoch.
    fn unix_us(&self) -> u64;
    /// Appends to the log the records of commands that belong to no shard, and clears them; returns the position
    /// after them. See [`basalt_engine::record::append`] for `is_unit`.
    fn log_records(&self, records: &mut Records, is_unit: bool) -> Option<u64>;
    /// Changes libraries of functions, and appends the records of the change if it succeeds: changes are serialized,
    /// so that their records are in the same order. Returns the position after them.
    fn change_libraries(
        &self,
        records: &mut Records,
        change: &mut dyn FnMut(&dyn Scripts, LogChange<'_>) -> Result<(), CommandError>,
    ) -> Result<Option<u64>, CommandError>;
    /// Returns the number of shards.
    fn shard_count(&self) -> usize;
    /// Returns the scripts and functions.
    fn scripts(&self) -> &dyn Scripts;
}

/// Callback that awaited work calls once with its result.
pub type Done = Box<dyn FnOnce(Result<String, CommandError>) + Send>;

/// The reply to a client once the work that it waits for has succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// A text known in advance: a transaction sends it without waiting.
    Text(&'static str),
    /// The text that the work returns.
    ByWork,
    /// Nothing: the server stops.
    Nothing,
}

/// Work on another thread that a reply waits for.
#[derive(Clone)]
pub struct Awaited {
    /// Starts the work, or joins it if it has been started already.
    pub begin: Arc<dyn Fn(Done) + Send + Sync>,
    /// The reply in case of success.
    pub told: Told,
}

impl std::fmt::Debug for Awaited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Awaited").field(&self.told).finish()
    }
}
