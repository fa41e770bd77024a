//! The words of a configuration line: quotes and escapes in both directions, sizes with units, whole numbers.
//!
//! Knows no parameter. The rules are those of redis.conf: words are parted by blanks; inside double quotes `\n`, `\r`,
//! `\t`, `\b`, `\a`, `\xHH` and `\` before anything else stand for bytes; inside single quotes only `\'` does; a closing
//! quote ends its word.

/// Splits a line into words; `None` when quotes do not balance or a word follows a closing quote at once.
pub fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let mut rest = line;
    loop {
        let blanks = rest.iter().take_while(|byte| is_blank(**byte)).count();
        rest = &rest[blanks..];
        if rest.is_empty() {
            return Some(found);
        }
        let (word, after) = one_word(rest)?;
        found.push(word);
        rest = after;
    }
}

/// Splits a line into words of UTF-8 text.
pub fn split_text(line: &str) -> Result<Vec<String>, &'static str> {
    let found = split(line.as_bytes()).ok_or("Unbalanced quotes in configuration line")?;
    let texts = found.into_iter().map(String::from_utf8);
    texts
        .collect::<Result<_, _>>()
        .map_err(|_| "a value is not valid UTF-8")
}

/// The word in double quotes, so that `split` gives it back.
pub fn quote(word: &[u8]) -> String {
    let mut quoted = String::with_capacity(word.len() + 2);
    quoted.push('"');
    for &byte in word {
        match byte {
            b'\\' | b'"' => quoted.extend(['\\', byte as char]),
            b'\n' => quoted.push_str("\\n"),
            b'\r' => quoted.push_str("\\r"),
            b'\t' => quoted.push_str("\\t"),
            0x07 => quoted.push_str("\\a"),
            0x08 => quoted.push_str("\\b"),
            0x20..=0x7e => quoted.push(byte as char),
            _ => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted.push('"');
    quoted
}

/// Bytes with an optional unit: `k`, `m` and `g` count in thousands, `kb`, `mb` and `gb` in 1024s.
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

/// Bytes with the largest unit that divides them.
pub fn memory(bytes: i128) -> String {
    for (factor, unit) in [(1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb")] {
        if bytes != 0 && bytes % factor == 0 {
            return format!("{}{unit}", bytes / factor);
        }
    }
    bytes.to_string()
}

/// A whole number written the one way: no plus sign, no leading zero, no blank, no `-0`.
pub fn parse_integer(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

fn one_word(line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    let mut at = 0;
    loop {
        match line.get(at) {
            None => return Some((word, &line[at..])),
            Some(b' ' | b'\n' | b'\r' | b'\t' | 0) => return Some((word, &line[at + 1..])),
            Some(b'"') => {
                at = double_quoted(line, at + 1, &mut word)?;
                break;
            }
            Some(b'\'') => {
                at = single_quoted(line, at + 1, &mut word)?;
                break;
            }
            Some(&byte) => word.push(byte),
        }
        at += 1;
    }
    let rest = &line[at..];
    rest.first()
        .is_none_or(|byte| is_blank(*byte))
        .then_some((word, rest))
}

/// Reads up to the closing quote and returns the place behind it.
fn double_quoted(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Option<usize> {
    loop {
        match *line.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => {
                at += 1;
                let escaped = *line.get(at)?;
                let hex = |place: usize| {
                    line.get(place)
                        .and_then(|digit| (*digit as char).to_digit(16))
                };
                if let (b'x', Some(high), Some(low)) = (escaped, hex(at + 1), hex(at + 2)) {
                    word.push((high * 16 + low) as u8);
                    at += 2;
                } else {
                    word.push(match escaped {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'b' => 0x08,
                        b'a' => 0x07,
                        other => other,
                    });
                }
            }
            byte => word.push(byte),
        }
        at += 1;
    }
}

/// Reads up to the closing quote and returns the place behind it.
fn single_quoted(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Option<usize> {
    loop {
        match *line.get(at)? {
            b'\'' => return Some(at + 1),
            b'\\' if line.get(at + 1) == Some(&b'\'') => {
                word.push(b'\'');
                at += 1;
            }
            byte => word.push(byte),
        }
        at += 1;
    }
}
