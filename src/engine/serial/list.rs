//! Lists: individual elements, or nodes that are listpacks.
//!
//! ```text
//! 1   LIST          count | string …
//! 10  ZIPLIST       string with a ziplist
//! 14  QUICKLIST     count | string with a ziplist …
//! 18  QUICKLIST_2   count | ( 1 | string: one large element  or  2 | string with a listpack ) …
//! ```

use super::nodes::{self, NODE_PACKED, NODE_PLAIN};
use super::packed::Packed;
use super::reader::Reader;
use super::writer::Writer;
use super::{Malformed, types};
use crate::value::Object;
use crate::value::list::{ListRef, entry_of};
use basalt_core::structures::entry::{Entry, EntryRef, Value};
use basalt_core::structures::listpack::{Element, Listpack};
use basalt_core::structures::quicklist::{End, Quicklist, QuicklistLimits, QuicklistNodeView};

/// Writes a list as nodes, after its type byte.
pub(super) fn write(entry: EntryRef<'_, Object>, writer: &mut Writer) {
    match (
        ListRef::of(entry).and_then(ListRef::as_quicklist),
        entry.value(),
    ) {
        (Some(list), _) => {
            let nodes = list.nodes();
            nodes::begin(nodes.len() as u64, writer);
            nodes.for_each(|node| nodes::node(&node, writer));
        }
        (None, Value::Bytes(pack)) => {
            nodes::begin(1, writer);
            nodes::node(&QuicklistNodeView::Packed(pack.into()), writer);
        }
        (None, _) => unreachable!("a list is a pack or nodes"),
    }
}

/// Reads a list of any form.
pub(super) fn read(
    rdb_type: u8,
    key: &[u8],
    reader: &mut Reader<'_>,
    limits: &QuicklistLimits,
) -> Result<Entry<Object>, Malformed> {
    let mut list = Quicklist::new(*limits);
    match rdb_type {
        types::LIST => {
            for _ in 0..reader.count(1)? {
                list.push(End::Back, &reader.string()?);
            }
        }
        types::LIST_ZIPLIST => read_ziplist(&reader.string()?, &mut list)?,
        types::LIST_QUICKLIST => {
            for _ in 0..reader.count(1)? {
                read_ziplist(&reader.string()?, &mut list)?;
            }
        }
        _ => {
            for _ in 0..reader.count(2)? {
                let node = reader.length()?;
                let bytes = reader.string()?;
                match node {
                    NODE_PLAIN if !bytes.is_empty() => list.append_plain(&bytes),
                    NODE_PACKED => {
                        list.append_listpack(Listpack::check(&bytes).ok_or(Malformed::PACK)?);
                    }
                    _ => return Err(Malformed("a list node of an unknown type")),
                }
            }
        }
    }
    if list.is_empty() {
        return Err(Malformed::EMPTY);
    }
    Ok(entry_of(key, list, limits, None))
}

/// Reads the elements of a ziplist into nodes of the current size.
fn read_ziplist(bytes: &[u8], list: &mut Quicklist) -> Result<(), Malformed> {
    Packed::ziplist(bytes)?.each(|element: Element<'_>| {
        element.with_bytes(|element| list.push(End::Back, element));
        Ok(())
    })
}
