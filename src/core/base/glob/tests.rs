//! Tests of `glob`.

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
