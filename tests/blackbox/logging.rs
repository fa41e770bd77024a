//! Formats of the log, and what must not appear in it.

use crate::support::{Options, Server, check, eventually, is_stand_in};

#[test]
fn the_log_has_the_shape_that_was_asked_for_and_changes_it() {
    if is_stand_in() {
        return;
    }
    let server = Server::start(
        &Options::shards(1)
            .with("log-format", "json")
            .with("log-timestamp-format", "iso8601"),
    );
    let mut raw = server.raw();
    let pid = server.pid();
    // The thread that serves may be faster than the one that writes the line of the start.
    let line = |mark: &str| {
        let mut found = None;
        eventually(&format!("a line with {mark}"), || {
            let log = server.log();
            found = log
                .lines()
                .find(|line| line.contains(mark))
                .map(str::to_owned);
            found.is_some()
        });
        found.expect("it has been waited for")
    };
    let first = line("Server initialized");
    let start = format!("{{\"pid\":{pid},\"role\":\"primary\",\"timestamp\":\"20");
    let end = "\",\"level\":\"notice\",\"message\":\"Server initialized\"}";
    assert!(first.starts_with(&start) && first.ends_with(end), "{first}");
    check(
        &mut raw,
        "CONFIG SET log-format logfmt log-timestamp-format milliseconds",
        "OK",
    );
    check(&mut raw, "REPLICAOF 127.0.0.1 1", "OK");
    check(&mut raw, "DEBUG LOG 'a \"word\"'", "OK");
    let second = line("word");
    let start = format!("pid={pid} role=replica timestamp=\"1");
    let end = "a \\\"word\\\"\"";
    assert!(
        second.starts_with(&start) && second.ends_with(end),
        "{second}"
    );
    assert!(second.contains("\" level=warning message=\""), "{second}");
    check(
        &mut raw,
        "CONFIG SET log-format legacy log-timestamp-format legacy",
        "OK",
    );
    check(&mut raw, "DEBUG LOG third", "OK");
    let third = line("third");
    assert!(
        third.starts_with(&format!("{pid}:S ")) && third.ends_with("third"),
        "{third}"
    );
}

#[test]
fn names_of_clients_stay_out_of_reports_if_that_is_asked_for() {
    if is_stand_in() {
        return;
    }
    for (value, is_hidden) in [("no", false), ("yes", true)] {
        let server = Server::start(&Options::shards(1).with("hide-user-data-from-log", value));
        let mut raw = server.raw();
        check(&mut raw, "CLIENT SETNAME alice", "OK");
        raw.send(b"DEBUG SEGFAULT\r\n");
        eventually("the report", || {
            server.log().contains("REDIS BUG REPORT END")
        });
        let log = server.log();
        assert_eq!(log.contains("name=*redacted* "), is_hidden, "{log}");
        assert_eq!(log.contains("alice"), !is_hidden, "{log}");
    }
}
