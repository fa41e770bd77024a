//! Moves that the target node requests: CLUSTER MIGRATION, in the syntax of Redis 8.4.

use super::{SLOT, check_filled, fill, latest, owns, pair};
use crate::clustered::options;
use crate::support::{Server, check, eventually, is_stand_in};
use crate::wire::Value;

/// Asks for the slot; the name of the task.
fn import(to: &Server) -> String {
    let line = format!("CLUSTER MIGRATION IMPORT {SLOT} {SLOT}");
    let task = to.raw().call(&line).text();
    assert_eq!(task.len(), 40, "{task}");
    task
}

/// Returns a field of a task, which `which` names or which is the node's only one.
fn field(server: &Server, which: &str, name: &str) -> String {
    let line = format!("CLUSTER MIGRATION STATUS {which}");
    let reply = server.raw().call(&line);
    let [task] = reply.items() else {
        return reply.show();
    };
    let mut pairs = task.items().chunks(2);
    let pair = pairs.find(|pair| pair[0].text() == name);
    match &pair.unwrap_or_else(|| panic!("no {name}: {}", reply.show()))[1] {
        Value::Integer(number) => number.to_string(),
        text => text.text(),
    }
}

#[test]
fn the_node_that_gets_slots_asks_for_them() {
    if is_stand_in() {
        return;
    }
    let (one, two) = pair(&options());
    fill(&one, 2_000);
    let task = import(&two);
    let which = format!("ID {task}");
    eventually("it is completed", || {
        field(&two, &which, "state") == "completed"
    });
    check_filled(&two, 2_000);
    assert!(owns(&two));
    assert_eq!(field(&two, &which, "slots"), format!("{SLOT}-{SLOT}"));
    assert_eq!(field(&two, "ALL", "operation"), "import");
    eventually("the source knows", || {
        field(&one, "ALL", "state") == "completed"
    });
    assert_eq!(field(&one, "ALL", "operation"), "migrate");
    for (server, name) in [(&one, "source"), (&two, "dest")] {
        let id = server.raw().call("CLUSTER MYID").text();
        assert_eq!(field(&one, "ALL", name), id);
        assert_eq!(field(&two, &which, name), id);
    }
    for name in ["create_time", "end_time"] {
        assert!(field(&two, &which, name).len() >= 13, "in milliseconds");
    }
    assert_eq!(field(&two, &which, "last_error"), "");
    // And back.
    let back = import(&one);
    eventually("it is back", || {
        field(&one, &format!("ID {back}"), "state") == "completed"
    });
    check_filled(&one, 2_000);
}

#[test]
fn what_the_source_says_against_it_is_told() {
    if is_stand_in() {
        return;
    }
    let (one, two) = pair(&options());
    check(&mut one.raw(), "CONFIG SET requirepass secret", "OK");
    let refused = format!("ID {}", import(&two));
    eventually("it has failed", || {
        field(&two, &refused, "state") == "failed"
    });
    let why = field(&two, &refused, "last_error");
    assert!(
        why.starts_with("Source node replied with error: NOAUTH"),
        "{why}"
    );
    // Another one may be asked for, with the password.
    check(&mut two.raw(), "CONFIG SET masterauth secret", "OK");
    let task = format!("ID {}", import(&two));
    eventually("it is completed", || {
        field(&two, &task, "state") == "completed"
    });
}

#[test]
fn what_is_not_wanted_any_more_does_not_come() {
    if is_stand_in() {
        return;
    }
    let (one, two) = pair(&options());
    fill(&one, 100);
    one.signal("STOP");
    let task = import(&two);
    let which = format!("ID {task}");
    assert_eq!(field(&two, &which, "state"), "connecting");
    let cancel = format!("CLUSTER MIGRATION CANCEL ID {task}");
    check(&mut two.raw(), &cancel, "(integer) 1");
    check(&mut two.raw(), &cancel, "(integer) 0");
    assert_eq!(field(&two, &which, "state"), "canceled");
    assert_eq!(field(&two, &which, "last_error"), "user request");
    one.signal("CONT");
    // The source had already received the request, and learns that it is too late.
    eventually("the source gives up", || latest(&one, "state") == "failed");
    assert!(owns(&one));
    check_filled(&one, 100);
}

#[test]
fn arguments_are_looked_at_as_redis_does() {
    if is_stand_in() {
        return;
    }
    const ARITY: &str = "ERR wrong number of arguments for 'cluster|migration' command";
    const RANGE: &str = "ERR Invalid or out of range slot";
    const UNKNOWN: &str = "ERR unknown argument";
    let (one, _two) = pair(&options());
    for (line, error) in [
        ("IMPORT", ARITY),
        ("IMPORT 100", ARITY),
        ("IMPORT 100 200 300", ARITY),
        (
            "IMPORT 200 100",
            "ERR start slot number 200 is greater than end slot number 100",
        ),
        ("IMPORT 14000 18000", RANGE),
        ("IMPORT -1 0", RANGE),
        ("IMPORT sd sd", RANGE),
        (
            "IMPORT 9000 9001 9001 9002",
            "ERR Slot 9001 specified multiple times",
        ),
        (
            "IMPORT 100 200",
            "ERR this node is already the owner of the slot range",
        ),
        (
            "IMPORT 8000 9000",
            "ERR slots belong to different source nodes",
        ),
        ("CANCEL ID", ARITY),
        ("CANCEL ALL x", ARITY),
        ("CANCEL NOW", UNKNOWN),
        ("STATUS NOW", UNKNOWN),
        ("BEGIN ALL", UNKNOWN),
    ] {
        let line = format!("CLUSTER MIGRATION {line}");
        check(&mut one.raw(), &line, &format!("(error) {error}"));
    }
    check(
        &mut one.raw(),
        "CLUSTER MIGRATION CANCEL ALL",
        "(integer) 0",
    );
    check(
        &mut one.raw(),
        "CLUSTER MIGRATION STATUS ALL",
        "(empty array)",
    );
    check(
        &mut one.raw(),
        "CLUSTER MIGRATION STATUS ID x",
        "(empty array)",
    );
    let alone = Server::start(&options());
    let none = "(error) ERR slot has no owner: 5";
    check(&mut alone.raw(), "CLUSTER MIGRATION IMPORT 5 6", none);
}
