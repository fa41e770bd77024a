//! ACL files: one `user NAME RULES` or `role NAME RULES` per line, accepted as a whole or not at all.

use std::collections::HashSet;
use std::sync::Arc;

use super::catalogue::Catalogue;
use super::role::{self, Role, Roles};
use super::rule_error::RuleError;
use super::rules;
use super::user::User;

/// The lines of a file with its name, and what is wrong with them.
struct Reading<'f> {
    name: &'f str,
    lines: Vec<(usize, Vec<&'f [u8]>)>,
    errors: String,
}

/// Parses the users and roles of an ACL file. The error lists everything that is wrong, in one line. `name` is the name
/// of the file.
pub fn parse<'f>(
    name: &'f str,
    text: &'f [u8],
    opens_channels: bool,
    catalogue: &dyn Catalogue,
) -> Result<(Vec<User>, Roles), String> {
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let numbered = (1..).zip(lines).filter(|(_, line)| !line.is_empty());
    let words = |(number, line): (usize, &'f [u8])| {
        let words = line.split(|byte| *byte == b' ').collect();
        (number, words)
    };
    let mut reading = Reading {
        name,
        lines: numbered.map(words).collect(),
        errors: String::new(),
    };
    // Users may have roles that are defined below them.
    let roles = reading.roles(opens_channels, catalogue);
    let users = reading.users(opens_channels, catalogue, &roles);
    match reading.errors.is_empty() {
        true => Ok((users, roles)),
        false => Err(reading.errors
            + "WARNING: ACL errors detected, no change to the previously active ACL rules was performed"),
    }
}

impl Reading<'_> {
    fn roles(&mut self, opens_channels: bool, catalogue: &dyn Catalogue) -> Roles {
        let (name, mut roles) = (self.name, Roles::new());
        for (number, words) in std::mem::take(&mut self.lines) {
            let (role, rules) = match words.as_slice() {
                [b"role", role, rules @ ..] => (*role, rules),
                [b"role"] => {
                    self.errors += &format!("{name}:{number} requires a role name. ");
                    continue;
                }
                _ => {
                    self.lines.push((number, words));
                    continue;
                }
            };
            let shown = String::from_utf8_lossy(role);
            if let Some(error) = role::name_error(role) {
                self.errors += &format!("{name}:{number}: {error}. ");
            } else if roles.contains_key(role) {
                self.errors +=
                    &format!("WARNING: Duplicate role '{shown}' found on line {number}. ");
            } else {
                let mut made = Role::new(role, opens_channels);
                self.apply(number, rules, |word| made.apply(word, catalogue));
                roles.insert(role.to_vec(), Arc::new(made));
            }
        }
        roles
    }

    fn users(
        &mut self,
        opens_channels: bool,
        catalogue: &dyn Catalogue,
        roles: &Roles,
    ) -> Vec<User> {
        let (name, mut users, mut known) = (self.name, Vec::new(), HashSet::new());
        for (number, words) in std::mem::take(&mut self.lines) {
            let [b"user", user, words @ ..] = words.as_slice() else {
                self.errors += &format!(
                    "{name}:{number} should start with user keyword followed by the username. "
                );
                continue;
            };
            let shown = String::from_utf8_lossy(user);
            if rules::has_blanks(user) {
                self.errors +=
                    &format!("'{name}:{number}: username '{shown}' contains invalid characters. ");
                continue;
            }
            if !known.insert(user.to_vec()) {
                self.errors +=
                    &format!("WARNING: Duplicate user '{shown}' found on line {number}. ");
                continue;
            }
            let mut user = User::new(user, opens_channels);
            self.apply(number, words, |word| user.apply(word, catalogue, roles));
            users.push(user);
        }
        users
    }

    /// Applies the rules of a line.
    fn apply(
        &mut self,
        number: usize,
        words: &[&[u8]],
        mut apply: impl FnMut(&[u8]) -> Result<(), RuleError>,
    ) {
        let (name, errors) = (self.name, &mut self.errors);
        let Ok(merged) = rules::merge(words) else {
            *errors += &format!("{name}:{number}: Unmatched parenthesis in selector definition.");
            return;
        };
        let mut has_syntax_error = false;
        for word in &merged {
            match apply(word.trim_ascii()) {
                Ok(()) => {}
                // The error may quote an unknown word, as it cannot be a password.
                Err(RuleError::Unknown) => {
                    let (word, text) = (String::from_utf8_lossy(word), RuleError::Unknown.text());
                    *errors +=
                        &format!("{name}:{number}: Error in applying operation '{word}': {text}. ");
                }
                Err(error) if !has_syntax_error => {
                    has_syntax_error = true;
                    *errors += &format!("{name}:{number}: {}. ", error.text());
                }
                Err(_) => {}
            }
        }
    }
}

/// Returns the text of an ACL file with these roles and users.
pub fn text(roles: &[Arc<Role>], users: &[Arc<User>]) -> Vec<u8> {
    let roles = roles.iter().map(|role| role.line());
    let lines = roles.chain(users.iter().map(|user| user.line()));
    let mut text = Vec::new();
    for line in lines {
        text.extend(line);
        text.push(b'\n');
    }
    text
}
