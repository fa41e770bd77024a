//! Whether a request may run: the rules of [`admission`], and what happens to a request that is refused.

use std::sync::atomic::Ordering::Relaxed;

use super::Session;
use super::batch::{Plan, Route};
use super::turn::Turn;
use crate::command::Args;
use crate::command::admission::{self, Facts, Stage, Suspects};
use crate::command::declaration::{Command, Flags};
use crate::command::error::{self, CommandError};
use crate::command::transaction::{exec_abort, is_exec};
use crate::config::Config;
use crate::config::live::Peer;
use crate::resp::reply::Protocol;
use crate::telemetry::{counters, errors, log};

/// What the rules look at: a session under a configuration.
struct Asking<'s> {
    session: &'s Session,
    config: &'s Config,
}

impl Facts for Asking<'_> {
    fn may_debug(&self) -> bool {
        let peer = match self.session.connection.shared.is_local() {
            true => Peer::Local,
            false => Peer::Remote,
        };
        self.config.enable_debug_command.allows(peer)
    }

    #[inline]
    fn needs_auth(&self) -> bool {
        !self.session.connection.authenticated && !self.config.requirepass.is_empty()
    }

    #[inline]
    fn is_subscribed(&self) -> bool {
        let connection = &self.session.connection;
        connection.protocol == Protocol::Resp2
            && connection.shared.mailbox().is_some()
            && connection.shared.subscriptions() > 0
    }

    #[inline]
    fn is_loading(&self) -> bool {
        let figures = &self.session.service.telemetry.persistence.loading;
        figures.is_loading.load(Relaxed)
    }

    /// What waits already was admitted once.
    #[inline]
    fn lacks_replicas(&self) -> bool {
        self.config.lacks_replicas() && self.session.blocked.is_none()
    }

    fn is_out_of_memory(&self) -> bool {
        self.session.service.budget.is_out_of_memory()
    }

    fn busy_text(&self) -> Option<&'static str> {
        let running = &self.session.service.scripts.running;
        match running.is_busy() {
            true => running.busy_text(),
            false => None,
        }
    }
}

impl Session {
    /// The requests that some rule may refuse, as things stand.
    #[inline]
    fn suspects(&self, config: &Config) -> Suspects {
        Suspects::now(&Asking {
            session: self,
            config,
        })
    }

    /// The command if it may run; otherwise the refusal is written and counted.
    #[inline]
    pub(super) fn admit(&mut self, turn: &mut Turn<'_>, plan: &Plan) -> Option<&'static Command> {
        let command = match (plan.command, plan.route) {
            (None, _) | (_, Route::Refused) => {
                let text = unfit(plan.command, &turn.batch.args(plan));
                self.refuse(turn, plan, text);
                return None;
            }
            (Some(command), Route::Session) => command,
            (Some(command), _) => {
                if self.pending.is_none() && !self.suspects(turn.config).has(command) {
                    return Some(command);
                }
                command
            }
        };
        match self.refusal(turn, plan, command) {
            None => Some(command),
            Some(text) => {
                self.refuse(turn, plan, text);
                None
            }
        }
    }

    /// Why a request is not admitted, if it is not.
    #[inline(never)]
    fn refusal(&self, turn: &Turn<'_>, plan: &Plan, command: &'static Command) -> Option<Vec<u8>> {
        let stage = match plan.route {
            _ if self.is_queueing(command) => Stage::REQUEST.or(Stage::QUEUED),
            Route::Session => Stage::REQUEST.or(Stage::SHARDLESS),
            _ => Stage::REQUEST,
        };
        let facts = Asking {
            session: self,
            config: turn.config,
        };
        let error = admission::refusal(&facts, command, stage)?;
        Some(bytes_of(&error))
    }

    /// Why what is queued is not admitted at EXEC, if it is not: all commands together have these flags.
    pub(super) fn refuses_transaction(&self, config: &Config, flags: Flags) -> Option<Vec<u8>> {
        let facts = Asking {
            session: self,
            config,
        };
        let error = admission::refusal_of_all(&facts, flags, Stage::EXEC)?;
        Some(bytes_of(&error))
    }

    #[cold]
    fn refuse(&mut self, turn: &mut Turn<'_>, plan: &Plan, text: Vec<u8>) {
        turn.release();
        self.spoil_transaction();
        let mark = turn.batch.out.position();
        let args = turn.batch.args(plan);
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
        if let Some(command) = plan.command {
            counters::local().command(command).rejected.add(1);
        }
        // Also where no transaction is open: what is watched is watched no more.
        let text = if plan.command.is_some_and(is_exec) {
            self.discard();
            exec_abort(&text)
        } else {
            text
        };
        turn.batch.out.error(&text);
        errors::note(turn.batch.out.since(mark));
        self.apply_reply_mode(&mut turn.batch.out, mark);
    }
}

/// What is wrong with a request that names no command, or has the wrong number of arguments.
#[cold]
fn unfit(command: Option<&Command>, args: &Args<'_>) -> Vec<u8> {
    match command {
        None => error::unknown_command(args),
        Some(command) if !command.children().is_empty() && args.len() > 1 => {
            error::unknown_subcommand(args, command.name)
        }
        Some(command) => bytes_of(&CommandError::Arity(command.full_name)),
    }
}

fn bytes_of(error: &CommandError) -> Vec<u8> {
    error.text().as_bytes().to_vec()
}
