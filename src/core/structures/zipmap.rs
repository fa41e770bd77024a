//! Reads zipmaps: the form of hashes before Redis 2.6, found in snapshots of that age.
//!
//! ```text
//! count u8 | field and value … | 0xff
//! each       length | field | length | free u8 | value | free bytes
//! length     one byte below 254, or 0xfe and u32 little-endian
//! ```
//!
//! A count of 254 means that the pairs have to be counted.

const END: u8 = 0xff;
const LENGTH_LONG: u8 = 254;

/// A fully validated zipmap. Fields may still occur twice.
#[derive(Clone, Copy, Debug)]
pub struct Zipmap<'a> {
    /// Bytes between the count and the end mark.
    pairs: &'a [u8],
    count: usize,
}

impl<'a> Zipmap<'a> {
    /// Validates untrusted bytes; None unless they are a valid zipmap in every detail.
    pub fn check(bytes: &'a [u8]) -> Option<Zipmap<'a>> {
        let (&claimed, rest) = bytes.split_first()?;
        let (&END, pairs) = rest.split_last()? else {
            return None;
        };
        let (mut rest, mut count) = (pairs, 0);
        while !rest.is_empty() {
            (_, rest) = pair(rest)?;
            count += 1;
        }
        (claimed == LENGTH_LONG || usize::from(claimed) == count).then_some(Zipmap { pairs, count })
    }

    /// Returns the number of pairs.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the fields with their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = self.pairs;
        std::iter::from_fn(move || {
            let (found, behind) = pair(rest)?;
            rest = behind;
            Some(found)
        })
    }
}

type Pair<'a> = (&'a [u8], &'a [u8]);

fn pair(bytes: &[u8]) -> Option<(Pair<'_>, &[u8])> {
    let (length, rest) = length(bytes)?;
    let (field, rest) = rest.split_at_checked(length)?;
    let (length, rest) = self::length(rest)?;
    let (&free, rest) = rest.split_first()?;
    let (value, rest) = rest.split_at_checked(length)?;
    let (_, rest) = rest.split_at_checked(usize::from(free))?;
    Some(((field, value), rest))
}

fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    match first {
        END => None,
        LENGTH_LONG => {
            let (length, rest) = rest.split_first_chunk::<4>()?;
            Some((u32::from_le_bytes(*length) as usize, rest))
        }
        short => Some((usize::from(short), rest)),
    }
}

/// Makes zipmaps, for tests of their readers; written from the format above.
#[cfg(any(test, feature = "testing"))]
pub mod maker {
    /// Makes a zipmap of these pairs, each value with `free` unused bytes after it.
    pub fn zipmap(pairs: &[(&[u8], &[u8])], free: u8) -> Vec<u8> {
        let mut bytes = vec![pairs.len().min(254) as u8];
        for (field, value) in pairs {
            push_length(field.len(), &mut bytes);
            bytes.extend_from_slice(field);
            push_length(value.len(), &mut bytes);
            bytes.push(free);
            bytes.extend_from_slice(value);
            bytes.resize(bytes.len() + usize::from(free), 0xee);
        }
        bytes.push(0xff);
        bytes
    }

    fn push_length(length: usize, into: &mut Vec<u8>) {
        if length < 254 {
            into.push(length as u8);
        } else {
            into.push(254);
            into.extend_from_slice(&(length as u32).to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::maker::zipmap;
    use super::*;
    use proptest::prelude::*;

    /// The example in Redis's own documentation of the format.
    #[test]
    fn the_documented_example_is_read() {
        let bytes = b"\x02\x03foo\x03\x00bar\x05hello\x05\x00world\xff";
        let map = Zipmap::check(bytes).expect("a map");
        let pairs: Vec<_> = map.iter().collect();
        assert_eq!(pairs, [(&b"foo"[..], &b"bar"[..]), (b"hello", b"world")]);
    }

    #[test]
    fn what_is_out_of_step_is_no_map() {
        let good = zipmap(&[(b"a", b"1"), (b"b", &[b'x'; 300])], 2);
        assert_eq!(Zipmap::check(&good).map(|map| map.len()), Some(2));
        for at in [0, 1, 3, 4, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] = bad[at].wrapping_add(1);
            assert!(Zipmap::check(&bad).is_none(), "byte {at}");
        }
        for cut in 0..good.len() {
            assert!(Zipmap::check(&good[..cut]).is_none(), "cut at {cut}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn what_was_put_in_comes_out(
            pairs in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 0..300), prop::collection::vec(any::<u8>(), 0..300)),
                0..300,
            ),
            free in 0u8..5,
        ) {
            let pairs: Vec<(&[u8], &[u8])> = pairs
                .iter()
                .map(|(field, value)| (field.as_slice(), value.as_slice()))
                .collect();
            let bytes = zipmap(&pairs, free);
            let map = Zipmap::check(&bytes).expect("a map");
            prop_assert_eq!(map.iter().collect::<Vec<_>>(), pairs);
        }

        #[test]
        fn no_bytes_make_the_walk_fail(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(map) = Zipmap::check(&bytes) {
                prop_assert_eq!(map.iter().count(), map.len());
            }
        }
    }
}
