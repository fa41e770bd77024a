//! Runs the handler of one command: prepares its context, writes its reply, and appends its log records.
//! Consequences for other clients, such as clients blocked on the keys, are handled by
//! [`execute`](super::execute).

use std::sync::Arc;

use super::ownership::engines::HeldEngines;
use super::permit::Permit;
use basalt_commands::client::shared::Shared;
use basalt_commands::command::context::{ClientView, Engines, ShardCx, ShardPlace};
use basalt_commands::command::declaration::{Command, Flags, Group, Run};
use basalt_commands::command::error::CommandError;
use basalt_commands::command::{Args, Out};
use basalt_commands::config::Config;
use basalt_engine::record::{self, Records};
use basalt_engine::{Engine, Now};

/// The context of a command, besides its shards and arguments.
#[derive(Clone, Copy)]
pub struct ExecutionContext<'a> {
    /// The current time.
    pub now: Now,
    /// Limits and thresholds.
    pub config: &'a Arc<Config>,
    /// The index of the locked shard and the number of shards, for SCAN cursors.
    pub place: ShardPlace,
    /// The connection to block if the command has to wait; `None` if it must not block.
    pub blocker: Option<&'a Arc<Shared>>,
    /// True if the command may ask to be run on a separate thread instead.
    pub may_offload: bool,
    /// In a cluster, the permit of the request, if it must be checked again before the command runs.
    pub permit: Option<&'a Permit>,
}

/// Runs the handler; returns true if it replied with an error.
#[inline]
pub(super) fn answer(
    command: &'static Command,
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
) -> bool {
    let (Run::Keys(handler) | Run::AllShards(handler)) = command.run else {
        unreachable!("{} does not run with its shards locked", command.full_name)
    };
    let failed = match cx.logged(args, |cx| handler(cx, args, out)) {
        Ok(()) => false,
        Err(CommandError::TooLongHere) if cx.leave() => return true,
        Err(error) => {
            out.error(command.error_text(&error).as_bytes());
            true
        }
    };
    if cx.client.tracks && command.flags.has(Flags::READONLY) {
        track(command, cx, args);
    }
    failed
}

/// Tracks the keys that a connection with client-side caching has just read, while the shards are still locked,
/// so that the connection is notified of any later change.
#[cold]
fn track(command: &Command, cx: &mut ShardCx<'_>, args: &Args<'_>) {
    // The reads of a script count, not its arguments.
    if command.group == Group::Scripting {
        return;
    }
    let (client, keys_max) = (cx.client.id, cx.config.tracking_table_max_keys);
    for routed in args.keys() {
        if cx.holds(routed) {
            let key = args.key_of(routed);
            let engine = cx.engine(usize::from(routed.engine_index));
            engine.track(&key, client, keys_max);
        }
    }
}

/// Creates a context over engines. The engines and the connection take over the largest Lamport stamp that any
/// of them has seen.
#[inline]
pub(super) fn begin<'c>(
    command: &'static Command,
    mut engines: Engines<'c>,
    client: &ClientView,
    context: ExecutionContext<'c>,
    args: &Args<'c>,
) -> ShardCx<'c> {
    let only_reads = command.flags.has(Flags::READONLY);
    match &mut engines {
        Engines::One(engine) => {
            engine.begin_command(client.id, client.stamp, only_reads);
            engine.published().commands.add(1);
        }
        Engines::Many(engines) => {
            let stamps = engines.iter().map(|engine| engine.effects.stamp());
            let stamp = stamps.fold(client.stamp, u64::max);
            for engine in engines.iter_mut() {
                engine.begin_command(client.id, stamp, only_reads);
            }
            if let Some(engine) = engines.first() {
                engine.published().commands.add(1);
            }
        }
    }
    ShardCx::new(
        engines,
        *client,
        context.now,
        context.config,
        command,
        context.place,
        args,
    )
}

/// Updates the client's view from an engine: the Lamport stamp for later changes, and the positions in the
/// message queue and the log that the client's reply reflects.
#[inline]
pub(super) fn learn(engine: &Engine, client: &mut ClientView) {
    client.stamp = client.stamp.max(engine.effects.stamp());
    client.position = client.position.max(engine.effects.position());
    client.log_seen = client.log_seen.max(engine.effects.log_position());
}

/// Returns whether a command's log records take effect atomically. If a command without declared keys (such as
/// SCAN) deletes expired keys, each deletion is logged separately.
pub(super) fn is_unit(command: &Command) -> bool {
    !command.keys.is_empty() || command.is_write()
}

/// Appends a command's records to the log.
#[cold]
pub(super) fn append_records(
    command: &'static Command,
    engines: &mut [&mut Engine],
    client: &mut ClientView,
) {
    if let Some(position) = record::append(engines, &mut Records::default(), is_unit(command)) {
        client.log_position = client.log_position.max(position);
    }
}

/// Returns the locked engines.
pub(super) fn all_of<'h>(engines: &'h mut HeldEngines<'_, Engine>) -> Engines<'h> {
    match engines.len() {
        1 => Engines::One(engines.first()),
        _ => Engines::Many(engines.all()),
    }
}
