//! Sizes of requests and replies.

use super::page::{HistogramSeries, MetricsPage};
use crate::telemetry::Telemetry;
use crate::telemetry::counters;
use crate::telemetry::sizes::{CommandSizes, SizeFigures};

/// Bins of sizes that a histogram shows one by one: from 32 bytes to 512 MiB, in powers of four. Smaller and larger
/// sizes are in the first and the last one.
const SIZE_BOUNDS: std::ops::RangeInclusive<usize> = 5..=29;

/// Writes the sizes of requests and replies by command, if they are counted, and the numbers of commands that were
/// logged as slow or large.
pub(super) fn write(page: &mut MetricsPage, telemetry: &Telemetry) {
    command_sizes(page);
    command_logs(page, telemetry);
}

fn command_sizes(page: &mut MetricsPage) {
    let commands = counters::sizes();
    let series = |of: fn(&CommandSizes) -> &SizeFigures| {
        commands.iter().map(move |command| {
            let figures = of(command);
            let below = |bound: usize| figures.bins[..bound].iter().sum::<u64>();
            let bounds = SIZE_BOUNDS.step_by(2);
            HistogramSeries {
                labels: vec![("cmd", command.name.to_owned())],
                // Sizes are whole numbers: those below a power of two are at most one less.
                buckets: bounds
                    .map(|bound| (((1_u64 << bound) - 1) as f64, below(bound)))
                    .collect(),
                count: figures.count(),
                sum: figures.bytes as f64,
            }
        })
    };
    page.histogram(
        "basalt_command_request_bytes",
        "Sizes of a command's requests in bytes (size-tracking).",
        series(|command| &command.requests),
    );
    page.histogram(
        "basalt_command_reply_bytes",
        "Sizes of a command's replies in bytes (size-tracking).",
        series(|command| &command.replies),
    );
}

fn command_logs(page: &mut MetricsPage, telemetry: &Telemetry) {
    for (name, log) in [
        ("slow", &telemetry.slowlog),
        ("large-request", &telemetry.large_requests),
        ("large-reply", &telemetry.large_replies),
    ] {
        let (count, _) = log.totals();
        page.labelled_counter(
            "basalt_commandlog_entries_total",
            "Commands that were logged because they were slow, or their request or reply large (COMMANDLOG).",
            vec![("log", name.to_owned())],
            count,
        );
    }
}
