//! Storms of bytes: some connections write and read long values as fast as the server lets them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::{Figures, Plan};
use crate::steady::{self, Steady};
use crate::support::process::{self, Process};

/// Connections with long values, of which half write and half read.
const CONNECTIONS: usize = 4;

pub(crate) fn run(plan: &Plan, server: &Process, variant: &str) -> Figures {
    let mib = variant.split(' ').next().and_then(|word| word.parse().ok());
    let len = mib.map_or(1, |mib: usize| mib) << 20;
    let mut client = server.client();
    steady::load(&mut client);
    let value = vec![b'x'; len];
    let mut bytes = Vec::new();
    for number in 0..CONNECTIONS {
        bytes.clear();
        process::encode_into(&mut bytes, &[b"SET", key(number).as_bytes(), &value]);
        client.send(&bytes);
        client.read();
    }
    let idle_ms = steady::p99_idle_ms(server.port, None, plan.quick);
    let steady = Steady::start(server.port, None);
    let stop = Arc::new(AtomicBool::new(false));
    let moved = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let threads: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let (stop, moved, port) = (Arc::clone(&stop), Arc::clone(&moved), server.port);
            std::thread::spawn(move || match number % 2 {
                0 => write(port, number, len, &stop, &moved),
                _ => read(port, number, len, &stop, &moved),
            })
        })
        .collect();
    std::thread::sleep(Duration::from_secs(if plan.quick { 1 } else { 5 }));
    let storm_ms = steady.p99_ms();
    let mib_s = moved.load(Relaxed) as f64 / began.elapsed().as_secs_f64() / (1 << 20) as f64;
    stop.store(true, Relaxed);
    for thread in threads {
        thread.join().expect("a connection");
    }
    vec![
        ("p99 before, ms", idle_ms),
        ("p99 in the storm, ms", storm_ms),
        ("MiB/s", mib_s),
    ]
}

fn key(number: usize) -> String {
    format!("long:{number}")
}

fn write(port: u16, number: usize, len: usize, stop: &AtomicBool, moved: &AtomicU64) {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    let mut bytes = Vec::new();
    process::encode_into(
        &mut bytes,
        &[b"SET", key(number).as_bytes(), &vec![b'x'; len]],
    );
    let mut reply = [0; 5];
    while !stop.load(Relaxed) {
        socket.write_all(&bytes).expect("send");
        socket.read_exact(&mut reply).expect("a reply");
        moved.fetch_add(len as u64, Relaxed);
    }
}

fn read(port: u16, number: usize, len: usize, stop: &AtomicBool, moved: &AtomicU64) {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    let mut bytes = Vec::new();
    process::encode_into(&mut bytes, &["GET", &key(number)]);
    let head = format!("${len}\r\n").len();
    let mut reply = vec![0; head + len + 2];
    while !stop.load(Relaxed) {
        socket.write_all(&bytes).expect("send");
        socket.read_exact(&mut reply).expect("a reply");
        moved.fetch_add(len as u64, Relaxed);
    }
}
