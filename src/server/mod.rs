//! Composition root: builds shards, registries and listeners; starts and stops them in order.

mod accept;
mod background;
mod host;
mod runtime;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::base::hash::Seed;
use crate::client::registry::Registry;
use crate::config::{Config, Startup};
use crate::engine::Engine;
use crate::session::service::{Pause, Service};
use crate::shard::Shards;
use crate::shard::route::Router;
use crate::telemetry::Telemetry;
use runtime::Runtimes;

/// Stack of the threads that run commands.
const CORES_FALLBACK: usize = 1;

/// Runs the server until it is told to stop; the exit code.
pub fn run(startup: Startup) -> i32 {
    let config = Arc::new(startup.config);
    let cores = std::thread::available_parallelism().map_or(CORES_FALLBACK, usize::from);
    let telemetry = Telemetry::new(startup.file.clone(), config.thread_count(cores));
    let service = Arc::new(build(
        Arc::clone(&config),
        config.shard_count(cores),
        telemetry,
    ));
    let host = host::Host::new(Arc::clone(&service), startup.file);
    assert!(
        service.server.set(Arc::new(host)).is_ok(),
        "the server is set once"
    );
    let runtimes = Runtimes::new(config.runtime, config.thread_count(cores));
    let (stop, stopped) = watch::channel(false);
    let listeners = match runtimes.block_on(accept::open(&config)) {
        Ok(listeners) => listeners,
        Err(text) => {
            eprintln!("{text}");
            return 1;
        }
    };
    background::start_workers(&service, &runtimes);
    let background = background::start(Arc::clone(&service), stopped.clone());
    for listener in listeners {
        runtimes.accept(accept::accept(
            listener,
            Arc::clone(&service),
            runtimes.spawner(),
            stop.clone(),
        ));
    }
    eprintln!("Ready to accept connections tcp");
    runtimes.block_on(background::until_stopped(stop, stopped));
    background
        .join()
        .expect("the background thread does not panic");
    0
}

/// Shards, registries and what they share.
pub(crate) fn build(config: Arc<Config>, shard_count: usize, telemetry: Telemetry) -> Service {
    let seed = Seed {
        k0: rand::random(),
        k1: rand::random(),
    };
    let engines: Vec<Engine> = (0..shard_count)
        .map(|_| Engine::new(config.databases as usize, seed, rand::random()))
        .collect();
    let boards = engines
        .iter()
        .map(|engine| Arc::clone(engine.board()))
        .collect();
    Service {
        shards: Arc::new(Shards::new(engines)),
        boards,
        router: Router::new(seed, shard_count as u16),
        config: ArcSwap::new(config),
        clients: Registry::new(),
        pause: Pause::default(),
        active_expire: AtomicBool::new(true),
        slowlog: Default::default(),
        telemetry,
        server: OnceLock::new(),
    }
}
