//! The rules that define a user, word by word: parsing and formatting.

use std::sync::Arc;

use super::catalogue::Catalogue;
use super::role::{Role, Roles};
use super::rule_error::RuleError;
use super::selector::{KeyAccess, KeyPattern, Pattern, Selector};
use super::user::{Hash, User, hash};
use basalt_core::base::{hex, lossless, text};

/// Whether a name, or a pattern, contains characters that the ACL file could not store.
pub fn has_blanks(text: &[u8]) -> bool {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | 0);
    text.iter().any(is_blank)
}

/// Merges words in parentheses into one word. If an opening word has no closing one, it is the error.
pub fn merge<'w>(words: &[&'w [u8]]) -> Result<Vec<Vec<u8>>, &'w [u8]> {
    let mut merged: Vec<Vec<u8>> = Vec::with_capacity(words.len());
    let mut opening: Option<&'w [u8]> = None;
    for word in words {
        match opening {
            Some(_) => {
                if let Some(whole) = merged.last_mut() {
                    whole.push(b' ');
                    whole.extend_from_slice(word);
                }
            }
            None => merged.push(word.to_vec()),
        }
        match opening {
            None if word.starts_with(b"(") && !word.ends_with(b")") => opening = Some(word),
            Some(_) if word.ends_with(b")") => opening = None,
            _ => {}
        }
    }
    match opening {
        Some(word) => Err(word),
        None => Ok(merged),
    }
}

/// Returns a user or a role with all rules applied. If one fails none is applied, and the error is formatted for a
/// subcommand of ACL.
fn applied<T: Clone>(
    to: &T,
    words: &[&[u8]],
    subcommand: &str,
    mut apply: impl FnMut(&mut T, &[u8]) -> Result<(), RuleError>,
) -> Result<T, Vec<u8>> {
    let merged = merge(words).map_err(|word| {
        let start = b"Unmatched parenthesis in acl selector starting at '";
        [&start[..], word, b"'."].concat()
    })?;
    let mut changed = to.clone();
    for word in &merged {
        apply(&mut changed, word).map_err(|error| {
            let start = format!("Error in ACL {subcommand} modifier '");
            let end = format!("': {}", error.text());
            [start.as_bytes(), word, end.as_bytes()].concat()
        })?;
    }
    Ok(changed)
}

impl User {
    /// Returns the user with all rules applied. If one fails none is applied, and the error is formatted for ACL
    /// SETUSER.
    pub fn with(
        &self,
        words: &[&[u8]],
        catalogue: &dyn Catalogue,
        roles: &Roles,
    ) -> Result<User, Vec<u8>> {
        applied(self, words, "SETUSER", |user, word| {
            user.apply(word, catalogue, roles)
        })
    }

    /// Applies one rule.
    pub fn apply(
        &mut self,
        word: &[u8],
        catalogue: &dyn Catalogue,
        roles: &Roles,
    ) -> Result<(), RuleError> {
        let Some(first) = word.first() else {
            return Ok(());
        };
        // Redis compares texts up to a zero byte.
        let plain = lossless::before_nul(word);
        let is = |name: &str| plain.eq_ignore_ascii_case(name.as_bytes());
        match first {
            _ if is("on") => self.is_on = true,
            _ if is("off") => self.is_on = false,
            _ if is("skip-sanitize-payload") => self.skips_sanitizing = true,
            _ if is("sanitize-payload") => self.skips_sanitizing = false,
            _ if is("nopass") => {
                self.is_nopass = true;
                self.passwords.clear();
            }
            _ if is("resetpass") => {
                self.is_nopass = false;
                self.passwords.clear();
            }
            b'>' => self.add_password(hash(&word[1..])),
            b'#' => self.add_password(hash_of(&word[1..])?),
            b'<' => self.remove_password(&hash(&word[1..]))?,
            b'!' => self.remove_password(&hash_of(&word[1..])?)?,
            _ if is("resetroles") => self.roles.clear(),
            _ if names_in(plain).is_some() => {
                let names = names_in(plain).unwrap_or_default();
                self.roles = roles_of(names, roles)?;
            }
            _ if is("reset") => *self = User::new(&self.name, self.opens_channels),
            _ => {
                let opens_channels = self.opens_channels;
                permit(
                    &mut self.root,
                    &mut self.selectors,
                    opens_channels,
                    word,
                    catalogue,
                )?;
            }
        }
        Ok(())
    }

    fn add_password(&mut self, hash: Hash) {
        self.is_nopass = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn remove_password(&mut self, hash: &Hash) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|known| known == hash);
        self.passwords.remove(at.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }

    /// Returns the user's flags, as ACL GETUSER names them (on, nopass, and so on).
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        let on = if self.is_on { "on" } else { "off" };
        let sanitizing = match self.skips_sanitizing {
            true => "skip-sanitize-payload",
            false => "sanitize-payload",
        };
        let nopass = self.is_nopass.then_some("nopass");
        [Some(on), nopass, Some(sanitizing)].into_iter().flatten()
    }

    /// Returns the hashes of the user's passwords, in hexadecimal.
    pub fn password_hashes(&self) -> impl Iterator<Item = String> {
        self.passwords.iter().map(|hash| hex::text(hash))
    }

    /// Returns the root permissions: the rules outside of parentheses.
    pub fn root(&self) -> &Selector {
        &self.root
    }

    /// Returns the permissions in parentheses.
    pub fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    /// Returns all rules that define the user: applied to a new user, they yield the same one.
    pub fn describe(&self) -> Vec<u8> {
        let mut words = Vec::new();
        for flag in self.flags() {
            words.extend_from_slice(flag.as_bytes());
            words.push(b' ');
        }
        for hash in self.password_hashes() {
            words.push(b'#');
            words.extend_from_slice(hash.as_bytes());
            words.push(b' ');
        }
        if !self.roles.is_empty() {
            let names: Vec<&[u8]> = self.roles.iter().map(|role| role.name()).collect();
            words.extend_from_slice(b"role=");
            words.extend(names.join(&b','));
            words.push(b' ');
        }
        describe(&self.root, &self.selectors, &mut words);
        words
    }

    /// Formats the user as a line `user NAME RULES…`, for the configuration file or the ACL file.
    pub fn line(&self) -> Vec<u8> {
        [b"user ", &self.name[..], b" ", &self.describe()].concat()
    }
}

impl Role {
    /// Returns the role with all rules applied. If one fails none is applied, and the error is formatted for ACL
    /// SETROLE.
    pub fn with(&self, words: &[&[u8]], catalogue: &dyn Catalogue) -> Result<Role, Vec<u8>> {
        applied(self, words, "SETROLE", |role, word| {
            role.apply(word, catalogue)
        })
    }

    /// Applies one rule.
    pub fn apply(&mut self, word: &[u8], catalogue: &dyn Catalogue) -> Result<(), RuleError> {
        if word.is_empty() {
            return Ok(());
        }
        // Other words are for users alone, and are no rules of selectors.
        let opens_channels = self.opens_channels;
        permit(
            &mut self.root,
            &mut self.selectors,
            opens_channels,
            word,
            catalogue,
        )
    }

    /// Formats the role as a line `role NAME RULES…`, for the configuration file or the ACL file.
    pub fn line(&self) -> Vec<u8> {
        let mut line = [b"role ", self.name(), b" "].concat();
        describe(&self.root, &self.selectors, &mut line);
        line
    }
}

/// Applies a rule on what a user or a role may do.
fn permit(
    root: &mut Selector,
    selectors: &mut Vec<Selector>,
    opens_channels: bool,
    word: &[u8],
    catalogue: &dyn Catalogue,
) -> Result<(), RuleError> {
    if word.len() > 1 && word.starts_with(b"(") && word.ends_with(b")") {
        let mut selector = Selector::new(opens_channels);
        let inner = &word[1..word.len() - 1];
        // Text with unbalanced quotes yields no words to apply, as in Redis.
        for word in split(inner) {
            selector.apply(&word, catalogue)?;
        }
        selectors.push(selector);
        return Ok(());
    }
    if lossless::before_nul(word).eq_ignore_ascii_case(b"clearselectors") {
        selectors.clear();
        return Ok(());
    }
    root.apply(word, catalogue)
}

/// Appends the rules that yield these permissions.
fn describe(root: &Selector, selectors: &[Selector], words: &mut Vec<u8>) {
    words.extend(root.describe());
    for selector in selectors {
        words.extend_from_slice(b" (");
        words.extend(selector.describe());
        words.push(b')');
    }
}

/// Returns the names in a rule `role=NAME,…`; `None` for other rules.
fn names_in(word: &[u8]) -> Option<&[u8]> {
    let (start, names) = word.split_at_checked(5)?;
    start.eq_ignore_ascii_case(b"role=").then_some(names)
}

impl Selector {
    fn apply(&mut self, word: &[u8], catalogue: &dyn Catalogue) -> Result<(), RuleError> {
        // Redis compares texts up to a zero byte.
        let plain = lossless::before_nul(word);
        let is = |name: &str| plain.eq_ignore_ascii_case(name.as_bytes());
        if is("allkeys") || is("~*") {
            self.set_all_keys(true);
        } else if is("resetkeys") {
            self.set_all_keys(false);
        } else if is("allchannels") || is("&*") {
            self.all_channels = true;
            self.channels.clear();
        } else if is("resetchannels") {
            self.all_channels = false;
            self.channels.clear();
        } else if is("alldbs") {
            self.databases = None;
        } else if is("resetdbs") {
            self.databases = Some(Vec::new());
        } else if let Some((start, numbers)) = plain.split_at_checked(3)
            && start.eq_ignore_ascii_case(b"db=")
        {
            self.databases = Some(database_numbers(numbers)?);
        } else if is("allcommands") || is("+@all") {
            self.set_all(true);
        } else if is("nocommands") || is("-@all") {
            self.set_all(false);
        } else {
            return match word.first() {
                Some(b'~' | b'%') => self.add_key(word),
                Some(b'&') => self.add_channel(&word[1..]),
                Some(sign @ (b'+' | b'-')) => {
                    let name = std::str::from_utf8(&plain[1..]).map_err(|_| RuleError::Unknown)?;
                    let (name, allows) = (name.to_ascii_lowercase(), *sign == b'+');
                    match name.strip_prefix('@') {
                        Some(category) => self.set_category(category, allows, catalogue),
                        None => self.set_command(&name, allows, catalogue),
                    }
                }
                _ => Err(RuleError::Syntax),
            };
        }
        Ok(())
    }

    fn add_key(&mut self, word: &[u8]) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::AllKeys);
        }
        let (access, text) = match word.split_first() {
            Some((b'%', rest)) => key_access(rest).ok_or(RuleError::Syntax)?,
            _ => (KeyAccess::ALL, &word[1..]),
        };
        if has_blanks(text) {
            return Err(RuleError::Syntax);
        }
        self.add_keys(text, access);
        Ok(())
    }

    fn add_channel(&mut self, text: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::AllChannels);
        }
        if has_blanks(text) {
            return Err(RuleError::Syntax);
        }
        if !self.channels.iter().any(|known| known.text == text) {
            self.channels.push(Pattern::new(text));
        }
        Ok(())
    }

    /// Returns the rules on keys: one word for each pattern.
    pub fn key_words(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let word = |one: &KeyPattern| {
            let start: &[u8] = match (one.access.reads, one.access.writes) {
                (true, false) => b"%R~",
                (false, true) => b"%W~",
                _ => b"~",
            };
            [start, &one.pattern.text].concat()
        };
        let words: Vec<Vec<u8>> = self.keys.iter().map(word).collect();
        words.join(&b' ')
    }

    /// Returns the rules on channels: one word for each pattern.
    pub fn channel_words(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let word = |one: &Pattern| [b"&", &one.text[..]].concat();
        let words: Vec<Vec<u8>> = self.channels.iter().map(word).collect();
        words.join(&b' ')
    }

    /// Returns the rules on databases: empty if all databases may be used.
    pub fn database_words(&self) -> String {
        match self.databases.as_deref() {
            None => String::new(),
            Some([]) => "resetdbs".to_owned(),
            Some(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
                format!("db={}", numbers.join(","))
            }
        }
    }

    /// Returns the rules on commands: one word for each rule, in the order in which they apply.
    pub fn command_words(&self) -> String {
        let mut words = if self.is_open { "+@all" } else { "-@all" }.to_owned();
        for rule in &self.rules {
            words.push_str(if rule.allows { " +" } else { " -" });
            words.push_str(&rule.text);
        }
        words
    }

    fn describe(&self) -> Vec<u8> {
        let mut words = self.key_words();
        if !words.is_empty() {
            words.push(b' ');
        }
        let channels = self.channel_words();
        if !self.all_channels {
            words.extend_from_slice(b"resetchannels ");
        }
        if !channels.is_empty() {
            words.extend(channels);
            words.push(b' ');
        }
        if self.databases.is_some() {
            words.extend_from_slice(self.database_words().as_bytes());
            words.push(b' ');
        }
        words.extend_from_slice(self.command_words().as_bytes());
        words
    }
}

/// Finds the roles of a list of names, each once.
fn roles_of(names: &[u8], roles: &Roles) -> Result<Vec<Arc<Role>>, RuleError> {
    let names: Vec<&[u8]> = names.split(|byte| *byte == b',').collect();
    if names.iter().any(|name| name.is_empty()) {
        return Err(RuleError::Syntax);
    }
    let mut found: Vec<Arc<Role>> = Vec::with_capacity(names.len());
    for name in names {
        let role = roles.get(name).ok_or(RuleError::NoSuchRole)?;
        if !found.iter().any(|known| known.name() == name) {
            found.push(Arc::clone(role));
        }
    }
    Ok(found)
}

/// Parses database indexes separated by commas. Returns each index once, in order.
fn database_numbers(text: &[u8]) -> Result<Vec<u32>, RuleError> {
    let mut numbers = Vec::new();
    for part in text.split(|byte| *byte == b',') {
        let (sign, digits) = match part.split_first() {
            Some((b'-', rest)) => (true, rest),
            _ => (false, part),
        };
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(RuleError::Syntax);
        }
        let number = std::str::from_utf8(digits)
            .ok()
            .and_then(|text| text.parse().ok());
        let number: i32 = number.filter(|_| !sign).ok_or(RuleError::DatabaseRange)?;
        numbers.push(number.unsigned_abs());
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

/// Splits a line with quotes into words.
fn split(line: &[u8]) -> Vec<Vec<u8>> {
    let (mut bytes, mut ranges) = (Vec::new(), Vec::new());
    match text::split_arguments(line, &mut bytes, |range| ranges.push(range)) {
        Ok(()) => ranges
            .into_iter()
            .map(|range| bytes[range].to_vec())
            .collect(),
        Err(text::UnbalancedQuotes) => Vec::new(),
    }
}

/// Parses the letters between `%` and `~`. Returns the access and the text after the `~`.
fn key_access(letters: &[u8]) -> Option<(KeyAccess, &[u8])> {
    let mut access = KeyAccess::default();
    for (at, byte) in letters.iter().enumerate() {
        match byte.to_ascii_uppercase() {
            b'R' if !access.reads => access.reads = true,
            b'W' if !access.writes => access.writes = true,
            b'~' if access != KeyAccess::default() => return Some((access, &letters[at + 1..])),
            _ => return None,
        }
    }
    // Letters without a tilde count as followed by an empty pattern, as in Redis.
    (access != KeyAccess::default()).then_some((access, &[]))
}

/// Parses a password hash of 64 lower-case hexadecimal digits.
fn hash_of(digits: &[u8]) -> Result<Hash, RuleError> {
    if digits.iter().any(u8::is_ascii_uppercase) {
        return Err(RuleError::BadHash);
    }
    hex::parse(digits).ok_or(RuleError::BadHash)
}
