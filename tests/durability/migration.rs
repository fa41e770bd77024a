//! A basalt server replaces a running redis-server: it follows as a replica, and is promoted by redis-server's
//! own FAILOVER, while clients read and write and never get a wrong reply. `MIGRATION_KEYS` sets the number
//! of keys, by default few.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::history::is_of_replica;
use crate::support::{Draw, Options, Oracle, Server, check, eventually, info_text, variable};
use crate::wire::{Raw, Value};

const CLIENTS: usize = 4;

/// Counters of one client.
const COUNTERS: usize = 50;

/// Time for which clients run before and after.
const LOAD: Duration = Duration::from_millis(500);

/// The clients' target, and their results.
struct World {
    ports: [u16; 2],
    /// The port that takes writes, as far as known.
    current: AtomicU16,
    keys: u64,
    ends: AtomicBool,
    answers: AtomicU64,
    longest_us: AtomicU64,
}

#[test]
fn a_running_redis_server_is_replaced_without_a_wrong_answer() {
    let Some(Oracle(old)) = Oracle::start() else {
        return;
    };
    let keys = variable("MIGRATION_KEYS", 20_000);
    populate(&mut old.raw(), keys);
    let new = Server::start(
        &Options::shards(16)
            .threads(2)
            .binary(std::env::var_os("STORM_BINARY"))
            .with("save", ""),
    );
    check(
        &mut old.raw(),
        "CONFIG SET repl-diskless-sync-delay 0",
        "OK",
    );
    let world = World {
        ports: [old.port, new.port],
        current: AtomicU16::new(0),
        keys,
        ends: AtomicBool::new(false),
        answers: AtomicU64::new(0),
        longest_us: AtomicU64::new(0),
    };
    let began = Instant::now();
    let mut followed = Duration::ZERO;
    let mut took_over = Duration::ZERO;
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let world = &world;
            scope.spawn(move || world.client(number));
        }
        std::thread::sleep(LOAD);
        let before = Instant::now();
        let line = format!("REPLICAOF 127.0.0.1 {}", old.port);
        check(&mut new.raw(), &line, "OK");
        let mut raw = new.raw();
        let role = |raw: &mut Raw, field: &str| info_text(raw, "replication", field);
        eventually("it follows", || {
            role(&mut raw, "master_link_status").as_deref() == Some("up")
        });
        followed = before.elapsed();
        let before = Instant::now();
        let mut asks = old.raw();
        eventually("the failover begins", || {
            asks.call("FAILOVER TIMEOUT 5000").show() == "OK"
        });
        eventually("it took over", || {
            role(&mut raw, "role").as_deref() == Some("master")
        });
        took_over = before.elapsed();
        std::thread::sleep(LOAD);
        world.ends.store(true, Relaxed);
    });
    let mut clients = [old.raw(), new.raw()];
    eventually("the data are equal", || {
        let [one, other] = clients
            .each_mut()
            .map(|client| client.call("DEBUG DIGEST").show());
        one == other
    });
    assert_eq!(
        info_text(&mut old.raw(), "replication", "role").as_deref(),
        Some("slave")
    );
    eprintln!(
        "migration: {keys} keys followed after {followed:?}, taken over after {took_over:?}; {} answers in {:?}, none wrong; \
         the longest took {} ms",
        world.answers.load(Relaxed),
        began.elapsed(),
        world.longest_us.load(Relaxed) / 1_000,
    );
}

pub(crate) fn populate(raw: &mut Raw, keys: u64) {
    const AT_ONCE: u64 = 10_000;
    let fill = "for i = ARGV[1], ARGV[2] do redis.call('SET', 'k:' .. i, 'v:' .. i) end";
    for first in (0..keys).step_by(AT_ONCE as usize) {
        let last = (first + AT_ONCE - 1).min(keys - 1);
        raw.command(&["EVAL", fill, "0", &first.to_string(), &last.to_string()]);
    }
}

impl World {
    fn connect(&self) -> Raw {
        loop {
            let port = self.ports[usize::from(self.current.load(Relaxed))];
            if let Ok(raw) = Raw::try_connect(port) {
                return raw;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a request, and repeats it at the other server if this one takes no writes any more.
    fn ask(&self, raw: &mut Raw, line: &str) -> Value {
        let began = Instant::now();
        loop {
            raw.send_unchecked(format!("{line}\r\n").as_bytes());
            match raw.try_read() {
                Ok(reply) if reply.is_error() && is_of_replica(&reply) => {
                    let other = 1 - self.current.load(Relaxed);
                    self.current.store(other, Relaxed);
                    std::thread::sleep(Duration::from_millis(1));
                    *raw = self.connect();
                }
                Ok(reply) => {
                    self.answers.fetch_add(1, Relaxed);
                    let us = began.elapsed().as_micros() as u64;
                    self.longest_us.fetch_max(us, Relaxed);
                    return reply;
                }
                Err(error) => panic!("{line}: a server closed the connection: {error}"),
            }
        }
    }

    fn client(&self, number: usize) {
        let mut raw = self.connect();
        let mut draw = Draw::new(number as u64);
        let mut counts = [0i64; COUNTERS];
        while !self.ends.load(Relaxed) {
            let at = draw.below(COUNTERS);
            match draw.below(4) {
                0 => {
                    let key = draw.below(self.keys as usize);
                    let reply = self.ask(&mut raw, &format!("GET k:{key}")).show();
                    assert_eq!(reply, format!("\"v:{key}\""));
                }
                1 => {
                    let line = format!("INCRBY count:{number}:{at} 0");
                    assert_eq!(self.ask(&mut raw, &line).integer(), counts[at], "{line}");
                }
                _ => {
                    let line = format!("INCR count:{number}:{at}");
                    counts[at] += 1;
                    assert_eq!(self.ask(&mut raw, &line).integer(), counts[at], "{line}");
                }
            }
        }
    }
}
