//! Numbers as C formats, parses and truncates them: `%.14g`, and the longest prefix of a text that `strtod`
//! accepts.

/// Formats a number as `%.<precision>g` does.
pub(super) fn write_general(number: f64, precision: usize, into: &mut Vec<u8>) {
    if number.is_nan() {
        into.extend_from_slice(b"nan");
        return;
    }
    if number.is_infinite() {
        into.extend_from_slice(if number > 0.0 { b"inf" } else { b"-inf" });
        return;
    }
    // Most numbers are small integers.
    if number == number.trunc() && number.abs() < 1e9 && precision >= 9 {
        if number == 0.0 && number.is_sign_negative() {
            into.push(b'-');
        }
        into.extend_from_slice(itoa::Buffer::new().format(number as i64).as_bytes());
        return;
    }
    let precision = precision.max(1);
    let scientific = format!("{number:.*e}", precision - 1);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= precision as i32 {
        into.extend_from_slice(trimmed(digits).as_bytes());
        let sign = if exponent < 0 { '-' } else { '+' };
        into.extend_from_slice(format!("e{sign}{:02}", exponent.unsigned_abs()).as_bytes());
    } else {
        let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
        into.extend_from_slice(trimmed(&format!("{number:.decimals$}")).as_bytes());
    }
}

/// Removes trailing zeros of a fraction.
fn trimmed(digits: &str) -> &str {
    match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    }
}

/// Parses the number at the beginning of a text; returns the number and the length of its digits.
pub(super) fn read_prefix(text: &[u8]) -> Option<(f64, usize)> {
    let is_negative = text.first() == Some(&b'-');
    let sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let rest = &text[sign..];
    let begins =
        |word: &[u8]| rest.len() >= word.len() && rest[..word.len()].eq_ignore_ascii_case(word);
    let (number, length) = if begins(b"infinity") {
        (f64::INFINITY, 8)
    } else if begins(b"inf") {
        (f64::INFINITY, 3)
    } else if begins(b"nan") {
        (f64::NAN, 3)
    } else if begins(b"0x") && rest.get(2).is_some_and(u8::is_ascii_hexdigit) {
        hexadecimal(rest)
    } else {
        decimal(rest)?
    };
    Some((if is_negative { -number } else { number }, sign + length))
}

fn decimal(text: &[u8]) -> Option<(f64, usize)> {
    let digits = |from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let whole = digits(0);
    let mut end = whole;
    let mut fraction = 0;
    if text.get(end) == Some(&b'.') {
        fraction = digits(end + 1);
        if whole + fraction > 0 {
            end += 1 + fraction;
        }
    }
    if whole + fraction == 0 {
        return None;
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'-' | b'+')));
        let exponent = digits(end + 1 + sign);
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    let number = std::str::from_utf8(&text[..end]).ok()?.parse().ok()?;
    Some((number, end))
}

/// Parses a number such as `0x1.8p3`.
fn hexadecimal(text: &[u8]) -> (f64, usize) {
    let mut at = 2;
    let (mut number, mut scale) = (0.0_f64, 0_i32);
    let mut is_fraction = false;
    while let Some(&byte) = text.get(at) {
        match char::from(byte).to_digit(16) {
            Some(digit) => {
                number = number * 16.0 + f64::from(digit);
                scale -= 4 * i32::from(is_fraction);
            }
            None if byte == b'.' && !is_fraction => is_fraction = true,
            None => break,
        }
        at += 1;
    }
    if matches!(text.get(at), Some(b'p' | b'P')) {
        let rest = &text[at + 1..];
        let sign = usize::from(matches!(rest.first(), Some(b'-' | b'+')));
        let digits = rest[sign..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if digits > 0 {
            let exponent = std::str::from_utf8(&rest[sign..sign + digits]);
            let exponent: i32 = exponent
                .ok()
                .and_then(|text| text.parse().ok())
                .unwrap_or(9999);
            let exponent = exponent.min(9999);
            scale += if rest.first() == Some(&b'-') {
                -exponent
            } else {
                exponent
            };
            at += 1 + sign + digits;
        }
    }
    (number * f64::from(scale).exp2(), at)
}

/// Returns a number without its fraction. Numbers out of range become the smallest integer, as on the processors
/// that Redis runs on.
pub(super) fn truncated(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) {
        number as i64
    } else {
        i64::MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-5000.0, "-5000"),
            (0.1, "0.1"),
            (1e14, "1e+14"),
            (99_999_999_999_999.0, "99999999999999"),
            (123_456_789_012_345_680.0, "1.2345678901235e+17"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.0 / 3.0, "0.33333333333333"),
            (2.5e-300, "2.5e-300"),
            (1e300, "1e+300"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            let mut written = Vec::new();
            write_general(number, 14, &mut written);
            assert_eq!(String::from_utf8_lossy(&written), text);
        }
        let mut written = Vec::new();
        write_general(1234.5, 3, &mut written);
        assert_eq!(written, b"1.23e+03");
    }

    #[test]
    fn the_longest_number_is_read() {
        for (text, number, length) in [
            ("12,", 12.0, 2),
            ("-1.5e3]", -1500.0, 6),
            ("1e", 1.0, 1),
            ("1e+", 1.0, 1),
            (".5", 0.5, 2),
            ("5.", 5.0, 2),
            ("0x10", 16.0, 4),
            ("0x1.8p1", 3.0, 7),
            ("-inf", f64::NEG_INFINITY, 4),
            ("Infinity", f64::INFINITY, 8),
            ("0x", 0.0, 1),
        ] {
            assert_eq!(
                read_prefix(text.as_bytes()),
                Some((number, length)),
                "{text}"
            );
        }
        assert!(read_prefix(b"-").is_none());
        assert!(read_prefix(b".").is_none());
        assert!(read_prefix(b"x").is_none());
        assert!(read_prefix(b"nan").is_some_and(|(number, _)| number.is_nan()));
    }
}
