//! Crashes and faults at every step of seeded runs: writes, syncs, rewrites and restarts over the simulated disk.
//! In every case, the loaded data is a prefix of the written data, with everything that was synced. `CRASHES` is
//! the minimum number of crashes.

use std::io::{self, IoSlice, Read};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::store::{IncrFileState, Store};
use super::writer::{AofFlushError, AofWriter};
use crate::persist::files::Files;
use crate::persist::files::simulated::{EIO, ENOSPC, Fault, Simulated};
use crate::persist::oplog::{OpLogItem, Stretch};

const ROOT: &str = "/d";

/// A server without data: its commands are consecutive numbers, and a base holds the count of numbers before it.
struct Run {
    files: Simulated,
    store: Store,
    writer: AofWriter,
    random: SmallRng,
    /// The next number to write.
    next: u64,
    /// Numbers below this are on the disk, as confirmed to a client.
    acknowledged: u64,
    marks: u64,
}

fn open(files: &Simulated) -> Store {
    let directory = Path::new(ROOT).join("dir");
    let files: Arc<dyn Files> = Arc::new(files.clone());
    Store::open(files, directory, b"a".to_vec()).expect("the manifest is whole")
}

fn text_of(number: u64) -> String {
    format!("{number};")
}

/// Loads the files as a server does at startup and truncates a torn end; returns how many numbers there are.
fn load(store: &Store) -> u64 {
    let parts: Vec<_> = store.manifest().loaded().cloned().collect();
    let mut next = 0;
    for (index, part) in parts.iter().enumerate() {
        let mut bytes = Vec::new();
        let mut file = store
            .open_part(part)
            .expect("all files of the manifest are there");
        file.read_to_end(&mut bytes).expect("read");
        let text = String::from_utf8(bytes).expect("text");
        if Some(part) == store.manifest().base.as_ref() {
            let count = text
                .strip_prefix('B')
                .and_then(|text| text.strip_suffix(';'));
            next = count.expect("the base is whole").parse().expect("a count");
            continue;
        }
        let whole = text.rfind(';').map_or(0, |end| end + 1);
        for word in text[..whole].split_terminator(';') {
            assert_eq!(
                word,
                next.to_string(),
                "numbers follow each other in {part:?}"
            );
            next += 1;
        }
        let is_last = parts[index + 1..]
            .iter()
            .all(|part| store.len_of(part).expect("a length") == 0);
        assert!(
            whole == text.len() || is_last,
            "{part:?} is torn, and not the last"
        );
        if whole < text.len() {
            let zeros = text[whole..].bytes().all(|byte| byte == 0);
            assert!(zeros || !text[whole..].contains(';'));
            store.truncate(part, whole as u64).expect("cut off");
        }
    }
    next
}

impl Run {
    fn new(seed: u64) -> Run {
        let files = Simulated::new(Path::new(ROOT));
        let mut run = Run {
            store: open(&files),
            files,
            writer: AofWriter::default(),
            random: SmallRng::seed_from_u64(seed),
            next: 0,
            acknowledged: 0,
            marks: 0,
        };
        run.start().expect("nothing fails yet");
        run
    }

    fn start(&mut self) -> io::Result<()> {
        let (file, len) = self.store.open_at_start(Some((b"B0;", true)))?;
        self.writer.open(file, len);
        Ok(())
    }

    /// Restarts the machine after a power cut.
    fn restart(&mut self, seed: u64) {
        self.files.restart(seed);
        self.store = open(&self.files);
        let found = load(&self.store);
        assert!(found <= self.next, "{found} were never written");
        assert!(
            found >= self.acknowledged,
            "{found} of {} that were acknowledged",
            self.acknowledged
        );
        self.next = found;
        self.acknowledged = self.acknowledged.min(found);
        self.writer = AofWriter::default();
        self.start().expect("nothing fails now");
    }

    fn push(&mut self) {
        let count = self.random.random_range(1..4);
        let items =
            (0..count).map(|number| OpLogItem::alone(Bytes::from(text_of(self.next + number))));
        let items: Vec<OpLogItem> = items.collect();
        self.next += count;
        let stretch = Stretch {
            items,
            position: self.next,
        };
        self.writer.push(stretch, None);
    }

    fn flush(&mut self) {
        match self.writer.flush() {
            Ok(()) | Err(AofFlushError::Write(_)) => {}
            Err(AofFlushError::Sync(_)) => self.writer.hold(),
        }
    }

    fn sync(&mut self) {
        if self.writer.is_held() {
            return;
        }
        let Some((file, _, written)) = self.writer.file() else {
            return;
        };
        match file.sync() {
            Ok(()) => self.acknowledged = self.acknowledged.max(written),
            Err(_) => self.writer.hold(),
        }
    }

    fn write_base(&self, count: u64) -> io::Result<()> {
        let file = self.files.create(&self.store.temporary_base())?;
        let text = format!("B{count};");
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let taken = file.write(&[IoSlice::new(rest)])?;
            rest = &rest[taken..];
        }
        file.sync()
    }

    /// Rewrites as the module does, with other actions between its steps.
    fn rewrite(&mut self) -> io::Result<()> {
        let next = match self.writer.is_held() {
            true => IncrFileState::Temporary,
            false => IncrFileState::Listed,
        };
        let file = self.store.next_incr(&next)?.expect("there is one");
        self.marks += 1;
        self.writer.expect_mark(self.marks, file);
        self.some();
        let cut = self.next;
        let items = vec![OpLogItem::Mark(self.marks, cut)];
        self.writer.push(
            Stretch {
                items,
                position: cut,
            },
            None,
        );
        self.some();
        let ended = self.write_base(cut).and_then(|()| self.put_in_place(&next));
        if ended.is_err() {
            self.store.remove_temporary_base();
            if next == IncrFileState::Temporary {
                self.store.remove_temporary_incr();
                self.writer.hold();
            }
        }
        ended
    }

    fn put_in_place(&mut self, next: &IncrFileState) -> io::Result<()> {
        self.flush();
        let has_skipped = self.writer.awaits_mark() && self.writer.skip_to_mark(self.marks);
        self.flush();
        if *next == IncrFileState::Temporary {
            self.writer.release();
            self.writer.flush().map_err(AofFlushError::into_error)?;
            self.writer.file().expect("it is open").0.sync()?;
        }
        self.store.finish_rewrite(true, next)?;
        if has_skipped {
            self.writer.release();
        }
        if *next == IncrFileState::Temporary {
            self.acknowledged = self.acknowledged.max(self.writer.written());
        }
        self.store.delete_history()
    }

    /// Checks that obsolete files left by crashes are removed or overwritten.
    fn has_no_leftovers(&self) {
        let listed = self.files.list(&Path::new(ROOT).join("dir"));
        let listed = listed.expect("the directory is there");
        let manifest = self.store.manifest();
        assert!(manifest.history.is_empty());
        let loaded = manifest.loaded().count();
        assert_eq!(listed.len(), 1 + loaded, "{listed:?} {manifest:?}");
    }

    /// Performs a few random writes and syncs.
    fn some(&mut self) {
        for _ in 0..self.random.random_range(0..4) {
            self.push();
            if self.random.random_bool(0.7) {
                self.flush();
            }
            if self.random.random_bool(0.3) {
                self.sync();
            }
        }
    }

    fn go(&mut self, rounds: usize) {
        for _ in 0..rounds {
            if self.files.has_crashed() {
                return;
            }
            self.some();
            if self.random.random_bool(0.3) {
                // Ignore a failure: the rewrite is retried later.
                let _ = self.rewrite();
            }
        }
    }
}

#[test]
fn a_crash_at_any_step_leaves_a_prefix_with_all_that_was_acknowledged() {
    let wanted: u64 = match std::env::var("CRASHES") {
        Ok(told) => told.parse().expect("CRASHES is a number"),
        Err(_) => 3_000,
    };
    let mut crashes = 0;
    for seed in 0.. {
        if crashes >= wanted {
            break;
        }
        let steps = {
            let mut run = Run::new(seed);
            let began = run.files.steps();
            run.go(12);
            run.files.steps() - began
        };
        for step in 1..=steps {
            let mut run = Run::new(seed);
            run.files.fail_at(step, Fault::Crash);
            run.go(12);
            assert!(run.files.has_crashed());
            run.restart(seed * 1_000 + step);
            // Crash once more, during the following operations.
            run.files.fail_at(1 + step % 7, Fault::Crash);
            run.go(3);
            run.restart(step);
            crashes += 2;
            run.rewrite().expect("nothing fails now");
            run.has_no_leftovers();
        }
    }
    eprintln!("{crashes} crashes");
}

#[test]
fn faults_of_the_disk_lose_nothing_that_was_acknowledged_and_a_rewrite_makes_up_for_them() {
    let faults = [Fault::Short, Fault::Fails(EIO), Fault::Fails(ENOSPC)];
    let (mut held, mut healed) = (0, 0);
    for seed in 0..600 {
        let mut run = Run::new(seed);
        for _ in 0..4 {
            let fault = faults[run.random.random_range(0..faults.len())];
            let at = run.random.random_range(1..60);
            run.files.fail_at(at, fault);
        }
        run.go(10);
        if seed % 2 == 0 {
            run.restart(seed);
            continue;
        }
        // The disk works again: the server recovers by itself.
        run.files.heal();
        if run.writer.is_held() {
            held += 1;
            run.rewrite().expect("nothing fails any more");
            healed += 1;
        }
        run.flush();
        run.sync();
        assert_eq!(run.acknowledged, run.next, "all is written");
        run.restart(seed);
    }
    assert!(held > 20 && held == healed, "{held} {healed}");
}
