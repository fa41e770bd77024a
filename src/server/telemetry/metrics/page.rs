//! Builder for the metrics page.
//!
//! Whole numbers go through the `metrics` facade into a registry of `metrics-exporter-prometheus` that lives
//! for one scrape, so nothing is global and nothing can go stale. Metrics that the registry cannot hold are
//! written by this module, in the same format: counters of seconds (its counters are integers) and histograms
//! whose buckets are already counted.

use std::fmt::Write;

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder, SharedString};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

static METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// One labelled histogram.
pub(super) struct HistogramSeries<'a> {
    pub(super) labels: &'a [(&'a str, &'a str)],
    /// Upper bounds with cumulative counts, without the infinite one.
    pub(super) buckets: Vec<(f64, u64)>,
    pub(super) count: u64,
    pub(super) sum: f64,
}

/// One labelled summary.
pub(super) struct Quantiles<'a> {
    pub(super) labels: &'a [(&'a str, &'a str)],
    /// Pairs of a value of the label `quantile` and the figure at that quantile.
    pub(super) quantiles: Vec<(String, f64)>,
    pub(super) count: u64,
    pub(super) sum: f64,
}

/// The metrics page being built.
pub(super) struct MetricsPage {
    registry: PrometheusRecorder,
    /// Text of the metrics that the registry cannot hold.
    text: String,
}

impl MetricsPage {
    pub(super) fn new() -> MetricsPage {
        MetricsPage {
            registry: PrometheusBuilder::new().build_recorder(),
            text: String::new(),
        }
    }

    pub(super) fn finish(self) -> String {
        let mut page = self.registry.handle().render();
        page.push_str(&self.text);
        page
    }

    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str, value: f64) {
        self.labelled_gauge(name, help, Vec::new(), value);
    }

    pub(super) fn labelled_gauge(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: Vec<(&'static str, String)>,
        value: f64,
    ) {
        self.registry.describe_gauge(
            KeyName::from_const_str(name),
            None,
            SharedString::const_str(help),
        );
        self.registry
            .register_gauge(&key(name, labels), &METADATA)
            .set(value);
    }

    pub(super) fn counter(&mut self, name: &'static str, help: &'static str, count: u64) {
        self.labelled_counter(name, help, Vec::new(), count);
    }

    pub(super) fn labelled_counter(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: Vec<(&'static str, String)>,
        count: u64,
    ) {
        self.registry.describe_counter(
            KeyName::from_const_str(name),
            None,
            SharedString::const_str(help),
        );
        self.registry
            .register_counter(&key(name, labels), &METADATA)
            .absolute(count);
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Writes a counter with a fractional value.
    pub(super) fn seconds_total(
        &mut self,
        name: &str,
        help: &str,
        series: &[(&[(&str, &str)], f64)],
    ) {
        self.head(name, help, "counter");
        for (labels, seconds) in series {
            let _ = writeln!(self.text, "{name}{} {seconds}", braces(labels, None));
        }
    }

    /// Writes quantiles under the label `quantile`, with the sum and count of the underlying values.
    pub(super) fn summary(&mut self, name: &str, help: &str, series: &[Quantiles<'_>]) {
        self.head(name, help, "summary");
        for Quantiles {
            labels,
            quantiles,
            count,
            sum,
        } in series
        {
            for (quantile, value) in quantiles {
                let quantile = [("quantile", quantile.as_str())];
                let labels: Vec<(&str, &str)> = labels.iter().copied().chain(quantile).collect();
                let _ = writeln!(self.text, "{name}{} {value}", braces(&labels, None));
            }
            let _ = writeln!(self.text, "{name}_sum{} {sum}", braces(labels, None));
            let _ = writeln!(self.text, "{name}_count{} {count}", braces(labels, None));
        }
    }

    pub(super) fn histogram(&mut self, name: &str, help: &str, series: &[HistogramSeries<'_>]) {
        self.head(name, help, "histogram");
        for HistogramSeries {
            labels,
            buckets,
            count,
            sum,
        } in series
        {
            for (bound, below) in buckets {
                let braces = braces(labels, Some(&bound.to_string()));
                let _ = writeln!(self.text, "{name}_bucket{braces} {below}");
            }
            let _ = writeln!(
                self.text,
                "{name}_bucket{} {count}",
                braces(labels, Some("+Inf"))
            );
            let _ = writeln!(self.text, "{name}_sum{} {sum}", braces(labels, None));
            let _ = writeln!(self.text, "{name}_count{} {count}", braces(labels, None));
        }
    }
}

fn key(name: &'static str, labels: Vec<(&'static str, String)>) -> Key {
    let labels: Vec<Label> = labels
        .into_iter()
        .map(|(label, value)| Label::new(label, value))
        .collect();
    Key::from_parts(name, labels)
}

/// Formats labels in braces; returns an empty text if there are no labels.
pub(super) fn braces(labels: &[(&str, &str)], bound: Option<&str>) -> String {
    let mut text = String::new();
    for (label, value) in labels
        .iter()
        .copied()
        .chain(bound.map(|bound| ("le", bound)))
    {
        text.push(if text.is_empty() { '{' } else { ',' });
        let value = value
            .replace('\\', r"\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        let _ = write!(text, "{label}=\"{value}\"");
    }
    if !text.is_empty() {
        text.push('}');
    }
    text
}
