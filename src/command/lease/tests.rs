//! Leases in process: what a dialogue answers, leaves in the log, and is told to those who listen.

use crate::command::testing::{Terminal, on_every_setup};

/// The token in a reply of LGET.
fn token(cli: &mut Terminal, line: &str) -> String {
    let reply = cli.run(line);
    let (state, token) = reply.rsplit_once(' ').expect("three items");
    assert!(state.contains("miss") || state.contains("stale"), "{reply}");
    assert_ne!(token, "0", "{reply}");
    token.to_owned()
}

#[test]
fn a_missing_key_is_loaded_by_one_client() {
    on_every_setup(|cli| {
        let token = token(cli, "LGET k LEASE 1000");
        let nothing = "1) (nil)\n2) busy\n3) (integer) 0";
        cli.check("LGET k LEASE 1000", nothing);
        cli.check("LGET k LEASE 1000 WAIT 1000", nothing);
        cli.check("LFILL k 1 v", "(integer) 0");
        cli.check(&format!("LFILL k {token} v EX 10"), "(integer) 1");
        cli.check("LGET k LEASE 1000", "1) \"v\"\n2) hit\n3) (integer) 0");
        cli.check("PTTL k", "(integer) 10000");
        cli.check(&format!("LFILL k {token} again"), "(integer) 0");
        cli.check("GET k", "\"v\"");
    });
}

#[test]
fn a_lease_ends_when_its_time_is_over() {
    on_every_setup(|cli| {
        let first = token(cli, "LGET k LEASE 1000");
        cli.advance_ms(999);
        cli.check("LGET k LEASE 1000", "1) (nil)\n2) busy\n3) (integer) 0");
        cli.advance_ms(1);
        let second = token(cli, "LGET k LEASE 1000");
        assert_ne!(first, second);
        cli.check(&format!("LFILL k {first} old"), "(integer) 0");
        cli.check(&format!("LDROP k {first}"), "(integer) 0");
        cli.check(&format!("LFILL k {second} new"), "(integer) 1");
    });
}

#[test]
fn what_is_loaded_is_logged_as_what_7_0_knows() {
    on_every_setup(|cli| {
        cli.start_log();
        let one = token(cli, "LGET k LEASE 1000");
        assert!(cli.logged().is_empty(), "a lease is of this process");
        cli.run(&format!("LFILL k {one} v PX 5000"));
        let appended = cli.logged();
        let [one] = &appended[..] else {
            panic!("one command is logged");
        };
        let [(_, request)] = &one.commands[..] else {
            panic!("one command is logged");
        };
        let at_ms = (cli.now_ms + 5_000).to_string();
        let wanted = [b"SET".as_slice(), b"k", b"v", b"PXAT", at_ms.as_bytes()];
        assert_eq!(request, &wanted);
        let two = token(cli, "LGET j LEASE 1000");
        cli.run(&format!("LDROP j {two}"));
        cli.run("LFILL j 1 v");
        assert!(cli.logged().is_empty(), "nothing changed");
    });
}
