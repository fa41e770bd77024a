//! One socket, whatever its kind.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::BufMut;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::{TcpStream, UnixStream};

/// The most that is read at once: into fresh memory, more would take longer than others are to wait.
pub const READ_BYTES_MAX: usize = 512 * 1024;

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
    ///
    /// Through the asynchronous reader, though nothing is awaited: that one knows that a read which did not fill the
    /// room has emptied the socket, and spares the next turn a call that would say so.
    pub fn try_read<B: BufMut>(&mut self, buffer: &mut B) -> io::Result<usize> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut room = buffer.limit(READ_BYTES_MAX);
        let polled = match self {
            Stream::Tcp(stream) => pin!(stream.read_buf(&mut room)).poll(&mut cx),
            Stream::Unix(stream) => pin!(stream.read_buf(&mut room)).poll(&mut cx),
        };
        match polled {
            Poll::Ready(read) => read,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
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

    /// Whether the peer has sent its last byte. What it sent before may still be unread.
    pub fn is_closed_by_peer(&self) -> bool {
        let ready = pin!(async {
            match self {
                Stream::Tcp(stream) => stream.ready(Interest::READABLE).await,
                Stream::Unix(stream) => stream.ready(Interest::READABLE).await,
            }
        });
        let mut cx = Context::from_waker(Waker::noop());
        matches!(ready.poll(&mut cx), Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// Has small writes leave at once, or be gathered. Nothing for sockets that gather none.
    pub fn set_nodelay(&self, is_on: bool) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_nodelay(is_on),
            Stream::Unix(_) => Ok(()),
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
