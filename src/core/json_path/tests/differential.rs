//! Random documents and paths against `jsonpath-rust`, another implementation of RFC 9535, where both dialects agree.
//!
//! They differ in these points, which the paths leave out: nothing equals nothing in the RFC; truth values have an
//! order here; slices with a negative step mean other elements when a bound is left out. A filter within the path of
//! another filter finds nothing in `jsonpath-rust` 1.0 (`$[?@[?@ == 1]]` of `[[1]]`), and is left out as well.

use std::fmt::Write;

use jsonpath_rust::query::js_path;
use serde_json::json;

use super::super::{Location, Step};
use super::{Budget, Value, program};
use crate::base::random::Random;

/// The number of random pairs that are tried; `BASALT_JSON_PATHS=100000` tries more.
fn pairs() -> usize {
    let wanted = std::env::var("BASALT_JSON_PATHS").ok();
    let default = if cfg!(miri) { 20 } else { 4_000 };
    wanted.map_or(default, |wanted| wanted.parse().expect("a number"))
}

const KEYS: &[&str] = &["a", "b", "c", "d e", "é"];

fn random_document(random: &mut Random, depth: usize) -> serde_json::Value {
    match random.below(if depth == 0 { 8 } else { 14 }) {
        0 => json!(null),
        1 => json!(random.below(2) == 0),
        2 | 3 => json!(random.below(4)),
        4 => json!(random.below(8) as f64 / 2.0),
        5 => json!(-(random.below(3) as i64)),
        6 | 7 => json!(["", "x", "xy", "é"][random.index(4)]),
        8..=10 => (0..random.below(5))
            .map(|_| random_document(random, depth - 1))
            .collect(),
        _ => serde_json::Value::Object(
            (0..random.below(5))
                .map(|_| {
                    let key = KEYS[random.index(KEYS.len())].to_owned();
                    (key, random_document(random, depth - 1))
                })
                .collect(),
        ),
    }
}

fn converted(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(bool) => Value::Bool(*bool),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(number) => Value::Int(number),
            None => Value::Float(number.as_f64().expect("it is a number")),
        },
        serde_json::Value::String(text) => Value::Str(text.as_bytes().into()),
        serde_json::Value::Array(elements) => {
            Value::Array(elements.iter().map(converted).collect())
        }
        serde_json::Value::Object(members) => Value::Object(
            members
                .iter()
                .map(|(key, value)| (key.as_bytes().into(), converted(value)))
                .collect(),
        ),
    }
}

fn name(random: &mut Random, path: &mut String) {
    let key = KEYS[random.index(KEYS.len())];
    let quote = if random.below(2) == 0 { '"' } else { '\'' };
    write!(path, "{quote}{key}{quote}").unwrap();
}

fn index(random: &mut Random, path: &mut String) {
    write!(path, "{}", random.below(7) as i64 - 3).unwrap();
}

fn bracket(random: &mut Random, path: &mut String, depth: usize) {
    path.push('[');
    match random.below(8) {
        0 => path.push('*'),
        1 => name(random, path),
        2 => index(random, path),
        3 => {
            name(random, path);
            path.push(',');
            name(random, path);
        }
        4 => {
            index(random, path);
            path.push(',');
            index(random, path);
        }
        5 => {
            for _ in 0..2 {
                if random.below(2) == 0 {
                    index(random, path);
                }
                path.push(':');
            }
            write!(path, "{}", 1 + random.below(3)).unwrap();
        }
        _ if depth == 0 => index(random, path),
        _ => {
            path.push('?');
            condition(random, path, depth - 1);
        }
    }
    path.push(']');
}

fn segments(random: &mut Random, path: &mut String, depth: usize) {
    for _ in 0..random.below(4) {
        match random.below(8) {
            0 => path.push_str(".*"),
            1 => path.push_str("..*"),
            2 | 3 => {
                let descends = random.below(3) == 0;
                path.push_str(if descends { ".." } else { "." });
                path.push_str(["a", "b", "c", "é"][random.index(4)]);
            }
            4 => {
                path.push_str("..");
                bracket(random, path, depth);
            }
            _ => bracket(random, path, depth),
        }
    }
}

/// A path that leads to one value at most.
fn definite(random: &mut Random, path: &mut String) {
    path.push(if random.below(4) == 0 { '$' } else { '@' });
    for _ in 0..random.below(3) {
        match random.below(3) {
            0 => {
                path.push('[');
                index(random, path);
                path.push(']');
            }
            1 => {
                path.push('[');
                name(random, path);
                path.push(']');
            }
            _ => path.push_str([".a", ".b", ".c"][random.index(3)]),
        }
    }
}

fn comparison(random: &mut Random, path: &mut String) {
    let ordered = ["<", "<=", ">", ">=", "==", "!="];
    let (operators, literals): (&[&str], &[&str]) = match random.below(3) {
        0 => (&ordered, &["0", "1", "2", "1.5", "-1", "1e0"]),
        1 => (&ordered, &["''", "'x'", "\"xy\"", "'é'"]),
        _ => (&ordered[4..], &["true", "false", "null"]),
    };
    let operator = operators[random.index(operators.len())];
    let literal = literals[random.index(literals.len())];
    if random.below(4) == 0 {
        write!(path, "{literal} {operator} ").unwrap();
        definite(random, path);
    } else {
        definite(random, path);
        write!(path, " {operator} {literal}").unwrap();
    }
}

fn condition(random: &mut Random, path: &mut String, depth: usize) {
    match random.below(if depth == 0 { 4 } else { 8 }) {
        0..=2 => comparison(random, path),
        3 => {
            path.push_str(if random.below(3) == 0 { "!@" } else { "@" });
            segments(random, path, 0);
        }
        4 => {
            path.push_str(if random.below(2) == 0 { "!(" } else { "(" });
            condition(random, path, depth - 1);
            path.push(')');
        }
        5 | 6 => {
            condition(random, path, depth - 1);
            path.push_str(" && ");
            condition(random, path, depth - 1);
        }
        _ => {
            condition(random, path, depth - 1);
            path.push_str(" || ");
            condition(random, path, depth - 1);
        }
    }
}

/// A location as RFC 9535 writes it.
fn normalized(location: &Location) -> String {
    let mut text = String::from("$");
    for step in location {
        match step {
            Step::Key(key) => write!(text, "['{}']", String::from_utf8_lossy(key)).unwrap(),
            Step::Index(index) => write!(text, "[{index}]").unwrap(),
        }
    }
    text
}

#[test]
fn paths_find_what_another_implementation_finds() {
    let (mut compared, mut with_matches) = (0, 0);
    for seed in 0..pairs() as u64 {
        let mut random = Random::new(seed);
        let document = random_document(&mut random, 4);
        let mut path = String::from("$");
        segments(&mut random, &mut path, 2);
        let Ok(theirs) = js_path(&path, &document) else {
            panic!("seed {seed}: {path} is not accepted by jsonpath-rust");
        };
        let mut theirs: Vec<String> = theirs.into_iter().map(|found| found.path()).collect();
        let ours = program(&path)
            .locate(&converted(&document), &mut Budget::new())
            .unwrap_or_else(|error| panic!("seed {seed}: {path}: {error}"));
        let mut ours: Vec<String> = ours.iter().map(normalized).collect();
        with_matches += usize::from(!ours.is_empty());
        compared += 1;
        theirs.sort_unstable();
        ours.sort_unstable();
        assert_eq!(ours, theirs, "seed {seed}: {path} in {document}");
    }
    assert!(
        with_matches * 4 > compared,
        "{with_matches} of {compared} find anything"
    );
}
