//! How fast a slot with many keys migrates from one node of a cluster to another, and the effect on clients: CLUSTER
//! MIGRATESLOTS of basalt and Valkey, and `redis-cli --cluster reshard` between nodes of redis-server.
//!
//! ```text
//! cargo bench --bench slot_moves -- [--quick] [--keys 1000000] [--bytes 64] [--pipeline 100] [--rounds 1]
//!     [--cores 0-1] [--basalt PATH] [--redis PATH] [--valkey PATH] [--no-redis] [--no-valkey] [--out DIR]
//! ```
//!
//! Two clients query all the time, with a pause of 100 µs: one GETs a key of another slot of the source, one SETs keys
//! of the migrating slot, following redirections. The result is the longest time from a query to its reply during the
//! migration (for SET, to the reply that is no redirection), and for comparison the longest of a second before.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

mod support;

use support::arguments::Arguments;
use support::peers::{self, Peer};
use support::process::{Client, Process, encode_into};

/// The migrating slot is the first one of the source, so that redis-cli chooses it; keys with this tag are in it.
const SLOT: u16 = 3300;
const TAG: &str = "{b}";

/// A key of another slot of the source.
const OTHER: &str = "{c}other";

/// The last slot of the source.
const SOURCE_LAST: u16 = 8191;

/// Pause between a reply and the next query.
const PAUSE: Duration = Duration::from_micros(100);

/// Observation of the clients before the migration.
const IDLE: Duration = Duration::from_secs(1);

/// Timeout of a migration.
const PATIENCE: Duration = Duration::from_secs(600);

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its number").port()
}

/// Starts a node; returns it and the port of its bus.
fn start(peer: &Peer, cores: &str) -> (Process, u16) {
    let bus = free_port();
    let folder = tempdir();
    let directives = [
        "--cluster-enabled",
        "yes",
        "--cluster-node-timeout",
        "15000",
        "--cluster-port",
        &bus.to_string(),
        "--dir",
        folder.as_str(),
    ];
    let directives: Vec<String> = directives.iter().map(|word| (*word).to_owned()).collect();
    (peer.start(cores, &directives), bus)
}

/// Creates a temporary folder, which the system removes eventually.
fn tempdir() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let name = format!("basalt-slot-moves-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder.display().to_string()
}

/// Forms a cluster of two nodes: the first one has the slot.
fn unite(one: &Process, (two, bus): (&Process, u16)) {
    let mut clients = [one.client(), two.client()];
    let (first, behind) = (SLOT.to_string(), (SOURCE_LAST + 1).to_string());
    let (before, last) = ((SLOT - 1).to_string(), SOURCE_LAST.to_string());
    clients[0].ask(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
    clients[1].ask(&["CLUSTER", "ADDSLOTSRANGE", "0", &before, &behind, "16383"]);
    clients[0].ask(&["CLUSTER", "SET-CONFIG-EPOCH", "1"]);
    clients[1].ask(&["CLUSTER", "SET-CONFIG-EPOCH", "2"]);
    let (port, bus) = (two.port.to_string(), bus.to_string());
    clients[0].ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    let began = Instant::now();
    for client in &mut clients {
        let is_up = |text: String| {
            text.contains("cluster_state:ok") && text.contains("cluster_known_nodes:2")
        };
        while !is_up(client.ask(&["CLUSTER", "INFO"])) {
            assert!(began.elapsed() < PATIENCE, "the nodes do not meet");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn fill(client: &mut Client, keys: usize, bytes: usize) {
    let value = "v".repeat(bytes);
    client.load(keys, |index, out| {
        encode_into(out, &["SET", &format!("{TAG}{index}"), &value]);
    });
    client.ask(&["SET", OTHER, &value]);
}

/// The longest time since the last reading, in microseconds, and the number of redirections.
#[derive(Default)]
struct Longest {
    us: AtomicU64,
    redirections: AtomicU64,
}

/// Sends a request; returns its one-line reply.
fn answer(stream: &mut BufReader<TcpStream>, request: &[u8]) -> String {
    stream.get_mut().write_all(request).expect("send");
    let mut line = String::new();
    stream.read_line(&mut line).expect("an answer");
    line.trim_end().to_owned()
}

fn connect(port: u16) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    stream.set_nodelay(true).expect("no delay");
    BufReader::new(stream)
}

/// GETs a key that does not migrate.
fn watch_other(port: u16, longest: &Longest, stops: &AtomicBool) {
    let mut client = Client::connect(port);
    while !stops.load(Relaxed) {
        let began = Instant::now();
        client.ask(&["GET", OTHER]);
        longest
            .us
            .fetch_max(began.elapsed().as_micros() as u64, Relaxed);
        thread::sleep(PAUSE);
    }
}

/// SETs keys of the slot, following the nodes' redirections.
fn watch_moving(ports: [u16; 2], keys: usize, longest: &Longest, stops: &AtomicBool) {
    let mut nodes = ports.map(connect);
    let place = |reply: &str| -> usize {
        let port = reply.rsplit(':').next().and_then(|port| port.parse().ok());
        usize::from(port == Some(ports[1]))
    };
    let (mut at, mut number) = (0, 0);
    while !stops.load(Relaxed) {
        number = (number + 7919) % keys;
        let mut set = Vec::new();
        encode_into(&mut set, &["SET", &format!("{TAG}{number}"), "changed"]);
        let began = Instant::now();
        loop {
            let reply = answer(&mut nodes[at], &set);
            if reply == "+OK" {
                break;
            }
            longest.redirections.fetch_add(1, Relaxed);
            if reply.starts_with("-MOVED") {
                at = place(&reply);
            } else if reply.starts_with("-ASK") {
                let other = place(&reply);
                answer(&mut nodes[other], b"*1\r\n$6\r\nASKING\r\n");
                if answer(&mut nodes[other], &set) == "+OK" {
                    break;
                }
            }
        }
        longest
            .us
            .fetch_max(began.elapsed().as_micros() as u64, Relaxed);
        thread::sleep(PAUSE);
    }
}

/// Migrates the slot to the other node by the server's own command, if the server has one; returns whether it has.
fn move_at_once(source: &mut Client, target: &str) {
    let slot = SLOT.to_string();
    source.ask(&[
        "CLUSTER",
        "MIGRATESLOTS",
        "SLOTSRANGE",
        &slot,
        &slot,
        "NODE",
        target,
    ]);
    let began = Instant::now();
    let is_gone = |map: &str| {
        let mut lines = map.lines();
        let other = lines.find(|line| line.starts_with(target));
        other.is_some_and(|line| line.contains(&format!("0-{SLOT}")))
    };
    while !is_gone(&source.ask(&["CLUSTER", "NODES"])) {
        assert!(began.elapsed() < PATIENCE, "the slot does not move");
        thread::sleep(Duration::from_millis(2));
    }
}

fn reshard(port: u16, (source, target): (&str, &str), pipeline: usize) {
    let status = Command::new("redis-cli")
        .args(["--cluster", "reshard", &format!("127.0.0.1:{port}")])
        .args(["--cluster-from", source, "--cluster-to", target])
        .args(["--cluster-slots", "1", "--cluster-yes"])
        .args(["--cluster-pipeline", &pipeline.to_string()])
        .args(["--cluster-timeout", "600000"])
        .stdout(Stdio::null())
        .status()
        .expect("redis-cli is there");
    assert!(status.success(), "redis-cli has moved the slot");
}

/// Result of one migration.
struct Shown {
    seconds: f64,
    other_ms: [f64; 2],
    moving_ms: [f64; 2],
    redirections: u64,
}

fn measure(peer: &Peer, arguments: &Arguments, keys: usize) -> Shown {
    let cores = arguments.value("--cores", "0-1");
    let ((one, _), (two, bus)) = (start(peer, &cores), start(peer, &cores));
    unite(&one, (&two, bus));
    let mut source = one.client();
    fill(&mut source, keys, arguments.number("--bytes", "64"));
    let target = two.client().ask(&["CLUSTER", "MYID"]);
    let myself = source.ask(&["CLUSTER", "MYID"]);
    let (other, moving) = (Arc::new(Longest::default()), Arc::new(Longest::default()));
    let stops = Arc::new(AtomicBool::new(false));
    let watching = {
        let (longest, stops, port) = (Arc::clone(&other), Arc::clone(&stops), one.port);
        thread::spawn(move || watch_other(port, &longest, &stops))
    };
    let writing = {
        let (longest, stops) = (Arc::clone(&moving), Arc::clone(&stops));
        let ports = [one.port, two.port];
        thread::spawn(move || watch_moving(ports, keys, &longest, &stops))
    };
    thread::sleep(IDLE);
    let idle = [other.us.swap(0, Relaxed), moving.us.swap(0, Relaxed)];
    let began = Instant::now();
    match peer.name {
        "redis" => {
            let pipeline = arguments.number("--pipeline", "100");
            reshard(one.port, (&myself, &target), pipeline);
        }
        _ => move_at_once(&mut source, &target),
    }
    let seconds = began.elapsed().as_secs_f64();
    stops.store(true, Relaxed);
    watching.join().expect("it was answered");
    writing.join().expect("it was answered");
    let slot = SLOT.to_string();
    let there = two.client().ask(&["CLUSTER", "COUNTKEYSINSLOT", &slot]);
    assert_eq!(there, keys.to_string(), "all keys are there");
    let ms = |us: u64| us as f64 / 1e3;
    Shown {
        seconds,
        other_ms: [ms(idle[0]), ms(other.us.load(Relaxed))],
        moving_ms: [ms(idle[1]), ms(moving.us.load(Relaxed))],
        redirections: moving.redirections.load(Relaxed),
    }
}

fn main() {
    let Some(arguments) = Arguments::read() else {
        return;
    };
    let keys = arguments.sized("--keys", 1_000_000, 20_000);
    let peers = peers::all(&arguments, &[]);
    let mut report = peers::heading(&peers);
    let _ = writeln!(
        report,
        "\nOne slot of {keys} keys goes to another node of this machine. Longest waits in ms, of a second before and \
         while it moves.\n\n| server | s | keys/s | GET, another slot | SET, this slot | redirections |\n\
         |---|---|---|---|---|---|"
    );
    for round in 0..arguments.number("--rounds", "1") {
        for at in peers::order(peers.len(), round) {
            let peer = &peers[at];
            let shown = measure(peer, &arguments, keys);
            let _ = writeln!(
                report,
                "| {} | {:.2} | {:.0} | {:.1}, {:.1} | {:.1}, {:.1} | {} |",
                peer.name,
                shown.seconds,
                keys as f64 / shown.seconds,
                shown.other_ms[0],
                shown.other_ms[1],
                shown.moving_ms[0],
                shown.moving_ms[1],
                shown.redirections,
            );
        }
    }
    peers::publish(&arguments, "slot_moves.md", &report);
}
