//! The packed structures in strings of a snapshot, old and new, as one sequence of elements.

use std::borrow::Cow;
use std::collections::HashSet;

use super::Malformed;
use basalt_core::base::number;
use basalt_core::structures::listpack::{self, Element, Listpack, ListpackMut};
use basalt_core::structures::ziplist::Ziplist;

/// A validated list of elements.
pub(super) enum Packed<'a> {
    Listpack(Listpack<'a>),
    Ziplist(Ziplist<'a>),
}

impl<'a> Packed<'a> {
    /// Validates the form from before 7.0.
    pub(super) fn ziplist(bytes: &'a [u8]) -> Result<Packed<'a>, Malformed> {
        Ziplist::check(bytes)
            .map(Packed::Ziplist)
            .ok_or(Malformed::PACK)
    }

    /// Returns the number of elements.
    pub(super) fn len(&self) -> usize {
        match self {
            Packed::Listpack(pack) => pack.len(),
            Packed::Ziplist(list) => list.len(),
        }
    }

    /// Calls `visit` with each element in order.
    pub(super) fn each(
        &self,
        mut visit: impl FnMut(Element<'a>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        match self {
            Packed::Listpack(pack) => pack.iter().try_for_each(&mut visit),
            Packed::Ziplist(list) => list.iter().try_for_each(&mut visit),
        }
    }

    /// Calls `visit` with each group of `N` elements in order. Returns an error if the last group is incomplete.
    pub(super) fn each_group<const N: usize>(
        &self,
        mut visit: impl FnMut([Element<'a>; N]) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let mut group = [Element::Integer(0); N];
        let mut filled = 0;
        self.each(|element| {
            group[filled] = element;
            filled += 1;
            if filled == N {
                filled = 0;
                visit(group)?;
            }
            Ok(())
        })?;
        if filled == 0 {
            Ok(())
        } else {
            Err(Malformed::GROUP)
        }
    }
}

/// Returns the bytes of a listpack of groups of `step` elements, each beginning with a member, in the form that a
/// command would create: members must be distinct, and numbers are stored as numbers.
pub(super) fn distinct(pack: Listpack<'_>, step: usize) -> Result<Cow<'_, [u8]>, Malformed> {
    let mut members = Fingerprints::of(pack.len() / step);
    let (mut is_canonical, mut behind) = (true, 0);
    for element in pack.iter() {
        let mut member = element;
        if let Element::Bytes(text) = element
            && let Some(number) = number::parse_i64(text)
        {
            is_canonical = false;
            member = Element::Integer(number);
        }
        if behind == 0 {
            members.add(member);
        }
        behind += 1;
        if behind == step {
            behind = 0;
        }
    }
    if behind != 0 {
        return Err(Malformed::GROUP);
    }
    if members.is_unsure && has_twins(pack, step) {
        return Err(Malformed::TWICE);
    }
    if is_canonical {
        return Ok(Cow::Borrowed(pack.bytes()));
    }
    let mut copy = listpack::EMPTY.to_vec();
    let mut writer = ListpackMut::new(&mut copy);
    for element in pack.iter() {
        element.with_bytes(|text| writer.push_back(text));
    }
    Ok(Cow::Owned(copy))
}

/// Up to this number of members, duplicates are searched for by parts of the members' hashes, as long as the parts
/// differ.
const FEW: usize = 128;

/// Slots for the parts of hashes; half of them stay free.
const SLOTS: usize = 2 * FEW;

/// A part of the hash of each of a few members.
struct Fingerprints {
    slots: [u32; SLOTS],
    /// True if a part occurred twice, or there are too many members: then the members themselves have to be compared.
    is_unsure: bool,
}

impl Fingerprints {
    fn of(count: usize) -> Fingerprints {
        Fingerprints {
            slots: [0; SLOTS],
            is_unsure: count > FEW,
        }
    }

    #[inline]
    fn add(&mut self, member: Element<'_>) {
        if self.is_unsure {
            return;
        }
        let hash = mix(member);
        // The highest bits depend on the whole member, the lowest only on its first bytes.
        let mut at = (hash >> (u64::BITS - SLOTS.ilog2())) as usize;
        let part = (hash >> 24) as u32 | 1;
        while self.slots[at] != 0 {
            if self.slots[at] == part {
                self.is_unsure = true;
                return;
            }
            at = (at + 1) % SLOTS;
        }
        self.slots[at] = part;
    }
}

/// True if a member occurs more than once.
#[cold]
fn has_twins(pack: Listpack<'_>, step: usize) -> bool {
    let mut members = HashSet::with_capacity(pack.len() / step);
    let mut firsts = pack.iter().step_by(step);
    !firsts.all(|element| members.insert(as_member(element)))
}

/// Normalizes a member: a number stored as text becomes the integer, as both are the same member.
fn as_member(element: Element<'_>) -> Element<'_> {
    element.integer().map_or(element, Element::Integer)
}

/// Returns an unkeyed hash of a member.
fn mix(member: Element<'_>) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    let hash = match member {
        Element::Integer(number) => step(0, number as u64),
        Element::Bytes(bytes) => {
            let words = bytes.chunks_exact(size_of::<u64>());
            let hash = words.fold(bytes.len() as u64, |hash, word| {
                step(
                    hash,
                    u64::from_le_bytes(word.try_into().unwrap_or_default()),
                )
            });
            step(hash, last_word(bytes))
        }
    };
    hash ^ hash >> 29
}

/// Returns the last eight bytes as a number; of fewer than eight bytes all, some of them twice.
#[inline]
fn last_word(bytes: &[u8]) -> u64 {
    let half = |four: &[u8; 4]| u64::from(u32::from_le_bytes(*four));
    match (bytes.last_chunk(), bytes.first_chunk(), bytes.last_chunk()) {
        (Some(eight), ..) => u64::from_le_bytes(*eight),
        (_, Some(first), Some(last)) => half(first) << 32 | half(last),
        _ => bytes
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// Parses a score in a listpack: a number or its text.
pub(super) fn score(element: Element<'_>) -> Result<f64, Malformed> {
    match element {
        Element::Integer(number) => Ok(number as f64),
        Element::Bytes(text) => {
            number::parse_f64(text).ok_or(Malformed("a score that is not a number"))
        }
    }
}
