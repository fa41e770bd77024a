//! What tags keys have, for how long they count as stale, and which fences locks have, goes with their slot.

use std::fs;

use super::{TAG, await_end, migrate, pair, start};
use crate::clustered::{options, unite};
use crate::support::{self, Server, check, start_loaded};
use crate::wire::{Raw, encode};

#[test]
fn tags_and_stale_windows_go_with_their_slot() {
    if support::is_stand_in() {
        return;
    }
    let (one, other) = pair(&options());
    let mut raw = one.raw();
    for line in [
        format!("SET {TAG}fresh v PX 1 STALE 500000 TAGS 2 red blue"),
        format!("SET {TAG}plain v"),
        format!("RPUSH {TAG}list a b c"),
        format!("TAG ADD {TAG}list red"),
        format!("SET {TAG}void v TAGS 1 gone"),
    ] {
        let reply = raw.call(&line);
        assert!(!reply.is_error(), "{line}: {}", reply.show());
    }
    // A large one, which otherwise goes by the piece.
    let members: Vec<String> = (0..20_000).map(|number| format!("m{number}")).collect();
    for some in members.chunks(1_000) {
        raw.call(&format!("SADD {TAG}large {}", some.join(" ")));
    }
    check(&mut raw, &format!("TAG ADD {TAG}large blue"), "(integer) 1");
    check(&mut raw, "TAG INVALIDATE gone", "(integer) 1");
    migrate(&one, &other);
    await_end(&one, "success");
    let mut raw = other.raw();
    let tags = |raw: &mut crate::wire::Raw, key: &str| {
        let tags = raw.call(&format!("TAG OF {TAG}{key}"));
        let mut tags: Vec<String> = tags.items().iter().map(|tag| tag.text()).collect();
        tags.sort();
        tags.join(" ")
    };
    assert_eq!(tags(&mut raw, "fresh"), "blue red");
    assert_eq!(tags(&mut raw, "list"), "red");
    assert_eq!(tags(&mut raw, "plain"), "");
    assert_eq!(tags(&mut raw, "large"), "blue");
    let state = raw.call(&format!("LGET {TAG}fresh LEASE 1000"));
    assert_eq!(state.items()[1].text(), "stale", "{}", state.show());
    check(&mut raw, &format!("SCARD {TAG}large"), "(integer) 20000");
    check(&mut raw, &format!("EXISTS {TAG}void"), "(integer) 0");
    check(&mut raw, "TAG INVALIDATE red", "(integer) 2");
    check(
        &mut raw,
        &format!("EXISTS {TAG}fresh {TAG}list {TAG}plain"),
        "(integer) 1",
    );
}

/// A lock with so many milliseconds to live; its fence.
fn lock(raw: &mut Raw, key: &str, owner: &str) -> i64 {
    let reply = raw.call(&format!("LOCK {TAG}{key} {owner} 600000"));
    assert!(!reply.is_error() && !reply.is_nil(), "{}", reply.show());
    reply.items()[0].integer()
}

/// Takes locks before the move, of which one changes hands so often while that is under way, and releases the last.
fn move_locks(one: &Server, other: &Server, changes: usize) -> (i64, i64, i64) {
    let mut raw = one.raw();
    let (held, late) = (lock(&mut raw, "held", "me"), lock(&mut raw, "late", "me"));
    let released = lock(&mut raw, "released", "me");
    check(&mut raw, &format!("UNLOCK {TAG}released me"), "(integer) 0");
    // One that changes hands while the slot goes, and a value that is not reached soon.
    let filler: Vec<String> = (0..20_000).map(|number| format!("m{number}")).collect();
    for some in filler.chunks(1_000) {
        raw.call(&format!("SADD {TAG}large {}", some.join(" ")));
    }
    migrate(one, other);
    let mut last = late;
    for round in 0..changes {
        let reply = raw.call(&format!(
            "UNLOCK {TAG}late {}",
            if round == 0 { "me" } else { "she" }
        ));
        if reply.show().contains("MOVED") {
            break;
        }
        let reply = raw.call(&format!("LOCK {TAG}late she 600000"));
        if reply.show().contains("MOVED") {
            break;
        }
        last = reply.items()[0].integer();
    }
    await_end(one, "success");
    (held, released, last)
}

fn check_moved(other: &Server, (held, released, last): (i64, i64, i64)) {
    let mut raw = other.raw();
    let info = raw.call(&format!("LOCKINFO {TAG}held"));
    assert!(info.show().contains(&held.to_string()), "{}", info.show());
    let write = |raw: &mut Raw, fence: i64| {
        let line = format!("SET {TAG}row v FENCE {TAG}held {fence}");
        raw.call(&line).show()
    };
    assert_eq!(write(&mut raw, held), "OK");
    assert_eq!(write(&mut raw, held + 1), "(nil)");
    // The same owner has the same fence; who comes behind it has a larger one than there ever was.
    assert_eq!(lock(&mut raw, "held", "me"), held);
    let next = lock(&mut raw, "released", "she");
    assert!(
        next > released && next > last && next > held,
        "{next} after {released}, {last}"
    );
    let exists = raw.call(&format!("EXISTS {TAG}late")).integer();
    if exists == 1 {
        let line = format!("SET {TAG}row v FENCE {TAG}late {last}");
        check(&mut raw, &line, "OK");
    }
}

#[test]
fn fences_go_with_their_slot_and_grow_on() {
    if support::is_stand_in() {
        return;
    }
    let (one, other) = pair(&options());
    let fences = move_locks(&one, &other, 200);
    check_moved(&other, fences);
}

/// The node that gives has drawn fences that the clock of the other one is far from.
#[test]
fn fences_grow_on_where_the_clock_of_the_other_node_is_behind() {
    if support::is_stand_in() {
        return;
    }
    const AHEAD: i64 = 4_000_000_000_000_000;
    let dir = tempfile::tempdir().expect("a temporary folder");
    let files = dir.path().join("appendonlydir");
    fs::create_dir(&files).expect("a folder");
    let manifest = "file appendonly.aof.1.incr.aof seq 1 type i\n";
    fs::write(files.join("appendonly.aof.manifest"), manifest).expect("written");
    let note = format!("basalt:fence:{AHEAD}:0000000000000000");
    let mut log = encode(&["SELECT", "0"]);
    log.extend(encode(&["HDEL", "", &note]));
    fs::write(files.join("appendonly.aof.1.incr.aof"), log).expect("written");
    let options = options().with("dir", &dir.path().display().to_string());
    let one = start_loaded(&options.with("appendonly", "yes"));
    let other = start();
    unite(&[&one, &other]);
    let fences = move_locks(&one, &other, 0);
    assert!(fences.1 > AHEAD, "{fences:?}");
    check_moved(&other, fences);
}
