//! Reads ziplists: the packed lists of older versions, still found in old snapshots and DUMP payloads.
//!
//! ```text
//! bytes u32 | last u32 | count u16 | entry … | 0xff          little-endian
//! entry     length of the entry before it: one byte below 254, or 0xfe and u32
//!           00xxxxxx                  text of 0-63 bytes
//!           01xxxxxx xxxxxxxx         text of 0-16383 bytes, big-endian
//!           0x80 u32                  text of any length, big-endian
//!           0xc0 i16 · 0xd0 i32 · 0xe0 i64 · 0xf0 i24 · 0xfe i8 · 0xf1-0xfd the numbers 0-12
//! ```
//!
//! `last` is the offset of the last entry; a count of 65535 means that the entries have to be counted. Nothing writes
//! this format any more, so this module only checks untrusted bytes and walks over checked ones.

use crate::structures::listpack::Element;

const HEADER_BYTES: usize = 10;
const END: u8 = 0xff;
const COUNT_UNKNOWN: u16 = u16::MAX;
/// Marker for a long preceding entry: its length is in the four bytes that follow.
const LENGTH_LONG: u8 = 254;

/// A fully validated ziplist.
#[derive(Clone, Copy, Debug)]
pub struct Ziplist<'a> {
    /// The bytes of all entries, without the end mark.
    entries: &'a [u8],
    count: usize,
}

/// One entry: the length of the preceding entry, the element, and the entry's own length.
struct ZiplistEntry<'a> {
    before_bytes: usize,
    element: Element<'a>,
    bytes: usize,
}

impl<'a> Ziplist<'a> {
    /// Validates untrusted bytes; None unless they are a valid ziplist in every detail.
    pub fn check(bytes: &'a [u8]) -> Option<Ziplist<'a>> {
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
        let (&END, entries) = rest.split_last()? else {
            return None;
        };
        let total = u32::from_le_bytes(header[0..4].try_into().ok()?);
        let last = u32::from_le_bytes(header[4..8].try_into().ok()?);
        let claimed = u16::from_le_bytes(header[8..10].try_into().ok()?);
        if total as usize != bytes.len() {
            return None;
        }
        let (mut at, mut last_at, mut before_bytes, mut count) = (0, 0, 0, 0);
        while at < entries.len() {
            let entry = decode(&entries[at..])?;
            if entry.before_bytes != before_bytes {
                return None;
            }
            last_at = at;
            before_bytes = entry.bytes;
            at += entry.bytes;
            count += 1;
        }
        let is_last_right = count == 0 || last as usize == HEADER_BYTES + last_at;
        let is_count_right = claimed == COUNT_UNKNOWN || usize::from(claimed) == count;
        (is_last_right && is_count_right && (last as usize) < bytes.len())
            .then_some(Ziplist { entries, count })
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Element<'a>> + use<'a> {
        let mut rest = self.entries;
        std::iter::from_fn(move || {
            let entry = decode(rest)?;
            rest = &rest[entry.bytes..];
            Some(entry.element)
        })
    }
}

/// Returns the first entry of `bytes`; `None` if it is invalid, or does not fit in `bytes`.
fn decode(bytes: &[u8]) -> Option<ZiplistEntry<'_>> {
    let (&first, rest) = bytes.split_first()?;
    let (before_bytes, rest) = match first {
        END => return None,
        LENGTH_LONG => {
            let (length, rest) = rest.split_first_chunk::<4>()?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
        short => (usize::from(short), rest),
    };
    let (&code, rest) = rest.split_first()?;
    let (element, rest) = match code {
        0x00..=0x3f => text(usize::from(code), rest)?,
        0x40..=0x7f => {
            let (&low, rest) = rest.split_first()?;
            text(usize::from(code & 0x3f) << 8 | usize::from(low), rest)?
        }
        0x80 => {
            let (length, rest) = rest.split_first_chunk::<4>()?;
            text(u32::from_be_bytes(*length) as usize, rest)?
        }
        0xc0 => integer::<2>(rest)?,
        0xd0 => integer::<4>(rest)?,
        0xe0 => integer::<8>(rest)?,
        0xf0 => integer::<3>(rest)?,
        0xfe => integer::<1>(rest)?,
        0xf1..=0xfd => (Element::Integer(i64::from(code & 0x0f) - 1), rest),
        _ => return None,
    };
    Some(ZiplistEntry {
        before_bytes,
        element,
        bytes: bytes.len() - rest.len(),
    })
}

fn text(length: usize, bytes: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (text, rest) = bytes.split_at_checked(length)?;
    Some((Element::Bytes(text), rest))
}

fn integer<const BYTES: usize>(bytes: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<BYTES>()?;
    let sign = if number[BYTES - 1] & 0x80 == 0 {
        0
    } else {
        0xff
    };
    let mut wide = [sign; 8];
    wide[..BYTES].copy_from_slice(number);
    Some((Element::Integer(i64::from_le_bytes(wide)), rest))
}

/// Makes ziplists, for tests of their readers; written from the format above.
#[cfg(any(test, feature = "testing"))]
pub mod maker {
    use super::{END, HEADER_BYTES};

    /// Makes a ziplist of these texts; if `packs_integers`, texts that are integers are stored as such.
    pub fn ziplist(elements: &[&[u8]], packs_integers: bool) -> Vec<u8> {
        let mut entries = Vec::new();
        let (mut last_at, mut before) = (0, 0);
        for element in elements {
            last_at = entries.len();
            if before < 254 {
                entries.push(before as u8);
            } else {
                entries.push(254);
                entries.extend_from_slice(&(before as u32).to_le_bytes());
            }
            let number = crate::base::number::parse_i64(element).filter(|_| packs_integers);
            match number {
                Some(number) => push_integer(number, &mut entries),
                None => push_text(element, &mut entries),
            }
            before = entries.len() - last_at;
        }
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&((HEADER_BYTES + entries.len() + 1) as u32).to_le_bytes());
        bytes.extend_from_slice(&((HEADER_BYTES + last_at) as u32).to_le_bytes());
        bytes.extend_from_slice(&(elements.len().min(0xffff) as u16).to_le_bytes());
        bytes.extend_from_slice(&entries);
        bytes.push(END);
        bytes
    }

    fn push_text(text: &[u8], into: &mut Vec<u8>) {
        match text.len() {
            length @ 0..=0x3f => into.push(length as u8),
            length @ 0x40..=0x3fff => {
                into.extend_from_slice(&[0x40 | (length >> 8) as u8, length as u8]);
            }
            length => {
                into.push(0x80);
                into.extend_from_slice(&(length as u32).to_be_bytes());
            }
        }
        into.extend_from_slice(text);
    }

    fn push_integer(number: i64, into: &mut Vec<u8>) {
        let wide = number.to_le_bytes();
        let (code, bytes) = match number {
            0..=12 => (0xf1 + number as u8, 0),
            -0x80..=0x7f => (0xfe, 1),
            -0x8000..=0x7fff => (0xc0, 2),
            -0x80_0000..=0x7f_ffff => (0xf0, 3),
            -0x8000_0000..=0x7fff_ffff => (0xd0, 4),
            _ => (0xe0, 8),
        };
        into.push(code);
        into.extend_from_slice(&wide[..bytes]);
    }
}

#[cfg(test)]
mod tests {
    use super::maker::ziplist;
    use super::*;
    use proptest::prelude::*;

    /// The example in Redis's own documentation of the format: the strings "2" and "5".
    #[test]
    fn the_documented_example_is_read() {
        let bytes = b"\x0f\0\0\0\x0c\0\0\0\x02\0\x00\xf3\x02\xf6\xff";
        let list = Ziplist::check(bytes).expect("a list");
        let numbers: Vec<_> = list.iter().map(|element| element.to_vec()).collect();
        assert_eq!(numbers, [b"2", b"5"]);
        assert_eq!(ziplist(&[b"2", b"5"], true), bytes);
    }

    #[test]
    fn an_empty_list_is_one() {
        let list = ziplist(&[], true);
        assert!(Ziplist::check(&list).is_some_and(|list| list.is_empty()));
        assert!(Ziplist::check(&list[..10]).is_none());
        assert!(Ziplist::check(b"").is_none());
    }

    #[test]
    fn what_is_out_of_step_is_no_list() {
        let long = [b'x'; 300];
        let good = ziplist(&[b"a", &long, b"7", b"b"], true);
        assert!(Ziplist::check(&good).is_some());
        // The bytes to be damaged: the header's total, last and count; the length before the second entry and before
        // the third; the end.
        for at in [0, 4, 8, 13, 13 + 303, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(Ziplist::check(&bad).is_none(), "byte {at}");
        }
        let mut counted = good.clone();
        counted[8..10].copy_from_slice(&[0xff; 2]);
        assert_eq!(Ziplist::check(&counted).map(|list| list.len()), Some(4));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn what_was_put_in_comes_out(
            texts in prop::collection::vec(
                prop_oneof![
                    any::<i64>().prop_map(|number| number.to_string().into_bytes()),
                    (-300i64..300).prop_map(|number| number.to_string().into_bytes()),
                    prop::collection::vec(any::<u8>(), 0..400),
                    Just(vec![b'x'; 20_000]),
                ],
                0..20,
            ),
            packs_integers: bool,
        ) {
            let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
            let bytes = ziplist(&texts, packs_integers);
            let list = Ziplist::check(&bytes).expect("a list");
            prop_assert_eq!(list.len(), texts.len());
            let read: Vec<_> = list.iter().map(|element| element.to_vec()).collect();
            prop_assert_eq!(read, texts);
        }

        #[test]
        fn no_bytes_make_the_walk_fail(
            mut bytes in prop::collection::vec(any::<u8>(), 0..80),
            at in any::<prop::sample::Index>(),
            byte: u8,
        ) {
            let _ = Ziplist::check(&bytes).map(|list| list.iter().count());
            let total = (bytes.len() + 11) as u32;
            let mut framed = [&total.to_le_bytes()[..], &[10, 0, 0, 0, 0xff, 0xff]].concat();
            framed.append(&mut bytes);
            framed.push(END);
            let index = at.index(framed.len());
            framed[index] = byte;
            if let Some(list) = Ziplist::check(&framed) {
                prop_assert_eq!(list.iter().count(), list.len());
            }
        }
    }
}
