//! HyperLogLogs. Several elements at once go only to keys that no other command writes to: when an element
//! meets a sketch that another command has corrupted, Redis has already added the elements before it, and
//! this server has not.

use super::Family;

pub(super) const HYPERLOGLOGS: Family = (
    "hyperloglogs",
    &[
        (
            10,
            "PFADD (h1|h2|h3) ({integer} {integer} {integer} {integer} {integer} {integer} {integer} {integer})*",
        ),
        (3, "PFADD (h1|h2|h3) {value}*"),
        (5, "PFADD {key} {integer}"),
        (2, "PFADD {key}"),
        (5, "PFCOUNT (h1|h2|h3|{key})*"),
        (3, "PFCOUNT (h1|h2|h3|{key})"),
        (3, "PFMERGE (h1|h2|h3|{key}) (h1|h2|h3|{key})*"),
        (2, "PFMERGE (h1|h2|h3|{key})"),
        (3, "PFDEBUG (ENCODING|DECODE) (h1|h2|h3|{key})"),
        (1, "PFDEBUG (GETREG|TODENSE|{junk}) (h1|h2|h3|{key})"),
        (3, "GETRANGE (h1|h2|h3) 0 20000"),
        (2, "STRLEN (h1|h2|h3)"),
        (1, "COPY (h1|h2|h3) {key}"),
        (1, "SETRANGE {key} (0|4|8|15) (H|x|0)"),
        (1, "DEL (h1|h2|h3)"),
    ],
);
