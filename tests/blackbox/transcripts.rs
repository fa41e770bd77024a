//! Replays `tests/transcripts/**/*.txt`, whose format is described in `tests/support/transcript.rs`. The replies were
//! recorded from redis-server 7.0.15 (`BLESS=1 cargo test --test blackbox transcripts`), never typed, except below a
//! `!since` line, where the local oracle does not know the command or option yet.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::support::{self, Options, Oracle, Server};
use crate::wire::Raw;

use basalt_testing::transcript::{Request, Row, Transcript};

/// Least number of redis-server's replies in the transcripts, each protocol counted: fewer would mean that
/// some are no longer checked.
const ANSWERS_MIN: usize = 6_400;

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
    let mut asked = 0;
    for file in files() {
        asked += replay(&server, &file, true, &mut wrong);
    }
    eprintln!("{asked} answers of redis-server");
    assert!(wrong.is_empty(), "record them again with BLESS=1:\n{wrong}");
    assert!(
        asked >= ANSWERS_MIN || std::env::var_os("TRANSCRIPT").is_some(),
        "only {asked} answers of redis-server were compared"
    );
}

fn bless() -> bool {
    std::env::var("BLESS").is_ok_and(|value| value == "1")
}

/// Returns all transcripts, or those whose name contains `TRANSCRIPT`.
fn files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let chosen = std::env::var("TRANSCRIPT").unwrap_or_default();
    let dirs = [dir.join("families"), dir];
    let mut files: Vec<PathBuf> = dirs
        .iter()
        .flat_map(|dir| std::fs::read_dir(dir).expect("a folder of transcripts"))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "txt"))
        .filter(|path| path.to_string_lossy().contains(&chosen))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no transcript matches {chosen:?}");
    files
}

fn parse(path: &Path) -> Transcript {
    Transcript::parse(&std::fs::read_to_string(path).expect("a transcript"))
}

/// Opens a connection that speaks a protocol.
fn connect(server: &Server, protocol: u8) -> Raw {
    let mut raw = server.raw();
    let hello = raw.call(&format!("HELLO {protocol}"));
    assert!(!hello.is_error(), "HELLO {protocol}: {}", hello.show());
    raw
}

/// Returns a connection to an emptied server, after the requests that a section begins with.
fn begin(server: &Server, transcript: &Transcript, protocol: u8) -> Raw {
    let mut raw = connect(server, protocol);
    assert_eq!(raw.call("FLUSHALL").show(), "OK");
    for request in &transcript.before {
        let reply = raw.call(request);
        assert!(!reply.is_error(), "{request}: {}", reply.show());
    }
    raw
}

/// Sends the requests of a transcript that are to be checked to a server, in one protocol.
fn play(
    server: &Server,
    transcript: &Transcript,
    protocol: u8,
    is_oracle: bool,
    mut answered: impl FnMut(&Request, String),
) {
    let mut raw = begin(server, transcript, protocol);
    for row in &transcript.rows {
        match row {
            Row::Verbatim(_) => {}
            Row::Section(_) => raw = begin(server, transcript, protocol),
            Row::Protocol(version) => raw = connect(server, *version),
            // Typed for a later version than the oracle's: its state must not differ either.
            Row::Request(request) if is_oracle && request.is_by_hand => {}
            Row::Request(request) => {
                let got = raw.call(&request.line).show();
                let got = request.comparable(&got, transcript.protocols.len() > 1);
                answered(request, got);
            }
        }
    }
}

/// Returns how many answers were compared; differences are appended to `wrong`.
fn replay(server: &Server, path: &Path, is_oracle: bool, wrong: &mut String) -> usize {
    let name = path.file_name().expect("a name").to_string_lossy();
    let transcript = parse(path);
    let mut asked = 0;
    for &protocol in &transcript.protocols {
        play(server, &transcript, protocol, is_oracle, |request, got| {
            let Request {
                line,
                number,
                answer,
                ..
            } = request;
            asked += 1;
            if got != *answer && !ran_down(line, &got, answer) {
                let _ = writeln!(
                    wrong,
                    "{name}:{number} in RESP{protocol}\n> {line}\nis       {got}\nrecorded {answer}\n"
                );
            }
        });
    }
    asked
}

/// True if the reply differs only in a time to live, which decreases while a slow machine replays; a few
/// seconds of a hundred are no difference.
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
    let transcript = parse(path);
    let mut answers = Vec::new();
    let protocol = transcript.protocols[0];
    play(server, &transcript, protocol, true, |request, got| {
        answers.push((request.number, got));
    });
    let mut answers = answers.into_iter().peekable();
    let mut out = String::new();
    for row in &transcript.rows {
        let _ = match row {
            Row::Verbatim(line) => writeln!(out, "{line}"),
            Row::Section(title) => writeln!(out, "# {title}"),
            Row::Protocol(version) => writeln!(out, "@ {version}"),
            Row::Request(request) => {
                let recorded = answers.next_if(|(number, _)| *number == request.number);
                let answer = recorded.map_or(request.answer.clone(), |(_, got)| got);
                writeln!(out, "> {}\n{answer}", request.line)
            }
        };
    }
    std::fs::write(path, out).expect("write the transcript");
}
