//! Receiving: one read at a time, counted.

use std::sync::atomic::Ordering::Relaxed;

use super::super::input;
use super::super::pool;
use super::super::stream::Stream;
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
            shared.bytes_in.fetch_add(count as u64, Relaxed);
            Ok(count)
        }
    }
}

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
    let shared = &session.connection.shared;
    let unread = unread_bytes(session, batch);
    shared.query_bytes.store(unread, Relaxed);
    Ok(has_room(session, batch))
}
