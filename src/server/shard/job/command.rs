//! A job for one queued command, or for one visit of a command that visits shards one after the other.

use std::sync::Arc;

use super::Next;
use super::aside::{self, BuiltAside};
use crate::shard::Shards;
use crate::shard::blocking::BlockedRequest;
use crate::shard::execute::{self, ExecutionOutcome};
use crate::shard::handler::{ExecutionContext, all_of};
use crate::shard::ownership::engines::HeldEngines;
use crate::shard::permit::Permit;
use crate::telemetry::clock::{self, Ticks};
use basalt_commands::client::shared::Shared;
use basalt_commands::command::aside::AsideContext;
use basalt_commands::command::context::{ClientView, Gather, ShardPlace};
use basalt_commands::command::declaration::{Command, CommandResult, Run};
use basalt_commands::command::owned::OwnedArgs;
use basalt_commands::command::prepared::Prepared;
use basalt_commands::command::{Args, Out};
use basalt_commands::config::Config;
use basalt_core::base::hash::HashSeed;
use basalt_engine::Engine;

/// The outcome of the job.
pub enum CommandJobOutcome {
    /// The reply is written.
    Answered {
        /// True if the reply is an error.
        failed: bool,
    },
    /// The command did not run; the reply is the error.
    Refused,
    /// The command is blocked: there is no reply yet.
    Blocked(Arc<BlockedRequest>),
    /// A visit is done, with the results gathered so far.
    Visited(Box<Gather>, CommandResult),
    /// The command stops the server; there is no reply.
    Stop,
}

/// A queued command; see the module.
pub struct CommandJob {
    command: &'static Command,
    args: OwnedArgs,
    /// The prepared form of the arguments, made before any shard was locked.
    prepared: Option<Prepared>,
    /// The value that was built while the shards were released, until the command runs.
    pub(super) aside: Option<BuiltAside>,
    /// False once a value was built aside, or was not, since it could not be.
    may_build_aside: bool,
    place: ShardPlace,
    config: Arc<Config>,
    /// The connection to block if the command has to wait.
    blocker: Option<Arc<Shared>>,
    /// In a cluster, the permit with which the command was admitted.
    permit: Option<Permit>,
    /// For a command that visits shards one after the other, the results of earlier visits; otherwise `None`.
    gather: Option<Gather>,
    /// The client's view, whose stamp and positions the run updates.
    pub client: ClientView,
    /// The reply.
    pub out: Out,
    /// The outcome of the job.
    pub ended: CommandJobOutcome,
    /// Run time in nanoseconds, excluding the wait for shards.
    pub duration_ns: u64,
}

impl CommandJob {
    /// Creates a command job with a copy of the arguments, which never blocks and visits no shards.
    pub fn new(
        command: &'static Command,
        args: &Args<'_>,
        client: ClientView,
        place: ShardPlace,
        config: &Arc<Config>,
        out: Out,
    ) -> CommandJob {
        CommandJob {
            command,
            args: OwnedArgs::copy_of(args),
            prepared: None,
            aside: None,
            may_build_aside: command.builds_aside.is_some() && !client.origin.has_run_before(),
            place,
            config: Arc::clone(config),
            blocker: None,
            permit: None,
            gather: None,
            client,
            out,
            ended: CommandJobOutcome::Answered { failed: false },
            duration_ns: 0,
        }
    }

    /// Sets the connection to block if the command has to wait.
    #[must_use]
    pub fn with_blocker(self, blocker: Option<&Arc<Shared>>) -> CommandJob {
        CommandJob {
            blocker: blocker.map(Arc::clone),
            ..self
        }
    }

    /// Sets the prepared form of the arguments.
    #[must_use]
    pub fn with_prepared(self, prepared: Option<Prepared>) -> CommandJob {
        CommandJob { prepared, ..self }
    }

    /// Sets the permit, in a cluster.
    #[must_use]
    pub fn admitted(self, permit: Option<Permit>) -> CommandJob {
        CommandJob { permit, ..self }
    }

    /// Makes the job a visit, with the results of earlier visits.
    #[must_use]
    pub fn visiting(self, gather: Gather) -> CommandJob {
        CommandJob {
            gather: Some(gather),
            ..self
        }
    }

    /// Returns whether the command's arguments must be prepared, or its value built, before its shards are locked,
    /// because that takes long.
    pub(super) fn must_prepare(&self) -> bool {
        self.command.builds.is_some() && self.prepared.is_none() || self.may_build_aside
    }

    /// Prepares the arguments, or builds the value aside. Returns whether the rest takes no longer than other commands.
    pub(super) fn prepare(&mut self, shards: &Shards, route: &[u16], seed: HashSeed) -> bool {
        let args = self.args.args();
        if let Some(build) = self.command.builds {
            let built = build(&args, &self.config, seed, clock::now());
            self.prepared = Some(Prepared::new(built));
        } else if let Some(begin) = self.command.builds_aside {
            self.may_build_aside = false;
            let context = AsideContext {
                db: self.client.db,
                config: &self.config,
                seed,
            };
            if let Some(aside) = begin(&args, &context) {
                let is_limited = self.config.maxmemory > 0;
                let (built, duration_ns) = aside::build(shards, route, aside, is_limited);
                self.aside = built;
                self.duration_ns += duration_ns;
            }
        }
        self.aside.is_some()
    }

    /// Takes over the value that was built aside. Returns false if it is no longer what the command would build.
    fn take_aside(&mut self, engines: &mut HeldEngines<'_, Engine>) -> bool {
        let Some(built) = self.aside.take() else {
            return true;
        };
        let built = built.value.finish(&mut engines.all(), clock::now());
        self.prepared = built.map(Prepared::new);
        self.prepared.is_some()
    }

    /// Leaves a value to be freed that was built aside but not stored.
    fn free_unused(&self, engines: &mut HeldEngines<'_, Engine>) {
        let left = self.prepared.as_ref().and_then(Prepared::take);
        if let Some(Ok(entry)) = left {
            engines.first().free_unused(entry);
        }
    }

    /// Runs the command with its shards locked, at the present time.
    pub(super) fn run(&mut self, engines: &mut HeldEngines<'_, Engine>, may_offload: bool) -> Next {
        let before = Ticks::now();
        if !self.take_aside(engines) {
            return Next::Offload;
        }
        let args = self.args.args().with_prepared(self.prepared.as_ref());
        let context = ExecutionContext {
            now: clock::now(),
            config: &self.config,
            place: self.place,
            blocker: self.blocker.as_ref(),
            may_offload,
            permit: self.permit.as_ref(),
        };
        let mut next = Next::Answer;
        let (client, out) = (&mut self.client, &mut self.out);
        let in_hand = all_of(engines);
        match (self.gather.take(), self.command.run) {
            (Some(mut gather), Run::EachShard(..) | Run::Cursor(..)) => {
                let result =
                    execute::run_part(self.command, in_hand, client, context, &args, &mut gather);
                self.ended = CommandJobOutcome::Visited(Box::new(gather), result);
            }
            _ => match execute::run(self.command, in_hand, client, context, &args, out) {
                ExecutionOutcome::Done { failed } => {
                    self.ended = CommandJobOutcome::Answered { failed }
                }
                ExecutionOutcome::Refused => self.ended = CommandJobOutcome::Refused,
                ExecutionOutcome::Blocked(waiter) => {
                    self.ended = CommandJobOutcome::Blocked(waiter)
                }
                ExecutionOutcome::Offload => next = Next::Offload,
            },
        }
        if self.command.builds_aside.is_some() {
            self.free_unused(engines);
        }
        self.duration_ns += Ticks::now().since_ns(before);
        next
    }

    pub(super) fn turn_away(&mut self, text: &'static str) {
        match self.gather.take() {
            Some(gather) => {
                self.ended = CommandJobOutcome::Visited(Box::new(gather), Err(text.into()))
            }
            None => {
                self.out.error(text);
                self.ended = CommandJobOutcome::Refused;
            }
        }
    }
}
