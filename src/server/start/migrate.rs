//! Execution of MIGRATE: keys are dumped, sent to another server, and deleted here when the other server has
//! confirmed them.
//!
//! ```text
//! hold the keys ▸ dump them, all at one moment ▸ send ▸ read the replies ▸ delete what arrived ▸ release the keys
//! ```
//!
//! Redis blocks completely during MIGRATE. Here only clients that use one of the keys wait, and no lock is held
//! while waiting for the network. Commands that were already in progress may still change the keys: the shard
//! detects this on deletion, and the key is sent again in its new state, so that no acknowledged write is lost.
//! A key is deleted only if the other server acknowledged its current state.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::net::client::{Client, Timeout};
use crate::shard::QueuedJob;
use crate::shard::job::command::CommandJobOutcome;
use crate::shard::job::task;
use crate::shard::job::{Job, Work};
use crate::state::Service;
use crate::state::migration::Migrator;
use crate::tls::contexts::Contexts;
use basalt_commands::command::host::migration::Migration;
use basalt_core::resp::answer::Answer;
use basalt_core::resp::request::append;
use basalt_engine::migration::{MigratingKey, State, Transfer};
use basalt_engine::watching::Watched;

/// Maximum number of connections kept for the next migration, and how long they are kept.
const LINKS_MAX: usize = 64;
const LINK_KEPT: Duration = Duration::from_secs(10);

/// Number of bytes that must be transferred within one timeout.
const CHUNK_BYTES: usize = 64 * 1024;

/// Maximum number of times that keys are sent again because they changed.
const ROUNDS_MAX: usize = 8;

/// Polling interval for keys held by another migration.
const HELD: Duration = Duration::from_millis(2);

/// Executes migrations; see the module.
pub(super) struct Carrier {
    service: &'static Service,
    runtime: Handle,
    links: Arc<MigrateConnectionCache>,
}

impl Carrier {
    pub(super) fn new(service: &'static Service, runtime: Handle) -> Carrier {
        Carrier {
            service,
            runtime,
            links: Arc::default(),
        }
    }
}

impl Migrator for Carrier {
    fn start(&self, migration: Box<Migration>, mut queued: QueuedJob) {
        let (service, links) = (self.service, Arc::clone(&self.links));
        self.runtime.spawn(async move {
            let Work::Command(reply) = &mut queued.work else {
                unreachable!("only the command MIGRATE starts migrations")
            };
            let stamp = &mut reply.client.stamp;
            match carry(service, &links, &migration, stamp).await {
                Ok(text) => reply.out.simple(text),
                Err(failure) => {
                    reply.ended = CommandJobOutcome::Answered { failed: true };
                    reply.out.error(failure.text());
                }
            }
            let kept = links.count();
            service.telemetry.migrate_links.store(kept, Relaxed);
            Job::answer(queued);
            if links.begin_sweeping() {
                links.sweep(service).await;
            }
        });
    }
}

/// Why a migration failed.
#[derive(Debug)]
enum MigrateError {
    Connecting,
    Writing,
    Reading,
    /// The other server replied with this error.
    Refused(Vec<u8>),
    /// Keys changed faster than they could be sent.
    Restless,
}

impl MigrateError {
    fn text(&self) -> Vec<u8> {
        let text = match self {
            MigrateError::Connecting => "IOERR error or timeout connecting to the client",
            MigrateError::Writing => "IOERR error or timeout writing to target instance",
            MigrateError::Reading => "IOERR error or timeout reading to target instance",
            MigrateError::Restless => {
                "ERR A key kept changing while it was migrated; it is in both instances now"
            }
            MigrateError::Refused(line) => {
                let mut text = b"ERR Target instance replied with error: ".to_vec();
                text.extend_from_slice(line);
                return text;
            }
        };
        text.as_bytes().to_vec()
    }
}

/// Guard that keeps clients from using the keys that are being migrated.
struct KeyHold<'m> {
    service: &'static Service,
    keys: &'m [Box<[u8]>],
}

impl<'m> KeyHold<'m> {
    async fn on(service: &'static Service, keys: &'m [Box<[u8]>]) -> KeyHold<'m> {
        while !service.pause.hold_keys(keys) {
            tokio::time::sleep(HELD).await;
        }
        KeyHold { service, keys }
    }
}

impl Drop for KeyHold<'_> {
    fn drop(&mut self) {
        self.service.pause.release_keys(self.keys);
        self.service.clients.nudge_all();
    }
}

async fn carry(
    service: &'static Service,
    links: &MigrateConnectionCache,
    migration: &Migration,
    stamp: &mut u64,
) -> Result<&'static str, MigrateError> {
    let is_moving = !migration.copies;
    let _hold = match is_moving {
        true => Some(KeyHold::on(service, &migration.keys).await),
        false => None,
    };
    let keys = migration
        .keys
        .iter()
        .map(|key| moving(service, migration, key));
    let config = service.config.load_full();
    let transfer = Transfer::new(
        keys.collect(),
        is_moving,
        migration.replaces,
        config.rdbcompression.compresses_values(),
    );
    let mut transfer = Box::new(transfer.between_nodes(service.router.is_node()));
    for _ in 0..ROUNDS_MAX {
        transfer.collect();
        transfer = run(service, transfer).await;
        if transfer.count(State::Dumped) == 0 {
            return Ok("NOKEY");
        }
        let tls = match config.tls_cluster {
            true => service.tls.current(),
            false => None,
        };
        let sent = send(links, migration, &mut transfer, tls.as_deref()).await;
        if !is_moving {
            return sent.map(|()| "OK");
        }
        transfer.settle();
        transfer = run(service, transfer).await;
        *stamp = transfer.stamp.max(*stamp);
        sent?;
        if transfer.count(State::Wanted) == 0 {
            return Ok("OK");
        }
    }
    Err(MigrateError::Restless)
}

fn moving(service: &Service, migration: &Migration, key: &[u8]) -> MigratingKey {
    let (hash, shard) = service.router.route(key);
    MigratingKey {
        watched: Watched {
            db: migration.db,
            key: key.into(),
            hash,
            shard,
            stamp: 0,
            times: 1,
        },
        state: State::Wanted,
    }
}

/// Runs the next step of a transfer on its shards.
async fn run(service: &'static Service, transfer: Box<Transfer>) -> Box<Transfer> {
    let route = transfer.shards();
    let shared = Arc::new(Mutex::new(transfer));
    let moved = Arc::clone(&shared);
    let ticket = task::send(&service.shards, &route, move |engines, now| {
        moved.lock().run(engines, now);
    });
    poll_fn(|cx| ticket.poll(cx).map(drop)).await;
    match Arc::into_inner(shared) {
        Some(transfer) => transfer.into_inner(),
        None => unreachable!("the task that shared it is gone"),
    }
}

/// Sends the dumped keys and records which of them the other server confirmed.
async fn send(
    links: &MigrateConnectionCache,
    migration: &Migration,
    transfer: &mut Transfer,
    tls: Option<&Contexts>,
) -> Result<(), MigrateError> {
    let mut may_retry = true;
    loop {
        let mut link = match links.take(migration) {
            Some(link) => link,
            None => MigrateConnection::open(migration, tls).await?,
        };
        let mut asked_before = Vec::new();
        let mut before = 0;
        if let Some((user, password)) = &migration.credentials {
            match user {
                Some(user) => append(&mut asked_before, &[b"AUTH".as_slice(), user, password]),
                None => append(&mut asked_before, &[b"AUTH".as_slice(), password]),
            }
            before += 1;
        }
        if link.db != Some(migration.target_db) {
            let db = migration.target_db.to_string();
            append(&mut asked_before, &[b"SELECT".as_slice(), db.as_bytes()]);
            before += 1;
        }
        let timeout = &|| Duration::from_millis(migration.timeout_ms);
        let talk = link.talk(&asked_before, before, timeout, transfer).await;
        let broken = match talk {
            Ok(()) => {
                link.db = Some(migration.target_db);
                links.put(migration, link);
                return Ok(());
            }
            Err(Talk::Refused(line)) => {
                link.db = None;
                links.put(migration, link);
                return Err(MigrateError::Refused(line));
            }
            Err(Talk::RefusedAndBroken(line)) => return Err(MigrateError::Refused(line)),
            Err(Talk::Broken(broken)) => broken,
        };
        // A kept connection may have been closed meanwhile. If no reply arrived over it, retry over a new
        // connection.
        let was_heard = transfer.count(State::Arrived) > 0;
        if !may_retry || broken.is_late || was_heard {
            return Err(match broken.is_writing {
                true => MigrateError::Writing,
                false => MigrateError::Reading,
            });
        }
        may_retry = false;
    }
}

/// Failure of an exchange with the other server.
enum Talk {
    Refused(Vec<u8>),
    RefusedAndBroken(Vec<u8>),
    Broken(MigrateIoError),
}

#[derive(Clone, Copy)]
struct MigrateIoError {
    is_late: bool,
    is_writing: bool,
}

impl MigrateIoError {
    fn new(error: &io::Error, is_writing: bool) -> MigrateIoError {
        MigrateIoError {
            is_late: error.kind() == ErrorKind::TimedOut,
            is_writing,
        }
    }
}

/// A connection to another server.
struct MigrateConnection {
    client: Client,
    /// The database selected at the other server, if known.
    db: Option<i64>,
    used: Instant,
}

impl MigrateConnection {
    async fn open(
        migration: &Migration,
        tls: Option<&Contexts>,
    ) -> Result<MigrateConnection, MigrateError> {
        let port: u16 = migration
            .port
            .parse()
            .map_err(|_| MigrateError::Connecting)?;
        let timeout = &|| Duration::from_millis(migration.timeout_ms);
        let client = Client::connect(&migration.host, port, None, tls, timeout).await;
        Ok(MigrateConnection {
            client: client.map_err(|_| MigrateError::Connecting)?,
            db: None,
            used: Instant::now(),
        })
    }

    /// Sends the requests, and reads a reply for each of them and for each dumped key.
    async fn talk(
        &mut self,
        asked_before: &[u8],
        before: usize,
        timeout: Timeout<'_>,
        transfer: &mut Transfer,
    ) -> Result<(), Talk> {
        for chunk in asked_before
            .chunks(CHUNK_BYTES)
            .chain(transfer.requests.chunks(CHUNK_BYTES))
        {
            let sent = self.client.send(chunk, timeout).await;
            sent.map_err(|error| Talk::Broken(MigrateIoError::new(&error, true)))?;
        }
        let mut refused = None;
        for _ in 0..before {
            let answer = self.client.read_reply(timeout).await;
            let answer =
                answer.map_err(|error| Talk::Broken(MigrateIoError::new(&error, false)))?;
            refused = refused.or(refusal(answer));
        }
        // If authentication or SELECT failed, the keys were not stored in the right database.
        let is_void = refused.is_some();
        for key in &mut transfer.keys {
            if key.state != State::Dumped {
                continue;
            }
            let answer = match self.client.read_reply(timeout).await {
                Ok(answer) => answer,
                Err(error) => {
                    return Err(match refused {
                        Some(line) => Talk::RefusedAndBroken(line),
                        None => Talk::Broken(MigrateIoError::new(&error, false)),
                    });
                }
            };
            match refusal(answer) {
                None if !is_void => key.state = State::Arrived,
                line => refused = refused.or(line),
            }
        }
        match refused {
            Some(line) => Err(Talk::Refused(line)),
            None => Ok(()),
        }
    }
}

/// Returns the text of an error reply; `None` for any other reply.
fn refusal(answer: Answer) -> Option<Vec<u8>> {
    match answer {
        Answer::Error(text) => Some(text),
        _ => None,
    }
}

/// Idle connections kept for the next migration to the same server.
#[derive(Default)]
struct MigrateConnectionCache {
    kept: Mutex<HashMap<(String, String), MigrateConnection>>,
    is_swept: Mutex<bool>,
}

impl MigrateConnectionCache {
    fn count(&self) -> u64 {
        self.kept.lock().len() as u64
    }

    fn take(&self, migration: &Migration) -> Option<MigrateConnection> {
        let target = (migration.host.clone(), migration.port.clone());
        self.kept.lock().remove(&target)
    }

    fn put(&self, migration: &Migration, mut link: MigrateConnection) {
        link.used = Instant::now();
        let target = (migration.host.clone(), migration.port.clone());
        let mut kept = self.kept.lock();
        if kept.len() >= LINKS_MAX
            && let Some(other) = kept.keys().next().cloned()
        {
            kept.remove(&other);
        }
        kept.insert(target, link);
    }

    /// Returns whether the caller must start a task that runs `MigrateConnectionCache::sweep`, because none is running.
    fn begin_sweeping(&self) -> bool {
        !std::mem::replace(&mut *self.is_swept.lock(), true)
    }

    /// Closes connections that have been idle for long, until none is left.
    async fn sweep(&self, service: &Service) {
        loop {
            {
                let mut is_swept = self.is_swept.lock();
                let mut kept = self.kept.lock();
                kept.retain(|_, link| link.used.elapsed() < LINK_KEPT);
                service
                    .telemetry
                    .migrate_links
                    .store(kept.len() as u64, Relaxed);
                if kept.is_empty() {
                    *is_swept = false;
                    return;
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}
