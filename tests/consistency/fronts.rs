//! Controls: stand-ins between clients and a server, each of which breaks a promise. The judges must notice.

use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::support::Draw;
use crate::wire::{Raw, Value, encode};

/// The promise that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// Commands of a transaction are sent one by one, when EXEC comes.
    SplitsTransactions,
    /// Reads are answered from a copy for a while, which writes do not end.
    AnswersFromOldCopies,
    /// Writes are answered before they are sent.
    AnswersBeforeSending,
    /// A few writes are answered and never sent.
    ForgetsWrites,
    /// All owners of a lock are told the fence of the first.
    RepeatsFences,
    /// A value is stored under a lease that is void.
    FillsWithoutLease,
}

/// Maximum age of a copy.
const COPY_AGE: Duration = Duration::from_millis(15);
/// Time between the reply to a write and the sending of that write.
const DELAY: Duration = Duration::from_millis(5);
/// One write of so many is forgotten.
const FORGOTTEN: usize = 40;

/// A stand-in that listens until it is dropped.
pub(crate) struct Front {
    pub(crate) port: u16,
    is_over: Arc<AtomicBool>,
}

impl Front {
    pub(crate) fn start(server: u16, kind: Break) -> Front {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        std::thread::spawn(move || {
            let memory = Arc::new(Mutex::new(Memory::default()));
            for (number, client) in listener.incoming().enumerate() {
                let Ok(client) = client else { return };
                if over.load(SeqCst) {
                    return;
                }
                let memory = Arc::clone(&memory);
                std::thread::spawn(move || {
                    // Ends with an error when either side is closed.
                    let _ = serve(client, server, kind, &memory, Draw::new(number as u64));
                });
            }
        });
        Front { port, is_over }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// State that all connections of a stand-in share.
#[derive(Default)]
struct Memory {
    copies: HashMap<Vec<u8>, (Instant, Value)>,
    fences: HashMap<Vec<u8>, Value>,
}

type Words = Vec<Vec<u8>>;

fn serve(
    client: TcpStream,
    server: u16,
    kind: Break,
    memory: &Mutex<Memory>,
    mut draw: Draw,
) -> std::io::Result<()> {
    let mut client = Raw::over(client)?;
    let mut upstream = Raw::try_connect(server)?;
    let late = sends_late(server)?;
    // The commands since MULTI.
    let mut queued: Option<Vec<Words>> = None;
    loop {
        let request = client.try_read()?;
        let words: Words = request
            .items()
            .iter()
            .map(|word| word.bytes().to_vec())
            .collect();
        let name = String::from_utf8_lossy(&words[0]).to_uppercase();
        let is_write = matches!(name.as_str(), "SET" | "RPUSH");
        let answer = match (kind, name.as_str()) {
            (Break::SplitsTransactions, "MULTI") => {
                queued = Some(Vec::new());
                Value::Simple(b"OK".to_vec())
            }
            (Break::SplitsTransactions, "EXEC") => {
                let commands = queued.take().unwrap_or_default();
                let answers = commands.iter().map(|words| pass_on(&mut upstream, words));
                Value::Array(answers.collect::<std::io::Result<_>>()?)
            }
            (Break::SplitsTransactions, _) if queued.is_some() => {
                queued.as_mut().expect("a transaction").push(words.clone());
                Value::Simple(b"QUEUED".to_vec())
            }
            (Break::AnswersFromOldCopies, "GET" | "LRANGE") if queued.is_none() => {
                copied(memory, &mut upstream, &words)?
            }
            (Break::AnswersBeforeSending, _) if is_write && queued.is_none() => {
                let _ = late.send(words.clone());
                made_up(&name)
            }
            (Break::ForgetsWrites, _)
                if is_write && queued.is_none() && draw.below(FORGOTTEN) == 0 =>
            {
                made_up(&name)
            }
            (Break::FillsWithoutLease, "LFILL") => {
                let set = [b"SET".to_vec(), words[1].clone(), words[3].clone()];
                pass_on(&mut upstream, &set)?;
                Value::Integer(1)
            }
            _ => {
                // These stand-ins let transactions pass as they are.
                match name.as_str() {
                    "MULTI" => queued = Some(Vec::new()),
                    "EXEC" => queued = None,
                    _ => {}
                }
                pass_on(&mut upstream, &words)?
            }
        };
        let answer = match (kind, answer) {
            (Break::RepeatsFences, Value::Array(items)) if name == "LOCK" => {
                with_first_fence(memory, &words[1], items)
            }
            (_, answer) => answer,
        };
        let mut bytes = Vec::new();
        write_value(&mut bytes, &answer);
        client.send_unchecked(&bytes);
    }
}

fn pass_on(upstream: &mut Raw, words: &[Vec<u8>]) -> std::io::Result<Value> {
    upstream.send_unchecked(&encode(words));
    upstream.try_read()
}

/// The answer to a write that is not there yet.
fn made_up(name: &str) -> Value {
    match name {
        "SET" => Value::Simple(b"OK".to_vec()),
        _ => Value::Integer(1),
    }
}

fn copied(memory: &Mutex<Memory>, upstream: &mut Raw, words: &Words) -> std::io::Result<Value> {
    let known = memory
        .lock()
        .expect("copies")
        .copies
        .get(&words[1])
        .cloned();
    if let Some((made, value)) = known
        && made.elapsed() < COPY_AGE
    {
        return Ok(value);
    }
    let value = pass_on(upstream, words)?;
    let copy = (Instant::now(), value.clone());
    memory
        .lock()
        .expect("copies")
        .copies
        .insert(words[1].clone(), copy);
    Ok(value)
}

fn with_first_fence(memory: &Mutex<Memory>, lock: &[u8], mut items: Vec<Value>) -> Value {
    let mut memory = memory.lock().expect("fences");
    let first = memory
        .fences
        .entry(lock.to_vec())
        .or_insert(items[0].clone());
    items[0] = first.clone();
    Value::Array(items)
}

/// Returns where to put commands that are sent a little later, by a thread of their own.
fn sends_late(server: u16) -> std::io::Result<mpsc::Sender<Words>> {
    let mut upstream = Raw::try_connect(server)?;
    let (sender, receiver) = mpsc::channel::<Words>();
    std::thread::spawn(move || {
        for words in receiver {
            std::thread::sleep(DELAY);
            if pass_on(&mut upstream, &words).is_err() {
                return;
            }
        }
    });
    Ok(sender)
}

/// Writes a reply as RESP2.
fn write_value(bytes: &mut Vec<u8>, value: &Value) {
    let line = |bytes: &mut Vec<u8>, mark: u8, text: &[u8]| {
        bytes.push(mark);
        bytes.extend_from_slice(text);
        bytes.extend_from_slice(b"\r\n");
    };
    match value {
        Value::Simple(text) => line(bytes, b'+', text),
        Value::Error(text) => line(bytes, b'-', text),
        Value::Integer(number) => line(bytes, b':', number.to_string().as_bytes()),
        Value::Bulk(text) => {
            line(bytes, b'$', text.len().to_string().as_bytes());
            bytes.extend_from_slice(text);
            bytes.extend_from_slice(b"\r\n");
        }
        Value::NilBulk => line(bytes, b'$', b"-1"),
        Value::NilArray => line(bytes, b'*', b"-1"),
        Value::Array(items) => {
            line(bytes, b'*', items.len().to_string().as_bytes());
            items.iter().for_each(|item| write_value(bytes, item));
        }
        other => unreachable!("no reply of RESP2: {}", other.show()),
    }
}
