//! The state of a consumer group at one moment, the cut, passed to the snapshot in pieces while the group continues
//! to change.
//!
//! The heads of the group and its consumers are copied when the group first changes, or is first saved. Pending
//! entries are not copied: when one changes, its previous state is kept, if it was pending. As consumers are
//! identified by slot, a slot reused by another consumer does no harm: all entries of its former owner have changed.
//!
//! Everything here is charged to no account.

use std::collections::{BTreeMap, BTreeSet};

use super::ConsumerGroup;
use crate::value::stream::consumer::{ConsumerId, Pending};
use crate::value::stream::id::StreamId;
use crate::value::stream::piece::{ConsumerHead, GroupHead, ShowPiece, StreamPiece};
use basalt_core::alloc::account;

/// The next part to pass to the snapshot.
#[derive(Clone, Copy, Debug, Default)]
enum CutStage {
    #[default]
    Head,
    /// The pending entries, starting at this ID.
    Pending(StreamId),
    /// The head of a consumer, by its index.
    Consumer(usize),
    /// The entries owned by the consumer at an index, starting at this ID.
    Owned(usize, StreamId),
    /// The entries owned by no consumer, starting at this index.
    Returned(usize),
    /// Everything has been saved; the kept parts are being freed.
    Over,
}

#[derive(Debug)]
struct Heads {
    group: GroupHead,
    consumers: Vec<(ConsumerId, ConsumerHead)>,
}

impl Heads {
    /// Passes the consumer at index `number` to `show`; past the last consumer, the number of pending entries without
    /// an owner, which come next. Returns the stage to continue with.
    fn show_consumer(
        &self,
        number: usize,
        returned: &mut [(i64, StreamId)],
        show: &mut ShowPiece<'_>,
    ) -> CutStage {
        if let Some((_, head)) = self.consumers.get(number) {
            show(StreamPiece::Consumer(&self.group, head));
            return CutStage::Owned(number, StreamId::MIN);
        }
        returned.sort_unstable();
        show(StreamPiece::Returned(returned.len()));
        CutStage::Returned(0)
    }
}

/// A cut of a group in progress, see the module.
#[derive(Debug, Default)]
pub(in crate::value::stream) struct GroupCut {
    heads: Option<Heads>,
    stage: CutStage,
    /// The previous pending states of changed entries.
    before: BTreeMap<StreamId, Option<Pending>>,
    /// Entries of `before` that were pending, by the slots of their owners.
    owned: BTreeSet<(ConsumerId, StreamId)>,
    /// Entries saved as pending that no consumer owns, with the times of their return.
    returned: Vec<(i64, StreamId)>,
    /// Number of entries saved so far: as pending, or as owned by the current consumer.
    shown: usize,
}

impl GroupCut {
    /// Keeps the pending state of an entry that is about to change.
    #[cold]
    pub(in crate::value::stream) fn note(&mut self, id: StreamId, pending: Option<Pending>) {
        if matches!(self.stage, CutStage::Over) || self.before.contains_key(&id) {
            return;
        }
        account::uncharged(|| {
            self.before.insert(id, pending);
            if let Some(pending) = pending {
                self.owned.insert((pending.consumer, id));
            }
        });
    }
}

impl GroupCut {
    /// Drops some of the kept state. Returns true while more is left.
    fn forget_some(&mut self, left: &mut usize) -> bool {
        self.stage = CutStage::Over;
        while *left > 0 {
            *left -= 1;
            if self.before.pop_first().is_none() && self.owned.pop_first().is_none() {
                return false;
            }
        }
        true
    }
}

/// Returns the lesser of two entries; if they are equal, both count as one.
fn first_of(here: Option<StreamId>, kept: Option<StreamId>) -> Option<StreamId> {
    match (here, kept) {
        (Some(here), Some(kept)) => Some(here.min(kept)),
        (here, kept) => here.or(kept),
    }
}

impl ConsumerGroup {
    /// Makes a cut: [`ConsumerGroup::show_cut`] will return the current state, regardless of later changes.
    pub(in crate::value::stream) fn begin_cut(&mut self) {
        self.cut = Some(account::uncharged(Box::default));
    }

    /// True if a part of the cut has not been saved yet.
    pub(in crate::value::stream) fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Copies the metadata of the group, named `name`, and of its consumers, unless that was done, as the group is
    /// about to change.
    pub(in crate::value::stream) fn keep_heads(&mut self, name: &[u8]) {
        if self.cut.as_ref().is_some_and(|cut| cut.heads.is_none()) {
            let heads = account::uncharged(|| self.heads(name));
            if let Some(cut) = &mut self.cut {
                cut.heads = Some(heads);
            }
        }
    }

    /// Returns the metadata of the group, which is named `name`.
    pub fn head(&self, name: &[u8]) -> GroupHead {
        GroupHead {
            name: name.into(),
            last_id: self.last_id,
            entries_read: self.entries_read,
            pending_count: self.pending_count(),
        }
    }

    #[cold]
    fn heads(&self, name: &[u8]) -> Heads {
        let consumers = self.consumers_with_ids();
        Heads {
            group: self.head(name),
            consumers: consumers
                .map(|(id, consumer)| (id, ConsumerHead::of(consumer)))
                .collect(),
        }
    }

    /// Passes pieces in their state at the cut to `show`. Returns true while more are left.
    pub(in crate::value::stream) fn show_cut(
        &mut self,
        name: &[u8],
        left: &mut usize,
        show: &mut ShowPiece<'_>,
    ) -> bool {
        self.keep_heads(name);
        let Some(mut cut) = self.cut.take() else {
            return false;
        };
        let more = account::uncharged(|| self.show_some(&mut cut, left, show));
        match more {
            true => self.cut = Some(cut),
            false => account::uncharged(|| drop(cut)),
        }
        more
    }

    /// Returns the first entry, starting at an ID, that is or was pending, and its state at the cut, if it was
    /// pending then.
    fn pending_at_cut(
        &self,
        before: &BTreeMap<StreamId, Option<Pending>>,
        from: StreamId,
    ) -> (Option<StreamId>, Option<(StreamId, Pending)>) {
        let here = self.pending_between(from, StreamId::MAX).next();
        let kept = before.range(from..).next();
        let next = first_of(here.map(|(id, _)| id), kept.map(|(id, _)| *id));
        let was = next.and_then(|id| match kept {
            Some((kept, was)) if *kept == id => Some((id, (*was)?)),
            _ => here,
        });
        (next, was)
    }

    fn show_some(&self, cut: &mut GroupCut, left: &mut usize, show: &mut ShowPiece<'_>) -> bool {
        let GroupCut {
            heads: Some(heads),
            stage,
            before,
            owned,
            returned,
            shown,
        } = cut
        else {
            return false;
        };
        while *left > 0 {
            *left -= 1;
            match *stage {
                CutStage::Head => {
                    show(StreamPiece::Group(&heads.group));
                    (*stage, *shown) = (CutStage::Pending(StreamId::MIN), 0);
                }
                CutStage::Pending(from) => {
                    let (next, was) = self.pending_at_cut(before, from);
                    if let Some((id, was)) = was {
                        show(StreamPiece::Pending(id, was));
                        *shown += 1;
                        if was.is_returned() {
                            returned.push((was.delivered_ms, id));
                        }
                    }
                    *stage = match next.and_then(StreamId::next) {
                        Some(next) => CutStage::Pending(next),
                        None => {
                            debug_assert_eq!(*shown, heads.group.pending_count);
                            show(StreamPiece::Consumers(heads.consumers.len()));
                            CutStage::Consumer(0)
                        }
                    };
                }
                CutStage::Consumer(number) => {
                    *shown = 0;
                    *stage = heads.show_consumer(number, returned, show);
                }
                CutStage::Returned(number) => match returned.get(number) {
                    Some((_, id)) => {
                        show(StreamPiece::Owned(*id));
                        *stage = CutStage::Returned(number + 1);
                    }
                    None => *stage = CutStage::Over,
                },
                CutStage::Owned(number, from) => {
                    let (place, head) = &heads.consumers[number];
                    let of_owner = |id: &StreamId| {
                        let was = before.get(id);
                        was.is_none_or(|was| was.is_some_and(|was| was.consumer == *place))
                    };
                    let mut kept = owned.range((*place, from)..=(*place, StreamId::MAX));
                    let kept = kept.next().map(|(_, id)| *id);
                    let next = first_of(self.owned_from(*place, from), kept);
                    if let Some(id) = next.filter(of_owner) {
                        show(StreamPiece::Owned(id));
                        *shown += 1;
                    }
                    debug_assert!(next.is_some() || *shown == head.pending_count);
                    *stage = match next.and_then(StreamId::next) {
                        Some(next) => CutStage::Owned(number, next),
                        None => CutStage::Consumer(number + 1),
                    };
                }
                CutStage::Over => {
                    if before.pop_first().is_none() & owned.pop_first().is_none() {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Drops the kept state. Returns true while more is left.
    pub(in crate::value::stream) fn forget_cut(&mut self, left: &mut usize) -> bool {
        let Some(cut) = &mut self.cut else {
            return false;
        };
        let more = account::uncharged(|| cut.forget_some(left));
        if !more {
            account::uncharged(|| self.cut = None);
        }
        more
    }
}
