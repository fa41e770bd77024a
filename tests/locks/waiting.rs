//! LOCK with WAIT: the server hands the lock to the next waiting client, each time with a fence.

use crate::history::Releases;
use crate::single::until_us;
use crate::storm::{Claim, Recipe, Weather, Worker, key, race};
use crate::support;

const WEATHER: Weather = Weather {
    ttl_ms: (20, 30),
    releases: Releases::Sure,
};

/// Waits as long as a lock may live, and renews.
struct Waiting;

impl Recipe for Waiting {
    fn acquire(&mut self, at: &mut Worker, lock: usize, ttl_ms: u64) -> Option<Claim> {
        let token = at.token();
        // The time of the lock begins when it is handed over; the worker can rely on it from when it asked, which is
        // earlier, so a wait eats it up. Half of them do not wait.
        let wait_ms = match at.draw.below(2) {
            0 => 0,
            _ => ttl_ms / 2,
        };
        let asked_us = at.clock.us();
        let reply: Option<(u64, u64)> = redis::cmd("LOCK")
            .arg(key(lock))
            .arg(&token)
            .arg(ttl_ms)
            .arg("WAIT")
            .arg(wait_ms)
            .query(&mut at.connection)
            .expect("LOCK");
        let (fence, holds) = reply?;
        assert_eq!(holds, 1, "a token is used once");
        Some(Claim {
            lock,
            token,
            until_us: until_us(asked_us, ttl_ms),
            fence: Some(fence),
        })
    }

    fn release(&mut self, at: &mut Worker, claim: &Claim) -> bool {
        let left: Result<u64, redis::RedisError> = redis::cmd("UNLOCK")
            .arg(key(claim.lock))
            .arg(&claim.token)
            .query(&mut at.connection);
        match left {
            Ok(left) => {
                assert_eq!(left, 0);
                true
            }
            Err(error) => {
                assert_eq!(error.code(), Some("NOTOWNER"), "{error}");
                false
            }
        }
    }

    fn renew(&mut self, at: &mut Worker, claim: &mut Claim, ttl_ms: u64) -> Option<bool> {
        let asked_us = at.clock.us();
        let reply: Result<u64, redis::RedisError> = redis::cmd("LOCKEXTEND")
            .arg(key(claim.lock))
            .arg(&claim.token)
            .arg(ttl_ms)
            .query(&mut at.connection);
        let is_renewed = reply.is_ok();
        if is_renewed {
            claim.until_us = until_us(asked_us, ttl_ms);
        }
        Some(is_renewed)
    }
}

#[test]
fn locks_that_are_waited_for_keep_holders_apart_and_their_fences_grow() {
    if support::is_stand_in() {
        return;
    }
    race("LOCK WAIT, UNLOCK", WEATHER, || Box::new(Waiting));
}
