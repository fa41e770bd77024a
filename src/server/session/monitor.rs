//! Sends the commands that run to MONITOR clients, with secrets redacted.

use std::sync::atomic::Ordering::Relaxed;

use super::Session;
use super::batch::Request;
use super::turn::Turn;
use crate::shard::unit::context::UnitOutcome;
use crate::shard::unit::transaction::Transaction;
use crate::telemetry::clock;
use basalt_commands::command::Args;
use basalt_commands::command::declaration::{Command, Flags, Run};
use basalt_commands::pubsub::Posting;
use basalt_commands::pubsub::monitor::Shown;

impl Session {
    /// Sends a command that has run to MONITOR clients. A script is skipped here: `Session::show_script`
    /// sends it together with its calls. No shard may be locked.
    #[cold]
    pub(super) fn show(&self, turn: &mut Turn<'_>, request: Request<'_>) {
        if !matches!(request.command.run, Run::Script(_)) {
            self.show_script(turn, request, &UnitOutcome::default());
        }
    }

    /// Sends the commands of a transaction to MONITOR clients.
    pub(super) fn show_transaction(
        &self,
        transaction: &Transaction,
        outcome: &UnitOutcome,
        wakes: &mut Vec<std::task::Waker>,
    ) {
        if self.service.pubsub.is_monitored() {
            let mut db = outcome.db;
            let mut selections = outcome.selections.iter().peekable();
            for (step, (command, args)) in transaction.commands().enumerate() {
                // A command that selects a database is shown in the selected one.
                if let Some((_, chosen)) = selections.next_if(|(by, _)| *by == step) {
                    db = *chosen;
                }
                self.show_with_calls(command, &args, (step, db), outcome, wakes);
            }
        }
    }

    /// Sends a command and, if it is a script, the commands that it called to MONITOR clients.
    #[cold]
    pub(super) fn show_script(
        &self,
        turn: &mut Turn<'_>,
        request: Request<'_>,
        outcome: &UnitOutcome,
    ) {
        let mut wakes = std::mem::take(&mut turn.batch.outgoing.wakes);
        let place = (0, self.connection.db);
        let args = turn.batch.args(request.plan);
        self.show_with_calls(request.command, &args, place, outcome, &mut wakes);
        turn.batch.outgoing.wakes = wakes;
    }

    fn show_with_calls(
        &self,
        command: &'static Command,
        args: &Args<'_>,
        (step, db): (usize, usize),
        outcome: &UnitOutcome,
        wakes: &mut Vec<std::task::Waker>,
    ) {
        self.show_one(command, args, db, wakes);
        let notes = outcome.notes.iter();
        let calls = notes.flat_map(|notes| &notes.script_calls);
        for call in calls.filter(|call| call.step == step) {
            let shown = Shown {
                unix_us: clock::unix_us(),
                db: call.db,
                client: None,
            };
            let arguments = call.arguments.iter().map(Vec::as_slice);
            let posting = &mut self.posting(wakes);
            self.service.pubsub.show(&shown, arguments, posting);
        }
    }

    fn show_one(
        &self,
        command: &'static Command,
        args: &Args<'_>,
        db: usize,
        wakes: &mut Vec<std::task::Waker>,
    ) {
        let is_hidden = command.flags.any(Flags::ADMIN.or(Flags::SKIP_MONITOR));
        if is_hidden && !matches!(command.run, Run::Script(_)) {
            return;
        }
        let shown = Shown {
            unix_us: clock::unix_us(),
            db,
            client: Some(&self.connection.shared),
        };
        let arguments = args.from(0).enumerate().map(|(index, argument)| {
            match command.is_secret(args, index) {
                true => &b"(redacted)"[..],
                false => argument,
            }
        });
        let posting = &mut self.posting(wakes);
        self.service.pubsub.show(&shown, arguments, posting);
    }

    /// Returns a posting that carries the log position of the command's reply. MONITOR output reveals the same
    /// data as the reply, so it must wait for the same log position.
    fn posting<'w>(&self, wakes: &'w mut Vec<std::task::Waker>) -> Posting<'w> {
        Posting::new(self.connection.shared.log_seen.load(Relaxed), wakes)
    }
}
