//! One socket, whatever its kind.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::task::{Context, Poll};

use tokio::net::{TcpStream, UnixStream};

/// See the module.
pub enum Stream {
    /// TCP over IPv4 or IPv6.
    Tcp(TcpStream),
    /// A unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Ready when there may be something to read.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => stream.poll_read_ready(cx),
            Stream::Unix(stream) => stream.poll_read_ready(cx),
        }
    }

    /// Reads into the spare room of a buffer; 0 is the end.
    pub fn try_read(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_read_buf(buffer),
            Stream::Unix(stream) => stream.try_read_buf(buffer),
        }
    }

    /// Ready when there may be room to write.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => stream.poll_write_ready(cx),
            Stream::Unix(stream) => stream.poll_write_ready(cx),
        }
    }

    /// Writes what fits.
    pub fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match (self, slices) {
            (Stream::Tcp(stream), [one]) => stream.try_write(one),
            (Stream::Tcp(stream), many) => stream.try_write_vectored(many),
            (Stream::Unix(stream), [one]) => stream.try_write(one),
            (Stream::Unix(stream), many) => stream.try_write_vectored(many),
        }
    }

    /// The file descriptor, for CLIENT LIST.
    pub fn fd(&self) -> RawFd {
        match self {
            Stream::Tcp(stream) => stream.as_raw_fd(),
            Stream::Unix(stream) => stream.as_raw_fd(),
        }
    }
}
