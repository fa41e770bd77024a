//! The execution core under load: what several clients must see when shards are locked for long, when scripts
//! are rolled back and run again, when waiters are served from two shards at once, and when all clients
//! receive all events.
//!
//! redis-server passes all of this because of its single thread. Nothing is asserted about time: progress is
//! counted in what other clients got done meanwhile, and deadlines only end a test whose server hangs.

mod blocking;
mod clock;
mod config;
mod events;
mod fairness;
mod kill;
mod replies;

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use crate::support::{Server, eventually, info_number, is_stand_in};
use crate::wire::{Raw, Value, encode};

/// Shards of the servers that these tests start.
const SHARDS: usize = 64;

/// Time within which an expected reply must come. Only a server that hangs takes longer.
const DEADLINE: Duration = Duration::from_secs(30);

/// Between two looks whether a reply has come.
const POLL: Duration = Duration::from_millis(10);

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    })
}

/// Returns a hash tag, with its braces, whose keys are on this shard.
fn tag(shard: usize) -> String {
    let is_there = |name: &String| usize::from(crc16(name.as_bytes())) & (SHARDS - 1) == shard;
    let name = (0..).map(|number| format!("t{number}")).find(is_there);
    format!("{{{}}}", name.expect("some number fits"))
}

/// Runs a script, with the number of its keys, the keys and the arguments.
fn eval(raw: &mut Raw, script: &str, rest: &[&str]) -> Value {
    raw.command(&eval_words(script, rest))
}

fn eval_words<'a>(script: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["EVAL", script];
    words.extend_from_slice(rest);
    words
}

/// Turns of an empty Lua loop that take about so long, at the best of some tries.
fn turns_of_ms(raw: &mut Raw, milliseconds: u64) -> u64 {
    const TRIED: u64 = 500_000;
    let script = "for i = 1, tonumber(ARGV[1]) do end";
    let tries = (0..4).map(|_| {
        let began = Instant::now();
        eval(raw, script, &["0", &TRIED.to_string()]);
        began.elapsed()
    });
    let best = tries.min().expect("some tries").as_micros().max(1) as u64;
    (TRIED * milliseconds * 1_000 / best).max(1)
}

/// Waits for the reply while `goes_on` is true; returns `None` if it becomes false, or if no reply comes at
/// all.
fn reply_while(raw: &mut Raw, mut goes_on: impl FnMut() -> bool) -> Option<Value> {
    let began = Instant::now();
    while goes_on() && began.elapsed() < DEADLINE {
        if is_readable(raw, POLL) {
            return Some(raw.read());
        }
    }
    None
}

/// Returns the reply, or `None` if none comes in time.
fn reply_in_time(raw: &mut Raw) -> Option<Value> {
    reply_while(raw, || true)
}

/// Returns the reply, which must come.
#[track_caller]
fn must_reply(raw: &mut Raw, what: &str) -> Value {
    let reply = reply_in_time(raw);
    reply.unwrap_or_else(|| panic!("no reply within {DEADLINE:?}: {what}"))
}

/// True if bytes of a reply arrive within this time. Earlier replies must have been read.
fn is_readable(raw: &mut Raw, within: Duration) -> bool {
    if raw.has_pending() {
        return true;
    }
    let stream = raw.stream();
    stream.set_read_timeout(Some(within)).expect("a time-out");
    let seen = stream.peek(&mut [0]);
    stream.set_read_timeout(Some(DEADLINE)).expect("a time-out");
    match seen {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

/// An endless function that locks the shard of one key until it is killed.
struct Hold {
    raw: Raw,
    control: Raw,
}

const HOLDS: &str = "#!lua name=holds
    redis.register_function('hold', function(keys) redis.call('exists', keys[1]) while true do end end)";

impl Hold {
    fn begin(server: &Server, key: &str) -> Hold {
        let (mut raw, mut control) = (server.raw(), server.raw());
        control.command(&["FUNCTION", "LOAD", "REPLACE", HOLDS]);
        raw.send(&encode(&["FCALL", "hold", "1", key]));
        eventually("a function runs", || {
            let stats = control.call("FUNCTION STATS").show();
            stats.contains("hold")
        });
        Hold { raw, control }
    }

    /// Ends it.
    fn end(mut self) {
        eventually("the function is killed", || {
            self.control.call("FUNCTION KILL").show() == "OK"
        });
        let reply = must_reply(&mut self.raw, "the function that was killed");
        assert!(reply.text().contains("killed"), "{}", reply.show());
    }
}

/// Returns a field of INFO.
fn figure(raw: &mut Raw, section: &str, name: &str) -> u64 {
    info_number(raw, section, name) as u64
}

/// Runs a test with each number of threads; redis-server has its own.
fn at_each_thread_count(counts: &[usize], body: impl Fn(usize)) {
    let counts = if is_stand_in() { &counts[..1] } else { counts };
    counts.iter().for_each(|count| body(*count));
}
