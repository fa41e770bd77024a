//! DEBUG PROTOCOL: one reply of each type, for the tests of client libraries.

use super::super::Out;
use super::super::declaration::CommandResult;

/// The value in Redis's reply is pi with three digits, not the constant.
#[expect(
    clippy::approx_constant,
    reason = "clients are tested against these digits"
)]
const DOUBLE: f64 = 3.141;

/// `DEBUG PROTOCOL type`
pub(super) fn reply(kind: &[u8], out: &mut Out) -> CommandResult {
    match kind.to_ascii_lowercase().as_slice() {
        b"string" => out.bulk(b"Hello World"),
        b"integer" => out.integer(12_345),
        b"double" => out.double(DOUBLE),
        b"bignum" => out.big_number("1234567999999999999999999999999999999"),
        b"null" => out.null(),
        b"array" => {
            out.array(3);
            (0..3).for_each(|number| out.integer(number));
        }
        b"set" => {
            out.set(3);
            (0..3).for_each(|number| out.integer(number));
        }
        b"map" => {
            out.map(3);
            for number in 0..3 {
                out.integer(number);
                out.boolean(number == 1);
            }
        }
        b"attrib" => {
            if out.is_resp3() {
                out.attribute(1);
                out.bulk(b"key-popularity");
                out.array(2);
                out.bulk(b"key:123");
                out.integer(90);
            }
            out.bulk(b"Some real reply following the attribute");
        }
        b"push" => {
            if !out.is_resp3() {
                return Err("ERR RESP2 is not supported by this command".into());
            }
            out.push(2);
            out.bulk(b"server-cpu-usage");
            out.integer(42);
            out.bulk(b"Some real reply following the push reply");
        }
        b"true" => out.boolean(true),
        b"false" => out.boolean(false),
        b"verbatim" => out.verbatim("txt", "This is a verbatim\nstring"),
        _ => {
            return Err(
                "ERR Wrong protocol type name. Please use one of the following: \
                 string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false"
                    .into(),
            );
        }
    }
    Ok(())
}
