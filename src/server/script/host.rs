//! What a running script asks of the unit that runs it: commands, and whether it may go on.
//!
//! The script side knows no shard. It has admitted a command (it exists, its arguments are as many as they must be, the
//! script may call it) before it hands it over; the host finds its keys, gets their shards and runs it.
//!
//! A host may end the unit at any moment: every later call and tick then fails too, and the script side sees to it that
//! no `pcall` of the script keeps the error for itself.

use basalt_commands::command::declaration::Command;
use basalt_commands::command::host::Server;
use basalt_commands::command::{Args, Out};
use basalt_commands::config::Config;
use basalt_core::resp::request::Span;
use basalt_core::structures::scoped_tls::Scoped;
use basalt_engine::evict::Full;
use basalt_engine::record::Audience;

/// The unit ends here. What the script answers is of no interest any more, unless it was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// The unit is undone and run again, with other shards or on another thread.
    Again,
    /// SCRIPT KILL or FUNCTION KILL.
    Killed,
}

/// A command that a script calls. Its keys are not routed yet.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The row, of a subcommand where there is one.
    pub command: &'static Command,
    /// All arguments, one behind the other.
    pub data: &'a [u8],
    /// Where each of them lies, the name first.
    pub spans: &'a [Span],
}

impl<'a> Call<'a> {
    /// The arguments, without keys.
    pub fn args(&self) -> Args<'a> {
        Args::in_buffer(self.data, self.spans, &[])
    }
}

/// See the module.
pub trait Host {
    /// Runs a command; its reply, be it an error, is appended to `out` in the protocol of `out`. A command that would
    /// wait answers as if its time were over. Counts the call, shows it to monitors.
    fn call(&mut self, call: &Call<'_>, out: &mut Out) -> Result<(), Interrupted>;

    /// Asked every few thousand instructions of the script.
    fn tick(&mut self) -> Result<(), Interrupted>;

    /// Makes room for a command that may add data to the database that the script works on. Asked before the first
    /// write of a script only, as what it began it may end.
    fn make_room(&mut self) -> Result<(), Full>;

    /// Whether what runs was admitted, and run, elsewhere or before: the append-only file or the primary has it.
    fn replays(&self) -> bool;

    /// A command that the script called was not admitted: counted, with the error reply that the script sees.
    fn note_refused(&mut self, command: Option<&'static Command>, text: &[u8]);

    /// Why the rules of the client's user do not let it run a command, if they do not; counted and noted then, if that
    /// `is_noted`.
    fn denial(&self, call: &Call<'_>, is_noted: bool) -> Option<String>;

    /// The script may use keys of several slots.
    fn allow_cross_slot(&mut self);

    /// Says who reads what the script's next commands leave in the log.
    fn set_audience(&mut self, audience: Audience);

    /// What session commands may ask of the server.
    fn server(&self) -> &dyn Server;

    /// Limits and thresholds.
    fn config(&self) -> &Config;

    /// The database that the script works on now: that of its client, until it calls SELECT.
    fn db(&self) -> usize;
}

/// The hosts that callbacks of the interpreter reach.
pub struct Hosts;

impl Scoped for Hosts {
    type With<'a> = dyn Host + 'a;
}
