//! Client-side caching (CLIENT TRACKING): the receivers of invalidations, and their delivery.
//!
//! Shards report which keys are invalidated and which clients have read them (`engine::tracking::Invalidations`).
//! Once the shards are released, invalidations are posted after the replies that the client has by then
//! ([`Shared::post`]). Prefixes of broadcast mode are matched here. Only starting and stopping to track may be called
//! with a shard locked, as both take little time.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Included, Unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::RwLock;

use super::channels::{Subscribers, insert, take_out};
use super::{Posting, PubSub};
use crate::client::shared::Shared;
use crate::client::shared::tracking::{Tracking, TrackingOptions};
use basalt_core::resp::reply::{Out, Protocol};
use basalt_engine::tracking::{InvalidatedKey, TrackedCount, Written};

/// The channel of invalidations for RESP2 connections, to which nothing can be pushed.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// The clients with client-side caching.
#[derive(Default)]
pub(super) struct Caches {
    /// Clients by the low half of their IDs, by which shards refer to them.
    clients: RwLock<HashMap<u32, Arc<Shared>>>,
    /// The tracked prefixes of broadcast mode, with the clients that track them.
    prefixes: RwLock<BTreeMap<Box<[u8]>, Subscribers>>,
    client_count: AtomicUsize,
    prefix_count: AtomicUsize,
    pub(super) tracked: Arc<TrackedCount>,
}

impl Caches {
    /// Returns the number of connections that track.
    pub(super) fn client_count(&self) -> usize {
        self.client_count.load(Relaxed)
    }

    /// Returns the number of tracked prefixes.
    pub(super) fn prefix_count(&self) -> usize {
        self.prefix_count.load(Relaxed)
    }
}

/// The content of an invalidation push.
#[derive(Clone, Copy)]
enum Void<'a> {
    Everything,
    /// An array of keys; its encoding is the same in both protocols.
    Keys(&'a [u8]),
}

fn bytes(out: &Out) -> &[u8] {
    out.as_slice().unwrap_or_default()
}

fn write_keys<'k>(out: &mut Out, keys: impl ExactSizeIterator<Item = &'k [u8]>) {
    out.array(keys.len());
    for key in keys {
        out.bulk(key);
    }
}

impl PubSub {
    /// Returns the counter of the keys that all shards together track.
    pub fn tracked_count(&self) -> Arc<TrackedCount> {
        Arc::clone(&self.caches.tracked)
    }

    /// Starts invalidations for a client, to be sent to itself or to another client. The client may already track,
    /// with other options.
    pub fn start_tracking(
        &self,
        client: &Arc<Shared>,
        options: TrackingOptions,
        redirect: Option<Arc<Shared>>,
        prefixes: &[&[u8]],
    ) {
        let tracking = client.tracking_or_new();
        {
            let mut clients = self.caches.clients.write();
            clients.insert(client.id as u32, Arc::clone(client));
            self.caches.client_count.store(clients.len(), Relaxed);
        }
        tracking.set(options.or(TrackingOptions::ON), redirect);
        if !options.any(TrackingOptions::BCAST) {
            return;
        }
        let mut all = self.caches.prefixes.write();
        let every: &[&[u8]] = &[b""];
        for prefix in if prefixes.is_empty() { every } else { prefixes } {
            if client.add_prefix(prefix) {
                insert(all.entry(Box::from(*prefix)).or_default(), client);
            }
        }
        self.note_prefixes(all.len());
    }

    /// Stops invalidations for a client.
    pub fn stop_tracking(&self, client: &Shared) {
        let Some(tracking) = client.tracking() else {
            return;
        };
        if !tracking.options().any(TrackingOptions::ON) {
            return;
        }
        tracking.set(TrackingOptions::OFF, None);
        {
            let mut clients = self.caches.clients.write();
            clients.remove(&(client.id as u32));
            self.caches.client_count.store(clients.len(), Relaxed);
        }
        let prefixes = client.take_prefixes();
        if prefixes.is_empty() {
            return;
        }
        let mut all = self.caches.prefixes.write();
        for prefix in prefixes {
            if let Some(clients) = all.get_mut(&prefix) {
                take_out(clients, client.id);
                if clients.is_empty() {
                    all.remove(&prefix);
                }
            }
        }
        self.note_prefixes(all.len());
    }

    /// Makes shards report written keys only while there are tracked prefixes.
    fn note_prefixes(&self, count: usize) {
        self.caches.prefix_count.store(count, Relaxed);
        self.events.interest.set_all_keys(count > 0);
    }

    /// Sends invalidations that do not depend on readers: of written keys, to clients that track their prefixes, and
    /// of all keys, to all tracking clients.
    pub(super) fn tell_wide(&self, written: &[Written], all: bool, posting: &mut Posting<'_>) {
        if all {
            for client in self.caches.clients.read().values() {
                self.tell(client, Void::Everything, posting);
            }
        }
        if !written.is_empty() {
            self.tell_prefixes(written, posting);
        }
    }

    /// Sends invalidations to the clients that have read the keys.
    pub(super) fn send_invalidations(
        &self,
        invalidated: &[InvalidatedKey],
        posting: &mut Posting<'_>,
    ) {
        if invalidated.is_empty() {
            return;
        }
        let clients = self.caches.clients.read();
        if clients.is_empty() {
            return;
        }
        let mut keys = Out::new(Protocol::Resp2);
        for invalidated in invalidated {
            keys.clear();
            write_keys(&mut keys, [invalidated.key()].into_iter());
            for reader in invalidated.readers() {
                // Readers that are not found are gone, or have stopped tracking.
                let Some(client) = clients.get(&reader) else {
                    continue;
                };
                let options = client.tracking_options();
                let is_own = options.any(TrackingOptions::NOLOOP) && client.id == invalidated.by;
                if options.any(TrackingOptions::ON)
                    && !options.any(TrackingOptions::BCAST)
                    && !is_own
                {
                    self.tell(client, Void::Keys(bytes(&keys)), posting);
                }
            }
        }
    }

    /// Sends invalidations of written keys to clients that track a prefix of them and may read them: one push for
    /// each prefix, with each key once.
    fn tell_prefixes(&self, written: &[Written], posting: &mut Posting<'_>) {
        // If a key was written several times, the last writer counts.
        let by_key: BTreeMap<(&[u8], usize), u64> = written
            .iter()
            .map(|written| ((&*written.key, written.db), written.by))
            .collect();
        for (prefix, clients) in self.caches.prefixes.read().iter() {
            let matching: Vec<((&[u8], usize), u64)> = by_key
                .range((Included((&**prefix, 0)), Unbounded))
                .take_while(|((key, _), _)| key.starts_with(prefix))
                .map(|(key, by)| (*key, *by))
                .collect();
            if matching.is_empty() {
                continue;
            }
            // A push contains keys without their databases, and each name once.
            let mut names: Vec<&[u8]> = matching.iter().map(|((key, _), _)| *key).collect();
            names.dedup();
            let mut all = Out::new(Protocol::Resp2);
            write_keys(&mut all, names.into_iter());
            for client in clients {
                let skips_own = client.tracking_options().any(TrackingOptions::NOLOOP);
                // A user cannot have cached keys that it may not read, and must not learn of them.
                let user = client.user().filter(|_| client.is_checked());
                let user = user.map(|user| user.user());
                if !skips_own && user.is_none() {
                    self.tell(client, Void::Keys(bytes(&all)), posting);
                    continue;
                }
                let mut told: Vec<&[u8]> = matching
                    .iter()
                    .filter(|(_, by)| !skips_own || *by != client.id)
                    .filter(|((key, db), _)| {
                        user.as_ref()
                            .is_none_or(|user| user.reads_key(key, Some(*db)))
                    })
                    .map(|((key, _), _)| *key)
                    .collect();
                told.dedup();
                if !told.is_empty() {
                    let mut some = Out::new(Protocol::Resp2);
                    write_keys(&mut some, told.into_iter());
                    self.tell(client, Void::Keys(bytes(&some)), posting);
                }
            }
        }
    }

    fn tell(&self, client: &Shared, void: Void<'_>, posting: &mut Posting<'_>) {
        let redirect = client.tracking().and_then(Tracking::redirect);
        if let Some(other) = &redirect
            && other.is_gone()
        {
            self.tell_broken(client, other.id, posting);
            return;
        }
        let target = redirect.as_deref().unwrap_or(client);
        let is_redirected = redirect.is_some();
        if !is_redirected && target.resp.load(Relaxed) != Protocol::Resp3.version() {
            return;
        }
        posting.post(target, self.bound_of(target), |out| {
            if out.is_resp3() {
                out.push(2);
                out.bulk(b"invalidate");
            } else if is_redirected && target.subscriptions() > 0 {
                out.push(3);
                out.bulk(b"message");
                out.bulk(CHANNEL);
            } else {
                return;
            }
            match void {
                Void::Everything => out.null(),
                Void::Keys(keys) => out.raw(keys),
            }
        });
    }

    /// Notifies a client that the client that receives its invalidations is gone, so that it can drop its cache.
    fn tell_broken(&self, client: &Shared, gone: u64, posting: &mut Posting<'_>) {
        if let Some(tracking) = client.tracking() {
            tracking.note_broken();
        }
        posting.post(client, self.bound_of(client), |out| {
            if out.is_resp3() {
                out.push(2);
                out.bulk(b"tracking-redir-broken");
                out.integer(gone as i64);
            }
        });
    }
}
