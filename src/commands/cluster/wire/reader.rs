//! Splits a stream of bytes, which may arrive in pieces of any size, into packets.
//!
//! The buffer grows with the received bytes, never with the length that a packet claims. A packet of an unknown kind
//! is skipped without being buffered. A packet from an unknown sender is buffered up to a length that suffices for
//! all of a cluster's own traffic; longer packets are accepted from known nodes only, up to a length that depends on
//! the link.

use super::decode::{Refused, decode};
use super::layout::{HEADER_BYTES, KIND, LENGTH, SENDER, SIGNATURE};
use crate::cluster::kind::Kind;
use crate::cluster::node_id::{NODE_ID_BYTES, NodeId};
use crate::cluster::packet::Packet;

/// A packet's length is within this many first bytes.
const LENGTH_KNOWN_BYTES: usize = 8;
/// A packet's kind is within this many first bytes.
const KIND_KNOWN_BYTES: usize = KIND + 2;
/// A packet's sender is within this many first bytes.
const SENDER_KNOWN_BYTES: usize = SENDER + NODE_ID_BYTES;
/// Maximum bytes of a packet from an unknown sender: gossip of a tenth of the maximum number of nodes, and as much
/// again.
const STRANGER_BYTES_MAX: usize = 384 << 10;
/// Maximum bytes of a packet that does not carry a published message: the maximum count of gossip entries, and as
/// much again.
const BYTES_MAX: usize = 16 << 20;
/// Maximum bytes of a packet that carries a published message: channel and payload of 512 MiB each, and their frame.
const MESSAGE_BYTES_MAX: usize = (1 << 30) + (64 << 10);
/// Maximum bytes of a packet over a link whose other end has not proven which node it is.
pub const UNPROVEN_BYTES_MAX: usize = 32 << 20;
/// Capacity in bytes that a reader keeps between packets.
const SPARE_BYTES_MAX: usize = 64 << 10;

/// The reason why a stream cannot continue: the beginning of the next packet is unknown, or too much would have to be
/// buffered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketStreamError {
    /// The next bytes are not the beginning of a packet.
    #[error("bad signature")]
    Signature,
    /// The length in the packet is smaller than a header.
    #[error("bad length of {0} bytes")]
    Short(u32),
    /// The length in the packet exceeds the limit.
    #[error("bad length of {0} bytes, more than accepted from this sender")]
    Long(u32),
}

/// Splits a stream into packets, see the module.
#[derive(Debug)]
pub struct ClusterPacketReader {
    /// The buffered start of a packet.
    begun: Vec<u8>,
    /// Remaining bytes of a packet that is being skipped.
    skipped: usize,
    /// Maximum bytes of a packet from a known node.
    longest: usize,
}

impl Default for ClusterPacketReader {
    fn default() -> ClusterPacketReader {
        ClusterPacketReader {
            begun: Vec::new(),
            skipped: 0,
            longest: MESSAGE_BYTES_MAX,
        }
    }
}

/// The treatment of a packet, as far as its first bytes determine it.
enum PacketTreatment {
    /// More bytes are needed, up to this many of the packet.
    Unknown(usize),
    /// The packet has this many bytes and must be buffered.
    Held(usize),
    /// The packet is skipped, as its kind is unknown: its total bytes, and the kind.
    Skipped(usize, u16),
}

impl ClusterPacketReader {
    /// Creates a reader for a link on which only the packets themselves identify the node at the other end.
    #[must_use]
    pub fn unproven() -> ClusterPacketReader {
        ClusterPacketReader {
            longest: UNPROVEN_BYTES_MAX,
            ..ClusterPacketReader::default()
        }
    }

    /// Returns the bytes of the buffer.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.begun.capacity()
    }

    /// Processes received bytes. `each` is called with each complete packet, or with the reason why a packet is
    /// refused; `is_known` returns whether a sender is a node of the cluster.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        is_known: impl Fn(&NodeId) -> bool,
        mut each: impl FnMut(Result<Packet, Refused>),
    ) -> Result<(), PacketStreamError> {
        loop {
            let passing = self.skipped.min(bytes.len());
            self.skipped -= passing;
            bytes = &bytes[passing..];
            let is_begun = !self.begun.is_empty();
            // A packet that is complete in the received bytes is decoded in place.
            let start = if is_begun { &self.begun } else { bytes };
            if start.is_empty() {
                return Ok(());
            }
            match ahead(start, self.longest, &is_known)? {
                PacketTreatment::Held(length) if !is_begun && bytes.len() >= length => {
                    let (packet, rest) = bytes.split_at(length);
                    each(decode(packet));
                    bytes = rest;
                }
                PacketTreatment::Held(length) if self.begun.len() == length => {
                    each(decode(&self.begun));
                    self.begun.clear();
                    self.begun.shrink_to(SPARE_BYTES_MAX);
                }
                PacketTreatment::Unknown(length) | PacketTreatment::Held(length) => {
                    if bytes.is_empty() {
                        return Ok(());
                    }
                    let missing = length - self.begun.len();
                    let (now, rest) = bytes.split_at(missing.min(bytes.len()));
                    let room = self.begun.capacity() - self.begun.len();
                    if room < now.len() {
                        // Doubles the capacity each time, but never beyond the length of the packet.
                        let more = now.len().max(self.begun.len()).min(missing);
                        self.begun.reserve_exact(more);
                    }
                    self.begun.extend_from_slice(now);
                    bytes = rest;
                }
                PacketTreatment::Skipped(length, kind) => {
                    each(Err(Refused::Kind(kind)));
                    self.skipped = length - self.begun.len();
                    self.begun.clear();
                }
            }
        }
    }
}

fn ahead(
    start: &[u8],
    longest: usize,
    is_known: &impl Fn(&NodeId) -> bool,
) -> Result<PacketTreatment, PacketStreamError> {
    let Some(first) = start.first_chunk::<LENGTH_KNOWN_BYTES>() else {
        return Ok(PacketTreatment::Unknown(LENGTH_KNOWN_BYTES));
    };
    if !first.starts_with(SIGNATURE) {
        return Err(PacketStreamError::Signature);
    }
    let length = u32::from_be_bytes([first[4], first[5], first[6], first[LENGTH + 3]]);
    let bytes = length as usize;
    if bytes < HEADER_BYTES {
        return Err(PacketStreamError::Short(length));
    }
    let Some(kind) = start.get(KIND..KIND_KNOWN_BYTES) else {
        return Ok(PacketTreatment::Unknown(KIND_KNOWN_BYTES));
    };
    let number = u16::from_be_bytes([kind[0], kind[1]]);
    let Some(kind) = Kind::from_number(number) else {
        return Ok(PacketTreatment::Skipped(bytes, number));
    };
    if bytes <= STRANGER_BYTES_MAX {
        return Ok(PacketTreatment::Held(bytes));
    }
    let most = match kind {
        Kind::Publish | Kind::PublishShard => longest,
        _ => BYTES_MAX,
    };
    if bytes > most {
        return Err(PacketStreamError::Long(length));
    }
    let Some(sender) = start.get(SENDER..SENDER_KNOWN_BYTES) else {
        return Ok(PacketTreatment::Unknown(SENDER_KNOWN_BYTES));
    };
    match NodeId::from_text(sender).filter(is_known) {
        Some(_) => Ok(PacketTreatment::Held(bytes)),
        None => Err(PacketStreamError::Long(length)),
    }
}
