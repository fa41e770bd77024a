//! FENCE: transfers fencing tokens between servers. The command occurs in notes of the log only, see
//! [`notes`](crate::command::notes).

use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;
use crate::command::{Args, Out};
use basalt_core::base::number;
use basalt_engine::fences::{Fence, TooFar};

const FENCED: &[KeySpec] = &[KeySpec::one(2, KeyFlags::RW.or(KeyFlags::UPDATE))];

/// `FENCE number [key owner]`: the last fencing token issued, or that of the lock under a key.
pub(in super::super) static FENCE: Command = Command::new("fence", Group::Lock, -2)
    .writes(FENCED)
    .flags(Flags::FAST.or(Flags::UNLISTED))
    .doc(
        Command::OWN,
        "number:integer [key owner]",
        "Sets the fence of a lock and a lower bound of later fences; used only in the replication log.",
    )
    .on_keys(fence);

impl From<TooFar> for CommandError {
    fn from(_: TooFar) -> CommandError {
        "ERR The fence is more than a day ahead of this server's clock".into()
    }
}

fn fence(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (db, now) = (cx.client.db, cx.now);
    match args.len() {
        2 => {
            let number = number::parse_u64(args.get(1)).ok_or(CommandError::NotInteger)?;
            cx.engine(0).fence_source.raise(number, now)?;
        }
        4 => {
            let told = Fence::parse(args.get(1), args.get(3)).ok_or(CommandError::Syntax)?;
            let key = args.key(2);
            cx.at(&key).engine().note_fence(db, key.bytes, told, now)?;
        }
        _ => return Err(CommandError::Syntax),
    }
    let words: Vec<&[u8]> = args.from(0).collect();
    cx.log_note(&words);
    out.ok();
    Ok(())
}
