//! One set of permissions: on commands, keys, channels and databases.

use std::collections::BTreeMap;

use super::catalogue::{Catalogue, Entry};
use super::denied::Denied;
use super::rule_error::RuleError;
use basalt_core::base::glob::{self, Case};

/// How a command uses a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyAccess {
    /// Whether the command reads the key's value.
    pub reads: bool,
    /// Whether the command changes the key's value.
    pub writes: bool,
}

impl KeyAccess {
    /// The command only reads the key's value.
    pub const READ: KeyAccess = KeyAccess {
        reads: true,
        writes: false,
    };
    /// The command only writes the key's value.
    pub const WRITE: KeyAccess = KeyAccess {
        reads: false,
        writes: true,
    };
    /// The command reads and writes the key's value.
    pub const ALL: KeyAccess = KeyAccess {
        reads: true,
        writes: true,
    };

    fn covers(self, wanted: KeyAccess) -> bool {
        (self.reads || !wanted.reads) && (self.writes || !wanted.writes)
    }
}

/// A pattern, precompiled if it is a plain text or a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) text: Vec<u8>,
    kind: PatternKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatternKind {
    /// A plain text: no byte is special.
    Literal,
    /// A prefix: only the last byte, a star, is special. Texts match whose first bytes are these, under the mask.
    Prefix {
        start: u64,
        mask: u64,
    },
    Glob,
}

/// Returns the first eight bytes of a text as a number; shorter texts are padded with zeros.
#[inline]
fn start_of(text: &[u8]) -> u64 {
    if let Some(first) = text.first_chunk::<8>() {
        return u64::from_le_bytes(*first);
    }
    // Combines two overlapping parts, as a library call would be too expensive for so few bytes.
    if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        let last = u64::from(u32::from_le_bytes(*last));
        return u64::from(u32::from_le_bytes(*first)) | last << (8 * (text.len() - 4));
    }
    let bytes = text.iter().enumerate();
    bytes.fold(0, |all, (at, byte)| all | u64::from(*byte) << (8 * at))
}

impl Pattern {
    pub(super) fn new(text: &[u8]) -> Pattern {
        let kind = match text.split_last() {
            _ if glob::is_literal(text) => PatternKind::Literal,
            Some((b'*', before)) if glob::is_literal(before) => PatternKind::Prefix {
                start: start_of(before),
                mask: match before.len() {
                    short @ ..8 => (1 << (8 * short)) - 1,
                    _ => u64::MAX,
                },
            },
            _ => PatternKind::Glob,
        };
        Pattern {
            text: text.to_vec(),
            kind,
        }
    }

    pub(super) fn matches(&self, text: &[u8]) -> bool {
        self.matches_with(text, start_of(text))
    }

    /// Whether a text matches; `first` is the text's [`start_of`].
    #[inline]
    fn matches_with(&self, text: &[u8], first: u64) -> bool {
        match self.kind {
            PatternKind::Literal => self.text == text,
            PatternKind::Prefix { start, mask } => {
                let len = self.text.len() - 1;
                // In Redis a pattern that is a single star does not match the empty text either.
                first & mask == start
                    && text.len() >= len.max(1)
                    && (len <= 8 || text.starts_with(&self.text[..len]))
            }
            PatternKind::Glob => glob::matches(&self.text, text, Case::Sensitive),
        }
    }
}

/// The key patterns that are prefixes of up to eight bytes, by kind of access: these match most keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AclKeyPrefixes {
    read: Vec<AclKeyPrefix>,
    written: Vec<AclKeyPrefix>,
    both: Vec<AclKeyPrefix>,
}

/// The first bytes of a key, under a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AclKeyPrefix {
    start: u64,
    mask: u64,
}

impl AclKeyPrefixes {
    fn add(&mut self, one: &KeyPattern) {
        let PatternKind::Prefix { start, mask } = one.pattern.kind else {
            return;
        };
        // The star is the last byte.
        if one.pattern.text.len() > 9 {
            return;
        }
        let lists = [
            (&mut self.read, KeyAccess::READ),
            (&mut self.written, KeyAccess::WRITE),
            (&mut self.both, KeyAccess::ALL),
        ];
        for (list, wanted) in lists {
            if one.access.covers(wanted) {
                list.push(AclKeyPrefix { start, mask });
            }
        }
    }

    /// Whether a key has one of the prefixes with this access. Patterns have no zero bytes, so a key shorter than a
    /// prefix does not match it; an empty key is left to the patterns.
    #[inline]
    fn have(&self, key: &[u8], first: u64, access: KeyAccess) -> bool {
        let prefixes = match (access.reads, access.writes) {
            (true, false) => &self.read,
            (false, true) => &self.written,
            _ => &self.both,
        };
        let mut prefixes = prefixes.iter();
        !key.is_empty() && prefixes.any(|one| first & one.mask == one.start)
    }
}

/// A pattern of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyPattern {
    pub(super) pattern: Pattern,
    pub(super) access: KeyAccess,
}

/// A rule on commands as given, in lower case, without its sign: a command, a subcommand, a command with its first
/// argument, or a category with its `@`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommandRule {
    pub(super) allows: bool,
    pub(super) text: String,
}

/// One set of permissions, see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Whether commands are allowed that were unknown when the rules were given.
    pub(super) is_open: bool,
    /// Allowed commands: one bit per command ID.
    allowed: Vec<u64>,
    /// First arguments with which otherwise forbidden commands are allowed, by command ID.
    first_arguments: BTreeMap<usize, Vec<Vec<u8>>>,
    pub(super) rules: Vec<CommandRule>,
    pub(super) all_keys: bool,
    pub(super) keys: Vec<KeyPattern>,
    prefixes: AclKeyPrefixes,
    pub(super) all_channels: bool,
    pub(super) channels: Vec<Pattern>,
    /// The indexes of the allowed databases, in order; None: all databases.
    pub(super) databases: Option<Vec<u32>>,
}

/// The databases that an argument of a command refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Used {
    /// The database with this index.
    One(u32),
    /// All databases.
    All,
}

impl Used {
    /// Returns the value for the database with this index.
    pub fn number(number: usize) -> Used {
        Used::One(u32::try_from(number).unwrap_or(u32::MAX))
    }
}

/// A command that a user wants to run.
pub struct Wanted<'w, 'a> {
    /// The command's ID.
    pub id: usize,
    /// Whether all users may run the command, regardless of the rules.
    pub is_free: bool,
    /// The argument after the command's name, or after its subcommand's name.
    pub first_argument: Option<&'a [u8]>,
    /// The command's keys in order, with the positions of their arguments.
    pub keys: &'w [(usize, &'a [u8], KeyAccess)],
    /// The command's channels in order, with the positions of their arguments.
    pub channels: &'w [(usize, &'a [u8])],
    /// Whether the channels are patterns.
    pub are_patterns: bool,
    /// The databases that the command uses, with the positions of the arguments that name them.
    pub databases: &'w [(usize, Used)],
}

impl Selector {
    /// Creates the selector of a new user: nothing is allowed, except channels if the configuration says so.
    pub(super) fn new(all_channels: bool) -> Selector {
        Selector {
            all_channels,
            ..Selector::default()
        }
    }

    /// Whether everything is allowed.
    pub(super) fn is_unrestricted(&self, commands: usize) -> bool {
        let all_patterns = self.all_keys && self.all_channels;
        all_patterns && self.databases.is_none() && (0..commands).all(|id| self.has(id))
    }

    /// Whether a command is allowed with any first argument.
    #[inline]
    pub(super) fn has(&self, id: usize) -> bool {
        match self.allowed.get(id / 64) {
            Some(word) => word >> (id % 64) & 1 == 1,
            None => self.is_open,
        }
    }

    fn set(&mut self, id: usize, allows: bool) {
        let word = id / 64;
        if self.allowed.len() <= word {
            let rest = if self.is_open { u64::MAX } else { 0 };
            self.allowed.resize(word + 1, rest);
        }
        let bit = 1 << (id % 64);
        match allows {
            true => self.allowed[word] |= bit,
            false => self.allowed[word] &= !bit,
        }
    }

    /// Allows all commands, or none.
    pub(super) fn set_all(&mut self, allows: bool) {
        self.is_open = allows;
        self.allowed.clear();
        self.first_arguments.clear();
        self.rules.clear();
    }

    fn set_entry(&mut self, entry: &Entry, allows: bool) {
        self.set(entry.id, allows);
        self.first_arguments.remove(&entry.id);
        for child in &entry.children {
            self.set(*child, allows);
        }
    }

    /// Adds a rule, which replaces earlier rules on the same command or on its subcommands.
    fn add_rule(&mut self, allows: bool, text: &str) {
        self.rules.retain(|rule| {
            let rest = rule.text.strip_prefix(text);
            !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
        });
        let text = text.to_owned();
        self.rules.push(CommandRule { allows, text });
    }

    pub(super) fn set_category(
        &mut self,
        name: &str,
        allows: bool,
        catalogue: &dyn Catalogue,
    ) -> Result<(), RuleError> {
        let entries = catalogue.category(name).ok_or(RuleError::Unknown)?;
        self.add_rule(allows, &format!("@{name}"));
        for entry in &entries {
            self.set_entry(entry, allows);
        }
        Ok(())
    }

    pub(super) fn set_command(
        &mut self,
        name: &str,
        allows: bool,
        catalogue: &dyn Catalogue,
    ) -> Result<(), RuleError> {
        let sub = match name.rsplit_once('|') {
            Some((container, sub)) if allows => Some((container, sub)),
            _ => None,
        };
        let Some((container, sub)) = sub else {
            let entry = catalogue.find(name).ok_or(RuleError::Unknown)?;
            self.set_entry(&entry, allows);
            self.add_rule(allows, entry.full_name);
            return Ok(());
        };
        let entry = catalogue.find(container).ok_or(RuleError::Unknown)?;
        if entry.is_sub {
            return Err(RuleError::FirstArgumentOfSubcommand);
        }
        if sub.is_empty() {
            return Err(RuleError::Syntax);
        }
        if entry.children.is_empty() {
            let known = self.first_arguments.entry(entry.id).or_default();
            let sub = sub.as_bytes();
            if !known.iter().any(|one| one.eq_ignore_ascii_case(sub)) {
                known.push(sub.to_vec());
            }
        } else {
            let entry = catalogue.find(name).ok_or(RuleError::Unknown)?;
            self.set_entry(&entry, true);
        }
        self.add_rule(true, name);
        Ok(())
    }

    /// Returns the reason for a denial and the position of the argument concerned; None if the command is allowed.
    #[inline]
    pub(super) fn refusal(&self, wanted: &Wanted<'_, '_>) -> Option<(Denied, usize)> {
        let mut used = wanted.databases.iter();
        if let Some((position, _)) = used.find(|(_, used)| !self.has_database(*used)) {
            return Some((Denied::Database, *position));
        }
        if !wanted.is_free && !self.has(wanted.id) && !self.has_first_argument(wanted) {
            return Some((Denied::Command, 0));
        }
        if !self.all_keys {
            for (position, key, access) in wanted.keys {
                if !self.has_key(key, *access) {
                    return Some((Denied::Key, *position));
                }
            }
        }
        if !self.all_channels {
            for (position, channel) in wanted.channels {
                if !self.has_channel(channel, wanted.are_patterns) {
                    return Some((Denied::Channel, *position));
                }
            }
        }
        None
    }

    /// Fast check of a command with one key and no channel: true if the rules surely allow it on this key, whatever its
    /// first argument and database; false does not mean denied.
    #[inline]
    pub(super) fn has_plainly(&self, id: usize, key: &[u8], access: KeyAccess) -> bool {
        self.databases.is_none() && self.has(id) && (self.all_keys || self.has_key(key, access))
    }

    #[cold]
    fn has_first_argument(&self, wanted: &Wanted<'_, '_>) -> bool {
        let known = self.first_arguments.get(&wanted.id);
        let given = wanted.first_argument;
        known
            .zip(given)
            .is_some_and(|(known, given)| known.iter().any(|one| one.eq_ignore_ascii_case(given)))
    }

    #[inline]
    fn has_key(&self, key: &[u8], access: KeyAccess) -> bool {
        let first = start_of(key);
        self.prefixes.have(key, first, access) || self.has_pattern(key, first, access)
    }

    #[inline(never)]
    fn has_pattern(&self, key: &[u8], first: u64, access: KeyAccess) -> bool {
        let is_match =
            |one: &KeyPattern| one.pattern.matches_with(key, first) && one.access.covers(access);
        self.keys.iter().any(is_match)
    }

    /// Allows all keys, or none.
    pub(super) fn set_all_keys(&mut self, allows: bool) {
        self.all_keys = allows;
        self.keys.clear();
        self.prefixes = AclKeyPrefixes::default();
    }

    /// Allows keys that match a pattern, or more access to them if the pattern exists.
    pub(super) fn add_keys(&mut self, text: &[u8], access: KeyAccess) {
        let known = self.keys.iter_mut().find(|one| one.pattern.text == text);
        let Some(known) = known else {
            let added = KeyPattern {
                pattern: Pattern::new(text),
                access,
            };
            self.prefixes.add(&added);
            self.keys.push(added);
            return;
        };
        if known.access.covers(access) {
            return;
        }
        known.access = KeyAccess::ALL;
        self.prefixes = AclKeyPrefixes::default();
        self.keys.iter().for_each(|one| self.prefixes.add(one));
    }

    /// Whether a channel may be used; a pattern of channels is allowed only if it equals a pattern of the rules.
    pub(super) fn has_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.all_channels
            || self.channels.iter().any(|one| match is_pattern {
                true => one.text == channel,
                false => one.matches(channel),
            })
    }

    /// Whether databases may be used.
    fn has_database(&self, used: Used) -> bool {
        self.databases.as_ref().is_none_or(|allowed| match used {
            Used::One(number) => allowed.binary_search(&number).is_ok(),
            Used::All => false,
        })
    }

    /// Whether some command may read a key in a database; in any database if `db` is None.
    pub(super) fn reads_key(&self, key: &[u8], db: Option<usize>) -> bool {
        let used = db.map_or(Used::All, Used::number);
        self.has_database(used) && (self.all_keys || self.has_key(key, KeyAccess::READ))
    }

    /// Whether some command may read all keys.
    pub(super) fn reads_all_keys(&self) -> bool {
        let reads = KeyAccess::READ;
        let is_all = |one: &KeyPattern| one.access.covers(reads) && one.pattern.text == b"*";
        self.all_keys || self.keys.iter().any(is_all)
    }
}
