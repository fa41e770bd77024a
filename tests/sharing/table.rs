//! The counts of all commands as tables.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::counting::Counted;
use crate::driven::{AT_LIMIT, Driven};
use crate::lines::{Moves, Watched};
use crate::place::{Counts, Origin, Place, of};
use crate::workloads::{ALL, CHANNEL, DELETES, NEW_KEYS, WITH_DEADLINE, Workload};
use crate::{BATCHES, PIPELINE};

/// Least count in a batch for which a location has a row of its own.
const ROW_MIN: f64 = 0.5;

const SETTINGS: &[(&str, &[(&str, &str)])] = &[
    ("bare", &[]),
    (
        "everysec",
        &[("appendonly", "yes"), ("appendfsync", "everysec")],
    ),
];

/// Cost of one command in one setting.
struct Row {
    workload: &'static Workload,
    setting: &'static str,
    threads: usize,
    alone: Counts,
    half: Counts,
    batch: Counts,
}

/// Counts by place, the largest first, as lines.
pub(crate) fn list(counts: &Counts) -> String {
    let mut rows: Vec<_> = counts.iter().collect();
    rows.sort_by(|one, other| other.1.total_cmp(one.1));
    let mut text = String::new();
    for (place, count) in rows {
        writeln!(text, "{count:9.2}  {}", place.text).expect("a text");
    }
    text
}

fn sum(counts: &Counts) -> f64 {
    counts.values().sum()
}

/// Counts all commands in all settings, and returns the results.
pub(crate) fn of_all() -> String {
    let only = std::env::var("SHARING_ONLY").unwrap_or_default();
    let mut rows = Vec::new();
    for (setting, directives) in SETTINGS {
        for threads in [1, 4] {
            let mut counted = Counted::start(threads, directives);
            counted.prepare(crate::workloads::named("MSET of 10"));
            let mut subscriber = counted.driven.server.raw();
            subscriber.call(&format!("SUBSCRIBE {CHANNEL}"));
            for workload in ALL
                .iter()
                .filter(|workload| only.is_empty() || workload.name == only)
            {
                let mut batch = |pipeline| counted.batch(workload, pipeline, BATCHES / 2);
                let row = Row {
                    workload,
                    setting,
                    threads,
                    alone: batch(1),
                    half: batch(PIPELINE / 2),
                    batch: batch(PIPELINE),
                };
                let all = sum(&row.batch);
                eprintln!("{setting}, {threads} threads, {}: {all:.1}", workload.name);
                if !only.is_empty() {
                    eprintln!("{}", list(&row.batch));
                }
                rows.push(row);
            }
        }
    }
    summary(&rows) + &places(&rows, "bare") + &places(&rows, "everysec")
}

/// Returns one line for each command. For this server's own counts, those of tokens included, it shows the
/// cost for each command and for each batch of 16; the others depend on which threads happen to sleep.
fn summary(rows: &[Row]) -> String {
    let mut text = "| command | setting | threads | P=1 | P=16 | of tokens | our own | others' | ours, each command | \
                    ours, each batch |\n|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    let ours = |counts: &Counts| of(counts, Origin::Token) + of(counts, Origin::Own);
    for row in rows {
        let half = PIPELINE / 2;
        let each = (ours(&row.batch) - ours(&row.half)) / half as f64;
        let once = ours(&row.batch) - each * PIPELINE as f64;
        writeln!(
            text,
            "| {} | {} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {each:.1} | {:.1} |",
            row.workload.name,
            row.setting,
            row.threads,
            sum(&row.alone),
            sum(&row.batch),
            of(&row.batch, Origin::Token).abs(),
            of(&row.batch, Origin::Own),
            of(&row.batch, Origin::Foreign),
            once.max(0.0),
        )
        .expect("a text");
    }
    text
}

/// Returns one line for each location: its count in a batch of 16 of each command, with four threads.
fn places(rows: &[Row], setting: &str) -> String {
    let rows: Vec<&Row> = rows
        .iter()
        .filter(|row| row.setting == setting && row.threads > 1)
        .collect();
    let mut largest: BTreeMap<&Place, f64> = BTreeMap::new();
    for row in &rows {
        for (place, count) in &row.batch {
            let most = largest.entry(place).or_default();
            *most = most.max(*count);
        }
    }
    let names: Vec<&str> = rows.iter().map(|row| row.workload.name).collect();
    let mut text = format!(
        "\nA batch of 16, {setting}, 4 threads:\n\n| place | {} |\n|---|{}\n",
        names.join(" | "),
        "---|".repeat(names.len())
    );
    let mut line = |name: &str, count_of: &dyn Fn(&Row) -> f64| {
        let cells = rows.iter().map(|row| match count_of(row) {
            count if count < 0.05 => String::new(),
            count => format!("{count:.1}"),
        });
        let cells: Vec<String> = cells.collect();
        writeln!(text, "| {name} | {} |", cells.join(" | ")).expect("a text");
    };
    for (place, most) in &largest {
        if *most >= ROW_MIN {
            line(&place.text, &|row| {
                row.batch.get(*place).copied().unwrap_or(0.0)
            });
        }
    }
    let is_small = |place: &Place| largest[place] < ROW_MIN;
    line("other places", &|row| {
        let small = row.batch.iter().filter(|(place, _)| is_small(place));
        small.map(|(_, count)| count).sum()
    });
    text
}

/// Batches of each connection whose loads and stores are followed.
const WATCHED_BATCHES: usize = 25;

/// Commands whose lines are followed.
const WATCHED: &[&str] = &["GET", "SET"];

/// Commands whose lines are followed in a full cache.
const WATCHED_AT_LIMIT: &[&Workload] = &[&NEW_KEYS, &WITH_DEADLINE, &DELETES];

/// Returns the cache lines that go from thread to thread in a batch, by location.
pub(crate) fn of_lines() -> String {
    let mut text = String::new();
    for (setting, directives) in SETTINGS {
        let mut watched = Watched::start(4, directives);
        watched
            .driven
            .drive(crate::workloads::named("SET"), PIPELINE, 20);
        for name in WATCHED {
            for pipeline in [1, PIPELINE] {
                let workload = crate::workloads::named(name);
                let moves = watched.batch(workload, pipeline, WATCHED_BATCHES);
                text += &moves_of(&format!("{name}, P={pipeline}, {setting}"), &moves);
            }
        }
    }
    let mut watched = Watched::start(4, AT_LIMIT);
    watched.prepare(Driven::fill_to_limit);
    for workload in WATCHED_AT_LIMIT {
        let moves = watched.batch(workload, PIPELINE, WATCHED_BATCHES);
        text += &moves_of(
            &format!("{}, P={PIPELINE}, at the limit", workload.name),
            &moves,
        );
    }
    text
}

fn moves_of(title: &str, moves: &Moves) -> String {
    let mut rows: Vec<_> = moves.iter().collect();
    rows.sort_by(|one, other| other.1.0.total_cmp(&one.1.0));
    let all: f64 = moves.values().map(|(count, _)| count).sum();
    let mut text = format!(
        "\n{title}: {all:.1} in a batch\n\n| in a batch | different lines | place |\n|---|---|---|\n"
    );
    for (place, (count, lines)) in rows.iter().filter(|(_, (count, _))| *count >= 0.1) {
        writeln!(text, "| {count:.2} | {lines} | {} |", place.text).expect("a text");
    }
    text
}
