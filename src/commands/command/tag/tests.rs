//! Tags in process: dialogues, random histories compared with a plain model, costs and remaining memory.

use std::collections::{BTreeMap, BTreeSet};

use crate::command::testing::{Terminal, on_every_setup, state};
use basalt_core::base::random::Random;
use basalt_core::resp::reply::Protocol;
use basalt_engine::Now;

fn items(reply: &str) -> BTreeSet<String> {
    let items = reply.split('"').skip(1).step_by(2);
    items.map(str::to_owned).collect()
}

/// Does the background work of each shard until nothing is left.
fn free_all(cli: &mut Terminal) {
    let now = Now {
        unix_ms: cli.now_ms,
    };
    for engine in &mut cli.engines {
        while engine.expire_slice(now) {}
    }
}

#[test]
fn keys_have_tags_until_they_are_overwritten() {
    on_every_setup(|cli| {
        cli.check("SET a 1 TAGS 2 x y", "OK");
        cli.check("SET b 2 EX 100 TAGS 1 x", "OK");
        cli.check("RPUSH list e", "(integer) 1");
        cli.check("TAG ADD list x x z", "(integer) 2");
        cli.check("TAG ADD list x", "(integer) 0");
        cli.check("TAG ADD nothing x", "(integer) 0");
        cli.check("TAG COUNT x", "(integer) 3");
        cli.check("TAG COUNT nothing", "(integer) 0");
        assert_eq!(items(&cli.run("TAG OF a")), items("\"x\" \"y\""));
        cli.check("TAG OF nothing", "(empty array)");
        cli.check("TAG REM a y w", "(integer) 1");
        cli.check("TAG REM nothing y", "(integer) 0");
        cli.check("TAG OF a", "1) \"x\"");
        for (line, answer) in [("APPEND a 1", "(integer) 2"), ("INCR a", "(integer) 12")] {
            cli.check(line, answer);
            cli.check("TAG COUNT x", "(integer) 3");
        }
        cli.check("INCRBYFLOAT a 0.5", "\"12.5\"");
        cli.check("SETRANGE a 0 3", "(integer) 4");
        cli.check("RPUSH list f", "(integer) 2");
        cli.check("PERSIST b", "(integer) 1");
        cli.check("TAG COUNT x", "(integer) 3");
        cli.check("SET a 1", "OK");
        cli.check("TAG OF a", "(empty array)");
        cli.check("SET b 1 KEEPTTL", "OK");
        cli.check("DEL list", "(integer) 1");
        cli.check("TAG COUNT x", "(integer) 0");
    });
}

#[test]
fn tags_go_where_keys_go() {
    on_every_setup(|cli| {
        cli.check("SET a 1 TAGS 2 x y", "OK");
        cli.check("RENAME a b", "OK");
        cli.check("COPY b c", "(integer) 1");
        cli.check("COPY b d DB 3", "(integer) 1");
        cli.check("MOVE c 4", "(integer) 1");
        cli.check("TAG COUNT y", "(integer) 1");
        cli.check("SELECT 3", "OK");
        cli.check("TAG COUNT y", "(integer) 1");
        cli.check("SWAPDB 3 4", "OK");
        assert_eq!(items(&cli.run("TAG OF c")), items("\"x\" \"y\""));
        cli.check("TAG INVALIDATE x", "(integer) 1");
        cli.check("EXISTS c", "(integer) 0");
        cli.check("SELECT 4", "OK");
        cli.check("GET d", "\"1\"");
        cli.check("SELECT 0", "OK");
        cli.check("GET b", "\"1\"");
        cli.check("FLUSHDB", "OK");
        cli.check("TAG COUNT x", "(integer) 0");
        cli.check("SADD s a b c d e f g h", "(integer) 8");
        cli.check("TAG ADD s x", "(integer) 1");
        cli.run("SPOP s 6");
        cli.check("TAG OF s", "1) \"x\"");
        cli.check("PEXPIRE s 10", "(integer) 1");
        cli.advance_ms(20);
        free_all(cli);
        cli.check("TAG COUNT x", "(integer) 0");
    });
}

#[test]
fn no_command_sees_an_invalidated_key_long_before_it_is_deleted() {
    on_every_setup(|cli| {
        for number in 0..3_000 {
            cli.run(&format!("SET key:{number} v TAGS 2 all odd{}", number % 2));
        }
        cli.check("SET other v TAGS 1 mine", "OK");
        cli.events();
        let dirty = cli.dirty();
        cli.check("TAG INVALIDATE odd1 nothing", "(integer) 1500");
        assert!(cli.dirty() > dirty);
        let left: usize = cli
            .engines
            .iter()
            .map(|engine| engine.db(0).map_or(0, |db| db.len()))
            .sum();
        assert!(left > 2_500, "most of them are still there: {left}");
        let seen = |cli: &mut Terminal| {
            let mut seen = items(&cli.run("KEYS *"));
            let mut cursor = String::from("0");
            loop {
                let reply = cli.run(&format!("SCAN {cursor} COUNT 500"));
                let mut found = reply.split('"').skip(1).step_by(2);
                cursor = found.next().expect("a cursor").to_owned();
                seen.extend(found.map(str::to_owned));
                if cursor == "0" {
                    return seen;
                }
            }
        };
        // The order matters: keys that are looked up by name are deleted.
        let random: Vec<String> = (0..50).map(|_| cli.run("RANDOMKEY")).collect();
        let all = seen(cli);
        assert_eq!(all.len(), 1_501);
        assert!(all.iter().chain(&random).all(|key| {
            let digits = key.trim_matches('"').strip_prefix("key:");
            digits.is_none_or(|digits| digits.parse::<u32>().is_ok_and(|number| number % 2 == 0))
        }));
        for number in (1..60).step_by(2) {
            let line = [
                "GET key:@",
                "EXISTS key:@",
                "TTL key:@",
                "TYPE key:@",
                "OBJECT ENCODING key:@",
                "DUMP key:@",
                "TAG OF key:@",
                "STRLEN key:@",
                "RENAME key:@ new",
                "COPY key:@ new",
            ][number / 2 % 10]
                .replace('@', &number.to_string());
            let absent = line.replace("key:", "absent:");
            assert_eq!(cli.run(&line), cli.run(&absent), "{line}");
        }
        cli.check("SET key:1 new TAGS 1 odd1", "OK");
        free_all(cli);
        cli.check("DBSIZE", "(integer) 1502");
        cli.check("TAG COUNT odd1", "(integer) 1");
        cli.check("GET key:1", "\"new\"");
        assert!(cli.events().contains("del key:3"), "each is told");
        cli.check("TAG INVALIDATE all", "(integer) 1500");
        free_all(cli);
        cli.check("DBSIZE", "(integer) 2");
    });
}

#[test]
fn an_invalidation_itself_deletes_few_keys_on_however_many_shards() {
    const AT_ONCE_MAX: usize = 256;
    for shard_count in [1, 64, 256] {
        let mut cli = Terminal::with(shard_count, Protocol::Resp2);
        let keys = 20 * shard_count;
        for number in 0..keys {
            cli.run(&format!("SET key:{number} v TAGS 1 t{}", number % 3));
        }
        for number in 0..100 {
            cli.run(&format!("SET few:{number} v TAGS 1 few"));
        }
        let size = |cli: &mut Terminal| -> usize {
            let reply = cli.run("DBSIZE");
            let number = reply.strip_prefix("(integer) ").expect("a number");
            number.parse().expect("a number")
        };
        cli.check("TAG INVALIDATE few", "(integer) 100");
        if shard_count > 16 {
            assert_eq!(size(&mut cli), keys, "a small tag is done with at once");
        }
        free_all(&mut cli);
        let counted = format!("(integer) {keys}");
        cli.check("TAG INVALIDATE t0 t1 t2", &counted);
        let deleted = keys - size(&mut cli);
        assert!(
            (1..=AT_ONCE_MAX).contains(&deleted),
            "{deleted} on {shard_count} shards"
        );
        cli.check("KEYS *", "(empty array)");
        for number in [0, keys / 2, keys - 1] {
            cli.check(&format!("GET key:{number}"), "(nil)");
        }
        free_all(&mut cli);
        assert_eq!(size(&mut cli), 0);
    }
}

#[test]
fn keys_of_a_tag_are_walked_and_each_once() {
    on_every_setup(|cli| {
        for number in 0..500 {
            cli.run(&format!("SET key:{number} v TAGS 1 t{}", number % 2));
        }
        let (mut seen, mut cursor, mut calls) = (Vec::new(), String::from("0"), 0);
        loop {
            let reply = cli.run(&format!("TAG KEYS t1 {cursor} COUNT 40"));
            let mut found = reply.split('"').skip(1).step_by(2);
            cursor = found.next().expect("a cursor").to_owned();
            seen.extend(found.map(str::to_owned));
            calls += 1;
            if cursor == "0" {
                break;
            }
            cli.run(&format!("DEL key:{}", calls * 2));
        }
        assert!(calls >= 250 / 44, "{calls} calls");
        assert_eq!(seen.len(), 250);
        let once: BTreeSet<String> = seen.iter().cloned().collect();
        assert_eq!(once.len(), 250);
        assert!(
            once.iter()
                .all(|key| key.ends_with(['1', '3', '5', '7', '9']))
        );
        cli.check("TAG KEYS nothing 0", "1) \"0\"\n2) (empty array)");
        cli.check("TAG KEYS t1 x", "(error) ERR invalid cursor");
        cli.check("TAG KEYS t1 0 COUNT 0", "(error) ERR syntax error");
        cli.check("TAG KEYS t1 0 MATCH a*", "(error) ERR syntax error");
    });
}

#[test]
fn what_is_wrong_with_tags_is_said() {
    on_every_setup(|cli| {
        let long = "x".repeat(4_097);
        let too_long = "(error) ERR a tag is longer than 4096 bytes";
        let too_many = "(error) ERR a key has at most 254 tags";
        let many: Vec<String> = (0..255).map(|number| number.to_string()).collect();
        let many = many.join(" ");
        let positive = "(error) ERR numtags should be greater than 0";
        let fewer = "(error) ERR Number of tags can't be greater than number of args";
        cli.check(&format!("SET k v TAGS 1 {long}"), too_long);
        cli.check(&format!("SET k v TAGS 255 {many}"), too_many);
        cli.check("SET k v TAGS 0 x", positive);
        cli.check("SET k v TAGS -1 x", positive);
        cli.check(
            "SET k v TAGS x x",
            "(error) ERR value is not an integer or out of range",
        );
        cli.check("SET k v TAGS 2 x", fewer);
        cli.check("SET k v TAGS 9223372036854775807 x", fewer);
        cli.check("SET k v TAGS 1", "(error) ERR syntax error");
        cli.check("EXISTS k", "(integer) 0");
        cli.check("SET k v", "OK");
        cli.check(&format!("TAG ADD k {long}"), too_long);
        cli.check(&format!("TAG ADD k {many}"), too_many);
        cli.check(
            &format!("TAG ADD k a {}", many.rsplit_once(' ').expect("many").0),
            too_many,
        );
        cli.check("TAG OF k", "(empty array)");
        cli.check(&format!("TAG INVALIDATE {long}"), too_long);
        cli.check(
            "TAG ADD k",
            "(error) ERR wrong number of arguments for 'tag|add' command",
        );
        free_all(cli);
        cli.check("DEL k", "(integer) 1");
    });
}

/// A database as a plain map from each key to its value and tags.
#[derive(Default)]
struct Model(BTreeMap<String, (String, BTreeSet<String>)>);

impl Model {
    /// Returns a random request, which is also applied to the model.
    fn step(&mut self, random: &mut Random) -> String {
        let key = |random: &mut Random| format!("key{}", random.below(400));
        let tags = |random: &mut Random| -> BTreeSet<String> {
            let count = 1 + random.below(3);
            (0..count)
                .map(|_| format!("tag{}", random.below(6)))
                .collect()
        };
        let (one, other, some) = (key(random), key(random), tags(random));
        let named = some.iter().cloned().collect::<Vec<_>>().join(" ");
        let value = random.below(1_000).to_string();
        match random.below(200) {
            0..80 => {
                let count = some.len();
                self.0.insert(one.clone(), (value.clone(), some));
                format!("SET {one} {value} TAGS {count} {named}")
            }
            80..95 => {
                self.0.insert(one.clone(), (value.clone(), BTreeSet::new()));
                format!("SET {one} {value}")
            }
            95..110 => {
                self.0.remove(&one);
                format!("DEL {one}")
            }
            110..140 => {
                if let Some((_, had)) = self.0.get_mut(&one) {
                    had.extend(some);
                }
                format!("TAG ADD {one} {named}")
            }
            140..155 => {
                if let Some((_, had)) = self.0.get_mut(&one) {
                    had.retain(|tag| !some.contains(tag));
                }
                format!("TAG REM {one} {named}")
            }
            155..165 => {
                if one != other
                    && let Some(held) = self.0.remove(&one)
                {
                    self.0.insert(other.clone(), held);
                }
                format!("RENAME {one} {other}")
            }
            165..180 => {
                if one != other
                    && let Some(held) = self.0.get(&one).cloned()
                {
                    self.0.insert(other.clone(), held);
                }
                format!("COPY {one} {other} REPLACE")
            }
            180..195 => {
                if let Some((held, _)) = self.0.get_mut(&one) {
                    held.push('1');
                } else {
                    self.0
                        .insert(one.clone(), (String::from("1"), BTreeSet::new()));
                }
                format!("APPEND {one} 1")
            }
            _ => {
                self.0.retain(|_, (_, had)| had.is_disjoint(&some));
                format!("TAG INVALIDATE {named}")
            }
        }
    }

    fn check(&self, cli: &mut Terminal, key: &str) {
        let (value, tags) = match self.0.get(key) {
            Some((value, tags)) => (format!("\"{value}\""), tags.clone()),
            None => (String::from("(nil)"), BTreeSet::new()),
        };
        assert_eq!(cli.run(&format!("GET {key}")), value, "{key}");
        assert_eq!(items(&cli.run(&format!("TAG OF {key}"))), tags, "{key}");
    }
}

#[test]
fn random_histories_are_those_of_a_plain_model() {
    for seed in 0..12 {
        on_every_setup(|cli| {
            let (mut random, mut model) = (Random::new(seed), Model::default());
            for step in 0..1_500 {
                let line = model.step(&mut random);
                cli.run(&line);
                model.check(cli, &format!("key{}", random.below(400)));
                if step % 50 == 0 {
                    let keys: BTreeSet<String> = model.0.keys().cloned().collect();
                    assert_eq!(items(&cli.run("KEYS *")), keys, "{line}");
                    let now = Now {
                        unix_ms: cli.now_ms,
                    };
                    for engine in &mut cli.engines {
                        engine.expire_slice(now);
                    }
                }
            }
            free_all(cli);
            for number in 0..6 {
                let tag = format!("tag{number}");
                let count = model
                    .0
                    .values()
                    .filter(|(_, tags)| tags.contains(&tag))
                    .count();
                cli.check(&format!("TAG COUNT {tag}"), &format!("(integer) {count}"));
            }
        });
    }
}

#[test]
fn what_is_undone_leaves_tags_as_they_were() {
    let mut cli = Terminal::new();
    for number in 0..300 {
        cli.run(&format!("SET key:{number} v TAGS 2 a b{}", number % 3));
    }
    for number in 0..2_000 {
        cli.run(&format!("SADD large {number}"));
    }
    cli.run("TAG ADD large a c");
    let before = state(&mut cli);
    for lines in [
        &[
            "TAG INVALIDATE a",
            "SET key:1 w TAGS 1 a",
            "SET new w TAGS 1 a",
        ][..],
        &[
            "SADD large x",
            "TAG ADD large d",
            "SREM large 5",
            "TAG REM large a",
        ],
        &["TAG ADD large d", "DEL large"],
        &[
            "SET key:1 w TAGS 1 z",
            "TAG INVALIDATE z",
            "TAG INVALIDATE b0 b1",
        ],
        &[
            "RENAME large key:5",
            "COPY key:5 key:6 REPLACE",
            "MOVE key:6 2",
        ],
        &["LSTALE large 500", "FLUSHALL", "SET key:1 w TAGS 1 a"],
    ] {
        cli.engines[0].begin_attempt();
        lines.iter().for_each(|line| drop(cli.run(line)));
        cli.engines[0].undo_attempt();
        assert_eq!(state(&mut cli), before, "{lines:?}");
        cli.check("TAG COUNT a", "(integer) 301");
        cli.check("TAG COUNT z", "(integer) 0");
    }
    cli.engines[0].begin_attempt();
    cli.run("TAG INVALIDATE a");
    cli.engines[0].commit_attempt();
    cli.check("KEYS *", "(empty array)");
    free_all(&mut cli);
    cli.check("DBSIZE", "(integer) 0");
}

#[test]
fn a_tag_of_a_key_takes_less_than_24_bytes_and_keys_without_take_none() {
    const KEYS: usize = 20_000;
    let used = |tags: &str| {
        let mut cli = Terminal::new();
        for number in 0..KEYS {
            cli.run(&format!("SET key:{number:08} value{tags}"));
        }
        let used: i64 = cli.engines.iter().map(|engine| engine.used_bytes()).sum();
        cli.run("TAG INVALIDATE a");
        free_all(&mut cli);
        used
    };
    let none = used("");
    for (tags, count) in [
        (" TAGS 1 a", 1),
        (" TAGS 2 a b", 2),
        (" TAGS 5 a b c d e", 5),
    ] {
        let each = (used(tags) - none) as f64 / (KEYS * count) as f64;
        assert!(each <= 24.0, "{each} bytes for each of {count}");
    }
    // The memory of tag names without keys is freed.
    let mut cli = Terminal::new();
    cli.run("SET warm v");
    cli.run("DEL warm");
    free_all(&mut cli);
    let empty = cli.engines[0].used_bytes();
    for number in 0..1_000 {
        cli.run(&format!("SET key:{number} v TAGS 1 tag:{number}"));
    }
    for number in 0..1_000 {
        cli.run(&format!("DEL key:{number}"));
    }
    free_all(&mut cli);
    let left = cli.engines[0].used_bytes() - empty;
    assert!(left < 2_000, "{left} bytes are left");
}

#[test]
fn what_redis_does_not_know_is_logged_as_notes() {
    on_every_setup(|cli| {
        cli.start_log();
        let mut logged = |line: &str| -> Vec<String> {
            cli.run(line);
            let appended = cli.logged();
            let commands = appended.into_iter().flat_map(|one| one.commands);
            let texts = commands.map(|(_, request)| {
                let words = request.iter().map(|word| String::from_utf8_lossy(word));
                words.collect::<Vec<_>>().join(" ")
            });
            texts.collect()
        };
        let note = "COMMAND INFO basalt:note";
        assert_eq!(
            logged("SET k v PXAT 1700000100000 STALE 500 TAGS 2 x y"),
            [
                "SET k v PXAT 1700000100500".to_owned(),
                format!("{note} LSTALE k 500"),
                format!("{note} TAG ADD k x y"),
            ]
        );
        assert_eq!(logged("TAG ADD k z"), [format!("{note} TAG ADD k z")]);
        assert_eq!(logged("TAG ADD k z"), [""; 0]);
        assert_eq!(logged("TAG REM k z"), [format!("{note} TAG REM k z")]);
        assert_eq!(logged("TAG REM k z"), [""; 0]);
        assert_eq!(logged("LSTALE k 100"), [format!("{note} LSTALE k 100")]);
        assert_eq!(logged("LSTALE k 100"), [""; 0]);
        assert_eq!(logged("SET n 1 TAGS 1 x")[1], format!("{note} TAG ADD n x"));
        assert_eq!(
            logged("INCRBYFLOAT n 0.5"),
            [
                "SET n 1.5 KEEPTTL".to_owned(),
                format!("{note} TAG ADD n x")
            ]
        );
        let (set, window) = ("SET m 1 PXAT 1700000100500", format!("{note} LSTALE m 500"));
        let tagged = format!("{note} TAG ADD m x");
        let line = "SET m 1 PXAT 1700000100000 STALE 500 TAGS 1 x";
        assert_eq!(logged(line), [set, &window, &tagged]);
        let keeping = ["SET m 1.5 KEEPTTL", &window, &tagged];
        assert_eq!(logged("INCRBYFLOAT m 0.5"), keeping);
        let keeping = ["SET m 2.5 KEEPTTL", &window, &tagged];
        assert_eq!(logged("INCREX m BYFLOAT 1"), keeping);
        logged("DEL m");
        let invalidation = format!("{note} TAG INVALIDATE x");
        let mut texts = logged("TAG INVALIDATE x");
        texts.sort();
        assert_eq!(texts, [&invalidation, "UNLINK k", "UNLINK n"]);
        assert_eq!(logged("TAG INVALIDATE x"), [""; 0]);
    });
}
