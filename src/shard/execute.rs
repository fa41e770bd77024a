//! Running one command with its shards in hand: the same code for a command that runs at once and for one that was
//! queued.

use crate::command::context::{ClientView, Engines, Gather, ShardCx, ShardPlace};
use crate::command::declaration::{Command, Run};
use crate::command::{Args, Out};
use crate::config::Config;
use crate::engine::Now;

/// All that a command needs besides its shards and arguments.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// The moment.
    pub now: Now,
    /// Limits and thresholds.
    pub config: &'a Config,
    /// The shard in hand, for cursors.
    pub place: ShardPlace,
}

/// Runs a command; true when it answered with an error.
pub fn run(
    command: &'static Command,
    engines: Engines<'_>,
    client: &mut ClientView,
    scene: Scene<'_>,
    args: &Args<'_>,
    out: &mut Out,
) -> bool {
    let (Run::Keys(handler) | Run::AllShards(handler)) = command.run else {
        unreachable!("{} does not run with shards in hand", command.full_name)
    };
    with_context(command, engines, client, scene, args, |cx| {
        match handler(cx, args, out) {
            Ok(()) => false,
            Err(error) => {
                out.error(error.text().as_bytes());
                true
            }
        }
    })
}

/// Runs one visit of a command that goes from shard to shard; the error, if any, ends it.
pub fn run_part(
    command: &'static Command,
    engines: Engines<'_>,
    client: &mut ClientView,
    scene: Scene<'_>,
    args: &Args<'_>,
    gather: &mut Gather,
) -> crate::command::declaration::CommandResult {
    let (Run::EachShard(part, _) | Run::Cursor(_, part, _)) = command.run else {
        unreachable!("{} does not go from shard to shard", command.full_name)
    };
    with_context(command, engines, client, scene, args, |cx| {
        part(cx, args, gather)
    })
}

/// Lamport stamps: the shards and the connection agree on the largest before, and the connection knows of all
/// effects after.
#[inline]
fn with_context<R>(
    command: &'static Command,
    mut engines: Engines<'_>,
    client: &mut ClientView,
    scene: Scene<'_>,
    args: &Args<'_>,
    body: impl FnOnce(&mut ShardCx<'_>) -> R,
) -> R {
    match &mut engines {
        Engines::One(engine) => {
            engine.effects.raise(client.stamp);
            engine.board().commands.add(1);
        }
        Engines::Many(engines) => {
            let stamp = engines
                .iter()
                .map(|engine| engine.effects.stamp())
                .max()
                .unwrap_or(0);
            for engine in engines.iter_mut() {
                engine.effects.raise(stamp.max(client.stamp));
            }
            if let Some(engine) = engines.first() {
                engine.board().commands.add(1);
            }
        }
    }
    let mut cx = ShardCx::new(
        engines,
        *client,
        scene.now,
        scene.config,
        command,
        scene.place,
        args,
    );
    let result = body(&mut cx);
    for hand in 0..cx.engine_count() {
        client.stamp = client.stamp.max(cx.engine(hand).effects.stamp());
    }
    result
}
