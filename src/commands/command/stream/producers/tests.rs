//! Tests of `producers`.

use crate::command::testing::{Terminal, check_all, on_every_setup};

fn figures(cli: &mut Terminal) -> String {
    let reply = cli.run("XINFO STREAM s");
    let (_, figures) = reply.split_once("\"idmp-duration\"").expect("it is said");
    let numbers = figures.split("(integer) ").skip(1).take(6);
    let numbers = numbers.filter_map(|text| text.lines().next());
    numbers.collect::<Vec<_>>().join(" ")
}

#[test]
fn an_entry_that_its_producer_names_again_is_not_added_again() {
    on_every_setup(|cli| {
        cli.check("XADD s NOMKSTREAM IDMP p one * a 1", "(nil)");
        let one = cli.run("XADD s IDMP p one * a 1");
        assert_eq!(cli.run("XADD s IDMP p one * other fields"), one);
        assert_ne!(cli.run("XADD s IDMP p two * a 1"), one);
        assert_ne!(cli.run("XADD s IDMP q one MAXLEN 100 * a 1"), one);
        cli.check("XLEN s", "(integer) 3");
        assert_eq!(figures(cli), "100 100 2 3 3 1");
        // An entry that was deleted still counts as added.
        cli.run(&format!("XDEL s {one}"));
        assert_eq!(cli.run("XADD s NOMKSTREAM IDMP p one KEEPREF * a 1"), one);
        // The entry is trimmed at once.
        let gone = cli.run("XADD s MAXLEN 0 IDMP p three * a 1");
        cli.check("XLEN s", "(integer) 0");
        assert_eq!(cli.run("XADD s IDMP p three * a 1"), gone);
        cli.advance_ms(99_999);
        assert_eq!(cli.run("XADD s IDMP p three * a 1"), gone);
        cli.advance_ms(1);
        assert_ne!(cli.run("XADD s IDMP p three * a 1"), gone);
        assert_eq!(figures(cli), "100 100 1 1 5 4");
    });
}

#[test]
fn fields_name_an_entry_in_whatever_order_they_come() {
    on_every_setup(|cli| {
        let one = cli.run("XADD s IDMPAUTO p * a 1 b 2 c 3");
        assert_eq!(cli.run("XADD s IDMPAUTO p * c 3 a 1 b 2"), one);
        for other in ["a 1 b 3 c 2", "a 1 b 2", "a 1b 2c 3", "1 a 2 b 3 c"] {
            assert_ne!(cli.run(&format!("XADD s IDMPAUTO p * {other}")), one);
        }
        assert_ne!(cli.run("XADD s IDMPAUTO q * a 1 b 2 c 3"), one);
        cli.check("XLEN s", "(integer) 6");
    });
}

#[test]
fn so_many_ids_of_a_producer_are_remembered_as_was_asked_for() {
    on_every_setup(|cli| {
        cli.configure(|config| config.stream_idmp_maxsize = 2);
        let ids: Vec<String> = (0..3)
            .map(|number| cli.run(&format!("XADD s IDMP p {number} * a 1")))
            .collect();
        assert_eq!(cli.run("XADD s IDMP p 1 * a 1"), ids[1]);
        assert_eq!(cli.run("XADD s IDMP p 2 * a 1"), ids[2]);
        assert_ne!(cli.run("XADD s IDMP p 0 * a 1"), ids[0]);
        // Setting the same rules forgets no IDs, setting other rules forgets all.
        cli.check("XCFGSET s IDMP-MAXSIZE 2 IDMP-DURATION 100", "OK");
        assert_eq!(figures(cli), "100 2 1 2 4 2");
        cli.check("XCFGSET s IDMP-DURATION 5", "OK");
        assert_eq!(figures(cli), "5 2 0 0 4 2");
        assert_ne!(cli.run("XADD s IDMP p 2 * a 1"), ids[2]);
    });
}

#[test]
fn records_of_what_was_added_are_taken_once() {
    check_all(&[
        ("XADD s 1-1 a 1", "\"1-1\""),
        ("XADD s 2-1 a 1", "\"2-1\""),
        ("XIDMPRECORD none p i 1-1", "(error) ERR no such key"),
        (
            "XIDMPRECORD s p i x",
            "(error) ERR Invalid stream ID specified as stream command argument",
        ),
        (
            "XIDMPRECORD s p i 3-1",
            "(error) ERR The specified stream ID was deleted or doesn't exist",
        ),
        (
            "XIDMPRECORD s \"\" i 1-1",
            "(error) ERR XIDMPRECORD requires a non-empty producer ID",
        ),
        (
            "XIDMPRECORD s p \"\" 1-1",
            "(error) ERR XIDMPRECORD requires a non-empty idempotent ID",
        ),
        ("XIDMPRECORD s p i 1-1", "OK"),
    ]);
    on_every_setup(|cli| {
        let id = cli.run("XADD s IDMP p i * a 1");
        let id = id.trim_matches('"').to_owned();
        cli.run("XADD s 9999999999999-1 a 1");
        cli.check(&format!("XIDMPRECORD s p i {id}"), "OK");
        cli.check(
            "XIDMPRECORD s p i 9999999999999-1",
            "(error) ERR The specified IDMP producer-id/idempotent-id pair maps to a different stream ID",
        );
        assert_eq!(figures(cli), "100 100 1 1 1 0");
    });
}

#[test]
fn what_is_asked_wrongly_is_refused_as_redis_does() {
    let both = "(error) ERR syntax error, IDMP/IDMPAUTO specified multiple times";
    let own = "(error) ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs";
    let id = "(error) ERR Invalid stream ID specified as stream command argument";
    let integer = "(error) ERR value is not an integer or out of range";
    let duration = "(error) ERR IDMP-DURATION must be between 1 and 86400 seconds";
    let size = "(error) ERR IDMP-MAXSIZE must be between 1 and 10000 entries";
    let syntax = "(error) ERR syntax error";
    check_all(&[
        ("XADD s IDMP p * a 1", id),
        ("XADD s IDMP p i 1-1 a 1", own),
        ("XADD s IDMPAUTO p 1-* a 1", own),
        ("XADD s IDMP p i IDMP q j * a 1", both),
        ("XADD s IDMPAUTO p IDMP q j * a 1", both),
        ("XADD s IDMP p i IDMPAUTO q * a 1", both),
        (
            "XADD s IDMP \"\" i * a 1",
            "(error) ERR syntax error, IDMP requires a non-empty producer ID",
        ),
        (
            "XADD s IDMP p \"\" * a 1",
            "(error) ERR syntax error, IDMP requires a non-empty idempotent ID",
        ),
        (
            "XADD s IDMPAUTO \"\" * a 1",
            "(error) ERR syntax error, IDMPAUTO requires a non-empty producer ID",
        ),
        ("XCFGSET s IDMP-DURATION 5", "(error) ERR no such key"),
        ("EXISTS s", "(integer) 0"),
        ("XADD s 1-1 a 1", "\"1-1\""),
        (
            "XCFGSET s",
            "(error) ERR At least one parameter must be specified",
        ),
        ("XCFGSET s IDMP-DURATION", syntax),
        ("XCFGSET s IDMP-DURATION 000", integer),
        ("XCFGSET s IDMP-DURATION x IDMP-MAXSIZE", integer),
        ("XCFGSET s IDMP-DURATION 0", duration),
        ("XCFGSET s IDMP-DURATION 86401", duration),
        ("XCFGSET s IDMP-MAXSIZE -1", size),
        ("XCFGSET s IDMP-MAXSIZE 10001", size),
        (
            "XCFGSET s IDMP-MAXSIZE 1 IDMP-MAXSIZE 2",
            "(error) ERR IDMP-MAXSIZE specified multiple times",
        ),
        ("XCFGSET s junk", syntax),
        ("XCFGSET s IDMP-DURATION 86400 IDMP-MAXSIZE 10000", "OK"),
        ("SET t v", "OK"),
        (
            "XCFGSET t IDMP-DURATION 5",
            "(error) WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
    ]);
}
