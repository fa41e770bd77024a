//! Amounts that move between accounts on many shards, by every kind of request; every reader sees the same
//! sum, and each acknowledged move has happened once.

use crate::client::{Client, Words, eval, is_void, words};
use crate::storm::{At, Storm, Worker};
use crate::wire::Value;

const ACCOUNTS: usize = 40;
const BALANCE: i64 = 1_000;
const MOVERS: usize = 6;
const SLOW_MOVERS: usize = 2;
const AUDITORS: usize = 2;

fn account(number: usize) -> String {
    format!("account:{number}")
}

/// Moves an amount between two accounts, and counts the moves of a client: with all keys declared, or none.
/// It may be delayed before the first write, and between the two.
const MOVE: &str = "
    local from, to, moves, amount, turns = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[2])
    if not from then from, to, moves = ARGV[3], ARGV[4], ARGV[5] end
    local has = tonumber(redis.call('get', from))
    for i = 1, turns do end
    redis.call('decrby', from, amount)
    for i = 1, turns do end
    redis.call('incrby', to, amount)
    redis.call('incr', moves)
    return has";

/// The sum of all accounts, none of which it declares.
const SUM: &str = "
    local sum = 0
    for i = 0, tonumber(ARGV[1]) - 1 do sum = sum + tonumber(redis.call('get', 'account:' .. i)) end
    return sum";

fn all_accounts(command: &str) -> Words {
    let mut request = vec![command.to_owned()];
    request.extend((0..ACCOUNTS).map(account));
    request
}

pub(crate) const FLOORS: &[(&str, u64)] = &[("transfers", 200), ("audits", 50)];

pub(crate) fn workers(storm: &Storm) -> Vec<Worker> {
    let mut raw = crate::wire::Raw::connect(storm.port);
    for number in 0..ACCOUNTS {
        raw.call(&format!("SET {} {BALANCE}", account(number)));
    }
    let library = format!(
        "#!lua name=accounts
        redis.register_function('move', function(KEYS, ARGV) {MOVE} end)"
    );
    raw.command(&["FUNCTION", "LOAD", &library]);
    let mut workers: Vec<Worker> = (0..MOVERS)
        .map(|mover| Worker::new(format!("mover {mover}"), move |at| moves(at, mover, false)))
        .collect();
    workers.extend((MOVERS..MOVERS + SLOW_MOVERS).map(|mover| {
        Worker::new(format!("slow mover {mover}"), move |at| {
            moves(at, mover, true)
        })
    }));
    workers.extend((0..AUDITORS).map(|auditor| Worker::new(format!("auditor {auditor}"), audits)));
    workers
}

/// Returns the key that counts a mover's moves; there are several movers, on shards of their own.
fn moves_key(mover: usize) -> String {
    format!("moves:{mover}")
}

/// A move as a script, with all keys named or none.
fn script_of(at: &mut At<'_>, mover: usize, is_slow: bool) -> Words {
    let from = at.draw.below(ACCOUNTS);
    let to = (from + 1 + at.draw.below(ACCOUNTS - 1)) % ACCOUNTS;
    let keys = [account(from), account(to), moves_key(mover)];
    let amount = at.draw.below(50).to_string();
    // Up to 8 ms twice: some are rolled back in the middle because they take too long on their thread.
    let turns = match is_slow {
        true => at.draw.below(at.storm.turns_per_ms as usize * 8),
        false => at.draw.below(20),
    };
    let mut arguments = vec![amount, turns.to_string()];
    let names_keys = at.draw.below(2) == 0;
    if !names_keys {
        arguments.extend(keys.iter().cloned());
    }
    let keys = if names_keys { &keys[..] } else { &[] };
    match at.draw.below(3) {
        0 => {
            let mut request = words("FCALL move");
            request.push(keys.len().to_string());
            request.extend(keys.iter().cloned().chain(arguments));
            request
        }
        _ => eval(MOVE, keys, &arguments),
    }
}

/// A move as commands.
fn commands_of(at: &mut At<'_>, mover: usize) -> Vec<Words> {
    let from = at.draw.below(ACCOUNTS);
    let to = (from + 1 + at.draw.below(ACCOUNTS - 1)) % ACCOUNTS;
    let amount = at.draw.below(50);
    vec![
        words(&format!("DECRBY {} {amount}", account(from))),
        words(&format!("INCRBY {} {amount}", account(to))),
        words(&format!("INCR {}", moves_key(mover))),
    ]
}

fn moves(at: &mut At<'_>, mover: usize, is_slow: bool) {
    let mut client = at.client();
    let mut moved = 0;
    while at.goes_on() {
        let done = match at.draw.below(4) {
            0 => {
                let commands = commands_of(at, mover);
                u64::from(client.transaction(&commands).is_some())
            }
            1 => in_transaction(at, &mut client, mover, is_slow),
            _ => {
                let scripts: Vec<Words> = (0..1 + at.draw.below(3))
                    .map(|_| script_of(at, mover, is_slow))
                    .collect();
                let replies = client.batch(&scripts);
                replies.iter().map(|reply| has_moved(at, reply)).sum()
            }
        };
        moved += done;
        at.storm.count("transfers", done);
    }
    client.finish();
    at.storm.keep(&moves_key(mover), moved);
}

/// A transaction with a move as commands and one as a script.
fn in_transaction(at: &mut At<'_>, client: &mut Client, mover: usize, is_slow: bool) -> u64 {
    let mut commands = commands_of(at, mover);
    commands.insert(at.draw.below(4), script_of(at, mover, is_slow));
    let Some(replies) = client.transaction(&commands) else {
        return 0;
    };
    // A script that was killed has not moved anything; the commands beside it have.
    let killed = replies.iter().filter(|reply| is_void(reply)).count();
    at.storm.count("scripts in EXEC", 1);
    2 - killed as u64
}

fn has_moved(at: &At<'_>, reply: &Value) -> u64 {
    match reply {
        Value::Integer(_) => 1,
        reply if is_void(reply) => {
            at.storm.count("moves turned away or killed", 1);
            0
        }
        reply => panic!("{}: a move: {}", at.name, reply.show()),
    }
}

fn sum(values: &[Value]) -> i64 {
    let balance = |value: &Value| -> i64 { value.text().parse().expect("a balance") };
    values.iter().map(balance).sum()
}

const TOTAL: i64 = ACCOUNTS as i64 * BALANCE;

fn audits(at: &mut At<'_>) {
    let mut client = at.client();
    while at.goes_on() {
        let seen = match at.draw.below(3) {
            0 => match client.call(all_accounts("MGET")) {
                Value::Array(values) => Some(sum(&values)),
                reply if is_void(&reply) => None,
                reply => panic!("MGET: {}", reply.show()),
            },
            1 => {
                let gets: Vec<Words> = (0..ACCOUNTS)
                    .map(|number| words(&format!("GET {}", account(number))))
                    .collect();
                client.transaction(&gets).map(|values| sum(&values))
            }
            _ => match client.call(eval(SUM, &[], &[ACCOUNTS.to_string()])) {
                Value::Integer(sum) => Some(sum),
                reply if is_void(&reply) => None,
                reply => panic!("a sum: {}", reply.show()),
            },
        };
        if let Some(seen) = seen {
            at.storm.count("audits", 1);
            if seen != TOTAL {
                at.storm
                    .fault(format!("{}: all accounts have {seen} of {TOTAL}", at.name));
            }
        }
        at.nap(std::time::Duration::from_millis(4));
    }
    client.finish();
}

/// Checks that every acknowledged move has happened, once, and no other.
pub(crate) fn judge(storm: &Storm) {
    let mut raw = crate::wire::Raw::connect(storm.port);
    let values = raw.command(&all_accounts("MGET"));
    let seen = sum(values.items());
    if seen != TOTAL {
        storm.fault(format!("in the end all accounts have {seen} of {TOTAL}"));
    }
    for mover in 0..MOVERS + SLOW_MOVERS {
        let key = moves_key(mover);
        let counted = raw.call(&format!("INCRBY {key} 0")).integer();
        let answered = storm.kept(&key) as i64;
        if counted != answered {
            storm.fault(format!(
                "mover {mover}: {answered} moves were answered, and {counted} happened"
            ));
        }
    }
}
