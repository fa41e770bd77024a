//! What a command is: one row per command, from which routing, admission, COMMAND, metrics and tests all derive.
//!
//! A row is a `static` built by `const fn`s directly above its handler. It does not know who calls it: the session
//! looks a command up once by name and from then on carries `&'static Command`.

mod flags;
mod keys;
mod reach;

use std::sync::atomic::{AtomicU16, Ordering};

pub use flags::{Categories, Flags, KeyFlags};
use keys::are_ruled;
pub use keys::{BeginSearch, FindKeys, KeySpec, LoneKey};
pub use reach::{Channels, Databases, KeyFlagsOf, PositionsFinder, ReadArgument};

use super::context::{Gather, SessionCx, ShardCx};
use super::error::{CommandError, ErrorText};
use super::prepared::Builder;
use super::{Args, Out};
use crate::acl::selector::Used;
use basalt_core::structures::quicklist::End;

/// What a handler answers: its reply is already in the output, or an error is written for it.
pub type CommandResult<T = ()> = Result<T, CommandError>;

/// A handler that runs with the shards of its keys in hand.
pub type ShardHandler = fn(&mut ShardCx<'_>, &Args<'_>, &mut Out) -> CommandResult;

/// A handler that works on the connection or the server and touches no keyspace.
pub type SessionHandler = fn(&mut SessionCx<'_>, &Args<'_>, &mut Out) -> CommandResult;

/// One visit of a command that goes from shard to shard.
pub type PartHandler = fn(&mut ShardCx<'_>, &Args<'_>, &mut Gather) -> CommandResult;

/// Turns what the visits gathered into the reply.
pub type MergeHandler = fn(&Args<'_>, Gather, &mut Out) -> CommandResult;

/// Names the shard that a cursor continues in, given the number of shards.
pub type CursorShard = fn(&Args<'_>, u16) -> Result<u16, CommandError>;

/// Finds a key that no specification can express, given the number of arguments and a way to read them: where it
/// stands, and what is done with it.
pub type KeyFinder = for<'r, 'a> fn(usize, ReadArgument<'r, 'a>) -> Option<(usize, KeyFlags)>;

/// Finds the word behind which a command's keys begin, where a word before it, which is a name, may read the same.
pub type KeywordFinder = for<'r, 'a> fn(usize, ReadArgument<'r, 'a>) -> Option<usize>;

/// How many arguments at the end of a request are options, given the number of arguments and a way to read them.
pub type TailFinder = for<'r, 'a> fn(usize, ReadArgument<'r, 'a>) -> usize;

/// How a command meets the shards.
#[derive(Clone, Copy)]
pub enum Run {
    /// The shards of the declared keys are in hand, one or many.
    Keys(ShardHandler),
    /// Every shard is in hand at once.
    AllShards(ShardHandler),
    /// Shard by shard, one token at a time.
    EachShard(PartHandler, MergeHandler),
    /// Shard by shard from the one that rides in the cursor, until [`Gather::done`].
    Cursor(CursorShard, PartHandler, MergeHandler),
    /// Never touches a keyspace.
    Session(SessionHandler),
    /// Begins, runs or ends a transaction.
    Transaction(TransactionVerb),
    /// Runs a script or a function, which runs commands.
    Script(ScriptVerb),
    /// Holds subcommands of the same shape; alone it only reports them.
    Container(&'static [&'static Command]),
}

/// What a client asks to be done with its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Redis's own")]
pub enum TransactionVerb {
    Multi,
    Exec,
    Discard,
    Unwatch,
}

/// What a client asks to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Redis's own")]
pub enum ScriptVerb {
    Eval,
    EvalRo,
    EvalSha,
    EvalShaRo,
    Fcall,
    FcallRo,
}

/// The group that documentation and default ACL categories go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Redis's own")]
pub enum Group {
    Generic,
    String,
    List,
    Set,
    SortedSet,
    Hash,
    PubSub,
    Transactions,
    Connection,
    Server,
    Scripting,
    HyperLogLog,
    Cluster,
    Sentinel,
    Geo,
    Stream,
    Bitmap,
    Bloom,
    Cuckoo,
    CountMin,
    TopK,
    TDigest,
    Lock,
}

impl Group {
    /// The name in COMMAND DOCS.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Hash => "hash",
            Group::PubSub => "pubsub",
            Group::Transactions => "transactions",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Scripting => "scripting",
            Group::HyperLogLog => "hyperloglog",
            Group::Cluster => "cluster",
            Group::Sentinel => "sentinel",
            Group::Geo => "geo",
            Group::Stream => "stream",
            Group::Bitmap => "bitmap",
            Group::Bloom => "bf",
            Group::Cuckoo => "cf",
            Group::CountMin => "cms",
            Group::TopK => "topk",
            Group::TDigest => "tdigest",
            Group::Lock => "lock",
        }
    }
}

/// What of a collection is fetched into the cache before a command runs, if it runs in a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// Nothing.
    Nothing,
    /// One end of a list.
    End(End),
    /// Where the element that this argument names stands, or would stand, in a large table.
    Element(usize),
}

/// Positions of arguments: the first of them, and each so many behind it.
#[derive(Clone, Copy)]
struct Every {
    first: usize,
    step: usize,
}

impl Every {
    const NONE: Every = Every {
        first: usize::MAX,
        step: 1,
    };

    fn has(self, position: usize) -> bool {
        let behind = position.checked_sub(self.first);
        behind.is_some_and(|behind| behind.is_multiple_of(self.step))
    }
}

/// One command: see the module.
pub struct Command {
    /// Lower case; a subcommand's own word only.
    pub name: &'static str,
    /// `container|sub` for subcommands, else the name.
    pub full_name: &'static str,
    /// Documentation group.
    pub group: Group,
    /// Arguments with the name; negative: at least so many.
    pub arity: i32,
    /// Admission and routing.
    pub flags: Flags,
    /// ACL categories beyond those that group and flags give.
    pub extra_categories: Categories,
    /// Where its keys stand.
    pub keys: &'static [KeySpec],
    /// The key of requests that have no other, as `keys` say.
    pub lone_key: LoneKey,
    /// First version of Redis or Valkey that had it, or [`Command::OWN`].
    pub since: &'static str,
    /// Arguments in the notation of the reference manual.
    pub syntax: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Cost in the O notation.
    pub complexity: &'static str,
    /// Version and change.
    pub history: &'static [(&'static str, &'static str)],
    /// Hints for clients of a cluster.
    pub tips: &'static [&'static str],
    /// Since when another command is better, and which.
    pub deprecated: Option<(&'static str, &'static str)>,
    /// How it meets the shards.
    pub run: Run,
    /// Finds the key that `keys` can not express.
    pub key_finder: Option<KeyFinder>,
    /// Finds the word that `keys` only name.
    pub keyword_finder: Option<KeywordFinder>,
    /// How many arguments at the end belong to no key specification.
    pub options_at_end: Option<TailFinder>,
    /// The arguments that are channels.
    pub channels: Channels,
    /// The databases that it reads or changes.
    pub databases: Databases,
    /// Computes the flags of its first key from the request, if [`KeyFlags::VARIABLE_FLAGS`] is set.
    pub key_flags_of: Option<KeyFlagsOf>,
    /// Whether a request reads keys that are made of data, and so of any name; if so, the error for a user who may not.
    pub reads_any_key: Option<fn(&Args<'_>) -> Option<&'static str>>,
    needs_all_shards: Option<fn(&Args<'_>) -> bool>,
    secrets: Option<fn(&Args<'_>, usize) -> bool>,
    postponed: Option<fn(&Args<'_>) -> bool>,
    kept: Every,
    /// See [`Command::builds`].
    pub builds: Option<Builder>,
    /// What it reads of the collection under its key.
    pub ahead: Ahead,
    subcommands: &'static [&'static Command],
    tells_usage: bool,
    id: AtomicU16,
    rule_id: AtomicU16,
}

/// A syntax line for people: without types and key specifications.
fn usage_of(line: &str) -> String {
    let mut text = String::new();
    let mut is_left_out = false;
    for letter in line.chars() {
        is_left_out = match letter {
            ':' | '@' => true,
            ' ' | ']' | '>' | '|' => false,
            _ => is_left_out,
        };
        if !is_left_out {
            text.push(letter);
        }
    }
    text
}

/// A test that is true of all requests of a command.
pub fn always(_: &Args<'_>) -> bool {
    true
}

fn not_declared(_: &mut SessionCx<'_>, _: &Args<'_>, _: &mut Out) -> CommandResult {
    Err(CommandError::from("ERR this command has no handler"))
}

impl Command {
    /// First version of commands that no version of Redis or Valkey has.
    pub const OWN: &'static str = "basalt 0.1.0";

    /// A row; the builder calls that follow fill it, and `on_…` ends it.
    pub const fn new(name: &'static str, group: Group, arity: i32) -> Command {
        Command {
            name,
            full_name: name,
            group,
            arity,
            flags: Flags::NONE,
            extra_categories: Categories::NONE,
            keys: &[],
            lone_key: LoneKey::NONE,
            since: "",
            syntax: "",
            summary: "",
            complexity: "O(1)",
            history: &[],
            tips: &[],
            deprecated: None,
            run: Run::Session(not_declared),
            key_finder: None,
            keyword_finder: None,
            options_at_end: None,
            channels: Channels::None,
            databases: Databases::Selected,
            key_flags_of: None,
            reads_any_key: None,
            needs_all_shards: None,
            secrets: None,
            postponed: None,
            kept: Every::NONE,
            builds: None,
            ahead: Ahead::Nothing,
            subcommands: &[],
            tells_usage: false,
            id: AtomicU16::new(u16::MAX),
            rule_id: AtomicU16::new(u16::MAX),
        }
    }

    /// A row inside a container: `full_name` is `container|sub`.
    pub const fn sub(
        full_name: &'static str,
        name: &'static str,
        group: Group,
        arity: i32,
    ) -> Command {
        let mut command = Command::new(name, group, arity);
        command.full_name = full_name;
        command
    }

    /// Derives what requests have no other key, whatever of the row was said first.
    const fn with_lone_key(mut self) -> Command {
        self.lone_key = match self.key_finder {
            Some(_) => LoneKey::NONE,
            None => LoneKey::of(self.keys),
        };
        self
    }

    /// Reads the keys of these specifications and changes nothing.
    pub const fn reads(mut self, keys: &'static [KeySpec]) -> Command {
        self.flags = self.flags.or(Flags::READONLY);
        self.names_keys(keys)
    }

    /// Changes the keys of these specifications.
    pub const fn writes(mut self, keys: &'static [KeySpec]) -> Command {
        self.flags = self.flags.or(Flags::WRITE);
        self.names_keys(keys)
    }

    /// Names keys; whether it is a read or a write is up to the arguments.
    pub const fn names_keys(mut self, keys: &'static [KeySpec]) -> Command {
        assert!(
            are_ruled(self.full_name, keys),
            "a key specification has neither ACCESS, INSERT, UPDATE nor DELETE, by which ACL rules judge it"
        );
        self.keys = keys;
        self.with_lone_key()
    }

    /// Sends to channels, or subscribes to them.
    pub const fn channels(mut self, channels: Channels) -> Command {
        self.channels = channels;
        self
    }

    /// Reads or changes other databases than the selected one.
    pub const fn databases(mut self, databases: Databases) -> Command {
        self.databases = databases;
        self
    }

    /// Does with its first key what the function says of a request.
    pub const fn key_flags_of(mut self, flags_of: KeyFlagsOf) -> Command {
        self.key_flags_of = Some(flags_of);
        self
    }

    /// Reads keys of any name for requests of which the function gives the error for users who may not.
    pub const fn reads_any_key_if(
        mut self,
        refusal: fn(&Args<'_>) -> Option<&'static str>,
    ) -> Command {
        self.reads_any_key = Some(refusal);
        self
    }

    /// Adds flags.
    pub const fn flags(mut self, flags: Flags) -> Command {
        self.flags = self.flags.or(flags);
        self
    }

    /// Changes nothing but its connection, or what may as well be changed twice: a unit that is undone may run it
    /// again.
    pub const fn repeatable(self) -> Command {
        self.flags(Flags::REPEATABLE)
    }

    /// Goes over as much of a large value, or of the keyspace, as it is asked to, so that it may have to run where no
    /// client waits for its thread, see [`super::context::Scales`].
    pub const fn takes_long(self) -> Command {
        self.flags(Flags::TAKES_LONG)
    }

    /// Adds ACL categories.
    pub const fn categories(mut self, categories: Categories) -> Command {
        self.extra_categories = self.extra_categories.or(categories);
        self
    }

    /// Since when, with which arguments, and what for.
    pub const fn doc(
        mut self,
        since: &'static str,
        syntax: &'static str,
        summary: &'static str,
    ) -> Command {
        self.since = since;
        self.syntax = syntax;
        self.summary = summary;
        self
    }

    /// Errors about the form of a request say how the command is used: no client's manual has it, as Redis has not.
    pub const fn with_usage(mut self) -> Command {
        self.tells_usage = true;
        self
    }

    /// An error of this command as it goes over the wire: Redis's words, by which tools know it, and the usage.
    #[cold]
    pub fn error_text<'e>(&self, error: &'e CommandError) -> ErrorText<'e> {
        let text = error.text();
        match (self.tells_usage, error) {
            (true, CommandError::Syntax | CommandError::Arity(_)) => {
                let name = self.full_name.replace('|', " ").to_uppercase();
                let usage = usage_of(self.syntax);
                text.with(&format!(": usage is {name} {usage}"))
            }
            _ => text,
        }
    }

    /// The cost, where it is not O(1).
    pub const fn complexity(mut self, text: &'static str) -> Command {
        self.complexity = text;
        self
    }

    /// Keeps this argument, if it is long, as the block that it came in: however long, it takes no time.
    pub const fn keeps_block(self, argument: usize) -> Command {
        self.keeps_blocks(argument, usize::MAX)
    }

    /// Keeps this argument, and each so many behind it, as blocks if they are long. Some of them may be something else,
    /// which is never long.
    pub const fn keeps_blocks(mut self, first: usize, step: usize) -> Command {
        self.kept = Every { first, step };
        self
    }

    /// Stores a value that follows from its arguments alone, and is made before its shard is in hand where that takes
    /// long.
    pub const fn builds(mut self, build: Builder) -> Command {
        self.builds = Some(build);
        self
    }

    /// Looks up the element that this argument names.
    pub const fn looks_up(mut self, argument: usize) -> Command {
        self.ahead = Ahead::Element(argument);
        self
    }

    /// Reads a list from this end on, which no command may have touched for long.
    pub const fn reads_from(mut self, end: End) -> Command {
        self.ahead = Ahead::End(end);
        self
    }

    /// What changed in which version.
    pub const fn history(mut self, rows: &'static [(&'static str, &'static str)]) -> Command {
        self.history = rows;
        self
    }

    /// Hints for clients of a cluster.
    pub const fn tips(mut self, tips: &'static [&'static str]) -> Command {
        self.tips = tips;
        self
    }

    /// Since this version another command is better: which one, in the words of the manual.
    pub const fn deprecated(mut self, since: &'static str, replaced_by: &'static str) -> Command {
        self.deprecated = Some((since, replaced_by));
        self
    }

    /// The shards of the declared keys are in hand when `handler` runs.
    pub const fn on_keys(mut self, handler: ShardHandler) -> Command {
        assert!(!self.keys.is_empty(), "on_keys needs declared keys");
        self.run = Run::Keys(handler);
        self
    }

    /// Finds one more key than the specifications can express, for which an unknown one stands.
    pub const fn finds_key(mut self, finder: KeyFinder) -> Command {
        self.key_finder = Some(finder);
        self.with_lone_key()
    }

    /// Finds the word behind which the keys begin as the command itself does; without it the first counts that reads
    /// so.
    pub const fn finds_keyword(mut self, finder: KeywordFinder) -> Command {
        self.keyword_finder = Some(finder);
        self
    }

    /// Specifications that count from the last argument do so from before the options at the end.
    pub const fn ends_with_options(mut self, finder: TailFinder) -> Command {
        self.options_at_end = Some(finder);
        self
    }

    /// All shards are in hand, not only those of the declared keys, for requests of this kind: they make keys of data,
    /// see [`ShardCx::at_derived`].
    pub const fn on_all_shards_if(mut self, test: fn(&Args<'_>) -> bool) -> Command {
        assert!(
            matches!(self.run, Run::Keys(_)),
            "it widens on_keys, which comes first"
        );
        self.needs_all_shards = Some(test);
        self
    }

    /// Carries secrets in the arguments for which the test is true; see [`Flags::SENSITIVE`] for all arguments.
    pub const fn hides(mut self, test: fn(&Args<'_>, usize) -> bool) -> Command {
        self.secrets = Some(test);
        self
    }

    /// Is postponed by transactions for requests of this kind, see [`Command::is_postponed`].
    pub const fn postponed_if(mut self, test: fn(&Args<'_>) -> bool) -> Command {
        self.postponed = Some(test);
        self
    }

    /// All shards are in hand when `handler` runs.
    pub const fn on_all_shards(mut self, handler: ShardHandler) -> Command {
        self.run = Run::AllShards(handler);
        self
    }

    /// Visits the shards one after the other, then merges.
    pub const fn on_each_shard(mut self, part: PartHandler, merge: MergeHandler) -> Command {
        self.run = Run::EachShard(part, merge);
        self
    }

    /// Visits shards from the one that the cursor names, until there is enough, then merges.
    pub const fn by_cursor(
        mut self,
        shard: CursorShard,
        part: PartHandler,
        merge: MergeHandler,
    ) -> Command {
        self.run = Run::Cursor(shard, part, merge);
        self
    }

    /// Is about a transaction; the session knows what to do.
    pub const fn on_transaction(mut self, verb: TransactionVerb) -> Command {
        self.run = Run::Transaction(verb);
        self
    }

    /// Runs a script or a function; which shards it needs shows while it runs.
    pub const fn on_script(mut self, verb: ScriptVerb) -> Command {
        self.run = Run::Script(verb);
        self
    }

    /// Touches no keyspace.
    pub const fn on_session(mut self, handler: SessionHandler) -> Command {
        self.run = Run::Session(handler);
        self
    }

    /// Holds subcommands.
    pub const fn container(mut self, children: &'static [&'static Command]) -> Command {
        self.subcommands = children;
        self.run = Run::Container(children);
        self
    }

    /// Holds subcommands and does something itself; ended by one of the `on_…` calls. The handler also gets the
    /// requests whose subcommand is none of these.
    pub const fn with_subcommands(mut self, children: &'static [&'static Command]) -> Command {
        self.subcommands = children;
        self
    }

    /// The databases that a request reads or changes, with the positions of the arguments that name them.
    pub fn databases_of(
        &self,
        argument_count: usize,
        argument: ReadArgument<'_, '_>,
        selected: usize,
    ) -> Vec<(usize, Used)> {
        let selected = self.is_in_selected_database().then_some(selected);
        self.databases.of(argument_count, argument, selected)
    }

    /// Whether it finds what it is about in the selected database: by the keys that it names, or by going over shards.
    pub fn is_in_selected_database(&self) -> bool {
        let is_key = |spec: &KeySpec| !spec.flags.has(KeyFlags::NOT_KEY);
        let goes_over = matches!(
            self.run,
            Run::AllShards(_) | Run::EachShard(..) | Run::Cursor(..)
        );
        goes_over || self.keys.iter().any(is_key)
    }

    /// Where its keys stand, as COMMAND INFO has it.
    pub fn listed_keys(&self) -> &'static [KeySpec] {
        let unlisted = self.keys.iter().position(|spec| !spec.is_listed);
        &self.keys[..unlisted.unwrap_or(self.keys.len())]
    }

    /// Whether this request must have every shard in hand at once.
    #[inline]
    pub fn needs_all_shards(&self, args: &Args<'_>) -> bool {
        matches!(self.run, Run::AllShards(_) | Run::Script(_))
            || self.needs_all_shards.is_some_and(|test| test(args))
    }

    /// Whether some of its requests may need every shard in hand at once.
    #[inline]
    pub fn may_need_all_shards(&self) -> bool {
        self.needs_all_shards.is_some()
    }

    /// Whether it may find, before it did anything, that it had better run where no client waits for its thread.
    #[inline]
    pub fn may_leave(&self) -> bool {
        self.flags.has(Flags::TAKES_LONG)
    }

    /// Whether it keeps an argument as the block that it came in.
    pub fn keeps(&self, argument: usize) -> bool {
        self.kept.has(argument)
    }

    /// Whether an argument is a secret, which MONITOR and the slow log must not show.
    pub fn is_secret(&self, args: &Args<'_>, argument: usize) -> bool {
        match self.secrets {
            Some(test) => test(args, argument),
            None => self.flags.has(Flags::SENSITIVE) && argument > 0,
        }
    }

    /// Whether a transaction runs this request once its shards are let go, because it sleeps, or asks the system for
    /// what may take time. Its reply stands in its place all the same; the commands behind it do not see yet what it
    /// brings about.
    #[inline]
    pub fn is_postponed(&self, args: &Args<'_>) -> bool {
        self.postponed.is_some_and(|test| test(args))
    }

    /// Index in the registry: statistics are arrays over it.
    pub fn id(&self) -> usize {
        usize::from(self.id.load(Ordering::Relaxed))
    }

    /// The number that the rules of users know it by: its own, or for a subcommand that is a first argument to them
    /// that of the command which holds it.
    pub fn rule_id(&self) -> usize {
        usize::from(self.rule_id.load(Ordering::Relaxed))
    }

    /// Whether the rules of users know a subcommand as a first argument only.
    pub fn is_first_argument(&self) -> bool {
        self.id() != self.rule_id()
    }

    /// Set once, by the registry, before the first look-up: its number, and that by which rules know it.
    pub(super) fn set_id(&self, id: u16, rule_id: u16) {
        self.id.store(id, Ordering::Relaxed);
        self.rule_id.store(rule_id, Ordering::Relaxed);
    }

    /// Whether a request with this many arguments fits.
    pub fn accepts(&self, argument_count: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity >= 0 {
            argument_count == wanted
        } else {
            argument_count >= wanted
        }
    }

    /// Whether it sends a message to subscribers, and does nothing else.
    #[inline]
    pub fn publishes(&self) -> bool {
        self.flags.has(Flags::PUBSUB.or(Flags::MAY_REPLICATE))
    }

    /// Whether it may change data.
    pub fn is_write(&self) -> bool {
        self.flags.has(Flags::WRITE)
    }

    /// Subcommands of the command.
    pub fn children(&self) -> &'static [&'static Command] {
        self.subcommands
    }

    /// All ACL categories: those of group and flags, and the extra ones.
    pub fn acl_categories(&self) -> Categories {
        let mut all = self.extra_categories;
        let group = match self.group {
            Group::Generic => Categories::KEYSPACE,
            Group::String => Categories::STRING,
            Group::List => Categories::LIST,
            Group::Set => Categories::SET,
            Group::SortedSet => Categories::SORTEDSET,
            Group::Hash => Categories::HASH,
            Group::Transactions => Categories::TRANSACTION,
            Group::Connection => Categories::CONNECTION,
            Group::Scripting => Categories::SCRIPTING,
            Group::HyperLogLog => Categories::HYPERLOGLOG,
            Group::Geo => Categories::GEO,
            Group::Stream => Categories::STREAM,
            Group::Bitmap => Categories::BITMAP,
            // The flag of the same name says it of each command.
            Group::PubSub => Categories::NONE,
            Group::Bloom => Categories::BLOOM,
            Group::Cuckoo => Categories::CUCKOO,
            Group::CountMin => Categories::CMS,
            Group::TopK => Categories::TOPK,
            Group::TDigest => Categories::TDIGEST,
            Group::Lock => Categories::LOCK,
            Group::Server | Group::Cluster | Group::Sentinel => Categories::NONE,
        };
        // A row that names subjects itself belongs to those alone (WAIT, SORT); a container to none.
        let is_alone = all.any(Categories::SUBJECTS) || matches!(self.run, Run::Container(_));
        if !is_alone {
            all = all.or(group);
        }
        if self.flags.has(Flags::WRITE) {
            all = all.or(Categories::WRITE);
        }
        if self.flags.has(Flags::READONLY) && self.group != Group::Scripting {
            all = all.or(Categories::READ);
        }
        if self.flags.has(Flags::ADMIN) {
            all = all.or(Categories::ADMIN).or(Categories::DANGEROUS);
        }
        if self.flags.has(Flags::PUBSUB) {
            all = all.or(Categories::PUBSUB);
        }
        if self.flags.has(Flags::BLOCKING) {
            all = all.or(Categories::BLOCKING);
        }
        all.or(if self.flags.has(Flags::FAST) {
            Categories::FAST
        } else {
            Categories::SLOW
        })
    }
}
