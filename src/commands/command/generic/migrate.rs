//! MIGRATE: moves keys to another server.
//!
//! This module only parses the request. Sockets, and the order in which keys are dumped, sent and deleted, are
//! handled by the thread that carries out a [`Migration`]; the connection waits only for its end.

use crate::command::context::{After, SessionCx};
use crate::command::declaration::{
    Categories, Command, CommandResult, Flags, Group, KeyFlags, KeySpec,
};
use crate::command::error::CommandError;
use crate::command::host::migration::Migration;
use crate::command::{Args, Out};

/// The timeout used if the client gives zero or less, in milliseconds.
const TIMEOUT_MS: u64 = 1_000;

const FLAGS: KeyFlags = KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE);

/// `MIGRATE host port key|"" destination-db timeout [COPY] [REPLACE] [AUTH password | AUTH2 username password] [KEYS
/// key …]`
pub(super) static MIGRATE: Command = Command::new("migrate", Group::Generic, -6)
    .writes(&[
        KeySpec::one(3, FLAGS),
        KeySpec::range(0, -1, 1, FLAGS.or(KeyFlags::INCOMPLETE)).after_keyword("KEYS", -2),
    ])
    .flags(Flags::MOVABLEKEYS)
    .hides(is_credential)
    .categories(Categories::DANGEROUS)
    .doc(
        "2.6.0",
        "host port <key | \"\"> destination-db timeout:integer [COPY] [REPLACE] \
         [AUTH password | AUTH2 <username password>] [KEYS key [key ...]]",
        "Moves keys to another server, which stores them with RESTORE.",
    )
    .complexity("O(N) for N bytes of values, which are dumped, sent and deleted.")
    .history(&[
        ("3.0.0", "Added the `COPY` and `REPLACE` options."),
        ("3.0.6", "Added the `KEYS` option."),
        ("4.0.7", "Added the `AUTH` option."),
        ("6.0.0", "Added the `AUTH2` option."),
    ])
    .tips(&["nondeterministic_output"])
    .on_session(migrate);

/// Whether an argument belongs to AUTH or AUTH2.
fn is_credential(args: &Args<'_>, index: usize) -> bool {
    let is_after = |back: usize, word| index > back + 5 && args.is(index - back, word);
    is_after(1, "auth") || is_after(1, "auth2") || is_after(2, "auth2")
}

impl Migration {
    fn read(args: &Args<'_>, db: usize) -> Result<Migration, CommandError> {
        let mut migration = Migration {
            host: String::from_utf8_lossy(args.get(1)).into_owned(),
            port: String::from_utf8_lossy(args.get(2)).into_owned(),
            target_db: 0,
            db,
            timeout_ms: TIMEOUT_MS,
            copies: false,
            replaces: false,
            credentials: None,
            keys: Vec::new(),
        };
        let mut keys_at = None;
        let mut at = 6;
        while at < args.len() && keys_at.is_none() {
            let left = args.len() - 1 - at;
            if args.is(at, "copy") {
                migration.copies = true;
            } else if args.is(at, "replace") {
                migration.replaces = true;
            } else if args.is(at, "auth") && left >= 1 {
                migration.credentials = Some((None, args.get(at + 1).to_vec()));
                at += 1;
            } else if args.is(at, "auth2") && left >= 2 {
                let user = args.get(at + 1).to_vec();
                migration.credentials = Some((Some(user), args.get(at + 2).to_vec()));
                at += 2;
            } else if args.is(at, "keys") {
                if !args.get(3).is_empty() {
                    return Err(
                        "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string".into(),
                    );
                }
                keys_at = Some(at + 1);
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        let timeout_ms = args.integer(5)?;
        migration.target_db = args.integer(4)?;
        if timeout_ms > 0 {
            migration.timeout_ms = timeout_ms.unsigned_abs();
        }
        let mut seen = std::collections::HashSet::new();
        let (first, count) = keys_at.map_or((3, 1), |at| (at, usize::MAX));
        migration.keys = args
            .from(first)
            .take(count)
            .filter(|key| seen.insert(*key))
            .map(Box::from)
            .collect();
        Ok(migration)
    }
}

fn migrate(cx: &mut SessionCx<'_>, args: &Args<'_>, _: &mut Out) -> CommandResult {
    let migration = Migration::read(args, cx.client.db)?;
    if cx.outbox.is_of_transaction() {
        // No thread may wait for another server while shards are locked.
        return Err("ERR MIGRATE is not possible inside a transaction or a script".into());
    }
    cx.after = After::Migrate(Box::new(migration));
    Ok(())
}
