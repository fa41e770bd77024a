//! Builder for the metrics page.
//!
//! Whole numbers go through the `metrics` facade into a registry of `metrics-exporter-prometheus` that lives
//! for one scrape, so nothing is global and nothing can go stale. Metrics that the registry cannot hold are
//! written with that package's helpers: counters of seconds (its counters are integers), and histograms and
//! summaries whose values are already counted.

use std::fmt::Display;

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder, SharedString};
use metrics_exporter_prometheus::formatting::{
    write_help_line, write_metric_line, write_type_line,
};
use metrics_exporter_prometheus::{LabelSet, PrometheusBuilder, PrometheusRecorder};

use crate::telemetry::figures::{Figure, FigureContext, Metric, MetricKind};

static METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// The labels of a series.
pub(super) type Labels = Vec<(&'static str, String)>;

/// One labelled histogram.
pub(super) struct HistogramSeries {
    pub(super) labels: Labels,
    /// Upper bounds with cumulative counts, without the infinite one.
    pub(super) buckets: Vec<(f64, u64)>,
    pub(super) count: u64,
    pub(super) sum: f64,
}

/// One labelled summary.
pub(super) struct Quantiles {
    pub(super) labels: Labels,
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

    /// Writes those of the figures that are metrics.
    pub(super) fn figures<'f>(
        &mut self,
        figures: impl IntoIterator<Item = &'f Figure>,
        source: &FigureContext<'_>,
    ) {
        for figure in figures {
            let Some(Metric { name, help, kind }) = &figure.metric else {
                continue;
            };
            match kind {
                MetricKind::Gauge => {
                    if let Some(number) = figure.number(source) {
                        self.gauge(name, help, number);
                    }
                }
                MetricKind::Counter => match figure.whole(source) {
                    Some(count) => self.counter(name, help, count),
                    None => {
                        let seconds = figure.number(source).unwrap_or_default();
                        self.seconds_total(name, help, [(Vec::new(), seconds)]);
                    }
                },
            }
        }
    }

    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str, value: f64) {
        self.labelled_gauge(name, help, Vec::new(), value);
    }

    pub(super) fn labelled_gauge(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: Labels,
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
        labels: Labels,
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
        write_help_line(&mut self.text, name, None, None, help);
        write_type_line(&mut self.text, name, None, None, kind);
    }

    /// Writes a counter with a fractional value.
    pub(super) fn seconds_total(
        &mut self,
        name: &'static str,
        help: &str,
        series: impl IntoIterator<Item = (Labels, f64)>,
    ) {
        self.head(name, help, "counter");
        for (labels, seconds) in series {
            self.line(name, None, &label_set(labels), None, seconds);
        }
    }

    /// Writes quantiles under the label `quantile`, with the sum and count of the underlying values.
    pub(super) fn summary(
        &mut self,
        name: &'static str,
        help: &str,
        series: impl IntoIterator<Item = Quantiles>,
    ) {
        self.head(name, help, "summary");
        for each in series {
            let labels = label_set(each.labels);
            for (quantile, value) in &each.quantiles {
                self.line(name, None, &labels, Some(("quantile", quantile)), value);
            }
            self.line(name, Some("sum"), &labels, None, each.sum);
            self.line(name, Some("count"), &labels, None, each.count);
        }
    }

    pub(super) fn histogram(
        &mut self,
        name: &'static str,
        help: &str,
        series: impl IntoIterator<Item = HistogramSeries>,
    ) {
        self.head(name, help, "histogram");
        let bucket = Some("bucket");
        for each in series {
            let labels = label_set(each.labels);
            for (bound, below) in &each.buckets {
                self.line(name, bucket, &labels, Some(("le", bound)), below);
            }
            self.line(name, bucket, &labels, Some(("le", &"+Inf")), each.count);
            self.line(name, Some("sum"), &labels, None, each.sum);
            self.line(name, Some("count"), &labels, None, each.count);
        }
    }

    fn line(
        &mut self,
        name: &str,
        suffix: Option<&'static str>,
        labels: &LabelSet,
        one_more: Option<(&'static str, &dyn Display)>,
        value: impl Display,
    ) {
        write_metric_line(&mut self.text, name, suffix, labels, one_more, value, None);
    }
}

fn key(name: &'static str, labels: Labels) -> Key {
    let labels = labels.into_iter();
    let labels = labels.map(|(label, value)| Label::new(label, value));
    Key::from_parts(name, labels.collect::<Vec<Label>>())
}

fn label_set(labels: Labels) -> LabelSet {
    LabelSet::from_key_and_global(&key("", labels), &Default::default())
}
