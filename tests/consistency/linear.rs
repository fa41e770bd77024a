//! Is a history of one object linearizable? The search of Wing and Gong ("Testing and verifying concurrent objects",
//! 1993) with Lowe's memory of what was tried ("Testing for linearizability", 2017): operations are put in an order
//! one after the other, and what has led nowhere is not tried again.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

use crate::history::NEVER;

/// An operation on an object. Times are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event<C> {
    pub(crate) began: u64,
    /// When the answer came. Without one it has taken effect before this, or not at all.
    pub(crate) ended: u64,
    pub(crate) is_answered: bool,
    /// The call and its answer.
    pub(crate) call: C,
}

/// The sequential behaviour of an object: with one client.
pub(crate) trait Object: Clone + Eq + Hash {
    type Call: Clone + Debug;

    /// Returns the states that this call can leave, if its answer is possible. Without an answer, any is.
    fn after(&self, event: &Event<Self::Call>) -> Vec<Self>;
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Linearizable,
    /// No order explains all answers; the most that one explains, in the order of beginnings, is this many.
    Broken(usize),
    /// The search was given up.
    Undecided,
}

/// Sets of operations and states that are remembered, before the search is given up.
const REMEMBERED_MAX: usize = 4_000_000;

/// The operations put in order so far.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Progress<O> {
    /// All answered operations before this one, ...
    first_left: u32,
    /// ... and these later ones, ascending.
    beyond: Vec<u32>,
    /// Unanswered operations that have taken effect.
    unanswered: Vec<u32>,
    state: O,
}

/// Searches an order for a history.
pub(crate) fn search<O: Object>(events: &[Event<O::Call>], start: O) -> Verdict {
    let mut answered: Vec<&Event<O::Call>> = events.iter().filter(|it| it.is_answered).collect();
    answered.sort_by_key(|event| event.began);
    let unanswered: Vec<_> = events.iter().filter(|event| !event.is_answered).collect();
    let mut open = vec![Progress {
        first_left: 0,
        beyond: Vec::new(),
        unanswered: Vec::new(),
        state: start,
    }];
    let mut tried = HashSet::new();
    let mut furthest = 0;
    while let Some(progress) = open.pop() {
        if progress.first_left as usize == answered.len() {
            return Verdict::Linearizable;
        }
        if !tried.insert(progress.clone()) {
            continue;
        }
        if tried.len() > REMEMBERED_MAX {
            return Verdict::Undecided;
        }
        furthest = furthest.max(progress.first_left as usize);
        let (mut candidates, first_end) = candidates(&answered, &progress);
        let last_began = last_began(&answered, &progress);
        for (event, number) in unanswered.iter().zip(0u32..) {
            let is_possible = event.began <= first_end && event.ended >= last_began;
            if !is_possible || progress.unanswered.contains(&number) {
                continue;
            }
            let states = progress.state.after(event).into_iter();
            for state in states.filter(|state| *state != progress.state) {
                let mut next = progress.clone();
                let at = next.unanswered.partition_point(|it| *it < number);
                next.unanswered.insert(at, number);
                next.state = state;
                open.push(next);
            }
        }
        // The operation that ended first is tried first, and so put on the stack last.
        candidates.sort_by_key(|index| std::cmp::Reverse(answered[*index as usize].ended));
        for index in candidates {
            for state in progress.state.after(answered[index as usize]) {
                open.push(progress.with(index, state));
            }
        }
    }
    Verdict::Broken(furthest)
}

/// Returns the answered operations that may come next: no other one that is left had ended when they began; and the
/// first end of those that are left.
fn candidates<C, O>(answered: &[&Event<C>], progress: &Progress<O>) -> (Vec<u32>, u64) {
    let mut first_end = NEVER;
    let mut left = Vec::new();
    let mut beyond = progress.beyond.iter().peekable();
    for index in progress.first_left..answered.len() as u32 {
        if beyond.next_if_eq(&&index).is_some() {
            continue;
        }
        let event = answered[index as usize];
        if event.began > first_end {
            break;
        }
        first_end = first_end.min(event.ended);
        left.push(index);
    }
    left.retain(|index| answered[*index as usize].began <= first_end);
    (left, first_end)
}

/// Returns the latest beginning of what was put in order: nothing that had ended before comes behind it.
fn last_began<C, O>(answered: &[&Event<C>], progress: &Progress<O>) -> u64 {
    let before = progress.first_left.checked_sub(1);
    let last = progress.beyond.last().copied().or(before);
    last.map_or(0, |index| answered[index as usize].began)
}

impl<O: Clone> Progress<O> {
    /// Puts an answered operation next.
    fn with(&self, index: u32, state: O) -> Progress<O> {
        let mut next = self.clone();
        next.state = state;
        if index > next.first_left {
            let at = next.beyond.partition_point(|it| *it < index);
            next.beyond.insert(at, index);
            return next;
        }
        next.first_left += 1;
        let run = next.beyond.iter().zip(next.first_left..);
        let run = run
            .take_while(|(index, expected)| *index == expected)
            .count();
        next.beyond.drain(..run);
        next.first_left += run as u32;
        next
    }
}
