//! What scripts run on: the shards in hand, and the connection that asked.
//!
//! Every command that a script calls gets the shards of its keys from the [`Attempt`] that runs the unit.

use std::cell::Cell;

use super::attempt::Attempt;
use super::transaction::{Aftermath, Stage, run_step};
use crate::command::args::RoutedKey;
use crate::command::context::Server;
use crate::command::declaration::{Command, Flags, Run, ScriptVerb};
use crate::command::keys;
use crate::command::{Args, Out};
use crate::config::Config;
use crate::resp::request::NOTHING_BESIDE;
use crate::script::host::{Call, Host, Interrupted};
use crate::telemetry::counters::Spent;

/// A command that a script called, for those who look on.
pub struct ScriptCall {
    /// Which command of the unit the script is.
    pub step: usize,
    /// The database.
    pub db: usize,
    /// What was called.
    pub arguments: Vec<Vec<u8>>,
}

thread_local! {
    /// Room for the keys of a call.
    static SPARE: Cell<Vec<RoutedKey>> = const { Cell::new(Vec::new()) };
}

/// Declared keys among which those of a call are looked for.
const DECLARED_MAX: usize = 4;

/// See the module.
struct OnShards<'a, 'r, 'h, 's> {
    attempt: &'a mut Attempt<'r, 'h>,
    stage: &'a mut Stage<'s>,
    aftermath: &'a mut Aftermath,
    /// What the script was given: its keys are routed already.
    given: Args<'a>,
    keys: Vec<RoutedKey>,
    /// How many keys may have been added to.
    growing_calls: usize,
    is_monitored: bool,
}

/// Runs a script as one command of a unit; true when it answered with an error.
pub(super) fn run(
    (command, verb): (&'static Command, ScriptVerb),
    args: &Args<'_>,
    attempt: &mut Attempt<'_, '_>,
    stage: &mut Stage<'_>,
    out: &mut Out,
    aftermath: &mut Aftermath,
) -> bool {
    let (db, mark) = (stage.connection.db, out.position());
    let scripts = stage.scripts;
    let mut host = OnShards {
        is_monitored: stage.server.pubsub().is_monitored(),
        attempt,
        stage,
        aftermath,
        given: *args,
        keys: SPARE.take(),
        growing_calls: 0,
    };
    host.stage.connection.is_in_script = true;
    host.attempt.begin_script(command, args);
    let ended = crate::script::run(verb, args, &mut host, scripts, out);
    host.attempt.end_script();
    SPARE.set(std::mem::take(&mut host.keys));
    let (paid_keys, now) = (host.growing_calls, host.stage.now);
    if paid_keys > 0 && !host.attempt.is_stopped() {
        host.attempt.with_engines(|engines| {
            engines
                .iter_mut()
                .for_each(|engine| engine.pay(now, paid_keys))
        });
    }
    // SELECT is the script's own affair.
    stage.connection.db = db;
    stage.connection.is_in_script = false;
    if ended.failed && !ended.is_counted {
        aftermath.seldom().errors.push(out.since(mark).to_vec());
    }
    ended.failed
}

/// Keeps a call for those who look on.
#[cold]
fn show(aftermath: &mut Aftermath, db: usize, args: &Args<'_>) {
    let step = aftermath.step;
    aftermath.seldom().script_calls.push(ScriptCall {
        step,
        db,
        arguments: args.to_vec(),
    });
}

impl OnShards<'_, '_, '_, '_> {
    /// A script wants to know now how many will get a message that goes out later.
    #[cold]
    fn tell_receivers(&mut self, published: usize, out: &mut Out) {
        for publication in &mut self.aftermath.publications.kept[published..] {
            if let Some(mark) = publication.reply.take() {
                let pubsub = self.stage.server.pubsub();
                let receivers = pubsub.receivers_of(&publication.message);
                out.close_integer(mark, receivers);
            }
        }
    }

    /// Finds the keys of a call, and for each the position of its shard among the shards of all of them.
    fn route(&mut self, call: &Call<'_>) {
        let (keys, router, given) = (&mut self.keys, self.attempt.router(), &self.given);
        keys.clear();
        let argument = |at: usize| call.spans[at].bytes(call.data, &NOTHING_BESIDE);
        // A count of keys that is wrong leaves the command without keys; its handler says what is wrong.
        let _ = keys::positions(call.command, call.spans.len(), argument, |at, _| {
            let name = argument(at);
            let mut declared = given.keys().iter().take(DECLARED_MAX);
            let (hash, shard) = match declared.find(|key| given.key_of(key).bytes == name) {
                Some(key) => (key.hash, key.shard),
                None => router.route(name),
            };
            keys.push(RoutedKey {
                hash,
                argument: at as u32,
                shard,
                hand: 0,
            });
        });
        if call.command.needs_all_shards(&call.args()) {
            keys.iter_mut().for_each(|key| key.hand = key.shard);
        } else if keys.len() > 1 {
            let mut shards: Vec<u16> = keys.iter().map(|key| key.shard).collect();
            shards.sort_unstable();
            shards.dedup();
            for key in keys {
                key.hand = shards.partition_point(|shard| *shard < key.shard) as u16;
            }
        }
    }
}

impl Host for OnShards<'_, '_, '_, '_> {
    fn call(&mut self, call: &Call<'_>, out: &mut Out) -> Result<(), Interrupted> {
        if matches!(call.command.run, Run::Keys(_)) {
            self.route(call);
        } else {
            self.keys.clear();
        }
        let args = Args::in_buffer(call.data, call.spans, &self.keys);
        let is_shown =
            self.is_monitored && !call.command.flags.any(Flags::ADMIN.or(Flags::SKIP_MONITOR));
        if is_shown {
            show(self.aftermath, self.stage.connection.db, &args);
        }
        let db = self.stage.connection.db;
        let config = self.stage.config();
        self.attempt.prepare(call.command, &args, db, config)?;
        if call.command.flags.has(Flags::DENYOOM) {
            self.growing_calls += self.keys.len();
        }
        let mark = out.position();
        let published = self.aftermath.publications.kept.len();
        let (stage, aftermath) = (&mut *self.stage, &mut *self.aftermath);
        aftermath.may_leave = self.attempt.may_leave();
        let failed = self
            .attempt
            .with_engines(|engines| run_step(call.command, &args, engines, stage, out, aftermath));
        if aftermath.leaves {
            return Err(self.attempt.leave());
        }
        // What chooses a database is shown in the one that it chose.
        if is_shown && let Some(shown) = self.aftermath.seldom().script_calls.last_mut() {
            shown.db = self.stage.connection.db;
        }
        if self.aftermath.publications.kept.len() > published {
            self.tell_receivers(published, out);
        }
        if failed {
            let text = out.since(mark).to_vec();
            self.aftermath.seldom().errors.push(text);
        }
        let duration_ns = self.attempt.read_clock_ns();
        let spent = Spent {
            duration_ns,
            failed,
        };
        self.aftermath.tally.ran(call.command, spent);
        Ok(())
    }

    fn tick(&mut self) -> Result<(), Interrupted> {
        self.attempt.tick(self.stage.config())
    }

    fn has_room(&mut self) -> bool {
        // As in Redis it counts what held when the transaction began.
        self.attempt.has_room(self.stage.now, self.stage.config)
    }

    fn note_refused(&mut self, command: Option<&'static Command>, text: &[u8]) {
        if let Some(command) = command {
            self.aftermath.tally.rejected(command);
        }
        self.aftermath.seldom().errors.push(text.to_vec());
    }

    fn server(&self) -> &dyn Server {
        self.stage.server
    }

    fn config(&self) -> &Config {
        self.stage.config()
    }

    fn db(&self) -> usize {
        self.stage.connection.db
    }
}
