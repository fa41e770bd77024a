//! Scripts and functions: the rows, and the handlers that need no shard.
//!
//! ```text
//! mod        EVAL EVALSHA EVAL_RO EVALSHA_RO FCALL FCALL_RO, and the kind of run of each
//! manage     SCRIPT with its subcommands
//! functions  FUNCTION with its subcommands
//! ```
//!
//! Scripts are run by the interpreter, which is outside of this module: see
//! [`crate::command::declaration::Run::Script`].

mod functions;
mod manage;

use super::declaration::{Command, Flags, Group, KeyFlags, KeySpec, Run, ScriptVerb};
use super::host::scripts::ExecutionKind;

pub(super) static TABLE: &[&Command] = &[
    &EVAL,
    &EVALSHA,
    &EVALSHA_RO,
    &EVAL_RO,
    &FCALL,
    &FCALL_RO,
    &functions::FUNCTION,
    &manage::SCRIPT,
];

const GROUP: Group = Group::Scripting;
const FLAGS: Flags = Flags::NOSCRIPT
    .or(Flags::SKIP_MONITOR)
    .or(Flags::NO_MANDATORY_KEYS)
    .or(Flags::STALE);
const WRITES: KeyFlags = KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE);
const READS: KeyFlags = KeyFlags::RO.or(KeyFlags::ACCESS);
const RW_NOTE: &str =
    "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE";
const RO_NOTE: &str =
    "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS";
const COST: &str = "Depends on the script.";

/// `EVAL script numkeys [key [key ...]] [arg [arg ...]]`
static EVAL: Command = Command::new("eval", GROUP, -3)
    .names_keys(&[KeySpec::counted(2, WRITES).note(RW_NOTE)])
    .flags(FLAGS.or(Flags::MAY_REPLICATE))
    .doc(
        "2.6.0",
        "script numkeys [key [key ...]] [arg [arg ...]]",
        "Runs a Lua script in the server.",
    )
    .complexity(COST)
    .on_script(ScriptVerb::Eval);

/// `EVALSHA sha1 numkeys [key [key ...]] [arg [arg ...]]`
static EVALSHA: Command = Command::new("evalsha", GROUP, -3)
    .names_keys(&[KeySpec::counted(2, WRITES)])
    .flags(FLAGS.or(Flags::MAY_REPLICATE))
    .doc(
        "2.6.0",
        "sha1 numkeys [key [key ...]] [arg [arg ...]]",
        "Runs a cached Lua script by its SHA-1.",
    )
    .complexity(COST)
    .on_script(ScriptVerb::EvalSha);

/// `EVAL_RO script numkeys [key [key ...]] [arg [arg ...]]`
static EVAL_RO: Command = Command::new("eval_ro", GROUP, -3)
    .reads(&[KeySpec::counted(2, READS).note(RO_NOTE)])
    .flags(FLAGS)
    .doc(
        "7.0.0",
        "script numkeys [key [key ...]] [arg [arg ...]]",
        "Runs a read-only Lua script.",
    )
    .complexity(COST)
    .on_script(ScriptVerb::EvalRo);

/// `EVALSHA_RO sha1 numkeys [key [key ...]] [arg [arg ...]]`
static EVALSHA_RO: Command = Command::new("evalsha_ro", GROUP, -3)
    .reads(&[KeySpec::counted(2, READS)])
    .flags(FLAGS)
    .doc(
        "7.0.0",
        "sha1 numkeys [key [key ...]] [arg [arg ...]]",
        "Runs a cached read-only Lua script by its SHA-1 digest.",
    )
    .complexity(COST)
    .on_script(ScriptVerb::EvalShaRo);

/// `FCALL function numkeys [key [key ...]] [arg [arg ...]]`
static FCALL: Command = Command::new("fcall", GROUP, -3)
    .names_keys(&[KeySpec::counted(2, WRITES).note(RW_NOTE)])
    .flags(FLAGS.or(Flags::MAY_REPLICATE))
    .doc(
        "7.0.0",
        "function numkeys [key [key ...]] [arg [arg ...]]",
        "Calls a function of a library.",
    )
    .complexity("Depends on the function.")
    .on_script(ScriptVerb::Fcall);

/// `FCALL_RO function numkeys [key [key ...]] [arg [arg ...]]`
static FCALL_RO: Command = Command::new("fcall_ro", GROUP, -3)
    .reads(&[KeySpec::counted(2, READS).note(RO_NOTE)])
    .flags(FLAGS)
    .doc(
        "7.0.0",
        "function numkeys [key [key ...]] [arg [arg ...]]",
        "Calls a read-only function of a library.",
    )
    .complexity("Depends on the function.")
    .on_script(ScriptVerb::FcallRo);

impl ExecutionKind {
    /// Returns the kind of run of a command.
    pub fn of(command: &Command) -> ExecutionKind {
        match command.run {
            Run::Script(ScriptVerb::Fcall | ScriptVerb::FcallRo) => ExecutionKind::Function,
            Run::Script(_) => ExecutionKind::Script,
            _ => ExecutionKind::Transaction,
        }
    }
}
