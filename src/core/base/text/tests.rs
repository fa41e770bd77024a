//! Tests of `text`.

use super::*;
use proptest::prelude::*;

fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, UnbalancedQuotes> {
    let mut bytes = Vec::new();
    let mut ranges = Vec::new();
    split_arguments(line, &mut bytes, |range| ranges.push(range))?;
    Ok(ranges
        .into_iter()
        .map(|range| bytes[range].to_vec())
        .collect())
}

fn words(line: &str) -> Vec<Vec<u8>> {
    split(line.as_bytes()).expect("the quotes are balanced")
}

#[test]
fn what_passes_to_a_terminal_is_visible_and_lines_stay_lines() {
    use std::io::Write;
    let mut out = Vec::new();
    let evil = "a\u{1b}]0;x\u{7}\u{202e}b";
    writeln!(Visible(&mut out), "[{evil}]\nnext").expect("memory takes it");
    Visible(&mut out)
        .write_all(b"\xff\r\n")
        .expect("memory takes it");
    let shown = String::from_utf8(out).expect("a text");
    assert_eq!(shown, "[a\\u{1b}]0;x\\u{7}\\u{202e}b]\nnext\n\\xff\\r\n");
}

#[test]
fn blanks_separate_and_leave_nothing() {
    assert_eq!(words(""), Vec::<Vec<u8>>::new());
    assert_eq!(words(" \t\r\n\x0b\x0c "), Vec::<Vec<u8>>::new());
    assert_eq!(
        words("  set\tkey  v "),
        [b"set".to_vec(), b"key".to_vec(), b"v".to_vec()]
    );
}

#[test]
fn vertical_tab_ends_no_argument() {
    assert_eq!(words("\x0ba\x0bb"), [b"a\x0bb".to_vec()]);
}

#[test]
fn quotes_keep_blanks_and_may_be_empty() {
    assert_eq!(words(r#"set "a b" '' """#), [&b"set"[..], b"a b", b"", b""]);
    assert_eq!(words(r#"ab"c d""#), [b"abc d".to_vec()]);
}

#[test]
fn escapes_are_read_in_double_quotes_only() {
    assert_eq!(
        words(r#""\n\r\t\b\a\x41\xfF\"\\\q\xg1""#),
        [b"\n\r\t\x08\x07A\xff\"\\qxg1"]
    );
    assert_eq!(words(r"'\n\x41\'\x'"), [br"\n\x41'\x".to_vec()]);
    assert_eq!(words(r"a\n"), [br"a\n".to_vec()]);
}

#[test]
fn quotes_must_close_and_end_the_argument() {
    for line in [
        r#""a"#,
        "'a",
        r#""a"b"#,
        "'a'b",
        r#""a""b""#,
        r#""a\"#,
        r#"a""b"#,
        r#""\x4"#,
    ] {
        assert_eq!(split(line.as_bytes()), Err(UnbalancedQuotes), "{line}");
    }
}

#[test]
fn quoting_escapes_what_is_not_printable() {
    let mut quoted = Vec::new();
    quote(b"a \"\\\n\r\t\x07\x08\x00\x7f\xff", &mut quoted);
    assert_eq!(quoted, br#""a \"\\\n\r\t\a\b\x00\x7f\xff""#);
}

#[test]
fn folding_refuses_what_is_too_long() {
    assert_eq!(
        Folded::<8>::new(b"GeT-\xc3").map(|f| f.as_bytes().to_vec()),
        Some(b"get-\xc3".to_vec())
    );
    assert!(Folded::<3>::new(b"incr").is_none());
}

#[test]
fn what_is_shown_is_seen_and_ends_where_it_is_to() {
    assert_eq!(visible("ä\u{202e}\u{1b}".as_bytes()), "ä\\u{202e}\\u{1b}");
    assert_eq!(visible(b"\xff\x00"), "\\xff\\u{0}");
    assert_eq!(visible_within(b"abc", 3), "abc");
    assert_eq!(visible_within(b"abcd", 3), "abc…");
    assert_eq!(visible_within(b"ab\x1bcd", 7), "ab…");
    assert_eq!(visible_within(b"ab\x1bcd", 9), "ab\\u{1b}c…");
    assert_eq!(visible_within(&[0xff; 100], 9), "\\xff\\xff…");
}

proptest! {
    #[test]
    fn what_is_quoted_splits_into_the_same_bytes(arguments: Vec<Vec<u8>>) {
        let mut line = Vec::new();
        for argument in &arguments {
            quote(argument, &mut line);
            line.push(b' ');
        }
        prop_assert_eq!(split(&line), Ok(arguments));
    }
}
