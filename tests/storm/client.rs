//! A connection that knows exactly which replies it must receive: markers between requests reveal at once a
//! missing or an extra reply.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::storm::{Progress, STALLED_AFTER};
use crate::wire::{Raw, Value, encode_into};

/// A request, word by word.
pub(crate) type Words = Vec<String>;

/// The words of a line without quotes.
pub(crate) fn words(line: &str) -> Words {
    line.split(' ').map(str::to_owned).collect()
}

/// Returns an EVAL with its keys and arguments.
pub(crate) fn eval(script: &str, keys: &[String], arguments: &[String]) -> Words {
    let mut words = vec!["EVAL".to_owned(), script.to_owned(), keys.len().to_string()];
    words.extend(keys.iter().chain(arguments).cloned());
    words
}

/// True if a request was refused because a script runs too long: it has not run.
pub(crate) fn is_busy(reply: &Value) -> bool {
    matches!(reply, Value::Error(text) if text.starts_with(b"BUSY ")
        || text.starts_with(b"EXECABORT") && text.windows(5).any(|part| part == b"BUSY "))
}

/// True if a script was killed: it has had no effect.
pub(crate) fn is_killed(reply: &Value) -> bool {
    matches!(reply, Value::Error(_)) && reply.text().contains("killed by user")
}

/// True if the reply means that the request has had no effect.
pub(crate) fn is_void(reply: &Value) -> bool {
    is_busy(reply) || is_killed(reply)
}

/// See the module.
pub(crate) struct Client {
    raw: Raw,
    name: String,
    marks: u64,
    progress: Arc<Progress>,
}

impl Client {
    pub(crate) fn new(port: u16, name: String, progress: Arc<Progress>) -> Client {
        let raw = Raw::connect(port);
        // The watch has noticed by then.
        let patience = Some(2 * STALLED_AFTER);
        raw.stream().set_read_timeout(patience).expect("a time-out");
        Client {
            raw,
            name,
            marks: 0,
            progress,
        }
    }

    pub(crate) fn raw(&mut self) -> &mut Raw {
        &mut self.raw
    }

    /// Sends requests at once and returns their replies in order. A marker follows every fourth, and the
    /// last.
    pub(crate) fn batch(&mut self, requests: &[Words]) -> Vec<Value> {
        let mut bytes = Vec::new();
        let first_mark = self.marks;
        let is_marked = |at: usize| at % 4 == 3 || at + 1 == requests.len();
        for (at, request) in requests.iter().enumerate() {
            encode_into(&mut bytes, request);
            // A mark inside of a transaction would be queued.
            if is_marked(at) && !is_in_transaction(requests, at) {
                self.marks += 1;
                let mark = self.mark(self.marks);
                encode_into(&mut bytes, &["ECHO", &mark]);
            }
        }
        self.raw.send(&bytes);
        let (mut mark, mut is_certain) = (first_mark, true);
        let mut replies = Vec::with_capacity(requests.len());
        for (at, request) in requests.iter().enumerate() {
            replies.push(self.read(&request[0], request.get(1)));
            if is_marked(at) && !is_in_transaction(requests, at) {
                mark += 1;
                is_certain = self.take_mark(mark, request);
            }
        }
        if !is_certain {
            self.finish();
        }
        replies
    }

    pub(crate) fn call(&mut self, request: Words) -> Value {
        let mut replies = self.batch(&[request]);
        replies.pop().expect("one reply")
    }

    /// Sends a request without a marker after it, for callers that must not wait while a script is busy.
    pub(crate) fn call_alone(&mut self, request: &Words) -> Value {
        self.raw.send(&crate::wire::encode(request));
        self.read(&request[0], request.get(1))
    }

    /// Runs a transaction; returns its replies, or `None` if it was refused or a watched key had changed.
    pub(crate) fn transaction(&mut self, commands: &[Words]) -> Option<Vec<Value>> {
        let mut requests = vec![words("MULTI")];
        requests.extend(commands.iter().cloned());
        requests.push(words("EXEC"));
        let mut replies = self.batch(&requests);
        let reply = replies.pop().expect("EXEC");
        self.is_queued(&replies);
        match reply {
            Value::Array(items) => {
                assert_eq!(items.len(), commands.len(), "{}: {items:?}", self.name);
                Some(items)
            }
            reply if reply.is_nil() || is_busy(&reply) => None,
            // A command was refused when it was to be queued, and EXEC found no busy script any more.
            reply if reply.is_error() && replies.iter().any(is_busy) => None,
            reply => panic!("{}: EXEC: {}", self.name, reply.show()),
        }
    }

    fn is_queued(&self, replies: &[Value]) {
        for (at, reply) in replies.iter().enumerate() {
            let expected: &[u8] = if at == 0 { b"OK" } else { b"QUEUED" };
            let is_expected = matches!(reply, Value::Simple(text) if text == expected);
            // MULTI itself is never refused, or the commands after it would run one by one.
            assert!(
                is_expected || at > 0 && is_busy(reply),
                "{}: reply {at} of a transaction: {}",
                self.name,
                reply.show()
            );
        }
    }

    /// Checks that no reply is left over: the reply to a marker that is sent now must be the next one.
    pub(crate) fn finish(&mut self) {
        let began = Instant::now();
        while began.elapsed() < STALLED_AFTER {
            self.marks += 1;
            let mark = self.mark(self.marks);
            self.raw.send(&encode(&["ECHO", &mark]));
            let reply = self.read("ECHO", Some(&mark));
            if !is_busy(&reply) {
                assert_eq!(
                    reply,
                    Value::Bulk(mark.into_bytes()),
                    "{}: a reply too many or too few",
                    self.name
                );
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{}: a script is past its time for ever", self.name);
    }

    fn mark(&self, number: u64) -> String {
        format!("{}:{number}", self.name)
    }

    /// True if the reply was a marker, and not a BUSY error, which might as well be an extra reply.
    fn take_mark(&mut self, number: u64, behind: &Words) -> bool {
        let mark = self.mark(number);
        let reply = self.read("ECHO", Some(&mark));
        if is_busy(&reply) {
            return false;
        }
        let words = behind.iter().take(4).cloned().collect::<Vec<_>>();
        assert_eq!(
            reply,
            Value::Bulk(mark.into_bytes()),
            "{}: a mark behind {}",
            self.name,
            words.join(" ").chars().take(120).collect::<String>()
        );
        true
    }

    /// Reads one reply, and tells the watchdog the request that it belongs to.
    pub(crate) fn read(&mut self, request: &str, argument: Option<&String>) -> Value {
        if !self.raw.has_pending() {
            let argument: String =
                argument.map_or(String::new(), |text| text.chars().take(80).collect());
            self.progress
                .note(&format!("no reply to {request} {argument}"));
        }
        let reply = self
            .raw
            .try_read()
            .unwrap_or_else(|error| panic!("{}: no reply to {request}: {error}", self.name));
        self.progress.step();
        reply
    }
}

fn encode(words: &[&str]) -> Vec<u8> {
    crate::wire::encode(words)
}

/// True if the command after this request is queued.
fn is_in_transaction(requests: &[Words], at: usize) -> bool {
    let last = requests[..=at]
        .iter()
        .rev()
        .find(|request| matches!(request[0].as_str(), "MULTI" | "EXEC"));
    last.is_some_and(|request| request[0] == "MULTI")
}
