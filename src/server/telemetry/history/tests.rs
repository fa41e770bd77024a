//! The history's retention of samples.

use super::*;

fn reading(figure: f64, ran: &[(usize, u64)]) -> Reading {
    let mut buckets = [0; BUCKETS];
    for (bucket, count) in ran {
        buckets[*bucket] = *count;
    }
    Reading {
        figures: vec![[figure, figure]; SERIES.len()],
        buckets,
        resets: 0,
    }
}

fn at(name: &str) -> usize {
    series::find(name).expect("a row")
}

fn collect(inner: &HistoryState, step: HistoryResolution, name: &str) -> Vec<(u64, Option<f64>)> {
    let ring = match step {
        HistoryResolution::Second => &inner.seconds,
        HistoryResolution::Minute => &inner.minutes,
    };
    let mut points = Vec::new();
    ring.each(0, &mut |point| {
        points.push((point.at_s, point.value(at(name))))
    });
    points
}

#[test]
fn names_of_rows_are_their_own_and_of_lower_case() {
    for (index, row) in SERIES.iter().enumerate() {
        assert_eq!(
            series::find(row.name),
            Some(index),
            "{} is there twice",
            row.name
        );
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit();
        assert!(row.name.bytes().all(is_plain), "{}", row.name);
        assert!(!row.says.is_empty());
    }
}

#[test]
fn rates_shares_and_percentiles_are_those_of_the_time_between_two_readings() {
    let found = values(
        &reading(100.0, &[(3, 5)]),
        &reading(160.0, &[(3, 105), (30, 1)]),
        2.0,
    );
    let value = |name| found[at(name)];
    assert_eq!((value("ops"), value("clients")), (30.0, 160.0));
    assert_eq!((value("hit_ratio"), value("sync_time")), (50.0, 1.0));
    assert!(
        (4.0..=8.2).contains(&value("latency_p50")),
        "{}",
        value("latency_p50")
    );
    assert!(value("latency_max") > 1e9 / 1e3 * 500.0);
    assert_eq!(found[SERIES.len() + 3], 50.0);
    // Durations beyond all latency buckets count in the last one.
    assert_eq!(found[SERIES.len() + HISTORY_BUCKETS - 1], 0.5);
}

#[test]
fn nothing_is_said_where_nothing_ran_and_a_reset_is_no_negative_rate() {
    let found = values(&reading(100.0, &[(3, 5)]), &reading(10.0, &[]), 1.0);
    for name in ["hit_ratio", "latency_p99", "sync_time"] {
        assert!(found[at(name)].is_nan(), "{name}");
    }
    assert!(found[at("ops")].is_nan(), "nothing is known of that second");
    assert_eq!(found[SERIES.len() + 3], 0.0);
    // After a reset, growth is unknown even if a sum has already exceeded its value before the reset.
    let mut later = reading(110.0, &[(3, 90)]);
    later.resets = 1;
    let found = values(&reading(100.0, &[(3, 5)]), &later, 1.0);
    assert!(found[at("ops")].is_nan() && found[at("latency_p50")].is_nan());
    assert_eq!(
        (found[at("clients")], found[SERIES.len() + 3]),
        (110.0, 0.0)
    );
}

#[test]
fn an_hour_of_seconds_and_a_day_of_minutes_are_kept_and_no_more() {
    let before = basalt_core::alloc::account::thread_bytes();
    let mut inner = HistoryState::default();
    let mut point = [0.0; WIDTH];
    let start_s = 1_000_000 * 60;
    let end_s = start_s + 26 * 3_600;
    for at_s in start_s..end_s {
        point[at("ops")] = (at_s % 60) as f32;
        point[at("latency_p99")] = (at_s % 60) as f32;
        inner.add(at_s, &point);
    }
    let bytes = basalt_core::alloc::account::thread_bytes() - before;
    let bytes = usize::try_from(bytes).expect("something was kept");
    assert!((BYTES_MAX / 10 * 9..=BYTES_MAX).contains(&bytes), "{bytes}");
    let seconds = collect(&inner, HistoryResolution::Second, "ops");
    assert!(
        (3_600..=61 * 60).contains(&seconds.len()),
        "{}",
        seconds.len()
    );
    assert_eq!(seconds.last(), Some(&(end_s - 1, Some(59.0))));
    let minutes = collect(&inner, HistoryResolution::Minute, "ops");
    assert!(
        (1_440..=25 * 60).contains(&minutes.len()),
        "{}",
        minutes.len()
    );
    assert_eq!(minutes.last(), Some(&(end_s - 60, Some(29.5))));
    // A minute's latency is that of its worst second.
    let worst = collect(&inner, HistoryResolution::Minute, "latency_p99");
    assert_eq!(worst.last(), Some(&(end_s - 60, Some(59.0))));
}

#[test]
fn a_clock_that_is_put_back_leaves_times_in_order() {
    let mut inner = HistoryState::default();
    for at_s in (6_000..6_200).chain(6_050..6_070) {
        inner.add(at_s, &[1.0; WIDTH]);
    }
    let times: Vec<u64> = collect(&inner, HistoryResolution::Second, "ops")
        .into_iter()
        .map(|(at_s, _)| at_s)
        .collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(times.last(), Some(&6_069));
}

#[test]
fn a_second_is_read_once_and_a_minute_without_commands_has_no_latency() {
    let _counting = crate::telemetry::COUNTING.lock();
    let config = std::sync::Arc::new(basalt_commands::config::Config::default());
    let telemetry = crate::telemetry::Telemetry::new(None, 1);
    let service = crate::start::build(config, 2, telemetry);
    let history = MetricsHistory::default();
    for now_s in [100, 100, 101, 101, 102, 163] {
        history.sample(&service, now_s);
    }
    let mut points = Vec::new();
    history.each(HistoryResolution::Second, 102, |point| {
        points.push((point.at_s, point.value(at("memory_used")).is_some()));
    });
    assert_eq!(points, [(102, true), (163, true)]);
    let mut minutes = 0;
    history.each(HistoryResolution::Minute, 0, |point| {
        assert_eq!(point.at_s, 120);
        minutes += 1;
    });
    assert_eq!(minutes, 1);
}
