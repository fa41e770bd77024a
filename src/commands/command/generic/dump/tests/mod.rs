//! DUMP and RESTORE in process: options and errors, payloads recorded from redis-server 7.0.15, and corrupted
//! payloads.

mod ancient;
mod mutated;
mod recorded;
mod sketches;
mod streams;

use super::super::super::testing::{Terminal, on_every_setup};
use crate::command::testing::payloads;
use crate::config::values::{MaxmemoryPolicy, RdbCompression};
use basalt_core::resp::reply::Protocol;
use basalt_engine::serial::frame;

/// Runs `RESTORE key 0 payload` with further options.
fn restore(cli: &mut Terminal, key: &str, payload: &[u8], options: &str) -> String {
    let mut words: Vec<&[u8]> = vec![b"restore", key.as_bytes(), b"0", payload];
    words.extend(options.split_whitespace().map(str::as_bytes));
    cli.run_args(&words)
}

/// Returns the reply of DUMP, as bytes.
fn dump(cli: &mut Terminal, key: &str) -> Vec<u8> {
    let reply = cli.reply_bytes(&["dump", key]);
    let (head, rest) = reply.split_at(
        reply
            .iter()
            .position(|byte| *byte == b'\n')
            .expect("a line")
            + 1,
    );
    assert_eq!(head[0], b'$', "a string");
    rest[..rest.len() - 2].to_vec()
}

#[test]
fn a_string_goes_out_as_redis_writes_it_and_comes_back() {
    on_every_setup(|cli| {
        cli.check("SET foo bar PX 1000", "OK");
        let payload = dump(cli, "foo");
        assert_eq!(payload, b"\x00\x03bar\n\x00\xe6\xbeI`\xeef\xfd\x17");
        assert_eq!(restore(cli, "new", &payload, ""), "OK");
        cli.check("GET new", "\"bar\"");
        assert_eq!(cli.ttl_ms("new"), -1, "a payload has no deadline");
        cli.check("DUMP nokey", "(nil)");
    });
}

#[test]
fn a_key_that_is_there_is_replaced_only_if_told_to() {
    on_every_setup(|cli| {
        cli.check("SET foo bar", "OK");
        let payload = dump(cli, "foo");
        cli.check("SET foo other", "OK");
        let busy = "(error) BUSYKEY Target key name already exists.";
        assert_eq!(restore(cli, "foo", &payload, ""), busy);
        assert_eq!(restore(cli, "foo", b"no payload", ""), busy);
        cli.check("GET foo", "\"other\"");
        cli.effects();
        assert_eq!(restore(cli, "foo", &payload, "replace"), "OK");
        assert_eq!(cli.events(), "g:restore foo");
        cli.check("GET foo", "\"bar\"");
    });
}

#[test]
fn deadlines_are_relative_or_absolute_and_a_past_one_only_deletes() {
    on_every_setup(|cli| {
        cli.check("SET foo bar", "OK");
        let payload = dump(cli, "foo");
        cli.check("DEL foo", "(integer) 1");
        let now_ms = cli.now_ms;
        let at = |cli: &mut Terminal, ttl: u64, options: &[&str]| {
            let ttl = ttl.to_string();
            let mut words: Vec<&[u8]> = vec![b"restore", b"foo", ttl.as_bytes(), &payload];
            words.extend(options.iter().map(|word| word.as_bytes()));
            cli.run_args(&words)
        };
        assert_eq!(at(cli, 5000, &[]), "OK");
        assert_eq!(cli.ttl_ms("foo"), 5000);
        assert_eq!(at(cli, 2_569_591_501, &["REPLACE"]), "OK");
        assert_eq!(cli.ttl_ms("foo"), 2_569_591_501);
        assert_eq!(at(cli, now_ms + 3000, &["absttl", "replace"]), "OK");
        assert_eq!(cli.ttl_ms("foo"), 3000);
        assert_eq!(at(cli, 0, &["absttl", "replace"]), "OK");
        assert_eq!(cli.ttl_ms("foo"), -1);
        // The sum of now and this time to live overflows an i64: Redis treats it as a time in the past.
        assert_eq!(at(cli, i64::MAX as u64, &["replace"]), "OK");
        assert_eq!(cli.ttl_ms("foo"), -2);
        assert_eq!(at(cli, 3000, &[]), "OK");
        cli.effects();
        assert_eq!(at(cli, now_ms - 3000, &["absttl", "replace"]), "OK");
        assert_eq!(cli.events(), "g:del foo");
        assert_eq!(cli.ttl_ms("foo"), -2);
        assert_eq!(at(cli, now_ms - 3000, &["absttl"]), "OK");
        assert_eq!(cli.events(), "");
    });
}

#[test]
fn options_are_read_before_the_key_and_the_payload_last() {
    on_every_setup(|cli| {
        for (words, error) in [
            ("0 x nonsense", "ERR syntax error"),
            ("0 x idletime", "ERR syntax error"),
            ("0 x freq 1 idletime 1", "ERR syntax error"),
            ("0 x idletime 1 freq 1", "ERR syntax error"),
            (
                "0 x idletime a",
                "ERR value is not an integer or out of range",
            ),
            (
                "0 x idletime -1",
                "ERR Invalid IDLETIME value, must be >= 0",
            ),
            (
                "0 x freq 256",
                "ERR Invalid FREQ value, must be >= 0 and <= 255",
            ),
            ("a x", "ERR value is not an integer or out of range"),
            ("-1 x", "ERR Invalid TTL value, must be >= 0"),
            ("0 x", "ERR DUMP payload version or checksum are wrong"),
            (
                "0 x replace absttl",
                "ERR DUMP payload version or checksum are wrong",
            ),
        ] {
            cli.check(&format!("RESTORE k {words}"), &format!("(error) {error}"));
        }
        let bad = "(error) ERR Bad data format";
        for value in [
            &b""[..],
            b"\x00",
            b"\x00\x05four",
            b"\x00\x03barx",
            b"\x00\xc4",
            b"\x00\xc3\x01\x01x",
            b"\x00\x81\xff\xff\xff\xff\xff\xff\xff\xffx",
            b"\x06",
            b"\x07\x00",
            b"\x08\x00",
            b"\x1a\x00",
            b"\xff",
        ] {
            let payload = frame::seal(value.to_vec(), 10);
            assert_eq!(restore(cli, "k", &payload, ""), bad, "{value:?}");
        }
        let future = frame::seal(b"\x00\x03bar".to_vec(), 17);
        assert_eq!(
            restore(cli, "k", &future, ""),
            "(error) ERR DUMP payload version or checksum are wrong"
        );
        cli.check("EXISTS k", "(integer) 0");
        assert_eq!(cli.events(), "");
    });
}

#[test]
fn what_another_server_knew_of_a_keys_use_is_kept_until_it_is_used() {
    on_every_setup(|cli| {
        cli.check("SET foo bar", "OK");
        let payload = dump(cli, "foo");
        cli.configure(|config| config.maxmemory_policy = MaxmemoryPolicy::AllkeysLru);
        assert_eq!(restore(cli, "foo", &payload, "replace idletime 1000"), "OK");
        cli.check("OBJECT IDLETIME foo", "(integer) 1000");
        cli.advance_ms(5000);
        cli.check("OBJECT IDLETIME foo", "(integer) 1005");
        cli.check("GET foo", "\"bar\"");
        cli.check("OBJECT IDLETIME foo", "(integer) 0");
        assert_eq!(restore(cli, "foo", &payload, "replace idletime 1000"), "OK");
        cli.check("DEL foo", "(integer) 1");
        cli.check("SET foo bar", "OK");
        cli.check("OBJECT IDLETIME foo", "(integer) 0");
        cli.configure(|config| config.maxmemory_policy = MaxmemoryPolicy::AllkeysLfu);
        assert_eq!(restore(cli, "foo", &payload, "replace freq 100"), "OK");
        cli.check("OBJECT FREQ foo", "(integer) 100");
        cli.check("GET foo", "\"bar\"");
        cli.check("OBJECT FREQ foo", "(integer) 8");
    });
}

/// Under `rdbcompression no` nothing is compressed, and either form can be read.
#[test]
fn long_strings_are_compressed_if_the_configuration_says_so() {
    let mut cli = Terminal::with(1, Protocol::Resp2);
    let text = "abcdefgh".repeat(40);
    cli.check(&format!("SET k {text}"), "OK");
    let short = dump(&mut cli, "k");
    cli.configure(|config| config.rdbcompression = RdbCompression::No);
    let long = dump(&mut cli, "k");
    assert!(short.len() < 60 && long.len() > 320);
    for payload in [short, long] {
        assert_eq!(restore(&mut cli, "new", &payload, "replace"), "OK");
        cli.check("GET new", &format!("\"{text}\""));
    }
}

/// The shard is charged for the stored value, and for nothing that was allocated on the way.
#[test]
fn restored_values_are_charged_to_the_byte_and_leave_nothing_behind() {
    let mut cli = Terminal::new();
    // Allocate beforehand the memory that the tables keep.
    cli.run("DEBUG POPULATE 200");
    cli.run("FLUSHALL SYNC");
    cli.run("SET first key");
    let before = cli.engines[0].used_bytes();
    for recorded in payloads::all() {
        let name = recorded.name;
        assert_eq!(
            restore(&mut cli, "k", &recorded.payload, ""),
            "OK",
            "{name}"
        );
        let taken = cli.engines[0].used_bytes() - before;
        let own: i64 = match cli.run("MEMORY USAGE k").split(' ').next_back() {
            Some(number) => number.parse().expect("a number"),
            None => unreachable!("an integer"),
        };
        // MEMORY USAGE includes the key's share of the table.
        assert!(
            (taken - own).abs() <= 64,
            "{name}: {taken} taken, {own} said"
        );
        cli.check("COPY k copy REPLACE", "(integer) 1");
        cli.check("DEL k copy", "(integer) 2");
        assert_eq!(cli.engines[0].used_bytes(), before, "{name}");
    }
}
