//! Where the keys stand among the arguments of a command.

use super::KeyFlags;

/// Where the keys of a specification begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeginSearch {
    /// At this argument.
    Index(i32),
    /// After this word, searched from this argument on (backwards when negative).
    Keyword(&'static str, i32),
    /// Not expressible.
    Unknown,
}

/// How the keys of a specification continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindKeys {
    /// To `last` relative to the first (negative: from the end), every `step`, of which `limit` says the share.
    Range {
        /// Relative to the first key; negative counts from the last argument.
        last: i32,
        /// Distance of keys.
        step: i32,
        /// 0 and 1: no limit; 2: half of the rest, and so on.
        limit: i32,
    },
    /// A count stands at `count_at`, the keys begin at `first`, both relative to the begin.
    KeyNum {
        /// Where the count stands.
        count_at: i32,
        /// Where the keys begin.
        first: i32,
        /// Distance of keys.
        step: i32,
    },
    /// Not expressible.
    Unknown,
}

/// One specification of where keys stand among the arguments.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// Where they begin.
    pub begin: BeginSearch,
    /// How they continue.
    pub find: FindKeys,
    /// What is done with them.
    pub flags: KeyFlags,
    /// A remark for COMMAND INFO.
    pub notes: Option<&'static str>,
    /// Whether COMMAND INFO shows it.
    pub is_listed: bool,
}

/// Which of a command's requests have one key, at a place that is the same for all of them, and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoneKey {
    /// Where the key stands.
    pub at: usize,
    /// Requests with at most so many arguments have no other: in longer ones there may be a word with more keys behind
    /// it.
    pub arguments_max: usize,
}

impl LoneKey {
    /// No request is known to be such.
    pub const NONE: LoneKey = LoneKey {
        at: 0,
        arguments_max: 0,
    };

    /// By these specifications.
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

    /// One key at this argument.
    pub const fn one(index: i32, flags: KeyFlags) -> KeySpec {
        KeySpec::range(index, 0, 1, flags)
    }

    /// Keys from `first` to `last` (relative to the first; negative from the end) with a step.
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

    /// A count at `index`, the keys directly after it.
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

    /// The specification with another way to find the keys.
    pub const fn find(mut self, find: FindKeys) -> KeySpec {
        self.find = find;
        self
    }

    /// The specification with keys that begin after a word.
    pub const fn after_keyword(mut self, word: &'static str, from: i32) -> KeySpec {
        self.begin = BeginSearch::Keyword(word, from);
        self
    }

    /// The specification, of which COMMAND INFO says nothing: keys of an option that a command of Redis has here alone,
    /// so that clients go on to route the command as they know it. Only behind all that are listed.
    pub const fn unlisted(mut self) -> KeySpec {
        self.is_listed = false;
        self
    }

    /// The specification with a remark.
    pub const fn note(mut self, text: &'static str) -> KeySpec {
        self.notes = Some(text);
        self
    }
}
