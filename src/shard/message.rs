//! A command that met a held shard: it owns its bytes, waits in the shard's queue, and comes back with its reply.
//!
//! Whoever holds the shard runs it; a client that disconnects meanwhile loses only the reply.

use std::sync::Arc;
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use parking_lot::Mutex;

use super::attempt::Attempt;
use super::attempt::terms::Terms;
use super::attempt::threads::{Platform, Threads};
use super::blocking::Waiter;
use super::execute::{self, Outcome, Scene};
use super::migration::Errand;
use super::ownership::hands::Hands;
use super::ownership::parcel::Parcel;
use super::ownership::reach::{Departed, Reach};
use super::route::Router;
use super::transaction::{Aftermath, Stage, Transaction, Watched};
use super::{Shards, ownership};
use crate::client::connection::Connection;
use crate::client::registry::Shared;
use crate::command::context::{ClientView, Engines, Gather, Publications, Server, ShardPlace};
use crate::command::declaration::{Command, CommandResult, Run};
use crate::command::owned::OwnedArgs;
use crate::command::prepared::Prepared;
use crate::command::{Args, Out};
use crate::config::Config;
use crate::engine::{Deferred, Engine, Now};
use crate::telemetry::clock::{self, Ticks};

/// Where a finished message is put for the connection that waits for it.
#[derive(Default)]
pub struct Ticket {
    done: Mutex<Option<Box<Parcel<Message>>>>,
    waker: AtomicWaker,
}

impl Ticket {
    /// Ready with the message once it ran.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<Box<Parcel<Message>>> {
        if let Some(message) = self.done.lock().take() {
            return Poll::Ready(message);
        }
        self.waker.register(cx.waker());
        match self.done.lock().take() {
            Some(message) => Poll::Ready(message),
            None => Poll::Pending,
        }
    }
}

/// See the module.
pub struct Message {
    shards: Vec<u16>,
    place: ShardPlace,
    command: &'static Command,
    args: OwnedArgs,
    /// What was made of the arguments before any shard was in hand.
    prepared: Option<Prepared>,
    config: Arc<Config>,
    now: Now,
    deferred: Deferred,
    blocker: Option<Arc<Shared>>,
    /// What is to be done instead of running a command.
    task: Option<Task>,
    /// The transaction that runs, when the command is EXEC.
    pub transaction: Option<Box<TransactionRun>>,
    ticket: Option<Arc<Ticket>>,
    /// The client, with its stamp raised once the message ran.
    pub client: ClientView,
    /// The reply.
    pub out: Out,
    /// Whether the reply is an error.
    pub failed: bool,
    /// The command did not run; the reply says why.
    pub refused: bool,
    /// The command waits: there is no reply yet.
    pub blocked: Option<Arc<Waiter>>,
    /// The command takes too long for whoever held its shards: it is to be sent again, to run apart.
    pub leaves: bool,
    /// It runs on a thread of its own, though it is no unit.
    apart: Option<Apart>,
    /// How long it ran, the wait for its shards left out.
    pub duration_ns: u64,
    /// For commands that go from shard to shard: what they gathered so far, and whether the visit failed.
    pub gather: Option<(Gather, CommandResult)>,
}

/// What shards are asked to do that is no command.
enum Task {
    /// Somebody waits no more.
    Forget(Arc<Waiter>),
    /// Somebody who waits can be served here.
    Serve(Arc<Waiter>),
    /// Somebody watches no more.
    Unwatch(Vec<Watched>),
    /// Keys move to another server.
    Migrate(Box<Errand>),
}

/// A transaction under way, with the connection that it works on.
pub struct TransactionRun {
    /// What is queued.
    pub transaction: Transaction,
    /// The connection, which waits meanwhile.
    pub connection: Connection,
    /// What queued commands may ask of the server.
    pub server: &'static dyn Server,
    /// Scripts and functions.
    pub scripts: &'static crate::script::library::Library,
    /// What it left to be done.
    pub aftermath: Aftermath,
    /// With scripts among the commands: how they run.
    pub unit: Option<UnitRun>,
}

/// What the units of a server share.
#[derive(Clone, Copy)]
pub struct Ground {
    /// The shards.
    pub shards: &'static Shards,
    /// Threads for units that take long.
    pub threads: &'static Threads,
    /// Who owns a key.
    pub router: Router,
}

/// A command on its way to a thread of its own, because it takes long.
struct Apart {
    ground: Ground,
    platform: Option<Arc<Platform>>,
}

/// A unit with scripts on its way.
pub struct UnitRun {
    ground: Ground,
    terms: Terms,
    platform: Option<Arc<Platform>>,
    /// It was undone.
    must_rerun: bool,
    #[cfg(test)]
    now: Option<Now>,
}

impl UnitRun {
    /// A unit that runs on these terms.
    pub fn new(ground: Ground, terms: Terms) -> UnitRun {
        UnitRun {
            ground,
            terms,
            platform: None,
            must_rerun: false,
            #[cfg(test)]
            now: None,
        }
    }

    /// The same at a moment of its own.
    #[cfg(test)]
    pub(crate) fn at(mut self, now: Now) -> UnitRun {
        self.now = Some(now);
        self
    }
}

/// All that a message is made of.
pub struct Parts<'a> {
    /// The shards it needs, ascending.
    pub shards: &'a [u16],
    /// The first of them, for cursors.
    pub place: ShardPlace,
    /// The command.
    pub command: &'static Command,
    /// Its arguments, copied.
    pub args: &'a Args<'a>,
    /// Its client.
    pub client: ClientView,
    /// The moment of its request.
    pub now: Now,
    /// The configuration at that moment.
    pub config: &'a Arc<Config>,
    /// Protocol of the reply.
    pub out: Out,
    /// What earlier visits gathered.
    pub gather: Option<Gather>,
    /// Who waits if the command has to.
    pub blocker: Option<&'a Arc<Shared>>,
    /// The transaction, when the command is EXEC.
    pub transaction: Option<Box<TransactionRun>>,
}

impl<'a> Parts<'a> {
    /// A command that needs no shard and waits for nothing; what it does need is put over that.
    pub fn new(
        command: &'static Command,
        args: &'a Args<'a>,
        client: ClientView,
        now: Now,
        config: &'a Arc<Config>,
        out: Out,
    ) -> Parts<'a> {
        Parts {
            shards: &[],
            place: ShardPlace::default(),
            command,
            args,
            client,
            now,
            config,
            out,
            gather: None,
            blocker: None,
            transaction: None,
        }
    }
}

impl Message {
    /// A message and the ticket on which its end is awaited.
    pub fn new(parts: Parts<'_>) -> (Box<Parcel<Message>>, Arc<Ticket>) {
        let ticket = Arc::new(Ticket::default());
        let message = Parcel::new(Message {
            shards: parts.shards.to_vec(),
            place: parts.place,
            command: parts.command,
            args: OwnedArgs::copy_of(parts.args),
            prepared: None,
            config: Arc::clone(parts.config),
            now: parts.now,
            deferred: Deferred::default(),
            blocker: parts.blocker.map(Arc::clone),
            task: None,
            transaction: parts.transaction,
            blocked: None,
            leaves: false,
            apart: None,
            ticket: Some(Arc::clone(&ticket)),
            client: parts.client,
            out: parts.out,
            failed: false,
            refused: false,
            duration_ns: 0,
            gather: parts.gather.map(|gather| (gather, Ok(()))),
        });
        (message, ticket)
    }

    /// Takes a waiter out of the queues of one shard; nobody awaits that.
    pub fn leave(waiter: &Arc<Waiter>, shard: u16, now: Now) -> Box<Parcel<Message>> {
        let task = Task::Forget(Arc::clone(waiter));
        Message::of_task(task, vec![shard], now, &waiter.config)
    }

    /// Serves a waiter who needs all its shards; nobody awaits that.
    pub(super) fn call(waiter: &Arc<Waiter>, now: Now) -> Box<Parcel<Message>> {
        let task = Task::Serve(Arc::clone(waiter));
        Message::of_task(task, waiter.shards(), now, &waiter.config)
    }

    /// Has one shard forget what was watched; nobody awaits that.
    pub fn unwatch(
        watched: Vec<Watched>,
        shard: u16,
        now: Now,
        config: &Arc<Config>,
    ) -> Box<Parcel<Message>> {
        Message::of_task(Task::Unwatch(watched), vec![shard], now, config)
    }

    /// Takes an errand to its shards, and the ticket on which its end is awaited.
    pub fn migrate(
        errand: Box<Errand>,
        now: Now,
        config: &Arc<Config>,
    ) -> (Box<Parcel<Message>>, Arc<Ticket>) {
        let shards = errand.shards();
        let mut message = Message::of_task(Task::Migrate(errand), shards, now, config);
        let ticket = Arc::new(Ticket::default());
        message.ticket = Some(Arc::clone(&ticket));
        (message, ticket)
    }

    /// The errand that it took to its shards.
    pub fn take_errand(&mut self) -> Option<Box<Errand>> {
        match self.task.take() {
            Some(Task::Migrate(errand)) => Some(errand),
            _ => None,
        }
    }

    /// Brings a message back that ran elsewhere than with shards in hand.
    pub fn answer(parcel: Box<Parcel<Message>>) {
        <Message as ownership::Message<Engine>>::finish(parcel);
    }

    fn of_task(
        task: Task,
        shards: Vec<u16>,
        now: Now,
        config: &Arc<Config>,
    ) -> Box<Parcel<Message>> {
        Parcel::new(Message {
            shards,
            place: ShardPlace::default(),
            command: crate::command::transaction::UNWATCH_ROW,
            args: OwnedArgs::default(),
            prepared: None,
            config: Arc::clone(config),
            now,
            deferred: Deferred::default(),
            blocker: None,
            task: Some(task),
            transaction: None,
            ticket: None,
            client: ClientView::default(),
            out: Out::default(),
            failed: false,
            refused: false,
            blocked: None,
            leaves: false,
            apart: None,
            duration_ns: 0,
            gather: None,
        })
    }
}

impl Message {
    /// Sends a unit on its way, on its terms.
    pub fn send_unit(mut parcel: Box<Parcel<Message>>) {
        let Some(unit) = parcel.unit() else {
            unreachable!("asked for units only")
        };
        let (ground, is_apart, shards) =
            (unit.ground, unit.terms.is_apart, unit.terms.shards.clone());
        parcel.shards = shards;
        match is_apart {
            true => ground.threads.run(parcel, ground.shards),
            false => ground.shards.submit(parcel),
        }
    }

    /// Has a command run on a thread of its own, with the ticket on which its end is awaited.
    pub fn send_apart(mut parcel: Box<Parcel<Message>>, ground: Ground) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket::default());
        parcel.ticket = Some(Arc::clone(&ticket));
        parcel.apart = Some(Apart {
            ground,
            platform: None,
        });
        parcel.leaves = false;
        ground.threads.run(parcel, ground.shards);
        ticket
    }

    /// Does, on a thread that serves nobody and before any shard is in hand, what of the work can be done there.
    pub(super) fn prepare(&mut self) {
        if let (Some(apart), Some(build)) = (&self.apart, self.command.builds) {
            let seed = apart.ground.router.seed();
            let built = build(&self.args.args(), &self.config, seed, self.now);
            self.prepared = Some(Prepared::new(built));
        }
    }

    /// Where the thread waits that was made ready for it.
    fn platform(&mut self) -> Option<&mut Option<Arc<Platform>>> {
        let unit = self
            .transaction
            .as_mut()
            .and_then(|run| run.unit.as_mut())
            .map(|unit| &mut unit.platform);
        unit.or(self.apart.as_mut().map(|apart| &mut apart.platform))
    }

    fn unit(&mut self) -> Option<&mut UnitRun> {
        self.transaction.as_mut()?.unit.as_mut()
    }

    /// Where its thread waits for it.
    pub(super) fn meets_at(&mut self, platform: Arc<Platform>) {
        if let Some(place) = self.platform() {
            *place = Some(platform);
        }
    }

    /// Runs on the thread that was made ready for it.
    pub(super) fn run_apart(&mut self, reach: &mut Reach<'_, Engine, Message>) {
        match self.apart {
            None => self.run_unit(reach),
            Some(_) => ownership::Message::run(self, &mut reach.hands()),
        }
    }

    /// Runs a unit with its shards in hand.
    pub(super) fn run_unit(&mut self, reach: &mut Reach<'_, Engine, Message>) {
        let started = Ticks::now();
        self.now = clock::now();
        let Some(run) = &mut self.transaction else {
            unreachable!("asked for units only")
        };
        let Some(unit) = &mut run.unit else {
            unreachable!("asked for units only")
        };
        #[cfg(test)]
        if let Some(now) = unit.now {
            self.now = now;
        }
        let router = unit.ground.router;
        let attempt = match unit.terms.is_apart {
            true => Attempt::apart(reach, router, &unit.terms, &run.scripts.running),
            false => Attempt::inline(reach, router),
        };
        let stage = Stage {
            connection: &mut run.connection,
            server: run.server,
            scripts: run.scripts,
            config: &self.config,
            renewed: None,
            now: self.now,
            shard_count: self.place.count,
        };
        let (out, deferred) = (&mut self.out, &mut self.deferred);
        let aftermath = run
            .transaction
            .attempt(attempt, stage, out, &mut unit.terms, deferred);
        unit.must_rerun = aftermath.is_none();
        if let Some(aftermath) = aftermath {
            self.failed = aftermath.failed;
            run.aftermath = aftermath;
        }
        self.duration_ns += Ticks::now().since_ns(started);
    }

    /// Answers that a script is busy, for whoever holds the shards for long; false if the message has to wait instead,
    /// as nobody awaits its reply.
    pub(super) fn turn_away(&mut self, text: &'static str) -> bool {
        if self.ticket.is_none() {
            return false;
        }
        if let Some(platform) = self.platform().and_then(Option::take) {
            platform.cancel();
        }
        if let Some((_, result)) = &mut self.gather {
            *result = Err(text.into());
            return true;
        }
        if let Some(run) = &mut self.transaction
            && !run.transaction.is_lone()
        {
            run.aftermath.was_turned_away = true;
            let text = format!("EXECABORT Transaction discarded because of: {text}");
            self.out.error(text.as_bytes());
            self.refused = true;
            return true;
        }
        self.out.error(text);
        self.refused = true;
        true
    }
}

fn perform(task: &mut Task, engines: &mut [&mut Engine], now: Now) {
    match task {
        Task::Forget(waiter) => {
            for engine in engines {
                waiter.leave_shard(engine);
                execute::serve_waiters(engine, now);
            }
        }
        Task::Serve(waiter) => {
            waiter.answer_call(engines, now);
            execute::serve_waiters_of_all(engines, now, &mut Publications::default());
        }
        Task::Unwatch(watched) => {
            for engine in engines {
                for watched in &*watched {
                    engine
                        .watches
                        .remove(watched.db, &watched.key, watched.times);
                }
            }
        }
        Task::Migrate(errand) => {
            errand.run(engines, now);
            execute::serve_waiters_of_all(engines, now, &mut Publications::default());
        }
    }
}

impl ownership::Message<Engine> for Message {
    fn shards(&self) -> &[u16] {
        &self.shards
    }

    fn reaches(&self) -> bool {
        let run = self.transaction.as_deref();
        run.is_some_and(|run| run.unit.is_some())
    }

    fn run_reaching(&mut self, reach: &mut Reach<'_, Engine, Self>) {
        self.run_unit(reach);
    }

    fn departs(&self) -> bool {
        let unit = self
            .transaction
            .as_deref()
            .and_then(|run| run.unit.as_ref());
        unit.is_some_and(|unit| unit.terms.is_apart) || self.apart.is_some()
    }

    fn depart(mut departed: Departed<Self>) {
        let Some(platform) = departed.message().platform().and_then(Option::take) else {
            unreachable!("what departs has a thread")
        };
        platform.arrive(departed);
    }

    fn run(&mut self, hands: &mut Hands<'_, Engine>) {
        let before = Ticks::now();
        let Message {
            args,
            prepared,
            client,
            out,
            ..
        } = self;
        let args = args.args().with_prepared(prepared.as_ref());
        let scene = Scene {
            now: self.now,
            config: &self.config,
            place: self.place,
            blocker: self.blocker.as_ref(),
            may_leave: self.apart.is_none() && self.ticket.is_some(),
        };
        let mut engines: Vec<&mut Engine> = hands.iter().map(|(_, engine)| engine).collect();
        if let Some(task) = &mut self.task {
            perform(task, &mut engines, self.now);
        } else if let Some(run) = &mut self.transaction
            && scene.may_leave
            && run.transaction.may_be_heavy(&engines, run.connection.db)
        {
            self.leaves = true;
        } else if let Some(run) = &mut self.transaction {
            let stage = Stage {
                connection: &mut run.connection,
                server: run.server,
                scripts: run.scripts,
                config: &self.config,
                renewed: None,
                now: self.now,
                shard_count: self.place.count,
            };
            run.aftermath = run.transaction.run(&mut engines, stage, out);
            self.failed = run.aftermath.failed;
        } else {
            let engines = match engines.as_mut_slice() {
                [engine] => Engines::One(engine),
                engines => Engines::Many(engines.iter_mut().map(|engine| &mut **engine).collect()),
            };
            match (&mut self.gather, self.command.run) {
                (Some((gather, result)), Run::EachShard(..) | Run::Cursor(..)) => {
                    *result =
                        execute::run_part(self.command, engines, client, scene, &args, gather);
                }
                _ => match execute::run(self.command, engines, client, scene, &args, out) {
                    Outcome::Done { failed } => self.failed = failed,
                    Outcome::Refused => self.refused = true,
                    Outcome::Blocked(waiter) => self.blocked = Some(waiter),
                    Outcome::Leaves => self.leaves = true,
                },
            }
        }
        for engine in engines {
            self.deferred.append(&mut engine.deferred);
        }
        self.duration_ns += Ticks::now().since_ns(before);
    }

    fn finish(mut parcel: Box<Parcel<Self>>) {
        parcel.deferred.settle();
        if parcel.unit().is_some_and(|unit| unit.must_rerun) {
            return Message::send_unit(parcel);
        }
        if let Some(ticket) = parcel.ticket.take() {
            *ticket.done.lock() = Some(parcel);
            ticket.waker.wake();
        }
    }
}
