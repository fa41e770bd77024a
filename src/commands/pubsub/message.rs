//! Messages in the form for subscribers: encoded once, then copied to each subscriber; a large message is shared, and
//! consecutive small ones of a channel are copied together.

use std::ops::Range;

use bytes::Bytes;

use basalt_core::resp::reply::{Out, Protocol, SHARED_LEN_MIN};

/// Bytes at which a run of messages is full.
const RUN_BYTES_MAX: usize = 32 * 1024;

/// Maximum bytes of a push in addition to its channel and payload.
const FRAME_BYTES: usize = 80;

/// An encoded message, see the module.
pub(super) struct EncodedMessage<'m> {
    channel: &'m [u8],
    payload: &'m [u8],
    /// The complete push for clients that subscribed to the channel by name, in RESP2; RESP3 differs in its first
    /// byte.
    whole: Out,
    /// The payload, if it is large enough for sharing.
    shared: Option<Bytes>,
}

impl<'m> EncodedMessage<'m> {
    /// Encodes a message for a channel, or for a shard channel.
    pub(super) fn new(
        is_sharded: bool,
        channel: &'m [u8],
        payload: &'m [u8],
    ) -> EncodedMessage<'m> {
        let shared = (payload.len() >= SHARED_LEN_MIN).then(|| Bytes::copy_from_slice(payload));
        let own_bytes = channel.len() + if shared.is_none() { payload.len() } else { 0 };
        let mut whole = Out::with_room(Protocol::Resp2, own_bytes + FRAME_BYTES);
        whole.push(3);
        whole.bulk(kind(is_sharded));
        whole.bulk(channel);
        if shared.is_none() {
            whole.bulk(payload);
        }
        EncodedMessage {
            channel,
            payload,
            whole,
            shared,
        }
    }

    /// Returns the channel.
    pub(super) fn channel(&self) -> &[u8] {
        self.channel
    }

    /// Writes the push for a subscriber to the channel.
    pub(super) fn write(&self, out: &mut Out) {
        if let Some([_, rest @ ..]) = self.whole.as_slice() {
            out.raw(if out.is_resp3() { b">" } else { b"*" });
            out.raw(rest);
        }
        if let Some(payload) = &self.shared {
            out.bulk_shared(payload.clone());
        }
    }

    /// Writes the push for a subscriber to a pattern.
    pub(super) fn write_matched(&self, pattern: &[u8], out: &mut Out) {
        out.push(4);
        out.bulk(b"pmessage");
        out.bulk(pattern);
        out.bulk(self.channel);
        match &self.shared {
            Some(payload) => out.bulk_shared(payload.clone()),
            None => out.bulk(self.payload),
        }
    }
}

/// Consecutive small messages of one channel.
#[derive(Default)]
pub(super) struct MessageBatch {
    is_sharded: bool,
    channel: Vec<u8>,
    /// The beginning of each push, up to the payload, in RESP2; RESP3 differs in its first byte.
    head: Vec<u8>,
    /// Complete pushes, in RESP2.
    pushes: Vec<u8>,
    /// The positions of the pushes in `pushes`.
    places: Vec<PushPosition>,
}

/// The position of a push.
struct PushPosition {
    start: usize,
    payload: Range<usize>,
}

impl MessageBatch {
    /// Begins a run in a channel, whose name is the concatenation of the parts. The previous run must be empty.
    pub(super) fn begin(&mut self, is_sharded: bool, channel: &[&[u8]]) {
        self.is_sharded = is_sharded;
        self.channel.clear();
        channel
            .iter()
            .for_each(|part| self.channel.extend_from_slice(part));
        self.head.clear();
        self.head.extend_from_slice(b"*3\r\n");
        write_bulk(kind(is_sharded), &mut self.head);
        write_bulk(&self.channel, &mut self.head);
    }

    /// Adds a message's payload to the run.
    pub(super) fn push(&mut self, payload: &[u8]) {
        let start = self.pushes.len();
        self.pushes
            .reserve(FRAME_BYTES + self.head.len() + payload.len());
        self.pushes.extend_from_slice(&self.head);
        let payload = write_bulk(payload, &mut self.pushes);
        self.places.push(PushPosition { start, payload });
    }

    /// Whether a message is small enough to be part of a run.
    pub(super) fn fits(channel: &[u8], payload: &[u8]) -> bool {
        channel.len() + payload.len() < SHARED_LEN_MIN
    }

    /// Returns the bytes of the messages, with one more of this payload.
    pub(super) fn bytes_with(&self, payload: &[u8]) -> usize {
        self.pushes.len() + self.head.len() + payload.len()
    }

    /// Whether the run has capacity for a message.
    pub(super) fn has_room(&self, payload: &[u8]) -> bool {
        MessageBatch::fits(&self.channel, payload) && self.bytes_with(payload) < RUN_BYTES_MAX
    }

    /// Whether the run is in this channel.
    pub(super) fn is_of(&self, is_sharded: bool, channel: &[u8]) -> bool {
        self.is_sharded == is_sharded && self.channel == channel
    }

    /// Whether the run is in a shard channel.
    pub(super) fn is_sharded(&self) -> bool {
        self.is_sharded
    }

    /// Returns the name of the channel.
    pub(super) fn channel(&self) -> &[u8] {
        &self.channel
    }

    /// Returns the number of messages.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Iterates over the messages.
    pub(super) fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        let places = self.places.iter();
        places.map(|place| &self.pushes[place.payload.clone()])
    }

    /// Writes all messages for a subscriber to the channel.
    pub(super) fn write(&self, out: &mut Out) {
        if !out.is_resp3() {
            return out.raw(&self.pushes);
        }
        let starts = self.places.iter().map(|place| place.start);
        let ends = starts.clone().skip(1).chain([self.pushes.len()]);
        for (start, end) in starts.zip(ends) {
            out.raw(b">");
            out.raw(&self.pushes[start + 1..end]);
        }
    }

    /// Removes the messages, but keeps the channel.
    pub(super) fn clear(&mut self) {
        self.pushes.clear();
        self.places.clear();
    }
}

/// Returns the first word of a push to subscribers of a channel by name.
fn kind(is_sharded: bool) -> &'static [u8] {
    match is_sharded {
        true => b"smessage",
        false => b"message",
    }
}

/// Writes a RESP bulk string; returns the position of its bytes.
fn write_bulk(bytes: &[u8], to: &mut Vec<u8>) -> Range<usize> {
    to.push(b'$');
    to.extend_from_slice(itoa::Buffer::new().format(bytes.len()).as_bytes());
    to.extend_from_slice(b"\r\n");
    let start = to.len();
    to.extend_from_slice(bytes);
    to.extend_from_slice(b"\r\n");
    start..start + bytes.len()
}
