//! COMMAND INFO of every command, compared with redis-server's and Valkey's: arity, flags, categories, tips
//! and key specifications, which clients route by and ACL rules depend on. The rows of the other servers are
//! recorded in `tests/rows/`, so that the comparison runs where none of them is installed; each difference is
//! listed there by name, under its reason.
//!
//! `BLESS=1` records the rows of the installed servers anew, and writes down the current differences.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::support::{Options, Oracle, Server, is_stand_in, reasons, rows_folder, skipped};
use crate::wire::Value;

/// A server that is compared, and the mark of its lines.
struct Reference {
    mark: char,
    /// The line of INFO server that names its version.
    version: &'static str,
    start: fn() -> Option<Oracle>,
}

const REFERENCES: [Reference; 3] = [
    Reference {
        mark: '7',
        version: "redis_version:7.0.15",
        start: Oracle::start,
    },
    Reference {
        mark: '8',
        version: "redis_version:8.2.3",
        start: Oracle::start_newer_redis,
    },
    Reference {
        mark: '9',
        version: "valkey_version:9.1.2",
        start: || Oracle::start_valkey_with(&[]),
    },
];

/// The fields of a command's row; each is a set of words.
const FIELDS: [&str; 6] = ["arity", "flags", "places", "categories", "tips", "keys"];

type Row = [BTreeSet<String>; FIELDS.len()];
type Rows = BTreeMap<String, Row>;

fn is_blessed() -> bool {
    std::env::var_os("BLESS").is_some()
}

/// Returns the rows of a server.
fn rows(server: &Server) -> Rows {
    let mut rows = Rows::new();
    let all = server.raw3().call("COMMAND");
    all.items().iter().for_each(|row| add(row, &mut rows));
    rows
}

fn add(reply: &Value, rows: &mut Rows) {
    let fields = reply.items();
    let words =
        |value: &Value| -> BTreeSet<String> { value.items().iter().map(Value::text).collect() };
    let places: Vec<String> = fields[3..6].iter().map(Value::show).collect();
    let specs = fields[8].items().iter().enumerate();
    let row = [
        BTreeSet::from([fields[1].integer().to_string()]),
        words(&fields[2]),
        BTreeSet::from([places.join(" ").replace("(integer) ", "")]),
        words(&fields[6]),
        words(&fields[7]),
        specs
            .map(|(index, spec)| format!("{index}: {}", specification(spec)))
            .collect(),
    ];
    rows.insert(fields[0].text().to_lowercase(), row);
    fields[9].items().iter().for_each(|child| add(child, rows));
}

fn at<'v>(map: &'v Value, key: &str) -> Option<&'v Value> {
    let Value::Map(pairs) = map else { return None };
    let found = pairs.iter().find(|(name, _)| name.text() == key);
    found.map(|(_, value)| value)
}

/// Returns a key specification in one line: its flags, the start of the keys, and the rule for the next ones.
fn specification(spec: &Value) -> String {
    let mut flags: Vec<String> = at(spec, "flags")
        .map(|flags| flags.items().iter().map(Value::text).collect())
        .unwrap_or_default();
    flags.sort();
    let mut text = flags.join(" ");
    for part in ["begin_search", "find_keys"] {
        let part = at(spec, part).expect("both parts are there");
        text += &format!(
            ", {}",
            at(part, "type").map(Value::text).unwrap_or_default()
        );
        if let Some(Value::Map(pairs)) = at(part, "spec") {
            let values = pairs.iter().map(|(_, value)| value);
            values
                .for_each(|value| text += &format!(" {}", value.show().replace("(integer) ", "")));
        }
    }
    if let Some(notes) = at(spec, "notes") {
        text += &format!(" ({})", notes.text());
    }
    text
}

/// Returns a row in the form of the recordings.
fn line(name: &str, row: &Row) -> String {
    let fields = row.iter().zip(FIELDS).map(|(words, field)| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        words.join(separator(field))
    });
    let fields: Vec<String> = fields.collect();
    format!("{name} | {}", fields.join(" | "))
}

fn separator(field: &str) -> &'static str {
    match field {
        "keys" => "; ",
        "places" => "\0",
        _ => " ",
    }
}

/// Returns the recorded rows of each server, by its letter.
fn recorded() -> BTreeMap<char, Rows> {
    let text = std::fs::read_to_string(rows_folder().join("recorded.txt")).unwrap_or_default();
    let mut all: BTreeMap<char, Rows> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        // Names of subcommands have a bar, without blanks around it.
        let mut parts = line.split(" | ");
        let (marks, name) = (parts.next().expect("marks"), parts.next().expect("a name"));
        let words: Vec<&str> = parts.collect();
        let row: Row = std::array::from_fn(|index| {
            let words = words[index].split(separator(FIELDS[index]));
            let words = words.filter(|word| !word.is_empty());
            words.map(str::to_owned).collect()
        });
        for mark in marks.chars() {
            all.entry(mark)
                .or_default()
                .insert(name.to_owned(), row.clone());
        }
    }
    all
}

/// Lines that several servers share have all their marks.
fn write(all: &BTreeMap<char, Rows>) {
    let mut lines: BTreeMap<String, String> = BTreeMap::new();
    for (mark, rows) in all {
        for (name, row) in rows {
            lines.entry(line(name, row)).or_default().push(*mark);
        }
    }
    let mut text = "# COMMAND INFO of redis-server 7.0.15 (7), redis-server 8.2.3 (8) and valkey-server 9.1.2 (9):\n\
         # servers | name | arity | flags | first key, last key, step | categories | tips | key specifications\n\
         # Written by `BLESS=1 cargo test --test blackbox command_rows`.\n"
        .to_owned();
    for (line, marks) in lines {
        let _ = writeln!(text, "{marks} | {line}");
    }
    std::fs::write(rows_folder().join("recorded.txt"), text).expect("room for the rows");
}

#[test]
fn recorded_rows_are_what_the_servers_say() {
    let mut all = recorded();
    for reference in &REFERENCES {
        let Some(Oracle(server)) = (reference.start)() else {
            continue;
        };
        let info = server.raw().call("INFO server").body();
        if !info.lines().any(|line| line == reference.version) {
            skipped(&format!("not {}", reference.version));
            continue;
        }
        let said = rows(&server);
        if is_blessed() {
            all.insert(reference.mark, said);
        } else {
            assert_eq!(all[&reference.mark], said, "{}", reference.version);
        }
    }
    if is_blessed() {
        write(&all);
    }
}

/// Returns all differences, as lines without the reason: the servers, the command, the field, the additional
/// values here (`+`) and the missing ones (`-`).
fn differences(ours: &Rows, recorded: &BTreeMap<char, Rows>) -> BTreeSet<String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for (mark, theirs) in recorded {
        for (name, their_row) in theirs {
            let Some(our_row) = ours.get(name) else {
                found
                    .entry(format!("{name} | missing"))
                    .or_default()
                    .push(*mark);
                continue;
            };
            for ((field, ours), theirs) in FIELDS.iter().zip(our_row).zip(their_row) {
                let more = ours.difference(theirs).map(|word| format!("+{word}"));
                let less = theirs.difference(ours).map(|word| format!("-{word}"));
                let delta: Vec<String> = more.chain(less).collect();
                if !delta.is_empty() {
                    let text = format!("{name} | {field} | {}", delta.join("; "));
                    found.entry(text).or_default().push(*mark);
                }
            }
        }
    }
    let lines = found.into_iter();
    lines
        .map(|(text, marks)| format!("{marks} | {text}"))
        .collect()
}

#[test]
fn rows_are_those_of_redis_and_valkey_but_for_what_is_named() {
    if is_stand_in() {
        return;
    }
    let server = Server::start(&Options::shards(1));
    let ours = rows(&server);
    let recorded = recorded();
    assert_eq!(recorded.len(), REFERENCES.len());
    let found = differences(&ours, &recorded);
    let known = reasons("differences.txt");
    if is_blessed() {
        let mut text = String::new();
        for line in &found {
            let reason = known.get(line).map_or("(no reason yet)", String::as_str);
            let _ = writeln!(text, "{reason}\t{line}");
        }
        std::fs::write(rows_folder().join("differences.new"), text).expect("room for them");
    }
    let new: Vec<&String> = found
        .iter()
        .filter(|line| !known.contains_key(*line))
        .collect();
    let gone: Vec<&String> = known.keys().filter(|line| !found.contains(*line)).collect();
    assert!(new.is_empty(), "without a reason: {new:#?}");
    assert!(gone.is_empty(), "no differences any more: {gone:#?}");
    eprintln!("{} commands, {} differences", ours.len(), found.len());
}

#[test]
fn categories_hold_the_commands_whose_rows_name_them() {
    let server = Server::start(&Options::shards(1));
    let rows = rows(&server);
    let mut raw = server.raw();
    let categories = raw.call("ACL CAT");
    let position = FIELDS.iter().position(|field| *field == "categories");
    let position = position.expect("it is there");
    for category in categories.items() {
        let category = category.text();
        let named = raw.call(&format!("ACL CAT {category}"));
        // Subcommands that no list of commands has can be named in rules all the same.
        let is_unlisted = |name: &str| name.starts_with("debug|") || name.starts_with("script|");
        let is_listed = |name: &String| rows.contains_key(name) || !is_unlisted(name);
        let named = named.items().iter().map(Value::text);
        let named: BTreeSet<String> = named.filter(is_listed).collect();
        let word = format!("@{category}");
        let is_in = |(_, row): &(&String, &Row)| row[position].contains(&word);
        let held = rows.iter().filter(is_in).map(|(name, _)| name.clone());
        assert_eq!(named, held.collect(), "{category}");
    }
}
