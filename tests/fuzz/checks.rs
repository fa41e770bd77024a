//! What must hold for any bytes. Each check panics if it does not; the fuzzer and `smoke.rs` call them.

#![allow(dead_code, reason = "each fuzz target uses one of the checks")]

use basalt_commands::acl::{Roles, User, file};
use basalt_commands::cluster::packet::Packet;
use basalt_commands::cluster::wire::decode::{Refused, decode};
use basalt_commands::cluster::wire::encode::encode;
use basalt_commands::cluster::wire::reader::{ClusterPacketReader as BusReader, PacketStreamError};
use basalt_commands::command::catalogue::Commands;
use basalt_core::base::extended::Extended;
use basalt_core::base::glob::{Case, is_literal, matches};
use basalt_core::base::hash::HashSeed;
use basalt_core::base::number::{F64Buffer, parse_f64, parse_i64, parse_memory, parse_u64};
use basalt_core::base::text::{quote, split_arguments};
use basalt_core::json_path::{Budget, Node, PathError, Program, Step, Value, without_descendants};
use basalt_core::resp::request::{Parser, ProtocolError, RequestLimits, Requests};
use basalt_engine::serial::reader::Reader;
use basalt_engine::serial::writer::Writer;
use basalt_engine::serial::{self, Form};
use basalt_engine::value;
use basalt_engine::value::json;
use basalt_server::persist::rdb::check;

/// The outcome of parsing a stream of requests.
pub(crate) type Outcome = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

/// Feeds `bytes` to a parser in pieces that end at the ascending `cuts`. Arguments of `block_len_min` bytes and more
/// that come in several pieces are gathered in blocks: their odd pieces through the buffer, the others straight.
pub(crate) fn feed(
    bytes: &[u8],
    cuts: &[usize],
    block_len_min: usize,
    limits: &RequestLimits,
) -> Outcome {
    let (mut parser, mut requests) = (Parser::default(), Requests::default());
    let (mut commands, mut buf, mut fed) = (Vec::new(), Vec::new(), 0);
    for (number, cut) in cuts.iter().copied().chain([bytes.len()]).enumerate() {
        if number % 2 == 0
            && let Some(filling) = parser.filling()
        {
            fed += filling.take_in(&bytes[fed..cut]);
        }
        buf.extend_from_slice(&bytes[fed..cut]);
        parser.fill_block(&mut buf, 0);
        fed = cut;
        loop {
            requests.clear();
            let consumed = match parser.parse(&buf, limits, 4, &mut requests) {
                Ok(consumed) => consumed,
                Err(error) => return (commands, Some(error)),
            };
            for request in &requests.requests {
                commands.push(
                    requests
                        .arguments(&buf, *request)
                        .map(<[u8]>::to_vec)
                        .collect(),
                );
            }
            buf.drain(..consumed);
            if consumed == 0 {
                break;
            }
        }
        parser.begin_block(&mut buf, 0, block_len_min, 0);
    }
    (commands, None)
}

/// However the bytes of a connection arrive, and whichever arguments become blocks, they are the same requests, and the
/// same error behind them.
///
/// The first bytes choose the limits and the cuts, the rest is what the client sends.
pub(crate) fn request(
    data: &[u8],
    feed: impl Fn(&[u8], &[usize], usize, &RequestLimits) -> Outcome,
) {
    let [flags, first, second, third, bytes @ ..] = data else {
        return;
    };
    let limits = RequestLimits {
        authenticated: flags & 1 == 0,
        inline_len_max: if flags & 2 == 0 { 64 << 10 } else { 16 },
        bulk_len_max: if flags & 4 == 0 { 512 << 20 } else { 1000 },
        query_bytes_max: if flags & 8 == 0 { 1 << 30 } else { 500 },
    };
    let whole = feed(bytes, &[], usize::MAX, &limits);
    assert!(
        whole.0.iter().all(|command| !command.is_empty()),
        "a request has arguments"
    );
    let mut cuts = [first, second, third].map(|cut| usize::from(*cut).min(bytes.len()));
    cuts.sort_unstable();
    let every: Vec<usize> = (0..bytes.len()).collect();
    for block_len_min in [usize::MAX, usize::from(flags >> 3)] {
        let how = format!("blocks from {block_len_min} bytes on");
        let parsed = feed(bytes, &cuts, block_len_min, &limits);
        assert_eq!(parsed, whole, "cut at {cuts:?}, {how}");
        if bytes.len() <= 200 {
            let parsed = feed(bytes, &every, block_len_min, &limits);
            assert_eq!(parsed, whole, "byte by byte, {how}");
        }
    }
}

/// Quoting the parts of a split line and splitting the result gives the same parts.
pub(crate) fn text(data: &[u8]) {
    let split = |line: &[u8]| {
        let (mut bytes, mut ranges) = (Vec::new(), Vec::new());
        split_arguments(line, &mut bytes, |range| ranges.push(range)).ok()?;
        Some(
            ranges
                .into_iter()
                .map(|range| bytes[range].to_vec())
                .collect::<Vec<_>>(),
        )
    };
    let Some(arguments) = split(data) else {
        return;
    };
    let mut line = Vec::new();
    for argument in &arguments {
        quote(argument, &mut line);
        line.push(b' ');
    }
    assert!(line.iter().all(|byte| (b' '..=b'~').contains(byte)));
    assert_eq!(split(&line), Some(arguments));
}

/// Integers are read in the form in which they are printed and no other; floats as the standard library
/// reads them, where both know the form; what is printed reads back as the same.
pub(crate) fn number(data: &[u8]) {
    let utf8 = std::str::from_utf8(data).unwrap_or("no number");
    let signed = utf8
        .parse::<i64>()
        .ok()
        .filter(|value| value.to_string() == utf8);
    assert_eq!(parse_i64(data), signed);
    let unsigned = utf8
        .parse::<u64>()
        .ok()
        .filter(|value| value.to_string() == utf8);
    assert_eq!(parse_u64(data), unsigned);
    if data.iter().all(u8::is_ascii_digit) && data.len() < 19 {
        assert_eq!(parse_memory(data), utf8.parse().ok());
    }
    let float = parse_f64(data);
    let extended = Extended::parse(data);
    if let Some(value) = float {
        assert!(!value.is_nan());
        let printed = F64Buffer::default().format(value).to_vec();
        assert_eq!(parse_f64(&printed).map(f64::to_bits), Some(value.to_bits()));
        assert!(
            extended.is_some() || data.len() >= 5120,
            "an extended number has room for a double"
        );
        if !utf8.contains(['x', 'X']) {
            assert_eq!(utf8.parse(), Ok(value));
        }
    }
    if let Some(number) = extended.filter(|number| number.is_finite()) {
        let mut text = Vec::new();
        number.print(&mut text);
        let again = Extended::parse(&text).expect("what is printed is a number");
        let mut text_again = Vec::new();
        again.print(&mut text_again);
        // 17 digits behind the point may lose something the first time, but no more the second.
        assert_eq!(text.len() < 5000, text_again.len() < 5000);
        assert!(number.checked_add(Extended::ZERO).is_some());
    }
}

/// A pattern of no special bytes matches itself alone; a star in front matches at least as much.
pub(crate) fn glob(data: &[u8]) {
    let cut = data
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(data.len());
    let (pattern, text) = (&data[..cut], data.get(cut + 1..).unwrap_or_default());
    let is_match = matches(pattern, text, Case::Sensitive);
    if is_literal(pattern) {
        assert_eq!(is_match, pattern == text);
    }
    if is_match && !text.is_empty() {
        let starred = [b"*", pattern].concat();
        assert!(matches(&starred, text, Case::Sensitive));
    }
    matches(pattern, text, Case::Insensitive);
}

/// Thresholds so low that short inputs reach both the packed and the large encodings.
fn limits() -> serial::Limits {
    let seed = HashSeed { k0: 1, k1: 2 };
    serial::Limits {
        string_bytes_max: 1 << 20,
        list: value::list::limits(4, 1),
        set: value::set::SetLimits {
            intset_entries: 4,
            listpack_entries: 4,
            listpack_value: 16,
            seed,
            now_ms: 0,
        },
        sorted_set: value::sorted_set::SortedSetLimits {
            members: 4,
            member_bytes: 16,
            form: Default::default(),
            seed,
        },
        hash: value::hash::HashRules {
            fields_max: 4,
            element_bytes_max: 16,
            seed,
            now_ms: 0,
        },
    }
}

/// Whatever RESTORE takes can be dumped, and what is dumped is taken again and dumped as the same.
pub(crate) fn restore(data: &[u8]) {
    let limits = limits();
    let read = |bytes: &[u8]| {
        let mut reader = Reader::new(bytes, limits.string_bytes_max);
        serial::read(b"key", None, &mut reader, &limits).ok()
    };
    let Some(entry) = read(data) else {
        return;
    };
    for form in [Form::Oldest, Form::Whole] {
        let write = |entry: &basalt_core::structures::entry::Entry<value::Object>| {
            let mut writer = Writer::new(form, false);
            serial::write(entry.view(), 0, &mut writer);
            writer.finish()
        };
        let (first, version) = write(&entry);
        let again = read(&first).expect("what was dumped is taken");
        let (second, version_again) = write(&again);
        // Members without an order may change theirs.
        assert_eq!((first.len(), version), (second.len(), version_again));
        assert_eq!(first[0], second[0]);
    }
}

/// Hands bytes out in pieces of one size.
struct Drip<'b>(&'b [u8], usize);

impl std::io::Read for Drip<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let (now, later) = self.0.split_at(self.0.len().min(self.1).min(out.len()));
        out[..now.len()].copy_from_slice(now);
        self.0 = later;
        Ok(now.len())
    }
}

/// A snapshot of any bytes is good or it is not, and no cut of it is, in whatever pieces it comes.
pub(crate) fn snapshot(data: &[u8]) {
    let judge = |bytes: &[u8], piece| {
        let mut report = Vec::new();
        let now = basalt_engine::Now { unix_ms: 1 };
        let is_good = check::check(&mut Drip(bytes, piece), now, &mut report);
        (is_good.expect("a vector takes all"), report)
    };
    let file = [b"REDIS0012", data].concat();
    let (is_good, report) = judge(&file, usize::MAX);
    for piece in [1, 7] {
        assert_eq!(judge(&file, piece), (is_good, report.clone()));
    }
    let text = String::from_utf8_lossy(&report);
    assert_eq!(is_good, text.contains("RDB looks OK"), "{text}");
}

/// The rules of a user, separated by blanks: what is accepted makes the same user when it is written and read again.
pub(crate) fn rules(data: &[u8]) {
    let words: Vec<&[u8]> = data.split(|byte| *byte == b' ').collect();
    let Ok(user) = User::new(b"someone", false).with(&words, &Commands, &Roles::new()) else {
        return;
    };
    // Within parentheses quotes and backslashes are read, and not written, as in Redis.
    if data.iter().any(|byte| matches!(byte, b'"' | b'\'' | b'\\')) {
        return;
    }
    let line = user.line();
    let read = file::parse("users", &line, false, &Commands);
    let (read, roles) = read.expect("what was written is read");
    assert_eq!((read.len(), roles.len()), (1, 0));
    assert_eq!(read[0].line(), line);
    assert_eq!(
        read[0].is_unrestricted(&Commands),
        user.is_unrestricted(&Commands)
    );
}

/// The outcome of parsing a stream of the cluster bus.
type BusOutcome = (Vec<Result<Packet, Refused>>, Result<(), PacketStreamError>);

fn read_bus(bytes: &[u8], piece: usize) -> BusOutcome {
    let (mut reader, mut packets) = (BusReader::default(), Vec::new());
    for piece in bytes.chunks(piece) {
        // Which senders are known depends on their names, so that both ways of a long message are taken.
        let is_known = |name: &basalt_commands::cluster::node_id::NodeId| name.as_bytes()[0] > b'7';
        let fed = reader.feed(piece, is_known, |packet| packets.push(packet));
        assert!(
            reader.memory_bytes() <= 2 * bytes.len() + 8192,
            "a claim takes no memory"
        );
        if fed.is_err() {
            return (packets, fed);
        }
    }
    (packets, Ok(()))
}

/// However the bytes of the cluster bus arrive, they are the same packets; a packet that is read is written as one that
/// reads as the same.
///
/// The bytes stand behind heads that are good, as chance makes none: the first byte says how many, its upper half which
/// kind.
pub(crate) fn bus(data: &[u8]) {
    let [choice, data @ ..] = data else {
        return;
    };
    let mut stream = Vec::new();
    let mut rest = data;
    for number in 0..choice & 3 {
        let (body, later) = rest.split_at(rest.len() / 2);
        rest = later;
        let mut head = vec![0; 2256];
        head[..4].copy_from_slice(b"RCmb");
        head[4..8].copy_from_slice(&((2256 + body.len()) as u32).to_be_bytes());
        head[9] = 1;
        head[13] = (choice >> 4).wrapping_add(number) & 15;
        head[40..80].fill(b'0' + (choice & 8));
        if let [count, extensions, flags, ..] = body {
            (head[15], head[2215], head[2253]) = (count & 3, extensions & 3, flags & 7);
        }
        stream.extend_from_slice(&head);
        stream.extend_from_slice(body);
    }
    stream.extend_from_slice(rest);
    let whole = read_bus(&stream, usize::MAX);
    for piece in [7, 2256] {
        assert_eq!(read_bus(&stream, piece), whole, "pieces of {piece}");
    }
    for packet in whole.0.into_iter().flatten() {
        let bytes = encode(&packet);
        assert_eq!(decode(&bytes), Ok(packet));
    }
}

/// A document with some of everything that paths in `smoke.rs` name.
fn json_document() -> Value {
    let text = |text: &str| Value::Str(text.as_bytes().into());
    let object = |members: Vec<(&str, Value)>| {
        let member = |(key, value): (&str, Value)| (key.as_bytes().into(), value);
        Value::Object(members.into_iter().map(member).collect())
    };
    let inner = object(vec![
        (
            "a",
            Value::Array(vec![Value::Int(1), Value::Float(2.5), Value::Null]),
        ),
        ("b", text("ab")),
        ("é", Value::Bool(true)),
    ]);
    object(vec![
        (
            "a",
            Value::Array(vec![inner.clone(), Value::Uint(u64::MAX), inner.clone()]),
        ),
        ("b", inner),
        ("c", Value::Array(Vec::new())),
        ("", object(Vec::new())),
    ])
}

/// Any bytes are a document or are refused with one line; the text of a document is a document with the same text, by
/// our parser and by that of serde_json.
pub(crate) fn json(data: &[u8]) {
    let doc = match json::parse(data) {
        Ok(doc) => doc,
        Err(error) => {
            let line = error.to_string();
            assert!(!line.contains(['\r', '\n']), "{line:?}");
            assert!(error.at <= data.len());
            return;
        }
    };
    let root = json::JsonRef::root(&doc);
    assert_eq!(root.bytes().len(), doc.len());
    assert!(root.depth() <= json::DEPTH_MAX);
    let text = root.text();
    let again = json::parse(&text).expect("the text of a document");
    assert_eq!(json::JsonRef::root(&again).text(), text);
    serde_json::from_slice::<serde_json::Value>(&text).expect("a text for others");
}

/// Any text is a path or is refused with one line; a path's first match, its matches and its locations agree.
pub(crate) fn json_path(data: &[u8]) {
    let program = match Program::parse(data) {
        Ok(program) => program,
        Err(error) => {
            let line = error.to_string();
            assert!(!line.contains(['\r', '\n']), "{line:?}");
            return;
        }
    };
    assert_eq!(program.text(), data);
    let document = json_document();
    const STEPS: u64 = 200_000;
    let projected = program.project(&document, &mut Budget::of(STEPS));
    let (found, located) = (
        program.find(&document, &mut Budget::of(STEPS)),
        program.locate(&document, &mut Budget::of(STEPS)),
    );
    let (found, located) = match (found, located) {
        (Ok(found), Ok(located)) => (found, located),
        (found, located) => {
            assert_eq!(found.err(), located.err());
            return;
        }
    };
    assert!(!program.is_definite() || found.len() <= 1);
    assert!(program.is_projection() || projected == Ok(Vec::new()));
    assert_eq!(found.len(), located.len());
    for (node, location) in found.iter().zip(&located) {
        let there = location.iter().fold(&document, |value, step| match step {
            Step::Key(key) => value.child(key).expect("locations exist"),
            Step::Index(index) => value.element(*index).expect("locations exist"),
        });
        assert!(std::ptr::eq(*node, there));
    }
    match program.first(&document, &mut Budget::of(STEPS)) {
        Ok(first) => assert_eq!(first, found.first().copied()),
        Err(error) => assert_eq!(error, PathError::Exhausted),
    }
    let kept = without_descendants(located.clone());
    for location in &located {
        let covering = kept.iter().filter(|kept| location.starts_with(kept));
        assert_eq!(covering.count(), 1, "one of the kept covers each");
    }
}
