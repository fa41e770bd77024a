//! Clients that write to a server until it ends, and the writes that must be there afterwards.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::history::{Client, Promise};
use crate::shared::{Shared, TRANSFERS};
use crate::steps;
use crate::support::{Draw, Options, Server, variable};

/// Clients with databases of their own.
const CLIENTS: usize = 3;

/// See the module.
pub(crate) struct Load {
    pub(crate) draw: Draw,
    clients: Vec<Client>,
    shared: Shared,
    /// True if there are clients that read other clients' writes, and take what they queued.
    has_readers: bool,
    pub(crate) acknowledged: usize,
    pub(crate) lost: usize,
}

impl Load {
    /// Creates a load whose steps count as acknowledged once `replicas` replicas have them.
    pub(crate) fn new(replicas: u32) -> Load {
        let seed = variable("STORM_SEED", 1);
        let client = |number: usize| {
            let db = 2 * number as u8;
            Client::new(seed * 1_000 + number as u64, [db, db + 1]).confirmed_by(replicas)
        };
        Load {
            draw: Draw::new(seed),
            clients: (0..CLIENTS).map(client).collect(),
            shared: Shared::default(),
            has_readers: false,
            acknowledged: 0,
            lost: 0,
        }
    }

    /// Adds clients that read other clients' writes, and take what they queued.
    pub(crate) fn with_readers(mut self) -> Load {
        self.has_readers = true;
        self
    }

    /// Returns the options for a server's start, some of them random.
    pub(crate) fn options(&mut self) -> Options {
        let shards = [1, 8, 64][self.draw.below(3)];
        Options::shards(shards).binary(std::env::var_os("STORM_BINARY"))
    }

    /// Puts load on a server for `ms` milliseconds, and until `end` has ended it.
    pub(crate) fn storm<R>(&mut self, port: u16, ms: usize, end: impl FnOnce() -> R) -> R {
        let seed = self.draw.below(1 << 30) as u64;
        let ends = AtomicBool::new(false);
        let (shared, clients, ends) = (&self.shared, &mut self.clients, &ends);
        let has_readers = self.has_readers;
        std::thread::scope(|scope| {
            for client in clients {
                scope.spawn(move || client.write(port));
            }
            for number in 0..TRANSFERS {
                let draw = Draw::new(seed + 1 + number as u64);
                scope.spawn(move || shared.transfer(port, number, draw));
            }
            if has_readers {
                scope.spawn(move || shared.watch(port, Draw::new(seed + 10)));
                scope.spawn(move || shared.consume(port));
            }
            scope.spawn(move || shared.produce(port, Draw::new(seed + 11)));
            scope.spawn(move || shared.weather(port, Draw::new(seed + 12), ends));
            std::thread::sleep(Duration::from_millis(ms as u64));
            let ended = end();
            ends.store(true, Relaxed);
            ended
        })
    }

    /// Returns the promised changes that a server lacks, or has by halves, for each client's own keys and for
    /// shared ones.
    pub(crate) fn faults(&mut self, server: &Server, own: Promise, shared: Promise) -> Vec<String> {
        let mut faults = self.shared.check(server, shared);
        for client in &mut self.clients {
            match client.check(server, own) {
                Ok((acknowledged, lost)) => {
                    self.acknowledged += acknowledged;
                    self.lost += lost;
                }
                Err(fault) => faults.push(fault),
            }
        }
        faults
    }
}

/// Loads the functions that clients call.
pub(crate) fn load_library(server: &Server) {
    let loaded = server
        .raw()
        .command(&["FUNCTION", "LOAD", &steps::library()]);
    assert_eq!(loaded.text(), "kills");
}
