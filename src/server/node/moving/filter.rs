//! Selects the log records for the node that gets slots: changes to keys that it has been sent.
//!
//! Keys are walked in slices, database after database of each slot, with a marker in the log after each, and each
//! slice is sent at the position of its marker. So at any position of the log it is known which keys the target has
//! in their state at that point: those up to where the walk was. There are three kinds of commands:
//!
//! - all its keys are known: it is sent, and runs there as here;
//! - none is known: it is left out, as the walk will send the results;
//! - some are known (SUNIONSTORE, RENAME, a transaction): it is left out, and the known keys are *torn*: they count
//!   as unknown until they have been sent again in their current state, by a slice of their own.

use std::collections::{HashMap, HashSet};

use crate::shard::route::Router;
use basalt_commands::acl::selector::Used;
use basalt_commands::cluster::slot_set::SlotSet;
use basalt_commands::command::declaration::{Command, Flags};
use basalt_commands::command::keys;
use basalt_commands::command::notes;
use basalt_commands::command::registry::{registry, resolve};
use basalt_core::base::{hash, number};
use basalt_core::resp::answer::{Answer, MalformedReply};
use basalt_engine::note;
use basalt_engine::serial::commands;
use basalt_engine::slots::walk_position;

/// Progress of the walk over a slot: database and position. Everything before it has been sent.
pub(super) type Reached = (usize, u64);

/// The walk over a slot is complete.
const ALL: Reached = (usize::MAX, 0);

/// A key with its database.
pub(super) type DatabaseKey = (usize, Vec<u8>);

/// All data, or those of a database, were deleted: the data sent is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flushed;

/// Filter of log records by the progress of the walk over each slot; see the module.
pub(super) struct MigrationLogFilter {
    router: Router,
    slots: SlotSet,
    /// Progress of the walk over each slot; missing slots have not been begun.
    walked: HashMap<u16, Reached>,
    torn: HashSet<DatabaseKey>,
    torn_bytes: usize,
    /// Database selected in the log.
    db: usize,
    /// Database selected at the target.
    sent_db: usize,
}

/// A command in RESP: its arguments, and its encoding.
struct LoggedRequest<'a> {
    arguments: Vec<&'a [u8]>,
    bytes: &'a [u8],
}

impl<'a> LoggedRequest<'a> {
    /// Takes the first command; returns `None` if there is none, or only a part of one.
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

/// Returns the command of some words, or that inside a note, with its own words.
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

/// Takes a message sent by `CLUSTER SYNCSLOTS`, or an error reply; returns `None` if it is incomplete.
pub(super) fn word(input: &mut Vec<u8>) -> Result<Option<Result<String, String>>, MalformedReply> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Answer::take(input)?.map(|answer| match answer {
        Answer::Status(said) => Ok(text(&said)),
        Answer::Error(why) => Err(text(&why)),
        Answer::Words(words) => {
            Ok(text(words.last().map_or(b"", Vec::as_slice)).to_ascii_uppercase())
        }
        Answer::Other => Ok(String::new()),
    }))
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

    /// Notes that the keys of a slot before a position have been sent; `None`: all of them.
    pub(super) fn note_walked(&mut self, slot: u16, next: Option<Reached>) {
        self.walked.insert(slot, next.unwrap_or(ALL));
    }

    /// Returns keys that have to be sent again, of one shard and one database, at most `most`.
    pub(super) fn torn(&self, most: usize) -> Vec<DatabaseKey> {
        let place = |(db, key): &DatabaseKey| (*db, self.router.route(key).1);
        let Some(first) = self.torn.iter().next() else {
            return Vec::new();
        };
        let wanted = place(first);
        let same = self.torn.iter().filter(|key| place(key) == wanted);
        same.take(most).cloned().collect()
    }

    /// Returns the bytes of the names of those keys.
    pub(super) fn torn_bytes(&self) -> usize {
        self.torn_bytes
    }

    /// Notes that keys have been sent again.
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

    /// Appends those of the given whole records that are to be sent.
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

    /// Appends commands that take effect together, or notes whose keys they tear.
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
mod tests {
    use super::*;
    use basalt_core::base::hash::HashSeed;
    use basalt_engine::serial::commands::command;

    const SEED: HashSeed = HashSeed { k0: 1, k1: 2 };

    fn stream(lines: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in lines {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            command(&mut bytes, &words);
        }
        bytes
    }

    fn passed(filter: &mut MigrationLogFilter, lines: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        assert_eq!(filter.pass(&stream(lines), &mut out), Ok(()));
        out
    }

    /// Returns two keys of tag `t` in walk order, and the position of the second.
    fn two_keys() -> (String, String, u64) {
        let place = |number: u32| {
            let name = format!("{{t}}{number}");
            (walk_position(SEED.hash(name.as_bytes())), name)
        };
        let mut all: Vec<(u64, String)> = (0..8).map(place).collect();
        all.sort();
        (all[0].1.clone(), all[7].1.clone(), all[4].0)
    }

    #[test]
    fn what_the_other_node_does_not_have_yet_is_left_out_and_what_is_torn_comes_again() {
        let slot = hash::slot(b"t");
        let mut filter =
            MigrationLogFilter::new(Router::new(SEED, 4), [slot].into_iter().collect());
        let (early, late, middle) = two_keys();
        let lines = |key: &str| [format!("SET {key} 1"), format!("INCR {key}")];
        let [set_early, _] = lines(&early);
        let [set_late, incr_late] = lines(&late);
        assert!(passed(&mut filter, &[&set_early]).is_empty(), "not begun");
        filter.note_walked(slot, Some((0, middle)));
        let passes = [
            "SELECT 0",
            &set_early,
            "SET other 1",
            &set_late,
            "PUBLISH {t}a b",
        ];
        assert_eq!(passed(&mut filter, &passes), stream(&[&set_early]));
        let rename = format!("RENAME {late} {early}");
        assert!(passed(&mut filter, &[&rename]).is_empty());
        assert_eq!(filter.torn(9), [(0, early.as_bytes().to_vec())]);
        assert!(passed(&mut filter, &[&set_early]).is_empty(), "torn");
        filter.note_mended(&[(0, early.as_bytes().to_vec())]);
        assert_eq!(filter.torn_bytes(), 0);
        assert_eq!(passed(&mut filter, &[&set_early]), stream(&[&set_early]));
        filter.note_walked(slot, None);
        let both = ["MULTI", &set_late, "SET other 1", &incr_late, "EXEC"];
        let sent = stream(&["MULTI", &set_late, &incr_late, "EXEC"]);
        assert_eq!(passed(&mut filter, &both), sent);
        let one = ["MULTI", &set_late, "SET other 1", "EXEC"];
        assert_eq!(passed(&mut filter, &one), stream(&[&set_late]));
        // A script may access several slots: the target does not have the other key.
        let across = format!("SUNIONSTORE {late} other");
        assert!(passed(&mut filter, &[&across]).is_empty());
        assert_eq!(filter.torn(9).len(), 1);
        let mut out = Vec::new();
        let flush = stream(&["FLUSHALL"]);
        assert_eq!(filter.pass(&flush, &mut out), Err(Flushed));
    }

    #[test]
    fn each_database_is_walked_by_itself_and_named_where_it_changes() {
        let slot = hash::slot(b"t");
        let mut filter =
            MigrationLogFilter::new(Router::new(SEED, 4), [slot].into_iter().collect());
        let (early, late, middle) = two_keys();
        filter.note_walked(slot, Some((1, middle)));
        let [set_early, set_late] = [&early, &late].map(|key| format!("SET {key} 1"));
        let changes = [
            &set_late, "SELECT 1", &set_early, &set_late, "SELECT 2", &set_early, "SELECT 0",
            &set_early,
        ];
        let sent = [&set_late, "SELECT 1", &set_early, "SELECT 0", &set_early];
        assert_eq!(passed(&mut filter, &changes), stream(&sent));
        // From walked to unwalked databases, and back; and among walked ones.
        for other in [
            format!("MOVE {early} 2"),
            format!("COPY {early} {late} DB 1"),
        ] {
            assert!(passed(&mut filter, &[&other]).is_empty());
            let mut torn = Vec::new();
            while let [first, ..] = &filter.torn(9)[..] {
                filter.note_mended(std::slice::from_ref(first));
                torn.push(first.clone());
            }
            assert!(torn.contains(&(0, early.as_bytes().to_vec())), "{torn:?}");
            assert!(!torn.iter().any(|(db, _)| *db == 2), "{torn:?}");
        }
        let within = format!("MOVE {early} 1");
        assert_eq!(passed(&mut filter, &[&within]), stream(&[&within]));
        let both = ["MULTI", &set_early, "SELECT 1", &set_early, "EXEC"];
        assert_eq!(passed(&mut filter, &both), stream(&both));
    }

    #[test]
    fn notes_go_with_the_key_that_they_are_about() {
        let slot = hash::slot(b"t");
        let mut filter =
            MigrationLogFilter::new(Router::new(SEED, 4), [slot].into_iter().collect());
        let (early, late, middle) = two_keys();
        filter.note_walked(slot, Some((0, middle)));
        let note = |words: &str| format!("COMMAND INFO basalt:note {words}");
        let fence = |key: &str| note(&format!("FENCE 5 {key} 0123456789abcdef"));
        let tags = note(&format!("TAG ADD {early} {late} other"));
        let set = format!("SET {early} 1");
        let notes = [
            &tags,
            &fence(&late),
            &fence("other"),
            // The target has such records of its own.
            &note("FENCE 5"),
            &note(&format!("TAG INVALIDATE {early}")),
            &note(&format!("NEW {early}")),
            &note(&format!("LSTALE {early} 5")),
            "MULTI",
            &set,
            &fence(&early),
            "EXEC",
        ];
        let sent = [
            &tags,
            &note(&format!("LSTALE {early} 5")),
            "MULTI",
            &set,
            &fence(&early),
            "EXEC",
        ];
        assert_eq!(passed(&mut filter, &notes), stream(&sent));
        let both = ["MULTI", &fence(&early), &fence(&late), "EXEC"];
        assert!(passed(&mut filter, &both).is_empty());
        assert_eq!(filter.torn(9), [(0, early.into_bytes())]);
    }

    #[test]
    fn words_are_taken_as_they_come_whole() {
        let mut input =
            b"+OK\r\n-ERR why\r\n*3\r\n$7\r\nCLUSTER\r\n$9\r\nSYNCSLOTS\r\n$3\r\nack\r\n*3\r\n$7\r"
                .to_vec();
        assert_eq!(word(&mut input), Ok(Some(Ok("OK".to_owned()))));
        assert_eq!(word(&mut input), Ok(Some(Err("ERR why".to_owned()))));
        assert_eq!(word(&mut input), Ok(Some(Ok("ACK".to_owned()))));
        assert_eq!(word(&mut input), Ok(None));
        assert_eq!(word(&mut b"HTTP/1.1\r\n".to_vec()), Err(MalformedReply));
    }
}
