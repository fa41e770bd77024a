//! What session handlers may ask of the server: the one implementation of `command::context::Server`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;

use super::background;
use super::listening::Listening;
use super::oom_score::OomScore;
use super::shutdown::Shutdown;
use super::title::Title;
use crate::client::ledger::LEDGER;
use crate::client::registry::Registry;
use crate::command::context::{
    HotKeysReport, HotKeysRequest, HotKeysTop, LatencyEvent, MemoryReport, Server, SlowlogEntry,
};
use crate::command::error::CommandError;
use crate::command::script::Scripts;
use crate::config::Config;
use crate::config::live::{self, Peer};
use crate::config::rewrite::{self, Adding};
use crate::config::values::MaxmemoryPolicy;
use crate::engine::evict::Policy;
use crate::pubsub::PubSub;
use crate::session::service::Service;
use crate::telemetry::memory::{self, Decay};
use crate::telemetry::{clock, histogram, info, log, snapshot};

/// How often all shards are visited when fewer keys are to be tracked than are.
const LIMIT_ROUNDS: usize = 8;

/// See the module.
pub(super) struct Host {
    service: Arc<Service>,
    file: Option<PathBuf>,
    /// The open sockets.
    pub(super) listening: Listening,
    /// What `ps` shows.
    pub(super) title: Title,
    /// What a signal asked for.
    pub(super) shutdown: Shutdown,
    pub(super) oom_score: OomScore,
    /// One change of the configuration at a time.
    changing: Mutex<()>,
}

impl Host {
    pub(super) fn new(
        service: Arc<Service>,
        file: Option<PathBuf>,
        listening: Listening,
        title: Title,
    ) -> Host {
        Host {
            service,
            file,
            listening,
            title,
            shutdown: Shutdown::default(),
            oom_score: OomScore::of_process(),
            changing: Mutex::new(()),
        }
    }

    /// How long a round of the background takes; none while it is paused.
    pub(super) fn round(&self) -> Option<Duration> {
        let is_paused = self.service.cron_paused.load(Relaxed);
        let hz = self.service.config.load().hz;
        (!is_paused).then(|| Duration::from_secs(1) / hz.max(1))
    }

    /// Gives the background a moment to evict what a lower limit asks for, so that whoever set it finds some of it done.
    fn await_eviction(&self) {
        const LOOKS: usize = 10;
        const PAUSE: Duration = Duration::from_micros(300);
        let budget = &self.service.budget;
        for _ in 0..LOOKS {
            if !budget.policy().evicts() || !budget.is_limited() || budget.debt_bytes() <= 0 {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Sets in motion what a change means; whatever fails leaves the server as it was.
    fn apply(
        &self,
        old: &Config,
        new: &Config,
        changed: &[&'static str],
    ) -> Result<(), CommandError> {
        let failed = |name: &str, why: &str| {
            CommandError::from(format!(
                "ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"
            ))
        };
        let is_changed = |name| changed.contains(&name);
        if is_changed("maxclients") {
            super::descriptors_for(new.maxclients).map_err(|possible| {
                let why = format!(
                    "The operating system is not able to handle the specified number of \
                     clients, try with {possible}"
                );
                failed("maxclients", &why)
            })?;
        }
        if is_changed("dir") {
            std::env::set_current_dir(&new.dir)
                .map_err(|error| failed("dir", &error.to_string()))?;
        }
        if is_changed("oom-score-adj") || is_changed("oom-score-adj-values") {
            let why = "Failed to set current oom_score_adj. Check server logs.";
            self.oom_score
                .apply(new)
                .map_err(|_| failed("oom-score-adj", why))?;
        }
        // Last of what may fail, because it puts back itself what it changed.
        if is_changed("port") || is_changed("bind") {
            self.listening.replace(old, new).map_err(|text| {
                tracing::warn!("{text}");
                // They were possible before, so they are possible again.
                let _ = std::env::set_current_dir(&old.dir);
                let _ = self.oom_score.apply(old);
                match is_changed("port") {
                    true => failed("port", "Unable to listen on this port. Check server logs."),
                    false => failed("bind", "Failed to bind to specified addresses."),
                }
            })?;
        }
        if is_changed("hot-keys-sample") {
            self.service
                .telemetry
                .hot_keys
                .configure(new.hot_keys_sample);
        }
        if is_changed("miss-ratio-curve") {
            for board in &self.service.boards {
                board.want_curve(new.miss_ratio_curve);
            }
        }
        if is_changed("loglevel") {
            log::set_level(new.loglevel);
        }
        if is_changed("proc-title-template") || is_changed("port") || is_changed("bind") {
            self.title.show(new);
        }
        Ok(())
    }
}

/// Finds out what the server takes beside data and clients. It is little, but with a small limit it counts whether a
/// command is refused some 100 KiB too late, or because of somebody's buffers.
pub(super) fn measure_base(service: &Service) {
    // What is freed of flushed databases is still on the account of their shards.
    if service.budget.is_freeing() {
        return;
    }
    let taken = service.budget.elsewhere_bytes();
    let clients = service.clients.all();
    let clients: usize = clients.iter().map(|client| client.memory_bytes()).sum();
    service.budget.set_base((taken - clients as i64).max(0));
}

/// Makes the limit of memory felt.
pub(super) fn limit_memory(service: &Service, config: &Config) {
    let policy = match config.maxmemory_policy {
        MaxmemoryPolicy::Noeviction => Policy::NoEviction,
        MaxmemoryPolicy::AllkeysLru => Policy::AllkeysLru,
        MaxmemoryPolicy::AllkeysLfu => Policy::AllkeysLfu,
        MaxmemoryPolicy::AllkeysRandom => Policy::AllkeysRandom,
        MaxmemoryPolicy::VolatileLru => Policy::VolatileLru,
        MaxmemoryPolicy::VolatileLfu => Policy::VolatileLfu,
        MaxmemoryPolicy::VolatileRandom => Policy::VolatileRandom,
        MaxmemoryPolicy::VolatileTtl => Policy::VolatileTtl,
    };
    let budget = &service.budget;
    measure_base(service);
    budget.configure(config.maxmemory, policy, config.maxmemory_size_rule);
    memory::set_decay(match config.maxmemory {
        0 => Decay::Slow,
        _ => Decay::Soon,
    });
    background::hurry();
}

impl Server for Host {
    fn clients(&self) -> &Registry {
        &self.service.clients
    }

    fn pubsub(&self) -> &PubSub {
        &self.service.pubsub
    }

    fn config(&self) -> Arc<Config> {
        self.service.config.load_full()
    }

    fn config_set(&self, pairs: &[(&[u8], &[u8])], is_local: bool) -> Result<(), CommandError> {
        let _one_at_a_time = self.changing.lock();
        let mut config = (**self.service.config.load()).clone();
        let peer = if is_local { Peer::Local } else { Peer::Remote };
        let changed = live::set(&mut config, pairs, peer)
            .map_err(|error| CommandError::from(format!("ERR {error}")))?;
        self.apply(&self.service.config.load(), &config, &changed)?;
        self.service.pubsub.configure(&config);
        let limits = ["maxmemory", "maxmemory-policy", "maxmemory-size-rule"];
        if limits.iter().any(|name| changed.contains(name)) {
            limit_memory(&self.service, &config);
            self.await_eviction();
        }
        LEDGER.set_limit(config.client_bytes_max());
        self.service.config.store(Arc::new(config));
        if LEDGER.is_over() {
            self.service.clients.evict();
        }
        // Who lowers `tracking-table-max-keys` a little sees it at once; the background does the rest.
        if changed.contains(&"tracking-table-max-keys") {
            let _is_left = (0..LIMIT_ROUNDS).all(|_| self.service.limit_tracked());
        }
        Ok(())
    }

    fn config_rewrite(&self, adding: Adding) -> Result<(), CommandError> {
        let _one_at_a_time = self.changing.lock();
        rewrite::rewrite_file(&self.service.config.load(), self.file.as_deref(), adding)
            .map_err(|error| CommandError::from(format!("ERR {error}")))
    }

    fn abort_shutdown(&self) -> bool {
        self.shutdown.abort()
    }

    fn reset_statistics(&self) {
        self.service.telemetry.reset_statistics(&*self.service);
    }

    fn info(&self, sections: &[String]) -> String {
        info::text(&*self.service, sections)
    }

    fn memory(&self) -> MemoryReport {
        let used = memory::used_bytes();
        let clients = memory::client_figures(&*self.service);
        memory::report(&*self.service, &self.service.telemetry, clients, used)
    }

    fn slowlog(&self, count: usize) -> Vec<SlowlogEntry> {
        self.service.slowlog.get(count)
    }

    fn slowlog_len(&self) -> usize {
        self.service.slowlog.len()
    }

    fn slowlog_reset(&self) {
        self.service.slowlog.reset();
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
        let advice = [
            telemetry.hot_keys.advice(),
            memory::advice_on_largest(&self.memory()),
        ];
        for advice in advice.iter().flatten() {
            text.push_str(&format!("\n- {advice}\n"));
        }
        text
    }

    fn latency_graph(&self, event: &str) -> Option<String> {
        self.service
            .telemetry
            .latency
            .graph(event, clock::unix_ms() / 1_000)
    }

    fn memory_doctor(&self) -> String {
        memory::doctor(&self.memory(), self.service.clients.count() as u64)
    }

    fn latency_reset(&self, events: &[String]) -> usize {
        self.service.telemetry.latency.reset(events)
    }

    fn latency_histogram(&self, command: usize) -> Option<(u64, Vec<(u64, u64)>)> {
        let figures = snapshot::command(command)?;
        (figures.calls > 0).then(|| (figures.calls, histogram::cumulative_us(&figures.buckets)))
    }

    fn pause(&self, until_ms: u64, writes_only: bool) {
        self.service
            .pause
            .start(until_ms, writes_only, clock::unix_ms());
    }

    fn unpause(&self) {
        self.service.pause.stop();
        for client in self.service.clients.all() {
            client.nudge();
        }
    }

    fn unix_us(&self) -> u64 {
        clock::unix_us()
    }

    fn set_active_expire(&self, on: bool) {
        self.service
            .active_expire
            .store(on, std::sync::atomic::Ordering::Relaxed);
    }

    fn pause_cron(&self, paused: bool) {
        self.service
            .cron_paused
            .store(paused, std::sync::atomic::Ordering::Relaxed);
    }

    fn log(&self, line: &str) {
        tracing::warn!("{line}");
    }

    fn purge_memory(&self) {
        if !memory::purge() {
            tracing::warn!("The allocator did not give back all unused memory");
        }
    }

    fn allocator_report(&self) -> String {
        memory::allocator_report()
    }

    fn shard_count(&self) -> usize {
        self.service.shards.len()
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

    fn scripts(&self) -> &dyn Scripts {
        &self.service.scripts
    }

    fn set_allows_every_command_in_scripts(&self, on: bool) {
        self.service.script_calls_unbound.store(on, Relaxed);
    }

    fn allows_every_command_in_scripts(&self) -> bool {
        self.service.script_calls_unbound.load(Relaxed)
    }
}
