//! The connection itself: PING, ECHO and the like.

use super::Args;
use super::Out;
use super::context::SessionCx;
use super::declaration::{Command, CommandResult, Flags, Group};
use super::error::CommandError;

pub(super) static TABLE: &[&Command] = &[&PING];

/// `PING [message]`
static PING: Command = Command::new("ping", Group::Connection, -1)
    .flags(Flags::FAST)
    .doc("1.0.0", "[message]", "Answers PONG, or the message.")
    .on_session(ping);

fn ping(_: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    match args.len() {
        1 => out.simple("PONG"),
        2 => out.bulk(args.get(1)),
        _ => return Err(CommandError::Arity("ping")),
    }
    Ok(())
}
