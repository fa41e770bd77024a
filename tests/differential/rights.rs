//! Random calls of every command that names keys, by users who may only read, only write, or use some keys or
//! one database only: a reader changes nothing, and a writer's replies do not depend on stored values. All
//! servers are of this build; two of them store values of one shape that differ in what the user may not
//! know. Exceptions that Redis permits are named in `tests/rows/`.
//!
//! `RIGHTS=100000` for a long run, `RIGHTS_FIRST=17` to begin with another seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::calls::{Calls, line};
use crate::support::{Draw, Options, Server, is_stand_in, reasons};
use crate::wire::{self, Raw, Value};
use crate::{Words, number};

/// Calls between two comparisons of the stored data.
const CALLS_PER_ROUND: u64 = 40;

/// Letters of the keys that [`Calls`] generates, each with a digit below 5; those with 4 are absent here.
const LETTERS: &str = "slhtzxgpbcfkd";

/// Requests that create the keys of a digit; words in braces differ between two servers, see [`secret`].
const RECIPES: &[&str] = &[
    "SET s# {hello}",
    "RPUSH l# {a} {b} {foo}",
    "HSET h# f1 {a} f2 {10}",
    "SADD t# {a} {b} {1}",
    "ZADD z# 1 {a} 2 {b} {3} c",
    "XADD x# 1-1 f1 {a}",
    "XADD x# 5-0 f1 {foo}",
    "XGROUP CREATE x# g1 0",
    "XREADGROUP GROUP g1 c1 COUNT 1 STREAMS x# >",
    "GEOADD g# 13.3 38.1 {a} 15.0 37.5 {b}",
    "PFADD p# {a} {b}",
    "BF.ADD b# {a}",
    "CF.ADD c# {a}",
    "CMS.INITBYDIM f# 50 3",
    "CMS.INCRBY f# {a} 3",
    "TOPK.RESERVE k# 2",
    "TOPK.ADD k# {a} {b} {a}",
    "TDIGEST.CREATE d#",
    "TDIGEST.ADD d# {1} {2} {3}",
    // The first read of a digest sorts the added values, which does not change its value.
    "TDIGEST.QUANTILE d# 0.5",
    "TAG ADD s# {a} {b} {hello} {foo} {10} c d e 1 2 3",
];

/// Commands that change something for users who may only read, with the reason.
const CHANGE: &str = "readers_that_change.txt";

/// Commands that reveal something to users who may only write, with the reason.
const TELL: &str = "writers_that_are_told.txt";

/// Commands whose replies contain the time of an action.
const TIMED: [&str; 4] = ["xautoclaim", "xinfo|consumers", "xinfo|stream", "xpending"];

/// Returns a word as the other server stores it: of equal length and kind.
fn secret(word: &str) -> String {
    let other = |letter: char| match letter {
        '0'..='9' => char::from(b'9' - (letter as u8 - b'0')),
        letter => letter.to_ascii_uppercase(),
    };
    word.chars().map(other).collect()
}

/// A server with all keys, and the requests that create them again.
struct Side {
    server: Server,
    admin: Raw,
    /// The requests that make each key.
    recipes: BTreeMap<Vec<u8>, Vec<Words>>,
}

impl Side {
    /// `hides` selects the digits whose keys have other words.
    fn new(hides: impl Fn(usize) -> bool) -> Side {
        let server = Server::start(&Options::shards(2).with("proto-max-bulk-len", "1mb"));
        let admin = server.raw();
        let mut recipes: BTreeMap<Vec<u8>, Vec<Words>> = BTreeMap::new();
        for digit in 0..4 {
            for recipe in RECIPES {
                let words: Vec<String> = recipe
                    .split(' ')
                    .map(|word| match word.strip_prefix('{') {
                        Some(word) if hides(digit) => secret(word.trim_end_matches('}')),
                        Some(word) => word.trim_end_matches('}').to_owned(),
                        None => word.replace('#', &digit.to_string()),
                    })
                    .collect();
                let key = recipe.split(' ').find(|word| word.contains('#'));
                let key = key.expect("a key").replace('#', &digit.to_string());
                let key = key.into_bytes();
                let words = words.into_iter().map(String::into_bytes).collect();
                recipes.entry(key).or_default().push(words);
            }
        }
        let mut side = Side {
            server,
            admin,
            recipes,
        };
        side.make(all_keys().iter());
        side
    }

    /// Restores keys to their initial state.
    fn make<'k>(&mut self, keys: impl Iterator<Item = &'k Vec<u8>>) {
        let mut requests: Vec<Words> = Vec::new();
        for key in keys {
            requests.push(vec![b"DEL".to_vec(), key.clone()]);
            requests.extend(self.recipes.get(key).into_iter().flatten().cloned());
        }
        for reply in pipeline(&mut self.admin, &requests) {
            assert!(!reply.is_error(), "{}", reply.show());
        }
    }

    /// Returns the values under these keys, and their times to live.
    fn stored(&mut self, keys: &[Vec<u8>]) -> Vec<[Value; 3]> {
        let about = |key: &Vec<u8>| {
            [["DUMP", ""], ["PEXPIRETIME", ""], ["TAG", "OF"]].map(|words| {
                let words = words.iter().filter(|word| !word.is_empty());
                let mut request: Words = words.map(|word| word.as_bytes().to_vec()).collect();
                request.push(key.clone());
                request
            })
        };
        let requests: Vec<Words> = keys.iter().flat_map(about).collect();
        let replies = pipeline(&mut self.admin, &requests);
        let chunks = replies.chunks_exact(3);
        chunks
            .map(|three| [three[0].clone(), three[1].clone(), three[2].clone()])
            .collect()
    }

    /// Opens a connection of a user with these rules, which begins in a database.
    fn user(&mut self, rules: &str, db: usize) -> Raw {
        let made = format!("ACL SETUSER u reset on nopass &* +@all {rules}");
        assert_eq!(self.admin.call(&made).show(), "OK");
        let mut user = self.server.raw();
        for line in [format!("SELECT {db}"), "AUTH u x".to_owned()] {
            assert_eq!(user.call(&line).show(), "OK");
        }
        user
    }
}

fn all_keys() -> Vec<Vec<u8>> {
    let keys = LETTERS
        .bytes()
        .flat_map(|letter| (b'0'..b'5').map(move |digit| vec![letter, digit]));
    keys.collect()
}

fn is_key(word: &[u8]) -> bool {
    matches!(word, [letter, b'0'..=b'4'] if LETTERS.as_bytes().contains(letter))
}

fn pipeline(raw: &mut Raw, requests: &[Words]) -> Vec<Value> {
    let mut bytes = Vec::new();
    for words in requests {
        wire::encode_into(&mut bytes, words);
    }
    raw.send_unchecked(&bytes);
    requests.iter().map(|_| raw.read()).collect()
}

/// Returns the commands that COMMAND describes: the names of those with keys, and of those whose replies
/// vary.
fn described(raw: &mut Raw) -> (BTreeSet<String>, BTreeSet<String>) {
    fn add(row: &Value, with_keys: &mut BTreeSet<String>, unsteady: &mut BTreeSet<String>) {
        let fields = row.items();
        let name = fields[0].text();
        let is_unsteady = |tip: &Value| tip.text().starts_with("nondeterministic");
        if !fields[8].items().is_empty() {
            with_keys.insert(name.clone());
        }
        if fields[7].items().iter().any(is_unsteady) {
            unsteady.insert(name);
        }
        let children = fields[9].items().iter();
        children.for_each(|child| add(child, with_keys, unsteady));
    }
    let (mut with_keys, mut unsteady) = (BTreeSet::new(), BTreeSet::new());
    for row in raw.call("COMMAND").items() {
        add(row, &mut with_keys, &mut unsteady);
    }
    (with_keys, unsteady)
}

/// The first call of each command that violated its rights, as lines.
#[derive(Default)]
struct Faults(BTreeMap<String, String>);

impl Faults {
    fn add(&mut self, name: &str, text: impl FnOnce() -> String) {
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), text());
        }
    }

    fn check(&self) {
        let mut text = String::new();
        for fault in self.0.values() {
            let _ = writeln!(text, "{fault}");
        }
        assert!(text.is_empty(), "\n{text}");
    }
}

/// Returns the number of calls, and the first seed.
fn extent() -> (u64, u64) {
    (number("RIGHTS", 6_000), number("RIGHTS_FIRST", 1))
}

/// Makes calls as a user and finds those that changed keys which the user may not change.
fn changes(
    side: &mut Side,
    calls: &mut Calls,
    (keys, rules, db): (&[Vec<u8>], &str, usize),
    names: &BTreeSet<String>,
) -> Faults {
    let mut faults = Faults::default();
    let (count, first) = extent();
    let before = side.stored(keys);
    let mut draw = Draw::new(first);
    let mut was_answered = BTreeSet::new();
    for _ in 0..count.div_ceil(CALLS_PER_ROUND) {
        let mut user = side.user(rules, db);
        let batch: Vec<Words> = (0..CALLS_PER_ROUND)
            .map(|_| calls.call(&mut draw))
            .collect();
        let mut told = Vec::new();
        for words in &batch {
            user.send_unchecked(&wire::encode(words));
            let reply = user.try_read().expect("a reply");
            if !reply.is_error() {
                was_answered.insert(name_of(words, names));
                told.push(words);
            }
        }
        let after = side.stored(keys);
        let changed = (0..keys.len()).filter(|at| before[*at] != after[*at]);
        let changed: Vec<&Vec<u8>> = changed.map(|at| &keys[at]).collect();
        if changed.is_empty() {
            continue;
        }
        // Any call that named the key and was not refused may have done it.
        for key in &changed {
            let suspects = told.iter().filter(|words| words[1..].contains(key));
            for words in suspects {
                let name = name_of(words, names);
                faults.add(&name, || {
                    format!("{} changed by\n  {}", key.escape_ascii(), line(words))
                });
            }
        }
        if faults.0.is_empty() {
            faults.add("?", || format!("{changed:?} changed by one of {batch:?}"));
        }
        side.make(changed.into_iter());
    }
    assert!(!was_answered.is_empty(), "nothing was allowed");
    faults
}

/// Returns the full name of a call's command, as in COMMAND.
fn name_of(words: &Words, names: &BTreeSet<String>) -> String {
    let text = |word: &Vec<u8>| String::from_utf8_lossy(word).to_ascii_lowercase();
    let name = text(&words[0]);
    let sub = words.get(1).map(|word| format!("{name}|{}", text(word)));
    sub.filter(|sub| names.contains(sub)).unwrap_or(name)
}

/// Makes the same calls as users of two servers and finds those with different replies.
fn told(
    sides: &mut [Side; 2],
    calls: &mut Calls,
    rules: &str,
    is_told: impl Fn(&str) -> bool,
) -> Faults {
    let mut faults = Faults::default();
    let (count, first) = extent();
    let (names, unsteady) = described(&mut sides[0].admin);
    let mut users = [sides[0].user(rules, 0), sides[1].user(rules, 0)];
    let mut draw = Draw::new(first);
    let mut answered = 0;
    for _ in 0..count {
        let words = calls.call(&mut draw);
        let named: BTreeSet<Vec<u8>> = words[1..]
            .iter()
            .filter(|word| is_key(word))
            .cloned()
            .collect();
        let replies: Vec<Value> = (sides.iter_mut().zip(&mut users))
            .map(|(side, user)| {
                side.make(named.iter());
                user.send_unchecked(&wire::encode(&words));
                user.try_read().expect("a reply")
            })
            .collect();
        answered += u64::from(!replies[0].is_error());
        let name = name_of(&words, &names);
        let is_steady = !unsteady.contains(&name) && !TIMED.contains(&name.as_str());
        if replies[0] != replies[1] && is_steady && !is_told(&name) {
            faults.add(&name, || {
                let (one, other) = (replies[0].show(), replies[1].show());
                format!("{}\n    {one}\n    {other}", line(&words))
            });
        }
    }
    assert!(
        answered > count / 20,
        "{answered} of {count} calls were answered"
    );
    faults
}

#[test]
fn a_user_who_may_read_changes_nothing() {
    if is_stand_in() {
        return;
    }
    let mut side = Side::new(|_| false);
    let (names, _) = described(&mut side.admin);
    let mut calls = Calls::of(&mut side.admin, false);
    let known = reasons(CHANGE);
    calls.keep(|name| names.contains(name) && !known.contains_key(name));
    changes(&mut side, &mut calls, (&all_keys()[..], "%R~*", 0), &names).check();
}

#[test]
fn what_a_user_who_may_write_is_told_does_not_depend_on_values() {
    if is_stand_in() {
        return;
    }
    let mut sides = [Side::new(|_| false), Side::new(|_| true)];
    let (names, _) = described(&mut sides[0].admin);
    let mut calls = Calls::of(&mut sides[0].admin, true);
    calls.keep(|name| names.contains(name));
    let known = reasons(TELL);
    let is_told = |name: &str| known.contains_key(name);
    told(&mut sides, &mut calls, "%W~*", is_told).check();
}

#[test]
fn keys_without_a_pattern_are_neither_told_nor_changed() {
    if is_stand_in() {
        return;
    }
    let rules = "~?0 ~?1 ~?2";
    let is_forbidden = |digit: usize| digit > 2;
    let mut sides = [Side::new(|_| false), Side::new(is_forbidden)];
    let (names, _) = described(&mut sides[0].admin);
    let mut calls = Calls::of(&mut sides[0].admin, true);
    calls.keep(|name| names.contains(name));
    told(&mut sides, &mut calls, rules, |_| false).check();
    let mut calls = Calls::of(&mut sides[0].admin, false);
    calls.keep(|name| names.contains(name));
    let forbidden = all_keys().into_iter().filter(|key| key[1] > b'2');
    let forbidden: Vec<Vec<u8>> = forbidden.collect();
    sides[0].make(forbidden.iter());
    changes(
        &mut sides[0],
        &mut calls,
        (&forbidden[..], rules, 0),
        &names,
    )
    .check();
}

#[test]
fn a_database_that_is_not_allowed_stays_as_it_is() {
    if is_stand_in() {
        return;
    }
    let mut side = Side::new(|_| false);
    side.admin.call("SELECT 1");
    side.make(all_keys().iter());
    let (names, _) = described(&mut side.admin);
    let mut calls = Calls::of(&mut side.admin, false);
    // RESET makes the connection one of the default user, who has all rights.
    calls.keep(|name| name != "reset");
    changes(
        &mut side,
        &mut calls,
        (&all_keys()[..], "~* db=0", 1),
        &names,
    )
    .check();
}
