//! JSON documents over connections: transactions, scripts, watching, invalidations, files and replicas.

use crate::replicated::{follow, settle};
use crate::support::{Options, Server, at_each_shard_count, check};
use crate::wire::Raw;

const DOC: &str = r#"{"n":1,"l":[1,2.5,{"x":"y"}],"t":"text","b":true,"z":null}"#;

fn set(raw: &mut Raw, key: &str, text: &str) {
    let reply = raw.command(&["JSON.SET", key, "$", text]);
    assert_eq!(reply.show(), "OK", "{text}");
}

fn text(raw: &mut Raw, key: &str) -> String {
    raw.command(&["JSON.GET", key]).text()
}

/// Returns the text of a document that is too large for its entry.
fn long() -> String {
    let members: Vec<String> = (0..2_000)
        .map(|at| format!("{{\"id\":{at},\"name\":\"member {at}\",\"price\":{at}.25}}"))
        .collect();
    format!("{{\"n\":1,\"items\":[{}]}}", members.join(","))
}

#[test]
fn transactions_and_scripts_change_documents_as_one() {
    at_each_shard_count(|server| {
        let mut raw = server.raw();
        let (mut other, long) = (server.raw(), long());
        for key in ["small", "large"] {
            set(&mut raw, key, if key == "small" { DOC } else { &long });
            check(&mut raw, &format!("WATCH {key}"), "OK");
            check(
                &mut other,
                &format!("JSON.NUMINCRBY {key} $.n 1"),
                "\"[2]\"",
            );
            check(&mut raw, "MULTI", "OK");
            check(&mut raw, &format!("JSON.SET {key} $.n 100"), "QUEUED");
            check(&mut raw, "EXEC", "(nil array)");
            check(&mut raw, "MULTI", "OK");
            check(&mut raw, &format!("JSON.NUMINCRBY {key} $.n 5"), "QUEUED");
            check(&mut raw, &format!("JSON.GET {key} $.n"), "QUEUED");
            check(&mut raw, "EXEC", "1) \"[7]\"\n2) \"[7]\"");
            // The script needs a shard that it did not declare: what it did is undone, and it runs again.
            let script = "redis.call('JSON.NUMINCRBY', KEYS[1], '$.n', 1) \
                          redis.call('JSON.DEL', KEYS[1], '$.b') \
                          redis.call('JSON.SET', ARGV[1], '$', '[]') \
                          return redis.call('JSON.GET', KEYS[1], '$.n')";
            let reply = raw.command(&["EVAL", script, "1", key, "elsewhere"]);
            assert_eq!(reply.text(), "[8]");
        }
    });
}

#[test]
fn clients_that_cache_a_document_are_told_of_changes() {
    let server = Server::start(&Options::shards(2));
    let (mut raw, mut other) = (server.raw(), server.raw());
    other.call("HELLO 3");
    set(&mut raw, "d", DOC);
    check(&mut other, "CLIENT TRACKING on", "OK");
    check(&mut other, "JSON.GET d $.n", "\"[1]\"");
    check(&mut raw, "JSON.NUMINCRBY d $.n 1", "\"[2]\"");
    let told = other.read().show();
    assert!(told.contains("invalidate") && told.contains('d'), "{told}");
}

#[test]
fn documents_survive_restarts_and_reach_replicas() {
    let long = long();
    let options = Options::shards(4)
        .with("enable-debug-command", "yes")
        .with("appendonly", "yes");
    let (server, replica) = (Server::start(&options), Server::start(&options));
    let mut raw = server.raw();
    set(&mut raw, "before", DOC);
    set(&mut raw, "large", &long);
    follow(&replica, &server);
    set(&mut raw, "after", "[1,2,3]");
    check(&mut raw, "JSON.ARRPOP after", "\"3\"");
    check(
        &mut raw,
        "JSON.SET large $.items[7].name '\"changed\"'",
        "OK",
    );
    check(&mut raw, "PEXPIREAT after 9000000000000", "(integer) 1");
    settle(&[&server, &replica]);
    let digest = raw.call("DEBUG DIGEST").show();
    let mut copy = replica.raw();
    check(&mut copy, "DEBUG DIGEST", &digest);
    assert_eq!(text(&mut copy, "before"), DOC);
    assert_eq!(text(&mut copy, "after"), "[1,2]");
    check(
        &mut raw,
        "BGREWRITEAOF",
        "Background append only file rewriting started",
    );
    for reload in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
        check(&mut raw, reload, "OK");
        check(&mut raw, "DEBUG DIGEST", &digest);
        check(&mut raw, "PEXPIRETIME after", "(integer) 9000000000000");
    }
    let payload = raw.command(&["DUMP", "large"]).bytes().to_vec();
    let restore: [&[u8]; 4] = [b"RESTORE", b"copy", b"0", &payload];
    assert_eq!(raw.command(&restore).show(), "OK");
    assert_eq!(text(&mut raw, "copy"), text(&mut raw, "large"));
    check(&mut raw, "COPY large copy2", "(integer) 1");
    check(&mut raw, "RENAME copy2 copy3", "OK");
    assert_eq!(text(&mut raw, "copy3"), text(&mut raw, "large"));
}

#[test]
fn a_document_is_a_type_of_its_own() {
    at_each_shard_count(|server| {
        let mut raw = server.raw();
        set(&mut raw, "d", DOC);
        check(&mut raw, "SET s 1", "OK");
        check(&mut raw, "TYPE d", "ReJSON-RL");
        let found = raw.call("SCAN 0 COUNT 1000 TYPE ReJSON-RL").show();
        assert!(
            found.contains("\"d\"") && !found.contains("\"s\""),
            "{found}"
        );
        check(&mut raw, "ACL SETUSER json on nopass ~* -@all +@json", "OK");
        let mut reader = server.raw();
        check(&mut reader, "AUTH json x", "OK");
        check(&mut reader, "JSON.GET d $.n", "\"[1]\"");
        assert!(reader.call("GET s").is_error());
        check(&mut raw, "PEXPIRE d 1", "(integer) 1");
        crate::support::eventually("it expires", || raw.call("JSON.GET d").show() == "(nil)");
    });
}
