//! Large values that move with their slot: in pieces, and without a copy.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use super::{TAG, Writer, await_end, figure, is_over, migrate, owns, pair, valkey_beside};
use crate::clustered::options;
use crate::support::{self, Server, check, eventually};
use crate::wire::Raw;

/// Another slot of the first node, which stays there.
const STAYS: &str = "{c}";

/// Elements of each collection, and the bytes of one.
const ELEMENTS: usize = 40_000;
const ELEMENT_BYTES: usize = 100;

/// Most memory that a move may occupy: some slices, and the part of the log that is on its way.
const HELD_MAX: u64 = 4 << 20;

const KINDS: [&str; 5] = ["hash", "list", "set", "zset", "stream"];

fn element(number: usize) -> String {
    format!("{number:0width$}", width = ELEMENT_BYTES)
}

/// Makes a large collection of each type under both tags.
fn fill_large(server: &Server, elements: usize) {
    let mut client = server.raw();
    let numbers: Vec<usize> = (0..elements).collect();
    for tag in [TAG, STAYS] {
        for some in numbers.chunks(200) {
            let each = |head: &str, words: fn(usize) -> String| {
                let words: Vec<String> = some.iter().map(|number| words(*number)).collect();
                format!("{head} {}", words.join(" "))
            };
            let mut lines = vec![
                each(&format!("HSET {tag}hash"), |number| {
                    format!("f{number} {}", element(number))
                }),
                each(&format!("RPUSH {tag}list"), element),
                each(&format!("SADD {tag}set"), element),
                each(&format!("ZADD {tag}zset"), |number| {
                    format!("{number} {}", element(number))
                }),
            ];
            lines.extend(
                some.iter().map(|number| {
                    format!("XADD {tag}stream {}-1 f {}", number + 1, element(*number))
                }),
            );
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let replies = client.pipeline(&lines);
            assert!(replies.iter().all(|reply| !reply.is_error()));
        }
    }
}

/// Changes of all collections, each of which keeps some of the earlier elements.
fn changes(tag: &str, turn: usize) -> Vec<String> {
    let (some, other) = (turn * 37 % ELEMENTS, turn * 53 % ELEMENTS);
    vec![
        format!("HSET {tag}hash f{some} changed{turn} new{turn} {turn}"),
        format!("HDEL {tag}hash f{other}"),
        format!("LSET {tag}list {} changed{turn}", turn % 1000),
        format!("RPUSH {tag}list new{turn}"),
        format!("LPOP {tag}list"),
        format!("LINSERT {tag}list BEFORE {} between{turn}", element(900)),
        format!("SREM {tag}set {}", element(some)),
        format!("SADD {tag}set new{turn}"),
        format!("ZINCRBY {tag}zset 1.5 {}", element(some)),
        format!("ZREM {tag}zset {}", element(other)),
        format!("XADD {tag}stream 99999-{} f new", turn + 1),
        format!("XDEL {tag}stream {}-1", other + 1),
        format!("XTRIM {tag}stream MINID {}", turn / 4),
    ]
}

fn digests(server: &Server, tag: &str) -> Vec<String> {
    let mut client = server.raw();
    let digest = |kind: &&str| {
        client
            .call(&format!("DEBUG DIGEST-VALUE {tag}{kind}"))
            .show()
    };
    KINDS.iter().map(digest).collect()
}

/// Changes both sets of collections in the same way until it is stopped; returns the number of rounds.
fn change_both(moves: Raw, stays: Raw, stops: &AtomicBool, first: usize) -> usize {
    let mut writer = Writer {
        number: 0,
        client: moves,
        done: 0,
    };
    let mut stays = stays;
    let mut turn = first;
    while !stops.load(Relaxed) {
        for (there, here) in changes(TAG, turn).iter().zip(&changes(STAYS, turn)) {
            let words: Vec<&str> = there.split(' ').collect();
            let moved = writer.run(&words);
            assert_eq!(moved.show(), stays.call(here).show(), "{there}");
        }
        turn += 1;
    }
    turn
}

#[test]
fn large_collections_go_by_the_piece_while_they_change() {
    if support::is_stand_in() {
        return;
    }
    let (one, two) = pair(&options());
    fill_large(&one, ELEMENTS);
    let mut turn = 0;
    for (from, to) in [(&one, &two), (&two, &one)] {
        let (mut held, stops) = (0, AtomicBool::new(false));
        turn = thread::scope(|scope| {
            let (moves, stays) = (from.raw(), one.raw());
            let stopping = &stops;
            let changing = scope.spawn(move || change_both(moves, stays, stopping, turn));
            migrate(from, to);
            while !is_over(from) {
                held = held.max(figure(from, "mem_cluster_slot_export"));
            }
            stops.store(true, Relaxed);
            changing.join().expect("replies are equal")
        });
        await_end(from, "success");
        assert!(turn > 0, "it has changed");
        assert!(0 < held && held < HELD_MAX, "{held} bytes were held");
        assert_eq!(digests(to, TAG), digests(&one, STAYS), "after {turn} turns");
    }
}

#[test]
fn snapshots_and_moves_of_large_collections_wait_for_each_other() {
    if support::is_stand_in() {
        return;
    }
    let (one, two) = pair(&options());
    fill_large(&one, ELEMENTS / 4);
    let expected = digests(&one, STAYS);
    for (from, to) in [(&one, &two), (&two, &one)] {
        let mut client = from.raw();
        // The move meets a snapshot, and a snapshot the move.
        check(&mut client, "CONFIG SET rdb-key-save-delay 20000", "OK");
        assert!(!client.call("BGSAVE").is_error());
        migrate(from, to);
        check(&mut client, "CONFIG SET rdb-key-save-delay 0", "OK");
        let mut saves = 1;
        while !is_over(from) {
            if !client.call("BGSAVE").is_error() {
                saves += 1;
            }
        }
        await_end(from, "success");
        eventually("all snapshots end well", || {
            figure(from, "rdb_saves") == saves
        });
        assert_eq!(digests(to, TAG), expected);
    }
}

#[test]
fn a_long_string_goes_without_a_copy_at_its_source() {
    if support::is_stand_in() {
        return;
    }
    let (one, two) = pair(&options());
    let bytes: u64 = 100 << 20;
    let line = format!("SETRANGE {TAG}string {} x", bytes - 1);
    assert_eq!(one.raw().call(&line).integer() as u64, bytes);
    let digest = |server: &Server| {
        let mut client = server.raw();
        client
            .call(&format!("DEBUG DIGEST-VALUE {TAG}string"))
            .show()
    };
    let before = digest(&one);
    let used = figure(&one, "used_memory");
    migrate(&one, &two);
    let mut most = used;
    while !is_over(&one) {
        most = most.max(figure(&one, "used_memory"));
    }
    await_end(&one, "success");
    assert!(most < used + bytes / 4, "{used} bytes, then {most}");
    assert_eq!(digest(&two), before);
    // A move that is cancelled while the string is on its way leaves it where it is.
    eventually("the key goes", || super::count(&one) == 0);
    migrate(&two, &one);
    eventually("some of it is on its way", || {
        figure(&two, "total_net_cluster_slot_export_bytes") > 1 << 20 || is_over(&two)
    });
    let cancelled = two.raw().call("CLUSTER CANCELSLOTMIGRATIONS").text();
    eventually("it ends", || is_over(&two));
    let owner = if cancelled == "OK" && owns(&two) {
        &two
    } else {
        &one
    };
    assert_eq!(digest(owner), before);
}

#[test]
fn large_values_go_to_valkey_and_back() {
    let Some((ours, valkey)) = valkey_beside(&[]) else {
        return;
    };
    fill_large(&ours, ELEMENTS / 10);
    let long = format!("SETRANGE {TAG}string 3000000 end");
    assert!(!ours.raw().call(&long).is_error());
    let expected = digests(&ours, STAYS);
    for (from, to) in [(&ours, &valkey), (&valkey, &ours)] {
        super::move_over(from, to);
        eventually("it has taken them", || owns(to));
        let said = to.raw().call(&format!("STRLEN {TAG}string"));
        assert_eq!(said.integer(), 3_000_003);
        let mut lengths = to.raw();
        for (command, kind) in [
            ("HLEN", "hash"),
            ("LLEN", "list"),
            ("SCARD", "set"),
            ("ZCARD", "zset"),
            ("XLEN", "stream"),
        ] {
            let said = lengths.call(&format!("{command} {TAG}{kind}"));
            assert_eq!(said.integer(), (ELEMENTS / 10) as i64, "{kind}");
        }
        eventually("the keys go", || super::count(from) == 0);
    }
    assert_eq!(digests(&ours, TAG), expected);
}
