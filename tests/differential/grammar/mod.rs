//! The commands of the differential test: one row for each form of a command, in a small notation, by family.
//! A new data type is a new family of rows, and where needed a new kind of word in `Pools::draw`.
//!
//! ```text
//! WORD              itself
//! {kind}            a random word from a pool
//! {kind}*           one to four of them; ({a} {b})* repeats a group
//! [x y]             optional
//! (a|b c|d)  [a|b]  one of these
//! ```
//!
//! Times are either deep in the past or far in the future: the two servers do not run in step, so nothing may
//! expire while they are compared.

mod hash;
mod hyperloglog;
mod list;
mod script;
mod set;
mod sort;
mod sorted_set;
pub(crate) mod streams;

use crate::support::Draw;

/// The timeout of requests that wait: a wrong word in its place might make them wait for ever.
const WAITED_S: &[u8] = b"0.001";

/// A family: its name and its rows, each with a weight.
pub(crate) type Family = (&'static str, &'static [(u32, &'static str)]);

pub(crate) const FAMILIES: &[Family] = &[
    hyperloglog::HYPERLOGLOGS,
    list::LISTS,
    hash::HASHES,
    set::SETS,
    sort::SORTS,
    sorted_set::SORTED_SETS,
    sorted_set::PLACES,
    script::SCRIPTS,
    (
        "strings",
        &[
            (8, "SET {key} {value}"),
            (
                8,
                "SET {key} {value} [NX|XX] [GET] [EX {seconds}|PX {millis}|EXAT {future}|PXAT {future_ms}|KEEPTTL]",
            ),
            (
                3,
                "SET {key} {value} [EX {seconds}|KEEPTTL|GET] [GET|NX|PX {millis}|KEEPTTL] [XX|NX|{junk}]",
            ),
            (8, "GET {key}"),
            (2, "GETSET {key} {value}"),
            (2, "GETDEL {key}"),
            (
                3,
                "GETEX {key} [EX {seconds}|PX {millis}|EXAT {at}|PXAT {at_ms}|PERSIST|{junk}]",
            ),
            (2, "GETRANGE {key} {index} {index}"),
            (1, "SUBSTR {key} {index} {index}"),
            (3, "SETRANGE {key} {offset} {value}"),
            (2, "SETNX {key} {value}"),
            (2, "SETEX {key} {seconds} {value}"),
            (2, "PSETEX {key} {millis} {value}"),
            (4, "APPEND {key} {value}"),
            (2, "STRLEN {key}"),
            (4, "INCR {key}"),
            (2, "DECR {key}"),
            (4, "INCRBY {key} {integer}"),
            (3, "DECRBY {key} {integer}"),
            (4, "INCRBYFLOAT {key} {float}"),
            (4, "MGET {key}*"),
            (4, "MSET ({key} {value})*"),
            (2, "MSETNX ({key} {value})*"),
            (
                2,
                "LCS {key} {key} [LEN|IDX] [MINMATCHLEN {small}] [WITHMATCHLEN|{junk}]",
            ),
        ],
    ),
    (
        "bits",
        &[
            (6, "SETBIT {key} {bit_offset} {bit}"),
            (4, "GETBIT {key} {bit_offset}"),
            (4, "BITCOUNT {key} [{index} {index} [BYTE|BIT|{junk}]]"),
            (4, "BITPOS {key} {bit} [{index} [{index} [BYTE|BIT]]]"),
            (4, "BITOP (AND|OR|XOR) {key} {key}*"),
            (2, "BITOP (NOT|{junk}) {key} {key}"),
            (
                6,
                "BITFIELD {key} (GET {field} {field_offset}|SET {field} {field_offset} {bits}|\
                 INCRBY {field} {field_offset} {integer}|OVERFLOW (WRAP|SAT|FAIL|{junk}))*",
            ),
            (
                2,
                "BITFIELD_RO {key} (GET {field} {field_offset}|SET {field} {field_offset} 1)*",
            ),
        ],
    ),
    (
        "keys",
        &[
            (5, "DEL {key}*"),
            (2, "UNLINK {key}*"),
            (3, "EXISTS {key}*"),
            (2, "TOUCH {key}*"),
            (2, "TYPE {key}"),
            (4, "RENAME {key} {key}"),
            (3, "RENAMENX {key} {key}"),
            (4, "COPY {key} {key} [DB {db}] [REPLACE|{junk}]"),
            (3, "MOVE {key} {db}"),
            (2, "KEYS {pattern}"),
            (1, "RANDOMKEY"),
            (3, "DBSIZE"),
            (
                2,
                "@WALK [MATCH {pattern}] [COUNT {small}] [TYPE (string|list|nosuch)]",
            ),
            (2, "OBJECT (ENCODING|REFCOUNT) {key}"),
            (1, "OBJECT {junk} {key}"),
            (1, "DEBUG DIGEST-VALUE {key}*"),
        ],
    ),
    (
        "expiry",
        &[
            (4, "(EXPIRE|PEXPIRE) {key} {wide} [NX|XX|GT|LT] [XX|{junk}]"),
            (4, "EXPIREAT {key} {at} [NX|XX|GT|LT] [GT|LT|NX]"),
            (4, "PEXPIREAT {key} {at_ms} [NX|XX|GT|LT]"),
            (2, "(EXPIRE|PEXPIRE|EXPIREAT|PEXPIREAT) {key} {bad_time}"),
            (4, "(TTL|PTTL|EXPIRETIME|PEXPIRETIME) {key}"),
            (3, "PERSIST {key}"),
        ],
    ),
    ("streams", streams::ROWS),
    (
        "connection",
        &[
            (6, "SELECT {db}"),
            (1, "PING [{value}]"),
            (1, "ECHO {value}"),
            (1, "CLIENT (SETNAME {key}|GETNAME|{junk})"),
            (2, "HELLO (2|3)"),
            (1, "SWAPDB {db} {db}"),
            (1, "(FLUSHDB|FLUSHALL) [SYNC|ASYNC|{junk}]"),
            (1, "WAIT 0 {small}"),
            (1, "{junk} {key}*"),
            (
                1,
                "COMMAND (GETKEYS|GETKEYSANDFLAGS) (SET {key} v|MSET {key} v|GET {key}|BITOP AND {key} {key}|{junk} x)",
            ),
        ],
    ),
];

/// Returns one command of a family, by the weights of the families.
pub(crate) fn command(draw: &mut Draw, families: &[u32]) -> Vec<Vec<u8>> {
    let family = FAMILIES[draw.weighted(families)].1;
    let weights: Vec<u32> = family.iter().map(|(weight, _)| *weight).collect();
    let row = family[draw.weighted(&weights)].1;
    let mut words = Vec::new();
    let mut notation = Notation {
        text: row.as_bytes(),
        at: 0,
    };
    notation.sequence(draw, &mut words, true);
    assert_eq!(notation.at, row.len(), "the whole row is read: {row}");
    spoil(draw, &mut words);
    words
}

/// Corrupts some of the commands: a word too few or too many, a wrong one, another case.
fn spoil(draw: &mut Draw, words: &mut Vec<Vec<u8>>) {
    // Commands that wait keep their short timeout, or their bad one. Without its count, SPOP would be random.
    let may_wait = |name: &[u8]| {
        let name = String::from_utf8_lossy(name);
        name.starts_with('B') && (name.contains("POP") || name.contains("MOVE"))
    };
    let waits = may_wait(&words[0]) || words.iter().any(|word| word == WAITED_S);
    // Ranges between two members are undefined where scores differ.
    let is_lexical = words[0] == b"ZADD" && words.iter().any(|word| word.starts_with(b"lex:"));
    if words[0].starts_with(b"@") || words[0] == b"SPOP" || waits || is_lexical {
        return;
    }
    match draw.below(40) {
        0 if words.len() > 1 => drop(words.pop()),
        1 => words.push(word(draw, "value")),
        2 if words.len() > 1 => {
            let at = 1 + draw.below(words.len() - 1);
            // A short time to live must not come about by chance, nor a string of half a gibibyte.
            words[at] = [
                b"abc".as_slice(),
                b"",
                b" 1",
                b"1.5",
                b"-1",
                b"18446744073709551616",
            ][draw.below(6)]
            .to_vec();
        }
        3 => words[0].make_ascii_lowercase(),
        4 => words
            .iter_mut()
            .filter(|word| word.iter().all(u8::is_ascii_uppercase))
            .for_each(|word| {
                word.make_ascii_lowercase();
            }),
        _ => {}
    }
}

/// A reader of rows that draws as it goes; with `keep` false it only passes over.
struct Notation<'a> {
    text: &'a [u8],
    at: usize,
}

impl Notation<'_> {
    fn sequence(&mut self, draw: &mut Draw, out: &mut Vec<Vec<u8>>, keep: bool) {
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b' ' => self.at += 1,
                b']' | b')' | b'|' => return,
                b'[' => {
                    let keep = keep && draw.below(5) < 2;
                    self.choice(draw, out, keep);
                }
                _ => {
                    let start = self.at;
                    let mut times = 1;
                    self.item(draw, &mut Vec::new(), false);
                    if self.text.get(self.at) == Some(&b'*') {
                        times = 1 + draw.below(4);
                        self.at += 1;
                    }
                    let end = self.at;
                    for _ in 0..times {
                        self.at = start;
                        self.item(draw, out, keep);
                    }
                    self.at = end;
                }
            }
        }
    }

    fn item(&mut self, draw: &mut Draw, out: &mut Vec<Vec<u8>>, keep: bool) {
        match self.text[self.at] {
            b'(' => self.choice(draw, out, keep),
            b'{' => {
                let end = self.find(|byte| byte == b'}');
                let kind = std::str::from_utf8(&self.text[self.at + 1..end]).expect("text");
                if keep {
                    out.push(word(draw, kind));
                }
                self.at = end + 1;
            }
            _ => {
                let end = self.find(|byte| b" ]|)*".contains(&byte));
                if keep {
                    out.push(self.text[self.at..end].to_vec());
                }
                self.at = end;
            }
        }
    }

    /// Parses from an opening bracket to behind the closing one.
    fn choice(&mut self, draw: &mut Draw, out: &mut Vec<Vec<u8>>, keep: bool) {
        self.at += 1;
        let start = self.at;
        let mut count = 1;
        loop {
            self.sequence(draw, &mut Vec::new(), false);
            if self.text[self.at] != b'|' {
                break;
            }
            self.at += 1;
            count += 1;
        }
        let end = self.at + 1;
        if keep {
            let chosen = draw.below(count);
            self.at = start;
            for index in 0..=chosen {
                self.sequence(draw, out, index == chosen);
                self.at += 1;
            }
        }
        self.at = end;
    }

    fn find(&self, is_end: impl Fn(u8) -> bool) -> usize {
        let rest = &self.text[self.at..];
        self.at
            + rest
                .iter()
                .position(|&byte| is_end(byte))
                .unwrap_or(rest.len())
    }
}

const KEYS: &[&str] = &[
    "a",
    "b",
    "c",
    "d",
    "{t}e",
    "{t}f",
    "g{t}",
    "key:with spaces",
    "",
    "\0\n\r",
];
const PATTERNS: &[&str] = &[
    "*", "?", "a", "[a-c]", "*{t}*", "[^a]", "\\a", "k*s", "none*", "[", "a**b", "",
];
const JUNK: &[&str] = &["BAD", "", "NX", "0", "nosuch\r\ncommand", "GETX", "WITH"];
const SMALL: &[&str] = &["0", "1", "2", "3", "10", "100", "-1"];

/// Returns a word of a kind.
fn word(draw: &mut Draw, kind: &str) -> Vec<u8> {
    if let Some(word) = streams::word(draw, kind).or_else(|| script::word(draw, kind)) {
        return word;
    }
    let pick = |draw: &mut Draw, pool: &[&str]| pool[draw.below(pool.len())].as_bytes().to_vec();
    let edges = [
        "0",
        "1",
        "-1",
        "7",
        "100",
        "-100",
        "255",
        "256",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "4611686018427387904",
        "-9223372036854775807",
        "10000",
        "1000000",
    ];
    match kind {
        "key" => pick(draw, KEYS),
        "pattern" => pick(draw, PATTERNS),
        "junk" => pick(draw, JUNK),
        "small" => pick(draw, SMALL),
        "bit" => pick(draw, &["0", "1", "0", "1", "0", "1", "2", "-1", "x"]),
        "db" => pick(
            draw,
            &["0", "1", "2", "0", "1", "2", "0", "1", "2", "16", "-1", "x"],
        ),
        "integer" if draw.below(2) == 0 => {
            (draw.below(2000) as i64 - 1000).to_string().into_bytes()
        }
        "integer" => pick(draw, &edges),
        // Redis takes the difference to a field's bounds in 64 bits; beyond 62 its answer is an overflow's.
        "bits" => pick(
            draw,
            &[
                "0",
                "1",
                "-1",
                "100",
                "-100",
                "255",
                "256",
                "65536",
                "4611686018427387904",
            ],
        ),
        "future" => pick(
            draw,
            &[
                "4102444800",
                "4102444801",
                "5102444800",
                "0",
                "-1",
                "x",
                "9223372036854775807",
            ],
        ),
        "future_ms" => pick(
            draw,
            &[
                "4102444800000",
                "4102444800001",
                "5102444800999",
                "0",
                "-1",
                "x",
            ],
        ),
        "float" => pick(
            draw,
            &[
                "0",
                "1",
                "-1.5",
                "0.1",
                "3.0e3",
                "1e-7",
                "1e17",
                "-0.0",
                "5e-1",
                "100.25",
                "inf",
                "nan",
                "1e400",
                "abc",
                " 1",
                "1 ",
                "0x1p3",
                "123456789.987654321",
            ],
        ),
        "hash_field" if draw.below(4) == 0 => draw.below(20).to_string().into_bytes(),
        "hash_field" if draw.below(12) == 0 => vec![b'f'; [63, 64, 65, 300][draw.below(4)]],
        "hash_field" => pick(
            draw,
            &[
                "a",
                "b",
                "c",
                "d",
                "field",
                "field with spaces",
                "-1",
                "01",
                "1.0",
                "9223372036854775807",
                "-9223372036854775808",
                "99999999999999999999",
                "",
                "\0\r\n",
            ],
        ),
        "index" => (draw.below(30) as i64 - 15).to_string().into_bytes(),
        "offset" => pick(
            draw,
            &[
                "0",
                "1",
                "5",
                "10",
                "40",
                "100",
                "1000",
                "-1",
                "536870912",
                "99999999999",
            ],
        ),
        "bit_offset" if draw.below(4) > 0 => draw.below(200).to_string().into_bytes(),
        "bit_offset" => pick(
            draw,
            &["0", "7", "8", "1000", "9999", "-1", "4294967296", "x"],
        ),
        "field" if draw.below(8) > 0 => {
            let sign = if draw.below(2) == 0 { 'u' } else { 'i' };
            format!("{sign}{}", 1 + draw.below(63)).into_bytes()
        }
        "field" => pick(draw, &["i64", "u64", "i0", "u", "x8", "i65"]),
        "field_offset" if draw.below(8) > 0 => {
            let mark = if draw.below(2) == 0 { "#" } else { "" };
            format!("{mark}{}", draw.below(40)).into_bytes()
        }
        "field_offset" => pick(draw, &["-1", "#-1", "x", "4294967296", "#99999999999"]),
        "seconds" if draw.below(10) == 0 => {
            pick(draw, &["0", "-1", "x", "1.5", "9223372036854775807", ""])
        }
        "seconds" => (10_000 + draw.below(1_000_000)).to_string().into_bytes(),
        "millis" if draw.below(10) == 0 => pick(draw, &["0", "-5", "x", "9223372036854775807"]),
        "millis" => (10_000_000 + draw.below(1_000_000_000))
            .to_string()
            .into_bytes(),
        "bad_time" => pick(
            draw,
            &[
                "0",
                "-1",
                "x",
                "",
                "1.5",
                "9223372036854775807",
                "-9223372036854775808",
            ],
        ),
        // For comparisons (GT, LT) spread so widely that two relative times never lie within the servers'
        // skew.
        "wide" => (10_000_000_u64 + draw.below(1_000_000_000) as u64 * 100)
            .to_string()
            .into_bytes(),
        "at" => pick(
            draw,
            &[
                "4102444800",
                "4102444801",
                "4102444900",
                "5102444800",
                "1",
                "0",
                "-1",
                "9223372036854775807",
                "x",
            ],
        ),
        "at_ms" => pick(
            draw,
            &[
                "4102444800000",
                "4102444800001",
                "4102444900500",
                "5102444800999",
                "1",
                "0",
                "-1",
                "x",
            ],
        ),
        "derived" if draw.below(3) == 0 => pick(draw, &["#", "constant"]),
        "derived" | "sort_by" => pick(
            draw,
            &["*", "{t}*", "*->a", "*->foo", "none_*", "nosort", "*{t}"],
        ),
        "member" => match draw.below(4) {
            0 | 1 => (draw.below(24) as i64 - 8).to_string().into_bytes(),
            2 => vec![b'a' + draw.below(8) as u8],
            _ => word(draw, "value"),
        },
        "lex_key" => pick(draw, &["lex:a", "lex:b{t}"]),
        "lex_bound" if draw.below(4) == 0 => pick(draw, &["-", "+", "[", "(", "x", "", "-x"]),
        "lex_bound" => {
            let mut bound = pick(draw, &["[", "("]);
            bound.extend(word(draw, "member"));
            bound
        }
        "score" if draw.below(6) == 0 => pick(draw, &["inf", "-inf", "-0", "nan", "x", "1e400"]),
        "score" => (draw.below(20) as i64 - 8).to_string().into_bytes(),
        "score_bound" if draw.below(6) == 0 => pick(
            draw,
            &[
                "-inf", "+inf", "(inf", "", "(", " 1", "1 ", "nan", "x", "1.25",
            ],
        ),
        "score_bound" => {
            let exclusive = if draw.below(3) == 0 { "(" } else { "" };
            format!("{exclusive}{}", draw.below(24) as i64 - 10).into_bytes()
        }
        "weight" => pick(draw, &["0", "1", "-1", "2", "1", "inf", "-inf", "x"]),
        "longitude" if draw.below(12) == 0 => pick(draw, &["180", "-180", "181", "0", "x", "inf"]),
        "longitude" => ((draw.below(36_000) as f64 - 18_000.0) / 100.0)
            .to_string()
            .into_bytes(),
        "latitude" if draw.below(12) == 0 => pick(draw, &["85.05112878", "86", "0", "x", "-85"]),
        "latitude" => ((draw.below(17_000) as f64 - 8_500.0) / 100.0)
            .to_string()
            .into_bytes(),
        "radius" if draw.below(12) == 0 => pick(draw, &["0", "-1", "x", "inf", "100000"]),
        "radius" => draw.below(9000).to_string().into_bytes(),
        "value" => match draw.below(8) {
            0 | 1 => (draw.below(30) as i64 - 10).to_string().into_bytes(),
            2 => pick(draw, &edges),
            3 => pick(
                draw,
                &[
                    "1.5", "-0", "3.0e3", " 1", "1 ", "01", "0.1", "1e3", "+1", "inf",
                ],
            ),
            4 => vec![b'x'; [1, 10, 43, 44, 45, 64, 100, 300][draw.below(8)]],
            5 => (0..draw.below(20)).map(|_| draw.below(256) as u8).collect(),
            _ => pick(
                draw,
                &[
                    "",
                    "foo",
                    "bar",
                    "foobar",
                    "hello world",
                    "\0\x01\u{7f}",
                    "a\r\nb",
                ],
            ),
        },
        other => panic!("no pool for {{{other}}}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_can_be_drawn() {
        let mut draw = Draw::new(1);
        for (family, (name, rows)) in FAMILIES.iter().enumerate() {
            let mut weights = vec![0; FAMILIES.len()];
            weights[family] = 1;
            let mut first_words = std::collections::HashSet::new();
            for _ in 0..rows.len() * 200 {
                let words = command(&mut draw, &weights);
                assert!(!words.is_empty(), "a row of {name} without words");
                first_words.insert(words[0].to_ascii_uppercase());
            }
            assert!(
                first_words.len() * 2 >= rows.len(),
                "few commands of {name} are drawn"
            );
        }
    }
}
