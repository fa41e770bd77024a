//! One command of a unit, with the unit's shards locked.

use std::time::Duration;

use super::context::{UnitContext, UnitOutcome};
use super::weight::{KEYS_MANY, keys_in};
use crate::shard::handler::{self, ExecutionContext};
use crate::shard::ownership::engines::HeldEngines;
use crate::telemetry::clock;
use basalt_commands::command::context::{
    After, Block, ClientView, Engines, Gather, Outbox, SessionCx, ShardPlace,
};
use basalt_commands::command::declaration::{Command, CommandResult, Flags, Run, SessionHandler};
use basalt_commands::command::error::{NO_FIELDSET, write_failure};
use basalt_commands::command::prepared::Prepared;
use basalt_commands::command::{Args, Out};
use basalt_engine::Engine;

/// Runs one command; returns true if it replied with an error.
pub(super) fn run(
    command: &'static Command,
    args: &Args<'_>,
    engines: &mut HeldEngines<'_, Engine>,
    cx: &mut UnitContext<'_>,
    out: &mut Out,
    outcome: &mut UnitOutcome,
) -> bool {
    let result = match command.run {
        Run::Session(_) if !cx.connection.is_in_script && command.is_postponed(args) => {
            let place = (outcome.step, out.later());
            outcome.notes().postponed.push(place);
            return false;
        }
        Run::Session(handler) => run_on_session((command, handler), args, cx, out, outcome),
        // The command is UNWATCH: EXEC has already removed the watched keys.
        Run::Transaction(_) => {
            out.ok();
            Ok(())
        }
        Run::Container(_) => Err("ERR unknown subcommand".into()),
        Run::Script(_) => Err("ERR a script cannot run here".into()),
        _ => {
            let named = command.flags.has(Flags::NAMES_FIELDSET);
            let fieldset = named.then(|| cx.connection.fieldset(args.get(3)));
            let prepared = match fieldset {
                Some(None) => return write_failure(Err(NO_FIELDSET.into()), out),
                Some(Some(fieldset)) => Some(Prepared::Fieldset(fieldset)),
                None => None,
            };
            let mut step = ShardStep {
                command,
                args: &args.with_prepared(prepared.as_ref()),
                view: ClientView::of(cx.connection),
                cx: &*cx,
                may_offload: outcome.may_offload,
                offloads: false,
            };
            let failed = step.run(engines, out);
            outcome.offloads |= step.offloads;
            let view = step.view;
            cx.connection.stamp = view.stamp;
            view.tell_log(&cx.connection.shared);
            return failed;
        }
    };
    write_failure(result, out)
}

fn run_on_session(
    (command, handler): (&'static Command, SessionHandler),
    args: &Args<'_>,
    unit: &mut UnitContext<'_>,
    out: &mut Out,
    outcome: &mut UnitOutcome,
) -> CommandResult {
    let config = unit.config_override.as_ref().unwrap_or(unit.config);
    let mut cx = SessionCx {
        client: unit.connection,
        server: unit.server,
        config,
        now: unit.now,
        command,
        after: After::Nothing,
        outbox: Outbox::Pending(&mut outcome.publications, &mut outcome.records),
    };
    let result = handler(&mut cx, args, out);
    match cx.after {
        After::Nothing => {}
        After::Configured => {
            unit.config_override = Some(unit.server.config());
            if matches!(outcome.after, After::Nothing) {
                outcome.after = After::Configured;
            }
        }
        // Inside a transaction, a command does not block but replies as at its timeout.
        After::Block(block) => sit_out(&block, out),
        after => outcome.after = after,
    }
    result
}

/// Sleeps if the command's purpose is to sleep (DEBUG SLEEP), and writes the reply for the end of the wait.
pub fn sit_out(block: &Block, out: &mut Out) {
    if let (true, Some(until_ms)) = (block.holds, block.until_ms) {
        let left_ms = until_ms.saturating_sub(clock::unix_ms());
        std::thread::sleep(Duration::from_millis(left_ms));
    }
    (block.on_timeout)(out);
}

/// A command that runs on locked shards.
struct ShardStep<'s, 'c> {
    command: &'static Command,
    args: &'s Args<'s>,
    view: ClientView,
    cx: &'s UnitContext<'c>,
    may_offload: bool,
    offloads: bool,
}

fn context<'s>(cx: &'s UnitContext<'_>, index: u16) -> ExecutionContext<'s> {
    ExecutionContext {
        now: cx.now,
        config: cx.config(),
        place: ShardPlace {
            index,
            count: cx.shard_count,
        },
        blocker: None,
        may_offload: false,
        permit: None,
    }
}

impl ShardStep<'_, '_> {
    fn run(&mut self, engines: &mut HeldEngines<'_, Engine>, out: &mut Out) -> bool {
        let command = self.command;
        match command.run {
            Run::EachShard(..)
                if self.may_offload
                    && command.flags.has(Flags::TAKES_LONG)
                    && keys_in(&engines.all(), self.view.db) > KEYS_MANY =>
            {
                self.offloads = true;
                true
            }
            Run::EachShard(_, merge) | Run::Cursor(_, _, merge) => {
                let result = self.visit_each(engines);
                let merged = result.and_then(|gather| merge(self.args, gather, out));
                write_failure(merged, out)
            }
            _ => {
                let named = self.named(engines);
                self.run_on(named, out)
            }
        }
    }

    /// Returns the locked engines of the command's keys. A command whose keys could not be determined runs on
    /// any engine, to report the error.
    #[inline]
    fn named<'e>(&self, engines: &'e mut HeldEngines<'_, Engine>) -> Engines<'e> {
        let is_wide = self.command.needs_all_shards(self.args);
        let keys = self.args.keys();
        let (first, rest) = match keys.split_first() {
            Some((first, rest)) => (first.shard, rest),
            None => (engines.shards()[0], keys),
        };
        if engines.len() == 1 || !is_wide && rest.iter().all(|key| key.shard == first) {
            return Engines::One(engines.get(first).expect("the unit has its shards"));
        }
        let is_named = |shard| is_wide || keys.iter().any(|key| key.shard == shard);
        let named = engines.iter().filter(|(shard, _)| is_named(*shard));
        Engines::Many(named.map(|(_, engine)| engine).collect())
    }

    fn run_on(&mut self, engines: Engines<'_>, out: &mut Out) -> bool {
        let index = match &engines {
            Engines::One(engine) => engine.shard,
            Engines::Many(engines) => engines.first().map_or(0, |engine| engine.shard),
        };
        let context = context(self.cx, index);
        let mut cx = handler::begin(self.command, engines, &self.view, context, self.args);
        if self.may_offload {
            cx.allow_leaving();
        }
        let failed = handler::answer(self.command, &mut cx, self.args, out);
        let offloads = cx.leaves();
        cx.into_engines()
            .look_at_each(|engine| handler::learn(engine, &mut self.view));
        self.offloads |= offloads;
        failed
    }

    fn visit_each(&mut self, engines: &mut HeldEngines<'_, Engine>) -> CommandResult<Gather> {
        let (command, args) = (self.command, self.args);
        let count = self.cx.shard_count;
        let (part, first) = match command.run {
            Run::EachShard(part, _) => (part, 0),
            Run::Cursor(shard_of, part, _) => (part, shard_of(args, count)?),
            _ => unreachable!("{} does not go from shard to shard", command.full_name),
        };
        let mut gather = Gather {
            routes: self.cx.permit.map(|permit| permit.map.load_full()),
            ..Gather::default()
        };
        for (_, engine) in engines.iter().filter(|(shard, _)| *shard >= first) {
            if gather.done {
                break;
            }
            let context = context(self.cx, engine.shard);
            let mut cx = handler::begin(command, Engines::One(engine), &self.view, context, args);
            let result = cx.logged(args, |cx| {
                let mut result = part(cx, args, &mut gather);
                while result.is_ok() && gather.position != 0 {
                    result = part(cx, args, &mut gather);
                }
                result
            });
            cx.into_engines()
                .look_at_each(|engine| handler::learn(engine, &mut self.view));
            result?;
        }
        Ok(gather)
    }
}
