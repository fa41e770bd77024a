//! `/metrics`: figures in Prometheus's text format, under the names used by redis_exporter's dashboards.
//!
//! Plain numbers are rows of the table of figures ([`super::figures`]) or of [`rows`]; this module writes the rest.

mod cluster;
mod compatible;
mod key_names;
mod page;
mod replication;
mod rows;
mod saving;
mod sizes;

use std::sync::atomic::Ordering::Relaxed;

use page::{HistogramSeries, MetricsPage};

use super::clock::Ticks;
use super::counters::Extents;
use super::figures::server::told_version;
use super::figures::{self, FigureContext, ratio};
use super::histogram::upper_ns;
use super::miss_ratio::PERCENT;
use super::observed::Observed;
use super::process;
use super::snapshot::{CommandFigures, ShardFigures, Snapshot};
use basalt_engine::published::{DbCounts, LAG_BOUNDS_MS};

/// The content type of the page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Latency buckets exposed with a bound; those above 4 s are only in `+Inf`.
const BOUNDED_BUCKETS: usize = 23;

/// Returns the page for one scrape.
pub fn render(service: &dyn Observed) -> String {
    let began = Ticks::now();
    let source = FigureContext::gather(service);
    let snapshot = &source.snapshot;
    let mut page = MetricsPage::new();
    server(&mut page, &source);
    page.figures(figures::all(), &source);
    saving::write(&mut page, &source);
    replication::write(&mut page, snapshot);
    traffic(&mut page, &source);
    handshakes(&mut page, service);
    certificates(&mut page, service);
    page.figures(rows::ROWS, &source);
    keyspace(&mut page, snapshot);
    scripts_and_transactions(&mut page, snapshot);
    miss_ratio(&mut page, snapshot);
    hot_keys(&mut page, service);
    if source.config.metrics_key_names {
        key_names::write(&mut page, service);
    }
    commands(&mut page, snapshot);
    sizes::write(&mut page, source.telemetry);
    shards(&mut page, snapshot);
    let scrapes = &source.telemetry.scrapes;
    scrapes.note(Ticks::now().since_ns(began));
    compatible::write(&mut page, &source);
    cluster::write(&mut page, &source);
    page.finish()
}

/// Writes facts about the server as labels.
fn server(page: &mut MetricsPage, source: &FigureContext<'_>) {
    let FigureContext {
        telemetry,
        config,
        snapshot,
        ..
    } = source;
    let text = |value: &dyn ToString| value.to_string();
    page.labelled_gauge(
        "redis_instance_info",
        "Information about the server as labels.",
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
        "Version of basalt as a label.",
        vec![("version", text(&env!("CARGO_PKG_VERSION")))],
        1.0,
    );
}

/// Writes error replies by kind, and the latest spikes.
fn traffic(page: &mut MetricsPage, source: &FigureContext<'_>) {
    for (code, count) in &source.snapshot.errors {
        let labels = vec![("err", code.to_string())];
        page.labelled_counter(
            "redis_errors_total",
            "Error replies by error code.",
            labels,
            *count,
        );
    }
    for event in source.telemetry.latency.latest() {
        let labels = || vec![("event_name", event.name.clone())];
        page.labelled_gauge(
            "redis_latency_spike_last",
            "Unix time of the latest latency spike of an event.",
            labels(),
            event.at_s as f64,
        );
        page.labelled_gauge(
            "redis_latency_spike_duration_seconds",
            "Duration of the latest latency spike of an event.",
            labels(),
            event.latest_ms as f64 / 1e3,
        );
    }
}

fn keyspace(page: &mut MetricsPage, snapshot: &Snapshot) {
    for (name, bytes) in &snapshot.memory.largest {
        page.labelled_gauge(
            "basalt_largest_value_bytes",
            "Memory of the largest value of a type in bytes; values below 16 KiB are not tracked.",
            vec![("type", (*name).to_owned())],
            *bytes as f64,
        );
    }
    for (index, (keys, volatile)) in snapshot.memory.dbs.iter().enumerate() {
        let labels = || vec![("db", format!("db{index}"))];
        page.labelled_gauge(
            "redis_db_keys",
            "Number of keys of a database.",
            labels(),
            *keys as f64,
        );
        page.labelled_gauge(
            "redis_db_keys_expiring",
            "Number of keys with a TTL.",
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
            "Evicted keys by eviction queue.",
            vec![("queue", queue.to_owned())],
            count,
        );
    }
    expiry_lag(page, snapshot);
}

/// One metric of databases: its name, its help text, and the function that reads the figure.
type DatabaseRow = (&'static str, &'static str, fn(&DbCounts) -> u64);

static DATABASE_COUNTERS: [DatabaseRow; 4] = [
    (
        "basalt_db_hits_total",
        "Lookups in a database that found a key.",
        |counts| counts.hits,
    ),
    (
        "basalt_db_misses_total",
        "Lookups in a database that found no key.",
        |counts| counts.misses,
    ),
    (
        "basalt_db_expired_keys_total",
        "Expired keys of a database.",
        |counts| counts.expired,
    ),
    (
        "basalt_db_evicted_keys_total",
        "Evicted keys of a database.",
        |counts| counts.evicted,
    ),
];

fn databases(page: &mut MetricsPage, snapshot: &Snapshot) {
    for (index, db) in snapshot.databases.iter().enumerate() {
        let labels = || vec![("db", format!("db{index}"))];
        page.labelled_gauge(
            "basalt_db_bytes",
            "Memory of the keys and values of a database in bytes.",
            labels(),
            db.bytes as f64,
        );
        page.labelled_gauge(
            "basalt_db_share_bytes",
            "Memory share of a database in bytes (maxmemory-db); 0: no share.",
            labels(),
            db.share_bytes as f64,
        );
        for (name, help, read) in &DATABASE_COUNTERS {
            page.labelled_counter(name, help, labels(), read(&db.counts));
        }
    }
}

fn expiry_lag(page: &mut MetricsPage, snapshot: &Snapshot) {
    let below = |bucket: usize| snapshot.lag[..=bucket].iter().sum::<u64>();
    let bounds = LAG_BOUNDS_MS.iter().enumerate();
    page.histogram(
        "basalt_expiry_lag_seconds",
        "Delay between the expiry of keys and their deletion in seconds.",
        [HistogramSeries {
            labels: Vec::new(),
            buckets: bounds
                .map(|(bucket, ms)| (*ms as f64 / 1e3, below(bucket)))
                .collect(),
            count: snapshot.lag.iter().sum(),
            sum: snapshot.lag_sum_ms as f64 / 1e3,
        }],
    );
}

/// Writes the figures of clients' TLS handshakes.
fn handshakes(page: &mut MetricsPage, service: &dyn Observed) {
    let figures = &service.telemetry().handshakes;
    page.counter(
        "basalt_tls_handshakes_total",
        "Successful TLS handshakes of clients.",
        figures.done.load(Relaxed),
    );
    page.gauge(
        "basalt_tls_handshakes_under_way",
        "TLS handshakes in progress.",
        figures.under_way.load(Relaxed) as f64,
    );
    page.gauge(
        "basalt_tls_handshakes_waiting",
        "Connections whose TLS handshake has not begun.",
        figures.waiting.load(Relaxed) as f64,
    );
    for (reason, count) in figures.failures() {
        page.labelled_counter(
            "basalt_tls_handshakes_failed_total",
            "Failed TLS handshakes of clients by reason.",
            vec![("reason", reason.to_owned())],
            count,
        );
    }
}

/// Writes the expiry of the server's certificates, if TLS is in use.
fn certificates(page: &mut MetricsPage, service: &dyn Observed) {
    let Some(contexts) = service.tls() else {
        return;
    };
    for certificate in &contexts.own {
        let Some(ends_s) = certificate.ends_s else {
            continue;
        };
        page.labelled_gauge(
            "basalt_tls_certificate_end_timestamp_seconds",
            "Expiry time of a certificate of the server or its chain in Unix seconds.",
            vec![("directive", certificate.directive.to_owned())],
            ends_s as f64,
        );
    }
    let is_good = service.tls_failure().is_none();
    page.gauge(
        "basalt_tls_last_reload_status",
        "0 if changed TLS files could not be loaded, else 1.",
        f64::from(u8::from(is_good)),
    );
}

/// Writes the figures of scripts and transactions, by the shards that they locked.
fn scripts_and_transactions(page: &mut MetricsPage, snapshot: &Snapshot) {
    let scripts = snapshot.scripts;
    for (name, help, extents) in [
        (
            "basalt_script_runs_total",
            "Scripts and functions run, by number of shards.",
            scripts.runs,
        ),
        (
            "basalt_transactions_total",
            "Transactions run, by number of shards.",
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
fn hot_keys(page: &mut MetricsPage, service: &dyn Observed) {
    const RANKS: usize = 10;
    let top = service.telemetry().hot_keys.top(RANKS);
    for (name, help, keys, total) in [
        (
            "basalt_hot_key_commands_ratio",
            "Ratio of all key accesses that go to the hottest keys, by rank; HOTKEYS TOP shows their names.",
            &top.by_commands,
            top.commands,
        ),
        (
            "basalt_hot_key_bytes_ratio",
            "Ratio of the traffic of all commands with keys that goes to the hottest keys, by rank.",
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

fn miss_ratio(page: &mut MetricsPage, snapshot: &Snapshot) {
    let curve = &snapshot.curve;
    // Omit unknown figures: a zero would be wrong.
    if let Some(measured) = curve.measured {
        page.gauge(
            "basalt_curve_measured_hit_ratio",
            "Measured hit ratio of the lookups used for the curve.",
            measured,
        );
    }
    if let Some(unseen) = curve.unseen {
        page.gauge(
            "basalt_curve_first_reads_ratio",
            "Ratio of lookups that would miss in a cache of any size.",
            unseen,
        );
    }
    for (name, help, ratios) in [
        (
            "basalt_curve_hit_ratio",
            "Estimated hit ratio with other memory sizes, relative to the current size of the data (1).",
            &curve.corrected,
        ),
        (
            "basalt_curve_lru_hit_ratio",
            "Estimated hit ratio of an exact LRU cache with other memory sizes, relative to the current size.",
            &curve.lru,
        ),
    ] {
        for (percent, ratio) in PERCENT.iter().zip(ratios.iter().flatten()) {
            let size = (*percent as f64 / 100.0).to_string();
            page.labelled_gauge(name, help, vec![("memory", size)], *ratio);
        }
    }
}

fn commands(page: &mut MetricsPage, snapshot: &Snapshot) {
    let labels = |command: &CommandFigures| vec![("cmd", command.name.to_owned())];
    for command in &snapshot.commands {
        for (name, help, count) in [
            ("redis_commands_total", "Calls of a command.", command.calls),
            (
                "redis_commands_rejected_calls_total",
                "Calls of a command that were rejected before it ran.",
                command.rejected,
            ),
            (
                "redis_commands_failed_calls_total",
                "Calls of a command that failed.",
                command.failed,
            ),
        ] {
            page.labelled_counter(name, help, labels(command), count);
        }
    }
    let commands = snapshot.commands.iter();
    page.seconds_total(
        "redis_commands_duration_seconds_total",
        "Total time of all calls of a command in seconds.",
        commands.map(|command| (labels(command), command.duration_ns as f64 / 1e9)),
    );
    let latencies = snapshot.commands.iter().map(|command| {
        let mut below = 0;
        let buckets = (0..BOUNDED_BUCKETS).map(|bucket| {
            below += command.buckets[bucket];
            (upper_ns(bucket) as f64 / 1e3, below)
        });
        HistogramSeries {
            labels: labels(command),
            buckets: buckets.collect(),
            // Sum the buckets instead of reading `calls`, so that the count agrees with them even while
            // commands run.
            count: command.buckets.iter().sum(),
            sum: command.duration_ns as f64 / 1e3,
        }
    });
    page.histogram(
        "redis_commands_latencies_usec",
        "Latency histogram of a command in microseconds.",
        latencies,
    );
}

/// One metric of shards: its name, its help text, and the function that reads the figure.
type ShardRow = (&'static str, &'static str, fn(&ShardFigures) -> u64);

static SHARD_GAUGES: [ShardRow; 2] = [
    ("basalt_shard_keys", "Number of keys of a shard.", |shard| {
        shard.keys
    }),
    (
        "basalt_shard_bytes",
        "Memory of a shard in bytes.",
        |shard| shard.bytes,
    ),
];

static SHARD_COUNTERS: [ShardRow; 7] = [
    (
        "basalt_shard_commands_total",
        "Commands run on a shard.",
        |shard| shard.commands,
    ),
    (
        "basalt_shard_takes_total",
        "Times that the shard was acquired.",
        |shard| shard.token.takes,
    ),
    (
        "basalt_shard_takes_found_held_total",
        "Attempts to acquire the shard that found it busy.",
        |shard| shard.token.takes_found_held,
    ),
    (
        "basalt_shard_queued_total",
        "Commands that were queued because the shard was busy.",
        |shard| shard.token.queued,
    ),
    (
        "basalt_shard_multi_shard_operations_total",
        "Operations on several shards.",
        |shard| shard.token.multi_shard_runs,
    ),
    (
        "basalt_shard_handovers_total",
        "Times that a command over several shards took the shard along.",
        |shard| shard.token.handed_over,
    ),
    (
        "basalt_shard_worker_handovers_total",
        "Times that the shard was handed to its worker thread.",
        |shard| shard.token.worker_handovers,
    ),
];

fn shards(page: &mut MetricsPage, snapshot: &Snapshot) {
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
            "Longest time that a shard was busy in seconds.",
            labels(),
            shard.token.longest_hold_ns as f64 / 1e9,
        );
    }
}

#[cfg(test)]
mod tests;
