//! ZMOVE, BZMOVE and ZMOVEMEMBER over sockets: waiting clients, replicas, files, rights and slots.

use crate::replicated::{follow, settle};
use crate::support::{self, Options, Oracle, Server, blocked, check, start_loaded};
use crate::wire::Raw;

#[test]
fn bzmove_waits_for_the_source_and_moves_what_there_is() {
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        let mut first = blocked(server, &mut other, "BZMOVE from to MIN 0 COUNT 2");
        let mut second = blocked(server, &mut other, "BZMOVE from rest MAX 0");
        check(&mut other, "ZADD to 9 x", "(integer) 1");
        check(&mut other, "ZADD from 1 a", "(integer) 1");
        assert_eq!(first.read().show(), "1) 1) \"a\"\n   2) \"1\"");
        check(&mut other, "EXISTS from", "(integer) 0");
        check(&mut other, "ZADD from 2 b 3 c", "(integer) 2");
        assert_eq!(second.read().show(), "1) 1) \"c\"\n   2) \"3\"");
        check(
            &mut other,
            "ZRANGE to 0 -1 WITHSCORES",
            "1) \"a\"\n2) \"1\"\n3) \"x\"\n4) \"9\"",
        );
        check(&mut other, "ZRANGE from 0 -1", "1) \"b\"");
        check(&mut other, "BZMOVE none to MIN 0.05", "(nil array)");
        check(&mut other, "BZMOVE none none MIN 0", "(nil array)");
        check(&mut other, "SET text v", "OK");
        // The destination is looked at when there is something to move.
        let mut third = blocked(server, &mut other, "BZMOVE late text MIN 0");
        check(&mut other, "ZADD late 1 a", "(integer) 1");
        let wrong = "(error) WRONGTYPE Operation against a key holding the wrong kind of value";
        assert_eq!(third.read().show(), wrong);
        check(&mut other, "ZCARD late", "(integer) 1");
        // Moves chain: what arrives in one set serves those who wait for it.
        let mut chained = blocked(server, &mut other, "BZMOVE middle end MIN 0");
        check(
            &mut other,
            "ZMOVEMEMBER late middle MEMBERS 1 a",
            "1) 1) \"a\"\n   2) \"1\"",
        );
        assert_eq!(chained.read().show(), "1) 1) \"a\"\n   2) \"1\"");
        check(&mut other, "ZSCORE end a", "\"1\"");
    });
}

#[test]
fn units_move_members_and_never_wait() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "ZADD a 1 x 2 y", "(integer) 2");
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "BZMOVE a b MIN 0", "QUEUED");
        check(&mut raw, "BZMOVE none b MIN 0", "QUEUED");
        check(&mut raw, "ZMOVE a b BYSCORE 5 6", "QUEUED");
        check(
            &mut raw,
            "EXEC",
            "1) 1) 1) \"x\"\n      2) \"1\"\n2) (nil array)\n3) (nil array)",
        );
        check(
            &mut raw,
            "EVAL \"return redis.call('ZMOVE',KEYS[1],KEYS[2],'MAX')\" 2 a b",
            "1) 1) \"y\"\n   2) \"2\"",
        );
        check(
            &mut raw,
            "EVAL \"return redis.call('BZMOVE',KEYS[1],KEYS[2],'MAX',0)\" 2 a b",
            "(nil)",
        );
        check(&mut raw, "ZCARD b", "(integer) 2");
    });
}

fn moves(raw: &mut Raw) {
    for number in 0..300 {
        let (from, to) = (number % 7, number * 3 % 5);
        raw.call(&format!(
            "ZADD z{from} {number} a{number} {number}.5 b{number}"
        ));
        let line = match number % 4 {
            0 => format!("ZMOVE z{from} z{to} MIN COUNT 2"),
            1 => format!("BZMOVE z{from} z{to} MAX 0"),
            2 => format!("ZMOVE z{from} z{to} BYSCORE ({} +inf COUNT 3", number / 2),
            _ => format!(
                "ZMOVEMEMBER z{from} z{to} NX MEMBERS 2 a{number} b{}",
                number - 7
            ),
        };
        let reply = raw.call(&line);
        assert!(!reply.is_error(), "{line}: {}", reply.show());
    }
}

fn digests(raw: &mut Raw) -> Vec<String> {
    let names = (0..7).map(|number| format!("z{number}"));
    names
        .map(|name| raw.call(&format!("ZRANGE {name} 0 -1 WITHSCORES")).show())
        .collect()
}

#[test]
fn replicas_of_every_kind_and_files_have_the_moves() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = Options::shards(4)
        .with("dir", &dir.path().display().to_string())
        .with("appendonly", "yes")
        .with("appendfsync", "always");
    let server = start_loaded(&options);
    let replica = Server::start(&Options::shards(2));
    let redis = Oracle::start();
    let mut all = vec![&server, &replica];
    if let Some(Oracle(redis)) = &redis {
        all.push(redis);
    }
    for follower in &all[1..] {
        follow(follower, &server);
    }
    moves(&mut server.raw());
    settle(&all);
    let expected = digests(&mut server.raw());
    assert!(expected.iter().any(|text| text.contains("\"b")));
    for follower in &all[1..] {
        assert_eq!(digests(&mut follower.raw()), expected);
    }
    let readonly = "(error) READONLY You can't write against a read only replica.";
    check(&mut replica.raw(), "ZMOVE z1 z2 MIN", readonly);
    drop(server);
    assert_eq!(digests(&mut start_loaded(&options).raw()), expected);
}

#[test]
fn rights_and_slots_count_for_both_keys() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "ZADD a 1 x", "(integer) 1");
        check(&mut raw, "ACL SETUSER mover on nopass ~a %R~b +@all", "OK");
        let mut other = server.raw();
        check(&mut other, "AUTH mover x", "OK");
        for line in [
            "ZMOVE a b MIN",
            "ZMOVE b a MIN",
            "ZMOVEMEMBER a b MEMBERS 1 x",
        ] {
            let denied = other.call(line).show();
            assert!(denied.starts_with("(error) NOPERM"), "{line}: {denied}");
        }
        check(&mut raw, "ZCARD a", "(integer) 1");
        check(
            &mut raw,
            "COMMAND GETKEYS BZMOVE a b MIN 0",
            "1) \"a\"\n2) \"b\"",
        );
    });
    if support::is_stand_in() {
        return;
    }
    let server = Server::start(&Options::shards(4).with("cluster-enabled", "yes"));
    let mut raw = server.raw();
    check(&mut raw, "CLUSTER ADDSLOTSRANGE 0 16383", "OK");
    support::eventually("the cluster is up", || {
        raw.call("CLUSTER INFO").body().contains("cluster_state:ok")
    });
    check(&mut raw, "ZADD {t}a 1 x", "(integer) 1");
    let crosses = "(error) CROSSSLOT Keys in request don't hash to the same slot";
    for line in [
        "ZMOVE {t}a b MIN",
        "BZMOVE {t}a b MIN 0",
        "ZMOVEMEMBER {t}a b MEMBERS 1 x",
    ] {
        check(&mut raw, line, crosses);
    }
    check(&mut raw, "ZMOVE {t}a {t}b MIN", "1) 1) \"x\"\n   2) \"1\"");
}
