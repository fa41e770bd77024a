//! Tests of `filter`.

use super::*;
use basalt_core::base::hash::HashSeed;
use basalt_engine::serial::commands::command;

const SEED: HashSeed = HashSeed { k0: 1, k1: 2 };

fn stream(lines: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in lines {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        command(&mut bytes, &words);
    }
    bytes
}

fn passed(filter: &mut MigrationLogFilter, lines: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    assert_eq!(filter.pass(&stream(lines), &mut out), Ok(()));
    out
}

/// Returns two keys with the hash tag `t` in the order of the walk, and the position of the second key.
fn two_keys() -> (String, String, u64) {
    let place = |number: u32| {
        let name = format!("{{t}}{number}");
        (walk_position(SEED.hash(name.as_bytes())), name)
    };
    let mut all: Vec<(u64, String)> = (0..8).map(place).collect();
    all.sort();
    (all[0].1.clone(), all[7].1.clone(), all[4].0)
}

#[test]
fn what_the_other_node_does_not_have_yet_is_left_out_and_what_is_torn_comes_again() {
    let slot = hash::slot(b"t");
    let mut filter = MigrationLogFilter::new(Router::new(SEED, 4), [slot].into_iter().collect());
    let (early, late, middle) = two_keys();
    let lines = |key: &str| [format!("SET {key} 1"), format!("INCR {key}")];
    let [set_early, _] = lines(&early);
    let [set_late, incr_late] = lines(&late);
    assert!(passed(&mut filter, &[&set_early]).is_empty(), "not begun");
    filter.note_walked(slot, Some((0, middle)));
    let passes = [
        "SELECT 0",
        &set_early,
        "SET other 1",
        &set_late,
        "PUBLISH {t}a b",
    ];
    assert_eq!(passed(&mut filter, &passes), stream(&[&set_early]));
    let rename = format!("RENAME {late} {early}");
    assert!(passed(&mut filter, &[&rename]).is_empty());
    assert_eq!(filter.torn(9), [(0, early.as_bytes().to_vec())]);
    assert!(passed(&mut filter, &[&set_early]).is_empty(), "torn");
    filter.note_mended(&[(0, early.as_bytes().to_vec())]);
    assert_eq!(filter.torn_bytes(), 0);
    assert_eq!(passed(&mut filter, &[&set_early]), stream(&[&set_early]));
    filter.note_walked(slot, None);
    let both = ["MULTI", &set_late, "SET other 1", &incr_late, "EXEC"];
    let sent = stream(&["MULTI", &set_late, &incr_late, "EXEC"]);
    assert_eq!(passed(&mut filter, &both), sent);
    let one = ["MULTI", &set_late, "SET other 1", "EXEC"];
    assert_eq!(passed(&mut filter, &one), stream(&[&set_late]));
    // A script may access several slots: the target does not have the other key.
    let across = format!("SUNIONSTORE {late} other");
    assert!(passed(&mut filter, &[&across]).is_empty());
    assert_eq!(filter.torn(9).len(), 1);
    let mut out = Vec::new();
    let flush = stream(&["FLUSHALL"]);
    assert_eq!(filter.pass(&flush, &mut out), Err(Flushed));
}

#[test]
fn each_database_is_walked_by_itself_and_named_where_it_changes() {
    let slot = hash::slot(b"t");
    let mut filter = MigrationLogFilter::new(Router::new(SEED, 4), [slot].into_iter().collect());
    let (early, late, middle) = two_keys();
    filter.note_walked(slot, Some((1, middle)));
    let [set_early, set_late] = [&early, &late].map(|key| format!("SET {key} 1"));
    let changes = [
        &set_late, "SELECT 1", &set_early, &set_late, "SELECT 2", &set_early, "SELECT 0",
        &set_early,
    ];
    let sent = [&set_late, "SELECT 1", &set_early, "SELECT 0", &set_early];
    assert_eq!(passed(&mut filter, &changes), stream(&sent));
    // Commands from sent to unsent databases, and back; and between sent databases.
    for other in [
        format!("MOVE {early} 2"),
        format!("COPY {early} {late} DB 1"),
    ] {
        assert!(passed(&mut filter, &[&other]).is_empty());
        let mut torn = Vec::new();
        while let [first, ..] = &filter.torn(9)[..] {
            filter.note_mended(std::slice::from_ref(first));
            torn.push(first.clone());
        }
        assert!(torn.contains(&(0, early.as_bytes().to_vec())), "{torn:?}");
        assert!(!torn.iter().any(|(db, _)| *db == 2), "{torn:?}");
    }
    let within = format!("MOVE {early} 1");
    assert_eq!(passed(&mut filter, &[&within]), stream(&[&within]));
    let both = ["MULTI", &set_early, "SELECT 1", &set_early, "EXEC"];
    assert_eq!(passed(&mut filter, &both), stream(&both));
}

#[test]
fn notes_go_with_the_key_that_they_are_about() {
    let slot = hash::slot(b"t");
    let mut filter = MigrationLogFilter::new(Router::new(SEED, 4), [slot].into_iter().collect());
    let (early, late, middle) = two_keys();
    filter.note_walked(slot, Some((0, middle)));
    let note = |words: &str| format!("COMMAND INFO basalt:note {words}");
    let fence = |key: &str| note(&format!("FENCE 5 {key} 0123456789abcdef"));
    let tags = note(&format!("TAG ADD {early} {late} other"));
    let set = format!("SET {early} 1");
    let notes = [
        &tags,
        &fence(&late),
        &fence("other"),
        // The target creates such records itself.
        &note("FENCE 5"),
        &note(&format!("TAG INVALIDATE {early}")),
        &note(&format!("NEW {early}")),
        &note(&format!("LSTALE {early} 5")),
        "MULTI",
        &set,
        &fence(&early),
        "EXEC",
    ];
    let sent = [
        &tags,
        &note(&format!("LSTALE {early} 5")),
        "MULTI",
        &set,
        &fence(&early),
        "EXEC",
    ];
    assert_eq!(passed(&mut filter, &notes), stream(&sent));
    let both = ["MULTI", &fence(&early), &fence(&late), "EXEC"];
    assert!(passed(&mut filter, &both).is_empty());
    assert_eq!(filter.torn(9), [(0, early.into_bytes())]);
}

#[test]
fn words_are_taken_as_they_come_whole() {
    let mut input =
        b"+OK\r\n-ERR why\r\n*3\r\n$7\r\nCLUSTER\r\n$9\r\nSYNCSLOTS\r\n$3\r\nack\r\n*3\r\n$7\r"
            .to_vec();
    let mut word = || Answer::take(&mut input).map(|answer| answer.map(super::word));
    assert_eq!(word(), Ok(Some(Ok("OK".to_owned()))));
    assert_eq!(word(), Ok(Some(Err("ERR why".to_owned()))));
    assert_eq!(word(), Ok(Some(Ok("ACK".to_owned()))));
    assert_eq!(word(), Ok(None));
}
