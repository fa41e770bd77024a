//! The end of connections whose clients were told to continue at another server (`pubsub::maintenance`).

use super::Session;
use super::turn::Turn;
use crate::telemetry::clock;
use basalt_core::resp::reply::Position;

/// The beginning of the errors of writes and of transactions with writes that a replica refuses.
const REFUSALS: [&[u8]; 2] = [
    b"-READONLY ",
    b"-EXECABORT Transaction discarded because of: READONLY ",
];

impl Session {
    /// Replaces the refusal of a write, the reply since `mark`, by the end of the connection, if the client is told of
    /// a failover or was told to continue at another server. The write changed nothing, so the client may repeat it
    /// there. Returns whether the connection ends.
    #[cold]
    pub(super) fn hands_off(&mut self, turn: &mut Turn<'_>, mark: Position) -> bool {
        let reply = turn.batch.out.since(mark);
        let is_refusal = REFUSALS.iter().any(|text| reply.starts_with(text));
        let shared = &self.connection.shared;
        if !is_refusal || !self.service.pubsub.is_leaving(shared, clock::unix_ms()) {
            return false;
        }
        turn.batch.out.truncate(mark);
        // Nothing that follows is run.
        turn.batch.plans.truncate(turn.batch.next + 1);
        self.must_close = true;
        true
    }
}
