//! Keys that run out, by themselves and on access. Waits poll for what must come; no test asserts how fast.

use std::time::Duration;

use crate::support::{self, check};

#[test]
fn keys_go_by_themselves_and_are_counted() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let lines: Vec<String> = (0..500)
            .map(|index| format!("SET gone:{index} v PX {}", 50 + index % 100))
            .collect();
        raw.pipeline(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        check(&mut raw, "SET stays v", "OK");
        check(&mut raw, "SET later v EX 1000", "OK");
        support::eventually("all volatile keys are gone untouched", || {
            raw.call("DBSIZE").integer() == 2
        });
        let stats = raw.call("INFO stats").body();
        assert!(stats.contains("expired_keys:500\r\n"), "{stats}");
        let keyspace = raw.call("INFO keyspace").body();
        assert!(
            keyspace.contains("db0:keys=2,expires=1,avg_ttl="),
            "{keyspace}"
        );
    });
}

#[test]
fn an_expired_key_is_gone_for_every_command_though_not_yet_deleted() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "DEBUG SET-ACTIVE-EXPIRE 0", "OK");
        let set = |raw: &mut crate::wire::Raw| check(raw, "SET dead v PX 1", "OK");
        let cases = [
            ("GET dead", "(nil)"),
            ("EXISTS dead", "(integer) 0"),
            ("TTL dead", "(integer) -2"),
            ("TYPE dead", "none"),
            ("STRLEN dead", "(integer) 0"),
            ("MGET dead", "1) (nil)"),
            ("DEL dead", "(integer) 0"),
            ("EXPIRE dead 100", "(integer) 0"),
            ("PERSIST dead", "(integer) 0"),
            ("RENAME dead other", "(error) ERR no such key"),
            ("COPY dead other", "(integer) 0"),
            ("GETDEL dead", "(nil)"),
            ("TOUCH dead", "(integer) 0"),
            ("SET dead v XX", "(nil)"),
            ("OBJECT ENCODING dead", "(nil)"),
            ("KEYS *", "(empty array)"),
            ("RANDOMKEY", "(nil)"),
            ("BITCOUNT dead", "(integer) 0"),
            ("APPEND dead x", "(integer) 1"),
            ("INCR dead", "(integer) 1"),
            ("SETNX dead x", "(integer) 1"),
            ("GETSET dead x", "(nil)"),
            ("SETBIT dead 1 1", "(integer) 0"),
        ];
        for (line, expected) in cases {
            set(&mut raw);
            std::thread::sleep(Duration::from_millis(5));
            check(&mut raw, line, expected);
            raw.call("DEL dead");
        }
        check(&mut raw, "DEBUG SET-ACTIVE-EXPIRE 1", "OK");
    });
}

#[test]
fn a_deadline_moved_or_cleared_is_not_kept() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        for index in 0..200 {
            raw.call(&format!("SET moved:{index} v PX 60"));
        }
        for index in 0..200 {
            match index % 4 {
                0 => raw.call(&format!("PERSIST moved:{index}")),
                1 => raw.call(&format!("PEXPIRE moved:{index} 1000000")),
                2 => raw.call(&format!("SET moved:{index} w")),
                _ => raw.call(&format!("GETEX moved:{index} EX 5000")),
            };
        }
        let kept = raw.call("DBSIZE").integer();
        // On a very slow machine some had run out before they were moved; those that were not must stay.
        std::thread::sleep(Duration::from_millis(200));
        let left = raw.call("KEYS *").items().len() as i64;
        assert!(left == kept || left >= 150, "{left} of {kept} left");
        check(&mut raw, "FLUSHALL", "OK");
        check(&mut raw, "SET again v", "OK");
        std::thread::sleep(Duration::from_millis(50));
        check(&mut raw, "GET again", "\"v\"");
    });
}

#[test]
fn flushed_and_reused_names_do_not_inherit_deadlines() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        for round in 0..20 {
            for index in 0..20 {
                raw.call(&format!("SET name:{index} v{round} PX {}", 20 + index));
            }
            raw.call(if round % 2 == 0 {
                "FLUSHALL"
            } else {
                "FLUSHDB ASYNC"
            });
            for index in 0..20 {
                raw.call(&format!("SET name:{index} kept"));
            }
        }
        std::thread::sleep(Duration::from_millis(120));
        for index in 0..20 {
            check(&mut raw, &format!("GET name:{index}"), "\"kept\"");
        }
        check(&mut raw, "DBSIZE", "(integer) 20");
    });
}
