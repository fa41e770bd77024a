//! Every client is served eventually: while scripts loop on a shard that a request needs, only a limited
//! number of them may overtake it; and a client that locks one shard for long delays no request that does not
//! need it.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

use super::{
    DEADLINE, Hold, POLL, SHARDS, at_each_thread_count, eval, is_readable, must_reply, reply_while,
    tag, turns_of_ms,
};
use crate::support::{Draw, Options, Server, check, is_stand_in};
use crate::wire::{Raw, encode, split};

/// The shard that is busy, and one below it.
const BUSY: usize = 30;
const LOW: usize = 3;

const SPIN: &str = "for i = 1, tonumber(ARGV[1]) do end return redis.call('incr', KEYS[1])";

/// Every kind of request that needs the busy shard: a name, the requests before it, and the request.
type Kind = (&'static str, Vec<String>, Vec<Vec<u8>>);

fn requests() -> Vec<Kind> {
    let (low, busy) = (tag(LOW), tag(BUSY));
    let line = |name, text: &str| (name, Vec::new(), split(text));
    let words = |name, words: &[&str]| {
        let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        (name, Vec::new(), words)
    };
    let both = "redis.call('set', KEYS[1], 1) return redis.call('set', KEYS[2], 1)";
    let strays = format!("redis.call('set', KEYS[1], 1) return redis.call('set', '{busy}y', 1)");
    let with_before = |name, before: &[&str], text: &str| {
        let before = before.iter().map(|line| (*line).to_owned()).collect();
        (name, before, split(text))
    };
    let in_exec = ["MULTI", &format!("INCR {low}n"), &format!("INCR {busy}n")];
    let in_exec_all = ["MULTI", &format!("INCR {low}n"), "DBSIZE"];
    let in_exec_script = [
        "MULTI",
        &format!("INCR {low}n"),
        &format!("EVAL \"return redis.call('get', '{busy}y')\" 0"),
    ];
    vec![
        line("GET", &format!("GET {busy}x")),
        line("MSET", &format!("MSET {low}x 1 {busy}x 2")),
        line("MGET", &format!("MGET {low}x {busy}x")),
        line("DEL", &format!("DEL {busy}z {low}z")),
        line("SUNIONSTORE", &format!("SUNIONSTORE {low}s {busy}s {low}t")),
        words(
            "EVAL",
            &["EVAL", both, "2", &format!("{low}y"), &format!("{busy}y")],
        ),
        words(
            "EVAL that strays",
            &["EVAL", &strays, "1", &format!("{low}y")],
        ),
        with_before("EXEC", &in_exec, "EXEC"),
        with_before("EXEC over all", &in_exec_all, "EXEC"),
        with_before("EXEC with a script", &in_exec_script, "EXEC"),
        with_before(
            "RENAME",
            &[&format!("SET {low}r 1")],
            &format!("RENAME {low}r {busy}r"),
        ),
        with_before(
            "COPY",
            &[&format!("SET {low}c 1")],
            &format!("COPY {low}c {busy}c REPLACE"),
        ),
        line("DBSIZE", "DBSIZE"),
        line("KEYS", "KEYS x*"),
        line("SWAPDB", "SWAPDB 1 2"),
        line("FLUSHDB", "FLUSHDB"),
        line("FLUSHALL", "FLUSHALL"),
    ]
}

/// Clients that run a script on the busy shard over and over, until the end; the runs of each are counted.
fn loop_scripts(server: &Server, turns: u64, passed: &AtomicU64, is_over: &AtomicBool) {
    let mut raw = server.raw();
    let (key, turns) = (format!("{}loop", tag(BUSY)), turns.to_string());
    while !is_over.load(Relaxed) {
        raw.send(&encode(&["EVAL", SPIN, "1", &key, &turns]));
        let reply = must_reply(&mut raw, "a script of a loop");
        assert!(!reply.is_error(), "{}", reply.show());
        passed.fetch_add(1, SeqCst);
    }
}

#[test]
fn only_so_many_scripts_pass_a_request_that_needs_their_shard() {
    const LOOPS: usize = 4;
    /// Most scripts that may overtake one request. Each queue that it waits in has at most the loops before
    /// it, and a request that is rolled back waits in some more.
    const PASSED_MAX: u64 = 40;
    at_each_thread_count(&[2, 4], |threads| {
        let options = Options::shards(SHARDS).threads(threads);
        let server = Server::start(&options.with("busy-reply-threshold", "60000"));
        let mut raw = server.raw();
        let turns = turns_of_ms(&mut raw, 25);
        let (passed, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut late = Vec::new();
        std::thread::scope(|scope| {
            for _ in 0..LOOPS {
                scope.spawn(|| loop_scripts(&server, turns, &passed, &is_over));
            }
            // All know by then that the script takes long.
            while passed.load(SeqCst) < 2 * LOOPS as u64 {
                std::thread::sleep(POLL);
            }
            for (name, before, request) in requests() {
                let mut raw = server.raw();
                for line in &before {
                    raw.send(&encode(&split(line)));
                    must_reply(&mut raw, line);
                }
                let first = passed.load(SeqCst);
                raw.send(&encode(&request));
                let reply = reply_while(&mut raw, || passed.load(SeqCst) - first <= PASSED_MAX);
                let count = passed.load(SeqCst) - first;
                eprintln!("{threads} threads: {count} scripts passed {name}");
                match reply {
                    Some(reply) => assert!(!reply.is_error(), "{name}: {}", reply.show()),
                    None => late.push(name),
                }
            }
            is_over.store(true, Relaxed);
        });
        assert!(
            late.is_empty(),
            "more than {PASSED_MAX} scripts passed {late:?}, {threads} threads"
        );
    });
}

/// Every request that waits for a shard beyond `busy-reply-threshold` gets BUSY, whenever it arrived.
#[test]
fn whatever_waits_for_a_busy_shard_hears_so() {
    at_each_thread_count(&[2, 4], |threads| {
        let options = Options::shards(SHARDS).threads(threads);
        let server = Server::start(&options.with("busy-reply-threshold", "800"));
        let requests = requests();
        // Before the shard is held.
        let mut clients: Vec<Raw> = Vec::new();
        for (_, before, _) in &requests {
            let mut raw = server.raw();
            for line in before {
                assert!(!raw.call(line).is_error(), "{line}");
            }
            clients.push(raw);
        }
        let hold = Hold::begin(&server, &format!("{}held", tag(BUSY)));
        for (raw, (_, _, request)) in clients.iter_mut().zip(&requests) {
            raw.send(&encode(request));
        }
        let began = Instant::now();
        let mut silent = Vec::new();
        for (raw, (name, _, _)) in clients.iter_mut().zip(&requests) {
            match reply_while(raw, || began.elapsed() < DEADLINE / 3) {
                Some(reply) => assert!(reply.text().contains("BUSY"), "{name}: {}", reply.show()),
                None => silent.push(*name),
            }
        }
        hold.end();
        assert!(
            silent.is_empty(),
            "never heard that the shard is busy: {silent:?}, {threads} threads"
        );
        // Everything runs now.
        for (raw, (name, before, request)) in clients.iter_mut().zip(&requests) {
            for line in before {
                raw.call(line);
            }
            let reply = raw.command(request);
            assert!(!reply.is_error(), "{name}: {}", reply.show());
        }
    });
}

/// More scripts than threads wait for one shard; another shard is idle.
#[test]
fn scripts_that_wait_for_one_shard_keep_none_of_another_shard_waiting() {
    const WAITING: usize = 70;
    if is_stand_in() {
        // One endless script blocks everything there.
        return;
    }
    let options = Options::shards(SHARDS).threads(2);
    let server = Server::start(&options.with("busy-reply-threshold", "60000"));
    let mut raw = server.raw();
    let turns = turns_of_ms(&mut raw, 15).to_string();
    let (held, idle) = (format!("{}n", tag(BUSY)), format!("{}n", tag(LOW)));
    // It is known by then that these take long.
    for key in [&held, &idle] {
        for _ in 0..2 {
            eval(&mut raw, SPIN, &["1", key, &turns]);
        }
    }
    let hold = Hold::begin(&server, &held);
    let mut waiting: Vec<Raw> = (0..WAITING).map(|_| server.raw()).collect();
    for raw in &mut waiting {
        raw.send(&encode(&["EVAL", SPIN, "1", &held, &turns]));
    }
    // Each of them has had time to take its shards before it waits.
    std::thread::sleep(Duration::from_millis(300));
    raw.send(&encode(&["EVAL", SPIN, "1", &idle, &turns]));
    let began = Instant::now();
    let reply = reply_while(&mut raw, || began.elapsed() < DEADLINE / 2);
    let mut answered = waiting.iter_mut();
    let is_one = answered.any(|raw| is_readable(raw, Duration::from_micros(100)));
    assert!(!is_one, "the shard is held");
    hold.end();
    for (number, raw) in waiting.iter_mut().enumerate() {
        let reply = must_reply(raw, &format!("script {number} of those that waited"));
        assert!(!reply.is_error(), "{}", reply.show());
    }
    let reply = reply.unwrap_or_else(|| {
        panic!("a script on an idle shard waited for {WAITING} that wait for another shard")
    });
    assert_eq!(reply.integer(), 3);
    check(
        &mut raw,
        &format!("GET {held}"),
        &format!("\"{}\"", WAITING + 2),
    );
}

/// Creates a list on the busy shard whose SORT takes at least this long, in the fastest of some tries;
/// returns the request.
fn long_sort(raw: &mut Raw, at_least: Duration) -> Vec<u8> {
    let list = format!("{}list", tag(BUSY));
    let sorted = format!("{}sorted", tag(BUSY));
    let sort = encode(&["SORT", &list, "ALPHA", "STORE", &sorted]);
    let mut draw = Draw::new(1);
    for size in 1.. {
        assert!(
            size < 200,
            "SORT of a million elements takes less than {at_least:?}"
        );
        let mut words = vec!["RPUSH".to_owned(), list.clone()];
        words.extend((0..5_000).map(|_| format!("element:{}", draw.below(1 << 40))));
        raw.command(&words);
        let try_it = |_| {
            let began = Instant::now();
            raw.send(&sort);
            must_reply(raw, "SORT");
            began.elapsed()
        };
        if (0..3).map(try_it).all(|took| took >= at_least) {
            break;
        }
    }
    sort
}

/// Returns the share of a SORT's time for which a GET of a key at most waits for its reply, while a request
/// that needs the SORT's shard waits as well.
fn longest_wait_during_sort(server: &Server, sort: &[u8], request: &str, key: &str) -> f64 {
    let (mut sorter, mut waiter) = (server.raw(), server.raw());
    let (gets, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let getter = scope.spawn(|| {
            let mut raw = server.raw();
            let get = encode(&["GET", key]);
            let mut longest = Duration::ZERO;
            while !is_over.load(Relaxed) {
                let sent = Instant::now();
                raw.send(&get);
                must_reply(&mut raw, "GET");
                longest = longest.max(sent.elapsed());
                gets.fetch_add(1, SeqCst);
            }
            longest
        });
        while gets.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        let began = Instant::now();
        sorter.send(sort);
        std::thread::sleep(Duration::from_millis(15));
        waiter.send(&encode(&split(request)));
        let reply = must_reply(&mut sorter, "SORT");
        let took = began.elapsed();
        is_over.store(true, Relaxed);
        assert!(!reply.is_error(), "{}", reply.show());
        let reply = must_reply(&mut waiter, request);
        assert!(!reply.is_error(), "{}", reply.show());
        let longest = getter.join().expect("it is well");
        longest.as_secs_f64() / took.as_secs_f64()
    })
}

#[test]
fn what_waits_for_a_shard_at_work_stalls_no_other_shard() {
    const ROUNDS_MAX: usize = 40;
    if is_stand_in() {
        // One SORT blocks everything there.
        return;
    }
    let server = Server::start(&Options::shards(SHARDS).threads(2));
    let mut raw = server.raw();
    let sort = long_sort(&mut raw, Duration::from_millis(120));
    let (low, busy) = (tag(LOW), tag(BUSY));
    let key = format!("{low}x");
    let mset = format!("MSET {low}x 1 {busy}x 2");
    let eval = format!("EVAL \"return redis.call('set', KEYS[1], 1)\" 2 {low}y {busy}y");
    let mut stalled = Vec::new();
    for request in [mset.as_str(), "SWAPDB 1 2", &eval] {
        // Until one round is good: a machine that others use as well may stop any thread for long.
        let is_good = (0..ROUNDS_MAX).any(|_| {
            let longest = longest_wait_during_sort(&server, &sort, request, &key);
            eprintln!("a GET waits for {longest:.2} of the time for which {request} does");
            longest <= 0.5
        });
        if !is_good {
            stalled.push(request);
        }
    }
    assert_eq!(
        stalled,
        Vec::<&str>::new(),
        "GETs of an idle shard stall while these wait"
    );
}
