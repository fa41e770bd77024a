//! Hash fields that expire, by themselves and on access. Waits poll for the expected state; no test asserts
//! how fast.

use std::time::Duration;

use crate::support::{self, check};

#[test]
fn fields_go_by_themselves_and_are_counted() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        // Small ones and large ones, some of whose fields stay, and one that goes with its last field.
        for hash in 0..20 {
            let lines: Vec<String> = (0..100 * (1 + hash % 10))
                .flat_map(|field| {
                    let ms = 50 + field % 100;
                    [
                        format!("HSETEX mixed:{hash} PX {ms} FIELDS 1 gone:{field} v"),
                        format!("HSET mixed:{hash} stays:{} v", field % 3),
                        format!("HSETEX whole:{hash} PX {ms} FIELDS 1 gone:{field} v"),
                    ]
                })
                .collect();
            raw.pipeline(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        }
        support::eventually("hashes without a field are gone untouched", || {
            raw.call("DBSIZE").integer() == 20
        });
        // Fields that expired before they were to be counted were counted too.
        support::eventually("every field is counted", || {
            let stats = raw.call("INFO stats").body();
            stats.contains("expired_subkeys:22000\r\n")
        });
        for hash in 0..20 {
            check(&mut raw, &format!("HLEN mixed:{hash}"), "(integer) 3");
        }
        let stats = raw.call("INFO stats").body();
        assert!(stats.contains("expired_keys:0\r\n"), "{stats}");
        for (line, count) in [
            ("HSETEX mixed:3 EX 1000 FIELDS 1 a v", 1),
            ("HEXPIRE mixed:4 1000 FIELDS 1 stays:0", 2),
            ("HEXPIRE mixed:4 2000 FIELDS 1 stays:1", 2),
            ("HPERSIST mixed:4 FIELDS 2 stays:0 stays:1", 1),
            ("DEL mixed:3", 0),
        ] {
            raw.call(line);
            let keyspace = raw.call("INFO keyspace").body();
            let wanted = format!(",subexpiry={count}\r\n");
            assert!(keyspace.contains(&wanted), "{line}: {keyspace}");
        }
    });
}

#[test]
fn an_expired_field_is_gone_for_every_command_though_not_yet_deleted() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "DEBUG SET-ACTIVE-EXPIRE 0", "OK");
        for (line, expected) in [
            ("HGET h dead", "(nil)"),
            ("HEXISTS h dead", "(integer) 0"),
            ("HLEN h", "(integer) 1"),
            ("HKEYS h", "1) \"alive\""),
            ("HDEL h dead", "(integer) 0"),
            ("HINCRBY h dead 1", "(integer) 1"),
            ("HSETNX h dead x", "(integer) 1"),
            ("HSET h dead x", "(integer) 1"),
            ("HTTL h FIELDS 1 dead", "1) (integer) -2"),
            ("HRANDFIELD h", "\"alive\""),
            ("COPY h other", "(integer) 1"),
        ] {
            raw.call("DEL h other");
            check(&mut raw, "HSET h alive 1", "(integer) 1");
            check(&mut raw, "HSETEX h PX 1 FIELDS 1 dead 1", "(integer) 1");
            std::thread::sleep(Duration::from_millis(5));
            check(&mut raw, line, expected);
        }
        check(&mut raw, "HKEYS other", "1) \"alive\"");
        check(&mut raw, "DEBUG SET-ACTIVE-EXPIRE 1", "OK");
    });
}

#[test]
fn a_large_hash_comes_and_goes_with_its_memory() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        let used = |raw: &mut crate::wire::Raw| -> u64 {
            let memory = raw.call("INFO memory").body();
            let line = memory
                .lines()
                .find_map(|line| line.strip_prefix("used_memory_dataset:"));
            line.and_then(|text| text.trim().parse().ok())
                .expect("a figure")
        };
        check(&mut raw, "HSET first field value", "(integer) 1");
        let before = used(&mut raw);
        for part in 0..50 {
            let lines: Vec<String> = (0..1_000)
                .map(|field| format!("HSETEX h EX 1000 FIELDS 1 field:{part}:{field} value"))
                .collect();
            raw.pipeline(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        }
        check(&mut raw, "HLEN h", "(integer) 50000");
        assert!(used(&mut raw) > before + 2_000_000);
        check(&mut raw, "UNLINK h", "(integer) 1");
        support::eventually("the memory is given back", || {
            used(&mut raw) < before + 100_000
        });
    });
}
