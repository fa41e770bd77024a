//! Tests of `writer`.

use std::io::Read;
use std::path::Path;

use super::*;
use crate::persist::files::Files;
use crate::persist::files::simulated::{EIO, ENOSPC, Fault, Simulated};

fn stretch(texts: &[&'static str], position: u64) -> Stretch {
    Stretch {
        items: texts
            .iter()
            .map(|text| OpLogItem::alone(Bytes::from_static(text.as_bytes())))
            .collect(),
        position,
    }
}

fn text(files: &Simulated, name: &str) -> String {
    let mut text = String::new();
    let mut file = files.open(&Path::new("/d").join(name)).expect("there");
    file.read_to_string(&mut text).expect("read");
    text
}

fn opened() -> (Simulated, AofWriter) {
    let files = Simulated::new(Path::new("/d"));
    let file = files.create(Path::new("/d/1")).expect("made");
    let mut writer = AofWriter::default();
    writer.open(file, 0);
    (files, writer)
}

#[test]
fn stretches_are_written_whole_and_again_after_a_failure() {
    let (files, mut writer) = opened();
    writer.push(stretch(&["one ", "two "], 10), None);
    writer.push(stretch(&["three "], 20), None);
    // Half of the bytes are written, then the disk is full: the first stretch is whole, the second one is
    // truncated.
    files.fail_at(1, Fault::Short);
    files.fail_at(2, Fault::Short);
    files.fail_at(3, Fault::Fails(ENOSPC));
    assert!(matches!(writer.flush(), Err(AofFlushError::Write(_))));
    assert_eq!(
        (text(&files, "1").as_str(), writer.written()),
        ("one two ", 10)
    );
    assert_eq!(writer.queued_bytes(), 6);
    files.fail_at(1, Fault::Short);
    files.fail_at(2, Fault::Fails(EIO));
    files.fail_at(3, Fault::Fails(EIO));
    assert!(writer.flush().is_err());
    assert_eq!(text(&files, "1"), "one two thr", "it could not be cut off");
    writer.flush().expect("the disk is back");
    assert_eq!(
        (text(&files, "1").as_str(), writer.written()),
        ("one two three ", 20)
    );
    assert!(writer.is_idle() && writer.queued_bytes() == 0);
    assert_eq!(writer.file_bytes(), 14);
}

#[test]
fn what_was_forgotten_is_made_up_for_by_a_rewrite_whose_cut_lies_behind_it() {
    let (files, mut writer) = opened();
    let marked = |number: u64, text: &'static str| {
        let mut all = stretch(&[], 30);
        all.items.push(OpLogItem::Mark(number, 20));
        all.items.extend(stretch(&[text], 0).items);
        all
    };
    let next = files.create(Path::new("/d/2")).expect("made");
    writer.expect_mark(7, next);
    writer.push(stretch(&["old "], 10), None);
    writer.push(marked(7, "gone "), None);
    writer.forget();
    // The rewrite whose cut was this marker is useless, even if it succeeds: records after its cut were
    // dropped.
    assert!(!writer.skip_to_mark(7) && writer.has_gap());
    writer.release();
    writer.push(stretch(&["held "], 40), None);
    writer.flush().expect("nothing is written");
    assert_eq!(
        (text(&files, "1").as_str(), text(&files, "2").as_str()),
        ("", "")
    );
    let next = files.create(Path::new("/d/3")).expect("made");
    writer.expect_mark(8, next);
    writer.push(marked(8, "new "), None);
    assert!(writer.skip_to_mark(8) && !writer.has_gap());
    writer.release();
    writer.flush().expect("written");
    assert_eq!(text(&files, "3"), "new ");
}

#[test]
fn what_follows_a_mark_goes_to_the_next_file_once_the_first_is_synced() {
    let (files, mut writer) = opened();
    let next = files.create(Path::new("/d/2")).expect("made");
    writer.expect_mark(7, next);
    let mut all = stretch(&["old "], 30);
    all.items.push(OpLogItem::Mark(7, 20));
    all.items.extend(stretch(&["new "], 0).items);
    writer.push(all, Some(5));
    files.fail_at(2, Fault::Fails(EIO));
    assert!(matches!(writer.flush(), Err(AofFlushError::Sync(_))));
    assert!(
        writer.take_sync_time().is_some(),
        "it took its time all the same"
    );
    writer.hold();
    writer.flush().expect("nothing is done");
    assert!(writer.take_sync_time().is_none());
    assert_eq!(text(&files, "2"), "");
    // The new base contains the records of the first file.
    assert!(writer.skip_to_mark(7) && !writer.awaits_mark() && writer.is_held());
    writer.release();
    writer.flush().expect("written");
    assert_eq!(text(&files, "1"), "#TS:5\r\nold ");
    assert_eq!(
        (text(&files, "2").as_str(), writer.written()),
        ("#TS:5\r\nnew ", 30)
    );
    writer.push(stretch(&["more "], 40), Some(5));
    writer.push(stretch(&["late "], 50), Some(6));
    writer.flush().expect("written");
    assert_eq!(text(&files, "2"), "#TS:5\r\nnew more #TS:6\r\nlate ");
}
