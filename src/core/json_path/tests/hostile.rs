//! Paths and documents that are meant to hurt: deep, long, and with searches that multiply.

use super::super::limits::{NESTING_MAX, RECURSION_MAX};
use super::{Budget, PathError, Program, Value, document, found, program};

fn parsed(path: &str) -> Result<Program, PathError> {
    Program::parse(path.as_bytes())
}

fn refused(path: &str) -> Option<PathError> {
    parsed(path).err()
}

/// An array in an array and so on, with `levels` of them.
fn nested(levels: usize) -> Value {
    (0..levels).fold(Value::Int(1), |value, _| Value::Array(vec![value]))
}

#[test]
fn nesting_is_limited() {
    let groups = |depth: usize| format!("{}$.a{}", "(".repeat(depth), ")".repeat(depth));
    assert!(parsed(&groups(NESTING_MAX)).is_ok());
    assert_eq!(refused(&groups(NESTING_MAX + 1)), Some(PathError::TooDeep));
    assert_eq!(refused(&groups(5000)), Some(PathError::TooDeep));
    let not = |depth: usize| format!("$[?{}@]", "!".repeat(depth));
    assert!(parsed(&not(NESTING_MAX - 1)).is_ok());
    assert_eq!(refused(&not(30_000)), Some(PathError::TooDeep));
    let filters = |depth: usize| format!("${}{}", "[?@".repeat(depth), "]".repeat(depth));
    assert!(parsed(&filters(NESTING_MAX)).is_ok());
    assert_eq!(refused(&filters(10_000)), Some(PathError::TooDeep));
    let arrays = |depth: usize| format!("$[?@ == {}{}]", "[".repeat(depth), "]".repeat(depth));
    assert!(parsed(&arrays(NESTING_MAX - 1)).is_ok());
    assert_eq!(refused(&arrays(10_000)), Some(PathError::TooDeep));
    assert_eq!(refused(&"$".repeat(1 << 20)), Some(PathError::TooLong));
    // Brackets in texts do not nest.
    assert!(parsed(&format!(r#"$["{}"]"#, "(".repeat(300))).is_ok());
}

#[test]
fn expressions_are_limited() {
    assert!(parsed(&format!("$.a{}", " + 1".repeat(500))).is_ok());
    assert_eq!(
        refused(&format!("$.a{}", " + 1".repeat(600))),
        Some(PathError::TooLong)
    );
    assert_eq!(
        refused(&format!("$.a{}", ".abs()".repeat(600))),
        Some(PathError::TooLong)
    );
    let alternatives = format!("$[?@ == 0{}]", " || @ == 1".repeat(5000));
    assert_eq!(
        found(&alternatives, &document("[1,2]")).as_deref(),
        Ok("[1]")
    );
    let patterns = format!("$[?@ =~ 'a'{}]", " || @ =~ 'b'".repeat(100));
    assert_eq!(refused(&patterns), Some(PathError::TooLong));
}

#[test]
fn deep_expressions_are_evaluated() {
    let chain = format!("$[0]{}", " + 1".repeat(500));
    assert_eq!(found(&chain, &document("[1]")).as_deref(), Ok("[501]"));
    let depth = NESTING_MAX - 1;
    let groups = format!(
        "$[?{}@ == 1 || @ == 2{}]",
        "(".repeat(depth),
        ")".repeat(depth)
    );
    assert_eq!(found(&groups, &document("[1,2,3]")).as_deref(), Ok("[1,2]"));
}

#[test]
fn deep_documents_are_searched() {
    let deep = nested(128);
    let mut budget = Budget::new();
    let matches = program("$..[0]")
        .find(&deep, &mut budget)
        .map(|found| found.len());
    assert_eq!(matches, Ok(128));
    let all = "[*]".repeat(128);
    assert_eq!(
        found(&format!("${all}"), &deep).as_deref(),
        Ok("[1]"),
        "128 levels by wildcards"
    );
    // A filter at the bottom searches the document again from its top, and finds the number.
    let again = format!("${}[?$..[?@ == 1]]", "[*]".repeat(127));
    assert_eq!(found(&again, &deep).as_deref(), Ok("[1]"));
    let many = format!("${}", "..[?$".repeat(20)) + &"]".repeat(20);
    let mut budget = Budget::new();
    assert_eq!(
        program(&many).find(&deep, &mut budget).err(),
        Some(PathError::Exhausted),
    );
    let deeper = nested(RECURSION_MAX * 2);
    assert_eq!(
        program("$..[?@ == 2]")
            .find(&deeper, &mut Budget::new())
            .err(),
        Some(PathError::TooDeep)
    );
}

#[test]
fn searches_that_multiply_give_up() {
    let mut wide = String::from("{");
    for index in 0..300 {
        wide.push_str(&format!("\"k{index}\":[{}1],", "0,".repeat(300)));
    }
    wide.push_str("\"end\":1}");
    let wide = document(&wide);
    for path in [
        "$..[?$..[?@ == -1]]",
        "$..*[?@ in $..*]",
        "$[*][?$ == $]",
        "$..[?$..* == 7]",
        "$[*][?sum($..[*]) == 3]",
        "$[*][?$.append(1) == 3]",
        "$[*][?concat($.end) =~ $.end || $.keys() == 'x']",
    ] {
        let mut budget = Budget::of(1_000_000);
        assert_eq!(
            program(path).find(&wide, &mut budget).err(),
            Some(PathError::Exhausted),
            "{path}"
        );
        assert_eq!(budget.left(), 0);
    }
    let descents = format!("${}", "..*".repeat(60));
    let deep = nested(100);
    let found = program(&descents).find(&deep, &mut Budget::of(1_000_000));
    assert_eq!(found.err(), Some(PathError::Exhausted));
}

#[test]
fn regular_expressions_are_bounded() {
    let long = format!(r#"["{}"]"#, "a".repeat(100_000));
    let long = document(&long);
    // Exponential for those who go back.
    assert_eq!(found("$[?@ =~ '^(a+)+$b']", &long).as_deref(), Ok("[]"));
    // Too large when it is compiled: it matches nothing.
    assert_eq!(
        found(r"$[?@ =~ '((a{100}){100}){100}']", &long).as_deref(),
        Ok("[]")
    );
    // Each text is a pattern of its own.
    let patterns: Vec<String> = (0..3000).map(|index| format!("\"x{index}\"")).collect();
    let patterns = document(&format!("[{}]", patterns.join(",")));
    assert_eq!(
        program("$[?@ =~ @]")
            .find(&patterns, &mut Budget::new())
            .err(),
        Some(PathError::Exhausted)
    );
    let first: Vec<String> = (0..100).map(|index| format!("\"x{index}\"")).collect();
    let first = document(&format!("[{}]", first.join(",")));
    let count = program("$[?@ =~ @]").find(&first, &mut Budget::new());
    assert_eq!(count.map(|found| found.len()), Ok(100));
}
