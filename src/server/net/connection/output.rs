//! The output of a connection, including messages from others to its client: how it is sent, and how much of it may
//! stay unsent.

use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice};
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use super::super::pool;
use super::super::stream::ClientSocket;
use super::receive::{note_input, receive};
use super::unconfirmed::{are_held, await_release};
use super::{ConnectionExit, UNAUTHENTICATED_BYTES_MAX};
use crate::session::Session;
use crate::session::batch::Batch;
use crate::telemetry::{clock, counters};
use basalt_commands::client::memory::CLIENT_MEMORY;
use basalt_commands::client::shared::mailbox;
use basalt_commands::config::Config;
use basalt_core::resp::reply::Out;

/// Bytes that a connection sends before it yields, however fast its client reads.
const SENT_BYTES_PER_TURN: usize = 1024 * 1024;

/// Unsent output that a client may have while its next requests run; if it has more, the client must read the
/// excess first.
const HELD_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Unsent output in bytes that a client may have when all clients together hold more than [`ALL_HELD_BYTES_MAX`].
const HELD_BYTES_SCARCE: usize = 256 * 1024;

/// If all clients together have more unsent bytes than this, each may have only [`HELD_BYTES_SCARCE`].
const ALL_HELD_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Output up to this size is never too much: Redis keeps it in a buffer that its limits do not count.
const OUTPUT_BYTES_FREE: usize = 16 * 1024;

/// Maximum bytes per write: while the kernel copies them, other connections of the thread wait.
const WRITE_BYTES_MAX: usize = 512 * 1024;

/// Maximum number of slices per write.
const SLICES_MAX: usize = 64;

/// Whether a client's unsent output exceeds the limit of its class.
#[inline]
pub(super) fn is_over_output(session: &Session, batch: &Batch, config: &Config) -> bool {
    let len = batch.out.len_bytes();
    if len <= OUTPUT_BYTES_FREE {
        return batch.out.is_cut();
    }
    let limits = &config.client_output_buffer_limit;
    let limit = match session.connection.shared.subscriptions() {
        0 => limits.normal,
        _ => limits.pubsub,
    };
    batch.out.is_cut() || (limit.hard_bytes > 0 && len as u64 > limit.hard_bytes)
}

/// Records that a client with too much unsent output is closed, and returns the reason; the output is not sent
/// any more.
#[cold]
pub(super) fn cut() -> ConnectionExit {
    mailbox::CUT.fetch_add(1, Relaxed);
    ConnectionExit::Cut
}

/// Sends messages from others to the client. Returns the number of bytes received from the client meanwhile.
pub(super) async fn deliver(
    stream: &mut ClientSocket,
    session: &mut Session,
    batch: &mut Batch,
) -> Result<usize, ConnectionExit> {
    collect_mail(session, batch);
    let count = flush_counting(stream, session, batch, 0).await?;
    if batch.out.memory_bytes() > pool::OUTPUT_BYTES_KEPT_MAX / 4 {
        // Free the output, whose memory belongs to the messages.
        batch.out = Out::new(batch.out.protocol());
    }
    Ok(count)
}

/// Sends the output like [`flush`]. Returns the number of bytes received from the client meanwhile.
pub(super) async fn flush_counting(
    stream: &mut ClientSocket,
    session: &mut Session,
    batch: &mut Batch,
    held_max: usize,
) -> Result<usize, ConnectionExit> {
    let received =
        |session: &Session, batch: &Batch| batch.pending().len() + session.parser.moved_bytes();
    let before = received(session, batch);
    flush(stream, session, batch, held_max).await?;
    Ok(received(session, batch) - before)
}

/// Appends messages from others to the replies. None of the connection's own requests may be in flight.
pub(super) fn collect_mail(session: &Session, batch: &mut Batch) {
    if !batch.late.is_empty() {
        let Batch { out, late, .. } = batch;
        out.append(late);
    }
    let Some(mut mail) = session.connection.shared.take_mail() else {
        return;
    };
    if batch.out.is_empty() {
        mail.set_protocol(batch.out.protocol());
        batch.out = mail;
    } else {
        batch.out.append(&mut mail);
    }
}

/// Sends messages from other clients to a client whose request is blocked. If the request's reply has arrived
/// meanwhile, the reply is sent first.
///
/// The thread that executes the request delivers the reply before it releases the shard, and publishes changes
/// afterwards. So messages that were collected before the reply existed cannot report later changes than the
/// reply.
pub(super) async fn deliver_waiting(
    stream: &mut ClientSocket,
    session: &mut Session,
    batch: &mut Batch,
) -> Result<(), ConnectionExit> {
    let Some(mut mail) = session.connection.shared.take_mail() else {
        return Ok(());
    };
    if session.is_served() {
        batch.late.append(&mut mail);
        return Ok(());
    }
    batch.out.append(&mut mail);
    flush(stream, session, batch, 0).await
}

/// Returns how much unsent output a client may currently have.
pub(super) fn held_max(session: &Session) -> usize {
    if !session.connection.authenticated {
        return UNAUTHENTICATED_BYTES_MAX;
    }
    match CLIENT_MEMORY.total_bytes() {
        ..=ALL_HELD_BYTES_MAX => HELD_BYTES_MAX,
        _ => HELD_BYTES_SCARCE,
    }
}

/// Sends as much of the output as the socket accepts now; waits while more than `held_max` bytes are left.
///
/// Meanwhile it keeps receiving, without running requests: many clients send a whole pipeline before they read its
/// first reply, and would deadlock with a server that waits for them. This does not apply to unauthenticated
/// clients: their input stays in the kernel until they read their replies.
pub(super) async fn flush(
    stream: &mut ClientSocket,
    session: &mut Session,
    batch: &mut Batch,
    held_max: usize,
) -> Result<(), ConnectionExit> {
    let mut receives = session.connection.authenticated;
    let mut sent = 0;
    if are_held(session) && !batch.out.is_empty() {
        // Boxed, because few servers ever wait here.
        Box::pin(await_release(stream, session, batch)).await?;
    }
    while !batch.out.is_empty() {
        if sent > SENT_BYTES_PER_TURN {
            sent = 0;
            tokio::task::yield_now().await;
        }
        let written = {
            match batch.out.as_slice() {
                Some(bytes) => {
                    let bytes = &bytes[..bytes.len().min(WRITE_BYTES_MAX)];
                    stream.try_write(&[IoSlice::new(bytes)])
                }
                None => {
                    let mut slices = Vec::with_capacity(SLICES_MAX);
                    batch.out.io_slices_within(WRITE_BYTES_MAX, &mut slices);
                    stream.try_write(&slices)
                }
            }
        };
        let shared = &session.connection.shared;
        match written {
            Ok(0) => return Err(ConnectionExit::Closed),
            Ok(count) => {
                let counters = counters::local();
                counters.bytes_out.add(count as u64);
                counters.writes.add(1);
                shared.bytes_out.add(count as u64);
                batch.out.advance(count);
                sent += count;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                batch.out.compact();
                batch.unsent = batch.out.len_bytes();
                shared.output_bytes.store(batch.unsent, Relaxed);
                if batch.unsent <= held_max {
                    return Ok(());
                }
                note_input(session, batch);
                let has_input = poll_fn(|cx| {
                    shared.waker.register(cx.waker());
                    if shared.is_killed() {
                        return Poll::Ready(Err(ConnectionExit::Closed));
                    }
                    if let Poll::Ready(ready) = stream.poll_write_ready(cx) {
                        return Poll::Ready(ready.map(|()| false).map_err(ConnectionExit::from));
                    }
                    if receives && stream.poll_read_ready(cx).is_ready() {
                        return Poll::Ready(Ok(true));
                    }
                    Poll::Pending
                })
                .await?;
                shared.active_ms.store(clock::unix_ms(), Relaxed);
                if has_input {
                    // Continue even if receiving fails: a client that has stopped sending still gets its
                    // pending output.
                    receives = receive(stream, session, batch).unwrap_or(false);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    batch.unsent = 0;
    session.connection.shared.output_bytes.store(0, Relaxed);
    Ok(())
}
