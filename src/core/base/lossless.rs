//! Lossless conversion of any bytes to text and back: bytes from clients are quoted in messages, and stored among
//! texts, unchanged.
//!
//! A byte that is not UTF-8 becomes one of the last 128 characters, `U+10FF80` to `U+10FFFF`, which are for private
//! use; these themselves, when received from a client, become four such characters, one for each of their bytes.
//!
//! ```text
//! a ff b            a U+10FFFF b
//! f4 8f bf bf       U+10FFF4 U+10FF8F U+10FFBF U+10FFBF     (bytes of U+10FFFF)
//! ```

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The character that would stand for byte zero; only bytes from 0x80 on have one.
const FIRST: u32 = 0x10_ff00;

/// The first two bytes of these characters in UTF-8; one of two bytes follows, and then the last byte.
const START: [u8; 2] = [0xf4, 0x8f];

/// Returns the bytes before the first zero, where C ends a text and Redis stops reading most arguments.
pub fn before_nul(bytes: &[u8]) -> &[u8] {
    let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
    &bytes[..end]
}

/// Converts bytes to text.
pub fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !has_stand_ins(bytes) => Cow::Borrowed(text),
        _ => Cow::Owned(escaped(bytes)),
    }
}

/// Converts text back to the bytes.
pub fn bytes_of(text: &str) -> Cow<'_, [u8]> {
    if !has_stand_ins(text.as_bytes()) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for letter in text.chars() {
        match byte_of(letter) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

/// Converts text back to a path.
pub fn path_of(text: &str) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&bytes_of(text)))
}

fn has_stand_ins(bytes: &[u8]) -> bool {
    memchr::memchr_iter(START[0], bytes)
        .any(|at| bytes.get(at + 1) == Some(&START[1]) && bytes.get(at + 2) >= Some(&0xbe))
}

fn byte_of(letter: char) -> Option<u8> {
    let byte = u32::from(letter).checked_sub(FIRST)?;
    u8::try_from(byte).ok().filter(|byte| *byte >= 0x80)
}

#[cold]
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match byte_of(letter) {
                None => text.push(letter),
                Some(_) => escape(letter.encode_utf8(&mut [0; 4]).as_bytes(), &mut text),
            }
        }
        escape(chunk.invalid(), &mut text);
    }
    text
}

/// Appends the characters for bytes of 0x80 and more, one by one.
fn escape(bytes: &[u8], text: &mut String) {
    let letters = bytes.iter().map(|byte| FIRST + u32::from(*byte));
    text.extend(letters.filter_map(char::from_u32));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_utf_8_stays_what_it_is() {
        for text in ["", "plain", "Grüße", "\u{10ff7f}", "\u{fffd}"] {
            assert!(matches!(text_of(text.as_bytes()), Cow::Borrowed(same) if same == text));
            assert!(matches!(bytes_of(text), Cow::Borrowed(same) if same == text.as_bytes()));
        }
        assert_eq!(text_of(b"a\xffb"), "a\u{10ffff}b");
        assert_eq!(text_of("\u{10ffff}".as_bytes()).chars().count(), 4);
    }

    proptest! {
        #[test]
        fn all_bytes_come_back(
            pieces in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..6),
                    prop::collection::vec(prop::sample::select(vec![0xf4, 0x8f, 0xbe, 0xbf, 0x80]), 0..6),
                    any::<char>().prop_map(|letter| letter.to_string().into_bytes()),
                    prop::char::range('\u{10ff70}', '\u{10ffff}').prop_map(|letter| letter.to_string().into_bytes()),
                ],
                0..5,
            )
        ) {
            let bytes = pieces.concat();
            let text = text_of(&bytes);
            let back = bytes_of(&text);
            prop_assert_eq!(&*back, &bytes);
        }
    }
}
