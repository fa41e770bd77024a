//! Packets are decoded as they were encoded, and inconsistent ones are refused.

use proptest::prelude::*;

use super::decode::{Refused, decode};
use super::encode::encode;
use super::reader::{ClusterPacketReader, PacketStreamError};
use crate::cluster::assembly::tests::notices;
use crate::cluster::flags::NodeFlags;
use crate::cluster::kind::Kind;
use crate::cluster::node_id::NodeId;
use crate::cluster::packet::{
    Body, Extension, Gossip, Header, Message, Packet, PingBody, WirePorts,
};
use crate::cluster::slot_set::SlotSet;

fn name(of: u8) -> NodeId {
    NodeId::from_random([of; 20])
}

fn plain(body: Body) -> Packet {
    Packet {
        header: Header {
            sender: name(0xAB),
            ports: WirePorts {
                main: 7000,
                other: 0,
                bus: 17000,
            },
            ip: "10.0.0.1".to_owned(),
            current_epoch: 5,
            config_epoch: 4,
            offset: 77,
            slots: [0, 9, 16383].into_iter().collect(),
            primary: None,
            flags: NodeFlags::MYSELF.or(NodeFlags::PRIMARY),
            is_up: true,
            is_paused: false,
            is_forced: false,
        },
        body,
    }
}

fn gossip() -> Gossip {
    Gossip {
        node: name(0xCD),
        ping_sent_s: 1,
        pong_received_s: 2,
        ip: "::1".to_owned(),
        ports: WirePorts {
            main: 1,
            other: 2,
            bus: 3,
        },
        flags: NodeFlags::REPLICA,
    }
}

fn ping() -> Packet {
    let extensions = vec![
        Extension::Hostname("a.example".to_owned()),
        Extension::ShardId(name(7)),
    ];
    let mut packet = plain(Body::Ping(PingBody {
        gossip: vec![gossip()],
        extensions,
    }));
    packet.header.flags.set(NodeFlags::EXTENSIONS);
    packet
}

#[test]
fn fields_stand_where_redis_has_them() {
    let bytes = encode(&ping());
    assert_eq!(&bytes[..4], b"RCmb");
    assert_eq!(bytes.len(), 2256 + 104 + (8 + 16) + (8 + 40));
    assert_eq!(bytes[4..8], (bytes.len() as u32).to_be_bytes());
    assert_eq!(bytes[8..16], [0, 1, 0x1B, 0x58, 0, 0, 0, 1]);
    assert_eq!(
        bytes[16..40],
        [
            0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 77
        ]
    );
    assert_eq!(&bytes[40..80], name(0xAB).as_bytes());
    assert_eq!((bytes[80], bytes[81], bytes[80 + 2047]), (1, 2, 0x80));
    assert_eq!(bytes[2128..2168], [0; 40]);
    assert_eq!(&bytes[2168..2177], b"10.0.0.1\0");
    assert_eq!(bytes[2214..2216], [0, 2]);
    assert_eq!(bytes[2246..2256], [0, 0, 0x42, 0x68, 0, 17, 0, 4, 0, 0]);
    let entry = &bytes[2256..2360];
    assert_eq!(&entry[..40], name(0xCD).as_bytes());
    assert_eq!(entry[40..48], [0, 0, 0, 1, 0, 0, 0, 2]);
    assert_eq!(&entry[48..52], b"::1\0");
    assert_eq!(entry[94..104], [0, 1, 0, 3, 0, 2, 0, 2, 0, 0]);
    assert_eq!(bytes[2360..2368], [0, 0, 0, 24, 0, 0, 0, 0]);
    assert_eq!(&bytes[2368..2384], b"a.example\0\0\0\0\0\0\0");
    assert_eq!(bytes[2384..2392], [0, 0, 0, 48, 0, 3, 0, 0]);
    assert_eq!(&bytes[2392..], name(7).as_bytes());
    assert_eq!(decode(&bytes), Ok(ping()));
}

#[test]
fn flags_of_a_message_are_three_bits() {
    let mut packet = plain(Body::Vote);
    packet.header.is_paused = true;
    assert_eq!(encode(&packet)[2253], 1);
    packet.header.is_forced = true;
    assert_eq!(encode(&packet)[2253], 3);
    packet.header.flags.set(NodeFlags::EXTENSIONS);
    packet.header.is_up = false;
    let bytes = encode(&packet);
    assert_eq!(
        bytes[2250..2254],
        [0, 17, 1, 7],
        "the flag of extensions is no flag of nodes on the wire"
    );
    assert_eq!(decode(&bytes), Ok(packet));
}

/// Overwrites a field of a packet, such as a length or a count, with `value`.
fn with(mut bytes: Vec<u8>, at: usize, value: &[u8]) -> Vec<u8> {
    bytes[at..at + value.len()].copy_from_slice(value);
    bytes
}

fn resized(mut bytes: Vec<u8>, len: usize) -> Vec<u8> {
    bytes.resize(len, 0);
    with(bytes, 4, &(len as u32).to_be_bytes())
}

#[test]
fn lengths_that_do_not_add_up_are_refused() {
    let length = |bytes: Vec<u8>, expected: u64| {
        let (kind, length) = (
            Kind::from_number(u16::from(bytes[13])).expect("it has one"),
            bytes.len() as u64,
        );
        assert_eq!(
            decode(&bytes),
            Err(Refused::Length {
                kind,
                length,
                expected
            })
        );
    };
    let all = encode(&ping());
    length(with(all.clone(), 14, &[0, 10]), 2256 + 104 * 10);
    assert_eq!(decode(&all[..2255]), Err(Refused::Signature));
    assert_eq!(decode(&with(all.clone(), 0, b"X")), Err(Refused::Signature));
    assert_eq!(
        decode(&with(all.clone(), 8, &[0, 2])),
        Err(Refused::Version(2))
    );
    assert_eq!(
        decode(&with(all.clone(), 12, &[0x80, 0])),
        Err(Refused::Kind(0x8000))
    );
}

/// Returns a body of `len` bytes of zeros after the header of a kind.
fn body(kind: Kind, len: usize) -> Vec<u8> {
    let mut packet = plain(Body::Vote);
    packet.header.flags.set(NodeFlags::EXTENSIONS);
    let bytes = resized(encode(&packet), 2256 + len);
    with(bytes, 12, &kind.number().to_be_bytes())
}

#[test]
fn each_kind_has_its_length() {
    use Kind::{Fail, Meet, Module, Publish, PublishShard, Update, Vote, VoteRequest};
    let lengths = [
        (Fail, 40usize),
        (Publish, 8),
        (PublishShard, 8),
        (VoteRequest, 0),
        (Vote, 0),
        (Kind::ManualFailoverStart, 0),
        (Update, 2096),
        (Module, 13),
        (Meet, 0),
    ];
    for (kind, len) in lengths {
        for wrong in [len + 1, len + 8].into_iter().chain(len.checked_sub(1)) {
            let expected = Err(Refused::Length {
                kind,
                length: 2256 + wrong as u64,
                expected: 2256 + len as u64,
            });
            assert_eq!(decode(&body(kind, wrong)), expected, "{wrong}");
        }
    }
    // A length that does not match the number of received bytes.
    let lying = with(body(Vote, 0), 4, &[0, 0, 9, 0]);
    assert!(matches!(
        decode(&lying),
        Err(Refused::Length { length: 2304, .. })
    ));
    // Inner lengths whose sum overflows 32 bits.
    let published = with(body(Publish, 8), 2256, &[0xFF; 8]);
    let expected = 2264 + 2 * u64::from(u32::MAX);
    assert!(
        matches!(decode(&published), Err(Refused::Length { expected: e, .. }) if e == expected)
    );
    let module = with(body(Module, 13), 2264, &[0xFF; 4]);
    assert!(matches!(decode(&module), Err(Refused::Length { .. })));
}

#[test]
fn extensions_are_multiples_of_eight_within_the_packet() {
    let ping = |length: [u8; 4], count: u8| {
        let bytes = with(body(Kind::Ping, 16), 2214, &[0, count]);
        with(bytes, 2256, &length)
    };
    let kind = Kind::Ping;
    let refused = [
        ([0, 0, 0, 12], Refused::Padding { kind, length: 12 }),
        (
            [0, 0, 0, 24],
            Refused::Extension {
                kind,
                length: 24,
                left: 16,
            },
        ),
        (
            [0, 0, 0, 0],
            Refused::Extension {
                kind,
                length: 0,
                left: 16,
            },
        ),
        // Truncated to sixteen bits, this count would be 16.
        (
            [0, 1, 0, 16],
            Refused::Extension {
                kind,
                length: 65552,
                left: 16,
            },
        ),
    ];
    for (length, why) in refused {
        assert_eq!(decode(&ping(length, 1)), Err(why));
    }
    assert_eq!(
        decode(&ping([0, 0, 0, 16], 2)),
        Err(Refused::Extension {
            kind,
            length: 0,
            left: 0
        })
    );
    // An empty host name, and an extension of an unknown kind, which is skipped.
    let news = |bytes: &[u8]| match decode(bytes).expect("it adds up").body {
        Body::Ping(news) => news.extensions,
        other => panic!("{other:?}"),
    };
    let good = ping([0, 0, 0, 16], 1);
    assert_eq!(news(&good), [Extension::Hostname(String::new())]);
    for unknown in [4, 5, 0xFF] {
        assert_eq!(news(&with(good.clone(), 2260, &[0, unknown])), []);
    }
    // The extensions are too short for a shard ID, and for a forgotten node.
    for short in [2, 3] {
        assert_eq!(news(&with(good.clone(), 2260, &[0, short])), []);
    }
    // Texts that nodes.conf would misread.
    for text in [
        *b"a b\0\0\0\0\0",
        *b"a\nb\0\0\0\0\0",
        *b"\xFF\xFE\0\0\0\0\0\0",
        *b"a,b=c\0\0\0",
    ] {
        for kind in [0, 1] {
            let bytes = with(with(good.clone(), 2260, &[0, kind]), 2264, &text);
            assert_eq!(news(&bytes), [], "{text:?}");
        }
    }
    // Without the flag for extensions nothing may follow.
    let unflagged = with(good, 2253, &[0]);
    assert_eq!(
        decode(&unflagged),
        Err(Refused::Length {
            kind,
            length: 2272,
            expected: 2256
        })
    );
}

#[test]
fn names_and_addresses_are_what_they_should_be() {
    let all = encode(&ping());
    let refused = [
        (40, Refused::Name("the sender")),
        (2128, Refused::Name("the sender's primary")),
        (2168, Refused::Address),
    ];
    for (at, why) in refused {
        assert_eq!(decode(&with(all.clone(), at, b"\n")), Err(why));
        assert_eq!(decode(&with(all.clone(), at, b"\xFF")), Err(why));
    }
    let fail = encode(&plain(Body::Fail(name(1))));
    assert_eq!(
        decode(&with(fail, 2256, b"Z")),
        Err(Refused::Name("the failing node"))
    );
    let update = body(Kind::Update, 2096);
    assert_eq!(decode(&update), Err(Refused::Name("the slots' owner")));
    // Invalid gossip entries about other nodes are skipped instead.
    for at in [2256, 2256 + 48] {
        let packet = decode(&with(all.clone(), at, b" ")).expect("the rest is good");
        let Body::Ping(news) = packet.body else {
            panic!("it was a ping");
        };
        assert_eq!((news.gossip.len(), news.extensions.len()), (0, 2));
    }
    // An address of 46 bytes without a zero loses the last one.
    let long = with(all, 2168, &[b'a'; 46]);
    assert_eq!(
        decode(&long).map(|packet| packet.header.ip),
        Ok("a".repeat(45))
    );
}

fn read(
    pieces: &[&[u8]],
    is_known: bool,
) -> (
    Vec<Result<Packet, Refused>>,
    Result<(), PacketStreamError>,
    ClusterPacketReader,
) {
    let (mut reader, mut found) = (ClusterPacketReader::default(), Vec::new());
    for piece in pieces {
        let fed = reader.feed(piece, |_| is_known, |packet| found.push(packet));
        if fed.is_err() {
            return (found, fed, reader);
        }
    }
    (found, Ok(()), reader)
}

#[test]
fn packets_come_in_any_pieces() {
    let packets = [
        ping(),
        plain(Body::Vote),
        plain(Body::Fail(name(3))),
        ping(),
    ];
    let mut stream: Vec<u8> = packets.iter().flat_map(encode).collect();
    // A packet of an unknown, future kind comes before the others.
    stream.splice(0..0, with(body(Kind::Vote, 9000), 12, &[0, 42]));
    let mut expected = vec![Err(Refused::Kind(42))];
    expected.extend(packets.map(Ok));
    for piece in [1, 7, 8, 13, 14, 2255, 2256, 2257, 4000, stream.len()] {
        let pieces: Vec<&[u8]> = stream.chunks(piece).collect();
        let (found, fed, reader) = read(&pieces, false);
        assert_eq!(
            (found, fed),
            (expected.clone(), Ok(())),
            "pieces of {piece}"
        );
        assert!(reader.memory_bytes() <= 64 << 10);
    }
}

#[test]
fn a_stream_that_is_none_ends() {
    let head = |length: u32, kind: u16| {
        let bytes = with(body(Kind::Vote, 0), 4, &length.to_be_bytes());
        with(bytes, 12, &kind.to_be_bytes())
    };
    assert_eq!(
        read(&[b"GET / HTTP/1.1"], true).1,
        Err(PacketStreamError::Signature)
    );
    assert_eq!(
        read(&[&head(2255, 0)], true).1,
        Err(PacketStreamError::Short(2255))
    );
    // Valkey's short header is for peers that request it.
    assert_eq!(
        read(&[&head(16, 0x8004)], true).1,
        Err(PacketStreamError::Short(16))
    );
    for length in [(16 << 20) + 1, u32::MAX] {
        assert_eq!(
            read(&[&head(length, 0)], true).1,
            Err(PacketStreamError::Long(length))
        );
        assert_eq!(
            read(&[&head(length, 4)], false).1,
            Err(PacketStreamError::Long(length))
        );
    }
    assert_eq!(
        read(&[&head(u32::MAX, 4)], true).1,
        Err(PacketStreamError::Long(u32::MAX))
    );
    let of_stranger = (384 << 10) + 1;
    for kind in [0, 4] {
        let refused = Err(PacketStreamError::Long(of_stranger));
        assert_eq!(read(&[&head(of_stranger, kind)], false).1, refused);
        assert_eq!(read(&[&head(of_stranger, kind)], true).1, Ok(()));
    }
    let (found, fed, reader) = read(&[&head(512 << 20, 4)], true);
    assert_eq!((found.len(), fed), (0, Ok(())));
    assert!(reader.memory_bytes() < 8192, "a claim takes no memory");
}

#[test]
fn a_long_message_of_a_known_node_comes_whole() {
    let packet = plain(Body::Publish(Message {
        channel: b"news".to_vec(),
        payload: vec![9; 17 << 20],
    }));
    let bytes = encode(&packet);
    let pieces: Vec<&[u8]> = bytes.chunks(60_000).collect();
    let (found, fed, reader) = read(&pieces, true);
    assert_eq!(fed, Ok(()));
    assert!(found == [Ok(packet)]);
    assert!(reader.memory_bytes() <= 64 << 10);
}

fn names() -> impl Strategy<Value = NodeId> {
    any::<[u8; 20]>().prop_map(NodeId::from_random)
}

fn addresses() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[0-9a-f.:]{1,45}"]
}

fn ports() -> impl Strategy<Value = WirePorts> {
    any::<(u16, u16, u16)>().prop_map(|(main, other, bus)| WirePorts { main, other, bus })
}

fn slot_sets() -> impl Strategy<Value = SlotSet> {
    prop::collection::vec(0..16384u16, 0..40).prop_map(|slots| slots.into_iter().collect())
}

fn all_news() -> impl Strategy<Value = PingBody> {
    let entry = (
        names(),
        any::<(u32, u32)>(),
        addresses(),
        ports(),
        any::<u16>(),
    );
    let gossip =
        entry.prop_map(
            |(node, (ping_sent_s, pong_received_s), ip, ports, flags)| Gossip {
                node,
                ping_sent_s,
                pong_received_s,
                ip,
                ports,
                flags: NodeFlags(flags),
            },
        );
    let extension = prop_oneof![
        "[a-z0-9.-]{0,40}".prop_map(Extension::Hostname),
        "[a-zé/-]{0,40}".prop_map(Extension::HumanName),
        names().prop_map(Extension::ShardId),
        "[a-zé/-]{0,40}".prop_map(Extension::Zone),
        notices().prop_map(|notice| Extension::Assembly(Box::new(notice))),
        (names(), 0..1u64 << 40).prop_map(|(node, ttl_s)| Extension::Forgotten {
            node,
            ttl_ms: ttl_s * 1000
        }),
    ];
    let lists = (
        prop::collection::vec(gossip, 0..5),
        prop::collection::vec(extension, 0..5),
    );
    lists.prop_map(|(gossip, extensions)| PingBody { gossip, extensions })
}

fn bodies() -> impl Strategy<Value = Body> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..50);
    let message = || (bytes(), bytes()).prop_map(|(channel, payload)| Message { channel, payload });
    prop_oneof![
        all_news().prop_map(Body::Ping),
        all_news().prop_map(Body::Pong),
        all_news().prop_map(Body::Meet),
        names().prop_map(Body::Fail),
        message().prop_map(Body::Publish),
        message().prop_map(Body::PublishShard),
        Just(Body::VoteRequest),
        Just(Body::Vote),
        Just(Body::ManualFailoverStart),
        Just(Body::Module),
        (names(), any::<u64>(), slot_sets()).prop_map(|(node, config_epoch, slots)| Body::Update {
            node,
            config_epoch,
            slots
        }),
    ]
}

fn packets() -> impl Strategy<Value = Packet> {
    let numbers = any::<(u64, u64, u64, u16, bool, bool, bool)>();
    let parts = (
        names(),
        prop::option::of(names()),
        ports(),
        addresses(),
        slot_sets(),
        numbers,
        bodies(),
    );
    parts.prop_map(|(sender, primary, ports, ip, slots, numbers, body)| {
        let (current_epoch, config_epoch, offset, flags, is_up, is_paused, is_forced) = numbers;
        let mut flags = NodeFlags(flags);
        if let Body::Ping(news) | Body::Pong(news) | Body::Meet(news) = &body
            && !news.extensions.is_empty()
        {
            flags.set(NodeFlags::EXTENSIONS);
        }
        let header = Header {
            sender,
            ports,
            ip,
            current_epoch,
            config_epoch,
            offset,
            slots,
            primary,
            flags,
            is_up,
            is_paused,
            is_forced,
        };
        Packet { header, body }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn packets_come_back(packet in packets()) {
        let bytes = encode(&packet);
        prop_assert_eq!(decode(&bytes), Ok(packet));
    }

    #[test]
    fn tampered_packets_are_refused_or_read(packet in packets(), at in 0..4000usize, byte: u8) {
        let mut bytes = encode(&packet);
        let len = bytes.len();
        bytes[at % len] = byte;
        if let Ok(read) = decode(&bytes) {
            let again = encode(&read);
            prop_assert_eq!(decode(&again), Ok(read));
        }
    }
}
