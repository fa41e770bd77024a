//! One socket, whatever its kind.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::tls::channel::Channel;

/// The most that is read at once: into fresh memory, more would take longer than others are to wait.
pub const READ_BYTES_MAX: usize = 512 * 1024;

/// See the module.
pub enum Stream {
    /// TCP over IPv4 or IPv6.
    Tcp(TcpStream),
    /// A unix socket.
    Unix(UnixStream),
    /// TCP, encrypted. In a box, as most connections are none.
    Tls(Box<Channel>),
}

impl Stream {
    /// Ready when there may be something to read.
    pub fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => stream.poll_read_ready(cx),
            Stream::Unix(stream) => stream.poll_read_ready(cx),
            Stream::Tls(channel) => channel.poll_read_ready(cx),
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
            Stream::Tls(channel) => return channel.try_read(&mut room),
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
            Stream::Tls(channel) => channel.poll_write_ready(cx),
        }
    }

    /// Writes what fits. When it would wait, the same bytes are to be written again, with more behind them perhaps.
    pub fn try_write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match (self, slices) {
            (Stream::Tcp(stream), [one]) => stream.try_write(one),
            (Stream::Tcp(stream), many) => stream.try_write_vectored(many),
            (Stream::Unix(stream), [one]) => stream.try_write(one),
            (Stream::Unix(stream), many) => stream.try_write_vectored(many),
            (Stream::Tls(channel), slices) => channel.try_write(slices),
        }
    }

    /// Whether the peer has sent its last byte. What it sent before may still be unread.
    pub fn is_closed_by_peer(&self) -> bool {
        let ready = pin!(async {
            match self {
                Stream::Tcp(stream) => stream.ready(Interest::READABLE).await,
                Stream::Unix(stream) => stream.ready(Interest::READABLE).await,
                Stream::Tls(channel) => channel.socket().ready(Interest::READABLE).await,
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
            Stream::Tls(channel) => channel.socket().set_nodelay(is_on),
        }
    }

    /// The file descriptor, for CLIENT LIST.
    pub fn fd(&self) -> RawFd {
        match self {
            Stream::Tcp(stream) => stream.as_raw_fd(),
            Stream::Unix(stream) => stream.as_raw_fd(),
            Stream::Tls(channel) => channel.fd(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Tls(channel) => Pin::new(channel).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(channel) => Pin::new(channel).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(channel) => Pin::new(channel).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(channel) => Pin::new(channel).poll_shutdown(cx),
        }
    }
}
