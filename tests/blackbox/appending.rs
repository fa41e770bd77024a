//! The append-only file: acknowledged writes survive a kill, and directories can move to redis-server and
//! back.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::dump::makers;
use crate::replicated::info;
use crate::support::{Draw, Options, Server, check, eventually, free_port, start_loaded};
use crate::wire::Raw;

fn options(dir: &Path) -> Options {
    Options::shards(8)
        .with("dir", &dir.display().to_string())
        .with("appendonly", "yes")
}

fn kill(server: &mut Server) {
    server.signal("KILL");
    server.wait_for_exit();
}

fn number(client: &mut Raw, key: &str) -> u64 {
    let reply = client.call(&format!("GET {key}"));
    match reply.is_nil() {
        true => 0,
        false => reply.body().parse().expect("a number"),
    }
}

#[test]
fn what_was_acknowledged_under_always_survives_kills_and_transactions_stay_whole() {
    const WRITERS: usize = 4;
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = options(dir.path()).with("appendfsync", "always");
    let acknowledged: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let mut draw = Draw::new(7);
    for round in 0..6 {
        let mut server = start_loaded(&options);
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (writer, acknowledged) in acknowledged.iter().enumerate() {
                let mut client = server.raw();
                let ends = &ends;
                scope.spawn(move || {
                    let (one, two) = (format!("{{{writer}}}a"), format!("other:{writer}"));
                    while !ends.load(Relaxed) {
                        let lines = format!("MULTI\r\nINCR {one}\r\nINCR {two}\r\nEXEC\r\n");
                        client.send_unchecked(lines.as_bytes());
                        let replies = (0..4).map(|_| client.try_read().ok());
                        let Some(exec) = replies.last().flatten() else {
                            return;
                        };
                        let count = exec.items()[0].integer().unsigned_abs();
                        acknowledged.store(count, Relaxed);
                    }
                });
            }
            let before: u64 = acknowledged.iter().map(|count| count.load(Relaxed)).sum();
            let wanted = before + 20 + draw.below(60) as u64;
            eventually("enough is written", || {
                acknowledged
                    .iter()
                    .map(|count| count.load(Relaxed))
                    .sum::<u64>()
                    >= wanted
            });
            if round % 2 == 1 {
                check(
                    &mut server.raw(),
                    "BGREWRITEAOF",
                    "Background append only file rewriting started",
                );
            }
            kill(&mut server);
            ends.store(true, Relaxed);
        });
        let server = start_loaded(&options);
        let mut client = server.raw();
        for (writer, acknowledged) in acknowledged.iter().enumerate() {
            let one = number(&mut client, &format!("{{{writer}}}a"));
            let two = number(&mut client, &format!("other:{writer}"));
            let known = acknowledged.load(Relaxed);
            assert_eq!(one, two, "a transaction is there whole or not at all");
            assert!(
                one == known || one == known + 1,
                "round {round}: {one}, and {known} were acknowledged"
            );
            acknowledged.store(one, Relaxed);
        }
    }
}

/// A redis-server on a directory, until it is shut down.
struct Theirs(std::process::Child, u16);

impl Theirs {
    fn start(dir: &Path) -> Option<Theirs> {
        let port = free_port();
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
        ]);
        command.args(["--appendonly", "yes", "--enable-debug-command", "yes"]);
        command.arg("--dir").arg(dir).stdout(Stdio::null());
        Some(Theirs(command.spawn().ok()?, port))
    }
}

#[test]
fn directories_go_to_redis_server_and_back() {
    for preamble in ["yes", "no"] {
        exchange(preamble);
    }
}

fn exchange(preamble: &str) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let digest = |client: &mut Raw| client.call("DEBUG DIGEST").show();
    let finish = |client: &mut Raw, round: usize| {
        client.call(&format!("RPUSH rounds {round}"));
        if round >= 2 {
            client.call("BGREWRITEAOF");
            eventually("the rewrite is over", || {
                let info = client.call("INFO persistence").text();
                info.contains("aof_rewrite_in_progress:0")
                    && info.contains("aof_rewrite_scheduled:0")
            });
        }
        client.call(&format!("SADD seen {round}"));
        let after = client.call("DEBUG DIGEST").show();
        client.send(b"SHUTDOWN\r\n");
        client.read_to_close();
        after
    };
    let mut last = None;
    for round in 0..5 {
        let (mut client, mut ended): (Raw, Box<dyn FnMut()>) = if round % 2 == 0 {
            let own = options(dir.path()).with("aof-use-rdb-preamble", preamble);
            let mut server = start_loaded(&own);
            let client = server.raw();
            let ended = move || {
                server.wait_for_exit();
            };
            (client, Box::new(ended))
        } else {
            let Some(mut server) = Theirs::start(dir.path()) else {
                // There is no redis-server here.
                return;
            };
            eventually("redis-server is there", || {
                Raw::try_connect(server.1).is_ok()
            });
            let mut client = Raw::connect(server.1);
            eventually("it has loaded", || !client.call("PING").is_error());
            (client, Box::new(move || drop(server.0.wait())))
        };
        match &last {
            None => makers().iter().for_each(|line| drop(client.call(line))),
            Some(last) => assert_eq!(&digest(&mut client), last, "round {round}"),
        }
        last = Some(finish(&mut client, round));
        ended();
    }
}

#[test]
fn it_is_turned_on_and_off_while_clients_write() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = options(dir.path());
    let before = Options::shards(8).with("dir", &dir.path().display().to_string());
    let mut server = start_loaded(&before);
    let mut client = server.raw();
    check(&mut client, "SET before 1", "OK");
    check(&mut client, "CONFIG SET appendonly yes", "OK");
    eventually("the first rewrite is over", || {
        let info = client.call("INFO persistence").text();
        info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrites:1")
    });
    check(&mut client, "CONFIG SET appendfsync always", "OK");
    check(&mut client, "SET after 1", "OK");
    kill(&mut server);
    let mut server = start_loaded(&options);
    let mut client = server.raw();
    check(&mut client, "MGET before after", "1) \"1\"\n2) \"1\"");
    check(&mut client, "CONFIG SET appendonly no", "OK");
    check(&mut client, "SET unlogged 1", "OK");
    kill(&mut server);
    let server = start_loaded(&options);
    check(
        &mut server.raw(),
        "EXISTS before after unlogged",
        "(integer) 2",
    );
}

#[test]
fn a_server_does_not_end_while_its_first_base_is_written_unless_it_must() {
    let mut server = Server::start(&Options::shards(4));
    let mut client = server.raw();
    for index in 0..10 {
        client.call(&format!("SET key:{index} 1"));
    }
    check(&mut client, "CONFIG SET rdb-key-save-delay 10000000", "OK");
    check(&mut client, "CONFIG SET appendonly yes", "OK");
    let refused = "(error) ERR Errors trying to SHUTDOWN. Check logs.";
    check(&mut client, "SHUTDOWN", refused);
    server.signal("TERM");
    eventually("the signal is refused", || {
        server
            .log()
            .contains("SIGTERM received but errors trying to shut down")
    });
    let log = server.log();
    assert_eq!(log.matches("Writing initial AOF, can't exit").count(), 2);
    check(&mut client, "GET key:0", "\"1\"");
    client.send(b"SHUTDOWN FORCE\r\n");
    assert_eq!(server.wait_for_exit(), Some(0));
}

#[test]
fn waitaof_waits_for_the_disk_and_not_longer() {
    const OFF: &str =
        "(error) ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
    let both = |local: u8| format!("1) (integer) {local}\n2) (integer) 0");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut server = start_loaded(&options(dir.path()).with("appendfsync", "no"));
    let (mut client, mut other) = (server.raw(), server.raw());
    let id = client.call("CLIENT ID").integer();
    check(&mut client, "WAITAOF 1 0 0", &both(1));
    check(&mut client, "SET k 1", "OK");
    // No client syncs.
    check(&mut client, "WAITAOF 1 0 20", &both(0));
    check(&mut client, "WAITAOF 0 1 20", &both(0));
    check(
        &mut client,
        "EVAL \"return redis.call('GET', KEYS[1])\" 1 k",
        "\"1\"",
    );
    check(&mut client, "MULTI", "OK");
    check(&mut client, "WAITAOF 1 0 0", "QUEUED");
    check(&mut client, "EXEC", "1) 1) (integer) 0\n   2) (integer) 0");
    let wait = |client: &mut Raw, other: &mut Raw, request: &[u8]| {
        client.send(request);
        eventually("it waits", || {
            let line = other.call(&format!("CLIENT LIST ID {id}")).body();
            line.contains(" flags=b ")
        });
    };
    for (how, reply) in [
        ("TIMEOUT", both(0)),
        (
            "ERROR",
            "(error) UNBLOCKED client unblocked via CLIENT UNBLOCK".to_owned(),
        ),
    ] {
        wait(&mut client, &mut other, b"WAITAOF 1 0 0\r\n");
        let unblock = format!("CLIENT UNBLOCK {id} {how}");
        check(&mut other, &unblock, "(integer) 1");
        assert_eq!(client.read().show(), reply);
    }
    // One client's writes are irrelevant to another's WAITAOF.
    check(&mut other, "WAITAOF 1 0 0", &both(1));
    wait(
        &mut client,
        &mut other,
        b"WAITAOF 1 0 0\r\nINCR k\r\nWAITAOF 1 0 0\r\n",
    );
    check(&mut other, "CONFIG SET appendfsync everysec", "OK");
    for reply in [both(1), "(integer) 2".to_owned(), both(1)] {
        assert_eq!(client.read().show(), reply);
    }
    check(&mut client, "WAITAOF 0 1 20", &both(1));
    // Turned off, it comes never.
    check(&mut other, "CONFIG SET appendfsync no", "OK");
    check(&mut client, "INCR k", "(integer) 3");
    wait(&mut client, &mut other, b"WAITAOF 1 0 0\r\n");
    check(&mut other, "CONFIG SET appendonly no", "OK");
    assert_eq!(client.read().show(), OFF);
    check(&mut client, "WAITAOF 1 0 0", OFF);
    // Writes at this point are in the base that is written when the file is turned on.
    check(&mut client, "INCR k", "(integer) 4");
    check(&mut other, "CONFIG SET appendonly yes", "OK");
    check(&mut client, "WAITAOF 1 0 0", &both(1));
    kill(&mut server);
    let server = start_loaded(&options(dir.path()));
    check(&mut server.raw(), "GET k", "\"4\"");
}

/// A request that arrives before the file is read, while earlier writes are flushed to it, is not held back
/// until all is loaded, which may take long.
#[test]
fn clients_hear_loading_as_soon_as_the_file_is_to_be_loaded_again() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let server = start_loaded(&options(dir.path()));
    let (mut client, mut loading) = (server.raw(), server.raw());
    check(&mut client, "DEBUG AOF-FLUSH-SLEEP 2000000", "OK");
    check(&mut client, "SET k v", "OK");
    loading.send(b"DEBUG LOADAOF\r\n");
    let began = Instant::now();
    eventually("it hears of that", || {
        client.call("PING").text().starts_with("LOADING")
    });
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    assert_eq!(info(&mut client, "loading"), "1");
    assert_eq!(loading.read().text(), "OK");
    check(&mut client, "GET k", "\"v\"");
}

/// Returns the base that a directory's manifest names.
fn base_of(dir: &Path) -> (String, Vec<u8>) {
    let dir = dir.join("appendonlydir");
    let manifest = std::fs::read_to_string(dir.join("appendonly.aof.manifest"));
    let manifest = manifest.expect("there is one");
    let line = manifest.lines().find(|line| line.ends_with("type b"));
    let name = line.and_then(|line| line.split(' ').nth(1));
    let name = name.expect("there is a base").to_owned();
    let bytes = std::fs::read(dir.join(&name)).expect("it is there");
    (name, bytes)
}

#[test]
fn a_base_may_be_commands_alone() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = options(dir.path())
        .with("aof-use-rdb-preamble", "no")
        .with("aof-timestamp-enabled", "yes");
    let mut server = start_loaded(&options);
    let mut client = server.raw();
    makers().iter().for_each(|line| drop(client.call(line)));
    let large = |name: &str, of: &dyn Fn(usize) -> String| {
        let items: Vec<String> = (0..3000).map(of).collect();
        format!("{name} {}", items.join(" "))
    };
    let long = "x".repeat(40_000);
    let lines = [
        large("SADD large:set", &|n| format!("m{n}")),
        large("ZADD large:zset", &|n| format!("{}.5 m{n}", n * 7)),
        large("HSET large:hash", &|n| format!("f{n} v{n}")),
        large("HSET large:fields", &|n| format!("f{n} v{n}")),
        large("RPUSH large:list", &|n| format!("e{n}")),
        "HPEXPIREAT large:fields 4102444800000 FIELDS 2 f7 f2999".to_owned(),
        "PEXPIREAT large:zset 4102444800000".to_owned(),
        "PEXPIREAT large:list 4102444800000".to_owned(),
        "HSET small:fields a 1 b 2".to_owned(),
        "HPEXPIREAT small:fields 4102444800000 FIELDS 1 b".to_owned(),
        "ZADD odd inf a -inf b -0 c 1e300 d 0.1 e".to_owned(),
        format!("SET long {long} PXAT 4102444800000"),
        "XADD stream 5-1 a 1".to_owned(),
        "XADD stream 5-2 a 2 b 3".to_owned(),
        "XADD stream 6-0 a 4".to_owned(),
        "XGROUP CREATE stream group 0".to_owned(),
        "XREADGROUP GROUP group someone COUNT 2 STREAMS stream >".to_owned(),
        "XGROUP CREATECONSUMER stream group nobody".to_owned(),
        "XADD gone 7-7 a 1".to_owned(),
        "XADD gone 7-8 a 1".to_owned(),
        "XGROUP CREATE gone group 0".to_owned(),
        "XREADGROUP GROUP group someone STREAMS gone >".to_owned(),
        "XDEL gone 7-8".to_owned(),
        "XADD emptied 8-8 a 1".to_owned(),
        "XDEL emptied 8-8".to_owned(),
        "XGROUP CREATE void group $ MKSTREAM".to_owned(),
        "BF.ADD bloom a".to_owned(),
        "CF.ADD cuckoo a".to_owned(),
        "SELECT 3".to_owned(),
        format!("SET long {long}"),
        "SET short 1".to_owned(),
        large("SADD large:set", &|n| format!("other{n}")),
        "SELECT 0".to_owned(),
    ];
    for line in &lines {
        let reply = client.call(line);
        assert!(!reply.is_error(), "{line:.60}: {}", reply.show());
    }
    for number in 0..3_000 {
        client.call(&format!("XADD large:stream {number}-1 f {number} g x"));
    }
    client.call("XDEL large:stream 7-1 2999-1");
    client.call("XGROUP CREATE large:stream group 90-0 ENTRIESREAD 90");
    client.call("XGROUP CREATECONSUMER large:stream group nobody");
    client.call("PEXPIREAT large:stream 4102444800000");
    let library: [&[u8]; 3] = [
        b"FUNCTION",
        b"LOAD",
        b"#!lua name=lib\nredis.register_function('f', function() return 5 end)",
    ];
    assert_eq!(client.command(&library).show(), "\"lib\"");
    let questions = [
        "DEBUG DIGEST",
        "DBSIZE",
        "FCALL f 0",
        "PEXPIRETIME large:zset",
        "PEXPIRETIME long",
        "HPEXPIRETIME large:fields FIELDS 3 f7 f8 f2999",
        "HPEXPIRETIME small:fields FIELDS 2 a b",
        "ZRANGE odd 0 -1 WITHSCORES",
        "XPENDING stream group - + 10 someone",
        "XPENDING gone group",
        "XINFO GROUPS stream",
        "XINFO STREAM emptied",
        "XINFO STREAM void",
        "BF.EXISTS bloom a",
        "CF.EXISTS cuckoo a",
        "LRANGE large:list 0 -1",
        "PEXPIRETIME large:list",
        "PEXPIRETIME large:stream",
        "XRANGE large:stream - +",
        "XINFO STREAM large:stream",
        "XINFO GROUPS large:stream",
    ];
    // The idle time of a delivered entry goes on.
    let answers = |client: &mut Raw| -> Vec<String> {
        let shown = questions.iter().map(|line| client.call(line).show());
        let mut shown: Vec<String> = shown.collect();
        let pending = questions
            .iter()
            .position(|line| line.starts_with("XPENDING stream"));
        let pending = &mut shown[pending.expect("it is asked")];
        let lines = pending
            .lines()
            .filter(|line| !line.contains("3) (integer)"));
        *pending = lines.collect::<Vec<_>>().join("\n");
        shown
    };
    let before = answers(&mut client);
    client.call("BGREWRITEAOF");
    eventually("the rewrite is over", || {
        let info = client.call("INFO persistence").text();
        info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrites:1")
    });
    let (name, base) = base_of(dir.path());
    assert!(name.ends_with(".base.aof"), "{name}");
    assert!(base.starts_with(b"#TS:") && base.ends_with(b"\r\n"));
    check(&mut client, "CONFIG SET appendfsync always", "OK");
    check(&mut client, "SET last 1", "OK");
    check(&mut client, "DEL last", "(integer) 1");
    kill(&mut server);
    let server = start_loaded(&options);
    for (question, (before, after)) in questions
        .iter()
        .zip(before.iter().zip(answers(&mut server.raw())))
    {
        assert_eq!(&after, before, "{question}");
    }
}

#[test]
fn who_waits_for_the_file_to_be_on_finds_its_first_rewrite_over() {
    let server = Server::start(&Options::shards(4));
    let mut client = server.raw();
    for _ in 0..10 {
        client.call("SET k v");
        check(&mut client, "CONFIG SET appendonly yes", "OK");
        let reply = client.call("WAITAOF 1 0 0").show();
        assert_eq!(reply, "1) (integer) 1\n2) (integer) 0");
        assert_eq!(info(&mut client, "aof_rewrite_in_progress"), "0");
        check(&mut client, "CONFIG SET appendonly no", "OK");
    }
}
