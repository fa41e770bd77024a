//! Patterns of parameter and file names: `*`, `?`, `[a-z]`, `[^a]` and `\`, ignoring case.

/// Whether `text` matches `pattern`. The time is at most proportional to the product of their lengths.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut from) = (0, 0);
    // The position to retry from if the part after the last star does not match: the star then matches one byte more.
    let mut retry: Option<(usize, usize)> = None;
    while from < text.len() {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            retry = Some((at, from));
            continue;
        }
        match one(&pattern[at.min(pattern.len())..], text[from]) {
            Some(length) => {
                at += length;
                from += 1;
            }
            None => match retry {
                Some((after_star, last)) => {
                    at = after_star;
                    from = last + 1;
                    retry = Some((at, from));
                }
                None => return false,
            },
        }
    }
    pattern[at.min(pattern.len())..]
        .iter()
        .all(|byte| *byte == b'*')
}

/// Returns the length of the pattern's first element if that element matches the byte, otherwise None.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    let byte = byte.to_ascii_lowercase();
    match *pattern.first()? {
        b'?' => Some(1),
        b'[' => class(&pattern[1..], byte).map(|length| length + 1),
        b'\\' if pattern.len() > 1 => pattern[1].eq_ignore_ascii_case(&byte).then_some(2),
        plain => plain.eq_ignore_ascii_case(&byte).then_some(1),
    }
}

/// Returns the length of a class, including the closing bracket, if the class contains the byte, otherwise None.
fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let negated = pattern.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    while at < pattern.len() && pattern[at] != b']' {
        let low = pattern[at].to_ascii_lowercase();
        if pattern.get(at + 1) == Some(&b'-') && at + 2 < pattern.len() {
            let high = pattern[at + 2].to_ascii_lowercase();
            found |= (low.min(high)..=low.max(high)).contains(&byte);
            at += 3;
        } else {
            found |= low == byte;
            at += 1;
        }
    }
    (found != negated).then_some((at + 1).min(pattern.len()))
}
