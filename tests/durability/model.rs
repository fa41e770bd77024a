//! A model of a client's keys, computed from the commands that it sent: a plain copy, which shares no code
//! with the server.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

pub(crate) type Text = Vec<u8>;

/// An id of a stream's entry.
pub(crate) type Id = (u64, u64);

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Content {
    String(Text),
    List(VecDeque<Text>),
    Set(BTreeSet<Text>),
    /// Scores are whole numbers.
    SortedSet(BTreeMap<Text, i64>),
    /// Fields with their deadlines; -1 for none.
    Hash(BTreeMap<Text, (Text, i64)>),
    Stream {
        entries: BTreeMap<Id, Text>,
        last: Id,
        /// State of its one group: the last delivered ID, and the pending ones.
        group: Option<(Id, BTreeSet<Id>)>,
    },
}

/// A key's value and its deadline; -1: none.
pub(crate) type Slot = (Content, i64);

/// Location of a key: database and name.
pub(crate) type Place = (u8, String);

/// One command.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Set(Place, Text, i64),
    Append(Place, Text),
    IncrBy(Place, i64),
    SetBit(Place, usize),
    /// Adds one half.
    IncrByFloat(Place),
    Push(Place, Vec<Text>),
    PopLeft(Place, usize),
    Move(Place, Place),
    Add(Place, Vec<Text>),
    Remove(Place, Text),
    /// Removes a random member, which the reply names.
    Pop(Place, Option<Text>),
    Score(Place, Vec<(i64, Text)>),
    ScoreBy(Place, i64, Text),
    PopMin(Place),
    HashSet(Place, Vec<(Text, Text)>),
    HashIncr(Place, Text, i64),
    HashDel(Place, Text),
    HashExpire(Place, Text, i64),
    /// Adds an entry, and trims the stream to a length.
    AddEntry(Place, u64, Text, usize),
    /// The stream's group.
    Group(Place),
    Deliver(Place, usize),
    Acknowledge(Place, Vec<Id>),
    Delete(Place),
    Rename(Place, Place),
    Copy(Place, Place),
    Expire(Place, i64),
    Persist(Place),
    FlushDb(u8),
    SwapDb(u8, u8),
}

/// All data of a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) slots: BTreeMap<Place, Slot>,
    /// Checksum of all slots, by which states are told apart.
    sum: u64,
}

fn sum_of(place: &Place, slot: &Slot) -> u64 {
    let mut hasher = DefaultHasher::new();
    (place, slot).hash(&mut hasher);
    hasher.finish()
}

/// True for keys that expire soon; no check relies on them.
pub(crate) fn is_fleeting(key: &str) -> bool {
    key.starts_with("v:")
}

impl State {
    pub(crate) fn of(slots: BTreeMap<Place, Slot>) -> State {
        let sums = slots.iter().map(|(place, slot)| sum_of(place, slot));
        let sum = sums.fold(0, |sum, one| sum ^ one);
        State { slots, sum }
    }

    pub(crate) fn is_like(&self, other: &State) -> bool {
        self.sum == other.sum && self.slots == other.slots
    }

    /// Returns the keys that differ, for a report.
    pub(crate) fn differences(&self, other: &State) -> Vec<String> {
        let all: BTreeSet<&Place> = self.slots.keys().chain(other.slots.keys()).collect();
        let differing = all
            .into_iter()
            .filter(|place| self.slots.get(*place) != other.slots.get(*place));
        differing
            .map(|place| {
                let shown = |state: &State| {
                    let slot = format!("{:?}", state.slots.get(place));
                    slot.chars().take(400).collect::<String>()
                };
                format!(
                    "{place:?}\n  expected {}\n  found    {}",
                    shown(self),
                    shown(other)
                )
            })
            .collect()
    }

    pub(crate) fn get(&self, place: &Place) -> Option<&Content> {
        self.slots.get(place).map(|slot| &slot.0)
    }

    fn take(&mut self, place: &Place) -> Option<Slot> {
        let slot = self.slots.remove(place)?;
        self.sum ^= sum_of(place, &slot);
        Some(slot)
    }

    fn put(&mut self, place: &Place, slot: Slot) {
        let is_empty = match &slot.0 {
            Content::List(items) => items.is_empty(),
            Content::Set(members) => members.is_empty(),
            Content::SortedSet(members) => members.is_empty(),
            Content::Hash(fields) => fields.is_empty(),
            Content::String(_) | Content::Stream { .. } => false,
        };
        if is_empty || is_fleeting(&place.1) {
            return;
        }
        self.sum ^= sum_of(place, &slot);
        self.slots.insert(place.clone(), slot);
    }

    /// Changes a value, which is created first if there is none.
    fn change(&mut self, place: &Place, new: Content, change: impl FnOnce(&mut Content)) {
        let mut slot = self.take(place).unwrap_or((new, -1));
        change(&mut slot.0);
        self.put(place, slot);
    }

    pub(crate) fn apply(&mut self, op: &Op) {
        match op {
            Op::Delete(place) => drop(self.take(place)),
            Op::Rename(from, to) => {
                let slot = self.take(from).expect("it is there");
                self.take(to);
                self.put(to, slot);
            }
            Op::Copy(from, to) => {
                let slot = self.slots.get(from).expect("it is there").clone();
                self.take(to);
                self.put(to, slot);
            }
            Op::Expire(place, at) => {
                let (content, _) = self.take(place).expect("it is there");
                self.put(place, (content, *at));
            }
            Op::Persist(place) => {
                let (content, _) = self.take(place).expect("it is there");
                self.put(place, (content, -1));
            }
            Op::FlushDb(db) => self.slots.retain(|place, _| place.0 != *db),
            Op::SwapDb(one, two) => {
                let all = std::mem::take(&mut self.slots).into_iter();
                let swap = |db: u8| match db {
                    _ if db == *one => *two,
                    _ if db == *two => *one,
                    _ => db,
                };
                self.slots = all
                    .map(|((db, key), slot)| ((swap(db), key), slot))
                    .collect();
            }
            _ => self.apply_to_value(op),
        }
        if matches!(op, Op::FlushDb(_) | Op::SwapDb(..)) {
            *self = State::of(std::mem::take(&mut self.slots));
        }
    }

    fn apply_to_value(&mut self, op: &Op) {
        match op {
            Op::Set(place, text, at) => {
                self.take(place);
                self.put(place, (Content::String(text.clone()), *at));
            }
            Op::Append(place, _)
            | Op::IncrBy(place, _)
            | Op::SetBit(place, _)
            | Op::IncrByFloat(place) => {
                self.change(place, Content::String(Text::new()), |content| {
                    let Content::String(text) = content else {
                        panic!("{op:?}")
                    };
                    change_string(op, text);
                });
            }
            Op::Push(place, _) | Op::PopLeft(place, _) => {
                self.change(place, Content::List(VecDeque::new()), |content| {
                    let Content::List(items) = content else {
                        panic!("{op:?}")
                    };
                    change_list(op, items);
                });
            }
            Op::Move(from, to) => {
                let mut moved = None;
                self.change(from, Content::List(VecDeque::new()), |content| {
                    if let Content::List(items) = content {
                        moved = items.pop_front();
                    }
                });
                if let Some(moved) = moved {
                    self.apply_to_value(&Op::Push(to.clone(), vec![moved]));
                }
            }
            Op::Add(place, _) | Op::Remove(place, _) | Op::Pop(place, _) => {
                self.change(place, Content::Set(BTreeSet::new()), |content| {
                    let Content::Set(members) = content else {
                        panic!("{op:?}")
                    };
                    change_set(op, members);
                });
            }
            Op::Score(place, _) | Op::ScoreBy(place, ..) | Op::PopMin(place) => {
                self.change(place, Content::SortedSet(BTreeMap::new()), |content| {
                    let Content::SortedSet(members) = content else {
                        panic!("{op:?}")
                    };
                    change_sorted_set(op, members);
                });
            }
            Op::HashSet(place, _)
            | Op::HashIncr(place, ..)
            | Op::HashDel(place, _)
            | Op::HashExpire(place, ..) => {
                self.change(place, Content::Hash(BTreeMap::new()), |content| {
                    let Content::Hash(fields) = content else {
                        panic!("{op:?}")
                    };
                    change_hash(op, fields);
                });
            }
            _ => self.apply_to_stream(op),
        }
    }

    fn apply_to_stream(&mut self, op: &Op) {
        let (Op::AddEntry(place, ..)
        | Op::Group(place)
        | Op::Deliver(place, _)
        | Op::Acknowledge(place, _)) = op
        else {
            panic!("{op:?}")
        };
        let new = Content::Stream {
            entries: BTreeMap::new(),
            last: (0, 0),
            group: None,
        };
        self.change(place, new, |content| {
            let Content::Stream {
                entries,
                last,
                group,
            } = content
            else {
                panic!("{op:?}")
            };
            match op {
                Op::AddEntry(_, ms, text, most) => {
                    let id = match *ms == last.0 {
                        true => (*ms, last.1 + 1),
                        false => (*ms, 0),
                    };
                    *last = id;
                    entries.insert(id, text.clone());
                    while entries.len() > *most {
                        entries.pop_first();
                    }
                }
                Op::Group(_) => *group = Some(Default::default()),
                Op::Deliver(_, count) => {
                    let (delivered, pending) = group.as_mut().expect("there is one");
                    let behind = entries.range((delivered.0, delivered.1 + 1)..);
                    for id in behind.map(|(id, _)| *id).take(*count) {
                        *delivered = id;
                        pending.insert(id);
                    }
                }
                Op::Acknowledge(_, ids) => {
                    let (_, pending) = group.as_mut().expect("there is one");
                    pending.retain(|id| !ids.contains(id));
                }
                _ => unreachable!("looked at above"),
            }
        });
    }
}

fn number_of(text: &[u8]) -> i64 {
    let text = std::str::from_utf8(text).expect("a number");
    if text.is_empty() {
        return 0;
    }
    text.parse().expect("a number")
}

fn change_string(op: &Op, text: &mut Text) {
    match op {
        Op::Append(_, more) => text.extend_from_slice(more),
        Op::IncrBy(_, by) => *text = (number_of(text) + by).to_string().into_bytes(),
        Op::SetBit(_, at) => {
            if text.len() <= at / 8 {
                text.resize(at / 8 + 1, 0);
            }
            text[at / 8] |= 0x80 >> (at % 8);
        }
        Op::IncrByFloat(_) => {
            let known = String::from_utf8_lossy(text);
            let value: f64 = known.parse().unwrap_or(0.0);
            *text = (value + 0.5).to_string().into_bytes();
        }
        _ => unreachable!("for strings"),
    }
}

fn change_list(op: &Op, items: &mut VecDeque<Text>) {
    match op {
        Op::Push(_, more) => items.extend(more.iter().cloned()),
        Op::PopLeft(_, count) => drop(items.drain(..(*count).min(items.len()))),
        _ => unreachable!("for lists"),
    }
}

fn change_set(op: &Op, members: &mut BTreeSet<Text>) {
    match op {
        Op::Add(_, more) => members.extend(more.iter().cloned()),
        Op::Remove(_, member) => drop(members.remove(member)),
        Op::Pop(_, member) => {
            if let Some(member) = member {
                assert!(members.remove(member), "{op:?} of {members:?}");
            }
        }
        _ => unreachable!("for sets"),
    }
}

fn change_sorted_set(op: &Op, members: &mut BTreeMap<Text, i64>) {
    match op {
        Op::Score(_, more) => {
            members.extend(more.iter().map(|(score, member)| (member.clone(), *score)));
        }
        Op::ScoreBy(_, by, member) => *members.entry(member.clone()).or_default() += by,
        Op::PopMin(_) => {
            let least = members
                .iter()
                .min_by_key(|(member, score)| (**score, *member));
            if let Some(member) = least.map(|(member, _)| member.clone()) {
                members.remove(&member);
            }
        }
        _ => unreachable!("for sorted sets"),
    }
}

fn change_hash(op: &Op, fields: &mut BTreeMap<Text, (Text, i64)>) {
    match op {
        Op::HashSet(_, more) => {
            for (field, value) in more {
                fields.insert(field.clone(), (value.clone(), -1));
            }
        }
        Op::HashIncr(_, field, by) => {
            let known = fields.entry(field.clone()).or_insert((Text::new(), -1));
            known.0 = (number_of(&known.0) + by).to_string().into_bytes();
        }
        Op::HashDel(_, field) => drop(fields.remove(field)),
        Op::HashExpire(_, field, at) => {
            if let Some(known) = fields.get_mut(field) {
                known.1 = *at;
            }
        }
        _ => unreachable!("for hashes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_told_from_another_by_what_it_holds() {
        let place = |key: &str| (0, key.to_owned());
        let mut one = State::default();
        one.apply(&Op::Push(place("l"), vec![b"a".to_vec(), b"b".to_vec()]));
        let mut two = one.clone();
        assert!(one.is_like(&two));
        two.apply(&Op::PopLeft(place("l"), 1));
        assert!(!one.is_like(&two) && one.differences(&two).len() == 1);
        two.apply(&Op::PopLeft(place("l"), 1));
        assert!(two.is_like(&State::default()), "an empty list is no list");
        one.apply(&Op::SwapDb(0, 1));
        assert!(one.get(&(1, "l".to_owned())).is_some());
        one.apply(&Op::FlushDb(1));
        assert!(one.is_like(&two));
    }
}
