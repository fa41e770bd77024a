//! A server under callgrind, and the atomic read-modify-writes that its commands cost, by location.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::code::Object;
use crate::driven::Driven;
use crate::place::{Counts, Names};
use crate::profile::{At, Function, Profile};
use crate::workloads::Workload;

/// Batches of one connection before the counted ones.
const WARM_BATCHES: usize = 40;

/// Counts for each batch below this are occasional work of the server.
const COUNT_MIN: f64 = 0.02;

/// Time for which the idle server is measured.
const IDLE_TIME: Duration = Duration::from_secs(3);

/// Greatest depth of the search among a wrapper's callers.
const DEPTH_MAX: usize = 24;

/// A server whose instructions are counted.
pub(crate) struct Counted {
    pub(crate) driven: Driven,
    objects: HashMap<String, Object>,
    names: Names,
    dumps: PathBuf,
    dump_count: usize,
    /// The idle server's counts in a second.
    idle: Counts,
    _folder: tempfile::TempDir,
}

impl Counted {
    /// Starts this server with `threads` threads, and as many connections.
    pub(crate) fn start(threads: usize, directives: &[(&str, &str)]) -> Counted {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let dumps = folder.path().join("counts");
        let valgrind = format!(
            "-q --tool=callgrind --instr-atstart=no --dump-instr=yes --compress-strings=no --compress-pos=no \
             --demangle=no --callgrind-out-file={}",
            dumps.display()
        );
        let mut counted = Counted {
            driven: Driven::start(&valgrind, threads, directives),
            objects: HashMap::new(),
            names: Names::default(),
            dumps,
            dump_count: 0,
            idle: Counts::new(),
            _folder: folder,
        };
        counted.tell(&["instrumentation", "on"]);
        std::thread::sleep(IDLE_TIME);
        let mut idle = counted.dump();
        for count in idle.values_mut() {
            *count /= IDLE_TIME.as_secs_f64();
        }
        counted.idle = idle;
        counted
    }

    /// Returns the cost of one batch, by location, without the idle server's counts in that time.
    pub(crate) fn batch(&mut self, workload: &Workload, pipeline: usize, batches: usize) -> Counts {
        self.driven.drive(workload, pipeline, WARM_BATCHES);
        self.tell(&["zero"]);
        let begun = Instant::now();
        self.driven.drive(workload, pipeline, batches);
        let took = begun.elapsed();
        let mut counts = self.dump();
        for (place, count) in &self.idle {
            if let Some(counted) = counts.get_mut(place) {
                *counted -= count * took.as_secs_f64();
            }
        }
        let all = (batches * self.driven.clients.len()) as f64;
        counts.retain(|_, count| {
            *count /= all;
            *count >= COUNT_MIN
        });
        counts
    }

    /// Runs commands that are not counted.
    pub(crate) fn prepare(&mut self, workload: &Workload) {
        self.driven.drive(workload, 20, WARM_BATCHES);
    }

    fn tell(&self, what: &[&str]) {
        let pid = format!("--pid={}", self.driven.server.pid());
        let told = Command::new("vgdb")
            .arg(&pid)
            .args(what)
            .output()
            .expect("vgdb can be run");
        assert!(told.status.success(), "vgdb {what:?}: {told:?}");
    }

    /// Read-modify-writes since the last dump, by place.
    fn dump(&mut self) -> Counts {
        self.tell(&["dump"]);
        self.dump_count += 1;
        let file = format!("{}.{}", self.dumps.display(), self.dump_count);
        let text = std::fs::read(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        let profile = Profile::parse(&String::from_utf8_lossy(&text));
        let _ = std::fs::remove_file(&file);
        let mut counts = Counts::new();
        let mut found = Vec::new();
        for (at, (count, function)) in &profile.runs {
            let object = self
                .objects
                .entry(at.object.clone())
                .or_insert_with(|| Object::load(Path::new(&at.object)));
            if object.is_read_modify_write(at.address) {
                found.push((at.clone(), *count as f64, function.clone()));
            }
        }
        self.attribute(&profile, found, &mut counts);
        counts
    }

    /// Assigns counts to their locations: to the innermost function that is no wrapper, or else to the
    /// callers of the outermost one, in proportion to their numbers of calls.
    fn attribute(
        &mut self,
        profile: &Profile,
        mut found: Vec<(At, f64, Function)>,
        counts: &mut Counts,
    ) {
        for depth in 0.. {
            let mut above: HashMap<At, (f64, Function)> = HashMap::new();
            for (at, count, function) in found {
                let callers = profile.calls.get(&function);
                match (self.names.place(&at, &function), callers) {
                    (None, Some(callers)) if depth < DEPTH_MAX => {
                        let all: u64 = callers.values().map(|(calls, _)| calls).sum();
                        for (caller, (calls, inside)) in callers {
                            let share = count * *calls as f64 / all as f64;
                            let entry = above.entry(caller.clone());
                            entry.or_insert_with(|| (0.0, inside.clone())).0 += share;
                        }
                    }
                    (place, _) => {
                        let place = place.unwrap_or_else(|| crate::place::unnamed(&function));
                        *counts.entry(place).or_default() += count;
                    }
                }
            }
            if above.is_empty() {
                return;
            }
            let one = |(at, (count, function))| (at, count, function);
            found = above.into_iter().map(one).collect();
        }
    }
}
