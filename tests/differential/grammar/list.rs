//! Lists, with limits so low that they change encodings all the time.

use super::Family;

pub(super) const LISTS: Family = (
    "lists",
    &[
        (8, "(LPUSH|RPUSH) {key} {value}*"),
        (4, "(LPUSH|RPUSH) {key} {value} {value} {value} {value}*"),
        (3, "(LPUSHX|RPUSHX) {key} {value}*"),
        (6, "(LPOP|RPOP) {key}"),
        (3, "(LPOP|RPOP) {key} {small}"),
        (3, "LLEN {key}"),
        (5, "LRANGE {key} {index} {index}"),
        (2, "LRANGE {key} 0 -1"),
        (4, "LINDEX {key} {index}"),
        (6, "LSET {key} {index} {value}"),
        (6, "LINSERT {key} (BEFORE|AFTER|{junk}) {value} {value}"),
        (5, "LREM {key} {small} {value}"),
        (2, "LREM {key} {index} {value}"),
        (3, "LTRIM {key} {index} {index}"),
        (
            5,
            "LPOS {key} {value} [RANK {index}] [COUNT {small}] [MAXLEN {small}]",
        ),
        (
            1,
            "LPOS {key} {value} [COUNT {small}|{junk} {small}] [RANK {junk}]",
        ),
        (6, "LMOVE {key} {key} (LEFT|RIGHT|{junk}) (LEFT|RIGHT)"),
        (3, "RPOPLPUSH {key} {key}"),
        (
            4,
            "LMPOP (1 {key}|2 {key} {key}|3 {key} {key} {key}|{small} {key}) (LEFT|RIGHT|{junk}) [COUNT {small}]",
        ),
        (
            1,
            "LMPOP 1 {key} (LEFT|RIGHT) COUNT {small} [{junk} {small}]",
        ),
        (3, "(BLPOP|BRPOP) {key}* 0.001"),
        (1, "(BLPOP|BRPOP) {key}* (-1|x|-0.5)"),
        (
            2,
            "BLMOVE {key} {key} (LEFT|RIGHT) (LEFT|RIGHT|{junk}) 0.001",
        ),
        (1, "BRPOPLPUSH {key} {key} (0.001|-1|x)"),
        (
            2,
            "BLMPOP (0.001|-1|x) (1 {key}|2 {key} {key}|{small} {key}) (LEFT|RIGHT) [COUNT {small}]",
        ),
        (1, "CONFIG SET list-max-listpack-size (-2|-1|1|2|3|10)"),
        (1, "CONFIG SET list-compress-depth (0|1|2)"),
    ],
);
