//! The walk over a document along the segments of a path.
//!
//! Each selector runs in the order of the document, and `..` visits a value before those below it. A walk recurses once
//! for each level and gives every value that it visits to the budget.

use super::super::limits::{Budget, PathError, RECURSION_MAX};
use super::super::locations::{Location, Step};
use super::super::node::{Node, View};
use super::super::syntax::{DefiniteStep, Segment, Selector, Slice};
use super::{Context, holds};

/// Why a walk ends before it has seen all.
enum Stop {
    /// The sink has what it wants.
    Enough,
    Failed(PathError),
}

impl From<PathError> for Stop {
    fn from(error: PathError) -> Stop {
        Stop::Failed(error)
    }
}

/// One step to the value being visited.
#[derive(Clone, Copy)]
enum StepRef<'a> {
    Key(&'a [u8]),
    Index(usize),
}

/// A receiver of matches.
trait Sink<'a, N> {
    /// The walk goes down one level.
    fn enter(&mut self, step: StepRef<'a>);
    /// The walk goes up again.
    fn leave(&mut self);
    fn found(&mut self, node: N) -> Result<(), Stop>;
}

struct Nodes<N>(Vec<N>);

impl<N> Sink<'_, N> for Nodes<N> {
    fn enter(&mut self, _: StepRef<'_>) {}
    fn leave(&mut self) {}
    fn found(&mut self, node: N) -> Result<(), Stop> {
        self.0.push(node);
        Ok(())
    }
}

struct First<N>(Option<N>);

impl<N> Sink<'_, N> for First<N> {
    fn enter(&mut self, _: StepRef<'_>) {}
    fn leave(&mut self) {}
    fn found(&mut self, node: N) -> Result<(), Stop> {
        self.0 = Some(node);
        Err(Stop::Enough)
    }
}

#[derive(Default)]
struct Locations<'a> {
    trail: Vec<StepRef<'a>>,
    found: Vec<Location>,
}

impl<'a, N> Sink<'a, N> for Locations<'a> {
    fn enter(&mut self, step: StepRef<'a>) {
        self.trail.push(step);
    }
    fn leave(&mut self) {
        self.trail.pop();
    }
    fn found(&mut self, _: N) -> Result<(), Stop> {
        let owned = |step: &StepRef<'_>| match step {
            StepRef::Key(key) => Step::Key((*key).into()),
            StepRef::Index(index) => Step::Index(*index),
        };
        self.found.push(self.trail.iter().map(owned).collect());
        Ok(())
    }
}

/// The one value that a definite path leads to.
pub(in crate::json_path) fn definite<'d, N: Node<'d>>(
    steps: &[DefiniteStep],
    root: N,
) -> Option<N> {
    steps.iter().try_fold(root, |node, step| match step {
        DefiniteStep::Key(key) => node.child(key),
        DefiniteStep::Index(index) => node.element(position(*index, node)?),
    })
}

/// The location that a definite path leads to.
pub(in crate::json_path) fn definite_location<'d, N: Node<'d>>(
    steps: &[DefiniteStep],
    root: N,
) -> Option<Location> {
    let mut location = Location::with_capacity(steps.len());
    let mut node = root;
    for step in steps {
        match step {
            DefiniteStep::Key(key) => {
                node = node.child(key)?;
                location.push(Step::Key(key.clone()));
            }
            DefiniteStep::Index(index) => {
                let index = position(*index, node)?;
                node = node.element(index)?;
                location.push(Step::Index(index));
            }
        }
    }
    Some(location)
}

/// All matches of `segments` below `from`, in a document that begins at `root`.
pub(in crate::json_path) fn nodes<'d, N: Node<'d>>(
    segments: &[Segment],
    from: N,
    root: N,
    budget: &mut Budget,
) -> Result<Vec<N>, PathError> {
    nodes_within(segments, from, &mut Context::new(root, budget))
}

/// All matches of a path inside a filter.
pub(super) fn nodes_within<'d, N: Node<'d>>(
    segments: &[Segment],
    from: N,
    context: &mut Context<'_, N>,
) -> Result<Vec<N>, PathError> {
    let mut sink = Nodes(Vec::new());
    walk(segments, from, context, &mut sink).or_else(finished)?;
    Ok(sink.0)
}

/// The first match of `segments`.
pub(in crate::json_path) fn first<'d, N: Node<'d>>(
    segments: &[Segment],
    root: N,
    budget: &mut Budget,
) -> Result<Option<N>, PathError> {
    let mut sink = First(None);
    walk(segments, root, &mut Context::new(root, budget), &mut sink).or_else(finished)?;
    Ok(sink.0)
}

/// The locations of all matches of `segments`.
pub(in crate::json_path) fn locations<'d, N: Node<'d>>(
    segments: &[Segment],
    root: N,
    budget: &mut Budget,
) -> Result<Vec<Location>, PathError> {
    let mut sink = Locations::default();
    walk(segments, root, &mut Context::new(root, budget), &mut sink).or_else(finished)?;
    Ok(sink.found)
}

fn finished(stop: Stop) -> Result<(), PathError> {
    match stop {
        Stop::Enough => Ok(()),
        Stop::Failed(error) => Err(error),
    }
}

/// The position of the element that `index` means, if there is one.
fn position<'d, N: Node<'d>>(index: i64, array: N) -> Option<usize> {
    if index >= 0 {
        return usize::try_from(index).ok();
    }
    let from_end = usize::try_from(index.unsigned_abs()).ok()?;
    array.len().checked_sub(from_end)
}

/// Follows `segments` from `node` and gives `sink` what they lead to.
fn walk<'p: 'a, 'd: 'a, 'a, N: Node<'d>, S: Sink<'a, N>>(
    segments: &'p [Segment],
    node: N,
    context: &mut Context<'_, N>,
    sink: &mut S,
) -> Result<(), Stop> {
    context.budget.spend(1)?;
    let Some((segment, rest)) = segments.split_first() else {
        return sink.found(node);
    };
    context.depth += 1;
    if context.depth > RECURSION_MAX {
        return Err(PathError::TooDeep.into());
    }
    if segment.descends {
        descend(&segment.selector, rest, node, context, sink)?;
    } else {
        select(&segment.selector, rest, node, context, sink)?;
    }
    context.depth -= 1;
    Ok(())
}

/// Applies `selector` to `node` and to everything below it.
fn descend<'p: 'a, 'd: 'a, 'a, N: Node<'d>, S: Sink<'a, N>>(
    selector: &'p Selector,
    rest: &'p [Segment],
    node: N,
    context: &mut Context<'_, N>,
    sink: &mut S,
) -> Result<(), Stop> {
    select(selector, rest, node, context, sink)?;
    context.depth += 1;
    if context.depth > RECURSION_MAX {
        return Err(PathError::TooDeep.into());
    }
    each_child(node, |step, child| {
        context.budget.spend(1)?;
        if child.len() > 0 {
            sink.enter(step);
            descend(selector, rest, child, context, sink)?;
            sink.leave();
        }
        Ok(())
    })?;
    context.depth -= 1;
    Ok(())
}

/// Follows `rest` from each child of `node` that `selector` selects.
fn select<'p: 'a, 'd: 'a, 'a, N: Node<'d>, S: Sink<'a, N>>(
    selector: &'p Selector,
    rest: &'p [Segment],
    node: N,
    context: &mut Context<'_, N>,
    sink: &mut S,
) -> Result<(), Stop> {
    match selector {
        Selector::All => each_child(node, |step, child| go(step, rest, child, context, sink)),
        Selector::Names(names) => {
            spend_lookups(names.len(), node, context)?;
            for name in names {
                if let Some(child) = node.child(name) {
                    go(StepRef::Key(name), rest, child, context, sink)?;
                }
            }
            Ok(())
        }
        Selector::Indices(indices) => {
            spend_lookups(indices.len(), node, context)?;
            for index in indices {
                if let Some(index) = position(*index, node)
                    && let Some(element) = node.element(index)
                {
                    go(StepRef::Index(index), rest, element, context, sink)?;
                }
            }
            Ok(())
        }
        Selector::Slice(slice) => each_of_slice(*slice, node, |index, element| {
            go(StepRef::Index(index), rest, element, context, sink)
        }),
        Selector::Filter(condition) => each_child(node, |step, child| {
            context.budget.spend(1)?;
            if holds(condition, child, context)? {
                go(step, rest, child, context, sink)?;
            }
            Ok(())
        }),
    }
}

/// Takes the steps for looking up the members of a union. A lookup may have to read over the members before it.
fn spend_lookups<'d, N: Node<'d>>(
    lookups: usize,
    node: N,
    context: &mut Context<'_, N>,
) -> Result<(), PathError> {
    let steps = match lookups {
        0 | 1 => 1,
        _ => lookups as u64 * (1 + node.len() as u64 / 16),
    };
    context.budget.spend(steps)
}

fn go<'p: 'a, 'd: 'a, 'a, N: Node<'d>, S: Sink<'a, N>>(
    step: StepRef<'a>,
    rest: &'p [Segment],
    child: N,
    context: &mut Context<'_, N>,
    sink: &mut S,
) -> Result<(), Stop> {
    sink.enter(step);
    walk(rest, child, context, sink)?;
    sink.leave();
    Ok(())
}

fn each_child<'d, N: Node<'d>>(
    node: N,
    mut visit: impl FnMut(StepRef<'d>, N) -> Result<(), Stop>,
) -> Result<(), Stop> {
    match node.view() {
        View::Array => node
            .elements()
            .enumerate()
            .try_for_each(|(index, element)| visit(StepRef::Index(index), element)),
        View::Object => node
            .members()
            .try_for_each(|(key, value)| visit(StepRef::Key(key), value)),
        _ => Ok(()),
    }
}

/// Visits the elements of a slice. As in valkey-json, a bound that is left out is the beginning or the end of the array
/// for a negative step too.
fn each_of_slice<'d, N: Node<'d>>(
    slice: Slice,
    node: N,
    mut visit: impl FnMut(usize, N) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let len = node.len() as i64;
    let resolve = |bound: i64| {
        if bound < 0 {
            bound.saturating_add(len)
        } else {
            bound
        }
    };
    let (start, end) = (
        slice.start.map_or(0, resolve),
        slice.end.map_or(len, resolve),
    );
    // A step as long as the array leaves it, and keeps the sums below from overflowing.
    let step = slice.step.clamp(-len - 1, len + 1);
    if step > 0 {
        let (start, end) = (start.clamp(0, len) as usize, end.clamp(0, len) as usize);
        return node
            .elements()
            .enumerate()
            .take(end)
            .skip(start)
            .step_by(step as usize)
            .try_for_each(|(index, element)| visit(index, element));
    }
    // Elements may be found one behind the other only: they are read forward, and visited backward.
    let (start, end) = (start.clamp(-1, len - 1) + 1, end.clamp(-1, len - 1) + 1);
    let elements: Vec<(usize, N)> = node
        .elements()
        .enumerate()
        .take(start as usize)
        .skip(end as usize)
        .collect();
    let backward = elements.into_iter().rev();
    backward
        .step_by(step.unsigned_abs() as usize)
        .try_for_each(|(index, element)| visit(index, element))
}
