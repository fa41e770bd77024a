//! COMMAND DOCS of every command here, compared with redis-server's: the structures are equal except for the
//! listed exceptions. Texts that are worded differently are not compared. `command_rows.rs` covers COMMAND
//! INFO.

use std::collections::BTreeSet;

use crate::support::{Options, Oracle, Server, is_stand_in};
use crate::wire::{Raw, Value};

/// The version of the reference that the exceptions apply to; newer commands exist here alone and are
/// counted.
const REFERENCE: &str = "7.0.15";

const LATER: &str = "as in Redis 7.2, which changed it";
const NEWER: &str = "has options of later versions";

/// Command, difference, and reason. A difference that is gone must be removed here too.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("acl|cat", "arguments", NEWER),
    (
        "bitop",
        "arguments",
        "names its operations, with those of Redis 8",
    ),
    ("client|kill", "arguments", NEWER),
    ("client|list", "arguments", LATER),
    ("client|pause", "since", "as corrected in Redis 7.2"),
    ("cluster|meet", "arguments", LATER),
    ("command|getkeys", "arguments", LATER),
    ("command|getkeysandflags", "arguments", LATER),
    ("config|get", "arguments", LATER),
    ("bitcount", "arguments", "a start alone is of Valkey 8"),
    ("hscan", "arguments", "NOVALUES is of Redis 7.4"),
    ("zscan", "arguments", "NOSCORES is of Valkey 8"),
    ("geohash", "arguments", LATER),
    ("geopos", "arguments", LATER),
    ("georadius", "arguments", LATER),
    ("georadiusbymember", "arguments", LATER),
    ("geosearch", "arguments", "BYPOLYGON is of Valkey 9"),
    ("geosearchstore", "arguments", "BYPOLYGON is of Valkey 9"),
    (
        "lcs",
        "arguments",
        "a placeholder's name is as the manual shows it",
    ),
    ("lolwut", "complexity", "every row of ours has a cost"),
    ("migrate", "arguments", LATER),
    ("module|loadex", "arguments", LATER),
    ("monitor", "complexity", "every row of ours has a cost"),
    ("pfmerge", "arguments", LATER),
    ("psetex", "deprecation", LATER),
    ("psubscribe", "arguments", LATER),
    ("quit", "deprecation", LATER),
    ("set", "arguments", NEWER),
    ("setex", "deprecation", LATER),
    ("setnx", "deprecation", LATER),
    ("shutdown", "arguments", "SAFE and FAILOVER are of Valkey 9"),
    ("xadd", "arguments", NEWER),
    ("xinfo|stream", "arguments", LATER),
    ("xread", "arguments", NEWER),
    ("xreadgroup", "arguments", NEWER),
    ("xtrim", "arguments", NEWER),
    ("zrank", "arguments", LATER),
    ("zrevrank", "arguments", LATER),
    ("zinter", "arguments", "COUNT is of Redis 8.8"),
    ("zinterstore", "arguments", "COUNT is of Redis 8.8"),
    ("zunion", "arguments", "COUNT is of Redis 8.8"),
    ("zunionstore", "arguments", "COUNT is of Redis 8.8"),
    ("psync", "complexity", "the reference says nothing of it"),
    ("sync", "complexity", "the reference says nothing of it"),
];

#[test]
fn commands_are_described_as_the_reference_describes_them() {
    let Some(Oracle(oracle)) = Oracle::start() else {
        return;
    };
    if is_stand_in() {
        return;
    }
    let server = Server::start(&Options::shards(2));
    let mut ours = resp3(&server);
    let mut theirs = resp3(&oracle);
    let names =
        |reply: Value| -> BTreeSet<String> { reply.items().iter().map(Value::text).collect() };
    let known = names(theirs.call("COMMAND LIST"));
    let mut differences = BTreeSet::new();
    let mut report = String::new();
    let (mut compared, mut newer) = (0, 0);
    for name in names(ours.call("COMMAND LIST")) {
        let docs = docs_of(&mut ours, &name);
        if !known.contains(&name) {
            let since = text_at(&docs, "since");
            // Versions of documents are those of RedisJSON.
            let is_of_module = name.starts_with("json.");
            assert!(
                since == "basalt 0.1.0" || is_of_module || is_later(&since),
                "{name} of {since} is unknown to {REFERENCE}"
            );
            newer += 1;
            continue;
        }
        compared += 1;
        let mut note = |what: &str, ours: String, theirs: String| {
            if ours != theirs && differences.insert((name.clone(), what.to_owned())) {
                report += &format!("{name}: {what}\n    ours   {ours}\n    theirs {theirs}\n");
            }
        };
        let their_docs = docs_of(&mut theirs, &name);
        for field in ["since", "group"] {
            note(field, text_at(&docs, field), text_at(&their_docs, field));
        }
        note("deprecation", deprecation(&docs), deprecation(&their_docs));
        for field in ["summary", "complexity"] {
            let has = |docs: &Value| at(docs, field).is_some().to_string();
            note(field, has(&docs), has(&their_docs));
        }
        let shape_of = |docs: &Value| at(docs, "arguments").map(shape).unwrap_or_default();
        note("arguments", shape_of(&docs), shape_of(&their_docs));
    }
    eprintln!("{compared} commands compared, {newer} newer than {REFERENCE}");
    let expected: BTreeSet<(String, String)> = EXCEPTIONS
        .iter()
        .map(|(name, what, _)| ((*name).to_owned(), (*what).to_owned()))
        .collect();
    let unexpected: Vec<_> = differences.difference(&expected).collect();
    let gone: Vec<_> = expected.difference(&differences).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}\n{report}");
    assert!(gone.is_empty(), "no differences any more: {gone:#?}");
}

#[test]
fn commands_say_whose_they_are_and_unknown_ones_what_is_missing() {
    if is_stand_in() {
        return;
    }
    let server = Server::start(&Options::shards(1));
    let mut ours = resp3(&server);
    for (name, since) in [
        ("lget", "basalt 0.1.0"),
        ("tag|keys", "basalt 0.1.0"),
        ("lockinfo", "basalt 0.1.0"),
        ("bzpopdue", "basalt 0.1.0"),
        ("cl.throttle", "basalt 0.1.0"),
        ("hotkeys|get", "8.6.0"),
        ("delifeq", "9.0.0"),
        ("json.get", "1.0.0"),
        ("get", "1.0.0"),
    ] {
        assert_eq!(text_at(&docs_of(&mut ours, name), "since"), since, "{name}");
    }
    let missing = |family: &str| {
        format!("(basalt has no {family}, see \"What is missing\" in docs/compatibility.md)")
    };
    for (line, hint) in [
        ("ft.create i", missing("search")),
        ("TS.ADD t 1 2", missing("time series")),
        ("VSIM v ELE a", missing("vector sets")),
        ("VNOSUCH v", String::new()),
        ("JSONSET doc", String::new()),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let quoted: String = words[1..].iter().map(|word| format!("'{word}' ")).collect();
        let expected = format!(
            "ERR unknown command '{}', with args beginning with: {quoted}{hint}",
            words[0]
        );
        assert_eq!(ours.call(line).text(), expected);
    }
}

#[test]
fn replies_to_mistakes_are_those_of_the_reference() {
    let Some(Oracle(oracle)) = Oracle::start() else {
        return;
    };
    let server = Server::start(&Options::shards(1));
    for version in [2, 3] {
        let mut ours = Raw::connect(server.port);
        let mut theirs = Raw::connect(oracle.port);
        for client in [&mut ours, &mut theirs] {
            client.call(&format!("HELLO {version}"));
        }
        for line in [
            "COMMAND INFO nosuch get|x",
            "COMMAND DOCS nosuch",
            "COMMAND nosuch",
            "COMMAND COUNT 1",
            "COMMAND GETKEYS nosuch a",
            "COMMAND GETKEYS ping a",
            "COMMAND GETKEYS get a b",
            "COMMAND GETKEYS mset a 1 b 2",
            "COMMAND GETKEYS config get a",
            "COMMAND GETKEYS config nosuch a",
            "COMMAND GETKEYS memory usage a",
            "COMMAND GETKEYSANDFLAGS set a 1 get",
            "COMMAND GETKEYSANDFLAGS set a 1",
            "COMMAND GETKEYSANDFLAGS bitfield a get u8 0",
            "COMMAND GETKEYSANDFLAGS copy a b",
            "COMMAND LIST FILTERBY",
            "COMMAND LIST FILTERBY COLOUR red",
            "COMMAND LIST FILTERBY MODULE nosuch",
            "COMMAND LIST FILTERBY ACLCAT nosuch",
            "COMMAND LIST FILTERBY PATTERN getr*",
            "COMMAND LIST x",
            "CLUSTER",
            "CLUSTER HELP",
            "CLUSTER help x",
            "CLUSTER nosuch",
            "CLUSTER INFO",
            "CLUSTER INFO x",
            "CLUSTER KEYSLOT",
            "CLUSTER RESET HARD",
            "READONLY",
            "READONLY x",
            "READWRITE",
            "ASKING",
            "COMMAND GETKEYS cluster keyslot a",
            "EVAL return(redis.pcall('cluster','info').err) 0",
            "MULTI",
            "CLUSTER SLOTS",
            "READONLY",
            "EXEC",
            "MULTI",
            "CLUSTER nosuch",
            "EXEC",
            "RESTORE-ASKING a 0 x",
            "RESTORE-ASKING a",
        ] {
            assert_eq!(
                ours.call(line),
                theirs.call(line),
                "{line} in RESP{version}"
            );
        }
    }
}

fn resp3(server: &Server) -> Raw {
    let mut client = Raw::connect(server.port);
    client.call("HELLO 3");
    client
}

fn docs_of(client: &mut Raw, name: &str) -> Value {
    match client.call(&format!("COMMAND DOCS {name}")) {
        Value::Map(mut pairs) if pairs.len() == 1 => pairs.remove(0).1,
        other => panic!("COMMAND DOCS {name}: {}", other.show()),
    }
}

/// Returns a member of a map.
fn at<'v>(map: &'v Value, key: &str) -> Option<&'v Value> {
    let Value::Map(pairs) = map else {
        panic!("expected a map, got {}", map.show());
    };
    pairs
        .iter()
        .find(|(name, _)| name.bytes() == key.as_bytes())
        .map(|(_, value)| value)
}

fn text_at(map: &Value, key: &str) -> String {
    at(map, key).map(Value::text).unwrap_or_default()
}

fn deprecation(docs: &Value) -> String {
    let flags = at(docs, "doc_flags").map(Value::show).unwrap_or_default();
    let (since, by) = (
        text_at(docs, "deprecated_since"),
        text_at(docs, "replaced_by"),
    );
    format!("{flags} {since} {by}")
}

fn is_later(version: &str) -> bool {
    let numbers = |text: &str| -> Vec<u32> {
        let parts = text.split('.');
        parts.map(|part| part.parse().expect("a version")).collect()
    };
    numbers(version) > numbers(REFERENCE)
}

/// Returns arguments as one line, without the names of groups, which no user sees, and without versions.
fn shape(arguments: &Value) -> String {
    let one = |argument: &Value| {
        let kind = text_at(argument, "type");
        let token = text_at(argument, "token");
        let mut text = match at(argument, "arguments") {
            Some(parts) => format!("{token}{kind}({})", shape(parts)),
            None if kind == "pure-token" => token,
            None => format!("{token} {}:{kind}", text_at(argument, "name")),
        };
        if let Some(index) = at(argument, "key_spec_index") {
            text += &format!("@{}", index.integer());
        }
        if let Some(flags) = at(argument, "flags") {
            for flag in flags.items() {
                text += &format!(" +{}", flag.text());
            }
        }
        text
    };
    arguments
        .items()
        .iter()
        .map(one)
        .collect::<Vec<_>>()
        .join(", ")
}
