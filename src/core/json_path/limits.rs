//! Limits of paths and of searches, and the errors for what exceeds them.

use std::fmt;

/// The longest text of a path, in bytes.
pub(super) const TEXT_LEN_MAX: usize = 64 << 10;

/// The most levels of brackets, parentheses and filters in a path. RedisJSON has the same limit.
pub(super) const NESTING_MAX: usize = 128;

/// The most levels that one search may recurse: a document of 128 levels under `..`, and filters that search it from
/// there again.
pub(super) const RECURSION_MAX: usize = 600;

/// The most regular expressions in one path.
pub(super) const PATTERNS_MAX: usize = 16;

/// The size of one compiled regular expression, in bytes.
pub(super) const PATTERN_BYTES_MAX: usize = 256 << 10;

/// The deepest value that a search copies: the depth of a document, and the arrays that functions put around it.
pub(super) const VALUE_DEPTH_MAX: usize = 256;

/// The steps that a search may still take: nodes visited, values compared and bytes matched all count.
#[derive(Debug)]
pub struct Budget {
    left: u64,
}

impl Budget {
    /// The default, which takes a fraction of a second to use up.
    pub const STEPS: u64 = 10_000_000;

    /// A budget of [`Budget::STEPS`].
    pub fn new() -> Budget {
        Budget::of(Budget::STEPS)
    }

    /// A budget of `steps`. With the size of the document in bytes on top of [`Budget::STEPS`], no search is refused
    /// that visits each value a few times.
    pub fn of(steps: u64) -> Budget {
        Budget { left: steps }
    }

    /// The steps that are left.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Takes `steps`, or fails when fewer are left.
    pub(super) fn spend(&mut self, steps: u64) -> Result<(), PathError> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(PathError::Exhausted)
            }
        }
    }

    /// Takes the steps for reading `bytes` bytes of a text.
    pub(super) fn spend_bytes(&mut self, bytes: usize) -> Result<(), PathError> {
        self.spend(1 + bytes as u64 / 16)
    }
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::new()
    }
}

/// Why a path was refused or a search gave up. Its text is the line of the error reply, with its code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathError {
    /// The text is not a path: at byte `position` something else was expected.
    Syntax {
        /// The offset in the client's text.
        position: usize,
        /// The words for what may stand there.
        expected: &'static str,
    },
    /// The text is not UTF-8.
    NotUtf8,
    /// Brackets, parentheses or filters nest too deep.
    TooDeep,
    /// The text or a part of it is too long.
    TooLong,
    /// The search took more steps than its budget.
    Exhausted,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathError::Syntax { position, expected } => write!(
                f,
                "SYNTAXERR Error occurred at position {position}, expected one of the following: {expected}"
            ),
            PathError::NotUtf8 => f.write_str("ERR Couldn't parse as UTF-8 string"),
            PathError::TooDeep => write!(
                f,
                "LIMIT JSONPath nesting too deep (max depth {NESTING_MAX})"
            ),
            PathError::TooLong => f.write_str("LIMIT JSONPath too long"),
            PathError::Exhausted => {
                f.write_str("LIMIT JSONPath needs too many steps on this document")
            }
        }
    }
}

impl std::error::Error for PathError {}
