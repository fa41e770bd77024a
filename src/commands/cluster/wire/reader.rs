//! Packets out of a stream of bytes, in whatever pieces they come.
//!
//! What is held grows with what has come, never with what a packet says of its length. A packet whose kind is unknown
//! passes without being held. A stranger's packet is held up to a length that all of a cluster's own work fits in;
//! longer ones are for nodes that this one knows, up to a length that depends on the link.

use super::decode::{Refused, decode};
use super::layout::{HEADER_BYTES, KIND, LENGTH, SENDER, SIGNATURE};
use crate::cluster::kind::Kind;
use crate::cluster::node_id::{NODE_ID_BYTES, NodeId};
use crate::cluster::packet::Packet;

/// Bytes that tell how long a packet is.
const LENGTH_KNOWN_BYTES: usize = 8;
/// Bytes that tell the kind of a packet.
const KIND_KNOWN_BYTES: usize = KIND + 2;
/// Bytes that tell who has sent a packet.
const SENDER_KNOWN_BYTES: usize = SENDER + NODE_ID_BYTES;
/// Bytes of the longest packet of a stranger: gossip of a tenth of the nodes that are remembered, and as much again.
const STRANGER_BYTES_MAX: usize = 384 << 10;
/// Bytes of the longest packet that is no message: all that a count of gossip can say, and as much again.
const BYTES_MAX: usize = 16 << 20;
/// Bytes of the longest message: channel and payload of 512 MiB each, and what is around them.
const MESSAGE_BYTES_MAX: usize = (1 << 30) + (64 << 10);
/// Bytes of the longest packet over a link that anybody may have opened in anybody's name.
pub const UNPROVEN_BYTES_MAX: usize = 32 << 20;
/// Bytes that a reader keeps room for between packets.
const SPARE_BYTES_MAX: usize = 64 << 10;

/// Why a stream cannot go on: nothing tells where the next packet begins, or what comes is not going to be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// No packet begins where one should.
    #[error("bad signature")]
    Signature,
    /// The length is less than a header's.
    #[error("bad length of {0} bytes")]
    Short(u32),
    /// The length is more than is held.
    #[error("bad length of {0} bytes, which is more than is taken from this sender")]
    Long(u32),
}

/// See the module.
#[derive(Debug)]
pub struct Reader {
    /// The start of a packet.
    begun: Vec<u8>,
    /// Bytes to come of a packet that is not looked at.
    skipped: usize,
    /// Bytes of the longest packet that is taken from a node that is known.
    longest: usize,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader {
            begun: Vec::new(),
            skipped: 0,
            longest: MESSAGE_BYTES_MAX,
        }
    }
}

/// What is known of a packet by its first bytes.
enum Ahead {
    /// More bytes are needed, up to so many of the packet.
    Unknown(usize),
    /// The packet is to be held, and has so many bytes in all.
    Held(usize),
    /// The packet passes, as its kind is unknown: its bytes in all, and the kind.
    Skipped(usize, u16),
}

impl Reader {
    /// A reader of a link of which nothing but what it says tells who is at the other end.
    #[must_use]
    pub fn unproven() -> Reader {
        Reader {
            longest: UNPROVEN_BYTES_MAX,
            ..Reader::default()
        }
    }

    /// Bytes that are held.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.begun.capacity()
    }

    /// Takes in what has come. Each packet that is complete goes to `each`, or why it is refused; `is_known` tells
    /// whether a sender is a node of the cluster.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        is_known: impl Fn(&NodeId) -> bool,
        mut each: impl FnMut(Result<Packet, Refused>),
    ) -> Result<(), Broken> {
        loop {
            let passing = self.skipped.min(bytes.len());
            self.skipped -= passing;
            bytes = &bytes[passing..];
            let is_begun = !self.begun.is_empty();
            // What lies whole in the bytes that have come is read there.
            let start = if is_begun { &self.begun } else { bytes };
            if start.is_empty() {
                return Ok(());
            }
            match ahead(start, self.longest, &is_known)? {
                Ahead::Held(length) if !is_begun && bytes.len() >= length => {
                    let (packet, rest) = bytes.split_at(length);
                    each(decode(packet));
                    bytes = rest;
                }
                Ahead::Held(length) if self.begun.len() == length => {
                    each(decode(&self.begun));
                    self.begun.clear();
                    self.begun.shrink_to(SPARE_BYTES_MAX);
                }
                Ahead::Unknown(length) | Ahead::Held(length) => {
                    if bytes.is_empty() {
                        return Ok(());
                    }
                    let missing = length - self.begun.len();
                    let (now, rest) = bytes.split_at(missing.min(bytes.len()));
                    let room = self.begun.capacity() - self.begun.len();
                    if room < now.len() {
                        // Twice as much each time, and never more than the packet has.
                        let more = now.len().max(self.begun.len()).min(missing);
                        self.begun.reserve_exact(more);
                    }
                    self.begun.extend_from_slice(now);
                    bytes = rest;
                }
                Ahead::Skipped(length, kind) => {
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
) -> Result<Ahead, Broken> {
    let Some(first) = start.first_chunk::<LENGTH_KNOWN_BYTES>() else {
        return Ok(Ahead::Unknown(LENGTH_KNOWN_BYTES));
    };
    if !first.starts_with(SIGNATURE) {
        return Err(Broken::Signature);
    }
    let length = u32::from_be_bytes([first[4], first[5], first[6], first[LENGTH + 3]]);
    let bytes = length as usize;
    if bytes < HEADER_BYTES {
        return Err(Broken::Short(length));
    }
    let Some(kind) = start.get(KIND..KIND_KNOWN_BYTES) else {
        return Ok(Ahead::Unknown(KIND_KNOWN_BYTES));
    };
    let number = u16::from_be_bytes([kind[0], kind[1]]);
    let Some(kind) = Kind::from_number(number) else {
        return Ok(Ahead::Skipped(bytes, number));
    };
    if bytes <= STRANGER_BYTES_MAX {
        return Ok(Ahead::Held(bytes));
    }
    let most = match kind {
        Kind::Publish | Kind::PublishShard => longest,
        _ => BYTES_MAX,
    };
    if bytes > most {
        return Err(Broken::Long(length));
    }
    let Some(sender) = start.get(SENDER..SENDER_KNOWN_BYTES) else {
        return Ok(Ahead::Unknown(SENDER_KNOWN_BYTES));
    };
    match NodeId::from_text(sender).filter(is_known) {
        Some(_) => Ok(Ahead::Held(bytes)),
        None => Err(Broken::Long(length)),
    }
}
