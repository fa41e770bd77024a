//! The section that Sentinel, and whoever looks for the primary, reads.

use super::{Lines, Source};
use crate::command::host::primary::{Channel, ReplicaFacts, ReplicaState};

pub(super) fn section(source: &Source<'_>, lines: &mut Lines) {
    let (facts, config) = (&source.snapshot.replication, source.config);
    lines.field("role", facts.role());
    if let Some(upstream) = &facts.upstream {
        lines.field("master_host", &upstream.host);
        lines.field("master_port", upstream.port);
        for (name, value) in &upstream.info {
            lines.field(name, value);
        }
    }
    lines.field("connected_slaves", facts.replicas.len());
    if config.wants_replicas() {
        let max_s = u64::from(config.min_replicas_max_lag);
        let is_good = |replica: &&ReplicaFacts| {
            replica.state == ReplicaState::Online && replica.lag_s <= max_s
        };
        let good = facts.replicas.iter().filter(is_good).count();
        lines.field("min_slaves_good_slaves", good);
    }
    for (number, replica) in facts.replicas.iter().enumerate() {
        let ReplicaFacts {
            ip,
            port,
            channel,
            state,
            offset,
            lag_s,
            ..
        } = replica;
        let state = state.name();
        let kind = match channel {
            Some(Channel::Main(_)) => ",type=main-channel",
            Some(Channel::Rdb(_)) => ",type=rdb-channel",
            None => "",
        };
        lines.field(
            &format!("slave{number}"),
            format_args!("ip={ip},port={port},state={state},offset={offset},lag={lag_s}{kind}"),
        );
    }
    if config.dual_channel_replication_enabled {
        lines.field("replicas_waiting_psync", facts.awaited);
    }
    let stream = &facts.stream;
    let (previous, until) = match &stream.previous {
        Some((id, until)) => (id.clone(), until.cast_signed()),
        None => ("0".repeat(40), -1),
    };
    let (first, held) = match stream.is_kept {
        true => (stream.first, stream.held_bytes),
        false => (0, 0),
    };
    lines.field("master_failover_state", facts.failover_state);
    lines.field("master_replid", &stream.id);
    lines.field("master_replid2", previous);
    lines.field("master_repl_offset", stream.offset);
    lines.field("second_repl_offset", until);
    lines.field("repl_backlog_active", u8::from(stream.is_kept));
    lines.field("repl_backlog_size", config.repl_backlog_size);
    lines.field("repl_backlog_first_byte_offset", first);
    lines.field("repl_backlog_histlen", held);
}
