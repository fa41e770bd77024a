//! Documents compared with texts, with a naive model, and after random changes.

use super::edit::{self, Fate};
use super::print::Format;
use super::{JsonRef, JsonView, Number, PackedScalar, Problem, packed_text, parse};
use basalt_core::base::random::Random;

/// Returns the text of a parsed text.
fn again(text: &str) -> String {
    let doc = parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(JsonRef::root(&doc).bytes().len(), doc.len(), "{text}");
    String::from_utf8(JsonRef::root(&doc).text()).expect("UTF-8")
}

#[test]
fn values_come_back_as_they_were_written() {
    let long = "x".repeat(300);
    let huge = "y".repeat(70_000);
    for text in [
        "null",
        "true",
        "false",
        "0",
        "31",
        "32",
        "-1",
        "127",
        "-128",
        "128",
        "40000",
        "-40000",
        "3000000000",
        "-3000000000",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "1.0",
        "0.5",
        "-0.5",
        "-0.0",
        "0.0001",
        "0.00001",
        "1234567.891",
        "-122.4194155",
        "1700000000.123",
        "1e16",
        "1.5e300",
        "1e-7",
        "1.6350000000001313e308",
        "\"\"",
        "\"a\"",
        "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f/\"",
        "\"hyvää-élève ⭐\"",
        "[]",
        "{}",
        "[1,2,[3,[]],{}]",
        "{\"a\":1,\"b\":{\"c\":[true,null]}}",
        &format!("\"{long}\""),
        &format!("[\"{huge}\",\"{long}\"]"),
        &format!("{{\"{long}\":\"{huge}\"}}"),
    ] {
        assert_eq!(again(text), text);
    }
}

#[test]
fn numbers_are_printed_in_their_shortest_form() {
    for (text, printed) in [
        ("1.50", "1.5"),
        ("1.000", "1.0"),
        ("0.0", "0.0"),
        ("-0", "-0.0"),
        ("1e2", "100.0"),
        ("1E+2", "100.0"),
        ("1e20", "1e20"),
        ("123456789012345678", "123456789012345678"),
        ("18446744073709551616", "1.8446744073709552e19"),
        ("-9223372036854775809", "-9.223372036854776e18"),
        ("1234567890123456.7", "1234567890123456.8"),
        ("0.000001", "1e-6"),
        ("0.1e1", "1.0"),
        ("1.7976931348623157e308", "1.7976931348623157e308"),
    ] {
        assert_eq!(again(text), printed, "{text}");
    }
    // A decimal is exactly the float that its text is, and is printed as that float is.
    let mut random = Random::new(7);
    for _ in 0..20_000 {
        let digits = random.below(1 << 40);
        let behind = 1 + random.below(14) as usize;
        let digits = format!("{digits:0>width$}", width = behind + 1);
        let text = format!(
            "{}.{}",
            &digits[..digits.len() - behind],
            &digits[digits.len() - behind..]
        );
        let float: f64 = text.parse().expect("a float");
        let doc = parse(text.as_bytes()).expect("a number");
        assert_eq!(
            JsonRef::root(&doc).view(),
            JsonView::Number(Number::Float(float))
        );
        let printed = JsonRef::root(&doc).text();
        assert_eq!(
            printed,
            ryu::Buffer::new().format_finite(float).as_bytes(),
            "{text}"
        );
        assert_eq!(
            PackedScalar::number(Number::Float(float)).as_bytes(),
            doc,
            "{text}"
        );
    }
}

#[test]
fn the_last_of_repeated_names_counts_in_the_place_of_the_first() {
    assert_eq!(again(r#"{"a":1,"b":2,"a":[3]}"#), r#"{"a":[3],"b":2}"#);
    assert_eq!(
        again(r#"{"a":{"x":1,"x":2},"a":{"y":1,"y":3}}"#),
        r#"{"a":{"y":3}}"#
    );
    let members = |from: usize| (0..100).map(move |at| format!("\"k{at}\":{}", from + at));
    let twice: Vec<String> = members(0).chain(members(1000)).collect();
    let once: Vec<String> = members(1000).collect();
    assert_eq!(
        again(&format!("{{{}}}", twice.join(","))),
        format!("{{{}}}", once.join(","))
    );
}

#[test]
fn bad_texts_are_refused_where_they_go_wrong() {
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert_eq!(again(&deep(127)), deep(127));
    for (text, problem, at) in [
        ("", Problem::End, 0),
        ("  ", Problem::End, 2),
        ("{", Problem::End, 1),
        ("[1,", Problem::End, 3),
        ("\"a", Problem::End, 2),
        ("tru", Problem::End, 3),
        ("-", Problem::End, 1),
        ("1.", Problem::End, 2),
        ("1e", Problem::End, 2),
        ("}", Problem::NoValue, 0),
        ("nil", Problem::BadWord, 1),
        ("NaN", Problem::NoValue, 0),
        ("[1 2]", Problem::NoComma, 3),
        ("[1,]", Problem::TrailingComma, 3),
        ("{\"a\":1,}", Problem::TrailingComma, 7),
        ("{a:1}", Problem::NoName, 1),
        ("{\"a\" 1}", Problem::NoColon, 5),
        ("1 1", Problem::Trailing, 2),
        ("01", Problem::BadNumber, 1),
        ("1.a", Problem::BadNumber, 2),
        ("-a", Problem::BadNumber, 1),
        ("1e400", Problem::HugeNumber, 5),
        ("\"\n\"", Problem::Control, 1),
        ("\"\\x\"", Problem::BadEscape, 2),
        ("\"\\u12g4\"", Problem::BadEscape, 5),
        ("\"\\ud800\"", Problem::LoneSurrogate, 7),
        ("\"\\ud800\\u0041\"", Problem::LoneSurrogate, 13),
        ("\"\\udc00\"", Problem::LoneSurrogate, 7),
        (&deep(128), Problem::Deep, 127),
    ] {
        let error = parse(text.as_bytes()).expect_err(text);
        assert_eq!((error.problem, error.at), (problem, at), "{text}");
    }
    let error = parse(b"{\n  \"a\": 1,\n  b}").expect_err("no name");
    assert_eq!((error.line, error.column), (3, 3));
    assert_eq!(
        parse(b"\"\xff\"").expect_err("bytes").problem,
        Problem::NotUtf8
    );
    assert_eq!(again("\"\\ud83d\\ude00\""), "\"😀\"");
}

#[test]
fn texts_are_set_out_in_lines_if_asked() {
    let doc = parse(br#"{"a":[1,{}],"b":[]}"#).expect("a document");
    let format = Format {
        indent: b"\t",
        newline: b"\n",
        space: b" ",
    };
    let mut text = Vec::new();
    JsonRef::root(&doc).print_at(&format, 0, &mut text);
    let expected = "{\n\t\"a\": [\n\t\t1,\n\t\t{}\n\t],\n\t\"b\": []\n}";
    assert_eq!(String::from_utf8_lossy(&text), expected);
}

/// A value of the model.
#[derive(Clone, Debug, PartialEq)]
enum Model {
    Number(i64),
    Text(String),
    Array(Vec<Model>),
    Object(Vec<(String, Model)>),
}

impl Model {
    fn random(random: &mut Random, depth: usize) -> Model {
        match random.below(if depth == 0 { 2 } else { 4 }) {
            0 => Model::Number(random.below(100_000) as i64 - 50_000),
            1 => Model::Text("t".repeat(random.below(60) as usize)),
            2 => {
                let len = random.below(6);
                Model::Array((0..len).map(|_| Model::random(random, depth - 1)).collect())
            }
            _ => {
                let len = random.below(6);
                let member = |at| (format!("k{at}"), Model::random(random, depth - 1));
                Model::Object((0..len).map(member).collect())
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Model::Number(number) => number.to_string(),
            Model::Text(text) => format!("\"{text}\""),
            Model::Array(values) => {
                let values: Vec<String> = values.iter().map(Model::text).collect();
                format!("[{}]", values.join(","))
            }
            Model::Object(members) => {
                let member =
                    |(name, value): &(String, Model)| format!("\"{name}\":{}", value.text());
                let members: Vec<String> = members.iter().map(member).collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }

    /// Calls `change` for every value but the root, deepest first; those for which it returns false are removed.
    fn change(&mut self, change: &mut dyn FnMut(&mut Model) -> bool) {
        match self {
            Model::Array(values) => values.retain_mut(|value| {
                value.change(change);
                change(value)
            }),
            Model::Object(members) => members.retain_mut(|(_, value)| {
                value.change(change);
                change(value)
            }),
            _ => {}
        }
    }
}

/// Returns the offsets of all values but the root, in the order of [`Model::change`].
fn offsets(value: JsonRef<'_>, root: JsonRef<'_>, found: &mut Vec<usize>) {
    let children = value
        .elements()
        .chain(value.members().map(|(_, value)| value));
    for child in children {
        offsets(child, root, found);
        found.push(child.offset_in(root));
    }
}

#[test]
fn changes_of_random_documents_are_those_of_the_model() {
    let mut random = Random::new(11);
    for _ in 0..3_000 {
        let mut model = Model::random(&mut random, 5);
        let mut doc = parse(model.text().as_bytes()).expect("a document");
        let mut all = Vec::new();
        offsets(JsonRef::root(&doc), JsonRef::root(&doc), &mut all);
        // One value, few, or many.
        let odds = [1 + all.len() as u64, 8, 2][random.below(3) as usize];
        // For each value: whether it changes, and how.
        let plan: Vec<Option<u64>> = all
            .iter()
            .map(|_| (random.below(odds) == 0).then(|| random.below(5)))
            .collect();
        let long = "z".repeat(random.below(400) as usize);
        let chosen = all.iter().zip(&plan).filter(|(_, plan)| plan.is_some());
        let targets: Vec<usize> = chosen.map(|(at, _)| *at).collect();
        let kinds: Vec<u64> = plan.iter().flatten().copied().collect();
        let added = parse(b"[7]").expect("a value");
        if targets.is_empty() {
            continue;
        }
        edit::change_all(&mut doc, &targets, &mut |number, doc, spot| {
            let value = JsonRef::root(&doc.bytes()[spot.at..]);
            let (view, len) = (value.view(), value.len());
            match (kinds[number], view) {
                (0, _) => return Fate::Goes,
                (1, _) => edit::replace(doc, spot, &packed_text(long.as_bytes())),
                (2, JsonView::Array) => edit::insert_elements(doc, spot, len / 2, &added, 1),
                (3, JsonView::Array) => edit::remove_elements(doc, spot, len / 3..len / 2),
                (4, JsonView::Object) => edit::push_member(doc, spot, b"new", &added),
                _ => {}
            }
            Fate::Stays
        });
        let mut next = plan.iter();
        model.change(&mut |value| {
            let kind = next.next().copied().flatten();
            let seven = || Model::Array(vec![Model::Number(7)]);
            match (kind, &mut *value) {
                (Some(0), _) => return false,
                (Some(1), value) => *value = Model::Text(long.clone()),
                (Some(2), Model::Array(values)) => values.insert(values.len() / 2, seven()),
                (Some(3), Model::Array(values)) => {
                    drop(values.drain(values.len() / 3..values.len() / 2));
                }
                (Some(4), Model::Object(members)) => members.push(("new".into(), seven())),
                _ => {}
            }
            true
        });
        let text = String::from_utf8(JsonRef::root(&doc).text()).expect("UTF-8");
        assert_eq!(text, model.text());
        // An edited document equals a parsed one, but for the widths of headers.
        let fresh = parse(text.as_bytes()).expect("a document");
        assert_eq!(JsonRef::root(&fresh).depth(), JsonRef::root(&doc).depth());
    }
}

#[test]
fn typical_documents_take_less_than_their_text() {
    let member = |at: usize| {
        format!(
            "{{\"id\":{},\"name\":\"Product {at}\",\"price\":{}.99,\"inStock\":true,\"tags\":[\"a{at}\",\"red\"],\
             \"created\":\"2024-05-0{}T12:00:00Z\",\"rating\":4.5,\"dimensions\":{{\"w\":10.5,\"h\":20}}}}",
            1000 + at,
            at * 7 + 10,
            at % 9 + 1,
        )
    };
    for count in [5, 10, 40] {
        let members: Vec<String> = (0..count).map(member).collect();
        let text = format!("{{\"total\":{count},\"items\":[{}]}}", members.join(","));
        let doc = parse(text.as_bytes()).expect("a document");
        assert!(
            doc.len() * 100 <= text.len() * 85,
            "{} of {}",
            doc.len(),
            text.len()
        );
    }
}
