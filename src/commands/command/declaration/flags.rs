//! Sets of flags: properties of commands for admission, routing, COMMAND and ACL, and how commands use their keys.

use crate::acl::KeyAccess;
use basalt_core::bit_set;

bit_set! {
    /// Properties of commands for admission, routing and COMMAND INFO.
    #[derive(Debug, Default)]
    pub struct Flags(u64) {
        /// May change data.
        WRITE = "write";
        /// Changes no data.
        READONLY = "readonly";
        /// Refused when memory is full.
        DENYOOM = "denyoom";
        /// Meant for administrators, as COMMAND INFO shows.
        ADMIN = "admin";
        /// Belongs to publish and subscribe.
        PUBSUB = "pubsub";
        /// Not allowed in scripts.
        NOSCRIPT = "noscript";
        /// May wait for data.
        BLOCKING = "blocking";
        /// Allowed while a dataset is loading.
        LOADING = "loading";
        /// Allowed on a replica that lost its primary.
        STALE = "stale";
        /// Not shown by MONITOR.
        SKIP_MONITOR = "skip_monitor";
        /// Not logged by the slow log.
        SKIP_SLOWLOG = "skip_slowlog";
        /// Implies ASKING in cluster mode.
        ASKING = "asking";
        /// Constant or logarithmic time.
        FAST = "fast";
        /// Allowed before authentication.
        NO_AUTH = "no_auth";
        /// May replicate although it is not a write.
        MAY_REPLICATE = "may_replicate";
        /// The command's keys may be absent.
        NO_MANDATORY_KEYS = "no_mandatory_keys";
        /// Not allowed while a dataset loads in the background.
        NO_ASYNC_LOADING = "no_async_loading";
        /// Not allowed in a transaction.
        NO_MULTI = "no_multi";
        /// Keys cannot be found by first, last and step alone.
        MOVABLEKEYS = "movablekeys";
        /// Allowed while a script is busy.
        ALLOW_BUSY = "allow_busy";
        /// All arguments are secrets, see [`super::Command::is_secret`].
        SENSITIVE = "sensitive";
        /// May touch keys that it did not declare (SORT … BY).
        TOUCHES_ARBITRARY_KEYS = "touches_arbitrary_keys";
        /// Needs a permission in the configuration file, like DEBUG.
        PROTECTED = "protected";
        /// Needs the permission for modules in the configuration file.
        LOADS_MODULES = "loads_modules";
        /// A subcommand that is in the table for routing only: COMMAND does not list it.
        UNLISTED = "unlisted";
        /// Meant for servers themselves and for tests, according to Redis's documentation.
        SYSCMD = "syscmd";
        /// Controls transactions: is neither run like other commands nor queued by MULTI.
        TRANSACTIONAL = "transactional";
        /// Allowed for a RESP2 client that has subscriptions.
        SUBSCRIBER = "subscriber";
        /// Reports on other connections: requests that they sent earlier are read before the command runs, as would
        /// be the case on Redis.
        OTHERS_FIRST = "others_first";
        /// For commands that touch no keyspace: may be run again after a rollback of their transaction. The command
        /// changes nothing, or only its connection ([`crate::client::shared::Settings`]), or only what no client sees
        /// before the transaction is done.
        REPEATABLE = "repeatable";
        /// May process more elements than is acceptable on a thread that other clients wait for.
        TAKES_LONG = "takes_long";
        /// Leaves the effect of CLIENT CACHING to the command after this one.
        KEEPS_CACHING = "keeps_caching";
        /// The command's only argument is the index of the database for the commands after it.
        SELECTS_DB = "selects_db";
        /// Changes the entries of a stream but not its groups.
        ENTRIES_ONLY = "entries_only";
        /// Reports the server's health: an error if writes are refused because nothing can be saved.
        HEALTH = "health";
        /// Empties the server: if there are save points, a new snapshot is saved before the reply.
        EMPTIES = "empties";
        /// Allowed while a dataset is loading, though COMMAND does not say so. Redis loads a new replica's few keys
        /// between two commands, so clients of a cluster expect a reply about its nodes at any time.
        TELLS_NODES = "tells_nodes";
        /// May add to a database with a share of memory, though not to memory as a whole: keys are evicted from that
        /// database for what it adds.
        PAYS = "pays";
        /// Names a fieldset of the connection in its third argument; the fieldset is looked up before any shard is
        /// locked.
        NAMES_FIELDSET = "names_fieldset";
        /// Carries notes (internal records) when another server sends it, see [`basalt_engine::note`].
        HOLDS_NOTES = "holds_notes";
    }
}

impl Flags {
    /// Flags that COMMAND INFO does not show: flags that only this server has, and those that Redis hides too.
    pub const INTERNAL: Flags = Flags::SENSITIVE
        .or(Flags::TOUCHES_ARBITRARY_KEYS)
        .or(Flags::MAY_REPLICATE)
        .or(Flags::PROTECTED)
        .or(Flags::LOADS_MODULES)
        .or(Flags::UNLISTED)
        .or(Flags::SYSCMD)
        .or(Flags::TRANSACTIONAL)
        .or(Flags::SUBSCRIBER)
        .or(Flags::OTHERS_FIRST)
        .or(Flags::REPEATABLE)
        .or(Flags::TAKES_LONG)
        .or(Flags::KEEPS_CACHING)
        .or(Flags::SELECTS_DB)
        .or(Flags::ENTRIES_ONLY)
        .or(Flags::HEALTH)
        .or(Flags::EMPTIES)
        .or(Flags::TELLS_NODES)
        .or(Flags::PAYS)
        .or(Flags::NAMES_FIELDSET)
        .or(Flags::HOLDS_NOTES);
}

bit_set! {
    /// ACL categories, by which rules can name many commands.
    #[derive(Debug, Default)]
    pub struct Categories(u32) {
        /// Works on keys regardless of their types.
        KEYSPACE = "@keyspace";
        /// Reads data.
        READ = "@read";
        /// Writes data.
        WRITE = "@write";
        /// Works on sets.
        SET = "@set";
        /// Works on sorted sets.
        SORTEDSET = "@sortedset";
        /// Works on lists.
        LIST = "@list";
        /// Works on hashes.
        HASH = "@hash";
        /// Works on strings.
        STRING = "@string";
        /// Works on bitmaps.
        BITMAP = "@bitmap";
        /// Works on HyperLogLogs.
        HYPERLOGLOG = "@hyperloglog";
        /// Works on geo indexes.
        GEO = "@geo";
        /// Works on streams.
        STREAM = "@stream";
        /// Publishes messages, or subscribes to them.
        PUBSUB = "@pubsub";
        /// Administers the server.
        ADMIN = "@admin";
        /// Takes constant or logarithmic time.
        FAST = "@fast";
        /// Commands that are not fast.
        SLOW = "@slow";
        /// May block the connection.
        BLOCKING = "@blocking";
        /// May harm a server in production.
        DANGEROUS = "@dangerous";
        /// Works on the connection itself.
        CONNECTION = "@connection";
        /// Controls transactions.
        TRANSACTION = "@transaction";
        /// Runs or manages scripts.
        SCRIPTING = "@scripting";
        /// Works on Bloom filters.
        BLOOM = "@bloom";
        /// Works on cuckoo filters.
        CUCKOO = "@cuckoo";
        /// Works on count-min sketches.
        CMS = "@cms";
        /// Works on lists of the most frequent elements.
        TOPK = "@topk";
        /// Works on t-digests.
        TDIGEST = "@tdigest";
        /// Works on JSON documents.
        JSON = "@json";
        /// Works on locks.
        LOCK = "@lock";
    }
}

impl KeyFlags {
    /// The flags that ACL rules treat as changes.
    pub const CHANGES: KeyFlags = KeyFlags::INSERT.or(KeyFlags::UPDATE).or(KeyFlags::DELETE);

    /// Returns the permissions on a key that ACL rules must grant.
    #[inline]
    pub fn access(self) -> KeyAccess {
        KeyAccess {
            reads: self.has(KeyFlags::ACCESS),
            writes: self.any(KeyFlags::CHANGES),
        }
    }
}

impl Categories {
    /// Finds a category by its name in lower case, without the `@`.
    pub fn named(name: &str) -> Option<Categories> {
        let is_it = |known: &&str| known.strip_prefix('@') == Some(name);
        let found = Categories::ALL.iter().find(|(_, known)| is_it(known));
        found.map(|(category, _)| *category)
    }

    /// Returns the names of all categories, without the `@`.
    pub fn all_names() -> impl Iterator<Item = &'static str> {
        Categories::ALL.iter().map(|(_, name)| &name[1..])
    }

    /// The categories of topics, as opposed to kinds of operation.
    pub const SUBJECTS: Categories = Categories::KEYSPACE
        .or(Categories::SET)
        .or(Categories::SORTEDSET)
        .or(Categories::LIST)
        .or(Categories::HASH)
        .or(Categories::STRING)
        .or(Categories::BITMAP)
        .or(Categories::HYPERLOGLOG)
        .or(Categories::GEO)
        .or(Categories::STREAM)
        .or(Categories::CONNECTION)
        .or(Categories::TRANSACTION)
        .or(Categories::SCRIPTING)
        .or(Categories::BLOOM)
        .or(Categories::CUCKOO)
        .or(Categories::CMS)
        .or(Categories::TOPK)
        .or(Categories::TDIGEST)
        .or(Categories::JSON)
        .or(Categories::LOCK);
}

bit_set! {
    /// How a command uses the keys of a specification.
    #[derive(Debug, Default)]
    pub struct KeyFlags(u16) {
        /// Reads and writes the value.
        RW = "RW";
        /// Only reads the value.
        RO = "RO";
        /// Overwrites the value.
        OW = "OW";
        /// Removes the key.
        RM = "RM";
        /// Returns or uses the data of the value.
        ACCESS = "access";
        /// Changes existing data.
        UPDATE = "update";
        /// Adds data without changing existing data.
        INSERT = "insert";
        /// Deletes data.
        DELETE = "delete";
        /// A name that is routed like a key but is not a key.
        NOT_KEY = "not_key";
        /// The specification may miss keys.
        INCOMPLETE = "incomplete";
        /// The flags depend on the arguments.
        VARIABLE_FLAGS = "variable_flags";
    }
}
