//! Clusters that assemble themselves: new nodes find each other at their seeds and agree on one plan, whatever is lost
//! or stopped meanwhile. At any time all nodes that call the cluster assembled mean the same plan.

use std::collections::{BTreeMap, BTreeSet};

use basalt_commands::cluster::Millis;
use basalt_commands::cluster::assembly::{AssemblyState, Stage};
use basalt_commands::cluster::change::ClusterChange;
use basalt_commands::cluster::flags::NodeFlags;
use basalt_commands::cluster::map::ClusterMap;
use basalt_core::base::random::Random;

use super::world::World;
use super::{Faults, MILD, NODE_TIMEOUT, seeds};

const SIZE: u32 = 3;
const REPLICAS: u32 = 1;
/// Number of nodes that the cluster needs.
const NEEDED: usize = (SIZE * (1 + REPLICAS)) as usize;

/// Milliseconds within which nodes that can all reach each other are a cluster.
const WITHIN: Millis = 30_000;

/// Creates servers that would assemble a cluster of three primaries with a replica each, and have not started.
fn new(seed: u64, count: usize, faults: Faults) -> World {
    let mut world = World::of_servers(seed, count, NODE_TIMEOUT, faults);
    world.trace = std::env::var_os("BASALT_CLUSTER_TRACE").is_some();
    let all: Vec<String> = world
        .servers
        .iter()
        .map(|server| server.ip.clone())
        .collect();
    for (at, server) in world.servers.iter_mut().enumerate() {
        server.seeds.clone_from(&all);
        server.settings.cluster_size = SIZE;
        server.settings.cluster_replicas = REPLICAS;
        server.settings.zone = ["a", "b", "c"][at % 3].to_owned();
    }
    world
}

fn started(seed: u64, count: usize, faults: Faults) -> World {
    let mut world = new(seed, count, faults);
    for at in 0..count {
        world.start(at);
    }
    world
}

/// Returns the digests of all plans that servers call assembled.
fn assembled(world: &World) -> BTreeSet<u128> {
    let records = world.servers.iter().flat_map(|server| {
        let machine = server
            .machine
            .as_ref()
            .map(|machine| machine.saved().assembly);
        let disk = server.disk.as_ref().map(|disk| disk.assembly.clone());
        [machine, disk]
    });
    let digests = records.flatten().filter_map(|record| match record.stage {
        Stage::Assembled(digest) => Some(digest),
        _ => None,
    });
    digests.collect()
}

/// Lets time pass, and checks all the while that there is one plan.
fn run(world: &mut World, millis: Millis) {
    let end = world.now + millis;
    while world.now < end {
        world.run((end - world.now).min(100));
        let plans = assembled(world);
        assert!(plans.len() <= 1, "two clusters: {plans:?}");
    }
    assert_eq!(world.wrong, Vec::<String>::new());
}

fn view(world: &World, at: usize) -> ClusterMap {
    world.machine(at).map()
}

/// Counts the nodes that a server knows, without handshakes that are under way.
fn known(world: &World, at: usize) -> usize {
    let map = view(world, at);
    let nodes = map.nodes.iter();
    nodes
        .filter(|node| !node.flags.any(NodeFlags::HANDSHAKE))
        .count()
}

fn state(world: &World, at: usize) -> AssemblyState {
    view(world, at).assembly.state
}

fn hindrances(world: &World, at: usize) -> String {
    view(world, at).assembly.hindrances.join("; ")
}

/// Waits until these servers are one cluster as it was planned: returns after how many milliseconds.
fn settle(world: &mut World, members: &[usize]) -> Millis {
    let begun = world.now;
    loop {
        let wrong = not_assembled(world, members);
        let Some(wrong) = wrong else {
            return world.now - begun;
        };
        let states: Vec<_> = members
            .iter()
            .filter(|at| !world.is_down(**at))
            .map(|at| (*at, view(world, *at).assembly))
            .collect();
        assert!(world.now - begun < WITHIN, "{wrong}: {states:#?}");
        run(world, 100);
    }
}

fn not_assembled(world: &World, members: &[usize]) -> Option<String> {
    let mut owners = None;
    for at in members {
        if world.is_down(*at) {
            return Some(format!("{at} is down"));
        }
        let map = view(world, *at);
        if map.assembly.state != AssemblyState::Assembled || !map.is_up {
            return Some(format!("{at} is not up"));
        }
        let known = map
            .nodes
            .iter()
            .filter(|node| !node.flags.any(NodeFlags::FAILED));
        if known.count() < members.len() {
            return Some(format!("{at} does not know all"));
        }
        let seen: Vec<_> = (0..16384)
            .map(|slot| map.owner(slot).map(|owner| (owner.id, owner.config_epoch)))
            .collect();
        if *owners.get_or_insert_with(|| seen.clone()) != seen {
            return Some(format!("{at} sees other owners"));
        }
    }
    None
}

/// Checks that each shard has its slots and its replica, in another zone.
fn check_shape(world: &World, members: &[usize], replicas: usize) {
    let map = view(world, members[0]);
    let mut shards: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let gone = NodeFlags::FAILED.or(NodeFlags::HANDSHAKE);
    for node in map.nodes.iter().filter(|node| !node.flags.any(gone)) {
        let primary = node.primary_id.unwrap_or(node.id);
        shards.entry(primary).or_default().push(node);
    }
    assert_eq!(shards.len(), SIZE as usize);
    let mut counted = 0;
    for nodes in shards.values() {
        let slots: u16 = nodes.iter().map(|node| node.slots.len()).sum();
        assert!((5461..=5462).contains(&slots), "{slots}");
        let zones: BTreeSet<&str> = nodes.iter().map(|node| node.zone.as_str()).collect();
        assert!(zones.len() > 1, "{nodes:?}");
        counted += nodes.len() - 1;
    }
    assert_eq!(counted, replicas);
}

fn all(count: usize) -> Vec<usize> {
    (0..count).collect()
}

#[test]
fn six_new_nodes_become_a_cluster() {
    for seed in 0..5 {
        let mut world = started(seed, NEEDED, MILD);
        let took = settle(&mut world, &all(NEEDED));
        assert!(took < 5_000, "{took}");
        check_shape(&world, &all(NEEDED), 3);
        for at in 0..NEEDED {
            let me = world.machine(at).own_view();
            assert_eq!(world.servers[at].follows.is_none(), me.is_primary());
        }
        let epochs: BTreeSet<u64> = (0..NEEDED)
            .map(|at| world.machine(at).own_view().config_epoch)
            .collect();
        assert_eq!(epochs, BTreeSet::from([1, 2, 3]));
    }
}

#[test]
fn nodes_that_are_too_few_wait_and_the_last_one_completes_them() {
    let mut world = new(7, NEEDED, MILD);
    for at in 1..NEEDED {
        world.start(at);
    }
    run(&mut world, 20_000);
    for at in 1..NEEDED {
        let assembly = view(&world, at).assembly;
        assert_eq!(assembly.state, AssemblyState::Waiting);
        assert_eq!((assembly.here, assembly.needed), (5, 6));
        assert_eq!(assembly.hindrances, Vec::<String>::new());
    }
    world.start(0);
    settle(&mut world, &all(NEEDED));
}

/// Each server knows one other.
#[test]
fn seeds_that_name_a_part_of_the_nodes_are_enough_if_they_are_connected() {
    let mut world = new(8, NEEDED, MILD);
    for at in 0..NEEDED {
        let next = world.servers[(at + 1) % NEEDED].ip.clone();
        world.servers[at].seeds = vec![next, "10.99.0.1".to_owned()];
        world.start(at);
    }
    settle(&mut world, &all(NEEDED));
    // Two halves that do not know each other are no cluster, and not two.
    let mut world = new(9, NEEDED, MILD);
    for at in 0..NEEDED {
        let half = if at < 3 { 0..3 } else { 3..6 };
        world.servers[at].seeds = half.map(|of| world.servers[of].ip.clone()).collect();
        world.start(at);
    }
    run(&mut world, 20_000);
    for at in 0..NEEDED {
        assert_eq!(view(&world, at).assembly.here, 3);
    }
}

#[test]
fn nodes_that_disagree_about_the_size_assemble_nothing_until_they_agree() {
    let mut world = new(10, NEEDED + 1, MILD);
    world.servers[6].settings.cluster_size = 4;
    for at in 0..NEEDED + 1 {
        world.start(at);
    }
    run(&mut world, 20_000);
    for at in 0..NEEDED + 1 {
        assert_eq!(state(&world, at), AssemblyState::Waiting);
        let text = hindrances(&world, at);
        let (theirs, own) = if at == 6 { (3, 4) } else { (4, 3) };
        let expected =
            format!("has cluster-size {theirs} and cluster-replicas 1, this node {own} and 1");
        assert!(text.contains(&expected), "{at}: {text}");
    }
    world.configure(6, |settings| settings.cluster_size = 3);
    settle(&mut world, &all(NEEDED + 1));
    check_shape(&world, &all(NEEDED), 4);
}

#[test]
fn a_node_with_data_takes_no_part() {
    let mut world = new(11, NEEDED, MILD);
    world.servers[2].has_keys = true;
    for at in 0..NEEDED {
        world.start(at);
    }
    run(&mut world, 20_000);
    for at in 0..NEEDED {
        assert_eq!(state(&world, at), AssemblyState::Waiting);
        let text = hindrances(&world, at);
        let why = match at {
            2 => "this node does not take part: it has data",
            _ => "does not join: it is not new",
        };
        assert!(text.contains(why), "{at}: {text}");
    }
    world.servers[2].has_keys = false;
    settle(&mut world, &all(NEEDED));
}

#[test]
fn two_nodes_with_one_name_take_no_part() {
    let mut world = new(12, NEEDED, MILD);
    world.start(0);
    run(&mut world, 500);
    world.kill(0);
    world.servers[5].disk = world.servers[0].disk.clone();
    for at in 0..NEEDED {
        world.start(at);
    }
    run(&mut world, 20_000);
    for at in [0, 5] {
        let text = hindrances(&world, at);
        assert!(
            text.contains("another node has the same ID"),
            "{at}: {text}"
        );
    }
    for at in 1..5 {
        assert_eq!(state(&world, at), AssemblyState::Waiting, "{at}");
    }
    world.kill(5);
    world.wipe(5);
    world.start(5);
    settle(&mut world, &all(NEEDED));
}

/// The seeds of three servers of another cluster, which was made by hand, and of all new ones name all servers.
#[test]
fn servers_of_another_cluster_stay_apart() {
    for has_size in [false, true] {
        let mut world = new(13, NEEDED + 3, MILD);
        for at in NEEDED..NEEDED + 3 {
            world.servers[at].seeds.clear();
            world.servers[at].settings.cluster_size = 0;
            world.start(at);
            let share = |of: usize| (of * 16384 / 3) as u16;
            let slots = (share(at - NEEDED)..share(at - NEEDED + 1)).collect();
            world.change(at, ClusterChange::SetConfigEpoch(at as u64 + 10));
            world.change(at, ClusterChange::AddSlots(slots));
        }
        for at in NEEDED + 1..NEEDED + 3 {
            let ip = world.servers[NEEDED].ip.clone();
            let met = ClusterChange::Meet {
                ip,
                port: 6379,
                bus_port: 16379,
                is_by_hand: true,
            };
            world.change(at, met);
        }
        run(&mut world, 10_000);
        if has_size {
            for at in NEEDED..NEEDED + 3 {
                world.kill(at);
                world.servers[at].settings.cluster_size = SIZE;
                world.servers[at].seeds = world.servers[0].seeds.clone();
                world.start(at);
            }
        }
        for at in 0..NEEDED {
            world.start(at);
        }
        settle(&mut world, &all(NEEDED));
        run(&mut world, 20_000);
        check_shape(&world, &all(NEEDED), 3);
        for at in 0..NEEDED {
            assert_eq!(known(&world, at), NEEDED, "{at}");
            let text = hindrances(&world, at);
            assert!(
                text.contains("does not join: it has slots or a primary in another cluster"),
                "{at}: {text}"
            );
        }
        for at in NEEDED..NEEDED + 3 {
            let map = view(&world, at);
            assert!(map.is_up && map.size == 3, "{at}");
            assert_eq!(known(&world, at), 3, "{at}");
        }
    }
}

/// One server is left of an earlier cluster that was assembled by the same settings.
#[test]
fn a_node_of_an_earlier_cluster_does_not_join_the_next_one() {
    let mut world = started(14, NEEDED, MILD);
    settle(&mut world, &all(NEEDED));
    let left = (0..NEEDED).find(|at| world.machine(*at).own_view().is_primary());
    let left = left.expect("three of them");
    for at in 0..NEEDED {
        world.kill(at);
        if at != left {
            world.wipe(at);
        }
    }
    run(&mut world, 1_000);
    let earlier = assembled(&world);
    for at in 0..NEEDED {
        world.start(at);
    }
    run(&mut world, 20_000);
    assert_eq!(assembled(&world), earlier);
    for at in (0..NEEDED).filter(|at| *at != left) {
        let map = view(&world, at);
        assert_eq!((map.assembly.here, known(&world, at)), (5, 5), "{at}");
        let text = hindrances(&world, at);
        let why =
            "does not join: it belongs to an assembled cluster whose other primaries are not there";
        assert!(text.contains(why), "{at}: {text}");
    }
    world.kill(left);
    world.wipe(left);
    world.forget_claims();
    world.start(left);
    settle(&mut world, &all(NEEDED));
}

/// A server was about to join a cluster that is gone with all its disks.
#[test]
fn a_node_that_joins_an_earlier_cluster_keeps_nobody_from_the_next_one() {
    let mut world = new(17, NEEDED + 1, MILD);
    for at in 0..NEEDED {
        // Two of three primaries serve alone, and the newcomer does not find all slots.
        world.servers[at].settings.require_full_coverage = false;
        world.start(at);
    }
    settle(&mut world, &all(NEEDED));
    let replica = (0..NEEDED).find(|at| world.servers[*at].follows.is_some());
    let replica = replica.expect("three of them");
    let primary = world.servers[replica].follows.expect("it has one");
    world.kill(replica);
    world.kill(primary);
    run(&mut world, 10_000);
    world.start(NEEDED);
    run(&mut world, 10_000);
    assert_eq!(state(&world, NEEDED), AssemblyState::Joining);
    for at in 0..NEEDED {
        if !world.is_down(at) {
            world.kill(at);
        }
        world.wipe(at);
    }
    run(&mut world, 5_000);
    assert_eq!(state(&world, NEEDED), AssemblyState::Joining);
    world.forget_claims();
    for at in 0..NEEDED {
        world.start(at);
    }
    settle(&mut world, &all(NEEDED));
}

#[test]
fn all_come_back_with_new_addresses_and_assemble_nothing_anew() {
    let mut world = started(15, NEEDED, MILD);
    settle(&mut world, &all(NEEDED));
    let plan = assembled(&world);
    for round in 1..4 {
        for at in 0..NEEDED {
            world.kill(at);
            world.move_to(at, &format!("10.{round}.9.{}", at + 1));
        }
        let all_ips: Vec<String> = world
            .servers
            .iter()
            .map(|server| server.ip.clone())
            .collect();
        for at in 0..NEEDED {
            world.servers[at].seeds.clone_from(&all_ips);
            world.start(at);
        }
        settle(&mut world, &all(NEEDED));
        assert_eq!(assembled(&world), plan);
    }
}

#[test]
fn a_node_that_comes_later_becomes_a_replica_of_the_primary_with_the_fewest() {
    let mut world = new(16, NEEDED + 2, MILD);
    for at in 0..NEEDED {
        world.start(at);
    }
    settle(&mut world, &all(NEEDED));
    // A replica is lost with its disk; two come, of which one fills the gap.
    let lost = (0..NEEDED).find(|at| !world.machine(*at).own_view().is_primary());
    let lost = lost.expect("three of them");
    let primary = world.machine(lost).own_view().primary_id;
    world.kill(lost);
    run(&mut world, 10_000);
    for at in NEEDED..NEEDED + 2 {
        world.start(at);
    }
    let members: Vec<usize> = all(NEEDED + 2)
        .into_iter()
        .filter(|at| *at != lost)
        .collect();
    settle(&mut world, &members);
    let joined = (NEEDED..NEEDED + 2).map(|at| world.machine(at).own_view().primary_id);
    assert!(joined.into_iter().any(|chosen| chosen == primary));
    check_shape(&world, &members, 4);
    // A replica that is left over does not change the plan after a restart either.
    world.kill(NEEDED);
    world.start(NEEDED);
    settle(&mut world, &members);
}

/// A server loses its disk after others have agreed to a plan with it.
#[test]
fn a_node_that_is_gone_for_good_in_the_middle_is_forgotten_by_an_operator() {
    let mut stuck = 0;
    for seed in 0..12 {
        let mut world = started(seed, NEEDED, MILD);
        while world.servers.iter().all(|server| {
            let disk = server.disk.as_ref().map(|disk| &disk.assembly.stage);
            !matches!(disk, Some(Stage::Agreed(_)))
        }) {
            world.run(1);
        }
        // One that has not agreed yet, or has just now.
        let gone = (0..NEEDED).rev().find(|at| {
            let stage = world.servers[*at]
                .disk
                .as_ref()
                .map(|disk| &disk.assembly.stage);
            matches!(stage, Some(Stage::Waiting))
        });
        let Some(gone) = gone else { continue };
        let id = world.machine(gone).id();
        world.kill(gone);
        world.wipe(gone);
        world.start(gone);
        run(&mut world, 10_000);
        let waits = (0..NEEDED).find(|at| state(&world, *at) == AssemblyState::Agreeing);
        if let Some(at) = waits {
            stuck += 1;
            let text = hindrances(&world, at);
            assert!(text.contains("has not agreed, and is not there"), "{text}");
            world.change(at, ClusterChange::Forget(id));
        }
        settle(&mut world, &all(NEEDED));
    }
    assert!(stuck > 0, "it never happens");
}

/// Starts servers, and kills all of them as soon as one has agreed to a plan. Returns that one; None if several have.
fn kill_after_first_agreement(
    world: &mut World,
    members: &[usize],
    before: &[usize],
) -> Option<usize> {
    for at in members {
        world.start(*at);
    }
    let has_agreed = |world: &World, at: usize| {
        let disk = world.servers[at].disk.as_ref();
        disk.is_some_and(|disk| matches!(disk.assembly.stage, Stage::Agreed(_)))
    };
    let agreed = loop {
        world.run(1);
        let new = members
            .iter()
            .filter(|at| !before.contains(at) && has_agreed(world, **at));
        let new: Vec<usize> = new.copied().collect();
        if !new.is_empty() {
            break new;
        }
    };
    for at in members {
        world.kill(*at);
    }
    run(world, 1_000);
    match agreed[..] {
        [one] => Some(one),
        _ => None,
    }
}

/// Two servers have agreed to different plans in one term, of which each is a part of both or knows the other.
#[test]
fn plans_that_contradict_each_other_are_given_up() {
    let slow_disks = Faults {
        save_max: 2_000,
        ..MILD
    };
    let mut tried = 0;
    for seed in 0..20 {
        let mut world = new(seed, NEEDED + 2, slow_disks);
        let first: Vec<usize> = all(NEEDED);
        let Some(one) = kill_after_first_agreement(&mut world, &first, &[]) else {
            continue;
        };
        // Those who have forgotten the first plan agree with others to another one.
        let second: Vec<usize> = all(NEEDED + 1)
            .into_iter()
            .filter(|at| *at != one)
            .collect();
        let Some(other) = kill_after_first_agreement(&mut world, &second, &[one]) else {
            continue;
        };
        assert_ne!(one, other);
        tried += 1;
        world.faults = MILD;
        for at in 0..NEEDED + 2 {
            world.start(at);
        }
        settle(&mut world, &all(NEEDED + 2));
        check_shape(&world, &all(NEEDED + 2), 5);
        assert!(world.given_up > 0, "seed {seed}");
        let terms = world.servers.iter().map(|server| {
            let disk = server.disk.as_ref().expect("it has started");
            disk.assembly.term
        });
        assert!(terms.into_iter().any(|term| term > 1), "seed {seed}");
    }
    assert!(tried > 3, "only {tried} came to two plans");
}

#[test]
fn whatever_goes_wrong_there_is_one_cluster() {
    for seed in seeds() {
        one_start(seed);
    }
}

/// Runs the first start of one cluster with all its faults.
fn one_start(seed: u64) {
    let mut draw = Random::new(seed ^ 0xA55E);
    let faults = Faults {
        delay_max: 1 + draw.below(200),
        lost_of_1000: draw.below(3) * draw.below(30),
        twice_of_1000: draw.below(3) * draw.below(30),
        skew_max: draw.below(3) * draw.below(5_000),
        save_max: 5 + draw.below(2) * draw.below(1_500),
    };
    let count = NEEDED + draw.index(4);
    let mut world = new(seed, count, faults);
    for _ in 0..40 {
        let at = draw.index(count);
        match draw.index(8) {
            0..4 if world.is_down(at) => world.start(at),
            4 if !world.is_down(at) => world.kill(at),
            5 => {
                let other = draw.index(count);
                if other != at {
                    world.cut.insert((at, other));
                }
            }
            6 => world.cut.clear(),
            7 if !world.is_down(at) => world.freeze(at, draw.below(5_000)),
            _ => {}
        }
        run(&mut world, draw.below(1_200));
    }
    world.cut.clear();
    world.faults = MILD;
    for at in 0..count {
        if world.is_down(at) {
            world.start(at);
        }
    }
    let settled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        settle(&mut world, &all(count));
    }));
    assert!(settled.is_ok(), "seed {seed}");
    let primaries = view(&world, 0)
        .nodes
        .iter()
        .filter(|node| !node.slots.is_empty())
        .count();
    assert_eq!(primaries, SIZE as usize, "seed {seed}");
    assert_eq!(assembled(&world).len(), 1, "seed {seed}");
}
