//! Paths over documents that are written as text.

mod differential;
mod expressions;
mod hostile;
mod segments;
mod syntax;

use std::fmt::Write;

use super::{Budget, Location, Node, PathError, Program, Step, Value, View, parse};

fn document(text: &str) -> Value {
    parse::json(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn program(path: &str) -> Program {
    Program::parse(path.as_bytes()).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Writes a value as JSON.
fn print<'d, N: Node<'d>>(node: N, text: &mut String) {
    match node.view() {
        View::Null => text.push_str("null"),
        View::Bool(bool) => write!(text, "{bool}").unwrap(),
        View::Int(number) => write!(text, "{number}").unwrap(),
        View::Uint(number) => write!(text, "{number}").unwrap(),
        View::Float(number) => write!(text, "{number:?}").unwrap(),
        View::Str(bytes) => write!(text, "{:?}", std::str::from_utf8(bytes).unwrap()).unwrap(),
        View::Array => {
            text.push('[');
            for (index, element) in node.elements().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                print(element, text);
            }
            text.push(']');
        }
        View::Object => {
            text.push('{');
            for (index, (key, value)) in node.members().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write!(text, "{:?}:", std::str::from_utf8(key).unwrap()).unwrap();
                print(value, text);
            }
            text.push('}');
        }
    }
}

fn text_of(value: &Value) -> String {
    let mut text = String::new();
    print(value, &mut text);
    text
}

/// All matches, or the values of a projection, as a JSON array. The first match and the locations must agree with them.
fn found(path: &str, document: &Value) -> Result<String, PathError> {
    let program = program(path);
    let mut budget = Budget::new();
    if program.is_projection() {
        let values = program.project(document, &mut budget)?;
        return Ok(text_of(&Value::Array(values)));
    }
    let nodes = program.find(document, &mut budget)?;
    let first = program.first(document, &mut budget)?;
    assert_eq!(first, nodes.first().copied(), "the first match of {path}");
    let locations = program.locate(document, &mut budget)?;
    assert_eq!(locations.len(), nodes.len(), "the locations of {path}");
    for (node, location) in nodes.iter().zip(&locations) {
        assert!(
            std::ptr::eq(*node, at(document, location)),
            "{path} finds another value at {location:?}"
        );
    }
    let mut text = String::from("[");
    for (index, node) in nodes.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        print(*node, &mut text);
    }
    text.push(']');
    Ok(text)
}

/// The value at `location`.
fn at<'d>(document: &'d Value, location: &Location) -> &'d Value {
    location.iter().fold(document, |value, step| {
        match step {
            Step::Key(key) => value.child(key),
            Step::Index(index) => value.element(*index),
        }
        .expect("locations exist")
    })
}

/// Checks what paths find in a document.
fn expect(text: &str, cases: &[(&str, &str)]) {
    let document = document(text);
    for (path, expected) in cases {
        assert_eq!(
            found(path, &document).as_deref(),
            Ok(*expected),
            "{path} in {text}"
        );
    }
}

/// The error line for a text that is no path.
fn refusal(path: &str) -> String {
    match Program::parse(path.as_bytes()) {
        Ok(program) => panic!("{path} is accepted as {program:?}"),
        Err(error) => error.to_string(),
    }
}
