//! INFO errorstats: error replies by their first word.
//!
//! Errors are rare next to commands, so one small locked map does. The number of words is bounded: a script may make up
//! as many as it likes, and what comes after the bound is only counted in the total.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// Different words that are counted.
const CODES_MAX: usize = 128;

/// Bytes of a word that are kept.
const CODE_BYTES_MAX: usize = 64;

static ALL: Errors = Errors::new();

/// Counts by word, and in all.
#[derive(Debug)]
struct Errors {
    total: AtomicU64,
    counts: Mutex<BTreeMap<Box<str>, u64>>,
}

impl Errors {
    const fn new() -> Errors {
        Errors {
            total: AtomicU64::new(0),
            counts: Mutex::new(BTreeMap::new()),
        }
    }

    fn note(&self, text: &[u8]) {
        self.total.fetch_add(1, Relaxed);
        let code = code(text);
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(&*code) {
            *count += 1;
        } else if counts.len() < CODES_MAX {
            counts.insert(code.into(), 1);
        }
    }

    fn counts(&self) -> Vec<(Box<str>, u64)> {
        let counts = self.counts.lock();
        counts
            .iter()
            .map(|(code, count)| (code.clone(), *count))
            .collect()
    }

    fn reset(&self) {
        self.counts.lock().clear();
        self.total.store(0, Relaxed);
    }
}

/// Counts an error reply by its text, with or without the minus sign in front.
#[cold]
pub fn note(text: &[u8]) {
    ALL.note(text);
}

/// All words with their counts, sorted.
pub fn counts() -> Vec<(Box<str>, u64)> {
    ALL.counts()
}

/// Error replies since the last reset.
pub fn total() -> u64 {
    ALL.total.load(Relaxed)
}

/// CONFIG RESETSTAT.
pub fn reset() {
    ALL.reset();
}

/// The first word, with what has a meaning in INFO and in labels replaced.
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
        assert_eq!(errors.counts().len(), CODES_MAX);
        assert_eq!(errors.total.load(Relaxed), 1_000);
    }
}
