//! Replays recorded dialogues of redis-server in process. The black-box tests send them to redis-server again.

use super::Terminal;
use basalt_core::resp::reply::Protocol;
use basalt_testing::transcript::{Row, Transcript};

/// Plays a recorded dialogue (`tests/support/transcript.rs`) on one and several shards, in the protocols of the file;
/// each section begins with an empty server that `prepare` may configure.
#[track_caller]
pub(crate) fn check_transcript(text: &str, prepare: impl FnMut(&mut Terminal)) {
    check_transcript_before(text, "", prepare);
}

/// Plays a recorded dialogue like [`check_transcript`], up to a section; an empty title occurs in no file.
#[track_caller]
pub(crate) fn check_transcript_before(
    text: &str,
    end: &str,
    mut prepare: impl FnMut(&mut Terminal),
) {
    let transcript = Transcript::parse(text);
    let rows = &transcript.rows;
    let sections = rows.split(|row| matches!(row, Row::Section(title) if title == end));
    let rows = sections.into_iter().next().unwrap_or(rows);
    for shard_count in [1, 4] {
        for protocol in &transcript.protocols {
            let protocol = match protocol {
                3 => Protocol::Resp3,
                _ => Protocol::Resp2,
            };
            let mut begin = || {
                let mut cli = Terminal::with(shard_count, protocol);
                prepare(&mut cli);
                for request in &transcript.before {
                    cli.run(request);
                }
                cli
            };
            let (mut cli, mut asked) = (begin(), 0);
            for row in rows {
                match row {
                    Row::Verbatim(_) => {}
                    Row::Section(_) => cli = begin(),
                    Row::Protocol(_) => panic!("a file of a family is of one protocol throughout"),
                    Row::Request(request) => {
                        let got = request.comparable(&cli.run(&request.line), true);
                        let answer = request.comparable(&request.answer, true);
                        assert_eq!(got, answer, "line {}: {}", request.number, request.line);
                        asked += 1;
                    }
                }
            }
            assert!(asked >= 10, "only {asked} requests");
        }
    }
}
