//! Charts of figures, as SVG produced by the server. No script draws them, so static reports contain them, too.
//!
//! A chart is stretched to the available space; the text beside it (scales, legends) is HTML. Colors are classes of
//! the style sheet, so that they follow light and dark mode.

pub(super) mod curve;
pub(super) mod heat;
pub(super) mod lines;

use maud::{Markup, html};

use crate::telemetry::history::series::SeriesUnit;

/// Units of a chart, horizontally and vertically.
const WIDTH: f64 = 1_000.0;
const HEIGHT: f64 = 300.0;

/// Formats a figure with its unit, short enough for a label.
pub(super) fn shown(value: f64, unit: SeriesUnit) -> String {
    match unit {
        SeriesUnit::Bytes => bytes(value),
        SeriesUnit::BytesPerSecond => format!("{}/s", bytes(value)),
        SeriesUnit::Microseconds => time_us(value),
        SeriesUnit::Seconds => format!("{} s", number(value)),
        SeriesUnit::Percent => format!("{} %", number(value)),
        SeriesUnit::PerSecond => format!("{}/s", number(value)),
        SeriesUnit::Count => number(value),
    }
}

/// Formats a number with three digits and a metric prefix.
pub(super) fn number(value: f64) -> String {
    scaled(value, 1_000.0, &["", " k", " M", " G", " T"])
}

/// Formats bytes in the largest unit that they fill.
pub(super) fn bytes(value: f64) -> String {
    scaled(value, 1_024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

/// Formats microseconds in the largest unit that they fill.
pub(super) fn time_us(value: f64) -> String {
    match value.abs() {
        size if size < 1e3 => format!("{} µs", digits(value)),
        size if size < 1e6 => format!("{} ms", digits(value / 1e3)),
        _ => format!("{} s", digits(value / 1e6)),
    }
}

/// Formats seconds in readable form.
pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

fn scaled(value: f64, step: f64, names: &[&str]) -> String {
    let (mut left, mut power) = (value, 0);
    // A value that would round up to a thousand gets the next prefix.
    while left.abs() >= step - 0.5 && power + 1 < names.len() {
        left /= step;
        power += 1;
    }
    format!("{}{}", digits(left), names[power])
}

/// Formats a number with three digits, without trailing zeros.
fn digits(value: f64) -> String {
    let places = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Returns the upper end of a scale for values up to `value`: the next higher number that is 1, 2, 2.5 or 5
/// times a power of ten (or of two for bytes).
fn ceiling(value: f64, unit: SeriesUnit) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let base: f64 = match unit {
        SeriesUnit::Bytes | SeriesUnit::BytesPerSecond => 1_024.0,
        _ => 1_000.0,
    };
    let whole = base.powf((value.ln() / base.ln()).floor());
    let steps = [
        1.0, 2.0, 2.5, 5.0, 10.0, 20.0, 25.0, 50.0, 100.0, 200.0, 250.0, 500.0, base,
    ];
    let found = steps
        .iter()
        .map(|step| step * whole)
        .find(|end| *end >= value);
    let end = found.unwrap_or(whole * base);
    // A percentage never exceeds 100.
    if unit == SeriesUnit::Percent && end > 50.0 && value <= 100.0 {
        100.0
    } else {
        end
    }
}

/// Draws a chart between its scales: labels on the left from the top, and at the bottom from the left.
fn framed(down: &[String], across: &[String], picture: &Markup) -> Markup {
    html! {
        div class="plot" {
            div class="down" aria-hidden="true" { @for label in down { span { (label) } } }
            div class="picture" { (picture) }
            div class="across" aria-hidden="true" { @for label in across { span { (label) } } }
        }
    }
}

/// Returns the labels of a time axis: how long ago each point was.
fn ages(span_s: u64) -> Vec<String> {
    let label = |part: u64| match span_s * (4 - part) / 4 {
        0 => "now".to_owned(),
        age if span_s > 7_200 => format!("−{} h", age / 3_600),
        age if span_s > 600 => format!("−{} min", age / 60),
        age if age % 60 == 0 => format!("−{} min", age / 60),
        age => format!("−{}:{:02} min", age / 60, age % 60),
    };
    (0..=4).map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_have_their_unit() {
        assert_eq!(shown(0.0, SeriesUnit::PerSecond), "0/s");
        assert_eq!(shown(1_234_567.0, SeriesUnit::PerSecond), "1.23 M/s");
        assert_eq!(shown(999.6, SeriesUnit::Count), "1 k");
        assert_eq!(shown(1_023.0, SeriesUnit::Bytes), "1023 B");
        assert_eq!(shown(3.5 * 1_048_576.0, SeriesUnit::Bytes), "3.5 MiB");
        assert_eq!(shown(12.34, SeriesUnit::Microseconds), "12.3 µs");
        assert_eq!(shown(2_500_000.0, SeriesUnit::Microseconds), "2.5 s");
        assert_eq!(shown(97.123, SeriesUnit::Percent), "97.1 %");
        assert_eq!(duration(59), "59 s");
        assert_eq!(duration(90_061), "1 d 1 h");
    }

    #[test]
    fn a_scale_ends_at_a_round_figure_that_all_values_fit_under() {
        for (value, unit, end) in [
            (0.0, SeriesUnit::Count, 1.0),
            (0.3, SeriesUnit::Count, 0.5),
            (7.0, SeriesUnit::Count, 10.0),
            (101.0, SeriesUnit::PerSecond, 200.0),
            (99.0, SeriesUnit::Percent, 100.0),
            (140.0, SeriesUnit::Percent, 200.0),
            (1_500_000.0, SeriesUnit::Bytes, 2_097_152.0),
            (600_000.0, SeriesUnit::Bytes, 1_048_576.0),
        ] {
            let found = ceiling(value, unit);
            assert!((found - end).abs() < 1e-6 * end, "{value}: {found}");
        }
    }

    #[test]
    fn ages_go_from_the_oldest_to_now() {
        assert_eq!(
            ages(300),
            ["−5 min", "−3:45 min", "−2:30 min", "−1:15 min", "now"]
        );
        assert_eq!(ages(3_600)[0], "−60 min");
        assert_eq!(ages(86_400)[1], "−18 h");
    }
}
