//! Finds where replies end in bytes that this server has written: for replies that must be replaced after they were
//! written.

use memchr::memmem;

use crate::base::number;

/// The length of the first reply in `bytes`, and whether it is a push, which answers no request; None if `bytes` does
/// not begin with a whole reply.
///
/// Attributes belong to the reply that follows them. Uses no stack for nested aggregates.
#[must_use]
pub fn first_reply(bytes: &[u8]) -> Option<(usize, bool)> {
    let is_push = bytes.first() == Some(&b'>');
    let mut at = 0;
    // Elements that are still to come.
    let mut due: usize = 1;
    while due > 0 {
        let rest = bytes.get(at..)?;
        let line_len = memmem::find(rest, b"\r\n")?;
        let (kind, line) = rest[..line_len].split_first()?;
        at += line_len + 2;
        due -= 1;
        // Null strings and null arrays of RESP2 have the length -1.
        let count = || number::parse_i64(line).map(|count| usize::try_from(count).ok());
        match kind {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => {}
            b'$' | b'!' | b'=' => {
                if let Some(len) = count()? {
                    at = at.checked_add(len)?.checked_add(2)?;
                }
            }
            b'*' | b'~' | b'>' => due = due.checked_add(count()?.unwrap_or(0))?,
            b'%' => due = due.checked_add(count()??.checked_mul(2)?)?,
            // The reply itself follows.
            b'|' => due = due.checked_add(count()??.checked_mul(2)?)?.checked_add(1)?,
            _ => return None,
        }
    }
    (at <= bytes.len()).then_some((at, is_push))
}

#[cfg(test)]
mod tests {
    use super::super::{Out, Protocol};
    use super::*;

    #[test]
    fn each_kind_of_reply_ends_where_the_next_begins() {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let mut out = Out::new(protocol);
            let mut ends = Vec::new();
            let mut write = |write: &dyn Fn(&mut Out)| {
                write(&mut out);
                ends.push(out.len_bytes());
            };
            write(&|out| out.ok());
            write(&|out| out.error("ERR no"));
            write(&|out| out.integer(-7));
            write(&|out| out.bulk(b"with\r\nlines\r\n$5\r\n"));
            write(&|out| out.bulk(b""));
            write(&|out| out.null());
            write(&|out| out.null_array());
            write(&|out| out.double(1.5));
            write(&|out| out.boolean(true));
            write(&|out| out.big_number("123456789012345678901234567890"));
            write(&|out| out.verbatim("txt", "some text"));
            write(&|out| out.array(0));
            write(&|out| {
                out.array(3);
                out.map(1);
                out.bulk(b"field");
                out.set(2);
                out.integer(1);
                out.array(1);
                out.null();
                out.ok();
                out.array(0);
            });
            write(&|out| out.ok());
            let bytes = out.as_slice().expect("one piece").to_vec();
            let mut at = 0;
            for end in ends {
                let (len, is_push) = first_reply(&bytes[at..]).expect("a whole reply");
                assert_eq!((at + len, is_push), (end, false));
                assert_eq!(first_reply(&bytes[at..end - 1]), None, "cut short");
                at = end;
            }
            assert_eq!(first_reply(b""), None);
        }
    }

    #[test]
    fn pushes_are_told_apart_and_attributes_belong_to_the_reply() {
        let mut out = Out::new(Protocol::Resp3);
        out.push(2);
        out.bulk(b"invalidate");
        out.array(1);
        out.bulk(b"key");
        let len = out.len_bytes();
        out.attribute(1);
        out.bulk(b"a");
        out.bulk(b"b");
        out.integer(5);
        let bytes = out.as_slice().expect("one piece").to_vec();
        assert_eq!(first_reply(&bytes), Some((len, true)));
        assert_eq!(first_reply(&bytes[len..]), Some((bytes.len() - len, false)));
    }

    #[test]
    fn damaged_bytes_are_no_reply() {
        for bytes in [
            &b"$9223372036854775807\r\nx\r\n"[..],
            b"*9223372036854775807\r\n",
            b"%9223372036854775807\r\n:1\r\n",
            b"%-1\r\n",
            b"$x\r\n",
            b"?\r\n",
            b"\r\n",
            b"*2\r\n:1\r\n",
        ] {
            assert_eq!(first_reply(bytes), None, "{}", bytes.escape_ascii());
        }
    }
}
