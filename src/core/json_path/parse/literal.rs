//! Texts, numbers and other JSON values in a path.

use std::collections::HashMap;

use super::super::limits::PathError;
use super::super::value::Value;
use super::Parser;

impl Parser<'_> {
    /// An integer with an optional sign. One that does not fit becomes the nearest that does: no array is as long.
    pub(super) fn integer(&mut self) -> Result<i64, PathError> {
        self.skip_spaces();
        let negative = self.peek() == Some(b'-');
        if matches!(self.peek(), Some(b'-' | b'+')) {
            self.at += 1;
        }
        let digits = self.digits();
        if digits.is_empty() || (digits.len() > 1 && digits[0] == b'0') {
            return self.fail("'<number>'");
        }
        let size = digits.iter().fold(0i64, |sum, digit| {
            sum.saturating_mul(10)
                .saturating_add(i64::from(digit - b'0'))
        });
        self.at += digits.len();
        Ok(if negative { -size } else { size })
    }

    fn digits(&self) -> &[u8] {
        let rest = self.rest();
        &rest[..rest.iter().take_while(|byte| byte.is_ascii_digit()).count()]
    }

    /// A number with an optional minus, fraction and exponent.
    pub(super) fn number(&mut self) -> Result<Value, PathError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let digits = self.digits();
        if digits.is_empty() || (digits.len() > 1 && digits[0] == b'0') {
            return self.fail("'<number>'");
        }
        self.at += digits.len();
        let mut is_integer = true;
        if let [b'.', b'0'..=b'9', ..] = self.rest() {
            is_integer = false;
            self.at += 1;
            self.at += self.digits().len();
        }
        if let [b'e' | b'E', b'0'..=b'9', ..] | [b'e' | b'E', b'+' | b'-', b'0'..=b'9', ..] =
            self.rest()
        {
            is_integer = false;
            self.at += 2;
            self.at += self.digits().len();
        }
        let text = std::str::from_utf8(&self.text[start..self.at]).unwrap_or_default();
        if is_integer && let Ok(number) = text.parse() {
            return Ok(Value::Int(number));
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Value::Float(number)),
            _ => self.fail("a number that fits"),
        }
    }

    /// A text in either kind of quotes, with JSON's escapes.
    pub(super) fn string(&mut self) -> Result<Box<[u8]>, PathError> {
        let Some(quote @ (b'"' | b'\'')) = self.peek() else {
            return self.fail("<string>");
        };
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let rest = self.rest();
            let plain = rest
                .iter()
                .take_while(|byte| **byte != quote && **byte != b'\\')
                .count();
            text.extend_from_slice(&rest[..plain]);
            let end = rest.get(plain).copied();
            self.at += plain;
            match end {
                None => return self.fail("a closing quote"),
                Some(b'\\') => {
                    self.at += 1;
                    self.escape(quote, &mut text)?;
                }
                Some(_) => {
                    self.at += 1;
                    return Ok(text.into());
                }
            }
        }
    }

    /// Reads what follows a backslash. One that begins no escape stands for itself, as in valkey-json.
    fn escape(&mut self, quote: u8, text: &mut Vec<u8>) -> Result<(), PathError> {
        let plain = match self.peek() {
            Some(byte) if byte == quote => byte,
            Some(byte @ (b'\\' | b'/')) => byte,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                self.at += 1;
                let character = self.unicode_escape()?;
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => {
                text.push(b'\\');
                return Ok(());
            }
        };
        text.push(plain);
        self.at += 1;
        Ok(())
    }

    /// The four digits behind `\u`, and a second escape behind the first half of a surrogate pair.
    fn unicode_escape(&mut self) -> Result<char, PathError> {
        let first = self.code_unit()?;
        let code = if (0xd800..0xdc00).contains(&first) && self.rest().starts_with(b"\\u") {
            self.at += 2;
            let second = self.code_unit()?;
            if !(0xdc00..0xe000).contains(&second) {
                return self.fail("the second half of a surrogate pair");
            }
            0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
        } else {
            first
        };
        match char::from_u32(code) {
            Some(character) => Ok(character),
            None => self.fail("a character"),
        }
    }

    fn code_unit(&mut self) -> Result<u32, PathError> {
        let digits = self.rest().get(..4).unwrap_or_default();
        let code = digits.iter().try_fold(0, |code, digit| {
            Some(code << 4 | char::from(*digit).to_digit(16)?)
        });
        match code {
            Some(code) if digits.len() == 4 => {
                self.at += 4;
                Ok(code)
            }
            _ => self.fail("four hexadecimal digits"),
        }
    }

    /// A JSON value; texts may have either kind of quotes.
    pub(super) fn value(&mut self) -> Result<Value, PathError> {
        self.skip_spaces();
        match self.peek() {
            Some(b'"' | b'\'') => self.string().map(Value::Str),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'[') => self.array(),
            Some(b'{') => self.object(),
            _ => match self.constant() {
                Some(value) => Ok(value),
                None => self.fail("<string>, '<number>', 'true', 'false', 'null', '[', '{'"),
            },
        }
    }

    /// `true`, `false` or `null`.
    pub(super) fn constant(&mut self) -> Option<Value> {
        let rest = self.rest();
        let len = rest
            .iter()
            .take_while(|byte| super::is_word(**byte))
            .count();
        let value = match &rest[..len] {
            b"true" => Value::Bool(true),
            b"false" => Value::Bool(false),
            b"null" => Value::Null,
            _ => return None,
        };
        self.at += len;
        Some(value)
    }

    fn array(&mut self) -> Result<Value, PathError> {
        self.at += 1;
        self.enter()?;
        let mut elements = Vec::new();
        if !self.takes(b']') {
            loop {
                elements.push(self.value()?);
                if !self.takes(b',') {
                    break;
                }
            }
            self.expect(b']', "','  ']'")?;
        }
        self.leave();
        Ok(Value::Array(elements))
    }

    /// An object. The last value of a key that occurs twice counts.
    fn object(&mut self) -> Result<Value, PathError> {
        self.at += 1;
        self.enter()?;
        let mut members: Vec<(Box<[u8]>, Value)> = Vec::new();
        let mut positions: HashMap<Box<[u8]>, usize> = HashMap::new();
        if !self.takes(b'}') {
            loop {
                self.skip_spaces();
                let key = self.string()?;
                self.expect(b':', "':'")?;
                let value = self.value()?;
                match positions.get(&key) {
                    Some(position) => members[*position].1 = value,
                    None => {
                        positions.insert(key.clone(), members.len());
                        members.push((key, value));
                    }
                }
                if !self.takes(b',') {
                    break;
                }
            }
            self.expect(b'}', "','  '}'")?;
        }
        self.leave();
        Ok(Value::Object(members))
    }
}
