//! Sets. Random members are not requested where that would leave the two servers with different sets.

use super::Family;

pub(super) const SETS: Family = (
    "sets",
    &[
        (10, "SADD {key} {member}*"),
        (
            4,
            "SADD {key} {member} {member} {member} {member} {member}*",
        ),
        (6, "SREM {key} {member}*"),
        (3, "SISMEMBER {key} {member}"),
        (3, "SMISMEMBER {key} {member}*"),
        (3, "SCARD {key}"),
        (4, "SMEMBERS {key}"),
        (5, "SMOVE {key} {key} {member}"),
        (2, "SPOP {key} (1000|0|-1|{junk})"),
        (2, "SRANDMEMBER {key} [{small}|{index}|{junk}]"),
        (5, "(SINTER|SUNION|SDIFF) {key}*"),
        (6, "(SINTERSTORE|SUNIONSTORE|SDIFFSTORE) {key} {key}*"),
        (
            4,
            "SINTERCARD (1 {key}|2 {key} {key}|3 {key} {key} {key}|{small} {key}) [LIMIT {small}|{junk}]",
        ),
        (3, "@SSCAN {key} [MATCH {pattern}] [COUNT {small}]"),
        (
            1,
            "SSCAN {key} (x|-|18446744073709551616) [COUNT {small}|{junk}]",
        ),
    ],
);
