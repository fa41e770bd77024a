//! A client's steps and their requests: single commands, transactions, scripts and functions over keys of all
//! types, generated from a seed.

use crate::model::{Content, Id, Op, Place, State, Text, is_fleeting};
use crate::support::Draw;

/// A deadline so far away that nothing expires.
const DEADLINE_MS: i64 = 4_102_444_800_000;

/// Elements of large values: more than fit one piece.
const LARGE: usize = 1_500;

/// Runs the commands in its arguments, each preceded by the number of its words.
const RUN: &str = "local at = 1 while at <= #ARGV do local n = tonumber(ARGV[at]) \
                   redis.call(unpack(ARGV, at + 1, at + n)) at = at + n + 1 end return 'done'";

/// Returns the library whose function does the same as the script.
pub(crate) fn library() -> String {
    format!("#!lua name=kills\nredis.register_function('run', function(KEYS, ARGV) {RUN} end)")
}

/// The way the commands of a step are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Plain,
    Transaction,
    Script,
    Function,
}

/// Requests that take effect as a whole or not at all.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) how: How,
    pub(crate) db: u8,
    pub(crate) ops: Vec<Op>,
}

impl Step {
    pub(crate) fn apply_to(&self, state: &mut State) {
        self.ops.iter().for_each(|op| state.apply(op));
    }

    /// Returns the set from which an unknown member was removed.
    pub(crate) fn unknown_pop(&self) -> Option<&Place> {
        match &self.ops[..] {
            [Op::Pop(place, None)] => Some(place),
            _ => None,
        }
    }

    /// Requests of the step, behind a SELECT.
    pub(crate) fn requests(&self) -> Vec<Vec<Text>> {
        let commands = self.ops.iter().map(command);
        let mut requests = vec![words(&["SELECT", &self.db.to_string()])];
        match self.how {
            How::Plain => requests.extend(commands),
            How::Transaction => {
                requests.push(words(&["MULTI"]));
                requests.extend(commands);
                requests.push(words(&["EXEC"]));
            }
            How::Script | How::Function => {
                let mut request = match self.how {
                    How::Script => words(&["EVAL", RUN, "0"]),
                    _ => words(&["FCALL", "run", "0"]),
                };
                for command in commands {
                    request.push(command.len().to_string().into_bytes());
                    request.extend(command);
                }
                requests.push(request);
            }
        }
        requests
    }
}

fn words(words: &[&str]) -> Vec<Text> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

pub(crate) fn id_text(id: Id) -> Text {
    format!("{}-{}", id.0, id.1).into_bytes()
}

/// The words of a command.
fn command(op: &Op) -> Vec<Text> {
    let with = |name: &str, place: &Place, rest: &[&[u8]]| {
        let mut all = words(&[name, &place.1]);
        all.extend(rest.iter().map(|word| word.to_vec()));
        all
    };
    let number = |number: i64| number.to_string().into_bytes();
    match op {
        Op::Set(place, text, _) if is_fleeting(&place.1) => {
            with("SET", place, &[text, b"PX", b"15"])
        }
        Op::Set(place, text, -1) => with("SET", place, &[text]),
        Op::Set(place, text, at) => with("SET", place, &[text, b"PXAT", &number(*at)]),
        Op::Append(place, text) => with("APPEND", place, &[text]),
        Op::IncrBy(place, by) => with("INCRBY", place, &[&number(*by)]),
        Op::SetBit(place, at) => with("SETBIT", place, &[&number(*at as i64), b"1"]),
        Op::IncrByFloat(place) => with("INCRBYFLOAT", place, &[b"0.5"]),
        Op::Push(place, items) => with("RPUSH", place, &slices(items)),
        Op::PopLeft(place, count) => with("LPOP", place, &[&number(*count as i64)]),
        Op::Move(from, to) => with("LMOVE", from, &[to.1.as_bytes(), b"LEFT", b"RIGHT"]),
        Op::Add(place, members) => with("SADD", place, &slices(members)),
        Op::Remove(place, member) => with("SREM", place, &[member]),
        Op::Pop(place, _) => with("SPOP", place, &[]),
        Op::Score(place, members) => {
            let mut all = with("ZADD", place, &[]);
            for (score, member) in members {
                all.extend([number(*score), member.clone()]);
            }
            all
        }
        Op::ScoreBy(place, by, member) => with("ZINCRBY", place, &[&number(*by), member]),
        Op::PopMin(place) => with("ZPOPMIN", place, &[]),
        Op::HashSet(place, fields) => {
            let mut all = with("HSET", place, &[]);
            for (field, value) in fields {
                all.extend([field.clone(), value.clone()]);
            }
            all
        }
        Op::HashIncr(place, field, by) => with("HINCRBY", place, &[field, &number(*by)]),
        Op::HashDel(place, field) => with("HDEL", place, &[field]),
        Op::HashExpire(place, field, at) => {
            with("HPEXPIREAT", place, &[&number(*at), b"FIELDS", b"1", field])
        }
        Op::AddEntry(place, ms, text, most) => {
            let most = number(*most as i64);
            let id = format!("{ms}-*").into_bytes();
            with("XADD", place, &[b"MAXLEN", b"=", &most, &id, b"f", text])
        }
        Op::Group(place) => {
            let mut all = words(&["XGROUP", "CREATE", &place.1, "g", "0"]);
            all.extend(words(&["MKSTREAM"]));
            all
        }
        Op::Deliver(place, count) => {
            let count = count.to_string();
            words(&[
                "XREADGROUP",
                "GROUP",
                "g",
                "c",
                "COUNT",
                &count,
                "STREAMS",
                &place.1,
                ">",
            ])
        }
        Op::Acknowledge(place, ids) => {
            let mut all = with("XACK", place, &[b"g"]);
            all.extend(ids.iter().map(|id| id_text(*id)));
            all
        }
        Op::Delete(place) => with("DEL", place, &[]),
        Op::Rename(from, to) => with("RENAME", from, &[to.1.as_bytes()]),
        Op::Copy(from, to) => {
            let db = to.0.to_string();
            with(
                "COPY",
                from,
                &[to.1.as_bytes(), b"DB", db.as_bytes(), b"REPLACE"],
            )
        }
        Op::Expire(place, at) => with("PEXPIREAT", place, &[&number(*at)]),
        Op::Persist(place) => with("PERSIST", place, &[]),
        Op::FlushDb(_) => words(&["FLUSHDB"]),
        Op::SwapDb(one, two) => words(&["SWAPDB", &one.to_string(), &two.to_string()]),
    }
}

fn slices(texts: &[Text]) -> Vec<&[u8]> {
    texts.iter().map(Vec::as_slice).collect()
}

/// Generates steps.
pub(crate) struct Maker {
    pub(crate) draw: Draw,
    /// The databases of this client alone.
    pub(crate) dbs: [u8; 2],
    stamps: u64,
}

impl Maker {
    pub(crate) fn new(seed: u64, dbs: [u8; 2]) -> Maker {
        Maker {
            draw: Draw::new(seed),
            dbs,
            stamps: 0,
        }
    }

    /// Returns the next step and applies it to `state`, the predicted state.
    pub(crate) fn step(&mut self, state: &mut State) -> Step {
        let db = self.dbs[usize::from(self.draw.below(4) == 0)];
        let how = match self.draw.below(10) {
            0..5 => How::Plain,
            5..8 => How::Transaction,
            8 => How::Script,
            _ => How::Function,
        };
        let count = match how {
            How::Plain => 1,
            _ => 2 + self.draw.below(5),
        };
        let mut ops = Vec::new();
        while ops.len() < count {
            let op = self.op(db, state, how == How::Plain);
            state.apply(&op);
            ops.push(op);
        }
        Step { how, db, ops }
    }

    fn text(&mut self) -> Text {
        self.stamps += 1;
        let len = match self.draw.below(60) {
            // From 16 KiB on values go by reference.
            0 => 16_384 + self.draw.below(30_000),
            1..6 => 200 + self.draw.below(2_000),
            _ => self.draw.below(20),
        };
        let mut text = format!("{}\r\n*", self.stamps).into_bytes();
        let byte = b'a' + self.draw.below(26) as u8;
        text.resize(text.len() + len, byte);
        text
    }

    fn texts(&mut self) -> Vec<Text> {
        (0..1 + self.draw.below(4)).map(|_| self.text()).collect()
    }

    fn member(&mut self, of: usize) -> Text {
        format!("m{}", self.draw.below(of)).into_bytes()
    }

    fn place(&mut self, db: u8, prefix: &str, count: usize) -> Place {
        (db, format!("{prefix}:{}", self.draw.below(count)))
    }

    fn op(&mut self, db: u8, state: &State, is_alone: bool) -> Op {
        match self.draw.below(40) {
            0..3 => self.on_strings(db),
            3..6 => {
                let place = self.place(db, "n", 4);
                Op::IncrBy(place, self.draw.below(100) as i64 - 20)
            }
            6 => Op::SetBit(self.place(db, "b", 2), self.draw.below(5_000)),
            7 => Op::IncrByFloat(self.place(db, "f", 2)),
            8..13 => self.on_lists(db, state),
            13..18 => self.on_sets(db, state, is_alone),
            18..23 => self.on_sorted_sets(db),
            23..28 => self.on_hashes(db, state),
            28..33 => self.on_streams(db, state),
            33..36 => self.on_large(db, state),
            36..39 => self.on_keys(db, state),
            // Seldom, or nothing would ever grow.
            _ => match self.draw.below(60) {
                0 if is_alone => Op::FlushDb(db),
                1..4 if is_alone => Op::SwapDb(self.dbs[0], self.dbs[1]),
                _ => Op::Set(self.place(db, "v", 5), self.text(), -1),
            },
        }
    }

    fn on_strings(&mut self, db: u8) -> Op {
        let place = self.place(db, "s", 6);
        match self.draw.below(4) {
            0 => Op::Append(place, b"more;".to_vec()),
            1 => Op::Set(
                place,
                self.text(),
                DEADLINE_MS + self.draw.below(1_000) as i64,
            ),
            _ => Op::Set(place, self.text(), -1),
        }
    }

    fn on_lists(&mut self, db: u8, state: &State) -> Op {
        let place = self.place(db, "l", 4);
        let len = match state.get(&place) {
            Some(Content::List(items)) => items.len(),
            _ => 0,
        };
        match self.draw.below(5) {
            0 if len > 0 => {
                let to = (db, "l:to".to_owned());
                Op::Move(place, to)
            }
            1 if self.draw.below(8) == 0 => Op::Delete((db, "l:to".to_owned())),
            1 | 2 if len > 0 => Op::PopLeft(place, 1 + self.draw.below(4)),
            _ if len > 60 => Op::PopLeft(place, 50),
            _ => Op::Push(place, self.texts()),
        }
    }

    fn on_sets(&mut self, db: u8, state: &State, is_alone: bool) -> Op {
        let place = self.place(db, "x", 3);
        match self.draw.below(5) {
            // Its reply names the removed member: no other command may come between.
            0 if is_alone && state.get(&place).is_some() => Op::Pop(place, None),
            1 => Op::Remove(place, self.member(30)),
            2 => Op::Add(place, self.texts()),
            _ => Op::Add(
                place,
                vec![self.member(30), self.draw.below(9).to_string().into()],
            ),
        }
    }

    fn on_sorted_sets(&mut self, db: u8) -> Op {
        let place = self.place(db, "z", 3);
        match self.draw.below(4) {
            0 => Op::PopMin(place),
            1 => Op::ScoreBy(place, self.draw.below(9) as i64 - 4, self.member(40)),
            _ => {
                let score = self.draw.below(1_000) as i64;
                Op::Score(
                    place,
                    vec![(score, self.member(40)), (-score, self.member(40))],
                )
            }
        }
    }

    fn on_hashes(&mut self, db: u8, state: &State) -> Op {
        let place = self.place(db, "h", 3);
        let field = self.member(20);
        let is_there = match state.get(&place) {
            Some(Content::Hash(fields)) => fields.contains_key(&field),
            _ => false,
        };
        match self.draw.below(5) {
            0 => Op::HashDel(place, field),
            1 if is_there => Op::HashExpire(place, field, DEADLINE_MS + 5),
            2 => {
                let place = self.place(db, "i", 2);
                Op::HashIncr(place, field, self.draw.below(50) as i64)
            }
            _ => Op::HashSet(
                place,
                vec![(field, self.text()), (self.member(20), b"v".to_vec())],
            ),
        }
    }

    fn on_streams(&mut self, db: u8, state: &State) -> Op {
        let place = self.place(db, "t", 3);
        let Some(Content::Stream { last, group, .. }) = state.get(&place) else {
            return Op::AddEntry(place, 5, self.text(), 100);
        };
        let ms = last.0 + self.draw.below(2) as u64;
        match (self.draw.below(4), group) {
            (0, None) => Op::Group(place),
            (0, Some(_)) => Op::Deliver(place, 1 + self.draw.below(3)),
            (1, Some((_, pending))) if !pending.is_empty() => {
                let ids = pending.iter().take(2).copied().collect();
                Op::Acknowledge(place, ids)
            }
            _ => Op::AddEntry(place, ms, self.text(), 40),
        }
    }

    /// Changes values that snapshots save in pieces.
    fn on_large(&mut self, db: u8, state: &State) -> Op {
        let (set, sorted, hash) = ((db, "X:0".into()), (db, "Z:0".into()), (db, "H:0".into()));
        let numbers = || (0..LARGE).map(|number| format!("m{number}").into_bytes());
        let scored = |(index, member)| (index as i64, member);
        let field = self.member(LARGE);
        match self.draw.below(6) {
            0 | 1 if state.get(&set).is_none() => Op::Add(set, numbers().collect()),
            2 | 3 if state.get(&sorted).is_none() => {
                Op::Score(sorted, numbers().enumerate().map(scored).collect())
            }
            4 | 5 if state.get(&hash).is_none() => {
                let pair = |field: Text| (field.clone(), field);
                Op::HashSet(hash, numbers().map(pair).collect())
            }
            0 => Op::Remove(set, field),
            1 => Op::Add(set, vec![field]),
            2 => Op::ScoreBy(sorted, self.draw.below(90) as i64, field),
            3 => Op::PopMin(sorted),
            4 => Op::HashDel(hash, field),
            _ => Op::HashSet(hash, vec![(field, self.text())]),
        }
    }

    fn on_keys(&mut self, db: u8, state: &State) -> Op {
        let kinds = ["s", "n", "l", "x", "z", "h", "t", "v", "X", "H"];
        let kind = kinds[self.draw.below(kinds.len())];
        let place = self.place(
            db,
            kind,
            if kind.as_bytes()[0].is_ascii_uppercase() {
                1
            } else {
                3
            },
        );
        if state.get(&place).is_none() {
            return Op::Delete(place);
        }
        let other = self.place(db, kind, 3);
        match self.draw.below(6) {
            0 | 1 => Op::Expire(place, DEADLINE_MS + self.draw.below(100) as i64),
            2 => Op::Persist(place),
            3 if other != place => Op::Rename(place, other),
            4 => {
                let to = (self.dbs[usize::from(db == self.dbs[0])], other.1);
                Op::Copy(place, to)
            }
            _ => Op::Delete(place),
        }
    }
}
