//! Resource use of each database, and the service that its clients get.

use crate::operating::Killed;
use crate::support::{self, Options, Server, check, is_stand_in};
use crate::wire::Raw;

/// Returns a figure of a database: Redis's figures from INFO keyspace, the others from INFO databases.
fn figure(raw: &mut Raw, db: usize, name: &str) -> i64 {
    let line = match name {
        "keys" | "expires" => support::info_field(raw, "keyspace", &format!("db{db}")),
        _ => support::info_field(raw, "databases", &format!("database{db}")),
    };
    let mut pairs = line.split(',').filter_map(|pair| pair.split_once('='));
    let found = pairs.find(|(field, _)| *field == name);
    let (_, value) = found.unwrap_or_else(|| panic!("{name} is not in {line}"));
    value.parse().expect("a number")
}

#[test]
fn each_database_has_figures_of_its_own() {
    if is_stand_in() {
        return;
    }
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "DEBUG SET-ACTIVE-EXPIRE 0", "OK");
        check(&mut raw, "MSET a 1 b 2", "OK");
        check(&mut raw, "SELECT 3", "OK");
        check(&mut raw, &format!("SET big {}", "x".repeat(5_000)), "OK");
        check(&mut raw, "SET short v PX 1", "OK");
        for line in ["GET big", "GET big", "EXISTS big none", "GET none"] {
            raw.call(line);
        }
        support::eventually("the key is gone", || raw.call("GET short").is_nil());
        let of = |raw: &mut Raw, db| {
            ["keys", "expires", "hits", "misses", "expired", "evicted"]
                .map(|name| figure(raw, db, name))
        };
        let [keys, expires, hits, misses, expired, evicted] = of(&mut raw, 3);
        assert_eq!([keys, expires, hits, expired, evicted], [1, 0, hits, 1, 0]);
        assert!(hits >= 3 && misses >= 3, "{hits} {misses}");
        assert_eq!(of(&mut raw, 0), [2, 0, 0, 0, 0, 0]);
        let (first, other) = (figure(&mut raw, 0, "bytes"), figure(&mut raw, 3, "bytes"));
        assert!(other > first + 4_000, "{first} {other}");
        // Figures of data go with the data, counts stay with the number.
        check(&mut raw, "SWAPDB 0 3", "OK");
        assert_eq!(figure(&mut raw, 0, "bytes"), other);
        assert_eq!(figure(&mut raw, 3, "bytes"), first);
        assert_eq!(figure(&mut raw, 3, "hits"), hits);
        // Changes of a script that were rolled back are not counted, nor are they counted twice when it runs
        // again.
        check(&mut raw, "SELECT 0", "OK");
        let script =
            "redis.call('GET','big'); redis.call('SELECT',3); redis.call('GET','a'); return 1";
        check(&mut raw, &format!("EVAL \"{script}\" 0"), "(integer) 1");
        assert_eq!(figure(&mut raw, 0, "hits"), 1);
        assert_eq!(figure(&mut raw, 3, "hits"), hits + 1);
        let all = support::info_field(&mut raw, "stats", "keyspace_hits");
        assert_eq!(all, (hits + 2).to_string());
        check(&mut raw, "MOVE big 3", "(integer) 1");
        let moved = figure(&mut raw, 3, "bytes");
        assert!(moved > first + 4_000, "{first} {moved}");
        check(&mut raw, "CONFIG RESETSTAT", "OK");
        assert_eq!(figure(&mut raw, 3, "hits"), 0);
        check(&mut raw, "FLUSHDB", "OK");
        let keyspace = raw.call("INFO keyspace").body();
        assert!(!keyspace.contains("db0:"), "{keyspace}");
    });
}

#[test]
fn metrics_tell_databases_apart() {
    if is_stand_in() {
        return;
    }
    let port = support::free_port();
    let options = Options::shards(8).with("metrics-port", &port.to_string());
    let server = Server::start(&options.with("maxmemory-policy", "allkeys-random"));
    let mut raw = server.raw();
    check(&mut raw, "SELECT 2", "OK");
    check(&mut raw, "DEBUG POPULATE 5000 key 200", "OK");
    check(
        &mut raw,
        "GET key:7",
        &format!("\"value:7{}\"", "\\x00".repeat(193)),
    );
    raw.call("GET none");
    let before = support::info_field(&mut raw, "memory", "used_memory");
    let limit = before.parse::<i64>().expect("a number") - 400_000;
    check(&mut raw, &format!("CONFIG SET maxmemory {limit}"), "OK");
    support::eventually("keys go", || figure(&mut raw, 2, "evicted") > 100);
    let page = support::http(port, "/metrics");
    let value = |name: &str, db: usize| -> f64 {
        let series = format!("{name}{{db=\"db{db}\"}} ");
        let mut lines = page.lines().filter_map(|line| line.strip_prefix(&series));
        let value = lines.next().unwrap_or_else(|| panic!("no {series}"));
        value.parse().expect("a number")
    };
    assert!(value("basalt_db_bytes", 2) > 400_000.0);
    assert_eq!(value("basalt_db_hits_total", 2), 1.0);
    assert_eq!(value("basalt_db_misses_total", 2), 1.0);
    assert!(value("basalt_db_evicted_keys_total", 2) > 100.0);
    for name in [
        "basalt_db_bytes",
        "basalt_db_hits_total",
        "basalt_db_evicted_keys_total",
        "basalt_db_expired_keys_total",
    ] {
        assert_eq!(value(name, 0), 0.0, "{name}");
    }
}

/// Returns the error of a database that has used up its share.
fn refused(db: usize) -> String {
    format!(
        "(error) OOM command not allowed when used memory of database {db} > its share in 'maxmemory-db'."
    )
}

#[test]
fn a_database_that_has_used_up_its_share_is_refused_by_name_and_no_other() {
    if is_stand_in() {
        return;
    }
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "SET kept v", "OK");
        check(&mut raw, &format!("SET large {}", "x".repeat(3_000)), "OK");
        check(&mut raw, "SELECT 2", "OK");
        check(&mut raw, &format!("SET full {}", "x".repeat(3_000)), "OK");
        check(&mut raw, "CONFIG SET maxmemory-db \"2 1kb\"", "OK");
        check(&mut raw, "SET more v", &refused(2));
        check(&mut raw, "MSET a 1 b 2", &refused(2));
        check(&mut raw, "GET full", &format!("\"{}\"", "x".repeat(3_000)));
        // Wherever a command comes from that would add to it.
        check(&mut raw, "SELECT 0", "OK");
        check(&mut raw, "COPY large copy DB 2", &refused(2));
        check(&mut raw, "MOVE large 2", &refused(2));
        check(&mut raw, "COPY large copy DB 3", "(integer) 1");
        check(&mut raw, "MOVE kept 3", "(integer) 1");
        let in_script =
            raw.call("EVAL \"redis.call('SELECT', 2) return redis.call('SET', 'k', 'v')\" 0");
        assert!(
            in_script.show().contains(&refused(2)[8..]),
            "{}",
            in_script.show()
        );
        for line in ["MULTI", "SET before v", "SELECT 2", "SET in v"] {
            raw.call(line);
        }
        let aborted = format!(
            "(error) EXECABORT Transaction discarded because of: {}",
            &refused(2)[8..]
        );
        check(&mut raw, "EXEC", &aborted);
        check(&mut raw, "EXISTS before", "(integer) 0");
        check(&mut raw, "SELECT 2", "OK");
        check(&mut raw, "EXISTS k in copy", "(integer) 0");
        // Deleting, flushing or swapping frees memory of the share, and so does a larger share.
        check(&mut raw, "SWAPDB 2 5", "OK");
        check(&mut raw, "SET more v", "OK");
        check(&mut raw, "SWAPDB 2 5", "OK");
        // A shard that was granted a part of the share meanwhile gives it back within a round of the background.
        support::eventually("it is full again", || {
            raw.call("SET more v").show() == refused(2)
        });
        check(&mut raw, "CONFIG SET maxmemory-db \"2 100mb\"", "OK");
        check(&mut raw, "SET more v", "OK");
        check(&mut raw, "CONFIG SET maxmemory-db \"2 1kb\"", "OK");
        check(&mut raw, "FLUSHDB", "OK");
        check(&mut raw, "SET more v", "OK");
        let errors = support::info_field(&mut raw, "errorstats", "errorstat_OOM");
        assert!(errors.starts_with("count="), "{errors}");
    });
}

#[test]
fn under_load_one_database_evicts_from_itself_and_the_other_loses_nothing() {
    if is_stand_in() {
        return;
    }
    const SHARE: i64 = 4 << 20;
    for policy in ["allkeys-lru", "allkeys-random", "volatile-ttl"] {
        let options = Options::shards(16).with("maxmemory-policy", policy);
        let options = options.with("maxmemory", "200mb");
        let server = Server::start(&options.with("maxmemory-db", "1 2%"));
        let mut raw = server.raw();
        let shown = raw.call("CONFIG GET maxmemory-db").items()[1].text();
        assert_eq!(shown, "1 2%");
        check(&mut raw, "DEBUG POPULATE 5000 kept 100", "OK");
        let share = figure(&mut raw, 0, "share");
        assert_eq!(share, 0);
        let load = |number: usize| {
            let mut raw = server.raw();
            raw.call("SELECT 1");
            for batch in 0..40 {
                let lines: Vec<String> = (0..500)
                    .map(|at| {
                        let value = "x".repeat(100 + 400 * (at % 3));
                        format!("SET key:{number}:{batch}:{at} {value} EX 1000")
                    })
                    .collect();
                let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                let replies = raw.pipeline(&lines);
                assert!(replies.iter().all(|reply| reply.show() == "OK"));
            }
        };
        std::thread::scope(|scope| {
            for number in 0..2 {
                scope.spawn(move || load(number));
            }
            // As they write, and not only afterwards.
            for _ in 0..20 {
                raw.call("SELECT 1");
                raw.call("SET one more EX 1000");
                let bytes = figure(&mut raw, 1, "bytes");
                assert!(bytes <= SHARE + SHARE / 32 + 64_000, "{policy}: {bytes}");
            }
        });
        assert_eq!(figure(&mut raw, 1, "share"), 200 * 1024 * 1024 / 50);
        support::eventually("what is owed is paid", || {
            figure(&mut raw, 1, "bytes") <= SHARE
        });
        assert!(figure(&mut raw, 1, "evicted") > 10_000, "{policy}");
        assert_eq!(figure(&mut raw, 0, "evicted"), 0, "{policy}");
        assert_eq!(figure(&mut raw, 0, "keys"), 5_000, "{policy}");
    }
}

#[test]
fn shares_are_said_as_other_directives_are() {
    if is_stand_in() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let (file, port) = (dir.path().join("shares.conf"), support::free_port());
    let text = format!(
        "port {port}\nmetrics-port 0\nshards 2\nsave \"\"\nmaxmemory-db 1 2gb\nmaxmemory-db 17 10%\ndatabases 20\n"
    );
    std::fs::write(&file, &text).expect("a file");
    // A share of a database that there is not ends the start.
    let few = dir.path().join("few.conf");
    std::fs::write(&few, text.replace("databases 20", "databases 17")).expect("a file");
    let refused = support::command().arg(&few).output().expect("it runs");
    let said = [refused.stdout, refused.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    let reason = "database 17 does not exist: databases is 17";
    assert!(!refused.status.success() && said.contains(reason), "{said}");
    let mut command = support::command();
    command
        .arg(&file)
        .current_dir(dir.path())
        .stdout(std::process::Stdio::null());
    let mut server = Killed(command.spawn().expect("a server"));
    support::eventually("it listens", || support::is_listening(port));
    let mut raw = Raw::connect(port);
    let get = |raw: &mut Raw| raw.call("CONFIG GET maxmemory-db").items()[1].text();
    assert_eq!(get(&mut raw), "1 2147483648 17 10%");
    let failed = "(error) ERR CONFIG SET failed (possibly related to argument 'maxmemory-db') - ";
    for (value, reason) in [
        ("1", "argument must be pairs of a database and its share"),
        ("x 1mb", "DB index is out of range"),
        ("1 much", "argument must be a memory or percent value"),
        ("1 200%", "percentage argument must be less or equal to 100"),
        ("20 1mb", "database 20 does not exist: databases is 20"),
    ] {
        let line = format!("CONFIG SET maxmemory-db \"{value}\"");
        check(&mut raw, &line, &format!("{failed}{reason}"));
        assert_eq!(get(&mut raw), "1 2147483648 17 10%", "nothing was set");
    }
    check(&mut raw, "CONFIG SET maxmemory-db \"3 5mb 1 1%\"", "OK");
    check(&mut raw, "CONFIG REWRITE", "OK");
    let written = std::fs::read_to_string(&file).expect("it is there");
    let is_share = |line: &&str| line.starts_with("maxmemory-db ");
    let shares: Vec<&str> = written.lines().filter(is_share).collect();
    assert_eq!(shares, ["maxmemory-db 1 1% 3 5mb"], "{written}");
    check(&mut raw, "CONFIG SET maxmemory-db \"\"", "OK");
    assert_eq!(get(&mut raw), "");
    raw.send_unchecked(b"SHUTDOWN NOSAVE\r\n");
    assert!(raw.read_to_close().is_empty());
    assert!(server.0.wait().expect("its end").success());
}

#[test]
fn a_replica_leaves_shares_to_its_primary() {
    if is_stand_in() {
        return;
    }
    let primary = Server::start(&Options::shards(4).with("maxmemory-policy", "allkeys-lru"));
    let replica = Options::shards(4).with("maxmemory-policy", "allkeys-lru");
    let replica = Server::start(&replica.with("maxmemory-db", "1 100kb"));
    let (mut at_primary, mut at_replica) = (primary.raw(), replica.raw());
    let follow = format!("REPLICAOF 127.0.0.1 {}", primary.port);
    check(&mut at_replica, &follow, "OK");
    support::eventually("it follows", || {
        support::info_field(&mut at_replica, "replication", "master_link_status") == "up"
    });
    check(&mut at_primary, "SELECT 1", "OK");
    for number in 0..3_000 {
        check(
            &mut at_primary,
            &format!("SET key:{number} {}", "x".repeat(100)),
            "OK",
        );
    }
    support::eventually("the replica has all keys", || {
        let keyspace = at_replica.call("INFO keyspace").body();
        keyspace.contains("db1:keys=3000,")
    });
    assert_eq!(figure(&mut at_replica, 1, "evicted"), 0);
    // As its own primary, it applies its configured shares; keys that a primary evicts are removed at its
    // replica too.
    check(&mut at_replica, "REPLICAOF NO ONE", "OK");
    support::eventually("the share is kept to", || {
        figure(&mut at_replica, 1, "bytes") <= 100 * 1024
    });
    check(&mut at_replica, &follow, "OK");
    check(&mut at_primary, "CONFIG SET maxmemory-db \"1 200kb\"", "OK");
    support::eventually("both have the same keys", || {
        let keys = figure(&mut at_primary, 1, "keys");
        keys < 3_000
            && at_replica
                .call("INFO keyspace")
                .body()
                .contains(&format!("db1:keys={keys},"))
    });
}
