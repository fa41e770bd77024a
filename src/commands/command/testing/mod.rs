//! A `redis-cli` over engines in this process, for the tests of command families.
//!
//! No socket, no session, no thread: a request is looked up, routed and run as the server would run it, and the reply
//! is rendered as `redis-cli` shows it on a terminal. Access control, transactions and blocking do not exist here.
//!
//! ```text
//! let mut cli = Terminal::new();               // one shard, RESP2
//! cli.check("SET k 1 EX 10", "OK");
//! cli.check("GET k", "\"1\"");
//! cli.advance_ms(10_000);
//! cli.check("GET k", "(nil)");
//! on_every_setup(|cli| cli.check("MSET a 1 b 2", "OK"));   // 1 and 4 shards, RESP2 and RESP3
//! ```
//!
//! After every request, asserts that a command declared READONLY has changed nothing except by deleting expired keys.

pub mod building;
mod kept_log;
pub mod payloads;
mod replication;
mod request;
mod server;
mod state;
#[cfg(test)]
mod transcript;

use std::fmt::Write as _;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::mpsc;

use super::Out;
use super::args::{Args, RoutedKey};
use super::context::{After, ClientView, Engines, Gather, Outbox, SessionCx, ShardCx, ShardPlace};
use super::declaration::{Command, CommandResult, Flags, Run};
use super::error::CommandError;
use super::prepared::{Built, Prepared};
use super::registry::{registry, resolve};
use super::{keys, notes};
use crate::client::connection::Connection;
use crate::client::registry::Registry;
use crate::client::shared::Shared;
use crate::command::host::Told;
use crate::command::host::cluster::Cluster;
use crate::config::Config;
use crate::config::values::ClusterMode;
use crate::pubsub::outgoing::Outgoing;
use basalt_core::base::hash::{HashSeed, slot};
use basalt_core::base::sizes;
use basalt_core::base::text::{self, split_arguments};
use basalt_core::resp::reply::Protocol;
use basalt_core::resp::request::{Arena, Span};
use basalt_core::structures::block::{Content, LONG_BYTES_MIN, SharedBlock};
use basalt_core::structures::table::EntrySlot;
use basalt_engine::effect::Effect;
use basalt_engine::fences::FenceSource;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::record::{self, Audience, Records};
use basalt_engine::value::list;
use basalt_engine::{Engine, Key, Now, note};
pub use kept_log::{Appended, KeptLog};
use request::index_keys;
pub use request::with_request;
pub use server::{NoServer, no_server};
pub use state::state;
#[cfg(test)]
pub(crate) use transcript::{check_transcript, check_transcript_before};

const SEED: HashSeed = HashSeed { k0: 1, k1: 2 };
const DATABASES: usize = 16;

/// A `redis-cli` over engines in this process, see the module.
pub struct Terminal {
    /// The engines of the server's shards.
    pub engines: Vec<Engine>,
    /// The configuration; change it before or between requests.
    pub config: Arc<Config>,
    /// The clock, in Unix milliseconds.
    pub now_ms: u64,
    /// The connection: database, protocol, name.
    pub connection: Connection,
    /// The action that the last session command left for the session.
    pub after: After,
    server: NoServer,
    log: Option<Arc<KeptLog>>,
    keeps_records: bool,
    /// The value that was built for the next request.
    prepared: Option<Prepared>,
}

impl Default for Terminal {
    fn default() -> Terminal {
        Terminal::new()
    }
}

impl Terminal {
    /// Creates a terminal with one shard and RESP2.
    pub fn new() -> Terminal {
        Terminal::with(1, Protocol::Resp2)
    }

    /// Creates a terminal with `shard_count` shards (a power of two) and a protocol.
    pub fn with(shard_count: usize, protocol: Protocol) -> Terminal {
        sizes::shrink();
        assert!(shard_count.is_power_of_two(), "shards are a power of two");
        let fence_source = Arc::<FenceSource>::default();
        let engine = |number: usize| {
            let mut engine = Engine::new(DATABASES, SEED, number as u64 + 1);
            engine.fence_source = Arc::clone(&fence_source);
            engine.effects.set_recording(true);
            engine.shard = number as u16;
            engine
        };
        let now_ms = 1_700_000_000_000;
        let address = String::from("127.0.0.1:50000");
        let shared = Shared::new(1, address.clone(), address, 8, false, now_ms);
        let mut connection = Connection::new(Arc::new(shared), true);
        connection.protocol = protocol;
        Terminal {
            engines: (0..shard_count).map(engine).collect(),
            config: Arc::new(Config::default()),
            now_ms,
            connection,
            after: After::Nothing,
            server: NoServer::default(),
            log: None,
            keeps_records: false,
            prepared: None,
        }
    }

    /// Makes the server emulate a whole cluster; must be called before the first key is created.
    pub fn be_cluster(&mut self) {
        Arc::make_mut(&mut self.config).cluster_enabled = ClusterMode::Emulated;
        let shard_count = self.engines.len() as u16;
        for engine in &mut self.engines {
            engine.keep_slots(shard_count);
        }
    }

    /// Starts to log the commands' records, see [`Terminal::logged`].
    pub fn start_log(&mut self) {
        let log = Arc::<KeptLog>::default();
        for engine in &mut self.engines {
            engine.effects.set_log(Arc::clone(&log) as _);
            engine
                .effects
                .interest()
                .set_listening(Audience::FILE, true);
        }
        let interest = self.server.pubsub.interest();
        interest.set_listening(Audience::FILE, true);
        interest.set_listening(Audience::REPLICAS, true);
        self.server.log = Some(Arc::clone(&log));
        self.log = Some(log);
    }

    /// Makes the server a node of this cluster.
    pub fn join(&mut self, cluster: Box<dyn Cluster>) {
        Arc::make_mut(&mut self.config).cluster_enabled = ClusterMode::Yes;
        self.server.cluster = Some(cluster);
    }

    /// Removes all readers of the log, so that no records need to be made.
    pub fn stop_listening(&mut self) {
        for engine in &self.engines {
            engine
                .effects
                .interest()
                .set_listening(Audience::FILE, false);
        }
        let interest = self.server.pubsub.interest();
        interest.set_listening(Audience::FILE, false);
        interest.set_listening(Audience::REPLICAS, false);
    }

    /// Sets whether records are kept pending, as in a transaction until it ends, or appended.
    pub fn stop_appending(&mut self, keeps_records: bool) {
        self.keeps_records = keeps_records;
    }

    /// Returns what was logged since the last call.
    pub fn logged(&mut self) -> Vec<Appended> {
        self.log.as_ref().expect("it was started").take()
    }

    /// Returns the server's connections: none, unless a test adds some.
    pub fn clients(&self) -> &Registry {
        &self.server.clients
    }

    /// Returns the number of changes so far (`rdb_changes_since_last_save` in INFO).
    pub fn dirty(&self) -> u64 {
        let all_published = self.engines.iter().map(Engine::published);
        all_published.map(|published| published.dirty.get()).sum()
    }

    /// Runs one request, typed as at a prompt, and renders the reply.
    pub fn run(&mut self, line: &str) -> String {
        let mut bytes = Vec::new();
        let mut ranges = Vec::new();
        split_arguments(line.as_bytes(), &mut bytes, |range| ranges.push(range))
            .expect("balanced quotes");
        let arguments: Vec<&[u8]> = ranges.into_iter().map(|range| &bytes[range]).collect();
        self.run_args(&arguments)
    }

    /// Runs a request whose value was built before.
    pub fn run_with(&mut self, line: &str, built: Built) -> String {
        self.prepared = Some(Prepared::new(built));
        self.run(line)
    }

    /// Runs one request given as arguments, and renders the reply.
    pub fn run_args(&mut self, arguments: &[impl AsRef<[u8]>]) -> String {
        render(&self.reply_bytes(arguments))
    }

    /// Runs one request; returns the reply as sent to clients.
    pub fn reply_bytes(&mut self, arguments: &[impl AsRef<[u8]>]) -> Vec<u8> {
        // Long arguments are in blocks, as a connection receives them.
        let blocks = arguments.iter().map(AsRef::as_ref).map(|argument| {
            let is_long = argument.len() >= LONG_BYTES_MIN;
            is_long.then(|| SharedBlock::new(argument))
        });
        let blocks: Vec<Option<SharedBlock>> = blocks.collect();
        let contents = arguments.iter().zip(&blocks);
        let contents: Vec<Content<'_>> = contents
            .map(|(argument, block)| match block {
                Some(block) => Content::from(block),
                None => Content::from(argument.as_ref()),
            })
            .collect();
        self.reply_to(&contents)
    }

    /// Like [`Terminal::reply_bytes`], for arguments that may be blocks.
    pub fn reply_to(&mut self, arguments: &[Content<'_>]) -> Vec<u8> {
        let name = &arguments[0];
        let Some(command) = registry().find(name) else {
            let mut out = Out::new(self.connection.protocol);
            let name = String::from_utf8_lossy(name).into_owned();
            out.error(format!("ERR unknown command '{name}'"));
            return wire(&out);
        };
        let second = arguments.get(1).map(|second| &**second);
        self.reply_of(resolve(command, second), arguments)
    }

    /// Runs a record of the log, like a server that reads it: a note is the command that it contains.
    pub fn replay(&mut self, record: &[impl AsRef<[u8]>]) -> String {
        let words: Vec<&[u8]> = record.iter().map(AsRef::as_ref).collect();
        if !note::is_note(words.len(), |at| words[at]) {
            return self.run_args(record);
        }
        let words = &words[note::HEAD.len()..];
        let command = notes::find(words.len(), |at| words[at]).expect("a note");
        let contents: Vec<Content<'_>> = words.iter().map(|word| Content::from(*word)).collect();
        render(&self.reply_of(command, &contents))
    }

    fn reply_of(&mut self, command: &'static Command, arguments: &[Content<'_>]) -> Vec<u8> {
        let (mut buffer, mut arena) = (Vec::new(), Arena::default());
        let mut spans = Vec::new();
        for argument in arguments {
            spans.push(match argument.block() {
                Some(block) => arena.push(block.clone()),
                None => Span::in_buffer(buffer.len(), argument.len()),
            });
            let is_short = argument.block().is_none();
            buffer.extend_from_slice(if is_short { argument } else { b"" });
        }
        let argument = |index: usize| spans[index].bytes(&buffer, &arena);
        let mut out = Out::new(self.connection.protocol);
        if !command.accepts(spans.len()) {
            let error = CommandError::Arity(command.full_name);
            out.error(command.error_text(&error).as_bytes());
            return wire(&out);
        }
        let mut routed = Vec::new();
        let mask = self.engines.len() as u16 - 1;
        // A wrong count of keys leaves the command without keys; its handler reports the error.
        let _ = keys::positions(command, spans.len(), argument, |at, _| {
            let (hash, shard) = (SEED.hash(argument(at)), slot(argument(at)) & mask);
            routed.push(RoutedKey {
                hash,
                argument: at as u32,
                shard,
                engine_index: 0,
            });
        });
        let mut in_hand = index_keys(&mut routed);
        if in_hand.is_empty() {
            in_hand.push(0);
        }
        if command.needs_all_shards(&Args::new(&buffer, &arena, &spans, &[])) {
            in_hand = (0..=mask).collect();
            routed
                .iter_mut()
                .for_each(|key| key.engine_index = key.shard);
        }
        let named = command.flags.has(Flags::NAMES_FIELDSET);
        let fieldset = named.then(|| self.connection.fieldset(argument(3)));
        let prepared = fieldset.flatten().map(Prepared::Fieldset);
        let prepared = self.prepared.take().or(prepared);
        let args = Args::new(&buffer, &arena, &spans, &routed).with_prepared(prepared.as_ref());
        let before = self.changes();
        let result = self.dispatch(command, &args, &in_hand, &mut out);
        if let Err(error) = result {
            out.error(command.error_text(&error).as_bytes());
        }
        // PFCOUNT is exempt, as it caches its count in the value.
        if command.flags.has(Flags::READONLY) && !command.flags.has(Flags::MAY_REPLICATE) {
            assert_eq!(self.changes(), before, "{} is read-only", command.full_name);
        }
        if self.log.is_some() && !self.keeps_records {
            let mut engines: Vec<&mut Engine> = self.engines.iter_mut().collect();
            record::append(&mut engines, &mut Records::default(), true);
        }
        for engine in &mut self.engines {
            engine.deferred.settle();
        }
        wire(&out)
    }

    fn dispatch(
        &mut self,
        command: &'static Command,
        args: &Args<'_>,
        in_hand: &[u16],
        out: &mut Out,
    ) -> CommandResult {
        let every: Vec<u16> = (0..self.engines.len() as u16).collect();
        match command.run {
            Run::Keys(handler) => {
                self.with_shards(command, args, in_hand, |cx| handler(cx, args, out))
            }
            Run::AllShards(handler) => {
                self.with_shards(command, args, &every, |cx| handler(cx, args, out))
            }
            Run::EachShard(part, merge) | Run::Cursor(_, part, merge) => {
                let mut gather = Gather::default();
                let first = match command.run {
                    Run::Cursor(shard_of, ..) => shard_of(args, self.engines.len() as u16)?,
                    _ => 0,
                };
                for shard in first..self.engines.len() as u16 {
                    if gather.done {
                        break;
                    }
                    self.with_shards(command, args, &[shard], |cx| part(cx, args, &mut gather))?;
                    while gather.position != 0 {
                        let visit = |cx: &mut ShardCx<'_>| part(cx, args, &mut gather);
                        self.with_shards(command, args, &[shard], visit)?;
                    }
                }
                merge(args, gather, out)
            }
            Run::Session(handler) => {
                let mut outgoing = Outgoing::default();
                let mut cx = SessionCx {
                    client: &mut self.connection,
                    server: &self.server,
                    config: &self.config,
                    now: Now {
                        unix_ms: self.now_ms,
                    },
                    command,
                    after: After::Nothing,
                    outbox: Outbox::Open(&mut outgoing),
                };
                let result = handler(&mut cx, args, out);
                self.after = cx.after;
                self.server.pubsub.post_gathered(&mut outgoing);
                if let After::Await(awaited) = &self.after {
                    // No other work is in progress here, so this ends at once.
                    let (said, hears) = mpsc::channel();
                    (awaited.begin)(Box::new(move |done| said.send(done).expect("heard below")));
                    let done = hears.recv().expect("it is over")?;
                    match awaited.told {
                        Told::Text(text) => out.simple(text),
                        Told::ByWork => out.simple(done),
                        Told::Nothing => {}
                    }
                }
                result
            }
            Run::Transaction(_) => Err(CommandError::from("ERR no transactions here")),
            Run::Script(_) => Err(CommandError::from("ERR no scripts here")),
            Run::Container(_) => Err(CommandError::from("ERR unknown subcommand")),
        }
    }

    fn with_shards(
        &mut self,
        command: &'static Command,
        args: &Args<'_>,
        in_hand: &[u16],
        body: impl FnOnce(&mut ShardCx<'_>) -> CommandResult,
    ) -> CommandResult {
        let client = ClientView::of(&self.connection);
        let now = Now {
            unix_ms: self.now_ms,
        };
        let place = ShardPlace {
            index: in_hand[0],
            count: self.engines.len() as u16,
        };
        let mut wanted: Vec<&mut Engine> = self
            .engines
            .iter_mut()
            .enumerate()
            .filter(|(number, _)| in_hand.contains(&(*number as u16)))
            .map(|(_, engine)| engine)
            .collect();
        let engines = match wanted.len() {
            1 => Engines::One(wanted.pop().expect("one")),
            _ => Engines::Many(wanted),
        };
        let mut cx = ShardCx::new(engines, client, now, &self.config, command, place, args);
        cx.logged(args, |cx| body(cx))
    }

    /// Returns the number of changes so far, without those by expiry.
    fn changes(&self) -> u64 {
        let of = |engine: &Engine| engine.effects.dirty() - engine.effects.by_clock();
        self.engines.iter().map(of).sum()
    }

    /// Runs a request and asserts what `redis-cli` would show.
    #[track_caller]
    pub fn check(&mut self, line: &str, expected: &str) {
        assert_eq!(self.run(line), expected, "{line}");
    }

    /// Runs several requests in order and asserts their replies.
    #[track_caller]
    pub fn check_all(&mut self, dialogue: &[(&str, &str)]) {
        for (line, expected) in dialogue {
            self.check(line, expected);
        }
    }

    /// Stores a value at a key that is not a string.
    pub fn put_other_type(&mut self, key: &str) {
        let mask = self.engines.len() as u16 - 1;
        let engine = &mut self.engines[usize::from(slot(key.as_bytes()) & mask)];
        let mut keyspace = engine.keyspace(
            self.connection.db,
            Now {
                unix_ms: self.now_ms,
            },
        );
        let key = Key::new(key.as_bytes(), SEED);
        let found = keyspace.find_write(&key);
        keyspace.put_entry(&key, found, list::empty_entry(key.bytes));
    }

    /// Advances the clock.
    pub fn advance_ms(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    /// Changes the configuration.
    pub fn configure(&mut self, change: impl FnOnce(&mut Config)) {
        change(Arc::make_mut(&mut self.config));
    }

    /// Returns the effects since the last call, in the order of their stamps.
    pub fn effects(&mut self) -> Vec<Effect> {
        let mut all: Vec<Effect> = self
            .engines
            .iter_mut()
            .flat_map(|engine| engine.effects.take())
            .collect();
        all.sort_by_key(|effect| effect.stamp);
        all
    }

    /// Returns the effects since the last call, as `class:event key`, sorted by stamp and joined with commas.
    pub fn events(&mut self) -> String {
        let mut text = String::new();
        for effect in self.effects() {
            let separator = if text.is_empty() { "" } else { ", " };
            let class = char::from(effect.event.class);
            let key = String::from_utf8_lossy(&effect.key);
            let _ = write!(text, "{separator}{class}:{} {key}", effect.event.name);
        }
        text
    }

    /// Returns the OBJECT ENCODING of a key, read from the engine; `none` if it does not exist.
    pub fn encoding(&mut self, key: &str) -> &'static str {
        self.look(key, |keyspace, place| {
            keyspace.kind(place).encoding().name()
        })
        .unwrap_or("none")
    }

    /// Returns the milliseconds that a key has left, read from the engine; -1 without deadline, -2 if it does not
    /// exist.
    pub fn ttl_ms(&mut self, key: &str) -> i64 {
        let now_ms = self.now_ms;
        self.look(key, |keyspace, place| {
            match keyspace.entry(place).deadline() {
                Some(at_ms) => at_ms as i64 - now_ms as i64,
                None => -1,
            }
        })
        .unwrap_or(-2)
    }

    fn look<R>(
        &mut self,
        key: &str,
        read: impl FnOnce(&Keyspace<'_>, EntrySlot) -> R,
    ) -> Option<R> {
        let mask = self.engines.len() as u16 - 1;
        let engine = &mut self.engines[usize::from(slot(key.as_bytes()) & mask)];
        let mut keyspace = engine
            .keyspace(
                self.connection.db,
                Now {
                    unix_ms: self.now_ms,
                },
            )
            .untouched();
        let key = Key::new(key.as_bytes(), SEED);
        let place = keyspace.find_write(&key)?;
        Some(read(&keyspace, place))
    }
}

/// Runs a test on one shard and on several, in both protocols.
pub fn on_every_setup(mut test: impl FnMut(&mut Terminal)) {
    for shard_count in [1, 4] {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            test(&mut Terminal::with(shard_count, protocol));
        }
    }
}

/// Checks one request on a fresh server.
#[track_caller]
pub fn check(line: &str, expected: &str) {
    Terminal::new().check(line, expected);
}

/// Checks one dialogue on every setup.
#[track_caller]
pub fn check_all(dialogue: &[(&str, &str)]) {
    on_every_setup(|cli| cli.check_all(dialogue));
}

/// Returns the bytes of replies.
pub fn wire(out: &Out) -> Vec<u8> {
    let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(10_000);
    out.io_slices(&mut slices);
    slices
        .iter()
        .flat_map(|slice| slice.iter().copied())
        .collect()
}

/// Renders a reply as `redis-cli` shows it on a terminal, without the last line end.
pub fn render(reply: &[u8]) -> String {
    let mut reader = Reader { rest: reply };
    let mut text = reader.reply("");
    assert!(
        reader.rest.is_empty(),
        "one reply and nothing behind it: {}",
        reply.escape_ascii()
    );
    assert_eq!(text.pop(), Some('\n'));
    text
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn line(&mut self) -> &'a str {
        let end = self
            .rest
            .windows(2)
            .position(|two| two == b"\r\n")
            .expect("a line end");
        let (line, rest) = self.rest.split_at(end);
        self.rest = &rest[2..];
        std::str::from_utf8(line).expect("lines are text")
    }

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest
            .strip_prefix(b"\r\n")
            .expect("a line end behind a string");
        bytes
    }

    fn reply(&mut self, prefix: &str) -> String {
        let line = self.line();
        let (kind, head) = line.split_at(1);
        let length = || head.parse::<i64>().expect("a length");
        match kind {
            "+" => format!("{head}\n"),
            "-" => format!("(error) {head}\n"),
            ":" => format!("(integer) {head}\n"),
            "," => format!("(double) {head}\n"),
            "(" => format!("{head}\n"),
            "_" => "(nil)\n".into(),
            "#" => if head == "t" { "(true)\n" } else { "(false)\n" }.into(),
            "$" | "*" if length() < 0 => "(nil)\n".into(),
            "$" => format!("{}\n", text::quoted(self.bytes(length() as usize))),
            "=" => {
                let text = self.bytes(length() as usize);
                format!("{}\n", String::from_utf8_lossy(&text[4..]))
            }
            "*" => self.aggregate(prefix, length() as usize, ')', "(empty array)\n"),
            "~" => self.aggregate(prefix, length() as usize, '~', "(empty set)\n"),
            ">" => self.aggregate(prefix, length() as usize, '>', "(empty push)\n"),
            "%" => self.aggregate(prefix, length() as usize, '#', "(empty hash)\n"),
            _ => panic!("a reply of unknown kind: {line}"),
        }
    }

    fn aggregate(&mut self, prefix: &str, count: usize, separator: char, empty: &str) -> String {
        if count == 0 {
            return empty.into();
        }
        let width = count.to_string().len();
        let inner = format!("{prefix}{}", " ".repeat(width + 2));
        let mut text = String::new();
        for index in 1..=count {
            let before = if index == 1 { "" } else { prefix };
            let _ = write!(text, "{before}{index:>width$}{separator} ");
            text += &self.reply(&inner);
            if separator == '#' {
                text.pop();
                text += " => ";
                if matches!(self.rest, [b'*' | b'%' | b'~' | b'>', b'1'..=b'9', ..]) {
                    let _ = write!(text, "\n{inner}");
                }
                text += &self.reply(&inner);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_look_as_in_redis_cli() {
        for (reply, text) in [
            (&b"+OK\r\n"[..], "OK"),
            (b"-ERR no\r\n", "(error) ERR no"),
            (b":-3\r\n", "(integer) -3"),
            (b"$-1\r\n", "(nil)"),
            (b"_\r\n", "(nil)"),
            (b"$4\r\na\"\x00\n\r\n", "\"a\\\"\\x00\\n\""),
            (b"*0\r\n", "(empty array)"),
            (
                b"*2\r\n:1\r\n*2\r\n:2\r\n$1\r\nx\r\n",
                "1) (integer) 1\n2) 1) (integer) 2\n   2) \"x\"",
            ),
            (b"%1\r\n+a\r\n,1.5\r\n", "1# a => (double) 1.5"),
            (b"#t\r\n", "(true)"),
        ] {
            assert_eq!(render(reply), text);
        }
    }
}
