//! Cluster metrics: the figures of CLUSTER INFO under redis_exporter's names, the bus, and atomic slot migrations.

use std::sync::atomic::Ordering::Relaxed;

use super::page::MetricsPage;
use crate::telemetry::figures::FigureContext;
use crate::telemetry::slot_moves::SlotMoves;
use basalt_commands::command::cluster::{figures, figures_of_one};
use basalt_commands::command::host::cluster::{MESSAGE_KINDS, MovesInProgress, Traffic};
use basalt_commands::config::values::ClusterMode;

/// Names, help texts, and fields of CLUSTER INFO.
static CLUSTER: [(&str, &str, &str); 8] = [
    (
        "redis_cluster_slots_assigned",
        "Slots that are assigned to a node.",
        "cluster_slots_assigned",
    ),
    (
        "redis_cluster_slots_ok",
        "Slots whose node is reachable.",
        "cluster_slots_ok",
    ),
    (
        "redis_cluster_slots_pfail",
        "Slots whose node is possibly failing (PFAIL).",
        "cluster_slots_pfail",
    ),
    (
        "redis_cluster_slots_fail",
        "Slots whose node has failed (FAIL).",
        "cluster_slots_fail",
    ),
    (
        "redis_cluster_known_nodes",
        "Number of nodes, including replicas.",
        "cluster_known_nodes",
    ),
    (
        "redis_cluster_size",
        "Number of primaries with slots.",
        "cluster_size",
    ),
    (
        "redis_cluster_current_epoch",
        "Current epoch of the cluster.",
        "cluster_current_epoch",
    ),
    (
        "redis_cluster_my_epoch",
        "Configuration epoch of this node.",
        "cluster_my_epoch",
    ),
];

/// Writes all cluster metrics, if there is a cluster.
pub(super) fn write(page: &mut MetricsPage, source: &FigureContext<'_>) {
    if let Some(cluster) = source.service.cluster() {
        let map = cluster.view();
        write_figures(page, &figures(&map), map.is_up);
        let traffic = cluster.traffic();
        write_messages(page, &traffic);
        write_bus(page, &traffic, cluster.links().len());
        let moved = &source.telemetry.slot_moves;
        write_moves(page, &cluster.moves_in_progress(), moved);
    } else if source.config.cluster_enabled == ClusterMode::Emulated {
        let facts = &source.snapshot.replication;
        let replicas = facts.replicas.iter().filter(|replica| replica.port != 0);
        let others = match facts.upstream {
            Some(_) => 1,
            None => replicas.count() as u64,
        };
        write_figures(page, &figures_of_one(1 + others), true);
        write_messages(page, &Traffic::default());
    }
}

fn write_figures(page: &mut MetricsPage, figures: &[(&'static str, u64)], is_up: bool) {
    for (name, help, field) in &CLUSTER {
        if let Some((_, figure)) = figures.iter().find(|(name, _)| *name == *field) {
            page.gauge(name, help, *figure as f64);
        }
    }
    page.gauge(
        "redis_cluster_state",
        "1 if the cluster state is ok, else 0.",
        if is_up { 1.0 } else { 0.0 },
    );
}

/// Writes the totals of all messages; they are gauges in redis_exporter.
fn write_messages(page: &mut MetricsPage, traffic: &Traffic) {
    page.gauge(
        "redis_cluster_messages_sent_total",
        "Messages sent over the cluster bus.",
        Traffic::sum(&traffic.sent) as f64,
    );
    page.gauge(
        "redis_cluster_messages_received_total",
        "Messages received over the cluster bus.",
        Traffic::sum(&traffic.received) as f64,
    );
}

fn write_bus(page: &mut MetricsPage, traffic: &Traffic, links: usize) {
    for (way, counts) in [("sent", &traffic.sent), ("received", &traffic.received)] {
        for (kind, count) in MESSAGE_KINDS.iter().zip(counts) {
            page.labelled_counter(
                "basalt_cluster_messages_total",
                "Messages on the cluster bus by type.",
                vec![("direction", way.to_owned()), ("kind", (*kind).to_owned())],
                *count,
            );
        }
    }
    for (way, bytes) in [
        ("sent", traffic.bytes_sent),
        ("received", traffic.bytes_received),
    ] {
        page.labelled_counter(
            "basalt_cluster_bus_bytes_total",
            "Bytes sent and received over the cluster bus.",
            vec![("direction", way.to_owned())],
            bytes,
        );
    }
    page.gauge(
        "basalt_cluster_links",
        "Cluster bus links, inbound and outbound.",
        links as f64,
    );
    page.gauge(
        "basalt_cluster_links_buffer_bytes",
        "Memory of the buffers of the cluster bus links.",
        traffic.link_buffer_bytes as f64,
    );
    page.counter(
        "basalt_cluster_links_over_limit_total",
        "Cluster bus links closed because they exceeded cluster-link-sendbuf-limit.",
        traffic.links_over_limit,
    );
}

/// Writes the figures of slot migrations to and from other nodes (CLUSTER MIGRATESLOTS).
fn write_moves(page: &mut MetricsPage, now: &MovesInProgress, moved: &SlotMoves) {
    for (way, in_progress, buffer_bytes, moved) in [
        ("out", now.exports, now.export_buffer_bytes, &moved.exports),
        ("in", now.imports, now.import_buffer_bytes, &moved.imports),
    ] {
        let labels = || vec![("direction", way.to_owned())];
        page.labelled_gauge(
            "basalt_slot_moves_in_progress",
            "Slot migrations that are in progress or queued.",
            labels(),
            in_progress as f64,
        );
        page.labelled_gauge(
            "basalt_slot_moves_buffer_bytes",
            "Bytes of slot migrations that are not yet sent, or received but not yet applied.",
            labels(),
            buffer_bytes as f64,
        );
        page.labelled_gauge(
            "basalt_slot_moves_last_seconds",
            "Duration of the last finished slot migration in seconds.",
            labels(),
            moved.last_ms.load(Relaxed) as f64 / 1e3,
        );
        for (outcome, count) in [
            ("finished", &moved.finished),
            ("failed", &moved.failed),
            ("cancelled", &moved.cancelled),
        ] {
            let mut labels = labels();
            labels.push(("outcome", outcome.to_owned()));
            page.labelled_counter(
                "basalt_slot_moves_total",
                "Ended slot migrations by result.",
                labels,
                count.load(Relaxed),
            );
        }
        page.labelled_counter(
            "basalt_slot_moves_keys_total",
            "Keys sent in slot migrations, and keys received in finished ones.",
            labels(),
            moved.keys.load(Relaxed),
        );
        page.labelled_counter(
            "basalt_slot_moves_bytes_total",
            "Bytes sent and received by slot migrations.",
            labels(),
            moved.bytes.load(Relaxed),
        );
    }
    page.gauge(
        "basalt_slot_moves_last_pause_seconds",
        "Duration of the last pause of writes for a slot handover in seconds.",
        moved.exports.last_pause_us.load(Relaxed) as f64 / 1e6,
    );
}
