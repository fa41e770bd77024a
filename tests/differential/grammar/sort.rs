//! SORT. Results with an unspecified order (a set in its own order, equal weights, texts in the locale's
//! order) are never stored, as the two servers would go on with different data. Results that are sorted as
//! numbers are not stored either: Redis may refuse them because of what an earlier command left in `errno`.

use super::Family;

pub(super) const SORTS: Family = (
    "sort",
    &[
        (
            6,
            "(SORT|SORT_RO) {key} [BY {sort_by}] [LIMIT {index} {index}] [GET {derived} [GET {derived}]] [ASC|DESC]",
        ),
        (
            4,
            "SORT {key} ALPHA [LIMIT {index} {small}] [GET {derived} [GET {derived}]] [DESC] STORE {key}",
        ),
        (
            3,
            "(SORT|SORT_RO) {key} ALPHA [BY {sort_by}] [LIMIT {index} {index}] [GET {derived}] [DESC]",
        ),
        (
            3,
            "(SORT|SORT_RO) {key} BY nosort [DESC] [LIMIT {index} {index}]",
        ),
        (
            3,
            "SORT {key} BY nosort [DESC] [LIMIT {index} {small}] STORE {key}",
        ),
        (
            1,
            "(SORT|SORT_RO) {key} {junk} [STORE {key}] [LIMIT {junk} {small}]",
        ),
        (
            1,
            "COMMAND GETKEYS SORT {key} [BY {sort_by}] [STORE {key}] [GET STORE]",
        ),
        // Numbers to sort, and to sort by.
        (4, "RPUSH {key} {member}*"),
        (2, "SADD {key} {index}*"),
        (2, "MSET ({key} {index})*"),
    ],
);
