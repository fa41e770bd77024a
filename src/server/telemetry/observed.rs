//! The interface through which telemetry reads a server: published figures only, so that reading never locks a
//! shard.
//!
//! The server implements it; telemetry depends on neither sessions nor tokens.

use std::sync::Arc;

use super::Telemetry;
use super::counters::Extents;
use super::replication::ReplicationFacts;
use crate::tls::contexts::Contexts;
use basalt_commands::acl::Users;
use basalt_commands::client::registry::Registry;
use basalt_commands::command::host::cluster::Cluster;
use basalt_commands::config::Config;
use basalt_commands::pubsub;
use basalt_engine::evict::budget::Budget;
use basalt_engine::published::Published;

/// A server as seen by telemetry.
pub trait Observed: Send + Sync {
    /// Returns the published figures of each shard.
    fn all_published(&self) -> &[Arc<Published>];
    /// Returns the memory budget shared by the shards.
    fn budget(&self) -> &Budget;
    /// Returns the counters of a shard's token.
    fn token(&self, shard: usize) -> TokenFigures;
    /// Returns the registry of all connections.
    fn clients(&self) -> &Registry;
    /// Returns all users with their counts of denials.
    fn users(&self) -> &Users;
    /// Returns the figures of channel and pattern subscriptions.
    fn pubsub(&self) -> pubsub::Figures;
    /// Returns the number and memory of scripts and functions.
    fn scripts(&self) -> ScriptFigures;
    /// Resets a shard's recent longest token hold.
    fn forget_recent_hold(&self, shard: usize);
    /// Returns the current configuration.
    fn config(&self) -> Arc<Config>;
    /// Returns the cluster that this server is a node of.
    fn cluster(&self) -> Option<&dyn Cluster>;
    /// Returns the replication figures: of the stream, of the link to its primary if this server is a replica, and of
    /// the links to its replicas.
    fn replication(&self) -> ReplicationFacts;
    /// Returns two numbers of bytes: those of the command log that wait for the disk, including the log's ring
    /// buffer, and those of a running snapshot that its sink has not accepted yet.
    fn held_back_bytes(&self) -> (u64, u64);
    /// Returns the largest values with their keys, except those of currently locked shards. Unlike other methods it
    /// locks shards, for readers who want key names (`metrics-key-names`).
    fn big_keys(&self) -> Vec<BigKey>;
    /// Samples some of a shard's entries at random; `None` if the shard is currently locked. Like
    /// [`Observed::big_keys`] it locks a shard, for readers who analyze memory.
    fn sample(&self, shard: usize, draws: usize) -> Option<Vec<Drawn>>;
    /// Returns the TLS contexts for handshakes, if TLS is in use.
    fn tls(&self) -> Option<Arc<Contexts>>;
    /// Returns why changed TLS files are not in force, if so.
    fn tls_failure(&self) -> Option<String>;
    /// Returns the server's telemetry.
    fn telemetry(&self) -> &Telemetry;
}

/// A large value with its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BigKey {
    /// Bytes that the value takes.
    pub bytes: u64,
    /// Name of its type.
    pub type_name: &'static str,
    /// Index of the database.
    pub db: usize,
    /// The key.
    pub key: Vec<u8>,
}

/// A sample of one database of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// Number of keys in the database.
    pub keys: u64,
    /// Entries sampled at random, except tracked large ones: each entry's key, type name and bytes.
    pub drawn: Vec<(Vec<u8>, &'static str, u64)>,
    /// Number of random draws, including those that hit a tracked large key.
    pub draws: u64,
    /// Large values that the shard tracks, in the sampled database.
    pub large: Vec<BigKey>,
}

/// Figures of scripts and functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptFigures {
    /// Scripts cached for EVALSHA.
    pub scripts: u64,
    /// Bytes of their sources.
    pub scripts_bytes: u64,
    /// EVAL scripts evicted in favor of newer ones.
    pub evicted: u64,
    /// Number of function libraries.
    pub libraries: u64,
    /// Functions of the libraries.
    pub functions: u64,
    /// Functions deleted by FUNCTION FLUSH.
    pub flushed_functions: u64,
    /// Bytes of the libraries' sources.
    pub functions_bytes: u64,
    /// Mean bytes of an interpreter, without garbage.
    pub interpreter_bytes: u64,
    /// Bytes of all interpreters.
    pub interpreters_bytes: u64,
    /// The part of `interpreters_bytes` that compiled libraries take.
    pub interpreted_functions_bytes: u64,
    /// Script runs by the number of shards locked.
    pub runs: Extents,
    /// Transactions, with or without scripts, by the number of shards locked.
    pub transactions: Extents,
    /// Shards that scripts locked while running, because they accessed keys that they had not declared.
    pub extended: u64,
    /// Times that scripts were rolled back and rerun.
    pub reruns: u64,
    /// Script runs that were rolled back because they took too long.
    pub slow: u64,
    /// Script runs on dedicated threads.
    pub apart: u64,
}

/// Usage of a shard's token. All figures but the last are monotonic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenFigures {
    /// Times the token was taken.
    pub takes: u64,
    /// Attempts that found the token held.
    pub takes_found_held: u64,
    /// Commands that had to queue.
    pub queued: u64,
    /// Operations on several shards of which this shard has the lowest index.
    pub multi_shard_runs: u64,
    /// Times the token was passed to another thread together with a queued command.
    pub handed_over: u64,
    /// Times the token was handed to the shard's worker.
    pub worker_handovers: u64,
    /// Longest recorded time that the token was held, in nanoseconds.
    pub longest_hold_ns: u64,
}
