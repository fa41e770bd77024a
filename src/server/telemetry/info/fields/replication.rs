//! The section `replication`, which Sentinel and client libraries read to find the primary.

use super::{InfoField, count, shown, text, write};
use crate::telemetry::info::{InfoContext, Lines};
use basalt_commands::command::host::primary::{ReplicaChannel, ReplicaFacts, ReplicaState};
use basalt_commands::command::host::replica::Upstream;
use basalt_core::base::text::visible;

/// Writes the section: the role, the link to the primary (if any), one line for each replica, and the stream.
pub(in crate::telemetry::info) fn section(source: &InfoContext<'_>, lines: &mut Lines) {
    let facts = &source.snapshot.replication;
    write(ROLE, source, lines);
    for (name, value) in facts.upstream.iter().flat_map(|upstream| &upstream.info) {
        lines.field(name, value);
    }
    write(REPLICAS, source, lines);
    for (number, replica) in facts.replicas.iter().enumerate() {
        lines.field(&format!("slave{number}"), line_of(replica));
    }
    write(STREAM, source, lines);
}

/// The role, and the primary being followed.
static ROLE: &[InfoField] = &[
    text("role", |s| shown(s.snapshot.replication.role())),
    text("master_host", |s| shown(&upstream(s)?.host)),
    text("master_port", |s| shown(upstream(s)?.port)),
];

/// The number of replicas.
static REPLICAS: &[InfoField] = &[
    count("connected_slaves", |s| {
        s.snapshot.replication.replicas.len() as u64
    }),
    text("min_slaves_good_slaves", |s| {
        s.config.wants_replicas().then(|| good(s).to_string())
    }),
];

/// The stream, and which replicas may resume it.
static STREAM: &[InfoField] = &[
    text("replicas_waiting_psync", |s| {
        let awaited = s.snapshot.replication.awaited;
        let is_dual = s.config.dual_channel_replication_enabled;
        is_dual.then(|| awaited.to_string())
    }),
    text("master_failover_state", |s| {
        shown(s.snapshot.replication.failover_state)
    }),
    text("master_replid", |s| {
        shown(&s.snapshot.replication.stream.id)
    }),
    text("master_replid2", |s| match previous(s) {
        Some((id, _)) => shown(id),
        None => Some("0".repeat(40)),
    }),
    count("master_repl_offset", |s| {
        s.snapshot.replication.stream.offset
    }),
    text("second_repl_offset", |s| match previous(s) {
        Some((_, until)) => shown(until.cast_signed()),
        None => shown(-1),
    }),
    count("repl_backlog_active", |s| {
        u64::from(s.snapshot.replication.stream.is_kept)
    }),
    text("repl_backlog_size", |s| shown(s.config.repl_backlog_size)),
    count("repl_backlog_first_byte_offset", |s| {
        kept(s, s.snapshot.replication.stream.first)
    }),
    count("repl_backlog_histlen", |s| {
        kept(s, s.snapshot.replication.stream.held_bytes)
    }),
];

fn upstream<'s>(source: &'s InfoContext<'_>) -> Option<&'s Upstream> {
    source.snapshot.replication.upstream.as_ref()
}

/// Returns the id of the previous stream, and the offset where it ended.
fn previous<'s>(source: &'s InfoContext<'_>) -> Option<&'s (String, u64)> {
    source.snapshot.replication.stream.previous.as_ref()
}

/// Returns a figure of the backlog, zero if it is disabled.
fn kept(source: &InfoContext<'_>, figure: u64) -> u64 {
    match source.snapshot.replication.stream.is_kept {
        true => figure,
        false => 0,
    }
}

/// Returns the number of replicas that count for `min-replicas-to-write`.
fn good(source: &InfoContext<'_>) -> usize {
    let max_s = u64::from(source.config.min_replicas_max_lag);
    let is_good =
        |replica: &&ReplicaFacts| replica.state == ReplicaState::Online && replica.lag_s <= max_s;
    let replicas = source.snapshot.replication.replicas.iter();
    replicas.filter(is_good).count()
}

fn line_of(replica: &ReplicaFacts) -> String {
    let ReplicaFacts {
        ip,
        port,
        channel,
        state,
        offset,
        lag_s,
        ..
    } = replica;
    // A replica may announce any text, including line ends.
    let (ip, state) = (visible(ip.as_bytes()), state.name());
    let kind = match channel {
        Some(ReplicaChannel::Main(_)) => ",type=main-channel",
        Some(ReplicaChannel::Rdb(_)) => ",type=rdb-channel",
        None => "",
    };
    format!("ip={ip},port={port},state={state},offset={offset},lag={lag_s}{kind}")
}
