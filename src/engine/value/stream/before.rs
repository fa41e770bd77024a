//! The undo state of a stream: copies of the nodes that changed, the metadata, the groups if one of them changed, and
//! the steps by which the producer records changed.
//!
//! Changes are mostly at the ends, so that one copied node serves many changes. Groups are copied all together: a
//! caller for which the copy may be too large checks [`CollectionBody::copied_bytes`] first. Everything here is charged
//! to no account.

use std::collections::BTreeMap;

use super::group::ConsumerGroup;
use super::id::StreamId;
use super::node::Node;
use super::producers::{ProducerChange, ProducerFacts, Producers};
use super::{StreamMetadata, StreamValue};
use crate::value::CollectionBody;
use crate::value::body::{CollectionCursor, CollectionPiece, Journal, Part, ShowPiece};
use basalt_core::alloc::account;
use basalt_core::alloc::slabs::Mover;

/// The groups of a stream, by name.
pub(super) type ByName = BTreeMap<Box<[u8]>, ConsumerGroup>;

/// Whether the groups must be copied before they change, and the copy.
#[derive(Default)]
pub(super) enum GroupsCopy {
    /// A copy was not requested.
    #[default]
    Unasked,
    /// A copy was requested, and the groups have not changed so far.
    Asked,
    /// The copy of the groups.
    Copied(ByName),
}

impl GroupsCopy {
    /// Copies the groups if requested, as they are about to change.
    pub(super) fn note(&mut self, groups: &ByName) {
        if let GroupsCopy::Asked = self {
            *self = GroupsCopy::Copied(account::uncharged(|| groups.clone()));
        }
    }
}

/// The undo state of a stream, see the module.
pub struct Before {
    metadata: StreamMetadata,
    groups: Option<ByName>,
    /// Copies of nodes; if a node occurs more than once, the first copy counts. None for a node that did not exist.
    nodes: Vec<(StreamId, Option<Node>)>,
    producers: Option<ProducerFacts>,
    /// Changes of the producers' ids, in order.
    steps: Vec<ProducerChange>,
    bytes: usize,
}

/// Number of most recently changed nodes that are searched for a node that changes again.
const LOOKED_AT_MAX: usize = 4;

impl Before {
    /// Returns the approximate bytes of the copied nodes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies a node that is about to change or to be removed; `node` is None if it is about to be created.
    #[cold]
    pub(super) fn keep(&mut self, master: StreamId, node: Option<&Node>) {
        let mut last = self.nodes.iter().rev().take(LOOKED_AT_MAX);
        if last.any(|(kept, _)| *kept == master) {
            return;
        }
        account::uncharged(|| self.nodes.push((master, node.cloned())));
        self.bytes += size_of::<(StreamId, Node)>() + node.map_or(0, |node| node.bytes().len());
    }

    /// Records that an id of a producer was added or removed.
    #[cold]
    pub(super) fn keep_step(&mut self, step: impl FnOnce() -> ProducerChange) {
        let step = account::uncharged(step);
        self.bytes += size_of::<ProducerChange>() + step.bytes();
        account::uncharged(|| self.steps.push(step));
    }
}

impl CollectionBody for Box<StreamValue> {
    fn duplicate(&self) -> Self {
        self.clone()
    }

    fn keep_changes(&mut self, journal: Option<Journal>) -> bool {
        let mut before = match journal {
            Some(Journal::Stream(before)) => before,
            _ => account::uncharged(|| {
                Box::new(Before {
                    metadata: self.metadata,
                    groups: None,
                    nodes: Vec::new(),
                    producers: self.producers().map(Producers::facts),
                    steps: Vec::new(),
                    bytes: 0,
                })
            }),
        };
        self.groups.kept = before
            .groups
            .take()
            .map_or(GroupsCopy::Asked, GroupsCopy::Copied);
        self.before = Some(before);
        true
    }

    fn take_changes(&mut self) -> Option<Journal> {
        let mut before = self.before.take()?;
        if let GroupsCopy::Copied(groups) = std::mem::take(&mut self.groups.kept) {
            before.groups = Some(groups);
        }
        Some(Journal::Stream(before))
    }

    fn undo(&mut self, journal: &Journal) {
        let Journal::Stream(before) = journal else {
            return;
        };
        for (master, node) in before.nodes.iter().rev() {
            match node {
                Some(node) => self.nodes.insert(*master, node.clone()),
                None => self.nodes.remove(master),
            };
        }
        self.metadata = before.metadata;
        if let Some(producers) = &mut self.producers {
            for step in before.steps.iter().rev() {
                producers.undo(step);
            }
        }
        match (before.producers, &mut self.producers) {
            (Some(facts), Some(producers)) => producers.facts = facts,
            (_, producers) => *producers = None,
        }
        if let Some(groups) = &before.groups {
            let undone = std::mem::replace(&mut self.groups.by_name, groups.clone());
            for (name, mut group) in undone {
                // The group keeps its state for a snapshot's cut in progress.
                if let Some(cut) = group.cut.take()
                    && let Some(restored) = self.groups.by_name.get_mut(&name)
                {
                    restored.cut = Some(cut);
                }
            }
        }
    }

    fn copied_bytes(&self, part: Part) -> Option<usize> {
        /// Maximum bytes that a pending entry, or a consumer, typically takes.
        const PENDING_BYTES: usize = 100;
        let pending = |group: &ConsumerGroup| group.pending_count() + group.consumers().len() + 1;
        Some(match part {
            Part::Entries => 0,
            Part::Any => self.groups.by_name.values().map(pending).sum::<usize>() * PENDING_BYTES,
        })
    }

    fn elements(&self) -> Option<usize> {
        Some(usize::try_from(self.metadata.length).unwrap_or(usize::MAX))
    }

    fn begin_cut(&mut self) -> bool {
        StreamValue::begin_cut(self);
        true
    }

    fn show_cut(&mut self, budget: usize, show: &mut ShowPiece<'_>) -> bool {
        StreamValue::show_cut(self, budget, &mut |piece| {
            show(CollectionPiece::Stream(piece))
        })
    }

    fn take_copied(&mut self) -> usize {
        StreamValue::take_copied(self)
    }

    fn forget_cut(&mut self, budget: usize) -> bool {
        StreamValue::forget_cut(self, budget)
    }

    fn relocate_some(
        &mut self,
        from: CollectionCursor,
        budget: usize,
        mover: &mut Mover,
    ) -> CollectionCursor {
        StreamValue::relocate_some(self, from, budget, mover)
    }

    fn free_some(&mut self, budget: usize) -> bool {
        let mut left = budget;
        while left > 0 && self.nodes.pop_first().is_some() {
            left -= 1;
        }
        while left > 0
            && let Some(mut group) = self.groups.by_name.last_entry()
        {
            if !group.get_mut().free_some(&mut left) {
                group.remove();
            }
        }
        while left > 0
            && let Some(producers) = &mut self.producers
        {
            match producers.by_name.pop_last() {
                Some((_, producer)) => left = left.saturating_sub(producer.len()),
                None => self.producers = None,
            }
        }
        !self.nodes.is_empty() || !self.groups.is_empty() || self.producers.is_some()
    }
}
