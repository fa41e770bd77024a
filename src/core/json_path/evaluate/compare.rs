//! Relations between two operands. A relation holds for several values if it holds for any of them.

use std::cmp::Ordering;

use super::super::limits::{Budget, PathError};
use super::super::node::{Node, Number, Numbers, View, equal_within};
use super::super::syntax::Relation;
use super::super::value::Value;
use super::Term;

/// Whether `relation` holds between two operands.
pub(super) fn holds<'d, N: Node<'d>>(
    relation: Relation,
    left: &Term<'_, N>,
    right: &Term<'_, N>,
    budget: &mut Budget,
) -> Result<bool, PathError> {
    match relation {
        Relation::Equal => equals(left, right, budget),
        Relation::NotEqual => Ok(!equals(left, right, budget)?),
        Relation::Less => ordered(left, right, Ordering::is_lt, budget),
        Relation::LessOrEqual => ordered(left, right, Ordering::is_le, budget),
        Relation::Greater => ordered(left, right, Ordering::is_gt, budget),
        Relation::GreaterOrEqual => ordered(left, right, Ordering::is_ge, budget),
        Relation::In => any(left, budget, |left, budget| is_in(left, right, budget)),
        Relation::NotIn => Ok(!any(left, budget, |left, budget| {
            is_in(left, right, budget)
        })?),
        Relation::SubsetOf => sets(left, right, true, budget),
        Relation::AnyOf => sets(left, right, false, budget),
        Relation::NoneOf => Ok(!sets(left, right, false, budget)?),
        Relation::SizeOf => sized(left, right, budget, is_size),
        Relation::Empty => sized(left, right, budget, |size, wanted| {
            wanted == View::Bool(size == 0)
        }),
    }
}

/// One value of an operand.
#[derive(Clone, Copy)]
enum One<'v, N> {
    Node(N),
    Value(&'v Value),
}

impl<'v, 'd: 'v, N: Node<'d>> One<'v, N> {
    fn view(self) -> View<'v> {
        match self {
            One::Node(node) => node.view(),
            One::Value(value) => value.view(),
        }
    }

    fn len(self) -> usize {
        match self {
            One::Node(node) => node.len(),
            One::Value(value) => value.len(),
        }
    }

    fn equals(self, other: One<'_, N>, budget: &mut Budget) -> Result<bool, PathError> {
        let by_value = Numbers::ByValue;
        match (self, other) {
            (One::Node(a), One::Node(b)) => equal_within(a, b, by_value, budget),
            (One::Node(a), One::Value(b)) => equal_within(a, b, by_value, budget),
            (One::Value(a), One::Node(b)) => equal_within(a, b, by_value, budget),
            (One::Value(a), One::Value(b)) => equal_within(a, b, by_value, budget),
        }
    }

    /// Calls `visit` with the elements of an array until one of them gives `until`.
    fn elements_until(
        self,
        until: bool,
        budget: &mut Budget,
        mut visit: impl FnMut(One<'_, N>, &mut Budget) -> Result<bool, PathError>,
    ) -> Result<bool, PathError> {
        match self {
            One::Node(node) => {
                for element in node.elements() {
                    if visit(One::Node(element), budget)? == until {
                        return Ok(until);
                    }
                }
            }
            One::Value(value) => {
                for element in value.elements() {
                    if visit(One::Value(element), budget)? == until {
                        return Ok(until);
                    }
                }
            }
        }
        Ok(!until)
    }
}

/// Whether `test` holds for any value of `term`.
fn any<'d, N: Node<'d>>(
    term: &Term<'_, N>,
    budget: &mut Budget,
    mut test: impl FnMut(One<'_, N>, &mut Budget) -> Result<bool, PathError>,
) -> Result<bool, PathError> {
    match term {
        Term::Nothing => Ok(false),
        Term::Node(node) => test(One::Node(*node), budget),
        Term::Literal(value) => test(One::Value(value), budget),
        Term::Computed(value) => test(One::Value(value), budget),
        Term::Nodes(nodes) => {
            for node in nodes {
                if test(One::Node(*node), budget)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Term::List(values) => {
            for value in values {
                if test(One::Value(value), budget)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}

/// Whether `test` holds for the size of any left value and any right value. A list has one size.
fn sized<'d, N: Node<'d>>(
    left: &Term<'_, N>,
    right: &Term<'_, N>,
    budget: &mut Budget,
    test: fn(usize, View<'_>) -> bool,
) -> Result<bool, PathError> {
    any(right, budget, |right, budget| match left {
        Term::List(values) => Ok(test(values.len(), right.view())),
        _ => any(left, budget, |left, budget| {
            budget.spend(1)?;
            Ok(size(left).is_some_and(|size| test(size, right.view())))
        }),
    })
}

fn equals<'d, N: Node<'d>>(
    left: &Term<'_, N>,
    right: &Term<'_, N>,
    budget: &mut Budget,
) -> Result<bool, PathError> {
    any(left, budget, |left, budget| {
        any(right, budget, |right, budget| left.equals(right, budget))
    })
}

fn ordered<'d, N: Node<'d>>(
    left: &Term<'_, N>,
    right: &Term<'_, N>,
    wanted: fn(Ordering) -> bool,
    budget: &mut Budget,
) -> Result<bool, PathError> {
    any(left, budget, |left, budget| {
        any(right, budget, |right, budget| {
            budget.spend(1)?;
            Ok(order(left.view(), right.view()).is_some_and(wanted))
        })
    })
}

/// The order of two scalars of one kind. Arrays, objects and different kinds have none.
fn order(left: View<'_>, right: View<'_>) -> Option<Ordering> {
    match (left, right) {
        (View::Null, View::Null) => Some(Ordering::Equal),
        (View::Bool(left), View::Bool(right)) => Some(left.cmp(&right)),
        (View::Str(left), View::Str(right)) => Some(left.cmp(right)),
        _ => match (Number::of(left)?, Number::of(right)?) {
            (Number::Int(left), Number::Int(right)) => Some(left.cmp(&right)),
            (left, right) => left.float().partial_cmp(&right.float()),
        },
    }
}

/// Whether `needle` is an element of `haystack`: of an array, or of several values.
fn is_in<'d, N: Node<'d>>(
    needle: One<'_, N>,
    haystack: &Term<'_, N>,
    budget: &mut Budget,
) -> Result<bool, PathError> {
    let elements_of = |array: One<'_, N>, budget: &mut Budget| {
        array.elements_until(true, budget, |element, budget| {
            needle.equals(element, budget)
        })
    };
    match haystack {
        Term::Nothing => Ok(false),
        Term::Node(node) => elements_of(One::Node(*node), budget),
        Term::Literal(value) => elements_of(One::Value(value), budget),
        Term::Computed(value) => elements_of(One::Value(value), budget),
        Term::Nodes(_) | Term::List(_) => any(haystack, budget, |element, budget| {
            needle.equals(element, budget)
        }),
    }
}

/// Whether `all` elements of the left array, or any of them, are elements of the right one.
fn sets<'d, N: Node<'d>>(
    left: &Term<'_, N>,
    right: &Term<'_, N>,
    all: bool,
    budget: &mut Budget,
) -> Result<bool, PathError> {
    let array = |array: One<'_, N>, budget: &mut Budget| {
        if array.view() != View::Array {
            return Ok(false);
        }
        array.elements_until(!all, budget, |element, budget| {
            is_in(element, right, budget)
        })
    };
    match left {
        // A list is the left array itself.
        Term::List(values) => {
            for value in values {
                if is_in(One::Value(value), right, budget)? != all {
                    return Ok(!all);
                }
            }
            Ok(all)
        }
        _ => any(left, budget, array),
    }
}

/// The characters of a text, elements of an array or members of an object.
fn size<'v, 'd: 'v, N: Node<'d>>(one: One<'v, N>) -> Option<usize> {
    match one.view() {
        View::Str(text) => Some(characters(text)),
        View::Array | View::Object => Some(one.len()),
        _ => None,
    }
}

/// Whether `wanted` is the number `size`; a fraction is cut off.
fn is_size(size: usize, wanted: View<'_>) -> bool {
    let wanted = match Number::of(wanted) {
        Some(Number::Int(wanted)) => Some(wanted),
        Some(Number::Float(wanted)) => whole(wanted.trunc()),
        None => None,
    };
    wanted.and_then(|wanted| usize::try_from(wanted).ok()) == Some(size)
}

/// The number of characters of a text in UTF-8.
pub(super) fn characters(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

/// The integer that a number without a fraction part is, if it fits.
pub(super) fn whole(number: f64) -> Option<i64> {
    // 2^63 is the first value that does not fit; i64::MAX itself has no exact form.
    let limit = 2f64.powi(63);
    (number >= -limit && number < limit).then_some(number as i64)
}
