//! Tests of `cluster`.

use super::*;
use crate::cluster::testing::{OTHER, THIRD, map};
use crate::command::host::Told;

/// A cluster that never changes, for tests.
pub(crate) struct Fixed(pub(crate) ClusterMap);

impl Cluster for Fixed {
    fn map(&self) -> Arc<ClusterMap> {
        Arc::new(self.0.clone())
    }
    fn view(&self) -> ClusterMap {
        self.0.clone()
    }
    fn change(&self, change: ClusterChange) -> Awaited {
        let answer = match change {
            ClusterChange::SaveConfig => {
                Err("ERR error saving the cluster node config: No space left".into())
            }
            change => Ok(format!("{change:?}")),
        };
        Awaited {
            begin: Arc::new(move |done| done(answer.clone())),
            told: Told::ByWork,
        }
    }
    fn publish(&self, _: &[u8], _: &[u8], _: bool) {}
    fn unsaved(&self) -> Option<String> {
        None
    }
    fn wake(&self) {}
    fn traffic(&self) -> Traffic {
        let mut traffic = Traffic::default();
        (traffic.sent[0], traffic.received[1]) = (3, 2);
        traffic
    }
    fn links(&self) -> Vec<LinkView> {
        let other = &self.0.nodes[usize::from(OTHER)];
        vec![LinkView {
            direction: LinkDirection::To,
            node: other.id,
            created: 5,
            reads: true,
            writes: false,
            send_buffer_allocated: 0,
            send_buffer_used: 0,
        }]
    }
    fn kill_links(&self, node: NodeId, _: LinkDirection) -> bool {
        self.0.find(node.as_bytes()).is_some()
    }
    fn drop_packets(&self, _: Option<u16>) {}
    fn close_links_on_drop(&self, _: bool) {}
    fn move_slots(&self, moves: Vec<(SlotSet, NodeId)>) -> Result<(), String> {
        Err(format!("ERR {moves:?}"))
    }
    fn cancel_moves(&self) -> bool {
        false
    }
    fn moves(&self) -> Vec<SlotMove> {
        vec![SlotMove {
            name: NodeId::from_random([9; 20]),
            is_export: true,
            slots: (3..=4).chain(7..=7).collect(),
            source: self.0.me().id,
            target: self.0.nodes[usize::from(OTHER)].id,
            created_s: 1,
            updated_s: 2,
            acked_s: 3,
            state: "failed",
            message: "why".to_owned(),
            waiting_bytes: 4,
            paused_ms: 5,
        }]
    }
    fn import_slots(&self, source: NodeId, slots: SlotSet) -> Result<NodeId, String> {
        let ranges: Vec<(u16, u16)> = slots.ranges().collect();
        Err(format!("ERR {} {ranges:?}", &source.as_str()[..8]))
    }
    fn cancel_tasks(&self, id: Option<&[u8]>) -> usize {
        id.map_or(7, |id| id.len())
    }
    fn slot_tasks(&self) -> Vec<SlotTask> {
        let of = self.moves().remove(0);
        let id = of.name;
        vec![SlotTask { id, of }]
    }
    fn moves_in_progress(&self) -> MovesInProgress {
        MovesInProgress {
            exports: 2,
            imports: 1,
            export_buffer_bytes: 30,
            import_buffer_bytes: 40,
        }
    }
    fn handle_move_step(&self, _: &Arc<Shared>, step: MoveStep) -> Result<MoveAnswer, String> {
        match step {
            MoveStep::Establish { .. } => Ok(MoveAnswer::Agreed),
            step => Err(format!(
                "ERR CLUSTER SYNCSLOTS {} should only be used by slot migration clients",
                step.name()
            )),
        }
    }
    fn replay_note(&self, _: SlotNote) {}
    fn replay_over(&self, _: NodeId) {}
    fn slot_notes(&self) -> Vec<SlotNote> {
        Vec::new()
    }
    fn load_slot_notes(&self, _: Vec<SlotNote>) {}
    fn import_failed(&self, _: &Shared, _: &[u8]) {}
    fn import_ended(&self, _: &Shared) {}
}

#[test]
fn plain_slots_are_those_of_this_node_that_rest() {
    let mut changed = map();
    changed.migrating.insert(3, THIRD);
    changed.importing.insert(9000, OTHER);
    let slots = SlotMap::new(Arc::new(map()));
    let first = slots.load_full();
    let cross = SlotOf::of(1).with(SlotOf::of(2));
    for (slot, plain) in [
        (SlotOf::NONE, true),
        (SlotOf::of(3), true),
        (SlotOf::of(9000), false),
        (cross, false),
    ] {
        assert_eq!(first.is_plain(slot), plain, "{slot:?}");
    }
    slots.store(Arc::new(changed));
    let second = slots.load_full();
    assert!(second.version > first.version && second.version == slots.version());
    assert!(!second.is_plain(SlotOf::of(3)) && second.is_plain(SlotOf::of(4)));
    let mut down = map();
    down.is_up = false;
    slots.store(Arc::new(down));
    assert!(!slots.load().is_plain(SlotOf::of(4)));
}

#[test]
fn redirections_name_the_endpoint_and_the_port_of_the_clients_kind() {
    let mut named = map();
    named.nodes[usize::from(OTHER)].hostname = "db-1.example".to_owned();
    let routes = Routes::new(Arc::new(named), 1);
    let (plain, tls) = (RoutingFlags::default(), RoutingFlags::TLS);
    let mut config = Config::default();
    for (endpoint_type, routing, node, text) in [
        (EndpointType::Ip, plain, OTHER, "MOVED 9 10.0.0.1:7001"),
        (EndpointType::Ip, tls, OTHER, "MOVED 9 10.0.0.1:8001"),
        (
            EndpointType::Hostname,
            plain,
            OTHER,
            "MOVED 9 db-1.example:7001",
        ),
        (EndpointType::Hostname, plain, THIRD, "MOVED 9 ?:7003"),
        (EndpointType::UnknownEndpoint, plain, OTHER, "MOVED 9 :7001"),
    ] {
        config.cluster_preferred_endpoint_type = endpoint_type;
        let said = routes.refusal_text(Refusal::Moved(9, node), routing, &config);
        assert_eq!(said, text);
    }
    let said = routes.refusal_text(Refusal::Ask(9, THIRD), tls, &config);
    assert_eq!(said, "ASK 9 :8003");
}
