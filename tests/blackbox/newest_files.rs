//! Files and payloads of Valkey 9, made by the real server while the tests run; and which of its commands are
//! missing here.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::support::{Options, Server};
use crate::support::{Oracle, check, eventually, start_loaded};
use crate::wire::{Raw, encode};

/// Creates values of every type, small and large, with distant deadlines of keys and fields.
fn fill(raw: &mut Raw) {
    let many = |name: &str, of: &dyn Fn(usize) -> String| {
        let items: Vec<String> = (0..2_000).map(of).collect();
        format!("{name} {}", items.join(" "))
    };
    for line in [
        "SET s v",
        "SET n 12345",
        "SET late v PXAT 4102444800000",
        "RPUSH l a b c",
        "SADD s1 1 2 3",
        "SADD s2 a b c",
        "ZADD z 1 a 2.5 b",
        "HSET h a 1 b 2",
        "HSET hx a 1 b 2 c 3",
        "HPEXPIREAT hx 4102444800000 FIELDS 2 a b",
        "XADD x 1-1 f v",
        "XADD x 2-1 f v g w",
        "XGROUP CREATE x g 0",
        "XREADGROUP GROUP g c COUNT 1 STREAMS x >",
        "PFADD p a b c",
        "GEOADD geo 13.4 52.5 berlin",
        &many("SADD large:set", &|n| format!("m{n}")),
        &many("ZADD large:zset", &|n| format!("{n} m{n}")),
        &many("HSET large:hash", &|n| format!("f{n} v{n}")),
        &many("RPUSH large:list", &|n| format!("e{n}")),
        "HPEXPIREAT large:hash 4102444800000 FIELDS 2 f7 f8",
        "SELECT 3",
        "SET other db",
        "SELECT 0",
    ] {
        let reply = raw.call(line);
        assert!(!reply.is_error(), "{line:.60}: {}", reply.show());
    }
    let library: [&[u8]; 3] = [
        b"FUNCTION",
        b"LOAD",
        b"#!lua name=lib\nredis.register_function{function_name='f', callback=function() return 5 end, \
          flags={'no-writes'}}",
    ];
    assert!(!raw.command(&library).is_error());
}

const QUESTIONS: &[&str] = &[
    "DBSIZE",
    "SELECT 3",
    "KEYS *",
    "GET other",
    "SELECT 0",
    "DEBUG DIGEST",
    "PEXPIRETIME late",
    "HPEXPIRETIME hx FIELDS 3 a b c",
    "HPEXPIRETIME large:hash FIELDS 3 f7 f8 f9",
    "HMGET hx a b c z",
    "XINFO GROUPS x",
    "XPENDING x g",
    "PFCOUNT p",
    "FCALL_RO f 0",
    "LRANGE large:list 0 9",
];

/// Index of the sum of all digests.
const TOTAL: usize = 5;

fn answers(raw: &mut Raw) -> Vec<String> {
    let mut shown: Vec<String> = QUESTIONS.iter().map(|line| raw.call(line).show()).collect();
    let keys = raw.call("KEYS *");
    let mut keys: Vec<String> = keys.items().iter().map(|key| key.text()).collect();
    keys.sort();
    for key in keys {
        let digest = raw.call(&format!("DEBUG DIGEST-VALUE {key}")).show();
        let until = raw.call(&format!("PEXPIRETIME {key}")).show();
        shown.push(format!("{key}: {digest} {until}"));
    }
    shown
}

fn loaded(dir: &Path, append: &str) -> Server {
    start_loaded(
        &Options::shards(8)
            .with("dir", &dir.display().to_string())
            .with("appendonly", append),
    )
}

#[test]
fn a_snapshot_of_valkey_9_is_loaded_whole() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let Some(Oracle(valkey)) = Oracle::start_valkey(dir.path()) else {
        return;
    };
    let mut raw = valkey.raw();
    fill(&mut raw);
    check(&mut raw, "SAVE", "OK");
    let file = std::fs::read(dir.path().join("dump.rdb")).expect("it was saved");
    assert!(file.starts_with(b"VALKEY08"), "{:?}", &file[..9]);
    let wanted = answers(&mut raw);
    let server = loaded(dir.path(), "no");
    assert_eq!(answers(&mut server.raw()), wanted);
    // Later deadlines than are kept here become the latest one.
    drop(server);
    check(
        &mut raw,
        "HPEXPIREAT hx 9223372036854775807 FIELDS 1 c",
        "1) (integer) 1",
    );
    check(&mut raw, "SAVE", "OK");
    let server = loaded(dir.path(), "no");
    check(
        &mut server.raw(),
        "HPEXPIRETIME hx FIELDS 1 c",
        "1) (integer) 70368744177663",
    );
}

#[test]
fn an_append_only_file_of_valkey_9_is_loaded_whole() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let Some(Oracle(valkey)) = Oracle::start_valkey(dir.path()) else {
        return;
    };
    let mut raw = valkey.raw();
    fill(&mut raw);
    // The existing data become the base, and later commands the increment.
    check(
        &mut raw,
        "CONFIG SET appendfsync always appendonly yes",
        "OK",
    );
    eventually("the base is written", || {
        let info = raw.call("INFO persistence").body();
        info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
    });
    for line in [
        "HSETEX hx NX FIELDS 1 z 1",
        "HSETEX hx XX PXAT 4102444800000 FIELDS 1 z 1",
        "HGETDEL hx FIELDS 1 c",
        "HEXPIRE hx 100000 FIELDS 1 b",
        "SET s w IFEQ v",
        "DELIFEQ n 12345",
        "INCR counter",
    ] {
        let reply = raw.call(line);
        assert!(!reply.is_error(), "{line}: {}", reply.show());
    }
    // The sum of a server whose file was switched on is another one than that of its own keys, which are compared.
    let each = |raw: &mut Raw| {
        let mut all = answers(raw);
        all.remove(TOTAL);
        all
    };
    let wanted = each(&mut raw);
    drop(raw);
    drop(valkey);
    let server = loaded(dir.path(), "yes");
    assert_eq!(each(&mut server.raw()), wanted);
}

#[test]
fn payloads_and_replicas_of_valkey_9_are_taken() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let Some(Oracle(valkey)) = Oracle::start_valkey(dir.path()) else {
        return;
    };
    let mut theirs = valkey.raw();
    fill(&mut theirs);
    let server = Server::start(&Options::shards(8));
    let mut ours = server.raw();
    for key in [
        "s",
        "n",
        "l",
        "s1",
        "s2",
        "z",
        "h",
        "hx",
        "x",
        "large:hash",
        "large:zset",
    ] {
        let payload = theirs.command(&["DUMP", key]);
        let restored = ours.command(&[&b"RESTORE"[..], key.as_bytes(), b"0", payload.bytes()]);
        assert_eq!(restored.show(), "OK", "{key}");
    }
    let line = "HPEXPIRETIME hx FIELDS 3 a b c";
    assert_eq!(ours.call(line).show(), theirs.call(line).show());
    // Payloads made here are read there, except for deadlines of fields, which are in the form of Redis.
    ours.send(&encode(&["DUMP", "z"]));
    let payload = ours.read();
    let restored = theirs.command(&[&b"RESTORE"[..], b"back", b"0", payload.bytes()]);
    assert_eq!(restored.show(), "OK");
    // As a replica.
    let replica = Server::start(&Options::shards(8));
    crate::replicated::follow(&replica, &valkey);
    check(
        &mut theirs,
        "HSETEX hx FXX EX 1000 FIELDS 1 a 7",
        "(integer) 1",
    );
    check(&mut theirs, "SET last 1", "OK");
    let mut raw = replica.raw();
    eventually("it follows", || raw.call("GET last").show() == "\"1\"");
    assert_eq!(answers(&mut raw), answers(&mut theirs));
}

#[test]
fn a_replica_that_is_valkey_9_gets_deadlines_of_fields() {
    for (diskless, dual_channel) in [("yes", "no"), ("no", "no"), ("yes", "yes")] {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let Some(Oracle(valkey)) = Oracle::start_valkey(dir.path()) else {
            return;
        };
        let options = Options::shards(8)
            .with("repl-diskless-sync", diskless)
            .with("repl-diskless-sync-delay", "0")
            .with("dual-channel-replication-enabled", dual_channel);
        let server = Server::start(&options);
        let mut ours = server.raw();
        fill(&mut ours);
        let mut theirs = valkey.raw();
        let line = format!("CONFIG SET dual-channel-replication-enabled {dual_channel}");
        check(&mut theirs, &line, "OK");
        crate::replicated::follow(&valkey, &server);
        let each = |raw: &mut Raw| {
            let mut all = answers(raw);
            all.remove(TOTAL);
            all
        };
        assert_eq!(each(&mut theirs), each(&mut ours));
        for line in [
            "HPEXPIRE hx 100000000 FIELDS 1 c",
            "HSETEX hx FXX EX 1000000 FIELDS 1 a 7",
            "HSETEX made PX 100000000 FIELDS 2 a 7 b 8",
            "HGETEX made PERSIST FIELDS 1 b",
            "HGETEX made EXAT 4102444800 FIELDS 1 a",
            "HPERSIST hx FIELDS 1 b",
            "HGETDEL large:hash FIELDS 1 f7",
            "HSETEX short PX 1 FIELDS 1 f v",
            "HSET short g v",
            "SET last 1",
        ] {
            let reply = ours.call(line);
            assert!(!reply.is_error(), "{line}: {}", reply.show());
        }
        eventually("the short one is over", || {
            ours.call("HEXISTS short f").show() == "(integer) 0"
        });
        eventually("it follows", || {
            let has_last = theirs.call("GET last").show() == "\"1\"";
            has_last && theirs.call("HLEN short").show() == "(integer) 1"
        });
        assert_eq!(each(&mut theirs), each(&mut ours));
        let times = crate::replicated::info(&mut ours, "sync_full");
        assert_eq!(times, "1", "{diskless} {dual_channel}");
    }
}

/// Asks for all data as a replica of unknown version; returns the first reply, and the first line of the
/// snapshot.
fn ask_for_all(server: &Server) -> (String, String) {
    let mut raw = server.raw();
    check(&mut raw, "REPLCONF listening-port 7 capa eof", "OK");
    raw.send(&encode(&["PSYNC", "?", "-1"]));
    let mut reader = BufReader::new(raw.stream());
    let mut line = || loop {
        let mut line = Vec::new();
        let count = reader.read_until(b'\n', &mut line).expect("a line");
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if count == 0 || !line.is_empty() {
            break line;
        }
    };
    let answer = line();
    match answer.starts_with('-') {
        true => (answer, String::new()),
        false => {
            line();
            (answer, line())
        }
    }
}

#[test]
fn a_replica_that_can_not_load_deadlines_of_fields_waits_before_it_is_sent_them_again() {
    let options = Options::shards(8).with("repl-diskless-sync-delay", "0");
    let server = Server::start(&options);
    let mut raw = server.raw();
    check(&mut raw, "SET k v", "OK");
    // Payloads that all servers can load are sent as often as requested.
    for _ in 0..5 {
        let (answer, begun) = ask_for_all(&server);
        assert!(answer.starts_with("+FULLRESYNC"), "{answer}");
        assert!(begun.starts_with("REDIS0010"), "{begun}");
    }
    fill(&mut raw);
    let mut refused = false;
    eventually("it is told to wait", || {
        let (answer, begun) = ask_for_all(&server);
        refused = answer.starts_with("-NOMASTERLINK ");
        assert!(refused || begun.starts_with("REDIS0012"), "{answer}{begun}");
        refused
    });
    let log = server.log();
    assert!(log.contains("without having loaded"), "{log}");
    let before = crate::replicated::info(&mut raw, "sync_full");
    assert!(
        before.parse::<u32>().is_ok_and(|times| times < 12),
        "{before}"
    );
    // The time comes all the same: it may have been exchanged for one that can.
    eventually("it gets them", || ask_for_all(&server).0.starts_with('+'));
}

#[test]
fn a_replica_that_may_lack_a_module_for_documents_waits_before_it_is_sent_them_again() {
    let options = Options::shards(8).with("repl-diskless-sync-delay", "0");
    let server = Server::start(&options);
    let mut raw = server.raw();
    check(&mut raw, "SET k v", "OK");
    for _ in 0..3 {
        let (answer, begun) = ask_for_all(&server);
        assert!(answer.starts_with("+FULLRESYNC"), "{answer}");
        assert!(begun.starts_with("REDIS0010"), "{begun}");
    }
    check(&mut raw, "JSON.SET doc $ [1]", "OK");
    eventually("it is told to wait", || {
        ask_for_all(&server)
            .0
            .starts_with("-NOMASTERLINK the last snapshot (RDB version 10, with JSON documents)")
    });
    ask_for_all(&server);
    let log = server.log();
    let told = log.matches("only servers with RedisJSON or valkey-json can load");
    assert_eq!(told.count(), 1, "{log}");
}

/// Commands that COMMAND LIST of Valkey 9.1 names and this server's does not; `docs/compatibility.md` says
/// why. SCRIPT SHOW exists here, but is not listed.
const MISSING: [&str; 3] = ["client|import-source", "cluster|flushslot", "script|show"];

#[test]
fn the_commands_of_valkey_9_are_there_but_for_a_few() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let Some(Oracle(valkey)) = Oracle::start_valkey(dir.path()) else {
        return;
    };
    let server = Server::start(&Options::shards(1));
    let names = |server: &Server| -> BTreeSet<String> {
        let list = server.raw().call("COMMAND LIST");
        list.items()
            .iter()
            .map(|name| name.text().to_lowercase())
            .collect()
    };
    let (theirs, ours) = (names(&valkey), names(&server));
    let missing: Vec<&String> = theirs.difference(&ours).collect();
    assert_eq!(missing, MISSING);
}
