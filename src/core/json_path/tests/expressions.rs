//! Filters and projections.

use super::{Budget, document, expect, found, program};

#[test]
fn comparisons_select_scalars() {
    let text = r#"[1,2.0,"a","b",true,false,null,[1],{"k":1}]"#;
    expect(
        text,
        &[
            ("$[?@ == 1]", "[1]"),
            ("$[?@ == 1.0]", "[1]"),
            ("$[?@ == 2]", "[2.0]"),
            ("$[?(@ > 1)]", "[2.0]"),
            ("$[?@ >= 1]", "[1,2.0]"),
            ("$[?@ < 2]", "[1]"),
            ("$[?@<=2.0e0]", "[1,2.0]"),
            ("$[?@ == 'a']", r#"["a"]"#),
            (r#"$[?@ > "a"]"#, r#"["b"]"#),
            (r#"$[?"a" <= @]"#, r#"["a","b"]"#),
            ("$[?@ == true]", "[true]"),
            ("$[?@ != true]", r#"[1,2.0,"a","b",false,null,[1],{"k":1}]"#),
            ("$[?@ == null]", "[null]"),
            ("$[?@ <= null]", "[null]"),
            ("$[?@ == [1]]", "[[1]]"),
            ("$[?@ == [1.0]]", "[[1]]"),
            (r#"$[?@ == {"k":1}]"#, r#"[{"k":1}]"#),
            ("$[?@ < [2]]", "[]"),
            ("$[?@ == -1]", "[]"),
            ("$[?@.k == 1]", r#"[{"k":1}]"#),
            ("$[?@[0] == 1]", "[[1]]"),
            ("$[?@ == @]", text),
        ],
    );
}

#[test]
fn missing_operands_equal_nothing() {
    expect(
        r#"[{"a":1},{"b":1}]"#,
        &[
            ("$[?@.a == @.c]", "[]"),
            ("$[?@.a != 1]", r#"[{"b":1}]"#),
            ("$[?@.x == @.y]", "[]"),
            ("$[?@.x != @.y]", r#"[{"a":1},{"b":1}]"#),
            ("$[?@.a < 2]", r#"[{"a":1}]"#),
        ],
    );
}

#[test]
fn conditions_combine() {
    let text = r#"[{"t":true,"f":false,"one":1},{"t":true,"f":false,"one":3}]"#;
    expect(
        text,
        &[
            ("$[?@.f==true || @.one==1 && @.t==false]", "[]"),
            ("$[?@.f==true || @.one==1 && @.t==true].one", "[1]"),
            ("$[?@.t==true && @.one==1 || @.t==true].one", "[1,3]"),
            ("$[?(@.f==true && @.t==false || @.one==1)].one", "[1]"),
            ("$[?(@.f==true && (@.t==false || @.one==1))].one", "[]"),
            ("$[?((((@.one==3))))].one", "[3]"),
            ("$[?!@.one==1].one", "[3]"),
            ("$[?!(@.one==1)].one", "[3]"),
            ("$[?!!(@.one==1)].one", "[1]"),
            ("$[?!@.two && @.one == 1].one", "[1]"),
            ("$[?@one==1].one", "[1]"),
            ("$[?@.f].one", "[1,3]"),
            ("$[?@.two]", "[]"),
            ("$[?true].one", "[1,3]"),
            ("$[?false].one", "[]"),
        ],
    );
    expect(
        r#"{"a":{"x":1},"b":{"x":2}}"#,
        &[("$[?@.x > 1]", r#"[{"x":2}]"#), ("$.a[?@ == 1]", "[1]")],
    );
}

#[test]
fn paths_in_filters_start_at_the_value_or_the_document() {
    expect(
        r#"{"limit":10,"allowed":[1,3],"items":[{"id":1,"v":[5,20]},{"id":2,"v":[7]},{"id":3,"v":[]}]}"#,
        &[
            ("$.items[?@.v[0] < $.limit].id", "[1,2]"),
            ("$.items[?@.v[*] > $.limit].id", "[1]"),
            ("$.items[?$.limit < @.v[*]].id", "[1]"),
            ("$.items[?@.id == $.allowed[*]].id", "[1,3]"),
            ("$.items[?@.id in $.allowed].id", "[1,3]"),
            ("$.items[?@.v[?@ > 6]].id", "[1,2]"),
            ("$.items[?@..v].id", "[1,2,3]"),
            ("$..[?@.id == 2].v[0]", "[7]"),
            ("$.items[?count(@.v[*]) == 2].id", "[1]"),
            ("$.items[?@.v.length() == 0].id", "[3]"),
        ],
    );
}

#[test]
fn regular_expressions_match() {
    expect(
        r#"{"p":"^b","l":["abc","xabc","a","b",5,"ÄB"],"r":[{"s":"abc","a":"a","b":"b"},{"s":"x","a":"a","b":"b"}]}"#,
        &[
            (r#"$.l[?@ =~ "b"]"#, r#"["abc","xabc","b"]"#),
            (r#"$.l[?@ =~ "^A.*"]"#, "[]"),
            (r#"$.l[?@ =~ "(?i)^[aä]"]"#, r#"["abc","a","ÄB"]"#),
            (r#"$.l[?@ =~ "^\\w+$"]"#, r#"["abc","xabc","a","b","ÄB"]"#),
            ("$.l[?@ =~ $.p]", r#"["b"]"#),
            (r#"$.l[?@ =~ "("]"#, "[]"),
            (r#"$.l[?match(@, "a.*")]"#, r#"["abc","a"]"#),
            (r#"$.l[?search(@, "b")]"#, r#"["abc","xabc","b"]"#),
            (r#"$.l[?!search(@, "b")]"#, r#"["a",5,"ÄB"]"#),
            (r#"$.r[?@.s =~ concat(@.a, @.b)].s"#, r#"["abc"]"#),
            (r#"$.r[?@.* =~ "x"].s"#, r#"["x"]"#),
            (r#"$.l[?match(@)]"#, "[]"),
        ],
    );
}

#[test]
fn sets_and_sizes_compare() {
    expect(
        r#"{"a":[1,2,3,4],"s":[[1,2],[1,9],[],[7]],"t":["ab","abc",[1,2],{"x":1,"y":2},5,""],"m":[{"v":2,"w":[2,3]},{"v":2,"w":5}]}"#,
        &[
            ("$.a[?@ in [2,4]]", "[2,4]"),
            ("$.a[?@ in [2.0]]", "[2]"),
            ("$.a[?@ nin [2,4]]", "[1,3]"),
            ("$.a[?@ nin @.missing]", "[1,2,3,4]"),
            ("$.s[?@ in [[7]]]", "[[7]]"),
            ("$.s[?@ subsetof [1,2,3]]", "[[1,2],[]]"),
            ("$.s[?@ anyof [1,2,3]]", "[[1,2],[1,9]]"),
            ("$.s[?@ noneof [1,2,3]]", "[[],[7]]"),
            ("$.t[?@ sizeof 2]", r#"["ab",[1,2],{"x":1,"y":2}]"#),
            ("$.t[?@ size 2.9]", r#"["ab",[1,2],{"x":1,"y":2}]"#),
            ("$.t[?@ empty true]", r#"[""]"#),
            ("$.s[?@ empty false]", "[[1,2],[1,9],[7]]"),
            ("$.m[?@.v in @.w].v", "[2]"),
            ("$.m[?@.v nin @.w].w", "[5]"),
            (r#"$.t[?@.keys() anyof ["x"]]"#, r#"[{"x":1,"y":2}]"#),
            (r#"$.t[?@.keys() sizeof 2]"#, r#"[{"x":1,"y":2}]"#),
            (r#"$.t[?@.keys() == "y"]"#, r#"[{"x":1,"y":2}]"#),
            ("$.t[?@.keys()]", r#"[{"x":1,"y":2}]"#),
        ],
    );
}

#[test]
fn numbers_compute() {
    expect(
        r#"[{"a":2,"b":3},{"a":5,"b":2.5}]"#,
        &[
            ("$[?@.a + 1 == 3].a", "[2]"),
            ("$[?@.a - 1 == 4].a", "[5]"),
            ("$[?@.a + @.b * 2 == 8].a", "[2]"),
            ("$[?(@.a + @.b) * 2 == 10].a", "[2]"),
            ("$[?@.a / 2 == 2.5].a", "[5]"),
            ("$[?@.a % 2 == 0].a", "[2]"),
            ("$[?-@.a == -5].a", "[5]"),
            ("$[?+@.a == 5].a", "[5]"),
            ("$[?@.a / 0 == 0].a", "[]"),
            ("$[?@.a % 0 == 0].a", "[]"),
            ("$[?@ - 1 == 4].a", "[]"),
            ("$[?1 + 1 == @.a].a", "[2]"),
        ],
    );
}

#[test]
fn projections_compute_one_value() {
    let text = r#"{"a":2,"b":4,"arr":[1,2,3],"nums":[3,1,2],"s":"hié","n":-5,"f":1.5,"big":1e308,
        "max":9223372036854775807,"obj":{"x":1,"y":2},"mixed":[1,"x"],"books":[{"t":"a","price":30},{"t":"b","price":5}]}"#;
    expect(
        text,
        &[
            ("$.a + 1", "[3]"),
            ("a + 1", "[3]"),
            ("$.a * $.b", "[8]"),
            ("($.a + $.b) / 2", "[3.0]"),
            ("$.a - $.b - 1", "[-3]"),
            ("-$.a", "[-2]"),
            ("- $.a", "[-2]"),
            ("$.max + 1", "[9.223372036854776e18]"),
            ("$.big * $.big", "[]"),
            ("$.a / 0", "[]"),
            ("$.s * 2", "[]"),
            ("$.missing + 1", "[]"),
            ("$..a + 1", "[3]"),
            ("$.arr[*] + 1", "[]"),
            ("$.arr.length()", "[3]"),
            ("$.s.length()", "[3]"),
            ("$.obj.length()", "[2]"),
            ("$.a.length()", "[]"),
            ("$.arr.length(99)", "[]"),
            ("$.length($.arr)", "[]"),
            ("length($.arr)", "[3]"),
            ("length ( $.arr )", "[3]"),
            ("$.a.bogus()", "[]"),
            ("$.nums.min()", "[1.0]"),
            ("$.nums.max()", "[3.0]"),
            ("$.nums.sum()", "[6.0]"),
            ("$.nums.avg()", "[2.0]"),
            ("stddev([2,4,4,4,5,5,7,9])", "[2.0]"),
            ("$.mixed.sum()", "[]"),
            ("$.a.sum()", "[]"),
            ("sum([])", "[]"),
            ("abs($.n)", "[5]"),
            ("ceiling($.f)", "[2]"),
            ("floor($.f)", "[1]"),
            ("floor($.big)", "[]"),
            ("$.arr.index(1)", "[2]"),
            ("$.arr.index(-1)", "[3]"),
            ("$.arr.index(1.9)", "[2]"),
            ("$.arr.index(3)", "[]"),
            ("$.arr.first()", "[1]"),
            ("$.arr.last() + 1", "[4]"),
            ("([9,8].index(0))", "[9]"),
            ("concat($.s, '!')", r#"["hié!"]"#),
            ("concat($.s, 1)", "[]"),
            ("concat()", "[]"),
            ("count($.arr[*])", "[3]"),
            ("count($.missing)", "[0]"),
            ("value($.arr)", "[[1,2,3]]"),
            ("value($.arr[*])", "[]"),
            ("$.obj~", r#"["x","y"]"#),
            ("$.obj.keys()", r#"["x","y"]"#),
            ("$.obj.keys().count()", "[2]"),
            ("$.obj.keys().index(1)", r#"["y"]"#),
            ("$.arr~", "[]"),
            ("$.books[*]~", r#"["t","price","t","price"]"#),
            ("$.arr.append(9)", "[1,2,3,9]"),
            ("$.arr[*].append(9)", "[1,2,3,9]"),
            ("$.arr.append(9).sum()", "[15.0]"),
            ("$.arr.append(8).append(9)", "[1,2,3,8,9]"),
            ("$.a.append(9)", "[2,9]"),
            ("$.missing.append(9)", "[9]"),
            ("$.arr.append($.missing)", "[]"),
            (
                r#"$.books[?@.price >= 10].append({"t":"X"})"#,
                r#"[{"t":"a","price":30},{"t":"X"}]"#,
            ),
            ("$.arr.append($.obj.keys())", r#"[1,2,3,["x","y"]]"#),
            ("search($.s, 'h')", "[true]"),
            ("(1 + 2 * 3)", "[7]"),
        ],
    );
}

#[test]
fn compared_numbers_are_exact_where_they_can_be() {
    expect(
        "[9007199254740993,9007199254740992,18446744073709551615.0]",
        &[
            ("$[?@ == 9007199254740993]", "[9007199254740993]"),
            (
                "$[?@ > 9007199254740992]",
                "[9007199254740993,1.8446744073709552e19]",
            ),
        ],
    );
}

#[test]
fn what_a_search_costs_is_counted() {
    let mut text = String::from("[");
    for index in 0..2000 {
        text.push_str(&format!("{}{index}", if index == 0 { "" } else { "," }));
    }
    text.push(']');
    let document = document(&text);
    let mut budget = Budget::new();
    let linear = program("$[?@ == -1]");
    assert_eq!(linear.find(&document, &mut budget), Ok(Vec::new()));
    let linear_steps = Budget::STEPS - budget.left();
    assert!(linear_steps < 20 * 2000, "{linear_steps} steps");
    let quadratic = program("$[?$[?@ == -1]]");
    let mut budget = Budget::new();
    assert_eq!(
        quadratic.find(&document, &mut budget),
        Err(super::PathError::Exhausted)
    );
    assert_eq!(
        found("$[?@ in $]", &super::document("[1,2]")).as_deref(),
        Ok("[1,2]")
    );
}
