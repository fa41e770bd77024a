//! Metrics of replicas and of the link to the primary.

use super::page::MetricsPage;
use crate::telemetry::snapshot::Snapshot;
use basalt_commands::command::host::replica::{LinkState, Upstream};

/// Writes these metrics.
pub(super) fn write(page: &mut MetricsPage, snapshot: &Snapshot) {
    replicas(page, snapshot);
    if let Some(upstream) = &snapshot.replication.upstream {
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
