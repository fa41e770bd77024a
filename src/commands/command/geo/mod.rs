//! Points on the globe: sorted sets whose scores are geohashes.
//!
//! ```text
//! this file  shared code
//! place      GEOADD GEOPOS GEOHASH GEODIST
//! search     GEOSEARCH GEOSEARCHSTORE, and GEORADIUS with its relatives
//! ```

mod place;
mod search;
#[cfg(test)]
mod tests;

use super::Out;
use super::args::Args;
use super::declaration::Command;
use super::error::CommandError;
use basalt_core::base::number;
use basalt_core::structures::geohash::Point;
use basalt_engine::value::sorted_set::SortedSet;

pub(super) static TABLE: &[&Command] = &[
    &place::GEOADD,
    &place::GEODIST,
    &place::GEOHASH,
    &place::GEOPOS,
    &search::GEORADIUS,
    &search::GEORADIUSBYMEMBER,
    &search::GEORADIUSBYMEMBER_RO,
    &search::GEORADIUS_RO,
    &search::GEOSEARCH,
    &search::GEOSEARCHSTORE,
];

/// Parses a longitude and a latitude in two arguments.
fn point(args: &Args<'_>, at: usize) -> Result<Point, CommandError> {
    let coordinate = |at: usize| number::parse_f64(args.get(at)).ok_or(CommandError::NotFloat);
    let (longitude, latitude) = (coordinate(at)?, coordinate(at + 1)?);
    Point::new(longitude, latitude).ok_or_else(|| {
        format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}").into()
    })
}

/// Returns the number of metres in a unit.
fn unit_m(word: &[u8]) -> Result<f64, CommandError> {
    let units = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let named = units
        .iter()
        .find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
    match named {
        Some((_, metres)) => Ok(*metres),
        None => Err("ERR unsupported unit provided. please use M, KM, FT, MI".into()),
    }
}

/// Decodes the point of a score. Scores that GEOADD never produces are decoded as by Redis on its most common
/// platforms: negative ones by their bits as integers, and those beyond 64 bits as the highest bit or as 0.
fn point_of_score(score: f64) -> Point {
    const END: f64 = 18_446_744_073_709_551_616.0;
    Point::of_number(match score {
        0.0..END => score as u64,
        END.. => 0,
        _ if score >= i64::MIN as f64 => score as i64 as u64,
        _ => 1 << 63,
    })
}

/// Returns the point of a member.
fn point_of_member(set: SortedSet<'_>, member: &[u8]) -> Option<Point> {
    set.score(member).map(point_of_score)
}

/// Writes a distance with four decimals.
fn reply_distance(distance: f64, out: &mut Out) {
    const PARTS: f64 = 10_000.0;
    let parts = (distance * PARTS).round_ties_even() as i64;
    let (whole, fraction) = (parts / PARTS as i64, (parts % PARTS as i64).unsigned_abs());
    out.bulk(format!("{whole}.{fraction:04}").as_bytes());
}

/// Writes longitude and latitude with as many decimals as they have, seventeen at most.
fn reply_point(point: Point, out: &mut Out) {
    out.array(2);
    for coordinate in [point.longitude, point.latitude] {
        let text = format!("{coordinate:.17}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        let text = if text == "-0" { "0" } else { text };
        out.double_text(text.as_bytes());
    }
}
