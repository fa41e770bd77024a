//! Sets: member after member, an intset, or a pack.
//!
//! ```text
//! 2   SET        count | string …
//! 11  INTSET     string with an intset
//! 20  LISTPACK   string with a pack; since version 11, so it is not written for others
//! ```

use super::packed::Packed;
use super::reader::Reader;
use super::{Malformed, types};
use crate::structures::intset::Intset;
use crate::structures::pack::Element;

/// Reads a set of any form and calls `add` with each member.
pub(super) fn read(
    form: u8,
    reader: &mut Reader<'_>,
    mut add: impl FnMut(&[u8]) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    match form {
        types::SET => {
            for _ in 0..reader.count(1)? {
                add(&reader.string()?)?;
            }
            Ok(())
        }
        types::SET_INTSET => {
            let bytes = reader.string()?;
            let set = Intset::check(&bytes).ok_or(Malformed::PACK)?;
            set.iter()
                .try_for_each(|number| Element::Integer(number).with_bytes(&mut add))
        }
        _ => {
            let bytes = reader.string()?;
            Packed::pack(&bytes)?.each(|member| member.with_bytes(&mut add))
        }
    }
}
