//! A request that waits for its shard runs at the time when it gets the shard: deadlines count from then, and
//! keys that expired meanwhile are gone.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Hold, SHARDS, must_reply, tag};
use crate::support::{Options, Server, check, is_stand_in};
use crate::wire::{Raw, encode, split};

/// For how long the shard is held at least.
const HELD: Duration = Duration::from_millis(1_200);

fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("a clock behind 1970").as_millis() as i64
}

/// Sends requests, each by a client of its own, while the shard of a key is held; the replies, and a Unix time (ms) at
/// which the shard was still held.
fn replies_behind_a_long_hold(server: &Server, key: &str, lines: &[&str]) -> (Vec<String>, i64) {
    let send_all = || -> Vec<Raw> {
        let send = |line: &&str| {
            let mut raw = server.raw();
            raw.send(&encode(&split(line)));
            raw
        };
        lines.iter().map(send).collect()
    };
    let (mut clients, held_until_ms);
    if is_stand_in() {
        // It replies to no client, not even to a kill of the function, before the deadline has passed.
        let mut raw = server.raw();
        held_until_ms = unix_ms() + HELD.as_millis() as i64;
        raw.send(format!("DEBUG SLEEP {}\r\n", HELD.as_secs_f64()).as_bytes());
        clients = send_all();
        must_reply(&mut raw, "DEBUG SLEEP");
    } else {
        let hold = Hold::begin(server, key);
        clients = send_all();
        std::thread::sleep(HELD);
        held_until_ms = unix_ms();
        hold.end();
    }
    let replies = clients.iter_mut().zip(lines);
    let replies = replies
        .map(|(raw, line)| must_reply(raw, line).show())
        .collect();
    (replies, held_until_ms)
}

fn server() -> Server {
    let options = Options::shards(SHARDS).threads(2);
    Server::start(&options.with("busy-reply-threshold", "60000"))
}

#[test]
fn a_deadline_counts_from_when_the_request_ran() {
    // The clock may be read somewhat more coarsely.
    const SLACK_MS: i64 = 50;
    const TTL_MS: i64 = 100_000;
    let server = server();
    let mut raw = server.raw();
    let tag = tag(5);
    for name in ["expire", "getex"] {
        check(&mut raw, &format!("SET {tag}{name} v"), "OK");
    }
    let ways = [
        ("set", format!("SET {tag}set v PX {TTL_MS}")),
        ("psetex", format!("PSETEX {tag}psetex {TTL_MS} v")),
        ("expire", format!("PEXPIRE {tag}expire {TTL_MS}")),
        ("getex", format!("GETEX {tag}getex PX {TTL_MS}")),
        (
            "both",
            format!("EVAL \"return redis.call('set', KEYS[1], 'v', 'px', {TTL_MS})\" 1 {tag}both"),
        ),
    ];
    let lines: Vec<&str> = ways.iter().map(|(_, line)| line.as_str()).collect();
    let (_, held_until_ms) = replies_behind_a_long_hold(&server, &format!("{tag}held"), &lines);
    for (name, line) in &ways {
        let at_ms = raw.call(&format!("PEXPIRETIME {tag}{name}")).integer();
        let least_ms = held_until_ms + TTL_MS - SLACK_MS;
        assert!(
            at_ms >= least_ms,
            "{line}: ends {} ms too soon, as if it had run when it was sent",
            least_ms - at_ms
        );
    }
}

#[test]
fn what_expired_while_a_request_waited_is_gone_for_it() {
    let server = server();
    let mut raw = server.raw();
    let tag = tag(5);
    check(&mut raw, "DEBUG SET-ACTIVE-EXPIRE 0", "OK");
    let names = ["get", "nx", "exists", "append", "rename", "mget"];
    for name in names {
        check(&mut raw, &format!("SET {tag}{name} old PX 400"), "OK");
    }
    let ways = [
        (format!("GET {tag}get"), "(nil)"),
        (format!("SET {tag}nx new NX"), "OK"),
        (format!("EXISTS {tag}exists"), "(integer) 0"),
        (format!("APPEND {tag}append new"), "(integer) 3"),
        (
            format!("RENAME {tag}rename {tag}renamed"),
            "(error) ERR no such key",
        ),
        (format!("MGET {tag}mget"), "1) (nil)"),
    ];
    let lines: Vec<&str> = ways.iter().map(|(line, _)| line.as_str()).collect();
    let (replies, _) = replies_behind_a_long_hold(&server, &format!("{tag}held"), &lines);
    let expected: Vec<&str> = ways.iter().map(|(_, reply)| *reply).collect();
    assert_eq!(replies, expected, "{lines:?}");
}

/// The wait is for several shards, one of which is locked.
#[test]
fn what_waits_for_several_shards_runs_when_it_has_them() {
    let server = server();
    let mut raw = server.raw();
    let (free, held) = (tag(1), tag(40));
    check(&mut raw, "DEBUG SET-ACTIVE-EXPIRE 0", "OK");
    for key in [format!("{free}old"), format!("{held}old")] {
        check(&mut raw, &format!("SET {key} old PX 400"), "OK");
    }
    let lines = [
        format!("MGET {free}old {held}old"),
        format!("MSETNX {free}old new {held}old new"),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let (replies, _) = replies_behind_a_long_hold(&server, &format!("{held}held"), &lines[..1]);
    assert_eq!(replies, ["1) (nil)\n2) (nil)"]);
    for key in [format!("{free}old"), format!("{held}old")] {
        check(&mut raw, &format!("SET {key} old PX 400"), "OK");
    }
    let (replies, _) = replies_behind_a_long_hold(&server, &format!("{held}held"), &lines[1..]);
    assert_eq!(replies, ["(integer) 1"]);
}
