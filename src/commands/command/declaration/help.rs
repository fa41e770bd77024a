//! Rows of `… HELP` subcommands.

use super::{Command, CommandResult, Flags};
use crate::command::context::SessionCx;
use crate::command::help::reply_help;
use crate::command::{Args, Out};

impl Command {
    /// Makes the command a `… HELP` subcommand, which replies with these lines.
    pub const fn on_help(mut self, lines: &'static [&'static str]) -> Command {
        self.help = lines;
        self.flags(Flags::LOADING.or(Flags::STALE))
            .repeatable()
            .on_session(help)
    }
}

/// Runs a `… HELP` subcommand, whose row has the lines.
fn help(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let container = cx.command.full_name.split('|').next().unwrap_or_default();
    reply_help(&container.to_uppercase(), cx.command.help, out);
    Ok(())
}
