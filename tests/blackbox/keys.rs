//! Keys over all shards: scans, whole-database commands, renames from shard to shard, 16 databases.

use std::collections::BTreeSet;

use redis::Commands;

use crate::support::{self, check};
use crate::wire::{Raw, Value};

fn walk(raw: &mut Raw, options: &str) -> Vec<Vec<u8>> {
    let mut cursor = "0".to_owned();
    let mut found = Vec::new();
    for _ in 0..100_000 {
        let reply = raw.call(&format!("SCAN {cursor} {options}"));
        found.extend(
            reply.items()[1]
                .items()
                .iter()
                .map(|key| key.bytes().to_vec()),
        );
        cursor = reply.items()[0].text();
        if cursor == "0" {
            return found;
        }
    }
    panic!("SCAN does not end");
}

#[test]
fn a_walk_returns_every_key_that_stays_while_others_come_and_go() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let mut other = server.raw();
        let lines: Vec<String> = (0..3000)
            .map(|index| format!("SET stay:{index} v"))
            .collect();
        raw.pipeline(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let mut cursor = "0".to_owned();
        let mut found = BTreeSet::new();
        let mut step = 0;
        loop {
            let reply = raw.call(&format!("SCAN {cursor} COUNT 50"));
            found.extend(reply.items()[1].items().iter().map(|key| key.text()));
            cursor = reply.items()[0].text();
            // The table grows and shrinks under the walk.
            let mut lines: Vec<String> = (0..200)
                .map(|index| format!("SET go:{step}:{index} v"))
                .collect();
            if step > 2 {
                lines.extend((0..200).map(|index| format!("DEL go:{}:{index}", step - 2)));
            }
            other.pipeline(&lines.iter().map(String::as_str).collect::<Vec<_>>());
            step += 1;
            if cursor == "0" {
                break;
            }
            assert!(step < 20_000, "the walk does not end");
        }
        for index in 0..3000 {
            assert!(
                found.contains(&format!("stay:{index}")),
                "stay:{index} was there throughout"
            );
        }
    });
}

#[test]
fn a_walk_in_peace_returns_each_key_once_and_filters() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let lines: Vec<String> = (0..1000).map(|index| format!("SET w:{index} v")).collect();
        raw.pipeline(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        for count in [1, 10, 100, 5000] {
            let found = walk(&mut raw, &format!("COUNT {count}"));
            assert_eq!(found.len(), 1000);
            assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 1000);
        }
        assert_eq!(walk(&mut raw, "MATCH w:1?").len(), 10);
        assert_eq!(walk(&mut raw, "MATCH w:77 COUNT 1000").len(), 1);
        assert_eq!(walk(&mut raw, "TYPE string").len(), 1000);
        assert_eq!(walk(&mut raw, "TYPE list").len(), 0);
        let Value::Array(keys) = raw.call("KEYS *") else {
            panic!("KEYS answers an array")
        };
        assert_eq!(keys.len(), 1000);
        check(&mut raw, "DBSIZE", "(integer) 1000");
    });
}

#[test]
fn rename_and_copy_carry_value_and_deadline_to_any_shard() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        for index in 0..100 {
            check(
                &mut raw,
                &format!("SET from:{index} v{index} PXAT 4102444800123"),
                "OK",
            );
            check(&mut raw, &format!("RENAME from:{index} to:{index}"), "OK");
            check(&mut raw, &format!("EXISTS from:{index}"), "(integer) 0");
            check(
                &mut raw,
                &format!("COPY to:{index} copy:{index}"),
                "(integer) 1",
            );
            for name in ["to", "copy"] {
                check(
                    &mut raw,
                    &format!("GET {name}:{index}"),
                    &format!("\"v{index}\""),
                );
                check(
                    &mut raw,
                    &format!("PEXPIRETIME {name}:{index}"),
                    "(integer) 4102444800123",
                );
            }
        }
        check(&mut raw, "DBSIZE", "(integer) 200");
    });
}

#[test]
fn databases_are_apart_and_can_be_swapped() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let mut other = server.raw();
        check(&mut other, "SELECT 1", "OK");
        for index in 0..50 {
            check(&mut raw, &format!("SET db:{index} zero"), "OK");
        }
        check(&mut other, "SET db:1 one", "OK");
        check(&mut raw, "GET db:1", "\"zero\"");
        check(&mut raw, "SWAPDB 0 1", "OK");
        check(&mut raw, "GET db:1", "\"one\"");
        check(&mut raw, "DBSIZE", "(integer) 1");
        check(&mut other, "DBSIZE", "(integer) 50");
        check(&mut raw, "FLUSHDB", "OK");
        check(&mut other, "DBSIZE", "(integer) 50");
        for index in 0..50 {
            check(&mut other, &format!("MOVE db:{index} 0"), "(integer) 1");
        }
        check(&mut raw, "DBSIZE", "(integer) 50");
        check(&mut raw, "FLUSHALL ASYNC", "OK");
        check(&mut raw, "DBSIZE", "(integer) 0");
    });
}

#[test]
fn random_keys_come_from_all_over() {
    support::at_each_shard_count(|server| {
        let mut client = server.client();
        for index in 0..64 {
            let _: () = client.set(format!("r:{index}"), "v").expect("SET");
        }
        let mut seen = BTreeSet::new();
        for _ in 0..5000 {
            let key: String = redis::cmd("RANDOMKEY")
                .query(&mut client)
                .expect("RANDOMKEY");
            seen.insert(key);
        }
        assert!(
            seen.len() > 48,
            "only {} of 64 keys drawn in 5000",
            seen.len()
        );
    });
}
