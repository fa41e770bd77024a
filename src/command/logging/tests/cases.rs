//! What every write command leaves in the log: requests, each with the records that are wanted.
//!
//! A word `@dump:key` stands for what DUMP answers for the key, `{+n}` for the moment and so many milliseconds.

/// What keys hold before each case.
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

/// What further keys hold, of which Redis 7.0 knows nothing.
pub(super) const YOUNG_SEED: &[&str] = &[
    "HSET hx a 1 b 2 c 3",
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
];

/// The keys of the young seed, and of what grows from it.
pub(super) const YOUNG_KEYS: &[&str] = &["hx", "bf", "cf", "cms", "tk", "td"];

/// Nothing is logged.
pub(super) const NOTHING: &str = "";
/// The request itself is logged.
pub(super) const ITSELF: &str = "=";
/// Something is logged that depends on chance; it must bring about the same.
pub(super) const SOMETHING: &str = "*";

/// A command, by its full name, and requests with the records that each is to leave, joined by ` | `.
pub(super) type Case = (&'static str, &'static [(&'static str, &'static str)]);

/// All cases. One row of the table that changes data and stands neither here nor among those that other tests cover makes
/// the test fail.
pub(super) fn all() -> impl Iterator<Item = &'static Case> {
    [
        STRINGS,
        KEYS,
        LISTS,
        SETS,
        SORTED_SETS,
        HASHES,
        STREAMS,
        OTHERS,
    ]
    .into_iter()
    .flatten()
}

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

const LISTS: &[Case] = &[
    ("lpush", &[("LPUSH l x y", ITSELF), ("LPUSH s x", NOTHING)]),
    (
        "rpush",
        &[("RPUSH new x y", ITSELF), ("RPUSH s x", NOTHING)],
    ),
    (
        "lpushx",
        &[("LPUSHX l x", ITSELF), ("LPUSHX absent x", NOTHING)],
    ),
    (
        "rpushx",
        &[("RPUSHX l x", ITSELF), ("RPUSHX absent x", NOTHING)],
    ),
    (
        "linsert",
        &[
            ("LINSERT l BEFORE c x", ITSELF),
            ("LINSERT l AFTER none x", NOTHING),
        ],
    ),
    (
        "lset",
        &[("LSET l -1 x", ITSELF), ("LSET l 100 x", NOTHING)],
    ),
    ("lrem", &[("LREM l 0 c", ITSELF), ("LREM l 0 c", NOTHING)]),
    (
        "ltrim",
        &[("LTRIM l 1 2", ITSELF), ("LTRIM absent 0 1", NOTHING)],
    ),
    (
        "lpop",
        &[
            ("LPOP l", ITSELF),
            ("LPOP l 100", ITSELF),
            ("LPOP l", NOTHING),
        ],
    ),
    (
        "rpop",
        &[
            ("RPOP l", ITSELF),
            ("RPOP l 0", NOTHING),
            ("RPOP l 2", ITSELF),
        ],
    ),
    (
        "lmpop",
        &[
            ("LMPOP 2 absent l LEFT", "LPOP l 1"),
            ("LMPOP 1 l RIGHT COUNT 100", "RPOP l 4"),
            ("LMPOP 1 l RIGHT", NOTHING),
        ],
    ),
    (
        "blpop",
        &[("BLPOP absent l 0", "LPOP l"), ("BLPOP absent 0", NOTHING)],
    ),
    (
        "brpop",
        &[("BRPOP absent l 0", "RPOP l"), ("BRPOP s 0", NOTHING)],
    ),
    (
        "blmpop",
        &[
            ("BLMPOP 0 2 absent l LEFT COUNT 9", "LPOP l 5"),
            ("BLMPOP 0 1 l LEFT", NOTHING),
        ],
    ),
    (
        "lmove",
        &[
            ("LMOVE l new LEFT RIGHT", ITSELF),
            ("LMOVE absent l LEFT LEFT", NOTHING),
        ],
    ),
    (
        "rpoplpush",
        &[
            ("RPOPLPUSH l l", ITSELF),
            ("RPOPLPUSH one l", ITSELF),
            ("RPOPLPUSH absent l", NOTHING),
        ],
    ),
    (
        "blmove",
        &[
            ("BLMOVE l new LEFT RIGHT 0", "LMOVE l new LEFT RIGHT"),
            ("BLMOVE no l LEFT LEFT 0", NOTHING),
        ],
    ),
    (
        "brpoplpush",
        &[
            ("BRPOPLPUSH one new 0", "RPOPLPUSH one new"),
            ("BRPOPLPUSH one new 0", NOTHING),
        ],
    ),
];

const SETS: &[Case] = &[
    ("sadd", &[("SADD st a z", ITSELF), ("SADD st a z", NOTHING)]),
    (
        "srem",
        &[("SREM st a none", ITSELF), ("SREM st a", NOTHING)],
    ),
    (
        "smove",
        &[("SMOVE st new a", ITSELF), ("SMOVE st new none", NOTHING)],
    ),
    (
        "spop",
        &[
            ("SPOP single", "SREM single a"),
            ("SPOP st", SOMETHING),
            ("SPOP st 2", SOMETHING),
            ("SPOP st 0", NOTHING),
            ("SPOP st 10", "DEL st"),
            ("SPOP st", NOTHING),
            ("SPOP st 3", NOTHING),
        ],
    ),
    (
        "sinterstore",
        &[
            ("SINTERSTORE to st single", ITSELF),
            ("SINTERSTORE to st si", ITSELF),
            ("SINTERSTORE to st si", NOTHING),
        ],
    ),
    (
        "sunionstore",
        &[
            ("SUNIONSTORE to st si", ITSELF),
            ("SUNIONSTORE none no never", NOTHING),
        ],
    ),
    (
        "sdiffstore",
        &[
            ("SDIFFSTORE to st single", ITSELF),
            ("SDIFFSTORE none no never", NOTHING),
        ],
    ),
];

const SORTED_SETS: &[Case] = &[
    (
        "zadd",
        &[
            ("ZADD z 9 a 8 new", ITSELF),
            ("ZADD z 9 a", NOTHING),
            ("ZADD z XX 1 none", NOTHING),
            ("ZADD z INCR 0.1 b", ITSELF),
            ("ZADD z GT 0 a", NOTHING),
        ],
    ),
    (
        "zincrby",
        &[("ZINCRBY z 0.1 a", ITSELF), ("ZINCRBY new 1 a", ITSELF)],
    ),
    ("zrem", &[("ZREM z a none", ITSELF), ("ZREM z a", NOTHING)]),
    (
        "zremrangebyrank",
        &[
            ("ZREMRANGEBYRANK z 0 1", ITSELF),
            ("ZREMRANGEBYRANK z 10 11", NOTHING),
        ],
    ),
    (
        "zremrangebyscore",
        &[
            ("ZREMRANGEBYSCORE z 1 (2", ITSELF),
            ("ZREMRANGEBYSCORE z 10 11", NOTHING),
        ],
    ),
    (
        "zremrangebylex",
        &[
            ("ZREMRANGEBYLEX z [a [b", ITSELF),
            ("ZREMRANGEBYLEX z [x [y", NOTHING),
        ],
    ),
    (
        "zrangestore",
        &[
            ("ZRANGESTORE to z 0 1", ITSELF),
            ("ZRANGESTORE none no 0 1", NOTHING),
        ],
    ),
    (
        "zunionstore",
        &[
            ("ZUNIONSTORE to 2 z st WEIGHTS 2 0.1", ITSELF),
            ("ZUNIONSTORE none 1 no", NOTHING),
        ],
    ),
    (
        "zinterstore",
        &[
            ("ZINTERSTORE to 2 z st AGGREGATE MAX", ITSELF),
            ("ZINTERSTORE none 1 no", NOTHING),
        ],
    ),
    (
        "zdiffstore",
        &[
            ("ZDIFFSTORE to 2 z single", ITSELF),
            ("ZDIFFSTORE none 1 no", NOTHING),
        ],
    ),
    (
        "zpopmin",
        &[
            ("ZPOPMIN z", ITSELF),
            ("ZPOPMIN z 100", ITSELF),
            ("ZPOPMIN z", NOTHING),
        ],
    ),
    (
        "zpopmax",
        &[("ZPOPMAX z 2", ITSELF), ("ZPOPMAX z 0", NOTHING)],
    ),
    (
        "zmpop",
        &[
            ("ZMPOP 2 no z MAX COUNT 2", "ZPOPMAX z 2"),
            ("ZMPOP 1 no MIN", NOTHING),
        ],
    ),
    (
        "bzpopmin",
        &[("BZPOPMIN no z 0", "ZPOPMIN z"), ("BZPOPMIN no 0", NOTHING)],
    ),
    (
        "bzpopmax",
        &[("BZPOPMAX no z 0", "ZPOPMAX z"), ("BZPOPMAX no 0", NOTHING)],
    ),
    (
        "bzmpop",
        &[
            ("BZMPOP 0 1 z MIN COUNT 100", "ZPOPMIN z 4"),
            ("BZMPOP 0 1 z MIN", NOTHING),
        ],
    ),
    (
        "geoadd",
        &[
            ("GEOADD geo 2.35 48.85 Paris", ITSELF),
            ("GEOADD geo XX 2.35 48.85 Nowhere", NOTHING),
        ],
    ),
    (
        "geosearchstore",
        &[
            (
                "GEOSEARCHSTORE to geo FROMLONLAT 15 37 BYRADIUS 200 km STOREDIST",
                ITSELF,
            ),
            (
                "GEOSEARCHSTORE none no FROMLONLAT 15 37 BYRADIUS 200 km",
                NOTHING,
            ),
        ],
    ),
    (
        "georadius",
        &[
            ("GEORADIUS geo 15 37 200 km STORE to", ITSELF),
            ("GEORADIUS geo 15 37 200 km", NOTHING),
        ],
    ),
    (
        "georadiusbymember",
        &[
            ("GEORADIUSBYMEMBER geo Palermo 200 km STOREDIST to", ITSELF),
            ("GEORADIUSBYMEMBER geo Palermo 200 km", NOTHING),
        ],
    ),
];

const HASHES: &[Case] = &[
    (
        "hset",
        &[
            ("HSET h a 5 d 6", ITSELF),
            ("HSET hx a 5", ITSELF),
            ("HSET h a", NOTHING),
        ],
    ),
    ("hmset", &[("HMSET h a 5 d 6", ITSELF)]),
    (
        "hsetnx",
        &[("HSETNX h d 1", ITSELF), ("HSETNX h d 2", NOTHING)],
    ),
    ("hdel", &[("HDEL h a none", ITSELF), ("HDEL h a", NOTHING)]),
    (
        "hincrby",
        &[("HINCRBY h a 5", ITSELF), ("HINCRBY h a x", NOTHING)],
    ),
    (
        "hincrbyfloat",
        &[
            ("HINCRBYFLOAT h a 0.1", "HSET h a 1.1"),
            ("HINCRBYFLOAT h new 2", "HSET h new 2"),
            ("HINCRBYFLOAT h a x", NOTHING),
        ],
    ),
    (
        "hincrbyfloat",
        &[
            (
                "HEXPIREAT hx 9999999999 FIELDS 1 a",
                "HPEXPIREAT hx 9999999999000 FIELDS 1 a",
            ),
            (
                "HINCRBYFLOAT hx a 1.5",
                "HSET hx a 2.5 | HPEXPIREAT hx 9999999999000 FIELDS 1 a",
            ),
        ],
    ),
    (
        "hexpire",
        &[
            (
                "HEXPIRE hx 100 FIELDS 3 a none c",
                "HPEXPIREAT hx {+100000} FIELDS 2 a c",
            ),
            ("HEXPIRE hx 50 GT FIELDS 2 a c", NOTHING),
            (
                "HEXPIRE hx 200 GT FIELDS 1 a",
                "HPEXPIREAT hx {+200000} GT FIELDS 1 a",
            ),
            ("HEXPIRE hx 0 FIELDS 1 a", "HDEL hx a"),
            ("HEXPIRE no 100 FIELDS 1 a", NOTHING),
        ],
    ),
    (
        "hpexpire",
        &[(
            "HPEXPIRE hx 100 FIELDS 1 a",
            "HPEXPIREAT hx {+100} FIELDS 1 a",
        )],
    ),
    (
        "hexpireat",
        &[
            ("HEXPIREAT hx 1 FIELDS 3 a b c", "HDEL hx a b c"),
            ("HEXPIREAT hx 1 FIELDS 1 a", NOTHING),
        ],
    ),
    (
        "hpexpireat",
        &[(
            "HPEXPIREAT hx 9999999999000 XX FIELDS 2 a c",
            "HPEXPIREAT hx 9999999999000 XX FIELDS 1 a",
        )],
    ),
    (
        "hpersist",
        &[
            ("HPERSIST hx FIELDS 2 a c", ITSELF),
            ("HPERSIST hx FIELDS 2 a c", NOTHING),
        ],
    ),
    (
        "hgetdel",
        &[
            ("HGETDEL h FIELDS 2 a none", "HDEL h a"),
            ("HGETDEL h FIELDS 1 a", NOTHING),
            ("HGETDEL h FIELDS 2 b c", "HDEL h b c"),
        ],
    ),
    (
        "hgetex",
        &[
            ("HGETEX hx FIELDS 1 a", NOTHING),
            (
                "HGETEX hx EX 100 FIELDS 2 a none",
                "HPEXPIREAT hx {+100000} FIELDS 1 a",
            ),
            (
                "HGETEX hx PERSIST FIELDS 3 a b c",
                "HPERSIST hx FIELDS 2 a b",
            ),
            ("HGETEX hx EXAT 1 FIELDS 1 a", "HDEL hx a"),
        ],
    ),
    (
        "hsetex",
        &[
            ("HSETEX hx FIELDS 1 a 5", "HSET hx a 5"),
            ("HSETEX hx FNX FIELDS 1 a 5", NOTHING),
            (
                "HSETEX hx PX 5000 FIELDS 2 a 5 n 6",
                "HSET hx a 5 n 6 | HPEXPIREAT hx {+5000} FIELDS 2 a n",
            ),
            (
                "HSETEX hx KEEPTTL FIELDS 2 a 7 c 8",
                "HSET hx a 7 c 8 | HPEXPIREAT hx {+5000} FIELDS 1 a",
            ),
            ("HSETEX hx EXAT 1 FIELDS 1 a 5", "HSET hx a 5 | HDEL hx a"),
        ],
    ),
];

const STREAMS: &[Case] = &[
    (
        "xadd",
        &[
            ("XADD x * f w", "XADD x {+0}-0 f w"),
            ("XADD x {+0}-* f w", "XADD x {+0}-1 f w"),
            ("XADD x MAXLEN 3 9999999999999-1 f w", ITSELF),
            (
                "XADD x NOMKSTREAM MAXLEN ~ 1 LIMIT 1 * f w",
                "XADD x NOMKSTREAM MAXLEN = 4 9999999999999-2 f w",
            ),
            (
                "XADD x MINID ~ 3 * f w",
                "XADD x MAXLEN = 5 9999999999999-3 f w",
            ),
            (
                "XADD x MAXLEN = 2 * f w",
                "XADD x MAXLEN = 2 9999999999999-4 f w",
            ),
            ("XADD no NOMKSTREAM * f w", NOTHING),
            ("XADD x 1-1 f w", NOTHING),
        ],
    ),
    (
        "xtrim",
        &[
            ("XTRIM x MAXLEN ~ 3", NOTHING),
            ("XTRIM x MAXLEN 3", ITSELF),
            ("XTRIM x MINID 4", ITSELF),
            ("XTRIM x MAXLEN ~ 0", "XTRIM x MAXLEN = 0"),
            ("XTRIM x MAXLEN 3", NOTHING),
        ],
    ),
    (
        "xdel",
        &[("XDEL x 1-1 9-9", ITSELF), ("XDEL x 1-1", NOTHING)],
    ),
    (
        "xdelex",
        &[
            ("XDELEX x IDS 2 4-1 9-9", "XDEL x 4-1"),
            ("XDELEX x DELREF IDS 1 1-1", "XACK x g 1-1 | XDEL x 1-1"),
            ("XDELEX x ACKED IDS 1 2-1", NOTHING),
        ],
    ),
    (
        "xackdel",
        &[
            ("XACKDEL x g IDS 2 1-1 9-9", "XACK x g 1-1 | XDEL x 1-1"),
            ("XACKDEL x g IDS 1 3-1", NOTHING),
        ],
    ),
    (
        "xack",
        &[("XACK x g 1-1 9-9", ITSELF), ("XACK x g 1-1", NOTHING)],
    ),
    (
        "xsetid",
        &[
            ("XSETID x 100-0 ENTRIESADDED 50 MAXDELETEDID 5-0", ITSELF),
            ("XSETID x 1-1", NOTHING),
        ],
    ),
    (
        "xgroup|create",
        &[
            ("XGROUP CREATE x new $", ITSELF),
            ("XGROUP CREATE no g $ MKSTREAM", ITSELF),
            ("XGROUP CREATE x g 0", NOTHING),
        ],
    ),
    (
        "xgroup|setid",
        &[
            ("XGROUP SETID x g 3-1 ENTRIESREAD 3", ITSELF),
            ("XGROUP SETID x no 0", NOTHING),
        ],
    ),
    (
        "xgroup|destroy",
        &[
            ("XGROUP DESTROY x g", ITSELF),
            ("XGROUP DESTROY x g", NOTHING),
        ],
    ),
    (
        "xgroup|createconsumer",
        &[
            ("XGROUP CREATECONSUMER x g new", ITSELF),
            ("XGROUP CREATECONSUMER x g new", NOTHING),
        ],
    ),
    (
        "xgroup|delconsumer",
        &[
            ("XGROUP DELCONSUMER x g mine", ITSELF),
            ("XGROUP DELCONSUMER x g mine", NOTHING),
        ],
    ),
    (
        "xreadgroup",
        &[
            (
                "XREADGROUP GROUP g new COUNT 1 STREAMS x >",
                "XCLAIM x g new 0 3-1 TIME {+0} RETRYCOUNT 1 FORCE JUSTID LASTID 3-1 | XGROUP SETID x g 3-1 ENTRIESREAD 3",
            ),
            (
                "XREADGROUP GROUP g eager NOACK STREAMS x >",
                "XGROUP CREATECONSUMER x g eager | XGROUP SETID x g 4-1 ENTRIESREAD 4",
            ),
            ("XREADGROUP GROUP g eager STREAMS x >", NOTHING),
            (
                "XREADGROUP GROUP g late STREAMS x >",
                "XGROUP CREATECONSUMER x g late",
            ),
            (
                "XREADGROUP GROUP g old STREAMS x 0",
                "XGROUP CREATECONSUMER x g old",
            ),
            ("XREADGROUP GROUP no old STREAMS x 0", NOTHING),
        ],
    ),
    (
        "xclaim",
        &[
            ("XCLAIM x g new 100000 1-1", "XGROUP CREATECONSUMER x g new"),
            (
                "XCLAIM x g new 0 1-1",
                "XCLAIM x g new 0 1-1 TIME {+0} RETRYCOUNT 2 FORCE JUSTID LASTID 2-1",
            ),
            ("XCLAIM x g new 0 9-9", NOTHING),
            (
                "XCLAIM x g new 0 9-9 LASTID 3-1",
                "XGROUP SETID x g 3-1 ENTRIESREAD 2",
            ),
            ("XDEL x 1-1", ITSELF),
            ("XCLAIM x g mine 0 1-1", "XACK x g 1-1"),
        ],
    ),
    (
        "xautoclaim",
        &[
            (
                "XAUTOCLAIM x g new 0 0 COUNT 1 JUSTID",
                "XCLAIM x g new 0 1-1 TIME {+0} RETRYCOUNT 1 FORCE JUSTID LASTID 2-1",
            ),
            ("XAUTOCLAIM x g new 100000 0", NOTHING),
            ("XDEL x 2-1", ITSELF),
            (
                "XAUTOCLAIM x g mine 0 0",
                "XACK x g 2-1 | XCLAIM x g mine 0 1-1 TIME {+0} RETRYCOUNT 2 FORCE JUSTID LASTID 2-1",
            ),
        ],
    ),
];

const OTHERS: &[Case] = &[
    (
        "bf.reserve",
        &[
            ("BF.RESERVE bf2 0.01 100", ITSELF),
            ("BF.RESERVE bf2 0.01 100", NOTHING),
        ],
    ),
    (
        "bf.add",
        &[("BF.ADD bf b", ITSELF), ("BF.ADD bf b", NOTHING)],
    ),
    (
        "bf.madd",
        &[("BF.MADD bf b c", ITSELF), ("BF.MADD bf b c", NOTHING)],
    ),
    (
        "bf.insert",
        &[
            ("BF.INSERT bf2 CAPACITY 50 ITEMS a b", ITSELF),
            ("BF.INSERT bf2 NOCREATE ITEMS a", NOTHING),
        ],
    ),
    ("bf.loadchunk", &[("BF.LOADCHUNK bf3 1 garbage", NOTHING)]),
    (
        "cf.reserve",
        &[
            ("CF.RESERVE cf2 100", ITSELF),
            ("CF.RESERVE cf2 100", NOTHING),
        ],
    ),
    ("cf.add", &[("CF.ADD cf b", ITSELF)]),
    (
        "cf.addnx",
        &[("CF.ADDNX cf b", ITSELF), ("CF.ADDNX cf b", NOTHING)],
    ),
    ("cf.insert", &[("CF.INSERT cf ITEMS b c", ITSELF)]),
    (
        "cf.insertnx",
        &[
            ("CF.INSERTNX cf ITEMS b c", ITSELF),
            ("CF.INSERTNX cf ITEMS b", NOTHING),
        ],
    ),
    (
        "cf.del",
        &[("CF.DEL cf a", ITSELF), ("CF.DEL cf a", NOTHING)],
    ),
    ("cf.loadchunk", &[("CF.LOADCHUNK cf3 1 garbage", NOTHING)]),
    (
        "cms.initbydim",
        &[
            ("CMS.INITBYDIM cms2 10 3", ITSELF),
            ("CMS.INITBYDIM cms2 10 3", NOTHING),
        ],
    ),
    (
        "cms.initbyprob",
        &[("CMS.INITBYPROB cms2 0.01 0.01", ITSELF)],
    ),
    (
        "cms.incrby",
        &[
            ("CMS.INCRBY cms b 5 c 6", ITSELF),
            ("CMS.INCRBY no b 5", NOTHING),
        ],
    ),
    (
        "cms.merge",
        &[
            ("CMS.INITBYDIM cms2 100 4", ITSELF),
            ("CMS.MERGE cms2 1 cms WEIGHTS 3", ITSELF),
        ],
    ),
    ("topk.reserve", &[("TOPK.RESERVE tk2 3", ITSELF)]),
    ("topk.add", &[("TOPK.ADD tk x y z a x", ITSELF)]),
    ("topk.incrby", &[("TOPK.INCRBY tk x 50 y 3", ITSELF)]),
    (
        "tdigest.create",
        &[
            ("TDIGEST.CREATE td2", ITSELF),
            ("TDIGEST.CREATE td2", NOTHING),
        ],
    ),
    ("tdigest.reset", &[("TDIGEST.RESET td", ITSELF)]),
    ("tdigest.add", &[("TDIGEST.ADD td 4 5.5", ITSELF)]),
    ("tdigest.merge", &[("TDIGEST.MERGE td2 1 td", ITSELF)]),
];
