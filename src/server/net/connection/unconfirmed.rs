//! Replies that wait for the disk or for replicas before they are sent, and the errors in place of those that
//! replicas did not confirm in time (`min-sync-replicas`).

use std::future::poll_fn;
use std::io::IoSlice;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use super::super::stream::ClientSocket;
use super::ConnectionExit;
use super::receive::receive;
use crate::session::Session;
use crate::session::batch::Batch;
use basalt_commands::command::error::UNCONFIRMED;
use basalt_core::resp::reply::frames::first_reply;
use basalt_core::resp::reply::{Out, Protocol};

/// Whether this connection's replies must wait, because log records that they depend on are not on disk yet, or not
/// confirmed by replicas.
#[inline]
pub(super) fn are_held(session: &Session) -> bool {
    let seen = session.connection.shared.log_seen.load(Relaxed);
    session.service().holds_replies(seen)
}

/// Waits until this connection's replies may be sent, and replaces them by errors if replicas were too late. Keeps
/// receiving meanwhile, so that a client that has gone away is noticed.
pub(super) async fn await_release(
    stream: &mut ClientSocket,
    session: &mut Session,
    batch: &mut Batch,
) -> Result<(), ConnectionExit> {
    let mut receives = session.connection.authenticated;
    loop {
        let position = session.connection.shared.log_seen.load(Relaxed);
        let (shared, service) = (&session.connection.shared, session.service());
        let released = poll_fn(|cx| {
            shared.waker.register(cx.waker());
            if shared.is_killed() {
                return Poll::Ready(Err(ConnectionExit::Closed));
            }
            if let Poll::Ready(released) = service.poll_released(position, cx) {
                return Poll::Ready(Ok(Some(released)));
            }
            if receives && stream.poll_read_ready(cx).is_ready() {
                return Poll::Ready(Ok(None));
            }
            Poll::Pending
        });
        match released.await? {
            // Meanwhile the client may have been sent messages that reflect more.
            Some(true) if are_held(session) => {}
            Some(true) => return Ok(()),
            Some(false) => return refuse(session, batch, position),
            None => receives = receive(stream, session, batch)?,
        }
    }
}

/// Replaces the unsent replies by errors. Messages and invalidations stay: their receiver would wait for them in vain,
/// or keep what is outdated.
#[cold]
fn refuse(session: &Session, batch: &mut Batch, position: u64) -> Result<(), ConnectionExit> {
    let shared = &session.connection.shared;
    let is_listener = session.connection.protocol == Protocol::Resp2 && shared.subscriptions() > 0;
    if !is_listener && !shared.is_monitor() {
        replace(&mut batch.out, batch.unsent).ok_or(ConnectionExit::Closed)?;
    }
    // Nothing that was or will be sent reflects the position any more, unless a message came just now.
    let confirmed = session.service().reply_holds.confirmation.get();
    let confirmed = confirmed.map_or(0, |them| them.confirmed());
    let _ = shared
        .log_seen
        .compare_exchange(position, confirmed.min(position), Relaxed, Relaxed);
    Ok(())
}

/// Replaces each reply after the first `released` bytes by an error. Returns None if these are not whole replies.
fn replace(out: &mut Out, released: usize) -> Option<()> {
    let mut slices = Vec::with_capacity(usize::from(u16::MAX));
    out.io_slices(&mut slices);
    let len = slices.iter().map(|slice| slice.len()).sum::<usize>();
    if len < out.len_bytes() {
        return None;
    }
    let bytes = slices.iter().flat_map(|slice: &IoSlice<'_>| slice.iter());
    let bytes: Vec<u8> = bytes.copied().collect();
    let mut kept = Out::new(out.protocol());
    kept.raw(bytes.get(..released)?);
    let mut rest = &bytes[released..];
    while !rest.is_empty() {
        let (len, is_push) = first_reply(rest)?;
        match is_push {
            true => kept.raw(&rest[..len]),
            false => kept.error(UNCONFIRMED),
        }
        rest = &rest[len..];
    }
    out.clear();
    out.append(&mut kept);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_become_errors_and_messages_stay() {
        let mut out = Out::new(Protocol::Resp3);
        out.bulk(b"from before");
        let released = out.len_bytes();
        out.ok();
        out.push(2);
        out.bulk(b"invalidate");
        out.null();
        let shared = bytes::Bytes::from(vec![b'x'; 100_000]);
        out.array(2);
        out.bulk_shared(shared.clone());
        out.bulk_shared(shared);
        assert_eq!(replace(&mut out, released), Some(()));
        let mut slices = Vec::with_capacity(10);
        out.io_slices(&mut slices);
        let sent: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
        let expected = format!(
            "$11\r\nfrom before\r\n-{UNCONFIRMED}\r\n>2\r\n$10\r\ninvalidate\r\n_\r\n-{UNCONFIRMED}\r\n"
        );
        assert_eq!(String::from_utf8_lossy(&sent), expected);
    }

    #[test]
    fn nothing_is_replaced_where_replies_are_not_whole() {
        let mut out = Out::new(Protocol::Resp2);
        out.array(2);
        out.integer(1);
        assert_eq!(replace(&mut out, 0), None);
    }
}
