//! Client-side caching (CLIENT TRACKING): which clients are sent an invalidation, and how.
//!
//! Shards say which keys are invalidated and which clients have read them (`engine::tracking::Invalidations`). Once the
//! shards are released, invalidations are posted behind the replies that the client has by then ([`Shared::post`]).
//! Prefixes of broadcast mode are matched here. Only tracking itself may be begun or ended with a shard in hand, as
//! that takes no time.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Included, Unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::RwLock;

use super::channels::{Subscribers, insert, take_out};
use super::{Posting, PubSub};
use crate::client::shared::Shared;
use crate::client::shared::tracking::{Options, Tracking};
use basalt_core::resp::reply::{Out, Protocol};
use basalt_engine::tracking::{InvalidatedKey, TrackedCount, Written};

/// The channel of invalidations for connections that speak RESP2, to which nothing can be pushed.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// The clients that cache.
#[derive(Default)]
pub(super) struct Caches {
    /// By the low half of their numbers, as shards know them.
    clients: RwLock<HashMap<u32, Arc<Shared>>>,
    /// The clients that hear of all keys with a prefix.
    prefixes: RwLock<BTreeMap<Box<[u8]>, Subscribers>>,
    client_count: AtomicUsize,
    prefix_count: AtomicUsize,
    pub(super) tracked: Arc<TrackedCount>,
}

impl Caches {
    /// Connections that track.
    pub(super) fn client_count(&self) -> usize {
        self.client_count.load(Relaxed)
    }

    /// Prefixes of which somebody hears.
    pub(super) fn prefix_count(&self) -> usize {
        self.prefix_count.load(Relaxed)
    }
}

/// What is void, as it stands in a push.
#[derive(Clone, Copy)]
enum Void<'a> {
    Everything,
    /// An array of keys, the same in both protocols.
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
    /// How many keys all shards remember, counted together.
    pub fn tracked_count(&self) -> Arc<TrackedCount> {
        Arc::clone(&self.caches.tracked)
    }

    /// Has a client be told of changes, or another one in its place. It may do so already, with other options.
    pub fn start_tracking(
        &self,
        client: &Arc<Shared>,
        options: Options,
        redirect: Option<Arc<Shared>>,
        prefixes: &[&[u8]],
    ) {
        let tracking = client.tracking_or_new();
        {
            let mut clients = self.caches.clients.write();
            clients.insert(client.id as u32, Arc::clone(client));
            self.caches.client_count.store(clients.len(), Relaxed);
        }
        tracking.set(options.or(Options::ON), redirect);
        if !options.any(Options::BCAST) {
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

    /// A client is told no more.
    pub fn stop_tracking(&self, client: &Shared) {
        let Some(tracking) = client.tracking() else {
            return;
        };
        if !tracking.options().any(Options::ON) {
            return;
        }
        tracking.set(Options::OFF, None);
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

    /// Shards say which keys were written only while somebody may want to hear of them.
    fn note_prefixes(&self, count: usize) {
        self.caches.prefix_count.store(count, Relaxed);
        self.events.interest.set_all_keys(count > 0);
    }

    /// Tells what is not told key by key: what was written, to clients that hear of prefixes, and that everything is
    /// void.
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
                // Others have gone, or track no more.
                let Some(client) = clients.get(&reader) else {
                    continue;
                };
                let options = client.tracking_options();
                let is_own = options.any(Options::NOLOOP) && client.id == invalidated.by;
                if options.any(Options::ON) && !options.any(Options::BCAST) && !is_own {
                    self.tell(client, Void::Keys(bytes(&keys)), posting);
                }
            }
        }
    }

    /// Tells what was written to clients that hear of its prefix, and may read it: one push for each prefix, with each
    /// key once.
    fn tell_prefixes(&self, written: &[Written], posting: &mut Posting<'_>) {
        // The last writer of a key counts.
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
            // A push names keys and no databases, and each name once.
            let mut names: Vec<&[u8]> = matching.iter().map(|((key, _), _)| *key).collect();
            names.dedup();
            let mut all = Out::new(Protocol::Resp2);
            write_keys(&mut all, names.into_iter());
            for client in clients {
                let skips_own = client.tracking_options().any(Options::NOLOOP);
                // What its user may not read it has not cached, and is not to know of.
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

    /// Tells a client that the client to be told in its place is gone, so that it can drop what it has.
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
