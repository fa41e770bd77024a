//! Servers that replicate each other, some of them in a chain, while links break, roles change, and servers
//! shut down in the middle of any work, are killed and restart.
//!
//! ```text
//! FLEET_ROUNDS   rounds, of some events each; by default a few
//! STORM_SEED     seed of the random choices; by default 1
//! STORM_BINARY   another build of this server
//! ```
//!
//! At any time, each server shows a state that a primary once had: a script writes a list and two counters,
//! which agree everywhere. After each round all data are equal.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::replicated::{Writer, info};
use crate::support::{Draw, Options, Server, check, eventually, free_port, variable};
use crate::wire::Raw;

const SERVERS: usize = 4;

/// Events of a round.
const EVENTS: usize = 6;

/// Keys that make a snapshot long.
const BALLAST: usize = 3_000;

/// One server, which restarts in its folder and on its port.
struct Node {
    dir: tempfile::TempDir,
    port: u16,
    server: Option<Server>,
    /// Index of the server that it follows.
    upstream: Option<usize>,
}

/// State of the clients.
struct World {
    ports: Vec<u16>,
    /// The port of the primary.
    current: AtomicU16,
    ends: AtomicBool,
    steps: AtomicU64,
    looks: AtomicU64,
}

/// Ends the work of clients on drop.
pub(crate) struct Ends<'w>(pub(crate) &'w AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

struct Fleet {
    draw: Draw,
    nodes: Vec<Node>,
    events: Vec<String>,
}

#[test]
fn whatever_happens_to_servers_their_data_agree_in_the_end_and_are_whole_at_all_times() {
    let mut fleet = Fleet::new();
    let rounds = variable("FLEET_ROUNDS", 3);
    let (mut steps, mut looks) = (0, 0);
    for round in 0..rounds {
        let world = World {
            ports: fleet.nodes.iter().map(|node| node.port).collect(),
            current: AtomicU16::new(fleet.nodes[fleet.primary()].port),
            ends: AtomicBool::new(false),
            steps: AtomicU64::new(0),
            looks: AtomicU64::new(0),
        };
        let seed = fleet.draw.next();
        std::thread::scope(|scope| {
            let world = &world;
            scope.spawn(move || world.write_together());
            scope.spawn(move || world.write(seed));
            scope.spawn(move || world.watch(Draw::new(seed)));
            // Whatever happens here, no client runs forever.
            let _ends = Ends(&world.ends);
            for _ in 0..EVENTS {
                let ms = fleet.draw.below(300) as u64;
                std::thread::sleep(Duration::from_millis(ms));
                fleet.event(world);
            }
        });
        fleet.settle(round);
        steps += world.steps.load(Relaxed);
        looks += world.looks.load(Relaxed);
    }
    assert!(steps > 0 && looks > 0, "{steps} steps, {looks} looks");
    eprintln!("fleet: {rounds} rounds of {EVENTS} events, {steps} steps, {looks} looks");
}

/// Appends its length to a list, and sets two counters to it.
const STEP: &str = "EVAL \"local n = redis.call('LLEN', 'fleet:list') redis.call('RPUSH', 'fleet:list', n) \
    redis.call('SET', 'fleet:a', n) redis.call('SET', 'fleet:b', n) return n\" 3 fleet:list fleet:a fleet:b";

/// Reads that list and the counters of each server, in one step.
const LOOK: &str = "EVAL_RO \"return {redis.call('LLEN', 'fleet:list') - 1, redis.call('LINDEX', 'fleet:list', -1), \
    redis.call('GET', 'fleet:a'), redis.call('GET', 'fleet:b')}\" 3 fleet:list fleet:a fleet:b";

impl World {
    fn connect(&self, port: u16, db: usize) -> Option<Raw> {
        let mut raw = Raw::try_connect(port).ok()?;
        raw.send_unchecked(format!("SELECT {db}\r\n").as_bytes());
        raw.try_read().ok().filter(|reply| !reply.is_error())?;
        Some(raw)
    }

    fn until_the_end(&self, mut work: impl FnMut(&World) -> Option<()>) {
        while !self.ends.load(Relaxed) {
            if work(self).is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// Runs the steps that belong together, at the current primary.
    fn write_together(&self) {
        self.until_the_end(|world| {
            let mut raw = world.connect(world.current.load(Relaxed), 9)?;
            while !world.ends.load(Relaxed) {
                raw.send_unchecked(format!("{STEP}\r\n").as_bytes());
                raw.try_read().ok().filter(|reply| !reply.is_error())?;
                world.steps.fetch_add(1, Relaxed);
            }
            Some(())
        });
    }

    /// Runs all other kinds of writes.
    fn write(&self, seed: u64) {
        let mut seed = seed;
        self.until_the_end(|world| {
            seed += 1;
            let raw = world.connect(world.current.load(Relaxed), 0)?;
            let mut writer = Writer::over(raw, seed);
            while !world.ends.load(Relaxed) {
                writer.try_write().ok()?;
            }
            Some(())
        });
    }

    /// Checks servers' data at any time.
    fn watch(&self, mut draw: Draw) {
        self.until_the_end(|world| {
            let port = world.ports[draw.below(world.ports.len())];
            let mut raw = world.connect(port, 9)?;
            for _ in 0..20 {
                raw.send_unchecked(format!("{LOOK}\r\n").as_bytes());
                let reply = raw.try_read().ok().filter(|reply| !reply.is_error())?;
                let numbers: Vec<String> = reply
                    .items()
                    .iter()
                    .map(|item| item.show().replace("(integer) ", "").replace('"', ""))
                    .collect();
                let is_empty = numbers[..] == ["-1", "(nil)", "(nil)", "(nil)"];
                let is_whole = numbers.iter().all(|number| *number == numbers[0]);
                assert!(is_empty || is_whole, "half of a step: {numbers:?}");
                world.looks.fetch_add(1, Relaxed);
            }
            Some(())
        });
    }
}

impl Fleet {
    fn new() -> Fleet {
        let node = |number: usize| Node {
            dir: tempfile::tempdir().expect("a temporary folder"),
            port: free_port(),
            server: None,
            upstream: (number > 0).then_some(0),
        };
        let mut fleet = Fleet {
            draw: Draw::new(variable("STORM_SEED", 1)),
            nodes: (0..SERVERS).map(node).collect(),
            events: Vec::new(),
        };
        fleet.start(0);
        let mut raw = fleet.raw(0);
        check(&mut raw, "SELECT 8", "OK");
        check(
            &mut raw,
            &format!("DEBUG POPULATE {BALLAST} ballast 100"),
            "OK",
        );
        (1..SERVERS).for_each(|number| fleet.start(number));
        fleet
    }

    fn raw(&self, number: usize) -> Raw {
        self.nodes[number].server.as_ref().expect("it runs").raw()
    }

    fn primary(&self) -> usize {
        let mut nodes = self.nodes.iter();
        let found = nodes.position(|node| node.upstream.is_none());
        found.expect("there is always one")
    }

    fn replica(&mut self) -> usize {
        let primary = self.primary();
        (primary + 1 + self.draw.below(SERVERS - 1)) % SERVERS
    }

    fn start(&mut self, number: usize) {
        let draw = &mut self.draw;
        let truth = |draw: &mut Draw| ["no", "yes"][draw.below(2)];
        let mut options = Options::shards([1, 8, 64][draw.below(3)])
            .threads([1, 2, 4, 8][draw.below(4)])
            .binary(std::env::var_os("STORM_BINARY"))
            .port(self.nodes[number].port)
            .with("dir", &self.nodes[number].dir.path().display().to_string())
            .with("repl-diskless-sync", truth(draw))
            .with("repl-diskless-sync-delay", "0")
            .with(
                "repl-diskless-load",
                ["disabled", "on-empty-db", "swapdb"][draw.below(3)],
            )
            .with("repl-backlog-size", ["16kb", "64mb"][draw.below(2)])
            .with("dual-channel-replication-enabled", truth(draw))
            .with("repl-rdb-channel", truth(draw))
            .with("save", ["", "3600 1"][draw.below(2)])
            .with("rdb-key-save-delay", ["0", "100"][draw.below(2)])
            .with("shutdown-timeout", "2");
        if let Some(upstream) = self.nodes[number].upstream {
            let port = self.nodes[upstream].port;
            options = options.with("replicaof", &format!("127.0.0.1 {port}"));
        }
        self.nodes[number].server = Some(Server::start(&options));
    }

    /// Makes a server follow another one, or none.
    fn follow(&mut self, number: usize, upstream: Option<usize>) {
        self.nodes[number].upstream = upstream;
        let whom = match upstream {
            Some(upstream) => format!("127.0.0.1 {}", self.nodes[upstream].port),
            None => "NO ONE".to_owned(),
        };
        let mut raw = self.raw(number);
        // Refused while data are loaded.
        eventually("it follows", || {
            !raw.call(&format!("REPLICAOF {whom}")).is_error()
        });
    }

    /// Makes a replica the primary of all others that run.
    fn promote(&mut self, number: usize, world: &World) {
        self.follow(number, None);
        world.current.store(self.nodes[number].port, Relaxed);
        for other in 0..SERVERS {
            if other != number && self.nodes[other].server.is_some() {
                self.follow(other, Some(number));
            }
        }
    }

    fn event(&mut self, world: &World) {
        let primary = self.primary();
        let replica = self.replica();
        let kind = self.draw.below(11);
        self.events.push(format!("{kind} of {primary}, {replica}"));
        match kind {
            0 => drop(self.raw(primary).call("CLIENT KILL TYPE replica")),
            1 => drop(self.raw(replica).call("CLIENT KILL TYPE master")),
            2 => {
                self.kill(replica);
                self.start(replica);
            }
            3 | 4 => {
                self.end(replica);
                self.start(replica);
            }
            5 => {
                // Its place is taken, and it comes back as a replica.
                self.end(primary);
                self.promote(replica, world);
                self.nodes[primary].upstream = Some(replica);
                self.start(primary);
            }
            6 => {
                self.kill(primary);
                self.promote(replica, world);
                self.nodes[primary].upstream = Some(replica);
                self.start(primary);
            }
            7 => self.fail_over(primary, world),
            8 => self.chain(primary, replica),
            9 => {
                let server = self.nodes[replica].server.as_ref().expect("it runs");
                server.signal("STOP");
                std::thread::sleep(Duration::from_millis(200));
                server.signal("CONT");
            }
            _ => {
                let load = ["disabled", "on-empty-db", "swapdb"][self.draw.below(3)];
                // Refused while data are loaded aside.
                self.raw(replica)
                    .call(&format!("CONFIG SET repl-diskless-load {load}"));
                let file = ["no", "yes"][self.draw.below(2)];
                self.raw(replica)
                    .call(&format!("CONFIG SET appendonly {file}"));
                let delay = [0, 100, 1_000][self.draw.below(3)];
                self.raw(primary)
                    .call(&format!("CONFIG SET rdb-key-save-delay {delay}"));
            }
        }
    }

    fn kill(&mut self, number: usize) {
        let server = self.nodes[number].server.take().expect("it runs");
        server.signal("KILL");
    }

    /// Ends a server by SHUTDOWN, whatever it is doing.
    fn end(&mut self, number: usize) {
        let how = [
            "SHUTDOWN SAVE",
            "SHUTDOWN NOSAVE",
            "SHUTDOWN",
            "SHUTDOWN NOW",
        ];
        let how = how[self.draw.below(how.len())];
        self.events.push(format!("{how} of {number}"));
        let mut server = self.nodes[number].server.take().expect("it runs");
        eventually("it ends", || {
            let Ok(mut raw) = Raw::try_connect(server.port) else {
                return true;
            };
            raw.send_unchecked(format!("{how}\r\n").as_bytes());
            // Refused while the first append-only file is written.
            raw.try_read().is_err()
        });
        let code = server.wait_for_exit();
        assert_eq!(code, Some(0), "{:?}\n{}", self.events, server.log());
    }

    fn fail_over(&mut self, primary: usize, world: &World) {
        let mut raw = self.raw(primary);
        // Refused where no replica is there.
        raw.call("FAILOVER TIMEOUT 2000");
        eventually("the failover is over", || {
            info(&mut raw, "master_failover_state") == "no-failover"
        });
        if info(&mut raw, "role") == "slave" {
            let port = info(&mut raw, "master_port");
            let mut nodes = self.nodes.iter();
            let next = nodes.position(|node| node.port.to_string() == port);
            let next = next.expect("one of them");
            eventually("it has taken over", || {
                info(&mut self.raw(next), "role") == "master"
            });
            self.promote(next, world);
        }
    }

    /// Makes a replica follow another one that follows the primary, if no server follows it.
    fn chain(&mut self, primary: usize, replica: usize) {
        let is_followed = self.nodes.iter().any(|node| node.upstream == Some(replica));
        let through = self.replica();
        let is_direct = self.nodes[through].upstream == Some(primary);
        let upstream = match !is_followed && through != replica && is_direct {
            true => through,
            false => primary,
        };
        self.follow(replica, Some(upstream));
    }

    fn settle(&mut self, round: u64) {
        for number in 0..SERVERS {
            self.raw(number).call("CONFIG SET rdb-key-save-delay 0");
        }
        let mut clients: Vec<Raw> = (0..SERVERS).map(|number| self.raw(number)).collect();
        let events = std::mem::take(&mut self.events);
        eventually(
            &format!("round {round}: all data are equal after {events:?}"),
            || {
                let digests = clients
                    .iter_mut()
                    .map(|client| client.call("DEBUG DIGEST").show());
                let digests: Vec<String> = digests.collect();
                digests.iter().all(|digest| *digest == digests[0])
            },
        );
    }
}
