//! Tests of `health`.

use super::*;
use basalt_commands::cluster::assembly::{AssemblyState, AssemblyView};
use basalt_commands::cluster::node_id::NodeId;
use basalt_commands::cluster::slot_set::SlotSet;
use basalt_commands::cluster::testing::{OTHER, THIRD, map};

const NOW_S: u64 = 1_800_000_000;

fn quiet() -> Situation {
    Situation {
        now_s: NOW_S,
        ..Situation::default()
    }
}

fn found(situation: &Situation) -> Vec<(&'static str, &'static str)> {
    let findings = findings(situation);
    let named = findings.iter();
    named
        .map(|(about, finding)| (*about, finding.remedy))
        .collect()
}

#[test]
fn a_disk_that_takes_nothing_is_told_of_with_what_refuses_writes() {
    let mut situation = quiet();
    assert_eq!(
        (found(&situation), text(&situation)),
        (vec![], String::new())
    );
    situation.refusal = Some(WriteRefusal::Log(28));
    assert_eq!(found(&situation), [("persistence", "appendonly")]);
    assert!(text(&situation).contains("cannot be written: No space left on device."));
    situation.refusal = Some(WriteRefusal::Snapshot);
    situation.has_failed_save = true;
    situation.failed_rewrites = 3;
    assert_eq!(
        found(&situation),
        [
            ("persistence", "stop-writes-on-bgsave-error"),
            ("persistence", "BGREWRITEAOF")
        ]
    );
    situation.refusal = None;
    situation.failed_rewrites = 0;
    assert_eq!(found(&situation), [("persistence", "BGSAVE")]);
}

#[test]
fn a_primary_tells_of_replicas_that_confirm_nothing() {
    let mut situation = quiet();
    situation.config = Arc::new(Config {
        min_sync_replicas: 2,
        ..Config::default()
    });
    situation.sync_replicas = 1;
    let finding = [("replication", "min-sync-replicas")];
    assert_eq!(found(&situation), finding);
    assert!(
        text(&situation)
            .contains("fewer than 2 replicas confirm them (min-sync-replicas): 1 follow.")
    );
    situation.sync_replicas = 2;
    assert_eq!(found(&situation), []);
    situation.is_confirmation_overdue = true;
    assert_eq!(found(&situation), finding);
}

#[test]
fn a_replica_tells_of_its_link_unless_it_is_up_or_a_snapshot_comes() {
    let mut situation = quiet();
    let link = |state| {
        Some(Upstream {
            host: "cache\u{1b}".to_owned(),
            port: 7001,
            state,
            offset: 5,
            info: vec![("master_link_down_since_seconds", "42".to_owned())],
        })
    };
    for state in [LinkState::Connected, LinkState::Sync] {
        situation.upstream = link(state);
        assert!(found(&situation).is_empty(), "{state:?}");
    }
    situation.upstream = link(LinkState::Connecting);
    let findings = findings(&situation);
    let finding = &findings[0].1;
    assert!(
        finding
            .shown(true)
            .starts_with("The link to the primary cache\\u{1b}:7001 is down (for 42 s);")
    );
    assert!(
        finding
            .shown(false)
            .starts_with("The link to the primary is down")
    );
}

#[test]
fn certificates_are_told_of_before_they_end_and_when_they_can_not_be_read_anew() {
    let mut situation = quiet();
    let ends = |days: i64| {
        vec![OwnCertificate {
            directive: "tls-cert-file",
            file: "/etc/a.crt".to_owned(),
            ends_s: Some(NOW_S.cast_signed() + days * DAY_S),
            hosts: Vec::new(),
        }]
    };
    for (days, said) in [
        (30, None),
        (13, Some("expires in 13 days")),
        (1, Some("expires in 24 hours")),
        (-3, Some("expired 3 days ago")),
    ] {
        situation.certificates = ends(days);
        let text = text(&situation);
        match said {
            None => assert_eq!(text, ""),
            Some(said) => assert!(text.contains(said), "{text}"),
        }
    }
    situation.certificates = ends(300);
    situation.tls_failure = Some("Failed to load certificate".to_owned());
    assert_eq!(found(&situation), [("tls", "tls-cert-file")]);
}

fn of_cluster(map: ClusterMap) -> Situation {
    Situation {
        cluster: Some(ClusterSeen {
            map,
            unsaved: None,
            moves: Vec::new(),
        }),
        ..quiet()
    }
}

#[test]
fn a_cluster_that_does_not_serve_is_told_of_with_what_is_missing() {
    let remedies = |situation: &Situation| -> Vec<&'static str> {
        found(situation).iter().map(|(_, remedy)| *remedy).collect()
    };
    // Of three primaries, the first and the third have no replica.
    let situation = of_cluster(map());
    assert_eq!(remedies(&situation), ["CLUSTER REPLICATE"]);
    assert!(text(&situation).contains("Each of the primaries 00000000, 03030303 has no"));
    let mut broken = map();
    broken.is_up = false;
    broken.nodes[usize::from(THIRD)]
        .flags
        .set(NodeFlags::FAILED);
    broken.slots_failed = broken.nodes[usize::from(THIRD)].slots.len();
    let situation = of_cluster(broken.clone());
    assert_eq!(
        remedies(&situation),
        ["CLUSTER FAILOVER", "CLUSTER REPLICATE"]
    );
    assert!(text(&situation).contains("Primaries that own 5461 slots do not respond (03030303)"));
    let other = &mut broken.nodes[usize::from(OTHER)];
    other.flags.set(NodeFlags::MAYBE_FAILED);
    broken.slots_maybe_failed = other.slots.len();
    let situation = of_cluster(broken);
    assert_eq!(
        remedies(&situation)[..2],
        ["CLUSTER NODES", "CLUSTER FAILOVER"]
    );
    assert!(text(&situation).contains("it reaches 1 of 3 primaries"));
    let mut holes = map();
    holes.nodes[0].slots.remove(7);
    let mut situation = of_cluster(holes);
    assert_eq!(remedies(&situation)[0], "CLUSTER ADDSLOTSRANGE");
    situation.cluster.as_mut().expect("one").unsaved = Some("No space left".to_owned());
    assert_eq!(remedies(&situation)[0], "cluster-config-file");
}

#[test]
fn a_cluster_that_is_not_assembled_yet_tells_who_is_missing() {
    let mut new = map();
    new.is_up = false;
    for node in &mut new.nodes {
        node.slots = SlotSet::default();
        (node.primary, node.primary_id) = (None, None);
    }
    new.assembly = AssemblyView {
        state: AssemblyState::Waiting,
        here: 4,
        needed: 6,
        hindrances: vec!["the node at 10.0.0.9:1 does not join: why".to_owned()],
    };
    let situation = of_cluster(new.clone());
    assert_eq!(found(&situation), [("cluster", "cluster-size")]);
    let said = text(&situation);
    assert!(said.contains("4 of 6 are there."), "{said}");
    assert!(
        said.contains("all are there. the node at 10.0.0.9:1 does not join: why."),
        "{said}"
    );
    assert!(said.contains("cluster-seeds is empty"), "{said}");
    new.assembly.state = AssemblyState::Agreeing;
    assert_eq!(
        found(&of_cluster(new.clone())),
        [("cluster", "CLUSTER FORGET")]
    );
    new.assembly.hindrances.clear();
    assert_eq!(found(&of_cluster(new)), []);
    let mut assembled = map();
    assembled.nodes.retain(|node| node.is_primary());
    assembled.assembly.state = AssemblyState::Assembled;
    assert_eq!(found(&of_cluster(assembled.clone())), []);
    assembled.assembly.hindrances = vec!["why".to_owned()];
    assert_eq!(
        found(&of_cluster(assembled)),
        [("cluster", "cluster-seeds")]
    );
}

#[test]
fn a_move_that_failed_of_late_is_told_of_until_it_was_repeated_well() {
    let moved = |name, updated_s, state: &'static str| SlotMove {
        name: NodeId::from_random([name; 20]),
        is_export: true,
        slots: (3..=4).collect(),
        source: NodeId::from_random([0; 20]),
        target: NodeId::from_random([1; 20]),
        created_s: 1,
        updated_s,
        acked_s: 3,
        state,
        message: "the link broke".to_owned(),
        waiting_bytes: 4,
        paused_ms: 5,
    };
    let mut all_with_replicas = map();
    for at in [0, THIRD] {
        let mut replica = all_with_replicas.nodes[2].clone();
        replica.primary = Some(at);
        all_with_replicas.nodes.push(replica);
    }
    let mut situation = of_cluster(all_with_replicas);
    assert!(found(&situation).is_empty());
    let mut set = |moves| {
        situation.cluster.as_mut().expect("one").moves = moves;
        found(&situation)
    };
    assert_eq!(
        set(vec![moved(9, NOW_S - 5, "failed")]),
        [("cluster", "CLUSTER GETSLOTMIGRATIONS")]
    );
    let later = moved(8, NOW_S - 1, "success");
    assert!(set(vec![later, moved(9, NOW_S - 5, "failed")]).is_empty());
    assert!(set(vec![moved(9, NOW_S - 3_600, "failed")]).is_empty());
}
