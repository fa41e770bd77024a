//! INFO KEYSIZES: the histogram of value sizes, compared with the sizes that clients count.

use std::collections::BTreeMap;

use crate::support::{self, check};
use crate::wire::Raw;

/// Returns the lines of the section, by their names.
fn sizes(raw: &mut Raw) -> BTreeMap<String, String> {
    let text = raw.call("INFO keysizes").body();
    assert!(text.starts_with("# Keysizes"), "{text}");
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

/// Computes the section's expected lengths by commands of clients.
fn counted(raw: &mut Raw, dbs: &[usize]) -> BTreeMap<String, String> {
    let mut lines = BTreeMap::new();
    for db in dbs {
        raw.call(&format!("SELECT {db}"));
        let mut counts: BTreeMap<&str, BTreeMap<u32, u64>> = BTreeMap::new();
        let keys = raw.call("KEYS *");
        for key in keys.items() {
            let key = key.text();
            let kind = raw.call(&format!("TYPE {key}")).text();
            let (name, command) = match kind.as_str() {
                "string" => ("strings_sizes", "STRLEN"),
                "list" => ("lists_items", "LLEN"),
                "set" => ("sets_items", "SCARD"),
                "zset" => ("zsets_items", "ZCARD"),
                "hash" => ("hashes_items", "HLEN"),
                _ => continue,
            };
            let length = raw.call(&format!("{command} {key}")).integer() as u64;
            let bin = length.checked_ilog2().map_or(0, |power| power + 1);
            *counts.entry(name).or_default().entry(bin).or_default() += 1;
        }
        for (name, bins) in counts {
            let bins: Vec<String> = bins
                .into_iter()
                .map(|(bin, count)| {
                    let least = if bin == 0 { 0 } else { 1u64 << (bin - 1) };
                    match least {
                        0..1_024 => format!("{least}={count}"),
                        _ => format!("{}K={count}", least / 1_024),
                    }
                })
                .collect();
            lines.insert(format!("db{db}_distrib_{name}"), bins.join(","));
        }
    }
    raw.call("SELECT 0");
    lines
}

/// Compares both; the sizes in bytes of collections count each of them once.
fn compare(raw: &mut Raw, after: &str) {
    let found = sizes(raw);
    let wanted = counted(raw, &[0, 1]);
    let lengths: BTreeMap<_, _> = found
        .iter()
        .filter(|(name, _)| name.ends_with("_items") || name.ends_with("strings_sizes"))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    assert_eq!(lengths, wanted, "{after}");
    let sum = |text: &str| -> u64 {
        let counts = text.split(',').filter_map(|bin| bin.split_once('='));
        counts
            .map(|(_, count)| count.parse::<u64>().expect("a count"))
            .sum()
    };
    for (name, value) in &found {
        if let Some(of) = name.strip_suffix("_items") {
            assert_eq!(sum(value), sum(&found[&format!("{of}_sizes")]), "{name}");
        }
    }
}

#[test]
fn sizes_are_what_clients_count_whatever_happens_to_values() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        assert_eq!(raw.call("INFO keysizes").body(), "# Keysizes\r\n");
        for line in [
            "SET s 12345",
            "SET s abc",
            "SET s \"\"",
            "SETRANGE s 3000 x",
            "SET i 10",
            "DECRBY i 11",
            "APPEND i 5",
            "INCRBYFLOAT f 1.5",
            "SETBIT bits 100 1",
            "PFADD hll a b c",
            "MSET a 1 b 22 c 333",
            "GETDEL b",
            "RPUSH l 1 2 3",
            "LPOP l",
            "LMOVE l m LEFT RIGHT",
            "RPUSH long 1 2 3 4 5 6 7 8 9",
            "LTRIM long 0 0",
            "SADD set 1 2 3",
            "SADD set a b c",
            "SMOVE set other a",
            "SPOP set 2",
            "ZADD z 1 a 2 b 3 c",
            "ZREMRANGEBYRANK z 0 1",
            "ZUNIONSTORE zz 1 set",
            "HSET h a 1 b 2 c 3",
            "HDEL h a",
            "HSET h d 1 e 2 f 3 g 4",
            "HPEXPIRE h 0 FIELDS 1 d",
            "XADD x * f v",
            "RENAME h hh",
            "COPY hh h",
            "COPY hh h DB 1",
            "MOVE zz 1",
            "SORT other ALPHA STORE sorted",
            "SDIFFSTORE other set none",
            "SUNIONSTORE sorted set",
            "GEOADD geo 13.4 52.5 berlin",
            "SET gone v PX 1",
            "SWAPDB 0 1",
            "SET s 1",
            "SWAPDB 0 1",
            "DEL set none l",
            "UNLINK long",
            "EXPIRE hh 0",
        ] {
            let reply = raw.call(line);
            assert!(!reply.is_error(), "{line}: {}", reply.show());
            if line.starts_with("SET gone") {
                support::eventually("it expired", || raw.call("EXISTS gone").integer() == 0);
            }
            compare(&mut raw, line);
        }
        // Large ones, that change their encodings.
        let members: Vec<String> = (0..2_000).map(|number| format!("m{number}")).collect();
        let members = members.join(" ");
        raw.call(&format!("SADD large {members}"));
        raw.call(&format!("RPUSH queue {members}"));
        raw.call(&format!("HSET table {members}"));
        raw.call("ZUNIONSTORE ranks 1 large");
        raw.call("SPOP large 1500");
        raw.call("LTRIM queue 0 99");
        compare(&mut raw, "large ones");
        let payload = raw.call("DUMP ranks");
        let restored = [&b"RESTORE"[..], b"s", b"0", payload.bytes(), b"REPLACE"];
        assert!(!raw.command(&restored).is_error());
        compare(&mut raw, "RESTORE");
        // A rollback leaves no trace in the figures.
        let script = "redis.call('set','s','text') redis.call('del','ranks') redis.call('hset','table','x','y') \
                      redis.call('rpush','new','1') return redis.call('get','queue')";
        assert!(
            raw.command(&[&b"EVAL"[..], script.as_bytes(), b"0"])
                .is_error()
        );
        compare(&mut raw, "a script that fails");
        for line in [
            "MULTI",
            "SET s 1",
            "FLUSHDB",
            "RPUSH q 1 2",
            "SWAPDB 0 1",
            "EXEC",
        ] {
            raw.call(line);
        }
        compare(&mut raw, "a transaction");
        check(&mut raw, "DEBUG RELOAD", "OK");
        compare(&mut raw, "DEBUG RELOAD");
        check(&mut raw, "FLUSHALL", "OK");
        assert_eq!(raw.call("INFO keysizes").body(), "# Keysizes\r\n");
        for sections in ["all", "everything"] {
            assert!(
                raw.call(&format!("INFO {sections}"))
                    .body()
                    .contains("# Keysizes")
            );
        }
    });
}
