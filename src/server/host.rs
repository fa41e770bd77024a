//! What session handlers may ask of the server: the one implementation of `command::host::Server`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use super::cluster::Bus;
use super::listening::Listening;
use super::oom_score::OomScore;
use super::saving::Saving;
use super::shutdown::Shutdown;
use super::title::Title;
use super::{background, limit_clients, memory_limit, users};
use crate::acl::{User, Users};
use crate::client::memory::CLIENT_MEMORY;
use crate::client::registry::Registry;
use crate::client::shared::Shared;
use crate::client::under_way::UnderWay;
use crate::command::error::CommandError;
use crate::command::host::cluster::Cluster;
use crate::command::host::primary::Primary;
use crate::command::host::replica::Replica;
use crate::command::host::scripts::{LogChange, Scripts};
use crate::command::host::{
    Awaited, CommandLog, DryRun, Exit, HotKeysReport, HotKeysRequest, HotKeysTop, LatencyEvent,
    MemoryReport, Reload, Server, SlowlogEntry, SlowlogMoment, Told,
};
use crate::config::Config;
use crate::config::live::{self, Peer};
use crate::config::rewrite::{self, Adding};
use crate::engine::record::Records;
use crate::persist::aof::Aof;
use crate::pubsub::PubSub;
use crate::replication::Replication;
use crate::resp::reply;
use crate::session::pause::Reason;
use crate::session::service::Service;
use crate::sys::watchdog;
use crate::telemetry::memory;
use crate::telemetry::{clock, findings, histogram, info, log, snapshot};

/// How often all shards are visited when fewer keys are to be tracked than are.
const LIMIT_ROUNDS: usize = 8;

/// See the module. Its locks are taken in the order of the fields, and no shard is taken or let go under any of them:
/// who lets a shard go runs what was queued for it, which may be a transaction with CONFIG SET.
pub(super) struct Host {
    service: Arc<Service>,
    aof: Arc<Aof>,
    replication: Arc<Replication>,
    /// The configuration file.
    pub(super) file: Option<PathBuf>,
    /// The open sockets.
    pub(super) listening: Listening,
    /// What `ps` shows.
    pub(super) title: Title,
    /// What a signal asked for.
    pub(super) shutdown: Shutdown,
    pub(super) oom_score: OomScore,
    /// Snapshots.
    pub(super) saving: Arc<Saving>,
    /// Held while the system is asked for what a change of the configuration, or the writing of its file, needs;
    /// never by a transaction.
    asking: Mutex<()>,
    /// The limit of memory has changed since the allocator and the background were last told of it.
    limit_changed: AtomicBool,
    /// Held while the allocator is told.
    following: Mutex<()>,
    /// The bus of the cluster, if this server is a node of one.
    bus: OnceLock<&'static Bus>,
}

impl Host {
    pub(super) fn new(
        service: Arc<Service>,
        (aof, replication): (Arc<Aof>, Arc<Replication>),
        file: Option<PathBuf>,
        listening: Listening,
        title: Title,
        saving: Arc<Saving>,
    ) -> Host {
        Host {
            service,
            aof,
            replication,
            file,
            listening,
            title,
            shutdown: Shutdown::default(),
            oom_score: OomScore::of_process(),
            saving,
            asking: Mutex::new(()),
            limit_changed: AtomicBool::new(false),
            following: Mutex::new(()),
            bus: OnceLock::new(),
        }
    }

    /// Says that this server is a node of a cluster, by its bus.
    pub(super) fn joined(&self, bus: &'static Bus) {
        assert!(self.bus.set(bus).is_ok(), "there is one cluster");
    }

    /// Tells the cluster that this server is about to end, if it is a node of one.
    pub(super) fn leave_cluster(&self) {
        if let Some(bus) = self.bus.get() {
            bus.leave();
        }
    }

    /// How long a round of the background takes; none while it is paused.
    pub(super) fn round(&self) -> Option<Duration> {
        let is_paused = self.service.cron_paused.load(Relaxed);
        let hz = self.service.config.load().hz;
        (!is_paused).then(|| Duration::from_secs(1) / hz.max(1))
    }

    /// Gives the background a moment to evict what a lower limit asks for, so that the client that set it finds some of
    /// it done.
    fn await_eviction(&self) {
        const LOOKS: usize = 10;
        const PAUSE: Duration = Duration::from_micros(300);
        let budget = &self.service.budget;
        for _ in 0..LOOKS {
            let owes = budget.is_limited() && budget.debt_bytes() > 0;
            if !budget.policy().evicts() || !(owes || budget.share_debt_bytes() > 0) {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Asks the system for what a change needs; whatever fails leaves the server as it was.
    fn ask_system(
        &self,
        old: &Config,
        new: &Config,
        changed: &[&'static str],
        named: &[String],
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
                .apply(new, self.is_replica())
                .map_err(|_| failed("oom-score-adj", why))?;
        }
        if is_changed("appendonly") {
            match new.appendonly {
                true => self.aof.turn_on().map_err(|_| {
                    failed("appendonly", "Unable to turn on AOF. Check server logs.")
                })?,
                false => self.aof.turn_off(),
            }
        }
        let tls_before = self.service.tls.current();
        if let Some(name) = named.iter().find(|name| name.starts_with("tls-")) {
            // Also when they are called as before: this is how files are read anew.
            self.service.tls.configure(new).map_err(|text| {
                tracing::warn!("{text}");
                let _ = std::env::set_current_dir(&old.dir);
                let _ = self.oom_score.apply(old, self.is_replica());
                failed(
                    name,
                    "Unable to update TLS configuration. Check server logs.",
                )
            })?;
        }
        // Last of what may fail, because it puts back itself what it changed.
        if is_changed("port") || is_changed("tls-port") || is_changed("bind") {
            self.listening.replace(old, new).map_err(|text| {
                tracing::warn!("{text}");
                self.service.tls.restore(tls_before);
                // They were possible before, so they are possible again.
                let _ = std::env::set_current_dir(&old.dir);
                let _ = self.oom_score.apply(old, self.is_replica());
                let ports = ["port", "tls-port"];
                match ports.into_iter().find(|name| is_changed(name)) {
                    Some(name) => failed(name, "Unable to listen on this port. Check server logs."),
                    None => failed("bind", "Failed to bind to specified addresses."),
                }
            })?;
        }
        Ok(())
    }

    /// Puts a change in force, in memory alone. Changes that are made at once follow each other, in all that they
    /// concern.
    fn publish(&self, pairs: &[(&[u8], &[u8])], peer: Peer) -> Result<(), CommandError> {
        let service = &self.service;
        let _one_at_a_time = service.changing_config.lock();
        let (new, changed) = changed(&service.config.load(), pairs, peer)?;
        let is_changed = |name| changed.contains(&name);
        let of_samples = ["hot-keys-sample", "prefix-delimiter", "prefix-depth"];
        if of_samples.iter().any(|name| changed.contains(name)) {
            service.telemetry.configure_samples(&new);
        }
        if is_changed("miss-ratio-curve") {
            for published in &service.all_published {
                published.want_curve(new.miss_ratio_curve);
            }
        }
        log::configure(&new);
        service.pubsub.configure(&new);
        let limits = [
            "maxmemory",
            "maxmemory-clients",
            "maxmemory-db",
            "maxmemory-policy",
            "maxmemory-size-rule",
            "replica-ignore-maxmemory",
        ];
        if limits.into_iter().any(is_changed) {
            memory_limit::set(service, &new);
            self.limit_changed.store(true, Relaxed);
        }
        limit_clients(&new);
        if is_changed("requirepass") {
            users::follow_requirepass(service, &new);
        }
        reply::set_reply_bytes_max(new.proto_max_reply_len);
        self.replication.primary.configure(&new);
        service.config.store(Arc::new(new));
        Ok(())
    }
}

/// A configuration with some parameters changed, and which of them have other values now.
fn changed(
    old: &Config,
    pairs: &[(&[u8], &[u8])],
    peer: Peer,
) -> Result<(Config, Vec<&'static str>), CommandError> {
    let mut new = old.clone();
    let changed = live::set(&mut new, pairs, peer);
    let changed = changed.map_err(|error| CommandError::from(format!("ERR {error}")))?;
    Ok((new, changed))
}

impl Server for Host {
    fn clients(&self) -> &Registry {
        &self.service.clients
    }

    fn users(&self) -> &Users {
        &self.service.users
    }

    fn run_id(&self) -> &str {
        &self.service.telemetry.run_id
    }

    fn dry_run(&self, user: &User, request: &[Vec<u8>], db: usize) -> DryRun {
        users::dry_run(user, request, db)
    }

    fn read_users(&self) -> Result<Vec<u8>, String> {
        users::read(&self.service.config.load())
    }

    fn write_users(&self, text: &[u8]) -> Result<(), String> {
        users::write(&self.service.config.load(), text)
    }

    fn pubsub(&self) -> &PubSub {
        &self.service.pubsub
    }

    fn primary(&self) -> &dyn Primary {
        &*self.replication.primary
    }

    fn replica(&self) -> &'static dyn Replica {
        self.replication.replica
    }

    fn cluster(&self) -> Option<&dyn Cluster> {
        self.service.cluster.get().map(|cluster| &**cluster)
    }

    fn config(&self) -> Arc<Config> {
        self.service.config.load_full()
    }

    fn config_set(&self, pairs: &[(&[u8], &[u8])], is_local: bool) -> Result<(), CommandError> {
        let peer = if is_local { Peer::Local } else { Peer::Remote };
        let loading = &self.service.telemetry.persistence.loading;
        let is_denied = |(name, _): &(&[u8], &[u8])| live::is_denied_while_loading(name);
        let is_loading = loading.is_loading.load(Relaxed) || loading.is_aside.load(Relaxed);
        if is_loading && pairs.iter().any(is_denied) {
            return Err(CommandError::Loading);
        }
        if !pairs.iter().any(|(name, _)| live::asks_system(name)) {
            return self.publish(pairs, peer);
        }
        let _one_at_a_time = self.asking.lock();
        let old = self.service.config.load_full();
        let (new, changed) = changed(&old, pairs, peer)?;
        let named = pairs
            .iter()
            .map(|(name, _)| String::from_utf8_lossy(name).to_lowercase());
        let named: Vec<String> = named.collect();
        self.ask_system(&old, &new, &changed, &named)?;
        if let Err(error) = self.publish(pairs, peer) {
            // Other parameters have changed meanwhile, and none that these depend on is known.
            let _ = self.ask_system(&new, &old, &changed, &named);
            return Err(error);
        }
        if ["proc-title-template", "port", "tls-port", "bind"]
            .iter()
            .any(|name| changed.contains(name))
        {
            self.title.show(&self.service.config.load());
        }
        Ok(())
    }

    fn follow_config(&self) {
        watchdog::look_again();
        if self.limit_changed.swap(false, Relaxed) {
            {
                let _last_is_latest = self.following.lock();
                background::follow_limit(&self.service);
            }
            self.await_eviction();
        }
        self.aof.follow_config();
        if let Some(bus) = self.bus.get() {
            bus.follow_config();
        }
        // Another lag lets others count.
        self.replication.primary.count_good();
        if CLIENT_MEMORY.is_over() {
            self.service.clients.evict();
        }
        // Who lowers `tracking-table-max-keys` a little sees it at once; the background does the rest.
        let _is_left = (0..LIMIT_ROUNDS).all(|_| background::limit_tracked(&self.service));
    }

    fn config_rewrite(&self, adding: Adding) -> Result<(), CommandError> {
        let _one_at_a_time = self.asking.lock();
        let config = users::noted(&self.service);
        rewrite::rewrite_file(&config, self.file.as_deref(), adding)
            .map_err(|error| CommandError::from(format!("ERR {error}")))
    }

    fn save(&self) -> Result<Awaited, CommandError> {
        self.saving.save()
    }

    fn save_in_background(&self, may_wait: bool) -> Result<Option<Awaited>, CommandError> {
        self.saving.in_background(may_wait)
    }

    fn schedule_save(&self) -> Result<(), CommandError> {
        self.saving.schedule()
    }

    fn follow_role(&self) {
        let config = self.service.config.load();
        log::set_role(self.is_replica());
        memory_limit::set(&self.service, &config);
        // What went wrong is in the log.
        let _ = self.oom_score.apply(&config, self.is_replica());
    }

    fn is_replica(&self) -> bool {
        self.service.telemetry.replication.is_replica.load(Relaxed)
    }

    fn lacks_primary(&self) -> bool {
        let figures = &self.service.telemetry.replication;
        figures.is_replica.load(Relaxed) && !figures.is_link_up.load(Relaxed)
    }

    fn unsaved_text(&self) -> Option<&'static str> {
        let persistence = &self.service.telemetry.persistence;
        persistence.unsaved_text(&self.service.config.load())
    }

    fn save_emptied(&self) -> Option<Awaited> {
        self.saving.save_emptied()
    }

    fn last_save_s(&self) -> u64 {
        let figures = &self.service.telemetry.persistence.rdb;
        figures.last_save_s.load(Relaxed)
    }

    fn shut_down(&self, exit: Exit) -> Awaited {
        self.saving.shut_down(exit)
    }

    fn rewrite_aof(&self, may_begin: bool) -> Result<Option<Awaited>, CommandError> {
        self.saving.rewrite_aof(&self.aof, may_begin)
    }

    fn is_aof_synced(&self, position: u64, waiter: Option<&Arc<Shared>>) -> Option<bool> {
        self.aof.is_synced(position, waiter)
    }

    fn log_position(&self) -> u64 {
        self.aof.log_position()
    }

    fn load_aof(&self) -> Awaited {
        self.saving.load_aof(&self.aof)
    }

    fn set_aof_flush_sleep(&self, us: u64) {
        self.aof.set_flush_sleep(us);
    }

    fn reload(&self, reload: Reload) -> Awaited {
        self.saving.reload(reload)
    }

    fn abort_shutdown(&self) -> bool {
        self.shutdown.abort() || self.saving.abort_end()
    }

    fn reset_statistics(&self) {
        self.service.telemetry.reset_statistics(&*self.service);
        self.service.forget_slot_usage();
    }

    fn info(&self, sections: &[String]) -> String {
        info::text(&*self.service, sections)
    }

    fn memory(&self) -> MemoryReport {
        let used = memory::Used::now(&self.service.telemetry);
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
        let situation = findings::latency::Situation::of(&*self.service);
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
        findings::memory::text(&findings::memory::Situation::of(&*self.service))
    }

    fn latency_reset(&self, events: &[String]) -> usize {
        self.service.telemetry.latency.reset(events)
    }

    fn latency_histogram(&self, command: usize) -> Option<(u64, Vec<(u64, u64)>)> {
        let figures = snapshot::command(command)?;
        (figures.calls > 0).then(|| (figures.calls, histogram::cumulative_us(&figures.buckets)))
    }

    fn pause(&self, until_ms: u64, writes_only: bool) -> Awaited {
        let now_ms = clock::unix_ms();
        let pause = &self.service.pause;
        pause.start(Reason::Client, until_ms, writes_only, now_ms);
        let service = Arc::clone(&self.service);
        Awaited {
            begin: Arc::new(move |done| {
                UnderWay::when_over(&service.under_way, || done(Ok(String::new())));
            }),
            told: Told::Text("OK"),
        }
    }

    fn sleep(&self, until_ms: u64) {
        let now_ms = clock::unix_ms();
        let pause = &self.service.pause;
        pause.start(Reason::Sleep, until_ms, false, now_ms);
    }

    fn unpause(&self) {
        self.service.end_pause(Reason::Client);
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

    fn log_records(&self, records: &mut Records, is_unit: bool) -> Option<u64> {
        self.service.log_records(records, is_unit)
    }

    fn change_libraries(
        &self,
        records: &mut Records,
        change: &mut dyn FnMut(&dyn Scripts, LogChange<'_>) -> Result<(), CommandError>,
    ) -> Result<Option<u64>, CommandError> {
        // One change comes after the other, so that their records do.
        let _one_by_one = self.service.changing_libraries.lock();
        let mut position = None;
        change(&self.service.scripts, &mut || {
            position = self.service.log_records(records, false);
            position
        })?;
        Ok(position)
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
