//! Primaries that are frozen for longer than the node timeout, as under SIGSTOP, while clients go on writing
//! to them.

use super::world::{Faults, World};
use super::{MILD, NODE_TIMEOUT};

/// Number of clusters that are run.
const SEEDS: u64 = 20;

/// Milliseconds for which a stopped primary is observed after it continues.
const WATCHED: u64 = 4_000;

/// Milliseconds between two checks.
const STEP: u64 = 3;

#[test]
fn a_primary_that_was_replaced_while_it_was_stopped_acknowledges_no_write() {
    for seed in 0..SEEDS {
        let faults = Faults {
            delay_max: 1 + 10 * seed,
            ..MILD
        };
        let mut world = World::new(seed, 3, 1, NODE_TIMEOUT, faults);
        world.settle(20_000).expect("all agree");
        assert!(world.takes_write(0), "seed {seed}");
        let stop = 3 * NODE_TIMEOUT + world.random.below(10 * NODE_TIMEOUT);
        world.freeze(0, stop);
        world.run(stop - 1);
        let heir = world.machine(1).map();
        let heir = heir.owner(0).map(|owner| owner.id);
        assert_eq!(heir, Some(world.machine(3).id()), "seed {seed}");
        world.thaw(0);
        // A client's thread is the first to run.
        for passed in 0..WATCHED / STEP {
            let passed = passed * STEP;
            assert!(!world.takes_write(0), "seed {seed}, after {passed} ms");
            world.run(STEP);
        }
        world.settle(20_000).expect("all agree again");
        assert_eq!(world.servers[0].follows, Some(3), "seed {seed}");
        assert_eq!(world.wrong, Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn a_primary_that_was_stopped_and_not_replaced_serves_again_once_it_has_heard_the_majority() {
    for seed in 0..SEEDS / 4 {
        let mut world = World::new(seed, 3, 0, NODE_TIMEOUT, MILD);
        world.settle(20_000).expect("all agree");
        let stop = NODE_TIMEOUT + 200 + world.random.below(10 * NODE_TIMEOUT);
        // The others are cut off until later, so that no packet of theirs arrives.
        world.freeze(0, stop);
        world.run(stop - 1);
        for other in 1..3 {
            world.cut.insert((0, other));
        }
        world.thaw(0);
        for _ in 0..3 * NODE_TIMEOUT / STEP {
            assert!(!world.takes_write(0), "seed {seed}: nobody has answered");
            world.run(STEP);
        }
        world.cut.clear();
        world.settle(20_000).expect("all agree again");
        assert!(world.takes_write(0), "seed {seed}");
        assert_eq!(world.wrong, Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn a_single_primary_asks_nobody() {
    let mut world = World::new(1, 1, 1, NODE_TIMEOUT, MILD);
    world.settle(20_000).expect("all agree");
    world.freeze(0, 5 * NODE_TIMEOUT);
    world.run(5 * NODE_TIMEOUT - 1);
    world.thaw(0);
    assert!(
        world.takes_write(0),
        "no other node could give its place away"
    );
}
