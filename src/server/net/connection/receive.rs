//! Receives from the socket, one counted read at a time.

use std::sync::atomic::Ordering::Relaxed;

use super::super::input;
use super::super::pool;
use super::super::stream::ClientSocket;
use super::kept::note_memory;
use super::{ConnectionExit, UNAUTHENTICATED_BYTES_MAX};
use crate::session::Session;
use crate::session::batch::Batch;
use crate::telemetry::counters;

/// Reads once. Returns the number of bytes received, which may be 0.
pub(super) fn read(
    stream: &mut ClientSocket,
    session: &mut Session,
    batch: &mut Batch,
) -> Result<usize, ConnectionExit> {
    let unread_max = match session.connection.authenticated {
        true => usize::MAX,
        false => {
            // Replace the pooled buffer, which may have grown for other connections.
            if batch.input.is_empty() && batch.input.capacity() > pool::INPUT_BYTES {
                batch.input = Vec::with_capacity(pool::INPUT_BYTES);
            }
            // Read one byte more than the limit, to detect that the client has sent too much.
            UNAUTHENTICATED_BYTES_MAX + 1
        }
    };
    match input::read(stream, &mut session.parser, batch, unread_max)? {
        None => Ok(0),
        Some(0) => Err(ConnectionExit::Closed),
        Some(count) => {
            let counters = counters::local();
            counters.bytes_in.add(count as u64);
            counters.reads.add(1);
            let shared = &session.connection.shared;
            shared.bytes_in.add(count as u64);
            Ok(count)
        }
    }
}

/// Request bytes that are received while a request is blocked. The rest stays in the kernel, and with the
/// client, until the request is served. (Redis receives up to `client-query-buffer-limit`, and then closes the
/// client.)
const BLOCKED_BYTES_MAX: usize = 1024 * 1024;

/// Whether a connection may receive more while its requests wait.
pub(super) fn has_room(session: &Session, batch: &Batch) -> bool {
    let limit = match session.connection.authenticated {
        true => session.service().config.load().client_query_buffer_limit,
        // An unauthenticated client may not fill the memory.
        false => UNAUTHENTICATED_BYTES_MAX as u64,
    };
    (unread_bytes(session, batch) as u64) < limit
}

fn unread_bytes(session: &Session, batch: &Batch) -> usize {
    batch.pending().len() + session.parser.moved_bytes()
}

/// Reads while requests of the same connection wait. Returns whether it may receive more.
pub(super) fn receive(
    stream: &mut ClientSocket,
    session: &mut Session,
    batch: &mut Batch,
) -> Result<bool, ConnectionExit> {
    read(stream, session, batch)?;
    note_input(session, batch);
    Ok(has_room(session, batch))
}

/// Publishes the memory of a connection's waiting requests, and closes clients if all together hold too much.
pub(super) fn note_input(session: &Session, batch: &Batch) {
    let shared = &session.connection.shared;
    let unread = unread_bytes(session, batch);
    shared.query_bytes.store(unread, Relaxed);
    let bytes = batch.input_memory_bytes() + session.parser.blocks_memory_bytes();
    shared.buffer_bytes.store(bytes, Relaxed);
    note_memory(session);
}

/// Whether a connection whose request is blocked may receive more.
pub(super) fn has_room_while_blocked(session: &Session, batch: &Batch) -> bool {
    unread_bytes(session, batch) < BLOCKED_BYTES_MAX && has_room(session, batch)
}
