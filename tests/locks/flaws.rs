//! Known flaws of widespread lock recipes, shown step by step: each test expects the damage. The tests pass
//! time by polling until a key is gone, or has a number that the test chose; nothing depends on how fast they
//! run. The last test races a wrong recipe, to show that the storms would detect one.

use crate::history::Releases;
use crate::single::set_nx_px;
use crate::storm::{Claim, Recipe, Weather, Worker, key, race_until_caught};
use crate::support::{Options, Server, check, eventually};
use crate::wire::Raw;

fn server() -> Server {
    Server::start(&Options::shards(64).threads(4))
}

/// Waits until the server has expired a key.
fn wait_until_gone(raw: &mut Raw, key: &str) {
    eventually("the key runs out", || {
        raw.call(&format!("EXISTS {key}")).integer() == 0
    });
}

#[test]
fn a_plain_del_after_expiry_deletes_the_lock_of_another() {
    let server = server();
    let (mut ann, mut bob, mut eve) = (server.raw(), server.raw(), server.raw());
    check(&mut ann, "SET lock ann NX PX 20", "OK");
    wait_until_gone(&mut ann, "lock");
    check(&mut bob, "SET lock bob NX PX 600000", "OK");
    // Ann was asleep and releases a lock that is not hers; Bob believes in his lock for ten minutes more.
    check(&mut ann, "DEL lock", "(integer) 1");
    check(&mut eve, "SET lock eve NX PX 600000", "OK");
    check(&mut bob, "GET lock", "\"eve\"");
}

#[test]
fn comparing_first_and_deleting_then_deletes_the_lock_of_another() {
    let server = server();
    let (mut ann, mut bob, mut eve) = (server.raw(), server.raw(), server.raw());
    check(&mut ann, "SET lock ann NX PX 600000", "OK");
    check(&mut ann, "GET lock", "\"ann\"");
    // Between Ann's two commands her lock runs out, and Bob gets one.
    check(&mut ann, "PEXPIRE lock 1", "(integer) 1");
    wait_until_gone(&mut bob, "lock");
    check(&mut bob, "SET lock bob NX PX 600000", "OK");
    check(&mut ann, "DEL lock", "(integer) 1");
    check(&mut eve, "SET lock eve NX PX 600000", "OK");
}

#[test]
fn a_comparing_release_leaves_the_lock_of_another_alone() {
    let server = server();
    let (mut ann, mut bob) = (server.raw(), server.raw());
    check(&mut ann, "SET lock ann NX PX 20", "OK");
    wait_until_gone(&mut ann, "lock");
    check(&mut bob, "SET lock bob NX PX 600000", "OK");
    check(&mut ann, "WATCH lock", "OK");
    check(&mut ann, "GET lock", "\"bob\"");
    check(&mut ann, "UNWATCH", "OK");
    for script in [
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], 9) end return 0",
    ] {
        check(
            &mut ann,
            &format!("EVAL \"{script}\" 1 lock ann"),
            "(integer) 0",
        );
    }
    if !crate::support::is_stand_in() {
        check(&mut ann, "DELEX lock IFEQ ann", "(integer) 0");
        check(&mut ann, "DELIFEQ lock ann", "(integer) 0");
        check(&mut ann, "SET lock ann IFEQ ann PX 600000", "(nil)");
    }
    check(&mut bob, "GET lock", "\"bob\"");
}

/// A fault that no time limit prevents, and that a fence is for: Ann sleeps past the end of her lock, wakes,
/// and writes a row that Bob has changed meanwhile.
#[test]
fn a_holder_that_slept_overwrites_the_next_ones_write_unless_hers_has_a_fence() {
    if crate::support::is_stand_in() {
        return;
    }
    let server = server();
    let (mut ann, mut bob) = (server.raw(), server.raw());
    let fence_of = |raw: &mut Raw, line: &str| raw.call(line).items()[0].integer();
    for is_fenced in [false, true] {
        check(&mut ann, "SET stock 10", "OK");
        let anns = fence_of(&mut ann, "LOCK lock ann 20");
        check(&mut ann, "GET stock", "\"10\"");
        let bobs = fence_of(&mut bob, "LOCK lock bob 600000 WAIT 600000");
        assert!(bobs > anns, "{bobs} after {anns}");
        check(&mut bob, "GET stock", "\"10\"");
        check(&mut bob, &format!("SET stock 9 FENCE lock {bobs}"), "OK");
        // Ann still believes in her lock, and takes one from the ten that she has read.
        match is_fenced {
            false => check(&mut ann, "SET stock 9", "OK"),
            true => check(&mut ann, &format!("SET stock 9 FENCE lock {anns}"), "(nil)"),
        }
        check(&mut bob, "UNLOCK lock bob", "(integer) 0");
        // Two were sold. Without a fence the second sale is lost; with one, Ann learns of it and sells again.
        if is_fenced {
            let anns = fence_of(&mut ann, "LOCK lock ann 600000");
            check(&mut ann, "GET stock", "\"9\"");
            check(&mut ann, &format!("SET stock 8 FENCE lock {anns}"), "OK");
            check(&mut ann, "UNLOCK lock ann", "(integer) 0");
        }
        let expected = if is_fenced { "\"8\"" } else { "\"9\"" };
        check(&mut bob, "GET stock", expected);
    }
}

#[test]
fn a_watched_lock_that_changes_hands_is_not_deleted() {
    let server = server();
    let (mut ann, mut bob) = (server.raw(), server.raw());
    check(&mut ann, "SET lock ann NX PX 600000", "OK");
    check(&mut ann, "WATCH lock", "OK");
    check(&mut ann, "GET lock", "\"ann\"");
    check(&mut bob, "PEXPIRE lock 1", "(integer) 1");
    wait_until_gone(&mut bob, "lock");
    check(&mut bob, "SET lock bob NX PX 600000", "OK");
    check(&mut ann, "MULTI", "OK");
    check(&mut ann, "DEL lock", "QUEUED");
    check(&mut ann, "EXEC", "(nil array)");
    check(&mut bob, "GET lock", "\"bob\"");
}

#[test]
fn setnx_and_a_crash_before_expire_leave_the_lock_for_ever() {
    let server = server();
    let (mut ann, mut bob) = (server.raw(), server.raw());
    check(&mut ann, "SETNX lock ann", "(integer) 1");
    // EXPIRE would come next.
    drop(ann);
    check(&mut bob, "SETNX lock bob", "(integer) 0");
    check(&mut bob, "TTL lock", "(integer) -1");
    check(&mut bob, "SET lock bob NX PX 20", "(nil)");
}

/// Moments are plain numbers here, so that one may be read early and arrive late.
#[test]
fn who_loses_a_takeover_by_getset_moves_the_end_of_the_winners_lock() {
    let server = server();
    let mut holders: Vec<Raw> = (0..4).map(|_| server.raw()).collect();
    let [ann, bob, eve, dan] = holders.as_mut_slice() else {
        unreachable!("four of them");
    };
    // Lives are 100. Ann died with a lock that ran out at 1000; both Bob and Eve see it.
    check(ann, "SETNX lock 1000", "(integer) 1");
    check(bob, "GET lock", "\"1000\"");
    check(eve, "GET lock", "\"1000\"");
    // Eve reads the clock, 1001, and stalls. Bob reads 1050 and wins.
    check(bob, "GETSET lock 1150", "\"1000\"");
    // Eve sees that 1150 is not over: she has lost. But her 1101 stands where Bob's 1150 stood.
    check(eve, "GETSET lock 1101", "\"1150\"");
    check(bob, "GET lock", "\"1101\"");
    // At 1102 Dan takes over the lock, which looks expired. Bob trusts his lock until 1150.
    check(dan, "GET lock", "\"1101\"");
    check(dan, "GETSET lock 1202", "\"1101\"");
    // And Bob's release, which compares, does not find its own value any more.
    check(bob, "GET lock", "\"1202\"");
}

/// The usual drift is the other way: harmless, but waiters wait longer, and the holder cannot release the
/// lock.
#[test]
fn who_loses_a_takeover_by_getset_usually_makes_the_lock_live_longer() {
    let server = server();
    let (mut ann, mut bob, mut eve) = (server.raw(), server.raw(), server.raw());
    check(&mut ann, "SETNX lock 1000", "(integer) 1");
    check(&mut bob, "GETSET lock 1105", "\"1000\"");
    check(&mut eve, "GETSET lock 1107", "\"1105\"");
    check(&mut bob, "GET lock", "\"1107\"");
}

#[test]
fn a_fence_refuses_the_holder_who_comes_too_late() {
    let server = server();
    let (mut ann, mut bob) = (server.raw(), server.raw());
    let take = |raw: &mut Raw, name: &str, ttl_ms: u64| {
        check(raw, "MULTI", "OK");
        check(raw, &format!("SET lock {name} NX PX {ttl_ms}"), "QUEUED");
        check(raw, "INCR fence", "QUEUED");
        let reply = raw.call("EXEC");
        assert_eq!(reply.items()[0].show(), "OK");
        reply.items()[1].integer()
    };
    let first = take(&mut ann, "ann", 20);
    wait_until_gone(&mut ann, "lock");
    let second = take(&mut bob, "bob", 600_000);
    assert!(first < second);
    // The resource keeps the highest number that it has seen; here it is a sorted set, and GT is its check.
    check(
        &mut bob,
        &format!("ZADD resource GT CH {second} seen"),
        "(integer) 1",
    );
    check(
        &mut ann,
        &format!("ZADD resource GT CH {first} seen"),
        "(integer) 0",
    );
}

/// SET NX PX, and DEL of whatever is there.
struct PlainDel;

impl Recipe for PlainDel {
    fn acquire(&mut self, at: &mut Worker, lock: usize, ttl_ms: u64) -> Option<Claim> {
        set_nx_px(at, lock, ttl_ms)
    }

    fn release(&mut self, at: &mut Worker, claim: &Claim) -> bool {
        redis::cmd("DEL")
            .arg(key(claim.lock))
            .query(&mut at.connection)
            .expect("DEL")
    }
}

#[test]
fn the_judge_of_the_storms_sees_what_a_plain_del_does() {
    let weather = Weather {
        ttl_ms: (20, 30),
        releases: Releases::Sure,
    };
    race_until_caught("SET NX PX, DEL", weather, || Box::new(PlainDel));
}
