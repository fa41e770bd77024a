//! SCRIPT KILL and FUNCTION KILL end a script as if it had never run, or not at all.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::{SHARDS, eval, must_reply, tag, turns_of_ms};
use crate::support::{Draw, Options, Server};
use crate::wire::{Raw, Value, encode};

/// A command that runs a script, and the command that kills it.
struct Way {
    run: Vec<String>,
    kill: &'static str,
}

/// Writes one key, takes its time, writes another, and takes its time again.
const WRITES_TWO: &str = "
    local turns = tonumber(ARGV[1])
    for i = 1, turns do end
    redis.call('incr', KEYS[1])
    for i = 1, turns do end
    redis.call('incr', KEYS[2])
    for i = 1, turns do end
    return 'done'";

fn ways(turns: u64, keys: [&str; 2]) -> Vec<Way> {
    let rest = [
        "2".to_owned(),
        keys[0].to_owned(),
        keys[1].to_owned(),
        turns.to_string(),
    ];
    let way = |head: [&str; 2], kill| Way {
        run: head
            .iter()
            .map(|word| (*word).to_owned())
            .chain(rest.clone())
            .collect(),
        kill,
    };
    vec![
        way(["EVAL", WRITES_TWO], "SCRIPT KILL"),
        way(["FCALL", "writes_two"], "FUNCTION KILL"),
    ]
}

/// Runs it once while others kill; how often a kill was answered OK, and the reply of the script.
fn run_under_kills(raw: &mut Raw, killer: &mut Raw, way: &Way, pause: Duration) -> (usize, Value) {
    raw.send(&encode(&way.run));
    std::thread::sleep(pause);
    let mut killed = 0;
    let is_over = AtomicBool::new(false);
    let reply = std::thread::scope(|scope| {
        let reply = scope.spawn(|| {
            let reply = must_reply(raw, "a script that may be killed");
            is_over.store(true, Relaxed);
            reply
        });
        while !is_over.load(Relaxed) {
            killed += usize::from(killer.call(way.kill).show() == "OK");
        }
        reply.join().expect("a reply")
    });
    (killed, reply)
}

#[test]
fn a_script_that_was_killed_has_written_nothing() {
    const ROUNDS: usize = 240;
    // redis-server accepts no kill before that.
    let options = Options::shards(SHARDS).with("busy-reply-threshold", "1");
    let server = Server::start(&options.threads(2));
    let (mut raw, mut killer) = (server.raw(), server.raw());
    let library = format!(
        "#!lua name=kills
        redis.register_function('writes_two', function(KEYS, ARGV) {WRITES_TWO} end)"
    );
    raw.command(&["FUNCTION", "LOAD", &library]);
    let turns = turns_of_ms(&mut raw, 5);
    let (first, second) = (format!("{}first", tag(1)), format!("{}second", tag(2)));
    let mut draw = Draw::new(1);
    let (mut kills, mut ends, mut halves) = (0, 0, Vec::new());
    // Pause before the first kill, for scripts and for functions, in microseconds: adjusted until about half
    // of the kills come after the first write.
    let mut pauses_us = [3_000_i64; 2];
    for round in 0..ROUNDS {
        // Once with all keys on one shard, once with keys on two.
        let second = match round % 4 {
            0 | 1 => second.clone(),
            _ => format!("{}second", tag(1)),
        };
        let way = &ways(turns, [&first, &second])[round % 2];
        raw.call(&format!("DEL {first} {second}"));
        let pause_us = &mut pauses_us[round % 2];
        let pause = (*pause_us + draw.below(1_600) as i64 - 800).max(0);
        let pause = Duration::from_micros(pause.unsigned_abs());
        let (killed, reply) = run_under_kills(&mut raw, &mut killer, way, pause);
        let left = raw.call(&format!("MGET {first} {second}")).show();
        match reply.is_error() {
            true => {
                kills += 1;
                *pause_us += 300;
                assert!(reply.text().contains("killed"), "{}", reply.show());
                assert!(killed > 0, "killed by nobody: {}", reply.show());
                if left != "1) (nil)\n2) (nil)" {
                    halves.push(format!("{}: {left}", way.kill));
                }
            }
            false => {
                ends += 1;
                *pause_us -= 300;
                assert_eq!(killed, 0, "it was killed and answered {}", reply.show());
                assert_eq!(left, "1) \"1\"\n2) \"1\"");
            }
        }
    }
    eprintln!(
        "{kills} were killed, {ends} were not, {} left something",
        halves.len()
    );
    assert!(kills > 0, "none was killed");
    assert_eq!(
        halves,
        Vec::<String>::new(),
        "of {kills} killed scripts left something behind"
    );
    // The server is well.
    assert_eq!(eval(&mut raw, "return 1", &["0"]), Value::Integer(1));
}

/// Sets a flag when it goes, by a panic too.
struct SetAtEnd<'f>(&'f AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn a_script_that_was_killed_in_a_transaction_does_not_run_again_with_it() {
    const ROUNDS: usize = 8;
    let options = Options::shards(SHARDS).threads(4);
    let server = Server::start(&options.with("busy-reply-threshold", "50"));
    let (mut raw, mut killer) = (server.raw(), server.raw());
    let turns = turns_of_ms(&mut raw, 5).to_string();
    let is_over = AtomicBool::new(false);
    let (held, counter) = (format!("{}held", tag(2)), format!("{}counter", tag(2)));
    raw.command(&["FUNCTION", "LOAD", super::HOLDS]);
    let mut replies = Vec::new();
    std::thread::scope(|scope| {
        // A failure ends the other threads too, so that it is reported.
        let _ends = SetAtEnd(&is_over);
        for _ in 0..3 {
            scope.spawn(|| {
                let mut raw = server.raw();
                let spin = "for i = 1, tonumber(ARGV[1]) do end return redis.call('incr', KEYS[1])";
                while !is_over.load(Relaxed) {
                    eval(&mut raw, spin, &["1", &held, &turns]);
                }
            });
        }
        let own = format!("{}own", tag(1));
        for round in 0..ROUNDS {
            raw.call("MULTI");
            // A function, as the other clients run scripts: no kill is meant for it.
            raw.command(&["FCALL", "hold", "1", &own]);
            // It needs a shard that other clients occupy most of the time.
            let strays = "return redis.call('set', ARGV[1], ARGV[2])";
            eval(&mut raw, strays, &["0", &counter, &round.to_string()]);
            raw.send(&encode(&["EXEC"]));
            crate::support::eventually("it is killed", || {
                killer.call("FUNCTION KILL").show() == "OK"
            });
            match super::reply_in_time(&mut raw) {
                Some(reply) => replies.push(reply.show()),
                None => break,
            }
        }
    });
    assert_eq!(replies.len(), ROUNDS, "one kill each is enough");
    let is_good = |reply: &String| reply.contains("killed") && reply.ends_with("OK");
    assert!(replies.iter().all(is_good), "{replies:?}");
}
