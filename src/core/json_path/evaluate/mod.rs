//! The values of expressions: conditions of filters, and projections.
//!
//! An operand is nothing, one value or several: a path with several matches compares true if any of them does. What
//! cannot be computed (a sum of texts, a division by zero) is nothing, which is no error and equals nothing.

mod compare;
mod functions;
mod patterns;
pub(super) mod search;

use super::limits::{Budget, PathError, RECURSION_MAX};
use super::node::{Node, Number, View};
use super::syntax::{Expression, Matching, Operator, Pattern, Segment};
use super::value::Value;
use patterns::Patterns;

pub(super) use patterns::compile;

/// State of one search.
pub(super) struct Context<'b, N> {
    /// The document, which `$` means.
    pub(super) root: N,
    pub(super) budget: &'b mut Budget,
    /// Current depth of the recursion.
    pub(super) depth: usize,
    patterns: Patterns,
}

impl<'b, N> Context<'b, N> {
    pub(super) fn new(root: N, budget: &'b mut Budget) -> Context<'b, N> {
        Context {
            root,
            budget,
            depth: 0,
            patterns: Patterns::default(),
        }
    }
}

/// The value of an operand.
enum Term<'p, N> {
    Nothing,
    /// A value in the document.
    Node(N),
    /// Several values in the document.
    Nodes(Vec<N>),
    /// A literal.
    Literal(&'p Value),
    /// A computed value.
    Computed(Value),
    /// Several computed values: keys, and arrays with a value appended.
    List(Vec<Value>),
}

impl<'d, N: Node<'d>> Term<'_, N> {
    fn of_nodes(mut nodes: Vec<N>) -> Self {
        match nodes.len() {
            0 => Term::Nothing,
            1 => nodes.pop().map_or(Term::Nothing, Term::Node),
            _ => Term::Nodes(nodes),
        }
    }

    fn of_number(number: Number) -> Self {
        match number {
            Number::Int(number) => Term::Computed(Value::Int(number)),
            Number::Float(number) => Term::Computed(Value::Float(number)),
        }
    }

    fn of_count(count: usize) -> Self {
        Term::Computed(Value::Int(count as i64))
    }

    /// The view of a single value.
    fn view<'v>(&'v self) -> Option<View<'v>>
    where
        'd: 'v,
    {
        match self {
            Term::Node(node) => Some(node.view()),
            Term::Literal(value) => Some(value.view()),
            Term::Computed(value) => Some(value.view()),
            Term::Nothing | Term::Nodes(_) | Term::List(_) => None,
        }
    }

    fn number(&self) -> Option<Number> {
        self.view().and_then(Number::of)
    }

    fn text<'v>(&'v self) -> Option<&'v [u8]>
    where
        'd: 'v,
    {
        match self.view() {
            Some(View::Str(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether a condition that consists of this operand alone holds: a path if it matches anything, a truth value
    /// that is computed or literal if it is true.
    fn is_true(&self) -> bool {
        match self {
            Term::Nothing => false,
            Term::Literal(Value::Bool(bool)) | Term::Computed(Value::Bool(bool)) => *bool,
            Term::List(values) => !values.is_empty(),
            Term::Node(_) | Term::Nodes(_) | Term::Literal(_) | Term::Computed(_) => true,
        }
    }

    /// All values as results of a projection.
    fn into_values(self, budget: &mut Budget) -> Result<Vec<Value>, PathError> {
        Ok(match self {
            Term::Nothing => Vec::new(),
            Term::Node(node) => vec![Value::copy_of(node, budget)?],
            Term::Nodes(nodes) => vec![Value::Array(copies(&nodes, budget)?)],
            Term::Literal(value) => vec![Value::copy_of(value, budget)?],
            // Infinity and NaN have no form in JSON.
            Term::Computed(Value::Float(number)) if !number.is_finite() => Vec::new(),
            Term::Computed(value) => vec![value],
            Term::List(values) => values,
        })
    }
}

fn copies<'d, N: Node<'d>>(nodes: &[N], budget: &mut Budget) -> Result<Vec<Value>, PathError> {
    nodes
        .iter()
        .map(|node| Value::copy_of(*node, budget))
        .collect()
}

/// The values of a projection.
pub(super) fn project<'d, N: Node<'d>>(
    expression: &Expression,
    root: N,
    budget: &mut Budget,
) -> Result<Vec<Value>, PathError> {
    let mut context = Context::new(root, budget);
    let term = evaluate(expression, root, &mut context)?;
    term.into_values(context.budget)
}

/// Whether a condition holds for `node`.
pub(super) fn holds<'d, N: Node<'d>>(
    condition: &Expression,
    node: N,
    context: &mut Context<'_, N>,
) -> Result<bool, PathError> {
    context.budget.spend(1)?;
    match condition {
        Expression::Not(operand) => Ok(!nested(context, |context| holds(operand, node, context))?),
        Expression::And(operands) => {
            for operand in operands {
                if !nested(context, |context| holds(operand, node, context))? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Expression::Or(operands) => {
            for operand in operands {
                if nested(context, |context| holds(operand, node, context))? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Expression::Comparison(relation, left, right) => {
            let left = evaluate(left, node, context)?;
            let right = evaluate(right, node, context)?;
            compare::holds(*relation, &left, &right, context.budget)
        }
        _ => Ok(evaluate(condition, node, context)?.is_true()),
    }
}

/// Runs `call` one level deeper.
fn nested<N, T>(
    context: &mut Context<'_, N>,
    call: impl FnOnce(&mut Context<'_, N>) -> Result<T, PathError>,
) -> Result<T, PathError> {
    context.depth += 1;
    if context.depth > RECURSION_MAX {
        return Err(PathError::TooDeep);
    }
    let result = call(context);
    context.depth -= 1;
    result
}

/// The value of an operand for `node`.
fn evaluate<'p, 'd, N: Node<'d>>(
    expression: &'p Expression,
    node: N,
    context: &mut Context<'_, N>,
) -> Result<Term<'p, N>, PathError> {
    context.budget.spend(1)?;
    match expression {
        Expression::Literal(value) => Ok(Term::Literal(value)),
        Expression::FromCurrent(segments) => path(segments, node, context),
        Expression::FromRoot(segments) => path(segments, context.root, context),
        Expression::Call(function, arguments) => {
            let mut terms = Vec::with_capacity(arguments.len());
            for argument in arguments {
                terms.push(nested(context, |context| {
                    evaluate(argument, node, context)
                })?);
            }
            functions::call(*function, terms, context.budget)
        }
        Expression::Sign { negative, operand } => {
            let operand = nested(context, |context| evaluate(operand, node, context))?;
            Ok(signed(*negative, &operand))
        }
        Expression::Arithmetic(operator, left, right) => {
            let left = nested(context, |context| evaluate(left, node, context))?;
            let right = nested(context, |context| evaluate(right, node, context))?;
            Ok(computed(*operator, &left, &right))
        }
        Expression::Match {
            how,
            subject,
            pattern,
        } => {
            let subject = nested(context, |context| evaluate(subject, node, context))?;
            let matches = matches(*how, &subject, pattern, node, context)?;
            Ok(Term::Computed(Value::Bool(matches)))
        }
        Expression::Comparison(..)
        | Expression::Not(_)
        | Expression::And(_)
        | Expression::Or(_) => {
            let holds = nested(context, |context| holds(expression, node, context))?;
            Ok(Term::Computed(Value::Bool(holds)))
        }
    }
}

fn path<'p, 'd, N: Node<'d>>(
    segments: &[Segment],
    from: N,
    context: &mut Context<'_, N>,
) -> Result<Term<'p, N>, PathError> {
    if segments.is_empty() {
        return Ok(Term::Node(from));
    }
    Ok(Term::of_nodes(search::nodes_within(
        segments, from, context,
    )?))
}

/// Whether a subject matches a regular expression.
fn matches<'d, N: Node<'d>>(
    how: Matching,
    subject: &Term<'_, N>,
    pattern: &Pattern,
    node: N,
    context: &mut Context<'_, N>,
) -> Result<bool, PathError> {
    let several;
    let subjects: &[N] = match subject {
        Term::Nodes(nodes) if how == Matching::Operator => {
            several = nodes;
            several
        }
        _ => &[],
    };
    let texts = subjects.iter().filter_map(|node| match node.view() {
        View::Str(text) => Some(text),
        _ => None,
    });
    let whole = how == Matching::Whole;
    match pattern {
        Pattern::Fixed(None) => Ok(false),
        Pattern::Fixed(Some(regex)) => {
            for text in subject.text().into_iter().chain(texts) {
                context.budget.spend_bytes(text.len())?;
                if regex.is_match(text) {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Pattern::Computed(expression) => {
            let pattern = nested(context, |context| evaluate(expression, node, context))?;
            let one = pattern.text();
            let more: &[N] = match &pattern {
                Term::Nodes(nodes) if how == Matching::Operator => nodes,
                _ => &[],
            };
            let patterns =
                one.into_iter()
                    .chain(more.iter().filter_map(|node| match node.view() {
                        View::Str(text) => Some(text),
                        _ => None,
                    }));
            for pattern in patterns {
                for text in subject.text().into_iter().chain(texts.clone()) {
                    if context
                        .patterns
                        .is_match(pattern, whole, text, context.budget)?
                    {
                        return Ok(true);
                    }
                }
            }
            Ok(false)
        }
    }
}

/// `-x` or `+x`; nothing if `x` is no number.
fn signed<'p, 'd, N: Node<'d>>(negative: bool, operand: &Term<'_, N>) -> Term<'p, N> {
    let Some(number) = operand.number() else {
        return Term::Nothing;
    };
    Term::of_number(match number {
        number if !negative => number,
        Number::Int(int) => int
            .checked_neg()
            .map_or(Number::Float(-(int as f64)), Number::Int),
        Number::Float(float) => Number::Float(-float),
    })
}

/// Integers stay integers but in divisions, and where the result does not fit.
fn computed<'p, 'd, N: Node<'d>>(
    operator: Operator,
    left: &Term<'_, N>,
    right: &Term<'_, N>,
) -> Term<'p, N> {
    let (Some(left), Some(right)) = (left.number(), right.number()) else {
        return Term::Nothing;
    };
    if let (Number::Int(left), Number::Int(right)) = (left, right) {
        let exact = match operator {
            Operator::Add => left.checked_add(right),
            Operator::Subtract => left.checked_sub(right),
            Operator::Multiply => left.checked_mul(right),
            Operator::Remainder => {
                // A remainder never overflows to another number: it is nothing for 0, and for i64::MIN % -1.
                return left
                    .checked_rem(right)
                    .map_or(Term::Nothing, |rest| Term::Computed(Value::Int(rest)));
            }
            Operator::Divide => None,
        };
        if let Some(exact) = exact {
            return Term::Computed(Value::Int(exact));
        }
    }
    let (left, right) = (left.float(), right.float());
    let divides = matches!(operator, Operator::Divide | Operator::Remainder);
    if divides && right == 0.0 {
        return Term::Nothing;
    }
    Term::Computed(Value::Float(match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        Operator::Remainder => left % right,
    }))
}
