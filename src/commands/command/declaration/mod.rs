//! The declaration of a command: one row per command, from which routing, admission, COMMAND, metrics and tests all
//! derive.
//!
//! A row is a `static` built by `const fn`s directly above its handler. The session looks a command up once by name and
//! from then on carries `&'static Command`.

mod flags;
mod group;
mod help;
mod keys;
mod reach;
mod reads;

use std::sync::atomic::{AtomicU16, Ordering};

pub use flags::{Categories, Flags, KeyFlags};
pub use group::Group;
use keys::are_ruled;
pub use keys::{BeginSearch, FindKeys, KeySpec, LoneKey};
pub use reach::{Channels, Databases, KeyFlagsOf, PositionsFinder, ReadArgument};
pub use reads::{Ahead, CopyReply};

use super::aside::BeginAside;
use super::context::{Gather, SessionCx, ShardCx};
use super::error::{CommandError, ErrorText};
use super::prepared::Builder;
use super::{Args, Out};
use crate::acl::selector::Used;
use basalt_core::structures::quicklist::End;

/// The result of a handler: its reply is already in the output, or the error that will be written.
pub type CommandResult<T = ()> = Result<T, CommandError>;

/// A handler that runs with the shards of its keys locked.
pub type ShardHandler = fn(&mut ShardCx<'_>, &Args<'_>, &mut Out) -> CommandResult;

/// A handler that works on the connection or the server and touches no keyspace.
pub type SessionHandler = fn(&mut SessionCx<'_>, &Args<'_>, &mut Out) -> CommandResult;

/// Runs one visit of a command that goes from shard to shard.
pub type PartHandler = fn(&mut ShardCx<'_>, &Args<'_>, &mut Gather) -> CommandResult;

/// Writes the reply from what the visits gathered.
pub type MergeHandler = fn(&Args<'_>, Gather, &mut Out) -> CommandResult;

/// Returns the shard in which a cursor continues, given the number of shards.
pub type CursorShard = fn(&Args<'_>, u16) -> Result<u16, CommandError>;

/// Finds a key that no specification can express, given the number of arguments and a way to read them. Returns its
/// position and flags.
pub type KeyFinder = for<'r, 'a> fn(usize, ReadArgument<'r, 'a>) -> Option<(usize, KeyFlags)>;

/// Finds the word that a command's keys follow, for commands where an earlier argument, such as a name, may be the
/// same word.
pub type KeywordFinder = for<'r, 'a> fn(usize, ReadArgument<'r, 'a>) -> Option<usize>;

/// Returns how many arguments at the end of a request are options, given the number of arguments and a way to read
/// them.
pub type TailFinder = for<'r, 'a> fn(usize, ReadArgument<'r, 'a>) -> usize;

/// How a command uses the shards.
#[derive(Clone, Copy)]
pub enum Run {
    /// The shards of the declared keys are locked, one or many.
    Keys(ShardHandler),
    /// All shards are locked at once.
    AllShards(ShardHandler),
    /// Shard by shard, one locked at a time.
    EachShard(PartHandler, MergeHandler),
    /// Shard by shard, starting at the shard encoded in the cursor, until [`Gather::done`].
    Cursor(CursorShard, PartHandler, MergeHandler),
    /// Never touches a keyspace.
    Session(SessionHandler),
    /// Begins, runs or ends a transaction.
    Transaction(TransactionVerb),
    /// Runs a script or a function, which runs commands.
    Script(ScriptVerb),
    /// A container of subcommands of the same shape; called without a subcommand it only lists them.
    Container(&'static [&'static Command]),
}

/// The transaction command of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Redis's own")]
pub enum TransactionVerb {
    Multi,
    Exec,
    Discard,
    Unwatch,
}

/// The script command of a row.
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

/// Positions of arguments: the first of them, and every `step` after it.
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

/// One command, see the module.
pub struct Command {
    /// The name in lower case; for a subcommand, only its own word.
    pub name: &'static str,
    /// `container|sub` for subcommands, else the name.
    pub full_name: &'static str,
    /// The group in COMMAND DOCS.
    pub group: Group,
    /// Number of arguments including the name; if negative, the minimum number.
    pub arity: i32,
    /// Flags for admission and routing.
    pub flags: Flags,
    /// ACL categories beyond those that follow from the group and the flags.
    pub extra_categories: Categories,
    /// Positions of the command's keys among the arguments.
    pub keys: &'static [KeySpec],
    /// The single key of requests that have no other, derived from `keys`.
    pub lone_key: LoneKey,
    /// First version of Redis or Valkey that has the command, or [`Command::OWN`].
    pub since: &'static str,
    /// Arguments in the notation of the reference manual.
    pub syntax: &'static str,
    /// Description in one sentence.
    pub summary: &'static str,
    /// Cost in the O notation.
    pub complexity: &'static str,
    /// Versions and their changes.
    pub history: &'static [(&'static str, &'static str)],
    /// Hints for clients of a cluster.
    pub tips: &'static [&'static str],
    /// The version that deprecated the command, and its replacement.
    pub deprecated: Option<(&'static str, &'static str)>,
    /// The lines of a `… HELP` subcommand.
    pub help: &'static [&'static str],
    /// How the command uses the shards.
    pub run: Run,
    /// Finds a key that the specifications in `keys` cannot express.
    pub key_finder: Option<KeyFinder>,
    /// Finds the keyword that the specifications in `keys` refer to.
    pub keyword_finder: Option<KeywordFinder>,
    /// Returns how many arguments at the end belong to no key specification.
    pub options_at_end: Option<TailFinder>,
    /// The arguments that are channels.
    pub channels: Channels,
    /// The databases that the command reads or changes.
    pub databases: Databases,
    /// Computes the flags of its first key from the request, if [`KeyFlags::VARIABLE_FLAGS`] is set.
    pub key_flags_of: Option<KeyFlagsOf>,
    /// Returns the error for users without the required permission if the request reads keys whose names are computed
    /// from data, and that may be any key; None for other requests.
    pub reads_any_key: Option<fn(&Args<'_>) -> Option<&'static str>>,
    needs_all_shards: Option<fn(&Args<'_>) -> bool>,
    secrets: Option<fn(&Args<'_>, usize) -> bool>,
    postponed: Option<fn(&Args<'_>) -> bool>,
    kept: Every,
    /// Builds the value that the command stores before its shard is locked, see [`Command::builds`].
    pub builds: Option<Builder>,
    /// Begins to build the value that the command stores from other keys, see [`Command::builds_aside`].
    pub builds_aside: Option<BeginAside>,
    /// The part of the key's collection that the command reads.
    pub ahead: Ahead,
    copy_reply: Option<CopyReply>,
    subcommands: &'static [&'static Command],
    tells_usage: bool,
    id: AtomicU16,
    rule_id: AtomicU16,
}

/// Returns a syntax line for error messages: without types and key specifications.
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

/// Returns true, for declarations that apply to all requests of a command.
pub fn always(_: &Args<'_>) -> bool {
    true
}

fn not_declared(_: &mut SessionCx<'_>, _: &Args<'_>, _: &mut Out) -> CommandResult {
    Err(CommandError::from("ERR this command has no handler"))
}

impl Command {
    /// First version of commands that no version of Redis or Valkey has.
    pub const OWN: &'static str = "basalt 0.1.0";

    /// Creates a row; the builder calls that follow fill the row, and one of `on_…` completes it.
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
            help: &[],
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
            builds_aside: None,
            ahead: Ahead::Nothing,
            copy_reply: None,
            subcommands: &[],
            tells_usage: false,
            id: AtomicU16::new(u16::MAX),
            rule_id: AtomicU16::new(u16::MAX),
        }
    }

    /// Creates a row inside a container: `full_name` is `container|sub`.
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

    /// Derives which requests have exactly one key, regardless of the order of builder calls.
    const fn with_lone_key(mut self) -> Command {
        self.lone_key = match self.key_finder {
            Some(_) => LoneKey::NONE,
            None => LoneKey::of(self.keys),
        };
        self
    }

    /// Declares that the command reads the keys of these specifications and changes nothing.
    pub const fn reads(mut self, keys: &'static [KeySpec]) -> Command {
        self.flags = self.flags.or(Flags::READONLY);
        self.names_keys(keys)
    }

    /// Declares that the command changes the keys of these specifications.
    pub const fn writes(mut self, keys: &'static [KeySpec]) -> Command {
        self.flags = self.flags.or(Flags::WRITE);
        self.names_keys(keys)
    }

    /// Declares keys for a command whose arguments decide whether they are read or written.
    pub const fn names_keys(mut self, keys: &'static [KeySpec]) -> Command {
        assert!(
            are_ruled(self.full_name, keys),
            "a key specification has neither ACCESS, INSERT, UPDATE nor DELETE, by which ACL rules judge it"
        );
        self.keys = keys;
        self.with_lone_key()
    }

    /// Declares the channels that the command sends or subscribes to.
    pub const fn channels(mut self, channels: Channels) -> Command {
        self.channels = channels;
        self
    }

    /// Declares that the command reads or changes databases other than the selected one.
    pub const fn databases(mut self, databases: Databases) -> Command {
        self.databases = databases;
        self
    }

    /// Sets the function that computes the flags of the first key from the request.
    pub const fn key_flags_of(mut self, flags_of: KeyFlagsOf) -> Command {
        self.key_flags_of = Some(flags_of);
        self
    }

    /// Declares that requests may read keys of any name; the function returns the error for users who lack the
    /// permission, if the request does so.
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

    /// Declares that the command changes only its connection, or only what may be changed twice: a transaction that
    /// is rolled back may run it again.
    pub const fn repeatable(self) -> Command {
        self.flags(Flags::REPEATABLE)
    }

    /// Declares that the command may process much of a large value, or of the keyspace, so that it may have to run on
    /// a thread that no client waits for, see [`super::context::Scales`].
    pub const fn takes_long(self) -> Command {
        self.flags(Flags::TAKES_LONG)
    }

    /// Adds ACL categories.
    pub const fn categories(mut self, categories: Categories) -> Command {
        self.extra_categories = self.extra_categories.or(categories);
        self
    }

    /// Documents the first version, the arguments and the purpose.
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

    /// Adds the command's usage to errors about the form of a request, as no client's manual documents a command that
    /// Redis lacks.
    pub const fn with_usage(mut self) -> Command {
        self.tells_usage = true;
        self
    }

    /// Returns an error of this command as sent to clients: the text of Redis, which tools recognize, and the usage.
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

    /// Documents the cost, if not O(1).
    pub const fn complexity(mut self, text: &'static str) -> Command {
        self.complexity = text;
        self
    }

    /// Makes the command keep this argument, if it is long, in the block that it was received in: this takes no time,
    /// however long it is.
    pub const fn keeps_block(self, argument: usize) -> Command {
        self.keeps_blocks(argument, usize::MAX)
    }

    /// Makes the command keep this argument, and every `step`-th after it, as blocks if they are long. Some of them
    /// may have another meaning, which is never long.
    pub const fn keeps_blocks(mut self, first: usize, step: usize) -> Command {
        self.kept = Every { first, step };
        self
    }

    /// Declares that the command stores a value that depends on its arguments alone, and that is built before its
    /// shard is locked if that takes long.
    pub const fn builds(mut self, build: Builder) -> Command {
        self.builds = Some(build);
        self
    }

    /// Declares that the command stores a value that depends on other keys, and that is built while its shards are
    /// released, slice by slice, if that takes long. `begin` gets requests that were found good.
    pub const fn builds_aside(mut self, begin: BeginAside) -> Command {
        self.builds_aside = Some(begin);
        self
    }

    /// Returns the reply that a copy of the key's string suffices for, if there is one: only for requests with a key
    /// and no other arguments.
    #[inline]
    pub fn copy_reply(&self, args: &Args<'_>) -> Option<CopyReply> {
        self.copy_reply.filter(|_| args.len() == 2)
    }

    /// Declares that a copy of the string suffices for a request with a key and no other arguments.
    pub const fn answered_from_copy(mut self, reply: CopyReply) -> Command {
        self.copy_reply = Some(reply);
        self
    }

    /// Declares that the command looks up the element that this argument names.
    pub const fn looks_up(mut self, argument: usize) -> Command {
        self.ahead = Ahead::Element(argument);
        self
    }

    /// Declares that the command reads a list at this end, whose memory may not be in the cache.
    pub const fn reads_from(mut self, end: End) -> Command {
        self.ahead = Ahead::End(end);
        self
    }

    /// Documents what changed in which version.
    pub const fn history(mut self, rows: &'static [(&'static str, &'static str)]) -> Command {
        self.history = rows;
        self
    }

    /// Adds hints for clients of a cluster.
    pub const fn tips(mut self, tips: &'static [&'static str]) -> Command {
        self.tips = tips;
        self
    }

    /// Declares that the command is deprecated since this version, and names its replacement in the words of the
    /// manual.
    pub const fn deprecated(mut self, since: &'static str, replaced_by: &'static str) -> Command {
        self.deprecated = Some((since, replaced_by));
        self
    }

    /// Runs `handler` with the shards of the declared keys locked.
    pub const fn on_keys(mut self, handler: ShardHandler) -> Command {
        assert!(!self.keys.is_empty(), "on_keys needs declared keys");
        self.run = Run::Keys(handler);
        self
    }

    /// Sets the function that finds a key which the specifications cannot express; a specification of unknown
    /// position stands for that key.
    pub const fn finds_key(mut self, finder: KeyFinder) -> Command {
        self.key_finder = Some(finder);
        self.with_lone_key()
    }

    /// Sets the function that finds the word before the keys in the same way as the command itself; otherwise the
    /// first such word counts.
    pub const fn finds_keyword(mut self, finder: KeywordFinder) -> Command {
        self.keyword_finder = Some(finder);
        self
    }

    /// Makes specifications that count from the last argument count from before the options at the end.
    pub const fn ends_with_options(mut self, finder: TailFinder) -> Command {
        self.options_at_end = Some(finder);
        self
    }

    /// Locks all shards, not only those of the declared keys, for requests that pass the test: they derive keys from
    /// data, see [`ShardCx::at_derived`].
    pub const fn on_all_shards_if(mut self, test: fn(&Args<'_>) -> bool) -> Command {
        assert!(
            matches!(self.run, Run::Keys(_)),
            "it widens on_keys, which comes first"
        );
        self.needs_all_shards = Some(test);
        self
    }

    /// Declares that arguments for which the test is true are secrets; see [`Flags::SENSITIVE`] for all arguments.
    pub const fn hides(mut self, test: fn(&Args<'_>, usize) -> bool) -> Command {
        self.secrets = Some(test);
        self
    }

    /// Makes transactions postpone requests that pass the test, see [`Command::is_postponed`].
    pub const fn postponed_if(mut self, test: fn(&Args<'_>) -> bool) -> Command {
        self.postponed = Some(test);
        self
    }

    /// Runs `handler` with all shards locked.
    pub const fn on_all_shards(mut self, handler: ShardHandler) -> Command {
        self.run = Run::AllShards(handler);
        self
    }

    /// Visits the shards one after the other, then merges the results.
    pub const fn on_each_shard(mut self, part: PartHandler, merge: MergeHandler) -> Command {
        self.run = Run::EachShard(part, merge);
        self
    }

    /// Visits shards, starting at the one that the cursor names, until the reply is full, then merges the results.
    pub const fn by_cursor(
        mut self,
        shard: CursorShard,
        part: PartHandler,
        merge: MergeHandler,
    ) -> Command {
        self.run = Run::Cursor(shard, part, merge);
        self
    }

    /// Runs in the session, which implements transactions.
    pub const fn on_transaction(mut self, verb: TransactionVerb) -> Command {
        self.run = Run::Transaction(verb);
        self
    }

    /// Runs a script or a function; the shards that it needs become known while it runs.
    pub const fn on_script(mut self, verb: ScriptVerb) -> Command {
        self.run = Run::Script(verb);
        self
    }

    /// Runs `handler`, which touches no keyspace.
    pub const fn on_session(mut self, handler: SessionHandler) -> Command {
        self.run = Run::Session(handler);
        self
    }

    /// Makes the command a container of subcommands.
    pub const fn container(mut self, children: &'static [&'static Command]) -> Command {
        self.subcommands = children;
        self.run = Run::Container(children);
        self
    }

    /// Adds subcommands to a command that has a handler of its own; one of the `on_…` calls follows. The handler also
    /// gets requests with any other subcommand.
    pub const fn with_subcommands(mut self, children: &'static [&'static Command]) -> Command {
        self.subcommands = children;
        self
    }

    /// Returns the databases that a request reads or changes, with the positions of the arguments that name them.
    pub fn databases_of(
        &self,
        argument_count: usize,
        argument: ReadArgument<'_, '_>,
        selected: usize,
    ) -> Vec<(usize, Used)> {
        let selected = self.is_in_selected_database().then_some(selected);
        self.databases.of(argument_count, argument, selected)
    }

    /// Whether the command works on the selected database: through the keys that it names, or by visiting shards.
    pub fn is_in_selected_database(&self) -> bool {
        let is_key = |spec: &KeySpec| !spec.flags.has(KeyFlags::NOT_KEY);
        let goes_over = matches!(
            self.run,
            Run::AllShards(_) | Run::EachShard(..) | Run::Cursor(..)
        );
        goes_over || self.keys.iter().any(is_key)
    }

    /// Returns the command's key specifications that COMMAND INFO lists.
    pub fn listed_keys(&self) -> &'static [KeySpec] {
        let unlisted = self.keys.iter().position(|spec| !spec.is_listed);
        &self.keys[..unlisted.unwrap_or(self.keys.len())]
    }

    /// Whether this request must have all shards locked at once.
    #[inline]
    pub fn needs_all_shards(&self, args: &Args<'_>) -> bool {
        matches!(self.run, Run::AllShards(_) | Run::Script(_))
            || self.needs_all_shards.is_some_and(|test| test(args))
    }

    /// Whether some of the command's requests may need all shards locked at once.
    #[inline]
    pub fn may_need_all_shards(&self) -> bool {
        self.needs_all_shards.is_some()
    }

    /// Whether the command may decide, before it has done anything, to run on a thread that no client waits for.
    #[inline]
    pub fn may_leave(&self) -> bool {
        self.flags.has(Flags::TAKES_LONG)
    }

    /// Whether the command keeps an argument in the block that it was received in.
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

    /// Whether a transaction runs this request after it has released its shards, because it sleeps, or asks the
    /// system for something that may take time. The reply is in its proper position all the same; the commands after
    /// it do not see its effects yet.
    #[inline]
    pub fn is_postponed(&self, args: &Args<'_>) -> bool {
        self.postponed.is_some_and(|test| test(args))
    }

    /// Returns the command's index in the registry: statistics are arrays indexed by it.
    pub fn id(&self) -> usize {
        usize::from(self.id.load(Ordering::Relaxed))
    }

    /// Returns the number by which ACL rules refer to the command: its own, or that of its container for a subcommand
    /// that they treat as a first argument.
    pub fn rule_id(&self) -> usize {
        usize::from(self.rule_id.load(Ordering::Relaxed))
    }

    /// Whether the command is a subcommand that ACL rules treat as a first argument only.
    pub fn is_first_argument(&self) -> bool {
        self.id() != self.rule_id()
    }

    /// Sets the command's number and its rule number; called once, by the registry, before the first lookup.
    pub(super) fn set_id(&self, id: u16, rule_id: u16) {
        self.id.store(id, Ordering::Relaxed);
        self.rule_id.store(rule_id, Ordering::Relaxed);
    }

    /// Whether the arity permits a request with this many arguments.
    pub fn accepts(&self, argument_count: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity >= 0 {
            argument_count == wanted
        } else {
            argument_count >= wanted
        }
    }

    /// Whether the command sends a message to subscribers, and does nothing else.
    #[inline]
    pub fn publishes(&self) -> bool {
        self.flags.has(Flags::PUBSUB.or(Flags::MAY_REPLICATE))
    }

    /// Whether the command may change data.
    pub fn is_write(&self) -> bool {
        self.flags.has(Flags::WRITE)
    }

    /// Returns the subcommands of the command.
    pub fn children(&self) -> &'static [&'static Command] {
        self.subcommands
    }

    /// Returns all ACL categories: those of group and flags, and the extra ones.
    pub fn acl_categories(&self) -> Categories {
        let mut all = self.extra_categories;
        // A row that names topic categories itself has only those (WAIT, SORT); a container has none.
        let is_alone = all.any(Categories::SUBJECTS) || matches!(self.run, Run::Container(_));
        if !is_alone {
            all = all.or(self.group.categories());
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
