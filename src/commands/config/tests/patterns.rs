//! Tests of patterns of parameter and file names.

use crate::config::pattern::matches;

#[test]
fn patterns_match_as_globs_do() {
    for (pattern, text, expected) in [
        ("*", "", true),
        ("", "", true),
        ("", "a", false),
        ("a*c", "abbc", true),
        ("a*c", "abb", false),
        ("*a*b*", "xxaxxbxx", true),
        ("a?c", "aBC", true),
        ("[a-c]x", "Bx", true),
        ("[^a-c]x", "bx", false),
        ("[^a-c]x", "dx", true),
        ("\\*", "*", true),
        ("\\*", "a", false),
        ("a**", "a", true),
        ("[", "[", false),
    ] {
        assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
    }
}

#[test]
fn many_stars_do_not_take_for_ever() {
    let pattern = "*a".repeat(200);
    assert!(!matches(&pattern, &"a".repeat(150)));
    assert!(matches(&pattern, &"a".repeat(400)));
}
