//! Tags of keys, their stale windows, their blessings and the fences of locks move with their slot.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{TAG, await_end, count, migrate, move_over, pair, start, valkey_beside};
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
        format!("BLESS SET {TAG}list NO-EVICT"),
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
    raw.call(&format!("SUNIONSTORE {TAG}pinned {TAG}large"));
    check(
        &mut raw,
        &format!("BLESS SET {TAG}pinned NO-EVICT"),
        "(integer) 1",
    );
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
    check(&mut raw, &format!("SCARD {TAG}pinned"), "(integer) 20000");
    for (key, state) in [
        ("list", "1) \"NO-EVICT\""),
        ("pinned", "1) \"NO-EVICT\""),
        ("plain", "(empty array)"),
    ] {
        check(&mut raw, &format!("BLESS GET {TAG}{key}"), state);
    }
    check(&mut raw, &format!("EXISTS {TAG}void"), "(integer) 0");
    check(&mut raw, "TAG INVALIDATE red", "(integer) 2");
    check(
        &mut raw,
        &format!("EXISTS {TAG}fresh {TAG}list {TAG}plain"),
        "(integer) 1",
    );
}

/// Takes a lock for some milliseconds; returns its fence.
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
    // A lock that changes its owner while the slot moves, and a value that the move does not reach soon.
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
    // Its present owner keeps its fence; the next owner gets a larger one than there ever was.
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

/// The source has issued fences that are ahead of the target's clock.
#[test]
fn fences_grow_on_where_the_clock_of_the_other_node_is_behind() {
    if support::is_stand_in() {
        return;
    }
    const HALF_A_DAY: Duration = Duration::from_secs(12 * 60 * 60);
    let since = (SystemTime::now() + HALF_A_DAY).duration_since(UNIX_EPOCH);
    let ahead = since.expect("after 1970").as_micros() as i64;
    let dir = tempfile::tempdir().expect("a temporary folder");
    let files = dir.path().join("appendonlydir");
    fs::create_dir(&files).expect("a folder");
    let manifest = "file appendonly.aof.1.incr.aof seq 1 type i\n";
    fs::write(files.join("appendonly.aof.manifest"), manifest).expect("written");
    let mut log = encode(&["SELECT", "0"]);
    let number = ahead.to_string();
    log.extend(encode(&[
        "COMMAND",
        "INFO",
        "basalt:note",
        "FENCE",
        &number,
    ]));
    fs::write(files.join("appendonly.aof.1.incr.aof"), log).expect("written");
    let options = options().with("dir", &dir.path().display().to_string());
    let one = start_loaded(&options.with("appendonly", "yes"));
    let other = start();
    unite(&[&one, &other]);
    let fences = move_locks(&one, &other, 0);
    assert!(fences.1 > ahead, "{fences:?}");
    check_moved(&other, fences);
}

/// Keys that have been sent lose tags, by more words than a script can take, and go by their tags, while the slot goes.
#[test]
fn tags_that_change_while_a_slot_moves_are_the_same_at_the_other_node() {
    const MANY: usize = 30_000;
    if support::is_stand_in() {
        return;
    }
    let (one, other) = pair(&options());
    let mut raw = one.raw();
    let tags = |name: &str, count: usize| -> Vec<String> {
        (0..count).map(|number| format!("{name}{number}")).collect()
    };
    let words = |head: &[&str], tags: Vec<String>| -> Vec<String> {
        let head = head.iter().map(|word| (*word).to_owned());
        head.chain(tags).collect()
    };
    let keys = tags("k", MANY);
    for some in keys.chunks(500) {
        let lines: Vec<String> = some
            .iter()
            .map(|key| format!("SET {TAG}{key} v TAGS 1 all"))
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        raw.pipeline(&lines);
    }
    let tagged = tags("tagged", 20);
    for key in &tagged {
        let key = format!("{TAG}{key}");
        check(&mut raw, &format!("SET {key} v"), "OK");
        let added = raw.command(&words(&["TAG", "ADD", &key, "kept"], tags("y", 253)));
        assert_eq!(added.integer(), 254);
    }
    // A slot that stays at the other node.
    let mut theirs = other.raw();
    check(&mut theirs, "SET {a}theirs v TAGS 1 all", "OK");
    migrate(&one, &other);
    check(&mut raw, "TAG INVALIDATE all", &format!("(integer) {MANY}"));
    let removed: Vec<bool> = tagged
        .iter()
        .map(|key| {
            let key = format!("{TAG}{key}");
            let removed = raw.command(&words(&["TAG", "REM", &key], tags("y", 50_000)));
            !removed.is_error()
        })
        .collect();
    await_end(&one, "success");
    let mut raw = other.raw();
    for (key, was_removed) in tagged.iter().zip(&removed) {
        let left = raw.call(&format!("TAG OF {TAG}{key}")).items().len();
        assert_eq!(
            left,
            if *was_removed { 1 } else { 254 },
            "{key}: {removed:?}"
        );
    }
    assert_eq!(count(&other), 20);
    check(&mut raw, "TAG OF {a}theirs", "1) \"all\"");
    check(&mut raw, "GET {a}theirs", "\"v\"");
}

/// Valkey accepts notes without an error, and ignores their fences and tags.
#[test]
fn slots_with_notes_move_to_valkey_and_back() {
    let Some((ours, valkey)) = valkey_beside(&[]) else {
        return;
    };
    let mut raw = ours.raw();
    for round in 0..3 {
        let key = format!("{TAG}tagged:{round}");
        check(&mut raw, &format!("SET {key} v TAGS 2 a b"), "OK");
        lock(&mut raw, &format!("held:{round}"), "me");
    }
    let filler: Vec<String> = (0..20_000).map(|number| format!("m{number}")).collect();
    for some in filler.chunks(1_000) {
        raw.call(&format!("SADD {TAG}large {}", some.join(" ")));
    }
    migrate(&ours, &valkey);
    for round in 0..200 {
        let lines = [
            "MULTI".to_owned(),
            format!("SET {TAG}during:{round} v TAGS 1 a"),
            format!("LOCK {TAG}lock:{round} me 600000"),
            format!("TAG REM {TAG}tagged:0 a"),
            "EXEC".to_owned(),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        if raw.pipeline(&lines).iter().any(|reply| reply.is_error()) {
            break;
        }
    }
    await_end(&ours, "success");
    let mut theirs = valkey.raw();
    check(&mut theirs, &format!("GET {TAG}tagged:0"), "\"v\"");
    check(&mut theirs, &format!("HGET {TAG}held:1 me"), "\"1\"");
    check(&mut theirs, &format!("SCARD {TAG}large"), "(integer) 20000");
    let figures = theirs.call("INFO everything").body();
    assert!(figures.contains("unexpected_error_replies:0"), "{figures}");
    move_over(&valkey, &ours);
    check(&mut ours.raw(), &format!("GET {TAG}tagged:0"), "\"v\"");
}
