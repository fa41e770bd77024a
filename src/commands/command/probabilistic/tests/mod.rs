//! Expected replies are from the documentation of Redis 8 and the tests of its modules: no reference server was
//! available here to record them from.

mod counters;
mod filters;
mod t_digest;

use crate::command::testing::{Terminal, on_every_setup};
use basalt_core::resp::reply::Protocol;

/// Formats a boolean in the protocol of the connection.
fn truth(cli: &Terminal, value: bool) -> &'static str {
    match (cli.connection.protocol, value) {
        (Protocol::Resp2, true) => "(integer) 1",
        (Protocol::Resp2, false) => "(integer) 0",
        (Protocol::Resp3, true) => "(true)",
        (Protocol::Resp3, false) => "(false)",
    }
}

/// Formats an array of booleans.
fn truths(cli: &Terminal, values: &[bool]) -> String {
    let values = values.iter().enumerate();
    let lines: Vec<String> = values
        .map(|(at, value)| format!("{}) {}", at + 1, truth(cli, *value)))
        .collect();
    lines.join("\n")
}

/// Formats a double: a string in RESP2.
fn double(cli: &Terminal, text: &str) -> String {
    match cli.connection.protocol {
        Protocol::Resp2 => format!("\"{text}\""),
        Protocol::Resp3 => format!("(double) {text}"),
    }
}

fn doubles(cli: &Terminal, texts: &[&str]) -> String {
    let width = texts.len().to_string().len();
    let lines: Vec<String> = texts
        .iter()
        .enumerate()
        .map(|(at, text)| format!("{:>width$}) {}", at + 1, double(cli, text)))
        .collect();
    lines.join("\n")
}

fn integers(numbers: &[i64]) -> String {
    let width = numbers.len().to_string().len();
    let lines: Vec<String> = numbers
        .iter()
        .enumerate()
        .map(|(at, number)| format!("{:>width$}) (integer) {number}", at + 1))
        .collect();
    lines.join("\n")
}

/// Returns one field of the reply of an INFO command.
fn fact(cli: &mut Terminal, line: &str, name: &str) -> String {
    let reply = cli.run(line);
    let mut lines = reply.lines();
    let line = lines
        .by_ref()
        .find(|line| line.contains(&format!(" {name}")))
        .unwrap_or_else(|| panic!("no {name} in {reply}"));
    match line.split_once(" => ") {
        Some((_, value)) => value.to_owned(),
        None => {
            let value = lines.next().expect("a value behind each name");
            value.split_once(") ").expect("a number").1.to_owned()
        }
    }
}

const WRONG_TYPE: &str =
    "(error) WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn a_key_of_another_type_is_left_alone() {
    on_every_setup(|cli| {
        cli.check("SET k v", "OK");
        cli.put_other_type("list");
        for line in [
            "BF.RESERVE k 0.01 10",
            "BF.ADD k a",
            "BF.MADD list a b",
            "BF.INSERT k ITEMS a",
            "BF.CARD k",
            "BF.INFO list",
            "BF.SCANDUMP k 0",
            "BF.LOADCHUNK k 1 data",
            "CF.RESERVE k 10",
            "CF.ADD list a",
            "CF.ADDNX k a",
            "CF.INSERT k ITEMS a",
            "CF.INSERTNX k ITEMS a",
            "CF.DEL k a",
            "CF.INFO k",
            "CF.SCANDUMP k 0",
            "CF.LOADCHUNK list 1 data",
            "CMS.INCRBY k a 1",
            "CMS.QUERY k a",
            "CMS.INFO list",
            "CMS.MERGE k 1 k",
            "TOPK.ADD k a",
            "TOPK.INCRBY k a 1",
            "TOPK.QUERY k a",
            "TOPK.COUNT k a",
            "TOPK.LIST k",
            "TOPK.INFO list",
            "TDIGEST.CREATE k",
            "TDIGEST.ADD k 1",
            "TDIGEST.RESET k",
            "TDIGEST.MERGE k 1 k",
            "TDIGEST.MERGE new 1 k",
            "TDIGEST.MIN k",
            "TDIGEST.MAX k",
            "TDIGEST.QUANTILE k 0.5",
            "TDIGEST.CDF k 0.5",
            "TDIGEST.RANK k 1",
            "TDIGEST.REVRANK list 1",
            "TDIGEST.BYRANK k 1",
            "TDIGEST.BYREVRANK k 1",
            "TDIGEST.TRIMMED_MEAN k 0 1",
            "TDIGEST.INFO k",
        ] {
            cli.check(line, WRONG_TYPE);
        }
        for (line, reply) in [
            ("BF.EXISTS k a", truth(cli, false)),
            ("CF.EXISTS list a", truth(cli, false)),
            ("CF.COUNT k a", "(integer) 0"),
            ("CMS.INITBYDIM k 1 1", "(error) CMS: key already exists"),
            ("TOPK.RESERVE list 1", "(error) TopK: key already exists"),
            ("GET k", "\"v\""),
            ("EXISTS new", "(integer) 0"),
        ] {
            cli.check(line, reply);
        }
        cli.check("BF.ADD f a", truth(cli, true));
        for line in [
            "GET f",
            "APPEND f x",
            "CF.ADD f a",
            "PFADD f a",
            "TDIGEST.ADD f 1",
        ] {
            cli.check(line, WRONG_TYPE);
        }
        cli.check("SET f v", "OK");
        cli.check("GET f", "\"v\"");
    });
}

/// The memory charged to a shard for a key equals MEMORY USAGE, and all of it is freed.
#[test]
fn memory_is_counted_to_the_byte() {
    let mut cli = Terminal::new();
    for line in [
        "BF.ADD w a",
        "CF.ADD w a",
        "CMS.INITBYDIM w 1000 5",
        "TOPK.RESERVE w 5",
        "TDIGEST.CREATE w",
        "DEL w",
    ] {
        cli.run(line);
        cli.run("DEL w");
    }
    let used = |cli: &Terminal| cli.engines[0].published().used_bytes();
    for (make, grow) in [
        ("BF.RESERVE k 0.01 10", "BF.ADD k {}"),
        ("CF.RESERVE k 16", "CF.ADD k {}"),
        ("CMS.INITBYDIM k 1000 5", "CMS.INCRBY k {} 1"),
        (
            "TOPK.RESERVE k 50",
            "TOPK.INCRBY k a-name-that-is-long-{} 9",
        ),
        ("TDIGEST.CREATE k", "TDIGEST.ADD k {}"),
    ] {
        let before = used(&cli);
        cli.check(make, "OK");
        for number in 0..700 {
            cli.run(&grow.replace("{}", &number.to_string()));
        }
        let taken = used(&cli) - before;
        let reply = cli.run("MEMORY USAGE k");
        let said: i64 = reply
            .trim_start_matches("(integer) ")
            .parse()
            .expect("a number");
        assert!(
            (said - taken).abs() <= 200 + taken / 50,
            "{make}: {said} said, {taken} taken"
        );
        if make.starts_with("TDIGEST") {
            let text = fact(&mut cli, "TDIGEST.INFO k", "Memory usage");
            let told: i64 = text
                .trim_start_matches("(integer) ")
                .parse()
                .expect("a number");
            assert!(
                (told - taken).abs() <= 300 + taken / 50,
                "{told} told, {taken} taken"
            );
        }
        cli.check("DEL k", "(integer) 1");
        assert_eq!(used(&cli), before, "{make}");
    }
}
