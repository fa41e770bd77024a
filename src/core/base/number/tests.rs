//! Tests of `number`.

use super::*;
use proptest::prelude::*;

#[test]
fn integers_are_read_in_canonical_form_only() {
    for text in [
        "0",
        "1",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
    ] {
        assert_eq!(parse_i64(text.as_bytes()), text.parse().ok(), "{text}");
    }
    for text in [
        "",
        "-",
        "+1",
        "01",
        "-01",
        "-0",
        "00",
        " 1",
        "1 ",
        "1a",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "99999999999999999999999",
        "1-",
        "--1",
    ] {
        assert_eq!(parse_i64(text.as_bytes()), None, "{text}");
    }
    assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
    for text in [
        "",
        "18446744073709551616",
        "-1",
        "00",
        "+0",
        "99999999999999999999",
    ] {
        assert_eq!(parse_u64(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn doubles_are_read_as_strtod_does_to_the_last_byte() {
    for (text, value) in [
        ("0", 0.0),
        ("-0", -0.0),
        ("+1", 1.0),
        ("007", 7.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("-.5e1", -5.0),
        ("1E+2", 100.0),
        ("0e-999999999999999999999", 0.0),
        ("inf", f64::INFINITY),
        ("-Infinity", f64::NEG_INFINITY),
        ("0x10", 16.0),
        ("-0X1.8p3", -12.0),
        ("0x.8", 0.5),
        ("0x1p-1074", 5e-324),
        ("0x1.8p-1074", 1e-323),
        ("0x.fffffffffffff8p-1022", f64::MIN_POSITIVE),
        ("0x1.fffffffffffffp1023", f64::MAX),
        ("0x1.00000000000008p0", 1.0),
        (
            "0x1.000000000000080000000000000000000000000001p0",
            1.0000000000000002,
        ),
        ("0x1.00000000000018p0", 1.0000000000000004),
        (
            "0x000000000000000000000000000000000000000000000001p-4",
            0.0625,
        ),
        (
            "0x100000000000000000000000000000000p0",
            340282366920938463463374607431768211456.0,
        ),
        ("5e-324", 5e-324),
        ("0.1", 0.1),
    ] {
        let read = parse_f64(text.as_bytes());
        assert_eq!(
            read.map(f64::to_bits),
            Some(value.to_bits()),
            "{text} is {read:?}"
        );
    }
    for text in [
        "",
        "-",
        "+",
        ".",
        "e5",
        "1e",
        "1e+",
        "1.5.5",
        " 1",
        "1 ",
        "1\0",
        "0x",
        "0x.",
        "0xp1",
        "0x1p",
        "nan",
        "-nan",
        "nan(1)",
        "infi",
        "in",
        "1e309",
        "-1e309",
        "1e-400",
        "0x1p1024",
        "0x1p-1075",
        "0x1.fffffffffffff8p1023",
        "1_0",
        "--1",
        "+-1",
        "1,5",
        "0x1e+5",
        "\u{b}1",
    ] {
        assert_eq!(parse_f64(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn memory_has_units_of_1000_and_of_1024() {
    for (text, bytes) in [
        ("0", 0),
        ("007", 7),
        ("100", 100),
        ("100B", 100),
        ("1k", 1000),
        ("1Kb", 1024),
        ("2m", 2_000_000),
        ("64mb", 64 << 20),
        ("3G", 3_000_000_000),
        ("1gb", 1 << 30),
    ] {
        assert_eq!(parse_memory(text.as_bytes()), Some(bytes), "{text}");
    }
    for text in [
        "",
        "k",
        "gb",
        "-1",
        "+1",
        "1.5gb",
        "1tb",
        "1 gb",
        "1gbx",
        "99999999999999999999",
        "18446744073709551615k",
        "50%",
    ] {
        assert_eq!(parse_memory(text.as_bytes()), None, "{text}");
    }
    assert_eq!(parse_memory_or_percent(b"25%", 4096), Some(1024));
    assert_eq!(parse_memory_or_percent(b"1kb", 4096), Some(1024));
    for text in ["101%", "%", "-1%", "1.5%"] {
        assert_eq!(
            parse_memory_or_percent(text.as_bytes(), 4096),
            None,
            "{text}"
        );
    }
}

fn printed(value: f64) -> String {
    String::from_utf8(F64Buffer::default().format(value).to_vec()).expect("ASCII")
}

#[test]
fn doubles_are_printed_as_redis_7_2_does() {
    for (value, text) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (3.0, "3"),
        (-3.0, "-3"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
        (4611686018427387904.0, "4611686018427387904"),
        (4611686018427388928.0, "4611686018427389000"),
        (1e18, "1000000000000000000"),
        (1e19, "1e+19"),
        (1.5e22, "1.5e+22"),
        (1.2345678901234567e22, "12345678901234568000000"),
        (1.2345678901234567e25, "1.2345678901234566e+25"),
        (0.1, "0.1"),
        (0.5, "0.5"),
        (-0.5, "-0.5"),
        (3.25, "3.25"),
        (0.30000000000000004, "0.30000000000000004"),
        (123456.789, "123456.789"),
        (0.000001, "0.000001"),
        (0.0000015, "1.5e-6"),
        (0.00012345, "1.2345e-4"),
        (0.0012345, "0.0012345"),
        (0.0012345678, "0.0012345678"),
        (1e-7, "1e-7"),
        (1.5e-7, "1.5e-7"),
        (1e23, "99999999999999990000000"),
        (5_809_705.939_09, "5.8097059390900005e+6"),
        (1e100, "1e+100"),
        (f64::MAX, "1.7976931348623157e+308"),
        (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
        (5e-324, "5e-324"),
        (-1.2345678901234567e-300, "-1.2345678901234568e-300"),
    ] {
        assert_eq!(printed(value), text);
    }
}

proptest! {
    #[test]
    fn every_double_survives_printing_and_reading(bits: u64, small in -1e6..1e6_f64) {
        for value in [f64::from_bits(bits), small] {
            if !value.is_nan() {
                prop_assert_eq!(printed(value).parse::<f64>(), Ok(value));
            }
        }
    }

    #[test]
    fn every_integer_survives_printing_and_reading(signed: i64, unsigned: u64) {
        prop_assert_eq!(parse_i64(signed.to_string().as_bytes()), Some(signed));
        prop_assert_eq!(parse_u64(unsigned.to_string().as_bytes()), Some(unsigned));
    }

    #[test]
    fn what_is_not_canonical_is_refused(text in "[-+ 0-9a]{0,21}") {
        let expected = text.parse::<i64>().ok().filter(|value| value.to_string() == text);
        prop_assert_eq!(parse_i64(text.as_bytes()), expected);
    }
}
