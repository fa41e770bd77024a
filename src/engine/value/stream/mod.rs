//! Streams: entries in the order of their IDs, in packed nodes, and the consumer groups that read them.
//!
//! ```text
//! this file    the stream itself: adding, deleting, reading ranges, and its metadata
//! id           IDs
//! node         one packed node, byte for byte as in Redis
//! trim         trimming
//! group        consumer groups
//! producers    the ids under which producers added entries; remembering keeps them up to date
//! before       the undo state
//! cut          the state at a moment, delivered in pieces
//! piece        the pieces; consumer the consumers of a group, and their pending entries
//! relocate     moving to other addresses in memory
//! radix        the figures that XINFO reports for a tree that does not exist here
//! ```
//!
//! Invariants: nodes are in the order of their IDs and do not overlap; `length` is the number of entries that are not
//! deleted, except in a stream that was restored with another length; `first_id` is the ID of the first of these
//! entries, 0-0 if there are none; no entry's ID is greater than `last_id`.

mod before;
pub mod consumer;
pub mod cut;
pub mod group;
pub mod id;
pub mod node;
pub mod piece;
pub mod producers;
mod radix;
mod relocate;
mod remembering;
pub mod trim;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, btree_map};

use super::{Collection, DataType, Object, ObjectKind, ValueEncoding};
use basalt_core::structures::entry::{Entry, EntryRef, Value};
pub use before::Before;
use before::{ByName, GroupsCopy};
use cut::StreamCut;
use group::ConsumerGroup;
use id::StreamId;
use node::{Items, Node, StreamEntry};
use producers::Producers;

/// The metadata of a stream, beside its entries and groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamMetadata {
    /// Number of entries that are not deleted; in a stream that was restored with another length, that length,
    /// adjusted by each change.
    pub length: u64,
    /// The ID of the first entry that is not deleted; 0-0 if there is none.
    pub first_id: StreamId,
    /// The greatest ID that was ever added, or set by XSETID.
    pub last_id: StreamId,
    /// The greatest ID that was ever deleted by XDEL or similar, not by trimming.
    pub max_deleted_id: StreamId,
    /// Number of entries ever added.
    pub entries_added: u64,
}

impl StreamMetadata {
    /// Returns the ID of an entry that is added now; None if all IDs are used up.
    pub fn next_id(&self, now_ms: u64) -> Option<StreamId> {
        if now_ms > self.last_id.ms {
            Some(StreamId::new(now_ms, 0))
        } else {
            self.last_id.next()
        }
    }

    /// True if an entry at or after `start` was deleted by its ID, so that counting cannot tell how far a group has
    /// read.
    fn has_deleted_from(&self, start: StreamId) -> bool {
        self.first_id != StreamId::MIN
            && self.max_deleted_id != StreamId::MIN
            && self.first_id <= self.max_deleted_id
            && start <= self.max_deleted_id
    }

    /// Returns how many entries were ever added up to this ID, if that is known without a search; otherwise None. It is
    /// known at the end of the stream, and, if no entry within the stream was deleted, up to its first entry.
    pub fn entries_before(&self, id: StreamId) -> Option<i64> {
        let added = self.entries_added as i64;
        if self.entries_added == 0 {
            return Some(0);
        }
        if id == self.last_id || (self.length == 0 && id <= self.last_id) {
            return Some(added);
        }
        let is_whole = self.max_deleted_id == StreamId::MIN || self.max_deleted_id < self.first_id;
        if id > self.last_id || id > self.first_id || !is_whole {
            return None;
        }
        let at_first = i64::from(id == self.first_id);
        Some(
            added
                .wrapping_sub(self.length as i64)
                .wrapping_add(at_first),
        )
    }
}

/// The limits of a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeLimits {
    /// Maximum bytes; 0 for no limit.
    pub bytes_max: u64,
    /// Maximum entries, including deleted ones; 0 for no limit.
    pub entries_max: u64,
}

/// Maximum bytes of an entry's names and values together, and maximum bytes of a node.
pub const ENTRY_BYTES_MAX: u64 = 1 << 30;

/// The groups of a stream, by name.
#[derive(Default)]
pub struct Groups {
    by_name: ByName,
    kept: GroupsCopy,
    /// Groups that were destroyed since the cut and have not been saved yet; None if no cut is in progress.
    gone: Option<Box<ByName>>,
}

impl Clone for Groups {
    fn clone(&self) -> Groups {
        Groups {
            by_name: self.by_name.clone(),
            kept: GroupsCopy::Unasked,
            gone: None,
        }
    }
}

impl Groups {
    /// Returns the number of groups.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// True if there are no groups.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns a group by name.
    pub fn get(&self, name: &[u8]) -> Option<&ConsumerGroup> {
        self.by_name.get(name)
    }

    /// Returns a group by name, for changing it.
    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut ConsumerGroup> {
        self.kept.note(&self.by_name);
        let group = self.by_name.get_mut(name)?;
        group.keep_heads(name);
        Some(group)
    }

    /// Adds a group, or replaces the group of this name.
    pub fn insert(&mut self, name: &[u8], group: ConsumerGroup) {
        self.kept.note(&self.by_name);
        self.remove(name);
        self.by_name.insert(name.into(), group);
    }

    /// Destroys a group. Returns whether it existed.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        self.kept.note(&self.by_name);
        let Some(mut group) = self.by_name.remove(name) else {
            return false;
        };
        if group.is_cut() {
            group.keep_heads(name);
            self.keep_gone(name, group);
        }
        true
    }

    /// Returns the groups with their names, in the order of the names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &ConsumerGroup)> {
        self.by_name.iter().map(|(name, group)| (&**name, group))
    }

    /// Removes an entry from the pending entries of all groups.
    pub fn forget(&mut self, id: StreamId) {
        if self.by_name.is_empty() {
            return;
        }
        self.kept.note(&self.by_name);
        for (name, group) in &mut self.by_name {
            if group.pending(id).is_some() {
                group.keep_heads(name);
                group.acknowledge(id);
            }
        }
    }

    /// Returns the least ID that some group has read last: entries after it have not been read by every group. None
    /// without groups.
    pub fn needed_from(&self) -> Option<StreamId> {
        self.by_name.values().map(|group| group.last_id).min()
    }

    /// True if any group has yet to read or to acknowledge an entry, given [`Groups::needed_from`].
    pub fn need(&self, id: StreamId, needed_from: Option<StreamId>) -> bool {
        needed_from.is_some_and(|last| id > last)
            || self
                .by_name
                .values()
                .any(|group| group.pending(id).is_some())
    }
}

/// A stream, see the module.
#[derive(Default)]
pub struct StreamValue {
    nodes: BTreeMap<StreamId, Node>,
    metadata: StreamMetadata,
    /// Consumer groups of the stream.
    pub groups: Groups,
    /// Records of the stream's producers; None until one has identified itself.
    producers: Option<Box<Producers>>,
    /// The undo state; None while changes are not recorded.
    before: Option<Box<Before>>,
    /// The state at a cut of which some part has not been saved yet.
    cut: Option<Box<StreamCut>>,
    /// True if the stream was restored with another length than the number of its entries.
    has_claimed_length: bool,
}

impl Clone for StreamValue {
    fn clone(&self) -> StreamValue {
        StreamValue {
            nodes: self.nodes.clone(),
            metadata: self.metadata,
            groups: self.groups.clone(),
            producers: self.producers.clone(),
            before: None,
            cut: None,
            has_claimed_length: self.has_claimed_length,
        }
    }
}

impl StreamValue {
    /// Returns the metadata.
    pub fn metadata(&self) -> StreamMetadata {
        self.metadata
    }

    /// True if the stream was restored with another length than the number of its entries.
    pub fn has_claimed_length(&self) -> bool {
        self.has_claimed_length
    }

    /// For RESTORE: records that the stored length differs from the number of entries.
    pub fn note_claimed_length(&mut self) {
        self.has_claimed_length = true;
    }

    /// Sets the metadata, for XSETID and RESTORE. Values that contradict the entries break the invariants; the caller
    /// must check them.
    pub fn set_metadata(&mut self, metadata: StreamMetadata) {
        self.metadata = metadata;
    }

    // Adding and deleting ------------------------------------------------------------------------------

    /// Adds an entry; its ID must be greater than all before. `part` returns its names and values, alternating.
    pub fn append<'p>(
        &mut self,
        id: StreamId,
        field_count: usize,
        part: impl Fn(usize) -> &'p [u8],
        limits: NodeLimits,
    ) {
        debug_assert!(id > self.metadata.last_id, "IDs ascend");
        let entry_bytes: u64 = (0..2 * field_count).map(|at| part(at).len() as u64).sum();
        let mut last = self.nodes.last_entry();
        if let Some(open) = &mut last
            && is_full(open.get(), entry_bytes, limits)
        {
            open.get_mut().close();
            last = None;
        }
        match last {
            Some(mut open) => {
                let master = *open.key();
                if let Some(before) = &mut self.before {
                    before.keep(master, Some(open.get()));
                }
                if let Some(cut) = &mut self.cut {
                    cut.note(master, Some(open.get()));
                }
                open.get_mut().append(master, id, field_count, &part);
            }
            None => {
                if let Some(before) = &mut self.before {
                    before.keep(id, None);
                }
                if let Some(cut) = &mut self.cut {
                    cut.note(id, None);
                }
                let mut node = Node::new(field_count, &part);
                node.append(id, id, field_count, &part);
                self.nodes.insert(id, node);
            }
        }
        let metadata = &mut self.metadata;
        metadata.length = metadata.length.saturating_add(1);
        metadata.entries_added = metadata.entries_added.saturating_add(1);
        metadata.last_id = id;
        if metadata.first_id == StreamId::MIN {
            metadata.first_id = id;
        }
    }

    /// Deletes an entry. Returns whether it existed. It stays pending in the groups.
    pub fn delete(&mut self, id: StreamId) -> bool {
        let Some((&master, node)) = self.nodes.range_mut(..=id).next_back() else {
            return false;
        };
        let found = node
            .items(master, false)
            .take_while(|item| item.id <= id)
            .find(|item| item.id == id && !item.is_deleted());
        let Some(mark) = found.map(|item| item.mark()) else {
            return false;
        };
        if let Some(before) = &mut self.before {
            before.keep(master, Some(node));
        }
        if let Some(cut) = &mut self.cut {
            cut.note(master, Some(node));
        }
        if node.counts().0 <= 1 {
            self.nodes.remove(&master);
        } else {
            node.delete(&[mark]);
        }
        self.metadata.length = self.metadata.length.saturating_sub(1);
        self.metadata.max_deleted_id = self.metadata.max_deleted_id.max(id);
        if id == self.metadata.first_id {
            self.find_first();
        }
        true
    }

    fn find_first(&mut self) {
        let first = self.all().next().map(|item| item.id);
        self.metadata.first_id = first.unwrap_or(StreamId::MIN);
    }

    // Reading ------------------------------------------------------------------------------------------

    /// True if an entry exists.
    pub fn contains(&self, id: StreamId) -> bool {
        self.range(id, id).next().is_some()
    }

    /// Returns all entries, ascending.
    pub fn all(&self) -> StreamRange<'_> {
        self.range(StreamId::MIN, StreamId::MAX)
    }

    /// Returns the entries with IDs in a range, ascending.
    pub fn range(&self, start: StreamId, end: StreamId) -> StreamRange<'_> {
        let before = self.nodes.range(..=start).next_back();
        let from = before.map_or(start, |(master, _)| *master);
        StreamRange::new(&self.nodes, from, start, end, false)
    }

    /// Returns the entries with IDs in a range, descending.
    pub fn range_reverse(&self, start: StreamId, end: StreamId) -> StreamRange<'_> {
        let before = self.nodes.range(..=start).next_back();
        let from = before.map_or(start, |(master, _)| *master);
        StreamRange::new(&self.nodes, from, start, end, true)
    }

    /// Returns the ID of the last entry that is not deleted; None if there is none.
    pub fn last_entry_id(&self) -> Option<StreamId> {
        let mut entries = self.range_reverse(StreamId::MIN, StreamId::MAX);
        entries.next().map(|item| item.id)
    }

    // Nodes --------------------------------------------------------------------------------------------

    /// Returns the nodes with their first IDs, for DUMP.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (StreamId, &Node)> {
        self.nodes.iter().map(|(master, node)| (*master, node))
    }

    /// Adds a node after all others, for RESTORE. Returns false if its ID is not greater than theirs. The metadata is
    /// not changed: see [`StreamValue::set_metadata`] and [`StreamValue::metadata_from_nodes`].
    pub fn push_node(&mut self, master: StreamId, node: Node) -> bool {
        let is_behind = self.last_written_id().is_none_or(|last| last < master);
        if is_behind {
            self.nodes.insert(master, node);
        }
        is_behind
    }

    /// Returns the ID of the last entry in the nodes, whether or not it is deleted.
    pub fn last_written_id(&self) -> Option<StreamId> {
        let (master, node) = self.nodes.last_key_value()?;
        let last = node.items(*master, true).next();
        Some(last.map_or(*master, |item| item.id))
    }

    /// Returns the metadata with length, first and last ID taken from the nodes, for RESTORE of older forms.
    pub fn metadata_from_nodes(&self) -> StreamMetadata {
        StreamMetadata {
            length: self.nodes.values().map(|node| node.counts().0).sum(),
            first_id: self.all().next().map_or(StreamId::MIN, |item| item.id),
            last_id: self.last_entry_id().unwrap_or(StreamId::MIN),
            ..self.metadata
        }
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the number of nodes that Redis's radix tree would have. Beyond some thousand nodes the number is
    /// extrapolated from the first ones.
    pub fn tree_node_count(&self) -> u64 {
        const EXACT_MAX: usize = 8192;
        let counted = self.nodes.len().min(EXACT_MAX);
        let exact = radix::node_count(self.nodes.keys().take(counted).copied());
        if counted == self.nodes.len() {
            return exact;
        }
        exact.saturating_mul(self.nodes.len() as u64) / counted as u64
    }
}

fn is_full(node: &Node, entry_bytes: u64, limits: NodeLimits) -> bool {
    let bytes_max = match limits.bytes_max {
        0 => ENTRY_BYTES_MAX,
        max => max.min(ENTRY_BYTES_MAX),
    };
    if node.bytes().len() as u64 + entry_bytes >= bytes_max {
        return true;
    }
    let (live, deleted) = node.counts();
    limits.entries_max != 0 && live + deleted >= limits.entries_max
}

/// Entries in a range that are not deleted.
pub struct StreamRange<'a> {
    nodes: btree_map::Range<'a, StreamId, Node>,
    items: Option<Items<'a>>,
    start: StreamId,
    end: StreamId,
    is_reverse: bool,
}

impl<'a> StreamRange<'a> {
    fn new(
        nodes: &'a BTreeMap<StreamId, Node>,
        from: StreamId,
        start: StreamId,
        end: StreamId,
        is_reverse: bool,
    ) -> StreamRange<'a> {
        // The bounds of a range of the map must not cross, so an empty range is handled separately.
        let nodes = if start <= end {
            nodes.range(from..=end)
        } else {
            nodes.range(from..from)
        };
        StreamRange {
            nodes,
            items: None,
            start,
            end,
            is_reverse,
        }
    }
}

impl<'a> Iterator for StreamRange<'a> {
    type Item = StreamEntry<'a>;

    fn next(&mut self) -> Option<StreamEntry<'a>> {
        loop {
            while let Some(item) = self.items.as_mut().and_then(Iterator::next) {
                let (is_before, is_behind) = (item.id < self.start, item.id > self.end);
                if if self.is_reverse {
                    is_before
                } else {
                    is_behind
                } {
                    self.items = None;
                    self.start = StreamId::MAX;
                    self.end = StreamId::MIN;
                    return None;
                }
                if !is_before && !is_behind && !item.is_deleted() {
                    return Some(item);
                }
            }
            if self.start > self.end {
                return None;
            }
            let (master, node) = if self.is_reverse {
                self.nodes.next_back()?
            } else {
                self.nodes.next()?
            };
            self.items = Some(node.items(*master, self.is_reverse));
        }
    }
}

/// Type and encoding of every stream.
pub const KIND: ObjectKind = ObjectKind::new(DataType::Stream, ValueEncoding::Stream);

/// Creates an entry of the keyspace that holds a stream, without a deadline.
pub fn stream_entry(key: &[u8], stream: StreamValue) -> Entry<Object> {
    let body = Collection::Stream(Box::new(stream));
    Entry::object(KIND.0, key, Object::boxed(body), None)
}

/// Returns the stream in an entry of the keyspace.
pub fn stream_of(entry: EntryRef<'_, Object>) -> Option<&StreamValue> {
    match entry.value() {
        Value::Object(object) => match &object.body {
            Collection::Stream(stream) => Some(stream),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the stream in an entry of the keyspace, for changing it.
pub fn stream_of_mut(entry: &mut Entry<Object>) -> Option<&mut StreamValue> {
    match &mut entry.object_mut()?.body {
        Collection::Stream(stream) => Some(stream),
        _ => None,
    }
}
