//! Replies that this server receives as a client of another server. They are decoded by `redis-protocol`, which is
//! slower than the parser of requests and accepts everything that a server may send. Such replies are few and short;
//! a stream from a primary consists of requests.

use std::fmt;

use memchr::memmem;
use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::types::OwnedFrame;

/// Maximum bytes of a reply. No server sends longer replies to the requests of this server.
const BYTES_MAX: usize = 16 * 1024;

/// Maximum number of array headers in a reply: the decoder uses stack for each nested array.
const ARRAYS_MAX: usize = 64;

/// A reply of another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A simple string, such as `OK`.
    Status(Vec<u8>),
    /// An error, without the leading `-`.
    Error(Vec<u8>),
    /// An array of bulk strings, which is the form of messages that a server sends unprompted.
    Words(Vec<Vec<u8>>),
    /// Any other reply.
    Other,
}

/// Error: the received bytes are not a reply, or are longer than any reply may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other server does not speak the Redis protocol")]
pub struct MalformedReply;

impl Answer {
    /// Removes the first reply from the received bytes and returns it; None if it is incomplete.
    pub fn take(input: &mut Vec<u8>) -> Result<Option<Answer>, MalformedReply> {
        if input.starts_with(b"*") && memmem::find_iter(input, b"\r\n*").count() > ARRAYS_MAX {
            return Err(MalformedReply);
        }
        let Some((frame, len)) = decode(input).map_err(|_| MalformedReply)? else {
            return match input.len() > BYTES_MAX {
                true => Err(MalformedReply),
                false => Ok(None),
            };
        };
        input.drain(..len);
        Ok(Some(Answer::of(frame)))
    }

    fn of(frame: OwnedFrame) -> Answer {
        let word = |frame| match frame {
            OwnedFrame::BulkString(word) => Some(word),
            _ => None,
        };
        match frame {
            OwnedFrame::SimpleString(text) => Answer::Status(text),
            OwnedFrame::Error(text) => Answer::Error(text.into_bytes()),
            OwnedFrame::Array(frames) => {
                let words: Option<Vec<Vec<u8>>> = frames.into_iter().map(word).collect();
                words.map_or(Answer::Other, Answer::Words)
            }
            _ => Answer::Other,
        }
    }
}

/// Displays a one-line reply as on the wire, with unprintable characters replaced.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Status(text) => write!(f, "+{}", String::from_utf8_lossy(text)),
            Answer::Error(text) => write!(f, "-{}", String::from_utf8_lossy(text)),
            Answer::Words(_) | Answer::Other => f.write_str("neither a status nor an error"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_one_by_one_as_they_come_whole() {
        let mut input =
            b"+OK\r\n-ERR why\r\n:7\r\n*2\r\n$7\r\nCLUSTER\r\n$3\r\nack\r\n$-1\r\n*1\r\n$3\r"
                .to_vec();
        let words = Answer::Words(vec![b"CLUSTER".to_vec(), b"ack".to_vec()]);
        for expected in [
            Answer::Status(b"OK".to_vec()),
            Answer::Error(b"ERR why".to_vec()),
            Answer::Other,
            words,
            Answer::Other,
        ] {
            assert_eq!(Answer::take(&mut input), Ok(Some(expected)));
        }
        assert_eq!(Answer::take(&mut input), Ok(None));
        assert_eq!(input, b"*1\r\n$3\r");
    }

    #[test]
    fn what_is_no_answer_or_has_no_end_is_refused() {
        assert_eq!(
            Answer::take(&mut b"HTTP/1.1 400\r\n".to_vec()),
            Err(MalformedReply)
        );
        assert_eq!(Answer::take(&mut b"*-7\r\n".to_vec()), Err(MalformedReply));
        let mut endless = b"+".to_vec();
        endless.resize(BYTES_MAX, b'x');
        assert_eq!(Answer::take(&mut endless), Ok(None));
        endless.extend_from_slice(b"xx");
        assert_eq!(Answer::take(&mut endless), Err(MalformedReply));
        let nested = b"*1\r\n".repeat(BYTES_MAX / 4);
        assert_eq!(Answer::take(&mut nested.clone()), Err(MalformedReply));
        let mut behind_another = b"*2\r\n$1\r\na\r\n".to_vec();
        behind_another.extend_from_slice(&nested);
        assert_eq!(Answer::take(&mut behind_another), Err(MalformedReply));
        // Nothing is allocated for elements that are only announced.
        assert_eq!(
            Answer::take(&mut b"*1000000000\r\n$1000000000\r\n".to_vec()),
            Ok(None)
        );
    }

    #[test]
    fn it_is_shown_as_it_came() {
        let shown = |bytes: &[u8]| {
            let answer = Answer::take(&mut bytes.to_vec()).expect("an answer");
            answer.expect("whole").to_string()
        };
        assert_eq!(shown(b"-ERR no\r\n"), "-ERR no");
        assert_eq!(shown(b"+PONG\r\n"), "+PONG");
        assert_eq!(shown(b":1\r\n"), "neither a status nor an error");
    }
}
