//! Workers that race for a few locks: each takes one, works, and releases it, dies, or oversleeps and
//! releases it too late. Knows a recipe's operations, not their implementation; `history` judges the records.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::history::{self, Clock, Hold, Release, Releases};
use crate::support::Draw;
use crate::support::{self, Options, Server};

const WORKERS: usize = 16;

const LOCKS: usize = 8;

/// Number of deaths and of stale releases that a storm waits for, however slow the machine is.
const FATES_MIN: u64 = 8;

/// A storm that has not got there by then is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(120);

/// Threads and shards.
const COMBINATIONS: [(usize, usize); 4] = [(1, 1), (1, 64), (4, 1), (4, 64)];

/// An acquired lock.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) lock: usize,
    /// The recipe's token for it.
    pub(crate) token: String,
    /// Validity, counted from before the request was sent.
    pub(crate) until_us: u64,
    pub(crate) fence: Option<u64>,
}

/// A recipe for acquiring and releasing locks.
pub(crate) trait Recipe: Send {
    /// One attempt.
    fn acquire(&mut self, at: &mut Worker, lock: usize, ttl_ms: u64) -> Option<Claim>;

    /// Releases the lock; returns whether it was still there as ours, and is gone now.
    fn release(&mut self, at: &mut Worker, claim: &Claim) -> bool;

    /// Renews the lock; returns whether it is ours for a whole life again, or `None` if the recipe does not
    /// renew.
    fn renew(&mut self, _at: &mut Worker, _claim: &mut Claim, _ttl_ms: u64) -> Option<bool> {
        None
    }

    /// Runs now and then, and may disturb the other workers.
    fn disturb(&mut self, _at: &mut Worker) {}
}

/// A racing worker: a connection, a clock, a random source.
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) connection: redis::Connection,
    pub(crate) clock: Clock,
    pub(crate) draw: Draw,
    claims: u64,
    port: u16,
}

impl Worker {
    fn new(number: usize, port: u16, clock: Clock, seed: u64) -> Worker {
        Worker {
            number,
            connection: connect(port),
            clock,
            draw: Draw::new(seed),
            claims: 0,
            port,
        }
    }

    /// Returns a value that no other worker ever stores.
    pub(crate) fn token(&mut self) -> String {
        self.claims += 1;
        format!("{}:{}:{}", std::process::id(), self.number, self.claims)
    }

    /// Simulates the end of a worker's process and of its connection; another one replaces it.
    fn die(&mut self) {
        self.connection = connect(self.port);
    }

    pub(crate) fn nap(&mut self, up_to_us: usize) {
        let us = self.draw.below(up_to_us + 1) as u64;
        std::thread::sleep(Duration::from_micros(us));
    }
}

pub(crate) fn connect(port: u16) -> redis::Connection {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).expect("a client");
    let connection = client.get_connection().expect("a connection");
    let patience = Some(Duration::from_secs(90));
    connection.set_read_timeout(patience).expect("a time-out");
    connection
}

/// The key of a lock.
pub(crate) fn key(lock: usize) -> String {
    format!("lock:{lock}")
}

/// Returns the length of a storm.
pub(crate) fn storm_time() -> Duration {
    let told = std::env::var("LOCKS_MS").ok();
    Duration::from_millis(told.and_then(|text| text.parse().ok()).unwrap_or(600))
}

/// Parameters of a storm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    /// Lives of locks, in milliseconds: the shortest, and how much longer the longest.
    pub(crate) ttl_ms: (u64, usize),
    pub(crate) releases: Releases,
}

/// Counts of events.
#[derive(Default)]
struct Tally {
    died: AtomicU64,
    stale: AtomicU64,
}

impl Tally {
    fn is_enough(&self) -> bool {
        self.died.load(Ordering::Relaxed) >= FATES_MIN
            && self.stale.load(Ordering::Relaxed) >= FATES_MIN
    }
}

/// Races a recipe at every combination of threads and shards, and asserts that the histories are faultless.
pub(crate) fn race(name: &str, weather: Weather, recipe: fn() -> Box<dyn Recipe>) {
    race_and_judge(name, weather, recipe, |holds| {
        history::faults(holds, weather.releases)
    });
}

/// Races a recipe at every combination of threads and shards, and has `judge` find faults in the histories.
pub(crate) fn race_and_judge(
    name: &str,
    weather: Weather,
    recipe: fn() -> Box<dyn Recipe>,
    judge: impl Fn(&mut [Hold]) -> Vec<String>,
) {
    for (seed, (threads, shards)) in (1..).zip(COMBINATIONS) {
        let server = Server::start(&Options::shards(shards).threads(threads));
        let mut holds = storm(&server, weather, recipe, seed);
        let faults = judge(&mut holds);
        assert!(
            faults.is_empty(),
            "{name}, {threads} threads, {shards} shards: {} faults in {} holds\n{}",
            faults.len(),
            holds.len(),
            faults
                .iter()
                .take(5)
                .cloned()
                .collect::<Vec<_>>()
                .join("\n"),
        );
        let died = holds.iter().filter(|hold| hold.release.is_none()).count();
        let stale = holds.iter().filter(|hold| hold.is_stale()).count();
        eprintln!(
            "{name}, {threads} threads, {shards} shards: {} holds, {died} died, {stale} stale releases",
            holds.len()
        );
        if support::is_stand_in() {
            return;
        }
    }
}

/// Races a recipe that is known to be wrong until the judge finds a fault, to show that the judge is not
/// blind.
pub(crate) fn race_until_caught(name: &str, weather: Weather, recipe: fn() -> Box<dyn Recipe>) {
    const ROUNDS_MAX: u64 = 50;
    let server = Server::start(&Options::shards(64).threads(4));
    for round in 1..=ROUNDS_MAX {
        let mut holds = storm(&server, weather, recipe, round);
        let faults = history::faults(&mut holds, weather.releases);
        if faults.iter().any(|fault| fault.starts_with("two at once")) {
            eprintln!("{name}: {} faults in {} holds", faults.len(), holds.len());
            return;
        }
        let _: () = redis::cmd("FLUSHALL")
            .query(&mut connect(server.port))
            .expect("FLUSHALL");
    }
    panic!("{name}: {ROUNDS_MAX} storms, and nothing was found wrong");
}

fn storm(
    server: &Server,
    weather: Weather,
    recipe: fn() -> Box<dyn Recipe>,
    seed: u64,
) -> Vec<Hold> {
    let clock = Clock::start();
    let stop = Arc::new(AtomicBool::new(false));
    let tally = Arc::new(Tally::default());
    let handles: Vec<_> = (0..WORKERS)
        .map(|number| {
            let (stop, tally) = (Arc::clone(&stop), Arc::clone(&tally));
            let mut worker = Worker::new(number, server.port, clock, seed * 1_000 + number as u64);
            let mut recipe = recipe();
            std::thread::spawn(move || {
                let mut holds = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    holds.extend(turn(&mut worker, recipe.as_mut(), weather, &tally));
                }
                holds
            })
        })
        .collect();
    let began = Instant::now();
    std::thread::sleep(storm_time());
    while !tally.is_enough() {
        assert!(
            began.elapsed() < STUCK_AFTER,
            "after {STUCK_AFTER:?}: {} died, {} stale releases",
            tally.died.load(Ordering::Relaxed),
            tally.stale.load(Ordering::Relaxed),
        );
        if handles.iter().any(|handle| handle.is_finished()) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    stop.store(true, Ordering::Relaxed);
    handles
        .into_iter()
        .flat_map(|handle| handle.join().expect("no worker fails"))
        .collect()
}

/// Makes one attempt, and uses the lock if it was acquired.
fn turn(
    worker: &mut Worker,
    recipe: &mut dyn Recipe,
    weather: Weather,
    tally: &Tally,
) -> Option<Hold> {
    let lock = worker.draw.below(LOCKS);
    let ttl_ms = weather.ttl_ms.0 + worker.draw.below(weather.ttl_ms.1 + 1) as u64;
    if worker.draw.below(200) == 0 {
        recipe.disturb(worker);
    }
    let Some(mut claim) = recipe.acquire(worker, lock, ttl_ms) else {
        worker.nap(1_500);
        return None;
    };
    let acquired_us = worker.clock.us();
    // The reply was so slow that nothing is left: as good as not had, but its release must do no harm.
    if acquired_us >= claim.until_us {
        recipe.release(worker, &claim);
        return None;
    }
    worker.nap(1_000);
    let mut renewals = worker.draw.below(4);
    while renewals > 0 && worker.clock.us() < claim.until_us {
        renewals -= 1;
        let until_us = claim.until_us;
        let Some(renewed) = recipe.renew(worker, &mut claim, ttl_ms) else {
            break;
        };
        let answered_us = worker.clock.us();
        if !renewed {
            assert!(
                answered_us >= until_us,
                "refused at {answered_us}, but valid until {until_us}: {claim:?}"
            );
            break;
        }
        worker.nap(ttl_ms as usize * 300);
    }
    let mut hold = Hold {
        lock,
        worker: worker.number,
        acquired_us,
        until_us: claim.until_us,
        fence: claim.fence,
        release: None,
    };
    match worker.draw.below(100) {
        0..4 => {
            tally.died.fetch_add(1, Ordering::Relaxed);
            worker.die();
            return Some(hold);
        }
        4..8 => {
            let late_us = worker.draw.below(15_000) as u64;
            worker.clock.sleep_until(claim.until_us + late_us);
        }
        _ => {}
    }
    let sent_us = worker.clock.us();
    let deleted = recipe.release(worker, &claim);
    hold.release = Some(Release {
        sent_us,
        answered_us: worker.clock.us(),
        deleted,
    });
    if hold.is_stale() {
        tally.stale.fetch_add(1, Ordering::Relaxed);
    }
    Some(hold)
}
