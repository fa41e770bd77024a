//! Running one command with its shards in hand: the same code for a command that runs at once and for one that was
//! queued. Afterwards those are served who waited for what it changed.

use std::sync::Arc;

use super::blocking::{self, Waiter};
use crate::client::registry::Shared;
use crate::command::context::{ClientView, Engines, Gather, Publications, ShardCx, ShardPlace};
use crate::command::declaration::{Command, CommandResult, Flags, Group, Run};
use crate::command::error::CommandError;
use crate::command::{Args, Out};
use crate::config::Config;
use crate::engine::{Engine, Now, effect};

/// All that a command needs besides its shards and arguments.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// The moment.
    pub now: Now,
    /// Limits and thresholds.
    pub config: &'a Arc<Config>,
    /// The shard in hand, for cursors.
    pub place: ShardPlace,
    /// Who waits if the command has to; nobody, if it must not.
    pub blocker: Option<&'a Arc<Shared>>,
    /// Whether it can be run again on a thread of its own.
    pub may_leave: bool,
}

/// How a command ended.
pub enum Outcome {
    /// It answered.
    Done {
        /// With an error.
        failed: bool,
    },
    /// It was not run, as there is no memory for what it may add.
    Refused,
    /// It waits.
    Blocked(Arc<Waiter>),
    /// It was not run: it takes too long for this thread.
    Leaves,
}

/// Runs a command.
pub fn run(
    command: &'static Command,
    mut engines: Engines<'_>,
    client: &mut ClientView,
    scene: Scene<'_>,
    args: &Args<'_>,
    out: &mut Out,
) -> Outcome {
    let may_grow = command.flags.has(Flags::DENYOOM);
    if may_grow && !have_room(&mut engines, scene.now) {
        out.error(CommandError::OutOfMemory.text().as_bytes());
        return Outcome::Refused;
    }
    if command.flags.has(Flags::BLOCKING) {
        return run_blocking(command, engines, client, scene, args, out);
    }
    let may_leave = scene.may_leave && command.may_leave();
    if may_leave {
        keep_reads(&mut engines);
    }
    let mut cx = context(command, engines, client, scene, args);
    if may_leave {
        cx.allow_leaving();
    }
    let failed = answer(command, &mut cx, args, out);
    learn(&mut cx, client);
    let leaves = cx.leaves();
    let mut engines = cx.into_engines();
    if leaves {
        forget_reads(&mut engines);
    }
    if may_grow {
        pay(&mut engines, scene.now, args.keys().len());
    }
    serve(&mut engines, scene.now);
    match leaves {
        true => Outcome::Leaves,
        false => Outcome::Done { failed },
    }
}

/// Whether all shards in hand have room for a command that may make them grow.
#[inline]
fn have_room(engines: &mut Engines<'_>, now: Now) -> bool {
    match engines {
        Engines::One(engine) => engine.has_room(now),
        Engines::Many(engines) => engines.iter_mut().all(|engine| engine.has_room(now)),
    }
}

/// Has the shards in hand pay for what a command put in that named so many keys.
#[inline]
pub(super) fn pay(engines: &mut Engines<'_>, now: Now, keys: usize) {
    match engines {
        Engines::One(engine) => engine.pay(now, keys),
        Engines::Many(engines) => engines.iter_mut().for_each(|engine| engine.pay(now, keys)),
    }
}

/// A command may find that it has to run elsewhere.
fn keep_reads(engines: &mut Engines<'_>) {
    match engines {
        Engines::One(engine) => engine.keep_reads(),
        Engines::Many(engines) => engines.iter_mut().for_each(|engine| engine.keep_reads()),
    }
}

/// What a command looked up that did nothing is not counted, nor told.
#[cold]
fn forget_reads(engines: &mut Engines<'_>) {
    match engines {
        Engines::One(engine) => engine.forget_reads(),
        Engines::Many(engines) => engines.iter_mut().for_each(|engine| engine.forget_reads()),
    }
}

/// Runs a command that may have to wait.
#[cold]
#[inline(never)]
fn run_blocking(
    command: &'static Command,
    engines: Engines<'_>,
    client: &mut ClientView,
    scene: Scene<'_>,
    args: &Args<'_>,
    out: &mut Out,
) -> Outcome {
    let mut cx = context(command, engines, client, scene, args);
    if scene.blocker.is_some() {
        cx.allow_blocking();
    }
    let failed = answer(command, &mut cx, args, out);
    learn(&mut cx, client);
    let wait = cx.take_wait();
    let mut engines = cx.into_engines();
    let outcome = match (wait, scene.blocker) {
        (Some(wait), Some(blocker)) => {
            let waiter = Waiter::new(blocker, command, args, client, scene, wait, out);
            waiter.register(&mut engines);
            Outcome::Blocked(waiter)
        }
        _ => Outcome::Done { failed },
    };
    if command.flags.has(Flags::DENYOOM) {
        pay(&mut engines, scene.now, args.keys().len());
    }
    serve(&mut engines, scene.now);
    outcome
}

/// Runs one visit of a command that goes from shard to shard; the error, if any, ends it.
pub fn run_part(
    command: &'static Command,
    engines: Engines<'_>,
    client: &mut ClientView,
    scene: Scene<'_>,
    args: &Args<'_>,
    gather: &mut Gather,
) -> CommandResult {
    let (Run::EachShard(part, _) | Run::Cursor(_, part, _)) = command.run else {
        unreachable!("{} does not go from shard to shard", command.full_name)
    };
    let mut cx = context(command, engines, client, scene, args);
    let result = part(&mut cx, args, gather);
    learn(&mut cx, client);
    serve(&mut cx.into_engines(), scene.now);
    result
}

/// Runs the handler; true when it answered with an error.
#[inline]
pub(super) fn answer(
    command: &'static Command,
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
) -> bool {
    let (Run::Keys(handler) | Run::AllShards(handler)) = command.run else {
        unreachable!("{} does not run with shards in hand", command.full_name)
    };
    let failed = match handler(cx, args, out) {
        Ok(()) => false,
        Err(CommandError::TooLongHere) if cx.leave() => return true,
        Err(error) => {
            out.error(error.text().as_bytes());
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
            let engine = cx.engine(usize::from(routed.hand));
            engine.track(&key, client, keys_max);
        }
    }
}

/// A context over engines, which agree with the connection on the largest Lamport stamp that any of them knows.
#[inline]
pub(super) fn context<'c>(
    command: &'static Command,
    mut engines: Engines<'c>,
    client: &ClientView,
    scene: Scene<'c>,
    args: &Args<'c>,
) -> ShardCx<'c> {
    let only_reads = command.flags.has(Flags::READONLY);
    match &mut engines {
        Engines::One(engine) => {
            engine.begin_command(client.id, client.stamp, only_reads);
            engine.board().commands.add(1);
        }
        Engines::Many(engines) => {
            let stamp = engines
                .iter()
                .map(|engine| engine.effects.stamp())
                .max()
                .unwrap_or(0);
            for engine in engines.iter_mut() {
                engine.begin_command(client.id, stamp.max(client.stamp), only_reads);
            }
            if let Some(engine) = engines.first() {
                engine.board().commands.add(1);
            }
        }
    }
    ShardCx::new(
        engines,
        *client,
        scene.now,
        scene.config,
        command,
        scene.place,
        args,
    )
}

/// The connection knows of all effects after.
#[inline]
pub(super) fn learn(cx: &mut ShardCx<'_>, client: &mut ClientView) {
    for hand in 0..cx.engine_count() {
        client.stamp = client.stamp.max(cx.engine(hand).effects.stamp());
    }
}

/// Serves those who waited for what changed.
#[inline]
fn serve(engines: &mut Engines<'_>, now: Now) {
    let is_due = match engines {
        Engines::One(engine) => engine.waiters.has_ready(),
        Engines::Many(engines) => engines.iter().any(|engine| engine.waiters.has_ready()),
    };
    if is_due {
        blocking::serve(engines, now);
    }
    hand_out(engines);
}

/// Leaves what happened to whoever lets the shards go, who tells it to those who follow it.
#[inline]
fn hand_out(engines: &mut Engines<'_>) {
    let has_news = match engines {
        Engines::One(engine) => engine.effects.has_news(),
        Engines::Many(engines) => engines.iter().any(|engine| engine.effects.has_news()),
    };
    if has_news {
        match engines {
            Engines::One(engine) => hand_out_all(&mut [engine]),
            Engines::Many(engines) => hand_out_all(engines),
        }
    }
}

#[cold]
fn hand_out_all(engines: &mut [&mut Engine]) {
    hand_out_with(engines, &mut Publications::default());
}

#[cold]
fn hand_out_with(engines: &mut [&mut Engine], publications: &mut Publications) {
    let all = engines
        .iter_mut()
        .map(|engine| (engine.shard, &mut engine.effects));
    if let (Some(mut told), Some(engine)) = (effect::merge(all), engines.first_mut()) {
        publications.go_with(&mut told);
        engine.deferred.told.push(told);
    }
}

/// As after a command, for whoever ran several, and published between them.
pub(super) fn serve_waiters_of_all(
    engines: &mut [&mut Engine],
    now: Now,
    publications: &mut Publications,
) {
    if engines.iter().any(|engine| engine.waiters.has_ready()) {
        let engines = engines.iter_mut().map(|engine| &mut **engine).collect();
        blocking::serve(&mut Engines::Many(engines), now);
    }
    if engines.iter().any(|engine| engine.effects.has_news()) {
        hand_out_with(engines, publications);
    }
}

/// As after a command, for whoever changed a shard otherwise, by expiry above all.
pub fn serve_waiters(engine: &mut Engine, now: Now) {
    serve(&mut Engines::One(engine), now);
}
