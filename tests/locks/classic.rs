//! The classic algorithm: SETNX of the moment the lock expires, and GETSET to take over an expired one.
//!
//! It needs only two commands of the earliest versions, and one clock for all: here all workers share one
//! clock. The loser of a take-over has still stored its own expiry over the winner's. That usually lies
//! later, and costs the next workers some waiting; but a loser that read the clock long before its GETSET
//! arrived moves the expiry back, and the lock can be taken while the winner trusts it. Hence no worker
//! trusts the last [`MARGIN_US`], and the promise is valid as long as no loser stalls for longer than that
//! between reading the clock and the GETSET's arrival. The workers record such stalls; the judge accepts an
//! overlap only with such a stall in it, and `flaws` shows what happens then.

use std::sync::Mutex;

use crate::history::{self, Hold, Releases};
use crate::single::release_by_watch;
use crate::storm::{Claim, Recipe, Weather, Worker, key, race_and_judge};

/// Time at the end of a life that is not trusted.
const MARGIN_US: u64 = 10_000;

const WEATHER: Weather = Weather {
    // One length for all: a loser's shorter life would end the winner's lock early.
    ttl_ms: (50, 0),
    // Losers change the holder's value, and then the lock must expire.
    releases: Releases::MayMiss,
};

/// A loser's GETSET that may have arrived later after reading the clock than holders allow for.
#[derive(Debug, Clone, Copy)]
struct Stall {
    lock: usize,
    clock_read_us: u64,
    answered_us: u64,
}

static STALLS: Mutex<Vec<Stall>> = Mutex::new(Vec::new());

struct Classic;

impl Recipe for Classic {
    fn acquire(&mut self, at: &mut Worker, lock: usize, ttl_ms: u64) -> Option<Claim> {
        let key = key(lock);
        let claim = |end_us: u64| Claim {
            lock,
            token: end_us.to_string(),
            until_us: end_us - MARGIN_US,
            fence: None,
        };
        let end_us = at.clock.us() + ttl_ms * 1_000;
        let is_ours: bool = redis::cmd("SETNX")
            .arg(&key)
            .arg(end_us)
            .query(&mut at.connection)
            .expect("SETNX");
        if is_ours {
            return Some(claim(end_us));
        }
        let now_us = at.clock.us();
        let stored: Option<u64> = redis::cmd("GET")
            .arg(&key)
            .query(&mut at.connection)
            .expect("GET");
        if stored.is_none_or(|end_us| end_us > now_us) {
            return None;
        }
        let clock_read_us = at.clock.us();
        let end_us = clock_read_us + ttl_ms * 1_000;
        let replaced: Option<u64> = redis::cmd("GETSET")
            .arg(&key)
            .arg(end_us)
            .query(&mut at.connection)
            .expect("GETSET");
        // An expired or released lock is ours; a valid one belongs to a faster worker.
        if replaced.is_none_or(|end_us| end_us <= clock_read_us) {
            return Some(claim(end_us));
        }
        let answered_us = at.clock.us();
        if answered_us - clock_read_us > MARGIN_US {
            STALLS.lock().expect("no worker fails").push(Stall {
                lock,
                clock_read_us,
                answered_us,
            });
        }
        None
    }

    fn release(&mut self, at: &mut Worker, claim: &Claim) -> bool {
        release_by_watch(at, claim)
    }
}

#[test]
fn setnx_and_getset_keep_holders_apart() {
    race_and_judge("SETNX, GETSET", WEATHER, || Box::new(Classic), judge);
}

fn judge(holds: &mut [Hold]) -> Vec<String> {
    let stalls = std::mem::take(&mut *STALLS.lock().expect("no worker fails"));
    let faults = history::faults(holds, WEATHER.releases);
    if stalls.is_empty() {
        return faults;
    }
    // With a stall in the history each overlap must have one in it; everything else is a fault as usual.
    let mut left: Vec<String> = faults
        .into_iter()
        .filter(|fault| !fault.starts_with("two at once"))
        .collect();
    let mut explained = 0;
    for of_lock in holds.chunk_by(|one, next| one.lock == next.lock) {
        for (one, next) in history::overlaps(of_lock) {
            let is_explained = stalls.iter().any(|stall| {
                stall.lock == one.lock
                    && stall.clock_read_us < one.until_us
                    && stall.answered_us > one.acquired_us
            });
            explained += u32::from(is_explained);
            if !is_explained {
                left.push(format!("two at once, and nobody stalled: {one:?} {next:?}"));
            }
        }
    }
    eprintln!(
        "SETNX, GETSET: {} losers stalled for more than {MARGIN_US} us, {explained} overlaps for that",
        stalls.len()
    );
    left
}
