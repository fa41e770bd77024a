//! A log for tests that keeps all records appended to it.

use std::fmt;
use std::sync::Mutex;

use basalt_engine::record::{Audience, Log, Record, Records};

/// A log that keeps all records until they are taken.
#[derive(Default)]
pub struct KeptLog(Mutex<Vec<Appended>>);

/// The records of one append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Whether the commands take effect together.
    pub is_atomic: bool,
    /// The readers of each of the commands.
    pub audiences: Vec<Audience>,
    /// Each command with its database.
    pub commands: Vec<(usize, Vec<Vec<u8>>)>,
}

/// Shows the commands, in brackets if they take effect together; each preceded by its database unless that is 0, and
/// followed by its readers unless it is for all.
impl fmt::Display for Appended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commands = self.commands.iter().zip(&self.audiences);
        let texts = commands.map(|((db, request), audience)| {
            let db = if *db == 0 {
                String::new()
            } else {
                format!("{db}> ")
            };
            let text = db + &String::from_utf8_lossy(&request.join(&b' '));
            match *audience {
                Audience::BOTH => text,
                other => format!("{text} to {}", other.0),
            }
        });
        let text = texts.collect::<Vec<_>>().join(" | ");
        match self.is_atomic {
            true => write!(f, "[{text}]"),
            false => f.write_str(&text),
        }
    }
}

impl Log for KeptLog {
    fn append(&self, records: &mut Records, is_atomic: bool) -> u64 {
        let command = |record: Record<'_>| (record.db, arguments(&record.bytes.to_vec()));
        let commands = records.iter().map(command).collect();
        let audiences = records.iter().map(|record| record.audience).collect();
        let mut all = self.0.lock().expect("one thread");
        all.push(Appended {
            is_atomic,
            audiences,
            commands,
        });
        all.len() as u64
    }
}

/// Parses the arguments of a command in RESP.
fn arguments(resp: &[u8]) -> Vec<Vec<u8>> {
    let line = |at: &mut usize| {
        let len = resp[*at..].windows(2).position(|two| two == b"\r\n");
        let line = &resp[*at + 1..*at + len.expect("a line")];
        *at += line.len() + 3;
        let number = std::str::from_utf8(line).expect("digits");
        number.parse::<usize>().expect("a number")
    };
    let mut at = 0;
    let count = line(&mut at);
    let all = (0..count).map(|_| {
        let len = line(&mut at);
        let argument = resp[at..at + len].to_vec();
        assert_eq!(&resp[at + len..at + len + 2], b"\r\n");
        at += len + 2;
        argument
    });
    let all = all.collect();
    assert_eq!(at, resp.len());
    all
}

impl KeptLog {
    /// Returns what was appended since the last call.
    pub fn take(&self) -> Vec<Appended> {
        std::mem::take(&mut *self.0.lock().expect("no panic under it"))
    }

    /// Returns what was appended since the last call, as text.
    pub fn texts(&self) -> Vec<String> {
        self.take().iter().map(Appended::to_string).collect()
    }
}
