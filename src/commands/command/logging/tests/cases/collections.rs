//! Lists, sets, sorted sets, hashes, and the probabilistic types.

use super::{Case, ITSELF, NOTHING, SOMETHING};

pub(super) const LISTS: &[Case] = &[
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
        "lmovem",
        &[
            (
                "LMOVEM newer:list l LEFT RIGHT COUNT 2 OBO",
                "LPOP newer:list 2 | RPUSH l a b",
            ),
            ("LMOVEM newer:list l RIGHT LEFT EXACTLY 3 BULK", NOTHING),
            (
                "LMOVEM l newer:list LEFT LEFT COUNT 2 BULK",
                "LPOP l 2 | LPUSH newer:list b a",
            ),
            (
                "LMOVEM newer:list newer:list LEFT LEFT COUNT 2 OBO",
                "LSET newer:list 1 a | LSET newer:list 0 b",
            ),
            (
                "LMOVEM newer:list newer:list LEFT RIGHT COUNT 2 BULK",
                "LMOVE newer:list newer:list LEFT RIGHT | LMOVE newer:list newer:list LEFT RIGHT",
            ),
            (
                "LMOVEM newer:list newer:list LEFT LEFT COUNT 2 BULK",
                NOTHING,
            ),
        ],
    ),
    (
        "blmovem",
        &[(
            "BLMOVEM newer:list newer:other LEFT LEFT 0 EXACTLY 3 BULK",
            "LPOP newer:list 3 | LPUSH newer:other c b a",
        )],
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

pub(super) const SETS: &[Case] = &[
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
        "sexpire",
        &[
            (
                "SEXPIRE newer:set 100 MEMBERS 3 a none b",
                "SPEXPIREAT newer:set {+100000} MEMBERS 2 a b",
            ),
            ("SEXPIRE newer:set 10 GT MEMBERS 1 a", NOTHING),
            ("SEXPIRE newer:set 0 MEMBERS 2 a none", "SREM newer:set a"),
        ],
    ),
    (
        "spexpire",
        &[(
            "SPEXPIRE newer:set 100 NX MEMBERS 1 a",
            "SPEXPIREAT newer:set {+100} MEMBERS 1 a",
        )],
    ),
    (
        "sexpireat",
        &[
            (
                "SEXPIREAT newer:set 1 MEMBERS 3 a b c",
                "SREM newer:set a b c",
            ),
            ("SEXPIREAT newer:set 1 MEMBERS 1 a", NOTHING),
        ],
    ),
    (
        "spexpireat",
        &[(
            "SPEXPIREAT newer:set 9999999999000 MEMBERS 2 a none",
            "SPEXPIREAT newer:set 9999999999000 MEMBERS 1 a",
        )],
    ),
    (
        "spersist",
        &[
            ("SPERSIST newer:set MEMBERS 1 a", NOTHING),
            (
                "SEXPIRE newer:set 100 MEMBERS 1 a",
                "SPEXPIREAT newer:set {+100000} MEMBERS 1 a",
            ),
            ("SPERSIST newer:set MEMBERS 2 a c", ITSELF),
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

pub(super) const SORTED_SETS: &[Case] = &[
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
            (
                "ZUNIONSTORE newer:to 2 newer:zset newer:zset WEIGHTS 0.5 2 AGGREGATE COUNT",
                SOMETHING,
            ),
            ("ZUNIONSTORE newer:to 1 no AGGREGATE COUNT", "DEL newer:to"),
            ("ZUNIONSTORE newer:to 1 no AGGREGATE COUNT", NOTHING),
        ],
    ),
    (
        "zinterstore",
        &[
            ("ZINTERSTORE to 2 z st AGGREGATE MAX", ITSELF),
            ("ZINTERSTORE none 1 no", NOTHING),
            (
                "ZINTERSTORE newer:zset 1 newer:zset WEIGHTS 1.5 AGGREGATE COUNT",
                "DEL newer:zset | ZADD newer:zset 1.5 a 1.5 b",
            ),
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
        "zmove",
        &[
            (
                "ZMOVE newer:zset new MAX",
                "ZREM newer:zset b | ZADD new 2 b",
            ),
            (
                "ZMOVE new newer:zset BYSCORE (1 inf COUNT 5",
                "ZREM new b | ZADD newer:zset 2 b",
            ),
            ("ZMOVE newer:zset new BYSCORE 3 4", NOTHING),
            ("ZMOVE newer:zset newer:zset MIN", NOTHING),
            (
                "ZMOVE newer:zset z MIN COUNT 3",
                "ZREM newer:zset a b | ZADD z 1 a 2 b",
            ),
        ],
    ),
    (
        "bzmove",
        &[
            (
                "BZMOVE newer:zset new MIN 0",
                "ZREM newer:zset a | ZADD new 1 a",
            ),
            ("BZMOVE newer:none newer:zset MIN 0", NOTHING),
        ],
    ),
    (
        "zmovemember",
        &[
            (
                "ZMOVEMEMBER newer:zset new MEMBERS 3 b none b",
                "ZREM newer:zset b | ZADD new 2 b",
            ),
            ("ZMOVEMEMBER newer:zset new XX MEMBERS 1 a", NOTHING),
        ],
    ),
    (
        "zpopdue",
        &[
            ("ZPOPDUE z COUNT 2", "ZPOPMIN z 2"),
            ("ZPOPDUE z", "ZPOPMIN z 1"),
            ("ZPOPDUE no", NOTHING),
        ],
    ),
    (
        "bzpopdue",
        &[
            ("BZPOPDUE no z 0", "ZPOPMIN z 1"),
            ("BZPOPDUE no z 0 COUNT 100", "ZPOPMIN z 3"),
            ("BZPOPDUE no 0", NOTHING),
        ],
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
            (
                "GEOSEARCHSTORE newer:zset no BYPOLYGON 3 1 1 2 2 3 1",
                "DEL newer:zset",
            ),
            (
                "GEOSEARCHSTORE newer:zset geo BYPOLYGON 4 12 37 16 37 16 39 12 39",
                SOMETHING,
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

pub(super) const HASHES: &[Case] = &[
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
        "himport|set",
        &[
            (
                "HIMPORT SET newer:hash newer:fields 1 2",
                "HSET newer:hash a 2 bb 1",
            ),
            (
                "HIMPORT SET newer:hash newer:fields x y",
                "DEL newer:hash | HSET newer:hash a y bb x",
            ),
            ("HIMPORT SET newer:hash newer:fields x", NOTHING),
            ("HIMPORT SET newer:list newer:fields x y", NOTHING),
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

pub(super) const OTHERS: &[Case] = &[
    (
        "function|load",
        &[
            ("FUNCTION LOAD REPLACE code", ITSELF),
            ("FUNCTION LOAD what code", NOTHING),
        ],
    ),
    ("function|delete", &[("FUNCTION DELETE none", NOTHING)]),
    (
        "function|flush",
        &[("FUNCTION FLUSH", ITSELF), ("FUNCTION FLUSH what", NOTHING)],
    ),
    (
        "function|restore",
        &[
            ("FUNCTION RESTORE payload FLUSH", ITSELF),
            ("FUNCTION RESTORE payload what", NOTHING),
        ],
    ),
    ("script|load", &[("SCRIPT LOAD return", NOTHING)]),
    ("publish", &[("PUBLISH channel message", ITSELF)]),
    ("spublish", &[("SPUBLISH channel message", ITSELF)]),
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
    (
        "bf.loadchunk",
        &[
            ("BF.LOADCHUNK bf3 1 @chunk:BF.SCANDUMP:bf", ITSELF),
            ("BF.LOADCHUNK bf4 1 garbage", NOTHING),
        ],
    ),
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
    (
        "cf.loadchunk",
        &[
            ("CF.LOADCHUNK cf3 1 @chunk:CF.SCANDUMP:cf", ITSELF),
            ("CF.LOADCHUNK cf4 1 garbage", NOTHING),
        ],
    ),
    (
        "cms.initbydim",
        &[
            ("CMS.INITBYDIM cms2 10 3 CELL_SIZE 2", ITSELF),
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
            ("CMS.INCRBY cms b -5", ITSELF),
            ("CMS.INCRBY cms b -1", NOTHING),
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
