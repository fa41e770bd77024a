//! What a handler has in hand: the shards of its keys, or the connection and the server.
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
use basalt_core::base::hash::{Seed, slot};
use basalt_core::resp::reply::Bulks;
use basalt_core::structures::entry::EntryRef;
use basalt_engine::effect::{Event, Publication};
use basalt_engine::keyspace::{Keyspace, WrongType};
use basalt_engine::record::{Audience, Records};
use basalt_engine::value::{DataType, Object};
use basalt_engine::{Engine, Key, Now};

/// The engines that a command runs on, ascending by shard.
pub enum Engines<'a> {
    /// The usual case.
    One(&'a mut Engine),
    /// Several, in the order of their shards.
    Many(Vec<&'a mut Engine>),
}

impl<'a> Engines<'a> {
    /// Engines of different shards, in the order of their shards.
    pub fn of(engines: &'a mut [&mut Engine]) -> Engines<'a> {
        match engines {
            [only] => Engines::One(only),
            several => Engines::Many(several.iter_mut().map(|engine| &mut **engine).collect()),
        }
    }

    /// All of them, as a list.
    #[inline]
    pub fn with_all<R>(&mut self, work: impl FnOnce(&mut [&mut Engine]) -> R) -> R {
        match self {
            Engines::One(engine) => work(&mut [engine]),
            Engines::Many(engines) => work(engines),
        }
    }

    /// Does something with each of them.
    #[inline]
    pub fn each(&mut self, mut work: impl FnMut(&mut Engine)) {
        match self {
            Engines::One(engine) => work(engine),
            Engines::Many(engines) => engines.iter_mut().for_each(|engine| work(engine)),
        }
    }

    /// Looks at each of them.
    #[inline]
    pub fn look_at_each(&self, mut look: impl FnMut(&Engine)) {
        match self {
            Engines::One(engine) => look(engine),
            Engines::Many(engines) => engines.iter().for_each(|engine| look(engine)),
        }
    }

    /// Whether something holds for all of them.
    #[inline]
    pub fn all(&mut self, mut holds: impl FnMut(&mut Engine) -> bool) -> bool {
        match self {
            Engines::One(engine) => holds(engine),
            Engines::Many(engines) => engines.iter_mut().all(|engine| holds(engine)),
        }
    }

    /// Whether something holds for any of them.
    #[inline]
    pub fn any(&self, holds: impl Fn(&Engine) -> bool) -> bool {
        match self {
            Engines::One(engine) => holds(engine),
            Engines::Many(engines) => engines.iter().any(|engine| holds(engine)),
        }
    }
}

/// What a shard handler may know of its client.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientView {
    /// As CLIENT ID says.
    pub id: u64,
    /// CLIENT NO-TOUCH.
    pub no_touch: bool,
    /// A script called the command.
    pub is_in_script: bool,
    /// What it reads now is remembered, for it to be told of changes (CLIENT TRACKING).
    pub tracks: bool,
    /// Stamp of the last effect that the connection knows of.
    pub stamp: u64,
    /// Selected database. It lies between two figures that a command leaves one by one and that the connection takes
    /// over next: side by side both would be loaded at once, and such a load waits until all stores before it are done,
    /// of which those to the shard may wait for another core.
    pub db: usize,
    /// Position before which the connection's replies know what others hear (`pubsub::events`).
    pub position: u64,
    /// The sender of its commands.
    pub origin: Origin,
    /// Who reads what its commands leave in the log; a script may choose.
    pub audience: Audience,
    /// The position in the log behind what the command wrote, if it did.
    pub log_position: u64,
    /// The position in the log behind all that its reply knows of; 0 while there is no log.
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
    /// Tells the connection how far the log went that the command wrote, and that its reply knows of.
    #[inline]
    pub fn tell_log(&self, shared: &Shared) {
        if self.log_seen != 0 {
            shared.note_log(self.log_position, self.log_seen);
        }
    }

    /// What a connection shows of itself now.
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
            audience: Audience::from_bits(connection.log_audience),
            log_position: 0,
            log_seen: 0,
        }
    }
}

/// See the module.
pub struct ShardCx<'a> {
    engines: Engines<'a>,
    /// The client, as it was when it sent the command.
    pub client: ClientView,
    /// The moment, frozen while the command runs.
    pub now: Now,
    /// Limits and thresholds.
    pub config: &'a Config,
    /// The row that is running.
    pub command: &'static Command,
    /// The shard in hand (the first of them) and how many there are in the server, for cursors.
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

/// What a request waits for that found nothing to answer with.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The request is run again when one of its keys came to hold this type.
    pub data_type: DataType,
    /// The request is run again when one of its keys went away or changed its type, too.
    pub when_gone: bool,
    /// The request waits for a key to be loaded, and is not run again while another client does.
    pub when_loaded: bool,
    /// One request at a time can have what is waited for: where the first finds nothing, those behind it do not either.
    pub in_turn: bool,
    /// The request may set alarms, see [`look_again`](basalt_engine::waiting::Waiters::look_again).
    pub looks_again: bool,
    /// The request waits for the first of its keys and needs the shards of all; else it waits for all and is run with
    /// those that are at hand, see [`ShardCx::holds`].
    pub needs_all: bool,
    /// Until this Unix time in milliseconds; none: for ever.
    pub until_ms: Option<u64>,
    /// The reply when the time is over.
    pub on_timeout: fn(&mut super::Out),
    /// Arguments that later runs see instead of what the client sent, by position.
    pub rewritten: Vec<(usize, Vec<u8>)>,
}

impl Wait {
    /// A wait of the usual kind: for a type in any of the keys; the time's end answers null.
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

/// Whether a command may take long where it runs.
#[derive(Clone, Copy, Debug)]
pub struct Scales {
    may_leave: bool,
}

impl Scales {
    /// For handlers about to go over so many elements, before they change or answer anything: too many of them are an
    /// error that has the command run again, from its start, on a thread that no other client waits for.
    #[inline]
    pub fn weigh(self, elements: usize) -> Result<(), CommandError> {
        match are_many(elements) && self.may_leave {
            true => Err(CommandError::TooLongHere),
            false => Ok(()),
        }
    }

    /// Whether so many bytes of a value are too many where others wait.
    pub fn is_heavy(self, bytes: usize) -> bool {
        are_many(bytes / BYTES_PER_ELEMENT)
    }

    /// As [`Scales::weigh`] for values of so many bytes.
    #[inline]
    pub fn weigh_bytes(self, bytes: usize) -> Result<(), CommandError> {
        self.weigh(bytes / BYTES_PER_ELEMENT)
    }
}

/// Elements that a command may go over on a thread that others wait for: about a millisecond. To go elsewhere costs
/// some 50 µs.
const ELEMENTS_HERE_MAX: usize = 8 * 1024;

/// Bytes of a value that take about as long as an element.
const BYTES_PER_ELEMENT: usize = 64;

const fn are_many(elements: usize) -> bool {
    elements > ELEMENTS_HERE_MAX
}

/// The engine index of a routed key whose shard is not in hand.
pub const NOT_HELD: u16 = u16::MAX;

/// Which shard out of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardPlace {
    /// Number of the shard.
    pub index: u16,
    /// How many shards the server has.
    pub count: u16,
}

impl<'a> ShardCx<'a> {
    /// A context over engines in hand.
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
        // Where keys go by when they were changed, reads are no uses.
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

    /// Says that the client can wait.
    pub fn allow_blocking(&mut self) {
        self.may_block = true;
    }

    /// Whether the request may wait. In a transaction or a script it may not, and answers as if its time were over.
    pub fn may_block(&self) -> bool {
        self.may_block
    }

    /// Says that the request has waited, and that its turn has come.
    pub fn note_waited(&mut self) {
        self.has_waited = true;
    }

    /// Whether it has. Else requests that wait in turn for the same come first.
    pub fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Says that the command can be run again on a thread that serves no other client.
    pub fn allow_leaving(&mut self) {
        self.may_leave = true;
    }

    /// What a handler asks before it does something that may take long.
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

    /// Notes that the command is to be run elsewhere; whether it can.
    pub fn leave(&mut self) -> bool {
        self.leaves = self.may_leave;
        self.leaves
    }

    /// Whether it is.
    #[inline]
    pub fn leaves(&self) -> bool {
        self.leaves
    }

    /// Answers nothing yet: the handler returns, and runs again from its start once it may find something.
    pub fn wait(&mut self, wait: Wait) {
        debug_assert!(self.may_block, "asked first");
        self.wait = Some(wait);
    }

    /// What the handler asked to wait for.
    pub fn take_wait(&mut self) -> Option<Wait> {
        self.wait.take()
    }

    /// Whether the shard of a key is in hand. It always is but for requests that waited, see [`Wait::needs_all`].
    pub fn holds(&self, key: &RoutedKey) -> bool {
        key.engine_index != NOT_HELD
    }

    /// The engines in hand.
    #[inline]
    pub(super) fn engines(&self) -> &Engines<'a> {
        &self.engines
    }

    /// Looks at each of them.
    pub(super) fn look_at_engines(&self, look: impl FnMut(&Engine)) {
        self.engines.look_at_each(look);
    }

    /// The first of them.
    pub(super) fn first_engine_mut(&mut self) -> &mut Engine {
        match &mut self.engines {
            Engines::One(engine) => engine,
            Engines::Many(engines) => engines[0],
        }
    }

    /// Gives the engines back.
    #[inline]
    pub fn into_engines(self) -> Engines<'a> {
        self.engines
    }

    /// The keyspace that owns a key, in the client's database.
    pub fn at(&mut self, key: &Key<'_>) -> Keyspace<'_> {
        self.at_db(key, self.client.db)
    }

    /// The keyspace that owns a key, in any database.
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

    /// A key that the request does not name but makes of what it read, and its keyspace. All shards must be in hand,
    /// see [`Command::on_all_shards_if`].
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

    /// The keyspace of a routed key.
    pub fn at_routed(&mut self, key: &RoutedKey) -> Keyspace<'_> {
        let (db, now, no_touch) = (self.client.db, self.now, self.client.no_touch);
        let keyspace = self.engine(usize::from(key.engine_index)).keyspace(db, now);
        if no_touch {
            keyspace.untouched()
        } else {
            keyspace
        }
    }

    /// The entry of a key that was looked up before in this command, for reading several side by side. Nothing is
    /// counted, touched or deleted.
    pub fn peek(&self, routed: &RoutedKey, key: &Key<'_>) -> Option<EntryRef<'_, Object>> {
        let engine = match &self.engines {
            Engines::One(engine) => &**engine,
            Engines::Many(engines) => &*engines[usize::from(routed.engine_index)],
        };
        engine.peek(self.client.db, key)
    }

    /// The key of all hashes.
    pub fn seed(&self) -> Seed {
        match &self.engines {
            Engines::One(engine) => engine.seed(),
            Engines::Many(engines) => engines[0].seed(),
        }
    }

    /// Elements of collections with deadlines up to this are not there any more, see
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

    /// Whether data are being loaded, so that nothing is due.
    pub fn is_loading(&self) -> bool {
        match &self.engines {
            Engines::One(engine) => engine.rest.is_loading(),
            Engines::Many(engines) => engines[0].rest.is_loading(),
        }
    }

    /// One of the engines in hand, by its position among them. It learns the stamp of the one used before, so that
    /// the effects of one command are ordered across shards as the handler made them.
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

    /// How many engines are in hand.
    pub fn engine_count(&self) -> usize {
        match &self.engines {
            Engines::One(_) => 1,
            Engines::Many(engines) => engines.len(),
        }
    }

    /// The keyspace of each engine in hand, for commands over whole databases.
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

/// What the command that runs leaves in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Statement {
    /// Nothing is asked for.
    #[default]
    Off,
    /// Itself, if it changed anything.
    Itself,
    /// Itself, whether it changed anything or not.
    ItselfAnyway,
    /// What the handler said: something else, or nothing.
    Said,
}

/// What the visits of an each-shard command bring together.
#[derive(Default)]
pub struct Gather {
    /// Elements counted so far.
    pub count: i64,
    /// Elements themselves.
    pub elements: Bulks,
    /// What is to be put in order before it is an answer.
    pub rows: Vec<Vec<u8>>,
    /// Elements looked at, whether they fit or not.
    pub visited: u64,
    /// Where the next call goes on.
    pub cursor: u64,
    /// No more shards need to be visited.
    pub done: bool,
    /// Where the next visit of the same shard goes on; 0 if nothing is left to do there.
    pub position: u64,
    /// Behind the last shard, the first one is visited again.
    pub goes_around: bool,
    /// In a cluster, whose which slot is.
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

/// What the session does after a session handler returns.
#[derive(Clone, Debug, Default)]
pub enum After {
    /// Go on with the next request.
    #[default]
    Nothing,
    /// Go on with the next request, under the configuration that has just changed.
    Configured,
    /// Send what is in the output, then close.
    Close,
    /// Answer nothing yet, and run no further request of this connection, until something happens.
    Block(Block),
    /// Answer nothing yet: the server does, when it has carried this out.
    Migrate(Box<Migration>),
    /// Answer nothing yet: others work on what the reply waits for.
    Await(Awaited),
    /// Send what is in the output, and leave the connection to the task that serves replicas.
    Follow(Box<Follow>),
    /// Stop the server.
    Shutdown,
}

/// What ends a wait beside its time.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Whether what a connection waits for has come: asked when the wait begins and after each nudge. It writes the
    /// reply then. When the time is over (the flag) it has to, in place of [`Block::on_timeout`].
    pub has_come:
        fn(&dyn Server, &Connection, Wanted, bool, &mut super::Out) -> Option<CommandResult>,
    /// How much of it is waited for.
    pub wanted: Wanted,
}

/// How many must have what a connection wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The append-only file here.
    pub local: bool,
    /// Replicas.
    pub replicas: u64,
}

/// What a connection waits for that has no reply yet: its time, or CLIENT UNBLOCK.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Unix milliseconds; none: for ever.
    pub until_ms: Option<u64>,
    /// The reply when the time is over.
    pub on_timeout: fn(&mut super::Out),
    /// What else ends the wait, if anything does.
    pub look: Option<Look>,
    /// In a transaction, which waits for nothing, the time passes all the same (DEBUG SLEEP): the command is postponed,
    /// see [`Command::is_postponed`]. In a script it passes with the script's shards in hand.
    pub holds: bool,
}

/// What a session handler works on.
pub struct SessionCx<'a> {
    /// The connection.
    pub client: &'a mut Connection,
    /// The server.
    pub server: &'a dyn Server,
    /// The configuration as it is now.
    pub config: &'a Arc<Config>,
    /// The moment.
    pub now: Now,
    /// The row that is running.
    pub command: &'static Command,
    /// What happens next.
    pub after: After,
    /// Where that goes which is meant for others.
    pub outbox: Outbox<'a>,
}

impl SessionCx<'_> {
    /// The user that the connection is.
    pub fn user(&self) -> Arc<Handle> {
        let user = self.client.shared.user();
        user.unwrap_or_else(|| Arc::clone(self.server.users().default()))
    }

    /// Whether the bound of texts holds for what this connection loads.
    pub(super) fn text_bound(&self) -> TextBound {
        match self.client.origin.replays() {
            true => TextBound::Lifted,
            false => TextBound::Holds,
        }
    }
}

/// Where a command puts what is meant for other connections.
pub enum Outbox<'a> {
    /// No shard is in hand: it goes at once, or with what follows in the turn.
    Open(&'a mut Outgoing),
    /// Some are: it is kept until they are let go. What the client is sent itself comes behind the reply of EXEC.
    Pending(&'a mut Vec<Publication>, &'a mut Records),
}

impl Outbox<'_> {
    /// Whether the command is one of a transaction's, or of a script's.
    pub fn is_of_transaction(&self) -> bool {
        !matches!(self, Outbox::Open(_))
    }
}
