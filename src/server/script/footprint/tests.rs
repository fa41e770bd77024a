//! Tests of `footprint`.

use super::*;
use basalt_core::resp::request::Span;

fn with_args<R>(words: &[&str], run: impl FnOnce(&Args<'_>) -> R) -> R {
    let mut data = Vec::new();
    let mut spans = Vec::new();
    for word in words {
        spans.push(Span::in_buffer(data.len(), word.len()));
        data.extend_from_slice(word.as_bytes());
    }
    run(&Args::in_buffer(&data, &spans, &[]))
}

fn strayed(keys: &[&str], reruns: u32) -> Outcome {
    Outcome {
        undeclared: keys.iter().map(|key| key.as_bytes().to_vec()).collect(),
        extended: u32::from(reruns == 0),
        reruns,
        ..Outcome::default()
    }
}

#[test]
fn keys_made_of_arguments_are_foreseen() {
    let footprints = Footprints::default();
    with_args(&["EVALSHA", "sha", "1", "user:7", "42"], |args| {
        assert_eq!(footprints.advice(tag_of(args), args), None);
        footprints.note(tag_of(args), args, &Outcome::default());
        assert_eq!(footprints.advice(tag_of(args), args), None, "it behaved");
        footprints.note(
            tag_of(args),
            args,
            &strayed(&["log:42:x", "total", "{user:7}"], 0),
        );
    });
    with_args(&["EVALSHA", "sha", "1", "user:8", "43"], |args| {
        let advice = footprints.advice(tag_of(args), args).expect("known");
        assert_eq!(advice.keys, [&b"log:43:x"[..], b"total", b"{user:8}"]);
        assert!(!advice.is_wide && !advice.is_slow);
    });
    with_args(&["EVALSHA", "sha", "0"], |args| {
        let advice = footprints.advice(tag_of(args), args).expect("known");
        assert_eq!(advice.keys, [b"total"], "the others cannot be made");
    });
}

#[test]
fn a_script_whose_keys_cannot_be_foreseen_goes_wide_and_is_tried_again() {
    let footprints = Footprints::default();
    with_args(&["EVALSHA", "sha", "0"], |args| {
        for run in 0..PERIOD {
            footprints.note(tag_of(args), args, &strayed(&[&format!("key{run}")], 1));
        }
        assert!(
            footprints
                .advice(tag_of(args), args)
                .expect("known")
                .is_wide
        );
        assert!(
            footprints
                .advice(tag_of(args), args)
                .expect("known")
                .keys
                .len()
                <= TEMPLATES_MAX
        );
        for _ in 0..WIDE_RUNS {
            footprints.note(tag_of(args), args, &Outcome::default());
        }
        assert!(
            !footprints
                .advice(tag_of(args), args)
                .expect("known")
                .is_wide
        );
        let statistics = footprints.statistics(None);
        assert_eq!(statistics[0].name, b"sha");
        assert_eq!(statistics[0].runs, u64::from(PERIOD + WIDE_RUNS));
        assert_eq!(statistics[0].reruns, u64::from(PERIOD));
        assert!(footprints.statistics(Some(b"other")).is_empty());
    });
}

#[test]
fn a_slow_script_is_known_until_it_is_fast_again() {
    let footprints = Footprints::default();
    with_args(&["FCALL", "f", "0"], |args| {
        for (duration_ns, is_slow) in [(SLOW_NS + 1, true), (1_000, false)] {
            let outcome = Outcome {
                duration_ns,
                ..Outcome::default()
            };
            footprints.note(tag_of(args), args, &outcome);
            assert_eq!(
                footprints
                    .advice(tag_of(args), args)
                    .expect("known")
                    .is_slow,
                is_slow
            );
        }
    });
}

#[test]
fn a_script_that_behaves_comes_to_rest_and_is_looked_at_again_when_it_does_not() {
    let footprints = Footprints::default();
    with_args(&["FCALL", "f", "0"], |args| {
        let tag = tag_of(args);
        let slow = Outcome {
            duration_ns: SLOW_NS + 1,
            ..Outcome::default()
        };
        footprints.note(tag, args, &slow);
        for _ in 0..PERIOD {
            assert!(footprints.advice(tag, args).is_some());
            footprints.note(tag, args, &Outcome::default());
        }
        assert_eq!(footprints.advice(tag, args), None);
        footprints.note(tag, args, &Outcome::default());
        assert_eq!(footprints.statistics(None)[0].runs, u64::from(PERIOD) + 1);
        footprints.note(tag, args, &slow);
        assert!(footprints.advice(tag, args).expect("known").is_slow);
        assert_eq!(footprints.statistics(None)[0].runs, u64::from(PERIOD) + 2);
    });
}

#[test]
fn no_more_scripts_are_remembered_than_there_are_slots() {
    let footprints = Footprints::default();
    for number in 0..SLOTS * 3 {
        with_args(&["FCALL", &format!("function{number}"), "0"], |args| {
            footprints.note(tag_of(args), args, &strayed(&["k"], 1));
        });
    }
    assert!(footprints.statistics(None).len() <= SLOTS);
}
