//! Checks of texts and words, to which rows of the table refer; the error is what CONFIG SET says.

use super::ShutdownOptions;

/// Checks the credentials of the metrics port: a user and a secret.
pub(in crate::config) fn metrics_auth(text: &str) -> Result<(), &'static str> {
    let shape = "must be user:password, or user:# and a SHA-256 of 64 hexadecimal digits";
    match text.split_once(':') {
        _ if text.is_empty() => Ok(()),
        Some((user, secret)) if !user.is_empty() && !secret.is_empty() => {
            match secret.strip_prefix('#') {
                Some(digest)
                    if digest.len() != 64
                        || !digest.bytes().all(|digit| digit.is_ascii_hexdigit()) =>
                {
                    Err(shape)
                }
                _ => Ok(()),
            }
        }
        _ => Err(shape),
    }
}

/// Checks names of hosts, separated by spaces.
pub(in crate::config) fn host_names(text: &str) -> Result<(), &'static str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match text.bytes().all(|byte| is_plain(byte) || byte == b' ') {
        true => Ok(()),
        false => Err("must be host names (letters, digits, dots, hyphens) separated by spaces"),
    }
}

/// Accepts any text.
pub fn any_text(_: &str) -> Result<(), &'static str> {
    Ok(())
}

/// Accepts any code.
pub fn any_code(_: u32) -> Result<(), &'static str> {
    Ok(())
}

/// Checks that a shutdown is not asked both to save and not to save.
pub fn shutdown_options(code: u32) -> Result<(), &'static str> {
    let options = ShutdownOptions(code);
    if options.has(ShutdownOptions::SAVE) && options.has(ShutdownOptions::NOSAVE) {
        return Err("shutdown options SAVE and NOSAVE can't be used simultaneously");
    }
    Ok(())
}

/// Checks that the snapshot's file is a name without a directory.
pub fn snapshot_name(text: &str) -> Result<(), &'static str> {
    if is_path(text) {
        Err("dbfilename can't be a path, just a filename")
    } else {
        Ok(())
    }
}

/// Checks that the append-only file is a name without a directory.
pub fn append_file_name(text: &str) -> Result<(), &'static str> {
    match text {
        "" => Err("appendfilename can't be empty"),
        _ if is_path(text) => Err("appendfilename can't be a path, just a filename"),
        _ => Ok(()),
    }
}

/// Checks that the append-only directory is a name without a parent.
pub fn append_directory_name(text: &str) -> Result<(), &'static str> {
    match text {
        "" => Err("appenddirname can't be empty"),
        _ if is_path(text) => Err("appenddirname can't be a path, just a dirname"),
        _ => Ok(()),
    }
}

/// Checks a host name: letters, digits, hyphens and dots, up to 255 of them.
pub fn host_name(text: &str) -> Result<(), &'static str> {
    if text.len() >= 256 {
        return Err("Hostnames must be less than 256 characters");
    }
    if !text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
    {
        return Err("Hostnames may only contain alphanumeric characters, hyphens or dots");
    }
    Ok(())
}

/// Checks a node's human-readable name, which nodes.conf must be able to store.
pub fn node_name(text: &str) -> Result<(), &'static str> {
    if text.contains(|letter| "!#$%&()*+:;<>?@[]^{|}~".contains(letter)) {
        return Err("Announced human node name contained invalid character");
    }
    Ok(())
}

/// Checks a version in the form that clients compare, three numbers separated by dots; empty is allowed.
pub fn version(text: &str) -> Result<(), &'static str> {
    let is_number = |part: &str| {
        part.parse::<u8>()
            .is_ok_and(|number| number.to_string() == part)
    };
    match text.is_empty() || text.split('.').count() == 3 && text.split('.').all(is_number) {
        true => Ok(()),
        false => Err("must be empty or a version such as 7.4.0"),
    }
}

/// Checks a process title: text with known variables in braces. As in Redis, a template is refused if it yields an
/// empty title while the title is still unknown.
pub fn title_template(text: &str) -> Result<(), &'static str> {
    const WRONG: &str = "template format is invalid or contains unknown variables";
    let filled = fill_title(text, |name| match name {
        "title" | "server-mode" => Some(String::new()),
        "listen-addr" | "port" | "tls-port" | "unixsocket" | "config-file" => Some("x".to_owned()),
        _ => None,
    });
    match filled {
        Some(title) if !title.is_empty() => Ok(()),
        _ => Err(WRONG),
    }
}

/// Replaces each variable of a process title by its `value`, and trims blanks; `None` if a variable has no value or
/// no closing brace. Two opening braces produce one.
pub fn fill_title(template: &str, value: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut title = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        title.push_str(before);
        rest = match after.strip_prefix('{') {
            Some(after) => {
                title.push('{');
                after
            }
            None => {
                let (name, after) = after.split_once('}')?;
                title.push_str(&value(name)?);
                after
            }
        };
    }
    title.push_str(rest);
    Some(title.trim_matches(' ').to_owned())
}

fn is_path(text: &str) -> bool {
    text.contains(['/', '\\'])
}
