//! Histories as EDN, in the form that Elle and Knossos read: a map for each beginning and each end, in the order of
//! time, with `:index`, `:type`, `:process`, `:time`, `:f` and `:value`. Writes them, and reads them back.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::history::{Form, NEVER, Op, Outcome, Txn};

/// The commands of a pipeline are open at the same time, and a process of Elle has one transaction at a time: they are
/// written as processes of their own, so far apart, with the client's as `:pipeline`.
const APART: u64 = 1_000_000;

/// Writes a history, a map on each line.
pub(crate) fn write(history: &[Txn]) -> String {
    // Beginnings come before ends of the same time: such transactions overlap.
    let processes = processes(history);
    let mut events: Vec<(u64, bool, u64, usize)> = Vec::with_capacity(2 * history.len());
    for (index, txn) in history.iter().enumerate() {
        events.push((txn.began, false, processes[index], index));
        events.push((txn.ended, true, processes[index], index));
    }
    events.sort_unstable();
    let never = last_time(history);
    let mut lines = String::new();
    for (number, (time, is_end, process, index)) in events.into_iter().enumerate() {
        let txn = &history[index];
        let kind = match (is_end, txn.outcome) {
            (false, _) => "invoke",
            (true, Outcome::Ok) => "ok",
            (true, Outcome::Fail) => "fail",
            (true, Outcome::Info) => "info",
        };
        let time = if time == NEVER { never } else { time };
        let _ = write!(
            lines,
            "{{:index {number}, :type :{kind}, :process {process}, :time {time}, :f :txn, :form :{}, ",
            form_name(txn.form),
        );
        if txn.follows {
            let _ = write!(lines, ":pipeline {}, ", txn.process);
        }
        lines.push_str(":value [");
        for (position, op) in txn.ops.iter().enumerate() {
            lines.push_str(if position > 0 { " " } else { "" });
            write_op(&mut lines, op, is_end && txn.outcome == Outcome::Ok);
        }
        lines.push_str("]}\n");
    }
    lines
}

/// Returns the process of each transaction as it is written.
fn processes(history: &[Txn]) -> Vec<u64> {
    let mut last: HashMap<u64, u64> = HashMap::new();
    let processes = history.iter().map(|txn| {
        let written = last.entry(txn.process).or_default();
        *written = match txn.follows {
            true => *written + APART,
            false => txn.process,
        };
        *written
    });
    processes.collect()
}

fn last_time(history: &[Txn]) -> u64 {
    let times = history.iter().flat_map(|txn| [txn.began, txn.ended]);
    times.filter(|time| *time != NEVER).max().unwrap_or(0)
}

fn write_op(lines: &mut String, op: &Op, is_answered: bool) {
    let _ = match op {
        Op::Append(key, element) => write!(lines, "[:append {key} {element}]"),
        Op::Read(key, Some(read)) if is_answered => {
            let read: Vec<String> = read.iter().map(u64::to_string).collect();
            write!(lines, "[:r {key} [{}]]", read.join(" "))
        }
        Op::Read(key, _) => write!(lines, "[:r {key} nil]"),
    };
}

const FORMS: [(Form, &str); 4] = [
    (Form::Multi, "multi"),
    (Form::Script, "script"),
    (Form::Function, "function"),
    (Form::Bare, "bare"),
];

pub(crate) fn form_name(form: Form) -> &'static str {
    let row = FORMS.iter().find(|(known, _)| *known == form);
    row.expect("a row for each form").1
}

/// A value of EDN, as far as histories use it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Edn {
    Nil,
    Boolean(bool),
    Integer(i64),
    Keyword(String),
    Vector(Vec<Edn>),
    Map(Vec<(Edn, Edn)>),
}

impl Edn {
    fn get(&self, name: &str) -> Option<&Edn> {
        let Edn::Map(pairs) = self else { return None };
        let pair = pairs
            .iter()
            .find(|(key, _)| matches!(key, Edn::Keyword(key) if key == name));
        pair.map(|(_, value)| value)
    }

    fn integer(&self) -> Option<u64> {
        match self {
            Edn::Integer(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    fn keyword(&self) -> Option<&str> {
        match self {
            Edn::Keyword(name) => Some(name),
            _ => None,
        }
    }

    fn vector(&self) -> Option<&[Edn]> {
        match self {
            Edn::Vector(items) => Some(items),
            _ => None,
        }
    }
}

/// Reads all values of a text; `None` if it is not EDN.
pub(crate) fn parse(text: &str) -> Option<Vec<Edn>> {
    let mut values = Vec::new();
    let mut rest = skip(text);
    while !rest.is_empty() {
        let (value, after) = value(rest)?;
        values.push(value);
        rest = skip(after);
    }
    Some(values)
}

/// Passes over spaces, commas and comments.
fn skip(text: &str) -> &str {
    let text = text.trim_start_matches(|it: char| it.is_whitespace() || it == ',');
    match text.strip_prefix(';') {
        Some(comment) => skip(comment.find('\n').map_or("", |end| &comment[end..])),
        None => text,
    }
}

fn value(text: &str) -> Option<(Edn, &str)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (items, rest) = items(rest, ']')?;
        return Some((Edn::Vector(items), rest));
    }
    if let Some(rest) = text.strip_prefix('{') {
        let (items, rest) = items(rest, '}')?;
        let (pairs, odd) = items.as_chunks::<2>();
        let pairs = pairs
            .iter()
            .map(|[key, value]| (key.clone(), value.clone()));
        return odd.is_empty().then(|| (Edn::Map(pairs.collect()), rest));
    }
    let ends = |it: char| it.is_whitespace() || ",[]{};".contains(it);
    let (word, rest) = text.split_at(text.find(ends).unwrap_or(text.len()));
    let value = match word {
        "nil" => Edn::Nil,
        "true" => Edn::Boolean(true),
        "false" => Edn::Boolean(false),
        _ => match word.strip_prefix(':') {
            Some(name) if !name.is_empty() => Edn::Keyword(name.to_owned()),
            _ => Edn::Integer(word.parse().ok()?),
        },
    };
    Some((value, rest))
}

fn items(text: &str, end: char) -> Option<(Vec<Edn>, &str)> {
    let mut items = Vec::new();
    let mut rest = skip(text);
    loop {
        if let Some(rest) = rest.strip_prefix(end) {
            return Some((items, rest));
        }
        let (item, after) = value(rest)?;
        items.push(item);
        rest = skip(after);
    }
}

/// Reads a history of list-append, ours or another's.
pub(crate) fn read(text: &str) -> Option<Vec<Txn>> {
    let mut history: Vec<Txn> = Vec::new();
    let mut open: HashMap<u64, usize> = HashMap::new();
    for event in parse(text)? {
        let process = event.get("process")?.integer()?;
        let time = event.get("time")?.integer()?;
        let pipeline = event.get("pipeline").and_then(Edn::integer);
        let ops = event.get("value")?.vector()?.iter();
        let ops: Vec<Op> = ops.map(op).collect::<Option<_>>()?;
        let outcome = match event.get("type")?.keyword()? {
            "invoke" => {
                let form = event.get("form").and_then(Edn::keyword).unwrap_or("multi");
                open.insert(process, history.len());
                history.push(Txn {
                    process: pipeline.unwrap_or(process),
                    form: FORMS.iter().find(|(_, name)| *name == form)?.0,
                    began: time,
                    ended: NEVER,
                    outcome: Outcome::Info,
                    ops,
                    follows: pipeline.is_some(),
                });
                continue;
            }
            "ok" => Outcome::Ok,
            "fail" => Outcome::Fail,
            "info" => Outcome::Info,
            _ => return None,
        };
        let txn = &mut history[open.remove(&process)?];
        txn.outcome = outcome;
        if outcome != Outcome::Info {
            txn.ended = time;
        }
        if outcome == Outcome::Ok {
            txn.ops = ops;
        }
    }
    Some(history)
}

fn op(value: &Edn) -> Option<Op> {
    let [name, key, argument] = value.vector()? else {
        return None;
    };
    let key = key.integer()?;
    match (name.keyword()?, argument) {
        ("append", element) => Some(Op::Append(key, element.integer()?)),
        ("r", Edn::Nil) => Some(Op::Read(key, None)),
        ("r", read) => {
            let read = read.vector()?.iter().map(Edn::integer);
            Some(Op::Read(key, Some(read.collect::<Option<_>>()?)))
        }
        _ => None,
    }
}
