//! Transactions over many shards are serializable: sums are kept, and small histories are searched for a
//! serial order that explains every reply.
//!
//! Each way to send a transaction is a function of its own ([`Runner`]), so that all of them pass the same
//! checks.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use crate::support::{Draw, Options, Server, is_stand_in};
use crate::wire::{Raw, Value};

const SHARDS: [usize; 4] = [1, 2, 8, 64];

fn at_each(body: impl Fn(&Server)) {
    let counts = if is_stand_in() { &SHARDS[..1] } else { &SHARDS };
    for &count in counts {
        body(&Server::start(&Options::shards(count).threads(2)));
    }
}

// Sums ---------------------------------------------------------------------------------------------------------------

const ACCOUNTS: usize = 12;
const BALANCE: i64 = 1_000;

fn account(number: usize) -> String {
    format!("account:{number}")
}

/// Moves some amount from one account to another, in one step.
type Transfer = fn(&mut Raw, from: &str, to: &str, amount: i64);

/// Sees all accounts in one step.
type Audit = fn(&mut Raw) -> Vec<Value>;

fn transfer_blindly(raw: &mut Raw, from: &str, to: &str, amount: i64) {
    raw.pipeline(&[
        "MULTI",
        &format!("DECRBY {from} {amount}"),
        &format!("INCRBY {to} {amount}"),
        "EXEC",
    ]);
}

/// Reads first and writes the result, unless another client changed the keys meanwhile.
fn transfer_by_watch(raw: &mut Raw, from: &str, to: &str, amount: i64) {
    loop {
        raw.call(&format!("WATCH {from} {to}"));
        let read = |raw: &mut Raw, key: &str| -> i64 {
            let text = raw.call(&format!("GET {key}")).text();
            text.parse().expect("a balance")
        };
        let (one, other) = (read(raw, from), read(raw, to));
        let replies = raw.pipeline(&[
            "MULTI",
            &format!("SET {from} {}", one - amount),
            &format!("SET {to} {}", other + amount),
            "EXEC",
        ]);
        if !replies[3].is_nil() {
            return;
        }
    }
}

/// Moves the content of a list of one element to another list, and with it the amount.
fn transfer_and_rename(raw: &mut Raw, from: &str, to: &str, amount: i64) {
    raw.pipeline(&[
        "MULTI",
        &format!("RENAME {from} moved:{from}"),
        &format!("INCRBY {to} {amount}"),
        &format!("RENAME moved:{from} {from}"),
        &format!("DECRBY {from} {amount}"),
        "EXEC",
    ]);
}

const TRANSFERS: [Transfer; 3] = [transfer_blindly, transfer_by_watch, transfer_and_rename];

fn accounts() -> String {
    (0..ACCOUNTS).map(account).collect::<Vec<_>>().join(" ")
}

fn audit_at_once(raw: &mut Raw) -> Vec<Value> {
    raw.call(&format!("MGET {}", accounts())).items().to_vec()
}

fn audit_one_by_one(raw: &mut Raw) -> Vec<Value> {
    let mut lines = vec!["MULTI".to_owned()];
    lines.extend((0..ACCOUNTS).map(|number| format!("GET {}", account(number))));
    lines.push("EXEC".to_owned());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let mut replies = raw.pipeline(&lines);
    replies.pop().expect("EXEC").items().to_vec()
}

const AUDITS: [Audit; 2] = [audit_at_once, audit_one_by_one];

fn sum(balances: &[Value]) -> i64 {
    let balance = |value: &Value| -> i64 { value.text().parse().expect("a balance") };
    balances.iter().map(balance).sum()
}

#[test]
fn whoever_looks_sees_the_same_sum() {
    at_each(|server| {
        let mut raw = server.raw();
        for number in 0..ACCOUNTS {
            raw.call(&format!("SET {} {BALANCE}", account(number)));
        }
        let is_over = AtomicBool::new(false);
        let is_over = &is_over;
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..6u64)
                .map(|client| {
                    scope.spawn(move || {
                        let (mut raw, mut draw) = (server.raw(), Draw::new(client));
                        for _ in 0..60 {
                            let from = draw.below(ACCOUNTS);
                            let to = (from + 1 + draw.below(ACCOUNTS - 1)) % ACCOUNTS;
                            let transfer = TRANSFERS[draw.below(TRANSFERS.len())];
                            let amount = draw.below(50) as i64;
                            transfer(&mut raw, &account(from), &account(to), amount);
                        }
                    })
                })
                .collect();
            for audit in AUDITS {
                scope.spawn(move || {
                    let mut raw = server.raw();
                    while !is_over.load(Relaxed) {
                        let seen = audit(&mut raw);
                        assert_eq!(sum(&seen), ACCOUNTS as i64 * BALANCE, "{seen:?}");
                    }
                });
            }
            let ended: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
            is_over.store(true, Relaxed);
            assert!(ended.iter().all(Result::is_ok));
        });
        assert_eq!(sum(&audit_at_once(&mut raw)), ACCOUNTS as i64 * BALANCE);
    });
}

// Histories ----------------------------------------------------------------------------------------------------------

const REGISTERS: usize = 4;

type State = [u64; REGISTERS];

/// One step of a transaction.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// Reads a register.
    Read(usize),
    /// Writes a number that is written once only.
    Write(usize, u64),
}

/// A transaction that was run: its operations, the values that it read, and its times.
#[derive(Clone, Debug)]
struct Done {
    ops: Vec<Op>,
    seen: Vec<u64>,
    began: u128,
    ended: u128,
}

/// Sends a transaction; returns the values that it read, in order.
type Runner = fn(&mut Raw, &str, &[Op]) -> Vec<u64>;

fn key(prefix: &str, register: usize) -> String {
    format!("{prefix}:{register}")
}

fn seen(value: &Value) -> u64 {
    match value.is_nil() {
        true => 0,
        false => value.text().parse().expect("a number"),
    }
}

fn by_exec(raw: &mut Raw, prefix: &str, ops: &[Op]) -> Vec<u64> {
    let mut lines = vec!["MULTI".to_owned()];
    lines.extend(ops.iter().map(|op| match op {
        Op::Read(register) => format!("GET {}", key(prefix, *register)),
        Op::Write(register, number) => format!("SET {} {number}", key(prefix, *register)),
    }));
    lines.push("EXEC".to_owned());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let mut replies = raw.pipeline(&lines);
    let replies = replies.pop().expect("EXEC");
    let reads = ops.iter().zip(replies.items());
    reads
        .filter(|(op, _)| matches!(op, Op::Read(_)))
        .map(|(_, reply)| seen(reply))
        .collect()
}

/// Runs operations as one command if all are reads or all are writes, and as a transaction otherwise.
fn by_command(raw: &mut Raw, prefix: &str, ops: &[Op]) -> Vec<u64> {
    let mut words = Vec::new();
    for op in ops {
        match op {
            Op::Read(register) => words.push(key(prefix, *register)),
            Op::Write(register, number) => {
                words.extend([key(prefix, *register), number.to_string()]);
            }
        }
    }
    let reads = ops.iter().filter(|op| matches!(op, Op::Read(_))).count();
    if reads == ops.len() {
        let reply = raw.call(&format!("MGET {}", words.join(" ")));
        return reply.items().iter().map(seen).collect();
    }
    if reads == 0 {
        raw.call(&format!("MSET {}", words.join(" ")));
        return Vec::new();
    }
    by_exec(raw, prefix, ops)
}

const RUNNERS: [Runner; 2] = [by_exec, by_command];

/// Returns what a transaction that runs alone reads, and applies its writes to `state`.
fn run_alone(ops: &[Op], state: &mut State) -> Vec<u64> {
    let mut seen = Vec::new();
    for op in ops {
        match *op {
            Op::Read(register) => seen.push(state[register]),
            Op::Write(register, number) => state[register] = number,
        }
    }
    seen
}

/// True if some order explains a history, in which a transaction comes after all that had ended when it
/// began.
fn is_serial(history: &[Done]) -> bool {
    assert!(history.len() < 64, "a bit for each transaction");
    let mut known = HashSet::new();
    search(history, 0, [0; REGISTERS], &mut known)
}

fn search(history: &[Done], done: u64, state: State, known: &mut HashSet<(u64, State)>) -> bool {
    if done.count_ones() as usize == history.len() {
        return true;
    }
    if !known.insert((done, state)) {
        return false;
    }
    let is_left = |index: usize| done & (1 << index) == 0;
    let first_end = (0..history.len())
        .filter(|index| is_left(*index))
        .map(|index| history[index].ended)
        .min()
        .expect("some are left");
    (0..history.len()).any(|index| {
        let next = &history[index];
        if !is_left(index) || next.began > first_end {
            return false;
        }
        let mut state = state;
        run_alone(&next.ops, &mut state) == next.seen
            && search(history, done | 1 << index, state, known)
    })
}

fn some_ops(draw: &mut Draw, number: &mut u64) -> Vec<Op> {
    let kind = draw.below(3);
    (0..2 + draw.below(3))
        .map(|_| {
            let register = draw.below(REGISTERS);
            let reads = match kind {
                0 => true,
                1 => false,
                _ => draw.below(2) == 0,
            };
            if reads {
                Op::Read(register)
            } else {
                *number += 1;
                Op::Write(register, *number)
            }
        })
        .collect()
}

#[test]
fn every_history_has_a_serial_order() {
    const CLIENTS: u64 = 4;
    const EACH: usize = 5;
    at_each(|server| {
        let clock = Instant::now();
        let mut raws: Vec<Raw> = (0..CLIENTS).map(|_| server.raw()).collect();
        for round in 0..60u64 {
            let prefix = format!("register:{round}");
            let start = std::sync::Barrier::new(CLIENTS as usize);
            let (start, prefix, clock) = (&start, &prefix, &clock);
            let histories: Vec<Vec<Done>> = std::thread::scope(|scope| {
                let clients: Vec<_> = raws
                    .iter_mut()
                    .zip(0..)
                    .map(|(raw, client): (&mut Raw, u64)| {
                        scope.spawn(move || {
                            let mut draw = Draw::new(round * 100 + client);
                            let mut number = client * 1_000;
                            start.wait();
                            let run = |_| {
                                let ops = some_ops(&mut draw, &mut number);
                                let runner = RUNNERS[draw.below(RUNNERS.len())];
                                let began = clock.elapsed().as_nanos();
                                let seen = runner(raw, prefix, &ops);
                                let ended = clock.elapsed().as_nanos();
                                Done {
                                    ops,
                                    seen,
                                    began,
                                    ended,
                                }
                            };
                            (0..EACH).map(run).collect()
                        })
                    })
                    .collect();
                let ended = clients.into_iter().map(|client| client.join());
                ended.map(|done| done.expect("a client")).collect()
            });
            let history: Vec<Done> = histories.into_iter().flatten().collect();
            assert!(is_serial(&history), "round {round}: {history:#?}");
        }
    });
}

#[test]
fn the_search_finds_what_no_order_explains() {
    let done = |ops: &[Op], seen: &[u64], began, ended| Done {
        ops: ops.to_vec(),
        seen: seen.to_vec(),
        began,
        ended,
    };
    use Op::{Read, Write};
    // Both read before the other wrote: one of them must have been first.
    let skew = [
        done(&[Read(0), Write(1, 1)], &[0], 0, 9),
        done(&[Read(1), Write(0, 2)], &[0], 0, 9),
    ];
    assert!(!is_serial(&skew));
    let ordered = [
        done(&[Read(0), Write(1, 1)], &[2], 0, 9),
        done(&[Read(1), Write(0, 2)], &[0], 0, 9),
    ];
    assert!(is_serial(&ordered));
    // Half of another's writes.
    let torn = [
        done(&[Write(0, 1), Write(1, 2)], &[], 0, 9),
        done(&[Read(0), Read(1)], &[1, 0], 0, 9),
    ];
    assert!(!is_serial(&torn));
    // It had ended before the other began.
    let stale = [
        done(&[Write(0, 1)], &[], 0, 1),
        done(&[Read(0)], &[0], 2, 3),
    ];
    assert!(!is_serial(&stale));
}
