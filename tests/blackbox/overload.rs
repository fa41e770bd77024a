//! `overload-p99`: under more work than the server does, expensive commands are refused, and nothing else.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::support::{
    self, Options, Server, check, eventually, free_port, http, info_number, info_text,
};
use crate::wire::Raw;

/// Connections that send expensive commands without a pause.
const CONNECTIONS: usize = 4;

const MEMBERS: usize = 20_000;

fn fill(client: &mut Raw) {
    for first in (0..MEMBERS).step_by(500) {
        let mut words = vec!["ZADD".to_owned(), "big".to_owned()];
        for member in first..first + 500 {
            words.extend([member.to_string(), format!("member:{member}")]);
        }
        client.send(&crate::wire::encode(&words));
        assert_eq!(client.read().integer(), 500);
    }
}

/// Sends expensive commands until told to stop. Counts what was refused; any other error is a fault.
fn work(port: u16, stop: &AtomicBool, refused: &AtomicU64) {
    let mut client = Raw::connect(port);
    let mut number = 0;
    while !stop.load(Relaxed) {
        number += 1;
        let reply = match number % 3 {
            0 => client.call("ZRANGE big 0 -1 WITHSCORES"),
            1 => client.call("ZUNIONSTORE to 1 big"),
            _ => client.call("SORT big BY nosort LIMIT 0 19000"),
        };
        let shown = reply.show();
        if shown.contains("OVERLOADED") {
            refused.fetch_add(1, Relaxed);
        } else {
            assert!(!shown.contains("(error)"), "{shown}");
        }
    }
}

/// Sends what is never refused.
fn others(client: &mut Raw, key: &str) {
    check(client, &format!("SET {key} value"), "OK");
    check(client, &format!("GET {key}"), "\"value\"");
    check(client, "PING", "PONG");
    check(client, "ZSCORE big member:7", "\"7\"");
    assert!(client.call("INFO server").text().contains("redis_version"));
    check(client, "CLIENT SETNAME me", "OK");
    assert!(
        client
            .call("AUTH nobody wrong")
            .show()
            .contains("WRONGPASS")
    );
    check(client, "REPLCONF CAPA psync2", "OK");
}

#[test]
fn expensive_commands_are_refused_while_requests_wait_and_nothing_else_is() {
    if support::is_stand_in() {
        return;
    }
    let metrics_port = free_port();
    let options = Options::shards(16).threads(1);
    let server = Server::start(&options.with("metrics-port", &metrics_port.to_string()));
    let mut client = server.raw();
    check(
        &mut client,
        "CONFIG GET overload-p99",
        "1) \"overload-p99\"\n2) \"0\"",
    );
    fill(&mut client);
    let (stop, refused) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| work(server.port, &stop, &refused));
        }
        for round in 0..20 {
            others(&mut client, &format!("before:{round}"));
        }
        assert_eq!(refused.load(Relaxed), 0, "it is off by default");
        assert_eq!(
            info_number(&mut client, "stats", "overload_wait_p99_usec"),
            0.0
        );
        check(&mut client, "CONFIG SET overload-p99 1", "OK");
        let mut round = 0;
        eventually("much is refused", || {
            round += 1;
            others(&mut client, &format!("meanwhile:{round}"));
            refused.load(Relaxed) > 50
        });
        assert!(info_number(&mut client, "stats", "overload_wait_p99_usec") > 0.0);
        eventually("a transaction with such a command is not run", || {
            check(&mut client, "MULTI", "OK");
            check(&mut client, "SET inside x", "QUEUED");
            let queued = client.call("ZRANGE big 0 -1");
            let is_refused = queued.show().contains("OVERLOADED");
            match is_refused {
                true => assert!(client.call("EXEC").show().contains("EXECABORT")),
                false => check(&mut client, "DISCARD", "OK"),
            }
            is_refused
        });
        check(&mut client, "EXISTS inside", "(integer) 0");
        stop.store(true, Relaxed);
    });
    let count = info_number(&mut client, "stats", "overload_refused_commands");
    assert!(count >= refused.load(Relaxed) as f64, "{count}");
    let errors = info_text(&mut client, "errorstats", "errorstat_OVERLOADED");
    assert_eq!(errors, Some(format!("count={count}")));
    let page = http(metrics_port, "/metrics");
    assert!(page.contains(&format!("basalt_overload_refused_total {count}\n")));
    let advice = client.call("LATENCY DOCTOR").text();
    assert!(advice.contains("overload-p99 (1 ms)"), "{advice}");
    check(&mut client, "CONFIG SET overload-p99 0", "OK");
    eventually("nothing is refused", || {
        info_number(&mut client, "stats", "overload_pressure") == 0.0
    });
    for _ in 0..20 {
        assert_eq!(client.call("ZRANGE big 0 -1").items().len(), MEMBERS);
    }
}
