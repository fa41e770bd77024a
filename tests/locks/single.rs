//! Locks on one server: acquired by SET NX PX, released by compare-and-delete in a script or one command;
//! renewal; fencing tokens.

use crate::history::{Clock, Releases};
use crate::storm::{Claim, Recipe, Weather, Worker, connect, key, race};
use crate::support::{self, Options, Server};

const WEATHER: Weather = Weather {
    ttl_ms: (20, 30),
    releases: Releases::Sure,
};

/// Sends `SET lock token NX PX ttl`: no other worker has the token, so that a release can tell.
pub(crate) fn set_nx_px(at: &mut Worker, lock: usize, ttl_ms: u64) -> Option<Claim> {
    let token = at.token();
    let asked_us = at.clock.us();
    let reply: Option<String> = redis::cmd("SET")
        .arg(key(lock))
        .arg(&token)
        .arg("NX")
        .arg("PX")
        .arg(ttl_ms)
        .query(&mut at.connection)
        .expect("SET NX PX");
    reply.map(|_| Claim {
        lock,
        token,
        until_us: until_us(asked_us, ttl_ms),
        fence: None,
    })
}

/// Returns the end of a validity that was requested at a moment. Applications subtract a margin for clocks
/// that run apart; here it is one machine, and the server is checked to the microsecond.
pub(crate) fn until_us(asked_us: u64, ttl_ms: u64) -> u64 {
    asked_us + ttl_ms * 1_000
}

/// SET NX PX, and DELEX IFEQ or DELIFEQ: no script anywhere.
struct OneCommand {
    valkey: bool,
}

impl Recipe for OneCommand {
    fn acquire(&mut self, at: &mut Worker, lock: usize, ttl_ms: u64) -> Option<Claim> {
        set_nx_px(at, lock, ttl_ms)
    }

    fn release(&mut self, at: &mut Worker, claim: &Claim) -> bool {
        let key = key(claim.lock);
        let command = match self.valkey {
            false => redis::cmd("DELEX")
                .arg(key)
                .arg("IFEQ")
                .arg(&claim.token)
                .take(),
            true => redis::cmd("DELIFEQ").arg(key).arg(&claim.token).take(),
        };
        command
            .query(&mut at.connection)
            .expect("a conditional delete")
    }
}

/// Renewal without a script: SET IFEQ PX stores our token again, if it is still there.
struct RenewedByOneCommand;

impl Recipe for RenewedByOneCommand {
    fn acquire(&mut self, at: &mut Worker, lock: usize, ttl_ms: u64) -> Option<Claim> {
        set_nx_px(at, lock, ttl_ms)
    }

    fn release(&mut self, at: &mut Worker, claim: &Claim) -> bool {
        OneCommand { valkey: false }.release(at, claim)
    }

    fn renew(&mut self, at: &mut Worker, claim: &mut Claim, ttl_ms: u64) -> Option<bool> {
        let asked_us = at.clock.us();
        let reply: Option<String> = redis::cmd("SET")
            .arg(key(claim.lock))
            .arg(&claim.token)
            .arg("IFEQ")
            .arg(&claim.token)
            .arg("PX")
            .arg(ttl_ms)
            .query(&mut at.connection)
            .expect("SET IFEQ PX");
        if reply.is_some() {
            claim.until_us = until_us(asked_us, ttl_ms);
        }
        Some(reply.is_some())
    }
}

/// SET NX PX and INCR in one transaction: every attempt takes a number, so the numbers of successful ones
/// grow.
struct FencedByTransaction;

impl Recipe for FencedByTransaction {
    fn acquire(&mut self, at: &mut Worker, lock: usize, ttl_ms: u64) -> Option<Claim> {
        let token = at.token();
        let asked_us = at.clock.us();
        let (taken, fence): (Option<String>, u64) = redis::pipe()
            .atomic()
            .cmd("SET")
            .arg(key(lock))
            .arg(&token)
            .arg("NX")
            .arg("PX")
            .arg(ttl_ms)
            .cmd("INCR")
            .arg(format!("fence:{lock}"))
            .query(&mut at.connection)
            .expect("a transaction");
        taken.map(|_| Claim {
            lock,
            token,
            until_us: until_us(asked_us, ttl_ms),
            fence: Some(fence),
        })
    }

    fn release(&mut self, at: &mut Worker, claim: &Claim) -> bool {
        if support::is_stand_in() {
            return release_by_watch(at, claim);
        }
        OneCommand { valkey: false }.release(at, claim)
    }
}

/// Compares and deletes by commands that every server has: WATCH, GET, and a transaction that fails if the
/// lock has changed.
pub(crate) fn release_by_watch(at: &mut Worker, claim: &Claim) -> bool {
    let key = key(claim.lock);
    let connection = &mut at.connection;
    let _: () = redis::cmd("WATCH")
        .arg(&key)
        .query(connection)
        .expect("WATCH");
    let found: Option<String> = redis::cmd("GET").arg(&key).query(connection).expect("GET");
    if found.as_deref() != Some(claim.token.as_str()) {
        let _: () = redis::cmd("UNWATCH").query(connection).expect("UNWATCH");
        return false;
    }
    let deleted: Option<(u64,)> = redis::pipe()
        .atomic()
        .cmd("DEL")
        .arg(&key)
        .query(connection)
        .expect("EXEC");
    deleted == Some((1,))
}

#[test]
fn set_nx_px_with_delex_keeps_holders_apart() {
    if support::is_stand_in() {
        return;
    }
    race("SET NX PX, DELEX IFEQ", WEATHER, || {
        Box::new(OneCommand { valkey: false })
    });
}

#[test]
fn set_nx_px_with_delifeq_keeps_holders_apart() {
    if support::is_stand_in() {
        return;
    }
    race("SET NX PX, DELIFEQ", WEATHER, || {
        Box::new(OneCommand { valkey: true })
    });
}

#[test]
fn renewal_by_set_ifeq_keeps_holders_apart() {
    if support::is_stand_in() {
        return;
    }
    race("SET NX PX, SET IFEQ PX", WEATHER, || {
        Box::new(RenewedByOneCommand)
    });
}

#[test]
fn fences_drawn_in_the_transaction_that_takes_the_lock_grow() {
    race("MULTI SET NX PX, INCR", WEATHER, || {
        Box::new(FencedByTransaction)
    });
}

/// Every validity relies on this. Redis keeps a key until the millisecond after its deadline, so that one
/// which was set between two ticks of the clock lives no shorter than requested.
#[test]
fn a_lock_is_there_for_as_long_as_was_asked() {
    let server = Server::start(&Options::shards(64).threads(4));
    let mut connection = connect(server.port);
    let clock = Clock::start();
    for round in 0..100 {
        let key = key(round);
        let asked_us = clock.us();
        let _: () = redis::cmd("SET")
            .arg(&key)
            .arg("token")
            .arg("NX")
            .arg("PX")
            .arg(5)
            .query(&mut connection)
            .expect("SET NX PX");
        loop {
            let is_there: bool = redis::cmd("EXISTS")
                .arg(&key)
                .query(&mut connection)
                .expect("EXISTS");
            if !is_there {
                break;
            }
        }
        let lived_us = clock.us() - asked_us;
        assert!(lived_us >= 5_000, "gone after {lived_us} us of 5000");
    }
}
