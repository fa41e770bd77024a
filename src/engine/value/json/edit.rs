//! Changes of packed documents in place.
//!
//! A change replaces a run of bytes somewhere in a container, and then the lengths in the headers around it, from the
//! innermost outwards. A header whose length no longer fits its width becomes wider; none becomes narrower. All
//! writing goes through [`Splice::splice`], so that a buffer that records its splices can undo every change.
//!
//! One value is changed where it is. For several, the document is written anew in one pass, so that the time does not
//! grow with their number times the size of the document.

use std::ops::Range;

use super::encoding::{Header, Width, push_text, size, text};
use basalt_core::structures::splice::Splice;
use smallvec::SmallVec;

/// A value in a document, and the containers around it.
pub struct Spot {
    /// Offset of the value.
    pub at: usize,
    /// Offset of its name, if the value is in an object.
    name_at: Option<usize>,
    /// Offsets of the headers of the containers around it, outermost first.
    around: SmallVec<[usize; 8]>,
    /// Number of containers around the value in the whole document, of which `around` may be a part.
    depth: usize,
}

impl Spot {
    /// Returns the root of a document or of a value that stands alone.
    fn root(depth: usize) -> Spot {
        Spot {
            at: 0,
            name_at: None,
            around: SmallVec::new(),
            depth,
        }
    }

    /// Returns the number of containers around the value.
    pub fn depth(&self) -> usize {
        self.depth
    }
}

/// The offsets of the values in a container: each with that of its name, if it has one.
struct Children<'d> {
    doc: &'d [u8],
    at: usize,
    end: usize,
    is_object: bool,
}

impl<'d> Children<'d> {
    fn of(doc: &'d [u8], at: usize) -> Option<Children<'d>> {
        let header = Header::of(&doc[at..])?;
        let from = at + header.bytes();
        Some(Children {
            doc,
            at: from,
            end: from + header.len,
            is_object: header.is_object,
        })
    }
}

/// A child: where its name begins (or the value, in arrays), where the value begins, and where it ends.
#[derive(Clone, Copy)]
struct Child {
    start: usize,
    value: usize,
    end: usize,
}

impl Iterator for Children<'_> {
    type Item = Child;

    fn next(&mut self) -> Option<Child> {
        if self.at >= self.end {
            return None;
        }
        let start = self.at;
        let value = match self.is_object {
            true => start + size(&self.doc[start..]),
            false => start,
        };
        let end = value + size(&self.doc[value..]);
        self.at = end;
        Some(Child { start, value, end })
    }
}

/// Returns the value at an offset where one begins.
fn spot(doc: &[u8], target: usize) -> Option<Spot> {
    let mut spot = Spot::root(0);
    while spot.at != target {
        let mut children = Children::of(doc, spot.at)?;
        spot.around.push(spot.at);
        let is_object = children.is_object;
        let child = children.find(|child| target < child.end)?;
        spot.at = child.value;
        spot.name_at = is_object.then_some(child.start);
        spot.depth += 1;
    }
    Some(spot)
}

/// Returns the number of containers around the value at an offset.
pub fn depth_around(doc: &[u8], at: usize) -> usize {
    spot(doc, at).map_or(0, |spot| spot.depth)
}

/// True if the value at an offset is an element of an array.
pub fn is_in_array(doc: &[u8], at: usize) -> bool {
    spot(doc, at).is_some_and(|spot| spot.depth > 0 && spot.name_at.is_none())
}

/// Replaces `removed` bytes at `at`, in the content of the innermost of the containers `around`, the number of whose
/// elements changes by `more`.
fn change(
    doc: &mut dyn Splice,
    around: &[usize],
    (at, removed): (usize, usize),
    inserted: &[u8],
    more: isize,
) {
    doc.splice(at, removed, inserted.len())
        .copy_from_slice(inserted);
    let mut grown = inserted.len() as isize - removed as isize;
    if grown == 0 && more == 0 {
        return;
    }
    let mut more = more;
    for at in around.iter().rev() {
        let Some(mut header) = Header::of(&doc.bytes()[*at..]) else {
            return;
        };
        let old_len = header.bytes();
        header.len = header.len.saturating_add_signed(grown);
        header.count = header
            .count
            .saturating_add_signed(std::mem::take(&mut more));
        let needed = Width::of(header.len.max(header.count));
        if needed as usize > header.width as usize {
            header.width = needed;
        }
        let (bytes, len) = header.encoded();
        doc.splice(*at, old_len, len).copy_from_slice(&bytes[..len]);
        grown += len as isize - old_len as isize;
    }
}

/// Replaces a value by another one.
pub fn replace(doc: &mut dyn Splice, spot: &Spot, value: &[u8]) {
    let len = size(&doc.bytes()[spot.at..]);
    change(doc, &spot.around, (spot.at, len), value, 0);
}

/// Removes a value, with its name, from the container around it.
fn remove(doc: &mut dyn Splice, spot: &Spot) {
    let end = spot.at + size(&doc.bytes()[spot.at..]);
    let start = spot.name_at.unwrap_or(spot.at);
    change(doc, &spot.around, (start, end - start), &[], -1);
}

/// Returns the containers around the content of the container at a spot.
fn within(spot: &Spot) -> SmallVec<[usize; 9]> {
    spot.around.iter().copied().chain([spot.at]).collect()
}

/// Adds a member at the end of an object.
pub fn push_member(doc: &mut dyn Splice, spot: &Spot, name: &[u8], value: &[u8]) {
    let end = spot.at + size(&doc.bytes()[spot.at..]);
    let mut member = Vec::with_capacity(name.len() + value.len() + 5);
    push_text(&mut member, name);
    member.extend_from_slice(value);
    change(doc, &within(spot), (end, 0), &member, 1);
}

/// Inserts `count` packed values into an array, before the element `index`, or at its end.
pub fn insert_elements(
    doc: &mut dyn Splice,
    spot: &Spot,
    index: usize,
    values: &[u8],
    count: usize,
) {
    let at = element_at(doc.bytes(), spot.at, index);
    change(doc, &within(spot), (at, 0), values, count as isize);
}

/// Removes elements from an array.
pub fn remove_elements(doc: &mut dyn Splice, spot: &Spot, range: Range<usize>) {
    let start = element_at(doc.bytes(), spot.at, range.start);
    let mut end = start;
    for _ in range.clone() {
        end += size(&doc.bytes()[end..]);
    }
    let less = range.len() as isize;
    change(doc, &within(spot), (start, end - start), &[], -less);
}

/// Returns the offset of an element of the array at `at`, or that of its end.
fn element_at(doc: &[u8], at: usize, index: usize) -> usize {
    let Some(header) = Header::of(&doc[at..]) else {
        return at;
    };
    let start = at + header.bytes();
    if index >= header.count {
        return start + header.len;
    }
    (0..index).fold(start, |at, _| at + size(&doc[at..]))
}

/// The members of `patch` replace those of the same names in the object at a spot, deeply; those that are null remove
/// them. A value that is no object replaces the other one (RFC 7396).
pub fn merge(value: &mut Vec<u8>, patch: &[u8]) {
    let Some(patched) = Children::of(patch, 0).filter(|children| children.is_object) else {
        value.clear();
        value.extend_from_slice(patch);
        return;
    };
    if !Header::of(value).is_some_and(|header| header.is_object) {
        value.clear();
        let (bytes, len) = Header::new(true, 0, 0).encoded();
        value.extend_from_slice(&bytes[..len]);
    }
    for member in patched {
        let name = text(&patch[member.start..]).unwrap_or_default();
        let change = &patch[member.value..member.end];
        let found = Children::of(value, 0).and_then(|mut children| {
            children.find(|child| text(&value[child.start..]) == Some(name))
        });
        let is_removed = change[0] == super::encoding::tag::NULL;
        match found {
            None if is_removed => {}
            None => {
                let mut fresh = vec![super::encoding::tag::NULL];
                merge(&mut fresh, change);
                push_member(value, &Spot::root(0), name, &fresh);
            }
            Some(child) => {
                let spot = Spot {
                    at: child.value,
                    name_at: Some(child.start),
                    around: SmallVec::from_slice(&[0]),
                    depth: 1,
                };
                if is_removed {
                    remove(value, &spot);
                } else {
                    let mut inner = value[child.value..child.end].to_vec();
                    merge(&mut inner, change);
                    replace(value, &spot, &inner);
                }
            }
        }
    }
}

/// The outcome for a value that a change has been applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The value stays, as it is now.
    Stays,
    /// The value is removed from the container around it. The root is never removed.
    Goes,
}

/// A change, applied to each of several values: gets the value's number, a buffer with the value, and where in it.
pub type Apply<'a> = dyn FnMut(usize, &mut dyn Splice, &Spot) -> Fate + 'a;

/// Applies a change to the values at these offsets of a document. Values within others are changed before those.
pub fn change_all(doc: &mut dyn Splice, targets: &[usize], apply: &mut Apply<'_>) {
    if let [target] = targets {
        let Some(spot) = spot(doc.bytes(), *target) else {
            return;
        };
        let fate = apply(0, doc, &spot);
        if fate == Fate::Goes && !spot.around.is_empty() {
            remove(doc, &spot);
        }
        return;
    }
    let mut sorted: Vec<(usize, usize)> = targets.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    let mut rewriting = Rewriting {
        doc: doc.bytes(),
        targets: &sorted,
        apply,
        out: Vec::with_capacity(doc.bytes().len()),
    };
    rewriting.value(0, 0);
    let fresh = rewriting.out;
    let len = doc.bytes().len();
    doc.splice(0, len, fresh.len()).copy_from_slice(&fresh);
}

/// The pass over a document that changes several values.
struct Rewriting<'a, 'f> {
    doc: &'a [u8],
    /// The offsets that have not been reached, ascending, with the numbers of the targets.
    targets: &'a [(usize, usize)],
    apply: &'a mut Apply<'f>,
    out: Vec<u8>,
}

impl Rewriting<'_, '_> {
    fn is_next_before(&self, end: usize) -> bool {
        self.targets.first().is_some_and(|(at, _)| *at < end)
    }

    /// Appends the value at an offset, changed.
    fn value(&mut self, at: usize, depth: usize) -> Fate {
        let own = self
            .targets
            .iter()
            .take_while(|(target, _)| *target == at)
            .count();
        let (here, later) = self.targets.split_at(own);
        self.targets = later;
        let end = at + size(&self.doc[at..]);
        let start = self.out.len();
        match self.is_next_before(end) {
            true => self.container(at, depth),
            false => self.out.extend_from_slice(&self.doc[at..end]),
        }
        if here.is_empty() {
            return Fate::Stays;
        }
        let mut value = self.out.split_off(start);
        let spot = Spot::root(depth);
        let mut fate = Fate::Stays;
        for (_, number) in here {
            fate = (self.apply)(*number, &mut value, &spot);
        }
        self.out.append(&mut value);
        fate
    }

    /// Appends the container at an offset, with changes in it.
    fn container(&mut self, at: usize, depth: usize) {
        let (Some(mut header), Some(children)) =
            (Header::of(&self.doc[at..]), Children::of(self.doc, at))
        else {
            return;
        };
        let (start, placeholder) = (self.out.len(), header.bytes());
        self.out.extend_from_slice(&self.doc[at..at + placeholder]);
        // The unchanged children that have not been copied begin here.
        let mut unchanged = at + placeholder;
        for child in children {
            if !self.is_next_before(child.end) {
                continue;
            }
            self.out
                .extend_from_slice(&self.doc[unchanged..child.start]);
            unchanged = child.end;
            let kept = self.out.len();
            self.out
                .extend_from_slice(&self.doc[child.start..child.value]);
            if self.value(child.value, depth + 1) == Fate::Goes {
                self.out.truncate(kept);
                header.count -= 1;
            }
        }
        let end = at + placeholder + header.len;
        self.out.extend_from_slice(&self.doc[unchanged..end]);
        header.len = self.out.len() - start - placeholder;
        let needed = Width::of(header.len.max(header.count));
        if needed as usize > header.width as usize {
            header.width = needed;
        }
        let (bytes, len) = header.encoded();
        self.out
            .splice(start..start + placeholder, bytes[..len].iter().copied());
    }
}
