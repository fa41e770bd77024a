//! A map of four nodes, for tests.

use std::collections::BTreeMap;

use super::assembly::AssemblyView;
use super::flags::NodeFlags;
use super::map::{ClusterMap, NodeView, UNOWNED};
use super::node_id::NodeId;
use basalt_core::base::hash::SLOTS;

/// The index of the second primary in [`map`]; this node is the first primary.
pub const OTHER: u16 = 1;
/// The index of the second primary's replica.
pub const REPLICA: u16 = 2;
/// The index of the third primary.
pub const THIRD: u16 = 3;

/// Returns a map of three primaries, of which the second has a replica; this node has the first third of the slots.
pub fn map() -> ClusterMap {
    let bounds = [(0, 5460), (5461, 10922), (1, 0), (10923, SLOTS - 1)];
    let nodes: Vec<NodeView> = (0_u8..4)
        .map(|at| {
            let (first, last) = bounds[usize::from(at)];
            let is_replica = u16::from(at) == REPLICA;
            let role = match is_replica {
                true => NodeFlags::REPLICA,
                false => NodeFlags::PRIMARY,
            };
            NodeView {
                id: NodeId::from_random([at; 20]),
                shard_id: NodeId::from_random([if is_replica { 0x11 } else { 0x10 + at }; 20]),
                ip: format!("10.0.0.{at}"),
                port: 7000 + u16::from(at),
                tls_port: 8000 + u16::from(at),
                bus_port: 17000 + u16::from(at),
                hostname: String::new(),
                human_name: String::new(),
                zone: String::new(),
                flags: if at == 0 {
                    role.or(NodeFlags::MYSELF)
                } else {
                    role
                },
                primary: is_replica.then_some(OTHER),
                primary_id: is_replica.then_some(NodeId::from_random([1; 20])),
                slots: (first..=last).collect(),
                config_epoch: u64::from(if is_replica { OTHER } else { at.into() }),
                offset: 0,
                ping_sent: 0,
                pong_received: 0,
                is_linked: true,
                failure_reports: 0,
            }
        })
        .collect();
    let mut owners = vec![UNOWNED; usize::from(SLOTS)].into_boxed_slice();
    for (place, node) in nodes.iter().enumerate() {
        for slot in node.slots.iter() {
            owners[usize::from(slot)] = place as u16;
        }
    }
    ClusterMap {
        owners,
        nodes,
        myself: 0,
        migrating: BTreeMap::new(),
        importing: BTreeMap::new(),
        is_up: true,
        down: None,
        current_epoch: 3,
        size: 3,
        slots_maybe_failed: 0,
        slots_failed: 0,
        assembly: AssemblyView::default(),
    }
}
