//! Positions of keys among the arguments of a command.

use super::KeyFlags;

/// The position of the first key of a specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeginSearch {
    /// Found at this argument.
    Index(i32),
    /// Found after this word, which is searched for from this argument on (backwards from the end if negative).
    Keyword(&'static str, i32),
    /// The position cannot be expressed by a specification.
    Unknown,
}

/// The positions of the further keys of a specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindKeys {
    /// Every `step` arguments up to `last`, relative to the first (negative: from the end), limited to the share
    /// `limit`.
    Range {
        /// Index of the last key, relative to the first key; negative counts from the last argument.
        last: i32,
        /// Distance between two keys, in arguments.
        step: i32,
        /// Limit on the share of the arguments that are keys: 0 and 1: no limit; 2: half of the remaining arguments,
        /// and so on.
        limit: i32,
    },
    /// An argument gives the number of keys; `count_at` and `first` are relative to the position where the search
    /// begins.
    KeyNum {
        /// Position of the number of keys.
        count_at: i32,
        /// Position of the first key.
        first: i32,
        /// Distance between two keys, in arguments.
        step: i32,
    },
    /// The positions cannot be expressed by a specification.
    Unknown,
}

/// One specification of key positions among the arguments.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// Position of the first key.
    pub begin: BeginSearch,
    /// Positions of the further keys.
    pub find: FindKeys,
    /// How the command uses the keys.
    pub flags: KeyFlags,
    /// A remark for COMMAND INFO.
    pub notes: Option<&'static str>,
    /// Whether COMMAND INFO shows the specification.
    pub is_listed: bool,
}

/// Commands that use only metadata of a key, not its value, according to Redis: its existence, type or size, or
/// whether it contains an element. ACL rules demand of such a key that it matches a pattern, and neither `%R~` nor
/// `%W~`.
pub(super) const METADATA: &[&str] = &[
    "exists",
    "hexists",
    "hlen",
    "hstrlen",
    "llen",
    "memory|usage",
    "object|encoding",
    "object|freq",
    "object|idletime",
    "object|refcount",
    "scard",
    "sismember",
    "strlen",
    "touch",
    "type",
    "watch",
    "xlen",
    "zcard",
];

/// Whether each of a command's key specifications has the flags that ACL rules judge it by: a key whose value is read
/// has ACCESS, one that is changed has INSERT, UPDATE or DELETE. If these flags were missing, `%R~` would permit
/// writes and `%W~` reads. For [`METADATA`] only reading is expected, and a name that is not a key is never judged.
pub(super) const fn are_ruled(full_name: &str, keys: &[KeySpec]) -> bool {
    let mut next = 0;
    while next < keys.len() {
        let flags = keys[next].flags;
        let changes = flags.any(KeyFlags::CHANGES);
        let is_ruled = match flags.has(KeyFlags::RO) {
            true => !changes && (flags.has(KeyFlags::ACCESS) || is_one_of(METADATA, full_name)),
            false => changes || flags.has(KeyFlags::ACCESS) || flags.has(KeyFlags::NOT_KEY),
        };
        if !is_ruled {
            return false;
        }
        next += 1;
    }
    true
}

const fn is_one_of(names: &[&str], name: &str) -> bool {
    let mut next = 0;
    while next < names.len() {
        if is_same(names[next].as_bytes(), name.as_bytes()) {
            return true;
        }
        next += 1;
    }
    false
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// The requests of a command that have exactly one key, at a position that is the same for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoneKey {
    /// Position of the key.
    pub at: usize,
    /// Requests with at most this many arguments have no other key: longer requests may contain a word that more keys
    /// follow.
    pub arguments_max: usize,
}

impl LoneKey {
    /// The command has no requests that are known to have exactly one key.
    pub const NONE: LoneKey = LoneKey {
        at: 0,
        arguments_max: 0,
    };

    /// Derives the lone key from the specifications.
    pub(super) const fn of(keys: &[KeySpec]) -> LoneKey {
        let [spec, others @ ..] = keys else {
            return LoneKey::NONE;
        };
        let (BeginSearch::Index(at), FindKeys::Range { last: 0, .. }) = (spec.begin, spec.find)
        else {
            return LoneKey::NONE;
        };
        let mut arguments_max = usize::MAX;
        let mut next = 0;
        while next < others.len() {
            let BeginSearch::Keyword(_, from @ 1..) = others[next].begin else {
                return LoneKey::NONE;
            };
            if (from as usize) < arguments_max {
                arguments_max = from as usize;
            }
            next += 1;
        }
        LoneKey {
            at: at as usize,
            arguments_max,
        }
    }
}

impl KeySpec {
    /// The first argument is a key that is read.
    pub const FIRST_READ: &'static [KeySpec] =
        &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))];

    /// The first argument is a key that is updated.
    pub const FIRST_UPDATED: &'static [KeySpec] =
        &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))];

    /// Specifies one key at this argument.
    pub const fn one(index: i32, flags: KeyFlags) -> KeySpec {
        KeySpec::range(index, 0, 1, flags)
    }

    /// Specifies keys from `first` to `last` (relative to the first; negative from the end) with a step.
    pub const fn range(first: i32, last: i32, step: i32, flags: KeyFlags) -> KeySpec {
        KeySpec {
            begin: BeginSearch::Index(first),
            find: FindKeys::Range {
                last,
                step,
                limit: 0,
            },
            flags,
            notes: None,
            is_listed: true,
        }
    }

    /// Specifies a count at `index`, followed directly by the keys.
    pub const fn counted(index: i32, flags: KeyFlags) -> KeySpec {
        KeySpec {
            begin: BeginSearch::Index(index),
            find: FindKeys::KeyNum {
                count_at: 0,
                first: 1,
                step: 1,
            },
            flags,
            notes: None,
            is_listed: true,
        }
    }

    /// Replaces the way to find the further keys.
    pub const fn find(mut self, find: FindKeys) -> KeySpec {
        self.find = find;
        self
    }

    /// Makes the keys begin after a word.
    pub const fn after_keyword(mut self, word: &'static str, from: i32) -> KeySpec {
        self.begin = BeginSearch::Keyword(word, from);
        self
    }

    /// Hides the specification from COMMAND INFO: for keys of an option that only this server adds to a command of
    /// Redis, so that clients continue to route the command as they know it. Must follow all listed specifications.
    pub const fn unlisted(mut self) -> KeySpec {
        self.is_listed = false;
        self
    }

    /// Adds a remark.
    pub const fn note(mut self, text: &'static str) -> KeySpec {
        self.notes = Some(text);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::{KeyFlags, KeySpec, METADATA, are_ruled};

    #[test]
    fn a_specification_that_rules_could_not_judge_is_refused() {
        let is_refused = |flags| !are_ruled("cf.add", &[KeySpec::one(1, flags)]);
        for bare in [KeyFlags::RO, KeyFlags::RW, KeyFlags::OW, KeyFlags::RM] {
            assert!(is_refused(bare));
            assert!(!is_refused(bare.or(KeyFlags::ACCESS)));
        }
        assert!(is_refused(KeyFlags::RO.or(KeyFlags::UPDATE)));
        assert!(!is_refused(KeyFlags::RW.or(KeyFlags::INSERT)));
        assert!(!is_refused(KeyFlags::NOT_KEY));
        let both = [KeySpec::FIRST_READ[0], KeySpec::one(2, KeyFlags::RW)];
        assert!(!are_ruled("cms.merge", &both), "each of them counts");
        for name in METADATA {
            assert!(are_ruled(name, &[KeySpec::one(1, KeyFlags::RO)]), "{name}");
            assert!(!are_ruled(name, &[KeySpec::one(1, KeyFlags::RW)]), "{name}");
        }
        assert!(!are_ruled("type2", &[KeySpec::one(1, KeyFlags::RO)]));
    }
}
