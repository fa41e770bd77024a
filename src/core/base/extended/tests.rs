//! Compares sums with those recorded from `redis-server` 7.0.15 on x86-64 (`SET k a`, `INCRBYFLOAT k b`), and checks
//! arithmetic laws.
//!
//! The recording server and this code were also compared on 60,000 random pairs, without a difference.

use proptest::prelude::*;

use super::*;

/// Lines `a b = sum`; a sum of more than 120 bytes is given by its length, its first and its last 40 bytes.
const RECORDED: &str = include_str!("incrbyfloat.txt");

fn printed(number: Extended) -> String {
    let mut text = Vec::new();
    number.print(&mut text);
    String::from_utf8(text).expect("ASCII")
}

/// Returns the result of INCRBYFLOAT.
fn sum(a: &str, b: &str) -> String {
    let (Some(a), Some(b)) = (Extended::parse(a.as_bytes()), Extended::parse(b.as_bytes())) else {
        return "refused".to_owned();
    };
    let Some(sum) = a.checked_add(b) else {
        return "infinite".to_owned();
    };
    let text = printed(sum);
    match text.len() {
        0..=120 => text,
        len => format!("len={len} {}..{}", &text[..40], &text[len - 40..]),
    }
}

#[test]
fn sums_are_those_that_redis_gives() {
    let mut count = 0;
    for line in RECORDED.lines() {
        let (pair, expected) = line.split_once(" = ").expect("a pair and a sum");
        let (a, b) = pair.split_once(' ').expect("two numbers");
        assert_eq!(sum(a, b), expected, "{a} + {b}");
        assert_eq!(sum(b, a), expected, "{b} + {a}");
        count += 1;
    }
    assert!(count > 100);
}

#[test]
fn text_that_strtold_does_not_use_up_is_refused() {
    let long = "1".repeat(TEXT_LEN_MAX);
    assert!(Extended::parse(&long.as_bytes()[..4900]).is_some());
    assert_eq!(Extended::parse(long.as_bytes()), None, "too large");
    let long = format!("0.{}", "1".repeat(TEXT_LEN_MAX - 2));
    assert!(Extended::parse(long.as_bytes()).is_some());
    assert_eq!(
        Extended::parse(format!("{long}1").as_bytes()),
        None,
        "too long"
    );
    for text in [
        "", " 1", "1 ", "1\0", "nan", "-nan", "0x", "1e", "e1", "+", "1.2.3",
    ] {
        assert_eq!(Extended::parse(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn infinities_are_read_and_printed_but_not_added() {
    let infinite = Extended::parse(b"-inf").expect("a number");
    assert!(!infinite.is_finite());
    assert_eq!(printed(infinite), "-inf");
    assert_eq!(infinite.checked_add(Extended::ZERO), None);
    assert_eq!(
        Extended::from(f64::INFINITY),
        Extended::parse(b"Infinity").expect("a number")
    );
}

#[test]
fn long_division_agrees_with_the_short_one() {
    // The same number twice, once with 39 digits too many for the fast path.
    for text in [
        "0.1",
        "3.3",
        "0.30000000000000000001",
        "12345678.87654321",
        "1e-27",
    ] {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let point = if mantissa.contains('.') { "" } else { "." };
        let long = format!("{mantissa}{point}{}1e{exponent}", "0".repeat(4000));
        assert_eq!(
            Extended::parse(text.as_bytes()),
            Extended::parse(long.as_bytes()),
            "{text}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    #[test]
    fn integers_are_exact(a: i64, b: i64) {
        let total = i128::from(a) + i128::from(b);
        // A sum of two such numbers has at most 64 bits.
        let sum = Extended::from(a).checked_add(Extended::from(b)).expect("finite");
        prop_assert_eq!(printed(sum), total.to_string());
        prop_assert_eq!(Extended::parse(total.to_string().as_bytes()), Some(sum));
    }

    #[test]
    fn doubles_are_exact(bits: u64) {
        let value = f64::from_bits(bits);
        prop_assume!(value.is_finite());
        let text = format!("{value:e}");
        let number = Extended::from(value);
        // Read as extended, the shortest digits are close to the double, but not the double itself.
        let read = Extended::parse(text.as_bytes()).expect("finite");
        prop_assert_eq!(number.negative, read.negative);
        let exact = format!("{value:.1100}");
        let kept = exact.trim_end_matches('0').trim_end_matches('.');
        prop_assert_eq!(Extended::parse(kept.as_bytes()), Some(number));
    }

    #[test]
    fn what_is_printed_reads_back_when_it_is_large_enough(mantissa: u64, exponent in -5..16000_i32) {
        let mantissa = u128::from(mantissa | 1 << 63);
        let number = Extended::rounded(false, Bits { mantissa, inexact: false, exponent });
        prop_assert_eq!(Extended::parse(printed(number).as_bytes()), Some(number));
    }
}
