//! DEBUG: commands for tests and troubleshooting.
//!
//! To clients DEBUG is a single command, allowed only by `enable-debug-command`. The subcommands that need shards are
//! rows of their own, for routing; COMMAND does not list them. Redis's switches for parts that this server does not
//! have (its cron, its replication IDs, its resizable reply buffers) are accepted without effect; switches that would
//! need persistence are refused as unknown.

mod allocator;
mod cluster;
mod digest;
mod inspect;
mod protocol;
mod reload;
#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering::Relaxed;

use super::context::{After, Block, SessionCx};
use super::declaration::{Command, CommandResult, Flags, Group};
use super::error::{CommandError, shown_name};
use super::help::{reply_help, text};
use super::{Args, Out};
use crate::config::rewrite::AddedParameters;
use basalt_core::base::glob::{self, Case};
use basalt_core::base::number;
use basalt_core::base::random::Random;
use basalt_engine::note;
use basalt_engine::serial::frame;
use basalt_engine::value::list;

pub(super) static TABLE: &[&Command] = &[&DEBUG];

const GROUP: Group = Group::Server;
const FLAGS: Flags = Flags::ADMIN
    .or(Flags::NOSCRIPT)
    .or(Flags::LOADING)
    .or(Flags::STALE)
    .or(Flags::PROTECTED);
/// Flags of the rows that COMMAND does not list.
const PART: Flags = FLAGS.or(Flags::UNLISTED);

/// `DEBUG subcommand`
static DEBUG: Command = Command::new("debug", GROUP, -2)
    .flags(FLAGS.or(Flags::SYSCMD))
    .doc("1.0.0", "", "Groups the commands for debugging.")
    .complexity("Depends on subcommand.")
    .with_subcommands(&[
        &digest::DIGEST,
        &digest::DIGEST_VALUE,
        &inspect::HTSTATS,
        &inspect::HTSTATS_KEY,
        &inspect::LISTPACK,
        &inspect::OBJECT,
        &inspect::POPULATE,
        &reload::LOADAOF,
        &reload::REENCODE,
        &reload::RELOAD,
    ])
    .postponed_if(waits)
    .on_session(debug);

/// Whether a subcommand writes to files and so must be postponed in a transaction. SLEEP is not postponed: as in
/// Redis, it stalls everything that the transaction has locked.
fn waits(args: &Args<'_>) -> bool {
    let names = ["log", "config-rewrite-force-all"];
    names.iter().any(|name| args.is(1, name))
}

/// Returns the error for an unknown subcommand, or one with a wrong number of arguments.
fn unknown(args: &Args<'_>) -> CommandError {
    let name = shown_name(args.get(1));
    format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try DEBUG HELP.")
        .into()
}

fn debug(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let name = args.get(1).to_ascii_lowercase();
    match (name.as_slice(), args.len()) {
        (b"help", 2) => help(out),
        (b"sleep", 3) => sleep(cx, args, out),
        (switch, 3) if set_switch(cx, switch, leading_integer(args.get(2)) != 0) => out.ok(),
        (b"aof-flush-sleep", 3) => {
            let us = leading_integer(args.get(2));
            cx.server.set_aof_flush_sleep(us.max(0).unsigned_abs());
            out.ok();
        }
        (b"replybuffer", 4) if args.is(2, "resizing") || args.is(2, "peak-reset-time") => out.ok(),
        (b"log", 3) => {
            cx.server.log(&format!("DEBUG LOG: {}", text(args, 2)));
            out.ok();
        }
        (b"replicate", 3..) => {
            let arguments: Vec<&[u8]> = args.from(2).collect();
            // A replica would take this command for a note (internal record) of this server itself.
            if note::is_note(arguments.len(), |at| arguments[at]) {
                return Err(
                    "ERR DEBUG REPLICATE cannot send internal commands of the server".into(),
                );
            }
            let position = cx.server.primary().replicate(&arguments);
            // Makes WAIT cover the command like a write.
            cx.client.shared.log_position.fetch_max(position, Relaxed);
            out.ok();
        }
        (b"change-repl-id", 2) => {
            cx.server
                .log("Changing replication IDs after receiving change-repl-id");
            cx.server.primary().change_id();
            out.ok();
        }
        (b"config-rewrite-force-all", 2) => {
            cx.server.config_rewrite(AddedParameters::All)?;
            out.ok();
        }
        (b"segfault", 2) => cx.server.segfault(),
        (b"panic", 2) => panic!("called by Debug Command"),
        (b"error", 3) => out.error(args.get(2)),
        (b"protocol", 3) => protocol::reply(args.get(2), out)?,
        (b"quicklist-packed-threshold", 3) => {
            let bytes = number::parse_memory(args.get(2))
                .filter(|bytes| *bytes <= 1 << 32)
                .ok_or("ERR argument must be a memory value bigger than 1 and smaller than 4gb")?;
            list::set_plain_bytes_min(u32::try_from(bytes).unwrap_or(u32::MAX));
            out.ok();
        }
        (b"clusterlink", 5) if args.is(2, "kill") => cluster::kill_link(cx, args, out)?,
        (b"drop-cluster-packet-filter", 3) => cluster::drop_packets(cx, args, out)?,
        (b"close-cluster-link-on-packet-drop", 3) => cluster::close_on_drop(cx, args, out)?,
        (b"mallctl", 3 | 4) => allocator::number(args, out)?,
        (b"mallctl-str", 3 | 4) => allocator::text(args, out)?,
        (b"stringmatch-test", 2) => {
            match_at_random(cx.now.unix_ms);
            out.simple("Apparently Redis did not crash: test passed");
        }
        _ => return Err(unknown(args)),
    }
    Ok(())
}

/// Sets a switch that takes 0 or 1. Returns whether there is one of this name.
fn set_switch(cx: &SessionCx<'_>, name: &[u8], on: bool) -> bool {
    match name {
        b"set-active-expire" => cx.server.set_active_expire(on),
        b"set-disable-deny-scripts" => cx.server.set_allows_every_command_in_scripts(on),
        b"pause-cron" => cx.server.pause_cron(on),
        b"move-connections" => cx.server.move_connections(on),
        b"set-skip-checksum-validation" => frame::skip_checksums(on),
        _ => return false,
    }
    true
}

/// `DEBUG SLEEP seconds`: Redis has a single thread, so this stops all clients there, and must here.
fn sleep(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) {
    const LONGEST_S: f64 = 1e9;
    let seconds = number::parse_f64(args.get(2)).unwrap_or(0.0);
    let ms = (seconds.clamp(0.0, LONGEST_S) * 1_000.0).ceil() as u64;
    if ms == 0 {
        out.ok();
        return;
    }
    let until_ms = cx.now.unix_ms + ms;
    cx.server.sleep(until_ms);
    cx.after = After::Block(Block {
        until_ms: Some(until_ms),
        on_timeout: Out::ok,
        look: None,
        holds: true,
    });
}

/// Parses the integer at the start of a text, like C's `atoi`; 0 if there is none.
fn leading_integer(text: &[u8]) -> i64 {
    let text = text.trim_ascii_start();
    let sign = usize::from(text.starts_with(b"-") || text.starts_with(b"+"));
    let digits = text[sign..].iter().take_while(|byte| byte.is_ascii_digit());
    let end = sign + digits.count();
    let text = text[..end].strip_prefix(b"+").unwrap_or(&text[..end]);
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// Matches random texts against random patterns; checks that matching terminates.
fn match_at_random(seed: u64) {
    const ROUNDS: usize = 10_000;
    const LETTERS: &[u8] = b"ab*?[]-^\\";
    let mut random = Random::new(seed);
    let mut draw = |text: &mut Vec<u8>| {
        text.clear();
        for _ in 0..random.next_u64() % 32 {
            text.push(LETTERS[(random.next_u64() % LETTERS.len() as u64) as usize]);
        }
    };
    let (mut pattern, mut matched) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        draw(&mut pattern);
        draw(&mut matched);
        glob::matches(&pattern, &matched, Case::Sensitive);
        glob::matches(&pattern, &matched, Case::Insensitive);
    }
}

fn help(out: &mut Out) {
    let lines = [
        "DIGEST",
        "    Return a digest of all databases.",
        "DIGEST-VALUE <key> [<key> ...]",
        "    Return a digest of each key's value.",
        "CLOSE-CLUSTER-LINK-ON-PACKET-DROP <0|1>",
        "    Set whether a packet dropped by the filter closes its link.",
        "CLUSTERLINK KILL <TO|FROM|ALL> <node-id>",
        "    Close links to a node of the cluster.",
        "DROP-CLUSTER-PACKET-FILTER <packet-type>",
        "    Drop packets of this type that other nodes send; -1: none.",
        "CONFIG-REWRITE-FORCE-ALL",
        "    Write all parameters to the configuration file, including defaults.",
        "ERROR <string>",
        "    Return an error with this text.",
        "HTSTATS <dbid>",
        "    Return statistics of the tables of a database.",
        "HTSTATS-KEY <key>",
        "    Return statistics of the table of a hash, a set or a sorted set.",
        "LISTPACK <key>",
        "    Return the size of a value in the compact encoding.",
        "LOG <message>",
        "    Write a message to the log.",
        "MALLCTL <name>",
        "    Return the numeric setting of the allocator with this jemalloc name.",
        "MALLCTL-STR <name> [VOID]",
        "    Return the string setting with this name; thread.tcache.flush with VOID empties",
        "    the cache of the thread.",
        "MOVE-CONNECTIONS <0|1>",
        "    Set whether each connection moves to the next thread after each batch of requests,",
        "    if each thread has an event loop of its own.",
        "OBJECT <key>",
        "    Return how a value is encoded.",
        "PAUSE-CRON <0|1>",
        "    Set whether idle clients keep their buffers.",
        "PANIC",
        "    Crash the server with a panic.",
        "POPULATE <count> [<prefix>] [<size>]",
        "    Create string keys <prefix>:<number> (prefix 'key' if none is given).",
        "PROTOCOL <type>",
        "    Return a reply of this type: string, integer, double, bignum, null, array, set,",
        "    map, attrib, push, verbatim, true, false.",
        "QUICKLIST-PACKED-THRESHOLD <size>",
        "    Set the length from which an element of a large list gets a node of its own; 0 restores",
        "    the default, which is the size of a node.",
        "REPLYBUFFER <PEAK-RESET-TIME|RESIZING> <value>",
        "    No effect: accepted for tests, as connections have no reply buffer of their own.",
        "REENCODE",
        "    Encode every value as in a snapshot and decode it again, in memory.",
        "RELOAD [MERGE] [NOFLUSH] [NOSAVE]",
        "    Save a snapshot and load it again. NOSAVE loads the existing one, NOFLUSH keeps",
        "    the current data, MERGE lets keys of the snapshot replace existing keys.",
        "SEGFAULT",
        "    Crash the server with an invalid memory access.",
        "SET-ACTIVE-EXPIRE <0|1>",
        "    Set whether expired keys are deleted before they are accessed.",
        "SET-SKIP-CHECKSUM-VALIDATION <0|1>",
        "    Set whether RESTORE skips the checksum of payloads.",
        "SLEEP <seconds>",
        "    Run no commands for this many seconds. Decimals are allowed.",
        "STRINGMATCH-TEST",
        "    Match random strings against random patterns.",
    ];
    reply_help("DEBUG", &lines, out);
}
