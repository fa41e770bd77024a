//! Transactions as clients request them: the rows of MULTI, EXEC and so on. The session implements them: it queues
//! commands, and runs the queue with all its shards locked at once.

use super::connection::RESET;
use super::context::ShardCx;
use super::declaration::{
    Categories, Command, CommandResult, Flags, Group, KeyFlags, KeySpec, TransactionVerb,
};
use super::{Args, Out};

/// The rows of this family.
pub static TABLE: &[&Command] = &[&MULTI, &EXEC, &DISCARD, &WATCH, &UNWATCH];

const FLAGS: Flags = Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE);
const FAST: Flags = FLAGS.or(Flags::FAST).or(Flags::ALLOW_BUSY);

/// `MULTI`
static MULTI: Command = Command::new("multi", Group::Transactions, 1)
    .flags(FAST.or(Flags::TRANSACTIONAL))
    .categories(Categories::TRANSACTION)
    .doc(
        "1.2.0",
        "",
        "Starts a transaction: the following commands are queued until EXEC.",
    )
    .on_transaction(TransactionVerb::Multi);

/// `EXEC`
static EXEC: Command = Command::new("exec", Group::Transactions, 1)
    .flags(FLAGS.or(Flags::SKIP_SLOWLOG).or(Flags::TRANSACTIONAL))
    .categories(Categories::TRANSACTION)
    .doc(
        "1.2.0",
        "",
        "Runs all queued commands atomically, unless a watched key has changed.",
    )
    .complexity("That of the queued commands.")
    .on_transaction(TransactionVerb::Exec);

/// `DISCARD`
static DISCARD: Command = Command::new("discard", Group::Transactions, 1)
    .flags(FAST.or(Flags::TRANSACTIONAL))
    .categories(Categories::TRANSACTION)
    .doc(
        "2.0.0",
        "",
        "Discards a transaction and its queued commands.",
    )
    .complexity("O(N), N being the number of queued commands.")
    .on_transaction(TransactionVerb::Discard);

/// `UNWATCH`
static UNWATCH: Command = Command::new("unwatch", Group::Transactions, 1)
    .flags(FAST.or(Flags::TRANSACTIONAL))
    .categories(Categories::TRANSACTION)
    .doc("2.2.0", "", "Stops watching all keys.")
    .on_transaction(TransactionVerb::Unwatch);

/// `WATCH key [key ...]`
static WATCH: Command = Command::new("watch", Group::Transactions, -2)
    .names_keys(&[KeySpec::range(1, -1, 1, KeyFlags::RO)])
    .flags(FAST.or(Flags::TRANSACTIONAL))
    .categories(Categories::TRANSACTION)
    .doc(
        "2.2.0",
        "key [key ...]",
        "Watches keys: the next EXEC runs nothing if one of them has changed.",
    )
    .complexity("O(1) for each key.")
    .on_keys(watch);

/// The row of EXEC, for code that reports under its name.
pub static EXEC_ROW: &Command = &EXEC;

/// The row of UNWATCH, for code that ends watches as UNWATCH does.
pub static UNWATCH_ROW: &Command = &UNWATCH;

/// Whether a command is EXEC.
pub fn is_exec(command: &Command) -> bool {
    std::ptr::eq(command, &raw const EXEC)
}

/// A command's effect on a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// The command begins a transaction: MULTI.
    Begins,
    /// EXEC or DISCARD, or RESET.
    Ends,
}

/// Returns whether the command of this name (case-insensitive) begins or ends a transaction; None if neither.
#[inline]
pub fn boundary(name: &[u8]) -> Option<Boundary> {
    let is = |command: &Command| name.eq_ignore_ascii_case(command.name.as_bytes());
    match name.len() {
        5 if is(&MULTI) => Some(Boundary::Begins),
        5 if is(&RESET) => Some(Boundary::Ends),
        4 | 7 if is(&EXEC) || is(&DISCARD) => Some(Boundary::Ends),
        _ => None,
    }
}

/// Returns the error of EXEC when the error `why` prevents a transaction from running.
pub fn exec_abort(why: &[u8]) -> Vec<u8> {
    let why = why.strip_prefix(b"ERR ").unwrap_or(why);
    [b"EXECABORT Transaction discarded because of: ", why].concat()
}

/// Whether a command is WATCH, after which the session records the watched keys.
pub fn is_watch(command: &Command) -> bool {
    std::ptr::eq(command, &raw const WATCH)
}

fn watch(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    for routed in args.keys() {
        let key = args.key_of(routed);
        let mut keyspace = cx.at_routed(routed).untouched();
        // Deletes an expired key now, so that its expiry does not count as a change later.
        let _ = keyspace.find_write(&key);
        let db = keyspace.db_index();
        keyspace.engine().watches.add(db, key.bytes);
    }
    out.ok();
    Ok(())
}
