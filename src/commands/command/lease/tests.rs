//! Leases in process: dialogues with their replies, log records and notifications.

use crate::command::testing::{Terminal, on_every_setup};

/// Returns the token in a reply of LGET.
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

#[test]
fn a_stale_value_is_answered_to_all_and_loaded_by_one() {
    on_every_setup(|cli| {
        cli.check("SET k old EX 10 STALE 5000", "OK");
        cli.check("PTTL k", "(integer) 15000");
        let hit = "1) \"old\"\n2) hit\n3) (integer) 0";
        let stale = "1) \"old\"\n2) stale\n3) (integer) 0";
        cli.check("LGET k LEASE 1000", hit);
        cli.advance_ms(10_000);
        cli.check("LGET k LEASE 1000", hit);
        cli.advance_ms(1);
        let first = token(cli, "LGET k LEASE 1000");
        cli.check("LGET k LEASE 1000 WAIT 1000", stale);
        cli.check("GET k", "\"old\"");
        cli.advance_ms(1_000);
        let second = token(cli, "LGET k LEASE 10000");
        assert_ne!(first, second);
        cli.check(&format!("LFILL k {first} late"), "(integer) 0");
        // The old value expires meanwhile, which does not affect the value being loaded.
        cli.advance_ms(5_000);
        cli.check("LGET k LEASE 1000", "1) (nil)\n2) busy\n3) (integer) 0");
        cli.check(
            &format!("LFILL k {second} new PX 100 STALE 50"),
            "(integer) 1",
        );
        cli.check("PTTL k", "(integer) 150");
        cli.check("LGET k LEASE 1000", "1) \"new\"\n2) hit\n3) (integer) 0");
        cli.advance_ms(101);
        let third = token(cli, "LGET k LEASE 1000");
        cli.check("SET k other PX 100 KEEPTTL", "(error) ERR syntax error");
        cli.check("DEL k", "(integer) 1");
        cli.check(&format!("LFILL k {third} late"), "(integer) 0");
    });
}

#[test]
fn the_stale_window_goes_with_the_deadline() {
    on_every_setup(|cli| {
        let is_stale = |cli: &mut Terminal, key: &str| {
            cli.run(&format!("LGET {key} LEASE 1")).contains("stale")
        };
        cli.check("SET k v PX 100 STALE 900", "OK");
        cli.check("APPEND k v", "(integer) 2");
        cli.check("COPY k copy", "(integer) 1");
        cli.check("RENAME k renamed", "OK");
        cli.check("SET renamed w KEEPTTL", "OK");
        cli.check("SET plain v PX 1000", "OK");
        cli.advance_ms(101);
        assert!(is_stale(cli, "renamed") && is_stale(cli, "copy"));
        assert!(!is_stale(cli, "plain"));
        cli.check("LSTALE plain 950", "(integer) 1");
        assert!(is_stale(cli, "plain"));
        cli.check("LSTALE plain 0", "(integer) 1");
        assert!(!is_stale(cli, "plain"));
        cli.check("LSTALE nothing 10", "(integer) 0");
        cli.check("PERSIST renamed", "(integer) 1");
        assert!(!is_stale(cli, "renamed"));
        cli.check("PEXPIRE renamed 900", "(integer) 1");
        assert!(!is_stale(cli, "renamed"));
        cli.advance_ms(1);
        assert!(is_stale(cli, "renamed"));
        cli.check("SET copy v PX 500", "OK");
        assert!(!is_stale(cli, "copy"));
    });
}

#[test]
fn wrong_windows_are_refused() {
    on_every_setup(|cli| {
        let invalid = "(error) ERR invalid stale time in 'set' command";
        let needs = "(error) ERR STALE needs EX, PX, EXAT or PXAT";
        let integer = "(error) ERR value is not an integer or out of range";
        cli.check("SET k v STALE 10", needs);
        cli.check("SET k v KEEPTTL STALE 10", needs);
        cli.check("SET k v EX 10 STALE", "(error) ERR syntax error");
        cli.check("SET k v EX 10 STALE x", integer);
        cli.check("SET k v EX 10 STALE 0", invalid);
        cli.check("SET k v EX 10 STALE -1", invalid);
        cli.check("SET k v EX 10 STALE 4294967296", invalid);
        cli.check(
            "SET k v PXAT 9223372036854775807 STALE 10",
            "(error) ERR invalid expire time in 'set' command",
        );
        cli.check(
            "LSTALE k -1",
            "(error) ERR invalid stale time in 'lstale' command",
        );
        cli.check("EXISTS k", "(integer) 0");
    });
}

#[test]
fn a_tag_that_was_invalidated_meanwhile_voids_what_is_loaded_with_it() {
    on_every_setup(|cli| {
        let mine = token(cli, "LGET k LEASE 1000");
        let other = token(cli, "LGET other LEASE 1000");
        let plain = token(cli, "LGET plain LEASE 1000");
        cli.check("TAG INVALIDATE product:7", "(integer) 0");
        let later = token(cli, "LGET later LEASE 1000");
        let fill = |key: &str, token: &str| format!("LFILL {key} {token} v TAGS 2 shop product:7");
        cli.check(&fill("k", &mine), "(integer) 0");
        cli.check(&format!("LFILL other {other} v TAGS 1 shop"), "(integer) 1");
        cli.check(&format!("LFILL plain {plain} v"), "(integer) 1");
        cli.check(&fill("later", &later), "(integer) 1");
        assert_ne!(token(cli, "LGET k LEASE 1000"), mine, "it is void");
        // The same tag in another database is a different one.
        let mine = token(cli, "LGET again LEASE 1000");
        cli.check("SELECT 1", "OK");
        cli.check("TAG INVALIDATE product:7", "(integer) 0");
        cli.check("SELECT 0", "OK");
        cli.check(&fill("again", &mine), "(integer) 1");
        // When more tags are invalidated than are remembered, all older leases that may have tags become invalid.
        let mine = token(cli, "LGET old LEASE 1000");
        for number in 0..1_100 {
            cli.run(&format!("TAG INVALIDATE t{number}"));
        }
        cli.check(&format!("LFILL old {mine} v TAGS 1 t0"), "(integer) 0");
    });
}
