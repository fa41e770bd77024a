//! Waits of a connection between two requests of a batch.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::super::stream::ClientSocket;
use super::ConnectionExit;
use super::output::deliver_waiting;
use super::receive::{has_room_while_blocked, note_input, receive};
use crate::session::Session;
use crate::session::batch::Batch;
use crate::telemetry::clock;

/// Waits until the messages to other clients that this connection's commands caused are delivered: its replies
/// must be sent after them. Boxed, because most connections never wait for it.
#[cold]
pub(super) fn delivered(
    session: &Session,
    position: u64,
) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
    let pubsub = &session.service().pubsub;
    Box::pin(poll_fn(move |cx| pubsub.poll_delivered(position, cx)))
}

/// Waits until write commands may append to the command log again.
#[cold]
pub(super) fn log_has_room(session: &Session) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
    Box::pin(poll_fn(|cx| session.service().poll_writers_room(cx)))
}

/// Interval at which a sleeping connection that no longer receives checks whether its client is still connected.
const CLOSED_CHECK: Duration = Duration::from_millis(500);

/// Sleeps until a Unix time, until the connection is woken (by the end of a pause or of a blocked request), or
/// until it is killed or its client disconnects.
///
/// Meanwhile it keeps receiving, without running requests, so that it notices at once when the client
/// disconnects, and no data is popped for a client that is gone. The received bytes count as the client's, and
/// are bounded.
pub(super) async fn sleep_until(
    stream: &mut ClientSocket,
    session: &mut Session,
    batch: &mut Batch,
    until_ms: u64,
) -> Result<(), ConnectionExit> {
    note_input(session, batch);
    let shared = Arc::clone(&session.connection.shared);
    loop {
        let receives = has_room_while_blocked(session, batch);
        let (mut has_input, mut has_mail) = (false, false);
        let left = Duration::from_millis(until_ms.saturating_sub(clock::unix_ms()));
        // While the task receives, it notices a disconnect at once; otherwise it must poll for that.
        let nap = if receives {
            left
        } else {
            left.min(CLOSED_CHECK)
        };
        let mut sleep = Box::pin(tokio::time::sleep(nap));
        let mut slept = false;
        poll_fn(|cx| {
            shared.waker.register(cx.waker());
            if shared.is_killed() {
                return Poll::Ready(Err(ConnectionExit::Closed));
            }
            if shared.take_nudge() {
                return Poll::Ready(Ok(()));
            }
            has_mail = shared.has_mail();
            if has_mail {
                return Poll::Ready(Ok(()));
            }
            slept = sleep.as_mut().poll(cx).is_ready();
            has_input = !slept && receives && stream.poll_read_ready(cx).is_ready();
            if slept || has_input {
                Poll::Ready(Ok(()))
            } else {
                Poll::Pending
            }
        })
        .await?;
        if has_mail {
            deliver_waiting(stream, session, batch).await?;
            continue;
        }
        if has_input {
            receive(stream, session, batch)?;
            continue;
        }
        if !slept || nap == left {
            return Ok(());
        }
        if stream.is_closed_by_peer() {
            return Err(ConnectionExit::Closed);
        }
    }
}
