//! Texts that are paths, their dialects, and the errors for other texts.

use super::super::{DefiniteStep, Dialect};
use super::{PathError, Program, program, refusal};

#[test]
fn the_beginning_decides_the_dialect() {
    for path in [
        "$",
        "$.a",
        "$['a']",
        "$..a",
        "$~",
        "($.a)",
        "($.a + 1)",
        "-$.a",
        "- $.a",
        "+($.a)",
        "length($.a)",
        "length ( $.a )",
    ] {
        assert_eq!(program(path).dialect(), Dialect::JsonPath, "{path}");
    }
    for path in [
        ".", ".a", "a", "a.b", "[0]", "['a']", "$a", "-$x", "-a", "*", "..a", ".*", "a[0].b", "愛",
        "a + 1", "true", "length",
    ] {
        assert_eq!(program(path).dialect(), Dialect::Legacy, "{path}");
    }
}

#[test]
fn definite_paths_are_told_apart() {
    let key = |key: &str| DefiniteStep::Key(key.as_bytes().into());
    let cases: &[(&str, &[DefiniteStep])] = &[
        ("$", &[]),
        (".", &[]),
        ("$.a", &[key("a")]),
        ("a", &[key("a")]),
        (
            "$.a['b'][-1]",
            &[key("a"), key("b"), DefiniteStep::Index(-1)],
        ),
        ("[3]", &[DefiniteStep::Index(3)]),
        ("($.a)", &[key("a")]),
    ];
    for (path, steps) in cases {
        let program = program(path);
        assert!(program.is_definite() && !program.is_projection(), "{path}");
        assert_eq!(program.definite_steps(), Some(*steps), "{path}");
        assert_eq!(program.is_root(), steps.is_empty(), "{path}");
        assert_eq!(program.text(), path.as_bytes());
    }
    for path in [
        "$.*",
        "$..a",
        "$['a','b']",
        "$[0,1]",
        "$[0:1]",
        "$[?@]",
        "*",
        "..a",
    ] {
        let program = program(path);
        assert!(!program.is_definite() && !program.is_projection(), "{path}");
        assert_eq!(program.definite_steps(), None);
    }
    for path in [
        "$.a + 1",
        "a + 1",
        "$.a.length()",
        "$.a~",
        "-$.a",
        "length($.a)",
        "$~",
        "(1)",
    ] {
        let program = program(path);
        assert!(program.is_projection() && !program.is_definite(), "{path}");
    }
}

#[test]
fn other_texts_are_refused() {
    for path in [
        "",
        " ",
        "$.",
        "$..",
        "$...a",
        "$.....a",
        "$[",
        "$[]",
        "$[x]",
        "$[1",
        "$['a]",
        "$['a'",
        "$.a.",
        "$[?]",
        "$[?(]",
        "$[?@.a==]",
        "$[?@.a==1",
        "$[?(@.a==1]",
        "$[?@.a=1]",
        "$[?@.a &&]",
        "$[?!]",
        "$[?@.a | @.b]",
        "$[0,]",
        "$[,0]",
        "$[0,,1]",
        "$[0,1,2:4]",
        "$[0:2,3]",
        "$['a',0]",
        "$[0,'a']",
        "$['a',*]",
        "$[0:1:0]",
        "$[01]",
        "$[1:02]",
        "$[1.5]",
        "$[-inf]",
        "$[--1]",
        "$.a b",
        "$.)5",
        "$.!a",
        "$.>",
        "=.a",
        "&&$.a",
        "||.a",
        "!$.a",
        "gar\0\0bage",
        "not\r\nallowed",
        "[a]",
        "a[\"b'",
        "\"a\"",
        "$.a +",
        "$.a.length(",
        "($.a",
        "$.a * * 2",
        "$.a)",
        "$.a~b",
        "$.a~.x",
        "$.a.keys()~",
        "$.a.keys().x",
        "$.a~~",
        "$.a~.length()",
        "$.a == 1",
        "($.a == 1)",
        "($.a == 1) + 1",
        "$[?(@.a == 1) == true]",
        "$[?@.a + (@.b == 1)]",
        "$[?length(@.a == 1)]",
        "$[?bogus]",
        "$[?@ == 1e999]",
        "$[?@ == 01]",
        r#"$["\u12"]"#,
        r#"$["\ud800"]"#,
        r#"$["\ud800\u0041"]"#,
        r#"$["\"]"#,
        "$[?@ == [1,]]",
        "$[?@ == {a:1}]",
        "$[?@ == {'a' 1}]",
    ] {
        let error = refusal(path);
        assert!(
            error.starts_with("SYNTAXERR Error occurred at position ")
                && error.contains("expected one of the following: "),
            "{path}: {error}"
        );
        assert!(!error.contains(['\r', '\n', '\0']), "{path}: {error:?}");
    }
}

#[test]
fn errors_say_where_they_are() {
    for (path, position) in [
        ("$.a.", 4),
        ("$[1", 3),
        ("a b", 2),
        ("$[?@.a==]", 8),
        ("$['a", 4),
        ("", 0),
    ] {
        let error = Program::parse(path.as_bytes()).expect_err(path);
        assert!(
            matches!(error, PathError::Syntax { position: at, .. } if at == position),
            "{path}: {error}"
        );
    }
    assert_eq!(Program::parse(b"$.\xff").err(), Some(PathError::NotUtf8));
    assert_eq!(
        PathError::NotUtf8.to_string(),
        "ERR Couldn't parse as UTF-8 string"
    );
}

#[test]
fn spaces_may_stand_between_parts() {
    for path in [
        "$ .a",
        "$. a",
        "$.a [ 0 ]",
        "$[ 'a' ][ 0 ]",
        "$[ * ]",
        "$[ ? ( @.a > 1 ) ]",
        "$.a ",
        "$.a . length ( )",
        "$[?@.a\t==\n1]",
    ] {
        program(path);
    }
}
