//! Configuration files: reading them, distinguishing TOML from redis.conf, converting TOML's values to directives,
//! patterns in `include`, and the directives that occur only in files.

use std::path::{Path, PathBuf};

use config::{Map, Value, ValueKind};

use crate::config::error::{ConfigError, DirectiveLocation};
use crate::config::redis_conf::Directive;
use crate::config::table::Config;
use crate::config::{find, pattern, similar, values, words};
use basalt_core::base::lossless;

/// Returns the text of a configuration file.
pub(super) fn read(path: &Path) -> Result<String, ConfigError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(lossless::text_of(&bytes).into_owned()),
        Err(error) => {
            let reason = values::system_text(&error);
            Err(ConfigError::Unreadable {
                path: path.to_owned(),
                reason,
            })
        }
    }
}

/// Maximum length of a secret that is read from a file.
const SECRET_BYTES_MAX: u64 = 1 << 20;

/// Returns the value that a file contains, without the final line end, or the reason of a failure. An empty value is an
/// error, as it would turn a password off.
pub(super) fn secret(path: &Path) -> Result<String, String> {
    use std::io::Read;
    let shown = path.display();
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    let read = file.and_then(|file| file.take(SECRET_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|error| format!("Can't read {shown}: {}", values::system_text(&error)))?;
    let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    match text.is_empty() {
        true => Err(format!("{shown} is empty")),
        false => Ok(lossless::text_of(text).into_owned()),
    }
}

/// Whether a text is TOML: by its file extension, or by a first line that is invalid in redis.conf.
pub(super) fn is_toml(path: &Path, text: &str) -> bool {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("toml") => return true,
        Some("conf") => return false,
        _ => {}
    }
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| line.starts_with('[') || assigned_key(line).is_some())
}

/// Returns the key of a line `key = …`.
pub(super) fn assigned_key(line: &str) -> Option<&str> {
    let (key, _) = line.split_once('=')?;
    let key = key.trim().trim_matches(['"', '\'']);
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    (!key.is_empty() && key.chars().all(plain)).then_some(key)
}

/// Converts a TOML table to directives, in the order of their lines.
pub(super) fn toml_directives(
    path: &Path,
    text: &str,
    table: Map<String, Value>,
) -> Result<Vec<Directive>, ConfigError> {
    let mut found = Vec::new();
    for (key, value) in table {
        let (line, text) = line_of(text, &key);
        let place = DirectiveLocation::File {
            path: path.to_owned(),
            line,
        };
        let name = key.to_ascii_lowercase();
        let is_repeated = matches!(
            name.as_str(),
            "include" | "rename-command" | "role" | "user" | "loadmodule"
        );
        let takes_many = is_repeated || find(&name).is_some_and(|parameter| parameter.takes_many());
        let failure = |reason: &str| ConfigError::Directive {
            place: place.clone(),
            text: text.to_owned(),
            reason: reason.to_owned(),
        };
        let mut mentions = Vec::new();
        match value.kind {
            ValueKind::Array(items) => {
                let mut all = Vec::new();
                for item in items {
                    let word = word_of(item.kind)
                        .ok_or_else(|| failure("a list may contain only strings and numbers"))?;
                    let words = if takes_many {
                        words::split_text(&word).map_err(failure)?
                    } else {
                        vec![word]
                    };
                    if is_repeated {
                        mentions.push(words);
                    } else {
                        all.extend(words);
                    }
                }
                if !is_repeated {
                    mentions.push(if all.is_empty() {
                        vec![String::new()]
                    } else {
                        all
                    });
                }
            }
            kind => {
                let word = word_of(kind).ok_or_else(|| {
                    failure("tables are not supported: put directives at the top level")
                })?;
                mentions.push(if is_repeated {
                    words::split_text(&word).map_err(failure)?
                } else {
                    vec![word]
                });
            }
        }
        for words in mentions {
            found.push((
                line,
                Directive {
                    name: name.clone(),
                    words,
                    text: text.to_owned(),
                    place: place.clone(),
                },
            ));
        }
    }
    found.sort_by_key(|(line, _)| *line);
    Ok(found.into_iter().map(|(_, directive)| directive).collect())
}

/// Converts a scalar TOML value to a word.
fn word_of(kind: ValueKind) -> Option<String> {
    match kind {
        ValueKind::Boolean(value) => Some(if value { "yes" } else { "no" }.to_owned()),
        ValueKind::Table(_) | ValueKind::Array(_) | ValueKind::Nil => None,
        plain => Some(plain.to_string()),
    }
}

/// Returns the number and text of the line that assigns `key`, because the TOML crate does not keep positions.
fn line_of<'a>(text: &'a str, key: &str) -> (usize, &'a str) {
    let mut lines = text.lines().enumerate();
    let found = lines.find(|(_, line)| {
        assigned_key(line)
            .is_some_and(|assigned| assigned == key || assigned.split('.').next() == Some(key))
            || line.trim().trim_start_matches('[').starts_with(key)
    });
    found.map_or((1, ""), |(index, line)| (index + 1, line.trim()))
}

/// Converts an error of the TOML parser, with the line that the error names.
pub(super) fn toml_error(
    path: &Path,
    text: &str,
    error: &(dyn std::error::Error + Send + Sync),
) -> ConfigError {
    let message = error.to_string();
    let number = message.split_once("at line ").map(|(_, rest)| {
        rest.chars()
            .take_while(char::is_ascii_digit)
            .collect::<String>()
    });
    let line = number.and_then(|digits| digits.parse().ok()).unwrap_or(1);
    let reason = message
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or("not TOML");
    ConfigError::Directive {
        place: DirectiveLocation::File {
            path: path.to_owned(),
            line,
        },
        text: text.lines().nth(line - 1).unwrap_or("").trim().to_owned(),
        reason: reason.to_owned(),
    }
}

/// Returns the files that an `include` names: one, or all that match a pattern, ordered by name.
pub(super) fn matching(pattern: &str) -> Vec<PathBuf> {
    if !has_wildcards(pattern) {
        return vec![PathBuf::from(pattern)];
    }
    let mut found = vec![PathBuf::from(if pattern.starts_with('/') {
        "/"
    } else {
        ""
    })];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        if !has_wildcards(part) {
            for path in &mut found {
                path.push(part);
            }
            continue;
        }
        let mut deeper = Vec::new();
        for directory in &found {
            let here = if directory.as_os_str().is_empty() {
                Path::new(".")
            } else {
                directory.as_path()
            };
            let Ok(entries) = std::fs::read_dir(here) else {
                continue;
            };
            for entry in entries.flatten() {
                let name = entry.file_name();
                let Some(name) = name.to_str() else { continue };
                let is_hidden = name.starts_with('.') && !part.starts_with('.');
                if !is_hidden && pattern::matches(part, name) {
                    deeper.push(directory.join(name));
                }
            }
        }
        deeper.sort();
        found = deeper;
    }
    found.retain(|path| path.exists());
    found
}

fn has_wildcards(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Handles directives that are not parameters: they occur only in files and arguments.
pub(super) fn only_in_files(config: &mut Config, directive: &Directive) -> Result<(), String> {
    match (directive.name.as_str(), directive.words.as_slice()) {
        // Removed before Redis 7, which ignores them.
        ("list-max-ziplist-entries" | "list-max-ziplist-value" | "lua-replicate-commands", [_]) => {
            Ok(())
        }
        ("rename-command", [from, to]) => {
            config.renamed_commands.push((from.clone(), to.clone()));
            Ok(())
        }
        ("role", [name, rules @ ..]) => {
            if config.roles.iter().any(|(known, _)| known == name) {
                return Err(
                    "Duplicate role found. A role can only be defined once in config files"
                        .to_owned(),
                );
            }
            config.roles.push((name.clone(), rules.to_vec()));
            Ok(())
        }
        ("user", [name, rules @ ..]) => {
            if config.users.iter().any(|(known, _)| known == name) {
                return Err(
                    "Duplicate user found. A user can only be defined once in config files"
                        .to_owned(),
                );
            }
            config.users.push((name.clone(), rules.to_vec()));
            Ok(())
        }
        ("loadmodule", [_, ..]) => {
            Err("'loadmodule' is not supported: modules are not supported".to_owned())
        }
        ("sentinel", [_, ..]) => Err("sentinel directive while not in sentinel mode".to_owned()),
        (name, []) if name.contains('.') => Err("Module config specified without value".to_owned()),
        (name, _) if name.contains('.') => Err(format!(
            "'{name}' is not supported: it belongs to a module, and modules are not supported"
        )),
        (name, _) => Err(format!(
            "Bad directive or wrong number of arguments{}",
            similar::question(name)
        )),
    }
}
