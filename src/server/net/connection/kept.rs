//! State that a connection keeps between two turns (passes over received requests): its batch of buffers, if
//! the shared budget allows it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::super::buffer_budget::{CLAIM_BYTES_MAX, LARGE_BYTES, Reservation};
use super::super::pool;
use crate::session::Session;
use crate::session::batch::Batch;
use basalt_commands::client::memory::CLIENT_MEMORY;

/// State kept between two turns.
#[derive(Default)]
pub struct TurnState {
    pub(super) batch: Option<Box<Batch>>,
    pub(super) reservation: Reservation,
}

impl TurnState {
    /// Keeps a batch for the next turn: because it contains a partial request, or because the connection was
    /// just active and the shared budget allows it.
    pub(super) fn put(&mut self, session: &mut Session, mut batch: Box<Batch>) {
        let is_behind = !batch.pending().is_empty() || session.parser.is_inside_request();
        let is_needed = is_behind || !batch.out.is_empty();
        if is_behind {
            self.make_room(session, &mut batch);
        } else if batch.input.capacity() > LARGE_BYTES
            && (1..batch.input.capacity() / 4).contains(&(batch.peak as usize))
        {
            batch.input = Vec::with_capacity(pool::INPUT_BYTES);
        }
        batch.peak = 0;
        let parser = &session.parser;
        let unread = batch.pending().len() - parser.read_len(batch.pending());
        let bytes = batch.input.capacity() + parser.blocks_memory_bytes();
        let shared = &session.connection.shared;
        shared
            .query_bytes
            .store(unread + parser.filled_bytes(), Relaxed);
        let fits = match is_needed {
            true => self.reservation.resize(bytes),
            false => self.reservation.resize_to_keep(bytes),
        };
        if !fits && !is_needed {
            self.reservation.resize(0);
            shared.buffer_bytes.store(0, Relaxed);
            pool::put(batch);
        } else {
            shared.buffer_bytes.store(bytes, Relaxed);
            self.batch = Some(batch);
        }
        note_memory(session);
    }

    /// Reserves buffer capacity for the rest of a partially received argument, as far as the budget allows. A
    /// long argument gets its own block.
    #[cold]
    fn make_room(&mut self, session: &mut Session, batch: &mut Batch) {
        let parser = &mut session.parser;
        let held = batch.input.len() + parser.blocks_memory_bytes();
        let claimed = parser.wants().min(CLAIM_BYTES_MAX);
        let room = match parser.filling() {
            Some(filling) => filling.room(),
            None => batch.input.capacity() - batch.input.len(),
        };
        let is_granted = claimed > room
            && session.connection.authenticated
            && self.reservation.resize(held + claimed);
        let granted = if is_granted { claimed } else { 0 };
        batch.begin_block(parser, granted);
        match parser.filling() {
            Some(filling) => filling.reserve(granted),
            None => batch.input.reserve_exact(granted),
        }
    }

    /// Whether there is output that the client has not accepted.
    pub(super) fn has_output(&self) -> bool {
        let batch = self.batch.as_ref();
        batch.is_some_and(|batch| !batch.out.is_empty())
    }

    /// Shrinks an idle connection to the bytes of a partial request.
    pub(super) fn shrink(&mut self, session: &mut Session) {
        let Some(mut batch) = self.batch.take() else {
            return;
        };
        let shared = Arc::clone(&session.connection.shared);
        let is_behind = !batch.pending().is_empty() || session.parser.is_inside_request();
        if !is_behind && batch.out.is_empty() {
            pool::put(batch);
            self.reservation.resize(0);
            shared.buffer_bytes.store(0, Relaxed);
        } else {
            if batch.input.is_empty() && !is_behind {
                batch.input = Vec::new();
            } else {
                batch.input.shrink_to_fit();
            }
            if let Some(filling) = session.parser.filling() {
                filling.shrink_to_fit();
            }
            let bytes = batch.input.capacity() + session.parser.blocks_memory_bytes();
            self.reservation.resize(bytes);
            shared.buffer_bytes.store(bytes, Relaxed);
            self.batch = Some(batch);
        }
        shared.note_memory();
    }

    pub(super) fn let_go(&mut self) {
        self.reservation.resize(0);
        if let Some(batch) = self.batch.take() {
            pool::put(batch);
        }
    }
}

/// Records the connection's memory, and closes the largest connections if all connections together exceed
/// `maxmemory-clients`.
#[inline]
pub(super) fn note_memory(session: &Session) {
    session.note_pending();
    session.connection.shared.note_memory();
    if CLIENT_MEMORY.is_over() {
        session.service().clients.evict();
    }
}
