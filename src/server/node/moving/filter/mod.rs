//! Selects the log records to send to the target of an export: those that change keys which were already sent
//! to it.
//!
//! The export iterates over the keys ("walks") in slices, database after database of each slot. Each slice
//! leaves a marker in the log, and is sent at the marker's position. So for any position of the log it is known
//! which keys the target has, in their state at that position: those before the position of the walk ("known"
//! keys). There are three kinds of commands:
//!
//! - all keys of the command are known: the command is sent, and runs at the target as it did here;
//! - none of its keys is known: the command is left out, because the walk will send its results;
//! - some of its keys are known (SUNIONSTORE, RENAME, a transaction): the command is left out, and its known
//!   keys are *torn*: they count as unknown until they have been sent again in their current state, in a
//!   separate slice.

use std::collections::{HashMap, HashSet};

use crate::shard::route::Router;
use basalt_commands::acl::selector::Used;
use basalt_commands::cluster::slot_set::SlotSet;
use basalt_commands::command::declaration::{Command, Flags};
use basalt_commands::command::keys;
use basalt_commands::command::notes;
use basalt_commands::command::registry::{registry, resolve};
use basalt_core::base::{hash, number};
use basalt_core::resp::answer::Answer;
use basalt_engine::note;
use basalt_engine::serial::commands;
use basalt_engine::slots::walk_position;

/// Progress of the walk over a slot: database and position. Everything before it has been sent.
pub(super) type Reached = (usize, u64);

/// The walk over a slot is complete.
const ALL: Reached = (usize::MAX, 0);

/// A key with its database.
pub(super) type DatabaseKey = (usize, Vec<u8>);

/// Error: all data, or all data of a database, were deleted, so the data already sent is obsolete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flushed;

/// Filter of log records by the progress of the walk over each slot; see the module.
pub(super) struct MigrationLogFilter {
    router: Router,
    slots: SlotSet,
    /// Progress of the walk over each slot; slots that are missing have not been begun.
    walked: HashMap<u16, Reached>,
    torn: HashSet<DatabaseKey>,
    torn_bytes: usize,
    /// Database selected by the log records read so far.
    db: usize,
    /// Database selected by the data sent so far.
    sent_db: usize,
}

/// A command in RESP: its arguments, and its encoding.
struct LoggedRequest<'a> {
    arguments: Vec<&'a [u8]>,
    bytes: &'a [u8],
}

impl<'a> LoggedRequest<'a> {
    /// Takes the first command; returns `None` if the bytes contain no whole command.
    fn take(bytes: &mut &'a [u8]) -> Option<LoggedRequest<'a>> {
        let all = *bytes;
        let mut rest = all;
        let count = length(&mut rest, b'*')?;
        let mut arguments = Vec::with_capacity(count.min(64));
        for _ in 0..count {
            let len = length(&mut rest, b'$')?;
            let argument = rest.get(..len)?;
            rest = rest.get(len + 2..)?;
            arguments.push(argument);
        }
        *bytes = rest;
        let bytes = &all[..all.len() - rest.len()];
        Some(LoggedRequest { arguments, bytes })
    }

    fn is(&self, name: &str) -> bool {
        let first = self.arguments.first();
        first.is_some_and(|first| first.eq_ignore_ascii_case(name.as_bytes()))
    }
}

/// Returns the command that `words` (a request's arguments) name, with its arguments. If they are a note,
/// returns the command inside the note.
fn command_of<'w, 'a>(words: &'w [&'a [u8]]) -> Option<(&'static Command, &'w [&'a [u8]])> {
    if note::is_note(words.len(), |at| words[at]) {
        let words = &words[note::HEAD.len()..];
        return Some((notes::find(words.len(), |at| words[at])?, words));
    }
    let command = registry().find(words.first()?)?;
    Some((resolve(command, words.get(1).copied()), words))
}

/// Takes a line with a length.
fn length(bytes: &mut &[u8], sign: u8) -> Option<usize> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    let (first, digits) = bytes.get(..end)?.split_first()?;
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    *bytes = bytes.get(end + 2..)?;
    (*first == sign).then_some(number)
}

/// Returns the message (`CLUSTER SYNCSLOTS …`) that the target has sent, or the text of its error reply.
pub(super) fn word(answer: Answer) -> Result<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match answer {
        Answer::Status(said) => Ok(text(&said)),
        Answer::Error(why) => Err(text(&why)),
        Answer::Words(words) => {
            Ok(text(words.last().map_or(b"", Vec::as_slice)).to_ascii_uppercase())
        }
        Answer::Other => Ok(String::new()),
    }
}

impl MigrationLogFilter {
    pub(super) fn new(router: Router, slots: SlotSet) -> MigrationLogFilter {
        MigrationLogFilter {
            router,
            slots,
            walked: HashMap::new(),
            torn: HashSet::new(),
            torn_bytes: 0,
            db: 0,
            sent_db: 0,
        }
    }

    /// Notes that the keys of a slot before a position have been sent; `None` means that all its keys have been
    /// sent.
    pub(super) fn note_walked(&mut self, slot: u16, next: Option<Reached>) {
        self.walked.insert(slot, next.unwrap_or(ALL));
    }

    /// Returns at most `most` torn keys, all of the same shard and database.
    pub(super) fn torn(&self, most: usize) -> Vec<DatabaseKey> {
        let place = |(db, key): &DatabaseKey| (*db, self.router.route(key).1);
        let Some(first) = self.torn.iter().next() else {
            return Vec::new();
        };
        let wanted = place(first);
        let same = self.torn.iter().filter(|key| place(key) == wanted);
        same.take(most).cloned().collect()
    }

    /// Returns the bytes of the names of all torn keys.
    pub(super) fn torn_bytes(&self) -> usize {
        self.torn_bytes
    }

    /// Records that torn keys have been sent again.
    pub(super) fn note_mended(&mut self, keys: &[DatabaseKey]) {
        for named in keys {
            if self.torn.remove(named) {
                self.torn_bytes -= named.1.len();
            }
        }
    }

    fn is_known(&self, slot: u16, db: usize, key: &[u8]) -> bool {
        let walked = self.walked.get(&slot).copied().unwrap_or_default();
        let (hash, _) = self.router.route(key);
        let is_walked = (db, walk_position(hash)) < walked;
        is_walked && (self.torn.is_empty() || !self.torn.contains(&(db, key.to_vec())))
    }

    /// Selects the database for the data sent next.
    pub(super) fn select(&mut self, db: usize, out: &mut Vec<u8>) {
        if self.sent_db != db {
            self.sent_db = db;
            commands::select_db(out, db);
        }
    }

    /// Appends to `out` those of the records in `bytes` that must be sent; `bytes` consists of whole records.
    pub(super) fn pass(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Flushed> {
        while let Some(first) = LoggedRequest::take(&mut bytes) {
            if !first.is("multi") {
                self.pass_group(&[first], out)?;
                continue;
            }
            let mut group = Vec::new();
            while let Some(next) = LoggedRequest::take(&mut bytes) {
                if next.is("exec") {
                    break;
                }
                group.push(next);
            }
            self.pass_group(&group, out)?;
        }
        Ok(())
    }

    /// Appends commands that take effect together (one command, or a transaction), or leaves them out and
    /// records the keys that this tears.
    fn pass_group(
        &mut self,
        group: &[LoggedRequest<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), Flushed> {
        let mut wanted: Vec<(usize, &[u8])> = Vec::new();
        let (mut known, mut has_others) = (Vec::<(usize, &[u8])>::new(), false);
        for request in group {
            if request.is("select") {
                let digits = request.arguments.get(1).copied().unwrap_or_default();
                self.db = number::parse_u64(digits).map_or(self.db, |db| db as usize);
                continue;
            }
            let Some((command, arguments)) = command_of(&request.arguments) else {
                continue;
            };
            if command.flags.has(Flags::EMPTIES) || request.is("FLUSHDB") {
                return Err(Flushed);
            }
            let all = keys::all(command, arguments.len(), |at| arguments[at]);
            let named: Vec<&[u8]> = all
                .unwrap_or_default()
                .iter()
                .map(|(at, _)| arguments[*at])
                .collect();
            let is_meant = |key: &&[u8]| self.slots.contains(hash::slot(key));
            if !named.iter().any(is_meant) {
                continue;
            }
            wanted.push((self.db, request.bytes));
            // MOVE and COPY access another database.
            let dbs = command.databases_of(arguments.len(), &|at| arguments[at], self.db);
            let dbs = dbs.iter().filter_map(|(_, used)| match used {
                Used::One(number) => Some(*number as usize),
                Used::All => None,
            });
            for (db, key) in dbs.flat_map(|db| named.iter().map(move |key| (db, *key))) {
                let slot = hash::slot(key);
                match self.slots.contains(slot) && self.is_known(slot, db, key) {
                    true => known.push((db, key)),
                    false => has_others = true,
                }
            }
        }
        if has_others {
            for (db, key) in known {
                if self.torn.insert((db, key.to_vec())) {
                    self.torn_bytes += key.len();
                }
            }
            return Ok(());
        }
        let is_atomic = wanted.len() > 1;
        if is_atomic {
            out.extend_from_slice(b"*1\r\n$5\r\nMULTI\r\n");
        }
        for (db, bytes) in &wanted {
            self.select(*db, out);
            out.extend_from_slice(bytes);
        }
        if is_atomic {
            out.extend_from_slice(b"*1\r\n$4\r\nEXEC\r\n");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
