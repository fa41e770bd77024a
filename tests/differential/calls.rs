//! Random calls of every command: the possible arguments are read from COMMAND DOCS, so that a new command is
//! called as soon as it is in the table. Most calls follow the documented syntax, with extreme values; some
//! are then corrupted.
//!
//! Knows neither a command's effect nor its expected reply.

use crate::Words;
use crate::support::Draw;
use crate::wire::{self, Raw, Value};

/// One argument as COMMAND DOCS describes it.
#[derive(Debug, Default)]
struct Node {
    name: String,
    kind: String,
    token: Option<Vec<u8>>,
    optional: bool,
    multiple: bool,
    multiple_token: bool,
    parts: Vec<Node>,
}

/// One command.
#[derive(Debug)]
struct Form {
    words: Words,
    group: String,
    arguments: Vec<Node>,
    waits: bool,
}

/// A generator of calls.
pub(crate) struct Calls {
    forms: Vec<Form>,
    payloads: Words,
    /// Leaves out times and IDs on which two servers would not agree.
    steady: bool,
    /// Number of calls until a transaction ends.
    open: usize,
}

/// Commands that end the connection or the server, change its role, or do not have exactly one reply.
const NEVER: &[&str] = &[
    "shutdown",
    "debug",
    "monitor",
    "subscribe",
    "psubscribe",
    "ssubscribe",
    "unsubscribe",
    "punsubscribe",
    "sunsubscribe",
    "quit",
    "client|reply",
    "client|kill",
    "client|pause",
    "client|tracking",
    "config|set",
    "config|rewrite",
    "replicaof",
    "slaveof",
    "failover",
    "psync",
    "sync",
    "replconf",
    "module",
    "acl",
    "save",
    "bgsave",
    "bgrewriteaof",
    "exec",
    "discard",
];

/// Commands that depend on chance, on time, or on the server's identity.
const UNSTEADY: &[&str] = &[
    "time",
    "info",
    "client",
    "config",
    "memory",
    "latency",
    "slowlog",
    "lastsave",
    "spop",
    "randomkey",
    "scan",
    "hscan",
    "sscan",
    "zscan",
    "role",
    "lolwut",
    "command",
    "hello",
    "auth",
    "object|freq",
    "object|idletime",
    "object|help",
    "xinfo|help",
    "xgroup|help",
    "reset",
    "wait",
    "pubsub",
    "migrate",
    "script",
    "eval",
    "evalsha",
    "eval_ro",
    "evalsha_ro",
    "function",
    "fcall",
    "fcall_ro",
    "swapdb",
    "multi",
    "watch",
    "unwatch",
    "dump",
    "echo",
    "pfselftest",
    "pfdebug",
    "select",
    "keys",
    "waitaof",
    "dbsize",
    "publish",
    "spublish",
];

/// Called rarely: they empty what other calls have filled.
const SELDOM: &[&str] = &["flushall", "flushdb", "swapdb", "command", "lolwut", "keys"];

const EDGES: &[&str] = &[
    "-1",
    "-2",
    "127",
    "128",
    "255",
    "256",
    "32767",
    "65536",
    "2147483647",
    "2147483648",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "-0",
    "+1",
    " 1",
    "1 ",
    "",
    "1.5",
    "abc",
    "1e3",
    "007",
    "0x10",
    "-2147483649",
    "100000",
];

const DOUBLES: &[&str] = &[
    "0", "1", "-1", "0.5", "3.0", "1e3", "-2.25", "inf", "-inf", "+inf", "nan", "1e308", "-1e-308",
    "1e400", "0x10", "", "a", "179.9", "-85.06", "85.05", "1e-7", "100000", ".5", "5.",
];

const IDS: &[&str] = &[
    "0",
    "1",
    "5",
    "0-0",
    "0-1",
    "1-1",
    "2-2",
    "5-0",
    "7-3",
    "9-9",
    "$",
    ">",
    "-",
    "+",
    "(1-1",
    "18446744073709551615-18446744073709551615",
    "1-*",
    "9-*",
    "a",
    "1-1-1",
    "-1",
];

const BOUNDS: &[&str] = &[
    "-inf", "+inf", "inf", "0", "1", "-1", "5", "(1", "(5", "-", "+", "[a", "[b", "(a", "[", "(",
    "nan", "2.5", "-3", "a", "100000",
];

const ENCODINGS: &[&str] = &[
    "u8", "i8", "u1", "i5", "i64", "u63", "u64", "i65", "u0", "x8", "u16",
];

const TEXTS: &[&str] = &[
    "a",
    "b",
    "c",
    "d",
    "e",
    "1",
    "2",
    "3",
    "10",
    "-5",
    "3.5",
    "",
    "hello",
    "foo",
    "bar",
    "f1",
    "f2",
    "m1",
    "m2",
    "g1",
    "c1",
    "\r\n",
    "\u{7f}\0",
    "9223372036854775807",
    "a rather long word \
    that does not fit into sixty-four bytes, and so is stored in another way than the short ones",
];

const PATTERNS: &[&str] = &[
    "*", "s*", "?1", "[a-c]*", "h\\*", "#", "*->f1", "s*", "[", "nokey",
];

impl Calls {
    /// Returns all commands of a server; only `steady` ones if the replies of two servers are compared.
    pub(crate) fn of(raw: &mut Raw, steady: bool) -> Calls {
        let docs = raw.call("COMMAND DOCS");
        let mut forms = Vec::new();
        for pair in docs.items().chunks(2) {
            collect(&pair[0].text(), &pair[1], &mut forms);
        }
        let is_among = |list: &[&str], form: &Form| {
            let words: Vec<String> = form
                .words
                .iter()
                .map(|word| String::from_utf8_lossy(word).to_ascii_lowercase())
                .collect();
            list.contains(&words[0].as_str()) || list.contains(&words.join("|").as_str())
        };
        forms.retain(|form| !(is_among(NEVER, form) || steady && is_among(UNSTEADY, form)));
        let payloads = payloads(raw);
        Calls {
            forms,
            payloads,
            steady,
            open: 0,
        }
    }

    /// Keeps the commands with wanted names, containers' names included.
    pub(crate) fn keep(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.forms.retain(|form| {
            let words = form.words.iter();
            let words: Vec<_> = words.map(|word| String::from_utf8_lossy(word)).collect();
            is_wanted(&words.join("|").to_ascii_lowercase())
        });
    }

    /// Returns the number of commands.
    pub(crate) fn len(&self) -> usize {
        self.forms.len()
    }

    /// Returns one random call.
    pub(crate) fn call(&mut self, draw: &mut Draw) -> Words {
        loop {
            let words = self.any_call(draw);
            if !self.steady || is_defined(&words) {
                return words;
            }
        }
    }

    fn any_call(&mut self, draw: &mut Draw) -> Words {
        if self.open > 0 {
            self.open -= 1;
            if self.open == 0 {
                let end = ["EXEC", "EXEC", "DISCARD"][draw.below(3)];
                return vec![end.into()];
            }
        }
        let form = loop {
            let form = &self.forms[draw.below(self.forms.len())];
            let name = String::from_utf8_lossy(&form.words[0]).to_ascii_lowercase();
            if !SELDOM.contains(&name.as_str()) || draw.below(16) == 0 {
                break form;
            }
        };
        if self.open == 0 && form.words[0].eq_ignore_ascii_case(b"multi") {
            self.open = 2 + draw.below(8);
        }
        let mut words = form.words.clone();
        let first = words.len();
        self.emit_all(form, &form.arguments, draw, &mut words);
        if draw.below(6) == 0 && words.len() > first && !form.waits {
            self.spoil(first, draw, &mut words);
        }
        words
    }

    fn spoil(&self, first: usize, draw: &mut Draw, words: &mut Words) {
        let at = first + draw.below(words.len() - first);
        match draw.below(5) {
            0 => drop(words.remove(at)),
            1 => words.insert(at, words[at].clone()),
            2 => words[at] = pick(draw, EDGES),
            3 => words.swap(at, first),
            _ => words.push(pick(draw, TEXTS)),
        }
    }

    fn emit_all(&self, form: &Form, nodes: &[Node], draw: &mut Draw, words: &mut Words) {
        let mut counted = None;
        for node in nodes {
            if node.optional && draw.below(2) == 0 {
                continue;
            }
            let before = words.len();
            self.emit(form, node, draw, words);
            if node.name == "numkeys" {
                counted = Some(before + usize::from(node.token.is_some()));
            } else if let (Some(at), "key") = (counted, node.kind.as_str()) {
                // Mostly as many as there are.
                if draw.below(8) > 0 {
                    words[at] = (words.len() - before).to_string().into_bytes();
                }
                counted = None;
            }
        }
    }

    fn emit(&self, form: &Form, node: &Node, draw: &mut Draw, words: &mut Words) {
        let times = match node.multiple {
            true => 1 + draw.below(3),
            false => 1,
        };
        for time in 0..times {
            if let Some(token) = &node.token
                && node.kind != "pure-token"
                && (time == 0 || node.multiple_token)
            {
                words.push(token.clone());
            }
            match node.kind.as_str() {
                // IDs that the server generates contain the time.
                "pure-token" if self.steady && node.token.as_deref() == Some(b"*") => {
                    words.push(pick(draw, IDS));
                }
                "pure-token" => words.push(node.token.clone().unwrap_or_default()),
                "oneof" if !node.parts.is_empty() => {
                    let part = &node.parts[draw.below(node.parts.len())];
                    self.emit(form, part, draw, words);
                }
                "block" => self.emit_all(form, &node.parts, draw, words),
                _ => words.push(self.word(form, node, draw)),
            }
        }
    }

    fn word(&self, form: &Form, node: &Node, draw: &mut Draw) -> Vec<u8> {
        let name = node.name.as_str();
        let is_random = form.words[0].to_ascii_lowercase().starts_with(b"hrand")
            || form.words[0].ends_with(b"RANDMEMBER")
            || form.words[0].ends_with(b"randmember");
        match (node.kind.as_str(), name) {
            ("key", _) => self.key(form, draw),
            (_, "timeout") if node.kind == "double" => b"0.001".to_vec(),
            (_, "timeout") => b"1".to_vec(),
            (_, "milliseconds") if form.waits => b"1".to_vec(),
            (_, "host") => b"127.0.0.1".to_vec(),
            (_, "port") => b"1".to_vec(),
            (_, "serialized-value") => self.payloads[draw.below(self.payloads.len())].clone(),
            // Redis adds the largest to the time of day and wraps.
            (_, "ttl") => pick(draw, &["0", "0", "100000000", "100000001", "-1", "x"]),
            (_, "seconds" | "milliseconds" | "ms" | "min-idle-time" | "px" | "ex") => {
                let far = [
                    "100000000",
                    "100000001",
                    "0",
                    "-1",
                    "",
                    "9223372036854775807",
                ];
                far[[0, 0, 1, 1, 2, 3, 4, 5][draw.below(8)]].into()
            }
            ("unix-time", _) | (_, "unix-time-seconds" | "unix-time-milliseconds") => {
                let at = match name.ends_with("milliseconds") {
                    true => ["9900000000000", "9900000000001", "1", "-5", "x"],
                    false => ["9900000000", "9900000001", "1", "-5", "x"],
                };
                at[[0, 0, 0, 1, 1, 2, 3, 4][draw.below(8)]].into()
            }
            (_, "count") if is_random => pick(draw, &["1", "3", "-3", "0", "-40", "x", ""]),
            (_, "encoding") => pick(draw, ENCODINGS),
            (_, "id" | "lastid" | "last-id" | "start-id" | "end-id" | "entries-added") => {
                pick(draw, IDS)
            }
            (_, "threshold") => pick(draw, &["0", "1", "3", "1-1", "5-0", "a", "-1"]),
            (_, "min" | "max") => pick(draw, BOUNDS),
            (_, "start" | "end" | "stop") if form.group == "stream" => pick(draw, IDS),
            (_, "start" | "stop") if form.group == "sorted-set" => pick(draw, BOUNDS),
            ("integer", _) => match draw.below(6) {
                0 => pick(draw, EDGES),
                _ => draw.below(9).to_string().into_bytes(),
            },
            ("double", _) => match draw.below(3) {
                0 => pick(draw, DOUBLES),
                _ => draw.below(90).to_string().into_bytes(),
            },
            ("pattern", _) => pick(draw, PATTERNS),
            _ if draw.below(8) == 0 => pick(draw, EDGES),
            _ => pick(draw, TEXTS),
        }
    }

    /// Returns mostly a key of the command's type, or an absent one.
    fn key(&self, form: &Form, draw: &mut Draw) -> Vec<u8> {
        const LETTERS: &[u8] = b"slhtzxgpbcfkd";
        let letter = match form.group.as_str() {
            _ if draw.below(12) == 0 => LETTERS[draw.below(LETTERS.len())],
            "string" | "bitmap" => b's',
            "list" => b'l',
            "hash" => b'h',
            "set" => b't',
            "sorted-set" => b'z',
            "stream" => b'x',
            "geo" => b'g',
            "hyperloglog" => b'p',
            "bf" => b'b',
            "cf" => b'c',
            "cms" => b'f',
            "topk" => b'k',
            "tdigest" => b'd',
            _ => LETTERS[draw.below(LETTERS.len())],
        };
        vec![letter, b'0' + draw.below(5) as u8]
    }

    /// True if the replies of two servers are compared.
    pub(crate) fn is_steady(&self) -> bool {
        self.steady
    }
}

/// True if the documentation defines a call's effect. The order of members of equal rank, or of scores that
/// differ where only names count, is undefined, as is the life of a key that has expired when it is created.
fn is_defined(words: &Words) -> bool {
    let has = |word: &str| {
        let is = |other: &Vec<u8>| other.eq_ignore_ascii_case(word.as_bytes());
        words.iter().any(is)
    };
    let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
    let makes_stale = (has("exat") || has("pxat")) && (has("1") || has("-5"));
    let sorts_freely = name.starts_with("sort") && has("by") && has("store");
    // Redis adds the largest number to the time of day, and wraps.
    let wraps = name == "restore" && has("9223372036854775807");
    // Redis 7.0 takes such a count for a wish, and answers for minutes.
    let answers_endlessly =
        (name.ends_with("randfield") || name.ends_with("randmember")) && has("-2147483649");
    !wraps
        && !answers_endlessly
        && !name.ends_with("bylex")
        && name != "zlexcount"
        && !has("bylex")
        && !makes_stale
        && !sorts_freely
}

fn pick(draw: &mut Draw, words: &[&str]) -> Vec<u8> {
    words[draw.below(words.len())].as_bytes().to_vec()
}

fn field<'v>(map: &'v Value, name: &str) -> Option<&'v Value> {
    map.items()
        .chunks(2)
        .find(|pair| pair.len() == 2 && pair[0].text() == name)
        .map(|pair| &pair[1])
}

fn collect(name: &str, docs: &Value, forms: &mut Vec<Form>) {
    if let Some(children) = field(docs, "subcommands") {
        for pair in children.items().chunks(2) {
            collect(&pair[0].text(), &pair[1], forms);
        }
        return;
    }
    let arguments: Vec<Node> = field(docs, "arguments")
        .map(|arguments| arguments.items().iter().map(node).collect())
        .unwrap_or_default();
    let waits = arguments
        .iter()
        .any(|node| node.name == "timeout" || node.token.as_deref() == Some(b"BLOCK"));
    forms.push(Form {
        words: name
            .split('|')
            .map(|word| word.as_bytes().to_vec())
            .collect(),
        group: field(docs, "group").map(Value::text).unwrap_or_default(),
        arguments,
        waits,
    });
}

fn node(docs: &Value) -> Node {
    let text = |name: &str| field(docs, name).map(Value::text);
    let flags: Vec<String> = field(docs, "flags")
        .map(|flags| flags.items().iter().map(Value::text).collect())
        .unwrap_or_default();
    let has = |flag: &str| flags.iter().any(|text| text == flag);
    Node {
        name: text("name").unwrap_or_default().replace('_', "-"),
        kind: text("type").unwrap_or_default(),
        token: text("token").map(|token| match token.as_str() {
            "\"\"" => Vec::new(),
            token => token.as_bytes().to_vec(),
        }),
        optional: has("optional"),
        multiple: has("multiple"),
        multiple_token: has("multiple_token"),
        parts: field(docs, "arguments")
            .map(|parts| parts.items().iter().map(node).collect())
            .unwrap_or_default(),
    }
}

/// Returns values for RESTORE: one of each type, and some invalid ones.
fn payloads(raw: &mut Raw) -> Words {
    let mut payloads = vec![Vec::new(), b"junk".to_vec()];
    for line in [
        "SET p 12345",
        "RPUSH p a b 3",
        "HSET p f 1 g 2",
        "SADD p 1 2 3",
        "SADD p a b",
        "ZADD p 1 a 2 b",
        "XADD p 1-1 f v",
        "PFADD p a b c",
    ] {
        raw.call(line);
        let Value::Bulk(payload) = raw.call("DUMP p") else {
            continue;
        };
        let mut spoilt = payload.clone();
        spoilt[2] ^= 1;
        payloads.extend([payload.clone(), payload, spoilt]);
        raw.call("DEL p");
    }
    payloads
}

/// True if the replies agree, or may differ because one of the servers is Redis 7.0.
pub(crate) fn alike(words: &Words, ours: &Value, theirs: &Value) -> bool {
    let name = String::from_utf8_lossy(&words[0]).to_ascii_uppercase();
    match (name.as_str(), ours, theirs) {
        // Scores are printed with the fewest digits from 7.2 on.
        _ if (name.starts_with('Z') || name.starts_with("BZ")) && same_numbers(ours, theirs) => {
            true
        }
        // An id of Redis 7.4.
        ("XREAD", _, Value::Error(text)) => {
            text.starts_with(b"ERR Invalid stream ID") && words.iter().any(|word| word == b"+")
        }
        ("LPOS", Value::Error(text), _) => {
            text.starts_with(b"ERR value is out of range, value must")
        }
        _ => false,
    }
}

fn same_numbers(ours: &Value, theirs: &Value) -> bool {
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<f64>().ok();
    match (ours, theirs) {
        (Value::Array(ours), Value::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| same_numbers(a, b))
        }
        (Value::Bulk(a), Value::Bulk(b)) => a == b || number(a).is_some() && number(a) == number(b),
        (ours, theirs) => ours == theirs,
    }
}

/// Returns a call as a line that can be sent by hand.
pub(crate) fn line(words: &Words) -> String {
    let words: Vec<String> = words.iter().map(|word| wire::quote(word)).collect();
    words.join(" ")
}
