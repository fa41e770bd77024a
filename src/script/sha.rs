//! The names of scripts: SHA-1 of their texts, in bytes and in hexadecimal digits.

use sha1::{Digest, Sha1};

/// A SHA-1.
pub type Sha = [u8; 20];

/// The SHA-1 of a text.
pub fn sha1(text: &[u8]) -> Sha {
    Sha1::digest(text).into()
}

/// The SHA-1 of a text, if `may_go_on` says between parts of it that there is to be one.
pub(super) fn sha1_stepwise<E>(
    text: &[u8],
    step_bytes: usize,
    may_go_on: impl Fn() -> Result<(), E>,
) -> Result<Sha, E> {
    let mut digest = Sha1::new();
    for part in text.chunks(step_bytes) {
        may_go_on()?;
        digest.update(part);
    }
    Ok(digest.finalize().into())
}

/// A SHA-1 as 40 hexadecimal digits in lower case.
pub fn hex(sha: &Sha) -> [u8; 40] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 40];
    for (pair, byte) in text.chunks_exact_mut(2).zip(sha) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    text
}

/// The SHA-1 that 40 hexadecimal digits of either case stand for.
pub fn parse_hex(digits: &[u8]) -> Option<Sha> {
    let digits: &[u8; 40] = digits.try_into().ok()?;
    let mut sha = [0; 20];
    for (byte, pair) in sha.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
    }
    Some(sha)
}
