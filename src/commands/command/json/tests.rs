//! Replies in both dialects and protocols, events, errors, and random histories against a model.

use crate::command::testing::{Terminal, on_every_setup};
use basalt_core::base::random::Random;
use basalt_core::resp::reply::Protocol;

fn resp2() -> Terminal {
    Terminal::with(2, Protocol::Resp2)
}

fn resp3() -> Terminal {
    Terminal::with(2, Protocol::Resp3)
}

/// Returns the text of a document.
fn doc(cli: &mut Terminal, key: &str) -> String {
    let reply = cli.reply_bytes(&["JSON.GET", key]);
    let text = String::from_utf8(reply).expect("UTF-8");
    let text = text.split_once("\r\n").expect("a string").1;
    text.trim_end_matches("\r\n").to_owned()
}

fn set(cli: &mut Terminal, key: &str, text: &str) {
    assert_eq!(cli.run_args(&["JSON.SET", key, "$", text]), "OK", "{text}");
}

#[test]
fn documents_are_stored_read_and_removed() {
    on_every_setup(|cli| {
        cli.check("JSON.GET d", "(nil)");
        cli.check(
            "JSON.SET d $ '{\"a\":[1,2,{\"b\":null}],\"c\":\"x\"}'",
            "OK",
        );
        assert_eq!(doc(cli, "d"), r#"{"a":[1,2,{"b":null}],"c":"x"}"#);
        cli.check("TYPE d", "ReJSON-RL");
        cli.check("OBJECT ENCODING d", "\"raw\"");
        cli.check("JSON.GET d $.a[2].b", "\"[null]\"");
        cli.check("JSON.GET d .c", r#""\"x\"""#);
        cli.check("JSON.GET d $..none", "\"[]\"");
        cli.check(
            "JSON.GET d $.c .a[0]",
            r#""{\"$.c\":[\"x\"],\".a[0]\":[1]}""#,
        );
        cli.check("JSON.GET d c .a[0]", r#""{\"c\":\"x\",\".a[0]\":1}""#);
        cli.check(
            "JSON.GET d .none",
            "(error) NONEXISTENT Path '.none' does not exist",
        );
        cli.check("JSON.DEL d $.a[0]", "(integer) 1");
        cli.check("JSON.DEL d $.none", "(integer) 0");
        cli.check("JSON.FORGET d .c", "(integer) 1");
        assert_eq!(doc(cli, "d"), r#"{"a":[2,{"b":null}]}"#);
        cli.check("JSON.DEL d", "(integer) 1");
        cli.check("EXISTS d", "(integer) 0");
        cli.check("JSON.DEL d", "(integer) 0");
    });
}

#[test]
fn conditions_and_new_members() {
    on_every_setup(|cli| {
        cli.check("JSON.SET d $ 1 XX", "(nil)");
        cli.check(
            "JSON.SET d $.a 1",
            "(error) SYNTAXERR new objects must be created at the root",
        );
        cli.check("JSON.SET d $ '{\"o\":{}}' NX", "OK");
        cli.check("JSON.SET d $ 1 NX", "(nil)");
        cli.check("JSON.SET d $.o.a 1 XX", "(nil)");
        cli.check("JSON.SET d $.o.a 1 NX", "OK");
        cli.check("JSON.SET d $.o.a 2 NX", "(nil)");
        cli.check("JSON.SET d .o.a [2] XX", "OK");
        cli.check("JSON.SET d $.o.x.y 2", "(nil)");
        cli.check("JSON.SET d $..z 2", "(error) ERR wrong static path");
        cli.check(
            "JSON.SET d $.o.a[3] 2",
            "(error) OUTOFBOUNDARIES array index out of range",
        );
        cli.check("JSON.SET d $.o.a[-1] 3", "OK");
        cli.check("JSON.SET d $..a 4", "OK");
        assert_eq!(doc(cli, "d"), r#"{"o":{"a":4}}"#);
        cli.check("JSON.SET d $ 1 NX XX", "(error) ERR syntax error");
        cli.check("JSON.SET d $ [1.5] FPHA FP16", "OK");
        cli.check(
            "JSON.SET d $ [1e9] FPHA FP16",
            "(error) ERR value out of range",
        );
        cli.check("JSON.SET d $ [1] FPHA FP8", "(error) ERR invalid FPHA type");
        let reply = cli.run("JSON.SET d $ [1");
        assert!(reply.contains("line 1 column 3"), "{reply}");
    });
}

#[test]
fn a_deadline_stays_when_a_document_is_replaced() {
    on_every_setup(|cli| {
        set(cli, "d", "{\"a\":1}");
        cli.run("PEXPIRE d 5000");
        set(cli, "d", "[2]");
        assert_eq!(cli.ttl_ms("d"), 5000);
        let long = format!("[\"{}\"]", "x".repeat(20_000));
        set(cli, "d", &long);
        assert_eq!(cli.ttl_ms("d"), 5000);
        assert_eq!(doc(cli, "d"), long);
        set(cli, "d", "3");
        assert_eq!(cli.ttl_ms("d"), 5000);
    });
}

#[test]
fn several_documents_at_once() {
    on_every_setup(|cli| {
        cli.check("JSON.MSET a $ '{\"x\":1}' b $ [2]", "OK");
        cli.check(
            "JSON.MSET a $.x 3 c .none 2",
            "(error) SYNTAXERR new objects must be created at the root",
        );
        assert_eq!(doc(cli, "a"), r#"{"x":1}"#);
        cli.check("JSON.MSET a $.x 3 b $[0] [] a $.y 4", "OK");
        cli.check("SET s 1", "OK");
        cli.check(
            "JSON.MGET a b c s $..*",
            "1) \"[3,4]\"\n2) \"[[]]\"\n3) (nil)\n4) (nil)",
        );
        cli.check("JSON.MGET a b .x", "1) \"3\"\n2) (nil)");
    });
}

#[test]
fn merges() {
    on_every_setup(|cli| {
        cli.check("JSON.MERGE d $ '{\"a\":{\"b\":1,\"c\":2},\"l\":[1]}'", "OK");
        cli.check(
            "JSON.MERGE d $ '{\"a\":{\"b\":null,\"d\":{\"e\":null,\"f\":3}},\"l\":[2]}'",
            "OK",
        );
        assert_eq!(doc(cli, "d"), r#"{"a":{"c":2,"d":{"f":3}},"l":[2]}"#);
        cli.check("JSON.MERGE d $.a.d 5", "OK");
        cli.check("JSON.MERGE d $.a.new '{\"x\":1}'", "OK");
        cli.check("JSON.MERGE d $.* '{\"y\":0}'", "OK");
        assert_eq!(
            doc(cli, "d"),
            r#"{"a":{"c":2,"d":5,"new":{"x":1},"y":0},"l":{"y":0}}"#
        );
    });
}

#[test]
fn numbers() {
    let cli = &mut resp2();
    set(cli, "d", r#"{"a":1,"b":{"a":2.5},"c":{"a":"x"}}"#);
    cli.check("JSON.NUMINCRBY d $..a 2", "\"[3,4.5,null]\"");
    cli.check("JSON.NUMINCRBY d .a 2", "\"5\"");
    cli.check("JSON.NUMMULTBY d $.a 2.0", "\"[10.0]\"");
    cli.check("JSON.NUMPOWBY d $.b.a 2", "\"[20.25]\"");
    cli.check("JSON.NUMINCRBY d $.none 1", "\"[]\"");
    let none = "(error) WRONGTYPE Path '.c.a' does not exist or does not contains a number";
    cli.check("JSON.NUMINCRBY d .c.a 1", none);
    set(cli, "d", r#"{"a":9223372036854775807,"b":1,"c":1e308}"#);
    cli.check(
        "JSON.NUMINCRBY d $.* 1",
        "(error) OVERFLOW numeric overflow",
    );
    cli.check(
        "JSON.NUMMULTBY d $.c 1e9",
        "(error) OVERFLOW numeric overflow",
    );
    cli.check(
        "JSON.NUMINCRBY d $.b x",
        "(error) SYNTAXERR expected value at line 1 column 1",
    );
    cli.check(
        "JSON.NUMINCRBY d $.b []",
        "(error) WRONGTYPE bad input number",
    );
    assert_eq!(
        doc(cli, "d"),
        r#"{"a":9223372036854775807,"b":1,"c":1e308}"#
    );
    // Integers of an array may become unsigned.
    set(cli, "l", "[9223372036854775807,1]");
    cli.check("JSON.NUMINCRBY l $[*] 1", "\"[9223372036854775808,2]\"");
    cli.check(
        "JSON.NUMINCRBY none $ 1",
        "(error) NONEXISTENT could not perform this operation on a key that doesn't exist",
    );
    let cli = &mut resp3();
    set(cli, "d", r#"{"a":1,"b":{"a":2.5},"c":{"a":"x"}}"#);
    cli.check(
        "JSON.NUMINCRBY d $..a 2",
        "1) (integer) 3\n2) (double) 4.5\n3) (nil)",
    );
    cli.check("JSON.NUMINCRBY d .a 2", "1) (integer) 5");
}

#[test]
fn scalars_and_types() {
    let cli = &mut resp2();
    set(
        cli,
        "d",
        r#"{"t":"ab","b":true,"o":{"t":"c","b":1},"n":1.0,"i":1,"z":null,"l":[]}"#,
    );
    cli.check("JSON.TOGGLE d $..b", "1) (integer) 0\n2) (nil)");
    cli.check("JSON.TOGGLE d .b", "\"true\"");
    cli.check(
        "JSON.TOGGLE d .t",
        "(error) WRONGTYPE Path '.t' does not exist or not a bool",
    );
    cli.check(
        "JSON.STRAPPEND d $..t '\"xy\"'",
        "1) (integer) 4\n2) (integer) 3",
    );
    cli.check("JSON.STRAPPEND d .t '\"z\"'", "(integer) 5");
    cli.check(
        "JSON.STRAPPEND d .t 1",
        "(error) WRONGTYPE wrong type of path value - expected string",
    );
    cli.check(
        "JSON.STRLEN d $.*",
        "1) (integer) 5\n2) (nil)\n3) (nil)\n4) (nil)\n5) (nil)\n6) (nil)\n7) (nil)",
    );
    cli.check(
        "JSON.STRLEN d .b",
        "(error) WRONGTYPE wrong type of path value - expected string",
    );
    cli.check("JSON.STRLEN none", "(nil)");
    cli.check("JSON.TYPE d", "\"object\"");
    cli.check(
        "JSON.TYPE d $.*",
        "1) \"string\"\n2) \"boolean\"\n3) \"object\"\n4) \"number\"\n5) \"integer\"\n6) \"null\"\n7) \"array\"",
    );
    cli.check("JSON.TYPE d .none", "(nil)");
    cli.check("JSON.OBJKEYS d .o", "1) \"t\"\n2) \"b\"");
    cli.check("JSON.OBJKEYS d $.o", "1) 1) \"t\"\n   2) \"b\"");
    cli.check("JSON.OBJLEN d", "(integer) 7");
    cli.check(
        "JSON.OBJLEN d .t",
        "(error) WRONGTYPE wrong type of path value - expected object",
    );
    cli.check("JSON.CLEAR d $.*", "(integer) 3");
    assert_eq!(
        doc(cli, "d"),
        r#"{"t":"abxyz","b":true,"o":{},"n":0,"i":0,"z":null,"l":[]}"#
    );
    set(cli, "r", r#"{"a":[true,null,1,1.5],"b":{}}"#);
    let resp = "*5\r\n+{\r\n$1\r\na\r\n*5\r\n+[\r\n+true\r\n$-1\r\n:1\r\n$3\r\n1.5\r\n$1\r\nb\r\n*1\r\n+{\r\n";
    assert_eq!(cli.reply_bytes(&["JSON.RESP", "r"]), resp.as_bytes());
    let cli = &mut resp3();
    set(cli, "d", r#"{"t":"ab","o":{"t":1.5}}"#);
    cli.check("JSON.TYPE d", "1) \"object\"");
    cli.check("JSON.TYPE d $..t", "1) 1) \"string\"\n   2) \"number\"");
    cli.check(
        "JSON.GET d FORMAT EXPAND $.o .t",
        "1) 1) 1# \"t\" => (double) 1.5\n2) 1) \"ab\"",
    );
    cli.check(
        "JSON.GET d FORMAT EXPAND1 $.*",
        r#"1) 1) "\"ab\""
   2) "{\"t\":1.5}""#,
    );
}

#[test]
fn arrays() {
    on_every_setup(|cli| {
        set(cli, "d", r#"{"l":[1,2],"o":{"l":["a"]},"x":{"l":3}}"#);
        cli.check(
            "JSON.ARRAPPEND d $..l 3 [4]",
            "1) (integer) 4\n2) (integer) 3\n3) (nil)",
        );
        cli.check("JSON.ARRAPPEND d .o.l 5", "(integer) 4");
        cli.check("JSON.ARRINSERT d $.l -1 0 0", "1) (integer) 6");
        cli.check(
            "JSON.ARRINSERT d $..l 5 9",
            "(error) OUTOFBOUNDARIES index out of bounds",
        );
        assert_eq!(
            doc(cli, "d"),
            r#"{"l":[1,2,3,0,0,[4]],"o":{"l":["a",3,[4],5]},"x":{"l":3}}"#
        );
        cli.check(
            "JSON.ARRINDEX d $..l [4]",
            "1) (integer) 5\n2) (integer) 2\n3) (nil)",
        );
        cli.check("JSON.ARRINDEX d .l 0 4 -1", "(integer) 4");
        cli.check("JSON.ARRINDEX d .l 0 5", "(integer) -1");
        cli.check(
            "JSON.ARRINDEX d .x 0",
            "(error) WRONGTYPE wrong type of path value - expected array",
        );
        cli.check(
            "JSON.ARRLEN d $..l",
            "1) (integer) 6\n2) (integer) 4\n3) (nil)",
        );
        cli.check("JSON.ARRPOP d $..l", "1) \"[4]\"\n2) \"5\"\n3) (nil)");
        cli.check("JSON.ARRPOP d .l 0", "\"1\"");
        cli.check("JSON.ARRPOP d .l -99", "\"2\"");
        cli.check("JSON.ARRTRIM d $.l 1 9", "1) (integer) 2");
        cli.check("JSON.ARRTRIM d .l 5 9", "(integer) 0");
        cli.check("JSON.ARRPOP d .l", "(nil)");
        cli.check(
            "JSON.ARRPOP d .x",
            "(error) WRONGTYPE Path '.x' does not exist or not an array",
        );
        assert_eq!(
            doc(cli, "d"),
            r#"{"l":[],"o":{"l":["a",3,[4]]},"x":{"l":3}}"#
        );
        set(cli, "d", "[[[1,2],[3]],[[4]]]");
        cli.check("JSON.ARRPOP d $..*", "1) \"[]\"\n2) \"[]\"\n3) \"2\"\n4) \"3\"\n5) (nil)\n6) (nil)\n7) (nil)\n8) \"4\"\n9) (nil)");
    });
}

#[test]
fn texts_can_be_set_out() {
    let cli = &mut resp2();
    set(cli, "d", r#"{"a":[1,{}]}"#);
    let lines = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let get = [
        "JSON.GET", "d", "INDENT", "\t", "NEWLINE", "\n", "SPACE", " ",
    ];
    let text = lines("{\n\t\"a\": [\n\t\t1,\n\t\t{}\n\t]\n}");
    assert_eq!(cli.reply_bytes(&get), text.as_bytes());
    let text = lines("[\n\t[\n\t\t1,\n\t\t{}\n\t]\n]");
    assert_eq!(
        cli.reply_bytes(&[&get[..], &["$.a"]].concat()),
        text.as_bytes()
    );
    let text = lines(
        "{\n\t\"$.a\": [\n\t\t[\n\t\t\t1,\n\t\t\t{}\n\t\t]\n\t],\n\t\".\": [\n\t\t{\n\t\t\t\"a\": [\n\t\t\t\t1,\n\t\t\t\t{}\n\t\t\t]\n\t\t}\n\t]\n}",
    );
    assert_eq!(
        cli.reply_bytes(&[&get[..], &["$.a", "."]].concat()),
        text.as_bytes()
    );
}

#[test]
fn changes_raise_events() {
    on_every_setup(|cli| {
        set(cli, "d", r#"{"n":1,"b":true,"t":"a","l":[1]}"#);
        cli.events();
        for (line, event) in [
            ("JSON.SET d $.n 2", "json.set"),
            ("JSON.MSET d $.n 3", "json.mset"),
            ("JSON.MERGE d $ '{\"m\":1}'", "json.merge"),
            ("JSON.NUMINCRBY d $.n 2", "json.numincrby"),
            ("JSON.NUMMULTBY d $.n 2", "json.nummultby"),
            ("JSON.TOGGLE d $.b", "json.toggle"),
            ("JSON.STRAPPEND d $.t '\"b\"'", "json.strappend"),
            ("JSON.ARRAPPEND d $.l 2", "json.arrappend"),
            ("JSON.ARRINSERT d $.l 0 2", "json.arrinsert"),
            ("JSON.ARRPOP d $.l", "json.arrpop"),
            ("JSON.ARRTRIM d $.l 0 0", "json.arrtrim"),
            ("JSON.CLEAR d $.l", "json.clear"),
            ("JSON.DEL d $.l", "json.del"),
            ("JSON.DEL d", "json.del"),
        ] {
            let before = cli.dirty();
            cli.run(line);
            let events = cli.events();
            assert!(events.contains(event), "{line}: {events}");
            assert_eq!(cli.dirty(), before + 1, "{line}");
        }
    });
}

#[test]
fn what_does_not_fit_the_limits_is_refused() {
    let cli = &mut resp2();
    cli.configure(|config| config.proto_max_bulk_len = 1000);
    let long = format!("\"{}\"", "x".repeat(990));
    set(cli, "d", &format!("[{long}]"));
    let refused = "(error) LIMIT JSON document is larger than proto-max-bulk-len";
    assert_eq!(cli.run_args(&["JSON.ARRAPPEND", "d", "$", &long]), refused);
    assert_eq!(
        cli.run_args(&["JSON.STRAPPEND", "d", "$[0]", &long]),
        refused
    );
    assert_eq!(
        cli.run_args(&["JSON.SET", "e", "$", &format!("[{long},{long}]")]),
        refused
    );
    let deep = "[".repeat(100) + &"]".repeat(100);
    set(cli, "e", &deep);
    let path = format!("${}", "[0]".repeat(99));
    let refused = "(error) LIMIT recursion limit exceeded";
    assert_eq!(
        cli.run_args(&["JSON.ARRAPPEND", "e", &path, &deep]),
        refused
    );
    let reply = cli.run_args(&["JSON.SET", "e", &format!("${}", "[0]".repeat(90)), &deep]);
    assert_eq!(reply, "(nil)");
    assert_eq!(doc(cli, "e"), deep);
}

/// A model of documents: texts by path, changed by few commands whose effect is plain.
#[derive(Clone, Default, Debug, PartialEq)]
struct Model {
    /// The members of the document: numbers, and lists of numbers.
    members: Vec<(String, Vec<i64>)>,
}

impl Model {
    fn text(&self) -> String {
        let member = |(name, list): &(String, Vec<i64>)| {
            let list: Vec<String> = list.iter().map(i64::to_string).collect();
            format!("\"{name}\":[{}]", list.join(","))
        };
        let members: Vec<String> = self.members.iter().map(member).collect();
        format!("{{{}}}", members.join(","))
    }

    fn list(&mut self, name: &str) -> Option<&mut Vec<i64>> {
        let mut members = self.members.iter_mut();
        members
            .find(|(known, _)| known == name)
            .map(|(_, list)| list)
    }

    /// Changes the model by a random command, which is returned.
    fn step(&mut self, random: &mut Random) -> Vec<String> {
        let name = format!("m{}", random.below(12));
        let path = format!("$.{name}");
        let bits = 1 + random.below(40);
        let number = random.below(1 << bits) as i64;
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match random.below(7) {
            0 | 1 if self.list(&name).is_none() => {
                let len = random.below(200) as usize;
                let list: Vec<i64> = (0..len as i64).map(|at| at * number).collect();
                let text: Vec<String> = list.iter().map(i64::to_string).collect();
                self.members.push((name, list));
                words(&["JSON.SET", "d", &path, &format!("[{}]", text.join(","))])
            }
            0 => {
                self.members.retain(|(known, _)| *known != name);
                words(&["JSON.DEL", "d", &path])
            }
            1 => {
                self.members
                    .iter_mut()
                    .for_each(|(_, list)| list.push(number));
                words(&["JSON.ARRAPPEND", "d", "$.*", &number.to_string()])
            }
            2 => {
                if let Some(list) = self.list(&name) {
                    list.iter_mut().for_each(|one| *one += number);
                }
                words(&[
                    "JSON.NUMINCRBY",
                    "d",
                    &format!("{path}[*]"),
                    &number.to_string(),
                ])
            }
            3 => {
                if let Some(list) = self.list(&name) {
                    list.insert(0, number);
                }
                words(&["JSON.ARRINSERT", "d", &path, "0", &number.to_string()])
            }
            4 => {
                self.members
                    .iter_mut()
                    .for_each(|(_, list)| list.truncate(list.len().saturating_sub(1)));
                words(&["JSON.ARRPOP", "d", "$.*"])
            }
            5 => {
                if let Some(list) = self.list(&name) {
                    list.truncate(50);
                }
                words(&["JSON.ARRTRIM", "d", &path, "0", "49"])
            }
            _ => {
                if let Some(list) = self.list(&name) {
                    list.clear();
                }
                words(&["JSON.CLEAR", "d", &path])
            }
        }
    }
}

#[test]
fn random_histories_follow_the_model_and_can_be_undone() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let cli = &mut Terminal::with(1, Protocol::Resp2);
        let mut model = Model::default();
        set(cli, "d", "{\"keep\":[]}");
        model.members.push(("keep".into(), Vec::new()));
        for _ in 0..120 {
            let (before, text) = (model.clone(), model.text());
            let rolls_back = random.below(3) == 0;
            if rolls_back {
                cli.engines[0].begin_attempt();
            }
            for _ in 0..1 + random.below(5) {
                let mut next = model.clone();
                let request = next.step(&mut random);
                model = next;
                let reply = cli.run_args(&request);
                assert!(!reply.starts_with("(error)"), "{request:?}: {reply}");
                assert_eq!(doc(cli, "d"), model.text(), "{request:?}");
            }
            if rolls_back {
                cli.engines[0].undo_attempt();
                model = before;
                assert_eq!(doc(cli, "d"), text);
            }
        }
    }
}

#[test]
fn memory_is_charged_to_the_byte() {
    let cli = &mut Terminal::with(1, Protocol::Resp2);
    set(cli, "other", "1");
    let before = cli.engines[0].used_bytes();
    let mut random = Random::new(3);
    set(cli, "d", "{\"l\":[]}");
    for _ in 0..400 {
        let text = format!("\"{}\"", "x".repeat(random.below(300) as usize));
        cli.run_args(&["JSON.ARRAPPEND", "d", "$.l", &text]);
        if random.below(3) == 0 {
            cli.run("JSON.ARRPOP d $.l 0");
        }
        let used = cli.engines[0].used_bytes() - before;
        let reply = cli.run("MEMORY USAGE d SAMPLES 0");
        let said: i64 = reply
            .trim_start_matches("(integer) ")
            .parse()
            .expect("a number");
        assert!((0..=64).contains(&(said - used)), "{said} {used}");
    }
    cli.check("JSON.DEL d", "(integer) 1");
    assert_eq!(cli.engines[0].used_bytes(), before);
}
