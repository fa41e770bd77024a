//! The context of a handler: the shards of its keys, or the connection and the server.
//!
//! Handlers never learn how many shards there are or which thread they run on.

use std::mem::offset_of;
use std::sync::Arc;

use super::args::{Args, RoutedKey};
use super::declaration::{Command, CommandResult, Flags};
use super::error::CommandError;
use super::host::cluster::Routes;
use super::host::migration::Migration;
use super::host::primary::Follow;
use super::host::scripts::TextBound;
use super::host::{Awaited, Server};
use crate::acl::Handle;
use crate::client::connection::{Connection, Origin};
use crate::client::shared::Shared;
use crate::config::Config;
use crate::pubsub::outgoing::Outgoing;
use basalt_core::base::hash::{HashSeed, slot};
use basalt_core::resp::reply::Bulks;
use basalt_core::structures::entry::EntryRef;
use basalt_engine::effect::{Event, Publication};
use basalt_engine::keyspace::{Keyspace, WrongType};
use basalt_engine::record::{Audience, Records};
use basalt_engine::value::{DataType, Object};
use basalt_engine::{Engine, Key, Now};

/// The engines that a command runs on, in ascending order of their shards.
pub enum Engines<'a> {
    /// One shard: the usual case.
    One(&'a mut Engine),
    /// Several shards, in ascending order.
    Many(Vec<&'a mut Engine>),
}

impl<'a> Engines<'a> {
    /// Wraps engines of different shards, in ascending order of their shards.
    pub fn of(engines: &'a mut [&mut Engine]) -> Engines<'a> {
        match engines {
            [only] => Engines::One(only),
            several => Engines::Many(several.iter_mut().map(|engine| &mut **engine).collect()),
        }
    }

    /// Calls `work` with all engines as a slice.
    #[inline]
    pub fn with_all<R>(&mut self, work: impl FnOnce(&mut [&mut Engine]) -> R) -> R {
        match self {
            Engines::One(engine) => work(&mut [engine]),
            Engines::Many(engines) => work(engines),
        }
    }

    /// Calls `work` for each engine.
    #[inline]
    pub fn each(&mut self, mut work: impl FnMut(&mut Engine)) {
        match self {
            Engines::One(engine) => work(engine),
            Engines::Many(engines) => engines.iter_mut().for_each(|engine| work(engine)),
        }
    }

    /// Calls `look` for each engine.
    #[inline]
    pub fn look_at_each(&self, mut look: impl FnMut(&Engine)) {
        match self {
            Engines::One(engine) => look(engine),
            Engines::Many(engines) => engines.iter().for_each(|engine| look(engine)),
        }
    }

    /// Whether `holds` is true for all engines.
    #[inline]
    pub fn all(&mut self, mut holds: impl FnMut(&mut Engine) -> bool) -> bool {
        match self {
            Engines::One(engine) => holds(engine),
            Engines::Many(engines) => engines.iter_mut().all(|engine| holds(engine)),
        }
    }

    /// Whether `holds` is true for any engine.
    #[inline]
    pub fn any(&self, holds: impl Fn(&Engine) -> bool) -> bool {
        match self {
            Engines::One(engine) => holds(engine),
            Engines::Many(engines) => engines.iter().any(|engine| holds(engine)),
        }
    }
}

/// The state of the client that a shard handler can see.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientView {
    /// The ID, as CLIENT ID returns it.
    pub id: u64,
    /// Whether reads leave the access bits unchanged (CLIENT NO-TOUCH).
    pub no_touch: bool,
    /// Whether a script called the command.
    pub is_in_script: bool,
    /// Whether keys that are read are remembered for invalidation messages (CLIENT TRACKING).
    pub tracks: bool,
    /// Stamp of the last effect that the connection has seen.
    pub stamp: u64,
    /// Selected database. The field lies between two fields that a command stores one by one and that the connection
    /// reads next: side by side both would be loaded at once, and such a load stalls until all earlier stores are
    /// done, of which those to the shard may wait for another core.
    pub db: usize,
    /// Position up to which the connection's replies reflect published events (`pubsub::events`).
    pub position: u64,
    /// The origin of the client's commands: a client, the primary, a file, and so on.
    pub origin: Origin,
    /// The audience of the commands' log records; a script may choose another one (`redis.set_repl`).
    pub audience: Audience,
    /// The log position after the command's own records, if it wrote any.
    pub log_position: u64,
    /// The log position after everything that the reply reflects; 0 while there is no log.
    pub log_seen: u64,
}

const _: () = {
    let places = [
        offset_of!(ClientView, stamp),
        offset_of!(ClientView, position),
    ];
    assert!(
        places[0].abs_diff(places[1]) > size_of::<u64>(),
        "side by side"
    );
};

impl ClientView {
    /// Passes to the connection the log positions of the command's own writes and of what its reply reflects.
    #[inline]
    pub fn tell_log(&self, shared: &Shared) {
        if self.log_seen != 0 {
            shared.note_log(self.log_position, self.log_seen);
        }
    }

    /// Copies the connection's current state.
    #[inline]
    pub fn of(connection: &Connection) -> ClientView {
        ClientView {
            id: connection.id(),
            db: connection.db,
            no_touch: connection.no_touch,
            is_in_script: connection.is_in_script,
            tracks: connection.tracks,
            stamp: connection.stamp,
            position: connection.position,
            origin: connection.origin,
            audience: connection.log_audience,
            log_position: 0,
            log_seen: 0,
        }
    }
}

/// Context of a command that runs on shards, see the module.
pub struct ShardCx<'a> {
    engines: Engines<'a>,
    /// The client's state at the time when it sent the command.
    pub client: ClientView,
    /// The time, frozen while the command runs.
    pub now: Now,
    /// The configuration, for limits and thresholds.
    pub config: &'a Config,
    /// The declaration of the command that is running.
    pub command: &'static Command,
    /// The first locked shard and the number of shards, for cursors.
    pub shard: ShardPlace,
    keys: &'a [RoutedKey],
    used_last: usize,
    may_block: bool,
    has_waited: bool,
    may_leave: bool,
    leaves: bool,
    wait: Option<Wait>,
    pub(super) statement: Statement,
}

/// The condition that a blocked request waits for, after it found nothing to reply with.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The request is run again when one of its keys receives a value of this type.
    pub data_type: DataType,
    /// The request is also run again when one of its keys is deleted or changes its type.
    pub when_gone: bool,
    /// The request waits for a key to be loaded, and is not run again while another client loads it.
    pub when_loaded: bool,
    /// Whether only one of the waiting requests can be served at a time: if the first finds nothing, those after it
    /// would not either.
    pub in_turn: bool,
    /// Whether the request may set timers to run again, see
    /// [`look_again`](basalt_engine::waiting::Waiters::look_again).
    pub looks_again: bool,
    /// Whether the request waits for its first key only and runs with the shards of all keys locked; otherwise it
    /// waits for all keys and runs with only some of their shards locked, see [`ShardCx::holds`].
    pub needs_all: bool,
    /// End of the wait as Unix time in milliseconds; None: forever.
    pub until_ms: Option<u64>,
    /// Writes the reply if the wait times out.
    pub on_timeout: fn(&mut super::Out),
    /// Arguments that replace the client's own when the request runs again, with their positions.
    pub rewritten: Vec<(usize, Vec<u8>)>,
}

impl Wait {
    /// Returns a wait of the usual kind: until any of the keys holds a value of this type; on timeout the reply is
    /// null.
    pub fn new(data_type: DataType, until_ms: Option<u64>) -> Wait {
        Wait {
            data_type,
            when_gone: false,
            when_loaded: false,
            in_turn: false,
            looks_again: false,
            needs_all: false,
            until_ms,
            on_timeout: super::Out::null_array,
            rewritten: Vec::new(),
        }
    }
}

/// The limits on how much work a command may do on the thread where it runs.
#[derive(Clone, Copy, Debug)]
pub struct Scales {
    may_leave: bool,
}

impl Scales {
    /// Checks that processing `elements` elements does not take too long on this thread. The handler must call this
    /// before it changes anything or writes to the reply: the error makes the command run again, from its start, on a
    /// thread that no other client waits for.
    #[inline]
    pub fn weigh(self, elements: usize) -> Result<(), CommandError> {
        match are_many(elements) && self.may_leave {
            true => Err(CommandError::TooLongHere),
            false => Ok(()),
        }
    }

    /// Whether a value of `bytes` bytes is too large for a thread that other clients wait for.
    pub fn is_heavy(self, bytes: usize) -> bool {
        are_many(bytes / BYTES_PER_ELEMENT)
    }

    /// Like [`Scales::weigh`], for values of `bytes` bytes.
    #[inline]
    pub fn weigh_bytes(self, bytes: usize) -> Result<(), CommandError> {
        self.weigh(bytes / BYTES_PER_ELEMENT)
    }
}

/// Elements that a command may process on a thread that other clients wait for: about a millisecond. Moving to
/// another thread costs some 50 µs.
const ELEMENTS_HERE_MAX: usize = 8 * 1024;

/// Processing an element takes about as long as processing a value of this many bytes.
const BYTES_PER_ELEMENT: usize = 64;

const fn are_many(elements: usize) -> bool {
    elements > ELEMENTS_HERE_MAX
}

/// The engine index of a routed key whose shard is not locked.
pub const NOT_HELD: u16 = u16::MAX;

/// A shard's index and the shard count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardPlace {
    /// Number of the shard.
    pub index: u16,
    /// Number of shards in the server.
    pub count: u16,
}

impl<'a> ShardCx<'a> {
    /// Creates a context over locked engines.
    #[inline]
    pub fn new(
        engines: Engines<'a>,
        mut client: ClientView,
        now: Now,
        config: &'a Config,
        command: &'static Command,
        shard: ShardPlace,
        args: &Args<'a>,
    ) -> ShardCx<'a> {
        // If eviction is based on the time of modification, reads do not count as uses.
        client.no_touch |= config.maxmemory_policy.is_lrm() && command.flags.has(Flags::READONLY);
        ShardCx {
            engines,
            client,
            now,
            config,
            command,
            shard,
            keys: args.keys(),
            used_last: 0,
            may_block: false,
            has_waited: false,
            may_leave: false,
            leaves: false,
            wait: None,
            statement: Statement::Off,
        }
    }

    /// Allows the request to wait.
    pub fn allow_blocking(&mut self) {
        self.may_block = true;
    }

    /// Whether the request may wait. In a transaction or a script it may not: it replies as if it had timed out.
    pub fn may_block(&self) -> bool {
        self.may_block
    }

    /// Records that the request has waited, and is now being served.
    pub fn note_waited(&mut self) {
        self.has_waited = true;
    }

    /// Whether the request has waited. If not, requests that already wait in turn for the same key go first.
    pub fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Allows the command to be moved to a thread that serves no other client.
    pub fn allow_leaving(&mut self) {
        self.may_leave = true;
    }

    /// Returns the limits that a handler checks before work that may take long.
    #[inline]
    pub fn scales(&self) -> Scales {
        debug_assert!(
            self.command.may_leave(),
            "{} is not declared to take long",
            self.command.full_name
        );
        Scales {
            may_leave: self.may_leave,
        }
    }

    /// Marks the command to be run on another thread, if that is allowed. Returns whether it is.
    pub fn leave(&mut self) -> bool {
        self.leaves = self.may_leave;
        self.leaves
    }

    /// Whether the command is to be run on another thread.
    #[inline]
    pub fn leaves(&self) -> bool {
        self.leaves
    }

    /// Blocks the request: the handler returns without a reply, and runs again from its start once its condition may
    /// be met.
    pub fn wait(&mut self, wait: Wait) {
        debug_assert!(self.may_block, "asked first");
        self.wait = Some(wait);
    }

    /// Takes the wait that the handler has set, if any.
    pub fn take_wait(&mut self) -> Option<Wait> {
        self.wait.take()
    }

    /// Whether the shard of a key is locked. Always true except for requests that have waited, see
    /// [`Wait::needs_all`].
    pub fn holds(&self, key: &RoutedKey) -> bool {
        key.engine_index != NOT_HELD
    }

    /// Returns the locked engines.
    #[inline]
    pub(super) fn engines(&self) -> &Engines<'a> {
        &self.engines
    }

    /// Calls `look` for each locked engine.
    pub(super) fn look_at_engines(&self, look: impl FnMut(&Engine)) {
        self.engines.look_at_each(look);
    }

    /// Returns the first locked engine.
    pub(super) fn first_engine_mut(&mut self) -> &mut Engine {
        match &mut self.engines {
            Engines::One(engine) => engine,
            Engines::Many(engines) => engines[0],
        }
    }

    /// Returns the engines to the caller.
    #[inline]
    pub fn into_engines(self) -> Engines<'a> {
        self.engines
    }

    /// Returns the keyspace that owns a key, in the client's database.
    pub fn at(&mut self, key: &Key<'_>) -> Keyspace<'_> {
        self.at_db(key, self.client.db)
    }

    /// Returns the keyspace that owns a key, in any database.
    pub fn at_db(&mut self, key: &Key<'_>, db: usize) -> Keyspace<'_> {
        let (now, no_touch) = (self.now, self.client.no_touch);
        let index = match &self.engines {
            Engines::One(_) => 0,
            Engines::Many(_) => self
                .keys
                .iter()
                .find(|routed| routed.hash == key.hash && routed.engine_index != NOT_HELD)
                .map(|routed| usize::from(routed.engine_index))
                .expect("handlers touch declared keys only"),
        };
        let keyspace = self.engine(index).keyspace(db, now);
        if no_touch {
            keyspace.untouched()
        } else {
            keyspace
        }
    }

    /// Returns the keyspace of a key whose name the command has derived from data, and the key. All shards must be
    /// locked, see [`Command::on_all_shards_if`].
    pub fn at_derived<'k>(&mut self, key: &'k [u8]) -> (Keyspace<'_>, Key<'k>) {
        let index = match &self.engines {
            Engines::One(_) => 0,
            Engines::Many(engines) => {
                debug_assert_eq!(engines.len(), usize::from(self.shard.count));
                usize::from(slot(key)) % engines.len()
            }
        };
        let key = Key::new(key, self.seed());
        let (db, now, no_touch) = (self.client.db, self.now, self.client.no_touch);
        let keyspace = self.engine(index).keyspace(db, now);
        if no_touch {
            (keyspace.untouched(), key)
        } else {
            (keyspace, key)
        }
    }

    /// Returns the keyspace of a routed key.
    pub fn at_routed(&mut self, key: &RoutedKey) -> Keyspace<'_> {
        let (db, now, no_touch) = (self.client.db, self.now, self.client.no_touch);
        let keyspace = self.engine(usize::from(key.engine_index)).keyspace(db, now);
        if no_touch {
            keyspace.untouched()
        } else {
            keyspace
        }
    }

    /// Returns the entry of a key that this command has looked up before, for reading several entries side by side.
    /// Nothing is counted, touched or deleted.
    pub fn peek(&self, routed: &RoutedKey, key: &Key<'_>) -> Option<EntryRef<'_, Object>> {
        let engine = match &self.engines {
            Engines::One(engine) => &**engine,
            Engines::Many(engines) => &*engines[usize::from(routed.engine_index)],
        };
        engine.peek(self.client.db, key)
    }

    /// Returns the seed of all key hashes.
    pub fn seed(&self) -> HashSeed {
        match &self.engines {
            Engines::One(engine) => engine.seed(),
            Engines::Many(engines) => engines[0].seed(),
        }
    }

    /// Returns the time up to which elements with deadlines count as expired, see
    /// [`Keyspace::elements_due_ms`](basalt_engine::keyspace::Keyspace::elements_due_ms).
    pub fn elements_due_ms(&self) -> u64 {
        let engine = match &self.engines {
            Engines::One(engine) => &**engine,
            Engines::Many(engines) => &*engines[0],
        };
        match engine.rest.shows_all(engine.effects.client()) {
            true => 0,
            false => self.now.unix_ms,
        }
    }

    /// Whether data are being loaded, so that nothing expires.
    pub fn is_loading(&self) -> bool {
        match &self.engines {
            Engines::One(engine) => engine.rest.is_loading(),
            Engines::Many(engines) => engines[0].rest.is_loading(),
        }
    }

    /// Returns one of the locked engines, by its index among them. The engine is given the stamp of the engine used
    /// before, so that the effects of one command are ordered across shards as the handler made them.
    pub fn engine(&mut self, index: usize) -> &mut Engine {
        match &mut self.engines {
            Engines::One(engine) => engine,
            Engines::Many(engines) => {
                let stamp = engines[self.used_last].effects.stamp();
                self.used_last = index;
                let engine = &mut *engines[index];
                engine.effects.raise(stamp);
                engine
            }
        }
    }

    /// Returns the number of locked engines.
    pub fn engine_count(&self) -> usize {
        match &self.engines {
            Engines::One(_) => 1,
            Engines::Many(engines) => engines.len(),
        }
    }

    /// Returns the keyspace of one locked engine, for commands over whole databases.
    pub fn keyspace(&mut self, index: usize, db: usize) -> Keyspace<'_> {
        let now = self.now;
        self.engine(index).keyspace(db, now)
    }

    /// Records that a key changed, under the name that notifications use.
    pub fn wrote(&mut self, key: &Key<'_>, event: Event) {
        self.at(key).wrote(key.bytes, event);
    }
}

impl From<WrongType> for CommandError {
    fn from(_: WrongType) -> CommandError {
        CommandError::WrongType
    }
}

/// The command's entry in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Statement {
    /// Nothing is logged.
    #[default]
    Off,
    /// The command itself, if it changed anything.
    Itself,
    /// The command itself, whether it changed anything or not.
    ItselfAnyway,
    /// The records that the handler logged in its place; may be empty.
    Said,
}

/// The combined result of an each-shard command's visits.
#[derive(Default)]
pub struct Gather {
    /// Number of elements counted so far.
    pub count: i64,
    /// The elements of the reply.
    pub elements: Bulks,
    /// Rows that must be sorted before they are written to the reply.
    pub rows: Vec<Vec<u8>>,
    /// Number of elements examined, whether they matched or not.
    pub visited: u64,
    /// Cursor for the next call.
    pub cursor: u64,
    /// Whether no more shards need to be visited.
    pub done: bool,
    /// Position at which the next visit to the same shard continues; 0 if the shard is done.
    pub position: u64,
    /// Whether the first shard is visited again after the last.
    pub goes_around: bool,
    /// Slot ownership, in a cluster.
    pub routes: Option<Arc<Routes>>,
}

impl Gather {
    /// Adds an element.
    pub fn push(&mut self, element: &[u8]) {
        self.count += 1;
        self.elements.push(element);
    }

    /// Writes the elements as an array, in the order in which they were added.
    pub fn reply(self, out: &mut super::Out) {
        out.array(self.count as usize);
        out.bulks(self.elements);
    }
}

/// The action of the session after a session handler returns.
#[derive(Clone, Debug, Default)]
pub enum After {
    /// Continue with the next request.
    #[default]
    Nothing,
    /// Continue with the next request, under the configuration that has just changed.
    Configured,
    /// Send what is in the output, then close.
    Close,
    /// Withhold the reply, and run no further request of this connection, until the wait is over.
    Block(Block),
    /// Withhold the reply: the server writes it when the migration is done.
    Migrate(Box<Migration>),
    /// Withhold the reply: it depends on work in progress on another thread.
    Await(Awaited),
    /// Send what is in the output, and leave the connection to the task that serves replicas.
    Follow(Box<Follow>),
    /// Stop the server.
    Shutdown,
}

/// A condition besides the deadline that ends a wait.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Returns whether the condition is met; called when the wait begins and after each nudge (wake-up of the
    /// connection). If it is met, writes the reply. On timeout (the flag is true) it must write a reply, in place of
    /// [`Block::on_timeout`].
    pub has_come: fn(
        &dyn Server,
        &Connection,
        RequiredCopies,
        bool,
        &mut super::Out,
    ) -> Option<CommandResult>,
    /// The number of copies that are waited for.
    pub wanted: RequiredCopies,
}

/// The copies (local file and replicas) that must contain what a connection wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequiredCopies {
    /// Whether the local append-only file must have it.
    pub local: bool,
    /// Number of replicas that must have it.
    pub replicas: u64,
}

/// A wait of a connection whose reply is withheld; its deadline or CLIENT UNBLOCK ends it.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// End of the wait as Unix time in milliseconds; None: forever.
    pub until_ms: Option<u64>,
    /// Writes the reply on timeout.
    pub on_timeout: fn(&mut super::Out),
    /// Another condition that ends the wait.
    pub look: Option<Look>,
    /// Whether the time passes even in a transaction, where other commands do not wait (DEBUG SLEEP): the command is
    /// postponed, see [`Command::is_postponed`]. In a script it passes while the script's shards stay locked.
    pub holds: bool,
}

/// The context of a session handler.
pub struct SessionCx<'a> {
    /// The connection that sent the command.
    pub client: &'a mut Connection,
    /// The server, as handlers see it.
    pub server: &'a dyn Server,
    /// The current configuration.
    pub config: &'a Arc<Config>,
    /// The current time.
    pub now: Now,
    /// The declaration of the command that is running.
    pub command: &'static Command,
    /// The next action of the session.
    pub after: After,
    /// Destination of messages to other connections.
    pub outbox: Outbox<'a>,
}

impl SessionCx<'_> {
    /// Returns the connection's user.
    pub fn user(&self) -> Arc<Handle> {
        let user = self.client.shared.user();
        user.unwrap_or_else(|| Arc::clone(self.server.users().default()))
    }

    /// Whether the size limit of scripts applies to what this connection loads.
    pub(super) fn text_bound(&self) -> TextBound {
        match self.client.origin.replays() {
            true => TextBound::Lifted,
            false => TextBound::Holds,
        }
    }
}

/// Destination of messages that a command sends to other connections.
pub enum Outbox<'a> {
    /// No shard is locked: messages are delivered at once, or with the rest of the batch.
    Open(&'a mut Outgoing),
    /// Some shards are locked: messages are kept until the shards are released. Messages for the client itself follow
    /// the reply of EXEC.
    Pending(&'a mut Vec<Publication>, &'a mut Records),
}

impl Outbox<'_> {
    /// Whether the command is part of a transaction or of a script.
    pub fn is_of_transaction(&self) -> bool {
        !matches!(self, Outbox::Open(_))
    }
}
