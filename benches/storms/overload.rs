//! More work than the server's cores do: connections that send commands over whole collections, without a pause.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::{Figures, Plan};
use crate::steady::{self, Steady};
use crate::support::process::{self, Process};

/// The value of `overload-p99` with which basalt is measured, too.
pub(crate) const P99_MS: &str = "3";

/// The kinds of work.
pub(crate) const KINDS: &[&str] = &["ranges", "scripts", "stores"];

/// Connections that send it.
const CONNECTIONS: usize = 16;

/// Members of each collection.
const MEMBERS: usize = 5_000;

/// Pause of a client that was refused, which any client library has.
const REST: Duration = Duration::from_millis(20);

fn request(kind: &str, number: usize) -> Vec<u8> {
    let key = format!("set:{number}");
    let script = "local n = 0 for i = 1, 300000 do n = n + i end return n";
    let mut bytes = Vec::new();
    match kind {
        "ranges" => process::encode_into(&mut bytes, &["ZRANGE", &key, "0", "-1", "WITHSCORES"]),
        "scripts" => process::encode_into(&mut bytes, &["EVAL", script, "1", &key]),
        _ => process::encode_into(
            &mut bytes,
            &["ZUNIONSTORE", &format!("to:{number}"), "1", &key],
        ),
    }
    bytes
}

pub(crate) fn run(plan: &Plan, server: &Process, variant: &str) -> Figures {
    let mut client = server.client();
    steady::load(&mut client);
    client.load(CONNECTIONS * MEMBERS / 50, |index, out| {
        let first = index * 50;
        let mut words = vec!["ZADD".to_owned(), format!("set:{}", first / MEMBERS)];
        for member in first..first + 50 {
            words.extend([member.to_string(), format!("member:{member}")]);
        }
        process::encode_into(out, &words);
    });
    let idle_ms = steady::p99_idle_ms(server.port, None, plan.quick);
    let stop = Arc::new(AtomicBool::new(false));
    let (done, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let threads: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let request = request(variant, number);
            let (stop, port) = (Arc::clone(&stop), server.port);
            let (done, refused) = (Arc::clone(&done), Arc::clone(&refused));
            std::thread::spawn(move || work(port, &request, &stop, &done, &refused))
        })
        .collect();
    // The server has noticed by then.
    std::thread::sleep(Duration::from_secs(2));
    let (began, done_before) = (Instant::now(), done.load(Relaxed));
    let steady = Steady::start(server.port, None);
    std::thread::sleep(Duration::from_secs(if plan.quick { 2 } else { 5 }));
    let storm_ms = steady.p99_ms();
    let done_s = (done.load(Relaxed) - done_before) as f64 / began.elapsed().as_secs_f64();
    stop.store(true, Relaxed);
    for thread in threads {
        thread.join().expect("a connection");
    }
    vec![
        ("p99 before, ms", idle_ms),
        ("p99 in the storm, ms", storm_ms),
        ("dear commands/s", done_s),
        ("refused", refused.load(Relaxed) as f64),
    ]
}

/// Sends the request again and again, and counts what was done and what was refused.
fn work(port: u16, request: &[u8], stop: &AtomicBool, done: &AtomicU64, refused: &AtomicU64) {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    // Behind each request a PING, whose reply marks the end of the one before.
    let bytes = [request, b"PING\r\n"].concat();
    let mut buffer = vec![0; 1 << 20];
    while !stop.load(Relaxed) {
        socket.write_all(&bytes).expect("send");
        let (mut is_refused, mut is_first, mut tail) = (false, true, Vec::new());
        loop {
            let count = socket.read(&mut buffer).expect("a reply");
            assert!(count > 0, "the server is there");
            is_refused |= is_first && buffer[0] == b'-';
            is_first = false;
            tail.extend_from_slice(&buffer[count.saturating_sub(7)..count]);
            if tail.ends_with(b"+PONG\r\n") {
                break;
            }
            tail.drain(..tail.len().saturating_sub(7));
        }
        if is_refused {
            refused.fetch_add(1, Relaxed);
            std::thread::sleep(REST);
        } else {
            done.fetch_add(1, Relaxed);
        }
    }
}
