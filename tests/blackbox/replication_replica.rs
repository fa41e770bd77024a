//! basalt as a replica of redis-server: data and offsets equal the primary's, and only its stream changes
//! anything.

use std::time::Duration;

use crate::replicated::{Writer, await_link, follow, info, settle};
use crate::support::{Options, Oracle, Server, at_each_shard_count, check, eventually};

#[test]
fn a_replica_has_what_redis_server_has() {
    let Some(Oracle(primary)) = Oracle::start() else {
        return;
    };
    let load =
        "FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('f', function() return 1 end)\"";
    assert!(!primary.raw().call(load).is_error());
    Writer::new(&primary, 1).write(2000);
    at_each_shard_count(|replica| {
        replica.raw().call("MSET mine 1 too 2");
        follow(replica, &primary);
        Writer::new(&primary, 2).write(4000);
        settle(&[&primary, replica]);
        let mut client = replica.raw();
        check(
            &mut client,
            "FCALL_RO f 0",
            "(error) READONLY You can't write against a read only replica.",
        );
        check(&mut client, "EXISTS mine too", "(integer) 0");
        let role = client.call("ROLE");
        assert_eq!(role.items()[0].text(), "slave");
        assert_eq!(role.items()[3].text(), "connected");
        assert_eq!(info(&mut client, "role"), "slave");
        let flags = client.call("CLIENT LIST TYPE master").body();
        assert!(flags.contains(" flags=M"), "{flags}");
    });
}

#[test]
fn a_replica_with_save_points_goes_on_behind_the_deletion_of_all_data() {
    let primary = Server::start(&Options::shards(8).with("repl-diskless-sync-delay", "0"));
    for threads in [1, 4] {
        let options = Options::shards(8).threads(threads);
        let mut replica = Server::start(&options.with("save", "3600 1000"));
        let mut control = primary.raw();
        control.call("SET before 1");
        follow(&replica, &primary);
        let mut client = replica.raw();
        check(&mut control, "FLUSHALL", "OK");
        control.call("SET behind 1");
        check(&mut control, "WAIT 1 60000", "(integer) 1");
        check(&mut client, "EXISTS before behind", "(integer) 1");
        eventually("it is saved as empty as it was", || {
            info(&mut client, "rdb_saves") == "1"
        });
        settle(&[&primary, &replica]);
        client.send_unchecked(b"SHUTDOWN\r\n");
        assert_eq!(replica.wait_for_exit(), Some(0));
    }
}

#[test]
fn a_cut_link_goes_on_where_it_was() {
    let Some(Oracle(primary)) = Oracle::start() else {
        return;
    };
    let replica = Server::start(&Options::shards(8).threads(2));
    let mut control = primary.raw();
    control.call("CONFIG SET repl-diskless-sync-delay 0 repl-backlog-size 100mb");
    follow(&replica, &primary);
    let mut writer = Writer::new(&primary, 3);
    for round in 0..10 {
        writer.write(1000);
        match round % 2 {
            0 => control.call("CLIENT KILL TYPE slave"),
            _ => replica.raw().call("CLIENT KILL TYPE master"),
        };
        writer.write(300);
        await_link(&replica);
    }
    settle(&[&primary, &replica]);
    assert_eq!(info(&mut control, "sync_full"), "1");
    // Two cuts may be one to the replica.
    let partial: u32 = info(&mut control, "sync_partial_ok")
        .parse()
        .expect("a number");
    assert!((5..=10).contains(&partial), "{partial}");
}

#[test]
fn signals_while_a_snapshot_comes_do_not_end_the_link() {
    let Some(Oracle(primary)) = Oracle::start() else {
        return;
    };
    let mut control = primary.raw();
    control.call("CONFIG SET repl-diskless-sync-delay 0 rdbcompression no");
    control.call("DEBUG POPULATE 300 key 20000");
    for load in ["disabled", "on-empty-db", "swapdb"] {
        // With the watchdog on there is a handler for the signal.
        let options = Options::shards(8).threads(2).with("watchdog-period", "500");
        let replica = Server::start(&options.with("repl-diskless-load", load));
        let mut client = replica.raw();
        let before = info(&mut control, "sync_full");
        control.call("CONFIG SET rdb-key-save-delay 3000");
        client.call(&format!("REPLICAOF 127.0.0.1 {}", primary.port));
        let mut signals = 0;
        eventually("the link is up", || {
            replica.signal("ALRM");
            signals += usize::from(info(&mut client, "master_sync_in_progress") == "1");
            info(&mut client, "master_link_status") == "up"
        });
        assert!(signals > 5, "{load}: {signals} signals while it came");
        control.call("CONFIG SET rdb-key-save-delay 0");
        settle(&[&primary, &replica]);
        let count = |text: String| text.parse::<u32>().expect("a count");
        let after = info(&mut control, "sync_full");
        assert_eq!(count(after), count(before) + 1, "{load}");
    }
}

#[test]
fn a_replica_is_written_to_by_its_primary_only() {
    let Some(Oracle(mut primary)) = Oracle::start() else {
        return;
    };
    let replica = Server::start(&Options::shards(8));
    primary.raw().call("SET k v");
    follow(&replica, &primary);
    let mut client = replica.raw();
    let read_only = "(error) READONLY You can't write against a read only replica.";
    check(&mut client, "SET k mine", read_only);
    check(&mut client, "GET k", "\"v\"");
    check(&mut client, "MULTI", "OK");
    check(&mut client, "DEL k", read_only);
    assert!(client.call("EXEC").show().contains("EXECABORT"));
    let script = client.call("EVAL \"return redis.call('SET','k','x')\" 1 k");
    assert!(
        script.text().starts_with("READONLY You can't write"),
        "{}",
        script.show()
    );
    check(&mut client, "EVAL \"#!lua\\nreturn 1\" 0", read_only);
    check(&mut client, "MULTI", "OK");
    check(&mut client, "EVAL \"#!lua\\nreturn 1\" 0", read_only);
    check(
        &mut client,
        "EVAL \"#!lua flags=no-writes\\nreturn 1\" 0",
        "QUEUED",
    );
    check(&mut client, "EVAL \"return 1\" 0", "QUEUED");
    assert!(client.call("EXEC").show().contains("EXECABORT"));
    check(
        &mut client,
        "EVAL \"return redis.call('GET','k')\" 1 k",
        "\"v\"",
    );
    primary.signal("KILL");
    primary.wait_for_exit();
    eventually("the link is down", || {
        info(&mut client, "master_link_status") == "down"
    });
    check(&mut client, "GET k", "\"v\"");
    check(&mut client, "CONFIG SET replica-serve-stale-data no", "OK");
    let stale =
        "(error) MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
    check(&mut client, "GET k", stale);
    check(&mut client, "EVAL \"return 1\" 0", stale);
    check(
        &mut client,
        "EVAL \"#!lua flags=no-writes\\nreturn 1\" 0",
        stale,
    );
    // Scripts are checked first for whether they may write.
    check(&mut client, "EVAL \"#!lua\\nreturn 1\" 0", read_only);
    check(
        &mut client,
        "EVAL \"#!lua flags=allow-stale,no-writes\\nreturn 1\" 0",
        "(integer) 1",
    );
    assert!(!client.call("INFO").is_error());
    check(&mut client, "REPLICAOF NO ONE", "OK");
    check(&mut client, "SET k mine", "OK");
    check(&mut client, "GET k", "\"mine\"");
    assert_eq!(info(&mut client, "role"), "master");
}

#[test]
fn keys_expire_when_the_primary_says_so_and_are_hidden_before() {
    let Some(Oracle(primary)) = Oracle::start() else {
        return;
    };
    let replica = Server::start(&Options::shards(8));
    let (mut there, mut here) = (primary.raw(), replica.raw());
    there.call("DEBUG SET-ACTIVE-EXPIRE 0");
    follow(&replica, &primary);
    there.call("MSET a 1 b 2 n 5");
    there.call("PEXPIRE a 50");
    there.call("PEXPIRE n 50");
    std::thread::sleep(Duration::from_millis(120));
    settle(&[&primary, &replica]);
    for (line, reply) in [
        ("GET a", "(nil)"),
        ("EXISTS a b", "(integer) 1"),
        ("TTL a", "(integer) -2"),
        ("DBSIZE", "(integer) 3"),
        ("KEYS *", "1) \"b\""),
        ("RANDOMKEY", "\"b\""),
        ("CONFIG SET replica-read-only no", "OK"),
        // A replica's client that writes to an expired key begins with an absent one.
        ("INCR n", "(integer) 1"),
        ("CONFIG SET replica-read-only yes", "OK"),
    ] {
        check(&mut here, line, reply);
    }
    there.call("GET a");
    eventually("the primary has it deleted", || {
        here.call("DBSIZE").integer() == 2
    });
}

#[test]
fn clients_that_wait_are_let_go_when_the_role_changes() {
    let Some(Oracle(primary)) = Oracle::start() else {
        return;
    };
    let replica = Server::start(&Options::shards(8));
    let mut waiting = replica.raw();
    waiting.send(b"*3\r\n$5\r\nBLPOP\r\n$1\r\nk\r\n$1\r\n0\r\n");
    let mut client = replica.raw();
    eventually("it waits", || info(&mut client, "blocked_clients") == "1");
    follow(&replica, &primary);
    let reply = waiting.read().show();
    let text = "(error) UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
    assert_eq!(reply, text);
    assert!(waiting.is_closed());
    // Clients that only read go on waiting.
    waiting = replica.raw();
    waiting.send(
        b"*6\r\n$5\r\nXREAD\r\n$5\r\nBLOCK\r\n$1\r\n0\r\n$7\r\nSTREAMS\r\n$1\r\nx\r\n$1\r\n$\r\n",
    );
    eventually("it waits", || info(&mut client, "blocked_clients") == "1");
    primary.raw().call("XADD x 1-1 a b");
    assert!(waiting.read().show().contains("1-1"));
}

#[test]
fn the_file_of_a_replica_has_what_the_primary_sent() {
    let Some(Oracle(primary)) = Oracle::start() else {
        return;
    };
    let options = Options::shards(8).with("appendonly", "yes");
    let mut replica = Server::start(&options);
    replica.raw().call("SET mine 1");
    Writer::new(&primary, 5).write(1000);
    follow(&replica, &primary);
    Writer::new(&primary, 6).write(2000);
    // Deadlines would pass while the file is loaded.
    for db in 0..3 {
        let persist = format!(
            "EVAL \"redis.call('SELECT',{db}) for _,k in ipairs(redis.call('KEYS','*')) do redis.call('PERSIST',k) end\" 0"
        );
        assert!(!primary.raw().call(&persist).is_error());
    }
    // Keys that were over by then count in a digest until the primary deletes them.
    eventually("nothing has a deadline", || {
        let keyspace = primary.raw().call("INFO keyspace").show();
        keyspace.matches("expires=").count() == keyspace.matches("expires=0,").count()
    });
    settle(&[&primary, &replica]);
    let mut client = replica.raw();
    eventually("the rewrite is over", || {
        info(&mut client, "aof_rewrite_in_progress") == "0"
            && info(&mut client, "aof_rewrite_scheduled") == "0"
    });
    let digest = client.call("DEBUG DIGEST").show();
    let dir = replica.dir();
    check(&mut client, "CONFIG SET appendonly no", "OK");
    replica.signal("KILL");
    replica.wait_for_exit();
    let again = options.with("dir", dir.to_str().expect("a plain path"));
    let again = Server::start(&again);
    let mut client = again.raw();
    eventually("it is loaded", || info(&mut client, "loading") == "0");
    check(&mut client, "EXISTS mine", "(integer) 0");
    assert_eq!(client.call("DEBUG DIGEST").show(), digest);
}

#[test]
fn a_chain_has_the_same_data_and_goes_on_behind_whoever_is_promoted() {
    let Some(Oracle(first)) = Oracle::start() else {
        return;
    };
    let Some(Oracle(last)) = Oracle::start() else {
        return;
    };
    // The writes here exceed a backlog of the usual size, and a replica that lags by all of it needs them.
    let options = Options::shards(8)
        .with("repl-diskless-sync-delay", "0")
        .with("repl-backlog-size", "100mb");
    let (second, third) = (Server::start(&options), Server::start(&options));
    first
        .raw()
        .call("CONFIG SET repl-diskless-sync-delay 0 repl-backlog-size 100mb");
    follow(&second, &first);
    // The stream has selected a database; a replica that connects now does not learn that from the stream.
    let mut client = first.raw();
    client.call("SELECT 2");
    client.call("SET before 1");
    settle(&[&first, &second]);
    follow(&third, &second);
    follow(&last, &second);
    client.call("SET behind 1");
    settle(&[&first, &second, &third, &last]);
    second.signal("STOP");
    Writer::new(&first, 21).write(1500);
    second.signal("CONT");
    for peer in ["master", "replica"] {
        second.raw().call(&format!("CLIENT KILL TYPE {peer}"));
        Writer::new(&first, 22).write(300);
    }
    settle(&[&first, &second, &third, &last]);
    check(&mut second.raw(), "REPLICAOF NO ONE", "OK");
    for replica in [&third, &last] {
        await_link(replica);
    }
    Writer::new(&second, 23).write(500);
    settle(&[&second, &third, &last]);
    let mut promoted = second.raw();
    assert_eq!(info(&mut promoted, "sync_full"), "2", "each came once");
    assert_eq!(info(&mut promoted, "connected_slaves"), "2");
    assert_eq!(
        info(&mut promoted, "master_replid"),
        info(&mut last.raw(), "master_replid")
    );
}

#[test]
fn a_replica_and_a_primary_go_on_with_their_stream_when_they_start_again() {
    let options = Options::shards(8).with("repl-diskless-sync-delay", "0");
    let primary = Server::start(&options);
    let mut replica = Server::start(&options);
    Writer::new(&primary, 31).write(500);
    follow(&replica, &primary);
    Writer::new(&primary, 32).write(500);
    settle(&[&primary, &replica]);
    replica.raw().send_unchecked(b"SHUTDOWN SAVE\r\n");
    replica.wait_for_exit();
    Writer::new(&primary, 33).write(50);
    let dir = replica.dir();
    let dir = dir.to_str().expect("a plain path");
    let again = options
        .clone()
        .with("dir", dir)
        .with("replicaof", &format!("127.0.0.1 {}", primary.port));
    let again = Server::start(&again);
    await_link(&again);
    settle(&[&primary, &again]);
    let mut client = primary.raw();
    assert_eq!(info(&mut client, "sync_full"), "1");
    assert_eq!(info(&mut client, "sync_partial_ok"), "1");
    drop(client);
    let (mut primary, port) = (primary, again.port);
    primary.raw().send_unchecked(b"SHUTDOWN SAVE\r\n");
    primary.wait_for_exit();
    let dir = primary.dir();
    let back = options
        .port(primary.port)
        .with("dir", dir.to_str().expect("a plain path"));
    let back = Server::start(&back);
    await_link(&again);
    Writer::new(&back, 34).write(200);
    settle(&[&back, &again]);
    let mut client = back.raw();
    assert_eq!(info(&mut client, "sync_full"), "0", "of {port}");
    assert_eq!(info(&mut client, "sync_partial_ok"), "1");
}

#[test]
fn a_replica_takes_the_place_of_its_primary() {
    let options = Options::shards(8).with("repl-diskless-sync-delay", "0");
    let (one, other) = (Server::start(&options), Server::start(&options));
    follow(&other, &one);
    Writer::new(&one, 41).write(500);
    let mut client = one.raw();
    let refused = [
        ("FAILOVER ABORT", "(error) ERR No failover in progress."),
        (
            "FAILOVER TO 127.0.0.1 1",
            "(error) ERR FAILOVER target HOST and PORT is not a replica.",
        ),
        (
            "FAILOVER FORCE",
            "(error) ERR FAILOVER with force option requires both a timeout and target HOST and IP.",
        ),
    ];
    for (line, reply) in refused {
        check(&mut client, line, reply);
    }
    let line = format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 60000", other.port);
    check(&mut client, &line, "OK");
    await_link(&one);
    assert_eq!(info(&mut client, "role"), "slave");
    assert_eq!(info(&mut client, "master_failover_state"), "no-failover");
    assert_eq!(info(&mut other.raw(), "role"), "master");
    check(
        &mut client,
        "FAILOVER",
        "(error) ERR FAILOVER is not valid when server is a replica.",
    );
    Writer::new(&other, 42).write(300);
    settle(&[&one, &other]);
    assert_eq!(info(&mut other.raw(), "sync_full"), "0");
    assert_eq!(info(&mut other.raw(), "sync_partial_ok"), "1");
}

#[test]
fn waitaof_counts_replicas_whose_file_is_on_the_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let primary = Server::start(&Options::shards(8).with("repl-diskless-sync-delay", "0"));
    let replica = Server::start(
        &Options::shards(8)
            .with("appendonly", "yes")
            .with("dir", &folder.path().display().to_string()),
    );
    follow(&replica, &primary);
    let mut client = primary.raw();
    for round in 0..3 {
        client.call(&format!("SET k {round}"));
        let reply = client.call("WAITAOF 0 1 10000").show();
        assert_eq!(reply, "1) (integer) 0\n2) (integer) 1", "round {round}");
    }
    check(&mut replica.raw(), "CONFIG SET appendonly no", "OK");
    client.call("SET k more");
    check(
        &mut client,
        "WAITAOF 0 1 1500",
        "1) (integer) 0\n2) (integer) 0",
    );
}

/// Starts a primary, and a replica that has caught up with it.
fn pair(options: &Options) -> (Server, Server) {
    let primary = Server::start(&Options::shards(4).with("repl-diskless-sync-delay", "0"));
    let replica = Server::start(options);
    primary.raw().call("SET k v");
    follow(&replica, &primary);
    settle(&[&primary, &replica]);
    (primary, replica)
}

#[test]
fn a_replica_whose_data_differ_ends_where_that_is_wanted() {
    for behavior in ["ignore", "panic", "panic-on-replicas"] {
        let options = Options::shards(4).with("propagation-error-behavior", behavior);
        let (primary, mut replica) = pair(&options);
        check(&mut primary.raw(), "DEBUG REPLICATE LPUSH k x", "OK");
        if behavior == "ignore" {
            let mut client = replica.raw();
            eventually("it is counted", || {
                info(&mut client, "unexpected_error_replies") == "1"
            });
            continue;
        }
        assert!(replica.wait_for_exit().is_some_and(|status| status != 0));
        let text = "This replica panicked sending an error to its master after processing the command 'lpush'";
        assert!(replica.log().contains(text), "{}", replica.log());
    }
}

#[test]
fn an_append_only_file_that_does_not_fit_ends_the_server_where_that_is_wanted() {
    let mut server = Server::start(&Options::shards(4).with("appendonly", "yes"));
    let mut client = server.raw();
    check(&mut client, "SET k v", "OK");
    check(
        &mut client,
        "WAITAOF 1 0 0",
        "1) (integer) 1\n2) (integer) 0",
    );
    let file = server.dir().join("appendonlydir/appendonly.aof.1.incr.aof");
    let add = |text: &str| {
        let before = std::fs::read(&file).expect("the file");
        std::fs::write(&file, [&before, text.as_bytes()].concat()).expect("it is written");
    };
    add("*3\r\n$5\r\nLPUSH\r\n$1\r\nk\r\n$1\r\nx\r\n");
    check(
        &mut client,
        "CONFIG SET propagation-error-behavior panic-on-replicas",
        "OK",
    );
    check(&mut client, "CONFIG SET aof-load-errors continue", "OK");
    check(&mut client, "DEBUG LOADAOF", "OK");
    check(
        &mut client,
        "CONFIG SET propagation-error-behavior panic",
        "OK",
    );
    client.send(b"DEBUG LOADAOF\r\n");
    assert!(server.wait_for_exit().is_some_and(|status| status != 0));
    let text = "This server panicked sending an error to its AOF-loading-client after processing the command 'lpush'";
    assert!(server.log().contains(text), "{}", server.log());
}

#[test]
fn a_replica_that_cannot_save_what_its_primary_writes_goes_on_or_ends() {
    for ignores in ["yes", "no"] {
        let options = Options::shards(4).with("replica-ignore-disk-write-errors", ignores);
        let (primary, mut replica) = pair(&options);
        let mut client = replica.raw();
        // A folder stands where the snapshot is to go.
        let file = replica.dir().join("dump.rdb");
        let _ = std::fs::remove_file(&file);
        std::fs::create_dir(&file).expect("a folder");
        check(&mut client, "CONFIG SET save \"100000 1\"", "OK");
        check(&mut client, "BGSAVE", "Background saving started");
        eventually("it fails", || {
            info(&mut client, "rdb_last_bgsave_status") == "err"
        });
        check(&mut primary.raw(), "SET k w", "OK");
        if ignores == "yes" {
            settle(&[&primary, &replica]);
            continue;
        }
        assert!(replica.wait_for_exit().is_some_and(|status| status != 0));
        let text = "Replica was unable to write command to disk.";
        assert!(replica.log().contains(text), "{}", replica.log());
    }
}

#[test]
fn a_pause_of_writes_holds_the_stream_back_which_comes_all_the_same() {
    let (primary, replica) = pair(&Options::shards(4));
    let (mut above, mut client) = (primary.raw(), replica.raw());
    check(&mut client, "CLIENT PAUSE 600000 WRITE", "OK");
    check(&mut above, "SET k paused", "OK");
    let offset = info(&mut above, "master_repl_offset");
    eventually("it has come", || {
        info(&mut client, "slave_read_repl_offset") == offset
    });
    let applied = info(&mut client, "slave_repl_offset");
    assert!(applied.parse::<u64>().expect("an offset") < offset.parse().expect("an offset"));
    check(&mut client, "GET k", "\"v\"");
    check(&mut above, "WAIT 1 50", "(integer) 0");
    check(&mut client, "CLIENT UNPAUSE", "OK");
    settle(&[&primary, &replica]);
    check(&mut client, "GET k", "\"paused\"");
}
