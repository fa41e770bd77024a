//! ACL files: one `user NAME RULES` per line, accepted as a whole or not at all.

use std::collections::HashSet;

use super::catalogue::Catalogue;
use super::rule_error::RuleError;
use super::rules;
use super::user::User;

/// Parses the users of an ACL file. The error lists everything that is wrong, in one line. `name` is the name of the
/// file.
pub fn parse(
    name: &str,
    text: &[u8],
    opens_channels: bool,
    catalogue: &dyn Catalogue,
) -> Result<Vec<User>, String> {
    let (mut users, mut known, mut errors) = (Vec::new(), HashSet::new(), String::new());
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let number = number + 1;
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let [b"user", user, words @ ..] = words.as_slice() else {
            errors += &format!(
                "{name}:{number} should start with user keyword followed by the username. "
            );
            continue;
        };
        let shown = String::from_utf8_lossy(user);
        if rules::has_blanks(user) {
            errors +=
                &format!("'{name}:{number}: username '{shown}' contains invalid characters. ");
            continue;
        }
        if !known.insert(user.to_vec()) {
            errors += &format!("WARNING: Duplicate user '{shown}' found on line {number}. ");
            continue;
        }
        let mut user = User::new(user, opens_channels);
        let Ok(merged) = rules::merge(words) else {
            errors += &format!("{name}:{number}: Unmatched parenthesis in selector definition.");
            continue;
        };
        let mut has_syntax_error = false;
        for word in &merged {
            match user.apply(word.trim_ascii(), catalogue) {
                Ok(()) => {}
                // The error may quote an unknown word, as it cannot be a password.
                Err(RuleError::Unknown) => {
                    let (word, text) = (String::from_utf8_lossy(word), RuleError::Unknown.text());
                    errors +=
                        &format!("{name}:{number}: Error in applying operation '{word}': {text}. ");
                }
                Err(error) if !has_syntax_error => {
                    has_syntax_error = true;
                    errors += &format!("{name}:{number}: {}. ", error.text());
                }
                Err(_) => {}
            }
        }
        users.push(user);
    }
    match errors.is_empty() {
        true => Ok(users),
        false => Err(errors
            + "WARNING: ACL errors detected, no change to the previously active ACL rules was performed"),
    }
}

/// Returns the text of an ACL file with these users.
pub fn text<'u>(users: impl IntoIterator<Item = &'u User>) -> Vec<u8> {
    let mut text = Vec::new();
    for user in users {
        text.extend(user.line());
        text.push(b'\n');
    }
    text
}
