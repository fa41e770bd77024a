//! Running the handler of one command: the context that it works on, its reply, and what it leaves in the log. What
//! follows from that for others, as for clients that wait for its keys, is done by the module around this.

use std::sync::Arc;

use crate::shard::permit::Permit;
use basalt_commands::client::shared::Shared;
use basalt_commands::command::context::{ClientView, Engines, ShardCx, ShardPlace};
use basalt_commands::command::declaration::{Command, Flags, Group, Run};
use basalt_commands::command::error::CommandError;
use basalt_commands::command::{Args, Out};
use basalt_commands::config::Config;
use basalt_engine::record::{self, Records};
use basalt_engine::{Engine, Now};

/// What a command runs with, besides its shards and arguments.
#[derive(Clone, Copy)]
pub struct ExecutionContext<'a> {
    /// The moment.
    pub now: Now,
    /// Limits and thresholds.
    pub config: &'a Arc<Config>,
    /// The shard in hand, for cursors.
    pub place: ShardPlace,
    /// The connection that waits if the command has to; none, if it must not.
    pub blocker: Option<&'a Arc<Shared>>,
    /// Whether the command can be run again on a thread of its own.
    pub may_offload: bool,
    /// In a cluster: how it was admitted, if that is to be asked again before it runs.
    pub permit: Option<&'a Permit>,
}

/// Runs the handler; true when it answered with an error.
#[inline]
pub(in crate::shard) fn answer(
    command: &'static Command,
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
) -> bool {
    let (Run::Keys(handler) | Run::AllShards(handler)) = command.run else {
        unreachable!("{} does not run with shards in hand", command.full_name)
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

/// Remembers what a connection that caches has just read, while the shards are still in hand: whatever changes
/// these keys comes later, and is told.
#[cold]
fn track(command: &Command, cx: &mut ShardCx<'_>, args: &Args<'_>) {
    // What a script reads counts, not what it was given.
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

/// A context over engines, which agree with the connection on the largest Lamport stamp that any of them knows.
#[inline]
pub(in crate::shard) fn begin<'c>(
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

/// The connection knows of all effects after, and its reply of all that others are to hear before.
#[inline]
pub(in crate::shard) fn learn(engine: &Engine, client: &mut ClientView) {
    client.stamp = client.stamp.max(engine.effects.stamp());
    client.position = client.position.max(engine.effects.position());
    client.log_seen = client.log_seen.max(engine.effects.log_position());
}

/// Whether what a command leaves in the log takes effect together. What is deleted by one that may come across any key,
/// because its time had come, goes by itself.
pub(super) fn is_unit(command: &Command) -> bool {
    !command.keys.is_empty() || command.is_write()
}

/// Appends what a command leaves in the log.
#[cold]
pub(in crate::shard) fn append_records(
    command: &'static Command,
    engines: &mut [&mut Engine],
    client: &mut ClientView,
) {
    if let Some(position) = record::append(engines, &mut Records::default(), is_unit(command)) {
        client.log_position = client.log_position.max(position);
    }
}
