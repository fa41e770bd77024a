//! Under `appendfsync always`, no reply leaves before every change that it reflects is in the file, whichever
//! path made the change.

use std::path::Path;

use crate::support::{self, Options, Server, check, eventually, info_text, start_loaded};
use crate::wire::{Raw, encode};

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

    /// Sends a change, waits until the command has run (in a section of INFO that waits for no disk), and asks. When
    /// the answer comes, the text stands in the file.
    fn check_seen(
        &self,
        change: &[&str],
        command: &str,
        text: &str,
        ask: impl FnOnce() -> String,
    ) -> String {
        let (mut writer, mut observer) = (self.server.raw(), self.server.raw());
        assert!(!self.has_written(text), "{text} is there before its time");
        let before = calls(&mut observer, command);
        writer.send(&encode(change));
        eventually("the change has run", || {
            calls(&mut observer, command) > before
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

/// Returns the number of calls of a command.
fn calls(observer: &mut Raw, command: &str) -> u64 {
    let figures = info_text(observer, "commandstats", &format!("cmdstat_{command}"));
    let figures = figures.unwrap_or_default();
    let calls = figures
        .split(',')
        .find_map(|figure| figure.strip_prefix("calls="));
    calls.map_or(0, |calls| calls.parse().expect("a number"))
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
    const LOAD: &str = "function|load";
    let code = |name: &str| library(name, &format!("f_{name}"));
    let mut ask = |words: &[&str]| client.command(words).show();

    let lists = |ask: &mut dyn FnMut(&[&str]) -> String, name: &str| {
        assert!(ask(&["FUNCTION", "LIST"]).contains(name));
    };
    slow.check_seen(
        &["FUNCTION", "LOAD", &code("one")],
        LOAD,
        "name=one",
        || {
            lists(&mut ask, "one");
            "FUNCTION LIST".to_owned()
        },
    );
    let dump = slow.check_seen(
        &["FUNCTION", "LOAD", &code("two")],
        LOAD,
        "name=two",
        || ask(&["FUNCTION", "DUMP"]),
    );
    assert!(dump.contains("two"), "{dump}");
    let stats = slow.check_seen(
        &["FUNCTION", "LOAD", &code("three")],
        LOAD,
        "name=three",
        || ask(&["FUNCTION", "STATS"]),
    );
    assert!(stats.contains("(integer) 3"), "{stats}");
    let called = slow.check_seen(
        &["FUNCTION", "LOAD", &code("four")],
        LOAD,
        "name=four",
        || ask(&["FCALL", "f_four", "0"]),
    );
    assert_eq!(called, "\"ran\"");
    let again = slow.check_seen(
        &["FUNCTION", "LOAD", &code("five")],
        LOAD,
        "name=five",
        || ask(&["FUNCTION", "LOAD", &code("five")]),
    );
    assert!(again.contains("already exists"), "{again}");
    let queued = slow.check_seen(
        &["FUNCTION", "LOAD", &code("six")],
        LOAD,
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
        "function|delete",
        "DELETE\r\n$4\r\nfour",
        || ask(&["FCALL", "f_four", "0"]),
    );
    assert!(gone.contains("Function not found"), "{gone}");
    let gone = slow.check_seen(
        &["FUNCTION", "DELETE", "three"],
        "function|delete",
        "DELETE\r\n$5\r\nthree",
        || ask(&["FUNCTION", "DELETE", "three"]),
    );
    assert!(gone.contains("Library not found"), "{gone}");
    let none = slow.check_seen(
        &["FUNCTION", "FLUSH"],
        "function|flush",
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
        "set",
        "by-another",
        || client.call("EXEC").show(),
    );
    assert_eq!(answer, "(nil array)");
}

#[test]
fn what_figures_tell_of_data_waits_for_the_disk() {
    if support::is_stand_in() {
        return;
    }
    let slow = Slow::start();
    let asked: [&[&str]; 6] = [
        &["INFO"],
        &["INFO", "keyspace"],
        &["INFO", "replication", "memory"],
        &["INFO", "everything"],
        &["MEMORY", "STATS"],
        &["MEMORY", "DOCTOR"],
    ];
    for (number, request) in asked.iter().enumerate() {
        let mut client = slow.server.raw();
        let value = format!("value-{number}.");
        slow.check_seen(&["SET", &value, &value], "set", &value, || {
            client.command(request).show()
        });
    }
}

#[test]
fn what_monitors_are_shown_waits_for_the_disk() {
    if support::is_stand_in() {
        return;
    }
    let slow = Slow::start();
    let mut monitor = slow.server.raw();
    check(&mut monitor, "MONITOR", "OK");
    let script = "return redis.call('SET', KEYS[1], 'by-a-script')";
    let changes: [(&[&str], &str, &str); 2] = [
        (&["SET", "key", "by-a-client"], "set", "by-a-client"),
        (&["EVAL", script, "1", "key"], "eval", "by-a-script"),
    ];
    for (change, command, text) in changes {
        slow.check_seen(change, command, text, || {
            loop {
                let line = monitor.read().show();
                if line.to_ascii_lowercase().contains("\"set\"") {
                    return line;
                }
            }
        });
    }
}

#[test]
fn replicas_get_what_is_on_the_disk_of_their_primary() {
    if support::is_stand_in() {
        return;
    }
    let slow = Slow::start();
    // A write in a snapshot for replicas is on the disk as well.
    let mut writer = slow.server.raw();
    writer.send(&encode(&["SET", "key", "in-the-snapshot"]));
    let replica = Server::start(&Options::shards(8));
    let mut observer = replica.raw();
    let port = slow.server.port;
    check(&mut observer, &format!("REPLICAOF 127.0.0.1 {port}"), "OK");
    let mut writers = vec![writer];
    for (number, text) in ["in-the-snapshot", "one", "two", "three"]
        .iter()
        .enumerate()
    {
        let value = format!("{text}.{number}");
        let value = if number == 0 {
            (*text).to_owned()
        } else {
            value
        };
        if number > 0 {
            assert!(!slow.has_written(&value));
            let mut writer = slow.server.raw();
            writer.send(&encode(&["SET", "key", &value]));
            writers.push(writer);
        }
        eventually("the replica has it", || {
            observer.command(&["GET", "key"]).show() == format!("\"{value}\"")
        });
        assert!(slow.has_written(&value), "the replica had {value} first");
    }
    for writer in &mut writers {
        assert_eq!(writer.read().show(), "OK");
    }
    // A client that waits for replicas gets its reply after the sync.
    let mut client = slow.server.raw();
    check(&mut client, "SET key last", "OK");
    check(&mut client, "WAIT 1 0", "(integer) 1");
    check(
        &mut client,
        "WAITAOF 1 0 0",
        "1) (integer) 1\n2) (integer) 0",
    );
}
