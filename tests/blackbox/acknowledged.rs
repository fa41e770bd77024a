//! Under `appendfsync always` no reply leaves before what it knows of is in the file, whatever carried the change.

use std::path::Path;

use crate::support::{self, Options, Server, check, eventually, info_number, start_loaded};
use crate::wire::encode;

/// A server whose disk takes its time, and its folder.
struct Slow {
    server: Server,
    dir: tempfile::TempDir,
}

impl Slow {
    fn start() -> Slow {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let options = Options::shards(8)
            .with("dir", &dir.path().display().to_string())
            .with("appendonly", "yes")
            .with("appendfsync", "always");
        let server = start_loaded(&options);
        check(&mut server.raw(), "DEBUG AOF-FLUSH-SLEEP 400000", "OK");
        Slow { server, dir }
    }

    /// Whether the text is in one of the files.
    fn has_written(&self, text: &str) -> bool {
        files(&self.dir.path().join("appendonlydir"))
            .iter()
            .any(|bytes| {
                bytes
                    .windows(text.len())
                    .any(|part| part == text.as_bytes())
            })
    }

    /// Sends a change, waits until it can be seen (`figure` of `section` in INFO, which waits for no disk, has the
    /// value), and asks. When the answer comes, the text stands in the file.
    fn check_seen(
        &self,
        change: &[&str],
        (section, figure, value): (&str, &str, f64),
        text: &str,
        ask: impl FnOnce() -> String,
    ) -> String {
        let (mut writer, mut observer) = (self.server.raw(), self.server.raw());
        assert!(!self.has_written(text), "{text} is there before its time");
        writer.send(&encode(change));
        eventually("the change can be seen", || {
            info_number(&mut observer, section, figure) == value
        });
        let answer = ask();
        assert!(
            self.has_written(text),
            "{answer} was answered before {text} was written"
        );
        assert!(!writer.read().is_error());
        answer
    }
}

fn files(folder: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(folder).expect("the folder of the append-only file");
    let files = entries.map(|entry| entry.expect("an entry").path());
    files
        .map(|path| std::fs::read(path).unwrap_or_default())
        .collect()
}

fn library(name: &str, function: &str) -> String {
    format!("#!lua name={name}\nredis.register_function('{function}', function() return 'ran' end)")
}

#[test]
fn what_is_known_of_libraries_waits_for_the_disk() {
    if support::is_stand_in() {
        return;
    }
    let slow = Slow::start();
    let mut client = slow.server.raw();
    let libraries = |count: f64| ("memory", "number_of_libraries", count);
    let code = |name: &str| library(name, &format!("f_{name}"));
    let mut ask = |words: &[&str]| client.command(words).show();

    let lists = |ask: &mut dyn FnMut(&[&str]) -> String, name: &str| {
        assert!(ask(&["FUNCTION", "LIST"]).contains(name));
    };
    slow.check_seen(
        &["FUNCTION", "LOAD", &code("one")],
        libraries(1.0),
        "name=one",
        || {
            lists(&mut ask, "one");
            "FUNCTION LIST".to_owned()
        },
    );
    let dump = slow.check_seen(
        &["FUNCTION", "LOAD", &code("two")],
        libraries(2.0),
        "name=two",
        || ask(&["FUNCTION", "DUMP"]),
    );
    assert!(dump.contains("two"), "{dump}");
    let stats = slow.check_seen(
        &["FUNCTION", "LOAD", &code("three")],
        libraries(3.0),
        "name=three",
        || ask(&["FUNCTION", "STATS"]),
    );
    assert!(stats.contains("(integer) 3"), "{stats}");
    let called = slow.check_seen(
        &["FUNCTION", "LOAD", &code("four")],
        libraries(4.0),
        "name=four",
        || ask(&["FCALL", "f_four", "0"]),
    );
    assert_eq!(called, "\"ran\"");
    let again = slow.check_seen(
        &["FUNCTION", "LOAD", &code("five")],
        libraries(5.0),
        "name=five",
        || ask(&["FUNCTION", "LOAD", &code("five")]),
    );
    assert!(again.contains("already exists"), "{again}");
    let queued = slow.check_seen(
        &["FUNCTION", "LOAD", &code("six")],
        libraries(6.0),
        "name=six",
        || {
            ask(&["MULTI"]);
            ask(&["FCALL_RO", "f_six", "0"]);
            ask(&["EXEC"])
        },
    );
    assert!(queued.contains("Can not execute"), "{queued}");
    let gone = slow.check_seen(
        &["FUNCTION", "DELETE", "four"],
        libraries(5.0),
        "DELETE\r\n$4\r\nfour",
        || ask(&["FCALL", "f_four", "0"]),
    );
    assert!(gone.contains("Function not found"), "{gone}");
    let gone = slow.check_seen(
        &["FUNCTION", "DELETE", "three"],
        libraries(4.0),
        "DELETE\r\n$5\r\nthree",
        || ask(&["FUNCTION", "DELETE", "three"]),
    );
    assert!(gone.contains("Library not found"), "{gone}");
    let none = slow.check_seen(
        &["FUNCTION", "FLUSH"],
        libraries(0.0),
        "$5\r\nFLUSH",
        || ask(&["FUNCTION", "LIST"]),
    );
    assert_eq!(none, "(empty array)");
}

#[test]
fn a_transaction_that_was_given_up_for_a_watched_key_waits_for_the_disk() {
    if support::is_stand_in() {
        return;
    }
    let slow = Slow::start();
    let mut client = slow.server.raw();
    check(&mut client, "WATCH watched", "OK");
    check(&mut client, "MULTI", "OK");
    check(&mut client, "PING", "QUEUED");
    let answer = slow.check_seen(
        &["SET", "watched", "by-another"],
        ("persistence", "rdb_changes_since_last_save", 1.0),
        "by-another",
        || client.call("EXEC").show(),
    );
    assert_eq!(answer, "(nil array)");
}
