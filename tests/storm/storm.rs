//! State that all clients of the storm share: its end, the counts, the faults, and the clients that make no
//! progress.

use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::support::{Draw, Server};

/// A client without progress for this long stands still.
pub(crate) const STALLED_AFTER: Duration = Duration::from_secs(60);

/// A storm that has not checked enough by then, beyond its time, is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(240);

/// Greatest number of faults that are recorded.
const FAULTS_MAX: usize = 20;

/// The work of a worker until the storm is over.
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) work: Box<dyn FnOnce(&mut At<'_>) + Send>,
}

impl Worker {
    pub(crate) fn new(
        name: impl Into<String>,
        work: impl FnOnce(&mut At<'_>) + Send + 'static,
    ) -> Worker {
        Worker {
            name: name.into(),
            work: Box::new(work),
        }
    }
}

/// A worker's context: its storm, its name, its random source.
pub(crate) struct At<'s> {
    pub(crate) storm: &'s Storm,
    pub(crate) name: String,
    pub(crate) draw: Draw,
    progress: Arc<Progress>,
}

/// A worker's progress.
#[derive(Default)]
pub(crate) struct Progress {
    steps: AtomicU64,
    /// The request that it waits for.
    doing: Mutex<String>,
}

impl Progress {
    pub(crate) fn step(&self) {
        self.steps.fetch_add(1, Relaxed);
    }

    pub(crate) fn note(&self, doing: &str) {
        let mut text = self.doing.lock().expect("a text");
        text.clear();
        text.push_str(doing);
    }
}

impl At<'_> {
    pub(crate) fn goes_on(&self) -> bool {
        self.progress.step();
        !self.storm.is_over()
    }

    /// A connection of this worker.
    pub(crate) fn client(&self) -> Client {
        Client::new(
            self.storm.port,
            self.name.clone(),
            Arc::clone(&self.progress),
        )
    }

    pub(crate) fn nap(&mut self, up_to: Duration) {
        let us = self.draw.below(up_to.as_micros() as usize + 1) as u64;
        std::thread::sleep(Duration::from_micros(us));
    }
}

/// See the module.
pub(crate) struct Storm {
    pub(crate) port: u16,
    /// Iterations of an empty Lua loop that take a millisecond.
    pub(crate) turns_per_ms: u64,
    seed: u64,
    is_over: AtomicBool,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    faults: Mutex<Vec<String>>,
    /// Figures that checkers keep until the end, by name.
    pub(crate) kept: Mutex<BTreeMap<String, u64>>,
}

impl Storm {
    pub(crate) fn new(server: &Server, seed: u64) -> Storm {
        Storm {
            port: server.port,
            turns_per_ms: turns_per_ms(server),
            seed,
            is_over: AtomicBool::new(false),
            counts: Mutex::default(),
            faults: Mutex::default(),
            kept: Mutex::default(),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// Counts an action or a check.
    pub(crate) fn count(&self, what: &'static str, by: u64) {
        *self.counts.lock().expect("counts").entry(what).or_default() += by;
    }

    /// Adds to a figure that is judged at the end.
    pub(crate) fn keep(&self, name: &str, by: u64) {
        let mut kept = self.kept.lock().expect("figures");
        *kept.entry(name.to_owned()).or_default() += by;
    }

    pub(crate) fn kept(&self, name: &str) -> u64 {
        let kept = self.kept.lock().expect("figures");
        kept.get(name).copied().unwrap_or(0)
    }

    /// Records a fault, which ends the storm.
    pub(crate) fn fault(&self, text: String) {
        let mut faults = self.faults.lock().expect("faults");
        eprintln!("fault: {text}");
        if faults.len() < FAULTS_MAX {
            faults.push(text);
        }
        self.is_over.store(true, SeqCst);
    }

    pub(crate) fn is_faultless(&self) -> bool {
        self.faults.lock().expect("faults").is_empty()
    }

    /// True if each count has reached its floor.
    fn has(&self, floors: &[(&'static str, u64)]) -> bool {
        self.lacking(floors).is_empty()
    }

    fn lacking(&self, floors: &[(&'static str, u64)]) -> Vec<String> {
        let counts = self.counts.lock().expect("counts");
        let of = |name| counts.get(name).copied().unwrap_or(0);
        let lacking = floors.iter().filter(|(name, floor)| of(*name) < *floor);
        lacking
            .map(|(name, floor)| format!("{} of {floor} {name}", of(*name)))
            .collect()
    }

    /// Lets all workers work until the time is over and enough was checked.
    pub(crate) fn rage(&self, workers: Vec<Worker>, seconds: u64, floors: &[(&'static str, u64)]) {
        let progress: Vec<(String, Arc<Progress>)> = workers
            .iter()
            .map(|worker| (worker.name.clone(), Arc::default()))
            .collect();
        std::thread::scope(|scope| {
            let threads: Vec<_> = workers
                .into_iter()
                .zip(&progress)
                .enumerate()
                .map(|(number, (worker, (name, progress)))| {
                    let mut at = At {
                        storm: self,
                        name: name.clone(),
                        draw: Draw::new(self.seed * 1_000 + number as u64),
                        progress: Arc::clone(progress),
                    };
                    scope.spawn(move || (worker.work)(&mut at))
                })
                .collect();
            self.watch(&progress, Duration::from_secs(seconds), floors, || {
                threads.iter().any(|thread| thread.is_finished())
            });
            self.is_over.store(true, SeqCst);
            for (thread, (name, _)) in threads.into_iter().zip(&progress) {
                if let Err(panic) = thread.join() {
                    let text = panic.downcast_ref::<String>().cloned();
                    let text = text.unwrap_or_else(|| "a panic".to_owned());
                    self.fault(format!("{name}: {text}"));
                }
            }
        });
    }

    /// Watches until the end that every worker makes progress.
    fn watch(
        &self,
        progress: &[(String, Arc<Progress>)],
        time: Duration,
        floors: &[(&'static str, u64)],
        has_one_ended: impl Fn() -> bool,
    ) {
        let began = Instant::now();
        let mut seen: Vec<(u64, Instant)> = vec![(0, began); progress.len()];
        while !self.is_over() && !has_one_ended() {
            std::thread::sleep(Duration::from_millis(20));
            for ((name, progress), (steps, since)) in progress.iter().zip(&mut seen) {
                let now = progress.steps.load(Relaxed);
                if now != *steps {
                    (*steps, *since) = (now, Instant::now());
                } else if since.elapsed() > STALLED_AFTER {
                    let doing = progress.doing.lock().expect("a text").clone();
                    self.fault(format!("{name} stands still: {doing}"));
                }
            }
            if began.elapsed() >= time && self.has(floors) {
                return;
            }
            if began.elapsed() >= time + STUCK_AFTER {
                let lacking = self.lacking(floors).join(", ");
                return self.fault(format!("not enough was checked: {lacking}"));
            }
        }
    }

    pub(crate) fn summary(&self) -> String {
        let counts = self.counts.lock().expect("counts");
        let lines = counts
            .iter()
            .map(|(name, count)| format!("{count:>12} {name}"));
        lines.collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn assert_faultless(&self) {
        let faults = self.faults.lock().expect("faults");
        assert!(
            faults.is_empty(),
            "{} faults (seed {}):\n{}",
            faults.len(),
            self.seed,
            faults.join("\n")
        );
    }
}

/// Measured before any other client is there.
fn turns_per_ms(server: &Server) -> u64 {
    const TRIED: u64 = 300_000;
    let mut raw = server.raw();
    let tried = TRIED.to_string();
    let tries = (0..4).map(|_| {
        let began = Instant::now();
        raw.command(&["EVAL", "for i = 1, tonumber(ARGV[1]) do end", "0", &tried]);
        began.elapsed()
    });
    let best = tries.min().expect("some tries").as_micros().max(1) as u64;
    (TRIED * 1_000 / best).max(1)
}
