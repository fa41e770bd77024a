//! Replication commands over engines in this process, on a server without replicas and primary.

use crate::command::context::After;
use crate::command::testing::Terminal;

#[test]
fn wait_is_over_at_once_when_nothing_is_asked_for() {
    let mut cli = Terminal::new();
    cli.check_all(&[
        ("WAIT 0 0", "(integer) 0"),
        ("WAIT -1 100", "(integer) 0"),
        (
            "WAIT x 0",
            "(error) ERR value is not an integer or out of range",
        ),
        (
            "WAIT 1 x",
            "(error) ERR timeout is not an integer or out of range",
        ),
        ("WAIT 1 -1", "(error) ERR timeout is negative"),
        (
            "WAIT 1 9223372036854775807",
            "(error) ERR timeout is out of range",
        ),
        ("WAITAOF 0 0 0", "1) (integer) 0\n2) (integer) 0"),
        (
            "WAITAOF 1 0 0",
            "(error) ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ),
        (
            "WAITAOF 2 0 0",
            "(error) ERR value is out of range, value must between 0 and 1",
        ),
        (
            "WAITAOF 0 -1 0",
            "(error) ERR value is out of range, must be positive",
        ),
    ]);
    assert!(matches!(cli.after, After::Nothing));
}

#[test]
fn wait_blocks_for_its_time_when_replicas_are_asked_for() {
    let mut cli = Terminal::new();
    for (arguments, until_ms) in [
        (&["WAIT", "1", "50"][..], Some(cli.now_ms + 50)),
        (&["WAIT", "1", "0"], None),
        (&["WAITAOF", "0", "1", "50"], Some(cli.now_ms + 50)),
    ] {
        assert!(cli.reply_bytes(arguments).is_empty());
        let After::Block(block) = cli.after else {
            panic!("{arguments:?} blocks")
        };
        assert_eq!(block.until_ms, until_ms);
    }
}

#[test]
fn what_a_replica_says_of_itself_is_noted() {
    let mut cli = Terminal::new();
    let too_long = format!("REPLCONF ip-address {}", "a".repeat(300));
    cli.check_all(&[
        ("REPLCONF", "OK"),
        (
            "REPLCONF listening-port 7000 capa eof capa psync2 capa other",
            "OK",
        ),
        (
            "REPLCONF listening-port x",
            "(error) ERR value is not an integer or out of range",
        ),
        ("REPLCONF ip-address a.b.c rdb-only 1 version 8.1.0", "OK"),
        (
            "REPLCONF rdb-only 2",
            "(error) ERR value is out of range, value must between 0 and 1",
        ),
        ("REPLCONF rdb-filter-only functions", "OK"),
        (
            "REPLCONF rdb-filter-only \"functions keys\"",
            "(error) ERR Unsupported rdb-filter-only option: keys",
        ),
        (
            "REPLCONF foo bar",
            "(error) ERR Unrecognized REPLCONF option: foo",
        ),
        ("REPLCONF foo", "(error) ERR syntax error"),
        (
            &too_long,
            "(error) ERR REPLCONF ip-address provided by replica instance is too long: 300 bytes",
        ),
    ]);
    let announced = cli.connection.shared.announced();
    assert!(announced.takes_end_mark && announced.changes_ids && announced.wants_snapshot_only);
    assert!(announced.lacks_data && !announced.lacks_functions);
    assert_eq!((announced.port, announced.ip.as_str()), (7000, "a.b.c"));
    assert!(cli.reply_bytes(&["REPLCONF", "ACK", "5"]).is_empty());
}

#[test]
fn who_asks_to_follow_is_handed_over_and_a_filter_needs_the_end_mark() {
    let mut cli = Terminal::new();
    cli.check(
        "PSYNC ? x",
        "(error) ERR value is not an integer or out of range",
    );
    assert!(cli.reply_bytes(&["PSYNC", "?", "-1"]).is_empty());
    let After::Follow(follow) = &cli.after else {
        panic!("it is handed over")
    };
    assert_eq!(follow.resume, Some((b"?".to_vec(), -1)));
    cli.check("REPLCONF rdb-filter-only functions", "OK");
    cli.check(
        "SYNC",
        "(error) ERR Filtered replica requires EOF capability",
    );
    cli.check("REPLCONF capa eof", "OK");
    assert!(cli.reply_bytes(&["SYNC"]).is_empty());
    assert!(matches!(&cli.after, After::Follow(follow) if follow.resume.is_none()));
}

#[test]
fn a_connection_of_its_own_for_the_snapshot_is_for_both_sides_to_want() {
    let mut cli = Terminal::new();
    let unknown = "(error) ERR Unrecognized REPLCONF option: rdb-channel";
    cli.check("REPLCONF rdb-channel 1", unknown);
    cli.check("REPLCONF capa dual-channel", "OK");
    assert!(cli.reply_bytes(&["PSYNC", "?", "-1"]).is_empty());
    cli.configure(|config| config.dual_channel_replication_enabled = true);
    cli.check("PSYNC ? -1", "DUALCHANNELSYNC");
    assert!(matches!(cli.after, After::Nothing));
    // If both protocols are possible, the one with fewer steps is chosen.
    cli.configure(|config| config.repl_rdb_channel = true);
    cli.check("PSYNC ? -1", "DUALCHANNELSYNC");
    cli.check("REPLCONF capa rdb-channel-repl", "OK");
    let id = cli.connection.shared.id;
    cli.check("PSYNC ? -1", &format!("RDBCHANNELSYNC {id}"));
    let waits = |cli: &Terminal| {
        let After::Follow(follow) = &cli.after else {
            panic!("it is handed over")
        };
        follow.awaits_rdb_channel
    };
    assert!(waits(&cli));
    // The snapshot's own connection, and the stream's when it reconnects, are offered neither protocol.
    cli.check("REPLCONF set-rdb-client-id 7", "OK");
    assert!(cli.reply_bytes(&["PSYNC", "?", "-1"]).is_empty());
    assert!(!waits(&cli));
    cli.check(
        "REPLCONF rdb-channel 2",
        "(error) ERR value is out of range, value must between 0 and 1",
    );
    cli.check(
        "REPLCONF rdb-channel 1 main-ch-client-id 9 rdb-only 1",
        "OK",
    );
    let announced = cli.connection.shared.announced();
    assert!(announced.is_rdb_channel && announced.wants_snapshot_only);
    assert_eq!(
        (announced.main_client, announced.rdb_client),
        (Some(9), Some(7))
    );
}

#[test]
fn roles_are_asked_for_and_changed_in_the_words_of_redis() {
    let mut cli = Terminal::new();
    cli.check_all(&[
        ("ROLE", "1) \"master\"\n2) (integer) 0\n3) (empty array)"),
        ("REPLICAOF a b", "(error) ERR Invalid master port"),
        ("SLAVEOF localhost 99999", "(error) ERR Invalid master port"),
        ("FAILOVER ABORT", "(error) ERR No failover in progress."),
        (
            "FAILOVER",
            "(error) ERR FAILOVER requires connected replicas.",
        ),
        (
            "FAILOVER TIMEOUT 0",
            "(error) ERR FAILOVER timeout must be greater than 0",
        ),
        (
            "FAILOVER TO a b",
            "(error) ERR value is not an integer or out of range",
        ),
        ("FAILOVER SOON", "(error) ERR syntax error"),
    ]);
    cli.check("REPLICAOF NO ONE", "OK");
    assert!(matches!(cli.after, After::Await(_)));
}
