//! Tests of `oplog`.

use std::time::Duration;

use super::*;
use basalt_core::structures::block::{Content, LONG_BYTES_MIN};
use basalt_engine::record::Head;

fn head(db: usize, audience: Audience) -> Head {
    Head {
        stamp: 0,
        db,
        audience,
    }
}

/// Returns the text of everything that a reader gets up to the tail of the log, with markers as `<number>`.
fn read(log: &OpLog, reader: &OpLogReader) -> String {
    let mut text = String::new();
    let tail = log.tail();
    loop {
        let stretch = reader
            .take(Duration::from_secs(30))
            .expect("something comes");
        for item in stretch.items {
            match item {
                OpLogItem::Bytes(bytes, _) => text.push_str(&String::from_utf8_lossy(&bytes)),
                OpLogItem::Mark(number, _) => text.push_str(&format!("<{number}>\r\n")),
            }
        }
        if stretch.position >= tail {
            let words = text
                .split("\r\n")
                .filter(|word| !word.starts_with(['*', '$']));
            return words.collect::<Vec<_>>().join(" ").trim_end().to_owned();
        }
    }
}

fn put(log: &OpLog, all: &[(usize, Audience, &[&[u8]])], is_atomic: bool) -> u64 {
    let mut records = Records::default();
    for (db, audience, words) in all {
        records.push_bytes(head(*db, *audience), words);
    }
    log.append(&mut records, is_atomic)
}

fn started() -> Arc<OpLog> {
    let log = Arc::new(OpLog::default());
    log.start().expect("it starts");
    log
}

#[test]
fn who_asks_has_handed_out_what_was_appended_without_another_thread() {
    let log = OpLog::default();
    let reader = log.add_reader(Audience::FILE);
    let mut records = Records::default();
    for number in 0..10_000_u32 {
        records.push_bytes(
            head(0, Audience::FILE),
            &[b"SET", b"k", &number.to_ne_bytes()],
        );
        log.append(&mut records, false);
        records.clear();
    }
    log.hand_out();
    let stretch = reader.take(Duration::ZERO).expect("it is there");
    assert_eq!(stretch.position, log.tail());
}

#[test]
fn the_stream_selects_databases_and_wraps_what_is_atomic() {
    let log = started();
    let (file, replicas) = (
        log.add_reader(Audience::FILE),
        log.add_reader(Audience::REPLICAS),
    );
    let (both, for_file) = (Audience::BOTH, Audience::FILE);
    put(&log, &[(0, both, &[b"SET", b"a", b"1"])], false);
    put(&log, &[(0, for_file, &[b"SET", b"b", b"1"])], false);
    let atomic: [(usize, Audience, &[&[u8]]); 2] =
        [(0, both, &[b"INCR", b"a"]), (3, both, &[b"INCR", b"c"])];
    put(&log, &atomic, true);
    log.mark(for_file, 7);
    put(&log, &[(3, both, &[b"DEL", b"c"])], false);
    put(
        &log,
        &[(3, Audience::REPLICAS, &[b"PUBLISH", b"x", b"y"])],
        false,
    );
    let common = "MULTI INCR a SELECT 3 INCR c EXEC";
    let of_file = format!("SELECT 0 SET a 1 SET b 1 {common} <7> SELECT 3 DEL c");
    assert_eq!(read(&log, &file), of_file);
    let of_replicas = format!("SELECT 0 SET a 1 {common} DEL c PUBLISH x y");
    assert_eq!(read(&log, &replicas), of_replicas);
    assert_eq!(
        log.figures().records.load(Relaxed),
        6,
        "without MULTI, EXEC, SELECT and the mark"
    );
    log.stop();
}

#[test]
fn long_arguments_are_not_copied_and_long_units_stay_whole() {
    let log = started();
    let file = log.add_reader(Audience::FILE);
    let block = SharedBlock::new(&[b'x'; LONG_BYTES_MIN]);
    let mut records = Records::default();
    let arguments = [&b"SET"[..], b"k"].map(Content::from);
    let arguments = [arguments[0], arguments[1], Content::from(&block)];
    records.push(head(0, Audience::BOTH), arguments.into_iter());
    let position = log.append(&mut records, false);
    let mut shared = false;
    loop {
        let stretch = file.take(Duration::from_secs(30)).expect("something comes");
        shared |= stretch.items.iter().any(
            |item| matches!(item, OpLogItem::Bytes(bytes, _) if bytes.as_ptr() == block.as_ptr()),
        );
        if stretch.position >= position {
            break;
        }
    }
    assert!(shared);
    let mut records = Records::default();
    for _ in 0..10_000 {
        records.push_bytes(head(0, Audience::BOTH), &[b"PING"]);
    }
    log.append(&mut records, true);
    let text = read(&log, &file);
    assert!(text.starts_with("MULTI PING ") && text.ends_with(" PING EXEC"));
    assert_eq!(text.split(' ').count(), 10_002);
    assert_eq!(log.figures().records.load(Relaxed), 10_001);
    log.stop();
}

#[test]
fn the_thread_of_a_reader_sequences_and_is_woken_by_what_is_appended() {
    const APPENDS: u64 = 3_000;
    // Long enough that a lost wakeup makes the test fail by its timeout.
    const PATIENCE: Duration = Duration::from_secs(600);
    let log = started();
    let file = log.add_reader(Audience::FILE);
    let replicas = log.add_reader(Audience::REPLICAS);
    log.set_driver(Some(&file));
    let driver = {
        let (log, file) = (Arc::clone(&log), Arc::clone(&file));
        std::thread::spawn(move || {
            // Concatenate the pieces, as a record may continue in the next piece.
            let mut stream = Vec::new();
            for round in 0.. {
                let Some(stretch) = log.drive(&file, PATIENCE) else {
                    if file.is_closed() {
                        break;
                    }
                    continue;
                };
                for item in stretch.items {
                    if let OpLogItem::Bytes(bytes, _) = item {
                        stream.extend_from_slice(&bytes);
                    }
                }
                if round % 8 == 0 {
                    // Pretend to sync a file: meanwhile the sequencer must serve the other readers.
                    log.lend(true);
                    std::thread::sleep(Duration::from_millis(1));
                    log.lend(false);
                }
            }
            stream.windows(4).filter(|word| word == b"INCR").count()
        })
    };
    for number in 0..APPENDS {
        put(&log, &[(0, Audience::BOTH, &[b"INCR", b"a"])], false);
        match number % 100 {
            0 => std::thread::sleep(Duration::from_millis(1)),
            50 => std::thread::yield_now(),
            _ => {}
        }
    }
    let text = read(&log, &replicas);
    assert_eq!(text.matches("INCR").count() as u64, APPENDS);
    while file.waiting_bytes() > 0 {
        std::thread::yield_now();
    }
    log.remove_reader(&*file);
    assert_eq!(driver.join().expect("it is well") as u64, APPENDS);
    // From now on the sequencer does the sequencing again.
    log.set_driver(None);
    put(&log, &[(0, Audience::BOTH, &[b"SET", b"a", b"1"])], false);
    assert_eq!(read(&log, &replicas), "SET a 1");
    log.stop();
}

#[test]
fn a_reader_far_behind_holds_writers_back_until_it_is_done() {
    let log = started();
    let file = log.add_reader(Audience::FILE);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert!(log.poll_room(&mut cx, || !log.is_crowded()).is_ready());
    let block = SharedBlock::new(&vec![b'x'; 1 << 20]);
    let mut count = 0;
    while !log.is_crowded() {
        let mut records = Records::default();
        records.push(head(0, Audience::BOTH), [Content::from(&block)].into_iter());
        log.append(&mut records, false);
        count += 1;
        assert!(count < 100_000, "nobody is held back");
    }
    assert!(log.poll_room(&mut cx, || !log.is_crowded()).is_pending());
    let tail = log.tail();
    while file
        .take(Duration::from_secs(30))
        .expect("there is more")
        .position
        < tail
    {}
    log.look_at_readers();
    assert_eq!(
        log.awaited(),
        Some(BackpressureSource::Disk),
        "it holds what it took"
    );
    file.set_held(0);
    log.look_at_readers();
    assert_eq!(log.awaited(), None);
    assert!(log.poll_room(&mut cx, || !log.is_crowded()).is_ready());
    log.stop();
}

#[test]
fn what_may_wait_follows_the_limit_of_memory() {
    let of = |limit| {
        let bounds = Bounds::for_limit(limit);
        (bounds.ring_bytes >> 20, bounds.behind_bytes >> 20)
    };
    let limits = [0, 1, 40 << 20, 100 << 20, 1 << 30, 1 << 40];
    let all = [(16, 64), (1, 4), (1, 5), (2, 12), (16, 64), (16, 64)];
    assert_eq!(limits.map(of), all);
}
