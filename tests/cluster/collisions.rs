//! Two primaries of one shard with equal epochs: the one with the greater stream offset wins, whatever their
//! names are.

use std::collections::{BTreeMap, BTreeSet};

use basalt_commands::cluster::Millis;
use basalt_commands::cluster::assembly::AssemblyRecord;
use basalt_commands::cluster::change::{ClusterChange, Failover};
use basalt_commands::cluster::flags::NodeFlags;
use basalt_commands::cluster::machine::Machine;
use basalt_commands::cluster::node_id::NodeId;
use basalt_commands::cluster::packet::{Body, Header, Packet, PingBody, WirePorts};
use basalt_commands::cluster::saved::{Saved, SavedNode};
use basalt_commands::cluster::settings::{ClusterSettings, Local, PrimaryLink};
use basalt_commands::cluster::slot_set::SlotSet;

use super::world::World;
use super::{MILD, NODE_TIMEOUT};

/// A primary and its replica, by their indices.
const PRIMARY: usize = 0;
const REPLICA: usize = 3;

/// Cuts a server off from all others.
fn isolate(world: &mut World, at: usize) {
    for other in (0..world.servers.len()).filter(|other| *other != at) {
        world.cut.insert((at, other));
        world.cut.insert((other, at));
    }
}

/// Runs a cluster whose first shard gets two primaries with one epoch, of which `winner` has more of the
/// stream. All have to agree that it leads, and the other has to follow it. Returns whether the winner has
/// the smaller name, or `None` if the epochs came out differently.
fn collide(seed: u64, winner: usize) -> Option<bool> {
    let mut world = World::new(seed, 3, 1, NODE_TIMEOUT, MILD);
    world.settle(10_000).expect("all agree");
    world.write_everywhere();
    world.run(1_000);
    assert_eq!(world.wrong, Vec::<String>::new());
    let write = |world: &mut World| {
        for _ in 0..5 {
            world.write_everywhere();
            world.run(100);
        }
    };
    let loser = if winner == REPLICA {
        // The primary is cut off, and its replica elected.
        isolate(&mut world, PRIMARY);
        world.run(8 * NODE_TIMEOUT);
        write(&mut world);
        PRIMARY
    } else {
        isolate(&mut world, REPLICA);
        write(&mut world);
        world.change(REPLICA, ClusterChange::Failover(Failover::Takeover));
        REPLICA
    };
    world.change(PRIMARY, ClusterChange::BumpEpoch);
    let epochs = [PRIMARY, REPLICA].map(|at| world.machine(at).own_view().config_epoch);
    if epochs[0] != epochs[1] {
        return None;
    }
    let writes = [winner, loser].map(|at| world.servers[at].writes.len());
    assert!(writes[0] > writes[1], "seed {seed}: {writes:?}");
    let kept = world.servers[winner].writes.clone();
    world.cut.clear();
    let settled = world.settle(60_000);
    settled.unwrap_or_else(|text| panic!("seed {seed}, {winner} has more: {text}"));
    world.run(2_000);
    assert_eq!(
        (world.servers[winner].follows, world.servers[loser].follows),
        (None, Some(winner)),
        "seed {seed}"
    );
    assert!(world.servers[winner].writes.starts_with(&kept));
    Some(world.machine(winner).id() < world.machine(loser).id())
}

#[test]
fn within_a_shard_the_one_with_more_of_the_stream_wins() {
    for winner in [PRIMARY, REPLICA] {
        let orders = (0..16).filter_map(|seed| collide(seed, winner));
        let orders: BTreeSet<bool> = orders.collect();
        assert_eq!(orders.len(), 2, "either has had the smaller name");
    }
}

/// A server with a given stream offset.
struct At(u64);

impl Local for At {
    fn offset(&self) -> u64 {
        self.0
    }
    fn keys_in_slot(&self, _: u16) -> u64 {
        0
    }
    fn has_keys(&self) -> bool {
        false
    }
    fn primary_link(&self) -> Option<PrimaryLink> {
        None
    }
}

const EPOCH: u64 = 5;
const BEGIN: Millis = 1_000_000;

fn name(at: u8) -> NodeId {
    NodeId::from_random([at; 20])
}

/// Returns the epoch of a primary with the name `mine` and a given offset, after each of some pings of
/// another primary, which keeps its epoch as a server does that decides by names, and never takes a later
/// one.
fn epochs(mine: u8, other: u8, shares_shard: bool, offsets: (u64, u64)) -> Vec<u64> {
    let node = |id: u8, flags: NodeFlags| SavedNode {
        id: name(id),
        ip: format!("10.0.0.{id}"),
        port: 1,
        tls_port: 0,
        bus_port: 2,
        hostname: String::new(),
        human_name: String::new(),
        shard_id: Some(name(if shares_shard { 0 } else { id })),
        flags,
        primary: None,
        ping_sent: 0,
        pong_received: 0,
        config_epoch: EPOCH,
        slots: SlotSet::default(),
    };
    let saved = Saved {
        nodes: vec![
            node(mine, NodeFlags::PRIMARY.or(NodeFlags::MYSELF)),
            node(other, NodeFlags::PRIMARY),
        ],
        current_epoch: EPOCH,
        last_vote_epoch: 0,
        migrating: BTreeMap::new(),
        importing: BTreeMap::new(),
        assembly: AssemblyRecord::default(),
    };
    let settings = ClusterSettings {
        node_timeout: NODE_TIMEOUT,
        ..ClusterSettings::default()
    };
    let machine = Machine::new(settings, Some(saved), 1, BEGIN);
    let mut machine = machine.expect("one of the nodes is this one");
    let link = machine.accepted("10.0.0.9", "10.0.0.1", BEGIN);
    let ping = Packet {
        header: Header {
            sender: name(other),
            ports: WirePorts {
                main: 1,
                other: 0,
                bus: 2,
            },
            ip: format!("10.0.0.{other}"),
            current_epoch: EPOCH,
            config_epoch: EPOCH,
            offset: offsets.1,
            slots: SlotSet::default(),
            primary: None,
            flags: NodeFlags::PRIMARY,
            is_up: true,
            is_paused: false,
            is_forced: false,
        },
        body: Body::Ping(PingBody::default()),
    };
    let times = [0, NODE_TIMEOUT / 2, NODE_TIMEOUT + 1];
    let seen = times.into_iter().map(|after| {
        machine.receive(link, &ping, BEGIN + after, &At(offsets.0));
        machine.own_view().config_epoch
    });
    seen.collect()
}

#[test]
fn a_collision_ends_next_to_a_server_that_goes_by_the_names() {
    let (kept, next) = (EPOCH, EPOCH + 1);
    // Nodes of different shards, or with equal offsets, are ordered by their IDs.
    for (shares_shard, offsets) in [(false, (9, 1)), (false, (1, 9)), (true, (9, 9))] {
        assert_eq!(epochs(1, 2, shares_shard, offsets), [next; 3]);
        assert_eq!(epochs(2, 1, shares_shard, offsets), [kept; 3]);
    }
    assert_eq!(epochs(1, 2, true, (9, 1)), [next; 3]);
    // The other one would go by now, if it knew that this one has less.
    assert_eq!(epochs(1, 2, true, (1, 9)), [kept, kept, next]);
    // The other one goes by the names, to the next epoch: this one's is later than that.
    assert_eq!(epochs(2, 1, true, (9, 1)), [next + 1; 3]);
    assert_eq!(epochs(2, 1, true, (1, 9)), [kept; 3]);
}
