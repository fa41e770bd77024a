//! Snapshots, the append-only file, and shutdown.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::ServerHost;
use basalt_commands::client::shared::Shared;
use basalt_commands::command::error::CommandError;
use basalt_commands::command::host::{Awaited, Exit, HostPersistence, Reload};

impl HostPersistence for ServerHost {
    fn save(&self) -> Result<Awaited, CommandError> {
        self.saving.save()
    }

    fn save_in_background(&self, may_wait: bool) -> Result<Option<Awaited>, CommandError> {
        self.saving.in_background(may_wait)
    }

    fn schedule_save(&self) -> Result<(), CommandError> {
        self.saving.schedule()
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

    fn reload(&self, reload: Reload) -> Awaited {
        self.saving.reload(reload)
    }

    fn abort_shutdown(&self) -> Result<(), CommandError> {
        match self.shutdown.abort() {
            true => Ok(()),
            false => self.saving.abort_end(),
        }
    }
}
