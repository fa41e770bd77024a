//! Regular expressions: linear in the text that they match, and of bounded size.

use regex::bytes::{Regex, RegexBuilder};

use super::super::limits::{Budget, PATTERN_BYTES_MAX, PathError};

/// The longest text of a regular expression that a document holds.
const TEXT_LEN_MAX: usize = 4096;

/// The steps that compiling a regular expression takes.
const COMPILE_STEPS: u64 = 20_000;

/// Compiles the text of a regular expression, which has to match anywhere or the `whole` text. `None` if it is not
/// valid or too large.
pub(in crate::json_path) fn compile(text: &[u8], whole: bool) -> Option<Regex> {
    let text = std::str::from_utf8(text).ok()?;
    let anchored;
    let text = if whole {
        anchored = format!("^(?:{text})$");
        &anchored
    } else {
        text
    };
    RegexBuilder::new(text)
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX)
        .build()
        .ok()
}

/// The regular expressions of one search whose texts are computed or come from the document.
#[derive(Default)]
pub(super) struct Patterns(Vec<Compiled>);

struct Compiled {
    text: Box<[u8]>,
    whole: bool,
    regex: Option<Regex>,
}

/// The number of expressions that a search keeps.
const KEPT: usize = 8;

impl Patterns {
    /// Whether `text` matches the regular expression `pattern`.
    pub(super) fn is_match(
        &mut self,
        pattern: &[u8],
        whole: bool,
        text: &[u8],
        budget: &mut Budget,
    ) -> Result<bool, PathError> {
        if pattern.len() > TEXT_LEN_MAX {
            return Ok(false);
        }
        budget.spend_bytes(text.len() + KEPT * pattern.len())?;
        let known = self
            .0
            .iter()
            .position(|known| known.whole == whole && *known.text == *pattern);
        let index = match known {
            Some(index) => index,
            None => {
                budget.spend(COMPILE_STEPS)?;
                if self.0.len() == KEPT {
                    self.0.remove(0);
                }
                self.0.push(Compiled {
                    text: pattern.into(),
                    whole,
                    regex: compile(pattern, whole),
                });
                self.0.len() - 1
            }
        };
        let regex = self.0[index].regex.as_ref();
        Ok(regex.is_some_and(|regex| regex.is_match(text)))
    }
}
