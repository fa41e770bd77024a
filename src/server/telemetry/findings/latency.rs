//! Findings about what makes commands wait: LATENCY DOCTOR.

use std::sync::Arc;

use super::Finding;
use super::recent::{MINUTES, RecentEvents, Sums};
use crate::telemetry::clock;
use crate::telemetry::holds::{Hold, LONG_HOLD_NS};
use crate::telemetry::hotkeys::HotKey;
use crate::telemetry::latency::{COMMAND, EXPIRE_CYCLE, FAST_COMMAND};
use crate::telemetry::memory::{self, human};
use crate::telemetry::observed::Observed;
use basalt_commands::command::host::LatencyEvent;
use basalt_commands::config::Config;
use basalt_commands::config::values::Appendfsync;

/// Contention is reported if at least this percentage of attempts to lock a shard found it locked.
const HELD_PERCENT: f64 = 1.0;

/// Contention is judged only after this many attempts to lock a shard.
const TRIES_MIN: u64 = 100_000;

/// Values of at least this many bytes are reported, because a command that processes such a value as a whole
/// keeps its shard locked for long.
const SLOW_BYTES: u64 = 8 << 20;

/// Syncs of the append-only file are reported as slow if they take at least this long on average, in
/// microseconds.
const SLOW_SYNC_US: u64 = 5_000;

/// The state to be diagnosed.
#[derive(Clone, Debug, Default)]
pub struct LatencyEvidence {
    pub(super) config: Arc<Config>,
    /// Recent latency events (LATENCY LATEST), each with its longest duration in milliseconds.
    pub(super) events: Vec<(String, u64)>,
    pub(super) hot_key: Option<HotKey>,
    /// Size of the largest value of each type.
    pub(super) largest: Vec<(&'static str, u64)>,
    pub(super) late: RecentEvents,
}

impl LatencyEvidence {
    /// Captures the current state.
    pub fn of(service: &dyn Observed) -> LatencyEvidence {
        let telemetry = service.telemetry();
        let since_s = (clock::unix_ms() / 1_000).saturating_sub(60 * MINUTES as u64);
        let events = telemetry.latency.latest().into_iter();
        let worst = |event: LatencyEvent| {
            let samples = telemetry.latency.history(&event.name).into_iter();
            let recent_events = samples.filter(|(at_s, _)| *at_s >= since_s);
            let worst_ms = recent_events.map(|(_, ms)| ms).max()?;
            Some((event.name, worst_ms))
        };
        LatencyEvidence {
            config: service.config(),
            events: events.filter_map(worst).collect(),
            hot_key: telemetry.hot_keys.hottest(),
            largest: memory::largest(service),
            late: telemetry.recent.recent_events(service),
        }
    }
}

/// Returns the part of LATENCY DOCTOR that follows the events.
pub fn text(situation: &LatencyEvidence) -> String {
    let findings = findings(situation);
    if findings.is_empty() {
        return String::new();
    }
    let mut text = "\nAdvice:\n\n".to_owned();
    for finding in findings {
        text.push_str(&format!("- {}\n", finding.text));
    }
    text
}

/// Returns the findings about latency.
pub fn findings(situation: &LatencyEvidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    overload(situation, &mut findings);
    events(situation, &mut findings);
    shards(situation, &mut findings);
    disk(situation, &mut findings);
    findings
}

fn overload(situation: &LatencyEvidence, findings: &mut Vec<Finding>) {
    let refused = situation.late.sums.overload_refused;
    if refused > 0 {
        findings.push(Finding::new(
            "overload-p99",
            format!(
                "{refused} expensive command(s) were refused in the last {MINUTES} minutes, because requests waited for \
                 more than overload-p99 ({} ms). INFO commandstats says where the time goes; more cores (`threads`) or \
                 replicas for reads let more through.",
                situation.config.overload_p99
            ),
        ));
    }
}

fn events(situation: &LatencyEvidence, findings: &mut Vec<Finding>) {
    let config = &situation.config;
    let worst = |name: &str| {
        let mut events = situation.events.iter();
        events.find_map(|(event, worst_ms)| (event == name).then_some(*worst_ms))
    };
    let threshold_us = config.latency_monitor_threshold.saturating_mul(1_000);
    if let Some(worst_ms) = worst(COMMAND).max(worst(FAST_COMMAND)) {
        let which = if config.slowlog_log_slower_than < 0 {
            format!(
                "the slow log is off, so they were not recorded. CONFIG SET slowlog-log-slower-than {threshold_us} \
                 turns it on."
            )
        } else if threshold_us > 0 && config.slowlog_log_slower_than > threshold_us {
            format!(
                "the slow log has a higher threshold than the latency monitor. CONFIG SET slowlog-log-slower-than \
                 {threshold_us} sets both to the same threshold."
            )
        } else {
            "SLOWLOG GET lists them.".to_owned()
        };
        findings.push(Finding::new(
            "slowlog-log-slower-than",
            format!("Commands took up to {worst_ms} ms in the last {MINUTES} minutes: {which}"),
        ));
    }
    if worst(COMMAND).is_some() {
        findings.push(Finding::new(
            "SLOWLOG GET",
            "Commands over many elements or keys (KEYS, large ranges, MSET of thousands of keys) block their shards \
             while they run: request less at a time, or use SCAN.",
        ));
    }
    if let Some(worst_ms) = worst(FAST_COMMAND) {
        findings.push(Finding::new(
            "threads",
            format!(
                "A command with the flag `fast` took {worst_ms} ms: the machine is probably short of CPU. Look for \
                 other busy processes and for a CPU limit, and compare `threads` with the number of cores."
            ),
        ));
    }
    if let Some(worst_ms) = worst(EXPIRE_CYCLE) {
        findings.push(Finding::new(
            "EXPIRE",
            format!(
                "Deleting expired keys took {worst_ms} ms in total: many keys, or large ones, expire at the same \
                 time. The work is done in slices and other commands run in between, so no client waited that long; \
                 INFO's eventloop_* fields and the command events show the waits. Add some randomness to TTLs to \
                 spread the work."
            ),
        ));
    }
}

fn shards(situation: &LatencyEvidence, findings: &mut Vec<Finding>) {
    if let Some(HotKey {
        key,
        shown,
        percent,
    }) = &situation.hot_key
    {
        let rest = format!(
            "takes {percent} % of all key accesses. They all go to one shard, so more shards do not help: keep copies \
             of it under several names, or cache it in the clients. HOTKEYS TOP lists the hottest keys."
        );
        findings.push(Finding {
            text: format!("One key, {shown}, {rest}"),
            unnamed: Some(format!("One key {rest}")),
            key: Some(key.clone()),
            remedy: "HOTKEYS TOP",
        });
    }
    let largest = situation.largest.iter().max_by_key(|(_, bytes)| *bytes);
    if let Some((name, bytes)) = largest.filter(|(_, bytes)| *bytes >= SLOW_BYTES) {
        findings.push(Finding::new(
            "MEMORY BIGKEYS",
            format!(
                "The largest value is a {name} of {}. A command over the whole value blocks its shard, and the reply \
                 needs bandwidth. MEMORY BIGKEYS lists the largest values of each type.",
                human(*bytes)
            ),
        ));
    }
    let RecentEvents { sums, holds } = &situation.late;
    let tries = sums.takes + sums.takes_found_held;
    let percent = 100.0 * sums.takes_found_held as f64 / tries.max(1) as f64;
    if tries >= TRIES_MIN && percent >= HELD_PERCENT {
        findings.push(Finding::new(
            "shards",
            format!(
                "In the last {MINUTES} minutes {percent:.1} % of all accesses to a shard found it busy: long commands \
                 or hot keys make other commands wait. HOTKEYS TOP and SLOWLOG GET list them; if many different keys \
                 are in use, more `shards` help."
            ),
        ));
    }
    if holds.by_run.ran_ns() >= LONG_HOLD_NS {
        findings.push(long_run(holds.by_run));
    }
    if holds.by_wait.waited_ns >= LONG_HOLD_NS {
        findings.push(long_wait(holds.by_wait));
    }
}

/// Reports a command that kept a shard locked for long.
fn long_run(hold: Hold) -> Finding {
    let waited = match hold.waited_ns >= hold.ns / 10 {
        true => format!(
            " (of which its thread waited about {:.0} ms for a CPU core)",
            hold.waited_ns as f64 / 1e6
        ),
        false => String::new(),
    };
    Finding::new(
        "SLOWLOG GET",
        format!(
            "A shard was busy for {:.0} ms{waited} without a break in the last {MINUTES} minutes, and every command \
             on its keys waited. SLOWLOG GET lists the commands that took so long.",
            hold.ns as f64 / 1e6
        ),
    )
}

/// Reports a shard that stayed locked for long because the thread that had locked it was not scheduled.
fn long_wait(hold: Hold) -> Finding {
    Finding::new(
        "threads",
        format!(
            "A shard was busy for {:.0} ms without a break in the last {MINUTES} minutes, and for about {:.0} ms of \
             them its thread waited for a CPU core: the cause is a lack of free cores, not a slow command. Look for \
             other busy processes and for a CPU limit, and compare `threads` with the number of cores.",
            hold.ns as f64 / 1e6,
            hold.waited_ns as f64 / 1e6
        ),
    )
}

fn disk(situation: &LatencyEvidence, findings: &mut Vec<Finding>) {
    let LatencyEvidence { config, late, .. } = situation;
    let Sums {
        syncs,
        sync_total_us,
        delayed_syncs,
        waits_for_disk,
        waits_for_replica,
        ..
    } = &late.sums;
    let mean_us = sync_total_us.checked_div(*syncs).unwrap_or(0);
    if config.appendfsync == Appendfsync::Always && mean_us >= SLOW_SYNC_US {
        findings.push(Finding::new(
            "appendfsync",
            format!(
                "An fsync of the append-only file takes {:.1} ms on average, and with appendfsync always each write \
                 waits for one. Use a faster disk, or appendfsync everysec if one second of writes may be lost.",
                mean_us as f64 / 1e3
            ),
        ));
    }
    if *delayed_syncs > 0 {
        findings.push(Finding::new(
            "no-appendfsync-on-rewrite",
            format!(
                "The disk was too slow {delayed_syncs} times in the last {MINUTES} minutes: the append-only file was \
                 written while the previous fsync was still running (aof_delayed_fsync), so more than one second of \
                 writes could have been lost. Look for other writers on this disk; no-appendfsync-on-rewrite yes skips \
                 fsync while the file is rewritten."
            ),
        ));
    }
    if *waits_for_disk > 0 {
        findings.push(Finding::new(
            "appendonly",
            format!(
                "Writes waited {waits_for_disk} times in the last {MINUTES} minutes because the disk could not keep \
                 up with the append-only file (writer_waits_for_disk)."
            ),
        ));
    }
    if *waits_for_replica > 0 {
        findings.push(Finding::new(
            "client-output-buffer-limit",
            format!(
                "Writes waited {waits_for_replica} times in the last {MINUTES} minutes for a replica that is behind \
                 (writer_waits_for_replica). client-output-buffer-limit replica sets when such a replica is \
                 disconnected."
            ),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedies(situation: &LatencyEvidence) -> Vec<&'static str> {
        let findings = findings(situation);
        findings.iter().map(|finding| finding.remedy).collect()
    }

    #[test]
    fn a_quiet_server_has_nothing_to_say_and_each_event_its_own_advice() {
        let mut situation = LatencyEvidence::default();
        assert_eq!(
            (text(&situation), remedies(&situation)),
            (String::new(), vec![])
        );
        situation.events = vec![(COMMAND.to_owned(), 20), (EXPIRE_CYCLE.to_owned(), 30)];
        situation.config = Arc::new(Config {
            latency_monitor_threshold: 5,
            ..Config::default()
        });
        assert_eq!(
            remedies(&situation),
            ["slowlog-log-slower-than", "SLOWLOG GET", "EXPIRE"]
        );
        let shown = text(&situation);
        assert!(
            shown.contains("took up to 20 ms") && shown.contains("slowlog-log-slower-than 5000"),
            "{shown}"
        );
    }

    #[test]
    fn large_values_held_shards_and_slow_disks_are_told_with_their_figures() {
        let mut situation = LatencyEvidence {
            largest: vec![("hash", 1_000), ("list", 20 << 20)],
            ..LatencyEvidence::default()
        };
        assert!(text(&situation).contains("a list of 20.00M"));
        situation.largest.clear();
        situation.late.holds.by_run = Hold {
            ns: 250_000_000,
            waited_ns: 0,
        };
        situation.late.holds.by_wait = situation.late.holds.by_run;
        let sums = &mut situation.late.sums;
        (sums.takes, sums.takes_found_held) = (960_000, 40_000);
        assert_eq!(remedies(&situation), ["shards", "SLOWLOG GET"]);
        let shown = text(&situation);
        assert!(
            shown.contains("4.0 % of all accesses") && shown.contains("busy for 250 ms without"),
            "{shown}"
        );
        // A thread that waited for a core while it had locked the shard is reported differently: no command is
        // to blame.
        situation.late.holds.by_run = Hold::default();
        situation.late.holds.by_wait.waited_ns = 240_000_000;
        assert_eq!(remedies(&situation), ["shards", "threads"]);
        assert!(text(&situation).contains("for about 240 ms of them its thread"));
        situation.late = RecentEvents::default();
        let sums = &mut situation.late.sums;
        (sums.syncs, sums.sync_total_us) = (100, 1_200_000);
        assert_eq!(remedies(&situation), [] as [&str; 0]);
        situation.config = Arc::new(Config {
            appendfsync: Appendfsync::Always,
            ..Config::default()
        });
        assert!(text(&situation).contains("takes 12.0 ms on average"));
        situation.late.sums.delayed_syncs = 3;
        situation.late.sums.waits_for_replica = 2;
        assert_eq!(remedies(&situation).len(), 3);
    }

    #[test]
    fn a_key_is_named_only_where_it_may_be() {
        let situation = LatencyEvidence {
            hot_key: Some(HotKey {
                key: b"secret".to_vec(),
                shown: "\"secret\"".to_owned(),
                percent: 40,
            }),
            ..LatencyEvidence::default()
        };
        let [finding] = &findings(&situation)[..] else {
            panic!("one is found")
        };
        assert!(
            finding
                .shown(true)
                .starts_with("One key, \"secret\", takes 40 %")
        );
        assert!(finding.shown(false).starts_with("One key takes 40 %"));
    }
}
