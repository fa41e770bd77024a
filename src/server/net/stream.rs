//! A socket of any kind.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::tls::channel::Channel;

/// Maximum bytes read at once: reading more, into memory that was not touched before, would delay other
/// connections for too long.
pub const READ_BYTES_MAX: usize = 512 * 1024;

/// A client's socket.
pub enum ClientSocket {
    /// TCP over IPv4 or IPv6.
    Tcp(TcpStream),
    /// A unix socket.
    Unix(UnixStream),
    /// Encrypted TCP. Boxed, because most connections are not encrypted.
    Tls(Box<Channel>),
}

impl ClientSocket {
    /// Registers the socket with the runtime whose context the caller has entered, instead of its runtime so far. Data
    /// that arrives meanwhile waits in the socket. If that fails, the socket stays registered as it was.
    pub fn register_anew(&mut self) -> io::Result<()> {
        match self {
            ClientSocket::Tcp(stream) => *stream = duplicate(stream)?,
            ClientSocket::Unix(stream) => {
                let same = stream.as_fd().try_clone_to_owned()?;
                *stream = UnixStream::from_std(same.into())?;
            }
            ClientSocket::Tls(channel) => {
                let same = duplicate(channel.socket())?;
                channel.replace_socket(same);
            }
        }
        Ok(())
    }

    /// Ready when data may be available to read.
    pub fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            ClientSocket::Tcp(stream) => stream.poll_read_ready(cx),
            ClientSocket::Unix(stream) => stream.poll_read_ready(cx),
            ClientSocket::Tls(channel) => channel.poll_read_ready(cx),
        }
    }

    /// Reads into the spare capacity of a buffer; returns 0 at the end of the stream.
    ///
    /// Polls the asynchronous reader although nothing is awaited: that reader knows that a read which did not fill
    /// the buffer has emptied the socket, and saves the next turn a system call to find out.
    pub fn try_read<B: BufMut>(&mut self, buffer: &mut B) -> io::Result<usize> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut room = buffer.limit(READ_BYTES_MAX);
        let polled = match self {
            ClientSocket::Tcp(stream) => pin!(stream.read_buf(&mut room)).poll(&mut cx),
            ClientSocket::Unix(stream) => pin!(stream.read_buf(&mut room)).poll(&mut cx),
            ClientSocket::Tls(channel) => return channel.try_read(&mut room),
        };
        match polled {
            Poll::Ready(read) => read,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Ready when the socket may accept data.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            ClientSocket::Tcp(stream) => stream.poll_write_ready(cx),
            ClientSocket::Unix(stream) => stream.poll_write_ready(cx),
            ClientSocket::Tls(channel) => channel.poll_write_ready(cx),
        }
    }

    /// Writes as much as the socket accepts. If it would block, the caller must retry with the same bytes,
    /// possibly followed by more.
    pub fn try_write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match (self, slices) {
            (ClientSocket::Tcp(stream), [one]) => stream.try_write(one),
            (ClientSocket::Tcp(stream), many) => stream.try_write_vectored(many),
            (ClientSocket::Unix(stream), [one]) => stream.try_write(one),
            (ClientSocket::Unix(stream), many) => stream.try_write_vectored(many),
            (ClientSocket::Tls(channel), slices) => channel.try_write(slices),
        }
    }

    /// Whether the peer has closed its sending direction. Earlier bytes may still be unread.
    pub fn is_closed_by_peer(&self) -> bool {
        let ready = pin!(async {
            match self {
                ClientSocket::Tcp(stream) => stream.ready(Interest::READABLE).await,
                ClientSocket::Unix(stream) => stream.ready(Interest::READABLE).await,
                ClientSocket::Tls(channel) => channel.socket().ready(Interest::READABLE).await,
            }
        });
        let mut cx = Context::from_waker(Waker::noop());
        matches!(ready.poll(&mut cx), Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// Sets whether small writes are sent at once or coalesced. No effect on sockets that do not coalesce.
    pub fn set_nodelay(&self, is_on: bool) -> io::Result<()> {
        match self {
            ClientSocket::Tcp(stream) => stream.set_nodelay(is_on),
            ClientSocket::Unix(_) => Ok(()),
            ClientSocket::Tls(channel) => channel.socket().set_nodelay(is_on),
        }
    }

    /// Returns the file descriptor, for CLIENT LIST.
    pub fn fd(&self) -> RawFd {
        match self {
            ClientSocket::Tcp(stream) => stream.as_raw_fd(),
            ClientSocket::Unix(stream) => stream.as_raw_fd(),
            ClientSocket::Tls(channel) => channel.fd(),
        }
    }
}

/// Returns the same socket, registered with the runtime whose context the caller has entered.
fn duplicate(stream: &TcpStream) -> io::Result<TcpStream> {
    let same = stream.as_fd().try_clone_to_owned()?;
    TcpStream::from_std(same.into())
}

impl AsyncRead for ClientSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ClientSocket::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            ClientSocket::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
            ClientSocket::Tls(channel) => Pin::new(channel).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            ClientSocket::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            ClientSocket::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            ClientSocket::Tls(channel) => Pin::new(channel).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ClientSocket::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            ClientSocket::Unix(stream) => Pin::new(stream).poll_flush(cx),
            ClientSocket::Tls(channel) => Pin::new(channel).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ClientSocket::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            ClientSocket::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            ClientSocket::Tls(channel) => Pin::new(channel).poll_shutdown(cx),
        }
    }
}
