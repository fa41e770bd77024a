//! Clients that use single keys by many commands, and write down the history of each key.

use std::collections::HashMap;

use crate::clients::{Command, Connection, Pool, Shared, command, is_elsewhere, is_refusal};
use crate::history::NEVER;
use crate::linear::{Event, Verdict, search};
use crate::objects::{Answer, Ask, Call, Leased, Lock, Text, event};
use crate::support::Draw;
use crate::wire::Value;

/// The use of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Use {
    /// GET, SET, SET IFEQ, INCR, APPEND, DEL.
    Text,
    /// PEXPIRE too.
    Expiring,
    /// Mostly GET, by all clients at once.
    Hot,
    /// SET with a tag, TAG INVALIDATE, GET, DEL.
    Tagged,
    Lock,
    Leased,
}

/// The keys of a round, by their use.
pub(crate) struct Pools {
    pools: Vec<(Use, Pool)>,
}

impl Pools {
    pub(crate) fn new(shared: &Shared) -> Pools {
        let mut pools = vec![
            (Use::Text, Pool::new(shared, 6, 400)),
            (Use::Expiring, Pool::new(shared, 4, 400)),
            (Use::Hot, Pool::new(shared, 2, 30_000)),
        ];
        if shared.is_ours {
            pools.push((Use::Tagged, Pool::new(shared, 3, 400)));
            pools.push((Use::Lock, Pool::new(shared, 3, 400)));
        }
        if shared.is_ours && shared.has_leases {
            pools.push((Use::Leased, Pool::new(shared, 3, 400)));
        }
        Pools { pools }
    }

    /// Returns a use and a key; the clients that read hot keys draw mostly these.
    fn draw(&self, shared: &Shared, draw: &mut Draw, reads_hot: bool) -> (Use, u64) {
        let index = match reads_hot && draw.below(10) > 0 {
            true => 2,
            false => draw.below(self.pools.len()),
        };
        let (used, pool) = &self.pools[index];
        (*used, pool.draw(shared, draw, 1))
    }
}

/// The operations on each key.
pub(crate) type Histories = HashMap<(Use, u64), Vec<Event<Call>>>;

/// Sends commands until the round is over.
pub(crate) fn run(shared: &Shared, pools: &Pools, number: u64, seed: u64) -> Histories {
    let mut draw = Draw::new(seed);
    let mut connection = Connection::new(shared);
    let mut histories = Histories::new();
    // The last value that each key was seen to have, for conditions that often hold; leases of this client.
    let mut seen: HashMap<u64, String> = HashMap::new();
    let mut tokens: HashMap<u64, u64> = HashMap::new();
    while !shared.is_over() {
        if !connection.is_open() {
            continue;
        }
        let (used, key) = pools.draw(shared, &mut draw, number % 2 == 1);
        let ask = ask(
            shared,
            &mut draw,
            used,
            number,
            seen.get(&key),
            tokens.get(&key),
        );
        let words = words(used, key, &ask);
        let port = connection.port();
        let began = shared.now();
        let replies = connection.exchange(&[words]);
        let reply = replies.first();
        if reply.is_some_and(|(_, reply)| is_elsewhere(reply)) {
            connection.close();
        }
        if reply.is_some_and(|(_, reply)| is_refusal(reply)) {
            continue;
        }
        let (ended, answer) = match reply {
            Some((ended, reply)) => (*ended, answer(&ask, reply)),
            None => (shared.settled(port), Answer::Unknown),
        };
        let ended = if reply.is_some() && answer == Answer::Unknown {
            NEVER
        } else {
            ended
        };
        match &answer {
            Answer::Text(text) => drop(seen.insert(key, text.clone())),
            Answer::Miss(token) => drop(tokens.insert(key, *token)),
            _ => {}
        }
        let history = histories.entry((used, key)).or_default();
        history.push(event(began, ended, ask, answer));
    }
    histories
}

fn ask(
    shared: &Shared,
    draw: &mut Draw,
    used: Use,
    number: u64,
    seen: Option<&String>,
    token: Option<&u64>,
) -> Ask {
    let value = || shared.new_element().to_string();
    let condition = || Ask::SetIfEq(value(), seen.cloned().unwrap_or_default());
    match used {
        Use::Text => match draw.below(12) {
            0..4 => Ask::Get,
            4 => Ask::Set(value()),
            5 | 6 if shared.is_ours => condition(),
            5..8 => Ask::Incr,
            8 => Ask::Append("x".to_owned()),
            9 => Ask::Del,
            _ => Ask::Set(value()),
        },
        // Deadlines that nothing takes away, so that they come.
        Use::Expiring => match draw.below(60) {
            0 => Ask::Set(value()),
            1 => Ask::PExpire(1 + draw.below(30) as u64),
            2 => Ask::PExpire(400 + draw.below(400) as u64),
            3..10 => Ask::Incr,
            _ => Ask::Get,
        },
        Use::Hot => match draw.below(if number % 2 == 1 { 400 } else { 40 }) {
            0 => Ask::Set(value()),
            1 => Ask::Incr,
            2 => Ask::Del,
            3 if shared.is_ours => condition(),
            _ => Ask::Get,
        },
        Use::Tagged => match draw.below(10) {
            0..3 => Ask::Set(value()),
            3 | 4 => Ask::Invalidate,
            5 => Ask::Del,
            _ => Ask::Get,
        },
        Use::Lock => match draw.below(2) {
            0 => Ask::Lock(format!("owner{}", number % 3)),
            _ => Ask::Unlock(format!("owner{}", number % 3)),
        },
        Use::Leased => match draw.below(8) {
            0..3 => Ask::LGet,
            3..6 => Ask::LFill(token.copied().unwrap_or(1), value()),
            6 => Ask::Del,
            _ => [Ask::Get, Ask::Set(value())][draw.below(2)].clone(),
        },
    }
}

fn words(used: Use, key: u64, ask: &Ask) -> Command {
    let key = format!("{used:?}:{key}").to_lowercase();
    match ask {
        Ask::Get => command(["GET", &key]),
        Ask::Set(value) if used == Use::Tagged => {
            command(["SET", &key, value, "TAGS", "1", &format!("of:{key}")])
        }
        Ask::Set(value) => command(["SET", &key, value]),
        Ask::SetIfEq(value, wanted) => command(["SET", &key, value, "IFEQ", wanted]),
        Ask::Incr => command(["INCR", &key]),
        Ask::Append(more) => command(["APPEND", &key, more]),
        Ask::Del => command(["DEL", &key]),
        Ask::Invalidate => command(["TAG", "INVALIDATE", &format!("of:{key}")]),
        Ask::PExpire(ms) => command(["PEXPIRE", &key, &ms.to_string()]),
        Ask::Lock(owner) => command(["LOCK", &key, owner, "3600000"]),
        Ask::Unlock(owner) => command(["UNLOCK", &key, owner]),
        Ask::LGet => command(["LGET", &key, "LEASE", "3600000"]),
        Ask::LFill(token, value) => command(["LFILL", &key, &token.to_string(), value]),
    }
}

fn answer(ask: &Ask, reply: &Value) -> Answer {
    let number = |value: &Value| match value {
        Value::Integer(number) => *number,
        _ => -1,
    };
    match reply {
        Value::Simple(_) => Answer::Done,
        Value::Integer(number) => Answer::Number(*number),
        Value::Bulk(_) => Answer::Text(reply.text()),
        Value::Array(items) if matches!(ask, Ask::Lock(_)) && items.len() == 2 => {
            Answer::Held(number(&items[0]) as u64, number(&items[1]))
        }
        Value::Array(items) if items.len() == 3 => match items[1].text().as_str() {
            "miss" => Answer::Miss(number(&items[2]) as u64),
            "busy" => Answer::Busy,
            _ => Answer::Text(items[0].text()),
        },
        Value::Error(text) if text.starts_with(b"ERR value is not an integer") => {
            Answer::NotAnInteger
        }
        Value::Error(text) if text.starts_with(b"NOTOWNER") => Answer::NotTheOwner,
        reply if reply.is_nil() => Answer::Nil,
        _ => Answer::Unknown,
    }
}

/// The verdict on the histories of all keys of a round.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    pub(crate) keys: usize,
    pub(crate) operations: usize,
    /// The keys whose history no order explains, each with the part at which the explanation ends.
    pub(crate) broken: Vec<String>,
    /// The searches that were given up.
    pub(crate) undecided: usize,
}

pub(crate) fn judge(histories: &Histories) -> Judgement {
    let mut judgement = Judgement::default();
    for ((used, key), history) in histories {
        judgement.keys += 1;
        judgement.operations += history.len();
        let verdict = match used {
            Use::Text | Use::Expiring | Use::Hot | Use::Tagged => search(history, Text::default()),
            Use::Lock => search(history, Lock::default()),
            Use::Leased => search(history, Leased::default()),
        };
        match verdict {
            Verdict::Linearizable => {}
            Verdict::Undecided => judgement.undecided += 1,
            Verdict::Broken(at) => {
                let mut events: Vec<_> = history.iter().collect();
                events.sort_by_key(|event| (!event.is_answered, event.began));
                let around = events.iter().skip(at.saturating_sub(12)).take(24);
                let around: Vec<String> = around.map(|event| format!("{event:?}")).collect();
                let text = format!("{used:?} {key}, near {at}:\n{}", around.join("\n"));
                judgement.broken.push(text);
            }
        }
    }
    judgement
}
