//! Tests of one node's state machine and its reactions to another node, whose packets are made by hand.

use super::Machine;
use crate::cluster::change::{ClusterChange, SlotChange};
use crate::cluster::flags::NodeFlags;
use crate::cluster::node_id::NodeId;
use crate::cluster::nodes_conf::read::read;
use crate::cluster::output::{LinkId, Output};
use crate::cluster::packet::{Body, Extension, Header, Packet, PingBody, WirePorts};
use crate::cluster::settings::{ClusterSettings, Local, PrimaryLink};
use crate::cluster::slot_set::SlotSet;

/// A server without data.
struct Empty;

impl Local for Empty {
    fn offset(&self) -> u64 {
        0
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

fn packet(body: Body) -> Packet {
    let header = Header {
        sender: NodeId::from_random([7; 20]),
        ports: WirePorts {
            main: 1,
            other: 0,
            bus: 2,
        },
        ip: String::new(),
        current_epoch: 0,
        config_epoch: 0,
        offset: 0,
        slots: SlotSet::default(),
        primary: None,
        flags: NodeFlags::PRIMARY,
        is_up: false,
        is_paused: false,
        is_forced: false,
    };
    Packet { header, body }
}

/// Returns the extensions of the pongs that the state machine sends over a link.
fn told(machine: &mut Machine, over: LinkId) -> Vec<Vec<Extension>> {
    let outputs = machine.outputs().into_iter();
    let pongs = outputs.filter_map(|output| match output {
        Output::Send(link, packet) if link == over => match &packet.body {
            Body::Pong(news) => Some(news.extensions.clone()),
            _ => None,
        },
        _ => None,
    });
    pongs.collect()
}

#[test]
fn nodes_that_know_no_shards_are_told_host_names_alone() {
    let settings = ClusterSettings {
        node_timeout: 1000,
        hostname: "h.example".to_owned(),
        ..ClusterSettings::default()
    };
    let machine = Machine::new(settings, None, 1, 1000);
    let mut machine = machine.expect("nothing was saved");
    machine.safe(machine.promised());
    let inbound = machine.accepted("10.0.0.7", "10.0.0.1", 1000);
    let receive = |machine: &mut Machine, link, body| {
        machine.receive(link, &packet(body), 1100, &Empty);
    };
    receive(&mut machine, inbound, Body::Meet(PingBody::default()));
    machine.tick(1100, &Empty);
    let outputs = machine.outputs().into_iter();
    let mut opened = outputs.filter_map(|output| match output {
        Output::Connect { link, .. } => Some(link),
        _ => None,
    });
    let outbound = opened.next().expect("the node is got to know");
    machine.opened(outbound, "10.0.0.7", "10.0.0.1", 1100, &Empty);
    receive(&mut machine, outbound, Body::Pong(PingBody::default()));
    machine.outputs();
    let with_shard = PingBody {
        gossip: Vec::new(),
        extensions: vec![Extension::ShardId(NodeId::from_random([8; 20]))],
    };
    let mut counts = Vec::new();
    for news in [
        PingBody::default(),
        PingBody::default(),
        PingBody::default(),
        PingBody::default(),
        with_shard,
        PingBody::default(),
    ] {
        receive(&mut machine, inbound, Body::Ping(news));
        let pongs = told(&mut machine, inbound);
        assert_eq!(pongs.len(), 1);
        let hostname = Extension::Hostname("h.example".to_owned());
        assert_eq!(pongs[0][0], hostname);
        counts.push(pongs[0].len());
    }
    // The pong is sent before the rest of the greeting is processed.
    assert_eq!(counts, [2, 2, 2, 1, 1, 2]);
}

#[test]
fn what_a_node_can_cause_in_a_loop_is_said_seldom() {
    let (me, other) = (NodeId::from_random([1; 20]), packet(Body::VoteRequest));
    let saved = format!(
        "{me} 10.0.0.1:3@4 myself,master - 0 0 5 connected 0-16383\n\
         {} 10.0.0.7:1@2 master - 0 0 4 connected\n\
         vars currentEpoch 5 lastVoteEpoch 0\n",
        other.header.sender
    );
    let saved = read(&saved, false).expect("it is good");
    let machine = Machine::new(ClusterSettings::default(), Some(saved), 1, 1000);
    let mut machine = machine.expect("this node is among them");
    let link = machine.accepted("10.0.0.7", "10.0.0.1", 1000);
    machine.outputs();
    for _ in 0..3 {
        machine.receive(link, &other, 1100, &Empty);
        let outputs = machine.outputs();
        let said = |output: &Output| match output {
            Output::LogSeldom(kind, ..) => Some(*kind),
            Output::Log(_, text) => panic!("said each time: {text}"),
            _ => None,
        };
        let kinds: Vec<&str> = outputs.iter().filter_map(said).collect();
        assert_eq!(kinds, ["cluster-vote-denied"]);
    }
}

const SLOTS_MOVED: std::ops::Range<u16> = 100..200;

fn name(at: u8) -> NodeId {
    NodeId::from_random([at; 20])
}

/// The first of three primaries, linked to the second. It owns the slots from 8,192 on, and the other two own the
/// rest; the second has failed and has a replica, the fourth node.
fn linked(own_epoch: u64) -> (Machine, LinkId) {
    let (me, source, other, replica) = (name(1), name(2), name(3), name(4));
    let saved = format!(
        "{me} 10.0.0.1:1@2 myself,master - 0 0 {own_epoch} connected 8192-16383\n\
         {source} 10.0.0.2:1@2 master - 0 0 4 connected 0-4095\n\
         {other} 10.0.0.3:1@2 master,fail - 0 0 3 connected 4096-8191\n\
         {replica} 10.0.0.4:1@2 slave {other} 0 0 3 connected\n\
         vars currentEpoch 5 lastVoteEpoch 0\n"
    );
    let saved = read(&saved, false).expect("it is good");
    let settings = ClusterSettings {
        node_timeout: 1000,
        ..ClusterSettings::default()
    };
    let machine = Machine::new(settings, Some(saved), 1, 1000);
    let mut machine = machine.expect("this node is among them");
    machine.tick(1000, &Empty);
    let mut links = Vec::new();
    for output in machine.outputs() {
        if let Output::Connect { link, ip, .. } = output {
            machine.opened(link, &ip, "10.0.0.1", 1000, &Empty);
            links.push((ip, link));
        }
    }
    machine.outputs();
    let to_replica = links.iter().find(|(ip, _)| ip == "10.0.0.4");
    (machine, to_replica.expect("a link to each").1)
}

fn of(sender: u8, config_epoch: u64, slots: SlotSet, body: Body) -> Packet {
    let mut packet = packet(body);
    packet.header.sender = name(sender);
    packet.header.config_epoch = config_epoch;
    packet.header.current_epoch = 5;
    packet.header.slots = slots;
    packet
}

/// Counts the outputs that request nodes.conf to be written for a promise, and those that request it to be written
/// soon.
fn asked(outputs: &[Output]) -> (usize, usize) {
    let count = |is: fn(&Output) -> bool| outputs.iter().filter(|output| is(output)).count();
    (
        count(|output| matches!(output, Output::Save(_))),
        count(|output| matches!(output, Output::SaveSoon)),
    )
}

fn sent(outputs: &[Output]) -> Vec<&Packet> {
    let sent = outputs.iter().filter_map(|output| match output {
        Output::Send(_, packet) => Some(&**packet),
        _ => None,
    });
    sent.collect()
}

#[test]
fn a_vote_waits_for_the_file_and_pings_are_answered_meanwhile() {
    let (mut machine, to_replica) = linked(5);
    let inbound = machine.accepted("10.0.0.4", "10.0.0.1", 1000);
    let mut request = of(4, 3, (4096..8192).collect(), Body::VoteRequest);
    request.header.primary = Some(name(3));
    request.header.flags = NodeFlags::REPLICA;
    request.header.current_epoch = 6;
    machine.receive(inbound, &request, 1100, &Empty);
    let outputs = machine.outputs();
    assert_eq!(asked(&outputs), (1, 0));
    assert_eq!(sent(&outputs), Vec::<&Packet>::new(), "the vote waits");
    let promise = machine.promised();
    assert_eq!(machine.saved().last_vote_epoch, 6);
    let ping = of(2, 4, (0..4096).collect(), Body::Ping(PingBody::default()));
    let from_source = machine.accepted("10.0.0.2", "10.0.0.1", 1100);
    machine.receive(from_source, &ping, 1200, &Empty);
    let outputs = machine.outputs();
    let answers = sent(&outputs);
    assert!(matches!(
        answers[..],
        [Packet {
            body: Body::Pong(_),
            ..
        }]
    ));
    assert_eq!(answers[0].header.current_epoch, 5, "as before the vote");
    machine.safe(promise - 1);
    assert_eq!(machine.outputs().len(), 0, "another promise is safe");
    machine.safe(promise);
    let outputs = machine.outputs();
    let votes: Vec<_> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::Send(link, packet) => {
                Some((*link, packet.body.clone(), packet.header.current_epoch))
            }
            _ => None,
        })
        .collect();
    assert_eq!(votes, [(to_replica, Body::Vote, 6)]);
}

#[test]
fn what_is_decided_behind_a_promise_waits_for_it_in_order() {
    let (mut machine, _) = linked(3);
    let answer = machine.change(ClusterChange::BumpEpoch, 1000, &Empty);
    assert_eq!(answer, Ok("BUMPED 6".to_owned()));
    assert!(machine.is_promising());
    let first = machine.promised();
    machine.outputs();
    let slots = (8192..8200).collect();
    let answer = machine.change(ClusterChange::DelSlots(slots), 1000, &Empty);
    assert_eq!(answer, Ok("OK".to_owned()));
    let outputs = machine.outputs();
    assert_eq!(asked(&outputs), (0, 1));
    assert!(
        !outputs
            .iter()
            .any(|output| matches!(output, Output::Publish))
    );
    let taken = ClusterChange::TakeSlots {
        slots: (0..10).collect(),
        from: name(2),
    };
    assert_eq!(machine.change(taken, 1000, &Empty), Ok("OK".to_owned()));
    assert_eq!(asked(&machine.outputs()), (1, 0));
    machine.safe(first);
    assert!(machine.outputs().is_empty(), "there is a later promise");
    machine.safe(machine.promised());
    let outputs = machine.outputs();
    let maps = outputs
        .iter()
        .filter(|output| matches!(output, Output::Publish));
    assert_eq!(maps.count(), 1);
    assert!(!machine.is_promising());
}

#[test]
fn a_reshard_asks_for_the_file_once() {
    // The node that receives the slots takes a new epoch with the first slot, and keeps it for all others.
    let (mut target, _) = linked(3);
    let (mut promised, mut soon) = (0, 0);
    for slot in SLOTS_MOVED {
        for to in [SlotChange::Importing(name(2)), SlotChange::Node(name(1))] {
            let answer = target.change(ClusterChange::SetSlot { slot, to }, 1000, &Empty);
            assert_eq!(answer, Ok("OK".to_owned()));
            let counts = asked(&target.outputs());
            promised += counts.0;
            soon += counts.1;
            target.safe(target.promised());
        }
    }
    assert_eq!((promised, soon), (1, 2 * SLOTS_MOVED.len() - 1));
    assert_eq!(target.own_view().config_epoch, 6);

    // The node that gives the slots away keeps its previous epoch.
    let (mut source, _) = linked(5);
    for slot in SLOTS_MOVED.map(|slot| slot + 8192) {
        for to in [SlotChange::Migrating(name(2)), SlotChange::Node(name(2))] {
            let answer = source.change(ClusterChange::SetSlot { slot, to }, 1000, &Empty);
            assert_eq!(answer, Ok("OK".to_owned()));
            assert_eq!(asked(&source.outputs()), (0, 1));
        }
    }

    // Any other node learns of each slot by a ping.
    let (mut other, _) = linked(5);
    let inbound = other.accepted("10.0.0.2", "10.0.0.1", 1000);
    for last in SLOTS_MOVED.map(|slot| slot + 4096) {
        let ping = of(2, 6, (0..last).collect(), Body::Ping(PingBody::default()));
        other.receive(inbound, &ping, 1000, &Empty);
        assert_eq!(asked(&other.outputs()), (0, 1));
    }
}
