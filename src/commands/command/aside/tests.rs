//! COPY, ZUNIONSTORE and its kin, ZRANGESTORE and SORT with a value that was built aside: everything is as if the
//! command had built it, and a source that changes meanwhile is noticed.

use std::fmt::Write as _;

use super::SliceResult;
use crate::command::testing::building::{Building, check_nothing_is_watched};
use crate::command::testing::{Terminal, state};
use basalt_core::base::random::Random;
use basalt_core::resp::reply::Protocol;
use basalt_engine::Engine;

/// Everything that a command leaves behind.
#[derive(Debug, PartialEq)]
struct Outcome {
    reply: String,
    events: String,
    logged: Vec<String>,
    encoding: &'static str,
    ttl_ms: i64,
    dirty: u64,
    state: String,
}

impl Outcome {
    fn of(cli: &mut Terminal, run: impl FnOnce(&mut Terminal) -> String) -> Outcome {
        cli.start_log();
        cli.events();
        let dirty = cli.dirty();
        let reply = run(cli);
        let events = cli.events();
        let logged = cli.logged();
        let logged: Vec<String> = logged.iter().map(ToString::to_string).collect();
        // Members may be logged in any order; a small set knows no -0.
        let logged = logged.join("\n");
        let mut logged: Vec<String> = logged
            .split(['[', ']', ' '])
            .map(|word| if word == "-0" { "0" } else { word })
            .map(str::to_owned)
            .collect();
        logged.sort();
        Outcome {
            reply,
            events,
            logged,
            dirty: cli.dirty() - dirty,
            encoding: cli.encoding("to"),
            ttl_ms: cli.ttl_ms("to"),
            state: state(cli),
        }
    }
}

/// Returns the bytes of all databases of a server.
fn used_bytes(cli: &Terminal) -> i64 {
    cli.engines.iter().map(Engine::used_bytes).sum()
}

/// Runs a request on a prepared server, and on another with a value that was built aside. Panics if anything differs.
/// Returns the number of slices.
fn compare(shard_count: usize, prepare: &dyn Fn(&mut Terminal), line: &str) -> usize {
    let mut direct = Terminal::with(shard_count, Protocol::Resp2);
    let mut aside = Terminal::with(shard_count, Protocol::Resp2);
    prepare(&mut direct);
    prepare(&mut aside);
    let mut slices = 0;
    let usual = Outcome::of(&mut direct, |cli| cli.run(line));
    let other = Outcome::of(&mut aside, |cli| {
        let (built, count) = Building::begin(cli, line).go_on(cli);
        slices = count;
        check_nothing_is_watched(cli);
        cli.run_with(line, built.expect("nothing has changed"))
    });
    assert!(usual == other, "{line}: {usual:.2000?}\n{other:.2000?}");
    for cli in [&mut direct, &mut aside] {
        cli.run("DEL src other third");
    }
    let (usual, other) = (used_bytes(&direct), used_bytes(&aside));
    assert!(
        (usual - other).abs() * 20 <= usual.max(100_000),
        "{line}: {other} bytes instead of {usual}"
    );
    slices
}

fn number_or_infinity(random: &mut Random) -> String {
    match random.index(12) {
        0 => "inf".into(),
        1 => "-inf".into(),
        2 => "-0".into(),
        3 => "0".into(),
        _ => format!("{}", random.index(2_000) as f64 / 10.0 - 100.0),
    }
}

/// Adds elements to a collection of a type under a key.
fn fill(cli: &mut Terminal, random: &mut Random, key: &str, data_type: &str, count: usize) {
    let mut left = count;
    while left > 0 {
        let part = left.min(200);
        let mut line = match data_type {
            "set" | "numbers" => format!("SADD {key}"),
            "zset" => format!("ZADD {key}"),
            "hash" => format!("HSET {key}"),
            _ => format!("RPUSH {key}"),
        };
        for _ in 0..part {
            let name = random.index(2 * count);
            let _ = match data_type {
                "set" => write!(line, " member:{name}"),
                "zset" => write!(line, " {} member:{name}", number_or_infinity(random)),
                "hash" => write!(line, " field:{name} value:{name}"),
                "numbers" => write!(line, " {}", name as f64 / 8.0),
                // Long enough for several slices.
                _ => write!(line, " {:060}", name as f64 / 4.0 - 30.0),
            };
        }
        cli.run(&line);
        left -= part;
    }
}

#[test]
fn a_copy_made_aside_is_the_copy_that_the_command_makes() {
    for shard_count in [1, 4] {
        for data_type in ["set", "zset", "hash", "list"] {
            let prepare = |cli: &mut Terminal| {
                let mut random = Random::new(7);
                fill(cli, &mut random, "src", data_type, 3_000);
                cli.run("PEXPIRE src 100000");
                cli.run("TAG ADD src one two");
                cli.run("SET to old");
                cli.run("SELECT 3");
                cli.run("SADD to a");
                cli.run("SELECT 0");
            };
            for line in [
                "COPY src to REPLACE",
                "COPY src to DB 3 REPLACE",
                "COPY src new DB 3",
            ] {
                let slices = compare(shard_count, &prepare, line);
                assert!(slices >= 3, "{line}: {slices} slices of a {data_type}");
            }
        }
        let with_deadlines = |cli: &mut Terminal| {
            let mut random = Random::new(8);
            fill(cli, &mut random, "src", "hash", 2_000);
            for number in (0..4_000).step_by(7) {
                let ms = 1_000 + number;
                cli.run(&format!("HPEXPIRE src {ms} FIELDS 1 field:{number}"));
            }
        };
        assert!(compare(shard_count, &with_deadlines, "COPY src to") >= 2);
        let with_deadlines = |cli: &mut Terminal| {
            let mut random = Random::new(8);
            fill(cli, &mut random, "src", "set", 2_000);
            for number in (0..4_000).step_by(7) {
                cli.run(&format!("SEXPIRE src 100 MEMBERS 1 member:{number}"));
            }
        };
        assert!(compare(shard_count, &with_deadlines, "COPY src to") >= 2);
    }
}

#[test]
fn long_elements_and_strings_are_copied_too() {
    let long = "x".repeat(40_000);
    let hash = |cli: &mut Terminal| {
        let mut random = Random::new(9);
        fill(cli, &mut random, "src", "hash", 1_000);
        for number in 0..5 {
            cli.run(&format!("HSET src long:{number} {number}{long}"));
        }
    };
    let list = |cli: &mut Terminal| {
        let mut random = Random::new(10);
        cli.configure(|config| config.list_compress_depth = 1);
        fill(cli, &mut random, "src", "list", 3_000);
        for number in 0..5 {
            cli.run(&format!("RPUSH src {number}{long} short"));
            cli.run(&format!("LINSERT src BEFORE {:060} inserted", 17.5));
        }
    };
    let string = |cli: &mut Terminal| {
        cli.run(&format!("SET src {long} PX 5000"));
    };
    compare(1, &hash, "COPY src to");
    compare(1, &list, "COPY src to");
    compare(1, &string, "COPY src to");
}

#[test]
fn set_operations_with_scores_are_those_of_the_command() {
    let mut random = Random::new(1);
    for round in 0..40 {
        let shard_count = [1, 4][round % 2];
        let (seed, sizes) = (random.next_u64(), [0, 60, 700, 1_500]);
        let mut size = || sizes[random.index(sizes.len())];
        let (own, other, third) = (size() + 20, size(), size());
        let types = ["set", "zset", "zset", "numbers"];
        let mut kind = || types[random.index(types.len())];
        let (own_type, other_type, third_type) = (kind(), kind(), kind());
        let prepare = move |cli: &mut Terminal| {
            let mut random = Random::new(seed);
            fill(cli, &mut random, "src", own_type, own);
            fill(cli, &mut random, "other", other_type, other);
            fill(cli, &mut random, "third", third_type, third);
            cli.run("SET to old");
            if random.index(2) == 0 {
                cli.configure(|config| config.zset_max_listpack_entries = 2_000);
            }
        };
        let keys = [
            "src",
            "src other",
            "src other third none",
            "third src other src",
        ];
        let keys = keys[random.index(keys.len())];
        let numkeys = keys.split(' ').count();
        let mut options = String::new();
        if random.index(2) == 0 {
            options += " WEIGHTS";
            for _ in 0..numkeys {
                let _ = write!(options, " {}", number_or_infinity(&mut random));
            }
        }
        if random.index(4) > 0 {
            let aggregates = ["SUM", "MIN", "MAX", "COUNT"];
            let _ = write!(options, " AGGREGATE {}", aggregates[random.index(4)]);
        }
        for name in ["ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"] {
            let options = if name == "ZDIFFSTORE" { "" } else { &options };
            let line = format!("{name} to {numkeys} {keys}{options}");
            compare(shard_count, &prepare, &line);
            compare(shard_count, &prepare, &line.replace(" to ", " src "));
        }
    }
}

#[test]
fn stored_ranges_are_those_of_the_command() {
    for shard_count in [1, 4] {
        let prepare = |cli: &mut Terminal| {
            let mut random = Random::new(3);
            fill(cli, &mut random, "src", "zset", 3_000);
        };
        for range in [
            "0 -1",
            "100 -5 REV",
            "5 4",
            "-50 50 BYSCORE",
            "(50 -inf BYSCORE REV LIMIT 10 900",
            "- + BYLEX",
        ] {
            compare(
                shard_count,
                &prepare,
                &format!("ZRANGESTORE to src {range}"),
            );
            compare(
                shard_count,
                &prepare,
                &format!("ZRANGESTORE src src {range}"),
            );
        }
    }
}

#[test]
fn what_sort_stores_is_what_the_command_stores() {
    for shard_count in [1, 4] {
        for data_type in ["numbers", "list", "zset", "set"] {
            let prepare = |cli: &mut Terminal| {
                let mut random = Random::new(4);
                fill(cli, &mut random, "src", data_type, 2_500);
                cli.run("ZADD to 1 a");
            };
            for options in [
                "",
                " DESC LIMIT 10 700",
                " ALPHA",
                " ALPHA DESC",
                " LIMIT 5 0",
                " BY nosort",
                " BY nosort DESC LIMIT 30 1800",
                " BY nosort ALPHA",
            ] {
                // Names of members are no numbers: then the reply is an error, in both ways.
                compare(
                    shard_count,
                    &prepare,
                    &format!("SORT src{options} STORE to"),
                );
                compare(
                    shard_count,
                    &prepare,
                    &format!("SORT src{options} STORE src"),
                );
            }
        }
    }
}

#[test]
fn what_a_command_does_itself_is_not_built_aside() {
    let mut cli = Terminal::new();
    let mut random = Random::new(5);
    fill(&mut cli, &mut random, "src", "list", 2_000);
    fill(&mut cli, &mut random, "due", "set", 2_000);
    cli.run("SADD due member:1");
    cli.check("SEXPIRE due 100 MEMBERS 1 member:1", "1) (integer) 1");
    cli.run("SET text v");
    cli.run("XADD stream * f v");
    for line in [
        "SORT src",
        "SORT src BY w_* STORE to",
        "SORT src GET # STORE to",
    ] {
        assert!(Building::try_begin(&cli, line).is_none(), "{line}");
    }
    for line in [
        "SORT none STORE to",
        "SORT text STORE to",
        "SORT due ALPHA STORE to",
        "COPY none to",
        "COPY stream to",
        "COPY text to",
        "ZUNIONSTORE to 2 due src",
        "ZUNIONSTORE to 1 due",
        "ZINTERSTORE to 2 none text",
        "ZRANGESTORE to src 0 -1",
        "ZRANGESTORE to none 0 -1",
    ] {
        let (built, slices) = Building::begin(&cli, line).go_on(&mut cli);
        assert!(built.is_none() && slices == 1, "{line}");
        check_nothing_is_watched(&cli);
    }
}

/// Requests with the type of their source.
const LINES: [(&str, &str); 12] = [
    ("set", "COPY src to"),
    ("zset", "COPY src to"),
    ("hash", "COPY src to"),
    ("list", "COPY src to"),
    ("zset", "ZUNIONSTORE to 2 src other"),
    ("zset", "ZINTERSTORE to 2 src src"),
    ("set", "ZDIFFSTORE to 2 src other"),
    ("zset", "ZRANGESTORE to src 0 -1"),
    ("list", "SORT src STORE to"),
    ("numbers", "SORT src STORE to"),
    ("zset", "SORT src ALPHA STORE to"),
    ("list", "SORT src BY nosort DESC STORE to"),
];

/// Returns a request that adds an element, which has not been there, to a collection of a type.
fn addition(data_type: &str, number: usize) -> String {
    match data_type {
        "set" => format!("SADD src new:{number}"),
        "numbers" => format!("SADD src {number}.0625"),
        "zset" => format!("ZADD src 1 new:{number}"),
        "hash" => format!("HSET src new:{number} v"),
        _ => format!("LPUSH src {number}"),
    }
}

#[test]
fn a_source_that_changes_is_noticed() {
    for (data_type, line) in LINES {
        let added = addition(data_type, 1);
        for (change, spoils) in [
            (added.as_str(), true),
            ("DEL src", true),
            ("SET src v", true),
            ("RENAME src elsewhere", true),
            ("PEXPIREAT src 1", true),
            ("SWAPDB 0 1", true),
            ("SET to v", false),
            ("SADD elsewhere x", false),
        ] {
            for before_end in [true, false] {
                let mut cli = Terminal::with(4, Protocol::Resp2);
                let mut random = Random::new(6);
                fill(&mut cli, &mut random, "src", data_type, 2_500);
                let mut building = Building::begin(&cli, line);
                assert_eq!(building.read(&mut cli), SliceResult::More, "{line}");
                while !before_end && building.read(&mut cli) == SliceResult::More {}
                cli.run(change);
                let built = match before_end {
                    true => building.go_on(&mut cli).0,
                    false => building.finish(&mut cli),
                };
                assert_eq!(built.is_none(), spoils, "{line}: {change}");
                check_nothing_is_watched(&cli);
                // The command itself does what it always did.
                let mut direct = Terminal::with(4, Protocol::Resp2);
                let mut random = Random::new(6);
                fill(&mut direct, &mut random, "src", data_type, 2_500);
                direct.run(change);
                let reply = match built {
                    Some(built) => cli.run_with(line, built),
                    None => cli.run(line),
                };
                assert_eq!(reply, direct.run(line), "{line}: {change}");
                assert_eq!(state(&mut cli), state(&mut direct), "{line}: {change}");
            }
        }
    }
}

#[test]
fn a_transaction_that_is_rolled_back_between_slices_does_no_harm() {
    for (data_type, line) in LINES {
        let mut cli = Terminal::new();
        let mut random = Random::new(11);
        fill(&mut cli, &mut random, "src", data_type, 2_500);
        let mut building = Building::begin(&cli, line);
        assert_eq!(building.read(&mut cli), SliceResult::More, "{line}");
        cli.engines[0].begin_attempt();
        for number in 0..3_000 {
            cli.run(&addition(data_type, number));
        }
        cli.engines[0].undo_attempt();
        let built = building.go_on(&mut cli).0;
        let mut direct = Terminal::new();
        let mut random = Random::new(11);
        fill(&mut direct, &mut random, "src", data_type, 2_500);
        let reply = match built {
            Some(built) => cli.run_with(line, built),
            // The nodes of a list may begin with other elements than before.
            None if data_type == "list" => cli.run(line),
            None => panic!("{line}: nothing has changed"),
        };
        assert_eq!(reply, direct.run(line), "{line}");
        assert_eq!(state(&mut cli), state(&mut direct), "{line}");
        check_nothing_is_watched(&cli);
    }
}

#[test]
fn a_value_that_is_not_stored_is_left_to_be_freed() {
    let mut cli = Terminal::new();
    let mut random = Random::new(12);
    fill(&mut cli, &mut random, "src", "set", 2_500);
    cli.run("SET to v");
    let built = Building::begin(&cli, "COPY src to").go_on(&mut cli).0;
    let built = built.expect("nothing has changed");
    assert_eq!(cli.run_with("COPY src to", built), "(integer) 0");
    cli.check("GET to", "\"v\"");
    for (data_type, line) in LINES {
        let mut cli = Terminal::new();
        fill(&mut cli, &mut random, "src", data_type, 2_500);
        let mut building = Building::begin(&cli, line);
        assert_eq!(building.read(&mut cli), SliceResult::More, "{line}");
        cli.run("DEL src");
        assert_eq!(building.read(&mut cli), SliceResult::Unsuitable, "{line}");
        check_nothing_is_watched(&cli);
        assert_eq!(cli.run(line), Terminal::new().run(line), "{line}");
    }
}
