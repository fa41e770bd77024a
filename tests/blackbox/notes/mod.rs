//! Notes in the log of commands, for servers of this kind: fences, tags and stale windows. No client can
//! cause a note to be logged, whatever it sends; every note reaches files and replicas; and an error of a
//! replayed command is seen.

mod errors;
mod generated;

use std::fs;
use std::path::Path;

use crate::replicated::{follow, settle};
use crate::support::{Options, Server, check, is_stand_in, rewrite, start_loaded};
use crate::wire::{Raw, Value};

fn options(dir: &Path) -> Options {
    Options::shards(4)
        .with("dir", &dir.display().to_string())
        .with("appendonly", "yes")
        .with("appendfsync", "always")
        .with("repl-diskless-sync-delay", "0")
}

/// Takes a free lock and releases it again; returns its fence, which has to be near the clock.
fn next_fence(raw: &mut Raw) -> i64 {
    let reply = raw.call("LOCK {b}next probe 100000");
    let fence = match &reply {
        Value::Array(items) => items[0].integer(),
        other => panic!("{}", other.show()),
    };
    let seconds = raw.call("TIME").items()[0].text();
    let now_us = seconds.parse::<i64>().expect("a number") * 1_000_000;
    const MINUTE_US: i64 = 60_000_000;
    assert!(
        (now_us - 10 * MINUTE_US..now_us + MINUTE_US).contains(&fence),
        "{fence} at {now_us}"
    );
    check(
        raw,
        &format!("SET {{b}}row v FENCE {{b}}next {fence}"),
        "OK",
    );
    check(raw, "UNLOCK {b}next probe", "(integer) 0");
    fence
}

const TOO_FAR: &str = "9223372036854775806";
const OLD_FORM: &str = "basalt:fence:9223372036854775807:0000000000000000";

/// Sends requests with the forms of notes, present and past, as a user who may write one hash, and as others.
fn send_forms(server: &Server) {
    let mut raw = server.raw();
    check(
        &mut raw,
        "ACL SETUSER low on nopass +hset +hdel ~{b}a*",
        "OK",
    );
    let mut low = server.raw();
    check(&mut low, "AUTH low any", "OK");
    let line = format!("HSET {{b}}a f v g w {OLD_FORM} x");
    check(&mut low, &line, "(integer) 3");
    check(
        &mut low,
        &format!("HDEL {{b}}a {OLD_FORM} f"),
        "(integer) 2",
    );
    let note = format!("COMMAND INFO basalt:note FENCE {TOO_FAR}");
    let of_lock = format!("{note} {{b}}held 0123456789abcdef");
    let tags = "COMMAND INFO basalt:note TAG ADD {b}tagged forged";
    for line in [
        note.clone(),
        of_lock.clone(),
        tags.to_owned(),
        "COMMAND INFO basalt:note TAG INVALIDATE own".to_owned(),
        "COMMAND INFO basalt:note LSTALE {b}tagged 1".to_owned(),
        format!("EVAL \"return redis.call(unpack(ARGV))\" 0 {of_lock}"),
        format!("EVAL \"return redis.call(unpack(ARGV))\" 0 {tags}"),
    ] {
        let reply = raw.call(&line);
        assert!(matches!(reply, Value::Array(_)), "{line}: {}", reply.show());
    }
    for line in ["MULTI", "INCR {b}n", &of_lock, tags, "INCR {b}n", "EXEC"] {
        let reply = raw.call(line);
        assert!(!reply.is_error(), "{line}: {}", reply.show());
    }
    for command in [
        format!("FENCE {TOO_FAR}"),
        format!("EVAL \"return redis.call('FENCE', ARGV[1])\" 0 {TOO_FAR}"),
        format!("DEBUG REPLICATE {note}"),
    ] {
        assert!(raw.call(&command).is_error(), "{command}");
    }
    check(&mut raw, "COMMAND INFO fence", "1) (nil)");
    check(&mut raw, "COMMAND DOCS fence", "(empty array)");
    let listed = raw.call("COMMAND LIST").show();
    assert!(!listed.contains("\"fence\""), "{listed}");
}

/// Checks that the state that only the server may change is as [`prepare`] made it.
fn check_kept(raw: &mut Raw, fence: i64) {
    let line = format!("SET {{b}}row v FENCE {{b}}held {fence}");
    check(raw, &line, "OK");
    check(raw, "TAG OF {b}tagged", "1) \"own\"");
    next_fence(raw);
}

fn prepare(raw: &mut Raw) -> i64 {
    check(raw, "SET {b}tagged v TAGS 1 own", "OK");
    let held = raw.call("LOCK {b}held me 100000000");
    held.items()[0].integer()
}

#[test]
fn what_clients_send_in_the_form_of_a_note_changes_nothing() {
    if is_stand_in() {
        return;
    }
    for preamble in ["yes", "no"] {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let options = options(dir.path()).with("aof-use-rdb-preamble", preamble);
        let server = start_loaded(&options);
        let replica = Server::start(&Options::shards(2));
        let fence = {
            let mut raw = server.raw();
            follow(&replica, &server);
            let fence = prepare(&mut raw);
            send_forms(&server);
            settle(&[&server, &replica]);
            check_kept(&mut raw, fence);
            settle(&[&server, &replica]);
            let mut raw = replica.raw();
            check(&mut raw, "REPLICAOF NO ONE", "OK");
            check_kept(&mut raw, fence);
            fence
        };
        drop(server);
        let server = start_loaded(&options);
        let mut raw = server.raw();
        check_kept(&mut raw, fence);
        rewrite(&mut raw);
        drop((raw, server));
        check_kept(&mut start_loaded(&options).raw(), fence);
    }
}

fn call_all<'l>(raw: &mut Raw, lines: impl Iterator<Item = String> + 'l) {
    let lines: Vec<String> = lines.collect();
    for some in lines.chunks(500) {
        let some: Vec<&str> = some.iter().map(String::as_str).collect();
        for reply in raw.pipeline(&some) {
            assert!(!reply.is_error(), "{}", reply.show());
        }
    }
}

fn words(head: &[&str], many: impl Iterator<Item = String>) -> Vec<String> {
    head.iter()
        .map(|word| (*word).to_owned())
        .chain(many)
        .collect()
}

const KEYS: usize = 6_000;
const TAGS: usize = 10_000;
/// Number of tags of each of the other keys.
const TAGS_EACH: usize = 200;

/// Creates keys with ten thousand tags, and many keys with one.
fn tag_keys(raw: &mut Raw) {
    let tags_of = |key: usize| (0..TAGS_EACH).map(move |at| format!("x{}", key * TAGS_EACH + at));
    call_all(
        raw,
        (0..TAGS / TAGS_EACH).map(|key| {
            let tags: Vec<String> = tags_of(key).collect();
            format!("SET other:{key} v TAGS 200 {}", tags.join(" "))
        }),
    );
    call_all(
        raw,
        (0..KEYS).map(|key| format!("SET key:{key} v TAGS 1 all")),
    );
}

/// Invalidates all of these tags by one command. Most keys of the last one are deleted in the background
/// afterwards.
fn invalidate(raw: &mut Raw) {
    let tags = (0..TAGS).map(|number| format!("x{number}"));
    let tags = tags.chain(["all".to_owned()]);
    let reply = raw.command(&words(&["TAG", "INVALIDATE"], tags));
    assert_eq!(reply.integer(), (KEYS + TAGS / TAGS_EACH) as i64);
}

fn check_invalidated(raw: &mut Raw) {
    check(raw, "KEYS *", "1) \"kept\"");
    check(raw, "TAG COUNT all", "(integer) 0");
    check(raw, "TAG COUNT x9999", "(integer) 0");
    check(raw, "TAG OF kept", "1) \"kept\"");
}

#[test]
fn ten_thousand_tags_are_invalidated_in_files_and_replicas_too() {
    if is_stand_in() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = options(dir.path());
    let mut server = start_loaded(&options);
    let mut raw = server.raw();
    tag_keys(&mut raw);
    check(&mut raw, "SET kept v TAGS 1 kept", "OK");
    invalidate(&mut raw);
    server.signal("KILL");
    server.wait_for_exit();
    let server = start_loaded(&options);
    let mut raw = server.raw();
    check_invalidated(&mut raw);
    let replica = Server::start(&Options::shards(2));
    follow(&replica, &server);
    tag_keys(&mut raw);
    settle(&[&server, &replica]);
    invalidate(&mut raw);
    settle(&[&server, &replica]);
    check_invalidated(&mut replica.raw());
}

#[test]
fn fifty_thousand_tags_are_taken_away_in_files_and_replicas_too() {
    if is_stand_in() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = options(dir.path());
    let server = start_loaded(&options);
    let replica = Server::start(&Options::shards(2));
    let mut raw = server.raw();
    follow(&replica, &server);
    let tags = |count: usize| (0..count).map(|number| format!("y{number}"));
    check(&mut raw, "SET k v", "OK");
    let reply = raw.command(&words(&["TAG", "ADD", "k", "kept"], tags(253)));
    assert_eq!(reply.integer(), 254);
    settle(&[&server, &replica]);
    assert_eq!(replica.raw().call("TAG OF k").items().len(), 254);
    let reply = raw.command(&words(&["TAG", "REM", "k"], tags(50_000)));
    assert_eq!(reply.integer(), 253);
    check(&mut raw, "TAG OF k", "1) \"kept\"");
    settle(&[&server, &replica]);
    check(&mut replica.raw(), "TAG OF k", "1) \"kept\"");
    drop((raw, server));
    let server = start_loaded(&options);
    check(&mut server.raw(), "TAG OF k", "1) \"kept\"");
}

/// Writes an append-only file of one increment.
fn write_file(dir: &Path, log: &[u8]) {
    let files = dir.join("appendonlydir");
    fs::create_dir(&files).expect("a folder");
    let manifest = "file appendonly.aof.1.incr.aof seq 1 type i\n";
    fs::write(files.join("appendonly.aof.manifest"), manifest).expect("written");
    fs::write(files.join("appendonly.aof.1.incr.aof"), log).expect("written");
}
