//! The socket to a primary, and received data not taken yet.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, lookup_host};

use crate::net::stream::ClientSocket;
use crate::tls::contexts::Contexts;
use crate::tls::handshake;
use basalt_core::resp::answer::Answer;
use basalt_core::resp::request::append;

/// Maximum length of a line from a primary.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// Maximum bytes waiting to be sent.
const OUTPUT_BYTES_MAX: usize = 16 * 1024;

/// Buffer capacity for a read.
const READ_BYTES: usize = 256 * 1024;

/// Timeout of a reply. Evaluated again during the wait, as the configuration may change meanwhile.
pub(super) type Patience<'p> = &'p (dyn Fn() -> Duration + Send + Sync);

/// A connection to a primary, with received data not taken yet.
pub(super) struct Wire {
    stream: ClientSocket,
    addresses: (SocketAddr, SocketAddr),
    /// TLS contexts, if the connection is encrypted.
    tls: Option<Arc<Contexts>>,
    /// Data received and not taken.
    pub(super) input: Vec<u8>,
    /// Data that was read ahead and precedes `input`.
    ahead: VecDeque<Vec<u8>>,
    ahead_bytes: usize,
    /// Data to send that the socket has not taken yet.
    output: Vec<u8>,
}

impl Wire {
    /// Connects, from the address `from` if given, with TLS if `tls` is given.
    pub(super) async fn open(
        host: &str,
        port: u16,
        from: Option<IpAddr>,
        tls: Option<Arc<Contexts>>,
        timeout: Patience<'_>,
    ) -> io::Result<Wire> {
        let socket = within(timeout, connect(host, port, from)).await?;
        let _ = socket.set_nodelay(true);
        let addresses = (socket.peer_addr()?, socket.local_addr()?);
        let stream = match &tls {
            None => ClientSocket::Tcp(socket),
            Some(contexts) => {
                let shaken = handshake::connect(socket, host, contexts);
                let shaken = async { shaken.await.map_err(io::Error::other) };
                ClientSocket::Tls(Box::new(within(timeout, shaken).await?))
            }
        };
        Ok(Wire {
            stream,
            addresses,
            tls,
            input: Vec::new(),
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            output: Vec::new(),
        })
    }

    /// Returns the addresses of the primary's end and of this end.
    pub(super) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        self.addresses
    }

    /// Returns the TLS contexts for another connection to the same server.
    pub(super) fn tls(&self) -> Option<Arc<Contexts>> {
        self.tls.clone()
    }

    /// Returns the file descriptor, for CLIENT LIST.
    pub(super) fn fd(&self) -> RawFd {
        self.stream.fd()
    }

    /// Sends bytes, waiting for the socket up to `timeout`.
    pub(super) async fn send(&mut self, bytes: &[u8], timeout: Patience<'_>) -> io::Result<()> {
        within(timeout, self.stream.write_all(bytes)).await
    }

    /// Sends a few bytes without waiting for the socket: bytes that the socket does not accept are sent with
    /// later ones. Bytes beyond `OUTPUT_BYTES_MAX` are dropped. A broken connection is noticed when reading.
    pub(super) fn send_soon(&mut self, bytes: &[u8]) {
        if self.output.len() + bytes.len() <= OUTPUT_BYTES_MAX {
            self.output.extend_from_slice(bytes);
        }
        if let Ok(count) = self.stream.try_write(&[IoSlice::new(&self.output)]) {
            self.output.drain(..count);
        }
    }

    /// Waits for more input; errs at the end of the stream. Cancel-safe: no data is lost.
    pub(super) async fn fill(&mut self) -> io::Result<usize> {
        read(&mut self.stream, &mut self.input).await
    }

    /// Waits for more input, and keeps it until it is taken. Cancel-safe: no data is lost.
    pub(super) async fn read_ahead(&mut self) -> io::Result<usize> {
        if self.input.len() >= READ_BYTES / 4 * 3 {
            self.ahead_bytes += self.input.len();
            self.ahead.push_back(std::mem::take(&mut self.input));
        }
        self.fill().await
    }

    /// Returns the number of bytes received and not taken.
    pub(super) fn kept_bytes(&self) -> usize {
        self.ahead_bytes + self.input.len()
    }

    /// Moves kept data into another buffer, or waits for more input to it.
    pub(super) async fn read_into(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let kept = match self.ahead.pop_front() {
            Some(piece) => {
                self.ahead_bytes -= piece.len();
                piece
            }
            None => std::mem::take(&mut self.input),
        };
        if !kept.is_empty() {
            buffer.extend_from_slice(&kept);
            return Ok(kept.len());
        }
        read(&mut self.stream, buffer).await
    }

    /// Returns one line without its terminator.
    pub(super) async fn line(&mut self, timeout: Patience<'_>) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.input) {
                let mut line: Vec<u8> = self.input.drain(..=end).collect();
                line.pop();
                line.pop_if(|last| *last == b'\r');
                return Ok(line);
            }
            if self.input.len() > LINE_BYTES_MAX {
                return Err(io::Error::new(ErrorKind::InvalidData, "a line is too long"));
            }
            within(timeout, self.fill()).await?;
        }
    }

    /// Returns a reply. Empty lines before it are keepalives of the primary.
    pub(super) async fn answer(&mut self, timeout: Patience<'_>) -> io::Result<Answer> {
        loop {
            let blank = |byte: &u8| matches!(byte, b'\r' | b'\n');
            let begin = self.input.iter().position(|byte| !blank(byte));
            self.input.drain(..begin.unwrap_or(self.input.len()));
            let taken = Answer::take(&mut self.input);
            let taken = taken.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            if let Some(answer) = taken {
                return Ok(answer);
            }
            within(timeout, self.fill()).await?;
        }
    }

    /// Returns a nonempty line: the start of a snapshot, or Valkey's end offset.
    pub(super) async fn reply(&mut self, timeout: Patience<'_>) -> io::Result<Vec<u8>> {
        loop {
            let line = self.line(timeout).await?;
            if !line.is_empty() {
                return Ok(line);
            }
        }
    }
}

async fn read(stream: &mut ClientSocket, buffer: &mut Vec<u8>) -> io::Result<usize> {
    if buffer.capacity() - buffer.len() < READ_BYTES / 4 {
        buffer.reserve(READ_BYTES);
    }
    match stream.read_buf(buffer).await? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        count => Ok(count),
    }
}

async fn connect(host: &str, port: u16, from: Option<IpAddr>) -> io::Result<TcpStream> {
    let Some(from) = from else {
        return TcpStream::connect((host, port)).await;
    };
    let mut last = None;
    for address in lookup_host((host, port)).await? {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        let connected = match socket.bind(SocketAddr::new(from, 0)) {
            Ok(()) => socket.connect(address).await,
            Err(error) => Err(error),
        };
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(ErrorKind::NotFound, "the host name has no address")))
}

/// Returns the result of `work`, or a timeout error.
pub(super) async fn within<R>(
    timeout: Patience<'_>,
    work: impl Future<Output = io::Result<R>>,
) -> io::Result<R> {
    const LOOK_AGAIN: Duration = Duration::from_secs(1);
    let (mut work, began) = (std::pin::pin!(work), Instant::now());
    loop {
        let left = timeout().saturating_sub(began.elapsed());
        match tokio::time::timeout(left.min(LOOK_AGAIN), &mut work).await {
            Ok(result) => return result,
            Err(_) if began.elapsed() >= timeout() => {
                return Err(io::Error::new(
                    ErrorKind::TimedOut,
                    "timed out waiting for a reply",
                ));
            }
            Err(_) => {}
        }
    }
}

/// Encodes a request as a RESP array of bulk strings.
pub(super) fn request(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    append(&mut bytes, arguments);
    bytes
}
