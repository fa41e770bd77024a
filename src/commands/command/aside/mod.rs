//! Values built aside: from other keys, slice by slice, with the shards released in between, so that a command that
//! stores a large result holds them only while it installs the result.
//!
//! ```text
//! with the shards   Aside::read    watches the sources, the first time; reads a slice of them
//! without           Aside::add     adds what was read to the value
//! with the shards   Aside::finish  returns the value, if no source has changed since the first slice
//! ```
//!
//! The command is still one step, at the moment at which the value is installed. The sources are watched, as by WATCH,
//! from before the first slice until then; sources that have not changed give the value that the command itself would
//! build at that moment. If one has changed, expired or come into being, what was built is dropped, and the command
//! builds the value with its shards locked to the end. A slice changes nothing, so no client sees that the command has
//! begun, and a server that stops meanwhile has not run it.

#[cfg(test)]
mod tests;

use super::Args;
use super::args::RoutedKey;
use super::prepared::Built;
use crate::config::Config;
use basalt_core::base::hash::HashSeed;
use basalt_core::structures::entry::EntryRef;
use basalt_engine::value::Object;
use basalt_engine::watching::Watched;
use basalt_engine::{Engine, Now};

/// Maximum number of sources; each is looked up in each slice.
const SOURCES_MAX: usize = 32;

/// The circumstances of a command that builds its value aside.
#[derive(Clone, Copy)]
pub struct AsideContext<'a> {
    /// Database of the client.
    pub db: usize,
    /// Limits and thresholds.
    pub config: &'a Config,
    /// Seed of all hashes.
    pub seed: HashSeed,
}

/// Begins to build a command's value aside; None for requests whose value is not built so.
pub type BeginAside = fn(&Args<'_>, &AsideContext<'_>) -> Option<Aside>;

/// Elements looked at in one slice, each as often as there are sources in which it is searched for: some 0.1 ms.
pub const LOOKUPS_PER_SLICE: usize = 512;

/// Bytes of elements after which a slice ends.
pub const BYTES_PER_SLICE: usize = 64 * 1024;

/// The outcome of a slice: whether the build goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceResult {
    /// More slices follow.
    More,
    /// The sources were read to the end.
    Whole,
    /// The value cannot be built aside, or a source has changed; nothing is watched any more.
    Unsuitable,
}

/// The part of a value's building that depends on its command.
pub trait BuildAside: Send {
    /// Reads a slice, at most some 0.1 ms of work, of sources that are the same in all slices; None for keys that do
    /// not exist.
    fn read(&mut self, sources: &[Option<EntryRef<'_, Object>>]) -> SliceResult;

    /// Adds what was read to the value.
    fn add(&mut self);

    /// Takes the value out, or the error that the command answers with instead.
    fn take(&mut self) -> Built;
}

struct Source {
    watched: Watched,
    engine_index: u16,
    exists: bool,
}

impl Source {
    fn engine<'e>(&self, engines: &'e mut [&mut Engine]) -> &'e mut Engine {
        let index = usize::from(self.engine_index).min(engines.len() - 1);
        &mut *engines[index]
    }
}

/// A value that is being built aside, see the module.
pub struct Aside {
    sources: Vec<Source>,
    is_watching: bool,
    value: Box<dyn BuildAside>,
}

impl Aside {
    /// Begins to build a value from the sources under these keys of a database.
    pub fn new(
        args: &Args<'_>,
        keys: &[RoutedKey],
        db: usize,
        value: Box<dyn BuildAside>,
    ) -> Aside {
        let source = |routed: &RoutedKey| Source {
            watched: Watched {
                db,
                key: args.get(routed.argument as usize).into(),
                hash: routed.hash,
                shard: routed.shard,
                stamp: 0,
                times: 1,
            },
            engine_index: routed.engine_index,
            exists: false,
        };
        Aside {
            sources: keys.iter().map(source).collect(),
            is_watching: false,
            value,
        }
    }

    /// Reads a slice of the sources, with the command's shards locked.
    pub fn read(&mut self, engines: &mut [&mut Engine], now: Now) -> SliceResult {
        if self.sources.len() > SOURCES_MAX {
            return SliceResult::Unsuitable;
        }
        if !self.is_watching {
            if self.lacks_memory(engines, now) {
                return SliceResult::Unsuitable;
            }
            self.watch(engines, now);
        }
        let result = match self.have_changed(engines, now) {
            true => SliceResult::Unsuitable,
            false => {
                let peek = |source: &Source| {
                    if !source.exists {
                        return None;
                    }
                    let index = usize::from(source.engine_index).min(engines.len() - 1);
                    engines[index].peek(source.watched.db, &source.watched.key())
                };
                let entries: Vec<Option<EntryRef<'_, Object>>> =
                    self.sources.iter().map(peek).collect();
                self.value.read(&entries)
            }
        };
        if result == SliceResult::Unsuitable {
            self.give_up(engines);
        }
        result
    }

    /// Adds what was read to the value, with no shard locked.
    pub fn add(&mut self) {
        self.value.add();
    }

    /// Returns the value, if no source has changed since the first slice, and ends the watching; with the command's
    /// shards locked.
    pub fn finish(mut self, engines: &mut [&mut Engine], now: Now) -> Option<Built> {
        if self.have_changed(engines, now) {
            self.give_up(engines);
            return None;
        }
        self.forget(engines);
        Some(self.value.take())
    }

    /// Ends the watching, and leaves what was built to be freed; with the command's shards locked.
    pub fn give_up(&mut self, engines: &mut [&mut Engine]) {
        self.forget(engines);
        if let (Some(engine), Ok(entry)) = (engines.first_mut(), self.value.take()) {
            engine.free_unused(entry);
        }
    }

    /// True if the memory limit leaves no room for the value; the command itself is then refused. Evicts what it may,
    /// as before the command itself.
    fn lacks_memory(&self, engines: &mut [&mut Engine], now: Now) -> bool {
        match (self.sources.first(), engines.first_mut()) {
            (Some(source), Some(engine)) => engine.make_room(source.watched.db, now).is_err(),
            _ => false,
        }
    }

    fn watch(&mut self, engines: &mut [&mut Engine], now: Now) {
        self.is_watching = true;
        for source in &mut self.sources {
            let engine = source.engine(engines);
            let key = source.watched.key();
            let exists = engine.has_key(source.watched.db, &key, now);
            engine.watches.add(source.watched.db, &source.watched.key);
            let stamp = engine.effects.stamp();
            (source.watched.stamp, source.exists) = (stamp, exists);
        }
    }

    /// True if a source has changed, or expired, since the watching began. Deletes nothing.
    fn have_changed(&self, engines: &mut [&mut Engine], now: Now) -> bool {
        self.sources.iter().any(|source| {
            let (engine, watched) = (source.engine(engines), &source.watched);
            let changed = &engine.watches;
            changed.changed_since(watched.db, &watched.key, watched.stamp)
                || engine.has_key(watched.db, &watched.key(), now) != source.exists
        })
    }

    fn forget(&mut self, engines: &mut [&mut Engine]) {
        if std::mem::take(&mut self.is_watching) {
            for source in &self.sources {
                source.watched.forget(source.engine(engines));
            }
        }
    }
}
