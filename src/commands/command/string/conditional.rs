//! DELEX, DELIFEQ and DIGEST: compare and delete, and the comparisons that SET shares.
//!
//! A value is compared as a whole or by its digest, the 64-bit XXH3 in sixteen hexadecimal digits, so that clients
//! need not send a large value again to identify it.

use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{
    Command, CommandResult, Flags, Group, KeyFlags, KeySpec, ReadArgument,
};
use crate::command::error::CommandError;
use basalt_core::base::hash::digest_hex;
use basalt_engine::effect::Event;
use basalt_engine::value::Text;

/// The operand of a comparison, and whether the value must equal it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    by_digest: bool,
    wants_equal: bool,
    argument: usize,
}

impl Comparison {
    /// Returns the comparison that the option at `at` requests; None if the option is not a comparison. The operand
    /// follows the option.
    pub(super) fn parse(args: &Args<'_>, at: usize) -> Option<Comparison> {
        const WORDS: [(&str, bool, bool); 4] = [
            ("ifeq", false, true),
            ("ifne", false, false),
            ("ifdeq", true, true),
            ("ifdne", true, false),
        ];
        let (_, by_digest, wants_equal) = *WORDS.iter().find(|(word, _, _)| args.is(at, word))?;
        let argument = at + 1;
        (argument < args.len()).then_some(Comparison {
            by_digest,
            wants_equal,
            argument,
        })
    }

    /// Whether the condition holds for a missing key.
    pub(super) fn holds_for_nothing(self) -> bool {
        !self.wants_equal
    }

    /// Whether the condition holds for a value. As in Redis, a digest is checked only if there is a value.
    pub(super) fn holds(self, text: Text<'_>, args: &Args<'_>) -> Result<bool, CommandError> {
        let operand = args.get(self.argument);
        let equal = if self.by_digest {
            if operand.len() != digest_hex(b"").len() {
                return Err("ERR must be exactly 16 hexadecimal characters".into());
            }
            text.with_bytes(|bytes| digest_hex(bytes).eq_ignore_ascii_case(operand))
        } else {
            text.with_bytes(|bytes| bytes == operand)
        };
        Ok(equal == self.wants_equal)
    }
}

/// `DELEX key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest]`
pub(super) static DELEX: Command = Command::new("delex", Group::String, -2)
    .writes(&[KeySpec::one(
        1,
        KeyFlags::RW
            .or(KeyFlags::ACCESS)
            .or(KeyFlags::DELETE)
            .or(KeyFlags::VARIABLE_FLAGS),
    )
    .note("RM and no ACCESS without a condition")])
    .key_flags_of(key_flags)
    .flags(Flags::FAST)
    .doc(
        "8.4.0",
        "key [IFEQ ifeq-value | IFNE ifne-value | IFDEQ ifdeq-digest | IFDNE ifdne-digest]",
        "Deletes a key if its value, or the digest of its value, matches or does not match.",
    )
    .complexity("O(1) to compare values, O(N) to compare digests, N being the length of the value.")
    .on_keys(delex);

/// Returns the flags of the key: a condition reads the value that it compares.
fn key_flags(count: usize, _: ReadArgument<'_, '_>) -> KeyFlags {
    match count > 2 {
        true => KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE),
        false => KeyFlags::RM.or(KeyFlags::DELETE),
    }
}

fn delex(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if args.len() != 2 && args.len() != 4 {
        return Err(CommandError::Arity("delex"));
    }
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let Some(place) = keyspace.find_write(&key) else {
        keyspace.missed_deletion(key.bytes);
        out.integer(0);
        return Ok(());
    };
    if args.len() == 4 {
        let Ok(text) = keyspace.text(place) else {
            return Err("ERR Key should be of string type if conditions are specified".into());
        };
        let comparison = Comparison::parse(args, 2)
            .ok_or("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE")?;
        if !comparison.holds(text, args)? {
            out.integer(0);
            return Ok(());
        }
    }
    keyspace.delete(place);
    keyspace.wrote(key.bytes, Event::DEL);
    cx.log_deletion(key.bytes, false);
    out.integer(1);
    Ok(())
}

/// `DELIFEQ key value`
pub(super) static DELIFEQ: Command = Command::new("delifeq", Group::String, 3)
    .writes(&[KeySpec::one(
        1,
        KeyFlags::RM.or(KeyFlags::ACCESS).or(KeyFlags::DELETE),
    )])
    .flags(Flags::FAST)
    .doc(
        "9.0.0",
        "key value",
        "Deletes a key if it holds the given string.",
    )
    .on_keys(delifeq);

fn delifeq(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let equal = match keyspace.find_write(&key) {
        Some(place)
            if keyspace
                .text(place)?
                .with_bytes(|bytes| bytes == args.get(2)) =>
        {
            keyspace.delete(place);
            keyspace.wrote(key.bytes, Event::DEL);
            cx.log_deletion(key.bytes, false);
            true
        }
        _ => false,
    };
    out.integer(i64::from(equal));
    Ok(())
}

/// `DIGEST key`
pub(super) static DIGEST: Command = Command::new("digest", Group::String, 2)
    .reads(KeySpec::FIRST_READ)
    .flags(Flags::FAST)
    .doc(
        "8.4.0",
        "key",
        "Returns the XXH3 digest of the string value of a key in hexadecimal.",
    )
    .complexity("O(N), N being the length of the value.")
    .on_keys(digest);

fn digest(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let key = args.key(1);
    match cx.at(&key).read_text(&key)? {
        Some(text) => text.with_bytes(|bytes| out.bulk(&digest_hex(bytes))),
        None => out.null(),
    }
    Ok(())
}
