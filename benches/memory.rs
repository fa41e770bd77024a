//! Memory overhead of a key in bytes, in basalt, redis-server and Valkey: by `used_memory` and by the system
//! (resident), for values of 8, 32, 100 and 1000 bytes, with and without a time to live.
//!
//! ```text
//! cargo bench --bench memory -- [--quick] [--keys 1000000,5000000] [--values 8,32,100,1000] [--basalt PATH]
//!     [--redis PATH] [--valkey PATH] [--no-redis] [--no-valkey] [--shards N] [--at-limit] [--idle 10000]
//!     [--only-idle] [--settle-s 30] [--out DIR]
//! ```
//!
//! Each figure comes from a fresh server: its memory before and after loading keys of 16 bytes, minus the bytes of keys
//! and values, divided by the keys. With `--at-limit` the server then gets its current memory as `maxmemory`, under
//! `allkeys-lru`, and as many keys again, each of which evicts others; the resulting memory is divided by the remaining
//! keys.
//!
//! Idle connections are measured after each of them has sent a pipeline of 64 KiB and has read its replies; the
//! kernel's memory for them is in neither figure.

use std::fmt::Write;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

mod support;

use support::arguments::Arguments;
use support::load;
use support::peers::{self, Peer};
use support::process::{self, Process};

/// Bytes that an idle connection has sent before.
const IDLE_PIPELINE_BYTES: usize = 64 * 1024;

/// Text from which the pipeline is composed.
const IDLE_TEXT: &str = "a string of some forty bytes, more or less";

/// The cost of one load, in bytes per key over payload.
struct Cost {
    used: f64,
    resident: f64,
}

fn main() {
    let Some(arguments) = Arguments::read() else {
        return;
    };
    let (counts, sizes) = match arguments.has("--quick") {
        true => ("200000", "8,32"),
        false => ("1000000,5000000", "8,32,100,1000"),
    };
    let counts: Vec<usize> = arguments.numbers("--keys", counts);
    let sizes: Vec<usize> = arguments.numbers("--values", sizes);
    let shards = arguments.value("--shards", "");
    let own = if shards.is_empty() {
        Vec::new()
    } else {
        vec!["--shards".to_owned(), shards]
    };

    let at_limit = arguments.has("--at-limit");
    let idle_load = IdleLoad {
        connections: arguments.sized("--idle", 10_000, 1000),
        settle: Duration::from_secs(arguments.sized("--settle-s", 30, 3) as u64),
    };
    let counts = match arguments.has("--only-idle") {
        true => Vec::new(),
        false => counts,
    };

    let servers = peers::all(&arguments, &own);
    let mut out = peers::heading(&servers);
    out += "Keys of 16 bytes; bytes a key over payload: what used_memory says.\n";
    out += peers::allocator_note(&servers);
    out += "\n";
    out += &peers::table_head(&servers, "keys, value, TTL", "used");
    let mut resident = String::from("\nThe same of what the system says.\n\n");
    resident += &peers::table_head(&servers, "keys, value, TTL", "RSS");
    for &keys in &counts {
        for &size in &sizes {
            // Payload of five gigabytes and more says nothing about overhead, and does not fit a laptop.
            if keys * (size + 16) > 4 << 30 {
                continue;
            }
            for ttl in [false, true] {
                let load = Load {
                    keys,
                    size,
                    ttl,
                    at_limit,
                };
                let costs = servers.iter().map(|peer| cost(peer, load));
                let costs: Vec<Cost> = costs.collect();
                let name = format!("{keys}, {size}, {}", if ttl { "yes" } else { "no" });
                let of = |of: fn(&Cost) -> f64| costs.iter().map(of).collect::<Vec<f64>>();
                out += &peers::table_row(&name, &of(|cost| cost.used), 1);
                resident += &peers::table_row(&name, &of(|cost| cost.resident), 1);
            }
        }
    }
    out += &resident;
    out += "\n";
    for peer in &servers {
        let _ = writeln!(out, "{} {}", peer.name, idle(peer, idle_load));
    }
    peers::publish(&arguments, "memory.md", &out);
}

/// The data to load.
#[derive(Clone, Copy)]
struct Load {
    keys: usize,
    /// Bytes of a value.
    size: usize,
    ttl: bool,
    /// True if as many keys follow at the limit.
    at_limit: bool,
}

fn cost(peer: &Peer, load: Load) -> Cost {
    let all = format!("0-{}", process::core_count() - 1);
    let server = peer.start(&all, &[]);
    let mut client = server.client();
    // The loading connection's buffers exist before and after.
    client.load(1000, |_, out| process::encode_into(out, &["PING"]));
    let before = reading(&server);
    let value = "v".repeat(load.size);
    let set = |index: usize, out: &mut Vec<u8>| {
        let key = load::key(index);
        if load.ttl {
            // All different, as in practice.
            let seconds = (100_000 + index % 900_000).to_string();
            process::encode_into(out, &["SET", &key, &value, "EX", &seconds]);
        } else {
            process::encode_into(out, &["SET", &key, &value]);
        }
    };
    client.load(load.keys, set);
    if load.at_limit {
        let used = reading(&server).0;
        client.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
        client.ask(&["CONFIG", "SET", "maxmemory", &format!("{used:.0}")]);
        client.load(load.keys, |index, out| set(load.keys + index, out));
    }
    let keys: f64 = client.ask(&["DBSIZE"]).parse().expect("a number");
    let after = reading(&server);
    let payload = keys * (load.size + 16) as f64;
    Cost {
        used: (after.0 - before.0 - payload) / keys,
        resident: (after.1 - before.1 - payload) / keys,
    }
}

/// Connections that were active and are now idle.
#[derive(Clone, Copy)]
struct IdleLoad {
    connections: usize,
    /// The idle time before their memory is measured. Buffers of recently active connections are returned after two
    /// seconds, and the allocator keeps their pages for some ten more.
    settle: Duration,
}

/// Measures the cost of idle connections: CPU of the whole server, and memory per connection.
fn idle(peer: &Peer, load: IdleLoad) -> String {
    let count = load.connections;
    let clients_max = ["--maxclients".to_owned(), (count + 100).to_string()];
    let all = format!("0-{}", process::core_count() - 1);
    let server = peer.start(&all, &clients_max);
    let mut pipeline = Vec::new();
    let mut replies = 0;
    while pipeline.len() < IDLE_PIPELINE_BYTES {
        process::encode_into(&mut pipeline, &["ECHO", IDLE_TEXT]);
        replies += format!("${}\r\n{IDLE_TEXT}\r\n", IDLE_TEXT.len()).len();
    }
    let mut received = vec![0; replies];
    let before = reading(&server);
    // Plain sockets, one descriptor each: the number of open files of this process is limited.
    let clients: Vec<TcpStream> = (0..count).map(|_| server.client().into_stream()).collect();
    for mut client in &clients {
        client.write_all(&pipeline).expect("send");
        client.read_exact(&mut received).expect("the replies");
    }
    std::thread::sleep(load.settle);
    let after = reading(&server);
    let (cpu, started) = (process::cpu_ns(server.pid()), Instant::now());
    std::thread::sleep(load.settle / 3);
    let busy = (process::cpu_ns(server.pid()) - cpu) as f64 / started.elapsed().as_nanos() as f64;
    format!(
        "Idle with {count} connections: {:.2} % of a core; {:.0} bytes of used_memory and {:.0} resident a connection.",
        busy * 100.0,
        (after.0 - before.0) / count as f64,
        (after.1 - before.1) / count as f64
    )
}

fn reading(server: &Process) -> (f64, f64) {
    // Background work such as growing a table may still continue.
    std::thread::sleep(Duration::from_millis(500));
    let used = server
        .client()
        .info("memory", "used_memory")
        .expect("used_memory");
    (used, process::resident_bytes(server.pid()) as f64)
}
