//! The state of a sketch at one moment, the cut, passed to the snapshot page by page while the sketch continues to
//! change.
//!
//! The data of a sketch counts as a single sequence of bytes, whatever buffers it is in. Pages are saved in order;
//! changes of bytes are announced ([`SketchCodec::touch`]), and pages that have not been saved yet are kept as they
//! were. Bytes that did not exist at the cut are not kept. Copies are charged to no account ([`account::uncharged`]).

use std::collections::BTreeMap;
use std::ops::Range;

use super::SketchCodec;
use crate::alloc::account;
use crate::base::sizes::usual_or_small;

/// Bytes of a page: small, as an element of a filter changes many.
fn page_bytes() -> u64 {
    usual_or_small(4096, 64) as u64
}

struct SketchCutState {
    /// Number of bytes in the sequence at the cut.
    len: u64,
    /// The first page that has not been saved.
    next: u64,
    /// The previous state of pages that have changed since.
    kept: BTreeMap<u64, Box<[u8]>>,
    /// Bytes of copied pages.
    copied_bytes: usize,
}

impl SketchCutState {
    fn page(&self, number: u64) -> Range<u64> {
        number * page_bytes()..((number + 1) * page_bytes()).min(self.len)
    }
}

/// A sketch's progress in a cut, if there is one. A copy of a sketch has none.
#[derive(Default)]
pub struct SketchCut(Option<Box<SketchCutState>>);

impl Clone for SketchCut {
    fn clone(&self) -> SketchCut {
        SketchCut(None)
    }
}

impl Drop for SketchCut {
    fn drop(&mut self) {
        if self.0.is_some() {
            account::uncharged(|| self.0 = None);
        }
    }
}

impl SketchCut {
    /// True if a part of the cut is still to be saved.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.0.is_some()
    }
}

/// Returns the number of pages for a number of bytes.
pub(super) fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(page_bytes())
}

/// Makes a cut, see [`SketchCodec::begin_cut`].
pub(super) fn begin<S: SketchCodec>(sketch: &mut S) {
    let len = sketch.data_bytes();
    let state = account::uncharged(|| {
        Box::new(SketchCutState {
            len,
            next: 0,
            kept: BTreeMap::new(),
            copied_bytes: 0,
        })
    });
    *sketch.cut() = SketchCut(Some(state));
}

/// Keeps pages that are about to change, see [`SketchCodec::touch`].
#[cold]
#[inline(never)]
pub(super) fn touch<S: SketchCodec>(sketch: &mut S, bytes: Range<u64>) {
    let Some(mut state) = sketch.cut().0.take() else {
        return;
    };
    let first = (bytes.start / page_bytes()).max(state.next);
    let end = pages(bytes.end.min(state.len));
    account::uncharged(|| {
        for number in first..end {
            if !state.kept.contains_key(&number) {
                let page = sketch.part(state.page(number));
                state.copied_bytes += page.len();
                state.kept.insert(number, page.into());
            }
        }
    });
    sketch.cut().0 = Some(state);
}

/// Passes pages to `show`, see [`SketchCodec::show_cut`].
pub(super) fn show<S: SketchCodec>(
    sketch: &mut S,
    count: usize,
    show: &mut dyn FnMut(&[u8]),
) -> bool {
    let Some(mut state) = sketch.cut().0.take() else {
        return false;
    };
    account::uncharged(|| {
        for _ in 0..count {
            let page = state.page(state.next);
            if page.is_empty() {
                break;
            }
            match state.kept.remove(&state.next) {
                Some(kept) => show(&kept),
                None => show(&sketch.part(page)),
            }
            state.next += 1;
        }
        if !state.page(state.next).is_empty() {
            sketch.cut().0 = Some(state);
        }
    });
    sketch.cut().is_open()
}

/// Returns the bytes copied, see [`SketchCodec::take_copied`].
pub(super) fn take_copied<S: SketchCodec>(sketch: &mut S) -> usize {
    let state = sketch.cut().0.as_deref_mut();
    state.map_or(0, |state| std::mem::take(&mut state.copied_bytes))
}

/// Drops the cut, see [`SketchCodec::forget_cut`].
pub(super) fn forget<S: SketchCodec>(sketch: &mut S, budget: usize) -> bool {
    let cut = sketch.cut();
    account::uncharged(|| {
        if let Some(state) = &mut cut.0 {
            // Nothing is kept for the cut any more.
            state.len = 0;
            for _ in 0..budget {
                if state.kept.pop_first().is_none() {
                    cut.0 = None;
                    break;
                }
            }
        }
    });
    cut.is_open()
}

/// Returns the bytes in a range of several buffers that form one sequence.
pub(super) fn part_of<'a>(
    buffers: impl Iterator<Item = &'a [u8]>,
    mut range: Range<u64>,
) -> Vec<u8> {
    let mut part = Vec::with_capacity((range.end - range.start) as usize);
    for buffer in buffers {
        let len = buffer.len() as u64;
        let within = range.start.min(len) as usize..range.end.min(len) as usize;
        part.extend_from_slice(&buffer[within]);
        range = range.start.saturating_sub(len)..range.end.saturating_sub(len);
    }
    part
}

/// Returns the indexes of items of `size` bytes in a range of bytes, which begins and ends at item boundaries.
pub(super) fn things_in(range: Range<u64>, size: usize) -> Range<usize> {
    let size = size as u64;
    debug_assert!(range.start.is_multiple_of(size) && range.end.is_multiple_of(size));
    (range.start / size) as usize..(range.end / size) as usize
}

#[cfg(test)]
mod tests;
