//! The part of MIGRATE that runs while the shards of its keys are locked: dumping keys, and deleting those that the
//! other server has received.
//!
//! Between the dump and the deletion the shards are unlocked, so the keys are watched meanwhile, as by a transaction:
//! a key that changed is reported instead of deleted, and dumped again. The session makes other commands wait
//! (`session::pause`), so only commands already in flight, served waiters, and expiry can change a key.
//!
//! Invariant: a key collected for migration is watched until it is settled.

use super::effect::Event;
use super::record::Audience;
use super::serial::writer::Writer;
use super::serial::{self, Form, commands, frame};
use super::watching::Watched;
use super::{Engine, Now, engine_of};
use basalt_core::structures::block::Content;

/// A key that is being migrated.
#[derive(Debug)]
pub struct MigratingKey {
    /// The key and its watch.
    pub watched: Watched,
    /// State of the migration of this key.
    pub state: State,
}

/// State of a key's migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The key is to be dumped.
    Wanted,
    /// The key does not exist here.
    Absent,
    /// The key was dumped.
    Dumped,
    /// The other server has received the key.
    Arrived,
    /// The key is gone from here, or stays here for good.
    Settled,
}

/// The step to run with the shards locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MigrationStep {
    Collect,
    Settle,
}

/// A migration of keys, see the module.
#[derive(Debug)]
pub struct Transfer {
    /// The keys to migrate.
    pub keys: Vec<MigratingKey>,
    /// Requests that restore the keys on the other server.
    pub requests: Vec<u8>,
    /// The largest stamp seen so far.
    pub stamp: u64,
    task: MigrationStep,
    options: MigrateDumpOptions,
}

/// Options for the requests that restore the keys.
#[derive(Clone, Copy, Debug)]
struct MigrateDumpOptions {
    is_moving: bool,
    replaces: bool,
    compresses: bool,
    is_again: bool,
    /// The other server is about to receive the keys' slot, and accepts keys before it owns the slot.
    is_importing: bool,
}

impl Transfer {
    /// Creates a transfer that dumps keys; `is_moving` if they are to be deleted here after their arrival.
    pub fn new(
        keys: Vec<MigratingKey>,
        is_moving: bool,
        replaces: bool,
        compresses: bool,
    ) -> Transfer {
        Transfer {
            keys,
            requests: Vec::new(),
            stamp: 0,
            task: MigrationStep::Collect,
            options: MigrateDumpOptions {
                is_moving,
                replaces,
                compresses,
                is_again: false,
                is_importing: false,
            },
        }
    }

    /// Sets whether the other server is a node of the same cluster that may not own the keys' slot yet.
    #[must_use]
    pub fn between_nodes(mut self, is_so: bool) -> Transfer {
        self.options.is_importing = is_so;
        self
    }

    /// Returns the shards of the keys, ascending.
    pub fn shards(&self) -> Vec<u16> {
        let mut shards: Vec<u16> = self.keys.iter().map(|key| key.watched.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    /// Makes the next [`Transfer::run`] dump wanted keys as RESTORE requests. A second dump replaces what arrived
    /// first, and also deletes keys at the destination that no longer exist here.
    pub fn collect(&mut self) {
        self.task = MigrationStep::Collect;
    }

    /// Makes the next [`Transfer::run`] delete keys that arrived, except those that have changed, which are wanted
    /// again. Ends all watches.
    pub fn settle(&mut self) {
        self.task = MigrationStep::Settle;
    }

    /// Returns the number of keys in a state.
    pub fn count(&self, state: State) -> usize {
        self.keys.iter().filter(|key| key.state == state).count()
    }

    /// Runs the selected step, with the shards locked.
    pub fn run(&mut self, engines: &mut [&mut Engine], now: Now) {
        let mut requests = std::mem::take(&mut self.requests);
        requests.clear();
        self.agree(engines);
        let mut gone: Vec<(usize, Box<[u8]>)> = Vec::new();
        for moving in &mut self.keys {
            let shard = moving.watched.shard;
            let Some(engine) = engine_of(engines, shard) else {
                continue;
            };
            match (self.task, moving.state) {
                (MigrationStep::Collect, State::Wanted) => {
                    moving.state = dump(engine, &moving.watched, now, self.options, &mut requests);
                }
                (MigrationStep::Settle, State::Arrived) => {
                    let was_there;
                    (moving.state, was_there) = settle(engine, &moving.watched, now);
                    if was_there {
                        gone.push((moving.watched.db, moving.watched.key.clone()));
                    }
                }
                (MigrationStep::Settle, State::Dumped) if self.options.is_moving => {
                    moving.watched.forget(engine);
                    moving.state = State::Settled;
                }
                _ => {}
            }
        }
        self.agree(engines);
        log_deletions(engines, &gone);
        if self.task == MigrationStep::Collect {
            // Later changes of any of the keys get a larger stamp than this.
            for moving in &mut self.keys {
                moving.watched.stamp = self.stamp;
            }
            self.options.replaces = true;
            self.options.is_again = true;
        }
        self.requests = requests;
    }

    /// Raises the stamps of all shards to the largest of them.
    fn agree(&mut self, engines: &mut [&mut Engine]) {
        let stamps = engines.iter().map(|engine| engine.effects.stamp());
        self.stamp = stamps.fold(self.stamp, u64::max);
        for engine in engines.iter_mut() {
            engine.effects.raise(self.stamp);
        }
    }
}

/// Writes the request that restores a key in its current state, and begins to watch it.
fn dump(
    engine: &mut Engine,
    watched: &Watched,
    now: Now,
    options: MigrateDumpOptions,
    requests: &mut Vec<u8>,
) -> State {
    let key = watched.key();
    let mut keyspace = engine.keyspace(watched.db, now);
    let Some(place) = keyspace.find_read(&key) else {
        if !options.is_again {
            return State::Absent;
        }
        match options.is_importing {
            true => restore_nothing(key.bytes, requests),
            false => commands::append(requests, &[b"DEL", key.bytes]),
        }
        engine.watches.add(watched.db, key.bytes);
        return State::Dumped;
    };
    let entry = keyspace.entry(place);
    let ttl_ms = entry
        .deadline()
        .map_or(0, |at_ms| at_ms.saturating_sub(now.unix_ms).max(1));
    let mut writer = Writer::new(Form::Oldest, options.compresses);
    serial::write(entry, now.unix_ms, &mut writer);
    let (value, version) = writer.finish();
    let payload = frame::seal(value, version);
    let ttl = ttl_ms.to_string();
    let word: &[u8] = match options.is_importing {
        true => b"RESTORE-ASKING",
        false => b"RESTORE",
    };
    let parts: [&[u8]; 5] = [word, key.bytes, ttl.as_bytes(), &payload, b"REPLACE"];
    commands::append(requests, &parts[..if options.replaces { 5 } else { 4 }]);
    if options.is_moving {
        engine.watches.add(watched.db, key.bytes);
    }
    State::Dumped
}

/// Writes a request that deletes a key at the destination, where DEL would be redirected: a RESTORE of the key with a
/// deadline that passed long ago.
#[cold]
fn restore_nothing(key: &[u8], requests: &mut Vec<u8>) {
    const EMPTY_TEXT: [u8; 2] = [0, 0];
    let (_, version) = Writer::new(Form::Oldest, false).finish();
    let payload = frame::seal(EMPTY_TEXT.to_vec(), version);
    let parts: [&[u8]; 6] = [
        b"RESTORE-ASKING",
        key,
        b"1",
        &payload,
        b"REPLACE",
        b"ABSTTL",
    ];
    commands::append(requests, &parts);
}

/// Logs the deletion of these keys, which all belong to one database.
fn log_deletions(engines: &mut [&mut Engine], gone: &[(usize, Box<[u8]>)]) {
    if let (Some(engine), Some((db, _))) = (engines.first_mut(), gone.first())
        && engine.effects.is_logging()
    {
        let names = gone.iter().map(|(_, key)| Content::from(&**key));
        let arguments: Vec<Content<'_>> = std::iter::once(b"DEL".into()).chain(names).collect();
        engine
            .effects
            .log_command(*db, Audience::BOTH, arguments.into_iter());
    }
}

/// Deletes a key that arrived, unless it changed. Returns its new state, and whether a key was deleted.
fn settle(engine: &mut Engine, watched: &Watched, now: Now) -> (State, bool) {
    watched.expire(engine, now);
    let changed = engine
        .watches
        .touched_since(watched.db, &watched.key, watched.stamp);
    watched.forget(engine);
    if changed {
        return (State::Wanted, false);
    }
    let key = watched.key();
    let mut keyspace = engine.keyspace(watched.db, now);
    let found = keyspace.find_write(&key);
    if let Some(place) = found {
        keyspace.delete(place);
        keyspace.wrote(key.bytes, Event::DEL);
    }
    (State::Settled, found.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;
    use crate::keyspace::Deadline;
    use basalt_core::base::hash::HashSeed;

    const NOW: Now = Now { unix_ms: 1_000 };

    fn put(engine: &mut Engine, watched: &Watched, value: &[u8]) {
        let key = watched.key();
        let mut keyspace = engine.keyspace(0, NOW);
        let found = keyspace.find_write(&key);
        keyspace.put_text(&key, found, value, Deadline::Clear);
        keyspace.wrote(key.bytes, Event::string("set"));
    }

    fn run(transfer: &mut Transfer, engine: &mut Engine) -> String {
        transfer.run(&mut [engine], NOW);
        String::from_utf8_lossy(&transfer.requests).into_owned()
    }

    #[test]
    fn a_key_that_changed_on_its_way_is_sent_again_and_one_that_went_is_deleted_there() {
        let seed = HashSeed { k0: 1, k1: 2 };
        let mut engine = Engine::new(1, seed, 3);
        engine
            .effects
            .interest()
            .set_listening(Audience::FILE, true);
        let keys = [&b"same"[..], b"changed", b"gone", b"none"].map(|key| MigratingKey {
            watched: Watched {
                db: 0,
                key: key.into(),
                hash: seed.hash(key),
                shard: 0,
                stamp: 0,
                times: 1,
            },
            state: State::Wanted,
        });
        for moving in &keys[..3] {
            put(&mut engine, &moving.watched, b"one");
        }
        let mut transfer = Transfer::new(keys.into(), true, false, true);
        let requests = run(&mut transfer, &mut engine);
        assert_eq!(requests.matches("RESTORE").count(), 3);
        assert!(!requests.contains("REPLACE"));
        assert_eq!(transfer.count(State::Absent), 1);

        put(&mut engine, &transfer.keys[1].watched, b"two");
        let gone = Key {
            bytes: b"gone",
            hash: seed.hash(b"gone"),
        };
        let mut keyspace = engine.keyspace(0, NOW);
        let place = keyspace.find_write(&gone).expect("it is there");
        keyspace.delete(place);
        keyspace.wrote(b"gone", Event::DEL);
        for moving in &mut transfer.keys[..3] {
            moving.state = State::Arrived;
        }
        transfer.settle();
        run(&mut transfer, &mut engine);
        let states: Vec<State> = transfer.keys.iter().map(|key| key.state).collect();
        let (wanted, settled) = (State::Wanted, State::Settled);
        assert_eq!(states, [settled, wanted, wanted, State::Absent]);
        assert!(engine.watches.is_empty());
        assert_eq!(engine.keyspace(0, NOW).len(), 1);
        let logged = engine.effects.records().iter();
        let logged: Vec<Vec<u8>> = logged.map(|record| record.bytes.to_vec()).collect();
        assert_eq!(logged, [b"*2\r\n$3\r\nDEL\r\n$4\r\nsame\r\n"]);

        transfer.collect();
        let requests = run(&mut transfer, &mut engine);
        assert_eq!(requests.matches("RESTORE").count(), 1);
        assert!(requests.contains("two") && requests.contains("REPLACE"));
        assert!(requests.contains("*2\r\n$3\r\nDEL\r\n$4\r\ngone\r\n"));
        // The other server accepted neither key: both stay here, and the transfer no longer watches them.
        transfer.settle();
        run(&mut transfer, &mut engine);
        assert!(engine.watches.is_empty());
        assert_eq!(engine.keyspace(0, NOW).len(), 1);
    }
}
