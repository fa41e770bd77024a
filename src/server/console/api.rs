//! The JSON API: the console's facts under stable paths, in a table with a row per path.

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use super::facts::{
    HIDDEN, clients, cluster, contents, databases, keys, name, prefixes, replication, settings,
    slow,
};
use super::view::View;
use super::viewer::Sight;
use crate::telemetry::history::series::{self, SERIES};
use crate::telemetry::history::{HISTORY_BUCKETS, HistoryResolution, bucket_upper_bound_ns};
use crate::telemetry::log;
use crate::telemetry::miss_ratio::{CurveFigures, PERCENT};
use basalt_core::base::info;
use basalt_core::base::text::visible;

/// A response: facts, or an error status with its reason.
type Answered = Result<Value, (StatusCode, String)>;

/// A path of the API, with its description and the function that produces its facts.
pub(super) struct Endpoint {
    pub(super) path: &'static str,
    says: &'static str,
    pub(super) answer: fn(&View<'_>) -> Answered,
}

const fn endpoint(
    path: &'static str,
    says: &'static str,
    answer: fn(&View<'_>) -> Answered,
) -> Endpoint {
    Endpoint { path, says, answer }
}

/// All paths of the API.
pub(super) static ENDPOINTS: [Endpoint; 20] = [
    endpoint("/api/v1", "All paths of this API.", |_| {
        let row = |endpoint: &Endpoint| json!({ "path": endpoint.path, "says": endpoint.says });
        Ok(Value::Array(ENDPOINTS.iter().map(row).collect()))
    }),
    endpoint(
        "/api/v1/overview",
        "INFO by section, and the latest second of every series.",
        overview,
    ),
    endpoint(
        "/api/v1/history",
        "Series of the last hour or day: ?series=ops,hit_ratio&step=second|minute&since=UNIX.",
        history,
    ),
    endpoint(
        "/api/v1/latency",
        "Commands per second by latency: ?step=second|minute&since=UNIX.",
        latency,
    ),
    endpoint(
        "/api/v1/findings",
        "Problems that need attention, each with its remedy, as in MEMORY DOCTOR and LATENCY DOCTOR.",
        |view| Ok(findings(view)),
    ),
    endpoint(
        "/api/v1/miss-ratio",
        "Estimated hit ratios with other memory sizes.",
        |view| Ok(miss_ratio(view)),
    ),
    endpoint(
        "/api/v1/memory",
        "Memory by data type and by key prefix, estimated from a random sample of keys.",
        |view| {
            let mut made_of = contents::contents(view).json();
            let by_prefix = prefixes::prefixes(view);
            made_of["prefixes"] = by_prefix.map_or_else(|| json!([]), |found| found.json());
            Ok(made_of)
        },
    ),
    endpoint(
        "/api/v1/hot-keys",
        "Keys with the most uses and the most traffic recently: ?count=N.",
        |view| Ok(keys::hot(view, view.query.count("count", 20, keys::KEYS_MAX)).json()),
    ),
    endpoint(
        "/api/v1/big-keys",
        "The largest values: ?count=N.",
        |view| {
            let count = view.query.count("count", 20, keys::KEYS_MAX);
            Ok(keys::big_json(&keys::big(view, count)))
        },
    ),
    endpoint(
        "/api/v1/databases",
        "Keys, bytes, share (maxmemory-db; 0: none) and counters of each database.",
        |view| Ok(databases::json(&databases::databases(view))),
    ),
    endpoint(
        "/api/v1/leases",
        "INFO leases: leases that are active, granted, filled and void, and tags that were invalidated.",
        |view| Ok(section(view, "leases")),
    ),
    endpoint(
        "/api/v1/locks",
        "INFO locks: locks, rate limits (CL.THROTTLE) and delay queues (BZPOPDUE).",
        |view| Ok(section(view, "locks")),
    ),
    endpoint(
        "/api/v1/slow-log",
        "Entries of the slow log: ?count=N.",
        |view| {
            let count = view.query.count("count", 50, slow::ENTRIES_MAX);
            Ok(slow::json(&slow::entries(view, count)))
        },
    ),
    endpoint(
        "/api/v1/clients",
        "Connections: ?search=TEXT&sort=COLUMN&order=asc|desc&page=N&rows=N.",
        |view| Ok(clients::find(view, clients::ClientQuery::of(&view.query)).json()),
    ),
    endpoint(
        "/api/v1/persistence",
        "INFO persistence: snapshots, the append-only file and its fsyncs.",
        |view| Ok(section(view, "persistence")),
    ),
    endpoint(
        "/api/v1/replication",
        "The primary of this server, its replicas, and how far they are behind.",
        |view| Ok(replication::picture(view).json()),
    ),
    endpoint(
        "/api/v1/cluster",
        "Nodes, slots and links as this node sees them; null when cluster mode is off.",
        |view| Ok(cluster::seen(view).map_or(Value::Null, |seen| seen.json())),
    ),
    endpoint(
        "/api/v1/config",
        "Directives that differ from their defaults.",
        |view| Ok(settings::json(&settings::differing(view))),
    ),
    endpoint("/api/v1/log", "The latest log lines: ?lines=N.", lines),
    endpoint(
        "/api/v1/commands",
        "INFO commandstats: calls, time, rejections and errors of each command.",
        |view| Ok(section(view, "commandstats")),
    ),
];

/// Returns the row of a path, with or without a trailing slash.
pub(super) fn find(path: &str) -> Option<&'static Endpoint> {
    let path = path.strip_suffix('/').unwrap_or(path);
    ENDPOINTS.iter().find(|endpoint| endpoint.path == path)
}

/// Converts a field of INFO, to a number if it is one; values with leading zeros, or with more digits than a
/// number can have, stay texts.
fn value(text: &str) -> Value {
    let is_padded = text.len() > 1 && text.starts_with('0') && !text.starts_with("0.");
    if let Ok(whole) = text.parse::<i64>()
        && !is_padded
        && !text.starts_with('+')
    {
        return json!(whole);
    }
    match info::number(text) {
        Some(number) if !is_padded && text.len() <= 16 && text.matches('.').count() <= 1 => {
            json!(number)
        }
        _ if text.contains('=') => {
            let parts = text.split(',').filter_map(|part| part.split_once('='));
            let parts = parts.map(|(name, part)| (name.to_owned(), value(part)));
            Value::Object(parts.collect::<Map<_, _>>())
        }
        _ => json!(text),
    }
}

/// Whether a field of INFO reveals the address of a primary or replica; such fields need the same permission as
/// clients' addresses.
fn is_address(field: &str) -> bool {
    let of_replica = field.strip_prefix("slave");
    field == "master_host"
        || of_replica.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
}

fn section(view: &View<'_>, title: &str) -> Value {
    let sees = view.viewer.sees(Sight::Clients);
    let fields = view.info.section(title).iter();
    let shown = fields.map(|(name, text)| match is_address(name) && !sees {
        true => (name.clone(), json!(HIDDEN)),
        false => (name.clone(), value(text)),
    });
    Value::Object(shown.collect::<Map<_, _>>())
}

fn overview(view: &View<'_>) -> Answered {
    let mut sections = Map::new();
    for (title, _) in view.info.sections() {
        if !title.ends_with("stats") || title == "stats" {
            sections.insert(title.to_owned(), section(view, title));
        }
    }
    // Hide file paths, which reveal facts about the machine.
    if !view.viewer.sees(Sight::Config)
        && let Some(Value::Object(server)) = sections.get_mut("server")
    {
        for field in ["executable", "config_file"] {
            if server.contains_key(field) {
                server.insert(field.to_owned(), json!(HIDDEN));
            }
        }
    }
    let mut latest = Map::new();
    let since_s = view.now_s.saturating_sub(10);
    view.service
        .telemetry()
        .history
        .each(HistoryResolution::Second, since_s, |point| {
            for (index, row) in SERIES.iter().enumerate() {
                latest.insert(row.name.to_owned(), json!(point.value(index)));
            }
        });
    Ok(json!({ "time": view.now_s, "info": sections, "latest": latest }))
}

/// Returns the requested step and start time.
fn span(view: &View<'_>) -> Result<(HistoryResolution, u64), (StatusCode, String)> {
    let step = match view.query.get("step") {
        None | Some("second") => HistoryResolution::Second,
        Some("minute") => HistoryResolution::Minute,
        Some(other) => {
            return Err(bad(format!(
                "unknown step {:?}: use second or minute",
                name(other.as_bytes())
            )));
        }
    };
    match view.query.get("since").map(str::parse) {
        None => Ok((step, 0)),
        Some(Ok(since_s)) => Ok((step, since_s)),
        Some(Err(_)) => Err(bad("since must be a Unix time in seconds".to_owned())),
    }
}

fn bad(text: String) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, text)
}

fn history(view: &View<'_>) -> Answered {
    let (step, since_s) = span(view)?;
    let asked = view
        .query
        .get("series")
        .unwrap_or("ops,hit_ratio,latency_p99,memory_used");
    let mut wanted = Vec::new();
    for each in asked.split(',').take(SERIES.len()) {
        match series::find(each) {
            Some(index) => wanted.push(index),
            None if each == "all" => wanted.extend(0..SERIES.len()),
            None => return Err(bad(format!("unknown series {:?}", name(each.as_bytes())))),
        }
    }
    // Return each series at most once, so that the response is bounded.
    let mut is_new = [true; SERIES.len()];
    wanted.retain(|index| std::mem::take(&mut is_new[*index]));
    let rows = wanted.iter().map(|index| {
        let row = &SERIES[*index];
        json!({ "name": row.name, "unit": row.unit.name(), "says": row.says })
    });
    let rows: Vec<Value> = rows.collect();
    let mut points = Vec::new();
    view.service
        .telemetry()
        .history
        .each(step, since_s, |point| {
            let values = wanted.iter().map(|index| json!(point.value(*index)));
            points.push(Value::Array(
                std::iter::once(json!(point.at_s)).chain(values).collect(),
            ));
        });
    Ok(json!({ "step": seconds(step), "series": rows, "points": points }))
}

fn seconds(step: HistoryResolution) -> u64 {
    match step {
        HistoryResolution::Second => 1,
        HistoryResolution::Minute => 60,
    }
}

fn latency(view: &View<'_>) -> Answered {
    let (step, since_s) = span(view)?;
    let bounds = (0..HISTORY_BUCKETS)
        .map(|bucket| json!(bucket_upper_bound_ns(bucket).map(|bound_ns| bound_ns as f64 / 1e3)));
    let bounds: Vec<Value> = bounds.collect();
    let mut points = Vec::new();
    view.service
        .telemetry()
        .history
        .each(step, since_s, |point| {
            let counts = (0..HISTORY_BUCKETS).map(|bucket| json!(point.bucket(bucket)));
            points.push(Value::Array(
                std::iter::once(json!(point.at_s)).chain(counts).collect(),
            ));
        });
    Ok(json!({ "step": seconds(step), "below_us": bounds, "points": points }))
}

fn findings(view: &View<'_>) -> Value {
    let findings = view.findings().into_iter();
    let finding = findings
        .map(|(about, text, remedy)| json!({ "about": about, "text": text, "remedy": remedy }));
    Value::Array(finding.collect())
}

fn miss_ratio(view: &View<'_>) -> Value {
    let curve = CurveFigures::gather(view.service.all_published());
    let points = PERCENT.iter().enumerate().map(|(index, percent)| {
        json!({
            "percent": percent,
            "bytes": curve.memory_bytes * percent / 100,
            "hit_ratio": curve.corrected.map(|ratios| ratios[index]),
            "lru_hit_ratio": curve.lru.map(|ratios| ratios[index]),
        })
    });
    json!({
        "kept": curve.is_kept,
        "memory": curve.memory_bytes,
        "measured": curve.measured,
        "first_reads": curve.unseen,
        "reads": curve.reads,
        "samples": curve.samples,
        "points": points.collect::<Vec<_>>(),
    })
}

fn lines(view: &View<'_>) -> Answered {
    if !view.viewer.sees(Sight::Log) {
        return Err((
            StatusCode::FORBIDDEN,
            "log lines are shown only to users who may run MONITOR".to_owned(),
        ));
    }
    let count = view.query.count("lines", 100, log::recent::LINES_MAX);
    let line = |line: &log::recent::RecentLogLine| json!({ "time": line.at_ms as f64 / 1e3, "level": line.level, "text": visible(line.text.as_bytes()) });
    Ok(Value::Array(log::latest(count).iter().map(line).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_numbers_where_they_are_numbers_and_texts_where_they_are_texts() {
        for (text, wanted) in [
            ("12", json!(12)),
            ("-1", json!(-1)),
            ("50.25%", json!(50.25)),
            ("0.5", json!(0.5)),
            ("0", json!(0)),
            ("00000000", json!("00000000")),
            ("7.4.0", json!("7.4.0")),
            ("ok", json!("ok")),
            ("1e5", json!("1e5")),
            ("keys=5,expires=0", json!({ "keys": 5, "expires": 0 })),
            (
                "1234567890123456789012345678901234567890",
                json!("1234567890123456789012345678901234567890"),
            ),
        ] {
            assert_eq!(value(text), wanted, "{text}");
        }
    }

    #[test]
    fn paths_are_found_with_a_slash_at_their_end_or_without_and_no_others() {
        assert!(find("/api/v1/").is_some() && find("/api/v1/clients").is_some());
        for path in [
            "/api",
            "/api/v1/../v1/clients",
            "/api/v1/client",
            "/api/v1/clients//",
            "//api/v1",
        ] {
            assert!(find(path).is_none(), "{path}");
        }
    }

    /// Users' scripts rely on paths and series: removing or renaming a row must fail this test.
    #[test]
    fn each_path_and_each_series_stands_in_the_documentation() {
        let page = include_str!("../../../docs/console.md");
        for endpoint in &ENDPOINTS {
            assert!(
                page.contains(&format!("`{}`", endpoint.path)),
                "{}",
                endpoint.path
            );
        }
        for row in &SERIES {
            let line = format!("| `{}` | {} | {} |", row.name, row.unit.name(), row.says);
            assert!(page.contains(&line), "{line}");
        }
    }
}
