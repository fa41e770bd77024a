//! Tests of `room`.

use super::super::Loader;
use super::super::progress::Progress;
use super::super::tests::{command, load_with, made, replay, service};
use super::super::{Due, Rules};
use super::*;
use crate::persist::rdb::{encode, opcode};

fn used(service: &Service) -> i64 {
    let of_shards = service.all_published.iter();
    of_shards.map(|one| one.used_bytes()).sum()
}

fn sets(keys: impl Iterator<Item = usize>) -> Vec<u8> {
    keys.flat_map(|key| command(&format!("SET key:{key:06} value")))
        .collect()
}

/// Loads commands from a file of unknown length, for which no capacity is reserved.
fn run(service: &'static Service, file: &[u8]) {
    let go_on = || false;
    let mut progress = Progress::begin(service, 0, &go_on);
    let loader = Loader::new(service).with_threads(1);
    loader.aof(&mut &file[..], &mut progress).expect("commands");
}

/// Returns the memory used by `keys` keys in tables that grow by themselves.
fn grown(keys: usize) -> i64 {
    let service = service(4);
    run(service, &sets(0..keys));
    used(service)
}

/// Returns a server whose commands were loaded up to the end of the sampled part, and its memory use just
/// before capacity for the rest was reserved.
fn sampled(
    first: usize,
    second: usize,
    read: u64,
    left: u64,
) -> (&'static Service, CapacityEstimator, i64) {
    let service = service(4);
    let mut counted = CapacityEstimator::new(service, 0, 1);
    counted.sample(SamplePoint::Begin);
    run(service, &sets(0..first));
    counted.sample(SamplePoint::Middle { read: read / 2 });
    run(service, &sets(first..first + second));
    let before = used(service);
    counted.sample(SamplePoint::End { read, left });
    (service, counted, before)
}

#[test]
fn room_is_made_for_as_many_keys_as_the_rest_of_the_file_brings() {
    let (service, counted, before) = sampled(500, 500, 35_000, 15 * 35_000);
    let made = used(service);
    assert!(made > before + 3_000 * 8, "{before}, then {made}");
    assert!(made < before + 8_000 * 8, "{before}, then {made}");
    run(service, &sets(1_000..4_000));
    let (filled, plain) = (used(service), grown(4_000));
    counted.end();
    assert_eq!(used(service), filled, "it was needed");
    assert!(filled < plain + plain / 20, "{filled} and {plain}");
}

#[test]
fn room_that_was_not_needed_is_given_back() {
    let (service, counted, _) = sampled(500, 500, 35_000, 15 * 35_000);
    counted.end();
    let (left, plain) = (used(service), grown(1_000));
    assert!(left < plain + plain / 20, "{left} and {plain}");
}

#[test]
fn room_that_another_database_got_is_given_back() {
    let (service, counted, _) = sampled(500, 500, 35_000, 15 * 35_000);
    run(service, &command("SWAPDB 0 1"));
    counted.end();
    let (left, plain) = (used(service), grown(1_000));
    assert!(left < plain + plain / 20, "{left} and {plain}");
}

#[test]
fn no_room_is_made_where_new_keys_become_fewer_or_the_file_is_too_short_for_them() {
    for (first, second, read, left) in [
        (500, 400, 35_000, 525_000),
        (1_000, 0, 35_000, 525_000),
        (500, 500, 100, 1_000),
        (500, 500, 35_000, 10_000),
        (10, 10, 700, 3_000),
    ] {
        let (service, _, before) = sampled(first, second, read, left);
        assert_eq!(used(service), before, "{first} and {second} of {left}");
    }
}

#[test]
fn a_file_takes_the_memory_of_what_it_leaves_whatever_it_began_with() {
    let updates = |new: usize, all: usize| sets((0..all).map(move |number| number % new));
    for (file, keys) in [
        (sets(0..20_000), 20_000),
        (updates(2_500, 20_000), 2_500),
        (updates(100, 20_000), 100),
    ] {
        let plain = grown(keys);
        for threads in [1, 2, 3] {
            let service = service(4);
            replay(service, &file, threads).expect("commands");
            let used = used(service);
            let more = used - plain;
            assert!(
                more < plain / 8,
                "{keys} keys, {threads} threads: {used} and {plain}"
            );
        }
    }
}

/// Returns a snapshot that claims `said` keys and has `expired` keys that expired long ago and `left` other
/// keys.
fn mostly_expired(said: u64, expired: usize, left: usize) -> Vec<u8> {
    let mut front = Vec::new();
    encode::resize_db(&mut front, said, 0);
    let due = [&[opcode::DEADLINE_MS][..], &1_000_u64.to_le_bytes()].concat();
    let keys = (0..expired + left).map(|number| match number {
        0 => &front[..],
        number if number < left => &[][..],
        _ => &due[..],
    });
    let value: &[u8] = &[0, 5, b'v', b'a', b'l', b'u', b'e'];
    let parts: Vec<(&[u8], &[u8])> = keys.map(|front| (front, value)).collect();
    made(&parts, 10)
}

const LEFT_OUT: Rules = Rules {
    due: Due::LeftOut,
    replaces: false,
};

#[test]
fn a_snapshot_takes_the_memory_of_what_is_left_of_it() {
    let used_by = |file: &[u8], threads| {
        let service = service(4);
        let loaded = load_with(service, file, LEFT_OUT, threads).expect("a snapshot");
        (loaded.keys, used(service))
    };
    let plain = used_by(&mostly_expired(2_000, 0, 2_000), 1);
    for (what, file) in [
        ("expired", mostly_expired(40_000, 38_000, 2_000)),
        ("never there", mostly_expired(400_000, 0, 2_000)),
    ] {
        for threads in [1, 2, 3] {
            let left = used_by(&file, threads);
            let (least, most) = (plain.1 - plain.1 / 8, plain.1 + plain.1 / 8);
            assert_eq!(left.0, plain.0, "{what}");
            assert!(
                (least..most).contains(&left.1),
                "{what}, {threads} threads: {left:?} and {plain:?}"
            );
        }
    }
}

#[test]
fn all_databases_of_a_snapshot_together_get_room_for_no_more_keys_than_it_can_have() {
    let peak = |databases: usize| {
        let mut front = Vec::new();
        for db in 0..databases {
            encode::select_db(&mut front, db);
            encode::resize_db(&mut front, u64::MAX, 0);
        }
        let value = [&[0, 0x80, 0, 1, 0, 0][..], &[b'x'; 65_536]].concat();
        let file = made(&[(&front, &value)], 10);
        let service = service(1);
        let peak = std::cell::Cell::new(0);
        let look = || {
            peak.set(peak.get().max(used(service)));
            false
        };
        let mut progress = Progress::begin(service, file.len() as u64, &look);
        let loader = Loader::new(service).with_threads(1);
        let loaded = loader.rdb(&mut &file[..], Vec::new(), LEFT_OUT, &mut progress);
        assert_eq!(loaded.expect("a snapshot").keys, 1);
        peak.get()
    };
    let (one, all) = (peak(1), peak(10));
    assert!(all < one + one / 4, "{all} and {one}");
}

#[test]
fn keys_are_counted_at_the_beginning_and_twice_in_the_first_part() {
    let mut schedule = Schedule::new(100, 64 * BYTES_MIN);
    let part = 64 * BYTES_MIN / SAMPLED_PART;
    assert!(matches!(schedule.due(100), Some(SamplePoint::Begin)));
    assert!(schedule.due(99 + part / 2).is_none());
    assert!(matches!(
        schedule.due(100 + part / 2),
        Some(SamplePoint::Middle { .. })
    ));
    assert!(schedule.due(99 + part).is_none());
    let mut late = Schedule::new(0, 64 * BYTES_MIN);
    assert!(matches!(late.due(0), Some(SamplePoint::Begin)));
    assert!(matches!(
        late.due(2 * part),
        Some(SamplePoint::Middle { .. })
    ));
    assert!(late.due(2 * part).is_none(), "within a transaction");
    assert!(matches!(late.due(3 * part), Some(SamplePoint::End { .. })));
    let Some(SamplePoint::End { read, left }) = schedule.due(110 + part) else {
        panic!("the part is over");
    };
    assert_eq!((read, left), (10 + part, 64 * BYTES_MIN - part - 10));
    assert!(schedule.due(u64::MAX).is_none());
    assert!(Schedule::new(0, 0).due(0).is_none(), "of unknown length");
}
