//! Receiving: one read at a time, counted.

use std::sync::atomic::Ordering::Relaxed;

use super::super::input;
use super::super::pool;
use super::super::stream::Stream;
use super::kept::note_memory;
use super::{End, UNAUTHENTICATED_BYTES_MAX};
use crate::session::Session;
use crate::session::batch::Batch;
use crate::telemetry::counters;

/// Reads once; how many bytes came, which may be none after all.
pub(super) fn read(
    stream: &mut Stream,
    session: &mut Session,
    batch: &mut Batch,
) -> Result<usize, End> {
    let unread_max = match session.connection.authenticated {
        true => usize::MAX,
        false => {
            // The buffer of a thread may have grown for others.
            if batch.input.is_empty() && batch.input.capacity() > pool::INPUT_BYTES {
                batch.input = Vec::with_capacity(pool::INPUT_BYTES);
            }
            // One byte more than may be there tells that there is too much.
            UNAUTHENTICATED_BYTES_MAX + 1
        }
    };
    match input::read(stream, &mut session.parser, batch, unread_max)? {
        None => Ok(0),
        Some(0) => Err(End::Closed),
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

/// Bytes of requests that are received while one of them is blocked. The rest stays with the kernel, and with the
/// client, until that one is over: Redis goes on up to `client-query-buffer-limit`, and then closes the client.
const BLOCKED_BYTES_MAX: usize = 1024 * 1024;

/// Whether a connection may receive more while requests of it wait.
pub(super) fn has_room(session: &Session, batch: &Batch) -> bool {
    let limit = match session.connection.authenticated {
        true => session.service().config.load().client_query_buffer_limit,
        // Who may not run anything may not fill the memory either.
        false => UNAUTHENTICATED_BYTES_MAX as u64,
    };
    (unread_bytes(session, batch) as u64) < limit
}

fn unread_bytes(session: &Session, batch: &Batch) -> usize {
    batch.pending().len() + session.parser.moved_bytes()
}

/// Reads while requests of the same connection wait; whether there is room for more.
pub(super) fn receive(
    stream: &mut Stream,
    session: &mut Session,
    batch: &mut Batch,
) -> Result<bool, End> {
    read(stream, session, batch)?;
    note_input(session, batch);
    Ok(has_room(session, batch))
}

/// Says what a connection holds of requests that have to wait, and closes clients if they hold too much together.
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
