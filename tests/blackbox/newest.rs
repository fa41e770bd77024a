//! Commands of Redis 8 and Valkey 9 over a socket: behavior that no transcript can show, since time, files,
//! replicas and other clients take part in it.

use std::path::Path;
use std::time::Duration;

use crate::replicated::{follow, settle};
use crate::support::{
    self, Options, Oracle, Server, blocked, check, eventually, rewrite, start_loaded,
};
use crate::wire::Raw;

#[test]
fn members_of_sets_expire_by_themselves_and_are_counted() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let members: Vec<String> = (0..3_000).map(|number| format!("m{number}")).collect();
        raw.call(&format!("SADD large {}", members.join(" ")));
        check(&mut raw, "SADD small a b 3", "(integer) 3");
        for some in members[..2_900].chunks(100) {
            let line = format!("SPEXPIRE large 30 MEMBERS 100 {}", some.join(" "));
            assert!(!raw.call(&line).is_error());
        }
        check(
            &mut raw,
            "SPEXPIRE small 30 MEMBERS 2 a 3",
            "1) (integer) 1\n2) (integer) 1",
        );
        check(&mut raw, "SADD all x y", "(integer) 2");
        check(
            &mut raw,
            "SPEXPIRE all 30 MEMBERS 2 x y",
            "1) (integer) 1\n2) (integer) 1",
        );
        eventually("expired untouched", || {
            let stats = raw.call("INFO stats").body();
            stats.contains("expired_subkeys:2904\r\n")
        });
        check(&mut raw, "SCARD large", "(integer) 100");
        check(&mut raw, "SMEMBERS small", "1) \"b\"");
        check(&mut raw, "DBSIZE", "(integer) 2");
    });
}

/// Sets, small and large, with members that stay, that expire in the far future, and that expire soon.
fn expiring_sets(raw: &mut Raw) {
    let members: Vec<String> = (0..3_000).map(|number| format!("m{number}")).collect();
    raw.call(&format!("SADD large {}", members.join(" ")));
    check(raw, "SADD small a b c", "(integer) 3");
    for key in ["large", "small"] {
        let named = if key == "large" { "m7 m8" } else { "a b" };
        let line = format!("SPEXPIREAT {key} 4102444800000 MEMBERS 2 {named}");
        check(raw, &line, "1) (integer) 1\n2) (integer) 1");
    }
}

const QUESTIONS: [&str; 6] = [
    "SPEXPIRETIME large MEMBERS 3 m7 m8 m9",
    "SPEXPIRETIME small MEMBERS 3 a b c",
    "SCARD large",
    "SCARD small",
    "OBJECT ENCODING small",
    "DEBUG DIGEST",
];

fn answers(raw: &mut Raw) -> Vec<String> {
    QUESTIONS.iter().map(|line| raw.call(line).show()).collect()
}

#[test]
fn deadlines_of_members_outlive_every_kind_of_file() {
    for (preamble, rewrites) in [("yes", true), ("no", true), ("no", false)] {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let options = || {
            Options::shards(8)
                .with("dir", &dir.path().display().to_string())
                .with("appendonly", "yes")
                .with("appendfsync", "always")
                .with("aof-use-rdb-preamble", preamble)
        };
        let server = start_loaded(&options());
        let mut raw = server.raw();
        expiring_sets(&mut raw);
        if rewrites {
            rewrite(&mut raw);
        }
        let before = answers(&mut raw);
        assert_eq!(
            before[0],
            "1) (integer) 4102444800000\n2) (integer) 4102444800000\n3) (integer) -1"
        );
        check(&mut raw, "DEBUG RELOAD", "OK");
        assert_eq!(answers(&mut raw), before);
        drop(raw);
        drop(server);
        let server = start_loaded(&options());
        assert_eq!(answers(&mut server.raw()), before);
        // Fields loaded from a file expire too.
        let mut raw = server.raw();
        check(
            &mut raw,
            "SPEXPIRE small 1 MEMBERS 2 a b",
            "1) (integer) 1\n2) (integer) 1",
        );
        drop(raw);
        drop(server);
        std::thread::sleep(Duration::from_millis(5));
        let server = start_loaded(&options());
        check(&mut server.raw(), "SMEMBERS small", "1) \"c\"");
    }
}

#[test]
fn replicas_of_either_kind_lose_members_when_their_primary_says_so() {
    let primary = Server::start(&Options::shards(8).with("repl-diskless-sync-delay", "0"));
    let mut raw = primary.raw();
    check(&mut raw, "SADD before a b", "(integer) 2");
    let own = Server::start(&Options::shards(2));
    let oracle = Oracle::start();
    let mut replicas = vec![&own];
    replicas.extend(oracle.as_ref().map(|Oracle(server)| server));
    for replica in &replicas {
        follow(replica, &primary);
    }
    // Records that redis-server 7.0 does not know change no data there.
    check(&mut raw, "SADD s a b c d", "(integer) 4");
    check(
        &mut raw,
        "SPEXPIRE s 40 MEMBERS 2 a b",
        "1) (integer) 1\n2) (integer) 1",
    );
    check(
        &mut raw,
        "SPEXPIRE before 40 MEMBERS 2 a b",
        "1) (integer) 1\n2) (integer) 1",
    );
    check(&mut raw, "SEXPIRE s 0 MEMBERS 1 c", "1) (integer) 2");
    check(&mut raw, "RPUSH l 1 2 3 4 5", "(integer) 5");
    check(
        &mut raw,
        "LMOVEM l t LEFT LEFT COUNT 3 BULK",
        "1) \"1\"\n2) \"2\"\n3) \"3\"",
    );
    check(
        &mut raw,
        "LMOVEM t t RIGHT RIGHT COUNT 2 OBO",
        "1) \"3\"\n2) \"2\"",
    );
    eventually("expired", || {
        raw.call("SCARD s").integer() == 1 && raw.call("EXISTS before").integer() == 0
    });
    let mut all = vec![&primary];
    all.extend(&replicas);
    settle(&all);
    for replica in &replicas {
        let mut raw = replica.raw();
        check(&mut raw, "SMEMBERS s", "1) \"d\"");
        check(&mut raw, "EXISTS before", "(integer) 0");
        check(&mut raw, "LRANGE t 0 -1", "1) \"1\"\n2) \"3\"\n3) \"2\"");
    }
    // A full synchronization carries deadlines along.
    check(&mut raw, "SADD late a b", "(integer) 2");
    check(
        &mut raw,
        "SPEXPIREAT late 4102444800000 MEMBERS 1 a",
        "1) (integer) 1",
    );
    let other = Server::start(&Options::shards(1));
    follow(&other, &primary);
    settle(&[&primary, &other]);
    check(
        &mut other.raw(),
        "SPEXPIRETIME late MEMBERS 2 a b",
        "1) (integer) 4102444800000\n2) (integer) -1",
    );
    check(
        &mut other.raw(),
        "SEXPIRE late 1 MEMBERS 1 a",
        "(error) READONLY You can't write against a read only replica.",
    );
}

#[test]
fn members_that_expire_are_so_in_scripts_and_transactions_too() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(
            &mut raw,
            "EVAL \"redis.call('SADD',KEYS[1],'a','b') \
             redis.call('SPEXPIRE',KEYS[1],20,'MEMBERS',1,'a') \
             return redis.call('STTL',KEYS[1],'MEMBERS',2,'a','b')\" 1 s",
            "1) (integer) 1\n2) (integer) -1",
        );
        eventually("expired", || raw.call("SCARD s").integer() == 1);
        check(
            &mut raw,
            "EVAL \"return redis.pcall('SEXPIRE',KEYS[1],-1,'MEMBERS',1,'b')\" 1 s",
            "(error) ERR invalid expire time, must be >= 0",
        );
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "SEXPIRE s 100 MEMBERS 1 b", "QUEUED");
        check(
            &mut raw,
            "BLMOVEM none t LEFT LEFT 0 EXACTLY 2 OBO",
            "QUEUED",
        );
        check(&mut raw, "EXEC", "1) 1) (integer) 1\n2) (nil)");
    });
}

#[test]
fn blmovem_waits_until_there_are_enough_and_lets_others_pass() {
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        let mut three = blocked(
            server,
            &mut other,
            "BLMOVEM from to LEFT RIGHT 0 EXACTLY 3 BULK",
        );
        let mut any = blocked(
            server,
            &mut other,
            "BLMOVEM from rest RIGHT LEFT 0 COUNT 2 OBO",
        );
        // The first in line wants three: one element is for the second.
        check(&mut other, "RPUSH from a", "(integer) 1");
        assert_eq!(any.read().show(), "1) \"a\"");
        check(&mut other, "RPUSH from b c", "(integer) 2");
        check(&mut other, "LRANGE from 0 -1", "1) \"b\"\n2) \"c\"");
        check(&mut other, "RPUSH from d e", "(integer) 4");
        assert_eq!(three.read().show(), "1) \"b\"\n2) \"c\"\n3) \"d\"");
        check(&mut other, "LRANGE to 0 -1", "1) \"b\"\n2) \"c\"\n3) \"d\"");
        check(&mut other, "LRANGE from 0 -1", "1) \"e\"");
        let mut raw = server.raw();
        check(
            &mut raw,
            "BLMOVEM from to LEFT LEFT 0.05 EXACTLY 2 OBO",
            "(nil array)",
        );
        check(&mut raw, "BLMOVEM none to LEFT LEFT 0.05", "(nil array)");
        check(&mut other, "LRANGE from 0 -1", "1) \"e\"");
    });
}

#[test]
fn an_append_only_file_of_moves_is_read_as_it_was_written() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = |dir: &Path| {
        Options::shards(4)
            .with("dir", &dir.display().to_string())
            .with("appendonly", "yes")
            .with("appendfsync", "always")
    };
    let server = start_loaded(&options(dir.path()));
    let mut raw = server.raw();
    for number in 0..200 {
        raw.call(&format!("RPUSH l{} {number} x{number}", number % 7));
        let (from, to) = (number % 7, number * 3 % 5);
        let end = |bit: usize| if number & bit == 0 { "LEFT" } else { "RIGHT" };
        let order = if number % 3 == 0 { "BULK" } else { "OBO" };
        let count = 1 + number % 4;
        raw.call(&format!(
            "LMOVEM l{from} l{to} {} {} COUNT {count} {order}",
            end(1),
            end(2)
        ));
    }
    let digest = raw.call("DEBUG DIGEST").show();
    drop(raw);
    drop(server);
    let server = start_loaded(&options(dir.path()));
    check(&mut server.raw(), "DEBUG DIGEST", &digest);
}

#[test]
fn the_logs_of_commands_keep_what_is_slow_and_what_is_large() {
    let server = Server::start(&Options::shards(2));
    let mut raw = server.raw();
    let entries = |raw: &mut Raw, log: &str| -> Vec<(i64, String)> {
        let reply = raw.call(&format!("COMMANDLOG GET -1 {log}"));
        let one = |entry: &crate::wire::Value| {
            let words: Vec<String> = entry.items()[3]
                .items()
                .iter()
                .map(|word| word.text())
                .collect();
            (entry.items()[2].integer(), words.join(" "))
        };
        reply.items().iter().map(one).collect()
    };
    for log in ["slow", "large-request", "large-reply"] {
        check(&mut raw, &format!("COMMANDLOG RESET {log}"), "OK");
        check(&mut raw, &format!("COMMANDLOG LEN {log}"), "(integer) 0");
    }
    check(
        &mut raw,
        "CONFIG SET commandlog-request-larger-than 60",
        "OK",
    );
    let value = "a".repeat(39);
    check(&mut raw, &format!("SET abc {value}"), "OK");
    check(
        &mut raw,
        "CONFIG SET commandlog-request-larger-than -1",
        "OK",
    );
    check(&mut raw, "CONFIG SET commandlog-reply-larger-than 46", "OK");
    check(&mut raw, "GET abc", &format!("\"{value}\""));
    check(&mut raw, "GET none", "(nil)");
    check(&mut raw, "CONFIG SET commandlog-reply-larger-than -1", "OK");
    // The bytes are those of Valkey 9.1.2.
    let requests = entries(&mut raw, "large-request");
    let set = (68, format!("SET abc {value}"));
    assert!(requests.contains(&set), "{requests:?}");
    assert_eq!(
        entries(&mut raw, "large-reply"),
        [(46, "GET abc".to_owned())]
    );
    // Large ones are found whatever they come with, and however long they are.
    check(
        &mut raw,
        "CONFIG SET commandlog-request-larger-than 100000",
        "OK",
    );
    check(
        &mut raw,
        "CONFIG SET commandlog-reply-larger-than 100000",
        "OK",
    );
    check(&mut raw, "COMMANDLOG RESET large-request", "OK");
    check(&mut raw, "COMMANDLOG RESET large-reply", "OK");
    let long = format!("SET long {}", "v".repeat(200_000));
    raw.pipeline(&["PING", &long, "PING", "GET long", "PING"]);
    let requests = entries(&mut raw, "large-request");
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].0, 200_000 + 34);
    assert!(
        requests[0].1.ends_with("... (199872 more bytes)"),
        "{}",
        requests[0].1
    );
    assert_eq!(
        entries(&mut raw, "large-reply"),
        [(200_011, "GET long".to_owned())]
    );
    // Each has its length; the slow log is the one that there always was.
    check(
        &mut raw,
        "CONFIG SET commandlog-large-reply-max-len 2",
        "OK",
    );
    for _ in 0..5 {
        raw.call("GET long");
    }
    check(&mut raw, "COMMANDLOG LEN large-reply", "(integer) 2");
    check(
        &mut raw,
        "CONFIG SET commandlog-execution-slower-than 0",
        "OK",
    );
    check(&mut raw, "PING", "PONG");
    assert_eq!(
        raw.call("CONFIG GET slowlog-log-slower-than").show(),
        "1) \"slowlog-log-slower-than\"\n2) \"0\""
    );
    let slow = entries(&mut raw, "slow");
    assert!(slow.iter().any(|(_, words)| words == "PING"), "{slow:?}");
    check(&mut raw, "SLOWLOG RESET", "OK");
    check(&mut raw, "CONFIG SET slowlog-log-slower-than -1", "OK");
    assert!(raw.call("COMMANDLOG LEN slow").integer() <= 1);
    let kinds = "(error) ERR type should be one of the following: slow, large-request, large-reply";
    let count = "(error) ERR count should be greater than or equal to -1";
    for (line, error) in [
        ("COMMANDLOG GET 1 nope", kinds),
        ("COMMANDLOG LEN junk", kinds),
        ("COMMANDLOG RESET junk", kinds),
        ("COMMANDLOG GET -2 slow", count),
        ("COMMANDLOG GET x slow", count),
        (
            "COMMANDLOG GET 1",
            "(error) ERR wrong number of arguments for 'commandlog|get' command",
        ),
        (
            "COMMANDLOG GET 1 slow x",
            "(error) ERR wrong number of arguments for 'commandlog|get' command",
        ),
        (
            "COMMANDLOG LEN",
            "(error) ERR wrong number of arguments for 'commandlog|len' command",
        ),
        (
            "COMMANDLOG",
            "(error) ERR wrong number of arguments for 'commandlog' command",
        ),
        (
            "COMMANDLOG foo",
            "(error) ERR unknown subcommand 'foo'. Try COMMANDLOG HELP.",
        ),
    ] {
        check(&mut raw, line, error);
    }
    assert!(
        raw.call("CONFIG SET commandlog-reply-larger-than -2")
            .is_error()
    );
}

#[test]
fn clients_are_told_another_version_where_the_configuration_says_so() {
    let server = Server::start(&Options::shards(1).with("version-override", "8.4.0"));
    let mut raw = server.raw();
    let told = |raw: &mut Raw| -> (String, String) {
        let info = raw.call("INFO server").body();
        let of_info = info
            .lines()
            .find_map(|line| line.strip_prefix("redis_version:"));
        let hello = raw.call("HELLO 2");
        (
            of_info.expect("a version").to_owned(),
            hello.items()[3].text(),
        )
    };
    assert_eq!(told(&mut raw), ("8.4.0".to_owned(), "8.4.0".to_owned()));
    check(&mut raw, "CONFIG SET version-override \"\"", "OK");
    let (of_info, of_hello) = told(&mut raw);
    assert!(
        of_info == of_hello && of_info.starts_with("7."),
        "{of_info} {of_hello}"
    );
    for wrong in [
        "8", "8.4", "8.4.0.1", "8.x.0", "8.04.0", "8.4.-1", "8.4.256",
    ] {
        assert!(
            raw.call(&format!("CONFIG SET version-override {wrong}"))
                .is_error(),
            "{wrong}"
        );
    }
}
