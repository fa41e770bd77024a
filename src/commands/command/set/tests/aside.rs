//! Results of set operations that are built aside: they are those of the commands, and only of sources that stay.

use std::collections::BTreeSet;

use crate::command::aside::SliceResult;
use crate::command::testing::Terminal;
use crate::command::testing::building::{Building, check_nothing_is_watched};
use basalt_core::resp::reply::Protocol;
use basalt_core::structures::entry::EntryRef;
use basalt_engine::Key;
use basalt_engine::value::Object;
use basalt_engine::value::object::entry_bytes;
use basalt_engine::value::set::SetRef;

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
            let built = built.expect("nothing has changed").expect("no error");
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
