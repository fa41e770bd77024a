//! Errors of replayed commands: they are counted and logged, and an error in a file ends the start.

use super::{TOO_FAR, write_file};
use crate::clustered::{id, unite};
use crate::replicated::{follow, info};
use crate::support::{self, Options, Server, check, eventually, free_port, start_loaded};
use crate::wire::{Raw, encode};

fn file(commands: &[&str]) -> Vec<u8> {
    let encoded = commands.iter().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        encode(&words)
    });
    encoded.collect::<Vec<_>>().concat()
}

/// Runs the program on a folder, where it has to end by itself; returns its status and its log.
fn run_on(dir: &std::path::Path) -> (Option<i32>, String) {
    let log = dir.join("log");
    let output = std::fs::File::create(&log).expect("a log file");
    let mut child = support::command()
        .args(["--metrics-port", "0", "--port", &free_port().to_string()])
        .args(["--appendonly", "yes", "--dir"])
        .arg(dir)
        .stdout(output)
        .spawn()
        .expect("it runs");
    let mut status = None;
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        eventually("it ends", || {
            status = child.try_wait().expect("the state of a child");
            status.is_some()
        });
    }));
    let _ = child.kill();
    let _ = child.wait();
    ended.expect("it ends");
    let text = std::fs::read_to_string(&log).expect("a log");
    (status.and_then(|status| status.code()), text)
}

#[test]
fn a_command_of_the_file_that_fails_ends_the_start_with_its_place_and_error() {
    if support::is_stand_in() {
        return;
    }
    let too_far = format!("COMMAND INFO basalt:note FENCE {TOO_FAR}");
    let of_lock = format!("{too_far} k 0123456789abcdef");
    const WRONG_TYPE: &str = "WRONGTYPE Operation against a key";
    const AHEAD: &str = "more than a day ahead";
    for (before, failing, name, error) in [
        (&["SET k v"][..], &["LPUSH k x"][..], "lpush", WRONG_TYPE),
        (
            &["SET k v", "MULTI", "INCR n", "LPUSH k x"],
            &["EXEC"],
            "lpush",
            WRONG_TYPE,
        ),
        (&["SET k v"], &[&too_far], "fence", AHEAD),
        (&["SET k v"], &[&of_lock], "fence", AHEAD),
        (
            &["SET k v"],
            &["MULTI", "COMMAND INFO basalt:note LSTALE k x", "EXEC"],
            "lstale",
            "not an integer",
        ),
        (&["SET k v"], &["EVAL error('why') 0"], "eval", "why"),
    ] {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let commands = [&["SELECT 0"], before, failing, &["SET after v"]].concat();
        write_file(dir.path(), &file(&commands));
        let (status, log) = run_on(dir.path());
        assert_eq!(status, Some(1), "{failing:?}: {log}");
        let mut offset = file(&[&["SELECT 0"], before].concat()).len();
        if failing.len() > 1 {
            offset += file(&failing[..failing.len() - 1]).len();
        }
        let fault = log.lines().find(|line| line.contains("of the command"));
        let fault = fault.unwrap_or_else(|| panic!("{failing:?}: {log}"));
        for wanted in [
            &format!("'{name}'"),
            error,
            "appendonly.aof.1.incr.aof",
            &format!("at offset {offset}"),
        ] {
            assert!(fault.contains(wanted), "{wanted}: {fault}");
        }
        assert!(log.contains("'aof-load-errors'"), "{log}");
        // An operator who wants the remaining data gets them, and the number of errors.
        let options = Options::shards(4)
            .with("dir", &dir.path().display().to_string())
            .with("appendonly", "yes")
            .with("aof-load-errors", "continue");
        let server = start_loaded(&options);
        let mut raw = server.raw();
        check(&mut raw, "MGET k after", "1) \"v\"\n2) \"v\"");
        assert_eq!(
            info(&mut raw, "unexpected_error_replies"),
            "1",
            "{failing:?}"
        );
        assert!(server.log().contains("== CRITICAL =="), "{}", server.log());
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    write_file(
        dir.path(),
        &file(&["SET k v", "COMMAND INFO basalt:note NEW k"]),
    );
    let (status, log) = run_on(dir.path());
    assert_eq!(status, Some(1), "{log}");
    assert!(log.contains("Unknown command 'NEW'"), "{log}");
}

#[test]
fn errors_within_transactions_of_the_primary_count_as_others_do() {
    if support::is_stand_in() {
        return;
    }
    let primary = Server::start(&Options::shards(4).with("repl-diskless-sync-delay", "0"));
    let replica = Server::start(&Options::shards(2));
    let mut raw = primary.raw();
    check(&mut raw, "SET k v", "OK");
    follow(&replica, &primary);
    for line in ["MULTI", "LPUSH k x", "INCR n", "HSET k f v", "EXEC"] {
        check(&mut raw, &format!("DEBUG REPLICATE {line}"), "OK");
    }
    let mut client = replica.raw();
    eventually("all of it has run", || {
        client.call("GET n").show() == "\"1\""
    });
    assert_eq!(info(&mut client, "unexpected_error_replies"), "2");
    let log = replica.log();
    for name in ["'lpush'", "'hset'"] {
        let is_it = |line: &&str| line.contains("== CRITICAL ==") && line.contains(name);
        assert!(log.lines().find(is_it).is_some(), "{name}: {log}");
    }
}

/// Returns a connection to a node of a cluster, over which the other node moves a slot there.
fn moving(two: &Server, one: &Server) -> Raw {
    let mut raw = two.raw();
    let name = "0123456789012345678901234567890123456789";
    let line = format!(
        "CLUSTER SYNCSLOTS ESTABLISH SOURCE {} NAME {name} SLOTSRANGE 3300 3300",
        id(one)
    );
    establish(&mut raw, &line);
    raw
}

/// Begins a move of slots, once the keys of a move before it are deleted.
fn establish(raw: &mut Raw, line: &str) {
    eventually("a move begins", || match raw.call(line).show().as_str() {
        "OK" => true,
        reply => {
            assert!(reply.contains("TRYAGAIN"), "{line}: {reply}");
            false
        }
    });
}

#[test]
fn an_error_within_a_transaction_ends_a_move_of_slots_and_counts() {
    if support::is_stand_in() {
        return;
    }
    let start = || Server::start(&crate::clustered::options());
    let (one, two) = (start(), start());
    unite(&[&one, &two]);
    for lines in [
        &["SET {b}k v", "MULTI", "LPUSH {b}k x", "EXEC"][..],
        &["COMMAND INFO basalt:note FENCE 9223372036854775806"],
        &["COMMAND INFO basalt:note FENCE 9223372036854775806 {b}k 0123456789abcdef"],
        &["MULTI", "COMMAND INFO basalt:note TAG INVALIDATE", "EXEC"],
        &["COMMAND INFO basalt:note NEW {b}k"],
    ] {
        let mut client = two.raw();
        let before: u64 = info(&mut client, "unexpected_error_replies")
            .parse()
            .expect("a number");
        let mut raw = moving(&two, &one);
        raw.send(&file(lines));
        assert!(raw.is_closed(), "{lines:?}");
        let count = info(&mut client, "unexpected_error_replies");
        assert!(
            count.parse::<u64>().expect("a number") > before,
            "{lines:?}"
        );
        let moves = client.call("CLUSTER GETSLOTMIGRATIONS").show();
        assert!(
            moves.contains("A command failed during slot import"),
            "{moves}"
        );
    }
    assert!(two.log().contains("slot migration source"), "{}", two.log());
    // A user of the nodes needs the rights to a note's command.
    let mut admin = two.raw();
    check(
        &mut admin,
        "ACL SETUSER mover on nopass +cluster +multi +exec +set +lock +command ~{b}* &*",
        "OK",
    );
    for (line, is_allowed) in [
        (
            "COMMAND INFO basalt:note FENCE 5 {b}l 0123456789abcdef",
            true,
        ),
        ("COMMAND INFO basalt:note TAG ADD {b}k x", false),
        (
            "COMMAND INFO basalt:note FENCE 5 {c}l 0123456789abcdef",
            false,
        ),
    ] {
        let mut raw = two.raw();
        check(&mut raw, "AUTH mover any", "OK");
        let name = "1123456789012345678901234567890123456789";
        let line_of_move = format!(
            "CLUSTER SYNCSLOTS ESTABLISH SOURCE {} NAME {name} SLOTSRANGE 3300 3300",
            id(&one)
        );
        establish(&mut raw, &line_of_move);
        raw.send(&file(&[line]));
        if !is_allowed {
            assert!(raw.is_closed(), "{line}");
            continue;
        }
        raw.send(&file(&["CLUSTER SYNCSLOTS ACK"]));
        assert_eq!(raw.read().items().len(), 3, "{line}");
    }
}
