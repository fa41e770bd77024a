//! Commands of JSON documents, which other servers with such documents execute with the same effect.

use super::{Case, ITSELF, NOTHING};

pub(super) const DOCUMENTS: &[Case] = &[
    (
        "json.set",
        &[
            ("JSON.SET js2 $ [1]", ITSELF),
            ("JSON.SET js $.a 2", ITSELF),
            ("JSON.SET js $.new 2", ITSELF),
            ("JSON.SET js $.a 2 NX", NOTHING),
            ("JSON.SET js3 $ 2 XX", NOTHING),
        ],
    ),
    ("json.mset", &[("JSON.MSET js $.a 7 js2 $ [2]", ITSELF)]),
    (
        "json.merge",
        &[("JSON.MERGE js $ '{\"a\":null,\"z\":{\"y\":1}}'", ITSELF)],
    ),
    (
        "json.del",
        &[
            ("JSON.DEL js $..a", ITSELF),
            ("JSON.DEL js $.none", NOTHING),
            ("JSON.DEL js", ITSELF),
            ("JSON.DEL js2", NOTHING),
        ],
    ),
    ("json.forget", &[("JSON.FORGET js $.l[0]", ITSELF)]),
    (
        "json.clear",
        &[
            ("JSON.CLEAR js $.*", ITSELF),
            ("JSON.CLEAR js $.t", NOTHING),
        ],
    ),
    (
        "json.toggle",
        &[
            ("JSON.TOGGLE js $.b", ITSELF),
            ("JSON.TOGGLE js $.a", NOTHING),
        ],
    ),
    (
        "json.numincrby",
        &[
            ("JSON.NUMINCRBY js $..a 2", ITSELF),
            ("JSON.NUMINCRBY js .f 0.1", ITSELF),
            ("JSON.NUMINCRBY js $.t 2", NOTHING),
        ],
    ),
    ("json.nummultby", &[("JSON.NUMMULTBY js $.f 0.3", ITSELF)]),
    ("json.numpowby", &[("JSON.NUMPOWBY js $..a 3", ITSELF)]),
    (
        "json.strappend",
        &[
            ("JSON.STRAPPEND js $.t '\"yz\"'", ITSELF),
            ("JSON.STRAPPEND js $.a '\"yz\"'", NOTHING),
        ],
    ),
    (
        "json.arrappend",
        &[
            ("JSON.ARRAPPEND js $.l 4 [5]", ITSELF),
            ("JSON.ARRAPPEND js $.a 4", NOTHING),
        ],
    ),
    ("json.arrinsert", &[("JSON.ARRINSERT js $.l 1 4 5", ITSELF)]),
    (
        "json.arrpop",
        &[
            ("JSON.ARRPOP js $.l 0", ITSELF),
            ("JSON.ARRPOP js $.a", NOTHING),
        ],
    ),
    ("json.arrtrim", &[("JSON.ARRTRIM js $.l 1 1", ITSELF)]),
];
