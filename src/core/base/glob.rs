//! Glob patterns: `*`, `?`, `[^a-z]`, `\`.
//!
//! The rules are those of Redis's KEYS, SCAN MATCH, PSUBSCRIBE and CONFIG GET, including their quirks, on which
//! clients depend. The time is bounded by the product of both lengths, for any pattern.

/// Whether letters match in either case (ASCII only).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// For keys and channels.
    Sensitive,
    /// For names of parameters and commands.
    Insensitive,
}

/// Patterns with more groups of stars than this match nothing but by their end: Redis gives up there.
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
    // The pattern behind the last star, and the text from which it was tried. Earlier stars need no second try: the
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
                    // The rest of the pattern needs at least one byte more; a later start has fewer.
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

/// True if `pattern` contains no special byte and so matches only itself.
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
    // Ordered before folding, and as signed characters, as in Redis on x86.
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sensitive(pattern: &str, text: &str) -> bool {
        matches(pattern.as_bytes(), text.as_bytes(), Case::Sensitive)
    }

    fn insensitive(pattern: &str, text: &str) -> bool {
        matches(pattern.as_bytes(), text.as_bytes(), Case::Insensitive)
    }

    /// The definition, as a recursion that takes exponential time.
    fn matches_slowly(pattern: &[u8], text: &[u8], case: Case) -> bool {
        match (pattern, text) {
            ([], text) => text.is_empty(),
            ([b'*', rest @ ..], text) => {
                (0..=text.len()).any(|taken| matches_slowly(rest, &text[taken..], case))
            }
            (_, []) => false,
            (pattern, [byte, text @ ..]) => {
                let (is_match, rest) = match_one(pattern, *byte, case);
                is_match && matches_slowly(rest, text, case)
            }
        }
    }

    #[test]
    fn stars_and_question_marks_take_bytes() {
        for (pattern, text) in [
            ("", ""),
            ("*", "a"),
            ("**", "abc"),
            ("a*", "a"),
            ("a*", "abc"),
            ("*c", "abc"),
            ("a*c", "ac"),
            ("h?llo", "hello"),
            ("*a*b*", "xaxbx"),
            ("foo*bar*baz", "foo-bar-bar-baz"),
            ("*aab", "aaab"),
            ("?*", "a"),
            ("*?", "a"),
            ("a**b", "ab"),
        ] {
            assert!(sensitive(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("?", ""),
            ("a", "ab"),
            ("ab", "a"),
            ("h?llo", "hllo"),
            ("*a*b", "xbxa"),
            ("a*b", "abc"),
            ("?", "ab"),
            ("A", "a"),
            ("*??", "a"),
        ] {
            assert!(!sensitive(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn nothing_but_the_empty_pattern_matches_the_empty_text() {
        assert!(!sensitive("*", ""));
        assert!(!sensitive("**", ""));
    }

    #[test]
    fn classes_match_one_byte() {
        for (pattern, text) in [
            ("[abc]", "b"),
            ("[^abc]", "d"),
            ("[a-c]x", "bx"),
            ("[c-a]", "b"),
            ("h[ae]llo", "hallo"),
            ("[\\]]", "]"),
            ("[\\^a]", "^"),
            ("[a", "a"),
            ("[a-", "-"),
            ("[^", "x"),
            ("[a-]", "]"),
            ("[]-a]", "-"),
            ("[a-z0-9]", "5"),
            ("[^]", "x"),
            ("[*]", "*"),
            ("[a-\\]", "_"),
            ("[a\\", "\\"),
        ] {
            assert_eq!(
                sensitive(pattern, text),
                pattern != "[]-a]",
                "{pattern} {text}"
            );
        }
        for (pattern, text) in [
            ("[abc]", "d"),
            ("[^abc]", "a"),
            ("[a-c]", "d"),
            ("[", "["),
            ("[]", "]"),
        ] {
            assert!(!sensitive(pattern, text), "{pattern} {text}");
        }
        assert!(matches(b"[\x80-\x05]", b"\x00", Case::Sensitive));
        assert!(
            !matches(b"[a-\xff]", b"b", Case::Sensitive),
            "bytes above 127 sort below 0"
        );
    }

    #[test]
    fn escapes_take_the_meaning_away() {
        assert!(sensitive("a\\*b", "a*b"));
        assert!(!sensitive("a\\*b", "axb"));
        assert!(sensitive("\\[a]", "[a]"));
        assert!(sensitive("a\\", "a\\"));
        assert!(sensitive("\\a", "a"));
    }

    #[test]
    fn case_is_folded_where_asked() {
        assert!(insensitive("MAX*-POLICY", "maxmemory-policy"));
        assert!(insensitive("[A-C]", "b"));
        assert!(insensitive("[ABC]", "b"));
        assert!(insensitive("\\A", "a"));
        assert!(
            !insensitive("[\\A]", "a"),
            "escaped in a class, a letter is itself only"
        );
    }

    #[test]
    fn abusive_patterns_take_little_time() {
        let pattern = "a*".repeat(500) + "b";
        let text = "a".repeat(20_000);
        assert!(!sensitive(&pattern, &text));
        assert!(
            !sensitive(&"*?".repeat(1001), &text),
            "more than 1000 stars"
        );
        assert!(sensitive(&("*?".repeat(1000) + "*"), &text));
        assert!(sensitive(&"*".repeat(5000), &text));
    }

    #[test]
    fn literal_patterns_are_told_apart() {
        assert!(matches_all(b"*") && !matches_all(b"a*"));
        assert!(is_literal(b"a-b]^") && !is_literal(b"a?") && !is_literal(b"a\\b"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 16 } else { 4096 }))]

        #[test]
        fn matching_is_what_the_definition_says(
            pattern in "[ab*?]{0,7}|[abA*?\\[\\]^\\\\-]{0,8}",
            text in "[abAB^\\]-]{1,8}",
            fold: bool,
        ) {
            let case = if fold { Case::Insensitive } else { Case::Sensitive };
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(pattern, text, case), matches_slowly(pattern, text, case));
        }
    }
}
