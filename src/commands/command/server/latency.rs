//! LATENCY: latency spikes, by event and time.

use super::super::context::SessionCx;
use super::super::declaration::{Command, CommandResult, Flags, Group};
use super::super::error::shown;
use super::super::registry::registry;
use super::super::{Args, Out};
use crate::command::help::text;

const GROUP: Group = Group::Server;
const FLAGS: Flags = Flags::ADMIN
    .or(Flags::NOSCRIPT)
    .or(Flags::LOADING)
    .or(Flags::STALE);

/// `LATENCY subcommand`
pub(super) static LATENCY: Command = Command::new("latency", GROUP, -2)
    .doc("2.8.13", "", "Groups the commands for latency diagnostics.")
    .complexity("Depends on subcommand.")
    .container(&[
        &DOCTOR, &GRAPH, &HELP, &HISTOGRAM, &HISTORY, &LATEST, &RESET,
    ]);

/// `LATENCY DOCTOR`
static DOCTOR: Command = Command::sub("latency|doctor", "doctor", GROUP, 2)
    .flags(FLAGS)
    .doc(
        "2.8.13",
        "",
        "Returns a human-readable report about latency.",
    )
    .tips(&[
        "nondeterministic_output",
        "request_policy:all_nodes",
        "response_policy:special",
    ])
    .repeatable()
    .on_session(doctor);

fn doctor(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    out.verbatim("txt", cx.server.latency_doctor());
    Ok(())
}

/// `LATENCY GRAPH event`
static GRAPH: Command = Command::sub("latency|graph", "graph", GROUP, 3)
    .flags(FLAGS)
    .doc(
        "2.8.13",
        "event",
        "Returns a graph of the latency samples of an event.",
    )
    .tips(&[
        "nondeterministic_output",
        "request_policy:all_nodes",
        "response_policy:special",
    ])
    .repeatable()
    .on_session(graph);

fn graph(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let event = text(args, 2);
    match cx.server.latency_graph(&event) {
        Some(drawing) => out.verbatim("txt", drawing),
        None => {
            let event = shown(args.get(2));
            return Err(format!("ERR No samples available for event '{event}'").into());
        }
    }
    Ok(())
}

/// `LATENCY HISTOGRAM [command [command ...]]`
static HISTOGRAM: Command = Command::sub("latency|histogram", "histogram", GROUP, -2)
    .flags(FLAGS)
    .doc(
        "7.0.0",
        "[command [command ...]]",
        "Returns latency histograms of commands.",
    )
    .complexity("O(N) where N is the number of commands with latency information being retrieved.")
    .tips(&[
        "nondeterministic_output",
        "request_policy:all_nodes",
        "response_policy:special",
    ])
    .repeatable()
    .on_session(histogram);

fn histogram(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let mut wanted = Vec::new();
    if args.len() == 2 {
        wanted.extend(registry().all().iter().copied());
    }
    for name in args.from(2) {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        if let Some(command) = registry().by_full_name(&name) {
            wanted.push(command);
            wanted.extend(command.children().iter().copied());
        }
    }
    let rows: Vec<_> = wanted
        .into_iter()
        .filter_map(|command| {
            Some((
                command.full_name,
                cx.server.latency_histogram(command.id())?,
            ))
        })
        .collect();
    out.map(rows.len());
    for (name, (calls, buckets)) in rows {
        out.bulk(name.as_bytes());
        out.map(2);
        out.bulk(b"calls");
        out.integer(calls as i64);
        out.bulk(b"histogram_usec");
        out.map(buckets.len());
        for (bound_us, count) in buckets {
            out.integer(bound_us as i64);
            out.integer(count as i64);
        }
    }
    Ok(())
}

/// `LATENCY HISTORY event`
static HISTORY: Command = Command::sub("latency|history", "history", GROUP, 3)
    .flags(FLAGS)
    .doc(
        "2.8.13",
        "event",
        "Returns the times and latencies of an event.",
    )
    .tips(&[
        "nondeterministic_output",
        "request_policy:all_nodes",
        "response_policy:special",
    ])
    .repeatable()
    .on_session(history);

fn history(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let samples = cx.server.latency_history(&text(args, 2));
    out.array(samples.len());
    for (at_s, latency_ms) in samples {
        out.array(2);
        out.integer(at_s as i64);
        out.integer(latency_ms as i64);
    }
    Ok(())
}

/// `LATENCY LATEST`
static LATEST: Command = Command::sub("latency|latest", "latest", GROUP, 2)
    .flags(FLAGS)
    .doc("2.8.13", "", "Returns the latest latency of every event.")
    .tips(&[
        "nondeterministic_output",
        "request_policy:all_nodes",
        "response_policy:special",
    ])
    .repeatable()
    .on_session(latest);

fn latest(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let events = cx.server.latency_latest();
    out.array(events.len());
    for event in events {
        out.array(4);
        out.bulk(event.name.as_bytes());
        out.integer(event.at_s as i64);
        out.integer(event.latest_ms as i64);
        out.integer(event.max_ms as i64);
    }
    Ok(())
}

/// `LATENCY RESET [event [event ...]]`
static RESET: Command = Command::sub("latency|reset", "reset", GROUP, -2)
    .flags(FLAGS)
    .doc(
        "2.8.13",
        "[event [event ...]]",
        "Resets the latency data of events, or of all of them.",
    )
    .tips(&["request_policy:all_nodes", "response_policy:agg_sum"])
    .on_session(reset);

fn reset(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let events: Vec<String> = (2..args.len()).map(|index| text(args, index)).collect();
    out.integer(cx.server.latency_reset(&events) as i64);
    Ok(())
}

/// `LATENCY HELP`
static HELP: Command = Command::sub("latency|help", "help", GROUP, 2)
    .doc("2.8.13", "", "Explains the subcommands of LATENCY.")
    .on_help(&[
        "DOCTOR",
        "    Return a human-readable report about latency.",
        "GRAPH <event>",
        "    Return a graph of the samples of an event.",
        "HISTORY <event>",
        "    Return the times and latencies of an event.",
        "HISTOGRAM [COMMAND ...]",
        "    Return latency histograms of commands, as cumulative counts.",
        "LATEST",
        "    Return the latest latency of every event.",
        "RESET [<event> ...]",
        "    Reset the latency data of events, or of all of them.",
    ]);
