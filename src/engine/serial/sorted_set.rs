//! Sorted sets: members with scores, or a pack of both.
//!
//! ```text
//! 3   ZSET       count | ( member | score as text ) …       of the time before version 8
//! 5   ZSET_2     count | ( member | score f64 ) …           highest first, though nobody asks for it
//! 12  ZIPLIST    string with a ziplist of member, score …   in order
//! 17  LISTPACK   string with a pack of member, score …      in order
//! ```

use super::packed::{Packed, score};
use super::reader::Reader;
use super::{Malformed, types};

/// Reads a sorted set of any form and calls `add` with each member and its score.
pub(super) fn read(
    form: u8,
    reader: &mut Reader<'_>,
    mut add: impl FnMut(&[u8], f64) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    match form {
        types::ZSET | types::ZSET_2 => {
            for _ in 0..reader.count(2)? {
                let member = reader.string()?;
                let score = if form == types::ZSET {
                    reader.text_double()?
                } else {
                    reader.double()?
                };
                add(&member, score)?;
            }
            Ok(())
        }
        _ => {
            let bytes = reader.string()?;
            let packed = if form == types::ZSET_ZIPLIST {
                Packed::ziplist(&bytes)?
            } else {
                Packed::pack(&bytes)?
            };
            let mut last: Option<(f64, Vec<u8>)> = None;
            packed.each_group(|[member, text]| {
                let score = score(text)?;
                member.with_bytes(|member| {
                    if let Some((last_score, last_member)) = &last
                        && (*last_score, last_member.as_slice()) > (score, member)
                    {
                        return Err(Malformed::ORDER);
                    }
                    let mut buffer = last.take().map(|(_, member)| member).unwrap_or_default();
                    buffer.clear();
                    buffer.extend_from_slice(member);
                    last = Some((score, buffer));
                    add(member, score)
                })
            })
        }
    }
}
