//! Measures that keep one client from stalling or starving others: long scans in slices, limits of output and
//! of all clients' memory, unread output, and memory that is given back.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use crate::support::{self, Options, Server, at_each_shard_count, check, info_number};
use crate::wire::Raw;

const DEBUG: (&str, &str) = ("enable-debug-command", "yes");

fn is_connected(raw: &mut Raw, name: &str) -> bool {
    raw.call("CLIENT LIST")
        .body()
        .contains(&format!("name={name} "))
}

#[test]
fn keys_answers_every_key_once_while_others_add_and_delete() {
    at_each_shard_count(|server| {
        let mut raw = server.raw();
        const STAY: usize = 30_000;
        let mset = |first: usize, prefix: &str| {
            let pairs: Vec<String> = (first..first + 1_000)
                .map(|index| format!("{prefix}{index} v"))
                .collect();
            format!("MSET {}", pairs.join(" "))
        };
        for first in (0..STAY).step_by(1_000) {
            check(&mut raw, &mset(first, "stay:"), "OK");
        }
        let port = server.port;
        let busy = std::thread::spawn(move || {
            let mut raw = Raw::connect(port);
            for _ in 0..3 {
                for first in (0..20_000).step_by(1_000) {
                    check(&mut raw, &mset(first, "go:"), "OK");
                }
                for index in 0..20_000 {
                    raw.call(&format!("DEL go:{index}"));
                }
            }
        });
        while !busy.is_finished() {
            let reply = raw.call("KEYS stay:*");
            let mut keys: Vec<String> = reply.items().iter().map(|key| key.text()).collect();
            assert_eq!(keys.len(), STAY);
            keys.sort();
            keys.dedup();
            assert_eq!(keys.len(), STAY, "each once");
        }
        busy.join().expect("no assertion inside");
        // In a transaction nothing runs in between, and the reply is the same.
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "KEYS stay:1234?", "QUEUED");
        let reply = raw.call("EXEC");
        assert_eq!(reply.items()[0].items().len(), 10);
    });
}

#[test]
fn the_largest_clients_go_when_all_take_too_much_but_for_those_that_may_stay() {
    let server = Server::start(&Options::shards(8));
    let mut raw = server.raw();
    check(&mut raw, "CLIENT NO-EVICT on", "OK");
    let begin = |name: &str, size: usize| {
        let mut client = server.raw();
        check(&mut client, &format!("CLIENT SETNAME {name}"), "OK");
        client.send(format!("*2\r\n$100000000\r\n{}", "x".repeat(size)).as_bytes());
        client
    };
    let mut spared = server.raw();
    check(&mut spared, "CLIENT SETNAME spared", "OK");
    check(&mut spared, "CLIENT NO-EVICT on", "OK");
    spared.send(format!("*2\r\n$100000000\r\n{}", "x".repeat(900_000)).as_bytes());
    let _small = begin("small", 100_000);
    let _large = begin("large", 700_000);
    let _medium = begin("medium", 300_000);
    support::eventually("all was read", || {
        let list = raw.call("CLIENT LIST").body();
        [
            "qbuf=100000 ",
            "qbuf=700000 ",
            "qbuf=300000 ",
            "qbuf=900000 ",
        ]
        .iter()
        .all(|field| list.contains(field))
    });
    let before = info_number(&mut raw, "stats", "evicted_clients");
    // Memory for a long argument is reserved before it arrives, so all clients are charged more than they
    // sent.
    let total = |raw: &mut Raw, name: &str| -> u64 {
        let list = raw.call("CLIENT LIST").body();
        let line = list
            .lines()
            .find(|line| line.contains(&format!("name={name} ")));
        let line = line.expect("it is connected").to_owned();
        let (_, rest) = line.split_once("tot-mem=").expect("a field");
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    };
    let limit = total(&mut raw, "small") + total(&mut raw, "medium") + 100_000;
    check(
        &mut raw,
        &format!("CONFIG SET maxmemory-clients {limit}"),
        "OK",
    );
    support::eventually("the largest is gone", || !is_connected(&mut raw, "large"));
    for name in ["small", "medium", "spared"] {
        assert!(is_connected(&mut raw, name), "{name}");
    }
    assert_eq!(
        info_number(&mut raw, "stats", "evicted_clients"),
        before + 1.0
    );
}

#[test]
fn a_reply_beyond_the_limit_closes_the_client_and_its_transaction_is_run_whole() {
    let server = Server::start(&Options::shards(8));
    let mut raw = server.raw();
    check(&mut raw, "SETRANGE large 200000 x", "(integer) 200001");
    check(
        &mut raw,
        "CONFIG SET client-output-buffer-limit \"normal 100000 0 0\"",
        "OK",
    );
    for lines in [
        &["GET large"][..],
        &[
            "MULTI",
            "SET done yes",
            "GET large",
            "SET after yes",
            "EXEC",
        ][..],
    ] {
        let mut client = server.raw();
        check(&mut client, "CLIENT SETNAME greedy", "OK");
        for line in lines {
            client.send(format!("{line}\r\n").as_bytes());
        }
        support::eventually("it is closed", || !is_connected(&mut raw, "greedy"));
    }
    check(&mut raw, "GET done", "\"yes\"");
    check(&mut raw, "GET after", "\"yes\"");
    let cut = info_number(
        &mut raw,
        "stats",
        "client_output_buffer_limit_disconnections",
    );
    assert!(cut >= 2.0, "{cut}");
}

#[test]
fn replies_that_are_not_taken_are_held_and_come_in_their_order() {
    let server = Server::start(&Options::shards(8));
    let mut raw = server.raw();
    for index in 0..10 {
        let size = 100_000 * (index + 1);
        check(
            &mut raw,
            &format!("SETRANGE large:{index} {size} x"),
            &format!("(integer) {}", size + 1),
        );
    }
    let mut lazy = server.raw();
    check(&mut lazy, "CLIENT SETNAME lazy", "OK");
    const ROUNDS: usize = 12;
    for round in 0..ROUNDS {
        for index in 0..10 {
            lazy.send(format!("GET large:{index}\r\nECHO {round}:{index}\r\n").as_bytes());
            if round == 0 {
                // Some are sent one by one, others as one batch.
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    support::eventually("much is held", || {
        let list = raw.call("CLIENT LIST").body();
        let line = list
            .lines()
            .find(|line| line.contains("name=lazy "))
            .map(str::to_owned);
        let line = line.expect("it is connected");
        let (_, rest) = line.split_once("tot-mem=").expect("a field");
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().expect("a number") > 10_000_000
    });
    for round in 0..ROUNDS {
        for index in 0..10 {
            let reply = lazy.read();
            assert_eq!(reply.bytes().len(), 100_000 * (index + 1) + 1);
            assert_eq!(lazy.read().text(), format!("{round}:{index}"));
        }
    }
    check(&mut lazy, "PING", "PONG");
}

#[test]
fn memory_is_given_back_after_most_keys_were_deleted() {
    let server = Server::start(&Options::shards(8).with(DEBUG.0, DEBUG.1));
    let mut raw = server.raw();
    check(&mut raw, "DEBUG POPULATE 300000 key 100", "OK");
    let full = server.resident_bytes();
    for index in (0..300_000).filter(|index| index % 10 != 0) {
        raw.send(format!("DEL key:{index}\r\n").as_bytes());
        if index % 1_000 == 999 {
            (0..900).for_each(|_| drop(raw.read()));
        }
    }
    let digest = raw.call("DEBUG DIGEST").text();
    support::eventually("much of what it has is free", || {
        info_number(&mut raw, "memory", "allocator_frag_ratio") > 1.5
    });
    for (name, value) in [
        ("active-defrag-ignore-bytes", "1mb"),
        ("active-defrag-threshold-lower", "5"),
        ("active-defrag-cycle-min", "50"),
        ("active-defrag-cycle-max", "75"),
        ("activedefrag", "yes"),
    ] {
        check(&mut raw, &format!("CONFIG SET {name} {value}"), "OK");
    }
    support::eventually("what is left was moved together", || {
        info_number(&mut raw, "memory", "active_defrag_running") == 0.0
            && info_number(&mut raw, "stats", "active_defrag_hits") > 1_000.0
            && info_number(&mut raw, "memory", "allocator_frag_ratio") < 1.3
    });
    assert_eq!(raw.call("DEBUG DIGEST").text(), digest);
    support::eventually("the system has it back", || {
        check(&mut raw, "MEMORY PURGE", "OK");
        server.resident_bytes() < full * 3 / 4
    });
}

/// Loads a set of `count` members, named by `prefix` and a number.
fn load_set(raw: &mut Raw, key: &str, prefix: &str, count: usize) {
    for first in (0..count).step_by(1_000) {
        let members: Vec<String> = (first..first + 1_000)
            .map(|index| format!("{prefix}{index}"))
            .collect();
        check(
            raw,
            &format!("SADD {key} {}", members.join(" ")),
            "(integer) 1000",
        );
    }
}

#[test]
fn commands_that_take_long_answer_in_order_and_see_what_was_sent_before() {
    at_each_shard_count(|server| {
        let mut raw = server.raw();
        load_set(&mut raw, "a", "member:", 20_000);
        load_set(&mut raw, "b", "other:", 10_000);
        raw.send(
            b"SADD a last\r\nSMEMBERS a\r\nSREM a last\r\nSUNIONSTORE c a b\r\nSCARD c\r\n\
              SUNIONSTORE c a b wrong\r\nSET wrong v\r\nSUNIONSTORE c a b wrong\r\nSCARD c\r\nCOPY c d\r\n\
              SMEMBERS a\r\nPING\r\n",
        );
        assert_eq!(raw.read().show(), "(integer) 1");
        let members = raw.read();
        let texts: Vec<String> = members.items().iter().map(|member| member.text()).collect();
        assert_eq!(texts.len(), 20_001);
        assert!(texts.iter().any(|text| text == "last"));
        for expected in [1, 30_000, 30_000, 30_000] {
            assert_eq!(raw.read().integer(), expected);
        }
        assert_eq!(raw.read().text(), "OK");
        assert!(raw.read().show().contains("WRONGTYPE"));
        for expected in [30_000, 1] {
            assert_eq!(raw.read().integer(), expected);
        }
        assert_eq!(raw.read().items().len(), 20_000);
        assert_eq!(raw.read().text(), "PONG");
    });
}

#[test]
fn others_use_the_shard_while_a_large_result_is_built() {
    let server = Server::start(&Options::shards(1).threads(2));
    let mut raw = server.raw();
    load_set(&mut raw, "a", "member:", 200_000);
    load_set(&mut raw, "b", "other:", 100_000);
    check(&mut raw, "ZUNIONSTORE z 1 a", "(integer) 200000");
    let mut other = server.raw();
    for (line, reply, count) in [
        ("SUNIONSTORE c a b", 300_000, "SCARD c"),
        ("SINTERSTORE c a a", 200_000, "SCARD c"),
        ("SDIFFSTORE c a b", 200_000, "SCARD c"),
        ("COPY a c REPLACE", 1, "SCARD c"),
        ("COPY z c REPLACE", 1, "ZCARD c"),
        ("ZUNIONSTORE c 2 a z", 200_000, "ZCARD c"),
        ("ZINTERSTORE c 2 a z", 200_000, "ZCARD c"),
        ("ZDIFFSTORE c 2 z b", 200_000, "ZCARD c"),
        ("ZRANGESTORE c z 0 -1", 200_000, "ZCARD c"),
        ("SORT a ALPHA STORE c", 200_000, "LLEN c"),
    ] {
        let is_over = AtomicBool::new(false);
        let served = thread::scope(|scope| {
            let counting = scope.spawn(|| {
                let mut served = 0;
                while !is_over.load(SeqCst) {
                    other.call("INCR n");
                    served += 1;
                }
                served
            });
            check(&mut raw, line, &format!("(integer) {reply}"));
            is_over.store(true, SeqCst);
            counting.join().expect("no assertion inside")
        });
        assert!(served >= 20, "{line}: {served} others were served");
        let stored = if line.starts_with("SUNION") {
            300_000
        } else {
            200_000
        };
        check(&mut raw, count, &format!("(integer) {stored}"));
    }
}

#[test]
fn a_set_operation_on_sets_that_change_all_the_time_is_still_one_step() {
    at_each_shard_count(|server| {
        let mut raw = server.raw();
        load_set(&mut raw, "a", "member:", 10_000);
        load_set(&mut raw, "b", "other:", 10_000);
        let is_over = AtomicBool::new(false);
        let mut other = server.raw();
        thread::scope(|scope| {
            // The member is always in exactly one of the two.
            scope.spawn(|| {
                other.call("SADD a moved");
                while !is_over.load(SeqCst) {
                    check(&mut other, "SMOVE a b moved", "(integer) 1");
                    check(&mut other, "SMOVE b a moved", "(integer) 1");
                }
            });
            support::eventually("it moves", || raw.call("SISMEMBER b moved").integer() == 1);
            for _ in 0..20 {
                check(&mut raw, "SUNIONSTORE c a b", "(integer) 20001");
                check(&mut raw, "SINTERSTORE c a b", "(integer) 0");
            }
            is_over.store(true, SeqCst);
        });
        check(&mut raw, "EXISTS c", "(integer) 0");
        assert_eq!(info_number(&mut raw, "clients", "total_watched_keys"), 0.0);
    });
}

#[test]
fn long_commands_in_transactions_and_scripts_run_apart_and_take_effect_once() {
    at_each_shard_count(|server| {
        let mut raw = server.raw();
        load_set(&mut raw, "a", "member:", 20_000);
        load_set(&mut raw, "b", "other:", 10_000);
        let apart = |raw: &mut Raw| info_number(raw, "stats", "script_runs_apart");
        let before = apart(&mut raw);
        raw.send(
            b"MULTI\r\nINCR n\r\nSADD a last\r\nSMEMBERS a\r\nSREM a last\r\nSUNIONSTORE c a b\r\n\
              EXEC\r\nGET n\r\nSCARD a\r\n",
        );
        assert_eq!(raw.read().text(), "OK");
        for _ in 0..5 {
            assert_eq!(raw.read().text(), "QUEUED");
        }
        let reply = raw.read();
        let [count, added, members, removed, stored] = reply.items() else {
            panic!("five replies, not {}", reply.show());
        };
        assert_eq!((count.integer(), added.integer()), (1, 1));
        assert_eq!(members.items().len(), 20_001);
        assert_eq!((removed.integer(), stored.integer()), (1, 30_000));
        assert_eq!(raw.read().text(), "1");
        assert_eq!(raw.read().integer(), 20_000);
        assert!(apart(&mut raw) > before, "it did not run where it was");

        let script = "redis.call('INCR', KEYS[1]) return #redis.call('SMEMBERS', KEYS[2])";
        let before = apart(&mut raw);
        assert_eq!(
            raw.command(&["EVAL", script, "2", "n", "a"]).integer(),
            20_000
        );
        check(&mut raw, "GET n", "\"2\"");
        assert!(apart(&mut raw) > before, "nor did the script");

        // An entry that was only expected to be slow stays out of the log, unless it really took long on this
        // machine.
        let stays = (3..100).find(|turn| {
            let before = apart(&mut raw);
            check(&mut raw, "MULTI", "OK");
            check(&mut raw, "INCR n", "QUEUED");
            check(&mut raw, "SRANDMEMBER a 3", "QUEUED");
            let reply = raw.call("EXEC");
            assert_eq!(reply.items()[0].integer(), *turn);
            assert_eq!(reply.items()[1].items().len(), 3);
            apart(&mut raw) == before
        });
        let turn = stays.expect("it stays");

        // Commands that are watched count wherever they run.
        let mut other = server.raw();
        check(&mut raw, "WATCH a", "OK");
        check(&mut other, "SADD a another", "(integer) 1");
        for words in ["MULTI", "INCR n", "SMEMBERS a"] {
            raw.call(words);
        }
        check(&mut raw, "EXEC", "(nil array)");
        check(&mut raw, "GET n", &format!("\"{turn}\""));
    });
}

#[test]
fn a_command_that_runs_apart_counts_once() {
    at_each_shard_count(|server| {
        let mut raw = server.raw();
        load_set(&mut raw, "a", "member:", 20_000);
        load_set(&mut raw, "b", "other:", 10_000);
        check(&mut raw, "CONFIG RESETSTAT", "OK");
        assert_eq!(raw.call("SMEMBERS a").items().len(), 20_000);
        assert_eq!(raw.call("SUNION a nosuch b").items().len(), 30_000);
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "SMEMBERS b", "QUEUED");
        assert_eq!(raw.call("EXEC").items()[0].items().len(), 10_000);
        assert_eq!(info_number(&mut raw, "stats", "keyspace_hits"), 4.0);
        assert_eq!(info_number(&mut raw, "stats", "keyspace_misses"), 1.0);
        // RESETSTAT itself, SMEMBERS twice, SUNION, MULTI, EXEC, and both INFO before.
        assert_eq!(
            info_number(&mut raw, "stats", "total_commands_processed"),
            8.0
        );
        let calls = raw.call("INFO commandstats").body();
        for (name, count) in [("smembers", 2), ("sunion", 1)] {
            let line = format!("cmdstat_{name}:calls={count},");
            assert!(calls.contains(&line), "{calls}");
        }
    });
}

#[test]
fn a_command_that_runs_apart_tells_of_a_miss_once() {
    at_each_shard_count(|server| {
        let (mut raw, mut subscriber) = (server.raw(), server.raw());
        load_set(&mut raw, "a", "member:", 20_000);
        check(&mut raw, "CONFIG SET notify-keyspace-events Em", "OK");
        subscriber.call("PSUBSCRIBE __keyevent@*");
        assert_eq!(raw.call("SUNION a nosuch").items().len(), 20_000);
        let heard = crate::events::heard(&mut subscriber, &mut raw);
        assert_eq!(heard, ["keymiss nosuch"]);
    });
}

#[test]
fn what_takes_long_in_another_database_of_a_transaction_runs_apart() {
    at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "SELECT 3", "OK");
        load_set(&mut raw, "a", "member:", 20_000);
        check(&mut raw, "SELECT 0", "OK");
        let before = info_number(&mut raw, "stats", "script_runs_apart");
        for words in ["MULTI", "SELECT 99", "SMEMBERS a", "SELECT 3", "SMEMBERS a"] {
            raw.call(words);
        }
        let reply = raw.call("EXEC");
        assert!(reply.items()[0].is_error());
        assert_eq!(reply.items()[1].items().len(), 0);
        assert_eq!(reply.items()[3].items().len(), 20_000);
        check(&mut raw, "EXISTS a", "(integer) 1");
        assert!(info_number(&mut raw, "stats", "script_runs_apart") > before);
    });
}

/// Runs `work` for six clients at once, eight rounds each, with their numbers.
fn by_six_clients_eight_times(server: &Server, work: fn(&mut Raw, usize, i64)) {
    let port = server.port;
    let client = |client| {
        std::thread::spawn(move || {
            let mut raw = Raw::connect(port);
            (0..8).for_each(|round| work(&mut raw, client, round));
        })
    };
    let clients: Vec<_> = (0..6).map(client).collect();
    for client in clients {
        client.join().expect("no assertion inside");
    }
}

#[test]
fn long_transactions_of_many_clients_happen_once_each() {
    at_each_shard_count(|server| {
        let mut raw = server.raw();
        load_set(&mut raw, "source", "member:", 10_000);
        by_six_clients_eight_times(server, |raw, client, round| {
            let long = match client % 3 {
                0 => "SMEMBERS source".to_owned(),
                1 => format!("SUNIONSTORE copy:{client}:{round} source"),
                _ => "KEYS *".to_owned(),
            };
            for words in ["MULTI", "INCR n", &long, &format!("INCR n:{client}")] {
                raw.call(words);
            }
            let reply = raw.call("EXEC");
            assert_eq!(reply.items().len(), 3, "{}", reply.show());
            assert_eq!(reply.items()[2].integer(), round + 1);
        });
        check(&mut raw, "GET n", "\"48\"");
    });
}

#[test]
fn long_commands_of_many_clients_change_nothing_twice_and_lose_nothing() {
    at_each_shard_count(|server| {
        let mut raw = server.raw();
        load_set(&mut raw, "source", "member:", 10_000);
        by_six_clients_eight_times(server, |raw, client, round| {
            match client % 3 {
                0 => assert_eq!(raw.call("SMEMBERS source").items().len(), 10_000),
                1 => check(
                    raw,
                    &format!("SUNIONSTORE copy:{client}:{round} source"),
                    "(integer) 10000",
                ),
                _ => check(raw, "COPY source target REPLACE", "(integer) 1"),
            }
            check(
                raw,
                &format!("APPEND log:{client} x"),
                &format!("(integer) {}", round + 1),
            );
        });
        for client in [1, 4] {
            for round in 0..8 {
                check(
                    &mut raw,
                    &format!("SCARD copy:{client}:{round}"),
                    "(integer) 10000",
                );
            }
        }
        check(&mut raw, "SCARD target", "(integer) 10000");
    });
}
