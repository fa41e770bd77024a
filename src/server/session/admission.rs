//! Decides whether a request may run: module [`admission`] has the rules, [`permit`] checks cluster slots, and
//! [`check`] ACL permissions. This module applies them to a session's requests and handles refusals.

use std::sync::atomic::Ordering::Relaxed;

use super::Session;
use super::batch::{Plan, Request, Route};
use super::turn::{Turn, TurnRoutes};
use crate::script;
use crate::shard::permit::{self, Permit};
use crate::telemetry::{clock, counters, errors, log, overload};
use basalt_commands::cluster::route::{Presence, RoutingFlags, SlotOf};
use basalt_commands::command::Args;
use basalt_commands::command::acl::check::{self, AclLogContext, Asker};
use basalt_commands::command::admission::{self, Candidate, Stage, World};
use basalt_commands::command::declaration::{Command, Flags, Run, TransactionVerb};
use basalt_commands::command::error::{self, CommandError};
use basalt_commands::command::host::cluster::Routes;
use basalt_commands::command::host::replica::Upstream;
use basalt_commands::command::transaction::{exec_abort, is_exec};
use basalt_commands::config::Config;
use basalt_commands::config::live::ClientLocality;
use basalt_commands::config::values::ClusterMode;
use basalt_core::resp::reply::Protocol;

/// The flags that ASKING sets for the next command.
const ASKING: RoutingFlags = RoutingFlags::ASKS.or(RoutingFlags::WILL_ASK);

/// A session and its request, as the rules see them. `CHECKED` means that the client may lack permissions
/// (`client::Shared::is_checked`).
struct SessionWorld<'s, const CHECKED: bool> {
    session: &'s Session,
    config: &'s Config,
    /// The command and arguments of the request, if admission depends on more than the command's flags.
    request: Option<(&'static Command, Args<'s>)>,
    /// In a cluster: the slot map, and the permit of the request.
    routed: Option<(&'s Routes, Permit)>,
    /// True if the client may receive redirections to the primary.
    may_redirect: bool,
}

impl<const CHECKED: bool> SessionWorld<'_, CHECKED> {
    /// Returns the cluster's error for a slot that this node does not serve unconditionally, if the request is refused.
    #[cold]
    fn redirection_of_slot(
        &self,
        routes: &Routes,
        mut permit: Permit,
        writes: bool,
    ) -> Option<CommandError> {
        if writes {
            permit.routing = permit.routing.or(RoutingFlags::WRITES);
        }
        let judged = permit.judge(routes, self.config, || self.look());
        judged
            .err()
            .map(|redirect| CommandError::Elsewhere(redirect.text))
    }

    /// Checks whether the keys of a command that MULTI queues exist here, so that the command is refused as
    /// early as in Redis. Returns `None` for other requests, and if the shard is locked: those are checked
    /// where they run, and the transaction as a whole is checked at EXEC.
    fn look(&self) -> Option<Presence> {
        let (_, args) = self
            .request
            .filter(|(command, _)| self.session.is_queueing(command))?;
        let shard = args.keys().first()?.shard;
        let mut engine = self.session.service.shards.try_take(shard)?;
        let at = (self.session.db(), clock::now());
        Some(permit::presence(
            &mut [&mut engine],
            std::iter::once(args),
            at,
        ))
    }

    /// Returns a redirection to the primary, if the primary serves the request instead of this replica.
    #[cold]
    fn redirection_of_replica(&self, writes: bool) -> Option<CommandError> {
        let routing = self.session.connection.routing;
        let is_asked_here = routing.any(RoutingFlags::READS_HERE) && !writes;
        if !routing.any(RoutingFlags::TAKES_REDIRECTS)
            || is_asked_here
            || self.config.cluster_enabled != ClusterMode::No
        {
            return None;
        }
        let Upstream { host, port, .. } = self.session.service.server().replica().upstream()?;
        Some(CommandError::Elsewhere(format!("REDIRECT {host}:{port}")))
    }

    /// Returns whether the client is local, as far as protected commands require.
    fn peer(&self) -> ClientLocality {
        match self.session.connection.shared.is_local() {
            true => ClientLocality::Local,
            false => ClientLocality::Remote,
        }
    }
}

impl<const CHECKED: bool> World for SessionWorld<'_, CHECKED> {
    #[inline]
    fn config(&self) -> &Config {
        self.config
    }

    fn may_debug(&self) -> bool {
        self.config.enable_debug_command.allows(self.peer())
    }

    fn may_load_modules(&self) -> bool {
        self.config.enable_module_command.allows(self.peer())
    }

    #[inline]
    fn needs_auth(&self) -> bool {
        CHECKED
            && !self.session.connection.authenticated
            && !self
                .session
                .service
                .users
                .default()
                .user()
                .needs_no_password()
    }

    #[inline]
    fn denial(&mut self) -> Option<CommandError> {
        match (CHECKED, self.request) {
            (true, Some((command, args))) => self.session.denial(self.config, command, &args),
            _ => None,
        }
    }

    #[inline]
    fn redirection(&mut self, writes: bool) -> Option<CommandError> {
        match self.routed {
            Some((routes, permit)) if !routes.is_plain(permit.slot) => {
                self.redirection_of_slot(routes, permit, writes)
            }
            _ => None,
        }
    }

    #[inline]
    fn redirection_to_primary(&mut self, writes: bool) -> Option<CommandError> {
        match self.may_redirect {
            true => self.redirection_of_replica(writes),
            false => None,
        }
    }

    #[inline]
    fn is_subscribed(&self) -> bool {
        let connection = &self.session.connection;
        connection.protocol == Protocol::Resp2
            && connection.shared.mailbox().is_some()
            && connection.shared.subscriptions() > 0
    }

    #[inline]
    fn is_gated(&self) -> bool {
        let figures = &self.session.service.telemetry.persistence.loading;
        !figures.gate.is_open()
    }

    fn is_loading(&self) -> bool {
        let figures = &self.session.service.telemetry.persistence.loading;
        figures.is_loading.load(Relaxed) && !self.session.replays()
    }

    fn overload(&mut self, command: &Command) -> Option<CommandError> {
        let overload = &self.session.service.telemetry.overload;
        let is_refused = !self.session.has_run_before()
            && !self.is_exempt()
            && overload.is_refusing()
            && overload.refuses(command);
        is_refused.then(|| overload::TEXT.into())
    }

    #[inline]
    fn is_loading_aside(&self) -> bool {
        let figures = &self.session.service.telemetry.persistence.loading;
        figures.is_aside.load(Relaxed) && !self.session.replays()
    }

    #[inline]
    fn unsaved_text(&self) -> Option<&'static str> {
        let persistence = &self.session.service.telemetry.persistence;
        match self.is_exempt() {
            true => None,
            false => persistence.unsaved_text(self.config),
        }
    }

    #[inline]
    fn is_read_only_replica(&self) -> bool {
        let figures = &self.session.service.telemetry.replication;
        figures.refuses_writes(self.config) && !self.session.replays()
    }

    #[inline]
    fn is_stale(&self) -> bool {
        let figures = &self.session.service.telemetry.replication;
        figures.is_stale(self.config) && !self.session.replays()
    }

    /// A blocked request was already admitted.
    #[inline]
    fn is_exempt(&self) -> bool {
        self.session.replays() || self.session.blocked.is_some()
    }

    #[cold]
    fn lacks_replicas(&self) -> bool {
        let primary = self.session.service.server().primary();
        primary.lacks_replicas(self.config)
    }

    /// Commands queued by MULTI may become data, so their memory counts as data when further commands are
    /// queued, and at EXEC.
    fn out_of_memory(&mut self) -> Option<CommandError> {
        let budget = &self.session.service.budget;
        let is_full = budget.is_limited()
            && !self.session.replays()
            && budget.is_out_of_memory(self.session.queued_bytes());
        is_full.then_some(CommandError::OutOfMemory)
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
    #[inline]
    fn world<'s, const CHECKED: bool>(&'s self, config: &'s Config) -> SessionWorld<'s, CHECKED> {
        SessionWorld {
            session: self,
            config,
            request: None,
            routed: None,
            may_redirect: false,
        }
    }

    /// Returns, in a cluster, the permit of a request: its slot, its routing flags, and the version of the slot
    /// map that this batch uses. `None` without a cluster.
    #[inline]
    pub(super) fn permit(&self, turn: &Turn<'_>, request: Request<'_>) -> Option<Permit> {
        let routes = turn.routes.as_ref()?;
        Some(self.permit_for(routes, request.command, self.slot_of(turn, request)))
    }

    /// Returns the permit of a request whose slot is known.
    #[cold]
    pub(super) fn permit_for(
        &self,
        routes: &TurnRoutes,
        command: &Command,
        (slot, routing): (SlotOf, RoutingFlags),
    ) -> Permit {
        let connection = self.connection.routing;
        let routing = routing.or(permit::routing_of(command, connection));
        let routing = match command.flags.has(Flags::WRITE) {
            true => routing.or(RoutingFlags::WRITES),
            false => routing,
        };
        Permit::new(routes.map, &routes.then, slot, routing)
    }

    /// Returns the slot of a request's keys (for EXEC, of the keys of all queued commands), and its routing
    /// flags.
    fn slot_of(&self, turn: &Turn<'_>, request: Request<'_>) -> (SlotOf, RoutingFlags) {
        match &self.pending {
            Some(pending) if is_exec(request.command) => pending.transaction().slot(),
            _ => self.script_slot(turn, request),
        }
    }

    /// Returns the slot of a request's keys, and routing flags. The flags tell whether a script declares
    /// writes, if the script's slot is not served unconditionally.
    #[inline]
    pub(super) fn script_slot(
        &self,
        turn: &Turn<'_>,
        request: Request<'_>,
    ) -> (SlotOf, RoutingFlags) {
        let slot = request.plan.slot;
        let writes = match &turn.routes {
            Some(routes) if request.plan.route == Route::Script && !routes.then.is_plain(slot) => {
                let args = turn.batch.args(request.plan);
                script::declared(request.command, &args, &self.service.scripts)
                    .is_some_and(|flags| flags.has(Flags::WRITE))
            }
            _ => false,
        };
        (
            slot,
            RoutingFlags::default().put(RoutingFlags::WRITES, writes),
        )
    }

    /// Applies ASKING to the next command, or to the next transaction with all its queued commands.
    #[cold]
    fn follow_asking(&mut self, command: &Command) {
        let routing = self.connection.routing;
        let asks = routing.any(RoutingFlags::WILL_ASK);
        let stays = match command.run {
            Run::Transaction(TransactionVerb::Multi) => true,
            Run::Transaction(_) => false,
            _ => self.is_open(),
        };
        let stays = asks && stays;
        let routing = routing
            .put(RoutingFlags::ASKS, asks)
            .put(RoutingFlags::WILL_ASK, stays);
        self.connection.routing = routing;
    }

    /// Returns why the user's ACL rules deny a command, if they do. A denial is logged.
    #[cold]
    fn denial(
        &self,
        config: &Config,
        command: &'static Command,
        args: &Args<'_>,
    ) -> Option<CommandError> {
        let asker = Asker {
            client: &self.connection.shared,
            server: self.service.server(),
            config,
            place: match self.is_open() {
                true => AclLogContext::Multi,
                false => AclLogContext::TopLevel,
            },
            db: self.db(),
            now_ms: clock::unix_ms(),
        };
        let shared = asker.client;
        shared.last_command.store(command.id() as u16, Relaxed);
        check::refusal(asker, command, args, |refused, user| {
            check::request_text(refused, user, command, args)
        })
        .map(CommandError::from)
    }

    /// Returns the request if it may run; otherwise the refusal is written and counted.
    #[inline]
    pub(super) fn admit<'p>(&mut self, turn: &mut Turn<'_>, plan: &'p Plan) -> Option<Request<'p>> {
        let known = plan.command.filter(|_| plan.route != Route::Refused);
        let Some(command) = known else {
            let error = unfit(plan.command, &turn.batch.args(plan));
            self.refuse(turn, plan, &error);
            return None;
        };
        let request = Request { plan, command };
        let judged = if self.replays() {
            Ok(())
        } else if self.connection.shared.is_checked() && !self.is_plainly_allowed(turn, request) {
            if self.connection.routing.any(ASKING) {
                self.follow_asking(command);
            }
            self.judge::<true>(turn, request)
        } else if !plan.is_plain || self.pending.is_some() || !self.is_at_home(turn, plan) {
            self.judge_special(turn, request)
        } else {
            let world = &mut self.world::<false>(turn.config);
            admission::judge(world, command, Stage::REQUEST)
        };
        match judged {
            Ok(()) => Some(request),
            Err(error) => {
                self.refuse(turn, plan, &error);
                None
            }
        }
    }

    /// Returns whether this server certainly serves the request's keys, so that slots need no further check.
    /// Without a cluster this is always so, unless the client accepts redirections to the primary.
    #[inline]
    fn is_at_home(&self, turn: &Turn<'_>, plan: &Plan) -> bool {
        match &turn.routes {
            None => !self.connection.routing.any(RoutingFlags::TAKES_REDIRECTS),
            Some(routes) => !self.connection.routing.any(ASKING) && routes.then.is_plain(plan.slot),
        }
    }

    /// Returns whether the client's user is certainly allowed to run a request, so that no further rules need checking.
    #[inline]
    fn is_plainly_allowed(&self, turn: &Turn<'_>, request: Request<'_>) -> bool {
        let Some(handle) = &self.connection.user else {
            return false;
        };
        let args = turn.batch.args(request.plan);
        matches!(request.plan.route, Route::Shard(_))
            && self.connection.authenticated
            && check::is_plainly_allowed(&handle.peek(), request.command, &args)
    }

    /// Refuses a blocked request that its user may no longer run when it is about to be served.
    #[cold]
    pub(super) fn refuse_served(&mut self, turn: &mut Turn<'_>, request: Request<'_>) {
        self.waited = None;
        let denial = {
            let args = turn.batch.args(request.plan);
            self.denial(turn.config, request.command, &args)
        };
        let denial = denial.unwrap_or_else(|| "NOPERM No permissions".into());
        self.refuse(turn, request.plan, &denial);
    }

    /// Decides whether a request may run, if that depends on more than the command's flags.
    #[inline(never)]
    fn judge_special(&mut self, turn: &Turn<'_>, request: Request<'_>) -> Result<(), CommandError> {
        if self.connection.routing.any(ASKING) {
            self.follow_asking(request.command);
        }
        if request.plan.route == Route::Session || self.pending.is_some() {
            return self.judge::<false>(turn, request);
        }
        let mut world = self.routed_world::<false>(turn, request);
        admission::judge(&mut world, request.command, Stage::REQUEST)
    }

    /// Decides whether a request may run that is queued by MULTI, runs on no shard, or comes from a client with
    /// restricted permissions.
    #[inline(never)]
    fn judge<const CHECKED: bool>(
        &self,
        turn: &Turn<'_>,
        request: Request<'_>,
    ) -> Result<(), CommandError> {
        let stage = match request.plan.route {
            _ if self.is_queueing(request.command) => Stage::REQUEST.or(Stage::QUEUED),
            Route::Session => Stage::REQUEST.or(Stage::SHARDLESS),
            _ => Stage::REQUEST,
        };
        let args = turn.batch.args(request.plan);
        let candidate = Candidate::from(request.command);
        let candidate = match script::declared(request.command, &args, &self.service.scripts) {
            Some(flags) => candidate.declaring(flags),
            None => candidate,
        };
        let mut world = self.routed_world::<CHECKED>(turn, request);
        world.request = Some((request.command, args));
        admission::judge(&mut world, candidate, stage)
    }

    /// Returns the rules' view of a request that may be redirected, in a cluster or to the primary.
    fn routed_world<'s, const CHECKED: bool>(
        &'s self,
        turn: &'s Turn<'_>,
        request: Request<'_>,
    ) -> SessionWorld<'s, CHECKED> {
        let routes = turn.routes.as_ref().map(|routes| &*routes.then);
        SessionWorld {
            routed: routes
                .zip(self.permit(turn, request))
                .map(|(routes, permit)| (&**routes, permit)),
            may_redirect: true,
            ..self.world(turn.config)
        }
    }

    /// Decides whether the command inside a note (a message of a slot migration) that arrived over a client's
    /// connection may run.
    pub(super) fn judge_note(
        &self,
        turn: &Turn<'_>,
        request: Request<'_>,
    ) -> Result<(), CommandError> {
        match self.replays() {
            true => Ok(()),
            false => self.judge::<true>(turn, request),
        }
    }

    /// Decides at EXEC whether the queued commands may run.
    pub(super) fn judge_transaction(
        &self,
        config: &Config,
        queued: Candidate<'_>,
    ) -> Result<(), CommandError> {
        admission::judge(&mut self.world::<false>(config), queued, Stage::EXEC)
    }

    #[cold]
    fn refuse(&mut self, turn: &mut Turn<'_>, plan: &Plan, error: &CommandError) {
        turn.release();
        self.spoil_transaction();
        let named = plan.command.map_or(u16::MAX, |command| command.id() as u16);
        self.connection.shared.last_command.store(named, Relaxed);
        let mark = turn.batch.out.position();
        let args = turn.batch.args(plan);
        if plan.command.is_none() && (args.is(0, "post") || args.is(0, "host:")) {
            // A browser may have been lured into sending an HTTP request here: the lines that follow must not
            // be run.
            log::warn_seldom(
                "cross-protocol",
                format_args!(
                    "Possible SECURITY ATTACK detected. It looks like somebody is sending POST or Host: commands, \
                     which a browser does and a Redis client does not. Connection from {} aborted.",
                    self.connection.shared.address
                ),
            );
            self.must_close = true;
            return;
        }
        if let Some(command) = plan.command {
            counters::local().command(command).rejected.add(1);
        }
        // Also if no transaction is open: after a failed EXEC, no keys are watched any more.
        let mut text = error.text().as_bytes().to_vec();
        if plan.command.is_some_and(is_exec) {
            self.discard();
            if !matches!(error, CommandError::Elsewhere(_)) {
                text = exec_abort(&text);
            }
        }
        turn.batch.out.error(&text);
        if self.replays() {
            self.replay_failed(turn, plan.command, mark);
        }
        errors::note(turn.batch.out.since(mark));
        self.hands_off(turn, mark);
        self.apply_reply_mode(&mut turn.batch.out, mark);
        self.end_caching(plan.command);
    }
}

/// Returns the error of a request that names no command, or has the wrong number of arguments.
#[cold]
fn unfit(command: Option<&Command>, args: &Args<'_>) -> CommandError {
    let text = match command {
        None => error::unknown_command(args),
        Some(command) if !command.children().is_empty() && args.len() > 1 => {
            error::unknown_subcommand(args, command.name)
        }
        Some(command) => {
            let error = CommandError::Arity(command.full_name);
            let text = command.error_text(&error).as_bytes().to_vec();
            return CommandError::Text(text.into());
        }
    };
    CommandError::Text(text.into())
}
