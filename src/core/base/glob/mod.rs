//! Glob patterns: `*`, `?`, `[^a-z]`, `\`.
//!
//! The rules are those of Redis's KEYS, SCAN MATCH, PSUBSCRIBE and CONFIG GET, including their quirks, on which
//! clients depend. The time is bounded by the product of both lengths, for any pattern.

/// Whether letters match in either case (ASCII only).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Letters match in their own case only, as for keys and channels.
    Sensitive,
    /// Letters match in either case, as for names of parameters and commands.
    Insensitive,
}

/// Patterns with more groups of stars than this match nothing more, except at their end: Redis gives up there.
const STARS_MAX: usize = 1000;

/// True if all of `text` matches `pattern`.
///
/// `*` is any bytes, `?` one byte, `[abc]`, `[a-z]` and `[^…]` one byte out of a class, `\` makes the next byte
/// literal. Oddities kept from Redis: no pattern but the empty one matches the empty text; an unclosed class ends
/// with the pattern; in a class, an escaped letter matches its own case only, `a-]` is a range, and bytes above 127
/// sort below 0.
pub fn matches(pattern: &[u8], text: &[u8], case: Case) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    if text.is_empty() {
        return pattern.is_empty();
    }
    // The pattern after the last star, and the text at which it was last tried. Earlier stars need no second try: the
    // last one can match whatever they would have matched.
    let mut retry: Option<(&[u8], &[u8])> = None;
    let mut stars = 0;
    loop {
        if pattern.first() == Some(&b'*') {
            pattern = skip_stars(pattern);
            if pattern.is_empty() {
                return true;
            }
            stars += 1;
            if stars > STARS_MAX {
                return false;
            }
            retry = Some((pattern, text));
        }
        if !pattern.is_empty() {
            let (is_match, rest) = match_one(pattern, text[0], case);
            if is_match {
                pattern = rest;
                text = &text[1..];
                if text.is_empty() {
                    // The rest of the pattern needs at least one byte more than the text has, and trying from a later
                    // byte leaves even fewer.
                    return skip_stars(pattern).is_empty();
                }
                continue;
            }
        }
        let Some((behind_star, tried)) = retry else {
            return false;
        };
        if tried.len() == 1 {
            return false;
        }
        (pattern, text) = (behind_star, &tried[1..]);
        retry = Some((pattern, text));
    }
}

/// True if `pattern` matches everything, so that the texts need not be examined.
pub fn matches_all(pattern: &[u8]) -> bool {
    pattern == b"*"
}

/// True if `pattern` contains no special byte and so matches only the identical text.
pub fn is_literal(pattern: &[u8]) -> bool {
    !pattern
        .iter()
        .any(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'))
}

fn skip_stars(pattern: &[u8]) -> &[u8] {
    let stars = pattern.iter().take_while(|byte| **byte == b'*').count();
    &pattern[stars..]
}

/// Matches one byte against the first element of `pattern`, which is no star. Also returns the rest of the pattern.
fn match_one(pattern: &[u8], byte: u8, case: Case) -> (bool, &[u8]) {
    match pattern {
        [b'?', rest @ ..] => (true, rest),
        [b'[', rest @ ..] => match_class(rest, byte, case),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (equal(*literal, byte, case), rest),
        [] => (false, pattern),
    }
}

/// Matches one byte against a class, whose opening bracket has been read.
fn match_class(class: &[u8], byte: u8, case: Case) -> (bool, &[u8]) {
    let (negated, mut class) = match class {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut is_match = false;
    let rest = loop {
        class = match class {
            [] => break class,
            [b'\\', literal, rest @ ..] => {
                is_match |= *literal == byte;
                rest
            }
            [b']', rest @ ..] => break rest,
            [first, b'-', last, rest @ ..] => {
                is_match |= in_range(*first, *last, byte, case);
                rest
            }
            [literal, rest @ ..] => {
                is_match |= equal(*literal, byte, case);
                rest
            }
        };
    };
    (is_match != negated, rest)
}

fn in_range(first: u8, last: u8, byte: u8, case: Case) -> bool {
    // The bounds are ordered before case is folded, and as signed characters, as in Redis on x86.
    let (low, high) = if (first as i8) <= (last as i8) {
        (first, last)
    } else {
        (last, first)
    };
    let [low, high, byte] = [low, high, byte].map(|byte| match case {
        Case::Sensitive => byte as i8,
        Case::Insensitive => byte.to_ascii_lowercase() as i8,
    });
    (low..=high).contains(&byte)
}

fn equal(a: u8, b: u8, case: Case) -> bool {
    match case {
        Case::Sensitive => a == b,
        Case::Insensitive => a.eq_ignore_ascii_case(&b),
    }
}

#[cfg(test)]
mod tests;
