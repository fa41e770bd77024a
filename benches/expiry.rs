//! The cost of expiry: a million keys with one time to live, never touched again. Measured are the time until they are
//! gone, by `used_memory` and `expired_keys`, the p99 of another client meanwhile, compared with the same client on an
//! idle server, and the lag from deadline to deletion with 100,000 volatile keys.
//!
//! ```text
//! cargo bench --bench expiry -- [--quick] [--keys 1000000] [--rounds 5] [--basalt PATH] [--redis PATH]
//!     [--valkey PATH] [--no-redis] [--no-valkey] [--out DIR]
//! ```
//!
//! Servers have all cores, as does the one client; basalt, redis-server and Valkey take turns.

use std::fmt::Write;
use std::time::{Duration, Instant};

mod support;

use support::arguments::Arguments;
use support::peers::{self, Peer};
use support::process::{self, Client, Process};

struct Round {
    /// Seconds from the common deadline to the last key's deletion; negative if keys expired early.
    gone_after_s: f64,
    idle_p99_us: f64,
    expiry_p99_us: f64,
}

fn main() {
    let Some(arguments) = Arguments::read() else {
        return;
    };
    let quick = arguments.has("--quick");
    let keys = arguments.sized("--keys", 1_000_000, 100_000);
    let rounds = arguments.sized("--rounds", 5, 1);
    let servers = peers::all(&arguments, &[]);
    let mut results: Vec<Vec<Round>> = servers.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for index in peers::order(servers.len(), round) {
            let result = mass_expiry(&servers[index], keys);
            eprintln!(
                "{}: gone after {:.3} s, p99 idle {:.0} us, meanwhile {:.0} us",
                servers[index].name, result.gone_after_s, result.idle_p99_us, result.expiry_p99_us
            );
            results[index].push(result);
        }
    }
    let mut out = peers::heading(&servers);
    let _ = writeln!(
        out,
        "{keys} keys with one time to live, median of {rounds}.\n"
    );
    out += "| server | all gone after | p99 of another client, idle | meanwhile | ratio |\n|---|---|---|---|---|\n";
    for (server, rounds) in servers.iter().zip(&results) {
        let (idle, busy) = (
            median(rounds, |round| round.idle_p99_us),
            median(rounds, |round| round.expiry_p99_us),
        );
        let _ = writeln!(
            out,
            "| {} | {:.2} s | {idle:.0} us | {busy:.0} us | {:.2} |",
            server.name,
            median(rounds, |round| round.gone_after_s),
            busy / idle
        );
    }
    let _ = writeln!(
        out,
        "\n{}",
        lag(
            &servers[servers.len() - 1],
            if quick { 20_000 } else { 100_000 }
        )
    );
    peers::publish(&arguments, "expiry.md", &out);
}

fn median(rounds: &[Round], of: fn(&Round) -> f64) -> f64 {
    peers::median(rounds.iter().map(of).collect())
}

fn start(peer: &Peer) -> Process {
    peer.start(&format!("0-{}", process::core_count() - 1), &[])
}

fn mass_expiry(peer: &Peer, keys: usize) -> Round {
    let server = start(peer);
    let mut client = server.client();
    client.load(1000, |index, out| {
        process::encode_into(out, &["SET", &format!("other:{index}"), "v"])
    });
    let empty = client.info("memory", "used_memory").expect("used_memory");
    let loading = Instant::now();
    // Long enough for the load; the rest of the wait measures the idle client.
    let deadline_ms = now_ms() + 8000 + keys as u64 / 100;
    let deadline = Instant::now() + Duration::from_millis(deadline_ms - now_ms());
    let at = deadline_ms.to_string();
    client.load(keys, |index, out| {
        process::encode_into(
            out,
            &[
                "SET",
                &support::load::key(index),
                "12345678901234567890123456789012",
                "PXAT",
                &at,
            ],
        );
    });
    assert!(
        Instant::now() < deadline,
        "loading took {:?}: too slow a machine for this",
        loading.elapsed()
    );
    let full = client.info("memory", "used_memory").expect("used_memory");
    let idle_p99_us = p99_until(
        &mut client,
        deadline
            .checked_sub(Duration::from_millis(100))
            .expect("later"),
        3000,
    );
    let mut latencies = Vec::new();
    let mut watcher = server.client();
    let mut gone_after_s = f64::NAN;
    std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
    while deadline.elapsed() < Duration::from_secs(60) {
        for _ in 0..200 {
            latencies.push(timed(&mut client));
        }
        let expired = watcher.info("stats", "expired_keys").unwrap_or(0.0);
        let used = watcher.info("memory", "used_memory").expect("used_memory");
        // Tables need not shrink at once; the entries' memory must be freed.
        if expired >= keys as f64 && used - empty < (full - empty) * 0.35 {
            gone_after_s = deadline.elapsed().as_secs_f64();
            break;
        }
    }
    Round {
        gone_after_s,
        idle_p99_us,
        expiry_p99_us: p99(latencies),
    }
}

/// Measures the p99 of requests until `end`.
fn p99_until(client: &mut Client, end: Instant, requests_min: usize) -> f64 {
    let mut latencies = Vec::new();
    while Instant::now() < end || latencies.len() < requests_min {
        latencies.push(timed(client));
    }
    p99(latencies)
}

fn timed(client: &mut Client) -> f64 {
    let started = Instant::now();
    client.ask(&["GET", "other:7"]);
    started.elapsed().as_nanos() as f64 / 1000.0
}

fn p99(mut latencies: Vec<f64>) -> f64 {
    latencies.sort_by(f64::total_cmp);
    latencies
        .get(latencies.len() * 99 / 100)
        .copied()
        .unwrap_or(f64::NAN)
}

/// Measures the lag of keys with deadlines spread over five seconds, as reported by basalt itself.
fn lag(peer: &Peer, keys: usize) -> String {
    let server = start(peer);
    let mut client = server.client();
    let base = now_ms() + 2000;
    client.load(keys, |index, out| {
        let at = (base + (index as u64 * 7919) % 5000).to_string();
        process::encode_into(out, &["SET", &support::load::key(index), "v", "PXAT", &at]);
    });
    std::thread::sleep(Duration::from_millis(
        (base + 7000).saturating_sub(now_ms()),
    ));
    let left = client.ask(&["DBSIZE"]);
    match client.info("basalt", "expiry_lag_p99_ms") {
        Some(lag) => format!(
            "Lag from deadline to deletion with {keys} volatile keys: p99 {:.1} ms ({left} keys left).",
            lag
        ),
        None => format!(
            "{left} of {keys} volatile keys left 2 s after the last deadline (this server reports no lag)."
        ),
    }
}

fn now_ms() -> u64 {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970")
        .as_millis() as u64
}
