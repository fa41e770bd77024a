//! Hashes: pairs one after the other, or in one pack; fields with deadlines since version 12.
//!
//! ```text
//! 4   HASH             count | ( field | value ) …
//! 9   ZIPMAP           string with a zipmap
//! 13  ZIPLIST          string with a ziplist of field, value …
//! 16  LISTPACK         string with a pack of field, value …
//! 24  METADATA         earliest deadline u64 | count | ( deadline | field | value ) …
//!                      deadline: length; 0 none, else 1 more than what it comes after the earliest
//! 25  LISTPACK_EX      earliest deadline u64 | string with a pack of field, value, deadline …
//!                      those with a deadline first, earliest first; 0 none
//! 22, 23               24 and 25 of a release candidate: no earliest deadline, and deadlines are absolute
//! ```

use super::packed::Packed;
use super::reader::Reader;
use super::{Malformed, types};
use crate::structures::entry::DEADLINE_MAX;
use crate::structures::pack::Element;
use crate::structures::zipmap::Zipmap;

/// Reads a hash of any form and calls `add` with each field, its value and its deadline in Unix milliseconds.
pub(super) fn read(
    form: u8,
    reader: &mut Reader<'_>,
    mut add: impl FnMut(&[u8], &[u8], Option<u64>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    match form {
        types::HASH => {
            for _ in 0..reader.count(2)? {
                let field = reader.string()?;
                let value = reader.string()?;
                add(&field, &value, None)?;
            }
            Ok(())
        }
        types::HASH_ZIPMAP => {
            let bytes = reader.string()?;
            let map = Zipmap::check(&bytes).ok_or(Malformed::PACK)?;
            map.iter()
                .try_for_each(|(field, value)| add(field, value, None))
        }
        types::HASH_ZIPLIST | types::HASH_LISTPACK => {
            let bytes = reader.string()?;
            let packed = if form == types::HASH_ZIPLIST {
                Packed::ziplist(&bytes)?
            } else {
                Packed::pack(&bytes)?
            };
            packed.each_group(|[field, value]| pair(field, value, None, &mut add))
        }
        types::HASH_METADATA | types::HASH_METADATA_RC => {
            let earliest = if form == types::HASH_METADATA {
                reader.millis()?
            } else {
                1
            };
            for _ in 0..reader.count(3)? {
                let deadline = match reader.length()? {
                    0 => None,
                    after => Some(checked_deadline(earliest.checked_add(after - 1))?),
                };
                let field = reader.string()?;
                let value = reader.string()?;
                add(&field, &value, deadline)?;
            }
            Ok(())
        }
        _ => {
            if form == types::HASH_LISTPACK_EX {
                // It serves readers that do not want to look into the pack.
                reader.millis()?;
            }
            let bytes = reader.string()?;
            // Those without deadline come last: 0 stands for later than all.
            let mut last = Some(0);
            Packed::pack(&bytes)?.each_group(|[field, value, deadline]| {
                let Element::Integer(deadline) = deadline else {
                    return Err(Malformed("a deadline that is no number"));
                };
                let deadline = match deadline {
                    0 => None,
                    at_ms => Some(checked_deadline(u64::try_from(at_ms).ok())?),
                };
                let is_in_order =
                    deadline.is_none() || last.is_some_and(|last| Some(last) <= deadline);
                if !is_in_order {
                    return Err(Malformed::ORDER);
                }
                last = deadline;
                pair(field, value, deadline, &mut add)
            })
        }
    }
}

fn pair(
    field: Element<'_>,
    value: Element<'_>,
    deadline: Option<u64>,
    add: &mut impl FnMut(&[u8], &[u8], Option<u64>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    field.with_bytes(|field| value.with_bytes(|value| add(field, value, deadline)))
}

fn checked_deadline(at_ms: Option<u64>) -> Result<u64, Malformed> {
    at_ms
        .filter(|at_ms| *at_ms <= DEADLINE_MAX)
        .ok_or(Malformed("a deadline beyond all time"))
}
