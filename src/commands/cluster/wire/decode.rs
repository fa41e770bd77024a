//! Decoding of packets: from the bytes of one packet to the value.

use super::layout::{
    ADDRESS, ADDRESS_BYTES, ASSEMBLY, BUS_PORT, CONFIG_EPOCH, COUNT, CURRENT_EPOCH, EXTENDED,
    EXTENSION_HEAD_BYTES, EXTENSIONS, FLAGS, FORCED, FORGOTTEN, GOSSIP_ADDRESS, GOSSIP_BUS_PORT,
    GOSSIP_BYTES, GOSSIP_FLAGS, GOSSIP_MAIN_PORT, GOSSIP_OTHER_PORT, GOSSIP_PING_SENT,
    GOSSIP_PONG_RECEIVED, HEADER_BYTES, HOSTNAME, HUMAN_NAME, KIND, LENGTH, MAIN_PORT,
    MESSAGE_FLAGS, MESSAGE_HEAD_BYTES, MODULE_HEAD_BYTES, OFFSET, OTHER_PORT, PAUSED, PRIMARY,
    PROTOCOL, SENDER, SHARD_ID, SIGNATURE, SLOTS, STATE, UPDATE_BYTES, VERSION, ZONE,
};
use crate::cluster::assembly::Notice;
use crate::cluster::flags::NodeFlags;
use crate::cluster::kind::Kind;
use crate::cluster::node_id::{NODE_ID_BYTES, NodeId};
use crate::cluster::packet::{
    Body, Extension, Gossip, Header, Message, Packet, PingBody, WirePorts,
};
use crate::cluster::slot_set::{SLOT_SET_BYTES, SlotSet};
use crate::cluster::text::{is_address, is_hostname, is_human_name};

/// The reason why a packet is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The bytes do not begin like a packet.
    #[error("not a cluster bus packet")]
    Signature,
    /// The protocol version is unknown.
    #[error("unknown protocol version {0}")]
    Version(u16),
    /// The kind of message is unknown to this server.
    #[error("unknown message type {0}")]
    Kind(u16),
    /// The length does not match the contents.
    #[error("a {} of {length} bytes should have {expected}", kind.name())]
    Length {
        /// Kind of the packet.
        kind: Kind,
        /// Actual length in bytes.
        length: u64,
        /// Expected length in bytes.
        expected: u64,
    },
    /// An extension's length is not a multiple of eight.
    #[error("a {} has an extension of {length} bytes, not a multiple of 8", kind.name())]
    Padding {
        /// Kind of the packet.
        kind: Kind,
        /// Bytes of the extension.
        length: u32,
    },
    /// An extension is shorter than its head, or longer than the rest of the packet.
    #[error("a {} has an extension of {length} bytes, but only {left} bytes are left", kind.name())]
    Extension {
        /// Kind of the packet.
        kind: Kind,
        /// Bytes of the extension.
        length: u32,
        /// Bytes from the extension's start to the end of the packet.
        left: usize,
    },
    /// A node's ID contains invalid bytes.
    #[error("the name of {0} is not a node name")]
    Name(&'static str),
    /// The address that the sender announces is invalid.
    #[error("the announced address is invalid")]
    Address,
}

/// Decodes a packet. The error is the defect of bytes that are not a valid packet.
pub fn decode(bytes: &[u8]) -> Result<Packet, Refused> {
    let Some((head, rest)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(Refused::Signature);
    };
    if !head.starts_with(SIGNATURE) {
        return Err(Refused::Signature);
    }
    if number::<2>(head, PROTOCOL) != u64::from(VERSION) {
        return Err(Refused::Version(number::<2>(head, PROTOCOL) as u16));
    }
    let kind = number::<2>(head, KIND) as u16;
    let kind = Kind::from_number(kind).ok_or(Refused::Kind(kind))?;
    expect(kind, number::<4>(head, LENGTH), bytes.len() as u64)?;
    let is_extended = head[MESSAGE_FLAGS] & EXTENDED != 0;
    let news = |rest| {
        let extensions = if is_extended {
            number::<2>(head, EXTENSIONS)
        } else {
            0
        };
        news(kind, number::<2>(head, COUNT) as usize, extensions, rest)
    };
    let length = bytes.len() as u64;
    let of = |body_bytes: u64| expect(kind, length, HEADER_BYTES as u64 + body_bytes);
    let body = match kind {
        Kind::Ping => Body::Ping(news(rest)?),
        Kind::Pong => Body::Pong(news(rest)?),
        Kind::Meet => Body::Meet(news(rest)?),
        Kind::Fail => {
            of(NODE_ID_BYTES as u64)?;
            Body::Fail(node_id(rest, 0, "the failing node")?)
        }
        Kind::Publish => Body::Publish(message(kind, rest)?),
        Kind::PublishShard => Body::PublishShard(message(kind, rest)?),
        Kind::VoteRequest | Kind::Vote | Kind::ManualFailoverStart => {
            of(0)?;
            match kind {
                Kind::VoteRequest => Body::VoteRequest,
                Kind::Vote => Body::Vote,
                _ => Body::ManualFailoverStart,
            }
        }
        Kind::Update => {
            of(UPDATE_BYTES as u64)?;
            Body::Update {
                config_epoch: number::<8>(rest, 0),
                node: node_id(rest, 8, "the slots' owner")?,
                slots: slots(rest, 8 + NODE_ID_BYTES),
            }
        }
        Kind::Module => {
            if rest.len() < MODULE_HEAD_BYTES {
                of(MODULE_HEAD_BYTES as u64)?;
            }
            of(MODULE_HEAD_BYTES as u64 + number::<4>(rest, 8))?;
            Body::Module
        }
    };
    Ok(Packet {
        header: header(head)?,
        body,
    })
}

fn expect(kind: Kind, length: u64, expected: u64) -> Result<(), Refused> {
    if length == expected {
        return Ok(());
    }
    Err(Refused::Length {
        kind,
        length,
        expected,
    })
}

/// Decodes a big-endian number of `N` bytes, at most eight, at an offset, which must be in range.
fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let digits = &bytes[at..at + N];
    digits
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn node_id(bytes: &[u8], at: usize, whose: &'static str) -> Result<NodeId, Refused> {
    NodeId::from_text(&bytes[at..at + NODE_ID_BYTES]).ok_or(Refused::Name(whose))
}

fn slots(bytes: &[u8], at: usize) -> SlotSet {
    let bits = bytes[at..at + SLOT_SET_BYTES].try_into();
    SlotSet::from_bytes(bits.expect("the slice is as long"))
}

/// Returns the text before the first zero byte; all but the last byte if none of these is zero.
fn text(bytes: &[u8]) -> &[u8] {
    let bytes = &bytes[..bytes.len().saturating_sub(1)];
    let end = bytes.iter().position(|byte| *byte == 0);
    &bytes[..end.unwrap_or(bytes.len())]
}

/// Decodes an address, which may be empty; None if it is invalid.
fn address(bytes: &[u8], at: usize) -> Option<String> {
    let found = std::str::from_utf8(text(&bytes[at..at + ADDRESS_BYTES])).ok()?;
    (found.is_empty() || is_address(found)).then(|| found.to_owned())
}

fn header(head: &[u8]) -> Result<Header, Refused> {
    let primary = &head[PRIMARY..PRIMARY + NODE_ID_BYTES];
    let mut flags = NodeFlags(number::<2>(head, FLAGS) as u16);
    let message_flags = head[MESSAGE_FLAGS];
    if message_flags & EXTENDED != 0 {
        flags.set(NodeFlags::EXTENSIONS);
    }
    Ok(Header {
        sender: node_id(head, SENDER, "the sender")?,
        ports: WirePorts {
            main: number::<2>(head, MAIN_PORT) as u16,
            other: number::<2>(head, OTHER_PORT) as u16,
            bus: number::<2>(head, BUS_PORT) as u16,
        },
        ip: address(head, ADDRESS).ok_or(Refused::Address)?,
        current_epoch: number::<8>(head, CURRENT_EPOCH),
        config_epoch: number::<8>(head, CONFIG_EPOCH),
        offset: number::<8>(head, OFFSET),
        slots: slots(head, SLOTS),
        primary: if primary.iter().all(|byte| *byte == 0) {
            None
        } else {
            Some(node_id(head, PRIMARY, "the sender's primary")?)
        },
        flags,
        is_up: head[STATE] == 0,
        is_paused: message_flags & PAUSED != 0,
        is_forced: message_flags & FORCED != 0,
    })
}

fn news(kind: Kind, count: usize, extensions: u64, rest: &[u8]) -> Result<PingBody, Refused> {
    let length = (HEADER_BYTES + rest.len()) as u64;
    let Some((entries, mut rest)) = rest.split_at_checked(count * GOSSIP_BYTES) else {
        let expected = (HEADER_BYTES + count * GOSSIP_BYTES) as u64;
        return Err(Refused::Length {
            kind,
            length,
            expected,
        });
    };
    let (entries, _) = entries.as_chunks::<GOSSIP_BYTES>();
    let mut news = PingBody {
        gossip: entries.iter().filter_map(gossip).collect(),
        extensions: Vec::new(),
    };
    for _ in 0..extensions {
        let left = rest.len();
        let length = match rest.len() {
            ..EXTENSION_HEAD_BYTES => 0,
            _ => number::<4>(rest, 0) as u32,
        };
        if !length.is_multiple_of(8) {
            return Err(Refused::Padding { kind, length });
        }
        let bytes = length as usize;
        if !(EXTENSION_HEAD_BYTES..=left).contains(&bytes) {
            return Err(Refused::Extension { kind, length, left });
        }
        let (this, next) = rest.split_at(bytes);
        let about = &this[EXTENSION_HEAD_BYTES..];
        news.extensions
            .extend(extension(number::<2>(this, 4) as u16, about));
        rest = next;
    }
    expect(kind, length, length - rest.len() as u64)?;
    Ok(news)
}

fn gossip(entry: &[u8; GOSSIP_BYTES]) -> Option<Gossip> {
    Some(Gossip {
        node: NodeId::from_text(&entry[..NODE_ID_BYTES])?,
        ping_sent_s: number::<4>(entry, GOSSIP_PING_SENT) as u32,
        pong_received_s: number::<4>(entry, GOSSIP_PONG_RECEIVED) as u32,
        ip: address(entry, GOSSIP_ADDRESS)?,
        ports: WirePorts {
            main: number::<2>(entry, GOSSIP_MAIN_PORT) as u16,
            other: number::<2>(entry, GOSSIP_OTHER_PORT) as u16,
            bus: number::<2>(entry, GOSSIP_BUS_PORT) as u16,
        },
        flags: NodeFlags(number::<2>(entry, GOSSIP_FLAGS) as u16),
    })
}

/// Decodes an extension; None if its kind is unknown, or it is too short for its kind, or its content is invalid.
fn extension(kind: u16, about: &[u8]) -> Option<Extension> {
    let text = || std::str::from_utf8(text(about)).ok();
    match kind {
        HOSTNAME => {
            let name = text().filter(|name| is_hostname(name))?;
            Some(Extension::Hostname(name.to_owned()))
        }
        HUMAN_NAME => {
            let name = text().filter(|name| is_human_name(name))?;
            Some(Extension::HumanName(name.to_owned()))
        }
        FORGOTTEN if about.len() >= NODE_ID_BYTES + 8 => Some(Extension::Forgotten {
            node: NodeId::from_text(&about[..NODE_ID_BYTES])?,
            ttl_ms: number::<8>(about, NODE_ID_BYTES).saturating_mul(1000),
        }),
        ZONE => {
            let zone = text().filter(|zone| is_human_name(zone))?;
            Some(Extension::Zone(zone.to_owned()))
        }
        ASSEMBLY => Notice::decode(about).map(|notice| Extension::Assembly(Box::new(notice))),
        SHARD_ID if about.len() >= NODE_ID_BYTES => {
            NodeId::from_text(&about[..NODE_ID_BYTES]).map(Extension::ShardId)
        }
        _ => None,
    }
}

fn message(kind: Kind, rest: &[u8]) -> Result<Message, Refused> {
    let length = (HEADER_BYTES + rest.len()) as u64;
    let expected = (HEADER_BYTES + MESSAGE_HEAD_BYTES) as u64;
    let Some((head, both)) = rest.split_at_checked(MESSAGE_HEAD_BYTES) else {
        return Err(Refused::Length {
            kind,
            length,
            expected,
        });
    };
    let (channel, payload) = (number::<4>(head, 0), number::<4>(head, 4));
    expect(kind, length, expected + channel + payload)?;
    let (channel, payload) = both.split_at(channel as usize);
    Ok(Message {
        channel: channel.to_vec(),
        payload: payload.to_vec(),
    })
}
