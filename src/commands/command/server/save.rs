//! SAVE, BGSAVE, LASTSAVE, SHUTDOWN.

use super::super::context::{After, SessionCx};
use super::super::declaration::{Categories, Command, CommandResult, Flags, Group};
use super::super::error::CommandError;
use super::super::host::Exit;
use super::super::{Args, Out};

/// `SAVE`
pub(super) static SAVE: Command = Command::new("save", Group::Server, 1)
    .flags(
        Flags::ADMIN
            .or(Flags::NOSCRIPT)
            .or(Flags::NO_ASYNC_LOADING)
            .or(Flags::NO_MULTI),
    )
    .doc(
        "1.0.0",
        "",
        "Saves a snapshot and returns once it is on disk.",
    )
    .complexity("O(N) where N is the total number of keys in all databases")
    .on_session(save);

fn save(cx: &mut SessionCx<'_>, _: &Args<'_>, _: &mut Out) -> CommandResult {
    cx.after = After::Await(cx.server.save()?);
    Ok(())
}

/// `BGSAVE [SCHEDULE]`
pub(super) static BGSAVE: Command = Command::new("bgsave", Group::Server, -1)
    .flags(Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::NO_ASYNC_LOADING))
    .doc("1.0.0", "[SCHEDULE]", "Saves a snapshot in the background.")
    .complexity("O(1)")
    .history(&[("3.2.2", "Added the `SCHEDULE` option.")])
    .on_session(bgsave);

fn bgsave(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let may_wait = match args.len() {
        1 => false,
        2 if args.is(1, "schedule") => true,
        _ => return Err(CommandError::Syntax),
    };
    // While shards are locked the data cannot be captured at one moment.
    if cx.outbox.is_of_transaction() {
        cx.server.schedule_save()?;
        out.simple("Background saving scheduled");
        return Ok(());
    }
    match cx.server.save_in_background(may_wait)? {
        Some(cut) => cx.after = After::Await(cut),
        None => out.simple("Background saving scheduled"),
    }
    Ok(())
}

/// `LASTSAVE`
pub(super) static LASTSAVE: Command = Command::new("lastsave", Group::Server, 1)
    .flags(Flags::LOADING.or(Flags::STALE).or(Flags::FAST))
    .categories(Categories::ADMIN.or(Categories::DANGEROUS))
    .doc(
        "1.0.0",
        "",
        "Returns the Unix time of the last successful snapshot.",
    )
    .complexity("O(1)")
    .tips(&["nondeterministic_output"])
    .repeatable()
    .on_session(lastsave);

fn lastsave(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    out.integer(cx.server.last_save_s().cast_signed());
    Ok(())
}

/// `SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE] [SAFE] [FAILOVER] [ABORT]`
pub(super) static SHUTDOWN: Command = Command::new("shutdown", Group::Server, -1)
    .flags(
        Flags::ADMIN
            .or(Flags::NOSCRIPT)
            .or(Flags::LOADING)
            .or(Flags::STALE)
            .or(Flags::NO_MULTI)
            .or(Flags::ALLOW_BUSY),
    )
    .doc("1.0.0", "[NOSAVE | SAVE] [NOW] [FORCE] [SAFE] [FAILOVER] [ABORT]", "Stops the server.")
    .complexity("O(N) when saving, where N is the total number of keys in all databases when saving data, otherwise O(1)")
    .history(&[
        ("7.0.0", "Added the `NOW`, `FORCE` and `ABORT` modifiers."),
        ("9.0.0", "Added the `SAFE` and `FAILOVER` modifiers."),
    ])
    .on_session(shutdown);

fn shutdown(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (mut exit, mut is_abort) = (Exit::default(), false);
    for index in 1..args.len() {
        if args.is(index, "save") && exit.saves != Some(false) {
            exit.saves = Some(true);
        } else if args.is(index, "nosave") && exit.saves != Some(true) {
            exit.saves = Some(false);
        } else if args.is(index, "abort") {
            is_abort = true;
        } else if args.is(index, "now") {
            exit.is_now = true;
        } else if args.is(index, "force") {
            exit.is_forced = true;
        } else if args.is(index, "safe") {
            exit.is_safe = true;
        } else if args.is(index, "failover") {
            exit.fails_over = true;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    if is_abort {
        if exit != Exit::default() {
            return Err(CommandError::Syntax);
        }
        cx.server.abort_shutdown()?;
        out.ok();
        return Ok(());
    }
    if exit.fails_over && cx.server.cluster().is_none() {
        return Err("ERR SHUTDOWN FAILOVER is only supported in cluster mode.".into());
    }
    cx.after = After::Await(cx.server.shut_down(exit));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::host::{Awaited, Told};
    use crate::command::testing::Terminal;

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let mut cli = Terminal::new();
        for line in [
            "SHUTDOWN SAVE NOSAVE",
            "SHUTDOWN NOSAVE SAVE",
            "SHUTDOWN ABORT NOW",
            "SHUTDOWN ABORT SAVE",
            "SHUTDOWN ABORT SAFE",
            "SHUTDOWN FAILOVER ABORT",
            "SHUTDOWN SOON",
            "BGSAVE NOW",
            "BGSAVE SCHEDULE SCHEDULE",
        ] {
            cli.check(line, "(error) ERR syntax error");
        }
        cli.check("SHUTDOWN ABORT", "(error) ERR No shutdown in progress.");
        cli.check(
            "SHUTDOWN NOW SAFE FAILOVER",
            "(error) ERR SHUTDOWN FAILOVER is only supported in cluster mode.",
        );
        assert!(
            cli.reply_bytes(&["SHUTDOWN", "NOSAVE", "NOW", "FORCE"])
                .is_empty()
        );
        assert!(matches!(
            cli.after,
            After::Await(Awaited {
                told: Told::Nothing,
                ..
            })
        ));
    }
}
