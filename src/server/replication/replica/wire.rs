//! The socket to a primary, and received data not taken yet.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;

use tokio::io::AsyncReadExt;

use crate::net::client::{Client, Timeout, within};
use crate::net::stream::ClientSocket;
use crate::tls::contexts::Contexts;

/// Maximum length of a line from a primary.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// Maximum bytes waiting to be sent.
const OUTPUT_BYTES_MAX: usize = 16 * 1024;

/// Buffer capacity for a read.
const READ_BYTES: usize = 256 * 1024;

/// A connection to a primary, with received data not taken yet.
pub(super) struct Wire {
    /// The connection, and data received and not taken.
    pub(super) client: Client,
    addresses: (SocketAddr, SocketAddr),
    /// TLS contexts, if the connection is encrypted.
    tls: Option<Arc<Contexts>>,
    /// Data that was read ahead and precedes the client's input.
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
        timeout: Timeout<'_>,
    ) -> io::Result<Wire> {
        let mut client = Client::connect(host, port, from, tls.as_deref(), timeout).await?;
        client.skips_empty_lines = true;
        Ok(Wire {
            addresses: client.addresses()?,
            client,
            tls,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            output: Vec::new(),
        })
    }

    /// Returns the addresses of the primary's end and of this end.
    pub(super) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        self.addresses
    }

    /// Returns a host name of the primary alone, by its certificate.
    pub(super) fn certified_host(&self) -> Option<String> {
        self.tls.as_deref()?.host_of(&self.client.names()?)
    }

    /// Returns the TLS contexts for another connection to the same server.
    pub(super) fn tls(&self) -> Option<Arc<Contexts>> {
        self.tls.clone()
    }

    /// Returns the file descriptor, for CLIENT LIST.
    pub(super) fn fd(&self) -> RawFd {
        self.client.socket.fd()
    }

    /// Sends a few bytes without waiting for the socket: bytes that the socket does not accept are sent with
    /// later ones. Bytes beyond `OUTPUT_BYTES_MAX` are dropped. A broken connection is noticed when reading.
    pub(super) fn send_soon(&mut self, bytes: &[u8]) {
        if self.output.len() + bytes.len() <= OUTPUT_BYTES_MAX {
            self.output.extend_from_slice(bytes);
        }
        if let Ok(count) = self.client.socket.try_write(&[IoSlice::new(&self.output)]) {
            self.output.drain(..count);
        }
    }

    /// Waits for more input. Returns an error at the end of the stream. Cancel-safe: no data is lost.
    pub(super) async fn fill(&mut self) -> io::Result<usize> {
        read(&mut self.client.socket, &mut self.client.input).await
    }

    /// Waits for more input, and keeps it until it is taken. Cancel-safe: no data is lost.
    pub(super) async fn read_ahead(&mut self) -> io::Result<usize> {
        if self.client.input.len() >= READ_BYTES / 4 * 3 {
            self.ahead_bytes += self.client.input.len();
            self.ahead.push_back(std::mem::take(&mut self.client.input));
        }
        self.fill().await
    }

    /// Returns the number of bytes received and not taken.
    pub(super) fn kept_bytes(&self) -> usize {
        self.ahead_bytes + self.client.input.len()
    }

    /// Moves kept data into another buffer, or waits for more input to it.
    pub(super) async fn read_into(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let kept = match self.ahead.pop_front() {
            Some(piece) => {
                self.ahead_bytes -= piece.len();
                piece
            }
            None => std::mem::take(&mut self.client.input),
        };
        if !kept.is_empty() {
            buffer.extend_from_slice(&kept);
            return Ok(kept.len());
        }
        read(&mut self.client.socket, buffer).await
    }

    /// Returns the next nonempty line, without its terminator: the start of a snapshot, or Valkey's end offset.
    pub(super) async fn line(&mut self, timeout: Timeout<'_>) -> io::Result<Vec<u8>> {
        loop {
            let input = &mut self.client.input;
            if let Some(end) = memchr::memchr(b'\n', input) {
                let mut line: Vec<u8> = input.drain(..=end).collect();
                line.pop();
                line.pop_if(|last| *last == b'\r');
                if !line.is_empty() {
                    return Ok(line);
                }
                continue;
            }
            if input.len() > LINE_BYTES_MAX {
                return Err(io::Error::new(ErrorKind::InvalidData, "a line is too long"));
            }
            within(timeout, self.fill()).await?;
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
