//! `/metrics`: the snapshot in Prometheus's text format, under the names used by redis_exporter's dashboards.

mod cluster;
mod compatible;
mod key_names;
mod page;
mod replication;
mod rows;
mod saving;

use std::sync::atomic::Ordering::Relaxed;

use page::{Page, Series};
use rows::Source;

use super::clock::Ticks;
use super::counters::Extents;
use super::histogram::upper_ns;
use super::info::{ratio, told_version};
use super::miss_ratio::PERCENT;
use super::observed::Observed;
use super::process;
use super::snapshot::{ShardFigures, Snapshot};
use basalt_commands::config::Config;
use basalt_engine::published::{DbCounts, LAG_BOUNDS_MS};

/// The content type of the page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Latency buckets exposed with a bound; those above 4 s are only in `+Inf`.
const BOUNDED_BUCKETS: usize = 23;

/// Returns the page for one scrape.
pub fn render(service: &dyn Observed) -> String {
    let began = Ticks::now();
    let snapshot = Snapshot::gather(service);
    let config = service.config();
    let mut page = Page::new();
    server(&mut page, service, &config, &snapshot);
    saving::persistence(&mut page, service, &config, &snapshot);
    let source = Source {
        service,
        config: &config,
        snapshot: &snapshot,
    };
    replication::write(&mut page, &source);
    traffic(&mut page, &source);
    handshakes(&mut page, service);
    certificates(&mut page, service);
    rows::write(rows::MEMORY, &source, &mut page);
    keyspace(&mut page, &source);
    units(&mut page, &source);
    miss_ratio(&mut page, &snapshot);
    hot_keys(&mut page, service);
    if config.metrics_key_names {
        key_names::write(&mut page, service);
    }
    commands(&mut page, &snapshot);
    shards(&mut page, service, &snapshot);
    let scrapes = &service.telemetry().scrapes;
    scrapes.note(Ticks::now().since_ns(began));
    compatible::write(&mut page, &source);
    cluster::write(&mut page, &source);
    page.finish()
}

fn server(page: &mut Page, service: &dyn Observed, config: &Config, snapshot: &Snapshot) {
    let telemetry = service.telemetry();
    let text = |value: &dyn ToString| value.to_string();
    page.gauge("redis_up", "Whether the server answers.", 1.0);
    page.labelled_gauge(
        "redis_instance_info",
        "Facts about the server, as labels.",
        vec![
            ("role", text(&snapshot.replication.role())),
            ("redis_version", text(&told_version(config))),
            ("redis_build_id", text(&"0")),
            ("redis_mode", text(&config.mode_name())),
            ("os", process::os()),
            ("maxmemory_policy", text(&config.maxmemory_policy.name())),
            ("tcp_port", text(&config.port)),
            ("run_id", telemetry.run_id.clone()),
            ("process_id", text(&std::process::id())),
            ("master_replid", snapshot.replication.stream.id.clone()),
        ],
        1.0,
    );
    page.labelled_gauge(
        "basalt_info",
        "Version of basalt, as a label.",
        vec![("version", text(&env!("CARGO_PKG_VERSION")))],
        1.0,
    );
    let started_s = telemetry.started_ms / 1_000;
    page.gauge(
        "redis_start_time_seconds",
        "Unix time of the start.",
        started_s as f64,
    );
    page.gauge(
        "redis_uptime_in_seconds",
        "Seconds since the start.",
        snapshot.uptime_s as f64,
    );
    page.gauge(
        "redis_process_id",
        "Number of the process.",
        f64::from(std::process::id()),
    );
    page.gauge(
        "redis_config_maxclients",
        "Most clients at once.",
        f64::from(config.maxclients),
    );
    page.gauge(
        "redis_config_maxmemory",
        "Most memory for data.",
        config.maxmemory as f64,
    );
    subscribers(page, snapshot);
    cpu(page, snapshot);
}

fn subscribers(page: &mut Page, snapshot: &Snapshot) {
    let pubsub = snapshot.pubsub;
    for (name, help, count) in [
        (
            "redis_pubsub_channels",
            "Channels with subscribers.",
            pubsub.channels,
        ),
        (
            "redis_pubsub_patterns",
            "Patterns subscribed to.",
            pubsub.patterns,
        ),
        (
            "redis_pubsubshard_channels",
            "Shard channels with subscribers.",
            pubsub.shard_channels,
        ),
    ] {
        page.gauge(name, help, count as f64);
    }
}

fn cpu(page: &mut Page, snapshot: &Snapshot) {
    let cpu = &snapshot.cpu;
    for (system, user, seconds) in [
        (
            "redis_cpu_sys_seconds_total",
            "redis_cpu_user_seconds_total",
            cpu.own,
        ),
        (
            "redis_cpu_sys_children_seconds_total",
            "redis_cpu_user_children_seconds_total",
            cpu.children,
        ),
        (
            "redis_cpu_sys_main_thread_seconds_total",
            "redis_cpu_user_main_thread_seconds_total",
            cpu.main_thread,
        ),
    ] {
        page.seconds_total(system, "CPU time in the kernel.", &[(&[], seconds.system)]);
        page.seconds_total(
            user,
            "CPU time outside of the kernel.",
            &[(&[], seconds.user)],
        );
    }
}

/// Writes error replies by kind, and the latest spikes.
fn traffic(page: &mut Page, source: &Source<'_>) {
    rows::write(rows::TRAFFIC, source, page);
    for (code, count) in &source.snapshot.errors {
        let labels = vec![("err", code.to_string())];
        page.labelled_counter(
            "redis_errors_total",
            "Error replies by kind.",
            labels,
            *count,
        );
    }
    for event in source.service.telemetry().latency.latest() {
        let labels = || vec![("event_name", event.name.clone())];
        page.labelled_gauge(
            "redis_latency_spike_last",
            "Unix time of an event's latest spike.",
            labels(),
            event.at_s as f64,
        );
        page.labelled_gauge(
            "redis_latency_spike_duration_seconds",
            "Length of an event's latest spike.",
            labels(),
            event.latest_ms as f64 / 1e3,
        );
    }
}

fn keyspace(page: &mut Page, source: &Source<'_>) {
    let snapshot = source.snapshot;
    rows::write(rows::KEYSPACE, source, page);
    rows::write(rows::LEASES, source, page);
    rows::write(rows::LOCKS, source, page);
    for (name, bytes) in &snapshot.memory.largest {
        page.labelled_gauge(
            "basalt_largest_value_bytes",
            "Bytes of the largest value of a type, of those of 16 KiB and more.",
            vec![("type", (*name).to_owned())],
            *bytes as f64,
        );
    }
    for (index, (keys, volatile)) in snapshot.memory.dbs.iter().enumerate() {
        let labels = || vec![("db", format!("db{index}"))];
        page.labelled_gauge(
            "redis_db_keys",
            "Keys of a database.",
            labels(),
            *keys as f64,
        );
        page.labelled_gauge(
            "redis_db_keys_expiring",
            "Keys with a deadline.",
            labels(),
            *volatile as f64,
        );
    }
    databases(page, snapshot);
    let eviction = &snapshot.eviction;
    for (queue, count) in [
        ("small", eviction.from_small),
        ("main", eviction.from_main),
        ("other", eviction.otherwise),
    ] {
        page.labelled_counter(
            "basalt_evictions_total",
            "Keys deleted to make room, by the queue that they stood in.",
            vec![("queue", queue.to_owned())],
            count,
        );
    }
    expiry_lag(page, snapshot);
}

/// A family of per-database figures.
type DatabaseRow = (&'static str, &'static str, fn(&DbCounts) -> u64);

static DATABASE_COUNTERS: [DatabaseRow; 4] = [
    (
        "basalt_db_hits_total",
        "Look-ups in a database that found the key.",
        |counts| counts.hits,
    ),
    (
        "basalt_db_misses_total",
        "Look-ups in a database that did not.",
        |counts| counts.misses,
    ),
    (
        "basalt_db_expired_keys_total",
        "Keys of a database deleted because their time had come.",
        |counts| counts.expired,
    ),
    (
        "basalt_db_evicted_keys_total",
        "Keys of a database deleted to make room.",
        |counts| counts.evicted,
    ),
];

fn databases(page: &mut Page, snapshot: &Snapshot) {
    for (index, db) in snapshot.databases.iter().enumerate() {
        let labels = || vec![("db", format!("db{index}"))];
        page.labelled_gauge(
            "basalt_db_bytes",
            "Bytes of a database's keys and values.",
            labels(),
            db.bytes as f64,
        );
        page.labelled_gauge(
            "basalt_db_share_bytes",
            "Most that a database may take (maxmemory-db); 0: all that there is.",
            labels(),
            db.share_bytes as f64,
        );
        for (name, help, read) in &DATABASE_COUNTERS {
            page.labelled_counter(name, help, labels(), read(&db.counts));
        }
    }
}

fn expiry_lag(page: &mut Page, snapshot: &Snapshot) {
    let below = |bucket: usize| snapshot.lag[..=bucket].iter().sum::<u64>();
    let bounds = LAG_BOUNDS_MS.iter().enumerate();
    page.histogram(
        "basalt_expiry_lag_seconds",
        "How late expired keys were deleted.",
        &[Series {
            labels: &[],
            buckets: bounds
                .map(|(bucket, ms)| (*ms as f64 / 1e3, below(bucket)))
                .collect(),
            count: snapshot.lag.iter().sum(),
            sum: snapshot.lag_sum_ms as f64 / 1e3,
        }],
    );
}

/// Writes the figures of clients' TLS handshakes.
fn handshakes(page: &mut Page, service: &dyn Observed) {
    let figures = &service.telemetry().handshakes;
    page.counter(
        "basalt_tls_handshakes_total",
        "TLS handshakes of clients that came to a connection.",
        figures.done.load(Relaxed),
    );
    page.gauge(
        "basalt_tls_handshakes_under_way",
        "TLS handshakes that are not over.",
        figures.under_way.load(Relaxed) as f64,
    );
    for (reason, count) in figures.failures() {
        page.labelled_counter(
            "basalt_tls_handshakes_failed_total",
            "TLS handshakes of clients that came to nothing, by the reason.",
            vec![("reason", reason.to_owned())],
            count,
        );
    }
}

/// Writes the expiry of the server's certificates, if TLS is in use.
fn certificates(page: &mut Page, service: &dyn Observed) {
    let Some(contexts) = service.tls() else {
        return;
    };
    for certificate in &contexts.own {
        let Some(ends_s) = certificate.ends_s else {
            continue;
        };
        page.labelled_gauge(
            "basalt_tls_certificate_end_timestamp_seconds",
            "Unix time at which a certificate of the server, or one of its chain, ends.",
            vec![("directive", certificate.directive.to_owned())],
            ends_s as f64,
        );
    }
    let is_good = service.tls_failure().is_none();
    page.gauge(
        "basalt_tls_last_reload_status",
        "Whether TLS files that changed could be put in force the last time, or none have changed.",
        f64::from(u8::from(is_good)),
    );
}

/// Writes the figures of scripts and transactions, by the shards that they locked.
fn units(page: &mut Page, source: &Source<'_>) {
    rows::write(rows::SCRIPTS, source, page);
    let scripts = source.snapshot.scripts;
    for (name, help, extents) in [
        (
            "basalt_script_runs_total",
            "Runs of scripts and functions, by the shards that they took.",
            scripts.runs,
        ),
        (
            "basalt_transactions_total",
            "Runs of transactions, by the shards that they took.",
            scripts.transactions,
        ),
    ] {
        let Extents { one, several, all } = extents;
        for (shards, count) in [("one", one), ("several", several), ("all", all)] {
            let labels = vec![("shards", shards.to_owned())];
            page.labelled_counter(name, help, labels, count);
        }
    }
}

/// Writes the hottest keys' share of the traffic, by rank; names would be user data, see [`key_names`].
fn hot_keys(page: &mut Page, service: &dyn Observed) {
    const RANKS: usize = 10;
    let top = service.telemetry().hot_keys.top(RANKS);
    for (name, help, keys, total) in [
        (
            "basalt_hot_key_commands_ratio",
            "Part of all uses of keys that the hottest keys take, by rank; HOTKEYS TOP names them.",
            &top.by_commands,
            top.commands,
        ),
        (
            "basalt_hot_key_bytes_ratio",
            "Part of all bytes of commands with keys that the hottest keys take, by rank.",
            &top.by_bytes,
            top.bytes,
        ),
    ] {
        for (index, (_, weight)) in keys.iter().enumerate() {
            let rank = vec![("rank", (index + 1).to_string())];
            page.labelled_gauge(name, help, rank, ratio(*weight, total));
        }
    }
}

fn miss_ratio(page: &mut Page, snapshot: &Snapshot) {
    let curve = &snapshot.curve;
    page.gauge(
        "basalt_curve_reads",
        "Look-ups behind the miss-ratio curve; older ones count for less.",
        curve.reads as f64,
    );
    page.gauge(
        "basalt_curve_samples",
        "Keys that the miss-ratio curve follows.",
        curve.samples as f64,
    );
    // Omit unknown figures: a zero would be wrong.
    if let Some(measured) = curve.measured {
        page.gauge(
            "basalt_curve_measured_hit_ratio",
            "Hit ratio of the look-ups behind the curve.",
            measured,
        );
    }
    if let Some(unseen) = curve.unseen {
        page.gauge(
            "basalt_curve_first_reads_ratio",
            "Part of the look-ups that no cache of any size would answer.",
            unseen,
        );
    }
    for (name, help, ratios) in [
        (
            "basalt_curve_hit_ratio",
            "Hit ratio that another size of memory would have; 1 is what the data takes now.",
            &curve.corrected,
        ),
        (
            "basalt_curve_lru_hit_ratio",
            "The same if eviction were LRU.",
            &curve.lru,
        ),
    ] {
        for (percent, ratio) in PERCENT.iter().zip(ratios.iter().flatten()) {
            let size = (*percent as f64 / 100.0).to_string();
            page.labelled_gauge(name, help, vec![("memory", size)], *ratio);
        }
    }
}

fn commands(page: &mut Page, snapshot: &Snapshot) {
    for command in &snapshot.commands {
        for (name, help, count) in [
            ("redis_commands_total", "Runs of a command.", command.calls),
            (
                "redis_commands_rejected_calls_total",
                "Refusals of a command before it ran.",
                command.rejected,
            ),
            (
                "redis_commands_failed_calls_total",
                "Runs that ended in an error.",
                command.failed,
            ),
        ] {
            page.labelled_counter(name, help, vec![("cmd", command.name.to_owned())], count);
        }
    }
    let labels: Vec<[(&str, &str); 1]> = snapshot
        .commands
        .iter()
        .map(|command| [("cmd", command.name)])
        .collect();
    let durations: Vec<(&[(&str, &str)], f64)> = labels
        .iter()
        .zip(&snapshot.commands)
        .map(|(labels, command)| (labels.as_slice(), command.duration_ns as f64 / 1e9))
        .collect();
    page.seconds_total(
        "redis_commands_duration_seconds_total",
        "Time of all runs of a command.",
        &durations,
    );
    let series: Vec<Series<'_>> = labels
        .iter()
        .zip(&snapshot.commands)
        .map(|(labels, command)| {
            let mut below = 0;
            let buckets = (0..BOUNDED_BUCKETS).map(|bucket| {
                below += command.buckets[bucket];
                (upper_ns(bucket) as f64 / 1e3, below)
            });
            Series {
                labels,
                buckets: buckets.collect(),
                // Sum the buckets themselves, so that the count agrees with them even while commands run.
                count: command.buckets.iter().sum(),
                sum: command.duration_ns as f64 / 1e3,
            }
        })
        .collect();
    page.histogram(
        "redis_commands_latencies_usec",
        "Runs of a command by their time in microseconds.",
        &series,
    );
}

/// A family of per-shard figures.
type ShardRow = (&'static str, &'static str, fn(&ShardFigures) -> u64);

static SHARD_GAUGES: [ShardRow; 2] = [
    ("basalt_shard_keys", "Keys of a shard.", |shard| shard.keys),
    ("basalt_shard_bytes", "Bytes charged to a shard.", |shard| {
        shard.bytes
    }),
];

static SHARD_COUNTERS: [ShardRow; 7] = [
    (
        "basalt_shard_commands_total",
        "Commands run on a shard.",
        |shard| shard.commands,
    ),
    (
        "basalt_shard_takes_total",
        "Times the token was taken.",
        |shard| shard.token.takes,
    ),
    (
        "basalt_shard_takes_found_held_total",
        "Tries that found the token held.",
        |shard| shard.token.takes_found_held,
    ),
    (
        "basalt_shard_queued_total",
        "Commands that had to queue.",
        |shard| shard.token.queued,
    ),
    (
        "basalt_shard_multi_shard_operations_total",
        "Operations over several shards.",
        |shard| shard.token.multi_shard_runs,
    ),
    (
        "basalt_shard_handovers_total",
        "Tokens that travelled on with a command.",
        |shard| shard.token.handed_over,
    ),
    (
        "basalt_shard_worker_handovers_total",
        "Tokens given to the shard's worker.",
        |shard| shard.token.worker_handovers,
    ),
];

fn shards(page: &mut Page, service: &dyn Observed, snapshot: &Snapshot) {
    page.gauge(
        "basalt_shards",
        "Number of shards.",
        snapshot.shards.len() as f64,
    );
    page.gauge(
        "basalt_threads",
        "Threads that serve connections.",
        service.telemetry().thread_count as f64,
    );
    for (index, shard) in snapshot.shards.iter().enumerate() {
        let labels = || vec![("shard", index.to_string())];
        for (name, help, read) in &SHARD_GAUGES {
            page.labelled_gauge(name, help, labels(), read(shard) as f64);
        }
        for (name, help, read) in &SHARD_COUNTERS {
            page.labelled_counter(name, help, labels(), read(shard));
        }
        page.labelled_gauge(
            "basalt_shard_longest_hold_seconds",
            "Longest time that the token was held.",
            labels(),
            shard.token.longest_hold_ns as f64 / 1e9,
        );
    }
}

#[cfg(test)]
mod tests;
