//! Keyspace notifications that a subscriber receives for a batch: all classes of changes.
//!
//! Misses and new keys (classes `m` and `n`) are not compared: Redis sends one for each lookup that it
//! happens to make.

use std::time::Duration;

use crate::wire::Raw;

/// A connection that listens, and one that marks where a batch ends.
pub(crate) struct Listener {
    subscriber: Raw,
    marker: Raw,
}

const MARK: &str = "__keyspace@mark__:";

/// Keys expire when a server gets to it. XCLAIM creates its consumer whatever it finds from Redis 7.2 on.
const NOT_COMPARED: [&str; 2] = ["expired", "xgroup-createconsumer"];

impl Listener {
    pub(crate) fn new(port: u16) -> Listener {
        let mut marker = Raw::connect(port);
        marker.call("CONFIG SET notify-keyspace-events AK");
        let mut subscriber = Raw::connect(port);
        for raw in [&subscriber, &marker] {
            raw.stream()
                .set_read_timeout(Some(Duration::from_secs(60)))
                .expect("a time-out");
        }
        subscriber.call("PSUBSCRIBE __keyspace@*");
        let mut listener = Listener { subscriber, marker };
        // Events of earlier commands, such as FLUSHALL, are ignored.
        listener.heard();
        listener
    }

    /// Returns the events since the last call, as `db:key event`.
    pub(crate) fn heard(&mut self) -> Vec<String> {
        self.marker.call(&format!("PUBLISH {MARK} x"));
        let mut heard = Vec::new();
        loop {
            let push = match self.subscriber.try_read() {
                Ok(push) => push,
                Err(error) => {
                    heard.push(format!("(no more: {error})"));
                    return heard;
                }
            };
            let [_, _, channel, event] = push.items() else {
                heard.push(push.show());
                return heard;
            };
            let channel = channel.text();
            if channel == MARK {
                return heard;
            }
            let place = channel
                .trim_start_matches("__keyspace@")
                .replace("__:", ":");
            let event = event.text();
            if !NOT_COMPARED.contains(&event.as_str()) {
                heard.push(format!("{place} {event}"));
            }
        }
    }
}
