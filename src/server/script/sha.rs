//! The names of scripts: SHA-1 of their texts, in bytes and in hexadecimal digits.

use sha1::{Digest, Sha1};

use basalt_core::base::hex;

/// A SHA-1.
pub type Sha = [u8; 20];

/// Returns the SHA-1 of a text.
pub fn sha1(text: &[u8]) -> Sha {
    Sha1::digest(text).into()
}

/// Returns the SHA-1 of a text. Calls `may_go_on` between parts of the text, and returns its error if it fails.
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

/// Formats a SHA-1 as 40 lower-case hexadecimal digits.
pub fn hex(sha: &Sha) -> [u8; 40] {
    hex::array(sha)
}
