//! Patterns that took exponential time (2022-36021) or a stack without end (2024-31228).

use super::at_each_shape;
use crate::acl::signed_in;
use crate::support::check;

/// Length of the longest patterns: deep enough for any stack.
const DEEP: usize = 50_000;

#[test]
fn cve_2022_36021_and_2024_31228_patterns_take_bounded_time_and_stack() {
    let key = "a".repeat(200);
    let patterns = [
        format!("{}b", "a*".repeat(100)),
        format!("{}b", "*a".repeat(DEEP)),
        format!("{}b", "*?".repeat(DEEP)),
        format!("{}b", "*".repeat(DEEP)),
        "[".repeat(DEEP),
        "[^a".repeat(DEEP),
        "\\*".repeat(DEEP),
        "[a-".repeat(DEEP),
    ];
    at_each_shape(|server| {
        let mut client = server.raw();
        client.command(&["SET", &key, "v"]);
        client.command(&["HSET", "{t}hash", &key, "v"]);
        client.command(&["SADD", "{t}set", &key]);
        client.command(&["ZADD", "{t}zset", "1", &key]);
        for pattern in &patterns {
            for request in [
                &["KEYS", pattern][..],
                &["SCAN", "0", "MATCH", pattern, "COUNT", "100"],
                &["HSCAN", "{t}hash", "0", "MATCH", pattern],
                &["SSCAN", "{t}set", "0", "MATCH", pattern],
                &["ZSCAN", "{t}zset", "0", "MATCH", pattern],
                &["FUNCTION", "LIST", "LIBRARYNAME", pattern],
                &["PUBSUB", "CHANNELS", pattern],
                &["CONFIG", "GET", pattern],
                &["COMMAND", "LIST", "FILTERBY", "PATTERN", pattern],
            ] {
                let reply = client.command(request).show();
                // Nothing but the name of the key could be among what is found.
                assert!(!reply.contains("aaaa"), "{:.40}: {reply:.200}", pattern);
            }
            let mut subscriber = server.raw();
            subscriber.command(&["PSUBSCRIBE", pattern]);
            assert_eq!(client.command(&["PUBLISH", &key, "x"]).integer(), 0);
            let keys = format!("~{pattern}");
            let rules = [
                "ACL", "SETUSER", "u", "reset", "on", "nopass", "+@all", &keys,
            ];
            assert_eq!(client.command(&rules).show(), "OK");
            let mut user = signed_in(server, "u");
            assert!(user.command(&["GET", &key]).is_error());
        }
        check(&mut client, "ACL DELUSER u", "(integer) 1");
    });
}
