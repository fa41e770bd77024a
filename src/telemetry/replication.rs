//! What replication says of itself: figures that INFO, the metrics and admission read, written where replication runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::command::replication::primary::{ReplicaFacts, StreamFacts};
use crate::command::replication::replica::Upstream;
use crate::config::Config;

/// Figures of replication.
#[derive(Debug, Default)]
pub struct Replication {
    /// Whether this server follows a primary.
    pub is_replica: AtomicBool,
    /// Whether the link to the primary is up: its stream is applied as it comes.
    pub is_link_up: AtomicBool,
    /// Commands of the primary that answered with an error here.
    pub unexpected_errors: AtomicU64,
    /// Bytes of the stream, and of snapshots, that came from primaries.
    pub input_bytes: AtomicU64,
    /// Replicas that were heard of within `min-replicas-max-lag` seconds.
    pub good_replicas: AtomicU64,
    /// Full resynchronizations that replicas asked for.
    pub full_syncs: AtomicU64,
    /// Partial resynchronizations that were granted.
    pub partial_syncs: AtomicU64,
    /// Partial resynchronizations that were refused.
    pub partial_syncs_refused: AtomicU64,
    /// Until when the end of the server waits for replicas, in Unix milliseconds; 0: it does not.
    pub ends_at_ms: AtomicU64,
    /// Bytes sent to replicas.
    pub sent_bytes: AtomicU64,
}

impl Replication {
    /// CONFIG RESETSTAT.
    pub fn reset(&self) {
        for counter in [
            &self.full_syncs,
            &self.partial_syncs,
            &self.partial_syncs_refused,
            &self.sent_bytes,
            &self.input_bytes,
        ] {
            counter.store(0, Relaxed);
        }
    }
}

/// Both halves at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The stream.
    pub stream: StreamFacts,
    /// Who follows.
    pub replicas: Vec<ReplicaFacts>,
    /// Replicas that have not come yet for what follows their snapshot.
    pub awaited: usize,
    /// Who is followed; none on a primary.
    pub upstream: Option<Upstream>,
    /// How far a failover is; empty where there is no server.
    pub failover_state: &'static str,
}

impl Facts {
    /// The role, as INFO says.
    pub fn role(&self) -> &'static str {
        match self.upstream {
            None => "master",
            Some(_) => "slave",
        }
    }
}

impl Replication {
    /// Whether clients can not write, because this server is a replica.
    #[inline]
    pub fn refuses_writes(&self, config: &Config) -> bool {
        self.is_replica.load(Relaxed) && config.replica_read_only
    }

    /// Whether clients can not read either, because the primary's stream does not come.
    #[inline]
    pub fn is_stale(&self, config: &Config) -> bool {
        self.is_replica.load(Relaxed)
            && !self.is_link_up.load(Relaxed)
            && !config.replica_serve_stale_data
    }
}
