//! COMMAND in process. Its replies for each command are compared with redis-server by `tests/blackbox/introspect.rs`.

use super::super::testing::{Terminal, on_every_setup};

#[test]
fn get_keys_finds_what_a_command_would_touch() {
    on_every_setup(|cli| {
        cli.check("COMMAND GETKEYS GET a", "1) \"a\"");
        cli.check("COMMAND GETKEYS MSET a 1 b 2", "1) \"a\"\n2) \"b\"");
        cli.check("COMMAND GETKEYS MEMORY USAGE k", "1) \"k\"");
        cli.check("COMMAND GETKEYS OBJECT ENCODING k", "1) \"k\"");
    });
}

#[test]
fn get_keys_refuses_what_has_no_keys() {
    on_every_setup(|cli| {
        cli.check_all(&[
            (
                "COMMAND GETKEYS PING",
                "(error) ERR The command has no key arguments",
            ),
            (
                "COMMAND GETKEYS nosuch",
                "(error) ERR Invalid command specified",
            ),
            (
                "COMMAND GETKEYS CONFIG nosuch",
                "(error) ERR Invalid command specified",
            ),
            (
                "COMMAND GETKEYS GET",
                "(error) ERR Invalid number of arguments specified for command",
            ),
            (
                "COMMAND GETKEYS CONFIG",
                "(error) ERR The command has no key arguments",
            ),
        ]);
    });
}

#[test]
fn flags_of_keys_follow_the_arguments_where_they_vary() {
    let mut cli = Terminal::new();
    for (line, flags) in [
        ("SET a 1", "1) OW\n      2) update"),
        (
            "SET a 1 EX 5 get",
            "1) RW\n      2) access\n      3) update",
        ),
        ("BITFIELD a GET u8 0", "1) RO\n      2) access"),
        (
            "BITFIELD a SET u8 0 1",
            "1) RW\n      2) access\n      3) update",
        ),
        ("GET a", "1) RO\n      2) access"),
        ("SET a 1 ifeq 2", "1) RW\n      2) access\n      3) update"),
        ("DELEX a", "1) RM\n      2) delete"),
        ("DELEX a IFDNE 2", "1) RW\n      2) access\n      3) delete"),
    ] {
        cli.check(
            &format!("COMMAND GETKEYSANDFLAGS {line}"),
            &format!("1) 1) \"a\"\n   2) {flags}"),
        );
    }
}

#[test]
fn lists_are_filtered() {
    on_every_setup(|cli| {
        cli.check("COMMAND LIST FILTERBY MODULE json", "(empty array)");
        cli.check("COMMAND LIST FILTERBY PATTERN SUBST*", "1) \"substr\"");
        cli.check(
            "COMMAND LIST FILTERBY PATTERN config|g*",
            "1) \"config|get\"",
        );
        cli.check("COMMAND LIST FILTERBY ACLCAT nosuch", "(empty array)");
        assert!(
            cli.run("COMMAND LIST FILTERBY ACLCAT String")
                .contains("\"getset\"")
        );
        assert!(
            !cli.run("COMMAND LIST FILTERBY ACLCAT string")
                .contains("\"ping\"")
        );
        for line in [
            "COMMAND LIST FILTERBY",
            "COMMAND LIST FILTERBY COLOUR red",
            "COMMAND LIST PATTERN a*",
        ] {
            cli.check(line, "(error) ERR syntax error");
        }
    });
}

#[test]
fn rows_that_only_route_are_not_listed() {
    let mut cli = Terminal::new();
    assert!(!cli.run("COMMAND LIST").contains("debug|"));
    cli.check("COMMAND INFO debug|object", "1) (nil)");
    assert!(!cli.run("COMMAND DOCS debug").contains("subcommands"));
}

#[test]
fn names_are_found_in_any_case_and_unknown_ones_are_null_or_left_out() {
    let mut cli = Terminal::new();
    assert!(cli.run("COMMAND INFO Config|GET").contains("config|get"));
    cli.check(
        "COMMAND INFO nosuch get|x config|get|x",
        "1) (nil)\n2) (nil)\n3) (nil)",
    );
    cli.check("COMMAND DOCS nosuch", "(empty array)");
    cli.check(
        "COMMAND nosuch",
        "(error) ERR unknown subcommand 'nosuch'. Try COMMAND HELP.",
    );
}

#[test]
fn a_row_is_described_as_in_redis() {
    let mut cli = Terminal::new();
    let expected = "1)  1) \"get\"\n    2) (integer) 2\n    3) 1) readonly\n       2) fast\n    \
                    4) (integer) 1\n    5) (integer) 1\n    6) (integer) 1\n    \
                    7) 1) @read\n       2) @string\n       3) @fast\n    8) (empty array)\n    \
                    9) 1) 1) \"flags\"\n          2) 1) RO\n             2) access\n          \
                    3) \"begin_search\"\n          4) 1) \"type\"\n             2) \"index\"\n             \
                    3) \"spec\"\n             4) 1) \"index\"\n                2) (integer) 1\n          \
                    5) \"find_keys\"\n          6) 1) \"type\"\n             2) \"range\"\n             \
                    3) \"spec\"\n             4) 1) \"lastkey\"\n                2) (integer) 0\n                \
                    3) \"keystep\"\n                4) (integer) 1\n                5) \"limit\"\n                \
                    6) (integer) 0\n   10) (empty array)";
    cli.check("COMMAND INFO get", expected);
}
