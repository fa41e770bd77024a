//! The cluster's bus simulated in one thread: how long a cluster takes to form and to replace primaries that fail, and
//! the cost of its gossip in bytes and in CPU time.
//!
//! `cargo bench --bench cluster [-- NODES …]`, by default 6, 100 and 1000 nodes, half of them replicas. Times are
//! simulated; CPU is that of all nodes' state machines and the simulation in this thread, without sockets. Next to the
//! packets is the maximum by Redis's rules, if no news of pongs were passed on: a ping to each node every half of the
//! node timeout, one per second to a random node, and a pong for each.

#![expect(clippy::print_stdout, reason = "a bench says what it measured")]

#[expect(dead_code, reason = "the tests do more with it")]
#[path = "../tests/cluster/world/mod.rs"]
mod world;

use rustix::time::{ClockId, clock_gettime};
use world::{Faults, World};

/// Milliseconds, the default of `cluster-node-timeout`.
const NODE_TIMEOUT: u64 = 15_000;

const NETWORK: Faults = Faults {
    delay_max: 2,
    lost_of_1000: 0,
    twice_of_1000: 0,
    skew_max: 0,
    save_max: 5,
};

/// Seconds for which an idle cluster's traffic is counted.
const IDLE_S: u64 = 60;

/// Returns the CPU nanoseconds of this thread, independent of other load.
fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the maximum packets that a node sends per second, by the rules.
fn packets_at_most(nodes: usize) -> u64 {
    2 * (NODE_TIMEOUT + (nodes as u64 - 1) * 2_000) / NODE_TIMEOUT
}

fn main() {
    let wanted: Vec<usize> = std::env::args()
        .filter_map(|argument| argument.parse().ok())
        .collect();
    let sizes = if wanted.is_empty() {
        vec![6, 100, 1000]
    } else {
        wanted
    };
    println!(
        "nodes  formed s  idle: packets/s  at most  KiB/s  CPU us/s a node  failover of 1 s  of a tenth s  agreed again s"
    );
    for nodes in sizes {
        let primaries = (nodes / 2).max(3);
        let mut world = World::new(1, primaries, 1, NODE_TIMEOUT, NETWORK);
        world.settle(600_000).expect("the cluster forms");
        let formed = world.now - world::BEGIN;
        world.run(2 * NODE_TIMEOUT);
        let (packets, bytes, begun) = (world.sent, world.sent_bytes, cpu_ns());
        world.run(IDLE_S * 1_000);
        let per_node = |count: u64| count / IDLE_S / (2 * primaries) as u64;
        let cpu = (cpu_ns() - begun) / 1_000;
        let packets = per_node(world.sent - packets);
        let kib = per_node(world.sent_bytes - bytes) / 1024;
        let one = replaced(&mut world, 0..1);
        let tenth = replaced(&mut world, 1..1 + primaries / 10);
        for at in 0..1 + primaries / 10 {
            world.start(at);
        }
        let agreed = world.settle(600_000).expect("all agree again");
        println!(
            "{:>5}  {:>8.1}  {packets:>15}  {:>7}  {kib:>5}  {:>15}  {one:>15.1}  {tenth:>12.1}  {:>14.1}",
            2 * primaries,
            formed as f64 / 1e3,
            packets_at_most(2 * primaries),
            per_node(cpu),
            agreed as f64 / 1e3,
        );
        assert_eq!(world.wrong, Vec::<String>::new());
    }
}

/// Measures the seconds from the failure of primaries until replicas have replaced all of them.
fn replaced(world: &mut World, primaries: std::ops::Range<usize>) -> f64 {
    let begun = world.now;
    for at in primaries.clone() {
        world.kill(at);
    }
    let count = world.servers.len() / 2;
    while primaries
        .clone()
        .any(|at| !world.machine(at + count).own_view().is_primary())
    {
        world.run(100);
    }
    (world.now - begun) as f64 / 1e3
}
