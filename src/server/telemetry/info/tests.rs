//! INFO as a client parses it.

use std::collections::HashMap;

use super::*;
use crate::state::Service;
use crate::telemetry::snapshot::Snapshot;
use crate::telemetry::{COUNTING, Telemetry};
use basalt_commands::config::Config;

fn service(config: Config) -> Service {
    crate::start::build(Arc::new(config), 4, Telemetry::new(None, 2))
}

/// Returns the section titles in order and the fields by name, after checking the format of every line.
fn parse(text: &str) -> (Vec<&str>, HashMap<&str, &str>) {
    let mut titles = Vec::new();
    let mut fields = HashMap::new();
    assert!(text.is_empty() || text.ends_with("\r\n"));
    for line in text.split_terminator("\r\n") {
        assert!(!line.contains(['\r', '\n']), "{line:?}");
        if let Some(title) = line.strip_prefix("# ") {
            titles.push(title);
        } else if !line.is_empty() {
            let (name, value) = line.split_once(':').expect("a field has a value");
            assert!(fields.insert(name, value).is_none(), "{name} stands twice");
        }
    }
    (titles, fields)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn info_alone_shows_the_default_sections() {
    let service = service(Config::default());
    let text = text(&service, &[]);
    let (titles, fields) = parse(&text);
    assert_eq!(
        titles,
        [
            "Server",
            "Clients",
            "Memory",
            "Persistence",
            "Stats",
            "Replication",
            "CPU",
            "Modules",
            "Errorstats",
            "Cluster",
            "Basalt",
            "Leases",
            "Locks",
            "Databases",
            "Missratio",
            "Keyspace"
        ]
    );
    assert_eq!(fields["redis_version"], "7.4.0");
    assert_eq!(fields["server_name"], "basalt");
    assert_eq!(fields["redis_mode"], "standalone");
    assert_eq!(fields["run_id"].len(), 40);
    assert_eq!(fields["shards"], "4");
    assert_eq!(fields["threads"], "2");
    assert_eq!(fields["maxmemory_policy"], "noeviction");
    assert_eq!(fields["rdb_bgsave_in_progress"], "0");
    let used: u64 = fields["used_memory"].parse().expect("a number");
    let peak: u64 = fields["used_memory_peak"].parse().expect("a number");
    let peak_at_s = fields["used_memory_peak_time"].parse::<u64>();
    let now_s = crate::telemetry::clock::unix_ms() / 1_000;
    assert!(peak_at_s.is_ok_and(|at_s| at_s > 1_700_000_000 && at_s <= now_s));
    assert!(used > 0 && peak >= used);
}

#[test]
fn sections_are_chosen_by_name_and_unknown_ones_are_empty() {
    let service = service(Config::default());
    assert_eq!(text(&service, &names(&["nothing"])), "");
    let one = text(&service, &names(&["cpu"]));
    assert_eq!(parse(&one).0, ["CPU"]);
    let two = text(&service, &names(&["keyspace", "clients", "clients"]));
    assert_eq!(parse(&two).0, ["Clients", "Keyspace"]);
    for word in ["all", "everything"] {
        let all = text(&service, &names(&[word, "cpu"]));
        // INFO all shows all sections except those shown only when named.
        assert_eq!(parse(&all).0.len(), SECTIONS.len() - ON_DEMAND.len());
    }
}

#[test]
fn the_least_size_of_a_bin_is_shown_in_units() {
    for (bin, expected) in [
        (0, "0"),
        (1, "1"),
        (2, "2"),
        (10, "512"),
        (11, "1K"),
        (20, "512K"),
        (21, "1M"),
        (31, "1G"),
        (40, "512G"),
    ] {
        assert_eq!(least_of_bin(bin), expected, "{bin}");
    }
}

#[test]
fn every_field_of_redis_7_that_its_idle_self_shows_is_there() {
    const FIELDS: &str = include_str!("fields_of_redis_7.txt");
    let service = service(Config::default());
    let text = text(&service, &names(&["everything"]));
    let (_, fields) = parse(&text);
    let missing: Vec<&str> = FIELDS
        .lines()
        .filter(|name| !fields.contains_key(name))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn commands_errors_and_latencies_are_shown_once_something_ran() {
    use crate::telemetry::{counters, errors};
    use basalt_commands::command::registry::registry;
    let _alone = COUNTING.lock();
    let ping = registry().find(b"ping").expect("PING exists");
    counters::local().command(ping).ran(1_500, false);
    errors::note(b"INFOTEST no");
    let service = service(Config::default());
    let all = text(&service, &names(&["all"]));
    let (_, fields) = parse(&all);
    assert!(fields["cmdstat_ping"].starts_with("calls="));
    assert!(fields["cmdstat_ping"].contains(",failed_calls="));
    assert_eq!(fields["errorstat_INFOTEST"], "count=1");
    let percentiles = fields["latency_percentiles_usec_ping"];
    assert!(
        percentiles.starts_with("p50=") && percentiles.contains(",p99.9="),
        "{percentiles}"
    );
    let silent = self::service(Config {
        latency_tracking: false,
        ..Config::default()
    });
    assert!(!text(&silent, &names(&["all"])).contains("latency_percentiles"));
}

#[test]
fn a_reset_takes_connections_and_look_ups_back_to_zero() {
    let _alone = COUNTING.lock();
    let service = service(Config::default());
    service
        .clients
        .accepted
        .store(3, std::sync::atomic::Ordering::Relaxed);
    service.all_published[0].look_ups(0).hits.add(5);
    service.all_published[3].look_ups(1).misses.add(2);
    let before = Snapshot::gather(&service);
    assert_eq!(
        (
            before.since_reset.accepted,
            before.counts.hits,
            before.counts.misses
        ),
        (3, 5, 2)
    );
    service.telemetry.reset_statistics(&service);
    service.all_published[0].look_ups(0).hits.add(1);
    let after = Snapshot::gather(&service);
    assert_eq!(
        (
            after.since_reset.accepted,
            after.counts.hits,
            after.counts.misses
        ),
        (0, 1, 0)
    );
}
