//! Functions of expressions. A wrong kind of argument gives nothing.

use super::super::limits::{Budget, PathError};
use super::super::node::{Node, Number, View};
use super::super::syntax::Function;
use super::super::value::Value;
use super::compare::{characters, whole};
use super::{Term, copies};

/// Calls `function`, whose number of arguments the parser has checked.
pub(super) fn call<'p, 'd, N: Node<'d>>(
    function: Function,
    arguments: Vec<Term<'p, N>>,
    budget: &mut Budget,
) -> Result<Term<'p, N>, PathError> {
    let mut arguments = arguments.into_iter();
    if function == Function::Concat {
        return concat(arguments, budget);
    }
    let Some(first) = arguments.next() else {
        return Ok(Term::Nothing);
    };
    Ok(match function {
        Function::Length => length(&first).map_or(Term::Nothing, Term::of_count),
        Function::Count => Term::of_count(match &first {
            Term::Nothing => 0,
            Term::Nodes(nodes) => nodes.len(),
            Term::List(values) => values.len(),
            Term::Node(_) | Term::Literal(_) | Term::Computed(_) => 1,
        }),
        Function::Value => match first {
            Term::Node(node) => Term::Node(node),
            Term::List(mut values) if values.len() == 1 => {
                values.pop().map_or(Term::Nothing, Term::Computed)
            }
            _ => Term::Nothing,
        },
        Function::Ceiling => rounded(&first, f64::ceil),
        Function::Floor => rounded(&first, f64::floor),
        Function::Abs => absolute(&first),
        Function::Sum | Function::Min | Function::Max | Function::Avg | Function::Stddev => {
            aggregate(function, &first, budget)?
        }
        Function::Keys => keys(&first, budget)?,
        Function::First => element(first, 0),
        Function::Last => element(first, -1),
        Function::Index => {
            let index = match arguments.next().and_then(|index| index.number()) {
                Some(Number::Int(index)) => Some(index),
                Some(Number::Float(index)) => whole(index.trunc()),
                None => None,
            };
            index.map_or(Term::Nothing, |index| element(first, index))
        }
        Function::Append => append(first, arguments.next().unwrap_or(Term::Nothing), budget)?,
        Function::Concat | Function::Nothing => Term::Nothing,
    })
}

fn length<'d, N: Node<'d>>(term: &Term<'_, N>) -> Option<usize> {
    let of_value = |view: View<'_>, len: usize| match view {
        View::Str(text) => Some(characters(text)),
        View::Array | View::Object => Some(len),
        _ => None,
    };
    match term {
        Term::Node(node) => of_value(node.view(), node.len()),
        Term::Literal(value) => of_value(value.view(), value.len()),
        Term::Computed(value) => of_value(value.view(), value.len()),
        Term::List(values) => Some(values.len()),
        Term::Nothing | Term::Nodes(_) => None,
    }
}

fn rounded<'p, 'd, N: Node<'d>>(term: &Term<'_, N>, round: fn(f64) -> f64) -> Term<'p, N> {
    let rounded = match term.number() {
        Some(Number::Int(number)) => Some(number),
        Some(Number::Float(number)) => whole(round(number)),
        None => None,
    };
    rounded.map_or(Term::Nothing, |number| Term::Computed(Value::Int(number)))
}

fn absolute<'p, 'd, N: Node<'d>>(term: &Term<'_, N>) -> Term<'p, N> {
    match term.number() {
        Some(Number::Int(number)) => number
            .checked_abs()
            .map_or(Term::Nothing, |number| Term::Computed(Value::Int(number))),
        Some(Number::Float(number)) => Term::Computed(Value::Float(number.abs())),
        None => Term::Nothing,
    }
}

fn concat<'p, 'd, N: Node<'d>>(
    arguments: impl Iterator<Item = Term<'p, N>>,
    budget: &mut Budget,
) -> Result<Term<'p, N>, PathError> {
    let mut joined = Vec::new();
    for argument in arguments {
        let Some(text) = argument.text() else {
            return Ok(Term::Nothing);
        };
        budget.spend_bytes(text.len())?;
        joined.extend_from_slice(text);
    }
    Ok(Term::Computed(Value::Str(joined.into())))
}

/// The numbers of an array or of several values; none if there is anything else among them.
fn numbers<'d, N: Node<'d>>(
    term: &Term<'_, N>,
    budget: &mut Budget,
) -> Result<Vec<f64>, PathError> {
    let mut numbers = Vec::new();
    let mut add = |view: View<'_>| {
        budget.spend(1)?;
        match Number::of(view) {
            Some(number) => numbers.push(number.float()),
            None => return Ok(false),
        }
        Ok(true)
    };
    let complete = match term {
        Term::Node(node) => all(node.elements().map(Node::view), &mut add)?,
        Term::Literal(value) => all(value.elements().map(Node::view), &mut add)?,
        Term::Computed(value) => all(value.elements().map(Node::view), &mut add)?,
        Term::Nodes(nodes) => all(nodes.iter().map(|node| node.view()), &mut add)?,
        Term::List(values) => all(values.iter().map(Node::view), &mut add)?,
        Term::Nothing => false,
    };
    if !complete {
        numbers.clear();
    }
    Ok(numbers)
}

fn all<'v>(
    views: impl Iterator<Item = View<'v>>,
    mut add: impl FnMut(View<'v>) -> Result<bool, PathError>,
) -> Result<bool, PathError> {
    for view in views {
        if !add(view)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A figure over all numbers of an array, as floating point.
fn aggregate<'p, 'd, N: Node<'d>>(
    function: Function,
    term: &Term<'_, N>,
    budget: &mut Budget,
) -> Result<Term<'p, N>, PathError> {
    let numbers = numbers(term, budget)?;
    if numbers.is_empty() {
        return Ok(Term::Nothing);
    }
    let sum: f64 = numbers.iter().sum();
    let count = numbers.len() as f64;
    let figure = match function {
        Function::Min => numbers.iter().copied().fold(f64::INFINITY, f64::min),
        Function::Max => numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        Function::Avg => sum / count,
        Function::Stddev => {
            let mean = sum / count;
            let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
            (squares / count).sqrt()
        }
        _ => sum,
    };
    Ok(Term::Computed(Value::Float(figure)))
}

/// The keys of an object, or of all objects among several values.
fn keys<'p, 'd, N: Node<'d>>(
    term: &Term<'p, N>,
    budget: &mut Budget,
) -> Result<Term<'p, N>, PathError> {
    let mut keys = Vec::new();
    let mut add = |key: &[u8]| {
        budget.spend_bytes(key.len())?;
        keys.push(Value::Str(key.into()));
        Ok(())
    };
    match term {
        Term::Node(node) if node.view() == View::Object => {
            node.members().try_for_each(|(key, _)| add(key))?;
        }
        Term::Literal(value) if value.view() == View::Object => {
            value.members().try_for_each(|(key, _)| add(key))?;
        }
        Term::Computed(value) if value.view() == View::Object => {
            value.members().try_for_each(|(key, _)| add(key))?;
        }
        Term::Nodes(nodes) => {
            for node in nodes {
                node.members().try_for_each(|(key, _)| add(key))?;
            }
        }
        _ => return Ok(Term::Nothing),
    }
    Ok(Term::List(keys))
}

/// The element at `index`, from the end if negative, of an array or of several values.
fn element<'p, 'd, N: Node<'d>>(term: Term<'p, N>, index: i64) -> Term<'p, N> {
    let resolve = |len: usize| {
        let index = if index < 0 {
            index.checked_add(len as i64)?
        } else {
            index
        };
        usize::try_from(index).ok().filter(|index| *index < len)
    };
    let found = match term {
        Term::Node(node) => resolve(node.len())
            .and_then(|index| node.element(index))
            .map(Term::Node),
        Term::Literal(value) => resolve(value.len())
            .and_then(|index| value.element(index))
            .map(Term::Literal),
        Term::Computed(Value::Array(mut values)) | Term::List(mut values) => {
            resolve(values.len()).map(|index| Term::Computed(values.swap_remove(index)))
        }
        Term::Nodes(nodes) => resolve(nodes.len()).map(|index| Term::Node(nodes[index])),
        Term::Nothing | Term::Computed(_) => None,
    };
    found.unwrap_or(Term::Nothing)
}

/// The elements of an array, or several values, with one more value behind them.
fn append<'p, 'd, N: Node<'d>>(
    receiver: Term<'p, N>,
    added: Term<'p, N>,
    budget: &mut Budget,
) -> Result<Term<'p, N>, PathError> {
    let added = match added {
        Term::List(values) => Value::Array(values),
        added => match added.into_values(budget)?.pop() {
            Some(value) => value,
            None => return Ok(Term::Nothing),
        },
    };
    let mut values = match receiver {
        Term::List(values) => values,
        Term::Nodes(nodes) => copies(&nodes, budget)?,
        Term::Node(node) if node.view() == View::Array => {
            let elements: Vec<N> = node.elements().collect();
            copies(&elements, budget)?
        }
        receiver => match receiver.into_values(budget)?.pop() {
            Some(Value::Array(values)) => values,
            Some(value) => vec![value],
            None => Vec::new(),
        },
    };
    values.push(added);
    Ok(Term::List(values))
}
