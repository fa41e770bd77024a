//! The words of a configuration line: quotes and escapes in both directions, sizes with units, whole numbers.
//!
//! This module knows no parameter. Quoting is implemented in `base::text`; here words become texts and numbers.

use basalt_core::base::{lossless, number, text};

/// Splits a line into words; `None` if quotes are unbalanced or a word directly follows a closing quote.
pub fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut bytes = Vec::with_capacity(line.len());
    let mut ranges = Vec::new();
    text::split_arguments(line, &mut bytes, |range| ranges.push(range)).ok()?;
    Some(
        ranges
            .into_iter()
            .map(|range| bytes[range].to_vec())
            .collect(),
    )
}

/// Splits a line into words. Texts can represent any bytes, see [`lossless`].
pub fn split_text(line: &str) -> Result<Vec<String>, &'static str> {
    let line = lossless::bytes_of(line);
    let found = split(&line).ok_or("Unbalanced quotes in configuration line")?;
    let texts = found
        .iter()
        .map(|word| lossless::text_of(word).into_owned());
    Ok(texts.collect())
}

/// Parses bytes with an optional unit: `k`, `m` and `g` are powers of 1000, `kb`, `mb` and `gb` of 1024.
pub fn parse_memory(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Formats bytes in the largest unit that divides them without remainder.
pub fn memory(bytes: i128) -> String {
    for (factor, unit) in [(1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb")] {
        if bytes != 0 && bytes % factor == 0 {
            return format!("{}{unit}", bytes / factor);
        }
    }
    bytes.to_string()
}

/// Parses a whole number in its canonical form: no plus sign, no leading zero, no blank, no `-0`.
pub fn parse_integer(text: &str) -> Option<i64> {
    number::parse_i64(text.as_bytes())
}
