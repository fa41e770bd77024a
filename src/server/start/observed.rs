//! The server as seen by telemetry: the service's shards, clients, scripts and counters, read without locking a
//! shard.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::script;
use crate::state::Service;
use crate::telemetry::Telemetry;
use crate::telemetry::counters;
use crate::telemetry::observed::{BigKey, Drawn, Observed, ScriptFigures, TokenFigures};
use crate::telemetry::replication::ReplicationFacts;
use basalt_commands::acl::Users;
use basalt_commands::client::registry::Registry;
use basalt_commands::command::host::cluster::Cluster;
use basalt_commands::config::Config;
use basalt_commands::pubsub;
use basalt_engine::Engine;
use basalt_engine::evict::budget::Budget;
use basalt_engine::largest::LARGE_BYTES_MIN;
use basalt_engine::published::Published;
use basalt_engine::value::DataType;

impl Observed for Service {
    fn all_published(&self) -> &[Arc<Published>] {
        &self.all_published
    }

    fn budget(&self) -> &Budget {
        &self.budget
    }

    fn tls(&self) -> Option<Arc<crate::tls::contexts::Contexts>> {
        self.tls.current()
    }

    fn tls_failure(&self) -> Option<String> {
        self.tls.failure()
    }

    fn token(&self, shard: usize) -> TokenFigures {
        let counters = self.shards.counters(shard as u16);
        TokenFigures {
            takes: counters.takes,
            takes_found_held: counters.takes_found_held,
            queued: counters.queued,
            multi_shard_runs: counters.multi_shard_runs,
            handed_over: counters.handed_over,
            worker_handovers: counters.worker_handovers,
            longest_hold_ns: counters.longest_hold_ns,
        }
    }

    fn forget_recent_hold(&self, shard: usize) {
        self.shards.forget_recent_hold(shard as u16);
    }

    fn big_keys(&self) -> Vec<BigKey> {
        let has_one = |published: &Published| {
            let mut types = DataType::ALL.iter();
            types.any(|(kind, _)| {
                let mut dbs = published.dbs.iter();
                dbs.any(|db| db.largest(*kind as usize) > 0)
            })
        };
        let mut found = Vec::new();
        for (shard, published) in self.all_published.iter().enumerate() {
            // Do not lock shards without large values, as most are.
            if !has_one(published) {
                continue;
            }
            let Some(engine) = self.shards.try_take(shard as u16) else {
                continue;
            };
            for db in 0..engine.database_count() {
                add_large(&engine, db, &mut found);
            }
        }
        found
    }

    fn sample(&self, shard: usize, draws: usize) -> Option<Vec<Drawn>> {
        let published = self.all_published.get(shard)?;
        let mut engine = self.shards.try_take(shard as u16)?;
        let mut all = Vec::new();
        for db in 0..engine.database_count() {
            let keys = published.dbs[db].keys.get();
            if keys == 0 {
                continue;
            }
            let mut found = Drawn {
                keys,
                ..Drawn::default()
            };
            add_large(&engine, db, &mut found.large);
            let Drawn {
                drawn,
                draws: count,
                large,
                ..
            } = &mut found;
            engine.sample(db, draws, |key, data_type, bytes| {
                *count += 1;
                let is_known = bytes >= LARGE_BYTES_MIN && large.iter().any(|big| big.key == key);
                if !is_known {
                    drawn.push((key.to_vec(), name_of(data_type), bytes));
                }
            });
            all.push(found);
        }
        Some(all)
    }

    fn clients(&self) -> &Registry {
        &self.clients
    }

    fn users(&self) -> &Users {
        &self.users
    }

    fn pubsub(&self) -> pubsub::Figures {
        self.pubsub.figures()
    }

    fn scripts(&self) -> ScriptFigures {
        let (libraries, functions) = self.scripts.functions.counts();
        let interpreters = script::memory_figures();
        ScriptFigures {
            scripts: self.scripts.len() as u64,
            scripts_bytes: self.scripts.bytes() as u64,
            evicted: self.scripts.evicted(),
            libraries: libraries as u64,
            functions: functions as u64,
            flushed_functions: self.scripts.functions.flushed(),
            functions_bytes: self.scripts.functions.bytes() as u64,
            interpreters_bytes: interpreters.total as u64,
            interpreted_functions_bytes: interpreters.functions as u64,
            interpreter_bytes: interpreters.live_each as u64,
            runs: counters::units(counters::UnitKind::Script),
            transactions: counters::units(counters::UnitKind::Transaction),
            extended: self.scripts.runs.extended.load(Relaxed),
            reruns: self.scripts.runs.reruns.load(Relaxed),
            slow: self.scripts.runs.slow.load(Relaxed),
            apart: self.scripts.runs.apart.load(Relaxed),
        }
    }

    fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    fn cluster(&self) -> Option<&dyn Cluster> {
        self.cluster.get().map(|cluster| &**cluster)
    }

    fn replication(&self) -> ReplicationFacts {
        let Some(server) = self.server.get() else {
            return ReplicationFacts::default();
        };
        ReplicationFacts {
            stream: server.primary().stream(),
            replicas: server.primary().replicas(),
            awaited: server.primary().awaited(),
            upstream: server.replica().upstream(),
            failover_state: server.replica().failover_state(),
        }
    }

    fn held_back_bytes(&self) -> (u64, u64) {
        let log = self.durability.get();
        (
            log.map_or(0, |log| log.held_bytes()),
            self.telemetry.persistence.rdb.waiting_bytes.load(Relaxed),
        )
    }

    fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }
}

/// Adds the large values that a shard tracks in a database.
fn add_large(engine: &Engine, db: usize, found: &mut Vec<BigKey>) {
    let Some(keys) = engine.db(db) else { return };
    for (kind, type_name) in DataType::ALL {
        keys.each_large(kind, |key, bytes| {
            found.push(BigKey {
                bytes,
                type_name,
                db,
                key: key.to_vec(),
            });
        });
    }
}

fn name_of(data_type: DataType) -> &'static str {
    let mut types = DataType::ALL.iter();
    let found = types.find(|(each, _)| *each == data_type);
    found.map_or("", |(_, name)| name)
}
