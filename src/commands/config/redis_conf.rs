//! The syntax of redis.conf as a format of the `config` crate: converts text to directives, with the location of
//! each.
//!
//! This module knows no parameter and opens no file: `include` is a directive like any other. In the resulting map
//! the key is a directive's name and the value the list of its mentions (`Directive::to_value`), because in this
//! format a directive may be repeated, and some directives accumulate.

use std::error::Error;
use std::path::PathBuf;

use config::{Format, Map, Value, ValueKind};

use crate::config::error::{ConfigError, DirectiveLocation};
use crate::config::words;

/// The format of redis.conf, for the `config` crate.
#[derive(Debug, Clone, Copy)]
pub struct RedisConf;

/// One directive: a name, the words after it, and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive {
    /// The name, lower-case.
    pub name: String,
    /// The words after the name.
    pub words: Vec<String>,
    /// The original line, for errors.
    pub text: String,
    /// Location of the directive.
    pub place: DirectiveLocation,
}

impl Format for RedisConf {
    fn parse(
        &self,
        uri: Option<&String>,
        text: &str,
    ) -> Result<Map<String, Value>, Box<dyn Error + Send + Sync>> {
        let path = PathBuf::from(uri.map_or("-", String::as_str));
        let mut map = Map::new();
        for (index, line) in text.split('\n').enumerate() {
            let place = DirectiveLocation::File {
                path: path.clone(),
                line: index + 1,
            };
            if let Some(directive) = parse_line(line, place)? {
                add(&mut map, &directive, index);
            }
        }
        Ok(map)
    }
}

/// Parses one line; None for a blank line or a comment.
pub fn parse_line(line: &str, place: DirectiveLocation) -> Result<Option<Directive>, ConfigError> {
    let text = line.trim_matches([' ', '\t', '\r', '\n']);
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    let failure = |reason: &str| ConfigError::Directive {
        place: place.clone(),
        text: text.to_owned(),
        reason: reason.to_owned(),
    };
    let mut words = words::split_text(text).map_err(failure)?;
    if words.is_empty() {
        return Ok(None);
    }
    let name = words.remove(0).to_ascii_lowercase();
    Ok(Some(Directive {
        name,
        words,
        text: text.to_owned(),
        place,
    }))
}

/// Adds a mention of a directive to the map of a layer. `order` determines which of two mentions came first.
pub fn add(map: &mut Map<String, Value>, directive: &Directive, order: usize) {
    let value = directive.to_value(order);
    match map
        .get_mut(&directive.key())
        .map(|mentions| &mut mentions.kind)
    {
        Some(ValueKind::Array(mentions)) => mentions.push(value),
        _ => {
            map.insert(directive.key(), Value::new(None, vec![value]));
        }
    }
}

/// Returns all directives of a map, in the order in which they were written.
pub fn directives(map: Map<String, Value>) -> Vec<Directive> {
    let mut found: Vec<(i64, Directive)> = Vec::new();
    for mentions in map.into_values() {
        let mentions = mentions.into_array().unwrap_or_default();
        found.extend(mentions.into_iter().filter_map(Directive::from_value));
    }
    found.sort_by_key(|(order, _)| *order);
    found.into_iter().map(|(_, directive)| directive).collect()
}

impl Directive {
    /// Returns the key under which layers store the directive: the crate interprets dots and brackets in a key as a
    /// path.
    fn key(&self) -> String {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        let key: String = self
            .name
            .chars()
            .map(|letter| if plain(letter) { letter } else { '_' })
            .collect();
        if key.is_empty() { "_".to_owned() } else { key }
    }

    fn to_value(&self, order: usize) -> Value {
        let (origin, line) = match &self.place {
            DirectiveLocation::File { path, line } => (path.display().to_string(), *line as i64),
            DirectiveLocation::Environment => (String::new(), ENVIRONMENT),
            DirectiveLocation::Arguments => (String::new(), ARGUMENTS),
        };
        let words: Vec<Value> = self
            .words
            .iter()
            .map(|word| Value::from(word.as_str()))
            .collect();
        let fields: [(&str, ValueKind); 6] = [
            ("name", self.name.as_str().into()),
            ("words", ValueKind::Array(words)),
            ("text", self.text.as_str().into()),
            ("path", origin.into()),
            ("line", line.into()),
            ("order", (order as i64).into()),
        ];
        let table: Map<String, Value> = fields
            .into_iter()
            .map(|(key, kind)| (key.to_owned(), Value::new(None, kind)))
            .collect();
        Value::new(None, table)
    }

    /// Reverses `to_value`. Returns the order too; `None` for any other value.
    fn from_value(value: Value) -> Option<(i64, Self)> {
        let mut table = value.into_table().ok()?;
        let mut take = |key: &str| table.remove(key);
        let words = take("words")?.into_array().ok()?;
        let words = words
            .into_iter()
            .map(Value::into_string)
            .collect::<Result<_, _>>()
            .ok()?;
        let path = PathBuf::from(take("path")?.into_string().ok()?);
        let place = match take("line")?.into_int().ok()? {
            ENVIRONMENT => DirectiveLocation::Environment,
            ARGUMENTS => DirectiveLocation::Arguments,
            line => DirectiveLocation::File {
                path,
                line: usize::try_from(line).ok()?,
            },
        };
        let name = take("name")?.into_string().ok()?;
        let text = take("text")?.into_string().ok()?;
        Some((
            take("order")?.into_int().ok()?,
            Self {
                name,
                words,
                text,
                place,
            },
        ))
    }
}

/// Line numbers that represent locations without lines.
const ENVIRONMENT: i64 = -1;
const ARGUMENTS: i64 = -2;
