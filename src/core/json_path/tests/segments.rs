//! Segments: names, indices, slices, wildcards, `..`, and the locations of what they find.

use super::super::{Location, Step, without_descendants};
use super::{Budget, document, expect, program};

#[test]
fn names_lead_to_members() {
    let text = r#"{"a":{"b":1,"c d":2,"":3,"ü":4},"in-stock":5,"a+1":6,"$x":7,"size":8}"#;
    expect(
        text,
        &[
            ("$.a.b", "[1]"),
            ("$['a']['b']", "[1]"),
            (r#"$["a"].b"#, "[1]"),
            (r#"$.["a"].["b"]"#, "[1]"),
            (r#"$.a["c d"]"#, "[2]"),
            (r#"$.a[""]"#, "[3]"),
            ("$.a.ü", "[4]"),
            ("$.in-stock", "[5]"),
            ("$.a+1", "[6]"),
            ("$.size", "[8]"),
            ("$.missing", "[]"),
            ("$.a.b.c", "[]"),
            ("$.a[0]", "[]"),
            ("a.b", "[1]"),
            (".a.b", "[1]"),
            (r#"["a"]["b"]"#, "[1]"),
            (r#"a["b"]"#, "[1]"),
            ("$x", "[7]"),
            (".$x", "[7]"),
            ("-$x", "[]"),
        ],
    );
    expect(
        text,
        &[("$", &format!("[{text}]")), (".", &format!("[{text}]"))],
    );
}

#[test]
fn quoted_names_have_escapes() {
    expect(
        r#"{"\\":1,"\\\\":2,"\"":3,"'":4,"\\\"":5,"\n":6,"é":7,"😀":8,"a\tb":9,"\\x":10}"#,
        &[
            (r#"$["\\"]"#, "[1]"),
            (r#"$["\\\\"]"#, "[2]"),
            (r#"$["\""]"#, "[3]"),
            (r#"$['"']"#, "[3]"),
            (r#"$["'"]"#, "[4]"),
            (r"$['\'']", "[4]"),
            (r#"$["\\\""]"#, "[5]"),
            (r#"$["\n"]"#, "[6]"),
            ("$[\"\n\"]", "[6]"),
            (r#"$["\u00e9"]"#, "[7]"),
            (r#"$["\ud83d\ude00"]"#, "[8]"),
            ("$[\"a\tb\"]", "[9]"),
            (r"$['\x']", "[10]"),
            (r#"$["\x"]"#, "[10]"),
        ],
    );
}

#[test]
fn indices_count_from_either_end() {
    expect(
        "[0,1,2,3,4,5,6,7,8,9]",
        &[
            ("$[0]", "[0]"),
            ("$[-1]", "[9]"),
            ("$[-10]", "[0]"),
            ("$[-11]", "[]"),
            ("$[10]", "[]"),
            ("$[99999999999999999999]", "[]"),
            ("$[-99999999999999999999]", "[]"),
            ("$[+1]", "[1]"),
            ("$.[1]", "[1]"),
            ("[1]", "[1]"),
            (".[1]", "[1]"),
            ("$[ 1 ]", "[1]"),
            ("$[0,1,2]", "[0,1,2]"),
            ("$[-10 , -5, -6,-1000,1000]", "[0,5,4]"),
            ("$[0,0,1]", "[0,0,1]"),
            ("$.a", "[]"),
        ],
    );
}

#[test]
fn slices_have_steps() {
    expect(
        "[0,1,2,3,4,5,6,7,8,9]",
        &[
            ("$[0:3]", "[0,1,2]"),
            ("$[:3]", "[0,1,2]"),
            ("$[7:]", "[7,8,9]"),
            ("$[:]", "[0,1,2,3,4,5,6,7,8,9]"),
            ("$[::]", "[0,1,2,3,4,5,6,7,8,9]"),
            ("$[::3]", "[0,3,6,9]"),
            ("$[1:8:3]", "[1,4,7]"),
            ("$[2:-2]", "[2,3,4,5,6,7]"),
            ("$[-3:]", "[7,8,9]"),
            ("$[-30:2]", "[0,1]"),
            ("$[5:2]", "[]"),
            ("$[1:1]", "[]"),
            ("$[ 0 : +8 : +2 ]", "[0,2,4,6]"),
            ("$[6:0:-1]", "[6,5,4,3,2,1]"),
            ("$[8:0:-3]", "[8,5,2]"),
            ("$[6::-1]", "[]"),
            ("$[-1:-4:-1]", "[9,8,7]"),
            ("$[0:9223372036854775807:9223372036854775807]", "[0]"),
            ("$[-40000000000000000000:]", "[0,1,2,3,4,5,6,7,8,9]"),
            ("$[9:-40000000000000000000:-9223372036854775808]", "[9]"),
        ],
    );
    expect(
        "[]",
        &[("$[:]", "[]"), ("$[5:0:-1]", "[]"), ("$[-1]", "[]")],
    );
    expect(r#"{"a":1}"#, &[("$[:]", "[]")]);
}

#[test]
fn unions_and_wildcards_keep_their_order() {
    expect(
        r#"{"b":[1,{"x":2}],"a":{"y":3},"c":4}"#,
        &[
            (r#"$["c","b","c"]"#, r#"[4,[1,{"x":2}],4]"#),
            (r#"$[ "a" , 'c' ].y"#, "[3]"),
            ("$.*", r#"[[1,{"x":2}],{"y":3},4]"#),
            ("$[*]", r#"[[1,{"x":2}],{"y":3},4]"#),
            ("$.*.*", r#"[1,{"x":2},3]"#),
            ("*", r#"[[1,{"x":2}],{"y":3},4]"#),
            (".b.*", r#"[1,{"x":2}]"#),
            ("$.c.*", "[]"),
        ],
    );
}

#[test]
fn descent_visits_a_value_before_those_below_it() {
    expect(
        r#"{"a":{"a":{"a":1}},"b":[{"a":2},[{"a":3}]]}"#,
        &[
            ("$..a", r#"[{"a":{"a":1}},{"a":1},1,2,3]"#),
            ("$..a..a", r#"[{"a":1},1,1]"#),
            (r#"$..["a"]"#, r#"[{"a":{"a":1}},{"a":1},1,2,3]"#),
            ("$..[0]", r#"[{"a":2},{"a":3}]"#),
            ("$..b[1][0].a", "[3]"),
            ("..a", r#"[{"a":{"a":1}},{"a":1},1,2,3]"#),
            ("$.b..a", "[2,3]"),
            ("$.b..*", r#"[{"a":2},[{"a":3}],2,{"a":3},3]"#),
            ("$..[0,1].a", "[2,3]"),
        ],
    );
}

#[test]
fn locations_say_where_matches_are() {
    let document = document(r#"{"a":[{"b":1},{"b":2}]}"#);
    let locate = |path: &str| {
        program(path)
            .locate(&document, &mut Budget::new())
            .expect("it is a small document")
    };
    let (a, b) = (
        Step::Key(b"a".as_slice().into()),
        Step::Key(b"b".as_slice().into()),
    );
    assert_eq!(locate("$"), [Location::new()]);
    assert_eq!(
        locate("$.a[-1].b"),
        [vec![a.clone(), Step::Index(1), b.clone()]]
    );
    assert_eq!(
        locate("$..b"),
        [
            vec![a.clone(), Step::Index(0), b.clone()],
            vec![a.clone(), Step::Index(1), b.clone()],
        ]
    );
    let all = locate("$..*");
    assert_eq!(all.len(), 5);
    assert_eq!(without_descendants(all), [vec![a.clone()]]);
    let elements = without_descendants(locate("$.a[1,0,1]"));
    assert_eq!(
        elements,
        [vec![a.clone(), Step::Index(0)], vec![a, Step::Index(1)]]
    );
    assert_eq!(without_descendants(Vec::new()), Vec::<Location>::new());
}

#[test]
fn siblings_with_a_common_beginning_are_no_descendants() {
    let key = |key: &str| Step::Key(key.as_bytes().into());
    let locations = vec![
        vec![key("ab")],
        vec![key("a"), key("x")],
        vec![key("a")],
        vec![key("a"), Step::Index(1)],
        vec![key("b"), Step::Index(10)],
        vec![key("b"), Step::Index(9)],
    ];
    assert_eq!(
        without_descendants(locations),
        [
            vec![key("a")],
            vec![key("ab")],
            vec![key("b"), Step::Index(9)],
            vec![key("b"), Step::Index(10)],
        ]
    );
}
