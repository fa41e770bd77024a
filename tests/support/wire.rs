//! The protocol as seen by a test: a reply as a plain tree, its text as redis-cli would print it, and a raw client
//! over a blocking socket. It knows no commands and shares no code with the server, so that both cannot be wrong
//! together.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// Read timeout; a stuck shard then fails the test instead of hanging it.
const READ_TIMEOUT: Duration = Duration::from_secs(90);

/// A reply, RESP2 or RESP3, kept as close to its bytes as a comparison needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Simple(Vec<u8>),
    Error(Vec<u8>),
    Integer(i64),
    Bulk(Vec<u8>),
    NilBulk,
    NilArray,
    Null,
    Double(Vec<u8>),
    Boolean(bool),
    BigNumber(Vec<u8>),
    Verbatim(Vec<u8>),
    Array(Vec<Value>),
    Set(Vec<Value>),
    Push(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

impl Value {
    /// Returns the bytes of a text reply; panics on any other.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Value::Simple(text)
            | Value::Error(text)
            | Value::Bulk(text)
            | Value::Verbatim(text) => text,
            other => panic!("expected text, got {}", other.show()),
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// Returns the text of INFO and CLIENT LIST, without the format tag of a verbatim string.
    pub fn body(&self) -> String {
        let text = self.text();
        if let Value::Verbatim(_) = self {
            text[4..].to_owned()
        } else {
            text
        }
    }

    pub fn integer(&self) -> i64 {
        match self {
            Value::Integer(number) => *number,
            other => panic!("expected an integer, got {}", other.show()),
        }
    }

    pub fn items(&self) -> &[Value] {
        match self {
            Value::Array(items) | Value::Set(items) | Value::Push(items) => items,
            other => panic!("expected an array, got {}", other.show()),
        }
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Value::Error(_))
    }

    pub fn is_nil(&self) -> bool {
        matches!(self, Value::NilBulk | Value::NilArray | Value::Null)
    }

    /// Returns the texts and numbers in the reply, also those of arrays within it, with spaces in between.
    pub fn words(&self) -> String {
        match self {
            Value::Push(items) | Value::Array(items) => {
                let words: Vec<String> = items.iter().map(Value::words).collect();
                words.join(" ")
            }
            Value::Integer(number) => number.to_string(),
            value if value.is_nil() => "(nil)".to_owned(),
            text => text.text(),
        }
    }

    /// Formats the reply as redis-cli prints it, but distinguishing the RESP3 types.
    pub fn show(&self) -> String {
        let mut out = String::new();
        self.write_to(&mut out, 0);
        out
    }

    fn write_to(&self, out: &mut String, indent: usize) {
        match self {
            Value::Simple(text) => out.push_str(&escape(text)),
            Value::Error(text) => *out += &format!("(error) {}", escape(text)),
            Value::Integer(number) => *out += &format!("(integer) {number}"),
            Value::Bulk(text) => *out += &quote(text),
            Value::NilBulk => out.push_str("(nil)"),
            Value::NilArray => out.push_str("(nil array)"),
            Value::Null => out.push_str("(null)"),
            Value::Double(text) => *out += &format!("(double) {}", escape(text)),
            Value::Boolean(yes) => out.push_str(if *yes { "(true)" } else { "(false)" }),
            Value::BigNumber(text) => *out += &format!("(big number) {}", escape(text)),
            Value::Verbatim(text) => *out += &format!("(verbatim) {}", quote(text)),
            Value::Array(items) => write_items(out, indent, ")", "(empty array)", items),
            Value::Set(items) => write_items(out, indent, "~", "(empty set)", items),
            Value::Push(items) => write_items(out, indent, ">", "(empty push)", items),
            Value::Map(pairs) if pairs.is_empty() => out.push_str("(empty hash)"),
            Value::Map(pairs) => {
                for (index, (key, value)) in pairs.iter().enumerate() {
                    if index > 0 {
                        *out += &format!("\n{:indent$}", "");
                    }
                    *out += &format!("{}# ", index + 1);
                    key.write_to(out, indent + 3);
                    out.push_str(" => ");
                    value.write_to(out, indent + 3);
                }
            }
        }
    }
}

fn write_items(out: &mut String, indent: usize, mark: &str, empty: &str, items: &[Value]) {
    if items.is_empty() {
        out.push_str(empty);
    }
    let width = items.len().to_string().len();
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            *out += &format!("\n{:indent$}", "");
        }
        *out += &format!("{:>width$}{mark} ", index + 1);
        item.write_to(out, indent + width + 2);
    }
}

/// Quotes a word so that `split` reads it back.
pub fn quote(text: &[u8]) -> String {
    format!("\"{}\"", escape(text).replace('"', "\\\""))
}

fn escape(text: &[u8]) -> String {
    let mut out = String::new();
    for &byte in text {
        match byte {
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x07 => out.push_str("\\a"),
            0x08 => out.push_str("\\b"),
            b' '..=b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("\\x{other:02x}")),
        }
    }
    out
}

/// Splits a line like redis-cli: words, "quoted \x00 words" and 'plain ones'.
pub fn split(line: &str) -> Vec<Vec<u8>> {
    let bytes = line.as_bytes();
    let mut words = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b' ' {
            at += 1;
            continue;
        }
        let mut word = Vec::new();
        match bytes[at] {
            b'"' => {
                at += 1;
                while bytes[at] != b'"' {
                    if bytes[at] == b'\\' {
                        at += 1;
                        match bytes[at] {
                            b'n' => word.push(b'\n'),
                            b'r' => word.push(b'\r'),
                            b't' => word.push(b'\t'),
                            b'a' => word.push(0x07),
                            b'b' => word.push(0x08),
                            b'x' => {
                                let code = &line[at + 1..at + 3];
                                word.push(u8::from_str_radix(code, 16).expect("two hex digits"));
                                at += 2;
                            }
                            other => word.push(other),
                        }
                    } else {
                        word.push(bytes[at]);
                    }
                    at += 1;
                }
                at += 1;
            }
            b'\'' => {
                at += 1;
                while bytes[at] != b'\'' {
                    word.push(bytes[at]);
                    at += 1;
                }
                at += 1;
            }
            _ => {
                while at < bytes.len() && bytes[at] != b' ' {
                    word.push(bytes[at]);
                    at += 1;
                }
            }
        }
        words.push(word);
    }
    words
}

/// Encodes a command as a multibulk request.
pub fn encode<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_into(&mut out, args);
    out
}

pub fn encode_into<A: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[A]) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        let arg = arg.as_ref();
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

/// A connection that sends what it is given and reads one reply at a time.
pub struct Raw {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
}

impl Raw {
    pub fn connect(port: u16) -> Raw {
        Raw::try_connect(port).expect("connect to the server under test")
    }

    pub fn try_connect(port: u16) -> std::io::Result<Raw> {
        Raw::over(TcpStream::connect(("127.0.0.1", port))?)
    }

    /// Uses a connected socket.
    pub fn over(stream: TcpStream) -> std::io::Result<Raw> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        stream.set_write_timeout(Some(READ_TIMEOUT))?;
        Ok(Raw {
            stream,
            buffer: Vec::new(),
            start: 0,
        })
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream
            .write_all(bytes)
            .expect("send to the server under test");
    }

    /// Sends to a peer that may have closed already; a refused write is not the test's subject.
    pub fn send_unchecked(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    pub fn finish_sending(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Sends a command given as a line of words, and returns its reply.
    pub fn call(&mut self, line: &str) -> Value {
        self.command(&split(line))
    }

    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        self.send(&encode(args));
        self.read()
    }

    /// Sends all lines in one write, then reads their replies.
    pub fn pipeline(&mut self, lines: &[&str]) -> Vec<Value> {
        let mut bytes = Vec::new();
        for line in lines {
            encode_into(&mut bytes, &split(line));
        }
        self.send(&bytes);
        lines.iter().map(|_| self.read()).collect()
    }

    pub fn read(&mut self) -> Value {
        match self.try_read() {
            Ok(value) => value,
            Err(error) => panic!(
                "no reply: {error}; pending bytes {:?}",
                escape(self.pending())
            ),
        }
    }

    /// Reads a reply, or returns why there is none: closed, reset, timed out.
    pub fn try_read(&mut self) -> std::io::Result<Value> {
        let (mark, line) = self.line()?;
        Ok(match mark {
            b'+' => Value::Simple(line),
            b'-' => Value::Error(line),
            b':' => Value::Integer(number(&line)),
            b'_' => Value::Null,
            b',' => Value::Double(line),
            b'#' => Value::Boolean(line == b"t"),
            b'(' => Value::BigNumber(line),
            b'$' if line == b"-1" => Value::NilBulk,
            b'$' => Value::Bulk(self.block(number(&line))?),
            b'=' => Value::Verbatim(self.block(number(&line))?),
            b'*' if line == b"-1" => Value::NilArray,
            b'*' => Value::Array(self.values(number(&line))?),
            b'~' => Value::Set(self.values(number(&line))?),
            b'>' => Value::Push(self.values(number(&line))?),
            b'%' => {
                let mut flat = self.values(number(&line) * 2)?.into_iter();
                let mut pairs = Vec::new();
                while let (Some(key), Some(value)) = (flat.next(), flat.next()) {
                    pairs.push((key, value));
                }
                Value::Map(pairs)
            }
            other => panic!("not a reply: {:?} {:?}", char::from(other), escape(&line)),
        })
    }

    /// True if the peer closes without sending anything more.
    pub fn is_closed(&mut self) -> bool {
        if !self.pending().is_empty() {
            return false;
        }
        match self.fill() {
            Ok(()) => false,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    /// Returns everything received until the peer closes.
    pub fn read_to_close(&mut self) -> Vec<u8> {
        while self.fill().is_ok() {}
        self.pending().to_vec()
    }

    /// Whether received data have not been consumed yet.
    pub fn has_pending(&self) -> bool {
        !self.pending().is_empty()
    }

    fn pending(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    fn values(&mut self, count: i64) -> std::io::Result<Vec<Value>> {
        (0..count).map(|_| self.try_read()).collect()
    }

    fn line(&mut self) -> std::io::Result<(u8, Vec<u8>)> {
        let mut seen = 0;
        loop {
            if let Some(end) = self.pending()[seen..]
                .windows(2)
                .position(|pair| pair == b"\r\n")
            {
                let end = seen + end;
                let mark = self.pending()[0];
                let line = self.pending()[1..end].to_vec();
                self.start += end + 2;
                return Ok((mark, line));
            }
            seen = self.pending().len().saturating_sub(1);
            self.fill()?;
        }
    }

    fn block(&mut self, length: i64) -> std::io::Result<Vec<u8>> {
        let length = usize::try_from(length).expect("a bulk length");
        while self.pending().len() < length + 2 {
            self.fill()?;
        }
        let block = self.pending()[..length].to_vec();
        assert_eq!(
            &self.pending()[length..length + 2],
            b"\r\n",
            "a bulk ends in CRLF"
        );
        self.start += length + 2;
        Ok(block)
    }

    fn fill(&mut self) -> std::io::Result<()> {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        } else if self.start > 1 << 20 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        let mut chunk = [0; 16 * 1024];
        let count = loop {
            match self.stream.read(&mut chunk) {
                // Happens when the process was stopped and continues.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if count == 0 {
            return Err(std::io::Error::new(
                ErrorKind::UnexpectedEof,
                "closed by the server",
            ));
        }
        self.buffer.extend_from_slice(&chunk[..count]);
        Ok(())
    }
}

fn number(text: &[u8]) -> i64 {
    std::str::from_utf8(text)
        .expect("a number")
        .parse()
        .expect("a number")
}
