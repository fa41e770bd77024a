//! Servers that can be killed, paused and made slow, each with its own port for as long as the test lasts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::support::Draw;
use crate::support::{Options, Server};

/// One instance.
pub(crate) struct Node {
    port: u16,
    options: Options,
    server: Option<Server>,
    is_paused: bool,
}

impl Node {
    /// Starts an instance; the number determines threads and shards.
    pub(crate) fn start(number: usize) -> Node {
        let port = quiet_port(number);
        let (threads, shards) = [(1, 1), (4, 64), (1, 64), (4, 1), (2, 8)][number % 5];
        let options = Options::shards(shards).threads(threads).port(port);
        let server = Server::start(&options);
        Node {
            port,
            options,
            server: Some(server),
            is_paused: false,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// SIGKILL. The process is gone when this returns.
    pub(crate) fn kill(&mut self) {
        self.server = None;
        self.is_paused = false;
    }

    /// Starts a new process, without the data of the one before.
    pub(crate) fn restart(&mut self) {
        if self.server.is_none() {
            self.server = Some(Server::start(&self.options));
        }
    }

    /// SIGSTOP: it neither answers nor refuses, and the kernel goes on receiving for it.
    pub(crate) fn pause(&mut self) {
        self.signal(Signal::STOP);
        self.is_paused = true;
    }

    /// SIGCONT: it runs the requests sent meanwhile, though no client waits for them any more.
    pub(crate) fn resume(&mut self) {
        self.signal(Signal::CONT);
        self.is_paused = false;
    }

    fn signal(&self, signal: Signal) {
        let Some(server) = &self.server else {
            return;
        };
        let pid = i32::try_from(server.pid()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process"), signal).expect("a signal");
    }

    /// Returns the value of a key here, bypassing every proxy.
    pub(crate) fn value(&self, key: &str) -> Option<Vec<u8>> {
        let server = self.server.as_ref().expect("a node that runs");
        let reply = server.raw().call(&format!("GET {key}"));
        (!reply.is_nil()).then(|| reply.bytes().to_vec())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.is_paused {
            self.resume();
        }
    }
}

/// Returns a free port below those that the system assigns. While a node is dead its clients go on connecting
/// to its port; among the assigned ones, such an attempt could get the same port for its own end, and connect
/// to itself.
fn quiet_port(number: usize) -> u16 {
    let mut draw = Draw::new(u64::from(std::process::id()) * 100 + number as u64);
    for _ in 0..1_000 {
        let port = 12_000 + draw.below(18_000) as u16;
        if TAKEN.lock().expect("ports").insert(port)
            && std::net::TcpListener::bind(("127.0.0.1", port)).is_ok()
        {
            return port;
        }
    }
    panic!("no free port below 30000");
}

static TAKEN: std::sync::Mutex<std::collections::BTreeSet<u16>> =
    std::sync::Mutex::new(std::collections::BTreeSet::new());

/// A proxy between clients and a node, which delays each piece, both ways.
pub(crate) struct Proxy {
    port: u16,
    delay: Arc<Delay>,
}

/// Delay of a piece in microseconds: at least, and at most.
#[derive(Default)]
struct Delay {
    least_us: AtomicU64,
    most_us: AtomicU64,
}

impl Proxy {
    /// Runs on the current runtime until that ends.
    pub(crate) async fn before(node_port: u16) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let delay = Arc::new(Delay::default());
        tokio::spawn(accept(listener, node_port, Arc::clone(&delay)));
        Proxy { port, delay }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn slow_down(&self, least: Duration, most: Duration) {
        let us = |time: Duration| time.as_micros() as u64;
        self.delay.least_us.store(us(least), Ordering::Relaxed);
        self.delay.most_us.store(us(most), Ordering::Relaxed);
    }
}

async fn accept(listener: TcpListener, node_port: u16, delay: Arc<Delay>) {
    for number in 0.. {
        let Ok((client, _)) = listener.accept().await else {
            return;
        };
        let delay = Arc::clone(&delay);
        tokio::spawn(async move {
            // A dead node: the client sees its connection close.
            let Ok(node) = TcpStream::connect(("127.0.0.1", node_port)).await else {
                return;
            };
            let (from_client, to_client) = client.into_split();
            let (from_node, to_node) = node.into_split();
            let draw = Draw::new(number * 2);
            tokio::spawn(carry(from_client, to_node, Arc::clone(&delay), draw));
            carry(from_node, to_client, delay, Draw::new(number * 2 + 1)).await;
        });
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Arc<Delay>, mut draw: Draw) {
    let mut piece = vec![0; 4096];
    loop {
        let Ok(count @ 1..) = from.read(&mut piece).await else {
            return;
        };
        let least_us = delay.least_us.load(Ordering::Relaxed);
        let most_us = delay.most_us.load(Ordering::Relaxed).max(least_us);
        if most_us > 0 {
            let wait_us = least_us + draw.below((most_us - least_us + 1) as usize) as u64;
            tokio::time::sleep(Duration::from_micros(wait_us)).await;
        }
        if to.write_all(&piece[..count]).await.is_err() {
            return;
        }
    }
}
