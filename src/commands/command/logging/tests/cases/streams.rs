//! Cases of streams.

use super::{Case, ITSELF, NOTHING};

pub(super) const STREAMS: &[Case] = &[
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
            (
                "XADD newer:stream IDMP p one * f w",
                "XADD newer:stream {+0}-0 f w | XIDMPRECORD newer:stream p one {+0}-0",
            ),
            ("XADD newer:stream IDMP p one * f other", NOTHING),
            (
                "XADD newer:stream IDMP p two MAXLEN 0 * f w",
                "XADD newer:stream {+0}-1 f w | XIDMPRECORD newer:stream p two {+0}-1 | XTRIM newer:stream MAXLEN = 0",
            ),
            ("XADD newer:stream IDMP p two 5-5 f w", NOTHING),
        ],
    ),
    (
        "xcfgset",
        &[
            (
                "XCFGSET newer:stream IDMP-DURATION 100 IDMP-MAXSIZE 100",
                NOTHING,
            ),
            ("XCFGSET newer:stream IDMP-DURATION 9", ITSELF),
            ("XCFGSET newer:stream IDMP-DURATION 9", NOTHING),
            ("XCFGSET newer:stream IDMP-MAXSIZE 0", NOTHING),
        ],
    ),
    (
        "xidmprecord",
        &[
            ("XIDMPRECORD newer:stream p i 1-1", ITSELF),
            ("XIDMPRECORD newer:stream p i 9-9", NOTHING),
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
        "xnack",
        &[
            (
                "XNACK newer:stream g SILENT IDS 2 1-1 9-9 FORCE",
                "XNACK newer:stream g FAIL IDS 1 1-1 RETRYCOUNT 0 FORCE",
            ),
            ("XNACK newer:stream g FATAL IDS 1 9-9", NOTHING),
            (
                "XNACK newer:stream g FATAL IDS 1 1-1",
                "XNACK newer:stream g FAIL IDS 1 1-1 RETRYCOUNT 9223372036854775807 FORCE",
            ),
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
            (
                "XREADGROUP GROUP g late CLAIM 0 COUNT 1 NOACK STREAMS x >",
                "XCLAIM x g late 0 1-1 TIME {+0} RETRYCOUNT 2 FORCE JUSTID LASTID 4-1 | XGROUP SETID x g 4-1 ENTRIESREAD 4",
            ),
            ("XREADGROUP GROUP g late CLAIM 100000 STREAMS x >", NOTHING),
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
