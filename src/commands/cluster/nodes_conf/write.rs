//! Formats cluster state as text: the contents of nodes.conf, and the lines of CLUSTER NODES.

use std::collections::BTreeMap;

use super::line::{FileOnlyFields, NodesConfLine, open};
use crate::cluster::assembly::AssemblyRecord;
use crate::cluster::flags::NodeFlags;
use crate::cluster::map::{ClusterMap, NodeView};
use crate::cluster::node_id::NodeId;
use crate::cluster::saved::{Saved, SavedNode};
use crate::cluster::text::is_human_name;

/// Returns the text of nodes.conf.
#[must_use]
pub fn write(saved: &Saved) -> String {
    let mut text = String::new();
    let by_id: BTreeMap<NodeId, &SavedNode> =
        saved.nodes.iter().map(|node| (node.id, node)).collect();
    for node in &saved.nodes {
        let is_myself = node.flags.any(NodeFlags::MYSELF);
        let going = saved.migrating.iter().map(|(slot, to)| (*slot, *to));
        let coming = saved.importing.iter().map(|(slot, from)| (*slot, *from));
        let primary = node.primary.and_then(|id| by_id.get(&id).copied());
        let owner = primary.unwrap_or(node);
        let line = NodesConfLine {
            id: node.id,
            ip: &node.ip,
            port: node.port,
            bus_port: node.bus_port,
            hostname: &node.hostname,
            kept: Some(FileOnlyFields {
                tls_port: node.tls_port,
                // The configuration accepts names that would break the line; such a name is left out, as the server
                // reads it from the configuration again at its next start.
                human_name: Some(node.human_name.as_str())
                    .filter(|name| is_human_name(name))
                    .unwrap_or_default(),
                shard_id: node.shard_id,
            }),
            flags: node.flags,
            primary: node.primary,
            ping_sent: node.ping_sent,
            pong_received: node.pong_received,
            config_epoch: owner.config_epoch,
            is_linked: is_myself,
            slots: &node.slots,
            open: if is_myself {
                open(going, coming)
            } else {
                Default::default()
            },
        };
        text.push_str(&line.to_string());
        text.push('\n');
    }
    let (current, vote) = (saved.current_epoch, saved.last_vote_epoch);
    text.push_str(&format!("vars currentEpoch {current} lastVoteEpoch {vote}"));
    // Redis and Valkey skip variables that they do not know.
    if saved.assembly != AssemblyRecord::default() {
        text.push_str(&format!(" assembly {}", saved.assembly));
    }
    text.push('\n');
    text
}

/// Returns a node's line of CLUSTER NODES, without its end; a client connected over TLS is shown TLS ports.
#[must_use]
pub fn describe(map: &ClusterMap, node: &NodeView, is_tls: bool) -> String {
    let is_myself = node.flags.any(NodeFlags::MYSELF);
    let other = |place: &u16| map.nodes[usize::from(*place)].id;
    let going = map.migrating.iter().map(|(slot, to)| (*slot, other(to)));
    let coming = map
        .importing
        .iter()
        .map(|(slot, from)| (*slot, other(from)));
    let line = NodesConfLine {
        id: node.id,
        ip: &node.ip,
        port: node.client_port(is_tls),
        bus_port: node.bus_port,
        hostname: &node.hostname,
        kept: None,
        flags: node.flags,
        primary: node.primary_id,
        ping_sent: node.ping_sent,
        pong_received: node.pong_received,
        config_epoch: node.config_epoch,
        is_linked: is_myself || node.is_linked,
        slots: &node.slots,
        open: if is_myself {
            open(going, coming)
        } else {
            Default::default()
        },
    };
    line.to_string()
}
