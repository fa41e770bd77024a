//! The interface through which paths read documents, and the equality of two values.

use super::limits::{Budget, PathError};

/// The kind of a value, and the value itself if it is a scalar. Texts are valid UTF-8.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum View<'d> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer above `i64::MAX`.
    Uint(u64),
    /// Any other number.
    Float(f64),
    /// A text.
    Str(&'d [u8]),
    /// An array: `Node` has its elements.
    Array,
    /// An object: `Node` has its members.
    Object,
}

/// A value in a document: a small handle, such as a reference.
#[allow(clippy::len_without_is_empty, reason = "scalars have no emptiness")]
pub trait Node<'d>: Copy {
    /// The elements of an array.
    type Elements: Iterator<Item = Self>;
    /// The members of an object.
    type Members: Iterator<Item = (&'d [u8], Self)>;

    /// The kind, and the value of a scalar.
    fn view(self) -> View<'d>;
    /// The number of elements or members; 0 for a scalar.
    fn len(self) -> usize;
    /// The value of `key`, if this is an object that has it.
    fn child(self, key: &[u8]) -> Option<Self>;
    /// The element at `index`, if this is an array that has it.
    fn element(self, index: usize) -> Option<Self>;
    /// All elements; none if this is not an array.
    fn elements(self) -> Self::Elements;
    /// All members in the order of the document; none if this is not an object.
    fn members(self) -> Self::Members;
}

/// Whether two numbers of different kinds can be equal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbers {
    /// Integers equal integers only, as JSON.ARRINDEX means it.
    ByKind,
    /// 1 equals 1.0, as filters mean it.
    ByValue,
}

/// Whether two values are equal as JSON.ARRINDEX means it: an integer never equals a number with a fraction part, not
/// even 1 and 1.0; the order of an object's members does not matter.
pub fn equal<'a, 'b, A: Node<'a>, B: Node<'b>>(a: A, b: B) -> bool {
    let mut budget = Budget::of(u64::MAX);
    equal_within(a, b, Numbers::ByKind, &mut budget).unwrap_or(false)
}

/// Whether two values are equal, for a step of `budget` per pair of values.
pub(super) fn equal_within<'a, 'b, A: Node<'a>, B: Node<'b>>(
    a: A,
    b: B,
    numbers: Numbers,
    budget: &mut Budget,
) -> Result<bool, PathError> {
    budget.spend(1)?;
    match (a.view(), b.view()) {
        (View::Null, View::Null) => Ok(true),
        (View::Bool(a), View::Bool(b)) => Ok(a == b),
        (View::Str(a), View::Str(b)) => {
            budget.spend_bytes(a.len().min(b.len()))?;
            Ok(a == b)
        }
        (View::Array, View::Array) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.elements().zip(b.elements()) {
                if !equal_within(a, b, numbers, budget)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (View::Object, View::Object) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (key, a) in a.members() {
                // A lookup may have to read over the members before it.
                budget.spend(b.len() as u64 / 16)?;
                match b.child(key) {
                    Some(b) if equal_within(a, b, numbers, budget)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        (a, b) => Ok(match (Number::of(a), Number::of(b)) {
            (Some(a), Some(b)) => a.equals(b, numbers),
            _ => false,
        }),
    }
}

/// A number for comparing and computing.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    /// The number that `view` is. Integers above `i64::MAX` count as floating point, as in RedisJSON.
    pub(super) fn of(view: View<'_>) -> Option<Number> {
        match view {
            View::Int(number) => Some(Number::Int(number)),
            View::Uint(number) => Some(Number::Float(number as f64)),
            View::Float(number) => Some(Number::Float(number)),
            _ => None,
        }
    }

    /// The number as floating point.
    pub(super) fn float(self) -> f64 {
        match self {
            Number::Int(number) => number as f64,
            Number::Float(number) => number,
        }
    }

    fn equals(self, other: Number, numbers: Numbers) -> bool {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => a == b,
            (Number::Float(a), Number::Float(b)) => a == b,
            _ => numbers == Numbers::ByValue && self.float() == other.float(),
        }
    }
}
