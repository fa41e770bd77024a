//! Tests of `connection`.

use crate::command::context::After;
use crate::command::testing::{Terminal, check, check_all, on_every_setup};
use basalt_core::resp::reply::Protocol;

#[test]
fn ping_and_echo_answer_what_they_are_given() {
    check_all(&[
        ("PING", "PONG"),
        ("PING a", "\"a\""),
        (
            "PING a b",
            "(error) ERR wrong number of arguments for 'ping' command",
        ),
        ("ECHO \"\"", "\"\""),
        (
            "ECHO",
            "(error) ERR wrong number of arguments for 'echo' command",
        ),
    ]);
}

const WRONG: &str = "(error) WRONGPASS invalid username-password pair or user is disabled.";

#[test]
fn without_a_password_auth_takes_any_from_the_default_user() {
    check(
        "AUTH x",
        "(error) ERR AUTH <password> called without any password configured for the \
             default user. Are you sure your configuration is correct?",
    );
    check("AUTH default x", "OK");
    check("AUTH nobody x", WRONG);
    check("AUTH a b c", "(error) ERR syntax error");
}

#[test]
fn auth_compares_with_requirepass() {
    on_every_setup(|cli| {
        cli.check("ACL SETUSER default resetpass >secret", "OK");
        cli.connection.authenticated = false;
        cli.check("AUTH wrong", WRONG);
        cli.check("AUTH default wrong", WRONG);
        cli.check("AUTH nobody secret", WRONG);
        assert!(!cli.connection.authenticated);
        let refused = cli.run("HELLO 3");
        assert!(
            refused.starts_with("(error) NOAUTH HELLO must be called"),
            "{refused}"
        );
        cli.check("HELLO 3 AUTH default wrong", WRONG);
        cli.check("AUTH secret", "OK");
        assert!(cli.connection.authenticated);
        cli.check("RESET", "RESET");
        assert!(!cli.connection.authenticated);
        cli.check("AUTH default secret", "OK");
        assert!(cli.connection.authenticated);
    });
}

#[test]
fn hello_switches_the_protocol_and_reports() {
    let mut cli = Terminal::new();
    let reply = cli.run("HELLO 3 SETNAME me");
    assert_eq!(
        reply,
        "1# \"server\" => \"redis\"\n2# \"version\" => \"7.4.0\"\n3# \"proto\" => (integer) 3\n\
             4# \"id\" => (integer) 1\n5# \"mode\" => \"standalone\"\n6# \"role\" => \"master\"\n\
             7# \"modules\" => (empty array)"
    );
    assert_eq!(cli.connection.protocol, Protocol::Resp3);
    cli.check("CLIENT GETNAME", "\"me\"");
    assert!(cli.run("HELLO").contains("\"proto\" => (integer) 3"));
    assert!(
        cli.run("HELLO 2")
            .starts_with(" 1) \"server\"\n 2) \"redis\"")
    );
    assert_eq!(cli.connection.protocol, Protocol::Resp2);
}

#[test]
fn a_hello_that_fails_changes_nothing() {
    let mut cli = Terminal::new();
    cli.check_all(&[
        ("HELLO 4", "(error) NOPROTO unsupported protocol version"),
        ("HELLO 1", "(error) NOPROTO unsupported protocol version"),
        (
            "HELLO x",
            "(error) ERR Protocol version is not an integer or out of range",
        ),
        (
            "HELLO 3 AUTH a",
            "(error) ERR Syntax error in HELLO option 'AUTH'",
        ),
        (
            "HELLO 3 foo",
            "(error) ERR Syntax error in HELLO option 'foo'",
        ),
        (
            "HELLO 3 SETNAME \"a b\"",
            "(error) ERR Client names cannot contain spaces, newlines or special characters.",
        ),
        ("HELLO 3 SETNAME ok AUTH nobody x", WRONG),
        ("CLIENT GETNAME", "(nil)"),
    ]);
    assert_eq!(cli.connection.protocol, Protocol::Resp2);
}

#[test]
fn quit_closes_after_its_reply() {
    let mut cli = Terminal::new();
    cli.check("QUIT", "OK");
    assert!(matches!(cli.after, After::Close));
}

#[test]
fn reset_forgets_what_the_client_chose() {
    let mut cli = Terminal::new();
    cli.run("HELLO 3 SETNAME me");
    cli.check("SELECT 3", "OK");
    cli.check("CLIENT NO-TOUCH ON", "OK");
    cli.check("RESET", "RESET");
    assert_eq!(cli.connection.db, 0);
    assert_eq!(cli.connection.protocol, Protocol::Resp2);
    assert!(!cli.connection.no_touch);
    cli.check("CLIENT GETNAME", "(nil)");
}
