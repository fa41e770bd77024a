//! Commands that add points, and that read single ones.

use super::{point, point_of_member, point_of_score, reply_distance, reply_point, unit_m};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeySpec};
use crate::command::error::CommandError;
use crate::command::sorted_set::add::{ZaddOptions, add};
use crate::command::sorted_set::{answer_each, read};

/// `GEOADD key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]`
pub(super) static GEOADD: Command = Command::new("geoadd", Group::Geo, -5)
    .writes(KeySpec::FIRST_UPDATED)
    .flags(Flags::DENYOOM)
    .doc(
        "3.2.0",
        "key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]",
        "Adds members with their coordinates, or updates them.",
    )
    .complexity("O(log(N)) for each member, in a set of N.")
    .history(&[("6.2.0", "New options: `CH`, `NX` and `XX`.")])
    .on_keys(geoadd);

fn geoadd(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let mut rules = ZaddOptions::default();
    let mut counts_changes = false;
    let mut at = 2;
    while at < args.len() {
        if args.is(at, "nx") {
            rules.only_new = true;
        } else if args.is(at, "xx") {
            rules.only_old = true;
        } else if args.is(at, "ch") {
            counts_changes = true;
        } else {
            break;
        }
        at += 1;
    }
    let words = args.len() - at;
    if words == 0 || !words.is_multiple_of(3) || (rules.only_new && rules.only_old) {
        return Err(CommandError::Syntax);
    }
    let members = (at..args.len()).step_by(3);
    let members = members.map(|at| Ok((point(args, at)?.number() as f64, args.get(at + 2))));
    let members: Vec<(f64, &[u8])> = members.collect::<Result<_, CommandError>>()?;
    let outcome = add(cx, &args.key(1), members.iter().copied(), rules)?;
    out.integer(match counts_changes {
        true => outcome.added + outcome.updated,
        false => outcome.added,
    });
    Ok(())
}

/// `GEOPOS key [member [member ...]]`
pub(super) static GEOPOS: Command = Command::new("geopos", Group::Geo, -2)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "3.2.0",
        "key [member [member ...]]",
        "Returns the longitudes and latitudes of members.",
    )
    .complexity("O(1) for each member.")
    .on_keys(geopos);

fn geopos(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    answer_each(cx, args, out, |score, out| {
        match score.map(point_of_score) {
            Some(point) => reply_point(point, out),
            None => out.null_array(),
        }
    })
}

/// `GEOHASH key [member [member ...]]`
pub(super) static GEOHASH: Command = Command::new("geohash", Group::Geo, -2)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "3.2.0",
        "key [member [member ...]]",
        "Returns the positions of members as geohashes.",
    )
    .complexity("O(1) for each member.")
    .on_keys(geohash);

fn geohash(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    answer_each(cx, args, out, |score, out| {
        match score.map(point_of_score) {
            Some(point) => out.bulk(&point.text()),
            None => out.null(),
        }
    })
}

/// `GEODIST key member1 member2 [M | KM | FT | MI]`
pub(super) static GEODIST: Command = Command::new("geodist", Group::Geo, -4)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "3.2.0",
        "key member1 member2 [M | KM | FT | MI]",
        "Returns the distance between two members.",
    )
    .on_keys(geodist);

fn geodist(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let unit_m = match args.len() {
        4 => 1.0,
        5 => unit_m(args.get(4))?,
        _ => return Err(CommandError::Syntax),
    };
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let set = read(&mut keyspace, &key)?;
    let point = |at: usize| point_of_member(set?, args.get(at));
    match (point(2), point(3)) {
        (Some(one), Some(two)) => reply_distance(one.distance_m(two) / unit_m, out),
        _ => out.null(),
    }
    Ok(())
}
