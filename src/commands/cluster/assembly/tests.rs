//! Tests of plans, and of notices and records in bytes and words.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::plan::{Candidate, Plan};
use super::{AssemblyRecord, Notice, NoticeStage, Stage, Unfit};
use crate::cluster::node_id::NodeId;
use crate::cluster::slot_set::SlotSet;
use proptest::prelude::{Strategy, any, prop, proptest};

fn id(number: u8) -> NodeId {
    NodeId::from_random([number; 20])
}

/// Returns candidates with the IDs 1, 2 and so on, in these zones.
fn candidates(zones: &[&str]) -> Vec<Candidate> {
    let all = zones.iter().enumerate().map(|(at, zone)| Candidate {
        id: id(at as u8 + 1),
        zone: (*zone).to_owned(),
    });
    all.collect()
}

/// Returns the shards of the plan for candidates in these zones, as the numbers of their nodes.
fn shards(zones: &[&str], size: u32, replicas: u32) -> Vec<Vec<u8>> {
    let plan = Plan::new(&candidates(zones), size, replicas).expect("enough candidates");
    let number = |member: &NodeId| (1..=255).find(|number| id(*number) == *member);
    let members: Vec<u8> = plan
        .members()
        .map(|member| number(member).expect("one of them"))
        .collect();
    members
        .chunks(plan.nodes_per_shard())
        .map(<[u8]>::to_vec)
        .collect()
}

#[test]
fn without_zones_the_smallest_ids_are_primaries() {
    assert_eq!(shards(&[""; 6], 3, 1), [[1, 4], [2, 5], [3, 6]]);
    assert_eq!(shards(&[""; 3], 3, 0), [[1], [2], [3]]);
    assert_eq!(shards(&[""; 5], 1, 2), [[1, 2, 3]], "the others are spare");
}

#[test]
fn primaries_are_in_several_zones_and_replicas_in_others_than_theirs() {
    // The three smallest IDs are in one zone.
    let zones = ["a", "a", "a", "b", "b", "c"];
    let planned = shards(&zones, 3, 1);
    let zone = |number: u8| zones[usize::from(number) - 1];
    let primaries: BTreeSet<&str> = planned.iter().map(|shard| zone(shard[0])).collect();
    assert_eq!(primaries.len(), 3, "{planned:?}");
    for shard in &planned {
        assert_ne!(zone(shard[0]), zone(shard[1]), "{planned:?}");
    }
    // The last primary would be left with a replica of its own zone, if none were exchanged.
    let zones = ["a", "b", "c", "c", "b", "a"];
    let planned = shards(&zones, 3, 1);
    for shard in &planned {
        let zone = |number: u8| zones[usize::from(number) - 1];
        assert_ne!(zone(shard[0]), zone(shard[1]), "{planned:?}");
    }
    // Two replicas in two other zones.
    let zones = ["a", "a", "a", "b", "b", "b", "c", "c", "c"];
    for shard in shards(&zones, 3, 2) {
        let zones: BTreeSet<&str> = shard.iter().map(|at| zones[usize::from(*at) - 1]).collect();
        assert_eq!(zones.len(), 3, "{shard:?}");
    }
}

#[test]
fn a_plan_needs_enough_nodes_and_not_too_many() {
    assert_eq!(Plan::new(&candidates(&[""; 5]), 3, 1), None);
    assert_eq!(Plan::new(&candidates(&[""; 5]), 0, 1), None);
    assert_eq!(Plan::new(&candidates(&[""; 5]), u32::MAX, u32::MAX), None);
    assert_eq!(Plan::of_members(vec![id(1), id(2), id(3)], 2), None);
    assert_eq!(Plan::of_members(vec![id(1), id(1)], 2), None);
    assert_eq!(Plan::of_members(Vec::new(), 1), None);
    assert_eq!(Plan::of_members(vec![id(1)], 0), None);
}

proptest! {
    #[test]
    fn every_plan_has_each_node_once_and_each_slot_once(
        zones in prop::collection::vec("[a-c]?", 1..60),
        size in 1..8u32,
        replicas in 0..4u32,
    ) {
        let zones: Vec<&str> = zones.iter().map(String::as_str).collect();
        let candidates = candidates(&zones);
        let needed = (size * (1 + replicas)) as usize;
        let plan = Plan::new(&candidates, size, replicas);
        assert_eq!(plan.is_some(), candidates.len() >= needed);
        if let Some(plan) = plan {
            let members: BTreeSet<NodeId> = plan.members().copied().collect();
            let smallest: BTreeSet<NodeId> = candidates[..needed].iter().map(|one| one.id).collect();
            assert_eq!(members, smallest);
            let mut all = SlotSet::default();
            for shard in 0..plan.shards() {
                let slots = plan.slots_of(shard);
                let share = 16_384 / plan.shards() as u16;
                assert!((share..=share + 1).contains(&slots.len()));
                assert!(slots.iter().all(|slot| all.insert(slot)));
            }
            assert_eq!(all.len(), 16_384);
            let mut others = candidates.clone();
            others.truncate(needed);
            assert_eq!(Plan::new(&others, size, replicas).as_ref(), Some(&plan));
        }
    }
}

fn plans() -> impl Strategy<Value = Arc<Plan>> {
    let sizes = (1..6usize, 1..4usize);
    sizes.prop_map(|(shards, per_shard)| {
        let members = (0..shards * per_shard).map(|at| id(at as u8)).collect();
        Arc::new(Plan::of_members(members, per_shard).expect("a plan"))
    })
}

pub(in crate::cluster) fn notices() -> impl Strategy<Value = Notice> {
    let stage = prop::sample::select(vec![0, 1, 2]);
    let numbers = any::<(u32, u32, u64, u64, u128, u8)>();
    (stage, plans(), numbers).prop_map(
        |(stage, plan, (size, replicas, term, life, digest, unfit))| Notice {
            size,
            replicas,
            term,
            life,
            stage: match stage {
                0 => NoticeStage::Waiting {
                    plan: digest,
                    unfit: Unfit::from_number(unfit % 6),
                },
                1 => NoticeStage::Agreed(plan),
                _ => NoticeStage::Assembled(digest),
            },
        },
    )
}

proptest! {
    #[test]
    fn notices_and_records_survive_bytes_and_words(notice in notices()) {
        let mut bytes = Vec::new();
        notice.encode(&mut bytes);
        assert_eq!(bytes.len() % 8, 0);
        assert_eq!(Notice::decode(&bytes), Some(notice.clone()));
        for end in 0..bytes.len() {
            assert_eq!(Notice::decode(&bytes[..end]), None);
        }
        let stage = match notice.stage {
            NoticeStage::Waiting { .. } => Stage::Waiting,
            NoticeStage::Agreed(plan) => Stage::Agreed(plan),
            NoticeStage::Assembled(digest) => Stage::Assembled(digest),
        };
        let record = AssemblyRecord { term: notice.term, stage };
        let word = record.to_string();
        assert!(!word.contains(char::is_whitespace));
        assert_eq!(AssemblyRecord::from_word(&word), Some(record));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = bytes;
        Notice::decode(&bytes);
        if let Some(version) = bytes.first_mut() {
            *version = 1;
        }
        Notice::decode(&bytes);
    }
}

#[test]
fn wrong_words_of_nodes_conf_are_refused() {
    for word in [
        "",
        "waiting",
        "waiting:x",
        "waiting:1:2",
        "assembled:1",
        "assembled:1:xyz",
        "agreed:1:2",
        "agreed:1:0:a",
        "agreed:1:1:short",
        "done:1",
    ] {
        assert_eq!(AssemblyRecord::from_word(word), None, "{word}");
    }
}
