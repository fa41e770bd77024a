//! A minimal client connection over the Redis protocol: requests as arrays of texts, and any reply of RESP 2. A
//! server may send anything, so lengths and times are bounded.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use basalt_core::base::text::visible;
use basalt_core::resp::request::append;
use basalt_server::tls::asking::{self, ToolTls};

/// Timeout for connecting to the server, and for each read.
const PATIENCE: Duration = Duration::from_secs(5);

/// Timeout for a whole reply.
const WHOLE_PATIENCE: Duration = Duration::from_secs(10);

/// Maximum bytes of a text.
const TEXT_BYTES_MAX: usize = 8 << 20;

/// Maximum bytes of a line.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Maximum elements of a reply, including nested ones.
const ELEMENTS_MAX: usize = 1 << 20;

/// Maximum nesting depth of replies.
const DEPTH_MAX: usize = 16;

/// A server's address, with credentials.
#[derive(Clone, Debug)]
pub(crate) struct ServerEndpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) socket: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// TLS settings, if TLS is used.
    pub(crate) tls: Option<ToolTls>,
}

impl ServerEndpoint {
    /// Formats the address for messages.
    pub(crate) fn shown(&self) -> String {
        match &self.socket {
            Some(path) => path.clone(),
            None => format!("{}:{}", self.host, self.port),
        }
    }
}

/// Why a query failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// The server is unreachable, gone, or silent.
    #[error("{0}: {reason}", reason = reason(.1))]
    Lost(String, io::Error),
    /// The server replied with an error.
    #[error("{0}")]
    Refused(String),
    /// The server sent something that is not a reply.
    #[error("The server does not speak the Redis protocol: {0}")]
    Strange(&'static str),
}

/// Describes a system error for messages.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        // Sockets report an expired timeout as either error kind, depending on the platform.
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("the server did not answer within {} s", PATIENCE.as_secs())
        }
        io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
        _ => error.to_string(),
    }
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Text(Vec<u8>),
    Integer(i64),
    Error(String),
    Nothing,
    Array(Vec<Reply>),
}

impl Reply {
    /// Returns the bytes of a text; empty for anything else.
    pub(crate) fn text(&self) -> &[u8] {
        match self {
            Reply::Text(text) => text,
            _ => b"",
        }
    }

    pub(super) fn integer(&self) -> i64 {
        match self {
            Reply::Integer(number) => *number,
            _ => 0,
        }
    }

    /// Returns the elements of an array; empty for anything else.
    pub(crate) fn elements(&self) -> &[Reply] {
        match self {
            Reply::Array(elements) => elements,
            _ => &[],
        }
    }
}

trait WireStream: Read + Write + Send {}
impl WireStream for TcpStream {}
impl WireStream for UnixStream {}
impl WireStream for asking::TlsClientStream {}

/// A stream that fails after a deadline, even while data arrives: a server that sends a byte now and then would
/// otherwise be read forever.
struct Bounded {
    stream: Box<dyn WireStream>,
    ends: Instant,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match Instant::now() < self.ends {
            true => self.stream.read(buffer),
            false => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// A client connection; see the module.
pub(crate) struct RespConnection {
    stream: BufReader<Bounded>,
    place: String,
}

impl RespConnection {
    pub(crate) fn open(place: &ServerEndpoint) -> Result<RespConnection, WireError> {
        let lost = |error| WireError::Lost(place.shown(), error);
        let stream = connect(place).map_err(lost)?;
        let mut connection = RespConnection {
            stream: BufReader::new(Bounded {
                stream,
                ends: Instant::now(),
            }),
            place: place.shown(),
        };
        if let Some(password) = &place.password {
            let user = place.user.as_deref();
            let request: Vec<&str> = ["AUTH"]
                .into_iter()
                .chain(user)
                .chain([password.as_str()])
                .collect();
            if let Reply::Error(text) = connection.ask(&request)? {
                return Err(WireError::Refused(text));
            }
        }
        Ok(connection)
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn ask(&mut self, request: &[&str]) -> Result<Reply, WireError> {
        let mut bytes = Vec::new();
        append(&mut bytes, request);
        let place = self.place.clone();
        let lost = move |error| WireError::Lost(place, error);
        let bounded = self.stream.get_mut();
        bounded.ends = Instant::now() + WHOLE_PATIENCE;
        bounded.stream.write_all(&bytes).map_err(lost)?;
        let mut left = ELEMENTS_MAX;
        read(&mut self.stream, &self.place, &mut left, DEPTH_MAX)
    }
}

fn connect(place: &ServerEndpoint) -> io::Result<Box<dyn WireStream>> {
    if let Some(path) = &place.socket {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        return Ok(Box::new(stream));
    }
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "host not found");
    for address in (place.host.as_str(), place.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
                return Ok(match &place.tls {
                    None => Box::new(stream),
                    Some(tls) => Box::new(tls.open(&place.host, stream)?),
                });
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn read(
    stream: &mut impl BufRead,
    place: &str,
    left: &mut usize,
    depth: usize,
) -> Result<Reply, WireError> {
    let lost = |error| WireError::Lost(place.to_owned(), error);
    let mut line = Vec::new();
    let count = stream
        .take(LINE_BYTES_MAX)
        .read_until(b'\n', &mut line)
        .map_err(lost)?;
    if count == 0 {
        return Err(lost(io::ErrorKind::UnexpectedEof.into()));
    }
    let Some(said) = line.strip_suffix(b"\r\n") else {
        return Err(WireError::Strange("a line without CRLF, or too long"));
    };
    let (&kind, rest) = said
        .split_first()
        .ok_or(WireError::Strange("an empty line"))?;
    let number = || {
        let text = std::str::from_utf8(rest).ok();
        let number = text.and_then(|text| text.parse::<i64>().ok());
        number.ok_or(WireError::Strange("invalid number"))
    };
    match kind {
        b'+' => Ok(Reply::Text(rest.to_vec())),
        b'-' => Ok(Reply::Error(visible(rest))),
        b':' => Ok(Reply::Integer(number()?)),
        b'$' => match usize::try_from(number()?) {
            Err(_) => Ok(Reply::Nothing),
            Ok(length) if length > TEXT_BYTES_MAX => {
                Err(WireError::Strange("a string is too long"))
            }
            Ok(length) => {
                let mut text = Vec::new();
                let whole = length as u64 + 2;
                let count = stream.take(whole).read_to_end(&mut text).map_err(lost)?;
                if count < length + 2 {
                    return Err(lost(io::ErrorKind::UnexpectedEof.into()));
                }
                text.truncate(length);
                Ok(Reply::Text(text))
            }
        },
        b'*' => match usize::try_from(number()?) {
            Err(_) => Ok(Reply::Nothing),
            Ok(count) if count > *left || depth == 0 => {
                Err(WireError::Strange("a reply is too long"))
            }
            Ok(count) => {
                *left -= count;
                let elements = (0..count).map(|_| read(stream, place, left, depth - 1));
                Ok(Reply::Array(elements.collect::<Result<_, _>>()?))
            }
        },
        _ => Err(WireError::Strange("unknown type of reply")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(bytes: &[u8]) -> Result<Reply, WireError> {
        read(&mut io::Cursor::new(bytes), "here", &mut 100, 3)
    }

    #[test]
    fn replies_of_every_kind_are_read() {
        assert!(matches!(reply(b"+OK\r\n"), Ok(Reply::Text(text)) if text == b"OK"));
        assert!(matches!(reply(b":-7\r\n"), Ok(Reply::Integer(-7))));
        assert!(matches!(reply(b"$3\r\na\r\n\r\n"), Ok(Reply::Text(text)) if text == b"a\r\n"));
        assert!(matches!(reply(b"$-1\r\n"), Ok(Reply::Nothing)));
        let nested = reply(b"*2\r\n:1\r\n*1\r\n$1\r\nx\r\n").expect("a reply");
        assert_eq!(nested.elements()[1].elements()[0].text(), b"x");
        let error = reply(b"-ERR \x1b[2J\r\n").expect("a reply");
        assert_eq!(error, Reply::Error("ERR \\u{1b}[2J".to_owned()));
    }

    #[test]
    fn what_is_no_reply_or_too_much_is_refused_before_it_is_taken() {
        for strange in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"\r\n",
            b"+OK\n",
            b"$x\r\n",
            b"$99999999999\r\n",
            b"*101\r\n",
            b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
        ] {
            let read = reply(strange);
            assert!(
                matches!(read, Err(WireError::Strange(_))),
                "{strange:?}: {read:?}"
            );
        }
        for cut in [&b""[..], b"$5\r\nab", b"*2\r\n:1\r\n"] {
            let read = reply(cut);
            assert!(
                matches!(read, Err(WireError::Lost(..))),
                "{cut:?}: {read:?}"
            );
        }
        let long = vec![b'+'; LINE_BYTES_MAX as usize + 10];
        assert!(matches!(reply(&long), Err(WireError::Strange(_))));
    }
}
