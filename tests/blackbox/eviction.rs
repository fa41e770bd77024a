//! The memory limit: which requests are refused, which keys are evicted, and what INFO reports.

use crate::support::{self, Options, Server, check, info_field as info};
use crate::wire::Raw;

const REFUSED: &str = "(error) OOM command not allowed when used memory > 'maxmemory'.";

fn number(raw: &mut Raw, section: &str, field: &str) -> i64 {
    info(raw, section, field).parse().expect("a number")
}

#[test]
fn what_may_grow_is_refused_without_eviction_and_counts_as_rejected() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "SET k v", "OK");
        check(&mut raw, "CONFIG RESETSTAT", "OK");
        check(&mut raw, "CONFIG SET maxmemory 1", "OK");
        check(&mut raw, "SET a b", REFUSED);
        check(&mut raw, "MSET a b c d e f", REFUSED);
        check(&mut raw, "GET k", "\"v\"");
        check(&mut raw, "DEL k", "(integer) 1");
        let set = info(&mut raw, "commandstats", "cmdstat_set");
        assert!(set.contains("calls=0,"), "{set}");
        assert!(set.contains("rejected_calls=1,failed_calls=0"), "{set}");
        assert_eq!(info(&mut raw, "errorstats", "errorstat_OOM"), "count=2");
        check(&mut raw, "CONFIG SET maxmemory 0", "OK");
        check(&mut raw, "SET a b", "OK");
    });
}

#[test]
fn a_transaction_that_may_grow_is_refused_as_a_whole() {
    support::at_each_shard_count(|server| {
        let (mut raw, mut other) = (server.raw(), server.raw());
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "SET a 1", "QUEUED");
        check(&mut raw, "INCR b", "QUEUED");
        check(&mut other, "CONFIG SET maxmemory 1", "OK");
        check(&mut raw, "GET a", REFUSED);
        check(
            &mut raw,
            "EXEC",
            "(error) EXECABORT Transaction discarded because of previous errors.",
        );
        check(&mut other, "CONFIG SET maxmemory 0", "OK");
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "SET a 1", "QUEUED");
        check(&mut other, "CONFIG SET maxmemory 1", "OK");
        check(
            &mut raw,
            "EXEC",
            "(error) EXECABORT Transaction discarded because of: OOM command not allowed when used memory > \
             'maxmemory'.",
        );
        check(&mut other, "CONFIG SET maxmemory 0", "OK");
        check(&mut raw, "EXISTS a b", "(integer) 0");
        // Commands that only read run.
        check(&mut raw, "MULTI", "OK");
        check(&mut raw, "GET a", "QUEUED");
        check(&mut other, "CONFIG SET maxmemory 1", "OK");
        check(&mut raw, "EXEC", "1) (nil)");
    });
}

#[test]
fn keys_go_when_memory_is_full_and_all_of_them_when_there_is_none() {
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "CONFIG SET maxmemory-policy allkeys-lru", "OK");
        check(&mut raw, "DEBUG POPULATE 20000 key 100", "OK");
        let used = number(&mut raw, "memory", "used_memory");
        let limit = used - 1_000_000;
        check(&mut raw, &format!("CONFIG SET maxmemory {limit}"), "OK");
        support::eventually("memory is within the limit", || {
            number(&mut raw, "memory", "used_memory") <= limit + 65_536
        });
        let evicted = number(&mut raw, "stats", "evicted_keys");
        assert!((1_000..20_000).contains(&evicted), "{evicted}");
        check(&mut raw, "SET another key", "OK");
        check(&mut raw, "CONFIG SET maxmemory 1", "OK");
        support::eventually("all keys are gone", || raw.call("DBSIZE").integer() == 0);
        // Memory that is allocated outside of keys is measured each millisecond.
        support::eventually("nothing is left to evict", || {
            raw.call("SET a b").show() == REFUSED
        });
        assert!(number(&mut raw, "stats", "current_eviction_exceeded_time") >= 0);
    });
}

#[test]
fn large_values_that_nothing_makes_room_for_do_not_add_up() {
    const LIMIT: i64 = 8 << 20;
    const CLIENTS: i64 = 8;
    const ROUNDS: usize = 60;
    /// Bytes that the allocator provides for a value of 60,000 bytes.
    const VALUE_BYTES: i64 = 65_536;
    let value = "v".repeat(60_000);
    for threads in [1, 4, 16] {
        let options = support::Options::shards(64).threads(threads);
        let server = support::Server::start(&options);
        let mut raw = server.raw();
        check(&mut raw, "CONFIG SET maxmemory-policy volatile-lru", "OK");
        check(&mut raw, &format!("CONFIG SET maxmemory {LIMIT}"), "OK");
        let answers: Vec<String> = std::thread::scope(|scope| {
            let write = |client| {
                let (mut raw, value) = (server.raw(), &value);
                move || {
                    let set = |round| raw.call(&format!("SET {client}:{round} {value}")).show();
                    (0..ROUNDS).map(set).collect::<Vec<String>>()
                }
            };
            let writers: Vec<_> = (0..CLIENTS)
                .map(|client| scope.spawn(write(client)))
                .collect();
            let ended = writers
                .into_iter()
                .map(|writer| writer.join().expect("it ran"));
            ended.flatten().collect()
        });
        // Which ones are refused depends on whose buffers are there at the time.
        let stored = answers.iter().filter(|answer| *answer == "OK").count();
        let refused = answers.iter().filter(|answer| *answer == REFUSED).count();
        assert_eq!(stored + refused, answers.len(), "{answers:?}");
        // All shards together may owe a sixty-fourth, and each alone as much; and each client may be adding a
        // value. Memory for the server's threads and clients is added: nothing can be evicted for it.
        let bound = LIMIT + LIMIT / 32 + CLIENTS * VALUE_BYTES;
        let used = number(&mut raw, "memory", "used_memory_dataset");
        assert!(used <= bound, "{used} bytes of data");
        assert!(used > LIMIT / 10 * 8, "{used} bytes of data");
        assert_eq!(number(&mut raw, "stats", "evicted_keys"), 0);
    }
}

#[test]
fn a_share_of_the_machine_is_a_limit_in_bytes() {
    let server = support::Server::start(&support::Options::shards(4));
    let mut raw = server.raw();
    let total = number(&mut raw, "memory", "total_system_memory");
    check(&mut raw, "CONFIG SET maxmemory 50%", "OK");
    let limit = number(&mut raw, "memory", "maxmemory");
    assert!(limit > 0 && limit <= total / 2, "{limit} of {total}");
    check(
        &mut raw,
        "CONFIG SET maxmemory 101%",
        "(error) ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be a memory value",
    );
}

/// No client is refused because of memory that is being freed, nor is that memory granted twice meanwhile.
#[test]
fn what_was_flushed_is_waited_for_by_those_who_need_its_room() {
    const LIMIT_MIB: usize = 24;
    support::at_each_shard_count(|server| {
        let mut raw = server.raw();
        check(&mut raw, "DEBUG POPULATE 150000 key 40", "OK");
        check(
            &mut raw,
            &format!("CONFIG SET maxmemory {LIMIT_MIB}mb"),
            "OK",
        );
        check(&mut raw, "FLUSHALL", "OK");
        let value = "x".repeat(1 << 20);
        let writers: Vec<_> = (0..4).map(|_| server.raw()).collect();
        let kept: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = writers
                .into_iter()
                .enumerate()
                .map(|(writer, mut raw)| {
                    let value = &value;
                    scope.spawn(move || {
                        let names = (0..LIMIT_MIB).map(|number| format!("{writer}:{number}"));
                        names
                            .filter(|name| !raw.command(&["SET", name, value]).is_error())
                            .count()
                    })
                })
                .collect();
            let counts = threads.into_iter().map(|thread| thread.join());
            counts.map(|count| count.expect("it ends")).sum()
        });
        let most = LIMIT_MIB + 4;
        assert!((LIMIT_MIB / 2..=most).contains(&kept), "{kept} values");
    });
}

/// Returns how many of a thousand keys that were read, and of a thousand that were changed, are left under a
/// policy after as many others were added and changed too.
fn left_of_read_and_changed(policy: &str) -> (usize, usize) {
    let server = Server::start(&Options::shards(1).with("maxmemory-policy", policy));
    let mut raw = server.raw();
    let value = "v".repeat(2_000);
    for number in 0..1_000 {
        check(
            &mut raw,
            &format!("SET read:{number} {value} EX 10000"),
            "OK",
        );
        check(
            &mut raw,
            &format!("SET changed:{number} {value} EX 10000"),
            "OK",
        );
    }
    for _ in 0..3 {
        for number in 0..1_000 {
            raw.call(&format!("GET read:{number}"));
            raw.call(&format!("STRLEN read:{number}"));
            raw.call(&format!("SETRANGE changed:{number} 0 w"));
            raw.call(&format!("SETRANGE changed:{number} 0 x"));
        }
    }
    let limit = number(&mut raw, "memory", "used_memory") + (1 << 19);
    check(&mut raw, &format!("CONFIG SET maxmemory {limit}"), "OK");
    for number in 0..1_500 {
        check(
            &mut raw,
            &format!("SET new:{number} {value} EX 10000"),
            "OK",
        );
        raw.call(&format!("SETRANGE new:{number} 0 w"));
    }
    let mut left = |name: &str| {
        let is_there = |number: &i32| raw.call(&format!("EXISTS {name}:{number}")).integer() == 1;
        (0..1_000).filter(is_there).count()
    };
    (left("read"), left("changed"))
}

#[test]
fn reads_keep_no_key_where_those_go_that_were_not_changed_for_long() {
    for policy in ["allkeys-lrm", "volatile-lrm"] {
        let (read, changed) = left_of_read_and_changed(policy);
        assert!(
            read < 500 && changed > 2 * read,
            "{policy}: {read} {changed}"
        );
    }
    let (read, changed) = left_of_read_and_changed("allkeys-lru");
    assert!(read > changed / 2, "allkeys-lru: {read} {changed}");
    let server = Server::start(&Options::shards(1).with("maxmemory-policy", "allkeys-lrm"));
    let mut raw = server.raw();
    check(&mut raw, "SET k v", "OK");
    assert!(!raw.call("OBJECT IDLETIME k").is_error());
    assert!(raw.call("OBJECT FREQ k").is_error());
    check(
        &mut raw,
        "CONFIG GET maxmemory-policy",
        "1) \"maxmemory-policy\"\n2) \"allkeys-lrm\"",
    );
}

/// Policies that evict by age, or by deadline.
const BY_AGE: [&str; 5] = [
    "allkeys-lru",
    "allkeys-lfu",
    "volatile-lru",
    "volatile-lfu",
    "volatile-ttl",
];

/// Writes keys that were never there, as many as this, in pipelines. All end at the same distance.
fn write_new(raw: &mut Raw, written: &mut usize, count: usize) {
    const VALUE_BYTES: usize = 400;
    let value = "v".repeat(VALUE_BYTES);
    for _ in 0..count.div_ceil(100) {
        let lines: Vec<String> = (0..100)
            .map(|number| format!("SET new:{} {value} EX 3600", *written + number))
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        for reply in raw.pipeline(&lines) {
            assert_eq!(reply.text(), "OK");
        }
        *written += 100;
    }
}

/// A hundred names are deleted and written again over and over, also by RENAME onto them, while the cache
/// turns over. None of them is evicted within a hundredth of the turnover.
#[test]
fn a_name_that_is_written_again_is_as_new_as_any_other() {
    for policy in BY_AGE {
        let options = Options::shards(4)
            .with("maxmemory", "8mb")
            .with("maxmemory-policy", policy);
        let server = Server::start(&options);
        let (mut raw, mut written) = (server.raw(), 0);
        write_new(&mut raw, &mut written, 20_000);
        let keys = raw.call("DBSIZE").integer() as usize;
        assert!((5_000..20_000).contains(&keys), "{policy}: {keys} keys");
        let mut gone = 0;
        for round in 0..60 {
            for name in 0..100 {
                let lines: &[&str] = match (name + round) % 4 {
                    0 => &[
                        "DEL tmp",
                        "SET tmp v EX 3600",
                        &format!("RENAME tmp name:{name}"),
                    ],
                    _ => &[
                        &format!("DEL name:{name}"),
                        &format!("SET name:{name} v NX EX 3600"),
                    ],
                };
                assert!(raw.pipeline(lines).iter().all(|reply| !reply.is_error()));
            }
            write_new(&mut raw, &mut written, keys / 100);
            let names = (0..100).map(|name| format!("name:{name}"));
            let names: Vec<String> = names.collect();
            let there = raw.call(&format!("EXISTS {}", names.join(" "))).integer();
            gone += 100 - there;
        }
        assert_eq!(gone, 0, "{policy}: gone, of 6000 in {keys} keys");
    }
}

/// Interpreters and texts of scripts have bounds of their own, and no change of a setting makes data go for them.
#[test]
fn settings_that_change_evict_nothing_for_what_scripts_take() {
    let options = Options::shards(4)
        .threads(4)
        .with("maxmemory", "32mb")
        .with("maxmemory-policy", "allkeys-lru");
    let server = Server::start(&options);
    let mut raw = server.raw();
    const LIBRARIES: usize = 16;
    for library in 0..LIBRARIES {
        let words: Vec<String> = (0..8000)
            .map(|word| format!("'{word:04x}{library:x}'"))
            .collect();
        let words = words.join(",");
        let code = format!(
            "#!lua name=l{library}\nlocal t={{{words}}}\nredis.register_function('f{library}', function() return #t end)"
        );
        let loaded = raw.command(&["FUNCTION", "LOAD", &code]);
        assert!(!loaded.is_error(), "{loaded:?}");
    }
    // Connections are spread over the threads, each of which has an interpreter.
    for _ in 0..16 {
        let mut other = server.raw();
        for library in 0..LIBRARIES {
            check(&mut other, &format!("FCALL f{library} 0"), "(integer) 8000");
        }
    }
    let interpreters = number(&mut raw, "memory", "used_memory_vm_total");
    assert!(
        interpreters > 8_000_000,
        "{interpreters} bytes of interpreters"
    );
    let mut written = 0;
    write_new(&mut raw, &mut written, 100_000);
    let keys = raw.call("DBSIZE").integer();
    assert!(keys < 100_000, "{keys} keys, and none was evicted");
    for change in [
        "CONFIG SET maxmemory 33mb",
        "CONFIG SET maxmemory-policy allkeys-lfu",
        "CONFIG SET maxmemory-clients 8mb",
        "CONFIG SET maxmemory-size-rule no",
        "REPLICAOF NO ONE",
    ] {
        check(&mut raw, change, "OK");
        // More than one write, as each shard pays for itself.
        write_new(&mut raw, &mut written, 100);
        let left = raw.call("DBSIZE").integer();
        assert!(left * 10 > keys * 9, "{change}: {left} of {keys} keys");
    }
}

/// Locks that LOCK has made stay while they are held, whatever the policy, and take a bounded part of the memory.
#[test]
fn a_lock_that_is_held_is_never_evicted_and_locks_take_a_sixteenth_at_most() {
    const LOCKS: usize = 200;
    let random = ["allkeys-random", "volatile-random"];
    for policy in BY_AGE.into_iter().chain(random) {
        let options = Options::shards(4)
            .with("maxmemory", "8mb")
            .with("maxmemory-policy", policy);
        let server = Server::start(&options);
        let (mut raw, mut written) = (server.raw(), 0);
        let fences: Vec<i64> = (0..LOCKS)
            .map(|number| raw.call(&format!("LOCK lock:{number} me 600000")).items()[0].integer())
            .collect();
        write_new(&mut raw, &mut written, 60_000);
        for (number, fence) in fences.iter().enumerate() {
            let lock = raw.call(&format!("LOCKINFO lock:{number}"));
            assert!(!lock.is_nil(), "{policy}: lock {number} was evicted");
            assert_eq!(lock.items()[5].integer(), *fence, "{policy}");
        }
        // As many as fit their limit, which is not that of other data.
        let refused = (LOCKS..50_000)
            .map(|number| raw.call(&format!("LOCK lock:{number} me 600000")))
            .position(|reply| reply.is_error());
        let taken = LOCKS + refused.expect("there is a bound");
        assert!((1_000..4_000).contains(&taken), "{policy}: {taken} locks");
        let refusal = raw.call("LOCK another me 600000");
        assert!(refusal.text().starts_with("OOM "), "{}", refusal.text());
        write_new(&mut raw, &mut written, 1_000);
        assert!(raw.call("DBSIZE").integer() > 6_000);
        let held = |raw: &mut Raw| {
            let names = (0..taken).map(|number| format!("lock:{number}"));
            raw.call(&format!("EXISTS {}", names.collect::<Vec<_>>().join(" ")))
                .integer()
        };
        assert_eq!(held(&mut raw), taken as i64, "{policy}");
        // An owner may renew an existing lock, and a released one frees memory for another.
        assert!(!raw.call("LOCK lock:1 me 600000").is_error());
        for number in 0..LOCKS {
            assert!(!raw.call(&format!("UNLOCK lock:{number} me")).is_error());
        }
        assert!(!raw.call("LOCK another me 600000").is_error());
        // Without an end it is a hash like any other.
        for number in LOCKS..taken {
            check(&mut raw, &format!("PERSIST lock:{number}"), "(integer) 1");
        }
        if policy == "allkeys-random" {
            write_new(&mut raw, &mut written, 60_000);
            assert!(held(&mut raw) < taken as i64 / 2, "{policy}");
        }
    }
}

/// Other data in a lock's key, and locks whose owners have endless names, are evicted like other data: no
/// client can empty the cache by them.
#[test]
fn nothing_but_a_small_lock_is_kept_from_eviction() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let options = Options::shards(4)
            .with("maxmemory", "16mb")
            .with("maxmemory-policy", policy);
        let server = Server::start(&options);
        let mut raw = server.raw();
        let long = "o".repeat(500_000);
        for number in 0..60 {
            raw.call(&format!("LOCK grown:{number} me 100000"));
            raw.call(&format!("HSET grown:{number} f {long}"));
            raw.call(&format!("LOCK mixed:{number} me 100000"));
            raw.call(&format!("HSET mixed:{number} f {long}"));
            raw.call(&format!("UNLOCK mixed:{number} me"));
            raw.call(&format!("LOCK long:{number} {long} 100000"));
        }
        for number in 0..2_000 {
            let value = "v".repeat(2_000);
            check(&mut raw, &format!("SET data:{number} {value} EX 10"), "OK");
        }
        let names: Vec<String> = (0..2_000).map(|number| format!("data:{number}")).collect();
        let left = raw.call(&format!("EXISTS {}", names.join(" "))).integer();
        assert!(left > 100, "{policy}: {left} of 2000");
    }
}
