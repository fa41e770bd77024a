//! The configuration, its file, and the ACL file.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::super::{background, limit_clients, memory_limit, users};
use super::ServerHost;
use crate::sys::watchdog;
use crate::telemetry::log;
use basalt_commands::client::memory::CLIENT_MEMORY;
use basalt_commands::command::error::CommandError;
use basalt_commands::command::host::{HostSettings, Server};
use basalt_commands::config::Config;
use basalt_commands::config::live::{self, ClientLocality};
use basalt_commands::config::rewrite::{self, AddedParameters};
use basalt_core::resp::reply;

/// Maximum number of visits to all shards after `tracking-table-max-keys` was lowered.
const LIMIT_ROUNDS: usize = 8;

impl HostSettings for ServerHost {
    fn read_users(&self) -> Result<Vec<u8>, String> {
        users::read(&self.service.config.load())
    }

    fn write_users(&self, text: &[u8]) -> Result<(), String> {
        users::write(&self.service.config.load(), text)
    }

    fn config(&self) -> Arc<Config> {
        self.service.config.load_full()
    }

    fn config_set(&self, pairs: &[(&[u8], &[u8])], is_local: bool) -> Result<(), CommandError> {
        let peer = if is_local {
            ClientLocality::Local
        } else {
            ClientLocality::Remote
        };
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
            // Undo the system changes. Other parameters may have changed meanwhile, but none on which the named
            // ones depend.
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
        // A different `min-replicas-max-lag` changes which replicas count.
        self.replication.primary.count_good();
        if CLIENT_MEMORY.is_over() {
            self.service.clients.evict();
        }
        // A small reduction of `tracking-table-max-keys` is applied at once; the background does the rest.
        let _is_left = (0..LIMIT_ROUNDS).all(|_| background::limit_tracked(&self.service));
    }

    fn config_rewrite(&self, adding: AddedParameters) -> Result<(), CommandError> {
        let _one_at_a_time = self.asking.lock();
        let config = users::noted(&self.service);
        rewrite::rewrite_file(&config, self.file.as_deref(), adding)
            .map_err(|error| CommandError::from(format!("ERR {error}")))
    }

    fn follow_role(&self) {
        let config = self.service.config.load();
        log::set_role(self.is_replica());
        memory_limit::set(&self.service, &config);
        // Any error was already logged.
        let _ = self.oom_score.apply(&config, self.is_replica());
    }
}

impl ServerHost {
    /// Waits a moment while the background evicts for a lowered memory limit, so that the client that lowered
    /// it sees some effect.
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

    /// Makes the system calls that a configuration change needs, such as opening sockets; a failure leaves the
    /// server as it was.
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
            crate::start::descriptors_for(new, new.maxclients).map_err(|possible| {
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
            // Do this even if the file names are unchanged, because setting them reloads the files.
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
        // The last step that may fail, because it reverts its own changes.
        if is_changed("port") || is_changed("tls-port") || is_changed("bind") {
            self.listening.replace(old, new).map_err(|text| {
                tracing::warn!("{text}");
                self.service.tls.restore(tls_before);
                // Restore the old settings, which worked before.
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

    /// Puts a change of parameters in force, in memory only. Concurrent changes are serialized in all their
    /// effects.
    fn publish(&self, pairs: &[(&[u8], &[u8])], peer: ClientLocality) -> Result<(), CommandError> {
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

/// Returns a configuration with some parameters changed, and the parameters whose values differ.
fn changed(
    old: &Config,
    pairs: &[(&[u8], &[u8])],
    peer: ClientLocality,
) -> Result<(Config, Vec<&'static str>), CommandError> {
    let mut new = old.clone();
    let changed = live::set(&mut new, pairs, peer);
    let changed = changed.map_err(|error| CommandError::from(format!("ERR {error}")))?;
    Ok((new, changed))
}
