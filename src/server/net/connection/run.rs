//! One turn of a connection: parses its complete requests, runs them in order, and sends the replies.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::super::stream::ClientSocket;
use super::super::write_batching;
use super::kept::note_memory;
use super::output::{collect_mail, cut, flush, held_max, is_over_output};
use super::unconfirmed::are_held;
use super::wait::{delivered, log_has_room, sleep_until};
use super::{ConnectionExit, RemainingInput, UNAUTHENTICATED_BYTES_MAX};
use crate::session::batch::Batch;
use crate::session::{Session, Step};
use crate::telemetry::clock::{self, Ticks};
use basalt_commands::client::connection::ReplyMode;
use basalt_commands::client::memory::CLIENT_MEMORY;
use basalt_commands::client::shared::maintenance::MaintenanceOptions;
use basalt_commands::config::Config;
use basalt_core::resp::request::{Parser, ProtocolError, RequestLimits};

/// Maximum number of requests that a connection runs before it yields.
const REQUESTS_PER_TURN: usize = 128;

/// Nanoseconds after which a connection that sends output without a pause yields.
const TURN_NS_MAX: u64 = 500_000;

/// Maximum length of an inline request.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Takes the current configuration. The reference is kept between turns, because cloning it each time would make
/// all cores write to its reference count.
pub(super) fn refresh(config: &mut Arc<Config>, session: &Session) {
    if !Arc::ptr_eq(config, &session.service().config.load()) {
        *config = session.service().config.load_full();
    }
}

/// Parses one turn's worth of requests. Returns the number of bytes consumed. This is a separate function so
/// that the limits are not stored in a waiting connection's task.
fn parse(
    session: &mut Session,
    batch: &mut Batch,
    config: &Config,
) -> Result<usize, ProtocolError> {
    let limits = RequestLimits {
        bulk_len_max: config.proto_max_bulk_len,
        query_bytes_max: config.client_query_buffer_limit,
        inline_len_max: INLINE_BYTES_MAX,
        authenticated: session.connection.authenticated,
    };
    let (input, requests) = batch.parsing();
    session
        .parser
        .parse(input, &limits, REQUESTS_PER_TURN, requests)
}

/// Parses, runs and answers one turn's worth of requests.
pub(super) async fn run_turn(
    stream: &mut ClientSocket,
    session: &mut Session,
    batch: &mut Box<Batch>,
    config: &mut Arc<Config>,
) -> Result<RemainingInput, ConnectionExit> {
    let consumed = match parse(session, batch, config) {
        Ok(consumed) => consumed,
        Err(error) => {
            refuse(session, batch, &error);
            flush(stream, session, batch, 0).await?;
            return Err(ConnectionExit::Closed);
        }
    };
    let count = batch.requests.requests.len();
    if count == 0 {
        return take_part(session, batch, config, consumed);
    }
    let service = session.service();
    let now = clock::now();
    let shared = &session.connection.shared;
    shared.active_ms.store(now.unix_ms, Relaxed);
    batch.out.set_protocol(session.connection.protocol);
    batch.plan(&service.router);
    let mut step = session.run(batch, config, now);
    let mut flushed: Option<Ticks> = None;
    loop {
        if let Some(position) = session.undelivered() {
            delivered(session, position).await;
        }
        if is_over_output(session, batch, config) {
            return Err(cut());
        }
        match step {
            Step::Done => break,
            Step::Wait(ticket) => {
                // Nothing else ends this wait: the session must finish the job's work even if its client is gone or
                // killed meanwhile.
                let mut job = poll_fn(|cx| ticket.poll(cx)).await;
                if let Some(next) = session.resume(batch, &mut job, config, clock::now()) {
                    step = next;
                    continue;
                }
            }
            // Nothing to do: pending deliveries are already done.
            Step::Configured | Step::Deliver => {}
            // Box this future; otherwise it would enlarge every idle connection's task.
            step => Box::pin(follow(step, stream, session, batch, &mut flushed)).await?,
        }
        // A client that was killed while waiting starts no new request.
        if session.connection.shared.is_killed() {
            return Err(ConnectionExit::Closed);
        }
        refresh(config, session);
        step = session.run(batch, config, clock::now());
    }
    batch.consume(consumed);
    collect_mail(session, batch);
    if CLIENT_MEMORY.is_over() {
        // Record memory before the replies are sent, so that a client sees it after its reply.
        note_memory(session);
    }
    // Do not batch replies that wait for the disk or for replicas: they are sent back to back in any case.
    if !batch.out.is_empty() && !are_held(session) {
        write_batching::others_first().await;
    }
    flush(stream, session, batch, held_max(session)).await?;
    if session.connection.shared.is_killed() {
        return Err(ConnectionExit::Closed);
    }
    Ok(match batch.pending().is_empty() {
        true => RemainingInput::Nothing,
        false if count < REQUESTS_PER_TURN => RemainingInput::Part,
        false => RemainingInput::Requests,
    })
}

/// Replies to a protocol error. The connection is closed afterwards.
#[cold]
fn refuse(session: &Session, batch: &mut Batch, error: &ProtocolError) {
    if matches!(error, ProtocolError::QueryTooLong) {
        session.service().clients.overfed.fetch_add(1, Relaxed);
        return batch.out.clear();
    }
    batch.out.set_protocol(session.connection.protocol);
    if session.connection.reply_mode == ReplyMode::On {
        batch.out.error(error.text());
    }
}

/// Keeps a partially received request.
fn take_part(
    session: &Session,
    batch: &mut Batch,
    config: &Config,
    consumed: usize,
) -> Result<RemainingInput, ConnectionExit> {
    // Do not count long arguments, which have their own blocks, as in Redis; their lengths were checked one by
    // one.
    let (bytes, bytes_max) = match session.connection.authenticated {
        true => (batch.pending().len(), config.client_query_buffer_limit),
        false => (
            batch.pending().len() + session.parser.moved_bytes(),
            UNAUTHENTICATED_BYTES_MAX as u64,
        ),
    };
    if bytes as u64 > bytes_max {
        session.service().clients.overfed.fetch_add(1, Relaxed);
        return Err(ConnectionExit::Closed);
    }
    let shared = &session.connection.shared;
    shared.active_ms.store(clock::unix_ms(), Relaxed);
    batch.consume(consumed);
    Ok(RemainingInput::Nothing)
}

/// Performs a step, or waits for its condition, before the batch continues. `flushed` is when the connection began
/// to send without a pause.
async fn follow(
    step: Step,
    stream: &mut ClientSocket,
    session: &mut Session,
    batch: &mut Batch,
    flushed: &mut Option<Ticks>,
) -> Result<(), ConnectionExit> {
    match step {
        Step::Done | Step::Wait(_) | Step::Configured | Step::Deliver => {}
        Step::AwaitLog => log_has_room(session).await,
        Step::Flush => {
            flush(stream, session, batch, held_max(session)).await?;
            // Only yield if the client has kept this connection sending for long.
            let began = *flushed.get_or_insert_with(Ticks::now);
            if Ticks::now().since_ns(began) > TURN_NS_MAX {
                *flushed = None;
                tokio::task::yield_now().await;
            }
        }
        Step::Yield => tokio::task::yield_now().await,
        Step::Close => {
            if session.connection.shared.maintenance() != MaintenanceOptions::OFF {
                // The client needs them to know where to continue.
                collect_mail(session, batch);
            }
            session.connection.shared.leave();
            flush(stream, session, batch, 0).await?;
            return Err(ConnectionExit::Closed);
        }
        Step::Follow => {
            flush(stream, session, batch, 0).await?;
            // The connection's new owner reparses what follows the request.
            batch.consume_run();
            session.parser = Parser::default();
            return Err(ConnectionExit::Followed);
        }
        Step::Shutdown => {
            flush(stream, session, batch, 0).await?;
            return Err(ConnectionExit::Shutdown);
        }
        Step::SleepUntil(until_ms) => {
            // Send earlier replies during the wait, which must not take longer even if the client does not read
            // them.
            let left = Duration::from_millis(until_ms.saturating_sub(clock::unix_ms()));
            let flushing = Box::pin(flush(stream, session, batch, 0));
            if let Ok(flushed) = tokio::time::timeout(left, flushing).await {
                flushed?;
            }
            session.connection.shared.set_sleeping(true);
            sleep_until(stream, session, batch, until_ms).await?;
            session.connection.shared.set_sleeping(false);
        }
    }
    Ok(())
}
