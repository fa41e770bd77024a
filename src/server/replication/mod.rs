//! Replication: the stream of writes to replicas, and from a primary.
//!
//! ```text
//! backlog   the stream of this server, its newest bytes, and the position of each replica
//! history   the replication ids: of the stream, and of the one that it continues
//! stream    both together, for the stream's source and its readers
//! confirmation   which writes enough replicas have (`min-sync-replicas`)
//! primary   the sending half
//! replica   the half that follows a primary
//! ```
//!
//! The backlog holds one stream of bytes with offsets. On a primary, the log's sequencer appends to it; on a
//! replica, the link to the primary appends the bytes as received, so that offsets agree along a chain of
//! replicas. The sender of each replica reads from the backlog by reference, so ten replicas take no more
//! memory than one.

pub mod backlog;
pub mod confirmation;
pub mod history;
pub mod primary;
pub mod replica;
pub mod stream;

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::persist::aof::Aof;
use crate::persist::files::Files;
use crate::persist::oplog::OpLog;
use crate::persist::snapshot::Snapshots;
use crate::state::Service;
use confirmation::Confirmations;
use primary::Primary;
use replica::PrimaryFollower;
use stream::ReplicationStream;

/// Both halves of replication, with the log that feeds the stream.
pub struct Replication {
    /// The log of commands, which feeds the stream of a primary.
    pub log: Arc<OpLog>,
    /// Which writes replicas have confirmed.
    pub confirmations: Arc<Confirmations>,
    /// The half that sends the stream.
    pub primary: Arc<Primary>,
    /// The half that follows a primary.
    pub replica: &'static PrimaryFollower,
}

impl Replication {
    /// Creates and starts the replication of this server.
    pub fn new(
        service: &'static Service,
        log: Arc<OpLog>,
        snapshots: Arc<Snapshots>,
        aof: Arc<Aof>,
        files: Arc<dyn Files>,
        runtime: &Handle,
    ) -> Arc<Replication> {
        let stream = ReplicationStream::new(
            service.pubsub.interest(),
            Arc::clone(&log),
            &service.telemetry.replication.kept_bytes,
        );
        snapshots.set_origin(Arc::clone(&stream) as _);
        let primary = Primary::new(
            service,
            Arc::clone(&stream),
            snapshots,
            files,
            runtime.clone(),
        );
        primary.start();
        let confirmations = Arc::clone(&stream.confirmations);
        let holds = &service.reply_holds;
        let set = holds.confirmation.set(Arc::clone(&confirmations) as _);
        assert!(set.is_ok(), "the confirmations are set once");
        Arc::new(Replication {
            log,
            confirmations,
            primary,
            replica: PrimaryFollower::new(service, stream, aof, runtime),
        })
    }
}
