//! A basalt server replaces a running redis-server under the control of the Sentinel that Debian ships: by
//! SENTINEL FAILOVER, and when the old primary is killed. Clients ask Sentinel for the primary. Writes that
//! WAIT acknowledged are there afterwards, and no reply is wrong. `MIGRATION_KEYS` sets the number of keys,
//! by default few.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::fleet::Ends;
use crate::history::is_of_replica;
use crate::migration::populate;
use crate::replicated::await_link;
use crate::support::{
    Draw, Options, Oracle, Server, check, eventually, free_port, skipped, variable,
};
use crate::wire::{Raw, Value};

const CLIENTS: usize = 4;

/// Time for which clients run before and after the failover.
const LOAD: Duration = Duration::from_millis(700);

/// Time between two requests to Sentinel.
const PAUSE: Duration = Duration::from_millis(5);

/// The name of the primary, for Sentinel.
const NAME: &str = "moving";

/// redis-sentinel, which watches one primary. Killed on drop.
struct Sentinel {
    child: Child,
    port: u16,
    dir: tempfile::TempDir,
}

impl Sentinel {
    /// Returns the path of redis-sentinel. If it is absent, the test says so and passes, unless
    /// `BASALT_REQUIRE_ORACLE=1`.
    fn binary() -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut files = std::env::split_paths(&path).map(|dir| dir.join("redis-sentinel"));
        let found = files.find(|file| file.is_file());
        if found.is_none() {
            let is_required =
                std::env::var("BASALT_REQUIRE_ORACLE").is_ok_and(|value| value == "1");
            assert!(
                !is_required,
                "BASALT_REQUIRE_ORACLE=1, but there is no redis-sentinel in PATH"
            );
            skipped("no redis-sentinel");
        }
        found
    }

    fn start(binary: &PathBuf, primary: u16) -> Sentinel {
        let (dir, port) = (
            tempfile::tempdir().expect("a temporary folder"),
            free_port(),
        );
        let file = dir.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\nlogfile {0}/log\ndir {0}\n\
             sentinel monitor {NAME} 127.0.0.1 {primary} 1\n\
             sentinel down-after-milliseconds {NAME} 2000\nsentinel failover-timeout {NAME} 10000\n",
            dir.path().display()
        );
        std::fs::write(&file, text).expect("a configuration");
        let child = Command::new(binary)
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start redis-sentinel");
        let sentinel = Sentinel { child, port, dir };
        eventually("Sentinel is there", || {
            Raw::try_connect(sentinel.port).is_ok()
        });
        sentinel
    }

    /// Returns the port of the primary according to Sentinel.
    fn primary(raw: &mut Raw) -> u16 {
        let address = raw.call(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {NAME}"));
        let port = address.items().get(1).map(Value::text);
        let port = port.and_then(|text| text.parse().ok());
        port.expect("Sentinel knows a primary")
    }

    /// True if Sentinel knows `replicas` replicas that could be promoted.
    fn sees(&self, replicas: usize) -> bool {
        let found = Raw::connect(self.port).call(&format!("SENTINEL REPLICAS {NAME}"));
        let is_fit = |replica: &&Value| {
            let words: Vec<String> = replica.items().iter().map(Value::text).collect();
            let is = |name: &str, value: &str| words.windows(2).any(|two| *two == [name, value]);
            is("flags", "slave") && is("master-link-status", "ok")
        };
        found.items().iter().filter(is_fit).count() == replicas
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            eprintln!("--- log of Sentinel\n{log}");
        }
    }
}

/// Knowledge and findings of the clients.
struct World {
    sentinel: u16,
    /// The port of the server that is promoted.
    new: u16,
    keys: u64,
    ends: AtomicBool,
    answers: AtomicU64,
    acknowledged: AtomicU64,
    /// Steps that were answered, but not acknowledged, and that no server has now.
    lost: AtomicU64,
    longest_us: AtomicU64,
}

#[test]
fn sentinel_moves_a_running_redis_server_to_this_one_when_it_is_asked_to() {
    migrate("asked", |_, sentinel| {
        let asked = Raw::connect(sentinel.port).call(&format!("SENTINEL FAILOVER {NAME}"));
        assert_eq!(asked.show(), "OK");
    });
}

#[test]
fn sentinel_has_this_one_take_over_from_a_redis_server_that_was_killed() {
    migrate("killed", |old, _| old.signal("KILL"));
}

/// Runs a migration; `begin` makes Sentinel begin the failover.
fn migrate(how: &str, begin: impl FnOnce(&Server, &Sentinel)) {
    let (Some(binary), Some(Oracle(old)), Some(Oracle(other))) =
        (Sentinel::binary(), Oracle::start(), Oracle::start())
    else {
        return;
    };
    let keys = variable("MIGRATION_KEYS", 20_000);
    let mut raw = old.raw();
    populate(&mut raw, keys);
    check(&mut raw, "CONFIG SET repl-diskless-sync-delay 0", "OK");
    // The other replica is as good, but for its priority.
    let line = format!("REPLICAOF 127.0.0.1 {}", old.port);
    check(&mut other.raw(), &line, "OK");
    let new = Server::start(
        &Options::shards(16)
            .threads(2)
            .binary(std::env::var_os("STORM_BINARY"))
            .with("replica-priority", "10")
            .with("repl-diskless-sync-delay", "0")
            .with("replicaof", &format!("127.0.0.1 {}", old.port)),
    );
    await_link(&new);
    await_link(&other);
    let sentinel = Sentinel::start(&binary, old.port);
    eventually("Sentinel knows both replicas", || sentinel.sees(2));
    let world = World {
        sentinel: sentinel.port,
        new: new.port,
        keys,
        ends: AtomicBool::new(false),
        answers: AtomicU64::new(0),
        acknowledged: AtomicU64::new(0),
        lost: AtomicU64::new(0),
        longest_us: AtomicU64::new(0),
    };
    let took_over = std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let world = &world;
            scope.spawn(move || world.client(number));
        }
        // Whatever happens here, no client runs forever.
        let _ends = Ends(&world.ends);
        std::thread::sleep(LOAD);
        let before = world.acknowledged.load(Relaxed);
        assert!(before > 0, "nothing was acknowledged by both replicas");
        let began = Instant::now();
        begin(&old, &sentinel);
        // Sentinel has servers close connections when roles change.
        eventually("it took over", || is(&new, "role", "master"));
        let took_over = began.elapsed();
        let mut asks = Raw::connect(sentinel.port);
        eventually("Sentinel says so", || {
            Sentinel::primary(&mut asks) == new.port
        });
        let after = world.acknowledged.load(Relaxed);
        eventually("clients go on", || {
            world.acknowledged.load(Relaxed) > after + 100
        });
        std::thread::sleep(LOAD);
        took_over
    });
    let is_there = |server: &&Server| Raw::try_connect(server.port).is_ok();
    let replicas: Vec<&Server> = [&old, &other].into_iter().filter(is_there).collect();
    for replica in &replicas {
        let port = new.port.to_string();
        eventually("it follows the new primary", || {
            is(replica, "master_port", &port) && is(replica, "master_link_status", "up")
        });
        eventually("the data are equal", || {
            let [one, other] =
                [replica, &&new].map(|server| server.raw().call("DEBUG DIGEST").show());
            one == other
        });
    }
    eprintln!(
        "migration by Sentinel, {how}: {keys} keys, taken over after {took_over:?}; {} replicas follow; {} answers, none \
         wrong; {} steps acknowledged, none of them lost; {} others lost; the longest answer took {} ms",
        replicas.len(),
        world.answers.load(Relaxed),
        world.acknowledged.load(Relaxed),
        world.lost.load(Relaxed),
        world.longest_us.load(Relaxed) / 1_000,
    );
}

/// True if a server reports this value of itself, over a connection of its own.
fn is(server: &Server, name: &str, value: &str) -> bool {
    Raw::try_connect(server.port).is_ok_and(|mut raw| {
        raw.send_unchecked(b"INFO replication\r\n");
        let text = raw.try_read().map(|reply| reply.body());
        text.is_ok_and(|text| text.lines().any(|line| line == format!("{name}:{value}")))
    })
}

/// A client's knowledge of its counter.
#[derive(Default)]
struct Counter {
    /// Lower bound.
    acknowledged: i64,
    /// Upper bound.
    sent: i64,
    /// The last reply on this connection.
    said: Option<i64>,
}

impl Counter {
    fn check(&self, found: i64, least_more: i64) {
        let least = self.said.unwrap_or(self.acknowledged) + least_more;
        let most = self.said.map_or(self.sent, |said| said + least_more);
        assert!(
            (least..=most).contains(&found),
            "{found} is none of {least} to {most}"
        );
    }
}

impl World {
    /// Connects to the primary that Sentinel names; returns also whether it is the new one.
    fn connect(&self, asks: &mut Raw) -> Option<(Raw, u16)> {
        let port = Sentinel::primary(asks);
        Raw::try_connect(port).ok().map(|raw| (raw, port))
    }

    /// Returns `None` once the server is not the primary any more, or gone.
    fn ask(&self, raw: &mut Raw, lines: &[&str]) -> Option<Vec<Value>> {
        raw.send_unchecked((lines.join("\r\n") + "\r\n").as_bytes());
        let mut replies = Vec::new();
        for line in lines {
            let reply = raw.try_read().ok()?;
            if reply.is_error() && is_of_replica(&reply) {
                return None;
            }
            assert!(!reply.is_error(), "{line}: {}", reply.show());
            self.answers.fetch_add(1, Relaxed);
            replies.push(reply);
        }
        Some(replies)
    }

    fn client(&self, number: usize) {
        let mut asks = Raw::connect(self.sentinel);
        let mut draw = Draw::new(number as u64 + 1);
        let mut counter = Counter::default();
        let mut last = Instant::now();
        while !self.ends.load(Relaxed) {
            let Some((mut raw, port)) = self.connect(&mut asks) else {
                std::thread::sleep(PAUSE);
                continue;
            };
            counter.said = None;
            while !self.ends.load(Relaxed) {
                let stays = self.step(&mut raw, port, &mut draw, &mut counter, number);
                let Some(is_acknowledged) = stays else {
                    break;
                };
                let us = last.elapsed().as_micros() as u64;
                self.longest_us.fetch_max(us, Relaxed);
                last = Instant::now();
                // A client whose writes fail asks whether another server has been promoted.
                if !is_acknowledged && Sentinel::primary(&mut asks) != port {
                    break;
                }
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Reads and writes once; returns whether the write is acknowledged, or `None` if the connection is of no
    /// more use.
    fn step(
        &self,
        raw: &mut Raw,
        port: u16,
        draw: &mut Draw,
        counter: &mut Counter,
        number: usize,
    ) -> Option<bool> {
        let key = draw.below(self.keys as usize);
        let (get, count) = (format!("GET k:{key}"), format!("GET count:{number}"));
        let replies = self.ask(raw, &[&get, &count])?;
        assert_eq!(replies[0].show(), format!("\"v:{key}\""));
        let there = match &replies[1] {
            nothing if nothing.is_nil() => 0,
            count => count.text().parse().expect("a number"),
        };
        counter.check(there, 0);
        if counter.said.is_none() && port == self.new {
            // No server replaces this one.
            self.lost.fetch_add((counter.sent - there) as u64, Relaxed);
            (counter.acknowledged, counter.sent) = (there, there);
        }
        counter.said = Some(there);
        counter.sent += 1;
        let incr = format!("INCR count:{number}");
        let replies = self.ask(raw, &[&incr, "WAIT 2 100"])?;
        let there = replies[0].integer();
        counter.check(there, 1);
        counter.said = Some(there);
        counter.sent = there.max(counter.sent);
        let is_acknowledged = port == self.new || replies[1].integer() >= 2;
        if is_acknowledged {
            counter.acknowledged = there;
            self.acknowledged.fetch_add(1, Relaxed);
        }
        Some(is_acknowledged)
    }
}
