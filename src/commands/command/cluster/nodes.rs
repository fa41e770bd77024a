//! CLUSTER subcommands that report the map: nodes, shards, ranges of slots and links.
//!
//! Clients are given ports of their own kind: TLS ports over a TLS connection, otherwise plain ports.

use std::collections::BTreeMap;

use super::super::context::SessionCx;
use super::super::declaration::{Command, CommandResult, Flags};
use super::super::error::CommandError;
use super::super::host::cluster::{LinkDirection, endpoint};
use super::super::{Args, Out};
use super::{GROUP, TELLS, TIPS, unknown, view};
use crate::cluster::flags::NodeFlags;
use crate::cluster::map::{ClusterMap, NodeView};
use crate::cluster::node_id::NodeId;
use crate::cluster::nodes_conf::write::describe;
use crate::cluster::route::RoutingFlags;
use crate::config::values::EndpointType;
use basalt_core::base::hash;

/// Returns the primary that a node replicates, if it is known.
fn primary<'m>(map: &'m ClusterMap, node: &NodeView) -> Option<&'m NodeView> {
    map.nodes.get(usize::from(node.primary?))
}

/// Returns the known replicas of a primary.
fn replicas_of<'m>(map: &'m ClusterMap, of: &NodeView) -> impl Iterator<Item = &'m NodeView> {
    let id = of.id;
    let nodes = map.nodes.iter();
    nodes.filter(move |node| primary(map, node).is_some_and(|primary| primary.id == id))
}

/// Returns the known replicas of all primaries, by the primaries' indexes in the map.
fn replicas_by_primary(map: &ClusterMap) -> BTreeMap<u16, Vec<&NodeView>> {
    let mut replicas: BTreeMap<u16, Vec<&NodeView>> = BTreeMap::new();
    for node in &map.nodes {
        if let Some(primary) = node.primary {
            replicas.entry(primary).or_default().push(node);
        }
    }
    replicas
}

fn is_tls(cx: &SessionCx<'_>) -> bool {
    cx.client.routing.any(RoutingFlags::TLS)
}

fn known<'m>(map: &'m ClusterMap, name: &[u8]) -> Result<&'m NodeView, CommandError> {
    map.find(name).ok_or_else(|| unknown(name))
}

/// `CLUSTER COUNT-FAILURE-REPORTS node-id`
pub(super) static COUNT_FAILURE_REPORTS: Command = Command::sub(
    "cluster|count-failure-reports",
    "count-failure-reports",
    GROUP,
    3,
)
.flags(Flags::ADMIN.or(TELLS))
.doc(
    "3.0.0",
    "node-id",
    "Returns the number of nodes that report a node as failing.",
)
.complexity("O(N) for N reports.")
.tips(TIPS)
.repeatable()
.on_session(count_failure_reports);

fn count_failure_reports(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let map = view(cx)?;
    out.integer(known(&map, args.get(2))?.failure_reports as i64);
    Ok(())
}

/// `CLUSTER LINKS`
pub(super) static LINKS: Command = Command::sub("cluster|links", "links", GROUP, 2)
    .flags(TELLS)
    .doc("7.0.0", "", "Lists the connections with other nodes.")
    .complexity("O(N) for N nodes.")
    .tips(TIPS)
    .repeatable()
    .on_session(links);

fn links(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    view(cx)?;
    let links = cx.server.cluster().map(|cluster| cluster.links());
    let links = links.unwrap_or_default();
    out.array(links.len());
    for link in &links {
        out.map(6);
        out.bulk(b"direction");
        out.bulk(match link.direction {
            LinkDirection::From => b"from",
            LinkDirection::To | LinkDirection::Any => b"to",
        });
        out.bulk(b"node");
        out.bulk(link.node.as_bytes());
        out.bulk(b"create-time");
        out.integer(link.created.cast_signed());
        out.bulk(b"events");
        out.bulk(match (link.reads, link.writes) {
            (true, true) => b"rw",
            (true, false) => b"r",
            (false, true) => b"w",
            (false, false) => b"",
        });
        out.bulk(b"send-buffer-allocated");
        out.integer(link.send_buffer_allocated.cast_signed());
        out.bulk(b"send-buffer-used");
        out.integer(link.send_buffer_used.cast_signed());
    }
    Ok(())
}

/// `CLUSTER NODES`
pub(super) static NODES: Command = Command::sub("cluster|nodes", "nodes", GROUP, 2)
    .flags(TELLS)
    .doc("3.0.0", "", "Lists the nodes in the format of nodes.conf.")
    .complexity("O(N) for N nodes.")
    .tips(TIPS)
    .repeatable()
    .on_session(node_lines);

fn node_lines(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let map = view(cx)?;
    let mut lines = String::new();
    for node in &map.nodes {
        lines.push_str(&describe(&map, node, is_tls(cx)));
        lines.push('\n');
    }
    out.verbatim("txt", lines.as_bytes());
    Ok(())
}

/// `CLUSTER REPLICAS node-id`
pub(super) static REPLICAS: Command = Command::sub("cluster|replicas", "replicas", GROUP, 3)
    .flags(Flags::ADMIN.or(TELLS))
    .doc("5.0.0", "node-id", "Lists the replicas of a primary.")
    .complexity("O(N) for N replicas.")
    .tips(TIPS)
    .repeatable()
    .on_session(replicas);

fn replicas(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let map = view(cx)?;
    let node = known(&map, args.get(2))?;
    if node.flags.any(NodeFlags::REPLICA) {
        return Err("ERR The specified node is not a master".into());
    }
    out.array(replicas_of(&map, node).count());
    for replica in replicas_of(&map, node) {
        out.bulk(describe(&map, replica, is_tls(cx)).as_bytes());
    }
    Ok(())
}

/// `CLUSTER SLAVES node-id`
pub(super) static SLAVES: Command = Command::sub("cluster|slaves", "slaves", GROUP, 3)
    .flags(Flags::ADMIN.or(TELLS))
    .doc("3.0.0", "node-id", "Lists the replicas of a primary.")
    .complexity("O(N) for N replicas.")
    .tips(TIPS)
    .deprecated("5.0.0", "`CLUSTER REPLICAS`")
    .repeatable()
    .on_session(replicas);

/// `CLUSTER SHARDS`
pub(super) static SHARDS: Command = Command::sub("cluster|shards", "shards", GROUP, 2)
    .flags(Flags::LOADING.or(Flags::STALE))
    .doc("7.0.0", "", "Lists shards with their slots and nodes.")
    .complexity("O(N) for N nodes.")
    .tips(TIPS)
    .repeatable()
    .on_session(shards);

/// Replies with all shards. Nodes whose IDs are not known yet belong to no shard.
fn shards(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let map = view(cx)?;
    let mut shards = nodes_by_shard(&map);
    out.array(shards.len());
    for nodes in &mut shards {
        nodes.sort_by_key(|node| !node.is_primary());
        let first = nodes[0];
        let owner = primary(&map, first).unwrap_or(first);
        let ranges: Vec<(u16, u16)> = owner.slots.ranges().collect();
        out.map(2);
        out.bulk(b"slots");
        out.array(ranges.len() * 2);
        for (first, last) in ranges {
            out.integer(i64::from(first));
            out.integer(i64::from(last));
        }
        out.bulk(b"nodes");
        out.array(nodes.len());
        for node in nodes {
            shard_node(node, cx.config.cluster_preferred_endpoint_type, out);
        }
    }
    Ok(())
}

/// Returns the nodes whose IDs are known, grouped by shard; shards are in the order of their first nodes.
fn nodes_by_shard(map: &ClusterMap) -> Vec<Vec<&NodeView>> {
    let mut shards: Vec<Vec<&NodeView>> = Vec::new();
    let mut places: BTreeMap<NodeId, usize> = BTreeMap::new();
    let nodes = map.nodes.iter();
    for node in nodes.filter(|node| !node.flags.any(NodeFlags::HANDSHAKE)) {
        let place = *places.entry(node.shard_id).or_insert(shards.len());
        match shards.get_mut(place) {
            Some(nodes) => nodes.push(node),
            None => shards.push(vec![node]),
        }
    }
    shards
}

fn shard_node(node: &NodeView, endpoint_type: EndpointType, out: &mut Out) {
    let ports = [("port", node.port), ("tls-port", node.tls_port)];
    let ports = ports.into_iter().filter(|(_, port)| *port != 0);
    let has_hostname = !node.hostname.is_empty();
    let is_replica = node.flags.any(NodeFlags::REPLICA);
    let has_zone = !node.zone.is_empty();
    out.map(6 + ports.clone().count() + usize::from(has_hostname) + usize::from(has_zone));
    out.bulk(b"id");
    out.bulk(node.id.as_bytes());
    for (name, port) in ports {
        out.bulk(name.as_bytes());
        out.integer(i64::from(port));
    }
    out.bulk(b"ip");
    out.bulk(node.ip.as_bytes());
    out.bulk(b"endpoint");
    out.bulk(endpoint(node, endpoint_type).unwrap_or("").as_bytes());
    if has_hostname {
        out.bulk(b"hostname");
        out.bulk(node.hostname.as_bytes());
    }
    out.bulk(b"role");
    out.bulk(if is_replica { b"replica" } else { b"master" });
    out.bulk(b"replication-offset");
    out.integer(node.offset.cast_signed());
    out.bulk(b"health");
    out.bulk(if node.flags.any(NodeFlags::FAILED) {
        b"fail"
    } else if is_replica && node.offset == 0 {
        b"loading"
    } else {
        b"online"
    });
    if has_zone {
        out.bulk(b"availability-zone");
        out.bulk(node.zone.as_bytes());
    }
}

/// `CLUSTER SLOTS`
pub(super) static SLOTS: Command = Command::sub("cluster|slots", "slots", GROUP, 2)
    .flags(Flags::LOADING.or(Flags::STALE))
    .doc("3.0.0", "", "Lists ranges of hash slots with their nodes.")
    .complexity("O(N) for N nodes.")
    .history(&[
        ("4.0.0", "The reply includes node IDs."),
        ("7.0.0", "The reply includes additional endpoint metadata."),
    ])
    .tips(TIPS)
    .deprecated("7.0.0", "`CLUSTER SHARDS`")
    .repeatable()
    .on_session(slot_ranges);

fn slot_ranges(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let map = view(cx)?;
    let (endpoint_type, is_tls) = (cx.config.cluster_preferred_endpoint_type, is_tls(cx));
    let ranges = owned_ranges(&map);
    let replicas_of = replicas_by_primary(&map);
    out.array(ranges.len());
    for (first, last, owner) in ranges {
        // A node that has no part of the replication stream, or has failed, is of no use to clients.
        let is_useful = |node: &&&NodeView| node.offset != 0 && !node.flags.any(NodeFlags::FAILED);
        let replicas = replicas_of.get(&map.owners[usize::from(first)]);
        let replicas = replicas.into_iter().flatten().filter(is_useful);
        let replicas: Vec<&NodeView> = replicas.copied().collect();
        out.array(3 + replicas.len());
        out.integer(i64::from(first));
        out.integer(i64::from(last));
        for node in std::iter::once(owner).chain(replicas) {
            slot_node(node, endpoint_type, is_tls, out);
        }
    }
    Ok(())
}

/// Returns the maximal ranges of slots with one owner, in order.
fn owned_ranges(map: &ClusterMap) -> Vec<(u16, u16, &NodeView)> {
    let mut ranges: Vec<(u16, u16, &NodeView)> = Vec::new();
    for slot in 0..hash::SLOTS {
        let Some(owner) = map.owner(slot) else {
            continue;
        };
        match ranges.last_mut() {
            Some((_, last, of)) if *last + 1 == slot && of.id == owner.id => *last = slot,
            _ => ranges.push((slot, slot, owner)),
        }
    }
    ranges
}

fn slot_node(node: &NodeView, endpoint_type: EndpointType, is_tls: bool, out: &mut Out) {
    out.array(4);
    match endpoint(node, endpoint_type) {
        Some(endpoint) => out.bulk(endpoint.as_bytes()),
        None => out.null(),
    }
    out.integer(i64::from(node.client_port(is_tls)));
    out.bulk(node.id.as_bytes());
    // Metadata contains only what the endpoint does not already tell.
    let ip = (endpoint_type != EndpointType::Ip).then_some(("ip", &node.ip));
    let has_other = endpoint_type != EndpointType::Hostname && !node.hostname.is_empty();
    let hostname = has_other.then_some(("hostname", &node.hostname));
    let zone = (!node.zone.is_empty()).then_some(("availability-zone", &node.zone));
    let more: Vec<_> = ip.into_iter().chain(hostname).chain(zone).collect();
    out.map(more.len());
    for (name, value) in more {
        out.bulk(name.as_bytes());
        out.bulk(value.as_bytes());
    }
}
