//! The inputs of the model: service times measured by the bench with one thread, lines counted by `tests/sharing`, and
//! assumptions.

use std::path::Path;

use super::machine::Cost;

/// Token words in flight at a time where a batch is prefetched: the number of outstanding misses of a core.
pub(crate) const TOGETHER: f64 = 10.0;

/// Hand-overs for which a thread waits when it serves a connection that another thread served: 57 lines were counted,
/// of which several arrive together.
const CONNECTION_LINES: f64 = 10.0;

/// Touches of lines that all threads write, per batch: 16 were counted where threads sleep after each batch; threads
/// that do not sleep skip the word of idle threads and the two of the injection queue.
const BATCH_LINES: f64 = 3.0;

/// Nanoseconds for which the shared I/O driver is busy with a batch: 180 to 400 of epoll_wait for each event were
/// counted, and the task's header and its waiters' lock were last written by other cores.
const DRIVER_NS: f64 = 600.0;

/// Part of a command's time that a read from a copy takes: by instructions (`benches/instructions --only GET,HOTGET`).
pub(crate) const COPIED_SHARE: f64 = 0.8;

/// Touches of the log's lines, per logged command: it reserves a position.
const LOG_LINES: f64 = 1.0;

/// Share of the log's cost in the one thread that orders it. The rest writes or sends it.
const SEQUENCER_SHARE: f64 = 0.5;

/// The readers of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Bare,
    EverySecond,
    Replica,
}

impl Setting {
    pub(crate) const ALL: [Setting; 3] = [Setting::Bare, Setting::EverySecond, Setting::Replica];

    /// Returns its name in the bench.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Setting::Bare => "",
            Setting::EverySecond => ", everysec",
            Setting::Replica => ", a replica",
        }
    }
}

/// CPU measured by the bench with one thread.
pub(crate) struct Measured {
    /// Nanoseconds per command, by the row's name.
    rows: Vec<(String, f64)>,
}

impl Measured {
    /// Reads the rows of basalt with one thread from the bench's results.
    pub(crate) fn read(file: &Path) -> Result<Measured, String> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("{}: {error}", file.display()))?;
        let all: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let rows = all.as_array().into_iter().flatten();
        let own = rows.filter(|row| row["server"] == "basalt" && row["threads"] == 1);
        let read = |row: &serde_json::Value| {
            let name = row["row"].as_str()?.to_owned();
            Some((name, row["cpu_us_per_op"].as_f64()? * 1000.0))
        };
        let rows: Vec<(String, f64)> = own.filter_map(read).collect();
        match rows.is_empty() {
            true => Err(format!(
                "{} has no row of basalt with one thread",
                file.display()
            )),
            false => Ok(Measured { rows }),
        }
    }

    /// Returns the nanoseconds per command in batches of `pipeline`; for a choice of keys that was not measured, those
    /// of random keys.
    pub(crate) fn command_ns(
        &self,
        kind: &str,
        keys: &str,
        pipeline: usize,
        setting: Setting,
    ) -> Option<f64> {
        let of = |keys: &str| {
            let name = format!(
                "{kind}{keys}, P={pipeline}, 50 connections{}",
                setting.name()
            );
            let row = self.rows.iter().find(|(row, _)| *row == name)?;
            Some(row.1)
        };
        of(keys).or_else(|| of(""))
    }

    /// Returns the cost of commands, or `None` if the bench has not measured the needed rows.
    pub(crate) fn cost(
        &self,
        kind: &str,
        keys: &str,
        pipeline: usize,
        setting: Setting,
    ) -> Option<Cost> {
        // The bench measured reads of a hot key from copies, not with the token.
        let keys = if kind == "GET" && keys.contains("hot") {
            ""
        } else {
            keys
        };
        let bare = |pipeline: usize| {
            let each = self.command_ns(kind, keys, pipeline, Setting::Bare)?;
            Some(each * pipeline as f64)
        };
        let command_ns = (bare(100)? - bare(10)?) / 90.0;
        let each = self.command_ns(kind, keys, pipeline, Setting::Bare)?;
        let is_logged = setting != Setting::Bare;
        let log_ns = match is_logged {
            true => (self.command_ns(kind, "", pipeline, setting)?
                - self.command_ns(kind, "", pipeline, Setting::Bare)?)
            .max(0.0),
            false => 0.0,
        };
        Some(Cost {
            copied_ns: command_ns * COPIED_SHARE,
            driver_ns: DRIVER_NS,
            batch_ns: ((each - command_ns) * pipeline as f64).max(0.0),
            command_ns,
            log_ns,
            sequencer_ns: log_ns * SEQUENCER_SHARE,
            together: TOGETHER,
            connection_lines: CONNECTION_LINES,
            global_batch_lines: BATCH_LINES,
            global_command_lines: if is_logged { LOG_LINES } else { 0.0 },
        })
    }
}

/// Lists all inputs, with their sources.
pub(crate) fn list(file: &Path) -> String {
    let counted =
        "counted: `SHARING_LINES_TABLE=FILE cargo test --test sharing the_table_of_lines`";
    format!(
        "| input | value | from |\n|---|---|---|\n\
         | CPU of a command and a batch, with one thread | by row | measured: {} |\n\
         | hand-overs with a shard | 2 | its token's word, then its other lines together; 8 were {counted} |\n\
         | words of tokens under way at a time | {TOGETHER} | assumed: a core's outstanding misses |\n\
         | hand-overs with a connection, shared | {CONNECTION_LINES} | assumed of 57 lines that were {counted} |\n\
         | touches of lines of all threads, a batch, shared | {BATCH_LINES} | assumed of 16 that were {counted} |\n\
         | the shared I/O driver, a batch | {DRIVER_NS} ns | assumed of 180 to 400 ns of epoll_wait an event |\n\
         | a read from a copy, by a read with the token | {COPIED_SHARE} | counted: `benches/instructions --only GET,HOTGET` |\n\
         | touches of the log's lines, a logged command | {LOG_LINES} | {counted} |\n\
         | a hand-over of a line | 100 and 300 ns | assumed |\n\
         | the sequencer's part of what the log costs | {SEQUENCER_SHARE} | assumed |\n\
         | a look at a held token | 16 of 25 ns | assumed (`SPINS` of the source) |\n\
         | to leave a command in a queue, to take it | 300 ns each | assumed |\n\
         | keys with copies | 1/64 of the reads at least | `HOT_PART` of the source |\n\
         | connections | 8 a thread, 50 at least | assumed |\n",
        file.display()
    )
}
