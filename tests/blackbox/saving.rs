//! Snapshots: SAVE, BGSAVE, save points, the last save at shutdown, and errors when saving is impossible.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use crate::support::{Draw, Options, Oracle, Server, check, eventually, info_field, is_stand_in};
use crate::wire::{Raw, encode};

/// Returns a figure of INFO.
fn figure(client: &mut Raw, name: &str) -> String {
    info_field(client, "persistence", name)
}

fn until_saved(client: &mut Raw) {
    eventually("the snapshot is done", || {
        figure(client, "rdb_bgsave_in_progress") == "0"
    });
    assert_eq!(figure(client, "rdb_last_bgsave_status"), "ok");
}

/// Starts this server with its data in a folder.
fn ours_in(dir: &Path) -> Server {
    let dir = dir.to_str().expect("a plain path");
    let server = Server::start(&Options::shards(8).with("dir", dir));
    let mut client = server.raw();
    eventually("the data are loaded", || !client.call("DBSIZE").is_error());
    server
}

/// Creates values of every type and encoding.
fn fill(client: &mut Raw) {
    let mut draw = Draw::new(7);
    for index in 0..3_000 {
        client.call(&format!(
            "SET plain:{index} {}",
            "v".repeat(draw.below(200))
        ));
        client.call(&format!("SET number:{index} {index} EX 100000"));
    }
    for (name, count) in [("small", 5), ("large", 2_500)] {
        for index in 0..count {
            client.call(&format!("RPUSH list:{name} element:{index}"));
            client.call(&format!("SADD set:{name} member:{index}"));
            client.call(&format!("SADD intset:{name} {index}"));
            client.call(&format!("HSET hash:{name} field:{index} value:{index}"));
            client.call(&format!("ZADD ranking:{name} {index}.5 member:{index}"));
            client.call(&format!(
                "XADD stream:{name} {}-1 field value:{index}",
                index + 1
            ));
        }
        client.call(&format!("XGROUP CREATE stream:{name} group 0"));
        client.call(&format!(
            "XREADGROUP GROUP group me COUNT 3 STREAMS stream:{name} >"
        ));
    }
    client.call(&format!("SET long {}", "abcdefgh".repeat(20_000)));
    client.call(&format!("RPUSH longs {}", "xy".repeat(50_000)));
    client.call("PEXPIREAT list:small 4000000000000");
    client.call("PFADD counted a b c d");
    client.call("SELECT 5");
    client.call("SET elsewhere 1");
    client.call("SELECT 0");
    client.call(
        "FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('f', function() return 7 end)\"",
    );
}

#[test]
fn what_is_saved_is_loaded_by_redis_server_and_by_us() {
    if is_stand_in() {
        return;
    }
    let server = Server::start(&Options::shards(8));
    let mut client = server.raw();
    fill(&mut client);
    let digest = client.call("DEBUG DIGEST").text();
    check(&mut client, "SAVE", "OK");
    check(&mut client, "DEBUG RELOAD", "OK");
    assert_eq!(client.call("DEBUG DIGEST").text(), digest);
    check(&mut client, "CONFIG SET rdbcompression no", "OK");
    check(&mut client, "DEBUG RELOAD", "OK");
    assert_eq!(client.call("DEBUG DIGEST").text(), digest);
    check(&mut client, "FCALL f 0", "(integer) 7");
    let again = ours_in(&server.dir());
    assert_eq!(again.raw().call("DEBUG DIGEST").text(), digest);
    check(&mut again.raw(), "FCALL f 0", "(integer) 7");
    if let Some(oracle) = Oracle::start_in(&server.dir()) {
        let mut theirs = oracle.0.raw();
        assert_eq!(theirs.call("DEBUG DIGEST").text(), digest);
        check(&mut theirs, "FCALL f 0", "(integer) 7");
        // And the reverse: their file, loaded here.
        check(&mut theirs, "SAVE", "OK");
        let again = ours_in(&server.dir());
        assert_eq!(again.raw().call("DEBUG DIGEST").text(), digest);
    }
}

const ACCOUNTS: usize = 400;
const EACH: i64 = 1_000;

/// Moves money between two accounts until it is stopped, and records each move in lists.
fn transfers(server: &Server, seed: u64, stop: &AtomicBool) {
    let (mut client, mut draw) = (server.raw(), Draw::new(seed));
    while !stop.load(Relaxed) {
        let (from, to) = (draw.below(ACCOUNTS), draw.below(ACCOUNTS));
        let amount = draw.below(100);
        let lines = [
            "MULTI".to_owned(),
            format!("DECRBY account:{from} {amount}"),
            format!("INCRBY account:{to} {amount}"),
            format!("RPUSH moves:{} {amount}", draw.below(20)),
            format!("ZADD ranking {amount} {from}"),
            "EXEC".to_owned(),
        ];
        let requests: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        client.send(requests.as_bytes());
        for _ in &lines {
            let reply = client.read();
            assert!(!reply.is_error(), "{}", reply.show());
        }
    }
}

/// Returns the sum of all accounts, and the number of recorded moves.
fn sum(client: &mut Raw) -> (i64, i64) {
    let names: Vec<String> = (0..ACCOUNTS)
        .map(|index| format!("account:{index}"))
        .collect();
    let script = "local sum, moves = 0, 0 \
                  for _, key in ipairs(KEYS) do sum = sum + redis.call('GET', key) end \
                  for at = 0, 19 do moves = moves + redis.call('LLEN', 'moves:' .. at) end \
                  return {sum, moves}";
    let reply = client.call(&format!("EVAL \"{script}\" {ACCOUNTS} {}", names.join(" ")));
    let shown = reply.show();
    let numbers: Vec<i64> = shown
        .lines()
        .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
        .collect();
    assert_eq!(numbers.len(), 2, "{shown}");
    (numbers[0], numbers[1])
}

/// Transfers between accounts of many shards go on while snapshots are made: each shows all of the money, and one
/// moment.
#[test]
fn every_snapshot_under_load_shows_one_moment() {
    if is_stand_in() {
        return;
    }
    let server = Server::start(&Options::shards(8));
    let mut client = server.raw();
    for index in 0..ACCOUNTS {
        client.call(&format!("SET account:{index} {EACH}"));
    }
    check(&mut client, "DEBUG POPULATE 20000 filler 100", "OK");
    let stop = AtomicBool::new(false);
    let loaded = thread::scope(|scope| {
        for seed in 0..3 {
            let (server, stop) = (&server, &stop);
            scope.spawn(move || transfers(server, seed, stop));
        }
        let mut loaded = Vec::new();
        for round in 0..6 {
            let copy = tempfile::tempdir().expect("a folder");
            let before = sum(&mut client);
            assert!(
                client
                    .call("BGSAVE")
                    .text()
                    .starts_with("Background saving started")
            );
            let after = sum(&mut client);
            until_saved(&mut client);
            std::fs::copy(server.dir().join("dump.rdb"), copy.path().join("dump.rdb"))
                .expect("the snapshot is there");
            loaded.push((round, before.1, after.1, copy));
        }
        stop.store(true, Relaxed);
        loaded
    });
    let total = ACCOUNTS as i64 * EACH;
    for (round, before, after, copy) in &loaded {
        let (found, moves) = sum(&mut ours_in(copy.path()).raw());
        assert_eq!(found, total, "round {round}");
        assert!(
            (*before..=*after).contains(&moves),
            "round {round}: {moves}"
        );
        if let Some(oracle) = Oracle::start_in(copy.path()) {
            assert_eq!(sum(&mut oracle.0.raw()), (found, moves), "round {round}");
        }
    }
}

#[test]
fn one_snapshot_at_a_time() {
    let server = Server::start(&Options::shards(4));
    let mut client = server.raw();
    check(&mut client, "DEBUG POPULATE 200", "OK");
    check(&mut client, "CONFIG SET rdb-key-save-delay 100000", "OK");
    let saves = figure(&mut client, "rdb_saves");
    check(&mut client, "BGSAVE", "Background saving started");
    let busy = "(error) ERR Background save already in progress";
    check(&mut client, "BGSAVE", busy);
    check(&mut client, "BGSAVE SCHEDULE", busy);
    check(&mut client, "SAVE", busy);
    assert_eq!(figure(&mut client, "rdb_bgsave_in_progress"), "1");
    check(&mut client, "SET beside 1", "OK");
    // Flushed data need no save.
    check(&mut client, "FLUSHALL", "OK");
    eventually("the snapshot is given up", || {
        figure(&mut client, "rdb_bgsave_in_progress") == "0"
    });
    assert_eq!(figure(&mut client, "rdb_last_bgsave_status"), "ok");
    assert_eq!(figure(&mut client, "rdb_saves"), saves);
    let names = std::fs::read_dir(server.dir()).expect("the folder");
    let is_rdb = |name: &str| name.ends_with(".rdb");
    let left: Vec<String> = names
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .filter(|name| is_rdb(name))
        .collect();
    assert_eq!(left, [""; 0], "nothing is left of it");
    check(&mut client, "CONFIG SET rdb-key-save-delay 0", "OK");
    for line in ["MULTI", "BGSAVE", "LASTSAVE"] {
        client.call(line);
    }
    let reply = client.call("EXEC").show();
    assert!(reply.contains("Background saving scheduled"), "{reply}");
    eventually("it comes to its turn", || {
        server.dir().join("dump.rdb").is_file()
    });
}

#[test]
fn save_points_have_it_saved() {
    let server = Server::start(&Options::default());
    let mut client = server.raw();
    check(&mut client, "CONFIG SET save \"1 3\"", "OK");
    check(&mut client, "MSET a 1 b 2", "OK");
    check(&mut client, "SET c 3", "OK");
    eventually("it is saved", || server.dir().join("dump.rdb").is_file());
    until_saved(&mut client);
    assert_eq!(figure(&mut client, "rdb_changes_since_last_save"), "0");
    let log = server.log();
    assert!(log.contains("changes in 1 seconds. Saving..."), "{log}");
    assert!(
        log.contains("Background saving terminated with success"),
        "{log}"
    );
}

#[test]
fn flushall_empties_the_file_where_there_are_save_points() {
    let server = Server::start(&Options::shards(4));
    let mut client = server.raw();
    check(&mut client, "SET a 1", "OK");
    check(&mut client, "SAVE", "OK");
    check(&mut client, "CONFIG SET save \"100000 1\"", "OK");
    let file = server.dir().join("dump.rdb");
    let full = std::fs::read(&file).expect("the snapshot");
    check(&mut client, "FLUSHALL", "OK");
    eventually("the file is as empty as the server", || {
        std::fs::read(&file).is_ok_and(|bytes| bytes.len() < full.len())
    });
}

/// A folder has the snapshot's name, so that it cannot be written.
#[test]
fn writes_are_refused_while_nothing_can_be_saved() {
    let server = Server::start(&Options::shards(4));
    let mut client = server.raw();
    let file = server.dir().join("dump.rdb");
    std::fs::create_dir(&file).expect("a folder");
    check(&mut client, "SET a 1", "OK");
    check(&mut client, "BGSAVE", "Background saving started");
    eventually("it fails", || {
        figure(&mut client, "rdb_last_bgsave_status") == "err"
    });
    // Without save points no client relies on snapshots.
    check(&mut client, "SET a 2", "OK");
    check(&mut client, "CONFIG SET save \"100000 1\"", "OK");
    for line in [
        "SET a 3",
        "PING",
        "EVAL \"return redis.call('SET', KEYS[1], 4)\" 1 a",
    ] {
        let reply = client.call(line).show();
        assert!(reply.contains("MISCONF"), "{line}: {reply}");
    }
    check(&mut client, "MULTI", "OK");
    let reply = client.call("SET a 5").show();
    assert!(reply.contains("MISCONF"), "{reply}");
    let reply = client.call("EXEC").show();
    assert!(reply.contains("EXECABORT"), "{reply}");
    check(&mut client, "GET a", "\"2\"");
    check(
        &mut client,
        "CONFIG SET stop-writes-on-bgsave-error no",
        "OK",
    );
    check(&mut client, "SET a 6", "OK");
    check(
        &mut client,
        "CONFIG SET stop-writes-on-bgsave-error yes",
        "OK",
    );
    assert_eq!(client.call("SAVE").show(), "(error) ERR");
    let reply = client.call("SHUTDOWN").show();
    assert_eq!(reply, "(error) ERR Errors trying to SHUTDOWN. Check logs.");
    std::fs::remove_dir(&file).expect("nothing is in it");
    check(&mut client, "BGSAVE", "Background saving started");
    until_saved(&mut client);
    check(&mut client, "SET a 7", "OK");
    check(&mut client, "PING", "PONG");
}

#[test]
fn the_end_saves_where_there_are_save_points() {
    for (how, is_saved) in [
        ("SHUTDOWN", true),
        ("SHUTDOWN NOSAVE", false),
        ("SIGTERM", true),
    ] {
        let mut server = Server::start(&Options::shards(4));
        let mut client = server.raw();
        check(&mut client, "CONFIG SET save \"100000 1\"", "OK");
        check(&mut client, "SET a 1", "OK");
        match how {
            "SIGTERM" => server.signal("TERM"),
            _ => client.send(format!("{how}\r\n").as_bytes()),
        }
        assert_eq!(server.wait_for_exit(), Some(0), "{how}");
        assert_eq!(server.dir().join("dump.rdb").is_file(), is_saved, "{how}");
        if is_saved && !is_stand_in() {
            check(&mut ours_in(&server.dir()).raw(), "GET a", "\"1\"");
        }
    }
}

#[test]
fn keys_behind_long_strings_stay_in_their_database() {
    const DBS: usize = 6;
    const KEYS: usize = 120;
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = Options::shards(8)
        .with("dir", &dir.path().display().to_string())
        .with("rdbcompression", "no");
    let server = Server::start(&options);
    let mut client = server.raw();
    let long = "x".repeat(20_000);
    for db in 0..DBS {
        client.call(&format!("SELECT {db}"));
        for key in 0..KEYS {
            let value = if key % 3 == 0 { "short" } else { &long };
            check(&mut client, &format!("SET {db}:{key} {value}"), "OK");
        }
    }
    for round in 0..5 {
        check(&mut client, "DEBUG RELOAD", "OK");
        for db in 0..DBS {
            client.call(&format!("SELECT {db}"));
            let names: Vec<String> = (0..KEYS).map(|key| format!("{db}:{key}")).collect();
            let there = client.call(&format!("EXISTS {}", names.join(" ")));
            assert_eq!(there.integer(), KEYS as i64, "database {db}, round {round}");
        }
    }
}

#[test]
fn what_changes_before_its_turn_is_counted() {
    const LEN: usize = 4_000;
    let server = Server::start(&Options::shards(4));
    let mut client = server.raw();
    for index in 0..200 {
        client.call(&format!("SET key:{index} {}", "x".repeat(LEN)));
    }
    check(&mut client, "CONFIG SET rdb-key-save-delay 20000", "OK");
    check(&mut client, "BGSAVE", "Background saving started");
    // At least one of two has not had its turn.
    for index in 0..200 {
        client.call(&format!("SETRANGE key:{index} 0 y"));
    }
    eventually("it is told while the snapshot runs", || {
        let copied: usize = figure(&mut client, "current_cow_size")
            .parse()
            .expect("bytes");
        copied > 100 * LEN
    });
    assert_eq!(figure(&mut client, "rdb_bgsave_in_progress"), "1");
    let done = figure(&mut client, "current_save_keys_processed");
    assert!(done.parse::<usize>().expect("keys") > 100);
    check(&mut client, "CONFIG SET rdb-key-save-delay 0", "OK");
    until_saved(&mut client);
    let last: usize = figure(&mut client, "rdb_last_cow_size")
        .parse()
        .expect("bytes");
    assert!((100 * LEN..400 * LEN).contains(&last), "{last}");
    // Removing the delay ends a wait for it.
    check(&mut client, "CONFIG SET rdb-key-save-delay 600000000", "OK");
    check(&mut client, "BGSAVE", "Background saving started");
    assert_eq!(figure(&mut client, "rdb_bgsave_in_progress"), "1");
    check(&mut client, "CONFIG SET rdb-key-save-delay 0", "OK");
    until_saved(&mut client);
    assert_eq!(figure(&mut client, "rdb_last_cow_size"), "0");
    let forks = client.call("INFO stats").text();
    assert!(forks.contains("total_forks:2\r\n"), "{forks}");
}

/// Fills a large collection of each type that is saved in pieces, under names of many shards.
fn fill_large(client: &mut Raw) {
    for from in (0..15_000).step_by(500) {
        let each = |form: &dyn Fn(i32) -> String| -> String {
            let all: Vec<String> = (from..from + 500).map(form).collect();
            all.join(" ")
        };
        let members = each(&|index| format!("member:{index}"));
        client.call(&format!("RPUSH list {members}"));
        client.call(&format!("SADD set {members}"));
        let fields = each(&|index| format!("field:{index} value:{index}"));
        client.call(&format!("HSET hash {fields}"));
        let scores = each(&|index| format!("{index} member:{index}"));
        client.call(&format!("ZADD ranking {scores}"));
        let adds =
            (from..from + 500).map(|index| format!("XADD stream {}-1 f {index}\r\n", index + 1));
        client.send(adds.collect::<String>().as_bytes());
        (0..500).for_each(|_| drop(client.read()));
    }
    client.call("XGROUP CREATE stream group 0");
    client.call("XREADGROUP GROUP group me COUNT 9000 STREAMS stream >");
    client.call(&format!("RPUSH list {}", "long".repeat(20_000)));
    client.call(&format!("HSET hash long {}", "value".repeat(20_000)));
}

#[test]
fn large_collections_that_change_and_leave_while_they_are_saved_are_those_of_the_cut() {
    if is_stand_in() {
        return;
    }
    for ending in ["DEL", "FLUSHDB", "none"] {
        let server = Server::start(&Options::shards(8));
        let (mut client, mut saver) = (server.raw(), server.raw());
        // No other snapshot replaces the one that is looked at.
        check(&mut client, "CONFIG SET save \"\"", "OK");
        fill_large(&mut client);
        let digest = client.call("DEBUG DIGEST").text();
        let mut draw = Draw::new(5);
        check(&mut saver, "BGSAVE", "Background saving started");
        let names = ["list", "set", "hash", "ranking", "stream"];
        let mut rounds = 0;
        while figure(&mut saver, "rdb_bgsave_in_progress") == "1" {
            let at = draw.below(15_000);
            for suffix in ["", "!", "?"] {
                for line in [
                    format!("LSET list{suffix} {} x", draw.below(9_000)),
                    format!("RPOP list{suffix} 10"),
                    format!("SREM set{suffix} member:{at}"),
                    format!("HDEL hash{suffix} field:{at} long"),
                    format!("ZADD ranking{suffix} 1 member:{at} 2 new:{at}"),
                    format!("XDEL stream{suffix} {at}-1"),
                    format!("XACK stream{suffix} group {at}-1"),
                ] {
                    client.call(&line);
                }
            }
            for name in names {
                let (from, to) = (["", "!", "?"][draw.below(3)], ["", "!", "?"][draw.below(3)]);
                client.call(&format!("RENAMENX {name}{from} {name}{to}"));
            }
            rounds += 1;
            if rounds == 3 {
                match ending {
                    "DEL" => drop(client.call("DEL list set! hash? ranking stream list! stream?")),
                    "FLUSHDB" => drop(client.call("FLUSHDB")),
                    _ => {}
                }
            }
        }
        assert_eq!(figure(&mut saver, "rdb_last_bgsave_status"), "ok");
        assert!(rounds > 0, "the snapshot took longer than a round");
        let again = ours_in(&server.dir());
        assert_eq!(again.raw().call("DEBUG DIGEST").text(), digest, "{ending}");
        if let Some(oracle) = Oracle::start_in(&server.dir()) {
            let mut theirs = oracle.0.raw();
            eventually("the data are loaded", || !theirs.call("DBSIZE").is_error());
            assert_eq!(theirs.call("DEBUG DIGEST").text(), digest, "{ending}");
        }
    }
}

/// Adds to a large sketch of each type.
fn count(client: &mut Raw, draw: &mut Draw) {
    let mut some = |suffix: &str| -> String {
        let names = (0..40).map(|_| format!(" {}{suffix}", draw.below(1_000_000)));
        names.collect()
    };
    for line in [
        format!("BF.MADD bloom{}", some("")),
        format!("CF.INSERT cuckoo ITEMS{}", some("")),
        format!("CMS.INCRBY count-min{}", some(" 3")),
        format!("TOPK.ADD top-k{}", some("")),
        format!("TDIGEST.ADD t-digest{}", some("")),
    ] {
        let answer = client.call(&line);
        assert!(!answer.is_error(), "{line}: {answer:?}");
    }
}

#[test]
fn large_sketches_that_change_while_they_are_saved_are_those_of_the_cut() {
    if is_stand_in() {
        return;
    }
    let server = Server::start(&Options::shards(8));
    let (mut client, mut saver) = (server.raw(), server.raw());
    check(&mut client, "CONFIG SET save \"\"", "OK");
    for line in [
        "BF.RESERVE bloom 0.001 400000",
        "CF.RESERVE cuckoo 600000",
        "CMS.INITBYDIM count-min 50000 5",
        "TOPK.RESERVE top-k 10 20000 5 0.9",
        "TDIGEST.CREATE t-digest COMPRESSION 5000",
    ] {
        check(&mut client, line, "OK");
    }
    let mut draw = Draw::new(11);
    (0..600).for_each(|_| count(&mut client, &mut draw));
    // Data that make the snapshot's walk take long.
    for index in 0..200 {
        check(&mut client, &format!("SET small:{index} {index}"), "OK");
    }
    let digest = client.call("DEBUG DIGEST").text();
    check(&mut client, "CONFIG SET rdb-key-save-delay 5000", "OK");
    check(&mut saver, "BGSAVE", "Background saving started");
    let mut rounds = 0;
    while figure(&mut saver, "rdb_bgsave_in_progress") == "1" {
        count(&mut client, &mut draw);
        rounds += 1;
        match rounds {
            3 => check(&mut client, "RENAME bloom another", "OK"),
            4 => check(&mut client, "RENAME another bloom", "OK"),
            5 => check(
                &mut client,
                "CMS.MERGE count-min 1 count-min WEIGHTS 2",
                "OK",
            ),
            6 => drop(client.call("TDIGEST.QUANTILE t-digest 0.5")),
            _ => {}
        }
    }
    assert_eq!(figure(&mut saver, "rdb_last_bgsave_status"), "ok");
    assert!(rounds > 6, "the snapshot was over after {rounds} rounds");
    assert_ne!(client.call("DEBUG DIGEST").text(), digest);
    let again = ours_in(&server.dir());
    assert_eq!(again.raw().call("DEBUG DIGEST").text(), digest);
}

#[test]
fn an_end_without_a_save_waits_for_no_script_that_holds_up_what_is_being_saved() {
    let script =
        "redis.log(redis.LOG_WARNING, 'it runs') redis.call('SET', KEYS[1], 1) while true do end";
    // The number of shards, a directive at the start, the requests before the script runs and while it does,
    // and the log's message once it waits for the script.
    let rewrites = "append only file rewriting started";
    for (shards, directive, before, meanwhile, waits) in [
        (1, "save 1 1", "PING", "PING", "Background saving started"),
        (1, "rdb-key-save-delay 1000000", "BGSAVE", "PING", "it runs"),
        (1, "save ", "PING", "CONFIG SET appendonly yes", rewrites),
        (4, "save ", "PING", "CONFIG SET appendonly yes", rewrites),
        (
            4,
            "save ",
            "PING",
            "CONFIG SET save \"1 1\"",
            "Background saving started",
        ),
    ] {
        let (name, value) = directive.split_once(' ').expect("a value");
        let options = Options::shards(shards).threads(2).with(name, value);
        let mut server = Server::start(&options.with("busy-reply-threshold", "1500"));
        let mut client = server.raw();
        client.call("MSET a 1 b 2 c 3");
        assert!(!client.call(before).is_error());
        let mut runs = server.raw();
        runs.send(&encode(&["EVAL", script, "1", "k"]));
        eventually("the script runs", || server.log().contains("it runs"));
        client.send(format!("{meanwhile}\r\n").as_bytes());
        eventually(waits, || server.log().contains(waits));
        let mut asks = server.raw();
        eventually("the script is busy", || asks.call("PING").is_error());
        asks.send_unchecked(b"SHUTDOWN NOSAVE\r\n");
        assert_eq!(server.wait_for_exit(), Some(0), "{}", server.log());
    }
}
