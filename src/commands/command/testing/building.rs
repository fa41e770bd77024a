//! Values that are built aside by tests, slice by slice.

use super::{Terminal, with_request};
use crate::command::args::RoutedKey;
use crate::command::aside::{Aside, AsideContext, SliceResult};
use crate::command::prepared::Built;
use basalt_core::base::hash::slot;
use basalt_engine::{Engine, Now};

/// A value that is being built aside, and the shards of its command.
pub struct Building {
    aside: Aside,
    shards: Vec<u16>,
}

impl Building {
    /// Begins to build the value of a request, a line without quotes.
    pub fn begin(cli: &Terminal, line: &str) -> Building {
        Building::try_begin(cli, line).expect("its value is built aside")
    }

    /// Like [`Building::begin`]; None for a request whose value is not built aside.
    pub fn try_begin(cli: &Terminal, line: &str) -> Option<Building> {
        let (seed, mask) = (cli.engines[0].seed(), cli.engines.len() as u16 - 1);
        let route = |at: usize, key: &[u8]| RoutedKey {
            hash: seed.hash(key),
            argument: at as u32,
            shard: slot(key) & mask,
            engine_index: 0,
        };
        let mut begun = None;
        with_request(line, route, |command, args| {
            let mut shards: Vec<u16> = args.keys().iter().map(|key| key.shard).collect();
            shards.sort_unstable();
            shards.dedup();
            let context = AsideContext {
                db: cli.connection.db,
                config: &cli.config,
                seed,
            };
            let begin = command.builds_aside.expect("it builds aside");
            begun = begin(args, &context).map(|aside| Building { aside, shards });
        });
        begun
    }

    /// Reads a slice, and adds it.
    pub fn read(&mut self, cli: &mut Terminal) -> SliceResult {
        let result = with(cli, &self.shards, |engines, now| {
            self.aside.read(engines, now)
        });
        if result != SliceResult::Unsuitable {
            self.aside.add();
        }
        result
    }

    /// Returns the value, if it is still valid.
    pub fn finish(self, cli: &mut Terminal) -> Option<Built> {
        with(cli, &self.shards, |engines, now| {
            self.aside.finish(engines, now)
        })
    }

    /// Reads all that is left. Returns the value, if it is still valid, and the number of slices.
    pub fn go_on(mut self, cli: &mut Terminal) -> (Option<Built>, usize) {
        for slices in 1.. {
            match self.read(cli) {
                SliceResult::More => {}
                SliceResult::Whole => return (self.finish(cli), slices),
                SliceResult::Unsuitable => return (None, slices),
            }
        }
        unreachable!("collections have an end")
    }
}

fn with<R>(
    cli: &mut Terminal,
    shards: &[u16],
    run: impl FnOnce(&mut [&mut Engine], Now) -> R,
) -> R {
    let now = Now {
        unix_ms: cli.now_ms,
    };
    let mut engines: Vec<&mut Engine> = cli
        .engines
        .iter_mut()
        .filter(|engine| shards.contains(&engine.shard))
        .collect();
    run(&mut engines, now)
}

/// Panics if a key is watched.
pub fn check_nothing_is_watched(cli: &Terminal) {
    assert!(cli.engines.iter().all(|engine| engine.watches.is_empty()));
}
