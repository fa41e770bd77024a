//! Results of set operations that are built aside: they are those of the commands, and only of sources that stay.

use std::collections::BTreeSet;

use crate::command::args::RoutedKey;
use crate::command::aside::{Aside, AsideContext, SliceResult};
use crate::command::testing::{Terminal, with_request};
use basalt_core::base::hash::slot;
use basalt_core::resp::reply::Protocol;
use basalt_core::structures::entry::{Entry, EntryRef};
use basalt_engine::value::Object;
use basalt_engine::value::object::entry_bytes;
use basalt_engine::value::set::SetRef;
use basalt_engine::{Engine, Key, Now};

/// A value that is being built aside, and the shards of its command.
struct Building {
    aside: Aside,
    shards: Vec<u16>,
}

impl Building {
    fn begin(cli: &Terminal, line: &str) -> Building {
        let (seed, mask) = (cli.engines[0].seed(), cli.engines.len() as u16 - 1);
        let route = |at: usize, key: &[u8]| RoutedKey {
            hash: seed.hash(key),
            argument: at as u32,
            shard: slot(key) & mask,
            engine_index: 0,
        };
        let mut begun = None;
        with_request(line, route, |command, args| {
            let mut shards: Vec<u16> = args.keys().iter().map(|key| key.shard).collect();
            shards.sort_unstable();
            shards.dedup();
            let context = AsideContext {
                db: 0,
                config: &cli.config,
                seed,
            };
            let begin = command.builds_aside.expect("it builds aside");
            let aside = begin(args, &context);
            begun = Some(Building { aside, shards });
        });
        begun.expect("it was called")
    }

    fn read(&mut self, cli: &mut Terminal) -> SliceResult {
        let result = with(cli, &self.shards, |engines, now| {
            self.aside.read(engines, now)
        });
        if result != SliceResult::Unsuitable {
            self.aside.add();
        }
        result
    }

    fn finish(self, cli: &mut Terminal) -> Option<Entry<Object>> {
        with(cli, &self.shards, |engines, now| {
            self.aside.finish(engines, now)
        })
    }

    /// Reads all that is left. Returns the value, if it is still valid, and the number of slices.
    fn go_on(mut self, cli: &mut Terminal) -> (Option<Entry<Object>>, usize) {
        for slices in 1.. {
            match self.read(cli) {
                SliceResult::More => {}
                SliceResult::Whole => return (self.finish(cli), slices),
                SliceResult::Unsuitable => return (None, slices),
            }
        }
        unreachable!("sets have an end")
    }
}

fn with<R>(
    cli: &mut Terminal,
    shards: &[u16],
    run: impl FnOnce(&mut [&mut Engine], Now) -> R,
) -> R {
    let now = Now {
        unix_ms: cli.now_ms,
    };
    let mut engines: Vec<&mut Engine> = cli
        .engines
        .iter_mut()
        .filter(|engine| shards.contains(&engine.shard))
        .collect();
    run(&mut engines, now)
}

fn members(entry: EntryRef<'_, Object>) -> BTreeSet<Vec<u8>> {
    let mut members = BTreeSet::new();
    SetRef::of(entry, 0).for_each(|member| {
        member.with_bytes(|member| members.insert(member.to_vec()));
    });
    members
}

fn fill(cli: &mut Terminal, key: &str, numbers: std::ops::Range<usize>, prefix: &str) {
    let numbers: Vec<usize> = numbers.collect();
    for part in numbers.chunks(500) {
        let names = part.iter().map(|number| format!(" {prefix}{number}"));
        cli.run(&format!("SADD {key}{}", names.collect::<String>()));
    }
}

fn check_nothing_is_watched(cli: &Terminal) {
    assert!(cli.engines.iter().all(|engine| engine.watches.is_empty()));
}

#[test]
fn what_is_built_aside_is_what_the_command_stores() {
    for shard_count in [1, 4] {
        let mut cli = Terminal::with(shard_count, Protocol::Resp2);
        fill(&mut cli, "large", 0..5_000, "member:");
        fill(&mut cli, "half", 2_500..7_500, "member:");
        fill(&mut cli, "numbers", 0..3_000, "");
        fill(&mut cli, "few", 0..100, "member:");
        fill(&mut cli, "digits", 0..300, "");
        for line in [
            "SUNIONSTORE to large",
            "SUNIONSTORE to large half none numbers few digits large",
            "SUNIONSTORE to large to",
            "SINTERSTORE to large half",
            "SINTERSTORE to half large half few",
            "SINTERSTORE to large numbers",
            "SDIFFSTORE to large none",
            "SDIFFSTORE to large half",
            "SDIFFSTORE to numbers digits",
            "SDIFFSTORE to few half",
        ] {
            let building = Building::begin(&cli, line);
            let built = building.go_on(&mut cli).0;
            let built = built.expect("nothing has changed");
            check_nothing_is_watched(&cli);
            let stored = cli.run(line);
            let to = Key::new(b"to", cli.engines[0].seed());
            let entry = cli.engines.iter().find_map(|engine| engine.peek(0, &to));
            let Some(entry) = entry else {
                assert_eq!(SetRef::of(built.view(), 0).len(), 0, "{line}");
                continue;
            };
            assert_eq!(members(built.view()), members(entry), "{line}");
            assert_eq!(built.view().kind(), entry.kind(), "{line}: the encoding");
            let count = members(entry).len();
            assert_eq!(stored, format!("(integer) {count}"));
            let (bytes, usual) = (entry_bytes(built.view()), entry_bytes(entry));
            assert!(bytes.abs_diff(usual) * 10 <= usual, "{bytes} of {usual}");
        }
        let (_, slices) = Building::begin(&cli, "SUNIONSTORE to large").go_on(&mut cli);
        assert!(slices >= 5_000 / 600, "{slices} slices of 5,000 members");
    }
}

#[test]
fn what_a_command_does_better_itself_is_not_built_aside() {
    let mut cli = Terminal::new();
    fill(&mut cli, "large", 0..5_000, "member:");
    fill(&mut cli, "due", 0..5_000, "member:");
    fill(&mut cli, "few", 0..100, "member:");
    cli.check("SEXPIRE due 100 MEMBERS 1 member:7", "1) (integer) 1");
    cli.run("SET text v");
    let many = format!("SUNIONSTORE to{}", " large".repeat(40));
    for line in [
        "SUNIONSTORE to large text",
        "SUNIONSTORE to large due",
        "SINTERSTORE to large none",
        "SDIFFSTORE to none large",
        "SDIFFSTORE to large few large",
        "SDIFFSTORE to large few few few few",
        &many,
    ] {
        let (built, slices) = Building::begin(&cli, line).go_on(&mut cli);
        assert!(built.is_none() && slices == 1, "{line}");
        check_nothing_is_watched(&cli);
    }
}

#[test]
fn a_source_that_changes_meanwhile_is_noticed() {
    const LINE: &str = "SUNIONSTORE to large other none";
    for (change, spoils) in [
        ("SADD large x", true),
        ("SREM other other:5", true),
        ("SPOP large", true),
        ("SMOVE large to member:7", true),
        ("DEL large", true),
        ("SET other v", true),
        ("RENAME large elsewhere", true),
        ("RENAME to large", true),
        ("SADD none x", true),
        ("SEXPIRE other 100 MEMBERS 1 other:5", true),
        ("PEXPIREAT large 1", true),
        ("TAG INVALIDATE tag", true),
        ("FLUSHALL", true),
        ("SWAPDB 0 1", true),
        ("SADD to x", false),
        ("SADD large member:1", false),
        ("SMEMBERS large", false),
        ("SADD elsewhere x", false),
        ("DEL elsewhere none", false),
    ] {
        for before_end in [true, false] {
            for shard_count in [1, 4] {
                let mut cli = Terminal::with(shard_count, Protocol::Resp2);
                fill(&mut cli, "large", 0..3_000, "member:");
                fill(&mut cli, "other", 0..2_000, "other:");
                cli.run("TAG ADD other tag");
                cli.run("SADD to 1");
                let mut building = Building::begin(&cli, LINE);
                assert_eq!(building.read(&mut cli), SliceResult::More);
                while !before_end && building.read(&mut cli) == SliceResult::More {}
                cli.run(change);
                let built = match before_end {
                    true => building.go_on(&mut cli).0,
                    false => building.finish(&mut cli),
                };
                assert_eq!(built.is_none(), spoils, "{change}");
                check_nothing_is_watched(&cli);
            }
        }
    }
}

#[test]
fn a_source_that_expires_meanwhile_is_noticed() {
    let mut cli = Terminal::new();
    fill(&mut cli, "large", 0..3_000, "member:");
    cli.run("PEXPIRE large 1000");
    let building = Building::begin(&cli, "SUNIONSTORE to large");
    cli.advance_ms(500);
    assert!(building.go_on(&mut cli).0.is_some());
    let mut building = Building::begin(&cli, "SUNIONSTORE to large");
    assert_eq!(building.read(&mut cli), SliceResult::More);
    cli.advance_ms(600);
    assert!(building.go_on(&mut cli).0.is_none());
    let key = Key::new(b"large", cli.engines[0].seed());
    assert!(
        cli.engines[0].peek(0, &key).is_some(),
        "looking deletes nothing"
    );
    check_nothing_is_watched(&cli);
}
