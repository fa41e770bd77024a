//! A connection's task: read, parse the whole batch, run it in order, write, and yield now and then.
//!
//! A connection that was idle for two seconds holds no buffer. It runs at most a turn's worth of commands before it
//! lets other connections run, and does not read while its output is not accepted.

mod kept;
mod output;
mod receive;
mod run;
mod unconfirmed;
mod wait;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;

use super::event_loops::{self, EventLoop};
use super::pool;
use super::stream::{ClientSocket, READ_BYTES_MAX};
use crate::session::Session;
use crate::session::batch::Batch;
use basalt_commands::client::connection::Origin;
use basalt_commands::config::Config;
pub use kept::TurnState;
use kept::note_memory;
use output::{deliver, flush_counting, held_max};
use receive::read;
use run::{refresh, run_turn};

/// A connection that has left request processing, to be served by another owner, such as the sender of a
/// replica.
pub struct DetachedConnection {
    /// The socket.
    pub stream: ClientSocket,
    /// The connection's state, with its parser at the first byte of the batch's input.
    pub session: Session,
    /// Bytes received but not parsed, and the client's request.
    pub batch: Box<Batch>,
}

/// Maximum bytes of requests, and of replies, that are kept for an unauthenticated client if authentication is
/// required.
const UNAUTHENTICATED_BYTES_MAX: usize = pool::INPUT_BYTES;

/// Owner of the connections: handles the requests that connections do not handle themselves.
pub trait Owner: Send + Sync + 'static {
    /// Serves the connection of a replica until it ends, in a separate task.
    fn own(&self, handed: DetachedConnection);
    /// Handles a client's request to stop the server.
    fn stop(&self);
    /// Goes on serving a connection in another event loop.
    fn serve_in(
        &'static self,
        event_loop: &'static EventLoop,
        stream: ClientSocket,
        session: Session,
        kept: TurnState,
    );
}

/// Why a connection leaves request processing.
enum ConnectionExit {
    /// The connection is closed.
    Closed,
    /// The client had too much unsent output.
    Cut,
    /// A client requested SHUTDOWN.
    Shutdown,
    /// The connection continues as a replica's.
    Followed,
    /// The connection continues in another event loop.
    Moved(&'static EventLoop),
}

/// Unprocessed input after a turn.
enum RemainingInput {
    /// No unprocessed input.
    Nothing,
    /// A partial request, or invalid input whose error the parser will report in the next turn.
    Part,
    /// Complete requests for the next turn.
    Requests,
}

impl From<io::Error> for ConnectionExit {
    fn from(_: io::Error) -> ConnectionExit {
        ConnectionExit::Closed
    }
}

/// Serves a connection until it ends, or moves to another event loop. If the client requested a shutdown, the owner is
/// notified and the connection stays open: the client sees it close only when no other client can connect any more.
///
/// Not an `async fn`, because its arguments would be stored twice in the task, which is most of the memory of
/// an idle connection.
pub fn serve(
    mut stream: ClientSocket,
    mut session: Session,
    mut kept: TurnState,
    owner: &'static impl Owner,
) -> impl Future<Output = ()> + Send + 'static {
    let mut config = session.service().config.load_full();
    async move {
        let end = loop {
            if let Err(end) = turn(&mut stream, &mut session, &mut kept, &mut config).await {
                break end;
            }
            if let Some(event_loop) = event_loops::destination(session.connection.id()) {
                break ConnectionExit::Moved(event_loop);
            }
        };
        event_loops::ended();
        match end {
            ConnectionExit::Followed => return hand_over(owner, stream, session, &mut kept),
            ConnectionExit::Moved(event_loop) => {
                return move_to(owner, event_loop, stream, session, kept);
            }
            _ => {}
        }
        kept.let_go();
        leave(&mut session);
        if matches!(end, ConnectionExit::Shutdown) {
            owner.stop();
            std::future::pending::<()>().await;
        }
    }
}

/// Hands a connection over to another event loop. If its socket cannot be registered there, the connection stays.
#[cold]
fn move_to(
    owner: &'static impl Owner,
    event_loop: &'static EventLoop,
    mut stream: ClientSocket,
    session: Session,
    kept: TurnState,
) {
    let entered = event_loop.runtime().enter();
    let registered = stream.register_anew();
    drop(entered);
    session.connection.shared.set_fd(stream.fd());
    let rounds = &session.service().telemetry.rounds;
    rounds.note_connection_moved();
    let event_loop = match (registered, event_loops::current()) {
        (Err(_), Some(current)) => current,
        _ => event_loop,
    };
    owner.serve_in(event_loop, stream, session, kept);
}

/// Hands a connection over to its owner.
#[cold]
fn hand_over(
    owner: &'static impl Owner,
    stream: ClientSocket,
    session: Session,
    kept: &mut TurnState,
) {
    let batch = kept.batch.take().unwrap_or_else(pool::take);
    kept.let_go();
    owner.own(DetachedConnection {
        stream,
        session,
        batch,
    });
}

/// Unregisters a connection that has ended, so that no lookup finds it.
pub fn leave(session: &mut Session) {
    session.connection.shared.leave();
    session.end();
    if session.connection.origin == Origin::SlotImport
        && let Some(cluster) = session.service().cluster.get()
    {
        cluster.import_ended(&session.connection.shared);
    }
    session.service().clients.remove(session.connection.id());
}

/// Waits for input, reads once, and runs the complete requests.
async fn turn(
    stream: &mut ClientSocket,
    session: &mut Session,
    kept: &mut TurnState,
    config: &mut Arc<Config>,
) -> Result<(), ConnectionExit> {
    let (woken, sent_meanwhile) = loop {
        match readable(stream, session, kept.has_output()).await? {
            WakeReason::Background => kept.shrink(session),
            WakeReason::Output => {
                if let Some(mut batch) = kept.batch.take() {
                    let count =
                        flush_counting(stream, session, &mut batch, held_max(session)).await?;
                    if count > 0 {
                        kept.batch = Some(batch);
                        break (WakeReason::Output, count);
                    }
                    kept.put(session, batch);
                }
            }
            woken => break (woken, 0),
        }
    };
    let has_kept = kept.batch.is_some();
    let mut batch = kept.batch.take().unwrap_or_else(pool::take);
    let read = match woken {
        WakeReason::Mail => deliver(stream, session, &mut batch).await,
        WakeReason::Output => Ok(sent_meanwhile),
        _ => read(stream, session, &mut batch),
    };
    let read_much = match read {
        Ok(count) if count > 0 => count >= READ_BYTES_MAX / 2,
        Ok(_) => {
            // Connections that only receive messages keep no batch: thousands may receive the same one.
            let is_lent = woken == WakeReason::Mail && !has_kept && batch.out.is_empty();
            match is_lent && batch.input.is_empty() {
                true => {
                    pool::put(batch);
                    note_memory(session);
                }
                false => kept.put(session, batch),
            }
            return Ok(());
        }
        Err(end) => {
            pool::put(batch);
            return Err(end);
        }
    };
    loop {
        refresh(config, session);
        let left = match run_turn(stream, session, &mut batch, config).await {
            Ok(left) => left,
            Err(ConnectionExit::Cut) => {
                // Discard the unsent output, so that the batch can go back to the pool.
                batch.reset();
                return Err(ConnectionExit::Cut);
            }
            Err(ConnectionExit::Followed) => {
                kept.batch = Some(batch);
                return Err(ConnectionExit::Followed);
            }
            Err(end) => {
                pool::put(batch);
                return Err(end);
            }
        };
        match left {
            RemainingInput::Nothing => break,
            RemainingInput::Part => {}
            RemainingInput::Requests => tokio::task::yield_now().await,
        }
    }
    kept.put(session, batch);
    if read_much {
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// The reason that a wait for input ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WakeReason {
    Input,
    /// The client accepts more output.
    Output,
    /// Others have messages for the client.
    Mail,
    /// The connection was idle for long and must return its buffer.
    Background,
}

async fn readable(
    stream: &mut ClientSocket,
    session: &Session,
    has_output: bool,
) -> Result<WakeReason, ConnectionExit> {
    let shared = &session.connection.shared;
    poll_fn(|cx| {
        shared.waker.register(cx.waker());
        if shared.is_killed() {
            return Poll::Ready(Err(ConnectionExit::Closed));
        }
        if shared.take_buffer_request() {
            return Poll::Ready(Ok(WakeReason::Background));
        }
        if shared.has_mail() {
            return Poll::Ready(Ok(WakeReason::Mail));
        }
        if has_output && let Poll::Ready(ready) = stream.poll_write_ready(cx) {
            return Poll::Ready(
                ready
                    .map(|()| WakeReason::Output)
                    .map_err(ConnectionExit::from),
            );
        }
        let ready = stream.poll_read_ready(cx);
        ready.map(|ready| {
            ready
                .map(|()| WakeReason::Input)
                .map_err(ConnectionExit::from)
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_of_a_connection_is_small() {
        fn size<F>(_: impl FnOnce(ClientSocket, Session) -> F) -> usize {
            size_of::<F>()
        }
        struct Nobody;
        impl Owner for Nobody {
            fn own(&self, _: DetachedConnection) {}
            fn stop(&self) {}
            fn serve_in(
                &'static self,
                _: &'static EventLoop,
                _: ClientSocket,
                _: Session,
                _: TurnState,
            ) {
            }
        }
        let bytes = size(|stream, session| serve(stream, session, TurnState::default(), &Nobody));
        assert!(bytes <= 648, "it takes {bytes} bytes");
    }
}
