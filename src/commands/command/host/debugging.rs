//! Switches of the DEBUG command.

/// Switches of the DEBUG command.
pub trait Debugging {
    /// Sets how long the append-only file's thread sleeps before each write, in microseconds.
    fn set_aof_flush_sleep(&self, us: u64);
    /// Sets whether expired keys are deleted in the background.
    fn set_active_expire(&self, on: bool);
    /// Pauses the periodic work that makes idle clients release their buffers.
    fn pause_cron(&self, paused: bool);
    /// Sets whether each connection moves to another event loop after each turn.
    fn move_connections(&self, on: bool);
    /// Reads an unmapped address, to test the crash report.
    fn segfault(&self);
    /// Writes a line to the log.
    fn log(&self, line: &str);
    /// Sets whether scripts may call commands that are flagged NOSCRIPT.
    fn set_allows_every_command_in_scripts(&self, on: bool);
    /// Whether scripts may call commands that are flagged NOSCRIPT.
    fn allows_every_command_in_scripts(&self) -> bool;
}
