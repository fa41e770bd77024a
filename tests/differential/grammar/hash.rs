//! Hashes, without the features of later versions: fields that expire.

use super::Family;

pub(super) const HASHES: Family = (
    "hashes",
    &[
        (10, "HSET {key} ({hash_field} {value})*"),
        (
            4,
            "HSET {key} {hash_field} {value} {hash_field} {value} {hash_field} {value} ({hash_field} {value})*",
        ),
        (1, "HSET {key} {hash_field}*"),
        (3, "HMSET {key} ({hash_field} {value})*"),
        (4, "HSETNX {key} {hash_field} {value}"),
        (6, "HDEL {key} {hash_field}*"),
        (5, "HGET {key} {hash_field}"),
        (4, "HMGET {key} {hash_field}*"),
        (3, "(HEXISTS|HSTRLEN) {key} {hash_field}"),
        (2, "HLEN {key}"),
        (5, "(HGETALL|HKEYS|HVALS) {key}"),
        (8, "HINCRBY {key} {hash_field} {integer}"),
        (8, "HINCRBYFLOAT {key} {hash_field} {float}"),
        (
            4,
            "HRANDFIELD {key} [{small}|{index}|{junk}] [WITHVALUES|{junk}]",
        ),
        (3, "@HSCAN {key} [MATCH {pattern}] [COUNT {small}]"),
        (
            2,
            "HSCAN {key} (0|x|-|18446744073709551616) [COUNT {small}|{junk}|MATCH {pattern}]",
        ),
    ],
);
