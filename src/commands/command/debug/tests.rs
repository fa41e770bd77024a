//! DEBUG in process. The signatures are those of redis-server 7.0.15 over the same data.

use super::super::context::After;
use super::super::testing::{Terminal, on_every_setup};

#[test]
fn signatures_are_those_of_redis() {
    on_every_setup(|cli| {
        cli.check("DEBUG DIGEST", "0000000000000000000000000000000000000000");
        cli.check("SET a 1", "OK");
        cli.check("SET b hello", "OK");
        cli.check("SET c x EX 100000", "OK");
        let long = "a".repeat(61);
        cli.check(&format!("SET long {long}"), "OK");
        cli.check("SELECT 3", "OK");
        cli.check("SET a 1", "OK");
        cli.check("SELECT 0", "OK");
        cli.check("DEBUG DIGEST", "3058efca3abe476a50b7f3cbd41a606b1addd56a");
        cli.check(
            "DEBUG DIGEST-VALUE a b c nokey",
            "1) b4fc66738120fba0b5aa500ab5c2bf89cea1c5da\n\
             2) 36b23a1456b2dce2c3ed252c456761301dba8060\n\
             3) 0745672cb1bf060476eedeb8a28f5ffe1ff5a2be\n\
             4) 0000000000000000000000000000000000000000",
        );
        cli.check("DEBUG DIGEST-VALUE", "(empty array)");
    });
}

#[test]
fn populate_makes_the_keys_of_redis_and_leaves_what_is_there() {
    on_every_setup(|cli| {
        cli.check("DEBUG POPULATE 3", "OK");
        cli.check("DEBUG DIGEST", "f25db52166a7d712fb7362fd197165342e2b7442");
        cli.check("SET p:0 mine", "OK");
        cli.check("DEBUG POPULATE 2 p 10", "OK");
        cli.check("GET p:0", "\"mine\"");
        cli.check("DEL p:0", "(integer) 1");
        cli.check("DEBUG POPULATE 2 p 10", "OK");
        cli.check("DEBUG DIGEST", "bcf03ebc78f620a4509df5af43c4b10ff3132501");
        cli.check("GET p:1", "\"value:1\\x00\\x00\\x00\"");
        cli.check(
            "DEBUG POPULATE -1",
            "(error) ERR value is out of range, must be positive",
        );
    });
}

#[test]
fn object_says_how_a_value_is_kept() {
    on_every_setup(|cli| {
        cli.check(
            "MSET small 12 large 100000 word hello digits 9999999999",
            "OK",
        );
        for (key, encoding, bytes) in [
            ("small", "int", 2),
            ("large", "int", 5),
            ("digits", "int", 11),
            ("word", "embstr", 6),
        ] {
            let line = cli.run(&format!("DEBUG OBJECT {key}"));
            let expected = format!(" refcount:1 encoding:{encoding} serializedlength:{bytes} lru:");
            assert!(line.starts_with("Value at:0x"), "{line}");
            assert!(line.contains(&expected), "{line}");
            assert!(line.ends_with(" lru_seconds_idle:0"), "{line}");
        }
        cli.check("DEBUG OBJECT nokey", "(error) ERR no such key");
    });
}

#[test]
fn a_key_that_rests_shows_since_when() {
    on_every_setup(|cli| {
        let clock = |cli: &mut Terminal, idle_s: u64| -> u64 {
            let line = cli.run("DEBUG OBJECT k");
            assert!(
                line.contains(&format!(" lru_seconds_idle:{idle_s}")),
                "{line}"
            );
            let (_, rest) = line.split_once(" lru:").expect("a clock");
            let digits = rest.split(' ').next().unwrap_or_default();
            digits.parse().expect("a number")
        };
        cli.check("SET k v", "OK");
        let first = clock(cli, 0);
        cli.advance_ms(3_000);
        assert_eq!(clock(cli, 3), first);
        cli.check("GET k", "\"v\"");
        assert_eq!(clock(cli, 0), first + 3);
        cli.check("PEXPIRE k 1", "(integer) 1");
        cli.advance_ms(10);
        clock(cli, 0);
        cli.check("EXISTS k", "(integer) 0");
        cli.check("DEBUG OBJECT k", "(error) ERR no such key");
    });
}

#[test]
fn whatever_does_not_fit_is_an_unknown_subcommand() {
    on_every_setup(|cli| {
        for line in [
            "object",
            "object a b",
            "digest x",
            "sleep",
            "htstats",
            "populate 1 2 3 4",
            "jmap",
        ] {
            let name = line.split(' ').next().expect("a name");
            let expected = format!(
                "(error) ERR unknown subcommand or wrong number of arguments for '{name}'. \
                 Try DEBUG HELP."
            );
            cli.check(&format!("DEBUG {line}"), &expected);
        }
    });
}

#[test]
fn protocol_answers_each_type() {
    let mut old = Terminal::new();
    old.check("DEBUG PROTOCOL double", "\"3.141\"");
    old.check(
        "DEBUG PROTOCOL bignum",
        "\"1234567999999999999999999999999999999\"",
    );
    old.check("DEBUG PROTOCOL true", "(integer) 1");
    old.check(
        "DEBUG PROTOCOL attrib",
        "\"Some real reply following the attribute\"",
    );
    old.check(
        "DEBUG PROTOCOL push",
        "(error) ERR RESP2 is not supported by this command",
    );
    let mut new = Terminal::with(1, basalt_core::resp::reply::Protocol::Resp3);
    for (kind, expected) in [
        ("string", "\"Hello World\""),
        ("integer", "(integer) 12345"),
        ("double", "(double) 3.141"),
        ("bignum", "1234567999999999999999999999999999999"),
        ("null", "(nil)"),
        ("false", "(false)"),
        ("verbatim", "This is a verbatim\nstring"),
        ("set", "1~ (integer) 0\n2~ (integer) 1\n3~ (integer) 2"),
        (
            "map",
            "1# (integer) 0 => (false)\n2# (integer) 1 => (true)\n3# (integer) 2 => (false)",
        ),
        (
            "foo",
            "(error) ERR Wrong protocol type name. Please use one of the following: \
             string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
        ),
    ] {
        new.check(&format!("DEBUG PROTOCOL {kind}"), expected);
    }
    assert_eq!(
        new.reply_bytes(&["debug", "protocol", "push"]),
        b">2\r\n$16\r\nserver-cpu-usage\r\n:42\r\n$40\r\nSome real reply following the push reply\r\n"
    );
}

#[test]
fn sleep_answers_when_its_time_is_over() {
    let mut cli = Terminal::new();
    assert_eq!(cli.reply_bytes(&["debug", "sleep", "0"]), b"+OK\r\n");
    assert_eq!(cli.reply_bytes(&["debug", "sleep", "0.25"]), b"");
    let After::Block(block) = cli.after else {
        panic!("it blocks");
    };
    assert_eq!(block.until_ms, Some(cli.now_ms + 250));
}

#[test]
fn switches_and_texts_are_taken() {
    on_every_setup(|cli| {
        for line in ["SET-ACTIVE-EXPIRE 0", "LOG hello"] {
            cli.check(&format!("DEBUG {line}"), "OK");
        }
        cli.check(
            "DEBUG ERROR \"MY error\\r\\nis this\"",
            "(error) MY error  is this",
        );
        cli.check(
            "DEBUG STRINGMATCH-TEST",
            "Apparently Redis did not crash: test passed",
        );
        cli.check("DEBUG HTSTATS 99", "(error) ERR Out of range database");
        cli.check("SET k v", "OK");
        assert!(cli.run("DEBUG HTSTATS 0").contains("number of elements: 1"));
        let no_table = "(error) ERR The value stored at the specified key is not represented using an hash table";
        cli.check("DEBUG HTSTATS-KEY k", no_table);
        cli.check("DEBUG HTSTATS-KEY none", "(error) ERR no such key");
        cli.configure(|config| config.hash_max_listpack_entries = 1);
        cli.configure(|config| config.set_max_listpack_entries = 1);
        cli.configure(|config| config.zset_max_listpack_entries = 1);
        for line in ["HSET h a 1 b 2", "SADD s a b", "ZADD z 1 a 2 b"] {
            cli.check(line, "(integer) 2");
            let key = line.split(' ').nth(1).expect("a key");
            let said = cli.run(&format!("DEBUG HTSTATS-KEY {key}"));
            assert!(said.contains(" number of elements: 2"), "{line}: {said}");
        }
    });
}

#[test]
fn what_is_encoded_anew_is_read_back() {
    on_every_setup(|cli| {
        cli.check("DEBUG POPULATE 100", "OK");
        cli.check("MSET int 12 long 12345678901 empty \"\"", "OK");
        cli.check("SET volatile x PX 5000", "OK");
        cli.check("SELECT 3", "OK");
        cli.check(&format!("SET raw {}", "abc".repeat(10_000)), "OK");
        let before = cli.run("DEBUG DIGEST");
        cli.check("DEBUG REENCODE", "OK");
        cli.check("DEBUG DIGEST", &before);
        cli.check("SELECT 0", "OK");
        cli.check("OBJECT ENCODING int", "\"int\"");
        assert_eq!(cli.ttl_ms("volatile"), 5000);
        cli.check(
            "DEBUG RELOAD now",
            "(error) ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
        );
        cli.advance_ms(5001);
        cli.check("DEBUG REENCODE", "OK");
        cli.check("DBSIZE", "(integer) 103");
    });
}

#[test]
fn signatures_of_collections_are_those_of_redis() {
    on_every_setup(|cli| {
        cli.run("ZADD z 1 a 2.5 b -inf c +inf d 3 7 1e100 e -0.1 f 0 g");
        cli.run("SADD s 3 1 2 -300");
        cli.run("RPUSH l a 1 -5 \"hello world\" \"\" 99999999999");
        cli.check(
            "DEBUG DIGEST-VALUE z s l",
            "1) da673a2cd0552e64dc34071b5ffc0893e7148190\n\
             2) c6e544f890e0a92c39af3c66af324ecb863d80d9\n\
             3) 24e741e1408f47745bdb714c2b3a2bdb253a40cf",
        );
    });
}
