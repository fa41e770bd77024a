//! Interface through which a running script reaches the unit that runs it: to run commands, and to check
//! whether the script may continue.
//!
//! The script side knows no shards. It admits a command (it exists, has the right number of arguments, and may
//! be called by the script) before it passes the command on; the host finds the command's keys, locks their
//! shards and runs the command.
//!
//! A host may end the unit at any moment: every later call and tick then fails too, and the script side makes sure
//! that no `pcall` of the script swallows the error.

use basalt_commands::command::declaration::Command;
use basalt_commands::command::host::Server;
use basalt_commands::command::{Args, Out};
use basalt_commands::config::Config;
use basalt_core::resp::request::Span;
use basalt_core::structures::scoped_tls::Scoped;
use basalt_engine::evict::Full;
use basalt_engine::record::Audience;

/// The unit ends here. The script's return value is ignored; a killed script's reply is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// The unit is rolled back and run again, with other shards or on another thread.
    Again,
    /// SCRIPT KILL or FUNCTION KILL.
    Killed,
}

/// A command called by a script. Its keys are not routed yet.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The command, or the subcommand where there is one.
    pub command: &'static Command,
    /// All arguments, concatenated.
    pub data: &'a [u8],
    /// Position of each argument, the name first.
    pub spans: &'a [Span],
}

impl<'a> Call<'a> {
    /// Returns the arguments, without keys.
    pub fn args(&self) -> Args<'a> {
        Args::in_buffer(self.data, self.spans, &[])
    }
}

/// The unit that runs a script, as seen by the script.
pub trait Host {
    /// Runs a command; its reply, even if an error, is appended to `out` in the protocol of `out`. A command
    /// that would block replies as if its timeout had passed. Counts the call, and sends it to MONITOR clients.
    fn call(&mut self, call: &Call<'_>, out: &mut Out) -> Result<(), Interrupted>;

    /// Called every few thousand instructions of the script.
    fn tick(&mut self) -> Result<(), Interrupted>;

    /// Frees memory for a command that may add data to the database that the script works on. Called only
    /// before the first write of a script, because a script that has written may finish.
    fn make_room(&mut self) -> Result<(), Full>;

    /// True if the unit is replayed: it comes from the append-only file or the primary, so it was admitted and
    /// run before.
    fn replays(&self) -> bool;

    /// Counts a command of the script that was not admitted, with the error reply that the script sees.
    fn note_refused(&mut self, command: Option<&'static Command>, text: &[u8]);

    /// Returns why the ACL rules of the client's user deny a command, if they do; with `is_noted`, counts and logs
    /// the denial.
    fn denial(&self, call: &Call<'_>, is_noted: bool) -> Option<String>;

    /// Allows the script to use keys of several slots.
    fn allow_cross_slot(&mut self);

    /// Sets whether the log records of the script's next commands go to the append-only file, the replicas, or
    /// both.
    fn set_audience(&mut self, audience: Audience);

    /// Returns the server interface of session commands.
    fn server(&self) -> &dyn Server;

    /// Returns limits and thresholds.
    fn config(&self) -> &Config;

    /// Returns the database that the script works on: that of its client, until the script calls SELECT.
    fn db(&self) -> usize;
}

/// The hosts accessible to the interpreter's callbacks.
pub struct Hosts;

impl Scoped for Hosts {
    type With<'a> = dyn Host + 'a;
}
