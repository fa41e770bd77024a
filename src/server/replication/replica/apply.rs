//! Runs the primary's commands as they arrive, in order and prefetched, and reports how much of the stream was run.
//!
//! Commands that were run are appended to this server's stream as received, so that offsets agree along a chain
//! of replicas. A transaction counts once its EXEC has run: no replica is sent half of a transaction, and a
//! link that breaks within a transaction resumes at its MULTI.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;

use crate::session::batch::{Batch, Plan};
use crate::session::{Session, Step};
use crate::state::Service;
use crate::telemetry::clock;
use basalt_commands::client::connection::Connection;
use basalt_commands::client::shared::Shared;
use basalt_commands::command::declaration::Command;
use basalt_commands::command::transaction::{Boundary, boundary};
use basalt_commands::config::Config;
use basalt_core::base::lossless;
use basalt_core::resp::reply::Protocol;
use basalt_core::resp::request::RequestLimits;
use basalt_engine::effect::Follower as _;
use basalt_engine::record::Audience;

/// Requests run before other tasks of the thread run.
const REQUESTS_PER_TURN: usize = 512;

/// Maximum length of an inline request.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Error that stops the stream.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamApplyError {
    /// The input is not a request.
    #[error("Protocol error from the master: {0}")]
    Protocol(String),
    /// A command that would wait or end the server, which no primary sends.
    #[error("The master sent an unexpected command: '{0}'")]
    Foreign(String),
}

/// Outcome of `Applier::turn`.
pub(super) struct Applied {
    /// Bytes of the stream that were run.
    pub(super) bytes: Bytes,
    /// Whether complete requests may be left in the input.
    pub(super) is_more: bool,
}

/// Applier of the primary's commands, with the received part of an unfinished transaction.
pub(super) struct Applier {
    service: &'static Service,
    session: Session,
    batch: Batch,
    config: Arc<Config>,
    /// Bytes of an open transaction, which has not run yet.
    held: Vec<u8>,
}

impl Applier {
    /// Creates an applier for the link whose connection is `shared`. The stream continues in database `db`.
    pub(super) fn new(service: &'static Service, shared: Arc<Shared>, db: usize) -> Applier {
        let mut connection = Connection::new(shared, true);
        connection.db = db;
        // Replicas of this server get the primary's bytes, and not the log records that these commands produce
        // on this server.
        connection.log_audience = Audience::FILE;
        service.pause.rest.set_link(connection.id());
        Applier {
            session: Session::applying(connection, service),
            batch: Batch::default(),
            config: service.config.load_full(),
            held: Vec::new(),
            service,
        }
    }

    /// Returns the buffer for received data.
    pub(super) fn input(&mut self) -> &mut Vec<u8> {
        &mut self.batch.input
    }

    /// Returns the database selected in the stream.
    pub(super) fn db(&self) -> usize {
        self.session.connection.db
    }

    /// Returns the number of bytes received but not run yet.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.held.len() + self.batch.pending().len()
    }

    /// Runs a turn's worth of the received data. The future must be awaited to its end, not dropped midway.
    pub(super) async fn turn(&mut self) -> Result<Applied, StreamApplyError> {
        let limits = RequestLimits {
            bulk_len_max: u64::MAX,
            query_bytes_max: u64::MAX,
            inline_len_max: INLINE_BYTES_MAX,
            authenticated: true,
        };
        if !Arc::ptr_eq(&self.config, &self.service.config.load()) {
            self.config = self.service.config.load_full();
        }
        let was_open = self.session.is_in_transaction();
        let batch = &mut self.batch;
        let (input, requests) = batch.parsing();
        let parser = &mut self.session.parser;
        let consumed = parser
            .parse(input, &limits, REQUESTS_PER_TURN, requests)
            .map_err(|error| {
                StreamApplyError::Protocol(lossless::text_of(&error.text()).into_owned())
            })?;
        let count = batch.requests.requests.len();
        if count > 0 {
            batch.out.set_protocol(Protocol::Resp2);
            batch.plan_sent_on(&self.service.router);
            let telemetry = &self.service.telemetry;
            let is_write = |plan: &Plan| plan.command.is_some_and(Command::is_write);
            if telemetry.persistence.unsaved_text(&self.config).is_some()
                && batch.plans.iter().any(is_write)
            {
                telemetry.replication.note_unsaved(&self.config);
            }
            self.run().await?;
        }
        let done = match self.session.is_in_transaction() {
            false => consumed,
            true => self.begin_of_transaction(was_open),
        };
        let bytes = self.take_run(0..done, consumed);
        self.batch.consume(consumed);
        let shared = &self.session.connection.shared;
        let waiting = self.waiting_bytes();
        shared.query_bytes.store(waiting, Relaxed);
        shared
            .buffer_bytes
            .store(self.batch.input.capacity() + self.held.capacity(), Relaxed);
        self.session.note_pending();
        Ok(Applied {
            bytes,
            is_more: count == REQUESTS_PER_TURN,
        })
    }

    /// Returns where in the batch the transaction begins that is still open at the batch's end.
    fn begin_of_transaction(&self, was_open: bool) -> usize {
        let plans = self.batch.plans.iter();
        let begins = |plan: &Plan| {
            let name = self.batch.args(plan);
            boundary(name.get(0)) == Some(Boundary::Begins)
        };
        let mut ends = plans.enumerate().rev();
        match ends.find(|(_, plan)| begins(plan)) {
            Some((0, _)) => 0,
            Some((at, _)) => self.batch.plans[at - 1].request.end as usize,
            None => {
                debug_assert!(was_open, "something has begun it");
                0
            }
        }
    }

    /// Returns the bytes that count as run, including the held part of a transaction that has ended; holds the
    /// bytes of an open transaction.
    fn take_run(&mut self, run: Range<usize>, consumed: usize) -> Bytes {
        let come = &self.batch.pending()[..consumed];
        let (done, open) = come.split_at(run.end);
        if self.held.is_empty() && open.is_empty() {
            return Bytes::copy_from_slice(done);
        }
        let is_open = self.session.is_in_transaction();
        if is_open && run.end == 0 {
            self.held.extend_from_slice(open);
            return Bytes::new();
        }
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(done);
        self.held.extend_from_slice(open);
        Bytes::from(all)
    }

    /// Runs the planned requests.
    async fn run(&mut self) -> Result<(), StreamApplyError> {
        let Applier {
            service,
            session,
            batch,
            config,
            ..
        } = self;
        let service = *service;
        let now = clock::now();
        session
            .connection
            .shared
            .active_ms
            .store(now.unix_ms, Relaxed);
        let mut step = session.run(batch, config, now);
        loop {
            batch.out.clear();
            match step {
                Step::Done => return Ok(()),
                Step::Wait(ticket) => {
                    let mut job = poll_fn(|cx| ticket.poll(cx)).await;
                    if let Some(next) = session.resume(batch, &mut job, config, clock::now()) {
                        step = next;
                        continue;
                    }
                }
                Step::Deliver => {
                    service.pubsub.deliver();
                    tokio::task::yield_now().await;
                }
                Step::AwaitLog => {
                    poll_fn(|cx| service.poll_writers_room(cx)).await;
                }
                Step::Configured => *config = service.config.load_full(),
                Step::Flush => {}
                Step::Yield => tokio::task::yield_now().await,
                Step::SleepUntil(_) | Step::Close | Step::Follow | Step::Shutdown => {
                    // A command that waits is still the next one of the batch, but a command that ends the link
                    // has already run.
                    let has_run = !matches!(step, Step::SleepUntil(_));
                    let at = batch.next.saturating_sub(usize::from(has_run));
                    let name = batch.plans.get(at).map_or_else(String::new, |plan| {
                        lossless::text_of(batch.args(plan).get(0)).into_owned()
                    });
                    return Err(StreamApplyError::Foreign(name));
                }
            }
            step = session.run(batch, config, clock::now());
        }
    }

    /// Ends the link: an unfinished transaction is dropped.
    pub(super) fn end(mut self) {
        self.service.pause.rest.set_link(0);
        self.session.connection.shared.leave();
        self.session.end();
    }
}
