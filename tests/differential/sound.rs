//! Random calls to this server alone: whatever is sent, it replies, keeps its data consistent, and frees its
//! memory.
//!
//! `CALLS=500000` for a long run, `CALLS_FIRST=17` to begin with another seed.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use crate::calls::{self, Calls};
use crate::support::Draw;
use crate::support::{self, Options, Server, eventually};
use crate::wire::{self, Raw, Value};
use crate::{Words, number, reply};

/// Calls between two looks at the server.
const CALLS_PER_ROUND: u64 = 2_000;

/// Connections that take turns.
const CONNECTIONS: usize = 3;

/// Calls in one write, at most.
const BATCH_MAX: usize = 24;

/// Most memory that may remain once everything is flushed: buffers, statistics, the allocator's reserve.
const KEPT_BYTES_MAX: u64 = 4 << 20;

fn connect(server: &Server) -> Raw {
    let raw = server.raw();
    raw.stream()
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a time-out");
    raw
}

#[test]
fn random_calls_of_every_command_leave_a_sound_server() {
    if support::is_stand_in() && std::env::var_os("CALLS").is_none() {
        return;
    }
    let (first, count) = (number("CALLS_FIRST", 1), number("CALLS", 24_000));
    let rounds = count.div_ceil(CALLS_PER_ROUND);
    let options = |shards| Options::shards(shards).with("proto-max-bulk-len", "16mb");
    let mut server = None;
    let mut base = 0;
    for seed in first..first + rounds {
        let half = first + rounds / 2;
        if seed == first || seed == half {
            let fresh = Server::start(&options(if seed == first { 1 } else { 16 }));
            connect(&fresh).call("PING");
            base = used_bytes(&mut connect(&fresh));
            server = Some(fresh);
        }
        let server = server.as_ref().expect("started with the first seed");
        let mut sent: Vec<Words> = Vec::new();
        let outcome = round(server, seed, &mut sent).and_then(|()| look(server, base));
        if let Err(why) = outcome {
            let path = keep(seed, &sent);
            panic!("seed {seed}: {why}; its calls are in {}", path.display());
        }
    }
}

/// Sends the calls of one seed.
fn round(server: &Server, seed: u64, sent: &mut Vec<Words>) -> Result<(), String> {
    let mut draw = Draw::new(seed);
    let mut raws: Vec<Raw> = (0..CONNECTIONS).map(|_| connect(server)).collect();
    // Each connection has its own transaction.
    let mut all: Vec<Calls> = raws.iter_mut().map(|raw| Calls::of(raw, false)).collect();
    assert!(all[0].len() > 250, "{} commands", all[0].len());
    assert!(!all[0].is_steady());
    while (sent.len() as u64) < CALLS_PER_ROUND {
        let at = draw.below(CONNECTIONS);
        let batch: Vec<Words> = (0..1 + draw.below(BATCH_MAX))
            .map(|_| all[at].call(&mut draw))
            .collect();
        let mut bytes = Vec::new();
        for words in &batch {
            wire::encode_into(&mut bytes, words);
        }
        sent.extend(batch.iter().cloned());
        raws[at].send_unchecked(&bytes);
        for words in &batch {
            let reply = loop {
                match reply(&mut raws[at]) {
                    Value::Push(_) => {}
                    reply => break reply,
                }
            };
            if let Value::Error(text) = &reply
                && text.starts_with(b"(no reply")
            {
                let text = String::from_utf8_lossy(text);
                return Err(format!("> {}\n{text}", calls::line(words)));
            }
        }
    }
    Ok(())
}

/// Looks whether the server is as it should be, and empties it.
fn look(server: &Server, base: u64) -> Result<(), String> {
    let mut raw = connect(server);
    let ask = |raw: &mut Raw, line: &str| raw.call(line).show();
    if ask(&mut raw, "PING") != "PONG" {
        return Err("another connection has no answer".into());
    }
    // A deadline may pass between the two, though hardly twice.
    let mut is_same = false;
    for _ in 0..3 {
        let before = ask(&mut raw, "DEBUG DIGEST");
        let reloaded = ask(&mut raw, "DEBUG RELOAD");
        if reloaded != "OK" {
            return Err(format!("DEBUG RELOAD: {reloaded}"));
        }
        is_same = before == ask(&mut raw, "DEBUG DIGEST");
        if is_same {
            break;
        }
    }
    if !is_same {
        return Err("the data is another after DEBUG RELOAD".into());
    }
    if ask(&mut raw, "FLUSHALL") != "OK" {
        return Err("FLUSHALL failed".into());
    }
    eventually("memory is given back after FLUSHALL", || {
        used_bytes(&mut raw) < base + KEPT_BYTES_MAX
    });
    Ok(())
}

fn used_bytes(raw: &mut Raw) -> u64 {
    let info = raw.call("INFO memory").body();
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    line.and_then(|digits| digits.trim().parse().ok())
        .expect("INFO has used_memory")
}

/// Writes the calls of a seed down.
fn keep(seed: u64, sent: &[Words]) -> PathBuf {
    let mut text = String::new();
    for words in sent {
        let _ = writeln!(text, "{}", calls::line(words));
    }
    let path = std::env::temp_dir().join(format!("calls-{seed}.txt"));
    std::fs::write(&path, text).expect("room for the calls");
    path
}
