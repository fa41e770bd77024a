//! Whether a request may run: the rules of [`admission`], and what happens to a request that is refused.

use std::sync::atomic::Ordering::Relaxed;

use super::Session;
use super::batch::{Admitted, Plan, Route};
use super::turn::{Turn, TurnRoutes};
use crate::script;
use crate::shard::slots::{self, Scene, SlotPass};
use crate::telemetry::{clock, counters, errors, log};
use basalt_commands::cluster::route::{self, Manner, SlotOf, Verdict};
use basalt_commands::command::Args;
use basalt_commands::command::acl::check::{self, Asker, Place};
use basalt_commands::command::admission::{self, Candidate, Facts, Stage};
use basalt_commands::command::declaration::{Command, Flags, Run, TransactionVerb};
use basalt_commands::command::error::{self, CommandError};
use basalt_commands::command::host::cluster::{Routes, when_down};
use basalt_commands::command::host::replica::Upstream;
use basalt_commands::command::transaction::{exec_abort, is_exec};
use basalt_commands::config::Config;
use basalt_commands::config::live::Peer;
use basalt_commands::config::values::ClusterMode;
use basalt_core::resp::reply::Protocol;

/// What ASKING leaves, until it is used.
const ASKING: Manner = Manner::ASKS.or(Manner::WILL_ASK);

/// What the rules look at: a session under a configuration. `CHECKED`: it may be refused what a client who may do
/// everything is not (`client::Shared::is_checked`).
struct Asking<'s, const CHECKED: bool> {
    session: &'s Session,
    config: &'s Config,
    /// The request, where more is looked at than its command.
    request: Option<(&'static Command, Args<'s>)>,
    /// In a cluster: whose the slots are, the slot of the request, and how it comes.
    routed: Option<(&'s Routes, SlotOf, Manner)>,
    /// The client may take redirections to the primary, so that it is looked for one.
    may_redirect: bool,
    /// Why the client's user may not run it, or where it has to go.
    reason: Option<Box<CommandError>>,
}

impl<const CHECKED: bool> Asking<'_, CHECKED> {
    /// Whether a request is not for this node whose slot needs questions.
    #[cold]
    fn decide(&mut self, writes: bool) -> bool {
        if let Some((routes, slot, manner)) = self.routed {
            let manner = match writes {
                true => manner.or(Manner::WRITES),
                false => manner,
            };
            let verdict = match routes.decide(slot, manner, self.config) {
                Verdict::Look => self.look(routes, slot, manner),
                verdict => verdict,
            };
            if let Verdict::Refuse(refusal) = verdict {
                let text = routes.refusal_text(refusal, manner, self.config);
                self.reason = Some(Box::new(CommandError::Elsewhere(text)));
            }
        }
        self.reason.is_some()
    }

    /// Looks for the keys of a command that a transaction queues, so that it is refused as early as Redis does. What is
    /// not queued is looked at where it runs, and so is the transaction as a whole: a shard that is held is passed
    /// over.
    fn look(&self, routes: &Routes, slot: SlotOf, manner: Manner) -> Verdict {
        let queued = self
            .request
            .filter(|(command, _)| self.session.is_queueing(command));
        let Some((_, args)) = queued else {
            return Verdict::Look;
        };
        let shard = args.keys().first().map(|key| key.shard);
        let held = shard.and_then(|shard| self.session.service.shards.try_take(shard));
        let Some(mut engine) = held else {
            return Verdict::Look;
        };
        let scene = Scene {
            config: self.config,
            now: clock::now(),
            db: self.session.db(),
        };
        let found = slots::presence(&mut [&mut engine], std::iter::once(args), scene);
        let when_down = when_down(self.config);
        route::decide(&routes.map, slot, manner, when_down, Some(found))
    }
}

impl<const CHECKED: bool> Asking<'_, CHECKED> {
    /// Whether the client goes to the primary instead, which serves what it asks for.
    #[cold]
    fn redirect(&mut self, writes: bool) -> bool {
        let manner = Manner(self.session.connection.manner);
        let is_asked_here = manner.any(Manner::READS_HERE) && !writes;
        if manner.any(Manner::TAKES_REDIRECTS)
            && !is_asked_here
            && self.config.cluster_enabled == ClusterMode::No
            && let Some(Upstream { host, port, .. }) =
                self.session.service.server().replica().upstream()
        {
            let text = format!("REDIRECT {host}:{port}");
            self.reason = Some(Box::new(CommandError::Elsewhere(text)));
        }
        self.reason.is_some()
    }

    fn why(&self) -> CommandError {
        let reason = self.reason.as_deref();
        reason.cloned().expect("the request was looked at")
    }

    /// Where the client is, as far as protected commands ask.
    fn peer(&self) -> Peer {
        match self.session.connection.shared.is_local() {
            true => Peer::Local,
            false => Peer::Remote,
        }
    }
}

impl<const CHECKED: bool> Facts for Asking<'_, CHECKED> {
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
    fn is_denied(&mut self) -> bool {
        if let (true, Some((command, args))) = (CHECKED, self.request) {
            let denial = self.session.denial(self.config, command, &args);
            self.reason = denial.map(Box::new);
        }
        self.reason.is_some()
    }

    #[cold]
    fn denial(&self) -> CommandError {
        self.why()
    }

    #[inline]
    fn is_elsewhere(&mut self, writes: bool) -> bool {
        match &self.routed {
            Some((routes, slot, _)) if !routes.is_plain(*slot) => self.decide(writes),
            _ => false,
        }
    }

    #[inline]
    fn is_for_primary(&mut self, writes: bool) -> bool {
        self.may_redirect && self.redirect(writes)
    }

    #[cold]
    fn redirection(&self) -> CommandError {
        self.why()
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
        figures.is_loading.load(Relaxed) && !self.session.replays()
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

    /// What waits already was admitted once.
    #[inline]
    fn is_exempt(&self) -> bool {
        self.session.replays() || self.session.blocked.is_some()
    }

    #[cold]
    fn lacks_replicas(&self) -> bool {
        let primary = self.session.service.server().primary();
        primary.lacks_replicas(self.config)
    }

    /// What a transaction has queued will be data, so it counts as that when more is queued, and at EXEC.
    fn is_out_of_memory(&mut self) -> bool {
        let budget = &self.session.service.budget;
        budget.is_limited()
            && !self.session.replays()
            && budget.is_out_of_memory(self.session.queued_bytes())
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
    fn asking<'s, const CHECKED: bool>(&'s self, config: &'s Config) -> Asking<'s, CHECKED> {
        Asking {
            session: self,
            config,
            request: None,
            routed: None,
            may_redirect: false,
            reason: None,
        }
    }

    /// In a cluster: whose the slots are, the slot of a request, and how it comes. EXEC is for what it runs.
    #[inline]
    fn routed<'r>(
        &self,
        turn: &'r Turn<'_>,
        request: Admitted<'_>,
    ) -> Option<(&'r Routes, SlotOf, Manner)> {
        let routes = &turn.routes.as_ref()?.then;
        let (slot, manner) = match &self.pending {
            Some(pending) if is_exec(request.command) => pending.transaction().slot(),
            _ => self.script_slot(turn, request),
        };
        Some((routes, slot, manner.or(self.manner(request.command))))
    }

    /// How a command of this client comes.
    #[inline]
    pub(super) fn manner(&self, command: &Command) -> Manner {
        let manner = Manner(self.connection.manner);
        slots::manner_of(command, manner)
    }

    /// How a request was admitted that names keys, in a cluster.
    #[inline]
    pub(super) fn pass_of(&self, turn: &Turn<'_>, request: Admitted<'_>) -> Option<SlotPass> {
        self.pass(turn.routes.as_ref()?, request)
    }

    /// As [`Session::pass_of`], by the map of these routes.
    #[cold]
    pub(super) fn pass(&self, routes: &TurnRoutes, request: Admitted<'_>) -> Option<SlotPass> {
        let slot = request.plan.slot;
        if slot.is_none() {
            return None;
        }
        let writes = request.command.flags.has(Flags::WRITE);
        let manner = self.manner(request.command);
        let manner = match writes {
            true => manner.or(Manner::WRITES),
            false => manner,
        };
        Some(SlotPass::new(routes.map, &routes.then, slot, manner))
    }

    /// The slot of the keys of a request, and for a script whether it says that it writes, where that matters.
    #[inline]
    pub(super) fn script_slot(&self, turn: &Turn<'_>, request: Admitted<'_>) -> (SlotOf, Manner) {
        let slot = request.plan.slot;
        let writes = match &turn.routes {
            Some(routes) if request.plan.route == Route::Script && !routes.then.is_plain(slot) => {
                let args = turn.batch.args(request.plan);
                script::declared(request.command, &args, &self.service.scripts)
                    .is_some_and(|flags| flags.has(Flags::WRITE))
            }
            _ => false,
        };
        (slot, Manner::default().put(Manner::WRITES, writes))
    }

    /// How a unit was admitted, in a cluster, whose keys are in this slot.
    pub(super) fn unit_pass(
        &self,
        turn: &Turn<'_>,
        (slot, manner): (SlotOf, Manner),
    ) -> Option<SlotPass> {
        let routes = turn.routes.as_ref()?;
        let manner = manner.or(Manner(self.connection.manner));
        Some(SlotPass::new(routes.map, &routes.then, slot, manner))
    }

    /// ASKING holds for the next command, or for the next transaction with all that is queued in it.
    #[cold]
    fn follow_asking(&mut self, command: &Command) {
        let manner = Manner(self.connection.manner);
        let asks = manner.any(Manner::WILL_ASK);
        let stays = match command.run {
            Run::Transaction(TransactionVerb::Multi) => true,
            Run::Transaction(_) => false,
            _ => self.is_open(),
        };
        let stays = asks && stays;
        let manner = manner.put(Manner::ASKS, asks).put(Manner::WILL_ASK, stays);
        self.connection.manner = manner.0;
    }

    /// Why the rules of the client's user do not let it run a command, if they do not. That is noted.
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
                true => Place::Multi,
                false => Place::TopLevel,
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

    /// The request if it may run; otherwise the refusal is written and counted.
    #[inline]
    pub(super) fn admit<'p>(
        &mut self,
        turn: &mut Turn<'_>,
        plan: &'p Plan,
    ) -> Option<Admitted<'p>> {
        let known = plan.command.filter(|_| plan.route != Route::Refused);
        let Some(command) = known else {
            let error = unfit(plan.command, &turn.batch.args(plan));
            self.refuse(turn, plan, &error);
            return None;
        };
        let request = Admitted { plan, command };
        let error = if self.replays() {
            None
        } else if self.connection.shared.is_checked() && !self.is_plainly_allowed(turn, request) {
            if Manner(self.connection.manner).any(ASKING) {
                self.follow_asking(command);
            }
            self.refusal::<true>(turn, request)
        } else if !plan.is_plain || self.pending.is_some() || !self.is_at_home(turn, plan) {
            self.refusal_of_special(turn, request)
        } else {
            let facts = &mut self.asking::<false>(turn.config);
            admission::refusal(facts, command, Stage::REQUEST)
        };
        match error {
            None => Some(request),
            Some(error) => {
                self.refuse(turn, plan, &error);
                None
            }
        }
    }

    /// Whether a request's keys, if it has any, are this server's without further questions: always without a cluster,
    /// unless the client would go to the primary.
    #[inline]
    fn is_at_home(&self, turn: &Turn<'_>, plan: &Plan) -> bool {
        match &turn.routes {
            None => !Manner(self.connection.manner).any(Manner::TAKES_REDIRECTS),
            Some(routes) => {
                !Manner(self.connection.manner).any(ASKING) && routes.then.is_plain(plan.slot)
            }
        }
    }

    /// Whether the client's user may run a request for certain, so that nothing else is to be asked for its rules.
    #[inline]
    fn is_plainly_allowed(&self, turn: &Turn<'_>, request: Admitted<'_>) -> bool {
        let Some(handle) = &self.connection.user else {
            return false;
        };
        let args = turn.batch.args(request.plan);
        matches!(request.plan.route, Route::Shard(_))
            && self.connection.authenticated
            && check::is_plainly_allowed(&handle.peek(), request.command, &args)
    }

    /// Refuses a request that waited, and that its user may no longer run.
    #[cold]
    pub(super) fn refuse_served(&mut self, turn: &mut Turn<'_>, request: Admitted<'_>) {
        self.waited = None;
        let denial = {
            let args = turn.batch.args(request.plan);
            self.denial(turn.config, request.command, &args)
        };
        let denial = denial.unwrap_or_else(|| "NOPERM No permissions".into());
        self.refuse(turn, request.plan, &denial);
    }

    /// Why a request is not admitted, if it is not, where more is to be looked at than its command.
    #[inline(never)]
    fn refusal_of_special(
        &mut self,
        turn: &Turn<'_>,
        request: Admitted<'_>,
    ) -> Option<CommandError> {
        if Manner(self.connection.manner).any(ASKING) {
            self.follow_asking(request.command);
        }
        if request.plan.route == Route::Session || self.pending.is_some() {
            return self.refusal::<false>(turn, request);
        }
        let mut facts = self.asking::<false>(turn.config);
        facts.routed = self.routed(turn, request);
        facts.may_redirect = true;
        admission::refusal(&mut facts, request.command, Stage::REQUEST)
    }

    /// Why a request that is queued, or runs on no shard, or whose client is checked, is not admitted, if it is not.
    #[inline(never)]
    fn refusal<const CHECKED: bool>(
        &self,
        turn: &Turn<'_>,
        request: Admitted<'_>,
    ) -> Option<CommandError> {
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
        let mut facts = self.asking::<CHECKED>(turn.config);
        facts.request = Some((request.command, args));
        facts.routed = self.routed(turn, request);
        facts.may_redirect = true;
        admission::refusal(&mut facts, candidate, stage)
    }

    /// Why the command of a note is not admitted that came over a client's connection, if it is not.
    pub(super) fn refusal_of_note(
        &self,
        turn: &Turn<'_>,
        request: Admitted<'_>,
    ) -> Option<CommandError> {
        match self.replays() {
            true => None,
            false => self.refusal::<true>(turn, request),
        }
    }

    /// Why what is queued is not admitted at EXEC, if it is not.
    pub(super) fn refuses_transaction(
        &self,
        config: &Config,
        queued: Candidate<'_>,
    ) -> Option<Vec<u8>> {
        let error = admission::refusal(&mut self.asking::<false>(config), queued, Stage::EXEC)?;
        Some(bytes_of(&error))
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
        let mut text = bytes_of(error);
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
        self.apply_reply_mode(&mut turn.batch.out, mark);
        self.end_caching(plan.command);
    }
}

/// What is wrong with a request that names no command, or has the wrong number of arguments.
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

fn bytes_of(error: &CommandError) -> Vec<u8> {
    error.text().as_bytes().to_vec()
}
