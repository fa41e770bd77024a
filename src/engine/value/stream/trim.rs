//! Trimming: removes old entries, by whole nodes where possible.
//!
//! Exact trimming marks the entries of the last node that it reaches as deleted; approximate trimming stops before
//! that node. The module knows nothing of the commands that use it.

use super::id::StreamId;
use super::node::{EntryFlags, Node};
use super::{Groups, StreamValue};

/// The bound to which a stream is trimmed (`MAXLEN` or `MINID`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// At most this many entries stay.
    Length(u64),
    /// Entries with this ID and greater ones stay.
    Id(StreamId),
}

/// The treatment of groups in which a deleted entry is pending (`KEEPREF`, `DELREF`, `ACKED`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum References {
    /// The entries stay pending.
    #[default]
    Keep,
    /// The entries are no longer pending in any group.
    Delete,
    /// Only entries that every group has read and acknowledged are deleted.
    Acknowledged,
}

/// The parameters of trimming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trimming {
    /// Bound of the trimmed stream.
    pub bound: Bound,
    /// True if only whole nodes are removed.
    pub is_approximate: bool,
    /// Maximum number of entries to delete; 0 for any number.
    pub limit: u64,
    /// Treatment of pending entries.
    pub references: References,
}

impl StreamValue {
    /// Removes entries beyond the bound. Returns the number of deleted entries.
    pub fn trim(&mut self, trimming: Trimming) -> u64 {
        let mut deleted = 0;
        let mut from = StreamId::MIN;
        while let Some((&master, node)) = self.nodes.range_mut(from..).next() {
            if matches!(trimming.bound, Bound::Length(max) if self.metadata.length <= max) {
                break;
            }
            let (live, _) = node.counts();
            if trimming.limit != 0 && deleted + live > trimming.limit {
                break;
            }
            let reaches_on = match trimming.bound {
                Bound::Length(max) => self.metadata.length.saturating_sub(live) >= max,
                Bound::Id(id) => last_id(node, master) < id,
            };
            if !reaches_on && trimming.is_approximate {
                break;
            }
            if let Some(before) = &mut self.before {
                before.keep(master, Some(node));
            }
            let gone = match trimming.references {
                References::Keep if reaches_on => live,
                _ => {
                    if let Some(cut) = &mut self.cut {
                        cut.note(master, Some(node));
                    }
                    let left = match trimming.bound {
                        Bound::Length(max) => self.metadata.length.saturating_sub(max),
                        Bound::Id(_) => u64::MAX,
                    };
                    trim_node(node, master, trimming, left, &mut self.groups)
                }
            };
            self.metadata.length = self.metadata.length.saturating_sub(gone);
            deleted += gone;
            let is_whole = reaches_on && gone == live;
            // A node that stays because groups still need its entries does not end the search.
            let goes_on = reaches_on || trimming.references == References::Acknowledged;
            if is_whole
                && let Some(node) = self.nodes.remove(&master)
                && let Some(cut) = &mut self.cut
            {
                cut.take(master, node);
            }
            match master.next() {
                Some(next) if goes_on => from = next,
                _ => break,
            }
        }
        if deleted > 0 {
            self.find_first();
        }
        deleted
    }
}

/// Returns the ID of the last entry of a node, deleted or not.
fn last_id(node: &Node, master: StreamId) -> StreamId {
    node.items(master, true)
        .next()
        .map_or(StreamId::MIN, |item| item.id)
}

/// Deletes entries of one node, at most `left` of them. Returns their number.
fn trim_node(
    node: &mut Node,
    master: StreamId,
    trimming: Trimming,
    left: u64,
    groups: &mut Groups,
) -> u64 {
    let needed_from = groups.needed_from();
    let mut marks: Vec<EntryFlags> = Vec::new();
    for item in node.items(master, false) {
        let is_behind = matches!(trimming.bound, Bound::Id(id) if item.id >= id);
        if is_behind || marks.len() as u64 >= left {
            break;
        }
        if item.is_deleted() {
            continue;
        }
        match trimming.references {
            References::Keep => {}
            References::Delete => groups.forget(item.id),
            References::Acknowledged => {
                if groups.need(item.id, needed_from) {
                    continue;
                }
            }
        }
        marks.push(item.mark());
    }
    node.delete(&marks);
    marks.len() as u64
}
