//! DUMP here and RESTORE at redis-server 7.0.15, and the reverse: equal data, for every type and encoding.
//!
//! Both servers create equal values. Each value then travels ours → theirs → ours and theirs → ours → theirs,
//! and must have one digest and one set of replies at every stop.

use crate::support::{Options, Oracle, Server, is_stand_in};
use crate::wire::{Raw, Value};

/// Commands that read values of one type, besides their digest; `@` is the key. Scores are in the digest:
/// they are printed differently since 7.2.
const QUESTIONS: &[(&str, &[&str])] = &[
    ("string", &["GET @", "STRLEN @"]),
    (
        "list",
        &["LRANGE @ 0 -1", "LLEN @", "LPOS @ a", "LINDEX @ -1"],
    ),
    ("set", &["SCARD @", "SMISMEMBER @ a 1 17 zz"]),
    (
        "zset",
        &["ZRANGE @ 0 -1", "ZCARD @", "ZRANK @ a", "ZCOUNT @ -inf 2"],
    ),
    (
        "hash",
        &["HLEN @", "HMGET @ f1 2 big field1 zz", "HSTRLEN @ big"],
    ),
    (
        "stream",
        &[
            "XRANGE @ - +",
            "XREVRANGE @ + -",
            "XLEN @",
            "XINFO GROUPS @",
            "XPENDING @ g1",
            "XPENDING @ g2",
            "XPENDING @ g1 - + 100",
            "XPENDING @ g2 - + 100",
            "XINFO CONSUMERS @ g1",
            "XINFO STREAM @",
        ],
    ),
];

/// Commands that leave one value of each type and encoding behind, and its odd corners; `CONFIG` and `DEBUG` change
/// how the next ones are packed.
pub(crate) fn makers() -> Vec<String> {
    let mut lines: Vec<String> = [
        "SET str:int8 -128",
        "SET str:int16 1000",
        "SET str:int32 -2000000000",
        "SET str:int64 9223372036854775807",
        "SET str:empty \"\"",
        "SET str:embstr hello",
        "SET str:binary \"\\x00\\xff\\r\\n\"",
        "SET str:volatile x PX 100000000",
        "SETBIT str:bits 40000 1",
        "PFADD str:dense a b c d",
        "PFDEBUG TODENSE str:dense",
        "RPUSH list:small a 1 -5 \"hello world\" \"\" 99999999999",
        "CONFIG SET list-max-listpack-size 4",
        "CONFIG SET list-compress-depth 1",
        "CONFIG SET list-compress-depth 0 list-max-listpack-size -2",
        "DEBUG QUICKLIST-PACKED-THRESHOLD 200b",
        "DEBUG QUICKLIST-PACKED-THRESHOLD 0",
        "SADD set:intset16 3 1 2 -300",
        "SADD set:intset32 70000 1 -70000",
        "SADD set:intset64 1 1099511627776 -1125899906842624",
        "SADD set:intset-ends -32768 32767 -2147483648 2147483647 -9223372036854775808 9223372036854775807",
        "SADD set:small a b 17 \"\"",
        "HSET hash:small f1 v1 2 -7 \"\" e n 1.5",
        "ZADD zset:small 1 a 2.5 b -inf c +inf d 3 7 1e100 e -0.1 f 0 g 3.3 h",
        "XADD stream:one 1-1 f v",
        "XADD stream:emptied 7-7 a b",
        "XDEL stream:emptied 7-7",
        "XADD stream:groups 10-1 k v1",
        "XADD stream:groups 10-2 k v2",
        "XADD stream:groups 10-3 k v3",
        "XADD stream:groups 10-4 other fields k v4",
        "XADD stream:groups 10-5 k v5",
        "XGROUP CREATE stream:groups g1 0",
        "XGROUP CREATE stream:groups g2 10-3",
        "XGROUP CREATE stream:groups empty $",
        "XREADGROUP GROUP g1 alice COUNT 2 STREAMS stream:groups >",
        "XREADGROUP GROUP g1 bob COUNT 1 STREAMS stream:groups >",
        "XREADGROUP GROUP g2 carol STREAMS stream:groups >",
        "XACK stream:groups g2 10-5",
        "XGROUP CREATECONSUMER stream:groups g1 idle",
        "XDEL stream:groups 10-2",
        "XCLAIM stream:groups g1 bob 0 10-1 RETRYCOUNT 7",
        "XADD stream:settled 3-1 a b",
        "XGROUP CREATE stream:settled g1 3-1 ENTRIESREAD 40",
        "XSETID stream:settled 9-9 ENTRIESADDED 50 MAXDELETEDID 8-8",
    ]
    .map(String::from)
    .to_vec();
    let long = "abcdefgh".repeat(40);
    let many = |name: &str, word: &dyn Fn(usize) -> String, count: usize| {
        let words: Vec<String> = (0..count).map(word).collect();
        format!("{name} {}", words.join(" "))
    };
    let behind = |lines: &mut Vec<String>, mark: &str, line: String| {
        let at = lines.iter().position(|line| line == mark).expect("a mark");
        lines.insert(at + 1, line);
    };
    behind(
        &mut lines,
        "CONFIG SET list-max-listpack-size 4",
        many("RPUSH list:nodes", &|number| format!("el{number}"), 18),
    );
    behind(
        &mut lines,
        "CONFIG SET list-compress-depth 1",
        many(
            "RPUSH list:compressed",
            &|number| format!("{}{number}", "compressible".repeat(6)),
            20,
        ),
    );
    behind(
        &mut lines,
        "DEBUG QUICKLIST-PACKED-THRESHOLD 200b",
        format!("RPUSH list:plain x {} y z", "p".repeat(250)),
    );
    lines.extend([
        "CONFIG SET list-compress-depth 1".to_owned(),
        "DEBUG QUICKLIST-PACKED-THRESHOLD 100b".to_owned(),
        format!("RPUSH list:plains {long}1 {long}2 {long}3 {long}4 x {long}5 y"),
        "DEBUG QUICKLIST-PACKED-THRESHOLD 0".to_owned(),
        "CONFIG SET list-compress-depth 0".to_owned(),
        format!("SET str:compressed {long}"),
        format!("SET str:raw {}", &long[..60]),
        format!("SET str:block {}", long.repeat(200)),
        format!("SADD set:long a {long}"),
        many("SADD set:table", &|number| format!("member{number}"), 400),
        many("SADD set:numbers", &|number| format!("{}", number * 7), 700),
        format!("HSET hash:long f1 v1 big {long}"),
        many(
            "HSET hash:table",
            &|number| format!("field{number} {number}"),
            700,
        ),
        format!("ZADD zset:long 1 a 2 {long}"),
        many(
            "ZADD zset:table",
            &|number| format!("{}.{} member{number}", number % 37, number),
            300,
        ),
        many(
            "RPUSH list:long",
            &|number| format!("element number {number}"),
            3000,
        ),
        many("PFADD str:hyperloglog", &|number| format!("e{number}"), 200),
        "CONFIG SET stream-node-max-entries 3".to_owned(),
    ]);
    lines.extend((1..30).map(|number| format!("XADD stream:nodes 5-{number} k {number} n x")));
    lines.push("XDEL stream:nodes 5-1 5-4 5-5 5-6 5-30".to_owned());
    lines.push("CONFIG SET stream-node-max-entries 100".to_owned());
    lines.extend((1..=8).map(|number| {
        format!(
            "XADD stream:deleted {}-{} name n{number} age {number}",
            number * 1000,
            number % 3
        )
    }));
    lines.push("XDEL stream:deleted 3000-0 5000-2".to_owned());
    lines
}

/// Removes the parts of a reply that depend on the moment, or on a server's storage of streams.
fn leave_out_what_passes(question: &str, answer: &mut Value) {
    let Value::Array(items) = answer else {
        return;
    };
    let each = items.iter_mut().filter_map(|item| match item {
        Value::Array(parts) => Some(parts),
        _ => None,
    });
    if question.ends_with("- + 100") {
        // Identifier, consumer, idle time, deliveries.
        each.for_each(|pending| drop(pending.remove(2)));
    } else if question.starts_with("XINFO CONSUMERS") {
        // Name and count; behind them times, of which 7.2 knows one more.
        each.for_each(|consumer| consumer.truncate(4));
    } else if question.starts_with("XINFO STREAM") {
        // Length; then keys and nodes of the tree; then the stream's own figures, and from 8.6 on its
        // producers'.
        items.drain(2..6);
        let is_of_producers = |item: &Value| item.show() == "\"idmp-duration\"";
        if let Some(from) = items.iter().position(is_of_producers) {
            items.drain(from..from + 12);
        }
    }
}

/// Returns the digest and the replies of one key.
pub(crate) fn portrait(client: &mut Raw, key: &str) -> Vec<String> {
    let mut parts = vec![client.call(&format!("DEBUG DIGEST-VALUE {key}")).show()];
    let kind = client.call(&format!("TYPE {key}")).text();
    let (_, questions) = QUESTIONS
        .iter()
        .find(|(name, _)| *name == kind)
        .unwrap_or_else(|| panic!("{key} is a {kind}"));
    for question in *questions {
        let mut answer = client.call(&question.replace('@', key));
        leave_out_what_passes(question, &mut answer);
        parts.push(answer.show());
    }
    parts.push(kind);
    parts
}

pub(crate) fn dump(client: &mut Raw, key: &str) -> Vec<u8> {
    match client.call(&format!("DUMP {key}")) {
        Value::Bulk(payload) => payload,
        other => panic!("DUMP {key}: {}", other.show()),
    }
}

fn restore(client: &mut Raw, key: &str, payload: &[u8]) {
    let reply = client.command(&[b"RESTORE", key.as_bytes(), b"0", payload, b"REPLACE"]);
    assert_eq!(reply.show(), "OK", "RESTORE {key}");
}

#[test]
fn values_travel_between_basalt_and_redis_server() {
    let Some(Oracle(oracle)) = Oracle::start() else {
        return;
    };
    if is_stand_in() {
        return;
    }
    let server = Server::start(&Options::shards(4));
    let (mut ours, mut theirs) = (Raw::connect(server.port), Raw::connect(oracle.port));
    for compresses in ["yes", "no"] {
        for client in [&mut ours, &mut theirs] {
            client.call("FLUSHALL");
            let line = format!("CONFIG SET rdbcompression {compresses}");
            assert_eq!(client.call(&line).text(), "OK");
            for line in makers() {
                let reply = client.call(&line);
                assert!(!reply.is_error(), "{line}: {}", reply.show());
            }
        }
        let keys: Vec<String> = theirs
            .call("KEYS *")
            .items()
            .iter()
            .map(Value::text)
            .collect();
        assert!(keys.len() > 35, "{} keys", keys.len());
        for key in keys {
            let expected = portrait(&mut theirs, &key);
            assert_eq!(portrait(&mut ours, &key), expected, "{key}, made here");
            let (from_ours, from_theirs) = (dump(&mut ours, &key), dump(&mut theirs, &key));
            theirs.call(&format!("PERSIST {key}"));
            let expected = portrait(&mut theirs, &key);

            restore(&mut theirs, &key, &from_ours);
            assert_eq!(portrait(&mut theirs, &key), expected, "{key}, ours there");
            let back = dump(&mut theirs, &key);
            restore(&mut ours, &key, &back);
            assert_eq!(
                portrait(&mut ours, &key),
                expected,
                "{key}, ours there and back"
            );

            restore(&mut ours, &key, &from_theirs);
            assert_eq!(portrait(&mut ours, &key), expected, "{key}, theirs here");
            let back = dump(&mut ours, &key);
            restore(&mut theirs, &key, &back);
            assert_eq!(
                portrait(&mut theirs, &key),
                expected,
                "{key}, theirs here and back"
            );
        }
        let digests = [&mut ours, &mut theirs].map(|client| client.call("DEBUG DIGEST").text());
        assert_eq!(digests[0], digests[1]);
        assert_eq!(ours.call("DEBUG RELOAD").text(), "OK");
        assert_eq!(ours.call("DEBUG DIGEST").text(), digests[0], "after RELOAD");
    }
}
