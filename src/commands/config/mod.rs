//! The configuration: one row per parameter; reading files, environment and arguments; CONFIG GET, SET and REWRITE.
//!
//! ```text
//! layers   defaults < file (redis.conf or TOML) < environment < arguments
//! table    PARAMETERS: name, kind, default, bounds, mutability, summary, and the field of `Config`
//! live     CONFIG GET, SET and REWRITE: pure functions over a `Config` and the table
//! ```
//!
//! Everything that handles parameters is a loop over the table, so a parameter is declared once. `Config` is plain
//! data: a change of it has no effect by itself. The caller that sets parameters applies the changes to the server,
//! given the names of the parameters that changed. Parameters that their row marks as refused are refused by name at
//! the start and by CONFIG SET.

pub mod completions;
pub mod error;
mod files;
mod foreign;
pub mod help;
pub mod layers;
pub mod live;
pub mod machine;
pub mod parameter;
mod pattern;
pub mod redis_conf;
pub mod rewrite;
pub mod seeds;
pub mod shares;
mod similar;
pub mod table;
pub mod values;
pub mod words;

use basalt_core::base::lossless;

pub use error::ConfigError;
pub use layers::{Action, Startup, load};
pub use parameter::Parameter;
pub use table::{Config, PARAMETERS};

/// Default share of `maxmemory` for clients, in percent; percentages are negative here.
const CLIENTS_PERCENT: i64 = -25;

/// Minimum bytes for clients with the default share, as a quarter of a small `maxmemory` is less than one large
/// request.
const CLIENT_BYTES_MIN: u64 = 64 << 20;

impl Config {
    /// Returns the server's mode as shown to clients: whether it is a node of a cluster.
    pub fn mode_name(&self) -> &'static str {
        match self.cluster_enabled {
            values::ClusterMode::No => "standalone",
            values::ClusterMode::Yes | values::ClusterMode::Emulated => "cluster",
        }
    }

    /// Returns the number of shards on a machine with this many cores: a power of two from 1 to 1024. The default is
    /// eight per core and at least 64, because the probability that two commands need the same shard is inversely
    /// proportional to the number of shards.
    pub fn shard_count(&self, cores: usize) -> usize {
        match self.shards {
            0 => (cores.max(1) * 8).next_power_of_two().clamp(64, 1024),
            given => (given as usize).next_power_of_two().min(1024),
        }
    }

    /// Returns the maximum bytes of all clients together; 0 for no limit.
    pub fn client_bytes_max(&self) -> u64 {
        match self.maxmemory_clients {
            // A percentage of an unlimited `maxmemory` is no limit.
            percent @ ..0 => {
                let part = u128::from(self.maxmemory) * u128::from(percent.unsigned_abs()) / 100;
                let part = u64::try_from(part).unwrap_or(u64::MAX);
                match percent == CLIENTS_PERCENT && part > 0 {
                    true => part.max(CLIENT_BYTES_MIN),
                    false => part,
                }
            }
            bytes => bytes.unsigned_abs(),
        }
    }

    /// Returns the maximum bytes of clients for which data are evicted: the limit of all clients, but not more than
    /// the percentage of `maxmemory`, which the minimum for a small `maxmemory` may exceed. `None`: all memory of
    /// clients.
    pub fn client_bytes_evicting(&self) -> Option<u64> {
        match (self.client_bytes_max(), self.maxmemory_clients) {
            (0, _) => None,
            (_, CLIENTS_PERCENT) => Some(self.maxmemory / 100 * CLIENTS_PERCENT.unsigned_abs()),
            (bytes, _) => Some(bytes),
        }
    }

    /// Calls `say` with the AUTH request of this server to its primary and to other nodes of its cluster; `None` if
    /// it has no password for them.
    pub fn sign_in<R>(&self, say: impl FnOnce(&[&[u8]]) -> R) -> Option<R> {
        let (user, password) = (
            lossless::bytes_of(&self.masteruser),
            lossless::bytes_of(&self.masterauth),
        );
        match (user.is_empty(), password.is_empty()) {
            (_, true) => None,
            (true, _) => Some(say(&[b"AUTH", &password])),
            (false, _) => Some(say(&[b"AUTH", &user, &password])),
        }
    }

    /// Returns the maximum bytes of the table that records which clients have cached which keys: an eighth of
    /// `maxmemory`, within bounds.
    pub fn tracked_bytes_max(&self) -> u64 {
        const BYTES_MIN: u64 = 1024 * 1024;
        const BYTES_MAX: u64 = 1024 * 1024 * 1024;
        match self.maxmemory {
            0 => BYTES_MAX,
            maxmemory => (maxmemory / 8).clamp(BYTES_MIN, BYTES_MAX),
        }
    }

    /// Computes `noted_request_bytes`.
    fn follow_sizes(&mut self) {
        self.noted_request_bytes = match self.size_tracking {
            true => 0,
            // A negative limit logs nothing, and becomes larger than any size.
            false => self.commandlog_request_larger_than as usize,
        };
    }

    /// Whether writes depend on the number of connected replicas.
    #[inline]
    pub fn wants_replicas(&self) -> bool {
        // One test for nearly all servers, which want none.
        (self.min_replicas_to_write | self.min_sync_replicas) != 0
            && (self.wants_good_replicas() || self.min_sync_replicas > 0)
    }

    /// Whether writes depend on the number of replicas that have been heard of lately (`min-replicas-to-write`).
    pub fn wants_good_replicas(&self) -> bool {
        self.min_replicas_to_write > 0 && self.min_replicas_max_lag > 0
    }

    /// Whether this is a node of a cluster with a single database.
    pub fn has_first_database_only(&self) -> bool {
        self.cluster_enabled == values::ClusterMode::Yes && self.cluster_databases == 1
    }

    /// Returns the number of threads that serve connections on a machine with this many cores.
    pub fn thread_count(&self, cores: usize) -> usize {
        if self.threads == 0 {
            cores.max(1)
        } else {
            self.threads as usize
        }
    }
}

/// Finds a row by name or alias, ignoring case.
pub fn find(name: &str) -> Option<&'static Parameter> {
    PARAMETERS
        .iter()
        .find(|parameter| parameter.is_called(name))
}

#[cfg(test)]
mod tests;
