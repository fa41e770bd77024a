//! Runs one command with its shards locked; immediate and queued commands use the same code. Afterwards it
//! serves requests blocked on the changed keys, appends records to the command log, and appends "news", that
//! is, messages for subscribers and invalidations for clients with client-side caching, to the queue of such
//! messages.

use std::sync::Arc;

use super::blocking::{self, BlockedRequest};
use super::handler::{ExecutionContext, answer, append_records, begin, is_unit, learn};
use super::permit;
use basalt_commands::cluster::route::Presence;
use basalt_commands::command::context::{ClientView, Engines, Gather};
use basalt_commands::command::declaration::{Command, CommandResult, Flags, Run};
use basalt_commands::command::error::CommandError;
use basalt_commands::command::{Args, Out};
use basalt_engine::effect::{self, Publication};
use basalt_engine::evict::Full;
use basalt_engine::record::{self, Records};
use basalt_engine::{Engine, Now};

/// Outcome of a command.
pub enum ExecutionOutcome {
    /// The command replied.
    Done {
        /// True if the reply is an error.
        failed: bool,
    },
    /// The command was not run, because this node does not serve the slot or memory is exhausted; the error is
    /// written.
    Refused,
    /// The command is blocked.
    Blocked(Arc<BlockedRequest>),
    /// The command was not run, because it takes too long for this thread.
    Offload,
}

/// Runs a command on its locked engines, and writes the reply to `out`.
pub fn run(
    command: &'static Command,
    mut engines: Engines<'_>,
    client: &mut ClientView,
    context: ExecutionContext<'_>,
    args: &Args<'_>,
    out: &mut Out,
) -> ExecutionOutcome {
    if let Some(permit) = context.permit
        && let Err(redirect) = permit.still_valid(context.config, || {
            presence(&mut engines, args, (client.db, context.now))
        })
    {
        out.error(redirect.text);
        return ExecutionOutcome::Refused;
    }
    let may_grow = command.flags.has(Flags::DENYOOM);
    if may_grow
        && engines.any(|engine| engine.lacks_room(client.db))
        && let Err(full) = make_room(&mut engines, client.db, context.now)
    {
        out.error(CommandError::from(full).text().as_bytes());
        return ExecutionOutcome::Refused;
    }
    if command.flags.has(Flags::BLOCKING) {
        return run_blocking(command, engines, client, context, args, out);
    }
    let may_offload = context.may_offload && command.may_leave();
    if may_offload {
        engines.each(Engine::keep_reads);
    }
    let mut cx = begin(command, engines, client, context, args);
    if may_offload {
        cx.allow_leaving();
    }
    let failed = answer(command, &mut cx, args, out);
    let leaves = cx.leaves();
    let mut engines = cx.into_engines();
    if leaves {
        forget_reads(&mut engines);
    }
    let may_owe = command.flags.any(Flags::DENYOOM.or(Flags::PAYS));
    if may_owe && engines.any(|engine| engine.owes()) {
        pay(
            command,
            &mut engines,
            client,
            (context.now, args.keys().len()),
        );
    }
    end(command, &mut engines, client, context.now);
    match leaves {
        true => ExecutionOutcome::Offload,
        false => ExecutionOutcome::Done { failed },
    }
}

#[cold]
#[inline(never)]
fn presence(engines: &mut Engines<'_>, args: &Args<'_>, at: (usize, Now)) -> Presence {
    engines.with_all(|engines| permit::presence(engines, std::iter::once(*args), at))
}

/// Evicts keys for the data that a command adds to a database. The evictions are logged separately, before the
/// command's records.
#[cold]
#[inline(never)]
fn make_room(engines: &mut Engines<'_>, db: usize, now: Now) -> Result<(), Full> {
    engines.with_all(|engines| {
        let mut all = engines.iter_mut();
        let room = all.try_for_each(|engine| engine.make_room(db, now));
        append_alone(engines);
        room
    })
}

/// Evicts other keys for the data that a command added. The evictions are logged separately, after the
/// command's records.
#[cold]
#[inline(never)]
fn pay(
    command: &'static Command,
    engines: &mut Engines<'_>,
    client: &mut ClientView,
    (now, keys): (Now, usize),
) {
    engines.with_all(|engines| {
        append_records(command, engines, client);
        engines.iter_mut().for_each(|engine| engine.pay(now, keys));
        // Log the evictions separately, so that they do not change the client's log position (WAIT, WAITAOF):
        // that is the position of its own command.
        append_alone(engines);
    });
}

/// Appends the records of evicted keys to the log.
fn append_alone(engines: &mut [&mut Engine]) {
    record::append(engines, &mut Records::default(), false);
}

/// Discards the hit and miss counts of a command that was not run.
#[cold]
fn forget_reads(engines: &mut Engines<'_>) {
    engines.each(|engine| engine.forget_reads());
}

/// Runs a command that may block; if it has to wait, registers its waiter.
#[cold]
#[inline(never)]
fn run_blocking(
    command: &'static Command,
    engines: Engines<'_>,
    client: &mut ClientView,
    context: ExecutionContext<'_>,
    args: &Args<'_>,
    out: &mut Out,
) -> ExecutionOutcome {
    let mut cx = begin(command, engines, client, context, args);
    if context.blocker.is_some() {
        cx.allow_blocking();
    }
    let failed = answer(command, &mut cx, args, out);
    let wait = cx.take_wait();
    let mut engines = cx.into_engines();
    let outcome = match (wait, context.blocker) {
        (Some(wait), Some(blocker)) => {
            engines.look_at_each(|engine| learn(engine, client));
            let waiter = BlockedRequest::new(
                blocker,
                command,
                args,
                (*client, out.protocol()),
                context,
                wait,
            );
            engines.with_all(|engines| waiter.register(engines));
            ExecutionOutcome::Blocked(waiter)
        }
        _ => ExecutionOutcome::Done { failed },
    };
    if command.flags.has(Flags::DENYOOM) {
        pay(
            command,
            &mut engines,
            client,
            (context.now, args.keys().len()),
        );
    }
    end(command, &mut engines, client, context.now);
    outcome
}

/// Runs one visit of a command that visits shards one after the other. An error ends the command.
pub fn run_part(
    command: &'static Command,
    engines: Engines<'_>,
    client: &mut ClientView,
    context: ExecutionContext<'_>,
    args: &Args<'_>,
    gather: &mut Gather,
) -> CommandResult {
    let (Run::EachShard(part, _) | Run::Cursor(_, part, _)) = command.run else {
        unreachable!("{} does not go from shard to shard", command.full_name)
    };
    let mut cx = begin(command, engines, client, context, args);
    let result = cx.logged(args, |cx| part(cx, args, gather));
    end(command, &mut cx.into_engines(), client, context.now);
    result
}

/// Finishes a command: serves requests blocked on changed keys, and appends log records and news.
#[inline(always)]
fn end(command: &'static Command, engines: &mut Engines<'_>, client: &mut ClientView, now: Now) {
    if engines.any(|engine| engine.waiters.has_ready() || engine.effects.is_due()) {
        settle(command, engines, client, now);
    }
    engines.look_at_each(|engine| learn(engine, client));
}

#[cold]
#[inline(never)]
fn settle(command: &'static Command, engines: &mut Engines<'_>, client: &mut ClientView, now: Now) {
    let position = engines.with_all(|engines| end_of_change(engines, now, is_unit(command)));
    client.log_position = client.log_position.max(position.unwrap_or(0));
}

/// Appends the news of these shards, including published messages, to the queue from which they are delivered
/// after the shards are released.
#[cold]
fn append_news(engines: &mut [&mut Engine], publications: &mut Vec<Publication>) {
    if let Some(follower) = effect::append(engines, publications)
        && let Some(engine) = engines.first_mut()
    {
        engine.deferred.follower = Some(follower);
    }
}

/// Results of a unit besides the changes of its shards: published messages, and log records of commands without
/// keys.
pub(super) struct UnitOutput<'u> {
    /// Published messages.
    pub publications: &'u mut Vec<Publication>,
    /// Log records of the messages, and of commands without keys.
    pub records: &'u mut Records,
    /// True if all records take effect atomically on a replica (as MULTI … EXEC).
    pub is_unit: bool,
}

/// Finishes any change of shards: appends its records to the log, serves requests blocked on changed keys, and
/// appends its news and published messages. If no shard is locked, the messages stay in `beside`. Returns the
/// log position after the records; `None` if there are no records.
pub(super) fn end_of_several(
    engines: &mut [&mut Engine],
    now: Now,
    beside: &mut UnitOutput<'_>,
) -> Option<u64> {
    let is_due = engines.iter().any(|engine| engine.effects.is_due());
    let position = match is_due || !beside.records.is_empty() {
        true => record::append(engines, beside.records, beside.is_unit),
        false => None,
    };
    if engines.iter().any(|engine| engine.waiters.has_ready()) {
        blocking::serve(engines, now);
        record::append(engines, beside.records, beside.is_unit);
    }
    if !beside.publications.is_empty() || engines.iter().any(|engine| engine.effects.has_news()) {
        append_news(engines, beside.publications);
    }
    position
}

/// Finishes a change that published no messages; returns the same position as [`end_of_several`].
pub(super) fn end_of_change(engines: &mut [&mut Engine], now: Now, is_unit: bool) -> Option<u64> {
    let mut beside = UnitOutput {
        publications: &mut Vec::new(),
        records: &mut Records::default(),
        is_unit,
    };
    end_of_several(engines, now, &mut beside)
}

/// Serves waiters after a shard was changed by other means than a command, such as expiry.
pub fn serve_waiters(engine: &mut Engine, now: Now) {
    end_of_change(&mut [engine], now, false);
}

#[cfg(test)]
mod tests;
