//! Sends seeded streams of commands to basalt and to redis-server and compares every reply and, at the end,
//! the data.
//!
//! A stream is a list of batches; a batch is sent in one write. Each seed determines its own weights of the
//! families, so that some streams are nearly all of one kind. A stream with a difference is shrunk (batches
//! and commands are left out while it still differs) and written to `tests/corpus/`, which is replayed first
//! on every run.
//!
//! `DIFF_SEEDS=2000` for a long run, `DIFF_FIRST=17` to begin elsewhere, `DIFF_FAMILY=streams` for mostly one
//! family. Only results that are unordered by contract or depend on the moment are normalised: KEYS, SCAN
//! (compared as complete scans), RANDOMKEY (there is one or not), remaining times (within a tolerance).

use basalt_testing::{support, wire};

mod calls;
mod events;
mod grammar;
mod pushes;
mod rights;
mod sound;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use support::Draw;
use support::{Options, Oracle, Server};
use wire::{Raw, Value};

type Words = Vec<Vec<u8>>;
type Stream = Vec<Vec<Words>>;

/// The numbered databases that the streams use.
const DATABASES: usize = 3;

/// Failures to collect before giving up.
const FAILURES_MAX: usize = 8;

/// Most runs for shrinking a stream.
const SHRINK_RUNS_MAX: usize = 300;

/// The seeds of random calls begin above those of the grammar, as a stream of the corpus is named after its seed.
const CALLS_FROM: u64 = 1_000_000;

const SHARD_COUNTS: [usize; 3] = [1, 8, 64];

/// The first thing the two servers disagree on.
#[derive(Debug)]
struct Difference {
    command: String,
    ours: String,
    theirs: String,
}

#[test]
fn ours_and_redis_server_answer_alike() {
    let Some(Oracle(oracle)) = Oracle::start() else {
        return;
    };
    let mut pairs: Vec<Pair> = SHARD_COUNTS
        .iter()
        .map(|&shards| Pair::new(shards, Options::shards(shards), oracle.port))
        .collect();
    let mut failures = replay(&mut pairs);
    failures += &differences(&mut pairs, 1, ("DIFF_FIRST", "DIFF_SEEDS", 200), generate);
    assert!(failures.is_empty(), "\n{failures}");
}

/// Compares random calls of all commands that the other server documents, see [`calls`]. `CALL_SEEDS=2000`
/// for a long run.
#[test]
fn random_calls_are_answered_alike() {
    let Some(Oracle(oracle)) = Oracle::start() else {
        return;
    };
    // Long strings take long, and are no other than short ones.
    let options = Options::shards(8).with("proto-max-bulk-len", "1mb");
    let mut theirs = Raw::connect(oracle.port);
    theirs.call("CONFIG SET proto-max-bulk-len 1mb");
    let mut pairs = [Pair::new(8, options, oracle.port)];
    let mut calls = calls::Calls::of(&mut theirs, true);
    let generate = |seed| {
        let mut draw = Draw::new(seed);
        (0..60)
            .map(|_| {
                (0..1 + draw.below(12))
                    .map(|_| calls.call(&mut draw))
                    .collect()
            })
            .collect()
    };
    let failures = differences(
        &mut pairs,
        CALLS_FROM,
        ("CALL_FIRST", "CALL_SEEDS", 40),
        generate,
    );
    assert!(failures.is_empty(), "\n{failures}");
}

/// Replays the recorded streams; returns the differences.
fn replay(pairs: &mut [Pair]) -> String {
    let mut failures = String::new();
    for path in corpus() {
        let stream = read(&path);
        for pair in &mut *pairs {
            if let Some(difference) = pair.differs(&stream) {
                let _ = writeln!(
                    failures,
                    "corpus {} at {} shards: {}",
                    path.display(),
                    pair.shards,
                    show(&difference)
                );
            }
        }
    }
    failures
}

/// Returns the differences of streams, for the number of seeds in the environment.
fn differences(
    pairs: &mut [Pair],
    start: u64,
    (first, count, default): (&str, &str, u64),
    mut generate: impl FnMut(u64) -> Stream,
) -> String {
    let mut failures = String::new();
    let first: u64 = number(first, start);
    let mut seen = BTreeSet::new();
    for seed in first..first + number(count, default) {
        let pair = &mut pairs[(seed as usize) % pairs.len()];
        let stream = without_new_errors(generate(seed));
        let Some(difference) = pair.differs(&stream) else {
            continue;
        };
        if difference.theirs.contains("(no reply") {
            // It hangs or is gone: no more requests can be sent to it.
            let _ = writeln!(failures, "seed {seed}: {}", show(&difference));
            break;
        }
        let kind = difference
            .command
            .split(' ')
            .next()
            .unwrap_or("")
            .to_ascii_uppercase();
        if seen.insert(kind) {
            let small = pair.shrink(stream);
            let difference = pair.differs(&small).unwrap_or(difference);
            let path = write(seed, pair.shards, &small, &difference);
            let _ = writeln!(
                failures,
                "seed {seed} at {} shards: {}\n  written to {}",
                pair.shards,
                show(&difference),
                path.display()
            );
        }
        if seen.len() >= FAILURES_MAX {
            break;
        }
    }
    failures
}

/// Gives bounds of scores that are empty or only `(` a number: Redis 7 reads them as 0, Valkey 9.2 and basalt refuse
/// them.
fn without_new_errors(mut stream: Stream) -> Stream {
    for words in stream.iter_mut().flatten() {
        let is_of_sorted_sets = matches!(words[0].first(), Some(b'z' | b'Z'));
        for word in words.iter_mut().skip(1).filter(|_| is_of_sorted_sets) {
            if word.is_empty() || word == b"(" {
                *word = b"0".to_vec();
            }
        }
    }
    stream
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

fn show(difference: &Difference) -> String {
    format!(
        "> {}\n  ours   {}\n  redis  {}",
        difference.command, difference.ours, difference.theirs
    )
}

fn generate(seed: u64) -> Stream {
    let mut draw = Draw::new(seed);
    // Swarm: some families hardly occur in a stream, others are most of it.
    let mut weights: Vec<u32> = grammar::FAMILIES
        .iter()
        .map(|_| [0, 1, 4, 16][draw.below(4)])
        .collect();
    if let Ok(wanted) = std::env::var("DIFF_FAMILY") {
        for (weight, (name, _)) in weights.iter_mut().zip(grammar::FAMILIES) {
            *weight = if *name == wanted { 20 } else { 0 };
        }
    }
    if let Some(connection) = weights.last_mut() {
        *connection = 1;
    }
    let longest = [1, 1, 8, 30][draw.below(4)];
    (0..40 + draw.below(40))
        .map(|_| {
            (0..1 + draw.below(longest))
                .map(|_| grammar::command(&mut draw, &weights))
                .collect()
        })
        .collect()
}

/// A basalt server at one shard count, and the oracle.
struct Pair {
    shards: usize,
    options: Options,
    ours: Server,
    oracle_port: u16,
}

impl Pair {
    fn new(shards: usize, options: Options, oracle_port: u16) -> Pair {
        Pair {
            shards,
            ours: Server::start(&options),
            options,
            oracle_port,
        }
    }

    /// Runs a stream on both, from empty.
    fn differs(&mut self, stream: &Stream) -> Option<Difference> {
        if !support::is_listening(self.ours.port) {
            self.ours = Server::start(&self.options);
        }
        let mut ours = fresh(self.ours.port);
        let mut theirs = fresh(self.oracle_port);
        let (mut our_events, mut their_events) = (
            events::Listener::new(self.ours.port),
            events::Listener::new(self.oracle_port),
        );
        for batch in stream {
            let difference = batch_differs(&mut ours, &mut theirs, batch)
                .or_else(|| events_differ(&mut our_events, &mut their_events, batch));
            if difference.is_some() {
                return difference;
            }
        }
        data_differs(&mut ours, &mut theirs)
    }

    fn shrink(&mut self, mut stream: Stream) -> Stream {
        let mut runs = 0;
        let mut step = stream.len().div_ceil(2);
        while step > 0 {
            let mut at = 0;
            while at < stream.len() && runs < SHRINK_RUNS_MAX {
                let mut smaller = stream.clone();
                smaller.drain(at..(at + step).min(stream.len()));
                runs += 1;
                if self.differs(&smaller).is_some() {
                    stream = smaller
                } else {
                    at += step
                }
            }
            step /= 2;
        }
        let mut batch = 0;
        while batch < stream.len() {
            let mut at = 0;
            while at < stream[batch].len() && stream[batch].len() > 1 && runs < SHRINK_RUNS_MAX {
                let mut smaller = stream.clone();
                smaller[batch].remove(at);
                runs += 1;
                if self.differs(&smaller).is_some() {
                    stream = smaller
                } else {
                    at += 1
                }
            }
            batch += 1;
        }
        stream
    }
}

fn fresh(port: u16) -> Raw {
    let mut raw = Raw::connect(port);
    raw.stream()
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a time-out");
    // Redis looks at the end of waits that often.
    raw.call("CONFIG SET hz 500");
    raw.call("FLUSHALL");
    raw.call("SCRIPT FLUSH");
    raw.call("FUNCTION FLUSH");
    raw
}

fn batch_differs(ours: &mut Raw, theirs: &mut Raw, batch: &[Words]) -> Option<Difference> {
    let mut at = 0;
    while at < batch.len() {
        // A scan consists of many commands; those around it go in one write each.
        let end = batch[at..]
            .iter()
            .position(is_walk)
            .map_or(batch.len(), |next| at + next);
        if end == at {
            let (ours, theirs) = (walk(ours, &batch[at]), walk(theirs, &batch[at]));
            if ours != theirs {
                return Some(difference(&batch[at], &ours, &theirs));
            }
            at += 1;
            continue;
        }
        let mut bytes = Vec::new();
        for words in &batch[at..end] {
            wire::encode_into(&mut bytes, words);
        }
        ours.send_unchecked(&bytes);
        theirs.send(&bytes);
        for words in &batch[at..end] {
            let (ours, theirs) = (reply(ours), reply(theirs));
            if !alike(words, &ours, &theirs) {
                return Some(difference(words, &ours, &theirs));
            }
        }
        at = end;
    }
    None
}

/// True if subscribers received different keyspace events.
fn events_differ(
    ours: &mut events::Listener,
    theirs: &mut events::Listener,
    batch: &[Words],
) -> Option<Difference> {
    let (ours, theirs) = (ours.heard(), theirs.heard());
    if ours == theirs {
        return None;
    }
    let lines: Vec<String> = batch.iter().map(line).collect();
    Some(Difference {
        command: format!("{} (events)", lines.join(" | ")),
        ours: ours.join(", "),
        theirs: theirs.join(", "),
    })
}

fn difference(words: &Words, ours: &Value, theirs: &Value) -> Difference {
    Difference {
        command: line(words),
        ours: ours.show(),
        theirs: theirs.show(),
    }
}

fn reply(raw: &mut Raw) -> Value {
    raw.try_read()
        .unwrap_or_else(|error| Value::Error(format!("(no reply: {error})").into_bytes()))
}

/// True for scans: `@WALK` is SCAN; `@SSCAN key` and its like scan one key.
fn is_walk(words: &Words) -> bool {
    words[0].starts_with(b"@")
}

/// Runs SCAN from 0 to 0; returns the set of results, or the error.
fn walk(raw: &mut Raw, words: &Words) -> Value {
    let head = match words[0].as_slice() {
        b"@WALK" => vec![b"SCAN".to_vec()],
        name => vec![name[1..].to_vec(), words[1].clone()],
    };
    let options = &words[head.len()..];
    let mut cursor = b"0".to_vec();
    let mut found = BTreeSet::new();
    for _ in 0..10_000 {
        let mut request = head.clone();
        request.push(cursor);
        request.extend_from_slice(options);
        raw.send_unchecked(&wire::encode(&request));
        let reply = reply(raw);
        let Value::Array(parts) = &reply else {
            return reply;
        };
        found.extend(parts[1].items().iter().cloned());
        cursor = parts[0].bytes().to_vec();
        if cursor == b"0" {
            return Value::Array(found.into_iter().collect());
        }
    }
    Value::Error(b"(a walk without an end)".to_vec())
}

/// True if the replies are equal, except for parts that are unordered or depend on the moment.
fn alike(words: &Words, ours: &Value, theirs: &Value) -> bool {
    if ours == theirs {
        return true;
    }
    let name = words[0].to_ascii_uppercase();
    match (name.as_slice(), ours, theirs) {
        (b"KEYS", Value::Array(ours), Value::Array(theirs)) => {
            ours.iter().collect::<BTreeSet<_>>() == theirs.iter().collect::<BTreeSet<_>>()
                && ours.len() == theirs.len()
        }
        (
            b"SMEMBERS" | b"SINTER" | b"SUNION" | b"SDIFF" | b"SPOP",
            Value::Array(ours) | Value::Set(ours),
            Value::Array(theirs) | Value::Set(theirs),
        ) => {
            ours.iter().collect::<BTreeSet<_>>() == theirs.iter().collect::<BTreeSet<_>>()
                && ours.len() == theirs.len()
        }
        // Values may be equal, so these are compared in sorted order.
        (b"HGETALL" | b"HKEYS" | b"HVALS", Value::Array(ours), Value::Array(theirs)) => {
            sorted(ours) == sorted(theirs)
        }
        (b"HGETALL", Value::Map(ours), Value::Map(theirs)) => {
            ours.iter().collect::<BTreeSet<_>>() == theirs.iter().collect::<BTreeSet<_>>()
        }
        (b"EVAL" | b"EVAL_RO", Value::Array(ours), Value::Array(theirs))
            if String::from_utf8_lossy(&words[1]).contains("'hgetall'") =>
        {
            sorted(ours) == sorted(theirs)
        }
        // RESP3's numbers go without an exponent for longer since 7.2.
        (_, Value::Double(ours), Value::Double(theirs)) => {
            let number = |text: &[u8]| String::from_utf8_lossy(text).parse::<f64>().ok();
            number(ours).map(f64::to_bits) == number(theirs).map(f64::to_bits)
        }
        (b"HSCAN" | b"SSCAN", Value::Array(ours), Value::Array(theirs)) => {
            // The two servers find other fields of a table first.
            ours.len() == 2 && theirs.len() == 2
        }
        (b"HRANDFIELD", Value::Bulk(_), Value::Bulk(_)) => true,
        (b"SORT" | b"SORT_RO", Value::Array(ours), Value::Array(theirs)) => {
            let is = |word: &[u8], other: &[u8]| word.eq_ignore_ascii_case(other);
            let is_unordered = words.iter().any(|word| is(word, b"ALPHA"))
                || words
                    .windows(2)
                    .any(|two| is(&two[0], b"BY") && !two[1].contains(&b'*'));
            let is_whole = !words.iter().any(|word| is(word, b"LIMIT"));
            let holds_the_same = || sorted(ours) == sorted(theirs);
            is_unordered && ours.len() == theirs.len() && (!is_whole || holds_the_same())
        }
        // Redis may refuse numbers because of an earlier command's errno.
        (b"SORT" | b"SORT_RO", Value::Array(_) | Value::Integer(_), Value::Error(theirs)) => {
            theirs.ends_with(b"can't be converted into double")
        }
        (b"SRANDMEMBER", Value::Bulk(_), Value::Bulk(_)) => true,
        (b"ZSCAN", Value::Array(ours), Value::Array(theirs)) => {
            ours.len() == 2 && theirs.len() == 2
        }
        (
            b"HRANDFIELD" | b"SRANDMEMBER" | b"ZRANDMEMBER",
            Value::Array(ours),
            Value::Array(theirs),
        ) => are_drawn_alike(words, ours, theirs),
        (b"ZRANDMEMBER", Value::Bulk(_), Value::Bulk(_)) => true,
        // From 7.2 on, these take one more argument.
        (b"ZRANK" | b"ZREVRANK", Value::Error(ours), Value::Error(theirs))
            if ours == b"ERR syntax error" =>
        {
            theirs.starts_with(b"ERR wrong number")
        }
        // SORT makes a small sorted set a large one in Redis; here it only reads.
        (b"OBJECT", Value::Bulk(ours), Value::Bulk(theirs))
            if ours == b"listpack" && theirs == b"skiplist" =>
        {
            true
        }
        // Redis 7.0 has no packed sets.
        (b"OBJECT", Value::Bulk(ours), Value::Bulk(theirs))
            if ours == b"listpack" && theirs == b"hashtable" =>
        {
            true
        }
        (b"RANDOMKEY", Value::Bulk(_), Value::Bulk(_)) => true,
        (b"TTL" | b"EXPIRETIME", Value::Integer(ours), Value::Integer(theirs)) => {
            near(*ours, *theirs, 10) || both_above(*ours, *theirs, FAR_MS / 1000)
        }
        (b"PTTL" | b"PEXPIRETIME", Value::Integer(ours), Value::Integer(theirs)) => {
            near(*ours, *theirs, 10_000) || both_above(*ours, *theirs, FAR_MS)
        }
        // A start alone is a form of Valkey 8.
        (b"BITCOUNT", _, Value::Error(theirs))
            if words.len() == 3 && theirs == b"ERR syntax error" =>
        {
            true
        }
        // From 7.2 on these judge their arguments even where there is no key.
        (b"BITCOUNT" | b"BITPOS", Value::Error(_), Value::Integer(0 | -1)) => true,
        (b"BITCOUNT" | b"BITPOS", Value::Error(_), Value::Error(theirs)) => {
            theirs.starts_with(b"WRONGTYPE")
        }
        // Redis shares small integers, but not those that COPY made.
        (b"OBJECT", Value::Integer(ours), Value::Integer(theirs)) => {
            let shared = i64::from(i32::MAX);
            [1, shared].contains(ours) && [1, shared].contains(theirs)
        }
        // Redis 7.0 has no packed lists.
        (b"OBJECT", Value::Bulk(ours), Value::Bulk(theirs))
            if ours == b"listpack" && theirs == b"quicklist" =>
        {
            true
        }
        // Guarded by enable-debug-command, and not built into every server.
        (b"DEBUG", Value::Error(ours), _) if ours.starts_with(b"ERR unknown command") => true,
        // GETKEYS with too few words: the text changed in 7.2.
        (b"COMMAND", Value::Error(_), Value::Error(theirs)) => {
            theirs.ends_with(b"'command|getkeys' command")
                || theirs.ends_with(b"'command|getkeysandflags' command")
        }
        // A timeout beyond all bounds is one below 0 to Redis 7.0.
        (_, Value::Error(ours), Value::Error(theirs)) if ours == b"ERR timeout is out of range" => {
            theirs == b"ERR timeout is negative"
        }
        _ if calls::alike(words, ours, theirs) => true,
        _ if name.starts_with(b"X") && grammar::streams::alike(words, ours, theirs) => true,
        (_, Value::Error(ours), Value::Error(theirs)) => same_text(words, ours, theirs),
        // The greeting names the server; that it is one of the same shape is enough.
        (b"HELLO", Value::Map(ours), Value::Map(theirs)) => ours.len() == theirs.len(),
        (b"HELLO", Value::Array(ours), Value::Array(theirs)) => ours.len() == theirs.len(),
        _ => false,
    }
}

/// Compares random elements: equally many, each once if the count is positive, and equal ones if the count is
/// no smaller than the number of elements.
fn are_drawn_alike(words: &Words, ours: &[Value], theirs: &[Value]) -> bool {
    let count = words
        .get(2)
        .and_then(|count| String::from_utf8_lossy(count).parse::<i64>().ok());
    let Some(count) = count.filter(|_| ours.len() == theirs.len()) else {
        return false;
    };
    // In RESP2 a value, or a score, stands behind each element.
    let is_flat = words.len() > 3 && !ours.iter().any(|item| matches!(item, Value::Array(_)));
    let step = if is_flat { 2 } else { 1 };
    let elements: BTreeSet<&Value> = ours.iter().step_by(step).collect();
    let drawn = ours.len() / step;
    let is_all = (drawn as i64) < count;
    let holds_the_same = || match is_flat && words[0].eq_ignore_ascii_case(b"ZRANDMEMBER") {
        true => sorted(&with_plain_scores(ours)) == sorted(&with_plain_scores(theirs)),
        false => sorted(ours) == sorted(theirs),
    };
    count < 0 || elements.len() == drawn && (!is_all || holds_the_same())
}

/// Returns members and scores in turns, with each score as Rust writes the number: since 7.2 Redis writes large ones
/// without an exponent.
fn with_plain_scores(values: &[Value]) -> Vec<Value> {
    let plain = |(at, value): (usize, &Value)| match value {
        Value::Bulk(text) if at % 2 == 1 => {
            let number = String::from_utf8_lossy(text).parse::<f64>();
            number.map_or_else(
                |_| value.clone(),
                |number| Value::Bulk(number.to_string().into()),
            )
        }
        value => value.clone(),
    };
    values.iter().enumerate().map(plain).collect()
}

fn sorted(values: &[Value]) -> Vec<&Value> {
    let mut values: Vec<&Value> = values.iter().collect();
    values.sort();
    values
}

/// Compares errors that quote the client's words: ours are text, so that bytes which are not UTF-8 become
/// U+FFFD; Redis cuts a word at a NUL.
fn same_text(words: &Words, ours: &[u8], theirs: &[u8]) -> bool {
    let has_nul = words.iter().any(|word| word.contains(&0));
    let lossy = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    lossy(ours) == lossy(theirs) || has_nul && ours[..12] == theirs[..12]
}

/// basalt keeps deadlines in 48 bits, to the year 10,889; later ones become that year.
const FAR_MS: i64 = 270_000_000_000_000;

fn both_above(ours: i64, theirs: i64, limit: i64) -> bool {
    ours > limit && theirs > limit
}

fn near(ours: i64, theirs: i64, tolerance: i64) -> bool {
    ours > 0 && theirs > 0 && (ours - theirs).abs() <= tolerance
}

/// Keys, values, encodings, deadlines and the digest of all databases in use. Each value also travels to the other
/// server and must be the same there.
fn data_differs(ours: &mut Raw, theirs: &mut Raw) -> Option<Difference> {
    let both = |ours: &mut Raw, theirs: &mut Raw, words: Words| {
        let bytes = wire::encode(&words);
        ours.send_unchecked(&bytes);
        theirs.send(&bytes);
        let (a, b) = (reply(ours), reply(theirs));
        if alike(&words, &a, &b) {
            Ok(b)
        } else {
            Err(difference(&words, &a, &b))
        }
    };
    let words = |text: &str| wire::split(text);
    let compare = || -> Result<(), Difference> {
        for database in 0..DATABASES {
            both(ours, theirs, words(&format!("SELECT {database}")))?;
            let keys = both(ours, theirs, words("KEYS *"))?;
            for key in keys.items() {
                let about = |question: &str| {
                    let mut asked = words(question);
                    asked.push(key.bytes().to_vec());
                    asked
                };
                for question in ["TYPE", "GET", "PEXPIRETIME", "OBJECT ENCODING"] {
                    both(ours, theirs, about(question))?;
                }
                both(ours, theirs, about("DEBUG DIGEST-VALUE"))?;
                let payloads = [&mut *ours, &mut *theirs].map(|raw| {
                    raw.send_unchecked(&wire::encode(&about("DUMP")));
                    reply(raw)
                });
                // Its time may just have come on one of them.
                let [Value::Bulk(from_ours), Value::Bulk(from_theirs)] = payloads else {
                    continue;
                };
                let restore = |raw: &mut Raw, payload: Vec<u8>| {
                    let mut asked = words("RESTORE {travelled} 0");
                    asked.extend([payload, b"REPLACE".to_vec()]);
                    raw.send_unchecked(&wire::encode(&asked));
                    reply(raw)
                };
                let replies = (restore(ours, from_theirs), restore(theirs, from_ours));
                if replies.0 != replies.1 || replies.0.is_error() {
                    return Err(difference(
                        &about("DUMP and RESTORE"),
                        &replies.0,
                        &replies.1,
                    ));
                }
                both(ours, theirs, words("DEBUG DIGEST-VALUE {travelled}"))?;
                if both(ours, theirs, about("TYPE"))?.text() == "stream" {
                    // The groups of one server may differ from those of the other, but not from the groups
                    // that were copied.
                    let ask = |raw: &mut Raw, words: Words| {
                        raw.send_unchecked(&wire::encode(&words));
                        reply(raw)
                    };
                    let travelled = || words("XINFO GROUPS {travelled}");
                    let here = (ask(ours, about("XINFO GROUPS")), ask(theirs, travelled()));
                    let there = (ask(ours, travelled()), ask(theirs, about("XINFO GROUPS")));
                    for (a, b) in [here, there] {
                        if a != b {
                            return Err(difference(&travelled(), &a, &b));
                        }
                    }
                }
                both(ours, theirs, words("DEL {travelled}"))?;
            }
            both(ours, theirs, words("DBSIZE"))?;
        }
        both(ours, theirs, words("DEBUG DIGEST"))?;
        Ok(())
    };
    let mut compare = compare;
    compare().err()
}

fn line(words: &Words) -> String {
    words
        .iter()
        .map(|word| wire::quote(word))
        .collect::<Vec<_>>()
        .join(" ")
}

fn corpus_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn corpus() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(corpus_dir())
        .into_iter()
        .flatten()
        .flatten();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("differential-"))
        })
        .collect();
    paths.sort();
    paths
}

/// Reads one command from each line, batches separated by empty lines, `#` for comments.
fn read(path: &Path) -> Stream {
    let text = std::fs::read_to_string(path).expect("a stream of the corpus");
    let mut stream = vec![Vec::new()];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match stream.last_mut() {
            Some(batch) if !line.is_empty() => batch.push(wire::split(line)),
            _ => stream.push(Vec::new()),
        }
    }
    stream.retain(|batch| !batch.is_empty());
    stream
}

fn write(seed: u64, shards: usize, stream: &Stream, difference: &Difference) -> PathBuf {
    let mut out = format!("# seed {seed} at {shards} shards; what differed when it was found:\n");
    for line in show(difference).lines() {
        let _ = writeln!(out, "# {line}");
    }
    for batch in stream {
        for words in batch {
            let _ = writeln!(out, "{}", line(words));
        }
        out.push('\n');
    }
    let path = corpus_dir().join(format!("differential-{seed}.txt"));
    std::fs::create_dir_all(corpus_dir()).expect("tests/corpus");
    std::fs::write(&path, out).expect("write to the corpus");
    path
}
