//! What telemetry reads of a server: published figures only, so that looking never takes a shard.
//!
//! The server implements it; telemetry knows neither sessions nor tokens.

use std::sync::Arc;

use super::Telemetry;
use super::counters::Extents;
use super::replication::Facts;
use crate::tls::contexts::Contexts;
use basalt_commands::acl::Users;
use basalt_commands::client::registry::Registry;
use basalt_commands::command::host::cluster::Cluster;
use basalt_commands::config::Config;
use basalt_commands::pubsub;
use basalt_engine::evict::budget::Budget;
use basalt_engine::published::Published;

/// See the module.
pub trait Observed: Send + Sync {
    /// What each shard publishes.
    fn all_published(&self) -> &[Arc<Published>];
    /// The memory that shards share.
    fn budget(&self) -> &Budget;
    /// What was counted of a shard's token.
    fn token(&self, shard: usize) -> TokenFigures;
    /// All connections.
    fn clients(&self) -> &Registry;
    /// All users, and how often they were refused something.
    fn users(&self) -> &Users;
    /// How many subscriptions there are.
    fn pubsub(&self) -> pubsub::Figures;
    /// How many scripts and functions there are, and what they take.
    fn scripts(&self) -> ScriptFigures;
    /// Holds of a shard's token until now are not of late any more.
    fn forget_recent_hold(&self, shard: usize);
    /// The configuration as it is now.
    fn config(&self) -> Arc<Config>;
    /// The cluster that this server is a node of.
    fn cluster(&self) -> Option<&dyn Cluster>;
    /// Who follows whom.
    fn replication(&self) -> Facts;
    /// Bytes that wait for the disk in the log, with its ring, and those that a snapshot's sink has not taken.
    fn held_back_bytes(&self) -> (u64, u64);
    /// The largest values with their keys, but for those of shards that are held just now: the one look that takes
    /// shards, for those who want names (`metrics-key-names`).
    fn big_keys(&self) -> Vec<BigKey>;
    /// Some of a shard's entries, drawn at random; none where the shard is held just now. As [`Observed::big_keys`], it
    /// is a look that takes a shard, for who looks at what memory is made of.
    fn sample(&self, shard: usize, draws: usize) -> Option<Vec<Drawn>>;
    /// What TLS handshakes begin with, if there is something that needs it.
    fn tls(&self) -> Option<Arc<Contexts>>;
    /// Why TLS files that changed are not in force, if they are not.
    fn tls_failure(&self) -> Option<String>;
    /// What the server remembers of itself.
    fn telemetry(&self) -> &Telemetry;
}

/// A large value, and its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BigKey {
    /// Bytes that it takes.
    pub bytes: u64,
    /// Name of its type.
    pub type_name: &'static str,
    /// Number of its database.
    pub db: usize,
    /// The key.
    pub key: Vec<u8>,
}

/// What was drawn of a database of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// Keys that there are.
    pub keys: u64,
    /// Keys that were drawn at random, but for the large ones that are known: the key, the name of its type, its bytes.
    pub drawn: Vec<(Vec<u8>, &'static str, u64)>,
    /// How many were drawn, with those that are known.
    pub draws: u64,
    /// The large ones that are known.
    pub large: Vec<BigKey>,
}

/// Scripts and functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptFigures {
    /// Scripts that EVALSHA finds.
    pub scripts: u64,
    /// What their sources take.
    pub scripts_bytes: u64,
    /// Scripts of EVAL that gave way to newer ones.
    pub evicted: u64,
    /// Libraries.
    pub libraries: u64,
    /// Functions of the libraries.
    pub functions: u64,
    /// Functions that went when all were deleted.
    pub flushed_functions: u64,
    /// What their sources take.
    pub functions_bytes: u64,
    /// What one interpreter takes on average, without garbage.
    pub interpreter_bytes: u64,
    /// What all interpreters take.
    pub interpreters_bytes: u64,
    /// What compiled libraries take of that.
    pub interpreted_functions_bytes: u64,
    /// Runs by the shards that they took.
    pub runs: Extents,
    /// Transactions, with scripts or without, by how many shards they had.
    pub transactions: Extents,
    /// Shards that scripts got on the way.
    pub extended: u64,
    /// Times that scripts were undone and run again.
    pub reruns: u64,
    /// Runs that were undone because they took long.
    pub slow: u64,
    /// Runs on threads of their own.
    pub apart: u64,
}

/// How a shard's token was used. All but the last only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenFigures {
    /// Times it was taken.
    pub takes: u64,
    /// Tries that found it held.
    pub takes_found_held: u64,
    /// Commands that had to queue.
    pub queued: u64,
    /// Operations over several shards of which this was the lowest.
    pub multi_shard_runs: u64,
    /// Times it travelled on with a command.
    pub handed_over: u64,
    /// Times it was given to the shard's worker.
    pub worker_handovers: u64,
    /// Longest hold that was noted.
    pub longest_hold_ns: u64,
}
