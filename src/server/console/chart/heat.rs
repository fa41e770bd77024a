//! Heat map of command latency over time: a column per time span, a row per latency bucket, and a stronger color for
//! more commands.

use std::fmt::Write as _;

use maud::{Markup, PreEscaped, html};

use super::lines::ChartSpan;
use super::{HEIGHT, WIDTH, ages, framed, time_us};
use crate::telemetry::history::{HISTORY_BUCKETS, MetricsHistory, bucket_upper_bound_ns};

/// Columns of the map.
const COLUMNS: usize = 60;

/// Number of color strengths.
const STRENGTHS: usize = 6;

/// Minimum number of rows.
const ROWS_MIN: usize = 6;

/// Draws the map.
pub(crate) fn draw(history: &MetricsHistory, span: ChartSpan, now_s: u64) -> Markup {
    let since_s = now_s.saturating_sub(span.seconds);
    let mut cells = vec![[0.0_f64; HISTORY_BUCKETS]; COLUMNS];
    history.each(span.step, since_s, |point| {
        let age = point.at_s.min(now_s) - since_s;
        let column = (age as usize * COLUMNS / span.seconds as usize).min(COLUMNS - 1);
        for (bucket, sum) in cells[column].iter_mut().enumerate() {
            *sum += point.bucket(bucket);
        }
    });
    let has_any = |bucket: &usize| cells.iter().any(|column| column[*bucket] > 0.0);
    let used: Vec<usize> = (0..HISTORY_BUCKETS).filter(has_any).collect();
    let (Some(first), Some(last)) = (used.first(), used.last()) else {
        return html! { p class="empty" { "No command has run yet." } };
    };
    let last = (*last).max(first + ROWS_MIN - 1).min(HISTORY_BUCKETS - 1);
    let first = (*first).min((last + 1).saturating_sub(ROWS_MIN));
    let rows = last - first + 1;
    let most = cells.iter().flatten().copied().fold(0.0, f64::max);
    let (width, height) = (WIDTH / COLUMNS as f64, HEIGHT / rows as f64);
    let mut paths = vec![String::new(); STRENGTHS];
    for (column, counts) in cells.iter().enumerate() {
        for (bucket, count) in counts.iter().enumerate().take(last + 1).skip(first) {
            let Some(strength) = strength(*count, most) else {
                continue;
            };
            let (x, y) = (column as f64 * width, (last - bucket) as f64 * height);
            let _ = write!(
                paths[strength],
                "M{x:.1} {y:.1}h{width:.1}v{height:.1}h-{width:.1}z"
            );
        }
    }
    let bound = |bucket: usize| match bucket_upper_bound_ns(bucket) {
        Some(bound_ns) => time_us(bound_ns as f64 / 1e3),
        None => "longer".to_owned(),
    };
    let middle = first + rows / 2;
    let labels = [bound(last), bound(middle), bound(first)];
    let label = format!(
        "Command latency over the last {}: from {} to {}.",
        span.title,
        bound(first),
        bound(last)
    );
    let picture = html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(label) {
            @for (strength, path) in paths.iter().enumerate() {
                path class={ "heat h" (strength) } d=(PreEscaped(path)) {}
            }
        }
    };
    html! {
        (framed(&labels, &ages(span.seconds), &picture))
        p class="quiet" {
            "A stronger colour means more commands. Each row covers twice the latency of the row below it."
        }
    }
}

/// Returns a cell's color strength by the logarithm of its count; `None` for an empty cell.
fn strength(count: f64, most: f64) -> Option<usize> {
    (count > 0.0).then(|| {
        let part = (1.0 + count).ln() / (1.0 + most).ln().max(f64::MIN_POSITIVE);
        ((part * STRENGTHS as f64) as usize).min(STRENGTHS - 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_strongest_and_nothing_has_no_colour() {
        assert_eq!(strength(0.0, 100.0), None);
        assert_eq!(strength(100.0, 100.0), Some(STRENGTHS - 1));
        assert_eq!(strength(1e-9, 100.0), Some(0));
        assert!(strength(10.0, 100.0) < strength(60.0, 100.0));
    }
}
