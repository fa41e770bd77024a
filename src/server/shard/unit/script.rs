//! One script of a unit: it runs with locked shards, on behalf of the requesting connection.
//!
//! Every command that a script calls gets the shards of its keys from the [`ExecutionUnit`] that runs the unit.

use std::sync::Arc;

use smallvec::SmallVec;

use super::context::{ScriptCall, UnitContext, UnitOutcome};
use super::{ExecutionUnit, step};
use crate::script::host::{Call, Host, Interrupted};
use crate::shard::permit::{self, Permit, routing_of};
use crate::shard::route;
use crate::telemetry::counters::Spent;
use basalt_commands::cluster::route::{Presence, Refusal, RoutingFlags, SlotOf};
use basalt_commands::command::acl::check::{self, AclDenial, AclLogContext, Asker, User};
use basalt_commands::command::args::RoutedKey;
use basalt_commands::command::declaration::{Command, Flags, Run, ScriptVerb};
use basalt_commands::command::host::Server;
use basalt_commands::command::host::cluster::Routes;
use basalt_commands::command::keys;
use basalt_commands::command::{Args, Out};
use basalt_commands::config::Config;
use basalt_core::resp::request::NOTHING_BESIDE;
use basalt_engine::evict::Full;
use basalt_engine::record::{self, Audience};

/// If a script declares at most this number of keys, the keys of its calls are compared with them, to reuse
/// their hashes.
const DECLARED_MAX: usize = 4;

/// Host of a script in a unit; see the module.
struct UnitHost<'a, 'r, 'h, 's> {
    unit: &'a mut ExecutionUnit<'r, 'h>,
    cx: &'a mut UnitContext<'s>,
    outcome: &'a mut UnitOutcome,
    /// The script's arguments, with its declared keys already hashed.
    given: Args<'a>,
    /// Keys of the current call.
    keys: SmallVec<[RoutedKey; 4]>,
    /// Number of keys to which the script's calls may have added data.
    growing_calls: usize,
    is_monitored: bool,
    slots: Option<CallSlots>,
}

/// The slots that a script may use in a cluster.
struct CallSlots {
    routes: Arc<Routes>,
    /// The slot of its declared keys.
    declared: SlotOf,
    /// The slot that all the script's keys must be in, once the first key is known.
    common_slot: SlotOf,
    /// The slot of the current call's keys.
    called: SlotOf,
    may_cross: bool,
    routing: RoutingFlags,
}

impl CallSlots {
    /// Returns the error if this node refuses a call because of the slots of its keys.
    #[cold]
    fn refusal(
        &mut self,
        command: &Command,
        config: &Config,
        look: impl FnOnce() -> Presence,
    ) -> Option<&'static str> {
        let routing =
            routing_of(command, self.routing).put(RoutingFlags::WRITES, command.is_write());
        match permit::judge(
            &self.routes,
            (self.called, routing),
            config,
            || Some(look()),
        ) {
            Err(Refusal::DownForWrites) => Some(
                "ERR Script attempted to execute a write command while the cluster is down and readonly",
            ),
            Err(Refusal::Down) => {
                Some("ERR Script attempted to execute a command while the cluster is down")
            }
            Err(_) => Some("ERR Script attempted to access a non local key in a cluster node"),
            Ok(()) if self.may_cross => None,
            Ok(()) if self.common_slot.with(self.called).is_cross() => {
                Some("ERR Script attempted to access keys that do not hash to the same slot")
            }
            Ok(()) => {
                self.common_slot = self.called;
                None
            }
        }
    }
}

/// Runs a script as one command of a unit; returns true if it replied with an error.
pub(super) fn run(
    (command, verb): (&'static Command, ScriptVerb),
    args: &Args<'_>,
    unit: &mut ExecutionUnit<'_, '_>,
    cx: &mut UnitContext<'_>,
    out: &mut Out,
    outcome: &mut UnitOutcome,
) -> bool {
    let (db, mark) = (cx.connection.db, out.position());
    let fieldsets = cx.connection.fieldsets.take();
    let scripts = cx.scripts;
    let is_bound = |_: &Permit| !cx.connection.origin.replays();
    let slots = cx.permit.filter(is_bound).map(|permit| CallSlots {
        routes: permit.map.load_full(),
        declared: permit.slot,
        common_slot: permit.slot,
        called: SlotOf::NONE,
        may_cross: false,
        routing: permit.routing.put(RoutingFlags::WRITES, false),
    });
    let mut host = UnitHost {
        is_monitored: cx.server.pubsub().is_monitored(),
        unit,
        cx,
        outcome,
        given: *args,
        keys: SmallVec::new(),
        growing_calls: 0,
        slots,
    };
    host.cx.connection.is_in_script = true;
    let client = host.cx.connection.id();
    host.unit.begin_script(command, args, client);
    let ended = crate::script::run(verb, args, &mut host, scripts, out);
    host.unit.end_script();
    let (paid_keys, now) = (host.growing_calls, host.cx.now);
    if paid_keys > 0 && !host.unit.is_aborted() {
        let outcome = &mut *host.outcome;
        host.unit.with_engines(|engines| {
            if outcome.is_lone && engines.iter().any(|engine| engine.owes()) {
                // Append the script's records now, so that the evictions that follow are logged separately. A
                // lone script cannot be rolled back at this point.
                outcome.log_position = record::append(engines, &mut outcome.records, true);
            }
            engines
                .iter_mut()
                .for_each(|engine| engine.pay(now, paid_keys))
        });
    }
    // SELECT and HIMPORT PREPARE affect only the script itself.
    cx.connection.db = db;
    cx.connection.fieldsets = fieldsets;
    cx.connection.is_in_script = false;
    cx.connection.log_audience = Audience::BOTH;
    if ended.failed && !ended.is_counted {
        outcome.notes().errors.push(out.since(mark).to_vec());
    }
    ended.failed
}

/// Records a command that the script called, for MONITOR clients.
#[cold]
fn show(outcome: &mut UnitOutcome, db: usize, args: &Args<'_>) {
    let step = outcome.step;
    outcome.notes().script_calls.push(ScriptCall {
        step,
        db,
        arguments: args.to_vec(),
    });
}

impl UnitHost<'_, '_, '_, '_> {
    /// Determines the keys of a call, and for each key the index of its shard among the shards of all these
    /// keys.
    fn route(&mut self, call: &Call<'_>) {
        let (keys, router, given) = (&mut self.keys, self.unit.router(), &self.given);
        keys.clear();
        let mut called = SlotOf::NONE;
        let of_declared = self
            .slots
            .as_ref()
            .map_or(SlotOf::NONE, |slots| slots.declared);
        let argument = |at: usize| call.spans[at].bytes(call.data, &NOTHING_BESIDE);
        // An invalid key count leaves the command without keys; its handler reports the error.
        let _ = keys::positions(call.command, call.spans.len(), argument, |at, _| {
            let name = argument(at);
            let mut declared = given.keys().iter().take(DECLARED_MAX);
            keys.push(match declared.find(|key| given.key_of(key).bytes == name) {
                Some(key) => {
                    called = called.with(of_declared);
                    RoutedKey {
                        argument: at as u32,
                        engine_index: 0,
                        ..*key
                    }
                }
                None => {
                    let (key, slot) = router.routed_in_slot(at, name);
                    called = called.with(slot);
                    key
                }
            });
        });
        if let Some(slots) = &mut self.slots {
            slots.called = called;
        }
        if call.command.needs_all_shards(&call.args()) {
            keys.iter_mut().for_each(|key| key.engine_index = key.shard);
        } else if keys.len() > 1 {
            let shards = route::shards_of(keys);
            route::set_engine_indices(keys, &shards);
        }
    }
}

impl UnitHost<'_, '_, '_, '_> {
    /// Records the slot of the channels that a call names, in a cluster.
    #[inline]
    fn route_names(&mut self, call: &Call<'_>) {
        if let Some(slots) = &mut self.slots {
            let argument = |at: usize| call.spans[at].bytes(call.data, &NOTHING_BESIDE);
            slots.called = match matches!(call.command.run, Run::Session(_)) {
                true => permit::slot_of_names(call.command, call.spans.len(), argument),
                false => SlotOf::NONE,
            };
        }
    }
}

impl Host for UnitHost<'_, '_, '_, '_> {
    fn call(&mut self, call: &Call<'_>, out: &mut Out) -> Result<(), Interrupted> {
        if matches!(call.command.run, Run::Keys(_)) {
            self.route(call);
        } else {
            self.keys.clear();
            self.route_names(call);
        }
        let args = Args::in_buffer(call.data, call.spans, &self.keys);
        let is_shown =
            self.is_monitored && !call.command.flags.any(Flags::ADMIN.or(Flags::SKIP_MONITOR));
        if is_shown {
            show(self.outcome, self.cx.connection.db, &args);
        }
        let db = self.cx.connection.db;
        let config = self.cx.config();
        self.unit.prepare(call.command, &args, db, config)?;
        if let Some(slots) = &mut self.slots
            && !slots.called.is_none()
        {
            let (config, now) = (self.cx.config(), self.cx.now);
            let unit = &mut *self.unit;
            let each = std::iter::once(args);
            let look = || unit.with_engines(|engines| permit::presence(engines, each, (db, now)));
            if let Some(text) = slots.refusal(call.command, config, look) {
                out.error(text);
                self.note_refused(Some(call.command), text.as_bytes());
                return Ok(());
            }
        }
        if call.command.flags.has(Flags::DENYOOM) {
            self.growing_calls += self.keys.len();
        }
        let mark = out.position();
        let (cx, outcome) = (&mut *self.cx, &mut *self.outcome);
        outcome.may_offload = self.unit.may_offload();
        let mut engines = self.unit.engines();
        let failed = step::run(call.command, &args, &mut engines, cx, out, outcome);
        if outcome.offloads {
            return Err(self.unit.offload());
        }
        // MONITOR shows a command that selects a database in the selected database.
        if is_shown && let Some(shown) = self.outcome.notes().script_calls.last_mut() {
            shown.db = self.cx.connection.db;
        }
        if failed {
            let text = out.since(mark).to_vec();
            self.outcome.notes().errors.push(text);
        }
        let duration_ns = self.unit.read_clock_ns();
        let spent = Spent {
            duration_ns,
            failed,
        };
        self.outcome.note_call(call.command, &args, spent, self.cx);
        Ok(())
    }

    fn tick(&mut self) -> Result<(), Interrupted> {
        self.unit.tick(self.cx.config())
    }

    fn make_room(&mut self) -> Result<(), Full> {
        // As in Redis, the limits from the start of the transaction apply.
        let db = self.cx.connection.db;
        self.unit.make_room(db, self.cx.now, self.cx.config)
    }

    fn replays(&self) -> bool {
        self.cx.connection.origin.replays()
    }

    fn note_refused(&mut self, command: Option<&'static Command>, text: &[u8]) {
        if let Some(command) = command {
            self.outcome.tally.rejected(command);
        }
        self.outcome.notes().errors.push(text.to_vec());
    }

    #[inline]
    fn denial(&self, call: &Call<'_>, is_noted: bool) -> Option<String> {
        let client = &self.cx.connection.shared;
        if !client.is_checked() || self.replays() {
            return None;
        }
        let asker = Asker {
            client,
            server: self.cx.server,
            config: self.cx.config(),
            place: AclLogContext::Lua,
            db: self.cx.connection.db,
            now_ms: self.cx.now.unix_ms,
        };
        let args = call.args();
        let say = |refused: AclDenial, user: &User| refused.text(user, call.command, &args, false);
        match is_noted {
            true => check::refusal(asker, call.command, &args, say),
            false => check::refusal_unnoted(asker, call.command, &args).then(String::new),
        }
    }

    fn allow_cross_slot(&mut self) {
        if let Some(slots) = &mut self.slots {
            slots.may_cross = true;
        }
    }

    fn set_audience(&mut self, audience: Audience) {
        self.cx.connection.log_audience = audience;
    }

    fn server(&self) -> &dyn Server {
        self.cx.server
    }

    fn config(&self) -> &Config {
        self.cx.config()
    }

    fn db(&self) -> usize {
        self.cx.connection.db
    }
}
