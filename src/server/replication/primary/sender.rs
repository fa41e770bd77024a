//! The task of one replica: sends the snapshot, then the stream, and reads acknowledgements.
//!
//! Nothing is copied: pieces of the snapshot and of the stream are written to the socket from the memory that all
//! replicas share.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::time::Sleep;

use super::pair::{ChannelState, Seat};
use super::peer::ConnectedReplica;
use super::syncing::{Joined, SyncQueueEntry};
use super::transfer::{TransferData, TransferReader};
use super::{Primary, Start, input};
use crate::net::connection::DetachedConnection;
use crate::net::stream::ClientSocket as Socket;
use crate::replication::backlog::Cursor;
use crate::replication::stream::Source as Feed;
use crate::session::Session;
use crate::telemetry::clock;
use basalt_commands::client::shared::mailbox;
use basalt_commands::command::host::primary::{Follow, ReplicaChannel, ReplicaState, Words};
use basalt_core::resp::request::{Parser, Requests};

/// Buffer capacity for a replica's input.
const READ_BYTES: usize = 4 << 10;

/// Maximum bytes per write: while the kernel copies them, other tasks of the thread wait.
const WRITE_BYTES_MAX: usize = 512 << 10;

/// Maximum bytes sent to a replica before other tasks of its thread run.
const TURN_BYTES_MAX: usize = 1 << 20;

/// Interval between checks whether a replica is too slow, or silent.
const TICK: Duration = Duration::from_millis(100);

/// Interval between keepalives to a waiting replica.
const KEEPALIVE_MS: u64 = 1_000;

/// The data to send next.
enum SendSource {
    /// Nothing yet: the replica waits for a snapshot to begin.
    Waits(Arc<SyncQueueEntry>),
    /// The connection of the replica's snapshot will supply the stream after it.
    Paired,
    /// The snapshot; the stream after it, unless another connection gets the stream; and whether the snapshot
    /// ends with a marker.
    Snapshot(TransferReader, Option<Cursor>, bool),
    /// Nothing more: the snapshot was sent, and this connection stays open until the stream's connection takes
    /// the stream after it.
    Lingers,
    /// The replica has yet to confirm that it has loaded the snapshot.
    Loads(Cursor),
    /// The stream, from the cursor's position.
    Stream(Cursor),
    /// Nothing: the replica was told to retry later.
    Refused,
}

/// Outcome of an attempt to send.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SendOutcome {
    /// All available data was sent.
    All,
    /// The socket accepts no more data for now.
    Blocked,
    /// The next data has to be synced to this server's disk first.
    Unsynced,
    /// Other tasks are to run first.
    Enough,
}

/// Why a wait of the task ended.
enum SenderWakeReason {
    Input,
    Tick,
    More,
}

/// Why a link ends: a message for the log, unless the end needs none.
pub(super) type LinkCloseReason = Option<String>;

/// The connection of a replica, and what is being sent over it.
pub(super) struct ReplicaConnection {
    primary: Arc<Primary>,
    socket: Socket,
    /// The connection's session.
    pub session: Session,
    peer: Arc<ConnectedReplica>,
    parser: Parser,
    received: Vec<u8>,
    requests: Requests,
    texts: VecDeque<Bytes>,
    source: SendSource,
    /// Whether the replica has sent an acknowledgement.
    has_loaded: bool,
    tick: Pin<Box<Sleep>>,
    /// Unix milliseconds when the socket last accepted data, or no data was waiting; after the snapshot was sent: when
    /// the wait for the stream's connection began.
    progress_ms: u64,
    kept_alive_ms: u64,
    /// Unix milliseconds of the last check that found the soft output limit not exceeded; of the first check if there
    /// was none.
    over_soft_ms: Option<u64>,
    /// Stream offset up to which data need not wait for the disk.
    synced_end: u64,
    /// Log position that must be synced before more is sent, and the stream offset up to which data may be sent
    /// then.
    awaited: Option<(u64, u64)>,
}

impl ReplicaConnection {
    pub(super) fn new(
        primary: Arc<Primary>,
        handed: DetachedConnection,
        peer: Arc<ConnectedReplica>,
        follow: &Follow,
    ) -> ReplicaConnection {
        let DetachedConnection {
            stream: socket,
            session,
            batch,
        } = handed;
        let (mut texts, received) = (VecDeque::new(), batch.pending().to_vec());
        let source = match peer.channel() {
            Some(ReplicaChannel::Main(Words::Redis)) => SendSource::Paired,
            Some(ReplicaChannel::Rdb(_)) => match primary.retrying.refusal(&peer) {
                Some(text) => {
                    texts.push_back(Bytes::from(text));
                    SendSource::Refused
                }
                None => {
                    primary.count_full_sync();
                    SendSource::Waits(primary.queue(&peer))
                }
            },
            Some(ReplicaChannel::Main(Words::Valkey)) | None => match primary.resume(&peer, follow)
            {
                Start::Partial(text, cursor) => {
                    texts.push_back(text);
                    SendSource::Stream(cursor)
                }
                Start::Full => SendSource::Waits(primary.queue(&peer)),
                Start::Later(text) => {
                    texts.push_back(text);
                    SendSource::Refused
                }
            },
        };
        let shared = &session.connection.shared;
        shared.query_bytes.store(0, Relaxed);
        shared.buffer_bytes.store(received.capacity(), Relaxed);
        let now_ms = clock::unix_ms();
        ReplicaConnection {
            primary,
            socket,
            session,
            peer,
            parser: Parser::default(),
            received,
            requests: Requests::default(),
            texts,
            source,
            has_loaded: false,
            tick: Box::pin(tokio::time::sleep(TICK)),
            progress_ms: now_ms,
            kept_alive_ms: now_ms,
            over_soft_ms: None,
            synced_end: 0,
            awaited: None,
        }
    }

    /// Serves the replica until the link ends.
    pub(super) async fn run(&mut self) -> LinkCloseReason {
        let _ = self
            .socket
            .set_nodelay(!self.primary.config().repl_disable_tcp_nodelay);
        match (&self.source, &self.peer.seat) {
            (SendSource::Stream(_), Some(seat)) => {
                // The replica continues from its own cursor, so drop the cursor kept in the pair.
                drop(seat.take());
                self.accompany();
            }
            (SendSource::Stream(_), None) => self.go_online(),
            _ => {}
        }
        loop {
            if !self.received.is_empty()
                && let Err(why) = self.hear()
            {
                return why;
            }
            let sent = match self.send() {
                Ok(sent) => sent,
                Err(why) => return why,
            };
            if sent == SendOutcome::Enough {
                tokio::task::yield_now().await;
                continue;
            }
            let event = match self.event(sent).await {
                Ok(event) => event,
                Err(why) => return why,
            };
            let result = match event {
                SenderWakeReason::Input => self.receive(),
                SenderWakeReason::Tick => self.look(),
                SenderWakeReason::More => Ok(()),
            };
            if let Err(why) = result {
                return why;
            }
        }
    }

    async fn event(&mut self, sent: SendOutcome) -> Result<SenderWakeReason, LinkCloseReason> {
        let durability = self.primary.service.durability.get();
        let position = self.awaited.map_or(0, |(position, _)| position);
        let ReplicaConnection {
            socket,
            session,
            source,
            tick,
            peer,
            ..
        } = self;
        let shared = Arc::clone(&session.connection.shared);
        poll_fn(|cx| {
            shared.waker.register(cx.waker());
            if shared.is_killed() {
                return Poll::Ready(Err(None));
            }
            shared.take_buffer_request();
            if let Poll::Ready(ready) = socket.poll_read_ready(cx) {
                return Poll::Ready(ready.map(|()| SenderWakeReason::Input).map_err(|_| None));
            }
            let is_more = match (sent, &*source) {
                (SendOutcome::Blocked, _) => socket.poll_write_ready(cx).is_ready(),
                (SendOutcome::Unsynced, _) => durability
                    .is_none_or(|durability| durability.poll_synced(position, cx).is_ready()),
                (_, SendSource::Waits(place)) => place.poll_joined(cx).is_ready(),
                (_, SendSource::Snapshot(reader, ..)) => reader.poll_readable(cx).is_ready(),
                (_, SendSource::Stream(cursor)) => cursor.poll_readable(cx).is_ready(),
                (_, SendSource::Paired) => {
                    let seat = peer.seat.as_ref();
                    seat.is_some_and(|seat| seat.poll_put(cx).is_ready())
                }
                (_, SendSource::Loads(_) | SendSource::Lingers | SendSource::Refused) => false,
            };
            if is_more {
                return Poll::Ready(Ok(SenderWakeReason::More));
            }
            if tick.as_mut().poll(cx).is_ready() {
                tick.as_mut().reset(tokio::time::Instant::now() + TICK);
                return Poll::Ready(Ok(SenderWakeReason::Tick));
            }
            Poll::Pending
        })
        .await
    }

    /// Sends available data until the socket accepts no more.
    fn send(&mut self) -> Result<SendOutcome, LinkCloseReason> {
        let mut total = 0;
        while total < TURN_BYTES_MAX {
            // Protocol lines between the servers reveal no data.
            if self.texts.is_empty() && self.awaits_disk() {
                self.progress_ms = clock::unix_ms();
                self.note_behind();
                return Ok(SendOutcome::Unsynced);
            }
            let pieces = match self.pieces()? {
                Some(pieces) => pieces,
                None => continue,
            };
            if pieces.is_empty() {
                if !matches!(self.source, SendSource::Paired | SendSource::Lingers) {
                    self.progress_ms = clock::unix_ms();
                }
                self.note_behind();
                return Ok(SendOutcome::All);
            }
            let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            match self.socket.try_write(&slices) {
                Ok(0) => return Err(None),
                Ok(count) => {
                    total += count;
                    self.progress_ms = clock::unix_ms();
                    self.advance(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.note_behind();
                    return Ok(SendOutcome::Blocked);
                }
                Err(_) => return Err(None),
            }
        }
        Ok(SendOutcome::Enough)
    }

    /// Returns whether the next data must be synced to this server's disk first, as for replies that depend on it:
    /// no replica gets data that a failed sync of its primary would lose.
    fn awaits_disk(&mut self) -> bool {
        if let Some((position, end)) = self.awaited {
            if self.primary.service.must_sync(position) {
                return true;
            }
            self.awaited = None;
            self.synced_end = self.synced_end.max(end);
        }
        match &self.source {
            SendSource::Stream(cursor) if cursor.next() > self.synced_end => self.await_disk(),
            _ => false,
        }
    }

    /// If data must be synced before it is sent, makes everything up to the current end of the stream wait for
    /// the disk. Returns whether it has to wait.
    fn await_disk(&mut self) -> bool {
        let stream = &self.primary.stream;
        // Read in this order, because data enters the log before the stream.
        let end = stream.backlog.end();
        let position = stream.log_tail();
        let must_wait = self.primary.service.must_sync(position) && stream.source() == Feed::Log;
        match must_wait {
            true => self.awaited = Some((position, end)),
            false => self.synced_end = self.synced_end.max(end),
        }
        must_wait
    }

    /// Returns the next data to send: empty if none is available, `None` if the source has changed and the
    /// caller must call again.
    fn pieces(&mut self) -> Result<Option<Vec<Bytes>>, LinkCloseReason> {
        if let Some(text) = self.texts.front() {
            return Ok(Some(vec![text.clone()]));
        }
        Ok(Some(match &self.source {
            SendSource::Waits(place) => match place.take() {
                None => Vec::new(),
                Some(joined) => {
                    self.begin_transfer(joined);
                    return Ok(None);
                }
            },
            SendSource::Snapshot(reader, ..) => match reader.peek() {
                TransferData::Nothing => Vec::new(),
                TransferData::Bytes(bytes) => vec![bytes.slice(..bytes.len().min(WRITE_BYTES_MAX))],
                TransferData::Broken => return Err(Some("the snapshot failed".to_owned())),
                TransferData::End => {
                    self.end_transfer()?;
                    return Ok(None);
                }
            },
            SendSource::Paired => match self.peer.seat.as_ref().and_then(Seat::take) {
                None => Vec::new(),
                Some(cursor) => {
                    self.source = SendSource::Stream(cursor);
                    self.accompany();
                    return Ok(None);
                }
            },
            SendSource::Loads(_) | SendSource::Lingers => Vec::new(),
            SendSource::Refused => return Err(None),
            SendSource::Stream(cursor) => {
                let synced = (self.synced_end + 1).saturating_sub(cursor.next());
                let bytes_max = WRITE_BYTES_MAX.min(synced as usize);
                match cursor.peek(bytes_max.max(1)) {
                    Some(pieces) if bytes_max > 0 => pieces,
                    Some(_) => Vec::new(),
                    None => return Err(Some("the replication stream was restarted".to_owned())),
                }
            }
        }))
    }

    fn advance(&mut self, count: usize) {
        let bytes = count as u64;
        self.session.connection.shared.bytes_out.add(bytes);
        let figures = &self.primary.service.telemetry.replication;
        figures.sent_bytes.fetch_add(bytes, Relaxed);
        if let Some(text) = self.texts.front_mut() {
            text.advance(count);
            if text.is_empty() {
                self.texts.pop_front();
            }
            return;
        }
        match &mut self.source {
            SendSource::Snapshot(reader, _, ends_with_mark) => {
                // A snapshot of known length is being transferred from now on; one generated on the fly counts
                // as transferred only at its end.
                if !*ends_with_mark {
                    self.peer.set_state(ReplicaState::Transfers);
                }
                reader.advance(bytes);
            }
            SendSource::Stream(cursor) => {
                cursor.advance(bytes);
                if self.primary.stream.backlog.holds_back() {
                    self.primary.stream.look_at_readers();
                }
            }
            SendSource::Waits(_)
            | SendSource::Paired
            | SendSource::Loads(_)
            | SendSource::Lingers
            | SendSource::Refused => {}
        }
    }

    fn begin_transfer(&mut self, joined: Joined) {
        let Joined {
            id,
            offset,
            db,
            reader,
            cursor,
            ends_with_mark,
            version,
        } = joined;
        self.primary.retrying.note_sent(&self.peer, version);
        let text = match self.peer.channel() {
            Some(ReplicaChannel::Rdb(Words::Valkey)) => {
                let (client, db) = (self.peer.shared.id, db.map_or(-1, |db| db as i64));
                Some(format!("$ENDOFF:{offset} {id} {db} {client}\r\n"))
            }
            _ if self.peer.is_mute => None,
            _ => Some(format!("+FULLRESYNC {id} {offset}\r\n")),
        };
        self.texts.extend(text.map(Bytes::from));
        let cursor = match &self.peer.seat {
            Some(seat) if seat.is_rdb() => {
                seat.put(cursor);
                None
            }
            _ => Some(cursor),
        };
        self.source = SendSource::Snapshot(reader, cursor, ends_with_mark);
        // The data in the snapshot was logged before now: wait until it is synced.
        self.await_disk();
    }

    fn end_transfer(&mut self) -> Result<(), LinkCloseReason> {
        let (name, peer) = (self.peer.name(), &self.peer);
        if peer.is_for_snapshot() {
            peer.set_state(ReplicaState::Transmitted);
            // The stream's connection may exist but not have run since: restart its time limit.
            if peer.seat.as_ref().is_some_and(Seat::keeps) {
                self.progress_ms = clock::unix_ms();
                self.source = SendSource::Lingers;
                return Ok(());
            }
            return Err(Some(format!(
                "RDB transfer completed, rdb only replica ({name}) should be disconnected asap"
            )));
        }
        let place = SendSource::Waits(Arc::default());
        let SendSource::Snapshot(_, Some(cursor), ends_with_mark) =
            std::mem::replace(&mut self.source, place)
        else {
            return Err(None);
        };
        self.go_online();
        // A quick replica may already have seen the marker and acknowledged.
        let loads = ends_with_mark && !self.peer.is_mute && !self.has_loaded;
        self.source = match loads {
            true => {
                tracing::info!(
                    "Streamed replica with replica {name} via socket. Waiting for REPLCONF ACK from replica to enable \
                     streaming"
                );
                SendSource::Loads(cursor)
            }
            false => SendSource::Stream(cursor),
        };
        Ok(())
    }

    /// Sends the stream while the replica receives a snapshot elsewhere. The replica's first acknowledgement
    /// shows that it has loaded the snapshot.
    fn accompany(&self) {
        let Some(ReplicaChannel::Main(words)) = self.peer.channel() else {
            return;
        };
        let name = self.peer.name();
        tracing::info!(
            "Replica {name} receives the replication stream; its snapshot uses another connection"
        );
        self.peer.note_heard();
        self.peer.set_state(ReplicaState::Accompanies(words));
    }

    fn go_online(&self) {
        self.peer.note_heard();
        self.peer.set_state(ReplicaState::Online);
        self.primary.note_online(&self.peer);
    }

    fn cursor(&self) -> Option<&Cursor> {
        match &self.source {
            SendSource::Waits(_)
            | SendSource::Paired
            | SendSource::Lingers
            | SendSource::Refused => None,
            SendSource::Snapshot(_, cursor, _) => cursor.as_ref(),
            SendSource::Loads(cursor) | SendSource::Stream(cursor) => Some(cursor),
        }
    }

    /// Returns the bytes of the stream that are kept for the replica.
    fn behind_bytes(&self) -> u64 {
        let kept = self.peer.seat.as_ref().map_or(0, Seat::kept_bytes);
        self.cursor().map_or(kept, Cursor::behind_bytes)
    }

    fn note_behind(&self) {
        self.peer.note_behind(self.behind_bytes());
    }

    /// Reads the replica's input.
    fn receive(&mut self) -> Result<(), LinkCloseReason> {
        self.received.reserve(READ_BYTES);
        let count = match self.socket.try_read(&mut self.received) {
            Ok(0) => return Err(None),
            Ok(count) => count as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(_) => return Err(None),
        };
        let shared = &self.session.connection.shared;
        shared.bytes_in.add(count);
        shared.buffer_bytes.store(self.received.capacity(), Relaxed);
        let figures = &self.primary.service.telemetry.replication;
        figures.input_bytes.fetch_add(count, Relaxed);
        self.peer.note_heard();
        Ok(())
    }

    /// Processes the replica's input.
    fn hear(&mut self) -> Result<(), LinkCloseReason> {
        let heard = input::read(&mut self.parser, &mut self.received, &mut self.requests);
        let told = |why: String| Some(format!("{why}: {}", self.peer.name()));
        let Some(acknowledged) = heard.map_err(told)? else {
            return Ok(());
        };
        if acknowledged.is_promoted {
            tracing::info!("Replica {} becomes a primary", self.peer.name());
            let config = self.primary.config();
            self.primary.stream.confirmations.step_aside(&config);
        }
        // Limit the offset: no replica can have data that was never written.
        let end = self.primary.stream.backlog.end();
        let synced = acknowledged.synced.map(|synced| synced.min(end));
        let is_more = self
            .peer
            .acknowledge(acknowledged.received.min(end), synced);
        if !std::mem::replace(&mut self.has_loaded, true) {
            self.primary.retrying.note_loaded(&self.peer);
        }
        if let ReplicaState::Accompanies(_) = self.peer.state() {
            self.go_online();
        }
        if let SendSource::Loads(_) = self.source {
            let place = SendSource::Waits(Arc::default());
            if let SendSource::Loads(cursor) = std::mem::replace(&mut self.source, place) {
                self.source = SendSource::Stream(cursor);
            }
        }
        if is_more {
            self.primary.note_acknowledged();
        }
        Ok(())
    }

    /// Checks whether the replica still responds and is within its output limits.
    fn look(&mut self) -> Result<(), LinkCloseReason> {
        let config = self.primary.config();
        let (now_ms, name) = (clock::unix_ms(), || self.peer.name());
        let timeout_ms = u64::from(config.repl_timeout) * 1_000;
        let is_slow = now_ms.saturating_sub(self.progress_ms) > timeout_ms;
        let is_silent = self.peer.silent_ms() > timeout_ms && !self.peer.is_mute;
        if let Some(why) = self.look_at_pair(is_slow) {
            return Err(Some(why));
        }
        let is_early = match &self.source {
            SendSource::Waits(_) => true,
            SendSource::Snapshot(reader, ..) => !reader.has_begun(),
            _ => false,
        };
        match &self.source {
            SendSource::Loads(_) | SendSource::Stream(_) if is_silent && !self.is_accompanied() => {
                let name = name();
                return Err(Some(format!(
                    "Disconnecting timedout replica (streaming sync): {name}"
                )));
            }
            SendSource::Snapshot(..) if is_slow => {
                let name = name();
                return Err(Some(format!(
                    "Disconnecting timedout replica (full sync): {name}"
                )));
            }
            // Send keepalives only before the snapshot: within it, they would count as its bytes.
            _ if is_early
                && self.texts.is_empty()
                && now_ms.saturating_sub(self.kept_alive_ms) >= KEEPALIVE_MS
                && !self.primary.service.pause.sleeps(now_ms) =>
            {
                self.kept_alive_ms = now_ms;
                self.texts.push_back(Bytes::from_static(b"\n"));
            }
            _ => {}
        }
        self.note_behind();
        let limit = config.client_output_buffer_limit.replica;
        // Limits below the backlog's size make no sense, because the backlog keeps that data anyway.
        let at_least = |bytes: u64| bytes.max(config.repl_backlog_size);
        let behind = self.behind_bytes();
        let is_over = |bytes: u64| bytes > 0 && behind > at_least(bytes);
        if !is_over(limit.soft_bytes) {
            self.over_soft_ms = None;
        }
        let since_ms = *self.over_soft_ms.get_or_insert(now_ms);
        let is_late = is_over(limit.soft_bytes)
            && now_ms.saturating_sub(since_ms) > limit.soft_seconds.saturating_mul(1_000);
        if is_over(limit.hard_bytes) || is_late {
            mailbox::CUT.fetch_add(1, Relaxed);
            let name = name();
            return Err(Some(format!(
                "Client {name} scheduled to be closed ASAP for overcoming of output buffer limits."
            )));
        }
        Ok(())
    }

    /// True if the replica's snapshot is being sent through another connection. The replica sends nothing
    /// during that time.
    fn is_accompanied(&self) -> bool {
        let seat = self.peer.seat.as_ref().filter(|seat| !seat.is_rdb());
        let is_under_way = matches!(self.peer.state(), ReplicaState::Accompanies(_));
        is_under_way && seat.is_some_and(|seat| seat.other() == ChannelState::There)
    }

    /// Returns why this connection must end because the replica's other connection is missing or closed, if so.
    fn look_at_pair(&self, is_slow: bool) -> Option<String> {
        let seat = self.peer.seat.as_ref()?;
        let name = self.peer.name();
        match (&self.source, seat.other()) {
            (_, ChannelState::Gone) if seat.is_rdb() => Some(format!(
                "Replica {name} closed the connection of its replication stream: its snapshot is cancelled too"
            )),
            (SendSource::Paired, ChannelState::Gone) => Some(format!(
                "Replica {name} closed the connection of its snapshot"
            )),
            (SendSource::Lingers, _) if !seat.keeps() => Some(format!(
                "RDB transfer completed, rdb only replica ({name}) should be disconnected asap"
            )),
            (SendSource::Lingers, _) | (SendSource::Paired, ChannelState::Awaited) if is_slow => {
                Some(format!(
                    "Replica {name} did not open its second connection in time"
                ))
            }
            _ => None,
        }
    }
}
