//! SORT with STORE of a large value, built aside ([`command::aside`](crate::command::aside)), unless BY or GET refer to
//! other keys: all of them would have to be watched.
//!
//! Elements are copied while the shards are locked, and sorted while they are not.

use std::ops::Range;

use super::{SortOptions, SortStorePermission, limits_of, sorted_by_itself, stored_list};
use crate::command::Args;
use crate::command::aside::{
    Aside, AsideContext, BYTES_PER_SLICE, BuildAside, LOOKUPS_PER_SLICE, SliceResult,
};
use crate::command::prepared::Built;
use basalt_core::structures::entry::EntryRef;
use basalt_core::structures::ordered::Direction;
use basalt_core::structures::quicklist::QuicklistLimits;
use basalt_core::structures::text_arena::TextArena;
use basalt_engine::value::set::SetRef;
use basalt_engine::value::{DataType, Object, ObjectKind, list, slices};

/// Members of a set visited between two looks at the limits of a slice.
const MEMBERS_PER_STEP: usize = 64;

/// The part of the source yet to be read.
enum Unread {
    /// Members of a set, from a position on.
    Set(u64),
    /// Elements that have an order.
    Ordered(Direction, Range<usize>),
}

/// The sorted list, being built aside.
struct SortAside {
    options: SortOptions<'static>,
    limits: QuicklistLimits,
    /// The target key.
    key: Box<[u8]>,
    /// None before the first slice.
    unread: Option<Unread>,
    is_whole: bool,
    slice: TextArena,
    elements: TextArena,
    result: Option<Built>,
}

/// Begins to sort a value aside; None for requests that answer what is sorted, or read other keys.
pub(super) fn begin(args: &Args<'_>, cx: &AsideContext<'_>) -> Option<Aside> {
    let options = SortOptions::parse(args, SortStorePermission::Allowed, cx.config).ok()?;
    let target = options.target?;
    if options.by.is_some() && !options.unsorted || !options.gets.is_empty() {
        return None;
    }
    let value = SortAside {
        options: SortOptions {
            by: None,
            gets: Vec::new(),
            ..options
        },
        limits: limits_of(cx.config),
        key: args.get(target).into(),
        unread: None,
        is_whole: false,
        slice: TextArena::default(),
        elements: TextArena::default(),
        result: None,
    };
    Some(Aside::new(args, &args.keys()[..1], cx.db, Box::new(value)))
}

impl SortAside {
    /// Returns where to begin; None for a value that is not read in slices.
    fn plan(&mut self, entry: EntryRef<'_, Object>) -> Option<Unread> {
        let data_type = ObjectKind(entry.kind()).data_type();
        self.options.decide_order_of(data_type, false);
        match data_type {
            // Members expire without any change.
            DataType::Set if SetRef::of(entry, 0).next_deadline().is_some() => None,
            DataType::Set => Some(Unread::Set(0)),
            DataType::List | DataType::SortedSet => {
                let (direction, range) = self.options.read_range(slices::ordered_len(entry));
                Some(Unread::Ordered(direction, range))
            }
            _ => None,
        }
        .filter(|_| slices::is_sliceable(entry))
    }

    /// Sorts the elements, and makes the list.
    fn complete(&mut self) {
        let (elements, options) = (&self.elements, &self.options);
        let len = elements.len();
        let (order, chosen) = match options.unsorted {
            true => (Ok((0..len).collect()), 0..len),
            false => {
                let range = options.range(len);
                (sorted_by_itself(elements, options, &range), range)
            }
        };
        self.result = Some(order.map(|order: Vec<usize>| {
            let chosen = &order[chosen];
            let texts = || chosen.iter().map(|index| elements.get(*index));
            stored_list(&self.key, &self.limits, texts)
        }));
    }
}

impl BuildAside for SortAside {
    fn read(&mut self, sources: &[Option<EntryRef<'_, Object>>]) -> SliceResult {
        let Some(entry) = sources.first().copied().flatten() else {
            return SliceResult::Unsuitable;
        };
        let Some(mut unread) = self.unread.take().or_else(|| self.plan(entry)) else {
            return SliceResult::Unsuitable;
        };
        let slice = &mut self.slice;
        let is_full = |slice: &TextArena| {
            slice.len() >= LOOKUPS_PER_SLICE || slice.bytes() >= BYTES_PER_SLICE
        };
        self.is_whole = match &mut unread {
            Unread::Set(position) => loop {
                *position = slices::show_some(entry, *position, MEMBERS_PER_STEP, &mut |member| {
                    slice.push(member.name);
                });
                if *position == 0 || is_full(slice) {
                    break *position == 0;
                }
            },
            Unread::Ordered(direction, range) => {
                slices::visit_ordered(entry, *direction, range.clone(), |element, _| {
                    slice.push(element);
                    !is_full(slice)
                });
                range.start += slice.len();
                range.start >= range.end
            }
        };
        self.unread = Some(unread);
        match self.is_whole {
            true => SliceResult::Whole,
            false => SliceResult::More,
        }
    }

    fn add(&mut self) {
        self.elements.take_all(&mut self.slice);
        if self.is_whole {
            self.complete();
        }
    }

    fn take(&mut self) -> Built {
        self.result
            .take()
            .unwrap_or_else(|| Ok(list::empty_entry(b"")))
    }
}
