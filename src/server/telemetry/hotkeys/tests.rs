//! Tests of `hotkeys`.

use super::*;
use basalt_core::base::hash::HashSeed;

fn request() -> HotKeysRequest {
    HotKeysRequest {
        cpu: true,
        net: true,
        count: 3,
        duration_s: 0,
        sample: 1,
    }
}

fn note(hot: &HotKeys, name: &str, duration_ns: u64, bytes: u64) {
    let thread = counters::local();
    hot.prepare(thread);
    if thread.takes_sample() {
        let key = Key::new(name.as_bytes(), HashSeed { k0: 1, k1: 2 });
        hot.count_anew(thread);
        hot.add_keys(thread, std::iter::once(key), duration_ns, bytes);
    }
}

#[test]
fn commands_that_run_together_are_chosen_as_if_they_ran_one_by_one() {
    let _counting = super::super::COUNTING.lock();
    let hot = HotKeys::default();
    hot.configure(1);
    let thread = counters::local();
    hot.prepare(thread);
    thread.until_sample.set(0);
    assert_eq!(hot.choose(thread, 3), [0, 1, 2]);
    thread.until_sample.set(5);
    assert_eq!(hot.choose(thread, 3), [] as [usize; 0]);
    assert_eq!(thread.until_sample.get(), 2);
    assert_eq!(hot.choose(thread, 3), [2]);
    assert_eq!(hot.choose(thread, 0), [] as [usize; 0]);
}

#[test]
fn a_session_sees_the_keys_that_were_hot_while_it_ran() {
    let _counting = super::super::COUNTING.lock();
    let hot = HotKeys::default();
    assert!(hot.report(1_000).is_none() && !hot.stop(1_000));
    note(&hot, "before", 5_000, 1);
    assert!(hot.start(request(), 1_000));
    assert!(!hot.start(request(), 1_001) && !hot.reset(1_001));
    for round in 0..100 {
        note(&hot, "slow", 9_000, 10);
        note(&hot, "large", 1_000, 500);
        note(&hot, &format!("key{round}"), 1_000, 10);
    }
    let report = hot.report(1_500).expect("there is a session");
    assert!(report.is_active);
    let by_us = report.by_us.expect("time was asked for");
    assert_eq!((by_us.len(), &by_us[0]), (3, &(b"slow".to_vec(), 900)));
    let by_bytes = report.by_bytes.expect("bytes were asked for");
    assert_eq!(by_bytes[0], (b"large".to_vec(), 50_000));
    assert!(hot.stop(2_000));
    note(&hot, "after", 1_000_000, 1_000_000);
    let report = hot.report(9_000).expect("it is kept");
    assert_eq!((report.is_active, report.duration_ms), (false, 1_000));
    assert_eq!(
        report.by_us.map(|keys| keys[0].0.clone()),
        Some(b"slow".to_vec())
    );
    assert!(hot.reset(9_000) && hot.report(9_000).is_none());
}

#[test]
fn a_session_ends_when_its_time_is_over() {
    let _counting = super::super::COUNTING.lock();
    let hot = HotKeys::default();
    let short = HotKeysRequest {
        duration_s: 1,
        cpu: false,
        ..request()
    };
    assert!(hot.start(short, 1_000));
    hot.tick(1_999);
    assert!(hot.report(1_999).is_some_and(|report| report.is_active));
    hot.tick(2_000);
    let report = hot.report(5_000).expect("it is kept");
    assert_eq!((report.is_active, report.duration_ms), (false, 1_000));
    assert!(report.by_us.is_none() && report.by_bytes.is_some());
    assert!(hot.start(request(), 6_000) && hot.stop(6_000) && hot.reset(6_000));
}

#[test]
fn samples_stand_for_the_commands_between_them() {
    let _counting = super::super::COUNTING.lock();
    let hot = HotKeys::default();
    hot.configure(16);
    let before = hot.top(1).commands;
    for round in 0..64_000 {
        note(
            &hot,
            if round % 4 == 0 { "planted" } else { "other" },
            100,
            10,
        );
    }
    let top = hot.top(10);
    let weight = |name: &[u8]| {
        let found = top.by_commands.iter().find(|(key, _)| key == name);
        found.map_or(0, |(_, weight)| *weight)
    };
    assert!(
        (54_000..74_000).contains(&(top.commands - before)),
        "{top:?}"
    );
    assert!((12_000..20_000).contains(&weight(b"planted")), "{top:?}");
    hot.configure(0);
    note(&hot, "other", 100, 10);
    let before = hot.top(1).commands;
    for _ in 0..1_000 {
        note(&hot, "other", 100, 10);
    }
    assert_eq!(hot.top(1).commands, before);
}

#[test]
fn keys_that_have_a_place_by_chance_are_none_of_the_hottest() {
    let _counting = super::super::COUNTING.lock();
    let hot = HotKeys::default();
    hot.configure(1);
    for round in 0..20_000 {
        note(&hot, &format!("chance{round}"), 100, 10);
        let often = [("often1", 8), ("often2", 9), ("often3", 10)];
        for (name, _) in often.iter().filter(|(_, every)| round % every == 0) {
            note(&hot, name, 100, 10);
        }
    }
    let top = hot.top(50).by_commands;
    let names = top.iter().map(|(name, _)| String::from_utf8_lossy(name));
    let names: Vec<_> = names
        .filter(|name| name.starts_with("often") || name.starts_with("chance"))
        .collect();
    assert_eq!(names, ["often1", "often2", "often3"], "{top:?}");
    assert!(top.is_sorted_by(|one, other| one.1 >= other.1), "{top:?}");
}

#[test]
fn uses_are_told_of_keys_that_were_sampled_several_times() {
    let _counting = super::super::COUNTING.lock();
    let hot = HotKeys::default();
    hot.configure(1);
    let (often, once) = ("counted-often", "counted-once");
    (0..50).for_each(|_| note(&hot, often, 100, 10));
    note(&hot, once, 100, 10);
    let counts: HashMap<u64, u64> = hot.counts().into_iter().collect();
    let of = |name: &str| {
        let key = Key::new(name.as_bytes(), HashSeed { k0: 1, k1: 2 });
        counts.get(&key.hash).copied()
    };
    assert!(
        of(often).is_some_and(|uses| (25..=50).contains(&uses)),
        "{counts:?}"
    );
    assert_eq!(of(once), None);
}

#[test]
fn keys_are_shown_as_people_can_read_them() {
    assert_eq!(shown(b"a\"b\n"), "\"a\\\"b\\n\"");
    assert!(shown(&[b'x'; 100]).ends_with("\"…"));
}
