//! Random packets of the cluster bus, sent to one node of this server and one of redis-server by the same
//! three nodes, which exist in this test only: both nodes reply alike, and their tables are equal afterwards.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use basalt_commands::cluster::flags::NodeFlags;
use basalt_commands::cluster::node_id::NodeId;
use basalt_commands::cluster::packet::{
    Body, Gossip, Header, Message, Packet, PingBody, WirePorts,
};
use basalt_commands::cluster::slot_set::SlotSet;
use basalt_commands::cluster::wire::decode::decode;
use basalt_commands::cluster::wire::encode::encode;
use basalt_core::base::random::Random;

use crate::support::{Options, Oracle, Server, check, eventually, free_port, is_stand_in};
use crate::wire::Raw;

/// Nodes of this test: two primaries, a replica of the first, and one that is never taken in.
const PRIMARIES: [u8; 2] = [1, 2];
const REPLICA: u8 = 3;
const STRANGER: u8 = 9;

/// Packets that a pair of servers is sent, and rounds with other ones. `BASALT_BUS_ROUNDS` asks for more.
const PACKETS: usize = 300;
const ROUNDS: u64 = 2;

/// Greatest lag of one server behind the other: the time for which a server that was cut off takes no writes.
const TICK: Duration = Duration::from_millis(100);
const TICKS_MAX: usize = 60;

fn name(at: u8) -> NodeId {
    NodeId::from_random([at; 20])
}

/// Returns the slots of a node; the server's is 0: a third each.
fn slots_of(at: u8) -> SlotSet {
    match at {
        REPLICA | STRANGER => SlotSet::default(),
        _ => {
            let first = u16::from(at) * 5462;
            (first..(first + 5462).min(16_384)).collect()
        }
    }
}

/// Returns a correct packet of a node, before anything is changed.
fn packet(sender: u8, bus: u16, body: Body) -> Packet {
    let is_replica = sender == REPLICA;
    Packet {
        header: Header {
            sender: name(sender),
            ports: WirePorts {
                main: 1,
                other: 0,
                bus,
            },
            ip: String::new(),
            current_epoch: 3,
            config_epoch: u64::from(sender % REPLICA),
            offset: 0,
            slots: slots_of(sender % REPLICA),
            primary: is_replica.then(|| name(PRIMARIES[0])),
            flags: match is_replica {
                true => NodeFlags::REPLICA,
                false => NodeFlags::PRIMARY,
            },
            is_up: true,
            is_paused: false,
            is_forced: false,
        },
        body,
    }
}

/// Returns the next packet of a connection, or `None` if that is closed.
fn receive(stream: &mut TcpStream) -> Option<Packet> {
    let mut bytes = vec![0; 8];
    stream.read_exact(&mut bytes).ok()?;
    let length = u32::from_be_bytes(bytes[4..8].try_into().expect("four bytes"));
    bytes.resize(length as usize, 0);
    stream.read_exact(&mut bytes[8..]).ok()?;
    Some(decode(&bytes).expect("what servers send can be read"))
}

/// A node of this test as one server knows it: it takes the server's links, and answers while it is to be taken in.
struct Node {
    at: u8,
    bus: u16,
    answers: Arc<AtomicBool>,
}

impl Node {
    fn new(at: u8) -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let bus = listener.local_addr().expect("its number").port();
        let answers = Arc::new(AtomicBool::new(true));
        let still = Arc::clone(&answers);
        // Both threads end with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a link");
                let still = Arc::clone(&still);
                std::thread::spawn(move || {
                    while receive(&mut stream).is_some() {
                        let pong = packet(at, bus, Body::Pong(PingBody::default()));
                        if still.load(Relaxed) {
                            let _ = stream.write_all(&encode(&pong));
                        }
                    }
                });
            }
        });
        Node { at, bus, answers }
    }
}

/// A server that knows the three nodes, and the link of each to it.
struct Judged {
    server: Server,
    raw: Raw,
    id: NodeId,
    bus: u16,
    nodes: Vec<Node>,
    links: BTreeMap<u8, TcpStream>,
}

impl Judged {
    fn new(server: Server) -> Judged {
        let mut raw = server.raw();
        let id = raw.call("CLUSTER MYID").body();
        let id = NodeId::from_text(id.as_bytes()).expect("a name");
        check(&mut raw, "CLUSTER SET-CONFIG-EPOCH 3", "OK");
        check(&mut raw, "CLUSTER ADDSLOTSRANGE 0 5461", "OK");
        let line = raw.call("CLUSTER NODES").body();
        let (_, port) = line.split_once('@').expect("a port of the bus");
        let (port, _) = port.split_once(' ').expect("flags behind it");
        let port = port.split(',').next().expect("a number");
        let bus = port.parse().expect("a number");
        let nodes: Vec<Node> = PRIMARIES
            .into_iter()
            .chain([REPLICA])
            .map(Node::new)
            .collect();
        for node in &nodes {
            check(
                &mut raw,
                &format!("CLUSTER MEET 127.0.0.1 1 {}", node.bus),
                "OK",
            );
        }
        eventually("all nodes are known", || {
            let text = raw.call("CLUSTER NODES").body();
            let roles = text.matches("connected 5462-10923").count()
                + text.matches("connected 10924-16383").count()
                + text
                    .matches(&format!("slave {}", name(PRIMARIES[0])))
                    .count();
            roles == 3 && text.lines().count() == 4 && !text.contains("handshake")
        });
        eventually("the cluster is up", || {
            let info = raw.call("CLUSTER INFO").body();
            info.contains("cluster_state:ok")
        });
        for node in &nodes {
            node.answers.store(false, Relaxed);
        }
        Judged {
            server,
            raw,
            id,
            bus,
            nodes,
            links: BTreeMap::new(),
        }
    }

    /// Returns the port of a node's bus.
    fn bus_of(&self, at: u8) -> u16 {
        let mut nodes = self.nodes.iter();
        nodes.find(|node| node.at == at).map_or(2, |node| node.bus)
    }

    /// Returns the server's replies to a packet over the link of its sender, up to the reply to a ping after
    /// it.
    fn answers(&mut self, sender: u8, mut sent: Packet) -> Vec<String> {
        sent.header.ports.bus = self.bus_of(sender);
        self.name_in(&mut sent);
        let mut link = self.links.remove(&sender).unwrap_or_else(|| {
            let stream = TcpStream::connect(("127.0.0.1", self.bus)).expect("a link");
            let patience = Some(Duration::from_secs(60));
            stream.set_read_timeout(patience).expect("a time-out");
            stream
        });
        let mark = Packet {
            header: sent.header.clone(),
            body: Body::Ping(PingBody::default()),
        };
        let mut bytes = encode(&sent);
        let expected = match sent.body {
            Body::Ping(_) | Body::Meet(_) => 2,
            _ => 1,
        };
        bytes.extend(encode(&mark));
        link.write_all(&bytes).expect("the link is open");
        let mut heard = Vec::new();
        let mut pongs = 0;
        while pongs < expected {
            let Some(packet) = receive(&mut link) else {
                heard.push("closed".to_owned());
                return heard;
            };
            pongs += usize::from(matches!(packet.body, Body::Pong(_)));
            heard.push(self.shown(&packet));
        }
        self.links.insert(sender, link);
        heard
    }

    /// Replaces the server's [`NodeId`] in a packet with node 0's.
    fn name_in(&self, packet: &mut Packet) {
        let name_of = |id: &mut NodeId| {
            if *id == name(0) {
                *id = self.id;
            }
        };
        if let Some(primary) = &mut packet.header.primary {
            name_of(primary);
        }
        match &mut packet.body {
            Body::Ping(news) | Body::Pong(news) | Body::Meet(news) => {
                for gossip in &mut news.gossip {
                    gossip.ports.bus = (1..=3)
                        .find(|at| name(*at) == gossip.node)
                        .map_or(gossip.ports.bus, |at| self.bus_of(at));
                    name_of(&mut gossip.node);
                }
            }
            Body::Fail(node) | Body::Update { node, .. } => name_of(node),
            _ => {}
        }
    }

    /// Returns a packet without random and timed fields; redis-server reports the cluster's state a moment
    /// later.
    fn shown(&self, packet: &Packet) -> String {
        let header = &packet.header;
        let kind = format!("{:?}", packet.body);
        let kind = kind.split(['(', ' ']).next().unwrap_or_default();
        let body = match &packet.body {
            Body::Update {
                node,
                config_epoch,
                slots,
            } => format!("{} {config_epoch} {slots:?}", self.named(node.as_str())),
            Body::Fail(node) => self.named(node.as_str()),
            _ => String::new(),
        };
        let primary = header.primary.map(|primary| self.named(primary.as_str()));
        format!(
            "{kind} {body} of {}: {} {} {:?} {primary:?} {} {}",
            self.named(header.sender.as_str()),
            header.current_epoch,
            header.config_epoch,
            header.slots,
            header.flags,
            header.is_forced,
        )
    }

    /// Replaces the name of the server, which differs between both, and the ports of the nodes.
    fn named(&self, text: &str) -> String {
        let mut text = text.replace(self.id.as_str(), "MYSELF");
        for node in &self.nodes {
            text = text.replace(&format!("@{} ", node.bus), &format!("@{} ", node.at));
        }
        text
    }

    /// Returns the table of nodes and the state of the cluster, without times and the random names of nodes
    /// in handshake.
    fn state(&mut self) -> String {
        let table = self.raw.call("CLUSTER NODES").body();
        let mut lines: Vec<String> = Vec::new();
        for line in self.named(&table).lines() {
            let mut words: Vec<&str> = line.split(' ').collect();
            (words[4], words[5]) = ("-", "-");
            if words[2].contains("handshake") {
                (words[0], words[7]) = ("NEW", "-");
            }
            if words[2].contains("myself") {
                words[1] = "-";
            }
            lines.push(words.join(" "));
        }
        lines.sort();
        // redis-server begins two handshakes with a stranger that sends MEET twice at the same time.
        lines.dedup();
        let info = self.raw.call("CLUSTER INFO").body();
        for line in info.lines() {
            let field = line.split(':').next().unwrap_or_default();
            let counts_packets = field.starts_with("cluster_stats") || field.starts_with("total_");
            if !counts_packets && field != "cluster_known_nodes" {
                lines.push(line.to_owned());
            }
        }
        lines.join("\n")
    }
}

/// Returns one of the values, with a preference.
fn one_of<T: Clone>(random: &mut Random, of: &[T]) -> T {
    of[random.index(of.len())].clone()
}

fn news(random: &mut Random) -> PingBody {
    let gossip = (0..random.below(3)).map(|_| Gossip {
        node: name(one_of(random, &[0, 1, 2, 3, 3, 8])),
        ping_sent_s: 0,
        pong_received_s: random.below(3) as u32,
        ip: "127.0.0.1".to_owned(),
        ports: WirePorts {
            main: 1,
            other: 0,
            bus: 2,
        },
        flags: one_of(
            random,
            &[
                NodeFlags::PRIMARY,
                NodeFlags::PRIMARY,
                NodeFlags::REPLICA,
                NodeFlags::PRIMARY.or(NodeFlags::MAYBE_FAILED),
                NodeFlags::REPLICA.or(NodeFlags::FAILED),
                NodeFlags::PRIMARY.or(NodeFlags::NO_ADDRESS),
            ],
        ),
    });
    PingBody {
        gossip: gossip.collect(),
        extensions: Vec::new(),
    }
}

/// Returns a random packet, each of whose fields is as likely as not correct.
fn drawn(random: &mut Random) -> (u8, Packet) {
    let sender = one_of(random, &[1, 1, 2, 2, 3, 3, STRANGER]);
    let message = Message {
        channel: b"c".to_vec(),
        payload: b"p".to_vec(),
    };
    let node = name(one_of(random, &[0, 1, 2, 3, STRANGER]));
    let body = match random.below(14) {
        12 => Body::ManualFailoverStart,
        // A known node is not met again, and a stranger's address is that of the link.
        13 => Body::Meet(news(random)),
        0..3 => Body::Ping(news(random)),
        3..6 => Body::Pong(news(random)),
        6 => Body::Fail(node),
        7 => Body::Publish(message),
        8 => Body::VoteRequest,
        9 => Body::Vote,
        10 => Body::Update {
            node,
            config_epoch: random.below(9),
            slots: slots_of(one_of(random, &[1, 2])),
        },
        _ => Body::PublishShard(message),
    };
    let mut packet = packet(sender, 2, body);
    let header = &mut packet.header;
    if random.below(3) == 0 {
        header.current_epoch = random.below(9);
    }
    if random.below(3) == 0 {
        header.config_epoch = random.below(9);
    }
    if random.below(4) == 0 {
        header.slots = one_of(
            random,
            &[
                SlotSet::default(),
                slots_of(1),
                slots_of(2),
                (6000..9000).collect(),
                (4_000..4_500).collect(),
            ],
        );
    }
    if random.below(6) == 0 {
        // A node that claims to follow itself is a replica of itself for redis-server, and of no node here.
        let primaries = [1, 2, STRANGER].into_iter().filter(|at| *at != sender);
        let primaries: Vec<_> = primaries.map(|at| Some(name(at))).chain([None]).collect();
        header.primary = one_of(random, &primaries);
        header.flags = match header.primary {
            None => NodeFlags::PRIMARY,
            Some(_) => NodeFlags::REPLICA,
        };
    }
    header.is_up = random.below(8) > 0;
    header.is_forced = random.below(4) == 0;
    header.offset = random.below(3);
    (sender, packet)
}

fn start(round: u64) -> Option<[Judged; 2]> {
    let bus = || free_port().to_string();
    let directives = [
        ("cluster-enabled", "yes".to_owned()),
        // Nothing of a round depends on time.
        ("cluster-node-timeout", "600000".to_owned()),
        (
            "cluster-require-full-coverage",
            (if round.is_multiple_of(2) { "yes" } else { "no" }).to_owned(),
        ),
    ];
    let mut options = Options::shards(4).with("cluster-port", &bus());
    for (directive, value) in &directives {
        options = options.with(directive, value);
    }
    let theirs = directives.map(|(name, value)| (name.to_owned(), value));
    let mut theirs = theirs.to_vec();
    theirs.push(("cluster-port".to_owned(), bus()));
    let theirs = Oracle::start_with(&theirs)?;
    Some([Server::start(&options), theirs.0].map(Judged::new))
}

#[test]
fn packets_of_nodes_and_strangers_do_what_they_do_to_redis_server() {
    if is_stand_in() {
        return;
    }
    let told = std::env::var("BASALT_BUS_ROUNDS").ok();
    let rounds = told.map_or(0..ROUNDS, |text| {
        let (first, end) = text.split_once("..").unwrap_or(("0", &text));
        let number = |text: &str| text.parse().expect("BASALT_BUS_ROUNDS is N or FROM..TO");
        number(first)..number(end)
    });
    for round in rounds {
        let Some(mut judged) = start(round) else {
            return;
        };
        let random = &mut Random::new(round);
        let mut sent = Vec::new();
        for _ in 0..PACKETS {
            let (sender, packet) = drawn(random);
            sent.push(format!("{sender}: {packet:?}"));
            let [ours, theirs] = judged
                .each_mut()
                .map(|one| one.answers(sender, packet.clone()).join("\n"));
            let last = sent[sent.len().saturating_sub(3)..].join("\n");
            assert_eq!(
                ours,
                theirs,
                "round {round}, {}, answers to\n{last}",
                sent.len()
            );
            // redis-server carries out a packet's effects after the answer, some of them with its next tick.
            let [mut ours, mut theirs] = judged.each_mut().map(Judged::state);
            for _ in 0..TICKS_MAX {
                if ours == theirs {
                    break;
                }
                std::thread::sleep(TICK);
                [ours, theirs] = judged.each_mut().map(Judged::state);
            }
            assert_eq!(
                ours,
                theirs,
                "round {round}, {}, state behind\n{last}",
                sent.len()
            );
        }
        for one in &judged {
            assert!(
                !one.server.log().contains("ASSERTION"),
                "{}",
                one.server.log()
            );
        }
    }
}
