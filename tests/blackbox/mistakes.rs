//! Requests of the newest commands with an error in each of their arguments: every path reports the same
//! error, and nothing is changed or left behind.
//!
//! The requests are made from valid ones, by replacing each argument with a wrong one. A request gets the
//! same reply in a transaction, in a script and, unless it would wait, by itself; a replica refuses to change
//! anything.

use std::collections::BTreeSet;

use crate::replicated::{follow, settle};
use crate::support::{self, Options, Server, info_number};
use crate::wire::{Raw, Value, encode};

/// Data for the requests, including keys of wrong types.
const SEED: &[&str] = &[
    "SET text v",
    "SET fresh v EX 1000 STALE 1000 TAGS 2 red blue",
    "SET number 5",
    "RPUSH list a b c",
    "SADD set a b c",
    "HSET hash f 1 g 2",
    "ZADD zset 1 a 2 b",
    "GEOADD geo 13 38 p 15 37 c",
    "XADD stream 1-1 f v",
    "XADD stream 1-2 f v",
    "XGROUP CREATE stream g 0",
    "XREADGROUP GROUP g c STREAMS stream >",
    "LOCK lock me 600000",
    "TAG ADD list red",
];

/// Valid requests, except for unknown tokens and fences.
const REQUESTS: &[&str] = &[
    "LGET text LEASE 1000 WAIT 10",
    "LGET none LEASE 1000",
    "LFILL none 5 v EX 100 STALE 1000 TAGS 2 a b",
    "LDROP none 5",
    "LSTALE fresh 500",
    "SET text v PX 1000 STALE 1000 TAGS 1 red",
    "SET text w FENCE lock 7",
    "TAG ADD text a b",
    "TAG REM list red",
    "TAG OF list",
    "TAG COUNT red",
    "TAG KEYS red 0 COUNT 10",
    "TAG INVALIDATE red none",
    "LOCK lock me 1000 WAIT 10",
    "UNLOCK lock me",
    "LOCKEXTEND lock me 1000",
    "LOCKINFO lock",
    "ZMOVE zset zset2 BYSCORE 1 2 COUNT 1",
    "ZMOVE zset zset2 MIN COUNT 2",
    "BZMOVE zset zset2 MAX 1 COUNT 1",
    "ZMOVEMEMBER zset zset2 NX MEMBERS 2 a b",
    "BLESS SET text NO-EVICT",
    "BLESS CLEAR text NO-EVICT",
    "BLESS GET text",
    "BLESS SCAN 0 NO-EVICT COUNT 10",
    "BITRANGEINTARRAY text 0 -1 BIT LIMIT 5 ZEROS",
    "ZPOPDUE zset COUNT 1",
    "BZPOPDUE zset 1 COUNT 1",
    "INCREX number BYINT 2 LBOUND 0 UBOUND 100 EX 100",
    "INCREX number BYFLOAT 1.5 UBOUND 10 PX 1000 ENX",
    "CL.THROTTLE rate 15 30 60 1",
    "LMOVEM list set2 LEFT RIGHT COUNT 2 OBO",
    "BLMOVEM list list2 LEFT RIGHT 1 EXACTLY 2 BULK",
    "SUNIONCARD 2 set none LIMIT 5",
    "SDIFFCARD 2 set none LIMIT 5",
    "SEXPIRE set 100 NX MEMBERS 2 a b",
    "SPEXPIRE set 1000 GT MEMBERS 1 a",
    "SEXPIREAT set 4000000000 MEMBERS 1 a",
    "SPEXPIREAT set 4000000000000 MEMBERS 1 a",
    "STTL set MEMBERS 1 a",
    "SPTTL set MEMBERS 1 a",
    "SEXPIRETIME set MEMBERS 1 a",
    "SPEXPIRETIME set MEMBERS 1 a",
    "SPERSIST set MEMBERS 1 a",
    "HSETEX hash NX EX 100 FIELDS 1 f v",
    "HSETEX hash FXX KEEPTTL FIELDS 2 f v g w",
    "HGETEX hash PX 1000 FIELDS 1 f",
    "HGETDEL hash FIELDS 1 f",
    "HIMPORT PREPARE set a b",
    "HIMPORT SET hash none a b",
    "XADD stream IDMP p 1 * f v",
    "XADD stream IDMPAUTO p * f v",
    "XCFGSET stream IDMP-DURATION 100 IDMP-MAXSIZE 10",
    "XREAD COUNT 1 MAXCOUNT 1 MAXSIZE 100 STREAMS stream 0",
    "XREADGROUP GROUP g c CLAIM 10 STREAMS stream >",
    "XNACK stream g FAIL IDS 1 1-1 RETRYCOUNT 2 FORCE",
    "XDELEX stream ACKED IDS 1 1-1",
    "XACKDEL stream g DELREF IDS 1 1-1",
    "GEOSEARCH geo BYPOLYGON 3 12 37 16 37 16 39 ASC",
    "GEOSEARCHSTORE to geo BYPOLYGON 3 12 37 16 37 16 39",
    "ZUNIONSTORE to 2 zset set WEIGHTS 1 2 AGGREGATE COUNT",
    "SET text w IFEQ v",
    "SET text w IFDEQ 0123456789abcdef",
    "DELEX text IFEQ v",
    "DELIFEQ text v",
    "MSETEX 2 text v other w EX 100",
];

/// Wrong values that replace an argument.
const WRONG: &[&str] = &[
    "",
    "x",
    "0",
    "-1",
    "1.5",
    "nan",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "list",
    "text",
];

/// Returns a request with each possible error in it, and with one argument too few and one too many.
fn variants(line: &str) -> BTreeSet<Vec<String>> {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let mut all = BTreeSet::from([words.clone()]);
    for at in 1..words.len() {
        for wrong in WRONG {
            let mut variant = words.clone();
            variant[at] = (*wrong).to_owned();
            all.insert(variant);
        }
        let mut fewer = words.clone();
        fewer.remove(at);
        all.insert(fewer);
        let mut more = words.clone();
        more.insert(at, "9".to_owned());
        all.insert(more);
    }
    all.insert([&words[..], &["x".to_owned()]].concat());
    all
}

fn reset(raw: &mut Raw) {
    let lines: Vec<&str> = ["FLUSHALL", "HIMPORT DISCARDALL"]
        .iter()
        .chain(SEED)
        .copied()
        .collect();
    for (reply, line) in raw.pipeline(&lines).iter().zip(lines) {
        assert!(!reply.is_error(), "{line}: {}", reply.show());
    }
}

/// Returns the part of a reply that is compared: for a success only that, as tokens, fences and times differ.
fn shown(reply: &Value) -> String {
    match reply.is_error() {
        true => reply.text(),
        false => "an answer".to_owned(),
    }
}

/// Returns the reply to a request in a script, which passes errors on.
fn in_script(raw: &mut Raw, words: &[String]) -> String {
    let script = "local reply = redis.pcall(unpack(ARGV)) \
                  if type(reply) == 'table' and reply.err then return {err = reply.err} end return 1";
    let mut request = vec!["EVAL".to_owned(), script.to_owned(), "0".to_owned()];
    request.extend_from_slice(words);
    shown(&raw.command(&request))
}

/// Returns the reply to a request in a transaction: the refusal may come before EXEC.
fn in_transaction(raw: &mut Raw, words: &[String]) -> (String, bool) {
    let requests = [&["MULTI".to_owned()], words, &["EXEC".to_owned()]];
    requests.iter().for_each(|words| raw.send(&encode(words)));
    let [_, queued, reply] = [raw.read(), raw.read(), raw.read()];
    if queued.is_error() {
        return (queued.text(), false);
    }
    let only = &reply.items()[0];
    let waits = only.is_nil() || only.show().contains("\"busy\"") || only.show() == "(empty array)";
    (shown(only), waits)
}

#[test]
fn what_is_wrong_is_said_everywhere_in_the_same_words_and_changes_nothing() {
    let server = Server::start(&Options::shards(4).threads(2));
    let mut raw = server.raw();
    reset(&mut raw);
    let digest = raw.call("DEBUG DIGEST").show();
    let (mut count, mut refused) = (0, 0);
    for line in REQUESTS {
        for words in variants(line) {
            let (said, waits) = in_transaction(&mut raw, &words);
            let is_error = said != "an answer";
            let settle = |raw: &mut Raw| {
                if raw.call("DEBUG DIGEST").show() != digest {
                    assert!(!is_error, "{words:?} changed something: {said}");
                    reset(raw);
                }
            };
            settle(&mut raw);
            let in_script = in_script(&mut raw, &words);
            // Redis words the errors of scripts with unknown commands, or with too few arguments,
            // differently.
            let is_scripts_own =
                in_script.contains("from script") || in_script.contains("called from Lua");
            assert!(
                in_script == said || is_scripts_own && is_error,
                "{words:?}: in a script {in_script:?}, in a transaction {said:?}"
            );
            settle(&mut raw);
            if !waits {
                assert_eq!(shown(&raw.command(&words)), said, "{words:?}");
                settle(&mut raw);
            }
            raw.call("HIMPORT DISCARDALL");
            count += 1;
            refused += usize::from(is_error);
        }
        assert_eq!(raw.call("DEBUG DIGEST").show(), digest, "{line}");
    }
    assert!(
        refused > count / 3 && refused < count,
        "{count} requests, of which {refused} were refused"
    );
    assert_eq!(info_number(&mut raw, "clients", "blocked_clients"), 0.0);
}

#[test]
fn a_replica_is_not_changed_by_anything_that_is_asked_of_it() {
    if support::is_stand_in() {
        return;
    }
    let (primary, replica) = (
        Server::start(&Options::shards(4)),
        Server::start(&Options::shards(2)),
    );
    follow(&replica, &primary);
    reset(&mut primary.raw());
    settle(&[&primary, &replica]);
    let mut raw = replica.raw();
    let digest = raw.call("DEBUG DIGEST").show();
    for line in REQUESTS {
        let requests: Vec<Vec<String>> = variants(line).into_iter().collect();
        for words in requests {
            // Commands that only read may wait: none of them waits here.
            let reads = words.iter().any(|word| word == "WAIT");
            if !reads {
                raw.send(&encode(&words));
                raw.read();
            }
            in_script(&mut raw, &words);
            in_transaction(&mut raw, &words);
        }
        assert_eq!(raw.call("DEBUG DIGEST").show(), digest, "{line}");
    }
    assert_eq!(info_number(&mut raw, "leases", "leases_in_force"), 0.0);
    assert_eq!(info_number(&mut raw, "clients", "blocked_clients"), 0.0);
    for line in [
        "LFILL k 5 v",
        "LOCK k me 1000",
        "TAG ADD text a",
        "ZPOPDUE zset",
        "INCREX number",
        "XNACK stream g FAIL IDS 1 1-1",
    ] {
        let reply = raw.call(line).show();
        assert!(reply.contains("READONLY"), "{line}: {reply}");
    }
}
