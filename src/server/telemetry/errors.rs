//! INFO errorstats: error replies by their first word.
//!
//! Errors are rare compared with commands, so one small locked map suffices. The number of words is bounded,
//! because a script may invent any number of them. As in Redis 7.4, exceeding the bound ends the counting by word
//! until CONFIG RESETSTAT.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// Maximum number of distinct words counted.
const CODES_MAX: usize = 128;

/// Bytes kept of a word.
const CODE_BYTES_MAX: usize = 64;

/// Shown by INFO errorstats in place of the error words after their number exceeded `CODES_MAX`.
const DISABLED: &str = "ERRORSTATS_DISABLED";

static ALL: Errors = Errors::new();

/// Error counts by first word, and the total.
#[derive(Debug)]
struct Errors {
    total: AtomicU64,
    counts: Mutex<ErrorCounts>,
}

#[derive(Debug, Default)]
struct ErrorCounts {
    by_word: BTreeMap<Box<str>, u64>,
    /// Error words discarded because there were too many.
    dropped: u64,
}

impl Errors {
    const fn new() -> Errors {
        Errors {
            total: AtomicU64::new(0),
            counts: Mutex::new(ErrorCounts {
                by_word: BTreeMap::new(),
                dropped: 0,
            }),
        }
    }

    fn note(&self, text: &[u8]) {
        self.total.fetch_add(1, Relaxed);
        let code = code(text);
        let mut counts = self.counts.lock();
        if counts.dropped > 0 {
            return;
        }
        if let Some(count) = counts.by_word.get_mut(&*code) {
            *count += 1;
        } else if counts.by_word.len() < CODES_MAX {
            counts.by_word.insert(code.into(), 1);
        } else {
            let words: Vec<_> = counts.by_word.keys().map(AsRef::as_ref).collect();
            tracing::warn!(
                "Errorstats stopped adding new errors: the limit of {CODES_MAX} error codes is reached; CONFIG \
                 RESETSTAT clears them"
            );
            tracing::warn!("Current errors code list: {}", words.join(", "));
            counts.dropped = counts.by_word.len() as u64;
            counts.by_word = BTreeMap::from([(DISABLED.into(), 1)]);
        }
    }

    fn dropped(&self) -> u64 {
        self.counts.lock().dropped
    }

    fn counts(&self) -> Vec<(Box<str>, u64)> {
        let counts = self.counts.lock();
        counts
            .by_word
            .iter()
            .map(|(code, count)| (code.clone(), *count))
            .collect()
    }

    fn reset(&self) {
        *self.counts.lock() = ErrorCounts::default();
        self.total.store(0, Relaxed);
    }
}

/// Counts an error reply. `text` may begin with the protocol's minus sign.
#[cold]
pub fn note(text: &[u8]) {
    ALL.note(text);
}

/// Returns all words with their counts, sorted.
pub fn counts() -> Vec<(Box<str>, u64)> {
    ALL.counts()
}

/// Returns the number of words discarded because there were too many.
pub fn dropped() -> u64 {
    ALL.dropped()
}

/// Returns the number of error replies since the last reset.
pub fn total() -> u64 {
    ALL.total.load(Relaxed)
}

/// Resets the statistics: CONFIG RESETSTAT.
pub fn reset() {
    ALL.reset();
}

/// Returns the first word of an error text, with characters replaced that are special in INFO and in labels.
fn code(text: &[u8]) -> String {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let word = text
        .split(|byte| byte.is_ascii_whitespace())
        .next()
        .unwrap_or_default();
    if word.is_empty() {
        return "ERR".to_owned();
    }
    let word = &word[..word.len().min(CODE_BYTES_MAX)];
    word.iter()
        .map(|&byte| match byte {
            b'=' | b',' | b':' | b'"' | b'\\' | b'#' => '_',
            byte if byte.is_ascii_graphic() => char::from(byte),
            _ => '_',
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_their_first_word() {
        assert_eq!(code(b"ERR unknown command"), "ERR");
        assert_eq!(code(b"-WRONGTYPE Operation\r\n"), "WRONGTYPE");
        assert_eq!(code(b""), "ERR");
        assert_eq!(code(b"A=b,c:d e"), "A_b_c_d");
        assert_eq!(code("Ä x".as_bytes()), "__");
        assert_eq!(code(&[b'x'; 1000]).len(), 64);
        let errors = Errors::new();
        errors.note(b"NOAUTH one");
        errors.note(b"ERR two");
        errors.note(b"-NOAUTH three\r\n");
        assert_eq!(errors.counts(), [("ERR".into(), 1), ("NOAUTH".into(), 2)]);
        assert_eq!(errors.total.load(Relaxed), 3);
        errors.reset();
        assert_eq!(errors.counts(), []);
    }

    #[test]
    fn made_up_words_do_not_grow_the_map_without_end() {
        let errors = Errors::new();
        for number in 0..1_000 {
            errors.note(format!("MADEUP{number} x").as_bytes());
        }
        assert_eq!(errors.counts(), [(DISABLED.into(), 1)]);
        assert_eq!(errors.dropped(), CODES_MAX as u64);
        errors.reset();
        errors.note(b"ERR again");
        assert_eq!(errors.counts(), [("ERR".into(), 1)]);
        for number in 1..CODES_MAX {
            errors.note(format!("MADEUP{number} x").as_bytes());
        }
        errors.note(b"ERR known");
        assert_eq!(errors.counts().len(), CODES_MAX);
        assert_eq!(errors.total.load(Relaxed), 1 + CODES_MAX as u64);
    }
}
