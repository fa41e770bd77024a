//! Redlock as published, on the `redis` crate's asynchronous connections.
//!
//! `rslock` is tested too. But it waits for every instance for the `redis` crate's default, half a second, so
//! that no lock with a short life can be acquired while one instance is paused. The publication asks for a
//! wait that is small against the life of the lock; this client does so, and thus makes many acquisitions
//! under failures.

use std::sync::Arc;
use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::history::Clock;
use crate::storm::Claim;

/// Margin of each life: the drift of clocks, and 2 ms for clocks that count whole ones.
const DRIFT_DIVISOR: u64 = 100;
const DRIFT_LEAST_US: u64 = 2_000;

/// Time after a refusal during which no connection is attempted.
const RECONNECT_PAUSE_US: u64 = 5_000;

/// A lock over several independent instances.
pub(crate) struct Redlock {
    peers: Vec<Arc<Peer>>,
    clock: Clock,
}

/// An instance, as its clients see it.
struct Peer {
    client: redis::Client,
    patience: Duration,
    clock: Clock,
    link: Mutex<Link>,
}

enum Link {
    Up(MultiplexedConnection),
    Down { until_us: u64 },
}

impl Redlock {
    /// `patience` is the time that one instance may take for a request.
    pub(crate) fn new(ports: &[u16], patience: Duration, clock: Clock) -> Redlock {
        let peer = |port: &u16| {
            let url = format!("redis://127.0.0.1:{port}/");
            Arc::new(Peer {
                client: redis::Client::open(url).expect("a client"),
                patience,
                clock,
                link: Mutex::new(Link::Down { until_us: 0 }),
            })
        };
        Redlock {
            peers: ports.iter().map(peer).collect(),
            clock,
        }
    }

    pub(crate) fn quorum(&self) -> usize {
        self.peers.len() / 2 + 1
    }

    /// Makes one attempt: a majority must grant the lock, and part of its life must be left then.
    pub(crate) async fn acquire(
        &self,
        lock: usize,
        key: &str,
        token: &str,
        ttl_ms: u64,
    ) -> Option<Claim> {
        let asked_us = self.clock.us();
        let mut command = redis::cmd("SET");
        command.arg(key).arg(token).arg("NX").arg("PX").arg(ttl_ms);
        let given = self
            .count(&command, self.quorum(), |reply| {
                matches!(reply, redis::Value::Okay)
            })
            .await;
        let drift_us = ttl_ms * 1_000 / DRIFT_DIVISOR + DRIFT_LEAST_US;
        let until_us = asked_us + ttl_ms * 1_000 - drift_us;
        if given >= self.quorum() && self.clock.us() < until_us {
            return Some(Claim {
                lock,
                token: token.to_owned(),
                until_us,
                fence: None,
            });
        }
        self.release(key, token).await;
        None
    }

    /// Sends the release to all, also to those that did not reply: they may have granted the lock. Returns
    /// how many still had it.
    pub(crate) async fn release(&self, key: &str, token: &str) -> usize {
        let mut command = redis::cmd("DELEX");
        command.arg(key).arg("IFEQ").arg(token);
        self.count(&command, self.peers.len(), |reply| {
            matches!(reply, redis::Value::Int(1))
        })
        .await
    }

    /// Sends to all at once; returns as soon as enough agreed, or all have replied or taken too long.
    async fn count(
        &self,
        command: &redis::Cmd,
        enough: usize,
        is_yes: fn(&redis::Value) -> bool,
    ) -> usize {
        let mut asked = JoinSet::new();
        for peer in &self.peers {
            let (peer, command) = (Arc::clone(peer), command.clone());
            asked.spawn(async move { peer.ask(&command).await });
        }
        let mut count = 0;
        while let Some(answer) = asked.join_next().await {
            let answer = answer.expect("no task fails");
            count += usize::from(answer.is_some_and(|reply| is_yes(&reply)));
            if count >= enough {
                break;
            }
        }
        // The others go on: they will run the sent requests anyway.
        asked.detach_all();
        count
    }
}

impl Peer {
    async fn ask(&self, command: &redis::Cmd) -> Option<redis::Value> {
        let mut connection = self.connection().await?;
        let reply = command.query_async(&mut connection).await;
        match reply {
            Ok(reply) => Some(reply),
            Err(error) => {
                if error.is_unrecoverable_error() {
                    *self.link.lock().await = Link::Down { until_us: 0 };
                }
                None
            }
        }
    }

    async fn connection(&self) -> Option<MultiplexedConnection> {
        let mut link = self.link.lock().await;
        match &*link {
            Link::Up(connection) => return Some(connection.clone()),
            Link::Down { until_us } if self.clock.us() < *until_us => return None,
            Link::Down { .. } => {}
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.patience))
            .set_response_timeout(Some(self.patience));
        let made = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await;
        match made {
            Ok(connection) => {
                *link = Link::Up(connection.clone());
                Some(connection)
            }
            Err(_) => {
                let until_us = self.clock.us() + RECONNECT_PAUSE_US;
                *link = Link::Down { until_us };
                None
            }
        }
    }
}
