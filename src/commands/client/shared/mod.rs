//! A connection as other threads see it: for CLIENT LIST and the metrics, and to send data to the connection or close
//! it.
//!
//! A connection writes its own figures with relaxed stores. Other threads read these figures, write into the
//! connection's mailbox, or ask it to close by setting a flag and waking its task.

pub mod mailbox;
pub mod maintenance;
pub mod tracking;

use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};

use atomic_waker::AtomicWaker;
use parking_lot::Mutex;

use super::announced::Announced;
use super::memory::{CLIENT_MEMORY, CountedBytes, UNAUTHENTICATED};
use crate::acl::Handle;
use basalt_core::base::counter::Counter;
use mailbox::{Mailbox, Topic};

/// What is at the other end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Peer {
    /// A client, which is neither a replica nor the primary.
    #[default]
    Client,
    /// A replica of this server.
    Replica,
    /// The primary of this server.
    Primary,
}

/// Texts that few clients set; boxed so that the others do not use memory for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// The name set by CLIENT SETNAME.
    pub name: Vec<u8>,
    /// The library name set by CLIENT SETINFO LIB-NAME.
    pub lib_name: Vec<u8>,
    /// The library version set by CLIENT SETINFO LIB-VER.
    pub lib_ver: Vec<u8>,
    /// The address and capabilities that a replica announced by REPLCONF.
    pub announced: Option<Box<Announced>>,
}

impl Labels {
    fn memory_bytes(&self) -> usize {
        let texts = [&self.name, &self.lib_name, &self.lib_ver];
        size_of::<Labels>() + texts.map(Vec::capacity).iter().sum::<usize>()
    }
}

/// The settings of a connection that a rollback of a transaction restores.
#[derive(Clone, Debug)]
pub struct Settings {
    labels: Labels,
    no_evict: bool,
    no_touch: bool,
    reads_here: bool,
}

/// The reason why a blocked request ended without what it waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unblocked {
    /// The timeout passed, or CLIENT UNBLOCK … TIMEOUT was used.
    TimedOut,
    /// CLIENT UNBLOCK … ERROR was used.
    WithError,
    /// The server became a replica, on which no client may wait.
    RoleChanged,
    /// Another node of the cluster owns the slot of the key by now, or the cluster is down.
    Redirected,
}

/// Identifies a wait: a connection waits many times, and the end of one wait must not end the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitNumber(u64);

/// The state of a connection's wait, see [`Shared::wait_state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitState {
    /// The connection does not wait.
    Running,
    /// The connection's request waits.
    Blocked,
    /// A thread runs the connection's request again, with a shard locked.
    Serving,
    /// Like [`WaitState::Serving`], and a key of another shard has changed meanwhile.
    Missed,
    /// The request is being sent to all shards that it needs, to run again with these locked.
    Called,
    /// The reply is ready.
    Served,
    /// The wait ended without a result.
    Ended(Unblocked),
}

impl WaitState {
    fn bits(self) -> u64 {
        match self {
            WaitState::Running => 0,
            WaitState::Blocked => 1,
            WaitState::Serving => 2,
            WaitState::Called => 3,
            WaitState::Served => 4,
            WaitState::Ended(Unblocked::TimedOut) => 5,
            WaitState::Ended(Unblocked::WithError) => 6,
            WaitState::Missed => 7,
            WaitState::Ended(Unblocked::RoleChanged) => 8,
            WaitState::Ended(Unblocked::Redirected) => 9,
        }
    }

    fn of(bits: u64) -> WaitState {
        match bits & WAIT_STATE {
            0 => WaitState::Running,
            1 => WaitState::Blocked,
            2 => WaitState::Serving,
            3 => WaitState::Called,
            4 => WaitState::Served,
            5 => WaitState::Ended(Unblocked::TimedOut),
            6 => WaitState::Ended(Unblocked::WithError),
            7 => WaitState::Missed,
            9 => WaitState::Ended(Unblocked::Redirected),
            _ => WaitState::Ended(Unblocked::RoleChanged),
        }
    }
}

/// Bytes of the server's own state of an idle connection, without buffers.
pub const STATE_BYTES: usize = 1024;

/// The bits of `Shared::wait` for the state; the ID of the wait is above them.
const WAIT_STATE: u64 = 15;
const WAIT_STATE_BITS: u32 = 4;

/// A connection as other threads see it.
pub struct Shared {
    /// The ID of CLIENT ID; later connections have larger ones.
    pub id: u64,
    /// Peer address as `ip:port`, or the path of the unix socket with `:0`.
    pub address: Box<str>,
    /// The server's own address of the connection, as `ip:port`.
    pub local_address: Box<str>,
    /// File descriptor, as CLIENT LIST shows it.
    fd: AtomicI32,
    /// Unix time of the connect, in milliseconds.
    pub created_ms: u64,
    /// Unix time of the last request, in milliseconds.
    pub active_ms: AtomicU64,
    /// Index of the selected database.
    pub db: AtomicU32,
    /// Protocol version: 2 or 3.
    pub resp: AtomicU8,
    /// Registry ID of the last command received, even if it waits or was refused; the maximum value if there is no
    /// such command.
    pub last_command: AtomicU16,
    peer: AtomicU8,
    /// Bytes of unprocessed input.
    pub query_bytes: AtomicUsize,
    /// Size of the buffer for input, unprocessed or not.
    pub buffer_bytes: AtomicUsize,
    /// Bytes of unsent output.
    pub output_bytes: AtomicUsize,
    /// Bytes of a transaction that is being queued, and of the watched keys.
    pub queued_bytes: AtomicUsize,
    /// Number of commands queued after MULTI; -1 outside of a transaction.
    pub queued: AtomicI32,
    /// Number of watched keys.
    pub watched: AtomicUsize,
    /// The memory reported for `maxmemory-clients`.
    pub(super) counted: CountedBytes,
    /// Bytes received; written only by the task that owns the connection.
    pub bytes_in: Counter,
    /// Bytes sent; written only by the task that owns the connection.
    pub bytes_out: Counter,
    /// Number of commands run, including those in transactions and scripts.
    pub commands: AtomicU64,
    /// Whether the client is exempt from `maxmemory-clients` (CLIENT NO-EVICT).
    pub no_evict: AtomicBool,
    /// See [`Shared::memory_bytes_beside_buffers`].
    beside_bytes: AtomicUsize,
    /// Whether the connection is counted among those that have yet to authenticate.
    unauthenticated: AtomicBool,
    /// See [`Shared::is_checked`].
    is_checked: AtomicBool,
    /// The user; None: the default user.
    user: Mutex<Option<Arc<Handle>>>,
    /// The log position after the connection's last write.
    pub log_position: AtomicU64,
    /// The log position after everything that data sent to the connection reflect, whether its own writes or those of
    /// others.
    pub log_seen: AtomicU64,
    /// Whether reads leave the access bits unchanged (CLIENT NO-TOUCH).
    pub no_touch: AtomicBool,
    /// Whether reads are allowed on this replica (READONLY).
    pub reads_here: AtomicBool,
    /// Whether the client follows redirections (CLIENT CAPA redirect), which RESET keeps.
    pub takes_redirects: AtomicBool,
    /// See [`Shared::maintenance`].
    maintenance: AtomicU8,
    /// Whether the client connected through the unix socket.
    pub unix_socket: bool,
    labels: Mutex<Option<Box<Labels>>>,
    mailbox: OnceLock<Box<Mailbox>>,
    killed: AtomicBool,
    has_ended: AtomicBool,
    nudged: AtomicBool,
    buffer_requested: AtomicBool,
    sleeping: AtomicBool,
    /// ID and state of the latest wait: a thread that ends the wait, or serves it, must win one CAS on this word.
    wait: AtomicU64,
    /// Waker of the connection's task, for a kill, an unpause or a push.
    pub waker: AtomicWaker,
}

impl Shared {
    /// Records that a command of the connection wrote to the log before the first position (0: wrote nothing), and that
    /// its reply reflects what precedes the second.
    #[cold]
    pub fn note_log(&self, position: u64, seen: u64) {
        // Checking first saves read-only commands an atomic read-modify-write.
        if self.log_position.load(Relaxed) < position {
            self.log_position.fetch_max(position, Relaxed);
        }
        self.see_log(seen);
    }

    /// Records that data sent to the connection reflect what precedes a log position.
    #[inline]
    pub fn see_log(&self, seen: u64) {
        if self.log_seen.load(Relaxed) < seen {
            self.log_seen.fetch_max(seen, Relaxed);
        }
    }

    /// Returns the file descriptor of the socket.
    pub fn fd(&self) -> i32 {
        self.fd.load(Relaxed)
    }

    /// Records that the socket has another file descriptor.
    pub fn set_fd(&self, fd: i32) {
        self.fd.store(fd, Relaxed);
    }

    /// Creates the state of a new connection.
    pub fn new(
        id: u64,
        address: String,
        local_address: String,
        fd: i32,
        unix_socket: bool,
        now_ms: u64,
    ) -> Shared {
        Shared {
            id,
            address: address.into_boxed_str(),
            local_address: local_address.into_boxed_str(),
            fd: AtomicI32::new(fd),
            created_ms: now_ms,
            active_ms: AtomicU64::new(now_ms),
            db: AtomicU32::new(0),
            resp: AtomicU8::new(2),
            log_position: AtomicU64::new(0),
            log_seen: AtomicU64::new(0),
            last_command: AtomicU16::new(u16::MAX),
            peer: AtomicU8::new(Peer::Client as u8),
            query_bytes: AtomicUsize::new(0),
            buffer_bytes: AtomicUsize::new(0),
            output_bytes: AtomicUsize::new(0),
            queued_bytes: AtomicUsize::new(0),
            queued: AtomicI32::new(-1),
            watched: AtomicUsize::new(0),
            counted: CountedBytes::new(),
            beside_bytes: AtomicUsize::new(STATE_BYTES),
            bytes_in: Counter::new(),
            bytes_out: Counter::new(),
            commands: AtomicU64::new(0),
            no_evict: AtomicBool::new(false),
            unauthenticated: AtomicBool::new(false),
            is_checked: AtomicBool::new(false),
            user: Mutex::new(None),
            no_touch: AtomicBool::new(false),
            reads_here: AtomicBool::new(false),
            takes_redirects: AtomicBool::new(false),
            maintenance: AtomicU8::new(0),
            unix_socket,
            labels: Mutex::new(None),
            mailbox: OnceLock::new(),
            killed: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            nudged: AtomicBool::new(false),
            buffer_requested: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            wait: AtomicU64::new(0),
            waker: AtomicWaker::new(),
        }
    }

    /// Counts commands that have run; to be called only by the connection itself.
    #[inline]
    pub fn count_commands(&self, more: u64) {
        // No other thread writes here, so no atomic read-modify-write is needed.
        self.commands
            .store(self.commands.load(Relaxed) + more, Relaxed);
    }

    /// Sets what is at the other end.
    pub fn set_peer(&self, peer: Peer) {
        self.peer.store(peer as u8, Relaxed);
    }

    /// Returns the peer at the other end.
    pub fn peer(&self) -> Peer {
        match self.peer.load(Relaxed) {
            peer if peer == Peer::Replica as u8 => Peer::Replica,
            peer if peer == Peer::Primary as u8 => Peer::Primary,
            _ => Peer::Client,
        }
    }

    /// Asks the connection to close as soon as possible.
    pub fn kill(&self) {
        self.killed.store(true, Relaxed);
        self.waker.wake();
    }

    /// Like [`Shared::kill`], but the caller must wake the task.
    pub(super) fn condemn(&self) {
        self.killed.store(true, Relaxed);
    }

    /// Marks the connection as ended: data sent to it from now on are lost.
    pub fn leave(&self) {
        self.has_ended.store(true, Release);
    }

    /// Whether the connection has ended, or is about to.
    pub fn is_gone(&self) -> bool {
        self.has_ended.load(Acquire) || self.is_killed()
    }

    /// Returns the bytes of memory that the connection uses.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        let mailbox = self.mailbox().map_or(0, Mailbox::bytes);
        let input = self.query_bytes.load(Relaxed);
        // Output waiting for a replica is the replication stream, which all replicas share.
        let output = match self.peer() {
            Peer::Replica => 0,
            _ => self.output_bytes.load(Relaxed),
        };
        self.memory_bytes_beside_buffers()
            + self.buffer_bytes.load(Relaxed).max(input)
            + output
            + self.queued_bytes.load(Relaxed)
            + mailbox
    }

    /// Returns the bytes that the server keeps for the connection in addition to its buffers and its transaction: its
    /// state, names, subscriptions, tracked prefixes, and the request and the keys of its wait.
    #[inline]
    pub fn memory_bytes_beside_buffers(&self) -> usize {
        self.beside_bytes.load(Relaxed)
    }

    /// Adds to the bytes that the server keeps for the connection.
    pub fn hold(&self, bytes: usize) {
        self.beside_bytes.fetch_add(bytes, Relaxed);
    }

    /// Subtracts from the bytes that the server keeps for the connection; they must have been added before.
    pub fn release(&self, bytes: usize) {
        self.beside_bytes.fetch_sub(bytes, Relaxed);
    }

    /// Reports the connection's current memory, for `maxmemory-clients`.
    #[inline]
    pub fn note_memory(&self) {
        let is_counted = !self.no_evict.load(Relaxed)
            && !self.is_unauthenticated()
            && !self.is_killed()
            && self.peer() == Peer::Client;
        let bytes = if is_counted { self.memory_bytes() } else { 0 };
        CLIENT_MEMORY.note(&self.counted, bytes);
    }

    /// Whether the client has yet to authenticate. The memory of such connections causes no eviction of data and does
    /// not count for `maxmemory-clients`: it is limited for each of them, and so is their number.
    pub fn is_unauthenticated(&self) -> bool {
        self.unauthenticated.load(Relaxed)
    }

    /// Sets whether the client has yet to authenticate.
    pub fn set_unauthenticated(&self, is_unauthenticated: bool) {
        if self.unauthenticated.swap(is_unauthenticated, SeqCst) == is_unauthenticated {
            return;
        }
        match is_unauthenticated {
            true => UNAUTHENTICATED.fetch_add(1, SeqCst),
            false => UNAUTHENTICATED.fetch_sub(1, SeqCst),
        };
        self.note_memory();
    }

    /// Whether requests need a permission check: the client has yet to authenticate, or its user is restricted.
    #[inline]
    pub fn is_checked(&self) -> bool {
        self.is_checked.load(Relaxed)
    }

    /// Returns the user; None: the default user.
    pub fn user(&self) -> Option<Arc<Handle>> {
        self.user.lock().clone()
    }

    /// Sets the user, who has authenticated or need not do so.
    pub fn set_user(&self, user: &Arc<Handle>, is_authenticated: bool) {
        let mut place = self.user.lock();
        *place = Some(Arc::clone(user));
        self.set_unauthenticated(!is_authenticated);
        self.check_for(user);
    }

    /// Applies changed permissions of users. No update is lost when [`Shared::set_user`] runs concurrently: both look
    /// at the current user, one after the other.
    pub fn follow_user(&self, default: &Arc<Handle>) {
        let place = self.user.lock();
        self.check_for(place.as_ref().unwrap_or(default));
    }

    fn check_for(&self, user: &Arc<Handle>) {
        let is_checked = self.is_unauthenticated() || user.is_restricted();
        self.is_checked.store(is_checked, SeqCst);
    }

    /// Whether the connection has a subscription that `may_have` does not permit; `may_have` is called with the name
    /// and whether that is a pattern.
    pub fn has_lost_channels(&self, may_have: impl Fn(&[u8], bool) -> bool) -> bool {
        let Some(mailbox) = self.mailbox() else {
            return false;
        };
        let subscribed = mailbox.subscribed.lock();
        Topic::ALL.iter().any(|topic| {
            let is_pattern = *topic == Topic::Pattern;
            let names = &subscribed[*topic as usize];
            names.iter().any(|name| !may_have(name, is_pattern))
        })
    }

    /// Returns the connection's mailbox; most connections never need one.
    #[inline]
    pub fn mailbox(&self) -> Option<&Mailbox> {
        self.mailbox.get().map(|mailbox| &**mailbox)
    }

    /// Returns the mailbox of the client, creating it if there is none.
    pub fn mailbox_or_new(&self) -> &Mailbox {
        self.mailbox.get_or_init(Box::default)
    }

    /// Asks an idle connection to release its buffer.
    pub fn request_buffer(&self) {
        self.buffer_requested.store(true, Release);
        self.waker.wake();
    }

    /// Whether a release was requested since the last call of this method.
    pub fn take_buffer_request(&self) -> bool {
        // Load first: the flag is on a cache line that other threads read.
        self.buffer_requested.load(Acquire) && self.buffer_requested.swap(false, Acquire)
    }

    /// Makes the connection's task check its wait again if it sleeps. If it does not sleep yet, the request is
    /// remembered.
    pub fn nudge(&self) {
        self.nudged.store(true, Release);
        self.waker.wake();
    }

    /// Returns a waker that nudges the connection.
    pub fn nudging(self: &Arc<Self>) -> Waker {
        struct Nudge(Arc<Shared>);
        impl Wake for Nudge {
            fn wake(self: Arc<Self>) {
                self.0.nudge();
            }
        }
        Waker::from(Arc::new(Nudge(Arc::clone(self))))
    }

    /// Whether the connection was nudged since the last call of this method.
    pub fn take_nudge(&self) -> bool {
        self.nudged.swap(false, Acquire)
    }

    /// Like [`Shared::nudge`], for callers that have a shard locked: the waker is to be woken later.
    pub fn nudge_later(&self) -> Option<Waker> {
        self.nudged.store(true, Release);
        self.waker.take()
    }

    /// Marks the connection as blocked (BLPOP and the like).
    pub fn block(&self) -> WaitNumber {
        let number = (self.wait.load(Relaxed) >> WAIT_STATE_BITS) + 1;
        self.wait.store(
            number << WAIT_STATE_BITS | WaitState::Blocked.bits(),
            Release,
        );
        WaitNumber(number)
    }

    /// Returns the state of the connection's latest wait.
    pub fn wait_state(&self) -> WaitState {
        WaitState::of(self.wait.load(Acquire))
    }

    /// Returns the state of one wait; `Running` if that wait is over.
    pub fn wait_state_of(&self, wait: WaitNumber) -> WaitState {
        let word = self.wait.load(Acquire);
        match word >> WAIT_STATE_BITS == wait.0 {
            true => WaitState::of(word),
            false => WaitState::Running,
        }
    }

    /// Changes the state of one wait. Returns false if it was not in the state `from`.
    pub fn change_wait(&self, wait: WaitNumber, from: WaitState, to: WaitState) -> bool {
        let number = wait.0 << WAIT_STATE_BITS;
        self.wait
            .compare_exchange(number | from.bits(), number | to.bits(), AcqRel, Acquire)
            .is_ok()
    }

    /// Sets whether the connection's task sleeps, for a blocked request or a pause.
    pub fn set_sleeping(&self, sleeping: bool) {
        self.sleeping.store(sleeping, Relaxed);
    }

    /// Whether the connection is blocked, or waits for the end of a pause.
    pub fn is_blocked(&self) -> bool {
        matches!(
            self.wait_state(),
            WaitState::Blocked | WaitState::Serving | WaitState::Missed | WaitState::Called
        ) || self.sleeping.load(Relaxed)
    }

    /// CLIENT UNBLOCK: ends the wait. Returns false if the connection does not wait or its wait had ended before.
    pub fn unblock(&self, how: Unblocked) -> bool {
        let is_first = self.end_wait(how);
        if is_first {
            self.nudge();
        }
        is_first
    }

    /// Like [`Shared::unblock`] for one wait, for callers that have a shard locked: they must wake the returned waker
    /// after unlocking it.
    pub fn unblock_later(&self, wait: WaitNumber, how: Unblocked) -> Option<Waker> {
        use WaitState::{Blocked, Called, Ended, Missed, Serving};
        loop {
            if self.change_wait(wait, Blocked, Ended(how))
                || self.change_wait(wait, Called, Ended(how))
            {
                return self.nudge_later();
            }
            match self.wait_state_of(wait) {
                // A thread with another shard locked checks whether it can serve the wait, which takes some µs.
                Serving | Missed => std::thread::yield_now(),
                Blocked | Called => {}
                _ => return None,
            }
        }
    }

    fn end_wait(&self, how: Unblocked) -> bool {
        loop {
            let word = self.wait.load(Acquire);
            match WaitState::of(word) {
                WaitState::Blocked | WaitState::Called => {
                    let to = word & !WAIT_STATE | WaitState::Ended(how).bits();
                    if self
                        .wait
                        .compare_exchange(word, to, AcqRel, Acquire)
                        .is_ok()
                    {
                        return true;
                    }
                }
                // A thread that never blocks checks whether it can serve the wait, which takes some µs; it may have
                // lost its core.
                WaitState::Serving | WaitState::Missed => std::thread::yield_now(),
                _ => return false,
            }
        }
    }

    /// Returns the reason if the wait ended without a result; to be called only by the connection itself. With
    /// `is_late`, the wait times out unless a thread is serving it just now.
    pub fn unblocked(&self, is_late: bool) -> Option<Unblocked> {
        if is_late {
            self.end_wait(Unblocked::TimedOut);
        }
        let WaitState::Ended(how) = self.wait_state() else {
            return None;
        };
        self.end();
        Some(how)
    }

    /// Ends the wait in any case; to be called only by the connection itself.
    pub fn end(&self) {
        self.wait
            .store(self.wait.load(Relaxed) & !WAIT_STATE, Release);
    }

    /// Whether the peer is on this host: it uses the unix socket or a loopback address.
    pub fn is_local(&self) -> bool {
        self.unix_socket
            || self
                .address
                .parse::<std::net::SocketAddr>()
                .is_ok_and(|address| address.ip().to_canonical().is_loopback())
    }

    /// Whether the connection was asked to close.
    pub fn is_killed(&self) -> bool {
        self.killed.load(Relaxed)
    }

    /// Returns the name and library.
    pub fn labels(&self) -> Labels {
        self.labels.lock().as_deref().cloned().unwrap_or_default()
    }

    /// Changes name or library.
    pub fn set_labels(&self, change: impl FnOnce(&mut Labels)) {
        let mut labels = self.labels.lock();
        let mut new = labels.as_deref().cloned().unwrap_or_default();
        change(&mut new);
        let before = labels.as_deref().map_or(0, Labels::memory_bytes);
        *labels = (new != Labels::default()).then(|| Box::new(new));
        self.hold(labels.as_deref().map_or(0, Labels::memory_bytes));
        self.release(before);
    }

    /// Returns the properties that the client announced as a replica.
    pub fn announced(&self) -> Announced {
        self.labels()
            .announced
            .map(|announced| *announced)
            .unwrap_or_default()
    }

    /// Returns the current settings, to be restored if a transaction is rolled back.
    pub fn settings(&self) -> Settings {
        Settings {
            labels: self.labels(),
            no_evict: self.no_evict.load(Relaxed),
            no_touch: self.no_touch.load(Relaxed),
            reads_here: self.reads_here.load(Relaxed),
        }
    }

    /// Restores earlier settings.
    pub fn restore_settings(&self, before: Settings) {
        self.set_labels(|labels| *labels = before.labels);
        self.no_evict.store(before.no_evict, Relaxed);
        self.no_touch.store(before.no_touch, Relaxed);
        self.reads_here.store(before.reads_here, Relaxed);
    }

    /// RESET: resets name, switches and database to those of a fresh connection.
    pub fn reset(&self) {
        self.set_labels(|labels| labels.name.clear());
        self.db.store(0, Relaxed);
        self.resp.store(2, Relaxed);
        self.no_evict.store(false, Relaxed);
        self.no_touch.store(false, Relaxed);
        self.reads_here.store(false, Relaxed);
    }
}
