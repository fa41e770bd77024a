//! IDs of stream entries: a time in milliseconds and a sequence number, ordered as one number of 128 bits.
//!
//! Arithmetic on IDs never wraps: without a successor or predecessor the result is None.

/// The ID of a stream entry, see the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds since the Unix epoch, on the clock of the server that added the entry.
    pub ms: u64,
    /// Distinguishes entries of one millisecond.
    pub seq: u64,
}

impl StreamId {
    /// The least ID, which no entry ever has.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    /// The greatest possible ID.
    pub const MAX: StreamId = StreamId {
        ms: u64::MAX,
        seq: u64::MAX,
    };

    /// Creates an ID from both parts.
    pub const fn new(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    /// Returns the next greater ID.
    pub fn next(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId::new(self.ms.checked_add(1)?, 0)),
        }
    }

    /// Returns the next smaller ID.
    pub fn previous(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId::new(self.ms.checked_sub(1)?, u64::MAX)),
        }
    }

    /// Returns the ID whose time and sequence number differ from this one's by signed distances, as stored in a node.
    pub(super) fn moved(self, ms: i64, seq: i64) -> StreamId {
        StreamId {
            ms: self.ms.wrapping_add_signed(ms),
            seq: self.seq.wrapping_add_signed(seq),
        }
    }

    /// Returns the distances that [`StreamId::moved`] needs to get from `origin` to this ID.
    pub(super) fn distance_from(self, origin: StreamId) -> (i64, i64) {
        (
            self.ms.wrapping_sub(origin.ms) as i64,
            self.seq.wrapping_sub(origin.seq) as i64,
        )
    }

    /// Parses `ms-seq`, or `ms` alone, in which case `seq_missing` is the sequence number.
    pub fn parse(text: &[u8], seq_missing: u64) -> Option<StreamId> {
        match ParsedId::parse(text)? {
            ParsedId::Whole(id) => Some(id),
            ParsedId::Time(ms) => Some(StreamId::new(ms, seq_missing)),
            ParsedId::AnySequence(_) => None,
        }
    }

    /// Returns the ID as text: `ms-seq`.
    pub fn text(self) -> IdText {
        let mut bytes = [0; ID_TEXT_MAX];
        let mut buffer = itoa::Buffer::new();
        let ms = buffer.format(self.ms).as_bytes();
        let mut len = ms.len();
        bytes[..len].copy_from_slice(ms);
        bytes[len] = b'-';
        len += 1;
        let seq = buffer.format(self.seq).as_bytes();
        bytes[len..len + seq.len()].copy_from_slice(seq);
        len += seq.len();
        IdText {
            bytes,
            len: len as u8,
        }
    }
}

/// An ID as given by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedId {
    /// A complete ID, `ms-seq`.
    Whole(StreamId),
    /// A time alone, `ms`; its meaning depends on the command.
    Time(u64),
    /// A time with any free sequence number, `ms-*`.
    AnySequence(u64),
}

impl ParsedId {
    /// Parses an ID in any of these forms; None if the text has no such form.
    pub fn parse(text: &[u8]) -> Option<ParsedId> {
        if text.len() > GIVEN_ID_MAX {
            return None;
        }
        let Some(dash) = text.iter().position(|byte| *byte == b'-') else {
            return Some(ParsedId::Time(parse_part(text)?));
        };
        let (ms, seq) = (&text[..dash], &text[dash + 1..]);
        let ms = parse_part(ms)?;
        if seq == b"*" {
            return Some(ParsedId::AnySequence(ms));
        }
        Some(ParsedId::Whole(StreamId::new(ms, parse_part(seq)?)))
    }
}

/// Maximum bytes of an ID; longer texts are rejected, as in Redis.
const GIVEN_ID_MAX: usize = 127;

/// Parses the digits of a number. Redis uses the C library for that, so leading blanks, zeros and a plus sign are
/// accepted.
fn parse_part(text: &[u8]) -> Option<u64> {
    let start = text
        .iter()
        .position(|byte| !matches!(byte, b' ' | b'\t'..=b'\r'))?;
    let text = &text[start..];
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// Maximum length: two numbers of 20 digits and a dash.
const ID_TEXT_MAX: usize = 41;

/// The text of an ID.
#[derive(Clone, Copy)]
pub struct IdText {
    bytes: [u8; ID_TEXT_MAX],
    len: u8,
}

impl IdText {
    /// Returns the text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId::new(ms, seq)
    }

    #[test]
    fn ids_are_read_in_all_their_forms() {
        const TOP: &str = "18446744073709551615";
        for (text, expected) in [
            ("0", Some(ParsedId::Time(0))),
            ("5-3", Some(ParsedId::Whole(id(5, 3)))),
            ("5-*", Some(ParsedId::AnySequence(5))),
            ("007-08", Some(ParsedId::Whole(id(7, 8)))),
            ("+7- 8", Some(ParsedId::Whole(id(7, 8)))),
            ("", None),
            ("-", None),
            ("5-", None),
            ("-5", None),
            ("5--1", None),
            ("5-1-1", None),
            ("5-1*", None),
            ("*", None),
            ("+", None),
            ("a", None),
            ("18446744073709551616", None),
            ("1-18446744073709551616", None),
        ] {
            assert_eq!(ParsedId::parse(text.as_bytes()), expected, "{text}");
        }
        let top = format!("{TOP}-{TOP}");
        assert_eq!(
            ParsedId::parse(top.as_bytes()),
            Some(ParsedId::Whole(StreamId::MAX))
        );
        assert_eq!(StreamId::parse(b"5", 9), Some(id(5, 9)));
        assert_eq!(StreamId::parse(b"5-*", 9), None);
        let long = [b'0'; GIVEN_ID_MAX + 1];
        assert_eq!(ParsedId::parse(&long), None);
        assert_eq!(ParsedId::parse(&long[1..]), Some(ParsedId::Time(0)));
    }

    #[test]
    fn neighbours_end_at_the_ends() {
        assert_eq!(StreamId::MIN.previous(), None);
        assert_eq!(StreamId::MAX.next(), None);
        assert_eq!(id(1, u64::MAX).next(), Some(id(2, 0)));
        assert_eq!(id(2, 0).previous(), Some(id(1, u64::MAX)));
        assert_eq!(id(2, 4).next(), Some(id(2, 5)));
        assert_eq!(id(2, 4).previous(), Some(id(2, 3)));
    }

    #[test]
    fn texts_are_read_back() {
        for one in [id(0, 0), id(12, 345), StreamId::MAX] {
            assert_eq!(StreamId::parse(one.text().as_bytes(), 0), Some(one));
        }
    }

    #[test]
    fn distances_lead_back_even_across_all_ids() {
        for (from, to) in [
            (id(5, 9), id(6, 0)),
            (id(0, 1), StreamId::MAX),
            (StreamId::MAX, id(0, 0)),
        ] {
            let (ms, seq) = to.distance_from(from);
            assert_eq!(from.moved(ms, seq), to);
        }
    }
}
