//! Encoding of packets: from the value to the bytes of one packet.

use super::layout::{
    ADDRESS, ADDRESS_BYTES, ASSEMBLY, BUS_PORT, CONFIG_EPOCH, COUNT, CURRENT_EPOCH, EXTENDED,
    EXTENSION_HEAD_BYTES, EXTENSIONS, FLAGS, FORCED, FORGOTTEN, GOSSIP_ADDRESS, GOSSIP_BUS_PORT,
    GOSSIP_BYTES, GOSSIP_FLAGS, GOSSIP_MAIN_PORT, GOSSIP_OTHER_PORT, GOSSIP_PING_SENT,
    GOSSIP_PONG_RECEIVED, HEADER_BYTES, HOSTNAME, HUMAN_NAME, KIND, LENGTH, MAIN_PORT,
    MESSAGE_FLAGS, MODULE_HEAD_BYTES, OFFSET, OTHER_PORT, PAUSED, PRIMARY, PROTOCOL, SENDER,
    SHARD_ID, SIGNATURE, SLOTS, STATE, VERSION, ZONE,
};
use crate::cluster::flags::NodeFlags;
use crate::cluster::kind::Kind;
use crate::cluster::packet::{Body, Extension, Gossip, Header, Message, Packet, PingBody};

/// Returns the bytes of a packet.
///
/// # Panics
///
/// Panics if the packet has more gossip entries or extensions than a 16-bit count can express, or more bytes than a
/// 32-bit length.
#[must_use]
pub fn encode(packet: &Packet) -> Vec<u8> {
    let mut out = header(&packet.header, packet.body.kind());
    match &packet.body {
        Body::Ping(news) | Body::Pong(news) | Body::Meet(news) => append_news(news, &mut out),
        Body::Fail(node) => out.extend_from_slice(node.as_bytes()),
        Body::Publish(message) | Body::PublishShard(message) => append_message(message, &mut out),
        Body::VoteRequest | Body::Vote | Body::ManualFailoverStart => {}
        Body::Update {
            node,
            config_epoch,
            slots,
        } => {
            out.extend_from_slice(&config_epoch.to_be_bytes());
            out.extend_from_slice(node.as_bytes());
            out.extend_from_slice(&slots.to_bytes());
        }
        Body::Module => out.extend_from_slice(&[0; MODULE_HEAD_BYTES]),
    }
    let length = u32::try_from(out.len()).expect("a packet fits its length");
    put(&mut out, LENGTH, length.to_be_bytes());
    out
}

fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}

/// Writes an address, followed by at least one zero.
fn put_address(out: &mut [u8], at: usize, address: &str) {
    let bytes = address.as_bytes();
    let bytes = &bytes[..bytes.len().min(ADDRESS_BYTES - 1)];
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

fn header(header: &Header, kind: Kind) -> Vec<u8> {
    let mut out = vec![0; HEADER_BYTES];
    put(&mut out, 0, *SIGNATURE);
    put(&mut out, PROTOCOL, VERSION.to_be_bytes());
    put(&mut out, MAIN_PORT, header.ports.main.to_be_bytes());
    put(&mut out, KIND, kind.number().to_be_bytes());
    put(&mut out, CURRENT_EPOCH, header.current_epoch.to_be_bytes());
    put(&mut out, CONFIG_EPOCH, header.config_epoch.to_be_bytes());
    put(&mut out, OFFSET, header.offset.to_be_bytes());
    put(&mut out, SENDER, *header.sender.as_bytes());
    put(&mut out, SLOTS, header.slots.to_bytes());
    if let Some(primary) = header.primary {
        put(&mut out, PRIMARY, *primary.as_bytes());
    }
    put_address(&mut out, ADDRESS, &header.ip);
    put(&mut out, OTHER_PORT, header.ports.other.to_be_bytes());
    put(&mut out, BUS_PORT, header.ports.bus.to_be_bytes());
    let flags = header.flags.without(NodeFlags::EXTENSIONS);
    put(&mut out, FLAGS, flags.0.to_be_bytes());
    out[STATE] = u8::from(!header.is_up);
    out[MESSAGE_FLAGS] = if header.is_paused { PAUSED } else { 0 }
        | if header.is_forced { FORCED } else { 0 }
        | if header.flags.any(NodeFlags::EXTENSIONS) {
            EXTENDED
        } else {
            0
        };
    out
}

fn append_news(news: &PingBody, out: &mut Vec<u8>) {
    let count = |len: usize| u16::try_from(len).expect("a packet's entries fit their count");
    put(out, COUNT, count(news.gossip.len()).to_be_bytes());
    put(out, EXTENSIONS, count(news.extensions.len()).to_be_bytes());
    if !news.extensions.is_empty() {
        out[MESSAGE_FLAGS] |= EXTENDED;
    }
    for gossip in &news.gossip {
        append_gossip(gossip, out);
    }
    for extension in &news.extensions {
        append_extension(extension, out);
    }
}

fn append_gossip(gossip: &Gossip, out: &mut Vec<u8>) {
    let mut entry = [0; GOSSIP_BYTES];
    put(&mut entry, 0, *gossip.node.as_bytes());
    let (sent, received) = (gossip.ping_sent_s, gossip.pong_received_s);
    put(&mut entry, GOSSIP_PING_SENT, sent.to_be_bytes());
    put(&mut entry, GOSSIP_PONG_RECEIVED, received.to_be_bytes());
    put_address(&mut entry, GOSSIP_ADDRESS, &gossip.ip);
    let ports = gossip.ports;
    put(&mut entry, GOSSIP_MAIN_PORT, ports.main.to_be_bytes());
    put(&mut entry, GOSSIP_BUS_PORT, ports.bus.to_be_bytes());
    put(&mut entry, GOSSIP_FLAGS, gossip.flags.0.to_be_bytes());
    put(&mut entry, GOSSIP_OTHER_PORT, ports.other.to_be_bytes());
    out.extend_from_slice(&entry);
}

fn append_extension(extension: &Extension, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; EXTENSION_HEAD_BYTES]);
    let kind = match extension {
        Extension::Hostname(name) => {
            out.extend_from_slice(name.as_bytes());
            out.push(0);
            HOSTNAME
        }
        Extension::HumanName(name) => {
            out.extend_from_slice(name.as_bytes());
            out.push(0);
            HUMAN_NAME
        }
        Extension::Forgotten { node, ttl_ms } => {
            out.extend_from_slice(node.as_bytes());
            out.extend_from_slice(&ttl_ms.div_ceil(1000).to_be_bytes());
            FORGOTTEN
        }
        Extension::ShardId(shard) => {
            out.extend_from_slice(shard.as_bytes());
            SHARD_ID
        }
        Extension::Zone(zone) => {
            out.extend_from_slice(zone.as_bytes());
            out.push(0);
            ZONE
        }
        Extension::Assembly(notice) => {
            notice.encode(out);
            ASSEMBLY
        }
    };
    out.resize(start + (out.len() - start).next_multiple_of(8), 0);
    let length = u32::try_from(out.len() - start).expect("names are short");
    put(out, start, length.to_be_bytes());
    put(out, start + 4, kind.to_be_bytes());
}

fn append_message(message: &Message, out: &mut Vec<u8>) {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("an argument fits its length");
    out.extend_from_slice(&length(&message.channel).to_be_bytes());
    out.extend_from_slice(&length(&message.payload).to_be_bytes());
    out.extend_from_slice(&message.channel);
    out.extend_from_slice(&message.payload);
}
