//! The `cjson` library: converts Lua values to JSON and back, with the leniencies that scripts rely on.
//!
//! A table is an array if it has only positive integers as keys, and at least one; otherwise it is an object.
//! `null` is `cjson.null`. Numbers have 14 digits unless set otherwise. Settings last until they are changed again.

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{Lua, MultiValue, Table, Value};

use super::convert::string;
use super::current::{STEP_BYTES, look};
use super::numerals::{self, truncated};
use super::{arguments, errors};
use basalt_core::base::hex;

/// Maximum nesting depth of tables, whatever a script sets.
const DEPTH_MAX: usize = 1000;

/// Maximum length of a generated text.
const TEXT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Settings that a script may change.
#[derive(Clone, Debug)]
struct JsonOptions {
    sparse_convert: bool,
    sparse_ratio: i32,
    sparse_safe: i32,
    encode_depth: i32,
    decode_depth: i32,
    encode_invalid: Invalid,
    decode_invalid: bool,
    precision: i32,
    keep_buffer: bool,
}

/// Treatment of numbers that JSON does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Invalid {
    Refuse,
    Write,
    Null,
}

impl Default for JsonOptions {
    fn default() -> JsonOptions {
        JsonOptions {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth: 1000,
            decode_depth: 1000,
            encode_invalid: Invalid::Refuse,
            decode_invalid: true,
            precision: 14,
            keep_buffer: true,
        }
    }
}

type JsonSettings = Rc<RefCell<JsonOptions>>;

/// Adds the `cjson` library to `libraries`.
pub(super) fn install(lua: &Lua, libraries: &Table) -> mlua::Result<()> {
    libraries.raw_set("cjson", library(lua)?)
}

/// Creates an instance of the library with its own settings.
fn library(lua: &Lua) -> mlua::Result<Table> {
    let settings = JsonSettings::default();
    let json = lua.create_table()?;
    let with = |work: fn(&Lua, &JsonSettings, MultiValue) -> mlua::Result<MultiValue>| {
        let settings = Rc::clone(&settings);
        lua.create_function(move |lua, arguments: MultiValue| work(lua, &settings, arguments))
    };
    let number = |name: &'static str, most, option: fn(&mut JsonOptions) -> &mut i32| {
        let settings = Rc::clone(&settings);
        let set = lua.create_function(move |lua, given: MultiValue| {
            set_number(lua, &given, name, most, option(&mut settings.borrow_mut()))
        });
        json.raw_set(name, set?)
    };
    let switch = |name: &'static str, option: fn(&mut JsonOptions) -> &mut bool| {
        let settings = Rc::clone(&settings);
        let set = lua.create_function(move |lua, given: MultiValue| {
            set_switch(lua, &given, name, option(&mut settings.borrow_mut()))
        });
        json.raw_set(name, set?)
    };
    json.raw_set("encode", with(encode)?)?;
    json.raw_set("decode", with(decode)?)?;
    json.raw_set("encode_sparse_array", with(set_sparse)?)?;
    number("encode_max_depth", i32::MAX, |all| &mut all.encode_depth)?;
    number("decode_max_depth", i32::MAX, |all| &mut all.decode_depth)?;
    number("encode_number_precision", 14, |all| &mut all.precision)?;
    switch("encode_keep_buffer", |all| &mut all.keep_buffer)?;
    json.raw_set("encode_invalid_numbers", with(set_encode_invalid)?)?;
    switch("decode_invalid_numbers", |all| &mut all.decode_invalid)?;
    json.raw_set(
        "new",
        lua.create_function(|lua, _: MultiValue| library(lua))?,
    )?;
    json.raw_set("null", Value::NULL)?;
    json.raw_set("_NAME", "cjson")?;
    json.raw_set("_VERSION", "2.1.0")?;
    Ok(json)
}

// Settings -------------------------------------------------------------------------------------------------------

fn at_most(lua: &Lua, arguments: &MultiValue, count: usize, function: &str) -> mlua::Result<()> {
    if arguments.len() > count {
        return Err(errors::bad_argument(
            lua,
            count + 1,
            function,
            "found too many arguments",
        ));
    }
    Ok(())
}

fn is_given(arguments: &MultiValue, at: usize) -> bool {
    arguments.get(at).is_some_and(|value| !value.is_nil())
}

/// Returns an integer argument within a range; `None` if the argument is missing or nil.
fn whole(
    lua: &Lua,
    arguments: &MultiValue,
    at: usize,
    function: &str,
    least: i32,
    most: i32,
) -> mlua::Result<Option<i32>> {
    if !is_given(arguments, at) {
        return Ok(None);
    }
    let value = arguments::integer(lua, arguments, at, function)? as i32;
    if !(least..=most).contains(&value) {
        let why = format!("expected integer between {least} and {most}");
        return Err(errors::bad_argument(lua, 1, function, &why));
    }
    Ok(Some(value))
}

/// Returns an argument that is one of some words as its index, or a boolean as 0 or 1; `None` if the argument
/// is missing or nil.
fn choice(
    lua: &Lua,
    arguments: &MultiValue,
    at: usize,
    function: &str,
    words: &[&str],
) -> mlua::Result<Option<usize>> {
    match arguments.get(at) {
        None | Some(Value::Nil) => Ok(None),
        Some(Value::Boolean(value)) => Ok(Some(usize::from(*value))),
        Some(_) => {
            let word = arguments::text(lua, arguments, at, function)?;
            let word = word.as_bytes();
            let found = words.iter().position(|known| known.as_bytes() == &*word);
            found.map(Some).ok_or_else(|| {
                let why = format!("invalid option '{}'", String::from_utf8_lossy(&word));
                errors::bad_argument(lua, at + 1, function, &why)
            })
        }
    }
}

const SWITCH: &[&str] = &["off", "on"];

fn one(value: Value) -> MultiValue {
    MultiValue::from_iter([value])
}

fn set_sparse(lua: &Lua, settings: &JsonSettings, given: MultiValue) -> mlua::Result<MultiValue> {
    const NAME: &str = "encode_sparse_array";
    at_most(lua, &given, 3, NAME)?;
    let convert = choice(lua, &given, 0, NAME, SWITCH)?;
    let ratio = whole(lua, &given, 1, NAME, 0, i32::MAX)?;
    let safe = whole(lua, &given, 2, NAME, 0, i32::MAX)?;
    let mut settings = settings.borrow_mut();
    if let Some(convert) = convert {
        settings.sparse_convert = convert == 1;
    }
    settings.sparse_ratio = ratio.unwrap_or(settings.sparse_ratio);
    settings.sparse_safe = safe.unwrap_or(settings.sparse_safe);
    Ok(MultiValue::from_iter([
        Value::Boolean(settings.sparse_convert),
        Value::Integer(settings.sparse_ratio.into()),
        Value::Integer(settings.sparse_safe.into()),
    ]))
}

/// Sets a numeric option to the argument, if there is one, and returns its value.
fn set_number(
    lua: &Lua,
    given: &MultiValue,
    function: &str,
    most: i32,
    option: &mut i32,
) -> mlua::Result<MultiValue> {
    at_most(lua, given, 1, function)?;
    *option = whole(lua, given, 0, function, 1, most)?.unwrap_or(*option);
    Ok(one(Value::Integer((*option).into())))
}

/// Sets a boolean option to the argument, if there is one, and returns its value.
fn set_switch(
    lua: &Lua,
    given: &MultiValue,
    function: &str,
    option: &mut bool,
) -> mlua::Result<MultiValue> {
    at_most(lua, given, 1, function)?;
    *option = choice(lua, given, 0, function, SWITCH)?.map_or(*option, |choice| choice == 1);
    Ok(one(Value::Boolean(*option)))
}

fn set_encode_invalid(
    lua: &Lua,
    settings: &JsonSettings,
    given: MultiValue,
) -> mlua::Result<MultiValue> {
    const NAME: &str = "encode_invalid_numbers";
    at_most(lua, &given, 1, NAME)?;
    let choice = choice(lua, &given, 0, NAME, &["off", "on", "null"])?;
    let mut settings = settings.borrow_mut();
    if let Some(choice) = choice {
        settings.encode_invalid = [Invalid::Refuse, Invalid::Write, Invalid::Null][choice];
    }
    Ok(one(match settings.encode_invalid {
        Invalid::Refuse => Value::Boolean(false),
        Invalid::Write => Value::Boolean(true),
        Invalid::Null => string(lua, b"null")?,
    }))
}

// Values to text -------------------------------------------------------------------------------------------------

struct Encoder<'a> {
    lua: &'a Lua,
    settings: JsonOptions,
    text: Vec<u8>,
}

fn encode(lua: &Lua, settings: &JsonSettings, given: MultiValue) -> mlua::Result<MultiValue> {
    let Some(value) = given.front().filter(|_| given.len() == 1) else {
        return Err(errors::bad_argument(
            lua,
            1,
            "encode",
            "expected 1 argument",
        ));
    };
    let mut encoder = Encoder {
        lua,
        settings: settings.borrow().clone(),
        text: Vec::with_capacity(128),
    };
    encoder.value(value, 0)?;
    string(lua, &encoder.text).map(one)
}

impl Encoder<'_> {
    fn refuse<T>(&self, what: &Value, why: &str) -> mlua::Result<T> {
        let name = match what {
            Value::LightUserData(_) => "userdata",
            other => errors::type_name(other),
        };
        Err(errors::complain(
            self.lua,
            format!("Cannot serialise {name}: {why}"),
        ))
    }

    fn check_length(&self) -> mlua::Result<()> {
        if self.text.len() > TEXT_BYTES_MAX {
            return Err(errors::complain(self.lua, "not enough memory"));
        }
        Ok(())
    }

    fn value(&mut self, value: &Value, depth: usize) -> mlua::Result<()> {
        look()?;
        match value {
            Value::String(text) => self.string(&text.as_bytes()),
            Value::Integer(number) => self.number(*number as f64, value),
            Value::Number(number) => self.number(*number, value),
            Value::Boolean(true) => {
                self.text.extend_from_slice(b"true");
                Ok(())
            }
            Value::Boolean(false) => {
                self.text.extend_from_slice(b"false");
                Ok(())
            }
            Value::Table(table) => self.table(table, depth + 1),
            Value::Nil => {
                self.text.extend_from_slice(b"null");
                Ok(())
            }
            Value::LightUserData(pointer) if pointer.0.is_null() => {
                self.text.extend_from_slice(b"null");
                Ok(())
            }
            other => self.refuse(other, "type not supported"),
        }
    }

    fn table(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        if depth > DEPTH_MAX || depth > self.settings.encode_depth as usize {
            let text = format!("Cannot serialise, excessive nesting ({depth})");
            return Err(errors::complain(self.lua, text));
        }
        match self.array_length(table)? {
            Some(length) if length > 0 => {
                self.text.push(b'[');
                for index in 1..=length {
                    if index > 1 {
                        self.text.push(b',');
                    }
                    let element: Value = table.raw_get(index)?;
                    self.value(&element, depth)?;
                    self.check_length()?;
                }
                self.text.push(b']');
            }
            _ => {
                self.text.push(b'{');
                for (index, pair) in table.pairs::<Value, Value>().enumerate() {
                    let (key, value) = pair?;
                    if index > 0 {
                        self.text.push(b',');
                    }
                    match &key {
                        Value::Integer(_) | Value::Number(_) => {
                            self.text.push(b'"');
                            self.value(&key, depth)?;
                            self.text.extend_from_slice(b"\":");
                        }
                        Value::String(text) => {
                            self.string(&text.as_bytes())?;
                            self.text.push(b':');
                        }
                        other => {
                            return self.refuse(other, "table key must be a number or string");
                        }
                    }
                    self.value(&value, depth)?;
                    self.check_length()?;
                }
                self.text.push(b'}');
            }
        }
        Ok(())
    }

    /// Returns the largest index if the table is an array; otherwise `None`.
    fn array_length(&self, table: &Table) -> mlua::Result<Option<i64>> {
        let (mut largest, mut count) = (0_i64, 0_i64);
        for pair in table.pairs::<Value, Value>() {
            look()?;
            let (key, _) = pair?;
            let index = match key {
                Value::Integer(index) if index >= 1 => index,
                Value::Number(index) if index >= 1.0 && index.floor() == index => truncated(index),
                _ => return Ok(None),
            };
            largest = largest.max(index.min(i32::MAX.into()));
            count += 1;
        }
        let settings = &self.settings;
        let is_sparse = settings.sparse_ratio > 0
            && largest > count.saturating_mul(settings.sparse_ratio.into())
            && largest > settings.sparse_safe.into();
        if is_sparse {
            if !settings.sparse_convert {
                return self.refuse(&Value::Table(table.clone()), "excessively sparse array");
            }
            return Ok(None);
        }
        Ok(Some(largest))
    }

    fn number(&mut self, number: f64, value: &Value) -> mlua::Result<()> {
        if !number.is_finite() {
            match self.settings.encode_invalid {
                Invalid::Refuse => return self.refuse(value, "must not be NaN or Inf"),
                Invalid::Write if number.is_nan() => {
                    self.text.extend_from_slice(b"nan");
                    return Ok(());
                }
                Invalid::Write => {}
                Invalid::Null => {
                    self.text.extend_from_slice(b"null");
                    return Ok(());
                }
            }
        }
        numerals::write_general(number, self.settings.precision as usize, &mut self.text);
        Ok(())
    }

    fn string(&mut self, text: &[u8]) -> mlua::Result<()> {
        self.text.push(b'"');
        for part in text.chunks(STEP_BYTES) {
            look()?;
            self.part(part);
            self.check_length()?;
        }
        self.text.push(b'"');
        Ok(())
    }

    /// Appends a part of a string, escaped.
    fn part(&mut self, text: &[u8]) {
        let mut plain = 0;
        for (at, &byte) in text.iter().enumerate() {
            let short = match byte {
                0x08 => b'b',
                b'\t' => b't',
                b'\n' => b'n',
                0x0c => b'f',
                b'\r' => b'r',
                b'"' | b'\\' | b'/' => byte,
                0..=0x1f | 0x7f => 0,
                _ => continue,
            };
            self.text.extend_from_slice(&text[plain..at]);
            plain = at + 1;
            match short {
                0 => {
                    self.text.extend_from_slice(b"\\u00");
                    self.text.extend_from_slice(&hex::pair(byte));
                }
                _ => self.text.extend_from_slice(&[b'\\', short]),
            }
        }
        self.text.extend_from_slice(&text[plain..]);
    }
}

// Text to values -------------------------------------------------------------------------------------------------

/// A token, and its position.
struct Token {
    kind: JsonTokenKind,
    at: usize,
}

enum JsonTokenKind {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    /// A string, whose bytes are in the decoder's scratch buffer.
    String,
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl JsonTokenKind {
    /// Returns the name used in error messages.
    fn name(&self) -> &'static str {
        match self {
            JsonTokenKind::ObjectBegin => "T_OBJ_BEGIN",
            JsonTokenKind::ObjectEnd => "T_OBJ_END",
            JsonTokenKind::ArrayBegin => "T_ARR_BEGIN",
            JsonTokenKind::ArrayEnd => "T_ARR_END",
            JsonTokenKind::String => "T_STRING",
            JsonTokenKind::Number(_) => "T_NUMBER",
            JsonTokenKind::Boolean(_) => "T_BOOLEAN",
            JsonTokenKind::Null => "T_NULL",
            JsonTokenKind::Colon => "T_COLON",
            JsonTokenKind::Comma => "T_COMMA",
            JsonTokenKind::End => "T_END",
            JsonTokenKind::Error(what) => what,
        }
    }
}

struct JsonDecoder<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
    depth: usize,
    depth_max: usize,
    takes_invalid: bool,
    scratch: Vec<u8>,
}

fn decode(lua: &Lua, settings: &JsonSettings, given: MultiValue) -> mlua::Result<MultiValue> {
    if given.len() != 1 {
        return Err(errors::bad_argument(
            lua,
            1,
            "decode",
            "expected 1 argument",
        ));
    }
    let text = arguments::text(lua, &given, 0, "decode")?;
    let text = text.as_bytes();
    if let [first, second, ..] = *text
        && (first == 0 || second == 0)
    {
        return Err(errors::complain(
            lua,
            "JSON parser does not support UTF-16 or UTF-32",
        ));
    }
    let (depth_max, takes_invalid) = {
        let settings = settings.borrow();
        (settings.decode_depth as usize, settings.decode_invalid)
    };
    let mut decoder = JsonDecoder {
        lua,
        text: &text,
        at: 0,
        depth: 0,
        depth_max: depth_max.min(DEPTH_MAX),
        takes_invalid,
        scratch: Vec::new(),
    };
    let token = decoder.next()?;
    let value = decoder.value(&token)?;
    let token = decoder.next()?;
    match token.kind {
        JsonTokenKind::End => Ok(one(value)),
        _ => Err(decoder.unexpected("the end", &token)),
    }
}

impl JsonDecoder<'_> {
    /// Returns the byte at a position, or zero after the end of the text.
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    #[cold]
    fn unexpected(&self, wanted: &str, token: &Token) -> mlua::Error {
        let (found, at) = (token.kind.name(), token.at + 1);
        errors::complain(
            self.lua,
            format!("Expected {wanted} but found {found} at character {at}"),
        )
    }

    fn value(&mut self, token: &Token) -> mlua::Result<Value> {
        match token.kind {
            JsonTokenKind::String => string(self.lua, &self.scratch),
            JsonTokenKind::Number(number) => Ok(Value::Number(number)),
            JsonTokenKind::Boolean(value) => Ok(Value::Boolean(value)),
            JsonTokenKind::ObjectBegin => self.object(),
            JsonTokenKind::ArrayBegin => self.array(),
            JsonTokenKind::Null => Ok(Value::NULL),
            _ => Err(self.unexpected("value", token)),
        }
    }

    fn descend(&mut self) -> mlua::Result<()> {
        self.depth += 1;
        if self.depth > self.depth_max {
            let text = format!(
                "Found too many nested data structures ({}) at character {}",
                self.depth, self.at
            );
            return Err(errors::complain(self.lua, text));
        }
        Ok(())
    }

    fn object(&mut self) -> mlua::Result<Value> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.next()?;
        if !matches!(token.kind, JsonTokenKind::ObjectEnd) {
            loop {
                let JsonTokenKind::String = token.kind else {
                    return Err(self.unexpected("object key string", &token));
                };
                let key = string(self.lua, &self.scratch)?;
                token = self.next()?;
                let JsonTokenKind::Colon = token.kind else {
                    return Err(self.unexpected("colon", &token));
                };
                token = self.next()?;
                let value = self.value(&token)?;
                table.raw_set(key, value)?;
                token = self.next()?;
                match token.kind {
                    JsonTokenKind::ObjectEnd => break,
                    JsonTokenKind::Comma => token = self.next()?,
                    _ => return Err(self.unexpected("comma or object end", &token)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn array(&mut self) -> mlua::Result<Value> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.next()?;
        if !matches!(token.kind, JsonTokenKind::ArrayEnd) {
            for index in 1.. {
                let value = self.value(&token)?;
                table.raw_set(index, value)?;
                token = self.next()?;
                match token.kind {
                    JsonTokenKind::ArrayEnd => break,
                    JsonTokenKind::Comma => token = self.next()?,
                    _ => return Err(self.unexpected("comma or array end", &token)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn next(&mut self) -> mlua::Result<Token> {
        look()?;
        while matches!(self.byte(self.at), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
            if self.at.is_multiple_of(STEP_BYTES) {
                look()?;
            }
        }
        let at = self.at;
        let single = match self.byte(at) {
            b'{' => Some(JsonTokenKind::ObjectBegin),
            b'}' => Some(JsonTokenKind::ObjectEnd),
            b'[' => Some(JsonTokenKind::ArrayBegin),
            b']' => Some(JsonTokenKind::ArrayEnd),
            b',' => Some(JsonTokenKind::Comma),
            b':' => Some(JsonTokenKind::Colon),
            0 => {
                return Ok(Token {
                    kind: JsonTokenKind::End,
                    at,
                });
            }
            _ => None,
        };
        if let Some(kind) = single {
            self.at += 1;
            return Ok(Token { kind, at });
        }
        let rest = &self.text[at..];
        let (kind, length) = match rest[0] {
            b'"' => return self.string_token(),
            b'-' | b'0'..=b'9' => {
                if !self.takes_invalid && is_invalid_number(rest) {
                    (JsonTokenKind::Error("invalid number"), 0)
                } else {
                    number_token(rest)
                }
            }
            _ if rest.starts_with(b"true") => (JsonTokenKind::Boolean(true), 4),
            _ if rest.starts_with(b"false") => (JsonTokenKind::Boolean(false), 5),
            _ if rest.starts_with(b"null") => (JsonTokenKind::Null, 4),
            b'i' | b'I' | b'n' | b'N' | b'+' if self.takes_invalid && is_invalid_number(rest) => {
                number_token(rest)
            }
            _ => (JsonTokenKind::Error("invalid token"), 0),
        };
        self.at += length;
        Ok(Token { kind, at })
    }

    fn string_token(&mut self) -> mlua::Result<Token> {
        let begin = self.at;
        self.at += 1;
        self.scratch.clear();
        let error = |at: usize, what: &'static str| {
            let kind = JsonTokenKind::Error(what);
            Ok(Token { kind, at })
        };
        loop {
            look()?;
            // Copy runs of plain bytes at once.
            let rest = self.text.get(self.at..).unwrap_or_default();
            let plain = rest
                .iter()
                .position(|byte| matches!(byte, b'"' | b'\\' | 0))
                .unwrap_or(rest.len());
            self.scratch.extend_from_slice(&rest[..plain]);
            self.at += plain;
            match self.byte(self.at) {
                b'"' => break,
                b'\\' => {}
                _ => return error(self.at, "unexpected end of string"),
            }
            let plain = match self.byte(self.at + 1) {
                byte @ (b'"' | b'\\' | b'/') => byte,
                b'b' => 0x08,
                b't' => b'\t',
                b'n' => b'\n',
                b'f' => 0x0c,
                b'r' => b'\r',
                b'u' => {
                    match self.unicode() {
                        Some((character, length)) => {
                            let mut buffer = [0; 4];
                            let text = character.encode_utf8(&mut buffer);
                            self.scratch.extend_from_slice(text.as_bytes());
                            self.at += length;
                        }
                        None => return error(self.at, "invalid unicode escape code"),
                    }
                    continue;
                }
                _ => return error(self.at, "invalid escape code"),
            };
            self.scratch.push(plain);
            self.at += 2;
        }
        self.at += 1;
        let kind = JsonTokenKind::String;
        Ok(Token { kind, at: begin })
    }

    /// Decodes one or two `\uXXXX` escapes; returns the character and the length of the escapes.
    fn unicode(&self) -> Option<(char, usize)> {
        let unit = |at: usize| {
            let digits = self.text.get(at..at + 4)?;
            hex::parse(digits).map(|unit| u32::from(u16::from_be_bytes(unit)))
        };
        let first = unit(self.at + 2)?;
        if !(0xd800..0xe000).contains(&first) {
            return Some((char::from_u32(first)?, 6));
        }
        let is_followed = self.byte(self.at + 6) == b'\\' && self.byte(self.at + 7) == b'u';
        if first >= 0xdc00 || !is_followed {
            return None;
        }
        let second = unit(self.at + 8)?;
        if !(0xdc00..0xe000).contains(&second) {
            return None;
        }
        let code = 0x10000 + ((first & 0x3ff) << 10) + (second & 0x3ff);
        Some((char::from_u32(code)?, 12))
    }
}

fn number_token(rest: &[u8]) -> (JsonTokenKind, usize) {
    match numerals::read_prefix(rest) {
        Some((number, length)) => (JsonTokenKind::Number(number), length),
        None => (JsonTokenKind::Error("invalid number"), 0),
    }
}

/// True for numbers that C accepts and JSON does not.
fn is_invalid_number(rest: &[u8]) -> bool {
    if rest.first() == Some(&b'+') {
        return true;
    }
    let rest = rest.strip_prefix(b"-").unwrap_or(rest);
    match rest {
        [b'0', b'x' | b'X' | b'0'..=b'9', ..] => true,
        [b'0', ..] => false,
        [first, ..] if *first <= b'9' => false,
        _ => {
            let begins = |word: &[u8]| {
                rest.len() >= word.len() && rest[..word.len()].eq_ignore_ascii_case(word)
            };
            begins(b"inf") || begins(b"nan")
        }
    }
}
