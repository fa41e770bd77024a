//! The page as a scraper sees it.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use super::*;
use crate::telemetry::history::series::{SERIES, Series};
use crate::telemetry::{COUNTING, Telemetry, counters, errors};
use basalt_commands::config::Config;

/// All documented names, with their types.
const NAMES: &str = include_str!("names.txt");

fn page() -> String {
    let _alone = COUNTING.lock();
    let service = crate::start::build(Arc::new(Config::default()), 4, Telemetry::new(None, 2));
    let ping = basalt_commands::command::registry::registry()
        .find(b"ping")
        .expect("PING exists");
    for duration_ns in [700, 1_500, 40_000, 3_000_000_000_000] {
        counters::local().command(ping).ran(duration_ns, false);
    }
    errors::note(b"METRICSTEST \"quoted\"");
    service.all_published[1].note_lag(15);
    service.all_published[1].note_lag(60_000);
    let config = Config {
        latency_monitor_threshold: 1,
        ..Config::default()
    };
    service.telemetry.latency.note(&config, "command", 5, 7);
    render(&service)
}

#[test]
fn what_the_server_found_out_of_its_traffic_is_shown_once_there_is_some() {
    use basalt_engine::keyspace::Deadline;
    use basalt_engine::{Key, Now};
    let _alone = COUNTING.lock();
    let service = crate::start::build(Arc::new(Config::default()), 1, Telemetry::new(None, 2));
    let before = render(&service);
    let mut engine = service.shards.try_take(0).expect("nobody else is here");
    let seed = engine.seed();
    for number in 0..500u32 {
        let name = number.to_le_bytes();
        let key = Key::new(&name, seed);
        let mut keyspace = engine.keyspace(0, Now { unix_ms: 1_000 });
        keyspace.put_text(
            &key,
            None,
            &vec![b'v'; 100 * number as usize],
            Deadline::Clear,
        );
        assert!(keyspace.find_read(&key).is_some());
    }
    drop(engine);
    let after = render(&service);
    for series in [
        "basalt_curve_hit_ratio{memory=\"0.25\"}",
        "basalt_curve_hit_ratio{memory=\"4\"}",
        "basalt_curve_lru_hit_ratio{memory=\"1\"}",
        "basalt_curve_measured_hit_ratio ",
        "basalt_curve_first_reads_ratio ",
        "basalt_largest_value_bytes{type=\"string\"}",
    ] {
        assert!(!before.contains(series), "{series} is known too early");
        assert!(after.contains(series), "{series} is not there");
    }
}

/// Returns the types by family and the values by series.
fn parse(page: &str) -> (HashMap<&str, &str>, HashMap<&str, f64>) {
    let (mut types, mut values) = (HashMap::new(), HashMap::new());
    for line in page.lines().filter(|line| !line.is_empty()) {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert!(
                types.insert(name, kind).is_none(),
                "{name} has its type twice"
            );
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let value = value.parse().expect("a number");
            assert!(
                values.insert(series, value).is_none(),
                "{series} stands twice"
            );
        }
    }
    (types, values)
}

#[test]
fn every_promised_name_is_there_with_the_type_of_redis_exporter() {
    let page = page();
    let (types, values) = parse(&page);
    let series: HashSet<&str> = values
        .keys()
        .map(|series| series.split('{').next().unwrap_or_default())
        .collect();
    for line in NAMES.lines() {
        let (name, kind) = line.split_once(' ').expect("name and type");
        assert_eq!(types.get(name), Some(&kind), "{name}");
        let sample = match kind {
            "histogram" => format!("{name}_bucket"),
            _ => name.to_owned(),
        };
        assert!(series.contains(sample.as_str()), "{name} has no sample");
    }
}

/// redis_exporter's names that do not apply here, and why.
const NOT_HERE: [(&str, &str); 5] = [
    ("go_", "the Go runtime"),
    (
        "redis_exporter_build_info",
        "the exporter's version and compiler; basalt_info has basalt's version",
    ),
    (
        "redis_exporter_last_scrape_connect_time_seconds",
        "the server does not connect to itself",
    ),
    (
        "redis_target_scrape_request_errors_total",
        "requests for other targets, which the server does not take",
    ),
    (
        "redis_last_key_groups_scrape_duration_milliseconds",
        "key groups, which the server does not scan for",
    ),
];

#[test]
fn what_only_the_exporter_can_say_is_not_on_the_page() {
    let page = page();
    let (types, _) = parse(&page);
    for (name, reason) in NOT_HERE {
        let found = types.keys().find(|other| other.starts_with(name));
        assert_eq!(found, None, "{reason}");
    }
}

#[test]
fn the_documentation_lists_the_names_of_redis_exporter() {
    let documented = include_str!("../../../../docs/observability.md");
    let names = NAMES.lines().filter_map(|line| line.split(' ').next());
    for name in names.filter(|name| !name.starts_with("basalt_")) {
        assert!(documented.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn histograms_are_cumulative_and_end_in_their_count() {
    let page = page();
    let (_, values) = parse(&page);
    let bucket = |bound: &str| {
        values[format!("redis_commands_latencies_usec_bucket{{cmd=\"ping\",le=\"{bound}\"}}")
            .as_str()]
    };
    let all = values["redis_commands_latencies_usec_count{cmd=\"ping\"}"];
    assert!(bucket("1.024") >= 1.0 && bucket("2.048") >= bucket("1.024") + 1.0);
    assert!(
        bucket("4294967.296") < all,
        "the longest run lies above every bound"
    );
    assert_eq!(bucket("+Inf"), all);
    assert_eq!(values["basalt_expiry_lag_seconds_bucket{le=\"0.02\"}"], 1.0);
    assert_eq!(values["basalt_expiry_lag_seconds_bucket{le=\"5\"}"], 1.0);
    assert_eq!(values["basalt_expiry_lag_seconds_bucket{le=\"+Inf\"}"], 2.0);
    assert_eq!(values["basalt_expiry_lag_seconds_sum"], 60.015);
    assert_eq!(values["basalt_expiry_lag_max_seconds"], 60.0);
}

#[test]
fn persistence_shows_what_was_noted_of_it() {
    use crate::telemetry::clock;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;
    let _alone = COUNTING.lock();
    let mut config = Config::default();
    config.save.truncate(1);
    let (seconds, changes) = (config.save[0].seconds, config.save[0].changes);
    let service = crate::start::build(Arc::new(config), 1, Telemetry::new(None, 2));
    let figures = &service.telemetry.persistence;
    let last_s = clock::unix_ms() / 1_000 - seconds - 1_000;
    figures.rdb.last_save_s.store(last_s, Relaxed);
    let page = render(&service);
    let (_, values) = parse(&page);
    assert_eq!(
        values["basalt_rdb_save_overdue_seconds"], 0.0,
        "nothing changed"
    );
    assert!(values["basalt_rdb_last_save_age_seconds"] >= 1_000.0 + seconds as f64);
    assert_eq!(values["basalt_rdb_save_points"], 1.0);
    assert_eq!(values["basalt_log_fill_ratio"], 0.0, "there is no ring");
    assert_eq!(values["redis_rdb_last_bgsave_status"], 1.0);
    assert_eq!(values["redis_rdb_current_bgsave_duration_sec"], -1.0);

    service.all_published[0].dirty.add(changes);
    figures.rdb.last_ok.store(false, Relaxed);
    figures.aof.last_write_ok.store(false, Relaxed);
    figures.aof.enabled.store(true, Relaxed);
    figures.log.ring_bytes.store(1_000, Relaxed);
    figures.log.used_bytes.store(800, Relaxed);
    for us in [50, 51, 700, 3_000_000] {
        figures.aof.fsync.note(Duration::from_micros(us));
    }
    let page = render(&service);
    let (_, values) = parse(&page);
    let overdue_s = values["basalt_rdb_save_overdue_seconds"];
    assert!((1_000.0..1_100.0).contains(&overdue_s), "{overdue_s}");
    assert_eq!(values["redis_rdb_changes_since_last_save"], changes as f64);
    for (name, value) in [
        ("redis_rdb_last_bgsave_status", 0.0),
        ("redis_aof_last_write_status", 0.0),
        ("redis_aof_enabled", 1.0),
        ("basalt_log_fill_ratio", 0.8),
        ("basalt_aof_fsync_seconds_bucket{le=\"0.00005\"}", 1.0),
        ("basalt_aof_fsync_seconds_bucket{le=\"0.0001\"}", 2.0),
        ("basalt_aof_fsync_seconds_bucket{le=\"0.001\"}", 3.0),
        ("basalt_aof_fsync_seconds_bucket{le=\"1\"}", 3.0),
        ("basalt_aof_fsync_seconds_bucket{le=\"+Inf\"}", 4.0),
        ("basalt_aof_fsync_seconds_sum", 3.000801),
        ("basalt_aof_fsync_seconds_count", 4.0),
    ] {
        assert_eq!(values.get(name), Some(&value), "{name}");
    }
}

#[test]
fn figures_of_info_are_numbers_of_fields_that_there_are() {
    let service = crate::start::build(Arc::new(Config::default()), 1, Telemetry::new(None, 2));
    let source = FigureContext::gather(&service);
    for figure in figures::all().filter(|figure| figure.metric.is_some()) {
        assert!(figure.number(&source).is_some(), "{}", figure.field);
    }
    for field in SERIES.iter().flat_map(Series::fields) {
        assert!(source.number(field).is_some(), "{field}");
    }
    assert_eq!(source.number("total_system_memory_bytes"), None);
    assert_eq!(source.number("redis_version"), None, "a text");
}

#[test]
fn promtool_finds_fault_only_with_names_that_redis_exporter_chose() {
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else { return };
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(page().as_bytes()).expect("promtool reads");
    drop(stdin);
    let output = child.wait_with_output().expect("promtool ends");
    let complaints = [output.stdout, output.stderr].concat();
    let complaints = String::from_utf8(complaints).expect("text");
    let names = NAMES.lines().filter_map(|line| line.split(' ').next());
    let theirs: HashSet<&str> = names.filter(|name| !name.starts_with("basalt_")).collect();
    for complaint in complaints.lines() {
        let name = complaint.split(' ').next().unwrap_or_default();
        assert!(theirs.contains(name), "{complaint}");
    }
}

#[test]
fn label_values_are_escaped() {
    let mut page = MetricsPage::new();
    let labels = vec![("a", "x\"y\\z\n".to_owned())];
    page.labelled_gauge("g", "Help.", labels.clone(), 1.0);
    page.seconds_total("s", "Help.", [(labels, 0.5), (Vec::new(), 1.0)]);
    let text = page.finish();
    for line in [r#"g{a="x\"y\\z\n"} 1"#, r#"s{a="x\"y\\z\n"} 0.5"#, "s 1"] {
        assert!(text.lines().any(|each| each == line), "{text}");
    }
}
