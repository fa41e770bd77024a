//! INFO, TIME, LOLWUT.

use super::super::context::SessionCx;
use super::super::declaration::{Categories, Command, CommandResult, Flags, Group};
use super::super::{Args, Out};

/// `INFO [section [section ...]]`
pub(super) static INFO: Command = Command::new("info", Group::Server, -1)
    .flags(Flags::LOADING.or(Flags::STALE))
    .categories(Categories::DANGEROUS)
    .doc(
        "1.0.0",
        "[section [section ...]]",
        "Returns information and statistics about the server.",
    )
    .history(&[("7.0.0", "Accepts several sections in one call.")])
    .tips(&[
        "nondeterministic_output",
        "request_policy:all_shards",
        "response_policy:special",
    ])
    .repeatable()
    .postponed_if(takes_shards)
    .on_session(info);

/// Sections, and names for groups of sections, whose replies depend on data and so wait for the disk. The other
/// sections get a reply however slow the disk is.
const OF_DATA: [&str; 5] = ["keyspace", "memory", "default", "all", "everything"];

/// Whether the reply is gathered from one shard after the other: this must not happen while other shards are locked.
fn takes_shards(args: &Args<'_>) -> bool {
    args.from(1)
        .any(|name| name.eq_ignore_ascii_case(b"prefixes"))
}

fn info(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if cx.client.is_in_script && takes_shards(args) {
        return Err(
            "ERR INFO prefixes is not allowed in a script because it samples keys of all shards"
                .into(),
        );
    }
    let sections: Vec<String> = args
        .from(1)
        .map(|name| String::from_utf8_lossy(name).to_ascii_lowercase())
        .collect();
    let is_of_data = |name: &String| OF_DATA.contains(&name.as_str());
    let text = match sections.is_empty() || sections.iter().any(is_of_data) {
        true => cx.read_figures(|cx| cx.server.info(&sections)),
        false => cx.server.info(&sections),
    };
    out.verbatim("txt", text);
    Ok(())
}

/// `TIME`
pub(super) static TIME: Command = Command::new("time", Group::Server, 1)
    .flags(Flags::LOADING.or(Flags::STALE).or(Flags::FAST))
    .doc(
        "2.6.0",
        "",
        "Returns the server time in Unix seconds and microseconds.",
    )
    .tips(&["nondeterministic_output"])
    .repeatable()
    .on_session(time);

fn time(cx: &mut SessionCx<'_>, _: &Args<'_>, out: &mut Out) -> CommandResult {
    // Within a script, time is frozen.
    let unix_us = match cx.client.is_in_script {
        true => cx.now.unix_ms * 1_000,
        false => cx.server.unix_us(),
    };
    out.array(2);
    out.bulk_integer((unix_us / 1_000_000) as i64);
    out.bulk_integer((unix_us % 1_000_000) as i64);
    Ok(())
}

/// `LOLWUT [VERSION version]`
pub(super) static LOLWUT: Command = Command::new("lolwut", Group::Server, -1)
    .flags(Flags::READONLY.or(Flags::FAST))
    .categories(Categories::READ)
    .doc(
        "5.0.0",
        "[VERSION version]",
        "Returns computer art and the version.",
    )
    .repeatable()
    .on_session(lolwut);

/// Draws columns of basalt: prisms of different heights, as on a coast, generated from the clock's low bits.
fn lolwut(cx: &mut SessionCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    const COLUMNS: usize = 12;
    const ROWS: usize = 8;
    if args.len() == 3 && args.is(1, "version") {
        args.integer(2)?;
    }
    let mut random = basalt_core::base::random::Random::new(cx.server.unix_us());
    let heights: Vec<usize> = (0..COLUMNS)
        .map(|_| 1 + random.below(ROWS as u64 - 1) as usize)
        .collect();
    let mut drawing = String::new();
    for row in (0..=ROWS).rev() {
        for &height in &heights {
            drawing.push_str(match row {
                _ if row == height => " ____ ",
                _ if row < height => "|    |",
                _ => "      ",
            });
        }
        drawing.push('\n');
    }
    drawing.push_str(&format!(
        "\nRedis ver. 7.4.0\nbasalt ver. {}\n",
        env!("CARGO_PKG_VERSION")
    ));
    out.verbatim("txt", drawing);
    Ok(())
}
