//! The stream compared with a plain model: a map of the existing entries, and counts.

use std::collections::BTreeMap;

use super::consumer::Pending;
use super::group::{ConsumerGroup, UNKNOWN_READ};
use super::id::StreamId;
use super::node::{Node, StreamEntry};
use super::piece::{ConsumerHead, StreamPiece};
use super::producers::ProducerLimits;
use super::trim::{Bound, References, Trimming};
use super::{NodeLimits, StreamMetadata, StreamValue};
use crate::value::{CollectionBody, CollectionCursor};
use basalt_core::alloc::slabs::Mover;
use basalt_core::base::random::Random;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;
type Model = BTreeMap<StreamId, Fields>;

impl StreamValue {
    /// Checks the invariants of the module.
    fn check_invariants(&self) {
        let mut last = None;
        let (mut live, mut first) = (0, None);
        for (master, node) in self.nodes() {
            assert!(
                last.is_none_or(|last| master > last),
                "nodes do not overlap"
            );
            let checked = Node::check(node.bytes().to_vec(), master);
            assert!(checked.is_some(), "every node is one that Redis would take");
            for item in node.items(master, false) {
                last = Some(item.id);
                if !item.is_deleted() {
                    live += 1;
                    first = first.or(last);
                }
            }
        }
        assert_eq!(self.metadata.length, live);
        assert_eq!(self.metadata.first_id, first.unwrap_or(StreamId::MIN));
        assert!(last.is_none_or(|last| last <= self.metadata.last_id));
        for (_, group) in self.groups.iter() {
            group.check_invariants();
        }
    }
}

fn id(ms: u64, seq: u64) -> StreamId {
    StreamId::new(ms, seq)
}

fn append(stream: &mut StreamValue, id: StreamId, fields: &Fields, limits: NodeLimits) {
    let part = |at: usize| {
        let (name, value) = &fields[at / 2];
        if at.is_multiple_of(2) {
            name.as_slice()
        } else {
            value.as_slice()
        }
    };
    stream.append(id, fields.len(), part, limits);
}

fn read(item: &StreamEntry<'_>) -> (StreamId, Fields) {
    let fields = item
        .fields()
        .map(|(name, value)| (name.to_vec(), value.to_vec()))
        .collect();
    (item.id, fields)
}

fn draw_fields(random: &mut Random) -> Fields {
    let names: &[&[u8]] = match random.below(4) {
        0 => &[b"a"],
        1 => &[b"a", b"12"],
        2 => &[b"b", b"a"],
        _ => &[b"", b"x", b"y", b"a long name that is no number"],
    };
    let value = |random: &mut Random| match random.below(5) {
        0 => random.below(1000).to_string().into_bytes(),
        1 => (random.next_u64() as i64).to_string().into_bytes(),
        2 => vec![b'v'; random.below(200) as usize],
        3 => b"007".to_vec(),
        _ => Vec::new(),
    };
    let pairs = names.iter().map(|name| (name.to_vec(), value(random)));
    pairs.collect()
}

fn draw_bound(random: &mut Random, model: &Model) -> StreamId {
    match random.below(8) {
        0 => StreamId::MIN,
        1 => StreamId::MAX,
        2 => id(random.below(50), random.below(5)),
        _ => {
            let index = random.index(model.len().max(1));
            let found = model.keys().nth(index).copied().unwrap_or(StreamId::MIN);
            match random.below(3) {
                0 => found,
                1 => found.next().unwrap_or(found),
                _ => found.previous().unwrap_or(found),
            }
        }
    }
}

/// Checks that every way to read agrees with the model.
fn compare(stream: &StreamValue, model: &Model, random: &mut Random) {
    stream.check_invariants();
    assert_eq!(stream.metadata().length, model.len() as u64);
    assert_eq!(stream.last_entry_id(), model.keys().next_back().copied());
    let (start, end) = (draw_bound(random, model), draw_bound(random, model));
    let forwards: Vec<_> = stream.range(start, end).map(|item| read(&item)).collect();
    let expected: Vec<_> = model
        .iter()
        .filter(|(id, _)| (start..=end).contains(*id))
        .map(|(id, fields)| (*id, fields.clone()))
        .collect();
    assert_eq!(forwards, expected, "{start:?} {end:?}");
    let backwards = stream.range_reverse(start, end).map(|item| read(&item));
    let mut backwards: Vec<_> = backwards.collect();
    backwards.reverse();
    assert_eq!(backwards, expected, "{start:?} {end:?}");
    let one = draw_bound(random, model);
    assert_eq!(stream.contains(one), model.contains_key(&one));
}

#[test]
fn a_stream_is_a_map_of_what_was_added_and_not_deleted() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let limits = NodeLimits {
            bytes_max: [0, 40, 300, 4096][random.index(4)],
            entries_max: [0, 1, 3, 10, 100][random.index(5)],
        };
        let mut stream = StreamValue::default();
        let mut model = Model::new();
        let mut top = StreamId::MIN;
        let mut added = 0;
        for _ in 0..400 {
            match random.below(20) {
                0..=12 => {
                    top = match random.below(4) {
                        0 => id(top.ms, top.seq + 1 + random.below(3)),
                        1 => id(top.ms + 1 + random.below(5), random.below(9)),
                        2 => id(top.ms + 1 + (random.next_u64() >> 24), u64::MAX - 9),
                        _ => id(top.ms + 1, 0),
                    };
                    // Sequence numbers never run out here.
                    if top.seq > u64::MAX - 5 {
                        top = id(top.ms + 1, 0);
                    }
                    let fields = draw_fields(&mut random);
                    append(&mut stream, top, &fields, limits);
                    model.insert(top, fields);
                    added += 1;
                }
                13..=16 => {
                    let one = draw_bound(&mut random, &model);
                    assert_eq!(stream.delete(one), model.remove(&one).is_some());
                }
                17 => {
                    let left = random.below(model.len() as u64 + 3);
                    let before = model.len() as u64;
                    let gone = stream.trim(exact(Bound::Length(left)));
                    assert_eq!(gone, before.saturating_sub(left));
                    while model.len() as u64 > left {
                        model.pop_first();
                    }
                }
                18 => {
                    let bound = draw_bound(&mut random, &model).min(top);
                    let before = model.len();
                    model.retain(|id, _| *id >= bound);
                    let gone = stream.trim(exact(Bound::Id(bound)));
                    assert_eq!(gone as usize, before - model.len());
                }
                _ => trim_roughly(&mut stream, &mut model, &mut random),
            }
            compare(&stream, &model, &mut random);
        }
        let now = stream.metadata();
        assert_eq!((now.last_id, now.entries_added), (top, added));
        let copy = Box::new(stream).duplicate();
        compare(&copy, &model, &mut random);
        rebuild(&copy, &model, &mut random);
    }
}

fn exact(bound: Bound) -> Trimming {
    Trimming {
        bound,
        is_approximate: false,
        limit: 0,
        references: References::Keep,
    }
}

fn trim_roughly(stream: &mut StreamValue, model: &mut Model, random: &mut Random) {
    let left = random.below(model.len() as u64 + 3);
    let limit = random.below(30);
    let bound = if random.below(2) == 0 {
        Bound::Length(left)
    } else {
        Bound::Id(draw_bound(random, model))
    };
    let nodes: Vec<u64> = stream.nodes().map(|(_, node)| node.counts().0).collect();
    let gone = stream.trim(Trimming {
        is_approximate: true,
        limit,
        ..exact(bound)
    });
    let mut sums = vec![0];
    sums.extend(nodes.iter().scan(0, |sum, live| {
        *sum += live;
        Some(*sum)
    }));
    assert!(sums.contains(&gone), "whole nodes go: {gone} of {nodes:?}");
    assert!(limit == 0 || gone <= limit);
    for _ in 0..gone {
        let (first, _) = model.pop_first().expect("it was there");
        assert!(!matches!(bound, Bound::Id(bound) if first >= bound));
    }
    if let Bound::Length(left) = bound {
        assert!(gone == 0 || model.len() as u64 >= left);
    }
}

/// Checks that DUMP's output recreates the same stream.
fn rebuild(stream: &StreamValue, model: &Model, random: &mut Random) {
    let mut again = StreamValue::default();
    for (master, node) in stream.nodes() {
        let node = Node::check(node.bytes().to_vec(), master).expect("a node");
        assert!(again.push_node(master, node.clone()));
        assert!(!again.push_node(master, node), "nodes ascend");
    }
    let of = |metadata: StreamMetadata| (metadata.length, metadata.first_id);
    assert_eq!(of(again.metadata_from_nodes()), of(stream.metadata()));
    again.set_metadata(stream.metadata());
    compare(&again, model, random);
}

#[test]
fn freeing_goes_in_steps_and_ends() {
    let mut stream = Box::new(StreamValue::default());
    let limits = NodeLimits {
        bytes_max: 0,
        entries_max: 1,
    };
    let fields = vec![(b"a".to_vec(), b"b".to_vec())];
    let mut group = ConsumerGroup::new(StreamId::MIN, UNKNOWN_READ);
    let (first, _) = group.see_consumer(b"first", 1);
    let (second, _) = group.see_consumer(b"second", 1);
    for ms in 1..=100 {
        append(&mut stream, id(ms, 0), &fields, limits);
        let consumer = if ms % 2 == 0 { first } else { second };
        let ids = [id(ms, 0)];
        group.deliver(stream.metadata(), &ids, consumer, 1, false);
    }
    group.check_invariants();
    stream.groups.insert(b"g", group);
    let mut steps = 0;
    while stream.free_some(10) {
        steps += 1;
        assert!(steps < 100, "it ends");
    }
    assert!((29..=35).contains(&steps), "{steps} steps");
}

#[test]
fn pending_entries_have_one_owner() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut group = ConsumerGroup::new(StreamId::MIN, UNKNOWN_READ);
        let mut model: BTreeMap<StreamId, (u8, i64)> = BTreeMap::new();
        // Entries that no consumer owns, in the order of their return.
        let mut returned: Vec<StreamId> = Vec::new();
        for now_ms in 0..400 {
            let one = id(random.below(30), 0);
            let name = [b'a' + random.below(4) as u8];
            let kind = random.below(12);
            if kind != 9 {
                returned.retain(|id| *id != one);
            }
            match kind {
                10.. => {
                    group.give_back(one, 1);
                    model.insert(one, (0, 0));
                    returned.push(one);
                }
                0..=5 => {
                    let (consumer, _) = group.see_consumer(&name, now_ms);
                    let pending = Pending {
                        delivered_ms: now_ms,
                        deliveries: 1,
                        consumer,
                    };
                    group.set_pending(one, pending);
                    model.insert(one, (name[0], now_ms));
                }
                6..=8 => assert_eq!(group.acknowledge(one), model.remove(&one).is_some()),
                _ => {
                    let before = model.len();
                    model.retain(|_, (owner, _)| *owner != name[0]);
                    let removed = group
                        .find_consumer(&name)
                        .map_or(0, |consumer| group.remove_consumer(consumer));
                    assert_eq!(removed, before - model.len());
                }
            }
            group.check_invariants();
            let all: Vec<_> = group
                .pending_between(StreamId::MIN, StreamId::MAX)
                .map(|(id, one)| {
                    let owner = group.owner_name(one).first().copied().unwrap_or(0);
                    (id, (owner, one.shown_ms()))
                })
                .collect();
            let in_order: Vec<_> = group.returned().into_iter().map(|(id, _)| id).collect();
            assert_eq!(in_order, returned);
            assert_eq!(all, model.clone().into_iter().collect::<Vec<_>>());
            if let Some(consumer) = group.find_consumer(&name) {
                let (start, end) = (id(random.below(30), 0), id(random.below(30), 0));
                let own: Vec<_> = group
                    .pending_of(consumer, start, end)
                    .map(|(id, _)| id)
                    .collect();
                let expected: Vec<_> = model
                    .iter()
                    .filter(|(id, (owner, _))| *owner == name[0] && (start..=end).contains(*id))
                    .map(|(id, _)| *id)
                    .collect();
                assert_eq!(own, expected);
            }
        }
    }
}

#[test]
fn what_groups_need_is_not_trimmed() {
    let limits = NodeLimits {
        bytes_max: 0,
        entries_max: 2,
    };
    let fields = vec![(b"a".to_vec(), b"b".to_vec())];
    let build = || {
        let mut stream = StreamValue::default();
        for ms in 1..=6 {
            append(&mut stream, id(ms, 0), &fields, limits);
        }
        let mut group = ConsumerGroup::new(StreamId::MIN, UNKNOWN_READ);
        let (consumer, _) = group.see_consumer(b"c", 1);
        let read: Vec<StreamId> = (1..=5).map(|ms| id(ms, 0)).collect();
        group.deliver(stream.metadata(), &read, consumer, 1, false);
        for ms in [1, 3, 4] {
            group.acknowledge(id(ms, 0));
        }
        stream.groups.insert(b"g", group);
        stream
    };
    let left = |stream: &StreamValue| -> Vec<u64> { stream.all().map(|item| item.id.ms).collect() };
    let acked = |bound| Trimming {
        references: References::Acknowledged,
        ..exact(bound)
    };
    // 2 and 5 are pending, 6 was not read.
    let mut stream = build();
    assert_eq!(stream.trim(acked(Bound::Length(0))), 3);
    assert_eq!(left(&stream), [2, 5, 6]);
    stream.check_invariants();
    let mut stream = build();
    assert_eq!(stream.trim(acked(Bound::Length(4))), 2);
    assert_eq!(left(&stream), [2, 4, 5, 6]);
    let mut stream = build();
    assert_eq!(stream.trim(acked(Bound::Id(id(4, 0)))), 2);
    assert_eq!(left(&stream), [2, 4, 5, 6]);
    let mut stream = build();
    let trimming = Trimming {
        references: References::Delete,
        ..exact(Bound::Length(3))
    };
    assert_eq!(stream.trim(trimming), 3);
    assert_eq!(left(&stream), [4, 5, 6]);
    let group = stream.groups.get(b"g").expect("made above");
    let pending: Vec<u64> = group
        .pending_between(StreamId::MIN, StreamId::MAX)
        .map(|(id, _)| id.ms)
        .collect();
    assert_eq!(pending, [5]);
    stream.check_invariants();
}

#[test]
fn counting_what_was_read_overflows_nowhere() {
    let metadata = StreamMetadata {
        length: 1,
        first_id: id(1, 0),
        last_id: id(2, 0),
        max_deleted_id: StreamId::MIN,
        entries_added: u64::MAX,
    };
    let mut group = ConsumerGroup::new(StreamId::MIN, i64::MAX);
    let (consumer, _) = group.see_consumer(b"c", 1);
    group.deliver(metadata, &[id(1, 0), id(2, 0)], consumer, 1, true);
    let _ = group.lag(metadata);
    assert_eq!(group.last_id, id(2, 0));
    assert_eq!(metadata.next_id(5), Some(id(5, 0)));
    assert_eq!(metadata.next_id(2), Some(id(2, 1)));
    let full = StreamMetadata {
        last_id: StreamId::MAX,
        ..metadata
    };
    assert_eq!(full.next_id(u64::MAX), None);
}

#[test]
fn what_is_undone_leaves_nodes_facts_and_groups_as_they_were() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let limits = NodeLimits {
            bytes_max: [0, 40, 300, 4096][random.index(4)],
            entries_max: [0, 1, 3, 10, 100][random.index(5)],
        };
        let mut stream = Box::new(StreamValue::default());
        stream
            .groups
            .insert(b"group", ConsumerGroup::new(StreamId::MIN, 0));
        let mut top = 0;
        change(&mut stream, &mut random, &mut top, limits, 60);
        let before = stream.clone();
        let mut journal = None;
        for _ in 0..random.below(5) {
            assert!(stream.keep_changes(journal));
            let count = random.below(12);
            change(&mut stream, &mut random, &mut top, limits, count);
            journal = stream.take_changes();
            stream.check_invariants();
        }
        if let Some(journal) = &journal {
            stream.undo(journal);
        }
        stream.check_invariants();
        assert_eq!(stream.metadata(), before.metadata());
        let nodes = |stream: &StreamValue| -> Vec<(StreamId, Vec<u8>)> {
            let all = stream.nodes();
            all.map(|(master, node)| (master, node.bytes().to_vec()))
                .collect()
        };
        assert_eq!(nodes(&stream), nodes(&before), "seed {seed}");
        assert_eq!(pieces(&stream), pieces(&before), "seed {seed}");
        assert_eq!(
            format!("{:?}", stream.groups.by_name),
            format!("{:?}", before.groups.by_name)
        );
    }
}

/// Makes some changes of entries and groups.
fn change(
    stream: &mut StreamValue,
    random: &mut Random,
    top: &mut u64,
    limits: NodeLimits,
    count: u64,
) {
    for _ in 0..count {
        let any = id(random.below(*top + 2), 0);
        if random.below(3) == 0 {
            change_producers(stream, random, any);
        }
        match random.below(16) {
            0..=8 => {
                *top = stream.metadata().last_id.ms.max(*top) + 1;
                append(stream, id(*top, 0), &draw_fields(random), limits);
            }
            9 | 10 => {
                stream.delete(any);
            }
            11 => {
                let left = random.below(stream.metadata().length + 2);
                stream.trim(exact(Bound::Length(left)));
            }
            12 => {
                stream.trim(Trimming {
                    references: References::Delete,
                    ..exact(Bound::Id(any))
                });
            }
            13 => {
                if let Some(group) = stream.groups.get_mut(b"group") {
                    let (consumer, _) = group.see_consumer(b"somebody", 5);
                    let pending = Pending {
                        delivered_ms: 1,
                        deliveries: 1,
                        consumer,
                    };
                    group.set_pending(any, pending);
                }
            }
            14 => stream.groups.forget(any),
            _ => {
                let name = random.below(3).to_string();
                let group = ConsumerGroup::new(any, UNKNOWN_READ);
                match random.below(2) {
                    0 => stream.groups.insert(name.as_bytes(), group),
                    _ => {
                        stream.groups.remove(name.as_bytes());
                    }
                }
            }
        }
    }
}

/// Changes the producer records, under rules by which ids are added and dropped fast.
fn change_producers(stream: &mut StreamValue, random: &mut Random, entry: StreamId) {
    let usual = ProducerLimits {
        seconds: 20,
        each_max: 3,
    };
    match random.below(12) {
        0 => {
            let rules = ProducerLimits {
                each_max: random.below(4) + 1,
                ..usual
            };
            stream.set_rules(rules, usual);
        }
        1 => stream.note_duplicate(),
        _ => {
            let name = random.below(4).to_string();
            let id = random.below(9).to_string();
            let now_ms = random.below(40_000);
            let known = stream.added_before(name.as_bytes(), id.as_bytes(), now_ms);
            if known.is_none() {
                stream.remember(name.as_bytes(), id.as_bytes(), entry, usual, now_ms);
                let known = stream.added_before(name.as_bytes(), id.as_bytes(), now_ms);
                assert_eq!(known, (entry.ms + 20_000 > now_ms).then_some(entry));
            }
        }
    }
}

#[test]
fn ids_of_producers_are_remembered_for_their_time_and_no_more_than_asked_for() {
    let usual = ProducerLimits {
        seconds: 10,
        each_max: 2,
    };
    let mut stream = StreamValue::default();
    for (name, entry) in [(b"one", 1_000), (b"two", 2_000)] {
        stream.remember(b"p", name, id(entry, 0), usual, entry);
    }
    let found = |stream: &StreamValue, name: &[u8], now_ms| stream.added_before(b"p", name, now_ms);
    assert_eq!(found(&stream, b"one", 10_999), Some(id(1_000, 0)));
    assert_eq!(found(&stream, b"one", 11_000), None);
    assert_eq!(found(&stream, b"two", 11_000), Some(id(2_000, 0)));
    assert_eq!(stream.added_before(b"q", b"two", 0), None);
    // The older of the two ids is dropped for a third.
    stream.remember(b"p", b"three", id(3_000, 0), usual, 3_000);
    assert_eq!(found(&stream, b"one", 3_000), None);
    assert_eq!(found(&stream, b"two", 3_000), Some(id(2_000, 0)));
    // Additions of other producers free expired ids.
    for number in 0..4 {
        let name = format!("q{number}");
        let now_ms = 60_000 * (number + 1);
        stream.remember(name.as_bytes(), b"id", id(now_ms, 0), usual, now_ms);
    }
    let producers = stream.producers().expect("there were some");
    assert!(producers.iter().len() <= 2, "{producers:?}");
    assert_eq!(producers.counts(240_000), (1, 1));
    assert_eq!(producers.facts().added, 7);
    assert!(!stream.set_rules(usual, usual));
    assert!(stream.set_rules(
        ProducerLimits {
            seconds: 9,
            ..usual
        },
        usual
    ));
    assert_eq!(stream.producers().expect("as before").counts(0), (0, 0));
}

#[test]
fn a_stream_of_which_everything_moves_is_what_it_was() {
    let limits = NodeLimits {
        bytes_max: 4096,
        entries_max: 5,
    };
    let mut stream = StreamValue::default();
    for number in 1..=5_000 {
        let fields = vec![(b"item".to_vec(), format!("value {number}").into_bytes())];
        append(&mut stream, id(number, 0), &fields, limits);
    }
    for name in [b"one", b"two"] {
        let mut group = ConsumerGroup::new(StreamId::MIN, 0);
        for number in 0..40 {
            group.add_consumer(format!("consumer {number}").as_bytes(), 1);
        }
        // Leaves a free slot.
        let gone = group.find_consumer(b"consumer 7").expect("added above");
        group.remove_consumer(gone);
        for number in 1..=3_000 {
            let consumer = format!("consumer {}", number % 3);
            let consumer = group
                .find_consumer(consumer.as_bytes())
                .expect("added above");
            let pending = Pending {
                delivered_ms: number as i64,
                deliveries: number,
                consumer,
            };
            group.set_pending(id(number, 0), pending);
        }
        stream.groups.insert(name, group);
    }
    let before = stream.clone();
    let mut mover = Mover::of_everything();
    let (mut from, mut slices) = (CollectionCursor::default(), 0);
    loop {
        from = stream.relocate_some(from, 100, &mut mover);
        stream.check_invariants();
        slices += 1;
        if from == CollectionCursor::default() {
            break;
        }
    }
    assert!(slices > 10 + 2 * (30 + 40), "{slices}");
    assert_eq!(stream.metadata, before.metadata);
    let nodes = |stream: &StreamValue| -> Vec<(StreamId, Vec<u8>)> {
        stream
            .nodes()
            .map(|(master, node)| (master, node.bytes().to_vec()))
            .collect()
    };
    assert_eq!(nodes(&stream), nodes(&before));
    for ((name, group), (_, model)) in stream.groups.iter().zip(before.groups.iter()) {
        let pending = |group: &ConsumerGroup| -> Vec<_> {
            group
                .pending_between(StreamId::MIN, StreamId::MAX)
                .collect()
        };
        assert_eq!(pending(group), pending(model), "{name:?}");
    }
}

/// Returns a stream as pieces.
fn pieces(stream: &StreamValue) -> Vec<String> {
    let mut all = Vec::new();
    let mut show = |piece: StreamPiece<'_>| all.push(text_of(piece));
    for (master, node) in stream.nodes() {
        show(StreamPiece::Node(master, node));
    }
    let (metadata, groups) = (stream.metadata(), stream.groups.len());
    show(StreamPiece::Metadata(metadata, groups));
    for (name, group) in stream.groups.iter() {
        let head = group.head(name);
        show(StreamPiece::Group(&head));
        for (id, pending) in group.pending_between(StreamId::MIN, StreamId::MAX) {
            show(StreamPiece::Pending(id, pending));
        }
        show(StreamPiece::Consumers(group.consumers().len()));
        for consumer in group.consumers() {
            show(StreamPiece::Consumer(&head, &ConsumerHead::of(consumer)));
            for id in consumer.pending_ids() {
                show(StreamPiece::Owned(id));
            }
        }
        show(StreamPiece::Returned(group.returned_count()));
        for (id, _) in group.returned() {
            show(StreamPiece::Owned(id));
        }
    }
    if let Some(producers) = stream.producers() {
        let facts = producers.facts();
        show(StreamPiece::Producers(facts, producers.iter().len()));
        for (name, producer) in producers.iter() {
            show(StreamPiece::Producer(name, producer));
        }
        show(StreamPiece::ProducersEnd(facts));
    }
    all
}

fn text_of(piece: StreamPiece<'_>) -> String {
    match piece {
        StreamPiece::Node(master, node) => format!("node {master:?} {:?}", node.bytes()),
        StreamPiece::Metadata(metadata, groups) => format!("{metadata:?} {groups}"),
        StreamPiece::Group(head) => format!("{head:?}"),
        StreamPiece::Pending(id, pending) => {
            let Pending {
                delivered_ms,
                deliveries,
                ..
            } = pending;
            format!("pending {id:?} {delivered_ms} {deliveries}")
        }
        StreamPiece::Consumers(count) => format!("consumers {count}"),
        StreamPiece::Consumer(group, head) => format!("{:?} {head:?}", group.name),
        StreamPiece::Owned(id) => format!("owned {id:?}"),
        StreamPiece::Returned(count) => format!("returned {count}"),
        StreamPiece::Producers(facts, count) => format!("{count} {facts:?}"),
        StreamPiece::Producer(name, producer) => {
            format!("{name:?} {:?}", producer.iter().collect::<Vec<_>>())
        }
        StreamPiece::ProducersEnd(facts) => format!("end {facts:?}"),
    }
}

/// Changes the read state of groups.
fn change_groups(stream: &mut StreamValue, random: &mut Random, top: u64, count: u64) {
    for _ in 0..count {
        let name = random.below(3).to_string();
        let consumer = random.below(3).to_string();
        let any = id(random.below(top + 2), 0);
        let Some(group) = stream.groups.get_mut(name.as_bytes()) else {
            continue;
        };
        match random.below(10) {
            8 | 9 => {
                for step in 0..random.below(4) {
                    group.give_back(id(any.ms + step, 0), random.below(9));
                }
            }
            0..=3 => {
                let (consumer, _) = group.see_consumer(consumer.as_bytes(), top as i64);
                let pending = Pending {
                    delivered_ms: top as i64,
                    deliveries: random.below(9),
                    consumer,
                };
                for step in 0..random.below(10) {
                    group.set_pending(id(any.ms + step, 0), pending);
                }
            }
            4 | 5 => {
                group.acknowledge(any);
            }
            6 if group.pending(any).is_some_and(|one| !one.is_returned()) => {
                group.deliver_again(any, 7);
            }
            _ => {
                if let Some(consumer) = group.find_consumer(consumer.as_bytes()) {
                    group.remove_consumer(consumer);
                }
            }
        }
    }
}

#[test]
fn what_was_at_the_cut_is_shown_whatever_changes() {
    for seed in 0..if cfg!(miri) { 5 } else { 1_000 } {
        let mut random = Random::new(seed);
        let limits = NodeLimits {
            bytes_max: [0, 40, 300, 4096][random.index(4)],
            entries_max: [0, 1, 3, 10, 100][random.index(5)],
        };
        let mut stream = Box::new(StreamValue::default());
        let mut top = 0;
        for _ in 0..random.below(8) {
            change(&mut stream, &mut random, &mut top, limits, 12);
            change_groups(&mut stream, &mut random, top, 6);
        }
        let expected = pieces(&stream);
        let mut shown = Vec::new();
        StreamValue::begin_cut(&mut stream);
        let ends_early = seed % 5 == 0;
        for step in 0..random.below(40) {
            let count = random.below(6);
            let is_undone = random.below(4) == 0;
            if is_undone {
                stream.keep_changes(None);
            }
            change(&mut stream, &mut random, &mut top, limits, count);
            change_groups(&mut stream, &mut random, top, count);
            if is_undone && let Some(journal) = stream.take_changes() {
                stream.undo(&journal);
            }
            if ends_early && step > 10 {
                StreamValue::forget_cut(&mut stream, 1);
            } else if random.below(3) == 0 {
                let budget = random.index(6);
                StreamValue::show_cut(&mut stream, budget, &mut |piece| shown.push(text_of(piece)));
            }
            stream.check_invariants();
        }
        let now = pieces(&stream);
        if ends_early {
            while StreamValue::forget_cut(&mut stream, 1) {}
        } else {
            while StreamValue::show_cut(&mut stream, 3, &mut |piece| shown.push(text_of(piece))) {}
            assert_eq!(shown, expected, "seed {seed}");
        }
        assert!(!stream.is_cut() && stream.groups.gone.is_none());
        assert!(stream.groups.by_name.values().all(|group| !group.is_cut()));
        assert_eq!(pieces(&stream), now, "seed {seed}: showing changes nothing");
    }
}
