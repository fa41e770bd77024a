//! One connection's task: read, parse the whole batch, run it in order, write, and yield now and then.
//!
//! A task that was idle for two seconds holds no buffer. It runs at most a turn's worth of commands before it lets
//! other connections go on, and does not read while its output is not taken.

mod kept;
mod output;
mod receive;
mod run;
mod wait;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;

use super::pool;
use super::stream::{READ_BYTES_MAX, Stream};
use crate::session::Session;
use crate::session::batch::Batch;
use basalt_commands::client::connection::Origin;
use basalt_commands::config::Config;
use kept::{Kept, note_memory};
use output::{deliver, flush_counting, held_max};
use receive::read;
use run::{refresh, run_turn};

/// A connection that leaves requests and replies behind: what follows on its socket is somebody else's affair.
pub struct Handed {
    /// The socket.
    pub stream: Stream,
    /// The connection's state, with a parser that stands at the first byte of the batch's input.
    pub session: Session,
    /// What was received and not read yet, and what the client asked for.
    pub batch: Box<Batch>,
}

/// Bytes of requests, and of replies, that are held for a client that has not signed in, where it has to.
const UNAUTHENTICATED_BYTES_MAX: usize = pool::INPUT_BYTES;

/// What connections leave to others.
pub trait Owner: Send + Sync + 'static {
    /// Serves a connection that follows the stream of this server, to its end, in a task of its own.
    fn own(&self, handed: Handed);
    /// A client asked the server to stop.
    fn stop(&self);
}

/// Why a connection ends.
enum End {
    /// Nothing more to say.
    Closed,
    /// The client left too much of its output lying.
    Cut,
    /// SHUTDOWN was asked for.
    Shutdown,
    /// The connection goes on as that of a replica.
    Followed,
}

/// What a turn leaves in the read buffer.
enum Left {
    /// Nothing that could be run.
    Nothing,
    /// A part of a request, or an error that the parser reports when it is asked again.
    Part,
    /// Complete requests, for the next turn.
    Requests,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        End::Closed
    }
}

/// Serves a connection until it ends. When the client asked the server to stop, its owner is told and the connection
/// stays open: the client sees its end when no other can connect any more.
///
/// No `async fn`, whose arguments would stand in the task twice: an idle connection is little more than this.
pub fn serve(
    mut stream: Stream,
    mut session: Session,
    owner: &'static impl Owner,
) -> impl Future<Output = ()> + Send + 'static {
    let mut kept = Kept::default();
    let mut config = session.service().config.load_full();
    async move {
        let end = loop {
            match turn(&mut stream, &mut session, &mut kept, &mut config).await {
                Ok(()) => {}
                Err(end) => break end,
            }
        };
        if matches!(end, End::Followed) {
            return hand_over(owner, stream, session, &mut kept);
        }
        kept.let_go();
        leave(&mut session);
        if matches!(end, End::Shutdown) {
            owner.stop();
            std::future::pending::<()>().await;
        }
    }
}

/// Leaves a connection to its owner.
#[cold]
fn hand_over(owner: &'static impl Owner, stream: Stream, session: Session, kept: &mut Kept) {
    let batch = kept.batch.take().unwrap_or_else(pool::take);
    kept.let_go();
    owner.own(Handed {
        stream,
        session,
        batch,
    });
}

/// The connection is over: no look-up finds it any more.
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

/// Waits for input, reads once, and runs what is complete.
async fn turn(
    stream: &mut Stream,
    session: &mut Session,
    kept: &mut Kept,
    config: &mut Arc<Config>,
) -> Result<(), End> {
    let (woken, sent_meanwhile) = loop {
        match readable(stream, session, kept.has_output()).await? {
            Woken::Background => kept.shrink(session),
            Woken::Output => {
                if let Some(mut batch) = kept.batch.take() {
                    let count =
                        flush_counting(stream, session, &mut batch, held_max(session)).await?;
                    if count > 0 {
                        kept.batch = Some(batch);
                        break (Woken::Output, count);
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
        Woken::Mail => deliver(stream, session, &mut batch).await,
        Woken::Output => Ok(sent_meanwhile),
        _ => read(stream, session, &mut batch),
    };
    let read_much = match read {
        Ok(count) if count > 0 => count >= READ_BYTES_MAX / 2,
        Ok(_) => {
            // Who only listens keeps nothing: thousands may hear of the same.
            let is_lent = woken == Woken::Mail && !has_kept && batch.out.is_empty();
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
            Err(End::Cut) => {
                // What it has taken is not worth keeping for others.
                batch.reset();
                return Err(End::Cut);
            }
            Err(End::Followed) => {
                kept.batch = Some(batch);
                return Err(End::Followed);
            }
            Err(end) => {
                pool::put(batch);
                return Err(end);
            }
        };
        match left {
            Left::Nothing => break,
            Left::Part => {}
            Left::Requests => tokio::task::yield_now().await,
        }
    }
    kept.put(session, batch);
    if read_much {
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// What ended a wait for input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    Input,
    /// The client takes more of the output.
    Output,
    /// Somebody has something for it.
    Mail,
    /// The connection was idle for long: it is to give its buffer back.
    Background,
}

async fn readable(stream: &mut Stream, session: &Session, has_output: bool) -> Result<Woken, End> {
    let shared = &session.connection.shared;
    poll_fn(|cx| {
        shared.waker.register(cx.waker());
        if shared.is_killed() {
            return Poll::Ready(Err(End::Closed));
        }
        if shared.take_buffer_request() {
            return Poll::Ready(Ok(Woken::Background));
        }
        if shared.has_mail() {
            return Poll::Ready(Ok(Woken::Mail));
        }
        if has_output && let Poll::Ready(ready) = stream.poll_write_ready(cx) {
            return Poll::Ready(ready.map(|()| Woken::Output).map_err(End::from));
        }
        let ready = stream.poll_read_ready(cx);
        ready.map(|ready| ready.map(|()| Woken::Input).map_err(End::from))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_of_a_connection_is_small() {
        fn size<F>(_: impl FnOnce(Stream, Session) -> F) -> usize {
            size_of::<F>()
        }
        struct Nobody;
        impl Owner for Nobody {
            fn own(&self, _: Handed) {}
            fn stop(&self) {}
        }
        let bytes = size(|stream, session| serve(stream, session, &Nobody));
        assert!(bytes <= 648, "it takes {bytes} bytes");
    }
}
