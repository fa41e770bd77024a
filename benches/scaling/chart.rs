//! The chart: throughput over threads, a panel per row, a line per server.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::rows::Outcome;
use super::support::process;

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 180.0;
const MARGIN: f64 = 50.0;
const COLUMNS: usize = 3;

fn colour(server: &str) -> &'static str {
    match server {
        "basalt" => "#4a6fa5",
        "memcached" => "#b0703c",
        server if server.starts_with("valkey") => "#5f8f5a",
        server if server.ends_with("one thread") => "#999999",
        _ => "#c0504d",
    }
}

/// Returns the chart as SVG.
pub(crate) fn draw(outcomes: &[Outcome]) -> String {
    let mut panels: Vec<(&str, BTreeMap<&str, Vec<&Outcome>>)> = Vec::new();
    for outcome in outcomes {
        let at = panels.iter().position(|(row, _)| *row == outcome.scenario);
        let at = at.unwrap_or_else(|| {
            panels.push((&outcome.scenario, BTreeMap::new()));
            panels.len() - 1
        });
        panels[at]
            .1
            .entry(&outcome.server)
            .or_default()
            .push(outcome);
    }
    let most_threads = outcomes
        .iter()
        .map(|outcome| outcome.threads)
        .max()
        .unwrap_or(1);
    let mut body = String::new();
    for (number, (row, lines)) in panels.iter().enumerate() {
        let left = MARGIN + (number % COLUMNS) as f64 * (WIDTH + 2.0 * MARGIN);
        let top = 2.0 * MARGIN + (number / COLUMNS) as f64 * (HEIGHT + 1.6 * MARGIN);
        panel(&mut body, (left, top), row, lines, most_threads);
    }
    let height = 2.0 * MARGIN + panels.len().div_ceil(COLUMNS) as f64 * (HEIGHT + 1.6 * MARGIN);
    let width = COLUMNS as f64 * (WIDTH + 2.0 * MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"22\" font-size=\"15\">Thousand operations a second over threads ({}, {})</text>\n{body}</svg>\n",
        process::machine(),
        process::date()
    )
}

fn panel(
    body: &mut String,
    (left, top): (f64, f64),
    row: &str,
    lines: &BTreeMap<&str, Vec<&Outcome>>,
    most_threads: usize,
) {
    let all = lines.values().flatten();
    let most = all.map(|outcome| outcome.ops_per_s).fold(1.0, f64::max) * 1.1;
    let bottom = top + HEIGHT;
    let x = |threads: usize| left + WIDTH * threads as f64 / most_threads as f64;
    let y = |ops: f64| bottom - HEIGHT * ops / most;
    let _ = writeln!(
        body,
        "<text x=\"{left}\" y=\"{}\">{row}</text>\
         <path d=\"M{left} {top}V{bottom}H{}\" fill=\"none\" stroke=\"#444\"/>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.0}</text>",
        top - 6.0,
        left + WIDTH,
        left - 4.0,
        top + 10.0,
        most / 1000.0
    );
    let mut ticks: Vec<usize> = lines
        .values()
        .flatten()
        .map(|outcome| outcome.threads)
        .collect();
    ticks.sort_unstable();
    ticks.dedup();
    for threads in ticks {
        let (at, below) = (x(threads), bottom + 14.0);
        let _ = writeln!(
            body,
            "<text x=\"{at}\" y=\"{below}\" text-anchor=\"middle\">{threads}</text>"
        );
    }
    for (number, (server, outcomes)) in lines.iter().enumerate() {
        let colour = colour(server);
        let points: Vec<String> = outcomes
            .iter()
            .map(|outcome| format!("{:.1},{:.1}", x(outcome.threads), y(outcome.ops_per_s)))
            .collect();
        let _ = writeln!(
            body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            points.join(" ")
        );
        for outcome in outcomes {
            let (at, height) = (x(outcome.threads), y(outcome.ops_per_s));
            let _ = writeln!(
                body,
                "<circle cx=\"{at:.1}\" cy=\"{height:.1}\" r=\"3\" fill=\"{colour}\"/>"
            );
        }
        let _ = writeln!(
            body,
            "<text x=\"{}\" y=\"{}\" fill=\"{colour}\">{server}</text>",
            left + 8.0,
            top + 14.0 + 13.0 * number as f64
        );
    }
}
