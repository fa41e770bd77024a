//! Keyspace notifications by class: each letter lets its own events through and no others.

use crate::support::{self, check};
use crate::wire::Raw;

/// For each class a command that causes one of its events, and that event. `prepare` is sent before anyone
/// subscribes.
const CLASSES: &[(char, &str, &str, &str)] = &[
    ('g', "SET k 1", "EXPIRE k 100", "expire k"),
    ('g', "SET k 1", "RENAME k l", "rename_from k"),
    ('$', "PING", "SET k 1", "set k"),
    ('$', "SET k 1", "APPEND k 1", "append k"),
    ('l', "PING", "RPUSH k 1", "rpush k"),
    ('s', "PING", "SADD k 1", "sadd k"),
    ('h', "PING", "HSET k f 1", "hset k"),
    ('z', "PING", "ZADD k 1 m", "zadd k"),
    ('t', "PING", "XADD k * f v", "xadd k"),
    ('x', "SET k 1 PX 1", "GET k", "expired k"),
    ('n', "PING", "SETEX k 100 1", "new k"),
    ('n', "MSET k 1 l 2", "RENAME k l", "new l"),
    ('n', "MSET k 1 l 2", "COPY k l REPLACE", "new l"),
    ('m', "PING", "GET k", "keymiss k"),
    ('m', "PING", "XACKDEL k g IDS 1 1-1", "keymiss k"),
];

pub(crate) fn heard(subscriber: &mut Raw, client: &mut Raw) -> Vec<String> {
    client.call("PUBLISH __keyevent@mark x");
    let mut heard = Vec::new();
    loop {
        let push = subscriber.read();
        let [.., channel, key] = push.items() else {
            panic!("no message: {}", push.show());
        };
        let channel = channel.text();
        if channel == "__keyevent@mark" {
            return heard;
        }
        let name = channel.trim_start_matches("__keyevent@0__:");
        heard.push(format!("{name} {}", key.text()));
    }
}

#[test]
fn each_class_lets_its_own_events_through() {
    support::at_each_shard_count(|server| {
        let (mut subscriber, mut client) = (server.raw(), server.raw());
        subscriber.call("PSUBSCRIBE __keyevent@*");
        // Keys expire when they are accessed, and neither before the subscription nor after the marker.
        check(&mut client, "DEBUG SET-ACTIVE-EXPIRE 0", "OK");
        for &(class, prepare, line, event) in CLASSES {
            check(&mut client, "CONFIG SET notify-keyspace-events \"\"", "OK");
            client.pipeline(&["FLUSHALL", prepare]);
            if class == 'x' {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            client.call(&format!("CONFIG SET notify-keyspace-events E{class}"));
            client.call(line);
            let own = heard(&mut subscriber, &mut client);
            assert_eq!(own.first().map(String::as_str), Some(event), "{class}");
            check(&mut client, "CONFIG SET notify-keyspace-events \"\"", "OK");
            client.pipeline(&["FLUSHALL", prepare]);
            if class == 'x' {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            let others: String = "g$lshzxetdnm".chars().filter(|c| *c != class).collect();
            client.call(&format!("CONFIG SET notify-keyspace-events E{others}"));
            client.call(line);
            let others = heard(&mut subscriber, &mut client);
            assert!(!others.contains(&event.to_owned()), "{class}: {others:?}");
        }
    });
}

/// Returns the messages that a subscriber to all event channels receives for some commands.
fn told(subscriber: &mut Raw, client: &mut Raw, lines: &[&str]) -> Vec<String> {
    for line in lines {
        let reply = client.call(line);
        assert!(!reply.is_error(), "{line}: {}", reply.show());
    }
    client.call("PUBLISH __mark x");
    let mut told = Vec::new();
    loop {
        let push = subscriber.read();
        let [.., channel, payload] = push.items() else {
            panic!("no message: {}", push.show());
        };
        if channel.text() == "__mark" {
            return told;
        }
        told.push(format!("{} {}", channel.text(), payload.text()));
    }
}

#[test]
fn values_that_are_replaced_and_types_that_change_are_told_before_what_did_it() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut subscriber) = (server.raw(), server.raw());
        subscriber.call("PSUBSCRIBE __*");
        for (prepared, line, expected) in [
            ("SET k 1", "SET k 2", "overwritten k, set k"),
            ("SET k 1", "SET k 2 KEEPTTL", "overwritten k, set k"),
            ("SET k 1", "SET k 2 NX", ""),
            (
                "RPUSH k 1",
                "SET k 2",
                "overwritten k, type_changed k, set k",
            ),
            ("PING", "SET k 2", "set k"),
            (
                "SADD k 1",
                "SETEX k 100 v",
                "overwritten k, type_changed k, set k",
            ),
            ("SET k 1", "GETSET k 2", "overwritten k, set k"),
            ("SET k 1", "MSET k 2 l 3", "overwritten k, set k, set l"),
            ("SET k 1", "APPEND k 2", "append k"),
            ("SET k 1", "INCR k", "incrby k"),
            ("MSET k 1 l 2", "RENAME l k", "overwritten k"),
            ("SET k 1", "COPY k none", ""),
            ("MSET k 1 l 2", "COPY l k REPLACE", "overwritten k"),
            ("SET k 1", "BITOP NOT k k", "overwritten k, set k"),
            (
                "SET k abc",
                "SUNIONSTORE k t",
                "overwritten k, type_changed k",
            ),
            (
                "SET k abc",
                "ZUNIONSTORE k 1 t",
                "overwritten k, type_changed k",
            ),
            (
                "SET k abc",
                "SORT t STORE k",
                "overwritten k, type_changed k",
            ),
            ("RPUSH k abc", "SORT t STORE k", "overwritten k"),
            ("SET k abc", "SUNIONSTORE k none", ""),
        ] {
            raw.call("CONFIG SET notify-keyspace-events \"\"");
            raw.call("FLUSHALL");
            raw.call("SADD t 1 2 3");
            raw.call(prepared);
            raw.call("CONFIG SET notify-keyspace-events E$oc");
            let told = told(&mut subscriber, &mut raw, &[line]);
            let told: Vec<&str> = told
                .iter()
                .map(|one| one.trim_start_matches("__keyevent@0__:"))
                .collect();
            assert_eq!(told.join(", "), expected, "{line}");
        }
        raw.call("CONFIG SET notify-keyspace-events \"\"");
        raw.call("SET k 1");
        check(&mut raw, "CONFIG SET notify-keyspace-events AKE", "OK");
        let told = told(&mut subscriber, &mut raw, &["SET k 2"]);
        assert_eq!(told, ["__keyspace@0__:k set", "__keyevent@0__:set k"]);
        raw.call("CONFIG SET notify-keyspace-events KocSTIVh");
        let shown = raw.call("CONFIG GET notify-keyspace-events").items()[1].text();
        for letter in "KocSTIVh".chars() {
            assert!(shown.contains(letter), "{shown}");
        }
    });
}

#[test]
fn fields_that_change_are_told_in_the_channels_that_are_asked_for() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut subscriber) = (server.raw(), server.raw());
        subscriber.call("PSUBSCRIBE __*");
        raw.call("CONFIG SET notify-keyspace-events hSTIV");
        assert_eq!(
            told(&mut subscriber, &mut raw, &["HSET k f 1 gg 2"]),
            [
                "__subkeyspace@0__:k hset|1:f,2:gg",
                "__subkeyevent@0__:hset 1:k|1:f,2:gg",
                "__subkeyspaceitem@0__:k\nf hset",
                "__subkeyspaceitem@0__:k\ngg hset",
                "__subkeyspaceevent@0__:hset|k 1:f,2:gg",
            ]
        );
        // The flag h alone opens no channel, and without h no hash events are sent.
        for classes in ["h", "STIV", "$KS"] {
            raw.call(&format!("CONFIG SET notify-keyspace-events {classes}"));
            let none: Vec<String> = Vec::new();
            assert_eq!(
                told(&mut subscriber, &mut raw, &["HSET k f 1"]),
                none,
                "{classes}"
            );
        }
        raw.call("CONFIG SET notify-keyspace-events hS");
        for (line, expected) in [
            ("HSETNX k f 1", ""),
            ("HSETNX k new 1", "hset|3:new"),
            ("HMSET k f 1 f 2", "hset|1:f,1:f"),
            ("HDEL k new none", "hdel|3:new"),
            ("HDEL k none", ""),
            ("HINCRBY k f 2", "hincrby|1:f"),
            ("HINCRBYFLOAT k f 2.5", "hincrbyfloat|1:f"),
            ("HEXPIRE k 100 FIELDS 3 f none gg", "hexpire|1:f,2:gg"),
            ("HPERSIST k FIELDS 2 f none", "hpersist|1:f"),
            ("HPERSIST k FIELDS 1 f", ""),
            ("HGETEX k PERSIST FIELDS 2 f gg", "hpersist|2:gg"),
            ("HGETEX k EX 100 FIELDS 1 f", "hexpire|1:f"),
            ("HGETEX k FIELDS 1 f", ""),
            (
                "HSETEX k EX 100 FIELDS 2 f 1 x 2",
                "hset|1:f,1:x, hexpire|1:f,1:x",
            ),
            ("HPEXPIRE k 0 FIELDS 1 x", "hdel|1:x"),
            ("HGETDEL k FIELDS 2 f none", "hdel|1:f"),
            ("SET s 1", ""),
            ("HSET \"\" \"\" v", "hset|0:"),
        ] {
            let told = told(&mut subscriber, &mut raw, &[line]);
            let told: Vec<&str> = told
                .iter()
                .filter_map(|one| one.split_once(' '))
                .map(|(_, payload)| payload)
                .collect();
            assert_eq!(told.join(", "), expected, "{line}");
        }
        // Names that could be mistaken for another item's channel are omitted there.
        raw.call("CONFIG SET notify-keyspace-events hI");
        let odd = raw.command(&[&b"HSET"[..], b"a\nb", b"f", b"v"]);
        assert!(!odd.is_error());
        assert_eq!(
            told(&mut subscriber, &mut raw, &["HSET k f v"]),
            ["__subkeyspaceitem@0__:k\nf hset"]
        );
        // Expired items are notified at once, together.
        raw.call("CONFIG SET notify-keyspace-events hT");
        raw.call("HSETEX late PX 30 FIELDS 2 a 1 b 2");
        raw.call("HSET late c 3");
        support::eventually("they expire", || raw.call("HLEN late").integer() == 1);
        let told = told(&mut subscriber, &mut raw, &["PING"]);
        let expired: Vec<&String> = told.iter().filter(|one| one.contains("hexpired")).collect();
        assert_eq!(expired.len(), 1, "{told:?}");
        assert!(expired[0].ends_with("4:late|1:a,1:b") || expired[0].ends_with("4:late|1:b,1:a"));
        // A transaction's changes are notified in order.
        raw.call("CONFIG SET notify-keyspace-events hEV");
        let told = told_in_transaction(&mut subscriber, &mut raw);
        assert_eq!(
            told,
            [
                "__keyevent@0__:hset t",
                "__subkeyspaceevent@0__:hset|t 1:f",
                "__keyevent@0__:hdel t",
                "__subkeyspaceevent@0__:hdel|t 1:f",
            ]
        );
    });
}

fn told_in_transaction(subscriber: &mut Raw, raw: &mut Raw) -> Vec<String> {
    let lines = ["MULTI", "HSET t f v", "HDEL t f", "EXEC"];
    told(subscriber, raw, &lines)
}
