//! The syntax of redis.conf: converts text to directives, with the location of each.
//!
//! This module knows no parameter and opens no file: `include` is a directive like any other.

use std::path::Path;

use crate::config::error::{ConfigError, DirectiveLocation};
use crate::config::words;

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

/// Parses the directives of a text, in order.
pub fn parse(path: &Path, text: &str) -> Result<Vec<Directive>, ConfigError> {
    let parse_line = |(index, line): (usize, &str)| {
        let place = DirectiveLocation::File {
            path: path.to_owned(),
            line: index + 1,
        };
        parse_line(line, place).transpose()
    };
    let lines = text.split('\n').enumerate();
    lines.filter_map(parse_line).collect()
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
