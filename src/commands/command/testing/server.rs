//! The implementation of the server interface that handlers get in tests.

use std::sync::Arc;

use super::KeptLog;
use super::replication;
use crate::acl::{User, Users};
use crate::client::registry::Registry;
use crate::client::shared::Shared;
use crate::command::catalogue::Commands;
use crate::command::declaration::CommandResult;
use crate::command::error::CommandError;
use crate::command::host::Told;
use crate::command::host::cluster::Cluster;
use crate::command::host::primary::HostPrimary;
use crate::command::host::replica::Replica;
use crate::command::host::scripts::{LogChange, Scripts};
use crate::command::host::{
    Awaited, CommandLog, Debugging, Diagnostics, DryRun, Exit, HostPersistence, HostSettings,
    HotKeysReport, HotKeysRequest, HotKeysTop, LatencyEvent, MemoryReport, Reload, Server,
    SlowlogEntry, SlowlogMoment,
};
use crate::config::Config;
use crate::config::rewrite::AddedParameters;
use crate::pubsub::PubSub;
use basalt_engine::record::{Log as _, Records};

/// Returns a server without any state, for tests outside of commands.
pub fn no_server() -> Box<dyn Server> {
    Box::new(NoServer::default())
}

/// A server with trivial replies; families that need more implement their own.
pub struct NoServer {
    pub(super) clients: Registry,
    pub(super) users: Users,
    pub(super) pubsub: PubSub,
    pub(super) log: Option<Arc<KeptLog>>,
    pub(super) cluster: Option<Box<dyn Cluster>>,
}

impl Default for NoServer {
    fn default() -> NoServer {
        NoServer {
            clients: Registry::default(),
            users: Users::new(&Commands),
            pubsub: PubSub::default(),
            log: None,
            cluster: None,
        }
    }
}

pub(super) fn done(text: &'static str) -> Awaited {
    Awaited {
        begin: Arc::new(|done| done(Ok(String::new()))),
        told: Told::Text(text),
    }
}

impl Server for NoServer {
    fn clients(&self) -> &Registry {
        &self.clients
    }
    fn users(&self) -> &Users {
        &self.users
    }
    fn run_id(&self) -> &str {
        "0123456789012345678901234567890123456789"
    }
    fn dry_run(&self, _: &User, _: &[Vec<u8>], _: usize) -> DryRun {
        DryRun::NoCommand
    }
    fn pubsub(&self) -> &PubSub {
        &self.pubsub
    }
    fn primary(&self) -> &dyn HostPrimary {
        &replication::Alone
    }
    fn replica(&self) -> &'static dyn Replica {
        &replication::Alone
    }
    fn cluster(&self) -> Option<&dyn Cluster> {
        self.cluster.as_deref()
    }
    fn is_replica(&self) -> bool {
        false
    }
    fn lacks_primary(&self) -> bool {
        false
    }
    fn pause(&self, _: u64, _: bool) -> Awaited {
        done("OK")
    }
    fn sleep(&self, _: u64) {}
    fn unpause(&self) {}
    fn unix_us(&self) -> u64 {
        1_700_000_000_000_000
    }
    fn log_records(&self, records: &mut Records, is_unit: bool) -> Option<u64> {
        let log = self.log.as_ref().filter(|_| !records.is_empty());
        let position = log.map(|log| log.append(records, is_unit && records.len() > 1));
        records.clear();
        position
    }
    fn change_libraries(
        &self,
        records: &mut Records,
        change: &mut dyn FnMut(&dyn Scripts, LogChange<'_>) -> CommandResult,
    ) -> CommandResult<Option<u64>> {
        let mut position = None;
        change(self.scripts(), &mut || {
            position = self.log_records(records, false);
            position
        })?;
        Ok(position)
    }
    fn shard_count(&self) -> usize {
        1
    }
    fn scripts(&self) -> &dyn Scripts {
        &crate::command::host::scripts::NoScripts
    }
}

impl Diagnostics for NoServer {
    fn reset_statistics(&self) {}
    fn info(&self, _: &[String]) -> String {
        String::new()
    }
    fn memory(&self) -> MemoryReport {
        MemoryReport::default()
    }
    fn command_log(&self, _: CommandLog, _: usize) -> Vec<SlowlogEntry> {
        Vec::new()
    }
    fn command_log_len(&self, _: CommandLog) -> usize {
        0
    }
    fn command_log_reset(&self, _: CommandLog) {}
    fn slowlog_moment(&self) -> SlowlogMoment {
        SlowlogMoment::default()
    }
    fn latency_latest(&self) -> Vec<LatencyEvent> {
        Vec::new()
    }
    fn latency_history(&self, _: &str) -> Vec<(u64, u64)> {
        Vec::new()
    }
    fn latency_doctor(&self) -> String {
        String::new()
    }
    fn latency_graph(&self, _: &str) -> Option<String> {
        None
    }
    fn memory_doctor(&self) -> String {
        String::new()
    }
    fn latency_reset(&self, _: &[String]) -> usize {
        0
    }
    fn latency_histogram(&self, _: usize) -> Option<(u64, Vec<(u64, u64)>)> {
        None
    }
    fn purge_memory(&self) {}
    fn allocator_report(&self) -> String {
        String::new()
    }
    fn hot_keys_start(&self, _: HotKeysRequest) -> bool {
        true
    }
    fn hot_keys_stop(&self) -> bool {
        false
    }
    fn hot_keys_reset(&self) -> bool {
        true
    }
    fn hot_keys(&self) -> Option<HotKeysReport> {
        None
    }
    fn hot_keys_top(&self, _: usize) -> HotKeysTop {
        HotKeysTop::default()
    }
}

impl HostPersistence for NoServer {
    fn save(&self) -> Result<Awaited, CommandError> {
        Ok(done("OK"))
    }
    fn save_in_background(&self, _: bool) -> Result<Option<Awaited>, CommandError> {
        Ok(None)
    }
    fn schedule_save(&self) -> Result<(), CommandError> {
        Ok(())
    }
    fn unsaved_text(&self) -> Option<&'static str> {
        None
    }
    fn save_emptied(&self) -> Option<Awaited> {
        None
    }
    fn last_save_s(&self) -> u64 {
        0
    }
    fn shut_down(&self, _: Exit) -> Awaited {
        Awaited {
            told: Told::Nothing,
            ..done("")
        }
    }
    fn rewrite_aof(&self, _: bool) -> Result<Option<Awaited>, CommandError> {
        Ok(Some(done("Background append only file rewriting started")))
    }
    fn is_aof_synced(&self, _: u64, _: Option<&Arc<Shared>>) -> Option<bool> {
        None
    }
    fn load_aof(&self) -> Awaited {
        done("OK")
    }
    fn reload(&self, _: Reload) -> Awaited {
        done("OK")
    }
    fn abort_shutdown(&self) -> Result<(), CommandError> {
        Err("ERR No shutdown in progress.".into())
    }
    fn log_position(&self) -> u64 {
        0
    }
}

impl HostSettings for NoServer {
    fn read_users(&self) -> Result<Vec<u8>, String> {
        Err("No such file or directory".to_owned())
    }
    fn write_users(&self, _: &[u8]) -> Result<(), String> {
        Ok(())
    }
    fn config(&self) -> Arc<Config> {
        Arc::default()
    }
    fn config_set(&self, _: &[(&[u8], &[u8])], _: bool) -> CommandResult {
        Ok(())
    }
    fn follow_config(&self) {}
    fn config_rewrite(&self, _: AddedParameters) -> CommandResult {
        Ok(())
    }
    fn follow_role(&self) {}
}

impl Debugging for NoServer {
    fn set_aof_flush_sleep(&self, _: u64) {}
    fn set_active_expire(&self, _: bool) {}
    fn pause_cron(&self, _: bool) {}
    fn move_connections(&self, _: bool) {}
    fn segfault(&self) {}
    fn log(&self, _: &str) {}
    fn set_allows_every_command_in_scripts(&self, _: bool) {}
    fn allows_every_command_in_scripts(&self) -> bool {
        false
    }
}
