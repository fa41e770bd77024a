//! Cases that the transcripts cannot show: features newer than Redis 7.0, events, randomness, encodings, memory,
//! large sets.

use std::collections::{BTreeMap, BTreeSet};

use crate::client::connection::Origin;
use crate::command::testing::{
    Terminal, check_all, check_transcript, check_transcript_before, on_every_setup,
};
use crate::config::values::ZsetIndex;
use basalt_core::resp::reply::Protocol;

#[test]
fn the_transcripts_of_redis_hold() {
    for text in [
        include_str!("../../../../tests/transcripts/families/sorted_set.txt"),
        include_str!("../../../../tests/transcripts/families/sorted_set_resp3.txt"),
    ] {
        check_transcript(text, |_| {});
    }
}

#[test]
fn the_transcript_holds_with_large_sets_of_either_index() {
    for index in [ZsetIndex::Btree, ZsetIndex::Skiplist] {
        let text = include_str!("../../../../tests/transcripts/families/sorted_set.txt");
        check_transcript_before(text, "encodings", |cli| {
            cli.configure(|config| {
                config.zset_max_listpack_entries = 0;
                config.zset_index = index;
            });
        });
    }
}

/// Runs a test on a setup for each encoding of a large set and of a small one.
const ENCODINGS: [(u64, ZsetIndex); 3] = [
    (128, ZsetIndex::Btree),
    (3, ZsetIndex::Btree),
    (3, ZsetIndex::Skiplist),
];

fn encode_as(cli: &mut Terminal, (entries, index): (u64, ZsetIndex)) {
    cli.configure(|config| {
        config.zset_max_listpack_entries = entries;
        config.zset_index = index;
    });
}

fn on_every_encoding(mut test: impl FnMut(&mut Terminal)) {
    for encoding in ENCODINGS {
        on_every_setup(|cli| {
            encode_as(cli, encoding);
            test(cli);
        });
    }
}

fn on_every_encoding_in_resp2(mut test: impl FnMut(&mut Terminal)) {
    for encoding in ENCODINGS {
        for shard_count in [1, 4] {
            let mut cli = Terminal::with(shard_count, Protocol::Resp2);
            encode_as(&mut cli, encoding);
            test(&mut cli);
        }
    }
}

/// Expected replies are from the documentation of Redis 7.2.
#[test]
fn ranks_come_with_scores_where_they_are_asked_for() {
    for (protocol, score) in [
        (Protocol::Resp2, "\"2.5\""),
        (Protocol::Resp3, "(double) 2.5"),
    ] {
        let mut cli = Terminal::with(4, protocol);
        cli.run("ZADD z 1 a 2.5 b 4 c");
        cli.check(
            "ZRANK z b WITHSCORE",
            &format!("1) (integer) 1\n2) {score}"),
        );
        cli.check(
            "ZREVRANK z b withscore",
            &format!("1) (integer) 1\n2) {score}"),
        );
        cli.check("ZRANK z nosuch WITHSCORE", "(nil)");
        cli.check("ZRANK none b WITHSCORE", "(nil)");
        cli.check("ZREVRANK z nosuch WITHSCORE", "(nil)");
        cli.check("ZRANK z b WITHSCORES", "(error) ERR syntax error");
        cli.check(
            "ZRANK z b WITHSCORE x",
            "(error) ERR wrong number of arguments for 'zrank' command",
        );
    }
}

/// Expected texts are those that redis-server 7.4 prints: the fewest digits that represent the same number, except
/// for 1e23, for which its algorithm does not find them.
#[test]
fn scores_are_printed_with_as_few_digits_as_they_need() {
    let mut cli = Terminal::new();
    for (given, printed) in [
        ("0.1", "0.1"),
        ("1.1", "1.1"),
        ("3.3333333333333333", "3.3333333333333335"),
        ("1e-7", "1e-7"),
        ("1e22", "1e+22"),
        ("1e23", "99999999999999990000000"),
        ("-0", "0"),
        ("100000000000000000", "100000000000000000"),
        ("4.5e15", "4500000000000000"),
        ("inf", "inf"),
        ("-inf", "-inf"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("5e-324", "5e-324"),
    ] {
        cli.check(&format!("ZADD z {given} m{given}"), "(integer) 1");
        cli.check(&format!("ZSCORE z m{given}"), &format!("\"{printed}\""));
    }
}

#[test]
fn changes_are_recorded_under_the_names_that_redis_gives_them() {
    on_every_encoding(|cli| {
        for (line, events) in [
            ("ZADD z 1 a 2 b 3 c 4 d 5 e", "z:zadd z"),
            ("ZADD z 1 a", ""),
            ("ZADD z XX CH 9 nosuch", ""),
            ("ZADD none XX 1 a", ""),
            ("ZADD z INCR 1 a", "z:zincr z"),
            ("ZADD z INCR 0 a", ""),
            ("ZINCRBY z 1 a", "z:zincr z"),
            ("ZREM z nosuch", ""),
            ("ZREM z a", "z:zrem z"),
            ("ZPOPMIN z", "z:zpopmin z"),
            ("ZPOPMAX z 0", ""),
            ("ZPOPMAX z", "z:zpopmax z"),
            ("ZRANGESTORE d z 0 -1", "z:zrangestore d"),
            ("ZRANGESTORE d none 0 -1", "g:del d"),
            ("ZRANGESTORE d none 0 -1", ""),
            ("ZUNIONSTORE d 1 z", "z:zunionstore d"),
            ("ZINTERSTORE d 1 z", "z:zinterstore d"),
            ("ZDIFFSTORE d 1 z", "z:zdiffstore d"),
            ("ZDIFFSTORE d 2 z z", "g:del d"),
            ("ZREM z c d", "z:zrem z, g:del z"),
            ("ZADD z 1 a 2 b 3 c 4 d", "z:zadd z"),
            ("ZREMRANGEBYRANK z 0 0", "z:zremrangebyrank z"),
            ("ZREMRANGEBYRANK z 9 9", ""),
            ("ZREMRANGEBYSCORE z 2 2", "z:zremrangebyscore z"),
            ("ZREMRANGEBYLEX z - +", "z:zremrangebylex z, g:del z"),
            ("ZADD z 1 a 2 b", "z:zadd z"),
            ("ZMPOP 1 z MIN COUNT 5", "z:zpopmin z, g:del z"),
            ("ZADD z 1 a", "z:zadd z"),
            ("BZPOPMAX z 0", "z:zpopmax z, g:del z"),
            ("ZADD z inf a", "z:zadd z"),
            ("ZADD z INCR -inf a", ""),
            ("ZRANGE z 0 -1", ""),
        ] {
            cli.run(line);
            assert_eq!(cli.events(), events, "{line}");
        }
    });
}

#[test]
fn a_command_that_fails_changes_nothing() {
    on_every_encoding(|cli| {
        cli.run("ZADD z inf a 1 b");
        cli.events();
        for line in [
            "ZADD z 5 b 6 c x d",
            "ZADD z INCR -inf a",
            "ZINCRBY z -inf a",
            "ZADD new 1 a x b",
            "ZADD new 1 a 2",
            "ZUNIONSTORE z 2 z z WEIGHTS 1",
            "ZRANGESTORE z z x y",
            "ZPOPMIN z -1",
            "ZMPOP 1 z MIN COUNT 0",
        ] {
            assert!(cli.run(line).starts_with("(error)"), "{line}");
            assert_eq!(cli.events(), "", "{line}");
        }
        cli.check("EXISTS new", "(integer) 0");
        cli.check("ZCARD z", "(integer) 2");
        cli.check("ZCOUNT z 1 1", "(integer) 1");
    });
}

#[test]
fn a_key_that_expired_is_no_set() {
    on_every_setup(|cli| {
        cli.run("ZADD z 1 a");
        cli.run("PEXPIRE z 10");
        cli.advance_ms(20);
        cli.check("ZCARD z", "(integer) 0");
        cli.check("ZADD z 2 b", "(integer) 1");
        cli.check("TTL z", "(integer) -1");
        cli.run("EXPIRE z 100");
        cli.check("ZADD z 3 c", "(integer) 1");
        assert_eq!(cli.ttl_ms("z"), 100_000);
        cli.run("ZUNIONSTORE z 1 z");
        cli.check("TTL z", "(integer) -1");
    });
}

fn members(cli: &mut Terminal, line: &str) -> Vec<String> {
    let reply = cli.run(line);
    let element = |line: &str| {
        let (_, element) = line.split_once(") ").expect("an array");
        element.trim_matches('"').to_owned()
    };
    match reply.starts_with('(') {
        true => Vec::new(),
        false => reply.lines().map(element).collect(),
    }
}

#[test]
fn draws_answer_members_each_once_or_as_often_as_asked() {
    for entries in [128, 0] {
        let mut cli = Terminal::new();
        cli.configure(|config| config.zset_max_listpack_entries = entries);
        for number in 0..100 {
            cli.run(&format!("ZADD z {number} m{number}"));
        }
        for count in [1, 5, 50, 99, 100, 1000] {
            let drawn = members(&mut cli, &format!("ZRANDMEMBER z {count}"));
            let distinct: BTreeSet<&String> = drawn.iter().collect();
            assert_eq!(drawn.len(), count.min(100));
            assert_eq!(distinct.len(), drawn.len());
        }
        assert_eq!(members(&mut cli, "ZRANDMEMBER z -300").len(), 300);
        let mut seen = BTreeMap::new();
        for _ in 0..3000 {
            *seen.entry(cli.run("ZRANDMEMBER z")).or_insert(0) += 1;
            for member in members(&mut cli, "ZRANDMEMBER z 2") {
                *seen.entry(format!("\"{member}\"")).or_insert(0) += 1;
            }
        }
        assert_eq!(seen.len(), 100);
        // Each is sampled 90 times on average; the bounds are five standard deviations away.
        assert!(
            seen.values().all(|count| (43..140).contains(count)),
            "{seen:?}"
        );
        let pairs = members(&mut cli, "ZRANDMEMBER z -50 WITHSCORES");
        for pair in pairs.chunks(2) {
            assert_eq!(format!("m{}", pair[1]), pair[0]);
        }
    }
}

/// Runs one walk, calling `between` between its steps.
fn walk(cli: &mut Terminal, mut between: impl FnMut(&mut Terminal, usize)) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut cursor = String::from("0");
    for step in 0.. {
        let reply = cli.run(&format!("ZSCAN z {cursor} COUNT 20"));
        let mut lines = reply.lines();
        let first = lines.next().expect("a cursor");
        cursor = first.trim_start_matches("1) ").trim_matches('"').to_owned();
        let elements: Vec<&str> = lines
            .map(|line| line.rsplit(' ').next().unwrap_or(""))
            .collect();
        for pair in elements.chunks(2) {
            found.insert(pair[0].trim_matches('"').to_owned());
        }
        if cursor == "0" {
            return found;
        }
        assert!(step < 10_000, "a walk ends");
        between(cli, step);
    }
    unreachable!("the loop returns")
}

#[test]
fn a_walk_sees_what_is_there_all_the_time() {
    let mut cli = Terminal::new();
    for number in 0..1000 {
        cli.run(&format!("ZADD z {number} stay{number}"));
    }
    let found = walk(&mut cli, |_, _| {});
    assert_eq!(found.len(), 1000);
    let found = walk(&mut cli, |cli, step| {
        for number in 0..40 {
            cli.run(&format!("ZADD z {number} come{step}:{number}"));
            cli.run(&format!("ZREM z come{}:{number}", step / 2));
        }
    });
    for number in 0..1000 {
        assert!(found.contains(&format!("stay{number}")), "{number}");
    }
}

#[test]
fn encodings_follow_the_limits() {
    on_every_setup(|cli| {
        cli.configure(|config| {
            config.zset_max_listpack_entries = 3;
            config.zset_max_listpack_value = 5;
        });
        cli.run("ZADD z 1 a 2 b 3 c");
        assert_eq!(cli.encoding("z"), "listpack");
        cli.run("ZADD z 5 c 9 a");
        assert_eq!(cli.encoding("z"), "listpack");
        cli.run("ZADD z 4 d");
        assert_eq!(cli.encoding("z"), "skiplist");
        cli.run("ZREM z d c");
        assert_eq!(cli.encoding("z"), "skiplist");
        cli.run("ZUNIONSTORE d 1 z");
        assert_eq!(cli.encoding("d"), "listpack");
        cli.run("ZADD d 1 longer");
        assert_eq!(cli.encoding("d"), "skiplist");
        cli.run("ZUNIONSTORE e 1 d");
        assert_eq!(cli.encoding("e"), "skiplist");
    });
}

#[test]
fn memory_is_charged_and_given_back() {
    on_every_encoding(|cli| {
        let used = |cli: &Terminal| -> i64 {
            cli.engines
                .iter()
                .map(|engine| engine.published().used_bytes())
                .sum()
        };
        // The memory of the databases themselves stays.
        cli.run("ZADD z 1 a");
        cli.run("ZADD other 1 a");
        cli.run("DEL z other");
        let before = used(cli);
        for number in 0..2000 {
            cli.run(&format!("ZADD z {} member:{number}", number % 77));
        }
        cli.run("COPY z c");
        cli.run("RENAME c d");
        cli.run("ZUNIONSTORE e 2 z d");
        cli.run("ZRANGESTORE f z 5 300");
        cli.run("ZREMRANGEBYRANK z 100 1500");
        for key in ["z", "d", "e", "f"] {
            cli.run(&format!("DEL {key}"));
        }
        assert!(used(cli) - before < 20_000, "{} {before}", used(cli));
    });
}

#[test]
fn counts_that_clients_claim_are_checked_before_memory_is_taken() {
    check_all(&[
        ("ZADD z 1 a", "(integer) 1"),
        (
            "ZRANDMEMBER z -9223372036854775807",
            "(error) ERR value is out of range",
        ),
        ("ZPOPMIN none 9223372036854775807", "(empty array)"),
        ("ZINTERCARD 1 z LIMIT 9223372036854775807", "(integer) 1"),
        ("ZUNION 9223372036854775807 z", "(error) ERR syntax error"),
        (
            "ZRANGEBYSCORE z -inf inf LIMIT 0 9223372036854775807",
            "1) \"a\"",
        ),
    ]);
}

/// Expected replies are from the documentation of Redis 8.8.
#[test]
fn count_adds_up_in_how_many_sets_a_member_is() {
    let mut cli = Terminal::new();
    cli.run("ZADD a 1 x 2 y 1 z");
    cli.run("ZADD b 2 x 2 y 2 z");
    cli.run("ZADD c 6 x 5 z inf w");
    cli.run("SADD s x q");
    cli.check_all(&[
            (
                "ZINTER 3 a b c AGGREGATE COUNT WITHSCORES",
                "1) \"x\"\n2) \"3\"\n3) \"z\"\n4) \"3\"",
            ),
            (
                "ZINTER 3 a b c WEIGHTS 1 2 -3 AGGREGATE count WITHSCORES",
                "1) \"x\"\n2) \"0\"\n3) \"z\"\n4) \"0\"",
            ),
            (
                "ZUNION 3 a c s WEIGHTS 1 2 4 AGGREGATE COUNT WITHSCORES",
                " 1) \"y\"\n 2) \"1\"\n 3) \"w\"\n 4) \"2\"\n 5) \"z\"\n 6) \"3\"\n 7) \"q\"\n 8) \"4\"\n 9) \"x\"\n10) \"7\"",
            ),
            ("ZUNIONSTORE d 2 a a AGGREGATE COUNT", "(integer) 3"),
            ("ZSCORE d x", "\"2\""),
            ("ZINTERSTORE d 2 a none AGGREGATE COUNT", "(integer) 0"),
            ("EXISTS d", "(integer) 0"),
            (
                "ZUNION 1 a WEIGHTS inf AGGREGATE COUNT WITHSCORES",
                "1) \"x\"\n2) \"inf\"\n3) \"y\"\n4) \"inf\"\n5) \"z\"\n6) \"inf\"",
            ),
            ("ZUNION 1 a AGGREGATE COUNTS", "(error) ERR syntax error"),
            ("ZDIFF 1 a AGGREGATE COUNT", "(error) ERR syntax error"),
        ]);
}

/// Replies are from the documentation of Redis 8.12; in RESP2 the pairs are nested as in ZMPOP.
#[test]
fn members_are_moved_with_their_scores() {
    on_every_encoding_in_resp2(|cli| {
        let wrong_type =
            "(error) WRONGTYPE Operation against a key holding the wrong kind of value";
        cli.run("ZADD from{t} 1 a 2 b 3 c 3 d 5 e");
        cli.run("ZADD to{t} 9 b 7 x");
        cli.run("PEXPIRE to{t} 100000");
        cli.run("SET text{t} v");
        cli.events();
        cli.check_all(&[
            (
                "ZMOVE from{t} to{t} MIN COUNT 2",
                "1) 1) \"a\"\n   2) \"1\"\n2) 1) \"b\"\n   2) \"2\"",
            ),
            (
                "ZRANGE to{t} 0 -1 WITHSCORES",
                "1) \"a\"\n2) \"1\"\n3) \"b\"\n4) \"2\"\n5) \"x\"\n6) \"7\"",
            ),
        ]);
        assert_eq!(cli.events(), "z:zpopmin from{t}, z:zadd to{t}");
        cli.check_all(&[
            ("ZMOVE from{t} to{t} max", "1) 1) \"e\"\n   2) \"5\""),
            ("ZMOVE from{t} to{t} BYSCORE (3 inf", "(nil)"),
            (
                "ZMOVE from{t} new{t} BYSCORE 3 3 COUNT 1",
                "1) 1) \"c\"\n   2) \"3\"",
            ),
            ("PTTL new{t}", "(integer) -1"),
            ("PTTL to{t}", "(integer) 100000"),
            ("ZMOVE from{t} from{t} MIN", "(nil)"),
            ("ZMOVE none{t} text{t} MIN", "(nil)"),
            ("ZMOVE from{t} text{t} MIN", wrong_type),
            ("ZMOVE text{t} from{t} MIN", wrong_type),
            ("ZMOVE text{t} text{t} MIN", wrong_type),
            ("ZSCORE from{t} d", "\"3\""),
        ]);
        cli.events();
        cli.check(
            "ZMOVE from{t} to{t} BYSCORE -inf +inf",
            "1) 1) \"d\"\n   2) \"3\"",
        );
        assert_eq!(cli.events(), "z:zrem from{t}, g:del from{t}, z:zadd to{t}");
        cli.check("EXISTS from{t}", "(integer) 0");
    });
}

#[test]
fn named_members_are_moved_as_the_condition_says() {
    on_every_encoding_in_resp2(|cli| {
        cli.run("ZADD from{t} 1 a 2 b 3 c 4 d");
        cli.run("ZADD to{t} 9 b 9 c");
        cli.events();
        cli.check_all(&[
            (
                "ZMOVEMEMBER from{t} to{t} NX MEMBERS 4 d b none d",
                "1) 1) \"d\"\n   2) \"4\"",
            ),
            (
                "ZMOVEMEMBER from{t} to{t} xx members 3 a c b",
                "1) 1) \"c\"\n   2) \"3\"\n2) 1) \"b\"\n   2) \"2\"",
            ),
            ("ZMOVEMEMBER from{t} to{t} XX MEMBERS 1 a", "(nil)"),
            ("ZMOVEMEMBER from{t} from{t} MEMBERS 1 a", "(nil)"),
            ("ZMOVEMEMBER none{t} to{t} MEMBERS 1 a", "(nil)"),
        ]);
        assert_eq!(
            cli.events(),
            "z:zrem from{t}, z:zadd to{t}, z:zrem from{t}, z:zadd to{t}"
        );
        cli.check_all(&[
            (
                "ZMOVEMEMBER from{t} to{t} MEMBERS 1 a",
                "1) 1) \"a\"\n   2) \"1\"",
            ),
            ("EXISTS from{t}", "(integer) 0"),
            (
                "ZRANGE to{t} 0 -1 WITHSCORES",
                "1) \"a\"\n2) \"1\"\n3) \"b\"\n4) \"2\"\n5) \"c\"\n6) \"3\"\n7) \"d\"\n8) \"4\"",
            ),
        ]);
    });
}

#[test]
fn moves_are_refused_for_each_wrong_argument() {
    let syntax = "(error) ERR syntax error";
    let count = "(error) ERR count should be greater than 0";
    let bounds = "(error) ERR min or max is not a float";
    let number = "(error) ERR Parameter `num-members` should be greater than 0";
    let mismatch = "(error) ERR The `num-members` parameter must match the number of arguments";
    check_all(&[
        ("ZADD a 1 x", "(integer) 1"),
        (
            "ZMOVE a b",
            "(error) ERR wrong number of arguments for 'zmove' command",
        ),
        ("ZMOVE a b MIDDLE", syntax),
        ("ZMOVE a b MIN 2", syntax),
        ("ZMOVE a b MIN COUNT", syntax),
        ("ZMOVE a b MIN COUNT 0", count),
        ("ZMOVE a b MIN COUNT -1", count),
        ("ZMOVE a b MIN COUNT 9223372036854775808", count),
        ("ZMOVE a b MIN COUNT 1 COUNT 1", syntax),
        ("ZMOVE a b BYSCORE 1", syntax),
        ("ZMOVE a b BYSCORE 1 x", bounds),
        ("ZMOVE a b BYSCORE ( 2", bounds),
        ("ZMOVE a b BYSCORE 1 2 LIMIT 0 1", syntax),
        (
            "BZMOVE a b MIN",
            "(error) ERR wrong number of arguments for 'bzmove' command",
        ),
        ("BZMOVE a b BYSCORE 1 2 0", syntax),
        (
            "BZMOVE a b MIN x",
            "(error) ERR timeout is not a float or out of range",
        ),
        ("BZMOVE a b MIN -1", "(error) ERR timeout is negative"),
        ("BZMOVE a b MIN 0 COUNT 0", count),
        ("BZMOVE a b MIN 0 LIMIT 1", syntax),
        ("BZMOVE none none MIN 0", "(nil)"),
        (
            "ZMOVEMEMBER a b MEMBERS 1",
            "(error) ERR wrong number of arguments for 'zmovemember' command",
        ),
        ("ZMOVEMEMBER a b NX XX MEMBERS 1 x", syntax),
        ("ZMOVEMEMBER a b GT MEMBERS 1 x", syntax),
        ("ZMOVEMEMBER a b NX MEMBERS 1", mismatch),
        ("ZMOVEMEMBER a b MEMBERS 0 x", number),
        ("ZMOVEMEMBER a b MEMBERS x x", number),
        ("ZMOVEMEMBER a b MEMBERS 9223372036854775807 x", mismatch),
        ("ZMOVEMEMBER a b MEMBERS 1 x y", mismatch),
        ("ZCARD a", "(integer) 1"),
        ("EXISTS b", "(integer) 0"),
    ]);
}

/// As in Valkey 9.2; what redis-server logged with such bounds is still taken.
#[test]
fn bounds_without_a_number_are_refused_from_clients_only() {
    let mut cli = Terminal::new();
    let refused = "(error) ERR min or max is not a float";
    cli.run("ZADD z -1 a 0 b 1 c");
    for line in [
        "ZRANGEBYSCORE z ( 1",
        "ZRANGEBYSCORE z 0 \"\"",
        "ZREVRANGEBYSCORE z 1 (",
        "ZRANGE z ( 1 BYSCORE",
        "ZRANGESTORE d z ( 1 BYSCORE",
        "ZCOUNT z \"\" 1",
        "ZREMRANGEBYSCORE z ( 1",
    ] {
        cli.check(line, refused);
    }
    cli.connection.origin = Origin::Primary;
    cli.check("ZREMRANGEBYSCORE z ( 5", "(integer) 1");
    cli.check("ZRANGE z 0 -1", "1) \"a\"\n2) \"b\"");
}
