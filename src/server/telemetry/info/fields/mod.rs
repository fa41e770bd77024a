//! Fields of INFO as rows: a name, a type, and how the value is read.
//!
//! ```text
//! mod           the types; the sections on clients, counts since the start, and debugging
//! server        the program, its addresses and its clock
//! memory        memory used by data, clients and scripts
//! persistence   snapshots, the append-only file, loading
//! replication   the primary, the replicas, and the stream
//! ```

pub(super) mod memory;
pub(super) mod persistence;
pub(super) mod replication;
pub(super) mod server;

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{InfoContext, Lines, ratio};
use crate::telemetry::DefragFigures;
use crate::telemetry::replication::ReplicationMetrics;
use crate::telemetry::slot_moves::Moved;
use basalt_commands::acl::Denied;
use basalt_commands::command::host::cluster::MovesInProgress;
use basalt_commands::config::values::ClusterMode;

/// A field of INFO.
pub(super) struct InfoField {
    name: &'static str,
    read: InfoFieldReader,
}

/// The type of a field, with the function that reads it.
enum InfoFieldReader {
    /// A whole number.
    Count(fn(&InfoContext<'_>) -> u64),
    /// A number with two decimals.
    Decimal(fn(&InfoContext<'_>) -> f64),
    /// Bytes, with a second field for people.
    Bytes(fn(&InfoContext<'_>) -> u64),
    /// A percentage with two decimals, from a part and the whole.
    Percent(fn(&InfoContext<'_>) -> (u64, u64)),
    /// A text; the line is omitted if the function returns `None`.
    Text(fn(&InfoContext<'_>) -> Option<String>),
    /// A value known at build time.
    Constant(&'static str),
    /// A feature that this server lacks, shown as in an idle Redis.
    Zero,
}

const fn count(name: &'static str, read: fn(&InfoContext<'_>) -> u64) -> InfoField {
    InfoField {
        name,
        read: InfoFieldReader::Count(read),
    }
}

const fn decimal(name: &'static str, read: fn(&InfoContext<'_>) -> f64) -> InfoField {
    InfoField {
        name,
        read: InfoFieldReader::Decimal(read),
    }
}

const fn bytes(name: &'static str, read: fn(&InfoContext<'_>) -> u64) -> InfoField {
    InfoField {
        name,
        read: InfoFieldReader::Bytes(read),
    }
}

const fn percent(name: &'static str, read: fn(&InfoContext<'_>) -> (u64, u64)) -> InfoField {
    InfoField {
        name,
        read: InfoFieldReader::Percent(read),
    }
}

const fn text(name: &'static str, read: fn(&InfoContext<'_>) -> Option<String>) -> InfoField {
    InfoField {
        name,
        read: InfoFieldReader::Text(read),
    }
}

const fn constant(name: &'static str, value: &'static str) -> InfoField {
    InfoField {
        name,
        read: InfoFieldReader::Constant(value),
    }
}

/// Formats a value that is always present.
fn shown(value: impl Display) -> Option<String> {
    Some(value.to_string())
}

const fn zero(name: &'static str) -> InfoField {
    InfoField {
        name,
        read: InfoFieldReader::Zero,
    }
}

/// Writes rows in order.
pub(super) fn write(fields: &[InfoField], source: &InfoContext<'_>, lines: &mut Lines) {
    for field in fields {
        match field.read {
            InfoFieldReader::Count(read) => lines.field(field.name, read(source)),
            InfoFieldReader::Decimal(read) => lines.decimal(field.name, read(source)),
            InfoFieldReader::Bytes(read) => lines.bytes(field.name, read(source)),
            InfoFieldReader::Percent(read) => {
                let (part, whole) = read(source);
                let percent = 100.0 * ratio(part, whole);
                lines.field(field.name, format_args!("{percent:.2}%"));
            }
            InfoFieldReader::Text(read) => {
                if let Some(text) = read(source) {
                    lines.field(field.name, text);
                }
            }
            InfoFieldReader::Constant(value) => lines.field(field.name, value),
            InfoFieldReader::Zero => lines.field(field.name, 0),
        }
    }
}

/// Returns all rows with numbers, except those that are shown only while the server loads.
fn with_numbers() -> impl Iterator<Item = &'static InfoField> {
    let of_saving = persistence::ALWAYS.iter().chain(persistence::APPENDING);
    let counted = CLIENTS.iter().chain(STATS).chain(memory::MEMORY);
    let of_server = server::SERVER.iter().chain(CLUSTER).chain(SLOT_MOVES);
    let of_caches = LEASES.iter().chain(LOCKS);
    of_server.chain(counted).chain(of_saving).chain(of_caches)
}

/// Returns the unrounded number of a row; `None` if it is a text or does not exist.
pub(super) fn number(source: &InfoContext<'_>, name: &str) -> Option<f64> {
    let field = with_numbers().find(|field| field.name == name)?;
    match field.read {
        InfoFieldReader::Count(read) | InfoFieldReader::Bytes(read) => Some(read(source) as f64),
        InfoFieldReader::Decimal(read) => Some(read(source)),
        InfoFieldReader::Percent(read) => {
            let (part, whole) = read(source);
            Some(100.0 * ratio(part, whole))
        }
        InfoFieldReader::Text(read) => read(source)?.parse().ok(),
        InfoFieldReader::Constant(_) => None,
        InfoFieldReader::Zero => Some(0.0),
    }
}

/// Returns a figure of defragmentation.
fn defrag(source: &InfoContext<'_>, figure: fn(&DefragFigures) -> &AtomicU64) -> u64 {
    figure(&source.telemetry.defrag).load(Relaxed)
}

/// Returns a figure of replication.
fn link(source: &InfoContext<'_>, figure: fn(&ReplicationMetrics) -> &AtomicU64) -> u64 {
    figure(&source.telemetry.replication).load(Relaxed)
}

/// Returns the number of slot migrations in progress, outgoing and incoming.
fn moves(source: &InfoContext<'_>) -> MovesInProgress {
    let cluster = source.service.cluster();
    cluster.map_or_else(MovesInProgress::default, |cluster| {
        cluster.moves_in_progress()
    })
}

/// Returns a figure of outgoing slot migrations.
fn exports(source: &InfoContext<'_>, figure: fn(&Moved) -> &AtomicU64) -> u64 {
    figure(&source.telemetry.slot_moves.exports).load(Relaxed)
}

/// Returns a figure of incoming slot migrations.
fn imports(source: &InfoContext<'_>, figure: fn(&Moved) -> &AtomicU64) -> u64 {
    figure(&source.telemetry.slot_moves.imports).load(Relaxed)
}

/// Returns the total time of all commands, in nanoseconds.
fn commands_ns(source: &InfoContext<'_>) -> u64 {
    let commands = source.snapshot.commands.iter();
    commands.map(|command| command.duration_ns).sum()
}

/// The section about clients.
pub(super) static CLIENTS: &[InfoField] = &[
    count("connected_clients", |s| s.snapshot.clients),
    count("cluster_connections", |s| {
        let cluster = s.service.cluster();
        cluster.map_or(0, |cluster| cluster.links().len() as u64)
    }),
    count("maxclients", |s| u64::from(s.config.maxclients)),
    count("client_recent_max_input_buffer", |s| {
        s.snapshot.client_figures.input_max
    }),
    count("client_recent_max_output_buffer", |s| {
        s.snapshot.client_figures.output_max
    }),
    count("blocked_clients", |s| s.snapshot.client_figures.blocked),
    count("tracking_clients", |s| {
        s.snapshot.pubsub.tracking_clients as u64
    }),
    count("pubsub_clients", |s| s.snapshot.client_figures.subscribed),
    count("watching_clients", |s| s.snapshot.client_figures.watching),
    zero("clients_in_timeout_table"),
    count("unauthenticated_clients", |s| {
        s.service.clients().unauthenticated() as u64
    }),
    count("unauthenticated_clients_closed", |s| {
        let closed = &s.service.clients().unauthenticated_closed;
        closed.load(Relaxed)
    }),
    count("total_watched_keys", |s| s.snapshot.watched_keys),
    count("total_blocking_keys", |s| s.snapshot.waited_keys),
    count("total_blocking_keys_on_nokey", |s| {
        s.snapshot.waited_keys_when_gone
    }),
];

/// The section about leases and tags.
pub(super) static LEASES: &[InfoField] = &[
    count("leases_in_force", |s| s.snapshot.leases.in_force),
    count("leases_waiting", |s| s.snapshot.leases.waiting),
    count("leases_given", |s| s.snapshot.leases.given),
    count("leases_filled", |s| s.snapshot.leases.filled),
    count("leases_dropped", |s| s.snapshot.leases.dropped),
    count("leases_void_by_time", |s| s.snapshot.leases.void_by_time),
    count("leases_void_by_change", |s| {
        s.snapshot.leases.void_by_change
    }),
    count("leases_fills_refused", |s| s.snapshot.leases.fills_refused),
    count("leases_stale_served", |s| s.snapshot.leases.stale_served),
    count("tags_invalidated", |s| s.snapshot.leases.tags_invalidated),
    count("tags_keys_invalidated", |s| {
        s.snapshot.leases.tags_keys_invalidated
    }),
];

/// The section about locks, rate limits and queues of due work.
pub(super) static LOCKS: &[InfoField] = &[
    count("locks_taken", |s| s.snapshot.locks.taken),
    count("locks_handed_over", |s| s.snapshot.locks.handed_over),
    count("locks_retaken", |s| s.snapshot.locks.retaken),
    count("locks_released", |s| s.snapshot.locks.released),
    count("throttle_let_through", |s| s.snapshot.locks.let_through),
    count("throttle_limited", |s| s.snapshot.locks.limited),
    count("due_members_taken", |s| s.snapshot.locks.due_taken),
];

/// The section of counts since the start.
pub(super) static STATS: &[InfoField] = &[
    count("total_connections_received", |s| s.snapshot.accepted),
    count("total_commands_processed", |s| s.snapshot.calls),
    count("instantaneous_ops_per_sec", |s| {
        s.snapshot.rates.commands.round() as u64
    }),
    count("total_net_input_bytes", |s| s.snapshot.bytes_in),
    count("total_net_output_bytes", |s| s.snapshot.bytes_out),
    count("total_net_repl_input_bytes", |s| {
        link(s, |links| &links.input_bytes)
    }),
    count("total_net_repl_output_bytes", |s| {
        link(s, |links| &links.sent_bytes)
    }),
    count("total_net_cluster_slot_import_bytes", |s| {
        imports(s, |moved| &moved.bytes)
    }),
    count("total_net_cluster_slot_export_bytes", |s| {
        exports(s, |moved| &moved.bytes)
    }),
    decimal("instantaneous_input_kbps", |s| {
        s.snapshot.rates.bytes_in / 1_024.0
    }),
    decimal("instantaneous_output_kbps", |s| {
        s.snapshot.rates.bytes_out / 1_024.0
    }),
    decimal("instantaneous_input_repl_kbps", |s| {
        s.snapshot.rates.replication_in / 1_024.0
    }),
    decimal("instantaneous_output_repl_kbps", |s| {
        s.snapshot.rates.replication_out / 1_024.0
    }),
    count("rejected_connections", |s| s.snapshot.rejected),
    count("sync_full", |s| link(s, |links| &links.full_syncs)),
    count("sync_partial_ok", |s| link(s, |links| &links.partial_syncs)),
    count("sync_partial_err", |s| {
        link(s, |links| &links.partial_syncs_refused)
    }),
    count("expired_keys", |s| s.snapshot.counts.expired),
    count("expired_subkeys", |s| s.snapshot.expired_fields),
    // The field's name in Valkey; Redis has another.
    count("expired_fields", |s| s.snapshot.expired_fields),
    decimal("expired_stale_perc", |_| 0.0),
    zero("expired_time_cap_reached_count"),
    count("expire_cycle_cpu_milliseconds", |s| {
        s.snapshot.expire_ns / 1_000_000
    }),
    count("evicted_keys", |s| s.snapshot.counts.evicted),
    count("evicted_clients", |s| s.snapshot.evicted_clients),
    count("evicted_scripts", |s| s.snapshot.scripts.evicted),
    count("script_runs_on_one_shard", |s| s.snapshot.scripts.runs.one),
    count("script_runs_on_several_shards", |s| {
        s.snapshot.scripts.runs.several
    }),
    count("script_runs_on_all_shards", |s| s.snapshot.scripts.runs.all),
    count("transactions_on_one_shard", |s| {
        s.snapshot.scripts.transactions.one
    }),
    count("transactions_on_several_shards", |s| {
        s.snapshot.scripts.transactions.several
    }),
    count("transactions_on_all_shards", |s| {
        s.snapshot.scripts.transactions.all
    }),
    count("script_runs_apart", |s| s.snapshot.scripts.apart),
    count("script_shards_extended", |s| s.snapshot.scripts.extended),
    count("script_reruns", |s| s.snapshot.scripts.reruns),
    count("script_reruns_for_time", |s| s.snapshot.scripts.slow),
    count("total_eviction_exceeded_time", |s| {
        s.snapshot.eviction.exceeded_total_ms
    }),
    count("current_eviction_exceeded_time", |s| {
        s.snapshot.eviction.exceeded_ms
    }),
    count("keyspace_hits", |s| s.snapshot.counts.hits),
    count("keyspace_misses", |s| s.snapshot.counts.misses),
    count("pubsub_channels", |s| s.snapshot.pubsub.channels as u64),
    count("pubsub_patterns", |s| s.snapshot.pubsub.patterns as u64),
    count("pubsubshard_channels", |s| {
        s.snapshot.pubsub.shard_channels as u64
    }),
    zero("latest_fork_usec"),
    count("total_forks", |s| {
        s.telemetry.persistence.rdb.cuts.load(Relaxed)
    }),
    count("migrate_cached_sockets", |s| {
        s.telemetry.migrate_links.load(Relaxed)
    }),
    zero("slave_expires_tracked_keys"),
    count("active_defrag_hits", |s| defrag(s, |d| &d.moved)),
    count("active_defrag_misses", |s| defrag(s, |d| &d.left_alone)),
    count("active_defrag_key_hits", |s| defrag(s, |d| &d.keys_moved)),
    count("active_defrag_key_misses", |s| {
        defrag(s, |d| &d.keys_left_alone)
    }),
    count("total_active_defrag_time", |s| {
        defrag(s, |d| &d.active_ns) / 1_000_000
    }),
    count("current_active_defrag_time", |s| {
        defrag(s, |d| &d.current_ns) / 1_000_000
    }),
    count("tracking_total_keys", |s| s.snapshot.pubsub.tracked_keys),
    count("tracking_total_items", |s| s.snapshot.pubsub.tracked_items),
    count("tracking_total_prefixes", |s| {
        s.snapshot.pubsub.tracking_prefixes as u64
    }),
    count("unexpected_error_replies", |s| {
        link(s, |links| &links.unexpected_errors)
    }),
    count("total_error_replies", |s| s.snapshot.error_count),
    zero("dump_payload_sanitizations"),
    count("eventloop_cycles", |s| {
        s.snapshot.reads + s.snapshot.rounds.cron_rounds
    }),
    count("eventloop_duration_sum", |s| {
        s.snapshot.rounds.busy_ns / 1_000
    }),
    count("eventloop_duration_cmd_sum", |s| commands_ns(s) / 1_000),
    count("instantaneous_eventloop_cycles_per_sec", |s| {
        s.snapshot.rates.rounds.round() as u64
    }),
    count("instantaneous_eventloop_duration_usec", |s| {
        (s.snapshot.rates.round_ns / 1_000.0).round() as u64
    }),
    count("total_reads_processed", |s| s.snapshot.reads),
    count("total_writes_processed", |s| s.snapshot.writes),
    count("client_query_buffer_limit_disconnections", |s| {
        s.snapshot.overfed
    }),
    count("client_output_buffer_limit_disconnections", |s| {
        s.snapshot.clients_cut
    }),
    zero("io_threaded_reads_processed"),
    zero("io_threaded_writes_processed"),
    zero("io_threaded_total_prefetch_batches"),
    zero("io_threaded_total_prefetch_entries"),
    zero("reply_buffer_shrinks"),
    zero("reply_buffer_expands"),
    count("acl_access_denied_auth", |s| {
        s.service.users().figures.of(Denied::Auth)
    }),
    count("acl_access_denied_cmd", |s| {
        s.service.users().figures.of(Denied::Command)
    }),
    count("acl_access_denied_key", |s| {
        s.service.users().figures.of(Denied::Key)
    }),
    count("acl_access_denied_channel", |s| {
        s.service.users().figures.of(Denied::Channel)
    }),
    count("acl_access_denied_tls_cert", |s| {
        s.service.users().figures.of(Denied::Certificate)
    }),
    count("acl_access_denied_db", |s| {
        s.service.users().figures.of(Denied::Database)
    }),
];

/// The section about cluster mode.
pub(super) static CLUSTER: &[InfoField] = &[count("cluster_enabled", |s| {
    u64::from(s.config.cluster_enabled != ClusterMode::No)
})];

/// Rows of the section `cluster` about slot migrations, shown if the cluster has other nodes.
pub(super) static SLOT_MOVES: &[InfoField] = &[
    count("slot_exports_in_progress", |s| moves(s).exports),
    count("slot_exports_finished", |s| {
        exports(s, |moved| &moved.finished)
    }),
    count("slot_exports_failed", |s| exports(s, |moved| &moved.failed)),
    count("slot_exports_cancelled", |s| {
        exports(s, |moved| &moved.cancelled)
    }),
    count("slot_exports_keys", |s| exports(s, |moved| &moved.keys)),
    count("slot_exports_last_msec", |s| {
        exports(s, |moved| &moved.last_ms)
    }),
    count("slot_exports_last_pause_usec", |s| {
        exports(s, |moved| &moved.last_pause_us)
    }),
    count("slot_imports_in_progress", |s| moves(s).imports),
    count("slot_imports_finished", |s| {
        imports(s, |moved| &moved.finished)
    }),
    count("slot_imports_failed", |s| imports(s, |moved| &moved.failed)),
    count("slot_imports_cancelled", |s| {
        imports(s, |moved| &moved.cancelled)
    }),
    count("slot_imports_keys", |s| imports(s, |moved| &moved.keys)),
    count("slot_imports_last_msec", |s| {
        imports(s, |moved| &moved.last_ms)
    }),
];

/// The section for debugging: the longest hold of a shard, and the longest iteration of the background.
pub(super) static DEBUG: &[InfoField] = &[
    zero("eventloop_duration_aof_sum"),
    count("eventloop_duration_cron_sum", |s| {
        s.snapshot.rounds.cron_ns / 1_000
    }),
    count("eventloop_duration_max", |s| {
        let longest_ns = s.snapshot.tokens().longest_hold_ns;
        longest_ns.max(s.snapshot.rounds.cron_ns_max) / 1_000
    }),
    count("eventloop_cmd_per_cycle_max", |s| s.snapshot.most_commands),
];
