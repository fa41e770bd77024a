//! An encrypted socket with the interface of a plain one: readiness, and non-blocking reads and writes.
//!
//! Reads decrypt into the caller's buffer through one scratch buffer per thread, so an idle connection has no
//! buffer of its own. Writes take whole batches, which are sent as full records. A write that the socket does
//! not accept completely counts as not done, and must be retried with the same bytes: output that a client has
//! not accepted stays where it is counted, and no more than [`CIPHERED_BYTES_MAX`] is buffered here.

use std::cell::RefCell;
use std::io::{self, BufRead, ErrorKind, IoSlice, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::BufMut;
use rustls::Connection;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::names::Names;

/// Bytes read at once before decryption.
const READ_BYTES: usize = 64 * 1024;

/// Bytes that may be encrypted before the socket accepts them: four full records with their framing.
pub const CIPHERED_BYTES_MAX: usize = 4 * 16 * 1024 + 1024;

thread_local! {
    /// The thread's read buffer.
    static ROOM: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// An encrypted socket; see the module.
pub struct Channel {
    socket: TcpStream,
    tls: Box<Connection>,
    /// Number of the caller's bytes that are encrypted but not yet reported as written.
    owed: usize,
    /// Whether rustls has decrypted bytes that were not read yet.
    is_held: bool,
    /// Received bytes that are not decrypted yet, because rustls's buffer was full.
    carried: Vec<u8>,
    /// Whether the peer has announced the end of its data.
    is_over: bool,
}

impl Channel {
    /// Creates the channel after a handshake; `rest` contains the bytes received after the handshake.
    pub(super) fn new(
        socket: TcpStream,
        tls: Box<Connection>,
        is_held: bool,
        rest: Vec<u8>,
    ) -> Channel {
        Channel {
            socket,
            tls,
            owed: 0,
            is_held,
            carried: rest,
            is_over: false,
        }
    }

    /// Returns the names in the peer's certificate, if it presented one.
    pub fn names(&self) -> Option<Names> {
        Names::of_peer(&self.tls)
    }

    /// Replaces the socket, by the same one with another registration.
    pub fn replace_socket(&mut self, socket: TcpStream) {
        self.socket = socket;
    }

    /// Returns the underlying socket.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Ready when data may be available to read. Meanwhile sends encrypted bytes that the socket did not accept
    /// before.
    pub fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            match send(&self.socket, &mut self.tls) {
                Ok(()) => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    match self.socket.poll_write_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending => break,
                    }
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        if self.is_held || !self.carried.is_empty() || self.is_over {
            return Poll::Ready(Ok(()));
        }
        self.socket.poll_read_ready(cx)
    }

    /// Ready when the socket may accept data.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_write_ready(cx)
    }

    /// Reads into the spare capacity of a buffer; returns 0 at the end of the stream.
    pub fn try_read(&mut self, buffer: &mut impl BufMut) -> io::Result<usize> {
        let room = buffer.chunk_mut().len();
        let mut left = room;
        self.take(buffer, &mut left)?;
        if !self.is_held && !self.carried.is_empty() {
            let carried = std::mem::take(&mut self.carried);
            self.decrypt(&carried, buffer, &mut left)?;
        }
        if left < room || self.is_over {
            return Ok(room - left);
        }
        ROOM.with_borrow_mut(|fresh| {
            let wanted = left.clamp(1024, READ_BYTES);
            let mut cx = Context::from_waker(Waker::noop());
            // Read through the asynchronous reader, for the same reason as with plain sockets
            // (`Stream::try_read`).
            let polled = pin!(self.socket.read(&mut fresh[..wanted])).poll(&mut cx);
            match polled {
                Poll::Pending => Err(ErrorKind::WouldBlock.into()),
                Poll::Ready(Ok(0)) => Ok(0),
                Poll::Ready(Err(error)) => Err(error),
                Poll::Ready(Ok(count)) => {
                    self.decrypt(&fresh[..count], buffer, &mut left)?;
                    match room - left {
                        0 if self.is_over => Ok(0),
                        0 => Err(ErrorKind::WouldBlock.into()),
                        count => Ok(count),
                    }
                }
            }
        })
    }

    /// Decrypts received bytes.
    fn decrypt(
        &mut self,
        mut bytes: &[u8],
        buffer: &mut impl BufMut,
        left: &mut usize,
    ) -> io::Result<()> {
        while !bytes.is_empty() && !self.is_held && !self.is_over {
            self.tls.read_tls(&mut bytes)?;
            match self.tls.process_new_packets() {
                Ok(state) => {
                    self.is_held = state.plaintext_bytes_to_read() > 0;
                    self.is_over = state.peer_has_closed();
                }
                Err(error) => {
                    // Send the TLS alert to the peer, if it still listens.
                    let _ = send(&self.socket, &mut self.tls);
                    return Err(io::Error::new(ErrorKind::InvalidData, error));
                }
            }
            self.take(buffer, left)?;
        }
        if !self.is_over {
            self.carried.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Copies decrypted bytes to the caller's buffer as far as they fit.
    fn take(&mut self, buffer: &mut impl BufMut, left: &mut usize) -> io::Result<()> {
        while self.is_held && *left > 0 {
            let mut reader = self.tls.reader();
            let piece = match reader.fill_buf() {
                Ok(piece) => piece,
                Err(error) if error.kind() == ErrorKind::WouldBlock => &[],
                Err(error) => return Err(error),
            };
            let count = piece.len().min(*left);
            if count == 0 {
                self.is_held = false;
                return Ok(());
            }
            buffer.put_slice(&piece[..count]);
            reader.consume(count);
            *left -= count;
        }
        Ok(())
    }

    /// Writes. Returns the number of bytes whose records the socket has accepted completely. If it would block, the
    /// caller must retry with the same bytes.
    pub fn try_write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.tls.wants_write() {
            send(&self.socket, &mut self.tls)?;
        }
        if self.owed > 0 {
            return Ok(std::mem::take(&mut self.owed));
        }
        let count = self.tls.writer().write_vectored(slices)?;
        match send(&self.socket, &mut self.tls) {
            Ok(()) => Ok(count),
            Err(error) => {
                self.owed = count;
                Err(error)
            }
        }
    }

    /// Returns the file descriptor.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Sends all encrypted bytes.
pub(super) fn send(socket: &TcpStream, tls: &mut Connection) -> io::Result<()> {
    struct Out<'s>(&'s TcpStream);
    impl Write for Out<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.try_write(bytes)
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            self.0.try_write_vectored(slices)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    while tls.wants_write() {
        if tls.write_tls(&mut Out(socket))? == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

impl Drop for Channel {
    fn drop(&mut self) {
        // Try only once: do not wait for a peer that does not accept the alert.
        self.tls.send_close_notify();
        let _ = send(&self.socket, &mut self.tls);
    }
}

impl AsyncRead for Channel {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            ready!(this.poll_read_ready(cx))?;
            match this.try_read(buffer) {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Channel {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        loop {
            match this.try_write(&[IoSlice::new(bytes)]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(this.poll_write_ready(cx))?;
                }
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The accepted bytes have been sent.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.tls.send_close_notify();
        loop {
            match send(&this.socket, &mut this.tls) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(this.poll_write_ready(cx))?;
                }
                sent => break sent?,
            }
        }
        Pin::new(&mut this.socket).poll_shutdown(cx)
    }
}
