//! Sketches: types with approximate results and bounded memory. In Redis they are built-in modules since version 8;
//! names, replies, errors and defaults are those of Redis.
//!
//! ```text
//! bloom      BF.*       whether an element was added
//! cuckoo     CF.*       the same, and elements can be removed
//! count_min  CMS.*      how often an element was added
//! top_k      TOPK.*     which elements were added most often
//! t_digest   TDIGEST.*  how numbers are distributed
//! ```

mod bloom;
mod count_min;
mod cuckoo;
mod t_digest;
#[cfg(test)]
mod tests;
mod top_k;

use super::Args;
use super::declaration::{Command, KeyFlags, KeySpec};
use super::error::CommandError;
use basalt_core::base::number;
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Key;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::sketch::{SketchType, view, view_mut};

pub(super) static TABLE: &[&Command] = &[
    &bloom::BF_ADD,
    &bloom::BF_CARD,
    &bloom::BF_DEBUG,
    &bloom::BF_EXISTS,
    &bloom::BF_INFO,
    &bloom::BF_INSERT,
    &bloom::BF_LOADCHUNK,
    &bloom::BF_MADD,
    &bloom::BF_MEXISTS,
    &bloom::BF_RESERVE,
    &bloom::BF_SCANDUMP,
    &cuckoo::CF_ADD,
    &cuckoo::CF_ADDNX,
    &cuckoo::CF_COUNT,
    &cuckoo::CF_DEBUG,
    &cuckoo::CF_DEL,
    &cuckoo::CF_EXISTS,
    &cuckoo::CF_INFO,
    &cuckoo::CF_INSERT,
    &cuckoo::CF_INSERTNX,
    &cuckoo::CF_LOADCHUNK,
    &cuckoo::CF_MEXISTS,
    &cuckoo::CF_RESERVE,
    &cuckoo::CF_SCANDUMP,
    &count_min::CMS_INCRBY,
    &count_min::CMS_INFO,
    &count_min::CMS_INITBYDIM,
    &count_min::CMS_INITBYPROB,
    &count_min::CMS_MERGE,
    &count_min::CMS_QUERY,
    &t_digest::TDIGEST_ADD,
    &t_digest::TDIGEST_BYRANK,
    &t_digest::TDIGEST_BYREVRANK,
    &t_digest::TDIGEST_CDF,
    &t_digest::TDIGEST_CREATE,
    &t_digest::TDIGEST_INFO,
    &t_digest::TDIGEST_MAX,
    &t_digest::TDIGEST_MERGE,
    &t_digest::TDIGEST_MIN,
    &t_digest::TDIGEST_QUANTILE,
    &t_digest::TDIGEST_RANK,
    &t_digest::TDIGEST_RESET,
    &t_digest::TDIGEST_REVRANK,
    &t_digest::TDIGEST_TRIMMED_MEAN,
    &top_k::TOPK_ADD,
    &top_k::TOPK_COUNT,
    &top_k::TOPK_INCRBY,
    &top_k::TOPK_INFO,
    &top_k::TOPK_LIST,
    &top_k::TOPK_QUERY,
    &top_k::TOPK_RESERVE,
];

/// The version in which Redis added these commands.
const SINCE: &str = "8.0.0";

/// The single key of commands that return a sketch's content.
const READ_KEY: &[KeySpec] = KeySpec::FIRST_READ;
/// The key of commands that create a sketch, or add to it, without returning its content.
const INSERTED_KEY: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::INSERT))];
/// The key of commands that change a sketch's content without returning it.
const UPDATED_KEY: &[KeySpec] = KeySpec::FIRST_UPDATED;
/// The key of commands that add to a sketch and return its previous content.
const ANSWERED_KEY: &[KeySpec] = &[KeySpec::one(
    1,
    KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE),
)];

/// Maximum capacity of a filter.
const CAPACITY_MAX: i64 = 1 << 30;

/// Maximum growth factor from one layer of a filter to the next.
const EXPANSION_MAX: i64 = 32_768;

const NOT_FOUND: &str = "ERR not found";
const EXISTS: &str = "ERR item exists";

/// Looks up a sketch that must exist.
fn find<S: SketchType>(
    keyspace: &mut Keyspace<'_>,
    key: &Key<'_>,
    missing: &'static str,
) -> Result<EntrySlot, CommandError> {
    let found = keyspace.find_typed(key, S::DATA_TYPE)?;
    found.ok_or_else(|| missing.into())
}

/// Looks up a sketch that must exist, for reading.
fn read<'k, S: SketchType + 'k>(
    keyspace: &'k mut Keyspace<'_>,
    key: &Key<'_>,
    missing: &'static str,
) -> Result<&'k S, CommandError> {
    let found = keyspace.read_typed(key, S::DATA_TYPE)?;
    let place = found.ok_or_else(|| CommandError::from(missing))?;
    Ok(view(keyspace.entry(place)))
}

/// Changes a sketch in place.
fn change<S: SketchType, R>(
    keyspace: &mut Keyspace<'_>,
    place: EntrySlot,
    change: impl FnOnce(&mut S) -> R,
) -> R {
    keyspace.edit(place, |entry| change(view_mut(entry)))
}

fn integer(args: &Args<'_>, index: usize, error: &'static str) -> Result<i64, CommandError> {
    number::parse_i64(args.get(index)).ok_or_else(|| error.into())
}

fn float(args: &Args<'_>, index: usize, error: &'static str) -> Result<f64, CommandError> {
    number::parse_f64(args.get(index)).ok_or_else(|| error.into())
}
