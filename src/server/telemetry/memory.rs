//! Memory: usage, the allocator's figures, what can be purged, and a report for people.
//!
//! `used` is counted to the byte by our own allocator wrapper; the other figures are jemalloc's and the system's.
//! Nothing here touches a shard.

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

/// Restarts the allocator's threads, which a forked process lacks.
pub fn begin_anew() {
    if tikv_jemalloc_ctl::background_thread::write(true).is_err() {
        tracing::warn!("The allocator has no background threads to return memory");
    }
}

/// Returns the bytes in use by the whole process.
pub fn used_bytes() -> u64 {
    account::total_bytes().max(0).unsigned_abs()
}

/// Memory buffered for slower consumers. It never causes eviction; each part has its own bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotCounted {
    /// The command log's ring buffer, and data not yet written to the append-only file.
    pub log: u64,
    /// The replication stream: the backlog, and data kept beyond the backlog for slow replicas.
    pub replicas: u64,
    /// Data encoded by a snapshot but not accepted by its sink.
    pub snapshot: u64,
}

impl NotCounted {
    /// Returns the sum of all parts, in bytes.
    #[must_use]
    pub fn total(self) -> u64 {
        self.log + self.replicas + self.snapshot
    }
}

/// Returns the memory currently buffered for slower consumers.
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

/// Memory in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Bytes used by the whole process.
    pub bytes: u64,
    /// Bytes kept for slow replicas beyond the backlog's size.
    pub kept_for_replicas: u64,
}

impl MemoryUsage {
    /// Reads both figures so that they agree, even if the bytes kept for replicas change during the call.
    pub fn now(telemetry: &Telemetry) -> MemoryUsage {
        const LOOKS_MAX: usize = 100;
        let kept = || {
            let kept = &telemetry.replication.kept_bytes;
            kept.load(Relaxed).unsigned_abs()
        };
        let mut used = MemoryUsage::default();
        for _ in 0..LOOKS_MAX {
            let kept_for_replicas = kept();
            used = MemoryUsage {
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

/// Connections' memory, and the number of waiting clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientFigures {
    /// Memory of all clients.
    pub total: u64,
    /// Memory of links to replicas, excluding the stream buffered for them.
    pub replicas: u64,
    /// Memory of unauthenticated clients, which is not included in the others and causes no eviction.
    pub unauthenticated: u64,
    /// Clients blocked on data.
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

/// Returns the memory of connections: their state, objects held for them, incomplete requests, and unsent output.
pub fn client_figures(service: &dyn Observed) -> ClientFigures {
    let mut figures = ClientFigures::default();
    for client in service.clients().all() {
        let bytes = client.memory_bytes() as u64;
        if client.peer() == Peer::Replica {
            // The task of a killed replica link may not have ended yet.
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

/// Returns memory figures for MEMORY STATS, INFO and the metrics.
///
/// `used` was read before figures were gathered, because gathering the figures takes memory, too.
pub fn report(
    service: &dyn Observed,
    telemetry: &Telemetry,
    clients: ClientFigures,
    used: MemoryUsage,
) -> MemoryReport {
    // Without statistics the figures stay zero.
    let allocator = allocator_figures().unwrap_or_default();
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
        allocator_allocated: allocator.allocated,
        allocator_active: allocator.active,
        allocator_resident: allocator.resident,
        rss: process::rss_bytes(),
        largest: largest(service),
    }
}

/// Returns the bytes of the largest value of each type.
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

/// The allocator's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorFigures {
    /// Bytes allocated by the program.
    pub allocated: u64,
    /// Bytes of the pages containing them.
    pub active: u64,
    /// Bytes of all pages that take memory, including cached free pages and the allocator's own.
    pub resident: u64,
}

/// Reads the allocator's figures, as of this moment.
pub fn allocator_figures() -> Option<AllocatorFigures> {
    epoch::advance().ok()?;
    Some(AllocatorFigures {
        allocated: stats::allocated::read().ok()? as u64,
        active: stats::active::read().ok()? as u64,
        resident: stats::resident::read().ok()? as u64,
    })
}

/// Returns the allocator's name and version, as shown by INFO.
pub fn allocator_name() -> String {
    let version = tikv_jemalloc_ctl::version::read().unwrap_or("");
    format!("jemalloc-{}", version.split('-').next().unwrap_or(""))
}

/// Returns jemalloc's own report: MEMORY MALLOC-STATS.
pub fn allocator_report() -> String {
    let mut report = Vec::new();
    match stats_print::stats_print(&mut report, stats_print::Options::default()) {
        Ok(()) => String::from_utf8_lossy(&report).into_owned(),
        Err(error) => format!("The allocator returned no statistics: {error}\n"),
    }
}

/// The allocator's eagerness to return free pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decay {
    /// Without a memory limit: the pages may soon be needed again.
    #[default]
    Slow,
    /// With a memory limit: pages beyond it are meant for other processes.
    Soon,
    /// Usage notably exceeds the limit.
    AtOnce,
}

/// Sets how long the allocator keeps free pages.
pub fn set_decay(decay: Decay) {
    let decay_ms: isize = match decay {
        Decay::Slow => 10_000,
        Decay::Soon => 1_000,
        Decay::AtOnce => 100,
    };
    // Set the default for future arenas, then the existing ones; an allocator without this setting is left alone.
    let _ = "arenas.dirty_decay_ms\0".name().write(decay_ms);
    for arena in 0..arenas::narenas::read().unwrap_or(0) {
        let name = format!("arena.{arena}.dirty_decay_ms\0");
        let _ = name.as_str().name().write(decay_ms);
    }
}

/// Returns unused pages to the system: MEMORY PURGE. Returns false if the allocator refused.
///
/// The `purge` control takes no value, which the safe interface cannot express. A decay time of zero has the
/// same effect: jemalloc purges as soon as it is set. The previous decay time is then restored.
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
            // An unused arena number has no settings.
            let Ok(before) = before else { continue };
            done &= name.write(0isize).is_ok() & name.write(before).is_ok();
        }
    }
    done
}

/// Formats a number of bytes as INFO does for people.
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
