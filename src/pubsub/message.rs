//! A message as subscribers get it: written once, then copied to each; a large one is shared.

use bytes::Bytes;

use crate::resp::reply::{Out, Protocol, SHARED_LEN_MIN};

/// Bytes of a push beside its channel and payload, at most.
const FRAME_BYTES: usize = 80;

/// See the module.
pub(super) struct Message<'m> {
    channel: &'m [u8],
    payload: &'m [u8],
    /// The whole push for those who subscribed to the channel by name, as RESP2 has it; RESP3 differs in its first
    /// byte.
    whole: Out,
    /// The payload, if it is worth sharing.
    shared: Option<Bytes>,
}

impl<'m> Message<'m> {
    /// A message in a channel.
    pub(super) fn new(channel: &'m [u8], payload: &'m [u8]) -> Message<'m> {
        Message::of_kind(b"message", channel, payload)
    }

    /// A message in a shard channel.
    pub(super) fn sharded(channel: &'m [u8], payload: &'m [u8]) -> Message<'m> {
        Message::of_kind(b"smessage", channel, payload)
    }

    fn of_kind(kind: &[u8], channel: &'m [u8], payload: &'m [u8]) -> Message<'m> {
        let shared = (payload.len() >= SHARED_LEN_MIN).then(|| Bytes::copy_from_slice(payload));
        let own_bytes = channel.len() + if shared.is_none() { payload.len() } else { 0 };
        let mut whole = Out::with_room(Protocol::Resp2, own_bytes + FRAME_BYTES);
        whole.push(3);
        whole.bulk(kind);
        whole.bulk(channel);
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
