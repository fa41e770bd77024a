//! HOTKEYS: the keys that cost the most time and traffic. START to RESET are those of Redis 8.6; TOP is our own.

use super::super::context::SessionCx;
use super::super::declaration::{Command, CommandResult, Databases, Flags, Group};
use super::super::error::CommandError;
use super::super::host::HotKeysRequest;
use super::super::{Args, Out};

const GROUP: Group = Group::Server;
const FLAGS: Flags = Flags::ADMIN.or(Flags::NOSCRIPT);

/// Number of keys reported by default.
const COUNT_DEFAULT: usize = 10;

/// Maximum number of keys reported.
const COUNT_MAX: i64 = 64;

/// `HOTKEYS subcommand`
pub(super) static HOTKEYS: Command = Command::new("hotkeys", GROUP, -2)
    .doc("8.6.0", "", "Groups the commands that find hot keys.")
    .complexity("Depends on subcommand.")
    .container(&[&GET, &HELP, &RESET, &START, &STOP, &TOP]);

/// `HOTKEYS START METRICS count [CPU] [NET] [COUNT k] [DURATION seconds] [SAMPLE ratio] [SLOTS count slot …]`
static START: Command = Command::sub("hotkeys|start", "start", GROUP, -2)
    .flags(FLAGS)
    .doc(
        "8.6.0",
        "[arg [arg ...]]",
        "Starts to track the keys that use the most CPU time or traffic.",
    )
    .complexity("O(1)")
    .on_session(start);

fn start(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let request = parse(args)?;
    if !cx.server.hot_keys_start(request) {
        return Err("ERR hotkey tracking session already in progress".into());
    }
    out.ok();
    Ok(())
}

fn parse(args: &Args<'_>) -> Result<HotKeysRequest, CommandError> {
    let mut request = HotKeysRequest {
        cpu: false,
        net: false,
        count: COUNT_DEFAULT,
        duration_s: 0,
        sample: 1,
    };
    if args.len() < 4 || !args.is(2, "metrics") {
        return Err("ERR METRICS parameter is required".into());
    }
    let metrics = args
        .integer(3)
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| CommandError::from("ERR METRICS count must be positive"))?;
    let mut at = 4;
    for _ in 0..metrics {
        if at >= args.len() || is_option(args, at) {
            return Err("ERR METRICS count does not match number of metric types provided".into());
        }
        let chosen = match (args.is(at, "cpu"), args.is(at, "net")) {
            (true, _) => &mut request.cpu,
            (_, true) => &mut request.net,
            // Metrics of later versions are ignored, as in Redis.
            _ => {
                at += 1;
                continue;
            }
        };
        if std::mem::replace(chosen, true) {
            let name = if args.is(at, "cpu") { "CPU" } else { "NET" };
            return Err(format!("ERR METRICS {name} was given twice").into());
        }
        at += 1;
    }
    if !request.cpu && !request.net {
        return Err("ERR METRICS no valid metrics passed: the metrics are CPU and NET".into());
    }
    while at < args.len() {
        let value = || match at + 1 < args.len() {
            true => args.integer(at + 1).ok(),
            false => None,
        };
        if args.is(at, "slots") {
            return Err("ERR SLOTS parameter cannot be used in non-cluster mode".into());
        }
        if at + 1 >= args.len() {
            return Err(CommandError::Syntax);
        }
        if args.is(at, "count") {
            request.count = value()
                .filter(|count| (1..=COUNT_MAX).contains(count))
                .ok_or_else(|| CommandError::from("ERR COUNT must be between 1 and 64"))?
                as usize;
        } else if args.is(at, "duration") {
            request.duration_s = value()
                .filter(|seconds| (1..=i64::MAX / 1_000).contains(seconds))
                .ok_or_else(|| CommandError::from("ERR DURATION must be positive"))?
                .unsigned_abs();
        } else if args.is(at, "sample") {
            request.sample = value()
                .and_then(|ratio| u32::try_from(ratio).ok())
                .filter(|ratio| *ratio > 0)
                .ok_or_else(|| CommandError::from("ERR SAMPLE ratio must be positive"))?;
        } else {
            return Err(CommandError::Syntax);
        }
        at += 2;
    }
    Ok(request)
}

fn is_option(args: &Args<'_>, at: usize) -> bool {
    ["count", "duration", "sample", "slots"]
        .iter()
        .any(|word| args.is(at, word))
}

/// `HOTKEYS STOP`
static STOP: Command = Command::sub("hotkeys|stop", "stop", GROUP, 2)
    .flags(FLAGS)
    .doc(
        "8.6.0",
        "",
        "Stops tracking hot keys and keeps the results.",
    )
    .complexity("O(1)")
    .on_session(stop);

fn stop(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    if !cx.server.hot_keys_stop() {
        return Err("ERR no hotkey tracking session in progress".into());
    }
    out.ok();
    Ok(())
}

/// `HOTKEYS RESET`
static RESET: Command = Command::sub("hotkeys|reset", "reset", GROUP, 2)
    .flags(FLAGS)
    .doc("8.6.0", "", "Discards the results of tracking hot keys.")
    .complexity("O(1)")
    .on_session(reset);

fn reset(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    if !cx.server.hot_keys_reset() {
        return Err("ERR hotkey tracking session in progress, stop tracking first".into());
    }
    out.ok();
    Ok(())
}

/// `HOTKEYS GET`
static GET: Command = Command::sub("hotkeys|get", "get", GROUP, 2)
    .databases(Databases::All)
    .flags(FLAGS)
    .doc("8.6.0", "", "Returns the results of tracking hot keys.")
    .complexity("O(K) where K is the number of hot keys.")
    .tips(&["nondeterministic_output"])
    .repeatable()
    .on_session(get);

fn get(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    let Some(report) = cx.server.hot_keys() else {
        out.null_array();
        return Ok(());
    };
    let (by_us, by_bytes) = (&report.by_us, &report.by_bytes);
    let by_us_fields = if by_us.is_some() { 3 } else { 0 };
    let by_bytes_fields = if by_bytes.is_some() { 2 } else { 0 };
    // One entry per node; here there is only one.
    out.array(1);
    out.map(7 + by_us_fields + by_bytes_fields);
    let number = |out: &mut Out, name: &str, value: u64| {
        out.bulk(name.as_bytes());
        out.integer(i64::try_from(value).unwrap_or(i64::MAX));
    };
    number(out, "tracking-active", u64::from(report.is_active));
    number(out, "sample-ratio", u64::from(report.sample));
    out.bulk(b"selected-slots");
    out.array(0);
    number(out, "all-commands-all-slots-us", report.all_us);
    number(out, "net-bytes-all-commands-all-slots", report.all_bytes);
    number(out, "collection-start-time-unix-ms", report.started_ms);
    number(out, "collection-duration-ms", report.duration_ms);
    if let Some(keys) = by_us {
        number(out, "total-cpu-time-user-ms", report.user_ms);
        number(out, "total-cpu-time-sys-ms", report.system_ms);
        reply_keys("by-cpu-time-us", keys, out);
    }
    if let Some(keys) = by_bytes {
        number(out, "total-net-bytes", report.all_bytes);
        reply_keys("by-net-bytes", keys, out);
    }
    Ok(())
}

/// Replies with a list of keys, each followed by its figure.
fn reply_keys(name: &str, keys: &[(Vec<u8>, u64)], out: &mut Out) {
    out.bulk(name.as_bytes());
    out.array(2 * keys.len());
    for (key, weight) in keys {
        out.bulk(key);
        out.integer(i64::try_from(*weight).unwrap_or(i64::MAX));
    }
}

/// `HOTKEYS TOP [COUNT count]`
static TOP: Command = Command::sub("hotkeys|top", "top", GROUP, -2)
    .databases(Databases::All)
    .flags(FLAGS)
    .doc(
        Command::OWN,
        "[COUNT count]",
        "Returns the hottest keys of the last minutes; they are always tracked.",
    )
    .complexity("O(K) where K is the number of hot keys.")
    .tips(&["nondeterministic_output"])
    .repeatable()
    .on_session(top);

fn top(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let count = match args.len() {
        2 => COUNT_DEFAULT,
        4 if args.is(2, "count") => match args.integer(3)? {
            count @ 1..=COUNT_MAX => count as usize,
            _ => return Err("ERR COUNT must be between 1 and 64".into()),
        },
        _ => return Err(CommandError::Syntax),
    };
    let top = cx.server.hot_keys_top(count);
    out.map(6);
    for (name, value) in [
        ("sample-ratio", u64::from(top.interval)),
        ("all-commands", top.commands),
        ("all-bytes", top.bytes),
    ] {
        out.bulk(name.as_bytes());
        out.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }
    reply_keys("by-commands", &top.by_commands, out);
    reply_keys("by-bytes", &top.by_bytes, out);
    reply_keys("threads-with-copies", &top.copied, out);
    Ok(())
}

/// `HOTKEYS HELP`
static HELP: Command = Command::sub("hotkeys|help", "help", GROUP, 2)
    .doc("8.6.0", "", "Explains the subcommands of HOTKEYS.")
    .on_help(&[
        "GET",
        "    Return the results of tracking hot keys so far.",
        "RESET",
        "    Discard the results.",
        "START METRICS <count> [CPU] [NET] [COUNT <k>] [DURATION <seconds>] [SAMPLE <ratio>]",
        "    Start to track the <k> keys that use the most CPU time (CPU) or traffic (NET),",
        "    sampling one in <ratio> commands.",
        "STOP",
        "    Stop tracking and keep the results.",
        "TOP [COUNT <count>]",
        "    Return the hottest keys of the last minutes; they are always tracked (hot-keys-sample).",
    ]);

#[cfg(test)]
mod tests {
    use crate::command::testing::on_every_setup;

    #[test]
    fn arguments_are_checked_as_redis_checks_them() {
        on_every_setup(|server| {
            for (words, reply) in [
                ("", "(error) ERR METRICS parameter is required"),
                ("METRICS", "(error) ERR METRICS parameter is required"),
                ("METRICS 0", "(error) ERR METRICS count must be positive"),
                (
                    "METRICS -1 CPU",
                    "(error) ERR METRICS count must be positive",
                ),
                (
                    "METRICS 2 CPU",
                    "(error) ERR METRICS count does not match number of metric types provided",
                ),
                (
                    "METRICS 9223372036854775807 CPU",
                    "(error) ERR METRICS count does not match number of metric types provided",
                ),
                ("METRICS 1 CPU NET", "(error) ERR syntax error"),
                (
                    "METRICS 2 CPU CPU",
                    "(error) ERR METRICS CPU was given twice",
                ),
                (
                    "METRICS 1 GPU",
                    "(error) ERR METRICS no valid metrics passed: the metrics are CPU and NET",
                ),
                ("METRICS 2 GPU CPU", "OK"),
                (
                    "METRICS 1 CPU COUNT 0",
                    "(error) ERR COUNT must be between 1 and 64",
                ),
                (
                    "METRICS 1 CPU COUNT 65",
                    "(error) ERR COUNT must be between 1 and 64",
                ),
                ("METRICS 1 CPU COUNT", "(error) ERR syntax error"),
                (
                    "METRICS 1 CPU SAMPLE 0",
                    "(error) ERR SAMPLE ratio must be positive",
                ),
                (
                    "METRICS 1 CPU SAMPLE 4294967296",
                    "(error) ERR SAMPLE ratio must be positive",
                ),
                (
                    "METRICS 1 CPU DURATION 9223372036854775807",
                    "(error) ERR DURATION must be positive",
                ),
                (
                    "METRICS 1 CPU SLOTS 1 0",
                    "(error) ERR SLOTS parameter cannot be used in non-cluster mode",
                ),
                ("metrics 2 cpu net count 5 duration 1 sample 10", "OK"),
            ] {
                server.check(&format!("HOTKEYS START {words}"), reply);
            }
            server.check("HOTKEYS GET", "(nil)");
            server.check("HOTKEYS RESET", "OK");
            server.check(
                "HOTKEYS STOP",
                "(error) ERR no hotkey tracking session in progress",
            );
            server.check(
                "HOTKEYS TOP COUNT 65",
                "(error) ERR COUNT must be between 1 and 64",
            );
            server.check("HOTKEYS TOP LIMIT 5", "(error) ERR syntax error");
        });
    }
}
