//! Replays `tests/transcripts/*.txt`: dialogues as redis-cli shows them, one file per family. The answers were recorded
//! from redis-server 7.0.15 (`BLESS=1 cargo test --test blackbox transcripts`), never typed, except below a `!since`
//! line, where the local oracle does not know the command or option yet.
//!
//! ```text
//! # a comment
//! @ 3              from here on the connection speaks RESP3 (a new connection is made)
//! !sorted          the next answer's items come in no particular order
//! !since 7.2       the next answer is typed by hand, from the named version's behaviour; `!since basalt: why` marks
//!                  a difference that is meant
//! > SET k v        a command, words as redis-cli splits them
//! OK               its answer, up to the next line that starts with one of # @ ! > or is empty
//! ```

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::support::{self, Options, Oracle, Server};
use crate::wire::{Raw, Value};

/// One line of a file, with the answer where it is a command.
enum Row {
    Verbatim(String),
    Protocol(u8),
    Command {
        line: String,
        number: usize,
        sorted: bool,
        by_hand: bool,
        answer: String,
    },
}

#[test]
fn ours_answers_as_recorded_at_1_and_64_shards() {
    if bless() {
        return;
    }
    for shards in [1, 64] {
        let server = Server::start(&Options::shards(shards));
        let mut wrong = String::new();
        let mut asked = 0;
        for file in files() {
            asked += replay(&server, &file, support::is_stand_in(), &mut wrong);
        }
        assert!(
            wrong.is_empty(),
            "at {shards} shards, of {asked} answers:\n{wrong}"
        );
        eprintln!("{asked} answers at {shards} shards");
    }
}

#[test]
fn the_oracle_answers_as_recorded() {
    let Some(Oracle(server)) = Oracle::start() else {
        return;
    };
    if bless() {
        for file in files() {
            record(&server, &file);
        }
        return;
    }
    let mut wrong = String::new();
    for file in files() {
        replay(&server, &file, true, &mut wrong);
    }
    assert!(wrong.is_empty(), "record them again with BLESS=1:\n{wrong}");
}

fn bless() -> bool {
    std::env::var("BLESS").is_ok_and(|value| value == "1")
}

/// All transcripts, or those whose name contains `TRANSCRIPT`.
fn files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let chosen = std::env::var("TRANSCRIPT").unwrap_or_default();
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .expect("tests/transcripts")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "txt"))
        .filter(|path| path.to_string_lossy().contains(&chosen))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no transcript matches {chosen:?}");
    files
}

fn parse(path: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(path).expect("a transcript");
    let mut rows = Vec::new();
    let mut sorted = false;
    let mut by_hand = false;
    for (index, line) in text.lines().enumerate() {
        if let Some(command) = line.strip_prefix("> ") {
            let line = command.to_owned();
            rows.push(Row::Command {
                line,
                number: index + 1,
                sorted,
                by_hand,
                answer: String::new(),
            });
            (sorted, by_hand) = (false, false);
        } else if let Some(protocol) = line.strip_prefix("@ ") {
            rows.push(Row::Protocol(
                protocol.trim().parse().expect("2 or 3 after @"),
            ));
        } else if line == "!sorted" {
            sorted = true;
            rows.push(Row::Verbatim(line.to_owned()));
        } else if line.starts_with("!since ") {
            by_hand = true;
            rows.push(Row::Verbatim(line.to_owned()));
        } else if line.is_empty() || line.starts_with('#') {
            rows.push(Row::Verbatim(line.to_owned()));
        } else if let Some(Row::Command { answer, .. }) = rows.last_mut() {
            if !answer.is_empty() {
                answer.push('\n');
            }
            answer.push_str(line);
        } else {
            panic!(
                "{}:{}: an answer without a command: {line}",
                path.display(),
                index + 1
            );
        }
    }
    rows
}

fn fresh(server: &Server) -> Raw {
    let mut raw = server.raw();
    assert_eq!(raw.call("FLUSHALL").show(), "OK");
    raw
}

fn ask(raw: &mut Raw, line: &str, sorted: bool) -> String {
    let reply = raw.call(line);
    match reply {
        Value::Array(mut items) if sorted => {
            items.sort();
            Value::Array(items).show()
        }
        other => other.show(),
    }
}

/// Returns how many answers were compared; differences are appended to `wrong`.
fn replay(server: &Server, path: &Path, is_oracle: bool, wrong: &mut String) -> usize {
    let name = path
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    let mut raw = fresh(server);
    let mut asked = 0;
    for row in parse(path) {
        match row {
            Row::Verbatim(_) => {}
            Row::Protocol(version) => {
                raw = server.raw();
                assert!(
                    !raw.call(&format!("HELLO {version}")).is_error(),
                    "HELLO {version}"
                );
            }
            // Recorded by hand for a later version than the oracle's: its state must not differ either.
            Row::Command { by_hand: true, .. } if is_oracle => {}
            Row::Command {
                line,
                number,
                sorted,
                answer,
                ..
            } => {
                let got = ask(&mut raw, &line, sorted);
                asked += 1;
                if got != answer && !ran_down(&line, &got, &answer) {
                    let _ = writeln!(
                        wrong,
                        "{name}:{number}\n> {line}\nis       {got}\nrecorded {answer}\n"
                    );
                }
            }
        }
    }
    asked
}

/// A time to live goes down while a slow machine replays; a few seconds of a hundred are no difference.
fn ran_down(line: &str, got: &str, answer: &str) -> bool {
    let seconds = |text: &str| {
        text.strip_prefix("(integer) ")
            .and_then(|digits| digits.parse::<i64>().ok())
    };
    match (seconds(got), seconds(answer)) {
        (Some(got), Some(answer)) => {
            line.starts_with("TTL ") && answer >= 50 && (answer - 10..=answer).contains(&got)
        }
        _ => false,
    }
}

fn record(server: &Server, path: &Path) {
    let mut raw = fresh(server);
    let mut out = String::new();
    for row in parse(path) {
        match row {
            Row::Verbatim(line) => out += &format!("{line}\n"),
            Row::Protocol(version) => {
                raw = server.raw();
                raw.call(&format!("HELLO {version}"));
                out += &format!("@ {version}\n");
            }
            Row::Command {
                line,
                by_hand: true,
                answer,
                ..
            } => out += &format!("> {line}\n{answer}\n"),
            Row::Command { line, sorted, .. } => {
                out += &format!("> {line}\n{}\n", ask(&mut raw, &line, sorted));
            }
        }
    }
    std::fs::write(path, out).expect("write the transcript");
}
