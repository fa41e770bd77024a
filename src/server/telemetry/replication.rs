//! Replication figures, written by replication and read by INFO, the metrics and admission.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

use crate::telemetry::log;
use basalt_commands::client::connection::Origin;
use basalt_commands::command::host::primary::{ReplicaFacts, StreamFacts};
use basalt_commands::command::host::replica::Upstream;
use basalt_commands::config::Config;
use basalt_commands::config::values::PropagationError;

/// Replication figures.
#[derive(Debug, Default)]
pub struct ReplicationMetrics {
    /// Whether this server follows a primary.
    pub is_replica: AtomicBool,
    /// Whether the link to the primary is up, that is, its stream is applied as it arrives.
    pub is_link_up: AtomicBool,
    /// Commands from the primary, the append-only file or an incoming slot migration that returned an error.
    pub unexpected_errors: AtomicU64,
    /// Bytes received from primaries, of the stream and of snapshots.
    pub input_bytes: AtomicU64,
    /// Replicas that acknowledged within `min-replicas-max-lag` seconds.
    pub good_replicas: AtomicU64,
    /// Replicas that follow the stream and have acknowledged some of it, which count for `min-sync-replicas`.
    pub sync_replicas: AtomicU64,
    /// Whether `min-sync-replicas` replicas did not confirm a write in time, and have not done so since.
    pub is_confirmation_overdue: AtomicBool,
    /// Batches of replies that became errors because replicas did not confirm in time.
    pub unconfirmed_replies: AtomicU64,
    /// Full resynchronizations requested by replicas.
    pub full_syncs: AtomicU64,
    /// Partial resynchronizations of replicas that were granted (INFO `sync_partial_ok`).
    pub partial_syncs: AtomicU64,
    /// Partial resynchronizations of replicas that were refused (INFO `sync_partial_err`).
    pub partial_syncs_refused: AtomicU64,
    /// When shutdown stops waiting for replicas, in Unix milliseconds; 0 if it is not waiting for them.
    pub ends_at_ms: AtomicU64,
    /// Bytes sent to replicas.
    pub sent_bytes: AtomicU64,
    /// Bytes of the stream kept for slow replicas beyond the backlog's size.
    pub kept_bytes: Arc<AtomicI64>,
}

impl ReplicationMetrics {
    /// Resets the statistics: CONFIG RESETSTAT.
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

impl ReplicationMetrics {
    /// Records that a command which succeeded elsewhere returned an error here, so that the data differ.
    /// `propagation-error-behavior` determines the consequences.
    #[cold]
    pub fn note_error(&self, origin: Origin, config: &Config, name: &'static str, reply: &str) {
        let (this, whom) = match origin {
            Origin::File => ("server", "AOF-loading-client"),
            Origin::Primary => ("replica", "master"),
            Origin::SlotImport | Origin::Client => ("node", "slot migration source"),
        };
        self.unexpected_errors.fetch_add(1, Relaxed);
        let reply = log::quoted(reply.as_bytes());
        log::warn_seldom(
            name,
            format_args!(
                "== CRITICAL == This {this} is sending an error to its {whom}: '{reply}' after processing the command '{name}'"
            ),
        );
        if is_fatal(origin, config) {
            die(&format!(
                "This {this} panicked sending an error to its {whom} after processing the command '{name}'"
            ));
        }
    }

    /// Records that a command from the primary is about to run although this server cannot persist it.
    #[cold]
    pub fn note_unsaved(&self, config: &Config) {
        if !config.replica_ignore_disk_write_errors {
            die("Replica was unable to write command to disk.");
        }
        log::warn_seldom(
            "unsaved",
            format_args!(
                "Replica is applying a command even though it is unable to write to disk."
            ),
        );
    }
}

/// Whether an error of a command that already succeeded once ends the process. On a replica that clients write to,
/// the data differ anyhow.
fn is_fatal(origin: Origin, config: &Config) -> bool {
    match (config.propagation_error_behavior, origin) {
        // The migration is aborted, and the slots stay where they are.
        (_, Origin::SlotImport | Origin::Client) => false,
        (PropagationError::Ignore, _) | (PropagationError::PanicOnReplicas, Origin::File) => false,
        (PropagationError::Panic, Origin::File) => true,
        (_, Origin::Primary) => config.replica_read_only,
    }
}

/// Aborts the process with a report, even where a panic would only end a thread.
fn die(why: &str) -> ! {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            std::process::abort();
        }
    }
    let _end = End;
    panic!("{why}");
}

/// Replication figures at one moment: of this server as a primary, and as a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicationFacts {
    /// The replication stream.
    pub stream: StreamFacts,
    /// The connected replicas.
    pub replicas: Vec<ReplicaFacts>,
    /// Number of replicas that received their snapshot but have not yet connected again to receive the stream.
    pub awaited: usize,
    /// The primary being followed; `None` on a primary.
    pub upstream: Option<Upstream>,
    /// Progress of a failover; empty if there is no server.
    pub failover_state: &'static str,
}

impl ReplicationFacts {
    /// Returns the role as shown by INFO.
    pub fn role(&self) -> &'static str {
        match self.upstream {
            None => "master",
            Some(_) => "slave",
        }
    }
}

impl ReplicationMetrics {
    /// Whether clients' writes are refused because this server is a replica.
    #[inline]
    pub fn refuses_writes(&self, config: &Config) -> bool {
        self.is_replica.load(Relaxed) && config.replica_read_only
    }

    /// Whether clients' reads are refused too, because the link to the primary is down.
    #[inline]
    pub fn is_stale(&self, config: &Config) -> bool {
        self.is_replica.load(Relaxed)
            && !self.is_link_up.load(Relaxed)
            && !config.replica_serve_stale_data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_fatal_where_that_is_wanted_and_never_to_a_replica_that_clients_write_to() {
        let mut config = Config::default();
        let mut fatal = |behavior, is_read_only| {
            config.propagation_error_behavior = behavior;
            config.replica_read_only = is_read_only;
            assert!(!is_fatal(Origin::SlotImport, &config));
            [Origin::File, Origin::Primary].map(|origin| is_fatal(origin, &config))
        };
        assert_eq!(fatal(PropagationError::Ignore, true), [false, false]);
        assert_eq!(fatal(PropagationError::Panic, true), [true, true]);
        assert_eq!(fatal(PropagationError::Panic, false), [true, false]);
        assert_eq!(
            fatal(PropagationError::PanicOnReplicas, true),
            [false, true]
        );
        assert_eq!(
            fatal(PropagationError::PanicOnReplicas, false),
            [false, false]
        );
    }
}
