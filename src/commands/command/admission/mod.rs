//! Admission of commands: one ordered list of rules, for requests, for what MULTI queues, for EXEC, for scripts and
//! for what scripts call.
//!
//! A rule consists of the flags of the commands that it concerns, the stages at which it applies, the condition under
//! which it refuses, and the error. Whether a shard has memory for a command is checked under the shard's lock, where
//! the command runs.

use super::declaration::{Command, Flags, Run};
use super::error::CommandError;
use crate::config::Config;
use basalt_core::bit_set;

/// The facts that rules depend on. By default, facts that concern only scripts, or only requests, refuse nothing.
pub trait World {
    /// The configuration, for limits and thresholds.
    fn config(&self) -> &Config;
    /// Whether the configuration lets this client use DEBUG and other protected commands.
    fn may_debug(&self) -> bool {
        true
    }
    /// Whether the configuration lets this client load and unload modules.
    fn may_load_modules(&self) -> bool {
        true
    }
    /// Whether the client has yet to authenticate.
    fn needs_auth(&self) -> bool {
        false
    }
    /// Returns the error if the ACL rules forbid the client's user this command; the ACL log records it.
    fn denial(&mut self) -> Option<CommandError> {
        None
    }
    /// Returns the error if this node does not serve the slot of the keys: it names the node to go to, or says why no
    /// node serves the slot.
    fn redirection(&mut self, _writes: bool) -> Option<CommandError> {
        None
    }
    /// Returns the error that redirects the client from this replica to its primary, for clients that follow
    /// redirections.
    fn redirection_to_primary(&mut self, _writes: bool) -> Option<CommandError> {
        None
    }
    /// Whether the client uses RESP2 and has subscriptions, so that it could not tell a reply from a message.
    fn is_subscribed(&self) -> bool {
        false
    }
    /// Whether there may be a reason to refuse what runs at other times: data are being loaded, or the server is
    /// overloaded. One question for both, because each request asks it.
    fn is_gated(&self) -> bool {
        self.is_loading()
    }
    /// Whether data are being loaded.
    fn is_loading(&self) -> bool {
        false
    }
    /// Returns the error if the server is overloaded and refuses this command.
    fn overload(&mut self, _command: &Command) -> Option<CommandError> {
        None
    }
    /// Whether data are being loaded in the background, to replace the current data once complete.
    fn is_loading_aside(&self) -> bool {
        false
    }
    /// Whether limits on writes no longer apply: a script has written and must be able to finish, or declares that it
    /// may write anyway.
    fn is_exempt(&self) -> bool {
        false
    }
    /// Returns the error if writes are refused because they could not be saved.
    fn unsaved_text(&self) -> Option<&'static str> {
        None
    }
    /// Whether fewer replicas are connected than a nonzero `min-replicas-to-write` demands.
    fn lacks_replicas(&self) -> bool;
    /// Whether this server is a replica that accepts writes from its primary only.
    fn is_read_only_replica(&self) -> bool {
        false
    }
    /// Whether this server is a replica without a link to its primary, and is configured not to serve reads in that
    /// state.
    fn is_stale(&self) -> bool {
        false
    }
    /// The error if memory is full and nothing can be evicted.
    fn out_of_memory(&mut self) -> Option<CommandError>;
    /// Returns the error for commands that need no shard while a script runs for too long.
    fn busy_text(&self) -> Option<&'static str> {
        None
    }
    /// Whether the calling script must not write.
    fn is_read_only(&self) -> bool {
        false
    }
    /// Whether scripts may call commands that are flagged NOSCRIPT.
    fn lifts_noscript(&self) -> bool {
        false
    }
}

bit_set! {
    /// The stage at which commands are admitted.
    #[derive(Debug)]
    pub struct Stage(u8) {
        /// A request of a client, on whatever shards it runs.
        REQUEST;
        /// A request that runs on no shard.
        SHARDLESS;
        /// A request that MULTI queues.
        QUEUED;
        /// All queued commands together, at EXEC.
        EXEC;
        /// A script at its start, which is admitted like a request that has the flags the script declares.
        SCRIPT;
        /// A command that a script calls.
        CALL;
    }
}

/// The command, or commands, to be admitted.
#[derive(Clone, Copy)]
pub struct Candidate<'c> {
    /// The union of the commands' flags.
    any: Flags,
    /// The intersection of the commands' flags.
    all: Flags,
    command: Option<&'c Command>,
}

impl<'c> Candidate<'c> {
    /// Combines several commands by their flags.
    pub fn together(flags: impl IntoIterator<Item = Flags>) -> Candidate<'c> {
        let mut flags = flags.into_iter();
        let first = flags.next().unwrap_or(Flags::NONE);
        let none = Candidate {
            any: first,
            all: first,
            command: None,
        };
        flags.fold(none, |them, flags| Candidate {
            any: them.any.or(flags),
            all: them.all.and(flags),
            command: None,
        })
    }

    /// Adds the flags that a script declares to its command.
    pub fn declaring(self, flags: Flags) -> Candidate<'c> {
        Candidate {
            any: self.any.or(flags),
            all: self.all.without(Flags::STALE).or(flags),
            command: self.command,
        }
    }

    /// Whether any of the commands has any of these flags.
    #[inline(always)]
    fn having(&self, flags: Flags) -> bool {
        self.any.any(flags)
    }

    /// Whether any of the commands lacks these flags.
    #[inline(always)]
    fn lacking(&self, flag: Flags) -> bool {
        !self.all.has(flag)
    }

    /// Always true: the rule applies whatever the flags.
    #[inline(always)]
    fn any_command(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        self.command.map_or("", |command| command.full_name)
    }

    /// Whether the candidate is a command that starts or ends a transaction or script.
    fn is_unit(&self) -> bool {
        let run = self.command.map(|command| &command.run);
        matches!(run, Some(Run::Script(_) | Run::Transaction(_)))
    }
}

impl<'c> From<&'c Command> for Candidate<'c> {
    #[inline(always)]
    fn from(command: &'c Command) -> Candidate<'c> {
        Candidate {
            any: command.flags,
            all: command.flags,
            command: Some(command),
        }
    }
}

/// Compiles the list to one function, in which the compiler drops the rules that do not apply where it knows the
/// stage.
macro_rules! rules {
    ($($concerned:ident($($flags:expr)?), at $stage:expr, $rule:expr;)*) => {
        /// Returns the error if the candidate is not admitted.
        #[inline(always)]
        pub fn judge<'c, W: World>(
            world: &mut W,
            candidate: impl Into<Candidate<'c>>,
            stage: Stage,
        ) -> Result<(), CommandError> {
            let candidate = candidate.into();
            $(
                if $stage.any(stage)
                    && candidate.$concerned($($flags)?)
                    && let Some(error) = refusal(world, &candidate, $rule)
                {
                    return Err(into_error(error));
                }
            )*
            Ok(())
        }
    };
}

/// Converts a rule's error; out of line, so that the code of admitted commands stays short.
#[cold]
fn into_error(error: impl Into<CommandError>) -> CommandError {
    error.into()
}

/// Gives a rule's closure its types.
#[inline(always)]
fn refusal<W: World, E>(
    world: &mut W,
    candidate: &Candidate<'_>,
    rule: impl FnOnce(&mut W, &Candidate<'_>) -> Option<E>,
) -> Option<E> {
    rule(world, candidate)
}

#[cold]
fn refusal_at_gate<W: World>(world: &mut W, them: &Candidate<'_>) -> Option<CommandError> {
    // A load that begins while a script runs waits for it, so that the script can be killed.
    let may_kill = || !them.lacking(Flags::ALLOW_BUSY) && world.busy_text().is_some();
    match them.command {
        _ if world.is_loading() && !them.having(Flags::TELLS_NODES) && !may_kill() => {
            Some(CommandError::Loading)
        }
        Some(command) => world.overload(command),
        None => None,
    }
}

// In the order in which Redis checks them.
rules! {
    // enable-debug-command
    having(Flags::PROTECTED), at Stage::REQUEST, |world, _| (!world.may_debug()).then_some(
        "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", \
         you can run it from a local connection, otherwise you need to set this option in the \
         configuration file, and then restart the server.");
    // enable-module-command
    having(Flags::LOADS_MODULES), at Stage::REQUEST, |world, _| (!world.may_load_modules()).then_some(
        "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", \
         you can run it from a local connection, otherwise you need to set this option in the \
         configuration file, and then restart the server.");
    // requirepass
    lacking(Flags::NO_AUTH), at Stage::REQUEST, |world, _|
        world.needs_auth().then_some("NOAUTH Authentication required.");
    // commands that are not allowed inside MULTI
    having(Flags::NO_MULTI), at Stage::QUEUED, |_, _| Some("ERR Command not allowed inside a transaction");
    // commands that are not allowed inside scripts
    having(Flags::NOSCRIPT), at Stage::CALL, |world, call| (!world.lifts_noscript() || call.is_unit())
        .then_some("ERR This Redis command is not allowed from script");
    // replica-serve-stale-data
    lacking(Flags::STALE), at Stage::CALL, |world, _|
        world.is_stale().then_some("ERR Can not execute the command on a stale replica");
    // ACL rules of the client's user
    any_command(), at Stage::REQUEST.or(Stage::CALL), |world, _| world.denial();
    // MOVED and other redirections of a cluster
    any_command(), at Stage::REQUEST, |world, request| world.redirection(request.having(Flags::WRITE));
    // CLIENT CAPA redirect, and READONLY
    having(Flags::WRITE.or(Flags::READONLY)), at Stage::REQUEST, |world, request|
        world.redirection_to_primary(request.having(Flags::WRITE));
    // EVAL_RO, FCALL_RO and the flag no-writes
    having(Flags::WRITE.or(Flags::MAY_REPLICATE)), at Stage::CALL, |world, _|
        world.is_read_only().then_some("ERR Write commands are not allowed from read-only scripts.");
    // maxmemory: queued arguments take memory, whatever the command does later
    lacking(Flags::TRANSACTIONAL), at Stage::QUEUED, |world, _| world.out_of_memory();
    // maxmemory
    having(Flags::DENYOOM), at Stage::SHARDLESS.or(Stage::SCRIPT).or(Stage::EXEC), |world, _| world.out_of_memory();
    // stop-writes-on-bgsave-error
    having(Flags::WRITE.or(Flags::HEALTH)), at Stage::REQUEST, |world, _| world.unsaved_text();
    having(Flags::WRITE), at Stage::EXEC.or(Stage::SCRIPT).or(Stage::CALL), |world, _|
        world.unsaved_text().filter(|_| !world.is_exempt());
    // min-replicas-to-write
    having(Flags::WRITE), at Stage::REQUEST.or(Stage::EXEC).or(Stage::SCRIPT).or(Stage::CALL), |world, _|
        (world.config().wants_replicas() && !world.is_exempt() && world.lacks_replicas())
            .then_some(CommandError::NoReplicas);
    // replica-read-only
    having(Flags::WRITE), at Stage::REQUEST.or(Stage::EXEC).or(Stage::SCRIPT).or(Stage::CALL), |world, _|
        world.is_read_only_replica().then_some(CommandError::ReadOnly);
    // maxmemory, which Redis checks last for scripts
    having(Flags::DENYOOM), at Stage::CALL, |world, _| match world.is_exempt() {
        true => None,
        false => world.out_of_memory(),
    };
    // RESP2 connections with subscriptions
    lacking(Flags::SUBSCRIBER), at Stage::REQUEST, |world, request| world.is_subscribed().then(|| format!(
        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
         context",
        request.name()
    ));
    // replica-serve-stale-data
    lacking(Flags::STALE), at Stage::REQUEST.or(Stage::EXEC).or(Stage::SCRIPT), |world, _|
        world.is_stale().then_some(CommandError::MasterDown);
    // EVAL_RO and FCALL_RO
    having(Flags::WRITE), at Stage::SCRIPT, |world, _|
        world.is_read_only().then_some("ERR Can not execute a script with write flag using *_ro command.");
    // loading, and overload-p99
    lacking(Flags::LOADING), at Stage::REQUEST.or(Stage::EXEC), |world, them| match world.is_gated() {
        false => None,
        true => refusal_at_gate(world, them),
    };
    having(Flags::NO_ASYNC_LOADING), at Stage::REQUEST.or(Stage::EXEC), |world, _|
        world.is_loading_aside().then_some(CommandError::Loading);
    // busy-reply-threshold
    lacking(Flags::ALLOW_BUSY), at Stage::QUEUED.or(Stage::SHARDLESS), |world, _| world.busy_text();
}

#[cfg(test)]
mod tests;
