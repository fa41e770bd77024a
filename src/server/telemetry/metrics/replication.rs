//! Replication metrics.

use std::sync::atomic::Ordering::Relaxed;

use super::page::MetricsPage;
use super::rows::{self, MetricRow, MetricsContext, counter, gauge};
use crate::telemetry::replication::ReplicationMetrics;
use crate::telemetry::snapshot::Snapshot;
use basalt_commands::command::host::primary::StreamFacts;
use basalt_commands::command::host::replica::{LinkState, Upstream};

fn stream<'a>(source: &MetricsContext<'a>) -> &'a StreamFacts {
    &source.snapshot.replication.stream
}

fn figures<'a>(source: &MetricsContext<'a>) -> &'a ReplicationMetrics {
    &source.service.telemetry().replication
}

static ROWS: &[MetricRow] = &[
    gauge(
        "redis_connected_slaves",
        "Number of connected replicas.",
        |s| s.snapshot.replication.replicas.len() as f64,
    ),
    gauge("redis_master_repl_offset", "Replication offset.", |s| {
        stream(s).offset as f64
    }),
    gauge(
        "redis_second_repl_offset",
        "Offset up to which the second replication ID is valid.",
        |s| {
            stream(s)
                .previous
                .as_ref()
                .map_or(-1.0, |(_, until)| *until as f64)
        },
    ),
    gauge(
        "redis_repl_backlog_is_active",
        "1 if the replication backlog is active, else 0.",
        |s| f64::from(u8::from(stream(s).is_kept)),
    ),
    gauge(
        "redis_replication_backlog_bytes",
        "Size of the replication backlog in bytes.",
        |s| s.config.repl_backlog_size as f64,
    ),
    gauge(
        "redis_repl_backlog_first_byte_offset",
        "Offset of the first byte in the replication backlog.",
        |s| stream(s).first as f64,
    ),
    gauge(
        "redis_repl_backlog_history_bytes",
        "Bytes in the replication backlog.",
        |s| stream(s).held_bytes as f64,
    ),
    gauge(
        "redis_replica_resyncs_full",
        "Full resynchronizations with replicas.",
        |s| figures(s).full_syncs.load(Relaxed) as f64,
    ),
    gauge(
        "redis_replica_partial_resync_accepted",
        "Accepted partial resynchronizations.",
        |s| figures(s).partial_syncs.load(Relaxed) as f64,
    ),
    gauge(
        "redis_replica_partial_resync_denied",
        "Refused partial resynchronizations.",
        |s| figures(s).partial_syncs_refused.load(Relaxed) as f64,
    ),
    counter(
        "basalt_replication_sent_bytes_total",
        "Replication bytes sent to replicas.",
        |s| figures(s).sent_bytes.load(Relaxed),
    ),
    counter(
        "basalt_replication_received_bytes_total",
        "Replication bytes received from the primary and from replicas.",
        |s| figures(s).input_bytes.load(Relaxed),
    ),
];

/// Writes all replication metrics.
pub(super) fn write(page: &mut MetricsPage, source: &MetricsContext<'_>) {
    rows::write(ROWS, source, page);
    replicas(page, source.snapshot);
    if let Some(upstream) = &source.snapshot.replication.upstream {
        link(page, upstream);
    }
}

/// Writes each replica, labelled by its address.
fn replicas(page: &mut MetricsPage, snapshot: &Snapshot) {
    for replica in &snapshot.replication.replicas {
        let labels = || {
            vec![
                ("slave_ip", replica.ip.clone()),
                ("slave_port", replica.port.to_string()),
                ("slave_state", replica.state.name().to_owned()),
            ]
        };
        for (name, help, value) in [
            (
                "redis_connected_slave_offset_bytes",
                "Replication offset that a replica has acknowledged.",
                replica.offset,
            ),
            (
                "redis_connected_slave_lag_seconds",
                "Seconds since the last acknowledgement of a replica.",
                replica.lag_s,
            ),
            (
                "basalt_replica_behind_bytes",
                "Bytes of the replication stream not yet sent to a replica.",
                replica.behind_bytes,
            ),
        ] {
            page.labelled_gauge(name, help, labels(), value as f64);
        }
    }
}

/// Writes the link to the primary.
fn link(page: &mut MetricsPage, upstream: &Upstream) {
    let labels = || {
        vec![
            ("master_host", upstream.host.clone()),
            ("master_port", upstream.port.to_string()),
        ]
    };
    let said = |field: &str| {
        let mut facts = upstream.info.iter();
        facts.find_map(|(name, value)| (*name == field).then_some(value.as_str()))
    };
    let number = |field: &str| -> Option<f64> { said(field)?.parse().ok() };
    if let Some(ago_s) = number("master_last_io_seconds_ago") {
        page.labelled_gauge(
            "redis_master_last_io_seconds_ago",
            "Seconds since data was received from the primary; -1 without a link.",
            labels(),
            ago_s,
        );
    }
    if let Some(priority) = number("slave_priority") {
        page.gauge(
            "redis_slave_priority",
            "Priority of this replica in a failover by Sentinel (replica-priority).",
            priority,
        );
    }
    if let Some(read_only) = said("slave_read_only") {
        let mut labels = labels();
        labels.push(("read_only", read_only.to_owned()));
        page.labelled_gauge(
            "redis_slave_info",
            "Primary of this replica and whether it is read-only, as labels.",
            labels,
            1.0,
        );
    }
    let is = |state: LinkState| f64::from(u8::from(upstream.state == state));
    for (name, help, value) in [
        (
            "redis_master_link_up",
            "1 if the link to the primary is up, else 0.",
            is(LinkState::Connected),
        ),
        (
            "redis_master_sync_in_progress",
            "1 if a full synchronization with the primary is in progress, else 0.",
            is(LinkState::Sync),
        ),
        (
            "redis_slave_repl_offset",
            "Replication offset of this replica.",
            upstream.offset as f64,
        ),
    ] {
        page.labelled_gauge(name, help, labels(), value);
    }
}
