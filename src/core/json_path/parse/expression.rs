//! Expressions, from the loosest operator to the tightest: `||`, `&&`, `!`, comparisons, `+ -`, `* / %`, signs.

use super::super::evaluate::compile;
use super::super::limits::{PATTERNS_MAX, PathError};
use super::super::syntax::{Expression, Function, Matching, Operator, Pattern, Relation};
use super::super::value::Value;
use super::{Parser, is_word};

/// Maximum number of operators in one path, which bounds the depth of its expressions.
const OPERATORS_MAX: usize = 512;

/// A relation as it is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    Relation(Relation),
    /// `=~`
    Matches,
}

/// Longer ones before those that they begin with.
const SYMBOLS: &[(&[u8], Written)] = &[
    (b"==", Written::Relation(Relation::Equal)),
    (b"!=", Written::Relation(Relation::NotEqual)),
    (b"<=", Written::Relation(Relation::LessOrEqual)),
    (b">=", Written::Relation(Relation::GreaterOrEqual)),
    (b"=~", Written::Matches),
    (b"<", Written::Relation(Relation::Less)),
    (b">", Written::Relation(Relation::Greater)),
];

const WORDS: &[(&[u8], Relation)] = &[
    (b"in", Relation::In),
    (b"nin", Relation::NotIn),
    (b"subsetof", Relation::SubsetOf),
    (b"anyof", Relation::AnyOf),
    (b"noneof", Relation::NoneOf),
    (b"sizeof", Relation::SizeOf),
    (b"size", Relation::SizeOf),
    (b"empty", Relation::Empty),
];

impl Parser<'_> {
    /// The condition of a filter.
    pub(super) fn condition(&mut self) -> Result<Expression, PathError> {
        let first = self.conjunction()?;
        if !self.takes_symbol(b"||") {
            return Ok(first);
        }
        let mut operands = vec![first, self.conjunction()?];
        while self.takes_symbol(b"||") {
            operands.push(self.conjunction()?);
        }
        Ok(Expression::Or(operands))
    }

    fn conjunction(&mut self) -> Result<Expression, PathError> {
        let first = self.negation()?;
        if !self.takes_symbol(b"&&") {
            return Ok(first);
        }
        let mut operands = vec![first, self.negation()?];
        while self.takes_symbol(b"&&") {
            operands.push(self.negation()?);
        }
        Ok(Expression::And(operands))
    }

    fn negation(&mut self) -> Result<Expression, PathError> {
        if !self.takes(b'!') {
            return self.comparison();
        }
        self.enter()?;
        let operand = self.negation()?;
        self.leave();
        Ok(Expression::Not(Box::new(operand)))
    }

    fn comparison(&mut self) -> Result<Expression, PathError> {
        let left = self.sum()?;
        self.skip_spaces();
        let Some((len, relation)) = self.relation() else {
            return Ok(left);
        };
        let left = self.computable(left)?;
        self.at += len;
        let right = self.sum()?;
        let right = self.computable(right)?;
        match relation {
            Written::Relation(relation) => Ok(Expression::Comparison(
                relation,
                Box::new(left),
                Box::new(right),
            )),
            Written::Matches => self.matching(Matching::Operator, left, right),
        }
    }

    /// The relation here, and its length.
    fn relation(&self) -> Option<(usize, Written)> {
        let rest = self.rest();
        let symbol = SYMBOLS.iter().find(|(text, _)| rest.starts_with(text));
        match symbol {
            Some((text, written)) => Some((text.len(), *written)),
            None => self
                .word_operator()
                .map(|(len, relation)| (len, Written::Relation(relation))),
        }
    }

    /// The relation that is a word here, and its length.
    pub(super) fn word_operator(&self) -> Option<(usize, Relation)> {
        let rest = self.rest();
        let len = rest.iter().take_while(|byte| is_word(**byte)).count();
        WORDS
            .iter()
            .find(|(text, _)| *text == &rest[..len])
            .map(|(_, relation)| (len, *relation))
    }

    /// An expression whose value is no condition.
    pub(super) fn operand_expression(&mut self) -> Result<Expression, PathError> {
        let expression = self.sum()?;
        self.computable(expression)
    }

    fn sum(&mut self) -> Result<Expression, PathError> {
        let mut left = self.product()?;
        loop {
            self.skip_spaces();
            let operator = match self.peek() {
                Some(b'+') => Operator::Add,
                Some(b'-') => Operator::Subtract,
                _ => return Ok(left),
            };
            left = self.arithmetic(operator, left, Parser::product)?;
        }
    }

    fn product(&mut self) -> Result<Expression, PathError> {
        let mut left = self.signed()?;
        loop {
            self.skip_spaces();
            let operator = match self.peek() {
                Some(b'*') => Operator::Multiply,
                Some(b'/') => Operator::Divide,
                Some(b'%') => Operator::Remainder,
                _ => return Ok(left),
            };
            left = self.arithmetic(operator, left, Parser::signed)?;
        }
    }

    fn arithmetic(
        &mut self,
        operator: Operator,
        left: Expression,
        right: fn(&mut Self) -> Result<Expression, PathError>,
    ) -> Result<Expression, PathError> {
        let left = self.computable(left)?;
        self.at += 1;
        self.count_operator()?;
        let right = right(self)?;
        let right = self.computable(right)?;
        Ok(Expression::Arithmetic(
            operator,
            Box::new(left),
            Box::new(right),
        ))
    }

    fn count_operator(&mut self) -> Result<(), PathError> {
        self.operators += 1;
        if self.operators > OPERATORS_MAX {
            return Err(PathError::TooLong);
        }
        Ok(())
    }

    /// An operand with an optional sign.
    fn signed(&mut self) -> Result<Expression, PathError> {
        self.skip_spaces();
        let negative = match self.peek() {
            Some(b'-') if !matches!(self.rest(), [_, b'0'..=b'9', ..]) => true,
            Some(b'+') => false,
            _ => return self.primary(),
        };
        if self.at_legacy_path {
            return self.primary();
        }
        self.at += 1;
        self.count_operator()?;
        let operand = self.primary()?;
        let operand = self.computable(operand)?;
        Ok(Expression::Sign {
            negative,
            operand: Box::new(operand),
        })
    }

    fn primary(&mut self) -> Result<Expression, PathError> {
        self.skip_spaces();
        if std::mem::take(&mut self.at_legacy_path) {
            let path = self.legacy_path()?;
            return self.methods(path);
        }
        let term = match self.peek() {
            Some(b'(') => {
                self.at += 1;
                self.enter()?;
                let inner = self.condition()?;
                self.expect(b')', "an operator, ')'")?;
                self.leave();
                return Ok(inner);
            }
            Some(b'@') => {
                self.at += 1;
                Expression::FromCurrent(self.path()?)
            }
            Some(b'$') => {
                self.at += 1;
                Expression::FromRoot(self.path()?)
            }
            Some(byte) if byte.is_ascii_alphabetic() => match self.constant() {
                Some(constant) => Expression::Literal(constant),
                None => self.call()?,
            },
            Some(b'"' | b'\'' | b'-' | b'0'..=b'9' | b'[' | b'{') => {
                Expression::Literal(self.value()?)
            }
            _ => {
                return self.fail(
                    "'@', '$', '(', '!', <string>, '<number>', 'true', 'false', 'null', '[', '{', a function",
                );
            }
        };
        self.methods(term)
    }

    /// Calls behind an operand, `.length()`, or the one `~` that stands for `.keys()`.
    fn methods(&mut self, mut receiver: Expression) -> Result<Expression, PathError> {
        if self.takes(b'~') {
            return Ok(Expression::Call(Function::Keys, Box::new([receiver])));
        }
        while self.peek() == Some(b'.') && self.is_at_method() {
            self.at += 1;
            self.skip_spaces();
            self.count_operator()?;
            let name = self.word();
            let arguments = self.arguments(vec![receiver])?;
            receiver = self.function(&name, arguments)?;
            self.skip_spaces();
        }
        Ok(receiver)
    }

    fn call(&mut self) -> Result<Expression, PathError> {
        let start = self.at;
        let name = self.word();
        self.skip_spaces();
        if self.peek() != Some(b'(') {
            self.at = start;
            return self.fail("'true', 'false', 'null', a function");
        }
        let arguments = self.arguments(Vec::new())?;
        self.function(&name, arguments)
    }

    fn word(&mut self) -> Box<[u8]> {
        let rest = self.rest();
        let word: Box<[u8]> = rest
            .iter()
            .copied()
            .take_while(|byte| is_word(*byte))
            .collect();
        self.at += word.len();
        word
    }

    /// Adds the arguments in parentheses to `arguments`.
    fn arguments(&mut self, mut arguments: Vec<Expression>) -> Result<Vec<Expression>, PathError> {
        self.expect(b'(', "'('")?;
        self.enter()?;
        if !self.takes(b')') {
            loop {
                arguments.push(self.operand_expression()?);
                if !self.takes(b',') {
                    break;
                }
            }
            self.expect(b')', "an operator, ',', ')'")?;
        }
        self.leave();
        Ok(arguments)
    }

    /// The call of a function. An unknown name and a wrong number of arguments are no errors, but give nothing.
    fn function(
        &mut self,
        name: &[u8],
        mut arguments: Vec<Expression>,
    ) -> Result<Expression, PathError> {
        let matching = match name {
            b"match" => Some(Matching::Whole),
            b"search" => Some(Matching::Search),
            _ => None,
        };
        if let Some(how) = matching {
            return match (arguments.pop(), arguments.pop(), arguments.pop()) {
                (Some(pattern), Some(subject), None) => self.matching(how, subject, pattern),
                _ => Ok(Expression::Literal(Value::Bool(false))),
            };
        }
        let (function, arity) = match name {
            b"length" => (Function::Length, 1..=1),
            b"count" => (Function::Count, 1..=1),
            b"value" => (Function::Value, 1..=1),
            b"ceiling" => (Function::Ceiling, 1..=1),
            b"floor" => (Function::Floor, 1..=1),
            b"abs" => (Function::Abs, 1..=1),
            b"concat" => (Function::Concat, 1..=usize::MAX),
            b"sum" => (Function::Sum, 1..=1),
            b"min" => (Function::Min, 1..=1),
            b"max" => (Function::Max, 1..=1),
            b"avg" => (Function::Avg, 1..=1),
            b"stddev" => (Function::Stddev, 1..=1),
            b"keys" => (Function::Keys, 1..=1),
            b"append" => (Function::Append, 2..=2),
            b"first" => (Function::First, 1..=1),
            b"last" => (Function::Last, 1..=1),
            b"index" => (Function::Index, 2..=2),
            _ => (Function::Nothing, 0..=0),
        };
        if function == Function::Nothing || !arity.contains(&arguments.len()) {
            return Ok(Expression::Call(Function::Nothing, Box::default()));
        }
        Ok(Expression::Call(function, arguments.into()))
    }

    /// A match with a regular expression, which is compiled here if it is a literal.
    fn matching(
        &mut self,
        how: Matching,
        subject: Expression,
        pattern: Expression,
    ) -> Result<Expression, PathError> {
        let pattern = match pattern {
            Expression::Literal(Value::Str(text)) => {
                self.patterns += 1;
                if self.patterns > PATTERNS_MAX {
                    return Err(PathError::TooLong);
                }
                Pattern::Fixed(compile(&text, how == Matching::Whole).map(Box::new))
            }
            computed => Pattern::Computed(Box::new(computed)),
        };
        Ok(Expression::Match {
            how,
            subject: Box::new(subject),
            pattern,
        })
    }

    /// Refuses a condition where a value has to stand.
    fn computable(&self, expression: Expression) -> Result<Expression, PathError> {
        if expression.is_logical() {
            return self.fail("'&&', '||', ')', ']'");
        }
        Ok(expression)
    }

    fn takes_symbol(&mut self, symbol: &[u8]) -> bool {
        self.skip_spaces();
        let takes = self.rest().starts_with(symbol);
        if takes {
            self.at += symbol.len();
        }
        takes
    }
}
