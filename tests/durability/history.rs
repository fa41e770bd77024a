//! A client that remembers its requests and their acknowledgements, and checks the server's data after a
//! kill.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::model::{Content, Id, Op, Place, Slot, State, Text, is_fleeting};
use crate::steps::{Maker, Step, id_text};
use crate::support::{Server, eventually};
use crate::wire::{Raw, Value, encode_into};

/// Most steps that are sent at once.
const BATCH_MAX: usize = 8;

/// A step, and the time of its reply.
struct Sent {
    step: Step,
    acknowledged: Option<Instant>,
}

/// See the module.
pub(crate) struct Client {
    maker: Maker,
    /// The server's state at the last check.
    base: State,
    sent: Vec<Sent>,
    /// The base state with all sent steps applied.
    predicted: State,
    /// Number of replicas that must have a step before it counts as acknowledged.
    replicas: u32,
}

/// The steps that must survive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Promise {
    /// All acknowledged steps.
    Acknowledged,
    /// All steps acknowledged before a time.
    Before(Instant),
}

impl Promise {
    pub(crate) fn covers(self, acknowledged: Option<Instant>) -> bool {
        match (self, acknowledged) {
            (_, None) => false,
            (Promise::Acknowledged, Some(_)) => true,
            (Promise::Before(before), Some(at)) => at < before,
        }
    }
}

impl Client {
    pub(crate) fn new(seed: u64, dbs: [u8; 2]) -> Client {
        Client {
            maker: Maker::new(seed, dbs),
            base: State::default(),
            sent: Vec::new(),
            predicted: State::default(),
            replicas: 0,
        }
    }

    /// Makes steps count as acknowledged once `replicas` replicas have them, by WAIT.
    pub(crate) fn confirmed_by(self, replicas: u32) -> Client {
        Client { replicas, ..self }
    }

    /// Writes until the server is gone.
    pub(crate) fn write(&mut self, port: u16) {
        let Ok(mut raw) = Raw::try_connect(port) else {
            return;
        };
        while self.batch(&mut raw).is_ok() {
            let us = self.maker.draw.below(2_000) as u64;
            std::thread::sleep(Duration::from_micros(us));
        }
    }

    fn batch(&mut self, raw: &mut Raw) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        let first = self.sent.len();
        for _ in 0..1 + self.maker.draw.below(BATCH_MAX) {
            let step = self.maker.step(&mut self.predicted);
            for request in step.requests() {
                encode_into(&mut bytes, &request);
            }
            let is_unknown = step.unknown_pop().is_some();
            self.sent.push(Sent {
                step,
                acknowledged: None,
            });
            if is_unknown {
                break;
            }
        }
        if self.replicas > 0 {
            let replicas = self.replicas.to_string();
            encode_into(&mut bytes, &["WAIT", &replicas, "3000"]);
        }
        raw.send_unchecked(&bytes);
        for sent in &mut self.sent[first..] {
            let reply = acknowledge(raw, &sent.step)?;
            sent.acknowledged = (self.replicas == 0).then(Instant::now);
            if let Some(place) = sent.step.unknown_pop().cloned() {
                let popped = Op::Pop(place, Some(reply.bytes().to_vec()));
                sent.step.ops = vec![popped];
                sent.step.apply_to(&mut self.predicted);
            }
        }
        if self.replicas > 0 {
            let count = raw.try_read()?.integer();
            let now = (count >= i64::from(self.replicas)).then(Instant::now);
            for sent in &mut self.sent[first..] {
                sent.acknowledged = now;
            }
        }
        Ok(())
    }

    /// Checks all data of the client. They have to be the state after one of its steps, with no promised step
    /// missing. Returns how many steps were acknowledged, and how many of them are lost.
    pub(crate) fn check(
        &mut self,
        server: &Server,
        promise: Promise,
    ) -> Result<(usize, usize), String> {
        let found = self.look(server);
        let acknowledged = self
            .sent
            .iter()
            .filter(|sent| sent.acknowledged.is_some())
            .count();
        let promised = self
            .sent
            .iter()
            .filter(|sent| promise.covers(sent.acknowledged))
            .count();
        let fits = |there: usize, state: &State| there >= promised && state.is_like(&found);
        let Some(there) = self.find(&found, fits) else {
            return Err(self.report(&found, promised, acknowledged));
        };
        self.sent.clear();
        self.predicted = found.clone();
        self.base = found;
        Ok((acknowledged, acknowledged.saturating_sub(there)))
    }

    /// Searches the states after no step, one, and so on, for the first match.
    fn find(&self, found: &State, mut is_it: impl FnMut(usize, &State) -> bool) -> Option<usize> {
        let mut state = self.base.clone();
        if is_it(0, &state) {
            return Some(0);
        }
        for (index, sent) in self.sent.iter().enumerate() {
            match sent.step.unknown_pop() {
                Some(place) => state = with_one_less(&state, place, found),
                None => sent.step.apply_to(&mut state),
            }
            if is_it(index + 1, &state) {
                return Some(index + 1);
            }
        }
        None
    }

    /// Describes the fault by the state that is nearest to the one found.
    fn report(&self, found: &State, promised: usize, acknowledged: usize) -> String {
        let mut nearest: Option<(usize, Vec<String>)> = None;
        self.find(found, |there, state| {
            let differences = state.differences(found);
            if nearest
                .as_ref()
                .is_none_or(|one| differences.len() < one.1.len())
            {
                nearest = Some((there, differences));
            }
            false
        });
        let (there, differences) = nearest.expect("the first state at least");
        let around = there.saturating_sub(2)..(there + 3).min(self.sent.len());
        let steps = self.sent[around]
            .iter()
            .map(|sent| shorten(&format!("{:?}", sent.step)));
        format!(
            "{promised} steps are promised, {acknowledged} acknowledged, {} sent; nearest is the state after {there}:\n{}\n\
             steps around:\n{}",
            self.sent.len(),
            differences.join("\n"),
            steps.collect::<Vec<_>>().join("\n")
        )
    }

    fn look(&self, server: &Server) -> State {
        let mut raw = server.raw();
        let mut slots = BTreeMap::new();
        for db in self.maker.dbs {
            raw.call(&format!("SELECT {db}"));
            let keys = |raw: &mut Raw| -> Vec<String> {
                let reply = raw.call("KEYS *");
                reply.items().iter().map(Value::text).collect()
            };
            eventually("what was to live for a moment is gone", || {
                !keys(&mut raw).iter().any(|key| is_fleeting(key))
            });
            for key in keys(&mut raw) {
                let slot = slot(&mut raw, &key);
                slots.insert((db, key), slot);
            }
        }
        State::of(slots)
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(600).collect()
}

/// Reads the replies to a step; returns the last.
fn acknowledge(raw: &mut Raw, step: &Step) -> std::io::Result<Value> {
    let mut last = Value::Null;
    for request in step.requests() {
        last = raw.try_read()?;
        let is_error = match &last {
            Value::Array(items) => items.iter().any(Value::is_error),
            reply => reply.is_error(),
        };
        if is_error && is_of_replica(&last) {
            return Err(std::io::ErrorKind::ConnectionAborted.into());
        }
        assert!(
            !is_error,
            "{}: {}",
            String::from_utf8_lossy(&request.concat()),
            last.show()
        );
    }
    Ok(last)
}

/// True if an error means that the server is no primary any more.
pub(crate) fn is_of_replica(error: &Value) -> bool {
    let text = error.show();
    ["READONLY", "UNBLOCKED", "EXECABORT"]
        .iter()
        .any(|word| text.contains(word))
}

/// Returns the state without the one set member that `found` lacks.
fn with_one_less(state: &State, place: &Place, found: &State) -> State {
    let mut state = state.clone();
    let left = match found.get(place) {
        Some(Content::Set(members)) => members.clone(),
        _ => BTreeSet::new(),
    };
    if let Some(Content::Set(members)) = state.get(place) {
        let gone: Vec<Text> = members.difference(&left).cloned().collect();
        if let [gone] = &gone[..] {
            state.apply(&Op::Remove(place.clone(), gone.clone()));
        }
    }
    state
}

fn texts(reply: &Value) -> Vec<Text> {
    reply
        .items()
        .iter()
        .map(|item| item.bytes().to_vec())
        .collect()
}

fn pairs(reply: &Value) -> impl Iterator<Item = (Text, Text)> + use<> {
    let texts = texts(reply);
    let pairs: Vec<_> = texts
        .chunks_exact(2)
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect();
    pairs.into_iter()
}

/// Reads the value of a key.
fn slot(raw: &mut Raw, key: &str) -> Slot {
    let deadline = raw.command(&["PEXPIRETIME", key]).integer();
    let kind = raw.command(&["TYPE", key]).text();
    let content = match kind.as_str() {
        "string" => Content::String(raw.command(&["GET", key]).bytes().to_vec()),
        "list" => {
            let items = texts(&raw.command(&["LRANGE", key, "0", "-1"]));
            Content::List(VecDeque::from(items))
        }
        "set" => Content::Set(
            texts(&raw.command(&["SMEMBERS", key]))
                .into_iter()
                .collect(),
        ),
        "zset" => {
            let all = pairs(&raw.command(&["ZRANGE", key, "0", "-1", "WITHSCORES"]));
            let score = |text: Text| {
                String::from_utf8_lossy(&text)
                    .parse()
                    .expect("a whole number")
            };
            Content::SortedSet(all.map(|(member, text)| (member, score(text))).collect())
        }
        "hash" => hash(raw, key),
        "stream" => stream(raw, key),
        other => panic!("{key} is a {other}"),
    };
    (content, deadline)
}

fn hash(raw: &mut Raw, key: &str) -> Content {
    let all: Vec<(Text, Text)> = pairs(&raw.command(&["HGETALL", key])).collect();
    let count = all.len().to_string();
    let mut request: Vec<Text> = ["HPEXPIRETIME", key, "FIELDS", &count]
        .map(Text::from)
        .into();
    request.extend(all.iter().map(|(field, _)| field.clone()));
    let deadlines = raw.command(&request);
    let deadlines = deadlines.items().iter().map(Value::integer);
    let fields = all.into_iter().zip(deadlines);
    Content::Hash(
        fields
            .map(|((field, value), at)| (field, (value, at)))
            .collect(),
    )
}

fn id_of(value: &Value) -> Id {
    let text = value.text();
    let (ms, number) = text.split_once('-').expect("an id");
    (
        ms.parse().expect("a number"),
        number.parse().expect("a number"),
    )
}

fn field<'v>(reply: &'v Value, name: &str) -> &'v Value {
    let mut fields = reply.items().chunks_exact(2);
    let found = fields.find(|field| field[0].text() == name);
    &found.unwrap_or_else(|| panic!("no {name} in {}", reply.show()))[1]
}

fn stream(raw: &mut Raw, key: &str) -> Content {
    let entries = raw.command(&["XRANGE", key, "-", "+"]);
    let entry = |entry: &Value| {
        let fields = entry.items()[1].items();
        (id_of(&entry.items()[0]), fields[1].bytes().to_vec())
    };
    let entries: BTreeMap<Id, Text> = entries.items().iter().map(entry).collect();
    let last = id_of(field(
        &raw.command(&["XINFO", "STREAM", key]),
        "last-generated-id",
    ));
    let groups = raw.command(&["XINFO", "GROUPS", key]);
    let group = groups.items().first().map(|group| {
        let delivered = id_of(field(group, "last-delivered-id"));
        let pending = raw.command(&["XPENDING", key, "g", "-", "+", "10000"]);
        let ids = pending.items().iter().map(|entry| id_of(&entry.items()[0]));
        (delivered, ids.collect())
    });
    if let Some((id, _)) = entries.last_key_value() {
        assert!(*id <= last, "{}", String::from_utf8_lossy(&id_text(*id)));
    }
    Content::Stream {
        entries,
        last,
        group,
    }
}
