//! Clients that send random transactions of appends and reads, in each form, and write down what they see.

use std::time::Duration;

use crate::clients::{Command, Connection, Pool, Shared, command, is_elsewhere, is_refusal};
use crate::history::{Form, Key, NEVER, Op, Outcome, Txn};
use crate::support::Draw;
use crate::wire::{Raw, Value};

/// Lists in use at a time; their names spread them over the shards.
const KEYS: usize = 10;
/// Appends to a list before another one takes its place.
const APPENDS_MAX: u64 = 40;
const OPS_MAX: usize = 8;
/// The process of [`survey`].
const SURVEYOR: u64 = 999_999;

/// Does what the operations say: an empty argument reads the list of its key, any other is appended to it.
const SCRIPT: &str = "local seen = {} \
    for i, key in ipairs(KEYS) do \
      if ARGV[i] == '' then seen[i] = redis.call('LRANGE', key, 0, -1) \
      else seen[i] = redis.call('RPUSH', key, ARGV[i]) end \
    end \
    return seen";

/// Makes a pool of lists.
pub(crate) fn lists(shared: &Shared) -> Pool {
    Pool::new(shared, KEYS, APPENDS_MAX)
}

/// Loads the function that the clients call.
pub(crate) fn load_function(raw: &mut Raw) {
    let body = SCRIPT.replace("KEYS", "keys").replace("ARGV", "args");
    let code = format!(
        "#!lua name=history\nredis.register_function('history', function(keys, args) {body} end)"
    );
    let reply = raw.command(&["FUNCTION", "LOAD", "REPLACE", &code]);
    assert!(!reply.is_error(), "{}", reply.show());
}

fn name(key: Key) -> String {
    format!("list:{key}")
}

/// Sends transactions until the round is over.
pub(crate) fn run(shared: &Shared, pool: &Pool, first: u64, clients: u64, seed: u64) -> Vec<Txn> {
    let mut draw = Draw::new(seed);
    let mut connection = Connection::new(shared);
    let mut process = first;
    let mut history = Vec::new();
    while !shared.is_over() {
        if !connection.is_open() {
            continue;
        }
        let form = [Form::Multi, Form::Script, Form::Function, Form::Bare][draw.below(4)];
        let mut ops = some_ops(shared, pool, &mut draw);
        if shared.always_appends && form == Form::Bare {
            // Each is a transaction.
            ops.retain(|op| matches!(op, Op::Append(..)));
        }
        let commands = commands(form, &ops);
        let began = shared.now();
        let replies = connection.exchange(&commands);
        let txns = transactions(form, ops, began, process, &replies);
        if txns.iter().any(|txn| txn.outcome == Outcome::Info) {
            process += clients;
        }
        history.extend(txns);
        if replies.iter().any(|(_, reply)| is_elsewhere(reply)) {
            connection.close();
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    history
}

fn some_ops(shared: &Shared, pool: &Pool, draw: &mut Draw) -> Vec<Op> {
    let count = 1 + draw.below(OPS_MAX);
    let mut ops: Vec<Op> = (0..count)
        .map(|_| match draw.below(2) {
            0 => Op::Append(pool.draw(shared, draw, 1), shared.new_element()),
            _ => Op::Read(pool.draw(shared, draw, 0), None),
        })
        .collect();
    if shared.always_appends && !ops.iter().any(|op| matches!(op, Op::Append(..))) {
        ops[0] = Op::Append(pool.draw(shared, draw, 1), shared.new_element());
    }
    ops
}

fn commands(form: Form, ops: &[Op]) -> Vec<Command> {
    let each = ops.iter().map(|op| match op {
        Op::Append(key, element) => command(["RPUSH", &name(*key), &element.to_string()]),
        Op::Read(key, _) => command(["LRANGE", &name(*key), "0", "-1"]),
    });
    let called = |mut words: Command| {
        words.push(ops.len().to_string());
        words.extend(ops.iter().map(|op| name(op.key())));
        words.extend(ops.iter().map(|op| match op {
            Op::Append(_, element) => element.to_string(),
            Op::Read(..) => String::new(),
        }));
        vec![words]
    };
    match form {
        Form::Multi => {
            let begin = std::iter::once(command(["MULTI"]));
            begin.chain(each).chain([command(["EXEC"])]).collect()
        }
        Form::Script => called(command(["EVAL", SCRIPT])),
        Form::Function => called(command(["FCALL", "history"])),
        Form::Bare => each.collect(),
    }
}

/// Makes transactions of what was sent and answered: of a bare pipeline one for each command.
fn transactions(
    form: Form,
    mut ops: Vec<Op>,
    began: u64,
    process: u64,
    replies: &[(u64, Value)],
) -> Vec<Txn> {
    let txn = |ops, (outcome, ended), follows| Txn {
        process,
        form,
        began,
        ended,
        outcome,
        ops,
        follows,
    };
    if form == Form::Bare {
        let each = ops.into_iter().enumerate().map(|(index, mut op)| {
            let end = end_of(replies.get(index), |reply| see(&mut op, reply));
            txn(vec![op], end, index > 0)
        });
        return each.collect();
    }
    let expected = if form == Form::Multi {
        ops.len() + 2
    } else {
        1
    };
    let last = replies.get(expected - 1);
    let end = end_of(last, |reply| match reply {
        Value::Array(items) if items.len() == ops.len() => {
            let mut pairs = ops.iter_mut().zip(items);
            pairs.all(|(op, item)| see(op, item))
        }
        _ => false,
    });
    vec![txn(ops, end, false)]
}

/// Returns how and when a transaction ended, by its reply.
fn end_of(reply: Option<&(u64, Value)>, sees_all: impl FnOnce(&Value) -> bool) -> (Outcome, u64) {
    match reply {
        Some((ended, reply)) if is_refusal(reply) => (Outcome::Fail, *ended),
        Some((ended, reply)) if sees_all(reply) => (Outcome::Ok, *ended),
        _ => (Outcome::Info, NEVER),
    }
}

/// Enters what an operation has seen. False if the reply is none for it.
fn see(op: &mut Op, reply: &Value) -> bool {
    match (op, reply) {
        (Op::Append(..), Value::Integer(_)) => true,
        (Op::Read(_, seen), Value::Array(items)) => {
            let read = items.iter().map(|item| match item {
                Value::Bulk(text) => std::str::from_utf8(text).ok()?.parse().ok(),
                _ => None,
            });
            *seen = read.collect();
            seen.is_some()
        }
        _ => false,
    }
}

/// Reads lists in one transaction, after all others.
pub(crate) fn survey(shared: &Shared, keys: impl Iterator<Item = Key>) -> Txn {
    let ops: Vec<Op> = keys.map(|key| Op::Read(key, None)).collect();
    let mut connection = Connection::new(shared);
    crate::support::eventually("the lists can be read", || connection.is_open());
    let commands = commands(Form::Multi, &ops);
    let began = shared.now();
    let replies = connection.exchange(&commands);
    let mut txns = transactions(Form::Multi, ops, began, SURVEYOR, &replies);
    let txn = txns.pop().expect("a transaction");
    assert_eq!(txn.outcome, Outcome::Ok, "{:?}", replies.last());
    txn
}
