//! Whether a command may run now: one ordered list of checks, for all commands.

use super::Session;
use super::batch::{Batch, Plan, Route};
use crate::command::declaration::{Command, Flags, Run, TransactionVerb};
use crate::command::error::{self, CommandError};
use crate::config::Config;
use crate::config::live::Peer;
use crate::engine::Now;
use crate::resp::reply::{Position, Protocol};
use crate::telemetry::{counters, errors, log};

impl Session {
    /// The command if it may run; otherwise the refusal is written and counted.
    #[inline]
    pub(super) fn admit(
        &mut self,
        batch: &mut Batch,
        plan: &Plan,
        config: &Config,
        now: Now,
    ) -> Option<&'static Command> {
        match plan.command {
            Some(command)
                if plan.route != Route::Refused
                    && self.is_permitted(command, config)
                    && !self.is_confined(command)
                    && !self.lacks_replicas(command, config)
                    && (self.connection.authenticated
                        || command.flags.has(Flags::NO_AUTH)
                        || config.requirepass.is_empty()) =>
            {
                Some(command)
            }
            _ => {
                self.refuse(batch, plan, config, now);
                None
            }
        }
    }

    /// Whether the configuration file allows this command to this client.
    #[inline]
    fn is_permitted(&self, command: &Command, config: &Config) -> bool {
        let peer = || match self.connection.shared.is_local() {
            true => Peer::Local,
            false => Peer::Remote,
        };
        !command.flags.has(Flags::PROTECTED) || config.enable_debug_command.allows(peer())
    }

    /// Whether the client speaks RESP2 and has subscriptions, so that it could not tell the command's reply from a message.
    #[inline]
    fn is_confined(&self, command: &Command) -> bool {
        self.connection.protocol == Protocol::Resp2
            && self.connection.shared.mailbox().is_some()
            && self.connection.shared.subscriptions() > 0
            && !command.flags.has(Flags::SUBSCRIBER)
    }

    /// Whether it is a write that fewer replicas would see than `min-replicas-to-write` asks for. What waits already was
    /// admitted once.
    #[inline]
    fn lacks_replicas(&self, command: &Command, config: &Config) -> bool {
        command.is_write() && config.lacks_replicas() && self.blocked.is_none()
    }

    #[cold]
    fn refuse(&mut self, batch: &mut Batch, plan: &Plan, config: &Config, now: Now) {
        self.spoil_transaction();
        let mark = batch.out.position();
        let args = batch.args(plan);
        if plan.command.is_none() && (args.is(0, "post") || args.is(0, "host:")) {
            // A browser that was lured into sending a form here: the lines that follow are not to be run.
            log::warn_seldom(
                "cross-protocol",
                format_args!(
                    "Possible SECURITY ATTACK detected. It looks like somebody is sending POST or Host: commands, \
                     which a browser does and a client does not. Connection from {} aborted.",
                    self.connection.shared.address
                ),
            );
            self.must_close = true;
            return;
        }
        let text = match plan.command {
            None => error::unknown_command(&args),
            Some(command) => {
                counters::local().command(command).rejected.add(1);
                let is_refused = plan.route == Route::Refused;
                if is_refused && !command.children().is_empty() && args.len() > 1 {
                    error::unknown_subcommand(&args, command.name)
                } else if is_refused {
                    format!(
                        "ERR wrong number of arguments for '{}' command",
                        command.full_name
                    )
                    .into_bytes()
                } else if !self.is_permitted(command, config) {
                    "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", \
                     you can run it from a local connection, otherwise you need to set this option in the \
                     configuration file, and then restart the server."
                        .as_bytes()
                        .to_vec()
                } else if self.is_confined(command) {
                    format!(
                        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
                         allowed in this context",
                        command.full_name
                    )
                    .into_bytes()
                } else if !self.connection.authenticated
                    && !command.flags.has(Flags::NO_AUTH)
                    && !config.requirepass.is_empty()
                {
                    b"NOAUTH Authentication required.".to_vec()
                } else {
                    CommandError::NoReplicas.text().as_bytes().to_vec()
                }
            }
        };
        let is_exec = plan
            .command
            .is_some_and(|command| matches!(command.run, Run::Transaction(TransactionVerb::Exec)));
        // Also where no transaction is open: what is watched is watched no more.
        let text = if is_exec {
            self.discard(now);
            let why = text.strip_prefix(b"ERR ").unwrap_or(&text);
            [b"EXECABORT Transaction discarded because of: ", why].concat()
        } else {
            text
        };
        batch.out.error(&text);
        errors::note(batch.out.since(mark));
        self.apply_reply_mode(&mut batch.out, mark);
    }

    /// A command was refused that had been admitted; the refusal stands behind `mark`.
    #[cold]
    pub(super) fn note_refused(
        &mut self,
        batch: &mut Batch,
        mark: Position,
        command: &'static Command,
    ) {
        counters::local().command(command).rejected.add(1);
        errors::note(batch.out.since(mark));
        self.apply_reply_mode(&mut batch.out, mark);
        batch.next += 1;
    }
}
