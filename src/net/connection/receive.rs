//! Receiving: one read at a time, counted.

use std::sync::atomic::Ordering::Relaxed;

use super::super::input;
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
    match input::read(stream, &mut session.parser, batch)? {
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

/// Reads while requests of the same connection wait; whether there is room for more.
pub(super) fn receive(
    stream: &mut Stream,
    session: &mut Session,
    batch: &mut Batch,
) -> Result<bool, End> {
    let limit = match session.connection.authenticated {
        true => session.service().config.load().client_query_buffer_limit,
        // Who may not run anything may not fill the memory either.
        false => UNAUTHENTICATED_BYTES_MAX as u64,
    };
    read(stream, session, batch)?;
    let pending = batch.pending().len() + session.parser.moved_bytes();
    session
        .connection
        .shared
        .query_bytes
        .store(pending, Relaxed);
    Ok((pending as u64) < limit)
}
