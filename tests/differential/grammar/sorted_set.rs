//! Sorted sets, and positions in them. Scores are such that both servers print them alike: 7.0 prints
//! seventeen digits. Ranges of members use keys of their own, where all scores are equal: elsewhere they are
//! meaningless.

use super::Family;

pub(super) const SORTED_SETS: Family = (
    "sorted sets",
    &[
        (10, "ZADD {key} ({score} {member})*"),
        (
            6,
            "ZADD {key} {score} {member} {score} {member} {score} {member} ({score} {member})*",
        ),
        (8, "ZADD {key} [NX|XX] [GT|LT] [CH] ({score} {member})*"),
        (
            3,
            "ZADD {key} [NX|XX|{junk}] [GT|LT|NX] [CH] INCR {score} {member}",
        ),
        (6, "ZINCRBY {key} {score} {member}"),
        (6, "ZREM {key} {member}*"),
        (1, "ZCARD {key}"),
        (4, "(ZSCORE|ZRANK|ZREVRANK) {key} {member}"),
        (3, "ZMSCORE {key} {member}*"),
        (6, "ZRANGE {key} {index} {index} [REV] [WITHSCORES]"),
        (
            2,
            "ZRANGE {key} 0 -1 [WITHSCORES|{junk}] [LIMIT {index} {index}]",
        ),
        (
            6,
            "ZRANGE {key} {score_bound} {score_bound} BYSCORE [REV] [LIMIT {small} {index}] [WITHSCORES]",
        ),
        (3, "ZREVRANGE {key} {index} {index} [WITHSCORES]"),
        (
            5,
            "(ZRANGEBYSCORE|ZREVRANGEBYSCORE) {key} {score_bound} {score_bound} [WITHSCORES] [LIMIT {small} {index}]",
        ),
        (4, "ZCOUNT {key} {score_bound} {score_bound}"),
        (3, "ZREMRANGEBYSCORE {key} {score_bound} {score_bound}"),
        (3, "ZREMRANGEBYRANK {key} {index} {index}"),
        (6, "ZADD {lex_key} 0 {member} (0 {member})*"),
        (
            4,
            "(ZRANGEBYLEX|ZREVRANGEBYLEX) {lex_key} {lex_bound} {lex_bound} [LIMIT {small} {index}]",
        ),
        (
            3,
            "ZRANGE {lex_key} {lex_bound} {lex_bound} BYLEX [REV] [LIMIT {small} {index}] [WITHSCORES]",
        ),
        (
            3,
            "(ZLEXCOUNT|ZREMRANGEBYLEX) {lex_key} {lex_bound} {lex_bound}",
        ),
        (3, "ZRANGESTORE {key} {key} {index} {index} [REV]"),
        (
            3,
            "ZRANGESTORE {key} {key} {score_bound} {score_bound} BYSCORE [REV] [LIMIT {small} {index}]",
        ),
        (
            2,
            "ZRANGESTORE {key} {lex_key} {lex_bound} {lex_bound} BYLEX [LIMIT {small} {index}|{junk}]",
        ),
        (
            5,
            "(ZUNION|ZINTER) 2 {key} {key} [WEIGHTS {weight} {weight}] [AGGREGATE (SUM|MIN|MAX|{junk})] [WITHSCORES]",
        ),
        (
            3,
            "(ZUNION|ZINTER|ZDIFF) (1 {key}|3 {key} {key} {key}|{small} {key}) [WITHSCORES|{junk}]",
        ),
        (
            5,
            "(ZUNIONSTORE|ZINTERSTORE) {key} 2 {key} {key} [WEIGHTS {weight} {weight}] [AGGREGATE (SUM|MIN|MAX)]",
        ),
        (
            3,
            "(ZUNIONSTORE|ZINTERSTORE|ZDIFFSTORE) {key} (1 {key}|3 {key} {key} {key}|{small} {key})",
        ),
        (
            3,
            "ZINTERCARD (1 {key}|2 {key} {key}|{small} {key}) [LIMIT {small}|{junk}]",
        ),
        (4, "(ZPOPMIN|ZPOPMAX) {key} [{small}]"),
        (
            3,
            "ZMPOP (1 {key}|2 {key} {key}|{small} {key}) (MIN|MAX|{junk}) [COUNT {small}]",
        ),
        (2, "(BZPOPMIN|BZPOPMAX) {key}* 0.001"),
        (1, "BZMPOP 0.001 2 {key} {key} (MIN|MAX) [COUNT {small}]"),
        (
            2,
            "ZRANDMEMBER {key} [{small}|{index}|{junk}] [WITHSCORES|{junk}]",
        ),
        (3, "@ZSCAN {key} [MATCH {pattern}] [COUNT {small}]"),
        (
            1,
            "ZSCAN {key} (x|-|18446744073709551616) [COUNT {small}|{junk}]",
        ),
    ],
);

pub(super) const PLACES: Family = (
    "places",
    &[
        (8, "GEOADD {key} ({longitude} {latitude} {member})*"),
        (
            4,
            "GEOADD {key} [NX|XX] [CH] ({longitude} {latitude} {member})*",
        ),
        (
            4,
            "GEOADD {key} {longitude} {latitude} a {longitude} {latitude} b {longitude} {latitude} c",
        ),
        (3, "(GEOPOS|GEOHASH) {key} {member}*"),
        (3, "GEODIST {key} {member} {member} [m|km|FT|mi|{junk}]"),
        (
            8,
            "GEOSEARCH {key} FROMLONLAT {longitude} {latitude} BYRADIUS {radius} (km|mi|M|ft) \
             [ASC|DESC] [COUNT {small} [ANY]] [WITHDIST] [WITHCOORD] [WITHHASH]",
        ),
        (
            4,
            "GEOSEARCH {key} FROMLONLAT {longitude} {latitude} BYBOX {radius} {radius} (km|mi) \
             [ASC|DESC] [COUNT {small}] [WITHDIST]",
        ),
        (
            4,
            "GEOSEARCH {key} (FROMMEMBER {member}|FROMLONLAT {longitude} {latitude}) \
             (BYRADIUS {radius} km|BYBOX {radius} {radius} km|{junk}) ASC [COUNT {small}|{junk}]",
        ),
        (
            3,
            "GEOSEARCHSTORE {key} {key} FROMLONLAT {longitude} {latitude} BYRADIUS {radius} km [ASC|DESC] [COUNT {small}]",
        ),
        (
            3,
            "GEORADIUS {key} {longitude} {latitude} {radius} (km|mi|{junk}) [WITHDIST] [ASC|DESC] [STORE {key}]",
        ),
        (
            3,
            "GEORADIUSBYMEMBER {key} {member} {radius} (km|mi) [WITHDIST|WITHHASH] [ASC|DESC] [STORE {key}]",
        ),
        (
            2,
            "(GEORADIUSBYMEMBER_RO {key} {member}|GEORADIUS_RO {key} {longitude} {latitude}) {radius} km [ASC] [COUNT {small}]",
        ),
    ],
);
