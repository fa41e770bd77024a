//! The unchanged `rslock` crate, over instances of this server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rslock::LockManager;

use super::nodes::Node;
use super::{Strike, nap, runtime, strike_some};
use crate::history::{self, Clock, Hold, Release, Releases};
use crate::storm::{key, storm_time};
use crate::support::Draw;
use crate::support::eventually;

const WORKERS: usize = 8;

const LOCKS: usize = 4;

/// As the crate reckons it.
fn drift_us(ttl: Duration) -> u64 {
    ttl.as_micros() as u64 / 100 + 2_000
}

fn manager(nodes: &[Node]) -> LockManager {
    let urls = nodes
        .iter()
        .map(|node| format!("redis://127.0.0.1:{}/", node.port()))
        .collect();
    let mut manager = LockManager::new(urls);
    // One attempt a call, so that the moment of its beginning is known.
    manager.set_retry(1, Duration::from_millis(1));
    manager
}

async fn work(
    number: usize,
    manager: LockManager,
    ttl: Duration,
    clock: Clock,
    stop: Arc<AtomicBool>,
) -> Vec<Hold> {
    let mut draw = Draw::new(number as u64);
    let mut holds = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let lock = draw.below(LOCKS);
        let asked_us = clock.us();
        let Ok(taken) = manager.lock(key(lock).as_str(), ttl).await else {
            tokio::time::sleep(Duration::from_micros(draw.below(4_000) as u64)).await;
            continue;
        };
        let acquired_us = clock.us();
        let until_us = asked_us + ttl.as_micros() as u64 - drift_us(ttl);
        if acquired_us >= until_us {
            taken.release().await;
            continue;
        }
        assert!(taken.validity_time as u128 <= ttl.as_millis());
        tokio::time::sleep(Duration::from_micros(draw.below(1_000) as u64)).await;
        let mut hold = Hold {
            lock,
            worker: number,
            acquired_us,
            until_us,
            fence: None,
            release: None,
        };
        match draw.below(100) {
            0..4 => {}
            fate => {
                if fate < 8 {
                    let late_us = draw.below(30_000) as u64;
                    let wait_us = until_us.saturating_sub(clock.us()) + late_us;
                    tokio::time::sleep(Duration::from_micros(wait_us)).await;
                }
                let sent_us = clock.us();
                taken.release().await;
                // The crate does not return what it found.
                hold.release = Some(Release {
                    sent_us,
                    answered_us: clock.us(),
                    deleted: false,
                });
            }
        }
        holds.push(hold);
    }
    holds
}

fn race(count: usize, struck: usize, strike: Strike, ttl: Duration, seed: u64) {
    let clock = Clock::start();
    let mut nodes: Vec<Node> = (0..count).map(Node::start).collect();
    let runtime = runtime();
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| {
            let stop = Arc::clone(&stop);
            runtime.spawn(work(number, manager(&nodes), ttl, clock, stop))
        })
        .collect();
    let began = Instant::now();
    let mut draw = Draw::new(seed);
    let mut strikes = 0;
    while began.elapsed() < storm_time() * 3 || strikes < 2 {
        nap(&mut draw, 100);
        let first = draw.below(count);
        let victims: Vec<usize> = (0..struck).map(|offset| (first + offset) % count).collect();
        strike_some(strike, &victims, &mut nodes, &[], &mut draw);
        strikes += 1;
    }
    stop.store(true, Ordering::Relaxed);
    let mut holds: Vec<Hold> = workers
        .into_iter()
        .flat_map(|worker| runtime.block_on(worker).expect("no worker fails"))
        .collect();
    let faults = history::faults(&mut holds, Releases::MayMiss);
    assert!(
        faults.is_empty(),
        "rslock over {count}, {strike:?}: {}",
        faults.join("\n")
    );
    eprintln!(
        "rslock over {count}, {strike:?} of {struck}: {} holds, {strikes} strikes",
        holds.len()
    );
}

#[test]
fn rslock_survives_the_death_of_a_minority() {
    let ttl = Duration::from_millis(100);
    race(3, 1, Strike::Kill, ttl, 11);
    race(5, 2, Strike::Kill, ttl, 12);
}

/// The crate waits half a second for an instance that does not answer, so lives must be longer.
#[test]
fn rslock_survives_the_pause_of_a_minority() {
    race(3, 1, Strike::Pause, Duration::from_millis(1_200), 13);
    race(5, 2, Strike::Pause, Duration::from_millis(1_200), 14);
}

#[test]
fn rslock_gives_back_only_what_is_its_own() {
    let nodes: Vec<Node> = (0..3).map(Node::start).collect();
    let runtime = runtime();
    runtime.block_on(async {
        let (ann, bob) = (manager(&nodes), manager(&nodes));
        let minute = Duration::from_secs(60);
        let values = || -> Vec<_> { nodes.iter().map(|node| node.value("lock")).collect() };

        let first = ann.lock("lock", minute).await.expect("nobody has it");
        assert!(bob.lock("lock", minute).await.is_err(), "Ann has it");
        let first = ann.extend(&first, minute).await.expect("it is hers");
        first.release().await;
        assert_eq!(values(), vec![None; 3], "a release deletes");

        let short = Duration::from_millis(40);
        let stale = loop {
            // On a machine that is slow enough nothing of so short a life may be left.
            if let Ok(lock) = ann.lock("lock", short).await {
                break lock;
            }
        };
        eventually("Ann's lock runs out", || values() == vec![None; 3]);
        let taken = bob.lock("lock", minute).await.expect("nobody has it");
        let count = || {
            let is_his = |value: &&Option<Vec<u8>>| value.as_ref() == Some(&taken.val);
            values().iter().filter(is_his).count()
        };
        let before = count();
        assert!(before >= 2, "a majority");
        stale.release().await;
        assert!(count() >= before, "it is Bob's");
        taken.release().await;
        assert_eq!(values(), vec![None; 3]);
    });
}
