//! Lists as handlers access them: a listpack inside the entry while small, a quicklist when large.
//!
//! A list becomes a quicklist when the listpack with the elements to be added would exceed the limit of a node, and a
//! listpack again when one node of half that size is left, as in Redis 7.2. The limits are passed in with every
//! change; a quicklist keeps the limits of its creation for its nodes.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering};

use super::body::{CollectionBody, CollectionCursor, CollectionPiece, Journal, ShowPiece};
use super::object::{Collection, Object};
use super::{DataType, ObjectKind, ValueEncoding};
use basalt_core::alloc::slabs::Mover;
use basalt_core::base::number::parse_i64;
use basalt_core::structures::block::Content;
use basalt_core::structures::entry::{Entry, EntryRef, Value};
use basalt_core::structures::item::Item;
use basalt_core::structures::listpack::{self, Element, Listpack, ListpackMut};
use basalt_core::structures::quicklist::{End, Quicklist, QuicklistLimits};

/// A list inside its entry.
pub const LISTPACK: ObjectKind = ObjectKind::new(DataType::List, ValueEncoding::Listpack);
/// A list of many nodes.
pub const QUICKLIST: ObjectKind = ObjectKind::new(DataType::List, ValueEncoding::Quicklist);

/// Elements of at least this many bytes have a node for themselves, in lists that are created from now on; set only
/// by DEBUG.
static PLAIN_BYTES_MIN: AtomicU32 = AtomicU32::new(u32::MAX);

/// Sets the minimum bytes of elements with nodes of their own; 0 restores the default.
pub fn set_plain_bytes_min(bytes: u32) {
    PLAIN_BYTES_MIN.store(if bytes == 0 { u32::MAX } else { bytes }, Ordering::Relaxed);
}

/// Returns the limits set by the parameters `list-max-listpack-size` and `list-compress-depth`.
pub fn limits(fill: i32, compress_depth: u32) -> QuicklistLimits {
    QuicklistLimits {
        fill,
        compress_depth,
        plain_bytes_min: PLAIN_BYTES_MIN.load(Ordering::Relaxed),
    }
}

/// Saving a node takes as long as saving a small element for each of these bytes.
const BYTES_PER_ELEMENT: usize = 64;

impl CollectionBody for Quicklist {
    fn duplicate(&self) -> Quicklist {
        Quicklist::duplicate(self)
    }

    fn prefetch_end(&self, end: End) {
        Quicklist::prefetch(self, end);
    }

    fn relocate_some(
        &mut self,
        from: CollectionCursor,
        budget: usize,
        mover: &mut Mover,
    ) -> CollectionCursor {
        let first = usize::try_from(from.single()).unwrap_or(usize::MAX);
        let next = Quicklist::relocate_nodes(self, first, budget, mover);
        CollectionCursor::from(next as u64)
    }

    fn keep_changes(&mut self, journal: Option<Journal>) -> bool {
        Quicklist::keep_changes(self, Journal::into_log(journal));
        true
    }

    fn take_changes(&mut self) -> Option<Journal> {
        let limits = self.limits();
        let changes = Quicklist::take_changes(self)?;
        Some(Journal::List { changes, limits })
    }

    fn undo(&mut self, journal: &Journal) {
        if let Journal::List { changes, .. } = journal {
            Quicklist::undo(self, changes);
        }
    }

    fn elements(&self) -> Option<usize> {
        Some(self.len())
    }

    fn begin_cut(&mut self) -> bool {
        Quicklist::begin_cut(self);
        true
    }

    fn show_cut(&mut self, budget: usize, show: &mut ShowPiece<'_>) -> bool {
        let bytes_max = budget.saturating_mul(BYTES_PER_ELEMENT);
        Quicklist::show_cut(self, bytes_max, &mut |node, count| {
            show(CollectionPiece::Node(node, count))
        })
    }

    fn take_copied(&mut self) -> usize {
        Quicklist::take_copied(self)
    }

    fn forget_cut(&mut self, budget: usize) -> bool {
        Quicklist::forget_cut(self, budget)
    }

    fn free_some(&mut self, budget: usize) -> bool {
        Quicklist::free_some(self, budget)
    }
}

/// A list for reading.
#[derive(Clone, Copy)]
pub struct ListRef<'a>(ListRepr<'a>);

#[derive(Clone, Copy)]
enum ListRepr<'a> {
    Listpack(Listpack<'a>),
    Nodes(&'a Quicklist),
}

impl<'a> ListRef<'a> {
    /// Returns the list in an entry; None if the entry holds another type.
    #[inline]
    pub fn of(entry: EntryRef<'a, Object>) -> Option<ListRef<'a>> {
        match entry.value() {
            Value::Bytes(bytes) if entry.kind() == LISTPACK.0 => {
                Some(ListRef(ListRepr::Listpack(Listpack::new(bytes))))
            }
            Value::Object(object) => match &object.body {
                Collection::List(list) => Some(ListRef(ListRepr::Nodes(list))),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the quicklist; None if the list is a listpack.
    pub fn as_quicklist(self) -> Option<&'a Quicklist> {
        match self.0 {
            ListRepr::Listpack(_) => None,
            ListRepr::Nodes(list) => Some(list),
        }
    }

    /// Returns the number of elements.
    #[inline]
    pub fn len(self) -> usize {
        match self.0 {
            ListRepr::Listpack(pack) => pack.len(),
            ListRepr::Nodes(list) => list.len(),
        }
    }

    /// True if the list has no elements; never true of a list that is a key's value.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Passes the element at an index to `read` and returns the result; None if the index is not in the list.
    pub fn get<R>(self, index: usize, read: impl FnOnce(Item<'_>) -> R) -> Option<R> {
        match self.0 {
            ListRepr::Listpack(pack) => {
                let at = pack.nth(isize::try_from(index).ok()?)?;
                Some(read(pack.get(at).into()))
            }
            ListRepr::Nodes(list) => list.get(index, read),
        }
    }

    /// Visits elements from one end towards the other, skipping the first `skipped`, until `visit` returns a break.
    pub fn walk<B>(
        self,
        from: End,
        skipped: usize,
        mut visit: impl FnMut(Item<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        match self.0 {
            ListRepr::Listpack(pack) => match from {
                End::Front => {
                    { pack.iter().skip(skipped) }.try_for_each(|element| visit(element.into()))
                }
                End::Back => { pack.iter().rev().skip(skipped) }
                    .try_for_each(|element| visit(element.into())),
            },
            ListRepr::Nodes(list) => list.walk(from, skipped, &mut visit),
        }
    }

    /// Visits `count` elements, or fewer if the list ends before.
    pub fn visit(self, from: End, skipped: usize, count: usize, mut visit: impl FnMut(Item<'_>)) {
        if count == 0 {
            return;
        }
        let mut left = count;
        let _ = self.walk(from, skipped, |element| {
            visit(element);
            left -= 1;
            if left == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
    }

    /// Visits the indexes of the elements that equal `element`, in order from one end, examining at most
    /// `looked_at_max` elements; indexes count from the front.
    pub fn positions(
        self,
        element: &[u8],
        from: End,
        looked_at_max: usize,
        mut visit: impl FnMut(usize) -> ControlFlow<()>,
    ) {
        let (len, integer) = (self.len(), parse_i64(element));
        let mut looked_at = 0;
        let _ = self.walk(from, 0, |candidate| {
            if looked_at == looked_at_max {
                return ControlFlow::Break(());
            }
            let index = match from {
                End::Front => looked_at,
                End::Back => len - 1 - looked_at,
            };
            looked_at += 1;
            if equals(candidate, element, integer) {
                visit(index)
            } else {
                ControlFlow::Continue(())
            }
        });
    }

    /// Returns the index of the first element equal to `element`.
    pub fn position(self, element: &[u8]) -> Option<usize> {
        let mut found = None;
        self.positions(element, End::Front, usize::MAX, |index| {
            found = Some(index);
            ControlFlow::Break(())
        });
        found
    }
}

#[inline]
fn equals(candidate: Item<'_>, bytes: &[u8], integer: Option<i64>) -> bool {
    candidate.equals(bytes, integer)
}

/// Creates a list without elements; the caller must add one, as keys have no empty lists.
pub fn empty_entry(key: &[u8]) -> Entry<Object> {
    Entry::bytes(LISTPACK.0, key, &listpack::EMPTY, None)
}

/// Creates an entry from a quicklist, or from its listpack if it is small; for lists that were not built by commands
/// here.
pub fn entry_of(
    key: &[u8],
    list: Quicklist,
    limits: &QuicklistLimits,
    deadline: Option<u64>,
) -> Entry<Object> {
    match list.single_listpack() {
        Some(pack) if limits.allow(pack.bytes().len(), pack.len()) => {
            Entry::bytes(LISTPACK.0, key, pack.bytes(), deadline)
        }
        _ => Entry::object(
            QUICKLIST.0,
            key,
            Object::boxed(Collection::List(list)),
            deadline,
        ),
    }
}

fn nodes_mut(entry: &mut Entry<Object>) -> Option<&mut Quicklist> {
    match &mut entry.object_mut()?.body {
        Collection::List(list) => Some(list),
        _ => None,
    }
}

/// Converts a listpack to a quicklist if it cannot take `count` more elements of `bytes` bytes in total.
#[inline]
fn make_room(entry: &mut Entry<Object>, bytes: usize, count: usize, limits: &QuicklistLimits) {
    if let Value::Bytes(own) = entry.view().value() {
        let pack = Listpack::new(own);
        if !limits.allow(own.len().saturating_add(bytes), pack.len() + count) {
            to_nodes(entry, limits);
        }
    }
}

fn to_nodes(entry: &mut Entry<Object>, limits: &QuicklistLimits) {
    let mut list = Quicklist::new(*limits);
    if let Value::Bytes(own) = entry.view().value() {
        list.append_listpack(Listpack::new(own));
    }
    entry.set_object(Object::boxed(Collection::List(list)));
    entry.set_kind(QUICKLIST.0);
}

/// Converts a quicklist to a listpack, if that was postponed because changes were being recorded; see [`settle`].
pub(crate) fn settle_late(entry: &mut Entry<Object>) {
    if let Some(limits) = nodes_mut(entry).map(|list| list.limits()) {
        settle(entry, &limits);
    }
}

/// Converts a listpack back to the quicklist that it was before [`settle_late`].
pub(super) fn unsettle(entry: &mut Entry<Object>, limits: QuicklistLimits) {
    if nodes_mut(entry).is_none() {
        to_nodes(entry, &limits);
    }
}

/// Converts a quicklist to a listpack if it has become small; called after removals. While it records an undo
/// journal, or keeps unsaved state for a snapshot, this is left to [`settle_late`].
#[inline]
fn settle(entry: &mut Entry<Object>, limits: &QuicklistLimits) {
    if let Some(list) = nodes_mut(entry)
        && !list.keeps_changes()
        && !list.is_cut()
        && let Some(pack) = list.single_listpack()
        && limits.are_far(pack.bytes().len(), pack.len())
    {
        let bytes = pack.bytes().to_vec();
        entry.set_bytes(&bytes);
        entry.set_kind(LISTPACK.0);
    }
}

/// Adds elements at an end, one after the other. Returns the new length.
pub fn push<'v, I: Iterator<Item = &'v [u8]>>(
    entry: &mut Entry<Object>,
    end: End,
    elements: impl Fn() -> I,
    limits: &QuicklistLimits,
) -> usize {
    if nodes_mut(entry).is_none() {
        let (mut bytes, mut count) = (0_usize, 0);
        for element in elements() {
            bytes = bytes.saturating_add(element.len());
            count += 1;
        }
        make_room(entry, bytes, count, limits);
    }
    if let Some(list) = nodes_mut(entry) {
        elements().for_each(|element| list.push(end, element));
        return list.len();
    }
    let mut pack = ListpackMut::new(entry);
    for element in elements() {
        match end {
            End::Front => pack.push_front(element),
            End::Back => pack.push_back(element),
        }
    }
    pack.as_listpack().len()
}

/// Adds elements at an end, one after the other; long ones as the blocks that they came in.
#[cold]
pub fn push_contents<'v, I: Iterator<Item = Content<'v>>>(
    entry: &mut Entry<Object>,
    end: End,
    elements: impl Fn() -> I,
    limits: &QuicklistLimits,
) -> usize {
    let bytes = elements().fold(0_usize, |bytes, element| {
        bytes.saturating_add(element.len())
    });
    make_room(entry, bytes, elements().count(), limits);
    if let Some(list) = nodes_mut(entry) {
        elements().for_each(|element| list.push_content(end, element));
        return list.len();
    }
    push(entry, end, || elements().map(Content::bytes), limits)
}

/// Adds an element that was removed from another list at an end; a long element keeps its block.
pub fn push_element(
    entry: &mut Entry<Object>,
    end: End,
    element: Item<'_>,
    limits: &QuicklistLimits,
) {
    match element {
        Item::Block(block) => {
            push_contents(entry, end, || std::iter::once(block.into()), limits);
        }
        element => {
            element.with_bytes(|element| push(entry, end, || std::iter::once(element), limits));
        }
    }
}

/// Removes the element at an end. Returns the remaining length.
pub fn pop<R>(
    entry: &mut Entry<Object>,
    end: End,
    limits: &QuicklistLimits,
    take: impl FnOnce(Item<'_>) -> R,
) -> Option<(R, usize)> {
    if let Some(list) = nodes_mut(entry) {
        let result = list.pop(end, take)?;
        let len = list.len();
        settle(entry, limits);
        return Some((result, len));
    }
    let mut mutable = ListpackMut::new(entry);
    let pack = mutable.as_listpack();
    let at = match end {
        End::Front => pack.first(),
        End::Back => pack.last(),
    }?;
    let (result, len) = (take(pack.get(at).into()), pack.len());
    mutable.remove(at);
    Some((result, len - 1))
}

/// Removes elements, starting at an index. Returns the remaining length.
pub fn remove_range(
    entry: &mut Entry<Object>,
    first: usize,
    count: usize,
    limits: &QuicklistLimits,
) -> usize {
    if let Some(list) = nodes_mut(entry) {
        list.remove_range(first, count);
        let len = list.len();
        settle(entry, limits);
        return len;
    }
    let mut pack = ListpackMut::new(entry);
    let at = isize::try_from(first)
        .ok()
        .and_then(|first| pack.as_listpack().nth(first));
    if let Some(at) = at {
        pack.remove_range(at, count);
    }
    pack.as_listpack().len()
}

/// Replaces the element at an index, which must exist.
pub fn set(
    entry: &mut Entry<Object>,
    index: usize,
    element: Content<'_>,
    limits: &QuicklistLimits,
) {
    make_room(entry, element.len(), 1, limits);
    if let Some(list) = nodes_mut(entry) {
        list.set(index, element);
        settle(entry, limits);
        return;
    }
    let mut pack = ListpackMut::new(entry);
    let at = isize::try_from(index)
        .ok()
        .and_then(|index| pack.as_listpack().nth(index));
    if let Some(at) = at {
        pack.replace(at, &element);
    }
}

/// Inserts an element before the one at an index, or at the end. Returns the new length.
pub fn insert(
    entry: &mut Entry<Object>,
    index: usize,
    element: Content<'_>,
    limits: &QuicklistLimits,
) -> usize {
    make_room(entry, element.len(), 1, limits);
    if let Some(list) = nodes_mut(entry) {
        list.insert(index, element);
        return list.len();
    }
    let mut pack = ListpackMut::new(entry);
    let at = isize::try_from(index)
        .ok()
        .and_then(|index| pack.as_listpack().nth(index));
    match at {
        Some(at) => drop(pack.insert_before(at, &element)),
        None => pack.push_back(&element),
    }
    pack.as_listpack().len()
}

/// Removes at most `count_max` elements equal to `element`, the first ones counted from an end. Returns their number
/// and the remaining length.
pub fn remove_equal(
    entry: &mut Entry<Object>,
    element: &[u8],
    from: End,
    count_max: usize,
    limits: &QuicklistLimits,
) -> (usize, usize) {
    if let Some(list) = nodes_mut(entry) {
        let removed = list.remove_equal(element, from, count_max);
        let len = list.len();
        if removed > 0 {
            settle(entry, limits);
        }
        return (removed, len);
    }
    let integer = parse_i64(element);
    let mut mutable = ListpackMut::new(entry);
    let len = mutable.as_listpack().len();
    let mut found = Vec::new();
    {
        let pack = mutable.as_listpack();
        let matching =
            |(_, candidate): &(_, Element<'_>)| equals((*candidate).into(), element, integer);
        match from {
            End::Front => found.extend(
                pack.places()
                    .filter(matching)
                    .take(count_max)
                    .map(|(at, _)| at),
            ),
            End::Back => found.extend(
                pack.places()
                    .rev()
                    .filter(matching)
                    .take(count_max)
                    .map(|(at, _)| at),
            ),
        }
    }
    // From the back to the front, so that the positions that remain stay valid.
    found.sort_unstable();
    for at in found.iter().rev() {
        mutable.remove(*at);
    }
    (found.len(), len - found.len())
}
