//! Timeouts for clients that do not read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Time within which a client must read more of a response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// A socket that fails if its client reads nothing for [`WRITE_TIMEOUT`].
pub(super) struct WriteTimeoutStream<S> {
    stream: S,
    patience: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S> WriteTimeoutStream<S> {
    pub(super) fn new(stream: S) -> WriteTimeoutStream<S> {
        WriteTimeoutStream {
            stream,
            patience: Box::pin(tokio::time::sleep(WRITE_TIMEOUT)),
            is_waiting: false,
        }
    }

    /// Returns the result of a write, or a timeout error if the socket accepted no bytes for [`WRITE_TIMEOUT`].
    fn within<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        if !std::mem::replace(&mut self.is_waiting, true) {
            let deadline = tokio::time::Instant::now() + WRITE_TIMEOUT;
            self.patience.as_mut().reset(deadline);
        }
        match self.patience.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeoutStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeoutStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.within(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.within(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
