//! From the text of a path to its segments.
//!
//! A recursive descent that never goes back over more than one word: a parenthesis may hold a condition or a number,
//! which is decided behind it.

mod expression;
mod literal;

use super::limits::{NESTING_MAX, PathError, TEXT_LEN_MAX};
use super::syntax::{DefiniteStep, Dialect, Expression, Kind, Segment, Selector, Slice};

/// The parts of a program that its text decides.
pub(super) struct Parsed {
    pub(super) dialect: Dialect,
    pub(super) kind: Kind,
    /// Number of regular expressions in the path.
    pub(super) patterns: usize,
}

/// Parses the text of a path in either dialect.
pub(super) fn path(text: &[u8]) -> Result<Parsed, PathError> {
    if text.len() > TEXT_LEN_MAX {
        return Err(PathError::TooLong);
    }
    if std::str::from_utf8(text).is_err() {
        return Err(PathError::NotUtf8);
    }
    let dialect = if is_json_path(text) {
        Dialect::JsonPath
    } else {
        Dialect::Legacy
    };
    let mut parser = Parser {
        text,
        at: 0,
        nesting: 0,
        operators: 0,
        patterns: 0,
        at_legacy_path: dialect == Dialect::Legacy,
    };
    let expression = parser.whole()?;
    let kind = match expression {
        Expression::FromRoot(segments) => match definite(&segments) {
            Some(steps) => Kind::Definite(steps),
            None => Kind::Segments(segments),
        },
        projection => Kind::Projection(Box::new(projection)),
    };
    Ok(Parsed {
        dialect,
        kind,
        patterns: parser.patterns,
    })
}

/// Whether a text is JSONPath: `$` alone or before `.`, `[` or `~`; a parenthesis or a sign before such a path; the
/// call of a function. Keys that begin like these, such as `$name`, stay legacy.
fn is_json_path(text: &[u8]) -> bool {
    let behind_spaces = |text: &[u8]| text.iter().copied().find(|byte| *byte != b' ');
    let is_rooted_or_group = |text: &[u8]| {
        matches!(
            text,
            [b'$'] | [b'$', b'.' | b'[' | b'~' | b' ', ..] | [b'(', ..]
        )
    };
    match text {
        [b'-' | b'+', rest @ ..] => {
            let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
            is_rooted_or_group(&rest[spaces..])
        }
        [first, ..] if first.is_ascii_alphabetic() || *first == b'_' => {
            let name = text.iter().take_while(|byte| is_word(**byte)).count();
            behind_spaces(&text[name..]) == Some(b'(')
        }
        _ => is_rooted_or_group(text),
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether a name without quotes may contain `byte`: RedisJSON's characters, and all beyond ASCII.
fn is_name(byte: u8) -> bool {
    is_word(byte) || b"-`+#%$^/:".contains(&byte) || !byte.is_ascii()
}

/// The steps of a path that consists of names and single indices.
fn definite(segments: &[Segment]) -> Option<Box<[DefiniteStep]>> {
    segments
        .iter()
        .map(|segment| match (&segment.selector, segment.descends) {
            (Selector::Names(names), false) => match &**names {
                [name] => Some(DefiniteStep::Key(name.clone())),
                _ => None,
            },
            (Selector::Indices(indices), false) => match **indices {
                [index] => Some(DefiniteStep::Index(index)),
                _ => None,
            },
            _ => None,
        })
        .collect()
}

struct Parser<'t> {
    text: &'t [u8],
    at: usize,
    /// Number of open brackets, parentheses and negations.
    nesting: usize,
    /// Number of operators read so far; each may be one level of an expression.
    operators: usize,
    patterns: usize,
    /// Whether the next operand is the legacy path that a text begins with.
    at_legacy_path: bool,
}

impl Parser<'_> {
    /// The whole text.
    fn whole(&mut self) -> Result<Expression, PathError> {
        let expression = self.operand_expression()?;
        self.skip_spaces();
        if self.at < self.text.len() {
            return self.fail("'.', '..', '[', an operator, the end of the path");
        }
        Ok(expression)
    }

    /// A legacy path, which is JSONPath without its `$`.
    fn legacy_path(&mut self) -> Result<Expression, PathError> {
        if self.text == b"." {
            self.at = 1;
            return Ok(Expression::FromRoot(Box::default()));
        }
        let mut segments = Vec::new();
        if self.peek() != Some(b'.') {
            segments.push(Segment {
                descends: false,
                selector: self.child()?,
            });
        }
        self.segments(&mut segments)?;
        Ok(Expression::FromRoot(segments.into()))
    }

    /// The segments behind `$` or `@`.
    fn path(&mut self) -> Result<Box<[Segment]>, PathError> {
        let mut segments = Vec::new();
        let selector = match self.peek() {
            Some(b'*') => {
                self.at += 1;
                Some(Selector::All)
            }
            Some(byte) if is_name(byte) && self.word_operator().is_none() => Some(self.name()?),
            _ => None,
        };
        if let Some(selector) = selector {
            segments.push(Segment {
                descends: false,
                selector,
            });
        }
        self.segments(&mut segments)?;
        Ok(segments.into())
    }

    /// Segments up to something else.
    fn segments(&mut self, segments: &mut Vec<Segment>) -> Result<(), PathError> {
        loop {
            let before = self.at;
            self.skip_spaces();
            let descends = self.rest().starts_with(b"..");
            let selector = match self.peek() {
                Some(b'.') if !descends && self.is_at_method() => {
                    self.at = before;
                    return Ok(());
                }
                Some(b'.') => {
                    self.at += if descends { 2 } else { 1 };
                    self.child()?
                }
                Some(b'[') => self.bracket()?,
                _ => {
                    self.at = before;
                    return Ok(());
                }
            };
            segments.push(Segment { descends, selector });
        }
    }

    /// The selector behind a dot.
    fn child(&mut self) -> Result<Selector, PathError> {
        self.skip_spaces();
        match self.peek() {
            Some(b'*') => {
                self.at += 1;
                Ok(Selector::All)
            }
            Some(b'[') => self.bracket(),
            Some(byte) if is_name(byte) => self.name(),
            _ => self.fail("<string>, '*', '['"),
        }
    }

    /// A name without quotes.
    fn name(&mut self) -> Result<Selector, PathError> {
        let rest = self.rest();
        let len = rest.iter().take_while(|byte| is_name(**byte)).count();
        let name: Box<[u8]> = rest[..len].into();
        self.at += len;
        Ok(Selector::Names(Box::new([name])))
    }

    fn bracket(&mut self) -> Result<Selector, PathError> {
        self.at += 1;
        self.enter()?;
        self.skip_spaces();
        let selector = match self.peek() {
            Some(b'*') => {
                self.at += 1;
                Selector::All
            }
            Some(b'?') => {
                self.at += 1;
                Selector::Filter(Box::new(self.condition()?))
            }
            Some(b'"' | b'\'') => {
                let mut names = vec![self.string()?];
                while self.takes(b',') {
                    self.skip_spaces();
                    names.push(self.string()?);
                }
                Selector::Names(names.into())
            }
            Some(b'0'..=b'9' | b'-' | b'+' | b':') => self.indices_or_slice()?,
            _ => {
                return self.fail(
                    "'*', '<number>[,<number>,...]', ['start:end:steps'], '<string>[,<string>,...]', \
                     '[?(filter_expression)]'",
                );
            }
        };
        self.expect(b']', "','  ']'")?;
        self.leave();
        Ok(selector)
    }

    fn indices_or_slice(&mut self) -> Result<Selector, PathError> {
        let first = match self.peek() {
            Some(b':') => None,
            _ => Some(self.integer()?),
        };
        if !self.takes(b':') {
            let mut indices: Vec<i64> = first.into_iter().collect();
            while self.takes(b',') {
                indices.push(self.integer()?);
            }
            return Ok(Selector::Indices(indices.into()));
        }
        let end = self.optional_integer()?;
        let step = if self.takes(b':') {
            self.optional_integer()?
        } else {
            None
        };
        if step == Some(0) {
            return self.fail("a step other than 0");
        }
        Ok(Selector::Slice(Slice {
            start: first,
            end,
            step: step.unwrap_or(1),
        }))
    }

    fn optional_integer(&mut self) -> Result<Option<i64>, PathError> {
        self.skip_spaces();
        match self.peek() {
            Some(b'0'..=b'9' | b'-' | b'+') => self.integer().map(Some),
            _ => Ok(None),
        }
    }

    /// Whether the dot here begins a call such as `.length()`.
    fn is_at_method(&self) -> bool {
        let behind_spaces = |text: &[u8]| text.iter().take_while(|byte| **byte == b' ').count();
        let mut rest = &self.rest()[1..];
        rest = &rest[behind_spaces(rest)..];
        if !rest.first().is_some_and(u8::is_ascii_alphabetic) {
            return false;
        }
        rest = &rest[rest.iter().take_while(|byte| is_word(**byte)).count()..];
        rest = &rest[behind_spaces(rest)..];
        rest.first() == Some(&b'(')
    }

    fn rest(&self) -> &[u8] {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_spaces(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Takes spaces and `byte`, if that is what follows.
    fn takes(&mut self, byte: u8) -> bool {
        self.skip_spaces();
        let takes = self.peek() == Some(byte);
        self.at += usize::from(takes);
        takes
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), PathError> {
        if self.takes(byte) {
            Ok(())
        } else {
            self.fail(expected)
        }
    }

    fn fail<T>(&self, expected: &'static str) -> Result<T, PathError> {
        Err(PathError::Syntax {
            position: self.at,
            expected,
        })
    }

    fn enter(&mut self) -> Result<(), PathError> {
        self.nesting += 1;
        if self.nesting > NESTING_MAX {
            return Err(PathError::TooDeep);
        }
        Ok(())
    }

    fn leave(&mut self) {
        self.nesting -= 1;
    }
}

/// The JSON value that `text` is.
#[cfg(test)]
pub(super) fn json(text: &[u8]) -> Result<super::value::Value, PathError> {
    let mut parser = Parser {
        text,
        at: 0,
        nesting: 0,
        operators: 0,
        patterns: 0,
        at_legacy_path: false,
    };
    let value = parser.value()?;
    parser.skip_spaces();
    if parser.at < text.len() {
        return parser.fail("the end");
    }
    Ok(value)
}
