//! The state of a stream at one moment, the cut, passed to the snapshot in pieces while the stream continues to
//! change.
//!
//! Nodes come first, in order, then the metadata, then one group after the other. Before a node
//! changes that existed at the cut and has not been saved, it is reported here, and a copy is kept; a removed node
//! itself is kept. Groups do the same on their own ([`group::cut`](super::group)); a destroyed group is kept until it
//! has been saved. Producers come last; one that is about to change is copied.
//!
//! Copies are charged to no account (see [`account::uncharged`]). Parts that left the stream stay charged to its
//! account until they have been saved.

use std::collections::BTreeMap;

use super::group::ConsumerGroup;
use super::id::StreamId;
use super::node::Node;
use super::piece::{ShowPiece, StreamPiece};
use super::producers::{Producer, ProducerFacts, Producers};
use super::{Groups, StreamMetadata, StreamValue};
use basalt_core::alloc::account;

/// The next part to pass to the snapshot.
enum StreamCutStage {
    /// The next node is the first from this ID on.
    Nodes(StreamId),
    Metadata,
    /// The next group is the one with this name, or the first after it.
    Groups(Box<[u8]>),
    /// The facts common to all producers.
    Producers,
    /// The next producer is the one with this name, or the first after it.
    Producer(Box<[u8]>),
    /// Everything has been saved; the kept parts are being freed.
    Over,
}

/// The previous state of a node.
enum NodeBeforeImage {
    /// The node did not exist.
    Absent,
    Copied(Node),
    Moved(Node),
}

/// A cut in progress, see the module.
pub(super) struct StreamCut {
    stage: StreamCutStage,
    metadata: StreamMetadata,
    groups: usize,
    /// The first ID of the last node at the cut; nodes after it did not exist.
    last: StreamId,
    /// The previous states of changed nodes.
    nodes: BTreeMap<StreamId, NodeBeforeImage>,
    /// The facts and the number of producers.
    producers: Option<(ProducerFacts, usize)>,
    /// The previous states of changed producers.
    changed: BTreeMap<Box<[u8]>, Option<Producer>>,
    /// Bytes of copied nodes and producers.
    copied_bytes: usize,
}

impl StreamCut {
    fn awaits(&self, master: StreamId) -> bool {
        let is_shown = match self.stage {
            StreamCutStage::Nodes(from) => master < from,
            _ => true,
        };
        !is_shown && master <= self.last && !self.nodes.contains_key(&master)
    }

    /// Keeps a copy of a node that is about to change, or records its absence if it is about to be created.
    #[cold]
    #[inline(never)]
    pub(super) fn note(&mut self, master: StreamId, node: Option<&Node>) {
        if self.awaits(master) {
            self.copied_bytes += node.map_or(0, |node| node.bytes().len());
            account::uncharged(|| {
                let before = node.map_or(NodeBeforeImage::Absent, |node| {
                    NodeBeforeImage::Copied(node.clone())
                });
                self.nodes.insert(master, before);
            });
        }
    }

    /// Keeps a node that has left the stream.
    #[cold]
    #[inline(never)]
    pub(super) fn take(&mut self, master: StreamId, node: Node) {
        if self.awaits(master) {
            account::uncharged(|| self.nodes.insert(master, NodeBeforeImage::Moved(node)));
        }
    }

    /// Keeps a copy of a producer that is about to change, or records its absence if it is about to be created.
    #[cold]
    #[inline(never)]
    pub(super) fn note_producer(&mut self, name: &[u8], producer: Option<&Producer>) {
        let is_shown = match &self.stage {
            StreamCutStage::Nodes(_)
            | StreamCutStage::Metadata
            | StreamCutStage::Groups(_)
            | StreamCutStage::Producers => false,
            StreamCutStage::Producer(from) => name < &**from,
            StreamCutStage::Over => true,
        };
        if is_shown || self.producers.is_none() || self.changed.contains_key(name) {
            return;
        }
        self.copied_bytes += producer.map_or(0, Producer::bytes);
        account::uncharged(|| self.changed.insert(name.into(), producer.cloned()));
    }

    /// Passes the next producer to the snapshot. Returns false if there are no more.
    fn show_producer(
        &mut self,
        producers: Option<&Producers>,
        show: &mut ShowPiece<'_>,
        left: &mut usize,
    ) -> bool {
        use std::ops::Bound::{Included, Unbounded};
        let StreamCutStage::Producer(from) = &self.stage else {
            return false;
        };
        let range = (Included(&**from), Unbounded);
        let here = producers.and_then(|all| all.by_name.range::<[u8], _>(range).next());
        let kept = self.changed.first_entry();
        let kept_is_next = match (&kept, here) {
            (Some(kept), Some((name, _))) => kept.key() <= name,
            (kept, _) => kept.is_some(),
        };
        let mut show = |name: &[u8], producer: &Producer| {
            *left = left.saturating_sub(1 + producer.len());
            account::uncharged(|| show(StreamPiece::Producer(name, producer)));
        };
        let next = if kept_is_next {
            let Some((name, producer)) =
                account::uncharged(|| kept.map(|kept| kept.remove_entry()))
            else {
                return false;
            };
            if let Some(producer) = &producer {
                show(&name, producer);
            }
            account::uncharged(|| {
                drop(producer);
                behind(&name)
            })
        } else if let Some((name, producer)) = here {
            show(name, producer);
            account::uncharged(|| behind(name))
        } else {
            return false;
        };
        account::uncharged(|| self.stage = StreamCutStage::Producer(next));
        true
    }

    /// Passes the next node to the snapshot. Returns false if there are no more.
    fn show_node(
        &mut self,
        nodes: &BTreeMap<StreamId, Node>,
        show: &mut ShowPiece<'_>,
        left: &mut usize,
    ) -> bool {
        let StreamCutStage::Nodes(from) = self.stage else {
            return false;
        };
        *left = left.saturating_sub(1);
        let mut here = nodes.range(from..).next();
        here = here.filter(|(master, _)| **master <= self.last);
        let kept = self.nodes.first_entry();
        let kept_is_next = match (&kept, here) {
            (Some(kept), Some((master, _))) => kept.key() <= master,
            (kept, _) => kept.is_some(),
        };
        let mut show = |master: StreamId, node: &Node| {
            *left = left.saturating_sub(node.bytes().len() / BYTES_PER_PIECE);
            account::uncharged(|| show(StreamPiece::Node(master, node)));
        };
        let shown = if kept_is_next {
            let Some((master, before)) =
                account::uncharged(|| kept.map(|kept| kept.remove_entry()))
            else {
                return false;
            };
            match before {
                NodeBeforeImage::Absent => {}
                NodeBeforeImage::Moved(node) => show(master, &node),
                NodeBeforeImage::Copied(node) => {
                    show(master, &node);
                    account::uncharged(|| drop(node));
                }
            }
            master
        } else if let Some((master, node)) = here {
            show(*master, node);
            *master
        } else {
            return false;
        };
        match shown.next() {
            Some(next) => self.stage = StreamCutStage::Nodes(next),
            None => return false,
        }
        true
    }
}

/// Saving a node takes as long as saving a small piece for each of these bytes.
const BYTES_PER_PIECE: usize = 64;

impl StreamValue {
    /// Makes a cut: [`StreamValue::show_cut`] will return the current state, regardless of later changes.
    pub fn begin_cut(&mut self) {
        account::uncharged(|| {
            let last = self.nodes.last_key_value().map(|(master, _)| *master);
            self.cut = Some(Box::new(StreamCut {
                stage: last.map_or(StreamCutStage::Metadata, |_| {
                    StreamCutStage::Nodes(StreamId::MIN)
                }),
                metadata: self.metadata,
                groups: self.groups.len(),
                last: last.unwrap_or(StreamId::MIN),
                nodes: BTreeMap::new(),
                producers: self
                    .producers()
                    .map(|producers| (producers.facts, producers.by_name.len())),
                changed: BTreeMap::new(),
                copied_bytes: 0,
            }));
            self.groups.begin_cut();
        });
    }

    /// Passes about `budget` small pieces in their state at the cut to `show`. Returns true while more are left.
    pub fn show_cut(&mut self, budget: usize, show: &mut ShowPiece<'_>) -> bool {
        let StreamValue {
            nodes,
            groups,
            producers,
            cut,
            ..
        } = self;
        let Some(cut) = cut else { return false };
        let mut left = budget.max(1);
        while left > 0 {
            match &mut cut.stage {
                StreamCutStage::Nodes(_) => {
                    if !cut.show_node(nodes, show, &mut left) {
                        cut.stage = StreamCutStage::Metadata;
                    }
                }
                StreamCutStage::Metadata => {
                    account::uncharged(|| show(StreamPiece::Metadata(cut.metadata, cut.groups)));
                    cut.stage = StreamCutStage::Groups(Box::default());
                    left -= 1;
                }
                StreamCutStage::Groups(from) => {
                    let next = groups.show_cut(from, &mut left, show);
                    let next = next.map_or(StreamCutStage::Producers, StreamCutStage::Groups);
                    account::uncharged(|| cut.stage = next);
                }
                StreamCutStage::Producers => {
                    cut.stage = match cut.producers {
                        Some((facts, count)) => {
                            account::uncharged(|| show(StreamPiece::Producers(facts, count)));
                            StreamCutStage::Producer(Box::default())
                        }
                        None => StreamCutStage::Over,
                    };
                    left -= 1;
                }
                StreamCutStage::Producer(_) => {
                    if !cut.show_producer(producers.as_deref(), show, &mut left) {
                        if let Some((facts, _)) = cut.producers {
                            account::uncharged(|| show(StreamPiece::ProducersEnd(facts)));
                        }
                        account::uncharged(|| cut.stage = StreamCutStage::Over);
                    }
                }
                StreamCutStage::Over => {
                    account::uncharged(|| self.cut = None);
                    return false;
                }
            }
        }
        true
    }

    /// Drops the cut, and about `budget` pieces that were kept for it. Returns true while more are left.
    pub fn forget_cut(&mut self, budget: usize) -> bool {
        let StreamValue { groups, cut, .. } = self;
        let Some(cut) = cut else { return false };
        account::uncharged(|| cut.stage = StreamCutStage::Over);
        let mut left = budget;
        while left > 0 {
            let Some((_, before)) = account::uncharged(|| cut.nodes.pop_first()) else {
                break;
            };
            match before {
                NodeBeforeImage::Moved(node) => drop(node),
                before => account::uncharged(|| drop(before)),
            }
            left -= 1;
        }
        while left > 0 {
            let Some((_, producer)) = account::uncharged(|| cut.changed.pop_first()) else {
                break;
            };
            left = left.saturating_sub(1 + producer.as_ref().map_or(0, Producer::len));
            account::uncharged(|| drop(producer));
        }
        if groups.forget_cut(&mut left) || left == 0 {
            return true;
        }
        account::uncharged(|| self.cut = None);
        false
    }

    /// Returns the bytes of nodes copied since the last call.
    pub fn take_copied(&mut self) -> usize {
        let cut = self.cut.as_deref_mut();
        cut.map_or(0, |cut| std::mem::take(&mut cut.copied_bytes))
    }

    /// True if a part of the cut has not been saved yet.
    pub fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Returns the number of entries that are pending in any of the stream's groups.
    pub fn pending_count(&self) -> usize {
        let groups = self.groups.iter();
        groups.map(|(_, group)| group.pending_count()).sum()
    }
}

impl Groups {
    fn begin_cut(&mut self) {
        for group in self.by_name.values_mut() {
            group.begin_cut();
        }
        self.gone = Some(Box::default());
    }

    /// Keeps a group that was destroyed, if it existed at the cut and has not been saved yet.
    pub(super) fn keep_gone(&mut self, name: &[u8], group: ConsumerGroup) {
        if let Some(gone) = &mut self.gone
            && group.is_cut()
        {
            account::uncharged(|| gone.insert(name.into(), group));
        }
    }

    /// Continues saving with the group of this name, or the first after it. Returns the name to continue from, None
    /// after the last group.
    fn show_cut(
        &mut self,
        from: &[u8],
        left: &mut usize,
        show: &mut ShowPiece<'_>,
    ) -> Option<Box<[u8]>> {
        use std::ops::Bound::{Included, Unbounded};
        let range = (Included(from), Unbounded);
        let gone = self.gone.as_deref_mut();
        let gone = gone.and_then(|gone| gone.range_mut::<[u8], _>(range).next());
        let mut here = None;
        for (name, group) in self.by_name.range_mut::<[u8], _>(range) {
            if gone.as_ref().is_some_and(|(gone, _)| *gone <= name) {
                break;
            }
            if group.is_cut() {
                here = Some((name, group));
                break;
            }
            // The group was created after the cut: skip it.
            *left = left.saturating_sub(1);
            if *left == 0 {
                return Some(account::uncharged(|| behind(name)));
            }
        }
        let (name, group, is_gone) = match (here, gone) {
            (Some((name, group)), _) => (name, group, false),
            (None, Some((name, group))) => (name, group, true),
            (None, None) => {
                account::uncharged(|| self.gone = None);
                return None;
            }
        };
        let name: Box<[u8]> = account::uncharged(|| name.clone());
        if group.show_cut(&name, left, show) {
            return Some(name);
        }
        // A destroyed group is freed in pieces, too.
        if is_gone && group.free_some(left) {
            return Some(name);
        }
        if is_gone && let Some(gone) = &mut self.gone {
            let taken = account::uncharged(|| gone.remove_entry(&name));
            if let Some((key, group)) = taken {
                drop(group);
                account::uncharged(|| drop(key));
            }
            // A group of the same name may have been created since.
        }
        let next = account::uncharged(|| behind(&name));
        account::uncharged(|| drop(name));
        Some(next)
    }

    /// Drops the state kept for the cut. Returns true while more is left.
    fn forget_cut(&mut self, left: &mut usize) -> bool {
        for group in self.by_name.values_mut() {
            if *left == 0 || group.forget_cut(left) {
                return true;
            }
        }
        let Some(gone) = &mut self.gone else {
            return false;
        };
        while let Some(mut group) = gone.first_entry() {
            let group_gone = group.get_mut();
            if *left == 0 || group_gone.forget_cut(left) || group_gone.free_some(left) {
                return true;
            }
            let (key, group) = account::uncharged(|| group.remove_entry());
            drop(group);
            account::uncharged(|| drop(key));
        }
        account::uncharged(|| self.gone = None);
        false
    }
}

/// Returns the smallest name greater than this one.
fn behind(name: &[u8]) -> Box<[u8]> {
    let mut next = Vec::with_capacity(name.len() + 1);
    next.extend_from_slice(name);
    next.push(0);
    next.into()
}
