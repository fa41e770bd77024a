//! The log records of every write command: requests, each with the expected records.
//!
//! A word `@dump:key` stands for the reply of DUMP for the key, `@chunk:COMMAND:key` for the first chunk that the
//! command returns, `{+n}` for the current time plus n milliseconds.

mod collections;
mod documents;
mod streams;

use collections::{HASHES, LISTS, OTHERS, SETS, SORTED_SETS};
use documents::DOCUMENTS;
use streams::STREAMS;

/// Commands that fill the keys before each case.
pub(super) const SEED: &[&str] = &[
    "SET s hello",
    "SET n 10",
    "SET f 1.5",
    "SET t there PX 100000000",
    "RPUSH l a b c d e",
    "RPUSH one 1",
    "SADD st a b c d e",
    "SADD si 1 2 3",
    "SADD single a",
    "ZADD z 1 a 2 b 3 c 4 d",
    "HSET h a 1 b 2 c 3",
    "XADD x 1-1 f v",
    "XADD x 2-1 f v",
    "XADD x 3-1 f v",
    "XADD x 4-1 f v",
    "XGROUP CREATE x g 0",
    "XREADGROUP GROUP g mine COUNT 2 STREAMS x >",
    "PFADD p a b c",
    "PFADD q c d",
    "GEOADD geo 13.361389 38.115556 Palermo 15.087269 37.502669 Catania",
    "SELECT 1",
    "SET s other",
    "SELECT 0",
];

/// Keys for cases with commands that Redis 7.0 lacks: one of each of its types, and those of newer types.
pub(super) const NEWER_SEED: &[&str] = &[
    "SET newer:string abc",
    "RPUSH newer:list a b c",
    "SADD newer:set a b c",
    "ZADD newer:zset 1 a 2 b",
    "XADD newer:stream 1-1 f v",
    "XGROUP CREATE newer:stream g 0",
    "HSET hx a 1 b 2 c 3",
    "HIMPORT PREPARE newer:fields bb a",
    "HPEXPIRE hx 100000000 FIELDS 2 a b",
    "BF.RESERVE bf 0.01 100",
    "BF.ADD bf a",
    "CF.RESERVE cf 100",
    "CF.ADD cf a",
    "CMS.INITBYDIM cms 100 4",
    "CMS.INCRBY cms a 2",
    "TOPK.RESERVE tk 2",
    "TOPK.ADD tk a b c a a",
    "TDIGEST.CREATE td",
    "TDIGEST.ADD td 1 2 3",
    "JSON.SET js $ '{\"a\":1,\"f\":1.5,\"t\":\"x\",\"b\":true,\"l\":[1,2,3],\"o\":{\"a\":2}}'",
];

/// Prefixes of the names of keys in `NEWER_SEED`: a case that names such a key is not sent to redis-server 7.0.
pub(super) const NEWER_KEYS: &[&str] = &["newer:", "hx", "bf", "cf", "cms", "tk", "td", "js"];

/// Nothing is logged.
pub(super) const NOTHING: &str = "";
/// The request itself is logged.
pub(super) const ITSELF: &str = "=";
/// A random record is logged; replaying it must have the same effect.
pub(super) const SOMETHING: &str = "*";

/// A command, by its full name, and requests with the records that each must log, joined by ` | `.
pub(super) type Case = (&'static str, &'static [(&'static str, &'static str)]);

/// Returns all cases. A row of the table that changes data and is neither here nor among those covered by other tests
/// makes the test fail.
pub(super) fn all() -> impl Iterator<Item = &'static Case> {
    [
        STRINGS,
        KEYS,
        LISTS,
        SETS,
        SORTED_SETS,
        HASHES,
        LOCKS,
        STREAMS,
        DOCUMENTS,
        OTHERS,
    ]
    .into_iter()
    .flatten()
}

const LOCKS: &[Case] = &[
    (
        "lock",
        &[
            ("LOCK lk me 60000", SOMETHING),
            ("LOCK lk me 1000", "HINCRBY lk me 1"),
            (
                "LOCK lk me 90000",
                "HINCRBY lk me 1 | PEXPIREAT lk {+90000}",
            ),
            ("LOCK lk other 1000", NOTHING),
            ("LOCK lk other 1000 WAIT 5", NOTHING),
            ("SET s v FENCE lk 1", NOTHING),
        ],
    ),
    (
        "lockextend",
        &[
            ("LOCK lk me 60000", SOMETHING),
            ("LOCKEXTEND lk me 5000", "PEXPIREAT lk {+5000}"),
            ("LOCKEXTEND lk other 5000", NOTHING),
        ],
    ),
    (
        "unlock",
        &[
            ("LOCK lk me 60000", SOMETHING),
            ("LOCK lk me 60000", "HINCRBY lk me 1"),
            ("UNLOCK lk me", "HINCRBY lk me -1"),
            ("UNLOCK lk other", NOTHING),
            ("UNLOCK lk me", "DEL lk"),
            ("UNLOCK lk me", NOTHING),
        ],
    ),
    (
        "bless|set",
        &[
            (
                "BLESS SET newer:string NO-EVICT",
                "COMMAND INFO basalt:note BLESS SET newer:string NO-EVICT",
            ),
            ("BLESS SET newer:string NO-EVICT", NOTHING),
            (
                "RENAME newer:string newer:other",
                "RENAME newer:string newer:other",
            ),
            ("COPY newer:other newer:copy", "COPY newer:other newer:copy"),
            ("HIMPORT SET newer:hash newer:fields 1 2", SOMETHING),
            ("BLESS SET newer:hash NO-EVICT", SOMETHING),
            (
                "HIMPORT SET newer:hash newer:fields x y",
                "DEL newer:hash | HSET newer:hash a y bb x \
                 | COMMAND INFO basalt:note BLESS SET newer:hash NO-EVICT",
            ),
            ("BLESS SET newer:zset NO-EVICT", SOMETHING),
            ("ZUNIONSTORE newer:zset 1 z AGGREGATE COUNT", SOMETHING),
        ],
    ),
    (
        "bless|clear",
        &[
            ("BLESS CLEAR newer:string NO-EVICT", NOTHING),
            ("BLESS SET newer:string NO-EVICT", SOMETHING),
            (
                "BLESS CLEAR newer:string NO-EVICT",
                "COMMAND INFO basalt:note BLESS CLEAR newer:string NO-EVICT",
            ),
        ],
    ),
    (
        "tag|add",
        &[
            ("TAG ADD s x y", "COMMAND INFO basalt:note TAG ADD s x y"),
            ("TAG ADD s x", NOTHING),
            ("TAG ADD none x", NOTHING),
        ],
    ),
    (
        "tag|rem",
        &[
            ("TAG ADD s x y z", SOMETHING),
            (
                "TAG REM s y get z other",
                "COMMAND INFO basalt:note TAG REM s y z",
            ),
            ("TAG REM s y", NOTHING),
        ],
    ),
    (
        "tag|invalidate",
        &[
            ("TAG ADD s x y", SOMETHING),
            (
                "TAG INVALIDATE none x y",
                "UNLINK s | COMMAND INFO basalt:note TAG INVALIDATE x",
            ),
            ("TAG INVALIDATE x", NOTHING),
        ],
    ),
    (
        "lstale",
        &[
            ("PEXPIREAT s {+100000}", SOMETHING),
            ("LSTALE s 50", "COMMAND INFO basalt:note LSTALE s 50"),
            ("LSTALE s 50", NOTHING),
        ],
    ),
    (
        "increx",
        &[
            ("INCREX n", "SET n 11 KEEPTTL"),
            ("INCREX n BYINT 5 PX 5000", "SET n 16 PXAT {+5000}"),
            ("INCREX n EX 9 ENX", "SET n 17 KEEPTTL"),
            ("INCREX n PERSIST", "SET n 18"),
            ("INCREX n UBOUND 1", NOTHING),
            ("INCREX n UBOUND 1 SATURATE", "SET n 1 KEEPTTL"),
            ("INCREX f BYFLOAT 0.5", "SET f 2 KEEPTTL"),
        ],
    ),
    (
        "cl.throttle",
        &[
            ("CL.THROTTLE th 0 1 5", SOMETHING),
            ("CL.THROTTLE th 0 1 5", NOTHING),
            ("CL.THROTTLE th 1 1 5 0", NOTHING),
        ],
    ),
];

const STRINGS: &[Case] = &[
    (
        "set",
        &[
            ("SET s v", ITSELF),
            ("SET s v NX", NOTHING),
            ("SET new v NX", ITSELF),
            ("SET new w XX KEEPTTL", ITSELF),
            ("SET absent w XX", NOTHING),
            ("SET s v EX 100", "SET s v PXAT {+100000}"),
            ("SET s v PX 100 NX", NOTHING),
            ("set s v px 1500", "SET s v PXAT {+1500}"),
            ("SET s v EXAT 9999999999", "SET s v PXAT 9999999999000"),
            ("set s v pxat 9999999999000", ITSELF),
            ("SET s w GET", "SET s w"),
            ("SET s w GET KEEPTTL XX", "SET s w KEEPTTL"),
            ("SET s x IFEQ w", "SET s x"),
            ("SET s y IFEQ w", NOTHING),
            ("SET s y IFNE w PX 5000", "SET s y PXAT {+5000}"),
            ("SET l v GET", NOTHING),
        ],
    ),
    ("setnx", &[("SETNX new v", ITSELF), ("SETNX s v", NOTHING)]),
    (
        "setex",
        &[
            ("SETEX s 100 v", "SET s v PXAT {+100000}"),
            ("SETEX s 0 v", NOTHING),
        ],
    ),
    ("psetex", &[("PSETEX s 100 v", "SET s v PXAT {+100}")]),
    (
        "getset",
        &[
            ("GETSET s v", "SET s v"),
            ("GETSET new v", "SET new v"),
            ("GETSET l v", NOTHING),
        ],
    ),
    ("getdel", &[("GETDEL s", "DEL s"), ("GETDEL s", NOTHING)]),
    (
        "getex",
        &[
            ("GETEX s", NOTHING),
            ("GETEX s EX 100", "PEXPIREAT s {+100000}"),
            ("GETEX s PXAT 9999999999000", "PEXPIREAT s 9999999999000"),
            ("GETEX s PERSIST", "PERSIST s"),
            ("GETEX s PERSIST", NOTHING),
            ("GETEX s EXAT 1", "DEL s"),
            ("GETEX s EX 100", NOTHING),
        ],
    ),
    (
        "append",
        &[
            ("APPEND s v", ITSELF),
            ("APPEND new v", ITSELF),
            ("APPEND l v", NOTHING),
        ],
    ),
    (
        "setrange",
        &[
            ("SETRANGE s 10 v", ITSELF),
            ("SETRANGE new 0 \"\"", NOTHING),
        ],
    ),
    ("incr", &[("INCR n", ITSELF), ("INCR s", NOTHING)]),
    ("decr", &[("DECR n", ITSELF), ("DECR s", NOTHING)]),
    ("incrby", &[("INCRBY n 5", ITSELF), ("INCRBY n x", NOTHING)]),
    ("decrby", &[("DECRBY n 5", ITSELF), ("DECRBY n x", NOTHING)]),
    (
        "incrbyfloat",
        &[
            ("INCRBYFLOAT f 0.1", "SET f 1.6 KEEPTTL"),
            ("INCRBYFLOAT new 3.0e3", "SET new 3000 KEEPTTL"),
            ("INCRBYFLOAT s 1", NOTHING),
        ],
    ),
    (
        "mset",
        &[("MSET s 1 new 2 l 3", ITSELF), ("MSET s 1 new", NOTHING)],
    ),
    (
        "msetnx",
        &[
            ("MSETNX new 1 newer 2", ITSELF),
            ("MSETNX s 1 newest 2", NOTHING),
        ],
    ),
    (
        "msetex",
        &[
            ("MSETEX 2 s 1 new 2", "MSET s 1 new 2"),
            (
                "MSETEX 2 s 1 new 2 PX 5000",
                "SET s 1 PXAT {+5000} | SET new 2 PXAT {+5000}",
            ),
            (
                "MSETEX 2 s 3 newer 4 KEEPTTL",
                "SET s 3 KEEPTTL | SET newer 4 KEEPTTL",
            ),
            ("MSETEX 2 s 1 newest 2 NX", NOTHING),
        ],
    ),
    (
        "delex",
        &[
            ("DELEX s IFEQ no", NOTHING),
            ("DELEX s IFEQ hello", "DEL s"),
            ("DELEX s", NOTHING),
        ],
    ),
    (
        "delifeq",
        &[("DELIFEQ s no", NOTHING), ("DELIFEQ s hello", "DEL s")],
    ),
    ("setbit", &[("SETBIT s 100 1", ITSELF)]),
    (
        "bitop",
        &[
            ("BITOP AND to s n", ITSELF),
            ("BITOP AND absent no none", NOTHING),
        ],
    ),
    (
        "bitfield",
        &[
            ("BITFIELD n INCRBY u8 0 1 SET u4 100 3", ITSELF),
            ("BITFIELD n GET u8 0", NOTHING),
            ("BITFIELD n OVERFLOW FAIL INCRBY u1 0 5", NOTHING),
        ],
    ),
    (
        "pfadd",
        &[
            ("PFADD p d e", ITSELF),
            ("PFADD p d e", NOTHING),
            ("PFADD new", ITSELF),
        ],
    ),
    (
        "pfcount",
        &[
            ("PFCOUNT p", ITSELF),
            ("PFCOUNT p", NOTHING),
            ("PFCOUNT p q", NOTHING),
        ],
    ),
    (
        "pfmerge",
        &[("PFMERGE p q", ITSELF), ("PFMERGE new p q", ITSELF)],
    ),
    (
        "pfdebug",
        &[
            ("PFDEBUG TODENSE p", ITSELF),
            ("PFDEBUG TODENSE p", NOTHING),
        ],
    ),
];

const KEYS: &[Case] = &[
    ("del", &[("DEL s absent l", ITSELF), ("DEL s", NOTHING)]),
    (
        "unlink",
        &[("UNLINK s absent l", ITSELF), ("UNLINK s", NOTHING)],
    ),
    (
        "expire",
        &[
            ("EXPIRE s 100", "PEXPIREAT s {+100000}"),
            ("EXPIRE s 200 GT", "PEXPIREAT s {+200000} GT"),
            ("EXPIRE s 100 NX", NOTHING),
            ("EXPIRE absent 100", NOTHING),
            ("EXPIRE s -1", "DEL s"),
        ],
    ),
    (
        "pexpire",
        &[
            ("PEXPIRE s 100", "PEXPIREAT s {+100}"),
            ("PEXPIRE l 0", "DEL l"),
        ],
    ),
    (
        "expireat",
        &[
            ("EXPIREAT s 9999999999", "PEXPIREAT s 9999999999000"),
            ("EXPIREAT l 1", "DEL l"),
        ],
    ),
    (
        "pexpireat",
        &[
            ("PEXPIREAT s 9999999999000", ITSELF),
            ("PEXPIREAT s 9 NX", NOTHING),
            ("pexpireat s 9", "DEL s"),
        ],
    ),
    ("persist", &[("PERSIST t", ITSELF), ("PERSIST t", NOTHING)]),
    (
        "rename",
        &[("RENAME t s", ITSELF), ("RENAME absent s", NOTHING)],
    ),
    (
        "renamenx",
        &[("RENAMENX t new", ITSELF), ("RENAMENX s l", NOTHING)],
    ),
    (
        "copy",
        &[
            ("COPY t new", ITSELF),
            ("COPY x s REPLACE", ITSELF),
            ("COPY l l DB 3", ITSELF),
            ("COPY s new", NOTHING),
        ],
    ),
    (
        "move",
        &[
            ("MOVE t 1", ITSELF),
            ("MOVE s 1", NOTHING),
            ("MOVE absent 1", NOTHING),
        ],
    ),
    (
        "sort",
        &[
            ("SORT si STORE to", ITSELF),
            ("SORT st ALPHA DESC LIMIT 1 2 STORE to", ITSELF),
            ("SORT st BY nosort STORE to", ITSELF),
            ("SORT absent STORE to", ITSELF),
            ("SORT absent STORE to", NOTHING),
            ("SORT si", NOTHING),
        ],
    ),
    (
        "restore",
        &[
            ("RESTORE new 0 @dump:x", ITSELF),
            (
                "RESTORE newer 5000 @dump:l",
                "RESTORE newer {+5000} @dump:l ABSTTL",
            ),
            ("RESTORE newer 9999999999000 @dump:s REPLACE ABSTTL", ITSELF),
            ("RESTORE newer 1 @dump:s REPLACE ABSTTL", "DEL newer"),
            ("RESTORE newer 1 @dump:s REPLACE ABSTTL", NOTHING),
            ("RESTORE s 0 @dump:l", NOTHING),
            ("RESTORE s 0 garbage REPLACE", NOTHING),
        ],
    ),
    (
        "restore-asking",
        &[("RESTORE-ASKING new 0 @dump:z", ITSELF)],
    ),
    ("flushdb", &[("FLUSHDB", ITSELF), ("FLUSHDB ASYNC", ITSELF)]),
    (
        "flushall",
        &[
            ("FLUSHALL", ITSELF),
            ("SET s 1", ITSELF),
            ("FLUSHALL SYNC", ITSELF),
        ],
    ),
    (
        "swapdb",
        &[
            ("SWAPDB 0 1", ITSELF),
            ("SET s back", ITSELF),
            ("SWAPDB 1 0", ITSELF),
        ],
    ),
];
