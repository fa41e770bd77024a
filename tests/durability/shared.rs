//! Operations on keys that several clients share, and their invariants whatever was lost: sums are kept,
//! causes come before their effects, each element exists once, and values that a client has read do not
//! vanish.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::history::{Promise, is_of_replica};
use crate::support::{Draw, Server};
use crate::wire::{Raw, Value};

pub(crate) const TRANSFERS: usize = 2;
const ACCOUNTS: usize = 32;

/// Counts that were acknowledged or seen, and when.
#[derive(Default)]
struct Counts(Vec<(Instant, i64)>);

impl Counts {
    fn note(&mut self, count: i64) {
        self.0.push((Instant::now(), count));
    }

    fn promised(&self, promise: Promise) -> i64 {
        let counts = self.0.iter().filter(|(at, _)| promise.covers(Some(*at)));
        counts.map(|(_, count)| *count).max().unwrap_or(0)
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Shared {
    transferred: [Mutex<Counts>; TRANSFERS],
    seen: Mutex<Counts>,
    queued: Mutex<Counts>,
}

fn integer(value: &Value) -> i64 {
    match value {
        Value::Bulk(text) => String::from_utf8_lossy(text).parse().expect("a number"),
        Value::Integer(number) => *number,
        other if other.is_nil() => 0,
        other => panic!("no number: {}", other.show()),
    }
}

/// Sends a line; `None` once the server is gone.
fn ask(raw: &mut Raw, line: &str) -> Option<Value> {
    raw.send_unchecked(format!("{line}\r\n").as_bytes());
    let reply = raw.try_read().ok()?;
    if reply.is_error() && is_of_replica(&reply) {
        return None;
    }
    assert!(!reply.is_error(), "{line}: {}", reply.show());
    Some(reply)
}

impl Shared {
    /// Moves amounts between accounts, on any shards, and counts the moves.
    pub(crate) fn transfer(&self, port: u16, number: usize, mut draw: Draw) -> Option<()> {
        let mut raw = Raw::try_connect(port).ok()?;
        ask(&mut raw, "SELECT 15")?;
        loop {
            let (from, to) = (draw.below(ACCOUNTS), draw.below(ACCOUNTS));
            let amount = draw.below(100);
            let count = if draw.below(2) == 0 {
                let script = format!(
                    "EVAL \"redis.call('DECRBY', 'account:{from}', {amount}) redis.call('INCRBY', 'account:{to}', \
                     {amount}) return redis.call('INCR', 'done:{number}')\" 0"
                );
                integer(&ask(&mut raw, &script)?)
            } else {
                let lines = [
                    "MULTI".to_owned(),
                    format!("DECRBY account:{from} {amount}"),
                    format!("INCRBY account:{to} {amount}"),
                    format!("INCR done:{number}"),
                    "EXEC".to_owned(),
                ];
                raw.send_unchecked((lines.join("\r\n") + "\r\n").as_bytes());
                let mut replies = (0..lines.len()).map(|_| raw.try_read().ok());
                let exec = replies.by_ref().last().flatten()?;
                if exec.is_error() && is_of_replica(&exec) {
                    return None;
                }
                integer(exec.items().get(2)?)
            };
            self.transferred[number].lock().expect("counts").note(count);
            // The increment of one key causes that of the other.
            let shared = integer(&ask(&mut raw, "INCR cause")?);
            ask(&mut raw, &format!("SET effect:{number} {shared}"))?;
        }
    }

    /// Reads other clients' writes: a value that was seen never disappears.
    pub(crate) fn watch(&self, port: u16, mut draw: Draw) -> Option<()> {
        let mut raw = Raw::try_connect(port).ok()?;
        ask(&mut raw, "SELECT 15")?;
        loop {
            let cause = integer(&ask(&mut raw, "GET cause")?);
            self.seen.lock().expect("counts").note(cause);
            std::thread::sleep(Duration::from_micros(draw.below(3_000) as u64));
        }
    }

    /// Appends growing numbers.
    pub(crate) fn produce(&self, port: u16, mut draw: Draw) -> Option<()> {
        let mut raw = Raw::try_connect(port).ok()?;
        ask(&mut raw, "SELECT 14")?;
        let mut next = elements(&mut raw)?.len() as i64;
        loop {
            ask(&mut raw, &format!("RPUSH queue {next}"))?;
            next += 1;
            self.queued.lock().expect("counts").note(next);
            std::thread::sleep(Duration::from_micros(draw.below(4_000) as u64));
        }
    }

    /// Takes them, and keeps them in another list.
    pub(crate) fn consume(&self, port: u16) -> Option<()> {
        let mut raw = Raw::try_connect(port).ok()?;
        ask(&mut raw, "SELECT 14")?;
        loop {
            ask(&mut raw, "BLMOVE queue taken LEFT RIGHT 0.05")?;
        }
    }

    /// Triggers snapshots, rewrites and changes of their settings.
    pub(crate) fn weather(&self, port: u16, mut draw: Draw, ends: &AtomicBool) -> Option<()> {
        let mut raw = Raw::try_connect(port).ok()?;
        let truth = |draw: &mut Draw| if draw.below(2) == 0 { "no" } else { "yes" };
        while !ends.load(Relaxed) {
            let line = match draw.below(12) {
                0..4 => "BGREWRITEAOF".to_owned(),
                4 | 5 => "BGSAVE SCHEDULE".to_owned(),
                6 => format!(
                    "CONFIG SET rdb-key-save-delay {}",
                    [0, 0, 5, 30][draw.below(4)]
                ),
                7 => format!("CONFIG SET aof-use-rdb-preamble {}", truth(&mut draw)),
                8 => format!("CONFIG SET aof-timestamp-enabled {}", truth(&mut draw)),
                9 => format!("CONFIG SET no-appendfsync-on-rewrite {}", truth(&mut draw)),
                10 => format!(
                    "CONFIG SET auto-aof-rewrite-percentage {}",
                    draw.below(2) * 30
                ),
                _ => "WAITAOF 1 0 20".to_owned(),
            };
            raw.send_unchecked(format!("{line}\r\n").as_bytes());
            // Some of it is refused, as something else is under way.
            let _ = raw.try_read().ok()?;
            std::thread::sleep(Duration::from_micros(draw.below(60_000) as u64));
        }
        Some(())
    }

    /// Returns the faults in a server's present data, which are the new baseline.
    pub(crate) fn check(&mut self, server: &Server, promise: Promise) -> Vec<String> {
        let mut raw = server.raw();
        let mut faults = Vec::new();
        let mut ask = |line: &str| ask(&mut raw, line).expect("it is there");
        ask("SELECT 15");
        let sum: i64 = (0..ACCOUNTS)
            .map(|number| integer(&ask(&format!("GET account:{number}"))))
            .sum();
        if sum != 0 {
            faults.push(format!("half of a transfer: {sum} too much"));
        }
        let cause = integer(&ask("GET cause"));
        for (number, counts) in self.transferred.iter_mut().enumerate() {
            let counts = std::mem::take(counts.get_mut().expect("counts"));
            let (there, promised) = (
                integer(&ask(&format!("GET done:{number}"))),
                counts.promised(promise),
            );
            if there < promised {
                faults.push(format!(
                    "{there} transfers of {promised} that were promised"
                ));
            }
            let effect = integer(&ask(&format!("GET effect:{number}")));
            if effect > cause {
                faults.push(format!("an effect without its cause: {effect}, {cause}"));
            }
        }
        let seen = std::mem::take(self.seen.get_mut().expect("counts"));
        if cause < seen.promised(promise) {
            faults.push(format!("{cause}, and {} was seen", seen.promised(promise)));
        }
        ask("SELECT 14");
        let all = elements(&mut raw).expect("it is there");
        let queued = std::mem::take(self.queued.get_mut().expect("counts"));
        if (all.len() as i64) < queued.promised(promise) {
            faults.push(format!(
                "{} of {} elements",
                all.len(),
                queued.promised(promise)
            ));
        }
        if let Some(at) = (0..all.len()).find(|at| all[*at] != *at as i64) {
            faults.push(format!("element {at} of {} is {}", all.len(), all[at]));
        }
        faults
    }
}

/// All elements that were ever queued.
fn elements(raw: &mut Raw) -> Option<Vec<i64>> {
    raw.send_unchecked(b"MULTI\r\nLRANGE taken 0 -1\r\nLRANGE queue 0 -1\r\nEXEC\r\n");
    let replies: Vec<Value> = (0..4).map_while(|_| raw.try_read().ok()).collect();
    let exec = replies.get(3)?;
    let lists = exec.items().iter().flat_map(|list| list.items());
    Some(lists.map(integer).collect())
}
