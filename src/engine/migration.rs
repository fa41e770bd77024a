//! What MIGRATE does with the shards of its keys in hand: dumping them, and deleting what arrived elsewhere.
//!
//! Between the two no thread holds the shards, so the keys are watched meanwhile, as a transaction watches: one that
//! changed is not deleted but says so, and is dumped again. Clients that come later are held back by the session, see
//! `session::pause`; what is left are commands that were under way, waiters that were served, and expiry.
//!
//! Invariant: a key that is collected to be moved is watched until it is settled.

use super::effect::Event;
use super::record::Audience;
use super::serial::writer::Writer;
use super::serial::{self, Form, commands, frame};
use super::watching::Watched;
use super::{Engine, Now, engine_of};
use basalt_core::structures::block::Content;

/// One key on its way.
#[derive(Debug)]
pub struct Moving {
    /// The key as it is watched.
    pub watched: Watched,
    /// Where it stands.
    pub state: State,
}

/// Where a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The key is to be dumped.
    Wanted,
    /// There was no such key.
    Absent,
    /// The key was dumped.
    Dumped,
    /// The other server has it.
    Arrived,
    /// The key is here no more, or for good.
    Settled,
}

/// What is to be done with the shards in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Collect,
    Settle,
}

/// See the module.
#[derive(Debug)]
pub struct Transfer {
    /// The keys.
    pub keys: Vec<Moving>,
    /// Requests that bring about there what is here.
    pub requests: Vec<u8>,
    /// The largest stamp of what was done so far.
    pub stamp: u64,
    task: Task,
    options: Options,
}

/// How keys are dumped.
#[derive(Clone, Copy, Debug)]
struct Options {
    is_moving: bool,
    replaces: bool,
    compresses: bool,
    is_again: bool,
    /// The other server is about to get the slot of the keys, and takes them before it has it.
    is_importing: bool,
}

impl Transfer {
    /// Keys that are to be dumped; `is_moving` if they are to be deleted in the end.
    pub fn new(keys: Vec<Moving>, is_moving: bool, replaces: bool, compresses: bool) -> Transfer {
        Transfer {
            keys,
            requests: Vec::new(),
            stamp: 0,
            task: Task::Collect,
            options: Options {
                is_moving,
                replaces,
                compresses,
                is_again: false,
                is_importing: false,
            },
        }
    }

    /// The other server is a node of the same cluster, and may not have the slot of the keys yet.
    #[must_use]
    pub fn between_nodes(mut self, is_so: bool) -> Transfer {
        self.options.is_importing = is_so;
        self
    }

    /// The shards that it needs, ascending.
    pub fn shards(&self) -> Vec<u16> {
        let mut shards: Vec<u16> = self.keys.iter().map(|key| key.watched.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    /// Next, keys that are wanted are dumped as requests of RESTORE. The second time they replace what arrived first,
    /// and keys that are here no more are deleted there too.
    pub fn collect(&mut self) {
        self.task = Task::Collect;
    }

    /// Next, keys that arrived are deleted, unless they changed: those are wanted again. No key is watched any more.
    pub fn settle(&mut self) {
        self.task = Task::Settle;
    }

    /// How many keys stand there.
    pub fn count(&self, state: State) -> usize {
        self.keys.iter().filter(|key| key.state == state).count()
    }

    /// Does it, with the shards in hand.
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
                (Task::Collect, State::Wanted) => {
                    moving.state = dump(engine, &moving.watched, now, self.options, &mut requests);
                }
                (Task::Settle, State::Arrived) => {
                    let was_there;
                    (moving.state, was_there) = settle(engine, &moving.watched, now);
                    if was_there {
                        gone.push((moving.watched.db, moving.watched.key.clone()));
                    }
                }
                (Task::Settle, State::Dumped) if self.options.is_moving => {
                    moving.watched.forget(engine);
                    moving.state = State::Settled;
                }
                _ => {}
            }
        }
        self.agree(engines);
        log_deletions(engines, &gone);
        if self.task == Task::Collect {
            // What happens to any of the keys from now on is stamped later than this.
            for moving in &mut self.keys {
                moving.watched.stamp = self.stamp;
            }
            self.options.replaces = true;
            self.options.is_again = true;
        }
        self.requests = requests;
    }

    /// All shards know the largest stamp that any of them knows.
    fn agree(&mut self, engines: &mut [&mut Engine]) {
        let stamps = engines.iter().map(|engine| engine.effects.stamp());
        self.stamp = stamps.fold(self.stamp, u64::max);
        for engine in engines.iter_mut() {
            engine.effects.raise(self.stamp);
        }
    }
}

/// Writes the request that restores a key as it is now, and begins to watch it.
fn dump(
    engine: &mut Engine,
    watched: &Watched,
    now: Now,
    options: Options,
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

/// Writes the request that deletes a key where DEL would be sent elsewhere: its time has been over for long when it is
/// restored.
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

/// Logs that these keys, which are all of one database, were deleted.
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

/// Deletes a key that arrived, unless it changed; where it stands then, and whether it was there.
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
    use basalt_core::base::hash::Seed;

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
        let seed = Seed { k0: 1, k1: 2 };
        let mut engine = Engine::new(1, seed, 3);
        engine
            .effects
            .interest()
            .set_listening(Audience::FILE, true);
        let keys = [&b"same"[..], b"changed", b"gone", b"none"].map(|key| Moving {
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
        // The other server took neither: both stay as they are, and no transfer watches them.
        transfer.settle();
        run(&mut transfer, &mut engine);
        assert!(engine.watches.is_empty());
        assert_eq!(engine.keyspace(0, NOW).len(), 1);
    }
}
