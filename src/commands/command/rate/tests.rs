//! INCREX and CL.THROTTLE in process; CL.THROTTLE is compared with a model that uses exact fractions.

use crate::command::testing::{Terminal, on_every_setup};
use basalt_core::base::random::Random;

fn pair(first: &str, second: &str) -> String {
    format!("1) {first}\n2) {second}")
}

fn numbers(value: i64, by: i64) -> String {
    pair(&format!("(integer) {value}"), &format!("(integer) {by}"))
}

#[test]
fn integers_grow_within_bounds() {
    on_every_setup(|cli| {
        for (line, value, by) in [
            ("INCREX k", 1, 1),
            ("INCREX k BYINT 5", 6, 5),
            ("INCREX k BYINT -2", 4, -2),
            ("INCREX k BYINT 0", 4, 0),
            ("INCREX k BYINT 10 UBOUND 9", 4, 0),
            ("INCREX k BYINT 10 UBOUND 9 SATURATE", 9, 5),
            ("INCREX k BYINT -20 LBOUND 3 SATURATE", 3, -6),
            ("INCREX k BYINT -20 LBOUND 3", 3, 0),
            // A value beyond a bound is moved to the bound (SATURATE), or stays.
            ("INCREX k BYINT -1 UBOUND 1", 3, 0),
            ("INCREX k BYINT -1 UBOUND 1 SATURATE", 1, -2),
            ("INCREX k BYINT 9223372036854775807", 1, 0),
            (
                "INCREX k BYINT 9223372036854775807 SATURATE",
                i64::MAX,
                i64::MAX - 1,
            ),
            ("increx k byint 1 saturate", i64::MAX, 0),
            ("INCREX none BYINT 3 UBOUND 2", 0, 0),
            ("INCREX low LBOUND 5 SATURATE", 5, 5),
        ] {
            cli.check(line, &numbers(value, by));
        }
        cli.check("EXISTS none", "(integer) 0");
        cli.check("OBJECT ENCODING k", "\"int\"");
    });
}

#[test]
fn floats_grow_within_bounds() {
    let mut cli = Terminal::new();
    for (line, value, by) in [
        ("INCREX k BYFLOAT 0.1", "0.1", "0.1"),
        ("INCREX k BYFLOAT 0.2", "0.3", "0.2"),
        ("INCREX k BYFLOAT -1 LBOUND 0", "0.3", "0"),
        ("INCREX k BYFLOAT -1 LBOUND -0.5 SATURATE", "-0.5", "-0.8"),
        ("INCREX k BYFLOAT 3 UBOUND 1.5 SATURATE", "1.5", "2"),
        ("INCREX none BYFLOAT 3 UBOUND 1.5", "0", "0"),
    ] {
        cli.check(line, &pair(&format!("{value:?}"), &format!("{by:?}")));
    }
    cli.check("EXISTS none", "(integer) 0");
    cli.run("SET i 7");
    cli.check("INCREX i BYFLOAT 0.5", &pair("\"7.5\"", "\"0.5\""));
    cli.check(
        "INCREX i BYINT 1",
        "(error) ERR value is not an integer or out of range",
    );
    cli.check(
        "INCREX big BYFLOAT 1e4932 SATURATE UBOUND 10",
        &pair("\"10\"", "\"10\""),
    );
    let mut cli = Terminal::with(1, basalt_core::resp::reply::Protocol::Resp3);
    cli.check(
        "INCREX k BYFLOAT 0.5",
        &pair("(double) 0.5", "(double) 0.5"),
    );
}

#[test]
fn the_deadline_is_given_kept_and_taken_away() {
    on_every_setup(|cli| {
        cli.run("INCREX k");
        assert_eq!(cli.ttl_ms("k"), -1);
        cli.run("INCREX k EX 5");
        assert_eq!(cli.ttl_ms("k"), 5_000);
        cli.run("INCREX k");
        assert_eq!(cli.ttl_ms("k"), 5_000);
        cli.run("INCREX k PX 9 ENX");
        assert_eq!(cli.ttl_ms("k"), 5_000);
        // If the request is refused, the key and its deadline are unchanged.
        cli.run("INCREX k UBOUND 1 PX 9");
        assert_eq!(cli.ttl_ms("k"), 5_000);
        cli.run("INCREX k PERSIST");
        assert_eq!(cli.ttl_ms("k"), -1);
        cli.run("INCREX k PX 900 ENX");
        assert_eq!(cli.ttl_ms("k"), 900);
        cli.run(&format!("INCREX k PXAT {}", cli.now_ms + 77));
        assert_eq!(cli.ttl_ms("k"), 77);
        cli.run("INCREX f BYFLOAT 1 EX 7 ENX");
        assert_eq!(cli.ttl_ms("f"), 7_000);
        cli.advance_ms(78);
        cli.check("INCREX k EX 5 ENX", &numbers(1, 1));
    });
}

#[test]
fn events_name_the_change_and_the_deadline() {
    on_every_setup(|cli| {
        for (line, events) in [
            ("INCREX k", "$:incrby k"),
            ("INCREX k EX 5", "$:incrby k, g:expire k"),
            ("INCREX k EX 5 ENX", "$:incrby k"),
            ("INCREX k PERSIST", "$:incrby k, g:persist k"),
            ("INCREX k PERSIST", "$:incrby k"),
            ("INCREX k UBOUND 0", ""),
            ("INCREX k BYFLOAT 1", "$:incrbyfloat k"),
            ("CL.THROTTLE t 1 1 1", "$:set t, g:expire t"),
            ("CL.THROTTLE t 1 1 1 0", ""),
        ] {
            cli.run(line);
            assert_eq!(cli.events(), events, "{line}");
        }
    });
}

#[test]
fn mistakes_are_named_and_change_nothing() {
    on_every_setup(|cli| {
        cli.run("RPUSH list a");
        cli.run("SET word x");
        let dirty = cli.dirty();
        let integer = "ERR value is not an integer or out of range";
        let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
        let time = "ERR invalid expire time in 'increx' command";
        for (line, error) in [
            (
                "INCREX",
                "ERR wrong number of arguments for 'increx' command",
            ),
            ("INCREX k BYINT", "ERR syntax error"),
            ("INCREX k BYINT 1 BYINT 1", "ERR syntax error"),
            ("INCREX k BYINT 1 BYFLOAT 1", "ERR syntax error"),
            ("INCREX k LBOUND", "ERR syntax error"),
            ("INCREX k COLOUR", "ERR syntax error"),
            ("INCREX k EX 5 PX 5", "ERR syntax error"),
            ("INCREX k EX 5 PERSIST", "ERR syntax error"),
            ("INCREX k PERSIST ENX", "ERR syntax error"),
            ("INCREX k ENX", "ERR ENX flag requires an expiration"),
            ("INCREX k BYINT x", integer),
            ("INCREX k BYINT 1.5", integer),
            ("INCREX k UBOUND 1.5", integer),
            ("INCREX k BYFLOAT x", "ERR value is not a valid float"),
            (
                "INCREX k BYFLOAT 1 LBOUND x",
                "ERR value is not a valid float",
            ),
            (
                "INCREX k BYFLOAT inf",
                "ERR increment would produce NaN or Infinity",
            ),
            (
                "INCREX k LBOUND 2 UBOUND 1",
                "ERR LBOUND can't be greater than UBOUND",
            ),
            (
                "INCREX k BYFLOAT 1 LBOUND 0.2 UBOUND 0.1",
                "ERR LBOUND can't be greater than UBOUND",
            ),
            ("INCREX k EX 0", time),
            ("INCREX k EX -1", time),
            ("INCREX k EX 9223372036854775807", time),
            ("INCREX list", wrong),
            ("INCREX list BYFLOAT 1", wrong),
            ("INCREX word", integer),
            ("INCREX word BYFLOAT 1", "ERR value is not a valid float"),
            (
                "CL.THROTTLE k 1 1",
                "ERR wrong number of arguments for 'cl.throttle' command",
            ),
            (
                "CL.THROTTLE k 1 1 1 1 1",
                "ERR wrong number of arguments for 'cl.throttle' command",
            ),
            ("CL.THROTTLE k x 1 1", integer),
            ("CL.THROTTLE k -1 1 1", "ERR max_burst must not be negative"),
            ("CL.THROTTLE k 1 0 1", "ERR count must be positive"),
            ("CL.THROTTLE k 1 1 0", "ERR period must be positive"),
            (
                "CL.THROTTLE k 1 1 1 -1",
                "ERR quantity must not be negative",
            ),
            (
                "CL.THROTTLE k 9223372036854775807 1 1",
                "ERR the rate is out of range",
            ),
            (
                "CL.THROTTLE k 1 1 9223372036854775807",
                "ERR the rate is out of range",
            ),
            (
                "CL.THROTTLE k 1 1 1 9223372036854775807",
                "ERR the rate is out of range",
            ),
            (
                "CL.THROTTLE k 1 2000000000 1",
                "ERR the rate is higher than one per nanosecond",
            ),
            ("CL.THROTTLE list 1 1 1", wrong),
            ("CL.THROTTLE word 1 1 1", integer),
        ] {
            cli.check(line, &format!("(error) {error}"));
        }
        assert_eq!(cli.dirty(), dirty);
        cli.check("EXISTS k", "(integer) 0");
    });
}

fn five(reply: &str) -> [i64; 5] {
    let number = |line: &str| line.rsplit(' ').next().and_then(|text| text.parse().ok());
    let all: Vec<i64> = reply.lines().filter_map(number).collect();
    all.try_into()
        .unwrap_or_else(|_| panic!("five integers: {reply}"))
}

#[test]
fn a_burst_is_let_through_and_then_one_each_interval() {
    on_every_setup(|cli| {
        // 30 requests per minute, and 15 more at once: the example in redis-cell's documentation.
        let throttle = |cli: &mut Terminal| five(&cli.run("CL.THROTTLE user 15 30 60 1"));
        assert_eq!(throttle(cli), [0, 16, 15, -1, 2]);
        for left in (0..15).rev() {
            assert_eq!(throttle(cli), [0, 16, left, -1, 2 * (16 - left)]);
        }
        assert_eq!(throttle(cli), [1, 16, 0, 2, 32]);
        cli.advance_ms(1_000);
        assert_eq!(throttle(cli), [1, 16, 0, 1, 31]);
        cli.advance_ms(1_000);
        assert_eq!(throttle(cli), [0, 16, 0, -1, 32]);
        // A request of quantity 0 costs nothing, and a request of more than a burst is never allowed.
        assert_eq!(
            five(&cli.run("CL.THROTTLE user 15 30 60 0")),
            [0, 16, 0, -1, 32]
        );
        assert_eq!(
            five(&cli.run("CL.THROTTLE new 15 30 60 17")),
            [1, 16, 16, -1, 0]
        );
        cli.advance_ms(33_000);
        cli.check("EXISTS user", "(integer) 0");
    });
}

/// Compares with the definition of the rate limit: a bucket with a capacity of one burst plus one request, which
/// fills at the rate, computed in exact fractions.
#[test]
fn random_requests_are_answered_as_by_a_bucket() {
    for seed in 0..40 {
        let mut cli = Terminal::new();
        let mut random = Random::new(seed);
        let mut draw = |below: u64| (random.next_u64() % below) as i64;
        let burst = draw(6);
        // Intervals are whole milliseconds, so that nothing is rounded.
        let (count, period_s) = [(1, 1), (2, 1), (5, 2), (4, 3), (10, 1)][draw(5) as usize];
        let interval_ms = period_s * 1_000 / count;
        let size = (burst + 1) * interval_ms;
        let mut filled = size;
        for step in 0..300 {
            let passed = draw(2 * interval_ms as u64);
            cli.advance_ms(passed as u64);
            filled = (filled + passed).min(size);
            let quantity = draw(4);
            let wanted = quantity * interval_ms;
            let is_limited = wanted > filled;
            let lacks = wanted - filled;
            if !is_limited {
                filled -= wanted;
            }
            let up = |ms: i64| (ms + 999) / 1_000;
            let retry = if is_limited && wanted <= size {
                up(lacks)
            } else {
                -1
            };
            let expected = [
                i64::from(is_limited),
                burst + 1,
                filled / interval_ms,
                retry,
                up(size - filled),
            ];
            let line = format!("CL.THROTTLE k {burst} {count} {period_s} {quantity}");
            let found = five(&cli.run(&line));
            assert_eq!(found, expected, "seed {seed}, step {step}: {line}");
        }
    }
}
