//! Switches of the DEBUG command.

/// Switches of the DEBUG command.
pub trait Debugging {
    /// Sets how many microseconds the append-only file's thread sleeps before each write.
    fn set_aof_flush_sleep(&self, us: u64);
    /// Debug switches: whether due keys are deleted in the background.
    fn set_active_expire(&self, on: bool);
    /// Debug switches: whether idle clients keep what they have.
    fn pause_cron(&self, paused: bool);
    /// Reads an address that is not mapped, so that the crash report can be tried.
    fn segfault(&self);
    /// Writes a line to the log.
    fn log(&self, line: &str);
    /// Sets whether scripts may call what is not meant for them (a debug switch).
    fn set_allows_every_command_in_scripts(&self, on: bool);
    /// Whether scripts may call what is not meant for them (a debug switch).
    fn allows_every_command_in_scripts(&self) -> bool;
}
