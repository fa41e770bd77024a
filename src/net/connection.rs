//! One connection's task: read, parse the whole batch, run it in order, write, and yield now and then.
//!
//! A task that was idle for two seconds holds no buffer. It runs at most a turn's worth of commands before it lets
//! other connections go on, and does not read while its output is not taken.

use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use super::buffer_budget::{CLAIM_BYTES_MAX, LARGE_BYTES, Reservation};
use super::input;
use super::pool;
use super::stream::{READ_BYTES_MAX, Stream};
use super::write_batching;
use crate::client::connection::ReplyMode;
use crate::client::mailbox;
use crate::client::memory::CLIENT_MEMORY;
use crate::config::Config;
use crate::resp::reply::Out;
use crate::resp::request::{Limits, Parser, ProtocolError};
use crate::session::batch::Batch;
use crate::session::prefetch::prefetch;
use crate::session::{Session, Step};
use crate::telemetry::clock::Ticks;
use crate::telemetry::{clock, counters};

/// Requests that a connection runs before it yields.
const REQUESTS_PER_TURN: usize = 128;

/// How long a connection that does not get rid of its output goes on before it yields.
const TURN_NS_MAX: u64 = 500_000;

/// Bytes that a connection sends before it yields, however fast its client takes them.
const SENT_BYTES_PER_TURN: usize = 1024 * 1024;

/// Output that a client may leave lying while its next requests run. What is beyond it has to be taken first.
const HELD_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Output in bytes that a client may leave lying when all clients together hold more than [`ALL_HELD_BYTES_MAX`].
const HELD_BYTES_SCARCE: usize = 256 * 1024;

/// Output in bytes held for all clients together, from which on each may leave only [`HELD_BYTES_SCARCE`] lying.
const ALL_HELD_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Output up to this is never too much: Redis has it in a buffer that its limits do not count.
const OUTPUT_BYTES_FREE: usize = 16 * 1024;

/// Bytes handed to one write: the kernel copies them while others wait.
const WRITE_BYTES_MAX: usize = 512 * 1024;

/// Slices handed to one write.
const SLICES_MAX: usize = 64;

/// Longest inline request.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// A connection that leaves requests and replies behind: what follows on its socket is somebody else's affair.
pub struct Handed {
    /// The socket.
    pub stream: Stream,
    /// The connection's state, with a parser that stands at the first byte of the batch's input.
    pub session: Session,
    /// What was received and not read yet, and what the client asked for.
    pub batch: Box<Batch>,
}

/// What connections leave to others.
pub trait Owner: Send + Sync + 'static {
    /// Serves a connection that follows the stream of this server, to its end, in a task of its own.
    fn own(&self, handed: Handed);
    /// A client asked the server to stop.
    fn stop(&self);
}

/// Why a connection ends.
enum End {
    /// Nothing more to say.
    Closed,
    /// The client left too much of its output lying.
    Cut,
    /// SHUTDOWN was asked for.
    Shutdown,
    /// The connection goes on as that of a replica.
    Followed,
}

/// What a turn leaves in the read buffer.
enum Left {
    /// Nothing that could be run.
    Nothing,
    /// A part of a request, or an error that the parser reports when it is asked again.
    Part,
    /// Complete requests, for the next turn.
    Requests,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        End::Closed
    }
}

/// Serves a connection until it ends. When the client asked the server to stop, its owner is told and the connection
/// stays open: who asked sees its end when nobody can connect any more.
///
/// No `async fn`, whose arguments would stand in the task twice: an idle connection is little more than this.
pub fn serve(
    mut stream: Stream,
    mut session: Session,
    owner: &'static impl Owner,
) -> impl Future<Output = ()> + Send + 'static {
    let mut kept = Kept::default();
    let mut config = session.service().config.load_full();
    async move {
        let end = loop {
            match turn(&mut stream, &mut session, &mut kept, &mut config).await {
                Ok(()) => {}
                Err(end) => break end,
            }
        };
        if matches!(end, End::Followed) {
            return hand_over(owner, stream, session, &mut kept);
        }
        kept.let_go();
        leave(&mut session);
        if matches!(end, End::Shutdown) {
            owner.stop();
            std::future::pending::<()>().await;
        }
    }
}

/// Leaves a connection to its owner.
#[cold]
fn hand_over(owner: &'static impl Owner, stream: Stream, session: Session, kept: &mut Kept) {
    let batch = kept.batch.take().unwrap_or_else(pool::take);
    kept.let_go();
    owner.own(Handed {
        stream,
        session,
        batch,
    });
}

/// The connection is over: nobody finds it any more.
pub fn leave(session: &mut Session) {
    session.connection.shared.leave();
    session.end();
    session.service().clients.remove(session.connection.id());
}

/// What a connection has between two turns.
#[derive(Default)]
struct Kept {
    batch: Option<Box<Batch>>,
    reservation: Reservation,
}

impl Kept {
    /// Keeps a batch for the next turn: because it holds a part of a request, or because the connection was active
    /// just now and the budget of all connections allows it.
    fn put(&mut self, session: &mut Session, mut batch: Box<Batch>) {
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
        if !self.reservation.resize(bytes) && !is_needed {
            self.reservation.resize(0);
            shared.buffer_bytes.store(0, Relaxed);
            pool::put(batch);
        } else {
            shared.buffer_bytes.store(bytes, Relaxed);
            self.batch = Some(batch);
        }
        note_memory(session);
    }

    /// Makes room for the rest of an argument that has begun to arrive, as far as the budget allows. A long one gets a
    /// block of its own.
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

    /// Whether some output is left that the client did not take.
    fn has_output(&self) -> bool {
        let batch = self.batch.as_ref();
        batch.is_some_and(|batch| !batch.out.is_empty())
    }

    /// The connection is idle: it keeps the bytes of a request that has begun, and nothing else.
    fn shrink(&mut self, session: &mut Session) {
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
        CLIENT_MEMORY.note(&shared);
    }

    fn let_go(&mut self) {
        self.reservation.resize(0);
        if let Some(batch) = self.batch.take() {
            pool::put(batch);
        }
    }
}

/// Notes what the connection takes, and closes the largest ones if that is too much for all of them together.
#[inline]
fn note_memory(session: &Session) {
    session.note_pending();
    CLIENT_MEMORY.note(&session.connection.shared);
    if CLIENT_MEMORY.is_over() {
        session.service().clients.evict();
    }
}

/// Whether more output waits for the client than its class may leave lying.
#[inline]
fn is_over_output(session: &Session, batch: &Batch, config: &Config) -> bool {
    let len = batch.out.len_bytes();
    if len <= OUTPUT_BYTES_FREE {
        return batch.out.is_cut();
    }
    let limits = &config.client_output_buffer_limit;
    let limit = match session.connection.shared.subscriptions() {
        0 => limits.normal,
        _ => limits.pubsub,
    };
    batch.out.is_cut() || (limit.hard_bytes > 0 && len as u64 > limit.hard_bytes)
}

/// Closes a client that leaves too much lying; nothing of it is sent any more.
#[cold]
fn cut() -> End {
    mailbox::CUT.fetch_add(1, Relaxed);
    End::Cut
}

/// Waits for input, reads once, and runs what is complete.
async fn turn(
    stream: &mut Stream,
    session: &mut Session,
    kept: &mut Kept,
    config: &mut Arc<Config>,
) -> Result<(), End> {
    let (woken, sent_meanwhile) = loop {
        match readable(stream, session, kept.has_output()).await? {
            Woken::Background => kept.shrink(session),
            Woken::Output => {
                if let Some(mut batch) = kept.batch.take() {
                    let count = flush_counting(stream, session, &mut batch, held_max()).await?;
                    if count > 0 {
                        kept.batch = Some(batch);
                        break (Woken::Output, count);
                    }
                    kept.put(session, batch);
                }
            }
            woken => break (woken, 0),
        }
    };
    let has_kept = kept.batch.is_some();
    let mut batch = kept.batch.take().unwrap_or_else(pool::take);
    let read = match woken {
        Woken::Mail => deliver(stream, session, &mut batch).await,
        Woken::Output => Ok(sent_meanwhile),
        _ => read(stream, session, &mut batch),
    };
    let read_much = match read {
        Ok(count) if count > 0 => count >= READ_BYTES_MAX / 2,
        Ok(_) => {
            // Who only listens keeps nothing: thousands may hear of the same.
            let is_lent = woken == Woken::Mail && !has_kept && batch.out.is_empty();
            match is_lent && batch.input.is_empty() {
                true => {
                    pool::put(batch);
                    note_memory(session);
                }
                false => kept.put(session, batch),
            }
            return Ok(());
        }
        Err(end) => {
            pool::put(batch);
            return Err(end);
        }
    };
    loop {
        refresh(config, session);
        let left = match run_turn(stream, session, &mut batch, config).await {
            Ok(left) => left,
            Err(End::Cut) => {
                // What it has taken is not worth keeping for others.
                batch.reset();
                return Err(End::Cut);
            }
            Err(End::Followed) => {
                kept.batch = Some(batch);
                return Err(End::Followed);
            }
            Err(end) => {
                pool::put(batch);
                return Err(end);
            }
        };
        match left {
            Left::Nothing => break,
            Left::Part => {}
            Left::Requests => tokio::task::yield_now().await,
        }
    }
    kept.put(session, batch);
    if read_much {
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// What ended a wait for input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    Input,
    /// The client takes more of the output.
    Output,
    /// Somebody has something for it.
    Mail,
    /// The connection was idle for long: it is to give its buffer back.
    Background,
}

async fn readable(stream: &mut Stream, session: &Session, has_output: bool) -> Result<Woken, End> {
    let shared = &session.connection.shared;
    poll_fn(|cx| {
        shared.waker.register(cx.waker());
        if shared.is_killed() {
            return Poll::Ready(Err(End::Closed));
        }
        if shared.take_buffer_request() {
            return Poll::Ready(Ok(Woken::Background));
        }
        if shared.has_mail() {
            return Poll::Ready(Ok(Woken::Mail));
        }
        if has_output && let Poll::Ready(ready) = stream.poll_write_ready(cx) {
            return Poll::Ready(ready.map(|()| Woken::Output).map_err(End::from));
        }
        let ready = stream.poll_read_ready(cx);
        ready.map(|ready| ready.map(|()| Woken::Input).map_err(End::from))
    })
    .await
}

/// Sends what others have for the client; how many bytes the client sent meanwhile.
async fn deliver(
    stream: &mut Stream,
    session: &mut Session,
    batch: &mut Batch,
) -> Result<usize, End> {
    collect_mail(session, batch);
    let count = flush_counting(stream, session, batch, 0).await?;
    if batch.out.memory_bytes() > pool::OUTPUT_BYTES_KEPT_MAX / 4 {
        // The mail came with memory of its own.
        batch.out = Out::new(batch.out.protocol());
    }
    Ok(count)
}

/// Sends the output as [`flush`] does; how many bytes the client sent meanwhile.
async fn flush_counting(
    stream: &mut Stream,
    session: &mut Session,
    batch: &mut Batch,
    held_max: usize,
) -> Result<usize, End> {
    let received =
        |session: &Session, batch: &Batch| batch.pending().len() + session.parser.moved_bytes();
    let before = received(session, batch);
    flush(stream, session, batch, held_max).await?;
    Ok(received(session, batch) - before)
}

/// Puts what others have for the client behind the replies. No request of its own may be under way.
fn collect_mail(session: &Session, batch: &mut Batch) {
    if !batch.late.is_empty() {
        let Batch { out, late, .. } = batch;
        out.append(late);
    }
    let Some(mut mail) = session.connection.shared.take_mail() else {
        return;
    };
    if batch.out.is_empty() {
        mail.set_protocol(batch.out.protocol());
        batch.out = mail;
    } else {
        batch.out.append(&mut mail);
    }
}

/// Sends what others have for a client whose request waits. If its reply has come meanwhile, that goes first.
///
/// Whoever serves it hands the reply over before it lets the shard go, and tells of changes afterwards: mail that was
/// taken while there was no reply knows of nothing that the reply does not know.
async fn deliver_waiting(
    stream: &mut Stream,
    session: &mut Session,
    batch: &mut Batch,
) -> Result<(), End> {
    let Some(mut mail) = session.connection.shared.take_mail() else {
        return Ok(());
    };
    if session.is_served() {
        batch.late.append(&mut mail);
        return Ok(());
    }
    batch.out.append(&mut mail);
    flush(stream, session, batch, 0).await
}

/// Reads once; how many bytes came, which may be none after all.
fn read(stream: &mut Stream, session: &mut Session, batch: &mut Batch) -> Result<usize, End> {
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

/// Takes the configuration that is in force now. It is kept from turn to turn: taking a reference anew would have all
/// cores write to its count.
fn refresh(config: &mut Arc<Config>, session: &Session) {
    if !Arc::ptr_eq(config, &session.service().config.load()) {
        *config = session.service().config.load_full();
    }
}

/// Parses one turn's worth of requests; how many bytes they took. A function of its own, so that limits are no part of
/// what a connection keeps while it waits.
fn parse(
    session: &mut Session,
    batch: &mut Batch,
    config: &Config,
) -> Result<usize, ProtocolError> {
    let limits = Limits {
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
async fn run_turn(
    stream: &mut Stream,
    session: &mut Session,
    batch: &mut Box<Batch>,
    config: &mut Arc<Config>,
) -> Result<Left, End> {
    let parsed = parse(session, batch, config);
    let consumed = match parsed {
        Ok(consumed) => consumed,
        Err(ProtocolError::QueryTooLong) => {
            session.service().clients.overfed.fetch_add(1, Relaxed);
            return Err(End::Closed);
        }
        Err(error) => {
            let text = error.text();
            batch.out.set_protocol(session.connection.protocol);
            if session.connection.reply_mode == ReplyMode::On {
                batch.out.error(text);
            }
            flush(stream, session, batch, 0).await?;
            return Err(End::Closed);
        }
    };
    let count = batch.requests.requests.len();
    if count == 0 {
        // Long arguments have left the buffer, as in Redis; each of them was measured by its length.
        if batch.pending().len() as u64 > config.client_query_buffer_limit {
            session.service().clients.overfed.fetch_add(1, Relaxed);
            return Err(End::Closed);
        }
        let shared = &session.connection.shared;
        shared.active_ms.store(clock::unix_ms(), Relaxed);
        batch.consume(consumed);
        return Ok(Left::Nothing);
    }
    let service = session.service();
    let now = clock::now();
    let shared = &session.connection.shared;
    shared.active_ms.store(now.unix_ms, Relaxed);
    batch.out.set_protocol(session.connection.protocol);
    batch.plan(&service.router);
    prefetch(batch, service, session.connection.db);
    let mut step = session.run(batch, config, now);
    if let Some(position) = session.undelivered() {
        delivered(session, position).await;
    }
    let mut flushed: Option<Ticks> = None;
    loop {
        if is_over_output(session, batch, config) {
            return Err(cut());
        }
        match step {
            Step::Done => break,
            Step::Wait(ticket) => {
                // Nothing else ends this wait: what the job leaves to be done is for the session to do, even if its
                // client is gone or killed meanwhile.
                let mut job = poll_fn(|cx| ticket.poll(cx)).await;
                if let Some(next) = session.resume(batch, &mut job, config, clock::now()) {
                    if let Some(position) = session.undelivered() {
                        delivered(session, position).await;
                    }
                    step = next;
                    continue;
                }
            }
            // What has to be delivered is by now.
            Step::Configured | Step::Deliver => {}
            Step::AwaitLog => log_has_room(session).await,
            Step::Flush => {
                flush(stream, session, batch, held_max()).await?;
                // A client that takes nothing for now has not had us wait.
                let began = *flushed.get_or_insert_with(Ticks::now);
                if Ticks::now().since_ns(began) > TURN_NS_MAX {
                    flushed = None;
                    tokio::task::yield_now().await;
                }
            }
            Step::Yield => tokio::task::yield_now().await,
            Step::Close => {
                session.connection.shared.leave();
                flush(stream, session, batch, 0).await?;
                return Err(End::Closed);
            }
            Step::Follow => {
                flush(stream, session, batch, 0).await?;
                // Whoever takes it over reads anew what came behind the request.
                batch.consume_run();
                session.parser = Parser::default();
                return Err(End::Followed);
            }
            Step::Shutdown => {
                flush(stream, session, batch, 0).await?;
                return Err(End::Shutdown);
            }
            Step::SleepUntil(until_ms) => {
                // A client that does not read what it asked for before still waits no longer than it wanted to.
                let left = Duration::from_millis(until_ms.saturating_sub(clock::unix_ms()));
                let flushing = Box::pin(flush(stream, session, batch, 0));
                if let Ok(flushed) = tokio::time::timeout(left, flushing).await {
                    flushed?;
                }
                session.connection.shared.set_sleeping(true);
                // In a box of its own, or every idle connection would have room for it.
                Box::pin(sleep_until(stream, session, batch, until_ms)).await?;
                session.connection.shared.set_sleeping(false);
            }
        }
        // Who was killed while it waited begins no other request.
        if session.connection.shared.is_killed() {
            return Err(End::Closed);
        }
        refresh(config, session);
        step = session.run(batch, config, clock::now());
        if let Some(position) = session.undelivered() {
            delivered(session, position).await;
        }
    }
    batch.consume(consumed);
    collect_mail(session, batch);
    if CLIENT_MEMORY.is_over() {
        // Before the replies: whoever has them knows that it is done.
        note_memory(session);
    }
    // Replies that wait for the disk leave back to back in any case.
    if !batch.out.is_empty() && !must_sync(session) {
        write_batching::others_first().await;
    }
    flush(stream, session, batch, held_max()).await?;
    if session.connection.shared.is_killed() {
        return Err(End::Closed);
    }
    Ok(match batch.pending().is_empty() {
        true => Left::Nothing,
        false if count < REQUESTS_PER_TURN => Left::Part,
        false => Left::Requests,
    })
}

/// Waits until others have what they are to hear of this connection's commands: its replies leave behind that. In a box
/// of its own, as most connections never wait for it.
#[cold]
fn delivered(session: &Session, position: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
    let pubsub = &session.service().pubsub;
    Box::pin(poll_fn(move |cx| pubsub.poll_delivered(position, cx)))
}

/// Waits until commands may add to the log again.
#[cold]
fn log_has_room(session: &Session) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
    Box::pin(poll_fn(|cx| match session.service().durability.get() {
        Some(durability) => durability.poll_room(cx),
        None => Poll::Ready(()),
    }))
}

/// Whether what this connection's replies know of is not on the disk, and has to be before they leave.
#[inline]
fn must_sync(session: &Session) -> bool {
    let seen = session.connection.shared.log_seen.load(Relaxed);
    session.service().must_sync(seen)
}

/// Waits until what this connection's replies know of is on the disk. In a box of its own, as few servers ever wait for
/// it.
#[cold]
fn on_disk(session: &Session) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
    let position = session.connection.shared.log_seen.load(Relaxed);
    Box::pin(poll_fn(move |cx| {
        match session.service().durability.get() {
            Some(durability) => durability.poll_synced(position, cx),
            None => Poll::Ready(()),
        }
    }))
}

/// How often a sleeping connection that receives no more looks whether its client is still there.
const CLOSED_CHECK: Duration = Duration::from_millis(500);

/// Sleeps until a Unix time, or until somebody nudges the connection (the end of a pause or of a blocked request), or
/// until it is killed or its client is gone.
///
/// Meanwhile it goes on receiving, though not running: so it learns at once when the client goes, and nothing is handed
/// to one who is not there any more.
async fn sleep_until(
    stream: &mut Stream,
    session: &mut Session,
    batch: &mut Batch,
    until_ms: u64,
) -> Result<(), End> {
    let mut receives = true;
    let shared = Arc::clone(&session.connection.shared);
    loop {
        let (mut has_input, mut has_mail) = (false, false);
        let left = Duration::from_millis(until_ms.saturating_sub(clock::unix_ms()));
        // A client that may still send is heard when it goes; of another one we have to ask.
        let nap = if receives {
            left
        } else {
            left.min(CLOSED_CHECK)
        };
        let mut sleep = Box::pin(tokio::time::sleep(nap));
        let mut slept = false;
        poll_fn(|cx| {
            shared.waker.register(cx.waker());
            if shared.is_killed() {
                return Poll::Ready(Err(End::Closed));
            }
            if shared.take_nudge() {
                return Poll::Ready(Ok(()));
            }
            has_mail = shared.has_mail();
            if has_mail {
                return Poll::Ready(Ok(()));
            }
            slept = sleep.as_mut().poll(cx).is_ready();
            has_input = !slept && receives && stream.poll_read_ready(cx).is_ready();
            if slept || has_input {
                Poll::Ready(Ok(()))
            } else {
                Poll::Pending
            }
        })
        .await?;
        if has_mail {
            deliver_waiting(stream, session, batch).await?;
            continue;
        }
        if has_input {
            receives = receive(stream, session, batch)?;
            continue;
        }
        if !slept || nap == left {
            return Ok(());
        }
        if stream.is_closed_by_peer() {
            return Err(End::Closed);
        }
    }
}

/// Reads while requests of the same connection wait; whether there is room for more.
fn receive(stream: &mut Stream, session: &mut Session, batch: &mut Batch) -> Result<bool, End> {
    let limit = match session.connection.authenticated {
        true => session.service().config.load().client_query_buffer_limit,
        // Who may not run anything may not fill the memory either.
        false => pool::INPUT_BYTES as u64,
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

/// How much output a client may leave lying just now.
fn held_max() -> usize {
    match CLIENT_MEMORY.total_bytes() {
        ..=ALL_HELD_BYTES_MAX => HELD_BYTES_MAX,
        _ => HELD_BYTES_SCARCE,
    }
}

/// Sends the output, all but what the client does not take now; waits while that is more than `held_max`.
///
/// Meanwhile it goes on receiving, though not running: many clients send a whole pipeline before they read its first
/// reply, and would wait for ever on a server that waits for them.
async fn flush(
    stream: &mut Stream,
    session: &mut Session,
    batch: &mut Batch,
    held_max: usize,
) -> Result<(), End> {
    let mut receives = true;
    let mut sent = 0;
    if must_sync(session) && !batch.out.is_empty() {
        on_disk(session).await;
    }
    while !batch.out.is_empty() {
        if sent > SENT_BYTES_PER_TURN {
            sent = 0;
            tokio::task::yield_now().await;
        }
        let written = {
            match batch.out.as_slice() {
                Some(bytes) => {
                    let bytes = &bytes[..bytes.len().min(WRITE_BYTES_MAX)];
                    stream.try_write(&[IoSlice::new(bytes)])
                }
                None => {
                    let mut slices = Vec::with_capacity(SLICES_MAX);
                    batch.out.io_slices_within(WRITE_BYTES_MAX, &mut slices);
                    stream.try_write(&slices)
                }
            }
        };
        let shared = &session.connection.shared;
        match written {
            Ok(0) => return Err(End::Closed),
            Ok(count) => {
                let counters = counters::local();
                counters.bytes_out.add(count as u64);
                counters.writes.add(1);
                shared.bytes_out.fetch_add(count as u64, Relaxed);
                batch.out.advance(count);
                sent += count;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                batch.out.compact();
                batch.unsent = batch.out.len_bytes();
                shared.output_bytes.store(batch.unsent, Relaxed);
                if batch.unsent <= held_max {
                    return Ok(());
                }
                let blocks = session.parser.blocks_memory_bytes();
                let bytes = batch.input_memory_bytes() + blocks;
                shared.buffer_bytes.store(bytes, Relaxed);
                note_memory(session);
                let has_input = poll_fn(|cx| {
                    shared.waker.register(cx.waker());
                    if shared.is_killed() {
                        return Poll::Ready(Err(End::Closed));
                    }
                    if let Poll::Ready(ready) = stream.poll_write_ready(cx) {
                        return Poll::Ready(ready.map(|()| false).map_err(End::from));
                    }
                    if receives && stream.poll_read_ready(cx).is_ready() {
                        return Poll::Ready(Ok(true));
                    }
                    Poll::Pending
                })
                .await?;
                shared.active_ms.store(clock::unix_ms(), Relaxed);
                if has_input {
                    // What the client is to get, it gets, even if it sends nothing more.
                    receives = receive(stream, session, batch).unwrap_or(false);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    batch.unsent = 0;
    session.connection.shared.output_bytes.store(0, Relaxed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_of_a_connection_is_small() {
        fn size<F>(_: impl FnOnce(Stream, Session) -> F) -> usize {
            size_of::<F>()
        }
        struct Nobody;
        impl Owner for Nobody {
            fn own(&self, _: Handed) {}
            fn stop(&self) {}
        }
        let bytes = size(|stream, session| serve(stream, session, &Nobody));
        assert!(bytes <= 648, "it takes {bytes} bytes");
    }
}
