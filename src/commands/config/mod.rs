//! One row per parameter; files, environment and arguments; CONFIG GET, SET and REWRITE.
//!
//! ```text
//! layers   defaults < file (redis.conf or TOML) < environment < arguments, merged by the `config` crate
//! table    PARAMETERS: name, kind, default, bounds, mutability, summary, and the field of `Config`
//! live     CONFIG GET, SET and REWRITE: pure functions over a `Config` and the table
//! ```
//!
//! Everything that handles parameters is a loop over the table, so a parameter is declared once. `Config` is plain
//! data: it notifies nothing of a change; the caller that sets parameters applies them, from the names that changed.
//! What a row calls refused is refused by name at the start and by CONFIG SET.

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

/// What clients may take of `maxmemory` unless something else is asked for; negative, as percents are here.
const CLIENTS_PERCENT: i64 = -25;

/// Bytes that clients may take in any case then, as a quarter of little is less than one large request.
const CLIENT_BYTES_MIN: u64 = 64 << 20;

impl Config {
    /// What clients are told of whether this is a node of a cluster.
    pub fn mode_name(&self) -> &'static str {
        match self.cluster_enabled {
            values::ClusterMode::No => "standalone",
            values::ClusterMode::Yes | values::ClusterMode::Emulated => "cluster",
        }
    }

    /// How many shards to make on a machine with this many cores: a power of two from 1 to 1024. Left to us, it is
    /// eight for each core and at least 64, because collisions fall as one over their number.
    pub fn shard_count(&self, cores: usize) -> usize {
        match self.shards {
            0 => (cores.max(1) * 8).next_power_of_two().clamp(64, 1024),
            given => (given as usize).next_power_of_two().min(1024),
        }
    }

    /// What all clients together may take, in bytes; 0 for no limit.
    pub fn client_bytes_max(&self) -> u64 {
        match self.maxmemory_clients {
            // Percent of nothing is no limit.
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

    /// Bytes of clients that data give way to at most: as much as clients may take, but no more than its percentage
    /// where the limit of clients is larger than that because `maxmemory` is small. `None`: whatever clients take.
    pub fn client_bytes_evicting(&self) -> Option<u64> {
        match (self.client_bytes_max(), self.maxmemory_clients) {
            (0, _) => None,
            (_, CLIENTS_PERCENT) => Some(self.maxmemory / 100 * CLIENTS_PERCENT.unsigned_abs()),
            (bytes, _) => Some(bytes),
        }
    }

    /// Says AUTH as this server does to its primary and to other nodes of its cluster; `None` where it has no password
    /// for them.
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

    /// What may be remembered of which clients have cached which keys, in bytes: an eighth of `maxmemory`, within
    /// bounds.
    pub fn tracked_bytes_max(&self) -> u64 {
        const BYTES_MIN: u64 = 1024 * 1024;
        const BYTES_MAX: u64 = 1024 * 1024 * 1024;
        match self.maxmemory {
            0 => BYTES_MAX,
            maxmemory => (maxmemory / 8).clamp(BYTES_MIN, BYTES_MAX),
        }
    }

    /// Whether writes depend on how many replicas follow.
    #[inline]
    pub fn wants_replicas(&self) -> bool {
        self.min_replicas_to_write > 0 && self.min_replicas_max_lag > 0
    }

    /// Whether this is a node of a cluster that has no other database than the first one.
    pub fn has_first_database_only(&self) -> bool {
        self.cluster_enabled == values::ClusterMode::Yes && self.cluster_databases == 1
    }

    /// How many threads serve connections on a machine with this many cores.
    pub fn thread_count(&self, cores: usize) -> usize {
        if self.threads == 0 {
            cores.max(1)
        } else {
            self.threads as usize
        }
    }
}

/// The row called this, by name or alias, in any case.
pub fn find(name: &str) -> Option<&'static Parameter> {
    PARAMETERS
        .iter()
        .find(|parameter| parameter.is_called(name))
}

#[cfg(test)]
mod tests;
