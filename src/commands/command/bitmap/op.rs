//! BITOP: bitwise operations on several strings. A string shorter than the longest is padded with zeros.

use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::Deadline;
use basalt_engine::value::DataType;

/// `BITOP <AND | OR | XOR | NOT | DIFF | DIFF1 | ANDOR | ONE> destkey key [key ...]`
pub(super) static BITOP: Command = Command::new("bitop", Group::Bitmap, -4)
    .writes(&[
        KeySpec::one(2, KeyFlags::OW.or(KeyFlags::UPDATE)),
        KeySpec::range(3, -1, 1, KeyFlags::RO.or(KeyFlags::ACCESS)),
    ])
    .flags(Flags::DENYOOM)
    .doc(
        "2.6.0",
        "<AND | OR | XOR | NOT | DIFF | DIFF1 | ANDOR | ONE> destkey key [key ...]",
        "Stores the result of a bitwise operation over strings; returns its length.",
    )
    .complexity("O(N)")
    .history(&[("8.2.0", "New options: `DIFF`, `DIFF1`, `ANDOR` and `ONE`.")])
    .takes_long()
    .on_keys(bitop);

/// The operations on a first string X and further strings Y, bit by bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BitOperation {
    And,
    Or,
    Xor,
    Not,
    /// Bits set in X and in no Y.
    Diff,
    /// Bits set in some Y and not in X.
    Diff1,
    /// Bits set in X and in some Y.
    AndOr,
    /// Bits set in exactly one of all strings.
    One,
}

impl BitOperation {
    fn parse(args: &Args<'_>) -> Result<BitOperation, CommandError> {
        const NAMES: [(&str, BitOperation); 8] = [
            ("AND", BitOperation::And),
            ("OR", BitOperation::Or),
            ("XOR", BitOperation::Xor),
            ("NOT", BitOperation::Not),
            ("DIFF", BitOperation::Diff),
            ("DIFF1", BitOperation::Diff1),
            ("ANDOR", BitOperation::AndOr),
            ("ONE", BitOperation::One),
        ];
        let named = NAMES.iter().find(|(name, _)| args.is(1, name));
        let (name, operation) = *named.ok_or(CommandError::Syntax)?;
        let sources = args.len() - 3;
        match operation {
            BitOperation::Not if sources != 1 => {
                Err("ERR BITOP NOT must be called with a single source key.".into())
            }
            BitOperation::Diff | BitOperation::Diff1 | BitOperation::AndOr if sources < 2 => Err(
                format!("ERR BITOP {name} must be called with at least two source keys.").into(),
            ),
            operation => Ok(operation),
        }
    }
}

fn bitop(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let operation = BitOperation::parse(args)?;
    let (target, sources) = args.keys().split_first().expect("the arity has two keys");
    let mut len = 0;
    for source in sources {
        let mut keyspace = cx.at_routed(source);
        let text = keyspace.read_text(&args.key_of(source))?;
        len = len.max(text.map_or(0, |text| text.len()));
    }
    cx.scales().weigh_bytes(len.saturating_mul(sources.len()))?;
    let mut fold = BitopAccumulator::new(operation, len);
    for source in sources {
        match cx.at_routed(source).peek_text(&args.key_of(source)) {
            Some(text) => text.with_bytes(|bytes| fold.add(bytes)),
            None => fold.add(&[]),
        }
    }
    let result = fold.finish();
    let key = args.key_of(target);
    let mut keyspace = cx.at_routed(target);
    let found = keyspace.find_write(&key);
    if !result.is_empty() {
        keyspace.overwrites(&key, found, DataType::String);
        keyspace.put_raw(&key, found, &result, Deadline::Clear);
        keyspace.wrote(key.bytes, Event::string("set"));
    } else if let Some(place) = found {
        keyspace.delete(place);
        keyspace.wrote(key.bytes, Event::DEL);
    }
    out.integer(result.len() as i64);
    Ok(())
}

/// The combination of the strings read so far.
struct BitopAccumulator {
    operation: BitOperation,
    /// X, if the operation treats it differently from the others; otherwise the combination of all strings so far.
    first: Vec<u8>,
    /// Bits set in any Y; for `One`: bits set in two or more of all strings.
    others: Vec<u8>,
    added: usize,
}

impl BitopAccumulator {
    fn new(operation: BitOperation, len: usize) -> BitopAccumulator {
        let needs_others = matches!(
            operation,
            BitOperation::Diff | BitOperation::Diff1 | BitOperation::AndOr | BitOperation::One
        );
        BitopAccumulator {
            operation,
            first: vec![0; len],
            others: vec![0; if needs_others { len } else { 0 }],
            added: 0,
        }
    }

    fn add(&mut self, source: &[u8]) {
        let first_source = self.added == 0;
        self.added += 1;
        if first_source {
            self.first[..source.len()].copy_from_slice(source);
            return;
        }
        match self.operation {
            BitOperation::And => {
                let (overlap, behind) = self.first.split_at_mut(source.len());
                each(overlap, source, |bits, more| *bits &= more);
                behind.fill(0);
            }
            BitOperation::Or => each(&mut self.first, source, |bits, more| *bits |= more),
            BitOperation::Xor => each(&mut self.first, source, |bits, more| *bits ^= more),
            BitOperation::Not => unreachable!("it has one source"),
            BitOperation::Diff | BitOperation::Diff1 | BitOperation::AndOr => {
                each(&mut self.others, source, |bits, more| *bits |= more);
            }
            BitOperation::One => {
                for ((any, twice), more) in self.first.iter_mut().zip(&mut self.others).zip(source)
                {
                    *twice |= *any & more;
                    *any |= more;
                }
            }
        }
    }

    fn finish(mut self) -> Vec<u8> {
        let others = self.others.as_slice();
        match self.operation {
            BitOperation::And | BitOperation::Or | BitOperation::Xor => {}
            BitOperation::Not => self.first.iter_mut().for_each(|bits| *bits = !*bits),
            BitOperation::Diff | BitOperation::One => {
                each(&mut self.first, others, |bits, other| *bits &= !other);
            }
            BitOperation::Diff1 => each(&mut self.first, others, |bits, other| {
                *bits = !*bits & other
            }),
            BitOperation::AndOr => each(&mut self.first, others, |bits, other| *bits &= other),
        }
        self.first
    }
}

fn each(into: &mut [u8], from: &[u8], change: impl Fn(&mut u8, u8)) {
    for (bits, other) in into.iter_mut().zip(from) {
        change(bits, *other);
    }
}
