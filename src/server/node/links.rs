//! Links: connections to other nodes. Each has a send queue, and a task that reads and writes.
//!
//! A link lives exactly as long as its task. Packets to be sent wait in a bounded queue:
//! `cluster-link-sendbuf-limit` is checked at each tick, as in Redis, and a hard limit (`QUEUE_BYTES_MAX`) is
//! never exceeded.
//!
//! Any client can open a link to this node and claim any name over it, so such links may not increase memory
//! use without bound ([`Inbound`]): all of them together hold a bounded number of bytes, for partially received
//! packets and replies that the peer does not read, and if they exceed that, the link that holds most is
//! closed. Links that this node has opened itself, or over which the peer has shown a certificate, do not
//! count. A silent link holds no buffer.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf};
use tokio::sync::Notify;

use super::Bus;
use crate::net::client::{self, Client};
use crate::net::listener;
use crate::net::stream::ClientSocket;
use crate::telemetry::log;
use basalt_commands::cluster::node_id::NodeId;
use basalt_commands::cluster::output::LinkId;
use basalt_commands::cluster::packet::Packet;
use basalt_commands::cluster::wire::decode::Refused;
use basalt_commands::cluster::wire::reader::{
    ClusterPacketReader, PacketStreamError, UNPROVEN_BYTES_MAX,
};

/// Bytes read at a time.
const READ_BYTES: usize = 64 << 10;
/// Maximum bytes queued for a link, even if the configuration sets no limit.
const QUEUE_BYTES_MAX: usize = 1 << 30;
/// Overhead in bytes of a queue, and (`PACKET_BYTES`) of each of its packets.
const QUEUE_BYTES: usize = size_of::<ClusterLinkQueue>();
const PACKET_BYTES: usize = size_of::<Bytes>();
/// Number of received packets for which a link keeps capacity.
const PACKETS_KEPT: usize = 4;
/// Minimum timeout of connecting.
const CONNECT_TIME_MIN: Duration = Duration::from_secs(1);
/// Number of node timeouts after which a silent link is closed. Its opener pings at least twice per timeout.
const SILENT_TIMEOUTS: u32 = 4;
/// Minimum time after which a silent link is closed.
const SILENT_MIN: Duration = Duration::from_secs(60);

thread_local! {
    /// Read buffer of the thread, from which a link's reader copies the data that it has to keep.
    static READ: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// Maximum bytes of all unproven links together: twice the longest packet that an unproven link may send.
const INBOUND_BYTES_MAX: usize = 2 * UNPROVEN_BYTES_MAX;

/// The peer of a link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ClusterLinkPeer {
    /// A node that this node has connected to, or one that has shown a certificate.
    Proven,
    /// Any client that can reach the port.
    Anybody,
}

/// Total bytes held by unproven links.
#[derive(Default)]
pub(super) struct Inbound(AtomicUsize);

impl Inbound {
    /// Sets the bytes counted for a link to `bytes`; returns whether the total of all unproven links is too
    /// high.
    fn count(&self, queue: &ClusterLinkQueue, bytes: usize) -> bool {
        let before = queue.counted.swap(bytes, Relaxed);
        let all = self.0.fetch_add(bytes.wrapping_sub(before), Relaxed);
        all.wrapping_add(bytes).wrapping_sub(before) > INBOUND_BYTES_MAX
    }
}

/// Memory of a link: packets to be sent, and the beginning of an incoming one.
#[derive(Default)]
pub(super) struct ClusterLinkQueue {
    packets: Mutex<VecDeque<Bytes>>,
    /// Bytes of all packets to be sent.
    bytes: AtomicUsize,
    /// Bytes of a partially received packet.
    begun: AtomicUsize,
    /// Bytes counted for the link in [`Inbound`].
    counted: AtomicUsize,
    wake: Notify,
    is_closed: AtomicBool,
    closed: Notify,
}

impl ClusterLinkQueue {
    /// Returns the memory of the packets to be sent, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        QUEUE_BYTES + self.bytes.load(Relaxed)
    }

    /// Returns the bytes held for sending and receiving.
    fn held_bytes(&self) -> usize {
        self.bytes.load(Relaxed) + self.begun.load(Relaxed)
    }

    fn is_empty(&self) -> bool {
        self.packets.lock().is_empty()
    }

    /// Adds a packet; returns false if the queue is full.
    fn push(&self, packet: Bytes) -> bool {
        let bytes = packet.len() + PACKET_BYTES;
        let before = self.bytes.fetch_add(bytes, Relaxed);
        if before + bytes > QUEUE_BYTES_MAX {
            self.bytes.fetch_sub(bytes, Relaxed);
            return false;
        }
        self.packets.lock().push_back(packet);
        self.wake.notify_one();
        true
    }

    /// Waits for the first packet. It stays in the queue, so that its memory counts until it is sent.
    async fn first(&self) -> Bytes {
        loop {
            if let Some(packet) = self.packets.lock().front() {
                return packet.clone();
            }
            self.wake.notified().await;
        }
    }

    /// Ends the task of the link.
    fn close(&self) {
        self.is_closed.store(true, Relaxed);
        self.closed.notify_one();
    }

    async fn wait_closed(&self) {
        while !self.is_closed.load(Relaxed) {
            self.closed.notified().await;
        }
    }

    fn sent(&self) {
        if let Some(packet) = self.packets.lock().pop_front() {
            self.bytes.fetch_sub(packet.len() + PACKET_BYTES, Relaxed);
        }
    }
}

/// A link, as seen from outside its task.
struct BusLink {
    queue: Arc<ClusterLinkQueue>,
    is_open: bool,
}

/// State of one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkFigures {
    pub(super) is_open: bool,
    pub(super) has_waiting: bool,
    /// Memory of the packets to be sent.
    pub(super) memory_bytes: usize,
    /// Memory of a partially received packet.
    pub(super) begun_bytes: usize,
    /// Bytes counted for the link among the unproven links; 0 for a proven link.
    pub(super) counted_bytes: usize,
}

/// Bytes transferred over all links.
#[derive(Default)]
pub(super) struct Volume {
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
}

/// All links, by their numbers.
#[derive(Default)]
pub(super) struct Links(BTreeMap<LinkId, BusLink>);

impl Links {
    /// Adds a link, open (`is_open`) or still to be opened; returns its send queue.
    pub(super) fn add(&mut self, id: LinkId, is_open: bool) -> Arc<ClusterLinkQueue> {
        let queue = Arc::<ClusterLinkQueue>::default();
        let link = BusLink {
            queue: Arc::clone(&queue),
            is_open,
        };
        self.0.insert(id, link);
        queue
    }

    pub(super) fn note_open(&mut self, id: LinkId) {
        if let Some(link) = self.0.get_mut(&id) {
            link.is_open = true;
        }
    }

    /// True if there is an open link of this number.
    pub(super) fn is_open(&self, id: LinkId) -> bool {
        self.0.get(&id).is_some_and(|link| link.is_open)
    }

    /// Queues a packet; returns false if the queue is full, and true if the link does not exist.
    pub(super) fn send(&self, id: LinkId, packet: Bytes) -> bool {
        match self.0.get(&id) {
            Some(link) => link.queue.push(packet),
            None => true,
        }
    }

    /// Removes a link and ends its task, which may be the calling task.
    pub(super) fn close(&mut self, id: LinkId) {
        if let Some(link) = self.0.remove(&id) {
            link.queue.close();
        }
    }

    /// Stops counting the memory of a link that is about to be closed.
    pub(super) fn discount(&self, id: LinkId, inbound: &Inbound) {
        if let Some(link) = self.0.get(&id) {
            inbound.count(&link.queue, 0);
        }
    }

    /// Removes a link whose task has ended; returns whether the link was still registered.
    pub(super) fn forget(&mut self, id: LinkId) -> bool {
        self.0.remove(&id).is_some()
    }

    /// True if a packet waits to be sent over an open link.
    pub(super) fn has_waiting(&self) -> bool {
        let mut open = self.0.values().filter(|link| link.is_open);
        open.any(|link| !link.queue.is_empty())
    }

    /// Returns all links with their state.
    pub(super) fn all(&self) -> impl Iterator<Item = (LinkId, LinkFigures)> {
        self.0.iter().map(|(id, link)| {
            let figures = LinkFigures {
                is_open: link.is_open,
                has_waiting: !link.queue.is_empty(),
                memory_bytes: link.queue.memory_bytes(),
                begun_bytes: link.queue.begun.load(Relaxed),
                counted_bytes: link.queue.counted.load(Relaxed),
            };
            (*id, figures)
        })
    }
}

/// Connects to a node, and serves the link until it ends.
pub(super) async fn connect(
    bus: &'static Bus,
    id: LinkId,
    ip: String,
    port: u16,
    queue: Arc<ClusterLinkQueue>,
) {
    let patience = bus.node_timeout().max(CONNECT_TIME_MIN);
    let opening = async {
        let client = open(bus, &ip, port).await?;
        Ok::<_, io::Error>((client.addresses()?, client.socket))
    };
    let opened = tokio::select! {
        opened = tokio::time::timeout(patience, opening) => opened,
        () = queue.wait_closed() => return,
    };
    let opened = opened.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()));
    match opened {
        Ok(((peer, local), stream)) => {
            bus.opened(id, &ip_of(peer), &ip_of(local));
            serve(bus, id, stream, queue, peer, ClusterLinkPeer::Proven).await;
        }
        Err(error) => {
            tracing::debug!("Unable to connect to Cluster Node [{ip}]:{port}: {error}");
            bus.ended(id);
        }
    }
}

/// Connects to a node.
pub(super) async fn open(bus: &Bus, ip: &str, port: u16) -> io::Result<Client> {
    let config = bus.service.config.load_full();
    let from = config.bind_source_addr.parse::<IpAddr>().ok();
    let address = match ip.parse::<IpAddr>() {
        Ok(ip) => (ip, port).into(),
        // An announced address may be a host name.
        Err(_) => {
            let mut found = tokio::net::lookup_host((ip, port)).await?;
            found.next().ok_or(ErrorKind::NotFound)?
        }
    };
    let from = from.filter(|from| from.is_ipv4() == address.is_ipv4());
    let socket = client::connect_to(address, from).await?;
    let _ = listener::prepare(&socket, bus.keepalive_s());
    let tls = match config.tls_cluster {
        false => None,
        true => Some(bus.service.tls.current().ok_or(ErrorKind::NotConnected)?),
    };
    Client::over(socket, ip, tls.as_deref()).await
}

/// Returns the IP address of a socket address as text, as announced to other nodes.
pub(super) fn ip_of(address: SocketAddr) -> String {
    address.ip().to_canonical().to_string()
}

/// Reads and writes until the link ends.
pub(super) async fn serve(
    bus: &'static Bus,
    id: LinkId,
    stream: ClientSocket,
    queue: Arc<ClusterLinkQueue>,
    peer: SocketAddr,
    proof: ClusterLinkPeer,
) {
    let (reading, writing) = tokio::io::split(stream);
    let counted = Counted {
        bus,
        queue: &queue,
        counts: proof == ClusterLinkPeer::Anybody,
    };
    let why = tokio::select! {
        why = read(bus, id, reading, peer, &counted) => why,
        why = write(bus, writing, &counted) => why,
        () = queue.wait_closed() => return,
    };
    tracing::debug!("Link with the cluster node at {peer} ended: {why}");
    bus.ended(id);
}

/// Guard that counts the memory of an unproven link until its end.
struct Counted<'q> {
    bus: &'static Bus,
    queue: &'q ClusterLinkQueue,
    counts: bool,
}

impl Counted<'_> {
    /// Updates the count; returns whether all unproven links together hold too much.
    fn count(&self) -> bool {
        let is_open = !self.queue.is_closed.load(Relaxed);
        let counts = self.counts && is_open;
        counts && self.bus.inbound.count(self.queue, self.queue.held_bytes())
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.bus.inbound.count(self.queue, 0);
    }
}

/// Number of bytes read, and the reader's result for them.
type Fed = (usize, Result<(), PacketStreamError>);

/// Reads available data into the thread's buffer and passes it to `feed`, which must copy the data that it
/// keeps.
fn poll_feed(
    cx: &mut Context<'_>,
    stream: &mut ReadHalf<ClientSocket>,
    feed: &mut impl FnMut(&[u8]) -> Result<(), PacketStreamError>,
) -> Poll<io::Result<Fed>> {
    READ.with_borrow_mut(|bytes| {
        let mut read = ReadBuf::new(bytes);
        std::task::ready!(Pin::new(stream).poll_read(cx, &mut read))?;
        let filled = read.filled();
        Poll::Ready(Ok((filled.len(), feed(filled))))
    })
}

async fn read(
    bus: &'static Bus,
    id: LinkId,
    mut stream: ReadHalf<ClientSocket>,
    peer: SocketAddr,
    counted: &Counted<'_>,
) -> String {
    let mut reader = match counted.counts {
        true => ClusterPacketReader::unproven(),
        false => ClusterPacketReader::default(),
    };
    let mut packets: Vec<Result<Packet, Refused>> = Vec::new();
    loop {
        let silence = (bus.node_timeout() * SILENT_TIMEOUTS).max(SILENT_MIN);
        let mut feed = |bytes: &[u8]| {
            let map = bus.map();
            // A packet under this node's own name is never from a known node.
            let is_other = |name: &NodeId| *name != map.me().id;
            let is_known = |name: &NodeId| is_other(name) && map.find(name.as_bytes()).is_some();
            reader.feed(bytes, is_known, |packet| packets.push(packet))
        };
        let fed = poll_fn(|cx| poll_feed(cx, &mut stream, &mut feed));
        let (count, fed) = match tokio::time::timeout(silence, fed).await {
            Err(_) => return "no data received".to_owned(),
            Ok(Err(error)) => return error.to_string(),
            Ok(Ok((0, _))) => return "closed".to_owned(),
            Ok(Ok(fed)) => fed,
        };
        bus.awake().await;
        bus.volume.received.fetch_add(count as u64, Relaxed);
        for packet in packets.drain(..) {
            if !bus.receive(id, packet, peer) {
                return "closed by this node".to_owned();
            }
        }
        packets.shrink_to(PACKETS_KEPT);
        if let Err(broken) = fed {
            log::warn_seldom(
                "cluster-bus",
                format_args!(
                    "Bad message length or signature received on the Cluster bus from {peer}: {broken}"
                ),
            );
            return broken.to_string();
        }
        counted.queue.begun.store(reader.memory_bytes(), Relaxed);
        while counted.count() && bus.free_fullest() {}
    }
}

async fn write(bus: &Bus, mut stream: WriteHalf<ClientSocket>, counted: &Counted<'_>) -> String {
    let queue = counted.queue;
    loop {
        let packet = queue.first().await;
        let written = match stream.write_all(&packet).await {
            Ok(()) => stream.flush().await,
            error => error,
        };
        if let Err(error) = written {
            return error.to_string();
        }
        bus.volume.sent.fetch_add(packet.len() as u64, Relaxed);
        queue.sent();
        counted.count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_counts_what_waits_and_has_a_bound() {
        let queue = ClusterLinkQueue::default();
        let empty = queue.memory_bytes();
        assert!(queue.push(Bytes::from(vec![0; 1000])));
        assert!(queue.push(Bytes::from(vec![0; 500])));
        assert_eq!(queue.memory_bytes(), empty + 1500 + 2 * PACKET_BYTES);
        queue.sent();
        assert_eq!(queue.memory_bytes(), empty + 500 + PACKET_BYTES);
        queue.bytes.store(QUEUE_BYTES_MAX, Relaxed);
        assert!(!queue.push(Bytes::from_static(b"x")));
        assert_eq!(queue.packets.lock().len(), 1);
    }
}
