//! Cache lines that move from one thread to another: a thread accesses a line that another thread wrote last,
//! or writes a line that others have read. Valgrind's lackey lists every load and store, and `--trace-sched`
//! the running thread, so that plain stores count as well as atomic ones.
//!
//! Each thread is assumed to have a cache of its own without evictions. Writes by the kernel are not seen.
//! Valgrind runs one thread at a time and switches threads at system calls and after 100,000 blocks of code,
//! so two threads meet less often than on cores of their own: the counts are transfers between one batch and
//! the next, without those of two batches that run at once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::driven::Driven;
use crate::place::{Names, Origin, Place, unnamed};
use crate::profile::At;
use crate::support::basalt;
use crate::workloads::Workload;

/// Bytes of a cache line, as a power of two.
const LINE_BITS: u32 = 6;

/// Batches of each connection before the counted ones: each thread has accessed every shard by then.
const WARM_BATCHES: usize = 20;

/// A cache line that was written since the trace began.
struct Line {
    /// A bit for each thread whose cache has the line.
    holders: u64,
}

/// Transfers at one instruction.
#[derive(Default)]
struct Transfers {
    count: u64,
    lines: HashSet<u64>,
}

/// State of the trace so far.
#[derive(Default)]
struct Seen {
    lines: HashMap<u64, Line>,
    /// Transfers by the address of the last preceding instruction of this server.
    transfers: HashMap<u64, Transfers>,
}

/// State that the thread which reads the trace shares with others.
#[derive(Default)]
struct Shared {
    /// Whether loads and stores are followed.
    follows: AtomicBool,
    /// Whether transfers are counted, too.
    counts: AtomicBool,
    seen: Mutex<Seen>,
}

/// Transfers for each batch at a place, and of how many different lines.
pub(crate) type Moves = BTreeMap<Place, (f64, usize)>;

/// A server whose loads and stores are followed.
pub(crate) struct Watched {
    pub(crate) driven: Driven,
    shared: Arc<Shared>,
    names: Names,
    /// Memory range of the binary's code.
    code: (u64, u64),
    _reader: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Watched {
    pub(crate) fn start(threads: usize, directives: &[(&str, &str)]) -> Watched {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let pipe = folder.path().join("trace");
        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo");
        let shared = Arc::new(Shared::default());
        let code = Arc::new(Mutex::new((0, u64::MAX)));
        let reader = {
            let (shared, pipe, code) = (Arc::clone(&shared), pipe.clone(), Arc::clone(&code));
            std::thread::spawn(move || read(&pipe, &shared, &code))
        };
        let valgrind = format!(
            "--tool=lackey --basic-counts=no --trace-mem=yes --trace-sched=yes --log-file={}",
            pipe.display()
        );
        let driven = Driven::start(&valgrind, threads, directives);
        let range = range_of_code(driven.server.pid());
        *code.lock().expect("not poisoned") = range;
        shared.follows.store(true, SeqCst);
        Watched {
            driven,
            shared,
            names: Names::default(),
            code: range,
            _reader: reader,
            _folder: folder,
        }
    }

    /// Prepares the server without following its loads and stores, which is much faster.
    pub(crate) fn prepare(&mut self, work: impl FnOnce(&mut Driven)) {
        self.shared.follows.store(false, SeqCst);
        work(&mut self.driven);
        self.shared.follows.store(true, SeqCst);
    }

    /// Returns the transfers of one batch, by location.
    pub(crate) fn batch(&mut self, workload: &Workload, pipeline: usize, batches: usize) -> Moves {
        self.driven.drive(workload, pipeline, WARM_BATCHES);
        self.shared.counts.store(true, SeqCst);
        self.driven.drive(workload, pipeline, batches);
        self.shared.counts.store(false, SeqCst);
        let mut seen = self.shared.seen.lock().expect("not poisoned");
        let transfers = std::mem::take(&mut seen.transfers);
        drop(seen);
        let all = (batches * self.driven.clients.len()) as f64;
        let mut moves: HashMap<Place, (u64, HashSet<u64>)> = HashMap::new();
        for (address, found) in transfers {
            let entry = moves.entry(self.place(address)).or_default();
            entry.0 += found.count;
            entry.1.extend(found.lines);
        }
        let one = |(place, (count, lines)): (Place, (u64, HashSet<u64>))| {
            (place, (count as f64 / all, lines.len()))
        };
        moves.into_iter().map(one).collect()
    }

    fn place(&mut self, address: u64) -> Place {
        let object = basalt().to_string_lossy().into_owned();
        let function = (object.clone(), String::new());
        if address < self.code.0 {
            return unnamed(&function);
        }
        let at = At {
            object,
            address: address - self.code.0,
        };
        let place = self.names.place(&at, &function);
        place.unwrap_or_else(|| Place {
            origin: Origin::Foreign,
            text: "the standard library".to_owned(),
        })
    }
}

/// Returns the memory range of a process's binary: its first address, and the first one behind its code.
fn range_of_code(pid: u32) -> (u64, u64) {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("the map of a process");
    let binary = std::fs::canonicalize(basalt()).expect("a binary");
    let name = binary.to_string_lossy().into_owned();
    let ranges: Vec<(u64, u64)> = maps
        .lines()
        .filter(|line| line.ends_with(&name))
        .filter_map(|line| {
            let (from, to) = line.split(' ').next()?.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some((number(from)?, number(to)?))
        })
        .collect();
    let first = ranges.first().expect("a mapped binary").0;
    (first, ranges.last().expect("a mapped binary").1)
}

/// Follows a trace to its end.
fn read(pipe: &Path, shared: &Shared, code: &Mutex<(u64, u64)>) {
    let file = std::fs::File::open(pipe).expect("a pipe");
    let mut trace = BufReader::with_capacity(1 << 20, file);
    let mut line = Vec::new();
    let mut thread = 0;
    let mut range = (0, u64::MAX);
    let mut at = [0; 64];
    while trace
        .read_until(b'\n', &mut line)
        .is_ok_and(|count| count > 0)
    {
        if line.starts_with(b"--") {
            thread = running(&line).unwrap_or(thread);
            range = *code.lock().expect("not poisoned");
        } else if shared.follows.load(SeqCst)
            && let Some((kind, address, bytes)) = access(&line)
        {
            if kind == b'I' {
                if (range.0..range.1).contains(&address) {
                    at[thread] = address;
                }
            } else {
                let counts = shared.counts.load(SeqCst);
                let mut seen = shared.seen.lock().expect("not poisoned");
                for number in address >> LINE_BITS..=(address + bytes - 1) >> LINE_BITS {
                    seen.touch(thread, kind != b'L', number, counts.then_some(at[thread]));
                }
            }
        }
        line.clear();
    }
}

impl Seen {
    /// Records a thread's access to a line; counts a transfer for an instruction, if one is given.
    fn touch(&mut self, thread: usize, writes: bool, number: u64, at: Option<u64>) {
        let own = 1 << thread;
        let is_transfer = match self.lines.get_mut(&number) {
            // A line that was never written goes to all caches and stays there.
            None if !writes => return,
            None => {
                self.lines.insert(number, Line { holders: own });
                false
            }
            Some(line) if writes => std::mem::replace(&mut line.holders, own) != own,
            Some(line) => {
                let has = line.holders & own != 0;
                line.holders |= own;
                !has
            }
        };
        if is_transfer && let Some(at) = at {
            let transfers = self.transfers.entry(at).or_default();
            transfers.count += 1;
            transfers.lines.insert(number);
        }
    }
}

/// Returns the number of the thread that runs from here on, if this is such a line of the scheduler.
fn running(line: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(line).ok()?;
    let (number, rest) = text.split_once("SCHED[")?.1.split_once("]:")?;
    let number: usize = number.parse().ok()?;
    (rest.trim_start().starts_with("acquired lock") && number < 64).then_some(number)
}

/// A load, a store, both or an instruction: its letter, its address and its bytes.
fn access(line: &[u8]) -> Option<(u8, u64, u64)> {
    let kind = match line.get(..3)? {
        b"I  " => b'I',
        b" L " => b'L',
        b" S " => b'S',
        b" M " => b'M',
        _ => return None,
    };
    let mut address = 0;
    let mut digits = line[3..].iter();
    for digit in digits.by_ref() {
        match (*digit as char).to_digit(16) {
            Some(digit) => address = address << 4 | u64::from(digit),
            None => break,
        }
    }
    let bytes = digits.map_while(|digit| (*digit as char).to_digit(10));
    let bytes = bytes.fold(0, |bytes, digit| bytes * 10 + u64::from(digit));
    (bytes > 0).then_some((kind, address, bytes))
}

#[test]
fn a_trace_is_read() {
    assert_eq!(access(b"I  0401ab70,3\n"), Some((b'I', 0x0401_ab70, 3)));
    assert_eq!(
        access(b" S 1fff000688,16\n"),
        Some((b'S', 0x1f_ff00_0688, 16))
    );
    assert_eq!(access(b"==1== Command\n"), None);
    let taken = b"--1--   SCHED[3]:  acquired lock (VG_(scheduler):timeslice)\n";
    assert_eq!(running(taken), Some(3));
    assert_eq!(
        running(b"--1--   SCHED[3]: releasing lock (x) -> VgTs_WaitSys\n"),
        None
    );
}

#[test]
fn lines_go_from_writers_to_others() {
    let mut seen = Seen::default();
    let mut touch = |thread, writes, number| {
        seen.touch(thread, writes, number, Some(7));
        seen.transfers
            .get(&7)
            .map_or(0, |transfers| transfers.count)
    };
    assert_eq!(touch(1, false, 5), 0, "nobody has written it");
    assert_eq!(touch(1, true, 5), 0);
    assert_eq!(touch(1, true, 5), 0, "a line of one thread stays with it");
    assert_eq!(touch(2, false, 5), 1, "another thread reads it");
    assert_eq!(touch(2, false, 5), 1, "and has it");
    assert_eq!(
        touch(1, true, 5),
        2,
        "the writer takes it away from the reader"
    );
    assert_eq!(touch(2, true, 5), 3, "the other one writes it");
    assert_eq!(touch(1, true, 6), 3, "another line");
}
