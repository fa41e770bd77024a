//! The table of figures: each row declares a figure once, with its field in INFO, its metric, and how it is read.
//!
//! INFO and `/metrics` are rendered from the rows, and the history reads rows by their fields. Only figures that are
//! no plain numbers, such as those with labels, are written elsewhere.
//!
//! ```text
//! mod           the types
//! server        the program, its addresses, its clock and its CPU time
//! memory        memory used by data, clients and scripts
//! persistence   snapshots, the append-only file, loading
//! replication   the primary, the replicas, and the stream
//! stats         clients, and counts since the start
//! shards        what Redis does not have: shards, leases, locks, the miss-ratio curve
//! cluster       cluster mode and slot migrations
//! ```

pub(super) mod cluster;
pub(super) mod memory;
pub(super) mod persistence;
pub(super) mod replication;
pub(super) mod server;
pub(super) mod shards;
pub(super) mod stats;

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::Telemetry;
use super::observed::Observed;
use super::snapshot::Snapshot;
use basalt_commands::config::Config;
use basalt_core::base::counter::Counter;
use basalt_engine::published::Published;

/// The source of figures.
pub(super) struct FigureContext<'a> {
    pub(super) service: &'a dyn Observed,
    pub(super) telemetry: &'a Telemetry,
    pub(super) config: Arc<Config>,
    pub(super) snapshot: Snapshot,
}

impl<'a> FigureContext<'a> {
    /// Gathers the current figures.
    pub(super) fn gather(service: &'a dyn Observed) -> FigureContext<'a> {
        FigureContext {
            service,
            telemetry: service.telemetry(),
            config: service.config(),
            snapshot: Snapshot::gather(service),
        }
    }

    /// Returns the sum of a counter that each shard publishes.
    pub(super) fn sum(&self, counter: fn(&Published) -> &Counter) -> u64 {
        let shards = self.service.all_published().iter();
        shards.map(|shard| counter(shard).get()).sum()
    }

    /// Returns the number of the row with this field; `None` if the row is a text or does not exist.
    pub(super) fn number(&self, field: &str) -> Option<f64> {
        let mut figures = all();
        figures.find(|figure| figure.field == field)?.number(self)
    }
}

/// A figure.
pub(super) struct Figure {
    /// The name in INFO; empty if the figure is only a metric.
    pub(super) field: &'static str,
    pub(super) read: FigureReader,
    pub(super) metric: Option<Metric>,
}

/// A figure's metric.
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: MetricKind,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
}

/// The type of a figure, with the function that reads it.
pub(super) enum FigureReader {
    /// A whole number.
    Count(fn(&FigureContext<'_>) -> u64),
    /// A whole number kept in the telemetry.
    Stored(fn(&Telemetry) -> &AtomicU64),
    /// A whole number that each shard publishes, summed over all shards.
    ShardSum(fn(&Published) -> &Counter),
    /// Yes or no, shown as 1 or 0.
    Flag(fn(&Telemetry) -> &AtomicBool),
    /// A whole number that may be negative.
    Signed(fn(&FigureContext<'_>) -> i64),
    /// Bytes; INFO has a second field for people.
    Bytes(fn(&FigureContext<'_>) -> u64),
    /// A number; INFO shows two decimals.
    Decimal(fn(&FigureContext<'_>) -> f64),
    /// Seconds; INFO shows six decimals.
    Seconds(fn(&FigureContext<'_>) -> f64),
    /// A percentage from a part and the whole; INFO shows two decimals.
    Percent(fn(&FigureContext<'_>) -> (u64, u64)),
    /// Success, shown as 1 or 0, in INFO as `ok` or `err`.
    Status(fn(&Telemetry) -> &AtomicBool),
    /// A text; INFO has no line if the function returns `None`.
    Text(fn(&FigureContext<'_>) -> Option<String>),
    /// A text known at build time.
    Constant(&'static str),
    /// A feature that this server lacks, shown as in an idle Redis.
    Zero,
}

impl Figure {
    const fn new(field: &'static str, read: FigureReader) -> Figure {
        Figure {
            field,
            read,
            metric: None,
        }
    }

    const fn shown_as(self, kind: MetricKind, name: &'static str, help: &'static str) -> Figure {
        Figure {
            metric: Some(Metric { name, help, kind }),
            ..self
        }
    }

    /// Shows the figure as this gauge, too.
    pub(super) const fn gauge(self, name: &'static str, help: &'static str) -> Figure {
        self.shown_as(MetricKind::Gauge, name, help)
    }

    /// Shows the figure as this counter, too.
    pub(super) const fn counter(self, name: &'static str, help: &'static str) -> Figure {
        self.shown_as(MetricKind::Counter, name, help)
    }

    /// Returns the number if it is a whole one.
    pub(super) fn whole(&self, source: &FigureContext<'_>) -> Option<u64> {
        match self.read {
            FigureReader::Count(read) | FigureReader::Bytes(read) => Some(read(source)),
            FigureReader::Stored(read) => Some(read(source.telemetry).load(Relaxed)),
            FigureReader::ShardSum(read) => Some(source.sum(read)),
            FigureReader::Flag(read) | FigureReader::Status(read) => {
                Some(u64::from(read(source.telemetry).load(Relaxed)))
            }
            FigureReader::Zero => Some(0),
            _ => None,
        }
    }

    /// Returns the unrounded number; `None` if the figure is a text.
    pub(super) fn number(&self, source: &FigureContext<'_>) -> Option<f64> {
        match self.read {
            FigureReader::Signed(read) => Some(read(source) as f64),
            FigureReader::Decimal(read) | FigureReader::Seconds(read) => Some(read(source)),
            FigureReader::Percent(read) => {
                let (part, whole) = read(source);
                Some(100.0 * ratio(part, whole))
            }
            _ => self.whole(source).map(|whole| whole as f64),
        }
    }
}

/// Returns the rows of all sections of INFO.
pub(super) fn all() -> impl Iterator<Item = &'static Figure> {
    let sections = [
        server::SERVER,
        stats::CLIENTS,
        memory::MEMORY,
        persistence::ALWAYS,
        persistence::APPENDING,
        persistence::LOADING,
        stats::STATS,
        replication::ROLE,
        replication::REPLICAS,
        replication::STREAM,
        server::CPU,
        cluster::CLUSTER,
        cluster::SLOT_MOVES,
        shards::SHARDS,
        shards::LEASES,
        shards::LOCKS,
        shards::CURVE,
        server::DEBUG,
    ];
    sections.into_iter().flatten()
}

const fn count(field: &'static str, read: fn(&FigureContext<'_>) -> u64) -> Figure {
    Figure::new(field, FigureReader::Count(read))
}

const fn stored(field: &'static str, read: fn(&Telemetry) -> &AtomicU64) -> Figure {
    Figure::new(field, FigureReader::Stored(read))
}

const fn shard_sum(field: &'static str, read: fn(&Published) -> &Counter) -> Figure {
    Figure::new(field, FigureReader::ShardSum(read))
}

const fn flag(field: &'static str, read: fn(&Telemetry) -> &AtomicBool) -> Figure {
    Figure::new(field, FigureReader::Flag(read))
}

const fn signed(field: &'static str, read: fn(&FigureContext<'_>) -> i64) -> Figure {
    Figure::new(field, FigureReader::Signed(read))
}

const fn bytes(field: &'static str, read: fn(&FigureContext<'_>) -> u64) -> Figure {
    Figure::new(field, FigureReader::Bytes(read))
}

const fn decimal(field: &'static str, read: fn(&FigureContext<'_>) -> f64) -> Figure {
    Figure::new(field, FigureReader::Decimal(read))
}

const fn percent(field: &'static str, read: fn(&FigureContext<'_>) -> (u64, u64)) -> Figure {
    Figure::new(field, FigureReader::Percent(read))
}

const fn status(field: &'static str, read: fn(&Telemetry) -> &AtomicBool) -> Figure {
    Figure::new(field, FigureReader::Status(read))
}

const fn text(field: &'static str, read: fn(&FigureContext<'_>) -> Option<String>) -> Figure {
    Figure::new(field, FigureReader::Text(read))
}

const fn constant(field: &'static str, value: &'static str) -> Figure {
    Figure::new(field, FigureReader::Constant(value))
}

const fn zero(field: &'static str) -> Figure {
    Figure::new(field, FigureReader::Zero)
}

/// A figure without a field in INFO, which is only a metric.
pub(super) const fn metric(read: fn(&FigureContext<'_>) -> f64) -> Figure {
    decimal("", read)
}

/// A whole number without a field in INFO.
pub(super) const fn metric_count(read: fn(&FigureContext<'_>) -> u64) -> Figure {
    count("", read)
}

/// Formats a value that is always present.
fn shown(value: impl Display) -> Option<String> {
    Some(value.to_string())
}

/// Returns `part` divided by `whole`, or zero if `whole` is zero.
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}
