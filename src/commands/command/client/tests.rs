//! CLIENT in process. Actions that need the task of a second connection (closing, waking, pausing) are tested over
//! sockets.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::client::connection::ReplyMode;
use crate::client::shared::{Shared, Unblocked};
use crate::command::context::After;
use crate::command::testing::{Terminal, check_all, on_every_setup};

/// A terminal whose server has its own connection and one more, with ID 2.
fn two_clients() -> (Terminal, Arc<Shared>) {
    let cli = Terminal::new();
    let other = Arc::new(Shared::new(
        2,
        "10.0.0.1:1234".into(),
        "127.0.0.1:6379".into(),
        9,
        false,
        cli.now_ms - 5_000,
    ));
    cli.clients().add(Arc::clone(&cli.connection.shared));
    cli.clients().add(Arc::clone(&other));
    (cli, other)
}

#[test]
fn names_are_set_and_taken_away() {
    let refused = "(error) ERR Client names cannot contain spaces, newlines or special characters.";
    check_all(&[
        ("CLIENT ID", "(integer) 1"),
        ("CLIENT GETNAME", "(nil)"),
        ("CLIENT SETNAME me", "OK"),
        ("CLIENT GETNAME", "\"me\""),
        ("CLIENT SETNAME \"a b\"", refused),
        ("CLIENT SETNAME \"a\\n\"", refused),
        ("CLIENT SETNAME \"\\xe9\"", refused),
        ("CLIENT GETNAME", "\"me\""),
        ("CLIENT SETNAME \"\"", "OK"),
        ("CLIENT GETNAME", "(nil)"),
    ]);
}

#[test]
fn library_names_are_kept() {
    let mut cli = Terminal::new();
    cli.check_all(&[
        ("CLIENT SETINFO lib-name redis-py", "OK"),
        ("CLIENT SETINFO LIB-VER 1.2.3", "OK"),
        (
            "CLIENT SETINFO foo 1",
            "(error) ERR Unrecognized option 'foo'",
        ),
        (
            "CLIENT SETINFO lib-ver \"1 2\"",
            "(error) ERR lib-ver cannot contain spaces, newlines or special characters.",
        ),
    ]);
    let info = cli.run("CLIENT INFO");
    assert!(info.contains(" lib-name=redis-py lib-ver=1.2.3 "), "{info}");
    cli.check("RESET", "RESET");
    assert!(cli.run("CLIENT INFO").contains(" lib-name=redis-py "));
}

#[test]
fn a_connection_is_described_with_the_fields_of_redis() {
    let mut cli = Terminal::new();
    cli.check("SELECT 3", "OK");
    cli.check("CLIENT SETNAME me", "OK");
    cli.advance_ms(2_000);
    let info = cli.run("CLIENT INFO");
    let fields: Vec<&str> = info
        .trim_matches('"')
        .split(' ')
        .map(|field| field.split('=').next().expect("a name"))
        .collect();
    assert_eq!(
        fields.join(" "),
        "id addr laddr fd name age idle flags capa db sub psub ssub multi watch qbuf qbuf-free argv-mem \
         multi-mem rbs rbp obl oll omem tot-mem events cmd user redir resp lib-name lib-ver \
         tot-net-in tot-net-out tot-cmds"
    );
    for field in [
        "id=1 addr=127.0.0.1:50000 laddr=127.0.0.1:50000 fd=8 name=me age=2 idle=0 flags=N capa= db=3 ",
        " multi=-1 watch=0 qbuf=26 qbuf-free=0 argv-mem=10 ",
        " events=r cmd=client|info user=default redir=-1 resp=2 ",
    ] {
        assert!(info.contains(field), "{field} in {info}");
    }
    cli.check("CLIENT NO-EVICT ON", "OK");
    cli.check("CLIENT NO-TOUCH ON", "OK");
    assert!(cli.run("CLIENT INFO").contains(" flags=eT "));
    cli.check("CLIENT NO-EVICT OFF", "OK");
    cli.check("CLIENT NO-TOUCH OFF", "OK");
    assert!(cli.run("CLIENT INFO").contains(" flags=N "));
}

#[test]
fn list_filters_by_type_and_number() {
    let (mut cli, other) = two_clients();
    let ids = |reply: &str| -> Vec<String> {
        let lines = reply
            .trim_matches('"')
            .split("\\n")
            .filter(|line| !line.is_empty());
        lines
            .map(|line| line.split(' ').next().unwrap_or("").to_owned())
            .collect()
    };
    for (line, expected) in [
        ("CLIENT LIST", &["id=1", "id=2"][..]),
        ("CLIENT LIST TYPE normal", &["id=1", "id=2"]),
        ("CLIENT LIST TYPE PubSub", &[]),
        ("CLIENT LIST TYPE slave", &[]),
        ("CLIENT LIST ID 2", &["id=2"]),
        ("CLIENT LIST ID 2 7 1", &["id=2", "id=1"]),
        ("CLIENT LIST ID 2 7 1 SKIPME yes", &["id=2"]),
        ("CLIENT LIST MAXAGE 5", &["id=2"]),
        ("CLIENT LIST IDLE 6", &[]),
        ("CLIENT LIST ADDR 10.0.0.1:1234", &["id=2"]),
        ("CLIENT LIST IP 10.0.0.1 TYPE normal", &["id=2"]),
        ("CLIENT LIST USER default DB 0 FLAGS N", &["id=1", "id=2"]),
        ("CLIENT LIST NAME x", &[]),
        ("CLIENT LIST LIB-NAME x LIB-VER y", &[]),
        ("CLIENT LIST NOT-ID 2", &["id=1"]),
        ("CLIENT LIST NOT-ID 1 NOT-ID 2", &[]),
        ("CLIENT LIST NOT-IP 10.0.0.1", &["id=1"]),
        ("CLIENT LIST NOT-ADDR 10.0.0.1:1234", &["id=1"]),
        ("CLIENT LIST NOT-TYPE normal", &[]),
        ("CLIENT LIST TYPE pubsub TYPE normal", &["id=1", "id=2"]),
        (
            "CLIENT LIST not-name x NOT-LIB-NAME x NOT-DB 3 ID 2",
            &["id=2"],
        ),
        ("CLIENT LIST NOT-USER default", &[]),
        ("CLIENT LIST NOT-FLAGS N", &[]),
        ("CLIENT LIST CAPA r", &[]),
        ("CLIENT LIST NOT-CAPA r SKIPME yes", &["id=2"]),
        ("CLIENT LIST CAPA \"\"", &["id=1", "id=2"]),
    ] {
        assert_eq!(ids(&cli.run(line)), expected, "{line}");
    }
    assert!(
        cli.run("CLIENT LIST ID 2")
            .contains(" age=5 idle=5 flags=N capa= db=0 ")
    );
    assert!(cli.run("CLIENT LIST ID 2").contains(" cmd=NULL "));
    other.block();
    assert!(cli.run("CLIENT LIST ID 2").contains(" flags=b "));
    cli.check_all(&[
        ("CLIENT LIST TYPE x", "(error) ERR Unknown client type 'x'"),
        ("CLIENT LIST TYPE", "(error) ERR syntax error"),
        ("CLIENT LIST ID", "(error) ERR syntax error"),
        ("CLIENT LIST ID x", "(error) ERR Invalid client ID"),
        ("CLIENT LIST foo", "(error) ERR syntax error"),
        ("CLIENT LIST ID 1 foo", "(error) ERR syntax error"),
        (
            "CLIENT LIST DB x",
            "(error) ERR DB is not an integer or out of range",
        ),
        (
            "CLIENT LIST DB 16",
            "(error) ERR DB number should be between 0 and 15",
        ),
        ("CLIENT LIST NOT-ID x", "(error) ERR syntax error"),
        (
            "CLIENT LIST NOT-ID 0",
            "(error) ERR client-id should be greater than 0",
        ),
        ("CLIENT LIST NOT-IDLE 5", "(error) ERR syntax error"),
        ("CLIENT LIST NOT-MAXAGE 5", "(error) ERR syntax error"),
        ("CLIENT LIST NOT-SKIPME yes", "(error) ERR syntax error"),
        (
            "CLIENT LIST FLAGS NZ",
            "(error) ERR Unknown flags found in the provided filter: NZ",
        ),
        (
            "CLIENT LIST NOT-CAPA rx",
            "(error) ERR Unknown capa found in the provided filter: rx",
        ),
    ]);
}

#[test]
fn kill_closes_those_for_whom_every_filter_holds() {
    for (line, reply, is_killed) in [
        ("CLIENT KILL 10.0.0.1:1234", "OK", true),
        (
            "CLIENT KILL 10.0.0.1:1",
            "(error) ERR No such client",
            false,
        ),
        ("CLIENT KILL ID 2", "(integer) 1", true),
        ("CLIENT KILL ID 7", "(integer) 0", false),
        ("CLIENT KILL ID 2 ADDR 10.0.0.2:1", "(integer) 0", false),
        ("CLIENT KILL LADDR 127.0.0.1:6379", "(integer) 1", true),
        ("CLIENT KILL TYPE normal", "(integer) 1", true),
        ("CLIENT KILL TYPE pubsub", "(integer) 0", false),
        ("CLIENT KILL USER default", "(integer) 1", true),
        ("CLIENT KILL MAXAGE 5", "(integer) 1", true),
        ("CLIENT KILL MAXAGE 6", "(integer) 0", false),
        ("CLIENT KILL SKIPME yes USER default", "(integer) 1", true),
    ] {
        let (mut cli, other) = two_clients();
        cli.check(line, reply);
        assert_eq!(other.is_killed(), is_killed, "{line}");
        assert!(matches!(cli.after, After::Nothing), "{line}");
    }
}

#[test]
fn who_kills_itself_closes_after_the_reply() {
    for (line, reply) in [
        ("CLIENT KILL 127.0.0.1:50000", "OK"),
        ("CLIENT KILL ID 1 SKIPME no", "(integer) 1"),
    ] {
        let (mut cli, other) = two_clients();
        cli.check(line, reply);
        assert!(matches!(cli.after, After::Close), "{line}");
        assert!(!other.is_killed());
    }
    let (mut cli, _) = two_clients();
    cli.check("CLIENT KILL ID 1", "(integer) 0");
    assert!(matches!(cli.after, After::Nothing));
}

#[test]
fn kill_complains_as_redis_does() {
    check_all(&[
        ("CLIENT KILL id", "(error) ERR No such client"),
        (
            "CLIENT KILL id x",
            "(error) ERR client-id should be greater than 0",
        ),
        (
            "CLIENT KILL id 0",
            "(error) ERR client-id should be greater than 0",
        ),
        ("CLIENT KILL type x", "(error) ERR Unknown client type 'x'"),
        ("CLIENT KILL user x", "(error) ERR No such user 'x'"),
        ("CLIENT KILL skipme x", "(error) ERR syntax error"),
        ("CLIENT KILL foo x", "(error) ERR syntax error"),
        ("CLIENT KILL id 1 type", "(error) ERR syntax error"),
        (
            "CLIENT KILL maxage x",
            "(error) ERR maxage is not an integer or out of range",
        ),
        (
            "CLIENT KILL maxage 0",
            "(error) ERR maxage should be greater than 0",
        ),
    ]);
}

#[test]
fn pause_checks_mode_then_time() {
    check_all(&[
        (
            "CLIENT PAUSE x foo",
            "(error) ERR CLIENT PAUSE mode must be WRITE or ALL",
        ),
        (
            "CLIENT PAUSE x",
            "(error) ERR timeout is not an integer or out of range",
        ),
        ("CLIENT PAUSE -1", "(error) ERR timeout is negative"),
        (
            "CLIENT PAUSE 1 all x",
            "(error) ERR unknown subcommand or wrong number of arguments for 'PAUSE'. Try CLIENT HELP.",
        ),
        ("CLIENT PAUSE 0", "OK"),
        ("CLIENT PAUSE 100 write", "OK"),
        ("CLIENT UNPAUSE", "OK"),
    ]);
}

#[test]
fn unblock_ends_a_wait_once() {
    let (mut cli, other) = two_clients();
    cli.check("CLIENT UNBLOCK 2", "(integer) 0");
    for (line, how) in [
        ("CLIENT UNBLOCK 2", Unblocked::TimedOut),
        ("CLIENT UNBLOCK 2 timeout", Unblocked::TimedOut),
        ("CLIENT UNBLOCK 2 ERROR", Unblocked::WithError),
    ] {
        other.block();
        assert_eq!(other.unblocked(false), None);
        cli.check(line, "(integer) 1");
        cli.check(line, "(integer) 0");
        assert!(other.take_nudge());
        assert_eq!(other.unblocked(false), Some(how));
        assert_eq!(other.unblocked(false), None);
    }
    cli.check_all(&[
        ("CLIENT UNBLOCK 9", "(integer) 0"),
        (
            "CLIENT UNBLOCK x",
            "(error) ERR value is not an integer or out of range",
        ),
        (
            "CLIENT UNBLOCK 2 foo",
            "(error) ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR",
        ),
    ]);
}

#[test]
fn a_wait_ends_with_its_time() {
    let (_, other) = two_clients();
    other.block();
    assert_eq!(other.unblocked(true), Some(Unblocked::TimedOut));
    assert!(!other.unblock(Unblocked::WithError));
}

#[test]
fn reply_modes_follow_each_other() {
    let mut cli = Terminal::new();
    for (line, before, after) in [
        ("CLIENT REPLY SKIP", ReplyMode::On, ReplyMode::SkipNext),
        (
            "CLIENT REPLY SKIP",
            ReplyMode::SkipThis,
            ReplyMode::SkipNext,
        ),
        ("CLIENT REPLY SKIP", ReplyMode::Off, ReplyMode::Off),
        ("CLIENT REPLY OFF", ReplyMode::On, ReplyMode::Off),
        ("CLIENT REPLY OFF", ReplyMode::SkipThis, ReplyMode::Off),
    ] {
        cli.connection.reply_mode = before;
        let arguments: Vec<&str> = line.split(' ').collect();
        assert!(cli.reply_bytes(&arguments).is_empty(), "{line}");
        assert_eq!(cli.connection.reply_mode, after, "{line} in {before:?}");
    }
    for before in [ReplyMode::On, ReplyMode::Off, ReplyMode::SkipThis] {
        cli.connection.reply_mode = before;
        cli.check("CLIENT REPLY ON", "OK");
        assert_eq!(cli.connection.reply_mode, ReplyMode::On);
    }
    cli.check("CLIENT REPLY x", "(error) ERR syntax error");
}

#[test]
fn switches_take_on_and_off_only() {
    on_every_setup(|cli| {
        cli.check("CLIENT NO-EVICT on", "OK");
        assert!(cli.connection.shared.no_evict.load(Relaxed));
        cli.check("CLIENT NO-EVICT x", "(error) ERR syntax error");
        cli.check("CLIENT NO-TOUCH on", "OK");
        assert!(cli.connection.no_touch);
        cli.check("CLIENT NO-TOUCH x", "(error) ERR syntax error");
    });
}

#[test]
fn tracking_takes_options_that_agree_only() {
    let (mut cli, _) = two_clients();
    let switch = |what: &str| {
        format!(
            "(error) ERR You can't switch {what} before disabling tracking for this client, and then \
             re-enabling it with a different mode."
        )
    };
    let overlap = |one: &str, kind: &str, other: &str| {
        format!(
            "(error) ERR Prefix '{one}' overlaps with {kind} prefix '{other}'. Prefixes for a single \
             client must not overlap."
        )
    };
    let syntax = "(error) ERR syntax error";
    let caching = "(error) ERR CLIENT CACHING can be called only when the client is in tracking \
                   mode with OPTIN or OPTOUT mode enabled";
    cli.check_all(&[
        ("CLIENT TRACKING maybe", syntax),
        ("CLIENT TRACKING on WHAT", syntax),
        ("CLIENT TRACKING on REDIRECT", syntax),
        ("CLIENT TRACKING on REDIRECT x", "(error) ERR value is not an integer or out of range"),
        (
            "CLIENT TRACKING on REDIRECT 99",
            "(error) ERR The client ID you want redirect to does not exist",
        ),
        (
            "CLIENT TRACKING on REDIRECT 2 REDIRECT 2",
            "(error) ERR A client can only redirect to a single other client",
        ),
        (
            "CLIENT TRACKING on PREFIX a",
            "(error) ERR PREFIX option requires BCAST mode to be enabled",
        ),
        (
            "CLIENT TRACKING on BCAST OPTIN",
            "(error) ERR OPTIN and OPTOUT are not compatible with BCAST",
        ),
        (
            "CLIENT TRACKING on OPTIN OPTOUT",
            "(error) ERR You can't specify both OPTIN mode and OPTOUT mode",
        ),
        ("CLIENT CACHING yes", caching),
        ("CLIENT GETREDIR", "(integer) -1"),
        ("CLIENT TRACKING on BCAST PREFIX FOOBAR PREFIX FOO", &overlap("FOOBAR", "another provided", "FOO")),
        ("CLIENT TRACKING on BCAST PREFIX FOO PREFIX FOOBAR", &overlap("FOO", "another provided", "FOOBAR")),
        ("CLIENT TRACKING on BCAST PREFIX a PREFIX x PREFIX a", &overlap("a", "another provided", "a")),
        ("CLIENT TRACKINGINFO", "1) \"flags\"\n2) 1) \"off\"\n3) \"redirect\"\n4) (integer) -1\n5) \"prefixes\"\n6) (empty array)"),
        ("CLIENT TRACKING on BCAST NOLOOP PREFIX FOO PREFIX BAR", "OK"),
        ("CLIENT TRACKING on BCAST PREFIX FO", &overlap("FO", "an existing", "FOO")),
        ("CLIENT TRACKING on BCAST PREFIX BARB", &overlap("BARB", "an existing", "BAR")),
        ("CLIENT TRACKING on BCAST PREFIX A", "OK"),
        ("CLIENT TRACKING on", &switch("BCAST mode on/off")),
        ("CLIENT TRACKINGINFO", "1) \"flags\"\n2) 1) \"on\"\n   2) \"bcast\"\n3) \"redirect\"\n4) (integer) 0\n5) \"prefixes\"\n6) 1) \"A\"\n   2) \"BAR\"\n   3) \"FOO\""),
        ("CLIENT TRACKING off", "OK"),
        ("CLIENT TRACKING on OPTIN REDIRECT 2", "OK"),
        ("CLIENT GETREDIR", "(integer) 2"),
        ("CLIENT TRACKING on OPTOUT", &switch("OPTIN/OPTOUT mode")),
        ("CLIENT CACHING no", "(error) ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."),
        ("CLIENT CACHING maybe", syntax),
        ("CLIENT CACHING yes", "OK"),
        ("CLIENT TRACKINGINFO", "1) \"flags\"\n2) 1) \"on\"\n   2) \"optin\"\n   3) \"caching-yes\"\n3) \"redirect\"\n4) (integer) 2\n5) \"prefixes\"\n6) (empty array)"),
        ("CLIENT TRACKING off", "OK"),
        ("CLIENT TRACKING on OPTOUT", "OK"),
        ("CLIENT CACHING yes", "(error) ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."),
        ("CLIENT CACHING no", "OK"),
        ("RESET", "RESET"),
        ("CLIENT GETREDIR", "(integer) -1"),
    ]);
}

#[test]
fn the_list_shows_who_tracks() {
    let (mut cli, _) = two_clients();
    for (line, flags, redirection) in [
        ("CLIENT TRACKING on", "t", 0),
        ("CLIENT TRACKING on REDIRECT 2", "t", 2),
        ("CLIENT TRACKING off", "N", -1),
        ("CLIENT TRACKING on BCAST", "tB", 0),
    ] {
        cli.check(line, "OK");
        let info = cli.run("CLIENT INFO");
        assert!(info.contains(&format!(" flags={flags} ")), "{info}");
        assert!(info.contains(&format!(" redir={redirection} ")), "{info}");
    }
}

#[test]
fn a_flood_of_prefixes_is_checked_in_no_time_to_speak_of() {
    let mut cli = Terminal::new();
    let mut words: Vec<String> = ["CLIENT", "TRACKING", "ON", "BCAST"]
        .map(String::from)
        .into();
    for number in 0..50_000 {
        words.extend(["PREFIX".to_owned(), format!("{number:06}")]);
    }
    assert_eq!(cli.run_args(&words), "OK");
    for word in words.iter_mut().skip(5).step_by(2) {
        word.push('x');
    }
    let refused = cli.run_args(&words);
    assert!(refused.contains("Prefix '000000x' overlaps with an existing prefix '000000'"));
}

#[test]
fn nothing_is_tracked() {
    let mut cli = Terminal::new();
    cli.check("CLIENT GETREDIR", "(integer) -1");
    cli.check(
        "CLIENT TRACKINGINFO",
        "1) \"flags\"\n2) 1) \"off\"\n3) \"redirect\"\n4) (integer) -1\n5) \"prefixes\"\n6) (empty array)",
    );
    assert!(
        cli.run("CLIENT HELP")
            .contains("UNBLOCK <clientid> [TIMEOUT|ERROR]")
    );
}
