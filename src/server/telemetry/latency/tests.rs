//! Tests of `latency`.

use super::*;

fn config(threshold_ms: i64) -> Config {
    Config {
        latency_monitor_threshold: threshold_ms,
        ..Config::default()
    }
}

#[test]
fn only_what_reaches_the_threshold_is_kept_and_zero_means_never() {
    let latency = Latency::default();
    latency.note(&config(0), COMMAND, 1, 1_000_000);
    latency.note(&config(100), COMMAND, 1, 99);
    assert!(latency.latest().is_empty());
    latency.note(&config(100), COMMAND, 1, 100);
    assert_eq!(latency.history(COMMAND), [(1, 100)]);
}

#[test]
fn one_second_keeps_its_worst_sample_and_160_seconds_are_kept() {
    let latency = Latency::default();
    for (at_s, value_ms) in [(1, 5), (1, 9), (1, 7)] {
        latency.add(COMMAND, at_s, value_ms);
    }
    assert_eq!(latency.history(COMMAND), [(1, 9)]);
    for at_s in 2..=200 {
        latency.add(COMMAND, at_s, 3);
    }
    let history = latency.history(COMMAND);
    assert_eq!((history.len(), history[0]), (160, (41, 3)));
    let latest = &latency.latest()[0];
    assert_eq!((latest.at_s, latest.latest_ms, latest.max_ms), (200, 3, 9));
}

#[test]
fn a_pass_is_one_sample_that_grows_and_the_next_pass_another() {
    let latency = Latency::default();
    let mut pass = Pass::default();
    for now_ms in [900, 1_100, 2_500] {
        let (at_s, spent_ms) = pass.add(now_ms, 4_500_000);
        latency.note(&config(5), EXPIRE_CYCLE, at_s, spent_ms);
    }
    assert_eq!(latency.history(EXPIRE_CYCLE), [(0, 13)]);
    pass.end();
    pass.rested(50_000_000);
    assert_eq!(pass.add(3_000, 4_000_000), (3, 4));
    pass.rested(1_000_000);
    pass.rested(70_000_000);
    assert_eq!(pass.add(3_010, 1_000_000), (3, 6));
    latency.note(&config(5), EXPIRE_CYCLE, 3, 6);
    assert_eq!(latency.history(EXPIRE_CYCLE), [(0, 13), (3, 6)]);
}

#[test]
fn reset_counts_the_events_that_it_forgot() {
    let latency = Latency::default();
    latency.add(COMMAND, 1, 1);
    latency.add(FAST_COMMAND, 1, 1);
    latency.add(EXPIRE_CYCLE, 1, 1);
    assert_eq!(
        latency.reset(&["Command".to_owned(), "nothing".to_owned()]),
        1
    );
    assert_eq!(latency.reset(&[]), 2);
    assert_eq!(latency.reset(&[]), 0);
}

#[test]
fn a_graph_has_a_head_four_rows_and_the_ages_downwards() {
    let latency = Latency::default();
    for (at_s, value_ms) in [(40, 10), (90, 400), (95, 100)] {
        latency.add(COMMAND, at_s, value_ms);
    }
    let graph = latency.graph(COMMAND, 100).expect("there are samples");
    let lines: Vec<&str> = graph.lines().collect();
    assert_eq!(
        lines[0],
        "command - high 400 ms, low 10 ms (all time high 400 ms)"
    );
    assert_eq!(lines[1], "-".repeat(80));
    assert_eq!(
        lines[2..],
        [" #", " |", " |", "_|#", "", "115", "m0s", " s"]
    );
    assert_eq!(latency.graph("nothing", 100), None);
}

#[test]
fn a_full_series_is_drawn_in_bands_no_wider_than_the_screen() {
    let latency = Latency::default();
    for at_s in 0..300 {
        latency.add(COMMAND, at_s, at_s);
    }
    let graph = latency.graph(COMMAND, 300).expect("there are samples");
    assert!(graph.lines().all(|line| line.len() <= GRAPH_COLUMNS));
}

#[test]
fn the_doctor_speaks_of_every_event() {
    let latency = Latency::default();
    assert!(
        latency
            .doctor(&config(0), 10)
            .contains("latency-monitor-threshold is 0")
    );
    assert!(
        latency
            .doctor(&config(5), 10)
            .contains("No event took 5 ms")
    );
    latency.add(COMMAND, 1, 20);
    latency.add(EXPIRE_CYCLE, 5, 30);
    let report = latency.doctor(&config(5), 11);
    assert!(report.contains("1. command: 1 latency spikes (average 20 ms, mean deviation 0 ms"));
    assert!(report.contains("2. expire-cycle: 1 latency spikes"));
}
