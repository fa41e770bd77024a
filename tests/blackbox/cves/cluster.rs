//! Packets of the cluster bus whose parts reach beyond their end, and who may speak on it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use basalt_commands::cluster::node_id::NodeId;
use basalt_commands::cluster::packet::{Body, Extension, PingBody};
use basalt_commands::cluster::wire::encode::encode;

use super::is_well;
use crate::bus_strangers::packet;
use crate::clustered::{bus_port, id, info, options, text, unite};
use crate::support::{Server, check, free_port, is_stand_in};
use crate::tls::{Authority, NEW, connect};

/// Offsets of fields: the length, the number of gossip entries, that of extensions; and where extensions begin.
const LENGTH: usize = 4;
const GOSSIP: usize = 14;
const EXTENSIONS: usize = 2_214;
const HEADER_BYTES: usize = 2_256;

fn link(server: &Server) -> TcpStream {
    let bus: u16 = bus_port(server).parse().expect("a port");
    let stream = TcpStream::connect(("127.0.0.1", bus)).expect("it listens");
    let patience = Some(Duration::from_secs(60));
    stream.set_read_timeout(patience).expect("an option");
    stream
}

fn news(extensions: Vec<Extension>) -> PingBody {
    PingBody {
        gossip: Vec::new(),
        extensions,
    }
}

/// Returns a correct packet with a host name and a node's name, and its changed forms.
fn malformed(sender: NodeId, body: fn(PingBody) -> Body) -> Vec<Vec<u8>> {
    let extensions = vec![
        Extension::Hostname("aaaaaaa".to_owned()),
        Extension::HumanName("bbbbbbb".to_owned()),
    ];
    let good = encode(&packet(sender, body(news(extensions))));
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        all.push(bytes);
    };
    for bytes in [
        0,
        1,
        7,
        9,
        24,
        32,
        4_096,
        0x7fff_fff8,
        0xffff_fff8,
        u32::MAX,
    ] {
        with(&|packet| packet[HEADER_BYTES..][..4].copy_from_slice(&bytes.to_be_bytes()));
    }
    for count in [3_u16, 255, u16::MAX] {
        with(&|packet| packet[EXTENSIONS..][..2].copy_from_slice(&count.to_be_bytes()));
        with(&|packet| packet[GOSSIP..][..2].copy_from_slice(&count.to_be_bytes()));
    }
    // Names without a zero byte at their end, which reach up to the next part or the end of the packet.
    with(&|packet| packet[HEADER_BYTES + 8..][..8].fill(b'a'));
    with(&|packet| {
        let end = packet.len();
        packet[end - 8..].fill(b'b');
    });
    // A secret of Redis's cluster, which was believed from anybody (#15167), and a kind that nobody knows.
    for kind in [4_u16, 5, 99] {
        with(&|packet| packet[HEADER_BYTES + 4..][..2].copy_from_slice(&kind.to_be_bytes()));
    }
    for cut in [1, 8, 9, 16, 31] {
        with(&|packet| {
            packet.truncate(packet.len() - cut);
            let length = packet.len() as u32;
            packet[LENGTH..][..4].copy_from_slice(&length.to_be_bytes());
        });
    }
    all
}

/// An extension was read without a look at whether it lies within its packet (21863), or as a text without an end
/// (#15263).
#[test]
fn cve_2026_21863_and_redis_15263_extensions_lie_within_their_packet() {
    if is_stand_in() {
        return;
    }
    for threads in [1, 3] {
        let one = Server::start(&options().threads(threads));
        let two = Server::start(&options());
        unite(&[&one, &two]);
        let names = [
            NodeId::from_random([9; 20]),
            NodeId::from_text(id(&two).as_bytes()).expect("a name"),
        ];
        for sender in names {
            for body in [Body::Ping as fn(PingBody) -> Body, Body::Meet, Body::Pong] {
                for bytes in malformed(sender, body) {
                    let mut stream = link(&one);
                    let _ = stream.write_all(&bytes);
                    let _ = stream.write_all(&bytes);
                    stream.shutdown(std::net::Shutdown::Write).ok();
                    // The link ends when all has been looked at.
                    let _ = stream.read_to_end(&mut Vec::new());
                }
                is_well(&one);
            }
        }
        // A correct packet is still answered.
        let mut stream = link(&one);
        let meet = Body::Meet(news(vec![Extension::Hostname("host".to_owned())]));
        let meet = encode(&packet(NodeId::from_random([7; 20]), meet));
        stream.write_all(&meet).expect("it is taken");
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).expect("a pong");
        assert_eq!(&answer, b"RCmb");
        let nodes = text(&mut one.raw(), "CLUSTER NODES");
        assert!(nodes.contains(&id(&two)), "{nodes}");
        assert!(
            !nodes.contains("aaaaaaaa") && !nodes.contains("bbbbbbbb"),
            "{nodes}"
        );
        for secret in ["0".repeat(40), "\0".repeat(40)] {
            let reply = one.raw().command(&["AUTH", "internal connection", &secret]);
            assert!(reply.is_error(), "{}", reply.show());
        }
    }
}

/// Any host that reached the port of the bus could join. With `tls-cluster` a node has to show a certificate of the
/// authority, even where clients need none.
#[test]
fn redis_15722_with_tls_nobody_without_a_certificate_speaks_on_the_bus() {
    if is_stand_in() {
        return;
    }
    let (authority, other) = (Authority::new(), Authority::new());
    for threads in ["1", "3"] {
        let options = authority
            .options(free_port())
            .with("threads", threads)
            .with("cluster-enabled", "yes")
            .with("cluster-port", &free_port().to_string())
            .with("tls-auth-clients", "no")
            .with("tls-cluster", "yes");
        let server = Server::start(&options);
        let stranger = NodeId::from_random([9; 20]);
        let meet = encode(&packet(stranger, Body::Meet(news(Vec::new()))));
        let mut plain = link(&server);
        let _ = plain.write_all(&meet);
        let mut answer = Vec::new();
        let _ = plain.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"RCmb"), "{answer:?}");
        let bus: u16 = bus_port(&server).parse().expect("a port");
        let mut foreign = authority.client(None, NEW);
        for with_certificate in [false, true] {
            if with_certificate {
                let certificate = other.client(Some("client"), NEW);
                foreign.client_auth_cert_resolver = certificate.client_auth_cert_resolver;
            }
            let mut channel = connect(bus, foreign.clone());
            let _ = channel.write_all(&meet);
            let mut answer = [0; 4];
            assert!(channel.read_exact(&mut answer).is_err(), "{answer:?}");
        }
        assert_eq!(info(&mut server.raw(), "cluster_known_nodes"), "1");
        // A stranger with a certificate of the authority is taken for a node.
        let mut channel = connect(bus, authority.client(Some("client"), NEW));
        channel.write_all(&meet).expect("it is taken");
        let mut answer = [0; 4];
        channel.read_exact(&mut answer).expect("a pong");
        assert_eq!(&answer, b"RCmb");
        check(&mut server.raw(), "PING", "PONG");
    }
}
