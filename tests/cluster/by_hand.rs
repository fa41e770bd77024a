//! Manual failovers of a replica that has not received the latest ownership claims.

use basalt_commands::cluster::change::{ClusterChange, Failover};

use super::world::World;
use super::{MILD, NODE_TIMEOUT};

/// Number of clusters that are run.
const SEEDS: u64 = 5;

/// Creates a cluster with a replica whose primary has given slots away, of which the replica does not learn:
/// their new owner cannot reach it.
fn behind(seed: u64) -> World {
    let mut world = World::new(seed, 3, 1, NODE_TIMEOUT, MILD);
    world.settle(20_000).expect("all agree");
    world.cut.insert((1, 3));
    world.drops_updates = true;
    let change = ClusterChange::TakeSlots {
        slots: (290..=294).collect(),
        from: world.machine(0).id(),
    };
    world.change(1, change);
    world.run(200);
    let seen = world.machine(3).map();
    assert_eq!(
        seen.owner(294).map(|owner| owner.id),
        Some(world.machine(0).id()),
        "the replica has not heard of it"
    );
    world
}

fn fail_over(world: &mut World) {
    world.change(3, ClusterChange::Failover(Failover::Agreed));
}

#[test]
fn a_replica_that_is_behind_is_told_and_asks_again() {
    for seed in 0..SEEDS {
        let mut world = behind(seed);
        world.drops_updates = false;
        fail_over(&mut world);
        world.run(1_000);
        assert!(world.machine(3).own_view().is_primary(), "seed {seed}");
        world.cut.clear();
        world.settle(20_000).expect("all agree again");
        let map = world.machine(3).map();
        let owner = map.owner(294).map(|owner| owner.id);
        assert_eq!(owner, Some(world.machine(1).id()), "seed {seed}");
        assert_eq!(world.wrong, Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn a_replica_that_is_told_nothing_asks_again_as_long_as_the_failover_lasts() {
    for seed in 0..SEEDS {
        let mut world = behind(seed);
        fail_over(&mut world);
        world.run(1_500);
        assert!(!world.machine(3).own_view().is_primary(), "seed {seed}");
        world.cut.clear();
        world.run(3_000);
        assert!(world.machine(3).own_view().is_primary(), "seed {seed}");
        world.drops_updates = false;
        world.settle(20_000).expect("all agree again");
        assert_eq!(world.wrong, Vec::<String>::new(), "seed {seed}");
    }
}
