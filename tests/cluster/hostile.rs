//! Packets that no correct node sends. Packets of unknown nodes change nothing except for MEET, whatever
//! their fields contain; known nodes may send any contents, and the state machine stays consistent.

use std::collections::BTreeMap;
use std::sync::Arc;

use basalt_commands::cluster::Millis;
use basalt_commands::cluster::assembly::plan::Plan;
use basalt_commands::cluster::assembly::{AssemblyRecord, Notice, NoticeStage};
use basalt_commands::cluster::change::ClusterChange;
use basalt_commands::cluster::flags::NodeFlags;
use basalt_commands::cluster::machine::Machine;
use basalt_commands::cluster::node_id::NodeId;
use basalt_commands::cluster::output::{LinkId, Output};
use basalt_commands::cluster::packet::{
    Body, Extension, Gossip, Header, Message, Packet, PingBody, WirePorts,
};
use basalt_commands::cluster::saved::{Saved, SavedNode};
use basalt_commands::cluster::settings::{ClusterSettings, Local, PrimaryLink};
use basalt_commands::cluster::slot_set::SlotSet;
use basalt_commands::cluster::wire::decode::decode;
use basalt_commands::cluster::wire::encode::encode;
use basalt_commands::cluster::wire::reader::ClusterPacketReader;
use basalt_core::base::random::Random;

const BEGIN: Millis = 1_000_000;
/// Number of nodes that the machine knows, itself the first.
const KNOWN: u8 = 5;
/// A node that it does not know.
const STRANGER: u8 = 9;
/// Bytes of a header, and the offset of a packet's kind.
const HEADER_BYTES: usize = 2256;
const KIND: usize = 12;
/// Number of kinds of messages.
const KINDS: u16 = 11;

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

fn name(at: u8) -> NodeId {
    NodeId::from_random([at; 20])
}

/// Returns the first of three primaries; the others have a replica each.
fn machine(seed: u64) -> Machine {
    let nodes = (0..KNOWN).map(|at| {
        let primary = (at > 2).then(|| name(at - 2));
        let role = match primary {
            Some(_) => NodeFlags::REPLICA,
            None => NodeFlags::PRIMARY,
        };
        let first = u16::from(at) * 5000;
        SavedNode {
            id: name(at),
            ip: format!("10.0.0.{at}"),
            port: 1,
            tls_port: 0,
            bus_port: 2,
            hostname: String::new(),
            human_name: String::new(),
            shard_id: None,
            flags: match at {
                0 => role.or(NodeFlags::MYSELF),
                _ => role,
            },
            primary,
            ping_sent: 0,
            pong_received: 0,
            config_epoch: u64::from(at),
            slots: match primary {
                Some(_) => SlotSet::default(),
                None => (first..first + 5000).collect(),
            },
        }
    });
    let saved = Saved {
        nodes: nodes.collect(),
        current_epoch: 3,
        last_vote_epoch: 0,
        migrating: BTreeMap::new(),
        importing: BTreeMap::new(),
        assembly: AssemblyRecord::default(),
    };
    let settings = ClusterSettings {
        node_timeout: 2_000,
        manual_failover_timeout: 5_000,
        forgotten_for: 60_000,
        gossip_percent: 10,
        allow_replica_migration: true,
        ..ClusterSettings::default()
    };
    let machine = Machine::new(settings, Some(saved), seed, BEGIN);
    machine.expect("one of the nodes is this one")
}

/// Returns a new node that waits for another one to assemble a cluster.
fn new_machine(seed: u64) -> Machine {
    let settings = ClusterSettings {
        node_timeout: 2_000,
        gossip_percent: 10,
        cluster_size: 2,
        ..ClusterSettings::default()
    };
    let mut saved = machine(seed).saved();
    saved.nodes.retain(|node| node.id == name(0));
    saved.nodes[0].slots = SlotSet::default();
    let machine = Machine::new(settings, Some(saved), seed, BEGIN);
    machine.expect("one of the nodes is this one")
}

fn packet(sender: u8, body: Body) -> Packet {
    Packet {
        header: Header {
            sender: name(sender),
            ports: WirePorts {
                main: 1,
                other: 0,
                bus: 2,
            },
            ip: String::new(),
            current_epoch: 7,
            config_epoch: 7,
            offset: 7,
            slots: (0..16_384).collect(),
            primary: None,
            flags: NodeFlags::PRIMARY,
            is_up: true,
            is_paused: false,
            is_forced: false,
        },
        body,
    }
}

/// Returns any notice, often one that a node of [`new_machine`] could agree with.
fn notice(random: &mut Random) -> Notice {
    let members = (0..random.below(4) as u8 + 1).map(name).collect();
    let plan = Plan::of_members(members, 1).expect("each once");
    Notice {
        size: 1 + random.below(2) as u32,
        replicas: random.below(2) as u32,
        term: random.next_u64() >> (random.below(2) * 62),
        life: random.next_u64(),
        stage: match random.below(3) {
            0 => NoticeStage::Waiting {
                plan: random.next_u64().into(),
                unfit: None,
            },
            1 => NoticeStage::Agreed(Arc::new(plan)),
            _ => NoticeStage::Assembled(random.next_u64().into()),
        },
    }
}

fn bodies(random: &mut Random) -> Vec<Body> {
    let node = |random: &mut Random| name(random.below(u64::from(STRANGER) + 1) as u8);
    let news = |random: &mut Random| PingBody {
        gossip: (0..random.below(4))
            .map(|_| Gossip {
                node: node(random),
                ping_sent_s: random.next_u64() as u32,
                pong_received_s: random.next_u64() as u32,
                ip: format!("10.0.0.{}", random.below(20)),
                ports: WirePorts {
                    main: 1,
                    other: 0,
                    bus: random.next_u64() as u16,
                },
                flags: NodeFlags(random.next_u64() as u16),
            })
            .collect(),
        extensions: match random.below(5) {
            3 => vec![Extension::Zone("z".to_owned())],
            4 => vec![Extension::Assembly(Box::new(notice(random)))],
            0 => vec![Extension::Forgotten {
                node: node(random),
                ttl_ms: 1_000 * random.below(9),
            }],
            1 => vec![Extension::ShardId(node(random))],
            _ => vec![Extension::Hostname("h.example".to_owned())],
        },
    };
    let message = Message {
        channel: b"c".to_vec(),
        payload: b"p".to_vec(),
    };
    vec![
        Body::Ping(news(random)),
        Body::Pong(news(random)),
        Body::Fail(node(random)),
        Body::Publish(message.clone()),
        Body::PublishShard(message),
        Body::VoteRequest,
        Body::Vote,
        Body::Update {
            node: node(random),
            config_epoch: random.next_u64(),
            slots: (0..16_384).collect(),
        },
        Body::ManualFailoverStart,
        Body::Module,
    ]
}

/// Returns the machine's state that a packet may change, without the times of the nodes' last packets.
fn state(machine: &Machine) -> (String, Saved) {
    let map = machine.map();
    let mut text = format!("{} {} {}", map.is_up, map.current_epoch, map.size);
    for node in &map.nodes {
        text += &format!(
            "\n{} {}:{}@{} {:?} {:?} {} {} {:?}",
            node.id,
            node.ip,
            node.port,
            node.bus_port,
            node.flags,
            node.primary_id,
            node.config_epoch,
            node.offset,
            node.slots.ranges().collect::<Vec<_>>(),
        );
    }
    (text, machine.saved())
}

/// Passes bytes to a machine as a link would. Returns the number of packets, and of refused ones.
fn feed(machine: &mut Machine, link: LinkId, bytes: &[u8], now: Millis) -> (usize, usize) {
    let (mut taken, mut refused, mut reader) = (0, 0, ClusterPacketReader::default());
    let is_known = |id: &NodeId| (0..KNOWN).any(|at| name(at) == *id);
    let mut packets = Vec::new();
    // A stream that can not go on is closed by the driver.
    let _ = reader.feed(bytes, is_known, |packet| packets.push(packet));
    assert!(reader.memory_bytes() <= bytes.len().next_power_of_two() + 65_536);
    for packet in packets {
        match packet {
            Ok(packet) => {
                taken += 1;
                machine.receive(link, &packet, now, &Empty);
            }
            Err(_) => refused += 1,
        }
    }
    (taken, refused)
}

/// True if the machine's reaction to a stranger's packets consists of replies to pings alone, without a line
/// in the log.
fn is_harmless(outputs: Vec<Output>) -> bool {
    outputs.iter().all(|output| match output {
        Output::Send(_, packet) => matches!(packet.body, Body::Pong(_)),
        _ => false,
    })
}

#[test]
fn strangers_change_nothing_whatever_their_fields_hold() {
    let mut machine = machine(1);
    machine.tick(BEGIN, &Empty);
    machine.outputs();
    let before = state(&machine);
    let link = machine.accepted("10.0.0.99", "10.0.0.0", BEGIN);
    let (mut taken, mut refused) = (0, 0);
    for body in bodies(&mut Random::new(1)) {
        let good = encode(&packet(STRANGER, body));
        let mut variants = vec![good.clone()];
        // Each byte but those of slots, and the first, the last and one of these.
        let fields = (0..82).chain(1000..1001).chain(2127..good.len());
        for at in fields {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[at] = value;
                let is_meet = bytes[KIND..KIND + 2] == [0, 2];
                if !is_meet {
                    variants.push(bytes);
                }
            }
        }
        // Each length, stated correctly: shorter by the part behind the header, and longer.
        for length in HEADER_BYTES..good.len() + 200 {
            let mut bytes = good.clone();
            bytes.resize(length, 0xff);
            bytes[4..8].copy_from_slice(&(length as u32).to_be_bytes());
            variants.push(bytes);
        }
        for bytes in variants {
            let counts = feed(&mut machine, link, &bytes, BEGIN);
            taken += counts.0;
            refused += counts.1;
            assert!(is_harmless(machine.outputs()), "{:?}", decode(&bytes));
        }
    }
    // Packets that present and future servers may send: all unknown kinds, short headers among them.
    let good = encode(&packet(STRANGER, Body::Vote));
    for kind in (KINDS..64).chain([0x8000, 0x8004, 0x8005, 0xffff]) {
        let mut bytes = good.clone();
        bytes[KIND..KIND + 2].copy_from_slice(&kind.to_be_bytes());
        assert_eq!(feed(&mut machine, link, &bytes, BEGIN), (0, 1), "{kind}");
    }
    assert!(is_harmless(machine.outputs()));
    assert!(state(&machine) == before, "{}", state(&machine).0);
    assert!(taken > 1_000 && refused > 1_000, "{taken} {refused}");
}

#[test]
fn a_packet_that_is_refused_changes_nothing_though_its_sender_is_known() {
    let mut machine = machine(2);
    machine.tick(BEGIN, &Empty);
    machine.outputs();
    let before = state(&machine);
    let link = machine.accepted("10.0.0.1", "10.0.0.0", BEGIN);
    for body in bodies(&mut Random::new(2)) {
        let mut bytes = encode(&packet(1, body));
        bytes.push(0);
        let length = bytes.len() as u32;
        bytes[4..8].copy_from_slice(&length.to_be_bytes());
        let mut of_tomorrow = bytes.clone();
        of_tomorrow[9] = 2;
        assert_eq!(feed(&mut machine, link, &bytes, BEGIN), (0, 1));
        assert_eq!(feed(&mut machine, link, &of_tomorrow, BEGIN), (0, 1));
    }
    assert!(machine.outputs().is_empty());
    assert!(state(&machine) == before, "{}", state(&machine).0);
}

/// Runs one machine under packets of all kinds and of all nodes, mutated too, until none is left to send.
fn one_siege(mut machine: Machine, seed: u64) {
    let mut random = Random::new(seed);
    let mut links = BTreeMap::new();
    let mut now = BEGIN;
    for _ in 0..300 {
        let sender = random.below(u64::from(STRANGER) + 1) as u8;
        let mut drawn = bodies(&mut random);
        drawn.push(match &drawn[0] {
            Body::Ping(news) => Body::Meet(news.clone()),
            other => other.clone(),
        });
        let body = drawn.swap_remove(random.index(drawn.len()));
        let mut sent = packet(sender, body);
        sent.header.current_epoch = random.next_u64() >> random.below(64);
        sent.header.config_epoch = random.next_u64() >> random.below(64);
        if random.below(2) == 0 {
            sent.header.slots = SlotSet::default();
        }
        if random.below(3) == 0 {
            sent.header.primary = Some(name(random.below(10) as u8));
        }
        sent.header.flags = NodeFlags(random.next_u64() as u16);
        let mut bytes = encode(&sent);
        for _ in 0..random.below(3) {
            let at = random.index(bytes.len());
            bytes[at] = random.next_u64() as u8;
        }
        let inbound = *links
            .entry(sender)
            .or_insert_with(|| machine.accepted("10.0.0.9", "10.0.0.0", now));
        feed(&mut machine, inbound, &bytes, now);
        now += random.below(300);
        machine.tick(now, &Empty);
        for output in machine.outputs() {
            match output {
                Output::Connect { link, ip, .. } if random.below(2) == 0 => {
                    machine.opened(link, &ip, "10.0.0.0", now, &Empty);
                    links.insert(random.below(10) as u8, link);
                }
                Output::Connect { link, .. } => machine.closed(link),
                Output::Close(closed) => links.retain(|_, link| *link != closed),
                _ => {}
            }
        }
        if random.below(2) == 0 {
            machine.safe(machine.promised());
        }
        let map = machine.map();
        assert!(map.nodes.len() <= 200, "seed {seed}: {}", map.nodes.len());
        for (place, node) in map.nodes.iter().enumerate() {
            let all_its_own = node
                .slots
                .iter()
                .all(|slot| usize::from(map.owners[usize::from(slot)]) == place);
            assert!(all_its_own, "seed {seed}: {}", node.id);
        }
        assert_eq!(machine.id(), name(0), "seed {seed}");
    }
}

#[test]
fn whatever_nodes_send_the_machine_stands() {
    for seed in super::seeds() {
        one_siege(machine(seed), seed);
        one_siege(new_machine(seed), seed);
    }
}

/// Returns gossip about `count` nodes that do not exist, numbered from `first` on.
fn hearsay(first: u32, count: u32) -> PingBody {
    let gossip = (first..first + count).map(|at| {
        let mut name = [0xAA; 20];
        name[..4].copy_from_slice(&at.to_be_bytes());
        Gossip {
            node: NodeId::from_random(name),
            ping_sent_s: 0,
            pong_received_s: 0,
            ip: format!("10.9.{}.{}", at / 250 % 250, at % 250),
            ports: WirePorts {
                main: 1,
                other: 0,
                bus: 2,
            },
            flags: NodeFlags::PRIMARY,
        }
    });
    PingBody {
        gossip: gossip.collect(),
        extensions: Vec::new(),
    }
}

/// Lets time pass in which only the nodes that `answers` selects accept links.
fn pass(machine: &mut Machine, from: Millis, until: Millis, answers: &dyn Fn(&str) -> bool) {
    for now in (from..until).step_by(100) {
        machine.tick(now, &Empty);
        for output in machine.outputs() {
            match output {
                Output::Connect { link, ip, .. } if answers(&ip) => {
                    machine.opened(link, &ip, "10.0.0.0", now, &Empty);
                }
                Output::Connect { link, .. } => machine.closed(link),
                Output::Send(_, packet) => {
                    if let Body::Ping(news) | Body::Pong(news) | Body::Meet(news) = &packet.body {
                        let told = |gossip: &Gossip| gossip.ip.starts_with("10.9.");
                        assert!(!news.gossip.iter().any(told), "hearsay is told on");
                    }
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_stranger_that_does_not_answer_leaves_nothing_behind() {
    let mut machine = machine(3);
    let before = machine.saved();
    let link = machine.accepted("10.0.0.99", "10.0.0.0", BEGIN);
    for round in 0..5 {
        let mut meet = packet(STRANGER, Body::Meet(hearsay(round * 3_600, 3_600)));
        meet.header.ports.main = round as u16 + 1;
        machine.receive(link, &meet, BEGIN, &Empty);
    }
    assert_eq!(machine.map().nodes.len(), usize::from(KNOWN) + 5);
    // As many handshakes as it likes do not add up.
    for port in 1..5_000 {
        let mut meet = packet(STRANGER, Body::Meet(PingBody::default()));
        meet.header.ports.main = port;
        machine.receive(link, &meet, BEGIN, &Empty);
    }
    assert!(machine.map().nodes.len() <= usize::from(KNOWN) + 1_024);
    assert_eq!(machine.saved(), before);
    pass(&mut machine, BEGIN, BEGIN + 2_500, &|_| false);
    assert_eq!(machine.map().nodes.len(), usize::from(KNOWN));
}

#[test]
fn nodes_that_are_only_told_of_are_not_saved_nor_told_on_and_forgotten() {
    let mut machine = machine(4);
    let before: Vec<NodeId> = machine.saved().nodes.iter().map(|node| node.id).collect();
    let kept = |machine: &Machine| -> Vec<NodeId> {
        machine.saved().nodes.iter().map(|node| node.id).collect()
    };
    let link = machine.accepted("10.0.0.1", "10.0.0.0", BEGIN);
    for round in 0..5 {
        let ping = packet(1, Body::Ping(hearsay(round * 3_600, 3_600)));
        machine.receive(link, &ping, BEGIN, &Empty);
    }
    let known = machine.map().nodes.len();
    assert!((4_000..=5_000).contains(&known), "{known}");
    assert_eq!(kept(&machine), before);
    // True nodes still fit into the table.
    let met = ClusterChange::Meet {
        is_by_hand: true,
        ip: "10.0.0.50".to_owned(),
        port: 1,
        bus_port: 2,
    };
    assert_eq!(machine.change(met, BEGIN, &Empty), Ok("OK".to_owned()));
    assert_eq!(machine.map().nodes.len(), known + 1);
    let answers = |ip: &str| ip.starts_with("10.0.");
    pass(&mut machine, BEGIN, BEGIN + 7_000, &answers);
    // One of them is still mentioned, by a node that may know of it.
    let ping = packet(1, Body::Ping(hearsay(7, 1)));
    machine.receive(link, &ping, BEGIN + 7_000, &Empty);
    pass(&mut machine, BEGIN + 7_000, BEGIN + 14_000, &answers);
    assert_eq!(machine.map().nodes.len(), usize::from(KNOWN) + 1);
    pass(&mut machine, BEGIN + 14_000, BEGIN + 16_000, &answers);
    assert_eq!(machine.map().nodes.len(), usize::from(KNOWN));
}

#[test]
fn a_node_that_answers_has_others_known() {
    let mut machine = machine(5);
    let inbound = machine.accepted("10.0.0.99", "10.0.0.0", BEGIN);
    let meet = packet(STRANGER, Body::Meet(hearsay(0, 1)));
    machine.receive(inbound, &meet, BEGIN, &Empty);
    let is_to = |ip: &'static str| {
        move |output: &Output| match output {
            Output::Connect { link, ip: to, .. } if to == ip => Some(*link),
            _ => None,
        }
    };
    machine.tick(BEGIN, &Empty);
    let outputs = machine.outputs();
    let outbound = outputs.iter().find_map(is_to("10.0.0.99"));
    let outbound = outbound.expect("it is got to know");
    machine.opened(outbound, "10.0.0.99", "10.0.0.0", BEGIN, &Empty);
    let pong = packet(STRANGER, Body::Pong(PingBody::default()));
    machine.receive(outbound, &pong, BEGIN, &Empty);
    let saved = |machine: &Machine| machine.saved().nodes.len();
    assert_eq!(saved(&machine), usize::from(KNOWN) + 1);
    let ping = packet(STRANGER, Body::Ping(hearsay(0, 1)));
    machine.receive(inbound, &ping, BEGIN, &Empty);
    assert_eq!(machine.map().nodes.len(), usize::from(KNOWN) + 2);
    assert_eq!(saved(&machine), usize::from(KNOWN) + 1);
    machine.outputs();
    machine.tick(BEGIN + 100, &Empty);
    let outputs = machine.outputs();
    let outbound = outputs.iter().find_map(is_to("10.9.0.0"));
    let outbound = outbound.expect("it is gone to");
    machine.opened(outbound, "10.9.0.0", "10.0.0.0", BEGIN + 100, &Empty);
    let mut pong = packet(STRANGER, Body::Pong(PingBody::default()));
    pong.header.sender = hearsay(0, 1).gossip[0].node;
    machine.receive(outbound, &pong, BEGIN + 100, &Empty);
    assert_eq!(saved(&machine), usize::from(KNOWN) + 2);
}
