//! Keyspace notifications by class: each letter lets its own events through and no others.

use crate::support::{self, check};
use crate::wire::Raw;

/// For each class what brings one of its events about, and that event. `prepare` is sent while nobody listens.
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
    ('m', "PING", "GET k", "keymiss k"),
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
        // Keys expire when they are asked for, and not while nobody listens or behind the mark.
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
