//! What is done with the long arguments of a command before its shards are in hand.

use super::Args;
use super::declaration::{Command, Flags, Group};
use crate::base::hash::Seed;
use crate::engine::value::ahead::{self, Form};
use crate::structures::ahead::{Ahead, BYTES_MIN, Function};
use crate::structures::hyperloglog;
use crate::structures::sketch::{bloom, cuckoo};

/// Copies those that it stores to where they will be kept, and hashes those that are elements.
pub fn prepare(command: &Command, args: &Args<'_>, seed: Seed, ahead: &mut Ahead) {
    if command.flags.has(Flags::DENYOOM) {
        for routed in args.keys() {
            ahead::copy(Form::Key, b"", args.get(routed.argument as usize), ahead);
        }
    }
    let stored = command.stored;
    for at in stored.positions(args.len()) {
        ahead::copy(stored.form, args.get(at - 1), args.get(at), ahead);
    }
    let hash: &dyn Fn(&[u8], &mut Ahead) = match command.group {
        Group::Hash | Group::Set | Group::SortedSet | Group::Geo => {
            &|element, ahead| ahead.hash(element, Function::Keyed(seed))
        }
        Group::HyperLogLog => &hyperloglog::hash::prepare,
        Group::Bloom => &bloom::prepare,
        Group::Cuckoo => &cuckoo::prepare,
        _ => return,
    };
    for (at, argument) in args.from(0).enumerate().skip(1) {
        let is_value = || stored.form == Form::Field && stored.positions(at + 1).last() == Some(at);
        let is_key = || args.keys().iter().any(|key| key.argument as usize == at);
        if argument.len() >= BYTES_MIN && !is_key() && !is_value() {
            hash(argument, ahead);
        }
    }
}
