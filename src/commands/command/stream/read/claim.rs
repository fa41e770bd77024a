//! CLAIM: entries that other consumers left pending for long come first, starting with those pending the longest.

use super::bounds::ReadBudget;
use super::{GroupReader, StreamReadStart};
use crate::command::Out;
use crate::command::args::{Args, RoutedKey};
use crate::command::context::ShardCx;
use crate::command::declaration::CommandResult;
use crate::command::stream::reply_id;
use basalt_engine::value::stream::consumer::Pending;
use basalt_engine::value::stream::id::StreamId;
use basalt_engine::value::stream::node::StreamEntry;
use basalt_engine::value::stream::{StreamValue, stream_of};

/// Pending entries that can be examined in the time that returning one takes.
const LOOKED_AT_PER_ANSWERED: usize = 8;

/// An entry that changes its owner.
pub(super) struct ClaimedEntry {
    pub(super) id: StreamId,
    idle_ms: i64,
    /// State of the entry before it is claimed.
    pub(super) pending: Pending,
}

/// Checks that examining the pending entries for those that can be claimed does not take too long on this thread.
pub(super) fn weigh(
    cx: &ShardCx<'_>,
    args: &Args<'_>,
    targets: &[(RoutedKey, StreamReadStart)],
    reader: Option<GroupReader<'_>>,
) -> CommandResult {
    let Some(reader) = reader.filter(|reader| reader.claims_from_ms.is_some()) else {
        return Ok(());
    };
    let pending = targets.iter().map(|(routed, from)| {
        let entry = cx.peek(routed, &args.key_of(routed));
        let stream = entry
            .and_then(stream_of)
            .filter(|_| matches!(from, StreamReadStart::New));
        let group = stream.and_then(|stream| stream.groups.get(reader.group));
        group.map_or(0, |group| group.pending_count())
    });
    let pending: usize = pending.sum();
    cx.scales().weigh(pending / LOOKED_AT_PER_ANSWERED)
}

/// Returns the entries of the stream that a consumer claims, in the order of the reply.
pub(super) fn chosen(
    stream: &StreamValue,
    reader: GroupReader<'_>,
    now_ms: i64,
    count_max: u64,
    bounds: &mut ReadBudget,
) -> Vec<ClaimedEntry> {
    let group = stream.groups.get(reader.group);
    let (Some(idle_ms_min), Some(group)) = (reader.claims_from_ms, group) else {
        return Vec::new();
    };
    let pending = group.pending_between(StreamId::MIN, StreamId::MAX);
    let claimed = pending.filter_map(|(id, pending)| {
        let idle_ms = now_ms.saturating_sub(pending.delivered_ms).max(0);
        (idle_ms >= idle_ms_min).then_some(ClaimedEntry {
            id,
            idle_ms: now_ms.saturating_sub(pending.shown_ms()).max(0),
            pending,
        })
    });
    let mut claimed: Vec<ClaimedEntry> = claimed.collect();
    // Returned entries come first. Entries with the same time stay in the order of their IDs.
    claimed.sort_by_key(|one| one.pending.delivered_ms);
    let count_max = match count_max {
        0 => usize::MAX,
        max => usize::try_from(max).unwrap_or(usize::MAX),
    };
    let mut count = 0;
    claimed.retain(|one| {
        let item = stream
            .range(one.id, one.id)
            .next()
            .filter(|_| count < count_max);
        let is_taken = item.is_some_and(|item| bounds.admit(&item));
        count += usize::from(is_taken);
        is_taken
    });
    claimed
}

/// Replies with a claimed entry, its idle time, and the number of earlier deliveries.
pub(super) fn reply(stream: &StreamValue, claimed: &ClaimedEntry, out: &mut Out) {
    if let Some(item) = stream.range(claimed.id, claimed.id).next() {
        reply_entry(&item, (claimed.idle_ms, claimed.pending.deliveries), out);
    }
}

/// Replies with a new entry among the claimed ones.
pub(super) fn reply_new(item: &StreamEntry<'_>, out: &mut Out) {
    reply_entry(item, (0, 0), out);
}

fn reply_entry(item: &StreamEntry<'_>, (idle_ms, deliveries): (i64, u64), out: &mut Out) {
    out.array(4);
    reply_id(item.id, out);
    out.array(2 * item.field_count());
    for (name, value) in item.fields() {
        name.with_bytes(|bytes| out.bulk(bytes));
        value.with_bytes(|bytes| out.bulk(bytes));
    }
    out.integer(idle_ms);
    out.integer(i64::try_from(deliveries).unwrap_or(i64::MAX));
}
