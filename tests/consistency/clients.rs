//! State that the clients of a run share, and their connections.

use std::net::TcpStream;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::history::NEVER;
use crate::support::Draw;
use crate::wire::{Raw, Value, encode_into};

/// State that all clients of a run share.
pub(crate) struct Shared {
    /// The current port of the server; 0 while there is none, so that no client asks another process that got the port.
    pub(crate) port: AtomicU16,
    /// The end of the round.
    pub(crate) is_over: AtomicBool,
    pub(crate) clock: Instant,
    /// A client gives up an answer after this time.
    pub(crate) patience: Duration,
    /// Whether each transaction appends: a server that was replaced may go on showing what it has.
    pub(crate) always_appends: bool,
    /// Whether the server has what only basalt has: LOCK, LGET, and of Redis 8.4 SET IFEQ.
    pub(crate) is_ours: bool,
    /// Whether the fault puts another server in the place of this one, with another port, when it is surely dead.
    pub(crate) replaces_server: bool,
    /// Whether leases are in the run: they do not outlive a server.
    pub(crate) has_leases: bool,
    next_element: AtomicU64,
    next_key: AtomicU64,
}

impl Shared {
    pub(crate) fn new(port: u16, is_ours: bool) -> Shared {
        Shared {
            port: AtomicU16::new(port),
            is_over: AtomicBool::new(false),
            clock: Instant::now(),
            patience: Duration::from_secs(20),
            always_appends: false,
            is_ours,
            replaces_server: false,
            has_leases: true,
            next_element: AtomicU64::new(1),
            next_key: AtomicU64::new(1),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }

    pub(crate) fn new_element(&self) -> u64 {
        self.next_element.fetch_add(1, SeqCst)
    }

    /// Waits until a request to this port that got no answer can have no effect any more, and returns when that was.
    pub(crate) fn settled(&self, port: u16) -> u64 {
        while self.replaces_server && !self.is_over() {
            let now = self.port.load(SeqCst);
            if now != 0 && now != port {
                return self.now();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        NEVER
    }

    /// Returns the number of a key that was never used.
    pub(crate) fn new_key(&self) -> u64 {
        self.next_key.fetch_add(1, SeqCst)
    }
}

/// Keys in use: each is replaced by a new one after so many uses, so that what is read stays short.
pub(crate) struct Pool {
    keys: Vec<(AtomicU64, AtomicU64)>,
    uses_max: u64,
}

impl Pool {
    pub(crate) fn new(shared: &Shared, size: usize, uses_max: u64) -> Pool {
        let key = |_| (AtomicU64::new(shared.new_key()), AtomicU64::new(0));
        Pool {
            keys: (0..size).map(key).collect(),
            uses_max,
        }
    }

    /// Returns a key, which is used up by `by`.
    pub(crate) fn draw(&self, shared: &Shared, draw: &mut Draw, by: u64) -> u64 {
        let (key, uses) = &self.keys[draw.below(self.keys.len())];
        let number = key.load(SeqCst);
        if uses.fetch_add(by, SeqCst) + by >= self.uses_max {
            let next = shared.new_key();
            if key.compare_exchange(number, next, SeqCst, SeqCst).is_ok() {
                uses.store(0, SeqCst);
            }
        }
        number
    }
}

/// A command: its words.
pub(crate) type Command = Vec<String>;

pub(crate) fn command<'w>(words: impl IntoIterator<Item = &'w str>) -> Command {
    words.into_iter().map(str::to_owned).collect()
}

/// A client's connection, which is opened again where the server is.
pub(crate) struct Connection<'s> {
    shared: &'s Shared,
    raw: Option<(u16, Raw)>,
}

impl<'s> Connection<'s> {
    pub(crate) fn new(shared: &'s Shared) -> Connection<'s> {
        Connection { shared, raw: None }
    }

    /// Opens the connection if it is closed, or leads to a server that is not the one any more. False if there is none
    /// now.
    pub(crate) fn is_open(&mut self) -> bool {
        let port = self.shared.port.load(SeqCst);
        if port == 0 {
            self.close();
            std::thread::sleep(Duration::from_millis(1));
            return false;
        }
        if self.raw.as_ref().is_some_and(|(known, _)| *known == port) {
            return true;
        }
        let patience = Some(self.shared.patience);
        let raw = TcpStream::connect(("127.0.0.1", port)).and_then(Raw::over);
        let raw = raw.and_then(|raw| {
            raw.stream().set_read_timeout(patience)?;
            Ok((port, raw))
        });
        self.raw = raw.ok();
        if self.raw.is_none() {
            std::thread::sleep(Duration::from_millis(3));
        }
        self.raw.is_some()
    }

    /// Returns the port of the server that it leads to, or 0.
    pub(crate) fn port(&self) -> u16 {
        self.raw.as_ref().map_or(0, |(port, _)| *port)
    }

    pub(crate) fn close(&mut self) {
        self.raw = None;
    }

    /// Sends commands in one write; returns each reply with the time it came, as far as they came. The connection is
    /// closed if one is missing.
    pub(crate) fn exchange(&mut self, commands: &[Command]) -> Vec<(u64, Value)> {
        let Some((_, raw)) = &mut self.raw else {
            return Vec::new();
        };
        let mut bytes = Vec::new();
        for command in commands {
            encode_into(&mut bytes, command);
        }
        raw.send_unchecked(&bytes);
        let mut replies = Vec::new();
        for _ in commands {
            match raw.try_read() {
                Ok(reply) => replies.push((self.shared.now(), reply)),
                Err(_) => {
                    self.close();
                    break;
                }
            }
        }
        replies
    }
}

/// Errors that say that the command has had no effect, by how they begin.
const REFUSALS: [&str; 13] = [
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "EXECABORT",
    "OOM",
    "NOREPLICAS Not enough",
    "MISCONF",
    "BUSY",
    "NOSCRIPT",
    "CLUSTERDOWN",
    "MOVED",
    "NOPERM",
    "ERR Function not found",
];

/// True if a reply says that the command has had no effect.
pub(crate) fn is_refusal(reply: &Value) -> bool {
    let Value::Error(text) = reply else {
        return false;
    };
    REFUSALS
        .iter()
        .any(|start| text.starts_with(start.as_bytes()))
}

/// True if a server says that it is not the one to ask now.
pub(crate) fn is_elsewhere(reply: &Value) -> bool {
    let starts = [
        "READONLY",
        "LOADING",
        "MASTERDOWN",
        "NOREPLICAS",
        "EXECABORT",
    ];
    match reply {
        Value::Error(text) => starts
            .iter()
            .any(|start| text.starts_with(start.as_bytes())),
        _ => false,
    }
}
