//! The parser compared with the `redis-protocol` crate, with Redis's error texts, and with itself at every split of
//! the same bytes, with arguments in the read buffer and in blocks.

use bytes::BufMut;
use proptest::prelude::*;
use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::types::OwnedFrame;

use super::*;

type Command = Vec<Vec<u8>>;

fn open() -> RequestLimits {
    RequestLimits::default()
}

/// The result of parsing a stream of requests: the commands, and the error if any.
type Outcome = (Vec<Command>, Option<ProtocolError>);

/// How long arguments are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Long {
    /// In the read buffer, like all other arguments.
    Buffered,
    /// In blocks from this length on; the read buffer's part is moved there.
    Moved(usize),
    /// In blocks from this length on; all later bytes are written there directly.
    Straight(usize),
}

/// All ways of receiving them, with lengths for short tests.
const LONG: [Long; 6] = [
    Long::Buffered,
    Long::Moved(0),
    Long::Moved(5),
    Long::Straight(0),
    Long::Straight(3),
    Long::Straight(11),
];

/// Receives a piece. Returns the rest of it for the read buffer.
fn receive<'p>(parser: &mut Parser, buf: &mut Vec<u8>, piece: &'p [u8], long: Long) -> &'p [u8] {
    let mut rest = piece;
    if let Some(filling) = parser.filling()
        && matches!(long, Long::Straight(_))
    {
        let (straight, behind) = piece.split_at(filling.missing().min(piece.len()));
        filling.reserve(straight.len());
        filling.put_slice(straight);
        rest = behind;
    }
    buf.extend_from_slice(rest);
    parser.fill_block(buf, 0);
    rest
}

/// Feeds `bytes` in pieces that end at `cuts`, as a connection would. Returns the commands, and the error if any.
fn feed(bytes: &[u8], cuts: &[usize], limits: &RequestLimits) -> Outcome {
    let outcome = feed_as(Long::Buffered, bytes, cuts, limits);
    for long in LONG {
        assert_eq!(feed_as(long, bytes, cuts, limits), outcome, "{long:?}");
    }
    outcome
}

fn feed_as(long: Long, bytes: &[u8], cuts: &[usize], limits: &RequestLimits) -> Outcome {
    let mut parser = Parser::default();
    let mut requests = Requests::default();
    let mut commands = Vec::new();
    let mut buf: Vec<u8> = Vec::new();
    let mut fed = 0;
    for cut in cuts.iter().copied().chain([bytes.len()]) {
        receive(&mut parser, &mut buf, &bytes[fed..cut], long);
        fed = cut;
        loop {
            requests.clear();
            let consumed = match parser.parse(&buf, limits, 3, &mut requests) {
                Ok(consumed) => consumed,
                Err(error) => {
                    assert!(requests.requests.is_empty(), "an error comes alone");
                    assert_eq!(parser.parse(&buf, limits, 3, &mut requests), Err(error));
                    return (commands, Some(error));
                }
            };
            let mut end_before = 0;
            for request in &requests.requests {
                assert!(request.end > end_before && request.end as usize <= consumed);
                end_before = request.end;
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
        if let Long::Moved(len_min) | Long::Straight(len_min) = long {
            parser.begin_block(&mut buf, 0, len_min, 0);
        }
    }
    (commands, None)
}

fn whole(bytes: &[u8]) -> (Vec<Command>, Option<ProtocolError>) {
    feed(bytes, &[], &open())
}

fn error_text(bytes: &[u8], limits: &RequestLimits) -> String {
    let (_, error) = feed(bytes, &[], limits);
    error.map_or_else(|| "no error".to_owned(), |error| error.to_string())
}

fn encode(commands: &[Command]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for command in commands {
        bytes.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
        for argument in command {
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
    }
    bytes
}

/// The intended differences between redis-protocol and Redis.
#[derive(Debug, PartialEq)]
enum Difference {
    /// Not an array: Redis reads a line of words, redis-protocol another frame or an error.
    Inline,
    /// Redis skips the byte after `\r` whatever it is; redis-protocol requires `\r\n`.
    LineEnd,
    /// `+1`, `007`, `-0`: redis-protocol accepts what `str::parse` does, Redis canonical numbers only.
    Number,
    /// An empty or null array is no request for Redis, a frame for redis-protocol.
    NoArguments,
    /// Null bulk strings, nested arrays, integers: frames, but no arguments.
    Element,
    /// Counts and lengths that Redis rejects before the bytes arrive.
    Limit,
}

/// Parses one request in the shared grammar, until it ends or the two differ.
fn difference(bytes: &[u8]) -> Option<Difference> {
    fn line(bytes: &[u8]) -> Result<Option<(i64, usize)>, Difference> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\r') else {
            return Ok(None);
        };
        match bytes.get(end + 1) {
            None => return Ok(None),
            Some(b'\n') => {}
            Some(_) => return Err(Difference::LineEnd),
        }
        let text = std::str::from_utf8(&bytes[1..end]).unwrap_or_default();
        match text.parse::<i64>() {
            Ok(value) if value.to_string() == text => Ok(Some((value, end + 2))),
            Ok(_) => Err(Difference::Number),
            Err(_) => Ok(None),
        }
    }
    fn walk(bytes: &[u8]) -> Result<(), Difference> {
        if bytes.first().is_some_and(|byte| *byte != b'*') {
            return Err(Difference::Inline);
        }
        let Some((count, mut position)) = line(bytes)? else {
            return Ok(());
        };
        if count <= 0 {
            return Err(Difference::NoArguments);
        } else if count > i64::from(i32::MAX) {
            return Err(Difference::Limit);
        }
        for _ in 0..count {
            let rest = &bytes[position.min(bytes.len())..];
            if rest.first().is_some_and(|byte| *byte != b'$') {
                return Err(Difference::Element);
            }
            let Some((len, data)) = line(rest)? else {
                return Ok(());
            };
            if len < 0 {
                return Err(Difference::Element);
            } else if len as u64 > open().bulk_len_max {
                return Err(Difference::Limit);
            }
            position += data + len as usize + 2;
            if position > bytes.len() {
                return Ok(());
            }
        }
        Ok(())
    }
    walk(bytes).err()
}

fn command_of(frame: OwnedFrame) -> Command {
    let OwnedFrame::Array(frames) = frame else {
        panic!("not an array")
    };
    frames
        .into_iter()
        .map(|frame| match frame {
            OwnedFrame::BulkString(bytes) => bytes,
            other => panic!("not a bulk string: {other:?}"),
        })
        .collect()
}

/// The first request in `bytes` and its length; None if it is incomplete.
type First = Result<Option<(Command, usize)>, ProtocolError>;

fn first(bytes: &[u8]) -> First {
    let mut requests = Requests::default();
    let consumed = Parser::default().parse(bytes, &open(), 1, &mut requests)?;
    let request = requests.requests.first();
    Ok(request.map(|request| {
        (
            requests
                .arguments(bytes, *request)
                .map(<[u8]>::to_vec)
                .collect(),
            consumed,
        )
    }))
}

/// Compares the first result of a parser on `bytes` with that of redis-protocol, unless the two are meant to differ
/// there.
fn compare(bytes: &[u8], parser: impl Fn(&[u8]) -> First) -> Result<(), TestCaseError> {
    if difference(bytes).is_some() {
        return Ok(());
    }
    match (decode(bytes), parser(bytes)) {
        (Ok(theirs), Ok(ours)) => {
            prop_assert_eq!(theirs.map(|(frame, len)| (command_of(frame), len)), ours);
        }
        (Err(_), Err(_)) => {}
        (theirs, ours) => prop_assert!(false, "{:?} but ours {:?}", theirs, ours),
    }
    Ok(())
}

fn argument() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..20),
        2 => "[*$\r\n0-9-]{0,12}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 95..130),
    ]
}

/// Returns every position at which the bytes may be split.
fn cuts(bytes: &[u8]) -> impl Iterator<Item = usize> {
    (0..=bytes.len()).step_by(if cfg!(miri) { 61 } else { 1 })
}

fn commands() -> impl Strategy<Value = Vec<Command>> {
    prop::collection::vec(prop::collection::vec(argument(), 1..13), 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    #[test]
    fn every_split_gives_the_frames_of_redis_protocol(commands in commands()) {
        let bytes = encode(&commands);
        let mut theirs = Vec::new();
        let mut rest = &bytes[..];
        while let Some((frame, len)) = decode(rest).expect("well formed") {
            theirs.push(command_of(frame));
            rest = &rest[len..];
        }
        prop_assert_eq!(&theirs, &commands);
        for cut in cuts(&bytes) {
            prop_assert_eq!(feed(&bytes, &[cut], &open()), (theirs.clone(), None));
        }
        let every: Vec<usize> = (0..bytes.len()).collect();
        prop_assert_eq!(feed(&bytes, &every, &open()), (theirs, None));
    }

    #[test]
    fn damaged_bytes_are_accepted_exactly_when_redis_protocol_accepts_them(
        commands in prop::collection::vec(prop::collection::vec(argument(), 1..4), 1..3),
        damages in prop::collection::vec((any::<prop::sample::Index>(), damage()), 1..4),
    ) {
        let mut bytes = encode(&commands);
        for (index, damage) in damages {
            damage.apply(index, &mut bytes);
        }
        compare(&bytes, first)?;
        let every: Vec<usize> = (0..bytes.len()).collect();
        prop_assert_eq!(feed(&bytes, &every, &open()), whole(&bytes));
    }

    #[test]
    fn any_bytes_give_the_same_requests_at_every_split(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..80),
            "[*$0-3\r\n\"'a\\\\ x]{0,60}".prop_map(String::into_bytes),
        ],
        authenticated: bool,
    ) {
        let limits = RequestLimits { authenticated, inline_len_max: 24, ..open() };
        let expected = feed(&bytes, &[], &limits);
        for cut in cuts(&bytes) {
            prop_assert_eq!(feed(&bytes, &[cut], &limits), expected.clone());
        }
        let every: Vec<usize> = (0..bytes.len()).collect();
        prop_assert_eq!(feed(&bytes, &every, &limits), expected);
    }
}

#[derive(Clone, Debug)]
enum Damage {
    Replace(u8),
    Insert(u8),
    Remove,
    Cut,
}

fn damage() -> impl Strategy<Value = Damage> {
    let byte =
        || prop_oneof![4 => prop::sample::select(b"*$\r\n0129-+: ".to_vec()), 1 => any::<u8>()];
    prop_oneof![
        byte().prop_map(Damage::Replace),
        byte().prop_map(Damage::Insert),
        Just(Damage::Remove),
        Just(Damage::Cut),
    ]
}

impl Damage {
    fn apply(&self, index: prop::sample::Index, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let index = index.index(bytes.len());
        match self {
            Self::Replace(byte) => bytes[index] = *byte,
            Self::Insert(byte) => bytes.insert(index, *byte),
            Self::Remove => drop(bytes.remove(index)),
            Self::Cut => bytes.truncate(index),
        }
    }
}

#[test]
fn each_written_difference_is_one() {
    for (bytes, expected) in [
        (&b"PING\r\n"[..], Difference::Inline),
        (b"*1\rx$1\r\na\r\n", Difference::LineEnd),
        (b"*1\r\n$+1\r\na\r\n", Difference::Number),
        (b"*01\r\n$1\r\na\r\n", Difference::Number),
        (b"*0\r\n", Difference::NoArguments),
        (b"*-1\r\n", Difference::NoArguments),
        (b"*1\r\n$-1\r\n", Difference::Element),
        (b"*1\r\n:1\r\n", Difference::Element),
        (b"*1\r\n*1\r\n$1\r\na\r\n", Difference::Element),
        (b"*2147483648\r\n", Difference::Limit),
        (b"*1\r\n$999999999\r\n", Difference::Limit),
    ] {
        assert_eq!(
            difference(bytes),
            Some(expected),
            "{}",
            bytes.escape_ascii()
        );
    }
}

/// Checks the comparison itself: it must fail for incorrect parsers.
#[test]
fn the_comparison_fails_for_a_wrong_parser() {
    let bytes = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n";
    assert!(compare(bytes, first).is_ok());
    assert!(compare(bytes, |_| Ok(None)).is_err());
    assert!(compare(bytes, |_| Err(ProtocolError::InvalidCount)).is_err());
    assert!(compare(bytes, |_| first(b"*2\r\n$3\r\nGET\r\n$3\r\nkez\r\n")).is_err());
    assert!(compare(&bytes[..bytes.len() - 1], |_| first(bytes)).is_err());
}

#[test]
fn inline_commands_are_split_into_words() {
    let (commands, error) =
        whole(b"\r\n  \r\nPING\r\n\nset \"a b\" 'c' \"\\x41\\n\"\n*1\r\n$4\r\nPING\r\nget k\r\n");
    assert_eq!(error, None);
    assert_eq!(
        commands,
        [
            vec![b"PING".to_vec()],
            vec![
                b"set".to_vec(),
                b"a b".to_vec(),
                b"c".to_vec(),
                b"A\n".to_vec()
            ],
            vec![b"PING".to_vec()],
            vec![b"get".to_vec(), b"k".to_vec()],
        ]
    );
}

#[test]
fn empty_arrays_are_skipped() {
    let (commands, error) = whole(b"*0\r\n*-1\r\n*-5\r\n*1\r\n$1\r\na\r\n*0\r\n");
    assert_eq!((commands, error), (vec![vec![b"a".to_vec()]], None));
}

#[test]
fn bytes_behind_arguments_and_carriage_returns_are_not_looked_at() {
    let (commands, error) = whole(b"*1\rx$3\rxabcxy*1\r\n$12\rxabcdefghijkl\r\n*1\r\n$1\r\na\r\n");
    assert_eq!(error, None);
    assert_eq!(
        commands,
        [
            vec![b"abc".to_vec()],
            vec![b"abcdefghijkl".to_vec()],
            vec![b"a".to_vec()]
        ]
    );
}

#[test]
fn errors_have_the_texts_of_redis() {
    let open = open();
    for (bytes, text) in [
        (&b"*x\r\n"[..], "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*2147483648\r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*1\r\nfoo\r\n", "expected '$', got 'f'"),
        (b"*1\r\n\r\n", "expected '$', got ' '"),
        (b"*2\r\n$1\r\na\r\n:1\r\n", "expected '$', got ':'"),
        (b"set \"a\r\n", "unbalanced quotes in request"),
        (b"set 'a'b\r\n", "unbalanced quotes in request"),
    ] {
        assert_eq!(
            error_text(bytes, &open),
            format!("ERR Protocol error: {text}")
        );
    }
    assert_eq!(
        ProtocolError::ExpectedBulk(0xff).text(),
        b"ERR Protocol error: expected '$', got '\xff'"
    );
}

#[test]
fn lines_without_an_end_are_refused_beyond_64_kib() {
    for (start, text) in [
        (&b"*"[..], "too big mbulk count string"),
        (b"*1\r\n$", "too big bulk count string"),
        (b"*1\r\n", "too big bulk count string"),
        (b"", "too big inline request"),
    ] {
        let line_start = start
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |index| index + 1);
        let mut bytes = start.to_vec();
        bytes.resize(line_start + 65536, b'1');
        assert_eq!(whole(&bytes).1, None, "64 KiB are not too much");
        bytes.push(b'1');
        let expected = format!("ERR Protocol error: {text}");
        assert_eq!(error_text(&bytes, &open()), expected);
        bytes.extend_from_slice(b"\r\n");
        assert_eq!(
            error_text(&bytes, &open()),
            expected,
            "an end that comes too late changes nothing"
        );
    }
}

#[test]
fn a_line_of_64_kib_is_no_error() {
    let mut bytes = vec![b'a'; 65536];
    bytes.push(b'\n');
    assert_eq!(whole(&bytes), (vec![vec![vec![b'a'; 65536]]], None));
}

#[test]
fn clients_that_are_not_authenticated_are_kept_short() {
    let closed = RequestLimits {
        authenticated: false,
        ..open()
    };
    let count = "ERR Protocol error: unauthenticated multibulk length";
    let length = "ERR Protocol error: unauthenticated bulk length";
    assert_eq!(error_text(b"*10\r\n$16384\r\n", &closed), "no error");
    assert_eq!(error_text(b"*11\r\n", &closed), count);
    assert_eq!(error_text(b"*100\r\n", &closed), count);
    assert_eq!(error_text(b"*1\r\n$16385\r\n", &closed), length);
    assert_eq!(error_text(b"*100\r\n$16385\r\n", &open()), "no error");
}

#[test]
fn an_error_waits_for_the_requests_before_it_and_may_be_forgiven() {
    let bytes = b"*1\r\n$4\r\nAUTH\r\n*11\r\n";
    let closed = RequestLimits {
        authenticated: false,
        ..open()
    };
    let mut parser = Parser::default();
    let mut requests = Requests::default();
    assert_eq!(parser.parse(bytes, &closed, 64, &mut requests), Ok(14));
    assert_eq!(requests.requests.len(), 1);
    requests.clear();
    let rest = &bytes[14..];
    let error = parser.parse(rest, &closed, 64, &mut requests);
    assert_eq!(error, Err(ProtocolError::UnauthenticatedCount));
    assert_eq!(parser.parse(rest, &open(), 64, &mut requests), Ok(0));
}

#[test]
fn no_more_requests_are_returned_than_asked_for() {
    let bytes = b"PING\r\n\r\nPING\r\n*1\r\n$4\r\nPING\r\n";
    let mut parser = Parser::default();
    let mut requests = Requests::default();
    assert_eq!(parser.parse(bytes, &open(), 0, &mut requests), Ok(0));
    assert_eq!(parser.parse(bytes, &open(), 1, &mut requests), Ok(6));
    assert_eq!(parser.parse(&bytes[6..], &open(), 1, &mut requests), Ok(8));
    assert_eq!(requests.requests.len(), 2);
}

#[test]
fn an_unfinished_argument_says_how_much_it_wants() {
    let mut parser = Parser::default();
    let mut requests = Requests::default();
    let mut buf = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000".to_vec();
    assert_eq!(parser.parse(&buf, &open(), 64, &mut requests), Ok(0));
    assert_eq!((parser.wants(), parser.is_inside_request()), (0, true));
    buf.extend_from_slice(b"00\r\nabc");
    assert_eq!(parser.parse(&buf, &open(), 64, &mut requests), Ok(0));
    assert_eq!(parser.wants(), 100_000 + 2 - 3);
    buf.resize(buf.len() + 99_999, b'x');
    assert_eq!(
        parser.parse(&buf, &open(), 64, &mut requests),
        Ok(buf.len())
    );
    assert_eq!((parser.wants(), parser.is_inside_request()), (0, false));
    assert_eq!(requests.argument(&buf, 2).len(), 100_000);
}

#[test]
fn a_long_argument_leaves_the_buffer_for_a_block() {
    let head = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n";
    let value: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
    let mut parser = Parser::default();
    let mut requests = Requests::default();
    let mut buf = [&b"rest"[..], head, &value[..1000]].concat();
    assert_eq!(parser.parse(&buf[4..], &open(), 64, &mut requests), Ok(0));
    parser.begin_block(&mut buf, 4, 100_001, 0);
    assert!(parser.filling().is_none(), "it is not that long");
    parser.begin_block(&mut buf, 4, 100_000, 0);
    assert_eq!(buf[4..], head[..]);
    assert_eq!((parser.wants(), parser.filled_bytes()), (99_002, 1000));
    assert_eq!(parser.moved_bytes(), 1000);
    assert_eq!(parser.read_len(&buf[4..]), head.len());
    let filling = parser.filling().expect("begun");
    assert_eq!((filling.missing(), filling.room() < 500), (99_000, true));
    filling.reserve(98_000);
    filling.put_slice(&value[1000..99_000]);
    assert!(!parser.is_block_full());
    // The end of the argument arrives together with the following request.
    buf.extend_from_slice(&value[99_000..]);
    buf.extend_from_slice(b"\r\nPING\r\n");
    parser.fill_block(&mut buf, 4);
    assert!(parser.is_block_full());
    assert_eq!(parser.moved_bytes(), 100_000);
    let parsed = parser.parse(&buf[4..], &open(), 64, &mut requests);
    assert_eq!(parsed, Ok(head.len() + 2 + 6));
    let set = requests.requests[0];
    assert_eq!(requests.spans_of(set)[2].block(), Some(0));
    let arguments: Vec<&[u8]> = requests.arguments(&buf[4..], set).collect();
    assert_eq!(arguments, [&b"SET"[..], b"k", &value]);
    let block = &requests.arena.blocks[0];
    assert!(block.is_unique());
    assert_eq!(
        block.memory_bytes(),
        SharedBlock::new(&value).memory_bytes()
    );
    assert_eq!((parser.moved_bytes(), parser.filled_bytes()), (0, 0));
    assert_eq!(parser.blocks_memory_bytes(), 0);
    let kept = block.clone();
    requests.clear();
    assert!(kept.is_unique(), "no request holds it any more");
}

#[test]
fn nothing_is_reserved_for_what_is_merely_claimed() {
    let mut parser = Parser::default();
    let mut requests = Requests::default();
    let bytes = b"*2147483647\r\n$536870912\r\nabc";
    assert_eq!(parser.parse(bytes, &open(), 64, &mut requests), Ok(0));
    assert!(requests.spans.capacity() < 64 && parser.spans.capacity() < 64);
    assert_eq!(parser.wants(), 536_870_912 + 2 - 3);
    let mut buf = bytes.to_vec();
    parser.begin_block(&mut buf, 0, 16 * 1024, 0);
    assert!(parser.blocks_memory_bytes() < 64);
    assert_eq!(parser.wants(), 536_870_912 + 2 - 3);
}

#[test]
fn resuming_reads_only_what_is_new() {
    // A quadratic parser would examine 200,000 arguments 20,000 times.
    let arguments = if cfg!(miri) { 2000 } else { 200_000 };
    let bytes = encode(&[vec![b"x".to_vec(); arguments]]);
    let mut parser = Parser::default();
    let mut requests = Requests::default();
    for end in (0..bytes.len()).step_by(70) {
        let spans_before = parser.spans.len();
        assert_eq!(
            parser.parse(&bytes[..end], &open(), 64, &mut requests),
            Ok(0)
        );
        assert!(parser.spans.len() - spans_before <= 11);
        assert!(requests.spans.is_empty());
    }
    assert_eq!(
        parser.parse(&bytes, &open(), 64, &mut requests),
        Ok(bytes.len())
    );
    assert_eq!(requests.requests[0].count as usize, arguments);
    assert!(parser.spans.capacity() <= SPANS_KEPT_MAX);
    requests.clear();
    assert!(requests.spans.capacity() <= SPANS_KEPT_MAX);
}

#[test]
fn a_request_of_two_gibibytes_is_refused() {
    let limits = RequestLimits {
        bulk_len_max: u64::MAX,
        query_bytes_max: u64::MAX,
        ..open()
    };
    for bytes in [
        &b"*2\r\n$2147483647\r\n"[..],
        b"*2\r\n$1\r\na\r\n$9223372036854775807\r\n",
    ] {
        let every: Vec<usize> = (0..bytes.len()).collect();
        for cuts in [&[][..], &every] {
            assert_eq!(
                feed(bytes, cuts, &limits).1,
                Some(ProtocolError::RequestTooLong)
            );
        }
    }
    // Bytes that have left the buffer count for the limit, too.
    let bytes = b"*3\r\n$9\r\n123456789\r\n$2147483614\r\n";
    let every: Vec<usize> = (0..bytes.len()).collect();
    let too_long = feed(bytes, &every, &limits).1;
    assert_eq!(too_long, Some(ProtocolError::RequestTooLong));
    let just_not = b"*3\r\n$9\r\n123456789\r\n$2147483613\r\n";
    assert_eq!(feed(just_not, &every, &limits).1, None);
    let after_another = b"PING\r\n*1\r\n$9223372036854775807\r\n";
    assert_eq!(feed(after_another, &[], &limits).0.len(), 1);
}

#[test]
fn what_was_understood_of_an_incomplete_request_is_known() {
    let limits = RequestLimits {
        bulk_len_max: 1 << 20,
        query_bytes_max: 1 << 20,
        inline_len_max: 1 << 16,
        authenticated: true,
    };
    let cases: [(&[u8], usize); 5] = [
        (b"*1\r\n$100000\r\nvvv", 13),
        (b"*3\r\n$3\r\nSET\r\n$3\r\nke", 17),
        (b"*3\r\n$3\r\nSET\r\n", 13),
        (b"PIN", 0),
        (b"", 0),
    ];
    for (bytes, understood) in cases {
        let mut parser = Parser::default();
        let parsed = parser.parse(bytes, &limits, 10, &mut Requests::default());
        assert_eq!(parsed, Ok(0));
        assert_eq!(parser.read_len(bytes), understood, "{bytes:?}");
    }
}

#[test]
fn an_argument_and_its_line_end_fit_into_what_may_be_read_ahead() {
    let limits = RequestLimits {
        query_bytes_max: 1 << 20,
        ..open()
    };
    for (bytes, error) in [
        (&b"*2\r\n$3\r\nGET\r\n$1048574\r\n"[..], None),
        (
            b"*2\r\n$3\r\nGET\r\n$1048575\r\n",
            Some(ProtocolError::QueryTooLong),
        ),
    ] {
        let every: Vec<usize> = (0..bytes.len()).collect();
        for cuts in [&[][..], &every] {
            assert_eq!(feed(bytes, cuts, &limits).1, error);
        }
    }
}
