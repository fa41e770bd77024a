//! Tests of `by_piece`.

use std::sync::Arc;

use super::*;
use basalt_commands::command::testing::Terminal;
use basalt_core::base::hash::slot;
use basalt_core::resp::reply::Protocol;
use basalt_engine::Now;
use basalt_engine::snapshot::Stream;
use basalt_engine::snapshot::alone;

const ELEMENTS: u64 = 6_000;

/// Number of small keys besides the large collections.
const SMALL: u64 = 30;

/// Maximum number of elements encoded together: those of a table segment, which is encoded as a whole.
const TOGETHER_MAX: u64 = 1_000;

/// An outlet that counts the elements passed on, and records the key begun last.
#[derive(Default)]
struct Counting {
    larges: LargeCollectionEncoder,
    elements: AtomicU64,
    key: Mutex<String>,
}

impl Outlet for Counting {
    fn encode(&self, entry: EntryRef<'_, Object>, marks: &Marks<'_>, chunk: &mut Chunk) {
        self.larges.encode(entry, marks, chunk);
    }
    fn takes_pieces(&self, entry: EntryRef<'_, Object>) -> bool {
        self.larges.takes_pieces(entry)
    }
    fn begin_large(
        &self,
        entry: EntryRef<'_, Object>,
        marks: &Marks<'_>,
        chunk: &mut Chunk,
    ) -> CollectionShape {
        *self.key.lock() = String::from_utf8_lossy(entry.key()).into_owned();
        self.larges.begin_large(entry, marks, chunk)
    }
    fn encode_piece(
        &self,
        piece: &CollectionPiece<'_>,
        at: &CollectionProgress<'_>,
        chunk: &mut Chunk,
    ) -> u64 {
        let count = self.larges.encode_piece(piece, at, chunk);
        self.elements.fetch_add(count, Relaxed);
        count
    }
    fn end_large(&self, at: &CollectionProgress<'_>, chunk: &mut Chunk) {
        self.larges.end_large(at, chunk);
    }
    fn begin_stream(&self) -> u64 {
        self.larges.begin_stream()
    }
    fn end_stream(&self) {}
    fn give(&self, chunk: Chunk) {
        self.larges.give(chunk);
    }
    fn note_copied(&self, bytes: usize) {
        self.larges.note_copied(bytes);
    }
    fn fail(&self, why: &'static str) {
        self.larges.fail(why);
    }
    fn is_given_up(&self) -> bool {
        self.larges.is_given_up()
    }
}

/// Returns a node with large collections of all types in one slot, and small keys among them.
fn filled() -> Terminal {
    let mut cli = Terminal::with(1, Protocol::Resp2);
    cli.be_cluster();
    // Use small nodes, because each node of a list or stream is encoded as a whole.
    cli.configure(|config| {
        config.list_max_listpack_size = 8;
        config.stream_node_max_entries = 5;
    });
    for number in 0..ELEMENTS {
        cli.run(&format!("HSET {{t}}hash f{number} v{number}"));
        cli.run(&format!(
            "RPUSH {{t}}list value-that-is-somewhat-long-{number}"
        ));
        cli.run(&format!("SADD {{t}}set member{number}"));
        cli.run(&format!("ZADD {{t}}zset {number} member{number}"));
        cli.run(&format!("XADD {{t}}stream {}-1 f {number}", number + 1));
        if number % (ELEMENTS / SMALL) == 0 {
            cli.run(&format!("SET {{t}}small{number} {number}"));
        }
    }
    cli.run("PEXPIREAT {t}set 99999999999999");
    cli
}

fn changes(key: &str, turn: u64) -> Vec<String> {
    let (some, other) = (turn * 7 % ELEMENTS, turn * 11 % ELEMENTS);
    let words: &[&str] = match key {
        "{t}hash" => &["HSET $ f# x new# y", "HDEL $ f@"],
        "{t}list" => &["LSET $ 9 x#", "LPOP $", "RPUSH $ y"],
        "{t}set" => &["SADD $ new#", "SREM $ member@ member#"],
        "{t}zset" => &["ZINCRBY $ 5 member#", "ZREM $ member@"],
        _ => &["XADD $ 9999-# f x", "XDEL $ @-1"],
    };
    let line = |words: &&str| {
        let line = words.replace('$', key).replace('#', &some.to_string());
        line.replace('@', &other.to_string())
    };
    words.iter().map(line).collect()
}

fn digests(cli: &mut Terminal) -> Vec<String> {
    let mut keys: Vec<String> = ["hash", "list", "set", "zset", "stream"]
        .map(str::to_owned)
        .into();
    let small = (0..ELEMENTS).step_by((ELEMENTS / SMALL) as usize);
    keys.extend(small.map(|number| format!("small{number}")));
    let digest = |key: &String| cli.run(&format!("DEBUG DIGEST-VALUE {{t}}{key}"));
    let digests: Vec<String> = keys.iter().map(digest).collect();
    let nothing = cli.run("DEBUG DIGEST-VALUE {t}nothing");
    assert!(
        digests
            .iter()
            .all(|digest| *digest != nothing && !digest.contains("ERR"))
    );
    digests
}

fn put(chunk: Chunk, sent: &mut Vec<u8>) {
    assert!(chunk.blocks.is_empty(), "nothing here is long");
    sent.extend_from_slice(&chunk.bytes);
}

/// Parses RESP commands into their arguments.
fn requests(mut bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let line = |bytes: &mut &[u8]| -> usize {
        let end = bytes
            .iter()
            .position(|byte| *byte == b'\r')
            .expect("a line");
        let number = std::str::from_utf8(&bytes[1..end]).expect("digits");
        *bytes = &bytes[end + 2..];
        number.parse().expect("a number")
    };
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let count = line(&mut bytes);
        let mut arguments = Vec::new();
        for _ in 0..count {
            let len = line(&mut bytes);
            arguments.push(bytes[..len].to_vec());
            bytes = &bytes[len + 2..];
        }
        all.push(arguments);
    }
    all
}

#[test]
fn large_collections_are_shown_some_elements_at_a_time_as_they_were_when_they_began() {
    let mut cli = filled();
    let expected = digests(&mut cli);
    let counting = Arc::new(Counting::default());
    let outlet: Arc<dyn Outlet> = Arc::clone(&counting) as _;
    let now = Now {
        unix_ms: cli.now_ms,
    };
    counting.larges.set_now(now.unix_ms);
    let (mut sent, mut next, mut begun, mut most) = (Vec::new(), 0, 0, 0);
    loop {
        let mut chunk = Chunk::default();
        let into = (&mut chunk, alone::Larges::ByPiece(&outlet));
        let place = (0, slot(b"t"));
        let engine = &mut cli.engines[0];
        let written = engine.write_slot(place, next, usize::MAX, into, now.unix_ms);
        put(chunk, &mut sent);
        next = written.next;
        let mut is_more = written.has_begun;
        begun += u32::from(is_more);
        let mut turn = 0;
        while is_more {
            // Change the collection that was just begun; its remaining parts must still show its previous
            // state.
            turn += 1;
            let key = counting.key.lock().clone();
            for line in changes(&key, turn) {
                cli.run(&line);
            }
            let before = counting.elements.load(Relaxed);
            is_more = cli.engines[0].save_slice(&mut || false);
            most = most.max(counting.elements.load(Relaxed) - before);
            while let Some(part) = counting.larges.take() {
                put(part, &mut sent);
            }
        }
        assert_eq!(counting.larges.broken(), None);
        if next == 0 {
            break;
        }
    }
    assert_eq!(begun, 5, "each large collection began once");
    assert!(0 < most && most <= TOGETHER_MAX, "{most} together");
    let mut target = Terminal::with(1, Protocol::Resp2);
    target.be_cluster();
    for request in requests(&sent) {
        let reply = target.reply_bytes(&request);
        assert!(!reply.starts_with(b"-"), "{request:?}: {reply:?}");
    }
    assert_eq!(digests(&mut target), expected);
}

#[test]
fn a_large_collection_waits_where_snapshots_do_not_let_it_begin() {
    let mut cli = filled();
    let expected = digests(&mut cli);
    let mut chunk = Chunk::default();
    let place = (0, slot(b"t"));
    let now_ms = cli.now_ms;
    let engine = &mut cli.engines[0];
    let into = (&mut chunk, alone::Larges::Wait);
    let first = engine.write_slot(place, 0, usize::MAX, into, now_ms);
    assert!(first.waits && !first.has_begun);
    let into = (&mut chunk, alone::Larges::Wait);
    let again = engine.write_slot(place, first.next, usize::MAX, into, now_ms);
    assert_eq!((again.next, again.keys, again.waits), (first.next, 0, true));
    let into = (&mut chunk, alone::Larges::Whole);
    let rest = engine.write_slot(place, first.next, usize::MAX, into, now_ms);
    assert_eq!((rest.next, rest.waits, rest.has_begun), (0, false, false));
    assert_eq!(first.keys + rest.keys, 5 + SMALL);
    let mut target = Terminal::with(1, Protocol::Resp2);
    target.be_cluster();
    for request in requests(&chunk.bytes) {
        target.reply_bytes(&request);
    }
    assert_eq!(digests(&mut target), expected);
}

#[test]
fn parts_of_one_collection_come_before_those_of_the_next() {
    let larges = LargeCollectionEncoder::default();
    let part = |id, is_last, text: &[u8]| {
        let mut chunk = Chunk::default();
        chunk.stream = Some(Stream { id, is_last });
        chunk.bytes = text.to_vec();
        chunk
    };
    for (id, is_last, text) in [
        (1, false, b"a"),
        (2, false, b"c"),
        (1, true, b"b"),
        (2, true, b"d"),
    ] {
        larges.give(part(id, is_last, text));
    }
    let taken = std::iter::from_fn(|| larges.take()).flat_map(|chunk| chunk.bytes);
    assert_eq!(taken.collect::<Vec<u8>>(), b"abcd");
}
