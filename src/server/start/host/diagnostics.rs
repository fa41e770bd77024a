//! Statistics and reports: INFO, the slow log, latency, hot keys, memory.

use super::ServerHost;
use crate::telemetry::memory;
use crate::telemetry::{clock, findings, histogram, info, snapshot};
use basalt_commands::command::host::{
    CommandLog, Diagnostics, HotKeysReport, HotKeysRequest, HotKeysTop, LatencyEvent, MemoryReport,
    SlowlogEntry, SlowlogMoment,
};

impl Diagnostics for ServerHost {
    fn reset_statistics(&self) {
        self.service.telemetry.reset_statistics(&*self.service);
        self.service.forget_slot_usage();
    }

    fn info(&self, sections: &[String]) -> String {
        info::text(&*self.service, sections)
    }

    fn memory(&self) -> MemoryReport {
        let used = memory::MemoryUsage::now(&self.service.telemetry);
        let clients = memory::client_figures(&*self.service);
        memory::report(&*self.service, &self.service.telemetry, clients, used)
    }

    fn command_log(&self, log: CommandLog, count: usize) -> Vec<SlowlogEntry> {
        self.service.telemetry.command_log(log).get(count)
    }

    fn command_log_len(&self, log: CommandLog) -> usize {
        self.service.telemetry.command_log(log).len()
    }

    fn command_log_reset(&self, log: CommandLog) {
        self.service.telemetry.command_log(log).reset();
    }

    fn slowlog_moment(&self) -> SlowlogMoment {
        self.service.telemetry.slowlog.moment()
    }

    fn latency_latest(&self) -> Vec<LatencyEvent> {
        self.service.telemetry.latency.latest()
    }

    fn latency_history(&self, event: &str) -> Vec<(u64, u64)> {
        self.service.telemetry.latency.history(event)
    }

    fn latency_doctor(&self) -> String {
        let config = self.service.config.load();
        let telemetry = &self.service.telemetry;
        let mut text = telemetry.latency.doctor(&config, clock::unix_ms() / 1_000);
        let situation = findings::latency::LatencyEvidence::of(&*self.service);
        text.push_str(&findings::latency::text(&situation));
        text
    }

    fn latency_graph(&self, event: &str) -> Option<String> {
        self.service
            .telemetry
            .latency
            .graph(event, clock::unix_ms() / 1_000)
    }

    fn memory_doctor(&self) -> String {
        let broken = findings::health::Situation::of(&*self.service);
        let memory = findings::memory::MemoryEvidence::of(&*self.service);
        findings::health::text(&broken) + &findings::memory::text(&memory)
    }

    fn latency_reset(&self, events: &[String]) -> usize {
        self.service.telemetry.latency.reset(events)
    }

    fn latency_histogram(&self, command: usize) -> Option<(u64, Vec<(u64, u64)>)> {
        let figures = snapshot::command(command)?;
        (figures.calls > 0).then(|| (figures.calls, histogram::cumulative_us(&figures.buckets)))
    }

    fn purge_memory(&self) {
        if !memory::purge() {
            tracing::warn!("The allocator did not return all unused memory");
        }
    }

    fn allocator_report(&self) -> String {
        memory::allocator_report()
    }

    fn hot_keys_start(&self, request: HotKeysRequest) -> bool {
        let hot_keys = &self.service.telemetry.hot_keys;
        hot_keys.start(request, clock::unix_ms())
    }

    fn hot_keys_stop(&self) -> bool {
        self.service.telemetry.hot_keys.stop(clock::unix_ms())
    }

    fn hot_keys_reset(&self) -> bool {
        self.service.telemetry.hot_keys.reset(clock::unix_ms())
    }

    fn hot_keys(&self) -> Option<HotKeysReport> {
        self.service.telemetry.hot_keys.report(clock::unix_ms())
    }

    fn hot_keys_top(&self, count: usize) -> HotKeysTop {
        self.service.telemetry.hot_keys.top(count)
    }
}
