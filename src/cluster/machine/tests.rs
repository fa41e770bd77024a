//! One machine and what it answers to another node, whose packets are made by hand.

use super::Machine;
use crate::cluster::flags::NodeFlags;
use crate::cluster::node_id::NodeId;
use crate::cluster::nodes_conf::read::read;
use crate::cluster::output::{LinkId, Output};
use crate::cluster::packet::{Body, Extension, Header, News, Packet, WirePorts};
use crate::cluster::settings::{Local, PrimaryLink, Settings};
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

/// What the machine tells of itself with the pongs that it sends over a link.
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
    let settings = Settings {
        node_timeout: 1000,
        hostname: "h.example".to_owned(),
        ..Settings::default()
    };
    let machine = Machine::new(settings, None, 1, 1000);
    let mut machine = machine.expect("nothing was saved");
    let inbound = machine.accepted("10.0.0.7", "10.0.0.1", 1000);
    let receive = |machine: &mut Machine, link, body| {
        machine.receive(link, &packet(body), 1100, &Empty);
    };
    receive(&mut machine, inbound, Body::Meet(News::default()));
    machine.tick(1100, &Empty);
    let outputs = machine.outputs().into_iter();
    let mut opened = outputs.filter_map(|output| match output {
        Output::Connect { link, .. } => Some(link),
        _ => None,
    });
    let outbound = opened.next().expect("the node is got to know");
    machine.opened(outbound, "10.0.0.7", "10.0.0.1", 1100, &Empty);
    receive(&mut machine, outbound, Body::Pong(News::default()));
    machine.outputs();
    let with_shard = News {
        gossip: Vec::new(),
        extensions: vec![Extension::ShardId(NodeId::from_random([8; 20]))],
    };
    let mut counts = Vec::new();
    for news in [
        News::default(),
        News::default(),
        News::default(),
        News::default(),
        with_shard,
        News::default(),
    ] {
        receive(&mut machine, inbound, Body::Ping(news));
        let pongs = told(&mut machine, inbound);
        assert_eq!(pongs.len(), 1);
        let hostname = Extension::Hostname("h.example".to_owned());
        assert_eq!(pongs[0][0], hostname);
        counts.push(pongs[0].len());
    }
    // A pong answers before the greeting is looked at further.
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
    let machine = Machine::new(Settings::default(), Some(saved), 1, 1000);
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
