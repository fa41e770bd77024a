//! BGREWRITEAOF: rewrites the append-only file in the background.

use super::super::context::{After, SessionCx};
use super::super::declaration::{Command, CommandResult, Flags, Group};
use super::super::{Args, Out};

/// `BGREWRITEAOF`
pub(super) static BGREWRITEAOF: Command = Command::new("bgrewriteaof", Group::Server, 1)
    .flags(Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::NO_ASYNC_LOADING))
    .doc(
        "1.0.0",
        "",
        "Rewrites the append-only file in the background.",
    )
    .complexity("O(1)")
    .on_session(bgrewriteaof);

fn bgrewriteaof(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    // While shards are locked the data cannot be captured at one moment.
    let may_begin = !cx.outbox.is_of_transaction();
    match cx.server.rewrite_aof(may_begin)? {
        Some(begun) => cx.after = After::Await(begun),
        None => out.simple("Background append only file rewriting scheduled"),
    }
    Ok(())
}
