//! All figures at one moment, summed over shards and threads: the source of INFO, the metrics and MEMORY STATS.
//!
//! Gathering only reads published counters: no token is taken, so scrapes and shards never wait for each other.
//! Each figure is correct by itself, but the figures are not all from the same instant.

use std::sync::atomic::Ordering::Relaxed;

use super::counters::{self, BUCKETS};
use super::errors;
use super::event_loop::RoundFigures;
use super::histogram::Buckets;
use super::memory::{self, ClientFigures};
use super::miss_ratio::CurveFigures;
use super::observed::{Observed, ScriptFigures, TokenFigures};
use super::process::{self, Cpu};
use super::replication::ReplicationFacts;
use super::sampler::Rates;
use super::{Telemetry, clock};
use basalt_commands::client::memory::CLIENT_MEMORY;
use basalt_commands::client::shared::mailbox;
use basalt_commands::command::host::MemoryReport;
use basalt_commands::command::registry::registry;
use basalt_commands::pubsub;
use basalt_engine::published::{DbCounts, LAG_BOUNDS_MS};

/// Buckets of the expiry lag, including the unbounded one.
pub const LAG_BUCKETS: usize = LAG_BOUNDS_MS.len() + 1;

/// One command's figures, summed over all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandFigures {
    /// Full name of the command.
    pub name: &'static str,
    /// Number of runs.
    pub calls: u64,
    /// Total time of all runs.
    pub duration_ns: u64,
    /// Calls refused before running.
    pub rejected: u64,
    /// Runs that returned an error.
    pub failed: u64,
    /// Runs by duration.
    pub buckets: Buckets,
}

/// A shard's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardFigures {
    /// Keys in all databases.
    pub keys: u64,
    /// Bytes charged to the shard.
    pub bytes: u64,
    /// Commands run on the shard.
    pub commands: u64,
    /// Figures of the shard's token.
    pub token: TokenFigures,
}

/// A database's figures, summed over all shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseFigures {
    /// Bytes of its keys and values, including index overhead.
    pub bytes: u64,
    /// The database's share of memory in bytes, 0 if unlimited.
    pub share_bytes: u64,
    /// Counters of the database.
    pub counts: DbCounts,
    /// Hashes with fields that have deadlines.
    pub field_volatile: u64,
    /// Mean remaining TTL of its volatile keys, in milliseconds; 0 if it has no volatile keys.
    pub ttl_mean_ms: u64,
}

impl DatabaseFigures {
    fn of(service: &dyn Observed, index: usize, counts: DbCounts, now_ms: u64) -> Self {
        let (mut bytes, mut field_volatile) = (0, 0);
        let (mut volatile, mut sum_ms) = (0, 0.0);
        for published in service.all_published() {
            let db = &published.dbs[index];
            bytes += db.used_bytes();
            field_volatile += db.field_volatile_keys.get();
            let keys = db.volatile_keys.get();
            let left_ms = db.deadline_mean_ms.get() as f64 - now_ms as f64;
            if keys > 0 {
                volatile += keys;
                sum_ms += keys as f64 * left_ms;
            }
        }
        DatabaseFigures {
            bytes: bytes.max(0).unsigned_abs(),
            share_bytes: service.budget().share_bytes(index).unsigned_abs(),
            counts,
            field_volatile,
            // Clamp at zero: expired keys may still wait to be deleted.
            ttl_mean_ms: match volatile {
                0 => 0,
                volatile => (sum_ms / volatile as f64).max(0.0) as u64,
            },
        }
    }
}

/// Figures of the copies of hot keys' values, summed over all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotCopyFigures {
    /// Number of copies.
    pub copies: u64,
    /// Total length of the copied strings.
    pub bytes: u64,
}

/// Sums since the start, or since CONFIG RESETSTAT, which subtracts those of its moment from later ones: shards and
/// registries keep these sums, so that they cannot be reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResettableSums {
    /// Counts by database.
    pub dbs: Vec<DbCounts>,
    /// Hash fields deleted because they expired.
    pub expired_fields: u64,
    /// Collections freed after their shard was released.
    pub lazyfreed: u64,
    /// Clients closed to free memory.
    pub evicted_clients: u64,
    /// Number of accepted connections.
    pub accepted: u64,
    /// Number of rejected connections.
    pub rejected: u64,
    /// Connections closed because one request or transaction was too large.
    pub overfed: u64,
    /// Connections closed because they did not read their output.
    pub clients_cut: u64,
    /// EVAL scripts evicted in favor of newer ones.
    pub evicted_scripts: u64,
    /// Reads of hot keys that threads answered from copies; they are hits of their databases too.
    pub copy_reads: u64,
    /// Event-loop iterations other than the reads of connections.
    pub rounds: RoundFigures,
}

/// All figures at one moment; see the module.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Microseconds since the Unix epoch.
    pub unix_us: u64,
    /// Seconds since the server started.
    pub uptime_s: u64,
    /// Commands that ran or were refused, in registry order.
    pub commands: Vec<CommandFigures>,
    /// Number of commands run.
    pub calls: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Reads from sockets that returned data.
    pub reads: u64,
    /// Number of writes to sockets.
    pub writes: u64,
    /// Most commands that a connection ran between two reads.
    pub most_commands: u64,
    /// Rates per second over the last second and a half (INFO's `instantaneous_*`).
    pub rates: Rates,
    /// Sums since the statistics were reset.
    pub since_reset: ResettableSums,
    /// Bytes of the buffers that threads keep for their connections.
    pub pooled_bytes: u64,
    /// Copies of hot keys' values.
    pub hot_copies: HotCopyFigures,
    /// Figures by shard.
    pub shards: Vec<ShardFigures>,
    /// Counters of all databases together.
    pub counts: DbCounts,
    /// Figures of eviction: how keys were chosen, and whether new keys were promoted.
    pub eviction: Eviction,
    /// Nanoseconds spent on background expiry.
    pub expire_ns: u64,
    /// Expired keys by how late they were deleted.
    pub lag: [u64; LAG_BUCKETS],
    /// Sum of the lags.
    pub lag_sum_ms: u64,
    /// The longest expiry lag in milliseconds: how late a key was deleted.
    pub lag_max_ms: u64,
    /// Number of current client connections.
    pub clients: u64,
    /// Replication figures, as a primary and as a replica.
    pub replication: ReplicationFacts,
    /// Figures of subscriptions.
    pub pubsub: pubsub::Figures,
    /// Figures of scripts and functions.
    pub scripts: ScriptFigures,
    /// Memory of connections, and the number of waiting clients.
    pub client_figures: ClientFigures,
    /// Estimated hit ratios at other memory sizes.
    pub curve: CurveFigures,
    /// Figures by database.
    pub databases: Vec<DatabaseFigures>,
    /// Memory, and keys by database.
    pub memory: MemoryReport,
    /// CPU time of the process.
    pub cpu: Cpu,
    /// Error replies by their first word.
    pub errors: Vec<(Box<str>, u64)>,
    /// Number of all error replies.
    pub error_count: u64,
}

/// Eviction since the start, and memory use relative to its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Eviction {
    /// Keys evicted from the queue of new keys.
    pub from_small: u64,
    /// Keys evicted from the main queue.
    pub from_main: u64,
    /// Keys evicted at random or by their deadline.
    pub otherwise: u64,
    /// Keys promoted from the queue of new keys to the main queue because they were used.
    pub promoted: u64,
    /// Keys that were set again soon after their eviction.
    pub ghost_hits: u64,
    /// Time in milliseconds for which memory has now been above the limit.
    pub exceeded_ms: u64,
    /// Total time in milliseconds for which memory was above the limit.
    pub exceeded_total_ms: u64,
    /// Bytes still to be evicted.
    pub debt_bytes: u64,
    /// Nanoseconds spent on background eviction.
    pub spent_ns: u64,
}

impl Eviction {
    /// Returns the current figures.
    pub fn now(service: &dyn Observed) -> Eviction {
        Eviction::of(service, clock::unix_ms())
    }

    fn of(service: &dyn Observed, now_ms: u64) -> Eviction {
        let budget = service.budget();
        let (exceeded_ms, exceeded_total_ms) = budget.exceeded_ms(now_ms);
        let debt = match budget.is_limited() {
            true => budget.debt_bytes(),
            false => 0,
        };
        let mut eviction = Eviction {
            exceeded_ms,
            exceeded_total_ms,
            debt_bytes: debt.max(0).unsigned_abs(),
            spent_ns: service.telemetry().evict_ns.load(Relaxed),
            ..Eviction::default()
        };
        let mut all = 0;
        for published in service.all_published() {
            all += published.all_counts().evicted;
            eviction.from_small += published.evicted_small.get();
            eviction.from_main += published.evicted_main.get();
            eviction.promoted += published.promoted.get();
            eviction.ghost_hits += published.ghost_hits.get();
        }
        eviction.otherwise = all.saturating_sub(eviction.from_small + eviction.from_main);
        eviction
    }
}

impl ResettableSums {
    /// Returns the current figures.
    pub fn of(service: &dyn Observed) -> ResettableSums {
        let scripts = service.scripts();
        let mut sums = ResettableSums {
            accepted: service.clients().accepted.load(Relaxed),
            rejected: service.clients().rejected.load(Relaxed),
            overfed: service.clients().overfed.load(Relaxed),
            clients_cut: mailbox::CUT.load(Relaxed),
            evicted_clients: CLIENT_MEMORY.evicted.load(Relaxed),
            rounds: service.telemetry().rounds.figures(),
            lazyfreed: scripts.flushed_functions,
            evicted_scripts: scripts.evicted,
            ..ResettableSums::default()
        };
        for published in service.all_published() {
            let counts = (0..published.dbs.len()).map(|db| published.counts(db));
            sums.dbs.resize(published.dbs.len(), DbCounts::default());
            for (sum, of_shard) in sums.dbs.iter_mut().zip(counts) {
                *sum = sum.plus(of_shard);
            }
            sums.expired_fields += published.expired_fields.get();
            sums.lazyfreed += published.lazyfreed.get();
        }
        for thread in counters::all() {
            thread.hot_copies.each_read(|db, reads| {
                if let Some(sum) = sums.dbs.get_mut(db) {
                    sum.hits += reads;
                }
                sums.copy_reads += reads;
            });
        }
        sums
    }

    fn since(&self, earlier: &ResettableSums) -> ResettableSums {
        let before = |db: usize| earlier.dbs.get(db).copied().unwrap_or_default();
        let dbs = self.dbs.iter().enumerate();
        let more = u64::saturating_sub;
        ResettableSums {
            dbs: dbs.map(|(db, counts)| counts.since(before(db))).collect(),
            expired_fields: more(self.expired_fields, earlier.expired_fields),
            lazyfreed: more(self.lazyfreed, earlier.lazyfreed),
            evicted_clients: more(self.evicted_clients, earlier.evicted_clients),
            accepted: more(self.accepted, earlier.accepted),
            rejected: more(self.rejected, earlier.rejected),
            overfed: more(self.overfed, earlier.overfed),
            clients_cut: more(self.clients_cut, earlier.clients_cut),
            evicted_scripts: more(self.evicted_scripts, earlier.evicted_scripts),
            copy_reads: more(self.copy_reads, earlier.copy_reads),
            rounds: self.rounds.since(&earlier.rounds),
        }
    }
}

impl Snapshot {
    /// Gathers the current figures.
    pub fn gather(service: &dyn Observed) -> Snapshot {
        let used = memory::MemoryUsage::now(service.telemetry());
        let telemetry: &Telemetry = service.telemetry();
        let since_reset = ResettableSums::of(service).since(&telemetry.baseline.lock());
        let commands = commands();
        let client_figures = memory::client_figures(service);
        let unix_us = clock::unix_us();
        let replication = service.replication();
        let mut snapshot = Snapshot {
            unix_us,
            uptime_s: (unix_us / 1_000).saturating_sub(telemetry.started_ms) / 1_000,
            calls: commands.iter().map(|command| command.calls).sum(),
            commands,
            bytes_in: 0,
            bytes_out: 0,
            reads: 0,
            writes: 0,
            most_commands: 0,
            rates: telemetry.sampler.rates(),
            shards: shards(service),
            counts: (since_reset.dbs.iter()).fold(DbCounts::default(), |sum, db| sum.plus(*db)),
            eviction: Eviction::of(service, unix_us / 1_000),
            expire_ns: telemetry.expire_ns.load(Relaxed),
            pooled_bytes: 0,
            hot_copies: HotCopyFigures::default(),
            lag: [0; LAG_BUCKETS],
            lag_sum_ms: 0,
            lag_max_ms: 0,
            // Replicas are not counted as clients, as in Redis.
            clients: service
                .clients()
                .count()
                .saturating_sub(replication.replicas.len()) as u64,
            replication,
            pubsub: service.pubsub(),
            scripts: service.scripts(),
            client_figures,
            curve: CurveFigures::gather(service.all_published()),
            databases: (since_reset.dbs.iter().enumerate())
                .map(|(index, counts)| {
                    DatabaseFigures::of(service, index, *counts, unix_us / 1_000)
                })
                .collect(),
            memory: memory::report(service, telemetry, client_figures, used),
            since_reset,
            cpu: process::cpu(),
            errors: errors::counts(),
            error_count: errors::total(),
        };
        snapshot.add_threads();
        snapshot.add_shards(service);
        snapshot
    }

    fn add_threads(&mut self) {
        for thread in counters::all() {
            self.bytes_in += thread.bytes_in.get();
            self.bytes_out += thread.bytes_out.get();
            self.reads += thread.reads.get();
            self.writes += thread.writes.get();
            self.most_commands = self.most_commands.max(thread.most_commands.get());
            self.pooled_bytes += thread.pooled_bytes.get();
            thread.hot_copies.each_copy(|copy| {
                self.hot_copies.copies += 1;
                self.hot_copies.bytes += copy.len as u64;
            });
        }
    }

    fn add_shards(&mut self, service: &dyn Observed) {
        for published in service.all_published() {
            self.lag_sum_ms += published.expiry_lag_sum_ms.get();
            self.lag_max_ms = self.lag_max_ms.max(published.expiry_lag_max_ms.get());
            for (sum, count) in self.lag.iter_mut().zip(&published.expiry_lag) {
                *sum += count.get();
            }
        }
    }

    /// Returns the token counters of all shards together; the longest hold is the longest of any shard.
    pub fn tokens(&self) -> TokenFigures {
        let mut sum = TokenFigures::default();
        for shard in &self.shards {
            let token = &shard.token;
            sum.takes += token.takes;
            sum.takes_found_held += token.takes_found_held;
            sum.queued += token.queued;
            sum.multi_shard_runs += token.multi_shard_runs;
            sum.handed_over += token.handed_over;
            sum.worker_handovers += token.worker_handovers;
            sum.longest_hold_ns = sum.longest_hold_ns.max(token.longest_hold_ns);
        }
        sum
    }

    /// Returns the lag in ms that `percent` of the expired keys did not exceed.
    pub fn lag_percentile_ms(&self, percent: f64) -> f64 {
        lag_percentile_ms(&self.lag, self.lag_max_ms, percent)
    }
}

fn lag_percentile_ms(lag: &[u64; LAG_BUCKETS], max_ms: u64, percent: f64) -> f64 {
    let total: u64 = lag.iter().sum();
    let rank = (percent / 100.0 * total as f64).max(f64::MIN_POSITIVE);
    let mut before = 0;
    for (index, &count) in lag.iter().enumerate() {
        if count > 0 && (before + count) as f64 >= rank {
            let lower = if index == 0 {
                0
            } else {
                LAG_BOUNDS_MS[index - 1]
            };
            let upper = LAG_BOUNDS_MS
                .get(index)
                .copied()
                .unwrap_or(max_ms)
                .min(max_ms)
                .max(lower);
            return lower as f64 + (rank - before as f64) / count as f64 * (upper - lower) as f64;
        }
        before += count;
    }
    0.0
}

/// Returns a command's figures, if it ever ran or was refused.
pub fn command(id: usize) -> Option<CommandFigures> {
    let mut figures = CommandFigures {
        name: registry().all().get(id)?.full_name,
        calls: 0,
        duration_ns: 0,
        rejected: 0,
        failed: 0,
        buckets: [0; BUCKETS],
    };
    for thread in counters::all() {
        let counters = thread.command_by_id(id);
        figures.calls += counters.calls.get();
        figures.duration_ns += counters.duration_ns.get();
        figures.rejected += counters.rejected.get();
        figures.failed += counters.failed.get();
        for (sum, count) in figures
            .buckets
            .iter_mut()
            .zip(counters.histogram().into_iter().flatten())
        {
            *sum += count.get();
        }
    }
    (figures.calls + figures.rejected + figures.failed > 0).then_some(figures)
}

fn commands() -> Vec<CommandFigures> {
    (0..registry().all().len()).filter_map(command).collect()
}

fn shards(service: &dyn Observed) -> Vec<ShardFigures> {
    let shards = service
        .all_published()
        .iter()
        .enumerate()
        .map(|(index, published)| ShardFigures {
            keys: published.dbs.iter().map(|db| db.keys.get()).sum(),
            bytes: published.used_bytes().max(0).unsigned_abs(),
            commands: published.commands.get(),
            token: service.token(index),
        });
    shards.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_percentiles_are_interpolated_and_never_above_the_longest_lag() {
        let mut lag = [0; LAG_BUCKETS];
        assert_eq!(lag_percentile_ms(&lag, 0, 99.0), 0.0);
        lag[3] = 100; // 10 to 20 ms
        assert_eq!(lag_percentile_ms(&lag, 20, 50.0), 15.0);
        assert_eq!(lag_percentile_ms(&lag, 12, 100.0), 12.0);
        lag[LAG_BUCKETS - 1] = 100; // above 5 s
        assert_eq!(lag_percentile_ms(&lag, 9_000, 100.0), 9_000.0);
    }

    #[test]
    fn a_baseline_is_subtracted_without_going_below_zero() {
        let with = |hits, expired, expired_fields| ResettableSums {
            dbs: vec![
                DbCounts::default(),
                DbCounts {
                    hits,
                    expired,
                    ..DbCounts::default()
                },
            ],
            expired_fields,
            ..ResettableSums::default()
        };
        assert_eq!(with(7, 3, 6).since(&with(5, 9, 4)), with(2, 0, 2));
    }
}
