//! A cluster that consists of this server and its replicas (`cluster-enabled emulated`): one primary owns all hash
//! slots. This lets clients of a cluster use one large machine; no slot moves, no node is added, and there are no
//! elections.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::super::context::SessionCx;
use super::super::host::primary::ReplicaState;
use super::super::host::replica::LinkState;
use crate::cluster::assembly::AssemblyView;
use crate::cluster::flags::NodeFlags;
use crate::cluster::map::{ClusterMap, NodeView};
use crate::cluster::node_id::NodeId;
use crate::cluster::slot_set::SlotSet;
use crate::config::Config;
use basalt_core::base::hash::SLOTS;

/// Returns a cluster map of the primary and its replicas, as far as this server knows them. There is no cluster bus,
/// so the bus ports are 0, and nothing is ever pinged.
pub(super) fn map(cx: &SessionCx<'_>) -> ClusterMap {
    let myself = myself(cx);
    let id = myself.id;
    let nodes = match cx.server.replica().upstream() {
        Some(upstream) => {
            let primary = NodeView {
                id: id_of(&upstream.host, upstream.port),
                ip: upstream.host,
                port: upstream.port,
                tls_port: upstream.port,
                is_linked: upstream.state == LinkState::Connected,
                offset: u64::try_from(upstream.offset).unwrap_or(0),
                ..node(cx, NodeFlags::PRIMARY)
            };
            let role = NodeFlags::REPLICA.or(NodeFlags::MYSELF);
            vec![
                NodeView {
                    flags: role,
                    is_linked: primary.is_linked,
                    ..myself
                },
                primary,
            ]
        }
        None => {
            let replicas = cx.server.primary().replicas().into_iter();
            let replicas = replicas.filter(|replica| replica.port != 0);
            let replicas = replicas.map(|replica| {
                let is_online = replica.state == ReplicaState::Online;
                NodeView {
                    id: id_of(&replica.ip, replica.port),
                    ip: replica.ip,
                    port: replica.port,
                    tls_port: replica.port,
                    is_linked: is_online,
                    // Clients are sent only to replicas with a nonzero offset, that is, with a part of the
                    // replication stream.
                    offset: if is_online { replica.offset.max(1) } else { 0 },
                    ..node(cx, NodeFlags::REPLICA)
                }
            });
            std::iter::once(myself).chain(replicas).collect()
        }
    };
    assembled(nodes, id)
}

/// Assembles a map of one shard. A node has a single port for any kind of connection: the requesting client is given
/// that port.
fn assembled(mut nodes: Vec<NodeView>, myself: NodeId) -> ClusterMap {
    nodes.sort_by_key(|node| node.id);
    nodes.dedup_by_key(|node| node.id);
    let place_of = |is: &dyn Fn(&NodeView) -> bool| nodes.iter().position(is).unwrap_or(0) as u16;
    let primary = place_of(&|node| node.is_primary());
    let myself = place_of(&|node| node.id == myself);
    let primary_id = nodes[usize::from(primary)].id;
    for node in &mut nodes {
        match node.is_primary() {
            true => node.slots = SlotSet::all(),
            false => (node.primary, node.primary_id) = (Some(primary), Some(primary_id)),
        }
    }
    ClusterMap {
        owners: vec![primary; usize::from(SLOTS)].into_boxed_slice(),
        nodes,
        myself,
        migrating: BTreeMap::new(),
        importing: BTreeMap::new(),
        is_up: true,
        down: None,
        current_epoch: 1,
        size: 1,
        slots_maybe_failed: 0,
        slots_failed: 0,
        assembly: AssemblyView::default(),
    }
}

/// Returns a node of which only the role is known. All nodes belong to the shard named after the replication stream
/// that they share.
fn node(cx: &SessionCx<'_>, flags: NodeFlags) -> NodeView {
    let stream = cx.server.primary().stream();
    NodeView {
        id: hashed(""),
        shard_id: NodeId::from_text(stream.id.as_bytes()).unwrap_or_else(|| hashed(&stream.id)),
        ip: String::new(),
        port: 0,
        tls_port: 0,
        bus_port: 0,
        hostname: String::new(),
        human_name: String::new(),
        zone: String::new(),
        flags,
        primary: None,
        primary_id: None,
        slots: SlotSet::default(),
        config_epoch: 1,
        offset: stream.offset,
        ping_sent: 0,
        pong_received: 0,
        is_linked: true,
        failure_reports: 0,
    }
}

fn myself(cx: &SessionCx<'_>) -> NodeView {
    let own = own_address(cx);
    let run_id = cx.server.run_id();
    NodeView {
        id: NodeId::from_text(run_id.as_bytes()).unwrap_or_else(|| hashed(run_id)),
        ip: own.ip,
        port: if own.is_tls { 0 } else { own.port },
        tls_port: if own.is_tls { own.port } else { 0 },
        hostname: cx.config.cluster_announce_hostname.clone(),
        zone: cx.config.availability_zone.clone(),
        ..node(cx, NodeFlags::PRIMARY.or(NodeFlags::MYSELF))
    }
}

/// The address of this server.
struct ServerAddress {
    ip: String,
    port: u16,
    /// Whether the port is for TLS connections.
    is_tls: bool,
}

/// Returns the address of this server: the one announced by the configuration, otherwise the one that the client
/// connected to.
fn own_address(cx: &SessionCx<'_>) -> ServerAddress {
    let config: &Config = cx.config;
    let local = &*cx.client.shared.local_address;
    let (ip, port) = local.rsplit_once(':').unwrap_or(("", ""));
    let is_tcp = !ip.contains('/');
    let ip = ip.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().ok().filter(|port| is_tcp && *port != 0);
    let port = port.unwrap_or(config.port);
    let is_tls = port == config.tls_port && port != config.port;
    let announced = match is_tls {
        true => config.cluster_announce_tls_port,
        false => config.cluster_announce_port,
    };
    ServerAddress {
        ip: match &*config.cluster_announce_ip {
            "" if is_tcp && !ip.is_empty() => ip.to_owned(),
            "" => "127.0.0.1".to_owned(),
            announced => announced.to_owned(),
        },
        port: if announced == 0 { port } else { announced },
        is_tls,
    }
}

/// Returns the ID of another server, which depends only on its address.
fn id_of(host: &str, port: u16) -> NodeId {
    hashed(&format!("{host}:{port}"))
}

fn hashed(text: &str) -> NodeId {
    let mut bytes = [0; 20];
    bytes.copy_from_slice(&Sha256::digest(text)[..20]);
    NodeId::from_random(bytes)
}
