//! `size-tracking`: the sizes of requests and replies by command are exactly those of what was sent.

use std::collections::BTreeMap;

use crate::support::{self, Draw, Options, Server, check, free_port, http, info_text};
use crate::wire::{Raw, encode, encode_into};

/// Messages that a client has sent, or received, by command.
#[derive(Default)]
struct Sizes(BTreeMap<&'static str, Vec<usize>>);

impl Sizes {
    fn add(&mut self, command: &'static str, bytes: usize) {
        self.0.entry(command).or_default().push(bytes);
    }

    /// Returns what INFO should show for a command.
    fn shown(&self, command: &str) -> Option<String> {
        let sizes = self.0.get(command)?;
        let mut bins = BTreeMap::new();
        for bytes in sizes {
            *bins.entry(bytes.max(&1).ilog2()).or_insert(0) += 1;
        }
        let bins = bins.iter();
        let bins: String = bins
            .map(|(bin, count)| format!(",{}={count}", 1_u64 << bin))
            .collect();
        let (count, bytes) = (sizes.len(), sizes.iter().sum::<usize>());
        Some(format!("count={count},bytes={bytes}{bins}"))
    }

    /// Returns the number of sizes up to a bound.
    fn up_to(&self, command: &str, bound: usize) -> usize {
        let sizes = self.0.get(command).into_iter().flatten();
        sizes.filter(|bytes| **bytes <= bound).count()
    }
}

/// A client that notes what it sends and receives.
struct Noting {
    raw: Raw,
    requests: Sizes,
    replies: Sizes,
}

impl Noting {
    /// Sends requests in one pipeline; each with its command's name in INFO, and the size of its reply.
    fn send(&mut self, requests: &[(&'static str, Vec<&str>, usize)]) {
        let mut bytes = Vec::new();
        for (command, words, reply_bytes) in requests {
            encode_into(&mut bytes, words);
            self.requests.add(command, encode(words).len());
            self.replies.add(command, *reply_bytes);
        }
        self.raw.send(&bytes);
        for _ in requests {
            self.raw.read();
        }
    }
}

fn bulk_bytes(len: usize) -> usize {
    format!("${len}\r\n").len() + len + 2
}

#[test]
fn sizes_of_requests_and_replies_are_those_that_were_sent() {
    if support::is_stand_in() {
        return;
    }
    let metrics_port = free_port();
    let options = Options::shards(16).threads(2);
    let server = Server::start(&options.with("metrics-port", &metrics_port.to_string()));
    let mut other = server.raw();
    check(&mut other, "SET before x", "OK");
    let sizes = |other: &mut Raw, field: &str| info_text(other, "sizestats", field);
    assert_eq!(
        sizes(&mut other, "request_sizes_set"),
        None,
        "off by default"
    );
    check(&mut other, "CONFIG SET size-tracking yes", "OK");
    let mut client = Noting {
        raw: server.raw(),
        requests: Sizes::default(),
        replies: Sizes::default(),
    };
    let mut draw = Draw::new(7);
    let lengths = [0, 1, 40, 1_000, 5_000, 20_000, 70_000, 1_500_000];
    for _ in 0..40 {
        let len = lengths[draw.below(lengths.len())];
        let (value, key) = ("v".repeat(len), format!("key:{}", draw.below(1_000)));
        client.send(&[
            ("set", vec!["SET", &key, &value], 5),
            ("get", vec!["GET", &key], bulk_bytes(len)),
            ("get", vec!["GET", "missing"], 5),
            ("strlen", vec!["STRLEN", &key], format!(":{len}\r\n").len()),
        ]);
    }
    // A transaction: what queues a command is answered at once.
    client.send(&[
        ("multi", vec!["MULTI"], 5),
        ("get", vec!["GET", "missing"], 9),
        ("get", vec!["GET", "missing"], 9),
        ("exec", vec!["EXEC"], 4 + 5 + 5),
    ]);
    // Errors are replies, too; what is refused before it runs is not counted.
    client.send(&[("lpush", vec!["LPUSH", "key:list", "a"], 4)]);
    let error = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    client.send(&[("get", vec!["GET", "key:list"], error.len())]);
    assert!(
        client
            .raw
            .call("GET")
            .text()
            .starts_with("ERR wrong number")
    );
    for command in ["set", "get", "strlen", "multi", "exec", "lpush"] {
        for (direction, sent) in [("request", &client.requests), ("reply", &client.replies)] {
            let field = format!("{direction}_sizes_{command}");
            assert_eq!(sizes(&mut other, &field), sent.shown(command), "{field}");
        }
    }
    let page = http(metrics_port, "/metrics");
    for (name, sent) in [("request", &client.requests), ("reply", &client.replies)] {
        for bound in [31, 511, 8_191, 131_071, 2_097_151] {
            let count = sent.up_to("get", bound);
            let line = format!(
                "basalt_command_{name}_bytes_bucket{{cmd=\"get\",le=\"{bound}\"}} {count}\n"
            );
            assert!(page.contains(&line), "{line}");
        }
        let sum: usize = sent.0["get"].iter().sum();
        let line = format!("basalt_command_{name}_bytes_sum{{cmd=\"get\"}} {sum}\n");
        assert!(page.contains(&line), "{line}");
    }
    check(&mut other, "CONFIG SET size-tracking no", "OK");
    client.raw.call("GET missing");
    let field = "request_sizes_get";
    assert_eq!(sizes(&mut other, field), client.requests.shown("get"));
    check(&mut other, "CONFIG RESETSTAT", "OK");
    assert_eq!(sizes(&mut other, field), None);
}

#[test]
fn commands_that_were_logged_for_their_size_are_counted() {
    if support::is_stand_in() {
        return;
    }
    let metrics_port = free_port();
    let options = Options::shards(16).with("metrics-port", &metrics_port.to_string());
    let server = Server::start(&options);
    let mut client = server.raw();
    check(
        &mut client,
        "CONFIG SET commandlog-request-larger-than 1000",
        "OK",
    );
    check(
        &mut client,
        "CONFIG SET commandlog-reply-larger-than 2000",
        "OK",
    );
    let long = "v".repeat(3_000);
    for tracking in ["no", "yes"] {
        check(
            &mut client,
            &format!("CONFIG SET size-tracking {tracking}"),
            "OK",
        );
        check(&mut client, &format!("SET key {long}"), "OK");
        client.call("GET key");
        client.call("GET key");
        check(&mut client, "SET small x", "OK");
    }
    let page = http(metrics_port, "/metrics");
    for (log, count) in [("large-request", 2), ("large-reply", 4)] {
        let line = format!("basalt_commandlog_entries_total{{log=\"{log}\"}} {count}\n");
        assert!(page.contains(&line), "{line}");
        let len = client.call(&format!("COMMANDLOG LEN {log}"));
        assert_eq!(len.integer(), count);
    }
}
