//! The parts of a parsed path.

use regex::bytes::Regex;

use super::value::Value;

/// The two kinds of paths, which decide what a command answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// One value, or an error: `.a`, `a.b`, `["a"]`.
    Legacy,
    /// An array of all matches: `$.a`.
    JsonPath,
}

/// One step of a definite path, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefiniteStep {
    /// The value of a key.
    Key(Box<[u8]>),
    /// An element; from the end if negative.
    Index(i64),
}

/// The three ways to evaluate a path.
#[derive(Debug)]
pub(super) enum Kind {
    /// Names and single indices only.
    Definite(Box<[DefiniteStep]>),
    /// Any segments.
    Segments(Box<[Segment]>),
    /// A computed value.
    Projection(Box<Expression>),
}

/// A part of a path, which leads from a value to some below it.
#[derive(Debug)]
pub(super) struct Segment {
    /// True if the selector applies to the value and to all below it (`..`), not to the value alone.
    pub(super) descends: bool,
    pub(super) selector: Selector,
}

/// The children of a value that are meant.
#[derive(Debug)]
pub(super) enum Selector {
    All,
    Names(Box<[Box<[u8]>]>),
    Indices(Box<[i64]>),
    Slice(Slice),
    Filter(Box<Expression>),
}

/// The elements from `start` on, every `step`th, before `end`. Negative positions count from the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slice {
    pub(super) start: Option<i64>,
    pub(super) end: Option<i64>,
    /// Never 0.
    pub(super) step: i64,
}

/// An expression of a filter or a projection.
#[derive(Debug)]
pub(super) enum Expression {
    Literal(Value),
    /// `@...`
    FromCurrent(Box<[Segment]>),
    /// `$...`
    FromRoot(Box<[Segment]>),
    Call(Function, Box<[Expression]>),
    /// `+x`, `-x`
    Sign {
        negative: bool,
        operand: Box<Expression>,
    },
    Arithmetic(Operator, Box<Expression>, Box<Expression>),
    Comparison(Relation, Box<Expression>, Box<Expression>),
    Match {
        how: Matching,
        subject: Box<Expression>,
        pattern: Pattern,
    },
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
}

impl Expression {
    /// Whether this is true or false by its form, which cannot be computed with.
    pub(super) fn is_logical(&self) -> bool {
        match self {
            Expression::Comparison(..)
            | Expression::Not(_)
            | Expression::And(_)
            | Expression::Or(_) => true,
            Expression::Match { how, .. } => *how == Matching::Operator,
            _ => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
    SubsetOf,
    AnyOf,
    NoneOf,
    SizeOf,
    Empty,
}

/// The three ways to apply a regular expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matching {
    /// `=~`: anywhere in one of several texts.
    Operator,
    /// `search()`: anywhere in the text.
    Search,
    /// `match()`: the whole text.
    Whole,
}

/// A regular expression.
#[derive(Debug)]
pub(super) enum Pattern {
    /// From a literal; `None` if it is not valid, which matches nothing.
    Fixed(Option<Box<Regex>>),
    Computed(Box<Expression>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Length,
    Count,
    Value,
    Ceiling,
    Floor,
    Abs,
    Concat,
    Sum,
    Min,
    Max,
    Avg,
    Stddev,
    Keys,
    Append,
    First,
    Last,
    Index,
    /// A name that is no function, or one with a wrong number of arguments: its result is nothing.
    Nothing,
}
