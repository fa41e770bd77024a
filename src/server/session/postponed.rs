//! Commands of a transaction that sleep, or make system calls that may take long. These commands run in order
//! after the transaction's shards are released, and their replies are inserted at their original positions.

use std::sync::mpsc;

use super::Session;
use crate::shard::unit::context::UnitOutcome;
use crate::shard::unit::step::sit_out;
use crate::shard::unit::transaction::Transaction;
use crate::telemetry::clock::{self, Ticks};
use crate::telemetry::counters;
use crate::telemetry::slow::SlowStep;
use basalt_commands::command::Out;
use basalt_commands::command::context::{After, Outbox, SessionCx};
use basalt_commands::command::declaration::{CommandResult, Run};
use basalt_commands::command::error::write_failure;
use basalt_commands::command::host::{Awaited, Told};
use basalt_commands::pubsub::outgoing::Outgoing;
use basalt_core::resp::reply::{Filling, OpenAggregate};

impl Session {
    /// Runs the postponed commands of a transaction; returns their replies, each for its reserved position. No
    /// shard may be locked.
    pub(super) fn run_postponed(
        &mut self,
        transaction: &Transaction,
        outcome: &mut UnitOutcome,
        outgoing: &mut Outgoing,
    ) -> Vec<(OpenAggregate, Filling)> {
        let Some(notes) = &mut outcome.notes else {
            return Vec::new();
        };
        let mut postponed = std::mem::take(&mut notes.postponed).into_iter().peekable();
        let mut places = Vec::with_capacity(postponed.len());
        for (step, (command, args)) in transaction.commands().enumerate() {
            let Some((_, mark)) = postponed.next_if(|(at, _)| *at == step) else {
                continue;
            };
            let Run::Session(handler) = command.run else {
                unreachable!("only these are postponed")
            };
            let mut reply = Out::new(self.connection.protocol);
            let began = Ticks::now();
            let mut cx = SessionCx {
                client: &mut self.connection,
                server: self.service.server(),
                config: &self.service.config.load_full(),
                now: clock::now(),
                command,
                after: After::Nothing,
                outbox: Outbox::Open(outgoing),
            };
            let mut result = handler(&mut cx, &args, &mut reply);
            match cx.after {
                After::Nothing => {}
                After::Block(block) => sit_out(&block, &mut reply),
                After::Await(awaited) => result = sit_out_work(&awaited, &mut reply),
                After::Configured if !matches!(outcome.after, After::Nothing) => {}
                after => outcome.after = after,
            }
            let failed = write_failure(result, &mut reply);
            if failed {
                let text = reply.as_slice().unwrap_or_default().to_vec();
                outcome.note_failure(step, text, self.has_run_before());
            }
            let duration_ns = Ticks::now().since_ns(began);
            counters::local().command(command).ran(duration_ns, failed);
            outcome.command_count += 1;
            let place = (&**self.service.config.load(), self.service.server());
            outcome.note_slow(SlowStep::of(step, duration_ns, place));
            places.push((mark, Filling::Reply(reply)));
        }
        places
    }
}

/// Starts asynchronous work. Waits for the work only if its result is the reply.
fn sit_out_work(awaited: &Awaited, reply: &mut Out) -> CommandResult {
    match awaited.told {
        Told::Nothing => (awaited.begin)(Box::new(drop)),
        Told::Text(text) => {
            (awaited.begin)(Box::new(drop));
            reply.simple(text);
        }
        Told::ByWork => {
            let (said, hears) = mpsc::channel();
            (awaited.begin)(Box::new(move |result| {
                // Sending cannot fail: the receiver waits below.
                let _ = said.send(result);
            }));
            let ended = || Err("ERR the server is stopping".into());
            reply.simple(hears.recv().unwrap_or_else(|_| ended())?);
        }
    }
    Ok(())
}
