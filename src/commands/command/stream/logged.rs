//! Log records of commands on groups: which entries are pending, and how far the group has read, as XCLAIM, XACK and
//! XGROUP commands, which do not depend on the clock and describe the complete state.

use super::{ShardCx, StreamId};
use basalt_core::structures::block::Content;
use basalt_engine::value::stream::consumer::Pending;
use basalt_engine::value::stream::group::ConsumerGroup;

/// A group of a stream and one of its consumers, by their names.
#[derive(Clone, Copy)]
pub(super) struct ConsumerNames<'a> {
    pub key: &'a [u8],
    pub group: &'a [u8],
    pub consumer: &'a [u8],
}

/// The position up to which a group has read.
#[derive(Clone, Copy)]
pub(super) struct GroupReadPosition {
    last_id: StreamId,
    entries_read: i64,
}

impl GroupReadPosition {
    pub(super) fn of(group: &ConsumerGroup) -> GroupReadPosition {
        GroupReadPosition {
            last_id: group.last_id,
            entries_read: group.entries_read,
        }
    }
}

/// Logs that entries are pending with the consumer, which also creates it.
pub(super) fn claims(
    cx: &mut ShardCx<'_>,
    names: ConsumerNames<'_>,
    pending: &[(StreamId, Pending)],
    position: GroupReadPosition,
) {
    for (id, pending) in pending {
        let (id, last_id) = (id.text(), position.last_id.text());
        let (mut time, mut count) = (itoa::Buffer::new(), itoa::Buffer::new());
        cx.log_instead(
            [
                &b"XCLAIM"[..],
                names.key,
                names.group,
                names.consumer,
                b"0",
                id.as_bytes(),
                b"TIME",
                time.format(pending.delivered_ms).as_bytes(),
                b"RETRYCOUNT",
                count.format(pending.deliveries).as_bytes(),
                b"FORCE",
                b"JUSTID",
                b"LASTID",
                last_id.as_bytes(),
            ]
            .map(Content::from),
        );
    }
}

/// Logs the position up to which the group has read.
pub(super) fn position(
    cx: &mut ShardCx<'_>,
    names: ConsumerNames<'_>,
    position: GroupReadPosition,
) {
    let (last_id, mut read) = (position.last_id.text(), itoa::Buffer::new());
    cx.log_instead(
        [
            &b"XGROUP"[..],
            b"SETID",
            names.key,
            names.group,
            last_id.as_bytes(),
            b"ENTRIESREAD",
            read.format(position.entries_read).as_bytes(),
        ]
        .map(Content::from),
    );
}

/// Logs that the consumer was created.
pub(super) fn consumer(cx: &mut ShardCx<'_>, names: ConsumerNames<'_>) {
    let (group, consumer) = (names.group, names.consumer);
    let request: [&[u8]; 5] = [b"XGROUP", b"CREATECONSUMER", names.key, group, consumer];
    cx.log_instead(request.map(Content::from));
}

/// Logs that entries are no longer pending in a group.
pub(super) fn acknowledged(cx: &mut ShardCx<'_>, key: &[u8], group: &[u8], ids: &[StreamId]) {
    with_ids(cx, &[b"XACK", key, group], ids);
}

/// Logs that entries were deleted.
pub(super) fn deleted(cx: &mut ShardCx<'_>, key: &[u8], ids: &[StreamId]) {
    with_ids(cx, &[b"XDEL", key], ids);
}

fn with_ids(cx: &mut ShardCx<'_>, head: &[&[u8]], ids: &[StreamId]) {
    if ids.is_empty() || !cx.is_logged() {
        return;
    }
    let texts: Vec<_> = ids.iter().map(|id| id.text()).collect();
    let head = head.iter().map(|part| Content::from(*part));
    let ids = texts.iter().map(|text| Content::from(text.as_bytes()));
    let request: Vec<Content<'_>> = head.chain(ids).collect();
    cx.log_instead(request);
}
