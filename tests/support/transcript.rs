//! The form of `tests/transcripts/**/*.txt`: dialogues as redis-cli shows them, one file per family. The black-box
//! tests put them to the server and to redis-server over TCP; the families in `src/commands/command` play theirs in
//! process.
//!
//! ```text
//! ; a remark
//! @ 2 3            the protocols in which the whole file is played; only as the first thing of a file, 2 without it
//! !before SET k v  a request that every section begins with, its answer of no interest
//! # a title        a section: it begins with an empty server and a new connection
//! @ 3              from here on the connection speaks RESP3 (a new connection is made)
//! !sorted          the next answer's items come in no particular order
//! !since 7.2       the next answer is typed by hand, from the named version's behaviour; `!since basalt: why` marks
//!                  a difference that is meant
//! > SET k v        a request, words as redis-cli splits them
//! OK               its answer, up to the next line that begins with one of ; @ ! # > or is empty
//! ```
//!
//! A file that is played in both protocols shows every kind of nil as `(nil)`.

/// One file.
pub struct Transcript {
    /// The protocols in which the whole file is played.
    pub protocols: Vec<u8>,
    /// Requests that every section begins with.
    pub before: Vec<String>,
    /// Lines, with the answer where one is a request.
    pub rows: Vec<Row>,
}

/// One line of a file, with the answer where it is a request.
pub enum Row {
    /// A remark, an empty line, or what stands before a request and is kept with it.
    Verbatim(String),
    /// The title of a section.
    Section(String),
    /// From here on the connection speaks this protocol.
    Protocol(u8),
    /// A request and its answer.
    Request(Request),
}

/// A request and its answer.
pub struct Request {
    /// The words of the request.
    pub line: String,
    /// Number of the line in the file, from 1.
    pub number: usize,
    /// The items of the answer come in no particular order.
    pub is_sorted: bool,
    /// The answer is not redis-server's.
    pub is_by_hand: bool,
    /// What redis-cli would show.
    pub answer: String,
}

impl Transcript {
    /// Reads a file; panics with the number of a line that means nothing.
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
    /// An answer as it is compared and recorded: its items sorted where they come in no particular order, every kind
    /// of nil as `(nil)` where the file is played in both protocols.
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

/// The items of a flat answer in the order of their texts.
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
