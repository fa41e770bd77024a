//! The bus under every fault that a seed generates: partitions, also one-way ones, kills and restarts, frozen
//! servers, clocks that differ, slow, lost and repeated packets. `BASALT_CLUSTER_SEEDS` sets the number of
//! seeds, or their range: `1000..2000`.
//!
//! Invariants: one owner for each slot and epoch; one vote in each epoch; votes and epochs are saved before
//! they are sent, on disks that take up to four seconds, while a killed server loses what it has not saved;
//! all views agree within a bound after all faults are over; a write that all replicas of its shard had when
//! it was acknowledged is not lost.

mod assembling;
mod by_hand;
mod collisions;
mod hostile;
mod stopped;
mod world;

use std::ops::Range;

use world::{Faults, World};

const NODE_TIMEOUT: u64 = 2_000;

/// Milliseconds after the last fault within which all must agree: several elections without a winner.
const SETTLED_WITHIN: u64 = 120_000;

const MILD: Faults = Faults {
    delay_max: 20,
    lost_of_1000: 0,
    twice_of_1000: 0,
    skew_max: 0,
    save_max: 5,
};

fn seeds() -> Range<u64> {
    let wanted = std::env::var("BASALT_CLUSTER_SEEDS").unwrap_or("25".to_owned());
    let (first, end) = wanted.split_once("..").unwrap_or(("0", &wanted));
    let number = |text: &str| text.parse().expect("BASALT_CLUSTER_SEEDS is N or FROM..TO");
    number(first)..number(end)
}

#[test]
fn a_new_cluster_agrees() {
    let mut world = World::new(1, 3, 1, NODE_TIMEOUT, MILD);
    world.settle(10_000).expect("all agree");
    assert_eq!(world.wrong, Vec::<String>::new());
    for at in 3..6 {
        assert_eq!(world.servers[at].follows, Some(at - 3));
    }
}

#[test]
fn a_replica_takes_the_place_of_a_primary_that_dies() {
    let mut world = World::new(2, 3, 1, NODE_TIMEOUT, MILD);
    world.settle(10_000).expect("all agree");
    world.kill(0);
    world.run(8_000);
    let map = world.machine(1).map();
    assert_eq!(
        map.owner(0).map(|owner| owner.id),
        Some(world.machine(3).id())
    );
    world.start(0);
    world.settle(20_000).expect("all agree again");
    assert_eq!(
        world.servers[0].follows,
        Some(3),
        "the old primary follows the new one"
    );
    assert_eq!(world.wrong, Vec::<String>::new());
}

#[test]
fn a_primary_that_leaves_is_replaced_before_the_node_timeout() {
    let mut world = World::new(3, 3, 1, 60_000, MILD);
    world.settle(20_000).expect("all agree");
    assert!(!world.leave(4), "a replica that leaves is missed by none");
    assert!(world.leave(1));
    world.run(100);
    world.kill(1);
    world.run(2_000);
    let map = world.machine(0).map();
    assert_eq!(
        map.owner(8_000).map(|owner| owner.id),
        Some(world.machine(4).id())
    );
    assert!(world.machine(0).is_up());
    assert!(!world.leave(4), "it has no replica");
    assert_eq!(world.wrong, Vec::<String>::new());
}

#[test]
fn a_node_that_comes_back_with_another_address_is_found_there() {
    let mut world = World::new(4, 3, 1, NODE_TIMEOUT, MILD);
    world.settle(10_000).expect("all agree");
    for at in [0, 4] {
        world.kill(at);
        world.move_to(at, &format!("10.9.9.{}", at + 1));
    }
    world.run(500);
    for at in [0, 4] {
        world.start(at);
    }
    world.run(NODE_TIMEOUT);
    world.settle(60_000).expect("all agree again");
    for at in [0, 4] {
        let name = world.machine(at).id();
        for other in [1, 2, 3, 5] {
            let map = world.machine(other).map();
            let found = map.find(name.as_bytes()).expect("it is known");
            assert_eq!(found.ip, format!("10.9.9.{}", at + 1), "by {other}");
            assert!(found.is_linked, "{other} has a link to it");
        }
    }
    let primary = world.servers[3].follows;
    assert_eq!(primary, Some(0), "its replica follows it to there");
    assert_eq!(world.wrong, Vec::<String>::new());
}

#[test]
fn whatever_goes_wrong_one_owner_is_left_in_the_end() {
    for seed in seeds() {
        let wrong = one_life(seed);
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
    }
}

/// Runs one cluster with all its faults; returns the violations.
fn one_life(seed: u64) -> Vec<String> {
    let mut draw = basalt_core::base::random::Random::new(seed ^ 0x5EED);
    let (primaries, replicas) = (3 + draw.index(3), 1 + draw.index(3));
    let faults = Faults {
        delay_max: 1 + draw.below(200),
        lost_of_1000: draw.below(3) * draw.below(20),
        twice_of_1000: draw.below(3) * draw.below(20),
        skew_max: draw.below(3) * draw.below(5_000),
        save_max: 5 + draw.below(2) * draw.below(4_000),
    };
    let mut world = World::new(seed, primaries, replicas, NODE_TIMEOUT, MILD);
    let formed = world.settle(20_000);
    if formed.is_err() {
        return vec![format!("it does not form: {formed:?}")];
    }
    world.faults = faults;
    let count = world.servers.len();
    for _ in 0..4 + draw.index(8) {
        match draw.index(5) {
            0 => {
                // Several at once, so that elections meet.
                for _ in 0..1 + draw.index(3) {
                    let at = draw.index(count);
                    if !world.is_down(at) {
                        world.kill(at);
                    }
                }
            }
            1 => {
                let at = draw.index(count);
                if world.is_down(at) {
                    world.start(at);
                }
            }
            2 => {
                // Two sides.
                let side: Vec<bool> = (0..count).map(|_| draw.index(5) < 2).collect();
                for from in 0..count {
                    for to in 0..count {
                        if side[from] != side[to] {
                            world.cut.insert((from, to));
                        }
                    }
                }
            }
            3 => {
                let (from, to) = (draw.index(count), draw.index(count));
                if from != to {
                    world.cut.insert((from, to));
                }
            }
            _ => world.freeze(draw.index(count), draw.below(4 * NODE_TIMEOUT)),
        }
        for _ in 0..draw.index(20) {
            world.write_everywhere();
            world.run(draw.below(1_500));
        }
        if draw.index(2) == 0 {
            world.cut.clear();
        }
    }
    world.cut.clear();
    world.faults = MILD;
    for at in 0..count {
        if world.is_down(at) {
            world.start(at);
        }
    }
    if let Err(text) = world.settle(SETTLED_WITHIN) {
        world.wrong.push(format!("they do not agree: {text}"));
    }
    // Replicas catch up before the final state is compared.
    world.run(2_000);
    let lost = world.lost();
    if !lost.is_empty() {
        world
            .wrong
            .push(format!("acknowledged writes are lost: {lost:?}"));
    }
    world.wrong
}
