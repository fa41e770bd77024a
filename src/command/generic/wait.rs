//! WAIT and WAITAOF: until replicas, or the append-only file, have what this connection wrote.
//!
//! There are no replicas yet and no append-only file, so what is asked for is either nothing, or never comes: then the
//! connection waits for its time as it would on a Redis without replicas.

use crate::command::context::{After, Block, SessionCx};
use crate::command::declaration::{Categories, Command, CommandResult, Flags, Group};
use crate::command::options::blocking_timeout_ms;
use crate::command::{Args, Out};

const TIPS: &[&str] = &["request_policy:all_shards", "response_policy:agg_min"];

/// `WAIT numreplicas timeout`
pub(super) static WAIT: Command = Command::new("wait", Group::Generic, 3)
    .flags(Flags::NOSCRIPT.or(Flags::SCRIPTS_MAY))
    .categories(Categories::CONNECTION)
    .doc(
        "3.0.0",
        "numreplicas timeout:integer",
        "Waits until so many replicas have what this connection wrote.",
    )
    .tips(TIPS)
    .repeatable()
    .on_session(wait);

fn wait(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let wanted = args.integer(1)?;
    let until_ms = blocking_timeout_ms(args, 2, cx.now)?;
    if wanted <= 0 {
        out.integer(0);
    } else {
        cx.after = After::Block(Block {
            until_ms,
            on_timeout: |out| out.integer(0),
            holds: false,
        });
    }
    Ok(())
}

/// `WAITAOF numlocal numreplicas timeout`
pub(super) static WAITAOF: Command = Command::new("waitaof", Group::Generic, 4)
    .flags(Flags::NOSCRIPT.or(Flags::SCRIPTS_MAY))
    .categories(Categories::CONNECTION)
    .doc(
        "7.2.0",
        "numlocal numreplicas timeout:integer",
        "Waits until the append-only files here and on replicas have what this connection wrote.",
    )
    .tips(TIPS)
    .repeatable()
    .on_session(wait_aof);

fn wait_aof(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let local = args.integer(1)?;
    if !(0..=1).contains(&local) {
        return Err("ERR value is out of range, value must between 0 and 1".into());
    }
    let replicas = args.integer(2)?;
    if replicas < 0 {
        return Err("ERR value is out of range, must be positive".into());
    }
    let until_ms = blocking_timeout_ms(args, 3, cx.now)?;
    if local == 1 {
        return Err(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.".into(),
        );
    }
    if replicas == 0 {
        reply_none(out);
    } else {
        cx.after = After::Block(Block {
            until_ms,
            on_timeout: reply_none,
            holds: false,
        });
    }
    Ok(())
}

/// Nothing reached a disk here, and nothing one elsewhere.
fn reply_none(out: &mut Out) {
    out.array(2);
    out.integer(0);
    out.integer(0);
}
