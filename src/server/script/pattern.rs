//! Lua's pattern matching, for texts on which Lua's own functions could take very long. The results are the
//! same, but the recursion depth is bounded, and the search regularly checks whether the script may continue.
//!
//! Lua's own functions check nothing while they search, and a pattern such as `.-.-.-b` can keep them busy for
//! years. The cost of each pattern is estimated ([`is_light`]), and Lua's own functions are used only if they
//! are certain to be fast.

use mlua::{Function, Lua, MultiValue, Table, Value};

use super::convert::string;
use super::current::{look, tick};
use super::{arguments, errors};
use basalt_core::base::lossless;

/// Maximum captures of a pattern.
const CAPTURES_MAX: usize = 32;

/// Maximum depth of nested matches; a pattern may need one level per item.
const DEPTH_MAX: usize = 1_000;

/// Matching steps between two checks whether the script may continue.
const TICK_STEPS: u64 = 100_000;

/// Maximum length of a generated text.
const TEXT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Adds the functions to `native`.
pub(super) fn install(lua: &Lua, native: &Table) -> mlua::Result<()> {
    let slow = lua.create_table()?;
    slow.raw_set(
        "find",
        lua.create_function(|lua, given| find(lua, given, true))?,
    )?;
    slow.raw_set(
        "match",
        lua.create_function(|lua, given| find(lua, given, false))?,
    )?;
    slow.raw_set("gmatch", lua.create_function(find_each)?)?;
    slow.raw_set("gsub", lua.create_function(replace)?)?;
    native.raw_set("patterns", slow)
}

/// Returns the weight of a pattern: how many of its parts may match texts of several lengths. The time of a
/// search is bounded by the text's length to the power of weight + 1. Very long patterns get a weight that
/// excludes all texts.
fn weight(pattern: &[u8]) -> usize {
    if pattern.len() > DEPTH_MAX / 2 {
        return usize::from(u8::MAX);
    }
    let is_repeat = |byte: &&u8| matches!(byte, b'*' | b'+' | b'-' | b'?');
    let balanced = pattern.windows(2).filter(|pair| *pair == b"%b").count();
    pattern.iter().filter(is_repeat).count() + balanced
}

/// Maximum bytes of a text on which Lua's own functions may search, for patterns of weight 1, 2, 3 and 4.
const LIGHT_BYTES: [usize; 4] = [3_000, 300, 80, 30];

/// Maximum product of the bytes of a text and of a search or replacement text.
const LIGHT_PRODUCT: usize = 1024 * 1024;

/// True if Lua's own functions are fast even if they compare each byte of one text with each byte of the other.
pub(super) fn is_light_product(text: &[u8], other: &[u8]) -> bool {
    text.len().saturating_mul(other.len().max(1)) <= LIGHT_PRODUCT
}

/// True if a pattern has no special characters.
pub(super) fn is_literal(pattern: &[u8]) -> bool {
    let mut bytes = lossless::before_nul(pattern).iter();
    !bytes.any(|byte| b"^$*+?.([%-".contains(byte))
}

/// True if Lua's own functions are fast with a text and a pattern.
pub(super) fn is_light(text: &[u8], pattern: &[u8]) -> bool {
    match weight(pattern) {
        0 => is_light_product(text, pattern),
        weight => LIGHT_BYTES
            .get(weight - 1)
            .is_some_and(|bytes| text.len() <= *bytes),
    }
}

/// Reason why a search failed.
enum PatternError {
    Text(String),
    Raised(mlua::Error),
}

impl From<mlua::Error> for PatternError {
    fn from(error: mlua::Error) -> PatternError {
        PatternError::Raised(error)
    }
}

fn fail<T>(text: &str) -> Result<T, PatternError> {
    Err(PatternError::Text(text.to_owned()))
}

fn raise(lua: &Lua, failure: PatternError) -> mlua::Error {
    match failure {
        PatternError::Text(text) => errors::complain_in_place(lua, &text),
        PatternError::Raised(error) => error,
    }
}

/// Length of a capture in progress or done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    Open,
    /// A position capture, without text.
    Position,
    Bytes(usize),
}

/// A search in progress.
struct Search<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<(usize, Length)>,
    depth: usize,
    steps: u64,
}

impl<'a> Search<'a> {
    fn new(text: &'a [u8], pattern: &'a [u8]) -> Search<'a> {
        // As in Lua 5.1, a pattern ends at its first zero byte, like a C string.
        Search {
            text,
            pattern: lossless::before_nul(pattern),
            captures: Vec::new(),
            depth: 0,
            steps: 0,
        }
    }

    fn step(&mut self) -> Result<(), PatternError> {
        self.steps += 1;
        match self.steps.is_multiple_of(TICK_STEPS) {
            true => Ok(tick()?),
            false => Ok(look()?),
        }
    }

    /// Returns the end of the match of the pattern from `from` on with the text at `at`; `None` if it does not
    /// match.
    fn matches(&mut self, at: usize, from: usize) -> Result<Option<usize>, PatternError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return fail("pattern too complex");
        }
        let result = self.matches_here(at, from);
        self.depth -= 1;
        result
    }

    fn matches_here(
        &mut self,
        mut at: usize,
        mut from: usize,
    ) -> Result<Option<usize>, PatternError> {
        loop {
            self.step()?;
            let rest = &self.pattern[from..];
            match rest {
                [] => return Ok(Some(at)),
                [b'(', b')', ..] => return self.open(at, from + 2, Length::Position),
                [b'(', ..] => return self.open(at, from + 1, Length::Open),
                [b')', ..] => return self.close(at, from + 1),
                [b'$'] => return Ok((at == self.text.len()).then_some(at)),
                [b'%', b'b', ..] => match self.balanced(at, from + 2)? {
                    Some(end) => {
                        (at, from) = (end, from + 4);
                        continue;
                    }
                    None => return Ok(None),
                },
                [b'%', b'f', ..] => {
                    let from_set = from + 2;
                    if self.pattern.get(from_set) != Some(&b'[') {
                        return fail("missing '[' after '%f' in pattern");
                    }
                    let end = self.class_end(from_set)?;
                    let before = match at {
                        0 => 0,
                        at => self.text[at - 1],
                    };
                    let here = self.text.get(at).copied().unwrap_or(0);
                    let set = &self.pattern[from_set..end];
                    if in_set(before, set) || !in_set(here, set) {
                        return Ok(None);
                    }
                    from = end;
                    continue;
                }
                [b'%', digit, ..] if digit.is_ascii_digit() => {
                    let (start, length) = self.closed(*digit)?;
                    let captured = &self.text[start..start + length];
                    if !self.text[at..].starts_with(captured) {
                        return Ok(None);
                    }
                    (at, from) = (at + length, from + 2);
                    continue;
                }
                _ => {}
            }
            let end = self.class_end(from)?;
            let fits = self.fits(at, from, end);
            match self.pattern.get(end) {
                Some(b'?') => {
                    if fits && let Some(found) = self.matches(at + 1, end + 1)? {
                        return Ok(Some(found));
                    }
                    from = end + 1;
                }
                Some(b'*') => return self.longest(at, from, end),
                Some(b'+') => {
                    return match fits {
                        true => self.longest(at + 1, from, end),
                        false => Ok(None),
                    };
                }
                Some(b'-') => return self.shortest(at, from, end),
                _ if !fits => return Ok(None),
                _ => (at, from) = (at + 1, end),
            }
        }
    }

    fn longest(
        &mut self,
        at: usize,
        from: usize,
        end: usize,
    ) -> Result<Option<usize>, PatternError> {
        let mut count = 0;
        while self.fits(at + count, from, end) {
            self.step()?;
            count += 1;
        }
        loop {
            if let Some(found) = self.matches(at + count, end + 1)? {
                return Ok(Some(found));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    fn shortest(
        &mut self,
        mut at: usize,
        from: usize,
        end: usize,
    ) -> Result<Option<usize>, PatternError> {
        loop {
            if let Some(found) = self.matches(at, end + 1)? {
                return Ok(Some(found));
            }
            if !self.fits(at, from, end) {
                return Ok(None);
            }
            at += 1;
        }
    }

    fn open(
        &mut self,
        at: usize,
        from: usize,
        length: Length,
    ) -> Result<Option<usize>, PatternError> {
        if self.captures.len() >= CAPTURES_MAX {
            return fail("too many captures");
        }
        self.captures.push((at, length));
        let found = self.matches(at, from)?;
        if found.is_none() {
            self.captures.pop();
        }
        Ok(found)
    }

    fn close(&mut self, at: usize, from: usize) -> Result<Option<usize>, PatternError> {
        let open = self
            .captures
            .iter()
            .rposition(|(_, length)| *length == Length::Open);
        let Some(open) = open else {
            return fail("invalid pattern capture");
        };
        self.captures[open].1 = Length::Bytes(at - self.captures[open].0);
        let found = self.matches(at, from)?;
        if found.is_none() {
            self.captures[open].1 = Length::Open;
        }
        Ok(found)
    }

    /// Returns the capture that `%1` refers to.
    fn closed(&self, digit: u8) -> Result<(usize, usize), PatternError> {
        let number = usize::from(digit.wrapping_sub(b'1'));
        match self.captures.get(number) {
            Some((start, Length::Bytes(length))) => Ok((*start, *length)),
            _ => fail("invalid capture index"),
        }
    }

    fn balanced(&mut self, at: usize, from: usize) -> Result<Option<usize>, PatternError> {
        let (Some(&open), Some(&close)) = (self.pattern.get(from), self.pattern.get(from + 1))
        else {
            return fail("unbalanced pattern");
        };
        if self.text.get(at) != Some(&open) {
            return Ok(None);
        }
        let mut nested = 1;
        for index in at + 1..self.text.len() {
            self.step()?;
            let byte = self.text[index];
            if byte == close {
                nested -= 1;
                if nested == 0 {
                    return Ok(Some(index + 1));
                }
            } else if byte == open {
                nested += 1;
            }
        }
        Ok(None)
    }

    /// Returns the end of the character class that begins at position `from` of the pattern.
    fn class_end(&self, from: usize) -> Result<usize, PatternError> {
        let byte = |at: usize| self.pattern.get(at).copied();
        match byte(from) {
            Some(b'%') => match byte(from + 1) {
                Some(_) => Ok(from + 2),
                None => fail("malformed pattern (ends with '%')"),
            },
            Some(b'[') => {
                let mut at = from + 1;
                if byte(at) == Some(b'^') {
                    at += 1;
                }
                // A `]` in the first position stands for itself.
                loop {
                    match byte(at) {
                        None => return fail("malformed pattern (missing ']')"),
                        Some(b'%') => at += 1 + usize::from(byte(at + 1).is_some()),
                        Some(_) => at += 1,
                    }
                    if byte(at) == Some(b']') {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(from + 1),
        }
    }

    fn fits(&self, at: usize, from: usize, end: usize) -> bool {
        let Some(&byte) = self.text.get(at) else {
            return false;
        };
        match self.pattern[from] {
            b'.' => true,
            b'%' => in_class(byte, self.pattern[from + 1]),
            b'[' => in_set(byte, &self.pattern[from..end]),
            plain => plain == byte,
        }
    }

    /// Returns the captures as values, or the whole match if the pattern has no captures.
    fn values(&self, lua: &Lua, start: usize, end: usize) -> Result<Vec<Value>, PatternError> {
        if self.captures.is_empty() {
            return Ok(vec![string(lua, &self.text[start..end])?]);
        }
        (0..self.captures.len())
            .map(|number| self.value(lua, number, start, end))
            .collect()
    }

    fn value(
        &self,
        lua: &Lua,
        number: usize,
        start: usize,
        end: usize,
    ) -> Result<Value, PatternError> {
        match self.captures.get(number) {
            None if number == 0 => Ok(string(lua, &self.text[start..end])?),
            None => fail("invalid capture index"),
            Some((_, Length::Open)) => fail("unfinished capture"),
            Some((at, Length::Position)) => Ok(Value::Number(*at as f64 + 1.0)),
            Some((at, Length::Bytes(length))) => Ok(string(lua, &self.text[*at..*at + length])?),
        }
    }
}

fn in_class(byte: u8, class: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | 0x09..=0x0d),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return byte == class,
    };
    is_in != class.is_ascii_uppercase()
}

/// True if a byte is in `[…]`, given with its brackets.
fn in_set(byte: u8, set: &[u8]) -> bool {
    let mut rest = &set[1..set.len() - 1];
    let is_negated = rest.first() == Some(&b'^');
    if is_negated {
        rest = &rest[1..];
    }
    loop {
        let is_in = match rest {
            [] => return is_negated,
            [b'%', class, after @ ..] => {
                rest = after;
                in_class(byte, *class)
            }
            [low, b'-', high, after @ ..] => {
                rest = after;
                (*low..=*high).contains(&byte)
            }
            [plain, after @ ..] => {
                rest = after;
                *plain == byte
            }
        };
        if is_in {
            return !is_negated;
        }
    }
}

fn find(lua: &Lua, given: MultiValue, is_find: bool) -> mlua::Result<MultiValue> {
    let name = if is_find { "find" } else { "match" };
    let text = arguments::text(lua, &given, 0, name)?;
    let pattern = arguments::text(lua, &given, 1, name)?;
    let init = arguments::integer_or(lua, &given, 2, name, 1)?;
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let length = text.len() as i64;
    let init = if init < 0 { init + length + 1 } else { init };
    let mut at = (init - 1).clamp(0, length) as usize;
    let is_plain = |value: &Value| !matches!(value, Value::Nil | Value::Boolean(false));
    if is_find && (given.get(3).is_some_and(is_plain) || is_literal(&pattern)) {
        let found = memchr::memmem::find(&text[at..], &pattern).map(|found| at + found);
        return Ok(MultiValue::from_vec(match found {
            Some(at) => vec![
                Value::Number(at as f64 + 1.0),
                Value::Number((at + pattern.len()) as f64),
            ],
            None => vec![Value::Nil],
        }));
    }
    let is_anchored = pattern.first() == Some(&b'^');
    let mut search = Search::new(&text, &pattern[usize::from(is_anchored)..]);
    let mut run = || -> Result<Vec<Value>, PatternError> {
        loop {
            search.captures.clear();
            if let Some(end) = search.matches(at, 0)? {
                let mut values = Vec::new();
                if is_find {
                    values.push(Value::Number(at as f64 + 1.0));
                    values.push(Value::Number(end as f64));
                    if search.captures.is_empty() {
                        return Ok(values);
                    }
                }
                values.append(&mut search.values(lua, at, end)?);
                return Ok(values);
            }
            at += 1;
            if at > text.len() || is_anchored {
                return Ok(vec![Value::Nil]);
            }
        }
    };
    run()
        .map(MultiValue::from_vec)
        .map_err(|failure| raise(lua, failure))
}

fn find_each(lua: &Lua, given: MultiValue) -> mlua::Result<Function> {
    let text = arguments::text(lua, &given, 0, "gmatch")?;
    let pattern = arguments::text(lua, &given, 1, "gmatch")?;
    let next = std::cell::Cell::new(0);
    lua.create_function(move |lua, _: MultiValue| {
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let mut search = Search::new(&text, &pattern);
        for at in next.get()..=text.len() {
            search.captures.clear();
            let found = search
                .matches(at, 0)
                .map_err(|failure| raise(lua, failure))?;
            if let Some(end) = found {
                next.set(if end == at { end + 1 } else { end });
                let values = search.values(lua, at, end);
                return values
                    .map(MultiValue::from_vec)
                    .map_err(|failure| raise(lua, failure));
            }
        }
        next.set(usize::MAX);
        Ok(MultiValue::from_vec(vec![Value::Nil]))
    })
}

fn replace(lua: &Lua, given: MultiValue) -> mlua::Result<MultiValue> {
    let text = arguments::text(lua, &given, 0, "gsub")?;
    let pattern = arguments::text(lua, &given, 1, "gsub")?;
    let by = match given.get(2) {
        Some(by @ (Value::Table(_) | Value::Function(_))) => by.clone(),
        Some(Value::String(_) | Value::Integer(_) | Value::Number(_)) => {
            Value::String(arguments::text(lua, &given, 2, "gsub")?)
        }
        _ => {
            let why = "string/function/table expected";
            return Err(errors::bad_argument(lua, 3, "gsub", why));
        }
    };
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let count_max = arguments::integer_or(lua, &given, 3, "gsub", text.len() as i64 + 1)?;
    let is_anchored = pattern.first() == Some(&b'^');
    let mut search = Search::new(&text, &pattern[usize::from(is_anchored)..]);
    let mut run = || -> Result<(Vec<u8>, i64), PatternError> {
        let (mut made, mut at, mut count) = (Vec::new(), 0, 0_i64);
        while count < count_max {
            search.captures.clear();
            let found = search.matches(at, 0)?;
            if let Some(end) = found {
                count += 1;
                put_replacement(lua, &search, at, end, &by, &mut made)?;
            }
            match found {
                Some(end) if end > at => at = end,
                _ if at < text.len() => {
                    made.push(text[at]);
                    at += 1;
                }
                _ => break,
            }
            if is_anchored {
                break;
            }
        }
        made.extend_from_slice(&text[at..]);
        Ok((made, count))
    };
    let (made, count) = run().map_err(|failure| raise(lua, failure))?;
    Ok(MultiValue::from_vec(vec![
        string(lua, &made)?,
        Value::Integer(count),
    ]))
}

/// Appends to a generated text. Returns an error if it exceeds the maximum length.
fn add(made: &mut Vec<u8>, text: &[u8]) -> Result<(), PatternError> {
    if made.len() + text.len() > TEXT_BYTES_MAX {
        return fail("not enough memory");
    }
    made.extend_from_slice(text);
    Ok(())
}

fn put_replacement(
    lua: &Lua,
    search: &Search<'_>,
    start: usize,
    end: usize,
    by: &Value,
    made: &mut Vec<u8>,
) -> Result<(), PatternError> {
    look()?;
    let value: Value = match by {
        Value::Table(table) => table.get(search.value(lua, 0, start, end)?)?,
        Value::Function(function) => {
            let captures = search.values(lua, start, end)?;
            function.call(MultiValue::from_vec(captures))?
        }
        Value::String(text) => {
            let text = text.as_bytes();
            let mut bytes = text.iter();
            if made.len() + text.len() > TEXT_BYTES_MAX {
                return fail("not enough memory");
            }
            while let Some(&byte) = bytes.next() {
                if byte != b'%' {
                    made.push(byte);
                    continue;
                }
                match bytes.next() {
                    Some(b'0') => add(made, &search.text[start..end])?,
                    Some(digit) if digit.is_ascii_digit() => {
                        let number = usize::from(digit - b'1');
                        let value = search.value(lua, number, start, end)?;
                        if let Some(text) = lua.coerce_string(value)? {
                            add(made, &text.as_bytes())?;
                        }
                    }
                    other => made.push(other.copied().unwrap_or(0)),
                }
            }
            return Ok(());
        }
        _ => return Ok(()),
    };
    match value {
        Value::Nil | Value::Boolean(false) => add(made, &search.text[start..end])?,
        Value::String(_) | Value::Integer(_) | Value::Number(_) => {
            if let Some(text) = lua.coerce_string(value)? {
                add(made, &text.as_bytes())?;
            }
        }
        other => {
            let name = errors::type_name(&other);
            return fail(&format!("invalid replacement value (a {name})"));
        }
    }
    Ok(())
}
