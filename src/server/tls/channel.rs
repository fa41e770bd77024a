//! An encrypted socket, which asks and answers as a plain one does: readiness, and reads and writes that do not wait.
//!
//! Reads decrypt into the caller's buffer by way of one room for each thread, so an idle connection holds none of its
//! own. Writes take whole batches, which leave as full records. A write that the socket does not take whole counts as
//! not done, and is to be asked for again with the same bytes: what a client has not taken stays where output is
//! counted, and no more than [`CIPHERED_BYTES_MAX`] lies here.

use std::cell::RefCell;
use std::io::{self, BufRead, ErrorKind, IoSlice, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::BufMut;
use rustls::Connection;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Bytes that are read at once before they are decrypted.
const READ_BYTES: usize = 64 * 1024;

/// Bytes that are encrypted before the socket has taken them: four full records, and what frames them.
pub const CIPHERED_BYTES_MAX: usize = 4 * 16 * 1024 + 1024;

thread_local! {
    /// Where a thread reads into.
    static ROOM: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// See the module.
pub struct Channel {
    socket: TcpStream,
    tls: Box<Connection>,
    /// Bytes of the caller's that are encrypted, and of which he does not know that.
    owed: usize,
    /// Something is decrypted, and was not taken.
    is_held: bool,
    /// What came and was not decrypted yet, as there was no room for what it may hold.
    carried: Vec<u8>,
    /// The peer has said that nothing more comes.
    is_over: bool,
}

impl Channel {
    /// The socket behind a handshake; `rest` is what came behind it.
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

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Ready when there may be something to read. What lies here because the socket did not take it leaves meanwhile.
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

    /// Ready when there may be room to write.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_write_ready(cx)
    }

    /// Reads into the spare room of a buffer; 0 is the end.
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
            // Through the asynchronous reader, for the reason that plain sockets have.
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

    /// Decrypts what came.
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
                    // The peer is told, if it still listens.
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

    /// Takes what is decrypted, as far as there is room.
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

    /// Writes; how many bytes the socket has taken whole records of. When it would wait, the same bytes are to be
    /// written again.
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

    /// The file descriptor.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Sends what is encrypted, all of it.
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
        // One attempt: a peer that does not take even this is not worth waiting for.
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
        // What was taken has left.
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
