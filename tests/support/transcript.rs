//! The format of `tests/transcripts/**/*.txt`: dialogues as redis-cli shows them, one file per family. The
//! black-box tests play them against the server and redis-server over TCP; the families in `src/commands/command`
//! play theirs in process.
//!
//! ```text
//! ; a remark
//! @ 2 3            the protocols in which the whole file is played; only at the start of a file, by default 2
//! !before SET k v  a request at the start of every section, whose reply is ignored
//! # a title        a section: it starts with an empty server and a new connection
//! @ 3              from here on the connection uses RESP3 (a new connection is made)
//! !sorted          the items of the next reply are in no particular order
//! !since 7.2       the next reply is typed by hand, from the named version's behaviour; `!since basalt: why` marks
//!                  an intended difference
//! > SET k v        a request, with words as redis-cli splits them
//! OK               its reply, up to the next line that begins with one of ; @ ! # > or is empty
//! ```
//!
//! A file that is played in both protocols shows every kind of nil as `(nil)`.

/// A transcript file.
pub struct Transcript {
    /// The protocols in which the whole file is played.
    pub protocols: Vec<u8>,
    /// Requests at the start of every section.
    pub before: Vec<String>,
    /// The lines; a request with its reply.
    pub rows: Vec<Row>,
}

/// A line of a file; a request with its reply.
pub enum Row {
    /// A remark, an empty line, or lines that belong to the request after them.
    Verbatim(String),
    /// The title of a section.
    Section(String),
    /// Switches the connection to this protocol.
    Protocol(u8),
    /// A request and its reply.
    Request(Request),
}

/// A request and its reply.
pub struct Request {
    /// The words of the request.
    pub line: String,
    /// Line number in the file, from 1.
    pub number: usize,
    /// Whether the reply's items are in no particular order.
    pub is_sorted: bool,
    /// Whether the reply is not redis-server's.
    pub is_by_hand: bool,
    /// The reply as redis-cli would show it.
    pub answer: String,
}

impl Transcript {
    /// Parses a file; panics with the number of an invalid line.
    pub fn parse(text: &str) -> Transcript {
        let mut transcript = Transcript {
            protocols: vec![2],
            before: Vec::new(),
            rows: Vec::new(),
        };
        let (mut is_head, mut is_sorted, mut is_by_hand) = (true, false, false);
        for (index, line) in text.lines().enumerate() {
            let verbatim = Row::Verbatim(line.to_owned());
            let row = if let Some(request) = line.strip_prefix("> ") {
                let request = Request {
                    line: request.to_owned(),
                    number: index + 1,
                    is_sorted,
                    is_by_hand,
                    answer: String::new(),
                };
                (is_sorted, is_by_hand) = (false, false);
                Row::Request(request)
            } else if let Some(title) = line.strip_prefix("# ") {
                Row::Section(title.to_owned())
            } else if let Some(numbers) = line.strip_prefix("@ ") {
                let mut protocols = numbers.split(' ').map(|number| match number {
                    "2" => 2,
                    "3" => 3,
                    _ => panic!("line {}: 2 or 3 after @", index + 1),
                });
                if is_head {
                    transcript.protocols = protocols.collect();
                    verbatim
                } else {
                    Row::Protocol(protocols.next().expect("a protocol"))
                }
            } else if let Some(request) = line.strip_prefix("!before ") {
                transcript.before.push(request.to_owned());
                verbatim
            } else if line == "!sorted" {
                is_sorted = true;
                verbatim
            } else if line.starts_with("!since ") {
                is_by_hand = true;
                verbatim
            } else if line.is_empty() || line.starts_with(';') {
                verbatim
            } else {
                let Some(Row::Request(request)) = transcript.rows.last_mut() else {
                    panic!("line {}: an answer without a request: {line}", index + 1);
                };
                if !request.answer.is_empty() {
                    request.answer.push('\n');
                }
                request.answer.push_str(line);
                continue;
            };
            is_head &= matches!(row, Row::Verbatim(_));
            transcript.rows.push(row);
        }
        transcript
    }
}

impl Request {
    /// Normalizes a reply for comparison and recording: its items are sorted if they are in no particular order,
    /// and every kind of nil becomes `(nil)` if the file is played in both protocols.
    pub fn comparable(&self, answer: &str, is_in_both: bool) -> String {
        let answer = match self.is_sorted {
            true => sorted(answer),
            false => answer.to_owned(),
        };
        match is_in_both {
            true => answer
                .replace("(nil array)", "(nil)")
                .replace("(null)", "(nil)"),
            false => answer,
        }
    }
}

/// Sorts the items of a flat reply by their texts.
fn sorted(answer: &str) -> String {
    let mut items: Vec<&str> = Vec::new();
    let mut heads: Vec<&str> = Vec::new();
    for line in answer.lines() {
        let Some(at) = line.find([')', '~']).filter(|_| !line.starts_with('(')) else {
            return answer.to_owned();
        };
        let (head, item) = line.split_at(at + 1);
        heads.push(head);
        items.push(item);
    }
    items.sort_unstable();
    let lines = heads
        .iter()
        .zip(items)
        .map(|(head, item)| format!("{head}{item}"));
    lines.collect::<Vec<_>>().join("\n")
}
