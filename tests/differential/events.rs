//! What a subscriber to keyspace notifications of all classes hears of a batch.
//!
//! Keys expire when a server gets to it, so `expired` is left out; so is nothing else.

use std::time::Duration;

use crate::wire::Raw;

/// A connection that listens, and one that marks where a batch ends.
pub(crate) struct Listener {
    subscriber: Raw,
    marker: Raw,
}

const MARK: &str = "__keyspace@mark__:";

impl Listener {
    pub(crate) fn new(port: u16) -> Listener {
        let mut marker = Raw::connect(port);
        marker.call("CONFIG SET notify-keyspace-events AKnm");
        let mut subscriber = Raw::connect(port);
        for raw in [&subscriber, &marker] {
            raw.stream()
                .set_read_timeout(Some(Duration::from_secs(10)))
                .expect("a time-out");
        }
        subscriber.call("PSUBSCRIBE __keyspace@*");
        let mut listener = Listener { subscriber, marker };
        // What was done before, by FLUSHALL for example, is not of interest.
        listener.heard();
        listener
    }

    /// The events since the last call, as `db:key event`.
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
            if event != "expired" {
                heard.push(format!("{place} {event}"));
            }
        }
    }
}
