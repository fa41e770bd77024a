//! SORT. What it may answer in any order (a set as it lies, equal weights, texts as the locale compares them) is
//! never stored, or else the two servers would go on with different data. Nor is what is sorted as numbers: Redis may
//! refuse it for what an earlier command left in `errno`.

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
