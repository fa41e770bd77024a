//! Memory: what is used, what the allocator holds, what can be given back, and a report for people.
//!
//! `used` is counted by our own wrapper of the allocator, to the byte; the other figures are jemalloc's and the
//! system's. Nothing here touches a shard.

use std::sync::atomic::Ordering::Relaxed;

use tikv_jemalloc_ctl::{Access, AsName, arenas, epoch, stats, stats_print};

use super::Telemetry;
use super::observed::Observed;
use super::process;
use basalt_commands::client::shared::Peer;
use basalt_commands::client::shared::mailbox::Mailbox;
use basalt_commands::command::host::MemoryReport;
use basalt_core::alloc::account;
use basalt_engine::value::DataType;

/// Has the allocator start its threads again, which a process that was forked has not.
pub fn begin_anew() {
    if tikv_jemalloc_ctl::background_thread::write(true).is_err() {
        tracing::warn!("The allocator gives back memory without threads of its own");
    }
}

/// Bytes in use by the whole process.
pub fn used_bytes() -> u64 {
    account::total_bytes().max(0).unsigned_abs()
}

/// What is taken for somebody slower than this server. It never makes data go; each part has a bound of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotCounted {
    /// The log's ring, and what the append-only file has not written.
    pub log: u64,
    /// The stream for replicas: the backlog, and what is kept for slow ones beyond it.
    pub replicas: u64,
    /// What a snapshot has encoded and its sink has not taken.
    pub snapshot: u64,
}

impl NotCounted {
    /// All of it.
    #[must_use]
    pub fn total(self) -> u64 {
        self.log + self.replicas + self.snapshot
    }
}

/// What is taken for somebody slower, at this moment.
pub fn not_counted(service: &dyn Observed, telemetry: &Telemetry) -> NotCounted {
    let (log, snapshot) = service.held_back_bytes();
    let beyond = telemetry.replication.kept_bytes.load(Relaxed);
    let held = service.replication().stream.held_bytes;
    NotCounted {
        log,
        replicas: beyond.unsigned_abs() + held.min(service.config().repl_backlog_size),
        snapshot,
    }
}

/// What is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// By the whole process.
    pub bytes: u64,
    /// For slow replicas, beyond the backlog's size.
    pub kept_for_replicas: u64,
}

impl Used {
    /// Of this moment: both figures are of one, though what is kept for a replica may just come or go.
    pub fn now(telemetry: &Telemetry) -> Used {
        const LOOKS_MAX: usize = 100;
        let kept = || {
            let kept = &telemetry.replication.kept_bytes;
            kept.load(Relaxed).unsigned_abs()
        };
        let mut used = Used::default();
        for _ in 0..LOOKS_MAX {
            let kept_for_replicas = kept();
            used = Used {
                bytes: used_bytes(),
                kept_for_replicas,
            };
            if kept() == kept_for_replicas {
                break;
            }
        }
        used
    }
}

/// Connections' memory, and how many of them wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientFigures {
    /// All memory.
    pub total: u64,
    /// Memory of links to replicas, without the stream that waits for them.
    pub replicas: u64,
    /// Memory of clients that have yet to sign in, which is no part of the others' and makes no data go.
    pub unauthenticated: u64,
    /// Clients that wait for data.
    pub blocked: u64,
    /// Clients with subscriptions.
    pub subscribed: u64,
    /// Clients that watch keys.
    pub watching: u64,
    /// The largest unread input of a client.
    pub input_max: u64,
    /// The largest unsent output of a client.
    pub output_max: u64,
}

/// What connections use: their state, what they have the server hold, input that is no whole request yet, and output
/// that is not sent yet.
pub fn client_figures(service: &dyn Observed) -> ClientFigures {
    let mut figures = ClientFigures::default();
    for client in service.clients().all() {
        let bytes = client.memory_bytes() as u64;
        if client.peer() == Peer::Replica {
            // The task of one that was told to end may be about to.
            if !client.is_killed() {
                figures.replicas += bytes;
            }
            continue;
        }
        if client.is_unauthenticated() {
            figures.unauthenticated += bytes;
            continue;
        }
        let input = client.query_bytes.load(Relaxed) as u64;
        let pushed = client.mailbox().map_or(0, Mailbox::bytes);
        let output = (client.output_bytes.load(Relaxed) + pushed) as u64;
        figures.total += bytes;
        figures.blocked += u64::from(client.is_blocked());
        figures.subscribed += u64::from(client.subscriptions() > 0);
        figures.watching += u64::from(client.watched.load(Relaxed) > 0);
        figures.input_max = figures.input_max.max(input);
        figures.output_max = figures.output_max.max(output);
    }
    figures
}

/// Facts about memory, for MEMORY STATS, INFO and the metrics.
///
/// `used` is what was in use before anybody began to gather figures, which takes memory too.
pub fn report(
    service: &dyn Observed,
    telemetry: &Telemetry,
    clients: ClientFigures,
    used: Used,
) -> MemoryReport {
    // The allocator's statistics are those of the latest epoch; where there are none the figures stay zero.
    let _ = epoch::advance();
    let databases = service
        .all_published()
        .first()
        .map_or(0, |published| published.dbs.len());
    let mut dbs = vec![(0, 0); databases];
    let mut dataset = 0;
    for published in service.all_published() {
        dataset += published.used_bytes();
        for (sum, db) in dbs.iter_mut().zip(&published.dbs) {
            sum.0 += db.keys.get();
            sum.1 += db.volatile_keys.get();
        }
    }
    let scripts = service.scripts();
    let not_counted = not_counted(service, telemetry);
    MemoryReport {
        used: used.bytes,
        kept_for_replicas: used.kept_for_replicas,
        not_counted_log: not_counted.log,
        not_counted_snapshot: not_counted.snapshot,
        scripts: scripts.scripts_bytes,
        functions: scripts.functions_bytes,
        peak: telemetry.raise_peak(used.bytes),
        peak_at_s: telemetry.peak_at_s(),
        startup: telemetry.used_at_start,
        clients: clients.total,
        replicas: clients.replicas,
        backlog: service.replication().stream.held_bytes,
        dataset: dataset.max(0).unsigned_abs(),
        dbs,
        allocator_allocated: stats::allocated::read().unwrap_or(0) as u64,
        allocator_active: stats::active::read().unwrap_or(0) as u64,
        allocator_resident: stats::resident::read().unwrap_or(0) as u64,
        rss: process::rss_bytes(),
        largest: largest(service),
    }
}

/// Bytes of the largest value of each type.
pub fn largest(service: &dyn Observed) -> Vec<(&'static str, u64)> {
    let dbs = || {
        service
            .all_published()
            .iter()
            .flat_map(|published| &published.dbs)
    };
    let rows = DataType::ALL.iter().map(|(data_type, name)| {
        let most = dbs().map(|db| db.largest(*data_type as usize)).max();
        (*name, most.unwrap_or(0))
    });
    rows.filter(|(_, bytes)| *bytes > 0).collect()
}

/// What the allocator holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorFigures {
    /// Handed out.
    pub allocated: u64,
    /// The pages in which that lies.
    pub active: u64,
    /// All pages that take memory: free ones that are kept for a while, and its own, too.
    pub resident: u64,
}

/// Asks the allocator.
pub fn allocator_figures() -> Option<AllocatorFigures> {
    epoch::advance().ok()?;
    Some(AllocatorFigures {
        allocated: stats::allocated::read().ok()? as u64,
        active: stats::active::read().ok()? as u64,
        resident: stats::resident::read().ok()? as u64,
    })
}

/// The allocator's name and version, as INFO has it.
pub fn allocator_name() -> String {
    let version = tikv_jemalloc_ctl::version::read().unwrap_or("");
    format!("jemalloc-{}", version.split('-').next().unwrap_or(""))
}

/// MEMORY MALLOC-STATS: jemalloc's own report.
pub fn allocator_report() -> String {
    let mut report = Vec::new();
    match stats_print::stats_print(&mut report, stats_print::Options::default()) {
        Ok(()) => String::from_utf8_lossy(&report).into_owned(),
        Err(error) => format!("The allocator gave no statistics: {error}\n"),
    }
}

/// How eagerly the allocator gives free pages back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decay {
    /// There is no limit to memory: they may soon be needed again.
    #[default]
    Slow,
    /// What is kept beyond a limit of memory is somebody else's.
    Soon,
    /// Notably more than the limit is taken.
    AtOnce,
}

/// Says how long the allocator keeps pages that are free.
pub fn set_decay(decay: Decay) {
    let decay_ms: isize = match decay {
        Decay::Slow => 10_000,
        Decay::Soon => 1_000,
        Decay::AtOnce => 100,
    };
    // Arenas to come, then those that are there; an allocator that knows no such setting stays as it is.
    let _ = "arenas.dirty_decay_ms\0".name().write(decay_ms);
    for arena in 0..arenas::narenas::read().unwrap_or(0) {
        let name = format!("arena.{arena}.dirty_decay_ms\0");
        let _ = name.as_str().name().write(decay_ms);
    }
}

/// MEMORY PURGE: unused pages go back to the system; false if the allocator refused.
///
/// The `purge` control takes no value, which the safe interface can not say. A decay time of zero has the same effect:
/// jemalloc purges at once when it is set. Then the old time is put back.
pub fn purge() -> bool {
    let Ok(count) = arenas::narenas::read() else {
        return false;
    };
    let mut done = true;
    for arena in 0..count {
        for kind in ["dirty", "muzzy"] {
            let name = format!("arena.{arena}.{kind}_decay_ms\0");
            let name = name.as_str().name();
            let before: Result<isize, _> = name.read();
            // An arena number that is not in use has no settings.
            let Ok(before) = before else { continue };
            done &= name.write(0isize).is_ok() & name.write(before).is_ok();
        }
    }
    done
}

/// A number of bytes as INFO shows it to people.
pub fn human(bytes: u64) -> String {
    const UNITS: [char; 6] = ['B', 'K', 'M', 'G', 'T', 'P'];
    let power = (bytes.max(1).ilog2() / 10).min(5);
    if power == 0 {
        return format!("{bytes}B");
    }
    format!(
        "{:.2}{}",
        bytes as f64 / (1u64 << (10 * power)) as f64,
        UNITS[power as usize]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_the_largest_unit_that_they_fill() {
        let shown = [0, 1_023, 1_024, 941_112, 12_394_496, 25_276_514_304].map(human);
        assert_eq!(
            shown,
            ["0B", "1023B", "1.00K", "919.05K", "11.82M", "23.54G"]
        );
    }

    #[test]
    fn the_allocator_names_itself_reports_and_purges() {
        assert!(
            allocator_name().starts_with("jemalloc-5"),
            "{}",
            allocator_name()
        );
        assert!(allocator_report().contains("jemalloc"));
        assert!(purge());
    }
}
