//! Findings about memory use: MEMORY DOCTOR.

use std::sync::Arc;

use super::Finding;
use super::recent::MINUTES;
use crate::telemetry::memory::{self, MemoryUsage, human};
use crate::telemetry::miss_ratio::{CurveFigures, PERCENT};
use crate::telemetry::observed::Observed;
use crate::telemetry::process;
use crate::telemetry::snapshot::Eviction;
use basalt_commands::command::host::MemoryReport;
use basalt_commands::config::Config;
use basalt_commands::config::values::MaxmemoryPolicy;

/// Memory use below which it is too early to judge.
const LITTLE_BYTES: u64 = 5 << 20;

/// Minimum difference between two memory figures, in bytes, that is reported.
const NOTABLE_BYTES: u64 = 10 << 20;

/// Bytes that a process needs for its program and threads, in addition to the data.
const PROGRAM_BYTES: u64 = 24 << 20;

/// Clients are reported if they take at least this many bytes on average.
const CLIENT_BYTES: u64 = 200 << 10;

/// A single value is reported if it takes at least this share of all data.
const LARGE_PART: f64 = 0.1;

/// A limit counts as reached from this share of it.
const CLOSE: f64 = 0.95;

/// Another memory size is suggested only if it changes the hit ratio by at least this much.
const NOTABLE_POINTS: f64 = 0.02;

/// The state to be diagnosed.
#[derive(Clone, Debug, Default)]
pub struct MemoryEvidence {
    pub(super) report: MemoryReport,
    pub(super) clients: u64,
    pub(super) config: Arc<Config>,
    pub(super) machine_bytes: u64,
    pub(super) eviction: Eviction,
    /// Keys evicted recently.
    pub(super) evicted: u64,
    pub(super) curve: CurveFigures,
}

impl MemoryEvidence {
    /// Captures the current state.
    pub fn of(service: &dyn Observed) -> MemoryEvidence {
        let used = MemoryUsage::now(service.telemetry());
        let clients = memory::client_figures(service);
        let all_published = service.all_published();
        MemoryEvidence {
            report: memory::report(service, service.telemetry(), clients, used),
            clients: service.clients().count() as u64,
            config: service.config(),
            machine_bytes: process::total_memory_bytes(),
            eviction: Eviction::now(service),
            evicted: service
                .telemetry()
                .recent
                .recent_events(service)
                .sums
                .evicted,
            curve: CurveFigures::gather(all_published),
        }
    }
}

/// Returns the text of MEMORY DOCTOR.
pub fn text(situation: &MemoryEvidence) -> String {
    let used = situation.report.used;
    let findings = findings(situation);
    if findings.is_empty() && used < LITTLE_BYTES {
        return format!(
            "Only {} of memory are used: too little for an analysis. Run this again once there is data.\n",
            human(used)
        );
    }
    if findings.is_empty() {
        return "No memory problems found.\n".to_owned();
    }
    let mut text = "Memory findings:\n\n".to_owned();
    for finding in findings {
        text.push_str(&format!(" * {}\n\n", finding.text));
    }
    text
}

/// Returns the findings. Below [`LITTLE_BYTES`] only the memory limit is checked.
pub fn findings(situation: &MemoryEvidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    limit(situation, &mut findings);
    if situation.report.used >= LITTLE_BYTES {
        resident(situation, &mut findings);
        holders(situation, &mut findings);
    }
    findings
}

/// Checks the memory limit: whether there is one, whether it is reached, and the effect of another limit.
fn limit(situation: &MemoryEvidence, findings: &mut Vec<Finding>) {
    let MemoryEvidence {
        report,
        config,
        eviction,
        curve,
        ..
    } = situation;
    let (used, machine) = (report.used, situation.machine_bytes);
    if config.maxmemory == 0 && machine > 0 && used as f64 > machine as f64 * 0.75 {
        findings.push(Finding::new(
            "maxmemory",
            format!(
                "There is no memory limit, and {} of the machine's {} are used: the kernel kills a process that needs \
                 more memory than there is. Set maxmemory, and a maxmemory-policy that suits the data.",
                human(used),
                human(machine)
            ),
        ));
    }
    let is_close = config.maxmemory > 0 && used as f64 >= config.maxmemory as f64 * CLOSE;
    if is_close && config.maxmemory_policy == MaxmemoryPolicy::Noeviction {
        findings.push(Finding::new(
            "maxmemory-policy",
            format!(
                "{} of {} (maxmemory) are used and maxmemory-policy is noeviction: commands that need memory are \
                 refused at the limit. Raise maxmemory, or set maxmemory-policy allkeys-lfu if this is a cache.",
                human(used),
                human(config.maxmemory)
            ),
        ));
    }
    if eviction.exceeded_ms > 1_000 {
        findings.push(Finding::new(
            "maxmemory",
            format!(
                "Used memory has been above maxmemory for {:.1} s, and {} are still to be evicted: writes are faster \
                 than eviction, or too few keys can be evicted (maxmemory-policy {}).",
                eviction.exceeded_ms as f64 / 1e3,
                human(eviction.debt_bytes),
                config.maxmemory_policy.name()
            ),
        ));
    }
    if let Some(more) = curve.gain(200)
        && situation.evicted > 0
        && more >= NOTABLE_POINTS
    {
        findings.push(Finding::new(
            "maxmemory",
            format!(
                "Keys are evicted ({} in the last {MINUTES} minutes), and twice the memory would raise the hit ratio \
                 by {:.1} points: the miss-ratio curve estimates {:.1} % instead of {:.1} %. Raise maxmemory.",
                situation.evicted,
                100.0 * more,
                100.0 * (curve.measured.unwrap_or_default() + more),
                100.0 * curve.measured.unwrap_or_default()
            ),
        ));
    }
    if let Some(less) = curve.gain(50)
        && config.maxmemory > 0
        && curve.memory_bytes >= NOTABLE_BYTES * 10
        && curve.reads >= 100_000
        && less > -NOTABLE_POINTS / 4.0
    {
        findings.push(Finding::new(
            "maxmemory",
            format!(
                "Half of the memory is enough: the miss-ratio curve estimates that {} instead of {} lower the hit \
                 ratio by {:.1} points. maxmemory can be lowered.",
                human(curve.memory_bytes / 2),
                human(curve.memory_bytes),
                -100.0 * less.min(0.0)
            ),
        ));
    }
}

/// Checks the process's memory beyond the bytes in use: fragmentation, free pages that the allocator keeps.
fn resident(situation: &MemoryEvidence, findings: &mut Vec<Finding>) {
    let MemoryEvidence { report, config, .. } = situation;
    let exceeds = |part: u64, whole: u64, ratio: f64| {
        part > whole + NOTABLE_BYTES && part as f64 > whole as f64 * ratio
    };
    // Ignore a past peak that left no fragmentation.
    let of_data = report.rss.saturating_sub(PROGRAM_BYTES);
    if report.peak as f64 > report.used as f64 * 1.5 && exceeds(of_data, report.used, 1.25) {
        findings.push(Finding::new(
            "MEMORY PURGE",
            format!(
                "Used memory was {} at its peak since the start and is {} now. Pages that are only partly free stay \
                 allocated, so the resident set (RSS) can be larger than the data needs; new data fills them. MEMORY \
                 PURGE returns pages that are entirely free.",
                human(report.peak),
                human(report.used)
            ),
        ));
    }
    if exceeds(report.allocator_active, report.allocator_allocated, 1.1) {
        let gaps = report.allocator_active - report.allocator_allocated;
        let least = config.active_defrag_ignore_bytes;
        let cure = match config.activedefrag {
            true if gaps >= least => "activedefrag compacts them".to_owned(),
            true => format!(
                "activedefrag ignores gaps below active-defrag-ignore-bytes ({})",
                human(least)
            ),
            false => "CONFIG SET activedefrag yes compacts them".to_owned(),
        };
        findings.push(Finding::new(
            "activedefrag",
            format!(
                "Memory is fragmented: {} of allocator pages hold {} of data (external fragmentation above 1.1), \
                 usually because many values were deleted. New values of the same sizes fill the gaps; {cure}.",
                human(report.allocator_active),
                human(report.allocator_allocated)
            ),
        ));
    }
    if exceeds(report.allocator_resident, report.allocator_active, 1.1) {
        findings.push(Finding::new(
            "MEMORY PURGE",
            format!(
                "The allocator holds free pages ({}) that it has not yet returned to the system. It returns them by \
                 itself within seconds; MEMORY PURGE returns them at once.",
                human(report.allocator_resident - report.allocator_active)
            ),
        ));
    }
    let accounted = report.allocator_resident + PROGRAM_BYTES;
    if exceeds(report.rss, accounted, 1.1) {
        findings.push(Finding::new(
            "disable-thp",
            format!(
                "{} of the resident set (RSS) do not come from the allocator: thread stacks, the program itself, or \
                 transparent huge pages (disable-thp).",
                human(report.rss - report.allocator_resident)
            ),
        ));
    }
}

/// Checks for large consumers of memory.
fn holders(situation: &MemoryEvidence, findings: &mut Vec<Finding>) {
    let MemoryEvidence {
        report,
        config,
        clients,
        ..
    } = situation;
    if *clients > 0 && report.clients / clients > CLIENT_BYTES {
        findings.push(Finding::new(
            "maxmemory-clients",
            format!(
                "Clients use {} of memory each on average. CLIENT LIST shows those with much unprocessed input (qbuf) \
                 or unsent output (omem); maxmemory-clients disconnects the largest when the total exceeds it.",
                human(report.clients / clients)
            ),
        ));
    }
    if report.kept_for_replicas > NOTABLE_BYTES
        && report.kept_for_replicas > config.repl_backlog_size / 2
    {
        findings.push(Finding::new(
            "client-output-buffer-limit",
            format!(
                "A slow replica makes the server keep {} of the replication stream, beyond repl-backlog-size ({}). \
                 This memory is not counted against maxmemory; client-output-buffer-limit replica limits it.",
                human(report.kept_for_replicas),
                human(config.repl_backlog_size)
            ),
        ));
    }
    let largest = report.largest.iter().max_by_key(|(_, bytes)| *bytes);
    if let Some((name, bytes)) = largest
        && *bytes >= NOTABLE_BYTES
        && *bytes as f64 >= report.dataset as f64 * LARGE_PART
    {
        findings.push(Finding::new(
            "MEMORY BIGKEYS",
            format!(
                "One {name} alone takes {} of the {} of all data. Eviction and expiry can only delete it as a whole. \
                 MEMORY BIGKEYS lists the largest values of each type.",
                human(*bytes),
                human(report.dataset)
            ),
        ));
    }
}

impl CurveFigures {
    /// Returns the change in hit ratio, as a fraction of 1, if memory were `percent` of its current size; negative
    /// for a loss.
    pub fn gain(&self, percent: u64) -> Option<f64> {
        let at = PERCENT.iter().position(|each| *each == percent)?;
        Some(self.corrected?[at] - self.measured?)
    }
}

#[cfg(test)]
mod tests;
