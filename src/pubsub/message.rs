//! Messages as subscribers get them: written once, then copied to each; a large one is shared, and small ones of a
//! channel that follow each other are copied together.

use std::ops::Range;

use bytes::Bytes;

use crate::resp::reply::{Out, Protocol, SHARED_LEN_MIN};

/// Bytes of a run of messages, from which on it takes no more.
const RUN_BYTES_MAX: usize = 32 * 1024;

/// Room in bytes that a run has for messages from the first one on.
const RUN_BYTES: usize = 1024;

/// Bytes of a push beside its channel and payload, at most.
const FRAME_BYTES: usize = 80;

/// See the module.
pub(super) struct Message<'m> {
    channel: &'m [u8],
    payload: &'m [u8],
    /// The whole push for clients that subscribed to the channel by name, as RESP2 has it; RESP3 differs in its first
    /// byte.
    whole: Out,
    /// The payload, if it is worth sharing.
    shared: Option<Bytes>,
}

impl<'m> Message<'m> {
    /// A message in a channel, or in a shard channel.
    pub(super) fn new(is_sharded: bool, channel: &'m [u8], payload: &'m [u8]) -> Message<'m> {
        let shared = (payload.len() >= SHARED_LEN_MIN).then(|| Bytes::copy_from_slice(payload));
        let own_bytes = channel.len() + if shared.is_none() { payload.len() } else { 0 };
        let mut whole = Out::with_room(Protocol::Resp2, own_bytes + FRAME_BYTES);
        begin_push(&mut whole, is_sharded, channel);
        if shared.is_none() {
            whole.bulk(payload);
        }
        Message {
            channel,
            payload,
            whole,
            shared,
        }
    }

    /// Where it is published.
    pub(super) fn channel(&self) -> &[u8] {
        self.channel
    }

    /// Writes it for somebody who subscribed to the channel.
    pub(super) fn write(&self, out: &mut Out) {
        if let Some([_, rest @ ..]) = self.whole.as_slice() {
            out.raw(if out.is_resp3() { b">" } else { b"*" });
            out.raw(rest);
        }
        if let Some(payload) = &self.shared {
            out.bulk_shared(payload.clone());
        }
    }

    /// Writes it for somebody who subscribed to a pattern.
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

/// Begins the push of a message for clients that subscribed to its channel by name; the payload is to follow.
fn begin_push(out: &mut Out, is_sharded: bool, channel: &[u8]) {
    out.push(3);
    out.bulk(if is_sharded { b"smessage" } else { b"message" });
    out.bulk(channel);
}

/// Small messages of one channel that follow each other.
#[derive(Default)]
pub(super) struct Run {
    is_sharded: bool,
    channel: Vec<u8>,
    /// What each push begins with, up to the payload, as RESP2 has it; RESP3 differs in its first byte.
    head: Out,
    /// Whole pushes, as RESP2 has them.
    pushes: Out,
    /// Where in `pushes` each of them lies.
    places: Vec<Place>,
}

/// Where a push lies.
struct Place {
    start: usize,
    payload: Range<usize>,
}

impl Run {
    /// Begins a run in a channel, whose name is the parts put together. The run before must be empty.
    pub(super) fn begin(&mut self, is_sharded: bool, channel: &[&[u8]]) {
        if self.head.is_empty() {
            self.channel.reserve(RUN_BYTES / 16);
            self.head = Out::with_room(Protocol::Resp2, RUN_BYTES / 8);
            self.pushes = Out::with_room(Protocol::Resp2, RUN_BYTES);
            self.places.reserve(RUN_BYTES / 64);
        }
        self.is_sharded = is_sharded;
        self.channel.clear();
        channel
            .iter()
            .for_each(|part| self.channel.extend_from_slice(part));
        self.head.clear();
        begin_push(&mut self.head, is_sharded, &self.channel);
    }

    /// Adds a message.
    pub(super) fn push(&mut self, payload: &[u8]) {
        const END: &str = "\r\n";
        let start = self.pushes.len_bytes();
        self.pushes.raw(self.head.as_slice().unwrap_or_default());
        self.pushes.bulk(payload);
        let end = self.pushes.len_bytes() - END.len();
        self.places.push(Place {
            start,
            payload: end - payload.len()..end,
        });
    }

    /// Whether a message is small enough for any run.
    pub(super) fn fits(payload: &[u8]) -> bool {
        payload.len() < SHARED_LEN_MIN
    }

    /// Whether a message can be added.
    pub(super) fn has_room(&self, payload: &[u8]) -> bool {
        Run::fits(payload) && self.pushes.len_bytes() + payload.len() < RUN_BYTES_MAX
    }

    /// Whether it is in this channel.
    pub(super) fn is_of(&self, is_sharded: bool, channel: &[u8]) -> bool {
        self.is_sharded == is_sharded && self.channel == channel
    }

    /// Whether it is in a shard channel.
    pub(super) fn is_sharded(&self) -> bool {
        self.is_sharded
    }

    /// Name of the channel.
    pub(super) fn channel(&self) -> &[u8] {
        &self.channel
    }

    /// Number of messages.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The messages, one by one.
    pub(super) fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        let pushes = self.pushes.as_slice().unwrap_or_default();
        self.places
            .iter()
            .map(|place| &pushes[place.payload.clone()])
    }

    /// Writes all messages for somebody who subscribed to the channel.
    pub(super) fn write(&self, out: &mut Out) {
        let pushes = self.pushes.as_slice().unwrap_or_default();
        if !out.is_resp3() {
            return out.raw(pushes);
        }
        let starts = self.places.iter().map(|place| place.start);
        let ends = starts.clone().skip(1).chain([pushes.len()]);
        for (start, end) in starts.zip(ends) {
            out.raw(b">");
            out.raw(&pushes[start + 1..end]);
        }
    }

    /// Forgets the messages, and not the channel.
    pub(super) fn clear(&mut self) {
        self.pushes.clear();
        self.places.clear();
    }
}
