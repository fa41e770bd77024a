//! Connections to other nodes: what waits to be sent over each, and the task that reads and writes.
//!
//! A link lives as long as its task, and the other way round. What is to be sent waits in a queue with a bound:
//! `cluster-link-sendbuf-limit`, looked at with each tick as in Redis, and a bound of its own that is never passed.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Notify;

use super::Bus;
use crate::cluster::node_id::NodeId;
use crate::cluster::output::LinkId;
use crate::cluster::wire::reader::Reader;
use crate::net::listener;
use crate::net::stream::Stream;
use crate::telemetry::log;
use crate::tls::handshake;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// Bytes that wait for one link at most, where the configuration sets no limit.
const QUEUE_BYTES_MAX: usize = 1 << 30;
/// Bytes that a queue takes beside its packets, and for each of them.
const QUEUE_BYTES: usize = size_of::<Queue>();
const PACKET_BYTES: usize = size_of::<Bytes>();
/// How long a connection may take to come about, at least.
const CONNECT_TIME_MIN: Duration = Duration::from_secs(1);
/// Node timeouts that a node may be silent on a link that it has opened. It pings over it at least twice in each.
const SILENT_TIMEOUTS: u32 = 4;
/// How long a node may be silent in any case.
const SILENT_MIN: Duration = Duration::from_secs(60);

/// What waits to be sent over a link.
#[derive(Default)]
pub(super) struct Queue {
    packets: Mutex<VecDeque<Bytes>>,
    /// Bytes of it all.
    bytes: AtomicUsize,
    wake: Notify,
    is_closed: AtomicBool,
    closed: Notify,
}

impl Queue {
    /// Memory that it takes, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        QUEUE_BYTES + self.bytes.load(Relaxed)
    }

    fn is_empty(&self) -> bool {
        self.packets.lock().is_empty()
    }

    /// Adds a packet; false if there is no room.
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

    /// Waits for the first packet. It stays where it is, so that its memory counts until it is sent.
    async fn first(&self) -> Bytes {
        loop {
            if let Some(packet) = self.packets.lock().front() {
                return packet.clone();
            }
            self.wake.notified().await;
        }
    }

    /// Has the task of the link end.
    fn close(&self) {
        self.is_closed.store(true, Relaxed);
        self.closed.notify_one();
    }

    async fn until_closed(&self) {
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

/// A link, as those see it who do not run it.
struct Link {
    queue: Arc<Queue>,
    is_open: bool,
}

/// What one link's figures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkFigures {
    pub(super) is_open: bool,
    pub(super) has_waiting: bool,
    pub(super) memory_bytes: usize,
}

/// Bytes that went over all links.
#[derive(Default)]
pub(super) struct Volume {
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
}

/// All links, by their numbers.
#[derive(Default)]
pub(super) struct Links(BTreeMap<LinkId, Link>);

impl Links {
    /// Adds a link, which is open or to be opened; what it sends goes through the queue.
    pub(super) fn add(&mut self, id: LinkId, is_open: bool) -> Arc<Queue> {
        let queue = Arc::<Queue>::default();
        let link = Link {
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

    /// Whether there is an open link of this number.
    pub(super) fn is_open(&self, id: LinkId) -> bool {
        self.0.get(&id).is_some_and(|link| link.is_open)
    }

    /// Has a packet sent; false if there is no room for it, and true if there is no such link.
    pub(super) fn send(&self, id: LinkId, packet: Bytes) -> bool {
        match self.0.get(&id) {
            Some(link) => link.queue.push(packet),
            None => true,
        }
    }

    /// Forgets a link, and ends its task, which may be the one that runs this.
    pub(super) fn close(&mut self, id: LinkId) {
        if let Some(link) = self.0.remove(&id) {
            link.queue.close();
        }
    }

    /// Forgets a link whose task has ended.
    pub(super) fn forget(&mut self, id: LinkId) -> bool {
        self.0.remove(&id).is_some()
    }

    /// Whether a packet waits to be sent over an open link.
    pub(super) fn has_waiting(&self) -> bool {
        let mut open = self.0.values().filter(|link| link.is_open);
        open.any(|link| !link.queue.is_empty())
    }

    /// All links with their figures.
    pub(super) fn all(&self) -> impl Iterator<Item = (LinkId, LinkFigures)> {
        self.0.iter().map(|(id, link)| {
            let figures = LinkFigures {
                is_open: link.is_open,
                has_waiting: !link.queue.is_empty(),
                memory_bytes: link.queue.memory_bytes(),
            };
            (*id, figures)
        })
    }
}

/// Connects to a node, and serves the link until it ends.
pub(super) async fn connect(
    bus: &'static Bus,
    id: LinkId,
    (ip, port): (String, u16),
    queue: Arc<Queue>,
) {
    let patience = bus.node_timeout().max(CONNECT_TIME_MIN);
    let opened = tokio::select! {
        opened = tokio::time::timeout(patience, open(bus, &ip, port)) => opened,
        () = queue.until_closed() => return,
    };
    let opened = opened.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()));
    match opened {
        Ok((stream, peer, local)) => {
            bus.opened(id, &ip_of(peer), &ip_of(local));
            serve(bus, id, stream, queue, peer).await;
        }
        Err(error) => {
            tracing::debug!("Unable to connect to Cluster Node [{ip}]:{port}: {error}");
            bus.ended(id);
        }
    }
}

pub(super) async fn open(
    bus: &Bus,
    ip: &str,
    port: u16,
) -> io::Result<(Stream, SocketAddr, SocketAddr)> {
    let config = bus.service.config.load_full();
    let from = config.bind_source_addr.parse::<IpAddr>().ok();
    let socket = match ip.parse::<IpAddr>() {
        Ok(ip) => connect_to((ip, port).into(), from).await?,
        // An announced address may be a name.
        Err(_) => {
            let mut found = tokio::net::lookup_host((ip, port)).await?;
            let address = found.next().ok_or(ErrorKind::NotFound)?;
            connect_to(address, from).await?
        }
    };
    let (peer, local) = (socket.peer_addr()?, socket.local_addr()?);
    let _ = listener::prepare(&socket, bus.keepalive_s());
    let stream = match config.tls_cluster {
        false => Stream::Tcp(socket),
        true => {
            let contexts = bus.service.tls.current().ok_or(ErrorKind::NotConnected)?;
            let shaken = handshake::connect(socket, ip, &contexts).await;
            Stream::Tls(Box::new(shaken.map_err(io::Error::other)?))
        }
    };
    Ok((stream, peer, local))
}

async fn connect_to(address: SocketAddr, from: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if let Some(from) = from.filter(|from| from.is_ipv4() == address.is_ipv4()) {
        socket.bind((from, 0).into())?;
    }
    socket.connect(address).await
}

/// An address without its port, as other nodes are told it.
pub(super) fn ip_of(address: SocketAddr) -> String {
    address.ip().to_canonical().to_string()
}

/// Reads and writes until the link ends.
pub(super) async fn serve(
    bus: &'static Bus,
    id: LinkId,
    stream: Stream,
    queue: Arc<Queue>,
    peer: SocketAddr,
) {
    let (reading, writing) = tokio::io::split(stream);
    let why = tokio::select! {
        why = read(bus, id, reading, peer) => why,
        why = write(bus, writing, &queue) => why,
        () = queue.until_closed() => return,
    };
    tracing::debug!("Link with the cluster node at {peer} ended: {why}");
    bus.ended(id);
}

async fn read(
    bus: &'static Bus,
    id: LinkId,
    mut stream: ReadHalf<Stream>,
    peer: SocketAddr,
) -> String {
    let mut reader = Reader::default();
    let mut bytes = vec![0; READ_BYTES];
    let mut packets = Vec::new();
    loop {
        let silence = (bus.node_timeout() * SILENT_TIMEOUTS).max(SILENT_MIN);
        let count = match tokio::time::timeout(silence, stream.read(&mut bytes)).await {
            Err(_) => return "it is silent".to_owned(),
            Ok(Err(error)) => return error.to_string(),
            Ok(Ok(0)) => return "closed".to_owned(),
            Ok(Ok(count)) => count,
        };
        bus.awake().await;
        bus.volume.received.fetch_add(count as u64, Relaxed);
        let map = bus.map();
        let is_known = |name: &NodeId| map.find(name.as_bytes()).is_some();
        let fed = reader.feed(&bytes[..count], is_known, |packet| packets.push(packet));
        for packet in packets.drain(..) {
            if !bus.receive(id, packet, peer) {
                return "closed here".to_owned();
            }
        }
        if let Err(broken) = fed {
            log::warn_seldom(
                "cluster-bus",
                format_args!(
                    "Bad message length or signature received on the Cluster bus from {peer}: {broken}"
                ),
            );
            return broken.to_string();
        }
    }
}

async fn write(bus: &Bus, mut stream: WriteHalf<Stream>, queue: &Queue) -> String {
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_counts_what_waits_and_has_a_bound() {
        let queue = Queue::default();
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
