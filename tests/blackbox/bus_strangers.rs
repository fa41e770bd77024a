//! Unknown peers at the port of the cluster bus, which asks for no password: they occupy little memory, and
//! no node believes what they make up.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use basalt_commands::cluster::flags::NodeFlags;
use basalt_commands::cluster::node_id::NodeId;
use basalt_commands::cluster::packet::{Body, Gossip, Header, Packet, PingBody, WirePorts};
use basalt_commands::cluster::slot_set::SlotSet;
use basalt_commands::cluster::wire::encode::encode;

use crate::clustered::{id, options, unite};
use crate::support::{Server, eventually, info_number, is_stand_in, raise_descriptor_limit};

/// Offsets of a packet's length and its kind; the kind of a PUBLISH message.
const LENGTH: usize = 4;
const KIND: usize = 12;
const PUBLISH: u16 = 4;

/// Greatest number of bytes that unauthenticated links occupy together, and the overhead of each.
const HELD_MAX: f64 = (64 << 20) as f64;
const BESIDE_MAX: f64 = 4096.0;

/// Pings at once that are more bytes than a server reads at once, and bytes of a link that is silent afterwards.
const PINGS_TOGETHER: usize = 30;
const SILENT_BYTES_MAX: u64 = 24 << 10;

fn bus_port(server: &Server) -> u16 {
    let nodes = server.raw().call("CLUSTER NODES").body();
    let mut lines = nodes.lines();
    let myself = lines.find(|line| line.contains("myself")).expect("a line");
    let (_, behind) = myself.split_once('@').expect("a port");
    let port = behind.split([' ', ',']).next().expect("a port");
    port.parse().expect("a number")
}

pub(crate) fn packet(sender: NodeId, body: Body) -> Packet {
    Packet {
        header: Header {
            sender,
            ports: WirePorts {
                main: 1,
                other: 0,
                bus: 1,
            },
            ip: String::new(),
            current_epoch: 0,
            config_epoch: 0,
            offset: 0,
            slots: SlotSet::default(),
            primary: None,
            flags: NodeFlags::PRIMARY,
            is_up: true,
            is_paused: false,
            is_forced: false,
        },
        body,
    }
}

fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(("127.0.0.1", bus_port(server))).expect("it listens")
}

/// Returns a header in a node's name that announces a message of `bytes` bytes.
fn long_message(sender: NodeId, bytes: u32) -> Vec<u8> {
    let mut header = encode(&packet(sender, Body::VoteRequest));
    header[LENGTH..LENGTH + 4].copy_from_slice(&bytes.to_be_bytes());
    header[KIND..KIND + 2].copy_from_slice(&PUBLISH.to_be_bytes());
    header
}

/// Whether the server closes a connection, which it does not speak on.
fn is_closed(stream: &mut TcpStream) -> bool {
    let patience = Some(Duration::from_secs(10));
    stream.set_read_timeout(patience).expect("a socket");
    match stream.read(&mut [0; 64]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

fn name(server: &Server) -> NodeId {
    NodeId::from_text(id(server).as_bytes()).expect("a name")
}

#[test]
fn nodes_that_a_stranger_makes_up_are_not_known() {
    if is_stand_in() {
        return;
    }
    let (one, two) = (Server::start(&options()), Server::start(&options()));
    unite(&[&one, &two]);
    let mut stranger = connect(&one);
    for round in 0..5_u16 {
        let gossip = (0..3_600_u16).map(|at| {
            let mut name = [9; 20];
            name[..2].copy_from_slice(&at.to_be_bytes());
            name[2..4].copy_from_slice(&round.to_be_bytes());
            Gossip {
                node: NodeId::from_random(name),
                ping_sent_s: 0,
                pong_received_s: 0,
                ip: format!("127.9.{}.{}", at / 250, at % 250),
                ports: WirePorts {
                    main: 1,
                    other: 0,
                    bus: 1,
                },
                flags: NodeFlags::PRIMARY,
            }
        });
        let news = PingBody {
            gossip: gossip.collect(),
            extensions: Vec::new(),
        };
        let meet = packet(NodeId::from_random([8; 20]), Body::Meet(news));
        stranger.write_all(&encode(&meet)).expect("it is taken");
    }
    // Each is answered when it has been looked at.
    let mut answers = vec![0; 5 * 2256];
    stranger.read_exact(&mut answers).expect("five pongs");
    let known = |server: &Server| {
        let text = server.raw().call("CLUSTER INFO").body();
        let mut lines = text.lines();
        let known = lines.find_map(|line| line.strip_prefix("cluster_known_nodes:"));
        known.expect("a field").parse::<usize>().expect("a number")
    };
    assert!(known(&one) <= 3, "{}", known(&one));
    eventually("the stranger is forgotten", || known(&one) == 2);
    assert_eq!(known(&two), 2);
    one.raw().call("CLUSTER SAVECONFIG");
    let saved = fs::read_to_string(one.dir().join("nodes.conf")).expect("it is there");
    assert_eq!(saved.lines().count(), 3, "{saved}");
}

#[test]
fn long_messages_are_not_held_in_whatever_name_they_come() {
    if is_stand_in() {
        return;
    }
    let (one, two) = (Server::start(&options()), Server::start(&options()));
    unite(&[&one, &two]);
    for (sender, bytes) in [
        (NodeId::from_random([8; 20]), 1 << 20),
        (name(&one), 1 << 20),
        (name(&one), 149 << 20),
        (name(&two), 149 << 20),
    ] {
        let mut stranger = connect(&one);
        let sent = stranger.write_all(&long_message(sender, bytes));
        assert!(
            sent.is_err() || is_closed(&mut stranger),
            "{sender:?} {bytes}"
        );
    }
    // Messages that a node may publish are accepted, in pieces too.
    let mut subscriber = one.raw();
    subscriber.call("SUBSCRIBE c");
    let text = "m".repeat(20 << 20);
    let said = two
        .raw()
        .command(&[b"PUBLISH".as_slice(), b"c", text.as_bytes()]);
    assert_eq!(said.integer(), 0);
    let message = subscriber.read();
    assert_eq!(message.items()[2].bytes().len(), text.len());
}

#[test]
fn links_of_strangers_hold_a_bounded_number_of_bytes_together() {
    if is_stand_in() || raise_descriptor_limit() < 2_000 {
        return;
    }
    let server = Server::start(&options());
    let mut client = server.raw();
    let held = |client: &mut _| info_number(client, "memory", "mem_cluster_links");
    let mut strangers: Vec<TcpStream> = (0..300).map(|_| connect(&server)).collect();
    let begun = long_message(NodeId::from_random([8; 20]), 380 << 10);
    for stranger in &mut strangers {
        let rest = vec![0; (370 << 10) - begun.len()];
        // A link that was closed meanwhile accepts no more.
        let _ = stranger.write_all(&begun);
        let _ = stranger.write_all(&rest);
        let now = held(&mut client);
        assert!(now < HELD_MAX + 300.0 * BESIDE_MAX, "{now}");
    }
    eventually("what strangers hold is counted", || {
        held(&mut client) > HELD_MAX / 2.0
    });
    eventually("some are closed", || {
        server.log().contains("Freeing a cluster link")
    });
    drop(strangers);
    eventually("what they held is free", || held(&mut client) < 100_000.0);
}

#[test]
fn silent_links_cost_little() {
    if is_stand_in() || raise_descriptor_limit() < 2_000 {
        return;
    }
    let server = Server::start(&options());
    // Each has been busy for a moment: a buffer of its own would be full of its input.
    let ping = encode(&packet(
        NodeId::from_random([8; 20]),
        Body::Ping(PingBody::default()),
    ));
    let pings = ping.repeat(PINGS_TOGETHER);
    let answer = |stream: &mut TcpStream| {
        stream.write_all(&pings).expect("they are taken");
        let mut pongs = vec![0; PINGS_TOGETHER * ping.len()];
        stream.read_exact(&mut pongs).expect("pongs");
    };
    answer(&mut connect(&server));
    let before = server.resident_bytes();
    let mut strangers = Vec::new();
    for _ in 0..800 {
        let mut stranger = connect(&server);
        answer(&mut stranger);
        strangers.push(stranger);
    }
    let each = server.resident_bytes().saturating_sub(before) / strangers.len() as u64;
    assert!(each < SILENT_BYTES_MAX, "{each} bytes for each");
}
