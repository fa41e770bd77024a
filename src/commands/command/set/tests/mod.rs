//! Cases that the transcript cannot show: unordered replies, encodings as in Redis 7.2, randomness, events, memory.

mod aside;
mod expire;

use std::collections::{BTreeMap, BTreeSet};

use crate::command::testing::{Terminal, check_transcript, on_every_setup};
use basalt_core::base::random::Random;

#[test]
fn the_transcript_of_redis_holds() {
    let text = include_str!("../../../../../tests/transcripts/families/set.txt");
    check_transcript(text, |_| {});
}

/// Returns the elements of a flat reply, in order.
fn elements(cli: &mut Terminal, line: &str) -> Vec<String> {
    let reply = cli.run(line);
    if reply.starts_with("(empty") {
        return Vec::new();
    }
    let element = |line: &str| match line.split_once("~ ").or(line.split_once(") ")) {
        Some((_, element)) => element.trim_matches('"').to_owned(),
        None => panic!("no aggregate: {line}"),
    };
    reply.lines().map(element).collect()
}

/// Returns the elements of an unordered reply.
fn members(cli: &mut Terminal, line: &str) -> BTreeSet<String> {
    let all = elements(cli, line);
    let set: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(set.len(), all.len(), "{line} answers each member once");
    set
}

fn set_of(words: &str) -> BTreeSet<String> {
    words.split_whitespace().map(str::to_owned).collect()
}

/// Creates a set of `count` members that are not numbers.
fn fill(cli: &mut Terminal, key: &str, count: usize) {
    let words: Vec<String> = (0..count).map(|number| format!("m{number}")).collect();
    for words in words.chunks(100) {
        cli.run(&format!("SADD {key} {}", words.join(" ")));
    }
}

#[test]
fn combinations_answer_sets() {
    on_every_setup(|cli| {
        cli.run("SADD a 1 2 3 x");
        cli.run("SADD b 2 3 4 x y");
        cli.run("SADD c 3 x");
        for (line, expected) in [
            ("SMEMBERS a", "1 2 3 x"),
            ("SMEMBERS none", ""),
            ("SINTER a b", "2 3 x"),
            ("SINTER a b c", "3 x"),
            ("SINTER a a", "1 2 3 x"),
            ("SINTER a none", ""),
            ("SUNION a b c", "1 2 3 4 x y"),
            ("SUNION a a", "1 2 3 x"),
            ("SUNION none a", "1 2 3 x"),
            ("SUNION none none", ""),
            ("SDIFF a b", "1"),
            ("SDIFF b a", "4 y"),
            ("SDIFF b a none c", "4 y"),
            ("SDIFF a a", ""),
            ("SDIFF a none a", ""),
            ("SDIFF a", "1 2 3 x"),
            ("SDIFF none a", ""),
        ] {
            assert_eq!(members(cli, line), set_of(expected), "{line}");
        }
    });
}

#[test]
fn resp3_has_sets_of_its_own_where_members_are_told_apart() {
    on_every_setup(|cli| {
        let is_resp3 = cli.connection.protocol == basalt_core::resp::reply::Protocol::Resp3;
        let (empty, open) = if is_resp3 {
            ("(empty set)", "1~ \"7\"")
        } else {
            ("(empty array)", "1) \"7\"")
        };
        cli.run("SADD s 7");
        for command in ["SMEMBERS", "SINTER", "SUNION", "SDIFF"] {
            cli.check(&format!("{command} s"), open);
            cli.check(&format!("{command} none"), empty);
        }
        cli.check("SRANDMEMBER s 1", "1) \"7\"");
        cli.check("SPOP none 1", empty);
        cli.check("SPOP s 0", empty);
        cli.check("SPOP s 1", open);
    });
}

#[test]
fn encodings_follow_the_limits_of_redis_7_2() {
    on_every_setup(|cli| {
        cli.configure(|config| {
            config.set_max_intset_entries = 4;
            config.set_max_listpack_entries = 3;
            config.set_max_listpack_value = 5;
        });
        for (line, encoding) in [
            ("SADD s 1 2 3 4", "intset"),
            ("SADD s 4", "intset"),
            ("SADD s 5", "hashtable"),
            ("SREM s 5 4 3", "hashtable"),
            ("DEL s", "none"),
            ("SADD s 1 2", "intset"),
            ("SADD s a", "listpack"),
            ("SADD s b", "hashtable"),
            ("DEL s", "none"),
            ("SADD s 1 2", "intset"),
            ("SADD s abcdef", "hashtable"),
            ("DEL s", "none"),
            ("SADD s a", "listpack"),
            ("SADD s abcde", "listpack"),
            ("SADD s abcdef", "hashtable"),
            ("DEL s", "none"),
            // The number of given members decides, even if some exist already.
            ("SADD s a a a a", "hashtable"),
            ("DEL s", "none"),
            ("SADD s 1 1 1 1 1", "hashtable"),
            ("DEL s", "none"),
            ("SADD s 1", "intset"),
            ("SADD s 1 1 1 1 1", "hashtable"),
            ("DEL s", "none"),
            ("SADD s a", "listpack"),
            ("SADD s a a a a", "hashtable"),
            ("DEL s", "none"),
            // An intset does not become a listpack if its members would be too long for one.
            ("SADD s 123456", "intset"),
            ("SADD s a", "hashtable"),
            ("DEL s", "none"),
            ("SADD s -12345", "intset"),
            ("SADD s a", "hashtable"),
            ("DEL s", "none"),
            ("SADD s a 1 2", "listpack"),
            ("SREM s a", "listpack"),
            ("SADD s 3", "listpack"),
            ("SADD s 4", "hashtable"),
        ] {
            cli.run(line);
            assert_eq!(cli.encoding("s"), encoding, "{line}");
        }
    });
}

#[test]
fn without_listpacks_an_intset_becomes_a_table() {
    let mut cli = Terminal::new();
    cli.configure(|config| config.set_max_listpack_entries = 0);
    cli.run("SADD s 1");
    assert_eq!(cli.encoding("s"), "intset");
    cli.run("SADD s a");
    assert_eq!(cli.encoding("s"), "hashtable");
    cli.run("SADD t a");
    assert_eq!(cli.encoding("t"), "hashtable");
    assert_eq!(members(&mut cli, "SMEMBERS s"), set_of("1 a"));
}

#[test]
fn results_are_stored_in_the_smallest_encoding_that_holds_them() {
    on_every_setup(|cli| {
        fill(cli, "large", 200);
        cli.run("SADD large 1 2 3");
        cli.run("SADD numbers 1 2 3");
        cli.run("SADD mixed 1 m1 m2");
        assert_eq!(cli.encoding("large"), "hashtable");
        for (line, encoding) in [
            ("SINTERSTORE d large numbers", "intset"),
            ("SINTERSTORE d large mixed", "listpack"),
            ("SINTERSTORE d large large", "hashtable"),
            ("SUNIONSTORE d numbers numbers", "intset"),
            ("SUNIONSTORE d numbers mixed", "listpack"),
            ("SUNIONSTORE d numbers large", "hashtable"),
            ("SDIFFSTORE d mixed large", "none"),
            ("SDIFFSTORE d large mixed", "hashtable"),
            ("SDIFFSTORE d mixed numbers", "listpack"),
        ] {
            cli.run(line);
            assert_eq!(cli.encoding("d"), encoding, "{line}");
        }
    });
}

/// Compares random commands over a few sets, with small limits, with sets of the standard library.
#[test]
fn sets_agree_with_a_model_whatever_happens() {
    on_every_setup(|cli| {
        cli.configure(|config| {
            config.set_max_intset_entries = 6;
            config.set_max_listpack_entries = 9;
            config.set_max_listpack_value = 4;
        });
        let mut random = Random::new(7);
        let mut model: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let word = |random: &mut Random| match random.index(4) {
            0 => format!("w{}", random.index(12)),
            1 if random.index(8) == 0 => format!("longer{}", random.index(3)),
            _ => format!("{}", random.index(20) as i64 - 10),
        };
        for _ in 0..4_000 {
            let key = |random: &mut Random| format!("k{}", random.index(5));
            let first = key(&mut random);
            match random.index(12) {
                0..5 => {
                    let words: Vec<String> = (0..1 + random.index(4))
                        .map(|_| word(&mut random))
                        .collect();
                    let set = model.entry(first.clone()).or_default();
                    let added = words
                        .iter()
                        .filter(|word| set.insert((*word).clone()))
                        .count();
                    let line = format!("SADD {first} {}", words.join(" "));
                    cli.check(&line, &format!("(integer) {added}"));
                }
                5 | 6 => {
                    let word = word(&mut random);
                    let removed = model.get_mut(&first).is_some_and(|set| set.remove(&word));
                    let line = format!("SREM {first} {word}");
                    cli.check(&line, &format!("(integer) {}", i64::from(removed)));
                }
                7 => {
                    let (second, word) = (key(&mut random), word(&mut random));
                    let moved = model.get(&first).is_some_and(|set| set.contains(&word));
                    if moved && first != second {
                        model.entry(first.clone()).or_default().remove(&word);
                        model
                            .entry(second.clone())
                            .or_default()
                            .insert(word.clone());
                    }
                    let line = format!("SMOVE {first} {second} {word}");
                    cli.check(&line, &format!("(integer) {}", i64::from(moved)));
                }
                8 => {
                    let count = random.index(6);
                    let popped = members(cli, &format!("SPOP {first} {count}"));
                    let set = model.entry(first.clone()).or_default();
                    assert_eq!(popped.len(), count.min(set.len()));
                    for member in popped {
                        assert!(set.remove(&member));
                    }
                }
                9 => {
                    let count = random.index(9);
                    let drawn = members(cli, &format!("SRANDMEMBER {first} {count}"));
                    let set = model.entry(first.clone()).or_default();
                    assert_eq!(drawn.len(), count.min(set.len()));
                    assert!(drawn.is_subset(set));
                }
                _ => {
                    let keys: Vec<String> =
                        (0..1 + random.index(3)).map(|_| key(&mut random)).collect();
                    let sets: Vec<BTreeSet<String>> = keys
                        .iter()
                        .map(|key| model.get(key).cloned().unwrap_or_default())
                        .collect();
                    let (name, expected) = combined(random.index(3), &sets);
                    let keys = keys.join(" ");
                    let answered = members(cli, &format!("{name} {keys}"));
                    assert_eq!(answered, expected, "{name} {keys}");
                    let line = format!("{name}STORE {first} {keys}");
                    cli.check(&line, &format!("(integer) {}", expected.len()));
                    model.insert(first.clone(), expected);
                }
            }
            model.retain(|_, set| !set.is_empty());
            let held = model.get(&first).cloned().unwrap_or_default();
            assert_eq!(members(cli, &format!("SMEMBERS {first}")), held);
            cli.check(
                &format!("SCARD {first}"),
                &format!("(integer) {}", held.len()),
            );
            cli.check(
                &format!("EXISTS {first}"),
                &format!("(integer) {}", i64::from(!held.is_empty())),
            );
        }
    });
}

fn combined(operation: usize, sets: &[BTreeSet<String>]) -> (&'static str, BTreeSet<String>) {
    let mut result = sets[0].clone();
    let name = ["SINTER", "SUNION", "SDIFF"][operation];
    for set in &sets[1..] {
        result = match operation {
            0 => &result & set,
            1 => &result | set,
            _ => &result - set,
        };
    }
    (name, result)
}

/// Many sets that contain little of the large one they are subtracted from: the copy is cheaper than the search.
#[test]
fn both_ways_to_subtract_agree() {
    let mut cli = Terminal::new();
    fill(&mut cli, "first", 300);
    let mut keys = String::new();
    for number in 0..40 {
        cli.run(&format!("SADD s{number} m{number} m{} other", number + 100));
        keys += &format!(" s{number}");
    }
    let expected: BTreeSet<String> = (0..300)
        .filter(|number| !(0..40).contains(number) && !(100..140).contains(number))
        .map(|number| format!("m{number}"))
        .collect();
    assert_eq!(members(&mut cli, &format!("SDIFF first{keys}")), expected);
    assert_eq!(
        members(&mut cli, &format!("SDIFF first{keys} none")),
        expected
    );
    cli.check(&format!("SDIFFSTORE d first{keys}"), "(integer) 220");
    assert_eq!(members(&mut cli, "SMEMBERS d"), expected);
    assert!(members(&mut cli, &format!("SDIFF first{keys} first")).is_empty());
}

#[test]
fn large_counts_take_most_of_a_large_set_out() {
    on_every_setup(|cli| {
        for count in [1, 100, 900, 990, 999] {
            cli.run("DEL s");
            fill(cli, "s", 1000);
            let popped = members(cli, &format!("SPOP s {count}"));
            let left = members(cli, "SMEMBERS s");
            assert_eq!((popped.len(), left.len()), (count, 1000 - count));
            assert!(popped.is_disjoint(&left));
        }
        cli.run("DEL s");
        fill(cli, "s", 1000);
        assert_eq!(members(cli, "SPOP s 1000").len(), 1000);
        cli.check("EXISTS s", "(integer) 0");
    });
}

#[test]
fn every_member_is_drawn_as_often_as_any_other() {
    const ROUNDS: usize = 20_000;
    let mut cli = Terminal::new();
    cli.run("SADD intset 1 2 3 4 5 6 7 8 9 10");
    cli.run("SADD listpack a b c d e f g h i j");
    fill(&mut cli, "hashtable", 10);
    cli.configure(|config| config.set_max_listpack_entries = 5);
    cli.run("SADD hashtable m0 m0 m0 m0 m0 m0");
    for key in ["intset", "listpack", "hashtable"] {
        assert_eq!(cli.encoding(key), key);
        for (line, draws) in [
            (format!("SRANDMEMBER {key} 3"), 3),
            (format!("SRANDMEMBER {key} 9"), 9),
            (format!("SRANDMEMBER {key} -10"), 10),
            (format!("SRANDMEMBER {key} 1"), 1),
        ] {
            let mut times: BTreeMap<String, usize> = BTreeMap::new();
            for _ in 0..ROUNDS / draws {
                for member in elements(&mut cli, &line) {
                    *times.entry(member).or_default() += 1;
                }
            }
            assert_eq!(times.len(), 10);
            for (member, times) in times {
                let expected = ROUNDS / 10;
                assert!(
                    (expected * 8 / 10..expected * 12 / 10).contains(&times),
                    "{line}: {member} came {times} times"
                );
            }
        }
    }
}

#[test]
fn every_member_is_popped_as_often_as_any_other() {
    let mut cli = Terminal::new();
    for (members_of, limit) in [("1 2 3 4 5 6", 9), ("a b c d e f", 9), ("a b c d e f", 3)] {
        cli.configure(|config| config.set_max_listpack_entries = limit);
        for count in [1, 2, 5] {
            let mut times: BTreeMap<String, usize> = BTreeMap::new();
            for _ in 0..3_000 {
                cli.run("DEL s");
                cli.run(&format!("SADD s {members_of}"));
                for member in elements(&mut cli, &format!("SPOP s {count}")) {
                    *times.entry(member).or_default() += 1;
                }
            }
            for (member, times) in times {
                let expected = 500 * count;
                assert!(
                    (expected * 7 / 10..expected * 13 / 10).contains(&times),
                    "{count} of {members_of}: {member} came {times} times"
                );
            }
        }
    }
}

#[test]
fn a_walk_over_a_large_set_sees_every_member() {
    on_every_setup(|cli| {
        fill(cli, "s", 1000);
        let (mut seen, mut cursor, mut calls) = (BTreeSet::new(), String::from("0"), 0);
        loop {
            let reply = cli.run(&format!("SSCAN s {cursor} COUNT 50 MATCH m*"));
            let (next, members) = reply.split_once("\n2) ").expect("a cursor and members");
            let quoted = |text: &str| text.split('"').nth(1).unwrap_or_default().to_owned();
            seen.extend(members.lines().map(quoted));
            cursor = next.split('"').nth(1).unwrap_or_default().to_owned();
            calls += 1;
            if cursor == "0" {
                break;
            }
        }
        seen.remove("");
        assert_eq!(seen.len(), 1000);
        assert!(calls > 5, "{calls}");
        cli.check(
            "SSCAN s 0 MATCH nothing* COUNT 1000000",
            "1) \"0\"\n2) (empty array)",
        );
        for cursor in ["1", "-1", "18446744073709551615"] {
            assert!(cli.run(&format!("SSCAN s {cursor}")).starts_with("1) \""));
        }
    });
}

#[test]
fn draws_beyond_all_measure_are_refused() {
    let mut cli = Terminal::new();
    cli.run("SADD s a");
    cli.check(
        "SRANDMEMBER s -9223372036854775807",
        "(error) ERR value is out of range",
    );
    cli.check("SRANDMEMBER s 9223372036854775807", "1) \"a\"");
}

#[test]
fn changes_of_sets_are_recorded_only_where_there_are_any() {
    on_every_setup(|cli| {
        for (line, events) in [
            ("SADD s 1 2 3", "s:sadd s"),
            ("SADD s 1", ""),
            ("SREM s 9", ""),
            ("SREM s 1", "s:srem s"),
            ("SMOVE s t 9", ""),
            ("SMOVE s t 2", "s:srem s, s:sadd t"),
            ("SMOVE t s 2", "s:srem t, g:del t, s:sadd s"),
            ("SADD t 2", "s:sadd t"),
            ("SMOVE s t 2", "s:srem s"),
            ("SINTERSTORE d s t", ""),
            ("SUNIONSTORE d s t", "s:sunionstore d"),
            ("SDIFFSTORE d s t", "s:sdiffstore d"),
            ("SINTERSTORE d s s", "s:sinterstore d"),
            ("SINTERSTORE d none", "g:del d"),
            ("SINTERSTORE d none", ""),
            ("SPOP none", ""),
            ("SPOP s 0", ""),
            ("SPOP s 5", "s:spop s, g:del s"),
            ("SADD s 1 2 3", "s:sadd s"),
            ("SPOP s 2", "s:spop s"),
            ("SPOP s", "s:spop s, g:del s"),
            ("SREM t 1 2", "s:srem t, g:del t"),
            ("SRANDMEMBER t", ""),
        ] {
            cli.run(line);
            assert_eq!(cli.events(), events, "{line}");
        }
    });
}

#[test]
fn the_memory_of_sets_comes_back_to_the_shard() {
    on_every_setup(|cli| {
        let used = |cli: &Terminal| -> i64 {
            cli.engines
                .iter()
                .map(basalt_engine::Engine::used_bytes)
                .sum()
        };
        // Create enough keys that the table of keys keeps its size.
        for number in 0..100 {
            cli.run(&format!("SET other{number} 1"));
        }
        for lines in [
            &["SADD s 1 2 3", "SADD s 100000", "SREM s 1", "DEL s"][..],
            &["SADD s 1 2 3", "SADD s a", "SPOP s 2", "SPOP s 2"],
            &["SADD s 1 2 3 a", "COPY s t", "SMOVE s t 1", "DEL s t"],
            &["FILL", "DEL s"],
            &["FILL", "SPOP s 10", "DEL s"],
            &["FILL", "SPOP s 1990", "DEL s"],
            &["FILL", "SPOP s 2000"],
            &["FILL", "COPY s t", "RENAME t u", "DEL s u"],
            &["FILL", "SUNIONSTORE d s s", "DEL s", "DEL d"],
            &["FILL", "SADD t 1 m1 m2", "SINTERSTORE d s t", "DEL s d t"],
            &[
                "FILL",
                "SADD t 1 m1 m2",
                "SDIFFSTORE d s t",
                "SET d 1",
                "SET s 1",
                "DEL s d t",
            ],
            &[
                "FILL",
                "SUNIONSTORE t s",
                "SUNIONSTORE t s",
                "SREM s m1 m2",
                "DEL s t",
            ],
        ] {
            let before = used(cli);
            for line in lines {
                if *line == "FILL" {
                    fill(cli, "s", 2_000);
                    assert!(used(cli) > before + 2_000 * 16);
                } else {
                    cli.run(line);
                }
            }
            // Directories of tables go to a pool that all tables of the process share.
            let lost = used(cli) - before;
            assert!(lost.abs() <= 512, "{lost} bytes lost: {lines:?}");
        }
    });
}

#[test]
fn copies_share_nothing() {
    on_every_setup(|cli| {
        for words in ["1 2 3", "a b 3"] {
            cli.run("FLUSHALL");
            cli.run(&format!("SADD s {words}"));
            cli.check("COPY s t", "(integer) 1");
            cli.run("SADD t new");
            assert_eq!(members(cli, "SMEMBERS s"), set_of(words));
            assert_eq!(members(cli, "SMEMBERS t"), set_of(&format!("{words} new")));
        }
        fill(cli, "large", 500);
        cli.check("COPY large copy", "(integer) 1");
        cli.check("SREM copy m1", "(integer) 1");
        cli.check("SCARD large", "(integer) 500");
        cli.check("SCARD copy", "(integer) 499");
        cli.check("TYPE copy", "set");
    });
}

#[test]
fn unions_and_differences_are_counted_like_intersections() {
    on_every_setup(|cli| {
        cli.run("SADD a 1 2 3 x");
        cli.run("SADD b 2 3 4 x y");
        cli.check("RPUSH list v", "(integer) 1");
        fill(cli, "many", 1_000);
        for (line, expected) in [
            ("SUNIONCARD 1 a", "(integer) 4"),
            ("SUNIONCARD 2 a b", "(integer) 6"),
            ("SUNIONCARD 3 a none b", "(integer) 6"),
            ("SUNIONCARD 2 none none", "(integer) 0"),
            ("SUNIONCARD 2 a b LIMIT 0", "(integer) 6"),
            ("SUNIONCARD 2 a b limit 3", "(integer) 3"),
            ("SUNIONCARD 2 a b LIMIT 100", "(integer) 6"),
            ("SUNIONCARD 2 a b APPROX", "(integer) 6"),
            ("SUNIONCARD 2 a b LIMIT 2 approx", "(integer) 2"),
            ("SUNIONCARD 2 none none APPROX LIMIT 2", "(integer) 0"),
            ("SDIFFCARD 1 a", "(integer) 4"),
            ("SDIFFCARD 2 a b", "(integer) 1"),
            ("SDIFFCARD 2 b a LIMIT 1", "(integer) 1"),
            ("SDIFFCARD 3 b a none", "(integer) 2"),
            ("SDIFFCARD 2 none a", "(integer) 0"),
            ("SDIFFCARD 2 a a", "(integer) 0"),
            ("SDIFFCARD 2 many a", "(integer) 1000"),
            ("SDIFFCARD 2 many a LIMIT 7", "(integer) 7"),
            ("SDIFFCARD 2 many many", "(integer) 0"),
            ("SUNIONCARD 2 many list", "WRONG"),
            ("SDIFFCARD 2 a list", "WRONG"),
            (
                "SUNIONCARD 0 a",
                "(error) ERR numkeys should be greater than 0",
            ),
            (
                "SDIFFCARD x a",
                "(error) ERR numkeys should be greater than 0",
            ),
            (
                "SUNIONCARD 3 a b",
                "(error) ERR Number of keys can't be greater than number of args",
            ),
            (
                "SUNIONCARD 1 a LIMIT -1",
                "(error) ERR LIMIT can't be negative",
            ),
            (
                "SUNIONCARD 1 a LIMIT x",
                "(error) ERR LIMIT can't be negative",
            ),
            ("SUNIONCARD 1 a LIMIT", "(error) ERR syntax error"),
            ("SUNIONCARD 1 a ROUGHLY", "(error) ERR syntax error"),
            ("SDIFFCARD 1 a APPROX", "(error) ERR syntax error"),
            ("SINTERCARD 1 a APPROX", "(error) ERR syntax error"),
        ] {
            let expected = expected.replace(
                "WRONG",
                "(error) WRONGTYPE Operation against a key holding the wrong kind of value",
            );
            cli.check(line, &expected);
        }
        // The standard error is 0.81 %.
        let rough = cli.run("SUNIONCARD 2 many a APPROX");
        let rough: i64 = rough
            .trim_start_matches("(integer) ")
            .parse()
            .expect("a number");
        assert!((950..1_060).contains(&rough), "{rough}");
    });
}
