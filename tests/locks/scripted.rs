//! The recipes that need Lua: compare and delete, compare and renew, a fence taken in the script that takes
//! the lock, and reentrant locks. Scripts are sent by their digest; a server that does not know it replies
//! NOSCRIPT and gets the text, and some workers flush the scripts now and then so that this happens.

use crate::history::Releases;
use crate::single::{set_nx_px, until_us};
use crate::storm::{Claim, Recipe, Weather, Worker, key, race};

const WEATHER: Weather = Weather {
    ttl_ms: (20, 30),
    releases: Releases::Sure,
};

const RELEASE: &str = "\
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0";

const RENEW: &str = "\
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0";

const TAKE_FENCED: &str = "\
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
    return redis.call('INCR', KEYS[2])
end
return false";

/// Returns how often the lock is held now, or nothing if it is another owner's.
const TAKE_AGAIN: &str = "\
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[1] then
    return false
end
redis.call('HSET', KEYS[1], 'owner', ARGV[1])
local count = redis.call('HINCRBY', KEYS[1], 'count', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return count";

/// Returns how often the lock is still held, or nothing if it was another owner's.
const GIVE_ONE_BACK: &str = "\
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then
    return false
end
local count = redis.call('HINCRBY', KEYS[1], 'count', -1)
if count == 0 then
    redis.call('DEL', KEYS[1])
end
return count";

/// A script and its digest.
struct Lua {
    text: &'static str,
    digest: String,
}

impl Lua {
    fn new(text: &'static str) -> Lua {
        let digest = redis::Script::new(text).get_hash().to_owned();
        Lua { text, digest }
    }

    /// Sends EVALSHA, and EVAL if the server does not know the script (any more). The crate's own call loads
    /// the script in that case and tries the digest again; when others flush scripts, that may fail once
    /// more.
    fn run<T: redis::FromRedisValue>(
        &self,
        at: &mut Worker,
        keys: &[String],
        arguments: &[&str],
    ) -> T {
        let mut ask = |name: &str, script: &str| {
            redis::cmd(name)
                .arg(script)
                .arg(keys.len())
                .arg(keys)
                .arg(arguments)
                .query::<T>(&mut at.connection)
        };
        let reply = match ask("EVALSHA", &self.digest) {
            Err(error) if error.code() == Some("NOSCRIPT") => ask("EVAL", self.text),
            reply => reply,
        };
        reply.expect("a script")
    }
}

fn flush_scripts(at: &mut Worker) {
    let _: () = redis::cmd("SCRIPT")
        .arg("FLUSH")
        .query(&mut at.connection)
        .expect("SCRIPT FLUSH");
}

/// SET NX PX; release and renewal by scripts.
struct Scripted {
    release: Lua,
    /// None in a storm without renewals.
    renew: Option<Lua>,
}

impl Recipe for Scripted {
    fn acquire(&mut self, at: &mut Worker, lock: usize, ttl_ms: u64) -> Option<Claim> {
        set_nx_px(at, lock, ttl_ms)
    }

    fn release(&mut self, at: &mut Worker, claim: &Claim) -> bool {
        self.release.run(at, &[key(claim.lock)], &[&claim.token])
    }

    fn renew(&mut self, at: &mut Worker, claim: &mut Claim, ttl_ms: u64) -> Option<bool> {
        let script = self.renew.as_ref()?;
        let asked_us = at.clock.us();
        let is_ours: bool =
            script.run(at, &[key(claim.lock)], &[&claim.token, &ttl_ms.to_string()]);
        if is_ours {
            claim.until_us = until_us(asked_us, ttl_ms);
        }
        Some(is_ours)
    }

    fn disturb(&mut self, at: &mut Worker) {
        flush_scripts(at);
    }
}

/// The script that takes the lock also takes the fence, possibly from a key on another shard.
struct Fenced {
    take: Lua,
    release: Lua,
}

impl Recipe for Fenced {
    fn acquire(&mut self, at: &mut Worker, lock: usize, ttl_ms: u64) -> Option<Claim> {
        let token = at.token();
        let asked_us = at.clock.us();
        let fence: Option<u64> = self.take.run(
            at,
            &[key(lock), format!("fence:{lock}")],
            &[&token, &ttl_ms.to_string()],
        );
        Some(Claim {
            lock,
            token,
            until_us: until_us(asked_us, ttl_ms),
            fence: Some(fence?),
        })
    }

    fn release(&mut self, at: &mut Worker, claim: &Claim) -> bool {
        self.release.run(at, &[key(claim.lock)], &[&claim.token])
    }

    fn disturb(&mut self, at: &mut Worker) {
        flush_scripts(at);
    }
}

/// A lock that its owner takes up to four times, nested, and releases as often. Each acquisition renews it.
struct Reentrant {
    take: Lua,
    give_back: Lua,
    depth: u64,
}

impl Reentrant {
    fn take(&self, at: &mut Worker, lock: usize, token: &str, ttl_ms: u64) -> Option<u64> {
        self.take
            .run(at, &[key(lock)], &[token, &ttl_ms.to_string()])
    }

    fn give_one_back(&self, at: &mut Worker, claim: &Claim) -> Option<u64> {
        self.give_back.run(at, &[key(claim.lock)], &[&claim.token])
    }
}

impl Recipe for Reentrant {
    fn acquire(&mut self, at: &mut Worker, lock: usize, ttl_ms: u64) -> Option<Claim> {
        let token = at.token();
        let asked_us = at.clock.us();
        let count = self.take(at, lock, &token, ttl_ms)?;
        assert_eq!(count, 1, "a fresh owner holds it once");
        self.depth = 1;
        Some(Claim {
            lock,
            token,
            until_us: until_us(asked_us, ttl_ms),
            fence: None,
        })
    }

    /// Here: takes it again, nested.
    fn renew(&mut self, at: &mut Worker, claim: &mut Claim, ttl_ms: u64) -> Option<bool> {
        let asked_us = at.clock.us();
        let taken = self.take(at, claim.lock, &claim.token, ttl_ms);
        let Some(count) = taken else {
            return Some(false);
        };
        // If it expired meanwhile and no other owner came, it is a new lock, and the data under it may have
        // been touched.
        if count == 1 {
            assert!(at.clock.us() >= claim.until_us, "lost before its time");
            self.depth = 1;
            self.give_one_back(at, claim);
            return Some(false);
        }
        self.depth += 1;
        assert_eq!(count, self.depth);
        claim.until_us = until_us(asked_us, ttl_ms);
        Some(true)
    }

    /// Releases all levels, the inner ones first; only the last one frees the lock.
    fn release(&mut self, at: &mut Worker, claim: &Claim) -> bool {
        while let Some(left) = self.give_one_back(at, claim) {
            self.depth -= 1;
            assert_eq!(left, self.depth);
            if left == 0 {
                return true;
            }
        }
        false
    }

    fn disturb(&mut self, at: &mut Worker) {
        flush_scripts(at);
    }
}

#[test]
fn compare_and_delete_keeps_holders_apart() {
    race("SET NX PX, script", WEATHER, || {
        Box::new(Scripted {
            release: Lua::new(RELEASE),
            renew: None,
        })
    });
}

#[test]
fn renewal_by_script_keeps_holders_apart() {
    race("SET NX PX, renewed by script", WEATHER, || {
        Box::new(Scripted {
            release: Lua::new(RELEASE),
            renew: Some(Lua::new(RENEW)),
        })
    });
}

#[test]
fn fences_drawn_in_the_script_that_takes_the_lock_grow() {
    race("script with fence", WEATHER, || {
        Box::new(Fenced {
            take: Lua::new(TAKE_FENCED),
            release: Lua::new(RELEASE),
        })
    });
}

#[test]
fn locks_taken_again_by_their_owner_keep_others_out() {
    race("reentrant", WEATHER, || {
        Box::new(Reentrant {
            take: Lua::new(TAKE_AGAIN),
            give_back: Lua::new(GIVE_ONE_BACK),
            depth: 0,
        })
    });
}
