//! Line charts over time.

use std::fmt::Write as _;

use maud::{Markup, PreEscaped, html};

use super::{HEIGHT, WIDTH, ages, ceiling, framed, shown};
use crate::telemetry::history::series::{self, Fold, SERIES, SeriesUnit};
use crate::telemetry::history::{HistoryResolution, MetricsHistory};

/// Columns of a chart; the seconds or minutes within a column become one point.
const COLUMNS: usize = 240;

/// A selectable time span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChartSpan {
    /// The name in addresses.
    pub(crate) name: &'static str,
    /// The title on a page.
    pub(crate) title: &'static str,
    pub(crate) seconds: u64,
    pub(crate) step: HistoryResolution,
}

/// The selectable time spans.
pub(crate) static SPANS: [ChartSpan; 3] = [
    ChartSpan {
        name: "5m",
        title: "5 minutes",
        seconds: 300,
        step: HistoryResolution::Second,
    },
    ChartSpan {
        name: "1h",
        title: "1 hour",
        seconds: 3_600,
        step: HistoryResolution::Second,
    },
    ChartSpan {
        name: "1d",
        title: "1 day",
        seconds: 86_400,
        step: HistoryResolution::Minute,
    },
];

/// A line: a series, and its label in the legend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChartSeries {
    pub(crate) series: &'static str,
    pub(crate) label: &'static str,
}

/// A line chart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chart {
    /// Text alternative for viewers who cannot see it.
    pub(crate) says: &'static str,
    pub(crate) unit: SeriesUnit,
    pub(crate) lines: &'static [ChartSeries],
    /// Whether the vertical scale is logarithmic.
    pub(crate) is_logarithmic: bool,
}

/// A chart with a linear scale.
pub(crate) const fn over(
    says: &'static str,
    unit: SeriesUnit,
    lines: &'static [ChartSeries],
) -> Chart {
    Chart {
        says,
        unit,
        lines,
        is_logarithmic: false,
    }
}

pub(crate) const fn line(series: &'static str, label: &'static str) -> ChartSeries {
    ChartSeries { series, label }
}

/// A line's points: column from 0 to [`COLUMNS`], and value.
type Points = Vec<(usize, f64)>;

/// Draws the chart, with a legend that has the latest values.
pub(crate) fn draw(chart: &Chart, history: &MetricsHistory, span: ChartSpan, now_s: u64) -> Markup {
    let all: Vec<(Points, Option<f64>)> = chart
        .lines
        .iter()
        .map(|line| points(line.series, history, span, now_s))
        .collect();
    let values = || {
        all.iter()
            .flat_map(|(points, _)| points)
            .map(|(_, value)| *value)
    };
    let scale = Scale::of(values(), chart);
    let legend = html! {
        ul class="legend" {
            @for (number, (line, (_, latest))) in chart.lines.iter().zip(&all).enumerate() {
                li {
                    span class={ "key k" (number) } aria-hidden="true" {}
                    (line.label) " "
                    @match latest {
                        Some(latest) => data value=(latest) data-series=(line.series) { (shown(*latest, chart.unit)) },
                        None => span class="quiet" { "–" },
                    }
                }
            }
        }
    };
    if values().next().is_none() {
        return html! { (legend) p class="empty" { "No data yet." } };
    }
    let mut paths = String::new();
    let is_alone = chart.lines.len() == 1;
    for (number, (points, _)) in all.iter().enumerate() {
        let gap = COLUMNS / 60;
        let (line, area) = path(points, &scale, gap);
        if is_alone {
            let _ = write!(paths, "<path class=\"area f{number}\" d=\"{area}\"/>");
        }
        let _ = write!(paths, "<path class=\"line l{number}\" d=\"{line}\"/>");
    }
    let ends: Vec<String> = chart
        .lines
        .iter()
        .zip(&all)
        .filter_map(|(line, (_, latest))| {
            Some(format!("{}: {}", line.label, shown((*latest)?, chart.unit)))
        })
        .collect();
    let label = format!(
        "{} over the last {}. Now: {}.",
        chart.says,
        span.title,
        ends.join(", ")
    );
    let picture = html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(label) {
            path class="grid" d={ "M0 " (HEIGHT / 2.0) "H" (WIDTH) "M0 1H" (WIDTH) } {}
            (PreEscaped(paths))
        }
    };
    html! {
        (framed(&scale.labels(chart.unit), &ages(span.seconds), &picture))
        (legend)
    }
}

/// Returns the points of a series, and its latest value if that is recent.
fn points(
    name: &str,
    history: &MetricsHistory,
    span: ChartSpan,
    now_s: u64,
) -> (Points, Option<f64>) {
    let Some(index) = series::find(name) else {
        return (Points::new(), None);
    };
    let since_s = now_s.saturating_sub(span.seconds);
    let mut sums = vec![(0.0_f64, 0_u32); COLUMNS + 1];
    let is_worst = SERIES[index].fold == Fold::Max;
    history.each(span.step, since_s, |point| {
        let Some(value) = point.value(index) else {
            return;
        };
        let age = point.at_s.min(now_s) - since_s;
        let column = (age as usize * COLUMNS) / span.seconds as usize;
        let (sum, count) = &mut sums[column.min(COLUMNS)];
        *sum = if is_worst {
            sum.max(value)
        } else {
            *sum + value
        };
        *count += 1;
    });
    let mut latest = None;
    history.each(
        HistoryResolution::Second,
        now_s.saturating_sub(5),
        |point| latest = point.value(index),
    );
    let found = sums.iter().enumerate().filter(|(_, (_, count))| *count > 0);
    let value = |(column, (sum, count)): (usize, &(f64, u32))| match is_worst {
        true => (column, *sum),
        false => (column, sum / f64::from(*count)),
    };
    (found.map(value).collect(), latest)
}

/// Maps values to heights.
struct Scale {
    low: f64,
    high: f64,
    is_logarithmic: bool,
}

impl Scale {
    fn of(values: impl Iterator<Item = f64>, chart: &Chart) -> Scale {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for value in values {
            low = low.min(value);
            high = high.max(value);
        }
        match chart.is_logarithmic {
            true => {
                let down = low.max(0.1).log10().floor();
                Scale {
                    low: down,
                    high: high.max(0.2).log10().ceil().max(down + 2.0),
                    is_logarithmic: true,
                }
            }
            false => Scale {
                low: 0.0,
                high: ceiling(high, chart.unit),
                is_logarithmic: false,
            },
        }
    }

    /// Returns the distance of a value from the chart's top, in chart units.
    fn y(&self, value: f64) -> f64 {
        let value = match self.is_logarithmic {
            true => value.max(1e-9).log10(),
            false => value,
        };
        let part = (value - self.low) / (self.high - self.low);
        (HEIGHT - part.clamp(0.0, 1.0) * (HEIGHT - 4.0) - 2.0).round()
    }

    fn labels(&self, unit: SeriesUnit) -> Vec<String> {
        let middle = (self.low + self.high) / 2.0;
        [self.high, middle, self.low]
            .map(|value| match self.is_logarithmic {
                true => shown(10_f64.powf(value), unit),
                false => shown(value, unit),
            })
            .to_vec()
    }
}

/// Returns the paths of a line and of the area below it; both are interrupted where there are no values for
/// longer than a gap. Path commands use relative coordinates, which take half the bytes of absolute ones.
fn path(points: &Points, scale: &Scale, gap: usize) -> (String, String) {
    let x = |column: usize| (column as f64 * WIDTH / COLUMNS as f64).round();
    let (mut line, mut area) = (String::new(), String::new());
    let mut pen = (0.0, 0.0);
    let mut before: Option<usize> = None;
    let end = format!("V{HEIGHT}Z");
    for (column, value) in points {
        let (x_at, y_at) = (x(*column), scale.y(*value));
        let goes_on = before.is_some_and(|before| column - before <= gap);
        if goes_on {
            let (across, down) = (x_at - pen.0, y_at - pen.1);
            let between = if down < 0.0 { "" } else { " " };
            let step = format!("l{across}{between}{down}");
            line.push_str(&step);
            area.push_str(&step);
            pen = (x_at, y_at);
        } else {
            if before.is_some() {
                area.push_str(&end);
            }
            // Draw a short line, so that isolated points are visible, too. Writing to a `String` cannot fail.
            let _ = write!(line, "M{x_at} {y_at}h1");
            let _ = write!(area, "M{x_at} {HEIGHT}V{y_at}h1");
            pen = (x_at + 1.0, y_at);
        }
        before = Some(*column);
    }
    if before.is_some() {
        area.push_str(&end);
    }
    (line, area)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(high: f64) -> Scale {
        Scale {
            low: 0.0,
            high,
            is_logarithmic: false,
        }
    }

    #[test]
    fn a_line_is_broken_where_there_is_nothing() {
        let points = vec![(0, 0.0), (1, 10.0), (2, 5.0), (200, 5.0)];
        let (line, area) = path(&points, &scale(10.0), 4);
        assert_eq!(line, "M0 298h1l3-296l4 148M833 150h1");
        assert_eq!(area, "M0 300V298h1l3-296l4 148V300ZM833 300V150h1V300Z");
    }

    #[test]
    fn a_scale_by_logarithm_has_whole_powers_at_its_ends() {
        let chart = Chart {
            says: "",
            unit: SeriesUnit::Microseconds,
            lines: &[],
            is_logarithmic: true,
        };
        let scale = Scale::of([3.0, 40_000.0].into_iter(), &chart);
        assert_eq!(
            scale.labels(SeriesUnit::Microseconds),
            ["100 ms", "316 µs", "1 µs"]
        );
        assert!(scale.y(3.0) > scale.y(40_000.0));
    }
}
