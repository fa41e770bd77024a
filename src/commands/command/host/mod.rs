//! The server as commands see it, and its halves that have rows of their own; implemented far above, so that
//! `command` stays below telemetry, sockets and threads.
//!
//! ```text
//! this file    [`Server`], which is all of these, and what work that others do answers
//! cluster      the cluster that this server is a node of, and whose a slot is
//! debugging    switches of the DEBUG command
//! diagnostics  INFO, the slow log, latency, hot keys, memory
//! migration    keys that move to another server
//! persistence  snapshots, the append-only file, the end of the server
//! primary      the half of replication that sends the stream
//! replica      the half that follows somebody
//! scripts      scripts and functions
//! settings     the configuration, and the files of configuration and users
//! ```
//!
//! Nothing here knows a handler or what it works on.

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
pub use persistence::{Exit, Persistence, Reload};
pub use settings::Settings;

use self::cluster::Cluster;
use self::primary::Primary;
use self::replica::Replica;
use self::scripts::{LogChange, Scripts};
use super::error::CommandError;
use crate::acl::{User, Users};
use crate::client::registry::Registry;
use crate::pubsub::PubSub;
use basalt_engine::record::Records;

/// Whether a user could run a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DryRun {
    /// There is no such command.
    NoCommand,
    /// A command of this name has another number of arguments.
    WrongArity(&'static str),
    /// The user could not, in these words.
    Refused(String),
    /// The user could.
    Allowed,
}

/// The server as session handlers see it; the composition root implements it.
pub trait Server: Diagnostics + Persistence + Settings + Debugging + Send + Sync {
    /// The registry of connections.
    fn clients(&self) -> &Registry;
    /// All users, and what they were refused.
    fn users(&self) -> &Users;
    /// 40 hexadecimal digits that are drawn at each start.
    fn run_id(&self) -> &str;
    /// Whether a user could run a request.
    fn dry_run(&self, user: &User, request: &[Vec<u8>], db: usize) -> DryRun;
    /// Who is subscribed to what.
    fn pubsub(&self) -> &PubSub;
    /// The half of replication that sends the stream.
    fn primary(&self) -> &dyn Primary;
    /// The half that follows somebody.
    fn replica(&self) -> &'static dyn Replica;
    /// The cluster that this server is a node of, with `cluster-enabled yes`.
    fn cluster(&self) -> Option<&dyn Cluster>;
    /// Whether this server follows a primary.
    fn is_replica(&self) -> bool;
    /// Whether the stream does not come of the primary that this server follows.
    fn lacks_primary(&self) -> bool;
    /// CLIENT PAUSE: holds all clients back (or only their writes) until a Unix time in milliseconds. What is awaited
    /// is that all that was under way has taken effect.
    fn pause(&self, until_ms: u64, writes_only: bool) -> Awaited;
    /// CLIENT UNPAUSE.
    fn unpause(&self);
    /// DEBUG SLEEP: holds all clients back until a Unix time in milliseconds.
    fn sleep(&self, until_ms: u64);
    /// Microseconds since the epoch, read now.
    fn unix_us(&self) -> u64;
    /// Appends to the log what commands leave that belong to no shard, and forgets it; the position behind it. See
    /// [`basalt_engine::record::append`] for `is_unit`.
    fn log_records(&self, records: &mut Records, is_unit: bool) -> Option<u64>;
    /// Changes libraries of functions, and has the records of that appended if it succeeds: changes come one after the
    /// other, so that their records do. The position behind them.
    fn change_libraries(
        &self,
        records: &mut Records,
        change: &mut dyn FnMut(&dyn Scripts, LogChange<'_>) -> Result<(), CommandError>,
    ) -> Result<Option<u64>, CommandError>;
    /// How many shards there are.
    fn shard_count(&self) -> usize;
    /// Scripts and functions.
    fn scripts(&self) -> &dyn Scripts;
}

/// Callback that awaited work calls once with its result.
pub type Done = Box<dyn FnOnce(Result<String, CommandError>) + Send>;

/// The reply to a client once awaited work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// A text that is known before: a transaction answers it at once.
    Text(&'static str),
    /// The text that the work returns.
    ByWork,
    /// Nothing: the server stops.
    Nothing,
}

/// Work that others do, and a reply waits for.
#[derive(Clone)]
pub struct Awaited {
    /// Begins it, or waits for it if it has begun.
    pub begin: Arc<dyn Fn(Done) + Send + Sync>,
    /// The reply if all goes well.
    pub told: Told,
}

impl std::fmt::Debug for Awaited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Awaited").field(&self.told).finish()
    }
}
