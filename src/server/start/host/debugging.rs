//! Switches of the DEBUG command.

use std::sync::atomic::Ordering::Relaxed;

use super::ServerHost;
use basalt_commands::command::host::Debugging;

impl Debugging for ServerHost {
    fn set_aof_flush_sleep(&self, us: u64) {
        self.aof.set_flush_sleep(us);
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

    fn move_connections(&self, on: bool) {
        self.listening.loops().set_all_move(on);
    }

    fn segfault(&self) {
        crate::sys::crash::segfault();
    }

    fn log(&self, line: &str) {
        tracing::warn!("{line}");
    }

    fn set_allows_every_command_in_scripts(&self, on: bool) {
        self.service.script_calls_unbound.store(on, Relaxed);
    }

    fn allows_every_command_in_scripts(&self) -> bool {
        self.service.script_calls_unbound.load(Relaxed)
    }
}
