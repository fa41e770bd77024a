//! Estimates compared with planted prefixes, and their bounds.

use std::sync::Arc;

use super::*;
use crate::state::Service;
use crate::telemetry::prefix_uses::Counts;
use crate::telemetry::{COUNTING, Telemetry};
use basalt_commands::config::Config;
use basalt_engine::keyspace::Deadline;
use basalt_engine::{Key, Now};

fn service(shards: usize) -> Service {
    crate::start::build(Arc::new(Config::default()), shards, Telemetry::new(None, 2))
}

fn rule(delimiter: &[u8], depth: u32) -> Rule {
    let delimiter = delimiter.to_vec();
    Rule { delimiter, depth }
}

/// Stores a string and returns the bytes of its entry.
fn put(service: &Service, name: &str, bytes: usize) -> f64 {
    let shards = service.all_published.len();
    let shard = name.bytes().map(usize::from).sum::<usize>() % shards;
    let mut engine = service.shards.try_take(shard as u16).expect("it is free");
    let key = Key::new(name.as_bytes(), engine.seed());
    let mut keyspace = engine.keyspace(0, Now { unix_ms: 1_000 });
    keyspace.put_text(&key, None, &vec![b'v'; bytes], Deadline::Clear);
    let place = keyspace.find_write(&key).expect("it was just put there");
    basalt_engine::value::object::entry_bytes(keyspace.entry(place)) as f64
}

#[test]
fn a_prefix_has_as_many_parts_as_the_rule_says_and_the_key_has() {
    for (delimiter, depth, key, expected) in [
        (&b":"[..], 1, &b"user:1:name"[..], &b"user:"[..]),
        (b":", 2, b"user:1:name", b"user:1:"),
        (b":", 9, b"user:1:name", b"user:1:"),
        (b":", 1, b"plain", b""),
        (b":", 1, b"", b""),
        (b":", 1, b":x", b":"),
        (b":", 2, b"::x", b"::"),
        (b"--", 1, b"a-b--c", b"a-b--"),
        (b"--", 1, b"a---", b"a--"),
        (b"long delimiter", 1, b"key", b""),
        (b"", 1, b"a:b", b""),
    ] {
        assert_eq!(rule(delimiter, depth).prefix_of(key), expected, "{key:?}");
    }
    let long = [&[b'x'; 500][..], b":y"].concat();
    assert_eq!(rule(b":", 1).prefix_of(&long), b"");
    let long = [&[b'x'; NAME_BYTES_MAX - 2][..], b"--y"].concat();
    assert_eq!(rule(b"--", 1).prefix_of(&long), &long[..NAME_BYTES_MAX]);
}

/// Returns the number of estimates whose true value lies outside their error.
fn misses(estimates: &[SampledEstimate], truth: f64) -> usize {
    let is_wrong = |estimate: &&SampledEstimate| (estimate.value - truth).abs() > estimate.error;
    estimates.iter().filter(is_wrong).count()
}

#[test]
fn what_planted_prefixes_take_lies_within_the_errors() {
    let service = service(8);
    let mut truth: HashMap<&str, (f64, f64)> = HashMap::new();
    for number in 0..20_000 {
        let (prefix, bytes) = match number % 20 {
            0..12 => ("user:", 60),
            12..18 => ("page:", 400 + number % 700),
            18 => ("cart:", 1_000),
            _ => ("", 20),
        };
        let taken = put(&service, &format!("{prefix}{number}"), bytes);
        let of = truth.entry(prefix).or_default();
        *of = (of.0 + 1.0, of.1 + taken);
    }
    for number in 0..12 {
        let taken = put(&service, &format!("blob:{number}"), 100_000);
        let of = truth.entry("blob:").or_default();
        *of = (of.0 + 1.0, of.1 + taken);
    }
    let reports: Vec<Report> = (0..20).map(|_| report(&service, 20)).collect();
    for (prefix, (keys, bytes)) in &truth {
        let found: Vec<&Prefix> = reports
            .iter()
            .flat_map(|report| &report.prefixes)
            .filter(|found| found.name == prefix.as_bytes())
            .collect();
        assert_eq!(found.len(), reports.len(), "{prefix}");
        let of_keys: Vec<SampledEstimate> = found.iter().map(|found| found.keys).collect();
        let of_bytes: Vec<SampledEstimate> = found.iter().map(|found| found.bytes).collect();
        assert!(misses(&of_keys, *keys) <= 2, "{prefix} {keys} {of_keys:?}");
        assert!(
            misses(&of_bytes, *bytes) <= 2,
            "{prefix} {bytes} {of_bytes:?}"
        );
        // An error that covered everything would be useless.
        let useful = 0.1 * keys + 200.0;
        assert!(
            of_keys.iter().all(|keys| keys.error < useful),
            "{of_keys:?}"
        );
    }
    for report in &reports {
        assert!((4_096..=4_096 + 8).contains(&report.drawn), "{report:?}");
        assert_eq!(report.prefixes.len(), truth.len());
    }
    // All large values are tracked and counted exactly, so their figures have no sampling error.
    let blobs = reports[0]
        .prefixes
        .iter()
        .find(|found| found.name == b"blob:");
    assert_eq!(blobs.map(|blobs| blobs.keys.value), Some(12.0));
}

#[test]
fn a_million_prefixes_take_a_fixed_number_of_places_and_hide_no_large_one() {
    let prefixes = Prefixes::default();
    prefixes.configure(":", 1);
    let mut uses = Uses::default();
    let reads = |reads| Counts {
        reads,
        ..Counts::default()
    };
    for number in 0..1_000_000u32 {
        prefixes.count(&mut uses, format!("p{number}:x").as_bytes(), reads(1));
        if number % 20 == 0 {
            prefixes.count(&mut uses, b"planted:x", reads(1));
        }
    }
    assert_eq!(uses.iter().count(), 256);
    let (_, counts, excess) = uses
        .iter()
        .find(|(name, ..)| **name == *b"planted:")
        .expect("it has a place");
    assert!(counts.reads <= 50_000 && counts.reads + excess >= 50_000);
    assert!(excess <= 1_050_000 / 256);
}

#[test]
fn many_prefixes_in_the_store_are_as_many_as_are_drawn() {
    let service = service(4);
    for number in 0..30_000 {
        put(&service, &format!("p{number}:x"), 10);
    }
    let found = report(&service, 10);
    assert_eq!(found.prefixes.len(), 10);
    assert!(found.drawn <= 4_096 + 4);
    let drawn = draw::draw(&service, &rule(b":", 1));
    assert!(drawn.of.len() <= 4_100);
    let error = found.prefixes[0].keys.error;
    assert!((7.0..60.0).contains(&error), "{error}");
}

#[test]
fn uses_are_rates_over_a_window_in_which_what_is_old_counts_for_less() {
    let _alone = COUNTING.lock();
    let service = service(1);
    let Telemetry {
        prefixes, hot_keys, ..
    } = &service.telemetry;
    hot_keys.configure(10);
    prefixes.configure(":", 1);
    let thread = counters::local();
    let count = |name: &str, counts: Counts| {
        let mut lists = thread.hot.lock();
        let uses = &mut lists.get_or_insert_default().by_prefix;
        prefixes.count(uses, name.as_bytes(), counts);
    };
    for number in 0..100 {
        let (hits, misses) = if number % 4 == 0 { (0, 10) } else { (10, 0) };
        count(
            "user:1",
            Counts {
                reads: 10,
                hits,
                misses,
                ..Counts::default()
            },
        );
    }
    count(
        "cart:1",
        Counts {
            writes: 50,
            ..Counts::default()
        },
    );
    let find = |name: &str| {
        let now_ms = clock::unix_ms();
        *prefixes.window.lock() = Window {
            past_ms: 0,
            since_ms: now_ms - 10_000,
        };
        let found = report(&service, 10);
        let mut prefixes = found.prefixes.into_iter();
        prefixes
            .find(|prefix| prefix.name == name.as_bytes())
            .expect("it was used")
    };
    let user = find("user:");
    let near = |estimate: Option<SampledEstimate>, value: f64| {
        let estimate = estimate.expect("it is known");
        assert!(
            (estimate.value - value).abs() < 0.02 * value,
            "{estimate:?}"
        );
        assert!(
            estimate.error > 0.0 && estimate.error < value,
            "{estimate:?}"
        );
    };
    near(user.reads_per_s, 100.0);
    near(user.hit_percent, 75.0);
    assert_eq!(user.writes_per_s.map(|rate| rate.value), Some(0.0));
    let cart = find("cart:");
    assert!(cart.hit_percent.is_none());
    let writes = cart.writes_per_s.expect("samples are taken");
    assert!((4.9..5.1).contains(&writes.value), "{writes:?}");
    // Half of ten seconds and half of the uses counted in them give the same rate.
    let now_ms = clock::unix_ms();
    *prefixes.window.lock() = Window {
        past_ms: 0,
        since_ms: now_ms - AGING_MS,
    };
    prefixes.tick(now_ms);
    assert_eq!(prefixes.window.lock().at(now_ms), AGING_MS / 2);
    near(find("user:").reads_per_s, 50.0);
    // Another rule resets the counts.
    prefixes.configure("/", 1);
    assert!(report(&service, 10).prefixes.is_empty());
    hot_keys.configure(0);
    count("a/1", Counts::default());
    put(&service, "a/1", 5);
    let found = report(&service, 10);
    assert_eq!(found.prefixes[0].name, b"a/");
    assert_eq!(found.prefixes[0].reads_per_s, None);
    prefixes.configure("", 1);
    assert!(report(&service, 10).prefixes.is_empty());
}
