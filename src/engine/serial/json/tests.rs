//! Documents in all versions of the form, and bytes that are none.

use super::super::pages::module_of;
use super::*;
use crate::serial::{Form, reader};
use basalt_core::base::random::Random;

/// The number of a version, as a length of 64 bits.
fn number(version: u64) -> Vec<u8> {
    let mut bytes = vec![0x81];
    bytes.extend_from_slice(&(module() | version).to_be_bytes());
    bytes
}

/// Reads what follows the type byte, and returns the document's text.
fn read_all(bytes: &[u8]) -> Result<String, Malformed> {
    let mut reader = reader::Reader::new(bytes, 1 << 20);
    let number = reader.length()?;
    assert!(is_document(number));
    let entry = read(number, b"key", &mut reader)?;
    match reader.rest() {
        [] => Ok(String::from_utf8(JsonRef::of(entry.view()).text()).expect("it is text")),
        _ => Err(Malformed("more than a document")),
    }
}

fn text_of(version: u64, parts: &[u8]) -> Result<String, Malformed> {
    read_all(&[&number(version), parts, &[0]].concat())
}

fn short_string(text: &[u8]) -> Vec<u8> {
    [&[5, text.len() as u8], text].concat()
}

#[test]
fn the_number_is_that_of_redis() {
    assert_eq!(module_of(module() | 3), ("ReJSON-RL".to_owned(), 3));
    assert_eq!(number(3)[1..], 0x45e2_5238_df91_2c03_u64.to_be_bytes());
    assert!(!is_document(module() + 1024));
}

#[test]
fn versions_2_and_3_hold_text() {
    let text = br#"{"a":[1,2.5,"x"]}"#;
    let expected = Ok(r#"{"a":[1,2.5,"x"]}"#.to_owned());
    let string = short_string(text);
    assert_eq!(text_of(3, &string), expected);
    assert_eq!(text_of(2, &[&string[..], &[2, 0]].concat()), expected);
    let indexed = [
        &string[..],
        &[2, 1],
        &short_string(b"i"),
        &short_string(b"p"),
    ]
    .concat();
    assert_eq!(text_of(2, &indexed), expected);
    for (version, parts) in [
        (2, &string[..]),
        (2, &[&string[..], &[2, 1]].concat()),
        (3, &[&string[..], &[2, 0]].concat()),
        (3, &short_string(b"{\"a\":")),
        (3, &short_string(b"")),
        (3, &[2, 1]),
        (3, &[]),
    ] {
        assert!(text_of(version, parts).is_err(), "{version} {parts:?}");
    }
    for version in [1, 5, 1023] {
        assert_eq!(text_of(version, &string), Err(Malformed::MODULE));
    }
}

#[test]
fn version_0_is_a_tree() {
    let unsigned = |number: u8| [2, number];
    let member =
        |key: &[u8], value: &[u8]| [&[2, 0x40, 0x80], &short_string(key)[..], value].concat();
    let double = [&[2, 4, 4][..], &2.5f64.to_le_bytes()].concat();
    let minus = [&[2, 8, 2, 0x81][..], &(-7i64).to_be_bytes()].concat();
    let list = [&[2, 0x40, 0x40, 2, 3][..], &unsigned(1), &double, &minus].concat();
    let object = [
        &[2, 0x20][..],
        &unsigned(4),
        &member(b"list", &list),
        &member(
            b"q\"\n",
            &[&[2, 2][..], &short_string("é\\".as_bytes())].concat(),
        ),
        &member(b"yes", &[&[2, 0x10][..], &short_string(b"1")].concat()),
        &member(b"none", &[2, 0x20, 2, 0]),
    ]
    .concat();
    assert_eq!(
        text_of(0, &object).as_deref(),
        Ok(r#"{"list":[null,2.5,-7],"q\"\n":"é\\","yes":true,"none":{}}"#)
    );
    assert_eq!(text_of(0, &[2, 0x40, 0x40, 2, 0]).as_deref(), Ok("[]"));
    let infinite = [&[2, 4, 4][..], &f64::INFINITY.to_le_bytes()].concat();
    let deep = [2, 0x40, 0x40, 2, 1].repeat(200);
    let many = [&[2, 0x40, 0x40, 2, 0x80][..], &[0xff; 4], &[2, 1]].concat();
    for wrong in [
        &[2, 3][..],
        &[2, 0x40, 0x80],
        &[2, 0x10, 5, 1, b'2'],
        &[2, 0x10, 5, 0],
        &[2, 0x20, 2, 1, 2, 1],
        &[1, 1],
        &infinite,
        &deep,
        &many,
        &[2, 2, 5, 2, 0xff, 0xff],
    ] {
        assert!(text_of(0, wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn version_4_is_cbor() {
    let cbor = |bytes: &[u8]| text_of(4, &short_string(bytes));
    let cases: &[(&[u8], &str)] = &[
        (&[0xf6], "null"),
        (&[0xf5], "true"),
        (&[0x17], "23"),
        (&[0x18, 200], "200"),
        (&[0x20], "-1"),
        (&[0x39, 0x03, 0xe7], "-1000"),
        (
            &[0x1b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            "18446744073709551615",
        ),
        (
            &[0x3b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            "-9223372036854775808",
        ),
        (&[0xf9, 0x3e, 0x00], "1.5"),
        (&[0xfa, 0x47, 0xc3, 0x50, 0x00], "100000.0"),
        (
            &[0xfb, 0x3f, 0xb9, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9a],
            "0.1",
        ),
        (&[0xf9, 0x7c, 0x00], "null"),
        (&[0x63, b'a', b'"', b'\n'], r#""a\"\n""#),
        (&[0x82, 0x01, 0x80], "[1,[]]"),
        (
            &[0xa2, 0x61, b'b', 0x01, 0x61, b'a', 0xa0],
            r#"{"b":1,"a":{}}"#,
        ),
        (&[0xd8, 64, 0x43, 0, 1, 255], "[0,1,255]"),
        (&[0xd8, 72, 0x42, 1, 255], "[1,-1]"),
        (&[0xd8, 69, 0x42, 0, 1], "[256]"),
        (&[0xd8, 77, 0x42, 0xff, 0xff], "[-1]"),
        (&[0xd8, 78, 0x44, 0xfe, 0xff, 0xff, 0xff], "[-2]"),
        (&[0xd8, 70, 0x44, 0xff, 0xff, 0xff, 0xff], "[4294967295]"),
        (
            &[
                0xd8, 79, 0x48, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            ],
            "[-1]",
        ),
        (&[0xd8, 71, 0x48, 1, 0, 0, 0, 0, 0, 0, 0], "[1]"),
        // Numbers of 16 and 32 bits have the fewest digits that tell them apart.
        (
            &[0xd8, 84, 0x46, 0xcd, 0xb4, 0x66, 0x2e, 0x00, 0x00],
            "[-0.3,0.1,0.0]",
        ),
        (&[0xda, 0, 1, 0, 0, 0x42, 0xcd, 0x3d], "[0.1]"),
        (&[0xd8, 85, 0x44, 0xcd, 0xcc, 0xcc, 0x3d], "[0.1]"),
        (&[0xd8, 86, 0x48, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f], "[1.5]"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(cbor(bytes).as_deref(), Ok(*expected), "{bytes:x?}");
    }
    let deep = [0x81].repeat(60);
    for wrong in [
        &[][..],
        &[0x18],
        &[0x1c],
        &[0x9f, 0xff],
        &[0x61, 0xff],
        &[0x62, b'a'],
        &[0x41, 1],
        &[0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0x3b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0xa1, 0x01, 0x01],
        &[0x01, 0x01],
        &[0xd8, 64, 0x01],
        &[0xd8, 65, 0x41, 1],
        &[0xd8, 70, 0x43, 1, 2, 3],
        &[0xf7],
        &deep,
    ] {
        assert!(cbor(wrong).is_err(), "{wrong:x?}");
    }
    let too_deep = [&[0x81].repeat(5000)[..], &[0xf6]].concat();
    let string = [&[5, 0x40 | 19, 0x89][..], &too_deep].concat();
    assert!(text_of(4, &string).is_err());
}

#[test]
fn every_number_of_16_bits_is_told_from_others() {
    for bits in (0..0x7c00u16).step_by(7) {
        let [low, high] = bits.to_le_bytes();
        let text = text_of(4, &short_string(&[0xd8, 84, 0x42, low, high])).expect("it is a number");
        let digits: f64 = text
            .trim_matches(['[', ']'])
            .parse()
            .expect("it is a number");
        let nearest = (bits.saturating_sub(1)..=bits + 1)
            .filter(|other| *other < 0x7c00)
            .min_by(|a, b| {
                let distance = |bits: u16| (cbor::half(bits) - digits).abs();
                distance(*a).total_cmp(&distance(*b))
            });
        assert_eq!(nearest, Some(bits), "{text}");
    }
}

#[test]
fn what_is_written_is_read_again() {
    for text in [
        "null",
        "[]",
        r#"{"a":[1,-2.5,"ü\n",true,{"b":{}}]}"#,
        "1e300",
        "\"\"",
    ] {
        let entry = entry_of(b"key", document(text.as_bytes()).expect("it is JSON"));
        let mut writer = Writer::new(Form::Whole, false);
        write(entry.view(), &mut writer);
        let (bytes, _) = writer.finish();
        assert_eq!(bytes[0], types::MODULE_2);
        let again = read_all(&bytes[1..]).expect("it was written");
        let expected = String::from_utf8(JsonRef::of(entry.view()).text()).unwrap();
        assert_eq!(again, expected);
        for cut in 1..bytes.len() {
            let short = read_all_or_none(&bytes[1..cut]);
            assert!(short.is_err(), "{text} cut at {cut}");
        }
    }
}

fn read_all_or_none(bytes: &[u8]) -> Result<(), Malformed> {
    let mut reader = reader::Reader::new(bytes, 1 << 20);
    let number = reader.length()?;
    read(number, b"key", &mut reader).map(drop)
}

#[test]
fn any_bytes_are_a_document_or_none() {
    let words: &[&[u8]] = &[
        &[2, 1],
        &[2, 2],
        &[2, 4],
        &[2, 8],
        &[2, 0x10],
        &[2, 0x20],
        &[2, 0x40, 0x40],
        &[2, 0x40, 0x80],
        &[1, 5],
        &[5, 1, b'1'],
        &[5, 2, b'[', b']'],
        &[5, 4, 0x82, 1, 0x81, 2],
        &[5, 3, 0xd8, 64, 0x41],
        &[4, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0],
        &[0x81],
        &[0xff; 8],
        &[5, 3, 0xa1, 0x61, 0x61],
        &[0xf9, 1, 2],
    ];
    let mut random = Random::new(7);
    for _ in 0..if cfg!(miri) { 20 } else { 20_000 } {
        let mut bytes = number(random.below(5));
        for _ in 0..random.below(12) {
            bytes.extend_from_slice(words[random.index(words.len())]);
        }
        let _ = read_all_or_none(&bytes);
    }
}
