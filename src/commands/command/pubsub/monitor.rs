//! MONITOR: the client receives every command that is run.

use crate::command::declaration::{Command, Flags, Group};

/// `MONITOR`
pub(super) static MONITOR: Command = Command::new("monitor", Group::Server, 1)
    .flags(
        Flags::ADMIN
            .or(Flags::NOSCRIPT)
            .or(Flags::LOADING)
            .or(Flags::STALE),
    )
    .doc(
        "1.0.0",
        "",
        "Streams every command that any client runs to the connection.",
    )
    .on_session(|cx, _, out| {
        if cx.outbox.is_of_transaction() {
            return Err("ERR MONITOR isn't allowed for DENY BLOCKING client".into());
        }
        cx.server.pubsub().add_monitor(&cx.client.shared);
        out.ok();
        Ok(())
    });
