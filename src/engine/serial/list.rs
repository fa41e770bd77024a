//! Lists: element after element, or nodes that are packs.
//!
//! ```text
//! 1   LIST          count | string …
//! 10  ZIPLIST       string with a ziplist
//! 14  QUICKLIST     count | string with a ziplist …
//! 18  QUICKLIST_2   count | ( 1 | string: one large element  or  2 | string with a pack ) …
//! ```

use super::packed::Packed;
use super::reader::Reader;
use super::{Malformed, types};
use crate::structures::pack::{Element, Pack};

/// A node that is one element.
pub(super) const NODE_PLAIN: u64 = 1;
/// A node that is a pack of elements.
pub(super) const NODE_PACKED: u64 = 2;

/// A part of a list, in order.
pub(super) enum Part<'a> {
    /// One element.
    Element(Element<'a>),
    /// A pack of them, not empty.
    Pack(Pack<'a>),
}

/// Reads a list of any form and calls `add` with its parts.
pub(super) fn read(
    form: u8,
    reader: &mut Reader<'_>,
    mut add: impl FnMut(Part<'_>),
) -> Result<(), Malformed> {
    match form {
        types::LIST => {
            for _ in 0..reader.count(1)? {
                add(Part::Element(Element::Bytes(&reader.string()?)));
            }
        }
        types::LIST_ZIPLIST => read_ziplist(&reader.string()?, &mut add)?,
        types::LIST_QUICKLIST => {
            for _ in 0..reader.count(1)? {
                read_ziplist(&reader.string()?, &mut add)?;
            }
        }
        _ => {
            for _ in 0..reader.count(2)? {
                let node = reader.length()?;
                let bytes = reader.string()?;
                match node {
                    NODE_PLAIN if !bytes.is_empty() => add(Part::Element(Element::Bytes(&bytes))),
                    NODE_PACKED => {
                        let pack = Pack::check(&bytes).ok_or(Malformed::PACK)?;
                        if !pack.is_empty() {
                            add(Part::Pack(pack));
                        }
                    }
                    _ => return Err(Malformed("a list node of an unknown kind")),
                }
            }
        }
    }
    Ok(())
}

fn read_ziplist(bytes: &[u8], add: &mut impl FnMut(Part<'_>)) -> Result<(), Malformed> {
    Packed::ziplist(bytes)?.each(|element| {
        add(Part::Element(element));
        Ok(())
    })
}
