//! The values that paths compute, in the form of documents.

use basalt_core::json_path::Value;
use basalt_engine::value::json::print::quote;
use basalt_engine::value::json::{Number, packed_null, parse};

/// Returns the packed form of a value that a path has computed.
pub(super) fn packed(value: &Value) -> Vec<u8> {
    let mut text = Vec::new();
    write(value, &mut text);
    parse(&text).unwrap_or_else(|_| packed_null())
}

/// Appends the text of a computed value.
fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(number) => out.extend_from_slice(Number::Int(*number).text().as_bytes()),
        Value::Uint(number) => out.extend_from_slice(Number::Uint(*number).text().as_bytes()),
        Value::Float(number) => match number.is_finite() {
            true => out.extend_from_slice(Number::Float(*number).text().as_bytes()),
            false => out.extend_from_slice(b"null"),
        },
        Value::Str(text) => quote(text, out),
        Value::Array(values) => {
            out.push(b'[');
            for (at, value) in values.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write(value, out);
            }
            out.push(b']');
        }
        Value::Object(members) => {
            out.push(b'{');
            for (at, (name, value)) in members.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                quote(name, out);
                out.push(b':');
                write(value, out);
            }
            out.push(b'}');
        }
    }
}
