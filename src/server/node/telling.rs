//! Notifications of slots that went from this node to others, for clients that asked for them (SMIGRATED).

use std::collections::BTreeMap;

use super::Bus;
use crate::telemetry::clock;
use basalt_commands::cluster::map::{ClusterMap, NodeView, UNOWNED};
use basalt_commands::cluster::slot_set::SlotSet;
use basalt_commands::command::host::cluster::endpoint;
use basalt_commands::pubsub::maintenance::MovedSlots;

impl Bus {
    /// Sends SMIGRATED for the slots of this node, if a change of the map made it a replica, and then FAILED_OVER to
    /// clients that got FAILING_OVER.
    pub(super) fn tell_demotion(&self, before: &ClusterMap, now: &ClusterMap) {
        if before.me().is_primary() && !now.me().is_primary() {
            self.tell_moved(&before.me().slots, now);
            self.service.pubsub.end_failover(clock::unix_ms());
        }
    }

    /// Sends SMIGRATED for those of these slots that other nodes have.
    pub(super) fn tell_moved(&self, slots: &SlotSet, map: &ClusterMap) {
        let mut by_owner: BTreeMap<u16, SlotSet> = BTreeMap::new();
        for slot in slots.iter() {
            let owner = map.owners[usize::from(slot)];
            if owner != UNOWNED && owner != map.myself {
                by_owner.entry(owner).or_default().insert(slot);
            }
        }
        let moves: Vec<MovedSlots> = by_owner
            .into_iter()
            .map(|(owner, slots)| MovedSlots {
                source: self.endpoints(map.me()),
                destination: self.endpoints(&map.nodes[usize::from(owner)]),
                slots: slots.listed(),
            })
            .collect();
        if !moves.is_empty() {
            let now_ms = clock::unix_ms();
            self.service.pubsub.tell_slots_migrated(&moves, now_ms);
        }
    }

    /// Returns the endpoints of a node for clients without and with TLS, as CLUSTER SLOTS names them. Where it names
    /// none, the address stands in.
    fn endpoints(&self, node: &NodeView) -> [String; 2] {
        let wanted = self.service.config.load().cluster_preferred_endpoint_type;
        let host = endpoint(node, wanted).filter(|host| *host != "?");
        let host = host.unwrap_or(&node.ip);
        [node.port, node.tls_port].map(|port| format!("{host}:{port}"))
    }
}
