//! Clients that are in: each asks for a small value, and pauses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::process;

/// Number of such clients.
const CLIENTS: usize = 25;

/// Pause between a reply and the next request.
const PAUSE: Duration = Duration::from_millis(2);

/// Niceness of their thread.
const NICENESS: i32 = -15;

/// Number of small values.
const KEYS: usize = 1_000;

/// The clients, and the times of their requests in nanoseconds.
pub(crate) struct Steady {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<u64>>>,
}

/// Returns whether this process may run a thread with the priority of these clients.
pub(crate) fn may_have_priority() -> bool {
    let tried = std::thread::spawn(|| rustix::process::setpriority_process(None, NICENESS).is_ok());
    tried.join().is_ok_and(|is_so| is_so)
}

/// Stores the small values.
pub(crate) fn load(client: &mut process::Client) {
    client.load(KEYS, |index, out| {
        process::encode_into(out, &["SET", &format!("small:{index}"), &"v".repeat(64)]);
    });
}

/// Returns the p99 in milliseconds of clients that nobody disturbs.
pub(crate) fn p99_idle_ms(port: u16, password: Option<&'static str>, quick: bool) -> f64 {
    let steady = Steady::start(port, password);
    std::thread::sleep(Duration::from_millis(if quick { 500 } else { 2_000 }));
    steady.p99_ms()
}

impl Steady {
    pub(crate) fn start(port: u16, password: Option<&'static str>) -> Steady {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let _ = rustix::process::setpriority_process(None, NICENESS);
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let tasks: Vec<_> = (0..CLIENTS)
                    .map(|number| tokio::spawn(ask(port, password, number, Arc::clone(&stopped))))
                    .collect();
                let mut times_ns = Vec::new();
                for task in tasks {
                    times_ns.extend(task.await.expect("a client"));
                }
                times_ns
            })
        });
        Steady {
            stop,
            thread: Some(thread),
        }
    }

    /// Ends the clients, and returns the time in milliseconds within which 99 of 100 requests were answered.
    pub(crate) fn p99_ms(mut self) -> f64 {
        self.stop.store(true, Relaxed);
        let thread = self.thread.take().expect("it runs once");
        let mut times_ns = thread.join().expect("the clients");
        times_ns.sort_unstable();
        let at = times_ns.len() * 99 / 100;
        times_ns.get(at).map_or(f64::NAN, |ns| *ns as f64 / 1e6)
    }
}

/// One client, until it is told to stop. Returns the times of its requests.
async fn ask(
    port: u16,
    password: Option<&'static str>,
    number: usize,
    stop: Arc<AtomicBool>,
) -> Vec<u64> {
    let mut socket = TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("connect");
    socket.set_nodelay(true).expect("a socket");
    let mut buffer = [0; 256];
    if let Some(password) = password {
        let mut bytes = Vec::new();
        process::encode_into(&mut bytes, &["AUTH", password]);
        socket.write_all(&bytes).await.expect("send");
        let count = socket.read(&mut buffer).await.expect("a reply");
        assert!(buffer[..count].starts_with(b"+OK"), "it signs in");
    }
    let mut times_ns = Vec::new();
    let mut key = number;
    while !stop.load(Relaxed) {
        tokio::time::sleep(PAUSE).await;
        key = (key + 7) % KEYS;
        let mut bytes = Vec::new();
        process::encode_into(&mut bytes, &["GET", &format!("small:{key}")]);
        let sent = Instant::now();
        socket.write_all(&bytes).await.expect("send");
        let count = socket.read(&mut buffer).await.expect("a reply");
        assert!(buffer[..count].starts_with(b"$64"), "a small value");
        times_ns.push(sent.elapsed().as_nanos() as u64);
    }
    times_ns
}
