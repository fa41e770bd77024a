//! JSON values that paths own: the literals of a filter and the results of a projection.

use super::limits::{Budget, PathError, VALUE_DEPTH_MAX};
use super::node::{Node, View};

/// A JSON value of its own.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer above `i64::MAX`.
    Uint(u64),
    /// Any other number; always finite.
    Float(f64),
    /// A text in UTF-8.
    Str(Box<[u8]>),
    /// An array.
    Array(Vec<Value>),
    /// An object with its members in order.
    Object(Vec<(Box<[u8]>, Value)>),
}

impl Value {
    /// Copies a node with all below it, for a step of `budget` per value.
    pub(super) fn copy_of<'d, N: Node<'d>>(
        node: N,
        budget: &mut Budget,
    ) -> Result<Value, PathError> {
        copy(node, 0, budget)
    }
}

fn copy<'d, N: Node<'d>>(node: N, depth: usize, budget: &mut Budget) -> Result<Value, PathError> {
    if depth > VALUE_DEPTH_MAX {
        return Err(PathError::TooDeep);
    }
    budget.spend(1)?;
    Ok(match node.view() {
        View::Null => Value::Null,
        View::Bool(bool) => Value::Bool(bool),
        View::Int(number) => Value::Int(number),
        View::Uint(number) => Value::Uint(number),
        View::Float(number) => Value::Float(number),
        View::Str(text) => {
            budget.spend_bytes(text.len())?;
            Value::Str(text.into())
        }
        View::Array => Value::Array(
            node.elements()
                .map(|element| copy(element, depth + 1, budget))
                .collect::<Result<_, _>>()?,
        ),
        View::Object => Value::Object(
            node.members()
                .map(|(key, value)| Ok((key.into(), copy(value, depth + 1, budget)?)))
                .collect::<Result<_, PathError>>()?,
        ),
    })
}

/// The members of a [`Value`].
#[derive(Clone, Debug)]
pub struct Members<'d>(std::slice::Iter<'d, (Box<[u8]>, Value)>);

impl<'d> Iterator for Members<'d> {
    type Item = (&'d [u8], &'d Value);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, value)| (&**key, value))
    }
}

impl<'d> Node<'d> for &'d Value {
    type Elements = std::slice::Iter<'d, Value>;
    type Members = Members<'d>;

    fn view(self) -> View<'d> {
        match self {
            Value::Null => View::Null,
            Value::Bool(bool) => View::Bool(*bool),
            Value::Int(number) => View::Int(*number),
            Value::Uint(number) => View::Uint(*number),
            Value::Float(number) => View::Float(*number),
            Value::Str(text) => View::Str(text),
            Value::Array(_) => View::Array,
            Value::Object(_) => View::Object,
        }
    }

    fn len(self) -> usize {
        match self {
            Value::Array(elements) => elements.len(),
            Value::Object(members) => members.len(),
            _ => 0,
        }
    }

    fn child(self, key: &[u8]) -> Option<Self> {
        self.members()
            .find(|(other, _)| *other == key)
            .map(|(_, value)| value)
    }

    fn element(self, index: usize) -> Option<Self> {
        match self {
            Value::Array(elements) => elements.get(index),
            _ => None,
        }
    }

    fn elements(self) -> Self::Elements {
        match self {
            Value::Array(elements) => elements.iter(),
            _ => [].iter(),
        }
    }

    fn members(self) -> Self::Members {
        match self {
            Value::Object(members) => Members(members.iter()),
            _ => Members([].iter()),
        }
    }
}
